# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Look again and again from the controller until every rank is ready and the server serves, and say what is going on.

Between looks nothing runs on the target and no connection is held open, so a start of an hour needs no keepalive, and a
connection that drops is an event, not the end.
"""

from __future__ import annotations

import os
import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.validation import check_type_dict
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.tokforge.sglang.plugins.plugin_utils import progress_line, waiting

OWN_OPTIONS = {
    "timeout_s": {"type": "float"},
    "poll_s": {"type": "float"},
    "look_timeout_s": {"type": "float", "default": 10.0},
    "serve": {"type": "bool", "default": True},
}
RANKS, SERVING = "tokforge.sglang.startup_info", "tokforge.sglang.readiness_info"
# Options of one of the two only; root and log_position are of both.
OF_RANKS = ("log", "expect", "autotune", "process", "stall_timeout", "stall_timeout_s")
OF_BOTH = ("root", "log_position")
# What a failure's message holds already.
IN_MESSAGE = ("log_tail", "log_benign", "log_newest", "first_exception")
NOT_RETURNED = ("cursor", "invocation", "changed", "failed", "log_newest", "progress", "quiet_s", "doing", "previous_s")


class ActionModule(ActionBase):
    """The waiting; what a look sees is the modules' knowledge, what a series of looks means is waiting.Wait's."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._variables = task_vars or {}
        self._host = str(self._variables.get("inventory_hostname", "localhost"))
        given = dict(self._task.args)
        own = ArgumentSpecValidator(OWN_OPTIONS).validate({k: given.pop(k) for k in OWN_OPTIONS if k in given})
        if own.error_messages:
            return {**result, "failed": True, "msg": "; ".join(own.error_messages)}
        options = own.validated_parameters
        if options["timeout_s"] is not None and not options["timeout_s"] >= 0:
            return {**result, "failed": True, "msg": f"timeout_s is {options['timeout_s']}; give seconds from 0 on"}
        both = {name: given[name] for name in OF_BOTH if name in given}
        if not both.get("root") and not given.get("log"):
            return {**result, "failed": True, "msg": "one of root and log is needed to know which start to look at"}
        ranks = {**both, **{name: given[name] for name in OF_RANKS if name in given}}
        ranks.setdefault("log", os.path.join(str(both.get("root")), "log", "server.log"))
        serving = {**{k: v for k, v in given.items() if k not in OF_RANKS}, "timeout_s": options["look_timeout_s"]}
        # Whether a server answers is asked of the one that a root directory describes; other nodes' servers do not.
        serve = options["serve"] and bool(both.get("root")) and not _node_rank(ranks.get("expect"))
        try:
            if self._task.check_mode:
                return {**result, **self._look_only(ranks, serving if serve else None)}
            return {**result, **self._wait(ranks, serving if serve else None, options["timeout_s"], options["poll_s"])}
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)

    def _look(self, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self._execute_module(
            module_name=module, module_args=arguments, task_vars=self._variables
        )
        found.pop("invocation", None)
        return found

    def _look_only(self, ranks: dict[str, Any], serving: dict[str, Any] | None) -> dict[str, Any]:
        start = self._look(RANKS, ranks)
        if start.get("failed"):
            return start
        found = start
        if start["state"] in (waiting.READY, waiting.FAILED) or start.get("gap"):
            found = self._look(SERVING, serving) if serving is not None else start
        if found.get("failed"):
            return found
        result = {**_returned(found), "start": _returned(start), "changed": False}
        if found["state"] != waiting.READY:
            reason = f"check mode does not wait, and the server is {found['state']}: {found['detail']}"
            result.update(skipped=True, skip_reason=reason)
        return result

    def _wait(
        self, ranks: dict[str, Any], serving: dict[str, Any] | None, timeout_s: float | None, poll_s: float | None
    ) -> dict[str, Any]:
        display = Display()
        shown = progress_line.ProgressLine(display, progress_line.room(self._variables))
        wait = waiting.Wait(self._host, timeout_s, poll_s, asks=serving is not None)
        began = time.monotonic()
        start: dict[str, Any] = {}
        server: dict[str, Any] = {}
        looks, serve = 0, False
        try:
            while True:
                looks += 1
                arguments = {**ranks, "cursor": start["cursor"]} if start.get("cursor") else ranks
                try:
                    found = self._look(SERVING, serving) if serve and serving else self._look(RANKS, arguments)
                except AnsibleConnectionFailure as error:
                    # The server does not care about our connection; the wait's own limit decides when this is the end.
                    found = {**(server if serve else start), "state": waiting.STARTING, "stage": "process"}
                    found.update(detail=f"no connection to the host: {error}", doing="", log_newest="", gap=False)
                    self._connection.reset()
                if found.get("failed"):
                    return found
                elapsed_s = time.monotonic() - began
                if serve:
                    server, decision = found, wait.serving(found, elapsed_s)
                else:
                    start, decision = found, wait.ranks(found, elapsed_s)
                if decision.line:
                    (shown.last if decision.done else shown.show)(decision.line)
                if decision.serve:
                    serve = True
                    if serving is None:
                        shown.last(f"[{self._host}] ready after {elapsed_s:.0f} s: {start.get('detail', '')}")
                        return self._ended(start, {}, waiting.Decision(done=True), wait, elapsed_s, looks)
                    continue
                if decision.done:
                    if decision.failed and not serve and serving is not None:
                        # How the process ended, and the end of the log, are that module's knowledge.
                        server = self._last_words(serving)
                        decision = waiting.with_last_words(decision, start, server)
                    return self._ended(start, server, decision, wait, elapsed_s, looks)
                time.sleep(decision.pause_s)
        finally:
            shown.close()

    def _last_words(self, serving: dict[str, Any]) -> dict[str, Any]:
        try:
            found = self._look(SERVING, {**serving, "probe": False})
        except AnsibleConnectionFailure:
            return {}
        return {} if found.get("failed") else found

    def _ended(
        self,
        start: dict[str, Any],
        server: dict[str, Any],
        decision: waiting.Decision,
        wait: waiting.Wait,
        elapsed_s: float,
        looks: int,
    ) -> dict[str, Any]:
        result = {**_returned(server or start), "start": _returned(start)}
        result.update(changed=False, waited_s=round(elapsed_s, 2), looks=looks)
        if decision.failed:
            unit = str(self._task.args.get("name", "sglang"))
            message = waiting.failure_message(
                self._host, start, server, decision.reason, elapsed_s, wait.timeout_s, unit
            )
            result = {name: value for name, value in result.items() if name not in IN_MESSAGE}
            result["start"] = {name: value for name, value in result["start"].items() if name not in IN_MESSAGE}
            result.update(failed=True, reason=decision.reason, failure=start.get("failure"), msg=message)
        return result


def _node_rank(expect: Any) -> str:
    """The node's number as it was given, empty for the first one. What is wrong with it is for the module to say."""
    try:
        given = check_type_dict(expect or {}).get("node_rank")
    except TypeError:
        given = None
    return str(given or "").strip().lstrip("0")


def _returned(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name not in NOT_RETURNED}
