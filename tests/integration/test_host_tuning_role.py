# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role host_tuning on a host that is a folder: set, lasting, read back, skipped with a reason, put back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from full_only import IN_FULL
from tuned_host import APART, CMDLINE, DOWN, GPU, OTHER, ROOT_PORT, UP, TunedHost, run

UNIT = "etc/systemd/system/tokforge-host.service"
EVERYTHING = {
    "cpu_governor": "performance",
    "energy_preference": "performance",
    "sysctl": {"kernel.numa_balancing": 0, "vm.nr_hugepages": 16},
    "kernel_options": ["nosmt"],
    "iommu": "pt",
    "modprobe": {"nvidia_uvm": {"uvm_disable_hmm": 1}},
    "acs": "off",
    "pcie_read_request": 4096,
    "limits": {"memlock": "unlimited"},
}
LESS = {
    "cpu_governor": "performance",
    "sysctl": {"kernel.numa_balancing": 0},
    "iommu": "on",
    "pcie_read_request": 4096,
    "pcie_devices": [OTHER],
}


@pytest.fixture
def host(tmp_path: Path) -> TunedHost:
    return TunedHost(tmp_path)


def reboot(host: TunedHost) -> str:
    """The kernel forgets what was set, takes its new command line, loads the module, and the unit runs."""
    for path in host.root.glob("sys/devices/system/cpu/cpufreq/policy*/scaling_governor"):
        path.write_text("schedutil\n")
    for address, offset, value in ((ROOT_PORT, 0x106, 0x1D), (DOWN, 0x106, 0x5D), (GPU, 0x68, 0x2810)):
        path = host.root / "sys/bus/pci/devices" / address / "config"
        data = bytearray(path.read_bytes())
        data[offset : offset + 2] = value.to_bytes(2, "little")
        path.write_bytes(data)
    grub = host.get("etc/default/grub")
    options = grub.split('GRUB_CMDLINE_LINUX_DEFAULT="', 1)[1].split('"', 1)[0]
    host.put("proc/cmdline", f"{CMDLINE} {options}\n")
    host.put("sys/module/nvidia_uvm/parameters/uvm_disable_hmm", "Y\n")
    command = next(line for line in host.get(UNIT).splitlines() if line.startswith("ExecStart="))
    words = command.removeprefix("ExecStart=").replace("/usr/bin/python3", sys.executable).split()
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@IN_FULL
def test_everything_is_set_lasts_across_a_reboot_and_is_put_back(host: TunedHost) -> None:
    before = host.snapshot()
    predicted = run(host, "--check", "--diff", **EVERYTHING)
    assert (predicted.failed, host.calls(), host.snapshot() == before, host.notes()) == (False, [], True, {})

    done = run(host, **EVERYTHING)
    assert not done.failed, done.text
    assert done.changed == predicted.changed > 0
    assert host.governors() == ["performance", "performance"]
    assert (host.get("proc/sys/kernel/numa_balancing"), host.get("proc/sys/vm/nr_hugepages")) == ("0\n", "16\n")
    assert 'GRUB_CMDLINE_LINUX_DEFAULT="quiet nosmt iommu=pt"\n' in host.get("etc/default/grub")
    assert "options nvidia_uvm uvm_disable_hmm=1\n" in host.get("etc/modprobe.d/tokforge-host.conf")
    assert host.calls() == ["update-grub ", "update-initramfs -u"]
    # Bridges above the GPU and no other, and of devices the GPU and no other.
    assert [host.access_control(address) for address in (ROOT_PORT, DOWN, APART)] == [0, 0, 0x1D]
    assert [host.config(address)[0x69] >> 4 for address in (GPU, OTHER, UP)] == [5, 2, 2]
    assert "root - memlock unlimited\n" in host.get("etc/security/limits.d/tokforge-host.conf")
    assert os.readlink(host.root / "etc/systemd/system/multi-user.target.wants/tokforge-host.service").endswith(UNIT)
    assert done.skipped == [
        {"what": "energy preference performance", "why": "the driver of the CPUs (acpi-cpufreq) has none"}
    ]
    assert [text.split(", found")[0] for text in done.pending] == [
        "kernel command line: wanted nosmt",
        "kernel command line: wanted iommu=pt",
    ]
    assert len(done.notes) == 1 and "nvidia_uvm becomes 1 when the module is loaded" in done.notes[0]
    state = host.snapshot()
    again = run(host, **EVERYTHING)
    assert (again.changed, again.failed, host.calls(), host.snapshot() == state) == (0, False, [], True)

    assert "governor performance: set" in reboot(host)
    verified = run(host, verify=True, **EVERYTHING)
    assert (verified.failed, verified.changed, verified.pending) == (False, 0, []), verified.text

    back = run(host, state="absent")
    assert not back.failed, back.text
    assert host.calls() == ["update-grub ", "update-initramfs -u"]
    assert back.pending == [
        "kernel command line: the running kernel still has iommu=pt",
        "kernel command line: the running kernel still has nosmt",
        "parameter uvm_disable_hmm of kernel module nvidia_uvm: "
        "it is not set any more, and the loaded module still has 1",
    ]
    after = host.snapshot()
    changed_by_reboot = {"proc/cmdline", "sys/module/nvidia_uvm/parameters/uvm_disable_hmm"}
    assert {name for name in {*before, *after} if before.get(name) != after.get(name)} == changed_by_reboot
    assert host.notes() == {}
    assert not (host.root / "usr/lib/tokforge-host").exists()
    gone = run(host, state="absent")
    assert (gone.changed, gone.failed, host.calls()) == (0, False, [])


