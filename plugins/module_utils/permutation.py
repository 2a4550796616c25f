# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Do two groups of measurements differ, and by how much? Exact, by ranks, for several points at once.

A unit is a vector of figures above 0, one for each measured point. When both groups come from the same source, every
way to label the units as "a" and "b" is as likely as the one that was seen. So the chance of what was seen is counted,
not assumed, whatever the distribution of the figures is; ranks keep one wild figure from deciding.

For each point the statistic is the rank sum of b (ties share their mean rank), less its mean, over its standard
deviation. Whole units are labelled anew, and the greatest statistic of all points is kept: a point's p-value is the
share of labelings whose greatest is at least its own. With it the chance to call any point different, when none is,
stays below the level, and points that move together cost less than independent ones.
Sources: F. Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1, 1945, for the statistic;
J. Hodges, E. Lehmann, "Estimates of location based on rank tests", Annals of Mathematical Statistics 34, 1963, for the
estimate; P. Westfall, S. Young, "Resampling-based multiple testing", 1993, for the maximum over points.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter

#: Chance to call at least one point different when none is.
ALPHA = 0.05
#: Units a side below which no verdict is given: 4 against 4 separate completely by chance in 2 of 70 cases, and one
#: more point makes that too often.
LEAST_UNITS = 5
#: Up to so many labelings are all looked at (10 against 10 has 184 756).
MOST_LABELINGS = 200_000
#: So many labelings are drawn where there are more.
DRAWS = 20_000
#: Fixed, so that the same figures always get the same verdict.
SEED = 20_260_314
#: Labelings of starts that are drawn to see whether starts differ.
GROUP_DRAWS = 499
# Sums of fractions in another order differ by rounding.
_HAIR = 1e-6

Units = Sequence[Sequence[float]]


@dataclass(frozen=True)
class PointTest:
    """One point: the ratio b/a (median of all pairs), its band, and its p-value over all points."""

    ratio: float
    low: float
    high: float
    p_value: float

    @property
    def differs(self) -> bool:
        """Whether the test and the band say so; with ties they can be apart, and then nothing is said."""
        return self.p_value <= ALPHA and not self.low <= 1.0 <= self.high


@dataclass(frozen=True)
class Result:
    """All points, and what could have been found.

    level: of the bands, for all points together when there is no difference, and for each point in any case; at least
    1 - ALPHA where `attainable` allows that.
    attainable: the least p-value that any point could have had with these units; above ALPHA nothing can be found.
    exact: all labelings were looked at; otherwise `labelings` of them were drawn.
    """

    points: tuple[PointTest, ...]
    level: float
    attainable: float
    labelings: int
    exact: bool


def least_p(a: int, b: int) -> float:
    """The p-value of complete separation of `a` units from `b` at a single point: 2/252 for 5 against 5."""
    return min(1.0, 2 / math.comb(a + b, b)) if a > 0 and b > 0 else 1.0


def units_needed(points: int) -> int:
    """Units a side with which a difference at one of so many independent points can be found."""
    units = LEAST_UNITS
    while least_p(units, units) * points > ALPHA:
        units += 1
    return units


def compare(a: Units, b: Units, alpha: float = ALPHA) -> Result:
    """Test b against a. Every unit has a figure above 0 for each point, in the same order.

    Raises ValueError for no units, no points, units of different length, or a figure that is none.
    """
    width = _width(a, b)
    columns_a, columns_b = list(zip(*a)), list(zip(*b))
    size_a, size_b = len(a), len(b)
    ranked = [_doubled_ranks([*x, *y]) for x, y in zip(columns_a, columns_b)]
    scales = [_Scale.of(ranks, size_b) for ranks in ranked]
    counts, total, exact = _greatest(ranked, scales, size_b)
    seen = [scale.standard(sum(ranks[size_a:])) for ranks, scale in zip(ranked, scales)]
    # Labelings drawn do not hold the one that was seen: it is counted as one more that is as great.
    extra = 0 if exact else 1
    tail, above = {}, 0
    for value in sorted(counts, reverse=True):
        above += counts[value]
        tail[value] = (above + extra) / (total + extra)
    values = sorted(tail)
    critical = next((value for value in values if tail[value] <= alpha), values[-1])
    points = []
    for place in range(width):
        p_value = next((tail[value] for value in values if value >= seen[place]), 1 / (total + extra))
        ratio, low, high = _ratios(columns_a[place], columns_b[place], critical * scales[place].deviation / 2)
        points.append(PointTest(ratio, low, high, p_value if seen[place] > 0 else 1.0))
    return Result(tuple(points), 1 - tail[critical], tail[values[-1]], total, exact)


def groups_differ(sides: Sequence[Sequence[Units]], draws: int = GROUP_DRAWS, seed: int = SEED) -> float:
    """p-value of "the groups of a side are alike", for all sides and points together.

    Each side has groups (the starts of a server), each group units (its repetitions). Units change their group only
    within their side. The statistic is the sum over sides and points of Kruskal and Wallis's; its labelings are drawn
    with a fixed seed, (1 + as great) / (1 + drawn). 1.0 when no side has two groups.
    """
    parts = []
    for groups in sides:
        sizes = [len(group) for group in groups if len(group)]
        units = [unit for group in groups for unit in group]
        # One unit a group: every labeling gives the same.
        if len(sizes) < 2 or len(units) == len(sizes):
            continue
        _width(units, units)
        scaled = [(ranks, _Scale.of(ranks, 1).deviation ** 2) for ranks in map(_doubled_ranks, zip(*units))]
        parts.append((sizes, [(ranks, spread) for ranks, spread in scaled if spread > 0]))
    if not any(points for _sizes, points in parts):
        return 1.0
    generator = random.Random(seed)  # noqa: S311 a test statistic, no secret
    seen = sum(_between(ranks, sizes) / spread for sizes, points in parts for ranks, spread in points)
    as_great = 0
    for _draw in range(draws):
        total = 0.0
        for sizes, points in parts:
            # The points of a side keep their units together: one order for all of them.
            count = sum(sizes)
            order = generator.sample(range(count), count)
            for ranks, spread in points:
                total += _between([ranks[index] for index in order], sizes) / spread
        as_great += total >= seen - _HAIR
    return (1 + as_great) / (1 + draws)


