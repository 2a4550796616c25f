# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run left, read from ansible-runner's artifacts: its exit code, its status, and Ansible's own events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

EVENT_FILE = re.compile(r"(\d+)-[0-9a-f-]+\.json")
ENDED = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
}
# Ansible's own words, of its error AnsibleOptionsError in cli/__init__.py (ansible-core 2.19).
NOTHING_TO_TARGET = "leaves us with no hosts to target"
# The text of filter rollback_message, for a result that has no key of that name.
ROLLED_BACK = re.compile(r"^rolled_back: (true|false)\b", re.MULTILINE)
CHECKS_INVENTORY = "/playbooks/check_inventory.yml:"
ONLY_CONTROLLER = "localhost"


class Stop(Enum):
    """Why this command stopped Ansible."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"


@dataclass(frozen=True)
class HostCounts:
    """Ansible's statistics of one host: how many of its tasks ended in which way."""

    ok: int = 0
    changed: int = 0
    failed: int = 0
    unreachable: int = 0
    skipped: int = 0
    rescued: int = 0
    ignored: int = 0


@dataclass(frozen=True)
class TaskRun:
    """One task on one host: how it ended, after how many seconds, and what a failure says.

    `rolled_back` and `locked` are what the result says of itself. `checks_inventory`: it checks that there is a host.
    """

    host: str
    play: str
    task: str
    state: str
    seconds: float = 0.0
    message: str = ""
    ignored: bool = False
    rolled_back: bool | None = None
    locked: bool = False
    checks_inventory: bool = False

    @property
    def broken(self) -> bool:
        """Whether it failed, and nothing said that this does not matter."""
        return self.state in ("failed", "unreachable") and not self.ignored

    @property
    def skipped(self) -> bool:
        return self.state == "skipped"


@dataclass(frozen=True)
class Evidence:
    """Everything that the judgement is made of.

    :param rc: exit code as ansible-runner noted it, None without one.
    :param status: status as ansible-runner noted it, None without one.
    :param stats: Ansible's statistics of each host, None when it did not come to its end.
    :param tasks: tasks in the order in which they ended.
    :param worked: hosts on which a play for hosts ran a task. A play for localhost alone is a check on the controller.
    :param needs_hosts: whether there was such a play.
    :param nothing_to_target: Ansible said that the limit leaves no host.
    :param stop: why this command stopped Ansible, None when it did not.
    """

    rc: int | None
    status: str | None
    stats: Mapping[str, HostCounts] | None = None
    tasks: tuple[TaskRun, ...] = ()
    worked: frozenset[str] = frozenset()
    needs_hosts: bool = False
    nothing_to_target: bool = False
    stop: Stop | None = None


def read(directory: Path, stop: Stop | None = None) -> Evidence:
    """The evidence in one of ansible-runner's artifact directories. What is missing or damaged is taken as missing."""
    code = _text(directory / "rc")
    rc = int(code) if re.fullmatch(r"-?\d+", code) else None
    return gather(read_events(directory / "job_events"), rc, _text(directory / "status") or None, stop)


def read_events(directory: Path) -> Iterator[dict[str, Any]]:
    """Ansible's events in their order, without those that a killed process left half written."""
    numbered = [(EVENT_FILE.fullmatch(path.name), path) for path in directory.glob("*.json")]
    for _number, path in sorted((int(match.group(1)), path) for match, path in numbered if match):
        try:
            event = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(event, dict):
            yield event


def gather(
    events: Iterable[Mapping[str, Any]], rc: int | None, status: str | None, stop: Stop | None = None
) -> Evidence:
    """Fold events into evidence."""
    stats: dict[str, HostCounts] | None = None
    tasks: list[TaskRun] = []
    worked: set[str] = set()
    patterns: set[str] = set()
    nothing_to_target = False
    for event in events:
        kind, data = str(event.get("event")), event.get("event_data") or {}
        if kind == "playbook_on_play_start":
            patterns.add(str(data.get("pattern") or ""))
        elif kind in ENDED:
            task = _task(ENDED[kind], data)
            tasks.append(task)
            if str(data.get("play_pattern") or "") != ONLY_CONTROLLER:
                worked.add(task.host)
        elif kind == "playbook_on_stats":
            stats = _stats(data)
        # Ansible breaks its messages at the width of the terminal.
        nothing_to_target |= NOTHING_TO_TARGET in " ".join(str(event.get("stdout") or "").split())
    needs_hosts = bool(patterns - {ONLY_CONTROLLER})
    return Evidence(rc, status, stats, tuple(tasks), frozenset(worked), needs_hosts, nothing_to_target, stop)


def _task(state: str, data: Mapping[str, Any]) -> TaskRun:
    result = data.get("res")
    result = result if isinstance(result, Mapping) else {}
    message = _message(result) if state in ("failed", "unreachable") else ""
    rolled_back = result.get("rolled_back")
    if not isinstance(rolled_back, bool):
        match = ROLLED_BACK.search(message)
        rolled_back = match.group(1) == "true" if match else None
    return TaskRun(
        host=str(data.get("host") or ""),
        play=str(data.get("play") or ""),
        task=str(data.get("task") or data.get("task_action") or ""),
        state="changed" if state == "ok" and result.get("changed") is True else state,
        seconds=float(data.get("duration") or 0.0),
        message=message,
        ignored=data.get("ignore_errors") is True,
        rolled_back=rolled_back,
        locked=result.get("locked") is True,
        checks_inventory=CHECKS_INVENTORY in str(data.get("task_path") or ""),
    )


def _message(result: Mapping[str, Any]) -> str:
    """What a failure says, with that of every failed item of a loop."""
    lines = [_line(result)]
    items = result.get("results")
    for item in items if isinstance(items, list) else []:
        if isinstance(item, Mapping) and (item.get("failed") or item.get("unreachable")):
            lines.append(_line(item))
    return "\n".join(dict.fromkeys(filter(None, lines))) or "no message"


def _line(result: Mapping[str, Any]) -> str:
    said = result.get("msg") or result.get("censored") or result.get("stderr") or ""
    return said if isinstance(said, str) else json.dumps(said)


def _stats(data: Mapping[str, Any]) -> dict[str, HostCounts]:
    def count(key: str, host: str) -> int:
        return int((data.get(key) or {}).get(host, 0))

    keys = ("processed", "ok", "changed", "failures", "dark", "skipped", "rescued", "ignored")
    hosts = {host for key in keys for host in (data.get(key) or {})}
    return {
        host: HostCounts(
            ok=count("ok", host),
            changed=count("changed", host),
            failed=count("failures", host),
            unreachable=count("dark", host),
            skipped=count("skipped", host),
            rescued=count("rescued", host),
            ignored=count("ignored", host),
        )
        for host in sorted(hosts)
    }


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
