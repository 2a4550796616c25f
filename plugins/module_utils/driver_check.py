# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the driver that was asked for is the one that is there: built, loaded, or waiting for a reboot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import dkms_status
from ansible_collections.tokforge.sglang.plugins.module_utils.driver_packages import upstream
from ansible_collections.tokforge.sglang.plugins.module_utils.driver_plan import DriverError, drivable


@dataclass(frozen=True)
class Kernels:
    """The running and the next kernel, as they were before the driver was installed. Empty: not known."""

    running: str = ""
    following: str = ""


def kernels_of(host: Mapping[str, Any]) -> tuple[str, ...]:
    """The kernels that need the module: the running one, and the one that starts next when that is told."""
    return tuple(dict.fromkeys(name for name in (host["kernel"], host["next_kernel"]) if name))


def check_built(host: Mapping[str, Any], version: str, status: Iterable[dkms_status.Built], before: Kernels) -> None:
    """That DKMS has the module for all kernels that need it, and that these are the same as before. Raises
    DriverError."""
    check_next(host, before)
    lacking = dkms_status.missing(status, version, kernels_of(host))
    if lacking:
        told = "; ".join(f"{kernel}: {state}" for kernel, state in lacking.items())
        raise DriverError(
            f"checking the kernel module of {version}: DKMS has none for {told}; read "
            f"/var/lib/dkms/nvidia/{version}/build/make.log, install the headers of that kernel and run "
            f"dkms install nvidia/{version} -k {next(iter(lacking))}",
            missing=lacking,
        )


def check_next(host: Mapping[str, Any], before: Kernels) -> None:
    """That the same kernel starts next as before the driver was installed. Raises DriverError."""
    if before.following and host["next_kernel"] and before.following != host["next_kernel"]:
        raise DriverError(
            f"checking the kernel: {before.following} was to start next before the driver was installed and now it is "
            f"{host['next_kernel']}; the driver must not change the kernel, put the boot entry back before a reboot",
            before=before.following,
            next_kernel=host["next_kernel"],
        )


def pending(host: Mapping[str, Any], version: str, kind: str) -> tuple[str, ...]:
    """What waits for a reboot of a machine, a sentence each; empty when the module that is asked for runs.

    :param version: empty when none is asked for.
    :param kind: open or closed, empty for either.
    """
    driver = host["driver"]
    waits = []
    if driver["nouveau_loaded"]:
        waits.append("nouveau is loaded and has the GPUs until the machine is started anew")
    loaded = driver["loaded_version"]
    if not loaded and not drivable(host):
        # The module refuses to be loaded where no GPU is for it, and a reboot changes nothing about that.
        return tuple(waits)
    if not loaded:
        waits.append(f"the kernel module of {version or 'the driver'} is not loaded")
    elif (version and loaded != version) or (kind and driver["loaded_kind"] != kind):
        waits.append(
            f"the kernel module of {loaded} ({driver['loaded_kind']}) is loaded, asked for is {version or loaded}"
            + (f" ({kind})" if kind else "")
        )
    return tuple(waits)


def check_running(
    host: Mapping[str, Any], version: str, kind: str, status: Iterable[dkms_status.Built] | None, before: Kernels
) -> None:
    """That after a reboot the kernel is the expected one and runs the module that is asked for. Raises DriverError.

    :param status: what DKMS tells, None where the module is not DKMS's.
    """
    expected = before.following or before.running
    if expected and host["kernel"] != expected:
        raise DriverError(
            f"checking the driver after the reboot: kernel {host['kernel']} runs, expected was {expected}, which the "
            "driver was built for; choose that one in the boot loader, or run the role again for this one",
            kernel=host["kernel"],
            expected=expected,
        )
    if status is not None:
        check_built(host, version, status, Kernels())
    waits = pending(host, version, kind)
    if waits:
        raise DriverError(
            f"checking the driver after the reboot: {_joined(waits)}; look at dmesg for NVRM and nouveau, and at "
            "lsinitramfs for modules of another version",
            loaded_version=host["driver"]["loaded_version"],
            loaded_kind=host["driver"]["loaded_kind"],
            version=version,
            kernel_module=kind,
        )


def check_libraries(version: str, packages: Mapping[str, str], lacking: bool) -> None:
    """That a container's libraries are of the version that its machine has loaded. Raises DriverError.

    :param packages: those of another version, with it.
    :param lacking: whether libraries are missing.
    """
    if not packages and not lacking:
        return
    found = ", ".join(sorted({upstream(one) for one in packages.values()})) or "no version"
    raise DriverError(
        f"checking the driver's libraries: {found} is installed and the machine of this container has the module "
        f"of {version} loaded; run the role here, which installs exactly that version",
        packages=dict(packages),
        version=version,
    )


def initramfs_due(written: float | None, images: Sequence[float]) -> bool:
    """Whether an initial RAM disk is older than our modprobe file; times in seconds, None without the file.

    Told by times and not by whether the file was just written, so that a run that was killed between the two is
    finished by the next one.
    """
    return written is not None and any(image < written for image in images)


def _joined(sentences: Iterable[str]) -> str:
    return "; ".join(sentences)
