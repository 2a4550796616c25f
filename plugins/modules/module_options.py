#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: module_options
short_description: Have options of kernel modules, in the initramfs too
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Writes options of kernel modules to one file of its own and refreshes the initramfs when that changed, or when a run
    before was ended between the two.
  - The set is declared as a whole; with an empty one the file is removed. Files of others are never changed. When one
    that comes later sets the same parameter to something else, the module fails and names it.
  - Never loads or unloads a module. What the loaded ones do not have yet is in RV(pending).
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows the file before and after.
options:
  options:
    description: Parameters by module, such as C(nvidia_uvm) with C(uvm_disable_hmm) 1.
    type: dict
    default: {}
  file:
    description: File for the options, wholly of this module. Other files in its directory are looked at.
    type: path
    default: /etc/modprobe.d/tokforge-host.conf
  refresh_command:
    description: Command and arguments that refresh the initramfs. By default C(update-initramfs -u -k all).
    type: list
    elements: str
  sys_module:
    description: The kernel's directory of modules. For tests and images.
    type: path
    default: /sys/module
  record_dir:
    description: Directory where it is noted that a refresh is due.
    type: path
    default: /var/lib/tokforge/host
seealso:
  - module: tokforge.sglang.kernel_parameter
"""

EXAMPLES = r"""
- name: Keep NVIDIA's unified memory from watching all memory of a process
  tokforge.sglang.module_options:
    options:
      nvidia_uvm:
        uvm_disable_hmm: 1
  register: uvm

- name: Say that a reboot is due
  ansible.builtin.debug:
    msg: "{{ uvm.pending | map(attribute='parameter') | join(', ') }} counts from the next start on"
  when: uvm.pending | length > 0
"""

RETURN = r"""
file:
  description: File with the options.
  returned: success
  type: str
  sample: /etc/modprobe.d/tokforge-host.conf
refreshed:
  description: Whether the initramfs was refreshed, in check mode whether it would be.
  returned: success
  type: bool
  sample: true
pending:
  description: Parameters that a loaded module does not have, or whose module is not loaded.
  returned: success
  type: list
  elements: dict
  contains:
    module:
      description: Name of the module.
      type: str
      sample: nvidia_uvm
    parameter:
      description: Name of its parameter.
      type: str
      sample: uvm_disable_hmm
    wanted:
      description: Value that is asked for.
      type: str
      sample: "1"
    found:
      description: Value that the loaded module has; empty when it is not loaded.
      type: str
      sample: N
    status:
      description: V(other_value) or V(not_loaded).
      type: str
      sample: other_value
output:
  description: Last lines of the command that refreshes the initramfs.
  returned: when it failed
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    modprobe_options,
    previous_values,
    run_command,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """What the module returns. Raises OptionsError, OwnFileError and RecordError."""
    file, record_dir = params["file"], params["record_dir"]
    plan = modprobe_options.decide(params["options"], file, modprobe_options.DIRECTORIES, record_dir)
    if not check_mode:
        command = params["refresh_command"] or modprobe_options.REFRESH
        modprobe_options.apply(plan, file, command, record_dir, run_command.run)
    waiting = (modprobe_options.OTHER_VALUE, modprobe_options.NOT_LOADED)
    return {
        "changed": plan.changed,
        "file": file,
        "refreshed": plan.refresh,
        "pending": [
            {
                "module": each.module,
                "parameter": each.parameter,
                "wanted": each.wanted,
                "found": each.found,
                "status": each.status,
            }
            for each in modprobe_options.loaded(params["options"], params["sys_module"])
            if each.status in waiting
        ],
        "diff": {
            "before_header": file,
            "after_header": file,
            "before": plan.before or "",
            "after": plan.text or "",
        },
    }


def main() -> None:
    """Write the file, refresh the initramfs, compare with what is loaded."""
    module = AnsibleModule(
        argument_spec={
            "options": {"type": "dict", "default": {}},
            "file": {"type": "path", "default": modprobe_options.FILE},
            "refresh_command": {"type": "list", "elements": "str"},
            "sys_module": {"type": "path", "default": modprobe_options.SYS_MODULE},
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
