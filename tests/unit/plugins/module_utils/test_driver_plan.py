# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace
from typing import Any

import driver_hosts as hosts
import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import driver_plan
from ansible_collections.tokforge.sglang.plugins.module_utils.driver_plan import Asked, DriverError, Found, Plan

ASKED = Asked("580.95.05")
MACHINE = {
    "nvidia-kernel-open-dkms": "580.95.05-1",
    "nvidia-driver-cuda": "580.95.05-1",
    "libcuda1": "580.95.05-1",
    "nvidia-modprobe": "580.95.05-1",
}


def decide(host: dict[str, Any], asked: Asked = ASKED, packages: dict[str, str] | None = None, run: str = "") -> Plan:
    return driver_plan.decide(host, asked, Found(packages or {}, run))


def refused(host: dict[str, Any], asked: Asked = ASKED, packages: dict[str, str] | None = None, run: str = "") -> str:
    with pytest.raises(DriverError) as raised:
        decide(host, asked, packages, run)
    return str(raised.value)


@pytest.mark.parametrize(
    ("system", "kernel", "directory", "packages"),
    [
        (("debian", "12"), "6.1.0-40-amd64", "debian12", ["nvidia-kernel-open-dkms", "nvidia-driver-cuda"]),
        (("debian", "13"), "6.12.48+deb13-amd64", "debian13", ["nvidia-kernel-open-dkms", "nvidia-driver-cuda"]),
        (("debian", "12"), "6.8.12-4-pve", "debian12", ["nvidia-kernel-open-dkms", "nvidia-driver-cuda"]),
        (("debian", "13"), "6.14.8-2-pve", "debian13", ["nvidia-kernel-open-dkms", "nvidia-driver-cuda"]),
        (
            ("ubuntu", "22.04"),
            "5.15.0-157-generic",
            "ubuntu2204",
            [
                "nvidia-dkms-580-open",
                "libnvidia-compute-580",
                "nvidia-utils-580",
                "nvidia-compute-utils-580",
                "nvidia-modprobe",
            ],
        ),
        (
            ("ubuntu", "24.04"),
            "6.8.0-85-generic",
            "ubuntu2404",
            [
                "nvidia-dkms-580-open",
                "libnvidia-compute-580",
                "nvidia-utils-580",
                "nvidia-compute-utils-580",
                "nvidia-modprobe",
            ],
        ),
    ],
    ids=["debian 12", "debian 13", "proxmox 8", "proxmox 9", "ubuntu 22.04", "ubuntu 24.04"],
)
def test_each_distribution_has_its_repository_and_packages_at_the_exact_version(
    system: tuple[str, str], kernel: str, directory: str, packages: list[str]
) -> None:
    plan = decide(hosts.machine(system, kernel))
    assert plan.packages == tuple(f"{name}=580.95.05-*" for name in packages)
    assert plan.repository_url == f"https://developer.download.nvidia.com/compute/cuda/repos/{directory}/x86_64/"
    assert (plan.kernel_module, plan.container, plan.changes, plan.skipped) == ("open", False, True, ())


def test_ubuntu_packages_lose_their_branch_from_590_on() -> None:
    plan = decide(hosts.machine(("ubuntu", "24.04")), Asked("590.48.01"))
    assert plan.packages[:2] == ("nvidia-dkms-open=590.48.01-*", "libnvidia-compute=590.48.01-*")


def test_arm_machine_has_the_repository_for_servers() -> None:
    plan = decide(hosts.machine(("ubuntu", "24.04")), replace(ASKED, architecture="aarch64"))
    assert plan.repository_url.endswith("/ubuntu2404/sbsa/")
    assert "riscv64" in refused(hosts.machine(), replace(ASKED, architecture="riscv64"))


def test_distribution_without_repository_is_refused_and_told_which_have_one() -> None:
    told = refused(hosts.machine(("debian", "11")))
    assert "debian 11" in told
    assert "debian 12, debian 13, ubuntu 22.04, ubuntu 24.04" in told
    assert "runfile" in told


