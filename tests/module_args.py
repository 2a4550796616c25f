# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arguments for a module that is run in the test's own process, with each ansible-core that the collection supports."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any
from unittest import mock

from ansible.module_utils import basic

try:
    from ansible.module_utils.testing import patch_module_args
except ImportError:  # before ansible-core 2.19

    @contextlib.contextmanager
    def patch_module_args(module_args: dict[str, Any] | None = None) -> Iterator[None]:
        """While it lasts, AnsibleModule finds these arguments."""
        given = json.dumps({"ANSIBLE_MODULE_ARGS": module_args or {}}).encode()
        with mock.patch.object(basic, "_ANSIBLE_ARGS", given):
            yield


__all__ = ["patch_module_args"]
