# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure how long deploys take on this machine and write docs/benchmarks.md.

    python benchmarks/deploy_times.py [--rounds 5] [--port 31690] [--output docs/benchmarks.md]

In a copy of the checkout below a temporary directory: one cold `make deploy` (no .venv, empty package caches), then
rounds of a deploy that changes nothing and of a playbook that makes the same checks with stock modules, one after the
other so that both see the same machine. What was made is destroyed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECAP = re.compile(r"^\S+\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.MULTILINE)


class BenchmarkError(Exception):
    """A run did not do what was to be measured."""


@dataclass(frozen=True)
class Times:
    """Wall seconds of each run."""

    cold_s: float
    no_op_s: list[float]
    stock_s: list[float]

    @property
    def ratio(self) -> float:
        """Median deploy without changes over median of the same checks with stock modules."""
        return statistics.median(self.no_op_s) / statistics.median(self.stock_s)


def copy_checkout(target: Path) -> None:
    """Copy what a clone would hold, with changes that are not committed yet."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        source = ROOT / name
        if source.is_symlink() or source.exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)


def timed(command: list[str], checkout: Path, env: dict[str, str], log: Path) -> tuple[float, str]:
    """Run one command with its output in a log; its wall seconds and its output. BenchmarkError when it fails."""
    started = time.monotonic()
    with log.open("w+", encoding="utf-8") as stream:
        code = subprocess.run(
            command,
            cwd=checkout,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
        elapsed_s = time.monotonic() - started
        stream.seek(0)
        output = stream.read()
    if code:
        tail = "\n".join(output.splitlines()[-40:])
        raise BenchmarkError(f"{' '.join(command)} ended with exit code {code}:\n{tail}")
    return elapsed_s, output


def unchanged(output: str) -> bool:
    """Whether a play's recap says that nothing changed and nothing failed on any host."""
    hosts = RECAP.findall(output)
    return bool(hosts) and all(counts == ("0", "0", "0") for counts in hosts)


def measure(workplace: Path, port: int, rounds: int) -> Times:
    """Run everything below one directory; it is gone from the machine afterwards, also when a run fails."""
    checkout = workplace / "checkout"
    copy_checkout(checkout)
    variables = {
        "sglang_root": str(workplace / "root"),
        "sglang_port": port,
        "sglang_uv_cache": str(workplace / "uv-cache"),
        "sglang_destroy_models": True,
        "sglang_destroy_caches": True,
    }
    (workplace / "vars.json").write_text(json.dumps(variables), encoding="utf-8")
    arguments = ["-e", f"@{workplace / 'vars.json'}"]
    env = os.environ | {"UV_CACHE_DIR": str(workplace / "uv-cache"), "PIP_NO_CACHE_DIR": "1"}
    env = {name: text for name, text in env.items() if not name.startswith("ANSIBLE_") and name != "PYTHONPATH"}
    play = [str(checkout / ".venv" / "bin" / "ansible-playbook"), "-i", "inventories/local"]
    log = workplace / "run.log"
    no_op_s, stock_s = [], []
    try:
        cold_s, _output = timed(["make", "deploy", f"ARGS={' '.join(arguments)}"], checkout, env, log)
        print(f"cold deploy: {cold_s:.1f} s", flush=True)
        for number in range(1, rounds + 1):
            elapsed_s, output = timed([*play, "deploy.yml", *arguments], checkout, env, log)
            if not unchanged(output):
                raise BenchmarkError(f"a second deploy changed something:\n{output[-4000:]}")
            no_op_s.append(elapsed_s)
            elapsed_s, _output = timed([*play, "benchmarks/stock_checks.yml", *arguments], checkout, env, log)
            stock_s.append(elapsed_s)
            print(f"round {number}: no-op {no_op_s[-1]:.1f} s, stock modules {stock_s[-1]:.1f} s", flush=True)
    finally:
        if Path(play[0]).exists():
            timed([*play, "destroy.yml", *arguments], checkout, env, log)
    return Times(cold_s, no_op_s, stock_s)


def first(path: str, pattern: str) -> str:
    """First match of a pattern in a file of the system, or "unknown"."""
    try:
        match = re.search(pattern, Path(path).read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        match = None
    return match.group(1) if match else "unknown"


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    processor = first("/proc/cpuinfo", r"^model name\s*:\s*(.+)$")
    memory_kib = first("/proc/meminfo", r"^MemTotal:\s+(\d+)")
    system = first("/etc/os-release", r'^PRETTY_NAME="(.+)"$')
    return {
        "processor": f"{processor}, {os.cpu_count()} cores",
        "memory": f"{int(memory_kib) / 2**20:.0f} GiB" if memory_kib.isdigit() else memory_kib,
        "system": f"{system}, Linux {platform.release()}",
        "Python": platform.python_version(),
        "load before the run": f"{os.getloadavg()[0]:.1f}",
        "measured": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def row(name: str, seconds: list[float]) -> str:
    """A table row: median, least and most."""
    return f"| {name} | {len(seconds)} | {statistics.median(seconds):.1f} | {min(seconds):.1f} | {max(seconds):.1f} |"


def report(times: Times, described: dict[str, Any]) -> str:
    """The Markdown page."""
    lines = [
        "# How long deploys take",
        "",
        "Written by `make times`. All on one machine: the embedded default with the real SGLang on the CPU.",
        "",
        "| machine | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in described.items()),
        "",
        "| what | runs | median s | least s | most s |",
        "|---|---|---|---|---|",
        row("cold `make deploy`: no `.venv`, empty package caches", [times.cold_s]),
        row("deploy that changes nothing", times.no_op_s),
        row("the same checks with stock modules (`benchmarks/stock_checks.yml`)", times.stock_s),
        "",
        f"A deploy that changes nothing takes **{times.ratio:.2f}** times as long as the checks with stock modules: "
        "medians of runs that took turns.",
        "",
    ]
    return "\n".join(lines)


def with_head(page: str, head: str) -> str:
    """The page with this before its sections, in place of what was there; the sections are others' to write."""
    _old, found, sections = f"\n{page}".partition("\n## ")
    return f"{head.rstrip()}\n\n{found.lstrip()}{sections}" if found else head


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=31690)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks.md")
    arguments = parser.parse_args()
    described = machine()
    with tempfile.TemporaryDirectory(prefix="tokforge-times-") as workplace:
        try:
            times = measure(Path(workplace), arguments.port, arguments.rounds)
        except BenchmarkError as error:
            print(error, file=sys.stderr)
            return 1
    page = arguments.output.read_text(encoding="utf-8") if arguments.output.exists() else ""
    arguments.output.write_text(with_head(page, report(times, described)), encoding="utf-8")
    print(f"no-op / stock = {times.ratio:.2f}; wrote {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
