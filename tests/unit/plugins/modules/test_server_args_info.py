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

from ansible_collections.tokforge.sglang.plugins.modules import server_args_info

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


class Module:
    """What the module's functions see of Ansible."""

    def __init__(self, **params: Any) -> None:
        options = ("args", "sglang_version", "source", "log", "compare_with", "compare_with_log", "compare_with_file")
        self.params = {**dict.fromkeys(options), "env": {}, "start": "last", **params}
        self.no_log_values: set[str] = set()
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)


def look(**params: Any) -> dict[str, Any]:
    """The module's answer without a process of its own: `failed` and `msg` when it would fail, and `warnings`."""
    module = Module(**params)
    try:
        found: dict[str, Any] = server_args_info.look(module)
    except server_args_info.RefusedError as exc:
        found = {"failed": True, "msg": str(exc), **exc.facts}
    return {**found, "warnings": module.warnings, "no_log": module.no_log_values}


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
    assert (answer["effective"], answer["starts"], answer["differences"]) == (None, [], [])
    assert answer["release"] == {"version": "0.5.23", "source": None, "flags": 531, "unread": []}


def test_arguments_are_checked_together_and_each_problem_has_its_level() -> None:
    args = {"tp-size": 8, "nnodes": 3, "disable-cuda-graph": True, "page-size": "x"}
    answer = look(sglang_version="0.5.23", args=args)
    assert [(problem["flag"], problem["level"]) for problem in answer["problems"]] == [
        ("disable-cuda-graph", "warn"), ("nnodes", "fail"), ("page-size", "fail"),
    ]  # fmt: skip


def test_environment_is_looked_at_by_the_rules() -> None:
    args = {"pp-size": 2, "speculative-algorithm": "EAGLE"}
    assert len(look(sglang_version="0.5.23", args=args)["problems"]) == 1
    assert look(sglang_version="0.5.23", args=args, env={"SGLANG_ENABLE_PP_SPEC": "1"})["problems"] == []


def test_secret_among_the_arguments_is_refused_and_printed_nowhere() -> None:
    answer = run(sglang_version="0.5.23", args={"api_key": "hunter2"})
    assert [problem["flag"] for problem in answer["problems"]] == ["api-key"]
    assert "hunter2" not in json.dumps(answer)


def test_last_start_is_read_and_compared_and_its_key_is_hidden(log: Path) -> None:
    answer = run(log=str(log), compare_with={"tp_size": 8, "api_key": "(hidden)"})
    assert answer["effective"] == {"tp_size": 2, "api_key": "(hidden)"}
    assert answer["differences"] == [
        {
            "name": "tp_size", "left": 2, "right": 8, "weight": "decides_speed", "rank": 11,
            "hint": "each GPU reads another share of the weights", "left_name": "tp_size", "right_name": "tp_size",
        }
    ]  # fmt: skip
    assert answer["argv"] is None
    assert answer["starts"] == [
        {"line": 1, "time": "2026-11-29 16:24:36", "complete": True, "arguments": 1},
        {"line": 3, "time": "2026-11-29 16:24:36", "complete": True, "arguments": 2},
    ]


@pytest.mark.parametrize(("start", "size"), [("first", 1), ("last", 2), ("1", 1), (-2, 1)])
def test_another_start_of_the_log_can_be_chosen(log: Path, start: str | int, size: int) -> None:
    assert look(log=str(log), start=start)["effective"]["tp_size"] == size


@pytest.mark.parametrize(("start", "said"), [("3", "it has 2 starts, and none is number 3"), ("x", "start is 'x'")])
def test_start_that_is_not_there_fails(log: Path, start: str, said: str) -> None:
    answer = look(log=str(log), start=start)
    assert answer["failed"] and said in answer["msg"]


def test_two_logs_are_compared(log: Path, tmp_path: Path) -> None:
    other = tmp_path / "good.log"
    other.write_text(f"{HEAD}server_args={{'tp_size': 4, 'port': 1}}\n")
    answer = look(log=str(log), compare_with_log=str(other))
    found = [(entry["name"], entry["left"], entry["right"]) for entry in answer["differences"]]
    assert found == [("tp_size", 2, 4), ("api_key", "(hidden)", "(absent)"), ("port", "(absent)", 1)]


