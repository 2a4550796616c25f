#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: moe_config_info
short_description: Tell which MoE tuning file SGLang would read, and why others are not read
version_added: 0.1.0
description:
  - SGLang's Triton MoE kernel reads JSON files with tuned settings. A file's name says for how many experts, which
    size, which GPU and which kind of weights it was tuned, and only the one with exactly the right name is read.
    The other MoE kernels read none.
  - This module says which kernel a configuration selects, whether that one reads such files, which files it looks for
    in which order, and whether one of a given directory applies. For files that are near it says what is wrong.
  - What each release looks for is part of this collection, read from the sources of 0.5.0rc0 to 0.5.23. Nothing of
    SGLang has to be installed where the module runs, and it needs no GPU.
author:
  - tokforge.sglang contributors (@tokforge)
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  sglang_version:
    description: The release that is asked about, for example V(0.5.23).
    type: str
    required: true
  model:
    description:
      - Directory of the model on the target. Its C(config.json) tells experts, sizes and quantization.
      - Without it O(experts) and O(intermediate_size) are needed.
    type: path
  experts:
    description: Number of routed experts of one layer. Wins over the model's. V(0) stands for a dense model.
    type: int
  intermediate_size:
    description: Width of one expert in the whole model, not in one rank. Wins over the model's.
    type: int
  fused_shared_experts:
    description:
      - How many shared experts SGLang counts as experts among the others. Left out, it is taken from the model where
        all releases do the same; elsewhere both names are given.
    type: int
  quantization:
    description:
      - SGLang's name of the quantization, V(none) for none. Left out, O(args) or the model tells it.
    type: str
  block_shape:
    description: Rows and columns of weights that share a scale, like V([128, 128]). Left out, the model tells it.
    type: list
    elements: int
  per_channel:
    description: Whether each output channel has its own scale. Left out, the quantization or the model tells it.
    type: bool
  backend:
    description: Value of C(--moe-runner-backend). Left out, O(args) tells it, and otherwise it is V(auto).
    type: str
  compute_capability:
    description: The GPU's compute capability, for example V(12.0). Left out, C(nvidia-smi) on the target tells it.
    type: str
  device_name:
    description:
      - The GPU's product name, for example V(NVIDIA H200). Left out, C(nvidia-smi) on the target tells it.
    type: str
  triton_version:
    description: Version of Triton on the target. Left out, the one that comes with the release's torch.
    type: str
  tp:
    description: Tensor parallel size. Left out, O(args) tells it, and otherwise it is 1.
    type: int
  ep:
    description: Expert parallel size. Left out, O(args) tells it, and otherwise it is 1.
    type: int
  args:
    description:
      - Launch arguments, one key for each flag. Those that matter here are read, others are not looked at.
    type: dict
    default: {}
  directory:
    description:
      - Directory with tuned files on the target, as E(SGLANG_MOE_CONFIG_DIR) names it or one of those below.
      - It need not be complete or in order. What SGLang could not find there is told.
    type: path
seealso:
  - module: tokforge.sglang.server_args_info
"""

EXAMPLES = r"""
- name: Does our tuned file apply to this deployment?
  tokforge.sglang.moe_config_info:
    sglang_version: 0.5.23
    model: /models/Qwen3-30B-A3B
    backend: triton
    tp: 4
    directory: /srv/moe-configs
  register: tuned

- name: Refuse to start without it
  ansible.builtin.assert:
    that: tuned.applies is not none
    fail_msg: "{{ tuned.message }}"

- name: What would the file be called for a GPU that is not here?
  tokforge.sglang.moe_config_info:
    sglang_version: 0.5.12.post1
    experts: 256
    intermediate_size: 2048
    quantization: fp8
    block_shape: [128, 128]
    backend: triton
    device_name: NVIDIA H200
    compute_capability: "9.0"
    tp: 8
"""

RETURN = r"""
path:
  description: What runs the experts.
  returned: success
  type: dict
  contains:
    backend:
      description: The MoE runner, empty when it is not known.
      type: str
      sample: triton
    reads_configs:
      description: Whether it reads tuning files. V(null) when that is not known.
      type: bool
    reason:
      description: Why.
      type: str
wanted:
  description:
    - The files that are looked for, in this order, below E(SGLANG_MOE_CONFIG_DIR) or the package's own directory.
    - Empty when none is looked for, or when it is not known how the experts' weights are kept.
    - C(<GPU_name>) stands for the GPU's name where that is not known.
  returned: success
  type: list
  elements: str
  sample: ["configs/triton_3_8_0/E=128,N=192,device_name=NVIDIA_H200.json"]
wanted_down:
  description: The same for the down projection alone. These are optional.
  returned: success
  type: list
  elements: str
applies:
  description: Path of the file in O(directory) that is used, or V(null).
  returned: success
  type: str
applies_down:
  description: Path of the down projection's own file that is used, or V(null).
  returned: success
  type: str
fatal:
  description: What in O(directory) would end the server at its first forward. Empty for nothing.
  returned: success
  type: str
