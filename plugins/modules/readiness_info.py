#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: readiness_info
short_description: Look once whether the SGLang server that was started truly serves
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - One look, over within about O(timeout_s) seconds, that never waits for the server to change.
  - V(ready) means that the process that M(tokforge.sglang.server_service) started is alive and is the one that
    listens, C(/health) says 200, the
    served model has the asked name, and a bounded generation is usable.
  - A generation is usable when it has exactly O(max_new_tokens) tokens and, with real weights, two identical greedy
    requests agree and their text is neither empty, NaN, one token over and over nor without any letter. When the first
    two differ, a third one must agree with the second; the first of all computes its prompt without the prefix cache.
  - A process that has ended, also with exit code 0, and one that its manager started again meanwhile, is V(failed) at
    once. When the manager does not know yet how it ended, the look takes up to 2 seconds more to learn it.
  - When C(state/secrets.env) holds an API key, it is read on the target and used for the requests.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  root:
    description: Root directory of the server on the target.
    type: path
    required: true
  manager:
    description: What runs the server, as for M(tokforge.sglang.server_service).
    type: str
    choices: [auto, systemd, supervisor]
    default: auto
  name:
    description: Name of the systemd unit or supervisor program.
    type: str
    default: sglang
  host:
    description: Address the server binds to. For V(0.0.0.0) and V(::) the loopback address is asked.
    type: str
    default: 127.0.0.1
  port:
    description: Port the server binds to.
    type: int
    default: 30000
  served_name:
    description:
      - Name the served model must have. By default the one that the current release records; any name when it records
        none.
    type: str
  log_position:
    description:
      - Where the start to look at begins in the log, as M(tokforge.sglang.server_service) returned it. Without it the
        last start on record.
    type: dict
    suboptions:
      path:
        description: The log.
        type: path
        required: true
      inode:
        description: Inode the path had, 0 when the file did not exist.
        type: int
        default: 0
      offset:
        description: Size of the log in bytes.
        type: int
        default: 0
      fingerprint:
        description: Tells whether the log is still the same one. Not checked when empty.
        type: str
        default: ""
  random_weights:
    description:
      - The model has random weights, so the text of its answer means nothing and only the mechanics are judged, which
        RV(generation.verdict) says. By default what the current release records, otherwise V(false).
    type: bool
  probe:
    description: Ask for a generation. When V(false), V(ready) means less, and RV(stage) says C(model).
    type: bool
    default: true
  max_new_tokens:
    description: Tokens to generate.
    type: int
    default: 8
  logprobs:
    description:
      - Also ask for the log probabilities of the tokens. One that is not a number fails the generation, also with
        random weights. Some server options exclude it.
    type: bool
    default: false
  release:
    description:
      - Number of the release that the process must run. One that runs another release, since another rollout started
        it, is V(failed) at once. By default any.
    type: int
  timeout_s:
    description: Limit of this look in seconds. A generation that takes longer counts as V(starting).
    type: float
    default: 10
seealso:
  - module: tokforge.sglang.wait_for_ranks
"""

EXAMPLES = r"""
- name: Is it ready?
  tokforge.sglang.readiness_info:
    root: /opt/sglang
    served_name: glm-5
  register: server
"""

RETURN = r"""
state:
  description: V(starting), V(ready), V(failed) or V(stopped).
  type: str
  returned: success
  sample: starting
stage:
  description:
    - The stage that is not passed yet, or the last one. One of C(process), C(listening), C(health), C(model),
      C(generation).
  type: str
  returned: success
  sample: health
detail:
  description: What was seen, in one sentence.
  type: str
  returned: success
  sample: process 4711 listens, /health says 503
pid:
  description: Main process, 0 when there is none.
  type: int
  returned: success
  sample: 4711
manager:
  description: The manager in use, V(systemd) or V(supervisor).
  type: str
  returned: success
  sample: supervisor
log:
  description: Path of the log.
  type: str
  returned: success
  sample: /opt/sglang/log/server.log
release:
  description: Real path of the release that the process runs. Empty when none runs.
  returned: success
  type: str
  sample: /opt/sglang/releases/2
ended:
  description: How the process ended, to be read after a name. Empty when it runs or when that is not known.
  type: str
  returned: success
  sample: exited with code 1
