# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what an answer about tuning files needs of a directory of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.model_files import shown
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config import (
    Key,
    down_key,
    lookup_directories,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config_content import ContentError
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config_judge import Entry

# The releases' own directories have 380 files, of at most 10 kB.
MOST_FILES = 20_000
MOST_DIRECTORIES = 200
LARGEST_CONFIG_BYTES = 1 << 20


@dataclass(frozen=True)
class Place:
    """What a given directory is to SGLang.

    configs: the directory with those of the Triton versions, "" for one without.
    base: what $SGLANG_MOE_CONFIG_DIR has to be to have it read, "" when nothing makes SGLang find it.
    problem: why nothing does, or why it cannot be read; "" for none.
    """

    configs: str = ""
    base: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Listing:
    """What was found. `present` is the names in `configs`, `dangling` are files that are links to nothing.

    `complete`: whether all files were seen; those that SGLang looks for always were.
    """

    place: Place
    present: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    dangling: tuple[str, ...] = ()
    complete: bool = True


def place_of(directory: str) -> Place:
    """What a directory is: one that holds `configs`, `configs` itself, one of a Triton version, or a heap of files."""
    path = os.path.abspath(directory)
    above = os.path.dirname(path)
    try:
        names = os.listdir(path)
    except OSError as exc:
        return Place(
            problem=f"cannot read the directory {shown(path)}: {exc.strerror}; give another, or make it readable"
        )
    if os.path.isdir(os.path.join(path, "configs")):
        return Place(os.path.join(path, "configs"), path)
    if os.path.basename(path) == "configs":
        return Place(path, above)
    if os.path.basename(path).startswith("triton_") and os.path.basename(above) == "configs":
        return Place(above, os.path.dirname(above))
    if any(name.startswith("triton_") and os.path.isdir(os.path.join(path, name)) for name in names):
        return Place(path, problem=f"SGLang reads {shown(path)} only once it is called configs; rename it")
    problem = f"SGLang looks into configs/triton_<version> below a directory, and {shown(path)} has no such directory"
    return Place(problem=f"{problem}; move the files there")


def listing(directory: str, release: str, triton: str, keys: Iterable[Key]) -> Listing:
    """The files below a directory. Never raises: what cannot be read is in the place's problem."""
    place = place_of(directory)
    if not place.configs:
        entries, complete = (
            _files(os.path.abspath(directory), "", MOST_FILES) if os.path.isdir(directory) else ([], True)
        )
        return Listing(place, entries=tuple(entries), complete=complete)
    try:
        present = tuple(sorted(os.listdir(place.configs)))
    except OSError as exc:
        return Listing(
            Place(problem=f"cannot read the directory {shown(place.configs)}: {exc.strerror}; make it readable")
        )
    wanted = [name for key in keys for each in (key, down_key(release, key)) if each for name in [each.name()]]
    found: dict[Entry, None] = {}
    dangling = []
    for version in lookup_directories(release, triton, present):
        for name in wanted:
            path = os.path.join(place.configs, version, name)
            if os.path.exists(path):
                found[Entry(shown(path), name, version)] = None
            elif os.path.lexists(path):
                dangling.append(shown(path))
    complete = True
    versions = [name for name in present if name.startswith("triton_")]
    for version in ["", *versions[:MOST_DIRECTORIES]]:
        more, whole = _files(os.path.join(place.configs, version), version, MOST_FILES - len(found))
        # A link to nothing is in the listing too; SGLang takes it for no file.
        found.update((entry, None) for entry in more if entry.path not in dangling)
        complete = complete and whole
    return Listing(place, present, tuple(found), tuple(dangling), complete and len(versions) <= MOST_DIRECTORIES)


def _files(directory: str, version: str, most: int) -> tuple[list[Entry], bool]:
    """Up to `most` files of a directory that are named like tuning files, and whether these are all."""
    found: list[Entry] = []
    try:
        with os.scandir(directory) as names:
            for count, name in enumerate(names):
                if count >= most:
                    return found, False
                if name.name.startswith("E=") or name.name.lower().endswith(".json"):
                    found.append(Entry(shown(name.path), name.name, version))
    except OSError:
        # A file among the directories, or one that may not be entered: it has nothing that SGLang could use either.
        return found, True
    return found, True


def read_entry(place: Place, entry: Entry) -> str:
    """The text of a tuning file. Raises ContentError for what is no readable file of text."""
    path = os.path.join(place.configs, entry.version, entry.name)
    try:
        # A pipe would be waited for.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ContentError("it is no file")
        with open(path, "rb") as handle:
            content = handle.read(LARGEST_CONFIG_BYTES + 1)
    except OSError as exc:
        raise ContentError(f"it cannot be read: {exc.strerror}") from exc
    if len(content) > LARGEST_CONFIG_BYTES:
        raise ContentError(f"it has more than {LARGEST_CONFIG_BYTES} bytes and is no tuning file", fatal=False)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ContentError("it is no UTF-8 text") from exc


def quantization_settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """`quantization_config`, also of a text model one level down; empty without one."""
    parts = [config, *(config.get(name) for name in ("text_config", "language_config", "llm_config"))]
    found = (part.get("quantization_config") for part in parts if isinstance(part, Mapping))
    return next((settings for settings in found if isinstance(settings, Mapping)), {})
