# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells the module which process runs this play, sees whether the one that holds the lock still does, and waits for it.

Both can only be done on the controller. A target may not see the processes of the controller, but another play from
the same one does.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from dataclasses import asdict
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.tokforge.sglang.plugins.module_utils import rollout_lock
from ansible_collections.tokforge.sglang.plugins.plugin_utils import progress_line

POLL_S = 2.0
# In a log file one line is enough for so many seconds.
TOLD_EVERY_S = 30.0
NAME = "tokforge.sglang.rollout"


class ActionModule(ActionBase):
    """Run the module of the same name; while another play holds the lock, again and again."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Only state begun has to do with the controller."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._variables = task_vars or {}
        given = dict(self._task.args)
        try:
            given["target"] = str(self._variables.get("inventory_hostname", ""))
            if given.get("state") != "begun":
                return {**result, **self._do(given)}
            given["controller"] = asdict(this_play())
            return {**result, **self._begin(given)}
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)

    def _do(self, given: dict[str, Any]) -> dict[str, Any]:
        done: dict[str, Any] = self._execute_module(module_name=NAME, module_args=given, task_vars=self._variables)
        done.pop("invocation", None)
        return done

    def _begin(self, given: dict[str, Any]) -> dict[str, Any]:
        host = str(self._variables.get("inventory_hostname", "localhost"))
        shown = progress_line.ProgressLine(Display(), progress_line.room(self._variables))
        began, told_s = time.monotonic(), 0.0
        try:
            while True:
                done = self._do(given)
                holder = done.get("holder")
                if not (done.get("failed") and done.get("locked") and holder):
                    return done
                told = given.get("ended_plays", [])
                if holder["rollout"] not in told and rollout_lock.Controller(**holder["controller"]).lives() is False:
                    given["ended_plays"] = [*told, holder["rollout"]]
                    continue
                elapsed_s = time.monotonic() - began
                wait_s = float(given.get("wait_s") or 0)
                if elapsed_s >= wait_s or self._task.check_mode:
                    return done
                if shown.on_terminal or elapsed_s >= told_s:
                    told_s = elapsed_s + TOLD_EVERY_S
                    who = f"{holder['what']} of {holder['controller']['user']}@{holder['controller']['host']}"
                    shown.show(f"[{host}] waiting for {who}, {elapsed_s:.0f} of {wait_s:.0f} s: {done.get('why', '')}")
                time.sleep(min(POLL_S, wait_s - elapsed_s))
        finally:
            shown.close()


def this_play() -> rollout_lock.Controller:
    """The process of ansible-playbook: tasks run in its children."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return rollout_lock.controller_of(os.getppid(), socket.gethostname(), user)
