#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: startup_info
short_description: Look once at a starting SGLang server, rank by rank
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - One look that returns at once. It reads what the log got since the last look, and says what every rank has reached,
    whether FlashInfer autotune is complete on all of them, and whether the start failed or stalled, and why.
  - Which ranks there should be comes from the launch arguments, never from what happened to be logged. A rank that says
    nothing is a missing one.
  - V(ready) takes the server's own word and, where autotune is expected or was begun, every expected rank's
    C(FlashInfer autotune completed). It says nothing about whether the server truly answers; see
    M(tokforge.sglang.readiness_info) and M(tokforge.sglang.output_check_info).
  - The log is followed over rotation (by rename and by copytruncate), truncation and late creation. A prompt that is
    logged cannot stand for a milestone, and neither can a line of an earlier start.
  - Records with a format of their own (E(SGLANG_LOGGING_CONFIG_PATH)) name no rank. Then lines are counted, and
    RV(notes) says so.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  log:
    description: The server's log. It need not exist yet.
    type: path
    required: true
  expect:
    description:
      - The sizes the server was launched with. Left out, the release that is current below O(root) tells them, or the
        server's own record in the log.
    type: dict
    suboptions:
      tp:
        description: Tensor parallel size.
        type: int
        default: 1
      pp:
        description: Pipeline parallel size.
        type: int
        default: 1
      dp:
        description: Data parallel size.
        type: int
        default: 1
      ep:
        description: Expert parallel size. It shares the ranks of O(expect.tp).
        type: int
        default: 1
      attn_cp:
        description: Attention context parallel size. It shares the ranks of O(expect.tp).
        type: int
        default: 1
      moe_dp:
        description: MoE data parallel size. It shares the ranks of O(expect.tp).
        type: int
        default: 1
      dp_attention:
        description:
          - Whether O(expect.dp) shares the ranks of O(expect.tp) (data parallel attention) or counts copies of the
            whole server. Left out, the server's own record tells it, or a rank that only one of them can have;
            otherwise the ranks are taken to be shared.
        type: bool
      nnodes:
        description: Number of nodes of the server.
        type: int
        default: 1
      node_rank:
        description: Number of this node. Only its own ranks are expected in its log.
        type: int
        default: 0
  autotune:
    description:
      - Whether each rank is expected to log FlashInfer autotune. A server that becomes ready without it although it was
        expected has V(failed) with the reason C(autotune_skipped).
      - V(auto) takes what the release below O(root) tells (device, compute capability, gate, backend, arguments), or
        what the server's own record tells.
    type: str
    choices: [expected, not_expected, auto]
    default: auto
  cursor:
    description: RV(cursor) of an earlier look at the same log. Only what came after it is read.
    type: dict
  log_position:
    description:
      - Where the start to look at begins in the log, as M(tokforge.sglang.server_service) returned it. Not used with
        O(cursor).
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
        description: What stood before the position.
        type: str
        default: ""
  process:
    description:
      - The server's main process, a process id or the name of a systemd unit. Left out, the log alone is judged, and a
        server that died without a word is V(stalled) in the end.
    type: str
  stall_timeout:
    description:
      - Seconds without a sign of life after which the start counts as V(stalled). Signs of life are new bytes in the
        log and, with O(process), compilers at work, more object files, files that are read, and processor or GPU work.
      - Ranks that wait for each other in a collective keep processors and GPUs busy, so such work alone puts it off for
        three times that long only. A process that a signal stopped makes the others' work not count at all.
    type: float
    default: 300
    aliases: [stall_timeout_s]
  root:
    description:
      - Root directory of the server on the target. Tells what is not given here, and whose secrets never to show.
    type: path
seealso:
  - module: tokforge.sglang.wait_for_ranks
  - module: tokforge.sglang.readiness_info
"""

EXAMPLES = r"""
- name: Have all ranks been tuned?
  tokforge.sglang.startup_info:
    log: /var/log/sglang.log
    process: sglang.service
    autotune: expected
    expect:
      tp: 8
  register: start

- name: Look again, at what is new
  tokforge.sglang.startup_info:
    log: /var/log/sglang.log
    process: sglang.service
    autotune: expected
    expect:
      tp: 8
    cursor: "{{ start.cursor }}"
"""

RETURN = r"""
state:
  description: V(starting), V(ready), V(failed) or V(stalled).
  type: str
  returned: success
  sample: starting
