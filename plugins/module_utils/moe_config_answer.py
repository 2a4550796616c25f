# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole answer about tuning files: the path, the files that are looked for, the one that applies, the near ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import compat_releases, moe_config, moe_config_path
from ansible_collections.tokforge.sglang.plugins.module_utils.model_files import shown
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config import Key
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config_judge import (
    Asked,
    Entry,
    Judgement,
    Nearby,
    judge_directory,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config_look import Listing, Place, read_entry
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config_path import Path
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config_request import Question


@dataclass(frozen=True)
class Wanted:
    """What is looked for. `keys` has a second one when it is not known whether shared experts count as experts."""

    keys: tuple[Key, ...] = ()
    files: tuple[str, ...] = ()
    down_files: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()


def keys_of(question: Question, device: str) -> tuple[Key, ...]:
    """The names' meanings; none for a dense model, or when it is not known how the weights lie."""
    if question.layer is None or question.kept is None:
        return ()
    layers = [question.layer]
    if question.shared:
        layers.append(replace(question.layer, fused_shared=question.shared))
    return tuple(moe_config.key_of(question.setup.release, layer, question.kept, device) for layer in layers)


def wanted_files(release: str, triton: str, keys: tuple[Key, ...], present: tuple[str, ...] = ()) -> Wanted:
    """The files in the order they are tried, relative to $SGLANG_MOE_CONFIG_DIR or the package's own directory.

    :param present: what there is below `configs`. Without it, releases from 0.5.12 on have only their own Triton's.
    """
    directories = moe_config.lookup_directories(release, triton, present)
    downs = [down for key in keys for down in [moe_config.down_key(release, key)] if down]

    def paths(wanted: list[Key]) -> tuple[str, ...]:
        return tuple(f"configs/{directory}/{key.name()}" for key in wanted for directory in directories)

    return Wanted(keys, paths(list(keys)), paths(downs), directories)


def answer(
    question: Question,
    device: str,
    triton: str,
    listing: Listing | None = None,
    read: Callable[[Entry], str] | None = None,
) -> dict[str, Any]:
    """What the module returns. `device` is the first GPU's product name, "" when it is not known.

    :param listing: what is in the given directory, None when none is given.
    :param read: gives the text of a file in it; reads it from the disk when left out.
    """
    release = question.setup.release
    path = moe_config_path.NO_EXPERTS if question.layer is None else moe_config_path.path_selected(question.setup)
    keys = keys_of(question, device or moe_config.DEVICE_UNKNOWN) if path.reads_configs is not False else ()
    wanted = wanted_files(release, triton, keys, listing.present if listing else ())
    found = Judgement()
    if listing is not None and keys and question.layer is not None:
        asked = Asked(release, question.layer, keys, wanted.directories)
        place = listing.place
        found = judge_directory(asked, listing.entries, read or (lambda entry: read_entry(place, entry)))
        found = _reachable(found, place)
    notes = _notes(question, path, device, wanted, listing, found)
    return {
        "path": asdict(path),
        "wanted": list(wanted.files),
        "wanted_down": list(wanted.down_files),
        "applies": found.applies,
        "applies_down": found.applies_down,
        "nearby": [asdict(near) for near in found.nearby],
        "nearby_left_out": found.left_out,
        "others": found.others,
        "fatal": found.fatal or _unlistable(release, listing, wanted),
        "notes": notes,
        "message": _message(question, path, device, wanted, listing, found),
    }


def _reachable(found: Judgement, place: Place) -> Judgement:
    """The same for a directory in which SGLang finds nothing, however it is told of it."""
    if place.base or not (found.applies or found.fatal):
        return found
    near = tuple(Nearby(path, place.problem) for path in (found.applies, found.applies_down) if path)
    return replace(found, applies=None, applies_down=None, fatal="", notes=(), nearby=near + found.nearby)


def _unlistable(release: str, listing: Listing | None, wanted: Wanted) -> str:
    """What in the directory ends a server that lists it; "" when nothing does, or it does not get as far."""
    if listing is None or not wanted.keys or not listing.place.base or not moe_config.lists_directory(release):
        return ""
    own = {entry.name for entry in listing.entries if entry.version == wanted.directories[0]}
    looked_for = {key.name() for key in wanted.keys} | {replace(key, down=True).name() for key in wanted.keys}
    names = moe_config.misnamed(listing.present)
    if looked_for <= own or not names:
        return ""
    what = shown(names[0])
    return f"{shown(listing.place.configs)} has {what}, which SGLang takes for a Triton version; move it elsewhere"


def _notes(
    question: Question, path: Path, device: str, wanted: Wanted, listing: Listing | None, found: Judgement
) -> list[str]:
    release = question.setup.release
    notes = list(found.notes)
    if path.reads_configs is False:
        return notes
    if release not in compat_releases.RELEASES:
        notes.append(f"SGLang {release} was not read: its files are named as in {compat_releases.NEWEST}, or otherwise")
    if not device and question.layer is not None:
        notes.append("the GPU's product name is not known, so that no file can be said to apply; give device_name")
    if question.layer is not None and question.kept is None:
        what = question.setup.quantization
        notes.append(
            f"what files for quantization {what} are called depends on how the experts are kept: not known here"
        )
    if wanted.down_files and not found.applies_down:
        notes.append("the file for the down projection alone is optional: without it the other one serves both")
    if listing is None:
        return notes
    if listing.place.problem:
        notes.append(listing.place.problem)
    if not listing.place.configs and moe_config.lists_directory(release):
        notes.append(
            f"{moe_config.DIRECTORY_VARIABLE} must not name it: without configs in it, the first forward fails"
        )
    notes += [f"{name} is a link to nothing, which SGLang takes for no file" for name in listing.dangling[:5]]
    if not listing.complete:
        notes.append("the directory has more files than were looked at; near ones may be missing, used ones are not")
    if listing.place.base and not moe_config.reads_variable(release):
        notes.append(
            f"SGLang {release} reads files only from {moe_config.package_directory(release)} of its own package; "
            f"{moe_config.DIRECTORY_VARIABLE} is read from {moe_config.VARIABLE_SINCE} on"
        )
    elif listing.place.base and not listing.place.base.endswith(moe_config.package_directory(release)):
        variable = f"{moe_config.DIRECTORY_VARIABLE}={shown(listing.place.base)}"
        notes.append(f"to have SGLang read it, start it with {variable}; the package's own files are then not read")
    return notes


def _message(
    question: Question, path: Path, device: str, wanted: Wanted, listing: Listing | None, found: Judgement
) -> str:
    """The answer in one or two sentences."""
    if path.reads_configs is False:
        return f"no tuning file is read: {path.reason}"
    start = "" if path.reads_configs else f"whether tuning files are read is not known: {path.reason}. If triton runs, "
    if not wanted.files:
        return f"{start or path.reason + ': '}the name of its file is not known"
    if listing is None:
        said = f"it looks for {wanted.files[0]}"
    elif found.fatal:
        said = f"the server ends at its first forward with {found.fatal}"
    elif found.applies:
        said = f"it uses {found.applies}"
    else:
        nearest = f"; nearest is {found.nearby[0].file}: {found.nearby[0].reason}" if found.nearby else ""
        said = f"no file of the directory applies, it looks for {wanted.files[0]}{nearest}"
    unlisted = _unlistable(question.setup.release, listing, wanted)
    if unlisted and not found.fatal:
        said = f"the server ends at its first forward: {unlisted}"
    if start:
        return start + said
    return f"{path.reason}: {said}" + ("" if device else " (the GPU's name is not known)")
