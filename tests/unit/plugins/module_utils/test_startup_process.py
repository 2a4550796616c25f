# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes of a starting server between two looks: which one is meant, and which rank is gone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime, timedelta, timezone

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import proc, startup_process
from ansible_collections.tokforge.sglang.plugins.module_utils.service import ServiceError

# It says the pids of two rank processes and waits for no child, so that one that is killed stays as a zombie.
RANKS = """
import subprocess, sys
cat, *titles = sys.argv[1:]
made = [subprocess.Popen([title], executable=cat, stdin=subprocess.PIPE) for title in titles]
print(*(child.pid for child in made), flush=True)
for line in sys.stdin:
    if line == "reap\\n":
        made[-1].wait()
        print("reaped", flush=True)
"""
TITLES = ("sglang::scheduler_TP0", "sglang::scheduler_TP1")


class Server:
    """A process with a rank process for each title."""

    def __init__(self, *titles: str) -> None:
        cat = shutil.which("cat")
        assert cat
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", RANKS, cat, *titles],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        assert self.process.stdout
        self.pid = self.process.pid
        self.ranks = [int(word) for word in self.process.stdout.readline().split()]
        # The kernel closes the pipe on which Python waits for an exec before the new program has its title.
        assert proc.wait_until(lambda: [" ".join(proc.argv(pid)) for pid in self.ranks] == list(titles), 5)

    def reap(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("reap\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "reaped\n"

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.communicate()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(*TITLES)
    yield made
    made.end()


def comes_to(pid: int, states: str) -> bool:
    """Whether a process gets into one of these states within some seconds."""

    def there() -> bool:
        found = proc.read_process(pid)
        return found is not None and found.state in states

    return proc.wait_until(there, 5)


class Systemd:
    """What systemctl says."""

    def __init__(self, **shown: str) -> None:
        self.asked: list[list[str]] = []
        self.shown: dict[str, str] = {}
        self.say(**shown)

    def say(self, **shown: str) -> None:
        usual = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "MainPID": "0"}
        self.shown = {**usual, **shown}

    def __call__(self, command: Sequence[str], _environment: Mapping[str, str] | None) -> tuple[int, str, str]:
        self.asked.append(list(command))
        return 0, "\n".join(f"{name}={value}" for name, value in self.shown.items()), ""


def never(_command: Sequence[str], _environment: Mapping[str, str] | None) -> tuple[int, str, str]:
    raise AssertionError("nothing is to be run")


def look(
    watch: startup_process.Watch,
    now: float = 1.0,
    run: object = never,
    grew: bool = False,
    gpu: bool | None = None,
) -> tuple[startup_process.Process | None, startup_process.Quiet, dict[str, str]]:
    """A look with a stall limit of 300 s, with what is remembered sent through JSON first."""
    again = startup_process.Watch.from_dict(json.loads(json.dumps(asdict(watch))))
    found = startup_process.look(again, run, now, grew, 300.0, lambda: gpu)  # type: ignore[arg-type]
    for name, value in vars(again).items():
        setattr(watch, name, value)
    return found


# --- which process ---------------------------------------------------------------------------------------------------


def test_without_a_process_the_log_alone_is_a_sign_of_life() -> None:
    watch = startup_process.begin("", never, 10.0)
    process, _quiet, dead = look(watch, 15.0, grew=True)
    assert (process, dead) == (None, {})
    process, quiet, _dead = look(watch, 22.0)
    assert (process, quiet) == (None, startup_process.Quiet(7.0, 7.0, 7.0))


def test_process_is_told_by_its_pid_and_its_start(server: Server) -> None:
    watch = startup_process.begin(str(server.pid), never, 0.0)
    assert (watch.pid, watch.unit) == (server.pid, "") and watch.start_ticks > 0
    process, _quiet, dead = look(watch)
    assert process and (process.pid, process.alive, process.ended) == (server.pid, True, "") and dead == {}
    # A number that was taken by another program since is not the server.
    other = startup_process.begin(str(server.pid), never, 0.0, watch.start_ticks - 1)
    process, _quiet, _dead = look(other)
    assert process and (process.alive, process.ended) == (False, "is gone")


def test_process_that_nobody_has_waited_for_yet_is_not_alive(server: Server) -> None:
    watch = startup_process.begin(str(server.pid), never, 0.0)
    os.kill(server.pid, signal.SIGKILL)
    assert comes_to(server.pid, "Z")
    process, _quiet, _dead = look(watch)
    assert process and (process.pid, process.alive, process.ended) == (server.pid, False, "is gone")


def test_pid_that_never_was_is_gone() -> None:
    process, _quiet, _dead = look(startup_process.begin("4194305", never, 0.0))
    assert process and (process.pid, process.alive) == (4194305, False)


# --- a unit ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "unit"), [("sglang", "sglang.service"), ("sglang.service", "sglang.service"), ("a@b.scope", "a@b.scope")]
)
def test_unit_is_asked_for_its_process(server: Server, given: str, unit: str) -> None:
    systemd = Systemd(MainPID=str(server.pid))
    watch = startup_process.begin(given, systemd, 0.0)
    assert (watch.unit, watch.pid) == (unit, server.pid)
    assert systemd.asked[0][:3] == ["systemctl", "show", unit]
    process, _quiet, _dead = look(watch, run=systemd)
    assert process and process.alive


