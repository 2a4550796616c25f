# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts make a server together, for roles."""

from __future__ import annotations

DOCUMENTATION = r"""
name: server_nodes
short_description: The hosts that make one server together
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Says by the inventory which hosts make a server together, which of them this one is, and which launch arguments
    follow.
positional: host, groups, hostvars, port
options:
  _input:
    description: Inventory group whose hosts, in its order, are the nodes. Empty for a server of its own.
    type: str
    required: true
  host:
    description: Name of this host.
    type: str
    required: true
  groups:
    description: Host names of each group, as Ansible's variable of that name has them.
    type: dict
    required: true
  hostvars:
    description:
      - Variables of each host. C(sglang_nodes_address), then C(ansible_host), then the name itself is how the others
        reach the first node.
    type: dict
    required: true
  port:
    description: Where the first node waits for the others.
    type: int
    required: true
"""

EXAMPLES = r"""
- name: Show the nodes of this host's server
  ansible.builtin.debug:
    msg: "{{ 'pair' | tokforge.sglang.server_nodes(inventory_hostname, groups, hostvars, 20000) }}"
"""

RETURN = r"""
_value:
  description:
    - RV(_value.names), the hosts by rank; RV(_value.rank), this host's; RV(_value.args), the launch arguments that
      follow, none for a host of its own.
  type: dict
  sample:
    names: [box-1, box-2]
    rank: 1
    args: {nnodes: 2, node-rank: 1, dist-init-addr: "10.0.0.1:20000"}
"""

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.tokforge.sglang.plugins.module_utils import server_nodes as core


def server_nodes(
    group: str, host: str, groups: Mapping[str, Sequence[str]], hostvars: Mapping[str, Any], port: int
) -> dict[str, Any]:
    """The nodes of the server that `host` is a part of, as plain values."""
    try:
        nodes = core.by_inventory(str(group), str(host), groups, hostvars, int(port))
    except core.NodesError as error:
        raise AnsibleFilterError(str(error)) from error
    return {"names": list(nodes.names), "rank": nodes.rank, "args": dict(nodes.args)}


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"server_nodes": server_nodes}
