# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One play at a time below a root: who holds it, whether that play still lives, and proof that it is still ours.

A play is many processes on the target, one a task, so no process there can hold the lock. It is a file,
``state/rollout/lock``, that names the play: a token of its own, and the controller's process that runs it. Whether a
holder lives is decided in this order.

- The target was booted since: what that play had begun here has ended with the old boot.
- A long task of it (``at_work``) still runs on the target, whatever became of the play.
- Its process is gone, where that can be seen: on the controller itself, or on a target that is the controller.
  A process is a pid together with its start time, in one pid namespace of one boot (proc.py).
- Otherwise it has given no sign of life for the lease's time. Each step that changes something is one.

Several names of one inventory can mean one root: one play works on all of them, task by task, so they share its lock.
What changes something is done by one of them at a time, and the others find it done.

Taking over is safe even when the last of these is wrong: every such step asks first whether the lock is still its
play's (``fence``), so of two plays one can go on only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import json_file, proc
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole

SCHEMA_VERSION = 1
FREE, MINE, HELD, STALE = "free", "mine", "held", "stale"


class LockError(Exception):
    """The lock is another's, or cannot be taken; `facts` go beside the message."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Controller:
    """The process that runs a play. Without /proc on the controller all but `host` and `user` are empty."""

    host: str
    user: str
    boot_id: str = ""
    pid_namespace: str = ""
    pid: int = 0
    start_ticks: int = 0

    def lives(self) -> bool | None:
        """Whether it runs; None where that cannot be seen, since it is not on this machine."""
        if not self.boot_id or (self.boot_id, self.pid_namespace) != (proc.boot_id(), pid_namespace()):
            return None
        return runs(self.pid, self.start_ticks)


@dataclass(frozen=True)
class Lock:
    """The lock's file. `rollout` is the play's token, `boot_id` the target's; times are seconds since the epoch.

    `worker_pid` and `worker_start_ticks`: the task on the target that is at work now, 0 between two. `targets`: the
    inventory's names of this root in the play.
    """

    rollout: str
    what: str
    controller: Controller
    boot_id: str
    taken_at: float
    seen_at: float
    worker_pid: int = 0
    worker_start_ticks: int = 0
    targets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """Whose the lock is: FREE, MINE, HELD or STALE, and why in words.

    `shared` is the lock as it was, when this very play has it under another name of the root, or begins again.
    """

    kind: str
    why: str
    shared: Lock | None = None


def pid_namespace() -> str:
    """Names the pid namespace of this process, "" without /proc."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def controller_of(pid: int, host: str, user: str) -> Controller:
    """The controller's process with that pid, on this machine."""
    process = proc.read_process(pid)
    if process is None:
        return Controller(host, user)
    return Controller(host, user, proc.boot_id(), pid_namespace(), pid, process.start_ticks)


def runs(pid: int, start_ticks: int) -> bool:
    """Whether this very process still runs."""
    if not pid:
        return False
    process = proc.read_process(pid)
    if process is not None:
        return process.alive and process.start_ticks == start_ticks
    # /proc can be mounted so that others' processes are not shown (hidepid); a signal tells that there is one.
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def folder(root: str) -> str:
    """Where lock and journal lie. Plays come and go here; the rest of the root only changes when something is done."""
    return os.path.join(root, "state", "rollout")


def path(root: str) -> str:
    """The lock's file."""
    return os.path.join(folder(root), "lock")


def read(root: str) -> Lock | None:
    """The lock as it is, None when nobody has it. One that cannot be read names nobody, so nobody has it.

    Raises LockError for the lock of a newer collection.
    """
    data = json_file.read_object(path(root))
    try:
        version = data.pop("schema_version")
        if is_whole(version) and version > SCHEMA_VERSION:
            raise LockError(
                f"cannot read {path(root)}: it has schema {version}, this version of tokforge.sglang knows"
                f" {SCHEMA_VERSION}; use the newer version of the collection",
                locked=True,
            )
        if version != SCHEMA_VERSION:
            return None
        targets = tuple(str(name) for name in data.get("targets", ()))
        return Lock(**{**data, "controller": Controller(**data["controller"]), "targets": targets})
    except (KeyError, TypeError):
        return None


