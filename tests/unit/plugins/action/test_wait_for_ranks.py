# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The waiting half on the controller: what it asks, when it ends, what it does when the connection drops."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.tokforge.sglang.plugins.action import wait_for_ranks
from ansible_collections.tokforge.sglang.plugins.modules import readiness_info, startup_info
from ansible_collections.tokforge.sglang.plugins.modules import wait_for_ranks as documented

RANKS, SERVER = "startup_info", "readiness_info"


def start(state: str, **more: Any) -> dict[str, Any]:
    """An answer of startup_info, as a module gives it."""
    look = {
        "state": state,
        "stage": "weights",
        "detail": f"the ranks are {state}",
        "gap": False,
        "cold": False,
        "recorded": False,
        "failure": None,
        "log": "/r/log/server.log",
        "log_newest": "",
        "quiet_s": 0.0,
        "doing": "",
        "progress": {"stage": "weights"},
        "previous_s": None,
        "cursor": {"schema": 1, "at": state},
        "changed": False,
        "invocation": {"module_args": {}},
    }
    return {**look, **more}


def server(state: str, **more: Any) -> dict[str, Any]:
    """An answer of readiness_info."""
    look = {"state": state, "stage": "health", "detail": f"it is {state}", "log": "/l", "log_tail": ["why"]}
    return {**look, "changed": False, "invocation": {"module_args": {}}, **more}


FAILURE = {
    "reason": "exception",
    "rank": "TP1",
    "stage": "weights",
    "excerpt": ["Traceback (most recent call last):", "  File x", "RuntimeError: boom"],
    "hint": "do this",
}


