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
    description:
      - The failed C(task) and its C(reason). When going back failed, the same of it under C(going_back), and then of
        stopping the server under C(stopping) or, where that went well, C(serves), the release that serves or nothing.
      - C(log) is where both releases' servers wrote, C(raw_dir) what a measurement left; empty where there is none.
    type: dict
    required: true
  release:
    description:
      - The release facts after the switch back, with C(release) (the one that failed) and C(current) (a number
        or none), C(restored) (whether the link was switched back), C(undone) (whether files were put back) and
        C(taken_over) (whether another rollout switched). C(serves) says that the
        release that failed was seen to serve before. Empty when nothing had been switched.
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

    :param failure: ``task`` and ``reason`` of the failed task, and what happened when going back failed.
    :param release: the facts after the switch back: ``release`` (the one that failed) and ``current`` (or None);
        ``downtime_s`` is how long nobody was served meanwhile, in seconds.
    """
    current: int | None = release.get("current")
    failed = release.get("release")
    what = f"release {failed}" if failed else "this rollout"
    if release.get("serves"):
        state = f"rolled_back: false; {_named(failed)} serves, and was left as it is"
    elif failed is None:
        state = "rolled_back: false; nothing was switched, and what served before was left as it is"
    elif failure.get("going_back"):
        state = _not_back(failure, failed)
    elif release.get("taken_over"):
        state = (
            f"rolled_back: false; another rollout is at work here: {_named(current)} is current in the meantime. What"
            " it made was left alone; run again when it has ended"
        )
    elif release.get("undone") and not release.get("restored"):
        state = f"rolled_back: true; {_named(current)} has the files of before again, and serves"
    elif current == failed:
        state = "rolled_back: false; it is the release that served before, so it was left as it is"
    elif not release.get("restored", True):
        state = f"rolled_back: false; it was not switched to, {_named(current)} is current as before"
    elif current is None:
        state = "rolled_back: true; no release served before it, so the server was stopped and nothing is current"
    else:
        state = f"rolled_back: true; release {current} was switched back and serves again"
    down = f" It served nobody for {release['downtime_s']} s." if release.get("downtime_s") else ""
    ending = f"{down} The failed task was '{failure['task']}'.{_logs(failure)}"
    return f"{what} failed: {failure['reason']}\n{state}.{ending}"


def _logs(failure: Mapping[str, Any]) -> str:
    places = [("what the servers wrote is in {}", "log"), ("what was measured in {}", "raw_dir")]
    told = "; ".join(text.format(failure[name]) for text, name in places if failure.get(name))
    return f"\nLogs: {told}." if told else ""


def _named(number: int | None) -> str:
    return "no release" if number is None else f"release {number}"


def _not_back(failure: Mapping[str, Any], failed: Any) -> str:
    back, stopping, serves = failure["going_back"], failure.get("stopping"), failure.get("serves")
    if stopping:
        left = f"stopping the server failed as well, in task '{stopping['task']}': {stopping['reason']}"
    elif serves:
        left = f"release {serves} serves and was left as it is"
    else:
        left = f"nothing serves, and no server of release {failed} is left running"
    return f"rolled_back: false; going back failed too, in task '{back['task']}': {back['reason']}\n{left}"


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rollback_message": rollback_message}
