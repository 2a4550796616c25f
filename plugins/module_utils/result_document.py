# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the fact file holds: records, the latest, baseline and best of each configuration, comparisons, sweeps.

Pure: documents in, documents out. docs/facts.md and docs/facts.schema.json describe them for users. Keys that this
version does not know are kept, wherever they stand.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import comparability
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_points import METRICS, spread
from ansible_collections.tokforge.sglang.plugins.module_utils.comparison_units import mapping
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import finite, is_whole

SCHEMA_VERSION = 2
# The oldest schema whose programs can read what this one writes, and add to it without loss.
COMPATIBLE_WITH = 2

HISTORY_LIMIT = 50
#: Of them at least so many that are no trials of experiments, when there are any.
SERVED_LIMIT = 10
#: Configurations that are kept: of more, those that were measured longest ago go, unless they are a declared baseline.
RESULTS_LIMIT = 32
#: Lists beside the history, and how many of each are kept, the newest last.
LISTS = {"comparisons": 20, "sweeps": 10, "explanations": 10}

UNKNOWN = "unknown"

#: Why there is no baseline where nothing was declared either.
NOTHING_BEFORE = "nothing was measured before it"

# What is read of a record. It may hold more.
_RECORD = {
    "id": str,
    "recorded_at": str,
    "fingerprint": str,
    "valid": bool,
    "reasons": list,
    "points": list,
    "raw_dir": str,
}
# What records of schema 1 do not have.
_SINCE_2: Mapping[str, Any] = {
    "configuration": None,
    "hardware": UNKNOWN,
    "gpu_count": 0,
    "start": None,
    "preflight": None,
    "experiment": None,
}


class DocumentError(Exception):
    """Not a document of ours."""


class NewerError(DocumentError):
    """Written by a version of the collection that this one does not understand."""

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message)
        self.version = version


def empty() -> dict[str, Any]:
    """A document without results."""
    return {
        "schema_version": SCHEMA_VERSION,
        "compatible_with": COMPATIBLE_WITH,
        "latest": None,
        "history": [],
        "results": [],
        **{name: [] for name in LISTS},
    }


def read(document: Any) -> dict[str, Any]:
    """A document of any schema as one of this schema, or of a newer one that says it is compatible.

    Raises DocumentError for what is none of ours, NewerError for one that must not be touched.
    """
    if not isinstance(document, Mapping):
        raise DocumentError(f"a {type(document).__name__}, not an object")
    version = document.get("schema_version")
    if not is_whole(version) or version < 1:
        raise DocumentError(f"schema_version is {version!r}")
    compatible = document.get("compatible_with", version)
    if version > SCHEMA_VERSION and not (is_whole(compatible) and compatible <= SCHEMA_VERSION):
        raise NewerError(
            f"written with schema {version}, this version of tokforge.sglang knows {SCHEMA_VERSION}", version
        )
    found = {**empty(), **document}
    latest = found["latest"]
    if not (latest is None or isinstance(latest, Mapping)):
        raise DocumentError(f"latest is a {type(latest).__name__}, not an object")
    for name in ("history", "results", *LISTS):
        if not isinstance(found[name], list) or not all(isinstance(entry, Mapping) for entry in found[name]):
            raise DocumentError(f"{name} is not a list of objects")
    wrong = _wrong_fields(latest) if latest is not None else []
    if wrong:
        raise DocumentError(f"latest is no record, missing or wrong: {', '.join(wrong)}")
    return _upgraded(found) if version == 1 else found


def _wrong_fields(record: Mapping[str, Any]) -> list[str]:
    wrong = [name for name, kind in _RECORD.items() if not isinstance(record.get(name), kind)]
    for name, kind in (("reasons", str), ("points", dict)):
        if name not in wrong and not all(isinstance(item, kind) for item in record[name]):
            wrong.append(name)
    return wrong


