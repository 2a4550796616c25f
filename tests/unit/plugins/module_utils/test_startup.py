# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a start has come to: who is expected and missing, when it is ready, failed or stalled, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from startup_logs import (
    COMPLETED,
    FAILED,
    FIRED_UP,
    REAL,
    RUNNING,
    SHAPES_DIFFER,
    SIGQUIT,
    STYLES,
    TP8,
    V0_5_8,
    V0_5_12,
    V0_5_18,
    V0_5_23,
    Style,
    arguments,
    good,
    loaded,
    one_of_eight_fails,
    real,
    report,
    served,
    tags_of,
    tuning,
)

from ansible_collections.tokforge.sglang.plugins.module_utils import startup as core
from ansible_collections.tokforge.sglang.plugins.module_utils import startup_log
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import RanksError, World
from ansible_collections.tokforge.sglang.plugins.module_utils.startup import Process, Quiet, Verdict
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_expect import Expectation

T = "2026-11-29 16:52:38"
EXPECTED = Expectation("expected", "the autotune gate is open for flashinfer_cutlass")
NOT_EXPECTED = Expectation("not_expected", "the autotune gate is closed for flashinfer_cutlass")
AUTO = Expectation("auto", "nobody knows")
ALIVE = Process(4711, True, doing="idle")
DEAD = Process(4711, False, "exited with exit code 0")
SILENT = Quiet(301, 301, 301)
TP8_WORLD = World(tp=8)


def judge(data: bytes, world: World = TP8_WORLD, expectation: Expectation = EXPECTED, **more: Any) -> Verdict:
    return core.judge(report(data), world, expectation, **more)


def reason(verdict: Verdict) -> str:
    assert verdict.failure is not None
    return verdict.failure.reason


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


