# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import decode_profile, trace_steps
from ansible_collections.tokforge.sglang.plugins.module_utils.decode_profile import (
    ProfileError,
    against_floor,
    judge,
    rank_of,
    summarise,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.roofline import Roofline
from ansible_collections.tokforge.sglang.plugins.module_utils.trace_events import TraceError

RECORDED = Path(__file__).parent / "fixtures" / "profile"
ATTENTION = "_fwd_kernel_stage1"
MOE = "fused_moe_kernel"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
DENSE = "nvjet_tst_64x8_64x16_4x1_v_bz_TNT"
NORM = "void flashinfer::norm::FusedAddRMSNormKernel<8u>"
Event = dict[str, Any]


def event(category: str, name: str, begin: float, lasts: float, **more: Any) -> Event:
    return {"ph": "X", "cat": category, "name": name, "ts": begin, "dur": lasts, "pid": 0, "tid": 7, **more}


def kernel(name: str, begin: float, lasts: float, **more: Any) -> Event:
    return event("kernel", name, begin, lasts, **more)


def span(name: str, begin: float, lasts: float, category: str = "gpu_user_annotation", **more: Any) -> Event:
    return event(category, name, begin, lasts, **more)


def step(begin: float) -> list[Event]:
    """A step of 100 microseconds: 20 attention, 30 experts, 10 all-reduce, 15 dense, 5 norm, 4 unknown, 16 idle."""
    return [
        span("step[DECODE bs=8]", begin, 70),
        kernel(ATTENTION, begin, 20),
        kernel(MOE, begin + 20, 30),
        kernel(REDUCE, begin + 50, 10),
        kernel(DENSE, begin + 65, 15),
        kernel(NORM, begin + 80, 5),
        kernel("strange_v3", begin + 90, 4),
    ]


def steps(count: int, begin: float = 1000.0) -> list[Event]:
    return [each for n in range(count) for each in step(begin + 100 * n)]


def without_spans(events: list[Event]) -> list[Event]:
    return [each for each in events if each["cat"] == "kernel"]


def test_a_step_is_divided_into_kinds_and_gaps_that_add_up() -> None:
    found = judge(steps(5), "TP-0")
    assert (found.rank, found.device, found.batch) == ("TP-0", "gpu", 8)
    # The last pass has no next one and is left out.
    assert (found.steps, found.steps_from, found.other_steps) == (4, "spans", 0)
    assert found.step_ms == pytest.approx(0.1)
    assert found.ms == pytest.approx(
        {"attention": 0.02, "moe_gemm": 0.03, "moe_routing": 0.0, "all_reduce": 0.01, "gemm": 0.015,
         "elementwise": 0.005, "other": 0.004, "idle": 0.016}
    )  # fmt: skip
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.shares["moe_gemm"] == pytest.approx(0.3)


def test_the_largest_kernels_and_the_unknown_ones_are_named() -> None:
    many = steps(3) + [kernel(f"novelty_{n}", 1086 + n / 100, 0.001 * (n + 1)) for n in range(30)]
    found = judge(many)
    assert [each.name for each in found.largest[:3]] == [MOE, ATTENTION, DENSE]
    assert (found.largest[0].kind, found.largest[0].calls) == ("moe_gemm", 1.0)
    assert len(found.unknown) == 10
    assert found.unknown[0].name == "strange_v3"
    assert {each.kind for each in found.unknown} == {"other"}


def test_kernels_that_run_at_once_share_the_moment() -> None:
    events = [
        span("step[DECODE bs=1]", 0, 10),
        span("step[DECODE bs=1]", 100, 10),
        kernel(MOE, 0, 60),
        kernel(REDUCE, 40, 40),
        kernel(MOE, 100, 1),
    ]
    found = judge(events)
    assert found.ms["moe_gemm"] == pytest.approx(0.050)
    assert found.ms["all_reduce"] == pytest.approx(0.030)
    assert found.ms["idle"] == pytest.approx(0.020)


def test_a_kernel_that_reaches_into_the_next_step_is_cut_at_its_window() -> None:
    events = [
        span("step[EXTEND bs=1 toks=9]", 0, 90),
        span("step[DECODE bs=1]", 100, 10),
        span("step[DECODE bs=1]", 200, 9),
    ]
    found = judge([*events, kernel(MOE, 90, 30), kernel(ATTENTION, 190, 50)])
    assert (found.steps, found.other_steps, found.step_ms) == (1, 1, pytest.approx(0.1))
    assert found.ms["moe_gemm"] == pytest.approx(0.020)
    assert found.ms["attention"] == pytest.approx(0.010)


def test_a_prefill_between_decode_steps_is_left_out() -> None:
    prefill = [span("step[EXTEND bs=1 toks=500]", 1200, 800), kernel(DENSE, 1200, 800)]
    events = [*steps(2), *prefill, *steps(3, 2000)]
    found = judge(events)
    assert (found.steps, found.other_steps) == (4, 1)
    assert found.step_ms == pytest.approx(0.1)
    assert found.ms["gemm"] == pytest.approx(0.015)


def test_spans_of_one_pass_on_two_streams_are_one_pass() -> None:
    events = steps(4)
    events += [span("step[DECODE bs=8]", 1000 + 100 * n + 30, 60, tid=8) for n in range(4)]
    assert judge(events).steps == 3


def test_drafts_belong_to_the_step_that_verifies_them() -> None:
    events = without_spans(steps(4))
    for n in range(4):
        events += [span("step[VERIFY bs=2]", 1000 + 100 * n, 50), span("step[DRAFT bs=2]", 1060 + 100 * n, 30)]
    found = judge(events)
    assert (found.steps, found.other_steps, found.batch) == (3, 0, 2)
    assert found.step_ms == pytest.approx(0.1)


def test_a_batch_that_changes_is_not_told() -> None:
    events = [each for each in steps(4) if each["name"] != "step[DECODE bs=8]"]
    events += [span(f"step[DECODE bs={8 - n}]", 1000 + 100 * n, 50) for n in range(4)]
    assert (judge(events).steps, judge(events).batch) == (3, None)


def graphs(count: int) -> list[Event]:
    events = []
    for n in range(count):
        events += [{**each, "args": {"correlation": n}} for each in without_spans(step(1000 + 100 * n))]
        events.append(event("cuda_runtime", "cudaGraphLaunch", 900 + 100 * n, 3, args={"correlation": n}))
        # Sampling is not in the graph.
        events.append(kernel("softmax_sampling", 1097 + 100 * n, 1, args={"correlation": 1000 + n}))
    return events


def test_without_spans_launches_of_graphs_tell_the_steps() -> None:
    found = judge(graphs(6), asked_steps=5)
    assert (found.steps, found.steps_from, found.batch) == (5, "graph_launches", None)
    assert found.step_ms == pytest.approx(0.1)
    assert found.ms["elementwise"] == pytest.approx(0.006)


def test_graphs_that_are_not_the_steps_are_not_taken_for_them() -> None:
    found = judge(graphs(6), asked_steps=3)
    assert (found.steps, found.steps_from) == (3, "asked")
    assert found.step_ms == pytest.approx((1598 - 1000) / 3 / 1000)


def test_without_spans_and_graphs_the_asked_number_divides_the_whole() -> None:
    found = judge(without_spans(steps(4)), asked_steps=4)
    assert (found.steps, found.steps_from) == (4, "asked")
    assert found.step_ms == pytest.approx(0.394 / 4)
    assert found.ms["attention"] == pytest.approx(0.02)
    with pytest.raises(ProfileError, match="does not tell its steps"):
        judge(without_spans(steps(4)))


def test_spans_of_the_host_do_not_cut_the_work_of_a_gpu() -> None:
    late = [span("step[DECODE bs=8]", 500 + n, 1, "user_annotation") for n in range(4)]
    assert judge(without_spans(steps(4)) + late, asked_steps=4).steps_from == "asked"


@pytest.mark.parametrize(("version", "batch", "step_ms"), [("0.5.23", 4, 425.3654), ("0.5.12.post1", 2, 1141.8657)])
def test_a_recorded_trace_of_a_cpu_is_judged_by_operations(version: str, batch: int, step_ms: float) -> None:
    found = decode_profile.read(str(RECORDED / f"{version}-TP-0.trace.json.gz"), 8)
    assert (found.rank, found.device, found.batch, found.steps, found.steps_from) == ("TP-0", "cpu", batch, 3, "spans")
    assert found.step_ms == pytest.approx(step_ms, rel=1e-6)
    assert sum(found.ms.values()) == pytest.approx(found.step_ms)
    assert found.ms["attention"] > 0
    assert found.ms["gemm"] > found.ms["elementwise"] > 0
    assert (found.ms["moe_gemm"], found.ms["all_reduce"]) == (0, 0)
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in {each.name for each in found.largest}


def test_operations_inside_others_belong_to_the_outer_kind_and_are_counted_once() -> None:
    operations = [
        ("aten::scaled_dot_product_attention", 0, 40),
        ("aten::empty", 10, 5),
        ("aten::mm", 20, 10),
        ("aten::linear", 50, 20),
        ("aten::t", 50, 5),
        ("aten::mm", 55, 15),
        ("aten::to", 70, 20),
        ("aten::copy_", 75, 10),
    ]
    events = [event("cpu_op", *each) for each in operations]
    events += [
        span("step[DECODE bs=1]", 0, 95, "user_annotation"),
        span("step[DECODE bs=1]", 100, 5, "user_annotation"),
    ]
    events.append(event("cpu_op", "aten::mm", 100, 5))
    found = judge(events)
    assert (found.steps, found.step_ms) == (1, pytest.approx(0.1))
    assert found.ms == pytest.approx(
        {"attention": 0.04, "moe_gemm": 0, "moe_routing": 0, "all_reduce": 0, "gemm": 0.02, "elementwise": 0.02,
         "other": 0, "idle": 0.02}
    )  # fmt: skip
    calls = {(each.name, each.kind): (each.calls, each.ms) for each in found.largest}
    assert calls[("aten::mm", "gemm")] == (1, pytest.approx(0.015))
    assert calls[("aten::scaled_dot_product_attention", "attention")] == (1, pytest.approx(0.025))


def test_a_trace_with_kernels_is_of_a_gpu_whatever_comes_first() -> None:
    operations = [event("cpu_op", "aten::mm", n, 1) for n in range(50)]
    assert judge(operations + steps(3)).device == judge(steps(3) + operations).device == "gpu"


def test_nothing_to_judge_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ProfileError, match=r"rank TP-3 holds no kernel .* see the server's log"):
        judge([{"ph": "M", "name": "process_name"}], "TP-3", 8)
    with pytest.raises(ProfileError, match="3 passes and no two decode steps"):
        judge([span("step[EXTEND bs=1 toks=9]", n, 1) for n in (1, 5, 9)] + [kernel(MOE, 1, 1)])
    with pytest.raises(ProfileError, match="take no time"):
        judge([kernel(MOE, 5, 0)], asked_steps=4)


