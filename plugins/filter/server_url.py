# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The address by which its routers know a server."""

from __future__ import annotations

DOCUMENTATION = r"""
name: server_url
short_description: Base URL by which its routers know a server
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - A server that is bound to all addresses is known by loopback to routers of its own machine, and by the machine's
    address to others, as filter P(tokforge.sglang.router_workers#filter) has it. Otherwise the address that it is bound
    to.
positional: host, port, names, asked_here
options:
  _input:
    description: Base URLs of the routers.
    type: list
    elements: str
    required: true
  host:
    description: Address the server binds to.
    type: str
    required: true
  port:
    description: Port the server binds to.
    type: int
    required: true
  names:
    description: Address and name of the server's machine. The first one is used.
    type: list
    elements: str
    required: true
  asked_here:
    description:
      - Whether the routers are asked from the server's machine. A router on loopback is where it is asked from.
    type: bool
    required: true
"""

EXAMPLES = r"""
- name: Show how a router on another machine knows this server, http://10.0.0.2:30000
  ansible.builtin.debug:
    msg: "{{ ['http://10.0.0.1:30100'] | tokforge.sglang.server_url('0.0.0.0', 30000, ['10.0.0.2'], true) }}"
"""

RETURN = r"""
_value:
  description: The base URL.
  type: str
"""

from collections.abc import Sequence
from typing import Callable

from ansible_collections.tokforge.sglang.plugins.module_utils import router_launch


def server_url(routers: Sequence[str], host: str, port: int, names: Sequence[str], asked_here: bool) -> str:
    """The base URL of a server as its routers know it."""
    return router_launch.server_url(routers, str(host), int(port), [str(name) for name in names], asked_here)


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"server_url": server_url}
