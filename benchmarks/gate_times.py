# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure what opening SGLang's autotune gate takes, beside `sed -i` and lineinfile; written to docs/benchmarks.md.

    python benchmarks/gate_times.py [--rounds 20] [--warm-up 2] [--output docs/benchmarks.md]

Every round opens the gate of a fresh copy of the real file once with each way and then once more, so that all see the
same machine. Which way comes first goes round. What each leaves in the file, and what it says about it, is compared
with what was meant, which is written down in tests/integration/gate_releases.py.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / name) for name in ("benchmarks", "collections", "tests/integration")]

from deploy_times import BenchmarkError, machine
from gate_releases import RELEASES
from wheel_parts import WheelParts

from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_gate, sglang_tree

TITLE = "## How long opening the autotune gate takes"
MEASURED = "0.5.12.post1"
BACKEND = "flashinfer_cutlass"
MODULE, SED, LINEINFILE = "`tokforge.sglang.autotune_gate`", "`sed -i` in `command`", "`lineinfile`"
TASKS = (MODULE, SED, LINEINFILE)
CORE, BARE_SED = "the module's core in one process", "`sed -i` by itself"
PROCESSES = (CORE, BARE_SED)


@dataclass(frozen=True)
class Case:
    """A file to open: of which release, for which backend, with which line ends."""

    name: str
    version: str
    backend: str = BACKEND
    crlf: bool = False


CASES = (
    Case("0.5.7", "0.5.7"),
    Case("0.5.12.post1", "0.5.12.post1"),
    Case("0.5.12.post1 with CRLF", "0.5.12.post1", crlf=True),
    Case("0.5.12.post1, `deep_gemm`, which no comment names", "0.5.12.post1", "deep_gemm"),
    Case("0.5.13, which tunes it by itself", "0.5.13"),
)


@dataclass(frozen=True)
class Outcome:
    """What a way did to a file, and whether it said that it changed it, the first and the second time."""

    before: bytes
    meant: bytes
    after: bytes
    said: tuple[bool, bool]

    def text(self) -> str:
        """The cell of the table."""
        if self.after == self.meant:
            did = "right"
        elif self.after == self.before:
            did = "**not opened**"
        else:
            did = f"**{lines_off(self.after, self.meant)} line(s) not as meant**"
        first, again = ("changed" if one else "not changed" for one in self.said)
        honest = self.said == (self.after != self.before, False)
        return f"{did}; {'says' if honest else '**says**'} {first}, then {again}"


def lines_off(found: bytes, meant: bytes) -> int:
    """How many lines differ, line ends included."""
    matcher = difflib.SequenceMatcher(None, found.splitlines(True), meant.splitlines(True), autojunk=False)
    return sum(max(end - start, to - at) for tag, start, end, at, to in matcher.get_opcodes() if tag != "equal")


def meant(data: bytes, case: Case) -> bytes:
    """The file with the backend in its collection, made from the line numbers that are known for the release."""
    release, lines = RELEASES[case.version], data.splitlines(True)
    if case.backend in release.live:
        return data
    line_end = b"\r\n" if case.crlf else b"\n"
    live = b" " * release.indent + f'"{case.backend}",'.encode() + line_end
    if case.backend == BACKEND:
        lines[release.cutlass - 1] = live
    else:
        lines.insert(release.end - 1, live)
    return b"".join(lines)


def sed(path: Path, backend: str) -> list[str]:
    """What people run: within the function, the line loses its comment sign."""
    name = f'"{backend}",'
    return ["sed", "-i", f"/def _should_run_flashinfer_autotune/,/return True/ s/# {name}/{name}/", str(path)]


def task(way: str, site: Path, path: Path, backend: str) -> dict[str, Any]:
    """The Ansible task that opens the gate one way."""
    if way == MODULE:
        return {"name": way, "tokforge.sglang.autotune_gate": {"source": str(site), "backend": backend}}
    if way == SED:
        return {"name": way, "ansible.builtin.command": {"argv": sed(path, backend)}}
    arguments = {
        "path": str(path),
        "regexp": rf'^(\s*)# "{re.escape(backend)}",',
        "line": rf'\1"{backend}",',
        "backrefs": True,
    }
    return {"name": way, "ansible.builtin.lineinfile": arguments}


