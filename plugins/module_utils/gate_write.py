# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Putting other bytes into the file with the gate: all or nothing, one writer at a time, and no old bytecode left."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
from collections.abc import Iterator

from ansible_collections.tokforge.sglang.plugins.module_utils import gate_note, source_text
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.gate_note import Note

# What tempfile puts into the name of a temporary file, so that nobody else's file is taken for one.
_RANDOM = "[a-z0-9_]" * 8


class ChangedError(Exception):
    """Somebody else changed the file after it was read."""


def write(path: str, was: bytes, data: bytes, note: Note, version: str | None) -> None:
    """Give the file `data` in place of `was`, and keep the note beside it; an empty note is removed.

    Raises ChangedError and OSError; the file then has its old bytes.
    """
    real = os.path.realpath(path)
    with _exclusive(os.path.dirname(real)):
        _sweep(real)
        if source_text.read(real) != was:
            raise ChangedError
        # The way back is on the disk before the edit is, so a stop in between loses nothing.
        with _note_first(real, note, version):
            _clear_bytecode(path)
            write_atomic(real, data)
        # A server that starts meanwhile may have compiled the old text again.
        _clear_bytecode(path)
        if not note.edits and not os.path.isdir(gate_note.note_path(real)):
            _remove(gate_note.note_path(real))


def check(path: str) -> None:
    """Raise the OSError that `write` would end with where the directory cannot be written."""
    folder = os.path.dirname(os.path.realpath(path))
    if not os.access(folder, os.W_OK | os.X_OK):
        code = errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES
        raise OSError(code, os.strerror(code), folder)


@contextlib.contextmanager
def _exclusive(folder: str) -> Iterator[None]:
    """One writer at a time. The directory itself is locked, so no lock file is left in a package."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Some network file systems cannot lock a directory; the comparison before the rename guards there.
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _note_first(path: str, note: Note, version: str | None) -> Iterator[None]:
    """Have the note on the disk; the one from before comes back when the file could not be written."""
    beside = gate_note.note_path(path)
    before = source_text.read(beside) if os.path.isfile(beside) and not os.path.islink(beside) else None
    if note.edits:
        gate_note.write_note(path, note, version)
    try:
        yield
    except OSError:
        with contextlib.suppress(OSError):
            if before is None:
                _remove(beside)
            else:
                write_atomic(beside, before)
        raise


def tidy(path: str, data: bytes) -> None:
    """Remove what a stopped run left beside a file that stays as it is, which is `data`. Raises OSError."""
    path = os.path.realpath(path)
    folder, name = os.path.split(path)
    note = gate_note.read_note(path)
    needless = note is not None and note.original_sha256 == source_text.sha256(data)
    if not needless and not glob.glob(os.path.join(glob.escape(folder), f".*{glob.escape(name)}*.{_RANDOM}.tmp")):
        return
    with _exclusive(folder):
        _sweep(path)
        # Another run may have opened the gate meanwhile.
        if needless and source_text.read(path) == data:
            _remove(gate_note.note_path(path))


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _sweep(path: str) -> None:
    """Remove what a stopped write left beside the file."""
    folder, name = os.path.split(path)
    for stem in (name, os.path.basename(gate_note.note_path(path))):
        for left in glob.glob(os.path.join(glob.escape(folder), f".{glob.escape(stem)}.{_RANDOM}.tmp")):
            _remove(left)


def _clear_bytecode(path: str) -> None:
    stem = os.path.splitext(os.path.basename(path))[0]
    for folder in (os.path.dirname(path), os.path.dirname(os.path.realpath(path))):
        for compiled in glob.glob(os.path.join(glob.escape(folder), "__pycache__", f"{glob.escape(stem)}.*.pyc")):
            _remove(compiled)
