# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure a deploy that changes nothing on 1, 8 and 64 targets: seconds, and memory of the controller.

    python benchmarks/target_times.py [--targets 1 8 64] [--rounds 3] [--port 31691] [--output docs/benchmarks.md]

The targets are names of this machine and of one server, which is deployed below a temporary directory first and
destroyed at the end, so the machine does the work of the controller and of all targets.
"""

from __future__ import annotations

import argparse
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

import yaml

sys.path[:0] = [str(Path(__file__).resolve().parent)]

from deploy_times import ROOT, BenchmarkError, machine, row, unchanged
from gate_times import with_section

TITLE = "## What more targets cost"
PLAY = str(Path(sys.executable).with_name("ansible-playbook"))
POLL_S = 0.2


@dataclass(frozen=True)
class Run:
    """One deploy that changed nothing: wall seconds, and at most so many bytes of the play with its workers."""

    elapsed_s: float
    peak_bytes: int


def inventory(path: Path, names: Sequence[str], variables: Mapping[str, Any]) -> None:
    """Write an inventory of these names, which all are this machine."""
    local = yaml.safe_load((ROOT / "inventories/local/group_vars/sglang.yml").read_text(encoding="utf-8"))
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, **local, **variables}
    hosts: dict[str, Any] = {name: {} for name in names}
    path.write_text(yaml.safe_dump({"sglang": {"hosts": hosts, "vars": common}}), encoding="utf-8")


def memory(play: int) -> int:
    """Bytes of the play and of its workers, shared pages counted once (PSS). What runs on targets is not in it.

    A worker is a fork of the play, so it has the same command line.
    """
    command = Path(f"/proc/{play}/cmdline").read_bytes()
    total = 0
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cmdline").read_bytes() == command:
                text = (entry / "smaps_rollup").read_text(encoding="ascii")
                total += 1024 * sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
        except (OSError, ValueError):  # it has ended
            continue
    return total


def deploy(hosts: Path, forks: int, log: Path) -> tuple[Run, str]:
    """One deploy, watched; also what it printed. BenchmarkError when it fails."""
    command = [PLAY, "-i", str(hosts), "-f", str(forks), "deploy.yml"]
    started = time.monotonic()
    peak = 0
    with log.open("w+", encoding="utf-8") as stream:
        play = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT)
        while play.poll() is None:
            peak = max(peak, memory(play.pid))
            time.sleep(POLL_S)
        elapsed_s = time.monotonic() - started
        stream.seek(0)
        output = stream.read()
    if play.returncode:
        tail = "\n".join(output.splitlines()[-40:])
        raise BenchmarkError(f"{' '.join(command)} ended with exit code {play.returncode}:\n{tail}")
    return Run(elapsed_s, peak), output


def measure(workplace: Path, port: int, counts: Sequence[int], rounds: int, forks: int) -> dict[int, list[Run]]:
    """The runs by number of targets. The server is gone from the machine afterwards."""
    variables = {
        "sglang_root": str(workplace / "root"),
        "sglang_port": port,
        "sglang_uv_cache": str(workplace / "uv-cache"),
        "sglang_destroy_models": True,
        "sglang_destroy_caches": True,
    }
    hosts, log = workplace / "hosts.yml", workplace / "run.log"
    found: dict[int, list[Run]] = {count: [] for count in counts}
    try:
        inventory(hosts, ["target-1"], variables)
        deploy(hosts, forks, log)
        for number in range(1, rounds + 1):
            for count in counts:
                inventory(hosts, [f"target-{one}" for one in range(1, count + 1)], variables)
                run, output = deploy(hosts, forks, log)
                if not unchanged(output):
                    raise BenchmarkError(f"a deploy on {count} targets changed something:\n{output[-4000:]}")
                found[count].append(run)
                print(
                    f"round {number}: {count} targets, {run.elapsed_s:.1f} s, {run.peak_bytes / 1e6:.0f} MB", flush=True
                )
    finally:
        inventory(hosts, ["target-1"], variables)
        subprocess.run([PLAY, "-i", str(hosts), "destroy.yml"], cwd=ROOT, capture_output=True, check=False)
    return found


def growth(found: Mapping[int, Sequence[Run]]) -> tuple[float, float]:
    """What one more target costs between the fewest and the most: seconds and bytes, by medians."""
    few, many = min(found), max(found)
    between = many - few

    def median(count: int, values: Sequence[float]) -> float:
        return statistics.median(values)

    seconds = median(many, [run.elapsed_s for run in found[many]]) - median(few, [run.elapsed_s for run in found[few]])
    size = median(many, [run.peak_bytes for run in found[many]]) - median(few, [run.peak_bytes for run in found[few]])
    return seconds / between, size / between


def report(found: Mapping[int, Sequence[Run]], forks: int, described: Mapping[str, Any]) -> str:
    """The section of the page."""
    seconds, size = growth(found)
    lines = [
        TITLE,
        "",
        f"Written by `make target-times`. `deploy.yml` that changes nothing, with {forks} forks, on names that "
        "share one machine and one server, so that its cores are the controller and all the targets. Memory is that of "
        "`ansible-playbook` with its workers, shared pages counted once.",
        "",
        "| machine | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in described.items()),
        "",
        "| targets | runs | median s | least s | most s |",
        "|---|---|---|---|---|",
        *(row(str(count), [run.elapsed_s for run in runs]) for count, runs in sorted(found.items())),
        "",
        "| targets | runs | median MB | least MB | most MB |",
        "|---|---|---|---|---|",
        *(row(str(count), [run.peak_bytes / 1e6 for run in runs]) for count, runs in sorted(found.items())),
        "",
        f"One more target costs **{seconds:.1f} s** and **{size / 1e6:.1f} MB**, from {min(found)} to {max(found)}.",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--forks", type=int, default=5)
    parser.add_argument("--port", type=int, default=31691)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks.md")
    arguments = parser.parse_args()
    os.environ.setdefault("ANSIBLE_CONFIG", str(ROOT / "ansible.cfg"))
    described = machine()
    with tempfile.TemporaryDirectory(prefix="tokforge-targets-") as workplace:
        try:
            found = measure(Path(workplace), arguments.port, arguments.targets, arguments.rounds, arguments.forks)
        except BenchmarkError as error:
            print(error, file=sys.stderr)
            return 1
    page = arguments.output.read_text(encoding="utf-8") if arguments.output.exists() else ""
    text = with_section(page, report(found, arguments.forks, described), TITLE)
    arguments.output.write_text(text, encoding="utf-8")
    print(f"wrote {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
