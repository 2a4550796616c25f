# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module is a process of its own on a target; here all of them share one."""

from __future__ import annotations

import pytest
from ansible.module_utils.common import warnings


@pytest.fixture(autouse=True)
def fresh_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ansible keeps what modules warned of for the life of the process, and puts all of it into every result."""
    # A mapping, before ansible-core 2.19 a list.
    monkeypatch.setattr(warnings, "_global_warnings", type(warnings._global_warnings)())
    monkeypatch.setattr(warnings, "_global_deprecations", {})
