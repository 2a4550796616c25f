# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One start as it is put on record: when it was ready, how it failed, and what is there of the tuning results."""

from __future__ import annotations

import hashlib
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import proc, service, start_history, start_record
from ansible_collections.tokforge.sglang.plugins.module_utils.log_follow import LogPosition

STARTED_AT = datetime(2026, 11, 29, 21, 39, 0).timestamp()


@pytest.fixture
def paths(tmp_path: Path) -> service.Paths:
    """A root whose last start is on record in state/server.json."""
    (tmp_path / "state").mkdir()
    made = service.Paths(str(tmp_path))
    write(made)
    return made


def write(paths: service.Paths, **changes: Any) -> None:
    server: dict[str, Any] = {
        "manager": "supervisor",
        "name": "sglang",
        "boot_id": proc.boot_id(),
        "pid": 41,
        "start_ticks": 7,
        "session": 41,
        "launch_id": "launch",
        "release": f"{paths.root}/releases/3",
        "log_position": LogPosition("/l"),
        "started_at": STARTED_AT,
    }
    service.write_record(paths, service.Record(**{**server, **changes}))


def ready(**more: Any) -> dict[str, Any]:
    """The last look of startup_info at a start that came to its end."""
    look: dict[str, Any] = dict.fromkeys(start_history.KEPT)
    look.update(
        state="ready",
        stage="ready",
        milestones={"ready": {"first": "2026-11-29 21:40:01", "last": "2026-11-29 21:40:01", "ranks": None}},
        autotune={"expected": "expected", "ranks_completed": ["TP0"]},
        cold=True,
        cursor={"not": "kept"},
        log_newest="not kept",
    )
    return {**look, **more}


def failed(**failure: Any) -> dict[str, Any]:
    found = {
        "reason": "exception",
        "rank": "TP1",
        "stage": "autotune",
        "excerpt": ["a", "RuntimeError: x"],
        "hint": "h",
    }
    return ready(state="failed", stage="autotune", failure={**found, **failure}, autotune={})


def made(paths: service.Paths, *args: Any, **more: Any) -> dict[str, Any]:
    _before, record = start_record.make(paths, *args, **more)
    assert record is not None
    return record


def test_start_that_came_to_its_end_is_told_in_full(paths: service.Paths) -> None:
    before, record = start_record.make(paths, ready(), {"passed": True, "reason": "r"}, "content")
    assert before is None and record is not None
    assert record == {
        **dict.fromkeys(start_history.KEPT),
        "milestones": ready()["milestones"],
        "autotune": ready()["autotune"],
        "cold": True,
        "state": "ready",
        "failure": None,
        "content_id": "content",
        "boot_id": proc.boot_id(),
        "pid": 41,
        "start_ticks": 7,
        "release": "3",
        "launch_id": "launch",
        "started_at": STARTED_AT,
        "ready_s": 61.0,
        "cache_after": {},
        "autotune_outcome": "completed",
        "output_check": {"passed": True, "reason": "r"},
    }
    json.dumps(record)


def test_without_a_server_of_this_boot_there_is_nothing_to_record(paths: service.Paths) -> None:
    write(paths, boot_id="another")
    assert start_record.make(paths, ready()) == (None, None)
    os.unlink(paths.record)
    assert start_record.make(paths, ready()) == (None, None)


def test_servers_that_died_before_anybody_saw_their_process_are_told_apart(paths: service.Paths) -> None:
    for later_s in (0.0, 60.0):
        write(paths, pid=0, start_ticks=0, started_at=STARTED_AT + later_s)
        record = made(paths, failed())
        start_history.add(paths.root, record)
        assert made(paths, failed()) == record
    assert [start["started_at"] for start in start_history.read(paths.root)] == [STARTED_AT, STARTED_AT + 60]


def test_start_is_told_once_and_its_output_can_be_checked_later(paths: service.Paths) -> None:
    first = made(paths, ready())
    start_history.add(paths.root, first)
    before, again = start_record.make(paths, ready(cold=False, noise={"x": 1}), None, "other")
    assert before == first and again == first
    checked = made(paths, ready(), {"passed": True})
    assert checked == {**first, "output_check": {"passed": True}}
    start_history.add(paths.root, checked)
    assert made(paths, ready()) == checked  # a verdict is not lost again
    assert made(paths, failed()) == checked  # what happened after a start is no start


def test_start_that_is_ready_after_all_takes_the_place_of_its_failure(paths: service.Paths) -> None:
    first = made(paths, failed())
    start_history.add(paths.root, first)
    assert made(paths, failed(reason="stalled")) == first
    before, after = start_record.make(paths, ready())
    assert before == first and after and (after["state"], after["failure"]) == ("ready", None)


def test_other_process_is_another_start(paths: service.Paths) -> None:
    start_history.add(paths.root, made(paths, ready()))
    write(paths, pid=42)
    before, record = start_record.make(paths, failed())
    assert before is None and record and (record["pid"], record["state"], record["ready_s"]) == (42, "failed", None)


