# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module, run as Ansible runs it: one JSON in, one JSON out, against a server that behaves as SGLang."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "module_utils"))
from profiled_server import Faults, serve

MODULE = "ansible_collections.tokforge.sglang.plugins.modules.decode_profile"
KEY = "canary-0123456789-key"


def run(url: str, root: Path, check: bool = False, **params: Any) -> dict[str, Any]:
    """The module's answer; `failed` is there when it failed."""
    given = {"root": str(root), "port": urlsplit(url).port, "batch": 2, "steps": 4, "input_len": 8, **params}
    done = subprocess.run(
        [sys.executable, "-m", MODULE],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {"_ansible_check_mode": check, **given}}),
        capture_output=True,
        text=True,
        check=False,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if answer.get("failed") else 0), done.stderr
    assert KEY not in json.dumps({name: value for name, value in answer.items() if name != "invocation"})
    return answer


def test_a_server_is_profiled_and_told_by_kind(tmp_path: Path) -> None:
    with serve(Faults()) as (url, seen):
        answer = run(url, tmp_path, admin_api_key=KEY)
    assert answer["changed"] is True
    profile = answer["profile"]
    assert (profile["device"], profile["batch"], profile["steps"], profile["steps_from"]) == ("cpu", 4, 3, "spans")
    assert sum(profile["ms"].values()) == pytest.approx(profile["step_ms"])
    assert sum(profile["shares"].values()) == pytest.approx(1, abs=1e-5)
    assert [each["rank"] for each in profile["ranks"]] == ["TP-0"]
    assert profile["floor"] is None
    assert next(Path(answer["traces"]).iterdir()).stat().st_size == answer["trace_bytes"]
    assert answer["server"] == {"version": "0.5.23", "device": "cpu", "tp_size": 1}
    assert seen.keys["/start_profile"] == f"Bearer {KEY}"


@pytest.mark.parametrize("keep", [True, False])
def test_check_mode_sends_nothing(tmp_path: Path, keep: bool) -> None:
    with serve(Faults()) as (url, seen):
        answer = run(url, tmp_path, check=True, keep_traces=keep)
    assert (answer["changed"], answer["profile"], seen.paths, list(tmp_path.iterdir())) == (keep, None, [], [])


def test_a_refusal_fails_with_the_status(tmp_path: Path) -> None:
    with serve(Faults(deny=("/start_profile",))) as (url, _seen):
        answer = run(url, tmp_path, api_key=KEY)
    assert answer["failed"] is True
    assert answer["http_status"] == 401
    assert "admin_api_key" in answer["msg"]
