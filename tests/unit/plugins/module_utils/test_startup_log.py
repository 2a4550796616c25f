# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a starting server's log says: every milestone of every release, whatever stands around it, and no other."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from startup_logs import (
    COMPLETED,
    FIRED_UP,
    REAL,
    RUNNING,
    SHAPES_DIFFER,
    SIGQUIT,
    TP8,
    V0_5_8,
    V0_5_12,
    V0_5_18,
    V0_5_23,
    Style,
    Writer,
    arguments,
    good,
    loaded,
    one_of_eight_fails,
    read,
    real,
    report,
    served,
    state,
    synthetic,
    tuning,
)

from ansible_collections.tokforge.sglang.plugins.module_utils import startup_failure
from ansible_collections.tokforge.sglang.plugins.module_utils import startup_log as core
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_log import RankState, Report, StartupLog

T = "2026-11-29 16:52:38"
SECRET = "sk-very-secret-value"


def rank(told: Report, tag: str) -> RankState:
    return {one.tag: one_state for one, one_state in told.ranks.items()}[tag]


def completed(told: Report) -> dict[str, int]:
    return {one.tag: one_state.completed for one, one_state in told.ranks.items() if one_state.completed}


def lines(*texts: str) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def tp(number: int, message: str, stamp: str = T) -> str:
    return f"[{stamp} TP{number}] {message}"


def failure(*texts: str) -> startup_failure.Failure:
    found = report(lines(*texts)).failure
    assert found is not None
    return found


# --- good starts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(REAL))
def test_a_real_start_tells_every_rank_and_its_own_end(name: str) -> None:
    tags, tuned = REAL[name]
    told = report(real(name))
    assert sorted(one.tag for one in told.ranks) == list(tags)
    assert {one.autotune for one in told.ranks.values()} == {core.COMPLETED if tuned else core.NONE}
    assert {core.WEIGHTS_LOADED, core.KV_CACHE} <= set.intersection(*(set(o.milestones) for o in told.ranks.values()))
    assert set(told.main) == {core.ARGUMENTS, core.LISTENING, core.READY}
    assert told.format == core.STANDARD
    assert told.failure is None
    assert told.suspect is None
    assert told.restarts == 0
    assert told.noise == {"import_errors": 3 * len(tags)}
    assert told.arguments["tp_size"] == len(tags)
    assert told.arguments["moe_runner_backend"] == "flashinfer_cutlass"


def test_a_real_start_tells_times_seconds_and_caches() -> None:
    told = report(real("h200x2-tp2-0.5.12.post1-cold"))
    first = rank(told, "TP0")
    assert first.milestones == {
        "weights_begun": "2026-11-29 21:39:34",
        "weights_loaded": "2026-11-29 21:39:34",
        "kv_cache": "2026-11-29 21:39:35",
        "autotune_started": "2026-11-29 21:39:35",
        "autotune_completed": "2026-11-29 21:40:38",
        "loaded": "2026-11-29 21:40:39",
    }
    assert first.weights_s == 0.13
    assert first.cache.endswith("/sm90/89d529c11517f865/rank_tp0_pp0_dp0.json")
    assert rank(told, "TP1").cache.endswith("/rank_tp1_pp0_dp0.json")
    assert told.main[core.READY] == "2026-11-29 21:41:07"
    assert told.profiling_s == 9.0
    assert told.cache == "autotune cache /opt/sglang/cache/sglang/flashinfer/autotune/0.6.11.post1: absent"


def test_a_real_start_with_piecewise_graphs_tells_their_capture_and_bars() -> None:
    told = report(real("h200x2-tp2-0.5.12.post1-cold-piecewise"))
    assert rank(told, "TP1").milestones["cuda_graphs_begun"] == "2026-11-29 16:52:38"
    assert rank(told, "TP1").milestones["cuda_graphs_captured"] == "2026-11-29 16:53:02"
    assert rank(told, "TP1").stage == rank(told, "TP0").stage == "warmup"
    assert told.progress is not None
    assert (told.progress.stage, told.progress.done, told.progress.total) == ("cuda_graphs", 58, 58)


@pytest.mark.parametrize("name", sorted(synthetic()))
def test_every_releases_tags_and_texts_are_told(name: str) -> None:
    data, tags = synthetic()[name]
    told = report(data)
    assert sorted(one.tag for one in told.ranks) == sorted(tags)
    for one in told.ranks.values():
        assert (one.started, one.completed, one.autotune) == (1, 1, core.COMPLETED)
        assert {core.GRAPHS_BEGUN, core.GRAPHS_CAPTURED, core.KV_CACHE, core.WEIGHTS_LOADED} <= set(one.milestones)
    assert sum(core.LOADED in one.milestones for one in told.ranks.values()) == 1
    assert set(told.main) == {core.ARGUMENTS, core.LISTENING, core.READY}
    assert (told.failure, told.suspect, told.restarts) == (None, None, 0)


@pytest.mark.parametrize(
    ("style", "order"),
    [
        (V0_5_8, [core.AUTOTUNE_COMPLETED, core.GRAPHS_BEGUN, core.GRAPHS_CAPTURED]),
        (V0_5_23, [core.GRAPHS_BEGUN, core.AUTOTUNE_COMPLETED, core.GRAPHS_CAPTURED]),
    ],
)
def test_autotune_is_told_before_the_capture_or_inside_of_it(style: Style, order: list[str]) -> None:
    milestones = rank(report(good(style, TP8)), "TP5").milestones
    assert sorted(order, key=milestones.__getitem__) == order


def test_milliseconds_stay_in_the_times() -> None:
    told = report(good(V0_5_18, TP8))
    assert told.main[core.READY].endswith(".042")
    assert rank(told, "TP3").milestones[core.KV_CACHE].endswith(".042")


def test_a_single_rank_has_no_tags() -> None:
    told = report(good(V0_5_12, [""]))
    assert completed(told) == {"main": 1}
    assert rank(told, "main").cache == "/opt/cache/89d529c1/rank_tp0_pp0_dp0.json"


@pytest.mark.parametrize(
    ("words", "tag"),
    [
        ("DP1 TP3 EP2 PP0", "DP1 PP0 TP3 EP2"),
        ("DP1 PP0 TP3 EP2", "DP1 PP0 TP3 EP2"),
        ("DP1 PP0 ATTN_CP1 MOE_DP0 TP3 EP2", "DP1 PP0 ATTN_CP1 MOE_DP0 TP3 EP2"),
        ("TP127", "TP127"),
    ],
)
def test_tags_are_read_in_every_order(words: str, tag: str) -> None:
    assert completed(report(lines(f"[{T} {words}] {COMPLETED}"))) == {tag: 1}


