#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: decode_profile
short_description: Tell where the time of a decode step goes in a running SGLang server
version_added: 0.1.0
description:
  - Sends requests to a running server, has SGLang's profiler record some decode steps, and divides the time of a step
    into attention, experts, communication, other matrix products, small kernels and gaps.
  - On GPUs the parts are held against the least time that reading their weights and cache takes.
  - The server keeps running and answers others meanwhile, more slowly. Nothing is installed or restarted.
author:
  - tokforge.sglang contributors (@tokforge)
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - In check mode nothing is sent to the server, and RV(profile) is null.
  diff_mode:
    support: N/A
    details:
      - There is nothing to compare.
options:
  root:
    description:
      - Directory of the deployment. Traces go to C(bench) in it, where the server must be able to write.
    type: path
    required: true
  host:
    description: Address of the server.
    type: str
    default: 127.0.0.1
  port:
    description: Port of the server.
    type: int
    required: true
  api_key:
    description: The server's API key.
    type: str
  admin_api_key:
    description: The server's admin key, which its profiler needs when there is one.
    type: str
  steps:
    description:
      - Forward passes to record, from 4 to 256. The trace grows with them.
    type: int
    default: 32
  batch:
    description: Requests that decode at once.
    type: int
    default: 8
  input_len:
    description: Tokens of each prompt.
    type: int
    default: 128
  timeout:
    description: Seconds for all of it.
    type: int
    default: 300
  keep_traces:
    description:
      - Whether the traces stay, for a viewer of Chrome traces such as Perfetto. The last 3 profiles are kept.
    type: bool
    default: true
seealso:
  - module: tokforge.sglang.benchmark
"""

EXAMPLES = r"""
- name: See where a decode step's time goes
  tokforge.sglang.decode_profile:
    root: /opt/sglang
    port: 30000
    batch: 8
  register: decode

- name: Show the shares
  ansible.builtin.debug:
    var: decode.profile.shares
"""

RETURN = r"""
changed:
  description: Whether traces stayed on the target.
  returned: always
  type: bool
profile:
  description: The decode steps; null in check mode.
  returned: success
  type: dict
  contains:
    device:
      description: V(gpu), or V(cpu) for a server on a CPU.
      type: str
    batch:
      description: Requests of a step, null when steps differ.
      type: int
    steps:
      description: Steps that were judged.
      type: int
    steps_from:
      description: How steps were found. V(spans) of the server, V(graph_launches), or V(asked) when only their number
        is known.
      type: str
    step_ms:
      description: Milliseconds of a step, from the first work of one pass to that of the next.
      type: float
    ms:
      description: Milliseconds of a step by kind (C(attention), C(moe_gemm), C(moe_routing), C(all_reduce), C(gemm),
        C(elementwise), C(other), C(idle)), means over ranks. They add up to RV(profile.step_ms).
      type: dict
    shares:
      description: The same as parts of the step; they add up to 1.
      type: dict
    all_reduce_least_ms:
      description: The least of the communication on any rank. What others have more is waiting for a slower rank.
      type: float
    largest:
      description: The ten kernels with the most time on the first rank. C(name), C(kind), C(ms) and C(calls) a step.
      type: list
      elements: dict
    unknown:
      description: Those whose name is not known, ten at most.
      type: list
      elements: dict
    ranks:
      description: Each rank's C(rank), C(steps), C(other_steps) (passes that were no decoding), C(step_ms), C(ms) and
        C(shares).
      type: list
      elements: dict
    floor:
      description: The least time of the step, and of the kinds C(moe_gemm), C(attention) and C(gemm), each with
        C(floor_ms), C(measured_ms) and C(share) (1 is as fast as the memory). Null when the model's files or the GPU's
        memory are not known.
      type: dict
traces:
  description: Directory of the traces; null when they were removed.
  returned: success
  type: str
trace_bytes:
  description: Their size.
  returned: success
  type: int
server:
  description: What the server says of itself, C(version), sizes and backends.
  returned: success
  type: dict
elapsed_s:
  description: How long it took.
  returned: success
  type: float
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import decode_profile, gpu_look, profile_run
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import Target
from ansible_collections.tokforge.sglang.plugins.module_utils.profile_server import ProfileRunError


def bandwidth_bytes_s() -> float | None:
    """Of the slowest GPU here; None when one of them is not known."""
    found = [one.memory_bandwidth_bytes_s for one in gpu_look.look().gpus]
    known = [float(one) for one in found if one]
    return min(known) if known and len(known) == len(found) else None


def profile(module: AnsibleModule) -> dict[str, Any]:
    """What the module returns. Raises ProfileRunError."""
    asked = module.params
    outcome = profile_run.run(
        profile_run.Request(
            url=Target(asked["host"], asked["port"], "", "").url,
            root=asked["root"],
            steps=asked["steps"],
            batch=asked["batch"],
            input_len=asked["input_len"],
            timeout_s=float(asked["timeout"]),
            api_key=asked["api_key"],
            admin_api_key=asked["admin_api_key"],
            keep_traces=asked["keep_traces"],
        )
    )
    for note in outcome.notes:
        module.warn(note)
    floor = profile_run.floor(outcome, bandwidth_bytes_s()) if outcome.device == decode_profile.GPU else None
    return {
        "changed": outcome.directory is not None,
        "profile": decode_profile.summarise(outcome.profiles, floor),
        "traces": outcome.directory,
        "trace_bytes": outcome.trace_bytes,
        "server": dict(outcome.server),
        "elapsed_s": round(outcome.elapsed_s, 1),
    }


def main() -> None:
    """Profile the server."""
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "required": True},
            "api_key": {"type": "str", "no_log": True},
            "admin_api_key": {"type": "str", "no_log": True},
            "steps": {"type": "int", "default": 32},
            "batch": {"type": "int", "default": 8},
            "input_len": {"type": "int", "default": 128},
            "timeout": {"type": "int", "default": 300},
            "keep_traces": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        kept = bool(module.params["keep_traces"])
        module.exit_json(changed=kept, profile=None, traces=None, trace_bytes=0, server={}, elapsed_s=0.0)
    try:
        module.exit_json(**profile(module))
    except ProfileRunError as error:
        module.fail_json(msg=str(error), **error.facts)


if __name__ == "__main__":
    main()
