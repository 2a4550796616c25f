#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: release_info
short_description: Tell which release is current and what it holds
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Reads the release that C(ROOT/current) points to, or another one, its manifest, and what is installed in its
    environment.
  - It fails when nothing was deployed below the root, or when the release is damaged, and says what to do.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  root:
    description: Directory that holds everything a rollout makes on the target.
    type: path
    required: true
  release:
    description: Number of the release to tell of, instead of the current one.
    type: int
  before:
    description: Tell of the release that served last before the current one.
    type: bool
    default: false
  env_pass_on:
    description:
      - Environment variables that the target sets and that the server has to keep, as
        O(tokforge.sglang.release#module:env_pass_on).
      - A release that has other values of them, or none, is an error.
    type: list
    elements: str
    default: []
seealso:
  - module: tokforge.sglang.release
"""

EXAMPLES = r"""
- name: See what is deployed
  tokforge.sglang.release_info:
    root: /opt/sglang
  register: deployed
"""

RETURN = r"""
release:
  description: Number of the release.
  returned: success
  type: int
  sample: 3
path:
  description: Its directory.
  returned: success
  type: str
content_id:
  description: 16 hexadecimal digits that are equal exactly when two releases start the same server.
  returned: success
  type: str
sglang_version:
  description: SGLang release in it.
  returned: success
  type: str
  sample: 0.5.23
backend:
  description: MoE runner backend that was asked for.
  returned: success
  type: str
args:
  description: All launch arguments by name.
  returned: success
  type: dict
env:
  description: Environment that was given for the server, without secrets.
  returned: success
  type: dict
model:
  description: What is served, with C(path), C(served_name), C(revision) and C(random_weights).
  returned: success
  type: dict
environment:
  description: Its environment, with C(id), C(path), C(python) and C(versions).
  returned: success
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import launch_plan, passed_env, release_store


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "release": {"type": "int"},
            "before": {"type": "bool", "default": False},
            "env_pass_on": {"type": "list", "elements": "str", "default": [], "no_log": False},
        },
        mutually_exclusive=[("release", "before")],
        supports_check_mode=True,
    )
    root = module.params["root"]
    try:
        number = release_store.proven_before(root) if module.params["before"] else module.params["release"]
        found = release_store.describe_current(root, number)
        problems = passed_env.unlike(module.params["env_pass_on"], os.environ, found["env"])
        if problems:
            module.fail_json(
                msg=f"cannot start release {found['release']} below {root}: its server would not keep what the machine "
                "sets:\n" + "\n".join(f"- {line}" for line in problems) + "\nDeploy what it had with deploy.yml",
                problems=problems,
            )
        env = launch_plan.given_environment(found["env"], root)
        module.exit_json(changed=False, **{**found, "env": env})
    except release_store.StoreError as error:
        module.fail_json(msg=str(error), **error.facts)


if __name__ == "__main__":
    main()
