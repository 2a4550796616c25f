# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two servers' arguments compared: what differs, the most telling first, whatever release each of them is of.

Each side is either all that a server runs with, from its log, or what was asked for. Names that mean the same are one:
a flag and its alias, a flag and its name in a log, an old name and its successor, CUDA graphs off under either name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import argument_weights, flag_names, releases
from ansible_collections.tokforge.sglang.plugins.module_utils.flags import canonical
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole
from ansible_collections.tokforge.sglang.plugins.module_utils.server_args import SECRETS
from ansible_collections.tokforge.sglang.plugins.module_utils.server_args_log import HIDDEN

#: The value of an argument that one of the two sides does not have.
ABSENT = "(absent)"
#: With fewer arguments than this, a side is what was asked for: every log of 0.5.0rc0 to 0.5.23 has more than 150.
WHOLE = 100
_PHASES = ("decode", "prefill")
_NUMBER = re.compile(r"[+-]?(\d{1,18}|\d{0,18}\.\d{1,18})([eE][+-]?\d{1,3})?")


class RecordError(Exception):
    """A recorded file that holds no arguments; the text says what it holds and what to give."""


@dataclass(frozen=True)
class Difference:
    """One argument whose value differs; ABSENT stands for the side that does not have it.

    `weight` says what the argument decides and `hint` how; `rank` orders differences, the least first. `left_name` and
    `right_name` are what each side calls the argument, empty for a side that does not have it.
    """

    name: str
    left: Any
    right: Any
    weight: str
    rank: int
    hint: str = ""
    left_name: str = ""
    right_name: str = ""


@dataclass(frozen=True)
class _Side:
    """The arguments of one side by common name, and what the side itself calls each."""

    values: Mapping[str, Any]
    names: Mapping[str, str]
    asked: bool


def diff(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Difference]:
    """What differs between two mappings of arguments, the most telling first.

    When one side is all that a server runs with and the other only what was asked for, what was not asked for is no
    difference, and neither is what was left to the server ("auto"). A list equals a tuple, and "8" equals 8.
    """
    a, b = _side(left, len(right)), _side(right, len(left))
    found = []
    for name in {*a.values, *b.values}:
        one_sided = name not in a.values or name not in b.values
        x, y = a.values.get(name, ABSENT), b.values.get(name, ABSENT)
        if _equal(name, x, y) or _left_open(a, name, x, b) or _left_open(b, name, y, a):
            continue
        told = argument_weights.of(name)
        found.append(
            Difference(
                name=name,
                left=_shown(name, x),
                right=_shown(name, y),
                weight=told.weight,
                rank=argument_weights.rank(name, one_sided),
                hint=_hint(told.hint, x, y),
                left_name=a.names.get(name, ""),
                right_name=b.names.get(name, ""),
            )
        )
    return sorted(found, key=lambda entry: (entry.rank, entry.name))


def _hint(hint: str, x: Any, y: Any) -> str:
    """The clause about an argument, and which side leaves it to the server."""
    side = "the left side" if x == "auto" else "the right side" if y == "auto" else ""
    return "; ".join(part for part in (hint, f"{side} leaves it to the server" if side else "") if part)


def recorded(text: str) -> dict[str, Any]:
    """The arguments in a recorded JSON file: a release's launch.json, a saved result with `effective`, or a mapping.

    Raises RecordError.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise RecordError(f"it is no JSON ({exc}); give a release's launch.json or saved arguments") from exc
    if not isinstance(found, dict):
        raise RecordError("it holds no JSON object; give a release's launch.json or saved arguments")
    for key in ("effective", "args"):
        if isinstance(found.get(key), dict):
            return dict(found[key])
    if "argv" in found:
        argv = found["argv"]
        if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
            raise RecordError("its argv is no list of texts; give a release's launch.json as it was written")
        return of_argv(argv)
    return found


def of_argv(argv: list[str]) -> dict[str, Any]:
    """The arguments on a command line: a flag alone is true, several words behind one flag are a list."""
    found: dict[str, Any] = {}
    name = ""
    for word in argv:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            negated = not equals and name.startswith("no-")
            name = name.removeprefix("no-") if negated else name
            found[name] = value if equals else not negated
        elif name:
            before = found[name]
            found[name] = (
                word if isinstance(before, bool) else [*(before if isinstance(before, list) else [before]), word]
            )
    return found


# --- common names ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _fields() -> Mapping[str, str]:
    """Name or alias of every flag of the locked releases -> its name in a log, the newest one's where they differ."""
    return {
        name: flag.field
        for version in reversed(releases.known())
        for flag in releases.get(version).flags.values()
        for name in (flag.name, *flag.aliases)
    }


@lru_cache(maxsize=1)
def _negatable() -> frozenset[str]:
    """The names of what can be on by default, so that false says something."""
    return frozenset(
        flag.field for version in releases.known() for flag in releases.get(version).flags.values() if flag.negatable
    )


