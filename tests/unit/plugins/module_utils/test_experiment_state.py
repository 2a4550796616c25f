# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an experiment remembers of its trials."""

from __future__ import annotations

import json
from typing import Any

import pytest
from experiment_records import record

from ansible_collections.tokforge.sglang.plugins.module_utils import experiment_settings, experiment_state
from ansible_collections.tokforge.sglang.plugins.module_utils.candidates import Candidate
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_plan import rounds
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import ExperimentError

BASE = experiment_settings.base({"sglang_version": "0.5.23"})


def fresh(count: int = 3) -> dict[str, Any]:
    """An experiment with two candidates and so many rounds."""
    document = experiment_state.new("sweep", {"grid": {}}, BASE, {}, 3, "t0")
    document = experiment_state.with_candidates(document, [Candidate("x", BASE), Candidate("y", BASE, 1)])
    return experiment_state.with_trials(document, rounds(["x", "y"], count), 7)


def states(document: dict[str, Any], name: str) -> list[str]:
    """The states of a candidate's trials."""
    return [one["state"] for one in experiment_state.trials_of(document, name)]


def test_same_call_has_the_same_id_and_another_has_another() -> None:
    def name(kind: str = "ab", request: Any = None, base: Any = None, parameters: Any = None) -> str:
        return experiment_state.identify(kind, request or {"ab": "backend"}, base or BASE, parameters or {"starts": 5})

    same = experiment_settings.base({"sglang_version": "0.5.23", "args": {"disable-cuda-graph": False}})
    assert name() == name(base=same) and name().startswith("ab-") and len(name()) == 15
    other = experiment_settings.merge(BASE, {"args": {"tp-size": 2}})
    assert (
        len({name(), name("sweep"), name(request={"ab": "x"}), name(base=other), name(parameters={"starts": 6})}) == 5
    )
    # The objective only decides about the end.
    assert name(request={"ab": "backend", "objective": {"concurrency": 1}, "tie_percent": 3}) == name()
    with pytest.raises(ExperimentError, match="none of ab, sweep, explain"):
        name("other")
    with pytest.raises(ExperimentError, match="reading the request of the experiment"):
        name(request={"ab": {1, 2}})


def test_all_trials_have_a_number_and_the_same_seed() -> None:
    trials = fresh()["trials"]
    assert [one["number"] for one in trials] == [1, 2, 3, 4, 5, 6]
    assert {one["seed"] for one in trials} == {7} and {one["state"] for one in trials} == {"waiting"}


def test_trial_runs_and_ends_with_a_record() -> None:
    document, why = experiment_state.begun(fresh(), 1, "t1")
    assert (why, document["trials"][0]["state"], document["trials"][0]["began_at"]) == ("", "running", "t1")
    made = record("r1", {8: 100.0}, "x", power=[200.0])
    document = experiment_state.ended(document, 1, "t2", made)
    first = document["trials"][0]
    assert (first["state"], first["record_id"], first["reason"], first["ended_at"]) == ("done", "r1", "", "t2")
    assert first["figures"]["points"][0] == {
        "output_tok_s": 100.0,
        "concurrency": 8,
        "accept_length": None,
        "valid": True,
        "values": [99.0, 100.0, 101.0],
        "power_w": [200.0],
    }
    again, why = experiment_state.begun(document, 1, "t3")
    assert again == document and why == "it is done already"
    assert [one["number"] for one in experiment_state.waiting(document)] == [2, 3, 4, 5, 6]


def test_record_that_is_not_valid_keeps_its_reasons() -> None:
    document = experiment_state.ended(
        fresh(), 2, "t", record("r", {8: 9.0}, "y", valid=False, reasons=["text is !!!!"])
    )
    assert (document["trials"][1]["state"], document["trials"][1]["reason"]) == ("invalid", "text is !!!!")
    assert document["trials"][1]["record_id"] == "r"
    bare = experiment_state.ended(fresh(), 2, "t", {"id": "r", "valid": 1, "points": None})
    assert (bare["trials"][1]["state"], bare["trials"][1]["reason"]) == ("invalid", "the record is not valid")


