# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several command lines in one process, as `-m` would run them, and programs beside them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_driver, bench_progress

# As in 0.5.12: no function to call, everything happens in the main block.
PROGRAM = """
import os
import signal
import sys
import time
import counted
STATE = []
if __name__ == "__main__":
    STATE.append(1)
    print("ran", sys.argv[1:], len(STATE), flush=True)
    if sys.argv[1] == "measure":
        time.sleep(0.15)
        print("Measuring starts...")
        time.sleep(0.15)
        print("Measuring starts... (no, that was before)")
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "exit0":
        sys.exit()
    if sys.argv[1] == "words":
        sys.exit("no such model")
    if sys.argv[1].startswith("exit"):
        sys.exit(int(sys.argv[1][4:]))
    if sys.argv[1] == "raise":
        raise ValueError("broken")
"""
STEPS = [[1, 1, 4]]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "counted.py").write_text("print('imported', flush=True)")
    (tmp_path / "tool.py").write_text(PROGRAM)
    return tmp_path


def module(*arguments: str, **more: Any) -> dict[str, Any]:
    return {"module": "tool", "arguments": list(arguments), **more}


def run(where: Path, runs: list[dict[str, Any]], **plan: Any) -> subprocess.CompletedProcess[str]:
    path = where / "plan.json"
    whole = {"parent": os.getpid(), "progress": str(where / "progress"), "steps": STEPS, "runs": runs, **plan}
    path.write_text(json.dumps(whole))
    # As in use: the source comes through standard input.
    source = Path(bench_driver.__file__).read_text()
    return subprocess.run(
        [sys.executable, "-", str(path)],
        input=source, capture_output=True, text=True, cwd=where, check=False,
    )  # fmt: skip


def noted(where: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (where / "progress").read_text().splitlines()]


def names(where: Path) -> list[str]:
    return [name for entry in noted(where) for name in entry]


def test_runs_go_in_order_with_fresh_state_and_imports_happen_once(program: Path) -> None:
    done = run(program, [module("a", "--x", "1"), module("exit0"), module("c")])
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "== run 1 of 3",
        "imported",
        "ran ['a', '--x', '1'] 1",
        "== run 2 of 3",
        "ran ['exit0'] 1",
        "== run 3 of 3",
        "ran ['c'] 1",
    ]


@pytest.mark.parametrize(
    ("failing", "said"),
    [("exit3", "tool ended with 3"), ("raise", "broken"), ("words", "tool ended with no such model")],
)
def test_failing_run_ends_all_and_is_numbered(program: Path, failing: str, said: str) -> None:
    done = run(program, [module("a"), module(failing), module("c")])
    assert done.returncode == 2
    assert "ran ['c']" not in done.stdout
    assert said in done.stderr
    assert names(program) == ["steps", "begin", "end", "begin"]


def test_unknown_module_is_a_failing_run(program: Path) -> None:
    done = run(program, [{**module("a"), "module": "no.such.module"}])
    assert (done.returncode, "no.such" in done.stderr) == (1, True)


def test_number_of_the_failing_run_does_not_collide_with_other_exit_codes(program: Path) -> None:
    assert run(program, [module("a")] * 120 + [module("raise")]).returncode == 99


def test_nothing_runs_when_the_starter_is_gone(program: Path) -> None:
    done = run(program, [module("a")], parent=1 if os.getppid() != 1 else 2)
    assert (done.returncode, "ran" in done.stdout) == (bench_driver.PARENT_GONE, False)
    assert not (program / "progress").exists()


def test_time_of_the_measurement_is_that_of_its_line_and_noted_once(program: Path) -> None:
    before = time.time()
    done = run(program, [module("measure", begins="Measuring starts"), module("a", begins="Measuring starts")])
    assert (done.returncode, done.stderr) == (0, "")
    steps, begin, main, end, *second = noted(program)
    assert steps == {"steps": STEPS}
    assert before <= begin["begin"] <= main["main"] - 0.15
    assert main["main"] <= end["end"] - 0.15
    assert end["end"] <= time.time()
    assert [name for entry in second for name in entry] == ["begin", "end"]
    # What it watches is passed on whole.
    assert done.stdout.count("Measuring starts...") == 2


def test_no_time_is_noted_without_a_text_or_for_a_program(program: Path) -> None:
    run(program, [module("measure"), module("measure", begins="")])
    assert names(program) == ["steps", "begin", "end", "begin", "end"]
    (program / "progress").unlink()
    print_it = [sys.executable, "-c", "print('Measuring starts')"]
    done = run(program, [{"program": print_it, "begins": "Measuring starts"}])
    assert names(program) == ["steps", "begin", "end"]
    assert "Measuring starts" in done.stdout


def test_program_is_a_process_of_its_own_with_nothing_to_read(program: Path) -> None:
    code = "import os, sys; print('program', os.getpid(), repr(sys.stdin.read()))"
    done = run(program, [{"program": [sys.executable, "-c", code]}, module("a")])
    assert done.returncode == 0
    assert "''" in done.stdout
    assert done.stdout.splitlines()[-1] == "ran ['a'] 1"


def test_program_that_fails_or_is_missing_is_named(program: Path) -> None:
    done = run(program, [module("a"), {"program": [sys.executable, "-c", "raise SystemExit(7)"]}, module("c")])
    assert (done.returncode, "ran ['c']" in done.stdout) == (2, False)
    assert f"{sys.executable} ended with 7" in done.stderr
    missing = run(program, [{"program": ["/nowhere/aiperf", "profile"]}])
    assert missing.returncode == 1
    assert missing.stderr == "/nowhere/aiperf: No such file or directory\n"


def test_lines_survive_a_kill_and_can_be_read(program: Path) -> None:
    assert run(program, [module("a"), module("killed")], steps=[[1, 1, 4], [1, 2, 4]]).returncode == -9
    assert names(program) == ["steps", "begin", "end", "begin"]
    progress = bench_progress.read((program / "progress").read_bytes())
    assert progress is not None
    assert (progress.begun, len(progress.took_s), progress.over) == (2, 1, False)


@pytest.mark.parametrize("ending", ["killed", "well"])
def test_what_a_program_starts_ends_with_the_driver(program: Path, ending: str) -> None:
    # As aiperf does: a process of its own, which knows nothing of the driver.
    wait = "wait" if ending == "killed" else "exit 0"
    words = ["/bin/sh", "-c", f"sleep 60 & echo $! $$ > {program}/new; mv {program}/new {program}/pids; {wait}"]
    path = program / "plan.json"
    plan = {"parent": os.getpid(), "progress": str(program / "progress"), "steps": STEPS, "runs": [{"program": words}]}
    path.write_text(json.dumps(plan))
    driver = subprocess.Popen([sys.executable, bench_driver.__file__, str(path)], start_new_session=True)
    deadline = time.monotonic() + 10
    while not (program / "pids").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    started = [int(word) for word in (program / "pids").read_text().split()]
    if ending == "killed":
        driver.kill()
    assert driver.wait(10) == (-9 if ending == "killed" else 0)
    while any(running(one) for one in started) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [one for one in started if running(one)] == []


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
