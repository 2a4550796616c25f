# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was appended to a log since a position, across rotation, for a reader that looks again and again.

A look reads what the log has at its beginning, never more, waits for nothing and keeps one chunk in memory. What can
have happened between two looks, and what is done about it:

- The log did not exist: everything in it, and in what was rotated away meanwhile, is new.
- Renamed, once or several times: the old file is found by its inode, the ones after it are read in their order.
- Copied and truncated: the copy is the newest rotated file that holds what was before the position; reading goes on
  there.
- Truncated or replaced without a copy, or its rest is only there compressed: what is left is read, and `gap` says that
  something may be missing.

A writer can go on with the renamed file. So the next file counts only once there is something in it.

These losses leave no trace: lines written between the copy and the truncation of one rotation; a file that was
truncated or removed before any look had read from it; a log that was truncated and then got the same bytes again.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

# How much before the position must be as it was, and how many hex digits tell it.
FINGERPRINT_BYTES = 256
_DIGEST_DIGITS = 16
# How often a look begins anew because files were renamed meanwhile.
_ATTEMPTS = 5

# What logrotate (also with dateext) and supervisord put behind the name: .1, -20261130, .2026-11-30, -20261130-1796000.
_ROTATED = re.compile(r"[.-]\d[\d.:T_-]*")
_COMPRESSED = re.compile(r"\.(?:gz|bz2|xz|zst|lz4|lzma|Z|zip)$")
_NUMBER = re.compile(r"\.(\d{1,9})$")

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO (named pipe)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


#: A position as the suboptions of a module.
OPTIONS: dict[str, dict[str, Any]] = {
    "path": {"type": "path", "required": True},
    "inode": {"type": "int", "default": 0},
    "offset": {"type": "int", "default": 0},
    "fingerprint": {"type": "str", "default": ""},
}


class LogError(Exception):
    """The log cannot be read, and looking again will not help."""


@dataclass(frozen=True)
class LogPosition:
    """A point in a log that survives rotation: `inode` names the file that had `path` then, `offset` counts its bytes.

    inode 0: the file did not exist, everything in it is new.
    `fingerprint` tells whether the file is still the same one: hex digits, first of the bytes before `offset`, then
    the time of the newest rotated file. Empty: not known, nothing is checked.
    """

    path: str
    inode: int = 0
    offset: int = 0
    fingerprint: str = ""


class Chunk(NamedTuple):
    """A piece of what was appended, and the position after it.

    `gap`: something may be missing before it. When nothing follows what is missing, `data` is empty.
    """

    data: bytes
    position: LogPosition
    gap: bool


@dataclass(frozen=True)
class _File:
    """A file as a look found it. `rotated`: its name is one that a rotation gives."""

    path: str
    device: int
    inode: int
    size: int
    mtime_ns: int
    rotated: bool = False
    compressed: bool = False

    @property
    def identity(self) -> tuple[str, int, int]:
        return self.path, self.device, self.inode

    @property
    def age(self) -> tuple[int, int, str]:
        """Sorts from the oldest to the newest: by time, and in the same instant the higher number is the older."""
        number = _NUMBER.search(_COMPRESSED.sub("", self.path))
        return self.mtime_ns, -int(number.group(1)) if number else 0, self.path

    @property
    def microseconds(self) -> int:
        return self.mtime_ns // 1000  # a compressing tool keeps no nanoseconds


@dataclass(frozen=True)
class _Part:
    """What is to be read of one file: from `start` to its end. `gap` as in Chunk."""

    file: _File
    start: int
    gap: bool = False


@dataclass(frozen=True)
class _Plan:
    """The parts from the oldest to the newest. `gap`: something may be missing behind the last one."""

    parts: tuple[_Part, ...]
    gap: bool = False


@dataclass(frozen=True)
class _Open:
    """A part that can be read: renaming its file changes nothing any more. `before`: the bytes before `start`."""

    descriptor: int
    file: _File
    start: int
    end: int
    before: bytes
    gap: bool


def position_now(path: str) -> LogPosition:
    """The end of the log now.

    Raises LogError when there is something else than a file. A log that only others may read has a position without
    a fingerprint.
    """
    current, siblings = _scan(path)
    if current is None:
        return _beginning(path, None, siblings)
    try:
        descriptor = _open_file(current)
    except OSError:
        return LogPosition(path, current.inode, current.size)
    try:
        size = os.fstat(descriptor).st_size
        return _position(path, current, size, _bytes_before(descriptor, size), siblings)
    finally:
        os.close(descriptor)


