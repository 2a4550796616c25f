#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_args_info
short_description: Check, render and read back the arguments of an SGLang server
version_added: 0.1.0
description:
  - Checks a mapping of arguments against the command line of one SGLang release and renders it as an argument list.
  - Reads the arguments that a running or past server says it uses from its log, and compares them with others.
  - What each release accepts is part of this collection, read from the release's own sources. Nothing of SGLang has to
    be installed where the module runs.
author:
  - tokforge.sglang contributors (@tokforge)
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  args:
    description:
      - The arguments, one key for each flag, with dashes or underscores and without leading dashes.
      - V(true) gives the flag alone. V(false) and V(null) leave it out, except that V(false) on a flag that can be
        negated gives C(--no-FLAG). A list gives its items after the flag, a mapping its JSON text.
      - Needs O(sglang_version).
    type: dict
  sglang_version:
    description: The release whose command line counts, as the package index names it, for example V(0.5.23).
    type: str
  log:
    description:
      - Path of a server's log on the target. The arguments of the last start in it are read.
    type: path
  compare_with:
    description:
      - Arguments to compare with those of O(log), or with O(args) when no log is given.
      - Usually the RV(effective) of another server or of an earlier look.
    type: dict
seealso:
  - module: tokforge.sglang.benchmark
"""

EXAMPLES = r"""
- name: Check the arguments before anything is installed
  tokforge.sglang.server_args_info:
    sglang_version: 0.5.23
    args:
      tp-size: 8
      moe-runner-backend: flashinfer_cutlass
  register: checked

- name: Refuse what the release does not take
  ansible.builtin.assert:
    that: checked.problems | length == 0
    fail_msg: "{{ checked.problems | map(attribute='message') | join('; ') }}"

- name: See what differs between the running server and the recorded arguments
  tokforge.sglang.server_args_info:
    log: /opt/sglang/log/server.log
    compare_with: "{{ recorded_args }}"
  register: compared
"""

RETURN = r"""
argv:
  description: The rendered arguments, sorted by flag. Made even when there are problems. V(null) without O(args).
  returned: success
  type: list
  elements: str
  sample: ["--moe-runner-backend", "flashinfer_cutlass", "--tp-size", "8"]
problems:
  description: What the release would not accept, or what another variable decides. Empty when all is well.
  returned: success
  type: list
  elements: dict
  contains:
    flag:
      description: The flag, without leading dashes.
      type: str
      sample: moe-runner-backend
    message:
      description: What is wrong and what to write instead.
      type: str
      sample: "--moe-runner-backend does not take triton_kernels in SGLang 0.5.23 (did you mean triton_kernel?)..."
effective:
  description:
    - All arguments the server in O(log) runs with, defaults and its own decisions included.
    - Secrets are replaced by V((hidden\)). V(null) when no log was given.
  returned: success
  type: dict
  sample: {"attention_backend": "torch_native", "tp_size": 1}
differences:
  description:
    - The arguments that differ, sorted by name. V((absent\)) stands for the side that does not have the argument.
    - Empty without O(compare_with).
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The argument, with underscores.
      type: str
      sample: tp_size
    left:
      description: The value in O(log), or in O(args) when no log was given.
      type: raw
      sample: 1
    right:
      description: The value in O(compare_with).
      type: raw
      sample: 8
"""

from dataclasses import asdict
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import releases, server_args


def read_log(module: AnsibleModule, path: str) -> dict[str, Any]:
    """The arguments of the last start in the log at `path`; fails the module when there are none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as lines:
            found = server_args.parse_log(lines)
    except OSError as exc:
        module.fail_json(msg=f"reading the log {path}: {exc.strerror}; give the path of a server's log", log=path)
    if not found:
        module.fail_json(
            msg=f"reading the log {path}: no server says its arguments in it; give the log of a started SGLang server",
            log=path,
        )
    return found or {}


def main() -> None:
    """Check, render, read back and compare; never changes anything."""
    module = AnsibleModule(
        argument_spec={
            "args": {"type": "dict"},
            "sglang_version": {"type": "str"},
            "log": {"type": "path"},
            "compare_with": {"type": "dict"},
        },
        required_one_of=[("args", "log")],
        required_by={"args": ["sglang_version"]},
        supports_check_mode=True,
    )
    args = module.params["args"]
    argv, problems, effective = None, [], None
    if args is not None:
        try:
            release = releases.get(module.params["sglang_version"])
        except releases.ReleaseError as exc:
            module.fail_json(msg=str(exc), **exc.facts)
        # They are refused below; until they are gone from the inventory they must not be printed either.
        module.no_log_values.update(server_args.secret_values(args))
        argv = server_args.render(args, release)
        problems = [asdict(problem) for problem in server_args.check(args, release)]
    if module.params["log"] is not None:
        effective = read_log(module, module.params["log"])
    differences = []
    if module.params["compare_with"] is not None:
        left = args if effective is None else effective
        differences = [entry._asdict() for entry in server_args.diff(left, module.params["compare_with"])]
    module.exit_json(changed=False, argv=argv, problems=problems, effective=effective, differences=differences)


if __name__ == "__main__":
    main()
