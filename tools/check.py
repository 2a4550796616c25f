# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the checks that pyproject.toml lists under [[tool.checks]], all of them or those of the groups named.

    python tools/check.py              all
    python tools/check.py lint docs    those of two groups

Every part runs, also after one that failed. One line a part says how it went; the last line counts them, and the exit
code is 1 when one failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
FILESYSTEMS = Path("/proc/filesystems")


def has_cgroup2() -> bool:
    """Whether this is a Linux whose kernel has cgroup v2, mounted or not."""
    return FILESYSTEMS.is_file() and "cgroup2" in FILESYSTEMS.read_text(encoding="utf-8").split()


# What a part can need that is no program, under the name that `needs` and the summary have for it.
CONDITIONS: dict[str, Callable[[], bool]] = {
    "root rights": lambda: os.geteuid() == 0,
    "cgroup v2": has_cgroup2,
    # What would take `make test` past the 35 minutes that CI has on two cores.
    "make test-full": lambda: os.environ.get("TOKFORGE_TEST_FULL") == "1",
}


@dataclass(frozen=True)
class Check:
    """One part: its name, its group, its command line, and programs and CONDITIONS without which it is skipped.

    `beside`: it runs beside the parts that follow, when the one beside them before it has ended. Its output is shown at
    its end.
    """

    name: str
    group: str
    run: tuple[str, ...]
    needs: tuple[str, ...] = ()
    beside: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a part went: passed, failed or skipped, why, and the seconds it took."""

    check: Check
    verdict: str
    reason: str
    elapsed_s: float

    def line(self) -> str:
        """The part's line in the summary."""
        why = f"  {self.reason}" if self.reason else ""
        return f"{self.verdict:8}{self.elapsed_s:7.1f} s  {self.check.name}{why}"


def load(path: Path) -> list[Check]:
    """The checks of a pyproject.toml, in its order."""
    table = tomllib.loads(path.read_text(encoding="utf-8"))["tool"]["checks"]
    return [
        Check(
            entry["name"],
            entry["group"],
            tuple(entry["run"]),
            tuple(entry.get("needs", ())),
            entry.get("beside", False),
        )
        for entry in table
    ]


def choose(checks: Sequence[Check], groups: Sequence[str]) -> list[Check]:
    """Those of the groups named, or all; an unknown group raises ValueError with those that exist."""
    known = list(dict.fromkeys(check.group for check in checks))
    unknown = [group for group in groups if group not in known]
    if unknown:
        raise ValueError(f"no check belongs to group {', '.join(unknown)}; groups are {', '.join(known)}")
    return [check for check in checks if not groups or check.group in groups]


def present(need: str, path: str | None) -> bool:
    """Whether this machine has what a part needs: a condition by its name, otherwise a program on the path."""
    condition = CONDITIONS.get(need)
    return condition() if condition else shutil.which(need, path=path) is not None


def run(check: Check, env: Mapping[str, str]) -> Outcome:
    """Run one part with its output shown, at its end when it runs beside others."""
    missing = [name for name in check.needs if not present(name, env.get("PATH"))]
    if missing:
        return Outcome(check, "skipped", f"needs {', '.join(missing)}", 0.0)
    title = f"\n=== {check.name}: {' '.join(check.run)}"
    print(f"{title} (beside what follows)" if check.beside else title, flush=True)
    started = time.monotonic()
    with tempfile.TemporaryFile() as kept:
        output = kept if check.beside else None
        code = subprocess.run(
            check.run,
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if check.beside else None,
            check=False,
        ).returncode
        elapsed_s = time.monotonic() - started
        kept.seek(0)
        if check.beside:
            print(f"{title}\n{kept.read().decode(errors='replace')}", flush=True)
    if code:
        return Outcome(check, "failed", f"exit code {code}; again with: {' '.join(check.run)}", elapsed_s)
    return Outcome(check, "passed", "", elapsed_s)


def run_all(checks: Sequence[Check], env: Mapping[str, str]) -> list[Outcome]:
    """Run the parts one after another, and beside them, also one after another, those that are to run so."""
    with ThreadPoolExecutor(max_workers=1) as lane:
        begun = [lane.submit(run, check, env) if check.beside else run(check, env) for check in checks]
        return [one if isinstance(one, Outcome) else one.result() for one in begun]


def summary(outcomes: Sequence[Outcome]) -> str:
    """Lines for all parts and the closing line that counts them."""
    count = {verdict: sum(one.verdict == verdict for one in outcomes) for verdict in ("passed", "failed", "skipped")}
    lines = [outcome.line() for outcome in outcomes]
    return "\n".join([*lines, "", ", ".join(f"{number} {verdict}" for verdict, number in count.items())])


def environment() -> dict[str, str]:
    """The environment of every part: this Python's programs first, no colour, no secrets added."""
    env = dict(os.environ)
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    env["PYTHONPATH"] = str(ROOT / "collections")
    env["ANSIBLE_CONFIG"] = str(ROOT / "ansible.cfg")
    env.setdefault("NO_COLOR", "1")
    env.setdefault("ANSIBLE_NOCOLOR", "1")
    return env


def main(groups: Sequence[str]) -> int:
    """Command line: group names. Returns the exit code."""
    try:
        checks = choose(load(ROOT / "pyproject.toml"), groups)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    outcomes = run_all(checks, environment())
    print("\n" + summary(outcomes), flush=True)
    return 1 if any(outcome.verdict == "failed" for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
