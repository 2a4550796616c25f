# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds a lock, and who waits for it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import file_lock


def test_second_one_waits_for_its_time_and_is_told(tmp_path: Path) -> None:
    path, waited = str(tmp_path / ".lock"), []
    second = file_lock.held(path, 0.02, waited.append, 0.01)
    with file_lock.held(path, 1), pytest.raises(TimeoutError, match=r"held for more than 0\.02 s"), second:
        pass
    assert set(waited) == {0.01}


def test_lock_is_free_again_after_a_block_that_failed(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    with pytest.raises(KeyError), file_lock.held(path, 1):
        raise KeyError
    with file_lock.held(path, 0):
        pass


def test_directory_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), file_lock.held(str(tmp_path / "none" / ".lock"), 0):
        pass


@pytest.fixture
def unwritable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The file `theirs` of another user: opened for reading alone. Gives the flags that files were opened with."""
    (tmp_path / "theirs").touch(0o644)
    real, asked = os.open, list[int]()

    def opened(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        asked.append(flags)
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(13, "Permission denied", path)
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(file_lock.os, "open", opened)
    return asked


def test_lock_file_of_another_user_is_locked_by_reading_it(tmp_path: Path, unwritable: list[int]) -> None:
    path = tmp_path / "theirs"
    with file_lock.held(str(path), 0), path.open("rb") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with file_lock.held(str(path), 0):
        pass
    assert not unwritable[1] & (os.O_CREAT | os.O_RDWR) and unwritable[1] & os.O_CLOEXEC


@pytest.mark.usefixtures("unwritable")
def test_lock_file_that_can_neither_be_made_nor_read_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    with pytest.raises(PermissionError) as error, file_lock.held(path, 0):
        pass
    assert error.value.filename == path
