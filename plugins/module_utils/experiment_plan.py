# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of an experiment's trials. A trial is one start of the server with one candidate and one benchmark run.

A machine gets warmer, its clocks drop, its caches fill: figures drift over an hour. If all of A were measured before
all of B, the drift would count as a difference. So the trials are interleaved, and the order within a pair follows the
Thue-Morse sequence (ABBA BAAB BAAB ABBA): after every second pair a drift that grows evenly has met both sides alike,
after every fourth one that bends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import ExperimentError
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole
from ansible_collections.tokforge.sglang.plugins.module_utils.result_document import HISTORY_LIMIT, SERVED_LIMIT

DEFAULT_STARTS = 5
DEFAULT_SWEEP_ROUNDS = 1
#: The records of both sides have to be in the fact file when they are compared in the end.
MOST_STARTS = (HISTORY_LIMIT - SERVED_LIMIT) // 2
MOST_TRIALS = 2000


@dataclass(frozen=True)
class Slot:
    """A trial to come. `round` counts from 1 over the whole experiment, `stage` says which part of it it is."""

    candidate: str
    round: int
    stage: int = 1


def pairs(a: str, b: str, starts: int, first_round: int = 1, stage: int = 1) -> tuple[Slot, ...]:
    """An A/B run: `starts` trials for each side, every pair a round."""
    slots = []
    for index in range(2 * starts):
        side = b if bin(index).count("1") % 2 else a
        slots.append(Slot(side, first_round + index // 2, stage))
    return tuple(slots)


def rounds(names: Sequence[str], count: int, first_round: int = 1, stage: int = 1) -> tuple[Slot, ...]:
    """`count` rounds over all candidates, every second one backwards. Raises ExperimentError for too many trials."""
    if len(names) * count > MOST_TRIALS:
        raise ExperimentError(
            f"planning the trials: {len(names)} candidates in {count} rounds are {len(names) * count} trials; at most "
            f"{MOST_TRIALS} are made, so give fewer candidates or rounds"
        )
    return tuple(
        Slot(name, first_round + number, stage)
        for number in range(count)
        for name in (names if number % 2 == 0 else tuple(reversed(names)))
    )


def whole(value: Any, name: str, default: int, least: int = 1, most: int = MOST_STARTS) -> int:
    """A whole number from a request; text with digits counts, as it comes from the command line.

    Raises ExperimentError.
    """
    if value is None:
        return default
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:
        value = int(value)
    if not is_whole(value) or not least <= value <= most:
        raise ExperimentError(f"reading {name}: it is {str(value)[:50]!r}; give a whole number from {least} to {most}")
    return value
