#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: lxc_container_restart
short_description: Restart an LXC container, so that it sees its configuration
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Restarts a container of Proxmox VE with C(pct reboot), which also applies pending changes, and one of plain LXC with
    C(lxc-stop) and C(lxc-start), since a reboot by LXC keeps the old configuration. Runs on the host of the container.
  - A container that does not run stays as it is, unless an earlier run of this module stopped it and was interrupted
    before it could start it. That one is started.
  - Waits until it runs again as another process. V(now) restarts each time, so guard it with a condition.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - Says whether it would be restarted or started.
  diff_mode:
    support: none
    details:
      - There is no text to compare.
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
  how:
    description:
      - V(now) restarts it.
      - V(later) is for the time before its machine is rebooted. It only notes of a container that runs that it is to
        run again.
      - V(noted) is for the time after. A container that was noted and did not start with its machine is started. One
        that did loses its note.
    type: str
    choices: [now, later, noted]
    default: now
  lxc_path:
    description: Directory of the containers of plain LXC.
    type: path
    default: /var/lib/lxc
  timeout_s:
    description:
      - Seconds that it gets to shut down, and as many to start. What does not shut down in time is stopped hard.
    type: int
    default: 120
  record_dir:
    description: Directory in which is noted that a restart is under way.
    type: path
    default: /var/lib/tokforge/host
seealso:
  - module: tokforge.sglang.lxc_container_info
"""

EXAMPLES = r"""
- name: Restart a container that does not see its GPUs
  tokforge.sglang.lxc_container_restart:
    id: "101"
  when: seen.differences != []

- name: Have it run again after the reboot of its machine
  tokforge.sglang.lxc_container_restart:
    id: "101"
    how: later
"""

RETURN = r"""
tool:
  description: What manages the container.
  returned: success
  type: str
  sample: pct
before:
  description: State before; empty when its manager does not know the container.
  returned: success
  type: str
  sample: running
state:
  description: State now, in check mode the one that it would have.
  returned: success
  type: str
  sample: running
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import lxc_container, previous_values


def restart(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Restart it where it runs. Raises ContainerError and RecordError."""
    one = lxc_container.choose(params["tool"], params["id"], params["lxc_path"])
    if params["timeout_s"] < 1:
        raise lxc_container.ContainerError(
            f"reading timeout_s {params['timeout_s']}: a container needs some time; give at least 1 second",
            timeout_s=params["timeout_s"],
        )
    state = lxc_container.look(one)
    if not state.word:
        raise lxc_container.ContainerError(
            f"restarting container {one.name}: {state.why}; give the id of a container that is there", id=one.name
        )
    due = lxc_container.due(one, state, params["how"], params["record_dir"])
    if not due and not check_mode:
        lxc_container.keep_note(one, state, params["how"], params["record_dir"])
    now = state.word
    if due and check_mode:
        now = "running"
    elif due:
        now = lxc_container.restart(one, state, params["timeout_s"], params["record_dir"]).word
    return {"changed": due, "tool": one.tool, "before": state.word, "state": now}


def main() -> None:
    """Restart one container."""
    module = AnsibleModule(
        argument_spec={
            "id": {"type": "str", "required": True},
            "tool": {"type": "str", "choices": ["auto", "pct", "lxc"], "default": lxc_container.AUTO},
            "how": {"type": "str", "choices": list(lxc_container.HOW), "default": lxc_container.NOW},
            "lxc_path": {"type": "path", "default": lxc_container.LXC_PATH},
            "timeout_s": {"type": "int", "default": 120},
            "record_dir": {"type": "path", "default": previous_values.RECORD_DIR},
        },
        supports_check_mode=True,
    )
    try:
        result = restart(module.params, module.check_mode)
    except (lxc_container.ContainerError, previous_values.RecordError) as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
