# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is shown while a benchmark runs: read on the target by one command, and nothing when it says nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible.errors import AnsibleConnectionFailure

from ansible_collections.tokforge.sglang.plugins.action import benchmark
from ansible_collections.tokforge.sglang.plugins.plugin_utils import heartbeat

STEPS = [[1, 1, 4], [1, 2, 4]]


def plugin(root: Any, answer: Any = None, check_mode: bool = False) -> tuple[benchmark.ActionModule, list[str]]:
    """The plugin, and the commands it runs; without an answer they are really run here."""
    commands: list[str] = []

    def execute(command: str) -> dict[str, Any]:
        commands.append(command)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return dict(answer)
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
        return {"rc": done.returncode, "stdout": done.stdout}

    task = MagicMock(args={"root": str(root)}, check_mode=check_mode, async_val=0, action="benchmark")
    found = benchmark.ActionModule(task, MagicMock(), MagicMock(), None, MagicMock(), None)
    found._low_level_execute_command = execute
    found._remove_tmp_path = MagicMock()
    return found, commands


def progress(root: Path, *entries: dict[str, Any], tail: str = "") -> Path:
    path = root / "bench" / "progress.jsonl"
    path.parent.mkdir(parents=True)
    lines = "".join(json.dumps(entry) + "\n" for entry in ({"steps": STEPS}, *entries))
    path.write_text(lines + tail)
    return path


def test_progress_is_told_by_the_clock_of_the_target(tmp_path: Path) -> None:
    root = tmp_path / "a root; touch x $(id) 'q'"
    progress(root, {"begin": 1000.5}, {"end": 1010.5}, {"begin": 1010.5})
    shown, commands = plugin(root)
    told = shown._detail()
    # The recorded times are long ago, so the target's own clock makes it many hours, and the rest is over.
    assert told.startswith("point 1 of 1, 1 in flight, repetition 2 of 2: ")
    assert told.endswith(" h elapsed, about 0 s left")
    assert len(commands) == 1
    assert not (tmp_path / "x").exists()


def test_half_written_line_does_not_take_the_clock_with_it(tmp_path: Path) -> None:
    progress(tmp_path, {"begin": 1000}, tail='{"ma')
    assert " h elapsed" in plugin(tmp_path)[0]._detail()


def test_nothing_is_told_before_it_begins_and_after_it_ended(tmp_path: Path) -> None:
    shown, _commands = plugin(tmp_path)
    assert shown._detail() == ""
    path = progress(tmp_path)
    assert shown._detail() == ""
    lines = [{"steps": STEPS}, {"begin": 1}, {"end": 2}, {"begin": 2}, {"end": 3}]
    path.write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    assert shown._detail() == ""


@pytest.mark.parametrize(
    "answer",
    [
        AnsibleConnectionFailure("gone"),
        OSError("gone"),
        {"rc": 1, "stdout": '{"steps": [[1, 1, 4]]}\n{"begin": 1}\n'},
        {"rc": 0, "stdout": ""},
        {"rc": 0, "stdout": "motd: welcome"},
        {"rc": 0},
        {},
    ],
)
def test_target_that_does_not_answer_stops_nothing(answer: Any) -> None:
    assert plugin("/r", answer)[0]._detail() == ""


def test_module_runs_with_the_lines_and_its_result_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def with_lines(action: Any, tmp: Any, variables: Any, what: str, **more: Any) -> dict[str, Any]:
        seen.update(what=what, detail=more["detail"]())
        return {"changed": True}

    monkeypatch.setattr(benchmark, "run_with_heartbeat", with_lines)
    progress(tmp_path, {"begin": 1000})
    assert plugin(tmp_path)[0].run(task_vars={"inventory_hostname": "box"}) == {"changed": True}
    assert seen["what"] == "benchmark"
    assert seen["detail"].startswith("point 1 of 1, 1 in flight, repetition 1 of 2: ")
    assert heartbeat.EVERY_S <= 5


def test_check_mode_looks_at_nothing(tmp_path: Path) -> None:
    shown, commands = plugin(tmp_path, check_mode=True)
    shown._execute_module = MagicMock(return_value={"changed": True})
    assert shown.run(task_vars={"inventory_hostname": "box"})["changed"] is True
    assert commands == []
