# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waiting for a lock that another play holds, for a limited time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def held(
    path: str, timeout_s: float, sleep: Callable[[float], None] = time.sleep, poll_s: float = 0.05
) -> Iterator[None]:
    """Hold the lock on a file, which is made when it is not there, until the block ends.

    It must be a file of its own: a lock on a file that is replaced guards nothing. Raises TimeoutError when another
    holds it for longer than `timeout_s`, another OSError, with the file's name, when it cannot be opened.
    """
    descriptor = _opened(path)
    try:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"{path} is held for more than {timeout_s:g} s") from None
                sleep(poll_s)
        yield
    finally:
        # Closing releases the lock.
        os.close(descriptor)


def _opened(path: str) -> int:
    """A descriptor of the lock file, which is made when it is not there.

    In a directory that all users share, the file of another one can only be read. flock(2) takes a lock on that as
    well, but for network file systems, which say so when the lock is taken.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:
        try:
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            # What is in the way is why it cannot be made or written.
            pass
        raise
