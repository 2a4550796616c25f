#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: wait_until_ready
short_description: Wait until the SGLang server that was started truly serves
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Repeats M(tokforge.sglang.readiness_info) from the controller until it says V(ready), shows a line when something
    changed and every 5 seconds, with the newest line of the log, and fails at once when the server has ended, with how
    it ended and the end of its log.
  - Holds no connection open between looks. A connection that drops is shown and tried again until O(timeout_s).
  - This is an action plugin.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: partial
    details:
      - Looks once and does not wait. The task is skipped, with a reason, when the server is not ready.
  diff_mode:
    support: N/A
    details:
      - It changes nothing.
options:
  timeout_s:
    description: Seconds until the wait is given up.
    type: float
    default: 600
  poll_s:
    description: Seconds between two looks. By default 1 in the first 10 seconds, then 2.
    type: float
  look_timeout_s:
    description: Limit of one look in seconds, O(tokforge.sglang.readiness_info#module:timeout_s).
    type: float
    default: 10
  root:
    description: See M(tokforge.sglang.readiness_info).
    type: path
    required: true
  manager:
    description: See M(tokforge.sglang.readiness_info).
    type: str
    choices: [auto, systemd, supervisor]
    default: auto
  name:
    description: See M(tokforge.sglang.readiness_info).
    type: str
    default: sglang
  host:
    description: See M(tokforge.sglang.readiness_info).
    type: str
    default: 127.0.0.1
  port:
    description: See M(tokforge.sglang.readiness_info).
    type: int
    default: 30000
  served_name:
    description: See M(tokforge.sglang.readiness_info).
    type: str
  log_position:
    description: See M(tokforge.sglang.readiness_info).
    type: dict
  random_weights:
    description: See M(tokforge.sglang.readiness_info).
    type: bool
  probe:
    description: See M(tokforge.sglang.readiness_info).
    type: bool
    default: true
  max_new_tokens:
    description: See M(tokforge.sglang.readiness_info).
    type: int
    default: 8
  logprobs:
    description: See M(tokforge.sglang.readiness_info).
    type: bool
    default: false
  release:
    description: See M(tokforge.sglang.readiness_info).
    type: int
seealso:
  - module: tokforge.sglang.readiness_info
  - module: tokforge.sglang.server_service
"""

EXAMPLES = r"""
- name: Wait until it serves
  tokforge.sglang.wait_until_ready:
    root: /opt/sglang
    served_name: glm-5
    timeout_s: 1200
"""

RETURN = r"""
state:
  description:
    - The last look's state, and every other value of M(tokforge.sglang.readiness_info) beside it.
    - A failure has RV(ignore:msg) with the end of the log, and therefore none of C(log_tail), C(log_benign),
      C(log_newest) and C(first_exception).
  type: str
  returned: always
  sample: ready
waited_s:
  description: Seconds from the first look to the last.
  type: float
  returned: when it waited
  sample: 17.4
looks:
  description: How often it looked.
  type: int
  returned: when it waited
  sample: 16
reason:
  description: Why it failed. V(failed) (the server ended or cannot serve), V(stopped) or V(timeout).
  type: str
  returned: failure
  sample: timeout
"""
