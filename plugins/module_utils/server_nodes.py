# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hosts that make one server together, and which of them this one is.

SGLang calls each of them a node: ``--nnodes``, ``--node-rank`` and ``--dist-init-addr`` are told to all. The node of
rank 0 serves; the others answer ``/health`` only, leave it to rank 0 what SIGTERM does, and end when rank 0 ends
(seen with 0.5.23 on two nodes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Launch arguments that a group of nodes decides.
ARGUMENTS = ("nnodes", "node-rank", "dist-init-addr")
#: Where the first node waits for the others, unless told: below the ports that connections are given by chance.
PORT = 20000


class NodesError(Exception):
    """The inventory does not say which hosts make a server; the text says what to change."""


@dataclass(frozen=True)
class Nodes:
    """`names` are the hosts by rank, `rank` is this host's, `args` the launch arguments that follow."""

    names: tuple[str, ...]
    rank: int = 0
    args: Mapping[str, Any] = field(default_factory=dict)


def find(group: str, host: str, groups: Mapping[str, Sequence[str]], addresses: Mapping[str, str], port: int) -> Nodes:
    """The nodes of the server that `host` is a part of. Raises NodesError.

    :param group: inventory group whose hosts, in its order, are the nodes; empty for a server of its own.
    :param addresses: how the others reach a host, by its name.
    :param port: where the first node waits for the others.
    """
    if not group:
        return Nodes((host,))
    names = tuple(groups.get(group) or ())
    if not names:
        raise NodesError(f"sglang_nodes_group names {group!r}, and no host is in that group; put the nodes into it")
    if host not in names:
        raise NodesError(
            f"sglang_nodes_group names {group!r}, and {host} is not in that group (it has {', '.join(names)}); set the "
            f"variable for the hosts of the group only, in group_vars/{group}.yml for instance"
        )
    if len(names) == 1:
        raise NodesError(
            f"group {group!r} of sglang_nodes_group has {host} only; a server of one host needs no group, leave it out"
        )
    strangers = [name for name in names if name not in (groups.get("sglang") or ())]
    if strangers:
        raise NodesError(
            f"{', '.join(strangers)} of group {group!r} (sglang_nodes_group) {_is(strangers)} not in group sglang, so "
            f"nothing would be deployed there; add {_it(strangers)} to it"
        )
    address = addresses.get(names[0]) or names[0]
    where = f"[{address}]" if ":" in address else address
    values = (len(names), names.index(host), f"{where}:{port}")
    return Nodes(names, names.index(host), dict(zip(ARGUMENTS, values)))


def by_inventory(
    group: str, host: str, groups: Mapping[str, Sequence[str]], hostvars: Mapping[str, Any], port: int
) -> Nodes:
    """As `find`, the first node's address from its sglang_nodes_address, else ansible_host, else its name."""
    first = next(iter(groups.get(group) or ()), "")
    variables = hostvars[first] if first else {}
    address = variables.get("sglang_nodes_address") or variables.get("ansible_host") or first
    return find(group, host, groups, {first: str(address)}, port)


def absent(nodes: Nodes, batch: Sequence[str]) -> str:
    """Why this play cannot deploy the server, since it does not work on all nodes at once; empty when it can."""
    missing = [name for name in nodes.names if name not in batch]
    if not missing:
        return ""
    return (
        f"{', '.join(missing)} {_is(missing)} not worked on together with this host, and all nodes of a server are "
        f"started at once; leave none out (--limit), choose sglang_serial so that a batch has all of "
        f"{', '.join(nodes.names)}, and see above whether one failed already"
    )


def not_as_far(nodes: Nodes, host: str, point: str, reached: Mapping[str, Sequence[str]]) -> str:
    """Which other nodes did not come to `point`; empty when all did.

    :param reached: the points that each host came to, by its name.
    """
    late = [name for name in nodes.names if point not in reached.get(name, ())]
    if not late:
        return ""
    return (
        f"{host} is one of the nodes {', '.join(nodes.names)} of a server, and {', '.join(late)} failed before "
        f"{_POINTS.get(point, point)}; what failed there is in {_its(late)} own message"
    )


def unlike(nodes: Nodes, args: Mapping[str, Mapping[str, Any]], versions: Mapping[str, str]) -> str:
    """What the nodes were asked for that differs, though they make one server; empty when nothing does.

    Where a server listens, which weights it reads from where and its cores may differ.

    :param args: launch arguments of each node by host name; `versions` the releases of SGLang.
    """
    first = nodes.names[0]
    for name in nodes.names[1:]:
        if versions.get(name) != versions.get(first):
            return (
                f"{first} has SGLang {versions.get(first)} and {name} {versions.get(name)}; all nodes "
                f"must have the same"
            )
        mine, others = args.get(first) or {}, args.get(name) or {}
        for key in sorted({*mine, *others} - _OWN):
            if mine.get(key) != others.get(key):
                return (
                    f"{key} is {mine.get(key)!r} on {first} and {others.get(key)!r} on {name}; all nodes must have "
                    f"the same"
                )
    return ""


#: Points that all nodes come to before any of them goes on, as a message names them.
_POINTS = {
    "written": "the switch, so nothing was switched",
    "started": "the server ran",
    "measured": "the server was proven, so this node goes back too",
}

#: Launch arguments in which nodes of one server may differ.
_OWN = {"host", "port", "node-rank", "model-path", "nccl-port", "base-gpu-id"}


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _it(names: Sequence[str]) -> str:
    return "it" if len(names) == 1 else "them"


def _its(names: Sequence[str]) -> str:
    return "its" if len(names) == 1 else "their"
