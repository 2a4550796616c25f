# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run against what is expected of it, and the list of places to look at."""

from __future__ import annotations

from typing import Any

import pytest
from comparison_records import record

from ansible_collections.tokforge.sglang.plugins.module_utils import expectation


def run(tok_s: float = 41.0, gpu: Any = None, context: Any = None, concurrency: int = 1, **more: Any) -> dict[str, Any]:
    found = record("r1", {concurrency: [tok_s]}, context=context)
    found["points"][0].update(gpu=gpu, **more)
    return found


def gpus(**more: Any) -> list[dict[str, Any]]:
    usual = {
        "utilization_percent": 100.0, "power_w": 140.0, "power_limit_w": 600.0, "power_share": 140 / 600,
        "sm_clock_share": 0.97, "temperature_c": 50.0, "pcie_rx_bytes_s": 1e8, "pcie_tx_bytes_s": 1e8,
    }  # fmt: skip
    return [{"index": index, **usual, **more} for index in range(4)]


CAPPED = {"power_share": 0.99, "power_w": 148.0, "power_limit_w": 150.0, "sm_clock_share": 0.6}


def names(found: dict[str, Any]) -> list[str]:
    return [hint["name"] for hint in found["checklist"]]


def test_busy_gpus_with_little_power_are_the_first_to_look_at() -> None:
    # 41 tok/s where 130 were expected, the GPUs busy all the time at 140 W of 600 W.
    found = expectation.judge(run(gpu=gpus()), tok_s={"1": 130})
    assert found["status"] == "degraded"
    assert found["why"] == "41.0 output tok/s at concurrency 1 are 32 % of the expected 130.0"
    assert names(found) == ["gpu_waits", "gpu_p2p", "gpu_pcie", "gpu_power", "cpu_governor"]
    assert found["checklist"][0]["seen"] == "GPUs are busy 100 % of the time with 140 W of 600 W"
    assert all(hint["remedy"] for hint in found["checklist"])


def test_other_slow_point_tells_about_the_gpus_when_the_worst_was_too_short_for_a_sample() -> None:
    one = record("r1", {1: [10.0], 8: [50.0], 32: [100.0]})
    for point, gpu in zip(one["points"], (None, gpus(utilization_percent=6.0), gpus())):
        point["gpu"] = gpu
    found = expectation.judge(one, tok_s={1: 100, 8: 100, 32: 100})
    assert found["why"] == "10.0 output tok/s at concurrency 1 are 10 % of the expected 100.0"
    assert found["checklist"][0]["seen"] == "GPUs are busy 6 % of the time only"
    # A point that is as it should be tells nothing.
    fast = expectation.judge(one, tok_s={1: 100, 8: 50, 32: 100})
    assert [hint["seen"] for hint in fast["checklist"]] == [""]
    one["points"][0]["gpu"] = gpus(temperature_c=95.0)
    assert "gpu_heat" in names(expectation.judge(one, tok_s={1: 100, 8: 100, 32: 100}))


@pytest.mark.parametrize(("tok_s", "status"), [(69.9, "degraded"), (70.0, "ok"), (200.0, "ok")])
def test_below_seventy_percent_is_degraded(tok_s: float, status: str) -> None:
    assert expectation.judge(run(tok_s), tok_s={1: 100})["status"] == status
    assert expectation.judge(run(tok_s), tok_s={1: 100}, degraded_below_percent=30)["status"] == "ok"


def test_share_of_the_roofline_and_baseline_are_expectations_as_well() -> None:
    one = run(100.0, roofline={"ceiling_tok_s": 1000.0, "share": 0.1})
    assert expectation.judge(one, roofline_share=0.12)["status"] == "ok"
    found = expectation.judge(one, roofline_share=0.2)
    assert found["status"] == "degraded" and found["points"][0]["expected_tok_s"] == 200.0
    assert expectation.judge(one, baseline=run(150.0))["status"] == "degraded"
    assert expectation.judge(one, baseline=run(120.0))["status"] == "ok"
    assert expectation.judge(one, baseline=run(120.0), roofline_share=0.2)["points"][0]["expected_tok_s"] == 200.0


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "nothing is expected"),
        ({"tok_s": {8: 5}}, "nothing is expected"),
        ({"roofline_share": 0.5}, "nothing is expected"),
        ({"baseline": {"valid": False}}, "nothing is expected"),
        ({"tok_s": {1: 40, 8: 300}}, "nothing was measured at concurrency 8"),
    ],
)
def test_what_nobody_knows_is_unknown(more: dict[str, Any], said: str) -> None:
    found = expectation.judge(run(), **more)
    assert found["status"] == "unknown" and said in found["why"] and found["checklist"] == []


def test_invalid_run_says_nothing() -> None:
    found = expectation.judge({**run(), "valid": False}, tok_s={1: 130})
    assert found["status"] == "unknown" and "invalid" in found["why"] and found["points"] == []


