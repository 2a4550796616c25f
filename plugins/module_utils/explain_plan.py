# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much each of several differences between two configurations contributes to their difference in speed.

First A, B, and A with each single difference are measured. Then comes the path from A to B that makes one difference
after the other, the one with the largest effect first, measured anew as a whole: so its steps are compared within the
same hour, and a difference that only looked large by chance is not rewarded for it. The ratios of successive steps
multiply to the ratio of B to A. A difference that does not run alone waits until it does.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import experiment_settings as settings_of
from ansible_collections.tokforge.sglang.plugins.module_utils.candidates import Candidate
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import Difference, ExperimentError

MOST_DIFFERENCES = 8
#: Figures a side below which nothing is said.
LEAST_VALUES = 5
#: Change in percent of b against a with its band, from the figures of both.
Ratio = Callable[[Sequence[float], Sequence[float]], "tuple[float, float, float]"]
Combo = frozenset[int]


@dataclass(frozen=True)
class Plan:
    """Two configurations and what differs between them."""

    a: Mapping[str, Any]
    b: Mapping[str, Any]
    differences: tuple[Difference, ...]

    @property
    def everything(self) -> Combo:
        """B, as the set of all differences."""
        return frozenset(range(len(self.differences)))

    def settings(self, combo: Combo) -> dict[str, Any]:
        """A with some of the differences."""
        if combo == self.everything:
            return dict(self.b)
        return settings_of.apply(self.a, [self.differences[index] for index in sorted(combo)])

    def name(self, combo: Combo) -> str:
        """The candidate's name, from the differences in their own order."""
        if not combo or combo == self.everything:
            return "B" if combo else "A"
        return settings_of.name_of([self.differences[index] for index in sorted(combo)])

    def candidate(self, combo: Combo) -> Candidate:
        """A with some of the differences, as a candidate."""
        return Candidate(self.name(combo), self.settings(combo), len(combo))


@dataclass(frozen=True)
class Path:
    """The order in which differences are made: sets of differences from none to all, each with the one before in it.

    `put_off` are the differences that had to wait for others, `joined` those that only work together.
    """

    combos: tuple[Combo, ...]
    put_off: tuple[int, ...] = ()
    joined: tuple[tuple[int, ...], ...] = ()


def plan(a: Mapping[str, Any], b: Mapping[str, Any]) -> Plan:
    """What is to be explained. Raises ExperimentError when nothing differs, or more than eight things."""
    found = settings_of.differences(a, b)
    if not found:
        raise ExperimentError(
            "planning the explanation: the two configurations do not differ; give two that do (sglang_explain_a, "
            "sglang_explain_b)"
        )
    if len(found) > MOST_DIFFERENCES:
        labels = ", ".join(change.label for change in found[:20])
        raise ExperimentError(
            f"planning the explanation: {len(found)} things differ ({labels}); at most {MOST_DIFFERENCES} are taken "
            "apart, so make the configurations more alike"
        )
    return Plan(a, b, found)


def first_stage(asked: Plan) -> tuple[Candidate, ...]:
    """A, B, and A with each single difference; a single difference that makes B is there once."""
    singles = [frozenset([index]) for index in sorted(asked.everything)]
    combos = [frozenset[int](), asked.everything, *(combo for combo in singles if combo != asked.everything)]
    return tuple(asked.candidate(combo) for combo in combos)


def path(asked: Plan, alone: Mapping[int, float | None], failed: Sequence[Combo]) -> Path:
    """The way from A to B.

    :param alone: ratio of A with one difference to A, None where it has none.
    :param failed: what is known not to run. A difference that would lead there is put off.

    Raises ExperimentError when B itself does not run.
    """
    if asked.everything in failed or frozenset[int]() in failed:
        side = "B" if asked.everything in failed else "A"
        raise ExperimentError(
            f"planning the explanation: {side} itself does not run or is not valid, so there is nothing to explain; "
            "see the reasons of its trials"
        )
    # A speed that halves matters as much as one that doubles.
    order = sorted(asked.everything, key=lambda index: (-_size(alone.get(index)), index))
    combos: list[Combo] = [frozenset()]
    late: set[int] = {index for index in order if frozenset([index]) in failed and len(order) > 1}
    joined: list[tuple[int, ...]] = []
    rest = list(order)
    while rest:
        step = _next_step(combos[-1], rest, failed)
        late.update(index for index in rest[: rest.index(step[0])] if combos[-1] | {index} in failed)
        if len(step) > 1:
            joined.append(tuple(sorted(step)))
        combos.append(combos[-1] | set(step))
        rest = [index for index in rest if index not in step]
    return Path(tuple(combos), tuple(sorted(late)), tuple(joined))


def _next_step(here: Combo, rest: Sequence[int], failed: Sequence[Combo]) -> tuple[int, ...]:
    """The fewest differences, the largest first, that can be made next. All of the rest always can: that is B."""
    for size in range(1, len(rest)):
        for step in itertools.combinations(rest, size):
            if here | set(step) not in failed:
                return step
    return tuple(rest)


