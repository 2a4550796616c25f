# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SGLang releases that can be installed: lookups over the generated `release_catalog.py`."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import flags, release_catalog

Flag = flags.Flag
canonical = flags.canonical


class ReleaseError(Exception):
    """A release, lane or Python that is not there; `facts` holds what was asked and what there is."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Lane:
    """One way to install a release. `torch` and `flashinfer` are its lock's pins; a lane may lack flashinfer."""

    name: str
    lock: str
    lock_no_deps: str | None
    torch: str
    flashinfer: str | None


@dataclass(frozen=True)
class Release:
    """A locked release. `torch` and `flashinfer` are what its own wheel pins, whatever a lane makes of it."""

    version: str
    requires_python: str
    torch: str | None
    flashinfer: str | None
    lanes: Mapping[str, Lane] = field(default_factory=dict)
    flags: Mapping[str, Flag] = field(default_factory=dict)

    def flag(self, name: str) -> Flag | None:
        """The flag with this name or alias (dashes or underscores, leading dashes or not), or None."""
        wanted = canonical(name)
        if wanted in self.flags:
            return self.flags[wanted]
        return next((flag for flag in self.flags.values() if wanted in flag.aliases), None)

    def moe_runner_backends(self) -> tuple[str, ...]:
        """The values `--moe-runner-backend` takes in this release, in its own order."""
        return tuple(str(choice) for choice in self.flags["moe-runner-backend"].choices or ())


def sort_key(version: str) -> tuple[tuple[int, ...], int, int, int]:
    """Orders release names: 0.5.0rc0 < 0.5.0 < 0.5.9 < 0.5.12 < 0.5.12.post1 < 0.5.13. Raises ReleaseError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)*)(?:(a|b|rc)(\d+))?(?:\.post(\d+))?", version)
    if match is None:
        raise ReleaseError(
            f"reading the version {version!r}: not a release name; give one like 0.5.23", version=version
        )
    numbers, stage, count, post = match.groups()
    rank = {"a": 0, "b": 1, "rc": 2, None: 3}[stage]
    return tuple(int(part) for part in numbers.split(".")), rank, int(count or 0), int(post or -1)


@functools.lru_cache(maxsize=4096)
def _key(version: str) -> tuple[tuple[int, ...], int, int, int]:
    return sort_key(version)


def in_span(version: str, span: str) -> bool:
    """Whether a version is in "a..b", "a..", "..b" or is "a"; everything is in "". Both ends belong to it.

    A text that is no version's name (a checkout's) is newer than all of them.
    """
    first, dots, last = span.partition("..")
    try:
        key = _key(version)
    except ReleaseError:
        return not span or (bool(dots) and not last)
    if not dots:
        return not span or key == _key(span)
    return (not first or _key(first) <= key) and (not last or key <= _key(last))


def known(lane: str | None = None) -> tuple[str, ...]:
    """The versions that are locked (for `lane` when given), newest first. Empty for an unknown lane."""
    found = [version for version, entry in release_catalog.RELEASES.items() if lane is None or lane in entry["lanes"]]
    return tuple(sorted(found, key=sort_key, reverse=True))


def known_lanes() -> tuple[str, ...]:
    """The names of all lanes, sorted."""
    return tuple(sorted({lane for entry in release_catalog.RELEASES.values() for lane in entry["lanes"]}))


def newest(lane: str | None = None) -> str:
    """The newest version that is locked (for `lane` when given). Raises ReleaseError for an unknown lane."""
    versions = known(lane)
    if not versions:
        lanes = ", ".join(known_lanes())
        raise ReleaseError(
            f"looking for a release in lane {lane!r}: no such lane; use one of {lanes}", lane=lane, lanes=known_lanes()
        )
    return versions[0]


def get(version: str) -> Release:
    """The release `version`. Raises ReleaseError with the nearest known name when it is not locked."""
    entry = release_catalog.RELEASES.get(version)
    if entry is None:
        near = difflib.get_close_matches(version, known(), n=1, cutoff=0.7)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ReleaseError(
            f"looking for SGLang {version!r}: no lock for this release{hint}; use one of {', '.join(known())}, "
            "or add the release to locks.toml and run `make locks`",
            version=version,
            known=known(),
        )
    return Release(
        version=version,
        requires_python=entry["requires_python"],
        torch=entry["torch"],
        flashinfer=entry["flashinfer"],
        lanes={name: Lane(name=name, **facts) for name, facts in entry["lanes"].items()},
        flags={name: flags.of_data(name, data) for name, data in entry["flags"].items()},
    )


def lane_of(version: str, lane: str) -> Lane:
    """The lane of a release. Raises ReleaseError naming the lanes it has."""
    lanes = get(version).lanes
    if lane not in lanes:
        raise ReleaseError(
            f"looking for SGLang {version} in lane {lane!r}: not locked for it; use one of {', '.join(sorted(lanes))}",
            version=version,
            lane=lane,
            lanes=sorted(lanes),
        )
    return lanes[lane]


def lock_names(version: str, lane: str) -> tuple[str, str | None]:
    """File names of the lock and of the lock that is installed without requirements (None when the lane has none)."""
    found = lane_of(version, lane)
    return found.lock, found.lock_no_deps


def requires_python(version: str) -> str:
    """The Python versions the release has wheels for (`>=3.11,<3.14`)."""
    return get(version).requires_python


def python_fits(version: str, python: Sequence[int]) -> bool:
    """Whether Python `(3, 11)` or `(3, 11, 4)` can run the release."""
    floor, ceiling = python_range(requires_python(version))
    return floor <= tuple(python[:2]) < ceiling


def python_range(wanted: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """First Python that works and first that does not, of `>=X.Y,<X.Z`. Raises ReleaseError for anything else."""
    match = re.fullmatch(r">=(\d+)\.(\d+),<(\d+)\.(\d+)", wanted)
    if match is None:
        raise ReleaseError(f"reading Requires-Python {wanted!r}: not of the form >=X.Y,<X.Z; run `make locks`")
    numbers = [int(part) for part in match.groups()]
    return (numbers[0], numbers[1]), (numbers[2], numbers[3])
