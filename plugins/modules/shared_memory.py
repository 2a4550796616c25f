#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: shared_memory
short_description: Set the size of the shared memory file system
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Sets the option C(size) of the file system in C(/etc/fstab), where systemd finds it at each start, mounts it again
    with that size and reads it back. All else in the table stays byte for byte.
  - What was there is noted in O(record_dir) before the first change, and O(state=absent) puts it back.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows the table before and after.
options:
  size:
    description: Size, a whole number with V(K), V(M), V(G) or V(T). Needed with O(state=present).
    type: str
  state:
    description: V(present) sets the size, V(absent) puts back what is noted and forgets it.
    type: str
    choices: [present, absent]
    default: present
  mount_point:
    description: Where it is mounted. This option and those below are for tests and images.
    type: path
    default: /dev/shm
  fstab:
    description: Table of file systems.
    type: path
    default: /etc/fstab
  mount_command:
    description: Command that mounts, with arguments before those of the module. By default C(mount).
    type: list
    elements: str
  record_dir:
    description: Directory where it is noted what the settings of this host were.
    type: path
    default: /var/lib/tokforge/host
"""

EXAMPLES = r"""
- name: Let servers share 64 GiB
  tokforge.sglang.shared_memory:
    size: 64G
"""

RETURN = r"""
bytes_before:
  description: Bytes of the file system before; 0 when there was nothing to put back.
  returned: success
  type: int
  sample: 33554432
bytes_after:
  description: Bytes afterwards, in check mode what they would be.
  returned: success
  type: int
  sample: 68719476736
output:
  description: Last lines of the command that mounts.
  returned: when it failed
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import previous_values, run_command, shared_memory
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """What the module returns. Raises SharedMemoryError and RecordError."""
    command = params["mount_command"] or ["mount"]
    where = (params["mount_point"], params["fstab"], params["record_dir"], check_mode, command, run_command.run)
    if params["state"] == "present":
        outcome = shared_memory.present(params["size"], *where)
    else:
        outcome = shared_memory.absent(*where)
    return {
        "changed": outcome.changed,
        "bytes_before": outcome.bytes_before,
        "bytes_after": outcome.bytes_after,
        "diff": {
            "before_header": params["fstab"],
            "after_header": params["fstab"],
            "before": outcome.text_before.decode("utf-8", "replace"),
            "after": outcome.text_after.decode("utf-8", "replace"),
        },
    }


def main() -> None:
    """Set or put back."""
    module = AnsibleModule(
        argument_spec={
            "size": {"type": "str"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "mount_point": {"type": "path", "default": shared_memory.MOUNT_POINT},
            "fstab": {"type": "path", "default": shared_memory.FSTAB},
            "mount_command": {"type": "list", "elements": "str"},
            "record_dir": {"type": "path", "default": previous_values.RECORD_DIR},
        },
        required_if=[("state", "present", ["size"])],
        supports_check_mode=True,
    )
    try:
        result = run(module.params, module.check_mode)
    except HostError as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
