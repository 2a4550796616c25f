# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The writers of text: what a person reads in a CI comment, what a CI job takes for tests, what Prometheus is given."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest
import report_documents as documents

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    report_data,
    report_junit,
    report_markdown,
    report_prometheus,
    report_tables,
    report_types,
)

# --- tables ----------------------------------------------------------------------------------------------------------


def test_summary_names_the_fastest_valid_and_what_it_cannot_be_told_from() -> None:
    rows = {row[0].text: [cell.text for cell in row] for row in report_tables.summary(documents.everything()).rows}
    assert list(rows) == ["gpu-box", "cpu-box", "schema-1", "fresh-box", "gone-box"]
    assert rows["gpu-box"][2].startswith("0.5.23 flashinfer_cutlass") and "overlaps with 1 more" in rows["gpu-box"][2]
    assert rows["gpu-box"][4] == "256" and rows["gpu-box"][6] == "no measurable gain"
    assert rows["cpu-box"][6] == "slower; the regression gate failed"
    assert rows["gone-box"][5] == "it could not be reached"
    assert rows["schema-1"][5:] == ["valid", "no baseline"]


def test_summary_says_why_when_nothing_is_valid() -> None:
    row = report_tables.summary(documents.nothing()["only invalid"]).rows[0]
    assert [cell.text for cell in row[2:6]] == [
        "none is valid",
        report_tables.NOTHING,
        report_tables.NOTHING,
        "invalid: bad",
    ]


def test_sweep_table_keeps_what_failed_with_its_reason() -> None:
    table = report_tables.sweep(documents.everything().hosts[0].sweeps[0])
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}
    assert rows["flashinfer_cutlass (winner)"] == ["measured", "93.6", "962", "961.6", report_tables.NOTHING]
    assert rows["flashinfer_cutedsl"][0] == "failed" and rows["flashinfer_cutedsl"][-1].endswith("Got SM120.")
    assert rows["flashinfer_trtllm"][0] == "unsupported" and rows["marlin"][0] == "waiting"


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, report_tables.NOTHING), (0.0, "0"), (0.012, "0.012"), (9.96, "10.0"), (146.4, "146"), (11808.0, "11,808")],
)
def test_figures_have_as_many_digits_as_matter(value: float | None, words: str) -> None:
    assert report_tables.rate(value) == words


def test_uncompared_baseline_is_shown_without_a_verdict() -> None:
    given = documents.document("cpu-box")
    given["comparisons"] = []
    one = report_data.make({"a": given}).configurations[1]
    table = report_tables.against_kept(one)
    assert table is not None and "not compared" in table.caption and len(table.rows) == 2
    assert report_tables.against_baseline(one).text == "not compared"


# --- Markdown --------------------------------------------------------------------------------------------------------


def test_comment_holds_summary_verdicts_and_sweeps() -> None:
    text = report_markdown.render(documents.everything())
    assert text.startswith("## SGLang benchmarks\n\n5 hosts, newest record 2026-03-15T09:15:23Z.\n")
    assert "❌ slower; the regression gate failed" in text
    assert "Regression gate: output\\_tok\\_s at concurrency 1 fell by 11.2 %, allowed are 5 %" in text
    assert "❌ failed" in text and "Got SM120." in text and "| all together | +325.0 %" in text


def test_all_rows_of_a_table_have_as_many_cells_as_its_head() -> None:
    for report in (documents.everything(), documents.hostile(), *documents.nothing().values()):
        blocks = re.findall(r"(?:^\|.*\n)+", report_markdown.render(report), re.MULTILINE)
        for block in blocks:
            counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
            assert len(counts) == 1, block


def test_no_name_becomes_markup_a_link_or_a_call() -> None:
    text = report_markdown.render(documents.hostile())
    assert (
        "<script" not in text
        and not re.search(r"(?<!\\)[\]`$]", text)
        and not re.search(r"(?<!\\)://", text)
        and "@all" not in text
    )
    assert "&lt;script&gt;" in text


def test_comment_stays_below_what_a_forge_takes() -> None:
    given = documents.document("gpu-box")
    sweep = given["sweeps"][0]
    failed = {**sweep["candidates"][-1], "state": "failed", "reason": "crashed " * 45}
    many = [{**failed, "name": f"candidate {number}"} for number in range(200)]
    given["sweeps"] = [
        {**sweep, "id": f"sweep-{n}", "recorded_at": f"2026-03-0{n}", "candidates": many} for n in (1, 2, 3)
    ]
    one = report_markdown.render(report_data.make({"a": given}))
    assert "candidate 39 " in one and "candidate 40 " not in one and "160 more: see the HTML page." in one
    assert "2026-03-03" in one and "2026-03-02" not in one
    assert "2 older sweeps: see the fact file." in one
    text = report_markdown.render(report_data.make({f"box-{n}": given for n in range(20)}))
    assert 50_000 < len(text) <= report_markdown.MOST_SIGNS < 65_536
    assert text.endswith("\n\nThis is not all of it: see the HTML page.\n")


