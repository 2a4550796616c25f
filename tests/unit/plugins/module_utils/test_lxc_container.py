# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A container as its manager knows it, with programs that are functions here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import lxc_container, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.lxc_container import (
    Answer,
    Container,
    ContainerError,
    State,
)

PVE, PLAIN = Container("pct", "101"), Container("lxc", "sglang", "/tank/lxc")
RUNNING, STOPPED = State("running", 42), State("stopped")


def found(_name: str) -> str:
    return "/usr/bin/x"


class Programs:
    """Answers by the words that a command begins with; the last answer to it stays."""

    def __init__(self, **answers: list[Answer]) -> None:
        self.answers = answers
        self.calls: list[list[str]] = []

    def __call__(self, command: Sequence[str], timeout_s: float) -> Answer:
        assert timeout_s >= 5
        self.calls.append(list(command))
        name = "_".join(command[:2]) if command[0] == "pct" else command[0].replace("-", "_")
        waiting = self.answers.get(name, [Answer(0, "")])
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]


def info(pid: int, word: str = "RUNNING") -> Answer:
    return Answer(0, f"State:          {word}\n" + (f"PID:            {pid}\n" if pid else ""))


@pytest.mark.parametrize(
    ("tool", "name", "has_pct", "config"),
    [
        ("auto", "101", True, "/etc/pve/lxc/101.conf"),
        ("auto", "101", False, "/l/101/config"),
        ("lxc", "a.b-c_1", True, "/l/a.b-c_1/config"),
    ],
)
def test_tool_and_configuration(tool: str, name: str, has_pct: bool, config: str) -> None:
    one = lxc_container.choose(tool, name, "/l", lambda _program: "/usr/sbin/pct" if has_pct else None)
    assert one.config == config


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("pct", "x"),
        ("pct", "99"),
        ("pct", "0101"),
        ("pct", "101\n"),
        ("lxc", "-n"),
        ("lxc", "../x"),
        ("lxc", ""),
        ("lxc", "é"),
    ],
)
def test_name_that_could_be_something_else_is_refused(tool: str, name: str) -> None:
    with pytest.raises(ContainerError, match="it is none; give a n"):
        lxc_container.choose(tool, name, "/l")


@pytest.mark.parametrize(
    ("one", "programs", "state"),
    [
        (PVE, Programs(pct_status=[Answer(0, "status: running\n")], lxc_info=[info(42)]), RUNNING),
        (PVE, Programs(pct_status=[Answer(0, "status: stopped\n")], lxc_info=[info(0, "STOPPED")]), STOPPED),
        (PVE, Programs(pct_status=[Answer(2, "x does\nnot exist\n")]), State(why="pct status says: x does not exist")),
        (PLAIN, Programs(lxc_info=[info(7)]), State("running", 7)),
        (PLAIN, Programs(lxc_info=[info(7, "FROZEN")]), State("frozen", 7)),
        (
            PLAIN,
            Programs(lxc_info=[Answer(1, "")]),
            State(why="LXC knows no container of this name"),
        ),
    ],
)
def test_state_is_what_the_manager_says(one: Container, programs: Programs, state: State) -> None:
    assert lxc_container.look(one, programs, found) == state


def test_commands_are_documented_ones() -> None:
    programs = Programs(pct_status=[Answer(0, "status: running\n")], lxc_info=[info(42)])
    lxc_container.look(PVE, programs, found)
    lxc_container.look(PLAIN, programs, found)
    assert programs.calls == [
        ["lxc-info", "-n", "101", "-s", "-p"],
        ["pct", "status", "101"],
        ["lxc-info", "-n", "sglang", "-P", "/tank/lxc", "-s", "-p"],
    ]


def test_missing_program_is_a_reason_and_no_state() -> None:
    assert lxc_container.look(PLAIN, Programs(), lambda _name: None) == State(why="lxc-info is not installed")


def test_restart_of_proxmox_waits_for_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lxc_container, "_POLL_S", 0.001)
    running = Answer(0, "status: running\n")
    programs = Programs(pct_status=[running], lxc_info=[info(42), info(0), info(77)])
    assert lxc_container.restart(PVE, RUNNING, 5, str(tmp_path), programs, found) == State("running", 77)
    assert programs.calls[0] == ["pct", "reboot", "101", "--timeout", "5"]
    assert previous_values.read(str(tmp_path)) == {}


def test_restart_of_lxc_stops_and_starts(tmp_path: Path) -> None:
    programs = Programs(lxc_info=[info(77)])
    lxc_container.restart(PLAIN, RUNNING, 5, str(tmp_path), programs, found)
    where = ["-n", "sglang", "-P", "/tank/lxc"]
    assert programs.calls[:2] == [["lxc-stop", *where, "-t", "5"], ["lxc-start", *where, "-d"]]


