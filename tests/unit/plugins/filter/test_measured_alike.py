# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may be ranked together with the latest run."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.tokforge.sglang.plugins.filter.measured_alike import FilterModule


def alike(document: Any) -> list[Any]:
    found: list[Any] = FilterModule().filters()["measured_alike"](document)
    return found


def run(name: str, engine: str = "sglang.bench_serving", **changes: Any) -> dict[str, Any]:
    return {
        "id": name,
        "valid": True,
        "hardware": "NVIDIA H200 x1",
        "engine": {"name": engine, "version": "1"},
        "context": {"model": {"path": "/models/a", "served_name": "a"}},
        "parameters": {"input_len": 64, "output_len": 32, "concurrency": [1]},
        **changes,
    }


@pytest.mark.parametrize(
    "other",
    [
        run("other", "aiperf"),
        run("other", hardware="NVIDIA H200 x2"),
        run("other", valid=False),
        run("other", context={"model": {"path": "/models/b", "served_name": "a"}}),
        run("other", parameters={"input_len": 1024, "output_len": 32}),
        run("other", parameters={"input_len": 64, "output_len": 128}),
        run("other", parameters={"input_len": 64, "output_len": 32, "ignore_eos": False}),
        run("other", context={"model": {"path": "/models/a"}, "args": {"speculative-algorithm": "EAGLE"}}),
        run("other", points=[{"accept_length": 2.1}]),
        run("other", parameters=None, context="damaged"),
        "no record at all",
    ],
)
def test_what_was_measured_otherwise_is_left_out(other: Any) -> None:
    first = run("first", parameters={"input_len": 64, "output_len": 32, "concurrency": [1, 8]})
    latest = run("latest")
    found = alike({"latest": latest, "history": [first, other, latest]})
    assert [one["id"] for one in found] == ["first", "latest"]


@pytest.mark.parametrize("document", [{}, {"history": None, "latest": None}])
def test_nothing_on_record_is_like_nothing(document: dict[str, Any]) -> None:
    assert alike(document) == []


@pytest.mark.parametrize("odd", [None, 1, "text", ["text"], [[]], {"a": 1}, True, 10**400, float("nan")])
def test_whatever_the_fact_file_took_is_compared_or_left_out(odd: Any) -> None:
    latest = run("latest", points=[{"output_tok_s": 1.0, "accept_length": odd}])
    assert latest in alike({"latest": latest, "history": [odd, latest]})
    assert alike({"latest": odd, "history": [odd, {**run("a"), "points": odd}]}) == []
    for name in run("a"):
        assert isinstance(alike({"latest": run("a"), "history": [{**run("a"), name: odd}]}), list)
    assert isinstance(alike({"latest": run("a"), "history": odd}), list)


def test_run_with_points_that_are_none_is_left_out() -> None:
    for points in ("text", 5, ["text"], [{"output_tok_s": 1}, None], {}):
        assert alike({"latest": run("a"), "history": [run("b", points=points), run("a", points=[])]}) == [
            run("a", points=[])
        ]


def test_text_of_a_damaged_fact_file_is_an_error_that_shows_it() -> None:
    with pytest.raises(AnsibleFilterError, match="error loading facts"):
        alike("error loading facts as JSON")
