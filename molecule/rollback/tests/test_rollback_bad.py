# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A deploy that failed: what it says, what is on record of it, and that the release of before is as it was."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

testinfra_hosts = ["local://"]


@pytest.fixture(scope="module")
def message(told: dict[str, Any]) -> str:
    """What a person reads at the end: the message of the last task that failed."""
    output = Path(told["plays"], f"{told['name']}.txt").read_text()
    last = output.rsplit("fatal: [localhost]: FAILED! =>", 1)[1]
    return str(yaml.safe_load(re.split(r"\n(?:TASK \[|PLAY RECAP)", last)[0])["msg"])


def test_message_says_why_and_that_the_release_before_serves_again(message: str, told: dict[str, Any]) -> None:
    assert message.startswith(f"release {told['failed']} failed: ")
    assert [pattern for pattern in told["why"] if not re.search(pattern, message)] == [], message
    assert "rolled_back: true; release 1 was switched back and serves again" in message


def test_logs_that_the_message_names_are_there(host: Any, message: str, told: dict[str, Any]) -> None:
    _rest, colon, logs = message.rpartition("\nLogs: ")
    paths = re.findall(r"(?:localhost:| )(/[\w./+-]*\w)", colon and logs)
    assert paths[:1] == [f"{told['root']}/log/server.log"], message
    # What was measured is there when it came to that.
    assert len(paths) == (2 if told["name"] == "slow" else 1), message
    written = host.file(paths[0]).content_string
    assert f"starting release {told['failed']} " in written and "starting release 1 " in written
    assert [path for path in paths[1:] if not any(host.file(path).listdir())] == []


def test_rollout_is_on_record_as_rolled_back_and_nothing_is_open(told: dict[str, Any]) -> None:
    rollouts = told["rollouts"]
    assert (rollouts["lock"], rollouts["holder"], rollouts["open"]) == ("free", None, None)
    last = rollouts["ended"][-1]
    assert (last["what"], last["outcome"]) == ("deploy", "rolled_back")
    assert (last["release"], last["previous"]) == (told["failed"], 1)
    assert [pattern for pattern in told["why"] if not re.search(pattern, last["reason"])] == [], last["reason"]


def test_unit_launcher_secrets_and_release_are_the_same_bytes(host: Any, told: dict[str, Any]) -> None:
    before = json.loads(Path(told["plays"], "before.json").read_text())
    names = {Path(path).name for path in before}
    assert {"launch.json", "manifest.json", "proven", "supervisord.conf", "secrets.env"} <= names
    assert [path for path in before if Path(path).parent.name == "bin"]
    assert {path: host.file(path).sha256sum for path in before} == before


def test_what_was_measured_of_it_is_as_it_was(told: dict[str, Any]) -> None:
    before = json.loads(Path(told["plays"], "before.fact").read_text())
    now = json.loads(Path(told["root"], "facts/sglang.fact").read_text())
    assert now["history"][: len(before["history"])] == before["history"]
    assert before["results"][0] in now["results"]


def test_start_that_crashed_is_on_record_as_failed(told: dict[str, Any]) -> None:
    starts = json.loads(Path(told["root"], "state/starts.json").read_text())["starts"]
    seen = [(start["release"], start["state"]) for start in starts]
    assert seen[-1] == ("1", "ready")
    assert (("2", "failed") in seen, ("2", "ready") in seen) == (True, False)


def test_slow_release_was_measured_and_held_against_the_one_that_served(told: dict[str, Any]) -> None:
    if told["name"] != "slow":
        pytest.skip("it never came to a measurement")
    now = json.loads(Path(told["root"], "facts/sglang.fact").read_text())
    good, slow = now["history"][-2:]
    assert [one["context"]["release"] for one in (good, slow)] == [1, 4]
    assert slow["points"][0]["output_tok_s"] < 0.5 * good["points"][0]["output_tok_s"]
    assert (slow["valid"], now["comparisons"][-1]["verdict"]) == (True, "slower")
    assert now["comparisons"][-1]["a"]["ids"] == [good["id"]]