@pytest.mark.parametrize("bad", [None, True, "5", -1.0, float("nan"), float("inf"), 1e300, [1]])
def test_events_with_times_that_cannot_be_are_left_out(bad: object) -> None:
    spoilt: list[Event] = [kernel(MOE, 0, 0), kernel(MOE, 0, 0), span("step[DECODE bs=8]", 0, 0)]
    spoilt[0]["ts"] = bad
    spoilt[1]["dur"] = bad
    spoilt[2]["ts"] = bad
    odd: list[Event] = [{**kernel(MOE, 1000, 50), "name": bad}, {**kernel(MOE, 1000, 50), "cat": 5}, {"ph": bad}]
    assert judge(spoilt + odd[1:] + steps(3)).ms == judge(steps(3)).ms


def test_more_kernels_than_can_be_held_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_steps, "MOST_WORK", 10)
    with pytest.raises(TraceError, match="fewer steps"):
        judge(steps(3))


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("1796028295.81-TP-0.trace.json.gz", "TP-0"),
        ("pre-1796028295.81-TP-3-DP-1-PP-0-EP-3-DECODE.trace.json.gz", "TP-3-DP-1-PP-0-EP-3"),
        ("other.json", ""),
    ],
)
def test_the_rank_is_read_from_the_name(name: str, rank: str) -> None:
    assert rank_of(f"/x/TP-9/{name}") == rank