def test_only_the_newest_sweep_fails_a_job() -> None:
    given = documents.document("gpu-box")
    good = {**given["sweeps"][0], "id": "sweep-2", "candidates": []}
    given["sweeps"].append(good)
    assert not [case for case in report_junit.cases(report_data.make({"a": given})) if case.kind == "sweep"]


# --- JUnit -----------------------------------------------------------------------------------------------------------


def test_each_point_of_each_newest_run_is_a_case() -> None:
    root = ET.fromstring(report_junit.render(documents.everything()))  # noqa: S314
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == ["gpu-box", "cpu-box", "schema-1", "fresh-box", "gone-box"]
    cases = {(case.get("classname"), case.get("name")): case for suite in root for case in suite}
    assert len(cases) == int(root.get("tests", "0")) == 30
    failed = cases["cpu-box.tiny-moe, 64 tokens in, 32 out, 0.5.23 auto", "concurrency 1"].find("failure")
    assert failed is not None and failed.get("type") == "regression" and "11.2 %" in (failed.get("message") or "")
    # The gate failed at concurrency 1; nothing is wrong with the other point.
    assert cases["cpu-box.tiny-moe, 64 tokens in, 32 out, 0.5.23 auto", "concurrency 8"].find("failure") is None
    invalid = cases["gpu-box.glm-5-nvfp4, 1024 tokens in, 256 out, 0.5.12.post1 flashinfer_cutlass", "concurrency 1"]
    assert (invalid.find("failure") or {}) is not None and invalid[0].get("type") == "invalid"
    swept = {case[1]: case_of[0].get("type") for case, case_of in cases.items() if "sweep" in str(case[0])}
    assert swept == {"cutlass": "sweep", "flashinfer_cutedsl": "sweep"}
    assert suites["gone-box"][0][0].tag == "error" and suites["fresh-box"][0][0].tag == "skipped"


def test_run_that_cannot_be_compared_is_skipped_with_the_reason() -> None:
    given = documents.document("cpu-box")
    given["comparisons"][0].update(verdict="not_comparable", why="another model", regression=None)
    cases = report_junit.cases(report_data.make({"a": given}))
    skipped = [case for case in cases if case.outcome == report_junit.SKIPPED]
    assert [(case.name, case.message) for case in skipped] == [
        ("concurrency 1", "another model"),
        ("concurrency 8", "another model"),
    ]


def test_failed_gate_without_a_slower_point_fails_all_points() -> None:
    given = documents.document("cpu-box")
    for point in given["comparisons"][0]["points"]:
        point["verdict"] = "no_measurable_gain"
    cases = report_junit.cases(report_data.make({"a": given}))
    assert [case.kind for case in cases].count("regression") == 2


def test_xml_is_well_formed_whatever_the_names_are() -> None:
    for report in (documents.hostile(), *documents.nothing().values()):
        ET.fromstring(report_junit.render(report))  # noqa: S314


def test_candidates_whose_long_names_are_cut_alike_stay_two_tests() -> None:
    given = documents.document("gpu-box")
    sweep = given["sweeps"][0]
    failed = {**sweep["candidates"][-1], "state": "failed", "reason": "crashed"}
    sweep["candidates"] = [{**failed, "name": f"{'a' * 500}{end}"} for end in "xy"]
    names = [case.name for case in report_junit.cases(report_data.make({"a": given})) if case.kind == "sweep"]
    assert len(names) == len(set(names)) == 2
    assert names[1] == f"{names[0]} (2)"


def test_winner_that_does_not_serve_is_a_failure() -> None:
    given = documents.document("gpu-box")
    given["sweeps"][0].update(candidates=[], verdict="does_not_serve", why="it was chosen and does not serve: OOM")
    cases = [case for case in report_junit.cases(report_data.make({"a": given})) if case.kind == "sweep"]
    assert [(case.name, case.outcome, case.message) for case in cases] == [
        ("the winner serves", report_junit.FAILURE, "it was chosen and does not serve: OOM")
    ]


def test_run_without_points_is_a_failure_and_not_silence() -> None:
    cases = report_junit.cases(documents.nothing()["no points"])
    assert [(case.outcome, case.kind) for case in cases] == [(report_junit.FAILURE, "invalid")]


# --- Prometheus ------------------------------------------------------------------------------------------------------

_LINE = re.compile(r'tokforge_sglang_\w+\{(?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)+\} [-+0-9.e]+')


def series(text: str) -> dict[str, float]:
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


