# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is one configuration faster than another, or is it noise? The verdict over two sets of recorded runs.

Everything here is of b against a: +20 % output tok/s means that b gives a fifth more. `faster` always means better,
also for latencies, where less is better. docs/comparison.md tells the method and how often it is wrong.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import comparability, comparison_units, permutation
from ansible_collections.tokforge.sglang.plugins.module_utils.comparison_units import METRICS, Units, mapping
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole
from ansible_collections.tokforge.sglang.plugins.module_utils.record_differences import differences

FASTER, SLOWER, NO_GAIN, NOT_COMPARABLE = "faster", "slower", "no_measurable_gain", "not_comparable"
#: A change below this is not worth a word, however certain it is (percent).
TIE_PERCENT = 1.0
AB, BASELINE, SWEEP = "ab", "baseline", "sweep"

Records = Sequence[Mapping[str, Any]]


class ComparisonError(Exception):
    """What is asked for makes no sense; the text says what to ask."""


def compare(
    a: Records,
    b: Records,
    *,
    kind: str = AB,
    metric: str = "output_tok_s",
    concurrency: int | None = None,
    tie_percent: float = TIE_PERCENT,
    restarts: bool = False,
    labels: tuple[str, str] | None = None,
    recorded_at: str = "",
) -> dict[str, Any]:
    """The comparison of the runs `b` with the runs `a`, as it is recorded; docs/comparison.md has its keys.

    :param a: records of one configuration, all measured in the same way; likewise `b`.
    :param concurrency: the point that counts. It is then tested by itself, and gives the verdict.
    :param tie_percent: a change that is certain but smaller than this is no measurable gain.
    :param restarts: the server was started anew before each record, also where a record does not name its start.
    :param labels: what the sides are called; made from their versions and backends when not given.
    Raises ComparisonError for a metric, a concurrency or a tie that is none. Odd records are not comparable.
    """
    _check(metric, concurrency, tie_percent)
    a, b = [mapping(record) for record in a], [mapping(record) for record in b]
    names = labels or (label(a), label(b))
    found: dict[str, Any] = {
        "id": _identity(kind, a, b, metric, concurrency, tie_percent, recorded_at),
        "recorded_at": recorded_at,
        "kind": kind,
        "a": _side(names[0], a),
        "b": _side(names[1], b),
        "verdict": NOT_COMPARABLE,
        "why": "",
        "metric": metric,
        "unit": comparison_units.REPETITION,
        "points": [],
        "differences": differences(a[-1], b[-1]) if a and b else [],
        "regression": None,
        "notes": [],
    }
    against = comparability.obstacles(a, b)
    if against:
        return {**found, "why": f"cannot be compared: {'; '.join(against)}"}
    common, left_out = comparability.common_points(a, b, metric)
    found["notes"] = [*comparability.notes(a, b), *(f"left out: {reason}" for reason in left_out if common)]
    if concurrency is not None and concurrency not in common:
        why = next((reason for reason in left_out if _concerns(reason, concurrency)), "no run has measured it")
        return {**found, "why": f"cannot be compared at concurrency {concurrency}: {why}"}
    if not common:
        return {**found, "why": f"no point in common: {'; '.join(left_out) or 'the runs have no points'}"}
    units = comparison_units.choose(
        comparison_units.repetitions(a, common, metric, restarts),
        comparison_units.repetitions(b, common, metric, restarts),
    )
    found["unit"] = units.unit
    found["a"]["starts"], found["b"]["starts"] = units.starts_a, units.starts_b
    found["notes"] += units.notes
    found["points"] = [_described(place, value, metric, units, units.why_not) for place, value in enumerate(common)]
    if units.why_not:
        return {**found, "why": units.why_not}
    tests, notes = _tested(units, common, concurrency)
    found["notes"] += notes
    found["points"] = [{**point, **_judged(test, metric, tie_percent)} for point, test in zip(found["points"], tests)]
    found["verdict"], why = _overall(found["points"], concurrency)
    return {**found, "why": f"{why}; {len(units.a)} against {len(units.b)} {units.unit}s"}


def label(records: Records) -> str:
    """What a side is called: release and backend of its newest run."""
    context = mapping(records[-1].get("context")) if records else {}
    words = [context.get("sglang_version"), context.get("backend")]
    return " ".join(word for word in words if isinstance(word, str) and word) or "unknown"


def _check(metric: str, concurrency: int | None, tie_percent: float) -> None:
    if metric not in METRICS:
        raise ComparisonError(f"comparison by {metric!r}: no such figure; use one of {', '.join(METRICS)}")
    if concurrency is not None and not (is_whole(concurrency) and concurrency > 0):
        raise ComparisonError(f"comparison at concurrency {concurrency!r}: no number of requests; use 1 or more")
    if isinstance(tie_percent, bool) or not isinstance(tie_percent, (int, float)) or not 0 <= tie_percent < 100:
        raise ComparisonError(f"comparison with tie_percent {tie_percent!r}: no share; use 0 to below 100")