def test_interrupted_trial_is_done_again_however_often() -> None:
    document = fresh()
    for count in (1, 2, 3):
        document = experiment_state.resumed(experiment_state.begun(document, 1, "t")[0])
        assert (document["trials"][0]["state"], document["trials"][0]["interruptions"]) == ("waiting", count)
    assert len(experiment_state.waiting(document)) == 6
    # One that goes on without a resume in between was interrupted too.
    document = experiment_state.begun(experiment_state.begun(document, 1, "t")[0], 2, "t")[0]
    assert (document["trials"][0]["state"], document["trials"][0]["interruptions"]) == ("waiting", 4)


def test_two_failures_end_the_part_of_a_candidate_and_no_other_s() -> None:
    document = experiment_state.ended(fresh(4), 2, "t", reason="out of memory")
    assert states(document, "y") == ["failed", "waiting", "waiting", "waiting"]
    document = experiment_state.ended(document, 3, "t", record("r", {8: 1.0}, "y", valid=False, reasons=["garbage"]))
    assert states(document, "y") == ["failed", "invalid", "failed", "failed"]
    assert states(document, "x") == ["waiting"] * 4
    assert document["trials"][5]["reason"] == "skipped after 2 failures: garbage"
    assert experiment_state.begun(document, 6, "t")[1] == "skipped after 2 failures: garbage"
    assert experiment_state.outcome(document, "y") == ("invalid", "garbage")
    more = experiment_state.with_trials(document, rounds(["y"], 1), 7)
    assert more["trials"][-1]["skipped"] is True


def test_candidate_that_is_not_supported_is_not_tried() -> None:
    document = experiment_state.staged(fresh(), "y", None, "needs 8 GPUs")
    assert states(document, "y") == ["failed"] * 3
    assert document["trials"][1]["reason"] == "not supported: needs 8 GPUs"
    assert experiment_state.outcome(document, "y") == ("unsupported", "needs 8 GPUs")
    document = experiment_state.staged(document, "x", 4, "unused")
    assert (document["candidates"][0]["release"], document["candidates"][0]["reason"]) == (4, "")
    assert experiment_state.outcome(document, "x") == ("waiting", "")


def test_what_was_not_supported_is_looked_at_again_with_all_its_trials() -> None:
    document = experiment_state.staged(fresh(), "x", None, "no room on the disk")
    document = experiment_state.staged(document, "y", 5)
    for trial in experiment_state.trials_of(document, "y")[:2]:
        document = experiment_state.ended(document, trial["number"], "t", reason="crashed")
    assert states(document, "y") == ["failed"] * 3
    again = experiment_state.checked_again(document)
    assert (states(again, "x"), experiment_state.outcome(again, "x")) == (["waiting"] * 3, ("waiting", ""))
    assert not any(trial["skipped"] for trial in experiment_state.trials_of(again, "x"))
    # What was tried and failed is no matter of support.
    assert states(again, "y") == ["failed"] * 3


def test_one_failure_is_the_outcome_of_a_candidate() -> None:
    document = fresh(2)
    for number, name in ((1, "x"), (4, "x"), (2, "y")):
        document = experiment_state.ended(document, number, "t", record(f"r{number}", {8: 1.0}, name))
    assert experiment_state.outcome(document, "x") == ("measured", "")
    assert experiment_state.outcome(document, "y") == ("waiting", "")
    assert experiment_state.outcome(experiment_state.ended(document, 3, "t", reason="died"), "y") == ("failed", "died")


def test_figures_that_are_none_are_null() -> None:
    made = record("r", {8: float("nan")}, "x", power=[float("inf"), None])
    point = experiment_state.figures(made)["points"][0]
    assert (point["output_tok_s"], point["power_w"]) == (None, [None, None])
    json.dumps(point, allow_nan=False)
    assert experiment_state.figures({})["points"] == []


HUGE = 10**400