@IN_FULL
def test_less_asked_puts_back_the_rest_and_what_was_changed_by_hand_is_set_again(host: TunedHost) -> None:
    run(host, **EVERYTHING)
    host.calls()
    host.put("proc/sys/kernel/numa_balancing", "2\n")
    host.put("sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "schedutil\n")
    wrong = run(host, verify=True, **EVERYTHING)
    assert wrong.failed and wrong.changed == 0
    for text in (
        "governor of CPU 1 (policy1): wanted performance, found schedutil",
        "kernel.numa_balancing: wanted 0, found 2",
        "kernel command line: wanted nosmt, found BOOT_IMAGE",
    ):
        assert text in wrong.text

    done = run(host, **LESS)
    assert not done.failed, done.text
    assert (host.get("proc/sys/kernel/numa_balancing"), host.get("proc/sys/vm/nr_hugepages")) == ("0\n", "0\n")
    assert host.governors() == ["performance", "performance"]
    assert 'GRUB_CMDLINE_LINUX_DEFAULT="quiet iommu=nopt"\n' in host.get("etc/default/grub")
    assert not (host.root / "etc/modprobe.d/tokforge-host.conf").exists()
    assert not (host.root / "etc/security/limits.d/tokforge-host.conf").exists()
    assert [host.access_control(address) for address in (ROOT_PORT, DOWN)] == [0x1D, 0x5D]
    assert [host.config(address)[0x69] >> 4 for address in (GPU, OTHER)] == [2, 5]
    assert "acs" not in host.get("usr/lib/tokforge-host/settings.json")


def test_container_gets_its_limits_and_nothing_of_the_kernel_is_touched(host: TunedHost) -> None:
    # The folder that is named for the unit's program may be one of somebody else.
    host.put("usr/lib/tokforge-host/mine.py", "x\n")
    before = host.snapshot()
    done = run(host, host_kind="container", **EVERYTHING)
    assert not done.failed, done.text
    assert {name for name, data in host.snapshot().items() if before.get(name) != data} == {
        "etc/security/limits.d/tokforge-host.conf"
    }
    assert len(done.skipped) == 8 and all("set it there" in each["why"] for each in done.skipped)
    assert host.get("usr/lib/tokforge-host/mine.py") == "x\n"
    assert (done.changed, done.pending, host.calls(), host.notes()) == (1, [], [], {})


@IN_FULL
def test_unit_with_another_name_replaces_the_one_before(host: TunedHost) -> None:
    folder = host.root / "etc/systemd/system"

    def units() -> list[str]:
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.service"))

    def both(name: str) -> list[str]:
        return [f"multi-user.target.wants/{name}.service", f"{name}.service"]

    run(host, cpu_governor="performance", unit="earlier")
    host.put("etc/systemd/system/other.service", "[Unit]\n")
    assert units() == sorted([*both("earlier"), "other.service"])
    predicted = run(host, "--check", cpu_governor="performance", unit="later")
    assert units() == sorted([*both("earlier"), "other.service"])
    done = run(host, cpu_governor="performance", unit="later")
    assert not done.failed, done.text
    assert done.changed == predicted.changed > 0
    assert units() == sorted([*both("later"), "other.service"])
    assert [key for key in host.notes() if key.startswith("host_tuning_unit/")] == ["host_tuning_unit/later"]

    gone = run(host, state="absent", unit="last")
    assert not gone.failed, gone.text
    assert (units(), host.notes()) == (["other.service"], {})


def test_what_cannot_be_done_fails_and_names_what_there_is(host: TunedHost) -> None:
    refused = run(host, "--check", cpu_governor="ondemand")
    assert refused.failed and "performance" in refused.text and "schedutil" in refused.text
    assert host.governors() == ["schedutil", "schedutil"]
