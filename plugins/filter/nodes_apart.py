# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether all nodes of a server can go on together, for role sglang_rollout."""

from __future__ import annotations

DOCUMENTATION = r"""
name: nodes_apart
short_description: Why the nodes of a server cannot go on together
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Says which other node of a server did not come to the point that this one has come to, or what it was asked for that
    differs.
  - All hosts have to note their points in C(sglang_rollout_reached) in one task and ask in a later one, as the linear
    strategy has it.
positional: host, point, hostvars
options:
  _input:
    description: What P(tokforge.sglang.server_nodes#filter) gave.
    type: dict
    required: true
  host:
    description: Name of this host.
    type: str
    required: true
  point:
    description: One of V(written), V(started) and V(measured).
    type: str
    required: true
  hostvars:
    description: Variables of each host, with the facts C(sglang_rollout_reached) and C(sglang_release_info).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show why this node must not switch
  ansible.builtin.debug:
    msg: "{{ sglang_rollout_nodes | tokforge.sglang.nodes_apart(inventory_hostname, 'written', hostvars) }}"
"""

RETURN = r"""
_value:
  description: The reason, empty when they can go on.
  type: str
"""

from collections.abc import Mapping
from typing import Any, Callable

from ansible_collections.tokforge.sglang.plugins.module_utils import server_nodes as core


def nodes_apart(nodes: Mapping[str, Any], host: str, point: str, hostvars: Mapping[str, Any]) -> str:
    """Why the nodes of a server cannot go on from `point` together; empty when they can."""
    known = core.Nodes(tuple(nodes["names"]), int(nodes["rank"]), nodes["args"])
    of_each = {name: hostvars[name] for name in known.names}
    reached = {name: variables.get("sglang_rollout_reached") or [] for name, variables in of_each.items()}
    releases = {name: variables.get("sglang_release_info") or {} for name, variables in of_each.items()}
    return core.not_as_far(known, str(host), str(point), reached) or core.unlike(
        known,
        {name: release.get("args") or {} for name, release in releases.items()},
        {name: str(release.get("sglang_version", "")) for name, release in releases.items()},
    )


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"nodes_apart": nodes_apart}