@pytest.mark.parametrize(
    ("reason", "fatal"),
    [
        ("exception", True),
        ("oom_cuda", True),
        ("compile_failure", True),
        ("unsupported_architecture", True),
        ("illegal_instruction", True),
        ("rank_dead", True),
        ("stalled", True),
        ("port_in_use", False),
        ("hub_offline", False),
        ("oom_host", False),
        ("process_exit", True),
        ("autotune_skipped", False),
        ("graph_capture_failure", False),
    ],
)
def test_failure_says_whether_a_start_without_autotune_may_do_better(
    paths: service.Paths, reason: str, fatal: bool
) -> None:
    record = made(paths, failed(reason=reason), None, "content")
    assert record["failure"] == {
        "reason": reason,
        "rank": "TP1",
        "stage": "autotune",
        "last_line": "RuntimeError: x",
        "fatal": fatal,
    }
    start_history.add(paths.root, record)
    assert start_history.failed_in_autotune(start_history.read(paths.root), "content") is fatal


def test_start_that_was_given_up_is_a_time_out(paths: service.Paths) -> None:
    record = made(paths, ready(state="starting", stage="autotune", failure=None))
    assert record["failure"] == {"reason": "timeout", "rank": "", "stage": "autotune", "last_line": "", "fatal": False}
    assert (record["state"], record["ready_s"]) == ("failed", None)


@pytest.mark.parametrize(
    ("tuning", "fallback", "outcome"),
    [
        ({"ranks_completed": ["TP0", "TP1"], "expected": "not_expected"}, False, "completed"),
        ({"ranks_started": ["TP0", "TP1"], "ranks_completed": ["TP0"], "expected": "expected"}, False, "incomplete"),
        ({"ranks_started": ["TP0"], "ranks_completed": [], "expected": "auto"}, False, "incomplete"),
        ({"ranks_completed": [], "expected": "not_expected"}, False, "not_expected"),
        ({"ranks_completed": [], "expected": "auto"}, False, "none"),
        ({}, False, "none"),
        ({"ranks_completed": [], "expected": "not_expected"}, True, "disabled_fallback"),
    ],
)
def test_outcome_of_autotune(tuning: dict[str, Any], fallback: bool, outcome: str) -> None:
    assert start_record.outcome(tuning, 2, fallback) == outcome


@pytest.mark.parametrize(
    ("milestones", "seconds"),
    [
        ({"ready": {"first": "2026-11-29 21:40:01"}}, 61.0),
        ({"node_ready": {"first": "2026-11-29 21:39:30.250"}}, 30.2),
        ({"ready": {"first": "2026-11-29 21:38:59"}}, 0.0),  # whole seconds: it can seem to be before the start
        ({"ready": {"first": "2026-11-29 20:39:30"}}, None),  # a server in another time zone
        ({"ready": {"first": "2026-12-01 21:39:30"}}, None),
        ({"ready": {"first": "yesterday"}}, None),
        ({"ready": {}}, None),
        ({}, None),
    ],
)
def test_seconds_until_ready_come_from_the_servers_own_word(
    paths: service.Paths, milestones: dict[str, Any], seconds: float | None
) -> None:
    server = service.read_record(paths)
    assert server
    assert start_record.ready_s(server, milestones) == seconds


# --- tuning results --------------------------------------------------------------------------------------------------


def release(paths: service.Paths, **changes: Any) -> Path:
    """A current release; gives the directory of its tuning results."""
    root = Path(paths.root)
    (root / "model").mkdir()
    (root / "model/config.json").write_text('{"model_type": "qwen3_moe"}')
    venv = root / "releases/3/venv"
    (venv / "bin").mkdir(parents=True)
    versions = {"sglang": "0.5.23", "flashinfer-python": "0.7.2"}
    (venv / "environment.json").write_text(json.dumps({"schema_version": 1, "versions": versions}))
    argv = ["-m", "sglang.launch_server", "--model-path", f"{root}/model", "--tp-size", "2", "--host", "127.0.0.1"]
    launch = {"argv": argv, "env": {"SGLANG_CACHE_DIR": f"{root}/cache"}, "cwd": str(root), **changes}
    (root / "releases/3/launch.json").write_text(json.dumps(launch))
    (root / "current").symlink_to("releases/3")
    key = f"{root}/model|torch.bfloat16|None|auto|2|1|1|1|Qwen3MoeConfig|candidate_selection=v2_default|skip_ops="
    return root / "cache/flashinfer/autotune/0.7.2/sm100" / hashlib.sha256(key.encode()).hexdigest()[:16]


@pytest.mark.parametrize(("ranks", "state"), [((0, 1), "complete"), ((0,), "partial")])
def test_state_of_the_tuning_results_is_told(paths: service.Paths, ranks: tuple[int, ...], state: str) -> None:
    folder = release(paths)
    assert start_record.cache_state(paths) == {}
    folder.mkdir(parents=True)
    for number in ranks:
        (folder / f"rank_tp{number}_pp0_dp0.json").write_text("{}")
    assert start_record.cache_state(paths) == {str(folder): state}
    assert made(paths, ready())["cache_after"] == {str(folder): state}


@pytest.mark.parametrize(
    "changes",
    [
        {"argv": ["--disable-flashinfer-autotune"]},
        {"argv": 5},
        {"argv": None},
        {"env": 7},
        {"env": {"SGLANG_CACHE_DIR": "\0"}},
    ],
)
def test_release_that_tells_nothing_is_no_reason_to_fail(paths: service.Paths, changes: dict[str, Any]) -> None:
    release(paths, **changes)
    assert start_record.cache_state(paths) == {}


@pytest.mark.parametrize("content", ["", "[]", "{}", "null"])
def test_launch_file_that_is_broken_is_no_reason_to_fail(paths: service.Paths, content: str) -> None:
    release(paths)
    (Path(paths.root) / "releases/3/launch.json").write_text(content)
    assert start_record.cache_state(paths) == {}