def test_debian_13_has_another_key() -> None:
    first, second = (decide(hosts.machine(("debian", one))).repository for one in ("12", "13"))
    assert first is not None
    assert second is not None
    assert (first.key_file, first.fingerprint) == ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC")
    assert (second.key_file, second.fingerprint) == ("8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200")


def test_closed_module_is_refused_on_blackwell_and_names_the_gpus() -> None:
    told = refused(hosts.machine(), replace(ASKED, kernel_module="closed"))
    assert "0000:01:00.0, 0000:02:00.0" in told
    assert "only work with the open one" in told


def test_installed_closed_module_goes_when_blackwell_needs_the_open_one() -> None:
    host = hosts.machine(loaded="580.95.05", loaded_kind="closed")
    installed = {"nvidia-kernel-dkms": "580.95.05-1", "nvidia-driver-cuda": "580.95.05-1"}
    plan = decide(host, packages=installed)
    assert (plan.kernel_module, plan.remove, plan.changes) == ("open", ("nvidia-kernel-dkms",), True)


@pytest.mark.parametrize("package", ["nvidia-dkms-580", "nvidia-dkms-570", "nvidia-dkms", "nvidia-dkms-580-server"])
def test_closed_module_of_any_branch_goes_on_ubuntu(package: str) -> None:
    plan = decide(hosts.machine(("ubuntu", "24.04")), packages={package: "570.1-0ubuntu1"})
    assert plan.remove == (package,)


@pytest.mark.parametrize("package", ["nvidia-open-kernel-dkms", "nvidia-kernel-dkms", "nvidia-tesla-470-kernel-dkms"])
def test_kernel_module_of_debians_own_packages_goes(package: str) -> None:
    plan = decide(hosts.machine(), packages={package: "535.247.01-1~deb12u1", "libcuda1": "535.247.01-1~deb12u1"})
    assert (plan.remove, plan.also) == ((package,), ("libcuda1=580.95.05-*",))


def test_kernel_module_of_another_branch_goes_on_ubuntu() -> None:
    plan = decide(hosts.machine(("ubuntu", "24.04")), packages={"nvidia-dkms-570-open": "570.1.1-0ubuntu1"})
    assert plan.remove == ("nvidia-dkms-570-open",)


def test_closed_module_stays_where_it_is_asked_for_and_works() -> None:
    host = hosts.machine(gpus=[hosts.gpu(1, hosts.H200)])
    plan = decide(host, replace(ASKED, kernel_module="closed"), {"nvidia-kernel-dkms": "580.95.05-1"})
    assert plan.packages[0] == "nvidia-kernel-dkms=580.95.05-*"
    assert plan.remove == ()


@pytest.mark.parametrize(
    ("models", "asked", "kind"),
    [
        ([hosts.H200], "auto", "open"),
        ([hosts.V100], "auto", "closed"),
        ([hosts.V100, hosts.H200], "auto", "closed"),
        ([hosts.H200], "closed", "closed"),
        ([], "auto", "open"),
        ([hosts.NEW], "auto", "open"),
    ],
)
def test_kernel_module_is_open_where_all_gpus_can(models: list[Any], asked: str, kind: str) -> None:
    host = hosts.machine(gpus=[hosts.gpu(number, model) for number, model in enumerate(models, 1)])
    assert decide(host, replace(ASKED, kernel_module=asked)).kernel_module == kind


def test_open_module_is_refused_on_gpus_before_turing() -> None:
    host = hosts.machine(gpus=[hosts.gpu(7, hosts.V100)])
    assert "0000:07:00.0 are older than Turing" in refused(host, replace(ASKED, kernel_module="open"))


def test_machine_with_gpus_that_need_different_modules_is_refused() -> None:
    told = refused(hosts.machine(gpus=[hosts.gpu(1, hosts.PRO_6000), hosts.gpu(2, hosts.V100)]))
    assert "0000:01:00.0 need the open one and 0000:02:00.0 cannot use it" in told


