# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds a root, and that of two plays one can go on only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import proc, rollout_lock
from ansible_collections.tokforge.sglang.plugins.module_utils.rollout_lock import Controller, Lock, LockError

ELSEWHERE = Controller("ci-1", "deploy", "another-boot", "pid:[1]", 4711, 99)
BOOT = "this-boot"


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "r")


@pytest.fixture
def other() -> Iterator[proc.Process]:
    """A process that runs, and is not this one."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = proc.read_process(child.pid)
    assert found
    yield found
    child.kill()
    child.wait()


def lock(**changes: object) -> Lock:
    made = Lock("theirs", "deploy", ELSEWHERE, BOOT, taken_at=1000.0, seen_at=1500.0)
    return replace(made, **changes)  # type: ignore[arg-type]


def here(pid: int, ticks: int) -> Controller:
    return Controller("here", "me", proc.boot_id(), rollout_lock.pid_namespace(), pid, ticks)


def judge(given: Lock | None, now: float = 1600.0, ended: tuple[str, ...] = (), works: bool = False) -> tuple[str, str]:
    verdict = rollout_lock.judge(given, "mine", BOOT, now, 300.0, ended, lambda pid, ticks: works)
    return verdict.kind, verdict.why


def test_nobody_and_oneself_are_no_obstacle() -> None:
    assert judge(None) == ("free", "nobody holds it")
    assert judge(lock(rollout="mine"))[0] == "mine"


def test_boot_of_the_host_ends_every_play_whatever_else_is_seen() -> None:
    assert judge(lock(boot_id="before", worker_pid=5), works=True) == ("stale", "the host was booted since")


def test_task_at_work_holds_it_also_when_its_play_is_known_to_be_over() -> None:
    kind, why = judge(lock(worker_pid=5), ended=("theirs",), works=True)
    assert (kind, why) == ("held", "its task is at work as process 5 of the host")
    assert judge(lock(worker_pid=5), ended=("theirs",))[0] == "stale"
    # A worker of nobody is none.
    assert judge(lock(), ended=("theirs",), works=True) == ("stale", "its play, process 4711 of ci-1, has ended")


def test_play_of_another_controller_is_judged_by_its_signs_of_life() -> None:
    assert judge(lock(), now=1800.0) == ("held", "it gave a sign of life 5 min ago")
    assert judge(lock(), now=1800.1) == ("stale", "it gave no sign of life for 5 min")
    assert judge(lock(), now=1.0) == ("held", "it gave a sign of life 0 s ago")  # the clock was set back


def test_play_on_this_machine_is_looked_at(other: proc.Process) -> None:
    alive = here(other.pid, other.start_ticks)
    assert judge(lock(controller=alive), now=9e9) == ("held", f"its play, process {other.pid} of here, runs")
    # The same number, another process.
    assert judge(lock(controller=here(other.pid, other.start_ticks + 1)))[0] == "stale"
    # The same number in another container says nothing.
    contained = replace(alive, pid_namespace="pid:[2]")
    assert contained.lives() is None
    assert judge(lock(controller=contained))[0] == "held"


def test_controller_without_proc_is_judged_by_its_signs_of_life() -> None:
    assert Controller("mac", "me").lives() is None
    assert rollout_lock.controller_of(0, "mac", "me") == Controller("mac", "me")


def test_process_that_may_not_be_looked_at_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "read_process", lambda pid: None)
    assert rollout_lock.runs(os.getpid(), 1) is False  # the signal arrived, so /proc would have shown it

    def refuse(pid: int, number: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert rollout_lock.runs(1, 1) is True
    assert rollout_lock.runs(0, 0) is False


def test_second_play_is_refused_and_told_whom_to_wait_for(root: str, other: proc.Process) -> None:
    first = here(other.pid, other.start_ticks)
    assert rollout_lock.take(root, "one", "deploy", first, 300).kind == "free"
    with pytest.raises(LockError) as caught:
        rollout_lock.take(root, "two", "sweep", here(1, 1), 300)
    text = str(caught.value)
    assert f"cannot begin below {root}: deploy of me@here has been at work there for 0 s" in text
    assert f"process {other.pid} of here, runs" in text and "sglang_lock_wait_s" in text
    assert text.endswith("-e sglang_lock_break=true. Nothing was changed")
    assert caught.value.facts["locked"] is True
    assert caught.value.facts["holder"]["rollout"] == "one" and caught.value.facts["holder"]["silent_s"] < 60
    held = rollout_lock.read(root)
    assert held and held.rollout == "one"


def test_lock_of_a_dead_play_is_taken_and_the_dead_one_cannot_go_on(root: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    rollout_lock.take(root, "one", "deploy", here(child.pid, 1), 300)
    assert rollout_lock.take(root, "two", "sweep", ELSEWHERE, 300).kind == "stale"
    with pytest.raises(LockError, match=r"lock was taken away, and sweep of deploy@ci-1 has it now"):
        rollout_lock.fence(root, "one")
    assert rollout_lock.give_back(root, "one") is False
    assert rollout_lock.fence(root, "two").rollout == "two"
    assert rollout_lock.give_back(root, "two") is True
    with pytest.raises(LockError, match="nobody has it now"):
        rollout_lock.fence(root, "two")


def test_lock_is_broken_on_request_but_not_under_a_task_that_works(root: str, other: proc.Process) -> None:
    rollout_lock.take(root, "one", "deploy", here(other.pid, other.start_ticks), 300)
    path = Path(rollout_lock.path(root))
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "worker_pid": other.pid, "worker_start_ticks": other.start_ticks}))
    with pytest.raises(LockError, match=f"process {other.pid} of the host"):
        rollout_lock.take(root, "two", "deploy", ELSEWHERE, 300, broken=True)
    path.write_text(json.dumps(data))
    verdict = rollout_lock.take(root, "two", "deploy", ELSEWHERE, 300, broken=True)
    assert verdict.kind == "stale" and verdict.why.startswith("it was taken away on request, though its play")


def test_task_at_work_is_in_the_lock_while_it_works(root: str) -> None:
    rollout_lock.take(root, "one", "deploy", ELSEWHERE, 300)
    with rollout_lock.at_work(root, "one"):
        held = rollout_lock.read(root)
        assert held and rollout_lock.runs(held.worker_pid, held.worker_start_ticks)
        assert held.worker_pid == os.getpid()
        with pytest.raises(LockError, match="is at work as process"):
            rollout_lock.take(root, "two", "deploy", ELSEWHERE, 300, ended=["one"])
    held = rollout_lock.read(root)
    assert held and (held.worker_pid, held.worker_start_ticks) == (0, 0)
    with rollout_lock.at_work(root, None):
        assert rollout_lock.read(root) == held


def test_failure_of_the_work_is_what_is_told_also_when_the_lock_is_gone(root: str) -> None:
    rollout_lock.take(root, "one", "deploy", ELSEWHERE, 300)
    with pytest.raises(ZeroDivisionError), rollout_lock.at_work(root, "one"):
        rollout_lock.give_back(root, "one")
        raise ZeroDivisionError


def test_sign_of_life_is_written_and_the_time_of_taking_kept(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    rollout_lock.take(root, "one", "deploy", ELSEWHERE, 300)
    monkeypatch.setattr("time.time", lambda: 1200.0)
    rollout_lock.fence(root, "one")
    held = rollout_lock.read(root)
    assert held and (held.taken_at, held.seen_at) == (1000.0, 1200.0)
    monkeypatch.setattr("time.time", lambda: 1300.0)
    assert rollout_lock.take(root, "one", "deploy", ELSEWHERE, 300).kind == "mine"
    held = rollout_lock.read(root)
    assert held and (held.taken_at, held.seen_at) == (1000.0, 1300.0)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"schema_version": 0}', '{"schema_version": 1, "rollout": "x"}']
)
def test_lock_that_names_nobody_is_nobodys(root: str, text: str) -> None:
    path = Path(rollout_lock.path(root))
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert rollout_lock.read(root) is None
    assert rollout_lock.take(root, "one", "deploy", ELSEWHERE, 300).kind == "free"


def test_one_of_many_that_take_at_once_gets_it(root: str) -> None:
    took: list[str] = []

    def try_it(name: str) -> None:
        try:
            rollout_lock.take(root, name, "deploy", ELSEWHERE, 300)
        except LockError:
            return
        took.append(name)

    threads = [threading.Thread(target=try_it, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = rollout_lock.read(root)
    assert held and took == [held.rollout]


def test_look_says_what_take_would_and_writes_nothing(root: str, other: proc.Process) -> None:
    assert rollout_lock.look(root, "one", "deploy", ELSEWHERE, 300).kind == "free"
    assert not os.path.exists(root)
    rollout_lock.take(root, "one", "deploy", here(other.pid, other.start_ticks), 300)
    with pytest.raises(LockError, match="has been at work there"):
        rollout_lock.look(root, "two", "deploy", ELSEWHERE, 300)


def test_full_disk_keeps_nobody_from_going_on(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rollout_lock.take(root, "one", "deploy", ELSEWHERE, 300)

    def full(path: str, data: bytes, mode: int) -> None:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(rollout_lock, "write_atomic", full)
    assert rollout_lock.fence(root, "one").rollout == "one"
    with rollout_lock.at_work(root, "one"):
        pass
    with pytest.raises(LockError, match="No space left on device"):
        rollout_lock.take(root, "two", "deploy", ELSEWHERE, 300, ended=["one"])
    assert rollout_lock.give_back(root, "one") is True


def test_root_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("a file")
    with pytest.raises(LockError, match=r"cannot use the lock .*/r/state/rollout/lock: Not a directory"):
        rollout_lock.take(str(tmp_path / "r"), "one", "deploy", ELSEWHERE, 300)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (119.4, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h")]
)
def test_duration_is_for_people(seconds: float, text: str) -> None:
    assert rollout_lock.duration(seconds) == text


# --- several names of one root in one play


def test_names_of_one_play_share_the_lock_and_the_last_one_gives_it_back(root: str, other: proc.Process) -> None:
    play = here(other.pid, other.start_ticks)
    assert rollout_lock.take(root, "one", "deploy", play, 300, target="a").shared is None
    joined = rollout_lock.take(root, "two", "deploy", play, 300, target="b")
    assert joined.kind == "mine" and joined.shared and (joined.shared.rollout, joined.shared.targets) == ("one", ("a",))
    again = rollout_lock.take(root, "three", "deploy", play, 300, target="b").shared
    assert again and again.targets == ("a", "b")
    assert rollout_lock.give_back(root, "one", "a") is False
    held = rollout_lock.read(root)
    assert held and held.targets == ("b",) and held.rollout == "one"
    with pytest.raises(LockError):
        rollout_lock.take(root, "two", "sweep", ELSEWHERE, 300, target="c")
    assert rollout_lock.give_back(root, "one", "b") is True
    assert rollout_lock.read(root) is None


@pytest.mark.parametrize(("pid", "ticks"), [(0, 1), (1, 0)])
def test_only_the_very_process_shares_its_lock(root: str, other: proc.Process, pid: int, ticks: int) -> None:
    rollout_lock.take(root, "one", "deploy", here(other.pid, other.start_ticks), 300, target="a")
    with pytest.raises(LockError):
        rollout_lock.take(root, "two", "deploy", here(other.pid + pid, other.start_ticks + ticks), 300, target="b")


def test_controller_whose_process_nobody_knows_shares_nothing(root: str) -> None:
    unknown = Controller("here", "me")
    rollout_lock.take(root, "one", "deploy", unknown, 300, target="a")
    with pytest.raises(LockError):
        rollout_lock.take(root, "two", "deploy", unknown, 300, target="b")


def test_lock_of_before_a_boot_is_not_shared(root: str, other: proc.Process, monkeypatch: pytest.MonkeyPatch) -> None:
    play = here(other.pid, other.start_ticks)
    rollout_lock.take(root, "one", "deploy", play, 300, target="a")
    monkeypatch.setattr(proc, "boot_id", lambda: "next-boot")
    taken = rollout_lock.take(root, "two", "deploy", play, 300, target="b")
    assert (taken.kind, taken.shared) == ("stale", None)


def test_names_that_share_a_lock_work_one_after_the_other(root: str, other: proc.Process) -> None:
    play = here(other.pid, other.start_ticks)
    rollout_lock.take(root, "one", "deploy", play, 300, target="a")
    rollout_lock.take(root, "two", "deploy", play, 300, target="b")
    entered, order = threading.Event(), []

    def second() -> None:
        entered.wait(10)
        with rollout_lock.at_work(root, "one"):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with rollout_lock.at_work(root, "one"):
        assert rollout_lock.fence(root, "one").targets == ("a", "b")
        entered.set()
        time.sleep(0.3)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
