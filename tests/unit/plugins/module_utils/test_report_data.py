# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a report takes from fact files: groups, labels, spreads, winners, verdicts, and what else a file can hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from report_documents import document

from ansible_collections.tokforge.sglang.plugins.module_utils import report_data, report_types


def host(given: Mapping[str, Any] | str | None) -> report_types.Host:
    return report_data.make({"box": given}).hosts[0]


def record(**changes: Any) -> dict[str, Any]:
    """A valid record of one point."""
    point = {"concurrency": 1, "output_tok_s": 10.0, "ttft_median_ms": 5.0, "tpot_median_ms": 20.0, "valid": True}
    made: dict[str, Any] = {
        "id": "r1",
        "recorded_at": "2026-03-14T09:15:09Z",
        "fingerprint": "f",
        "valid": True,
        "reasons": [],
        "context": {"backend": "auto", "sglang_version": "0.5.23", "model": {"served_name": "m"}},
        "parameters": {"input_len": 64, "output_len": 32},
        "points": [point],
    }
    return {**made, **changes}


def facts(*records: Any, **more: Any) -> dict[str, Any]:
    return {"schema_version": 2, "history": list(records), **more}


# --- documents -------------------------------------------------------------------------------------------------------


def test_each_configuration_is_there_once_with_its_newest_run() -> None:
    found = {one.label: one for one in host(document("gpu-box")).configurations}
    assert list(found) == [
        "0.5.23 triton",
        "0.5.23 flashinfer_cutlass (autotune gate=open)",
        "0.5.23 flashinfer_b12x",
        "0.5.23 flashinfer_cutlass (autotune gate=closed)",
        "0.5.12.post1 flashinfer_cutlass",
    ]
    opened = found["0.5.23 flashinfer_cutlass (autotune gate=open)"]
    assert (opened.runs, opened.latest.recorded_at[:10], opened.declared) == (2, "2026-03-14", True)
    assert opened.baseline is not None and opened.baseline.recorded_at[:10] == "2026-03-11"
    assert opened.comparison is not None and opened.comparison.verdict == "no_measurable_gain"
    assert [start.cold for start in opened.starts] == [True, False]
    garbage = found["0.5.12.post1 flashinfer_cutlass"]
    assert garbage.shown is None and garbage.latest.best is None


def test_garbage_is_never_the_fastest_however_fast_it_was() -> None:
    box = host(document("gpu-box"))
    best = {one.point.concurrency: one for one in report_data.best_at(box.configurations)}
    invalid = next(one for one in box.configurations if one.shown is None)
    assert (invalid.latest.points[0].output_tok_s.median or 0) > (best[1].point.output_tok_s.median or 0)
    assert sorted(best) == [1, 8, 32, 64, 256]
    assert all(one.configuration is not invalid for one in best.values())


def test_winner_depends_on_the_load_and_its_rivals_are_named() -> None:
    box = host(document("gpu-box"))
    best = {one.point.concurrency: one for one in report_data.best_at(box.configurations)}
    assert best[1].configuration.latest.backend == "flashinfer_b12x"
    assert "0.5.23 flashinfer_cutlass (autotune gate=open)" in best[1].rivals
    assert "0.5.23 flashinfer_b12x" not in best[32].rivals
    assert best[32].configuration.latest.backend == "flashinfer_cutlass"


def test_power_is_summed_and_its_share_averaged_over_the_gpus() -> None:
    gpus = [{"power_w": 100, "power_share": 0.2}, {"power_w": 300.0, "power_share": 0.6}, {"power_w": None}]
    points = [{"concurrency": 8, "output_tok_s": 1.0, "gpu": gpus, "roofline": {"share": 0.15}, "valid": True}]
    point = report_data.run_of(record(points=points)).points[0]
    assert (point.power_w, point.roofline_share) == (400.0, 0.15)
    assert point.power_share == report_types.Figure(0.4, 0.2, 0.6)


def test_speed_of_a_user_follows_from_the_time_per_token() -> None:
    assert report_data.run_of(record()).points[0].user_tok_s == 50.0
    assert report_types.Point(1, tpot_ms=report_types.Figure(0.0)).user_tok_s is None
    # Damage: its reciprocal is infinite, which no axis of a plot can hold.
    assert report_types.Point(1, tpot_ms=report_types.Figure(1e-320)).user_tok_s is None


def test_spread_comes_from_the_record_or_from_the_repetitions_and_one_has_none() -> None:
    for more, expected in (
        ({"spread": {"output_tok_s": {"least": 9, "most": 11}}}, (9.0, 11.0)),
        ({"values": {"output_tok_s": [8.0, 10.0, 12.0]}}, (8.0, 12.0)),
        ({"values": {"output_tok_s": [10.0]}}, (None, None)),
        ({"values": {"output_tok_s": "x"}, "spread": [1]}, (None, None)),
    ):
        point = {"concurrency": 1, "output_tok_s": 10.0, "valid": True, **more}
        figure = report_data.run_of(record(points=[point])).points[0].output_tok_s
        assert (figure.median, figure.least, figure.most) == (10.0, *expected), more


def test_first_schema_is_read_as_it_is() -> None:
    one = host(document("schema-1")).configurations[0]
    assert (one.latest.hardware, one.latest.gpu_count, one.latest.start) == ("unknown", 0, None)
    assert [point.concurrency for point in one.latest.good_points] == [1, 8]
    assert one.latest.points[0].output_tok_s.least is None


