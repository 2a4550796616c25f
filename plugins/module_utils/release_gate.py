# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The autotune gate as a part of an environment: opened while it is built, recorded, and held against the record.

environment.json holds the `file` of the gate, its `sha256`, and `backends`: each backend that is tuned, and who put it
there. That is all of the gate that an environment can have, whichever backend a request names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_gate, sglang_tree, source_text
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_request import Request, opens_gate
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError


def settle(python: str, request: Request) -> dict[str, Any] | None:
    """Open the gate of a new environment where that is asked, and describe it for environment.json.

    None for a release without a gate. Raises InstallError when the gate is not what the request says in the end.
    """
    try:
        tree = sglang_tree.of_python(python)
        if opens_gate(request):
            gate, source = autotune_gate.examine(tree, str(request.autotune_backend))
            change = autotune_gate.plan(gate, source, "open")
            if source is not None:
                autotune_gate.apply(source, change)
        tuned = autotune_gate.tuned(tree)
    except (autotune_gate.GateError, sglang_tree.TreeError) as error:
        # Nobody asked for the gate, so it is no reason against an environment.
        if request.autotune_backend is None:
            return None
        raise InstallError(f"{error}. The environment was removed", **error.facts) from error
    if tuned is None:
        return None
    return {
        "file": tuned.file,
        "sha256": source_text.sha256(source_text.read(tuned.file)),
        "backends": dict(tuned.enabled_by),
    }


def check_tree(request: Request) -> None:
    """Refuse a source tree whose gate is not open for the asked backend, before anything is made. Raises InstallError.

    A tree that is used in place is not edited. One that is not there yet is not judged.
    """
    path = request.source.path or ""
    if request.autotune_backend is None or request.source.type != "checkout" or not os.path.isdir(path):
        return
    try:
        gate, source = autotune_gate.examine(sglang_tree.of_source(path), request.autotune_backend)
    except (autotune_gate.GateError, sglang_tree.TreeError) as error:
        raise InstallError(str(error), **error.facts) from error
    if source is None:
        raise InstallError(autotune_gate.refusal(gate), gate=gate.kind)
    if gate.kind == autotune_gate.CLOSED:
        raise InstallError(_closed({"file": gate.file}, request), gate=gate.kind)


def check_record(environment: str, recorded: Mapping[str, Any] | None) -> None:
    """Refuse a complete environment whose gate is not as it was recorded. Raises InstallError.

    A tree that is used in place is not held against the record: its state is part of the environment's name.
    """
    path = recorded["file"] if recorded else ""
    inside = os.path.join(os.path.realpath(environment), "")
    if not recorded or not os.path.realpath(path).startswith(inside):
        return
    try:
        if source_text.sha256(source_text.read(path)) == recorded["sha256"]:
            return
        what = "was changed"
    except OSError as error:
        what = f"cannot be read ({error.strerror})"
    # Closing leads to the release's own file, which is what was recorded only where nothing was edited.
    edited = autotune_gate.PATCH in recorded["backends"].values()
    back = "where the gate is all that was edited, bring it back with the module tokforge.sglang.autotune_gate"
    asked = f"python: {environment}/bin/python, backend: the one that was added, state: closed"
    way = "" if edited else f"{back} ({asked}); otherwise "
    raise InstallError(
        f"checking the environment {environment}: {path} {what} after the environment was built, so a server that "
        f"starts from it is not what its name says; {way}remove {environment} and run again, which builds it anew. To "
        "have the gate open, set sglang_autotune_gate to open: that is an environment of its own",
        path=environment,
        file=path,
    )


def problems(recorded: Mapping[str, Any] | None, request: Request) -> list[str]:
    """How the gate of an environment differs from the request, in words."""
    backend = request.autotune_backend
    if backend is None or backend in (recorded or {}).get("backends", {}):
        return []
    return [_closed(recorded, request)]


def _closed(recorded: Mapping[str, Any] | None, request: Request) -> str:
    backend = request.autotune_backend
    where = recorded["file"] if recorded else "this SGLang"
    if request.source.type == "checkout":
        return (
            f"the autotune gate of {where} is closed for {backend}, and a source tree that is used in place is not "
            f"edited: open it with the module tokforge.sglang.autotune_gate (source: {request.source.path}) and leave "
            "the commit out, so that the change makes another environment"
        )
    return f"the autotune gate of {where} is closed for {backend}, which this release was expected to tune by itself"


def foreseen(request: Request) -> dict[str, Any] | None:
    """What `described` will say of an environment that is not there yet, for a backend that was asked for."""
    if request.autotune_backend is None:
        return None
    by = autotune_gate.PATCH if opens_gate(request) else autotune_gate.UPSTREAM
    kind = autotune_gate.OPEN_BY_PATCH if opens_gate(request) else autotune_gate.OPEN_UPSTREAM
    return {"backend": request.autotune_backend, "gate": kind, "enabled_by": by, "backends": [], "file": None}


def described(recorded: Mapping[str, Any] | None, backend: str | None) -> dict[str, Any] | None:
    """What a module returns about the gate of an environment for the backend of a request."""
    if not recorded:
        return None
    by = recorded["backends"].get(backend)
    kinds = {None: autotune_gate.CLOSED, autotune_gate.UPSTREAM: autotune_gate.OPEN_UPSTREAM}
    return {
        "backend": backend,
        "gate": kinds.get(by, autotune_gate.OPEN_BY_PATCH) if backend else None,
        "enabled_by": by,
        "backends": list(recorded["backends"]),
        "file": recorded["file"],
    }


def well_formed(recorded: Any) -> bool:
    """Whether what environment.json says about a gate can be read. An older environment says nothing."""
    return recorded is None or (
        isinstance(recorded, dict)
        and all(isinstance(recorded.get(name), str) for name in ("file", "sha256"))
        and isinstance(recorded.get("backends"), dict)
    )