def run_tasks(tasks: Sequence[Mapping[str, Any]], workplace: Path) -> list[tuple[float, bool]]:
    """Run tasks on this machine; for each its seconds, Ansible's part included, and whether it said changed."""
    # The first task of a play pays for the connection; it is not one of those measured.
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "connection": "local",
        "vars": {"ansible_python_interpreter": sys.executable},
        "tasks": [{"name": "Warm up", "ansible.builtin.ping": {}}, *tasks],
    }
    (workplace / "play.json").write_text(json.dumps([play]), encoding="utf-8")
    env = {name: text for name, text in os.environ.items() if not name.startswith("ANSIBLE_") and name != "PYTHONPATH"}
    env |= {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "localhost,", str(workplace / "play.json")],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchmarkError(f"the play ended with exit code {done.returncode}:\n{done.stdout[-4000:]}{done.stderr}")
    return results(done.stdout)[1:]


def results(output: str) -> list[tuple[float, bool]]:
    """Seconds and changed of each task, from the output of Ansible's JSON callback."""
    found = []
    for one in json.loads(output[output.index("{") :])["plays"][0]["tasks"]:
        start, end = (datetime.fromisoformat(one["task"]["duration"][name]) for name in ("start", "end"))
        found.append(((end - start).total_seconds(), bool(one["hosts"]["localhost"]["changed"])))
    return found


