# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds a lock, and who waits for it."""

from __future__ import annotations

from pathlib import Path

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
