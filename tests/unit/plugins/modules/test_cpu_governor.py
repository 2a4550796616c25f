# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module: what it is given, what it returns, and that it runs as a program."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.modules import cpu_governor

POLICY = {
    "scaling_driver": "intel_cpufreq",
    "scaling_governor": "schedutil",
    "scaling_available_governors": "performance schedutil",
    "energy_performance_preference": "balance_performance",
    "energy_performance_available_preferences": "default performance balance_performance",
}


Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run it in this process, on the tree below a folder."""
    return functools.partial(answer_of, capsys)


def answer_of(capsys: pytest.CaptureFixture[str], folder: Path, check: bool = False, **params: Any) -> dict[str, Any]:
    """The module's answer for the tree below a folder; `failed` is there when it failed."""
    given: dict[str, Any] = {"sys_cpu": str(folder / "cpu"), "record_dir": str(folder / "record"), **params}
    given.update(_ansible_check_mode=check, _ansible_diff=True)
    with patch_module_args(given), pytest.raises(SystemExit) as ended:
        cpu_governor.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert ended.value.code == (1 if answer.get("failed") else 0)
    return answer


@pytest.fixture
def two_cpus(tmp_path: Path) -> Path:
    """A folder with two CPUs of one policy."""
    path = tmp_path / "cpu" / "cpufreq" / "policy0"
    path.mkdir(parents=True)
    for name, text in {**POLICY, "affected_cpus": "0 1", "related_cpus": "0 1"}.items():
        (path / name).write_text(f"{text}\n")
    return tmp_path


def test_values_are_set_returned_shown_and_put_back(two_cpus: Path, run: Run) -> None:
    wanted = {"governor": "performance", "energy_preference": "performance"}
    before = {"governor": "schedutil", "energy_preference": "balance_performance"}
    predicted = run(two_cpus, check=True, **wanted)
    governor = two_cpus / "cpu" / "cpufreq" / "policy0" / "scaling_governor"
    assert governor.read_text() == "schedutil\n"
    done = run(two_cpus, **wanted)
    assert {**done, "invocation": None} == {**predicted, "invocation": None}
    assert {name: done[name] for name in ("changed", "supported", "energy_preference_supported", "reason")} == {
        "changed": True,
        "supported": True,
        "energy_preference_supported": True,
        "reason": "",
    }
    assert done["policies"] == [
        {
            "name": "policy0",
            "cpus": [0, 1],
            "driver": "intel_cpufreq",
            "before": before,
            "after": wanted,
            "available": {
                "governors": ["performance", "schedutil"],
                "energy_preferences": ["default", "performance", "balance_performance"],
            },
            "status": "set",
        }
    ]
    header = f"CPU governors in {two_cpus}/cpu"
    assert done["diff"] == {
        "before_header": header,
        "after_header": header,
        "before": "CPU 0-1 (policy0): schedutil, balance_performance\n",
        "after": "CPU 0-1 (policy0): performance, performance\n",
    }
    assert governor.read_text() == "performance\n"
    again = run(two_cpus, **wanted)
    assert (again["changed"], again["policies"][0]["status"]) == (False, "already")
    back = run(two_cpus, state="absent")
    assert (back["changed"], back["policies"][0]["after"]) == (True, before)
    assert governor.read_text() == "schedutil\n"


def test_machine_without_frequency_driver_is_reported_and_no_failure(tmp_path: Path, run: Run) -> None:
    (tmp_path / "cpu" / "cpu0").mkdir(parents=True)
    answer = run(tmp_path, governor="performance")
    assert (answer["changed"], answer["supported"], answer["policies"]) == (False, False, [])
    assert "no driver of this kernel sets the CPU frequency" in answer["reason"]


def test_failures_return_their_facts(two_cpus: Path, run: Run) -> None:
    answer = run(two_cpus, governor="ondemand")
    assert answer["failed"] and answer["available"] == {"policy0": ["performance", "schedutil"]}
    assert "CPU 0-1 has performance, schedutil; choose one of them" in answer["msg"]
    assert "state is present but all of the following are missing: governor" in run(two_cpus)["msg"]
    (two_cpus / "record").mkdir()
    (two_cpus / "record" / "previous.json").write_text("{")
    broken = run(two_cpus, governor="performance")
    assert broken["failed"] and broken["path"] == str(two_cpus / "record" / "previous.json")


def test_module_runs_as_a_program(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    given = {"state": "absent", "sys_cpu": str(tmp_path / "cpu"), "record_dir": str(tmp_path / "record")}
    done = subprocess.run(
        [sys.executable, "-m", cpu_governor.__name__],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": given}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["changed"] is False