@pytest.mark.parametrize("words", ["TP1 TP2", "XP1", "TP01", "TP1234567", "tp1", "TP", " TP1", "TP1 "])
def test_what_is_no_tag_names_no_rank(words: str) -> None:
    told = report(lines(f"[{T} {words}] {COMPLETED}", f"[{T} {words}] {FIRED_UP}"))
    assert not told.ranks
    assert not told.main


def test_a_draft_model_is_a_second_pair_of_the_same_rank() -> None:
    writer = tuning(loaded(V0_5_18, TP8), TP8, TP8)
    assert "extra EXTEND pass" in writer.data.decode()
    writer.each(TP8, V0_5_18.weights_end).each(TP8, V0_5_18.kv_cache, label="draft ").each(TP8, V0_5_18.running)
    half = report(writer.each(TP8[:5], COMPLETED).data)
    assert {one.tag for one, one_state in half.ranks.items() if one_state.autotune == core.COMPLETED} == set(TP8[:5])
    assert rank(half, "TP7").autotune == core.STARTED
    whole = report(writer.each(TP8[5:], COMPLETED).data)
    assert completed(whole) == dict.fromkeys(TP8, 2)
    assert rank(whole, "TP7").weights_s == 0.26


def test_eight_completed_lines_of_one_rank_are_no_eight_ranks() -> None:
    told = report(tuning(loaded(V0_5_12, TP8), TP8, ["TP0"] * 8).data)
    assert completed(told) == {"TP0": 8}
    assert rank(told, "TP1").autotune == core.STARTED


def test_a_node_that_serves_nobody_is_ready_with_its_own_last_words() -> None:
    for words in ("Starting dummy health check server", "Dummy health check server started in background thread"):
        told = report(lines(f"[{T}] {words} at 0.0.0.0:30000"))
        assert told.main == {core.NODE_READY: T}
    assert report(lines(f"[{T}] Dummy health check server failed to start: x")).main == {}


def test_several_tokenizer_workers_write_the_ready_line_as_uvicorn_does() -> None:
    told = report(lines(f"[{T}] INFO:     {FIRED_UP}", f"[2026-11-29 16:59:59] INFO:     {FIRED_UP}"))
    assert told.main == {core.READY: T}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Load weight end. elapsed=12.5 s, type=X", 12.5),
        (
            "Load weight end. Committed real weights after CUDA graph capture in 3.25 s (capture overlap window 9.00 s",
            3.25,
        ),
        ("Load weight end. type=X, dtype=y, avail mem=1 GB", None),
        ("Load weight end. elapsed=" + "9" * 400 + " s, type=X", None),
    ],
)
def test_seconds_of_the_weights_are_read(text: str, seconds: float | None) -> None:
    told = rank(report(lines(tp(0, text))), "TP0")
    assert told.weights_s == seconds
    assert core.WEIGHTS_LOADED in told.milestones


@pytest.mark.parametrize(
    "text",
    [
        "KV Cache is allocated. #tokens: 1",
        "target draft KV Cache is allocated. dtype: x",
        "KV Cache VA upper bound. dtype: x",
        "KV Cache skipped (no-op pool). Logical #tokens: 1",
        "Post-capture KV sizing: KV cache allocated. dtype: x",
    ],
)
def test_every_text_of_the_kv_cache_is_told(text: str) -> None:
    assert list(rank(report(lines(tp(0, text))), "TP0").milestones) == [core.KV_CACHE]


@pytest.mark.parametrize(
    "name",
    ["cuda graph", "cpu graph", "piecewise CUDA graph", "target decode CUDA graph", "draft extend cuda graph",
     "single-CG draft extend", "Frozen-KV MTP draft cuda graph", "UNO tree draft CUDA graph"],
)  # fmt: skip
def test_every_kind_of_capture_is_told(name: str) -> None:
    told = rank(report(lines(tp(0, f"Capture {name} begin (step 1). x"), tp(0, f"Capture {name} end."))), "TP0")
    assert list(told.milestones) == [core.GRAPHS_BEGUN, core.GRAPHS_CAPTURED]


def test_lines_that_only_begin_like_a_milestone_are_none() -> None:
    told = report(
        lines(
            tp(0, "Capture cuda graph num tokens [4, 8]"),
            tp(0, "Capture cuda graph bs [1, 2]"),
            tp(0, "FlashInfer autotune completed. Really?"),
            tp(0, "FlashInfer autotune completed"),
            tp(0, "Running FlashInfer autotune later"),
            tp(0, f"He said: {COMPLETED}"),
            tp(0, FIRED_UP),
            f"[{T}] Not yet: {FIRED_UP}",
            f"[{T}] {FIRED_UP} Really?",
            FIRED_UP,
            COMPLETED,
        )
    )
    assert not told.ranks
    assert not told.main


def test_a_cache_is_named_also_where_its_reuse_is_off() -> None:
    off = "Running FlashInfer autotune (cache reuse DISABLED via SGLANG_FLASHINFER_AUTOTUNE_CACHE=0); writing to: /x"
    told = rank(report(lines(tp(0, off))), "TP0")
    assert (told.started, told.cache) == (1, "")
    long = rank(report(lines(tp(0, "Running FlashInfer autotune with cache: /" + "x" * 900 + "  "))), "TP0")
    assert len(long.cache) == 400


def test_arguments_that_another_process_wrote_behind_a_cache_keep_their_secrets() -> None:
    said = "Running FlashInfer autotune with cache: /xserver_args={'api_key': 'hunter2-hunter2', 'tp_size': 8}"
    told = rank(report(lines(tp(0, said))), "TP0")
    assert told.cache == "/xserver_args={'api_key': '<redacted>', 'tp_size': 8}"


# --- how lines are broken --------------------------------------------------------------------------------------------


def test_bars_and_records_share_a_line() -> None:
    drawn = "\r[AutoTuner]: Tuning trtllm::fused_moe::gemm1:  67%|\u2588\u2588   | 6/9 [00:07<00:02,  1.79profile/s]"
    told = report(f"{drawn}[{T} TP0] {COMPLETED}\n{drawn}{drawn}[{T} TP1] {COMPLETED}\n".encode())
    assert completed(told) == {"TP0": 1, "TP1": 1}
    assert told.progress == core.Bar("trtllm::fused_moe::gemm1", "autotune", 6, 9, 7.0)
    assert told.profiling_s == 7.0


