# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be known before anything is touched: each check gives findings, never an exception.

A finding says what is wrong, where, why and what to do. Checks are independent, so that a person sees every problem of
a request at once instead of one a run.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

OK = "ok"
WARN = "warn"
FAIL = "fail"

#: Prefix of every variable of this collection. Anything that carries it must be a variable that a role declares.
PREFIX = "sglang_"

#: Facts that our roles leave behind for the roles after them. They are no inputs, so no argument spec names them.
ROLE_FACTS = frozenset(
    {
        "sglang_tools",
        "sglang_environment",
        "sglang_model_info",
        "sglang_release_info",
        "sglang_server_info",
        "sglang_benchmark_result",
        "sglang_preflight",
    }
)

#: How like a declared name an unknown extra variable must be before we call it a typing error (difflib ratio, 0 to 1).
#: 0.8 catches one or two wrong letters in names as short as "model" and leaves other people's variables alone.
LIKENESS = 0.8

#: A shorter API key can be guessed, and would be found inside ordinary words when the log is cleaned of it.
SHORTEST_KEY = 16

#: Numbers that have a least and a greatest value; None for no limit.
BOUNDS: Mapping[str, tuple[int, int | None]] = {
    "sglang_port": (1, 65535),
    "sglang_keep_releases": (0, None),
    "sglang_ready_timeout_s": (1, None),
    "sglang_ready_new_tokens": (1, None),
    "sglang_stop_timeout_s": (1, None),
    "sglang_benchmark_timeout_s": (1, None),
}


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


def render(findings: Sequence[Finding]) -> str:
    """All failures as one message a person can act on; warnings follow. Empty when there is neither."""
    lines = [
        f"{finding.check}: {finding.message}" + (f"; {finding.remedy}" if finding.remedy else "")
        for level in (FAIL, WARN)
        for finding in findings
        if finding.level == level
    ]
    return "\n".join(lines)


def unknown_variables(names: Iterable[str], extra: Iterable[str], known: Iterable[str]) -> list[Finding]:
    """Find variables that look like ours and are not.

    :param names: every variable name the host sees.
    :param extra: names given on the command line (``-e``); checked for likeness with ours, since they carry no prefix.
    :param known: every name that an argument spec of this collection declares.
    """
    declared = set(known)
    passable = declared | ROLE_FACTS
    extras = set(extra)
    found = []
    for name in sorted(set(names) | extras):
        if name in passable or name.startswith(("ansible_", "_")):
            continue
        near = difflib.get_close_matches(name, sorted(declared), n=2, cutoff=LIKENESS)
        ours = name.startswith(PREFIX)
        if not ours and not (name in extras and near):
            continue
        remedy = f"did you mean {' or '.join(near)}?" if near else "see the table of variables in README.md"
        found.append(
            Finding(FAIL, "variables", f"{name} is no variable of this collection, so it would change nothing", remedy)
        )
    return found


def check_release(version: Any, lane: str, known: Sequence[str]) -> list[Finding]:
    """The asked release must have a lock in the asked lane.

    :param known: the releases with a lock in this lane, newest first.
    """
    if version in known:
        return [Finding(OK, "release", f"SGLang {version} has a lock in lane {lane}")]
    return [
        Finding(
            FAIL,
            "release",
            f"sglang_version {version!r} has no lock in lane {lane}; locked are {', '.join(known) or 'none'}",
            "choose one of these, or add the release to locks.toml and run make locks",
        )
    ]


