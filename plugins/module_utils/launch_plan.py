# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a server is started with: launch arguments and environment, from variables that are each set in one place.

Some launch arguments belong to a variable of the collection (``port`` to ``sglang_port``), because other roles need the
same value. Setting one of them in ``sglang_server_args`` as well would give two truths, so it is refused with the
variable's name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    argument_conflicts,
    releases,
    server_args,
    url_password,
)

#: The server without the interpreter, which is the release's own venv/bin/python.
PROGRAM = ("-m", "sglang.launch_server")

#: Launch argument -> the variable that decides it.
OWNERS: Mapping[str, str] = {
    "model-path": "sglang_model",
    "served-model-name": "sglang_served_model_name",
    "host": "sglang_host",
    "port": "sglang_port",
    "device": "sglang_lane",
    "enable-metrics": "sglang_metrics",
    "moe-runner-backend": "sglang_backend",
}

#: Decided by one more variable where it is set; without it they are the user's to give.
_OF_NODES = "sglang_nodes_group"

#: Names whose value is a secret. launch.json is readable for everybody, so they have a file of their own.
SECRET_NAMES = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_?KEY|ACCESS_KEY|PRIVATE_KEY)($|_)")

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

#: Set by the launcher itself; a value from elsewhere would make the service role misjudge what runs.
_LAUNCHER_PREFIX = "TOKFORGE_"

#: What the launcher does with tuning results that not all ranks have.
AUTOTUNE_CACHE_POLICIES = ("consistent", "keep")

#: Versions become the name of a directory, which has 255 characters at most.
_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}")


class PlanError(Exception):
    """Arguments or environment that cannot be used; the text lists every problem, one a line."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Request:
    """Everything that decides how a server is started.

    `args` and `env` are the user's own, the rest has variables of its own. `flashinfer` and `cuda` are the versions in
    the environment, None where there are none or nobody knows. `nodes` are the arguments that follow from the hosts
    that make the server together (`server_nodes.Nodes.args`).
    """

    root: str
    sglang_version: str
    lane: str
    backend: str
    host: str
    port: int
    metrics: bool
    model_path: str
    served_name: str
    random_weights: bool
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, Any] = field(default_factory=dict)
    flashinfer: str | None = None
    cuda: str | None = None
    autotune_cache_policy: str = "consistent"
    nodes: Mapping[str, Any] = field(default_factory=dict)


def arguments(request: Request) -> dict[str, Any]:
    """All launch arguments by canonical name (dashes, no aliases).

    Raises PlanError listing every argument that cannot be used, alone or together with others.
    """
    plan, problems = _plan(request)
    failing = [problem.message for problem in problems if problem.level == server_args.FAIL]
    if failing:
        raise PlanError(
            f"cannot render the launch arguments for SGLang {request.sglang_version}:\n"
            + "\n".join(f"- {line}" for line in failing),
            problems=failing,
        )
    return plan


def warnings(request: Request) -> list[str]:
    """What a server starts with, but that is not as it looks: deprecated arguments, and some that others switch off."""
    return [problem.message for problem in _plan(request)[1] if problem.level == server_args.WARN]


def _plan(request: Request) -> tuple[dict[str, Any], list[server_args.Problem]]:
    """The launch arguments, and everything that is to be said about them."""
    release = releases.get(request.sglang_version)
    owned = _owned(request)
    problems: list[server_args.Problem] = []
    merged: dict[str, Any] = {}
    for key, value in request.args.items():
        flag = release.flag(str(key))
        name = flag.name if flag else releases.canonical(str(key))
        message = ""
        if name in OWNERS:
            message = f"{key} is decided by {OWNERS[name]}; set that instead"
        elif name in request.nodes:
            message = f"{key} is decided by {_OF_NODES}; leave one of them out"
        elif name == "load-format" and (value == "dummy" or request.random_weights):
            message = f"{key} {value!r} is decided by sglang_model_random_weights; set that instead"
        elif name in merged:
            message = f"{key} is given twice under different spellings; keep one"
        else:
            merged[name] = value
        if message:
            problems.append(server_args.Problem(name, message))
    problems += server_args.check(merged, release)
    # The backend is held against the release here too, for those who use the module without the preflight role.
    problems += server_args.check({k: owned[k] for k in ("moe-runner-backend",) if k in owned}, release)
    plan = {**merged, **owned}
    return plan, [*problems, *argument_conflicts.find(plan, release, request.env)]


def argv(request: Request) -> list[str]:
    """The command line behind the interpreter. Raises PlanError."""
    return [*PROGRAM, *server_args.render(arguments(request), releases.get(request.sglang_version))]


def _owned(request: Request) -> dict[str, Any]:
    owned: dict[str, Any] = {
        "model-path": request.model_path,
        "served-model-name": request.served_name,
        "host": request.host,
        "port": request.port,
        "enable-metrics": request.metrics,
    }
    if request.backend != "auto":
        # Left out, the release's own default decides, which is what "auto" means in every one of them.
        owned["moe-runner-backend"] = request.backend
    if request.random_weights:
        owned["load-format"] = "dummy"
    if request.lane == "cpu":
        owned["device"] = "cpu"
    return {**owned, **request.nodes}


# Places that a server writes to, and what is not the user's to set.
_PLACES = (
    "SGLANG_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "HF_HOME",
    "XDG_CACHE_HOME",
)
#: Decided by the collection, whatever the user gives.
FIXED = ("HF_HUB_OFFLINE", "SGLANG_USE_CPU_ENGINE", "TOKFORGE_AUTOTUNE_CACHE")


def environment(request: Request) -> dict[str, str]:
    """The server's environment beside that of the service manager.

    Raises PlanError listing every name or value that cannot be used.

    What a server writes for itself (compiled kernels, tuning results) goes below the root's cache directory, so that
    one directory holds all that a rollout makes and the next release finds it again. The user may move these places.
    Offline mode and the engine are not the user's: the model is complete before the server starts, and the lane decides
    the engine.
    """
    cache = f"{request.root}/cache"
    defaults = {
        "SGLANG_CACHE_DIR": f"{cache}/sglang",
        "FLASHINFER_WORKSPACE_BASE": flashinfer_workspace(request),
        "TRITON_CACHE_DIR": f"{cache}/triton",
        "TORCHINDUCTOR_CACHE_DIR": f"{cache}/torchinductor",
        "HF_HOME": f"{cache}/huggingface",
        "XDG_CACHE_HOME": cache,
    }
    fixed = {"HF_HUB_OFFLINE": "1"}
    if request.lane == "cpu":
        fixed["SGLANG_USE_CPU_ENGINE"] = "1"
    if request.autotune_cache_policy == "keep":
        # Only then, so that a release of the usual policy stays the same release.
        fixed["TOKFORGE_AUTOTUNE_CACHE"] = "keep"
    problems: list[str] = []
    given: dict[str, str] = {}
    for name, value in request.env.items():
        problem = env_problem(str(name), value, fixed)
        if problem:
            problems.append(problem)
        else:
            given[str(name)] = _env_text(value)
    if problems:
        raise PlanError(
            "cannot use sglang_server_env:\n" + "\n".join(f"- {line}" for line in problems),
            problems=problems,
        )
    return {**defaults, **given, **fixed}


def given_environment(env: Mapping[str, str], root: str) -> dict[str, str]:
    """What of a server's environment its user gave: without what `environment` adds for this root."""
    cache = f"{root}/cache"
    ours = {name for name in _PLACES if f"{env.get(name, '')}/".startswith(f"{cache}/")}
    return {name: value for name, value in env.items() if name not in ours and name not in FIXED}