# --- ready -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(REAL))
def test_a_real_start_is_ready_with_every_rank(name: str) -> None:
    tags, tuned = REAL[name]
    verdict = judge(real(name), World(tp=len(tags)), EXPECTED if tuned else NOT_EXPECTED, process=ALIVE)
    assert (verdict.state, verdict.stage, verdict.failure, verdict.missing_ranks) == ("ready", "ready", None, ())
    assert verdict.expected_ranks == tags
    assert list(verdict.autotune["ranks_completed"]) == (list(tags) if tuned else [])
    count = f", {len(tags)} of {len(tags)} ranks completed autotune" if tuned else ""
    assert verdict.detail == f"the server is ready{count}"
    assert verdict.notes == ()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("world", "ranks"),
    [
        (World(tp=8, ep=8), [{"TP": n, "EP": n} for n in range(8)]),
        (World(tp=2, pp=2), [{"PP": p, "TP": t} for p in range(2) for t in range(2)]),
        (World(tp=2, dp=2, dp_attention=False), [{"DP": d, "TP": t} for d in range(2) for t in range(2)]),
        (World(tp=8, dp=4, dp_attention=True), [{"DP": n // 2, "TP": n} for n in range(8)]),
        (World(tp=8, dp=4), [{"DP": n // 2, "TP": n} for n in range(8)]),
    ],
)
def test_every_layout_and_release_is_ready_only_with_its_last_rank(
    style: Style, world: World, ranks: list[dict[str, int]]
) -> None:
    tags = tags_of(style, ranks)
    verdict = judge(good(style, tags, tp_size=world.tp, pp_size=world.pp), world)
    assert verdict.state == "ready"
    assert set(verdict.autotune["ranks_completed"]) == set(tags_of(V0_5_23, ranks)) == set(verdict.expected_ranks)
    partial = judge(
        served(tuning(loaded(style, tags, tp_size=world.tp, pp_size=world.pp), tags, tags[:-1]), tags).data, world
    )
    assert (partial.state, reason(partial)) == ("failed", "autotune_skipped")
    assert list(partial.missing_ranks) == tags_of(V0_5_23, ranks[-1:])


def test_the_expert_parallel_rank_that_nobody_expected_is_named_as_the_log_has_it() -> None:
    tags = tags_of(V0_5_12, [{"TP": n, "EP": n} for n in range(8)])
    verdict = judge(tuning(loaded(V0_5_12, tags, tp_size=8), tags, tags[:6]).data)
    assert list(verdict.missing_ranks) == ["TP6 EP6", "TP7 EP7"]
    assert list(verdict.expected_ranks) == tags


def test_a_server_that_skipped_autotune_is_not_ready() -> None:
    data = good(V0_5_12, TP8, tuned=False, tp_size=8)
    verdict = judge(data)
    assert (verdict.state, reason(verdict)) == ("failed", "autotune_skipped")
    assert verdict.failure is not None
    assert "no rank logged autotune, which was expected of TP0, TP1" in verdict.failure.excerpt[0]
    for expectation in (NOT_EXPECTED, AUTO):
        assert judge(data, expectation=expectation).state == "ready"


def test_autotune_that_was_begun_counts_though_nobody_expected_it() -> None:
    data = served(tuning(loaded(V0_5_12, TP8, tp_size=8), TP8, TP8[:7]), TP8).data
    for expectation in (EXPECTED, AUTO):
        verdict = judge(data, expectation=expectation)
        assert (verdict.state, reason(verdict), verdict.missing_ranks) == ("failed", "autotune_skipped", ("TP7",))
        assert verdict.failure is not None
        assert verdict.failure.rank == "TP7"
    # Where it was not to run at all, the server's own word is enough.
    unexpected = judge(data, expectation=NOT_EXPECTED)
    assert unexpected.state == "ready" and "autotune ran though it was not expected" in unexpected.notes[0]


def test_eight_completed_lines_of_one_rank_are_not_done() -> None:
    verdict = judge(served(tuning(loaded(V0_5_12, TP8, tp_size=8), TP8, ["TP0"] * 8), TP8).data)
    assert (verdict.state, verdict.missing_ranks) == ("failed", tuple(TP8[1:]))
    assert verdict.autotune["ranks_completed"] == ["TP0"]


def test_a_second_pair_that_is_not_complete_is_missing() -> None:
    writer = tuning(loaded(V0_5_18, TP8, tp_size=8), TP8, TP8).each(TP8, V0_5_18.running).each(TP8[:5], COMPLETED)
    assert judge(writer.data).missing_ranks == ("TP5", "TP6", "TP7")


def test_a_node_that_serves_nobody_is_ready_by_its_own_words() -> None:
    tags = TP8[4:]
    writer = tuning(loaded(V0_5_12, tags, tp_size=8, nnodes=2, node_rank=1), tags, tags)
    data = writer.record("Dummy health check server started in background thread at 0.0.0.0:1").data
    second = judge(data, World(tp=8, nnodes=2, node_rank=1))
    assert (second.state, second.expected_ranks) == ("ready", tuple(tags))
    assert judge(data, World(tp=8, nnodes=2, node_rank=0)).state == "starting"


# --- starting --------------------------------------------------------------------------------------------------------


def test_nothing_yet_is_a_start_of_all_ranks() -> None:
    verdict = judge(b"", process=ALIVE)
    assert (verdict.state, verdict.stage, verdict.detail) == ("starting", "boot", "the processes start")
    assert verdict.missing_ranks == tuple(TP8)
    assert judge(b"", expectation=AUTO).missing_ranks == tuple(TP8)


def test_the_detail_counts_ranks_and_shows_the_newest_bar() -> None:
    writer = loaded(V0_5_12, TP8, tp_size=8).each(TP8, RUNNING).each(TP8[:3], COMPLETED).bars(done=(6,))
    verdict = judge(writer.data)
    assert verdict.detail == "autotune: 3 of 8 ranks completed, trtllm::fused_moe::gemm1 6/9"
    assert (verdict.state, verdict.stage) == ("starting", "autotune")
    assert verdict.autotune["ranks_started"] == TP8


def test_the_detail_of_other_stages_counts_who_is_past_them() -> None:
    begun = loaded(V0_5_12, TP8[:5]).each(TP8[5:], "Load weight begin. x").data
    assert judge(begun).detail == "weights: 5 of 8 ranks are past it, Loading safetensors checkpoint shards 1/2"
    captured = tuning(loaded(V0_5_12, TP8), TP8, TP8).each(TP8, V0_5_12.begin).each(TP8[:2], V0_5_12.end)
    assert judge(captured.data).detail == "CUDA graphs: 2 of 8 ranks are past it"
    listening = captured.each(TP8[2:], V0_5_12.end).record("INFO:     Uvicorn running on http://x").data
    assert judge(listening).stage == "warmup"
    done = judge(tuning(loaded(V0_5_12, TP8), TP8, TP8).data)
    assert done.stage == "cuda_graphs"


def test_a_long_silence_says_what_the_processes_do() -> None:
    busy = replace(ALIVE, doing="compiling kernels (12 objects more, cicc)")
    data = tuning(loaded(V0_5_12, TP8), TP8, []).data
    verdict = judge(data, process=busy, quiet=Quiet(45, 0, 0))
    assert verdict.detail.endswith("; silent for 45 s, compiling kernels (12 objects more, cicc)")
    assert "silent" not in judge(data, process=busy, quiet=Quiet(29, 0, 0)).detail


# --- stalled ---------------------------------------------------------------------------------------------------------


def test_ranks_that_never_complete_are_a_stall_that_names_them() -> None:
    data = tuning(loaded(V0_5_12, TP8), TP8, TP8[:6]).data
    assert judge(data, process=ALIVE, quiet=Quiet(299, 299, 299)).state == "starting"
    verdict = judge(data, process=ALIVE, quiet=SILENT)
    assert (verdict.state, reason(verdict), verdict.missing_ranks) == ("stalled", "stalled", ("TP6", "TP7"))
    assert verdict.failure is not None
    assert (verdict.failure.rank, verdict.failure.stage) == ("TP6", "autotune")
    assert verdict.failure.excerpt == (
        "nothing was logged for 301 s, and process 4711 and its children: idle",
        "these ranks have not completed autotune: TP6, TP7",
    )
    assert "clear the set" in verdict.failure.hint


def test_ranks_that_never_load_are_a_stall_too() -> None:
    data = loaded(V0_5_12, TP8[:7]).data
    verdict = judge(data, quiet=SILENT)
    assert verdict.failure is not None
    assert (verdict.failure.rank, verdict.failure.stage) == ("TP7", "boot")
    assert verdict.failure.excerpt == (
        "nothing was logged for 301 s",
        "these ranks have not loaded their weights: TP7",
    )


@pytest.mark.parametrize(
    ("quiet", "stopped", "state"),
    [
        (Quiet(1000, 0, 0), (), "starting"),
        (Quiet(899, 899, 0), (), "starting"),
        (Quiet(900, 900, 0), (), "stalled"),
        (Quiet(300, 300, 300), (), "stalled"),
        (Quiet(300, 300, 0), (4712,), "stalled"),
        (Quiet(299, 299, 0), (4712,), "starting"),
        (Quiet(300, 10, 0), (4712,), "starting"),
    ],
)
def test_work_that_leaves_no_trace_puts_a_stall_off_for_a_while(
    quiet: Quiet, stopped: tuple[int, ...], state: str
) -> None:
    data = tuning(loaded(V0_5_12, TP8), TP8, TP8[:6]).data
    assert judge(data, process=Process(4711, True, "", stopped), quiet=quiet).state == state


def test_a_stall_after_all_were_tuned_names_nobody() -> None:
    verdict = judge(tuning(loaded(V0_5_12, TP8), TP8, TP8).data, quiet=SILENT)
    assert verdict.failure is not None
    assert (verdict.state, verdict.failure.rank, len(verdict.failure.excerpt)) == ("stalled", "", 1)


def test_a_rank_that_a_signal_stopped_is_the_cause_of_a_stall() -> None:
    stopped = Process(4711, True, "", (4713,), stopped_ranks=("TP1",))
    verdict = judge(tuning(loaded(V0_5_12, TP8), TP8, TP8[:6]).data, process=stopped, quiet=Quiet(300, 300, 0))
    assert verdict.failure is not None
    assert (verdict.failure.rank, verdict.failure.excerpt[-1]) == ("TP1", "stopped by a signal: TP1")
    assert verdict.missing_ranks == ("TP6", "TP7")


def test_the_limit_is_the_callers() -> None:
    assert judge(b"", quiet=Quiet(5, 5, 5), stall_timeout_s=5).state == "stalled"


# --- failed ----------------------------------------------------------------------------------------------------------


def test_one_rank_of_eight_failed_and_the_others_had_all_completed() -> None:
    verdict = judge(one_of_eight_fails(), process=ALIVE)
    assert (verdict.state, reason(verdict)) == ("failed", "exception")
    assert verdict.failure is not None
    assert (verdict.failure.rank, verdict.failure.stage) == ("TP2", "autotune")
    assert verdict.autotune["ranks_started"] == TP8
    assert verdict.autotune["ranks_completed"] == [tag for tag in TP8 if tag != "TP2"]
    assert verdict.missing_ranks == ("TP2",)
    assert verdict.detail.startswith("exception in TP2: RuntimeError: The size of tensor a (4096)")
    assert verdict.failure.excerpt[-1].startswith("RuntimeError: The size of tensor a (4096)")


@pytest.mark.parametrize("name", sorted(FAILED))
def test_a_real_start_that_failed_tells_reason_rank_and_stage(name: str) -> None:
    found = judge(real(name), World(tp=2))
    failure = found.failure
    assert (found.state == "failed") is (failure is not None)
    assert (failure and (failure.reason, failure.rank, failure.stage)) == FAILED[name]
    # Only the log tells nothing of a rank that a signal stopped; the silence and the process do.
    stopped = Process(1, True, stopped=(7,), stopped_ranks=("TP1",))
    late = judge(real(name), World(tp=2), process=stopped, quiet=Quiet(400, 400, 400))
    assert FAILED[name] or (late.state, late.failure and late.failure.rank) == ("stalled", "TP1")


def test_a_failure_counts_more_than_the_ready_line() -> None:
    data = good(V0_5_12, TP8) + lines(f"[{T} TP4] {SHAPES_DIFFER}")
    assert judge(data, process=ALIVE).state == "failed"


@pytest.mark.parametrize("ready", [False, True])
def test_a_process_that_ended_has_failed_also_with_exit_code_0(ready: bool) -> None:
    data = good(V0_5_12, TP8) if ready else loaded(V0_5_12, TP8).data
    verdict = judge(data, process=DEAD)
    assert (verdict.state, reason(verdict)) == ("failed", "process_exit")
    assert verdict.failure is not None
    assert verdict.failure.rank == "main"
    assert "process 4711 exited with exit code 0" in verdict.failure.excerpt[0]
    assert "ended" in judge(data, process=Process(4711, False)).detail


BARE = lines("Traceback (most recent call last):", "  File x", "OfflineModeIsEnabled: offline mode is enabled")


def test_a_bare_traceback_explains_the_end_of_the_process() -> None:
    assert judge(BARE, process=ALIVE).state == "starting"
    for process in (DEAD, None):
        verdict = judge(BARE, process=process)
        assert (verdict.state, reason(verdict)) == ("failed", "hub_offline")


OLD = (f"[{T}] Rank 3 scheduler is dead. Please check if there are relevant logs.", f"[{T}] Exit code: {{}}")
NEW = ("Traceback (most recent call last):", "  File x",
       "RuntimeError: Rank 3 scheduler died during initialization (exit code: {}). If exit code is -9 x")  # fmt: skip


@pytest.mark.parametrize("texts", [OLD, NEW])
@pytest.mark.parametrize(("code", "why"), [(1, "rank_dead"), (-9, "oom_host"), (-4, "rank_dead")])
def test_a_rank_that_the_main_process_names_by_number_gets_its_tag(texts: tuple[str, ...], code: int, why: str) -> None:
    data = loaded(V0_5_12, TP8).data + lines(*(text.format(code) for text in texts))
    for ending in (b"", lines(f"[{T}] {SIGQUIT}")):
        verdict = judge(data + ending, process=DEAD)
        assert verdict.failure is not None
        assert (verdict.failure.reason, verdict.failure.rank) == (why, "TP3")
    pp = tags_of(V0_5_8, [{"PP": p, "TP": t} for p in range(2) for t in range(2)])
    verdict = judge(loaded(V0_5_8, pp).data + lines(*(text.format(code) for text in texts)), World(tp=2, pp=2))
    assert verdict.failure is not None
    assert verdict.failure.rank == "PP1 TP1"


@pytest.mark.parametrize("world", [World(tp=8, dp=4, dp_attention=True), World(tp=2)])
def test_a_number_that_is_no_ranks_names_nobody(world: World) -> None:
    # With data parallelism the main process counts the controller, and no server has more ranks than it has.
    verdict = judge(lines(*(text.format(1) for text in OLD)), world)
    assert verdict.failure is not None
    assert (verdict.failure.reason, verdict.failure.rank) == ("rank_dead", "")


LOST = (
    "Scheduler hit an exception: Traceback (most recent call last):\n  File x\nRuntimeError: Connection closed by peer"
)


def test_the_only_rank_that_said_nothing_is_the_dead_one() -> None:
    data = loaded(V0_5_12, TP8).data
    data += lines(*(f"[{T} {tag}] {LOST}" for tag in TP8 if tag != "TP6"), f"[{T}] {SIGQUIT}")
    verdict = judge(data)
    assert verdict.failure is not None
    assert (verdict.failure.reason, verdict.failure.rank) == ("rank_dead", "TP6")


def test_a_peer_that_was_lost_is_no_cause_where_the_main_process_names_the_dead_rank() -> None:
    data = loaded(V0_5_12, TP8).data + lines(f"[{T} TP0] {LOST}", *(text.format(-9) for text in OLD))
    verdict = judge(data)
    assert verdict.failure is not None
    assert (verdict.failure.reason, verdict.failure.rank) == ("oom_host", "TP3")


# --- worlds that do not fit ------------------------------------------------------------------------------------------


def test_a_world_that_no_server_has_is_refused() -> None:
    with pytest.raises(RanksError, match="node_rank"):
        judge(b"", World(node_rank=1))


def test_ranks_that_were_not_expected_stand_for_nobody() -> None:
    data = good(V0_5_12, ["TP0", "TP1"], tp_size=2)
    verdict = judge(data, World())
    assert verdict.autotune["ranks_completed"] == ["TP0"]
    assert set(verdict.ranks) == {"TP0", "TP1"}
    assert verdict.notes == (
        "ranks that were not expected: TP1",
        "the server says tp 2 and pp 1, expected were tp 1 and pp 1",
    )
    only_second = tuning(loaded(V0_5_12, ["TP1"]), ["TP1"], ["TP1"]).data
    assert judge(only_second, World()).missing_ranks == ("main",)
    wide = judge(good(V0_5_12, [""]), World(tp=2))
    assert (wide.state, wide.missing_ranks, set(wide.ranks)) == ("failed", ("TP0", "TP1"), {"TP0", "TP1"})


def test_an_earlier_start_is_a_note() -> None:
    for count, words in ((1, "1 earlier start;"), (2, "2 earlier starts;")):
        assert words in judge(good(V0_5_12, TP8, tp_size=8) * (count + 1)).notes[-1]


def test_the_servers_own_arguments_tell_its_world() -> None:
    assert core.told_world({}) is None
    told = core.told_world(report(lines(f"[{T}] {arguments(V0_5_23, tp_size=8, attn_dp_size=4)}")).arguments)
    assert told == World(tp=8, dp=4, dp_attention=True)


# --- a format of its own ---------------------------------------------------------------------------------------------


def counted(started: int, completed: int, ready: bool) -> bytes:
    texts = [arguments(V0_5_12, tp_size=8), *[RUNNING] * started, *[COMPLETED] * completed, *[FIRED_UP] * ready]
    return lines(*(f"INFO sglang | {text}" for text in texts))


def test_a_format_of_its_own_is_counted_and_says_so() -> None:
    verdict = judge(counted(8, 3, False))
    assert (verdict.state, verdict.detail) == ("starting", "autotune: 3 of 8 ranks completed")
    assert "lines are counted: 8 ranks started and 3 completed autotune" in verdict.notes[0]
    ready = judge(counted(8, 8, True))
    assert (ready.state, ready.missing_ranks) == ("ready", ())
    assert ready.detail == "the server is ready, 8 of 8 ranks completed autotune"
    short = judge(counted(8, 7, True))
    assert (short.state, reason(short)) == ("failed", "autotune_skipped")
    assert "7 of 8 ranks completed autotune" in short.detail
    assert judge(counted(0, 0, True), expectation=NOT_EXPECTED).state == "ready"
    assert judge(counted(0, 0, True)).state == "failed"


def test_a_ready_line_of_uvicorns_counts_in_a_format_of_its_own() -> None:
    assert judge(counted(8, 8, False) + lines(f"[{T}] INFO:     {FIRED_UP}")).state == "ready"


# --- figures ---------------------------------------------------------------------------------------------------------


def test_durations_are_the_longest_of_the_ranks_and_each_ranks_own() -> None:
    told = report(real("h200x2-tp2-0.5.12.post1-cold-piecewise"))
    found = core.durations(told, core.judge(told, World(tp=2), EXPECTED))
    assert found["ranks"]["TP1"] == {"weights_s": 0.13, "autotune_s": 1636.0, "cuda_graphs_s": 24.0}
    assert (found["weights_s"], found["autotune_s"], found["cuda_graphs_s"]) == (0.2, 1636.0, 24.0)
    assert found["since_arguments_s"] == 1726.0
    assert found["profiling_s"] == 7.0


def test_durations_that_the_log_does_not_tell_are_none() -> None:
    told = report(loaded(V0_5_8, TP8).data)
    found = core.durations(told, core.judge(told, TP8_WORLD, EXPECTED))
    assert (found["weights_s"], found["autotune_s"], found["since_arguments_s"]) == (8.0, None, None)
    empty = report(b"")
    assert core.durations(empty, core.judge(empty, TP8_WORLD, EXPECTED))["weights_s"] is None


def test_milestones_have_a_first_and_a_last_time_and_count_ranks() -> None:
    told = report(real("h200x2-tp2-0.5.12.post1-cold"))
    found = core.reached(told, core.judge(told, World(tp=2), EXPECTED).ranks)
    assert found[startup_log.KV_CACHE] == {"first": "2026-11-29 21:39:35", "last": "2026-11-29 21:39:35", "ranks": 2}
    assert found[startup_log.LOADED]["ranks"] == 1
    assert found[startup_log.READY] == {"first": "2026-11-29 21:41:07", "last": "2026-11-29 21:41:07", "ranks": None}


def test_a_stall_in_a_format_of_its_own_names_no_rank() -> None:
    verdict = judge(counted(8, 3, False), quiet=SILENT)
    assert verdict.failure is not None
    assert (verdict.state, verdict.failure.rank) == ("stalled", "")
    assert verdict.failure.excerpt == ("nothing was logged for 301 s",)


def test_records_that_are_older_than_the_process_do_not_count_and_are_told() -> None:
    data = lines("[2026-11-29 10:00:00 TP0] FlashInfer autotune completed.", f"[2026-11-29 10:00:01] {FIRED_UP}")
    told = report(data, not_before="2026-11-30 10:00:00")
    found = core.judge(told, World(tp=2), EXPECTED)
    assert (found.state, told.older) == ("starting", 2)
    assert "2 records of the log are older than the process" in found.notes[0]
    assert core.judge(report(data), World(tp=2), EXPECTED).notes == ()
