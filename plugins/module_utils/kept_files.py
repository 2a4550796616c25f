# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies of files as they are before a rollout changes them, and the way back to just that.

The copies lie in a directory that only its owner can enter: some of them hold secrets.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic

FILE, LINK, ABSENT = "file", "link", "absent"
#: A unit, a launcher, a file of secrets: no such file is larger.
LARGEST = 16 << 20


@dataclass(frozen=True)
class Kept:
    """What was at a path: a FILE (its copy is `copy`, by name), a LINK (to `target`), or nothing (ABSENT)."""

    path: str
    kind: str
    sha256: str = ""
    mode: int = 0
    uid: int = 0
    gid: int = 0
    copy: str = ""
    target: str = ""


def keep(paths: Sequence[str], folder: str) -> list[Kept]:
    """Copy what is at these paths into `folder`, which is made anew. Raises OSError, also for what is no file."""
    forget(folder)
    os.mkdir(folder, 0o700)
    return [_keep(path, folder, str(index)) for index, path in enumerate(paths)]


def forget(folder: str) -> None:
    """Remove the copies. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def changed(kept: Sequence[Kept]) -> list[str]:
    """Those of the paths at which something else is now than was kept. Raises OSError."""
    return [one.path for one in kept if _look(one.path, "")[0] != _without_copy(one)]


def restore(kept: Sequence[Kept], folder: str, check_mode: bool = False) -> list[str]:
    """Put back what was kept, where something else is now, and return those paths. Raises OSError.

    ValueError says that a copy is gone or not what was kept; what was put back before stays so.
    """
    paths = changed(kept)
    if not check_mode:
        for one in kept:
            if one.path in paths:
                _restore(one, folder)
    return paths


def _look(path: str, copy: str) -> tuple[Kept, bytes]:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return Kept(path, ABSENT), b""
    if stat.S_ISLNK(found.st_mode):
        return Kept(path, LINK, target=os.readlink(path)), b""
    if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
        raise OSError(0, f"not a file of at most {LARGEST >> 20} MiB", path)
    with open(path, "rb") as stream:
        data = stream.read()
    digest = hashlib.sha256(data).hexdigest()
    return Kept(path, FILE, digest, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, copy), data


def _without_copy(one: Kept) -> Kept:
    return Kept(one.path, one.kind, one.sha256, one.mode, one.uid, one.gid, "", one.target)


def _keep(path: str, folder: str, name: str) -> Kept:
    kept, data = _look(path, name)
    if kept.kind == FILE:
        write_atomic(os.path.join(folder, name), data, mode=0o600)
    return kept


def _restore(one: Kept, folder: str) -> None:
    if one.kind == FILE:
        try:
            with open(os.path.join(folder, one.copy), "rb") as stream:
                data = stream.read()
        except FileNotFoundError:
            raise ValueError(f"the copy of {one.path} in {folder} is gone") from None
        if hashlib.sha256(data).hexdigest() != one.sha256:
            raise ValueError(f"the copy of {one.path} in {folder} is not what was kept")
        if os.path.islink(one.path):
            os.unlink(one.path)
        write_atomic(one.path, data, mode=one.mode)
        made = os.stat(one.path)
        if (made.st_uid, made.st_gid) != (one.uid, one.gid):
            os.chown(one.path, one.uid, one.gid)
            os.chmod(one.path, one.mode)
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(one.path)
    if one.kind == LINK:
        os.symlink(one.target, one.path)