def _upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """From schema 1: a latest record and a history, each point measured once, and a baseline that was always null."""
    history = [record_of_1(record) for record in document["history"]]
    latest = record_of_1(document["latest"]) if document["latest"] is not None else None
    upgraded = {**document, **empty(), "history": [], "latest": None}
    if upgraded.get("baseline") is None:
        upgraded.pop("baseline", None)
    for record in history:
        # An entry of the history that is damaged must not take the others with it.
        upgraded = append(upgraded, record) if not _wrong_fields(record) else _kept(upgraded, record)
    return {**upgraded, "latest": latest}


def _kept(document: dict[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
    return {**document, "history": _remembered([*document["history"], record])}


def record_of_1(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record of schema 1 as one of this schema: each figure is its only repetition."""
    points = record.get("points")
    return {
        **_SINCE_2,
        **record,
        "points": [_point_of_1(point) if isinstance(point, Mapping) else point for point in points]
        if isinstance(points, list)
        else points,
    }


def _point_of_1(point: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: [finite(point.get(name))] for name in METRICS}
    spreads = {name: spread(found) for name, found in values.items()}
    return {"repetitions": 1, "values": values, "spread": spreads, "gpu": None, "roofline": None, **point}


def append(
    document: Mapping[str, Any], record: Mapping[str, Any], worse_than: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """A copy with `record` as the latest, as the last of the history, and in its configuration's result.

    A trial of an experiment is not the latest: it says nothing about what serves. What failed the gate against
    `worse_than` is no baseline: that one is it for the new configuration too, until another is declared.
    """
    entry = dict(record)
    return {
        **document,
        "latest": document["latest"] if entry.get("experiment") else entry,
        "history": _remembered([*document["history"], entry]),
        "results": _bounded([*_others(document["results"], entry), _result(document["results"], entry, worse_than)]),
    }


def _remembered(history: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The newest records, among them the newest of what served: a large sweep must not take all of them away."""
    served = [place for place, one in enumerate(history) if not one.get("experiment")][-SERVED_LIMIT:]
    room = HISTORY_LIMIT - len(served)
    others = [place for place in range(len(history)) if place not in served]
    kept = {*served, *(others[-room:] if room else [])}
    return [one for place, one in enumerate(history) if place in kept]


def add(document: Mapping[str, Any], name: str, item: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with `item` as the last of the list `name`, which is one of LISTS. One with its id is replaced."""
    others = [one for one in document[name] if one.get("id") != item.get("id") or item.get("id") is None]
    return {**document, name: [*others, dict(item)][-LISTS[name] :]}


def with_baseline(document: Mapping[str, Any], record_id: str) -> dict[str, Any]:
    """A copy in which a valid record is what later ones of its model, hardware and workload are held against.

    One that was declared before stays declared where it is no other choice of the same: measured by another engine, or
    with other lengths, so that the two can never be compared.
    Raises DocumentError when no such record is kept, or it is not valid.
    """
    record = next(
        (one for one in [document["latest"], *document["history"]] if one and one.get("id") == record_id), None
    )
    if record is None or record.get("valid") is not True:
        why = "is not valid" if record else "is not in the history"
        raise DocumentError(f"record {record_id} {why}, so it cannot be a baseline")
    known = list(document["results"])
    if not any(_key(entry) == key(record) for entry in known):
        # Its configuration was measured so long ago that it is not among the results any more.
        known = _bounded([*known, _result(known, record)])
    results = []
    for entry in known:
        if _key(entry) == key(record):
            results.append({**entry, "baseline": dict(record), "declared": True})
        elif (entry.get("model"), entry.get("hardware")) == key(record)[:2] and _replaced(entry, record):
            results.append({**entry, "declared": False})
        else:
            results.append(entry)
    return {**document, "results": results}


def _replaced(entry: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Whether a result of the same machine is no declared one any more, now that a record is declared."""
    before = entry.get("baseline")
    # Two on one start of the server are the same workload, although the prefix cache may keep one from being compared
    # with the other: nothing else is asked of a start.
    return (
        not (entry.get("declared") is True and _is_record(before))
        or comparability.misfit(_unstarted(before), _unstarted(record)) == ""
    )


def _unstarted(record: Any) -> dict[str, Any]:
    return {**record, "start": None}


def is_declared(document: Mapping[str, Any], record_id: str) -> bool:
    """Whether a record is the declared baseline of its model and hardware."""
    return any(
        entry.get("declared") is True and _is_record(entry.get("baseline")) and entry["baseline"]["id"] == record_id
        for entry in document["results"]
    )


def baseline_for(document: Mapping[str, Any], record: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """What a record is held against, and why that: a declared baseline of its model and hardware that it can be
    compared with, otherwise the first valid measurement of its configuration, otherwise the newest valid one of another
    configuration that it can be compared with, or what that one fell behind. None when nothing was measured before, or
    when one was declared and nothing can be compared.

    Of several declared ones it is the one with the most points in common, then the newest. Only what the same engine
    measured: results of two engines are never compared.
    """
    machine = [
        entry
        for entry in document["results"]
        if (entry.get("model"), entry.get("hardware")) == key(record)[:2]
        and _is_record(entry.get("baseline"))
        and entry["baseline"]["id"] != record["id"]
    ]
    declared: list[Mapping[str, Any]] = [entry["baseline"] for entry in machine if entry.get("declared") is True]
    against = [comparability.misfit(base, record) for base in declared]
    fitting = [base for base, reason in zip(declared, against) if not reason]
    if fitting:
        return dict(max(fitting, key=functools.partial(_closeness, record))), "the declared baseline"
    told = _told_misfits(declared, against)
    own = next((one for one in machine if _key(one) == key(record) and one.get("engine") == _engine(record)), None)
    if own is not None and own.get("declared") is True:
        # The same was measured in the same way: what is against it (the prefix cache) is for the comparison to say.
        return dict(own["baseline"]), "the declared baseline"
    if own is not None:
        first = own["baseline"].get("fingerprint") == record.get("fingerprint")
        why = "the first valid measurement of this configuration" if first else "what its first measurement fell behind"
        return dict(own["baseline"]), f"{why}{told}"
    others = [
        one
        for one in reversed(_before(document, record))
        if not one.get("experiment") and one.get("valid") is True and _of_machine(one, record)
    ]
    # What cannot be compared is told of, where nothing can be.
    alike = [one for one in others if not comparability.misfit(one, record)] or ([] if declared else others)
    if alike:
        return _not_behind(machine, alike[0], told)
    return None, f"nothing that can be compared with it was measured before it{told}" if told else NOTHING_BEFORE


def _not_behind(
    machine: Sequence[Mapping[str, Any]], before: Mapping[str, Any], told: str
) -> tuple[dict[str, Any], str]:
    """A measurement of another configuration, or what that one fell behind.

    A rollout that was undone for its speed must not make room for the next that is as slow.
    """
    own = next((one["baseline"] for one in machine if _key(one) == key(before)), before)
    if own.get("fingerprint") != before.get("fingerprint"):
        return dict(own), f"what the newest valid measurement before it fell behind{told}"
    return dict(before), f"the newest valid measurement before it{told}"


def _told_misfits(declared: Sequence[Mapping[str, Any]], against: Sequence[str]) -> str:
    """What was declared and is not taken, as the rest of a sentence; of many the newest."""
    if not declared:
        return ""
    newest = max(range(len(declared)), key=lambda place: str(declared[place]["recorded_at"]))
    return f"; the declared baseline {declared[newest]['id']} does not fit ({against[newest]})"


def _closeness(record: Mapping[str, Any], base: Mapping[str, Any]) -> tuple[int, str]:
    return len(comparability.common_points([base], [record], comparability.DECIDES)[0]), str(base["recorded_at"])


def _of_machine(other: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    return key(other)[:2] == key(record)[:2] and _engine(other) == _engine(record)


def _is_record(value: Any) -> bool:
    return isinstance(value, Mapping) and not _wrong_fields(value)


def _before(document: Mapping[str, Any], record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What is kept of the records that are older than one, the oldest first."""
    history = document["history"]
    place = next((index for index, other in enumerate(history) if other.get("id") == record["id"]), len(history))
    # The latest one is kept when the history has lost it.
    latest = [document["latest"]] if _is_record(document["latest"]) else []
    others = [one for one in latest if one["id"] != record["id"] and one not in history]
    return [*others, *history[:place]]


def key(record: Mapping[str, Any]) -> tuple[str, str, str]:
    """Model, hardware and fingerprint: records that are equal in these measured the same thing."""
    return model_of(record), str(record.get("hardware") or UNKNOWN), str(record.get("fingerprint"))


def model_of(record: Mapping[str, Any]) -> str:
    """The model that a record measured: its directory, and its revision where it has one."""
    context = record.get("context")
    found = context.get("model") if isinstance(context, Mapping) else None
    if not isinstance(found, Mapping) or not found.get("path"):
        return UNKNOWN
    return f"{found['path']}@{found['revision']}" if found.get("revision") else str(found["path"])


def label_of(record: Mapping[str, Any]) -> str:
    """A configuration in a few words for people; not unique."""
    context = record.get("context")
    found = context if isinstance(context, Mapping) else {}
    words = [str(found.get("sglang_version") or ""), str(found.get("backend") or "")]
    args = found.get("args")
    for name in ("tp-size", "dp-size", "ep-size", "pp-size"):
        value = args.get(name) if isinstance(args, Mapping) else None
        if value not in (None, 1, "1"):
            words.append(f"{name[:2]}={value}")
    gate = found.get("autotune_gate")
    if isinstance(gate, Mapping) and gate.get("gate"):
        words.append(f"gate {gate['gate']}")
    return " ".join(word for word in words if word) or UNKNOWN


def _key(entry: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    return entry.get("model"), entry.get("hardware"), entry.get("fingerprint")


def _others(results: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(entry) for entry in results if _key(entry) != key(record)]


def _result(
    results: Sequence[Mapping[str, Any]], record: Mapping[str, Any], worse_than: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The result of the record's configuration with this record in it."""
    model, hardware, fingerprint = key(record)
    before = next((dict(entry) for entry in results if _key(entry) == key(record)), {})
    valid = record.get("valid") is True
    return {
        "baseline": dict(worse_than or record) if valid else None,
        "declared": False,
        **{name: value for name, value in before.items() if name != "baseline" or _is_record(value)},
        "model": model,
        "hardware": hardware,
        "fingerprint": fingerprint,
        "engine": _engine(record),
        "label": label_of(record),
        "latest": dict(record),
        "best": _best(before.get("best"), record if valid else None),
    }


def _best(best: Any, record: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """The highest rate at each concurrency, and whose it is; entries that are damaged are left out."""
    entries = best if isinstance(best, list) else []
    found = {entry["concurrency"]: dict(entry) for entry in entries if _has_concurrency(entry)}
    for point in filter(_has_concurrency, record["points"] if record is not None else []):
        rate = finite(point.get("output_tok_s"))
        before = finite(found.get(point["concurrency"], {}).get("output_tok_s"))
        if record is not None and rate is not None and (before is None or rate > before):
            found[point["concurrency"]] = {
                "concurrency": point["concurrency"],
                "output_tok_s": rate,
                "id": record["id"],
                "recorded_at": record["recorded_at"],
            }
    return list(found.values())


def _has_concurrency(entry: Any) -> bool:
    return isinstance(entry, Mapping) and is_whole(entry.get("concurrency"))


def _engine(record: Mapping[str, Any]) -> str:
    engine = record.get("engine")
    return str(engine.get("name") or UNKNOWN) if isinstance(engine, Mapping) else UNKNOWN


def _bounded(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest ones; the one measured longest ago stands first."""
    while len(results) > RESULTS_LIMIT:
        # Never the last one: it is the one that was just measured. What served outlives what was only tried.
        loose = [entry for entry in results[:-1] if not entry.get("declared")]
        tried = [entry for entry in loose if mapping(entry.get("latest")).get("experiment")]
        oldest = next(iter([*tried, *loose]), results[0])
        results = [entry for entry in results if entry is not oldest]
    return results
