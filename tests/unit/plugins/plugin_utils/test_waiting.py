# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a series of looks means: when the wait goes on, ends and fails, and how that reads."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.plugin_utils import waiting


def served(state: str, detail: str = "d", stage: str = "health") -> dict[str, Any]:
    """A look of readiness_info."""
    return {"state": state, "stage": stage, "detail": detail}


def start(state: str = "starting", detail: str = "d", **more: Any) -> dict[str, Any]:
    """A look of startup_info."""
    return {"state": state, "stage": "weights", "detail": detail, "gap": False, "cold": False, **more}


# --- looks at the ranks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("cold", "limit"), [(True, 3600.0), (False, 900.0), (None, 900.0)])
def test_looks_choose_the_limit(cold: bool | None, limit: float) -> None:
    wait = waiting.Wait("h")
    assert wait.ranks(start(cold=not cold), 1.0).done is False
    assert wait.ranks(start(cold=cold), 2.0).done is False
    assert wait.timeout_s == limit
    assert wait.ranks(start(cold=cold), limit - 0.1).done is False
    last = wait.ranks(start(cold=cold), limit)
    assert (last.failed, last.reason) == (True, "timeout")


def test_start_without_a_process_is_the_managers_to_explain() -> None:
    assert waiting.Wait("h").ranks(start(pid=0), 1.0).serve is True
    assert waiting.Wait("h").ranks(start(pid=7), 1.0).serve is False
    assert waiting.Wait("h", asks=False).ranks(start(pid=0), 1.0).serve is False


def test_limit_that_was_given_is_not_chosen_anew() -> None:
    wait = waiting.Wait("h", timeout_s=60)
    wait.ranks(start(cold=True), 1.0)
    assert wait.timeout_s == 60
    assert wait.ranks(start(), 60.0).reason == "timeout"


def test_look_that_nothing_came_of_leaves_the_limit_to_the_next() -> None:
    wait = waiting.Wait("h")
    assert wait.ranks({"state": "starting", "detail": "no connection to the host: x"}, 1000.0).done is False
    wait.ranks(start(cold=False), 1002.0)
    assert wait.timeout_s == 900.0


def test_ready_ranks_send_the_wait_on_to_the_server() -> None:
    decision = waiting.Wait("h", 100).ranks(start("ready"), 500.0)  # ready counts, however late
    assert (decision.serve, decision.done, decision.failed, decision.line) == (True, False, False, None)


def test_failure_is_looked_at_once_more_before_it_ends_the_wait() -> None:
    wait = waiting.Wait("box", 100)
    first = wait.ranks(start("failed", "exception in TP1: RuntimeErr"), 7.0)
    assert (first.done, first.line, first.pause_s) == (False, None, 1.0)
    second = wait.ranks(start("failed", "exception in TP1: RuntimeError: why"), 8.2)
    assert (second.done, second.failed, second.reason, second.serve) == (True, True, "failed", False)
    assert second.line == "[box] failed after 8 s: weights: exception in TP1: RuntimeError: why"


def test_stalled_ends_the_wait_at_once() -> None:
    decision = waiting.Wait("box", 100).ranks(start("stalled", "stalled in TP3: x"), 9.0)
    assert (decision.done, decision.failed, decision.reason) == (True, True, "stalled")
    assert decision.line == "[box] stalled after 9 s: weights: stalled in TP3: x"


def test_log_with_a_gap_is_not_waited_for_when_the_server_can_be_asked() -> None:
    decision = waiting.Wait("h", 100).ranks(start(gap=True), 1.0)
    assert (decision.serve, decision.done) == (True, False)
    skipped = start("failed", gap=True, failure={"reason": "autotune_skipped"})
    assert waiting.Wait("h", 100).ranks(skipped, 1.0).serve is True
    # What is in the log is not taken back by what is missing in it.
    wait = waiting.Wait("h", 100)
    broken = start("failed", gap=True, failure={"reason": "exception"})
    assert [wait.ranks(broken, at).reason for at in (1.0, 2.0)] == ["", "failed"]


def test_log_with_a_gap_proves_nothing_when_nobody_can_be_asked() -> None:
    wait = waiting.Wait("h", 100, asks=False)
    assert wait.ranks(start(gap=True), 1.0).serve is False
    assert wait.ranks(start(gap=True), 100.0).reason == "timeout"
    assert waiting.Wait("h", 100, asks=False).ranks(start("ready", gap=True), 1.0).serve is True


