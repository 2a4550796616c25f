# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a new measurement means: against its baseline, limits and expectation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from comparison_records import record

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_verdict, result_document
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_verdict import Wanted
from ansible_collections.tokforge.sglang.plugins.module_utils.comparison import ComparisonError
from ansible_collections.tokforge.sglang.plugins.module_utils.expectation import ExpectationError
from ansible_collections.tokforge.sglang.plugins.module_utils.regression import RegressionError

FIVE = (99.0, 100.0, 101.0, 100.5, 99.5)


def measured(name: str, factor: float = 1.0, **more: Any) -> dict[str, Any]:
    """Five repetitions at two points."""
    found = record(name, {1: [value * factor for value in FIVE], 8: [value * factor * 6 for value in FIVE]}, **more)
    return {**found, "raw_dir": "/r"}


def judged(new: Mapping[str, Any], wanted: Wanted | None = None) -> bench_verdict.Verdict:
    document = result_document.append(result_document.empty(), measured("r1"))
    return bench_verdict.judge(document, new, wanted or Wanted())


def test_first_measurement_is_compared_with_nothing() -> None:
    found = bench_verdict.judge(result_document.empty(), measured("r1"), Wanted({"output_tok_s": 5}))
    assert (found.comparison, found.expectation, found.why) == (None, None, "nothing was measured before it")
    assert (found.failures(), found.worse_than) == ([], None)
    # Who asked for a gate has to know that there was none.
    assert found.warnings() == ["whether it became worse cannot be told: nothing was measured before it"]
    assert bench_verdict.judge(result_document.empty(), measured("r1"), Wanted()).warnings() == []


def test_invalid_measurement_is_judged_by_nothing() -> None:
    wanted = Wanted({"output_tok_s": 5}, {"tok_s": {"1": 1000}})
    found = judged(measured("r2", 0.5, valid=False), wanted)
    assert (found.comparison, found.expectation) == (None, None)
    assert found.why == "an invalid measurement is compared with nothing"
    assert (found.failures(), found.warnings()) == ([], [])


def test_measurement_is_compared_with_its_baseline_and_says_which() -> None:
    found = judged(measured("r2", 1.2))
    assert found.comparison is not None
    assert {name: found.comparison[name] for name in ("kind", "verdict", "regression", "recorded_at")} == {
        "kind": "baseline",
        "verdict": "faster",
        "regression": None,
        "recorded_at": measured("r2")["recorded_at"],
    }
    assert (found.comparison["a"]["ids"], found.comparison["b"]["ids"]) == (["r1"], ["r2"])
    assert found.comparison["notes"][0] == "the baseline is the first valid measurement of this configuration"
    assert len(found.comparison["notes"]) > 1
    assert found.expectation is None


@pytest.mark.parametrize(("factor", "fails"), [(0.97, False), (0.8, True)])
def test_more_worse_than_allowed_fails(factor: float, fails: bool) -> None:
    found = judged(measured("r2", factor), Wanted({"output_tok_s": 5}))
    failures = found.failures()
    assert (len(failures), found.warnings()) == (2 if fails else 0, [])
    if fails:
        assert failures[0].startswith("output_tok_s at concurrency 1 is worse by 20.0 %, allowed are 5 %")


def test_failure_of_one_start_against_one_says_that_starts_differ() -> None:
    found = judged(measured("r2", 0.5), Wanted({"output_tok_s": 5}))
    assert all("each side is one start of the server" in failure for failure in found.failures())
    assert found.worse_than is not None and found.worse_than["id"] == "r1"


def test_only_the_point_that_counts_decides() -> None:
    slow = measured("r2")
    slow["points"][0] = measured("x", 0.5)["points"][0]
    at_8 = judged(slow, Wanted({"output_tok_s": 5}, concurrency=8))
    assert at_8.failures() == [] and at_8.comparison is not None and at_8.comparison["verdict"] == "no_measurable_gain"
    at_1 = judged(slow, Wanted({"output_tok_s": 5}, concurrency=1))
    assert len(at_1.failures()) == 1 and at_1.comparison is not None and at_1.comparison["verdict"] == "slower"


def test_what_cannot_be_told_is_a_warning_and_no_failure() -> None:
    few = record("r2", {1: [10.0, 10.1, 9.9]})
    found = judged(few, Wanted({"output_tok_s": 5}))
    assert found.failures() == []
    assert len(found.warnings()) == 1
    assert found.warnings()[0].startswith("whether it became worse cannot be told: output_tok_s: ")
    assert judged(few).warnings() == []


def test_far_below_what_is_expected_is_degraded_with_what_to_look_at() -> None:
    wanted = Wanted(expected={"tok_s": {"8": 1000}})
    slow = measured("r2", context={"args": {"disable-cuda-graph": True}})
    found = judged(slow, wanted)
    assert found.expectation is not None and found.expectation["status"] == "degraded"
    (said,) = found.failures()
    assert said.startswith("degraded: 600.0 output tok/s at concurrency 8 are 60 % of the expected 1000.0. Look at: ")
    assert "cuda_graph: CUDA graphs are off; without them each step launches its kernels one by one" in said
    # A place of which the record says nothing has no empty words before what to do.
    assert ": ;" not in said and "cpu_governor: cpufreq/scaling_governor" in said
    assert judged(slow, Wanted(expected={"tok_s": {"8": 800}})).failures() == []


def test_degraded_without_a_hint_and_regression_are_both_told() -> None:
    found = judged(measured("r2", 0.5), Wanted({"output_tok_s": 5}, {"tok_s": {8: 600}}))
    assert [said.partition(" ")[0] for said in found.failures()] == ["output_tok_s", "output_tok_s", "degraded:"]
    bare = bench_verdict.Verdict(None, {"status": "degraded", "why": "slow", "checklist": []}, "")
    assert bare.failures() == ["degraded: slow"]


def test_wishes_that_make_no_sense_are_refused_before_anything_is_measured() -> None:
    bench_verdict.check(Wanted({"output_tok_s": 5}, {"roofline_share": 0.3}))
    bench_verdict.check(Wanted())
    with pytest.raises(RegressionError, match="speed"):
        bench_verdict.check(Wanted({"speed": 5}))
    with pytest.raises(ComparisonError, match="concurrency -1"):
        bench_verdict.check(Wanted(concurrency=-1))
    with pytest.raises(ExpectationError, match="roofline_share"):
        bench_verdict.check(Wanted(expected={"roofline_share": 30}))
    with pytest.raises(ExpectationError, match="no concurrency"):
        bench_verdict.check(Wanted(expected={"tok_s": {"eight": 5}}))
