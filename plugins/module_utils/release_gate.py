# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The autotune gate as a part of an environment: opened while it is built, recorded, and held against the record.

environment.json holds the `file` of the gate, its `sha256`, and `backends`: each backend that is tuned, and who put it
there. That is all of the gate that an environment can have, whichever backend a request names.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_gate, sglang_tree
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
    return {"file": tuned.file, "sha256": _digest(tuned.file), "backends": dict(tuned.enabled_by)}


def problems(environment: str, recorded: Mapping[str, Any] | None, request: Request) -> list[str]:
    """How the gate of an environment differs from its record and from the request, in words."""
    found = []
    # A tree that is used in place is not held against the record: its state is part of the environment's name.
    if recorded and recorded["file"].startswith(os.path.join(environment, "")):
        try:
            changed = "was changed" if _digest(recorded["file"]) != recorded["sha256"] else ""
        except OSError as error:
            changed = f"cannot be read ({error.strerror})"
        if changed:
            found.append(f"{recorded['file']} {changed} after the environment was built")
    backend = request.autotune_backend
    if backend is not None and backend not in (recorded or {}).get("backends", {}):
        found.append(_closed(recorded, request))
    return found


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


def _digest(path: str) -> str:
    with open(path, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()