@pytest.mark.parametrize(
    ("took_s", "at", "left"),
    [
        (65.4, 20.0, " (about 45 s left)"),
        (21.0, 20.0, " (about 1 s left)"),
        (20.9, 20.0, ""),
        (10.0, 20.0, ""),
        (None, 20.0, ""),
    ],
)
def test_time_that_is_left_comes_from_the_last_start_like_this_one(took_s: float | None, at: float, left: str) -> None:
    look = start(previous_s=took_s, log_newest="[TP0] Load weight begin.")
    assert waiting.Wait("box", 100).ranks(look, at).line == f"[box] 20 s: d{left} | [TP0] Load weight begin."


def test_compilers_are_named_where_the_state_does_not_say_so_already() -> None:
    doing = "compiling kernels (12 objects more, cicc), busy (3.0 cores)"
    assert waiting.describe_ranks(start(doing=doing), 1.0) == "d, compiling kernels"
    silent = f"weights: 0 of 2 ranks are past it; silent for 40 s, {doing}"
    assert waiting.describe_ranks(start(detail=silent, doing=doing), 1.0) == silent
    assert waiting.describe_ranks(start(doing="busy (3.0 cores)"), 1.0) == "d"


def test_change_of_the_ranks_is_shown_at_once() -> None:
    wait = waiting.Wait("box", 100)
    assert wait.ranks(start(detail="autotune: 0 of 2 ranks completed"), 1.0).line
    assert wait.ranks(start(detail="autotune: 0 of 2 ranks completed"), 2.0).line is None
    line = wait.ranks(start(detail="autotune: 1 of 2 ranks completed"), 3.0).line
    assert line == "[box] 3 s: autotune: 1 of 2 ranks completed"


# --- looks at the server ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "done", "failed", "reason"),
    [
        ("starting", False, False, ""),
        ("ready", True, False, ""),
        ("failed", True, True, "failed"),
        ("stopped", True, True, "stopped"),
    ],
)
def test_wait_ends_at_once_when_it_can(state: str, done: bool, failed: bool, reason: str) -> None:
    decision = waiting.Wait("h", timeout_s=100).serving(served(state), 1.0)
    assert (decision.done, decision.failed, decision.reason, decision.serve) == (done, failed, reason, False)


def test_wait_gives_up_at_its_limit_and_ready_still_counts_then() -> None:
    assert waiting.Wait("h", 10).serving(served("starting"), 9.9).done is False
    gave_up = waiting.Wait("h", 10).serving(served("starting"), 10.0)
    assert (gave_up.reason, gave_up.line) == ("timeout", "[h] gave up after 10 s: health: d")
    assert waiting.Wait("h", 10).serving(served("ready"), 10.5).failed is False


@pytest.mark.parametrize("poll_s", [None, 0.5, 1.0])
@pytest.mark.parametrize("look_s", [0.1, 0.3, 0.7, 1.2, 2.4])
def test_wait_shows_a_line_at_least_every_five_seconds_and_not_every_look(look_s: float, poll_s: float | None) -> None:
    wait = waiting.Wait("h", 1000, poll_s)
    shown = [0.0]
    looks = 0
    at = 0.0
    while at < 60:
        at += look_s
        looks += 1
        decision = wait.serving(served("starting"), at) if at > 30 else wait.ranks(start(), at)
        if decision.line:
            shown.append(at)
        at += decision.pause_s
    assert max(later - earlier for earlier, later in zip(shown, shown[1:])) <= 5.0
    if look_s + (poll_s or 2.0) < 2.5:
        assert len(shown) <= looks / 2 + 2  # one more for the change from one part to the other


def test_wait_looks_every_second_at_first_and_a_little_later_afterwards() -> None:
    wait = waiting.Wait("h", 600)
    assert [wait.pause_s(at) for at in (0.3, 9.9, 10.0, 400.0)] == [1.0, 1.0, 1.5, 1.5]
    assert [waiting.Wait("h", 600, 0.5).pause_s(at) for at in (0.3, 100.0)] == [0.5, 0.5]
    assert wait.pause_s(599.5) == 0.5  # not beyond its limit
    assert wait.pause_s(601.0) == 0.0


