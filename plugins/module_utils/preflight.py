# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can be known before anything is touched: each check gives findings, never an exception.

A finding says what is wrong, where, why and what to do. Checks are independent, so that a person sees every problem of
a request at once instead of one a run.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible.module_utils.common.validation import check_type_dict

from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_gate, router_launch
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding
from ansible_collections.tokforge.sglang.plugins.module_utils.flags import canonical

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
        "sglang_ready_info",
        "sglang_start_info",
        "sglang_benchmark_result",
        "sglang_preflight",
        "sglang_preflight_report",
        "sglang_choice",
        "sglang_backend_info",
        "sglang_probe_info",
        "sglang_output_info",
        "sglang_rollout_cut_off",
        "sglang_rollout_open",
        "sglang_rollout_kept",
        "sglang_rollout_nodes",
        "sglang_rollout_reached",
        "sglang_server_as",
        "sglang_server_undone",
        "sglang_server_resumed",
        "sglang_drain_info",
        "sglang_gone_info",
        "sglang_router_info",
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
    "sglang_min_free_bytes": (0, None),
    "sglang_model_min_free_bytes": (0, None),
    "sglang_log_max_bytes": (0, None),
    "sglang_log_backups": (0, None),
    "sglang_supervisor_start_s": (1, None),
    "sglang_ready_timeout_s": (0, None),
    "sglang_ready_stall_timeout_s": (1, None),
    "sglang_ready_new_tokens": (1, None),
    "sglang_ready_output_concurrency": (1, None),
    "sglang_ready_output_tokens": (1, None),
    "sglang_ready_output_repeats": (0, None),
    "sglang_ready_output_timeout_s": (1, None),
    "sglang_stop_timeout_s": (1, None),
    "sglang_benchmark_timeout_s": (1, None),
    "sglang_probe_timeout_s": (1, None),
}


#: What must not be in the root. supervisord expands %(x)s and ends a value at " ;", systemd expands % and $, a newline
#: ends a line in both, and a quote, a tilde or a backslash means something to the one or the other, or to a shell.
_UNFIT_ROOT = re.compile(r"[\x00-\x1f\x7f%$;~'\"`\\\\]")

#: Switches whose type is open in the specs, so that a wrong value is told beside everything else that is wrong.
SWITCHES = ("sglang_force_backend", "sglang_probe", "sglang_verify", "sglang_autotune_fallback")

_SWITCH_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0", "y", "n", "t", "f"})

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: Directories of the system. Everything below a root belongs to rollouts and goes with them, so none of these is one.
SYSTEM_DIRECTORY = re.compile(
    r"/|/(bin|boot|dev|etc|home|lib|lib32|lib64|libx32|media|mnt|opt|proc|root|run|sbin|srv|sys|tmp|usr|var)|/dev/shm"
    r"|/usr/(local/)?(bin|etc|games|include|lib|lib32|lib64|libexec|libx32|local|sbin|share|src)"
    r"|/var/(backups|cache|lib|local|lock|log|mail|opt|run|spool|tmp)"
)

#: Nothing below these is for rollouts either.
SYSTEM_TREES = (
    "/bin",
    "/boot",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/sbin",
    "/sys",
    "/usr/bin",
    "/usr/lib",
    "/usr/sbin",
)

_KINDS: Mapping[str, str] = {
    "str": "one text",
    "path": "one path",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "dict": "a mapping",
    "list": "a list",
}


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
        ours = name.startswith(PREFIX)
        # A name without the prefix can only be meant for one of the short names.
        candidates = [known for known in sorted(declared) if ours or not known.startswith(PREFIX) or name in extras]
        near = difflib.get_close_matches(name, candidates, n=2, cutoff=LIKENESS)
        if not ours and not near:
            continue
        remedy = f"did you mean {' or '.join(near)}?" if near else "see the table of variables in README.md"
        # In an inventory the name may be somebody else's, so there it is only told.
        level = FAIL if ours or name in extras else WARN
        found.append(
            Finding(level, "variables", f"{name} is no variable of this collection, so it would change nothing", remedy)
        )
    return found