def _field(name: str) -> str:
    return _fields().get(name, name.replace("-", "_"))


def _side(args: Mapping[str, Any], other: int) -> _Side:
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for given, value in args.items():
        field = _field(canonical(str(given)))
        values[field] = value
        names[field] = str(given)
    _graphs(values, names)
    _renamed(values, names)
    _attention_dp(values, names)
    return _Side(values, names, asked=len(args) < WHOLE <= other)


def _move(values: dict[str, Any], names: dict[str, str], old: str, new: str, value: Any) -> None:
    """Give an argument another name and value, unless there is one of that name that says something."""
    origin = names.get(old, old)
    if old != new:
        values.pop(old, None)
        names.pop(old, None)
    if new not in values or (value is not None and values[new] in (None, "auto")):
        values[new] = value
        names[new] = origin


def _renamed(values: dict[str, Any], names: dict[str, str]) -> None:
    for rename in flag_names.RENAMES:
        old, new = _field(rename.old), _field(rename.new)
        if old in values and old != new and old != "disable_cuda_graph" and rename.knows(values[old]):
            _move(values, names, old, new, rename.value(values[old]))


def _graphs(values: dict[str, Any], names: dict[str, str]) -> None:
    """Decode graphs off is `disable_cuda_graph`, however a release writes it; the rest has a name for each phase."""
    config = values.get("cuda_graph_config")
    if isinstance(config, Mapping):
        for phase in _PHASES:
            part = config.get(phase)
            for key, value in part.items() if isinstance(part, Mapping) else ():
                values[f"cuda_graph_{key}_{phase}"] = value
                names[f"cuda_graph_{key}_{phase}"] = f"cuda_graph_config.{phase}.{key}"
        del values["cuda_graph_config"], names["cuda_graph_config"]
    for phase in _PHASES:
        switch = f"disable_{phase}_cuda_graph"
        if switch in values:
            off = "disabled" if values[switch] is True else None
            _move(values, names, switch, f"cuda_graph_backend_{phase}", off)
    backend = values.get("cuda_graph_backend_decode")
    if backend is not None:
        values["disable_cuda_graph"] = backend == "disabled"
        names["disable_cuda_graph"] = names["cuda_graph_backend_decode"]
    if backend in (None, "full", "disabled"):
        values.pop("cuda_graph_backend_decode", None)
        names.pop("cuda_graph_backend_decode", None)


def _attention_dp(values: dict[str, Any], names: dict[str, str]) -> None:
    """Up to 0.5.21 enable_dp_attention says what dp_size means; later attn_dp_size has its own number."""
    old = values.pop("enable_dp_attention", None)
    origin = names.pop("enable_dp_attention", "")
    groups = values.get("attn_dp_size")
    if old is True and not (is_whole(groups) and groups > 1) and "dp_size" in values:
        values["attn_dp_size"] = values["dp_size"]
        names["attn_dp_size"] = origin
        values["dp_size"] = 1


# --- equality --------------------------------------------------------------------------------------------------------


def _left_open(side: _Side, name: str, value: Any, other: _Side) -> bool:
    """Whether this side only asked, and left this argument to the server."""
    return side.asked and not other.asked and (value in (ABSENT, None, "auto"))


def _equal(name: str, x: Any, y: Any) -> bool:
    if canonical(name) in SECRETS and HIDDEN in (x, y):
        # One side cannot be seen; that it is there is all that can be compared.
        return _off(name, x) == _off(name, y)
    if _off(name, x) and _off(name, y):
        return True
    return bool(_comparable(x, y) == _comparable(y, x))


def _off(name: str, value: Any) -> bool:
    """Whether the value says no more than the argument's absence."""
    if value is False:
        return name not in _negatable()
    one = name in ("attn_dp_size", "dp_size") and is_whole(value) and value == 1
    return value in (ABSENT, None, "", [], {}, ()) or one


def _comparable(value: Any, other: Any) -> Any:
    if isinstance(value, (list, tuple)):
        others = other if isinstance(other, (list, tuple)) and len(other) == len(value) else [None] * len(value)
        return [_comparable(item, beside) for item, beside in zip(value, others)]
    if isinstance(value, Mapping):
        beside = other if isinstance(other, Mapping) else {}
        return {key: _comparable(item, beside.get(key)) for key, item in value.items()}
    if isinstance(value, str) and isinstance(other, (int, float)) and _NUMBER.fullmatch(value):
        value = float(value) if isinstance(other, float) or not value.lstrip("+-").isdigit() else int(value)
    # True == 1 in Python, but not as a server's argument.
    return (isinstance(value, bool), value)


def _shown(name: str, value: Any) -> Any:
    return HIDDEN if canonical(name) in SECRETS and value not in (None, ABSENT, "") else value