def test_wait_shows_the_newest_log_line_with_a_line_that_is_due_only() -> None:
    wait = waiting.Wait("box", 100)
    assert wait.serving({**served("starting", "a"), "log_newest": "Load weight begin."}, 1.0).line == (
        "[box] 1 s: health: a | Load weight begin."
    )
    assert wait.serving({**served("starting", "a"), "log_newest": "Load weight end."}, 2.0).line is None
    assert wait.serving({**served("starting", "a"), "log_newest": "Memory pool end."}, 5.5).line == (
        "[box] 6 s: health: a | Memory pool end."
    )


def test_wait_shows_a_change_at_once() -> None:
    wait = waiting.Wait("box", 100)
    assert wait.serving(served("starting", "a"), 1.0).line == "[box] 1 s: health: a"
    assert wait.serving(served("starting", "a"), 2.0).line is None
    assert wait.serving(served("starting", "b"), 3.0).line == "[box] 3 s: health: b"


# --- what a failure says ---------------------------------------------------------------------------------------------

ENDED = {
    **served("failed", "the server exited with code 0", "process"),
    "ended": "exited with code 0",
    "manager": "supervisor",
    "log": "/r/log/server.log",
    "log_tail": ["a", "b"],
}


def test_failure_message_says_what_where_why_and_what_to_do() -> None:
    message = waiting.failure_message("box", {}, ENDED, "failed", 3.2, 600, "sglang")
    assert message.splitlines() == [
        "The server on box failed 3 s after the wait began: the server exited with code 0 before it was ready "
        "(stage process); correct what the log names and deploy again.",
        "Log box:/r/log/server.log, 2 lines since the start:",
        "    a",
        "    b",
        "Also: box:/r/state/supervisord.log.",
    ]


def failed_start(**failure: Any) -> dict[str, Any]:
    """The last look at a start of two ranks that failed inside autotune."""
    found = {"reason": "exception", "rank": "TP1", "stage": "autotune", "excerpt": [], "hint": "do this", **failure}
    return start(
        "failed",
        f"{found['reason']} in {found['rank']}: RuntimeError: why",
        stage="autotune",
        failure=found,
        expected_ranks=["TP0", "TP1"],
        missing_ranks=["TP1"],
        autotune={"ranks_started": ["TP0", "TP1"], "ranks_completed": ["TP0"]},
        log="/r/log/server.log",
    )


def test_failure_message_has_the_ranks_own_traceback_instead_of_the_end_of_the_log() -> None:
    excerpt = ["Scheduler hit an exception: Traceback (most recent call last):", "  File x", "RuntimeError: why"]
    server = {**ENDED, "ended": "was killed by signal 9 (SIGKILL)", "log_tail": ["another line"]}
    message = waiting.failure_message("box", failed_start(excerpt=excerpt), server, "failed", 40.0, 900, "sglang")
    assert message.splitlines() == [
        "The server on box failed 40 s after the wait began: exception in TP1: RuntimeError: why (the server was killed"
        " by signal 9 (SIGKILL)) (stage autotune); do this.",
        "Ranks: 2 expected, 2 started and 1 completed autotune; missing: TP1.",
        "What it said of TP1:",
        f"    {excerpt[0]}",
        "      File x",
        "    RuntimeError: why",
        "Log: box:/r/log/server.log.",
        "Also: box:/r/state/supervisord.log.",
    ]


def test_failure_message_of_a_server_that_ended_without_a_word_has_the_end_of_the_log() -> None:
    exit_0 = failed_start(reason="process_exit", rank="main", excerpt=["process 7 ended before the server was ready"])
    exit_0.update(detail="process_exit in main: process 7 ended before the server was ready", stage="boot")
    lines = waiting.failure_message("box", exit_0, ENDED, "failed", 3.0, 900, "sglang").splitlines()
    assert lines[0] == (
        "The server on box failed 3 s after the wait began: process_exit: the server exited with code 0 before it was "
        "ready (stage boot); do this."
    )
    assert lines[2:5] == ["Log box:/r/log/server.log, 2 lines since the start:", "    a", "    b"]
    # Nobody knows how it ended: what the look saw is said.
    unknown = waiting.failure_message("box", exit_0, {}, "failed", 3.0, 900, "sglang")
    assert ": process_exit in main: process 7 ended before the server was ready (stage boot); do this." in unknown
    assert "Also:" not in unknown and "Log box:/r/log/server.log, 0 lines" in unknown


