# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fact file: written whole, damage, other schemas, writers at once."""

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
from result_records import OF_1, made

from ansible_collections.tokforge.sglang.plugins.module_utils import result_store
from ansible_collections.tokforge.sglang.plugins.module_utils.result_document import (
    DocumentError,
    append,
    empty,
    with_baseline,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.result_store import (
    CorruptError,
    StoreError,
    parse,
    read,
    record,
    render,
    update,
)


def stored(facts_dir: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((facts_dir / "sglang.fact").read_text())
    return document


def test_first_record_makes_directory_and_a_fact_that_is_no_program(tmp_path: Path) -> None:
    written = record(str(tmp_path / "a" / "facts"), made("1"))
    path = tmp_path / "a" / "facts" / "sglang.fact"
    assert (written.path, written.set_aside) == (str(path), None)
    assert stored(path.parent) == append(empty(), made("1"))
    assert (stored(path.parent)["schema_version"], stored(path.parent)["compatible_with"]) == (2, 2)
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


def test_keys_of_others_survive_a_record(tmp_path: Path) -> None:
    (tmp_path / "sglang.fact").write_text(json.dumps({**empty(), "mine": {"x": [1, "größer"]}}), encoding="utf-8")
    record(str(tmp_path), made("1"))
    assert stored(tmp_path)["mine"] == {"x": [1, "größer"]}


def test_baseline_is_declared_with_the_record(tmp_path: Path) -> None:
    record(str(tmp_path), made("1"))
    record(str(tmp_path), made("2", fingerprint="g"), baseline=True)
    assert [(entry["baseline"]["id"], entry["declared"]) for entry in stored(tmp_path)["results"]] == [
        ("1", False),
        ("2", True),
    ]


def test_baseline_that_cannot_be_is_an_error_and_writes_nothing(tmp_path: Path) -> None:
    record(str(tmp_path), made("1"))
    before = (tmp_path / "sglang.fact").read_bytes()
    with pytest.raises(StoreError, match=r"fact file .*: record 2 is not valid, so it cannot be a baseline"):
        record(str(tmp_path), made("2", valid=False), baseline=True)
    with pytest.raises(StoreError) as caught:
        update(str(tmp_path), lambda document: with_baseline(document, "9"))
    assert isinstance(caught.value.__cause__, DocumentError)
    assert (tmp_path / "sglang.fact").read_bytes() == before


DAMAGED = [
    "",
    "{",
    "[]",
    '"text"',
    "{}",
    '{"schema_version": true}',
    '{"schema_version": 2, "latest": {"x": Infinity}}',
    '{"schema_version": 2, "latest": {"x": NaN}}',
    # Infinity in another dress: it could be read, and never be written again.
    '{"schema_version": 2, "more": 1e999}',
    '{"schema_version": 2, "more": -1e999}',
    '{"schema_version": 2, "latest": {}}',
    '{"schema_version": 2, "history": [1]}',
    '{"schema_version": 2, "results": [[]]}',
    "[" * 100_000,
    '{"schema_version": 1, "history": ' + "[" * 100_000,
    '{"schema_version": ' + "9" * 5000 + "}",
    "\udcff\udcfe",
    "\0" * 50,
    json.dumps({**empty(), "latest": made("1")})[:-20],
]


@pytest.mark.parametrize("content", DAMAGED, ids=lambda value: value[:40])
def test_damaged_file_is_set_aside_unchanged_and_reported(tmp_path: Path, content: str) -> None:
    damaged = content.encode(errors="surrogateescape")
    (tmp_path / "sglang.fact").write_bytes(damaged)
    try:
        read(str(tmp_path))
    except CorruptError as error:
        assert "fact file" in str(error)
    except StoreError as error:
        # A number of 5000 digits is read by some versions of Python, and is a very new schema then.
        assert "99999" in str(error)
        return
    else:
        raise AssertionError("it was read")
    written = record(str(tmp_path), made("1"))
    assert written.set_aside is not None
    assert written.set_aside.startswith(f"{tmp_path}/sglang.fact.corrupt-")
    assert Path(written.set_aside).read_bytes() == damaged
    assert stored(tmp_path)["history"] == [made("1")]


def test_damaged_file_stays_where_it_is_when_there_is_nothing_to_replace_it(tmp_path: Path) -> None:
    (tmp_path / "sglang.fact").write_text("{broken")
    with pytest.raises(StoreError, match="plain JSON"):
        record(str(tmp_path), made("1", rate=float("inf")))
    assert (tmp_path / "sglang.fact").read_text() == "{broken"
    assert not list(tmp_path.glob("*.corrupt-*"))


def test_second_damaged_file_in_one_second_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "strftime", lambda *_: "20260101T000000Z")
    asides = []
    for content in ("{1", "{2", "{3"):
        (tmp_path / "sglang.fact").write_text(content)
        asides.append(record(str(tmp_path), made(content)).set_aside)
    assert [Path(str(aside)).read_text() for aside in asides] == ["{1", "{2", "{3"]


def test_schema_1_is_read_and_then_written_as_schema_2_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "sglang.fact"
    content = json.dumps(OF_1)
    path.write_text(content)
    seen = read(str(tmp_path))
    assert seen is not None
    assert (seen["schema_version"], path.read_text()) == (2, content)
    assert record(str(tmp_path), made("d")).set_aside is None
    document = stored(tmp_path)
    assert (document["schema_version"], document["compatible_with"]) == (2, 2)
    assert document["mine"] == OF_1["mine"]
    assert [entry["id"] for entry in document["history"]] == ["a", "b", "c", "d"]
    for old, new in zip(OF_1["history"], document["history"]):
        assert {name: new[name] for name in old if name != "points"} == {
            name: value for name, value in old.items() if name != "points"
        }
        assert [{name: point[name] for name in before} for point, before in zip(new["points"], old["points"])] == old[
            "points"
        ]
    assert [entry["latest"]["id"] for entry in document["results"]] == ["c", "d"]
    assert read(str(tmp_path)) == document


def test_newer_schema_is_refused_and_left_byte_for_byte(tmp_path: Path) -> None:
    content = json.dumps({"latest": {"new": "shape"}, "schema_version": 3, "compatible_with": 3}, indent=3)
    (tmp_path / "sglang.fact").write_text(content)
    with pytest.raises(StoreError, match=r"schema 3, .*; use the newer version of the collection") as caught:
        record(str(tmp_path), made("1"))
    assert caught.value.facts == {"schema_version": 3}
    assert not isinstance(caught.value, CorruptError)
    assert (tmp_path / "sglang.fact").read_text() == content
    assert not list(tmp_path.glob("*.corrupt-*"))


def test_compatible_newer_schema_is_grown_and_stays_newer(tmp_path: Path) -> None:
    newer = {**append(empty(), made("1", since_3=1)), "schema_version": 3, "charts": [{"id": 1}]}
    (tmp_path / "sglang.fact").write_text(json.dumps(newer))
    record(str(tmp_path), made("2"))
    document = stored(tmp_path)
    assert (document["schema_version"], document["compatible_with"], document["charts"]) == (3, 2, [{"id": 1}])
    assert [entry["id"] for entry in document["history"]] == ["1", "2"]
    assert document["history"][0]["since_3"] == 1


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
    with pytest.raises(StoreError, match=r"fact file .*sglang\.fact: a directory; remove it"):
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


def test_lock_that_cannot_be_taken_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Any, *_rest: Any) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(result_store.file_lock.os, "open", refused)
    with pytest.raises(StoreError) as error:
        record(str(tmp_path), made("1"))
    assert str(error.value) == (
        f"fact file in {tmp_path}: its lock {tmp_path}/.sglang.fact.lock cannot be taken: Permission denied; make that "
        "file readable, or the directory writable where it is not there"
    )


