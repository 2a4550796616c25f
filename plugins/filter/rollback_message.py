# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout that was undone says, to a person."""

from __future__ import annotations

DOCUMENTATION = r"""
name: rollback_message
short_description: Message of a rollout that failed after the switch
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Says which release failed and why, whether it was rolled back, and what runs now.
options:
  _input:
    description: The failed C(task) and its C(reason).
    type: dict
    required: true
  release:
    description:
      - The release facts after the switch back, with C(release) (the one that failed) and C(current) (a number
        or none).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Fail the rollout
  ansible.builtin.fail:
    msg: "{{ failure | tokforge.sglang.rollback_message(sglang_release_info) }}"
"""

RETURN = r"""
_value:
  description: The message.
  type: str
"""

from collections.abc import Mapping
from typing import Any, Callable


def rollback_message(failure: Mapping[str, Any], release: Mapping[str, Any]) -> str:
    """Say what failed, that the previous state is back, and which release runs now.

    :param failure: ``task`` and ``reason`` of the failed task.
    :param release: the facts after the switch back: ``release`` (the one that failed) and ``current`` (or None).
    """
    current: int | None = release.get("current")
    failed = release.get("release")
    if current is None:
        state = "rolled_back: true; no release served before it, so the server was stopped and nothing is current"
    elif current == failed:
        state = "rolled_back: false; it is the release that served before, so it was left as it is"
    else:
        state = f"rolled_back: true; release {current} was switched back and serves again"
    return f"release {failed} failed: {failure['reason']}\n{state}. The failed task was '{failure['task']}'."


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rollback_message": rollback_message}
