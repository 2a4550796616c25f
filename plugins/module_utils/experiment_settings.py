# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings that an experiment varies: their shape, one laid over another, how two differ, and short names for that.

Settings are a plain mapping, so that they go into files and role variables as they are:

    {"backend": "auto", "sglang_version": "0.5.23", "autotune_gate": "closed", "args": {"tp-size": 8}, "env": {}}

`autotune_backend` is beside them when the gate is open for a backend that has to be named. An overlay has some of the
same keys; null takes a launch argument or an environment variable away.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import flags, launch_plan, redact, releases, server_args

CLOSED, OPEN = "closed", "open"
#: The backend that the gate is opened for when SGLang chooses the backend: releases before 0.5.13 leave it out.
GATE_BACKEND = "flashinfer_cutlass"
PLAIN = ("sglang_version", "backend", "autotune_gate", "autotune_backend")
KEYS = (*PLAIN, "args", "env")

_SHORT = {"sglang_version": "sglang", "backend": "backend", "autotune_gate": "gate", "autotune_backend": "gate-backend"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")
_FLAG = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f]")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.,:/+=@%-]+")
_LONGEST_TEXT = 2000
_LONGEST_VALUE_IN_NAME = 40
_LONGEST_NAME = 100
_MOST_ENTRIES = 300
_DEEPEST = 20
# As the exact value of a number that stands in a launch argument; the exponent is bounded, so that it can be written.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
# A flag alone, which is not a flag with the text true.
_BARE = "\0True"


