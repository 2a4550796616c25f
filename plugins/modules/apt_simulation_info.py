#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_simulation_info
short_description: Tell what apt would do, and refuse what it must not
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Simulates a transaction with C(apt-get -s) and tells what would be installed, changed and removed.
  - Works without root, and without C(python3-apt). Recommended packages are left out, downgrades and held packages are
    allowed, as M(tokforge.sglang.apt_transaction) does it.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  packages:
    description: Packages, each C(name), C(name=version), C(name=version*), or C(name-) for one that is to go.
    type: list
    elements: str
    required: true
  state:
    description: Whether to simulate that they come or that they go.
    type: str
    choices: [present, absent]
    default: present
  refuse:
    description:
      - What makes the module fail when the transaction has it.
      - V(kernel) is a kernel that is installed, changed or removed. V(kernel_module) is a package with kernel modules,
        or that is there to build them, which is installed or changed. V(driver) is any package of the NVIDIA driver.
        V(other_removal) is the removal of what is not of the driver.
    type: list
    elements: str
    choices: [kernel, kernel_module, driver, other_removal]
    default: []
  apt_options:
    description: More settings for C(apt-get -o), each C(NAME=VALUE). For tests and images.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: See that the toolkit touches neither driver nor kernel
  tokforge.sglang.apt_simulation_info:
    packages:
      - cuda-toolkit-13-0
    refuse:
      - kernel
      - kernel_module
      - driver
  register: simulation
"""

RETURN = r"""
installs:
  description: What would be new.
  returned: success, and when it is refused
  type: list
  elements: dict
  contains: &change
    name:
      description: Name of the package, with its architecture where that is not the host's.
      type: str
      sample: libcuda1
    version:
      description: Version that it would have; empty when it would go.
      type: str
      sample: 580.95.05-1
    before:
      description: Version that it has; empty when it is not there.
      type: str
      sample: ""
upgrades:
  description: What would have another version.
  returned: success, and when it is refused
  type: list
  elements: dict
  contains: *change
removes:
  description: What would go.
  returned: success, and when it is refused
  type: list
  elements: dict
  contains: *change
downgrades:
  description: Names among RV(upgrades) that would become older.
  returned: success, and when it is refused
  type: list
  elements: str
  sample: []
unfinished:
  description: Packages that an earlier run left unpacked and not configured, and that apt would configure.
  returned: success, and when it is refused
  type: list
  elements: str
  sample: []
changes:
  description: Whether anything would change.
  returned: success, and when it is refused
  type: bool
  sample: true
refused:
  description: Names that are refused, by class.
  returned: when something is refused
  type: dict
  sample: {kernel: [linux-image-6.1.0-40-amd64]}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import apt_run, apt_simulation
from ansible_collections.tokforge.sglang.plugins.module_utils.apt_simulation import SimulationError


def look(params: dict[str, Any], run: apt_run.Run) -> dict[str, Any]:
    """What the module returns. Raises SimulationError."""
    apt = apt_run.Apt(run, tuple(params["apt_options"]))
    transaction = apt.simulate(params["packages"], params["state"])
    apt_simulation.refuse(transaction, params["refuse"], params["packages"])
    return transaction.as_dict()


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "refuse": {
                "type": "list",
                "elements": "str",
                "choices": ["kernel", "kernel_module", "driver", "other_removal"],
                "default": [],
            },
            "apt_options": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    try:
        result = look(module.params, apt_run.run_apt)
    except SimulationError as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
