# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the probe runs inside an environment: needs only the standard library and what the environment has.

    inside.py STEP RESULT

STEP is `look` (do modules import, are their symbols there) or `layer` (run SGLang's own one-batch runner and look at
what it computes). What to do comes as one line of JSON on standard input; what was found goes into the file RESULT.

Standard input stays open as long as somebody wants the answer. When it ends without the word below, the module was
killed: a watcher then ends the whole process group and removes the working directory, so that nothing is left.
Python 3.9 or newer.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from typing import Any

#: Counted up when a probe would find something else: what was probed before then counts no longer.
VERSION = 1
#: The environment variable that marks every process of a step; its value is the working directory.
MARK = "TOKFORGE_PROBE"
#: What the module writes when all is over and it cleans up by itself.
DONE = b"."
#: The one-batch runner, by the releases that have it: 0.5.15 and newer, 0.5.20 and older.
RUNNERS = ("sglang.benchmark.one_batch", "sglang.bench_one_batch")


def read_request() -> dict[str, Any]:
    """The first line of standard input, byte by byte: what follows belongs to the watcher."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise SystemExit("the probe's request ended early")
        line += byte
    request: dict[str, Any] = json.loads(line)
    return request


def watch(directory: str) -> None:
    """Fork the watcher, and take standard input away from this process."""
    main = os.getpid()
    if os.fork() == 0:
        # Apart from the group that it may have to end.
        os.setsid()
        os.closerange(1, 1024)
        ended = os.read(0, 1)
        if ended != DONE:
            with contextlib.suppress(OSError):
                os.killpg(main, signal.SIGKILL)
            end_marked(f"{MARK}={directory}".encode())
            shutil.rmtree(directory, ignore_errors=True)
        os._exit(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def end_marked(mark: bytes) -> None:
    """End what left the group: every other process that has the mark in its environment."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/environ", "rb") as stream:
                    marked = mark in stream.read().split(b"\0")
                if marked:
                    os.kill(int(name), signal.SIGKILL)


def write(path: str, found: dict[str, Any]) -> None:
    """Replace the result file; it is read when this process is gone, however that happened."""
    with open(path + ".new", "w", encoding="utf-8") as stream:
        json.dump(found, stream)
    os.replace(path + ".new", path)


def look(path: str, needs: list[list[str]]) -> None:
    """Import each module, then look for its symbol. `needs` has pairs of module and symbol."""
    import importlib
    import time
    import traceback

    found: list[dict[str, Any]] = []
    for module, symbol in needs:
        one: dict[str, Any] = {"module": module, "symbol": symbol, "imported": False, "has": None, "error": ""}
        found.append(one)
        # A library that ends the process leaves behind which one it was.
        write(path, {"needs": found})
        began = time.monotonic()
        try:
            loaded = importlib.import_module(module)
            one["imported"] = True
            one["file"] = getattr(loaded, "__file__", None) or ""
            one["version"] = str(getattr(loaded, "__version__", ""))
            # Not hasattr: a symbol that is loaded late can fail in many ways.
            one["has"] = getattr(loaded, symbol, None) is not None
        except BaseException:
            one["error"] = traceback.format_exc()
            if one["imported"]:
                one["has"] = False
        one["seconds"] = round(time.monotonic() - began, 3)
        write(path, {"needs": found})


def layer(path: str, arguments: list[str]) -> None:
    """Run SGLang's one-batch runner as `python -m` does, and count forwards whose output is not finite."""
    import runpy

    name = runner()
    found: dict[str, Any] = {"runner": name, "forwards": 0, "not_finite": 0, "unchecked": ""}
    write(path, found)
    try:
        check_output(path, found)
    except Exception as error:
        found["unchecked"] = f"{type(error).__name__}: {error}"
        write(path, found)
    sys.argv = [name, *arguments]
    # As `python -m` has it: the working directory, not this file's, comes first.
    sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def runner() -> str:
    """Name of the one-batch runner of this SGLang."""
    import importlib.util

    for name in RUNNERS:
        try:
            if importlib.util.find_spec(name) is not None:
                return name
        except ModuleNotFoundError:
            continue
    raise SystemExit("this SGLang has no one-batch runner: neither " + " nor ".join(RUNNERS))


def check_output(path: str, found: dict[str, Any]) -> None:
    """Look at the logits of each forward pass, where the model runner samples from them (0.5.6 to 0.5.23)."""
    import importlib

    torch = importlib.import_module("torch")
    model_runner = importlib.import_module("sglang.srt.model_executor.model_runner").ModelRunner
    sample = model_runner.sample

    def checked(self: Any, logits_output: Any, *more: Any, **named: Any) -> Any:
        logits = logits_output.next_token_logits
        found["forwards"] += 1
        if not bool(torch.isfinite(logits).all().item()):
            found["not_finite"] += 1
        found["logits"] = list(logits.shape)
        write(path, found)
        return sample(self, logits_output, *more, **named)

    model_runner.sample = checked


def main() -> None:
    request = read_request()
    watch(request["directory"])
    if sys.argv[1] == "look":
        look(sys.argv[2], request["needs"])
    else:
        layer(sys.argv[2], request["arguments"])


if __name__ == "__main__":
    main()
