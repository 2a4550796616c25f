#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: tuned_profile
short_description: Have a TuneD profile that sets the CPU governor, and put back the one before
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Writes a TuneD profile that includes the one that was active before and sets the CPU governor on top, makes it the
    active one and has TuneD run at each start.
  - How TuneD was, its package included, is noted in O(record_dir) before the first change, and O(state=absent) puts it
    back. Does not install or remove the package itself.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - Where TuneD is not installed, it is taken for being installed before this runs.
  diff_mode:
    support: full
    details:
      - Shows the profile before and after.
options:
  name:
    description: Name of the profile.
    type: str
    default: tokforge-host
  governor:
    description: CPU governor of the profile. Needed with O(state=present).
    type: str
  state:
    description:
      - V(noted) only notes how TuneD is. For the time before its package is installed, which starts it.
      - V(present) makes the profile the active one.
      - V(absent) puts back the profile, and whether TuneD runs and is enabled. Where it was not installed, it is
        switched off and RV(remove_package) says that the package is to go; run this once more after that.
    type: str
    choices: [noted, present, absent]
    default: present
  tuned_adm:
    description:
      - Program that switches profiles. Where it is not there, TuneD is not installed.
      - This option and those below are for tests and images.
    type: path
    default: /usr/sbin/tuned-adm
  systemctl:
    description: Program that starts and enables TuneD.
    type: str
    default: systemctl
  config:
    description: TuneD's directory for its configuration and for what is active.
    type: path
    default: /etc/tuned
  profiles:
    description: Directory for the profile. By default the one that the installed release of TuneD reads.
    type: str
    default: ""
  record_dir:
    description: Directory where it is noted what the settings of this host were.
    type: path
    default: /var/lib/tokforge/host
seealso:
  - module: tokforge.sglang.cpu_governor
"""

EXAMPLES = r"""
- name: Note how TuneD is
  tokforge.sglang.tuned_profile:
    state: noted

- name: Install TuneD without starting it
  ansible.builtin.apt:
    name: tuned
    policy_rc_d: 101

- name: Have the CPUs run at full clock
  tokforge.sglang.tuned_profile:
    governor: performance
"""

RETURN = r"""
installed:
  description: Whether TuneD is installed now.
  returned: success
  type: bool
  sample: true
before:
  description: How TuneD was, C(installed), C(enabled), C(running), C(profile) and C(mode).
  returned: success
  type: dict
  sample: {installed: true, enabled: true, running: true, profile: balanced, mode: auto}
after:
  description: The same afterwards, in check mode what it would be.
  returned: success
  type: dict
  sample: {installed: true, enabled: true, running: true, profile: tokforge-host, mode: manual}
file:
  description: File of the profile, empty when there is nothing to do with it.
  returned: success
  type: str
  sample: /etc/tuned/tokforge-host/tuned.conf
remove_package:
  description: Whether TuneD was not installed before and is now, so that its package is to be removed.
  returned: success
  type: bool
  sample: false
output:
  description: Last lines of the command that failed.
  returned: when a command failed
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    previous_values,
    run_command,
    tuned_profile,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """What the module returns. Raises TunedError, OwnFileError and RecordError."""
    paths = tuned_profile.Paths(
        config=params["config"],
        adm=params["tuned_adm"],
        profiles=params["profiles"],
        systemctl=params["systemctl"],
        record_dir=params["record_dir"],
    )
    if params["state"] == "noted":
        outcome = tuned_profile.note(paths, check_mode, run_command.run)
    elif params["state"] == "present":
        outcome = tuned_profile.present(params["name"], params["governor"], paths, check_mode, run_command.run)
    else:
        outcome = tuned_profile.absent(params["name"], paths, check_mode, run_command.run)
    return {
        "changed": outcome.changed,
        "installed": outcome.before.installed,
        "before": outcome.before.plain,
        "after": outcome.after.plain,
        "file": outcome.file,
        "remove_package": outcome.remove_package,
        "diff": {
            "before_header": outcome.file,
            "after_header": outcome.file,
            "before": outcome.text_before or "",
            "after": outcome.text_after or "",
        },
    }


def main() -> None:
    """Note, make or put back."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "default": "tokforge-host"},
            "governor": {"type": "str"},
            "state": {"type": "str", "choices": ["noted", "present", "absent"], "default": "present"},
            "tuned_adm": {"type": "path", "default": tuned_profile.ADM},
            "systemctl": {"type": "str", "default": "systemctl"},
            "config": {"type": "path", "default": tuned_profile.CONFIG},
            "profiles": {"type": "str", "default": ""},
            "record_dir": {"type": "path", "default": previous_values.RECORD_DIR},
        },
        required_if=[("state", "present", ["governor"])],
        supports_check_mode=True,
    )
    try:
        result = run(module.params, module.check_mode)
    except HostError as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
