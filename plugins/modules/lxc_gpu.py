#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: lxc_gpu
short_description: Pass NVIDIA GPUs on to an LXC container
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Writes the entries for the device nodes of GPUs into the configuration of a container, of Proxmox VE or of plain
    LXC. Runs on the host of the container.
  - Besides C(/dev/nvidiaN) of each GPU, CUDA needs C(/dev/nvidiactl), C(/dev/nvidia-uvm) and C(/dev/nvidia-uvm-tools).
    C(/dev/nvidia-modeset) and C(/dev/nvidia-caps/nvidia-cap1) and C(nvidia-cap2) go along where they are there.
  - Entries that are there already, from an earlier run or by hand, are taken over where they stand, with their index
    and their options. A node never has two entries, and never one of each form.
  - Comments, snapshots, pending changes and all lines that are not about NVIDIA's nodes stay byte for byte.
  - The major numbers of nvidia-uvm and nvidia-caps differ from one kernel to the next. Run the module after each change
    of the kernel or driver; raw rules for old numbers are changed to the new ones. V(dev) entries need no change.
  - A rule C(lxc.cgroup2.devices.allow) is taken for an old one of NVIDIA only when the file mounts NVIDIA's nodes, the
    rule reads C(c MAJOR:* rwm), the number is one that the kernel hands out (234 to 254, 384 to 511), no driver has it
    now, no other node is mounted that is not there and could have had it, and there are not more such rules than
    drivers that lost theirs. What stays is told in RV(kept).
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
  gpus:
    description:
      - V(all), or the numbers N of C(/dev/nvidiaN). That is the minor number in C(nvidia-smi -q), mostly but not always
        the index that C(nvidia-smi) shows.
      - With O(state=present) the container has exactly these GPUs afterwards; the entries of others are removed.
      - With O(state=absent) these lose their entries.
    type: list
    elements: str
    default: [all]
  form:
    description:
      - V(dev) writes C(devN) entries. Proxmox VE then sets owner, mode and permissions itself, also for unprivileged
        containers. Plain LXC and Proxmox VE before 8.1 do not know them.
      - V(raw) writes C(lxc.mount.entry) and C(lxc.cgroup2.devices.allow), which work everywhere.
      - V(auto) is V(raw) for plain LXC and for Proxmox VE before 8.1, and V(dev) from 8.2. For 8.1, and when
        O(pve_version) is not given, it is V(dev) where the file has a C(devN) entry already, otherwise V(raw).
      - Entries in the other form are converted. O(state=absent) removes both.
    type: str
    choices: [auto, dev, raw]
    default: auto
  state:
    description:
      - V(present) has the entries for O(gpus), and for the nodes that all GPUs share.
      - V(absent) removes the entries of O(gpus). Those of the shared nodes, and the rules for NVIDIA's major numbers,
        go with the last GPU. A file that does not exist has no entries.
    type: str
    choices: [present, absent]
    default: present
  pve_version:
    description: Version of Proxmox VE, as in V(8.2.4) or as C(pveversion) prints it. Only O(form) looks at it.
    type: str
  dev_root:
    description: Directory that stands for C(/dev) when nodes are looked for, for tests and images.
    type: path
    default: /dev
  proc_devices:
    description: File that stands for C(/proc/devices), for tests and images.
    type: path
    default: /proc/devices
  lock_dir:
    description:
      - Directory in which Proxmox VE locks the configuration of a container while it changes it. Used where it exists
        and O(path) is named as there.
    type: path
    default: /run/lock/lxc
notes:
  - Nodes that are missing are left out with a warning, since an entry for them could keep the container from starting.
    Entries for them that are in the wanted form stay. Most nodes appear on first use; C(nvidia-modprobe -u -c 0) makes
    them. A missing node of a GPU that was asked for is an error.
seealso:
  - module: tokforge.sglang.gpu_info
  - module: tokforge.sglang.lxc_container_info
  - module: tokforge.sglang.lxc_container_restart
  - module: tokforge.sglang.lxc_numa
"""

EXAMPLES = r"""
- name: Give all GPUs to a container of Proxmox VE
  tokforge.sglang.lxc_gpu:
    path: /etc/pve/lxc/101.conf
    pve_version: 8.4.1
  register: passed_on

