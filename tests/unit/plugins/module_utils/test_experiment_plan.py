# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of trials."""

from __future__ import annotations

from typing import Any

import pytest
from result_records import made

from ansible_collections.tokforge.sglang.plugins.module_utils import experiment_plan, result_document
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import ExperimentError


def test_sides_are_interleaved_so_that_drift_cancels() -> None:
    slots = experiment_plan.pairs("A", "B", 8)
    assert "".join(slot.candidate for slot in slots) == "ABBABAABBAABABBA"
    assert [slot.round for slot in slots[:5]] == [1, 1, 2, 2, 3]
    for drift in (lambda at: at, lambda at: at * at):
        sums = {side: sum(drift(at) for at, slot in enumerate(slots) if slot.candidate == side) for side in "AB"}
        assert sums["A"] == sums["B"]


@pytest.mark.parametrize("starts", [1, 5, 50])
def test_both_sides_have_as_many_starts_and_one_of_each_a_round(starts: int) -> None:
    slots = experiment_plan.pairs("A", "B", starts, first_round=7, stage=2)
    assert sorted((slot.round, slot.candidate) for slot in slots) == [
        (number, side) for number in range(7, 7 + starts) for side in "AB"
    ]
    assert {slot.stage for slot in slots} == {2}


def test_rounds_alternate_their_direction() -> None:
    slots = experiment_plan.rounds(["a", "b", "c"], 3, first_round=4, stage=2)
    assert "".join(slot.candidate for slot in slots) == "abccbaabc"
    assert [slot.round for slot in slots] == [4, 4, 4, 5, 5, 5, 6, 6, 6]


def test_number_of_trials_is_bounded() -> None:
    with pytest.raises(ExperimentError, match="200 candidates in 11 rounds are 2200 trials; at most 2000"):
        experiment_plan.rounds([str(number) for number in range(200)], 11)


def test_records_of_the_longest_ab_run_are_all_kept() -> None:
    document = result_document.empty()
    slots = experiment_plan.pairs("A", "B", experiment_plan.whole("20", "starts", 5))
    for number, slot in enumerate(slots):
        document = result_document.append(document, made(str(number), fingerprint=slot.candidate))
    assert [one["id"] for one in document["history"]] == [str(number) for number in range(40)]


@pytest.mark.parametrize(("given", "found"), [(None, 5), (1, 1), ("7", 7), (20, 20)])
def test_whole_numbers(given: Any, found: int) -> None:
    assert experiment_plan.whole(given, "starts", 5) == found


@pytest.mark.parametrize("given", [0, -1, 21, True, 2.0, "x", "", "1e3", "\u0661", float("nan"), [1], "9" * 5000])
def test_what_is_no_whole_number(given: Any) -> None:
    with pytest.raises(ExperimentError, match=r"reading starts: .*give a whole number from 1 to 20"):
        experiment_plan.whole(given, "starts", 5)