def check_backend(backend: Any, version: str, choices: Sequence[str]) -> list[Finding]:
    """The backend must be a choice of this very release's --moe-runner-backend."""
    if backend in choices:
        return [Finding(OK, "backend", f"{backend} is a MoE runner backend of SGLang {version}")]
    near = difflib.get_close_matches(str(backend), choices, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    return [
        Finding(
            FAIL,
            "backend",
            f"{backend!r} is no --moe-runner-backend of SGLang {version}",
            f"{hint}choices there: {', '.join(choices)}",
        )
    ]


def check_space(path: str, free_bytes: int, need_bytes: int) -> list[Finding]:
    """The file system below the root must have room for what a rollout may write there."""
    gb = 1000**3
    seen = f"{free_bytes / gb:.1f} GB free at {path}, {need_bytes / gb:.1f} GB needed"
    if free_bytes >= need_bytes:
        return [Finding(OK, "disk", seen)]
    return [Finding(FAIL, "disk", seen, "free space there, or set sglang_root to a directory on another file system")]


def check_writable(root: str, existing: str, is_dir: bool, writable: bool, user: str) -> list[Finding]:
    """The root, or the nearest directory above it that exists, must let this user create entries.

    :param existing: ``root`` itself, or the nearest ancestor that exists.
    """
    if not root.startswith("/"):
        return [Finding(FAIL, "root", f"sglang_root {root!r} is not an absolute path", "give an absolute path")]
    if re.search(r"[\x00-\x1f\x7f%]", root):
        # supervisord expands %(x)s in its configuration and a newline ends a line there and in a systemd unit.
        return [Finding(FAIL, "root", f"sglang_root {root!r} holds a control character or %", "choose a plain path")]
    if not is_dir:
        return [
            Finding(
                FAIL, "root", f"cannot create sglang_root {root}: {existing} is not a directory", "choose another path"
            )
        ]
    if not writable:
        return [
            Finding(
                FAIL,
                "root",
                f"cannot write sglang_root {root}: user {user} may not write {existing}",
                f"make it writable for {user}, choose another sglang_root, or run with become",
            )
        ]
    return [Finding(OK, "root", f"{root} is writable for {user}")]


def check_port(host: str, port: int, holder: str | None, ours: bool) -> list[Finding]:
    """Nobody but our own server may listen on the port.

    :param holder: the listening process in words (pid and command line), None when the port is free.
    """
    if holder is None:
        return [Finding(OK, "port", f"{host}:{port} is free")]
    if ours:
        return [Finding(OK, "port", f"{host}:{port} is held by our own server, {holder}")]
    return [
        Finding(
            FAIL, "port", f"{host}:{port} is in use by {holder}", "stop that process, or set sglang_port to a free port"
        )
    ]


def check_model_directory(path: str, problem: str | None) -> list[Finding]:
    """A model given as a directory must be one already now: no rollout can make it."""
    if problem is None:
        return [Finding(OK, "model", f"{path} holds a model")]
    return [
        Finding(
            FAIL, "model", problem, "" if ";" in problem else "point model at a directory with config.json and weights"
        )
    ]


def check_values(values: Mapping[str, Any], service_name: re.Pattern[str]) -> list[Finding]:
    """What an argument spec cannot say about a value: bounds, form and length. Secret values are never in a finding.

    :param values: the variables that are set, by name and of their declared types.
    :param service_name: what a name of a unit or supervisor program may look like.
    """
    found = []
    for name, (least, most) in BOUNDS.items():
        value = values.get(name)
        if value is not None and not (least <= value and (most is None or value <= most)):
            limits = f"at least {least}" if most is None else f"from {least} to {most}"
            found.append(Finding(FAIL, "values", f"{name} is {value}", f"give a number {limits}"))
    unit = values.get("sglang_service_name")
    if unit is not None and not service_name.fullmatch(unit):
        found.append(
            Finding(FAIL, "values", f"sglang_service_name is {unit!r}", "use letters, digits, _ . - only, no space")
        )
    return found + check_secrets(values)


def check_secrets(values: Mapping[str, Any]) -> list[Finding]:
    """The secrets must fit a file of NAME=value lines, and API keys must be long enough."""
    found = []
    for name in ("sglang_server_api_key", "sglang_server_admin_api_key"):
        key = str(values.get(name) or "")
        if key and len(key) < SHORTEST_KEY:
            message = f"{name} has {len(key)} characters"
            found.append(Finding(FAIL, "secrets", message, f"use a key of at least {SHORTEST_KEY}"))
        if re.search(r"[\r\n\0]", key):
            found.append(Finding(FAIL, "secrets", f"{name} has more than one line", "give it as one line"))
    for name, value in (values.get("sglang_server_secrets") or {}).items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", str(name)):
            message = f"sglang_server_secrets: {name!r} is no name of an environment variable"
            found.append(Finding(FAIL, "secrets", message, "use letters, digits and _"))
        if re.search(r"[\r\n\0]", str(value)):
            message = f"sglang_server_secrets: the value of {name} has more than one line"
            found.append(Finding(FAIL, "secrets", message, "give it as one line"))
    return found


def spec_problems(errors: Mapping[str, Iterable[str]]) -> list[Finding]:
    """Turn what argument specs refuse (role name -> messages) into findings, each message once."""
    seen: dict[str, str] = {}
    for role, messages in errors.items():
        for message in messages:
            seen.setdefault(message, role)
    return [
        Finding(FAIL, "values", message, f"see roles/{role}/README.md for what is allowed")
        for message, role in seen.items()
    ]