def test_file_beside_the_fact_file_that_is_in_the_way_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str, data: bytes, mode: int) -> None:
        raise PermissionError(13, "Permission denied", f"{tmp_path}/.sglang.fact.x.tmp")

    monkeypatch.setattr(result_store, "write_atomic", refused)
    with pytest.raises(StoreError, match=r"Permission denied \(.*/\.sglang\.fact\.x\.tmp\); make the directory"):
        record(str(tmp_path), made("1"))


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    program = (
        "import json, sys\n"
        "from ansible_collections.tokforge.sglang.plugins.module_utils import result_document, result_store\n"
        "name, least = sys.argv[2], json.loads(sys.argv[3])\n"
        "sys.stdin.read()\n"
        "for number in range(12):\n"
        "    result_store.record(sys.argv[1], {**least, 'id': f'{name}-{number}', 'fingerprint': name})\n"
        "add = lambda document: result_document.add(document, 'sweeps', {'id': name})\n"
        "result_store.update(sys.argv[1], add)\n"
    )
    least = json.dumps(made("x"))
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name, least], stdin=subprocess.PIPE, text=True)
        for name in ("p", "q")
    ]
    # Both begin when both are there.
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.close()
    assert [writer.wait() for writer in writers] == [0, 0]
    document = stored(tmp_path)
    kept = [entry["id"] for entry in document["history"]]
    assert sorted(kept) == sorted(f"{name}-{number}" for name in "pq" for number in range(12))
    # Each one's own stay in order.
    assert [name for name in kept if name.startswith("p")] == [f"p-{number}" for number in range(12)]
    assert sorted((entry["fingerprint"], entry["latest"]["id"]) for entry in document["results"]) == [
        ("p", "p-11"),
        ("q", "q-11"),
    ]
    assert sorted(entry["id"] for entry in document["sweeps"]) == ["p", "q"]


def test_rendered_document_reads_back_equal() -> None:
    document = append(empty(), made("1") | {"name": "größer", "rate": 1.5, "none": None, "least": 5e-324})
    assert parse(render(document), "here") == document


def test_pipe_directory_or_device_in_its_place_is_an_error_and_stays(tmp_path: Path) -> None:
    place = tmp_path / "sglang.fact"
    for make, said in (
        (os.mkfifo, "not a regular file"),
        (os.mkdir, "a directory"),
        (lambda path: os.symlink("/dev/zero", path), "not a regular file"),
    ):
        make(place)
        # The lock is free again each time: nobody waits for what never comes.
        for attempt in (lambda: read(str(tmp_path)), lambda: record(str(tmp_path), made("1"), 1.0)):
            with pytest.raises(StoreError, match=said) as error:
                attempt()
            assert not isinstance(error.value, CorruptError)
        assert os.path.lexists(place) and not place.is_file()
        os.rmdir(place) if place.is_dir() else place.unlink()


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    record(str(tmp_path), made("1"))
    kept = [".other.fact.abc.tmp", "sglang.fact.corrupt-20260101T000000Z", ".sglang.fact.lock", "sglang.fact"]
    for name in (".sglang.fact.gvh_8l47.tmp", ".sglang.fact.x.tmp", *kept[:2]):
        (tmp_path / name).write_text("{")
    record(str(tmp_path), made("2"))
    assert sorted(os.listdir(tmp_path)) == sorted(kept)