def test_unit_that_restarts_is_watched_with_its_new_process(server: Server) -> None:
    systemd = Systemd(MainPID=str(server.pid))
    watch = startup_process.begin("sglang", systemd, 0.0)
    look(watch, 1.0, systemd)
    assert sorted(watch.ranks.values()) == ["TP0", "TP1"]
    systemd.say(SubState="auto-restart", ActiveState="activating", ExecMainCode="1", ExecMainStatus="3")
    server.end()
    assert startup_process.follow(watch, systemd) is False
    process, _quiet, _dead = look(watch, 2.0, systemd)
    assert process and (process.alive, process.ended) == (False, "exited with code 3")
    later = Server("sglang::scheduler_TP0")
    try:
        systemd.say(MainPID=str(later.pid))
        assert startup_process.follow(watch, systemd) is True
        process, _quiet, dead = look(watch, 3.0, systemd)
        assert process and (process.pid, process.alive) == (later.pid, True)
        # Ranks of the process before are not missed.
        assert (dead, list(watch.ranks.values())) == ({}, ["TP0"])
    finally:
        later.end()


@pytest.mark.parametrize(
    ("shown", "ended"),
    [
        ({"ActiveState": "inactive", "ExecMainCode": "0"}, "was never started"),
        ({"ActiveState": "failed", "ExecMainCode": "2", "ExecMainStatus": "9"}, "was killed by signal 9 (SIGKILL)"),
        ({"ActiveState": "inactive", "ExecMainCode": "1", "ExecMainStatus": "0"}, "exited with code 0"),
        ({"ActiveState": "failed"}, "ended"),
    ],
)
def test_unit_without_a_process_says_how_it_ended(shown: dict[str, str], ended: str) -> None:
    systemd = Systemd(**shown)
    process, _quiet, _dead = look(startup_process.begin("sglang", systemd, 0.0), run=systemd)
    assert process and (process.alive, process.ended) == (False, ended)


def test_unit_that_is_not_there_is_an_error_with_its_name() -> None:
    systemd = Systemd(LoadState="not-found", ActiveState="inactive")
    with pytest.raises(ServiceError, match=r"cannot look at sglnag\.service: systemd knows no such unit; correct"):
        startup_process.begin("sglnag", systemd, 0.0)


# --- ranks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reaped", [False, True])
def test_rank_process_that_is_gone_is_told_by_its_title(server: Server, reaped: bool) -> None:
    watch = startup_process.begin(str(server.pid), never, 0.0)
    assert look(watch)[2] == {}
    assert sorted(watch.ranks.values()) == ["TP0", "TP1"]
    os.kill(server.ranks[1], signal.SIGKILL)
    if reaped:
        server.reap()
    else:
        assert comes_to(server.ranks[1], "Z")
    process, _quiet, dead = look(watch, 2.0)
    assert process and process.alive
    assert dead == {"TP1": f"process {server.ranks[1]} is gone"}
    assert look(watch, 3.0)[2] == dead  # it stays so


