# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of a run, from what ansible-runner left: recorded from real runs, and made up where none can be had."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tokforge_rollout.evidence import Evidence, HostCounts, Stop, TaskRun, gather, read
from tokforge_rollout.outcome import Outcome, judge

RECORDED = Path(__file__).resolve().parents[2] / "fixtures" / "runner_artifacts"
# recorded run -> outcome, and a part of the reason
OUTCOMES = {
    "good": (Outcome.OK, "2 hosts did what was asked"),
    "failed": (Outcome.FAILED, "failed: b"),
    "rolled_back": (Outcome.ROLLED_BACK, "rolled_back: a"),
    "unreachable": (Outcome.UNREACHABLE, "unreachable: b"),
    "limit_matches_controller_only": (Outcome.NO_HOST, "no host was worked on"),
    "limit_matches_nobody": (Outcome.NO_HOST, "the limit leaves no host"),
    "empty_group": (Outcome.NO_HOST, "no_host: localhost"),
    "broken_playbook": (Outcome.FAILED, "ended with 4 before"),
    "killed_by_runner": (Outcome.CANCELLED, "canceled"),
    "interrupted": (Outcome.CANCELLED, "run it again"),
    "ansible_killed": (Outcome.UNKNOWN, "was killed"),
    "command_killed": (Outcome.UNKNOWN, "was killed"),
}


def lay_out(name: str, directory: Path) -> Path:
    """Write a recorded run as ansible-runner left it."""
    recorded: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    events = directory / "job_events"
    events.mkdir()
    for number, event in enumerate(recorded["events"], start=1):
        (events / f"{number}-{number:08x}.json").write_text(json.dumps(event), encoding="utf-8")
    for part in ("rc", "status"):
        if recorded[part] is not None:
            (directory / part).write_text(recorded[part], encoding="utf-8")
    return directory


@pytest.mark.parametrize("name", OUTCOMES)
def test_recorded_run(name: str, tmp_path: Path) -> None:
    verdict = judge(read(lay_out(name, tmp_path)))
    outcome, reason = OUTCOMES[name]
    assert verdict.outcome is outcome
    assert reason in verdict.reason


def test_every_recorded_run_is_judged() -> None:
    assert {path.stem for path in RECORDED.glob("*.json")} == set(OUTCOMES)


def test_stop_of_this_command_says_what_a_killed_run_was(tmp_path: Path) -> None:
    directory = lay_out("killed_by_runner", tmp_path)
    assert judge(read(directory, Stop.TIMEOUT)).outcome is Outcome.TIMED_OUT
    assert judge(read(directory, Stop.CANCEL)).outcome is Outcome.CANCELLED


def test_half_written_event_is_left_out(tmp_path: Path) -> None:
    directory = lay_out("good", tmp_path)
    (directory / "job_events" / "900-00000900.json").write_text('{"event": "runner_on_fai', encoding="utf-8")
    (directory / "job_events" / "00000901-partial.json").write_text('{"event": "runner_on_failed"}', encoding="utf-8")
    assert judge(read(directory)).outcome is Outcome.OK


def test_directory_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    assert judge(read(tmp_path / "nowhere")).outcome is Outcome.UNKNOWN


def task(host: str, **more: Any) -> TaskRun:
    return replace(TaskRun(host, "play", "task", "failed", message="why"), **more)


GOOD = HostCounts(ok=3)
BAD = HostCounts(ok=2, failed=1)