def needs_second_stage(asked: Plan) -> bool:
    """Whether the path has points that the first stage does not: with one or two differences it has none."""
    return len(asked.differences) > 2


def result(
    asked: Plan,
    way: Path,
    on_path: Mapping[Combo, Sequence[float]],
    alone: Mapping[int, tuple[Sequence[float], Sequence[float]]],
    ratio: Ratio,
    notes: Sequence[str] = (),
    starts: int | None = None,
) -> dict[str, Any]:
    """The explanation as the fact file keeps it, without id and time.

    :param on_path: figures of every point of the path, one a start, or the repetitions of a single start.
    :param starts: how many starts the point with the fewest has; None where each figure is one. Repetitions of one
        start tell nothing of how starts differ, however many there are.
    :param alone: figures of A and of A with the one difference.
    :param ratio: see Ratio; its band holds for all steps together when the caller has seen to that.

    Raises ExperimentError when a point of the path has no figures.
    """
    missing = [asked.name(combo) for combo in way.combos if not on_path.get(combo)]
    if missing:
        raise ExperimentError(
            f"explaining: there are no valid figures of {', '.join(missing)}; run the remaining trials first"
        )

    def counted(*combos: Combo) -> int:
        figures = min(len(on_path[combo]) for combo in combos)
        return figures if starts is None else min(figures, starts)

    steps = []
    for before, after in zip(way.combos, way.combos[1:]):
        step = sorted(after - before)
        change, low, high = ratio(on_path[before], on_path[after])
        one = alone.get(step[0]) if len(step) == 1 else None
        single = ratio(*one) if one is not None and all(one) else None
        steps.append(
            {
                "name": settings_of.name_of([asked.differences[index] for index in step]),
                "difference": asked.differences[step[0]].data()
                if len(step) == 1
                else {"what": "several", "parts": [asked.differences[index].data() for index in step]},
                "change_percent": change,
                "band_percent": [low, high],
                "verdict": verdict(low, high, counted(before, after)),
                "alone_percent": None if single is None else single[0],
                "alone_band_percent": None if single is None else [single[1], single[2]],
            }
        )
    first, last = way.combos[0], way.combos[-1]
    change, low, high = ratio(on_path[first], on_path[last])
    fewest = counted(*way.combos)
    said = [*_path_notes(asked, way), *notes]
    if fewest < LEAST_VALUES:
        said.append(
            f"some configurations have only {fewest} starts; {LEAST_VALUES} are needed to tell noise from effect"
        )
    said += _interaction(steps, low, high)
    return {
        "a": {"label": asked.name(first), "settings": dict(asked.a)},
        "b": {"label": f"B: {settings_of.name_of(asked.differences)}", "settings": dict(asked.b)},
        "steps": steps,
        "total": {
            "change_percent": change,
            "band_percent": [low, high],
            "verdict": verdict(low, high, counted(first, last)),
        },
        "notes": said,
        "breakdown": None,
    }


def verdict(low: float, high: float, values: int) -> str:
    """What a band says, with so many figures on the shorter side."""
    if values < LEAST_VALUES:
        return "not_comparable"
    if low > 0:
        return "faster"
    return "slower" if high < 0 else "no_measurable_gain"


def effect(before: Sequence[float], after: Sequence[float]) -> float | None:
    """Ratio of medians, None when a side has no figures."""
    if not before or not after:
        return None
    return statistics.median(after) / statistics.median(before)


def _path_notes(asked: Plan, way: Path) -> list[str]:
    label = {index: change.label for index, change in enumerate(asked.differences)}
    together = {index for step in way.joined for index in step}
    notes = [
        f"{label[index]} did not run where its effect would have put it; it is made where it runs"
        for index in way.put_off
        if index not in together
    ]
    return notes + [
        f"{' and '.join(label[index] for index in step)} only run together; they are one step" for step in way.joined
    ]


def _interaction(steps: Sequence[Mapping[str, Any]], low: float, high: float) -> list[str]:
    """Whether the single effects make up the total."""
    if len(steps) < 2:
        return []
    alone = [step["alone_percent"] for step in steps]
    if None in alone:
        return ["not every difference runs alone, so single effects cannot be held against the total"]
    product = (math.prod(1 + value / 100 for value in alone) - 1) * 100
    if low <= product <= high:
        return []
    how = "more" if product > high else "less"
    return [
        f"the differences interact: their single effects multiply to {product:+.1f} %, {how} than the total between "
        f"{low:+.1f} and {high:+.1f} %"
    ]


def _size(ratio: float | None) -> float:
    """How large an effect is, whatever its direction; what has none comes last."""
    return abs(math.log(ratio)) if ratio is not None and ratio > 0 and math.isfinite(ratio) else -1.0
