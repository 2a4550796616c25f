# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who wins a sweep, and who never does."""

from __future__ import annotations

from typing import Any

import pytest
from experiment_records import record

from ansible_collections.tokforge.sglang.plugins.module_utils import experiment_state, sweep_choice
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import ExperimentError
from ansible_collections.tokforge.sglang.plugins.module_utils.sweep_choice import Objective, Tried


def tried(name: str, *speeds: dict[int, float], state: str = "measured", differences: int = 1, **more: Any) -> Tried:
    """A candidate with a record for each mapping of speeds."""
    runs = [experiment_state.figures(record(f"{name}-{at}", speed, **more)) for at, speed in enumerate(speeds)]
    ids = tuple(f"{name}-{at}" for at in range(len(speeds)))
    count = 0 if name == "original" else differences
    return Tried(name, {"backend": name}, count, state, "" if state == "measured" else "broken", tuple(runs), ids)


def compared(verdict: str, ids: list[str], **more: Any) -> dict[str, Any]:
    """A comparison of b against the original."""
    return {
        "id": "c",
        "metric": "output_tok_s",
        "verdict": verdict,
        "why": f"it is {verdict}",
        "b": {"ids": ids},
        **more,
    }


# Two backends of one model: the one that is best for a single request is a quarter slower under load.
LOAD = (
    tried("original", {1: 90.0, 32: 700.0}),
    tried("b12x", {1: 95.1, 32: 709.5}),
    tried("cutlass", {1: 93.6, 32: 961.6}),
)


@pytest.mark.parametrize(
    ("concurrency", "winner", "score"), [(1, "b12x", 95.1), (32, "cutlass", 961.6), (None, "cutlass", 961.6)]
)
def test_objectives_have_different_winners_from_the_same_trials(
    concurrency: int | None, winner: str, score: float
) -> None:
    choice = sweep_choice.choose(LOAD, "original", Objective(concurrency=concurrency))
    assert (choice.winner, choice.verdict, choice.scores[winner].value) == (winner, "unconfirmed", score)
    assert choice.objective.concurrency == concurrency or choice.objective.concurrency == 32


def test_winner_does_not_depend_on_the_order() -> None:
    many = [tried(f"c{number}", {8: 100 + number % 3}, differences=1 + number % 2) for number in range(9)]
    found = set()
    for first in range(len(many)):
        turned = [tried("original", {8: 90.0}), *many[first:], *many[:first]]
        for order in (turned, turned[::-1]):
            found.add(sweep_choice.choose(order, "original", Objective()).winner)
    assert len(found) == 1


@pytest.mark.parametrize("state", ["failed", "invalid", "unsupported", "waiting"])
def test_candidate_that_failed_or_wrote_garbage_never_wins(state: str) -> None:
    fast = tried("fast", {8: 5000.0}, state=state)
    slow = tried("good", {8: 120.0})
    choice = sweep_choice.choose([tried("original", {8: 100.0}), fast, slow], "original", Objective())
    assert choice.winner == "good" and "fast" not in choice.scores
    alone = sweep_choice.choose([tried("original", {8: 100.0}), fast], "original", Objective())
    assert (alone.winner, alone.verdict) == (None, "no_measurable_gain")


def test_invalid_point_does_not_count() -> None:
    broken = tried("broken", {8: 500.0}, valid=False)
    choice = sweep_choice.choose([tried("original", {8: 100.0}), broken], "original", Objective())
    assert choice.winner is None
    assert choice.scores["broken"].why == "it has no valid figure at concurrency 8"


@pytest.mark.parametrize(("speed", "winner"), [(101.0, None), (101.01, "other"), (99.0, None), (100.0, None)])
def test_tie_keeps_the_original(speed: float, winner: str | None) -> None:
    found = sweep_choice.choose([tried("original", {8: 100.0}), tried("other", {8: speed})], "original", Objective())
    assert found.winner == winner


def test_width_of_the_tie_is_the_user_s() -> None:
    both = [tried("original", {8: 100.0}), tried("other", {8: 109.0})]
    assert sweep_choice.choose(both, "original", Objective(), 10.0).winner is None
    assert sweep_choice.choose(both, "original", Objective(), 0.0).winner == "other"


def test_simpler_candidate_wins_a_tie_unless_it_ties_with_the_original_too() -> None:
    best, near = tried("best", {8: 120.0}, differences=3), tried("near", {8: 119.5}, differences=1)
    assert sweep_choice.choose([tried("original", {8: 100.0}), best, near], "original", Objective()).winner == "near"
    assert sweep_choice.choose([tried("original", {8: 118.7}), best, near], "original", Objective()).winner == "best"


