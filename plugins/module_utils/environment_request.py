# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of an environment, its identity, and what installed versions are held against."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    autotune_gate,
    base_packages,
    checkout,
    interpreters,
    jit_artifacts,
    lockfile,
    releases,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.base_packages import Base
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.interpreters import Interpreter
from ansible_collections.tokforge.sglang.plugins.module_utils.jit_artifacts import ArtifactRequest
from ansible_collections.tokforge.sglang.plugins.module_utils.site_packages import OverlayFile, Torch, overlay_digest


@dataclass(frozen=True)
class Source:
    """Where SGLang comes from: `index`, `wheelhouse` (a directory of wheels) or `checkout` (a tree, used in place).

    `commit` pins a checkout, `version` is the release that a checkout says it is.
    """

    type: str = "index"
    path: str | None = None
    commit: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class Request:
    """What is asked. The module's documentation explains every field; here are only the differences.

    `lock` and `lock_no_deps` are the text of the files, `overlay` maps relative paths to contents. `autotune_backend`
    is the MoE runner backend that the autotune gate is to be open for, None for the release's own gate. `base` is the
    Python whose packages are used where it has them, None for an environment of its own. `jit_artifacts` are kernels of
    FlashInfer that were built elsewhere.
    `min_free_bytes` in bytes.
    """

    root: str
    kind: str
    lock: str
    lock_no_deps: str | None = None
    python: str = interpreters.AUTO
    requires_python: str = ""
    hash_exempt: tuple[str, ...] = ()
    installer: str = "uv"
    uv: str | None = None
    source: Source = field(default_factory=Source)
    inherit_pip: bool = True
    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    overlay: Mapping[str, OverlayFile] = field(default_factory=dict)
    autotune_backend: str | None = None
    jit_artifacts: tuple[ArtifactRequest, ...] = ()
    expect: Mapping[str, str] = field(default_factory=dict)
    torch_build: str = "any"
    min_free_bytes: int = 0
    uv_cache: str | None = None
    base: Base | None = None


def opens_gate(request: Request) -> bool:
    """Whether making the environment means editing SGLang's autotune gate.

    A release that tunes the backend by itself needs no edit, so asking for it changes neither its files nor its name.
    Of a release that was not read yet it is assumed that it does not.
    Raises InstallError when it is known that the gate cannot be opened.
    """
    backend = request.autotune_backend
    if backend is None:
        return False
    in_place = request.source.type == "checkout"
    version = str((request.source.version if in_place else None) or request.expect.get("sglang") or "")
    kind = autotune_gate.expected(version, backend)
    try:
        autotune_gate.check_name(backend)
    except autotune_gate.GateError as error:
        raise InstallError(str(error), **error.facts) from error
    if version in releases.known() and backend not in releases.get(version).moe_runner_backends():
        choices = releases.get(version).moe_runner_backends()
        raise InstallError(autotune_gate.unknown_backend(backend, version, choices), choices=list(choices))
    if kind in (autotune_gate.UNSUPPORTED, autotune_gate.OTHER):
        raise InstallError(autotune_gate.refusal(autotune_gate.Gate(kind, backend, version)), gate=kind)
    # A tree that is used in place is opened by whoever it belongs to, and its state is in the identity already.
    return kind != autotune_gate.OPEN_UPSTREAM and not in_place


