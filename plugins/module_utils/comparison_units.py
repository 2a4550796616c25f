# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What counts as one measurement when two sides are compared: a repetition, or a start of the server.

Repetitions on one start share what that start got: the memory's layout, the kernels that autotune chose, the order of
the ranks. Where starts differ among themselves, five repetitions of one start say nothing about the next start, and the
unit is the start, with the median of its repetitions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import permutation
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole

REPETITION, START = "repetition", "start"
#: Starts count as different from one another at this level. It is generous: to take different starts for alike makes
#: false alarms, to take alike ones for different only asks for more starts.
START_LEVEL = 0.10


@dataclass(frozen=True)
class Metric:
    """What a figure of a point is called, and which way is better."""

    words: str
    higher_is_better: bool


#: The figures of which a record keeps every repetition.
METRICS: Mapping[str, Metric] = {
    "output_tok_s": Metric("output tok/s", True),
    "input_tok_s": Metric("input tok/s", True),
    "total_tok_s": Metric("total tok/s", True),
    "request_s": Metric("requests/s", True),
    "ttft_median_ms": Metric("median TTFT", False),
    "ttft_p99_ms": Metric("p99 TTFT", False),
    "tpot_median_ms": Metric("median TPOT", False),
    "tpot_p99_ms": Metric("p99 TPOT", False),
    "itl_median_ms": Metric("median ITL", False),
    "itl_p99_ms": Metric("p99 ITL", False),
}


@dataclass(frozen=True)
class Repetition:
    """The figures of one repetition, one a point, and the start of the server it ran on ("" when nobody knows)."""

    start: str
    figures: tuple[float, ...]


@dataclass(frozen=True)
class Units:
    """The measurements that are compared, or in `why_not` why they cannot be."""

    a: tuple[tuple[float, ...], ...]
    b: tuple[tuple[float, ...], ...]
    unit: str
    starts_a: int
    starts_b: int
    why_not: str = ""
    notes: tuple[str, ...] = ()


def mapping(value: Any) -> Mapping[str, Any]:
    """A part of a record that should be an object; what is none is an empty one."""
    return value if isinstance(value, Mapping) else {}


def figure(value: Any) -> float | None:
    """A figure that can be a part of a ratio: a number above 0 that a clock or a counter could give."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1e-9 < value < 1e15:
        return None
    return float(value)


def points(record: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    """The points of a record by concurrency; of two with the same one the first."""
    found: dict[int, Mapping[str, Any]] = {}
    listed = record.get("points")
    for point in listed if isinstance(listed, list) else []:
        concurrency = mapping(point).get("concurrency")
        if is_whole(concurrency) and concurrency > 0:
            found.setdefault(concurrency, point)
    return found


def figures(point: Mapping[str, Any], metric: str) -> list[float]:
    """A metric's figure of each repetition; empty when one of them is none.

    A point without repetitions, as older versions recorded it, is one repetition.
    """
    listed = mapping(point.get("values")).get(metric)
    found = [figure(value) for value in (listed if isinstance(listed, list) else [point.get(metric)])]
    numbers = [value for value in found if value is not None]
    return numbers if len(numbers) == len(found) else []


def start_id(record: Mapping[str, Any]) -> str:
    """Which start of the server a record was made on, "" when it does not say."""
    found = mapping(record.get("start")).get("id")
    return found if isinstance(found, str) else ""


def repetitions(
    records: Sequence[Mapping[str, Any]], concurrencies: Sequence[int], metric: str, restarts: bool = False
) -> list[Repetition]:
    """The repetitions of all records of a side at these points.

    :param restarts: the server was started anew before each record, so one that does not name its start has its own.
    """
    found = []
    for place, record in enumerate(records):
        start = start_id(record) or (f"record {place}" if restarts else "")
        measured = points(record)
        columns = [figures(measured[value], metric) if value in measured else [] for value in concurrencies]
        found += [Repetition(start, row) for row in zip(*columns)]
    return found


def choose(a: Sequence[Repetition], b: Sequence[Repetition]) -> Units:
    """Which unit the figures allow, and the units."""
    starts_a, starts_b = _by_start(a), _by_start(b)
    counts = (len(starts_a), len(starts_b))
    if min(counts) >= permutation.LEAST_UNITS:
        return Units(_medians(starts_a), _medians(starts_b), START, *counts)
    notes = []
    if max(counts) > 1:
        p_value = permutation.groups_differ([list(starts_a.values()), list(starts_b.values())])
        if p_value <= START_LEVEL:
            why = (
                f"starts of the server differ among themselves ({_apart(starts_a, starts_b)}, p = {p_value:.2g}), so "
                f"each start counts once, and there are {counts[0]} of a and {counts[1]} of b: measure at least "
                f"{permutation.LEAST_UNITS} starts a side (benchmark.yml -e ab=...)"
            )
            return Units(_medians(starts_a), _medians(starts_b), START, *counts, why_not=why)
        seen = any(len(group) > 1 for side in (starts_a, starts_b) if len(side) > 1 for group in side.values())
        notes.append(
            f"starts of the server are alike as far as {counts[0]} of a and {counts[1]} of b can tell "
            f"(p = {p_value:.2g}), so each repetition counts"
            if seen
            else "whether starts of the server differ cannot be seen: there is one repetition a start"
        )
    units = Units(tuple(one.figures for one in a), tuple(one.figures for one in b), REPETITION, *counts)
    if min(len(a), len(b)) < permutation.LEAST_UNITS:
        why = (
            f"{_repetitions(len(a))} of a and {len(b)} of b are too few to tell a difference from noise: measure at "
            f"least {permutation.LEAST_UNITS} a side"
        )
        return Units(units.a, units.b, REPETITION, *counts, why_not=why, notes=tuple(notes))
    if 1 in counts:
        who = "each side is" if counts == (1, 1) else "one side is"
        # Records that do not name their start can be of several.
        known = "" not in starts_a and "" not in starts_b
        seen_of = (
            f"{who} of one start of the server" if known else "which starts of the server these are is not on record"
        )
        notes.append(
            f"{seen_of}: what changes from start to start is not in the band; benchmark.yml -e ab=... measures with "
            "restarts"
        )
    return Units(units.a, units.b, REPETITION, *counts, notes=tuple(notes))


def _repetitions(count: int) -> str:
    return "1 repetition" if count == 1 else f"{count} repetitions"


def _by_start(side: Sequence[Repetition]) -> dict[str, list[tuple[float, ...]]]:
    found: dict[str, list[tuple[float, ...]]] = {}
    for one in side:
        found.setdefault(one.start, []).append(one.figures)
    return found


def _medians(starts: Mapping[str, Sequence[tuple[float, ...]]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(median(column) for column in zip(*group)) for group in starts.values())


def _apart(*sides: Mapping[str, Sequence[tuple[float, ...]]]) -> str:
    """By how much the medians of starts of one configuration are apart, where they are the most."""
    return f"their medians are up to {max(_spreads(sides), default=0.0):.1f} % apart"


def _spreads(sides: Sequence[Mapping[str, Sequence[tuple[float, ...]]]]) -> Iterator[float]:
    for side in sides:
        for column in zip(*_medians(side)):
            yield (max(column) / min(column) - 1) * 100 if math.isfinite(max(column) / min(column)) else 0.0