@dataclass(frozen=True)
class _Scale:
    """What makes a doubled rank sum of b a statistic: its mean is `middle` / `count`.

    In whole numbers as far as possible, so that the same ranks in another order give the very same statistic.
    """

    count: int
    middle: int
    deviation: float

    @classmethod
    def of(cls, ranks: Sequence[int], size_b: int) -> _Scale:
        count, total = len(ranks), sum(ranks)
        # The variance of a sum drawn without replacement: size_b size_a / (count - 1) times that of the ranks.
        spread = count * sum(rank * rank for rank in ranks) - total * total
        parts = size_b * (count - size_b) * spread
        return cls(count, size_b * total, math.sqrt(parts / (count * count * (count - 1))) if parts else 0.0)

    def standard(self, total: int) -> float:
        """The distance of a sum from its mean in standard deviations; 0 where all figures are equal."""
        return abs(self.count * total - self.middle) / self.count / self.deviation if self.deviation > 0 else 0.0


def _width(a: Units, b: Units) -> int:
    if not a or not b:
        raise ValueError("a side has no units; give at least one unit a side")
    widths = {len(unit) for unit in (*a, *b)}
    if len(widths) != 1 or widths == {0}:
        raise ValueError("units have different numbers of points, or none; give each unit a figure for each point")
    for unit in (*a, *b):
        for value in unit:
            # A ratio of these is a number, and so is its inverse.
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1e-100 < value < 1e100:
                raise ValueError(f"a unit holds {value!r}; give numbers above 0")
    return widths.pop()


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the rank of each value, so that the mean rank of ties is a whole number."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in range(first, last + 1):
            ranks[order[place]] = first + last + 2
        first = last + 1
    return ranks


def _greatest(
    ranked: Sequence[Sequence[int]], scales: Sequence[_Scale], size_b: int
) -> tuple[Counter[float], int, bool]:
    """How often each greatest statistic occurs over the labelings, how many there are, and whether these are all."""
    count = len(ranked[0])
    exact = math.comb(count, size_b) <= MOST_LABELINGS
    columns: list[tuple[Iterable[int], int]] = []
    if exact:
        # With as many units a side, a labeling and its opposite give the same: the first unit stays where it is.
        half = 2 * size_b == count
        for ranks in ranked:
            free, fixed, chosen = (ranks[1:], ranks[0], size_b - 1) if half else (ranks, 0, size_b)
            columns.append((map(sum, combinations(free, chosen)), fixed))
    else:
        columns = [(sums, 0) for sums in _drawn(ranked, count, size_b)]
    known: list[Iterable[float]] = []
    for (sums, fixed), scale in zip(columns, scales):
        known.append(map(_Memo(scale, fixed).__getitem__, sums))
    found = Counter(map(max, *known) if len(known) > 1 else known[0])
    return found, sum(found.values()), exact


class _Memo(dict[int, float]):
    """Sum of doubled ranks -> its statistic; few different sums occur, very often."""

    def __init__(self, scale: _Scale, fixed: int) -> None:
        super().__init__()
        self._scale, self._fixed = scale, fixed

    def __missing__(self, total: int) -> float:
        self[total] = value = self._scale.standard(total + self._fixed)
        return value


def _drawn(ranked: Sequence[Sequence[int]], count: int, size_b: int) -> Iterator[list[int]]:
    """For each point the rank sums of the same labelings, drawn with the fixed seed."""
    generator = random.Random(SEED)  # noqa: S311 a test statistic, no secret
    everybody = range(count)
    labelings = [itemgetter(*generator.sample(everybody, size_b), 0, 0) for _draw in range(DRAWS)]
    for ranks in ranked:
        # itemgetter of one index gives no tuple: the first rank is taken along twice and taken off again.
        yield [sum(labeling(ranks)) - 2 * ranks[0] for labeling in labelings]


def _between(ranks: Sequence[int], sizes: Sequence[int]) -> float:
    """What Kruskal and Wallis's statistic changes by: the groups' squared rank sums over their sizes, less the mean."""
    first, total = 0, 0.0
    for size in sizes:
        total += sum(ranks[first : first + size]) ** 2 / size
        first += size
    return total - sum(ranks) ** 2 / len(ranks)


def _ratios(a: Sequence[float], b: Sequence[float], distance: float) -> tuple[float, float, float]:
    """Median of all ratios b/a and the band that goes with the test.

    `distance`: how far the number of pairs with the greater b must be from half of all for a difference. The ratios
    that the test would not call different lie between the k-th of all ratios and the k-th from the end.
    """
    ratios = sorted(y / x for x in a for y in b)
    pairs = len(ratios)
    k = max(1, math.floor(pairs / 2 - distance + _HAIR) + 1)
    k = min(k, (pairs + 1) // 2)
    middle = math.sqrt(ratios[(pairs - 1) // 2] * ratios[pairs // 2])
    return middle, ratios[k - 1], ratios[pairs - k]
