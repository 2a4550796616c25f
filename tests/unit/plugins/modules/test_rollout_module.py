# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of a rollout through its module, and what rollout_info tells meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.basic import AnsibleModule
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    environment_root,
    proc,
    release_store,
    rollout_journal,
    rollout_lock,
)
from ansible_collections.tokforge.sglang.plugins.modules import release as release_module
from ansible_collections.tokforge.sglang.plugins.modules import rollout, rollout_info, server_service

Run = Any
ELSEWHERE = {"host": "ci-1", "user": "deploy", "boot_id": "another", "pid_namespace": "pid:[1]", "pid": 7}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "r"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    warned: list[str] = []
    monkeypatch.setattr(AnsibleModule, "warn", lambda self, text: warned.append(text))

    def call(state: str, check_mode: bool = False, module: Any = rollout, **params: Any) -> dict[str, Any]:
        given = {"root": str(root), "_ansible_check_mode": check_mode, **params}
        if module in (rollout, release_module, server_service):
            given["state"] = state
        with patch_module_args(given), pytest.raises(SystemExit):
            module.main()
        result: dict[str, Any] = {"warned": " ".join(warned), **json.loads(capsys.readouterr().out)}
        warned.clear()
        return result

    return call


@pytest.fixture
def other() -> Iterator[dict[str, Any]]:
    """A controller's process that runs on this machine."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = proc.read_process(child.pid)
    assert process
    yield {
        "host": "here",
        "user": "me",
        "boot_id": proc.boot_id(),
        "pid_namespace": rollout_lock.pid_namespace(),
        "pid": child.pid,
        "start_ticks": process.start_ticks,
    }
    child.kill()
    child.wait()


def test_root_is_made_for_a_deploy_only(run: Run, root: Path) -> None:
    told = run("begun")
    assert told["failed"] is True
    assert told["msg"] == f"cannot begin below {root}: nothing is deployed there; run deploy.yml first"
    assert not root.exists()
    looked = run("begun", check_mode=True, make_root=True, controller=ELSEWHERE)
    assert (looked["lock"], looked["changed"], root.exists()) == ("free", False, False)
    begun = run("begun", make_root=True, controller=ELSEWHERE)
    assert (begun["lock"], begun["unfinished"], begun["changed"]) == ("free", None, False)
    assert len(begun["rollout"]) == 32 and (root / ".tokforge-sglang").exists()


def test_somebody_elses_directory_is_refused(run: Run, root: Path) -> None:
    (root / "bin").mkdir(parents=True)
    told = run("begun", make_root=True, controller=ELSEWHERE)
    assert "no rollout made this directory" in told["msg"] and not (root / "state").exists()


def test_life_of_a_rollout(run: Run, root: Path, other: dict[str, Any]) -> None:
    token = run("begun", make_root=True, what="deploy", controller=other)["rollout"]
    info = run("", module=rollout_info)
    assert (info["lock"], info["holder"]["what"], info["open"], info["ended"]) == ("held", "deploy", None, [])
    for check_mode in (True, False):
        refused = run("begun", check_mode, what="sweep", controller=ELSEWHERE)
        assert (refused["failed"], refused["locked"], refused["holder"]["rollout"]) == (True, True, token)

    unit = root / "unit"
    assert run("switching", True, rollout=token, release=1, files=[str(unit)])["previous"] is None
    assert run("", module=rollout_info)["open"] is None
    assert run("switching", rollout=token, release=1, files=[str(unit)])["previous"] is None
    opened = run("", module=rollout_info)["open"]
    assert (opened["release"], opened["by"], opened["kept"]) == (1, "me@here", [str(unit)])

    unit.write_text("new")
    assert run("undone", True, rollout=token)["files"] == [str(unit)] and unit.exists()
    undone = run("undone", rollout=token)
    assert (undone["changed"], undone["files"], unit.exists()) == (True, [str(unit)], False)
    assert run("undone", rollout=token)["changed"] is False

    failed = run("closed", rollout=token, outcome="rolled_back", failure="release 1 failed: why")
    assert (failed["failed"], failed["msg"], failed["rolled_back"]) == (True, "release 1 failed: why", True)
    [ended] = run("", module=rollout_info)["ended"]
    assert (ended["outcome"], ended["reason"]) == ("rolled_back", "release 1 failed: why")
    assert run("ended", True, rollout=token)["changed"] is False
    assert run("", module=rollout_info)["lock"] == "held"
    assert run("ended", rollout=token)["changed"] is False
    assert run("", module=rollout_info)["lock"] == "free"
    assert "failed" not in run("ended", rollout=token)


def test_what_was_cut_off_is_told_and_stays_open_when_going_back_fails(run: Run, root: Path) -> None:
    first = run("begun", make_root=True, what="deploy", controller=ELSEWHERE)["rollout"]
    run("switching", rollout=first, release=2)
    second = run("begun", controller=ELSEWHERE, ended_plays=[first])
    assert (second["lock"], second["unfinished"]["release"], second["unfinished"]["by"]) == ("stale", 2, "deploy@ci-1")
    assert "took the place of an earlier play below" in second["warned"]
    assert "was cut off after it had begun to switch from no release to release 2; this play" in second["warned"]
    told = run("closed", rollout=second["rollout"], failure="both failed")
    assert (told["msg"], told["rolled_back"]) == ("both failed", False)
    assert rollout_journal.read(str(root)).open is not None
    assert run("closed", rollout=second["rollout"])["failed"] is True  # neither an outcome nor a failure


def test_play_whose_lock_was_taken_cannot_go_on(run: Run, root: Path) -> None:
    first = run("begun", make_root=True, what="deploy", controller=ELSEWHERE)["rollout"]
    run("begun", what="sweep", controller=ELSEWHERE, ended_plays=[first])
    lost = "this play's lock was taken away, and sweep of deploy@ci-1 has it now"
    for state in ("held", "switching", "undone"):
        told = run(state, rollout=first)
        assert told["locked"] is True and lost in told["msg"]
    told = run("closed", rollout=first, outcome="failed", failure="the first reason")
    assert told["msg"].startswith("the first reason\ncannot go on below") and told["rolled_back"] is False
    for module, params in (
        (release_module, {"state": "pruned"}),
        (server_service, {"manager": "supervisor"}),
    ):
        told = run(params.pop("state", "stopped"), module=module, rollout=first, **params)
        assert told["failed"] is True and lost in told["msg"], module


def test_journal_and_store_of_a_newer_collection_are_told_of(run: Run, root: Path) -> None:
    run("begun", make_root=True, controller=ELSEWHERE)
    Path(rollout_journal.path(str(root))).write_text('{"schema_version": 99}')
    assert "has schema 99" in run("", module=rollout_info)["msg"]
    told = run("begun", controller=ELSEWHERE, lock_break=True)
    assert "has schema 99" in told["msg"]
    # A play that cannot begin is in nobody's way.
    assert rollout_lock.read(str(root)) is None


def test_root_that_cannot_be_made_is_told_in_words(run: Run, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root.parent.joinpath("file").write_text("")
    monkeypatch.setattr(environment_root, "claim_root", refuse)
    told = run("begun", make_root=True, controller=ELSEWHERE)
    assert told["msg"] == f"cannot work below {root}: Permission denied (/opt/x); make it writable and give it room"


def refuse(root: str) -> None:
    raise PermissionError(13, "Permission denied", "/opt/x")


def test_damaged_journal_is_warned_of(run: Run, root: Path) -> None:
    run("begun", make_root=True, controller=ELSEWHERE)
    Path(rollout_journal.path(str(root))).write_text("{")
    info = run("", module=rollout_info)
    assert info["open"] is None and "is damaged" in info["warned"]


def test_files_that_a_damaged_journal_cannot_put_back_are_warned_of(run: Run, root: Path) -> None:
    token = run("begun", make_root=True, controller=ELSEWHERE)["rollout"]
    unit = root / "unit"
    run("switching", rollout=token, release=1, files=[str(unit)])
    unit.write_text("new")
    path = Path(rollout_journal.path(str(root)))
    whole = path.read_text()
    path.write_text(whole[:20])
    told = run("undone", rollout=token)
    assert (told["changed"], told["files"], unit.read_text()) == (False, [], "new")
    assert f"{path} is damaged, so the files of before were not put back below {root}" in told["warned"]
    path.write_text(whole)
    told = run("undone", rollout=token)
    assert (told["changed"], told["warned"], unit.exists()) == (True, "", False)


def test_previous_is_what_served_last_whatever_current_is(
    run: Run, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_store, "last_proven", lambda given: 3)
    token = run("begun", make_root=True, controller=ELSEWHERE)["rollout"]
    assert run("switching", rollout=token, release=5)["previous"] == 3


def test_names_of_one_host_begin_switch_and_end_together(run: Run, root: Path, other: dict[str, Any]) -> None:
    first = run("begun", controller=other, what="deploy", make_root=True, target="a")
    second = run("begun", controller=other, what="deploy", make_root=True, target="b")
    assert second["rollout"] == first["rollout"] and second["lock"] == "mine"
    token = {"rollout": first["rollout"], "files": [str(root / "state/unit")]}
    assert not run("switching", release=4, target="a", **token).get("failed")
    assert not run("switching", release=4, target="b", **token).get("failed")
    refused = run("switching", release=5, target="b", **token)
    assert "a, b are names of one host, and ask for different releases (4 and 5)" in refused["msg"]
    late = run("begun", controller=other, what="deploy", target="c")
    assert late["failed"] and "is switching it under another name of this host; name each host once" in late["msg"]
    # One that was cut off in an earlier play of the same process goes on from there.
    again = run("begun", controller=other, what="deploy", target="b")
    assert (again["rollout"], again["unfinished"]["release"]) == (first["rollout"], 4)
    for target in ("a", "b"):
        run("closed", rollout=first["rollout"], outcome="done", target=target)
    run("ended", rollout=first["rollout"], target="a")
    held = rollout_lock.read(str(root))
    assert held and held.targets == ("b",)
    run("ended", rollout=first["rollout"], target="b")
    assert rollout_lock.read(str(root)) is None
