# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The release that is to serve does, alone."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

testinfra_hosts = ["local://"]


def test_it_is_current_and_proven(host: Any, told: dict[str, Any]) -> None:
    release = f"{told['root']}/releases/{told['release']}"
    assert host.file(f"{told['root']}/current").linked_to == release
    assert host.file(f"{release}/proven").exists


def test_it_answers_with_words_none_of_which_comes_twice(told: dict[str, Any]) -> None:
    sampling = {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{told['port']}/generate",
        data=json.dumps({"text": "The way", "sampling_params": sampling}).encode(),
        headers={"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=120) as answer:
        status, found = answer.status, json.loads(answer.read())
    assert (status, found["meta_info"]["completion_tokens"]) == (200, 8)
    words = found["text"].split()
    assert (len(words), len(set(words))) == (8, 8)


def test_every_server_process_is_of_it(servers: dict[int, str], told: dict[str, Any]) -> None:
    # The server has a scheduler and a detokenizer beside it.
    assert len(servers) >= 3
    assert set(servers.values()) == {str(told["release"])}


def test_they_are_of_one_server_and_one_supervisord(host: Any, servers: dict[int, str], told: dict[str, Any]) -> None:
    supervisord = int(Path(told["root"], "state/supervisord.pid").read_text())
    assert [one.pid for one in host.process.filter(comm="supervisord") if told["root"] in one.args] == [supervisord]
    parents = {pid: host.process.get(pid=pid).ppid for pid in servers}
    assert [pid for pid, parent in parents.items() if parent == supervisord] == [
        pid for pid, parent in parents.items() if parent not in servers
    ]
    assert list(parents.values()).count(supervisord) == 1


def test_nothing_is_left_to_finish(told: dict[str, Any]) -> None:
    assert (told["rollouts"]["lock"], told["rollouts"]["open"]) == ("free", None)


def test_next_release_was_held_against_the_good_one_not_the_slow_one(told: dict[str, Any]) -> None:
    if told["name"] not in ("next", "again"):
        pytest.skip("nothing was measured, or it failed")
    facts = json.loads(Path(told["root"], "facts/sglang.fact").read_text())
    assert [one["context"]["release"] for one in facts["history"]] == [1, 4, 5]
    good, _slow, latest = (one["id"] for one in facts["history"])
    assert [facts["comparisons"][-1][side]["ids"] for side in ("a", "b")] == [[good], [latest]]
