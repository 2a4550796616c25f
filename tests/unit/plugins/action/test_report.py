# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's work for a report: what it makes of the answers of hosts, when it writes, what it says."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml

from ansible_collections.tokforge.sglang.plugins.action import report
from ansible_collections.tokforge.sglang.plugins.modules import report as documented

FIXTURES = Path(__file__).parents[3] / "fixtures" / "report"
NAMES = ["report.html", "report.md", "report.xml", "tokforge_sglang.prom"]


def slurped(name: str) -> dict[str, Any]:
    """What ansible.builtin.slurp returns for a fact file."""
    data = (FIXTURES / f"{name}.json").read_bytes()
    return {"content": base64.b64encode(data).decode(), "source": "/f/sglang.fact", "encoding": "base64"}


FACTS = {"cpu-box": slurped("cpu-box"), "gone": {"unreachable": True, "msg": "Broken pipe"}}
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The plugin; pages are short, since another test makes real ones."""
    monkeypatch.setattr(report.report_html, "render", lambda made: f"<p>{len(made.hosts)}<svg a>x</svg></p>\n")

    def run(check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
        given = {"dir": str(tmp_path / "out"), "facts": FACTS, **arguments}
        task = MagicMock(args=given, check_mode=check_mode, async_val=0, action="report")
        plugin = report.ActionModule(task, MagicMock(), MagicMock(), None, MagicMock(), None)
        plugin._display = MagicMock()
        result: dict[str, Any] = plugin.run(task_vars={})
        result["warnings_said"] = [call.args[0] for call in plugin._display.warning.call_args_list]
        return result

    return run


def test_second_run_changes_nothing(run: Run, tmp_path: Path) -> None:
    first = run()
    assert first["changed"] and [os.path.basename(path) for path in first["files"]] == NAMES
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == NAMES
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    second = run()
    assert not second["changed"] and second["diff"] == []
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


def test_only_what_differs_is_written(run: Run, tmp_path: Path) -> None:
    run()
    (tmp_path / "out" / "report.md").write_bytes(b"\xff old\n")
    again = run()
    assert again["changed"] and [entry["after_header"] for entry in again["diff"]] == [str(tmp_path / "out/report.md")]
    assert (tmp_path / "out" / "report.md").read_text().startswith("## SGLang benchmarks")


def test_check_mode_says_what_would_be_written_and_writes_nothing(run: Run, tmp_path: Path) -> None:
    result = run(check_mode=True)
    assert result["changed"] and not (tmp_path / "out").exists()
    assert [entry["before_header"] for entry in result["diff"]] == ["/dev/null"] * 4
    page = result["diff"][0]
    assert (page["before"], page["after"]) == ("", "<p>2<svg a></svg></p>\n")


def test_result_counts_the_cases_and_names_the_hosts(run: Run) -> None:
    result = run()
    assert result["cases"] == {"tests": 5, "failures": 1, "errors": 1, "skipped": 0}
    # Ansible would take the task for one that was skipped.
    assert "skipped" not in result
    assert result["hosts"]["gone"] == {"state": "unreadable", "why": "it could not be reached"}
    assert result["recorded_at"] == "2026-03-15T09:15:23Z"
    assert result["warnings_said"] == ["the report lacks gone, which could not be reached: Broken pipe"]


def test_file_for_prometheus_can_go_elsewhere(run: Run, tmp_path: Path) -> None:
    result = run(prometheus=str(tmp_path / "textfile" / "a.prom"))
    assert result["files"][-1] == str(tmp_path / "textfile" / "a.prom")
    assert (tmp_path / "textfile" / "a.prom").read_text().startswith("# HELP ")
    assert not (tmp_path / "out" / NAMES[-1]).exists()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"skipped": True}, None),
        ({"stat": {"exists": False}}, None),
        ({}, "it was not asked"),
        (None, "it was not asked"),
        ({"unreachable": True, "msg": "differs"}, "it could not be reached"),
        ({"failed": True, "msg": "Permission denied"}, "could not be read: Permission denied"),
        ({"stat": {"exists": True, "path": "/f"}}, "could not be read"),
        ({"content": "e", "source": "/f"}, "its fact file could not be read: "),
        ({"content": base64.b64encode(b"{").decode(), "source": "/f"}, "cannot read /f: it is not JSON"),
    ],
)
def test_answer_of_a_host_without_facts(answer: Any, expected: str | None) -> None:
    told = report.found(answer)
    assert told is None if expected is None else expected in str(told)


def test_document_of_a_host_is_read() -> None:
    found = report.found(slurped("cpu-box"))
    assert found == json.loads((FIXTURES / "cpu-box.json").read_text())


@pytest.mark.parametrize("wrong", [{"dir": None}, {"dir": ""}, {"facts": "x"}, {"other": 1}])
def test_arguments_are_checked(run: Run, wrong: dict[str, Any]) -> None:
    assert run(**wrong)["failed"]


def test_place_that_cannot_be_written_fails_with_its_name(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run(dir=str(tmp_path / "file" / "out"))
    assert result["failed"] and str(tmp_path / "file") in result["msg"] and ";" in result["msg"]


def test_file_for_prometheus_must_not_take_the_place_of_another(run: Run, tmp_path: Path) -> None:
    result = run(prometheus=str(tmp_path / "out" / ".." / "out" / "report.html"))
    assert result["failed"] and "another file of the report" in result["msg"]
    assert not (tmp_path / "out").exists()


def test_missing_matplotlib_fails_with_what_to_do(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(_made: Any) -> str:
        raise report.ReportError("install it")

    monkeypatch.setattr(report.report_html, "render", fail)
    result = run()
    assert result["failed"] and result["msg"] == "install it" and not (tmp_path / "out").exists()


def test_options_are_those_of_the_documentation() -> None:
    options = yaml.safe_load(documented.DOCUMENTATION)["options"]
    told = {
        name: {key: option[key] for key in ("type", "required") if key in option} for name, option in options.items()
    }
    assert told == report.OPTIONS