def test_log_is_compared_with_a_recorded_file(log: Path, tmp_path: Path) -> None:
    good = tmp_path / "launch.json"
    good.write_text(json.dumps({"argv": ["-m", "sglang.launch_server", "--tp-size", "4"]}))
    [first, _key] = look(log=str(log), compare_with_file=str(good))["differences"]
    assert (first["name"], first["left"], first["right"], first["right_name"]) == ("tp_size", 2, "4", "tp-size")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("compare_with_file", None, "No such file or directory; give the path of recorded arguments"),
        ("compare_with_file", "{", "it is no JSON"),
        ("compare_with_log", None, "No such file or directory; give the path of a server's log"),
        ("compare_with_log", "x", "no server says its arguments in it"),
    ],
)
def test_other_side_that_cannot_be_read_fails(
    log: Path, tmp_path: Path, name: str, text: str | None, said: str
) -> None:
    path = tmp_path / "other"
    if text is not None:
        path.write_text(text)
    answer = look(log=str(log), **{name: str(path)})
    assert answer["failed"] and said in answer["msg"] and str(path) in answer["msg"]


def test_cut_arguments_are_read_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "cut.log"
    path.write_text(f"{HEAD}server_args={{'tp_size': 1, 'dtype': 'au")
    answer = look(log=str(path))
    assert answer["effective"] == {"tp_size": 1}
    assert answer["starts"][0]["complete"] is False
    assert answer["warnings"] == [f"the arguments in line 1 of {path} are cut off; those before the cut are read"]


def test_secret_of_the_other_side_is_printed_nowhere(log: Path) -> None:
    answer = run(sglang_version="0.5.23", args={"tp-size": 1}, compare_with={"api-key": "hunter2"})
    assert [entry["name"] for entry in answer["differences"]] == ["tp_size", "api_key"]
    assert "hunter2" not in json.dumps(answer)


def test_release_is_read_from_its_sources_on_the_target(tmp_path: Path) -> None:
    srt = tmp_path / "sglang" / "srt"
    srt.mkdir(parents=True)
    (srt / "server_args.py").write_text(
        "class ServerArgs:\n    def add_cli_args(parser):\n        parser.add_argument('--tp-size', type=int)\n"
    )
    (tmp_path / "sglang" / "version.py").write_text("__version__ = '0.5.17'\n")
    answer = look(source=str(tmp_path), sglang_version="0.5.18", args={"tp-size": 8, "dtype": "auto"})
    assert answer["argv"] == ["--dtype", "auto", "--tp-size", "8"]
    assert [problem["flag"] for problem in answer["problems"]] == ["dtype"]
    assert answer["release"] == {
        "version": "0.5.17", "source": f"{srt}/server_args.py", "flags": 1, "unread": [],
    }  # fmt: skip
    assert answer["warnings"] == [f"the SGLang in {tmp_path} is 0.5.17, not 0.5.18; its own sources count"]


def test_source_without_sglang_fails(tmp_path: Path) -> None:
    answer = look(source=str(tmp_path), args={})
    assert answer["failed"] and answer["source"] == str(tmp_path) and "or give source" not in answer["msg"]


def test_hidden_key_of_the_other_side_hides_nothing_else(log: Path) -> None:
    assert look(log=str(log), compare_with={"api_key": "(hidden)", "admin_api_key": "k"})["no_log"] == {"k"}


def test_without_a_log_the_given_arguments_are_compared() -> None:
    answer = run(sglang_version="0.5.23", args={"tp-size": 1}, compare_with={"tp_size": 2})
    [difference] = answer["differences"]
    assert (difference["name"], difference["left"], difference["right"]) == ("tp_size", 1, 2)


def test_unknown_release_fails_with_the_known_ones() -> None:
    answer = run(sglang_version="0.5.22", args={})
    assert answer["failed"] and "no lock for this release" in answer["msg"]
    assert answer["msg"].endswith("or give source, an SGLang on the target to read its flags from")
    assert "0.5.23" in answer["known"]


def test_missing_log_fails_with_its_path(tmp_path: Path) -> None:
    answer = run(log=str(tmp_path / "none.log"))
    assert answer["failed"] and answer["msg"].startswith(f"reading the log {tmp_path}/none.log: No such file")


def test_log_without_a_start_fails_rather_than_report_nothing(tmp_path: Path) -> None:
    path = tmp_path / "empty.log"
    path.write_text(HEAD + "Init parallel begin.\n")
    assert "no server says its arguments" in run(log=str(path))["msg"]


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"compare_with": {"a": 1}},
        {"args": {"a": 1}},
        {"args": {}, "sglang_version": "0.5.23", "compare_with": {"a": 1}, "compare_with_log": "/x"},
    ],
)
def test_incomplete_parameters_are_refused(params: dict[str, Any]) -> None:
    assert run(**params)["failed"]
