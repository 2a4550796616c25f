# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What an experiment remembers, so that a play that died goes on where it was: the document, and what happens to it.

Everything here is a function from a document to a new one. `experiment_files.py` reads and writes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import experiment_settings as settings_of
from ansible_collections.tokforge.sglang.plugins.module_utils.candidates import Candidate
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_plan import Slot
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import ExperimentError
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import finite, is_whole

SCHEMA_VERSION = 1
KINDS = ("ab", "sweep", "explain")
WAITING, RUNNING, DONE, FAILED, INVALID = "waiting", "running", "done", "failed", "invalid"
STATES = (WAITING, RUNNING, DONE, FAILED, INVALID)
STAGED, UNSUPPORTED = "staged", "unsupported"
#: So many failed or invalid trials of a candidate end its part in the experiment.
MOST_FAILURES = 2
#: Of a request, what only decides about the end: another objective is judged from the same trials.
_JUDGING = ("objective", "tie_percent")
_LONGEST_REASON = 2000
#: How times are written, in UTC.
TIME = "%Y-%m-%dT%H:%M:%SZ"


def identify(kind: str, request: Mapping[str, Any], base: Mapping[str, Any], parameters: Mapping[str, Any]) -> str:
    """The id of an experiment: the same call has the same id, which is how it finds its trials again.

    Raises ExperimentError for what is not plain JSON, and for an unknown kind.
    """
    if kind not in KINDS:
        raise ExperimentError(f"reading the kind of experiment: {kind[:50]!r} is none of {', '.join(KINDS)}; give one")
    asked = {name: value for name, value in request.items() if name not in _JUDGING}
    try:
        return f"{kind}-{settings_of.digest([kind, asked, settings_of.key(base), dict(parameters)])[:12]}"
    except (TypeError, ValueError, RecursionError) as error:
        raise ExperimentError(
            f"reading the request of the experiment: {error}; give texts, numbers, lists and mappings"
        ) from error


def new(
    kind: str,
    request: Mapping[str, Any],
    base: Mapping[str, Any],
    parameters: Mapping[str, Any],
    original_release: int | None,
    now: str,
) -> dict[str, Any]:
    """An experiment without candidates and trials. `now` is ISO 8601, UTC."""
    return {
        "schema_version": SCHEMA_VERSION,
        "id": identify(kind, request, base, parameters),
        "kind": kind,
        "request": dict(request),
        "base": dict(base),
        "parameters": dict(parameters),
        "original_release": original_release,
        "candidates": [],
        "trials": [],
        "finished": False,
        "abandoned": False,
        "result": None,
        "created_at": now,
        "updated_at": now,
    }


def with_candidates(document: Mapping[str, Any], found: Iterable[Candidate]) -> dict[str, Any]:
    """The document with candidates it does not have yet."""
    known = {entry["name"] for entry in document["candidates"]}
    more = [
        {
            "name": candidate.name,
            "settings": dict(candidate.settings),
            "differences": candidate.differences,
            "release": None,
            "state": WAITING,
            "reason": "",
        }
        for candidate in found
        if candidate.name not in known
    ]
    return {**document, "candidates": [*document["candidates"], *more]}


def with_trials(document: Mapping[str, Any], slots: Iterable[Slot], seed: int) -> dict[str, Any]:
    """The document with more trials at the end; those of a candidate that is out are skipped at once.

    All trials have the same seed: with other prompts they would not repeat the same measurement.
    """
    trials = list(document["trials"])
    for slot in slots:
        trials.append(
            {
                "number": len(trials) + 1,
                "candidate": slot.candidate,
                "round": slot.round,
                "stage": slot.stage,
                "seed": seed,
                "state": WAITING,
                "record_id": None,
                "reason": "",
                "skipped": False,
                "interruptions": 0,
                "figures": None,
                "began_at": None,
                "ended_at": None,
            }
        )
    return _skip_those_out({**document, "trials": trials, "finished": False})


