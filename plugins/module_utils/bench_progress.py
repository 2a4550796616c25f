# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How far a benchmark is, in one line: which point of how many, how long it took so far, how long it will take yet.

The driver writes one JSON line when a repetition begins and one when it ends; this file knows nothing of how the lines
get here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

FILE_NAME = "progress.jsonl"


@dataclass(frozen=True)
class Step:
    """One repetition that is to be run: its concurrency, which repetition of it (from 1), and its requests."""

    concurrency: int
    repetition: int
    prompts: int


@dataclass(frozen=True)
class Progress:
    """Steps that have begun, and how long those that ended took, both in order. Times in seconds."""

    steps: tuple[Step, ...]
    begun: int
    took_s: tuple[float, ...]
    elapsed_s: float
    since_s: float

    @property
    def over(self) -> bool:
        """Whether nothing is left to do."""
        return len(self.took_s) >= len(self.steps)


def read(data: bytes) -> Progress | None:
    """What the driver's lines say; None when there is nothing that can be read yet.

    A last line that is half-written is left out. `now` is a line of its own so that both clocks are the target's.
    """
    steps: tuple[Step, ...] = ()
    begun: list[float] = []
    took: list[float] = []
    now = 0.0
    for line in data.splitlines():
        try:
            entry = json.loads(line)
            if "steps" in entry:
                steps = tuple(Step(*(int(value) for value in step)) for step in entry["steps"])
            elif "begin" in entry:
                begun.append(float(entry["begin"]))
            elif "end" in entry:
                # A clock that was set back meanwhile tells nothing; no time is less than none.
                took.append(max(0.0, float(entry["end"]) - begun[-1]))
            elif "now" in entry:
                now = float(entry["now"])
        except (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError):
            continue
    if not steps or not begun or len(begun) > len(steps):
        return None
    now = max(now, begun[-1])
    return Progress(steps, len(begun), tuple(took), max(0.0, now - begun[0]), now - begun[-1])


def line(progress: Progress) -> str:
    """The line for people, without a name in front."""
    step = progress.steps[progress.begun - 1]
    points = list(dict.fromkeys(one.concurrency for one in progress.steps))
    times = sum(1 for one in progress.steps if one.concurrency == step.concurrency)
    said = f"point {points.index(step.concurrency) + 1} of {len(points)}, {step.concurrency} in flight"
    said += f", repetition {step.repetition} of {times}: {_told(progress.elapsed_s)} elapsed"
    left = remaining_s(progress)
    return said if left is None else f"{said}, about {_told(left)} left"


def remaining_s(progress: Progress) -> float | None:
    """Seconds that the steps which have not ended will take; None while nothing was measured.

    A repetition takes as long as one before it at the same point. A point that was not measured yet: requests wait for
    each other less than their number says, so the time is taken to grow with the square root of the requests.
    """
    if not progress.took_s:
        return None
    known: dict[int, list[float]] = {}
    for step, took in zip(progress.steps, progress.took_s):
        known.setdefault(step.concurrency, []).append(took)
    last = progress.steps[len(progress.took_s) - 1]
    reference = known[last.concurrency][-1]
    left = 0.0
    for step in progress.steps[len(progress.took_s) :]:
        same = known.get(step.concurrency)
        if same is None:
            left += reference * (max(step.prompts, 1) / max(last.prompts, 1)) ** 0.5
        else:
            # The first one also warms up.
            left += min(same) if len(same) > 1 else same[0]
    running = progress.since_s if progress.begun > len(progress.took_s) else 0.0
    return max(0.0, left - running)


def plan(concurrency: Sequence[int], repetitions: int, prompts: Sequence[int]) -> list[list[int]]:
    """The steps of a ladder as they stand in the driver's first line."""
    return [
        [value, repetition, asked]
        for value, asked in zip(concurrency, prompts)
        for repetition in range(1, repetitions + 1)
    ]


def _told(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{round(whole / 60)} min"
    return f"{whole / 3600:.1f} h"
