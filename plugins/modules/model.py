#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: model
short_description: Provide a model that SGLang can serve
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Makes sure that a model is complete in a directory of the target, and says what it is. Three kinds of models are
    known, built-in ones, a directory that is there already, and a repository of the Hugging Face hub at a pinned
    commit.
  - A built-in or downloaded model is complete only while its file C(model.json), written last, names the asked content
    and every file listed there has its full size. A complete model costs no program run and no network access.
  - A download that was interrupted goes on where it stopped, file by file. Within one run a dropped connection
    continues inside the file.
  - A directory is never written to.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - The hub is not asked, so a wrong repository name or too little disk space shows only in a real run.
  diff_mode:
    support: none
options:
  model:
    description:
      - Which model, in one of the forms C(builtin:NAME), C(/absolute/directory) or C(org/name@REVISION).
      - C(builtin:tiny-moe) is a Qwen3-MoE of a few million random parameters with a tokenizer of its own, made in about
        a second.
      - C(builtin:moe-30b) is a Qwen3-MoE of the published shape of Qwen3-30B-A3B with random weights and the same
        tokenizer, whose vocabulary of 8192 tokens makes it 0.6 billion parameters smaller than the published one. It
        takes no disk, and 60 GB of GPU memory in bfloat16.
      - C(REVISION) is the commit's 40 hexadecimal digits. Branches and tags are refused, since what they name can
        change. Every revision has a directory of its own, so that a download never touches what a running server reads.
    type: str
    required: true
  models_dir:
    description: Directory below which built-in and downloaded models are kept, each in a directory of its own.
    type: path
    required: true
  python:
    description:
      - Python of the environment that serves the model. It has the C(tokenizers) package (needed for built-in models)
        and the C(huggingface_hub) package (needed for downloads).
    type: path
    required: true
  served_name:
    description:
      - Name under which the server offers the model. A colon is not allowed.
      - Left out or empty, the built-in model's or the directory's name, or C(org/name).
    type: str
    default: ""
  random_weights:
    description:
      - Serve random weights (C(--load-format dummy)) instead of those of the model. The directory then needs none.
      - Built-in models have no others.
    type: bool
    default: false
  token:
    description:
      - Access token for a private or gated repository. It reaches the download through its environment, never through
        its arguments.
      - Left out, the login that the user on the target has (E(HF_TOKEN) or C(hf auth login)), if any.
    type: str
    default: ""
  endpoint:
    description:
      - Address of the hub or of a mirror that speaks its protocol. Left out, E(HF_ENDPOINT) or
        U(https://huggingface.co).
    type: str
    default: ""
  min_free_bytes:
    description: Room in bytes that must stay free on the file system of O(models_dir) after a download.
    type: int
    default: 1000000000
  user:
    description:
      - User that the server runs as. Every file of the model must be readable for it. Checked by becoming that user, so
        only when the module runs as root.
      - Left out, the user that runs the module.
    type: str
seealso:
  - module: tokforge.sglang.release
"""

EXAMPLES = r"""
- name: Make a built-in model
  tokforge.sglang.model:
    model: builtin:tiny-moe
    models_dir: /opt/sglang/models
    python: /opt/sglang/venvs/0123456789ab/bin/python
  register: made

- name: Look at a directory that somebody else filled
  tokforge.sglang.model:
    model: /data/models/GLM-5-NVFP4
    models_dir: /opt/sglang/models
    python: /opt/sglang/venvs/0123456789ab/bin/python
    served_name: glm-5-nvfp4
    user: sglang

- name: Download a pinned commit
  tokforge.sglang.model:
    model: Qwen/Qwen3-0.6B@c1899de289a04d12100db370d81485cdf75e47ca
    models_dir: /opt/sglang/models
    python: /opt/sglang/venvs/0123456789ab/bin/python
    token: "{{ vault_hub_token }}"
"""

RETURN = r"""
path:
  description: Directory of the model.
  returned: success
  type: str
  sample: /opt/sglang/models/tiny-moe
served_name:
  description: Name under which the server is to offer the model.
  returned: success
  type: str
  sample: tiny-moe
random_weights:
  description: Whether the server is to make random weights, so that its answers mean nothing.
  returned: success
  type: bool
revision:
  description:
    - What exactly the directory holds, the commit of a download or the recipe of a built-in model. None for a
      directory.
  returned: success
  type: str
  sample: recipe-1
size_bytes:
  description: Size in bytes of the files at the top of the directory. 0 in check mode while there is no directory.
  returned: success
  type: int
  sample: 600000
architecture:
  description:
    - First entry of C(architectures) in config.json. None when there is none, and in check mode before a download.
  returned: success
  type: str
  sample: Qwen3MoeForCausalLM
model_type:
  description: C(model_type) in config.json. None when there is none, and in check mode before a download.
  returned: success
  type: str
  sample: qwen3_moe
reason:
  description: Why something was done, or would be in check mode. None when the model was complete.
  returned: success
  type: str
  sample: it was never finished
"""

from dataclasses import asdict
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import model as core
from ansible_collections.tokforge.sglang.plugins.module_utils import model_store


def provide(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Make the asked model complete and give the module's result. Raises ModelError."""
    source = core.parse(params["model"])
    served_name = core.check_served_name(params["served_name"] or source.served_name)
    random_weights = params["random_weights"] or source.kind == "builtin"
    path, reason = source.name, None
    if source.kind != "directory":
        hub = model_store.Hub(params["python"], params["endpoint"], params["token"])
        path, reason = model_store.provide(source, params["models_dir"], hub, params["min_free_bytes"], check_mode)
    if reason is not None and check_mode:
        config, size_bytes = core.expected_config(source), 0
    else:
        config, size_bytes = core.inspect_directory(path, random_weights, params["user"])
    model = core.describe(path, source, served_name, config, size_bytes, random_weights)
    return {"changed": reason is not None, "reason": reason, **asdict(model)}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "model": {"type": "str", "required": True},
            "models_dir": {"type": "path", "required": True},
            "python": {"type": "path", "required": True},
            "served_name": {"type": "str", "default": ""},
            "random_weights": {"type": "bool", "default": False},
            "token": {"type": "str", "default": "", "no_log": True},
            "endpoint": {"type": "str", "default": ""},
            "min_free_bytes": {"type": "int", "default": 1_000_000_000},
            "user": {"type": "str"},
        },
        supports_check_mode=True,
    )
    try:
        module.exit_json(**provide(module.params, module.check_mode))
    except core.ModelError as error:
        module.fail_json(msg=str(error), **error.facts)


if __name__ == "__main__":
    main()