def shape_problem(name: str, value: Any, option: Mapping[str, Any]) -> str | None:
    """Why a value cannot be what its option declares, or None.

    Stricter than Ansible, which turns nearly anything into text. The message never shows the value: it may be secret.
    """
    if value is None:
        return f"{name} is empty; give a value or leave it out"
    kind = option.get("type", "str")
    wanted = _KINDS.get(kind)
    given = _shape(value)
    fits = True
    if kind in ("str", "path", "int", "float", "bool"):
        fits = given not in ("a mapping", "a list") and not (kind in ("int", "float") and isinstance(value, bool))
    elif kind == "dict" and given != "a mapping":
        try:
            check_type_dict(value)
        except (TypeError, ValueError):
            fits = False
    elif kind == "list":
        fits = given not in ("a mapping", "true or false")
    if not fits and option.get("no_log"):
        return f"{name} has a value of the wrong type (not shown, it is a secret); give {wanted}"
    if not fits:
        return f"{name} is {given}; give {wanted}"
    inner: list[tuple[str, Any, Mapping[str, Any]]] = []
    if isinstance(value, Mapping):
        inner += [(f"{name}.{key}", value[key], sub) for key, sub in option.get("options", {}).items() if key in value]
    if kind == "list" and isinstance(value, (list, tuple)) and "elements" in option:
        element = {"type": option["elements"], "no_log": option.get("no_log", False)}
        inner += [(f"{name}[{index}]", item, element) for index, item in enumerate(value)]
    return next((problem for problem in (shape_problem(*one) for one in inner) if problem), None)


def _shape(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple, set)):
        return "a list"
    if isinstance(value, bool):
        return "true or false"
    return "a number" if isinstance(value, (int, float)) else "a text"


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


def check_autotune(
    gate: Any, backend: Any, served: Any, version: str, choices: Sequence[str], in_place: bool
) -> list[Finding]:
    """An autotune gate that is to be opened must be one that this release has, for the backend that is served.

    :param gate: ``open`` or ``closed``, the release's own state.
    :param backend: what the gate is to be opened for, None when that was not said apart from the backend served.
    :param served: the backend that the server is started with.
    :param choices: the release's own --moe-runner-backend choices.
    :param in_place: whether SGLang is a source tree that is not edited; what it is can only be seen on the target.
    """
    if gate != "open":
        message = f"sglang_autotune_backend is {backend} and the autotune gate stays as the release has it"
        return [Finding(WARN, "autotune", message, "set sglang_autotune_gate to open")] if backend else []
    tuned = backend or served
    if tuned == "auto":
        remedy = "name the backend (-e backend=...), or set sglang_autotune_backend"
        return [Finding(FAIL, "autotune", "sglang_autotune_gate is open and the backend is auto", remedy)]
    if tuned not in choices:
        near = difflib.get_close_matches(str(tuned), choices, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}? " if near else ""
        message = f"sglang_autotune_backend {tuned!r} is no --moe-runner-backend of SGLang {version}"
        return [Finding(FAIL, "autotune", message, f"{hint}choices there: {', '.join(choices)}")]
    kind = autotune_gate.expected(version, tuned)
    if kind in (autotune_gate.UNSUPPORTED, autotune_gate.OTHER) and not in_place:
        return [Finding(FAIL, "autotune", autotune_gate.refusal(autotune_gate.Gate(kind, tuned, version)))]
    found = [Finding(OK, "autotune", f"SGLang {version} has an autotune gate for {tuned}")]
    if served != tuned:
        message = f"the gate is opened for {tuned} and the server is started with backend {served}"
        found.append(Finding(WARN, "autotune", message, f"it is tuned only if {served} becomes {tuned} in the server"))
    if not tuned.startswith("flashinfer_"):
        message = f"FlashInfer has no MoE kernels to tune for backend {tuned}"
        found.append(Finding(WARN, "autotune", message, "an open gate only makes the start longer"))
    return found


def check_space(path: str, free_bytes: int, need_bytes: int) -> list[Finding]:
    """The file system below the root must have room for what a rollout may write there."""
    gb = 1000**3
    seen = f"{free_bytes / gb:.1f} GB free at {path}, {need_bytes / gb:.1f} GB needed"
    if free_bytes >= need_bytes:
        return [Finding(OK, "disk", seen)]
    return [Finding(FAIL, "disk", seen, "free space there, or set sglang_root to a directory on another file system")]


def check_writable(
    path: str, existing: str, is_dir: bool, writable: bool, user: str, name: str = "sglang_root"
) -> list[Finding]:
    """A directory, or the nearest one above it that exists, must let this user create entries.

    :param existing: ``path`` itself, or the nearest ancestor that exists.
    :param name: the variable that names the directory.
    """
    is_root = name == "sglang_root"
    check = "root" if is_root else "directory"
    if not path.startswith("/"):
        return [Finding(FAIL, check, f"{name} {path!r} is not an absolute path", "give an absolute path")]
    if is_root and _UNFIT_ROOT.search(path):
        message = f"{name} {path!r} holds a control character or % $ ; ~ \\ ` or a quote"
        return [Finding(FAIL, check, message, "choose a plain path")]
    if _CONTROL.search(path):
        return [Finding(FAIL, check, f"{name} {path!r} holds a control character", "choose a plain path")]
    if not is_dir:
        message = f"cannot create {name} {path}: {existing} is not a directory"
        return [Finding(FAIL, check, message, "choose another path")]
    if not writable:
        return [
            Finding(
                FAIL,
                check,
                f"cannot write {name} {path}: user {user} may not write {existing}",
                f"make it writable for {user}, choose another {name}, or run with become",
            )
        ]
    return [Finding(OK, check, f"{path} is writable for {user}")]


