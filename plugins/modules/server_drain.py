#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_drain
short_description: Wait until the SGLang server of a root directory has no request left
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Asks the server for its requests until O(looks) looks in a row found none, or until O(timeout_s) has passed. Take it
    out of its routers before (M(tokforge.sglang.router_worker)); a server that is still sent requests is never done.
  - The server is asked at C(/v1/loads) (C(/get_load) in older releases) with the API key of C(state/secrets.env), and
    at C(/metrics), which needs no key and which SGLang has with C(--enable-metrics) only. C(/metrics) also counts
    requests that no scheduler has yet, so a server with metrics is known best.
  - A server that tells neither is not waited for. RV(known) is then false, and RV(todo) says what helps.
  - Running into the limit is no failure of this module. See RV(drained).
  - With O(rollout) the wait is a sign of life of the play, and nobody takes its lock meanwhile.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.rollout_token
attributes:
  check_mode:
    support: full
    details:
      - Looks once and does not wait.
  diff_mode:
    support: N/A
    details:
      - This module only looks, so there is nothing to compare.
options:
  root:
    description: Root directory of the server on the target.
    type: path
    required: true
  host:
    description: Address the server binds to.
    type: str
    default: 127.0.0.1
  port:
    description: Port the server binds to.
    type: int
    default: 30000
  timeout_s:
    description: How long to wait, in seconds. V(0) looks once.
    type: float
    default: 120
  interval_s:
    description: Seconds between two looks.
    type: float
    default: 1
  looks:
    description: So many looks in a row must find no request.
    type: int
    default: 3
  look_timeout_s:
    description: Seconds that the server has for each answer. The last look may take as long beyond O(timeout_s).
    type: float
    default: 5
seealso:
  - module: tokforge.sglang.router_worker
  - module: tokforge.sglang.server_service
  - module: tokforge.sglang.server_gone_info
"""

EXAMPLES = r"""
- name: Wait until it has no request left, for two minutes at most
  tokforge.sglang.server_drain:
    root: /opt/sglang
    port: 30000
    timeout_s: 120
  register: drain

- name: Stop it only then
  tokforge.sglang.server_service:
    root: /opt/sglang
    state: stopped
  when: drain.drained
"""

RETURN = r"""
drained:
  description: Whether no request is left. True as well where nothing listens.
  type: bool
  returned: success
known:
  description: Whether the server told its requests at the last look.
  type: bool
  returned: success
state:
  description:
    - What the last look found. V(idle) and V(busy) say themselves. V(closed) is a port on which nothing listens,
      V(silent) a server that does not answer in time, V(unknown) one that answers and does not tell its requests.
  type: str
  returned: success
  sample: idle
running:
  description: Requests that ran at the last look. Null when not told.
  type: int
  returned: success
  sample: 0
queued:
  description: Requests that waited at the last look. Null when not told.
  type: int
  returned: success
  sample: 0
open_requests:
  description: Requests that HTTP clients were waiting for. Null without metrics.
  type: int
  returned: success
  sample: 0
how:
  description: What told it. Empty when nothing did.
  type: str
  returned: success
  sample: /v1/loads and /metrics
detail:
  description: What the last look found, in words.
  type: str
  returned: success
  sample: 0 running, 0 queued, 0 open over HTTP
todo:
  description: What to do now, in one sentence.
  type: str
  returned: success
  sample: stop it; it has no request left
waited_s:
  description: Seconds of the whole wait.
  type: float
  returned: success
  sample: 12.4
looks:
  description: How many looks it took.
  type: int
  returned: success
  sample: 9
pids:
  description: The server's own processes, for M(tokforge.sglang.server_gone_info) after it was stopped.
  type: list
  elements: int
  returned: success
  sample: [4711, 4720]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import readiness, redact, rollout_lock
from ansible_collections.tokforge.sglang.plugins.module_utils import server_drain as core
from ansible_collections.tokforge.sglang.plugins.module_utils.service import Paths, own_processes, read_record


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "default": 30000},
            "timeout_s": {"type": "float", "default": 120.0},
            "interval_s": {"type": "float", "default": 1.0},
            "looks": {"type": "int", "default": 3},
            "look_timeout_s": {"type": "float", "default": 5.0},
            "rollout": {"type": "str"},
        },
        supports_check_mode=True,
    )
    given = module.params
    paths = Paths(given["root"])
    target = readiness.Target(given["host"], given["port"], timeout_s=given["look_timeout_s"])
    secrets = readiness.read_secrets(paths)
    ask = core.asker(target, secrets.get(readiness.API_KEY_NAME, ""))
    limit_s = 0.0 if module.check_mode else given["timeout_s"]
    looks = 1 if limit_s <= 0 else max(1, given["looks"])
    try:
        with rollout_lock.at_work(given["root"], None if module.check_mode else given["rollout"]):
            outcome = core.wait(lambda: core.look(target, ask), limit_s, looks, max(0.05, given["interval_s"]))
    except rollout_lock.LockError as error:
        module.fail_json(msg=str(error), **error.facts)
    load, counts = outcome.load, outcome.load.counts
    result = {
        "drained": outcome.drained,
        "known": load.state in (core.IDLE, core.BUSY, core.CLOSED),
        "state": load.state,
        "running": counts.running,
        "queued": counts.queued,
        "open_requests": counts.active,
        "how": load.how,
        "detail": load.detail,
        "todo": core.advice(outcome, given["timeout_s"]),
        "waited_s": round(outcome.waited_s, 2),
        "looks": outcome.looks,
    }
    record = read_record(paths)
    # The process of an old record may be another's by now, so none is given: the record is compared with what lives.
    own = own_processes(paths, 0, [], record)
    module.exit_json(
        changed=False,
        pids=[process.pid for process in own],
        # A server can send back what it was asked with.
        **redact.hide_values(result, secrets.values()),
    )


if __name__ == "__main__":
    main()