def resumed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document at the begin of a play: a trial that was running when the last one died is to be done again."""
    trials = [
        {**trial, "state": WAITING, "interruptions": trial["interruptions"] + 1} if trial["state"] == RUNNING else trial
        for trial in document["trials"]
    ]
    return {**document, "trials": trials}


def checked_again(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with candidates that were not supported waiting again, and their trials: what was in the way (a full
    disk, a package index that did not answer, a driver) may be gone.
    """
    again = {entry["name"] for entry in document["candidates"] if entry["state"] == UNSUPPORTED}
    candidates = [
        {**entry, "state": WAITING, "reason": ""} if entry["name"] in again else entry
        for entry in document["candidates"]
    ]
    trials = [
        {**entry, "state": WAITING, "reason": "", "skipped": False}
        if entry["candidate"] in again and entry["skipped"]
        else entry
        for entry in document["trials"]
    ]
    return {**document, "candidates": candidates, "trials": trials}


def staged(document: Mapping[str, Any], name: str, release: int | None, reason: str = "") -> dict[str, Any]:
    """The document with a candidate that has a release, or (release None) is not supported for a reason.

    Raises ExperimentError for a candidate that is not there.
    """
    candidate(document, name)
    if release is None and not reason:
        raise ExperimentError(f"noting candidate {name}: there is neither a release nor a reason; give one of them")
    if release is not None and (not is_whole(release) or release < 1):
        raise ExperimentError(f"noting candidate {name}: {release!r} is no number of a release; give one from 1 on")
    change = {
        "release": release,
        "state": UNSUPPORTED if release is None else STAGED,
        "reason": reason[:_LONGEST_REASON] if release is None else "",
    }
    entries = [{**entry, **change} if entry["name"] == name else entry for entry in document["candidates"]]
    return _skip_those_out({**document, "candidates": entries})


def begun(document: Mapping[str, Any], number: int, now: str) -> tuple[dict[str, Any], str]:
    """The document with a trial that runs now, and why it must not run (empty: it may).

    Another trial that is still called running was interrupted. Raises ExperimentError for a trial that is not there.
    """
    wanted = trial(document, number)
    if wanted["state"] not in (WAITING, RUNNING):
        return dict(document), wanted["reason"] or f"it is {wanted['state']} already"
    return _with_trial(resumed(document), number, state=RUNNING, began_at=now), ""


def ended(
    document: Mapping[str, Any], number: int, now: str, record: Mapping[str, Any] | None = None, reason: str = ""
) -> dict[str, Any]:
    """The document with a trial that ended: with a record, valid or not, or with the reason why there is none.

    After two failures of a candidate its other trials are skipped. Raises ExperimentError.
    """
    wanted = trial(document, number)
    change: dict[str, Any] = {"ended_at": now, "record_id": None, "figures": None, "reason": reason[:_LONGEST_REASON]}
    if record is not None:
        told = record.get("experiment")
        if isinstance(told, Mapping) and told.get("candidate") not in (None, wanted["candidate"]):
            raise ExperimentError(
                f"noting trial {number}: record {record.get('id')} is of candidate {told.get('candidate')}, the trial "
                f"of {wanted['candidate']}; give the record that this trial made"
            )
        reasons = [text for text in _list(record.get("reasons")) if isinstance(text, str)]
        valid = record.get("valid") is True
        change.update(
            state=DONE if valid else INVALID,
            record_id=_text_or_none(record.get("id")),
            figures=figures(record),
            reason="" if valid else "; ".join([*([reason] if reason else []), *reasons])[:_LONGEST_REASON],
        )
        change["reason"] = change["reason"] or ("" if valid else "the record is not valid")
    elif not reason:
        raise ExperimentError(f"noting trial {number}: there is neither a record nor a reason; give one of them")
    else:
        change["state"] = FAILED
    return _skip_those_out(_with_trial(document, number, **change))


