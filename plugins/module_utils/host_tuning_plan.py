# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is to be done on a host so that it is tuned as asked, and what cannot be done here and why.

For each setting: set it, restore what it was before us (when it is not asked for any more and something is noted), or
leave it. Settings of the kernel are left in a container, whose kernel is that of the machine below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    cpu_frequency,
    kernel_cmdline,
    kernel_package,
    login_limits,
    modprobe_options,
    pcie_acs,
    pcie_config,
    shared_memory,
    sysctl_parameters,
    tuned_profile,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

SET, RESTORE, LEAVE = "set", "restore", "leave"
PRESENT, ABSENT = "present", "absent"
MACHINE, CONTAINER = "machine", "container"
GPUS = "gpus"
SCHEMA_VERSION = 1

#: Notes of module kernel_cmdline are `kernel_cmdline/<file>/<name>`.
CMDLINE_KEY = "kernel_cmdline/"
#: Notes of what is asked for are `host_tuning_token/<token>`, with all tokens of what is set together.
TOKEN_KEY = "host_tuning_token/"  # noqa: S105 (a key of a note)
#: Noted while an energy preference is asked for, since the governor's note does not tell which of the two was.
PREFERENCE_KEY = "host_tuning_energy_preference"
#: Notes of units that the role made are `host_tuning_unit/<name>`.
UNIT_KEY = "host_tuning_unit/"


_IN_VMS = f"the driver {pcie_config.VFIO} gives them to virtual machines"


class TuningError(HostError):
    """What is asked for makes no sense; the text says why and what to do."""


@dataclass(frozen=True)
class Settings:
    """What is asked for, empty for what is not; the names are those of the role's variables."""

    cpu_governor: str = ""
    energy_preference: str = ""
    cpu_manager: str = "auto"
    sysctl: Mapping[str, Any] = field(default_factory=dict)
    kernel_options: Sequence[str] = ()
    iommu: str = "unchanged"
    modprobe: Mapping[str, Any] = field(default_factory=dict)
    acs: str = "unchanged"
    pcie_read_request: int = 0
    pcie_devices: Sequence[str] = (GPUS,)
    kernel_package: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)
    shm_size: str = ""


@dataclass(frozen=True)
class Host:
    """What was seen of the host. `apt_has_tuned` is asked only when it matters."""

    kind: str
    container: str
    proxmox: bool
    cpu_vendor: str
    policies: Sequence[cpu_frequency.Policy]
    gpus: Sequence[str]
    tuned_installed: bool
    apt_has_tuned: Callable[[], bool]
    modprobe_before: modprobe_options.Options = field(default_factory=dict)
    #: Addresses of PCI devices that virtual machines have.
    given_to_vms: Sequence[str] = ()
    #: Whether there is a file of ours with kernel parameters, which a host has without notes when these were lost.
    has_sysctl_file: bool = False


@dataclass(frozen=True)
class Paths:
    """What the unit at start needs to know."""

    sys_cpu: str = cpu_frequency.SYS_CPU
    sys_pci: str = pcie_config.SYS_PCI
    record_dir: str = ""
    shm: str = shared_memory.MOUNT_POINT


@dataclass
class Plan:
    """`steps` by setting, `boot` what the unit sets at each start (empty for no unit), `skipped` what and why."""

    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    boot: dict[str, Any] = field(default_factory=dict)
    skipped: list[dict[str, str]] = field(default_factory=list)

    def skip(self, what: str, why: str) -> None:
        self.skipped.append({"what": what, "why": why})