def test_ranks_are_summed_up_as_means_and_waiting_is_told_apart() -> None:
    slow = steps(4)
    for each in slow:
        if each["name"] == REDUCE:
            each["dur"] = 2
        if each["name"] == MOE:
            each["dur"] = 30
    answer = summarise([judge(steps(4), "TP-0"), judge(slow, "TP-1")])
    assert answer["ms"]["all_reduce"] == pytest.approx(0.006)
    assert answer["all_reduce_least_ms"] == pytest.approx(0.002)
    assert sum(answer["shares"].values()) == pytest.approx(1)
    assert [each["rank"] for each in answer["ranks"]] == ["TP-0", "TP-1"]
    assert answer["floor"] is None
    assert answer["unknown"] == [{"name": "strange_v3", "kind": "other", "ms": 0.004, "calls": 1.0}]
    with pytest.raises(ProfileError, match="no trace"):
        summarise([])


def test_kinds_are_held_against_the_bytes_that_they_read() -> None:
    bytes_by_part = {"embedding": 1e3, "experts": 45e3, "cache": 5e3, "attention": 20e3, "lm_head": 9e3}
    floor = Roofline(8, 128, 4.8e9, bytes_by_part, 8.0)
    answer = summarise([judge(steps(4))], floor)["floor"]
    assert answer["kinds"]["moe_gemm"] == {
        "floor_ms": pytest.approx(45e3 / 4.8e9 * 1000), "measured_ms": 0.03, "share": pytest.approx(0.3125),
    }  # fmt: skip
    assert answer["kinds"]["attention"]["floor_ms"] == pytest.approx(5e3 / 4.8e9 * 1000, abs=1e-6)
    assert answer["kinds"]["gemm"]["floor_ms"] == pytest.approx(30e3 / 4.8e9 * 1000, abs=1e-6)
    assert answer["step"]["share"] == pytest.approx(80e3 / 4.8e9 * 1000 / 0.1, abs=1e-5)


