# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which driver a host is to have and what has to be done for it, decided before anything is changed.

A machine gets kernel modules and libraries, a container only libraries, of the version that its machine has loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import driver_packages
from ansible_collections.tokforge.sglang.plugins.module_utils.cuda_driver import branch_of
from ansible_collections.tokforge.sglang.plugins.module_utils.driver_packages import CLOSED, OPEN
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

REPOSITORY = "repository"
RUNFILE = "runfile"
NONE = "none"

#: First branch whose .run file knows --kernel-module-type.
_MODULE_TYPE_FROM = 560

_VERSION = re.compile(r"[0-9]{3,4}\.[0-9]{1,3}(\.[0-9]{1,3})?")


class DriverError(HostError):
    """The host cannot have the driver that is asked for; the text says what to do."""


@dataclass(frozen=True)
class Asked:
    """What the user asks for.

    :param version: exact, as 580.95.05; may be empty in a container and with source NONE.
    :param kernel_module: auto, open or closed.
    :param install_headers: whether missing headers may be installed.
    """

    version: str = ""
    source: str = REPOSITORY
    kernel_module: str = "auto"
    install_headers: bool = True
    architecture: str = "x86_64"


@dataclass(frozen=True)
class Found:
    """What is on the host beside what `host_info` tells.

    :param packages: installed packages of the driver with their versions.
    :param runfile: version of a driver that a .run file installed, empty for none.
    :param runfile_kind: open or closed, what its kernel module is; empty when that cannot be told.
    """

    packages: Mapping[str, str] = field(default_factory=dict)
    runfile: str = ""
    runfile_kind: str = ""


@dataclass(frozen=True)
class Plan:
    """What is to be done."""

    version: str
    container: bool
    source: str
    #: open or closed; empty in a container and when nothing is installed.
    kernel_module: str = ""
    #: Packages to ask for by name, each with the glob of its version.
    packages: tuple[str, ...] = ()
    #: Installed packages of another version, each with the glob of the asked one. Nothing makes apt change them, since
    #: packages depend on each other without versions; one of another branch may not exist in this version.
    also: tuple[str, ...] = ()
    #: Installed packages with another kernel module, of the other kind, branch or maker, which must go.
    remove: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    repository: driver_packages.Repository | None = None
    repository_url: str = ""
    #: Whether packages, or what a .run file installs, are not as asked yet.
    changes: bool = False
    #: Driver packages that are installed at another version than asked.
    other_versions: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    skipped: tuple[dict[str, str], ...] = ()


def decide(host: Mapping[str, Any], asked: Asked, found: Found) -> Plan:
    """The plan for a host as `host_info` tells it. Raises DriverError."""
    container = host["kind"] == "container"
    version = _version(host, asked, container)
    branch = branch_of(version) or 0
    kind = "" if container or asked.source == NONE else _kernel_module(drivable(host), asked.kernel_module, version)
    warnings = (*_gpu_warnings(host["gpus"]), *_kernel_warnings(host)) if not container else ()
    skipped = _skipped(host["kind"], asked.source)
    if asked.source == NONE:
        return Plan(version, container, NONE, warnings=warnings, skipped=skipped)
    headers = () if container else _headers(host["headers"], asked.install_headers)
    _one_source(asked.source, found)
    if asked.source == RUNFILE:
        return Plan(
            version,
            container,
            RUNFILE,
            kind,
            headers=headers,
            changes=found.runfile != version or (bool(kind and found.runfile_kind) and found.runfile_kind != kind),
            warnings=warnings,
            skipped=skipped,
        )
    repository = repository_for(host, asked.architecture)
    names = driver_packages.names(repository.family, branch, kind, container)
    installed = {driver_packages.bare(name): is_at for name, is_at in found.packages.items()}
    if container:
        warnings += _modules_in_container(installed)
    remove = () if container else _wrong_modules(installed, repository.family, names)
    other = {
        name: is_at
        for name, is_at in sorted(installed.items())
        if driver_packages.upstream(is_at) != version and branch_of(is_at) is not None
    }
    return Plan(
        version,
        container,
        REPOSITORY,
        kind,
        packages=tuple(f"{name}={driver_packages.pin(version)}" for name in names),
        also=tuple(
            f"{name}={driver_packages.pin(version)}" for name in other if name not in names and name not in remove
        ),
        remove=remove,
        headers=headers,
        repository=repository,
        repository_url=repository.url(asked.architecture),
        changes=bool(remove or other) or any(name not in installed for name in names),
        other_versions=other,
        warnings=warnings,
        skipped=skipped,
    )


