# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Module cuda_toolkit: a toolkit noted, brought, tried and linked, and all of that taken back.

Noting comes first and forgetting last, so that a run that is killed in between leaves nothing nobody knows of.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    cuda_toolkit,
    host_files,
    toolkit_choice,
    toolkit_default,
    toolkit_state,
    toolkit_wheels,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.toolkit_choice import ToolkitError
from ansible_collections.tokforge.sglang.plugins.module_utils.toolkit_wheels import Places, Wheel

#: The wheels by version, here so that a test can have smaller ones.
WHEELS = toolkit_wheels.WHEELS


def run(params: Mapping[str, Any], check_mode: bool, environ: Mapping[str, str]) -> dict[str, Any]:
    """The module's result. Raises ToolkitError, WheelError, RecordError and OSError."""
    if params["state"] == "prepared":
        return _prepare(params, check_mode)
    if params["state"] == "absent":
        return _remove(params, check_mode)
    return _provide(params, check_mode, environ)


def _prepare(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    home = os.path.normpath(params["home"])
    if not check_mode:
        toolkit_state.note(params["record_dir"], toolkit_default.look(params["system_root"]), home, built=False)
    return {"changed": False, "home": home}


def _provide(params: Mapping[str, Any], check_mode: bool, environ: Mapping[str, str]) -> dict[str, Any]:
    root, home = params["system_root"], os.path.normpath(params["home"])
    version = toolkit_choice.parse(params["version"])
    place = host_files.place(root, home)
    before = _shown(params, place)
    changed = False
    if params["source"] == toolkit_choice.WHEEL:
        wheels: Sequence[Wheel] = WHEELS.get(version, ())
        if not wheels:
            known = ", ".join(map(toolkit_choice.text, WHEELS))
            raise ToolkitError(f"building CUDA toolkit {params['version']}: no wheels are known for it; use {known}")
        changed = not toolkit_wheels.complete(place, version, wheels)
        if changed and not check_mode:
            toolkit_state.note(params["record_dir"], toolkit_default.look(root), home, built=True)
            toolkit_wheels.build(place, version, wheels, _places(params, environ))
    if not (check_mode and (changed or not os.path.isdir(place))):
        _judge(home, root, version)
    if params["default"] and not check_mode:
        toolkit_state.note_default(params["record_dir"], toolkit_default.look(root), home)
    if not toolkit_state.is_linked(params["version"], home, root):
        changed = True
        if not check_mode:
            toolkit_state.link(params["version"], home, root)
    after = before
    if changed:
        linked = f"{toolkit_state.link_of(params['version'], root)} -> {toolkit_state.link_text(home)}"
        built = [f"{place}/"] if params["source"] == toolkit_choice.WHEEL or os.path.isdir(place) else []
        after = "".join(f"{line}\n" for line in [*built, linked])
    return {"changed": changed, "home": home, "diff": {"before": before, "after": after}}


def _judge(home: str, root: str, version: cuda_toolkit.Version) -> None:
    """Raises ToolkitError when what is at `home` is not the toolkit, whole."""
    found = cuda_toolkit.inspect(home, root, toolkit_wheels.ask)
    shown = toolkit_choice.text(found.version) if found.version else "none"
    why = found.problem or (f"its nvcc is {shown}" if found.version != version else "")
    if not why and found.missing:
        why = f"{', '.join(found.missing)} are missing"
    if why:
        raise ToolkitError(
            f"looking at CUDA toolkit {toolkit_choice.text(version)} in {home}: {why}; look at what its source brought",
            home=home,
            missing=list(found.missing),
        )


def _places(params: Mapping[str, Any], environ: Mapping[str, str]) -> Places:
    index = params["index"]
    return Places(
        inherit_pip=index.get("inherit_pip", True) is not False,
        index_url=index.get("index_url"),
        extra_index_urls=tuple(index.get("extra_index_urls") or ()),
        find_links=tuple(index.get("find_links") or ()),
        wheelhouse=params["wheelhouse"] or "",
        environ=environ,
    )


def _remove(params: Mapping[str, Any], check_mode: bool) -> dict[str, Any]:
    root = params["system_root"]
    noted = toolkit_state.read(params["record_dir"])
    built = [home for home in noted.built if os.path.lexists(host_files.place(root, home))]
    links = toolkit_state.links(root)
    left = {path for home in noted.built for path in toolkit_wheels.leftovers(host_files.place(root, home))}
    removed = [*built, *sorted(left), *links]
    if not check_mode:
        for home in noted.built:
            toolkit_wheels.remove(host_files.place(root, home))
        toolkit_state.unlink_all(root)
        toolkit_state.forget(params["record_dir"])
    before = "".join(f"{path}\n" for path in removed)
    return {"changed": bool(removed), "removed": removed, "diff": {"before": before, "after": ""}}


def _shown(params: Mapping[str, Any], place: str) -> str:
    lines = [f"{place}/"] if os.path.isdir(place) else []
    link = toolkit_state.link_of(params["version"], params["system_root"])
    if os.path.islink(link):
        lines.append(f"{link} -> {os.readlink(link)}")
    return "".join(f"{line}\n" for line in lines)
