# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The candidates of a sweep: a declared grid and single candidates become settings with short, stable names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import experiment_settings as settings_of
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import (
    Difference,
    ExperimentError,
    differences,
)

#: What runs before the experiment, and stays when nothing is better.
ORIGINAL = "original"
MOST = 200
_LONGEST_NAME = 80

__all__ = ["MOST", "ORIGINAL", "Candidate", "Difference", "ExperimentError", "differences", "expand"]


@dataclass(frozen=True)
class Candidate:
    """A configuration to be tried: complete settings, and how many things differ from the original."""

    name: str
    settings: Mapping[str, Any]
    differences: int = 0


def expand(base: Mapping[str, Any], grid: Any = None, declared: Any = None) -> tuple[Candidate, ...]:
    """The original and every candidate, each configuration once, in the order they were declared.

    :param base: complete settings, as `experiment_settings.base` gives them.
    :param grid: a mapping such as `{"backend": ["triton", "auto"], "args": {"tp-size": [4, 8]}}` whose full product is
        tried, or a list of such mappings. A flag that takes several words has a list of lists.
    :param declared: a list of overlays, each with an optional `name`.

    Raises ExperimentError, also for more than 200 candidates.
    """
    found: dict[str, tuple[str, Mapping[str, Any]]] = {settings_of.key(base): (ORIGINAL, base)}
    given: set[str] = set()
    for name, over, where in itertools.chain(_declared(declared), _products(grid)):
        merged = settings_of.merge(base, over, where)
        if name in given:
            raise ExperimentError(f"reading {where}: its name is given twice; give every candidate another name")
        if name:
            given.add(name)
        found.setdefault(settings_of.key(merged), (name, merged))
        if len(found) > MOST:
            raise _too_many(f"more than {MOST}")
    return _named(base, list(found.values()))


def _named(base: Mapping[str, Any], found: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[Candidate, ...]:
    changes = [differences(base, merged) for _name, merged in found]
    made = [name or settings_of.name_of(change) for (name, _merged), change in zip(found, changes)]
    # Names that fell together say which is which by what is in them, so that they do not depend on the order.
    return tuple(
        Candidate(
            name if made.count(name) == 1 or number == 0 else f"{name}~{settings_of.key(merged)[:6]}",
            merged,
            len(change),
        )
        for number, (name, (_given, merged), change) in enumerate(zip(made, found, changes))
    )


def _declared(declared: Any) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    if declared is None:
        return
    if not isinstance(declared, (list, tuple)):
        raise ExperimentError(
            f"reading the candidates: they are a {type(declared).__name__}; give a list of settings, each with a name"
        )
    if len(declared) > MOST:
        raise _too_many(str(len(declared)))
    for number, entry in enumerate(declared, 1):
        where = f"candidate {number}"
        if not isinstance(entry, Mapping):
            raise ExperimentError(f"reading {where}: it is a {type(entry).__name__}; give a mapping of settings")
        yield _own_name(entry.get("name"), where), {key: entry[key] for key in entry if key != "name"}, where


def _own_name(name: Any, where: str) -> str:
    if name is None:
        return ""
    fits = isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name.isprintable() and name == name.strip()
    if not fits or name == ORIGINAL:
        raise ExperimentError(
            f"reading {where}: its name is not one; give a line of at most {_LONGEST_NAME} characters other than "
            f"{ORIGINAL}, or leave it out"
        )
    return str(name)


def _products(grid: Any) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """The overlays of a grid or of several."""
    if grid is None:
        return
    for number, one in enumerate(grid if isinstance(grid, (list, tuple)) else [grid], 1):
        where = "the grid" if not isinstance(grid, (list, tuple)) else f"grid {number}"
        axes = _axes(one, where)
        if not axes:
            continue
        count = math.prod(len(values) for _what, _name, values in axes)
        if count > MOST:
            raise _too_many(f"{count} in {where}")
        for values in itertools.product(*(values for _what, _name, values in axes)):
            over: dict[str, Any] = {}
            for (what, name, _values), value in zip(axes, values):
                if what in ("args", "env"):
                    over.setdefault(what, {})[name] = value
                else:
                    over[what] = value
            yield "", over, where


def _axes(grid: Any, where: str) -> list[tuple[str, str, Sequence[Any]]]:
    if not isinstance(grid, Mapping):
        raise ExperimentError(f"reading {where}: it is a {type(grid).__name__}; give a mapping of names and lists")
    found: list[tuple[str, str, Sequence[Any]]] = []
    for what, values in grid.items():
        if what in ("args", "env"):
            if not isinstance(values, Mapping):
                raise ExperimentError(f"reading {where}: {what} is not a mapping; give names with lists of values")
            found += [(what, str(name), _list(value, f"{what} {name}", where)) for name, value in values.items()]
        else:
            found.append((str(what), str(what), _list(values, str(what), where)))
    return found


def _list(values: Any, name: str, where: str) -> Sequence[Any]:
    if not isinstance(values, (list, tuple)) or not values:
        raise ExperimentError(
            f"reading {where}: {name[:100]!r} has no list of values; give a list with one value or more"
        )
    return values


def _too_many(count: str) -> ExperimentError:
    return ExperimentError(
        f"reading the candidates: there are {count}; at most {MOST} are tried, so give fewer values or several sweeps"
    )
