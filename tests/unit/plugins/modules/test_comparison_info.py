# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module over a fact file, and once as Ansible runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.tokforge.sglang.plugins.module_utils import comparison_units, result_store
from ansible_collections.tokforge.sglang.plugins.modules import comparison_info

MODULE = "ansible_collections.tokforge.sglang.plugins.modules.comparison_info"
BASE = [100.0, 101.0, 99.0, 100.5, 99.5]


def record(name: str, factor: float = 1.0) -> dict[str, Any]:
    values = [value * factor for value in BASE]
    return {
        "id": name, "recorded_at": f"2026-03-14T09:00:0{name[-1]}Z", "engine": {"name": "sglang.bench_serving"},
        "fingerprint": "a" * 16, "valid": True, "reasons": [], "warnings": [], "hardware": "1x GPU", "raw_dir": "/x",
        "context": {"model": {"served_name": "tiny"}}, "parameters": {}, "start": {"id": name},
        "points": [{"concurrency": 8, "output_tok_s": values[0], "values": {"output_tok_s": values}, "valid": True}],
    }  # fmt: skip


def document(*records: dict[str, Any], baseline: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"latest": records[-1], "history": list(records), "results": [{"baseline": baseline, "declared": True}]}


def look(monkeypatch: pytest.MonkeyPatch, found: Any, **params: Any) -> dict[str, Any]:
    """The module's answer for a document, however the fact file of the day holds it."""
    monkeypatch.setattr(result_store, "read", lambda facts_dir: found)
    options = {name: spec.get("default") for name, spec in comparison_info.ARGUMENTS.items() if name != "facts_dir"}
    expected = params.pop("expectation", None)
    if expected is not None:
        usual = {
            name: spec.get("default") for name, spec in comparison_info.ARGUMENTS["expectation"]["options"].items()
        }
        expected = {**usual, **expected}
    answer = comparison_info.look(
        {**options, "facts_dir": "/facts", **params, "expectation": expected}, "2026-03-14T10:00:00Z"
    )
    json.dumps(answer, allow_nan=False)
    return answer


def run(**params: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", MODULE],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {"_ansible_check_mode": True, **params}}),
        capture_output=True,
        text=True,
        check=False,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if answer.get("failed") else 0), done.stderr
    return answer


def test_latest_is_compared_with_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = record("r1"), record("r2", 1.2)
    answer = look(monkeypatch, document(old, new, baseline=old))
    found = answer["comparison"]
    assert (found["verdict"], found["kind"], found["a"]["ids"], found["b"]["ids"]) == (
        "faster",
        "baseline",
        ["r1"],
        ["r2"],
    )
    assert found["recorded_at"] == "2026-03-14T10:00:00Z"
    assert found["regression"] is None and answer["expectation"] is None


def test_sides_limits_and_expectation_are_those_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = document(record("r1"), record("r2", 1.2), record("r3", 0.6))
    answer = look(
        monkeypatch, runs, a="r2", b="latest", concurrency=8, max_regression_percent={"output_tok_s": 5},
        expectation={"baseline": True},
    )  # fmt: skip
    assert (answer["comparison"]["verdict"], answer["comparison"]["kind"]) == ("slower", "ab")
    assert answer["comparison"]["regression"]["passed"] is False
    assert (
        answer["expectation"]["status"] == "degraded" and "50 % of the expected 120.0" in answer["expectation"]["why"]
    )


def test_fingerprint_takes_all_its_valid_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    other = {**record("r9", 1.2), "fingerprint": "b" * 16}
    runs = document(record("r1"), {**record("r2", 5.0), "valid": False}, record("r3"), other)
    assert look(monkeypatch, runs, a="a" * 16)["comparison"]["a"]["ids"] == ["r1", "r3"]


@pytest.mark.parametrize("found", [None, {}, {"latest": None, "history": []}, {"latest": {}, "history": [3]}])
def test_nothing_on_record_is_not_comparable(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    answer = look(
        monkeypatch, found, max_regression_percent={"output_tok_s": 5}, expectation={"output_tok_s": {"1": 5}}
    )
    assert answer["comparison"]["verdict"] == "not_comparable"
    assert "there is no run on record for a (baseline)" in answer["comparison"]["why"]
    assert answer["comparison"]["regression"]["passed"] is False
    assert answer["expectation"]["status"] == "unknown"


def test_as_ansible_runs_it_an_empty_directory_is_an_answer(tmp_path: Path) -> None:
    answer = run(facts_dir=str(tmp_path))
    assert answer["changed"] is False and answer["comparison"]["verdict"] == "not_comparable"
    assert list(tmp_path.iterdir()) == []


def test_as_ansible_runs_it_a_fact_file_is_compared(tmp_path: Path) -> None:
    for name, factor in (("r1", 1.0), ("r2", 1.2)):
        result_store.record(str(tmp_path), record(name, factor))
    assert run(facts_dir=str(tmp_path), a="r1")["comparison"]["verdict"] == "faster"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"max_regression_percent": {"tok_s": 5}}, "no such figure; use some of output_tok_s"),
        ({"tie_percent": -1}, "tie_percent -1.0: no share"),
        ({"expectation": {"output_tok_s": {"x": 5}}}, "no concurrency; use whole numbers"),
    ],
)
def test_what_makes_no_sense_fails(tmp_path: Path, params: dict[str, Any], said: str) -> None:
    answer = run(facts_dir=str(tmp_path), **params)
    assert answer["failed"] and said in answer["msg"]


def test_corrupt_fact_file_fails_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "sglang.fact").write_text("{")
    answer = run(facts_dir=str(tmp_path))
    assert answer["failed"] and f"fact file {tmp_path}/sglang.fact: not JSON" in answer["msg"]


def test_options_are_documented_as_they_are_read() -> None:
    told = yaml.safe_load(comparison_info.DOCUMENTATION)["options"]
    assert told.keys() == comparison_info.ARGUMENTS.keys()
    for name, spec in comparison_info.ARGUMENTS.items():
        assert told[name]["type"] == spec["type"] and told[name].get("default") == spec.get("default"), name
    assert told["metric"]["choices"] == comparison_info.ARGUMENTS["metric"]["choices"] == list(comparison_units.METRICS)
