# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the module of the same name and shows every few seconds that it is alive."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.tokforge.sglang.plugins.plugin_utils.heartbeat import run_with_heartbeat


class ActionModule(ActionBase):  # Ansible ships no types
    """The benchmark module with a sign of life."""

    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        return run_with_heartbeat(self, tmp, task_vars, "benchmark")
