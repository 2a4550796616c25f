# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The test itself: exact p-values, estimate and band, and how often it is wrong, by simulation with fixed seeds."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import comparison_units, permutation

LOW = [(1.0,), (2.0,), (3.0,), (4.0,), (5.0,)]
HIGH = [(6.0,), (7.0,), (8.0,), (9.0,), (10.0,)]
# Two standard errors of a share of 5 % in so many draws, which the simulations below may be off by.
DRAWS = 2000
MARGIN = 2 * math.sqrt(0.05 * 0.95 / DRAWS)


def fixed(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 noise, no secret


def noisy(generator: random.Random, spread: float = 0.03) -> float:
    """A factor of lognormal noise; one in twenty is an outlier that lost 30 %."""
    factor = generator.lognormvariate(0, spread)
    return factor * 0.7 if generator.random() < 0.05 else factor


def units(generator: random.Random, count: int, points: int, factor: float = 1.0) -> list[tuple[float, ...]]:
    return [tuple(100 * factor * noisy(generator) for _place in range(points)) for _unit in range(count)]


def alarm(a: permutation.Units, b: permutation.Units) -> bool:
    return any(point.differs for point in permutation.compare(a, b).points)


def rate(draw: Callable[[random.Random], bool], draws: int = DRAWS) -> float:
    generator = fixed(7)
    return sum(draw(generator) for _draw in range(draws)) / draws


# --- exactness ---------------------------------------------------------------------------------------------------


def test_complete_separation_of_five_from_five_has_two_of_252_labelings() -> None:
    result = permutation.compare(LOW, HIGH)
    [point] = result.points
    assert point.p_value == pytest.approx(2 / 252)
    assert result.exact and result.attainable == pytest.approx(2 / 252)
    assert point.differs


def test_points_that_separate_together_cost_nothing() -> None:
    a, b = [unit * 7 for unit in LOW], [unit * 7 for unit in HIGH]
    assert [point.p_value for point in permutation.compare(a, b).points] == [pytest.approx(2 / 252)] * 7


def test_p_values_are_those_of_counting_every_labeling() -> None:
    generator = fixed(3)
    a, b = units(generator, 4, 3), units(generator, 5, 3, 1.03)
    columns = list(zip(*[*a, *b]))
    ranks = [[sorted(column).index(value) + 1 for value in column] for column in columns]

    def greatest(chosen: tuple[int, ...]) -> list[float]:
        return [abs(sum(row[index] for index in chosen) - 25) for row in ranks]

    everything = [max(greatest(chosen)) for chosen in combinations(range(9), 5)]
    seen = greatest((4, 5, 6, 7, 8))
    expected = [sum(value >= own for value in everything) / 126 for own in seen]
    assert [point.p_value for point in permutation.compare(a, b).points] == pytest.approx(expected)


def test_ties_share_their_rank_and_equal_figures_say_nothing() -> None:
    tied = permutation.compare([(1.0,), (1.0,), (2.0,), (2.0,), (2.0,)], [(2.0,), (2.0,), (3.0,), (3.0,), (3.0,)])
    # 2.0 is on both sides: six of ten alike in part; counted by hand over the 252 labelings.
    values = [1, 1, 2, 2, 2, 2, 2, 3, 3, 3]
    rank = {1: 1.5, 2: 5.0, 3: 9.0}
    sums = [abs(sum(rank[values[index]] for index in chosen) - 27.5) for chosen in combinations(range(10), 5)]
    own = abs(5 + 5 + 27 - 27.5)
    assert tied.points[0].p_value == pytest.approx(sum(value >= own for value in sums) / 252)
    same = permutation.compare([(5.0,)] * 5, [(5.0,)] * 5)
    assert same.points[0].p_value == 1.0 and not same.points[0].differs
    assert (same.points[0].ratio, same.points[0].low, same.points[0].high) == (1.0, 1.0, 1.0)


def test_estimate_is_the_median_ratio_and_its_inverse_the_other_way_round() -> None:
    forth, back = permutation.compare(LOW, HIGH).points[0], permutation.compare(HIGH, LOW).points[0]
    assert forth.ratio == pytest.approx(sorted(y / x for (x,) in LOW for (y,) in HIGH)[12])
    assert back.ratio == pytest.approx(1 / forth.ratio)
    assert (back.low, back.high) == (pytest.approx(1 / forth.high), pytest.approx(1 / forth.low))


def test_band_of_five_against_five_leaves_two_ratios_out_at_each_end() -> None:
    # The greatest rank sum with at most 5 % in both tails is two away from separation (8 of 252 labelings).
    result = permutation.compare(LOW, HIGH)
    ratios = sorted(y / x for (x,) in LOW for (y,) in HIGH)
    assert (result.points[0].low, result.points[0].high) == (ratios[2], ratios[22])
    assert result.level == pytest.approx(1 - 8 / 252)


@pytest.mark.parametrize("seed", range(40))
def test_band_and_test_agree(seed: int) -> None:
    generator = fixed(seed)
    a, b = units(generator, 6, 2), units(generator, 5, 2, 1.0 + 0.002 * seed)
    for point in permutation.compare(a, b).points:
        assert (point.p_value <= permutation.ALPHA) == (not point.low <= 1 <= point.high)


def test_a_point_alone_among_seven_needs_six_units_a_side() -> None:
    # Six points that each separate under a labeling of their own, none of them the one that was seen.
    generator = fixed(5)
    a, b = units(generator, 5, 6), units(generator, 5, 6)
    five = permutation.compare([(low, *x) for (low,), x in zip(LOW, a)], [(high, *y) for (high,), y in zip(HIGH, b)])
    assert five.attainable == pytest.approx(14 / 252) and not five.points[0].differs
    assert five.level == pytest.approx(1 - 14 / 252)
    assert permutation.units_needed(7) == 6 and permutation.units_needed(1) == 5
    assert permutation.least_p(6, 6) * 7 <= permutation.ALPHA
    assert permutation.least_p(0, 5) == 1.0


def test_ten_against_ten_with_seven_points_is_exact_and_fast() -> None:
    generator = fixed(1)
    a, b = units(generator, 10, 7), units(generator, 10, 7, 2.0)
    before = time.process_time()
    result = permutation.compare(a, b)
    assert time.process_time() - before < 1.0
    assert result.exact and result.points[0].p_value == pytest.approx(2 / 184756)


def test_more_units_are_drawn_with_a_fixed_seed_and_never_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permutation, "DRAWS", 999)
    a, b = [(float(value), 1.0) for value in range(1, 13)], [(float(value), 1.0) for value in range(101, 113)]
    result = permutation.compare(a, b)
    assert not result.exact and result.labelings == 999
    assert result.points[0].p_value == pytest.approx(1 / 1000)
    assert result.points[1].p_value == 1.0
    assert permutation.compare(a, b) == result