class Waiter:
    """The plugin with a target that answers what it is told."""

    def __init__(self, answers: Iterable[Any], check_mode: bool = False, **arguments: Any) -> None:
        given = {"root": "/r", "poll_s": 0, **arguments}
        task = MagicMock(
            args={name: value for name, value in given.items() if value is not None or name == "poll_s"},
            check_mode=check_mode,
            async_val=0,
            action="wait",
        )
        self.connection = MagicMock()
        self.plugin = wait_for_ranks.ActionModule(task, self.connection, MagicMock(), None, MagicMock(), None)
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers = iter(answers)
        self.plugin._execute_module = self.answer  # type: ignore[method-assign]
        self.plugin._remove_tmp_path = MagicMock()

    def answer(self, module_name: str, module_args: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        assert task_vars["inventory_hostname"] == "box"
        self.asked.append((module_name.removeprefix("tokforge.sglang."), module_args))
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    def run(self) -> dict[str, Any]:
        result: dict[str, Any] = self.plugin.run(task_vars={"inventory_hostname": "box"})
        assert next(self.answers, None) is None, "it looked less often than expected"
        return result

    @property
    def modules(self) -> list[str]:
        return [name for name, _arguments in self.asked]


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is shown, on no terminal."""
    shown: list[str] = []
    monkeypatch.setattr(wait_for_ranks, "Display", lambda: MagicMock(display=shown.append))
    monkeypatch.setattr(wait_for_ranks.progress_line, "room", lambda variables: None)
    return shown


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it paused; no test waits."""
    made: list[float] = []
    monkeypatch.setattr("time.sleep", made.append)
    return made


# --- ready -----------------------------------------------------------------------------------------------------------


def test_ranks_come_first_and_then_the_server(lines: list[str]) -> None:
    waiter = Waiter([start("starting"), start("starting"), start("ready"), server("starting"), server("ready", pid=7)])
    result = waiter.run()
    assert waiter.modules == [RANKS, RANKS, RANKS, SERVER, SERVER]
    assert (result["looks"], result["changed"], result.get("failed")) == (5, False, None)
    assert (result["state"], result["pid"], result["log_tail"]) == ("ready", 7, ["why"])
    assert (result["start"]["state"], result["start"]["detail"]) == ("ready", "the ranks are ready")
    assert 0 <= result["waited_s"] < 60
    assert lines[0] == "[box] 0 s: the ranks are starting"
    assert lines[1] == "[box] 0 s: health: it is starting"
    assert lines[2:] == ["[box] ready after 0 s: health: it is ready"]


def test_each_look_at_the_ranks_goes_on_where_the_last_one_ended(lines: list[str]) -> None:
    cursors = [{"schema": 1, "n": number} for number in range(2)]
    waiter = Waiter(
        [start("starting", cursor=cursors[0]), start("starting", cursor=cursors[1]), start("ready"), server("ready")]
    )
    waiter.run()
    assert [arguments.get("cursor") for _module, arguments in waiter.asked] == [None, *cursors, None]


def test_nothing_of_the_looks_machinery_is_in_the_result(lines: list[str]) -> None:
    inner = {"cursor", "invocation", "log_newest", "progress", "quiet_s", "doing", "previous_s", "failed"}
    for answers, options in (
        ([start("ready"), server("ready", log_newest="x")], {}),
        ([start("ready")], {"serve": False}),
        ([start("failed", failure=FAILURE)] * 2 + [server("failed")], {}),
        ([start("ready"), server("starting")], {"check_mode": True}),
    ):
        result = Waiter(answers, **options).run()
        assert not inner - {"failed"} & set(result), options
        assert not (inner | {"changed"}) & set(result["start"]), options


def test_start_on_record_is_only_asked_whether_it_serves(lines: list[str]) -> None:
    waiter = Waiter([start("ready", recorded=True, cursor=None, cold=None), server("ready")])
    result = waiter.run()
    assert (waiter.modules, result["start"]["recorded"], result["looks"]) == ([RANKS, SERVER], True, 2)
    assert len(lines) == 1


def test_log_with_a_gap_sends_the_wait_to_the_server(lines: list[str]) -> None:
    waiter = Waiter([start("starting", gap=True), server("starting"), server("ready")])
    result = waiter.run()
    assert waiter.modules == [RANKS, SERVER, SERVER] and result["state"] == "ready"


@pytest.mark.parametrize(
    "options",
    [
        {"serve": False},
        {"root": None, "log": "/l"},
        {"expect": {"nnodes": 2, "node_rank": 1}},
        {"expect": {"nnodes": 2, "node_rank": "1"}},
        {"expect": '{"nnodes": 2, "node_rank": 1}'},
    ],
)
def test_server_is_not_asked_where_none_answers(lines: list[str], options: dict[str, Any]) -> None:
    waiter = Waiter([start("starting"), start("ready", pid=7)], **options)
    result = waiter.run()
    assert waiter.modules == [RANKS, RANKS]
    assert (result["state"], result["pid"], result["looks"], result.get("failed")) == ("ready", 7, 2, None)
    assert lines[-1] == "[box] ready after 0 s: the ranks are ready"


def test_log_with_a_gap_is_no_ready_server_where_nobody_can_be_asked(lines: list[str]) -> None:
    result = Waiter([start("starting", gap=True)], serve=False, timeout_s=0).run()
    assert (result["failed"], result["reason"]) == (True, "timeout")
    waiter = Waiter([start("starting", gap=True), start("ready", gap=True)], serve=False)
    assert waiter.run()["state"] == "ready"


@pytest.mark.parametrize("expect", [{"node_rank": 0}, {"node_rank": "0"}, {}, None, "tp=2"])
def test_first_node_is_asked(lines: list[str], expect: Any) -> None:
    waiter = Waiter([start("ready"), server("ready")], expect=expect)
    waiter.run()
    assert waiter.modules == [RANKS, SERVER]


def test_pause_is_the_waits_own(lines: list[str], pauses: list[float]) -> None:
    Waiter([start("starting"), start("ready"), server("starting"), server("ready")], poll_s=None).run()
    assert pauses == [1.0, 1.0]  # none between the ranks and the server


def test_newest_log_line_shows_while_waiting(lines: list[str]) -> None:
    Waiter(
        [
            start("starting", log_newest="[TP0] Load weight begin."),
            start("ready"),
            server("starting", log_newest="x"),
            server("ready"),
        ]
    ).run()
    assert lines[0] == "[box] 0 s: the ranks are starting | [TP0] Load weight begin."
    assert lines[1] == "[box] 0 s: health: it is starting | x"


# --- options ---------------------------------------------------------------------------------------------------------

POSITION = {"path": "/r/log/server.log", "inode": 5, "offset": 6, "fingerprint": "ab"}
#: Every option -> a value, and who takes it.
OPTIONS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "timeout_s": (777, ()),
    "poll_s": (0, ()),
    "look_timeout_s": (3, ()),
    "serve": (True, ()),
    "root": ("/r", (RANKS, SERVER)),
    "log": ("/elsewhere/x.log", (RANKS,)),
    "expect": ({"tp": 8}, (RANKS,)),
    "autotune": ("expected", (RANKS,)),
    "process": ("sglang.service", (RANKS,)),
    "stall_timeout": (60, (RANKS,)),
    "manager": ("systemd", (SERVER,)),
    "name": ("sg1", (SERVER,)),
    "host": ("10.0.0.1", (SERVER,)),
    "port": (31000, (SERVER,)),
    "served_name": ("glm-5", (SERVER,)),
    "log_position": (POSITION, (RANKS, SERVER)),
    "random_weights": (True, (SERVER,)),
    "probe": (False, (SERVER,)),
    "max_new_tokens": (16, (SERVER,)),
    "logprobs": (True, (SERVER,)),
    "release": (2, (SERVER,)),
}


