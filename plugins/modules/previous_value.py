#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: previous_value
short_description: Note what a host had before it is changed, or forget it
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Keeps notes that the other modules for hosts keep as well, for what they do not know. A key that is noted keeps its
    value, so what is noted is what was there before the first change.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  values:
    description: Values by key to note. With O(state=absent) only the keys count.
    type: dict
    required: true
  state:
    description: V(present) notes the keys that are not noted yet, V(absent) forgets the keys.
    type: str
    choices: [present, absent]
    default: present
  record_dir:
    description: Directory of the notes.
    type: path
    default: /var/lib/tokforge/host
notes:
  - RV(ignore:changed) is always false, since a note changes nothing of the host.
"""

EXAMPLES = r"""
- name: Note which tokens are ours
  tokforge.sglang.previous_value:
    values:
      host_tuning_token/iommu=pt: true
"""

RETURN = r"""
values:
  description: All that is noted afterwards, in check mode what would be.
  returned: success
  type: dict
  sample: {"host_tuning_token/iommu=pt": true}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import previous_values


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """What the module returns. Raises RecordError."""
    known, given = previous_values.read(params["record_dir"]), params["values"]
    if params["state"] == "present":
        after = {**given, **known}
        if not check_mode and after != known:
            previous_values.remember(params["record_dir"], given)
    else:
        after = {key: value for key, value in known.items() if key not in given}
        if not check_mode:
            previous_values.forget(params["record_dir"], given)
    return {"changed": False, "values": after}


def main() -> None:
    """Note or forget."""
    module = AnsibleModule(
        argument_spec={
            "values": {"type": "dict", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "record_dir": {"type": "path", "default": previous_values.RECORD_DIR},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module.params, module.check_mode)
    except previous_values.RecordError as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
