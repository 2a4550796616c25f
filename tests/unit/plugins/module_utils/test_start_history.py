# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of starts: what is kept, what is found again, and what it never loses."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import start_history
from ansible_collections.tokforge.sglang.plugins.module_utils.start_history import Identity


@pytest.fixture
def root(tmp_path: Path) -> str:
    (tmp_path / "state").mkdir()
    return str(tmp_path)


def start(pid: int, state: str = "ready", **more: Any) -> dict[str, Any]:
    return {"state": state, "boot_id": "b", "pid": pid, "start_ticks": 7, **more}


def write(root: str, content: str | bytes) -> Path:
    path = Path(start_history.path_in(root))
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_start_is_found_by_boot_pid_and_start_time(root: str) -> None:
    for number in (1, 2):
        assert start_history.add(root, start(number, ready_s=number)) is True
    starts = start_history.read(root)
    assert [one["pid"] for one in starts] == [1, 2]
    assert start_history.of_process(starts, Identity("b", 1, 7)) == start(1, ready_s=1)
    for other in (Identity("another boot", 1, 7), Identity("b", 3, 7), Identity("b", 1, 8)):
        assert start_history.of_process(starts, other) is None


def test_same_start_again_changes_nothing_and_a_better_word_takes_its_place(root: str) -> None:
    start_history.add(root, start(1, "failed"))
    start_history.add(root, start(2))
    before = Path(start_history.path_in(root)).stat().st_mtime_ns
    assert start_history.add(root, start(2)) is False
    assert Path(start_history.path_in(root)).stat().st_mtime_ns == before
    assert start_history.add(root, start(1, "ready")) is True
    assert [(one["pid"], one["state"]) for one in start_history.read(root)] == [(2, "ready"), (1, "ready")]


def test_check_mode_predicts_without_writing(root: str) -> None:
    assert start_history.add(root, start(1), write=False) is True
    assert not os.path.exists(start_history.path_in(root))
    start_history.add(root, start(1))
    assert start_history.add(root, start(1), write=False) is False
    assert start_history.add(root, start(1, "failed"), write=False) is True
    assert start_history.read(root) == [start(1)]


def test_only_the_newest_fifty_are_kept(root: str) -> None:
    for pid in range(1, 61):
        start_history.add(root, start(pid))
    assert [one["pid"] for one in start_history.read(root)] == list(range(11, 61))
    start_history.add(root, start(30, "failed"))  # one that is there already takes no other's place
    assert [one["pid"] for one in start_history.read(root)] == [*range(11, 30), *range(31, 61), 30]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        '{"schema_version": 1, "starts": [',
        "[]",
        '{"schema_version": 1}',
        '{"starts": 5}',
        b"\xff\xfe",
        "[" * 9999,
    ],
)
def test_broken_record_is_empty_and_the_next_start_replaces_it(root: str, content: str | bytes) -> None:
    write(root, content)
    assert start_history.read(root) == []
    assert start_history.add(root, start(1)) is True
    assert start_history.read(root) == [start(1)]


def test_entries_that_are_no_starts_are_left_out(root: str) -> None:
    write(root, json.dumps({"schema_version": 1, "starts": [5, None, start(1), "x", {"pid": True, "boot_id": []}]}))
    starts = start_history.read(root)
    assert starts == [start(1), {"pid": True, "boot_id": []}]
    assert start_history.of_process(starts, Identity("b", 1, 7)) == start(1)
    assert start_history.of_process(starts, Identity("[]", 1, 0)) is None  # True is no process id


@pytest.mark.parametrize("version", [2, None, "1"])
def test_record_of_a_newer_version_is_not_overwritten(root: str, version: Any) -> None:
    content = json.dumps({"schema_version": version, "starts": []})
    path = write(root, content)
    assert start_history.read(root) == []
    with pytest.raises(start_history.HistoryError) as caught:
        start_history.add(root, start(1))
    message = str(caught.value)
    assert message.startswith(f"cannot use {path}: its schema_version is {version!r}, this version")
    assert message.endswith("use the newer version, or move the file away")
    assert path.read_text() == content


def test_record_that_cannot_be_read_or_written_is_named(root: str, tmp_path: Path) -> None:
    path = Path(start_history.path_in(root))
    path.mkdir()
    assert start_history.read(root) == []
    with pytest.raises(start_history.HistoryError, match=rf"^cannot read {path}: Is a directory; make it readable"):
        start_history.add(root, start(1))
    gone = str(tmp_path / "nothing")
    assert start_history.read(gone) == []
    with pytest.raises(start_history.HistoryError, match=r"^cannot write .*starts\.json: No such file .*; free space"):
        start_history.add(gone, start(1))


def test_record_survives_a_write_that_fails(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start_history.add(root, start(1))

    def full(_path: str, _content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(start_history, "write_atomic", full)
    with pytest.raises(start_history.HistoryError, match="No space left on device; free space there"):
        start_history.add(root, start(2))
    assert start_history.read(root) == [start(1)]


def test_newest_start_of_the_same_kind_tells_how_long_one_takes() -> None:
    starts = [
        start(1, cold=True, ready_s=300.0),
        start(2, cold=False, ready_s=20.0),
        start(3, cold=True, ready_s=250.0),
        start(4, "failed", cold=True, ready_s=9.0),
        start(5, cold=True, ready_s=None),
        start(6, cold=True, ready_s=0),
        start(7, cold=True, ready_s=True),
        start(8, cold=None, ready_s=1.0),
        start(9, ready_s=1.0),
    ]
    assert (start_history.like(starts, True) or {})["pid"] == 3
    assert (start_history.like(starts, False) or {})["pid"] == 2
    assert start_history.like(starts[3:], True) is None
    assert start_history.like([], True) is None


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ([{"stage": "autotune", "fatal": True}], True),
        ([{"stage": "autotune", "fatal": False}], False),
        ([{"stage": "weights", "fatal": True}], False),
        ([{"stage": "autotune", "fatal": True}, None], False),  # a later start of the same arguments did it
        ([None, {"stage": "autotune", "fatal": True}], True),
        ([{"stage": "autotune", "fatal": True}, {"stage": "boot", "fatal": True}], False),
        ([None], False),
        (["text"], False),
        ([], False),
    ],
)
def test_newest_start_of_the_same_arguments_decides_about_autotune(failures: list[Any], expected: bool) -> None:
    starts = [
        start(n, "failed" if failure else "ready", content_id="x", failure=failure)
        for n, failure in enumerate(failures)
    ]
    other = start(99, "failed", content_id="y", failure={"stage": "autotune", "fatal": not expected})
    assert start_history.failed_in_autotune([*starts, other], "x") is expected
