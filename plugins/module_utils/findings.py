# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a check has to say: how bad it is, what was seen, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

OK = "ok"
WARN = "warn"
FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One result of one check: level (ok, warn, fail), the check's name, what was seen and what to do about it."""

    level: str
    check: str
    message: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """The finding as plain data, for a module's result."""
        return asdict(self)


def failures(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that must stop a rollout."""
    return [finding for finding in findings if finding.level == FAIL]


def verdict(findings: Iterable[Finding]) -> str:
    """The worst level there is: fail, warn or ok."""
    levels = {finding.level for finding in findings}
    return next((level for level in (FAIL, WARN) if level in levels), OK)


def counts(findings: Sequence[Finding]) -> str:
    """How many checks failed, warned and were well, in words."""
    number = {level: sum(finding.level == level for finding in findings) for level in (FAIL, WARN, OK)}
    return f"{number[FAIL]} failed, {number[WARN]} to look at, {number[OK]} well"


def render(findings: Sequence[Finding]) -> str:
    """All failures as one message a person can act on; warnings follow. Empty when there is neither."""
    lines = [
        f"{finding.check}: {finding.message}" + (f"; {finding.remedy}" if finding.remedy else "")
        for level in (FAIL, WARN)
        for finding in findings
        if finding.level == level
    ]
    return "\n".join(lines)
