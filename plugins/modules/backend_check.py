#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: backend_check
short_description: Say whether a backend of a SGLang release runs on a GPU
version_added: 0.1.0
description:
  - Judges MoE backend, attention and sparse attention backends, GEMM backends, allreduce fusion, quantization, sizes of
    tensor and expert parallelism, SGLang, FlashInfer, CUDA toolkit, driver and compute capability together.
  - The facts are part of this collection, each read in a released wheel and named in RV(source). Nothing is imported,
    looked up or downloaded, so the module answers on any machine and before anything is installed.
  - It never fails because of its verdict. Acting on it is up to the playbook.
author:
  - tokforge.sglang contributors (@tokforge)
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  backend:
    description: The value of C(--moe-runner-backend). Left out, it is what O(args) says, else V(auto).
    type: str
  sglang_version:
    description:
      - The release, as the package index names it, for example V(0.5.23).
      - Needed, unless O(gather=true) finds it in O(venv).
    type: str
  flashinfer_version:
    description: The version of flashinfer-python. Left out, it is the one that the release pins.
    type: str
  compute_capability:
    description: Of the GPU, for example V("12.0") or V(sm120). Left out, the machine counts as one without a GPU.
    type: str
  quantization:
    description: SGLang's name for it, for example V(modelopt_fp4). Left out, there is none.
    type: str
  tp:
    description: Size of tensor parallelism.
    type: int
    default: 1
  ep:
    description: Size of expert parallelism.
    type: int
    default: 1
  moe_a2a_backend:
    description: The value of C(--moe-a2a-backend).
    type: str
    default: none
  args:
    description:
      - Launch arguments, in any spelling. Those that choose a backend are judged too.
      - What they say of O(backend), O(quantization), O(tp), O(ep) and O(moe_a2a_backend) counts where these
        are left out.
    type: dict
    default: {}
  cuda_toolkit:
    description: Version of the CUDA toolkit that builds kernels, for example V("12.9"). Not judged when left out.
    type: str
  driver_version:
    description: Version of the NVIDIA driver. Not judged when left out.
    type: str
  gather:
    description:
      - Take what is left out from the target, the compute capability and the driver from its GPUs, versions from
        O(venv), the quantization from O(model). What O(args) say counts before it.
    type: bool
    default: false
  venv:
    description: Directory of an environment, to read the versions of sglang and flashinfer-python from.
    type: path
  model:
    description: Directory of a model, to read the quantization from its config.json.
    type: path
seealso:
  - module: tokforge.sglang.gpu_info
  - module: tokforge.sglang.server_args_info
"""

EXAMPLES = r"""
- name: Ask before anything is installed
  tokforge.sglang.backend_check:
    backend: flashinfer_cutedsl
    sglang_version: 0.5.12.post1
    compute_capability: "12.0"
    quantization: modelopt_fp4
    tp: 8
  register: checked

- name: Refuse what would die at start
  ansible.builtin.assert:
    that: checked.verdict != 'unsupported'
    fail_msg: "{{ checked.reason }}"

- name: Ask for this machine and this environment
  tokforge.sglang.backend_check:
    backend: flashinfer_cutlass
    gather: true
    venv: /opt/sglang/current/env
    model: /data/models/GLM-5-NVFP4
    args: "{{ sglang_server_args }}"
"""

RETURN = r"""
verdict:
  description:
    - V(supported), V(supported_but) when something differs from what one would expect, V(unsupported), or V(unknown)
      when nothing that was read says.
    - The worst of RV(parts) decides.
  returned: success
  type: str
  sample: unsupported
reason:
  description: The verdict with its cause in one message. A refusal ends with a command that works.
  returned: success
  type: str
  sample: flashinfer_cutedsl does not run on compute capability 12.0 with SGLang 0.5.12.post1...
why:
  description: The cause alone.
  returned: success
  type: str
  sample: "flashinfer_cutedsl: its kernels run on compute capability 10.x only"
alternatives:
  description:
    - What runs here instead, in the order in which to try it. What is supported with a difference comes last.
    - Values of the refused flag, MoE backends otherwise.
  returned: success
  type: list
  elements: str
  sample: [flashinfer_cutlass, marlin, auto]
source:
  description: Where the deciding facts were read, a wheel's file with a text in it or a public document.
  returned: success
  type: list
  elements: str
  sample: ["flashinfer-python 0.6.12 flashinfer/fused_moe/core.py: if backend in (\"120\", \"121\"):"]
commands:
  description: What to type instead of what is refused, best first.
  returned: success
  type: list
  elements: str
  sample: [ansible-playbook deploy.yml -e backend=flashinfer_cutlass]
parts:
  description: The verdict on each choice.
  returned: success
  type: list
  elements: dict
  contains:
    part:
      description: What it is about.
      type: str
      sample: moe
    flag:
      description: The launch argument, empty for what is none.
      type: str
      sample: moe-runner-backend
    value:
      description: What was asked for.
      type: str
      sample: flashinfer_cutedsl
    verdict:
      description: As RV(verdict).
      type: str
      sample: unsupported
    reason:
      description: The cause.
      type: str
      sample: its kernels run on compute capability 10.x only
    alternatives:
      description: As RV(alternatives), of this flag.
      type: list
      elements: str
      sample: [flashinfer_cutlass]
    source:
      description: As RV(source).
      type: list
      elements: str
      sample: ["sglang 0.5.11 sglang/srt/server_args.py: moe_runner_backend"]
query:
  description: What was judged, with what O(args) say, what O(gather=true) found and what stands for what was left out.
  returned: success
  type: dict
  sample: {"backend": "flashinfer_cutedsl", "compute_capability": "12.0", "sglang_version": "0.5.12.post1"}
notes:
  description: What O(gather=true) could not find, in words.
  returned: success
  type: list
  elements: str
  sample: []
"""

from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import compat, compat_gather, gpu_look, server_args


def main() -> None:
    """Judge; never changes anything."""
    texts = ("backend", "sglang_version", "flashinfer_version", "quantization", "cuda_toolkit", "driver_version")
    module = AnsibleModule(
        argument_spec={
            **{name: {"type": "str"} for name in (*texts, "compute_capability")},
            "tp": {"type": "int", "default": 1},
            "ep": {"type": "int", "default": 1},
            "moe_a2a_backend": {"type": "str", "default": "none"},
            "args": {"type": "dict", "default": {}},
            "gather": {"type": "bool", "default": False},
            "venv": {"type": "path"},
            "model": {"type": "path"},
        },
        supports_check_mode=True,
    )
    given = module.params
    if not given["gather"] and (given["venv"] or given["model"]):
        module.fail_json(msg="checking the backend: venv and model are read with gather: true only; set it")
    module.no_log_values.update(server_args.secret_values(given["args"]))
    query = compat.Query(
        **{name: given[name] or "" for name in texts if name != "backend"},
        backend=given["backend"] or compat.AUTO,
        compute_capability=given["compute_capability"] or None,
        tp=given["tp"],
        ep=given["ep"],
        moe_a2a_backend=given["moe_a2a_backend"],
        args=given["args"],
    )
    notes: tuple[str, ...] = ()
    try:
        if given["gather"]:
            gathered = compat_gather.complete(query, gpu_look.look, given["venv"], given["model"])
            query, notes = gathered.query, gathered.notes
        verdict = compat.judge(query)
    except compat.CompatError as exc:
        module.fail_json(msg=f"checking the backend: {exc}")
    asked = {name: value for name, value in asdict(compat.filled(query)).items() if name != "args"}
    module.exit_json(changed=False, query=asked, notes=list(notes), **asdict(verdict))


if __name__ == "__main__":
    main()