def decide(settings: Settings, host: Host, notes: Mapping[str, Any], paths: Paths) -> Plan:
    """The plan. Raises TuningError and the errors of the cores that read what is asked for."""
    plan = Plan()
    if host.kind == CONTAINER:
        _skip_kernel_level(settings, host, plan)
    else:
        _cpu(settings, host, notes, plan)
        _sysctl(settings, host, notes, plan)
        _cmdline(settings, host, notes, plan)
        _modprobe(settings, host, plan)
        _acs(settings, host, notes, plan)
        _read_request(settings, host, notes, plan)
        _kernel_package(settings, host, notes, plan)
        _boot(settings, plan, paths)
    text = login_limits.rendered(settings.limits)
    plan.steps["limits"] = {"do": SET if text else RESTORE, "text": text, "limits": dict(settings.limits)}
    noted = shared_memory.KEY + paths.shm in notes
    plan.steps["shm"] = {"do": _do(bool(settings.shm_size), noted), "size": settings.shm_size}
    if settings.shm_size:
        shared_memory.bytes_of(settings.shm_size)
    for name in ("cpu", "sysctl", "cmdline", "modprobe", "acs", "read_request", "kernel_package"):
        plan.steps.setdefault(name, {"do": LEAVE})
    return plan


def earlier_units(notes: Mapping[str, Any], unit: str) -> list[str]:
    """Names of units of ours that have another name than the one that is asked for now."""
    return sorted(key[len(UNIT_KEY) :] for key in notes if key.startswith(UNIT_KEY) and key != UNIT_KEY + unit)


def iommu_tokens(mode: str, vendor: str) -> list[str]:
    """Tokens of the kernel's command line for a mode. Raises TuningError for a maker of CPUs that has no such tokens.

    Source: the kernel's admin-guide/kernel-parameters.txt. AMD's IOMMU is on without a token.
    """
    if mode == "unchanged":
        return []
    intel, amd = vendor == "GenuineIntel", vendor in ("AuthenticAMD", "HygonGenuine")
    if not intel and not amd:
        raise TuningError(
            f"setting the IOMMU to {mode}: the CPUs are of {vendor or 'an unknown maker'}, and the tokens are known "
            "for Intel and AMD; give them as kernel options",
            vendor=vendor,
        )
    if mode == "off":
        return ["intel_iommu=off" if intel else "amd_iommu=off"]
    return [*(["intel_iommu=on"] if intel else []), "iommu=pt" if mode == "pt" else "iommu=nopt"]


def _do(asked: bool, noted: bool) -> str:
    if asked:
        return SET
    return RESTORE if noted else LEAVE


def _any_key(notes: Mapping[str, Any], prefix: str) -> bool:
    return any(key.startswith(prefix) for key in notes)


def _skip_kernel_level(settings: Settings, host: Host, plan: Plan) -> None:
    kind = f" ({host.container})" if host.container else ""
    why = f"this is a container{kind} and its kernel is that of the machine below it; set it there"
    asked = {
        f"CPU governor {settings.cpu_governor}": settings.cpu_governor,
        f"energy preference {settings.energy_preference}": settings.energy_preference,
        f"kernel parameters {', '.join(sorted(settings.sysctl))}": settings.sysctl,
        f"kernel options {' '.join(settings.kernel_options)}": settings.kernel_options,
        f"IOMMU mode {settings.iommu}": settings.iommu != "unchanged",
        f"options of kernel modules {', '.join(sorted(settings.modprobe))}": settings.modprobe,
        f"access control services {settings.acs}": settings.acs != "unchanged",
        f"PCI Express read requests of {settings.pcie_read_request} bytes": settings.pcie_read_request,
        f"kernel package {settings.kernel_package}": settings.kernel_package,
    }
    for what, wanted in asked.items():
        if wanted:
            plan.skip(what, why)


