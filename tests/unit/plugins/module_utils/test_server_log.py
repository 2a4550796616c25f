# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is shown of the server's log: bounded, safe, without noise, and always with what went wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import log_follow, server_log


def tail(position: log_follow.LogPosition, secrets: Sequence[str] = ()) -> list[str]:
    return list(server_log.excerpt(position, secrets).lines)


def position(path: Path) -> log_follow.LogPosition:
    return log_follow.position_now(str(path))


def test_tail_is_what_was_written_since(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("old\n")
    here = position(log)
    assert tail(here) == []
    with log.open("a") as stream:
        stream.write("new 1\nnew 2")
    assert tail(here) == ["new 1", "new 2"]


def test_tail_of_a_log_that_did_not_exist(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    here = position(log)
    assert tail(here) == []
    log.write_text("a\n")
    assert tail(here) == ["a"]


def test_tail_follows_a_rename_to_any_number(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("old\n")
    here = position(log)
    with log.open("a") as stream:
        stream.write("before\n")
    log.rename(tmp_path / "server.log.2")
    (tmp_path / "server.log.1").write_text("of another time\n")
    os.utime(tmp_path / "server.log.1", (1, 1))
    log.write_text("after\n")
    assert tail(here) == ["before", "after"]


def test_tail_of_a_log_whose_rotated_part_is_gone(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("x" * 100)
    here = log_follow.LogPosition(str(log), inode=position(log).inode + 1, offset=50)
    assert tail(here) == ["x" * 100]


def test_tail_after_truncation_starts_over(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("x" * 100)
    here = position(log)
    os.truncate(log, 0)
    with log.open("a") as stream:
        stream.write("new\n")
    assert tail(here) == ["new"]


def test_tail_is_bounded_and_safe_to_show(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    lines = [f"line {number}" for number in range(200)]
    text = "\n".join(lines) + "\n\x1b[31mred\x1b[0m\x00\n 10%|#\r 20%|##\nkey canary-secret end\n" + "y" * 5000 + "\n"
    log.write_bytes(text.encode() + b"\xff\xfe bad\n")
    shown = tail(log_follow.LogPosition(str(log)), secrets=["canary-secret", "10%"])
    assert len(shown) == 50
    assert shown[-6:-2] == ["red", " 10%|#", " 20%|##", "key <redacted> end"]
    assert len(shown[-2]) == 400 and shown[-2].endswith(" ...")
    assert shown[-1].endswith("bad")


def test_tail_of_a_huge_log_reads_only_its_end(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with log.open("wb") as stream:
        stream.truncate(5_000_000_000)
        stream.seek(0, 2)
        stream.write(b"\nlast\n")
    began = time.monotonic()
    assert tail(log_follow.LogPosition(str(log)))[-1] == "last"
    assert time.monotonic() - began < 1


def written(directory: Path, lines: Sequence[str]) -> server_log.Excerpt:
    log = directory / "server.log"
    log.write_text("\n".join(lines) + "\n")
    return server_log.excerpt(log_follow.LogPosition(str(log)))


def test_secret_cut_in_half_by_the_reading_limit_does_not_show(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    secret = "canary-0123456789"
    rest = "\nlast line " + "x" * 50 + "\n"
    # The limit falls into the middle of the secret.
    half = " end of the long line" + rest
    filler = "y" * (server_log.READ_BYTES - len(half) - len(secret) // 2)
    log.write_text("a" * 100 + secret + filler + half)
    shown = "\n".join(tail(log_follow.LogPosition(str(log)), [secret]))
    assert "last line" in shown and "0123" not in shown and "456789" not in shown


def test_secret_with_control_characters_inside_is_found(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("key canary\x00-01\x1b[0m23456789 end\n")
    assert tail(log_follow.LogPosition(str(log)), ["canary-0123456789"]) == ["key <redacted> end"]


def test_what_moves_text_on_a_terminal_is_removed() -> None:
    raw = "a\x1b]0;title\x07b\u202ec\x9b\u200bd\x1b[2Ke".encode()
    assert server_log.clean(raw) == ["abcde"]


def test_record_that_begins_inside_a_line_gets_its_own() -> None:
    raw = b"Tuning: 67%|##| 6/9[2026-02-19 05:56:28 DP0 TP3 EP3] CUDA out of memory [1] x"
    assert server_log.clean(raw) == [
        "Tuning: 67%|##| 6/9",
        "[2026-02-19 05:56:28 DP0 TP3 EP3] CUDA out of memory [1] x",
    ]


BENIGN = """\
[2026-11-29 18:36:21] Ignore import error when loading sglang.srt.models.grok: no attribute 'x'
[2026-11-29 18:36:21 TP1] Skipping tactic trtllm::fused_moe::gemm1 14, due to failure while profiling: CUDA error: x
[Autotuner]: Skipped 12 unsupported tactic(s) for trtllm::fused_moe::gemm1
OOM detected, falling back to default tactic
site-packages/sglang/launch_server.py:71: UserWarning: 'python -m sglang.launch_server' is still supported
  Example: sglang serve --model-path <model> [options]
  warnings.warn(
site-packages/torchao/quantization/quant_api.py:1731: SyntaxWarning: invalid escape sequence
  EXPERT_PATTERN = re.compile(x)
site-packages/fastapi/routing.py:161: FastAPIDeprecationWarning: ORJSONResponse is deprecated
  return await original_handler(request)
nanobind: leaked 4 instances!
 - leaked instance 0x7fbf331a32c8 of type "triton._C.libtriton.ir.attribute"
nanobind: leaked 64 types!
 - leaked type "ATOMIC_OP"
nanobind: leaked 518 functions!
 - leaked function ""
 - ... skipped remainder
nanobind: this is likely caused by a reference counting issue in the binding code.
See https://nanobind.readthedocs.io/en/latest/refleaks.html
[2026-11-29 18:40:02] INFO:     127.0.0.1:40674 - "GET /health HTTP/1.1" 503 Service Unavailable
[2026-11-29 18:40:04] INFO:     127.0.0.1:58950 - "GET /v1/models HTTP/1.1" 200 OK""".splitlines()

MEANT = """\
[2026-11-29 18:36:22] Load weight begin. avail mem=21.48 GB
[2026-11-29 18:36:22] Capture cuda graph failed: CUDA out of memory. Tried to allocate 2.00 GiB
[2026-11-29 18:40:04] INFO:     127.0.0.1:58950 - "GET /health HTTP/1.1" 500 Internal Server Error
[2026-11-29 18:40:04] INFO:     10.0.0.7:58950 - "POST /generate HTTP/1.1" 200 OK
ImportError: cannot import name 'x'
  indented, but below no warning
RuntimeError: x.py:12: UserWarning: turned into an error
See https://docs.example/other.html
launch.py: cannot read launch.json: x""".splitlines()


@pytest.mark.parametrize("line", MEANT)
def test_line_that_says_something_stays(line: str) -> None:
    assert server_log.without_benign([line]) == ([line], 0)


def test_benign_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    mixed = [line for pair in zip(BENIGN, MEANT[:1] * len(BENIGN)) for line in pair]
    assert written(tmp_path, BENIGN) == server_log.Excerpt((), benign=len(BENIGN))
    # Only lines directly below a warning belong to it.
    alone = ("  Example: sglang serve --model-path <model> [options]", "  EXPERT_PATTERN = re.compile(x)")
    found = written(tmp_path, mixed)
    assert [line for line in found.lines if line != MEANT[0]] == [
        *alone,
        "  return await original_handler(request)",
    ]
    assert found.benign == len(BENIGN) - 3


def test_warning_does_not_swallow_a_traceback() -> None:
    lines = [
        "a.py:1: UserWarning: x",
        '  File "b.py", line 2, in f',
        "a.py:1: UserWarning: x",
        "[2026-11-29 18:36:23] Skipping tactic x due to failure while profiling Traceback (most recent call last):",
    ]
    assert server_log.without_benign(lines) == ([lines[1], lines[3]], 2)


def traceback(
    final: str, frames: int = 6, first: str = "[2026-11-29 18:36:23] Scheduler hit an exception: "
) -> list[str]:
    lines = [first + "Traceback (most recent call last):"]
    for number in range(frames):
        lines += [f'  File "f{number}.py", line {number}, in f{number}', f"    call_{number}()", "    ^^^^^^^^"]
    return [*lines, final]


FINAL = "AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90."


@pytest.mark.parametrize("follows", [0, 1, 49, 50, 51, 2000])
@pytest.mark.parametrize("frames", [1, 6, 14, 40])
def test_last_exception_shows_whatever_follows_it(tmp_path: Path, follows: int, frames: int) -> None:
    before = [f"before {number}" for number in range(100)]
    after = [f"shutdown noise {number}" for number in range(follows)]
    found = written(tmp_path, [*before, *traceback(FINAL, frames), *after])
    assert FINAL in found.lines and len(found.lines) <= server_log.TAIL_LINES
    assert f'  File "f{frames - 1}.py", line {frames - 1}, in f{frames - 1}' in found.lines  # the frame nearest to it
    assert found.lines[-1] == (after or [FINAL])[-1]
    assert found.first_exception == ""


def test_what_is_left_out_inside_is_said(tmp_path: Path) -> None:
    found = written(tmp_path, [*traceback(FINAL, 40), *(f"noise {number}" for number in range(2000))])
    assert found.lines[0].endswith("Traceback (most recent call last):")
    assert found.lines[1] == "... 88 lines left out ..." and found.lines[-11] == "... 1986 lines left out ..."
    assert found.lines[-15:-11] == tuple(f"noise {number}" for number in range(4))
    assert len(found.lines) == server_log.TAIL_LINES


def test_room_that_is_left_goes_to_what_came_before(tmp_path: Path) -> None:
    before = [f"before {number}" for number in range(100)]
    found = written(tmp_path, [*before, *traceback(FINAL, 1), *(f"noise {number}" for number in range(2000))])
    assert len(found.lines) == server_log.TAIL_LINES and found.lines[29] == "before 99"


def test_first_exception_is_named_when_another_came_later(tmp_path: Path) -> None:
    later = traceback("EOFError", first="")
    found = written(tmp_path, [*traceback("torch.OutOfMemoryError: CUDA out of memory."), *["x"] * 60, *later])
    assert found.first_exception == "torch.OutOfMemoryError: CUDA out of memory."
    assert found.lines[-1] == "EOFError"


@pytest.mark.parametrize(
    "noise",
    [
        ["Exception ignored in: <function C.__del__ at 0x7f>", *traceback("TypeError: 'NoneType'", first="")],
        ["Error in atexit._run_exitfuncs:", *traceback("OSError: gone", first="")],
        traceback("KeyboardInterrupt", first=""),
        traceback("asyncio.exceptions.CancelledError", first="[2026-11-29 18:36:24] ERROR: "),
    ],
)
def test_traceback_of_the_shutdown_does_not_hide_the_cause(tmp_path: Path, noise: list[str]) -> None:
    found = written(tmp_path, [*traceback(FINAL), *noise, *["bye"] * 60])
    assert FINAL in found.lines and found.first_exception == ""
    alone = written(tmp_path, [*noise, *["bye"] * 60])
    assert noise[-1] in alone.lines


@pytest.mark.parametrize(
    ("lines", "traces"),
    [
        (["x", "y: z"], []),
        # A record of another process in the middle.
        (
            ["Traceback (most recent call last):", "  a", "[2026-11-29 18:36:23] Error: no", "    b", "E: x"],
            [server_log.Trace(0, 5, "E: x")],
        ),
        # Cut off by the end.
        (["Traceback (most recent call last):", "  a"], [server_log.Trace(0, 2)]),
        # Chained.
        (
            [
                "Traceback (most recent call last):",
                "  a",
                "KeyError: 1",
                "During handling of the above exception, another exception occurred:",
                "Traceback (most recent call last):",
                "  b",
                "pkg.mod.MyError",
            ],
            [server_log.Trace(0, 3, "KeyError: 1"), server_log.Trace(4, 7, "pkg.mod.MyError")],
        ),
        # Indented, as another program's output quotes it.
        (
            ["    Traceback (most recent call last):", "      a", "        raise", "    ValueError: x", "OSError: y"],
            [server_log.Trace(0, 4, "ValueError: x")],
        ),
        (
            [
                "  + Exception Group Traceback (most recent call last):",
                '  |   File "a", line 1',
                "  |     raise",
                "  | ExceptionGroup: unhandled errors (1 sub-exception)",
            ],
            [server_log.Trace(0, 4, "ExceptionGroup: unhandled errors (1 sub-exception)")],
        ),
    ],
)
def test_tracebacks(lines: list[str], traces: list[server_log.Trace]) -> None:
    assert server_log.tracebacks(lines) == traces


@pytest.mark.parametrize(
    ("lines", "newest"),
    [
        ([], ""),
        (["[2026-11-29 18:36:22] Load weight begin. avail mem=21.48 GB"], "Load weight begin. avail mem=21.48 GB"),
        (["[2026-11-29 18:36:22.123 DP0 TP3] Load  weight\tend."], "[DP0 TP3] Load weight end."),
        (["Capturing batches:  3%|#| 1/36 [00:01<00:35]", "    ^^^^^^"], "Capturing batches: 3%|#| 1/36 [00:01<00:35]"),
        (["meant", *BENIGN], "meant"),
        (["x" * 91], "x" * 86 + " ..."),
        (["x" * 90], "x" * 90),
    ],
)
def test_newest_line_that_says_something(tmp_path: Path, lines: list[str], newest: str) -> None:
    assert written(tmp_path, lines).newest == newest
