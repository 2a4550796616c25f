# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of a router."""

from __future__ import annotations

DOCUMENTATION = r"""
name: router_argv
short_description: Command line of an SGLang router
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Puts together what role C(sglang_router) starts, and refuses what would put a secret on the command line or open a
    router without a key to other machines.
positional: extra
options:
  _input:
    description:
      - C(host), C(port), C(workers), C(policy), C(metrics_host), C(metrics_port), C(stop_timeout_s) and C(has_key).
    type: dict
    required: true
  extra:
    description: More of the router's flags, without dashes in front.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what a router is started with
  ansible.builtin.debug:
    msg: "{{ settings | tokforge.sglang.router_argv({'disable-circuit-breaker': true}) }}"
"""

RETURN = r"""
_value:
  description: The words after the interpreter.
  type: list
  elements: str
"""

from collections.abc import Mapping
from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.tokforge.sglang.plugins.module_utils import router_launch


def router_argv(settings: Mapping[str, Any], extra: Mapping[str, Any]) -> list[str]:
    """The command line; what cannot be started is an error that says what to set."""
    try:
        return router_launch.argv(settings, extra)
    except router_launch.RouterLaunchError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        return {"router_argv": router_argv}
