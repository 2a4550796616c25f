# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stopping Ansible: ask first, then kill.

ansible-runner alone kills with SIGKILL at once. Here Ansible gets SIGINT, as from a person at a terminal: it tells its
workers, they end what they run, and it exits. Only what is left after a grace is killed. Every step on a target is
atomic, so the next run goes on from either.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

from tokforge_rollout.evidence import Stop

# Signals that come together (a terminal's and a parent's) are one wish; a later one is a second wish.
SECOND_WISH_S = 2.0
STATUS_PARENT = re.compile(r"^PPid:\s+(\d+)$", re.MULTILINE)


def interrupt(pid: int) -> None:
    """SIGINT to Ansible's process group. It passes the signal on to its workers, which lead groups of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGINT)


def kill_descendants(pid: int) -> None:
    """SIGKILL to what descends from a process: Ansible's workers are not in its process group."""
    for child in descendants(pid, _parents()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def descendants(pid: int, parents: dict[int, int]) -> list[int]:
    """Children of a process, theirs, and so on, by what each process' parent is."""
    children = [child for child, parent in parents.items() if parent == pid]
    return [found for child in children for found in (child, *descendants(child, parents))]


def _parents() -> dict[int, int]:
    """The parent of every process, from /proc; nothing where there is none."""
    found: dict[int, int] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            match = STATUS_PARENT.search(status.read_text(encoding="utf-8", errors="replace"))
            if match:
                found[int(status.parent.name)] = int(match.group(1))
    return found


class Stopper:
    """When Ansible has to be stopped, and how far that has come.

    :param timeout_s: seconds from now after which it is stopped, None for never.
    :param grace_s: seconds between asking and killing.
    """

    def __init__(
        self,
        timeout_s: float | None,
        grace_s: float,
        clock: Callable[[], float] = time.monotonic,
        ask: Callable[[int], None] = interrupt,
        sweep: Callable[[int], None] = kill_descendants,
    ) -> None:
        self.reason: Stop | None = None
        self.pid: int | None = None  # Ansible's, as soon as its first event told it
        self._grace_s = grace_s
        self._clock = clock
        self._ask = ask
        self._sweep = sweep
        self._deadline = None if timeout_s is None else clock() + timeout_s
        self._asked_at = 0.0
        self._killing = False
        self._wishes: list[float] = []

    def wish(self) -> None:
        """A signal came."""
        if not self._wishes or self._clock() - self._wishes[-1] >= SECOND_WISH_S:
            self._wishes.append(self._clock())

    def must_kill(self) -> bool:
        """ansible-runner asks this about once a second; True lets it kill Ansible's process group.

        Once it is True it stays so: ansible-runner forgets that it killed when a later answer is False.
        """
        if self.reason is None:
            self._begin()
        elif not self._killing and (len(self._wishes) > 1 or self._clock() - self._asked_at >= self._grace_s):
            self._killing = True
            if self.pid is not None:
                self._sweep(self.pid)
        return self._killing

    def give_up(self) -> None:
        """This command failed: Ansible must not go on without anybody who watches it."""
        if self.pid is not None:
            self._ask(self.pid)

    def _begin(self) -> None:
        if self._wishes:
            self.reason = Stop.CANCEL
        elif self._deadline is not None and self._clock() >= self._deadline:
            self.reason = Stop.TIMEOUT
        else:
            return
        self._asked_at = self._clock()
        if self.pid is None:
            self._killing = True  # before its first event Ansible has touched no host
        else:
            self._ask(self.pid)