def test_child_that_is_no_rank_may_end(server: Server) -> None:
    server.end()
    other = Server("sglang::scheduler_TP0", "sglang::detokenizer")
    try:
        watch = startup_process.begin(str(other.pid), never, 0.0)
        look(watch)
        os.kill(other.ranks[1], signal.SIGKILL)
        other.reap()
        assert (look(watch, 2.0)[2], list(watch.ranks.values())) == ({}, ["TP0"])
    finally:
        other.end()


@pytest.mark.parametrize(
    ("title", "tag"),
    [
        ("sglang::scheduler", "main"),
        ("sglang::scheduler_TP1", "TP1"),
        ("sglang::scheduler_DP0_TP11_EP11", "DP0 TP11 EP11"),
        ("sglang::scheduler_TP3_PP1", "PP1 TP3"),
        ("sglang::scheduler_ATTN_CP1_MOE_DP0_TP1", "ATTN_CP1 MOE_DP0 TP1"),
        ("sglang::scheduler_TP", ""),
        ("sglang::scheduler_TP1 --x", ""),
        ("sglang::scheduler_XX1", ""),
        ("sglang::scheduler_TP1_TP2", ""),
        ("sglang::detokenizer", ""),
        ("python -m sglang.launch_server sglang::scheduler_TP1", ""),
        ("", ""),
    ],
)
def test_rank_of_a_title(title: str, tag: str) -> None:
    assert startup_process.rank_of_title(title) == tag


# --- signs of life ---------------------------------------------------------------------------------------------------


def test_each_kind_of_quiet_is_counted_from_its_own_last_sign(server: Server) -> None:
    watch = startup_process.begin(str(server.pid), never, 100.0)
    assert look(watch, 101.0, grew=True)[1] == startup_process.Quiet(0.0, 0.0, 0.0)
    assert look(watch, 150.0)[1] == startup_process.Quiet(49.0, 49.0, 49.0)
    process, quiet, _dead = look(watch, 401.0, gpu=True)
    assert quiet == startup_process.Quiet(300.0, 300.0, 0.0)
    assert process and process.doing == "a GPU computes"
    assert look(watch, 402.0, gpu=True)[1].any_s == 1.0  # the driver is not asked before it decides
    assert look(watch, 701.0, gpu=None)[1] == startup_process.Quiet(600.0, 600.0, 300.0)


def test_stopped_process_makes_the_gpus_work_count_for_nothing(server: Server) -> None:
    watch = startup_process.begin(str(server.pid), never, 0.0)
    look(watch, 1.0)
    os.kill(server.ranks[0], signal.SIGSTOP)
    assert comes_to(server.ranks[0], "Tt")
    process, quiet, dead = look(watch, 301.0, gpu=True)
    assert process and process.stopped == (server.ranks[0],) and quiet.any_s == 301.0 and dead == {}
    assert process.doing == f"process {server.ranks[0]} is stopped"


def test_clock_that_goes_back_does_no_harm(server: Server) -> None:
    watch = startup_process.begin(str(server.pid), never, 100.0)
    look(watch, 101.0)
    assert look(watch, 50.0)[0]
    assert watch.compiling_s == 0.0


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [{"no_such": 1}, {"sample": {"alive": True}}, {"sample": {"alive": 1, "uses": 5}}, {"sample": "x"}]
)
def test_memory_that_no_look_made_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not what an earlier look returned"):
        startup_process.Watch.from_dict(data)


def test_start_of_a_process_is_told_as_its_log_tells_times(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    found = proc.read_process(server.pid)
    assert found
    text = startup_process.started_text(server.pid, found.start_ticks)
    began = datetime.strptime(text, "%Y-%m-%d %H:%M:%S")
    assert timedelta(seconds=0) <= datetime.now() - began < timedelta(seconds=30)
    # In the zone of the process, whatever ours is.
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    monkeypatch.setattr(proc, "environ", lambda pid: {"TZ": "UTC"})
    there = datetime.strptime(startup_process.started_text(server.pid, found.start_ticks), "%Y-%m-%d %H:%M:%S")
    assert abs(there - datetime.now(timezone.utc).replace(tzinfo=None)) < timedelta(seconds=30)
    assert os.environ["TZ"] == "Asia/Tokyo"
    monkeypatch.undo()
    time.tzset()
    assert startup_process.started_text(0, 0) == ""
