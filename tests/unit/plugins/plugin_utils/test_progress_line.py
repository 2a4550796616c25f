# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The line that is written over itself, on real terminals and elsewhere."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.plugin_utils import progress_line

ERASE = "\r\x1b[2K"


class Shown:
    """Ansible's display: what it writes, and what of it goes to the log file too."""

    def __init__(self) -> None:
        self.screen = ""
        self.log: list[str] = []

    def display(self, msg: str, *, newline: bool = True, screen_only: bool = False) -> None:
        self.screen += msg + "\n" * newline
        if not screen_only:
            self.log.append(msg)


class Writer:
    """A process whose standard output is what the test gives it."""

    def __init__(self, stdout: Any) -> None:
        words = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=stdout)
        self.pid = self.process.pid

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=30)
        if self.process.stdout:
            self.process.stdout.close()


@pytest.fixture(autouse=True)
def term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """A terminal, and a process that writes to it."""
    main, end = pty.openpty()
    writer = Writer(end)
    yield end, writer.pid
    writer.end()
    os.close(main)
    os.close(end)


def widen(terminal: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def test_terminal_of_another_process_has_its_width(terminal: tuple[int, int]) -> None:
    end, pid = terminal
    widen(end, 132)
    assert progress_line.room({}, pid) == 132
    assert progress_line.room({"ansible_play_hosts": ["box"]}, pid) == 132
    widen(end, 40)
    assert progress_line.room({}, pid) == 40  # it was made narrower meanwhile


def test_terminal_that_does_not_know_its_width_has_the_usual_one(terminal: tuple[int, int]) -> None:
    widen(terminal[0], 0)
    assert progress_line.room({}, terminal[1]) == 80


def test_several_hosts_share_a_terminal_with_plain_lines(terminal: tuple[int, int]) -> None:
    widen(terminal[0], 132)
    assert progress_line.room({"ansible_play_hosts": ["a", "b"]}, terminal[1]) is None


def test_terminal_that_can_erase_nothing_gets_plain_lines(
    terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    widen(terminal[0], 132)
    monkeypatch.setenv("TERM", "dumb")
    assert progress_line.room({}, terminal[1]) is None


@pytest.mark.parametrize("stdout", [subprocess.PIPE, subprocess.DEVNULL, "file"])
def test_output_that_goes_elsewhere_gets_plain_lines(stdout: Any, tmp_path: Any) -> None:
    path = tmp_path / "output"
    path.write_text("what is there stays")
    with path.open("a") as stream:
        writer = Writer(stream if stdout == "file" else stdout)
        assert progress_line.room({}, writer.pid) is None
        writer.end()
    assert path.read_text() == "what is there stays"
    assert progress_line.room({}, writer.pid) is None  # a process that is gone


def test_parent_is_who_writes(terminal: tuple[int, int]) -> None:
    # As Ansible's worker does: its own output is elsewhere, its parent's is the terminal.
    widen(terminal[0], 99)
    worker = (
        "from ansible_collections.tokforge.sglang.plugins.plugin_utils import progress_line as p;"
        "import sys; sys.stderr.write(str(p.room({})))"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {worker!r}], stdout=subprocess.DEVNULL)"
    done = subprocess.run(
        [sys.executable, "-c", parent], stdout=terminal[0], stderr=subprocess.PIPE, text=True, check=True, timeout=60
    )
    assert done.stderr == "99"


def test_each_line_takes_the_place_of_the_one_before_and_the_last_stays() -> None:
    shown = Shown()
    line = progress_line.ProgressLine(shown, 80)
    line.show("one")
    line.show("two")
    line.last("[box] ready after 3 s")
    line.close()
    assert shown.screen == f"{ERASE}one{ERASE}two{ERASE}[box] ready after 3 s\n"
    assert shown.log == ["[box] ready after 3 s"]


def test_closing_leaves_the_cursor_on_a_fresh_line() -> None:
    shown = Shown()
    line = progress_line.ProgressLine(shown, 80)
    line.show("one")
    line.close()
    line.close()
    assert (shown.screen, shown.log) == (f"{ERASE}one\n", [])


def test_nothing_shown_leaves_nothing() -> None:
    shown = Shown()
    line = progress_line.ProgressLine(shown, 80)
    line.close()
    assert shown.screen == ""
    line.last("the only one")
    line.close()
    assert shown.screen == "the only one\n"


def test_plain_lines_have_no_control_characters_and_are_whole() -> None:
    shown = Shown()
    line = progress_line.ProgressLine(shown, None)
    line.show("x" * 200)
    line.last("end")
    line.close()
    assert shown.screen == "x" * 200 + "\nend\n" and shown.log == ["x" * 200, "end"]


@pytest.mark.parametrize(("columns", "text"), [(11, "0123456789"), (10, "01234567…"), (5, "012…"), (3, "0…")])
def test_line_fits_into_one_row_with_room_for_the_cursor(columns: int, text: str) -> None:
    shown = Shown()
    progress_line.ProgressLine(shown, columns).show("0123456789")
    assert shown.screen == ERASE + text
