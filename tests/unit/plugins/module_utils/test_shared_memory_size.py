# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The size of shared memory: one option of one line of fstab, and the mounted file system."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import previous_values, shared_memory
from ansible_collections.tokforge.sglang.plugins.module_utils.shared_memory import SharedMemoryError

SHM = "/dev/shm"
OTHERS = b"# /dev/shm tmpfs\nUUID=1 / ext4 errors=remount-ro 0 1\r\n\tLABEL=x\t/mnt/a\\040b\text4\tdefaults\n"
OURS = b"tmpfs /dev/shm tmpfs rw,nosuid,nodev,size=64G 0 0\n"


class Mounted:
    """A file system whose size follows the command that mounts it again."""

    def __init__(self, folder: Path, table: bytes | None = OTHERS) -> None:
        self.fstab, self.record = folder / "fstab", str(folder / "record")
        if table is not None:
            self.fstab.write_bytes(table)
        self.bytes = 32 << 20
        self.calls: list[list[str]] = []
        self.status = 0
        self.deaf = False

    def run(self, command: Sequence[str]) -> tuple[int, str]:
        self.calls.append(list(command))
        assert list(command[:2]) == ["mount", "-o"] and command[3] == SHM
        if not self.status and not self.deaf:
            self.bytes = (int(command[2].removeprefix("remount,size=")) + 4095) // 4096 * 4096
        return self.status, "bad option\n"

    def set(self, size: str, check: bool = False) -> shared_memory.Outcome:
        where = (SHM, str(self.fstab), self.record, check, ["mount"], self.run)
        return shared_memory.present(size, *where, sized=lambda _point: self.bytes)

    def back(self, check: bool = False) -> shared_memory.Outcome:
        where = (SHM, str(self.fstab), self.record, check, ["mount"], self.run)
        return shared_memory.absent(*where, sized=lambda _point: self.bytes)


def test_line_is_added_mounted_and_taken_away_again(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)
    assert mounted.set("64G", check=True).changed
    assert (mounted.fstab.read_bytes(), mounted.calls) == (OTHERS, [])
    assert mounted.set("64G").changed
    assert mounted.fstab.read_bytes() == OTHERS + OURS
    assert (mounted.bytes, mounted.calls) == (64 << 30, [["mount", "-o", f"remount,size={64 << 30}", SHM]])
    assert not mounted.set("64G").changed
    assert mounted.set("32G").changed
    assert mounted.back(check=True).changed and mounted.bytes == 32 << 30
    assert mounted.back().changed
    assert (mounted.fstab.read_bytes(), mounted.bytes) == (OTHERS, 32 << 20)
    assert previous_values.read(mounted.record) == {}
    assert not mounted.back().changed


@pytest.mark.parametrize(
    ("line", "set_to"),
    [
        (b"tmpfs /dev/shm/ tmpfs defaults 0 0\n", b"tmpfs /dev/shm/ tmpfs defaults,size=1G 0 0\n"),
        (b"#tmpfs /dev/shm tmpfs defaults 0 0\n", None),
        (
            b"tmpfs\t/dev/shm \ttmpfs  defaults\t0 0 # ours\n",
            b"tmpfs\t/dev/shm \ttmpfs  defaults,size=1G\t0 0 # ours\n",
        ),
        (b"none /dev/shm tmpfs size=50%,noexec\n", b"none /dev/shm tmpfs size=1G,noexec\n"),
        (b"none /dev/shm tmpfs size=1M,noexec,size=2M", b"none /dev/shm tmpfs size=1M,noexec,size=1G"),
        (b"none /dev/s\\150m tmpfs rw 0 0\r\n", b"none /dev/s\\150m tmpfs rw,size=1G 0 0\r\n"),
    ],
)
def test_of_a_line_that_is_there_only_the_size_changes(tmp_path: Path, line: bytes, set_to: bytes | None) -> None:
    mounted = Mounted(tmp_path, OTHERS + line)
    mounted.set("1G")
    assert mounted.fstab.read_bytes() == OTHERS + (set_to or line + OURS.replace(b"64G", b"1G"))
    mounted.back()
    assert mounted.fstab.read_bytes() == OTHERS + line


