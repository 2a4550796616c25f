# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A kernel package that is held, and pinned on Proxmox VE: what is said to apt-mark and proxmox-boot-tool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import kernel_package, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.kernel_package import KernelPackageError

PVE, NEWER = "proxmox-kernel-6.8.12-4-pve-signed", "proxmox-kernel-6.8.12-9-pve-signed"


class Host:
    """apt-mark and proxmox-boot-tool, strict about their arguments."""

    def __init__(self, folder: Path) -> None:
        self.pin, self.record = folder / "pin", str(folder / "record")
        self.held = {"nano"}
        self.calls: list[str] = []
        self.deaf = False

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        words = list(command)
        if words == ["apt-mark", "showhold"]:
            return 0, "".join(f"{name}\n" for name in sorted(self.held))
        self.calls.append(" ".join(words))
        if words[0] == "apt-mark" and words[1] in ("hold", "unhold") and len(words) > 2:
            self.held = self.held | set(words[2:]) if words[1] == "hold" else self.held - set(words[2:])
        elif words[:3] == ["proxmox-boot-tool", "kernel", "pin"] and len(words) == 4:
            if not self.deaf:
                self.pin.write_text(f"{words[3]}\n")
        elif words == ["proxmox-boot-tool", "kernel", "unpin"]:
            self.pin.unlink()
        else:
            return 1, "what?\n"
        return 0, ""

    def settle(self, package: str, pin: bool = False, check: bool = False) -> kernel_package.Outcome:
        return kernel_package.settle(package, pin, str(self.pin), self.record, check, self.run)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize(
    ("package", "release"),
    [
        ("linux-image-6.1.0-28-amd64", "6.1.0-28-amd64"),
        ("linux-image-6.12.43+deb13-amd64", "6.12.43+deb13-amd64"),
        ("linux-image-unsigned-6.8.0-31-generic", "6.8.0-31-generic"),
        (PVE, "6.8.12-4-pve"),
        ("proxmox-kernel-6.8.12-4-pve", "6.8.12-4-pve"),
        ("pve-kernel-5.15.108-1-pve", "5.15.108-1-pve"),
    ],
)
def test_package_names_its_release(package: str, release: str) -> None:
    assert kernel_package.release_of(package) == release


@pytest.mark.parametrize(
    "package", ["linux-image-amd64", "proxmox-kernel-6.8", "linux-image-generic", "bash", "linux-image-6.1.0 x", ""]
)
def test_package_of_no_single_release_is_refused(package: str) -> None:
    with pytest.raises(KernelPackageError, match="not the package of one kernel release"):
        kernel_package.release_of(package)


def test_package_is_held_pinned_and_put_back(host: Host) -> None:
    assert host.settle(PVE, True, check=True).changed and host.calls == []
    assert host.settle(PVE, True).changed
    assert host.calls == [f"apt-mark hold {PVE}", "proxmox-boot-tool kernel pin 6.8.12-4-pve"]
    assert not host.settle(PVE, True).changed
    host.calls.clear()
    assert host.settle("").changed
    assert host.calls == [f"apt-mark unhold {PVE}", "proxmox-boot-tool kernel unpin"]
    assert (host.held, previous_values.read(host.record)) == ({"nano"}, {})
    host.calls.clear()
    assert not host.settle("").changed and host.calls == []


def test_hold_and_pin_of_before_come_back(host: Host) -> None:
    host.held.add(PVE)
    host.pin.write_text("6.5.13-5-pve\n")
    host.settle(PVE, True)
    assert host.calls == ["proxmox-boot-tool kernel pin 6.8.12-4-pve"]
    host.settle(NEWER, True)
    assert host.held == {"nano", PVE, NEWER}
    host.settle("")
    assert (host.held, host.pin.read_text()) == ({"nano", PVE}, "6.5.13-5-pve\n")


def test_other_package_lets_go_of_the_former_one(host: Host) -> None:
    host.settle(PVE, True)
    host.settle(NEWER, True)
    assert (host.held, host.pin.read_text()) == ({"nano", NEWER}, "6.8.12-9-pve\n")
    assert previous_values.read(host.record) == {f"kernel_package/{NEWER}": False, "kernel_pin": None}


def test_without_proxmox_nothing_is_pinned(host: Host) -> None:
    host.settle("linux-image-6.1.0-28-amd64")
    assert host.calls == ["apt-mark hold linux-image-6.1.0-28-amd64"]


def test_command_that_fails_and_pin_that_does_not_stick_are_errors(host: Host) -> None:
    host.deaf = True
    with pytest.raises(KernelPackageError, match="reads nothing afterwards"):
        host.settle(PVE, True)
    with pytest.raises(KernelPackageError, match=r"ended with 1.*what"):
        kernel_package.settle(PVE, False, str(host.pin), host.record, False, lambda _command: (1, "what?"))


def test_damaged_note_of_the_pin_is_an_error(host: Host) -> None:
    previous_values.remember(host.record, {"kernel_pin": 7})
    with pytest.raises(KernelPackageError, match="is not as this collection notes it"):
        host.settle("")
