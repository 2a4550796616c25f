# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module, run as Ansible runs it: one JSON in, one JSON out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MODULE = "ansible_collections.tokforge.sglang.plugins.modules.server_args_info"
HEAD = "[2026-11-29 16:24:36] "


def run(**params: Any) -> dict[str, Any]:
    """The module's answer; `failed` is there when it failed."""
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


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with two starts."""
    path = tmp_path / "server.log"
    path.write_text(
        f"{HEAD}server_args={{'tp_size': 1}}\nnoise \udcff\n".encode("utf-8", "surrogateescape").decode("latin1")
    )
    with path.open("a") as handle:
        handle.write(f"{HEAD}server_args={{'tp_size': 2, 'api_key': 'hunter2'}}\n")
    return path


def test_arguments_are_rendered_and_checked_without_changing_anything() -> None:
    answer = run(sglang_version="0.5.23", args={"tp-size": 8, "dtyp": "auto"})
    assert answer["changed"] is False
    assert answer["argv"] == ["--dtyp", "auto", "--tp-size", "8"]
    assert [problem["flag"] for problem in answer["problems"]] == ["dtyp"]
    assert (answer["effective"], answer["differences"]) == (None, [])


def test_secret_among_the_arguments_is_refused_and_printed_nowhere() -> None:
    answer = run(sglang_version="0.5.23", args={"api_key": "hunter2"})
    assert [problem["flag"] for problem in answer["problems"]] == ["api-key"]
    assert "hunter2" not in json.dumps(answer)


def test_last_start_is_read_and_compared_and_its_key_is_hidden(log: Path) -> None:
    answer = run(log=str(log), compare_with={"tp_size": 8, "api_key": "(hidden)"})
    assert answer["effective"] == {"tp_size": 2, "api_key": "(hidden)"}
    assert answer["differences"] == [{"name": "tp_size", "left": 2, "right": 8}]
    assert answer["argv"] is None


def test_without_a_log_the_given_arguments_are_compared() -> None:
    answer = run(sglang_version="0.5.23", args={"tp-size": 1}, compare_with={"tp_size": 2})
    assert answer["differences"] == [{"name": "tp_size", "left": 1, "right": 2}]


def test_unknown_release_fails_with_the_known_ones() -> None:
    answer = run(sglang_version="0.5.22", args={})
    assert answer["failed"] and "no lock for this release" in answer["msg"]
    assert "0.5.23" in answer["known"]


def test_missing_log_fails_with_its_path(tmp_path: Path) -> None:
    answer = run(log=str(tmp_path / "none.log"))
    assert answer["failed"] and answer["msg"].startswith(f"reading the log {tmp_path}/none.log: No such file")


def test_log_without_a_start_fails_rather_than_report_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.log"
    path.write_text(HEAD + "Init parallel begin.\n")
    assert "no server says its arguments" in run(log=str(path))["msg"]


@pytest.mark.parametrize("params", [{}, {"compare_with": {"a": 1}}, {"args": {"a": 1}}])
def test_incomplete_parameters_are_refused(params: dict[str, Any]) -> None:
    assert run(**params)["failed"]
