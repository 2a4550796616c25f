# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Python's own types leave open about values that were read from JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeGuard


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number as we write them: Python counts true as 1, and 2.0 is not what we write."""
    return isinstance(value, int) and not isinstance(value, bool)


def number(value: object) -> float | None:
    """A finite number as it is written in a play, which makes texts of numbers that come out of templates."""
    if isinstance(value, str):
        try:
            return finite(float(value))
        except ValueError:
            return None
    return finite(value)


def finite(value: object) -> float | None:
    """`value` as a finite number, else None. A bool is no number here although Python says so."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