def _cpu(settings: Settings, host: Host, notes: Mapping[str, Any], plan: Plan) -> None:
    governor, preference = settings.cpu_governor, settings.energy_preference
    if preference and not governor:
        raise TuningError(
            f"setting the energy preference to {preference}: no governor is asked for, and drivers tie the two; ask "
            "for a governor too"
        )
    noted, tuned_noted = _any_key(notes, cpu_frequency.KEY), tuned_profile.KEY in notes
    if governor and not host.policies:
        plan.skip(
            f"CPU governor {governor}",
            "no driver of this kernel sets the CPU frequency, as in most virtual machines; the machine below is the "
            "place for it",
        )
        governor = preference = ""
    have = [each for each in host.policies if each.settings and each.settings.energy_preference is not None]
    if preference and not have:
        drivers = ", ".join(sorted({each.driver for each in host.policies if each.driver})) or "unknown"
        plan.skip(f"energy preference {preference}", f"the driver of the CPUs ({drivers}) has none")
        preference = ""
    here = tuned_noted or host.tuned_installed
    apt_has = bool(governor) and settings.cpu_manager != "unit" and not here and host.apt_has_tuned()
    tuned = bool(governor) and (
        settings.cpu_manager == "tuned" or (settings.cpu_manager == "auto" and (here or apt_has))
    )
    plan.steps["cpu"] = {
        "do": _do(bool(governor), noted or tuned_noted),
        "governor": governor,
        "energy_preference": preference,
        # What was there is put back first: of the two only the governor is asked for now.
        "restore_first": bool(governor) and not preference and PREFERENCE_KEY in notes,
        "tuned": _do(tuned, tuned_noted),
        "install_tuned": tuned and not host.tuned_installed,
        "update_apt": tuned and not here and not apt_has,
    }


def _sysctl(settings: Settings, host: Host, notes: Mapping[str, Any], plan: Plan) -> None:
    sysctl_parameters.wanted_values(settings.sysctl)
    do = _do(bool(settings.sysctl), host.has_sysctl_file or _any_key(notes, sysctl_parameters.KEY))
    plan.steps["sysctl"] = {"do": do, "parameters": dict(settings.sysctl)}


def _cmdline(settings: Settings, host: Host, notes: Mapping[str, Any], plan: Plan) -> None:
    tokens = [*settings.kernel_options, *iommu_tokens(settings.iommu, host.cpu_vendor)]
    asked = kernel_cmdline.wanted(tokens)
    # The size of huge pages and their number are one: apart, the numbers of two sizes would contradict each other.
    texts = [" ".join(unit.texts) for unit in asked]
    noted = [key[len(TOKEN_KEY) :] for key in notes if key.startswith(TOKEN_KEY)]
    old = [text for text in noted if text not in texts]
    places = {unit.place for unit in asked}
    # A name that is asked for with another value is replaced in its place, not put back first.
    # One that the command line had before, or that could not be set, was never changed: there is nothing to put back.
    changed = {key.rpartition("/")[2] for key in notes if key.startswith(CMDLINE_KEY)}
    words = [kernel_cmdline.split(text, kernel_cmdline.KERNEL) for text in old]
    units = [unit for each in words for unit in kernel_cmdline.wanted([word.raw for word in each])]
    drop = [token for unit in units if unit.place not in places and unit.family in changed for token in unit.texts]
    plan.steps["cmdline"] = {
        "do": SET if tokens else (RESTORE if noted else LEAVE),
        "tokens": tokens,
        "drop": drop,
        "notes": {TOKEN_KEY + text: True for text in texts},
        "forget": {TOKEN_KEY + text: True for text in old},
    }


def _modprobe(settings: Settings, host: Host, plan: Plan) -> None:
    options = modprobe_options.wanted_options(settings.modprobe)
    plan.steps["modprobe"] = {
        # The module does nothing where there is no file and no refresh is due.
        "do": SET if options else RESTORE,
        "options": options,
        "dropped": {
            module: gone
            for module, before in host.modprobe_before.items()
            for gone in [{name: value for name, value in before.items() if name not in options.get(module, {})}]
            if gone
        },
    }


