# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which runs a word means, in documents of both schemas and in odd ones."""

from __future__ import annotations

from typing import Any

import pytest
from comparison_records import record

from ansible_collections.tokforge.sglang.plugins.module_utils import record_selection


def run(name: str, minute: int, tok_s: float = 100.0, **more: Any) -> dict[str, Any]:
    return record(name, {1: [tok_s], 8: [tok_s * 5]}, recorded_at=f"2026-03-14T09:{minute:02}:00Z", **more)


OTHER_MODEL = {"model": {"path": "/models/other", "served_name": "other"}}
FIRST, SECOND, THIRD = run("r1", 1, 130.0), run("r2", 2, 110.0, fingerprint="b" * 16), run("r3", 3, 120.0)
INVALID = run("r4", 4, 999.0, valid=False)
FOREIGN = run("r5", 5, 999.0, context=OTHER_MODEL)
ELSEWHERE = run("r6", 6, 999.0, hardware="1x Other GPU")
LATEST = run("r7", 7, 100.0)
HISTORY = [FIRST, SECOND, THIRD, INVALID, FOREIGN, ELSEWHERE, LATEST]


def document(**more: Any) -> dict[str, Any]:
    return {"schema_version": 2, "latest": LATEST, "history": HISTORY, "results": [], **more}


def ids(a: str, b: str, found: dict[str, Any] | None = None, concurrency: int | None = None) -> tuple[Any, ...]:
    first, second, missing = record_selection.both(document() if found is None else found, a, b, concurrency)
    return [one["id"] for one in first], [one["id"] for one in second], missing


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("latest", ["r7"]), ("r4", ["r4"]), ("a" * 16, ["r1", "r3", "r5", "r6", "r7"]), ("b" * 16, ["r2"]),
        # The best run of another model, of other hardware, or an invalid one is not meant.
        ("best", ["r1"]), ("previous", ["r3"]), ("r99", []), ("", []), ("baseline", []),
    ],
)  # fmt: skip
def test_words_mean_runs(word: str, expected: list[str]) -> None:
    assert ids(word, "latest")[0] == expected


def test_words_are_relative_to_the_other_side_whichever_it_is() -> None:
    assert ids("r3", "previous")[1] == ["r2"]
    assert ids("previous", "best")[:2] == (["r3"], ["r1"])


def test_best_is_at_the_concurrency_that_counts() -> None:
    found = document(history=[record("x", {1: [300.0], 8: [1.0]}), FIRST, LATEST])
    assert ids("best", "latest", found)[0] == ["r1"]
    assert ids("best", "latest", found, 1)[0] == ["x"]
    assert ids("best", "latest", found, 64)[0] == []


def test_runs_that_cannot_be_compared_are_neither_best_nor_previous() -> None:
    longer = {"input_len": 8}
    odd = run("odd", 5, 900.0, parameters=longer)
    for point in odd["points"]:
        point["input_len"] = 8
    found = document(history=[FIRST, SECOND, odd, LATEST])
    assert (ids("best", "latest", found)[0], ids("previous", "latest", found)[0]) == (["r1"], ["r2"])
    assert ids("baseline", "latest", document(results=[result(odd, True), result(SECOND)]))[0] == ["r2"]


def result(baseline: Any, declared: bool = False) -> dict[str, Any]:
    return {"baseline": baseline, "declared": declared, "latest": None, "best": []}


def test_declared_baseline_comes_first_and_the_own_one_among_them() -> None:
    own, other = result(FIRST), result(SECOND)
    assert ids("baseline", "latest", document(results=[own, other]))[0] == ["r1"]
    assert ids("baseline", "latest", document(results=[own, result(SECOND, True)]))[0] == ["r2"]
    assert ids("baseline", "latest", document(results=[result(FIRST, True), result(SECOND, True)]))[0] == ["r1"]
    assert ids("baseline", "latest", document(results=[result(FOREIGN, True), other]))[0] == ["r2"]
    assert ids("baseline", "latest", document(baseline=THIRD))[0] == ["r3"]


def test_baseline_that_left_the_history_is_found_by_its_id() -> None:
    assert ids("old", "latest", document(results=[result(run("old", 0))]))[0] == ["old"]


def test_missing_side_is_named() -> None:
    assert ids("baseline", "r99")[2] == [
        "there is no run on record for a (baseline)",
        "there is no run on record for b (r99)",
    ]


@pytest.mark.parametrize(
    "odd",
    [
        {}, {"latest": 3, "history": 5, "results": "x"},
        {"latest": {}, "history": [None, 3, {}], "results": [None, {}]},
        {"latest": {"id": [], "recorded_at": 4, "context": [], "points": {}}, "history": [{"id": {}}], "baseline": []},
        {"latest": LATEST, "results": [{"baseline": {"points": [None]}, "declared": 1}]},
    ],
)  # fmt: skip
@pytest.mark.parametrize("word", ["latest", "baseline", "best", "previous", "r1", "a" * 16])
def test_odd_documents_raise_nothing(odd: dict[str, Any], word: str) -> None:
    for a, b in ((word, "latest"), ("latest", word), (word, word)):
        record_selection.both(odd, a, b)


def test_fastest_content_is_of_valid_runs_that_are_like_the_newest_and_of_the_newest_itself() -> None:
    def named(one: dict[str, Any], content: object) -> dict[str, Any]:
        return {**one, "context": {**one["context"], "content_id": content}}

    history = [named(one, f"content of {one['id']}") for one in HISTORY]
    assert record_selection.fastest_content(document(history=history, latest=history[-1])) == "content of r1"
    newest = named(run("r8", 8, 500.0), "content of r8")
    assert record_selection.fastest_content(document(history=[*history, newest], latest=newest)) == "content of r8"
    # An invalid newest run says only what is comparable; records of before had no content.
    invalid = {**newest, "valid": False}
    assert record_selection.fastest_content(document(history=[*history, invalid], latest=invalid)) == "content of r1"
    assert record_selection.fastest_content(document()) is None
    assert record_selection.fastest_content({}) is None
