# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing a file whole."""

from __future__ import annotations

import errno
import os
import stat
import struct
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import atomic_file
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_file_has_content_and_is_readable_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_atomic(str(tmp_path / "new"), b"one")
    finally:
        os.umask(before)
    assert (tmp_path / "new").read_bytes() == b"one"
    assert mode_of(tmp_path / "new") == 0o644


def test_existing_mode_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o600)
    write_atomic(str(path), b"new")
    assert (path.read_bytes(), mode_of(path)) == (b"new", 0o600)


def test_asked_mode_wins_over_existing_one(tmp_path: Path) -> None:
    path = tmp_path / "fact"
    path.write_bytes(b"old")
    path.chmod(0o755)
    write_atomic(str(path), b"new", 0o644)
    assert mode_of(path) == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can own files of others")
def test_existing_owner_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "owned"
    path.write_bytes(b"old")
    os.chown(path, 12345, 23456)
    write_atomic(str(path), b"new")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


def test_owner_that_cannot_be_kept_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "owned"
    path.write_bytes(b"old")

    class Other:
        st_uid, st_gid, st_mode = 12345, 23456, 0o100640

    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(atomic_file, "_stat_or_none", lambda _: Other)
    monkeypatch.setattr(os, "fchown", refuse)
    write_atomic(str(path), b"new")
    assert (path.read_bytes(), mode_of(path)) == (b"new", 0o640)


def test_symbolic_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_atomic(str(tmp_path / "link"), b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_other_name_of_a_hard_link_keeps_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"old")
    os.link(tmp_path / "cache", tmp_path / "installed")
    write_atomic(str(tmp_path / "installed"), b"new")
    assert (tmp_path / "cache").read_bytes() == b"old"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failure_leaves_old_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(str(path), b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


def test_content_is_never_readable_by_others_before_the_mode_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = os.fchmod

    def spy(descriptor: int, mode: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        real(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", spy)
    write_atomic(str(tmp_path / "secret"), b"key", 0o600)
    assert seen == [0o600]


ACCESS_LIST = "system.posix_acl_access"
# Version 2, then each entry as tag, permissions and id (linux/posix_acl_xattr.h).
ENTRIES = [(1, 6, 2**32 - 1), (2, 4, 12345), (4, 4, 2**32 - 1), (16, 4, 2**32 - 1), (32, 0, 2**32 - 1)]


def set_attribute(path: Path, name: str, value: bytes) -> None:
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"{name} cannot be set on this file system: {error.strerror}")


@pytest.mark.parametrize("mode", [None, 0o600])
def test_attributes_that_describe_a_file_are_kept(tmp_path: Path, mode: int | None) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    set_attribute(path, "user.origin", b"a wheel")
    write_atomic(str(path), b"new", mode)
    assert os.getxattr(path, "user.origin") == b"a wheel"


def test_an_access_list_stays_with_the_mode_and_goes_with_another_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    granted = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in ENTRIES)
    set_attribute(path, ACCESS_LIST, granted)
    write_atomic(str(path), b"new")
    assert os.getxattr(path, ACCESS_LIST) == granted
    assert mode_of(path) == 0o640
    write_atomic(str(path), b"secret", 0o600)
    assert ACCESS_LIST not in os.listxattr(path)
    assert mode_of(path) == 0o600


def test_attributes_that_cannot_be_kept_do_not_stop_the_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "listxattr", lambda _path: ["security.selinux", "user.origin"])

    def refused(*_arguments: Any) -> bytes:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "getxattr", refused)
    write_atomic(str(path), b"new")
    assert path.read_bytes() == b"new"
