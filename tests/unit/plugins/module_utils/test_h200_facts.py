# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A recorded A/B run of a GPU: what all parts that read records make of real ones."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    bench_verdict,
    comparison,
    expectation,
    report_data,
    report_junit,
    report_markdown,
    report_prometheus,
    result_document,
)

FACTS = Path(__file__).parents[3] / "fixtures" / "facts" / "h200.json"
LABELS = ("gate closed", "gate open")


@functools.cache
def history() -> tuple[dict[str, Any], ...]:
    """The ladder, and then the ten trials."""
    return tuple(json.loads(FACTS.read_text(encoding="utf-8"))["history"])


def trials(candidate: str) -> list[dict[str, Any]]:
    return [one for one in history() if (one["experiment"] or {}).get("candidate") == candidate]


def ab(**wanted: Any) -> dict[str, Any]:
    return comparison.compare(trials("A"), trials("B"), restarts=True, labels=LABELS, **wanted)


def document() -> dict[str, Any]:
    """The fact file that these runs leave."""
    grown = result_document.empty()
    for record in history():
        grown = result_document.append(grown, record)
    return result_document.add(grown, "comparisons", ab(recorded_at="2026-11-30T09:36:00Z"))


def test_ladder_is_the_latest_and_the_trials_are_kept() -> None:
    found = result_document.read(json.loads(json.dumps(document())))
    assert found["latest"]["id"] == "20261130T092241Z-960805"
    assert [one["label"] for one in found["results"]] == [
        "0.5.12.post1 flashinfer_cutlass gate closed",
        "0.5.12.post1 flashinfer_cutlass gate closed",
        "0.5.12.post1 flashinfer_cutlass gate open",
    ]
    assert len(found["history"]) == 11
    # Five starts: the highest at each point is of any of them.
    best = {one["concurrency"]: round(one["output_tok_s"]) for one in found["results"][2]["best"]}
    assert best == {1: 242, 64: 10463, 256: 18134}


def test_gate_is_no_measurable_gain_on_this_host() -> None:
    found = ab()
    assert (found["verdict"], found["unit"], found["a"]["starts"], found["b"]["starts"]) == (
        "no_measurable_gain",
        "start",
        5,
        5,
    )
    assert [
        (
            point["concurrency"],
            round(point["change_percent"], 1),
            [round(edge, 1) for edge in point["band_percent"]],
            round(point["p_value"], 2),
            point["verdict"],
        )
        for point in found["points"]
    ] == [
        (1, 3.2, [-2.8, 13.5], 0.5, "no_measurable_gain"),
        (64, 1.9, [-15.2, 33.9], 1.0, "no_measurable_gain"),
        (256, -0.3, [-26.6, 35.5], 1.0, "no_measurable_gain"),
    ]
    assert found["why"] == (
        "within the noise: output tok/s +3.2 %, band -2.8 to +13.5 %, p = 0.5 at concurrency 1, "
        "the largest change of 3 points; 5 against 5 starts"
    )
    assert [(one["what"], one["name"], one["a"], one["b"]) for one in found["differences"]] == [
        ("gate", "gate", "closed", "open"),
        ("environment", "environment", "gate-closed", "gate-open"),
        ("start", "autotune_outcome", "not_expected", "completed"),
    ]
    assert found["notes"] == []


def test_medians_alone_would_have_misled() -> None:
    at = {point["concurrency"]: point for point in ab()["points"]}
    # By its median the open gate is 8 % faster at 256; the starts of each side differ by 40 %.
    assert round(at[256]["b"]["median"] / at[256]["a"]["median"], 2) == 1.08
    assert round(at[256]["a"]["most"] / at[256]["a"]["least"], 2) == 1.44


@pytest.mark.parametrize("metric", ["ttft_median_ms", "ttft_p99_ms", "tpot_median_ms", "itl_p99_ms", "total_tok_s"])
def test_no_other_figure_tells_the_sides_apart(metric: str) -> None:
    assert ab(metric=metric)["verdict"] == "no_measurable_gain"


