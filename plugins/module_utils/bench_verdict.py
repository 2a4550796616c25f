# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a new measurement means: against the baseline, against limits of how much worse it may be, against what is
expected of the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    comparison,
    expectation,
    regression,
    result_document,
)


@dataclass(frozen=True)
class Wanted:
    """limits: how much worse a figure may be, in percent. expected: the keyword arguments of `expectation.judge` by
    name, without a baseline; empty when nothing is expected. concurrency: the point that counts, None for all.
    """

    limits: Mapping[str, Any] = field(default_factory=dict)
    expected: Mapping[str, Any] = field(default_factory=dict)
    concurrency: int | None = None


@dataclass(frozen=True)
class Verdict:
    """The comparison with the baseline (None: there is none, `why` says it), and how what is expected was met (None:
    nothing is expected). `base` is the baseline's record, `gated` whether limits were asked for.
    """

    comparison: Mapping[str, Any] | None
    expectation: Mapping[str, Any] | None
    why: str
    base: Mapping[str, Any] | None = None
    gated: bool = False

    @property
    def worse_than(self) -> Mapping[str, Any] | None:
        """The baseline that the measurement failed the gate against; None when it did not."""
        gate = (self.comparison or {}).get("regression")
        return self.base if gate and gate["failures"] else None

    def failures(self) -> list[str]:
        """Why the measurement is not good enough; empty when it is, or when that cannot be told."""
        found: list[str] = []
        gate = (self.comparison or {}).get("regression")
        if gate:
            found += gate["failures"]
        if self.expectation and self.expectation["status"] == expectation.DEGRADED:
            # Of a place that the record does not tell about only what to do there is known.
            hints = [
                f"{hint['name']}: {'; '.join(filter(None, (hint['seen'], hint['remedy'])))}"
                for hint in self.expectation["checklist"]
            ]
            told = f". Look at: {' | '.join(hints)}" if hints else ""
            found.append(f"degraded: {self.expectation['why']}{told}")
        return found

    def warnings(self) -> list[str]:
        """What was asked for and cannot be told."""
        gate = (self.comparison or {}).get("regression")
        if gate and not gate["judged"]:
            return [f"whether it became worse cannot be told: {'; '.join(gate['reasons'])}"]
        if self.gated and gate is None:
            return [f"whether it became worse cannot be told: {self.why}"]
        return []


def check(wanted: Wanted) -> None:
    """Raise RegressionError, ExpectationError or ComparisonError, each of its file, for a wish that makes no sense."""
    # Of no runs: only what is asked of them is looked at.
    comparison.compare([], [], concurrency=wanted.concurrency)
    regression.check_limits(wanted.limits)
    expectation.judge({}, **wanted.expected)


def judge(document: Mapping[str, Any], record: Mapping[str, Any], wanted: Wanted) -> Verdict:
    """What `record`, which is the latest of `document`, means. An invalid one is compared with nothing."""
    if record.get("valid") is not True:
        return Verdict(None, None, "an invalid measurement is compared with nothing")
    base, why = result_document.baseline_for(document, record)
    compared = None
    if base is not None:
        compared = comparison.compare(
            [base], [record], kind=comparison.BASELINE, concurrency=wanted.concurrency,
            recorded_at=str(record["recorded_at"]),
        )  # fmt: skip
        compared["notes"] = [f"the baseline is {why}", *compared["notes"]]
        compared["regression"] = regression.judge([base], [record], wanted.limits, concurrency=wanted.concurrency)
    expected = expectation.judge(record, **wanted.expected) if wanted.expected else None
    return Verdict(compared, expected, why, base, bool(wanted.limits))
