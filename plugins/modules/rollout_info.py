#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_info
short_description: Tell who is at work below a root, and what became of the last rollouts
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Reads the lock and the journal that module tokforge.sglang.rollout keeps.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  root:
    description: Directory that holds everything a rollout makes on the target.
    type: path
    required: true
  lease_s:
    description: As for module tokforge.sglang.rollout.
    type: float
    default: 7200
seealso:
  - module: tokforge.sglang.rollout
"""

EXAMPLES = r"""
- name: See whether a rollout was cut off
  tokforge.sglang.rollout_info:
    root: /opt/sglang
  register: rollouts
"""

RETURN = r"""
lock:
  description: V(free), V(held) when a play is at work, or V(stale) when the one that holds it is over.
  returned: success
  type: str
why:
  description: What that was read from.
  returned: success
  type: str
holder:
  description: Who holds the lock, null when nobody does.
  returned: success
  type: dict
open:
  description: The rollout that is switching now, or that was cut off then. Null when there is none.
  returned: success
  type: dict
ended:
  description: Rollouts that ended, the newest last, but for those that changed nothing.
  returned: success
  type: list
  elements: dict
  sample: [{what: deploy, by: deploy@ci-1, release: 4, previous: 3, outcome: rolled_back, reason: rank TP2 failed}]
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import proc, rollout_journal, rollout_lock


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "lease_s": {"type": "float", "default": 7200},
        },
        supports_check_mode=True,
    )
    root = module.params["root"]
    now = time.time()
    try:
        lock = rollout_lock.read(root)
        verdict = rollout_lock.judge(lock, "", proc.boot_id(), now, module.params["lease_s"])
        journal = rollout_journal.read(root)
    except (rollout_journal.JournalError, rollout_lock.LockError) as error:
        module.fail_json(msg=str(error), **error.facts)
    for warning in journal.warnings:
        module.warn(warning)
    module.exit_json(
        lock=verdict.kind,
        why=verdict.why,
        holder=rollout_lock.describe(lock, now) if lock else None,
        open=rollout_journal.describe(journal.open) if journal.open else None,
        ended=[rollout_journal.describe(entry) for entry in journal.ended],
    )


if __name__ == "__main__":
    main()