def test_carriage_returns_end_lines() -> None:
    assert completed(report(f"[{T} TP0] {COMPLETED}\r[{T} TP1] {COMPLETED}\r\n".encode())) == {"TP0": 1, "TP1": 1}


def test_the_last_line_counts_without_an_end_and_is_not_counted_twice() -> None:
    log = read(f"[{T} TP0] {COMPLETED}".encode())
    assert completed(log.report()) == {"TP0": 1}
    assert completed(log.report()) == {"TP0": 1}
    log.feed(b"\n")
    assert completed(log.report()) == {"TP0": 1}


@pytest.mark.parametrize("at", [1, 3, 12, 21, 22, 25, 27, 28, 40, 55])
def test_a_record_that_another_one_breaks_off_counts_once_it_is_whole(at: int) -> None:
    broken, other = tp(0, COMPLETED), tp(1, COMPLETED)
    before = report(f"{broken[:at]}{other}\n".encode())
    assert completed(before) == {"TP1": 1}
    told = report(f"{broken[:at]}{other}\n{broken[at:]}\n".encode())
    # A head of which only the year's first figures are there is not known as one.
    assert completed(told) == ({"TP0": 1, "TP1": 1} if at > 11 else {"TP1": 1})


def test_records_broken_several_times_at_once_count() -> None:
    parts = tp(0, COMPLETED), tp(1, RUNNING), tp(2, COMPLETED)
    text = f"{parts[0][:30]}{parts[1][:33]}{parts[2]}\n{parts[1][33:]}\n{parts[0][30:]}\n"
    told = report(text.encode())
    assert completed(told) == {"TP0": 1, "TP2": 1}
    assert rank(told, "TP1").autotune == core.STARTED


def test_the_rest_of_a_broken_record_is_waited_for_only_some_lines() -> None:
    broken = tp(0, COMPLETED)
    for count, expected in ((10, 1), (30, 0)):
        text = broken[:40] + tp(1, "x") + "\n" + "y\n" * count + broken[40:] + "\n"
        assert completed(report(text.encode())).get("TP0", 0) == expected


def test_a_broken_ready_line_counts_once_it_is_whole() -> None:
    ready = f"[{T}] {FIRED_UP}"
    assert core.READY not in report(f"{ready[:40]}{tp(0, 'x')}\n".encode()).main
    assert core.READY in report(f"{ready[:40]}{tp(0, 'x')}\n{ready[40:]}\n".encode()).main


def test_zero_bytes_before_a_record_are_nothing() -> None:
    told = report(b"\0" * 100_000 + lines(tp(0, COMPLETED)) + b"\0" * 50 + lines(f"[{T}] {FIRED_UP}"))
    assert completed(told) == {"TP0": 1}
    assert told.main == {core.READY: T}
    assert not report(b"\0" * 1000).ranks


def test_invalid_utf8_and_unusual_line_separators_change_nothing() -> None:
    told = report(b"\xff\xfe\x80\n\xe2\x80" + lines(tp(0, COMPLETED)) + f"x\u2028[{T} TP1] {COMPLETED}\x85\n".encode())
    assert completed(told) == {"TP0": 1, "TP1": 1}


@pytest.mark.parametrize(
    "line",
    [
        f"\x1b[32m[{T} TP0] {COMPLETED}\x1b[0m",
        f"\x1b[1;31m[{T} TP0]\x1b[0m {COMPLETED}",
        f"[{T} TP0] \x1b[32m{COMPLETED}\x1b[0m",
        f"\x1b[A\x1b[2K[{T} TP0] {COMPLETED}",
    ],
)
def test_colours_change_nothing(line: str) -> None:
    assert completed(report(lines(line))) == {"TP0": 1}


def test_only_the_ends_of_a_line_without_end_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "_LONGEST", 256)
    log = StartupLog()
    for _number in range(200):
        log.feed(b"x" * 1000)
        assert len(log.pending) <= 256
    log.feed(f"[{T} TP0] {COMPLETED}\n".encode())
    assert completed(log.report()) == {"TP0": 1}
    middle = b"y" * 300 + f"[{T} TP1] {COMPLETED}".encode() + b"z" * 300 + b"\n"
    assert "TP1" not in completed(report(middle))
    assert not completed(read(*(middle[at : at + 1] for at in range(len(middle)))).report())


def test_no_word_arises_where_a_long_line_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "_LONGEST", 2 * 64)
    text = tp(0, COMPLETED).encode()
    for at in range(20, len(text)):
        for width in (63, 64):
            line = text[:at].rjust(64, b"x")[-64:] + b"?" * 500 + text[at:].ljust(width, b" ")
            assert not completed(report(line + b"\n"))


