# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments of `sglang.launch_server`: check a mapping against a release's flags, and render it.

What several arguments mean together is in `argument_conflicts.py`, other names of flags are in `flag_names.py`.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import flag_names, flags, url_password
from ansible_collections.tokforge.sglang.plugins.module_utils.flags import Flag, canonical
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole
from ansible_collections.tokforge.sglang.plugins.module_utils.releases import Release

# SGLang logs what its ranks do at level info (launch_server 0.5.10 to 0.5.23).
_TELLING_LEVELS = ("info", "debug")

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
#: How much a problem says: FAIL ends the start, WARN does not, but something is not as it looks.
FAIL = "fail"
WARN = "warn"
# Flags whose text is JSON by their help, though the release's parser takes any text; a mapping is fine for them.
_JSON_TEXT = re.compile(r"(^|-)(config|override-args|init-expert-location)$")
_NUMBER = re.compile(r"-\d+(\.\d*)?|-\.\d+")
# What Python's int and float take as text, less what nobody writes: underscores and numbers that are none.
_WHOLE = re.compile(r"\s*[+-]?\d{1,18}\s*")
_DECIMAL = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?\s*")
# SGLang's human_readable_int (0.5.10rc0..0.5.23): a whole number, any with an SI unit, a whole one with an IEC unit.
_SIZED = re.compile(r"\s*(\d{1,15}(\.\d+)?[kMGT]|\d{1,15}[KMGT]i|[+-]?\d{1,18})\s*")
_GREATEST = 2**63 - 1
_WANTED = {
    flags.INT: (_WHOLE, "a whole number"),
    flags.FLOAT: (_DECIMAL, "a number"),
    flags.SIZE: (_SIZED, "a whole number, also one like 4k or 1Mi"),
}


@dataclass(frozen=True)
class Problem:
    """What is wrong with one argument; `flag` is its canonical name, without dashes in front.

    A FAIL ends the start or means something else than it says; with a WARN the server starts.
    """

    flag: str
    message: str
    level: str = FAIL


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
    """Everything about `args` that this release would not accept or that another variable decides, sorted by flag.

    What the release only calls deprecated comes as a WARN.
    """
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
        elif flag is not None and flag.deprecated and args[given] not in (None, False):
            hint = flag_names.instead(flag, args[given], release)
            text = f"--{name} still works in SGLang {release.version}, which calls it deprecated; {hint}"
            problems.append(Problem(name, text, WARN))
    return problems


def failing(problems: list[Problem]) -> list[Problem]:
    """The problems that a server does not start with."""
    return [problem for problem in problems if problem.level == FAIL]


def _problem(name: str, value: Any, flag: Flag | None, release: Release) -> str | None:
    if flag is None:
        return f"--{name} is no argument of SGLang {release.version}; {flag_names.advice(name, value, release)}"
    for known, variable in SECRETS.items():
        if known in (flag.name, *flag.aliases):
            return f"--{name} is a secret and would stand on the command line; set it through {variable}"
    for known, variable in OWNED.items():
        if known in (flag.name, *flag.aliases):
            return f"--{name} follows from {variable}; set that instead"
    if flag.name == "config":
        return "--config names a file with more arguments, a second source; write them into sglang_server_args"
    if value is None:
        return None
    if flag.name == "log-level" and str(value).lower() not in _TELLING_LEVELS:
        return (
            f"--{name} {str(value)[:20]} hides the lines by which a start is followed, so it would never be ready; "
            f"leave it out, or use {' or '.join(_TELLING_LEVELS)}"
        )
    if flag.retired and value is not False:
        hint = flag_names.instead(flag, value, release)
        return f"--{name} ends the start of SGLang {release.version}, which only knows it to refuse it; {hint}"
    return _value_problem(name, value, flag, release)


def secret_values(args: Mapping[str, Any]) -> list[str]:
    """The values of secrets among `args`, so that a caller can keep them out of what it prints."""
    return [str(value) for name, value in args.items() if canonical(str(name)) in SECRETS and value not in (None, "")]


