# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""host_identity.py and what it looks with: containers.py, kernel_releases.py, gpu_generation.py."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    containers,
    gpu_generation,
    host_identity,
    kernel_releases,
)

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22-I3)\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025\n"


def write(root: Path, path: str, text: str = "") -> None:
    at = root / path.lstrip("/")
    at.parent.mkdir(parents=True, exist_ok=True)
    at.write_text(text)


def no_program(_command: Sequence[str]) -> str:
    return ""


def device(
    root: Path, address: str, device_id: str, kind: str = "0x030200", driver: str = "", node: str = "-1"
) -> None:
    at = f"/sys/bus/pci/devices/{address}"
    write(root, f"{at}/vendor", "0x10de\n")
    write(root, f"{at}/device", f"0x{device_id}\n")
    write(root, f"{at}/class", f"{kind}\n")
    write(root, f"{at}/numa_node", f"{node}\n")
    write(root, f"{at}/local_cpulist", "0-15,32-47\n")
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (root / at.lstrip("/") / "driver").symlink_to(f"../../drivers/{driver}")


def kernel(root: Path, release: str, headers: str = "") -> None:
    """A kernel in /boot; headers: none, a link as packages make it, or one that leads nowhere."""
    write(root, f"/boot/vmlinuz-{release}")
    modules = root / "lib/modules" / release
    modules.mkdir(parents=True, exist_ok=True)
    if headers:
        (modules / "build").symlink_to(f"/usr/src/{headers}")


# --- what kind of host -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({}, ""),
        ({"/run/systemd/container": "lxc\n"}, "lxc"),
        ({"/proc/1/environ": "PATH=/bin\0container=lxc\0TERM=linux\0"}, "lxc"),
        ({"/proc/1/environ": "PATH=/bin\0container_uuid=5\0mycontainer=lxc\0"}, ""),
        ({"/proc/1/environ": "container=\0"}, ""),
        ({"/.dockerenv": ""}, "docker"),
        ({"/run/.containerenv": 'engine="podman"\n'}, "podman"),
        ({"/run/.containerenv": "", "/proc/1/environ": "container=podman\0"}, "podman"),
        ({"/run/systemd/container": ""}, "container"),
        ({"/run/systemd/container": "", "/proc/1/environ": "container=systemd-nspawn\0"}, "systemd-nspawn"),
    ],
)
def test_container_is_told_by_its_manager(tmp_path: Path, files: dict[str, str], kind: str) -> None:
    for path, text in files.items():
        write(tmp_path, path, text)
    found = host_identity.look(str(tmp_path), "auto", no_program, "6.1.0-18-amd64")
    assert (found["container"], found["kind"]) == (kind, "container" if kind else "machine")


def test_kind_that_was_told_wins_and_decides_what_is_looked_at(tmp_path: Path) -> None:
    write(tmp_path, "/run/systemd/container", "lxc")
    kernel(tmp_path, "6.1.0-18-amd64")
    told = host_identity.look(str(tmp_path), "machine", no_program, "6.1.0-18-amd64")
    assert (told["kind"], told["container"], told["next_kernel"]) == ("machine", "lxc", "6.1.0-18-amd64")
    seen = host_identity.look(str(tmp_path), "auto", no_program, "6.1.0-18-amd64")
    assert (seen["kind"], seen["next_kernel"], seen["headers"]) == ("container", "", [])
    (tmp_path / "run/systemd/container").unlink()
    assert host_identity.look(str(tmp_path), "container", no_program, "6.1")["kind"] == "container"


