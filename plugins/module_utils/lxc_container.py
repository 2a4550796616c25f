# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One container as its manager knows it: whether it runs, as which process, and a restart that finishes.

Proxmox VE's `pct` (man page pct(1)) and LXC's own programs (man pages lxc-info(1), lxc-stop(1), lxc-start(1)) are
called with arguments that both document, never through a shell.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ansible_collections.tokforge.sglang.plugins.module_utils import previous_values

AUTO = "auto"
PCT = "pct"
LXC = "lxc"

#: When a restart is done: at once; with the machine, which only notes it; or as far as a note says so.
NOW, LATER, NOTED = "now", "later", "noted"
HOW = (NOW, LATER, NOTED)

LXC_PATH = "/var/lib/lxc"
_PVE_PATH = "/etc/pve/lxc"
#: What a program may take beyond the time that the container has.
_SPARE_S = 60.0
_POLL_S = 0.2
_MOST_OUTPUT = 1 << 20


class ContainerError(Exception):
    """A container cannot be looked at or restarted; the text says what to do."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Answer:
    """How a program ended, and what it said on both of its outputs together."""

    code: int
    text: str


#: Runs a program with arguments for at most so many seconds. Raises ContainerError when it takes longer.
Run = Callable[[Sequence[str], float], Answer]
#: Where a program is, None when it is not there.
Which = Callable[[str], Optional[str]]


@dataclass(frozen=True)
class Container:
    """Which container it is, by number or name, and what manages it."""

    tool: str
    name: str
    lxc_path: str = LXC_PATH

    @property
    def config(self) -> str:
        """Where its configuration is by default."""
        return f"{_PVE_PATH}/{self.name}.conf" if self.tool == PCT else os.path.join(self.lxc_path, self.name, "config")

    @property
    def note(self) -> str:
        """Under which key a restart that is under way is noted."""
        return f"lxc_restart/{self.tool}/{self.name}"


@dataclass(frozen=True)
class State:
    """`word` is the manager's own: running, stopped, frozen and so on; empty when it does not know the container.

    `pid` is that of the first process, 0 without one. `why` says why the state cannot be told.
    """

    word: str = ""
    pid: int = 0
    why: str = ""

    @property
    def running(self) -> bool:
        """Whether its processes run."""
        return self.word == "running"


def choose(tool: str, name: str, lxc_path: str, which: Which = shutil.which) -> Container:
    """The container with its tool: `auto` is pct where there is one. Raises ContainerError for a name that is none."""
    tool = tool if tool != AUTO else (PCT if which("pct") else LXC)
    pattern = r"[1-9]\d{2,8}" if tool == PCT else r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
    if not re.fullmatch(pattern, name, re.ASCII):
        what = "a number from 100 on, as pct list shows it" if tool == PCT else "a name, as lxc-ls shows it"
        raise ContainerError(f"reading the container's id {name!r}: it is none; give {what}", id=name, tool=tool)
    return Container(tool, name, lxc_path)


def run(command: Sequence[str], timeout_s: float) -> Answer:
    """Run a program of this host. Raises ContainerError."""
    # A file, not a pipe: a container that is started may keep what it inherits, and a pipe would never end.
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C"},
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ContainerError(
                f"running {' '.join(command)}: it took more than {timeout_s:g} s; see what holds it", command=[*command]
            ) from error
        except OSError as error:
            raise ContainerError(
                f"running {' '.join(command)}: {error.strerror}; install it, or choose another tool", command=[*command]
            ) from error
        output.seek(0)
        return Answer(done.returncode, output.read(_MOST_OUTPUT).decode("utf-8", "replace"))


def look(one: Container, execute: Run = run, which: Which = shutil.which) -> State:
    """Whether it runs. A container that is not known to its manager has no state. Raises ContainerError."""
    program = "pct" if one.tool == PCT else "lxc-info"
    if which(program) is None:
        return State(why=f"{program} is not installed")
    # Proxmox VE keeps its own state; only LXC's program tells the process, also there.
    info = _info(one, execute) if which("lxc-info") else {}
    if one.tool == LXC:
        return State(info.get("state", "").lower(), _pid(info), "" if info else "LXC knows no container of this name")
    answer = execute(["pct", "status", one.name], _SPARE_S)
    match = re.search(r"^status:\s*(\w+)\s*$", answer.text, re.MULTILINE)
    if answer.code or not match:
        return State(why=f"pct status says: {_short(answer.text)}")
    return State(match[1].lower(), _pid(info))


def _info(one: Container, execute: Run) -> dict[str, str]:
    where = ["-P", one.lxc_path] if one.tool == LXC else []
    answer = execute(["lxc-info", "-n", one.name, *where, "-s", "-p"], _SPARE_S)
    if answer.code:
        return {}
    return {key.lower(): value for key, value in re.findall(r"^(\w+):\s+(\S+)\s*$", answer.text, re.MULTILINE)}


def _pid(info: Mapping[str, str]) -> int:
    text = info.get("pid", "")
    return int(text) if re.fullmatch(r"[1-9]\d{0,9}", text, re.ASCII) else 0


def interrupted(one: Container, state: State, record_dir: str) -> bool:
    """Whether a restart of ours stopped it and then did not get to start it. Raises RecordError."""
    return state.word == "stopped" and one.note in previous_values.read(record_dir)


def due(one: Container, state: State, how: str, record_dir: str) -> bool:
    """Whether it is to be restarted, or started, for what was asked (HOW). Raises RecordError."""
    return (how == NOW and state.running) or (how != LATER and interrupted(one, state, record_dir))


def keep_note(one: Container, state: State, how: str, record_dir: str) -> None:
    """Note of one that runs that it is to run again, or forget it when it does by itself. Raises RecordError."""
    if state.running and how == LATER:
        previous_values.remember(record_dir, {one.note: True})
    elif state.running and how == NOTED:
        previous_values.forget(record_dir, [one.note])


def restart(
    one: Container, state: State, timeout_s: int, record_dir: str, execute: Run = run, which: Which = shutil.which
) -> State:
    """Restart a container that runs, start one whose restart was interrupted. Returns its state when it runs again.

    One that does not shut down within `timeout_s` is stopped hard. Raises ContainerError and RecordError.
    When its manager refuses and it goes on to run, nothing is noted: who stops it later has it stay stopped.
    """
    is_new = one.note not in previous_values.read(record_dir)
    previous_values.remember(record_dir, {one.note: True})
    try:
        for command, limit_s in _commands(one, state, timeout_s):
            _do(one, command, execute, limit_s)
    except ContainerError as error:
        # One that took too long may stop it yet.
        if is_new and "rc" in error.facts and look(one, execute, which).running:
            previous_values.forget(record_dir, [one.note])
        raise
    now = _awaited(one, state.pid, timeout_s, lambda: look(one, execute, which))
    previous_values.forget(record_dir, [one.note])
    return now


def _commands(one: Container, state: State, timeout_s: int) -> list[tuple[list[str], float]]:
    """What restarts it, each with the seconds that it may take."""
    if one.tool == PCT:
        again = ["pct", "reboot", one.name, "--timeout", str(timeout_s)]
        return [(again if state.running else ["pct", "start", one.name], 2 * timeout_s + _SPARE_S)]
    where = ["-n", one.name, "-P", one.lxc_path]
    start: tuple[list[str], float] = (["lxc-start", *where, "-d"], timeout_s + _SPARE_S)
    # A reboot by LXC keeps the configuration that the container was started with.
    stop: tuple[list[str], float] = (["lxc-stop", *where, "-t", str(timeout_s)], timeout_s + _SPARE_S)
    return [stop, start] if state.running else [start]


def _do(one: Container, command: Sequence[str], execute: Run, timeout_s: float) -> None:
    answer = execute(command, timeout_s)
    if answer.code:
        raise ContainerError(
            f"restarting container {one.name}: {' '.join(command)} ended with {answer.code}: {_short(answer.text)}; "
            "see to the container, then run again",
            id=one.name,
            command=[*command],
            rc=answer.code,
            output=answer.text[-4000:],
        )


def _awaited(one: Container, before: int, timeout_s: int, again: Callable[[], State]) -> State:
    """The state once it runs as another process."""
    deadline = time.monotonic() + timeout_s
    while True:
        state = again()
        if state.running and (not before or state.pid not in (0, before)):
            return state
        if time.monotonic() >= deadline:
            raise ContainerError(
                f"restarting container {one.name}: after {timeout_s} s its state is {state.word or state.why}"
                f"{' as the same process' if state.running else ''}; look at its log, then start it",
                id=one.name,
                state=state.word,
            )
        time.sleep(_POLL_S)


def _short(text: str) -> str:
    return " ".join(text.split())[-300:] or "nothing"