def read_new(position: LogPosition, chunk_bytes: int = 1 << 20, limit_bytes: int | None = None) -> Iterator[Chunk]:
    """What was appended since `position`, in order, in chunks of at most `chunk_bytes`, at most `limit_bytes` in all.

    Going on from the position of the last chunk gives each byte once. Nothing is yielded when nothing is new: the
    position then stays as it is. Raises LogError when the log cannot be read.
    """
    with _Look(position) as look:
        gap = False
        left = limit_bytes
        for part in look.parts:
            gap = gap or part.gap
            at, before = part.start, part.before
            while at < part.end:
                wanted = min(chunk_bytes, part.end - at) if left is None else min(chunk_bytes, part.end - at, left)
                if wanted <= 0:
                    return
                data = os.pread(part.descriptor, wanted, at)
                if not data:  # truncated a moment ago, which the next look will see
                    break
                at += len(data)
                left = None if left is None else left - len(data)
                before = (before + data)[-FINGERPRINT_BYTES:]
                yield Chunk(data, _position(position.path, part.file, at, before, look.siblings), gap)
                gap = False
        if gap or look.gap:
            yield Chunk(b"", _beginning(position.path, look.current, look.siblings), True)


def newest_bytes(position: LogPosition, limit_bytes: int) -> tuple[bytes, bool]:
    """The last bytes of what was appended since `position`, and whether that is all of it. Raises LogError."""
    pieces: list[bytes] = []
    left = limit_bytes
    with _Look(position) as look:
        for part in reversed(look.parts):
            begin = max(part.start, part.end - left)
            pieces.append(_read(part.descriptor, begin, part.end - begin))
            left -= len(pieces[-1])
            if begin > part.start:
                return b"".join(reversed(pieces)), False
    return b"".join(reversed(pieces)), True


class _Look:
    """Opens what is new and closes it again. Begins anew when a rotation came in between."""

    def __init__(self, position: LogPosition) -> None:
        self.position = position
        self.parts: list[_Open] = []
        self.gap = False
        self.current: _File | None = None
        self.siblings: list[_File] = []

    def __enter__(self) -> _Look:
        try:
            for attempt in range(_ATTEMPTS):
                self.current, self.siblings = _scan(self.position.path)
                plan = _plan(self.position, self.current, self.siblings)
                complete = self._open(plan)
                if complete and _unchanged(self.position.path, self.current, self.siblings):
                    break
                if attempt < _ATTEMPTS - 1:
                    self.close()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        for part in self.parts:
            os.close(part.descriptor)
        self.parts = []

    def _open(self, plan: _Plan) -> bool:
        complete, gap = True, False
        for part in plan.parts:
            gap = gap or part.gap
            try:
                descriptor = _open_file(part.file)
            except OSError as error:
                if part.file is self.current and not isinstance(error, FileNotFoundError):
                    raise _unreadable(part.file.path, error) from error
                complete, gap = False, True
                continue
            end = os.fstat(descriptor).st_size
            self.parts.append(_Open(descriptor, part.file, part.start, end, _bytes_before(descriptor, part.start), gap))
            gap = False
        self.gap = gap or plan.gap
        return complete


# --- deciding --------------------------------------------------------------------------------------------------------


def _plan(position: LogPosition, current: _File | None, siblings: list[_File]) -> _Plan:
    """What is new, given what there is. `siblings` are sorted from the oldest to the newest."""
    last = [] if current is None else [current]
    holder = None
    if position.inode and (position.offset or not position.fingerprint):
        holder = _holder(position, [*siblings, *last])
    if holder is not None:
        if holder is current:
            return _Plan((_Part(holder, position.offset),))
        later = [file for file in siblings if file.rotated and file.age > holder.age and file is not holder]
        return _after(_Part(holder, position.offset), [*later, *last])
    since = _since(position)
    if since is None:
        return _after(None, last, gap=position.inode != 0)
    later = [file for file in siblings if file.microseconds > since and (file.rotated or file.inode == position.inode)]
    gap = position.offset > 0
    if later and since and later[0].inode != position.inode:
        # The rotated file that was the newest one is gone, so those after it may be gone as well.
        gap = gap or all(file.microseconds > since for file in siblings if file.rotated)
    return _after(None, [*later, *last], gap)


def _after(first: _Part | None, files: list[_File], gap: bool = False) -> _Plan:
    """All of `files` after the first part; those that are compressed make a gap."""
    parts = [] if first is None else [first]
    for file in files:
        if file.compressed:
            gap = True
        else:
            parts.append(_Part(file, 0, gap))
            gap = False
    return _Plan(tuple(parts), gap)


