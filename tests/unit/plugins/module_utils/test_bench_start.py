# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which start of the server a measurement belongs to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import start_history
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_start import KEPT, described, of_server
from ansible_collections.tokforge.sglang.plugins.module_utils.log_follow import LogPosition
from ansible_collections.tokforge.sglang.plugins.module_utils.service import Paths, Record, write_record

SERVER = Record("supervisor", "s", "boot-1", 77, 4242, 77, "launch", "/r/releases/1", LogPosition("/r/log"), 1000.5)


def start(**more: Any) -> dict[str, Any]:
    return {
        "state": "ready",
        "boot_id": "boot-1",
        "pid": 77,
        "start_ticks": 4242,
        "content_id": "c",
        "started_at": 1000.5,
        "ready_s": 15.25,
        "cold": True,
        "durations": {"weights": 2.5},
        "milestones": {"ready": 1015.75},
        "ranks": {"TP0": {"autotune_s": 3.5}},
        "autotune": {"expected": True},
        "autotune_outcome": "completed",
        "cache_before": {"files": 0},
        "cache_after": {"files": 2},
        **more,
    }


@pytest.fixture
def root(tmp_path: Path) -> str:
    (tmp_path / "state").mkdir()
    write_record(Paths(str(tmp_path)), SERVER)
    return str(tmp_path)


def test_start_of_the_very_process_is_told_with_what_explains_a_difference(root: str) -> None:
    start_history.add(root, start(pid=76, ready_s=1.0))
    start_history.add(root, start())
    start_history.add(root, start(boot_id="boot-2", ready_s=2.0))
    found = of_server(root)
    assert found is not None
    assert found["id"] == "boot-1/77/4242"
    assert {name: found[name] for name in KEPT} == {name: start()[name] for name in KEPT}
    assert set(found) == {"id", *KEPT}


def test_two_starts_have_two_names(root: str) -> None:
    names = {
        described(replace(SERVER, **change), None)["id"]
        for change in ({}, {"pid": 78}, {"start_ticks": 4243}, {"boot_id": "boot-2"})
    }
    assert len(names) == 4


def test_start_without_a_record_of_its_own_has_a_name_and_nothing_else(root: str) -> None:
    assert of_server(root) == {"id": "boot-1/77/4242", **dict.fromkeys(KEPT)}
    Path(start_history.path_in(root)).write_text("{half")
    assert of_server(root) == {"id": "boot-1/77/4242", **dict.fromkeys(KEPT)}


def test_start_whose_process_nobody_saw_is_found_by_its_time(root: str) -> None:
    write_record(Paths(root), replace(SERVER, start_ticks=0))
    start_history.add(root, start(start_ticks=100050))
    found = of_server(root)
    assert found is not None
    assert (found["id"], found["ready_s"]) == ("boot-1/77/0", 15.25)


def test_no_server_and_a_stopped_one_have_no_start(root: str, tmp_path: Path) -> None:
    start_history.add(root, start())
    write_record(Paths(root), replace(SERVER, stopped=True))
    assert of_server(root) is None
    assert of_server(str(tmp_path / "nowhere")) is None
    Path(Paths(root).record).write_text("{half")
    assert of_server(root) is None