def names_of(module: Any) -> set[str]:
    return set(yaml.safe_load(module.DOCUMENTATION)["options"])


def test_every_option_reaches_the_module_that_has_it(lines: list[str]) -> None:
    assert set(OPTIONS) == names_of(documented)
    for module, name in ((startup_info, RANKS), (readiness_info, SERVER)):
        takes = {option for option, (_value, who) in OPTIONS.items() if name in who}
        assert takes | ({"cursor"} if name == RANKS else {"timeout_s"}) == names_of(module)
    waiter = Waiter([start("ready"), server("ready")], **{name: value for name, (value, _who) in OPTIONS.items()})
    waiter.run()
    for module_name, arguments in waiter.asked:
        wanted = {name: value for name, (value, who) in OPTIONS.items() if module_name in who}
        assert arguments == {**wanted, **({"timeout_s": 3.0} if module_name == SERVER else {})}


def test_limits_of_the_wait_and_of_a_look_are_not_mixed_up(lines: list[str]) -> None:
    waiter = Waiter([start("ready"), server("ready")], timeout_s=777, served_name="x", stall_timeout_s=5)
    waiter.run()
    assert waiter.asked == [
        (RANKS, {"root": "/r", "log": "/r/log/server.log", "stall_timeout_s": 5}),
        (SERVER, {"root": "/r", "served_name": "x", "timeout_s": 10.0}),
    ]


def test_log_that_is_named_is_the_one_that_is_read(lines: list[str]) -> None:
    waiter = Waiter([start("ready")], root=None, log="/x.log", process="7")
    waiter.run()
    assert waiter.asked == [(RANKS, {"log": "/x.log", "process": "7"})]


def test_without_root_and_log_nothing_is_looked_at(lines: list[str]) -> None:
    waiter = Waiter([], root=None)
    result = waiter.run()
    assert result["failed"] and "one of root and log" in result["msg"] and waiter.asked == []


@pytest.mark.parametrize("options", [{"timeout_s": "soon"}, {"poll_s": "x"}, {"serve": "perhaps"}])
def test_bad_option_is_an_error_before_any_look(lines: list[str], options: dict[str, Any]) -> None:
    waiter = Waiter([], **options)
    assert next(iter(options)) in waiter.run()["msg"] and waiter.asked == []


# --- failure ---------------------------------------------------------------------------------------------------------


def test_failed_rank_ends_the_wait_with_its_traceback_and_the_servers_last_words(lines: list[str]) -> None:
    waiter = Waiter(
        [
            start("starting"),
            start("failed", failure={**FAILURE, "excerpt": []}, cursor={"n": 1}),
            start("failed", failure=FAILURE, detail="exception in TP1: RuntimeError: boom"),
            server("failed", ended="was killed by signal 9 (SIGKILL)", manager="supervisor"),
        ]
    )
    result = waiter.run()
    assert waiter.modules == [RANKS, RANKS, RANKS, SERVER]
    assert waiter.asked[2][1]["cursor"] == {"n": 1}
    # How it ended is looked up, and nothing is generated for that.
    assert waiter.asked[3][1] == {"root": "/r", "timeout_s": 10.0, "probe": False}
    assert (result["failed"], result["reason"], result["failure"], result["looks"]) == (True, "failed", FAILURE, 3)
    assert "exception in TP1: RuntimeError: boom (the server was killed by signal 9 (SIGKILL))" in result["msg"]
    assert "    RuntimeError: boom" in result["msg"] and "do this" in result["msg"]
    assert (result["start"]["state"], result["start"]["failure"]) == ("failed", FAILURE)
    assert lines[-1] == "[box] failed after 0 s: weights: exception in TP1: RuntimeError: boom"


