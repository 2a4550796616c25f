# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which candidate of a sweep wins, for a declared objective.

The same trials have different winners for different objectives: a backend that is best for one request at a time can be
a third slower than another under load. A candidate that failed or wrote garbage in any trial never wins, however fast
it was; one that is not clearly better leaves the original in place.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import permutation
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import ExperimentError
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole

OUTPUT, POWER = "output_tok_s", "tok_s_per_w"
MEASURED = "measured"
FASTER, NO_GAIN, UNCONFIRMED = "faster", "no_measurable_gain", "unconfirmed"
#: Of a winner that did not come up, or not as it was measured, when it was to serve.
DOES_NOT_SERVE = "does_not_serve"
DEFAULT_TIE_PERCENT = 1.0
# Of the least rate that is known: below everything, and still a figure of which there are ratios.
_NOTHING = 1e-6
_LATENCY = re.compile(r"(ttft|tpot|itl)_(mean|median|p99)_ms")


#: Figures of one start, see `experiment_state.figures`.
Run = Mapping[str, Any]


@dataclass(frozen=True)
class Objective:
    """What counts: `metric` at one concurrency (None: the largest that the original was measured at), or, with
    `limits` (latency in ms by name), output tok/s at whatever concurrency holds all of them.
    """

    metric: str = OUTPUT
    concurrency: int | None = None
    limits: Mapping[str, float] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """The objective as it is declared."""
        if self.limits:
            return {"slo": dict(self.limits)}
        return {"metric": self.metric, "concurrency": self.concurrency}

    @property
    def words(self) -> str:
        """The objective in a sentence."""
        if self.limits:
            held = ", ".join(f"{name} <= {limit:g}" for name, limit in sorted(self.limits.items()))
            return f"output tok/s with {held}"
        metric = "output tok/s" if self.metric == OUTPUT else "output tok/s per watt"
        return f"{metric} at concurrency {self.concurrency}"


@dataclass(frozen=True)
class Tried:
    """A candidate and what became of it. `state` is measured, unsupported, failed, invalid or waiting.

    `runs` are the figures of its valid records (`experiment_state.figures`), one for each start. `apart` says why its
    figures must not be held against the original's, empty when they may.
    """

    name: str
    settings: Mapping[str, Any]
    differences: int
    state: str
    reason: str = ""
    runs: tuple[Mapping[str, Any], ...] = ()
    record_ids: tuple[str, ...] = ()
    apart: str = ""


@dataclass(frozen=True)
class Score:
    """What a candidate reaches: the median over its starts, where, each start's own figure, and why there is none."""

    value: float | None
    concurrency: int | None = None
    values: tuple[float, ...] = ()
    why: str = ""


@dataclass(frozen=True)
class Choice:
    """The winner (None: the original stays) and one sentence why. `scores` has every candidate that was measured."""

    objective: Objective
    scores: Mapping[str, Score]
    winner: str | None
    verdict: str
    why: str


def objective(given: Any) -> Objective:
    """Read a declared objective. Raises ExperimentError."""
    if given is None:
        return Objective()
    if not isinstance(given, Mapping):
        raise _wrong(f"it is a {type(given).__name__}")
    unknown = sorted(str(key)[:50] for key in given if key not in ("concurrency", "slo", "metric"))
    if unknown:
        raise _wrong(f"it has {', '.join(unknown[:5])}")
    if "slo" in given:
        if len(given) > 1:
            raise _wrong("slo stands beside others")
        return Objective(limits=_limits(given["slo"]))
    metric, concurrency = given.get("metric", OUTPUT), given.get("concurrency")
    if metric not in (OUTPUT, POWER):
        raise _wrong(f"metric is {str(metric)[:50]!r}, not {OUTPUT} or {POWER}")
    if isinstance(concurrency, str) and concurrency.isascii() and concurrency.isdigit() and len(concurrency) < 10:
        concurrency = int(concurrency)
    if concurrency is not None and not (is_whole(concurrency) and 1 <= concurrency <= 1_000_000):
        raise _wrong(f"concurrency is {str(concurrency)[:50]!r}, no whole number from 1 on")
    return Objective(metric, concurrency)


def tie(given: Any) -> float:
    """Read the tie band, percent. Raises ExperimentError."""
    value = DEFAULT_TIE_PERCENT if given is None else _number(given)
    if value is None or not 0 <= value <= 100:
        raise ExperimentError(f"reading tie_percent: it is {str(given)[:50]!r}; give a number from 0 to 100")
    return value


