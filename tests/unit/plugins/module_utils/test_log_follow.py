# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was appended to a log is read once and in order, whatever a rotation does, and a loss is told."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.tokforge.sglang.plugins.module_utils import log_follow, service
from ansible_collections.tokforge.sglang.plugins.module_utils.log_follow import LogError, LogPosition, position_now


class Log:
    """A log with its writer, its rotations and a reader. Every rotated file has a time of its own."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "server.log"
        self.position = position_now(str(self.path))
        self.appended = self.read = b""
        self.gap = False
        self.lines = 0
        self.clock = time.time_ns() - 10**12

    def append(self, count: int = 1) -> None:
        for _number in range(count):
            self.lines += 1
            line = f"{self.lines} line\n".encode()
            with self.path.open("ab") as stream:
                stream.write(line)
            self.appended += line

    def _shift(self) -> Path:
        number = 1
        while self.beside(number).exists() or self.beside(number, ".gz").exists():
            number += 1
        for one in range(number, 1, -1):
            for end in ("", ".gz"):
                if self.beside(one - 1, end).exists():
                    self.beside(one - 1, end).rename(self.beside(one, end))
        return self.beside(1)

    def beside(self, number: int, end: str = "") -> Path:
        return self.path.with_name(f"server.log.{number}{end}")

    def _stamp(self, path: Path) -> None:
        self.clock += 10**9
        os.utime(path, ns=(self.clock, self.clock))

    def rename(self, create: bool = True) -> None:
        if self.path.exists():
            first = self._shift()
            self.path.rename(first)
            self._stamp(first)
            if create:
                self.path.touch()

    def copytruncate(self) -> None:
        if self.path.exists():
            first = self._shift()
            shutil.copyfile(self.path, first)
            self._stamp(first)
            os.truncate(self.path, 0)

    def truncate(self) -> None:
        if self.path.exists():
            os.truncate(self.path, 0)

    def lose_a_line(self) -> None:
        """Truncation of a file of which no look has read anything leaves no trace: so look first."""
        self.append()
        self.look()
        self.append()
        self.truncate()

    def delete_oldest(self) -> None:
        numbers = [number for number in range(1, 20) if self.beside(number).exists()]
        if numbers:
            self.beside(numbers[-1]).unlink()

    def compress(self, number: int = 1) -> None:
        plain = self.beside(number)
        if not plain.exists():
            return
        packed = self.beside(number, ".gz")
        packed.write_bytes(gzip.compress(plain.read_bytes()))
        shutil.copystat(plain, packed)
        plain.unlink()

    def look(self, chunk_bytes: int = 1 << 20, limit_bytes: int | None = None) -> bytes:
        """What one look gives. The position goes through JSON, as between two runs."""
        new = b""
        for data, position, gap in log_follow.read_new(self.position, chunk_bytes, limit_bytes):
            assert len(data) <= chunk_bytes
            new += data
            self.gap = self.gap or gap
            self.position = LogPosition(**json.loads(json.dumps(asdict(position))))
        self.read += new
        return new


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


Operation = Callable[[Log], object]

APPEND: st.SearchStrategy[Operation] = st.integers(1, 40).map(lambda count: lambda log: log.append(count))
ROTATE: st.SearchStrategy[Operation] = st.sampled_from(
    [Log.rename, lambda log: log.rename(create=False), Log.copytruncate]
)
LOOK: st.SearchStrategy[Operation] = st.tuples(st.sampled_from([7, 64, 1 << 20]), st.sampled_from([None, 5, 100])).map(
    lambda limits: lambda log: log.look(*limits)
)
LOSE: st.SearchStrategy[Operation] = st.sampled_from(
    [Log.lose_a_line, Log.delete_oldest, Log.compress, lambda log: log.compress(2)]
)


def carry_out(log: Log, operations: list[Operation]) -> None:
    for operation in operations:
        operation(log)
    log.look()
    assert log.look() == b""


@settings(max_examples=250, deadline=None)
@given(operations=st.lists(st.one_of(APPEND, ROTATE, LOOK), max_size=14))
def test_every_byte_is_read_once_across_rotations(operations: list[Operation]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory))
        carry_out(log, operations)
        assert log.read == log.appended
        assert not log.gap


def test_end_of_the_log_is_where_reading_begins(log: Log) -> None:
    log.append(50)
    log.position = position_now(str(log.path))
    assert log.look() == b""
    log.append(2)
    assert log.look() == b"51 line\n52 line\n" and not log.gap
    assert log.look() == b""


def test_absent_log_keeps_its_position_until_it_is_there(log: Log) -> None:
    before = log.position
    assert before.inode == 0 and list(log_follow.read_new(before)) == []
    log.append()
    assert log.look() == b"1 line\n"


def test_log_that_came_and_was_rotated_between_two_looks_is_read_whole(log: Log) -> None:
    log.append()
    log.rename()
    log.append()
    log.copytruncate()
    log.append()
    assert log.look() == log.appended and not log.gap


def test_log_from_before_the_position_is_not_read(log: Log) -> None:
    log.append(3)
    log.rename(create=False)
    log.position = position_now(str(log.path))
    log.append()
    assert log.look() == b"4 line\n"


@pytest.mark.parametrize("names", [("server.log-20261129", "server.log-20261130"), ("server.log.2", "server.log.1")])
def test_names_of_rotated_files(log: Log, names: tuple[str, str]) -> None:
    log.append()
    log.look()
    for number, name in enumerate(names):
        log.append()
        log.path.rename(log.path.with_name(name))
        os.utime(log.path.with_name(name), (2_000_000_000 + number,) * 2)
        log.path.touch()
    other = log.path.with_name("server.log.bak")
    other.write_text("of somebody else\n")
    os.utime(other, (2_000_000_002,) * 2)
    log.append()
    assert log.look() == b"2 line\n3 line\n4 line\n" and not log.gap


def test_writer_that_goes_on_with_the_renamed_file_is_followed(log: Log) -> None:
    log.append()
    log.look()
    with log.path.open("ab", buffering=0) as writer:
        log.rename()
        assert log.look() == b""
        writer.write(b"late\n")
        assert log.look() == b"late\n"
        writer.write(b"later\n")
    log.append()
    assert log.look() == b"later\n2 line\n" and not log.gap


@pytest.mark.parametrize("regrown", [0, 1, 30])
def test_truncated_without_a_copy_is_read_from_its_start_with_a_gap(log: Log, regrown: int) -> None:
    log.append(20)
    log.look()
    size = log.path.stat().st_size
    log.append()
    log.truncate()
    log.append(regrown)
    assert (log.path.stat().st_size > size) == (regrown == 30)
    assert log.look() == b"".join(b"%d line\n" % number for number in range(22, 22 + regrown))
    assert log.gap
    log.gap = False
    log.append()
    assert log.look() != b"" and not log.gap  # told once


def test_rest_that_is_only_there_compressed_is_a_gap_and_never_text(log: Log) -> None:
    log.append()
    log.look()
    log.append()
    log.rename()
    log.compress(1)
    log.append()
    assert log.look() == b"3 line\n" and log.gap


def test_compressed_file_between_is_a_gap_although_the_rest_is_read(log: Log) -> None:
    log.append()
    log.look()
    for _number in range(3):
        log.append()
        log.rename()
    log.compress(2)
    log.append()
    chunks = list(log_follow.read_new(log.position))
    assert [(chunk.data, chunk.gap) for chunk in chunks] == [
        (b"2 line\n", False),
        (b"4 line\n", True),
        (b"5 line\n", False),
    ]


def test_gap_with_nothing_behind_it_is_told_once(log: Log) -> None:
    log.append()
    log.look()
    log.append()
    log.rename(create=False)
    log.beside(1).unlink()
    assert [(chunk.data, chunk.gap) for chunk in log_follow.read_new(log.position)] == [(b"", True)]
    assert log.look() == b"" and log.gap
    log.gap = False
    assert log.look() == b"" and not log.gap
    log.append()
    assert log.look() == b"3 line\n" and not log.gap


def test_empty_log_whose_rotated_files_went_is_a_gap(log: Log) -> None:
    log.append()
    log.rename()
    log.position = position_now(str(log.path))
    log.append()
    log.copytruncate()
    log.delete_oldest()
    log.append()
    assert log.look() == b"2 line\n3 line\n" and log.gap


def test_empty_log_that_was_rotated_itself_is_complete(log: Log) -> None:
    log.append()
    log.rename()
    log.position = position_now(str(log.path))
    log.append()
    log.path.rename(log.path.with_name("server.log.old"))
    log.delete_oldest()
    log.append()
    assert log.look() == b"2 line\n3 line\n" and not log.gap


def test_rotated_file_that_may_not_be_read_is_a_gap(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append()
    log.look()
    log.append()
    log.rename()
    log.append()
    log.rename(create=False)
    real = os.open

    def refuse(path: str, *arguments: int) -> int:
        if path == str(log.beside(1)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, *arguments)

    monkeypatch.setattr(os, "open", refuse)
    assert log.look() == b"2 line\n" and log.gap


def test_old_copy_that_begins_alike_is_not_taken_for_the_rest(log: Log) -> None:
    log.append(2)
    log.rename()
    log.lines = 0
    log.append()
    log.position = position_now(str(log.path))
    log.truncate()
    log.lines = 9
    log.append()
    assert log.look() == b"10 line\n" and log.gap


def test_reused_inode_is_another_file(log: Log) -> None:
    log.append(3)
    log.look()
    # The same inode with other and more content is all that reuse can be seen by.
    with log.path.open("r+b") as stream:
        stream.write(b"of another file\n" * 10)
    assert log.look() == b"of another file\n" * 10 and log.gap


def test_position_of_an_older_run_is_not_checked(log: Log) -> None:
    log.append(2)
    status = log.path.stat()
    log.position = LogPosition(str(log.path), status.st_ino, status.st_size)
    log.append()
    log.rename()
    log.append()
    assert log.look() == b"3 line\n4 line\n" and not log.gap
    assert log.position.fingerprint


def test_position_of_an_older_run_in_a_truncated_log(log: Log) -> None:
    log.append(2)
    log.position = LogPosition(str(log.path), log.path.stat().st_ino, 999)
    assert log.look() == b"1 line\n2 line\n" and log.gap


def test_log_behind_a_symbolic_link_is_followed_by_both_names(log: Log, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere"
    real.mkdir()
    behind = real / "out.log"
    behind.write_text("old\n")
    log.path.symlink_to(behind)
    log.position = position_now(str(log.path))
    with behind.open("a") as stream:
        stream.write("new\n")
    behind.rename(real / "out.log.1")
    behind.write_text("newer\n")
    assert log.look() == b"new\nnewer\n"
    # The link itself goes to another file.
    log.path.rename(log.beside(1))
    log.path.symlink_to(real / "next.log")
    with behind.open("a") as stream:
        stream.write("end\n")
    (real / "next.log").write_text("next\n")
    assert log.look() == b"end\nnext\n" and not log.gap


def fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "kind"),
    [(fifo, "a FIFO"), (Path.mkdir, "a directory"), (lambda path: path.symlink_to("/dev/null"), "a device")],
)
def test_what_is_no_file_is_an_error_and_does_not_block(log: Log, make: Callable[[Path], None], kind: str) -> None:
    make(log.path)
    expected = rf"cannot read the log .*server\.log: it is {kind}.*; let the server write into a regular file"
    with pytest.raises(LogError, match=expected):
        list(log_follow.read_new(log.position))
    with pytest.raises(LogError, match=expected):
        position_now(str(log.path))


def test_service_says_why_its_log_cannot_be_followed(tmp_path: Path) -> None:
    paths = service.Paths(str(tmp_path))
    Path(paths.log).mkdir(parents=True)
    with pytest.raises(service.ServiceError, match=r"server\.log: it is a directory"):
        service.log_end(paths)


def test_fifo_among_the_rotated_files_is_left_alone(log: Log) -> None:
    log.append()
    log.look()
    os.mkfifo(log.beside(1))
    log.truncate()
    assert log.look() == b"" and log.gap


def test_log_that_may_not_be_read_is_an_error(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append()

    def refuse(path: str, *_arguments: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(LogError, match=r"server\.log: Permission denied; run as the server's user or root"):
        list(log_follow.read_new(log.position))
    # Whoever only notes where it ends need not read it.
    status = log.path.stat()
    assert position_now(str(log.path)) == LogPosition(str(log.path), status.st_ino, status.st_size)


def test_huge_log_costs_only_its_new_bytes(log: Log) -> None:
    with log.path.open("wb") as stream:
        stream.truncate(10_000_000_000)
    log.position = position_now(str(log.path))
    log.append()
    began = time.monotonic()
    assert log.look() == b"1 line\n"
    assert time.monotonic() - began < 0.5


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("begun_only", [False, True])
def test_rotation_during_a_look_is_noticed(
    log: Log, monkeypatch: pytest.MonkeyPatch, limit: int | None, begun_only: bool
) -> None:
    log.append()
    log.look()
    for _number in range(2):
        log.append()
        log.rename()
    log.look(limit_bytes=limit)  # with the limit it ends in the older one of the two
    scan, calls = log_follow._scan, []

    def scan_and_rotate(path: str) -> object:
        found = scan(path)
        calls.append(path)
        if len(calls) == 1 and begun_only:
            log._shift()
        elif len(calls) == 1:
            log.rename()
            log.append()
        return found

    monkeypatch.setattr(log_follow, "_scan", scan_and_rotate)
    log.look()
    assert log.read == log.appended and not log.gap


def test_descriptors_are_closed_also_when_reading_stops_early(log: Log) -> None:
    log.append(5)
    before = len(os.listdir("/proc/self/fd"))
    reader = log_follow.read_new(log.position, chunk_bytes=3)
    assert next(reader).data == b"1 l"
    assert len(os.listdir("/proc/self/fd")) == before + 1
    reader.close()  # type: ignore[attr-defined]
    assert len(os.listdir("/proc/self/fd")) == before


def test_newest_bytes_come_from_several_files(log: Log) -> None:
    log.append()
    log.look()
    log.append()
    log.rename()
    log.append()
    assert log_follow.newest_bytes(log.position, 100) == (b"2 line\n3 line\n", True)
    assert log_follow.newest_bytes(log.position, 14) == (b"2 line\n3 line\n", True)
    assert log_follow.newest_bytes(log.position, 9) == (b"e\n3 line\n", False)
    assert log_follow.newest_bytes(log.position, 7) == (b"3 line\n", False)


@settings(max_examples=250, deadline=None)
@given(operations=st.lists(st.one_of(APPEND, ROTATE, LOOK, LOSE), max_size=14))
def test_what_is_missing_is_told_by_a_gap(operations: list[Operation]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory))
        log.append()
        log.look()
        carry_out(log, operations)
        if log.read != log.appended:
            assert log.gap
            assert len(log.read) < len(log.appended)  # nothing twice