def test_gpu_that_is_given_to_a_virtual_machine_does_not_count() -> None:
    mixed = [hosts.gpu(1, hosts.PRO_6000), hosts.gpu(2, hosts.V100, "vfio-pci")]
    assert decide(hosts.machine(gpus=mixed)).kernel_module == "open"
    mixed = [hosts.gpu(1, hosts.PRO_6000, "vfio-pci"), hosts.gpu(2, hosts.V100)]
    assert decide(hosts.machine(gpus=mixed)).kernel_module == "closed"


def test_branch_that_no_longer_knows_gpus_before_turing_is_refused() -> None:
    old = hosts.machine(gpus=[hosts.gpu(1, hosts.V100)])
    assert "590.44.01 no longer knows 0000:01:00.0" in refused(old, Asked("590.44.01"))
    assert decide(old, Asked("580.95.05")).kernel_module == "closed"


def test_next_kernel_that_cannot_be_told_is_a_warning() -> None:
    assert decide(hosts.machine()).warnings == ()
    unclear = hosts.machine(following="")
    unclear["next_kernel_why"] = "GRUB_DEFAULT in /etc/default/grub is '2', which names no kernel in /boot"
    assert decide(unclear).warnings == (
        "which kernel starts next cannot be told (GRUB_DEFAULT in /etc/default/grub is '2', which names no kernel in "
        f"/boot), so only for the running one, {unclear['kernel']}, headers and module are checked; have the boot "
        "loader's setting name the kernel, or run gpu_driver with tasks_from verify after a reboot",
    )


def test_run_file_with_the_other_kernel_module_is_run_again() -> None:
    asked = replace(ASKED, source="runfile")
    closed = driver_plan.decide(hosts.machine(), asked, Found(runfile="580.95.05", runfile_kind="closed"))
    assert (closed.kernel_module, closed.changes) == ("open", True)
    assert not driver_plan.decide(hosts.machine(), asked, Found(runfile="580.95.05", runfile_kind="open")).changes
    assert not driver_plan.decide(hosts.container(), asked, Found(runfile="580.95.05", runfile_kind="closed")).changes


def test_branch_that_does_not_know_blackwell_is_refused() -> None:
    assert "570 or newer" in refused(hosts.machine(), Asked("565.57.01"))


def test_branch_without_open_module_is_closed_or_refused() -> None:
    host = hosts.machine(gpus=[hosts.gpu(1, hosts.H200)])
    assert decide(host, Asked("470.256.02")).kernel_module == "closed"
    assert "515 or newer" in refused(host, Asked("470.256.02", kernel_module="open"))


@pytest.mark.parametrize("version", ["580", "580.95.05-1", "latest", "v580.95.05", "580.95.05; reboot"])
def test_version_must_be_exact(version: str) -> None:
    assert repr(version) in refused(hosts.machine(), Asked(version))


def test_machine_needs_a_version() -> None:
    assert "no version is given" in refused(hosts.machine(), Asked())


def test_missing_headers_are_installed_or_named() -> None:
    host = hosts.machine(
        kernel="6.8.12-4-pve", following="6.8.12-5-pve", headers={"6.8.12-4-pve": True, "6.8.12-5-pve": False}
    )
    assert decide(host).headers == ("proxmox-headers-6.8.12-5-pve",)
    told = refused(host, replace(ASKED, install_headers=False))
    assert "those of 6.8.12-5-pve are missing, package proxmox-headers-6.8.12-5-pve" in told
    assert "6.8.12-4-pve are missing" not in told


def test_installed_driver_at_the_asked_version_changes_nothing() -> None:
    plan = decide(hosts.machine(loaded="580.95.05"), packages=MACHINE)
    assert (plan.changes, plan.other_versions, plan.remove, plan.headers) == (False, {}, (), ())


def test_another_version_installed_is_an_upgrade() -> None:
    plan = decide(hosts.machine(loaded="580.82.07"), packages={**MACHINE, "libcuda1": "580.82.07-1"})
    assert (plan.changes, plan.other_versions) == (True, {"libcuda1": "580.82.07-1"})


def test_packages_that_nvidia_versions_otherwise_are_no_upgrade() -> None:
    plan = decide(hosts.machine(), packages={**MACHINE, "nvidia-driver-pinning-580": "580-3"})
    assert plan.changes is False


