# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A measurement without checks of its own has those that were made for the same configuration."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from result_records import made

from ansible_collections.tokforge.sglang.plugins.module_utils.bench_preflight import carried
from ansible_collections.tokforge.sglang.plugins.module_utils.result_document import append, empty

WELL = {"verdict": "ok", "counts": "0 failed, 0 to look at, 9 well", "findings": []}
ODD = {
    "verdict": "warn",
    "counts": "0 failed, 1 to look at, 8 well",
    "findings": [{"level": "warn", "check": "p2p", "message": "P2P is off", "remedy": ""}],
}


def checked(name: str, preflight: Any, configuration: str | None = "c", **more: Any) -> dict[str, Any]:
    return made(name, configuration=configuration, preflight=preflight, **more)


def grown(*records: dict[str, Any]) -> dict[str, Any]:
    document = empty()
    for record in records:
        document = append(document, record)
    return document


def test_newest_of_the_same_configuration_is_taken_with_the_record_it_is_from() -> None:
    document = grown(checked("1", WELL), checked("2", ODD), checked("3", None), checked("4", WELL, "other"))
    before = copy.deepcopy(document)
    assert carried(document, "c") == {**ODD, "from": "2"}
    assert carried(document, "other") == {**WELL, "from": "4"}
    assert carried(document, "unheard of") is None
    assert document == before


def test_invalid_measurement_was_checked_all_the_same() -> None:
    assert carried(grown(checked("1", WELL), checked("2", ODD, valid=False)), "c") == {**ODD, "from": "2"}


def test_one_that_was_carried_over_names_where_it_is_from() -> None:
    again = carried(grown(checked("1", WELL), checked("2", {**WELL, "from": "1"})), "c")
    assert again == {**WELL, "from": "1"}
    assert carried(grown(checked("2", {**WELL, "from": 7})), "c") == {**WELL, "from": "2"}


def test_what_fell_out_of_the_history_is_found_as_latest_and_in_the_results() -> None:
    gone = {"history": [], "latest": checked("5", WELL), "results": [{"latest": checked("6", ODD)}]}
    assert carried(gone, "c") == {**WELL, "from": "5"}
    results = [{"baseline": checked("1", WELL), "latest": checked("2", None)}, {"latest": checked("3", ODD, "other")}]
    assert carried({"history": [checked("9", None)], "latest": None, "results": results}, "c") == {**WELL, "from": "1"}
    assert carried({"results": results}, "other") == {**ODD, "from": "3"}


@pytest.mark.parametrize(
    "shape",
    [
        {},
        [],
        "ok",
        True,
        {"verdict": "ok"},
        {"counts": "9 well"},
        {**WELL, "verdict": "fine"},
        {**WELL, "verdict": ["ok"]},
        {**WELL, "verdict": True},
        {**WELL, "counts": {"ok": 9}},
        {**WELL, "findings": None},
        {**WELL, "findings": {"level": "warn"}},
        {**WELL, "findings": ["P2P is off"]},
        {**WELL, "findings": [{"check": "p2p"}]},
        {**WELL, "findings": [{"level": 3}]},
    ],
    ids=str,
)
def test_shape_that_preflight_never_gives_is_passed_over(shape: Any) -> None:
    assert carried(grown(checked("1", WELL), checked("2", shape)), "c") == {**WELL, "from": "1"}
    assert carried(grown(checked("2", shape)), "c") is None


def test_preflight_without_findings_is_one() -> None:
    short = {"verdict": "fail", "counts": "1 failed, 0 to look at, 0 well"}
    assert carried(grown(checked("1", short)), "c") == {**short, "from": "1"}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"history": None, "latest": [], "results": {}},
        {"history": [5, None], "latest": "x", "results": [None, {"latest": 5}, {"baseline": []}]},
        {"history": [{"configuration": "c", "preflight": WELL}]},
        {"history": [{"id": "", "configuration": "c", "preflight": WELL}]},
        {"history": [{"id": "1", "configuration": None, "preflight": WELL}]},
    ],
    ids=str,
)
def test_damaged_document_has_none(document: Any) -> None:
    assert carried(document, "c") is None