def test_verdict_of_an_older_run_is_not_that_of_the_newest() -> None:
    kept = {"kind": "baseline", "recorded_at": "2026", "b": {"ids": ["r1"], "fingerprint": "f"}, "verdict": "slower"}
    first = host(facts(record(), comparisons=[kept])).configurations[0]
    newer = record(id="r2", recorded_at="2026-03-15T09:15:09Z")
    second = host(facts(record(), newer, comparisons=[kept])).configurations[0]
    assert first.comparison is not None and first.comparison.verdict == "slower"
    assert (second.latest.id, second.comparison) == ("r2", None)


def test_newest_valid_run_is_shown_when_the_newest_is_invalid() -> None:
    newer = record(id="r2", recorded_at="2026-03-15T09:15:09Z", valid=False, reasons=["it hung"])
    one = host(facts(record(), newer)).configurations[0]
    assert one.latest.id == "r2" and one.shown is not None and one.shown.id == "r1"


def test_results_of_different_requests_or_engines_are_kept_apart() -> None:
    other = record(id="r2", parameters={"input_len": 128, "output_len": 32})
    tool = record(id="r3", engine={"name": "aiperf"})
    report = report_data.make({"a": facts(record(), other, tool), "b": facts(record())})
    assert len(report.workloads) == 3
    assert [one.host for one in report.of(report.workloads[0])] == ["a", "b"]


def test_labels_differ_even_when_nothing_that_is_known_does() -> None:
    records = [record(id=f"r{n}", fingerprint="abcdefff" + str(n)) for n in range(3)]
    labels = [one.label for one in host(facts(*records)).configurations]
    assert len(set(labels)) == 3 and labels[0] == "0.5.23 auto"


def test_newest_time_is_that_of_a_record_and_not_of_something_else() -> None:
    bad = record(id="r2", recorded_at="now", fingerprint="g")
    assert report_data.make({"a": facts(record(), bad)}).recorded_at == "2026-03-14T09:15:09Z"
    assert report_data.run_of(record()).recorded_s == 1773479709.0
    assert report_data.run_of(record(recorded_at="2026-13-14T09:15:09Z")).recorded_s is None


# --- hosts without results -------------------------------------------------------------------------------------------


def test_host_without_results_is_told_from_one_that_cannot_be_read() -> None:
    report = report_data.make({"a": None, "b": facts(), "c": "it could not be reached", "d": ""})
    assert [one.state for one in report.hosts] == ["empty", "empty", "unreadable", "unreadable"]
    assert report.hosts[2].why == "it could not be reached" and report.hosts[3].why
    assert report.recorded_at == "" and report.workloads == ()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not JSON"),
        (b'{"schema_version": 2,', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100000, "not JSON"),
        (b"[]", "no object"),
        (b"{}", "no schema_version"),
        (b'{"schema_version": true}', "no schema_version"),
        (b'{"schema_version": 3}', "schema 3"),
        (b'{"schema_version": 4, "compatible_with": 3}', "schema 4"),
    ],
)
def test_damaged_file_is_told_with_what_is_wrong(data: bytes, why: str) -> None:
    with pytest.raises(report_types.ReportError, match=why) as raised:
        report_data.document_of(data, "box:/f")
    assert "box:/f" in str(raised.value) and ";" in str(raised.value)


def test_newer_schema_that_says_it_can_be_read_is_read() -> None:
    assert report_data.document_of(b'{"schema_version": 3, "compatible_with": 2}', "f")["schema_version"] == 3


# --- hostile content -------------------------------------------------------------------------------------------------

STRANGE = [None, True, 7, -1, float("nan"), float("inf"), 10**400, "", "x", "\ud800", [], [1], [None], {}, {"a": 1}]


@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_no_value_in_any_place_raises(value: Any) -> None:
    more = document("gpu-box")
    whole = facts(
        record(), comparisons=more["comparisons"][:1], sweeps=more["sweeps"], explanations=more["explanations"]
    )
    whole["results"] = [{"label": "l", "latest": record(), "baseline": record(), "declared": True}]
    for replaced in _replaced(whole, value, depth=4):
        report_data.make({"box": replaced})
    for name in record():
        report_data.make({"box": facts(record(**{name: value}))})
    point = record()["points"][0]
    for name in (*point, "values", "spread", "gpu", "roofline", "reasons", "num_prompts"):
        report_data.make({"box": facts(record(points=[{**point, name: value}]))})
    for name in ("id", "durations", "ranks", "milestones", "ready_s", "cold"):
        report_data.make({"box": facts(record(start={"id": "s", name: value}))})


def _replaced(content: Any, value: Any, depth: int) -> Any:
    """Copies of a document in each of which one value is another one."""
    if depth and isinstance(content, dict):
        for name, inner in content.items():
            yield {**content, name: value}
            for changed in _replaced(inner, value, depth - 1):
                yield {**content, name: changed}
    elif depth and isinstance(content, list) and content:
        for changed in (value, *_replaced(content[0], value, depth - 1)):
            yield [changed, *content[1:]]


def test_figures_that_are_none_are_not_believed() -> None:
    for value in (float("nan"), float("inf"), True, "10", 10**400, -3.0, None, [1]):
        point = {"concurrency": 1, "output_tok_s": value, "valid": True}
        run = report_data.run_of(record(points=[point]))
        assert run.points[0].output_tok_s.median is None and run.good_points == (), value


def test_texts_can_be_printed_on_one_line() -> None:
    name = "a\nb\x00c\ud800d\u202ee" + "x" * 1000
    run = report_data.run_of(record(context={"model": {"served_name": name}}))
    assert run.workload.model.startswith("a b c d ex") and len(run.workload.model) == 400
    run.workload.model.encode()