def _value_problem(name: str, value: Any, flag: Flag, release: Release) -> str | None:
    unfit = _unfit(value)
    if unfit:
        return f"--{name} holds {unfit}, which no command line or JSON text can; give another value"
    if url_password.holds_password(str(value)):
        return (
            f"--{name} holds an address with a password, and command lines are readable for everybody; leave the "
            "password out, or name a file or a variable that has it"
        )
    if flag.unread:
        return None
    form = _form_problem(name, value, flag)
    if form is not None or isinstance(value, bool):
        return form
    items = list(value) if isinstance(value, (list, tuple)) and not flag.json else [value]
    return _items_problem(name, items, flag, release)


def _form_problem(name: str, value: Any, flag: Flag) -> str | None:
    """Whether the value has the shape that the flag takes: none, one, several, a mapping."""
    if isinstance(value, bool):
        if value and flag.takes_value and flag.nargs not in ("?", "*"):
            return f"--{name} needs a value, not true; give one{_one_of(flag)}"
        if not value and flag.takes_value:
            return f"--{name} takes a value, so false means nothing; give a value or leave it out (null)"
        return None
    if not flag.takes_value:
        return f"--{name} is a switch and takes no value; write true or false, not {value!r}"
    if isinstance(value, (list, tuple)) and not flag.json:
        if flag.nargs not in ("*", "+"):
            return f"--{name} takes one value, not a list; give one{_one_of(flag)}"
        if flag.nargs == "+" and not value:
            return f"--{name} needs at least one value; give one or leave it out (null)"
        if None in value:
            return f"--{name} has an empty item; give a value or leave the item out"
        dashed = next((str(item) for item in value if str(item).startswith("-") and not _is_number(item)), None)
        if dashed is not None:
            return f"--{name} has the item {dashed!r}, which would be read as a flag of its own; leave it out"
    mapped = flag.json or flag.nargs in ("*", "+") or _JSON_TEXT.search(flag.name)
    if isinstance(value, Mapping) and not mapped:
        return f"--{name} takes one value, not a mapping; give one{_one_of(flag)}"
    return None


def _items_problem(name: str, items: list[Any], flag: Flag, release: Release) -> str | None:
    """Whether each single value is of the flag's type and among its choices."""
    if flag.json:
        text = next((item for item in items if isinstance(item, str) and not _is_json(item)), None)
        return None if text is None else f"--{name} needs JSON text, not {_shown(text)}; give a mapping or a list"
    if flag.choices is not None:
        allowed = [str(choice) for choice in flag.choices]
        wrong = [str(item) for item in items if str(item) not in allowed]
        if wrong:
            near = difflib.get_close_matches(wrong[0], allowed, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            return f"--{name} does not take {wrong[0]} in SGLang {release.version}{hint}; use one{_one_of(flag)}"
    elif flag.type in _WANTED:
        pattern, wanted = _WANTED[flag.type]
        bad = next((item for item in items if not _is_of(item, flag.type, pattern)), None)
        if bad is not None:
            return f"--{name} needs {wanted}, not {_shown(bad)}; SGLang {release.version} would refuse to start"
    return None


def _is_of(item: Any, kind: str, pattern: re.Pattern[str]) -> bool:
    if is_whole(item):
        return True
    if isinstance(item, float):
        return kind == flags.FLOAT
    if not isinstance(item, str) or pattern.fullmatch(item) is None:
        return False
    # Text that is a number, but none that Python keeps: it would become inf, which no bound catches.
    return kind != flags.FLOAT or math.isfinite(float(item))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _shown(value: Any) -> str:
    """A value as a message shows it: as YAML has it, and never long."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


def _is_number(item: Any) -> bool:
    return _NUMBER.fullmatch(str(item)) is not None


def _unfit(value: Any) -> str | None:
    """What in a value cannot be handed over, in words; None when all can."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"the number {value}"
    if isinstance(value, int) and abs(value) > _GREATEST:
        return "a number of more than 64 bits"
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
