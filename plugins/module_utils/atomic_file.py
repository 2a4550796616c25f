# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one way this collection writes a file: all of it or nothing, also across a power cut."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Sequence

_NEW_FILE_MODE = 0o644
_LABEL = "security.selinux"
_ACCESS_LIST = "system.posix_acl_access"


def write_atomic(path: str, data: bytes, mode: int | None = None) -> None:
    """Replace the content of `path` with `data` so that a reader sees the old or the new content, never a part.

    `mode` is the permission bits to set; None keeps those of an existing file and gives a new one 0644, whatever the
    umask. Owner, group, SELinux label and user attributes of an existing file are kept where the caller may do so, its
    access list when the mode is kept too. A symbolic link is followed: the file it points to is replaced, the link
    stays.
    A hard link is broken on purpose: other names of the old file keep the old content.
    Raises OSError; the old file is then untouched and no temporary file is left.
    """
    target = os.path.realpath(path)
    directory = os.path.dirname(target)
    previous = _stat_or_none(target)
    kept = [_ACCESS_LIST] if mode is None else []
    if mode is None:
        mode = stat.S_IMODE(previous.st_mode) if previous else _NEW_FILE_MODE
    # Made 0600 by mkstemp: a secret is never readable by others, not even before the final mode is set.
    descriptor, temporary = tempfile.mkstemp(prefix="." + os.path.basename(target) + ".", suffix=".tmp", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
            if previous:
                _keep_owner(handle.fileno(), previous)
            # After the owner: a change of owner drops the set-id bits.
            os.fchmod(handle.fileno(), mode)
            if previous:
                _keep_attributes(handle.fileno(), target, kept)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_directory(directory)


def _stat_or_none(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _keep_owner(descriptor: int, previous: os.stat_result) -> None:
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) == (previous.st_uid, previous.st_gid):
        return
    # Only root may give a file away; anybody else owns what he writes, as with `mv`.
    with contextlib.suppress(PermissionError):
        os.fchown(descriptor, previous.st_uid, previous.st_gid)


def _keep_attributes(descriptor: int, path: str, more: Sequence[str]) -> None:
    """Copy extended attributes that describe the file; those that vouch for its content are not copied."""
    names: list[str] = []
    # Not every file system has them, and not everybody may set a label.
    with contextlib.suppress(OSError):
        names = os.listxattr(path)
    for name in names:
        if name == _LABEL or name.startswith("user.") or name in more:
            with contextlib.suppress(OSError):
                os.setxattr(descriptor, name, os.getxattr(path, name))


def _sync_directory(directory: str) -> None:
    # Without this the rename itself can be lost in a power cut although the data was written.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
