# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what `benchmark.yml` adds to the figures it records, beside the same bench_serving command typed by hand.

    python benchmarks/harness_times.py [--rounds 10] [--output docs/benchmarks.md]

`make deploy` must have been run. Both ask the server that serves for the same, and take turns; the command by hand is
the one that the record of the playbook names.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / name) for name in ("benchmarks", "collections")]

from deploy_times import BenchmarkError, machine
from gate_times import with_section

from ansible_collections.tokforge.sglang.plugins.module_utils import permutation

TITLE = "## What the playbook adds to what it measures"
DEPLOYED = ROOT / ".tokforge"
CONCURRENCY = 8
ASKED = {
    "sglang_benchmark_concurrency": [CONCURRENCY],
    "sglang_benchmark_repetitions": 1,
    "sglang_benchmark_num_prompts_factor": 32,
}


def by_playbook() -> dict[str, Any]:
    """One run of benchmark.yml; the record that it wrote."""
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "inventories/local", "benchmark.yml"]
    done = subprocess.run([*command, "-e", json.dumps(ASKED)], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"benchmark.yml failed; run make deploy first:\n{done.stdout[-2000:]}{done.stderr[-500:]}")
    record: dict[str, Any] = json.loads((DEPLOYED / "facts/sglang.fact").read_text())["latest"]
    return record


def by_hand(argv: Sequence[str]) -> float:
    """The same command, typed; its output tok/s."""
    with tempfile.TemporaryDirectory(prefix="tokforge-by-hand-") as place:
        words = list(argv)
        words[words.index("--output-file") + 1] = str(Path(place) / "result.jsonl")
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "NO_PROXY": "*"}
        subprocess.run(
            [str(DEPLOYED / "current/venv/bin/python"), *words],
            cwd=place,
            env=environment,
            capture_output=True,
            check=True,
        )
        rate: float = json.loads((Path(place) / "result.jsonl").read_text().splitlines()[-1])["output_throughput"]
    return rate


def row(name: str, rates: Sequence[float]) -> str:
    """A table row: median, least and most."""
    return f"| {name} | {len(rates)} | {statistics.median(rates):.1f} | {min(rates):.1f} | {max(rates):.1f} |"


def report(hand: Sequence[float], playbook: Sequence[float], described: Mapping[str, Any]) -> str:
    """The section of the page."""
    found = permutation.compare([[rate] for rate in hand], [[rate] for rate in playbook]).points[0]
    change, low, high = ((ratio - 1) * 100 for ratio in (found.ratio, found.low, found.high))
    verdict = "within the noise" if found.low <= 1 <= found.high else "**not** within the noise"
    lines = [
        TITLE,
        "",
        f"Written by `make harness-times`. Output tok/s of the deployed server at {CONCURRENCY} requests in flight: "
        "recorded by `benchmark.yml`, and from the same `bench_serving` command typed by hand. They took turns.",
        "",
        "| machine | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in described.items()),
        "",
        "| what | runs | median tok/s | least | most |",
        "|---|---|---|---|---|",
        row("by hand", hand),
        row("`benchmark.yml`", playbook),
        "",
        f"The playbook's figures are {change:+.1f} % of those by hand (band {low:+.1f} to {high:+.1f} %, "
        f"p = {found.p_value:.2f}): {verdict}. "
        f"A loss of more than {max(0.0, -low):.1f} % is excluded.",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks.md")
    arguments = parser.parse_args()
    described = machine()
    hand: list[float] = []
    playbook: list[float] = []
    try:
        argv = by_playbook()["points"][0]["argv"]
        for number in range(arguments.rounds):
            turns = ("hand", "playbook") if number % 2 == 0 else ("playbook", "hand")
            for way in turns:
                if way == "hand":
                    hand.append(by_hand(argv))
                else:
                    playbook.append(float(by_playbook()["points"][0]["output_tok_s"]))
            print(f"round {number + 1}: by hand {hand[-1]:.1f}, playbook {playbook[-1]:.1f} tok/s", flush=True)
    except (BenchmarkError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    page = arguments.output.read_text(encoding="utf-8") if arguments.output.exists() else ""
    arguments.output.write_text(with_section(page, report(hand, playbook, described), TITLE), encoding="utf-8")
    print(f"wrote {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
