#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: pcie_acs
short_description: Switch off access control services on the bridges above GPUs
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Clears the ACS Control Register of every bridge above the devices, root ports and switch ports alike, and reads it
    back. Bridges with none of the devices below them are never touched.
  - GPUs below one root complex then reach each other without the detour over it. Devices below these bridges are no
    longer kept apart from each other.
  - Devices that the driver C(vfio-pci) gives to a virtual machine are left out, and a bridge above both such a device
    and one of O(devices) is a failure before anything is changed. A bridge that was switched off, and has such a device
    below it by now, is put back. A device that is given away only when its machine starts is not known before.
  - What the registers were is noted in O(record_dir) before the first change, and O(state=absent) puts it back.
  - What is set is lost when the machine starts again.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - Whether a value sticks is known only after it was written.
  diff_mode:
    support: full
    details:
      - Shows the register of every bridge, one a line.
options:
  devices:
    description:
      - PCI addresses with domain. Left out, all NVIDIA GPUs on the bus are meant. A device that does not exist is a
        failure, no GPU at all is none.
      - With O(state=absent) all bridges that are noted are meant.
    type: list
    elements: str
  state:
    description:
      - V(off) clears the register.
      - V(absent) puts back what is noted and forgets it. A bridge that is not there any more, or another one in its
        place, is reported and forgotten.
    type: str
    choices: ["off", absent]
    default: "off"
  sys_pci:
    description: The kernel's directory of the PCI bus. For tests and images.
    type: path
    default: /sys/bus/pci
  record_dir:
    description: Directory where it is noted what the settings of this host were.
    type: path
    default: /var/lib/tokforge/host
notes:
  - Needs root, on the machine itself. A container is not allowed to, and neither is anybody where the kernel is locked
    down, as with Secure Boot.
  - RV(ignore:changed) is about the bridges. That something is noted or forgotten is no change.
seealso:
  - module: tokforge.sglang.pcie_read_request
"""

EXAMPLES = r"""
- name: Let GPUs reach each other across their switches
  tokforge.sglang.pcie_acs:

- name: Put back what the bridges had before
  tokforge.sglang.pcie_acs:
    state: absent
"""

RETURN = r"""
devices:
  description: Devices whose bridges are meant. Empty with O(state=absent).
  returned: success
  type: list
  elements: str
  sample: ["0000:41:00.0", "0000:42:00.0"]
given_to_vms:
  description: Devices that are left out, since C(vfio-pci) gives them to a virtual machine. Empty with O(state=absent).
  returned: success
  type: list
  elements: str
  sample: []
bridges:
  description: The bridges, from the root down. On a failure those that were done until then.
  returned: success, and when a bridge could not be set
  type: list
  elements: dict
  contains:
    address:
      description: Address as the kernel writes it.
      type: str
      sample: "0000:40:01.1"
    before:
      description: Register before, four hexadecimal digits. Null for a bridge without access control services.
      type: str
      sample: 001d
    after:
      description: Register afterwards, in check mode what it would be.
      type: str
      sample: "0000"
    status:
      description:
        - With O(state=off) V(set), V(already) or V(no_acs) for a bridge without access control services. Those of
          O(state=absent) for one that is above a device of a virtual machine by now.
        - With O(state=absent) V(restored), V(not_ours) when another bridge has the address by now, V(gone) when none.
      type: str
      sample: set
reads:
  description: Register that a bridge reads after another value was written.
  returned: when a value does not stick
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import pcie_acs, pcie_config, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """What the module returns. Raises PciError and RecordError."""
    where = (params["sys_pci"], params["record_dir"], check_mode)
    outcome = pcie_acs.absent(*where) if params["state"] == "absent" else pcie_acs.present(params["devices"], *where)
    header = f"ACS Control Register in {params['sys_pci']}/devices"
    return {
        "changed": outcome.changed,
        "devices": list(outcome.devices),
        "given_to_vms": list(outcome.given),
        "bridges": pcie_acs.described(outcome.entries),
        "diff": {
            "before_header": header,
            "after_header": header,
            "before": pcie_acs.lines(outcome.entries, after=False),
            "after": pcie_acs.lines(outcome.entries, after=True),
        },
    }


def main() -> None:
    """Switch off or put back."""
    module = AnsibleModule(
        argument_spec={
            "devices": {"type": "list", "elements": "str"},
            "state": {"type": "str", "choices": ["off", "absent"], "default": "off"},
            "sys_pci": {"type": "path", "default": pcie_config.SYS_PCI},
            "record_dir": {"type": "path", "default": previous_values.RECORD_DIR},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module.params, module.check_mode)
    except HostError as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
