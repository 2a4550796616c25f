# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module, run as Ansible runs it: one JSON in, one JSON out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu, Report
from ansible_collections.tokforge.sglang.plugins.modules import gpu_info

MODULE = "ansible_collections.tokforge.sglang.plugins.modules.gpu_info"
FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "gpu"


def run(path: str | None = None, **params: Any) -> dict[str, Any]:
    """The module's answer; `failed` is there when it failed."""
    given = {name: str(value) if isinstance(value, Path) else value for name, value in params.items()}
    done = subprocess.run(
        [sys.executable, "-m", MODULE],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {"_ansible_check_mode": True, **given}}),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path or os.environ["PATH"]},
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if answer.get("failed") else 0), done.stderr
    return answer


def test_recorded_machine_is_told_whole() -> None:
    answer = run(
        xml=FIXTURES / "580-h200x2.xml",
        topology_text=FIXTURES / "580-h200x2-topo-m.txt",
        p2p_text=FIXTURES / "580-h200x2-topo-p2p-r.txt",
    )
    assert (answer["changed"], answer["state"], answer["message"], answer["notes"]) == (False, "ok", "2 GPUs", [])
    assert [one["compute_capability"] for one in answer["gpus"]] == ["9.0", "9.0"]
    assert answer["links"] == [{"first": 0, "second": 1, "kind": "NV18"}]
    assert answer["p2p"] == [{"first": 0, "second": 1, "read": "OK", "write": ""}]
    assert answer["processes"] == []


def test_processes_are_told_with_their_gpu_and_without_secrets() -> None:
    answer = run(xml=FIXTURES / "570-5090x2-desktop.xml")
    assert [(one["gpu"], one["pid"], one["kind"]) for one in answer["processes"]] == [(0, 1802, "G"), (0, 19044, "C+G")]
    assert "not-for-you" not in json.dumps(answer)


def test_recording_that_is_none_is_a_state_and_no_failure(tmp_path: Path) -> None:
    (tmp_path / "x.xml").write_bytes(b"<html>\xff</html>")
    answer = run(xml=tmp_path / "x.xml")
    assert (answer["state"], answer["gpus"]) == ("unreadable", [])
    assert answer["remedy"]


def test_machine_is_asked_when_nothing_is_recorded(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        "#!/bin/sh\n"
        f'[ "$*" = "-q -x" ] && exec cat {FIXTURES}/590-pro6000.xml\n'
        'case "$*" in --query-gpu=*) echo "00000000:01:00.0, 12.0";; *) exit 3;; esac\n'
    )
    tool.chmod(0o755)
    answer = run(path=f"{tmp_path}:{os.environ['PATH']}")
    assert (answer["state"], answer["cuda_version"]) == ("ok", "13.1")
    assert answer["gpus"][0]["capability_source"] == "driver"


def test_hanging_tool_is_a_state_after_the_time_that_was_given(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    answer = run(path=f"{tmp_path}:{os.environ['PATH']}", timeout_s=0.1)
    assert (answer["state"], answer["message"]) == ("timeout", "nvidia-smi -q -x did not end within 0.1 s")


@pytest.mark.parametrize("name", ["xml", "p2p_text"])
def test_file_that_cannot_be_read_fails_with_its_path(name: str, tmp_path: Path) -> None:
    params = {"xml": FIXTURES / "590-pro6000.xml", name: tmp_path / "none"}
    answer = run(**params)
    assert answer["failed"]
    assert answer["msg"].startswith(f"reading {name} {tmp_path}/none: No such file or directory; ")


@pytest.mark.parametrize("params", [{"p2p_text": "/x", "topology_text": "/x"}, {"timeout_s": 0}, {"timeout_s": "nan"}])
def test_parameters_that_make_no_sense_are_refused(params: dict[str, Any]) -> None:
    assert run(**params)["failed"]


def test_documentation_names_every_value_that_is_returned() -> None:
    returned = yaml.safe_load(gpu_info.RETURN)
    assert set(returned) == set(Report("ok", "").as_dict())
    assert set(returned["gpus"]["contains"]) == {field.name for field in fields(Gpu)}
    options = yaml.safe_load(gpu_info.DOCUMENTATION)["options"]
    assert set(options) == {"timeout_s", "xml", "topology_text", "p2p_text"}