def test_marks_that_cannot_be_read_are_no_marks() -> None:
    assert containers.kind(lambda path: None) == ""
    assert containers.mark(lambda path: b"" if path == "/a" else None, ("/b", "/a")) == "/a"


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("pve-manager/8.2.4/faa83925c9641325 (running kernel: 6.8.12-1-pve)\n", "8.2.4"),
        ("pve-manager/9.0~11/...\n", "9.0"),
        ("", ""),
        ("bash: pveversion: command not found\n", ""),
    ],
)
def test_version_of_proxmox(tmp_path: Path, said: str, version: str) -> None:
    asked: list[Sequence[str]] = []

    def run(command: Sequence[str]) -> str:
        asked.append(command)
        return said

    assert host_identity.look(str(tmp_path), "auto", run, "6.8.12-1-pve")["proxmox"] == version
    assert asked == [["pveversion"]]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n', ("debian", "12", "bookworm")),
        ("ID=ubuntu\nVERSION_ID='24.04'\nVERSION_CODENAME=noble\n", ("ubuntu", "24.04", "noble")),
        ('# ID=arch\n\nID=debian\nNAME="unfinished\nVERSION_ID=13\n', ("debian", "13", "")),
        ("nonsense\n", ("", "", "")),
    ],
)
def test_distribution(tmp_path: Path, text: str, wanted: tuple[str, str, str]) -> None:
    write(tmp_path, "/etc/os-release", text)
    found = host_identity.look(str(tmp_path), "auto", no_program, "6.1")
    assert (found["os"], found["os_version"], found["codename"]) == wanted


@pytest.mark.parametrize(
    ("cpuinfo", "vendor", "wanted"),
    [
        ("flags\t\t: fpu sse2 hypervisor lm\n", "QEMU\n", "QEMU"),
        ("flags\t\t: fpu sse2 hypervisor lm\n", "", "unknown"),
        ("flags\t\t: fpu sse2 lm\n", "Supermicro\n", ""),
        ("model name\t: hypervisor\n", "QEMU\n", ""),
        ("", "QEMU", ""),
    ],
)
def test_virtual_machine_is_told_by_its_cpu(tmp_path: Path, cpuinfo: str, vendor: str, wanted: str) -> None:
    write(tmp_path, "/proc/cpuinfo", cpuinfo)
    write(tmp_path, "/sys/class/dmi/id/sys_vendor", vendor)
    assert host_identity.look(str(tmp_path), "auto", no_program, "6.1")["virtual"] == wanted


# --- the driver and the GPUs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "version", "kind"),
    [
        (OPEN, "580.95.05", "open"),
        (CLOSED, "550.163.01", "closed"),
        ("", "", ""),
        ("half a li", "", ""),
    ],
)
def test_loaded_driver(tmp_path: Path, text: str, version: str, kind: str) -> None:
    write(tmp_path, "/proc/driver/nvidia/version", text)
    assert host_identity.driver(str(tmp_path), "/proc/driver/nvidia") == {
        "loaded_version": version,
        "loaded_kind": kind,
        "nouveau_loaded": False,
    }


def test_nouveau_is_seen_and_the_driver_can_be_told_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "sys/module/nouveau").mkdir(parents=True)
    write(tmp_path, "/srv/nvidia/version", OPEN)
    found = host_identity.look(str(tmp_path), "auto", no_program, "6.1", "/srv/nvidia")["driver"]
    assert found == {"loaded_version": "580.95.05", "loaded_kind": "open", "nouveau_loaded": True}


def test_gpus_without_a_driver_are_told_by_their_ids(tmp_path: Path) -> None:
    device(tmp_path, "0000:c1:00.0", "2bb1", "0x030000", driver="nouveau", node="1")
    device(tmp_path, "0000:01:00.0", "2335")
    device(tmp_path, "0000:01:00.1", "22e8", "0x040300")
    write(tmp_path, "/sys/bus/pci/devices/0000:02:00.0/vendor", "0x8086")
    found = host_identity.gpus(str(tmp_path))
    assert [one["address"] for one in found] == ["0000:01:00.0", "0000:c1:00.0"]
    assert found[1] == {
        "address": "0000:c1:00.0",
        "device_id": "2bb1",
        "architecture": "blackwell",
        "needs_open_module": True,
        "can_open_module": True,
        "driver": "nouveau",
        "numa_node": 1,
        "cpus": "0-15,32-47",
    }
    assert (found[0]["architecture"], found[0]["needs_open_module"], found[0]["driver"]) == ("hopper", False, "")