def test_without_a_bandwidth_or_a_measurement_there_is_no_share() -> None:
    assert against_floor({"moe_gemm": 1.0}, 1.0, Roofline(1, 0, None, {"experts": 5.0}, 1.0)) is None
    answer = against_floor({"moe_gemm": 0.0}, 1.0, Roofline(1, 0, 1e12, {"experts": 5.0}, 1.0))
    assert answer is not None
    assert answer["kinds"]["moe_gemm"]["share"] is None


@pytest.mark.parametrize(("graphs", "step_ms"), [("eager", 5.41), ("graphs", 1.33)])
def test_trace_of_a_gpu_is_read_with_and_without_graphs(graphs: str, step_ms: float) -> None:
    found = summarise([decode_profile.read(str(RECORDED / f"h200-{graphs}-TP-0.trace.json.gz"), 16)])
    assert (found["device"], found["batch"], found["steps"], found["steps_from"]) == ("gpu", 8, 14, "spans")
    assert found["step_ms"] == pytest.approx(step_ms, abs=0.01)
    assert found["unknown"] == []
    # Most of what runs are the experts, and nothing is reduced on one GPU.
    busy = {kind: ms for kind, ms in found["ms"].items() if kind != "idle"}
    assert max(busy, key=lambda kind: busy[kind]) == "moe_gemm"
    assert busy["moe_gemm"] > 0.6 * sum(busy.values())
    assert (busy["all_reduce"], busy["other"]) == (0.0, 0.0)