def choose(
    tried: Sequence[Tried],
    original: str,
    wanted: Objective,
    tie_percent: float = DEFAULT_TIE_PERCENT,
    comparison: Mapping[str, Any] | None = None,
) -> Choice:
    """The winner of a sweep.

    A candidate is better than another when it is more than `tie_percent` above. Among those that none is better than,
    the one with the fewest differences from the original wins; one that stands apart does not take part. With a
    `comparison` (b against the original) the winner also has to be faster there; without one the verdict is that it is
    not confirmed.
    """
    wanted = _settled(wanted, tried, original)
    scores = {one.name: score(one.runs, wanted) for one in tried if one.state == MEASURED}
    able = {
        one.name: one for one in tried if one.name in scores and scores[one.name].value is not None and not one.apart
    }
    values = {name: float(scores[name].value or 0.0) for name in able}
    if not values:
        return Choice(wanted, scores, None, NO_GAIN, f"no candidate has a valid figure for {wanted.words}")
    factor = 1 + tie_percent / 100
    floor = values.get(original, 0.0) * factor
    best = max(values.values())
    if original in values and best <= floor:
        why = f"no candidate is more than {tie_percent:g} % above the original ({values[original]:.6g}): {wanted.words}"
        return Choice(wanted, scores, None, NO_GAIN, why)
    # The order at the end makes the choice the same whatever order the candidates came in.
    alike = [name for name, value in values.items() if value > floor and best <= value * factor and name != original]
    winner = min(alike, key=lambda name: (able[name].differences, -values[name], name))
    why = f"{winner} reaches {values[winner]:.6g}, the original {_told(values.get(original))}: {wanted.words}"
    if comparison is None:
        return Choice(wanted, scores, winner, UNCONFIRMED, why)
    verdict, said = _confirmed(comparison, able[winner], scores[winner], wanted)
    if verdict == FASTER:
        return Choice(wanted, scores, winner, FASTER, f"{why}; {said}")
    return Choice(wanted, scores, None, verdict, f"{why}, but that is not confirmed: {said}")


def by_score(wanted: Objective) -> bool:
    """Whether the score decides in the end, and not a comparison of output rates at one concurrency."""
    return bool(wanted.limits) or wanted.metric == POWER


def confirmed_by_score(
    wanted: Objective, original: Sequence[Run], winner: Sequence[Run], tie_percent: float
) -> tuple[str, str]:
    """The verdict about a winner, and why, from the figures of the starts that are to confirm it.

    Each start is scored by itself. One that holds no limit ranks below all that do: whether limits hold is as uncertain
    as a rate is, so it is a part of the test and not decided before.
    """
    sides = [[score([run], wanted).value for run in runs] for runs in (original, winner)]
    if not wanted.limits:
        sides = [[value for value in side if value is not None] for side in sides]
    if min(map(len, sides)) < permutation.LEAST_UNITS:
        known = "valid figures" if wanted.limits else "known power"
        return (
            "not_comparable",
            f"{len(sides[0])} against {len(sides[1])} starts with {known}, {permutation.LEAST_UNITS} are needed",
        )
    known_values = [value for side in sides for value in side if value is not None]
    if not known_values:
        return NO_GAIN, "the limits were held in no start of either"
    nothing = min(known_values) * _NOTHING
    a, b = ([[nothing if value is None else value] for value in side] for side in sides)
    found = permutation.compare(a, b).points[0]
    better = found.differs and found.low > 1 and (found.ratio - 1) * 100 > tie_percent
    return FASTER if better else NO_GAIN, _said(wanted, sides, found)


def _said(wanted: Objective, sides: Sequence[Sequence[float | None]], found: permutation.PointTest) -> str:
    if not wanted.limits:
        change, low, high = ((ratio - 1) * 100 for ratio in (found.ratio, found.low, found.high))
        return f"{change:+.1f} % tok/s per watt, between {low:+.1f} and {high:+.1f} %"
    told = []
    for side in sides:
        held = [value for value in side if value is not None]
        reached = f" with {statistics.median(held):.6g} tok/s" if held else ""
        told.append(f"in {len(held)} of {len(side)} starts{reached}")
    return f"it holds the limits {told[1]}, the original {told[0]}, p = {found.p_value:.2g}"


def score(runs: Sequence[Mapping[str, Any]], wanted: Objective) -> Score:
    """What the runs of one candidate reach. Points that are not valid do not count."""
    if wanted.limits:
        return _within_limits(runs, wanted)
    if wanted.concurrency is None:
        return Score(None, why="nothing was measured")
    return _at(runs, wanted.concurrency, wanted.metric)


def medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Output tok/s by concurrency (as text, in the order of numbers), the median over the runs."""
    found: dict[str, float] = {}
    for concurrency in sorted({number for run in runs for number in _by_concurrency(run)}):
        value = _at(runs, concurrency, OUTPUT).value
        if value is not None:
            found[str(concurrency)] = value
    return found


def result(identity: str, tried: Sequence[Tried], original: str, choice: Choice, now: str) -> dict[str, Any]:
    """The sweep as the fact file keeps it, still without the comparison's id."""
    return {
        "id": identity,
        "recorded_at": now,
        "objective": choice.objective.data(),
        "candidates": [
            {
                "name": one.name,
                "settings": dict(one.settings),
                "state": one.state,
                "reason": one.reason or one.apart or choice.scores.get(one.name, Score(None)).why,
                "record_ids": list(one.record_ids),
                "output_tok_s": medians(one.runs),
                "score": choice.scores.get(one.name, Score(None)).value,
            }
            for one in tried
        ],
        "original": original,
        "winner": choice.winner,
        "verdict": choice.verdict,
        "why": choice.why,
        "comparison_id": None,
        "finished": all(one.state != "waiting" for one in tried),
    }