def test_every_line_is_one_that_the_collector_reads() -> None:
    for report in (documents.everything(), documents.hostile(), *documents.nothing().values()):
        text = report_prometheus.render(report)
        typed: set[str] = set()
        seen: set[str] = set()
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                assert line.endswith(" gauge") and line.split()[2] not in typed
                typed.add(line.split()[2])
            elif line and not line.startswith("# HELP "):
                assert _LINE.fullmatch(line), line
                assert line.partition("{")[0] in typed and line.rpartition(" ")[0] not in seen
                seen.add(line.rpartition(" ")[0])


def test_figures_are_in_base_units_and_only_of_valid_points() -> None:
    found = series(report_prometheus.render(documents.everything()))
    cpu = '{host="cpu-box",model="tiny-moe",backend="auto",version="0.5.23",engine="sglang.bench_serving",'
    labels = f'{cpu}configuration="0.5.23 auto",input_len="64",output_len="32"'
    point = documents.document("cpu-box")["latest"]["points"][1]
    at = f'{labels},concurrency="8"}}'
    assert found[f"tokforge_sglang_benchmark_output_tokens_per_second{at}"] == point["output_tok_s"]
    assert found[f"tokforge_sglang_benchmark_ttft_seconds{at}"] == pytest.approx(point["ttft_median_ms"] / 1000)
    assert found[f"tokforge_sglang_benchmark_recorded_timestamp_seconds{labels}}}"] == 1773566123
    assert found[f"tokforge_sglang_regression_gate_passed{labels}}}"] == 0
    assert found['tokforge_sglang_facts_readable{host="gone-box"}'] == 0
    old = [name for name in found if '"0.5.12.post1 flashinfer_cutlass"' in name and "timestamp" not in name]
    assert old and all("benchmark_valid" in name and found[name] == 0 for name in old)
    power = [value for name, value in found.items() if "power_share" in name]
    assert len(power) == 18 and all(0 < value < 1 for value in power)


def test_label_values_are_escaped() -> None:
    report = report_types.Report((report_types.Host('a"b\\c', report_types.EMPTY, "w"),))
    assert '{host="a\\"b\\\\c"}' in report_prometheus.render(report)


@pytest.mark.parametrize(
    ("verdict", "said"), [("unconfirmed", ", not confirmed"), ("does_not_serve", ", does not serve"), ("faster", "")]
)
def test_winner_with_a_doubt_is_told_with_it(verdict: str, said: str) -> None:
    given = documents.document("gpu-box")
    given["sweeps"][0]["verdict"] = verdict
    [sweep] = report_data.make({"a": given}).hosts[0].sweeps
    assert f"Winner: {sweep.winner}{said}." in report_markdown.sweep_words(sweep)
    marks = [str(row[0].text) for row in report_tables.sweep(sweep).rows if str(row[0].text).startswith(sweep.winner)]
    assert marks == [f"{sweep.winner} ({said[2:] or 'winner'})"]


# --- what was served -------------------------------------------------------------------------------------------------

MOE_30B = {
    "parameters": 29_943_332_864,
    "active_parameters": 2_747_467_776,
    "layers": 48,
    "experts": 128,
    "experts_per_token": 8,
    "quantization": "",
}
RANDOM = "random weights: the speed is real, the text is not."


def served(random: bool | None, shape: object, name: str = "moe-30b") -> report_types.Report:
    """A report of one run of a model."""
    given = documents.document("cpu-box")
    record = {**given["latest"], "model_shape": shape}
    record["context"] = {**record["context"], "model": {"served_name": name}, "random_weights": random}
    return report_data.make({"a": {"schema_version": 2, "latest": record, "history": [record]}})


@pytest.mark.parametrize(
    ("random", "shape", "words"),
    [
        (
            True,
            MOE_30B,
            "moe-30b: 29.9 billion parameters, of which a token passes 2.7 billion; 128 experts, 8 a token; " + RANDOM,
        ),
        (
            False,
            {**MOE_30B, "parameters": 1_500_000, "experts": 0, "active_parameters": None, "quantization": "fp8"},
            "moe-30b: 1.5 million parameters, of which a token passes 1.5 million; quantization fp8.",
        ),
        # Records of before.
        (True, None, "moe-30b: " + RANDOM),
        (True, {"parameters": -1, "experts": "many"}, "moe-30b: " + RANDOM),
        (None, None, ""),
    ],
)
def test_header_says_what_was_served_and_whether_its_weights_are_random(
    random: bool | None, shape: object, words: str
) -> None:
    report = served(random, shape)
    assert report.models == ((words,) if words else ())
    lines = report_markdown.render(report).split("### ")[0].splitlines()
    assert [line for line in lines[3:] if line] == ([words] if words else [])


def test_model_without_a_name_is_told_too() -> None:
    assert served(True, None, "").models == ("unknown model: " + RANDOM,)
