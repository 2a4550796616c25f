# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A gate against regressions: is a run worse than its baseline by more than what is allowed?

A metric fails at a point when the estimate of the change is beyond its limit and the change itself is beyond the noise.
To ask that the whole band be beyond the limit would let a loss of twice the limit pass wherever the band is wide; to
ask for the estimate alone would fail good runs by chance. What is beyond the limit but within the noise is not judged:
the noise is then larger than what the gate is to tell, and neither pass nor failure would be true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import comparison, json_types
from ansible_collections.tokforge.sglang.plugins.module_utils.comparison_units import METRICS, REPETITION, points

#: Above this a limit allows everything.
MOST_PERCENT = 1000.0


class RegressionError(Exception):
    """Limits that are none; the text says what to give."""


def check_limits(limits: Mapping[str, Any]) -> dict[str, float]:
    """The limits in percent by metric. Raises RegressionError for an unknown metric and for no number of percent."""
    found = {}
    for name, value in limits.items():
        if name not in METRICS:
            raise RegressionError(
                f"max_regression_percent of {name!r}: no such figure; use some of {', '.join(METRICS)}"
            )
        number = json_types.number(value)
        # A rate cannot fall by more than all of it, so such a limit would never fail.
        most = 100.0 if METRICS[name].higher_is_better else MOST_PERCENT
        if number is None or not 0 < number < most:
            raise RegressionError(
                f"max_regression_percent of {name} is {value!r}: no limit; use a number above 0 and below {most:g}"
            )
        found[str(name)] = number
    return found


def judge(
    baseline: Sequence[Mapping[str, Any]],
    records: Sequence[Mapping[str, Any]],
    limits: Mapping[str, Any],
    *,
    concurrency: int | None = None,
    restarts: bool = False,
) -> dict[str, Any] | None:
    """Whether `records` are worse than those of the baseline by more than the limits; None without limits.

    `judged` false is no pass: `reasons` say what cannot be told. `failures` has a sentence for each metric and point
    that fails; one is enough to fail, whatever else cannot be told.

    :param concurrency: the point that counts; all points that both have when not given.
    Raises RegressionError for limits that are none.
    """
    checked = check_limits(limits)
    if not checked:
        return None
    failures: list[str] = []
    reasons: list[str] = []
    for metric, limit in checked.items():
        found = comparison.compare(
            baseline, records, kind=comparison.BASELINE, metric=metric, concurrency=concurrency, tie_percent=0,
            restarts=restarts,
        )  # fmt: skip
        judged = [point for point in found["points"] if point["change_percent"] is not None]
        if not judged:
            reasons.append(f"{metric}: {found['why']}")
        elif concurrency is None:
            reasons += _lost(baseline, judged, metric)
        for point in judged:
            if concurrency is None or point["concurrency"] == concurrency:
                _judge_point(point, metric, limit, failures, reasons, _starts(found))
    return {
        "judged": bool(failures) or not reasons,
        "passed": not failures and not reasons,
        "limits": checked,
        "failures": failures,
        "reasons": reasons,
    }


def _lost(baseline: Sequence[Mapping[str, Any]], judged: Sequence[Mapping[str, Any]], metric: str) -> list[str]:
    """Points of the baseline that were not judged: what was lost there, nobody has seen."""
    missing = {value for record in baseline for value in points(record)} - {point["concurrency"] for point in judged}
    where = ", ".join(map(str, sorted(missing)))
    return [f"{metric} at concurrency {where} is in the baseline and was not measured like there"] if missing else []


def _starts(found: Mapping[str, Any]) -> str:
    """What is to be said of figures that are all of one start a side, as they are of a rollout."""
    few = found["unit"] == REPETITION and max(found["a"]["starts"], found["b"]["starts"]) < 2
    return (
        "; each side is one start of the server, and two starts of the same can differ by some percent" if few else ""
    )


def _judge_point(
    point: Mapping[str, Any], metric: str, limit: float, failures: list[str], reasons: list[str], starts: str
) -> None:
    change = point["change_percent"]
    worse = -change if METRICS[metric].higher_is_better else change
    if worse <= limit:
        return
    low, high = point["band_percent"]
    figures = (
        f"{metric} at concurrency {point['concurrency']} is worse by {worse:.1f} %, allowed are {limit:g} % "
        f"(change {change:+.1f} %, band {low:+.1f} to {high:+.1f} %, p = {point['p_value']:.2g})"
    )
    if point["verdict"] == comparison.SLOWER:
        failures.append(f"{figures}{starts}")
    else:
        # A band can be narrow and the test still not certain: of many points one can always look different.
        within = "within the noise" if low <= 0 <= high else "not certain with so few figures for so many points"
        reasons.append(f"{figures}, but that is {within}: measure more often than {point['b']['n']} times")