def _identity(*parts: Any) -> str:
    """16 hex digits, equal for the same runs compared in the same way."""
    named = [[record.get("id") for record in part] if isinstance(part, list) else part for part in parts]
    return hashlib.sha256(json.dumps(named, default=str).encode()).hexdigest()[:16]


def _side(name: str, records: Records) -> dict[str, Any]:
    return {
        "label": name,
        "fingerprint": records[-1].get("fingerprint") if records else None,
        "ids": [record.get("id") for record in records],
        "starts": len({start for record in records if (start := comparison_units.start_id(record))}),
    }


def _concerns(reason: str, concurrency: int) -> bool:
    return reason.startswith((f"concurrency {concurrency} ", f"concurrency {concurrency}:"))


def _described(place: int, concurrency: int, metric: str, units: Units, why: str) -> dict[str, Any]:
    """A point before it is judged."""
    return {
        "concurrency": concurrency,
        "metric": metric,
        **{name: _summary([unit[place] for unit in side]) for name, side in (("a", units.a), ("b", units.b))},
        "change_percent": None,
        "band_percent": None,
        "p_value": None,
        "verdict": NOT_COMPARABLE,
        "why": why,
    }


def _summary(figures: Sequence[float]) -> dict[str, Any]:
    return {"n": len(figures), "median": median(figures), "least": min(figures), "most": max(figures)}


def _tested(
    units: Units, common: Sequence[int], concurrency: int | None
) -> tuple[list[permutation.PointTest], list[str]]:
    """The test of every point, and what is to be said of it."""
    result = permutation.compare(units.a, units.b)
    tests, notes = list(result.points), []
    if concurrency is not None and len(common) > 1:
        # It was named before its figures were seen, so it pays nothing for the others.
        place = common.index(concurrency)
        alone = permutation.compare([(unit[place],) for unit in units.a], [(unit[place],) for unit in units.b])
        tests[place] = alone.points[0]
        notes.append(f"concurrency {concurrency} is tested by itself, the other points all together")
    if not result.exact:
        notes.append(f"p-values are from {result.labelings} labelings drawn with a fixed seed: there are too many")
    if result.attainable > permutation.ALPHA and (concurrency is None or len(common) == 1):
        needed, found = permutation.units_needed(len(common)), min(len(units.a), len(units.b))
        told = f"the least p-value is {result.attainable:.2g}, the bands hold at {result.level * 100:.0f} %"
        notes.append(
            f"{len(common)} points are too many for so few {units.unit}s ({told}): measure {needed} a side, or name "
            "the concurrency that counts"
            if needed > found
            else f"too many figures are equal to tell a difference ({told}): measure more often"
        )
    return tests, notes


def _judged(test: permutation.PointTest, metric: str, tie_percent: float) -> dict[str, Any]:
    change, low, high = ((ratio - 1) * 100 for ratio in (test.ratio, test.low, test.high))
    told = METRICS[metric]
    figures = f"{told.words} {change:+.1f} %, band {low:+.1f} to {high:+.1f} %, p = {test.p_value:.2g}"
    if not test.differs:
        verdict, why = NO_GAIN, f"within the noise: {figures}"
    elif abs(change) < tie_percent:
        verdict, why = NO_GAIN, f"certain, but below {tie_percent:g} %: {figures}"
    else:
        verdict = FASTER if (change > 0) == told.higher_is_better else SLOWER
        why = f"{verdict}: {figures}"
    return {
        "change_percent": change,
        "band_percent": [low, high],
        "p_value": test.p_value,
        "verdict": verdict,
        "why": why,
    }


def _overall(points: Sequence[Mapping[str, Any]], concurrency: int | None) -> tuple[str, str]:
    """The verdict over all points, and the sentence to it."""
    if concurrency is not None:
        [point] = [point for point in points if point["concurrency"] == concurrency]
        return str(point["verdict"]), _at(point)
    faster, slower = ([point for point in points if point["verdict"] == verdict] for verdict in (FASTER, SLOWER))
    if faster and slower:
        where = [", ".join(str(point["concurrency"]) for point in side) for side in (faster, slower)]
        return NOT_COMPARABLE, f"faster at {where[0]}, slower at {where[1]}: name the concurrency that counts"
    decided = faster or slower
    most = max(decided or points, key=lambda point: abs(point["change_percent"]))
    if not decided:
        others = f", the largest change of {len(points)} points" if len(points) > 1 else ""
        return NO_GAIN, f"{_at(most)}{others}"
    others = f", and {most['verdict']} at {len(decided)} of {len(points)} points" if len(points) > 1 else ""
    return str(most["verdict"]), f"{_at(most)}{others}"


def _at(point: Mapping[str, Any]) -> str:
    return f"{point['why']} at concurrency {point['concurrency']}"
