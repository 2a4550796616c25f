# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module in this process: what it writes, what it predicts, and what it leaves alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.module_utils import proc, service, start_history
from ansible_collections.tokforge.sglang.plugins.module_utils.log_follow import LogPosition
from ansible_collections.tokforge.sglang.plugins.modules import startup_record

READY = {"state": "ready", "cold": False, "noise": {"skipped_tactics": 500}, "autotune": {"ranks_completed": ["TP0"]}}
FAILED = {
    "state": "failed",
    "stage": "autotune",
    "failure": {"reason": "illegal_instruction", "rank": "TP1", "stage": "autotune", "excerpt": ["last words"]},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a server on record."""
    (tmp_path / "state").mkdir()
    paths = service.Paths(str(tmp_path))
    record = service.Record("supervisor", "x", proc.boot_id(), 41, 7, 41, "id", "/r/2", LogPosition("/l"), 1000.0)
    service.write_record(paths, record)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], root: Path, check_mode: bool = False, **params: Any) -> dict[str, Any]:
    """Run the module and give its result."""
    given = {"root": str(root), "_ansible_check_mode": check_mode, **params}
    with patch_module_args(given), pytest.raises(SystemExit):
        startup_record.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_start_is_recorded_once(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    verdict = {"passed": True, "reason": "r"}
    told = run(capsys, root, True, start=READY, output_check=verdict, content_id="c")
    assert told["changed"] is True and not Path(start_history.path_in(str(root))).exists()
    done = run(capsys, root, start=READY, output_check=verdict, content_id="c")
    assert done["changed"] is True and done["record"] == told["record"]
    assert start_history.read(str(root)) == [done["record"]]
    record = done["record"]
    assert (record["state"], record["pid"], record["release"], record["content_id"]) == ("ready", 41, "2", "c")
    assert (record["noise"], record["output_check"]) == ({"skipped_tactics": 500}, verdict)
    assert record["autotune_outcome"] == "completed"
    assert done["diff"] == {"before": {"start": None}, "after": {"start": record}}
    for check_mode in (True, False):
        again = run(capsys, root, check_mode, start=READY, content_id="c")
        assert (again["changed"], again["record"]) == (False, record)
        assert again["diff"]["before"] == again["diff"]["after"] == {"start": record}


def test_failed_start_is_what_a_fallback_goes_by(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    result = run(capsys, root, start=FAILED, content_id="c")
    assert result["record"]["failure"] == {
        "reason": "illegal_instruction",
        "rank": "TP1",
        "stage": "autotune",
        "last_line": "last words",
        "fatal": True,
    }
    assert start_history.failed_in_autotune(start_history.read(str(root)), "c") is True
    after_all = run(capsys, root, start=READY, content_id="c", autotune_fallback=True)
    assert (after_all["changed"], after_all["record"]["autotune_outcome"]) == (True, "disabled_fallback")
    assert after_all["diff"]["before"] == {"start": result["record"]}
    assert len(start_history.read(str(root))) == 1


def test_without_a_server_nothing_is_recorded(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    Path(service.Paths(str(root)).record).unlink()
    result = run(capsys, root, start=READY)
    assert (result["changed"], result["record"]) == (False, None)
    assert result["diff"] == {"before": {"start": None}, "after": {"start": None}}
    assert not Path(start_history.path_in(str(root))).exists()


def test_record_that_must_not_be_overwritten_is_an_error(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    path = Path(start_history.path_in(str(root)))
    path.write_text('{"schema_version": 9, "starts": []}')
    for check_mode in (True, False):
        result = run(capsys, root, check_mode, start=READY)
        assert result["failed"] and "its schema_version is 9" in result["msg"]
    assert path.read_text() == '{"schema_version": 9, "starts": []}'


@pytest.mark.parametrize("missing", ["root", "start"])
def test_parameters_that_are_needed(capsys: pytest.CaptureFixture[str], root: Path, missing: str) -> None:
    given = {"root": str(root), "start": READY}
    given.pop(missing)
    with patch_module_args(given), pytest.raises(SystemExit):
        startup_record.main()
    assert f"missing required arguments: {missing}" in json.loads(capsys.readouterr().out)["msg"]