@pytest.mark.parametrize("last_words", [AnsibleConnectionFailure("gone"), {"failed": True, "msg": "no python"}])
def test_failure_is_told_also_when_there_are_no_last_words(lines: list[str], last_words: Any) -> None:
    failed = start("failed", failure=FAILURE, detail="exception in TP1: RuntimeError: boom")
    result = Waiter([failed, failed, last_words]).run()
    assert (result["failed"], result["reason"], result["failure"]) == (True, "failed", FAILURE)
    assert "RuntimeError: boom" in result["msg"] and "no python" not in result["msg"]
    assert result["state"] == "failed" and "log_tail" not in result


def test_failure_that_a_second_look_does_not_see_is_none(lines: list[str]) -> None:
    result = Waiter([start("failed", failure=FAILURE), start("ready"), server("ready")]).run()
    assert (result["state"], result.get("failed")) == ("ready", None)


def test_failure_without_a_server_to_ask_is_told_by_the_ranks_alone(lines: list[str]) -> None:
    waiter = Waiter([start("failed", failure=FAILURE)] * 2, serve=False)
    result = waiter.run()
    assert waiter.modules == [RANKS, RANKS]
    assert result["failed"] and "Log: box:/r/log/server.log." in result["msg"]


def test_stalled_start_is_told_from_one_that_failed(lines: list[str]) -> None:
    stalled = {**FAILURE, "reason": "stalled", "excerpt": ["nothing was logged for 300 s"]}
    result = Waiter([start("stalled", failure=stalled), server("starting")]).run()
    assert (result["reason"], result["failure"]["reason"], result["looks"]) == ("stalled", "stalled", 1)
    assert result["msg"].startswith("The server on box stalled; ")


@pytest.mark.parametrize("reason", ["process_exit", "stalled"])
def test_server_that_was_stopped_is_not_running_rather_than_failed(lines: list[str], reason: str) -> None:
    state = "stalled" if reason == "stalled" else "failed"
    look = start(state, failure={**FAILURE, "reason": reason, "excerpt": ["process 7 is gone"]})
    result = Waiter([look] * (1 + (state == "failed")) + [server("stopped")]).run()
    assert (result["failed"], result["reason"]) == (True, "stopped")
    assert result["msg"].startswith("The server on box is not running: it is stopped (stage health); start it with ")


def test_rank_that_failed_has_failed_also_when_somebody_stopped_the_server_since(lines: list[str]) -> None:
    result = Waiter([start("failed", failure=FAILURE)] * 2 + [server("stopped")]).run()
    assert result["reason"] == "failed" and "    RuntimeError: boom" in result["msg"]


def test_limit_ends_the_wait(lines: list[str]) -> None:
    result = Waiter([start("starting"), server("starting")], timeout_s=0, name="sg1").run()
    assert (result["reason"], result["looks"], result["failure"]) == ("timeout", 1, None)
    # What the ranks were at, not that the server does not listen yet.
    assert "was not ready within 0 s: the ranks are starting (stage weights)" in result["msg"]
    served = Waiter([start("ready"), server("starting", manager="systemd")], timeout_s=0, name="sg1").run()
    assert (served["reason"], served["looks"]) == ("timeout", 2)
    assert "was not ready within 0 s: it is starting (stage health)" in served["msg"]
    assert "systemctl status sg1" in served["msg"]


@pytest.mark.parametrize("state", ["failed", "stopped"])
def test_end_of_the_server_ends_the_wait_at_once(lines: list[str], state: str) -> None:
    result = Waiter([start("ready"), server("starting"), server(state)], timeout_s=1000).run()
    assert result["failed"] and result["reason"] == state and result["looks"] == 3
    assert f"it is {state}" in result["msg"] and result["msg"].count("    why") == 1 and "box:/l" in result["msg"]
    assert result["failure"] is None


def test_failure_tells_the_log_once(lines: list[str]) -> None:
    log = {"log_tail": ["why"], "log_benign": 3, "log_newest": "why", "first_exception": "OSError: x"}
    result = Waiter([start("ready"), server("failed", pid=0, ended="exited with code 1", **log)]).run()
    assert "why" in result["msg"] and "3 benign lines" in result["msg"] and "OSError: x" in result["msg"]
    assert not set(log) & set(result)
    assert (result["log"], result["ended"], result["state"]) == ("/l", "exited with code 1", "failed")


def test_process_of_another_rollout_ends_the_wait_at_once(lines: list[str]) -> None:
    detail = "process 7 runs release 3, not release 2: another rollout is at work; run again after it"
    waiter = Waiter([start("ready"), server("failed", detail=detail)], release=2)
    result = waiter.run()
    assert waiter.asked[1] == (SERVER, {"root": "/r", "release": 2, "timeout_s": 10.0})
    assert result["failed"] and result["looks"] == 2 and detail in result["msg"]


