# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stand-ins for Proxmox VE's and LXC's programs take what is documented, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

STAND_INS = Path(__file__).with_name("stand_ins")
Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    (tmp_path / "pve/lxc").mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    config = "cores: 4\nrootfs: x\nlxc.cgroup2.cpuset.cpus: 0-3\n\n[old]\nrootfs: y\n"
    (tmp_path / "pve/lxc/101.conf").write_text(config)
    (tmp_path / "sys/devices/system/cpu").mkdir(parents=True)
    (tmp_path / "sys/devices/system/cpu/online").write_text("0-7\n")
    (tmp_path / "pveversion").write_text("pve-manager/9.1.4/5ac30304265fbd8e (running kernel: 6.17.4-1-pve)\n")
    (tmp_path / "api.json").write_text(json.dumps({"/nodes": [{"node": "pve-1"}]}))
    kernels = {"manual": [], "automatic": ["6.8.12-4-pve", "6.8.12-9-pve"], "pinned": "", "next": ""}
    (tmp_path / "kernels.json").write_text(json.dumps(kernels))
    environment = {**os.environ, "STAND_IN_STATE": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def once(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [STAND_INS / command[0], *command[1:]], env=environment, capture_output=True, text=True, check=False
        )

    return once


def test_container_starts_with_its_configuration_and_stops(call: Call, tmp_path: Path) -> None:
    assert call("pct", "status", "101").stdout == "status: stopped\n"
    assert call("pct", "start", "101").returncode == 0
    assert call("lxc-info", "-n", "101", "-s", "-p").stdout == "State:          RUNNING\nPID:            1000\n"
    assert "Cpus_allowed_list:\t0-3\n" in (tmp_path / "proc/1000/status").read_text()
    assert call("pct", "reboot", "101", "--timeout=3").returncode == 0
    assert call("lxc-info", "--name=101", "-pH").stdout == "1001\n"
    assert call("pct", "list").stdout.splitlines()[1].split() == ["101", "running", "CT101"]
    assert call("pct", "config", "101", "-current").stdout == "cores: 4\nrootfs: x\nlxc.cgroup2.cpuset.cpus: 0-3\n\n"
    assert call("pct", "shutdown", "101", "--forceStop", "1", "--timeout", "9").returncode == 0
    assert call("pct", "status", "101", "--verbose").stdout == "status: stopped\n"
    assert json.loads((tmp_path / "calls").read_text().splitlines()[3]) == ["pct", "reboot", "101", "--timeout=3"]


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        ("pct", 255, "ERROR: no command specified"),
        ("pct restart 101", 255, "ERROR: unknown command 'pct restart'"),
        ("pct start", 255, "400 not enough arguments"),
        ("pct start 101 102", 255, "400 too many arguments"),
        ("pct start web", 255, "vmid: invalid format - got 'web'"),
        ("pct start 99", 255, "vmid: invalid format"),
        ("pct start 999", 2, "Configuration file 'nodes/pve-1/lxc/999.conf' does not exist"),
        ("pct start 101 --timeout 5", 255, "Unknown option: timeout"),
        ("pct reboot 101 --timeout", 255, "Option timeout requires an argument"),
        ("pct reboot 101 --timeout -1", 255, "timeout: type check ('integer') failed - got '-1'"),
        ("pct reboot 101 --timeout 5s", 255, "failed - got '5s'"),
        ("pct reboot 101", 255, "VM 101 not running"),
        ("pct stop 101", 255, "CT 101 not running"),
        ("pveversion --short", 255, "Unknown option: short"),
        ("pveversion x", 255, "400 too many arguments"),
        ("pvesh", 255, "ERROR: no command specified"),
        ("pvesh create /nodes", 255, "ERROR: unknown command 'pvesh create'"),
        ("pvesh get /nodes --output-format xml", 255, "output-format: value 'xml'"),
        ("pvesh get /nowhere", 1, "No 'get' handler defined for '/nowhere'"),
        ("proxmox-boot-tool", 1, "USAGE: /usr/sbin/proxmox-boot-tool <commands> [ARGS]"),
        ("proxmox-boot-tool kernel pin", 1, "USAGE:"),
        ("proxmox-boot-tool kernel pin 6.8.12-5-pve", 1, "E: no kernel image found in /boot for '6.8.12-5-pve'"),
        ("proxmox-boot-tool kernel add 6.8.12-5-pve --next-boot", 1, "USAGE:"),
        ("proxmox-boot-tool kernel remove 6.8.12-4-pve", 1, "USAGE:"),
        ("proxmox-boot-tool refresh now", 1, "USAGE:"),
        ("lxc-info -s", 1, "missing container name"),
        ("lxc-info -n 102 -s", 1, "102 doesn't exist"),
        ("lxc-info -n 101 -P /var/lib/lxc -s", 1, "101 doesn't exist"),
        ("lxc-info -n 101 --shell", 1, "option --shell not recognized"),
        ("lxc-stop -n 101 -t soon", 1, "invalid timeout soon"),
        ("lxc-stop -n 101", 2, "is not running"),
        ("lxc-start 101", 1, "unexpected arguments ['101']"),
    ],
)
def test_what_is_not_documented_is_refused(call: Call, command: str, code: int, text: str) -> None:
    done = call(*command.split())
    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr


def test_versions_and_interface_are_as_recorded(call: Call) -> None:
    assert call("pveversion").stdout == "pve-manager/9.1.4/5ac30304265fbd8e (running kernel: 6.17.4-1-pve)\n"
    assert call("pveversion", "-v").stdout.startswith("proxmox-ve: 9.1.4 (running kernel: 6.17.4-1-pve)\n")
    assert json.loads(call("pvesh", "get", "nodes/", "--output-format", "json").stdout) == [{"node": "pve-1"}]


def test_kernels_are_pinned_and_released(call: Call, tmp_path: Path) -> None:
    assert call("proxmox-boot-tool", "kernel", "pin", "6.8.12-4-pve").returncode == 0
    assert call("proxmox-boot-tool", "kernel", "pin", "6.8.12-9-pve", "--next-boot").returncode == 0
    assert call("proxmox-boot-tool", "kernel", "list").stdout == (
        "Manually selected kernels:\nNone.\n\nAutomatically selected kernels:\n6.8.12-4-pve\n6.8.12-9-pve\n\n"
        "Pinned kernel:\n6.8.12-4-pve\n\nKernel pinned on next-boot:\n6.8.12-9-pve\n"
    )
    assert call("proxmox-boot-tool", "kernel", "unpin").returncode == 0
    assert json.loads((tmp_path / "kernels.json").read_text())["pinned"] == ""
    assert call("proxmox-boot-tool", "refresh").returncode == 0
    assert call("proxmox-boot-tool", "status", "--quiet").stdout == ""
    (tmp_path / "kernels.json").unlink()
    assert [call("proxmox-boot-tool", *words).returncode for words in (["refresh"], ["status", "--quiet"])] == [2, 2]
