# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""However a log is cut into pieces it tells the same, and nothing is told before it is written."""

from __future__ import annotations

import functools
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from startup_logs import (
    COMPLETED,
    FIRED_UP,
    REAL,
    SHAPES_DIFFER,
    STYLES,
    V0_5_12,
    V0_5_23,
    arguments,
    good,
    one_of_eight_fails,
    read,
    real,
    report,
    state,
    synthetic,
)

from ansible_collections.tokforge.sglang.plugins.module_utils import startup_log as core
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_log import StartupLog

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@functools.cache
def everything() -> dict[str, bytes]:
    found = {name: real(name) for name in REAL}
    found.update((name, data) for name, (data, _tags) in synthetic().items())
    found["one-of-eight-fails"] = one_of_eight_fails()
    return found


@functools.cache
def whole(name: str) -> str:
    return repr(state(read(everything()[name])))


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """The pieces between these places, in order; places behind the end count from the beginning again."""
    places = sorted({place % (len(data) + 1) for place in at})
    return [data[begin:end] for begin, end in zip([0, *places], [*places, len(data)])]


places = st.lists(st.integers(0, 2**20), max_size=12)


@QUICK
@given(st.sampled_from(sorted(REAL) + sorted(synthetic()) + ["one-of-eight-fails"]), places)
def test_a_log_tells_the_same_however_it_is_cut_and_remembered(name: str, at: list[int]) -> None:
    assert repr(state(read(*cut(everything()[name], at), cursor=True))) == whole(name)


def test_a_log_tells_the_same_byte_by_byte_and_piece_by_piece() -> None:
    name = "tp8-ep8-0.5.18"
    data = everything()[name]
    log = StartupLog()
    for number in range(len(data)):
        log.feed(data[number : number + 1])
    assert repr(state(log)) == whole(name)
    for size in (7, 64, 1000, 4096):
        for real_name in ("h200x2-tp2-0.5.12.post1-cold", "h200x2-tp2-0.5.12.post1-cold-piecewise"):
            data = everything()[real_name]
            pieces = [data[at : at + size] for at in range(0, len(data), size)]
            assert repr(state(read(*pieces))) == whole(real_name)


# --- soups -----------------------------------------------------------------------------------------------------------

HEADS = (
    "[2026-11-29 16:52:38 TP0] ",
    "[2026-11-29 16:52:38 TP1] ",
    "[2026-11-29 16:52:39.123 DP1 PP0 TP3 EP1] ",
    "[2026-11-29 16:52:38] ",
    "[2026-11-28 16:52:38] ",
    "[2026-11-29 16:52:38,042] ",
    "[2026-11-29 16:52:38 X9] ",
    "[2026-11-29 16:5",
    "\x1b[32m[2026-11-29 16:52:40 TP1]\x1b[0m ",
)
MESSAGES = (
    "Load weight begin. avail mem=1 GB",
    "Load weight end. elapsed=0.13 s, type=X",
    "draft KV Cache is allocated. #tokens: 1",
    "Running FlashInfer autotune...",
    "Running FlashInfer autotune with cache: /opt/cache/rank_tp0.json",
    COMPLETED,
    "Capture cuda graph begin. This",
    "Capture cuda graph end. Time elapsed: 24.05 s. mem",
    "max_total_num_tokens=1, x",
    arguments(V0_5_12, tp_size=2),
    arguments(V0_5_23, tp_size=8, api_key="hunter2-hunter2"),
    "INFO:     Uvicorn running on http://x",
    "INFO:     " + FIRED_UP,
    FIRED_UP,
    "Dummy health check server started in background thread at x",
    SHAPES_DIFFER,
    "Scheduler hit an exception: Traceback (most recent call last):",
    core._TRACEBACK,
    '  File "x.py", line 1, in f\n    f()',
    "RuntimeError: Ninja build failed. Ninja output:",
    "FAILED: x.o\nnvcc error   : 'cicc' died due to signal 9 (Kill signal)",
    "During handling of the above exception, another exception occurred:",
    "Rank 1 scheduler is dead. Please check if there are relevant logs.",
    "Exit code: -9",
    "ERROR:    [Errno 98] error while attempting to bind on address ('::', 1): address already in use",
    "Received sigquit from a child process. It usually means the child failed.",
    "Exception ignored in: <function f>",
    "Fatal Python error: Segmentation fault",
    "CUDA error: an illegal instruction was encountered",
    "[Autotuner]: Skipping tactic R 3, due to failure while profiling: an illegal instruction",
    "Skipped 12 unsupported tactic(s) for OP",
    "Ignore import error when loading sglang.srt.models.x",
    "Receive: obj=GenerateReqInput(text='[2026-11-29 16:52:38 TP1] " + COMPLETED + "')",
    '{"timestamp": "x", "event": "request.received", "obj": "' + FIRED_UP + '"}',
    "tokforge: starting release 3 as process 4711",
    "tokforge: autotune cache /opt/cache: complete",
    "[AutoTuner]: Tuning gemm1:  67%|\u2588\u2588   | 6/9 [00:07<00:02,  1.79profile/s]",
    "  0%|          | 0/58 [00:00<?, ?it/s]",
    "Loading shards:  50% Completed | 2/4 [00:01<00:01,  1.2it/s]",
    "it's 'quoted' \"text\"",
    "a server_args= in words",
    "x" * 300,
)
lines = st.one_of(
    st.builds(lambda head, message: (head + message).encode(), st.sampled_from(HEADS), st.sampled_from(MESSAGES)),
    st.sampled_from(MESSAGES).map(str.encode),
    # A record that another one breaks off.
    st.builds(
        lambda line, at: line[: at % (len(line) + 1)], st.sampled_from(MESSAGES).map(str.encode), st.integers(0, 99)
    ),
    st.sampled_from((b"", b"\0" * 9, b"\xff\xfe\x80", b"\xe2\x80\xa8", b" ", b"'", b"]", b"[20")),
)
ends = st.sampled_from((b"\n", b"\n", b"\n", b"\r", b"\r\n", b""))
soups = st.lists(st.tuples(lines, ends), max_size=25).map(lambda some: b"".join(line + end for line, end in some))


