# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What can break under a rollout. Ansible's own process does it at the start of a task (callbacks/inject_fault.py)."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import managers, proc, rollout_lock, service

#: The variable that holds what is to happen, as JSON: `at` (a task's name), `nth` (of that name), `do`, `root`, `port`.
ORDER = "TOKFORGE_FAULT"
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Scene:
    """Whose rollout it is."""

    root: Path
    port: int

    @property
    def happened(self) -> Path:
        return self.root.parent / "happened"

    @property
    def dropped(self) -> Path:
        return self.root.parent / "dropped"

    @property
    def foreign(self) -> Path:
        return self.root.parent / "foreign.pid"

    @property
    def filler(self) -> Path:
        return self.root / "filler"

    def observed(self) -> service.Observed:
        paths = service.Paths(str(self.root))
        return service.observe(paths, managers.make_manager("supervisor", paths, "sglang"))

    def server(self) -> proc.Process:
        main = self.observed().main
        assert main is not None
        return main

    def supervisord(self) -> proc.Process | None:
        """By its pid file, where that is the one that was started for this root."""
        try:
            pid = int((self.root / "state/supervisord.pid").read_text())
        except FileNotFoundError:
            return None
        return proc.read_process(pid) if str(self.root / "state/supervisord.conf") in proc.argv(pid) else None


def happen(scene: Scene, steps: Sequence[Sequence[str]]) -> None:
    """Do all this, one after the other, and note that it was done: Ansible only warns of what a callback raises."""
    for name, *arguments in steps:
        if name == "kill_controller":
            scene.happened.touch()
        FAULTS[name](scene, *arguments)
    scene.happened.touch()


def kill(process: proc.Process) -> None:
    os.kill(process.pid, signal.SIGKILL)
    assert proc.wait_until(lambda: not proc.same(process), timeout_s=10)


def kill_controller(_scene: Scene) -> None:
    os.killpg(os.getpgrp(), signal.SIGKILL)


def kill_server(scene: Scene) -> None:
    kill(scene.server())


def kill_supervisord(scene: Scene) -> None:
    daemon = scene.supervisord()
    assert daemon is not None
    kill(daemon)


def stop_server(scene: Scene) -> None:
    os.kill(scene.server().pid, signal.SIGSTOP)


def lose_power(scene: Scene) -> None:
    """All of the host's processes are gone, and what was written down before was in another boot."""
    observed, daemon = scene.observed(), scene.supervisord()
    for process in [*([daemon] if daemon else []), *observed.own]:
        kill(process)
    for path in (scene.root / "state/rollout/lock", scene.root / "state/server.json"):
        if path.exists():
            path.write_text(json.dumps({**json.loads(path.read_text()), "boot_id": "the boot before"}))


def fill_disk(scene: Scene) -> None:
    """All of it: only root could still use what a file system keeps back, and a tmpfs keeps nothing back."""
    with open(scene.filler, "wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC


def garble(scene: Scene, path: str) -> None:
    (scene.root / path).parent.mkdir(exist_ok=True)
    (scene.root / path).write_bytes(b"\x00\xff{not at all]\n")


def empty(scene: Scene, path: str) -> None:
    (scene.root / path).write_bytes(b"")


def halve(scene: Scene, path: str) -> None:
    whole = (scene.root / path).read_bytes()
    (scene.root / path).write_bytes(whole[: len(whole) // 2])


def age(scene: Scene, path: str) -> None:
    """As a newer collection would have written it."""
    (scene.root / path).write_text(json.dumps({**json.loads((scene.root / path).read_text()), "schema_version": 99}))


def remove(scene: Scene, path: str) -> None:
    there = scene.root / path
    if there.is_dir() and not there.is_symlink():
        shutil.rmtree(there)
    else:
        there.unlink()


def make_directory(scene: Scene, path: str) -> None:
    (scene.root / path).unlink()
    (scene.root / path).mkdir()


def dangle(scene: Scene, path: str) -> None:
    (scene.root / path).unlink()
    (scene.root / path).symlink_to("releases/77")


def take_port(scene: Scene) -> None:
    """By a process that has nothing to do with the root."""
    taker = subprocess.Popen(
        [sys.executable, str(HERE / "fake_server.py"), "--port", str(scene.port), "--name", "foreign"],
        env={},  # ours names the root
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    scene.foreign.write_text(str(taker.pid))
    assert proc.wait_until(lambda: listens(scene.port), timeout_s=60)


def drop(scene: Scene) -> None:
    """The connection: no command reaches the host any more."""
    scene.dropped.touch()


def at_work(scene: Scene, what: str) -> None:
    """Drop the connection or kill the task when the next long one is in the middle of its work on the host.

    "kill between": when it has stopped one server and not yet started the other.
    """
    subprocess.Popen(
        [sys.executable, __file__, str(scene.root), str(scene.port), what],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


FAULTS: dict[str, Callable[..., None]] = {
    done.__name__: done
    for done in (
        kill_controller,
        kill_server,
        kill_supervisord,
        stop_server,
        lose_power,
        fill_disk,
        garble,
        empty,
        halve,
        age,
        remove,
        make_directory,
        dangle,
        take_port,
        drop,
        at_work,
    )
}


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_and_do(scene: Scene, what: str) -> None:
    """In a process of its own: the play's is busy with the task."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lock = rollout_lock.read(str(scene.root))
        if lock and lock.worker_pid and not (what == "kill between" and listens(scene.port)):
            if what.startswith("kill"):
                os.kill(lock.worker_pid, signal.SIGKILL)
            else:
                drop(scene)
            return
        time.sleep(0.002)


def belonging(root: Path) -> list[tuple[int, str]]:
    """Every living process that has to do with a root: by its arguments, its environment or where it works."""
    found: list[tuple[int, str]] = []
    for process in proc.processes():
        if process.pid == os.getpid() or not process.alive:
            continue
        words, environment = proc.argv(process.pid), proc.environ(process.pid)
        try:
            works_in = os.readlink(f"/proc/{process.pid}/cwd")
        except OSError:
            works_in = ""
        told: list[Any] = [*words, *environment.values(), works_in]
        if any(str(root) in str(text) for text in told):
            found.append((process.pid, " ".join(words)))
    return found


if __name__ == "__main__":
    wait_and_do(Scene(Path(sys.argv[1]), int(sys.argv[2])), sys.argv[3])
