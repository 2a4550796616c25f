# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import driver_hosts as hosts
import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import dkms_status, driver_check
from ansible_collections.tokforge.sglang.plugins.module_utils.driver_check import Kernels
from ansible_collections.tokforge.sglang.plugins.module_utils.driver_plan import DriverError

VERSION = "580.95.05"
KERNEL = "6.1.0-40-amd64"

# As Debian 12 and Proxmox VE 8 say it (dkms 3.0), with modules of others.
DKMS_3 = """\
nvidia/580.82.07, 6.1.0-39-amd64, x86_64: installed
nvidia/580.95.05, 6.1.0-39-amd64, x86_64: installed
nvidia/580.95.05, 6.1.0-40-amd64, x86_64: installed
zfs/2.1.11, 6.1.0-40-amd64, x86_64: installed
nvidia-fs/2.26.6, 6.1.0-40-amd64, x86_64: installed
"""
# As Ubuntu 22.04 says it (dkms 2.8).
DKMS_2 = """\
nvidia, 580.95.05, 5.15.0-157-generic, x86_64: installed
v4l2loopback, 0.12.5, 5.15.0-157-generic, x86_64: added
"""


def built(host: dict[str, Any], text: str, before: Kernels | None = None) -> None:
    driver_check.check_built(host, VERSION, dkms_status.parse(text), before or Kernels())


def fails(call: Any, *given: Any) -> str:
    with pytest.raises(DriverError) as raised:
        call(*given)
    return str(raised.value)


def test_module_for_running_and_next_kernel_is_enough() -> None:
    built(hosts.machine(), DKMS_3)
    built(hosts.machine(following="6.1.0-39-amd64"), DKMS_3)
    built(hosts.machine(following=""), DKMS_3)
    built(hosts.machine(("ubuntu", "22.04"), "5.15.0-157-generic"), DKMS_2)


def test_kernel_without_module_is_named_with_what_dkms_says() -> None:
    told = fails(built, hosts.machine(following="6.1.0-41-amd64"), DKMS_3)
    assert "DKMS has none for 6.1.0-41-amd64: not built" in told
    assert "6.1.0-40-amd64:" not in told


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("", "DKMS does not know this version"),
        ("nvidia/580.82.07, 6.1.0-40-amd64, x86_64: installed\n", "DKMS does not know this version"),
        ("nvidia/580.95.05: added\n", "not built"),
        ("nvidia/580.95.05, 6.1.0-40-amd64, x86_64: built\n", "built"),
        (
            "nvidia/580.95.05, 6.1.0-40-amd64, x86_64: installed (WARNING! Diff between built and installed module!)\n",
            "installed (WARNING! Diff between built and installed module!)",
        ),
        ("Error! Could not locate dkms.conf file.\n", "DKMS does not know this version"),
    ],
)
def test_module_that_is_not_installed_is_missing(text: str, state: str) -> None:
    assert dkms_status.missing(dkms_status.parse(text), VERSION, [KERNEL]) == {KERNEL: state}


@pytest.mark.parametrize("name", ["nvidia", "nvidia-open", "nvidia-current-open"])
def test_module_has_the_name_that_its_packages_give_it(name: str) -> None:
    assert (
        dkms_status.missing(dkms_status.parse(f"{name}/580.95.05, {KERNEL}, x86_64: installed"), VERSION, [KERNEL])
        == {}
    )


def test_original_modules_remark_is_no_trouble() -> None:
    text = f"nvidia/580.95.05, {KERNEL}, x86_64: installed (original_module exists)"
    assert dkms_status.missing(dkms_status.parse(text), VERSION, [KERNEL]) == {}


def test_other_modules_are_not_the_driver() -> None:
    assert {one.name for one in dkms_status.parse(DKMS_3)} == {"nvidia"}


def test_driver_that_changed_the_next_kernel_fails_with_both() -> None:
    text = DKMS_3 + "nvidia/580.95.05, 6.1.0-41-amd64, x86_64: installed\n"
    told = fails(built, hosts.machine(following="6.1.0-41-amd64"), text, Kernels(KERNEL, KERNEL))
    assert "6.1.0-40-amd64 was to start next" in told
    assert "now it is 6.1.0-41-amd64" in told


