# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""summary.json: a run for programs. docs/ci.md describes its keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tokforge_rollout.evidence import Evidence, TaskRun
from tokforge_rollout.outcome import Outcome, Verdict, fatal_tasks

SCHEMA_VERSION = 1
STILL_RUNNING = "it is still running, or it was killed before it could say what happened"


@dataclass(frozen=True)
class Facts:
    """What is known of a run beside what Ansible says. Of variables only the names: values can be secrets."""

    playbook: str
    inventory: tuple[str, ...]
    limit: str | None
    check_mode: bool
    variables: tuple[str, ...]
    started: str
    versions: Mapping[str, str] = field(default_factory=dict)


def unfinished(facts: Facts) -> dict[str, Any]:
    """What is written before Ansible begins, so that a killed command never leaves the summary of an earlier run."""
    return _summary(facts, Verdict(Outcome.UNKNOWN, STILL_RUNNING, {}), Evidence(None, None), None)


def finished(facts: Facts, verdict: Verdict, evidence: Evidence, total_s: float | None) -> dict[str, Any]:
    """What is written at the end. Of a run that was killed nobody knows how long it took."""
    return _summary(facts, verdict, evidence, None if total_s is None else round(total_s, 3))


def _summary(facts: Facts, verdict: Verdict, evidence: Evidence, total_s: float | None) -> dict[str, Any]:
    asked = dataclasses.asdict(facts)
    fatal = {id(task) for task in fatal_tasks(evidence)}
    return {
        "schema_version": SCHEMA_VERSION,
        "outcome": verdict.outcome.label,
        "exit_code": verdict.outcome.exit_code,
        "reason": verdict.reason,
        "rolled_back": verdict.rolled_back,
        **asked,
        "durations": {"total_s": total_s, "plays_s": _plays(evidence)},
        "ansible": {"rc": evidence.rc, "status": evidence.status},
        "hosts": {
            name: {
                "outcome": host.outcome.label,
                "rolled_back": host.rolled_back,
                **dataclasses.asdict(host.counts),
            }
            for name, host in verdict.hosts.items()
        },
        "failed_tasks": [_failed(task, id(task) in fatal) for task in evidence.tasks if task.message],
        "report": None,
    }


def _failed(task: TaskRun, fatal: bool) -> dict[str, Any]:
    """A failure. One that is not fatal was rescued or ignored."""
    return {
        "host": task.host,
        "play": task.play,
        "task": task.task,
        "state": task.state,
        "msg": task.message,
        "fatal": fatal,
    }


def _plays(evidence: Evidence) -> dict[str, float]:
    """Seconds of each play, over all hosts: what its tasks took one after the other."""
    seconds: dict[str, float] = {}
    for task in evidence.tasks:
        seconds[task.play] = seconds.get(task.play, 0.0) + task.seconds
    return {play: round(total, 3) for play, total in seconds.items()}