def test_container_gets_libraries_of_its_machines_version_and_no_kernel_module() -> None:
    plan = decide(hosts.container(), Asked())
    assert (plan.version, plan.packages) == ("580.95.05", ("nvidia-driver-cuda=580.95.05-*",))
    assert (plan.container, plan.kernel_module, plan.headers, plan.remove) == (True, "", (), ())
    assert plan.skipped[0]["why"] == "this is a container, its machine has the kernel"
    assert decide(hosts.container(system=("ubuntu", "24.04")), Asked()).packages == (
        "libnvidia-compute-580=580.95.05-*",
        "nvidia-utils-580=580.95.05-*",
    )


def test_container_with_another_version_than_its_machine_is_refused_with_both() -> None:
    told = refused(hosts.container("580.95.05"), Asked("580.82.07"))
    assert "580.82.07 is asked for" in told
    assert "580.95.05 loaded" in told


def test_libraries_of_another_version_in_a_container_are_changed_to_its_machines() -> None:
    plan = decide(hosts.container(), Asked(), {"nvidia-driver-cuda": "580.82.07-1"})
    assert (plan.version, plan.changes) == ("580.95.05", True)
    assert plan.other_versions == {"nvidia-driver-cuda": "580.82.07-1"}


def test_container_that_sees_no_module_needs_a_version() -> None:
    assert "/proc/driver/nvidia/version" in refused(hosts.container(""), Asked())
    assert decide(hosts.container(""), ASKED).version == "580.95.05"


def test_kernel_module_packages_in_a_container_are_a_warning() -> None:
    plan = decide(hosts.container(), Asked(), {**MACHINE})
    assert plan.warnings == (
        "nvidia-kernel-open-dkms build kernel modules, which a container has no use for; remove them",
    )


def test_sources_are_not_mixed() -> None:
    assert "a .run file has installed 570.86.15" in refused(hosts.machine(), run="570.86.15")
    told = refused(hosts.machine(), replace(ASKED, source="runfile"), MACHINE)
    assert "libcuda1, nvidia-driver-cuda" in told


def test_run_file_has_arguments_for_its_branch_and_for_containers() -> None:
    asked = replace(ASKED, source="runfile")
    plan = decide(hosts.machine(("fedora", "43")), asked)
    assert driver_plan.runfile_arguments(plan)[-1] == "--kernel-module-type=open"
    assert "--dkms" in driver_plan.runfile_arguments(plan)
    older = decide(hosts.machine(gpus=[hosts.gpu(1, hosts.H200)]), replace(asked, version="550.144.03"))
    assert driver_plan.runfile_arguments(older)[-1] == "-m=kernel-open"
    inside = driver_plan.runfile_arguments(decide(hosts.container(), replace(asked, version="")))
    assert "--no-kernel-modules" in inside
    assert "--dkms" not in inside
    assert driver_plan.runfile_arguments(decide(hosts.machine())) == ()


def test_installed_run_file_at_the_version_changes_nothing() -> None:
    assert decide(hosts.machine(), replace(ASKED, source="runfile"), run="580.95.05").changes is False
    assert decide(hosts.machine(), replace(ASKED, source="runfile"), run="580.82.07").changes is True


def test_source_none_says_so_and_plans_nothing() -> None:
    plan = decide(hosts.machine(("debian", "11")), Asked(source="none"))
    assert (plan.packages, plan.changes, plan.kernel_module) == ((), False, "")
    assert plan.skipped == ({"what": "installing the driver", "why": "gpu_driver_source is none"},)


def test_gpus_that_are_missing_given_away_or_unknown_are_warnings() -> None:
    assert "no NVIDIA GPU" in decide(hosts.machine(gpus=[])).warnings[0]
    given = decide(hosts.machine(gpus=[hosts.gpu(3, hosts.PRO_6000, "vfio-pci"), hosts.gpu(4, hosts.NEW)])).warnings
    assert [text.split(" ")[0] for text in given] == ["0000:03:00.0", "0000:04:00.0"]