def check_file_system(name: str, path: str, existing: str, blocks: int, flags: int, runs: bool) -> list[Finding]:
    """The file system of a directory must keep files, and, where programs are to lie, run them.

    :param blocks: size of the file system in its blocks; 0 for one that keeps no files (/proc, /sys).
    :param flags: its mount flags, as of ``os.statvfs``.
    :param runs: whether programs below the directory are run.
    """
    problem = None
    if flags & os.ST_RDONLY:
        problem = f"cannot write {name} {path}: {existing} is on a read-only file system"
    elif not blocks:
        problem = f"cannot write {name} {path}: {existing} is on a file system that keeps no files"
    elif runs and flags & os.ST_NOEXEC:
        problem = f"cannot run programs below {name} {path}: {existing} is on a file system mounted noexec"
    check = "root" if name == "sglang_root" else "directory"
    return [Finding(FAIL, check, problem, f"set {name} to a directory on another file system")] if problem else []


def check_root_place(root: str, real: str, homes: Iterable[str]) -> list[Finding]:
    """The root must be a directory of its own.

    :param root: without `..`, double or trailing slashes.
    :param real: the same without symbolic links.
    :param homes: home directories of the one who deploys.
    """
    for path in (root, real):
        if SYSTEM_DIRECTORY.fullmatch(path) or path.startswith(tuple(f"{tree}/" for tree in SYSTEM_TREES)):
            what = "a directory of the system"
        elif path in homes:
            what = "a home directory"
        else:
            continue
        via = "" if path == root else f" leads to {path}, which"
        message = f"sglang_root {root}{via} is {what}, and everything below a root belongs to rollouts"
        return [Finding(FAIL, "root", message, "give a directory of its own, like /opt/sglang")]
    return []


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
    for name in SWITCHES:
        if name in values and str(values[name]).lower() not in _SWITCH_WORDS:
            found.append(Finding(FAIL, "values", f"{name} is {values[name]!r}", "give true or false"))
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
    found += check_environment("sglang_benchmark_env", values.get("sglang_benchmark_env") or {})
    for name in values.get("sglang_server_env_pass_on") or []:
        if name in (values.get("sglang_server_secrets") or {}):
            message = f"{name} is in sglang_server_secrets, which would win, and on sglang_server_env_pass_on"
            found.append(Finding(FAIL, "secrets", message, "leave it out of one of them"))
    return found + check_secrets(values) + check_access(values)


def check_environment(variable: str, env: Mapping[str, Any]) -> list[Finding]:
    """Names and values of environment variables must be such."""
    found = []
    for name, value in env.items():
        if not _ENV_NAME.fullmatch(str(name)):
            message = f"{variable}: {name!r} is no name of an environment variable"
            found.append(Finding(FAIL, "values", message, "use letters, digits and _"))
        elif value is None or isinstance(value, (Mapping, list, tuple)):
            what = "empty" if value is None else _shape(value)
            found.append(Finding(FAIL, "values", f"{variable}: the value of {name} is {what}", "give one text"))
        elif re.search(r"[\r\n\0]", str(value)):
            message = f"{variable}: the value of {name} holds a line end or a NUL"
            found.append(Finding(FAIL, "values", message, "give it as one line"))
    return found


def check_passed_on(values: Mapping[str, str], problems: Sequence[str]) -> list[Finding]:
    """What the machine sets for its server, and what of it is missing or unfit (`passed_env.passed_on`)."""
    found = [Finding(FAIL, "arguments", problem) for problem in problems]
    if values:
        told = ", ".join(f"{name}={value}" for name, value in values.items())
        found.append(Finding(OK, "arguments", f"the server keeps what this machine sets: {told}"))
    return found


def check_torch(lane: str, build: str | None) -> list[Finding]:
    """The build of torch must be the lane's: its lock has the files of no other."""
    if build in (None, "any", lane):
        return []
    message = f"sglang_torch_build is {build} and sglang_lane is {lane}"
    return [Finding(FAIL, "values", message, f"set sglang_torch_build to {lane} or any, or sglang_lane to {build}")]