def runfile_arguments(plan: Plan) -> tuple[str, ...]:
    """Arguments of the .run file (its own --advanced-options; --kernel-module-type is there from 560 on).

    Before that a .run file chose by `-m=kernel-open`. Libraries of 32 bits are of no use to a server.
    """
    if plan.source != RUNFILE:
        return ()
    common = ("--silent", "--no-install-compat32-libs", "--no-x-check")
    if plan.container:
        return (*common, "--no-kernel-modules")
    if (branch_of(plan.version) or 0) >= _MODULE_TYPE_FROM:
        kind = "--kernel-module-type=" + ("open" if plan.kernel_module == OPEN else "proprietary")
    else:
        kind = "-m=" + ("kernel-open" if plan.kernel_module == OPEN else "kernel")
    return (*common, "--dkms", "--no-nouveau-check", kind)


def _version(host: Mapping[str, Any], asked: Asked, container: bool) -> str:
    loaded = host["driver"]["loaded_version"]
    if asked.version and not _VERSION.fullmatch(asked.version):
        raise DriverError(
            f"choosing the driver: {asked.version!r} is no version of NVIDIA's driver; give all of it, as 580.95.05",
            version=asked.version,
        )
    if not container:
        if not asked.version and asked.source != NONE:
            raise DriverError("choosing the driver: no version is given; set gpu_driver_version, as 580.95.05")
        return asked.version
    if asked.version and loaded and asked.version != loaded:
        # Libraries of another version than the module answer "Driver/library version mismatch".
        raise DriverError(
            f"choosing the driver's libraries: {asked.version} is asked for and the machine of this container has the "
            f"kernel module of {loaded} loaded; leave gpu_driver_version out here, or bring the machine to "
            f"{asked.version} first",
            version=asked.version,
            loaded_version=loaded,
        )
    if not asked.version and not loaded and asked.source != NONE:
        raise DriverError(
            "choosing the driver's libraries: this container does not see /proc/driver/nvidia/version, so its machine "
            "has no NVIDIA kernel module loaded; load the driver on the machine first, or set gpu_driver_version to "
            "what it will have"
        )
    return asked.version or str(loaded)