# --- scores ----------------------------------------------------------------------------------------------------------


def _settled(wanted: Objective, tried: Sequence[Tried], original: str) -> Objective:
    """The objective with a concurrency. The original's largest counts: a candidate with a smaller limit of its own has
    a shorter ladder, and must not decide where the others are compared.
    """
    if wanted.limits or wanted.concurrency is not None:
        return wanted
    measured = [one for one in tried if one.state == MEASURED]
    of_original = [
        number for one in measured if one.name == original for run in one.runs for number in _by_concurrency(run)
    ]
    of_all = [number for one in measured for run in one.runs for number in _by_concurrency(run)]
    return replace(wanted, concurrency=max(of_original or of_all, default=None))


def _at(runs: Sequence[Mapping[str, Any]], concurrency: int, metric: str) -> Score:
    values = []
    for run in runs:
        point = _by_concurrency(run).get(concurrency)
        speed = _positive((point or {}).get(OUTPUT))
        if point is None or speed is None:
            return Score(None, concurrency, why=f"it has no valid figure at concurrency {concurrency}")
        if metric == POWER:
            power = _power(point)
            if power is None:
                return Score(None, concurrency, why=f"the power of its GPUs is not known at concurrency {concurrency}")
            speed /= power
        values.append(speed)
    if not values:
        return Score(None, concurrency, why="it has no valid record")
    return Score(statistics.median(values), concurrency, tuple(values))


def _within_limits(runs: Sequence[Mapping[str, Any]], wanted: Objective) -> Score:
    best = Score(
        None, why=f"no concurrency has {wanted.words.partition(' with ')[2]}" if runs else "it has no valid record"
    )
    for concurrency in sorted({number for run in runs for number in _by_concurrency(run)}):
        points = [_by_concurrency(run).get(concurrency, {}) for run in runs]
        if all(_holds(points, name, limit) for name, limit in wanted.limits.items()):
            here = _at(runs, concurrency, OUTPUT)
            if here.value is not None and (best.value is None or here.value > best.value):
                best = here
    return best


def _holds(points: Sequence[Mapping[str, Any]], name: str, limit: float) -> bool:
    values = [_number(point.get(name)) for point in points]
    known = [value for value in values if value is not None]
    return len(known) == len(points) and statistics.median(known) <= limit


def _by_concurrency(run: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    points = run.get("points")
    return {
        point["concurrency"]: point
        for point in (points if isinstance(points, list) else [])
        if isinstance(point, Mapping) and is_whole(point.get("concurrency")) and point.get("valid") is True
    }


def _power(point: Mapping[str, Any]) -> float | None:
    """Watts of all GPUs together, None when one of them is not known."""
    watts = [_positive(value) for value in point.get("power_w") or []]
    return sum(watt or 0.0 for watt in watts) if watts and None not in watts else None


def _confirmed(comparison: Mapping[str, Any], winner: Tried, reached: Score, wanted: Objective) -> tuple[str, str]:
    """The verdict of a comparison about the winner, and what it says."""
    side = comparison.get("b")
    ids = side.get("ids") if isinstance(side, Mapping) else None
    if not isinstance(ids, list) or not ids or not set(map(str, ids)) <= set(winner.record_ids):
        return "not_comparable", f"the comparison is not about {winner.name}"
    if comparison.get("metric") != wanted.metric:
        return "not_comparable", f"the comparison is about {str(comparison.get('metric'))[:50]}, not {wanted.metric}"
    points = comparison.get("points")
    for point in points if isinstance(points, list) else []:
        # A candidate may lose at another concurrency than the one that counts.
        if isinstance(point, Mapping) and point.get("concurrency") == reached.concurrency:
            verdict = str(point.get("verdict"))
            if point.get("metric") == wanted.metric and verdict != "not_comparable":
                return verdict, str(point.get("why") or verdict)
    verdict = str(comparison.get("verdict"))
    return verdict, str(comparison.get("why") or verdict)


# --- reading ---------------------------------------------------------------------------------------------------------


def _limits(given: Any) -> dict[str, float]:
    if not isinstance(given, Mapping) or not given:
        raise _wrong("slo is no mapping of latencies and limits")
    found = {}
    for name, limit in given.items():
        value = _positive(limit)
        if not _LATENCY.fullmatch(str(name)) or value is None:
            raise _wrong(f"slo has {str(name)[:50]!r}: {str(limit)[:50]!r}")
        found[str(name)] = value
    return found


def _number(value: Any) -> float | None:
    """A finite number; text counts, as it comes from the command line."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _positive(value: Any) -> float | None:
    number = _number(value)
    return number if number is not None and number > 0 else None


def _told(value: float | None) -> str:
    return "has no valid figure" if value is None else f"{value:.6g}"


def _wrong(why: str) -> ExperimentError:
    return ExperimentError(
        f"reading the objective: {why}; give concurrency: 32, metric: {POWER}, or slo with limits in ms such as "
        "{ttft_p99_ms: 500, tpot_p99_ms: 30}"
    )