@pytest.mark.parametrize("size", [65536, 8 * 1024 * 1024])
def test_megabytes_without_a_newline_are_read_at_once(size: int) -> None:
    data = b"tactic %| Traceback [2026 " * (8 * 1024 * 1024 // 26)
    begun = time.perf_counter()
    log = read(*(data[at : at + size] for at in range(0, len(data), size)))
    log.feed(b"\n" + lines(tp(0, COMPLETED)))
    assert completed(log.report()) == {"TP0": 1}
    assert len(json.dumps(log.to_dict())) < 200_000
    assert time.perf_counter() - begun < 3


HOSTILE = {
    "blanks behind a cache": tp(0, "Running FlashInfer autotune with cache: x" + " " * 60_000 + "y"),
    "blanks behind autotune": tp(0, "Running FlashInfer autotune" + " " * 60_000 + "y"),
    "blanks behind completed": tp(0, COMPLETED + " " * 60_000 + "y"),
    "blanks before a request": " " * 60_000 + "server_args=",
    "requests": "Receive " * 8_000 + "server_args=",
    "events": "{" * 60_000 + "server_args=",
    "skipped tactics": "Skipping tactic " * 4_000,
    "skipped numbers": "Skipped " + "9" * 60_000 + " unsupported tactic(s)",
    "skips": "Skipped 1 unsupported tactic " * 2_000,
    "heads": f"[{T} TP0] " * 2_000,
    "half heads": "[2026-11-29 " * 5_000,
    "tags": f"[{T}" + " TP1" * 15_000 + "] " + COMPLETED,
    "tag": f"[{T} {'A' * 60_000}1] {COMPLETED}",
    "bars": "1%|" * 20_000 + " 1/2 [00:01<",
    "bar": "  1%|" + "#" * 60_000 + "| 1/2 [00:01<",
    "bar of blanks": "  1%||" + " " * 60_000 + "| 1/2 [00:01<",
    "percents": "100% Completed |" * 4_000,
    "quotes": f"'[{T} TP0] {COMPLETED}" + "'\\" * 30_000,
    "arguments": f"[{T}] server_args=ServerArgs(" + "tp_size='" * 7_000,
    "argument": f"[{T}] server_args=ServerArgs(tp_size=" + "9" * 60_000,
    "names": f"[{T}] server_args=ServerArgs(" + "x" * 60_000,
    "secrets": f"[{T}] server_args=ServerArgs(" + "api_key='" * 7_000 + '"' + "\\" * 5_000,
    "graphs": tp(0, "Capture " * 8_000 + " begin."),
    "labels": tp(0, "draft " * 10_000 + " KV Cache is allocated"),
    "launches": "tokforge: starting release x as process 1 " * 1_500,
    "launch": "tokforge: starting release x as process " + "1" * 60_000 + "y",
    "colours": "\x1b[" * 30_000 + "%| Traceback",
    "colour": "\x1b[" + "1;" * 30_000 + COMPLETED,
    "traceback": core._TRACEBACK + "x" * 60_000,
    "tracebacks": (core._TRACEBACK + "\n") * 1_800,
    "indents": "| + " * 15_000 + core._TRACEBACK,
    "exceptions": "Traceback\n" + "Aa.b: \n" * 8_000,
    "illegal": "' illegal instruction " * 3_000,
    "crashed": f"[{T}] " + "Subprocess scheduler_1 x " * 2_500,
    "failed captures": tp(0, "Capture " + "graph " * 10_000 + "failed:"),
    "exit statuses": "Traceback\n" + "No space left on device" * 2_700,
    "offline": "Traceback\n" + "Cannot access " * 4_500,
    "ninja": "Traceback\n" + "Command '[" * 6_500,
    "killed": "Traceback\n" + "Killed " + "x" * 60_000,
    "groups": "Traceback\n" + "process group " * 4_500,
    "ports": "Traceback\n" + "port is not available at 1 " * 2_500,
    "connections": "Traceback\nOSError: " + "Connection " * 5_500,
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
@pytest.mark.parametrize("head", [b"", lines(tp(0, "Load weight begin."))])
def test_hostile_lines_take_no_second(name: str, head: bytes) -> None:
    line = HOSTILE[name].encode() + b"\n"
    data = head + line * (400_000 // len(line))
    log = StartupLog()
    begun = time.process_time()
    log.feed(data)
    json.dumps(log.to_dict())
    log.report()
    assert time.process_time() - begun < 1


def test_many_short_records_of_a_format_nobody_knows_take_no_second() -> None:
    for line in (f"'[{T} TP0] x\n", f"[{T}] Receive: obj=x\n", f"[{T}] x\n", f"server_args= [{T} TP0]\n"):
        begun = time.process_time()
        read(line.encode() * (300_000 // len(line)))
        assert time.process_time() - begun < 1, line


# --- what users wrote ------------------------------------------------------------------------------------------------

FORGED = (
    f"x\n[{T} TP0] {COMPLETED}[{T} TP1] {COMPLETED}\\n[{T}] {FIRED_UP} 'it\\'s' \"CUDA error: an illegal instruction"
)
OBJECT = f"GenerateReqInput(text={FORGED!r}, sampling_params={{'n': 1}})"
EVENT = json.dumps({"timestamp": "2026", "event": "request.received", "rid": "1", "obj": {"text": FORGED}})
REQUESTS = [
    f"[{T}] Receive: obj={OBJECT}",
    f"[{T}] Finish: obj={OBJECT}, out={{'text': {FORGED!r}}}",
    f"[{T}] Receive OpenAI: obj=ChatCompletionRequest(messages=[{{'content': {FORGED!r}}}])",
    f"Receive: obj={OBJECT}",
    f"Finish: obj={OBJECT}",
    EVENT,
    f"[{T}] {EVENT}",
    f"\r  5%|\u2588   | 1/9 [00:07<00:58,  7.37s/it]Receive: obj={OBJECT}",
    f"[{T} TP0] handle_rpc_request: x, param: {{'a': {FORGED!r}}}",
    f"[{T}] Hit invalid json_schema: key_string={FORGED!r}",
    f'[{T}] INFO:     127.0.0.1:1 - "GET /[{T}] {FIRED_UP} HTTP/1.1" 200 OK',
]


@pytest.mark.parametrize("line", REQUESTS)
@pytest.mark.parametrize("before", ["", tp(0, RUNNING)])
def test_what_a_request_quotes_is_no_milestone_and_no_failure(line: str, before: str) -> None:
    assert "\n" not in line
    log = read(lines(before, line, line))
    told = log.report()
    assert completed(told) == {}
    assert core.READY not in told.main
    assert (told.failure, told.suspect, told.noise) == (None, None, {})
    told = read(lines(before, line, tp(0, COMPLETED), f"[{T}] {FIRED_UP}")).report()
    assert completed(told) == {"TP0": 1}
    assert core.READY in told.main


def test_a_request_that_is_longer_than_what_is_kept_quotes_as_well() -> None:
    line = f"[{T}] Receive: obj=GenerateReqInput(text='{'x' * 200_000} [{T} TP0] {COMPLETED}')\n".encode()
    assert not read(line).report().ranks
    assert not read(*(line[at : at + 9_973] for at in range(0, len(line), 9_973))).report().ranks


def test_an_apostrophe_hides_no_record() -> None:
    assert completed(report(f"can't do it[{T} TP0] {COMPLETED}\n".encode())) == {"TP0": 1}


# --- another format --------------------------------------------------------------------------------------------------


def custom(message: str) -> str:
    return json.dumps({"level": "INFO", "logger": "sglang", "message": message})


def test_a_format_of_its_own_is_counted() -> None:
    messages = [arguments(V0_5_12, tp_size=2), "Load weight end. x", RUNNING, RUNNING, COMPLETED, FIRED_UP]
    told = report(lines(*(custom(message) for message in messages)))
    assert told.format == core.CUSTOM
    assert told.counted == {
        "arguments": 1,
        "weights_loaded": 1,
        "autotune_started": 2,
        "autotune_completed": 1,
        "ready": 1,
    }
    assert not told.ranks
    assert not told.main
    assert told.arguments == {}


def test_records_of_others_do_not_hide_a_format_of_its_own() -> None:
    # Warnings before the format is set, uvicorn's records and logged requests have SGLang's head all the same.
    told = report(
        lines(
            "[2026-11-29 16:52:30,123] Auto-enabling FlashInfer AllReduce Fusion",
            custom(RUNNING),
            custom(COMPLETED),
            f"[{T}] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)",
            f"[{T}] Receive: obj={OBJECT}",
            custom(f"Receive: obj={OBJECT}"),
            custom(FIRED_UP),
        )
    )
    assert told.format == core.CUSTOM
    assert told.counted == {"autotune_started": 1, "autotune_completed": 1, "ready": 1}


def test_nothing_is_counted_once_a_rank_has_spoken() -> None:
    told = report(lines("x server_args= x", f"y {COMPLETED}", tp(0, "Init torch distributed begin."), f"z {COMPLETED}"))
    assert told.format == core.STANDARD
    assert told.counted == {}
    assert completed(told) == {}


def test_nothing_yet_is_no_format() -> None:
    assert report(b"").format == report(b"hello\n").format == core.UNKNOWN


def test_a_second_start_in_another_format_counts_anew() -> None:
    first = [custom(text) for text in (arguments(V0_5_12), COMPLETED, FIRED_UP)]
    told = report(lines(*first, custom(arguments(V0_5_12)), custom(RUNNING)))
    assert told.counted == {"arguments": 1, "autotune_started": 1}
    assert told.restarts == 1


# --- restarts and times ----------------------------------------------------------------------------------------------


def test_the_arguments_of_a_second_start_forget_the_first() -> None:
    writer = Writer(parts=[one_of_eight_fails().decode()], clock=600)
    told = report(writer.record(arguments(V0_5_12, tp_size=4)).data)
    assert told.restarts == 1
    assert (told.failure, told.suspect, dict(told.ranks), told.progress, told.profiling_s) == (None, None, {}, None, 0)
    assert told.arguments["tp_size"] == 4


@pytest.mark.parametrize(
    "before",
    [good(V0_5_12, TP8), one_of_eight_fails(), lines(f"x{core._TRACEBACK}", core._TRACEBACK, "ValueError: x"),
     lines(custom(FIRED_UP)), lines(tp(0, COMPLETED)), lines("tokforge: starting release 2 as process 4700")],
)  # fmt: skip
def test_the_launchers_line_forgets_what_was_before(before: bytes) -> None:
    told = report(before + b"tokforge: starting release 3 as process 4711\n")
    assert (told.restarts, dict(told.main), dict(told.ranks), told.failure, told.suspect) == (1, {}, {}, None, None)
    assert told.format == core.UNKNOWN


def test_the_first_launchers_line_is_no_restart() -> None:
    told = report(
        lines(
            "tokforge: starting release 3 as process 4711",
            "tokforge: autotune cache /opt/cache: partial (tp0 of 2 ranks), kept",
        )
        + good(V0_5_12, TP8)
    )
    assert told.restarts == 0
    assert told.cache == "autotune cache /opt/cache: partial (tp0 of 2 ranks), kept"
    assert core.READY in told.main


def test_a_quoted_launchers_line_is_no_restart() -> None:
    for line in ('x "tokforge: starting release 3 as process 4711', "tokforge: starting release 3 as process 4711 x"):
        assert report(good(V0_5_12, TP8) + lines(line)).restarts == 0


def test_what_is_older_than_the_start_is_another_starts() -> None:
    old = [arguments(V0_5_12, tp_size=8), *(tp(number, COMPLETED, "2026-11-28 10:00:00") for number in range(8))]
    yesterday = lines(
        f"[2026-11-28 10:00:00] {old[0]}",
        *old[1:],
        "[2026-11-28 10:00:01 TP0] " + SHAPES_DIFFER.rstrip(),
        core._TRACEBACK,
        "ValueError: old",
        "illegal instruction",
        "  67%|###   | 6/9 [00:07<00:02,  1.79profile/s]",
        tp(0, "Skipping tactic A 1, due to failure while profiling: x", "2026-11-28 10:00:02"),
        f"[2026-11-28 10:00:03] {FIRED_UP}",
    )
    told = report(yesterday, not_before="2026-11-29 00:00:00")
    assert (dict(told.ranks), dict(told.main), told.failure, told.suspect) == ({}, {}, None, None)
    assert (told.noise, told.progress, told.restarts) == ({}, None, 0)
    told = report(yesterday + lines(tp(3, COMPLETED), "Skipping tactic A 1, due to failure while profiling: x"),
                  not_before="2026-11-29 00:00:00")  # fmt: skip
    assert completed(told) == {"TP3": 1}
    assert told.noise == {"skipped_tactics": 1}


def test_a_time_with_a_comma_is_compared_as_one_with_a_point() -> None:
    told = report(lines(f"[2026-11-29 16:52:38,500 TP0] {COMPLETED}"), not_before="2026-11-29 16:52:38.400")
    assert rank(told, "TP0").milestones == {core.AUTOTUNE_COMPLETED: "2026-11-29 16:52:38.500"}


# --- noise -----------------------------------------------------------------------------------------------------------


def test_five_hundred_skipped_tactics_are_no_failure() -> None:
    writer = loaded(V0_5_12, TP8).each(TP8, RUNNING)
    skipped = (
        "2026-11-29 16:52:38,123 - DEBUG - autotuner.py:834 - flashinfer.jit: [Autotuner]: Skipping tactic"
        " <MoERunner> {}, due to failure while profiling: CUDA error: an illegal instruction was encountered\n"
    )
    for number in range(500):
        writer.raw(skipped.format(number))
    told = report(served(writer.each(TP8, COMPLETED), TP8).data)
    assert told.noise == {"skipped_tactics": 500}
    assert (told.failure, told.suspect) == (None, None)
    assert core.READY in told.main


def test_noise_behind_a_bar_and_in_records_is_counted_too() -> None:
    drawn = "\r 10%|#  | 1/9 [00:01<00:09]"
    told = report(
        lines(
            f"{drawn}[{T} TP0] Skipped 12 unsupported tactic(s) for gemm",
            tp(1, "[Autotuner]: OOM detected, falling back to default tactic"),
        )
    )
    assert told.noise == {"unsupported_tactics": 12, "tuning_out_of_memory": 1}
    assert told.failure is None


# --- failures --------------------------------------------------------------------------------------------------------


def test_one_rank_of_eight_fails_while_the_others_were_done() -> None:
    told = report(one_of_eight_fails())
    assert told.failure is not None
    assert (told.failure.reason, told.failure.rank, told.failure.stage) == ("exception", "TP2", "autotune")
    assert told.failure.excerpt[0] == "Scheduler hit an exception: Traceback (most recent call last):"
    assert told.failure.excerpt[-1].startswith("RuntimeError: The size of tensor a (4096) must match")
    assert len(told.failure.excerpt) == 9
    assert told.incomplete is False
    assert completed(told) == {tag: 1 for tag in TP8 if tag != "TP2"}
    assert rank(told, "TP2").autotune == core.STARTED


def test_a_traceback_is_incomplete_until_its_last_line_is_there() -> None:
    text = lines(tp(2, SHAPES_DIFFER.rstrip())).decode().splitlines(keepends=True)
    for count in range(1, len(text)):
        assert report("".join(text[:count]).encode()).incomplete is True
    assert report("".join(text).encode()).incomplete is False


def test_the_cause_comes_first_though_other_ranks_spoke_before() -> None:
    lost = (
        "Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\n'
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
    )
    found = failure(tp(0, lost), tp(1, lost), tp(5, SHAPES_DIFFER.rstrip()), f"[{T}] {SIGQUIT}")
    assert found.rank == "TP5"
    assert found.excerpt[-1].startswith("RuntimeError: The size of tensor")
    assert failure(tp(0, lost), f"[{T}] {SIGQUIT}").rank == "TP0"


def test_a_child_that_said_nothing_is_a_dead_rank() -> None:
    found = failure(tp(0, RUNNING), f"[{T}] {SIGQUIT}")
    assert (found.reason, found.rank, found.stage) == ("rank_dead", "main", "autotune")


def test_what_the_child_wrote_bare_explains_its_death() -> None:
    found = failure(
        core._TRACEBACK, '  File "x.py", line 1, in f', "ValueError: no such quantization", f"[{T}] {SIGQUIT}"
    )
    assert (found.reason, found.rank) == ("exception", "main")
    assert found.excerpt[-1] == "ValueError: no such quantization"


EOF = (core._TRACEBACK, '  File "multiprocessing/connection.py", line 399, in _recv', "EOFError")
DEAD_OLD = (f"[{T}] Rank 3 scheduler is dead. Please check if there are relevant logs.",)
DEAD_NEW = (
    *EOF,
    "",
    "During handling of the above exception, another exception occurred:",
    "",
    core._TRACEBACK,
    '  File "x.py", line 1, in f',
    "RuntimeError: Rank 3 scheduler died during initialization (exit code: {}). If exit code is -9 (SIGKILL), a common"
    " cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.",
)


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (DEAD_OLD, "rank_dead"),
        ((*DEAD_OLD, f"[{T}] Exit code: 1", *EOF), "rank_dead"),
        ((*DEAD_OLD, f"[{T}] Exit code: -9", *EOF), "oom_host"),
        ([text.format(1) for text in DEAD_NEW], "rank_dead"),
        ([text.format(-9) for text in DEAD_NEW], "oom_host"),
        ([f"[{T}] Subprocess scheduler_3 (pid=77) crashed with exit code -9."], "oom_host"),
        ([f"[{T}] Subprocess scheduler_3 (pid=77) crashed with exit code 1. Triggering SIGQUIT"], "rank_dead"),
    ],
)  # fmt: skip
def test_the_main_process_names_a_dead_rank_by_its_number(texts: list[str], reason: str) -> None:
    told = report(lines(*texts))
    found = told.failure or told.suspect
    assert found is not None
    assert (found.reason, found.rank) == (reason, "rank 3")
    assert report(lines(*texts, f"[{T}] {SIGQUIT}")).failure == found


def raised(*last: str, tag: str = "TP2") -> startup_failure.Failure:
    return failure(
        f"[{T} {tag}] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "x.py", line 1, in f',
        "    g()",
        *last,
        f"[{T}] {SIGQUIT}",
    )


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."], "oom_cuda"),
        (["RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."], "oom_cuda"),
        (["ValueError: Unsupported architecture: Got SM120, want SM100"], "unsupported_architecture"),
        (["torch.AcceleratorError: CUDA error: an illegal instruction was encountered"], "illegal_instruction"),
        (["RuntimeError: cudaErrorIllegalInstruction"], "illegal_instruction"),
        (["RuntimeError: Ninja build failed. Ninja output:", "ninja: Entering directory", "[1/9] nvcc x.cu",
          "ninja: build stopped: subcommand failed."], "compile_failure"),
        (["RuntimeError: Ninja build failed. Ninja output:", "ninja: Entering directory", *["[1/9] nvcc x.cu"] * 200,
          "FAILED: x.o", "nvcc error   : 'cicc' died due to signal 9 (Kill signal)", *["x"] * 90], "oom_host"),
        (["Exception: Capture cuda graph failed: invalid argument", "Possible solutions:", "1. set x"],
         "graph_capture_failure"),
        (["Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 2.00 GiB."], "oom_cuda"),
        (["OSError: We couldn't connect to 'https://huggingface.co' to load the files"], "hub_offline"),
        (["zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:1')"], "port_in_use"),
        (["KeyError: 'x'"], "exception"),
        (["x.Y: " + "z" * 900 + " CUDA out of memory"], "oom_cuda"),
    ],
)  # fmt: skip
def test_a_traceback_tells_its_reason(last: list[str], reason: str) -> None:
    found = raised(*last)
    assert (found.reason, found.rank) == (reason, "TP2")
    assert found.hint == startup_failure.HINTS[reason]
    assert all(len(line) <= 400 for line in found.excerpt)


def test_an_excerpt_ends_with_the_exception_and_not_with_what_came_after() -> None:
    found = raised("ValueError: x", "some other process says this", "and this")
    assert found.excerpt[-1] == "ValueError: x"
    bars = raised(
        "    h()", "\r  0%|          | 0/58 [00:00<?, ?it/s]", "ValueError: x", "\r  1%|   | 1/58 [00:00<?, ?it/s]"
    )
    assert [line for line in bars.excerpt if "it/s" in line] == []
    assert bars.excerpt[-1] == "ValueError: x"


def test_a_long_traceback_keeps_its_ends() -> None:
    frames = [f'  File "x.py", line {number}, in f' for number in range(300)]
    found = raised(*frames, "ValueError: x")
    assert len(found.excerpt) == core._TRACE_FIRST + core._TRACE_LAST + 1
    assert found.excerpt[core._TRACE_FIRST] == "... 262 lines left out ..."
    assert found.excerpt[-1] == "ValueError: x"
    assert found.excerpt[-2] == frames[-1]


def test_a_traceback_that_never_ends_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "_TRACE_LINES", 10)
    log = read(lines(tp(0, "Scheduler hit an exception: Traceback (most recent call last):"), *["  x"] * 50))
    assert log.broken[0].open is False
    assert log.broken[0].total <= 12