@pytest.mark.parametrize(
    ("device_id", "architecture", "needs", "can"),
    [
        (0x1DB6, "older", False, False),  # V100
        (0x1B06, "older", False, False),  # GTX 1080 Ti
        (0x1EB8, "turing", False, True),  # T4
        (0x2182, "turing", False, True),  # GTX 1660 Ti
        (0x20B2, "ampere", False, True),  # A100
        (0x2330, "hopper", False, True),  # H100 SXM5
        (0x2342, "hopper", True, True),  # GH200
        (0x2684, "ada", False, True),  # RTX 4090
        (0x2901, "blackwell", True, True),  # B200
        (0x2BB1, "blackwell", True, True),  # RTX PRO 6000
        (0x3182, "blackwell", True, True),  # B300
        (0x3500, "unknown", True, True),  # not there yet
        (0x2A00, "unknown", False, True),
    ],
)
def test_generation_and_kernel_module(device_id: int, architecture: str, needs: bool, can: bool) -> None:
    assert gpu_generation.architecture(device_id) == architecture
    assert gpu_generation.needs_open_module(device_id) is needs
    assert gpu_generation.can_open_module(device_id) is can


# --- kernels ---------------------------------------------------------------------------------------------------------


def test_next_kernel_is_the_newest_by_number_and_not_by_letters(tmp_path: Path) -> None:
    for release in ("6.1.0-9-amd64", "6.1.0-18-amd64", "5.10.0-30-amd64"):
        kernel(tmp_path, release)
    write(tmp_path, "/boot/vmlinuz-6.9.0.old")
    assert kernel_releases.next_release(str(tmp_path)) == kernel_releases.Next(
        "6.1.0-18-amd64", "it is the newest in /boot"
    )


@pytest.mark.parametrize(
    ("files", "release", "why"),
    [
        ({"/etc/kernel/proxmox-boot-pin": "6.8.4-2-pve\n"}, "6.8.4-2-pve", "/etc/kernel/proxmox-boot-pin pins it"),
        (
            {"/etc/kernel/proxmox-boot-pin": "6.8.4-2-pve\n", "/etc/kernel/next-boot-pin": "6.8.12-4-pve\n"},
            "6.8.12-4-pve",
            "/etc/kernel/next-boot-pin pins it",
        ),
        (
            {"/etc/kernel/proxmox-boot-pin": "6.5.1-1-pve"},
            "",
            "/etc/kernel/proxmox-boot-pin pins 6.5.1-1-pve, which is not in /boot",
        ),
        ({"/etc/default/grub": "GRUB_DEFAULT=0\n"}, "6.8.12-4-pve", "it is the newest in /boot"),
        ({"/etc/default/grub": "#GRUB_DEFAULT=saved\n"}, "6.8.12-4-pve", "it is the newest in /boot"),
        (
            {"/etc/default/grub": "GRUB_DEFAULT=saved\n"},
            "",
            "GRUB_DEFAULT in /etc/default/grub is 'saved', which names no kernel in /boot",
        ),
        (
            {
                "/etc/default/grub": "GRUB_DEFAULT=0\n",
                "/etc/default/grub.d/pin.cfg": "GRUB_DEFAULT='gnulinux-advanced-5a>gnulinux-6.8.4-2-pve-advanced-5a'\n",
                "/etc/default/grub.d/pin.cfg.bak": "GRUB_DEFAULT=1\n",
            },
            "6.8.4-2-pve",
            "GRUB_DEFAULT in /etc/default/grub.d/pin.cfg names it",
        ),
        (
            {
                "/etc/default/grub": "GRUB_DEFAULT=saved\n",
                "/boot/grub/grubenv": "# GRUB Environment Block\nsaved_entry=gnulinux-6.8.4-2-pve-advanced-5a\n####",
            },
            "6.8.4-2-pve",
            "saved_entry in /boot/grub/grubenv names it",
        ),
        (
            {"/etc/default/grub": "GRUB_DEFAULT=saved\n", "/boot/grub/grubenv": "# GRUB Environment Block\n####"},
            "6.8.12-4-pve",
            "it is the newest in /boot",
        ),
        (
            {"/boot/grub/grubenv": "next_entry=1>gnulinux-6.8.4-2-pve-advanced-5a\n"},
            "6.8.4-2-pve",
            "next_entry in /boot/grub/grubenv names it",
        ),
        (
            {"/etc/default/grub": "GRUB_DEFAULT=0 # the first\nGRUB_TOP_LEVEL=/boot/vmlinuz-6.8.4-2-pve\n"},
            "6.8.4-2-pve",
            "GRUB_TOP_LEVEL in /etc/default/grub names it",
        ),
        ({"/etc/default/grub": "GRUB_DEFAULT=0 # the first\n"}, "6.8.12-4-pve", "it is the newest in /boot"),
        (
            {"/etc/default/grub": "GRUB_DEFAULT='unclosed\n"},
            "",
            "GRUB_DEFAULT in /etc/default/grub is 'not readable: ",
        ),
        (
            {"/etc/default/grub": 'GRUB_DEFAULT="Advanced options for Proxmox>Proxmox, with Linux 6.8.4-2-pve"\n'},
            "6.8.4-2-pve",
            "GRUB_DEFAULT in /etc/default/grub names it",
        ),
    ],
)
def test_next_kernel_is_the_pinned_one_or_the_one_that_grub_is_told(
    tmp_path: Path, files: dict[str, str], release: str, why: str
) -> None:
    kernel(tmp_path, "6.8.4-2-pve")
    kernel(tmp_path, "6.8.12-4-pve")
    for path, text in files.items():
        write(tmp_path, path, text)
    found = kernel_releases.next_release(str(tmp_path))
    assert found.release == release
    assert found.why == why if release else found.why.startswith(why)