def test_worst_point_decides() -> None:
    one = record("r1", {1: [95.0], 8: [300.0]})
    found = expectation.judge(one, tok_s={1: 100, 8: 600})
    assert found["status"] == "degraded" and "concurrency 8 are 50 %" in found["why"]
    assert [entry["status"] for entry in found["points"]] == ["ok", "degraded"]


@pytest.mark.parametrize(
    ("gpu", "first", "seen"),
    [
        (gpus(**CAPPED), "gpu_power", "148 W of 150 W, clocks at 60 %"),
        (gpus(power_share=0.7, power_w=420.0, sm_clock_share=0.5), "gpu_clocks", "50 % of the highest with 420 W"),
        (gpus(power_share=0.7, temperature_c=91.0), "gpu_heat", "4 of 4 GPUs are at 85 C or above"),
        (gpus(power_share=0.7, pcie_rx_bytes_s=14e9), "gpu_pcie", "up to 14.0 GB/s over PCIe"),
        (gpus(utilization_percent=35.0), "cpu_governor", "GPUs are busy 35 % of the time only"),
        (gpus(utilization_percent=0), "cpu_governor", "busy 0 %"),
        ([*gpus(power_share=0.7), {"index": 9, "sm_clock_share": 0.4}], "gpu_uneven", "from 0.4 (GPU 9) to 0.97"),
    ],
)  # fmt: skip
def test_each_figure_of_the_gpus_tells_where_to_look(gpu: Any, first: str, seen: str) -> None:
    found = expectation.judge(run(gpu=gpu), tok_s={1: 130})
    assert found["checklist"][0]["name"] == first and seen in found["checklist"][0]["seen"]
    # What was seen is not asked for once more.
    assert len(names(found)) == len(set(names(found)))


def test_settings_and_start_come_before_the_gpus() -> None:
    one = run(gpu=gpus(), context={"args": {"disable-cuda-graph": True}}, concurrency=8, measured_concurrency=2.0)
    one["start"] = {"id": "s", "autotune_outcome": "incomplete"}
    one["points"][0]["accept_length"] = 1.1
    found = expectation.judge(one, tok_s={8: 1300})
    assert names(found)[:5] == ["in_flight", "cuda_graph", "autotune", "accept_length", "gpu_waits"]
    assert found["checklist"][0]["seen"] == "2.0 of 8 requests were in flight on average"


def test_what_is_well_is_not_on_the_list() -> None:
    one = run(
        gpu=gpus(power_share=0.8), context={"args": {"disable-cuda-graph": False}}, accept_length=3.0,
        measured_concurrency=0.99,
    )  # fmt: skip
    one["start"] = {"id": "s", "autotune_outcome": "completed"}
    assert names(expectation.judge(one, tok_s={1: 130})) == ["gpu_p2p", "gpu_pcie", "gpu_power", "cpu_governor"]


def test_preflight_findings_that_warned_are_on_the_list() -> None:
    findings: list[Any] = [
        {"level": "ok", "check": "gpu", "message": "fine"},
        {"level": "warn", "check": "gpu", "message": "GPU 0 has 8 of 16 PCIe lanes", "remedy": "seat it anew"},
        None,
    ]
    found = expectation.judge(run(), tok_s={1: 130}, findings=findings)
    assert found["checklist"][0] == {
        "name": "preflight_gpu", "seen": "GPU 0 has 8 of 16 PCIe lanes", "remedy": "seat it anew",
    }  # fmt: skip


def test_without_gpus_nothing_is_asked_about_them() -> None:
    assert names(expectation.judge(run(), tok_s={1: 130})) == ["cpu_governor"]


def test_expectation_from_a_play_may_be_a_text() -> None:
    found = expectation.judge(run(), tok_s={"1": "1e6"})
    assert [point["expected_tok_s"] for point in found["points"]] == [1_000_000.0]


@pytest.mark.parametrize(
    "asked",
    [
        {"tok_s": {"x": 1}}, {"tok_s": {0: 1}}, {"tok_s": {True: 1}}, {"tok_s": {1.5: 1}}, {"tok_s": {1: 0}},
        {"tok_s": {1: float("nan")}}, {"tok_s": {1: "much"}}, {"roofline_share": 0}, {"roofline_share": 1.5},
        {"degraded_below_percent": 0}, {"degraded_below_percent": 101}, {"degraded_below_percent": True},
    ],
)  # fmt: skip
def test_expectations_that_are_none_are_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(expectation.ExpectationError, match="use "):
        expectation.judge(run(), **asked)


@pytest.mark.parametrize("odd", [None, 3, "x", [None, 1], [{"power_share": "x", "utilization_percent": float("nan")}]])
def test_odd_records_raise_nothing(odd: Any) -> None:
    one = run(gpu=odd, measured_concurrency=odd, accept_length=odd, roofline=odd)
    one.update(start=odd, context=odd)
    assert expectation.judge(one, tok_s={1: 130}, roofline_share=0.5)["status"] == "degraded"
    assert expectation.judge({"points": odd}, tok_s={1: 130})["status"] == "unknown"
