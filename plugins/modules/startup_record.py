#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: startup_record
short_description: Put a start of the SGLang server on record
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Adds to C(state/starts.json) below O(root) what the last start of the server took, rank by rank, or why it failed,
    what the launcher found of the tuning results before it, and what is there of them now. The last 50 starts are kept.
  - A later wait shows from it how long a start like this one takes, and a server that is on record is not looked at
    rank by rank again.
  - Does nothing for a start that is on record already, and nothing when there was none since the machine booted.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
options:
  root:
    description: Root directory of the server on the target.
    type: path
    required: true
  start:
    description: What M(tokforge.sglang.wait_for_ranks) returned as RV(tokforge.sglang.wait_for_ranks#module:start).
    type: dict
    required: true
  output_check:
    description: The verdict of M(tokforge.sglang.output_check_info) about this server, where it was checked.
    type: dict
  content_id:
    description: Which launch arguments it is, as M(tokforge.sglang.release) names them.
    type: str
    default: ""
  autotune_fallback:
    description: Autotune was disabled for this start because the start before failed inside it.
    type: bool
    default: false
seealso:
  - module: tokforge.sglang.wait_for_ranks
"""

EXAMPLES = r"""
- name: Put the start on record
  tokforge.sglang.startup_record:
    root: /opt/sglang
    start: "{{ waited.start }}"
    output_check: "{{ checked.output_check }}"
"""

RETURN = r"""
record:
  description: The start on record, or null when there was none.
  type: dict
  returned: success
  contains:
    state:
      description: V(ready) or V(failed).
      type: str
    failure:
      description: Of a failed start its reason, rank, stage and last line, and whether a start without autotune may do
        better; otherwise null.
      type: dict
    ready_s:
      description: Seconds from the start of the process to the server's own word that it is ready.
      type: float
    cold:
      description: Whether kernels had to be compiled or tuned.
      type: bool
    durations:
      description: Seconds of the parts, as M(tokforge.sglang.startup_info) returns them.
      type: dict
    noise:
      description: Lines that look like trouble and are none, by kind, such as skipped tactics.
      type: dict
    cache_before:
      description: What the launcher said of the tuning results before it started the server.
      type: str
    cache_after:
      description: The state of each set of tuning results that this server uses, by its directory.
      type: dict
    autotune:
      description: Whether autotune was expected, and which ranks completed it.
      type: dict
    autotune_outcome:
      description: One of C(completed), C(incomplete), C(not_expected), C(none) and C(disabled_fallback).
      type: str
    output_check:
      description: The verdict about the output, or null.
      type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import start_history, start_record
from ansible_collections.tokforge.sglang.plugins.module_utils.service import Paths


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "start": {"type": "dict", "required": True},
            "output_check": {"type": "dict"},
            "content_id": {"type": "str", "default": ""},
            "autotune_fallback": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given: dict[str, Any] = module.params
    try:
        before, record = start_record.make(
            Paths(given["root"]),
            given["start"],
            given["output_check"],
            given["content_id"],
            given["autotune_fallback"],
        )
        changed = record is not None and start_history.add(given["root"], record, write=not module.check_mode)
    except start_history.HistoryError as error:
        module.fail_json(msg=str(error))
    module.exit_json(
        changed=changed,
        record=record,
        diff={"before": {"start": before}, "after": {"start": record if changed else before}},
    )


if __name__ == "__main__":
    main()
