# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What only the controller can do: see whether the play that holds a lock still runs there, and wait for it."""

from __future__ import annotations

import getpass
import os
import time
from typing import Any
from unittest.mock import MagicMock

import pytest

from ansible_collections.tokforge.sglang.plugins.action import rollout
from ansible_collections.tokforge.sglang.plugins.module_utils import proc, rollout_lock

ENDED = {"failed": True, "locked": True, "why": "it gave a sign of life 3 s ago"}


def holder(**controller: Any) -> dict[str, Any]:
    who = {"host": "ci-1", "user": "deploy", "boot_id": "", "pid_namespace": "", "pid": 7, "start_ticks": 1}
    return {"rollout": "theirs", "what": "deploy", "controller": {**who, **controller}}


def here(pid: int) -> dict[str, Any]:
    return {"boot_id": proc.boot_id(), "pid_namespace": rollout_lock.pid_namespace(), "pid": pid}


def begin(answers: list[dict[str, Any]], check_mode: bool = False, **args: Any) -> tuple[dict[str, Any], list[Any]]:
    """Run the plugin against a module that gives these answers, the last one again and again."""
    asked: list[dict[str, Any]] = []

    def execute(module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        assert module_name == "tokforge.sglang.rollout"
        asked.append(dict(module_args))
        return dict(answers[min(len(asked), len(answers)) - 1])

    task = MagicMock(
        args={"state": "begun", "root": "/r", **args}, check_mode=check_mode, async_val=0, action="rollout"
    )
    plugin = rollout.ActionModule(task, MagicMock(), MagicMock(), None, MagicMock(), None)
    plugin._execute_module = execute
    plugin._remove_tmp_path = MagicMock()
    result: dict[str, Any] = plugin.run(task_vars={"inventory_hostname": "box"})
    return result, asked


def test_module_is_told_which_process_this_play_is() -> None:
    result, [asked] = begin([{"rollout": "mine", "invocation": {}}])
    assert result["rollout"] == "mine" and "invocation" not in result
    told = asked["controller"]
    assert (told["pid"], told["user"], told["boot_id"]) == (os.getppid(), getpass.getuser(), proc.boot_id())
    assert rollout_lock.runs(told["pid"], told["start_ticks"])


def test_other_states_are_passed_on() -> None:
    result, [asked] = begin([{"changed": False}], state="ended", rollout="mine")
    assert result["changed"] is False and asked == {
        "state": "ended",
        "root": "/r",
        "rollout": "mine",
        "target": "box",
    }


def test_dead_play_of_this_controller_is_told_to_the_module_once() -> None:
    dead = {**ENDED, "holder": holder(**here(2**22 - 1))}
    result, asked = begin([dead, {"rollout": "mine"}])
    assert result["rollout"] == "mine" and asked[1]["ended_plays"] == ["theirs"]
    # A task of it that is still at work holds the lock: told once is enough.
    result, asked = begin([dead])
    assert result["locked"] is True and len(asked) == 2


def test_living_play_is_not_called_dead_and_one_elsewhere_neither() -> None:
    process = proc.read_process(os.getpid())
    assert process
    for who in (holder(**{**here(os.getpid()), "start_ticks": process.start_ticks}), holder()):
        result, asked = begin([{**ENDED, "holder": who}])
        assert result["failed"] is True and len(asked) == 1 and "ended_plays" not in asked[0]


def test_waits_as_long_as_asked_and_says_for_whom(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    clock = [0.0]
    monkeypatch.setattr(rollout, "Display", lambda: MagicMock(display=lambda text, **more: shown.append(text)))
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    held = {**ENDED, "holder": holder()}
    result, asked = begin([held], wait_s="65")
    assert result["failed"] is True and clock[0] == 65.0 and len(asked) == 34
    # Not each time: a log file needs no line every two seconds.
    assert shown == [
        f"[box] waiting for deploy of deploy@ci-1, {seconds} of 65 s: it gave a sign of life 3 s ago"
        for seconds in (0, 30, 60)
    ]
    result, asked = begin([held, held, {"rollout": "mine"}], wait_s=60)
    assert result["rollout"] == "mine" and len(asked) == 3


def test_check_mode_does_not_wait() -> None:
    result, asked = begin([{**ENDED, "holder": holder()}], check_mode=True, wait_s=600)
    assert result["failed"] is True and len(asked) == 1


def test_failure_that_is_no_lock_is_the_result() -> None:
    result, asked = begin([{"failed": True, "msg": "no room"}], wait_s=600)
    assert result["msg"] == "no room" and len(asked) == 1


def test_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise KeyError("no such user")

    monkeypatch.setattr(getpass, "getuser", refuse)
    assert rollout.this_play().user == str(os.getuid())
