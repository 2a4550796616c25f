# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what looking at a starting server's log takes, beside `grep -c`; written to docs/benchmarks.md.

    python benchmarks/startup_times.py [--rounds 3] [--bytes 1000000000] [--output docs/benchmarks.md]

The log is a real start (tests/fixtures/startup), then real lines of a server that serves, over and over, with another
real start in its middle. Each way reads it in a process of its own, and they take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / name) for name in ("benchmarks", "collections")]

from deploy_times import BenchmarkError, machine
from gate_times import with_section

TITLE = "## How long a look at a starting server takes"
START = ROOT / "tests/fixtures/startup/h200x2-tp2-0.5.12.post1-cold.log"
READY = b"The server is fired up and ready to roll!\n"
NEW_BYTES = 1 << 20
LOOKS = 20

# Reads the whole log, then LOOKS times a mebibyte more, in one process; prints what it took and the memory it had.
READER = f"""
import json, os, resource, sys, time
from ansible_collections.tokforge.sglang.plugins.module_utils import startup_look
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import World
log, more = sys.argv[1], open(sys.argv[2], "rb").read()
began = time.perf_counter()
found = startup_look.look(startup_look.Request(log=log, world=World(tp=2)))
whole_s, peak_kib = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
size, looks = os.path.getsize(log), []
for number in range({LOOKS}):
    with open(log, "ab") as stream:
        stream.write(more)
    cursor = json.loads(json.dumps(found["cursor"]))
    began = time.perf_counter()
    found = startup_look.look(startup_look.Request(log=log, world=World(tp=2), cursor=cursor))
    looks.append(time.perf_counter() - began)
os.truncate(log, size)
print(json.dumps([whole_s, peak_kib * 1024, looks, found["state"], len(json.dumps(found["cursor"]))]))
"""


@dataclass(frozen=True)
class Round:
    """What one turn took: seconds for the whole log, `grep -c` and each look at NEW_BYTES more; memory in bytes."""

    whole_s: float
    grep_s: float
    peak_bytes: int
    looks_s: tuple[float, ...]
    cursor_bytes: int


def serving_lines(start: bytes) -> bytes:
    """What a server writes while it serves: the lines of its health checks, as they stand in the log of the start."""
    lines = [line for line in start.splitlines(keepends=True) if b'"GET /health' in line or b"Prefill batch" in line]
    if not lines:
        raise BenchmarkError(f"{START} holds no line of a server that serves")
    return b"".join(lines)


def make_log(path: Path, size: int) -> None:
    """A log of about `size` bytes whose last start is ready."""
    start = START.read_bytes()
    start = start[: start.index(READY) + len(READY)]
    lines = serving_lines(START.read_bytes())
    block = lines * max(1, (1 << 20) // len(lines))
    with path.open("wb") as stream:
        for share in (size // 2, size):
            stream.write(start)
            while stream.tell() + len(block) < share:
                stream.write(block)


def read_once(log: Path, more: Path) -> Round:
    """One turn of both ways. Raises BenchmarkError when the reader does not find what the log says."""
    began = time.perf_counter()
    counted = subprocess.run(
        ["grep", "-c", "FlashInfer autotune completed", str(log)], capture_output=True, text=True, check=True
    )
    grep_s = time.perf_counter() - began
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "collections")}
    done = subprocess.run(
        [sys.executable, "-c", READER, str(log), str(more)], capture_output=True, text=True, check=True, env=environment
    )
    whole_s, peak, looks, state, cursor = json.loads(done.stdout)
    if (state, counted.stdout.strip()) != ("ready", "4"):
        raise BenchmarkError(f"the log was read as {state}, and grep counted {counted.stdout.strip()} of 4 lines")
    return Round(whole_s, grep_s, peak, tuple(looks), cursor)


def row(name: str, values: Sequence[float], unit: str) -> str:
    """A table row: median, least and most."""
    return (
        f"| {name} | {len(values)} | {statistics.median(values):.1f} {unit} | {min(values):.1f} | {max(values):.1f} |"
    )


def report(rounds: Sequence[Round], size: int, described: Mapping[str, Any]) -> str:
    """The section of the page."""
    looks = [1000 * one for turn in rounds for one in turn.looks_s]
    lines = [
        TITLE,
        "",
        f"Written by `make startup-times`. A log of {size / 1e9:.2f} GB: two real starts, and between and after them "
        "real lines of a server that serves. Each way reads it in a process of its own, and they took turns.",
        "",
        "| machine | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in described.items()),
        "",
        "| what | runs | median | least | most |",
        "|---|---|---|---|---|",
        row("first look at the whole log", [one.whole_s for one in rounds], "s"),
        row("memory of its process at most", [one.peak_bytes / 1e6 for one in rounds], "MB"),
        row("look at 1 MiB more, from its cursor", looks, "ms"),
        row("`grep -c` of one line of autotune, for scale", [one.grep_s for one in rounds], "s"),
        "",
        f"The cursor is {max(one.cursor_bytes for one in rounds) / 1e3:.1f} kB.",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=1_000_000_000)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks.md")
    arguments = parser.parse_args()
    described = machine()
    with tempfile.TemporaryDirectory(prefix="tokforge-startup-times-") as workplace:
        log, more = Path(workplace) / "server.log", Path(workplace) / "more"
        try:
            make_log(log, arguments.bytes)
            lines = serving_lines(START.read_bytes())
            more.write_bytes(lines * (NEW_BYTES // len(lines)))
            size = log.stat().st_size
            rounds = []
            for number in range(arguments.rounds):
                rounds.append(read_once(log, more))
                print(
                    f"round {number + 1}: {rounds[-1].whole_s:.1f} s, {rounds[-1].peak_bytes / 1e6:.0f} MB", flush=True
                )
        except BenchmarkError as error:
            print(error, file=sys.stderr)
            return 1
    page = arguments.output.read_text(encoding="utf-8") if arguments.output.exists() else ""
    arguments.output.write_text(with_section(page, report(rounds, size, described), TITLE), encoding="utf-8")
    print(f"wrote {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