def test_a_chain_of_exceptions_is_one_failure() -> None:
    found = raised(
        "ValueError: Got SM120",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        core._TRACEBACK,
        '  File "y.py", line 1, in g',
        "RuntimeError: no kernel",
    )
    assert found.reason == "unsupported_architecture"
    assert found.excerpt[-1] == "RuntimeError: no kernel"


def test_records_of_others_inside_a_traceback_do_not_end_it() -> None:
    text = SHAPES_DIFFER.rstrip().split("\n")
    found = failure(tp(2, text[0]), *text[1:4], tp(1, "Load weight begin. x"), f"[{T}] hello", *text[4:])
    assert found.rank == "TP2"
    assert found.excerpt[-1] == text[-1]


def test_tracebacks_of_two_ranks_that_interrupt_each_other_are_both_read() -> None:
    head = "Scheduler hit an exception: Traceback (most recent call last):"
    text = [tp(0, head), "  File a", tp(1, head), "  File b", "ValueError: of TP1", "ValueError: of TP0"]
    told = report(lines(*text, f"[{T}] {SIGQUIT}"))
    assert told.failure is not None
    assert (told.failure.rank, told.failure.excerpt[-1]) == ("TP0", "ValueError: of TP0")
    assert told.incomplete is False
    assert told.broke == {"TP0", "TP1", "main"}


