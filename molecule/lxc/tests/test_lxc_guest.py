# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the guest has beside the nodes: the driver's userland, no kernel module, and what a container can tune."""

from __future__ import annotations

from typing import Any

testinfra_hosts = ["ssh://lxc-guest"]


def installed(host: Any) -> dict[str, str]:
    """Versions of the installed packages that are NVIDIA's or the kernel's."""
    lines = host.check_output("dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\n'").splitlines()
    words = ("nvidia", "cuda", "dkms", "linux-image", "linux-headers")
    return {name: version for state, name, version in map(str.split, lines) if any(word in name for word in words)}


def test_userland_is_of_the_loaded_drivers_version_and_brings_no_kernel_module(host: Any, driver: str) -> None:
    packages = installed(host)
    assert set(packages.values()) == {f"{driver}-1"}
    assert {"nvidia-driver-cuda", "libcuda1", "libnvidia-ml1"} <= packages.keys()
    assert not [name for name in packages if "kernel" in name or "dkms" in name or name.startswith("linux-")]
    assert host.check_output("nvidia-smi") == f"NVIDIA-SMI {driver}"


def test_upgrade_leaves_the_driver_alone(host: Any) -> None:
    assert "580.105.08-1" in host.check_output("apt-cache madison nvidia-driver-cuda")
    assert "nvidia" not in host.check_output("apt-get --simulate --quiet dist-upgrade | grep ^Inst || true")


def test_persistence_daemon_cannot_be_started(host: Any) -> None:
    assert host.run("systemctl start nvidia-persistenced").rc != 0
    assert host.run("systemctl is-enabled nvidia-persistenced").stdout.strip() == "masked"
    assert not host.process.filter(comm="nvidia-persiste")


def test_a_new_session_has_the_limits(host: Any) -> None:
    # Commands over ssh may come through a connection from before.
    assert host.check_output("su --login --command 'ulimit -l; ulimit -n'").split() == ["4096", "16384"]


def test_shared_memory_has_the_size_now_and_after_a_restart(host: Any) -> None:
    assert host.check_output("df --output=size -B1M /dev/shm | tail -n 1").strip() == "64"
    assert "size=64M" in host.check_output("grep /dev/shm /etc/fstab")


def test_nothing_of_the_kernel_was_set(host: Any) -> None:
    for path in ("/etc/sysctl.d/99-tokforge-host.conf", "/etc/modprobe.d/tokforge-host.conf", "/etc/default/grub"):
        assert not host.file(path).exists, path