@pytest.mark.parametrize("odd", [1, "x", True, {"a": 1}, [1], ["x"], [None], HUGE, float("nan"), None])
def test_record_of_any_shape_gives_figures_that_can_be_kept(odd: Any) -> None:
    point = {
        "concurrency": odd, "output_tok_s": odd, "ttft_p99_ms": odd, "accept_length": odd, "valid": odd,
        "values": odd, "gpu": odd,
    }  # fmt: skip
    for record_ in (
        {"id": odd, "valid": odd, "reasons": odd, "fingerprint": odd, "points": odd, "experiment": odd},
        {
            "id": "r",
            "valid": True,
            "points": [odd, point, {"values": {"output_tok_s": odd}, "gpu": [{"power_w": odd}]}],
        },
    ):
        document = experiment_state.ended(fresh(), 1, "2026-01-01T00:00:00Z", record_)
        json.dumps(document, allow_nan=False)
        assert experiment_state.well_formed(document) == ""
        for kept in document["trials"][0]["figures"]["points"]:
            assert kept["output_tok_s"] in (None, 1) and kept["concurrency"] in (None, 1, HUGE)


def test_figures_that_are_there_are_kept_beside_odd_ones() -> None:
    [point] = experiment_state.figures(
        {"points": [{"output_tok_s": HUGE, "tpot_p99_ms": 2, "values": {"output_tok_s": [1, HUGE, "2"]}, "gpu": 1}]}
    )["points"]
    assert (point["output_tok_s"], point["tpot_p99_ms"], point["values"]) == (None, 2, [1, None, None])
    assert point["power_w"] == []


def test_what_cannot_be_noted() -> None:
    document = fresh()
    for call, message in (
        (lambda: experiment_state.staged(document, "z", 1), "candidate 'z' in experiment sweep-.*it has x, y"),
        (lambda: experiment_state.staged(document, "x", None), "neither a release nor a reason"),
        (lambda: experiment_state.staged(document, "x", 0), "no number of a release"),
        (lambda: experiment_state.begun(document, 7, "t"), "trial 7 in experiment .*: it has 6"),
        (lambda: experiment_state.ended(document, 1, "t"), "neither a record nor a reason"),
        (lambda: experiment_state.ended(document, 1, "t", record("r", {}, "y")), "is of candidate y, the trial of x"),
    ):
        with pytest.raises(ExperimentError, match=message):
            call()


def test_long_reasons_are_cut() -> None:
    assert len(experiment_state.ended(fresh(), 1, "t", reason="x" * 9999)["trials"][0]["reason"]) == 2000


@pytest.mark.parametrize(
    "change",
    [
        {"id": 3}, {"trials": None}, {"trials": [3]}, {"candidates": [{}]}, {"finished": "no"}, {"updated_at": None},
        {"trials": [{"state": "lost"}]}, {"base": []},
    ],
)  # fmt: skip
def test_document_of_another_shape_is_none_of_ours(change: dict[str, Any]) -> None:
    assert experiment_state.well_formed(fresh()) == ""
    assert experiment_state.well_formed({**fresh(), **change}) == f"missing or wrong: {next(iter(change))}"
    assert experiment_state.well_formed([]) == "it is a list"
    lost = [{**one, "state": "lost"} for one in fresh()["trials"]]
    assert experiment_state.well_formed({**fresh(), "trials": lost}) == "missing or wrong: trials"


def measured() -> dict[str, Any]:
    """An experiment with a trial that is done."""
    document = experiment_state.staged(fresh(), "x", 4)
    document = experiment_state.begun(document, 1, "2026-01-01T00:00:00Z")[0]
    made = record("r1", {8: 100.0}, "x", power=[200.0, None], ttft_p99_ms=3.5)
    return experiment_state.ended(document, 1, "2026-01-01T00:05:00Z", made)


def with_figures(**change: Any) -> dict[str, Any]:
    """Its figures with another point."""
    document = measured()
    first = document["trials"][0]
    point = {**first["figures"]["points"][0], **change}
    point = {name: value for name, value in point.items() if value is not ...}
    trials = [{**first, "figures": {**first["figures"], "points": [point]}}, *document["trials"][1:]]
    return {**document, "trials": trials}