def identity(
    request: Request, python: Interpreter, tree: checkout.TreeState | None, under: base_packages.Under | None = None
) -> dict[str, Any]:
    """Everything that decides what an environment contains, as plain data.

    `under` is what `request.base` turned out to be. Index addresses are not part of it: with hashes it does not matter
    where a file comes from. Raises InstallError.
    """
    edits = (
        [{"id": "autotune_gate", "sha256": _sha256(f"open {request.autotune_backend}")}] if opens_gate(request) else []
    )
    source: dict[str, Any] = {"type": request.source.type}
    if request.source.path:
        source["path"] = request.source.path
    if tree is not None:
        source.update(version=request.source.version, commit=tree.commit, changes=tree.changes)
    # Only where there is one, so that an environment without keeps its name.
    base = {"base": base_packages.identity(under)} if under else {}
    return {
        "kind": request.kind,
        "python": python.tag,
        "lock": _sha256(request.lock),
        "lock_no_deps": _sha256(request.lock_no_deps) if request.lock_no_deps is not None else None,
        "overlay": overlay_digest(request.overlay) if request.overlay else None,
        "source": source,
        "edits": edits,
        # Sorted: what an environment contains does not depend on the order in which they are given.
        "prebuilt": sorted(map(jit_artifacts.identity, request.jit_artifacts), key=lambda one: sorted(one.items())),
        "hash_exempt": sorted(map(lockfile.canonical, request.hash_exempt)),
        "torch_build": request.torch_build,
        **base,
    }


def environment_id(identity: Mapping[str, Any]) -> str:
    """The first 12 hex digits of the sha256 over the canonical JSON of an identity."""
    return _sha256(json.dumps(identity, sort_keys=True, separators=(",", ":")))[:12]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def check_locks(request: Request) -> None:
    """Refuse a lock that leaves open what is installed."""
    exempt = set(map(lockfile.canonical, request.hash_exempt))
    if exempt and request.installer == "pip":
        raise InstallError(
            "reading hash_exempt: pip takes hashes for all distributions or for none; use uv, or leave hash_exempt out",
            hash_exempt=sorted(exempt),
        )
    if request.base is not None and request.installer == "pip":
        raise InstallError("reading base: only uv installs on top of another Python's packages; leave base out")
    for name, text in (("lock", request.lock), ("lock_no_deps", request.lock_no_deps)):
        if text is not None:
            lockfile.require_hashes(lockfile.parse(text, name), exempt, name)


def torch_problem(wanted: str, torch: Torch | None) -> str | None:
    """Why the installed torch is not the wanted build (`any`, `cpu`, `cuda12`, `cuda13`), or None."""
    if wanted == "any":
        return None
    if torch is None:
        return f"a {wanted} build of torch was asked, torch is not installed"
    build = f"cuda{torch.cuda.split('.')[0]}" if torch.cuda else "cpu"
    if build == wanted:
        return None
    kind = f"built for CUDA {torch.cuda}" if torch.cuda else "a CPU build"
    return f"a {wanted} build of torch was asked, torch {torch.version} is installed and is {kind}"


def version_problems(
    request: Request, versions: Mapping[str, str], torch: Torch | None, in_place: set[str]
) -> list[str]:
    """Everything that is installed otherwise than asked, in words.

    The installer's success is not taken for it: uv before 0.12 could quietly settle on a much older SGLang
    (sgl-project/sglang#35912).
    """
    pins = lockfile.parse(request.lock, "lock")
    if request.lock_no_deps is not None:
        pins += lockfile.parse(request.lock_no_deps, "lock_no_deps")
    problems = lockfile.differences(pins, versions, in_place)
    expected = {lockfile.canonical(name): version for name, version in request.expect.items()}
    for name, version in expected.items():
        if name in in_place:
            # A checkout's version is its own; only what the source says about it can be held against it.
            version = request.source.version or versions[name]
        have = versions.get(name)
        if have is None or not lockfile.matches(have, version):
            problems.append(f"{name} {version} was expected, {have or 'none'} is installed")
    torch_wrong = torch_problem(request.torch_build, torch)
    if torch_wrong:
        problems.append(torch_wrong)
    flashinfer = {name: versions[name] for name in versions if name.startswith("flashinfer-")}
    # FlashInfer refuses to run with kernels of another release; a wheel for one CUDA version carries it as local part.
    if len({lockfile.normal(version).partition("+")[0] for version in flashinfer.values()}) > 1:
        pairs = ", ".join(f"{name} {version}" for name, version in flashinfer.items())
        problems.append(f"FlashInfer's parts differ: {pairs}")
    return list(dict.fromkeys(problems))
