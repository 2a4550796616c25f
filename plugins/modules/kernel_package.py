#!/usr/bin/python
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_package
short_description: Hold one kernel package, and pin its kernel on Proxmox VE
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Holds a kernel package with C(apt-mark) and, when asked, has C(proxmox-boot-tool) start its kernel always.
  - What was held and pinned is noted in O(record_dir) before the first change. Without a package it is put back, and
    with another one what the former left. Does not install or remove packages.
extends_documentation_fragment:
  - tokforge.sglang.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
    details:
      - Shows which kernel packages are held and which kernel is pinned.
options:
  package:
    description: Exact name of the package of one kernel release. Empty puts back what was there.
    type: str
    default: ""
  pin:
    description: Whether to pin the kernel with C(proxmox-boot-tool).
    type: bool
    default: false
  pin_file:
    description: File that C(proxmox-boot-tool) keeps the pinned release in. For tests and images.
    type: path
    default: /etc/kernel/proxmox-boot-pin
  record_dir:
    description: Directory where it is noted what the settings of this host were.
    type: path
    default: /var/lib/tokforge/host
"""

EXAMPLES = r"""
- name: Stay with one kernel on Proxmox VE
  tokforge.sglang.kernel_package:
    package: proxmox-kernel-6.8.12-4-pve-signed
    pin: true
"""

RETURN = r"""
release:
  description: Kernel release of the package; empty without one.
  returned: success
  type: str
  sample: 6.8.12-4-pve
output:
  description: Last lines of the command that failed.
  returned: when a command failed
  type: str
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.tokforge.sglang.plugins.module_utils import kernel_package, previous_values, run_command
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError


def run(params: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """What the module returns. Raises KernelPackageError and RecordError."""
    package = params["package"]
    outcome = kernel_package.settle(
        package, params["pin"], params["pin_file"], params["record_dir"], check_mode, run_command.run
    )
    header = "kernel packages"
    return {
        "changed": outcome.changed,
        "release": kernel_package.release_of(package) if package else "",
        "diff": {
            "before_header": header,
            "after_header": header,
            "before": shown(outcome.held_before, outcome.pin_before),
            "after": shown(outcome.held_after, outcome.pin_after),
        },
    }


def shown(held: tuple[str, ...], pin: str) -> str:
    """Held packages and the pin as text."""
    return "".join(f"held: {name}\n" for name in held) + (f"pinned: {pin}\n" if pin else "")


def main() -> None:
    """Hold and pin, or put back."""
    module = AnsibleModule(
        argument_spec={
            "package": {"type": "str", "default": ""},
            "pin": {"type": "bool", "default": False},
            "pin_file": {"type": "path", "default": kernel_package.PIN},
            "record_dir": {"type": "path", "default": previous_values.RECORD_DIR},
        },
        supports_check_mode=True,
    )
    try:
        result = run(module.params, module.check_mode)
    except HostError as error:
        module.fail_json(msg=str(error), **error.facts)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
