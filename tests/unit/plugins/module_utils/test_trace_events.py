# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import trace_events
from ansible_collections.tokforge.sglang.plugins.module_utils.trace_events import TraceError

EVENTS = [{"ph": "X", "name": f"kernel {n}", "ts": n * 1.5, "dur": 1.0} for n in range(1000)]


def written(path: Path, text: str | bytes, packed: bool = True) -> str:
    data = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(data) if packed else data)
    return str(path)


def read(path: str, **more: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    head, events = trace_events.read(path, **more)
    return head, list(events)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("chunk", [7, 100, 1 << 20])
def test_events_are_the_same_however_the_file_is_cut_into_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool, indent: int | None, chunk: int
) -> None:
    monkeypatch.setattr(trace_events, "_CHUNK_BYTES", chunk)
    events = EVENTS if chunk > 7 else EVENTS[:20]
    text = json.dumps({"schemaVersion": 1, "rank": {"a": [1, "é"]}, "traceEvents": events, "more": 2}, indent=indent)
    assert read(written(tmp_path / "t", text, packed)) == ({"schemaVersion": 1, "rank": {"a": [1, "é"]}}, events)


def test_what_is_no_object_is_left_out_and_what_is_no_number_is_null(tmp_path: Path) -> None:
    path = written(tmp_path / "t", '{"traceEvents": [1, null, "x", [], {"ts": NaN, "dur": -Infinity, "name": "a\tb"}]}')
    assert read(path)[1] == [{"ts": None, "dur": None, "name": "a\tb"}]


def test_bytes_that_are_no_text_do_not_end_the_reading(tmp_path: Path) -> None:
    path = written(tmp_path / "t", b'{"traceEvents": [{"name": "\xff\xfe kernel"}]}')
    assert read(path)[1] == [{"name": "\ufffd\ufffd kernel"}]


@pytest.mark.parametrize("left", [0, 1, 10, 30, 200])
@pytest.mark.parametrize("packed", [True, False])
def test_a_file_that_is_still_being_written_is_told_apart(tmp_path: Path, left: int, packed: bool) -> None:
    whole = Path(written(tmp_path / "t", json.dumps({"traceEvents": EVENTS}), packed)).read_bytes()
    path = written(tmp_path / "cut", whole[:left], packed=False)
    with pytest.raises(TraceError) as caught:
        read(path)
    assert caught.value.cut


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1, 2]", "no trace"),
        ('{"a": 1}', "no traceEvents"),
        ('{"traceEvents": {}}', "no trace"),
        ('{"traceEvents": [{} {}]}', "no trace"),
        ("<html>busy</html>", "no trace"),
        ('{"traceEvents": [' + "[" * 200_000 + "]", "cannot be read"),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(TraceError, match=why) as caught:
        read(written(tmp_path / "t", text))
    assert not caught.value.cut


def test_an_event_without_an_end_and_an_endless_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_events, "MOST_EVENT_CHARACTERS", 1000)
    monkeypatch.setattr(trace_events, "_CHUNK_BYTES", 500)
    path = written(tmp_path / "t", '{"traceEvents": [{"name": "' + "x" * 50_000)
    with pytest.raises(TraceError, match="cannot be read"):
        read(path)
    path = written(tmp_path / "t", json.dumps({"traceEvents": EVENTS}))
    with pytest.raises(TraceError, match="larger than") as caught:
        read(path, most_bytes=10_000)
    assert not caught.value.cut


def test_a_file_that_is_not_there_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"gone\.json: No such file"):
        read(str(tmp_path / "gone.json"))
    with pytest.raises(TraceError, match="Is a directory"):
        read(str(tmp_path))
