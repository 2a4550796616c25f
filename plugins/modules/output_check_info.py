#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: output_check_info
short_description: Look whether what a served model answers is usable, alone, under load and from the prefix cache
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - A server with broken kernels answers 200 with garbage, and some kernels break only for a large batch or only for
    tokens from the prefix cache. So this asks several fixed prompts one by one, then O(concurrency) requests at once,
    then one prompt O(repeats) times. All of them are greedy and go to C(/generate).
  - An answer is refused when it is an HTTP error, late, malformed, has another number of tokens than was asked for, a
    log probability that is not a number, no text, C(NaN) for a text, no letter, or one token, one character or a short
    cycle over and over.
  - Answers also must agree. Those under load are held against those to the same prompt alone, the repeated ones against
    each other, and only their first O(compare_tokens) tokens, since rounding may tip a later one.
  - With random weights the text means nothing. Then only the mechanics are judged (status, form, number of tokens, log
    probabilities), and RV(verdict) is V(mechanics_only).
  - It never fails for what the server does. RV(passed) says what was found, and the caller decides.
  - When C(state/secrets.env) holds an API key, it is read on the target and used for the requests. It is never shown,
    also when the server repeats it in an answer.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  root:
    description: Root directory of the server on the target.
    type: path
    required: true
  host:
    description: Address the server binds to. For V(0.0.0.0) and V(::) the loopback address is asked.
    type: str
    default: 127.0.0.1
  port:
    description: Port the server binds to.
    type: int
    default: 30000
  concurrency:
    description:
      - So many requests at once, the most that the server will have to serve, for example the highest concurrency of a
        benchmark. At most 16384.
      - Each of them has a thread and a connection of its own, up to 1024. RV(workers) says how many there were.
      - With V(1) there is no such phase.
    type: int
    default: 1
  tokens:
    description: Tokens to generate for each request. Below 8 a repetition cannot be told from a short answer.
    type: int
    default: 32
  repeats:
    description: How often one prompt is repeated, one by one. With V(0) there is no such phase.
    type: int
    default: 20
  random_weights:
    description:
      - The model has random weights, so that only the mechanics are judged. By default what the current release
        records, otherwise V(false).
    type: bool
  logprobs:
    description:
      - Also ask for the log probabilities of the tokens. One that is not a number fails the check, also with random
        weights. Some server options exclude it.
    type: bool
    default: false
  agreement:
    description:
      - The least share of the answers of a phase that must begin as expected, from 0 to 1. It is not judged with random
        weights.
    type: float
    default: 0.5
  compare_tokens:
    description: How many tokens count as the beginning. Where the server tells no token ids, twice as many characters.
    type: int
    default: 8
  timeout_s:
    description:
      - Limit of the whole check in seconds. A request that is asked alone may take half of what is left of it.
    type: float
    default: 120
seealso:
  - module: tokforge.sglang.readiness_info
  - module: tokforge.sglang.benchmark
"""

EXAMPLES = r"""
- name: Is its output right also with 64 requests at once?
  tokforge.sglang.output_check_info:
    root: /opt/sglang
    concurrency: 64
    logprobs: true
  register: output

- name: Refuse to go on when it is not
  ansible.builtin.assert:
    that: output.passed
    fail_msg: "{{ output.reason }}"
"""

RETURN = r"""
passed:
  description: Whether every answer is usable and enough of them agree. With random weights that means their mechanics.
  type: bool
  returned: success
  sample: true
verdict:
  description:
    - V(ok) or V(mechanics_only) (random weights) when it passed.
    - Otherwise what most failed requests of the first failed phase suffer from. V(http_error) (also when nothing
      answers at all), V(timeout), V(malformed), V(wrong_count), V(not_a_number), V(empty), V(degenerate) or
      V(disagreement).
  type: str
  returned: success
  sample: ok
