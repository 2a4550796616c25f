# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a running container really has of the nodes and CPUs that its configuration gives it.

Seen from the host through /proc/PID/root and /proc/PID/status of the container's first process (man page proc(5)), so
no program of the container is run and none can hang. Symbolic links in the container are not followed: they would be
taken for paths of the host.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ansible_collections.tokforge.sglang.plugins.module_utils import host_cpus, lxc_devices
from ansible_collections.tokforge.sglang.plugins.module_utils.lxc_devices import Host

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Inside:
    """Device numbers by node, None for one that is not there; CPUs and memory nodes that may be used."""

    nodes: Mapping[str, tuple[int, int] | None] = field(default_factory=dict)
    cpus: frozenset[int] = frozenset()
    mems: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Wanted:
    """What it should have: nodes, no GPU's node beside them, and lists of CPUs and memory nodes; empty for any."""

    nodes: tuple[str, ...] = ()
    cpus: str = ""
    mems: str = ""


def look(proc: str, pid: int, paths: Iterable[str]) -> Inside:
    """Look at the nodes `paths`, and at all of GPUs. Raises OSError when the process ended or may not be looked at."""
    root = os.open(f"{proc}/{pid}/root", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        gpus = {lxc_devices.gpu_path(number) for number in _gpus(root)}
        nodes = {path: _number(root, path) for path in [*paths, *sorted(gpus)]}
    finally:
        os.close(root)
    with open(f"{proc}/{pid}/status", encoding="utf-8", errors="replace") as stream:
        status = stream.read()
    return Inside(nodes, _list(status, "Cpus_allowed_list"), _list(status, "Mems_allowed_list"))


def _gpus(root: int) -> list[int]:
    with contextlib.suppress(OSError), _folder(root, "dev") as folder:
        found = (lxc_devices.gpu_of(f"/dev/{name}") for name in os.listdir(folder))
        return [number for number in found if number is not None]
    return []


def _number(root: int, path: str) -> tuple[int, int] | None:
    try:
        with _folder(root, os.path.dirname(path)) as folder:
            status = os.stat(os.path.basename(path), dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return (os.major(status.st_rdev), os.minor(status.st_rdev)) if stat.S_ISCHR(status.st_mode) else None


@contextlib.contextmanager
def _folder(root: int, path: str) -> Iterator[int]:
    """A descriptor of a directory below the container's root. Raises OSError for one that is a link."""
    here = os.dup(root)
    try:
        for name in path.strip("/").split("/"):
            below = os.open(name, _DIRECTORY, dir_fd=here)
            os.close(here)
            here = below
        yield here
    finally:
        os.close(here)


def _list(status: str, name: str) -> frozenset[int]:
    match = re.search(rf"^{name}:\s*(\S+)\s*$", status, re.MULTILINE)
    return host_cpus.numbers(match[1]) if match else frozenset()


def differences(inside: Inside, wanted: Wanted, host: Host) -> list[str]:
    """What is not as it should be, each as the end of a sentence about the container."""
    found = []
    for path in wanted.nodes:
        number, driver = inside.nodes.get(path), lxc_devices.driver_of(path)
        major = host.majors().get(driver or "")
        if number is None:
            found.append(f"{path} is not in it")
        elif major is not None and number[0] != major:
            found.append(f"{path} has major number {number[0]} in it, and its driver has {major}")
    known = set(host.majors().values())
    for path, number in inside.nodes.items():
        if number and number[0] in known and lxc_devices.gpu_of(path) is not None and path not in wanted.nodes:
            found.append(f"{path} is in it and no longer given to it")
    for what, have, text in (("CPUs", inside.cpus, wanted.cpus), ("memory nodes", inside.mems, wanted.mems)):
        numbers = host_cpus.numbers(text)
        if numbers and have and have != numbers:
            found.append(f"it may use {what} {host_cpus.shown(have)}, and is bound to {host_cpus.shown(numbers)}")
    return found
