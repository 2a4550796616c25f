# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The newest SGLang release that this collection can install."""

from __future__ import annotations

DOCUMENTATION = r"""
name: newest_release
short_description: Newest SGLang release with a lock in a lane
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Gives the newest SGLang release for which this collection has a lock in the given lane.
  - It is the default of C(sglang_version).
options:
  _input:
    description: The lane, C(cpu), C(cuda12) or C(cuda13).
    type: str
    required: true
  unknown:
    description: What to give for anything that is no lane. Left out, that is an error.
    type: str
"""

EXAMPLES = r"""
- name: Show what a rollout without sglang_version installs
  ansible.builtin.debug:
    msg: "{{ 'cpu' | tokforge.sglang.newest_release }}"
"""

RETURN = r"""
_value:
  description: The version, for example C(0.5.23).
  type: str
"""

from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.tokforge.sglang.plugins.module_utils import releases


def newest_release(lane: Any, unknown: str | None = None) -> str:
    """Newest locked release of a lane; an unknown lane is an error that names those there are, or gives `unknown`."""
    try:
        if not isinstance(lane, str):
            raise releases.ReleaseError(
                f"a lane is a name, not {lane!r}; use one of {', '.join(releases.known_lanes())}"
            )
        return releases.newest(lane)
    except releases.ReleaseError as error:
        if unknown is not None:
            return unknown
        raise AnsibleFilterError(f"no SGLang release for lane {lane!r}: {error}") from error


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"newest_release": newest_release}
