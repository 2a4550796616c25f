# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A rollout dies before each change it makes to the disk, as by SIGKILL, and the play after it sets things right.

The plays are what deploy.yml and go_back.yml ask of the modules, in a process of their own that ends itself.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import release_store, rollout_journal, rollout_lock
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic

ENVIRONMENT = "0123456789ab"
CHANGING = ("replace", "rename", "unlink", "mkdir", "symlink", "rmdir", "chmod", "chown", "fsync", "link")
BEFORE, AFTER = (1, "old unit", "KEY=old", 0o600, False), (2, "new unit", "KEY=new", 0o600, True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Release 1 serves; release 2 is written; a unit and a secret belong to release 1."""
    made = tmp_path / "r"
    (made / "venvs" / ENVIRONMENT).mkdir(parents=True)
    (made / "venvs" / ENVIRONMENT / "environment.json").write_text("{}")
    for port in (1, 2):
        argv = ["-m", "x", "--port", str(port)]
        content = release_store.Content(ENVIRONMENT, "0.5.23", "auto", argv, {}, str(made), {"path": "/m"})
        release_store.stage(str(made), content, "now")
    release_store.switch(str(made), 1)
    release_store.prove(str(made), 1)
    (made / "unit").write_text("old unit")
    (made / "secrets").write_text("KEY=old")
    (made / "secrets").chmod(0o600)
    return made


def files(root: Path) -> list[str]:
    return [str(root / "unit"), str(root / "secrets"), str(root / "logrotate")]


def begin(root: str, token: str) -> rollout_journal.Journal:
    """What module rollout does at first."""
    me = rollout_lock.controller_of(os.getpid(), "here", "me")
    rollout_lock.take(root, token, "deploy", me, 7200)
    return rollout_journal.settle(root, time.time())


def deploy(root: str) -> None:
    token = f"deploy-{os.getpid()}"
    begin(root, token)
    entry = rollout_journal.Entry(token, "deploy", "me@here", time.time(), 2, release_store.last_proven(root))
    rollout_lock.fence(root, token)
    rollout_journal.begin(root, entry, files(Path(root)))
    release_store.switch(root, 2)
    write_atomic(os.path.join(root, "unit"), b"new unit")
    write_atomic(os.path.join(root, "secrets"), b"KEY=new", mode=0o600)
    write_atomic(os.path.join(root, "logrotate"), b"new")
    release_store.prove(root, 2)
    rollout_lock.fence(root, token)
    rollout_journal.end(root, rollout_journal.DONE, "", time.time())
    rollout_lock.give_back(root, token)


def fail(root: str) -> None:
    """A play that fails before it switches: it undoes what was cut off, and nothing else."""
    token = f"fail-{os.getpid()}"
    if begin(root, token).open:
        release_store.restore(root)
        rollout_lock.fence(root, token)
        rollout_journal.undo(root)
        rollout_journal.end(root, rollout_journal.ROLLED_BACK, "it failed", time.time())
    rollout_lock.give_back(root, token)


def in_a_process(play: Callable[[str], None], root: Path, dies_at: int) -> bool:
    """Play it in a process that kills itself before its change number `dies_at`. Whether it came to its end."""
    child = os.fork()
    if child == 0:  # pragma: no cover - the process ends without telling
        done = 0

        def watched(change: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal done
                done += 1
                if done == dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return change(*arguments, **options)

            return call

        for name in CHANGING:
            setattr(os, name, watched(getattr(os, name)))
        try:
            play(str(root))
        except BaseException as error:
            os.write(2, f"{play.__name__}: {error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    _pid, status = os.waitpid(child, 0)
    assert not os.WIFEXITED(status) or os.WEXITSTATUS(status) == 0, "the play failed"
    return os.WIFEXITED(status)


def state(root: Path) -> tuple[int | None, str, str, int, bool]:
    mode = (root / "secrets").stat().st_mode & 0o777
    current = release_store.read_current(str(root))
    return current, (root / "unit").read_text(), (root / "secrets").read_text(), mode, (root / "logrotate").exists()


def check_at_rest(root: Path) -> None:
    """Nobody is at work, nothing is open, no copies and no half files are left, and both releases are whole."""
    assert rollout_lock.read(str(root)) is None
    journal = rollout_journal.read(str(root))
    assert (journal.open, journal.warnings) == (None, [])
    assert not os.path.exists(rollout_journal.copies(str(root)))
    assert [(one.number, one.broken) for one in release_store.list_releases(str(root))] == [(1, None), (2, None)]
    assert release_store.last_proven(str(root)) == release_store.read_current(str(root))


def copies_of(root: Path, tmp_path: Path) -> Callable[[], Path]:
    """Makes the same root again and again, in the same place: the releases have absolute paths in them."""
    kept = tmp_path / "kept"
    shutil.copytree(root, kept, symlinks=True)

    def again() -> Path:
        shutil.rmtree(root)
        shutil.copytree(kept, root, symlinks=True)
        return root

    return again


def deaths(play: Callable[[str], None], again: Callable[[], Path]) -> int:
    """How many changes a play makes when nothing ends it."""
    number = 1
    while not in_a_process(play, again(), number):
        number += 1
    return number - 1


def test_next_play_undoes_or_finds_done_what_was_cut_off_anywhere(root: Path, tmp_path: Path) -> None:
    again = copies_of(root, tmp_path)
    ends = []
    for number in range(1, deaths(deploy, again) + 1):
        in_a_process(deploy, again(), number)
        assert in_a_process(fail, root, 0)
        check_at_rest(root)
        ends.append(state(root))
    assert ends[0] == BEFORE and ends[-1] == AFTER
    # Nothing in between, and no way back from done to undone.
    assert ends == sorted(ends) and set(ends) == {BEFORE, AFTER}
    assert len(ends) > 30


def test_next_deploy_finishes_what_was_cut_off_anywhere(root: Path, tmp_path: Path) -> None:
    again = copies_of(root, tmp_path)
    for number in range(1, deaths(deploy, again) + 1):
        in_a_process(deploy, again(), number)
        assert in_a_process(deploy, root, 0)
        check_at_rest(root)
        assert state(root) == AFTER


def test_plays_that_die_one_after_the_other_lose_no_way_back(root: Path, tmp_path: Path) -> None:
    """A deploy dies, the play that undoes it dies too, or another deploy does; the third one sets it right."""
    again = copies_of(root, tmp_path)
    # Cut off when all files were written and the release is not proven: the most there is to undo.
    deep = deaths(deploy, again)
    while in_a_process(deploy, again(), deep) or release_store.last_proven(str(root)) == 2:
        deep -= 1
    assert rollout_journal.read(str(root)).open and state(root) == AFTER
    for second in (fail, deploy):
        number = 1
        while True:
            in_a_process(deploy, again(), deep)
            if in_a_process(second, root, number):
                break
            assert in_a_process(fail, root, 0)
            check_at_rest(root)
            assert state(root) in (BEFORE, AFTER)
            assert second is deploy or state(root) == BEFORE
            number += 1
        assert number > 8
