# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations in Proxmox VE's format, and what pct was called for. The originals are those of files/proxmox.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "files"))

import proxmox

testinfra_hosts = ["ssh://lxc-proxmox"]
DIRECTORY = "/srv/proxmox/pve/lxc"
DEV_ENTRIES = [
    "dev1: /dev/nvidia0,mode=0666",
    "dev2: /dev/nvidia1,mode=0666",
    "dev3: /dev/nvidiactl,mode=0666",
    "dev4: /dev/nvidia-uvm,mode=0666",
    "dev5: /dev/nvidia-uvm-tools,mode=0666",
    "dev6: /dev/nvidia-caps/nvidia-cap1,mode=0444",
    "dev7: /dev/nvidia-caps/nvidia-cap2,mode=0444",
]
BOUND = ["lxc.cgroup2.cpuset.cpus: 0-7", "lxc.cgroup2.cpuset.mems: 0-1"]
RAW_ENTRIES = [
    "lxc.cgroup2.devices.allow: c 195:* rwm",
    "lxc.cgroup2.devices.allow: c 460:* rwm",
    "lxc.cgroup2.devices.allow: c 461:* rwm",
    "lxc.mount.entry: /dev/nvidia1 dev/nvidia1 none bind,optional,create=file",
    "lxc.mount.entry: /dev/nvidiactl dev/nvidiactl none bind,optional,create=file",
    "lxc.mount.entry: /dev/nvidia-uvm dev/nvidia-uvm none bind,optional,create=file",
    "lxc.mount.entry: /dev/nvidia-uvm-tools dev/nvidia-uvm-tools none bind,optional,create=file",
    "lxc.mount.entry: /dev/nvidia-caps dev/nvidia-caps none bind,optional,create=dir",
]
RAW_BOUND = ["lxc.cgroup2.cpuset.cpus: 4-7", "lxc.cgroup2.cpuset.mems: 1"]


def parts(host: Any, name: str) -> tuple[list[str], str]:
    """Lines of the running configuration with their ends, and all that comes after them."""
    text = host.file(f"{DIRECTORY}/{name}").content.decode()
    running, bracket, rest = text.partition("\n[")
    return running.splitlines(keepends=True), bracket + rest


def test_running_container_has_dev_entries_and_its_snapshot_is_as_it_was(host: Any) -> None:
    lines, snapshots = parts(host, "101.conf")
    before, bracket, rest = proxmox.RUNS.partition("\n[")
    assert snapshots == bracket + rest
    added = [line for line in lines if line not in before.splitlines(keepends=True)]
    assert added == [f"{line}\n" for line in DEV_ENTRIES + BOUND]
    assert [line for line in lines if line not in added] == before.splitlines(keepends=True)


def test_stopped_container_has_raw_entries_and_keeps_its_line_ends(host: Any) -> None:
    lines, _snapshots = parts(host, "102.conf")
    before = proxmox.STOPPED.splitlines(keepends=True)
    added = [line for line in lines if line not in before]
    assert added == [f"{line}\r\n" for line in RAW_ENTRIES + RAW_BOUND]
    assert [line for line in lines if line not in added] == before


def test_only_the_running_container_was_restarted_and_only_once(host: Any) -> None:
    calls = [json.loads(line) for line in host.file("/srv/proxmox/calls").content_string.splitlines()]
    changing = [call[1:3] for call in calls if call[0] == "pct" and call[1] not in ("config", "list", "status")]
    assert changing == [["reboot", "101"]]
    assert not host.file("/srv/proxmox/run/102").exists


def test_running_container_got_the_nodes(host: Any) -> None:
    pid = host.file("/srv/proxmox/run/101").content_string
    seen = host.check_output(f"stat -c '%t:%T' /srv/proxmox/proc/{pid}/root/dev/nvidia1")
    assert seen == "c3:1"