def evidence(rc: int | None = 0, status: str | None = "successful", **more: Any) -> Evidence:
    tasks = tuple(more.pop("tasks", ()))
    made = Evidence(rc, status, {"a": GOOD}, tasks, frozenset("a"), needs_hosts=True)
    return replace(made, **more)


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (evidence(), Outcome.OK),
        (evidence(stats=None), Outcome.UNKNOWN),  # exit code 0 without statistics
        (evidence(stats={}), Outcome.NO_HOST),
        (evidence(worked=frozenset()), Outcome.NO_HOST),
        (evidence(worked=frozenset(), needs_hosts=False), Outcome.OK),  # report.yml alone on the controller
        (evidence(status="failed"), Outcome.FAILED),
        (evidence(2, "failed"), Outcome.FAILED),  # no host failed, and Ansible says failure
        (evidence(status=None), Outcome.UNKNOWN),
        (evidence(None, "failed"), Outcome.UNKNOWN),
        (evidence(stats={"a": BAD}), Outcome.FAILED),  # a failed host behind an exit code of 0
        (evidence(stats={"a": HostCounts(unreachable=1)}), Outcome.UNREACHABLE),
        (evidence(254, "timeout"), Outcome.TIMED_OUT),
        (evidence(254, "canceled"), Outcome.CANCELLED),
        (evidence(254, "canceled", stop=Stop.TIMEOUT), Outcome.TIMED_OUT),
        (evidence(254, "failed"), Outcome.FAILED),
        (evidence(stop=Stop.CANCEL), Outcome.OK),  # the signal came when everything was done
        (evidence(2, "failed", stats={"a": BAD}, stop=Stop.TIMEOUT), Outcome.FAILED),
        (evidence(99, "failed", stats=None, stop=Stop.TIMEOUT), Outcome.TIMED_OUT),
        (evidence(99, "failed", stats=None), Outcome.CANCELLED),
        (evidence(None, None, stats=None, stop=Stop.CANCEL), Outcome.CANCELLED),
        (evidence(250, "failed", stats=None), Outcome.FAILED),
    ],
)
def test_made_up_run(found: Evidence, outcome: Outcome) -> None:
    assert judge(found).outcome is outcome


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        ({"rolled_back": True}, Outcome.ROLLED_BACK),
        ({"rolled_back": False}, Outcome.FAILED),
        ({"locked": True}, Outcome.LOCKED),
        ({"locked": True, "rolled_back": True}, Outcome.LOCKED),
        ({"checks_inventory": True}, Outcome.NO_HOST),
        ({}, Outcome.FAILED),
    ],
)
def test_last_failure_of_a_host_says_what_became_of_it(last: dict[str, bool], outcome: Outcome) -> None:
    tasks = [task("a", rolled_back=True, locked=True), task("a", **last), task("a", state="ok", message="")]
    assert judge(evidence(2, "failed", stats={"a": BAD}, tasks=tasks)).outcome is outcome


def test_ignored_failure_after_the_fatal_one_says_nothing() -> None:
    tasks = [task("a", rolled_back=True), task("a", ignored=True)]
    assert judge(evidence(2, "failed", stats={"a": BAD}, tasks=tasks)).outcome is Outcome.ROLLED_BACK


def test_worst_host_decides() -> None:
    hosts = {"a": GOOD, "b": BAD, "c": HostCounts(unreachable=1), "d": BAD, "e": BAD}
    tasks = [task("b", rolled_back=True), task("d", rolled_back=False), task("e", locked=True)]
    order = [Outcome.FAILED, Outcome.UNREACHABLE, Outcome.ROLLED_BACK, Outcome.LOCKED, Outcome.OK]
    for outcome, gone in zip(order, ["d", "c", "b", "e", None], strict=True):
        verdict = judge(evidence(2 if gone else 0, "failed" if gone else "successful", stats=hosts, tasks=tasks))
        assert verdict.outcome is outcome
        hosts = {name: counts for name, counts in hosts.items() if name != gone}


def test_run_is_rolled_back_only_when_every_host_that_says_so_is() -> None:
    hosts = {"a": BAD, "b": BAD}
    both = [task("a", rolled_back=True), task("b", rolled_back=False)]
    assert judge(evidence(2, "failed", stats=hosts, tasks=both)).rolled_back is False
    assert judge(evidence(2, "failed", stats=hosts, tasks=both[:1])).rolled_back is True
    assert judge(evidence()).rolled_back is None


def ended(**result: Any) -> TaskRun:
    data = {"host": "a", "play": "p", "play_pattern": "sglang", "task": "t", "duration": 1.5, "res": result}
    (made,) = gather([{"event": "runner_on_failed", "event_data": data}], 2, "failed").tasks
    return made


def test_result_says_whether_it_was_rolled_back_by_key_or_by_text() -> None:
    said = "release 2 failed: x\nrolled_back: {}; release 1 was left as it is"
    assert ended(msg=said.format("true")).rolled_back is True
    assert ended(msg=said.format("false")).rolled_back is False
    assert ended(msg=said.format("true"), rolled_back=False).rolled_back is False
    assert ended(msg="it says rolled_back: true in a line").rolled_back is None
    assert ended(msg=said.format("true"), rolled_back="no").rolled_back is True
    assert ended(msg="x", locked=True).locked
    assert not ended(msg="x", locked="yes").locked


def test_failure_of_a_loop_says_what_each_failed_item_says() -> None:
    items = [{"failed": True, "msg": "one"}, {"failed": False, "msg": "two"}, {"failed": True, "msg": "three"}]
    assert ended(msg="One or more items failed", results=items).message == "One or more items failed\none\nthree"
    assert ended(censored="hidden").message == "hidden"
    assert ended(msg=["a", "b"]).message == '["a", "b"]'
    assert ended().message == "no message"


def test_exit_codes_are_distinct_and_only_ok_is_0() -> None:
    codes = [outcome.exit_code for outcome in Outcome]
    assert len(set(codes)) == len(codes)
    assert [outcome for outcome in Outcome if outcome.exit_code == 0] == [Outcome.OK]
