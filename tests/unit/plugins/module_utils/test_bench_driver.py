# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several command lines in one process, as `-m` would run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_driver

# As in 0.5.12: no function to call, everything happens in the main block.
PROGRAM = """
import sys
import counted
STATE = []
if __name__ == "__main__":
    STATE.append(1)
    print("ran", sys.argv[1:], len(STATE), flush=True)
    if sys.argv[1] == "exit0":
        sys.exit()
    if sys.argv[1].startswith("exit"):
        sys.exit(int(sys.argv[1][4:]))
    if sys.argv[1] == "raise":
        raise ValueError("broken")
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "counted.py").write_text("print('imported', flush=True)")
    (tmp_path / "tool.py").write_text(PROGRAM)
    return tmp_path


def run(where: Path, points: list[list[str]], **plan: Any) -> subprocess.CompletedProcess[str]:
    path = where / "plan.json"
    path.write_text(json.dumps({"module": "tool", "parent": os.getpid(), "points": points, **plan}))
    # As in use: the source comes through standard input.
    source = Path(bench_driver.__file__).read_text()
    return subprocess.run(
        [sys.executable, "-", str(path)],
        input=source, capture_output=True, text=True, cwd=where, check=False,
    )  # fmt: skip


def test_points_run_in_order_with_fresh_state_and_imports_happen_once(program: Path) -> None:
    done = run(program, [["a", "--x", "1"], ["exit0"], ["c"]])
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if not line.startswith("==")] == [
        "imported",
        "ran ['a', '--x', '1'] 1",
        "ran ['exit0'] 1",
        "ran ['c'] 1",
    ]


@pytest.mark.parametrize("failing", ["exit3", "raise"])
def test_failing_point_ends_the_run_and_is_numbered(program: Path, failing: str) -> None:
    done = run(program, [["a"], [failing], ["c"]])
    assert done.returncode == 2
    assert "ran ['c']" not in done.stdout
    assert ("broken" if failing == "raise" else "tool ended with 3") in done.stderr


def test_unknown_module_is_a_failing_point(program: Path) -> None:
    assert run(program, [["a"]], module="no.such.module").returncode == 1


def test_number_of_the_failing_point_does_not_collide_with_other_exit_codes(program: Path) -> None:
    assert run(program, [["a"]] * 120 + [["raise"]]).returncode == 99


def test_nothing_runs_when_the_starter_is_gone(program: Path) -> None:
    done = run(program, [["a"]], parent=1 if os.getppid() != 1 else 2)
    assert (done.returncode, "ran" in done.stdout) == (bench_driver.PARENT_GONE, False)
