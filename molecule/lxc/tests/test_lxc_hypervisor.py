# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hypervisor: the driver and its module, what keeps both as they are, and the nodes at each boot."""

from __future__ import annotations

from typing import Any

testinfra_hosts = ["ssh://lxc-hypervisor"]


def test_module_is_built_for_the_running_kernel(host: Any, driver: str) -> None:
    kernel = host.check_output("uname -r")
    assert host.check_output("dkms status") == f"nvidia/{driver}, {kernel}, x86_64: installed"
    assert host.package(f"linux-headers-{kernel}").is_installed


def test_every_package_of_the_driver_has_the_version(host: Any, driver: str) -> None:
    lines = host.check_output("dpkg-query -W -f '${Package} ${Version}\n' '*nvidia*' 'libcuda*'").splitlines()
    versions = dict(line.split() for line in lines if len(line.split()) == 2)
    assert set(versions.values()) == {f"{driver}-1"}
    assert {"nvidia-kernel-open-dkms", "nvidia-driver-cuda"} <= versions.keys()
    assert "nvidia-kernel-dkms" not in versions


def test_no_kernel_came_with_it(host: Any) -> None:
    assert host.check_output("dpkg-query -W -f '${Package}\n' | grep '^linux-image' || true") == ""
    assert host.check_output("ls /boot") == ""


def test_upgrade_leaves_driver_and_kernel_alone(host: Any, driver: str) -> None:
    policy = host.check_output("apt-cache policy nvidia-driver-cuda")
    assert f"Candidate: {driver}-1" in policy
    assert "580.105.08-1" in policy
    assert "nvidia" not in host.check_output("apt-get --simulate --quiet dist-upgrade | grep ^Inst || true")
    assert {"nvidia-driver-cuda", "nvidia-kernel-open-dkms"} <= set(host.check_output("apt-mark showhold").split())


def test_unattended_upgrades_would_skip_it(host: Any) -> None:
    blacklist = host.check_output("apt-config dump Unattended-Upgrade::Package-Blacklist")
    assert "nvidia" in blacklist


def test_repository_is_trusted_for_itself_only(host: Any) -> None:
    source = host.file("/etc/apt/sources.list.d/tokforge-nvidia.sources").content_string
    assert "Signed-By: /etc/apt/keyrings/tokforge-nvidia.gpg" in source
    assert host.check_output("ls /etc/apt/trusted.gpg.d | grep -v debian || true") == ""


def test_machines_own_driver_stays_away(host: Any) -> None:
    assert "blacklist nouveau" in host.check_output("modprobe --showconfig")


def test_persistence_daemon_runs_and_starts_at_boot(host: Any) -> None:
    service = host.service("nvidia-persistenced")
    assert service.is_running
    assert service.is_enabled


def test_userland_and_module_fit(host: Any, driver: str) -> None:
    assert host.check_output("nvidia-smi") == f"NVIDIA-SMI {driver}"


def test_nodes_are_made_before_guests_start(host: Any) -> None:
    unit = "tokforge-nvidia-nodes.service"
    assert host.service(unit).is_enabled
    assert unit in host.check_output("systemctl show --property=After --value lxc.service").split()
    assert host.check_output(f"systemd-analyze verify --man=no {unit} 2>&1") == ""


def test_read_only_kernel_settings_were_left_alone(host: Any) -> None:
    assert "ro" in host.mount_point("/proc/sys").options
    for path in ("/etc/sysctl.d/99-tokforge-host.conf", "/etc/modprobe.d/tokforge-host.conf", "/etc/default/grub"):
        assert not host.file(path).exists, path