def judge(
    lock: Lock | None,
    rollout: str,
    boot_id: str,
    now: float,
    lease_s: float,
    ended: Collection[str] = (),
    worker_runs: Callable[[int, int], bool] = runs,
) -> Verdict:
    """Whose the lock is, for the play `rollout`.

    `ended`: tokens of plays that the controller has seen to be over.
    """
    if lock is None:
        return Verdict(FREE, "nobody holds it")
    if lock.rollout == rollout:
        return Verdict(MINE, "this play holds it")
    if lock.boot_id != boot_id:
        return Verdict(STALE, "the host was booted since")
    if lock.worker_pid and worker_runs(lock.worker_pid, lock.worker_start_ticks):
        return Verdict(HELD, f"its task is at work as process {lock.worker_pid} of the host")
    process = f"its play, process {lock.controller.pid} of {lock.controller.host},"
    if lock.rollout in ended:
        return Verdict(STALE, f"{process} has ended")
    lives = lock.controller.lives()
    if lives is not None:
        return Verdict(HELD, f"{process} runs") if lives else Verdict(STALE, f"{process} has ended")
    # A clock that was set back makes nobody dead.
    silent_s = max(0.0, now - lock.seen_at)
    if silent_s > lease_s:
        return Verdict(STALE, f"it gave no sign of life for {duration(silent_s)}")
    return Verdict(HELD, f"it gave a sign of life {duration(silent_s)} ago")


def take(
    root: str,
    rollout: str,
    what: str,
    controller: Controller,
    lease_s: float,
    ended: Collection[str] = (),
    broken: bool = False,
    target: str = "",
) -> Verdict:
    """Take the lock, also from a play that is over. Returns whose it was until now.

    `target` is the inventory's name of the root; the play that has it under another name shares the lock.

    `broken`: take it although its holder may live; only a task that is at work stays in the way. Raises LockError when
    another holds it.
    """
    with _guarded(root):
        now, lock = time.time(), read(root)
        if lock and target and _is_of(lock, controller):
            others = tuple(name for name in lock.targets if name != target)
            _write(root, replace(_seen(lock), targets=(*others, target)))
            return Verdict(MINE, "this play has it already", lock)
        verdict = look(root, rollout, what, controller, lease_s, ended, broken)
        if lock and verdict.kind == MINE:
            _write(root, _seen(lock))
        else:
            targets = (target,) if target else ()
            _write(root, Lock(rollout, what, controller, proc.boot_id(), now, now, targets=targets))
    return verdict


def look(
    root: str,
    rollout: str,
    what: str,
    controller: Controller,
    lease_s: float,
    ended: Collection[str] = (),
    broken: bool = False,
) -> Verdict:
    """What `take` with the same arguments would return or raise. Changes nothing."""
    now, lock = time.time(), read(root)
    verdict = judge(lock, rollout, proc.boot_id(), now, lease_s, ended)
    if lock is None or verdict.kind != HELD:
        return verdict
    if broken and not runs(lock.worker_pid, lock.worker_start_ticks):
        return Verdict(STALE, f"it was taken away on request, though {verdict.why}")
    raise LockError(
        held_message(root, lock, verdict.why, now), locked=True, holder=describe(lock, now), why=verdict.why
    )


def fence(root: str, rollout: str) -> Lock:
    """A sign of life of the play `rollout`. Raises LockError when the lock is not its any more."""
    with _guarded(root):
        lock = _seen(_mine(root, rollout))
        _renew(root, lock)
    return lock