def test_median_of_the_starts_counts() -> None:
    lucky = tried("lucky", {8: 100.0}, {8: 400.0}, {8: 101.0})
    steady = tried("steady", {8: 110.0}, {8: 109.0}, {8: 111.0})
    choice = sweep_choice.choose([tried("original", {8: 100.0}), lucky, steady], "original", Objective())
    assert choice.winner == "steady"
    assert (choice.scores["lucky"].value, choice.scores["lucky"].values) == (101.0, (100.0, 400.0, 101.0))


def test_short_ladder_of_a_candidate_does_not_move_the_objective() -> None:
    choice = sweep_choice.choose(
        [tried("original", {1: 9.0, 64: 100.0}), tried("one", {1: 99.0}), tried("long", {1: 9.0, 64: 120.0, 256: 1.0})],
        "original",
        Objective(),
    )
    assert (choice.objective.concurrency, choice.winner) == (64, "long")
    assert choice.scores["one"].why == "it has no valid figure at concurrency 64"


def test_latency_limits_take_the_fastest_concurrency_that_holds_them() -> None:
    def at(name: str, points: dict[int, tuple[float, float]]) -> Tried:
        run: dict[str, Any] = {
            "points": [
                {"concurrency": number, "output_tok_s": speed, "ttft_p99_ms": latency, "valid": True, "power_w": []}
                for number, (speed, latency) in points.items()
            ]
        }
        return Tried(name, {}, 0 if name == "original" else 1, "measured", "", (run,), (name,))

    wanted = sweep_choice.objective({"slo": {"ttft_p99_ms": 500}})
    both = [
        at("original", {1: (10.0, 50.0), 8: (80.0, 500.0), 64: (400.0, 900.0)}),
        at("late", {1: (20.0, 501.0), 64: (900.0, 2000.0)}),
        at("good", {1: (9.0, 40.0), 8: (95.0, 300.0), 64: (300.0, 501.0)}),
    ]
    choice = sweep_choice.choose(both, "original", wanted)
    assert choice.winner == "good" and choice.scores["good"].concurrency == 8
    assert choice.scores["original"].value == 80.0
    assert choice.scores["late"].why == "no concurrency has ttft_p99_ms <= 500"
    assert choice.objective.data() == {"slo": {"ttft_p99_ms": 500.0}}
    # A latency that nobody measured is not one that holds.
    unknown = sweep_choice.objective({"slo": {"itl_p99_ms": 500}})
    assert sweep_choice.choose(both, "original", unknown).winner is None


def test_speed_per_watt_is_over_all_gpus_and_needs_each() -> None:
    wanted = sweep_choice.objective({"metric": "tok_s_per_w"})
    original = tried("original", {8: 1000.0}, power=[250.0, 250.0])
    frugal = tried("frugal", {8: 900.0}, power=[100.0, 200.0])
    unknown = tried("unknown", {8: 9000.0}, power=[1.0, None])
    none = tried("none", {8: 9000.0})
    choice = sweep_choice.choose([original, frugal, unknown, none], "original", wanted)
    assert (choice.winner, choice.scores["frugal"].value, choice.scores["original"].value) == ("frugal", 3.0, 2.0)
    assert choice.scores["unknown"].why == choice.scores["none"].why
    assert choice.scores["none"].why == "the power of its GPUs is not known at concurrency 8"


def test_without_an_original_that_works_the_best_one_wins() -> None:
    choice = sweep_choice.choose(
        [tried("original", {8: 500.0}, state="failed"), tried("other", {8: 5.0})], "original", Objective()
    )
    assert choice.winner == "other" and "the original has no valid figure" in choice.why


def test_nothing_measured_has_no_winner() -> None:
    for everything in ((), (tried("original", {8: 1.0}, state="invalid"),), (tried("original"),)):
        choice = sweep_choice.choose(everything, "original", Objective())
        assert (choice.winner, choice.verdict) == (None, "no_measurable_gain")


BOTH = (tried("original", {8: 100.0}), tried("other", {8: 120.0}, {8: 121.0}))


