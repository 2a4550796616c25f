#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_parameter
short_description: Have a set of kernel parameters, and put back what is no longer in it
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Sets parameters below C(/proc/sys), reads each back, and keeps them in one file of its own for the next start.
  - The set is declared as a whole. A parameter that this module set before and that is not in O(parameters) any more
    gets back the value that it had before, and so does everything with an empty set.
  - What the values were is noted in O(record_dir) before the first change. Files of others are never changed. When one
    that comes later sets the same parameter to something else, the module fails and names it, since that one would win
    at the next start.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - Whether the kernel takes a value is known only after it was written.
  diff_mode:
    support: full
    details:
      - Shows the file, and the kernel's values one a line.
options:
  parameters:
    description: Values by name, such as C(kernel.numa_balancing) with 0. Several numbers are a text with spaces.
    type: dict
    default: {}
  file:
    description: File for the values, wholly of this module. Other files in its directory are looked at.
    type: path
    default: /etc/sysctl.d/99-tokforge-host.conf
  proc_sys:
    description: The kernel's directory of parameters. For tests and images.
    type: path
    default: /proc/sys
  record_dir:
    description: Directory where it is noted what the settings of this host were.
    type: path
    default: /var/lib/tokforge/host
notes:
  - Module ansible.posix.sysctl edits a file that others write too, does not know what was there before, and cannot tell
    which file wins.
  - Run it on the machine itself, since a container sees most parameters of its machine and may not set them.
seealso:
  - module: tokforge.sglang.module_options
"""

EXAMPLES = r"""
- name: Leave memory where it is, and reserve huge pages
  tokforge.sglang.kernel_parameter:
    parameters:
      kernel.numa_balancing: 0
      vm.nr_hugepages: 1024

- name: Put back what was there before
  tokforge.sglang.kernel_parameter:
    parameters: {}
"""

RETURN = r"""
parameters:
  description: The parameters that are asked for, and those that are put back.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name with dots.
      type: str
      sample: kernel.numa_balancing
    before:
      description: Value before. Null when the kernel has no such parameter any more.
      type: str
      sample: "1"
    after:
      description: Value afterwards, in check mode what it would be.
      type: str
      sample: "0"
    status:
      description: V(set), V(already), V(restored), or V(gone) when the kernel does not have it any more.
      type: str
      sample: set
reads:
  description: What the kernel reads after the value was written.
  returned: when a value does not stick
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import previous_values, sysctl_parameters
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """What the module returns. Raises ParameterError, OwnFileError and RecordError."""
    paths = sysctl_parameters.Paths(params["proc_sys"], params["file"], record_dir=params["record_dir"])
    plan = sysctl_parameters.decide(params["parameters"], paths)
    if not check_mode:
        sysctl_parameters.apply(plan, paths)
    values = params["proc_sys"]
    return {
        "changed": plan.changed,
        "parameters": sysctl_parameters.described(plan.entries),
        "diff": [
            {
                "before_header": params["file"],
                "after_header": params["file"],
                "before": plan.before or "",
                "after": plan.text or "",
            },
            {
                "before_header": values,
                "after_header": values,
                "before": sysctl_parameters.lines(plan.entries, after=False),
                "after": sysctl_parameters.lines(plan.entries, after=True),
            },
        ],
    }


def main() -> None:
    """Set what is asked, put back what is not asked any more."""
    module = AnsibleModule(
        argument_spec={
            "parameters": {"type": "dict", "default": {}},
            "file": {"type": "path", "default": sysctl_parameters.FILE},
            "proc_sys": {"type": "path", "default": sysctl_parameters.PROC_SYS},
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
