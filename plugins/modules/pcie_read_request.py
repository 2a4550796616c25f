#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: pcie_read_request
short_description: Set the largest read request of PCI Express devices
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Sets Max_Read_Request_Size, bits 14 to 12 of the register Device Control, and leaves every other bit as it is.
  - Writes two bytes of the file C(config) that the kernel has for the device, and reads them back. C(setpci) writes
    the same file and is not needed.
  - The specification lets a device that makes no large requests of its own, such as a port of a switch, ignore the
    write. That is reported as C(unchanged_readonly) and is no failure.
  - What the size was is noted in O(record_dir) before the first change, and O(state=absent) puts it back.
  - A device that the driver C(vfio-pci) gives to a virtual machine is left as it is, and what is noted of it stays.
  - A larger size is not a faster device. NVIDIA recommends 4096 bytes for network adapters; for GPUs no gain is known.
    Measure it.
  - What is set is lost when the machine starts again or the device is reset.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - Whether a device ignores the write is known only once it was written. It is noted then, so that check mode and
        later runs know it. Before, check mode takes every device for one that can be set.
  diff_mode:
    support: full
    details:
      - Shows the size of every device, one a line.
options:
  devices:
    description:
      - PCI addresses with domain, as C(lspci -D) and C(nvidia-smi) write them. All are looked at before the first is
        changed, and one that does not exist or is no PCI Express device is a failure.
      - Needed with O(state=present). Left out with O(state=absent), all devices that are noted are meant.
    type: list
    elements: str
  bytes:
    description:
      - Size to set, in bytes. Needed with O(state=present).
      - Any of them is allowed for any device. The largest payload of the device has nothing to do with it, since the
        answer to a request comes in as many parts as are needed.
    type: int
    choices: [128, 256, 512, 1024, 2048, 4096]
  state:
    description:
      - V(present) sets the size.
      - V(absent) puts back what is noted and forgets it, also which devices ignore the write. A device that is not
        there any more, or another one in its place, is reported and forgotten.
    type: str
    choices: [present, absent]
    default: present
  sys_pci:
    description: The kernel's directory of the PCI bus. For tests and images.
    type: path
    default: /sys/bus/pci
  record_dir:
    description: Directory where it is noted what the settings of this host were.
    type: path
    default: /var/lib/tokforge/host
notes:
  - Needs root, since others may read only the first 64 bytes of C(config). A kernel that is locked down, as with
    Secure Boot, lets nobody write it. A container is not allowed to; run the module on the hypervisor.
  - RV(ignore:changed) is about the devices. That something is noted or forgotten is no change.
seealso:
  - module: tokforge.sglang.cpu_governor
"""

EXAMPLES = r"""
- name: Let a network adapter ask for 4096 bytes at once
  tokforge.sglang.pcie_read_request:
    devices: ["0000:c1:00.0"]
    bytes: 4096

- name: Put back what all devices had before
  tokforge.sglang.pcie_read_request:
    state: absent
"""

RETURN = r"""
devices:
  description: The devices in the order asked for, each once. On a failure those that were done until then.
  returned: success, and when a device could not be set
  type: list
  elements: dict
  contains:
    address:
      description: Address as the kernel writes it.
      type: str
      sample: "0000:c1:00.0"
    before:
      description: Size before, in bytes. Null when there is no such device, it has no such size, or it is not read.
      type: int
      sample: 512
    after:
      description: Size afterwards, in check mode what it would be.
      type: int
      sample: 4096
    wanted:
      description: Size that was to be set or put back. Null when nothing was.
      type: int
      sample: 4096
    status:
      description:
        - V(given_to_vm) of a device that is left to a virtual machine.
        - With O(state=present) V(set), V(already) or V(unchanged_readonly).
        - With O(state=absent) V(restored), V(not_ours) when nothing is noted of this device, V(gone) when there is no
          such device.
      type: str
      sample: set
reads:
  description: Size that the device reads after another one was written.
  returned: when a device takes another size than that asked for
  type: int
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import pcie_config, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """What the module returns. Raises PciError and RecordError."""
    where = (params["sys_pci"], params["record_dir"], check_mode)
    if params["state"] == "present":
        outcome = pcie_config.present(params["devices"], params["bytes"], *where)
    else:
        outcome = pcie_config.absent(params["devices"], *where)
    header = f"Max_Read_Request_Size in {params['sys_pci']}/devices"
    return {
        "changed": outcome.changed,
        "devices": pcie_config.described(outcome.entries),
        "diff": {
            "before_header": header,
            "after_header": header,
            "before": pcie_config.lines(outcome.entries, after=False),
            "after": pcie_config.lines(outcome.entries, after=True),
        },
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "devices": {"type": "list", "elements": "str"},
            "bytes": {"type": "int", "choices": list(pcie_config.READ_REQUESTS)},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "sys_pci": {"type": "path", "default": pcie_config.SYS_PCI},
            "record_dir": {"type": "path", "default": previous_values.RECORD_DIR},
        },
        required_if=[("state", "present", ["devices", "bytes"])],
        supports_check_mode=True,
    )
    try:
        result = run(module.params, module.check_mode)
    except HostError as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
