# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import apt_outputs as outputs
import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import apt_simulation, driver_packages
from ansible_collections.tokforge.sglang.plugins.module_utils.apt_simulation import Change, SimulationError


def test_upgrade_is_read_with_versions_before_and_after() -> None:
    found = apt_simulation.parse(outputs.UPGRADE)
    assert found.upgrades[0] == Change("libcuda1", "580.105.08-1", "580.95.05-1")
    assert [one.name for one in found.upgrades] == ["libcuda1", "libnvidia-ptxjitcompiler1", "nvidia-driver-cuda"]
    assert (found.installs, found.removes, found.downgraded, found.changes) == ((), (), (), True)


def test_downgrade_is_told_apart_and_removal_is_read() -> None:
    found = apt_simulation.parse(outputs.DOWNGRADE)
    assert found.downgraded == ("libcuda1", "libnvidia-ptxjitcompiler1")
    assert found.removes == (Change("nvidia-modprobe", "", "580.105.08-1"),)
    assert apt_simulation.parse(outputs.PURGE).removes == (Change("libcuda1", "", "580.105.08-1"),)


def test_configuration_that_alone_is_left_is_removed_too() -> None:
    text = outputs.PURGE.replace("Purg libcuda1 [580.105.08-1]", "Purg libcuda1")
    assert apt_simulation.parse(text).removes == (Change("libcuda1", "", ""),)


def test_what_is_only_to_be_configured_is_told_apart() -> None:
    text = outputs.NOTHING + "1 not fully installed or removed.\nConf libcuda1 (580.95.05-1 x:localhost [amd64])\n"
    found = apt_simulation.parse(text)
    assert (found.unfinished, found.changes) == (("libcuda1",), False)
    assert apt_simulation.parse(outputs.UPGRADE).unfinished == ()


def test_origin_may_have_parentheses() -> None:
    text = outputs.UPGRADE.replace("NVIDIA CUDA:localhost", "NVIDIA (mirror):localhost")
    assert apt_simulation.parse(text).upgrades[0] == Change("libcuda1", "580.105.08-1", "580.95.05-1")


def test_several_origins_do_not_confuse_the_version() -> None:
    assert apt_simulation.parse(outputs.WITH_KERNEL).installs[1] == Change("linux-image-amd64", "6.1.158-1", "")


def test_nothing_to_do_is_no_change() -> None:
    assert apt_simulation.parse(outputs.NOTHING).changes is False


@pytest.mark.parametrize(
    "text",
    [
        "",
        outputs.UPGRADE.replace("3 upgraded", "4 upgraded"),
        outputs.UPGRADE.replace("Inst libcuda1", "Inst: libcuda1"),
        outputs.UPGRADE.replace(
            "Inst libcuda1 [580.95.05-1] (580.105.08-1 NVIDIA CUDA:localhost [amd64]) []", "Inst x"
        ),
        outputs.PURGE.replace("Purg libcuda1 [580.105.08-1]", "Purg "),
    ],
    ids=["empty", "count differs", "unknown word", "no version", "no name removed"],
)
def test_simulation_that_is_not_understood_is_an_error(text: str) -> None:
    with pytest.raises(SimulationError, match="run apt-get -s by hand"):
        apt_simulation.parse(text)


def test_reason_is_what_apt_says_and_nothing_of_its_guesses() -> None:
    assert apt_simulation.reason(outputs.NO_HEADERS_ERRORS) == "E: Unable to locate package linux-headers-6.1.0-1-amd64"
    told = apt_simulation.reason(outputs.UNMET + outputs.UNMET_ERRORS)
    assert told.startswith("nvidia-kernel-open-dkms : Depends: nvidia-kernel-support (= 580.95.05-1)")
    assert told.endswith("you have held broken packages.")
    assert apt_simulation.reason("") == "apt says no reason"


def test_kernel_in_a_transaction_is_refused_by_name() -> None:
    found = apt_simulation.parse(outputs.WITH_KERNEL)
    with pytest.raises(SimulationError) as raised:
        apt_simulation.refuse(found, ["kernel", "other_removal"], ["nvidia-driver-cuda=580.95.05-*"])
    assert "change the kernel (linux-image-6.1.0-41-amd64, linux-image-amd64)" in str(raised.value)
    assert raised.value.facts["refused"] == {"kernel": ["linux-image-6.1.0-41-amd64", "linux-image-amd64"]}
    assert raised.value.facts["installs"][0]["version"] == "6.1.158-1"


def test_removed_kernel_is_refused_too() -> None:
    found = apt_simulation.parse(outputs.purging("proxmox-kernel-6.8.12-4-pve-signed"))
    assert apt_simulation.refused(found, ["kernel"]) == {"kernel": ["proxmox-kernel-6.8.12-4-pve-signed"]}