@pytest.mark.parametrize(
    ("comparison", "winner", "verdict"),
    [
        (compared("faster", ["other-0", "other-1"]), "other", "faster"),
        (compared("faster", ["other-1"]), "other", "faster"),
        (compared("no_measurable_gain", ["other-0"]), None, "no_measurable_gain"),
        (compared("slower", ["other-0"]), None, "slower"),
        (compared("not_comparable", ["other-0"]), None, "not_comparable"),
        (compared("faster", ["else-0"]), None, "not_comparable"),
        (compared("faster", []), None, "not_comparable"),
        (compared("faster", ["other-0"], metric="ttft_p99_ms"), None, "not_comparable"),
        ({}, None, "not_comparable"),
        ({"b": 3, "points": 4}, None, "not_comparable"),
        # What counts is the concurrency of the objective.
        (
            compared(
                "slower",
                ["other-0"],
                points=[
                    {"concurrency": 1, "metric": "output_tok_s", "verdict": "slower"},
                    {"concurrency": 8, "metric": "ttft_p99_ms", "verdict": "slower"},
                    {"concurrency": 8, "metric": "output_tok_s", "verdict": "faster", "why": "by a fifth"},
                ],
            ),
            "other",
            "faster",
        ),
        (
            compared(
                "faster",
                ["other-0"],
                points=[{"concurrency": 8, "metric": "output_tok_s", "verdict": "no_measurable_gain"}],
            ),
            None,
            "no_measurable_gain",
        ),
    ],
)
def test_winner_has_to_be_confirmed(comparison: dict[str, Any], winner: str | None, verdict: str) -> None:
    choice = sweep_choice.choose(BOTH, "original", Objective(), comparison=comparison)
    assert (choice.winner, choice.verdict) == (winner, verdict)
    assert winner is not None or "is not confirmed" in choice.why


def test_result_tells_every_candidate() -> None:
    everything = (*BOTH, tried("gone", state="unsupported"), tried("none", {1: 5.0}))
    choice = sweep_choice.choose(everything, "original", Objective())
    result = sweep_choice.result("sweep-1", everything, "original", choice, "2026-01-01T00:00:00Z")
    assert result["objective"] == {"metric": "output_tok_s", "concurrency": 8}
    assert [(one["name"], one["state"], one["reason"], one["score"]) for one in result["candidates"]] == [
        ("original", "measured", "", 100.0),
        ("other", "measured", "", 120.5),
        ("gone", "unsupported", "broken", None),
        ("none", "measured", "it has no valid figure at concurrency 8", None),
    ]
    assert result["candidates"][1]["output_tok_s"] == {"8": 120.5}
    assert result["candidates"][1]["record_ids"] == ["other-0", "other-1"]
    assert (result["winner"], result["verdict"], result["finished"]) == ("other", "unconfirmed", True)
    waiting = (*BOTH, tried("next", state="waiting"))
    assert sweep_choice.result("s", waiting, "original", choice, "now")["finished"] is False


def test_speeds_are_told_in_the_order_of_concurrency() -> None:
    assert list(sweep_choice.medians(tried("x", {64: 3.0, 8: 2.0, 1: 1.0}).runs)) == ["1", "8", "64"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, Objective()),
        ({}, Objective()),
        ({"concurrency": "32"}, Objective(concurrency=32)),
        ({"metric": "tok_s_per_w", "concurrency": 8}, Objective("tok_s_per_w", 8)),
        ({"slo": {"tpot_p99_ms": "30"}}, Objective(limits={"tpot_p99_ms": 30.0})),
    ],
)
def test_objectives(given: Any, found: Objective) -> None:
    assert sweep_choice.objective(given) == found


@pytest.mark.parametrize(
    "given",
    [
        3, [], "slo", {"speed": 1}, {"concurrency": 0}, {"concurrency": True}, {"concurrency": 1.5},
        {"concurrency": "x"}, {"concurrency": 10**9}, {"metric": "total_tok_s"}, {"metric": ["x"]}, {"slo": {}},
        {"slo": 3},
        {"slo": {"ttft_p98_ms": 1}}, {"slo": {"ttft_p99_ms": 0}}, {"slo": {"ttft_p99_ms": float("nan")}},
        {"slo": {"ttft_p99_ms": True}}, {"slo": {"ttft_p99_ms": 1}, "concurrency": 8}, {1: 2},
    ],
)  # fmt: skip
def test_what_is_no_objective(given: Any) -> None:
    with pytest.raises(ExperimentError, match="reading the objective: "):
        sweep_choice.objective(given)


@pytest.mark.parametrize("given", [-1, 101, True, "x", float("nan"), [], "inf"])
def test_what_is_no_tie(given: Any) -> None:
    with pytest.raises(ExperimentError, match=r"reading tie_percent: .*from 0 to 100"):
        sweep_choice.tie(given)
    assert (sweep_choice.tie(None), sweep_choice.tie("2.5"), sweep_choice.tie(0)) == (1.0, 2.5, 0.0)


def test_hostile_figures_are_none() -> None:
    points: list[Any] = [3, None, {"concurrency": True, "output_tok_s": 9.0}, {"concurrency": 8, "valid": 1}]
    points += [{"concurrency": 4, "output_tok_s": "nan", "valid": True}, {"concurrency": 2, "output_tok_s": -1.0}]
    assert sweep_choice.medians([{"points": points}, {"points": 3}, {}]) == {}
