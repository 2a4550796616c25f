# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The waiting half on the controller: what it asks, when it ends, what it does when the connection drops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.tokforge.sglang.plugins.action import wait_until_ready


def seen(state: str, **more: Any) -> dict[str, Any]:
    look = {"state": state, "stage": "health", "detail": f"it is {state}", "log": "/l", "log_tail": ["why"]}
    return {**look, **more}


class Waiter:
    """The plugin with a target that answers what it is told."""

    def __init__(self, answers: Iterable[Any], check_mode: bool = False, **arguments: Any) -> None:
        task = MagicMock(
            args={"root": "/r", "poll_s": 0, **arguments}, check_mode=check_mode, async_val=0, action="wait"
        )
        self.connection = MagicMock()
        self.plugin = wait_until_ready.ActionModule(task, self.connection, MagicMock(), None, MagicMock(), None)
        self.asked: list[dict[str, Any]] = []
        self.answers = iter(answers)
        self.plugin._execute_module = self.answer  # type: ignore[method-assign]
        self.plugin._remove_tmp_path = MagicMock()

    def answer(self, module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        assert module_name == "tokforge.sglang.readiness_info"
        self.asked.append(module_args)
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    def run(self) -> dict[str, Any]:
        result: dict[str, Any] = self.plugin.run(task_vars={"inventory_hostname": "box"})
        return result


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    shown: list[str] = []
    monkeypatch.setattr(wait_until_ready, "Display", lambda: MagicMock(display=shown.append))
    return shown


def test_ready_ends_the_wait(lines: list[str]) -> None:
    result = Waiter([seen("starting"), seen("starting"), seen("ready")]).run()
    assert (result["looks"], result["changed"], result.get("failed")) == (3, False, None)
    assert lines[0].startswith("[box] 0 s: health: it is starting") and lines[-1].startswith("[box] ready after")


@pytest.mark.parametrize("state", ["failed", "stopped"])
def test_end_of_the_server_ends_the_wait_at_once(lines: list[str], state: str) -> None:
    result = Waiter([seen("starting"), seen(state)], timeout_s=1000).run()
    assert result["failed"] and result["reason"] == state and result["looks"] == 2
    assert f"it is {state}" in result["msg"] and result["msg"].count("    why\n") == 1 and "box:/l" in result["msg"]


def test_failure_tells_the_log_once(lines: list[str]) -> None:
    log = {"log_tail": ["why"], "log_benign": 3, "log_newest": "why", "first_exception": "OSError: x"}
    result = Waiter([seen("failed", pid=0, ended="exited with code 1", **log)]).run()
    assert "why" in result["msg"] and "3 benign lines" in result["msg"] and "OSError: x" in result["msg"]
    assert not set(log) & set(result)
    assert (result["log"], result["ended"], result["state"]) == ("/l", "exited with code 1", "failed")


def test_newest_log_line_shows_while_waiting(lines: list[str]) -> None:
    Waiter([seen("starting", log_newest="Load weight begin."), seen("ready")]).run()
    assert lines[0] == "[box] 0 s: health: it is starting | Load weight begin."


def test_pause_is_the_waits_own(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    Waiter([seen("starting"), seen("starting"), seen("ready")], poll_s=None).run()
    assert pauses == [1.0, 1.0]


def test_limit_ends_the_wait(lines: list[str]) -> None:
    result = Waiter([seen("starting")] * 1000, timeout_s=0).run()
    assert result["reason"] == "timeout" and result["looks"] == 1


def test_limits_of_the_wait_and_of_a_look_are_not_mixed_up(lines: list[str]) -> None:
    waiter = Waiter([seen("ready")], timeout_s=777, look_timeout_s=3, served_name="x")
    waiter.run()
    assert waiter.asked == [{"root": "/r", "served_name": "x", "timeout_s": 3.0}]


def test_process_of_another_rollout_ends_the_wait_at_once(lines: list[str]) -> None:
    detail = "process 7 runs release 3, not release 2: another rollout is at work; run again after it"
    waiter = Waiter([seen("failed", detail=detail)], release=2)
    result = waiter.run()
    assert waiter.asked == [{"root": "/r", "release": 2, "timeout_s": 10.0}]
    assert result["failed"] and result["looks"] == 1 and detail in result["msg"]


def test_dropped_connection_is_shown_and_tried_again(lines: list[str]) -> None:
    waiter = Waiter([AnsibleConnectionFailure("Connection reset"), seen("ready")])
    result = waiter.run()
    assert result["state"] == "ready" and "Connection reset" in lines[0]
    waiter.connection.reset.assert_called_once()


def test_module_failure_is_passed_on(lines: list[str]) -> None:
    result = Waiter([{"failed": True, "msg": "no such name"}]).run()
    assert result["failed"] and result["msg"] == "no such name"


def test_bad_limit_is_an_error_before_any_look(lines: list[str]) -> None:
    waiter = Waiter([], timeout_s="soon")
    assert "timeout_s" in waiter.run()["msg"] and waiter.asked == []


@pytest.mark.parametrize("state", ["starting", "stopped", "failed"])
def test_check_mode_looks_once_and_is_skipped_with_the_reason(lines: list[str], state: str) -> None:
    result = Waiter([seen(state)], check_mode=True).run()
    assert result["skipped"] and f"it is {state}" in result["skip_reason"] and "failed" not in result


def test_check_mode_on_a_ready_server_reports_it(lines: list[str]) -> None:
    result = Waiter([seen("ready")], check_mode=True).run()
    assert result["state"] == "ready" and "skipped" not in result
