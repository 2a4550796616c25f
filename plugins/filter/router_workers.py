# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The servers of an inventory as a router reaches them."""

from __future__ import annotations

DOCUMENTATION = r"""
name: router_workers
short_description: Base URLs of the servers of an inventory, as a router reaches them
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Takes C(sglang_host) and C(sglang_port) of each host. A server that is bound to all addresses is reached at the
    address that Ansible uses, one that is bound to loopback on its own host only.
positional: variables, router
options:
  _input:
    description: Names of the servers' hosts.
    type: list
    elements: str
    required: true
  variables:
    description: The variables of all hosts, C(hostvars).
    type: dict
    required: true
  router:
    description: Name of the router's host.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show what a router on this host sends to
  ansible.builtin.debug:
    msg: "{{ groups['sglang'] | tokforge.sglang.router_workers(hostvars, inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description: One base URL for each host.
  type: list
  elements: str
"""

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.tokforge.sglang.plugins.module_utils import router_launch


def router_workers(hosts: Sequence[str], variables: Mapping[str, Any], router: str) -> list[str]:
    """Base URLs of the hosts' servers; one that cannot be reached is an error that says what to set."""
    try:
        return router_launch.worker_urls(hosts, variables, router)
    except router_launch.RouterLaunchError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        return {"router_workers": router_workers}
