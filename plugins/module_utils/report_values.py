# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads JSON values of any kind: what is not as it should be becomes None or an empty text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.report_types import Figure

# No figure of a benchmark is as large; what is would spoil every axis.
_LARGEST = 1e15
_LONGEST = 400
# What XML and HTML cannot hold, and what turns the direction of the text around it.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def number(value: Any) -> float | None:
    """A finite figure that is not below zero."""
    signed_value = signed(value)
    return signed_value if signed_value is not None and signed_value >= 0 else None


def signed(value: Any) -> float | None:
    """A finite figure, also below zero, like a change in percent."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    # Compared first: a whole number can be too large for a float.
    return float(value) if -_LARGEST <= value <= _LARGEST and math.isfinite(value) else None


def whole(value: Any) -> int | None:
    """A whole number."""
    found = signed(value)
    return int(found) if found is not None and found == int(found) else None


def text(value: Any) -> str:
    """A value as one line that can be printed; empty for None."""
    if value is None:
        return ""
    if not isinstance(value, str):
        value = json.dumps(value, sort_keys=True, default=str) if isinstance(value, (dict, list, bool)) else str(value)
    line = _UNPRINTABLE.sub(" ", value[: 2 * _LONGEST]).strip()
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def texts(value: Any) -> tuple[str, ...]:
    """The texts of a list."""
    return tuple(text(one) for one in value if text(one)) if isinstance(value, list) else ()


def mapping(value: Any) -> Mapping[str, Any]:
    """An object, an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; what is no object is left out."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def band(value: Any) -> tuple[float, float] | None:
    """A low and a high end."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    low, high = signed(value[0]), signed(value[1])
    return (low, high) if low is not None and high is not None else None


def figure(point: Mapping[str, Any], name: str) -> Figure:
    """A figure of a point with the spread that is on record, or that of its repetitions."""
    median = number(point.get(name))
    spread = mapping(mapping(point.get("spread")).get(name))
    least, most = number(spread.get("least")), number(spread.get("most"))
    if least is None or most is None:
        given = mapping(point.get("values")).get(name)
        values = [one for one in map(number, given if isinstance(given, list) else []) if one is not None]
        # One repetition has no spread.
        least, most = (min(values), max(values)) if len(values) > 1 else (None, None)
    return Figure(median, least, most)