@contextlib.contextmanager
def at_work(root: str, rollout: str | None) -> Iterator[None]:
    """`fence`, and while the block runs this process keeps the lock from being taken, also when its play dies."""
    if rollout is None:
        yield
        return
    me = proc.read_process(os.getpid())
    with _one_target_at_a_time(root):
        with _guarded(root):
            lock = _seen(_mine(root, rollout))
            pid, ticks = (me.pid, me.start_ticks) if me else (0, 0)
            _renew(root, replace(lock, worker_pid=pid, worker_start_ticks=ticks))
        try:
            yield
        finally:
            # What went wrong in the block is what counts, also when the root is gone by now.
            with contextlib.suppress(LockError), _guarded(root):
                _renew(root, replace(_seen(_mine(root, rollout)), worker_pid=0, worker_start_ticks=0))


def give_back(root: str, rollout: str, target: str = "") -> bool:
    """Give the lock back. False when it was not this play's, or other names of the root need it still."""
    if read(root) is None:
        return False
    with _guarded(root):
        lock = read(root)
        if lock is None or lock.rollout != rollout:
            return False
        others = tuple(name for name in lock.targets if name != target)
        if target and others:
            _write(root, replace(_seen(lock), targets=others))
            return False
        os.unlink(path(root))
    return True


def describe(lock: Lock, now: float) -> dict[str, Any]:
    """The holder as plain data, with `age_s` and `silent_s`."""
    ages = {"age_s": round(now - lock.taken_at, 1), "silent_s": round(max(0.0, now - lock.seen_at), 1)}
    return {**asdict(lock), **ages}


def held_message(root: str, lock: Lock, why: str, now: float) -> str:
    """What a person is told whose play has to wait."""
    who = lock.controller
    return (
        f"cannot begin below {root}: {lock.what} of {who.user}@{who.host} has been at work there for"
        f" {duration(max(0.0, now - lock.taken_at))}, and {why}; wait until it has ended (sglang_lock_wait_s waits so"
        " many seconds), or, when you know that it has, take its place with -e sglang_lock_break=true. Nothing was"
        " changed"
    )


def duration(seconds: float) -> str:
    """For a person: 40 s, 12 min, 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _seen(lock: Lock) -> Lock:
    """The lock of a play that shows that it lives: also after a boot that it lived through."""
    boot_id = proc.boot_id()
    if lock.boot_id != boot_id:
        lock = replace(lock, boot_id=boot_id, worker_pid=0, worker_start_ticks=0)
    return replace(lock, seen_at=time.time())


def _is_of(lock: Lock, controller: Controller) -> bool:
    """Whether the lock is of this very process of a controller. One that nobody knows is not told from others."""
    return bool(controller.pid) and lock.controller == controller and lock.boot_id == proc.boot_id()


def _mine(root: str, rollout: str) -> Lock:
    lock = read(root)
    if lock is not None and lock.rollout == rollout:
        return lock
    if lock is None:
        now = "nobody has it now"
    else:
        now = f"{lock.what} of {lock.controller.user}@{lock.controller.host} has it now"
    raise LockError(
        f"cannot go on below {root}: this play's lock was taken away, and {now}; run again when that has ended. Nothing"
        " was changed by this step",
        locked=True,
    )


@contextlib.contextmanager
def _one_target_at_a_time(root: str) -> Iterator[None]:
    """Of the names that share the lock one works at a time. The root itself is what is locked, if it can be."""
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _guarded(root: str) -> Iterator[None]:
    """Between reading and writing the lock nobody else does. The directory itself is what is locked."""
    try:
        os.makedirs(folder(root), mode=0o755, exist_ok=True)
        descriptor = os.open(folder(root), os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
    except OSError as error:
        raise LockError(
            f"cannot use the lock {path(root)}: {error.strerror} ({error.filename}); make {root} writable and give it"
            " room"
        ) from error


def _renew(root: str, lock: Lock) -> None:
    """A disk that is full keeps nobody from going back: the lock that is there still names its play."""
    with contextlib.suppress(OSError):
        _write(root, lock)


def _write(root: str, lock: Lock) -> None:
    write_atomic(path(root), (json.dumps({"schema_version": SCHEMA_VERSION, **asdict(lock)}) + "\n").encode(), 0o644)
