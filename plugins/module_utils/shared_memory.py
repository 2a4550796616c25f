# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The size of the shared memory file system: in fstab, where systemd finds it at each start, and at once.

systemd mounts /dev/shm itself and then mounts it again with the options that fstab has for it
(systemd-remount-fs.service(8)). The option is `size` of tmpfs(5). Of the file's lines only that option is ours; a line
that was not there at all is ours as a whole, and so is a file. It is mounted first, since what the kernel refuses is
not to be tried at each start.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

FSTAB = "/etc/fstab"
MOUNT_POINT = "/dev/shm"  # noqa: S108 (the mount point, not a file in it)
#: Notes are `shared_memory/<mount point>`: line (whether there was one), size (its option or null), bytes (mounted),
#: file (whether there was a table), newline (whether its last line had an end).
KEY = "shared_memory/"

#: The kernel counts bytes of a file system in a signed number of 64 bits.
_MOST_BYTES = (1 << 63) - 1
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SIZE = re.compile(r"([1-9][0-9]*)([KMGT]?)", re.IGNORECASE)
#: What systemd mounts it with (systemd's src/shared/mount-setup.c), besides the mode, which is tmpfs's default.
_OPTIONS = "rw,nosuid,nodev"
_FIELDS = re.compile(rb"(\s*)(\S+)(\s+)(\S+)(\s+)(\S+)(\s+)(\S+)(.*)", re.DOTALL)
_ESCAPE = re.compile(rb"\\([0-7]{3})")
_SHOWN_LINES = 5

Run = Callable[[Sequence[str]], tuple[int, str]]
#: A mount point -> bytes of its file system.
Measure = Callable[[str], int]


class SharedMemoryError(HostError):
    """The size cannot be read or set; the text says where, why and what to do."""


@dataclass(frozen=True)
class Entry:
    """The line of a mount point: its place in the lines of the file, and its options."""

    number: int
    options: tuple[str, ...]

    @property
    def size(self) -> str | None:
        """The option's value, None without one. The last one counts."""
        sizes = [option[5:] for option in self.options if option.startswith("size=")]
        return sizes[-1] if sizes else None


@dataclass(frozen=True)
class Outcome:
    """Bytes of the mounted file system and text of the table, before and after."""

    changed: bool
    bytes_before: int
    bytes_after: int
    text_before: bytes
    text_after: bytes


def bytes_of(size: str) -> int:
    """A size such as 64G in bytes. Raises SharedMemoryError."""
    match = _SIZE.fullmatch(size)
    found = int(match.group(1)) << _UNITS[match.group(2).upper()] if match and len(size) < 30 else 0
    if not 0 < found <= _MOST_BYTES:
        raise SharedMemoryError(
            f"setting the size of shared memory to {size[:40]!r}: this is no size; write a whole number with K, M, G "
            "or T, such as 64G",
            size=size,
        )
    return found


def measure(mount_point: str) -> int:
    """Bytes of a mounted file system. Raises SharedMemoryError when nothing is mounted there."""
    try:
        if not os.path.ismount(mount_point):
            raise SharedMemoryError(
                f"measuring {mount_point}: nothing is mounted there; mount a tmpfs", mount_point=mount_point
            )
        found = os.statvfs(mount_point)
    except OSError as error:
        raise SharedMemoryError(
            f"measuring {mount_point}: {error.strerror}; mount a tmpfs", mount_point=mount_point
        ) from error
    return found.f_blocks * found.f_frsize


def is_size(found: int, wanted: int) -> bool:
    """Whether a file system has a size: the kernel rounds up to whole pages, of up to 64 KiB."""
    return wanted <= found < wanted + (64 << 10)


def find(text: bytes, mount_point: str, file: str) -> Entry | None:
    """The entry of a mount point in a table, None without one. Raises SharedMemoryError for two."""
    found = []
    for number, line in enumerate(text.splitlines(keepends=True)):
        match = _FIELDS.fullmatch(line)
        if (
            match
            and not match.group(2).startswith(b"#")
            and _unescaped(match.group(4)).rstrip(b"/") == mount_point.encode()
        ):
            found.append(Entry(number, tuple(match.group(8).decode("utf-8", "surrogateescape").split(","))))
    if len(found) > 1:
        raise SharedMemoryError(
            f"looking for {mount_point} in {file}: lines {found[0].number + 1} and {found[1].number + 1} are both "
            "about it; remove one",
            file=file,
        )
    return found[0] if found else None


def with_size(text: bytes, mount_point: str, size: str | None, file: str = FSTAB) -> bytes:
    """The table with the option `size` of a mount point, with None without it; all else stays byte for byte."""
    entry = find(text, mount_point, file)
    if entry is None:
        if size is None:
            return text
        end = b"" if not text or text.endswith(b"\n") else b"\n"
        return text + end + _line(mount_point, size)
    sizes = [at for at, option in enumerate(entry.options) if option.startswith("size=")]
    if size is None:
        options = [option for option in entry.options if not option.startswith("size=")] or ["defaults"]
    else:
        at = sizes[-1] if sizes else len(entry.options)
        options = [*entry.options[:at], f"size={size}", *entry.options[at + 1 :]]
    lines = text.splitlines(keepends=True)
    match = _FIELDS.fullmatch(lines[entry.number])
    if match is not None:
        parts = list(match.groups())
        parts[7] = ",".join(options).encode("utf-8", "surrogateescape")
        lines[entry.number] = b"".join(parts)
    return b"".join(lines)


