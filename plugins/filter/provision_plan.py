# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts of an inventory have a kernel, which are containers, and on which hypervisor."""

from __future__ import annotations

DOCUMENTATION = r"""
name: provision_plan
short_description: Say which part of provisioning belongs to which host
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Holds what the inventory says of containers against what M(tokforge.sglang.host_info) saw.
options:
  _input:
    description: The C(host) that M(tokforge.sglang.host_info) returned, by host name; empty for one without an answer.
    type: dict
    required: true
  entries:
    description:
      - C(lxc_container) of each host that has one, with the keys C(hypervisor) and C(id), and optionally C(gpus),
        C(form), C(numa) and C(config) for role C(lxc_gpu).
    type: dict
    required: true
  without_hypervisor:
    description: Whether containers may be without a hypervisor in the inventory.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Put every host where it belongs
  ansible.builtin.set_fact:
    plan: "{{ looks | tokforge.sglang.provision_plan(entries) }}"
"""

RETURN = r"""
_value:
  description:
    - C(machines) and C(containers) as lists of names, C(containers_of) as a list of containers for each hypervisor,
      and C(problems) as a sentence for each host on which nothing can be done.
  type: dict
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import provision_hosts


def provision_plan(
    looks: Mapping[str, Mapping[str, Any]], entries: Mapping[str, Any], without_hypervisor: bool = False
) -> dict[str, Any]:
    """The plan as plain lists and dictionaries."""
    plan = asdict(provision_hosts.plan(looks, entries, without_hypervisor))
    return {
        "machines": list(plan["machines"]),
        "containers": list(plan["containers"]),
        "containers_of": {name: list(there) for name, there in plan["containers_of"].items()},
        "problems": plan["problems"],
    }


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., dict[str, Any]]]:
        """Their names."""
        return {"provision_plan": provision_plan}