stage:
  description:
    - What the slowest rank is at. One of C(boot), C(weights), C(kv_cache), C(autotune), C(cuda_graphs), C(warmup),
      C(ready).
  type: str
  returned: success
  sample: autotune
detail:
  description: What was seen, in one sentence.
  type: str
  returned: success
  sample: "autotune: 3 of 8 ranks completed, trtllm::fused_moe::gemm1 6/20"
ranks:
  description: Each expected rank by its tag as the log has it (V(main) for a single rank without one), and others seen.
  type: dict
  returned: success
  sample: {"TP0": {"autotune": "completed", "autotune_pairs": 1, "autotune_s": 63.0, "cuda_graphs_s": null,
           "weights_s": 0.13, "stage": "warmup", "cache": "", "milestones": {"kv_cache": "2026-11-29 21:39:35"}}}
expected_ranks:
  description: Tags of the ranks that the launch arguments make on this node.
  type: list
  elements: str
  returned: success
  sample: [TP0, TP1]
missing_ranks:
  description:
    - Expected ranks that have not completed autotune, where that is expected or was begun. Otherwise those that have
      not loaded their weights; none when the server is ready.
  type: list
  elements: str
  returned: success
  sample: [TP1]
autotune:
  description: Whether autotune is expected and why, and which of the expected ranks started and completed it.
  type: dict
  returned: success
  sample: {"expected": "expected", "reason": "the autotune gate is open for flashinfer_cutlass", "ranks_started": [TP0,
           TP1], "ranks_completed": [TP0]}
failure:
  description: Why it failed or stalled, or null.
  type: dict
  returned: success
  contains:
    reason:
      description:
        - One of C(exception), C(oom_cuda), C(oom_host), C(compile_failure), C(unsupported_architecture),
          C(illegal_instruction), C(graph_capture_failure), C(rank_dead), C(process_exit), C(hub_offline),
          C(port_in_use), C(autotune_skipped), C(stalled).
      type: str
    rank:
      description: Tag of the rank, V(main) for the main process or a single rank, empty when nobody is named.
      type: str
    stage:
      description: What that rank was at.
      type: str
    excerpt:
      description: Lines that tell it, of a traceback the first ones and the last ones up to its end.
      type: list
      elements: str
    hint:
      description: What to do.
      type: str
failure_is_complete:
  description: V(false) while the last line of the failure's traceback has not been written yet.
  type: bool
  returned: success
milestones:
  description: "Milestones of all ranks and of the main process: first and last time in the log, and how many ranks."
  type: dict
  returned: success
  sample: {"kv_cache": {"first": "2026-11-29 21:39:35", "last": "2026-11-29 21:39:35", "ranks": 2}}
progress:
  description: The newest progress bar, and how many ranks are done.
  type: dict
  returned: success
  sample: {"stage": "autotune", "op": "trtllm::fused_moe::gemm1", "done": 6, "total": 20, "ranks_done": 0,
           "ranks_expected": 2}
durations:
  description:
    - Seconds of the parts, the longest of all ranks and each rank's own. The log's times have whole seconds unless the
      server writes milliseconds. RV(durations.jit_s) is when compilers were seen at work, which only O(process) tells,
      RV(durations.profiling_s) adds up the bars of FlashInfer's autotuner.
  type: dict
  returned: success
  contains:
    weights_s:
      description: Loading the weights.
      type: float
    autotune_s:
      description: From the first to the last line of autotune.
      type: float
    jit_s:
      description: Compiling kernels.
      type: float
    profiling_s:
      description: Profiling tactics.
      type: float
    cuda_graphs_s:
      description: Capturing CUDA graphs.
      type: float
    since_arguments_s:
      description: From the record of the arguments until ready.
      type: float
    ranks:
      description: The same for each rank.
      type: dict
noise:
  description: Lines that look like trouble and are none, by kind (C(skipped_tactics), C(unsupported_tactics),
    C(tuning_out_of_memory), C(import_errors)).
  type: dict
  returned: success
  sample: {"skipped_tactics": 500}
