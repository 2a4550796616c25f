#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: lxc_numa
short_description: Bind an LXC container to the NUMA nodes of its GPUs
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Writes C(lxc.cgroup2.cpuset.cpus) and C(lxc.cgroup2.cpuset.mems) into the configuration of a container, of Proxmox
    VE or of plain LXC. Runs on the host of the container.
  - The container gets the CPUs and the memory of the nodes, as far as containers may use them here, and never more.
    Nodes without memory that may be used are left out of C(lxc.cgroup2.cpuset.mems).
  - Where there is such a line already, the last one is changed, since that one counts. What it was is noted before, and
    put back later. Comments, snapshots, pending changes and all other lines stay byte for byte.
  - The container is not restarted. RV(restart_needed) says whether that is needed.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - Everything but the writing is done, so what would fail fails in check mode too.
  diff_mode:
    support: full
    details:
      - Shows the file before and after.
options:
  path:
    description:
      - Configuration of the container, C(/etc/pve/lxc/ID.conf) on Proxmox VE, C(/var/lib/lxc/NAME/config) elsewhere.
        Files that it includes are not looked at.
    type: path
    required: true
  numa:
    description:
      - V(gpus) binds to the nodes of O(gpus), numbers of nodes such as V(0) or V(0,1) to these.
      - V(none) is the same as O(state=absent).
    type: str
    default: gpus
  gpus:
    description:
      - V(all), or the numbers N of C(/dev/nvidiaN) that the container has. The loaded driver tells which device on the
        bus such a number is. V(all) are those that it has, or without a driver all but those that VFIO has.
      - Only looked at with O(numa=gpus).
    type: list
    elements: str
    default: [all]
  host_gpus:
    description:
      - The GPUs of this host, as RV(tokforge.sglang.host_info#module:host.gpus) has them. C(address), C(numa_node),
        C(cpus) and C(driver) are looked at.
      - Only looked at with O(numa=gpus).
    type: list
    elements: dict
    default: []
  state:
    description:
      - V(present) has the binding.
      - V(absent) puts back what was there before the first binding, and changes nothing when nothing is noted. A file
        that does not exist has no binding.
    type: str
    choices: [present, absent]
    default: present
  record_dir:
    description: Directory in which the lines that were there before are noted.
    type: path
    default: /var/lib/tokforge/host
  root:
    description: Directory that C(/sys) and C(/proc) are read below, for tests and images.
    type: path
    default: /
  lock_dir:
    description:
      - Directory in which Proxmox VE locks the configuration of a container while it changes it. Used where it exists
        and O(path) is named as there.
    type: path
    default: /run/lock/lxc
seealso:
  - module: tokforge.sglang.host_info
  - module: tokforge.sglang.lxc_gpu
"""

EXAMPLES = r"""
- name: Look at the host
  tokforge.sglang.host_info:
  register: look

- name: Bind a container to the node of its GPUs
  tokforge.sglang.lxc_numa:
    path: /etc/pve/lxc/101.conf
    gpus: [0, 1]
    host_gpus: "{{ look.host.gpus }}"

- name: Bind a container to the first node
  tokforge.sglang.lxc_numa:
    path: /var/lib/lxc/sglang/config
    numa: "0"

- name: Put back what was there before
  tokforge.sglang.lxc_numa:
    path: /var/lib/lxc/sglang/config
    state: absent
"""

RETURN = r"""
cpus:
  description: CPUs that the container is bound to by this module, empty with O(state=absent).
  returned: success
  type: str
  sample: 0-31,64-95
mems:
  description: Memory nodes that the container is bound to by this module, empty for none.
  returned: success
  type: str
  sample: "0"
restart_needed:
  description: Whether a container that runs with the old file must be restarted to be bound as the new one says.
  returned: success
  type: bool
"""

import contextlib
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    lxc_config,
    lxc_devices,
    lxc_file,
    lxc_numa,
    previous_values,
)


def settle(module: AnsibleModule) -> dict[str, Any]:
    """Read, plan, note, write. Raises ConfigError, DeviceError, NumaError and RecordError."""
    params = module.params
    path, record_dir, writing = params["path"], params["record_dir"], not module.check_mode
    wanted = None
    if params["state"] == "present" and params["numa"] != lxc_numa.NONE:
        gpus = lxc_devices.numbers(params["gpus"])
        wanted = lxc_numa.binding(params["numa"], gpus, params["host_gpus"], lxc_numa.look(params["root"]))
    bound = {"cpus": wanted.cpus if wanted else "", "mems": wanted.mems if wanted else ""}
    # Check mode waits for nobody: it writes nothing, so nothing can get lost.
    with lxc_file.locked(path, params["lock_dir"]) if writing else contextlib.nullcontext():
        try:
            data = lxc_file.read(path)
        except FileNotFoundError as error:
            if wanted is None:
                # A container that is made anew under this number has other lines.
                if writing:
                    keys = (lxc_numa.CPUS, lxc_numa.MEMS)
                    previous_values.forget(record_dir, [lxc_numa.note_key(path, key) for key in keys])
                return {"changed": False, "restart_needed": False, **bound}
            raise lxc_file.missing(path) from error
        plan = lxc_numa.plan(lxc_config.parse(data, path), wanted, previous_values.read(record_dir))
        if writing:
            if plan.changed:
                previous_values.remember(record_dir, plan.remember)
                lxc_file.write(path, data, plan.data)
            previous_values.forget(record_dir, plan.forget)
    for warning in (*(wanted.warnings if wanted else ()), *plan.warnings):
        module.warn(warning)
    result = {"changed": plan.changed, "restart_needed": plan.changed, **bound}
    if module._diff:
        result["diff"] = lxc_file.difference(path, data, plan.data)
    return result


def main() -> None:
    """Bind a container, or put back what was."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "numa": {"type": "str", "default": lxc_numa.GPUS},
            "gpus": {"type": "list", "elements": "str", "default": ["all"]},
            "host_gpus": {"type": "list", "elements": "dict", "default": []},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "record_dir": {"type": "path", "default": previous_values.RECORD_DIR},
            "root": {"type": "path", "default": "/"},
            "lock_dir": {"type": "path", "default": lxc_file.LOCK_DIR},
        },
        supports_check_mode=True,
    )
    try:
        result = settle(module)
    except (
        lxc_config.ConfigError,
        lxc_devices.DeviceError,
        lxc_numa.NumaError,
        previous_values.RecordError,
    ) as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
