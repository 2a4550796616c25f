# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What each kind of experiment does with its trials: which there are, which come next, and what comes out in the end.

Functions from a document of `experiment_state.py` to a new one.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    ab_sides,
    candidates,
    experiment_plan,
    experiment_state,
    explain_plan,
    permutation,
    speculation,
    sweep_choice,
)
from ansible_collections.tokforge.sglang.plugins.module_utils import experiment_settings as settings_of
from ansible_collections.tokforge.sglang.plugins.module_utils.candidates import ORIGINAL, Candidate
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_plan import Slot, whole
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import ExperimentError

A, B = "A", "B"
#: What a request of each kind may hold.
REQUESTS: Mapping[str, Sequence[str]] = {
    "ab": ("ab", "ab_values"),
    "sweep": ("grid", "candidates", "objective", "tie_percent"),
    "explain": ("a", "b", "concurrency"),
}
_MOST_SEED = 2**31 - 1
Recorded = Callable[[str], Mapping[str, Any]]


def planned(
    kind: str,
    request: Mapping[str, Any],
    base: Mapping[str, Any],
    parameters: Mapping[str, Any],
    original_release: int | None,
    now: str,
    enabled_by: str | None = None,
    recorded: Recorded | None = None,
    passed_on: Collection[str] = (),
) -> dict[str, Any]:
    """A new experiment with its candidates and first trials. Raises ExperimentError.

    :param base: complete settings.
    :param enabled_by: see `ab_sides.sides`.
    :param recorded: gives the record of an id, for an explanation that names records.
    :param passed_on: variables that the machine decides (`passed_env.passed_on`), which no configuration has.
    """
    document = experiment_state.new(kind, request, base, parameters, original_release, now)
    unknown = sorted(str(name)[:50] for name in request if name not in REQUESTS[kind])
    if unknown:
        raise ExperimentError(
            f"reading the request: {kind} knows no {', '.join(unknown[:5])}; use {', '.join(REQUESTS[kind])}"
        )
    seed = whole(parameters.get("seed"), "seed", 1, 0, _MOST_SEED)
    must_be_measured(request.get("concurrency"), parameters)
    if kind == "ab":
        a, b, why = ab_sides.sides(base, request.get("ab"), request.get("ab_values"), enabled_by)
        if speculation.in_args(a.settings.get("args")) != speculation.in_args(b.settings.get("args")):
            raise ExperimentError(
                f"reading ab: {speculation.WHY_NOT}, so no verdict could come out; compare two settings of speculative "
                "decoding, or measure each side with real text"
            )
        found: tuple[Candidate, ...] = (Candidate(A, a.settings), Candidate(B, b.settings, 1))
        starts = whole(parameters.get("starts"), "starts", experiment_plan.DEFAULT_STARTS)
        slots = experiment_plan.pairs(A, B, starts)
        document = {**document, "labels": {A: a.label, B: b.label}, "why": why}
    elif kind == "sweep":
        must_be_measured(sweep_choice.objective(request.get("objective")).concurrency, parameters)
        sweep_choice.tie(request.get("tie_percent"))
        _confirm_starts(parameters)
        found = candidates.expand(base, request.get("grid"), request.get("candidates"))
        if len(found) < 2:
            raise ExperimentError(
                "reading the candidates: there is none beside the original; give a grid (sglang_sweep_grid), or "
                "candidates that differ (sglang_sweep_candidates)"
            )
        count = whole(parameters.get("rounds"), "rounds", experiment_plan.DEFAULT_SWEEP_ROUNDS)
        slots = experiment_plan.rounds([one.name for one in found], count)
    else:
        found_sides = {side: _configuration(base, request.get(side), side, recorded, passed_on) for side in ("a", "b")}
        document = {**document, "configurations": found_sides}
        asked = _explained(document)
        if request.get("concurrency") is not None:
            whole(request["concurrency"], "concurrency", 1, most=1_000_000)
        found = explain_plan.first_stage(asked)
        slots = experiment_plan.rounds([one.name for one in found], _explain_starts(document, asked))
    return experiment_state.with_trials(experiment_state.with_candidates(document, found), slots, seed)


def must_be_measured(concurrency: Any, parameters: Mapping[str, Any]) -> None:
    """Refuse a concurrency that counts and that is not measured, before hours of trials that cannot tell anything."""
    points = parameters.get("points")
    if concurrency is None or not isinstance(points, list) or not points:
        return
    if str(concurrency) not in map(str, points):
        told = ", ".join(map(str, points[:20]))
        raise ExperimentError(
            f"reading the request: concurrency {str(concurrency)[:50]} counts and is not measured; measured are "
            f"{told}, so give one of them, or more in sglang_benchmark_concurrency"
        )