format:
  description: V(standard) (SGLang's own records), V(custom) (lines are only counted) or V(unknown) (nothing yet).
  type: str
  returned: success
  sample: standard
restarts:
  description: How many earlier starts were in what was read. The last one counts.
  type: int
  returned: success
  sample: 0
quiet_s:
  description: Seconds since the last sign of life.
  type: float
  returned: success
  sample: 0.0
doing:
  description: What the server's processes did since the last look. Empty without O(process).
  type: str
  returned: success
  sample: compiling kernels (12 objects more, cicc)
pid:
  description: Main process, 0 when none is known.
  type: int
  returned: success
  sample: 4711
notes:
  description: What a person should know beside it.
  type: list
  elements: str
  returned: success
gap:
  description: A part of the log was lost in a rotation, so a milestone may be missing.
  type: bool
  returned: success
recorded:
  description:
    - The start of this very process is on record below O(root) as ready, and its log was not read again.
  type: bool
  returned: success
cold:
  description:
    - Whether kernels have to be compiled or tuned in this start, as far as it can be told (compiled kernels that were
      there at the first look, and what the launcher says of the tuning results).
  type: bool
  returned: success
previous_s:
  description: Seconds until ready of the newest start on record that was as cold or warm, or null.
  type: float
  returned: success
cache_before:
  description: What the launcher said of the tuning results before it started the server. Empty for a server that
    something else starts.
  type: str
  returned: success
log:
  description: The log.
  type: str
  returned: success
  sample: /opt/sglang/log/server.log
log_newest:
  description: Newest whole line that says something, at most 90 characters.
  type: str
  returned: success
log_tail:
  description: The last lines of this start, at most 50 and safe to show, of one that failed or stalled.
  type: list
  elements: str
  returned: success
cursor:
  description: To be given to the next look. What is in it may change.
  type: dict
  returned: success
"""

from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import readiness, startup_look
from ansible_collections.tokforge.sglang.plugins.module_utils.log_follow import OPTIONS, LogError, LogPosition
from ansible_collections.tokforge.sglang.plugins.module_utils.proc import boot_id
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import RanksError, World
from ansible_collections.tokforge.sglang.plugins.module_utils.service import Paths, ServiceError, read_record

SIZES = ("tp", "pp", "dp", "ep", "attn_cp", "moe_dp", "nnodes")
EXPECT = {
    **{name: {"type": "int", "default": 1} for name in SIZES},
    "dp_attention": {"type": "bool"},
    "node_rank": {"type": "int", "default": 0},
}


def request(given: dict[str, Any]) -> startup_look.Request:
    """What was asked for; what the root's record of the last start says stands in for what was not."""
    wanted = startup_look.Request(
        log=given["log"],
        world=World(**given["expect"]) if given["expect"] is not None else None,
        autotune=given["autotune"],
        process=given["process"] or "",
        cursor=given["cursor"],
        position=LogPosition(**given["log_position"]) if given["log_position"] else None,
        root=given["root"] or "",
        stall_timeout_s=given["stall_timeout"],
    )
    if not given["root"]:
        return wanted
    paths = Paths(given["root"])
    wanted = replace(wanted, secrets=tuple(readiness.read_secrets(paths).values()))
    record = read_record(paths)
    if record is None:
        return wanted
    if not wanted.process and record.pid and record.boot_id == boot_id():
        wanted = replace(wanted, process=str(record.pid), start_ticks=record.start_ticks)
    if wanted.position is None and record.log_position.path == wanted.log:
        wanted = replace(wanted, position=record.log_position)
    return wanted


def unfit(given: dict[str, Any]) -> str:
    """What cannot be meant; empty when there is no such thing."""
    if not 0 < given["stall_timeout"] < float("inf"):
        return f"stall_timeout is {given['stall_timeout']}; give a number of seconds above 0"
    if given["process"] is not None and (given["process"] == "" or given["process"].strip("0") == ""):
        return f"process is {given['process']!r}; give the id of a process or the name of a unit, or leave it out"
    position = given["log_position"]
    if position and (position["offset"] < 0 or position["inode"] < 0):
        return "log_position has a number below 0; give what server_service returned"
    return ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "log": {"type": "path", "required": True},
            "expect": {"type": "dict", "options": EXPECT},
            "autotune": {"type": "str", "choices": ["expected", "not_expected", "auto"], "default": "auto"},
            "cursor": {"type": "dict"},
            "log_position": {"type": "dict", "options": OPTIONS},
            "process": {"type": "str"},
            "stall_timeout": {"type": "float", "default": 300.0, "aliases": ["stall_timeout_s"]},
            "root": {"type": "path"},
        },
        supports_check_mode=True,
    )
    problem = unfit(module.params)
    if problem:
        module.fail_json(msg=problem)
    try:
        result = startup_look.look(request(module.params))
    except (LogError, RanksError, ServiceError, startup_look.CursorError) as error:
        module.fail_json(msg=str(error), **getattr(error, "facts", {}))
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