def _holder(position: LogPosition, files: list[_File]) -> _File | None:
    """The file that has what was before the position: the same one, or else its newest copy."""
    plain = [file for file in reversed(files) if not file.compressed and file.size >= position.offset]
    for file in plain:
        if file.inode == position.inode and _has(file, position):
            return file
    since = _since(position)
    if since is None or not position.offset:
        return None
    # An older file can begin with the same lines.
    for file in plain:
        if file.rotated and file.microseconds > since and _has(file, position):
            return file
    return None


def _has(file: _File, position: LogPosition) -> bool:
    """Whether the bytes before the position are those of this file. True when they are not known."""
    if not position.fingerprint:
        return True
    try:
        descriptor = _open_file(file)
    except OSError:
        return False
    try:
        before = _bytes_before(descriptor, position.offset)
    finally:
        os.close(descriptor)
    return position.fingerprint[:_DIGEST_DIGITS] == _digest(before)


# --- positions -------------------------------------------------------------------------------------------------------


def _position(path: str, file: _File, offset: int, before: bytes, siblings: list[_File]) -> LogPosition:
    newest = max((one.microseconds for one in siblings if one.rotated), default=0)
    return LogPosition(path, file.inode, offset, f"{_digest(before)}{newest:x}")


def _beginning(path: str, current: _File | None, siblings: list[_File]) -> LogPosition:
    """Before the first byte of the log, which need not exist; nothing that was rotated until now is new."""
    return _position(path, current or _File(path, 0, 0, 0, 0), 0, b"", siblings)


def _digest(before: bytes) -> str:
    return hashlib.sha256(before).hexdigest()[:_DIGEST_DIGITS]


def _since(position: LogPosition) -> int | None:
    """Time of the newest rotated file at the position, in microseconds; 0 when there was none, None when not known."""
    try:
        return int(position.fingerprint[_DIGEST_DIGITS:], 16)
    except ValueError:
        return None


# --- files -----------------------------------------------------------------------------------------------------------


def _scan(path: str) -> tuple[_File | None, list[_File]]:
    """The log, None when there is none, and the files beside it whose names begin with its name, oldest first.

    Through a symbolic link it is both names that count: a rotation renames the one or the other.
    """
    current = _current(path)
    found: dict[tuple[int, int], _File] = {}
    for base in dict.fromkeys((path, os.path.realpath(path))):
        directory, name = os.path.split(base)
        try:
            entries = os.listdir(directory or os.curdir)
        except OSError:  # rotation cannot be seen, the log may well be read
            continue
        for entry in entries:
            if not entry.startswith((f"{name}.", f"{name}-")):
                continue
            sibling = os.path.join(directory, entry)
            try:
                status = os.stat(sibling)
            except OSError:
                continue
            key = status.st_dev, status.st_ino
            if not stat.S_ISREG(status.st_mode) or (current and key == (current.device, current.inode)):
                continue
            plain = _COMPRESSED.sub("", entry)
            rotated = _ROTATED.fullmatch(plain[len(name) :]) is not None
            found[key] = _File(sibling, *key, status.st_size, status.st_mtime_ns, rotated, plain != entry)
    return current, sorted(found.values(), key=lambda file: file.age)


def _current(path: str) -> _File | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    # Looked at before it is opened: opening a device or a FIFO can already change something.
    _check_kind(path, status.st_mode)
    return _File(path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _check_kind(path: str, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    kind = next((name for test, name in _KINDS if test(mode)), "something else")
    raise LogError(f"cannot read the log {path}: it is {kind} and not a file; let the server write into a regular file")


def _unreadable(path: str, error: OSError) -> LogError:
    todo = "run as the server's user or root" if isinstance(error, PermissionError) else "look at the path"
    return LogError(f"cannot read the log {path}: {error.strerror or error}; {todo}")


def _unchanged(path: str, current: _File | None, siblings: list[_File]) -> bool:
    now, beside = _scan(path)
    before = [file.identity for file in (current, *siblings) if file]
    return sorted(before) == sorted(file.identity for file in (now, *beside) if file)


def _open_file(file: _File) -> int:
    """A descriptor of exactly this file. Raises OSError, FileNotFoundError also when its name is another file's now."""
    descriptor = os.open(file.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and (status.st_dev, status.st_ino) == (file.device, file.inode):
        return descriptor
    os.close(descriptor)
    raise FileNotFoundError(f"{file.path} is another file now")


def _bytes_before(descriptor: int, offset: int) -> bytes:
    begin = max(0, offset - FINGERPRINT_BYTES)
    return _read(descriptor, begin, offset - begin)


def _read(descriptor: int, begin: int, count: int) -> bytes:
    """These bytes, fewer only at the end of the file."""
    pieces: list[bytes] = []
    while count > 0:
        data = os.pread(descriptor, count, begin)
        if not data:
            break
        pieces.append(data)
        begin, count = begin + len(data), count - len(data)
    return b"".join(pieces)
