# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded results as a table."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.tokforge.sglang.plugins.filter.results import FilterModule


def results(*arguments: Any, **options: Any) -> list[str]:
    lines: list[str] = FilterModule().filters()["results"](*arguments, **options)
    return lines


def run(number: int, valid: bool = True) -> dict[str, Any]:
    point = {"concurrency": 8, "output_tok_s": 100.04 * number, "ttft_median_ms": 23.4, "tpot_median_ms": None}
    return {
        "recorded_at": f"2026-01-0{number}T00:00:00Z",
        "valid": valid,
        "reasons": [] if valid else ["concurrency 8: 31 of 32 requests completed"],
        "engine": {"name": "aiperf" if number == 2 else "sglang.bench_serving", "version": "1"},
        "context": {"sglang_version": "0.5.23", "backend": "auto"},
        "points": [{**point, "completed": 32 if valid else 31, "num_prompts": 32, "valid": valid}],
    }


FACTS = {"schema_version": 1, "history": [run(1), run(2, valid=False), run(3)]}


def test_newest_run_comes_first_and_columns_line_up() -> None:
    assert results(FACTS) == [
        "recorded              SGLang  backend  engine"
        "         concurrency  output tok/s  TTFT ms  TPOT ms  completed  valid",
        "2026-01-03T00:00:00Z  0.5.23  auto     bench_serving"
        "            8         300.1     23.4        -      32/32    yes",
        "2026-01-02T00:00:00Z  0.5.23  auto     aiperf"
        "                   8         200.1     23.4        -      31/32     no",
        "  concurrency 8: 31 of 32 requests completed",
        "2026-01-01T00:00:00Z  0.5.23  auto     bench_serving"
        "            8         100.0     23.4        -      32/32    yes",
    ]


def test_invalid_runs_can_be_left_out() -> None:
    assert [line[:10] for line in results(FACTS, valid_only=True)[1:]] == ["2026-01-03", "2026-01-01"]


def test_number_of_runs_is_bounded() -> None:
    assert [line[:10] for line in results(FACTS, runs=1)[1:]] == ["2026-01-03"]


@pytest.mark.parametrize("facts", [{}, {"history": None}, {"history": []}])
def test_no_results_give_only_the_names_of_the_columns(facts: dict[str, Any]) -> None:
    assert len(results(facts)) == 1


HUGE = 10**400


@pytest.mark.parametrize("odd", [None, 1, "text", [], ["text"], [[]], {}, {"a": 1}, True, HUGE, float("nan")])
def test_whatever_the_fact_file_took_makes_a_table(odd: Any) -> None:
    for name in run(1):
        lines = results({"history": [{**run(1), name: odd}, run(3)]})
        assert lines[1].startswith("2026-01-03") and "inf" not in str(lines) and "nan" not in str(lines)
    for name in run(1)["points"][0]:
        one = run(1)
        one["points"] = [odd, {**one["points"][0], name: odd}]
        assert len(results({"history": [one]})) in (2, 3)
    assert results({"history": odd})[0].startswith("recorded")
    assert results({"history": [odd, run(3)]})[-1].startswith("2026-01-03")


def test_what_is_no_figure_is_a_dash() -> None:
    odd = {
        **run(1), "context": ["x"], "engine": "aiperf", "recorded_at": 5, "reasons": "text",
        "points": ["text", {"concurrency": [8], "output_tok_s": HUGE, "ttft_median_ms": True, "completed": "32"}],
    }  # fmt: skip
    assert [line.split() for line in results({"history": [odd]})[1:]] == [["-"] * 8 + ["-/-", "no"]]
    two_lines = {**run(2, valid=False), "reasons": ["one\ntwo", 3, None, ""]}
    assert results({"history": [two_lines]})[2:] == ["  one two"]


def test_text_of_a_damaged_fact_file_is_an_error_that_shows_it() -> None:
    with pytest.raises(AnsibleFilterError, match="error loading facts"):
        results("error loading facts as JSON")