- name: Restart it when that is needed
  tokforge.sglang.lxc_container_restart:
    id: "101"
  when: passed_on.restart_needed

- name: Give two GPUs to a container of plain LXC
  tokforge.sglang.lxc_gpu:
    path: /var/lib/lxc/sglang/config
    gpus: [0, 1]

- name: Take them all away
  tokforge.sglang.lxc_gpu:
    path: /var/lib/lxc/sglang/config
    state: absent
"""

RETURN = r"""
form:
  description: Form of the entries. With O(state=absent) the form that they had, V(raw) when there were none.
  returned: success
  type: str
  sample: dev
gpus:
  description: Numbers of the GPUs that the configuration passes on now.
  returned: success
  type: list
  elements: int
  sample: [0, 1]
entries:
  description: The entries for NVIDIA's nodes that are in the file now.
  returned: success
  type: list
  elements: dict
  contains:
    path:
      description: The node, or C(/dev/nvidia-caps) for its directory.
      type: str
      sample: /dev/nvidia0
    form:
      description: V(dev) or V(raw).
      type: str
      sample: dev
    index:
      description: The N of C(devN), V(null) for raw entries.
      type: int
      sample: 0
    line:
      description: The whole line.
      type: str
      sample: "dev0: /dev/nvidia0,mode=0666"
majors:
  description: Major numbers that the drivers have on the host now.
  returned: success
  type: dict
  sample: {"nvidia": 195, "nvidia-caps": 236, "nvidia-uvm": 511}
missing:
  description: Nodes that could be of use and are not there.
  returned: success
  type: list
  elements: str
  sample: [/dev/nvidia-modeset]
kept:
  description: Lines that look as if they belonged to NVIDIA's nodes and that were left, for a reason.
  returned: success
  type: list
  elements: dict
  contains:
    line:
      description: The whole line.
      type: str
      sample: "lxc.cgroup2.devices.allow: c 509:* rwm"
    reason:
      description: Why it stays.
      type: str
      sample: it may be for another driver
restart_needed:
  description:
    - Whether a container that runs with the old file must be restarted to see the nodes of the new one. Not so when
      only the form or options of entries changed.
  returned: success
  type: bool
"""

import contextlib
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import lxc_config, lxc_devices, lxc_file, lxc_plan


def settle(module: AnsibleModule) -> dict[str, Any]:
    """Read, plan and write. Raises ConfigError and DeviceError."""
    params = module.params
    path = params["path"]
    gpus = lxc_devices.numbers(params["gpus"])
    # Check mode waits for nobody: it writes nothing, so nothing can get lost.
    with contextlib.nullcontext() if module.check_mode else lxc_file.locked(path, params["lock_dir"]):
        try:
            data = lxc_file.read(path)
        except FileNotFoundError as error:
            if params["state"] == "absent":
                nothing: dict[str, Any] = {"gpus": [], "entries": [], "majors": {}, "missing": [], "kept": []}
                return {"changed": False, "form": lxc_devices.RAW, "restart_needed": False, **nothing}
            raise lxc_file.missing(path) from error
        config = lxc_config.parse(data, path)
        sources = [one.source for one in lxc_config.mounts(config) if one.source.startswith("/dev/")]
        host = lxc_devices.look(params["dev_root"], params["proc_devices"], sources)
        request = lxc_devices.Request(params["state"], gpus, params["form"], params["pve_version"])
        plan = lxc_plan.plan(config, host, request)
        if plan.changed and not module.check_mode:
            lxc_file.write(path, data, plan.data)
    for warning in plan.warnings:
        module.warn(warning)
    result = plan.as_dict()
    if module._diff:
        result["diff"] = lxc_file.difference(path, data, plan.data)
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "gpus": {"type": "list", "elements": "str", "default": ["all"]},
            "form": {"type": "str", "choices": ["auto", "dev", "raw"], "default": "auto"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "pve_version": {"type": "str"},
            "dev_root": {"type": "path", "default": "/dev"},
            "proc_devices": {"type": "path", "default": "/proc/devices"},
            "lock_dir": {"type": "path", "default": lxc_file.LOCK_DIR},
        },
        supports_check_mode=True,
    )
    try:
        result = settle(module)
    except (lxc_config.ConfigError, lxc_devices.DeviceError) as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
