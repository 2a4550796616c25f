#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: moe_probe
short_description: Try a release's MoE kernels on one GPU before anything is switched to it
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Runs up to three steps in the environment of a release that was written but need not be current. Does the module
    that the MoE backend needs import, does the function that SGLang takes from it exist, and does one MoE layer of the
    model's own shape run on one GPU.
  - The layer has the model's hidden size, experts, top-k, data type and quantization, and one rank's part of heads and
    of the experts' width. It has random weights and runs in SGLang's own one-batch runner, which tunes it with
    FlashInfer where the server would, and computes some tokens. What it computes must be finite.
  - Kernels that are compiled on the way go where the server looks for them, so its start is faster. Tuning results are
    thrown away, since those of one rank would be a part of a set.
  - A GPU without enough free memory is left alone, so that a server that runs there is not disturbed. The step is then
    V(skipped).
  - Communication between ranks, draft models, LoRA and the whole model's memory are not a part of it.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - Nothing is run in check mode. RV(steps) says so.
  diff_mode:
    support: N/A
    details:
      - Only caches and the module's own record change.
options:
  root:
    description: Root directory of the rollout on the target.
    type: path
    required: true
  release:
    description: Number of the release below O(root). Left out, the current one.
    type: int
  backend:
    description: MoE runner backend to try in place of the release's own.
    type: str
  steps:
    description: The steps to do. A step that fails keeps those after it from being done.
    type: list
    elements: str
    choices: [import, symbol, layer]
    default: [import, symbol, layer]
  timeout:
    description: Seconds that all steps may take together. Compiling FlashInfer's kernels can take half an hour.
    type: float
    default: 1800
    aliases: [timeout_s]
  user:
    description:
      - User that the server runs as, whom the steps run as too, so that what they write is the server's. Only root can
        become another user. Without such a user on the target, compiled kernels are thrown away as well.
    type: str
  home:
    description: Home directory that the server has. Left out, that of the module.
    type: path
  force:
    description:
      - Probe also what a probe of the same environment, arguments, model, GPU and driver has shown to run, and a
        release that has already served.
    type: bool
    default: false
seealso:
  - module: tokforge.sglang.autotune_gate
  - module: tokforge.sglang.startup_info
"""

EXAMPLES = r"""
- name: Will the new release's kernels run here?
  tokforge.sglang.moe_probe:
    root: /opt/sglang
    release: 4

- name: Would another backend?
  tokforge.sglang.moe_probe:
    root: /opt/sglang
    backend: triton
  register: other
"""

RETURN = r"""
ok:
  description: Whether no step failed.
  type: bool
  returned: always
steps:
  description: Each step that was asked for.
  type: list
  elements: dict
  returned: always
  contains:
    name:
      description: One of V(import), V(symbol), V(layer).
      type: str
    result:
      description: One of V(ok), V(failed), V(skipped).
      type: str
    detail:
      description: What was seen, or why it was skipped.
      type: str
    elapsed_s:
      description: Seconds that it took.
      type: float
    reason:
      description:
        - Of a step that failed, as M(tokforge.sglang.startup_info) has them, and besides C(import_error),
          C(missing_symbol), C(not_finite) and C(timeout).
      type: str
    hint:
      description: What to do about it.
      type: str
    lines:
      description: The last lines of the error, at most 20, without secrets.
      type: list
      elements: str
  sample:
    - {"name": "layer", "result": "ok", "detail": "8 forward passes, tuned, with finite output", "elapsed_s": 61.4,
       "reason": "", "hint": "", "lines": []}
autotune:
  description: Whether FlashInfer autotune was expected on this GPU and why, and whether it began and completed.
  type: dict
  returned: always
  sample: {"expected": "expected", "reason": "the autotune gate is open for flashinfer_cutlass", "started": true,
           "completed": true}
jit_objects:
  description: Object files of compiled kernels in the server's caches before and after. Null where nothing was run.
  type: dict
  returned: always
  sample: {"before": 0, "after": 182}
shared_cache:
  description: Whether compiled kernels went into the server's caches.
  type: bool
  returned: always
gpu:
  description: The GPU, null when none was used.
  type: dict
  returned: always
  sample: {"index": 0, "uuid": "GPU-5e6f", "name": "NVIDIA H200", "compute_capability": "9.0", "need_free_bytes":
           8800000000, "memory_free_bytes": 150000000000}
backend:
  description: The MoE runner backend that was tried.
  type: str
  returned: always
recorded:
  description: The same was probed before or the release has served, so nothing was run.
  type: bool
  returned: always
notes:
  description: What a person should know beside it, such as arguments that are not a part of the probe.
  type: list
  elements: str
  returned: always
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import probe
from ansible_collections.tokforge.sglang.plugins.module_utils.probe_plan import STEPS


def asked(params: dict[str, Any], check_mode: bool) -> probe.Request:
    """The options as the core takes them."""
    return probe.Request(
        root=params["root"],
        release=params["release"],
        backend=params["backend"] or "",
        steps=tuple(step for step in STEPS if step in params["steps"]),
        timeout_s=params["timeout"],
        user=params["user"] or "",
        home=params["home"] or "",
        force=params["force"],
        only_say=check_mode,
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "release": {"type": "int"},
            "backend": {"type": "str"},
            "steps": {"type": "list", "elements": "str", "choices": list(STEPS), "default": list(STEPS)},
            "timeout": {"type": "float", "default": 1800, "aliases": ["timeout_s"]},
            "user": {"type": "str"},
            "home": {"type": "path"},
            "force": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    if not 0 < module.params["timeout"] < float("inf"):
        module.fail_json(msg=f"timeout is {module.params['timeout']}; give a number of seconds above 0")
    try:
        answer = probe.carry_out(asked(module.params, module.check_mode))
    except probe.UnfitError as error:
        module.fail_json(msg=str(error))
    result = answer.as_dict()
    if not result["ok"]:
        module.fail_json(msg=answer.message(), **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
