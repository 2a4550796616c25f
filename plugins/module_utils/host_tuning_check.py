# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a host is tuned as its plan says: every setting read back, from the kernel where it has it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    cpu_frequency,
    kernel_cmdline,
    login_limits,
    modprobe_options,
    pcie_acs,
    pcie_config,
    previous_values,
    shared_memory,
    sysctl_parameters,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.host_tuning_plan import SET, Plan

NOW, REBOOT = "now", "reboot"


@dataclass(frozen=True)
class Paths:
    """Where things are read back."""

    sys_cpu: str
    sys_pci: str
    sys_module: str
    proc_sys: str
    proc_cmdline: str
    limits_file: str
    proc_first: str
    shm: str
    fstab: str
    tuned_config: str
    unit_link: str
    unit: str
    record_dir: str


@dataclass(frozen=True)
class Difference:
    """A setting that is not as asked. `when` it will be: it should be now, or after a reboot."""

    setting: str
    wanted: str
    found: str
    when: str

    @property
    def text(self) -> str:
        return f"{self.setting}: wanted {self.wanted}, found {self.found}"


@dataclass
class Look:
    """What was found."""

    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    still: list[str] = field(default_factory=list)

    def wrong(self, after_reboot: bool) -> list[Difference]:
        """The differences that nothing but a person can end."""
        return [each for each in self.differences if each.when == NOW or (after_reboot and each.when == REBOOT)]

    def pending(self, after_reboot: bool) -> list[str]:
        """What waits for a reboot."""
        waits = [] if after_reboot else [each.text for each in self.differences if each.when == REBOOT]
        return [*waits, *self.still]


def look(plan: Plan, running_kernel: str, paths: Paths, measure: Callable[[str], int] = shared_memory.measure) -> Look:
    """Read everything back that the plan sets. Raises the errors of the cores that read."""
    found = Look()
    steps = {name: step for name, step in plan.steps.items() if step["do"] == SET}
    if "cpu" in steps:
        _cpu(steps["cpu"], paths, found)
    if "sysctl" in steps:
        for name, wanted, value in sysctl_parameters.differing(steps["sysctl"]["parameters"], paths.proc_sys):
            found.differences.append(Difference(name, wanted, value or "no such parameter", NOW))
    if "cmdline" in steps:
        _cmdline(steps["cmdline"], paths, found)
    _modprobe(plan.steps["modprobe"], paths, found)
    if "acs" in steps:
        for bridge in pcie_acs.above(paths.sys_pci, pcie_acs.gpus(paths.sys_pci)):
            if bridge.control is not None and bridge.control.control != 0:
                value = f"{bridge.control.control:04x}"
                found.differences.append(
                    Difference(f"access control services of bridge {bridge.address}", "0000", value, NOW)
                )
    if "read_request" in steps:
        _read_request(steps["read_request"], paths, found)
    if "kernel_package" in steps and steps["kernel_package"]["release"] != running_kernel:
        release = steps["kernel_package"]["release"]
        found.differences.append(Difference("running kernel", release, running_kernel, REBOOT))
    if "limits" in steps and _text(paths.limits_file) != steps["limits"]["text"]:
        found.differences.append(Difference("limits", f"those asked for in {paths.limits_file}", "others", NOW))
    if "limits" in steps:
        limits = steps["limits"]["limits"]
        for later in login_limits.overridden(limits, paths.limits_file):
            value = f"{later.value} in {later.file} line {later.line}, which comes later"
            found.differences.append(Difference(f"limit {later.item}", str(limits[later.item]), value, NOW))
        first = (_text(os.path.join(paths.proc_first, name)) for name in ("limits", "status", "uid_map"))
        found.notes += login_limits.out_of_reach(limits, *first)
    if "shm" in steps:
        _shm(steps["shm"], paths, found, measure)
    if plan.boot and not os.path.lexists(paths.unit_link):
        found.differences.append(Difference(f"unit {paths.unit}", "enabled", f"no {paths.unit_link}", NOW))
    return found


def _cpu(step: Mapping[str, Any], paths: Paths, found: Look) -> None:
    for policy in cpu_frequency.look(paths.sys_cpu):
        if policy.settings is None:
            found.notes.append(f"{policy.label} is offline, and nothing can be set of it")
            continue
        if policy.settings.governor != step["governor"]:
            found.differences.append(
                Difference(f"governor of {policy.label}", step["governor"], policy.settings.governor, NOW)
            )
        has, asked = policy.settings.energy_preference, step["energy_preference"]
        if asked and has is not None and has != asked:
            found.differences.append(Difference(f"energy preference of {policy.label}", asked, has, NOW))
    if step["tuned"] == SET:
        active = " ".join(_text(os.path.join(paths.tuned_config, "active_profile")).split())
        if active != paths.unit:
            found.differences.append(Difference("TuneD's profile", paths.unit, active or "none", NOW))


def _cmdline(step: Mapping[str, Any], paths: Paths, found: Look) -> None:
    running = _text(paths.proc_cmdline)
    for token in kernel_cmdline.missing(kernel_cmdline.wanted(step["tokens"]), running):
        found.differences.append(Difference("kernel command line", token, running.strip(), REBOOT))


def _modprobe(step: Mapping[str, Any], paths: Paths, found: Look) -> None:
    for each in modprobe_options.loaded(step.get("options", {}), paths.sys_module):
        name = f"parameter {each.parameter} of kernel module {each.module}"
        if each.status == modprobe_options.OTHER_VALUE:
            found.differences.append(Difference(name, each.wanted, each.found, REBOOT))
        elif each.status == modprobe_options.NOT_LOADED:
            # No reboot would change that: it takes the option when it is loaded, which for some is on first use.
            found.notes.append(f"{name} becomes {each.wanted} when the module is loaded, which it is not yet")
        elif each.status == modprobe_options.NOT_SHOWN:
            found.notes.append(f"{name} is not shown by the kernel, so whether it is {each.wanted} cannot be read back")
    for each in modprobe_options.loaded(step.get("dropped", {}), paths.sys_module):
        if each.status == modprobe_options.FOLLOWED:
            found.still.append(
                f"parameter {each.parameter} of kernel module {each.module}: it is not set any more, and the loaded "
                f"module still has {each.wanted}"
            )


def _read_request(step: Mapping[str, Any], paths: Paths, found: Look) -> None:
    notes = previous_values.read(paths.record_dir)
    for address in step["devices"]:
        control = pcie_config.device_control(pcie_config.of_device(paths.sys_pci, address))
        if control.read_request == step["bytes"]:
            continue
        if pcie_config.READ_ONLY_KEY + address in notes:
            found.notes.append(f"{address} ignores another read request size and stays at {control.read_request} bytes")
        else:
            found.differences.append(
                Difference(f"read request of {address}", str(step["bytes"]), str(control.read_request), NOW)
            )


def _shm(step: Mapping[str, Any], paths: Paths, found: Look, measure: Callable[[str], int]) -> None:
    has, wanted = measure(paths.shm), shared_memory.bytes_of(step["size"])
    if not shared_memory.is_size(has, wanted):
        found.differences.append(Difference(f"size of {paths.shm}", f"{wanted} bytes", f"{has} bytes", NOW))
    entry = shared_memory.find(_text(paths.fstab).encode(), paths.shm, paths.fstab)
    if entry is None or entry.size != step["size"]:
        has_text = "no size" if entry is None or entry.size is None else entry.size
        found.differences.append(Difference(f"size of {paths.shm} in {paths.fstab}", step["size"], has_text, NOW))


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
