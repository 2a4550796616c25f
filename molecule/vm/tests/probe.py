# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Print as JSON what the machine is like: what the running kernel says, and every file that a role could have changed.

It runs on the machine and reads the registers itself, so that it and what is tested are not wrong together.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import stat
import subprocess
import sys

TREES = ["/etc", "/usr/local", "/boot/grub/grub.cfg"]
RECORD = "/var/lib/tokforge/host/previous.json"
GOVERNORS = "/sys/devices/system/cpu/cpufreq/*/scaling_governor"
# Offsets that the kernel module of the test machine lays out.
DEVICE_CONTROL = 0x48
ACS_CONTROL = 0x106


def text(path: str) -> str:
    """Content of a file without the last newline."""
    with open(path, encoding="utf-8") as stream:
        return stream.read().strip()


def register(device: str, offset: int) -> int:
    """Two bytes of a device's configuration space."""
    with open(f"/sys/bus/pci/devices/{device}/config", "rb") as stream:
        stream.seek(offset)
        return int.from_bytes(stream.read(2), "little")


def file_state(path: str) -> str:
    """Mode, owner and content of a file."""
    info = os.lstat(path)
    about = f"{stat.filemode(info.st_mode)} {info.st_uid}:{info.st_gid}"
    if stat.S_ISLNK(info.st_mode):
        return f"{about} -> {os.readlink(path)}"
    if stat.S_ISREG(info.st_mode):
        with open(path, "rb") as stream:
            return f"{about} {hashlib.sha256(stream.read()).hexdigest()}"
    return about


def files() -> dict[str, str]:
    """State of every file and directory below TREES."""
    paths = []
    for tree in TREES:
        if os.path.lexists(tree):
            paths.append(tree)
        for directory, names, leaves in os.walk(tree):
            paths += [os.path.join(directory, name) for name in names + leaves]
    return {path: file_state(path) for path in sorted(paths)}


def limits() -> dict[str, list[str]]:
    """Soft and hard limits of a session that starts now."""
    answer = subprocess.run(
        ["su", "root", "-c", "ulimit -Sn; ulimit -Hn; ulimit -Sl; ulimit -Hl"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return {"nofile": answer[:2], "memlock": answer[2:]}


devices = sorted(name for name in os.listdir("/sys/bus/pci/devices") if name.startswith("0001:"))
bridges = [name for name in devices if text(f"/sys/bus/pci/devices/{name}/class").startswith("0x0604")]
shared_memory = os.statvfs("/dev/shm")  # noqa: S108 -- its size is asked, nothing is written
json.dump(
    {
        "boot_id": text("/proc/sys/kernel/random/boot_id"),
        "command_line": text("/proc/cmdline").split(),
        "governors": {path.split("/")[-2]: text(path) for path in glob.glob(GOVERNORS)},
        "numa_balancing": text("/proc/sys/kernel/numa_balancing"),
        "hugepages": text("/proc/sys/vm/nr_hugepages"),
        "numa_nodes": text("/sys/devices/system/node/online"),
        "uvm_disable_hmm": text("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm"),
        "read_requests": {name: 128 << (register(name, DEVICE_CONTROL) >> 12 & 7) for name in devices},
        "device_controls": {name: register(name, DEVICE_CONTROL) & 0x8FFF for name in devices},
        "acs": {name: register(name, ACS_CONTROL) for name in bridges},
        "shared_memory": shared_memory.f_frsize * shared_memory.f_blocks,
        "limits": limits(),
        "record": json.loads(text(RECORD))["values"] if os.path.exists(RECORD) else {},
        "files": files(),
    },
    sys.stdout,
)
