# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of experiments: whole, locked, not too many, and never silently replaced."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    experiment_files,
    experiment_settings,
    experiment_state,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.candidates import Candidate
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_plan import rounds
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import ExperimentError

BASE = experiment_settings.base({})


def document(number: int = 0, **change: Any) -> dict[str, Any]:
    """An experiment of its own for each number."""
    found = experiment_state.new("ab", {"ab": f"flag-{number}"}, BASE, {}, 3, f"2026-01-01T00:00:{number:02d}Z")
    found = experiment_state.with_candidates(found, [Candidate("A", BASE)])
    found = experiment_state.with_trials(found, rounds(["A"], 1), 1)
    return {**found, **change}


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A root with the directory."""
    with experiment_files.locked(str(tmp_path)):
        pass
    return str(tmp_path)


def test_what_is_written_is_read(root: str) -> None:
    one = document()
    assert experiment_files.read(root, one["id"]) is None
    experiment_files.write(root, one)
    assert experiment_files.get(root, one["id"]) == one
    assert Path(root, "state", "experiments", f"{one['id']}.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "ab-XYZ", "ab-3f0c2b9d51e7/../x", "x" * 500])
def test_what_is_no_id_names_no_file(root: str, name: str) -> None:
    with pytest.raises(ExperimentError, match="is no id"):
        experiment_files.read(root, name)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"\xff\xfe", b'{"schema_version": true}', b'{"schema_version": 1}', b"[" * 100_000],
)
def test_damaged_file_is_told_and_moved_not_replaced(root: str, data: bytes) -> None:
    name = document()["id"]
    path = Path(experiment_files.path_of(root, name))
    path.write_bytes(data)
    with pytest.raises(experiment_files.CorruptError, match=r"reading .*\.json: "):
        experiment_files.read(root, name)
    assert experiment_files.unfinished(root, "ab-000000000000") == []
    aside = experiment_files.set_aside(root, name)
    assert Path(aside).read_bytes() == data and not path.exists()
    path.write_bytes(b"again")
    assert experiment_files.set_aside(root, name) != aside


def test_file_of_another_experiment_is_damaged(root: str) -> None:
    one, other = document(), document(1)
    Path(experiment_files.path_of(root, one["id"])).write_text(json.dumps(other))
    with pytest.raises(experiment_files.CorruptError, match="it is of experiment"):
        experiment_files.read(root, one["id"])


def test_file_of_a_newer_version_is_left_alone(root: str) -> None:
    one = document(schema_version=9)
    Path(experiment_files.path_of(root, one["id"])).write_text(json.dumps(one))
    with pytest.raises(ExperimentError, match="written with schema 9") as error:
        experiment_files.read(root, one["id"])
    assert not isinstance(error.value, experiment_files.CorruptError)


def test_missing_experiment_says_what_to_do(root: str) -> None:
    with pytest.raises(ExperimentError, match="is not there; begin it first"):
        experiment_files.get(root, "ab-000000000000")


def test_half_done_experiments_of_other_requests_are_told(root: str) -> None:
    ended = {"finished": True, "served": False}
    for one in (
        document(1),
        document(2, finished=True),
        document(3, abandoned=True),
        document(4),
        document(5, **ended),
        document(6, **ended, not_served="it crashes"),
        document(7, **ended, abandoned=True),
    ):
        experiment_files.write(root, one)
    found = experiment_files.unfinished(root, document(4)["id"])
    # Of flag-5 what is to serve was not seen to serve. Of flag-6 that is told.
    assert [one["request"] for one in found] == [{"ab": "flag-1"}, {"ab": "flag-5"}]
    assert found[0]["original_release"] == 3
    assert f"action: abandon, id: {document(1)['id']}" in found[0]["todo"]
    assert "-e sglang_experiment_abandon=true" in found[0]["todo"]


def test_oldest_files_go_those_that_are_done_with_first(root: str) -> None:
    for number in range(25):
        experiment_files.write(root, document(number, finished=number >= 2))
    mine = document(2)["id"]
    gone = experiment_files.prune(root, mine)
    assert gone == [document(number)["id"] for number in range(3, 8)]
    left = {one["id"] for one in experiment_files.others(root, "")}
    assert len(left) == 20 and {mine, document(0)["id"], document(1)["id"], document(24)["id"]} <= left
    assert experiment_files.prune(root, mine) == []


def test_second_writer_waits_and_says_so_in_the_end(root: str) -> None:
    waits: list[float] = []
    refused = pytest.raises(ExperimentError, match="another play holds it")
    with experiment_files.locked(root), refused, experiment_files.locked(root, 0.0, waits.append):
        pass
    with experiment_files.locked(root, 0.0):
        pass


def test_place_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    refused = pytest.raises(ExperimentError, match=r"opening .*make the directory writable")
    with refused, experiment_files.locked(str(tmp_path)):
        pass
    with pytest.raises(ExperimentError, match="writing "):
        experiment_files.write(str(tmp_path), document())
    assert experiment_files.others(str(tmp_path), "") == []


def test_figure_that_is_not_finite_is_not_written(root: str) -> None:
    with pytest.raises(ExperimentError, match="not finite"):
        experiment_files.write(root, document(parameters={"x": float("inf")}))
    assert os.listdir(experiment_files.directory_in(root)) == [".lock"]