def test_point_that_counts_pays_nothing_for_the_others() -> None:
    found = ab(concurrency=256)
    assert [round(edge, 1) for edge in found["points"][2]["band_percent"]] == [-24.7, 30.6]
    assert found["verdict"] == "no_measurable_gain"


def test_one_start_of_three_repetitions_a_side_is_too_few() -> None:
    found = comparison.compare(trials("A")[:1], trials("B")[:1])
    assert (found["verdict"], found["unit"]) == ("not_comparable", "repetition")
    assert found["why"].startswith("3 repetitions of a and 3 of b are too few")


def test_ladder_is_judged_against_itself_and_the_roofline() -> None:
    again = {**history()[0], "id": "again"}
    wanted = bench_verdict.Wanted({"output_tok_s": 5}, {"roofline_share": 0.3})
    found = bench_verdict.judge(document(), again, wanted)
    assert found.why == "the first valid measurement of this configuration"
    assert found.comparison is not None and found.comparison["regression"]["passed"] is True
    (said,) = found.failures()
    assert said.startswith("degraded: 199.3 output tok/s at concurrency 1 are 2 % of the expected 11773.5. Look at: ")
    # Concurrency 1 was too short for a sample of its GPU; what is known is of the next worst that has some.
    assert "cuda_graph: CUDA graphs are off" in said and "cpu_governor: GPUs are busy " in said
    assert "; |" not in said and ": ;" not in said


def test_points_that_were_too_short_for_a_sample_have_none() -> None:
    gpus = {point["concurrency"]: point["gpu"] for point in history()[0]["points"]}
    assert [value for value, found in gpus.items() if found is None] == [1, 8, 32]
    assert (gpus[1024][0]["samples"], gpus[1024][0]["power_share"]) == (46, 0.2162)
    assert expectation.judge(history()[0], tok_s={1024: 12000})["status"] == "ok"


def test_reports_of_it_say_the_verdict_once() -> None:
    report = report_data.make({"h200": document()})
    assert [one.label for one in report.hosts[0].configurations] == [
        "0.5.12.post1 flashinfer_cutlass gate closed",
        "0.5.12.post1 flashinfer_cutlass gate closed [b7d3cf]",
        "0.5.12.post1 flashinfer_cutlass gate open",
    ]
    text = report_markdown.render(report)
    assert text.count("### gate open against gate closed on h200: no measurable gain") == 1
    assert "| 256 | output\\_tok\\_s | 14,706 (12,651 to 18,197) | 15,889 (13,152 to 18,134) | 5 and 5 |" in text
    assert "-0.3 % (-26.6 to +35.5)" in text
    assert 'tests="13" failures="0" errors="0"' in report_junit.render(report)
    lines = [line for line in report_prometheus.render(report).splitlines() if 'concurrency="1024"' in line]
    assert any(line.rpartition(" ")[2] == "12620.7" for line in lines)


def test_explanation_of_this_host_is_told_with_its_noise() -> None:
    given = json.loads((FACTS.parent / "h200-explanation.json").read_text(encoding="utf-8"))
    [found] = given["explanations"]
    assert [(step["name"], round(step["change_percent"]), step["verdict"]) for step in found["steps"]] == [
        ("no disable-cuda-graph", 92, "faster"),
        ("gate=open", 7, "no_measurable_gain"),
    ]
    # What CUDA graphs do by themselves, and all of it.
    assert [round(edge) for edge in found["steps"][0]["band_percent"]] == [49, 179]
    assert [round(edge) for edge in found["total"]["band_percent"]] == [76, 157]
    text = report_markdown.render(report_data.make({"gpu-box-1": {**document(), **given}}))
    assert "Explanation on gpu-box-1" in text and "| no disable-cuda-graph | " in text
