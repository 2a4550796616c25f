# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A gate that fails what is worse for certain, and passes nothing that it cannot tell."""

from __future__ import annotations

import random
from typing import Any

import pytest
from comparison_records import record

from ansible_collections.tokforge.sglang.plugins.module_utils import regression

BASE = [100.0, 101.0, 99.0, 100.5, 99.5]


def run(name: str, factor: float, metric: str = "output_tok_s", values: list[float] | None = None) -> dict[str, Any]:
    return record(name, {8: [value * factor for value in (BASE if values is None else values)]}, metric=metric)


def judge(a: dict[str, Any], b: dict[str, Any], limits: dict[str, Any], **more: Any) -> dict[str, Any]:
    found = regression.judge([a], [b], limits, **more)
    assert found is not None
    return found


def test_worse_than_the_limit_fails_with_its_figures() -> None:
    found = judge(run("r1", 1.0), run("r2", 0.9), {"output_tok_s": 5})
    assert (found["judged"], found["passed"], found["limits"]) == (True, False, {"output_tok_s": 5.0})
    [failure] = found["failures"]
    assert "output_tok_s at concurrency 8 is worse by 10.0 %, allowed are 5 %" in failure and "p = 0.0079" in failure


@pytest.mark.parametrize("factor", [0.97, 1.0001, 1.3])
def test_what_is_within_the_limit_or_better_passes(factor: float) -> None:
    found = judge(run("r1", 1.0), run("r2", factor), {"output_tok_s": 5})
    assert (found["judged"], found["passed"], found["failures"], found["reasons"]) == (True, True, [], [])


def test_more_latency_is_worse_and_less_is_not() -> None:
    a, b = run("r1", 1.0, "ttft_p99_ms"), run("r2", 1.5, "ttft_p99_ms")
    assert judge(a, b, {"ttft_p99_ms": 20})["failures"]
    assert judge(b, a, {"ttft_p99_ms": 20})["passed"]


def test_beyond_the_limit_within_the_noise_is_not_judged_and_not_passed() -> None:
    a, b = run("r1", 1.0, values=[80.0, 120, 100, 90, 110]), run("r2", 0.93, values=[80.0, 120, 100, 90, 110])
    found = judge(a, b, {"output_tok_s": 5})
    assert (found["judged"], found["passed"], found["failures"]) == (False, False, [])
    assert "within the noise: measure more often than 5 times" in found["reasons"][0]


def test_one_point_of_many_that_is_not_certain_is_not_called_noise() -> None:
    noise = random.Random(3)  # noqa: S311 a test's figures
    ladder, worse = (
        {at: [noise.gauss(100, 1) for _each in BASE] for at in (1, 8, 32, 64, 256, 512, 1024)} for _side in "ab"
    )
    worse[64] = [value * 0.6 for value in worse[64]]
    found = judge(record("r1", ladder), record("r2", worse), {"output_tok_s": 5})
    assert (found["judged"], found["passed"], found["failures"]) == (False, False, [])
    [reason] = found["reasons"]
    assert (
        "concurrency 64 is worse by 40.0 %" in reason and "not certain with so few figures for so many points" in reason
    )


def test_too_few_repetitions_are_no_pass() -> None:
    found = judge(run("r1", 1.0), run("r2", 1.0, values=BASE[:3]), {"output_tok_s": 5})
    assert (found["judged"], found["passed"]) == (False, False) and "too few" in found["reasons"][0]


def test_one_failure_fails_whatever_else_cannot_be_told() -> None:
    found = judge(run("r1", 1.0), run("r2", 0.5), {"ttft_p99_ms": 5, "output_tok_s": 5})
    assert (found["judged"], found["passed"]) == (True, False)
    assert len(found["failures"]) == len(found["reasons"]) == 1 and "ttft_p99_ms" in found["reasons"][0]


def test_only_the_concurrency_that_counts_is_judged() -> None:
    a = record("r1", {1: BASE, 8: BASE})
    b = record("r2", {1: [value * 0.5 for value in BASE], 8: BASE[::-1]})
    assert judge(a, b, {"output_tok_s": 5}, concurrency=8)["passed"]
    assert len(judge(a, b, {"output_tok_s": 5})["failures"]) == 1


def test_point_of_the_baseline_that_was_not_measured_is_no_pass() -> None:
    a, b = record("r1", {1: BASE, 8: BASE, 64: BASE}), record("r2", {8: BASE[::-1], 512: BASE})
    found = judge(a, b, {"output_tok_s": 5})
    assert (found["judged"], found["passed"], found["failures"]) == (False, False, [])
    assert found["reasons"] == ["output_tok_s at concurrency 1, 64 is in the baseline and was not measured like there"]
    assert judge(a, b, {"output_tok_s": 5}, concurrency=8)["passed"]
    # More than the baseline has is nothing lost.
    assert judge(b, record("r3", {1: BASE, 8: BASE, 512: BASE}), {"output_tok_s": 5})["passed"]


def test_no_baseline_is_no_pass() -> None:
    found = regression.judge([], [run("r2", 1.0)], {"output_tok_s": 5})
    assert found is not None and not found["passed"] and "there is no run of a" in found["reasons"][0]


def test_no_limits_judge_nothing() -> None:
    assert regression.judge([run("r1", 1.0)], [run("r2", 1.0)], {}) is None


def test_limits_from_a_play_may_be_texts() -> None:
    assert regression.check_limits({"output_tok_s": "5", "ttft_p99_ms": 250}) == {"output_tok_s": 5, "ttft_p99_ms": 250}


NO_LIMITS = [0, -1, 1000, True, None, "x", "nan", float("inf"), 10**400, []]


# A rate cannot fall by more than all of it.
@pytest.mark.parametrize(
    "limits", [{"tok_s": 5}, {5: 5}, {"output_tok_s": 100}, *({"ttft_p99_ms": x} for x in NO_LIMITS)]
)
def test_limits_that_are_none_are_refused(limits: dict[Any, Any]) -> None:
    with pytest.raises(regression.RegressionError, match="; use "):
        regression.check_limits(limits)