nearby:
  description: Files in O(directory) that are not used, the nearest first.
  returned: success
  type: list
  elements: dict
  contains:
    file:
      description: Its path.
      type: str
    reason:
      description: What is otherwise than SGLang looks for.
      type: str
      sample: "N=768 is the whole model's and not one rank's, that is tp 1; here a rank has 192 with tp 4"
nearby_left_out:
  description: How many more files are near.
  returned: success
  type: int
others:
  description: How many tuning files in O(directory) are for something else altogether.
  returned: success
  type: int
notes:
  description: What a person should know beside it.
  returned: success
  type: list
  elements: str
message:
  description: The answer in a sentence.
  returned: success
  type: str
"""

import re
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    gpu_look,
    model_files,
    model_shape,
    moe_config,
    moe_config_answer,
    moe_config_look,
    moe_config_request,
    server_args,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.model import ModelError
from ansible_collections.tokforge.sglang.plugins.module_utils.releases import ReleaseError


def request(given: dict[str, Any], capability: tuple[int, int] | None) -> moe_config_request.Request:
    """What is asked, with the model read."""
    shape = None
    settings: Mapping[str, Any] = {}
    if given["model"] is not None:
        config, quant = model_files.read(given["model"])
        shape = model_shape.read(config, quant)
        settings = moe_config_look.quantization_settings(config)
    block = given["block_shape"]
    if block is not None and (len(block) != 2 or min(block) < 1):
        raise moe_config.MoeConfigError(f"block_shape is {block}; give two numbers above 0")
    return moe_config_request.Request(
        release=given["sglang_version"],
        backend=given["backend"] or "",
        quantization=given["quantization"],
        capability=capability,
        tp=given["tp"],
        ep=given["ep"],
        args=given["args"],
        shape=shape,
        settings=settings,
        experts=given["experts"],
        intermediate_size=given["intermediate_size"],
        fused_shared=given["fused_shared_experts"],
        block_shape=tuple(block) if block is not None else None,
        per_channel=given["per_channel"],
    )


def capability_of(text: str) -> tuple[int, int]:
    """A compute capability as nvidia-smi writes it."""
    found = re.fullmatch(r"([0-9]{1,2})\.([0-9])", text.strip())
    if found is None:
        raise moe_config.MoeConfigError(f"compute_capability is {text!r}; give one like 12.0, in quotes")
    return int(found[1]), int(found[2])


def gpu_here(given: dict[str, Any]) -> tuple[str, tuple[int, int] | None, list[str]]:
    """Product name and compute capability, given or of the first GPU here, and what is to be said about that."""
    device = given["device_name"] or ""
    capability = capability_of(given["compute_capability"]) if given["compute_capability"] else None
    if device and capability:
        return device, capability, []
    report = gpu_look.look()
    if not report.gpus:
        return device, capability, [report.message] if report.message else []
    first = report.gpus[0]
    names = sorted({gpu.name for gpu in report.gpus})
    notes = [f"the GPUs here are of several kinds ({', '.join(names)}); SGLang asks the first"] if names[1:] else []
    return device or first.name, capability or first.compute_capability, notes


def triton_of(given: dict[str, Any]) -> str:
    """The version of Triton, given or the release's own."""
    triton = given["triton_version"]
    if triton is None:
        return moe_config.triton_version(given["sglang_version"])
    if not re.fullmatch(r"[0-9]+(\.[0-9A-Za-z+]+)*", triton):
        raise moe_config.MoeConfigError(f"triton_version is {triton!r}; give one like 3.6.0")
    return str(triton)


def main() -> None:
    """Read, judge and say; never changes anything."""
    module = AnsibleModule(
        argument_spec={
            "sglang_version": {"type": "str", "required": True},
            "model": {"type": "path"},
            "experts": {"type": "int"},
            "intermediate_size": {"type": "int"},
            "fused_shared_experts": {"type": "int"},
            "quantization": {"type": "str"},
            "block_shape": {"type": "list", "elements": "int"},
            "per_channel": {"type": "bool"},
            "backend": {"type": "str"},
            "compute_capability": {"type": "str"},
            "device_name": {"type": "str"},
            "triton_version": {"type": "str"},
            "tp": {"type": "int"},
            "ep": {"type": "int"},
            "args": {"type": "dict", "default": {}},
            "directory": {"type": "path"},
        },
        required_one_of=[("model", "experts")],
        supports_check_mode=True,
    )
    given = module.params
    # They have no place in an inventory, and must not be printed while they are there.
    module.no_log_values.update(server_args.secret_values(given["args"]))
    try:
        triton = triton_of(given)
        device, capability, notes = gpu_here(given)
        question = moe_config_request.resolve(request(given, capability))
        listing = None
        if given["directory"] is not None:
            keys = moe_config_answer.keys_of(question, device or moe_config.DEVICE_UNKNOWN)
            listing = moe_config_look.listing(given["directory"], given["sglang_version"], triton, keys)
        result = moe_config_answer.answer(question, device, triton, listing)
    except (moe_config.MoeConfigError, ModelError, model_shape.ShapeError, ReleaseError) as error:
        module.fail_json(msg=str(error), **getattr(error, "facts", {}))
    result["notes"] += notes
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
