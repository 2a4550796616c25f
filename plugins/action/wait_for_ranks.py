# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Look again and again from the controller until the server is ready, and say what is going on meanwhile.

Between looks nothing runs on the target and no connection is held open, so a start of an hour needs no keepalive, and a
connection that drops is an event, not the end.
"""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.tokforge.sglang.plugins.module_utils import readiness as core

OWN_OPTIONS = {
    "timeout_s": {"type": "float", "default": 600.0},
    "poll_s": {"type": "float"},
    "look_timeout_s": {"type": "float", "default": 10.0},
}
LOOK = "tokforge.sglang.readiness_info"
# What a failure's message holds already.
IN_MESSAGE = ("log_tail", "log_benign", "log_newest", "first_exception")


class ActionModule(ActionBase):
    """The waiting; what a look sees is the module's knowledge, what a series of looks means is core.Wait's."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        given = dict(self._task.args)
        own = ArgumentSpecValidator(OWN_OPTIONS).validate({k: given.pop(k) for k in OWN_OPTIONS if k in given})
        if own.error_messages:
            return {**result, "failed": True, "msg": "; ".join(own.error_messages)}
        options = own.validated_parameters
        look = {**given, "timeout_s": options["look_timeout_s"]}
        try:
            if self._task.check_mode:
                return {**result, **self._look_only(look, variables)}
            return {**result, **self._wait(look, options["timeout_s"], options["poll_s"], variables)}
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)

    def _look(self, arguments: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self._execute_module(module_name=LOOK, module_args=arguments, task_vars=variables)
        found.pop("invocation", None)
        return found

    def _look_only(self, look: dict[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
        found = self._look(look, variables)
        if found.get("failed"):
            return found
        if found["state"] == core.READY:
            return {**found, "changed": False}
        return {
            **found,
            "changed": False,
            "skipped": True,
            "skip_reason": f"check mode does not wait, and the server is {found['state']}: {found['detail']}",
        }

    def _wait(
        self, look: dict[str, Any], timeout_s: float, poll_s: float | None, variables: dict[str, Any]
    ) -> dict[str, Any]:
        display, host = Display(), str(variables.get("inventory_hostname", "localhost"))
        wait = core.Wait(host, timeout_s, poll_s)
        began = time.monotonic()
        looks = 0
        while True:
            looks += 1
            try:
                found = self._look(look, variables)
            except AnsibleConnectionFailure as error:
                # The server does not care about our connection; the wait's own limit decides when this is the end.
                found = {"state": core.STARTING, "stage": "process", "detail": f"no connection to the host: {error}"}
                self._connection.reset()
            if found.get("failed"):
                return found
            elapsed_s = time.monotonic() - began
            decision = wait.feed(found, elapsed_s)
            if decision.line:
                display.display(decision.line)
            if decision.done:
                found.update(changed=False, waited_s=round(elapsed_s, 2), looks=looks)
                if decision.failed:
                    unit = str(look.get("name", "sglang"))
                    message = core.failure_message(host, found, decision.reason, elapsed_s, timeout_s, unit)
                    found = {name: value for name, value in found.items() if name not in IN_MESSAGE}
                    found.update(failed=True, reason=decision.reason, msg=message)
                return found
            time.sleep(decision.pause_s)
