# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the state of the stand-ins for Proxmox VE's programs (tests/integration/stand_ins/grammar.py) in a directory.

    python proxmox.py DIRECTORY

A host of two NUMA nodes with a GPU at each, and two containers in Proxmox VE's format: 101 runs, 102 does not.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import hardware

UVM = 460
NODES = {
    "nvidia0": (195, 0),
    "nvidia1": (195, 1),
    "nvidiactl": (195, 255),
    "nvidia-uvm": (UVM, 0),
    "nvidia-uvm-tools": (UVM, 1),
    "nvidia-caps/nvidia-cap1": (UVM + 1, 1),
    "nvidia-caps/nvidia-cap2": (UVM + 1, 2),
    "net/tun": (10, 200),
}
STATUS = "Name:\tsystemd\nCpus_allowed_list:\t0-7\nMems_allowed_list:\t0-1\n"
# The snapshot has the entry of a GPU, as it was then; nothing of it may change.
RUNS = """\
#GPU box%3A serves models
#second line of its notes
arch: amd64
cores: 8
dev0: /dev/ttyUSB0,mode=0660
features: nesting=1
hostname: serve-1
memory: 65536
net0: name=eth0,bridge=vmbr0,hwaddr=02:74:6F:6B:03:01,ip=dhcp,type=veth
onboot: 1
ostype: debian
parent: before-upgrade
rootfs: local-zfs:subvol-101-disk-0,size=64G
swap: 0
unprivileged: 1
lxc.cgroup2.devices.allow: c 10:200 rwm
lxc.mount.entry: /dev/net/tun dev/net/tun none bind,create=file,optional

[before-upgrade]
#as it was
arch: amd64
dev1: /dev/nvidia0,mode=0666
hostname: serve-1
memory: 32768
rootfs: local-zfs:subvol-101-disk-0,size=64G
snaptime: 1760000000
lxc.cgroup2.devices.allow: c 195:* rwm
lxc.cgroup2.devices.allow: c 511:* rwm
lxc.mount.entry: /dev/nvidia0 dev/nvidia0 none bind,optional,create=file
"""
# Written by hand, with CRLF and without a last newline.
STOPPED = (
    "arch: amd64\r\n# by hand\r\nhostname: serve-2\r\nmemory: 1024\r\nlxc.cgroup2.devices.allow: c 10:200 rwm\r\n"
    "rootfs: local-zfs:subvol-102-disk-0,size=8G"
)


def main() -> None:
    """Write it."""
    root = Path(sys.argv[1])
    files = {
        "pveversion": "pve-manager/8.2.4/faa83925c9641325 (running kernel: 6.8.12-4-pve)\n",
        "pve/lxc/101.conf": RUNS,
        "pve/lxc/102.conf": STOPPED,
        "run/101": "1000",
        "proc/1000/status": STATUS,
        "sys/devices/system/cpu/online": "0-7\n",
        "sys/devices/system/node/online": "0-1\n",
        "sys/devices/system/node/has_memory": "0-1\n",
        "sys/devices/system/node/node0/cpulist": "0-3\n",
        "sys/devices/system/node/node1/cpulist": "4-7\n",
        "dev/ttyUSB0": "",
    }
    for name, text in hardware.files("580.95.05", UVM).items():
        place = {"devices": "proc/devices", "driver": "proc/driver", "pci": "sys/bus/pci"}
        first, slash, rest = name.partition("/")
        files[place[first] + slash + rest] = text
    files[f"sys/bus/pci/devices/{hardware.GPUS[0]}/local_cpulist"] = "0-3\n"
    files[f"sys/bus/pci/devices/{hardware.GPUS[1]}/numa_node"] = "1\n"
    files[f"sys/bus/pci/devices/{hardware.GPUS[1]}/local_cpulist"] = "4-7\n"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    (root / "proc/1000/root/dev").mkdir(parents=True)
    for name, (major, minor) in NODES.items():
        path = root / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    # It comes last and says that all is there.
    (root / "calls").touch()


if __name__ == "__main__":
    main()
