# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Environments named after what is in them: `<root>/venvs/<id>`, built once, complete or not there.

The id is a digest of the request (see `identity`), so the same request finds its environment and another request is
another directory. An environment counts only with its `environment.json`, which is written last. A run that finds a
directory without one removes it and builds again, so an install that was stopped at any point repairs itself.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    base_packages,
    checkout,
    interpreters,
    jit_artifacts,
    lockfile,
    release_gate,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_build import (
    DISK_HINT,
    SCHEMA_VERSION,
    Builder,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_request import (
    Request,
    check_locks,
    environment_id,
    identity,
    version_problems,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_root import (
    ENVIRONMENT_MARKER,
    check_root,
    claim_root,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole
from ansible_collections.tokforge.sglang.plugins.module_utils.site_packages import Torch

LOCK_WAIT_S = 1800
_OS_HINTS = {
    errno.ENOSPC: DISK_HINT,
    errno.EDQUOT: "free disk space there or raise the quota, and run again",
    errno.EROFS: "choose a root on a file system that can be written",
    errno.EISDIR: "remove the directory that lies in the place of the file and run again",
    errno.ENOTDIR: "remove the file that lies in the place of the directory and run again",
    errno.EACCES: "run as a user who may do so",
    errno.EPERM: "run as a user who may do so",
}


@dataclass(frozen=True)
class Outcome:
    """What `ensure` found or did. `facts` is what environment.json holds, empty while there is no environment."""

    changed: bool
    id: str
    path: str
    complete: bool
    reason: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    autotune_gate: Mapping[str, Any] | None = None

    @property
    def python(self) -> str:
        """Path of the environment's interpreter."""
        return os.path.join(self.path, "bin", "python")


def ensure(request: Request, check_mode: bool = False, environ: Mapping[str, str] | None = None) -> Outcome:
    """Make sure that the asked environment is there. In check mode say what would be done and write nothing.

    Raises InstallError. Nothing that a later run takes for complete is left then.
    """
    try:
        outcome = _ensure(request, check_mode, environ)
        gate = release_gate.described(outcome.facts.get("autotune_gate"), request.autotune_backend)
        return replace(outcome, autotune_gate=gate if outcome.complete else release_gate.foreseen(request))
    except OSError as error:
        place = error.filename or request.root
        hint = _OS_HINTS.get(error.errno or 0, "look at it and run again")
        raise InstallError(
            f"making an environment below {request.root}: {place}: {error.strerror or error}; {hint}", path=place
        ) from error


def _ensure(request: Request, check_mode: bool, environ: Mapping[str, str] | None) -> Outcome:
    check_locks(request)
    under, python = _python(request)
    tree = _tree_state(request, check_mode)
    contents = identity(request, python, tree, under)
    if under is not None:
        lock, lock_no_deps = under.shared.installed
        request = replace(request, lock=lock or "", lock_no_deps=lock_no_deps)
    env_id = environment_id(contents)
    path = os.path.join(request.root, "venvs", env_id)
    facts, missing = read_marker(path, env_id)
    if facts is not None:
        found = _existing(request, env_id, path, facts, "complete")
        if not check_mode:
            # Only a root from before there was a marker lacks it. Whoever may not write there changes nothing anyway.
            with suppress(OSError):
                claim_root(request.root)
        return found
    check_place(request)
    check_wheelhouse(request)
    jit_artifacts.check_there(request.jit_artifacts)
    release_gate.check_tree(request)
    if check_mode:
        return Outcome(True, env_id, path, False, f"would be built: {missing}")
    venvs = os.path.dirname(path)
    with _readable_by_all():
        _make_directories(request.root)
        claim_root(request.root)
        _make_directories(venvs)
        with exclusive(os.path.join(venvs, f".{env_id}.lock")) as lock_fd:
            facts, missing = read_marker(path, env_id)
            if facts is not None:
                return _existing(request, env_id, path, facts, "another run has just built it")
            _remove(path)
            builder = Builder(request, python, path, dict(os.environ if environ is None else environ), lock_fd, under)
            try:
                facts = builder.build(contents, env_id)
            except BaseException:
                # Also frees the disk that a failed install has filled.
                _remove(path)
                raise
    return Outcome(True, env_id, path, True, f"built: {missing}", facts, tuple(facts["warnings"]))


def _python(request: Request) -> tuple[base_packages.Under | None, interpreters.Interpreter]:
    """What is taken from the base, and the Python for the environment: the base's own unless another is named."""
    needs_venv = request.installer == "pip"
    if request.base is None:
        return None, interpreters.choose(request.python, request.requires_python, needs_venv)
    found = base_packages.look(request.base)
    asked = found.interpreter.path if request.python == interpreters.AUTO else request.python
    python = interpreters.choose(asked, request.requires_python, needs_venv)
    base_packages.check_python(python, found)
    shared = base_packages.share((request.lock, request.lock_no_deps), request.base, found.versions)
    return base_packages.Under(found, shared), python


def _existing(request: Request, env_id: str, path: str, facts: Mapping[str, Any], reason: str) -> Outcome:
    torch = facts.get("torch")
    problems = version_problems(
        request,
        facts["versions"],
        Torch(torch["version"], torch["cuda"]) if torch else None,
        set(facts.get("editable", ())),
    )
    if request.kind == "sglang":
        release_gate.check_record(path, facts.get("autotune_gate"))
        problems += release_gate.problems(facts.get("autotune_gate"), request)
    if problems:
        raise InstallError(
            f"checking the environment {path}: {'; '.join(problems)}; remove the directory and run again",
            id=env_id,
            path=path,
            problems=problems,
            versions=facts["versions"],
        )
    return Outcome(False, env_id, path, True, reason, facts)


def _tree_state(request: Request, check_mode: bool) -> checkout.TreeState | None:
    source = request.source
    if source.type != "checkout" or not source.path:
        return None
    if check_mode and source.commit and not os.path.exists(source.path):
        # A clone that the step before would have made. Its state is known all the same: that is what a pin means.
        return checkout.TreeState(source.commit, None)
    return checkout.state_of(source.path, source.commit)


def check_place(request: Request) -> None:
    """Refuse before anything is written when the place cannot hold an environment or the source is not there."""
    existing = nearest_existing(request.root)
    if not os.path.isdir(existing) or not os.access(existing, os.W_OK | os.X_OK):
        why = "it is read-only or not this user's" if os.path.isdir(existing) else "it is not a directory"
        raise InstallError(
            f"making an environment below {request.root}: cannot write {existing}: {why}; choose another directory, or "
            "run as a user who may write there",
            path=existing,
        )
    check_root(request.root)
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes < request.min_free_bytes:
        raise InstallError(
            f"making an environment below {request.root}: {request.min_free_bytes / 1e9:.1f} GB are needed and "
            f"{free_bytes / 1e9:.1f} GB are free at {existing}; free disk space or choose another directory",
            path=existing,
            free_bytes=free_bytes,
            min_free_bytes=request.min_free_bytes,
        )
    if request.source.type == "wheelhouse":
        wheelhouse = request.source.path or ""
        if not os.path.isdir(wheelhouse) or not any(name.endswith(".whl") for name in os.listdir(wheelhouse)):
            raise InstallError(
                f"installing from the wheelhouse {wheelhouse}: it is no directory with wheels; give the directory that "
                "holds the .whl files",
                path=wheelhouse,
            )


def check_wheelhouse(request: Request) -> None:
    """Refuse a wheelhouse that lacks something of the lock, and name all of it: an installer stops at the first.

    Pins with a marker are the installer's to judge, and whether a wheel fits this machine too.
    """
    if request.source.type != "wheelhouse":
        return
    wheelhouse = str(request.source.path)
    there = [name.split("-") for name in os.listdir(wheelhouse) if name.endswith(".whl")]
    have = {(lockfile.canonical(parts[0]), lockfile.normal(parts[1])) for parts in there if len(parts) > 2}
    public = {(name, version.partition("+")[0]) for name, version in have}
    pins = [pin for text in _locks(request) for pin in lockfile.parse(text, "lock") if not pin.marker]
    lacking = [
        f"{pin.name} {pin.version}" for pin in pins if (pin.name, lockfile.normal(pin.version)) not in have | public
    ]
    if lacking:
        remedy = "add their wheels" + (", or name them in leave_out of the base" if request.base else "")
        raise InstallError(
            f"installing from the wheelhouse {wheelhouse}: {len(lacking)} of {len(pins)} locked distributions are not "
            f"in it: {', '.join(lacking)}; {remedy}",
            path=wheelhouse,
            lacking=lacking,
        )


def _locks(request: Request) -> list[str]:
    return [request.lock] + ([request.lock_no_deps] if request.lock_no_deps is not None else [])


def nearest_existing(path: str) -> str:
    """`path`, or the nearest directory above it that exists."""
    while not os.path.lexists(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def read_marker(path: str, env_id: str) -> tuple[dict[str, Any] | None, str]:
    """The facts of a complete environment, or None and why it does not count as one."""
    try:
        with open(os.path.join(path, ENVIRONMENT_MARKER), encoding="utf-8") as stream:
            facts = json.load(stream)
    except (FileNotFoundError, NotADirectoryError):
        return None, "an earlier install was interrupted" if os.path.lexists(path) else "it is not there"
    except OSError as error:
        # Not a reason to build again: it may be complete and serving, and only this user may not look at it.
        raise InstallError(
            f"reading {path}/{ENVIRONMENT_MARKER}: {error.strerror}; run as the user who installed it",
            path=path,
            id=env_id,
        ) from error
    except (ValueError, RecursionError):
        return None, f"its {ENVIRONMENT_MARKER} is damaged"
    schema = facts.get("schema_version") if isinstance(facts, dict) else None
    if is_whole(schema) and schema > SCHEMA_VERSION:
        # Complete for the version that made it, which may serve from it.
        raise InstallError(
            f"reading {path}/{ENVIRONMENT_MARKER}: it has schema {schema}, this version of tokforge.sglang knows "
            f"{SCHEMA_VERSION}; use the newer version of the collection, or another root",
            path=path,
            id=env_id,
            schema_version=schema,
        )
    if not is_whole(schema) or schema != SCHEMA_VERSION or not _well_formed(facts):
        return None, f"its {ENVIRONMENT_MARKER} is damaged"
    if facts.get("id") != env_id:
        return None, f"its {ENVIRONMENT_MARKER} is of another environment"
    if not os.access(os.path.join(path, "bin", "python"), os.X_OK):
        return None, "the Python it was made with is gone"
    return facts, ""


def _well_formed(facts: Mapping[str, Any]) -> bool:
    """Whether everything that is read of a marker has the type that is counted on."""
    versions, torch = facts.get("versions"), facts.get("torch")
    editable, install_s = facts.get("editable", []), facts.get("install_s")
    return (
        isinstance(versions, dict)
        and all(isinstance(version, str) for version in versions.values())
        and (torch is None or _well_formed_torch(torch))
        and isinstance(editable, list)
        and all(isinstance(name, str) and name in versions for name in editable)
        and all(isinstance(facts.get(name, {}), dict) for name in ("hash_exempt", "unlocked"))
        and (install_s is None or type(install_s) in (int, float))
        and release_gate.well_formed(facts.get("autotune_gate"))
    )


def _well_formed_torch(torch: Any) -> bool:
    return (
        isinstance(torch, dict)
        and isinstance(torch.get("version"), str)
        and "cuda" in torch
        and (torch["cuda"] is None or isinstance(torch["cuda"], str))
    )


@contextmanager
def exclusive(path: str, wait_s: float = LOCK_WAIT_S) -> Iterator[int]:
    """Hold the lock file at `path`; gives its descriptor, for the installers to inherit.

    An installer that outlives a killed run keeps the lock as long as it writes, so the next run waits for it instead of
    building beside it. Raises InstallError after `wait_s` seconds.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    holder = os.pread(descriptor, 100, 0).decode(errors="replace").strip() or "unknown"
                    raise InstallError(
                        f"waiting for {path}: process {holder} or an installer it started has held it for "
                        f"{wait_s:.0f} s; see whether it still works, end it and run again",
                        path=path,
                    ) from error
                time.sleep(0.2)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _readable_by_all() -> Iterator[None]:
    """The server may run as another user than the one that installs, whose umask may be strict."""
    previous = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(previous)


def _make_directories(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise InstallError(
            f"making the directory {path}: {error.strerror}; choose another root, or run as a user who may write there",
            path=path,
        ) from error


def _remove(path: str) -> None:
    if not os.path.lexists(path):
        return
    # The marker first: a removal that is stopped half-way must not leave a directory that looks complete.
    with suppress(OSError):
        os.unlink(os.path.join(path, ENVIRONMENT_MARKER))
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        os.unlink(path)
    if os.path.lexists(path):
        raise InstallError(
            f"removing the unfinished environment {path}: not everything could go; remove it and run again"
        )


def as_result(outcome: Outcome) -> dict[str, Any]:
    """An outcome as the result of a module, with the diff."""
    facts = outcome.facts
    gate = outcome.autotune_gate or {}
    edited = (
        f"SGLang's autotune gate is opened for {gate['backend']} in it\n" if gate.get("enabled_by") == "patch" else ""
    )
    there = {True: f"{outcome.path}\n{edited}", False: ""}
    return {
        "changed": outcome.changed,
        "id": outcome.id,
        "path": outcome.path,
        "python": outcome.python,
        "complete": outcome.complete,
        "reason": outcome.reason,
        "versions": facts.get("versions", {}),
        "torch": facts.get("torch"),
        "autotune_gate": outcome.autotune_gate,
        "hash_exempt": facts.get("hash_exempt", {}),
        "unlocked": facts.get("unlocked", {}),
        "install_s": facts.get("install_s"),
        "diff": {"before": there[not outcome.changed], "after": there[True]},
    }