def timed(function: Callable[[], object]) -> float:
    """Wall seconds of a call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def open_with_core(site: Path, backend: str) -> None:
    """What the module does: look, plan, write."""
    gate, source = autotune_gate.examine(sglang_tree.of_source(str(site)), backend)
    if source is None:
        raise BenchmarkError(f"no gate in {site}: {gate.why}")
    autotune_gate.apply(source, autotune_gate.plan(gate, source, "open"))


@dataclass(frozen=True)
class Bench:
    """A directory in which files are opened; `parts` has the files of the releases."""

    workplace: Path
    parts: WheelParts

    def fresh(self, case: Case, number: int) -> tuple[Path, Path]:
        """A copy of a release of its own, and the file in it that has the gate."""
        site = self.parts.unpack(case.version, self.workplace / f"site-{number}")
        path = site / "sglang" / "srt" / "model_executor" / RELEASES[case.version].file
        if case.crlf:
            path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        return site, path

    def round(self, number: int) -> dict[str, tuple[float, float]]:
        """One round: for each way the seconds of opening, and of doing it again."""
        case = Case(MEASURED, MEASURED)
        copies = {way: self.fresh(case, at) for at, way in enumerate((*TASKS, *PROCESSES))}
        tasks, processes = (turned(ways, number) for ways in (TASKS, PROCESSES))
        play = [task(way, *copies[way], BACKEND) for _time in range(2) for way in tasks]
        seconds = [elapsed_s for elapsed_s, _changed in run_tasks(play, self.workplace)]
        took = {way: (seconds[at], seconds[at + len(tasks)]) for at, way in enumerate(tasks)}
        runs: dict[str, list[float]] = {way: [] for way in processes}
        for way in (*processes, *processes):
            site, path = copies[way]
            command = partial(subprocess.run, sed(path, BACKEND), check=True)
            runs[way].append(timed(partial(open_with_core, site, BACKEND) if way == CORE else command))
        for way, (site, path) in copies.items():
            original = self.fresh(case, -1)[1].read_bytes()
            if path.read_bytes() != meant(original, case):
                raise BenchmarkError(f"{way} did not open the gate of SGLang {MEASURED}")
            shutil.rmtree(site)
        return took | {way: (first, again) for way, (first, again) in runs.items()}

    def outcomes(self) -> dict[str, dict[str, Outcome]]:
        """For each case what each way did."""
        found: dict[str, dict[str, Outcome]] = {}
        for case in CASES:
            copies = {way: self.fresh(case, at) for at, way in enumerate(TASKS)}
            before = self.fresh(case, -1)[1].read_bytes()
            play = [task(way, *copies[way], case.backend) for _time in range(2) for way in TASKS]
            said = [changed for _elapsed_s, changed in run_tasks(play, self.workplace)]
            found[case.name] = {
                way: Outcome(
                    before, meant(before, case), copies[way][1].read_bytes(), (said[at], said[at + len(TASKS)])
                )
                for at, way in enumerate(TASKS)
            }
            for site, _path in copies.values():
                shutil.rmtree(site)
        return found


def turned(ways: Sequence[str], number: int) -> tuple[str, ...]:
    """The ways in another order each round: who comes first goes round."""
    at = number % len(ways)
    return (*ways[at:], *ways[:at])


def row(name: str, seconds: Sequence[float]) -> str:
    """A table row in milliseconds: median and the quartiles around it."""
    low, middle, high = (1000 * one for one in statistics.quantiles(seconds, n=4, method="inclusive"))
    return f"| {name} | {len(seconds)} | {middle:.1f} | {low:.1f} to {high:.1f} |"


def report(
    rounds: Sequence[Mapping[str, tuple[float, float]]],
    outcomes: Mapping[str, Mapping[str, Outcome]],
    described: Mapping[str, Any],
) -> str:
    """The section of the page."""
    medians = {way: statistics.median(one[way][0] for one in rounds) for way in (*TASKS, *PROCESSES)}
    extra_ms = 1000 * (medians[MODULE] - medians[LINEINFILE])
    lines = [
        TITLE,
        "",
        "Written by `make gate-times`, which `make times` does too. One file, `model_runner.py` of SGLang "
        f"{MEASURED}, opened for `{BACKEND}` on this machine; every run has a copy of its own, and the ways took "
        "turns. A task's time is Ansible's, from its start to its result; the first of a way in a play, which opens, "
        "also packs its module.",
        "",
        "| machine | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in described.items()),
        "",
        "| what | runs | median ms | quartiles ms |",
        "|---|---|---|---|",
        *(row(f"task {way}, opens", [one[way][0] for one in rounds]) for way in TASKS),
        *(row(f"task {way}, again", [one[way][1] for one in rounds]) for way in TASKS),
        *(row(f"{way}, opens", [one[way][0] for one in rounds]) for way in PROCESSES),
        *(row(f"{way}, again", [one[way][1] for one in rounds]) for way in PROCESSES),
        "",
        f"A task that opens the gate takes **{abs(extra_ms):.0f} ms {'more' if extra_ms > 0 else 'less'}** than "
        f"{LINEINFILE}. The core itself takes {1000 * medians[CORE]:.0f} ms: the file is parsed before and after, both "
        "are compared as programs, and file and note are on the disk when it ends.",
        "",
        "What was done to the file, and what the task said about it, twice:",
        "",
        f"| file | {' | '.join(TASKS)} |",
        "|---|" + "---|" * len(TASKS),
        *(f"| {name} | {' | '.join(ways[way].text() for way in TASKS)} |" for name, ways in outcomes.items()),
        "",
    ]
    return "\n".join(lines)


def with_section(page: str, section: str, title: str = TITLE) -> str:
    """The page with this section at its end, in place of an older one."""
    before, _title, old = page.partition(f"{title}\n")
    following = re.search(r"^## .*", old, re.MULTILINE | re.DOTALL)
    kept = f"{before.rstrip()}\n\n{following.group()}" if following else before
    return f"{kept.rstrip()}\n\n{section}".lstrip()


def versions() -> dict[str, str]:
    """What else the figures depend on."""
    said = subprocess.run(["sed", "--version"], capture_output=True, text=True, check=True).stdout
    return {"versions": f"ansible-core {metadata.version('ansible-core')}, {said.splitlines()[0]}"}


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks.md")
    arguments = parser.parse_args()
    described = machine() | versions()
    parts = WheelParts()
    with tempfile.TemporaryDirectory(prefix="tokforge-gate-times-") as workplace:
        try:
            for version in sorted({case.version for case in CASES}):
                if not parts.has(version):
                    print(f"fetching SGLang {version}", flush=True)
                    parts.keep(version)
            bench = Bench(Path(workplace), parts)
            outcomes = bench.outcomes()
            rounds = []
            for number in range(arguments.warm_up + arguments.rounds):
                took = bench.round(number)
                shown = ", ".join(f"{way} {1000 * first:.0f} ms" for way, (first, _again) in took.items())
                print(f"round {number + 1 - arguments.warm_up}: {shown}", flush=True)
                if number >= arguments.warm_up:
                    rounds.append(took)
        except BenchmarkError as error:
            print(error, file=sys.stderr)
            return 1
    page = arguments.output.read_text(encoding="utf-8") if arguments.output.exists() else ""
    arguments.output.write_text(with_section(page, report(rounds, outcomes, described)), encoding="utf-8")
    print(f"wrote {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
