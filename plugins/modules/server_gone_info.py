#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_gone_info
short_description: Prove that a stopped SGLang server has left its port and its GPUs
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Waits for at most O(timeout_s) until no process of the server is left, nobody listens on its port, and no process of
    it holds memory on a GPU. The driver may free the memory of a large model some seconds after its processes ended.
  - Fails when that does not come, and says what is left. It ends nothing; M(tokforge.sglang.server_service) does.
  - Where nvidia-smi names no processes, as in a container that has a process namespace of its own, RV(gpus_free) is
    null, and the end of the processes is all that is known.
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.attributes.info_module
options:
  root:
    description: Root directory of the server on the target.
    type: path
    required: true
  host:
    description: Address the server binds to.
    type: str
    default: 127.0.0.1
  port:
    description: Port the server binds to.
    type: int
    default: 30000
  pids:
    description: The processes that the server had before it was stopped, from M(tokforge.sglang.server_drain).
    type: list
    elements: int
    default: []
  timeout_s:
    description: How long to wait, in seconds.
    type: float
    default: 30
seealso:
  - module: tokforge.sglang.server_drain
  - module: tokforge.sglang.server_service
"""

EXAMPLES = r"""
- name: Prove that it is gone before the next one starts
  tokforge.sglang.server_gone_info:
    root: /opt/sglang
    port: 30000
    pids: "{{ drain.pids }}"
"""

RETURN = r"""
gone:
  description: Whether processes, port and GPU memory are all free.
  type: bool
  returned: always
processes:
  description: Processes of the server that are left.
  type: list
  elements: int
  returned: always
port_closed:
  description: Whether nobody listens on the port.
  type: bool
  returned: always
gpus_free:
  description:
    - Whether no process of the server holds memory on a GPU. Null where there is no GPU or nobody names processes.
  type: bool
  returned: always
gpu_processes:
  description: Processes of the server that hold memory on a GPU, with C(gpu), C(pid) and C(memory_bytes).
  type: list
  elements: dict
  returned: always
waited_s:
  description: Seconds until then.
  type: float
  returned: always
"""

import time
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import gpu_look, server_gone
from ansible_collections.tokforge.sglang.plugins.module_utils.service import (
    Paths,
    ServiceError,
    own_processes,
    port_holders,
    read_record,
)

POLL_S = 0.5


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "default": 30000},
            "pids": {"type": "list", "elements": "int", "default": []},
            "timeout_s": {"type": "float", "default": 30.0},
        },
        supports_check_mode=True,
    )
    given = module.params
    paths, where = Paths(given["root"]), f"{given['host']}:{given['port']}"
    began = time.monotonic()
    try:
        while True:
            record = read_record(paths)
            own = [process.pid for process in own_processes(paths, 0, [], record)]
            holders = port_holders(given["host"], given["port"])
            report = None if own or holders else gpu_look.look()
            proof = server_gone.judge(own, holders, report, given["pids"], where)
            waited_s = time.monotonic() - began
            if proof.gone or waited_s + POLL_S > given["timeout_s"]:
                break
            time.sleep(POLL_S)
    except ServiceError as error:
        module.fail_json(msg=str(error), **error.facts)
    result = {name: value for name, value in asdict(proof).items() if name != "why"}
    result["waited_s"] = round(waited_s, 2)
    if not proof.gone:
        module.fail_json(
            msg=f"the server of {given['root']} is not gone after {waited_s:.0f} s: {proof.why}; look at it in /proc, "
            "a hung driver call needs a reboot. Nothing was started",
            **result,
        )
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
