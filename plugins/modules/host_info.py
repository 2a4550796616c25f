#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: host_info
short_description: Say whose kernel a host runs, and which GPUs and driver it has
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Looks at what decides where provisioning has to be done - whether this is a container, which kernel runs and which
    is started next, whether their headers are there, which NVIDIA GPUs are on the PCI bus, which driver is loaded.
  - Needs no driver. GPUs are told by their PCI device ids.
  - Never fails for what it finds. What cannot be read is empty.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  kind:
    description:
      - What to take the host for. V(auto) sees for itself.
      - The others are for test hosts, such as a container that stands for a machine.
    type: str
    choices: [auto, machine, container]
    default: auto
  root:
    description: Directory that everything is read below. For tests and images.
    type: path
    default: /
  proc_driver:
    description: Directory in which the kernel module tells its version. For tests and images.
    type: path
    default: /proc/driver/nvidia
seealso:
  - module: tokforge.sglang.gpu_info
"""

EXAMPLES = r"""
- name: Look at the host
  tokforge.sglang.host_info:
  register: look

- name: Set what only a machine with its own kernel can set
  ansible.builtin.include_tasks: kernel.yml
  when: look.host.kind == 'machine'
"""

RETURN = r"""
host:
  description: What was seen.
  returned: always
  type: dict
  contains:
    kind:
      description: V(machine) for a host with a kernel of its own, virtual ones included, V(container) for one without.
      type: str
      sample: machine
    container:
      description: What kind of container it is, as its manager calls it; empty outside of one.
      type: str
      sample: lxc
    virtual:
      description: Maker of the virtual machine; empty on real hardware.
      type: str
      sample: QEMU
    proxmox:
      description: Version of Proxmox VE; empty without.
      type: str
      sample: 8.2.4
    os:
      description: ID of the distribution in os-release.
      type: str
      sample: debian
    os_version:
      description: VERSION_ID of the distribution.
      type: str
      sample: "12"
    codename:
      description: VERSION_CODENAME of the distribution.
      type: str
      sample: bookworm
    kernel:
      description: Release of the running kernel.
      type: str
      sample: 6.8.12-4-pve
    next_kernel:
      description: Release that the boot loader starts next; empty when that cannot be told, and in a container.
      type: str
      sample: 6.8.12-4-pve
    next_kernel_why:
      description: What tells the next kernel, or why nothing does.
      type: str
      sample: it is the newest in /boot
    headers:
      description: Headers of the running and the next kernel. Empty in a container.
      type: list
      elements: dict
      contains:
        release:
          description: Release of the kernel.
          type: str
          sample: 6.8.12-4-pve
        present:
          description: Whether they are there, so that a module can be built.
          type: bool
          sample: true
        package:
          description: Package that brings them.
          type: str
          sample: proxmox-headers-6.8.12-4-pve
    gpus:
      description: NVIDIA GPUs on the PCI bus.
      type: list
      elements: dict
      contains:
        address:
          description: PCI address.
          type: str
          sample: "0000:01:00.0"
        device_id:
          description: PCI device id, four hexadecimal digits.
          type: str
          sample: 2bb1
        architecture:
          description: V(older) for all before Turing, V(unknown) for ids that are in no table.
          type: str
          sample: blackwell
        needs_open_module:
          description: Whether only NVIDIA's open kernel module drives it.
          type: bool
          sample: true
        can_open_module:
          description: Whether NVIDIA's open kernel module drives it.
          type: bool
          sample: true
        driver:
          description: Kernel driver that has the device; empty for none.
          type: str
          sample: nvidia
        numa_node:
          description: NUMA node of the device, -1 when the machine does not say.
          type: int
          sample: 0
        cpus:
          description: CPUs near the device, as the kernel lists them.
          type: str
          sample: 0-31
    driver:
      description: What is loaded. In a container it is what its machine has loaded.
      type: dict
      contains:
        loaded_version:
          description: Version of the loaded kernel module; empty for none.
          type: str
          sample: 580.95.05
        loaded_kind:
          description: V(open) or V(closed); empty when none is loaded.
          type: str
          sample: open
        nouveau_loaded:
          description: Whether nouveau is loaded.
          type: bool
          sample: false
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import host_identity


def main() -> None:
    """Look once; never changes anything."""
    module = AnsibleModule(
        argument_spec={
            "kind": {
                "type": "str",
                "choices": [host_identity.AUTO, host_identity.MACHINE, host_identity.CONTAINER],
                "default": host_identity.AUTO,
            },
            "root": {"type": "path", "default": "/"},
            "proc_driver": {"type": "path", "default": "/proc/driver/nvidia"},
        },
        supports_check_mode=True,
    )

    def run(command: Any) -> str:
        if module.get_bin_path(command[0]) is None:
            return ""
        code, out, _err = module.run_command(list(command))
        return out if code == 0 else ""

    given = module.params
    host = host_identity.look(given["root"], given["kind"], run, os.uname().release, given["proc_driver"])
    module.exit_json(changed=False, host=host)


if __name__ == "__main__":
    main()
