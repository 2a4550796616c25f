# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After a play that died: what served before it, and what it noted that is lost."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    experiment_resume,
    experiment_run,
    experiment_settings,
    experiment_state,
)

NOTHING_LOST: Any = lambda _one: True  # noqa: E731


def measured() -> dict[str, Any]:
    """An A/B run with one trial of each side, both done, with releases 4 and 5; 3 served before."""
    base = experiment_settings.base({"sglang_version": "0.5.23"})
    document = experiment_run.planned("ab", {"ab": "page-size", "ab_values": [16]}, base, {"starts": 1}, 3, "t")
    for number, (name, release) in enumerate((("A", 4), ("B", 5)), 1):
        document = experiment_state.staged(document, name, release)
        document, _why = experiment_state.begun(document, number, "t")
        points = [{"concurrency": 8, "output_tok_s": 9.0}]
        document = experiment_state.ended(document, number, "t", {"id": f"r{number}", "valid": True, "points": points})
    return document


@pytest.mark.parametrize(
    ("change", "current", "proven", "expected"),
    [
        ({}, 5, 3, 3),
        ({}, 5, None, 3),
        ({"abandoned": True}, 4, 3, 3),
        # Ended, but killed before the end was made to serve.
        ({"finished": True, "served": False}, 5, 3, 3),
        ({"finished": True, "served": True}, 5, 3, 5),
        # A file of before it was noted.
        ({"finished": True}, 5, 3, 5),
        # Deployed since: a rollout notes that it serves, a trial does not.
        ({}, 5, 5, 5),
        ({}, 8, 3, 8),
        ({}, 3, 3, 3),
        ({"original_release": None}, 5, None, 5),
        ({}, None, 3, None),
    ],
)
def test_candidate_that_a_dead_play_left_is_not_what_served_before(
    change: dict[str, Any], current: int | None, proven: int | None, expected: int | None
) -> None:
    assert experiment_resume.served_before([{**measured(), **change}], current, proven) == expected


def test_nothing_lost_changes_nothing() -> None:
    document = measured()
    assert experiment_resume.reconciled(document, 3, NOTHING_LOST, NOTHING_LOST) == (document, [])
    # A candidate is not what somebody deployed.
    assert experiment_resume.reconciled(document, 5, NOTHING_LOST, NOTHING_LOST) == (document, [])


def test_trial_whose_record_is_lost_is_made_again() -> None:
    found, told = experiment_resume.reconciled(measured(), 3, lambda one: one != "r2", NOTHING_LOST)
    assert [(one["number"], one["state"], one["record_id"]) for one in found["trials"]] == [
        (1, "done", "r1"),
        (2, "waiting", None),
    ]
    assert told == ["1 records are not in the fact file any more, so their trials are made again"]


def test_release_that_is_gone_is_written_again() -> None:
    found, told = experiment_resume.reconciled(measured(), None, NOTHING_LOST, lambda number: number != 5)
    assert [(one["name"], one["state"], one["release"]) for one in found["candidates"]] == [
        ("A", "staged", 4),
        ("B", "waiting", None),
    ]
    assert told == ["the releases of B are gone and are written again"]


def test_what_was_deployed_since_serves_in_the_end() -> None:
    found, told = experiment_resume.reconciled(measured(), 9, NOTHING_LOST, NOTHING_LOST)
    assert (found["original_release"], len(told)) == (9, 1)
    finished = {**measured(), "finished": True, "served": False}
    # Then there is nothing left to make up for either.
    assert experiment_resume.reconciled(finished, 9, NOTHING_LOST, NOTHING_LOST) == ({**finished, "served": True}, [])
    assert experiment_resume.reconciled(finished, 5, NOTHING_LOST, NOTHING_LOST) == (finished, [])


def test_explanation_needs_no_records_in_the_end() -> None:
    base = experiment_settings.base({"sglang_version": "0.5.23"})
    document = experiment_run.planned("explain", {"a": {}, "b": {"backend": "triton"}}, base, {}, 3, "t")
    assert experiment_resume.reconciled(document, 3, lambda _one: False, NOTHING_LOST) == (document, [])