def test_line_that_was_changed_by_hand_since_keeps_that(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)
    mounted.set("64G")
    mounted.fstab.write_bytes(OTHERS + OURS.replace(b"nodev", b"nodev,noexec"))
    mounted.back()
    assert mounted.fstab.read_bytes() == OTHERS + b"tmpfs /dev/shm tmpfs rw,nosuid,nodev,noexec 0 0\n"


def test_size_that_was_changed_by_hand_is_set_again_and_the_first_note_stays(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, None)
    mounted.set("64G")
    mounted.bytes = 5 << 30
    assert mounted.set("64G").changed and mounted.bytes == 64 << 30
    mounted.back()
    assert (mounted.bytes, mounted.fstab.exists()) == (32 << 20, False)


def test_table_without_a_final_line_end_gets_a_line_of_its_own(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, b"a /b ext4 rw")
    mounted.set("64G")
    assert mounted.fstab.read_bytes() == b"a /b ext4 rw\n" + OURS
    mounted.set("32G")
    mounted.back()
    assert mounted.fstab.read_bytes() == b"a /b ext4 rw"


def test_line_that_somebody_added_behind_ours_keeps_its_end(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, b"a /b ext4 rw")
    mounted.set("64G")
    mounted.fstab.write_bytes(mounted.fstab.read_bytes() + b"c /d ext4 rw\n")
    mounted.back()
    assert mounted.fstab.read_bytes() == b"a /b ext4 rw\nc /d ext4 rw\n"


def test_empty_table_that_was_there_stays(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, b"")
    mounted.set("64G")
    mounted.back()
    assert mounted.fstab.read_bytes() == b""


def test_two_lines_are_an_error(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path, b"a /dev/shm tmpfs rw\n\nb /dev/shm tmpfs rw\n")
    with pytest.raises(SharedMemoryError, match="lines 1 and 3 are both"):
        mounted.set("64G")


@pytest.mark.parametrize("size", ["", "0", "0G", "50%", "64GB", "1.5G", "-1", "64 G", "6\n4", "9999999T", "9" * 5000])
def test_size_that_is_none_is_refused(size: str) -> None:
    with pytest.raises(SharedMemoryError, match="this is no size"):
        shared_memory.bytes_of(size)


def test_sizes_in_bytes() -> None:
    assert [shared_memory.bytes_of(size) for size in ("4096", "1k", "2M", "64G", "1T")] == [
        4096,
        1024,
        2 << 20,
        64 << 30,
        1 << 40,
    ]


def test_size_that_the_kernel_refuses_leaves_nothing_behind(tmp_path: Path) -> None:
    mounted = Mounted(tmp_path)
    mounted.status = 32
    with pytest.raises(SharedMemoryError, match="it ended with 32: bad option"):
        mounted.set("64G")
    mounted.status, mounted.deaf = 0, True
    with pytest.raises(SharedMemoryError, match=f"it has {32 << 20} afterwards"):
        mounted.set("64G")
    assert (mounted.fstab.read_bytes(), previous_values.read(mounted.record)) == (OTHERS, {})
    mounted.deaf = False
    mounted.set("64G")
    mounted.status = 32
    with pytest.raises(SharedMemoryError):
        mounted.set("65G")
    mounted.status = 0
    assert mounted.fstab.read_bytes() == OTHERS + OURS
    mounted.back()
    assert (mounted.fstab.read_bytes(), mounted.bytes) == (OTHERS, 32 << 20)


def test_table_that_cannot_be_written_has_the_old_size_mounted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: str, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    mounted = Mounted(tmp_path)
    monkeypatch.setattr(shared_memory, "write_atomic", full)
    with pytest.raises(SharedMemoryError, match="No space left"):
        mounted.set("64G")
    assert (mounted.bytes, previous_values.read(mounted.record)) == (32 << 20, {})


def test_what_is_mounted_is_measured(tmp_path: Path) -> None:
    assert shared_memory.measure("/proc") == 0
    with pytest.raises(SharedMemoryError, match="nothing is mounted there"):
        shared_memory.measure(str(tmp_path))


@pytest.mark.parametrize("note", [1, {"line": 1, "size": None, "bytes": 1}, {"line": True, "size": None, "bytes": "1"}])
def test_damaged_note_is_an_error(tmp_path: Path, note: Any) -> None:
    mounted = Mounted(tmp_path)
    previous_values.remember(mounted.record, {f"shared_memory/{SHM}": note})
    with pytest.raises(SharedMemoryError, match="is not as this collection notes it"):
        mounted.back()
