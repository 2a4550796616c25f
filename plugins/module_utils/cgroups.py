# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Control groups of the process that looks: where its limits are, for the old interface (v1) and the new one (v2).

A limit holds for everything below it, so each directory from the process' own up to the top that can be seen counts
(cgroups(7)). In a container the top that can be seen is the container's own group, which is where LXC and Docker put
their limits.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils import host_files

#: The old interface writes "no limit" as the greatest number that is a whole number of pages, 9223372036854771712 for
#: pages of 4 KiB and less for larger ones. No machine has that much of anything.
NO_LIMIT = 1 << 60


@dataclass(frozen=True)
class Groups:
    """The directories of one controller, the process' own first. `version` is 1, 2, or 0 when there is none."""

    version: int
    directories: tuple[str, ...] = ()


def of(controller: str, root: str = "/") -> Groups:
    """The groups of the looking process for a controller (memory, cpu, cpuset, pids)."""
    paths = _paths(host_files.read(root, "/proc/self/cgroup") or "")
    mounts = _mounts(host_files.read(root, "/proc/self/mountinfo") or "")
    # A controller is with one interface at a time. In the mixed layout the new one is mounted too, without controllers.
    for version, key in ((1, controller), (2, "")):
        if key in mounts and key in paths:
            top, point = mounts[key]
            found = _upwards(root, point, _below(paths[key], top))
            if found:
                return Groups(version, found)
    return Groups(0)


def limits(groups: Groups, name: str, root: str = "/") -> list[tuple[int, str]]:
    """Every limit in files of that name, each with its file's directory, from the process' own group upwards."""
    found = []
    for directory in groups.directories:
        value = host_files.whole(host_files.read(root, f"{directory}/{name}"))
        if value is not None and value < NO_LIMIT:
            found.append((value, directory))
    return found


def fields(text: str | None) -> dict[str, int]:
    """A file of `name number` lines, such as memory.stat."""
    found = {}
    for line in (text or "").splitlines():
        words = line.split()
        value = host_files.whole(words[1]) if len(words) == 2 else None
        if value is not None:
            found[words[0]] = value
    return found


def _paths(text: str) -> dict[str, str]:
    """/proc/self/cgroup: controller (empty for the new interface) -> path of the process' group."""
    found = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/"):
            for controller in parts[1].split(","):
                found[controller] = parts[2]
    return found


def _mounts(text: str) -> dict[str, tuple[str, str]]:
    """/proc/self/mountinfo: controller (empty for the new interface) -> group at the top of the mount, mount point."""
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        left, _dash, right = line.partition(" - ")
        place, kind = left.split(), right.split()
        if len(place) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        entry = (_unescaped(place[3]), _unescaped(place[4]))
        # A container may see several mounts of one interface; the first is the one at the usual place.
        for key in [""] if kind[0] == "cgroup2" else kind[2].split(","):
            found.setdefault(key, entry)
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _below(path: str, top: str) -> str:
    """The group's path as it is below the mount point.

    Without a namespace of its own a container sees the host's path while the mount shows only its part of the tree.
    """
    if top != "/" and (path == top or path.startswith(top + "/")):
        path = path[len(top) :]
    # "/.." begins a path outside of the namespace: only the top is ours to see.
    parts = [part for part in path.split("/") if part]
    return "" if ".." in parts else "/".join(parts)


def _upwards(root: str, point: str, path: str) -> tuple[str, ...]:
    found = []
    while True:
        directory = posixpath.join(point, path) if path else point
        if host_files.is_directory(root, directory):
            found.append(directory)
        if not path:
            return tuple(found)
        path = path.rpartition("/")[0]