@pytest.mark.parametrize("before", [[], [start("starting")], [start("ready")]])
def test_module_failure_is_passed_on(lines: list[str], before: list[Any]) -> None:
    result = Waiter([*before, {"failed": True, "msg": "no such name"}]).run()
    assert result["failed"] and result["msg"] == "no such name"


# --- the connection --------------------------------------------------------------------------------------------------

DROPPED = AnsibleConnectionFailure("Connection reset")


def test_connection_that_drops_at_the_first_look_is_tried_again(lines: list[str]) -> None:
    waiter = Waiter([DROPPED, start("starting"), start("ready"), server("ready")])
    result = waiter.run()
    assert (result["state"], result["looks"]) == ("ready", 4)
    assert lines[0] == "[box] 0 s: no connection to the host: Connection reset"
    waiter.connection.reset.assert_called_once()


def test_connection_that_drops_later_loses_nothing_of_the_start(lines: list[str]) -> None:
    working = {"doing": "compiling kernels (1 object more)", "log_newest": "old line", "cursor": {"n": 1}}
    waiter = Waiter([start("starting", **working), DROPPED, DROPPED, start("ready"), server("ready")])
    result = waiter.run()
    assert [arguments.get("cursor") for _name, arguments in waiter.asked] == [None, *[{"n": 1}] * 3, None]
    assert result["state"] == "ready" and waiter.connection.reset.call_count == 2
    # What was seen before is not said of a host that nobody sees.
    assert lines[1] == "[box] 0 s: no connection to the host: Connection reset"


def test_connection_that_drops_while_the_server_is_asked_is_tried_again(lines: list[str]) -> None:
    waiter = Waiter([start("ready"), server("starting", log_newest="x"), DROPPED, server("ready")])
    result = waiter.run()
    assert waiter.modules == [RANKS, SERVER, SERVER, SERVER] and result["state"] == "ready"
    assert lines[1] == "[box] 0 s: process: no connection to the host: Connection reset"


def test_host_that_stays_away_ends_with_the_limit(lines: list[str]) -> None:
    waiter = Waiter([DROPPED, DROPPED], timeout_s=0)  # the second one while the last words are asked
    result = waiter.run()
    assert (result["reason"], result["looks"]) == ("timeout", 1)
    assert "no connection to the host: Connection reset (stage process)" in result["msg"]


# --- check mode ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["starting", "stalled"])
def test_check_mode_looks_once_at_ranks_that_are_not_ready(lines: list[str], state: str) -> None:
    waiter = Waiter([start(state)], check_mode=True)
    result = waiter.run()
    assert waiter.modules == [RANKS]
    assert result["skipped"] and "failed" not in result and result["changed"] is False
    assert result["skip_reason"] == f"check mode does not wait, and the server is {state}: the ranks are {state}"
    assert result["start"]["state"] == state and lines == []


@pytest.mark.parametrize("ranks", [start("ready"), start("failed", failure=FAILURE), start("starting", gap=True)])
@pytest.mark.parametrize("state", ["starting", "stopped", "failed"])
def test_check_mode_asks_the_server_once_and_is_skipped_with_the_reason(
    lines: list[str], ranks: dict[str, Any], state: str
) -> None:
    waiter = Waiter([ranks, server(state)], check_mode=True)
    result = waiter.run()
    assert waiter.modules == [RANKS, SERVER]
    assert result["skipped"] and f"it is {state}" in result["skip_reason"] and "failed" not in result


def test_check_mode_on_a_ready_server_reports_it(lines: list[str]) -> None:
    result = Waiter([start("ready"), server("ready")], check_mode=True).run()
    assert (result["state"], result["start"]["state"], result["changed"]) == ("ready", "ready", False)
    assert "skipped" not in result and "waited_s" not in result


def test_check_mode_without_a_server_to_ask_reports_the_ranks(lines: list[str]) -> None:
    assert "skipped" not in Waiter([start("ready")], check_mode=True, serve=False).run()
    result = Waiter([start("starting", gap=True)], check_mode=True, serve=False).run()
    assert result["skipped"] and result["state"] == "starting"


@pytest.mark.parametrize("before", [[], [start("ready")]])
def test_check_mode_passes_a_module_failure_on(lines: list[str], before: list[Any]) -> None:
    result = Waiter([*before, {"failed": True, "msg": "no such name"}], check_mode=True).run()
    assert result["failed"] and result["msg"] == "no such name"
