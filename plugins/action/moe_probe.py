# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows that a probe is alive: kernels can take half an hour to compile."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from ansible_collections.tokforge.sglang.plugins.plugin_utils.heartbeat import run_with_heartbeat


class ActionModule(ActionBase):
    """Run the module of the same name."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run it with a line every few seconds."""
        return run_with_heartbeat(self, tmp, task_vars, "trying the new release's kernels")