def test_drawn_p_values_are_near_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = fixed(2)
    a, b = units(generator, 6, 2), units(generator, 6, 2, 1.03)
    exact = permutation.compare(a, b)
    monkeypatch.setattr(permutation, "MOST_LABELINGS", 10)
    drawn = permutation.compare(a, b)
    assert not drawn.exact
    for one, other in zip(exact.points, drawn.points):
        assert other.p_value == pytest.approx(one.p_value, abs=0.01)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([], [(1.0,)]),
        ([(1.0,)], []),
        ([()], [()]),
        ([(1.0,)], [(1.0, 2.0)]),
        *(([(1.0,)], [(value,)]) for value in (0.0, -1.0, math.nan, math.inf, True, "1", None, 10**400)),
    ],
)
def test_what_is_no_figure_is_refused(a: Any, b: Any) -> None:
    with pytest.raises(ValueError, match="unit"):
        permutation.compare(a, b)


# --- starts ------------------------------------------------------------------------------------------------------


def test_starts_that_are_apart_are_told_from_starts_that_are_alike() -> None:
    apart = [[(100.0 + i,) for i in range(4)], [(120.0 + i,) for i in range(4)]]
    mixed = [[(100.0,), (104.0,), (101.0,), (105.0,)], [(102.0,), (103.0,), (106.0,), (99.0,)]]
    assert permutation.groups_differ([apart, apart]) < 0.02
    assert permutation.groups_differ([mixed, mixed]) > 0.3


@pytest.mark.parametrize("sides", [[], [[[(1.0,), (2.0,)]]], [[[(1.0,)], [(9.0,)]]], [[[(1.0,)] * 3, [(1.0,)] * 3]]])
def test_without_two_groups_of_repetitions_nothing_differs(sides: Any) -> None:
    assert permutation.groups_differ(sides) == 1.0


# --- how often it is wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("points", [1, 3])
def test_false_alarms_of_five_against_five_are_at_most_five_percent(points: int) -> None:
    found = rate(lambda generator: alarm(units(generator, 5, points), units(generator, 5, points)))
    assert 0.02 < found <= permutation.ALPHA + MARGIN


def test_a_fifth_more_is_found_in_nearly_all_draws() -> None:
    def found(generator: random.Random) -> bool:
        a, b = (
            [tuple(factor * generator.lognormvariate(0, 0.03) for _place in range(3)) for _unit in range(5)]
            for factor in (1.0, 1.2)
        )
        return all(point.differs and point.ratio > 1 for point in permutation.compare(a, b).points)

    assert rate(found, 400) >= 0.99


def nested(generator: random.Random, side: str, starts: int, each: int) -> list[comparison_units.Repetition]:
    """Repetitions whose starts differ by as much as they do themselves."""
    found = []
    for number in range(starts):
        start = generator.lognormvariate(0, 0.03)
        for unit in units(generator, each, 3, start):
            found.append(comparison_units.Repetition(f"{side}{number}", unit))
    return found


def test_false_alarms_are_at_most_five_percent_when_the_unit_is_the_start() -> None:
    def draw(generator: random.Random) -> bool:
        chosen = comparison_units.choose(nested(generator, "a", 5, 3), nested(generator, "b", 5, 3))
        assert chosen.unit == comparison_units.START and len(chosen.a) == len(chosen.b) == 5
        return alarm(chosen.a, chosen.b)

    assert rate(draw, 1000) <= permutation.ALPHA + MARGIN * math.sqrt(2)


def test_pooled_repetitions_of_starts_that_differ_would_alarm_far_too_often() -> None:
    def pooled(generator: random.Random) -> bool:
        a, b = ([one.figures[:1] for one in nested(generator, side, 2, 3)] for side in "ab")
        return alarm(a, b)

    assert rate(pooled, 500) > 0.10
