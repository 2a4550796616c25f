# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fact file: schema, history, damage, writers at once."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import result_store
from ansible_collections.tokforge.sglang.plugins.module_utils.result_store import (
    CorruptError,
    StoreError,
    append,
    empty,
    parse,
    read,
    record,
    render,
)


def stored(facts_dir: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((facts_dir / "sglang.fact").read_text())
    return document


def made(name: Any, **more: Any) -> dict[str, Any]:
    """The least that is a record."""
    fields = {"recorded_at": "t", "fingerprint": "f", "valid": True, "reasons": [], "points": [], "raw_dir": "/r"}
    return {"id": name, **fields, **more}


def test_first_record_makes_directory_and_a_fact_that_is_no_program(tmp_path: Path) -> None:
    written = record(str(tmp_path / "a" / "facts"), made("1"))
    path = tmp_path / "a" / "facts" / "sglang.fact"
    assert (written.path, written.set_aside) == (str(path), None)
    assert stored(path.parent) == {
        "schema_version": 1,
        "latest": made("1"),
        "history": [made("1")],
        "baseline": None,
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_executable_fact_file_is_made_data_again(tmp_path: Path) -> None:
    record(str(tmp_path), made("1"))
    (tmp_path / "sglang.fact").chmod(0o755)
    record(str(tmp_path), made("2"))
    assert stat.S_IMODE((tmp_path / "sglang.fact").stat().st_mode) == 0o644


def test_only_the_fact_file_looks_like_a_fact(tmp_path: Path) -> None:
    (tmp_path / "sglang.fact").write_text("{")
    record(str(tmp_path), made("1"))
    assert [path.name for path in tmp_path.glob("*.fact")] == ["sglang.fact"]


def test_history_keeps_the_newest_and_ends_with_the_latest() -> None:
    document = empty()
    for number in range(7):
        document = append(document, {"id": number}, limit=3)
    assert [entry["id"] for entry in document["history"]] == [4, 5, 6]
    assert document["latest"] == {"id": 6}


def test_history_is_bounded_at_fifty(tmp_path: Path) -> None:
    document = empty()
    for number in range(60):
        document = append(document, {"id": number})
    assert len(document["history"]) == 50


def test_keys_of_others_survive_a_record(tmp_path: Path) -> None:
    (tmp_path / "sglang.fact").write_text(
        json.dumps({**empty(), "baseline": {"id": "b"}, "best": {"x": 1}}), encoding="utf-8"
    )
    record(str(tmp_path), made("1"))
    assert stored(tmp_path)["baseline"] == {"id": "b"}
    assert stored(tmp_path)["best"] == {"x": 1}


def test_missing_optional_keys_are_filled_in() -> None:
    assert parse(b'{"schema_version": 1}', "here") == empty()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '"text"',
        "{}",
        '{"schema_version": "1"}',
        '{"schema_version": true}',
        '{"schema_version": 0}',
        '{"schema_version": 1, "latest": []}',
        '{"schema_version": 1, "history": {}}',
        '{"schema_version": 1, "history": [1]}',
        '{"schema_version": 1, "latest": {"x": Infinity}}',
        '{"schema_version": 1, "latest": {}}',
        json.dumps({"schema_version": 1, "latest": {**made("1"), "points": ["x"]}}),
        json.dumps({"schema_version": 1, "latest": {**made("1"), "points": {"a": {}}}}),
        json.dumps({"schema_version": 1, "latest": {**made("1"), "reasons": [1]}}),
        json.dumps({"schema_version": 1, "latest": {**made("1"), "valid": 1}}),
        *(
            json.dumps({"schema_version": 1, "latest": {key: value for key, value in made("1").items() if key != name}})
            for name in made("1")
        ),
        "[" * 100_000,
        '{"schema_version": 1, "history": ' + "[" * 100_000,
        "\udcff\udcfe",
    ],
)
def test_damaged_file_is_set_aside_unchanged_and_reported(tmp_path: Path, content: str) -> None:
    damaged = content.encode(errors="surrogateescape")
    (tmp_path / "sglang.fact").write_bytes(damaged)
    with pytest.raises(CorruptError, match="fact file"):
        read(str(tmp_path))
    written = record(str(tmp_path), made("1"))
    assert written.set_aside is not None
    assert ".corrupt-" in written.set_aside
    assert Path(written.set_aside).read_bytes() == damaged
    assert stored(tmp_path)["history"] == [made("1")]


def test_second_damaged_file_in_one_second_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "strftime", lambda *_: "20260101T000000Z")
    asides = []
    for content in ("{1", "{2"):
        (tmp_path / "sglang.fact").write_text(content)
        asides.append(record(str(tmp_path), made(content)).set_aside)
    assert [Path(str(aside)).read_text() for aside in asides] == ["{1", "{2"]


def test_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    content = json.dumps({"schema_version": 2, "latest": {"new": "shape"}})
    (tmp_path / "sglang.fact").write_text(content)
    with pytest.raises(StoreError, match="schema 2") as caught:
        record(str(tmp_path), made("1"))
    assert caught.value.facts == {"schema_version": 2}
    assert (tmp_path / "sglang.fact").read_text() == content
    assert not list(tmp_path.glob("*.corrupt-*"))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), {1, 2}])
def test_value_that_is_no_json_is_refused_before_anything_is_written(tmp_path: Path, value: Any) -> None:
    record(str(tmp_path), made("1"))
    with pytest.raises(StoreError, match="plain JSON"):
        record(str(tmp_path), made("2", rate=value))
    assert stored(tmp_path)["latest"] == made("1")


def test_no_file_reads_as_nothing(tmp_path: Path) -> None:
    assert read(str(tmp_path)) is None


def test_unreadable_file_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "sglang.fact").mkdir()
    with pytest.raises(StoreError, match="fact file"):
        read(str(tmp_path))


def test_directory_that_cannot_be_made_is_an_error_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="writable"):
        record(str(tmp_path / "file" / "facts"), made("1"))


def test_content_that_reads_back_different_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_store, "write_atomic", lambda path, data, mode: Path(path).write_bytes(data[:-9]))
    with pytest.raises(StoreError, match="reads back different"):
        record(str(tmp_path), made("1"))


def test_waiting_for_another_writer_ends(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / ".sglang.fact.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another writer"):
            record(str(tmp_path), made("1"), lock_timeout_s=0.1)
    finally:
        os.close(descriptor)
    assert not (tmp_path / "sglang.fact").exists()
    record(str(tmp_path), made("1"), lock_timeout_s=0.1)


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    program = (
        "import json, sys\n"
        "from ansible_collections.tokforge.sglang.plugins.module_utils.result_store import record\n"
        "for number in range(10): record(sys.argv[1], {**json.loads(sys.argv[3]), 'id': f'{sys.argv[2]}-{number}'})\n"
    )
    least = json.dumps(made("x"))
    writers = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(name), least]) for name in range(4)]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]
    kept = [entry["id"] for entry in stored(tmp_path)["history"]]
    assert sorted(kept) == sorted(f"{name}-{number}" for name in range(4) for number in range(10))


def test_rendered_document_reads_back_equal() -> None:
    document = append(empty(), made("1") | {"name": "größer", "rate": 1.5, "none": None})
    assert parse(render(document), "here") == document
