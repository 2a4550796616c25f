# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From the repetitions of a point to the point: the median of each figure, and how far the repetitions lie apart."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import comparison_units
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_judge import COUNTS, NUMBERS
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import LEAST_REPETITIONS

# Kept of every repetition: what runs are compared by.
METRICS = tuple(comparison_units.METRICS)

_ASKED = ("concurrency", "num_prompts", "input_len", "output_len")


def point(judged: Sequence[Mapping[str, Any]], asked: int) -> dict[str, Any]:
    """One point of the record from its repetitions in order, at least one; `asked` is how many there should be.

    Figures are medians over the repetitions that have them, `completed` is the least: one failed request shows. A
    point is valid when each repetition is and none is missing.
    """
    first = judged[0]
    values = {name: [one[name] for one in judged] for name in METRICS}
    reasons = _named([one["reasons"] for one in judged])
    if len(judged) < asked:
        reasons.append(f"{len(judged)} of {asked} repetitions gave a result")
    warnings = list(dict.fromkeys(warning for one in judged for warning in one["warnings"]))
    if asked < LEAST_REPETITIONS:
        warnings.append(f"measured {asked} times: fewer than {LEAST_REPETITIONS} repetitions tell no spread")
    return {
        **{name: first[name] for name in _ASKED},
        "repetitions": len(judged),
        **{name: _median([one[name] for one in judged]) for name in NUMBERS},
        **{name: _least([one[name] for one in judged]) for name in COUNTS},
        "accept_length": _median([one["accept_length"] for one in judged]),
        "values": values,
        "spread": {name: spread(found) for name, found in values.items()},
        "valid": not reasons,
        "reasons": reasons,
        "warnings": warnings,
    }


def spread(values: Sequence[float | None]) -> dict[str, float | None]:
    """The least and the most of some values, and how far they lie apart in percent of their median; None: unknown."""
    known = [value for value in values if value is not None]
    if not known:
        return {"least": None, "most": None, "percent": None}
    middle = statistics.median(known)
    percent = round((max(known) - min(known)) / middle * 100, 2) if middle else None
    return {"least": min(known), "most": max(known), "percent": percent}


def _named(reasons: Sequence[Sequence[str]]) -> list[str]:
    """What is wrong, with the repetitions it is wrong in; the same in all of them is said once."""
    where: dict[str, list[int]] = {}
    for number, found in enumerate(reasons, start=1):
        for reason in found:
            where.setdefault(reason, []).append(number)
    return [
        reason if len(numbers) == len(reasons) else f"repetition {', '.join(map(str, numbers))}: {reason}"
        for reason, numbers in where.items()
    ]


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _least(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None
