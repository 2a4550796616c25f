# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What provisioning left out on a host and what waits there, for a person."""

from __future__ import annotations

DOCUMENTATION = r"""
name: provision_summary
short_description: Show what provisioning left out and what waits
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - One line a thing. What waits comes last, since something has to be done about it.
options:
  _input:
    description: What was left out, each with C(what) and C(why).
    type: list
    elements: dict
    required: true
  notes:
    description: What else a person should know.
    type: list
    elements: str
    required: true
  waits:
    description: What has to happen before the host is done.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Say how far it is
  ansible.builtin.debug:
    msg: "{{ host_tuning_skipped | tokforge.sglang.provision_summary(host_tuning_notes, host_tuning_pending_reboot) }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

from collections.abc import Callable, Mapping, Sequence

NOTHING = "nothing was left out and nothing waits"


def provision_summary(skipped: Sequence[Mapping[str, str]], notes: Sequence[str], waits: Sequence[str]) -> list[str]:
    """The lines. A thing that two roles left out for the same reason is told once."""
    left_out = dict.fromkeys(f"left out: {one['what']}: {one['why']}" for one in skipped)
    lines = [*left_out, *(f"note: {one}" for one in notes), *(f"waits for {one}" for one in waits)]
    return lines or [NOTHING]


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        """Their names."""
        return {"provision_summary": provision_summary}