def present(
    size: str,
    mount_point: str,
    fstab: str,
    record_dir: str,
    check_mode: bool,
    command: Sequence[str],
    run: Run,
    sized: Measure = measure,
) -> Outcome:
    """Have the size mounted and in the table. Raises SharedMemoryError and RecordError.

    What is refused leaves nothing behind: neither a line that would fail at each start nor a note.
    """
    wanted = bytes_of(size)
    table, found = _table(fstab), sized(mount_point)
    text = table or b""
    entry = find(text, mount_point, fstab)
    after = text if entry and entry.size == size else with_size(text, mount_point, size, fstab)
    remount = not is_size(found, wanted)
    if not check_mode and (after != text or remount):
        key = KEY + mount_point
        note = {
            "line": entry is not None,
            "size": entry.size if entry else None,
            "bytes": found,
            "file": table is not None,
            "newline": text.endswith(b"\n") or not text,
        }
        is_new = key not in previous_values.read(record_dir)
        previous_values.remember(record_dir, {key: note})
        try:
            if remount:
                _remount(mount_point, wanted, command, run, sized)
            _write(fstab, text, after)
        except SharedMemoryError:
            if sized(mount_point) != found:
                with contextlib.suppress(SharedMemoryError):
                    _remount(mount_point, found, command, run, sized)
            if is_new:
                previous_values.forget(record_dir, [key])
            raise
    return Outcome(after != text or remount, found, wanted if remount else found, text, after)


def absent(
    mount_point: str,
    fstab: str,
    record_dir: str,
    check_mode: bool,
    command: Sequence[str],
    run: Run,
    sized: Measure = measure,
) -> Outcome:
    """Put back what is noted, and forget it. Raises SharedMemoryError and RecordError."""
    key = KEY + mount_point
    notes = previous_values.read(record_dir)
    if key not in notes:
        return Outcome(False, 0, 0, b"", b"")
    there, size, wanted = _noted(key, notes[key], record_dir)
    text, found = _table(fstab) or b"", sized(mount_point)
    after = with_size(text, mount_point, size, fstab)
    entry = find(text, mount_point, fstab)
    if not there and entry is not None:
        lines = text.splitlines(keepends=True)
        # Somebody who changed the line since made it his own: only the size goes then.
        if lines[entry.number].rstrip(b"\r\n") + b"\n" == _line(mount_point, entry.size or ""):
            after = b"".join(lines[: entry.number] + lines[entry.number + 1 :])
            if entry.number == len(lines) - 1 and notes[key].get("newline") is False:
                after = after.removesuffix(b"\n")
    remount = not is_size(found, wanted)
    if not check_mode:
        _write(fstab, text, after, remove=not after and notes[key].get("file") is False)
        if remount:
            _remount(mount_point, wanted, command, run, sized)
        previous_values.forget(record_dir, [key])
    return Outcome(after != text or remount, found, wanted if remount else found, text, after)


def _line(mount_point: str, size: str) -> bytes:
    escaped = mount_point.replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")
    return f"tmpfs {escaped} tmpfs {_OPTIONS},size={size} 0 0\n".encode()


def _unescaped(field: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: bytes([int(match.group(1), 8) & 0xFF]), field)


def _table(path: str) -> bytes | None:
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SharedMemoryError(f"reading {path}: {error.strerror}; make it readable", file=path) from error


def _write(path: str, before: bytes, after: bytes, remove: bool = False) -> None:
    if before == after and not remove:
        return
    try:
        if remove:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        else:
            write_atomic(path, after)
    except OSError as error:
        raise SharedMemoryError(f"writing {path}: {error.strerror}; make it writable", file=path) from error


def _remount(mount_point: str, wanted: int, command: Sequence[str], run: Run, sized: Measure) -> None:
    asked = [*command, "-o", f"remount,size={wanted}", mount_point]
    status, output = run(asked)
    if status:
        shown = "\n".join(output.strip().splitlines()[-_SHOWN_LINES:])
        raise SharedMemoryError(
            f"setting the size of {mount_point} with {shlex.join(asked)}: it ended with {status}: {shown}; remove "
            "files from it where they are more than the new size, and give a container its size where it is started",
            command=asked,
            output=shown,
        )
    found = sized(mount_point)
    if not is_size(found, wanted):
        raise SharedMemoryError(
            f"setting the size of {mount_point} to {wanted} bytes: it has {found} afterwards; look at what else "
            "mounts it",
            wanted=wanted,
            found=found,
        )


def _noted(key: str, note: Any, record_dir: str) -> tuple[bool, str | None, int]:
    if isinstance(note, Mapping):
        there, size, number = note.get("line"), note.get("size"), note.get("bytes")
        whole = isinstance(number, int) and not isinstance(number, bool) and number >= 0
        if isinstance(there, bool) and (size is None or isinstance(size, str)) and isinstance(number, int) and whole:
            return there, size, number
    raise SharedMemoryError(
        f"reading what shared memory was, {os.path.join(record_dir, previous_values.FILE)}: {key} is not as this "
        "collection notes it; put a backup back, or remove the key and set the size by hand",
        key=key,
        found=note,
    )