def test_kernel_that_cannot_be_told_is_not_held_against_the_driver() -> None:
    built(hosts.machine(following=""), DKMS_3, Kernels(KERNEL, KERNEL))
    built(hosts.machine(), DKMS_3, Kernels(KERNEL, ""))


@pytest.mark.parametrize(
    ("host", "waits"),
    [
        (hosts.machine(loaded=VERSION), []),
        (hosts.machine(), ["the kernel module of 580.95.05 is not loaded"]),
        (
            hosts.machine(loaded="580.82.07"),
            ["the kernel module of 580.82.07 (open) is loaded, asked for is 580.95.05 (open)"],
        ),
        (
            hosts.machine(loaded=VERSION, loaded_kind="closed"),
            ["the kernel module of 580.95.05 (closed) is loaded, asked for is 580.95.05 (open)"],
        ),
        (hosts.machine(gpus=[]), []),
        (hosts.machine(gpus=[hosts.gpu(1, hosts.PRO_6000, "vfio-pci")]), []),
        (
            hosts.machine(nouveau=True),
            [
                "nouveau is loaded and has the GPUs until the machine is started anew",
                "the kernel module of 580.95.05 is not loaded",
            ],
        ),
    ],
    ids=["as asked", "none", "older", "closed", "no GPU", "given away", "nouveau"],
)
def test_what_waits_for_a_reboot_is_said(host: dict[str, Any], waits: list[str]) -> None:
    assert list(driver_check.pending(host, VERSION, "open")) == waits


def test_driver_of_others_only_has_to_be_loaded() -> None:
    assert driver_check.pending(hosts.machine(loaded="570.86.15", loaded_kind="closed"), "", "") == ()
    assert driver_check.pending(hosts.machine(), "", "") == ("the kernel module of the driver is not loaded",)


def running(host: dict[str, Any], before: Kernels | None = None, text: str | None = DKMS_3) -> None:
    status = None if text is None else dkms_status.parse(text)
    driver_check.check_running(host, VERSION, "open", status, before or Kernels())


def test_driver_runs_after_the_reboot() -> None:
    running(hosts.machine(loaded=VERSION), Kernels("6.1.0-39-amd64", KERNEL))
    running(hosts.machine(loaded=VERSION), Kernels(KERNEL, ""))
    running(hosts.machine(loaded=VERSION), text=None)


def test_other_kernel_after_the_reboot_fails_with_both() -> None:
    told = fails(running, hosts.machine(loaded=VERSION), Kernels("6.1.0-39-amd64", "6.1.0-41-amd64"))
    assert "kernel 6.1.0-40-amd64 runs, expected was 6.1.0-41-amd64" in told


def test_wrong_module_after_the_reboot_fails() -> None:
    assert "580.82.07 (open) is loaded" in fails(running, hosts.machine(loaded="580.82.07"))
    assert "(closed) is loaded" in fails(running, hosts.machine(loaded=VERSION, loaded_kind="closed"))
    assert "is not loaded" in fails(running, hosts.machine())


def test_running_kernel_without_module_fails_after_the_reboot() -> None:
    assert "6.1.0-42-amd64: not built" in fails(running, hosts.machine(kernel="6.1.0-42-amd64", loaded=VERSION))


def test_container_with_other_libraries_fails_with_both_versions() -> None:
    told = fails(
        driver_check.check_libraries, VERSION, {"libcuda1": "1:580.82.07-1", "libnvidia-ml1": "580.82.07-1"}, True
    )
    assert "580.82.07 is installed" in told
    assert "580.95.05 loaded" in told
    assert "no version is installed" in fails(driver_check.check_libraries, VERSION, {}, True)
    driver_check.check_libraries(VERSION, {}, False)


def test_initial_ram_disk_is_due_when_one_is_older_than_our_file() -> None:
    assert driver_check.initramfs_due(10.0, [11.0, 9.0]) is True
    assert driver_check.initramfs_due(10.0, [11.0, 10.0]) is False
    assert driver_check.initramfs_due(None, [1.0]) is False
    assert driver_check.initramfs_due(10.0, []) is False
