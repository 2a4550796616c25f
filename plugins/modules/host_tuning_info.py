#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_tuning_info
short_description: Say what is to be done to tune a host, and whether it is tuned
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - For role C(host_tuning). Decides for each setting whether it is to be set, put back or left alone on this host, says
    what cannot be done here and why, and reads everything back that is to be set.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  settings:
    description: What is asked for. The names are those of the variables of the role, without its name.
    type: dict
    default: {}
    suboptions:
      cpu_governor:
        description: CPU governor, empty to leave it.
        type: str
        default: ""
      energy_preference:
        description: Energy preference, empty to leave it.
        type: str
        default: ""
      cpu_manager:
        description: What sets the governor at each start.
        type: str
        choices: [auto, tuned, unit]
        default: auto
      sysctl:
        description: Kernel parameters.
        type: dict
        default: {}
      kernel_options:
        description: Tokens of the kernel's command line.
        type: list
        elements: str
        default: []
      iommu:
        description: Mode of the IOMMU.
        type: str
        choices: [unchanged, pt, "off", "on"]
        default: unchanged
      modprobe:
        description: Options of kernel modules.
        type: dict
        default: {}
      acs:
        description: Access control services of the bridges above GPUs.
        type: str
        choices: [unchanged, "off"]
        default: unchanged
      pcie_read_request:
        description: Largest read request in bytes, 0 to leave it.
        type: int
        default: 0
      pcie_devices:
        description: Devices that this is for. V(gpus) stands for all NVIDIA GPUs.
        type: list
        elements: str
        default: [gpus]
      kernel_package:
        description: Kernel package, empty for none.
        type: str
        default: ""
      limits:
        description: Limits of login sessions.
        type: dict
        default: {}
      shm_size:
        description: Size of shared memory, empty to leave it.
        type: str
        default: ""
  host:
    description: What module tokforge.sglang.host_info returned.
    type: dict
    required: true
  after_reboot:
    description: Whether the machine was restarted since, so that nothing waits for that any more.
    type: bool
    default: false
  still:
    description: Tokens of the kernel's command line that were put back and that the running kernel still has.
    type: list
    elements: str
    default: []
  unit:
    description: Name of the role's unit and TuneD profile.
    type: str
    default: tokforge-host
  paths:
    description:
      - Where things are, by name. What is left out is where it is on a running system.
      - Names are C(sys_cpu), C(sys_pci), C(sys_module), C(proc_sys), C(proc_cmdline), C(proc_cpuinfo),
        C(modprobe_file), C(limits_file), C(shm), C(fstab), C(tuned_adm), C(tuned_config) and C(unit_directory).
    type: dict
    default: {}
  record_dir:
    description: Directory where it is noted what the settings of this host were.
    type: path
    default: /var/lib/tokforge/host
seealso:
  - module: tokforge.sglang.host_info
"""

EXAMPLES = r"""
- name: Look at the host
  tokforge.sglang.host_info:
  register: look

- name: See whether it is tuned
  tokforge.sglang.host_tuning_info:
    settings:
      cpu_governor: performance
      sysctl:
        kernel.numa_balancing: 0
    host: "{{ look.host }}"
  register: tuning

- name: Say what is not as it should be
  ansible.builtin.debug:
    msg: "{{ tuning.wrong }}"
"""

RETURN = r"""
steps:
  description: By setting what is to be done, C(do) being V(set), V(restore) or V(leave), with what it takes.
  returned: success
  type: dict
  sample: {shm: {do: set, size: 64G}}
boot:
  description: What the unit sets at each start; empty when no unit is needed.
  returned: success
  type: dict
  sample: {}
earlier_units:
  description: Names of units that the role made before O(unit) had the name that it has now.
  returned: success
  type: list
  elements: str
  sample: []
not_here:
  description: What is asked for and cannot be done on this host.
  returned: success
  type: list
  elements: dict
  contains:
    what:
      description: The setting.
      type: str
      sample: CPU governor performance
    why:
      description: The reason.
      type: str
      sample: no driver of this kernel sets the CPU frequency
wrong:
  description: Settings whose value is another one than what is asked for. Before they are set that is most of them.
  returned: success
  type: list
  elements: str
  sample: ["kernel.numa_balancing: wanted 0, found 1"]
pending:
  description: What waits for a reboot.
  returned: success
  type: list
  elements: str
  sample: ["kernel command line: wanted iommu=pt, found quiet"]
still:
  description: Options of kernel modules that are not asked for any more and that the loaded modules still have.
  returned: success
  type: list
  elements: str
  sample: []
notes:
  description: What else to know, such as devices that ignore a setting and kernel modules that are not loaded.
  returned: success
  type: list
  elements: str
  sample: []
