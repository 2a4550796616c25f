# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments of `sglang.launch_server`: check a mapping against a release, render it, read it back from a log."""

from __future__ import annotations

import ast
import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ansible_collections.tokforge.sglang.plugins.module_utils.releases import Flag, Release, canonical

# Flags that a role variable of ours decides; a second source would let the two disagree.
OWNED = {
    "host": "sglang_host",
    "port": "sglang_port",
    "model-path": "sglang_model",
    "served-model-name": "sglang_served_model_name",
}
# Values that must never stand in an inventory's arguments, on a command line or in a manifest.
SECRETS = {
    "api-key": "sglang_server_api_key",
    "admin-api-key": "sglang_server_secrets",
    "ssl-keyfile-password": "sglang_server_secrets",
}
# Flags whose text is JSON by their help, though the release's parser takes any text; a mapping is fine for them.
_JSON_TEXT = re.compile(r"(^|-)(config|override-args|init-expert-location)$")
_NUMBER = re.compile(r"-\d+(\.\d*)?|-\.\d+")
HIDDEN = "(hidden)"
# The value `diff` reports for an argument that one of the two sides does not have.
ABSENT = "(absent)"


@dataclass(frozen=True)
class Rename:
    """A flag's old and new name, and the release that brought the new one."""

    old: str
    new: str
    since: str


# Read from the releases' sources: which name went, which one does the same now.
RENAMES = (
    Rename("nsa-prefill-backend", "dsa-prefill-backend", "0.5.13"),
    Rename("nsa-decode-backend", "dsa-decode-backend", "0.5.13"),
    Rename("fp4-gemm-runner-backend", "fp4-gemm-backend", "0.5.8"),
    Rename("enable-flashinfer-allreduce-fusion", "flashinfer-allreduce-fusion-backend", "0.5.14"),
    Rename("disable-cuda-graph", "cuda-graph-backend-decode", "0.5.14"),
    Rename("cuda-graph-bs", "cuda-graph-bs-decode", "0.5.14"),
    Rename("cuda-graph-max-bs", "cuda-graph-max-bs-decode", "0.5.14"),
)


@dataclass(frozen=True)
class Problem:
    """Why one argument cannot be used as it is; `flag` is its canonical name, without dashes in front."""

    flag: str
    message: str


class Difference(NamedTuple):
    """One argument whose value differs; ABSENT stands for the side that does not have it."""

    name: str
    left: Any
    right: Any


# --- rendering -------------------------------------------------------------------------------------------------------


def render(args: Mapping[str, Any], release: Release | None = None) -> list[str]:
    """The command line of `args`, sorted by flag, so that the same mapping always gives the same list.

    True gives the flag alone, False and None leave it out; but False on a flag that can be negated gives `--no-<flag>`.
    A list gives its items after the flag, a mapping its JSON text; a list is JSON too where the flag reads JSON.
    """
    named = sorted((canonical(str(name)), value) for name, value in args.items())
    rendered: list[str] = []
    for name, value in named:
        rendered += _render_one(name, value, release.flag(name) if release else None)
    return rendered


def _render_one(name: str, value: Any, flag: Flag | None) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool):
        negated = [f"--no-{name}"] if flag is not None and flag.negatable else []
        return [f"--{name}"] if value else negated
    if isinstance(value, (list, tuple)) and not (flag is not None and flag.json):
        return [f"--{name}", *(_text(item) for item in value)]
    text = _text(value)
    # argparse takes a separate word that begins with a dash for a flag, unless it is a number.
    if text.startswith("-") and not _NUMBER.fullmatch(text):
        return [f"--{name}={text}"]
    return [f"--{name}", text]


def _text(value: Any) -> str:
    if isinstance(value, (Mapping, list, tuple)):
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    return str(value)


# --- checking --------------------------------------------------------------------------------------------------------