def test_failure_message_of_a_stalled_start_names_the_ranks_that_are_missing() -> None:
    stalled = failed_start(reason="stalled", excerpt=["nothing was logged for 300 s", "these ranks: TP1"])
    stalled.update(state="stalled", detail="stalled in TP1: these ranks have not completed autotune: TP1")
    lines = waiting.failure_message("box", stalled, {}, "stalled", 420.0, 3600, "sglang").splitlines()
    assert lines[0] == (
        "The server on box stalled; 420 s after the wait began: stalled in TP1: these ranks have not completed "
        "autotune: TP1 (stage autotune); do this."
    )
    assert lines[1] == "Ranks: 2 expected, 2 started and 1 completed autotune; missing: TP1."
    assert "not ready within" not in "".join(lines)


def test_failure_message_of_a_time_out_is_another_one_than_of_a_stalled_start() -> None:
    slow = {**failed_start(), "state": "starting", "detail": "autotune: 1 of 2 ranks completed", "failure": None}
    lines = waiting.failure_message("box", slow, {}, "timeout", 3601.0, 3600, "sglang").splitlines()
    assert lines[0] == (
        "The server on box was not ready within 3600 s: autotune: 1 of 2 ranks completed (stage autotune); raise "
        "the limit (sglang_ready_timeout_s of the roles) if it was still making progress, otherwise correct what the "
        "log names."
    )
    assert "missing: TP1." in lines[1] and "stalled" not in "".join(lines)


def test_failure_message_of_a_time_out_names_the_variable_and_the_unit() -> None:
    server = {**served("starting"), "manager": "systemd"}
    message = waiting.failure_message("box", {}, server, "timeout", 600, 600, "sg1")
    assert "not ready within 600 s" in message and "sglang_ready_timeout_s" in message
    assert "systemctl status sg1" in message and "(nothing was written since the start)" in message


def test_failure_message_of_a_server_that_does_not_run_says_how_to_start_it() -> None:
    message = waiting.failure_message("box", {}, served("stopped", "it was stopped"), "stopped", 1, 9, "sglang")
    assert message.startswith("The server on box is not running: it was stopped (stage health); start it with role ")


def test_failure_message_names_thirty_two_of_many_missing_ranks() -> None:
    tags = [f"TP{number}" for number in range(64)]
    many = {**failed_start(), "expected_ranks": tags, "missing_ranks": tags, "autotune": {"ranks_started": tags}}
    line = waiting.failure_message("box", many, {}, "failed", 1, 9, "sglang").splitlines()[1]
    assert line.startswith("Ranks: 64 expected, 64 started and 0 completed autotune; missing: TP0, TP1, ")
    assert line.endswith(", TP31 and more.") and "TP32" not in line
    just = {**many, "missing_ranks": tags[:32]}
    assert waiting.failure_message("box", just, {}, "failed", 1, 9, "s").splitlines()[1].endswith(", TP31.")


def test_failure_message_of_a_single_rank_that_tuned_nothing_says_nothing_of_ranks() -> None:
    single = {**failed_start(rank="main"), "expected_ranks": ["main"], "missing_ranks": ["main"], "autotune": {}}
    assert "Ranks:" not in waiting.failure_message("box", single, {}, "failed", 1, 9, "sglang")


def test_failure_of_a_server_whose_ranks_were_ready_is_the_servers_own() -> None:
    message = waiting.failure_message("box", start("ready", "the server is ready"), ENDED, "failed", 3.2, 600, "sglang")
    assert "the server exited with code 0 before it was ready (stage process)" in message
    assert "the server is ready" not in message


def test_failure_message_counts_what_it_leaves_out_and_names_the_first_exception() -> None:
    server = {**served("failed"), "log": "/l", "log_tail": ["a"], "log_benign": 74, "first_exception": "OSError: disk"}
    lines = waiting.failure_message("box", {}, server, "failed", 3.2, 600, "sglang").splitlines()
    assert lines[1:3] == [
        "First exception: OSError: disk",
        "Log box:/l, 1 lines since the start without 74 benign lines:",
    ]
    one = waiting.failure_message("box", {}, {**server, "log_benign": 1}, "failed", 3.2, 600, "sglang")
    assert "without 1 benign line:" in one


@pytest.mark.parametrize(
    "detail",
    ["the server exited with code 1 and its manager is about to start it again", "it serves a, asked was b"],
)
def test_failure_message_does_not_add_to_a_sentence_that_goes_on(detail: str) -> None:
    server = {**served("failed", detail), "ended": "exited with code 1"}
    assert f": {detail} (stage" in waiting.failure_message("box", {}, server, "failed", 3.2, 600, "sglang")