def taken_up(document: Mapping[str, Any], request: Mapping[str, Any], original_release: int | None) -> dict[str, Any]:
    """A document of the same id at the begin of a play. A sweep with another objective is open again.

    What was not supported is looked at again, unless the experiment is finished.

    The original release stays the one that was noted: what serves now may be a candidate. It is only taken when no
    trial has begun yet. Raises ExperimentError.
    """
    found = experiment_state.resumed({**document, "abandoned": False})
    if not found["finished"]:
        found = experiment_state.checked_again(found)
    if all(trial["began_at"] is None for trial in found["trials"]) and original_release is not None:
        found["original_release"] = original_release
    if found["request"] == dict(request):
        return found
    sweep_choice.objective(request.get("objective"))
    sweep_choice.tie(request.get("tie_percent"))
    return {**found, "request": dict(request), "finished": False, "result": None}


def extended(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the trials of its next stage, when all of this one are done and there is one."""
    if experiment_state.waiting(document) or document["kind"] == "ab":
        return dict(document)
    found, slots = _confirming(document) if document["kind"] == "sweep" else _exploring(document)
    if not slots:
        return dict(document)
    seed = document["trials"][0]["seed"]
    return experiment_state.with_trials(experiment_state.with_candidates(document, found), slots, seed)


def to_do(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The trials that are still to be made, as a play needs them."""
    by_name = {entry["name"]: entry for entry in document["candidates"]}
    return [
        {
            "number": trial["number"],
            "of": len(document["trials"]),
            "candidate": trial["candidate"],
            "settings": by_name[trial["candidate"]]["settings"],
            "release": by_name[trial["candidate"]]["release"],
            "round": trial["round"],
            "stage": trial["stage"],
            "seed": trial["seed"],
        }
        for trial in experiment_state.waiting(document)
    ]


def concluded(
    document: Mapping[str, Any], now: str, ratio: explain_plan.Ratio, comparison: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The document with its result, and what there is to compare. It is finished when no trial is left to make.

    :param ratio: see `explain_plan.result`.
    :param comparison: of a sweep's winner against the original, or of an A/B run.
    """
    open_still = bool(experiment_state.waiting(document)) or extended(document) != dict(document)
    compare = comparable(document)
    if document["kind"] == "sweep":
        tried, choice = _chosen(document, _by_score(document) or comparison)
        result = sweep_choice.result(document["id"], tried, ORIGINAL, choice, now)
    elif document["kind"] == "ab":
        result = {"id": document["id"], "recorded_at": now, "kind": "ab", "why": document.get("why", ""), **compare}
    else:
        result = {"id": document["id"], "recorded_at": now, **_explanation(document, ratio)}
    if document["kind"] != "explain":
        told = comparison.get("id") if comparison is not None else None
        result["comparison_id"] = told if isinstance(told, str) else None
    if document["kind"] == "ab":
        result["comparison"] = dict(comparison) if comparison is not None else None
    result["finished"] = not open_still
    return {**document, "result": result, "finished": not open_still}, compare


def serves(document: Mapping[str, Any]) -> int | None:
    """The release that is to serve after an experiment: a sweep's winner, otherwise what served before.

    A winner that was not confirmed serves only where no confirmation was asked for.
    """
    result = document["result"] or {}
    winner = result.get("winner") if document["kind"] == "sweep" else None
    unconfirmed = result.get("verdict") == sweep_choice.UNCONFIRMED
    if winner is None or (unconfirmed and _confirm_starts(document["parameters"])):
        original: int | None = document["original_release"]
        return original
    release: int | None = experiment_state.candidate(document, winner)["release"]
    return release


def told_result(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The result as people and the fact file get it; None before there is one.

    A winner that was chosen and then did not serve is told as such. The next play tries it again.
    """
    result, failure = document["result"], document.get("not_served")
    if result is None or not failure:
        return None if result is None else dict(result)
    why = f"it was chosen ({result.get('why')}) and does not serve: {failure}"
    return {**result, "verdict": sweep_choice.DOES_NOT_SERVE, "why": why}


def progress(document: Mapping[str, Any], number: int, now: str) -> str:
    """Which trial begins, how long the experiment has taken and will take: the trials before it tell."""
    trials = document["trials"]
    own = experiment_state.trial(document, number)
    took = [
        (_time(one["ended_at"]) - _time(one["began_at"])).total_seconds()
        for one in trials
        if one["ended_at"] and one["began_at"] and one["number"] != number
    ]
    said = f"trial {number} of {len(trials)}, {own['candidate']}"
    label = (document.get("labels") or {}).get(own["candidate"])
    if label:
        said += f" ({label})"
    if not took:
        return said
    left = len(experiment_state.waiting(document)) * statistics.median(took)
    return f"{said}, {_told(sum(took))} in trials so far, about {_told(left)} left"


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")


def _told(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def ratio_for(document: Mapping[str, Any]) -> explain_plan.Ratio:
    """Hodges and Lehmann's estimate of b/a - 1 in percent, with a band that holds for all steps of an explanation
    together.
    """
    steps = max(1, len(_explained(document).differences)) if document["kind"] == "explain" else 1

    def ratio(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
        return _percent(a, b, permutation.ALPHA / steps)

    return ratio


def _percent(a: Sequence[float], b: Sequence[float], alpha: float) -> tuple[float, float, float]:
    found = permutation.compare([[value] for value in a], [[value] for value in b], alpha).points[0]
    return (found.ratio - 1) * 100, (found.low - 1) * 100, (found.high - 1) * 100


def comparable(document: Mapping[str, Any]) -> dict[str, Any]:
    """The two sides whose records decide, or nothing: of an A/B run, or of a sweep's winner and the original.

    The trials of a sweep that were made to confirm its winner count alone: the others made it the winner, so they are
    the lucky ones.
    """
    if document["kind"] == "explain":
        return {}
    names, stage, concurrency = (A, B), None, None
    if document["kind"] == "sweep":
        choice = _chosen(document)[1]
        winner = choice.winner
        if winner is None:
            return {}
        # Each side reaches its rate at a concurrency of its own: one and the same for both would not tell.
        if choice.objective.limits:
            return {}
        concurrency = choice.scores[winner].concurrency
        names, stage = (ORIGINAL, winner), _confirming_stage(document, winner)
        if stage is None:
            return {}
    found: dict[str, Any] = {side: _side(document, name, stage) for side, name in zip(("a", "b"), names)}
    return {**found, "metric": sweep_choice.OUTPUT, "concurrency": concurrency}


def _side(document: Mapping[str, Any], name: str, stage: int | None) -> dict[str, Any]:
    done = [one for one in experiment_state.trials_of(document, name, stage) if one["state"] == experiment_state.DONE]
    bad = experiment_state.failures(experiment_state.trials_of(document, name))
    state, reason = experiment_state.outcome(document, name)
    return {
        "label": (document.get("labels") or {}).get(name, name),
        "candidate": name,
        "settings": experiment_state.candidate(document, name)["settings"],
        "ids": [one["record_id"] for one in done],
        "starts": len(done),
        "state": state,
        "reason": reason,
        "failed": len(bad),
    }


# --- sweep -----------------------------------------------------------------------------------------------------------


def _confirm_starts(parameters: Mapping[str, Any]) -> int:
    return whole(parameters.get("confirm_starts"), "confirm_starts", experiment_plan.DEFAULT_STARTS, least=0)


def _tried(document: Mapping[str, Any]) -> list[sweep_choice.Tried]:
    """The candidates with what their first stage measured; a failure in any stage counts."""
    found, original_does = [], _speculates(document, ORIGINAL)
    for entry in document["candidates"]:
        state, reason = experiment_state.outcome(document, entry["name"])
        own = experiment_state.trials_of(document, entry["name"])
        done = [one for one in own if one["state"] == experiment_state.DONE]
        if state == "waiting" and all(one["stage"] > 1 for one in own if one["state"] != experiment_state.DONE):
            # It is only to be confirmed still.
            state = sweep_choice.MEASURED
        found.append(
            sweep_choice.Tried(
                name=entry["name"],
                settings=entry["settings"],
                differences=entry["differences"],
                state=state,
                reason=reason,
                runs=tuple(one["figures"] for one in done if one["stage"] == 1 and one["figures"]),
                record_ids=tuple(str(one["record_id"]) for one in done),
                apart=speculation.WHY_NOT if _speculates(document, entry["name"]) != original_does else "",
            )
        )
    return found


def _speculates(document: Mapping[str, Any], name: str) -> bool:
    """By its settings, or by what its trials measured."""
    own = experiment_state.trials_of(document, name)
    args = experiment_state.candidate(document, name)["settings"].get("args")
    points = [point for one in own if one["figures"] for point in one["figures"]["points"]]
    return speculation.in_record({"context": {"args": args}, "points": points})


def _chosen(
    document: Mapping[str, Any], comparison: Mapping[str, Any] | None = None
) -> tuple[list[sweep_choice.Tried], sweep_choice.Choice]:
    tried = _tried(document)
    wanted = sweep_choice.objective(document["request"].get("objective"))
    percent = sweep_choice.tie(document["request"].get("tie_percent"))
    return tried, sweep_choice.choose(tried, ORIGINAL, wanted, percent, comparison)


def _confirming_stage(document: Mapping[str, Any], winner: str) -> int | None:
    """The newest stage in which the winner met the original alone."""
    return max((one["stage"] for one in experiment_state.trials_of(document, winner) if one["stage"] > 1), default=None)


def _by_score(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The winner against the original by what the objective counts, from the trials that confirm it, where that is not
    the output rate of both at one concurrency: tok/s per watt, or the rate that each reaches within limits. None for
    other objectives, and where nothing was to be confirmed.
    """
    choice = _chosen(document)[1]
    stage = _confirming_stage(document, choice.winner) if choice.winner is not None else None
    if choice.winner is None or stage is None or not sweep_choice.by_score(choice.objective):
        return None
    done = {
        name: [
            one
            for one in experiment_state.trials_of(document, name, stage)
            if one["state"] == experiment_state.DONE and one["figures"]
        ]
        for name in (ORIGINAL, choice.winner)
    }
    a, b = ([one["figures"] for one in own] for own in done.values())
    percent = sweep_choice.tie(document["request"].get("tie_percent"))
    verdict, why = sweep_choice.confirmed_by_score(choice.objective, a, b, percent)
    ids = [str(one["record_id"]) for one in done[choice.winner]]
    return {"metric": choice.objective.metric, "b": {"ids": ids}, "verdict": verdict, "why": why}


def _confirming(document: Mapping[str, Any]) -> tuple[tuple[Candidate, ...], tuple[Slot, ...]]:
    starts = _confirm_starts(document["parameters"])
    tried, choice = _chosen(document)
    runs = {one.name: one.runs for one in tried if one.state == sweep_choice.MEASURED}
    if choice.winner is None or not starts or not runs.get(ORIGINAL):
        return (), ()
    if _confirming_stage(document, choice.winner) is not None:
        return (), ()
    last = document["trials"][-1]
    return (), experiment_plan.pairs(ORIGINAL, choice.winner, starts, last["round"] + 1, last["stage"] + 1)


# --- explain ---------------------------------------------------------------------------------------------------------


def _explained(document: Mapping[str, Any]) -> explain_plan.Plan:
    return explain_plan.plan(document["configurations"]["a"], document["configurations"]["b"])


def _configuration(
    base: Mapping[str, Any], given: Any, side: str, recorded: Recorded | None, passed_on: Collection[str]
) -> dict[str, Any]:
    """Complete settings: those of a record, or what is declared laid over the base."""
    if isinstance(given, Mapping) and "record" in given:
        if len(given) > 1 or recorded is None:
            raise ExperimentError(
                f"reading configuration {side}: a record has all settings; give its id alone, and facts_dir"
            )
        found = settings_of.of_record(recorded(str(given["record"])))
        return {**found, "env": {name: value for name, value in found["env"].items() if name not in passed_on}}
    return settings_of.merge(base, {} if given is None else given, f"configuration {side}")


def _explain_starts(document: Mapping[str, Any], asked: explain_plan.Plan) -> int:
    # Every step is a chance to be fooled, so more steps need more starts to tell anything.
    default = experiment_plan.DEFAULT_STARTS + (1 if len(asked.differences) > 6 else 0)
    return whole(document["parameters"].get("starts"), "starts", default)


def _exploring(document: Mapping[str, Any]) -> tuple[tuple[Candidate, ...], tuple[Slot, ...]]:
    """The points of the path that have no figures of its own stage yet."""
    asked = _explained(document)
    try:
        way = _way(document, asked)
    except ExperimentError:
        # One of the two does not run: the end says so.
        return (), ()
    last = document["trials"][-1]
    if last["stage"] == 1 and explain_plan.needs_second_stage(asked):
        combos = way.combos
    else:
        known = {trial["candidate"] for trial in document["trials"]}
        combos = tuple(combo for combo in way.combos if asked.name(combo) not in known)
    names = [asked.name(combo) for combo in combos]
    count = _explain_starts(document, asked)
    slots = experiment_plan.rounds(names, count, last["round"] + 1, last["stage"] + 1)
    return tuple(asked.candidate(combo) for combo in combos), slots


def _way(document: Mapping[str, Any], asked: explain_plan.Plan) -> explain_plan.Path:
    plain = _values(document, A, 1)
    alone = {
        index: explain_plan.effect(plain, _values(document, asked.name(frozenset([index])), 1))
        for index in asked.everything
    }
    return explain_plan.path(asked, alone, _broken(document, asked))


def _broken(document: Mapping[str, Any], asked: explain_plan.Plan) -> list[explain_plan.Combo]:
    """The sets of differences that do not run: none of their trials worked."""
    out = {
        entry["name"]
        for entry in document["candidates"]
        if entry["state"] == experiment_state.UNSUPPORTED
        or (
            experiment_state.failures(experiment_state.trials_of(document, entry["name"]))
            and not any(
                one["state"] == experiment_state.DONE for one in experiment_state.trials_of(document, entry["name"])
            )
        )
    }
    indexes = sorted(asked.everything)
    combos = [frozenset(i for i in indexes if number >> i & 1) for number in range(2 ** len(indexes))]
    return [combo for combo in combos if asked.name(combo) in out]


def _explanation(document: Mapping[str, Any], ratio: explain_plan.Ratio) -> dict[str, Any]:
    asked = _explained(document)
    notes: list[str] = []
    try:
        way = _way(document, asked)
        on_path, alone, starts = {}, {}, len(document["trials"])
        for combo in way.combos:
            name = asked.name(combo)
            later = [one["stage"] for one in experiment_state.trials_of(document, name) if one["stage"] > 1]
            values = [value for stage in sorted(set(later)) for value in _values(document, name, stage)]
            if not values and (later or explain_plan.needs_second_stage(asked)):
                notes.append(f"{name} has figures of the first part only")
            elif later and min(later) > 2:
                notes.append(f"{name} was measured after the other points of the path")
            on_path[combo] = values or _values(document, name, 1)
            own = experiment_state.trials_of(document, name)
            starts = min(starts, sum(one["state"] == experiment_state.DONE for one in own))
        for index in asked.everything:
            alone[index] = (_values(document, A, 1), _values(document, asked.name(frozenset([index])), 1))
        found = _like_for_like(asked, way, explain_plan.result(asked, way, on_path, alone, ratio, notes, starts))
    except ExperimentError as error:
        found = {
            "a": {"label": A, "settings": dict(asked.a)},
            "b": {"label": B, "settings": dict(asked.b)},
            "steps": [],
            "total": None,
            "notes": [str(error)],
            "breakdown": None,
        }
    found["concurrency"] = _concurrency(document)
    return found


def _like_for_like(asked: explain_plan.Plan, way: explain_plan.Path, found: dict[str, Any]) -> dict[str, Any]:
    """An explanation in which no step from or to speculative decoding has a verdict."""
    speculates = [speculation.in_args(asked.settings(combo).get("args")) for combo in way.combos]
    if len(set(speculates)) < 2:
        return found
    steps = [
        {**step, "verdict": "not_comparable"} if before != after else step
        for step, before, after in zip(found["steps"], speculates, speculates[1:])
    ]
    total = found["total"]
    if speculates[0] != speculates[-1]:
        total = {**total, "verdict": "not_comparable"}
    return {**found, "steps": steps, "total": total, "notes": [*found["notes"], f"not compared: {speculation.WHY_NOT}"]}


def _values(document: Mapping[str, Any], name: str, stage: int) -> list[float]:
    """Output tok/s of each start, or of the repetitions when there was only one start."""
    concurrency = _concurrency(document)
    own = experiment_state.trials_of(document, name, stage)
    points = [
        point
        for one in own
        if one["state"] == experiment_state.DONE and one["figures"]
        for point in one["figures"]["points"]
        if point["concurrency"] == concurrency and point["valid"]
    ]
    values = points[0]["values"] if len(points) == 1 and len(own) == 1 else [point["output_tok_s"] for point in points]
    return [value for value in values if value is not None and value > 0]


def _concurrency(document: Mapping[str, Any]) -> int | None:
    """Where the figures are taken: as asked, or the largest that A was measured at."""
    asked = document["request"].get("concurrency")
    if asked is not None:
        return whole(asked, "concurrency", 1, most=1_000_000)
    found = [
        point["concurrency"]
        for one in experiment_state.trials_of(document, A)
        if one["state"] == experiment_state.DONE and one["figures"]
        for point in one["figures"]["points"]
        if point["valid"] and isinstance(point["concurrency"], int)
    ]
    return max(found, default=None)