class ExperimentError(Exception):
    """An experiment that cannot be made or go on; `facts` are what was known."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Difference:
    """One thing that differs between settings a and b.

    `what` is one of KEYS, `name` the flag or variable (for the others the key again). `a` and `b` are the values, None
    where a side has none. `overlay` makes b's value of it out of any settings. A gate that is opened for a backend that
    does not follow from the settings has it as `opened_for`.
    """

    what: str
    name: str
    a: Any
    b: Any
    opened_for: str | None = None

    @property
    def overlay(self) -> dict[str, Any]:
        """The overlay that makes this one change."""
        if self.what in ("args", "env"):
            return {self.what: {self.name: self.b}}
        return {self.what: self.b, **({"autotune_backend": self.opened_for} if self.opened_for else {})}

    @property
    def label(self) -> str:
        """Short name of the change, such as `backend=triton`, `tp-size=4`, `no tp-size` or `env.NAME=1`."""
        name = f"env.{self.name}" if self.what == "env" else _SHORT.get(self.what, self.name)
        if self.b is None or (self.what == "args" and self.b is False):
            return f"no {name}"
        if self.what == "args" and self.b is True:
            return name
        opened_for = f":{_shown(self.opened_for)}" if self.opened_for else ""
        return f"{name}={_shown(_text(self.b))}{opened_for}"

    def data(self) -> dict[str, Any]:
        """The difference as a plain mapping."""
        return {"what": self.what, "name": self.name, "a": self.a, "b": self.b}


def base(given: Any, where: str = "base") -> dict[str, Any]:
    """Complete settings from `given`: backend auto, the gate closed, no arguments unless it says otherwise.

    Raises ExperimentError.
    """
    plain: dict[str, Any] = {"sglang_version": None, "backend": "auto", "autotune_gate": CLOSED, "args": {}, "env": {}}
    return merge(plain, given, where)


def merge(settings: Mapping[str, Any], over: Any, where: str = "overlay") -> dict[str, Any]:
    """Settings with an overlay on top; flags have the names that the release has (dashes, no aliases).

    Raises ExperimentError naming `where`.
    """
    if not isinstance(over, Mapping):
        raise _wrong(where, f"it is a {type(over).__name__}", f"give a mapping with {', '.join(KEYS)}")
    unknown = [_shown(str(key)) for key in over if key not in KEYS]
    if unknown:
        raise _wrong(where, f"it has {', '.join(unknown[:5])}", f"use only {', '.join(KEYS)}")
    found = {key: settings.get(key) for key in PLAIN}
    for key in PLAIN:
        if over.get(key) is not None:
            found[key] = _plain(key, over[key], where)
    version = found["sglang_version"]
    found["args"] = _laid(
        _arguments(settings.get("args"), version, where), _arguments(over.get("args"), version, where)
    )
    found["env"] = _laid(_variables(settings.get("env"), where), _variables(over.get("env"), where))
    found["autotune_backend"] = _opened_for(found)
    if found["autotune_backend"] is None:
        del found["autotune_backend"]
    return found


def _opened_for(settings: Mapping[str, Any]) -> str | None:
    """The backend that has to be named for the gate; None when it is closed, or open for the backend that is chosen."""
    named: str | None = settings.get("autotune_backend")
    if settings.get("autotune_gate") != OPEN:
        return None
    if named is None and settings.get("backend") == "auto":
        # The gate needs a name, and nobody knows yet which backend SGLang takes.
        return GATE_BACKEND
    return None if named == settings.get("backend") else named


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Difference, ...]:
    """The single differences of complete settings: version, backend and gate first, then arguments and variables by
    name. What would render the same (8 and "8", a flag that is off and one that is absent) is none, nor are equal
    numbers (0.8 and 0.80) of a flag that takes a number. With all of them made to it, a has the settings of b.
    """
    found = _plain_differences(a, b)
    version = b.get("sglang_version")
    for what in ("args", "env"):
        left, right = a.get(what) or {}, b.get(what) or {}
        if what == "args":
            # Another release may call the same flag by one of its other names.
            left = {flag_name(name, version): value for name, value in left.items()}
        for name in sorted({*left, *right}):
            old, new = left.get(name), right.get(name)
            same = _argument_key(name, old, version) == _argument_key(name, new, version)
            if not (same if what == "args" else _env_key(old) == _env_key(new)):
                found.append(Difference(what, name, old, new))
    return tuple(found)


def _plain_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    found = [
        Difference(key, key, a.get(key), b.get(key))
        for key in ("sglang_version", "backend", "autotune_gate")
        if b.get(key) is not None and a.get(key) != b.get(key)
    ]
    wanted = _opened_for(b)
    # Mostly the backend of the gate follows from the others.
    if _opened_for({**{key: a.get(key) for key in PLAIN}, **{change.what: change.b for change in found}}) == wanted:
        return found
    named = wanted or str(b.get("backend"))
    opens = [index for index, change in enumerate(found) if change.what == "autotune_gate"]
    # A gate that is closed is opened for nothing, so its backend alone is no difference that could be made.
    for index in opens:
        found[index] = replace(found[index], opened_for=named)
    if not opens:
        found.append(Difference("autotune_backend", "autotune_backend", _opened_for(a) or a.get("backend"), named))
    return found


def apply(settings: Mapping[str, Any], changes: Iterable[Difference]) -> dict[str, Any]:
    """Settings with some differences made."""
    found = dict(settings)
    for change in changes:
        found = merge(found, change.overlay)
    return found


def key(settings: Mapping[str, Any]) -> str:
    """Equal for settings that start the same server: 16 hex digits."""
    version = settings.get("sglang_version")
    args = {name: _argument_key(name, value, version) for name, value in settings["args"].items()}
    content = {
        **{name: settings.get(name) for name in PLAIN},
        "args": {name: value for name, value in args.items() if value is not None},
        "env": {name: _env_key(value) for name, value in settings["env"].items()},
    }
    return digest(content)


def digest(content: Any) -> str:
    """16 hex digits of a plain JSON value."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def name_of(changes: Iterable[Difference]) -> str:
    """A name for settings from what differs from others, at most 100 characters, empty when nothing does."""
    text = " ".join(change.label for change in changes)
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 7]}~{_tail(text)}"


def flag_name(name: str, version: str | None) -> str:
    """The name that a release gives a flag: dashes, and no alias. For an unlocked release the newest one's count."""
    wanted = releases.canonical(name)
    flag = _flags(version).get(wanted)
    return flag.name if flag is not None else wanted


def unknown_flag(name: str, version: str | None) -> bool:
    """Whether a locked release has no flag of that name, nor one with that alias."""
    return name not in _flags(version)