@pytest.mark.parametrize(
    "change",
    [
        {"output_tok_s": HUGE}, {"output_tok_s": float("nan")}, {"output_tok_s": "1"}, {"output_tok_s": ...},
        {"ttft_p99_ms": []}, {"accept_length": "x"}, {"concurrency": "8"}, {"concurrency": ...}, {"concurrency": [8]},
        {"concurrency": True}, {"valid": 1}, {"valid": ...}, {"values": None}, {"values": 3}, {"values": ["1"]},
        {"values": ...}, {"power_w": [True]}, {"power_w": {}}, {"power_w": ...},
    ],
)  # fmt: skip
def test_damaged_figures_are_found(change: dict[str, Any]) -> None:
    assert experiment_state.well_formed(with_figures()) == ""
    allowed = change == {"concurrency": ...}
    assert experiment_state.well_formed(with_figures(**change)) == ("" if allowed else "missing or wrong: trials")


@pytest.mark.parametrize(
    "change",
    [
        {"figures": 1}, {"figures": {}}, {"figures": {"points": {}}}, {"figures": {"points": [1]}}, {"figures": ...},
        {"record_id": 3}, {"record_id": ...}, {"number": True}, {"number": 0}, {"number": 1.0}, {"seed": -1},
        {"skipped": 0}, {"began_at": 5}, {"began_at": "yesterday"}, {"ended_at": "2026-13-01T00:00:00Z"},
        {"began_at": ...}, {"state": ["done"]}, {"interruptions": None},
    ],
)  # fmt: skip
def test_damaged_trial_is_found(change: dict[str, Any]) -> None:
    document = measured()
    first = {name: one for name, one in {**document["trials"][0], **change}.items() if one is not ...}
    damaged = {**document, "trials": [first, *document["trials"][1:]]}
    assert experiment_state.well_formed(damaged) == "missing or wrong: trials"


@pytest.mark.parametrize(
    "change",
    [
        {"release": "4"}, {"release": ...}, {"release": True}, {"settings": {}}, {"settings": {**BASE, "env": []}},
        {"settings": {**BASE, "backend": 3}}, {"settings": {**BASE, "args": {"x": float("inf")}}}, {"differences": -1},
        {"state": "done"}, {"state": {}}, {"name": None},
    ],
)  # fmt: skip
def test_damaged_candidate_is_found(change: dict[str, Any]) -> None:
    document = measured()
    first = {name: one for name, one in {**document["candidates"][0], **change}.items() if one is not ...}
    damaged = {**document, "candidates": [first, document["candidates"][1]]}
    assert experiment_state.well_formed(damaged) == "missing or wrong: candidates"


@pytest.mark.parametrize(
    "change",
    [
        {"labels": []}, {"labels": {"A": 3}}, {"why": None}, {"configurations": {"a": {}}}, {"configurations": []},
        {"result": 1}, {"result": {"winner": 3}}, {"result": {"verdict": []}}, {"result": {"score": float("nan")}},
        {"kind": "other"}, {"kind": []}, {"original_release": "3"}, {"original_release": True}, {"finished": 1},
        {"parameters": {"x": float("inf")}}, {"base": {"args": {}}}, {"served": "yes"}, {"not_served": 1},
    ],
)  # fmt: skip
def test_damaged_part_of_an_experiment_is_named(change: dict[str, Any]) -> None:
    document = {
        **measured(),
        "labels": {"A": "x"},
        "why": "",
        "configurations": {"a": BASE, "b": BASE},
        "result": {"winner": "y", "verdict": "faster", "why": "x", "score": None},
    }
    assert experiment_state.well_formed(document) == ""
    assert experiment_state.well_formed({**document, **change}) == f"missing or wrong: {next(iter(change))}"


def test_parts_that_do_not_belong_together_are_told() -> None:
    document = measured()
    candidates, trials = document["candidates"], document["trials"]
    for change, why in (
        ({"trials": []}, "it has no trials"),
        ({"trials": [], "candidates": []}, "it has no trials"),
        ({"trials": [*trials, trials[0]]}, "two trials have one number"),
        ({"candidates": [*candidates, candidates[0]]}, "two candidates have one name"),
        ({"candidates": candidates[:1]}, "a trial is of no candidate"),
        (
            {"candidates": [{**candidates[0], "release": None}, candidates[1]]},
            "a candidate is staged without a release",
        ),
        ({"kind": "explain"}, "missing or wrong: configurations"),
        ({"result": {"winner": "z"}}, "the winner is no candidate"),
    ):
        assert experiment_state.well_formed({**document, **change}) == why
