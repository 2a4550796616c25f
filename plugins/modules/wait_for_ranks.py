#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: wait_for_ranks
short_description: Wait until every rank is ready and the SGLang server truly serves
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Repeats M(tokforge.sglang.startup_info) from the controller until every rank is ready, and then
    M(tokforge.sglang.readiness_info) until the server answers with tokens.
  - Shows one progress line (ranks done, stage, operation, seconds, and how long a recorded start like this one had yet
    to go). On a terminal with one host it is written over itself, elsewhere there are plain lines when something
    changed and every 5 seconds.
  - Fails at once when a rank or the server failed, stalled or ended, with the rank, its traceback, the ranks that are
    missing, and what to do.
  - Holds no connection open between looks. A connection that drops is shown and tried again until O(timeout_s).
  - A server that was found ready before and put on record (M(tokforge.sglang.startup_record)) is only asked whether it
    serves.
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
    description:
      - Seconds until the wait is given up. By default 3600 for a cold start, in which kernels are compiled or tuned,
        and 900 for a warm one, as the looks tell (kernels already compiled, and a complete set of tuning results
        where autotune is expected; a server on CPUs is always warm).
    type: float
  poll_s:
    description: Seconds between two looks. By default 1 in the first 10 seconds, then 2.
    type: float
  look_timeout_s:
    description: Limit of one look in seconds, O(tokforge.sglang.readiness_info#module:timeout_s).
    type: float
    default: 10
  serve:
    description:
      - Whether to ask the server too, when all ranks are ready. Without O(root), and on a node other than the first,
        nobody is asked.
    type: bool
    default: true
  root:
    description: See M(tokforge.sglang.startup_info) and M(tokforge.sglang.readiness_info). O(root) or O(log) is needed.
    type: path
  log:
    description: See M(tokforge.sglang.startup_info). By default C(log/server.log) below O(root).
    type: path
  expect:
    description: See M(tokforge.sglang.startup_info).
    type: dict
  autotune:
    description: See M(tokforge.sglang.startup_info).
    type: str
    choices: [expected, not_expected, auto]
    default: auto
  process:
    description: See M(tokforge.sglang.startup_info). By default the one that the last start below O(root) recorded.
    type: str
  stall_timeout:
    description: See M(tokforge.sglang.startup_info).
    type: float
    default: 300
    aliases: [stall_timeout_s]
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
  - module: tokforge.sglang.startup_info
  - module: tokforge.sglang.readiness_info
  - module: tokforge.sglang.output_check_info
  - module: tokforge.sglang.server_service
"""

EXAMPLES = r"""
- name: Wait until every rank is tuned and it serves
  tokforge.sglang.wait_for_ranks:
    root: /opt/sglang
    served_name: glm-5

- name: Wait for the ranks of a server that something else manages
  tokforge.sglang.wait_for_ranks:
    log: /var/log/sglang.log
    process: sglang.service
    autotune: expected
    expect:
      tp: 8
"""

RETURN = r"""
state:
  description:
    - The last look's state, and every other value of M(tokforge.sglang.readiness_info) beside it, or of
      M(tokforge.sglang.startup_info) when the server was not asked.
    - A failure has RV(ignore:msg) with the end of the log, and therefore none of C(log_tail), C(log_benign) and
      C(first_exception).
  type: str
  returned: always
  sample: ready
start:
  description: What the last look of M(tokforge.sglang.startup_info) returned, without its cursor.
  type: dict
  returned: always
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
  description:
    - Why it failed. V(failed) (a rank or the server ended or cannot serve), V(stalled), V(stopped) or V(timeout).
  type: str
  returned: failure
  sample: timeout
failure:
  description: The failure that M(tokforge.sglang.startup_info) found, or null.
  type: dict
  returned: failure
"""
