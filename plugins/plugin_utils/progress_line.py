# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One line that is written over itself on a terminal, and plain lines elsewhere.

An action plugin runs in a worker process that is detached from the terminal; what it displays is printed by the main
process, its parent. So it is the parent's standard output that is asked whether it is a terminal.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

_USUAL_COLUMNS = 80
_BACK = "\r\x1b[2K"


class _Display(Protocol):
    def display(self, msg: str, *, newline: bool = True, screen_only: bool = False) -> object: ...


def room(variables: Mapping[str, Any], pid: int | None = None) -> int | None:
    """Characters of a line that may be written over itself: on a terminal, and where no other host writes beside this
    one. None elsewhere.
    """
    hosts: Sequence[str] = variables.get("ansible_play_hosts") or []
    if len(hosts) > 1 or os.environ.get("TERM") == "dumb":
        return None
    return _columns(os.getppid() if pid is None else pid)


class ProgressLine:
    """Show one line after another. `close` must be called before anything else is printed."""

    def __init__(self, display: _Display, columns: int | None) -> None:
        self._display = display
        self._columns = columns
        self._open = False

    @property
    def on_terminal(self) -> bool:
        """Whether a line takes the place of the one before."""
        return self._columns is not None

    def show(self, line: str) -> None:
        """A line that the next one replaces where that can be."""
        if self._columns is None:
            self._display.display(line)
            return
        self._open = True
        # Not for the log file: what is written over itself is nothing to keep.
        self._display.display(_BACK + _fitting(line, self._columns), newline=False, screen_only=True)

    def last(self, line: str) -> None:
        """A line that stays."""
        if self._open:
            self._open = False
            self._display.display(_BACK, newline=False, screen_only=True)
        self._display.display(line)

    def close(self) -> None:
        """Leave the line that is shown."""
        if self._open:
            self._open = False
            self._display.display("", screen_only=True)


def _fitting(line: str, columns: int) -> str:
    """Short enough for one row: a line that wraps cannot be written over."""
    return line if len(line) < columns else line[: max(1, columns - 2)] + "…"


def _columns(pid: int) -> int | None:
    """How wide the terminal is that a process writes to; None when it writes to none."""
    try:
        descriptor = os.open(f"/proc/{pid}/fd/1", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:  # no such system, or a socket or pipe that nobody can open
        return None
    try:
        return (os.get_terminal_size(descriptor).columns or _USUAL_COLUMNS) if os.isatty(descriptor) else None
    except OSError:
        return _USUAL_COLUMNS
    finally:
        os.close(descriptor)