def test_a_group_of_exceptions_is_one_failure() -> None:
    head = "Scheduler hit an exception:   + Exception Group Traceback (most recent call last):"
    found = failure(
        tp(0, head),
        "  | ExceptionGroup: unhandled (1 sub-exception)",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        "    |   File y",
        "    | ValueError: Got SM120",
        "    +------------------------------------",
    )
    assert (found.reason, found.rank) == ("unsupported_architecture", "TP0")


def test_a_warning_that_speaks_of_illegal_instructions_is_none() -> None:
    told = report(lines("x.py:1: UserWarning: illegal instruction", f"[{T}] He said: 'illegal instruction'"))
    assert (told.failure, told.suspect) == (None, None)


def test_illegal_instruction_after_running_is_told_bare_and_as_a_record() -> None:
    for line in (
        "CUDA error: an illegal instruction was encountered",
        f"[{T} TP3] x: Illegal instruction (core dumped)",
    ):
        found = failure(tp(3, RUNNING), line)
        assert (found.reason, found.stage) == ("illegal_instruction", "autotune")
    assert found.rank == "TP3"


def test_a_server_that_is_ready_is_not_failed_by_words_or_by_a_request() -> None:
    data = good(V0_5_12, TP8) + lines(
        "an illegal instruction", f"[{T}] Model attempted to call undefined function: illegal instruction",
        f"[{T}] Error in request: x", core._TRACEBACK, "ValueError: x", f"[{T}] hello",
        "Exception ignored in: <f>", core._TRACEBACK, "OSError: x", "Fatal Python error: x",
    )  # fmt: skip
    told = report(data)
    assert (told.failure, told.suspect) == (None, None)