def figures(record: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a record: the history of the fact file is shorter than a long sweep. What is none is null."""
    points = [point for point in _list(record.get("points")) if isinstance(point, Mapping)]
    return {
        "fingerprint": _text_or_none(record.get("fingerprint")),
        "points": [
            {
                "output_tok_s": None,
                **{name: _finite(value) for name, value in point.items() if name.endswith(("_tok_s", "_ms"))},
                "concurrency": point["concurrency"] if is_whole(point.get("concurrency")) else None,
                "accept_length": _finite(point.get("accept_length")),
                "valid": point.get("valid", True) is True,
                "values": [_finite(value) for value in _list(_mapping(point.get("values")).get("output_tok_s"))],
                "power_w": [_finite(gpu.get("power_w")) for gpu in _list(point.get("gpu")) if isinstance(gpu, Mapping)],
            }
            for point in points
        ],
    }


def _finite(value: Any) -> float | None:
    known: float | None = value if finite(value) is not None else None
    return known


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def waiting(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The trials that are still to be done, in their order."""
    return [entry for entry in document["trials"] if entry["state"] in (WAITING, RUNNING)]


def candidate(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The candidate of that name. Raises ExperimentError."""
    found = next((entry for entry in document["candidates"] if entry["name"] == name), None)
    if found is None:
        names = ", ".join(entry["name"] for entry in document["candidates"][:10])
        raise ExperimentError(
            f"looking for candidate {name[:100]!r} in experiment {document['id']}: there is none; it has {names}"
        )
    return dict(found)


def trial(document: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The trial of that number. Raises ExperimentError."""
    found = next((entry for entry in document["trials"] if entry["number"] == number), None)
    if found is None:
        raise ExperimentError(
            f"looking for trial {number} in experiment {document['id']}: it has {len(document['trials'])}; give one of "
            "those that begin or next returned"
        )
    return dict(found)


def trials_of(document: Mapping[str, Any], name: str, stage: int | None = None) -> list[dict[str, Any]]:
    """The trials of a candidate, of one stage when given."""
    return [
        entry
        for entry in document["trials"]
        if entry["candidate"] == name and (stage is None or entry["stage"] == stage)
    ]


def failures(trials: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that were tried and failed or were not valid."""
    return [entry for entry in trials if entry["state"] in (FAILED, INVALID) and not entry["skipped"]]


def outcome(document: Mapping[str, Any], name: str) -> tuple[str, str]:
    """What became of a candidate, and why: measured, unsupported, failed, invalid or waiting."""
    entry = candidate(document, name)
    if entry["state"] == UNSUPPORTED:
        return UNSUPPORTED, str(entry["reason"])
    own = trials_of(document, name)
    bad = failures(own)
    if bad:
        return str(bad[-1]["state"]), str(bad[-1]["reason"])
    if not own or any(one["state"] in (WAITING, RUNNING) for one in own):
        return WAITING, ""
    return "measured", ""


def well_formed(document: Any) -> str:
    """Why a document is none of ours; empty when it is one. What it says is used without another look at its shape."""
    if not isinstance(document, dict):
        return f"it is a {type(document).__name__}"
    wrong = _unfit(document, _DOCUMENT)
    if not wrong:
        wrong = [
            name
            for name, shape in (("candidates", _CANDIDATE), ("trials", _TRIAL))
            if not all(isinstance(entry, dict) and not _unfit(entry, shape) for entry in document[name])
        ]
    return f"missing or wrong: {', '.join(wrong)}" if wrong else _contradiction(document)


def _contradiction(document: Mapping[str, Any]) -> str:
    """Parts of the right shape that do not belong together."""
    names = [entry["name"] for entry in document["candidates"]]
    numbers = [entry["number"] for entry in document["trials"]]
    result = document["result"] or {}
    if not numbers:
        return "it has no trials"
    if len(set(names)) < len(names):
        return "two candidates have one name"
    if len(set(numbers)) < len(numbers):
        return "two trials have one number"
    if not {entry["candidate"] for entry in document["trials"]} <= set(names):
        return "a trial is of no candidate"
    if any(entry["state"] == STAGED and entry["release"] is None for entry in document["candidates"]):
        return "a candidate is staged without a release"
    if document["kind"] == "explain" and "configurations" not in document:
        return "missing or wrong: configurations"
    if document["kind"] == "sweep" and result.get("winner") not in (None, *names):
        return "the winner is no candidate"
    return ""


Check = Callable[[Any], bool]


def _unfit(entry: Mapping[str, Any], shape: Mapping[str, tuple[Check, bool]]) -> list[str]:
    """The names of what is missing or not as it should be."""
    return [name for name, (fits, needed) in shape.items() if not (fits(entry[name]) if name in entry else not needed)]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return is_whole(value) and value >= 0


def _is_number(value: Any) -> bool:
    return is_whole(value) and value >= 1


def _is_time(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(datetime.strptime(value, TIME))
    except ValueError:
        return False


def _is_plain(value: Any) -> bool:
    """A mapping that can be written again: NaN is read, but it is no JSON."""
    try:
        return isinstance(value, dict) and bool(json.dumps(value, allow_nan=False))
    except (ValueError, RecursionError):
        return False


def _is_settings(value: Any) -> bool:
    return (
        _is_plain(value)
        and all(isinstance(value.get(name), dict) for name in ("args", "env"))
        and all(value.get(name) is None or isinstance(value[name], str) for name in settings_of.PLAIN)
    )


def _are_sides(value: Any) -> bool:
    return isinstance(value, dict) and _is_settings(value.get("a")) and _is_settings(value.get("b"))


def _are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _is_result(value: Any) -> bool:
    return _is_plain(value) and all(
        value.get(name) is None or isinstance(value[name], str) for name in ("winner", "verdict", "why")
    )


def _are_figures(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("points"), list)
        and all(isinstance(point, dict) and _is_point(point) for point in value["points"])
    )


def _is_point(point: Mapping[str, Any]) -> bool:
    numbers = [value for name, value in point.items() if name.endswith(("_tok_s", "_ms")) or name == "accept_length"]
    for name in ("values", "power_w"):
        if not isinstance(point.get(name), list):
            return False
        numbers += point[name]
    return (
        "output_tok_s" in point
        and _is_bool(point.get("valid"))
        and (point.get("concurrency") is None or is_whole(point["concurrency"]))
        and all(value is None or finite(value) is not None for value in numbers)
    )


def _or_none(fits: Check) -> Check:
    return lambda value: value is None or fits(value)


# What each part must be, and whether it must be there.
_DOCUMENT: Mapping[str, tuple[Check, bool]] = {
    "id": (_is_text, True),
    "kind": (lambda value: value in KINDS, True),
    "request": (_is_plain, True),
    "base": (_is_settings, True),
    "parameters": (_is_plain, True),
    "original_release": (_or_none(_is_number), True),
    "candidates": (lambda value: isinstance(value, list), True),
    "trials": (lambda value: isinstance(value, list), True),
    "finished": (_is_bool, True),
    "abandoned": (_is_bool, True),
    "result": (_or_none(_is_result), True),
    "created_at": (_is_text, True),
    "updated_at": (_is_text, True),
    "labels": (_are_texts, False),
    "why": (_is_text, False),
    "configurations": (_are_sides, False),
    "served": (_is_bool, False),
    "not_served": (_is_text, False),
}
_CANDIDATE: Mapping[str, tuple[Check, bool]] = {
    "name": (_is_text, True),
    "settings": (_is_settings, True),
    "differences": (_is_count, True),
    "release": (_or_none(_is_number), True),
    "state": (lambda value: value in (WAITING, STAGED, UNSUPPORTED), True),
    "reason": (_is_text, True),
}
_TRIAL: Mapping[str, tuple[Check, bool]] = {
    "number": (_is_number, True),
    "candidate": (_is_text, True),
    "round": (_is_count, True),
    "stage": (_is_count, True),
    "seed": (_is_count, True),
    "state": (lambda value: value in STATES, True),
    "record_id": (_or_none(_is_text), True),
    "reason": (_is_text, True),
    "skipped": (_is_bool, True),
    "interruptions": (_is_count, True),
    "figures": (_or_none(_are_figures), True),
    "began_at": (_or_none(_is_time), True),
    "ended_at": (_or_none(_is_time), True),
}


def _with_trial(document: Mapping[str, Any], number: int, **change: Any) -> dict[str, Any]:
    trials = [{**entry, **change} if entry["number"] == number else entry for entry in document["trials"]]
    return {**document, "trials": trials}


def _skip_those_out(document: Mapping[str, Any]) -> dict[str, Any]:
    """Trials that wait for a candidate that is not supported or failed twice are not made."""
    why: dict[str, str] = {}
    for entry in document["candidates"]:
        bad = failures(trials_of(document, entry["name"]))
        if entry["state"] == UNSUPPORTED:
            why[entry["name"]] = f"not supported: {entry['reason']}"
        elif len(bad) >= MOST_FAILURES:
            why[entry["name"]] = f"skipped after {len(bad)} failures: {bad[-1]['reason']}"
    trials = [
        {**entry, "state": FAILED, "reason": why[entry["candidate"]][:_LONGEST_REASON], "skipped": True}
        if entry["state"] == WAITING and entry["candidate"] in why
        else entry
        for entry in document["trials"]
    ]
    return {**document, "trials": trials}
