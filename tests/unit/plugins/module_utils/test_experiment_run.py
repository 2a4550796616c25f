# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole experiments: a server is played by a function from settings to output tok/s."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from experiment_records import record

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    experiment_run,
    experiment_settings,
    experiment_state,
    sweep_choice,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import ExperimentError

BASE = experiment_settings.base({"sglang_version": "0.5.23", "args": {"max-running-requests": 8}})
#: None: the server does not start. A text: why its record is not valid.
Server = Callable[[Mapping[str, Any]], "float | str | None"]


def planned(kind: str, request: Mapping[str, Any], **parameters: Any) -> dict[str, Any]:
    """A new experiment."""
    return experiment_run.planned(kind, request, BASE, parameters, 3, "t0")


def play(
    document: dict[str, Any],
    server: Server,
    drift_percent: float = 0.0,
    watts: Callable[[Mapping[str, Any]], float] | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Do what is to do in this stage, and the candidates that were started in their order."""
    started = []
    for trial in experiment_run.to_do(document):
        number = trial["number"]
        document, why = experiment_state.begun(document, number, "t")
        if why:
            continue
        started.append(trial["candidate"])
        # A hair of noise that is another for every trial.
        got = server(trial["settings"])
        power = [watts(trial["settings"])] if watts is not None else None
        if got is None:
            document = experiment_state.ended(document, number, "t", reason="it did not start")
        else:
            speed = (
                1e6 if isinstance(got, str) else got * (1 + (number * 7 % 5) / 10_000 + drift_percent * number / 100)
            )
            bad = [got] if isinstance(got, str) else []
            made = record(f"r{number}", {1: speed / 4, 8: speed}, trial["candidate"], not bad, bad, power)
            document = experiment_state.ended(document, number, "t", made)
    return document, started


def whole(
    document: dict[str, Any], server: Server, drift_percent: float = 0.0
) -> tuple[dict[str, Any], list[list[str]]]:
    """All stages, with what was started in each."""
    stages = []
    while experiment_run.to_do(document):
        document, started = play(document, server, drift_percent)
        stages.append(started)
        document = experiment_run.extended(document)
        assert len(stages) < 20
    return document, stages


def result(document: dict[str, Any], comparison: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What comes out."""
    ratio = experiment_run.ratio_for(document)
    found: dict[str, Any] = experiment_run.concluded(document, "t9", ratio, comparison)[0]["result"]
    return found


# --- ab --------------------------------------------------------------------------------------------------------------


def test_ab_run_starts_both_sides_in_turn_and_names_their_records() -> None:
    document = planned("ab", {"ab": "max_running_requests", "ab_values": [1, 64]}, starts=2, seed=5)
    assert {trial["seed"] for trial in experiment_run.to_do(document)} == {5}
    assert result(document)["finished"] is False
    document, stages = whole(document, lambda settings: 10.0 * settings["args"]["max-running-requests"])
    assert stages == [["A", "B", "B", "A"]]
    found = result(document, {"id": "c1"})
    assert (found["a"]["label"], found["a"]["ids"], found["a"]["starts"]) == ("max-running-requests=1", ["r1", "r4"], 2)
    assert (found["b"]["label"], found["b"]["ids"]) == ("max-running-requests=64", ["r2", "r3"])
    assert (found["comparison_id"], found["finished"]) == ("c1", True)


def test_default_ab_run_has_five_starts_a_side() -> None:
    trials = experiment_run.to_do(planned("ab", {"ab": "autotune_gate"}))
    assert "".join(trial["candidate"] for trial in trials) == "ABBABAABBA"
    assert trials[0]["settings"]["args"]["disable-flashinfer-autotune"] is True
    assert [trial["of"] for trial in trials] == [10] * 10


def test_side_that_fails_twice_is_not_started_again() -> None:
    document, stages = whole(
        planned("ab", {"ab": "page-size", "ab_values": [16]}), lambda got: None if got["args"].get("page-size") else 9.0
    )
    assert stages[0].count("B") == 2 and stages[0].count("A") == 5
    found = result(document)
    assert (found["b"]["state"], found["b"]["reason"], found["b"]["ids"]) == ("failed", "it did not start", [])


# --- sweep -----------------------------------------------------------------------------------------------------------

GRID = {"grid": {"args": {"page-size": [16, 32, 64, 128]}}}
#: One crashes, one writes garbage fast, one is slow, one is good.
SPEEDS: Mapping[Any, Any] = {None: 100.0, 16: None, 32: "the text is !!!!", 64: 50.0, 128: 140.0}


def test_sweep_tries_all_and_confirms_the_winner_against_the_original() -> None:
    document, stages = whole(planned("sweep", GRID, rounds=2), lambda got: SPEEDS[got["args"].get("page-size")])
    first = ["original", "page-size=16", "page-size=32", "page-size=64", "page-size=128"]
    assert stages[0] == first + first[::-1]
    pair = ["original", "page-size=128"]
    assert stages[1] == [pair[index] for index in (0, 1, 1, 0, 1, 0, 0, 1, 1, 0)]
    assert len(stages) == 2
    compare = experiment_run.comparable(document)
    # What made it the winner is not what confirms it.
    assert (compare["metric"], compare["concurrency"]) == ("output_tok_s", 8)
    assert compare["b"]["ids"] == ["r12", "r13", "r15", "r18", "r19"] and compare["b"]["label"] == "page-size=128"
    told = {"id": "c", "metric": "output_tok_s", "verdict": "faster", "b": {"ids": compare["b"]["ids"]}}
    found = result(document, told)
    assert (found["winner"], found["verdict"], found["comparison_id"]) == ("page-size=128", "faster", "c")
    assert {one["name"]: (one["state"], one["reason"]) for one in found["candidates"]} == {
        "original": ("measured", ""),
        "page-size=16": ("failed", "it did not start"),
        "page-size=32": ("invalid", "the text is !!!!"),
        "page-size=64": ("measured", ""),
        "page-size=128": ("measured", ""),
    }
    assert result(document, {**told, "verdict": "no_measurable_gain"})["winner"] is None
    assert result(document)["verdict"] == "unconfirmed"


def test_sweep_without_a_better_one_has_no_second_stage() -> None:
    document, stages = whole(planned("sweep", GRID), lambda got: 100.0)
    assert len(stages) == 1 and experiment_run.comparable(document) == {}
    assert (result(document)["winner"], result(document)["finished"]) == (None, True)


def test_sweep_need_not_be_confirmed() -> None:
    document, stages = whole(planned("sweep", GRID, confirm_starts=0), lambda got: SPEEDS[got["args"].get("page-size")])
    assert len(stages) == 1 and result(document)["winner"] == "page-size=128"
    # The trials that made it the winner cannot confirm it.
    assert experiment_run.comparable(document) == {}


def test_winner_that_fails_when_it_is_confirmed_makes_room_for_the_next() -> None:
    starts = {"count": 0}

    def server(settings: Mapping[str, Any]) -> float | None:
        size = settings["args"].get("page-size", 1)
        starts["count"] += size == 128
        return None if size == 128 and starts["count"] > 1 else 100.0 + size

    document, stages = whole(planned("sweep", GRID, confirm_starts=2), server)
    assert stages[1:] == [
        ["original", "page-size=128", "page-size=128", "original"],
        ["original", "page-size=64", "page-size=64", "original"],
    ]
    assert result(document)["winner"] == "page-size=64"
    assert experiment_run.comparable(document)["b"]["ids"] == ["r11", "r12"]


@pytest.mark.parametrize(
    ("confirm", "verdict", "release"), [(0, None, 5), (2, None, 3), (2, "faster", 5), (2, "slower", 3)]
)
def test_winner_serves_when_it_is_confirmed_or_need_not_be(confirm: int, verdict: str | None, release: int) -> None:
    document = planned("sweep", {"grid": {"args": {"page-size": [16]}}}, confirm_starts=confirm)
    document = experiment_state.staged(document, "page-size=16", 5)
    assert experiment_run.serves(document) == 3
    document, _stages = whole(document, lambda got: 100.0 + got["args"].get("page-size", 0))
    ids = (experiment_run.comparable(document).get("b") or {}).get("ids")
    told = {"id": "c", "metric": "output_tok_s", "verdict": verdict, "b": {"ids": ids}} if verdict else None
    document = experiment_run.concluded(document, "t", experiment_run.ratio_for(document), told)[0]
    assert experiment_run.serves(document) == release


def test_what_served_before_serves_after_other_experiments() -> None:
    document = experiment_state.staged(planned("ab", {"ab": "page-size", "ab_values": [16]}, starts=1), "B", 9)
    document, _stages = whole(document, lambda got: 10.0 + got["args"].get("page-size", 0))
    document = experiment_run.concluded(document, "t", experiment_run.ratio_for(document))[0]
    assert experiment_run.serves(document) == 3


def timed(document: dict[str, Any], number: int, began: str, ended: str | None) -> dict[str, Any]:
    """A trial at these times of 1 January."""
    document, _why = experiment_state.begun(document, number, f"2026-01-01T{began}Z")
    return (
        experiment_state.ended(document, number, f"2026-01-01T{ended}Z", record("r", {8: 1.0})) if ended else document
    )


def test_progress_tells_which_trial_and_how_long_the_others_took() -> None:
    document = timed(planned("ab", {"ab": "page-size", "ab_values": [16]}, starts=2), 1, "00:00:00", None)
    now = "2026-01-01T00:00:00Z"
    label = document["labels"]["A"]
    # Nothing has ended, so nothing tells how long it takes.
    assert experiment_run.progress(document, 1, now) == f"trial 1 of 4, A ({label})"
    document = experiment_state.ended(document, 1, "2026-01-01T00:01:00Z", record("r", {8: 1.0}))
    document = timed(document, 2, "00:02:00", None)
    assert experiment_run.progress(document, 2, now) == (
        f"trial 2 of 4, B ({document['labels']['B']}), 60 s in trials so far, about 3 min left"
    )
    document = experiment_state.ended(document, 2, "2026-01-01T00:05:00Z", reason="died")
    document = timed(document, 3, "00:05:00", None)
    # Four minutes; two trials left at the median of 60 s and 180 s.
    assert experiment_run.progress(document, 3, now).endswith("4 min in trials so far, about 4 min left")


def test_progress_of_a_sweep_names_its_candidate() -> None:
    document = planned("sweep", {"grid": {"args": {"page-size": [16]}}})
    assert experiment_run.progress(document, 2, "2026-01-01T00:00:00Z") == "trial 2 of 2, page-size=16"


@pytest.mark.parametrize(
    ("kind", "request_", "points", "refused"),
    [
        ("sweep", {**GRID, "objective": {"concurrency": 7}}, [1, 8], True),
        ("sweep", {**GRID, "objective": {"concurrency": 8}}, ["1", "8"], False),
        # The usual ladder: how far it goes is known when it is measured.
        ("sweep", {**GRID, "objective": {"concurrency": 7}}, [], False),
        ("explain", {"b": {"backend": "triton"}, "concurrency": 7}, [8], True),
        ("explain", {"b": {"backend": "triton"}, "concurrency": "8"}, [8], False),
    ],
)
def test_concurrency_that_is_not_measured_is_refused_before_anything_is(
    kind: str, request_: dict[str, Any], points: list[Any], refused: bool
) -> None:
    if not refused:
        assert planned(kind, request_, points=points)["trials"]
        return
    with pytest.raises(ExperimentError, match="concurrency 7 counts and is not measured"):
        planned(kind, request_, points=points)


def test_other_objective_is_judged_from_the_same_trials() -> None:
    document, _stages = whole(
        planned("sweep", GRID, confirm_starts=0), lambda got: SPEEDS[got["args"].get("page-size")]
    )
    document = experiment_run.concluded(document, "t", experiment_run.ratio_for(document))[0]
    assert document["finished"] is True
    assert experiment_run.taken_up(document, document["request"], 8) == document
    again = experiment_run.taken_up(document, {**GRID, "objective": {"concurrency": 1}, "tie_percent": 60}, 8)
    assert (again["finished"], again["result"], experiment_run.to_do(again)) == (False, None, [])
    assert result(again)["objective"]["concurrency"] == 1 and result(again)["winner"] is None
    with pytest.raises(ExperimentError, match="reading the objective"):
        experiment_run.taken_up(document, {**GRID, "objective": 3}, None)


def test_candidates_that_are_not_supported_are_listed_and_not_tried() -> None:
    document = experiment_state.staged(planned("sweep", GRID), "page-size=16", None, "preflight: no")
    document, stages = whole(document, lambda got: 100.0)
    assert "page-size=16" not in stages[0]
    assert result(document)["candidates"][1]["state"] == "unsupported"
    assert result(document)["candidates"][1]["reason"] == "preflight: no"


def test_interrupted_sweep_goes_on_and_keeps_its_original_release() -> None:
    document = planned("sweep", GRID)
    assert experiment_run.taken_up(document, GRID, 5)["original_release"] == 5
    document, _why = experiment_state.begun(document, 1, "t")
    document = experiment_state.ended(document, 1, "t", record("r1", {8: 1.0}))
    document, _why = experiment_state.begun(document, 2, "t")
    again = experiment_run.taken_up(document, GRID, 9)
    assert again["original_release"] == 3 and again["trials"][1]["interruptions"] == 1
    assert [trial["number"] for trial in experiment_run.to_do(again)] == [2, 3, 4, 5]


def test_interrupted_sweep_looks_again_at_what_was_not_supported_and_a_finished_one_does_not() -> None:
    document = experiment_state.staged(planned("sweep", GRID), "page-size=16", None, "the index does not answer")
    waiting = len(experiment_run.to_do(document))
    again = experiment_run.taken_up(document, GRID, 3)
    assert len(experiment_run.to_do(again)) > waiting
    assert experiment_state.outcome(again, "page-size=16") == ("waiting", "")
    document, _stages = whole(document, lambda got: 100.0)
    finished = {**document, "finished": True}
    assert experiment_run.taken_up(finished, GRID, 3)["candidates"] == document["candidates"]


@pytest.mark.parametrize(("starts", "winner", "verdict"), [(5, "page-size=16", "faster"), (2, None, "not_comparable")])
def test_speed_per_watt_is_confirmed_by_its_own_figures(starts: int, winner: str | None, verdict: str) -> None:
    request = {"grid": {"args": {"page-size": [16]}}, "objective": {"metric": "tok_s_per_w"}}
    document = planned("sweep", request, confirm_starts=starts)

    def watts(settings: Mapping[str, Any]) -> float:
        return 100.0 if settings["args"].get("page-size") else 200.0

    for _stage in range(2):
        document, _started = play(document, lambda got: 90.0 if got["args"].get("page-size") else 100.0, watts=watts)
        document = experiment_run.extended(document)
    # By output tok/s it is slower.
    found = result(document, {"id": "c", "metric": "output_tok_s", "verdict": "slower", "b": {"ids": ["r4"]}})
    assert (found["winner"], found["verdict"], found["finished"]) == (winner, verdict, True)


def within_limits(original: Mapping[int, tuple[float, float]], other: Mapping[int, tuple[float, float]]) -> Any:
    """A sweep for what holds a TTFT of 500 ms; sides are (tok/s, ms) by concurrency."""
    request = {"grid": {"args": {"page-size": [16]}}, "objective": {"slo": {"ttft_p99_ms": 500}}}
    document = planned("sweep", request, rounds=1)
    while experiment_run.to_do(document):
        for trial in experiment_run.to_do(document):
            ladder = other if trial["settings"]["args"].get("page-size") else original
            hair = 1 + trial["number"] * 7 % 5 / 10_000
            made = record(f"r{trial['number']}", {at: rate * hair for at, (rate, _ms) in ladder.items()})
            for point in made["points"]:
                point["ttft_p99_ms"] = ladder[point["concurrency"]][1]
            document = experiment_state.ended(document, trial["number"], "t", made)
        document = experiment_run.extended(document)
    # The records are compared by nothing else: at 32 the original is faster, and too slow to answer.
    assert experiment_run.comparable(document) == {}
    return result(document)


def test_winner_within_limits_is_confirmed_by_what_each_side_reaches_within_them() -> None:
    found = within_limits({8: (100.0, 100.0), 32: (300.0, 900.0)}, {8: (98.0, 90.0), 32: (290.0, 400.0)})
    assert (found["winner"], found["verdict"], found["finished"]) == ("page-size=16", "faster", True)
    assert "limits in 5 of 5 starts with 290.058 tok/s, the original in 5 of 5 starts with 100.02 tok/s" in found["why"]


FOUR_HUNDRED_AND_SIX_HUNDRED = {
    holds: {"concurrency": 8, "valid": True, "output_tok_s": 100.0, "ttft_p99_ms": 400.0 if holds else 600.0}
    for holds in (True, False)
}


def test_original_that_holds_no_limit_gives_way_to_one_that_does() -> None:
    found = within_limits({8: (100.0, 700.0)}, {8: (60.0, 90.0)})
    assert (found["winner"], found["verdict"]) == ("page-size=16", "faster")
    assert "limits in 5 of 5 starts with 60.012 tok/s, the original in 0 of 5 starts, p = 0.0079" in found["why"]


def test_candidate_that_does_not_hold_the_limits_again_does_not_win() -> None:
    request = {"grid": {"args": {"page-size": [16]}}, "objective": {"slo": {"ttft_p99_ms": 500}}}
    document = planned("sweep", request, rounds=1)
    for latency in (400.0, 600.0):
        for trial in experiment_run.to_do(document):
            other = bool(trial["settings"]["args"].get("page-size"))
            made = record(f"r{trial['number']}", {8: 200.0 if other else 100.0}, ttft_p99_ms=latency if other else 90.0)
            document = experiment_state.ended(document, trial["number"], "t", made)
        document = experiment_run.extended(document)
    found = result(document)
    assert (found["winner"], found["verdict"]) == (None, "no_measurable_gain")
    assert "not confirmed: it holds the limits in 0 of 5 starts" in found["why"]


@pytest.mark.parametrize("starts", [1, 4])
def test_few_starts_confirm_no_winner_within_limits(starts: int) -> None:
    runs = {holds: [{"points": [point]}] * starts for holds, point in FOUR_HUNDRED_AND_SIX_HUNDRED.items()}
    wanted = sweep_choice.objective({"slo": {"ttft_p99_ms": 500}})
    verdict, why = sweep_choice.confirmed_by_score(wanted, runs[False], runs[True], 1.0)
    assert (verdict, why) == ("not_comparable", f"{starts} against {starts} starts with valid figures, 5 are needed")


def test_latency_at_the_limit_confirms_nothing() -> None:
    """Each start holds the limit by chance: its rate is then that of a higher concurrency, or none."""
    wanted = sweep_choice.objective({"slo": {"ttft_p99_ms": 500}})
    chance, false = random.Random(7), 0  # noqa: S311 a simulation

    def start() -> dict[str, Any]:
        return {
            "points": [{"concurrency": 32, "valid": True, "output_tok_s": 300, "ttft_p99_ms": chance.gauss(500, 30)}]
        }

    for _draw in range(200):
        sides = [[start() for _each in range(5)] for _side in "ab"]
        false += sweep_choice.confirmed_by_score(wanted, sides[0], sides[1], 1.0)[0] == "faster"
    assert false <= 10


def test_speculative_candidate_is_measured_and_stands_apart() -> None:
    request = {
        "candidates": [
            {"name": "mtp", "args": {"speculative-algorithm": "EAGLE"}},
            {"name": "fast", "args": {"page-size": 16}},
        ]
    }

    def server(settings: Mapping[str, Any]) -> float:
        return (
            210.0
            if "speculative-algorithm" in settings["args"]
            else 150.0
            if settings["args"].get("page-size")
            else 100.0
        )

    document, stages = whole(planned("sweep", request), server)
    assert set(stages[0]) == {"original", "mtp", "fast"} and set(stages[1]) == {"original", "fast"}
    found = result(document)
    assert found["winner"] == "fast"
    [apart] = [one for one in found["candidates"] if one["name"] == "mtp"]
    assert (apart["state"], round(apart["score"])) == ("measured", 210)
    assert "speculative decoding on one side only" in apart["reason"]


def test_settings_of_speculative_decoding_are_swept_among_each_other() -> None:
    base = experiment_settings.base({"sglang_version": "0.5.23", "args": {"speculative-algorithm": "EAGLE"}})
    grid = {"grid": {"args": {"speculative-num-steps": [5]}}}
    document = experiment_run.planned("sweep", grid, base, {}, 3, "t0")
    document, _stages = whole(document, lambda got: 130.0 if "speculative-num-steps" in got["args"] else 100.0)
    assert result(document)["candidates"][1]["reason"] == ""
    assert experiment_run.comparable(document)["b"]["candidate"] == "speculative-num-steps=5"


# --- explain ---------------------------------------------------------------------------------------------------------


def sides(**args: Any) -> dict[str, Any]:
    """The base against the base with more arguments."""
    return {"a": {}, "b": {"args": {name.replace("_", "-"): value for name, value in args.items()}}}


def model(factors: Mapping[str, float], refuses: Callable[[set[str]], bool] = lambda have: False) -> Server:
    """A server whose arguments each multiply its speed."""

    def server(settings: Mapping[str, Any]) -> float | None:
        have = {name for name in factors if name in settings["args"]}
        speed = 100.0
        for name in have:
            speed *= factors[name]
        return None if refuses(have) else speed

    return server


def test_explanation_of_two_differences_needs_one_stage() -> None:
    document, stages = whole(
        planned("explain", sides(page_size=16, tp_size=2)), model({"page-size": 1.1, "tp-size": 2.0})
    )
    assert len(stages) == 1 and len(stages[0]) == 20
    found = result(document)
    assert [(step["name"], round(step["change_percent"]), step["verdict"]) for step in found["steps"]] == [
        ("tp-size=2", 100, "faster"),
        ("page-size=16", 10, "faster"),
    ]
    assert round(found["total"]["change_percent"]) == 120 and found["notes"] == [] and found["concurrency"] == 8
    assert round(found["steps"][1]["alone_percent"]) == 10


def test_step_to_speculative_decoding_has_no_verdict() -> None:
    given = sides(page_size=16, speculative_algorithm="EAGLE")
    document, _stages = whole(planned("explain", given), model({"page-size": 1.1, "speculative-algorithm": 2.0}))
    found = result(document)
    assert {step["name"]: step["verdict"] for step in found["steps"]} == {
        "speculative-algorithm=EAGLE": "not_comparable",
        "page-size=16": "faster",
    }
    assert found["total"]["verdict"] == "not_comparable"
    assert found["notes"] == ["not compared: speculative decoding on one side only, and the prompts are random"]


def test_explanation_of_more_differences_measures_the_path_anew() -> None:
    factors = {"page-size": 1.3, "tp-size": 2.0, "ep-size": 1.0}
    document, stages = whole(planned("explain", sides(page_size=16, tp_size=2, ep_size=2)), model(factors))
    assert len(stages) == 2 and stages[1][:4] == ["A", "tp-size=2", "page-size=16 tp-size=2", "B"]
    assert stages[1][4:8] == stages[1][:4][::-1] and len(stages[1]) == 20
    found = result(document)
    assert [(step["name"], step["verdict"]) for step in found["steps"]] == [
        ("tp-size=2", "faster"),
        ("page-size=16", "faster"),
        ("ep-size=2", "no_measurable_gain"),
    ]
    assert found["finished"] is True


def test_step_that_does_not_run_on_the_path_is_put_off_and_the_rest_measured() -> None:
    factors = {"page-size": 1.3, "tp-size": 2.0, "ep-size": 1.1, "dp-size": 1.2}
    # ep-size does not run alone, and page-size not with tp-size unless dp-size is there.
    server = model(factors, lambda have: have == {"ep-size"} or have == {"page-size", "tp-size"})
    document, stages = whole(planned("explain", sides(page_size=16, tp_size=2, ep_size=2, dp_size=2), starts=5), server)
    found = result(document)
    assert [step["name"] for step in found["steps"]] == ["tp-size=2", "dp-size=2", "page-size=16", "ep-size=2"]
    assert [round(step["change_percent"]) for step in found["steps"]] == [100, 20, 30, 10]
    assert stages[1].count("page-size=16 tp-size=2") == 2
    # The other points of the new path were on the first one too.
    assert stages[2] == ["dp-size=2 tp-size=2"] * 5 and len(stages) == 3
    assert any("page-size=16 did not run" in note for note in found["notes"])
    assert any("measured after the other points" in note for note in found["notes"])


def test_end_that_does_not_run_is_said_in_the_result() -> None:
    document, stages = whole(
        planned("explain", sides(page_size=16, tp_size=2, ep_size=2)),
        model({"page-size": 1.0, "tp-size": 1.0, "ep-size": 1.0}, lambda have: len(have) == 3),
    )
    found = result(document)
    assert len(stages) == 1 and stages[0].count("B") == 2
    assert (found["steps"], found["total"], found["finished"]) == ([], None, True)
    assert "B itself does not run" in found["notes"][0]


def test_one_start_is_told_by_its_repetitions_without_a_verdict() -> None:
    document, _stages = whole(planned("explain", sides(tp_size=2), starts=1), model({"tp-size": 2.0}))
    found = result(document)
    assert found["steps"][0]["verdict"] == "not_comparable" and round(found["steps"][0]["change_percent"]) == 100


def test_repetitions_of_one_start_give_no_verdict_however_many() -> None:
    document = planned("explain", sides(page_size=16), starts=1)
    for trial in experiment_run.to_do(document):
        made = record(f"r{trial['number']}", {8: 200.0 if trial["candidate"] == "B" else 100.0})
        made["points"][0]["values"]["output_tok_s"] = [made["points"][0]["output_tok_s"] + part for part in range(9)]
        document = experiment_state.ended(document, trial["number"], "t", made)
    found = result(document)
    assert [step["verdict"] for step in found["steps"]] == [found["total"]["verdict"]] == ["not_comparable"]
    assert found["notes"] == ["some configurations have only 1 starts; 5 are needed to tell noise from effect"]


def test_seven_steps_take_one_more_start_to_tell_anything() -> None:
    args = {f"f{number}": 1 for number in range(7)}
    assert sum(trial["candidate"] == "A" for trial in planned("explain", sides(**args))["trials"]) == 6


def test_configuration_of_a_record_is_taken_whole() -> None:
    known = {"context": {"sglang_version": "0.5.23", "backend": "triton", "args": {"page-size": 16}}}
    request = {"a": {}, "b": {"record": "r7"}}
    document = experiment_run.planned(
        "explain", request, BASE, {}, 3, "t", None, lambda wanted: {"id": wanted, **known}
    )
    assert document["configurations"]["b"]["args"] == {"page-size": 16}
    assert [one["name"] for one in document["candidates"]][2:] == [
        "backend=triton",
        "no max-running-requests",
        "page-size=16",
    ]
    assert result(document)["steps"] == []
    with pytest.raises(ExperimentError, match="give its id alone"):
        planned("explain", {"a": {"record": "r", "args": {}}, "b": {}})


@pytest.mark.parametrize(
    ("kind", "request_", "parameters", "message"),
    [
        ("ab", {}, {}, "names nothing"),
        ("ab", {"ab": "backend", "ab_values": ["x"], "grid": {}}, {}, "ab knows no grid"),
        ("ab", {"ab": "backend", "ab_values": ["x"]}, {"starts": 0}, "reading starts"),
        ("ab", {"ab": "backend", "ab_values": ["x"]}, {"seed": -1}, "reading seed"),
        (
            "ab",
            {"ab": "speculative_algorithm", "ab_values": ["EAGLE"]},
            {},
            "reading ab: speculative decoding on one side",
        ),
        ("sweep", {}, {}, "none beside the original"),
        ("sweep", {**GRID, "tie_percent": "x"}, {}, "reading tie_percent"),
        ("sweep", GRID, {"rounds": 99}, "reading rounds"),
        ("sweep", GRID, {"confirm_starts": True}, "reading confirm_starts"),
        ("explain", {}, {}, "do not differ"),
        ("explain", {"a": {}, "b": {"backend": "x"}, "concurrency": 0}, {}, "reading concurrency"),
        ("explain", {"a": 3, "b": {}}, {}, "configuration a: it is a int"),
    ],
)
def test_what_cannot_be_planned(kind: str, request_: Any, parameters: Any, message: str) -> None:
    with pytest.raises(ExperimentError, match=message):
        planned(kind, request_, **parameters)


def test_steady_drift_does_not_look_like_an_effect() -> None:
    document, _stages = whole(
        planned("explain", sides(page_size=16), starts=8), model({"page-size": 1.0}), drift_percent=-1.0
    )
    assert result(document)["total"]["verdict"] == "no_measurable_gain"
