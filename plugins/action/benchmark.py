# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the module of the same name and shows every few seconds which point it is at and how long it will take yet.

What is shown is read from a file that the benchmark's driver writes on the target: a module can print nothing before it
ends. Reading it costs one `cat` there, which a benchmark of the machine's own processor does not notice.
"""

from __future__ import annotations

import os
import shlex
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_progress
from ansible_collections.tokforge.sglang.plugins.plugin_utils.heartbeat import run_with_heartbeat


class ActionModule(ActionBase):  # Ansible ships no types
    """The benchmark module with a line of progress."""

    _supports_check_mode = True
    _supports_async = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        return run_with_heartbeat(self, tmp, task_vars, "benchmark", detail=self._detail)

    def _detail(self) -> str:
        """How far it is; nothing while that is not known, or is still that of the run before."""
        path = os.path.join(str(self._task.args.get("root")), "bench", bench_progress.FILE_NAME)
        name = shlex.quote(path)
        try:
            # One look: what the driver wrote, and the target's own clock, on a line of its own (the last may be half).
            found = self._low_level_execute_command(f"cat {name} && date +'%n{{\"now\": %s}}'")
        except (AnsibleError, OSError):
            return ""
        if found.get("rc") != 0:
            return ""
        progress = bench_progress.read(str(found.get("stdout", "")).encode())
        return "" if progress is None or progress.over else bench_progress.line(progress)
