# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner of all checks: which run, what a missing program means, and how the end is counted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import check
import pytest

ENV = dict(os.environ)


def part(name: str, code: int = 0, group: str = "unit", needs: tuple[str, ...] = ()) -> check.Check:
    return check.Check(name, group, (sys.executable, "-c", f"raise SystemExit({code})"), needs)


def test_every_listed_check_has_a_group_and_a_command() -> None:
    checks = check.load(check.ROOT / "pyproject.toml")
    assert {"lint", "docs", "sanity", "unit", "integration", "real", "molecule"} <= {one.group for one in checks}
    assert all(one.run for one in checks)


def test_groups_choose_in_the_tables_order() -> None:
    checks = [part("a"), part("b", group="lint"), part("c")]
    assert [one.name for one in check.choose(checks, ["lint", "unit"])] == ["a", "b", "c"]
    assert [one.name for one in check.choose(checks, ["unit"])] == ["a", "c"]


def test_unknown_group_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="typo; groups are unit"):
        check.choose([part("a")], ["typo"])


def test_exit_code_of_the_program_decides() -> None:
    assert check.run(part("good"), ENV).verdict == "passed"
    failed = check.run(part("bad", code=3), ENV)
    assert failed.verdict == "failed"
    assert "exit code 3" in failed.reason


def test_missing_program_skips_with_its_name() -> None:
    outcome = check.run(part("scenario", needs=("no-such-program",)), ENV)
    assert (outcome.verdict, outcome.reason) == ("skipped", "needs no-such-program")


def test_user_without_root_rights_skips_with_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = part("scenario", needs=("root rights",))
    monkeypatch.setattr(check.os, "geteuid", lambda: 1000)
    outcome = check.run(scenario, ENV)
    assert (outcome.verdict, outcome.reason) == ("skipped", "needs root rights")
    monkeypatch.setattr(check.os, "geteuid", lambda: 0)
    assert check.run(scenario, ENV).verdict == "passed"


def test_kernel_without_cgroup_v2_skips_with_that_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = part("scenario", needs=("cgroup v2",))
    monkeypatch.setattr(check, "FILESYSTEMS", tmp_path / "filesystems")
    assert check.run(scenario, ENV).reason == "needs cgroup v2"  # no such file: no Linux
    check.FILESYSTEMS.write_text("nodev\tcgroup\n\text4\n")
    assert check.run(scenario, ENV).verdict == "skipped"
    check.FILESYSTEMS.write_text("nodev\tcgroup\nnodev\tcgroup2\n\text4\n")
    assert check.run(scenario, ENV).verdict == "passed"


def test_part_that_runs_beside_others_does_not_keep_them_waiting_and_is_shown_whole(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flag = tmp_path / "flag"
    waits = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\nprint('whole')"
    touches = "import pathlib, sys\npathlib.Path(sys.argv[1]).touch()"
    first = check.Check("first", "x", (sys.executable, "-c", waits, str(flag)), beside=True)
    second = check.Check("second", "x", (sys.executable, "-c", touches, str(flag)))
    outcomes = check.run_all([first, second], ENV)
    assert [(one.check.name, one.verdict) for one in outcomes] == [("first", "passed"), ("second", "passed")]
    assert "\nwhole\n" in capfd.readouterr().out.split("=== second")[1]


def test_parts_beside_others_run_one_after_another(tmp_path: Path) -> None:
    line = "import pathlib, sys, time\npathlib.Path(sys.argv[1]).open('a').write(sys.argv[2])\ntime.sleep(0.2)\n"
    line += "pathlib.Path(sys.argv[1]).open('a').write(sys.argv[2])"
    order = tmp_path / "order"
    parts = [check.Check(name, "x", (sys.executable, "-c", line, str(order), name), beside=True) for name in "ab"]
    check.run_all(parts, ENV)
    assert order.read_text() == "aabb"


def test_last_line_counts_passed_failed_skipped() -> None:
    outcomes = [
        check.Outcome(part("a"), "passed", "", 1.0),
        check.Outcome(part("b"), "failed", "exit code 1", 2.0),
        check.Outcome(part("c"), "skipped", "needs podman", 0.0),
        check.Outcome(part("d"), "passed", "", 1.0),
    ]
    lines = check.summary(outcomes).splitlines()
    assert lines[-1] == "2 passed, 1 failed, 1 skipped"
    assert any("podman" in line for line in lines)


def test_one_failed_part_fails_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "load", lambda path: [part("bad", code=1), part("good")])
    assert check.main([]) == 1
    monkeypatch.setattr(check, "load", lambda path: [part("good")])
    assert check.main([]) == 0
