#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: server_service
short_description: Start, stop or remove the SGLang server of a root directory
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Brings the release that C(current) names up under systemd or supervisor, or brings the server down.
  - A server that already runs exactly what C(current) describes (same release, launch arguments and secrets) is left
    alone.
  - Stopping sends SIGTERM to the processes of this server only, SIGKILL to what is left after O(stop_timeout_s), and
    fails when any of
    them survives that. Nothing is looked up or ended by name.
  - A port that another process holds is an error that names it, before anything is stopped.
  - It does not wait until the server serves; see M(tokforge.sglang.wait_for_ranks).
extends_documentation_fragment:
  - tokforge.sglang.attributes
  - tokforge.sglang.rollout_token
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows action, release and launch id before and after.
options:
  root:
    description: Root directory of the server on the target.
    type: path
    required: true
  manager:
    description:
      - What runs the server. V(auto) takes systemd where it is PID 1 and the module runs as root, supervisor elsewhere.
    type: str
    choices: [auto, systemd, supervisor]
    default: auto
  name:
    description: Name of the systemd unit (without C(.service)) or supervisor program.
    type: str
    default: sglang
  state:
    description:
      - V(started) also restarts a server that runs something else than C(current) describes.
      - V(stopped) leaves the manager as it is. V(absent) also ends supervisord, or disables the unit.
    type: str
    choices: [started, stopped, absent]
    default: started
  host:
    description: Address the server binds to.
    type: str
    default: 127.0.0.1
  port:
    description: Port the server binds to.
    type: int
    default: 30000
  stop_timeout_s:
    description: Seconds between SIGTERM and SIGKILL.
    type: float
    default: 60
  supervisord:
    description:
      - Path of the C(supervisord) program. Needed when the manager is supervisor and supervisord does not run yet.
    type: path
  release:
    description:
      - Number of the release that must be current. O(state=started) fails and changes nothing when it is another one,
        since another rollout switched to it. In check mode it is the one that would be current.
    type: int
  start_if:
    description: When V(false), O(state=started) starts nothing and restarts nothing.
    type: bool
    default: true
  secrets_sha256:
    description:
      - SHA-256 of what C(state/secrets.env) will hold, so that check mode, in which nobody writes that file, predicts
        the restart that changed secrets bring. Not used outside of check mode.
    type: str
seealso:
  - module: tokforge.sglang.readiness_info
  - module: tokforge.sglang.wait_for_ranks
"""

EXAMPLES = r"""
- name: Run what current describes
  tokforge.sglang.server_service:
    root: /opt/sglang
    state: started
    port: 30000
    supervisord: /opt/sglang/venvs/tools/bin/supervisord

- name: Stop it, with two minutes for running requests
  tokforge.sglang.server_service:
    root: /opt/sglang
    state: stopped
    stop_timeout_s: 120
"""

RETURN = r"""
action:
  description: What was done (or would be, in check mode).
  type: str
  returned: success
  sample: restarted
reason:
  description: Why, in one sentence.
  type: str
  returned: success
  sample: it runs release 1, current is release 2
manager:
  description: The manager in use, V(systemd) or V(supervisor).
  type: str
  returned: success
  sample: supervisor
pid:
  description: Main process of the server, 0 when none runs.
  type: int
  returned: success
  sample: 4711
launch_id:
  description:
    - Identity of launch arguments, environment and secrets the server runs with. Empty when none runs, and in check
      mode when the secrets will change.
  type: str
  returned: success
  sample: 0b85a73940dad5d8
release:
  description: Real path of the release the server runs. Empty when none runs.
  type: str
  returned: success
  sample: /opt/sglang/releases/2
log_position:
  description:
    - Where in the log this start begins, for M(tokforge.sglang.readiness_info) and whoever reads the log from there.
    - RV(log_position.inode) is 0 when the log did not exist yet.
  type: dict
  returned: success
  contains:
    path:
      description: The log.
      type: str
    inode:
      description: Inode the path had.
      type: int
    offset:
      description: Size of the log in bytes.
      type: int
    fingerprint:
      description: Tells whether the log is still the same one. Empty when the log may not be read.
      type: str
stop_s:
  description: Seconds from the first signal until the last process was gone.
  type: float
  returned: when something was stopped
  sample: 4.2
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import rollout_lock
from ansible_collections.tokforge.sglang.plugins.module_utils import service as core
from ansible_collections.tokforge.sglang.plugins.module_utils.managers import make_manager
from ansible_collections.tokforge.sglang.plugins.module_utils.supervisor_manager import check_supervisor_root


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "manager": {"type": "str", "choices": ["auto", "systemd", "supervisor"], "default": "auto"},
            "name": {"type": "str", "default": "sglang"},
            "state": {"type": "str", "choices": ["started", "stopped", "absent"], "default": "started"},
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "default": 30000},
            "stop_timeout_s": {"type": "float", "default": 60.0},
            "supervisord": {"type": "path"},
            "release": {"type": "int"},
            "start_if": {"type": "bool", "default": True},
            "secrets_sha256": {"type": "str", "no_log": True},
            "rollout": {"type": "str"},
        },
        supports_check_mode=True,
    )
    given = module.params
    try:
        paths = core.Paths(given["root"])
        manager = make_manager(given["manager"], paths, given["name"], given["supervisord"])
        if manager.kind == "supervisor" and given["state"] == "started":
            check_supervisor_root(paths)
        service = core.Service(paths, manager, given["name"], given["host"], given["port"], given["stop_timeout_s"])
        asked = (given["start_if"], given["secrets_sha256"], given["release"])
        with rollout_lock.at_work(given["root"], None if module.check_mode else given["rollout"]):
            result = core.carry_out(service, given["state"], module.check_mode, *asked)
    except (core.ServiceError, rollout_lock.LockError) as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