def drivable(host: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The GPUs that NVIDIA's driver can have here: not those that are given to virtual machines."""
    return [gpu for gpu in host["gpus"] if gpu["driver"] != "vfio-pci"]


def _kernel_module(gpus: list[Mapping[str, Any]], asked: str, version: str) -> str:
    """Open or closed, as the GPUs allow (NVIDIA driver README, chapter Open Linux Kernel Modules)."""
    branch = branch_of(version) or 0
    need = [gpu["address"] for gpu in gpus if gpu["needs_open_module"]]
    cannot = [gpu["address"] for gpu in gpus if not gpu["can_open_module"] and gpu["architecture"] != "unknown"]
    blackwell = [gpu["address"] for gpu in gpus if gpu["architecture"] == "blackwell"]
    if blackwell and branch < driver_packages.BLACKWELL_FROM:
        raise DriverError(
            f"choosing the driver: {version} does not know the Blackwell GPUs {', '.join(blackwell)}; take branch "
            f"{driver_packages.BLACKWELL_FROM} or newer",
            version=version,
            gpus=blackwell,
        )
    if cannot and branch > driver_packages.OLDER_UNTIL:
        raise DriverError(
            f"choosing the driver: {version} no longer knows {', '.join(cannot)}, which are older than Turing; take "
            f"branch {driver_packages.OLDER_UNTIL}",
            version=version,
            gpus=cannot,
        )
    if need and cannot:
        raise DriverError(
            f"choosing the kernel module: {', '.join(need)} need the open one and {', '.join(cannot)} cannot use it; "
            "no driver runs both in one machine, take out either, or give it to a virtual machine",
            need_open=need,
            cannot_open=cannot,
        )
    if asked == CLOSED and need:
        raise DriverError(
            f"choosing the kernel module: the closed one is asked for, and the GPUs {', '.join(need)} only work with "
            "the open one (RmInitAdapter fails with the closed one); set gpu_driver_kernel_module to open or auto",
            need_open=need,
        )
    if asked == OPEN and cannot:
        raise DriverError(
            f"choosing the kernel module: the open one is asked for, and the GPUs {', '.join(cannot)} are older than "
            "Turing and do not work with it; set gpu_driver_kernel_module to closed or auto",
            cannot_open=cannot,
        )
    if asked == "auto":
        asked = CLOSED if cannot or (branch < driver_packages.OPEN_FROM and not need) else OPEN
    if asked == OPEN and branch < driver_packages.OPEN_FROM:
        raise DriverError(
            f"choosing the kernel module: {version} has no open one; take branch {driver_packages.OPEN_FROM} or newer",
            version=version,
        )
    return asked


def _gpu_warnings(gpus: list[Mapping[str, Any]]) -> tuple[str, ...]:
    if not gpus:
        return ("no NVIDIA GPU is on the PCI bus of this machine, the driver is installed all the same",)
    given = [gpu["address"] for gpu in gpus if gpu["driver"] == "vfio-pci"]
    said = []
    if given:
        said.append(f"{', '.join(given)} are given to virtual machines (vfio-pci), NVIDIA's driver will not have them")
    unknown = [gpu["address"] for gpu in gpus if gpu["architecture"] == "unknown"]
    if unknown:
        said.append(
            f"{', '.join(unknown)} are of no architecture that is known here, whether they need the open module"
        )
    return tuple(said)


def _kernel_warnings(host: Mapping[str, Any]) -> tuple[str, ...]:
    if host["next_kernel"]:
        return ()
    return (
        f"which kernel starts next cannot be told ({host.get('next_kernel_why') or 'nothing says'}), so only for the "
        f"running one, {host['kernel']}, headers and module are checked; have the boot loader's setting name the "
        "kernel, or run gpu_driver with tasks_from verify after a reboot",
    )


def _headers(headers: list[Mapping[str, Any]], install: bool) -> tuple[str, ...]:
    lacking = [one for one in headers if not one["present"]]
    if lacking and not install:
        raise DriverError(
            "looking for the kernel's headers: "
            + " and ".join(f"those of {one['release']} are missing, package {one['package']}" for one in lacking)
            + "; without them no kernel module is built, install them or set gpu_driver_install_headers",
            packages=[one["package"] for one in lacking],
        )
    return tuple(one["package"] for one in lacking)


def _one_source(source: str, found: Found) -> None:
    """Packages and .run files overwrite each other's files (NVIDIA Driver Installation Guide, Pre-installation)."""
    if source == REPOSITORY and found.runfile:
        raise DriverError(
            f"choosing the driver: a .run file has installed {found.runfile}, and packages would mix with it; run "
            "nvidia-uninstall, or set gpu_driver_source to runfile",
            runfile=found.runfile,
        )
    if source == RUNFILE and found.packages:
        names = sorted(found.packages)
        raise DriverError(
            f"choosing the driver: packages of it are installed ({', '.join(names[:6])}{' ...' if names[6:] else ''}), "
            "and a .run file would overwrite their files; remove them with gpu_driver_state absent, or set "
            "gpu_driver_source to repository",
            packages=names,
        )


def repository_for(host: Mapping[str, Any], architecture: str) -> driver_packages.Repository:
    """NVIDIA's repository for a host's `os` and `os_version`. Raises DriverError where there is none."""
    known = driver_packages.REPOSITORIES
    repository = known.get((host["os"], host["os_version"]))
    if repository is None:
        raise DriverError(
            f"choosing the package repository: none is known for {host['os']} {host['os_version']}, only for "
            f"{', '.join(' '.join(one) for one in known)}; set gpu_driver_source to runfile",
            os=host["os"],
            os_version=host["os_version"],
        )
    if architecture not in driver_packages.ARCHITECTURES:
        raise DriverError(
            f"choosing the package repository: NVIDIA has none for {architecture}; set gpu_driver_source to none",
            architecture=architecture,
        )
    return repository


def _wrong_modules(installed: Mapping[str, str], family: str, names: tuple[str, ...]) -> tuple[str, ...]:
    # Whether they exclude each other in the packages' own metadata differs between branches and makers.
    open_one, closed_one = driver_packages.module_packages(family)
    return tuple(
        name for name in sorted(installed) if name not in names and (open_one.match(name) or closed_one.match(name))
    )


def _modules_in_container(installed: Mapping[str, str]) -> tuple[str, ...]:
    modules = [name for name in sorted(installed) if driver_packages.is_module(name)]
    if not modules:
        return ()
    return (f"{', '.join(modules)} build kernel modules, which a container has no use for; remove them",)


def _skipped(kind: str, source: str) -> tuple[dict[str, str], ...]:
    said = []
    if source == NONE:
        said.append({"what": "installing the driver", "why": "gpu_driver_source is none"})
    if kind == "container":
        said.append(
            {
                "what": "kernel module, kernel headers, nouveau, persistence daemon",
                "why": "this is a container, its machine has the kernel",
            }
        )
    return tuple(said)