log_tail:
  description:
    - At most 50 lines written since the start, safe to show. Empty when the server is ready.
    - Lines that say nothing about a failure are left out (import errors that SGLang ignores, skipped autotuner tactics,
      Python warnings, nanobind's leak report, the requests of these looks). The last traceback is always among the
      lines, shortened in its middle when it is long.
  type: list
  elements: str
  returned: success
log_benign:
  description: How many lines were left out because they say nothing about a failure.
  type: int
  returned: success
  sample: 74
first_exception:
  description:
    - Final line of the first traceback, when it is another one than the last. With several ranks it is the cause.
  type: str
  returned: success
log_newest:
  description: Newest line that says something, at most 90 characters. Empty when the server is ready.
  type: str
  returned: success
  sample: Load weight begin. avail mem=21.48 GB
generation:
  description: The bounded generation, or null when none was made.
  type: dict
  returned: success
  contains:
    tokens:
      description: Tokens the server counted.
      type: int
    text_sample:
      description: The first 80 characters of the text.
      type: str
    verdict:
      description:
        - V(ok), V(mechanics_only) (random weights), V(wrong_count), V(degenerate), V(unstable) (identical greedy
          requests disagree) or V(malformed).
      type: str
    why:
      description: The reason for a verdict other than V(ok).
      type: str
output_check:
  description: The verdict as M(tokforge.sglang.benchmark) takes it, or null when no generation was made.
  type: dict
  returned: success
  contains:
    passed:
      description: Whether the generation is usable. With random weights that means its mechanics only.
      type: bool
    reason:
      description: Why, in one sentence.
      type: str
elapsed_s:
  description: Seconds this look took.
  type: float
  returned: success
  sample: 0.7
"""

import time
from dataclasses import asdict
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import readiness as core
from ansible_collections.tokforge.sglang.plugins.module_utils import redact
from ansible_collections.tokforge.sglang.plugins.module_utils.generation_check import output_check
from ansible_collections.tokforge.sglang.plugins.module_utils.log_follow import OPTIONS, LogPosition
from ansible_collections.tokforge.sglang.plugins.module_utils.managers import make_manager
from ansible_collections.tokforge.sglang.plugins.module_utils.server_log import Excerpt, excerpt
from ansible_collections.tokforge.sglang.plugins.module_utils.service import Paths, ServiceError

MODEL = ("served_name", "random_weights")


def target(given: dict[str, Any], paths: Paths) -> core.Target:
    """What was asked for; what the release records stands in for what was not."""
    recorded = core.model_of_current(paths)
    model = {name: given[name] if given[name] is not None else recorded.get(name) for name in MODEL}
    names = ("host", "port", "probe", "max_new_tokens", "timeout_s", "logprobs", "release")
    wanted = {name: given[name] for name in names}
    return core.Target(served_name=model["served_name"], random_weights=bool(model["random_weights"]), **wanted)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "manager": {"type": "str", "choices": ["auto", "systemd", "supervisor"], "default": "auto"},
            "name": {"type": "str", "default": "sglang"},
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "default": 30000},
            "served_name": {"type": "str"},
            "log_position": {"type": "dict", "options": OPTIONS},
            "random_weights": {"type": "bool"},
            "probe": {"type": "bool", "default": True},
            "max_new_tokens": {"type": "int", "default": 8, "no_log": False},
            "logprobs": {"type": "bool", "default": False},
            "release": {"type": "int"},
            "timeout_s": {"type": "float", "default": 10.0},
        },
        supports_check_mode=True,
    )
    given = module.params
    began = time.monotonic()
    try:
        paths = Paths(given["root"])
        manager = make_manager(given["manager"], paths, given["name"])
        secrets = core.read_secrets(paths)
        found = core.look(paths, manager, target(given, paths), secrets.get(core.API_KEY_NAME, ""))
        position = LogPosition(**given["log_position"]) if given["log_position"] else core.default_position(paths)
    except ServiceError as error:
        module.fail_json(msg=str(error), **error.facts)
    log = Excerpt(()) if found.state == core.READY else excerpt(position, secrets.values())
    module.exit_json(
        changed=False,
        manager=manager.kind,
        log=position.path,
        log_tail=list(log.lines),
        log_benign=log.benign,
        log_newest=log.newest,
        first_exception=log.first_exception,
        output_check=redact.hide_values(output_check(found.generation), secrets.values()),
        elapsed_s=round(time.monotonic() - began, 2),
        # A server can send back what it was asked with.
        **redact.hide_values(asdict(found), secrets.values()),
    )


if __name__ == "__main__":
    main()
