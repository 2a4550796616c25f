# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Containers of the stand-ins: a start gives a container what its configuration says, as Proxmox VE and LXC do.

Configurations are read here with a few lines of their own, so that a mistake of the collection's parser shows.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import grammar


def config_of(name: str) -> Path:
    """The configuration, of Proxmox VE for a number, of plain LXC otherwise."""
    root = grammar.state()
    return root / "pve" / "lxc" / f"{name}.conf" if name.isdigit() else root / "lxc" / name / "config"


def pid(name: str) -> int:
    """The first process, 0 when it does not run."""
    path = grammar.state() / "run" / name
    return int(path.read_text()) if path.exists() else 0


def stop(name: str) -> None:
    """Stop it."""
    (grammar.state() / "run" / name).unlink()


def start(name: str) -> None:
    """Start it; ends the program when a node that must be there is not."""
    root = grammar.state()
    if (root / "stuck" / name).exists():
        grammar.give_up(f"startup for container '{name}' failed", 1)
    (root / "run").mkdir(exist_ok=True)
    new = 1000 + len(list((root / "proc").glob("[0-9]*")))
    inside = root / "proc" / str(new) / "root"
    inside.mkdir(parents=True)
    entries = _entries(config_of(name))
    broken = (root / "broken" / name).read_text().split() if (root / "broken" / name).exists() else []
    for key, value in entries:
        if re.fullmatch(r"dev\d+", key):
            _give(inside, value.split(",")[0], False, broken)
        elif key == "lxc.mount.entry":
            source, _target, _kind, options = value.split()[:4]
            _give(inside, source, "optional" in options.split(","), broken)
    machine = (root / "sys/devices/system/cpu/online").read_text().strip()
    bound = dict(entries)
    (inside.parent / "status").write_text(
        "Name:\tsystemd\n"
        f"Cpus_allowed_list:\t{bound.get('lxc.cgroup2.cpuset.cpus', machine)}\n"
        f"Mems_allowed_list:\t{bound.get('lxc.cgroup2.cpuset.mems', '0-1')}\n"
    )
    (root / "run" / name).write_text(str(new))


def _entries(config: Path) -> list[tuple[str, str]]:
    found = []
    for line in config.read_text().splitlines():
        if line.startswith("["):
            break
        match = re.match(r"([\w.]+)\s*[:=]\s*(.*)", line)
        if match and not line.startswith("#"):
            found.append((match[1], match[2]))
    return found


def _give(inside: Path, path: str, optional: bool, broken: list[str]) -> None:
    """Make a node, or all nodes of a directory, in the container as they are on the host."""
    here = grammar.state() / path.lstrip("/")
    if not here.exists():
        if not optional:
            grammar.give_up(f"Device {path} does not exist", 1)
        return
    nodes = [here / name for name in os.listdir(here)] if here.is_dir() else [here]
    for node in nodes:
        below = node.relative_to(grammar.state())
        if f"/{below}" in broken:
            continue
        target = inside / below
        target.parent.mkdir(parents=True, exist_ok=True)
        status = node.stat()
        if stat.S_ISCHR(status.st_mode):
            os.mknod(target, status.st_mode, status.st_rdev)
        else:
            target.write_bytes(b"")
