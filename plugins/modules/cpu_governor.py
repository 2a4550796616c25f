#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cpu_governor
short_description: Set the CPU governor and energy preference of the running kernel
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Sets the governor, then the energy preference, of every group of CPUs that share a frequency (a policy of the
    kernel), and reads each back.
  - What they were is noted in O(record_dir) before the first change, and O(state=absent) puts it back.
  - What is set is lost when the machine starts again. To have it at every start is not this module's work but that of
    a unit or a TuneD profile; run this module before that is enabled for the first time, so that what is noted is what
    the machine had without it.
  - A machine that has nothing to set, such as most virtual machines, is RV(supported=false) and no failure.
  - A container has no CPU frequency of its own and sees that of its machine without being allowed to set it. There
    the module fails and says so; run it on the hypervisor.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
    details:
      - Everything but the writing is done, so what is refused before a change is refused in check mode too. Whether a
        value sticks is known only after it was written.
  diff_mode:
    support: full
    details:
      - Shows governor and energy preference of every policy, one a line.
options:
  governor:
    description:
      - Governor to set, one of those that the kernel lists for every policy. Any other is a failure.
      - Needed with O(state=present).
    type: str
  energy_preference:
    description:
      - Energy preference to set. Left out, the module leaves it to the driver.
      - A driver without any, such as C(acpi-cpufreq), is RV(energy_preference_supported=false) and no failure. One
        that the kernel does not list is a failure.
      - The drivers C(intel_pstate) and C(amd-pstate-epp) allow only V(performance) under governor V(performance).
      - V(default) is refused, since the kernel takes it for another value and never reads it back.
    type: str
  state:
    description:
      - V(present) sets the values.
      - V(absent) puts back what is noted and forgets it. Policies that were never set are left alone. Those that are
        not there any more, or have another driver by now, are reported and forgotten, since what is noted means
        nothing for them. Those that are offline keep their note.
    type: str
    choices: [present, absent]
    default: present
  sys_cpu:
    description: The kernel's directory of CPUs. For tests and images.
    type: path
    default: /sys/devices/system/cpu
  record_dir:
    description: Directory where it is noted what the settings of this host were.
    type: path
    default: /var/lib/tokforge/host
notes:
  - RV(ignore:changed) is about the kernel's values. That a note is forgotten is no change.
seealso:
  - module: tokforge.sglang.pcie_read_request
"""

EXAMPLES = r"""
- name: Run the CPUs at full clock
  tokforge.sglang.cpu_governor:
    governor: performance
    energy_preference: performance

- name: Put back what was there before
  tokforge.sglang.cpu_governor:
    state: absent
"""

RETURN = r"""
supported:
  description: Whether this kernel sets a CPU frequency at all.
  returned: success
  type: bool
energy_preference_supported:
  description:
    - Whether every policy has an energy preference. Those that have one are set even when others have none.
    - Null when none was asked for.
  returned: success
  type: bool
reason:
  description: What is not supported and why, empty when everything is.
  returned: success
  type: str
  sample: ""
policies:
  description: The kernel's policies by number. On a failure those that were done until then.
  returned: success, and when a policy could not be set
  type: list
  elements: dict
  contains:
    name:
      description: Name of the kernel's directory.
      type: str
      sample: policy0
    cpus:
      description: Numbers of its CPUs that are online, or of all when none is. Empty for V(gone).
      type: list
      elements: int
      sample: [0, 1]
    driver:
      description: Driver that sets the frequency.
      type: str
      sample: amd-pstate-epp
    before:
      description: C(governor) and C(energy_preference) before. The latter is null without one. Null when offline.
      type: dict
      sample: {governor: powersave, energy_preference: balance_performance}
    after:
      description: The same afterwards, in check mode what it would be.
      type: dict
      sample: {governor: performance, energy_preference: performance}
    available:
      description: What the kernel listed before, C(governors) and C(energy_preferences).
      type: dict
      sample: {governors: [performance, powersave], energy_preferences: [default, performance, power]}
    status:
      description:
        - With O(state=present) V(set) or V(already).
        - With O(state=absent) V(restored), V(not_ours) when nothing is noted, V(gone) when the policy is not there any
          more, V(other_driver) when another driver has it by now.
        - V(offline) when all its CPUs are, and V(failed) for the one that the module failed for.
      type: str
      sample: set
available:
  description: What can be chosen, by name of the policy that does not have what was asked for.
  returned: when governor or energy preference is not available
  type: dict
  sample: {policy0: [performance, powersave]}
reads:
  description: What the kernel reads after the value was written.
  returned: when a value does not stick
  type: str
  sample: schedutil
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import cpu_frequency, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """What the module returns. Raises FrequencyError and RecordError."""
    where = (params["sys_cpu"], params["record_dir"], check_mode)
    if params["state"] == "present":
        wanted = cpu_frequency.Settings(params["governor"], params["energy_preference"])
        outcome = cpu_frequency.present(wanted, *where)
    else:
        outcome = cpu_frequency.absent(*where)
    header = f"CPU governors in {params['sys_cpu']}"
    return {
        "changed": outcome.changed,
        "supported": outcome.supported,
        "energy_preference_supported": outcome.energy_preference_supported,
        "reason": outcome.reason,
        "policies": [cpu_frequency.described(entry) for entry in outcome.entries],
        "diff": {
            "before_header": header,
            "after_header": header,
            "before": cpu_frequency.lines(outcome.entries, after=False),
            "after": cpu_frequency.lines(outcome.entries, after=True),
        },
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "governor": {"type": "str"},
            "energy_preference": {"type": "str"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "sys_cpu": {"type": "path", "default": cpu_frequency.SYS_CPU},
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
