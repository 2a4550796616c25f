# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs several command lines of a benchmark engine one after the other, in one process where that can be.

The source of this file is piped into the Python of the engine's environment (`python - PLAN`), never imported there. A
run with a "module" runs as `runpy` runs `-m`: the same entry point, the same argument parser, the same code; what one
process saves is importing it all again (8 to 20 s on a slow machine). It works for every release because it names no
function: 0.5.12 parses its arguments below `if __name__ == "__main__"`, later releases in a function. A run with a
"program" is a process of its own.

PLAN is a JSON file {"parent": int, "progress": path, "steps": [...], "runs": [{"module": str, "arguments": [str, ...],
"begins": str}, or {"program": [str, ...]}, ...]}. With "flush", an address, the server's prefix cache is emptied there
before the run; the environment variable named in "key_variable" has its key. Lines of JSON are appended to the progress
file: the steps, then for each run the time of its beginning, of the line with the text "begins" in its output, and of
its end (all in seconds of the system's clock). Exit code: 0, or the number of the first run that failed, from 1 (not
above 99); those after it are not tried. 100: the plan's parent is not our parent any more.

What a program starts ends with this process, too, when it leads a group of its own.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
import urllib.request
from typing import Any, Callable

_PR_SET_PDEATHSIG = 1
PARENT_GONE = 100
_MOST_RUNS = 99


def end_with_parent(parent: int) -> bool:
    """Ask Linux to kill this process when its parent ends, however it ends; False when the parent has ended already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent may have died before the line above took effect.
    return os.getppid() == parent


def end_group_with_us() -> None:
    """Leave a process that kills our group when we end, however we end.

    Linux tells of our death those only that we start ourselves, and an engine starts processes of its own: they would
    go on to load the server for as long as they were asked to. Nothing is done in a group that is not ours.
    """
    if os.getpgrp() != os.getpid():
        return
    # Nobody else has the writing end: programs do not inherit it, so it closes with us.
    reading, writing = os.pipe()
    if os.fork():
        os.close(reading)
        return
    os.close(writing)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.read(reading, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


class Watched:
    """A text stream that tells when a text is written to it, the first time."""

    def __init__(self, stream: Any, text: str, seen: Callable[[], None]) -> None:
        self._stream, self._text, self._seen = stream, text, seen

    def write(self, data: str) -> int:
        if self._text and self._text in data:
            self._text = ""
            self._seen()
        written: int = self._stream.write(data)
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def run_module(module: str, arguments: list[str]) -> bool:
    """Run one command line of `module` as `-m` would and say whether it ended well.

    Its traceback goes to stderr as usual.
    """
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code not in (None, 0):
            sys.stderr.write(f"{module} ended with {end.code}\n")
            return False
    except Exception:
        traceback.print_exc()
        return False
    return True


def run_program(words: list[str]) -> bool:
    """Run one program and say whether it ended well."""
    try:
        code = subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode
    except OSError as error:
        sys.stderr.write(f"{words[0]}: {error.strerror}\n")
        return False
    if code:
        sys.stderr.write(f"{words[0]} ended with {code}\n")
    return code == 0


def flush(url: str, key: str | None) -> bool:
    """Empty the server's prefix cache and say whether that went well."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(url, data=b"", headers=headers, method="POST")
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60).close()
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f"emptying the prefix cache at {url}: {error}\n")
        return False
    return True


def run(entry: dict[str, Any], note: Callable[[str], None]) -> bool:
    """Run one entry of the plan; `note` is told when the measurement itself begins."""
    if "flush" in entry and not flush(entry["flush"], os.environ.get(entry["key_variable"])):
        return False
    if "program" in entry:
        return run_program(entry["program"])
    usual = sys.stdout
    sys.stdout = Watched(usual, entry.get("begins", ""), lambda: note("main"))
    try:
        return run_module(entry["module"], entry["arguments"])
    finally:
        sys.stdout = usual


def main(plan_path: str) -> int:
    with open(plan_path, encoding="utf-8") as handle:
        plan = json.load(handle)
    if not end_with_parent(plan["parent"]):
        return PARENT_GONE
    if any("program" in entry for entry in plan["runs"]):
        end_group_with_us()
    # Unbuffered: what is written is there for the reader, also when this process is killed.
    with open(plan["progress"], "ab", buffering=0) as progress:

        def note(name: str, value: Any = None) -> None:
            progress.write(json.dumps({name: time.time() if value is None else value}).encode() + b"\n")

        note("steps", plan["steps"])
        for number, entry in enumerate(plan["runs"], start=1):
            sys.stdout.write(f"== run {number} of {len(plan['runs'])}\n")
            sys.stdout.flush()
            note("begin")
            if not run(entry, note):
                return min(number, _MOST_RUNS)
            note("end")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