def check_source(source: Mapping[str, Any]) -> list[Finding]:
    """What sglang_install_source must say for its type. Addresses may hold a password, so none is shown."""
    kind, path, commit = source.get("type") or "index", source.get("path"), source.get("commit")
    problem = remedy = ""
    if kind != "index" and path and not str(path).startswith("/"):
        problem, remedy = f"its path {path!r} is not absolute", "give an absolute path on the target"
    elif kind == "wheelhouse" and not path:
        problem, remedy = "a wheelhouse needs a path", "give the directory on the target that holds the .whl files"
    elif kind == "checkout" and not path and not source.get("url"):
        problem, remedy = "a checkout needs a path or a url", "give path, or url and commit"
    elif kind == "checkout" and source.get("url") and not commit:
        problem, remedy = (
            "a url needs a commit of 40 hexadecimal digits",
            "give commit, because a branch or tag can move",
        )
    elif kind == "checkout" and commit and not re.fullmatch(r"[0-9a-f]{40}", str(commit)):
        problem = f"its commit {commit!r} is not 40 hexadecimal digits"
        remedy = "give the whole commit, because a branch or tag can move"
    return [Finding(FAIL, "source", f"sglang_install_source: {problem}", remedy)] if problem else []


def check_secrets(values: Mapping[str, Any]) -> list[Finding]:
    """The secrets must fit a file of NAME=value lines, and API keys must be long enough."""
    found = []
    for name in ("sglang_server_api_key", "sglang_server_admin_api_key"):
        key = str(values.get(name) or "")
        if key and len(key) < SHORTEST_KEY:
            message = f"{name} has {len(key)} characters"
            found.append(Finding(FAIL, "secrets", message, f"use a key of at least {SHORTEST_KEY}"))
        if not re.fullmatch(r"[\x21-\x7e]*", key):
            # It travels in an HTTP header, which holds nothing else and drops blanks at its ends.
            message = f"{name} holds a character that is no visible ASCII character"
            found.append(Finding(FAIL, "secrets", message, "use letters, digits and signs"))
    for name, value in (values.get("sglang_server_secrets") or {}).items():
        if value is None:
            message = f"sglang_server_secrets: the value of {name} is empty"
            found.append(Finding(FAIL, "secrets", message, "give a value or leave it out"))
        if not _ENV_NAME.fullmatch(str(name)):
            message = f"sglang_server_secrets: {name!r} is no name of an environment variable"
            found.append(Finding(FAIL, "secrets", message, "use letters, digits and _"))
        if re.search(r"[\r\n\0]", str(value)):
            message = f"sglang_server_secrets: the value of {name} has more than one line"
            found.append(Finding(FAIL, "secrets", message, "give it as one line"))
    return found


def check_access(values: Mapping[str, Any]) -> list[Finding]:
    """Who could use or manage the server without a key, as far as SGLang's own check of keys leaves a gap.

    Read in 0.5.10.post1, 0.5.12.post1 and 0.5.23: `srt/utils/auth.py` (an ordinary endpoint asks for the API key only,
    and /server_info, which is one, tells all arguments), `srt/entrypoints/http_server.py` (the check is installed for
    one tokenizer worker; a worker of several ends when there is an API key, and checks nothing when there is an admin
    key alone), `srt/entrypoints/grpc_server.py` and `grpc_bridge.py` (no check).
    """
    found = []
    api_key, admin_key = (bool(values.get(f"sglang_server_{name}api_key")) for name in ("", "admin_"))
    arguments = {canonical(name): value for name, value in (values.get("sglang_server_args") or {}).items()}
    if admin_key and not api_key:
        message = (
            "sglang_server_admin_api_key alone guards nothing: whoever reaches the server reads it at /server_info"
        )
        found.append(Finding(FAIL, "secrets", message, "set sglang_server_api_key too"))
    workers = str(arguments.get("tokenizer-worker-num") or 1)
    if (api_key or admin_key) and workers.isdecimal() and int(workers) > 1:
        message = f"SGLang checks API keys with one tokenizer worker only, and tokenizer-worker-num is {workers}"
        found.append(Finding(FAIL, "secrets", message, "leave it out, or let a proxy check keys and set none here"))
    grpc = [name for name in ("grpc-port", "grpc-mode", "smg-grpc-mode") if arguments.get(name)]
    if (api_key or admin_key) and grpc:
        message = f"{grpc[0]} opens a port on which SGLang asks for no key"
        found.append(Finding(WARN, "secrets", message, "let only those reach it who may use the server"))
    host = str(values.get("sglang_host") or "127.0.0.1")
    if not (api_key or admin_key or router_launch.is_loopback(host)):
        message = f"whoever reaches {host} can use the server and manage it (weights, cache, profiler): no key is set"
        remedy = "set sglang_server_api_key, or set sglang_host to 127.0.0.1 with a router or a proxy in front"
        found.append(Finding(WARN, "secrets", message, remedy))
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