def flashinfer_workspace(request: Request) -> str:
    """Where FlashInfer compiles its kernels. Raises PlanError for a version that cannot be the name of a directory.

    FlashInfer keeps the kernels of its versions apart, but takes those that another CUDA compiled for its own. With a
    directory for each pair a release finds its own kernels again and never another's.
    """
    if not request.flashinfer or not request.cuda:
        return f"{request.root}/cache"
    for name, version in (("flashinfer", request.flashinfer), ("cuda", request.cuda)):
        if not _VERSION.fullmatch(version):
            raise PlanError(
                f"cannot name a directory for compiled kernels below {request.root}/cache/jit: {name} is {version!r};"
                " give a version like 0.7.2, of at most 64 characters",
            )
    return f"{request.root}/cache/jit/flashinfer-{request.flashinfer}-cuda{request.cuda}"


def env_problem(name: str, value: Any, fixed: Mapping[str, str]) -> str | None:
    """Why a variable cannot be one of the server's, None when it can; `fixed` are those that are not the user's."""
    if not _ENV_NAME.fullmatch(name):
        return f"{name!r} is no name of an environment variable; use letters, digits and _"
    if SECRET_NAMES.search(name.upper()):
        return f"{name} looks like a secret and this file is readable for everybody; put it into sglang_server_secrets"
    if name.startswith(_LAUNCHER_PREFIX) or (name in fixed and _env_text(value) != fixed[name]):
        return f"{name} is set by the collection and cannot be changed; leave it out"
    if not isinstance(value, (str, int, float)):
        return f"the value of {name} is a {type(value).__name__}; give a text or a number"
    if "\x00" in _env_text(value) or "\n" in _env_text(value):
        return f"the value of {name} holds a line end or a NUL; give one line"
    if url_password.holds_password(_env_text(value)):
        return (
            f"the value of {name} is an address with a password and this file is readable for everybody; put it into "
            "sglang_server_secrets"
        )
    return None


def _env_text(value: Any) -> str:
    # YAML's true is meant as the switch that these variables are; SGLang, NCCL and CUDA all read 1 and 0.
    return str(int(value)) if isinstance(value, bool) else str(value)
