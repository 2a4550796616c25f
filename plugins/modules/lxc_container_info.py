#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: lxc_container_info
short_description: Say whether an LXC container runs, and whether it sees the GPUs that it should
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Asks Proxmox VE or LXC for the state of a container, and looks at the device nodes, the CPUs and the memory that a
    running one really has. Runs on the host of the container.
  - A container sees what its configuration said when it was started. What was written since, or a driver that was
    loaded anew and got another major number, shows in RV(differences) until it is restarted.
  - Looks through C(/proc/PID/root) of the container's first process and runs nothing in the container.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  id:
    description: Number of the container on Proxmox VE, its name for plain LXC.
    type: str
    required: true
  tool:
    description: What manages the container. V(auto) is V(pct) where it is installed, otherwise V(lxc).
    type: str
    choices: [auto, pct, lxc]
    default: auto
  lxc_path:
    description: Directory of the containers of plain LXC.
    type: path
    default: /var/lib/lxc
  config:
    description: Configuration of the container, where it is not at its usual place.
    type: path
  gpus:
    description:
      - V(all), or the numbers N of C(/dev/nvidiaN), that the container should have. An empty list for none. They, and
        the nodes that all GPUs share, are looked for in a running container.
      - Left out, nothing is looked for.
    type: list
    elements: str
  cpus:
    description: CPUs that the container is bound to, such as V(0-31). Empty for any.
    type: str
    default: ""
  mems:
    description: Memory nodes that the container is bound to. Empty for any.
    type: str
    default: ""
  record_dir:
    description: Directory in which M(tokforge.sglang.lxc_container_restart) notes what it is at.
    type: path
    default: /var/lib/tokforge/host
  root:
    description: Directory that C(/dev) and C(/proc) are read below, for tests.
    type: path
    default: /
seealso:
  - module: tokforge.sglang.lxc_gpu
  - module: tokforge.sglang.lxc_container_restart
"""

EXAMPLES = r"""
- name: See whether a container has all GPUs
  tokforge.sglang.lxc_container_info:
    id: "101"
    gpus: [all]
  register: seen

- name: Stop when it lacks something
  ansible.builtin.assert:
    that: seen.differences == []
    fail_msg: "Container 101: {{ seen.differences | join('; ') }}"
"""

RETURN = r"""
tool:
  description: What manages the container.
  returned: success
  type: str
  sample: pct
config:
  description: Configuration of the container.
  returned: success
  type: str
  sample: /etc/pve/lxc/101.conf
exists:
  description: Whether the configuration is there.
  returned: success
  type: bool
state:
  description: The manager's own word for the state; empty when it does not know the container.
  returned: success
  type: str
  sample: running
running:
  description: Whether it runs.
  returned: success
  type: bool
interrupted:
  description: Whether a restart stopped it and then did not get to start it.
  returned: success
  type: bool
looked:
  description: Whether its nodes, CPUs and memory could be looked at.
  returned: success
  type: bool
why:
  description: Why not; empty when they were.
  returned: success
  type: str
  sample: it does not run
nodes:
  description: Device numbers, C(major:minor), by node. V(null) for one that is not there.
  returned: success
  type: dict
  sample: {"/dev/nvidia0": "195:0", "/dev/nvidia-uvm": null}
cpus:
  description: CPUs that it may use; empty when it was not looked at.
  returned: success
  type: str
  sample: 0-31
mems:
  description: Memory nodes that it may use; empty when it was not looked at.
  returned: success
  type: str
  sample: "0"
differences:
  description: What is not as it should be. A restart makes it right when the configuration is right.
  returned: success
  type: list
  elements: str
  sample: [/dev/nvidia-uvm is not in it]
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    host_cpus,
    lxc_container,
    lxc_devices,
    lxc_inside,
    previous_values,
)


def wanted(params: dict[str, Any], host: lxc_devices.Host) -> lxc_inside.Wanted:
    """What the container should have. Raises DeviceError for a GPU that the host does not have."""
    gpus = lxc_devices.numbers(params["gpus"]) if params["gpus"] else ()
    chosen = host.gpus if gpus is None else gpus
    nodes = lxc_devices.wanted(host, chosen)[0] if params["gpus"] else []
    return lxc_inside.Wanted(tuple(nodes), params["cpus"], params["mems"])


def look(params: dict[str, Any]) -> dict[str, Any]:
    """Look at the container. Raises ContainerError, DeviceError and RecordError."""
    one = lxc_container.choose(params["tool"], params["id"], params["lxc_path"])
    config = params["config"] or one.config
    state = lxc_container.look(one)
    inside, why, found = lxc_inside.Inside(), state.why, []
    if not why and not state.running:
        why = "it does not run"
    if not why and not state.pid:
        why = "lxc-info does not tell its first process"
    if not why and params["gpus"] is not None:
        dev, proc = (os.path.join(params["root"], name) for name in ("dev", "proc"))
        host = lxc_devices.look(dev, os.path.join(proc, "devices"))
        should = wanted(params, host)
        try:
            inside = lxc_inside.look(proc, state.pid, should.nodes)
            found = lxc_inside.differences(inside, should, host)
        except OSError as error:
            why = f"its process {state.pid} cannot be looked at: {error.strerror}"
    return {
        "tool": one.tool,
        "config": config,
        "exists": os.path.isfile(config),
        "state": state.word,
        "running": state.running,
        "interrupted": lxc_container.interrupted(one, state, params["record_dir"]),
        "looked": not why and params["gpus"] is not None,
        "why": why,
        "nodes": {path: f"{number[0]}:{number[1]}" if number else None for path, number in inside.nodes.items()},
        "cpus": host_cpus.shown(inside.cpus),
        "mems": host_cpus.shown(inside.mems),
        "differences": found,
    }


def main() -> None:
    """Look once; never changes anything."""
    module = AnsibleModule(
        argument_spec={
            "id": {"type": "str", "required": True},
            "tool": {"type": "str", "choices": ["auto", "pct", "lxc"], "default": lxc_container.AUTO},
            "lxc_path": {"type": "path", "default": lxc_container.LXC_PATH},
            "config": {"type": "path"},
            "gpus": {"type": "list", "elements": "str"},
            "cpus": {"type": "str", "default": ""},
            "mems": {"type": "str", "default": ""},
            "record_dir": {"type": "path", "default": previous_values.RECORD_DIR},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    try:
        result = look(module.params)
    except (lxc_container.ContainerError, lxc_devices.DeviceError, previous_values.RecordError) as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