reason:
  description: Why, in one sentence that names the phase, the prompt and what came. When it passed, what was asked.
  type: str
  returned: success
  sample: >-
    every answer is usable, at least 98% that were compared agree (6 single requests, 64 at once, 20 of one prompt
    repeated); 20 repeated requests found their prompt in the prefix cache
phases:
  description:
    - What was asked, in this order. After a phase in which a request was not answered there is no further one.
  type: list
  elements: dict
  returned: success
  contains:
    phase:
      description: V(single), V(concurrent) or V(repeated).
      type: str
    requests:
      description: Requests made. One by one, they end with the first that is not answered.
      type: int
    usable:
      description: Those with a usable answer.
      type: int
    agreement:
      description: The share of the usable answers that begin as expected. Null when there is nothing to compare.
      type: float
    cached_tokens:
      description: Tokens that came from the prefix cache, in all answers together. Null when the server does not say.
      type: int
    cache_hits:
      description:
        - Answers with at least one such token. Null when the server does not say. 0 is no failure, since a server can
          run without a prefix cache.
      type: int
    in_flight:
      description: The most requests that were open at the same moment.
      type: int
    elapsed_s:
      description: Seconds from the first request to the last answer.
      type: float
    latency_p50_s:
      description: Median of the seconds until an answer was complete. Null when there was none.
      type: float
    latency_max_s:
      description: The longest of them. Null when there was none.
      type: float
failures:
  description: At most 5 samples of what went wrong, of as many kinds as there are.
  type: list
  elements: dict
  returned: success
  contains:
    phase:
      description: The phase.
      type: str
    prompt:
      description: The beginning of the prompt.
      type: str
    text_sample:
      description: At most 80 characters of what came, safe to show.
      type: str
    why:
      description: What is wrong with it.
      type: str
workers:
  description:
    - Threads that asked at once. Fewer than O(concurrency) above 1024, or when the target gives no more files or
      threads to one process. 1 when there was no such phase.
  type: int
  returned: success
  sample: 64
output_check:
  description: The verdict as M(tokforge.sglang.benchmark) takes it.
  type: dict
  returned: success
  contains:
    passed:
      description: As RV(passed).
      type: bool
    reason:
      description: As RV(reason).
      type: str
elapsed_s:
  description: Seconds the check took.
  type: float
  returned: success
  sample: 9.4
"""

from dataclasses import asdict
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import output_check as core
from ansible_collections.tokforge.sglang.plugins.module_utils.readiness import (
    API_KEY_NAME,
    model_of_current,
    read_secrets,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.service import Paths

GIVEN = ("concurrency", "tokens", "repeats", "logprobs", "agreement", "compare_tokens", "timeout_s")


def settings(given: dict[str, Any], paths: Paths) -> core.Settings:
    """What was asked for; what the release records stands in for what was not."""
    random = given["random_weights"]
    if random is None:
        random = model_of_current(paths).get("random_weights")
    return core.Settings(random_weights=bool(random), **{name: given[name] for name in GIVEN})


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "default": 30000},
            "concurrency": {"type": "int", "default": 1},
            "tokens": {"type": "int", "default": 32, "no_log": False},
            "repeats": {"type": "int", "default": 20},
            "random_weights": {"type": "bool"},
            "logprobs": {"type": "bool", "default": False},
            "agreement": {"type": "float", "default": 0.5},
            "compare_tokens": {"type": "int", "default": 8, "no_log": False},
            "timeout_s": {"type": "float", "default": 120.0},
        },
        supports_check_mode=True,
    )
    given = module.params
    paths = Paths(given["root"])
    wanted = settings(given, paths)
    if wanted.refused():
        module.fail_json(msg=wanted.refused())
    server = core.Server(given["host"], given["port"], read_secrets(paths).get(API_KEY_NAME, ""))
    report = core.check(server, wanted)
    module.exit_json(changed=False, output_check=report.output_check, **asdict(report))


if __name__ == "__main__":
    main()