def test_a_server_that_dies_after_it_was_ready_has_failed() -> None:
    told = report(good(V0_5_12, TP8) + lines(tp(4, SHAPES_DIFFER.rstrip())))
    assert told.failure is not None
    assert told.failure.rank == "TP4"


@pytest.mark.parametrize(
    "line",
    [
        f"[{T}] ERROR:    [Errno 98] error while attempting to bind on address ('::', 30000): address already in use",
        f"[{T}] ERROR:    [errno 98] error while attempting to bind on address ('::', 1): address already in use",
        f"[{T}] Port is already in use. dist_init_port=1 port_base=2",
    ],
)  # fmt: skip
def test_a_port_in_use_is_told_from_one_record(line: str) -> None:
    found = failure(tp(0, "max_total_num_tokens=1"), line)
    assert (found.reason, found.rank) == ("port_in_use", "main")


def test_a_capture_that_failed_is_told_from_one_record() -> None:
    assert failure(tp(1, "Capture prefill CUDA graph failed: x")).reason == "graph_capture_failure"
    assert (
        failure(f"[{T}] Initialization failed. warmup error: Traceback (most recent call last):").reason == "exception"
    )


def test_a_bare_traceback_is_only_suspect_until_a_milestone_shows_that_the_server_lived_on() -> None:
    bare = [
        core._TRACEBACK,
        '  File "x.py", line 1, in f',
        "OfflineModeIsEnabled: Cannot reach x: offline mode is enabled",
    ]
    told = report(lines(*bare))
    assert told.failure is None
    assert told.suspect is not None
    assert (told.suspect.reason, told.suspect.rank, told.suspect.stage) == ("hub_offline", "", "boot")
    for line in (f"[{T}] {arguments(V0_5_12)}", tp(0, "Load weight begin. x"), f"[{T}] {FIRED_UP}"):
        assert report(lines(*bare, line)).suspect is None
    assert report(lines(*bare, f"[{T}] hello", "hello")).suspect == told.suspect


def test_a_bare_traceback_behind_a_bar_is_seen() -> None:
    told = report(f"\r 10%|#  | 1/9 [00:01<00:09, 1it/s]{core._TRACEBACK}\n  File x\nValueError: Got SM120\n".encode())
    assert told.suspect is not None
    assert told.suspect.reason == "unsupported_architecture"
    assert told.suspect.excerpt[0] == core._TRACEBACK


@pytest.mark.parametrize("first", ["Exception ignored in: <function f at 0x1>", "Error in atexit._run_exitfuncs:"])
def test_a_traceback_that_ends_nothing_is_no_failure(first: str) -> None:
    told = report(lines(tp(0, RUNNING), first, core._TRACEBACK, '  File "x.py", line 1', "OSError: x", "hello"))
    assert (told.failure, told.suspect) == (None, None)


def test_a_crash_of_the_interpreter_is_suspect() -> None:
    for line, reason in (
        ("Fatal Python error: Segmentation fault", "rank_dead"),
        ("Fatal Python error: Illegal instruction", "illegal_instruction"),
        ("terminate called after throwing an instance of 'c10::Error'", "rank_dead"),
    ):
        told = report(lines(tp(0, RUNNING), line, "", "Current thread 0x1 (most recent call first):", '  File "x.py"'))
        assert told.suspect is not None
        assert (told.suspect.reason, told.suspect.stage) == (reason, "autotune")


def test_the_stage_of_an_unnamed_failure_is_the_slowest_ranks() -> None:
    assert failure(tp(0, COMPLETED), tp(1, "Load weight begin. x"), f"[{T}] {SIGQUIT}").stage == "weights"