def check(args: Mapping[str, Any], release: Release) -> list[Problem]:
    """Everything about `args` that this release would not accept or that another variable decides, sorted by flag."""
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for given in sorted(args, key=lambda name: canonical(str(name))):
        name = canonical(str(given))
        flag = release.flag(name)
        owner = flag.name if flag is not None else name
        if owner in seen:
            problems.append(Problem(name, f"--{name} is the same argument as --{seen[owner]}; keep one of them"))
            continue
        seen[owner] = name
        message = _problem(name, args[given], flag, release)
        if message is not None:
            problems.append(Problem(name, message))
    return problems


def _problem(name: str, value: Any, flag: Flag | None, release: Release) -> str | None:
    if flag is None:
        return f"--{name} is no argument of SGLang {release.version}; {_suggestion(name, release)}"
    for known, variable in SECRETS.items():
        if known in (flag.name, *flag.aliases):
            return f"--{name} is a secret and would stand on the command line; set it through {variable}"
    for known, variable in OWNED.items():
        if known in (flag.name, *flag.aliases):
            return f"--{name} follows from {variable}; set that instead"
    if flag.name == "config":
        return "--config names a file with more arguments, a second source; write them into sglang_server_args"
    return None if value is None else _value_problem(name, value, flag, release)


def secret_values(args: Mapping[str, Any]) -> list[str]:
    """The values of secrets among `args`, so that a caller can keep them out of what it prints."""
    return [str(value) for name, value in args.items() if canonical(str(name)) in SECRETS and value not in (None, "")]


def _suggestion(name: str, release: Release) -> str:
    for rename in RENAMES:
        if name == rename.old and release.flag(rename.new):
            return f"it is --{rename.new} since {rename.since}"
        if name == rename.new and release.flag(rename.old):
            return f"before {rename.since} it is --{rename.old}"
    positive = release.flag(name[3:]) if name.startswith("no-") else None
    if positive is not None and positive.negatable:
        return f"write `{positive.name}: false`"
    names = [known for flag in release.flags.values() for known in (flag.name, *flag.aliases)]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    if near:
        return f"did you mean --{near[0]}?"
    return f"see `python -m sglang.launch_server --help` of {release.version}"