"""

import os
import re
from collections.abc import Sequence
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    cpu_frequency,
    host_tuning_check,
    host_tuning_plan,
    modprobe_options,
    own_file,
    pcie_acs,
    pcie_config,
    previous_values,
    run_command,
    shared_memory,
    sysctl_parameters,
    tuned_profile,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

#: Where things are on a running system.
PATHS = {
    "sys_cpu": cpu_frequency.SYS_CPU,
    "sys_pci": pcie_config.SYS_PCI,
    "sys_module": modprobe_options.SYS_MODULE,
    "proc_sys": sysctl_parameters.PROC_SYS,
    "proc_cmdline": "/proc/cmdline",
    "proc_cpuinfo": "/proc/cpuinfo",
    "modprobe_file": modprobe_options.FILE,
    "sysctl_file": sysctl_parameters.FILE,
    "limits_file": "/etc/security/limits.d/tokforge-host.conf",
    "proc_first": "/proc/1",
    "shm": shared_memory.MOUNT_POINT,
    "fstab": shared_memory.FSTAB,
    "tuned_adm": tuned_profile.ADM,
    "tuned_config": tuned_profile.CONFIG,
    "unit_directory": "/etc/systemd/system",
}


def apt_has_tuned() -> bool:
    """Whether apt can install TuneD."""
    status, output = run_command.run(["apt-cache", "policy", "tuned"])
    lines = [line.split(":", 1)[1].strip() for line in output.splitlines() if line.strip().startswith("Candidate:")]
    return status == 0 and bool(lines) and lines[0] not in ("", "(none)")


def look(params: dict[str, Any], paths: dict[str, str], units: Sequence[str]) -> host_tuning_plan.Host:
    """What was seen of the host, as the plan takes it. Raises FrequencyError and OwnFileError.

    Files that the role writes or removes as a whole are looked at too, so that none of somebody else gets lost.
    """
    host = params["host"]
    machine = host["kind"] != host_tuning_plan.CONTAINER
    own_file.read(paths["limits_file"])
    for unit in units:
        own_file.read(os.path.join(paths["unit_directory"], f"{unit}.service"))
    try:
        with open(paths["proc_cpuinfo"], encoding="utf-8", errors="replace") as stream:
            cpuinfo = stream.read(65536)
    except OSError:
        cpuinfo = ""
    return host_tuning_plan.Host(
        kind=host["kind"],
        container=host.get("container", ""),
        proxmox=bool(host.get("proxmox")),
        cpu_vendor=host_tuning_plan.cpu_vendor(cpuinfo),
        policies=cpu_frequency.look(paths["sys_cpu"]) if machine and os.path.isdir(paths["sys_cpu"]) else (),
        gpus=pcie_acs.gpus(paths["sys_pci"]) if machine else (),
        given_to_vms=pcie_config.given_to_vms(paths["sys_pci"]) if machine else (),
        tuned_installed=os.path.exists(paths["tuned_adm"]),
        apt_has_tuned=apt_has_tuned,
        modprobe_before=modprobe_options.in_file(own_file.read(paths["modprobe_file"]) if machine else None),
        has_sysctl_file=machine and own_file.read(paths["sysctl_file"]) is not None,
    )


def run(params: dict[str, Any]) -> dict[str, Any]:
    """What the module returns. Raises HostError."""
    paths = {**PATHS, **{name: str(value) for name, value in params["paths"].items()}}
    record_dir, unit = params["record_dir"], params["unit"]
    settings = host_tuning_plan.Settings(**(params["settings"] or {}))
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*", unit):
        raise host_tuning_plan.TuningError(
            f"naming the unit {unit[:60]!r}: this is no name; use letters, digits and -, without .service", unit=unit
        )
    notes = previous_values.read(record_dir)
    earlier = host_tuning_plan.earlier_units(notes, unit)
    plan = host_tuning_plan.decide(
        settings,
        look(params, paths, [unit, *earlier]),
        notes,
        host_tuning_plan.Paths(paths["sys_cpu"], paths["sys_pci"], record_dir, paths["shm"]),
    )
    same = (
        "sys_cpu",
        "sys_pci",
        "sys_module",
        "proc_sys",
        "proc_cmdline",
        "limits_file",
        "proc_first",
        "shm",
        "fstab",
        "tuned_config",
    )
    link = os.path.join(paths["unit_directory"], "multi-user.target.wants", f"{unit}.service")
    where = host_tuning_check.Paths(
        **{name: paths[name] for name in same}, unit_link=link, unit=unit, record_dir=record_dir
    )
    found = host_tuning_check.look(plan, params["host"].get("kernel", ""), where)
    still = [f"kernel command line: the running kernel still has {token}" for token in params["still"]]
    return {
        "changed": False,
        "steps": plan.steps,
        "boot": plan.boot,
        "earlier_units": earlier,
        "not_here": plan.skipped,
        "wrong": [each.text for each in found.wrong(params["after_reboot"])],
        "pending": [*found.pending(params["after_reboot"]), *still],
        "still": found.still,
        "notes": found.notes,
    }


def settings_spec() -> dict[str, Any]:
    """Suboptions of `settings`."""
    text, dictionary = {"type": "str", "default": ""}, {"type": "dict", "default": {}}
    return {
        "cpu_governor": text,
        "energy_preference": text,
        "cpu_manager": {"type": "str", "choices": ["auto", "tuned", "unit"], "default": "auto"},
        "sysctl": dictionary,
        "kernel_options": {"type": "list", "elements": "str", "default": []},
        "iommu": {"type": "str", "choices": ["unchanged", "pt", "off", "on"], "default": "unchanged"},
        "modprobe": dictionary,
        "acs": {"type": "str", "choices": ["unchanged", "off"], "default": "unchanged"},
        "pcie_read_request": {"type": "int", "default": 0},
        "pcie_devices": {"type": "list", "elements": "str", "default": ["gpus"]},
        "kernel_package": text,
        "limits": dictionary,
        "shm_size": text,
    }


def main() -> None:
    """Look once; never changes anything."""
    module = AnsibleModule(
        argument_spec={
            "settings": {"type": "dict", "default": {}, "options": settings_spec()},
            "host": {"type": "dict", "required": True},
            "after_reboot": {"type": "bool", "default": False},
            "still": {"type": "list", "elements": "str", "default": []},
            "unit": {"type": "str", "default": "tokforge-host"},
            "paths": {"type": "dict", "default": {}},
            "record_dir": {"type": "path", "default": previous_values.RECORD_DIR},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module.params)
    except HostError as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