def _acs(settings: Settings, host: Host, notes: Mapping[str, Any], plan: Plan) -> None:
    asked = settings.acs == "off"
    if asked and not host.gpus:
        plan.skip("access control services off", "there is no NVIDIA GPU on the PCI bus, so no bridge is above one")
        asked = False
    given = [gpu for gpu in host.gpus if gpu in host.given_to_vms]
    if asked and given:
        why = f"{_IN_VMS}, and these services keep virtual machines apart"
        plan.skip(f"access control services off above {', '.join(given)}", why)
        # With none left, what is noted is put back.
        asked = len(given) < len(host.gpus)
    plan.steps["acs"] = {"do": _do(asked, _any_key(notes, pcie_acs.KEY))}


def _read_request(settings: Settings, host: Host, notes: Mapping[str, Any], plan: Plan) -> None:
    size = settings.pcie_read_request
    if size and size not in pcie_config.READ_REQUESTS:
        raise TuningError(
            f"setting the read request size to {size} bytes: there is no such size; take one of "
            f"{', '.join(str(each) for each in pcie_config.READ_REQUESTS)}"
        )
    devices: list[str] = []
    if size:
        for device in settings.pcie_devices:
            devices += host.gpus if device == GPUS else [pcie_config.normalised(device)]
        if not devices:
            plan.skip(f"PCI Express read requests of {size} bytes", "there is no NVIDIA GPU on the PCI bus")
    devices = list(dict.fromkeys(devices))
    given = [device for device in devices if device in host.given_to_vms]
    if given:
        plan.skip(f"PCI Express read requests of {size} bytes of {', '.join(given)}", _IN_VMS)
    devices = [device for device in devices if device not in given]
    noted = {
        key[len(prefix) :]
        for key in notes
        for prefix in (pcie_config.KEY, pcie_config.READ_ONLY_KEY)
        if key.startswith(prefix)
    }
    kept = [device for device in host.given_to_vms if pcie_config.KEY + device in notes]
    if kept:
        plan.skip(f"putting back PCI Express read requests of {', '.join(kept)}", _IN_VMS)
    noted.difference_update(host.given_to_vms)
    drop = sorted(noted - set(devices))
    plan.steps["read_request"] = {
        "do": _do(bool(devices), bool(noted)),
        "devices": devices,
        "bytes": size,
        "drop": drop,
    }


def _kernel_package(settings: Settings, host: Host, notes: Mapping[str, Any], plan: Plan) -> None:
    package = settings.kernel_package
    noted = _any_key(notes, kernel_package.KEY) or kernel_package.PIN_KEY in notes
    plan.steps["kernel_package"] = {
        "do": _do(bool(package), noted),
        "package": package,
        "release": kernel_package.release_of(package) if package else "",
        "pin": bool(package) and host.proxmox,
    }


def _boot(settings: Settings, plan: Plan, paths: Paths) -> None:
    """What the unit sets, from what the plan sets now."""
    boot: dict[str, Any] = {}
    cpu = plan.steps["cpu"]
    # TuneD sets the governor itself. The preference is set under it again, since it goes with the governor.
    if cpu["governor"] and (cpu["tuned"] != SET or cpu["energy_preference"]):
        boot["cpu"] = {"governor": cpu["governor"], "energy_preference": cpu["energy_preference"] or None}
    if plan.steps["acs"]["do"] == SET:
        boot["acs"] = "off"
    if plan.steps["read_request"]["do"] == SET:
        # Names of GPUs are looked up at each start, since a card more or less moves the addresses.
        boot["read_request"] = {"devices": list(settings.pcie_devices), "bytes": settings.pcie_read_request}
    if boot:
        where = {"sys_cpu": paths.sys_cpu, "sys_pci": paths.sys_pci, "record_dir": paths.record_dir}
        plan.boot = {"schema_version": SCHEMA_VERSION, **where, **boot}


def cpu_vendor(text: str) -> str:
    """The maker in /proc/cpuinfo, empty when it names none."""
    for line in text.splitlines():
        name, _colon, value = line.partition(":")
        if name.strip() == "vendor_id":
            return value.strip()
    return ""
