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
from ansible.module_utils.common import parameters

try:
    from ansible.module_utils.testing import patch_module_args as patched
except ImportError:  # before ansible-core 2.19

    @contextlib.contextmanager
    def patched(module_args: dict[str, Any] | None = None) -> Iterator[None]:
        """While it lasts, AnsibleModule finds these arguments."""
        given = json.dumps({"ANSIBLE_MODULE_ARGS": module_args or {}}).encode()
        with mock.patch.object(basic, "_ANSIBLE_ARGS", given):
            yield


# From ansible-core 2.21 on a module tells its arguments only when it is asked to.
ASKED = {"_ansible_inject_invocation": True} if "inject_invocation" in parameters.PASS_VARS else {}


@contextlib.contextmanager
def patch_module_args(module_args: dict[str, Any] | None = None) -> Iterator[None]:
    """While it lasts, AnsibleModule finds these arguments, and its result tells them."""
    with patched({**ASKED, **(module_args or {})}):
        yield
