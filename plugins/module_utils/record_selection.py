# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which recorded runs are meant by latest, baseline, best, previous, a run's id, or a fingerprint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import comparability
from ansible_collections.tokforge.sglang.plugins.module_utils.comparability import UNKNOWN, hardware_kind
from ansible_collections.tokforge.sglang.plugins.module_utils.comparison_units import figure, mapping, points

LATEST, BASELINE, BEST, PREVIOUS = "latest", "baseline", "best", "previous"
# These mean a run in relation to the other side.
RELATIVE = (BASELINE, BEST, PREVIOUS)

Record = Mapping[str, Any]


def both(
    document: Mapping[str, Any], a: str, b: str, concurrency: int | None = None
) -> tuple[list[Record], list[Record], list[str]]:
    """The records of the sides, and a sentence for each that is not there."""
    if a in RELATIVE and b in RELATIVE:
        # One of them needs something to be relative to.
        first = second = select(document, LATEST)
    else:
        first = [] if a in RELATIVE else select(document, a)
        second = [] if b in RELATIVE else select(document, b)
    sides = {
        "a": select(document, a, second, concurrency) if a in RELATIVE else first,
        "b": select(document, b, first, concurrency) if b in RELATIVE else second,
    }
    missing = [
        f"there is no run on record for {name} ({wanted})" for name, wanted in (("a", a), ("b", b)) if not sides[name]
    ]
    return sides["a"], sides["b"], missing


def select(
    document: Mapping[str, Any], wanted: str, other: list[Record] | None = None, concurrency: int | None = None
) -> list[Record]:
    """The records that are meant; empty when there are none.

    latest: the newest one, valid or not. A run's id: that run. A fingerprint: all valid runs of it, the oldest first.
    Relative to the newest record of the `other` side, of the same model, hardware and engine:
    baseline: the one of its own fingerprint when it was declared, else the newest declared one, else that of its own
    fingerprint, else the newest; what can be compared with the run comes before all others. best: the valid run that
    can be compared with the most output tok/s at `concurrency`, or at the highest of the other side, whose own runs do
    not count. previous: the newest valid run before it that can be compared.
    """
    if wanted == LATEST:
        latest = document.get("latest")
        return [latest] if isinstance(latest, Mapping) else []
    known = list(records(document))
    if wanted not in RELATIVE:
        named = [record for record in known if record.get("id") == wanted]
        return named[:1] or [
            record for record in known if record.get("fingerprint") == wanted and record.get("valid") is True
        ]
    if not other:
        return []
    to = other[-1]
    if wanted == BASELINE:
        return _baseline(document, to)
    own = [record.get("id") for record in other]
    rivals = [
        record
        for record in known
        if record.get("valid") is True and record.get("id") not in own and _alike(record, to) and _fits(record, to)
    ]
    if wanted == PREVIOUS:
        before = [record for record in rivals if _time(record) < _time(to)]
        return before[-1:]
    at = concurrency if concurrency is not None else max(points(to), default=0)
    rated = [(rate, record) for record in rivals if (rate := _rate(record, at)) is not None]
    return [max(rated, key=lambda pair: pair[0])[1]] if rated else []


def fastest_content(document: Mapping[str, Any]) -> str | None:
    """The content id (release_store.py) of the release with the most output tok/s on record.

    Of the valid runs that can be compared with the newest one, at its highest concurrency; None when there is none.
    """
    latest = select(document, LATEST)
    best = select(document, BEST, latest)
    at = max(points(latest[-1]), default=0) if latest else 0
    rated = [
        (rate, record)
        for record in [*latest, *best]
        if record.get("valid") is True and (rate := _rate(record, at)) is not None
    ]
    if not rated:
        return None
    content = mapping(max(rated, key=lambda pair: pair[0])[1].get("context")).get("content_id")
    return content if isinstance(content, str) else None


def records(document: Mapping[str, Any]) -> Iterator[Record]:
    """All different records of a document, the oldest first: history, and what is kept beside it."""
    found: dict[Any, Record] = {}
    listed: list[Any] = [*_list(document.get("history")), document.get("latest"), document.get("baseline")]
    for result in _results(document):
        listed += [result.get("latest"), result.get("baseline")]
    for place, record in enumerate(listed):
        if isinstance(record, Mapping):
            identity = record.get("id")
            found.setdefault(identity if isinstance(identity, str) else place, record)
    yield from sorted(found.values(), key=_time)


def _baseline(document: Mapping[str, Any], to: Record) -> list[Record]:
    candidates: list[tuple[tuple[bool, bool, bool, bool, str], Record]] = []
    for result in _results(document):
        record = result.get("baseline")
        if isinstance(record, Mapping) and _alike(record, to):
            same = record.get("fingerprint") == to.get("fingerprint")
            declared = result.get("declared") is True
            candidates.append(((_fits(record, to), declared and same, declared, same, _time(record)), record))
    if candidates:
        return [max(candidates, key=lambda pair: pair[0])[1]]
    # Documents of the first schema have one baseline.
    single = document.get("baseline")
    return [single] if isinstance(single, Mapping) else []


def _alike(record: Record, other: Record) -> bool:
    """Whether two runs are of the same model, on the same hardware as far as it is known, by the same engine."""
    kinds = {hardware_kind(record), hardware_kind(other)} - {UNKNOWN}
    return len(kinds) < 2 and _subject(record) == _subject(other)


def _fits(record: Record, other: Record) -> bool:
    """Whether they were measured in the same way at a point at least; the prefix cache of their start is let aside.

    Of an invalid run nothing can be told; that is for the comparison to say.
    """
    if other.get("valid") is not True:
        return True
    return comparability.misfit({**record, "start": None}, {**other, "start": None}) == ""


def _subject(record: Record) -> tuple[Any, Any]:
    model = mapping(mapping(record.get("context")).get("model"))
    return mapping(record.get("engine")).get("name"), model.get("served_name")


def _rate(record: Record, concurrency: int) -> float | None:
    point = points(record).get(concurrency)
    return figure(point.get("output_tok_s")) if point else None


def _time(record: Record) -> str:
    told = record.get("recorded_at")
    return told if isinstance(told, str) else ""


def _results(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [result for result in _list(document.get("results")) if isinstance(result, Mapping)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
