#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_transaction
short_description: Install packages when what apt would do is allowed, and take away what it brought
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Simulates, refuses what must not be, and then has apt do what was simulated. C(ansible.builtin.apt) cannot look at a
    transaction before it is done, and needs C(python3-apt) already in check mode.
  - Recommended packages are left out. Downgrades and held packages are allowed, so that an exact version is what it
    says.
  - What a transaction brings is noted in O(record_dir) before it is done, so that O(state=absent) takes away that and
    nothing else. A package that was there before in another version is told and left as it is.
  - Package lists are not fetched, see M(tokforge.sglang.nvidia_repository).
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - Simulates all the same, so what cannot be done fails in check mode too.
  diff_mode:
    support: full
    details:
      - Shows the packages before and after with their versions.
options:
  owner:
    description: Whose packages these are, the name under which they are noted.
    type: str
    required: true
  packages:
    description:
      - Packages, each C(name), C(name=version), C(name=version*), or C(name-) for one that is to go in the same
        transaction. Required with O(state=present).
    type: list
    elements: str
    default: []
  also:
    description:
      - More packages, of which those are asked for too that apt can give. For installed packages that are to change to
        a version together with O(packages), although nothing depends on that.
    type: list
    elements: str
    default: []
  preferences:
    description:
      - Text of preferences (C(man apt_preferences)) that hold while the transaction is simulated and done. A refused
        transaction leaves none behind.
    type: str
    default: ""
  preferences_file:
    description:
      - File that keeps O(preferences) while the packages are held. Without O(hold), and with O(state=absent), it is
        removed.
    type: path
    default: ""
  state:
    description:
      - V(present) has the packages installed.
      - V(absent) purges what was noted for O(owner), the driver's packages, those that were asked for by name, and what
        came along as long as nothing else needs it and nobody asked for it. Fails when something else would have to go
        with the former.
    type: str
    choices: [present, absent]
    default: present
  refuse:
    description: What makes the module fail before anything is done, see M(tokforge.sglang.apt_simulation_info).
    type: list
    elements: str
    choices: [kernel, kernel_module, driver, other_removal]
    default: []
  hold:
    description:
      - Whether apt is to hold those of O(packages) that are driver packages at their version (C(apt-mark hold)).
      - With V(false) holds that this module noted are taken off.
    type: bool
    default: false
  keep_needed:
    description: With O(state=absent), whether packages stay that others need by now. With V(false) that is a failure.
    type: bool
    default: false
  record_dir:
    description: Directory for the notes of what was there before.
    type: path
    default: /var/lib/tokforge/host
  apt_options:
    description: More settings for C(apt-get -o), each C(NAME=VALUE). For tests and images.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Install the driver, but no kernel
  tokforge.sglang.apt_transaction:
    owner: gpu_driver
    packages:
      - nvidia-kernel-open-dkms=580.95.05-*
      - nvidia-driver-cuda=580.95.05-*
    preferences: "{{ plan.preferences }}"
    preferences_file: /etc/apt/preferences.d/tokforge-nvidia
    refuse:
      - kernel
      - other_removal
    hold: true

- name: Take away what that brought
  tokforge.sglang.apt_transaction:
    owner: gpu_driver
    state: absent
"""

RETURN = r"""
installs:
  description: What is new.
  returned: success, and when it is refused
  type: list
  elements: dict
  contains: &change
    name:
      description: Name of the package.
      type: str
      sample: libcuda1
    version:
      description: Version that it has now; empty when it is gone.
      type: str
      sample: 580.95.05-1
    before:
      description: Version that it had; empty when it was not there.
      type: str
      sample: ""
upgrades:
  description: What has another version.
  returned: success, and when it is refused
  type: list
  elements: dict
  contains: *change
removes:
  description: What is gone.
  returned: success, and when it is refused
  type: list
  elements: dict
  contains: *change
downgrades:
  description: Names among RV(upgrades) that became older.
  returned: success, and when it is refused
  type: list
  elements: str
  sample: []
unfinished:
  description: Packages that an earlier run left unpacked and not configured, and that apt configured.
  returned: success, and when it is refused
  type: list
  elements: str
  sample: []
changes:
  description: Whether packages changed.
  returned: success, and when it is refused
  type: bool
  sample: true
held:
  description: Packages whose hold was set, or taken off, in this run.
  returned: success
  type: list
  elements: str
  sample: [nvidia-driver-cuda]
kept:
  description: With O(state=absent), packages that were there before, with the version they had then, and are left.
  returned: success
  type: dict
  sample: {}
refused:
  description: Names that are refused, by class.
  returned: when something is refused
  type: dict
  sample: {kernel: [linux-image-6.1.0-40-amd64]}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import apt_run
from ansible_collections.tokforge.sglang.plugins.module_utils.apt_packages import Packages
from ansible_collections.tokforge.sglang.plugins.module_utils.apt_pin import Pin
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError


def settle(params: dict[str, Any], check: bool, run: apt_run.Run) -> dict[str, Any]:
    """What the module returns. Raises SimulationError and RecordError."""
    apt = apt_run.Apt(run, tuple(params["apt_options"]))
    pin = Pin(params["preferences_file"], params["preferences"])
    ours = Packages(apt, params["owner"], params["record_dir"], pin)
    if params["state"] == "present":
        return ours.bring(params["packages"], params["also"], params["refuse"], params["hold"], check)
    return ours.take_away(params["refuse"], check, params["keep_needed"])


def shown(result: dict[str, Any]) -> dict[str, str]:
    """Packages before and after, a line each."""
    changes = [*result["installs"], *result["upgrades"], *result["removes"]]
    return {
        side: "".join(f"{one['name']} {one[key]}\n" for one in changes if one[key])
        for side, key in (("before", "before"), ("after", "version"))
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "owner": {"type": "str", "required": True},
            "packages": {"type": "list", "elements": "str", "default": []},
            "also": {"type": "list", "elements": "str", "default": []},
            "preferences": {"type": "str", "default": ""},
            "preferences_file": {"type": "path", "default": ""},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "refuse": {
                "type": "list",
                "elements": "str",
                "choices": ["kernel", "kernel_module", "driver", "other_removal"],
                "default": [],
            },
            "hold": {"type": "bool", "default": False},
            "keep_needed": {"type": "bool", "default": False},
            "record_dir": {"type": "path", "default": "/var/lib/tokforge/host"},
            "apt_options": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    try:
        result = settle(module.params, module.check_mode, apt_run.run_apt)
    except HostError as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(**result, **({"diff": shown(result)} if module._diff else {}))


if __name__ == "__main__":
    main()