def test_only_the_first_failures_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "_FAILURES", 2)
    bare = [core._TRACEBACK, "  x", "ValueError: bare", "y"]
    log = read(lines(*bare, *(tp(number, SHAPES_DIFFER.rstrip()) for number in range(5))))
    assert [one.rank for one in log.broken] == ["TP0", "TP1"]


@pytest.mark.parametrize(
    ("latest", "stage"),
    [
        ("Init torch distributed begin.", "boot"),
        ("Load weight begin. x", "weights"),
        ("Load weight end. x", "kv_cache"),
        ("KV Cache is allocated. x", "kv_cache"),
        (RUNNING, "autotune"),
        (COMPLETED, "autotuned"),
        ("Capture cuda graph begin. x", "cuda_graphs"),
        ("Capture cuda graph end. x", "warmup"),
        ("max_total_num_tokens=1", "warmup"),
    ],
)
def test_a_rank_is_at_what_its_latest_milestone_says(latest: str, stage: str) -> None:
    assert failure(tp(0, latest), tp(0, SHAPES_DIFFER.rstrip())).stage == stage


def test_a_rank_whose_second_pass_runs_is_at_autotune() -> None:
    assert RankState(latest=core.AUTOTUNE_COMPLETED, started=2, completed=1).stage == "autotune"
    assert RankState(latest=core.AUTOTUNE_COMPLETED, started=0, completed=1).autotune == core.COMPLETED


# --- the server's own arguments --------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", [V0_5_12, V0_5_23])
def test_arguments_are_read_from_both_forms(style: Style) -> None:
    told = report(
        lines(f"[{T}] " + arguments(style, tp_size=8, quantization="fp8", attn_dp_size=4, speculative_algorithm=None))
    )
    assert told.arguments == {
        "device": "cuda",
        "tp_size": 8,
        "pp_size": 1,
        "dp_size": 1,
        "ep_size": 1,
        "nnodes": 1,
        "node_rank": 0,
        "enable_dp_attention": False,
        "moe_runner_backend": "flashinfer_cutlass",
        "disable_flashinfer_autotune": False,
        "quantization": "fp8",
        "attn_dp_size": 4,
        "speculative_algorithm": None,
    }


def test_arguments_of_a_rank_are_not_the_servers() -> None:
    assert report(lines(tp(0, arguments(V0_5_12, tp_size=8)))).arguments == {}


@pytest.mark.parametrize(
    "written",
    [
        f"api_key='{SECRET}'",
        f"admin_api_key='{SECRET}'",
        f"'api_key': '{SECRET}'",
        f"'api_key': \"it's {SECRET}\"",
        f"api_key='it\\'s {SECRET}'",
        f"api_key='a\"{SECRET}'",
        f"ssl_keyfile_password='{SECRET}'",
        f'"api_key": "{SECRET}"',
        f"'password': '{SECRET}'",
    ],
)
def test_no_secret_of_the_arguments_is_remembered(written: str) -> None:
    line = f"[{T}] server_args=ServerArgs(tp_size=2, {written}, device='cuda')"
    cases = [
        line,
        line + "\n",
        f"{line}[{T} TP0] Load weight begin. x\n",
        f"[{T} TP0] Scheduler hit an exception: Traceback (most recent call last):\n{written}\nValueError: {written}\n",
        f"tokforge: autotune cache x: {written}\n",
        f"{core._TRACEBACK}\n    {written}\nValueError: {written}",
    ]
    for text in cases:
        data = text.encode()
        assert SECRET not in everything(read(data))
        for at in range(0, len(data), 3):
            for pieces in ((data[:at],), (data[:at], data[at:])):
                log = read(*pieces, cursor=True)
                shown = everything(log)
                assert SECRET not in shown
                assert SECRET[8:] not in shown or at > data.index(SECRET.encode())
    whole = read(line.encode()[:60], line.encode()[60:] + b"\n", cursor=True)
    assert whole.report().arguments == {"tp_size": 2, "device": "cuda"}


def everything(log: StartupLog) -> str:
    """All that a cursor holds, in clear, and what is reported."""
    import base64

    told = state(log)
    told["pending"] = base64.b64decode(told["pending"]).decode("utf-8", "replace")
    return repr((told, log.report()))


# --- the cursor ------------------------------------------------------------------------------------------------------


def test_what_is_remembered_is_small() -> None:
    for name in REAL:
        assert len(json.dumps(read(real(name)).to_dict())) < 6_000


def changed(**values: Any) -> dict[str, Any]:
    return {**state(read(one_of_eight_fails())), **values}


@pytest.mark.parametrize(
    "data",
    [
        {},
        None,
        [],
        "x",
        changed(schema=2),
        changed(pending="?"),
        changed(pending=None),
        changed(ranks={"TP0 TP1": {}}),
        changed(ranks={"TP0": {"nothing": 1}}),
        changed(ranks=[]),
        changed(ranks={"TP0": None}),
        changed(broken=[{}]),
        changed(broken=1),
        changed(bars={"x": {}}),
        changed(restarts="x"),
        changed(main=None),
    ],
)
def test_what_was_never_remembered_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"schema|earlier look|no rank|base64|Only|padding|literal|sequence"):
        StartupLog.from_dict(data)


def test_seconds_between_times_with_and_without_milliseconds() -> None:
    assert core.seconds_between("2026-11-29 16:52:38", "2026-11-29 16:53:38.250") == 60.25
    assert core.seconds_between("2026-11-29 16:52:38", "never") is None
    assert core.seconds_between("2026-99-99 16:52:38", "2026-11-29 16:52:38") is None


def test_a_bars_clock_has_hours_or_not() -> None:
    for text, seconds in (("00:07", 7.0), ("01:02", 62.0), ("1:00:05", 3605.0)):
        told = report(f"\r[AutoTuner]: Tuning x: 10%|# | 1/9 [{text}<00:09, 1it/s]\n".encode())
        assert told.profiling_s == seconds


def test_a_bar_without_a_name_is_none() -> None:
    assert report(b"\r  0%|          | 0/58 [00:00<?, ?it/s]\n").progress is None


def test_bars_belong_to_stages() -> None:
    for op, stage in (
        ("Loading safetensors checkpoint shards", "weights"),
        ("Capturing batches (bs=8 avail_mem=67.90 GB)", "cuda_graphs"),
        ("[AutoTuner]: Tuning gemm", "autotune"),
        ("DeepGEMM warmup", ""),
    ):
        told = report(f"\r{op}:  50%|##  | 1/2 [00:01<00:01, 1it/s]\n".encode())
        assert told.progress is not None
        assert told.progress.stage == stage