def test_release_candidate_is_older_than_its_release() -> None:
    names = ["6.12.0", "6.12.0-amd64", "6.12.0-rc2-amd64", "6.12-rc1", "6.12", "6.9.1-rt-amd64", "6.9.1-amd64"]
    wanted = ["6.9.1-amd64", "6.9.1-rt-amd64", "6.12-rc1", "6.12"]
    assert [name for name in sorted(names, key=kernel_releases.order) if name in wanted] == wanted
    assert kernel_releases.order("6.12.0-rc2-amd64") < kernel_releases.order("6.12.0-amd64")


def test_host_without_a_kernel_in_boot_has_no_next_one(tmp_path: Path) -> None:
    assert kernel_releases.next_release(str(tmp_path)) == kernel_releases.Next("", "there is no kernel in /boot")


@pytest.mark.parametrize(
    ("release", "package"),
    [
        ("6.1.0-18-amd64", "linux-headers-6.1.0-18-amd64"),
        ("6.8.0-45-generic", "linux-headers-6.8.0-45-generic"),
        ("6.8.12-4-pve", "proxmox-headers-6.8.12-4-pve"),
        ("6.5.11-7-pve", "proxmox-headers-6.5.11-7-pve"),
        ("6.2.16-3-pve", "pve-headers-6.2.16-3-pve"),
        ("5.15.158-2-pve", "pve-headers-5.15.158-2-pve"),
    ],
)
def test_package_with_the_headers(release: str, package: str) -> None:
    assert kernel_releases.headers_package(release) == package


def test_headers_are_there_when_the_link_leads_to_a_makefile(tmp_path: Path) -> None:
    kernel(tmp_path, "6.8.4-2-pve", "linux-headers-6.8.4-2-pve")
    kernel(tmp_path, "6.8.12-4-pve", "linux-headers-6.8.12-4-pve")
    kernel(tmp_path, "6.5.11-7-pve")
    write(tmp_path, "/usr/src/linux-headers-6.8.4-2-pve/Makefile")
    (tmp_path / "usr/src/linux-headers-6.8.12-4-pve").mkdir()
    found = host_identity.look(str(tmp_path), "machine", no_program, "6.8.4-2-pve")
    assert found["headers"] == [
        {"release": "6.8.4-2-pve", "present": True, "package": "proxmox-headers-6.8.4-2-pve"},
        {"release": "6.8.12-4-pve", "present": False, "package": "proxmox-headers-6.8.12-4-pve"},
    ]
    assert not kernel_releases.headers(str(tmp_path), ["6.5.11-7-pve"])[0].present
    # A custom kernel's tree, in place.
    write(tmp_path, "/lib/modules/7.0.0/build/Makefile")
    assert kernel_releases.headers(str(tmp_path), ["7.0.0", "7.0.0", ""]) == [
        kernel_releases.Headers("7.0.0", True, "linux-headers-7.0.0")
    ]


def test_this_machine_can_be_looked_at() -> None:
    found = host_identity.look("/", "auto", no_program, os.uname().release)
    assert found["kernel"] == os.uname().release and found["os"]