def _value_problem(name: str, value: Any, flag: Flag, release: Release) -> str | None:
    if isinstance(value, bool):
        if value and flag.takes_value and flag.nargs not in ("?", "*"):
            return f"--{name} needs a value, not true; give one{_one_of(flag)}"
        if not value and flag.takes_value:
            return f"--{name} takes a value, so false means nothing; give a value or leave it out (null)"
        return None
    if not flag.takes_value:
        return f"--{name} is a switch and takes no value; write true or false, not {value!r}"
    if isinstance(value, (list, tuple)):
        if flag.nargs not in ("*", "+") and not flag.json:
            return f"--{name} takes one value, not a list; give one{_one_of(flag)}"
        if flag.nargs == "+" and not value:
            return f"--{name} needs at least one value; give one or leave it out (null)"
    unfit = _unfit(value)
    if unfit:
        return f"--{name} holds {unfit}, which no command line or JSON text can; give another value"
    if isinstance(value, Mapping) and not (flag.json or flag.nargs in ("*", "+") or _JSON_TEXT.search(flag.name)):
        return f"--{name} takes one value, not a mapping; give one{_one_of(flag)}"
    items = value if isinstance(value, (list, tuple)) and not flag.json else [value]
    if isinstance(value, (list, tuple)) and not flag.json:
        if None in items:
            return f"--{name} has an empty item; give a value or leave the item out"
        dashed = next((str(item) for item in items if str(item).startswith("-") and not _is_number(item)), None)
        if dashed is not None:
            return f"--{name} has the item {dashed!r}, which would be read as a flag of its own; leave it out"
    if flag.choices is not None:
        allowed = [str(choice) for choice in flag.choices]
        wrong = [str(item) for item in items if str(item) not in allowed]
        if wrong:
            near = difflib.get_close_matches(wrong[0], allowed, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            return f"--{name} does not take {wrong[0]} in SGLang {release.version}{hint}; use one{_one_of(flag)}"
    return None


def _is_number(item: Any) -> bool:
    return _NUMBER.fullmatch(str(item)) is not None


def _unfit(value: Any) -> str | None:
    """What in a value cannot be handed over, in words; None when all can."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"the number {value}"
    if isinstance(value, str) and "\0" in value:
        return "a NUL"
    inner: list[Any] = []
    if isinstance(value, Mapping):
        inner = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple)):
        inner = list(value)
    return next((found for found in map(_unfit, inner) if found), None)


def _one_of(flag: Flag) -> str:
    return f" of {', '.join(str(choice) for choice in flag.choices)}" if flag.choices is not None else ""


# --- reading back from a log -----------------------------------------------------------------------------------------

# A log record's head; the main process has no rank tags between the time and the bracket.
_RECORD = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?P<tags>[^\]\r\n]*)\] ")
_NAMED = re.compile(r"\s*([A-Za-z_]\w*)=(.*)", re.DOTALL)
_QUOTED = re.compile(r"\s*'([^']*)': ?(.*)", re.DOTALL)


def parse_log_line(text: str) -> dict[str, Any] | None:
    """The arguments a server says it runs with, from one line of its log; None when the line does not say so.

    Both forms are read: `server_args=ServerArgs(name=value, ...)` (up to 0.5.12) and `server_args={'name': value, ...}`
    (0.5.23). Only a record of the main process counts, so the same words inside a logged prompt do not. A value that
    is no Python literal (an object's own text) stays text. Secrets come back as HIDDEN.
    """
    for piece in re.split(r"[\r\n]", text):
        # A progress bar may stand before the record on its line, so the record's head need not begin the line; but what
        # follows another record's head is that record's content.
        record = _RECORD.search(piece)
        if record is None or record["tags"].strip():
            continue
        message = piece[record.end() :]
        for start, named, close in (("server_args=ServerArgs(", _NAMED, ")"), ("server_args={", _QUOTED, "}")):
            if message.startswith(start):
                return _hidden(_fields(message[len(start) :], named, close))
    return None


def parse_log(lines: Iterable[str]) -> dict[str, Any] | None:
    """The arguments of the last start in a log; None when no line says any."""
    found = None
    for line in lines:
        if "server_args=" in line:
            found = parse_log_line(line) or found
    return found


def _fields(body: str, pattern: re.Pattern[str], close: str) -> dict[str, Any]:
    found: dict[str, str] = {}
    last = None
    for part in _top_level_parts(body, close):
        match = pattern.fullmatch(part)
        if match:
            last = match[1]
            found[last] = match[2]
        elif last is not None:
            # An object's own text may hold a bare comma; what is no new field belongs to the one before.
            found[last] += f",{part}"
    return {name: _literal(value.strip()) for name, value in found.items()}


def _top_level_parts(body: str, close: str) -> Iterator[str]:
    """Split at the commas outside of quotes and brackets, up to the bracket that ends the whole."""
    depth, quote, start, index = 0, "", 0, 0
    while index < len(body):
        char = body[index]
        if quote:
            if char == "\\":
                index += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            if depth == 0 and char == close:
                break
            depth -= 1
        elif char == "," and depth == 0:
            yield body[start:index]
            start = index + 1
        index += 1
    yield body[start:index]


def _literal(text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    # JSON has no sets and no byte strings; they stay the text that the log holds.
    return value if _is_plain(value) else text


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return value is None or isinstance(value, (str, int, float, bool))


def _hidden(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: HIDDEN if value is not None and canonical(name) in SECRETS else value for name, value in found.items()
    }


# --- comparing -------------------------------------------------------------------------------------------------------


def diff(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[Difference]:
    """The arguments that differ between two mappings, sorted by name (underscores). A list equals a tuple."""
    a = {canonical(str(name)).replace("-", "_"): value for name, value in left.items()}
    b = {canonical(str(name)).replace("-", "_"): value for name, value in right.items()}
    return [
        Difference(name, a.get(name, ABSENT), b.get(name, ABSENT))
        for name in sorted({*a, *b})
        if name not in a or name not in b or _comparable(a[name]) != _comparable(b[name])
    ]


def _comparable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_comparable(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _comparable(item) for key, item in value.items()}
    # True == 1 in Python, but not as a server's argument.
    return (isinstance(value, bool), value)