def test_kernel_modules_are_refused_where_they_come_and_not_where_they_go() -> None:
    coming = apt_simulation.parse(outputs.installing("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "dkms"))
    assert apt_simulation.refused(coming, ["kernel", "kernel_module"]) == {
        "kernel_module": ["nvidia-kernel-open-dkms", "dkms"]
    }
    going = apt_simulation.parse(outputs.purging("nvidia-kernel-open-dkms"))
    assert apt_simulation.refused(going, ["kernel_module"]) == {}


def test_driver_is_refused_for_those_that_must_not_touch_it() -> None:
    found = apt_simulation.parse(outputs.DOWNGRADE)
    assert apt_simulation.refused(found, ["driver"])["driver"] == [
        "libcuda1",
        "libnvidia-ptxjitcompiler1",
        "nvidia-modprobe",
    ]
    toolkit = apt_simulation.parse(outputs.installing("cuda-toolkit-13-0", "cuda-nvcc-13-0", "libcublas-13-0"))
    assert apt_simulation.refused(toolkit, apt_simulation.CLASSES) == {}


def test_only_the_driver_may_be_removed() -> None:
    found = apt_simulation.parse(outputs.purging("libcuda1", "openssh-server"))
    assert apt_simulation.refused(found, ["other_removal"]) == {"other_removal": ["openssh-server"]}


@pytest.mark.parametrize(
    "name",
    [
        "linux-image-6.1.0-41-amd64",
        "linux-image-cloud-amd64",
        "linux-image-generic",
        "linux-modules-6.8.0-85-generic",
        "linux-modules-extra-6.8.0-85-generic",
        "linux-generic-hwe-24.04",
        "linux-aws",
        "linux-nvidia-hwe-24.04",
        "proxmox-kernel-6.8",
        "proxmox-kernel-6.8.12-4-pve-signed",
        "proxmox-default-kernel",
        "pve-kernel-6.2.16-20-pve",
        "linux-image-6.1.0-41-amd64:amd64",
    ],
)
def test_kernel_is_known_by_its_name(name: str) -> None:
    assert driver_packages.is_kernel(name)
    assert not driver_packages.is_module(name)


@pytest.mark.parametrize(
    "name",
    [
        "linux-headers-6.1.0-41-amd64",
        "proxmox-headers-6.8.12-4-pve",
        "proxmox-default-headers",
        "linux-aws-headers-6.8.0-1019",
        "linux-modules-nvidia-580-open-6.8.0-85-generic",
        "linux-objects-nvidia-580-6.8.0-85-generic",
        "linux-signatures-nvidia-6.8.0-85-generic",
        "nvidia-dkms-580-open",
        "nvidia-kernel-dkms",
        "nvidia-kernel-source-580-open",
        "nvidia-fs-dkms",
        "dkms",
    ],
)
def test_what_builds_modules_is_no_kernel(name: str) -> None:
    assert driver_packages.is_module(name)
    assert not driver_packages.is_kernel(name)


@pytest.mark.parametrize(
    "name",
    [
        "linux-libc-dev",
        "linux-base",
        "linux-kbuild-6.1",
        "linux-tools-common",
        "proxmox-kernel-helper",
        "linux-firmware",
    ],
)
def test_what_only_sounds_like_a_kernel_is_none(name: str) -> None:
    assert not driver_packages.is_kernel(name)
    assert not driver_packages.is_module(name)


@pytest.mark.parametrize(
    ("name", "driver"),
    [
        ("libcuda1:i386", True),
        ("nvidia-driver-cuda", True),
        ("libnvidia-compute-580", True),
        ("firmware-nvidia-gsp", True),
        ("nvidia-container-toolkit", False),
        ("libnvidia-container1", False),
        ("nvidia-cuda-toolkit", False),
        ("cuda-toolkit-13-0", False),
        ("libcudart12", False),
        ("linux-image-amd64", False),
    ],
)
def test_driver_is_known_by_its_name(name: str, driver: bool) -> None:
    assert driver_packages.is_driver(name) is driver


def test_driver_version_is_found_in_a_packages_version() -> None:
    found = [
        driver_packages.upstream(one) for one in ("580.95.05-1", "1:580.95.05-0ubuntu1", "580.126.09-1ubuntu1", "x")
    ]
    assert found == ["580.95.05", "580.95.05", "580.126.09", "x"]


def test_pins_and_blacklist_name_the_driver() -> None:
    pins = driver_packages.preferences("580.95.05").splitlines()
    assert pins[2:] == ["Pin: version 580.95.05-*", "Pin-Priority: 1001"]
    assert {"libcuda1*", "nvidia-*", "libnvidia-*", "firmware-nvidia-gsp*"} <= set(pins[1].split()[1:])
    assert '    "libnvidia-";\n' in driver_packages.unattended_blacklist()