@pytest.mark.parametrize(
    ("one", "first"), [(PVE, ["pct", "start", "101"]), (PLAIN, ["lxc-start", "-n", "sglang", "-P", "/tank/lxc", "-d"])]
)
def test_interrupted_restart_is_finished(one: Container, first: list[str], tmp_path: Path) -> None:
    record = str(tmp_path)
    failing = Programs(pct_reboot=[Answer(1, "no\n")], lxc_start=[Answer(1, "no\n")])
    with pytest.raises(ContainerError, match=r"ended with 1: no; see to the container, then run again") as caught:
        lxc_container.restart(one, RUNNING, 5, record, failing, found)
    assert caught.value.facts["rc"] == 1
    assert lxc_container.interrupted(one, STOPPED, record)
    assert not lxc_container.interrupted(one, RUNNING, record) and not lxc_container.interrupted(one, State(), record)
    programs = Programs(pct_status=[Answer(0, "status: running\n")], lxc_info=[info(77)])
    lxc_container.restart(one, STOPPED, 5, record, programs, found)
    assert programs.calls[0] == first
    assert not lxc_container.interrupted(one, STOPPED, record)


@pytest.mark.parametrize(
    ("answer", "why"),
    [(info(0, "STOPPED"), "its state is stopped"), (info(42), "its state is running as the same process")],
)
def test_container_that_does_not_come_up_is_told(
    answer: Answer, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(lxc_container.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(lxc_container.time, "sleep", lambda _s: None)
    with pytest.raises(ContainerError, match=f"restarting container sglang: after 5 s {why}; look at its log"):
        lxc_container.restart(PLAIN, RUNNING, 5, str(tmp_path), Programs(lxc_info=[answer]), found)


def test_program_is_run_without_a_shell_and_its_child_does_not_hold_it() -> None:
    # What a started container keeps open must not keep us.
    script = "import subprocess,sys; subprocess.Popen(['sleep', '5']); print('$HOME', *sys.argv[1:]); sys.exit(3)"
    answer = lxc_container.run([sys.executable, "-c", script, "a b", ";"], 4.0)
    assert (answer.code, answer.text) == (3, "$HOME a b ;\n")


def test_program_that_hangs_or_is_not_there_is_told() -> None:
    with pytest.raises(ContainerError, match=r"took more than 0.2 s; see what holds it"):
        lxc_container.run(["sleep", "5"], 0.2)
    with pytest.raises(ContainerError, match="running no-such-program x: No such file or directory; install it"):
        lxc_container.run(["no-such-program", "x"], 1)


@pytest.mark.parametrize("one", [PVE, PLAIN])
def test_container_that_its_manager_refuses_to_stop_is_not_started_once_it_is_stopped_later(
    one: Container, tmp_path: Path
) -> None:
    locked = Answer(25, "CT is locked (backup)\n")
    running = Answer(0, "status: running\n")
    programs = Programs(pct_reboot=[locked], lxc_stop=[locked], pct_status=[running], lxc_info=[info(42)])
    with pytest.raises(ContainerError, match="locked"):
        lxc_container.restart(one, RUNNING, 5, str(tmp_path), programs, found)
    assert not lxc_container.interrupted(one, STOPPED, str(tmp_path))


def test_restart_that_takes_too_long_may_stop_it_yet(tmp_path: Path) -> None:
    def hangs(command: Sequence[str], _timeout_s: float) -> Answer:
        if command[:2] == ["pct", "reboot"]:
            raise ContainerError("it took more than 70 s")
        return info(42) if command[0] == "lxc-info" else Answer(0, "status: running\n")

    with pytest.raises(ContainerError, match="took more"):
        lxc_container.restart(PVE, RUNNING, 5, str(tmp_path), hangs, found)
    assert lxc_container.interrupted(PVE, STOPPED, str(tmp_path))


@pytest.mark.parametrize(
    ("how", "state", "noted", "due", "left"),
    [
        ("now", RUNNING, False, True, False),
        ("now", STOPPED, False, False, False),
        ("now", STOPPED, True, True, True),
        # Before its machine is rebooted: one that runs is noted, one that does not stays as it is.
        ("later", RUNNING, False, False, True),
        ("later", STOPPED, False, False, False),
        # After it: one that did not come back is started, one that did loses the note.
        ("noted", STOPPED, True, True, True),
        ("noted", STOPPED, False, False, False),
        ("noted", RUNNING, True, False, False),
        ("noted", RUNNING, False, False, False),
    ],
)
def test_container_that_ran_before_a_reboot_runs_after_it(
    how: str, state: State, noted: bool, due: bool, left: bool, tmp_path: Path
) -> None:
    record = str(tmp_path / "record")
    if noted:
        previous_values.remember(record, {PVE.note: True})
    assert lxc_container.due(PVE, state, how, record) is due
    if not due:
        lxc_container.keep_note(PVE, state, how, record)
    assert (PVE.note in previous_values.read(record)) is left
