# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What became of a run: one pure judgement over what ansible-runner left.

The exit code of ansible-runner alone says too little. It is 0 when a play matched no host, 254 for a time-out and for a
cancellation alike, 4 for an unreachable host and for a playbook that does not parse, and missing when the process was
killed. So the statistics that Ansible writes at its end have to be there and to name hosts that were worked on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from tokforge_rollout.evidence import Evidence, HostCounts, Stop, TaskRun

INTERRUPTED = 99  # ansible-playbook's exit code after SIGINT


class Outcome(Enum):
    """Every way a command can end: its name in summary.json, its exit code, and what it means."""

    OK = ("ok", 0, "Every host did what was asked.")
    FAILED = (
        "failed",
        1,
        "A task failed on a host, and nothing brought back what served before; or Ansible refused to begin.",
    )
    USAGE = ("usage", 2, "The command line, an inventory or a variable file is wrong. Nothing was started.")
    ROLLED_BACK = ("rolled_back", 3, "The rollout failed, and every host that failed is back at what it served before.")
    UNREACHABLE = ("unreachable", 4, "A host could not be reached.")
    NO_HOST = ("no_host", 5, "No host was worked on: the group is empty, or the limit leaves none.")
    LOCKED = ("locked", 6, "Another rollout is at work on a host. Nothing was changed there; run again later.")
    UNKNOWN = (
        "unknown",
        7,
        "Ansible ended without saying what it did: it was killed, or it crashed. Look at the hosts.",
    )
    INTERNAL = ("internal", 70, "The command itself failed. This is a bug.")
    TIMED_OUT = ("timed_out", 124, "The time of `--timeout` was over, and Ansible was stopped.")
    CANCELLED = ("cancelled", 130, "SIGINT, SIGTERM or SIGHUP came, and Ansible was stopped.")

    def __init__(self, label: str, exit_code: int, meaning: str) -> None:
        self.label = label
        self.exit_code = exit_code
        self.meaning = meaning


# The worst host decides. A host that needs a person comes before one that only needs another run.
SEVERITY = (Outcome.FAILED, Outcome.UNREACHABLE, Outcome.ROLLED_BACK, Outcome.LOCKED, Outcome.NO_HOST, Outcome.OK)
STOPPED = {Stop.TIMEOUT: Outcome.TIMED_OUT, Stop.CANCEL: Outcome.CANCELLED}
RUNNERS_STOPS = {"timeout": Outcome.TIMED_OUT, "canceled": Outcome.CANCELLED}


@dataclass(frozen=True)
class HostVerdict:
    """What became of one host, with Ansible's own counts."""

    outcome: Outcome
    counts: HostCounts
    rolled_back: bool | None = None


@dataclass(frozen=True)
class Verdict:
    """What became of a run, why, and what became of each of its hosts."""

    outcome: Outcome
    reason: str
    hosts: dict[str, HostVerdict]

    @property
    def rolled_back(self) -> bool | None:
        """Whether every host of which this is known went back; None when no host says."""
        known = [host.rolled_back for host in self.hosts.values() if host.rolled_back is not None]
        return all(known) if known else None


def fatal_tasks(evidence: Evidence) -> list[TaskRun]:
    """The task that ended each failed host: its last failure. Earlier ones were rescued.

    Without statistics a failure counts when nothing ran on that host after it.
    """
    last: dict[str, TaskRun] = {}
    for task in evidence.tasks:
        if task.broken:
            last[task.host] = task
        elif evidence.stats is None and not task.skipped:
            last.pop(task.host, None)
    if evidence.stats is None:
        return list(last.values())
    bad = [host for host, counts in evidence.stats.items() if counts.failed or counts.unreachable]
    return [last[host] for host in bad if host in last]


def judge(evidence: Evidence) -> Verdict:
    """Say what became of a run. Anything that is not proved good is not good."""
    hosts = _hosts(evidence)
    outcome, reason = _ended(evidence) or _unsaid(evidence) or _worst(evidence, hosts)
    return Verdict(outcome, reason, hosts)


def _hosts(evidence: Evidence) -> dict[str, HostVerdict]:
    fatal = {task.host: task for task in fatal_tasks(evidence)}
    return {host: _host(counts, fatal.get(host)) for host, counts in sorted((evidence.stats or {}).items())}


def _host(counts: HostCounts, fatal: TaskRun | None) -> HostVerdict:
    rolled_back = fatal.rolled_back if fatal else None
    verdict = HostVerdict(Outcome.FAILED, counts, rolled_back)
    if counts.unreachable:
        return replace(verdict, outcome=Outcome.UNREACHABLE)
    if not counts.failed:
        return HostVerdict(Outcome.OK, counts)
    if fatal and fatal.locked:
        return replace(verdict, outcome=Outcome.LOCKED)
    if fatal and fatal.checks_inventory:
        return replace(verdict, outcome=Outcome.NO_HOST)
    return replace(verdict, outcome=Outcome.ROLLED_BACK) if rolled_back else verdict


def _ended(evidence: Evidence) -> tuple[Outcome, str] | None:
    """Whether somebody stopped it before it had ended by itself."""
    if evidence.stats is not None and evidence.rc != 254:
        return None  # it was through before it heard of it
    if evidence.stop:
        return STOPPED[evidence.stop], "it was stopped before it had ended; run it again to go on"
    if evidence.status in RUNNERS_STOPS:
        return RUNNERS_STOPS[evidence.status], f"ansible-runner says {evidence.status}"
    if evidence.rc == INTERRUPTED:
        return Outcome.CANCELLED, "Ansible itself was interrupted; run it again to go on"
    return None


def _unsaid(evidence: Evidence) -> tuple[Outcome, str] | None:
    """Whether something is missing that every run leaves."""
    if evidence.rc is None or evidence.status is None:
        return Outcome.UNKNOWN, "ansible-runner or ansible-playbook was killed: there is no exit code or no status"
    if evidence.stats is not None:
        return None
    if evidence.nothing_to_target:
        return Outcome.NO_HOST, "the limit leaves no host of this inventory"
    if evidence.rc == 0:
        return Outcome.UNKNOWN, "ansible-playbook ended with 0 and without statistics: nobody knows what was done"
    return Outcome.FAILED, f"ansible-playbook ended with {evidence.rc} before it was through; play.log says why"


def _worst(evidence: Evidence, hosts: dict[str, HostVerdict]) -> tuple[Outcome, str]:
    """The outcome of the worst host, when the rest agrees with it."""
    worst = _first(host.outcome for host in hosts.values())
    named = [name for name, host in hosts.items() if host.outcome is worst]
    if worst is not Outcome.OK:
        return worst, f"{worst.label}: {', '.join(named)}"
    if evidence.rc != 0 or evidence.status != "successful":
        return Outcome.FAILED, f"ansible-playbook ended with {evidence.rc} ({evidence.status}), though no host failed"
    if not hosts or (evidence.needs_hosts and not evidence.worked):
        return Outcome.NO_HOST, "no host was worked on"
    count = len(evidence.worked or hosts)
    return Outcome.OK, f"{count} host{'' if count == 1 else 's'} did what was asked"


def _first(outcomes: Iterable[Outcome]) -> Outcome:
    present = set(outcomes)
    return next((outcome for outcome in SEVERITY if outcome in present), Outcome.OK)