def test_every_style_of_a_release_is_in_the_soups() -> None:
    assert {style.release for style in STYLES} == {"0.5.8", "0.5.12", "0.5.18", "0.5.23"}


@settings(max_examples=250, deadline=None)
@given(soups, places, st.sampled_from(("", "2026-11-29 00:00:00")))
def test_any_soup_tells_the_same_however_it_is_cut(soup: bytes, at: list[int], not_before: str) -> None:
    expected = state(read(soup, not_before=not_before))
    pieces = cut(soup, at)
    assert state(read(*pieces, not_before=not_before)) == expected
    assert state(read(*pieces, not_before=not_before, cursor=True)) == expected
    read(soup, not_before=not_before).report()
    assert "hunter2-hunter2" not in repr(expected)


@QUICK
@given(soup=soups, at=places, longest=st.sampled_from((32, 64, 150)), part=st.sampled_from((1, 40, 200)))
def test_long_lines_tell_the_same_however_they_are_cut(
    monkeypatch: pytest.MonkeyPatch, soup: bytes, at: list[int], longest: int, part: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(core, "_LONGEST", longest)
        patch.setattr(core, "_LEAST_PART", part)
        patch.setattr(core, "_PART", 3 * part)
        expected = state(read(soup))
        assert state(read(*cut(soup, at))) == expected
        assert len(read(soup).pending) <= longest


@QUICK
@given(st.binary(max_size=400), places)
def test_any_bytes_tell_the_same_however_they_are_cut(data: bytes, at: list[int]) -> None:
    assert state(read(*cut(data, at), cursor=True)) == state(read(data))


@QUICK
@given(soup=soups)
def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch, soup: bytes) -> None:
    with monkeypatch.context() as patch:
        for name, value in (("_RANKS", 2), ("_FAILURES", 2), ("_OPERATIONS", 1), ("_TRACE_LAST", 3)):
            patch.setattr(core, name, value)
        log = read(soup, soup, soup)
        told = state(log)
        assert len(told["ranks"]) <= 2
        assert len(told["broken"]) <= 2
        assert len(told["bars"]) <= 1
        assert len(told["profiled"]) <= 1
        assert all(len(one["lines"]) <= core._TRACE_FIRST + 3 for one in told["broken"])
        assert len(told["fragments"]) <= core._FRAGMENTS
        log.report()


# --- nothing before its time -----------------------------------------------------------------------------------------


def ends_of(data: bytes, tags: str, message: str) -> int:
    """Where the first whole record with this message ends, without its line's end."""
    space = b" " if tags else b""
    match = re.search(rb"\[[\d: .-]{19,23}" + space + tags.encode() + rb"\] " + re.escape(message.encode()), data)
    assert match
    return match.end()


@pytest.mark.parametrize("name", [*sorted(REAL), "tp8-0.5.12", "pp2-tp2-0.5.18", "dp4-attention-tp8-0.5.23"])
def test_no_beginning_of_a_good_log_tells_what_is_not_written_yet(name: str) -> None:
    data = everything()[name]
    tags, tuned = REAL[name] if name in REAL else (synthetic()[name][1], True)
    ready = ends_of(data, "", FIRED_UP)
    done = {tag: ends_of(data, "" if tag == "main" else tag, COMPLETED) for tag in tags} if tuned else {}
    # Every end of a line, some bytes around the lines that count, and places in between.
    places = {match.start() for match in re.finditer(rb"[\r\n]", data)} | set(range(0, len(data), 997))
    places |= {
        end + delta for end in (ready, *done.values()) for delta in (-40, -2, -1, 0, 1) if end + delta <= len(data)
    }
    log, at = StartupLog(), 0
    for place in sorted(places):
        log.feed(data[at:place])
        at = place
        told = log.report()
        assert (core.READY in told.main) == (place >= ready), place
        completed = {rank.tag for rank, one in told.ranks.items() if one.completed}
        assert completed == {tag for tag, end in done.items() if place >= end}, place
        assert told.failure is None
        assert told.suspect is None
        assert told.restarts == 0


@QUICK
@given(st.integers(0, 2**20), st.sampled_from(("tp1-0.5.8", "tp8-0.5.23", "h200x2-tp2-0.5.12.post1-cold-piecewise")))
def test_any_beginning_of_a_good_log_is_neither_ready_nor_failed(at: int, name: str) -> None:
    data = everything()[name]
    at %= data.index(FIRED_UP.encode())
    told = report(data[: at + len(FIRED_UP) - 1])
    assert core.READY not in told.main
    assert told.failure is None
    assert told.suspect is None


def test_a_good_start_after_a_failed_one_tells_nothing_of_it() -> None:
    first, second = one_of_eight_fails(), good(V0_5_12, ["TP0", "TP1"], tp_size=2)
    after = read(first, second)
    alone = state(read(second))
    assert state(after) == {**alone, "restarts": 1}