def of_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a recorded run had, without what variables of their own decide. Raises ExperimentError."""
    context = record.get("context")
    where = f"record {_shown(str(record.get('id')))}"
    if not isinstance(context, Mapping):
        raise _wrong(where, "it has no context", "give a record of sglang.fact")
    gate = context.get("autotune_gate")
    opened = isinstance(gate, Mapping) and gate.get("enabled_by") == "patch"
    args, env = context.get("args"), context.get("env")
    version = context.get("sglang_version")
    taken = {
        "sglang_version": version,
        "backend": context.get("backend"),
        "autotune_gate": OPEN if opened else CLOSED,
        "autotune_backend": gate.get("backend") if opened and isinstance(gate, Mapping) else None,
        "args": {
            name: value
            for name, value in (args.items() if isinstance(args, Mapping) else ())
            if flag_name(str(name), version if isinstance(version, str) else None) not in launch_plan.OWNERS
            # Random weights are a setting of the model.
            and not (releases.canonical(str(name)) == "load-format" and value == "dummy")
        },
        "env": dict(env) if isinstance(env, Mapping) else {},
    }
    return base(taken, where)


# --- reading ---------------------------------------------------------------------------------------------------------


def _plain(name: str, value: Any, where: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        hint = " in quotes" if name == "sglang_version" else ""
        raise _wrong(where, f"{name} is {_shown(repr(value))}", f"give a name{hint}")
    if name == "sglang_version" and value == "auto":
        raise _wrong(where, "sglang_version is auto, which can be any", "give the number of a release in quotes")
    if name == "autotune_gate" and value not in (OPEN, CLOSED):
        raise _wrong(where, f"autotune_gate is {value}", f"give {OPEN} or {CLOSED}")
    return value


def _arguments(given: Any, version: str | None, where: str) -> dict[str, Any]:
    """Arguments by the names of the release."""
    found: dict[str, Any] = {}
    for raw, value in _entries(given, "args", where):
        name = flag_name(raw, version)
        if not _FLAG.fullmatch(name):
            raise _wrong(where, f"{_shown(repr(raw))} is no launch argument", "give its name without dashes in front")
        if name in launch_plan.OWNERS:
            owner = "backend" if name == "moe-runner-backend" else launch_plan.OWNERS[name]
            raise _wrong(where, f"{name} is decided by {owner}", "set that instead")
        if server_args.secret_values({name: value}) or _unknown_secret(name, value, version):
            raise _wrong(where, f"{name} is a secret", "put it into the variable that role sglang_server has for it")
        if name in found:
            raise _wrong(where, f"{name} is given twice under different spellings", "keep one")
        found[name] = _value(value, name, where)
    return found


def _unknown_secret(name: str, value: Any, version: str | None) -> bool:
    """Whether a flag that the release does not have is called like a secret: what it has are no secrets, beside those
    that are known.
    """
    return isinstance(value, str) and unknown_flag(name, version) and redact.is_secret(name, launch_plan.SECRET_NAMES)


def _variables(given: Any, where: str) -> dict[str, Any]:
    for name, value in _entries(given, "env", where):
        if not _ENV_NAME.fullmatch(name):
            raise _wrong(where, f"{_shown(repr(name))} is no environment variable", "use letters, digits and _")
        if isinstance(value, (Mapping, list, tuple)):
            raise _wrong(where, f"env {name} is a {type(value).__name__}", "give a text or a number")
        # The server would be refused because of it, but only after the experiment's files were written.
        problem = launch_plan.env_problem(name, value, {}) if value is not None else None
        if problem:
            raise ExperimentError(f"reading the settings of {where}: {problem}")
    return {name: _value(value, name, where) for name, value in _entries(given, "env", where)}


def _entries(given: Any, what: str, where: str) -> list[tuple[str, Any]]:
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise _wrong(where, f"{what} is a {type(given).__name__}", "give a mapping of names and values")
    if len(given) > _MOST_ENTRIES:
        raise _wrong(where, f"{what} has {len(given)} entries", f"give at most {_MOST_ENTRIES}")
    return [(str(name), value) for name, value in given.items()]


def _value(value: Any, name: str, where: str) -> Any:
    """A plain JSON value that fits on a command line."""
    problem = ""
    if isinstance(value, float) and not math.isfinite(value):
        problem = f"{name} is {value}"
    elif isinstance(value, (list, tuple, Mapping)):
        problem = _structure_problem(value, name)
    elif not (value is None or isinstance(value, (str, int, float))):
        problem = f"{name} is a {type(value).__name__}"
    elif len(str(value)) > _LONGEST_TEXT:
        problem = f"{name} has more than {_LONGEST_TEXT} characters"
    elif _UNPRINTABLE.search(str(value)):
        problem = f"{name} holds a line end or another control character"
    if problem:
        raise _wrong(where, problem, "give a text, a number, true, false or null")
    if redact.holds_secret(value, launch_plan.SECRET_NAMES):
        raise _wrong(
            where,
            f"{name} holds a secret or an address with a password, and the experiment's file is readable for everybody",
            "put it into sglang_server_secrets, or name a file or a variable that has it",
        )
    return value


def _structure_problem(value: Any, name: str) -> str:
    level = [value]
    for _depth in range(_DEEPEST):
        level = [item for one in level if isinstance(one, (list, tuple, Mapping)) for item in _items(one)]
    if level:
        return f"{name} is nested more than {_DEEPEST} deep"
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return f"{name} is not plain JSON"
    return f"{name} has more than {_LONGEST_TEXT} characters" if len(text) > _LONGEST_TEXT else ""


def _items(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, Mapping) else value


def _laid(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    together = {**under, **over}
    return {name: together[name] for name in sorted(together) if together[name] is not None}


# --- comparing and showing -------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def _flags(version: str | None) -> dict[str, releases.Flag]:
    """The flags of a release by name and alias."""
    wanted = version if version in releases.known() else releases.newest()
    release = releases.get(str(wanted))
    aliases = {alias: flag for flag in release.flags.values() for alias in flag.aliases}
    return {**aliases, **release.flags}


def _argument_key(name: str, value: Any, version: str | None) -> str | None:
    """Equal for values that render the same and for equal numbers; None for a flag that is left out."""
    flag = _flags(version).get(name)
    if value is None or (value is False and not (flag is not None and flag.negatable)):
        return None
    if isinstance(value, bool):
        return f"\0{value}"
    if isinstance(value, Mapping) or (flag is not None and flag.json):
        return _json_key(value)
    # A text such as the name of a revision is not the number that it looks like.
    item_key = _text if flag is not None and flag.takes_value and flag.type == flags.TEXT else _number_key
    if isinstance(value, (list, tuple)):
        if len(value) > 1:
            return json.dumps([item_key(item) for item in value])
        # The flag and its one item, or the flag alone.
        return item_key(value[0]) if value else _BARE
    return item_key(value)


def _number_key(value: Any) -> str:
    """The rendered text, of a number without what makes no other number of it: 1 of 1.0, 0.8 of 0.80."""
    text = _text(value)
    if not _NUMBER.fullmatch(text.strip()):
        return text
    number = Decimal(text.strip())
    return format(number.normalize(Context(prec=2 * _LONGEST_TEXT)), "f") if number else "0"


def _json_key(value: Any) -> str:
    """JSON, as a text or not, in one spelling; a text that is none as it is."""
    try:
        data = json.loads(value) if isinstance(value, str) else value
        return json.dumps(_same_numbers(data), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return str(value)


def _same_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, (list, tuple)):
        return [_same_numbers(item) for item in value]
    return {str(key): _same_numbers(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _env_key(value: Any) -> str | None:
    if value is None:
        return None
    return str(int(value)) if isinstance(value, bool) else str(value)


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(_text(item) for item in value)
    return json.dumps(value, sort_keys=True, separators=(",", ":")) if isinstance(value, Mapping) else str(value)


def _shown(text: str) -> str:
    """A value in a name or a message: short, and without what means something to a terminal or a page."""
    clean = _NOT_IN_NAMES.sub("_", text)[:_LONGEST_VALUE_IN_NAME]
    return clean if clean == text else f"{clean}~{_tail(text)}"


def _tail(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:6]


def _wrong(where: str, why: str, todo: str) -> ExperimentError:
    return ExperimentError(f"reading the settings of {where}: {why}; {todo}")
