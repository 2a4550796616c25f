#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight
short_description: Check a rollout request before anything is changed
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - On the controller it holds every variable of this collection against the argument specs of the roles, finds misspelt
    names, and checks release, backend and launch arguments against the data of the release.
  - On the target it looks at the directory, the disk, the interpreters, the port, the service manager and the model, at
    GPUs, driver and CUDA toolkit, and whether the backend runs on them and the model fits.
  - It fails once, with everything that is wrong, and changes nothing.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
attributes:
  action:
    description: Has an action plugin of the same name, so that a part of it runs on the controller.
    support: full
options:
  root:
    description: Directory that holds everything a rollout makes on the target, an absolute path.
    type: str
    required: true
  lane:
    description: Which set of locked packages. V(auto) is the newest that the driver can run.
    type: str
    required: true
  version:
    description:
      - SGLang release that is asked for. V(auto) is the newest locked one in which the backend runs on this host.
    type: str
    required: true
  backend:
    description: MoE runner backend that is asked for.
    type: str
    default: auto
  force_backend:
    description: Only warn about a backend that does not run on this host.
    type: bool
    default: false
  args:
    description: Launch arguments, as C(sglang_server_args) of role C(sglang_release). The action plugin fills them in.
    type: dict
    default: {}
  env:
    description: Environment of the server, as C(sglang_server_env). The action plugin fills it in.
    type: dict
    default: {}
  env_pass_on:
    description:
      - Environment variables that the target has to set for the server, as C(sglang_server_env_pass_on). The action
        plugin fills it in.
    type: list
    elements: str
    default: []
  random_weights:
    description: Whether the model gets random weights. The action plugin fills it in.
    type: bool
    default: false
  hub_endpoint:
    description: Address of the hub, when it is not the usual one. The action plugin fills it in.
    type: str
  controller_s:
    description: Time on the controller in seconds since 1970. The action plugin fills it in.
    type: float
  concurrency:
    description: What will be measured, for the ceiling of decoding. The action plugin fills it in.
    type: list
    elements: int
    default: [1]
  report_only:
    description: Return what is wrong without failing.
    type: bool
    default: false
  model:
    description:
      - Model that is asked for, C(builtin:tiny-moe), C(builtin:moe-30b), an absolute directory, or
        C(org/name@<40 hex digits>).
    type: str
    default: builtin:tiny-moe
  python:
    description: Interpreter for the environment, a path or V(auto).
    type: str
    default: auto
  host:
    description: Address the server would bind to.
    type: str
    default: 127.0.0.1
  port:
    description: Port the server would bind to.
    type: int
    default: 30000
  manager:
    description: What would run the server.
    type: str
    choices: [auto, systemd, supervisor]
    default: auto
  min_free_bytes:
    description: Room in bytes that a rollout needs while the release's environment is not installed yet.
    type: int
    required: true
  facts_dir:
    description: Directory of the fact file. Left out, C(facts) below O(root).
    type: str
  models_dir:
    description: Directory of the models, when it is not below O(root).
    type: str
  uv_cache:
    description: Directory of uv's cache, when it is not below O(root).
    type: str
  install_source:
    description: Where SGLang is installed from, as C(sglang_install_source) of role C(sglang_install).
    type: dict
  install_base:
    description: The Python whose packages are used, as C(sglang_install_base) of role C(sglang_install).
    type: dict
"""

EXAMPLES = r"""
- name: Check the request against this host
  tokforge.sglang.preflight:
    root: /opt/sglang
    lane: cuda13
    version: 0.5.23
    backend: flashinfer_cutlass
    model: /data/models/GLM-5-NVFP4
    min_free_bytes: 25000000000
"""

RETURN = r"""
findings:
  description: What every check saw. A C(level) of C(fail) stops the rollout.
  type: list
  elements: dict
  returned: always
  sample:
    - level: fail
      check: port
      message: 127.0.0.1:30000 is in use by pid 812 (nginx -g daemon off;)
      remedy: stop that process, or set sglang_port to a free port
choice:
  description: The release and lane that the rollout takes, and why. V(null) when none can be.
  type: dict
  returned: always
  sample:
    version: 0.5.23
    lane: cuda13
    reason: the newest locked release in which flashinfer_cutlass runs on compute capability 12.0
backend:
  description:
    - What is known about the backend there, its C(verdict) (supported, supported_but, unsupported, unknown) and
      C(reason), and whether it is C(forced) all the same. V(null) in lane C(cpu).
  type: dict
  returned: always
passed_on:
  description: What the server keeps of the environment that the target sets.
  type: dict
  returned: always
  sample: {"NCCL_NVLS_ENABLE": "0"}
report:
  description:
    - The worst C(verdict) (ok, warn, fail), the C(counts) in words, C(choice), C(backend), C(findings), and
      C(elapsed_s), the seconds that all checks took.
  type: dict
  returned: when O(report_only) is true
"""

import os
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import host_checks, passed_env, preflight


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "str", "required": True},
            "lane": {"type": "str", "required": True},
            "version": {"type": "str", "required": True},
            "backend": {"type": "str", "default": "auto"},
            "force_backend": {"type": "bool", "default": False},
            "args": {"type": "dict", "default": {}},
            "env": {"type": "dict", "default": {}},
            "env_pass_on": {"type": "list", "elements": "str", "default": [], "no_log": False},
            "random_weights": {"type": "bool", "default": False},
            "hub_endpoint": {"type": "str"},
            "controller_s": {"type": "float"},
            "concurrency": {"type": "list", "elements": "int", "default": [1]},
            "report_only": {"type": "bool", "default": False},
            "model": {"type": "str", "default": "builtin:tiny-moe"},
            "python": {"type": "str", "default": "auto"},
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "default": 30000},
            "manager": {"type": "str", "choices": ["auto", "systemd", "supervisor"], "default": "auto"},
            "min_free_bytes": {"type": "int", "required": True},
            "facts_dir": {"type": "str"},
            "models_dir": {"type": "str"},
            "uv_cache": {"type": "str"},
            "install_source": {"type": "dict"},
            "install_base": {"type": "dict"},
        },
        supports_check_mode=True,
    )
    params = module.params
    passed, problems = passed_env.passed_on(params["env_pass_on"], os.environ, params["env"])
    found = host_checks.everything({**params, "env": {**params["env"], **passed}})
    module.exit_json(
        changed=False,
        findings=[finding.as_dict() for finding in (*preflight.check_passed_on(passed, problems), *found.findings)],
        passed_on=passed,
        choice=found.choice.as_dict() if found.choice else None,
        backend=asdict(found.backend) if found.backend else None,
    )


if __name__ == "__main__":
    main()
