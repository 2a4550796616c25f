# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which copy of the collection runs, in which environment, and what is written where."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tokforge_rollout import artifacts, command, junit, summary
from tokforge_rollout.collection import Collection, find
from tokforge_rollout.evidence import Evidence, HostCounts, TaskRun
from tokforge_rollout.outcome import Outcome, Verdict, judge
from tokforge_rollout.play import Play, environment, run
from tokforge_rollout.redaction import Redactor
from tokforge_rollout.stopping import Stopper
from tokforge_rollout.variables import UsageError, Variables

FACTS = summary.Facts("deploy", ("hosts.yml",), None, False, ("backend",), "2026-01-01T00:00:00+00:00")


def copy_of_collection(place: Path, version: str, *, installed: bool = False) -> Path:
    root = place / "ansible_collections" / "tokforge" / "sglang"
    (root / "playbooks").mkdir(parents=True)
    if installed:
        text = json.dumps({"collection_info": {"version": version}})
        (root / "MANIFEST.json").write_text(text, encoding="utf-8")
    else:
        (root / "galaxy.yml").write_text(f"version: {version}\n", encoding="utf-8")
    return place


def test_asked_copy_comes_before_the_checkout_and_that_before_the_packaged_one(tmp_path: Path) -> None:
    here = tmp_path / "checkout" / "tokforge_rollout"
    packaged = copy_of_collection(here / "collections", "3.0.0")
    assert find({}, here).search_path == packaged
    checkout = copy_of_collection(tmp_path / "checkout" / "collections", "2.0.0")
    assert find({}, here).search_path == checkout
    asked = copy_of_collection(tmp_path / "asked", "1.0.0", installed=True)
    env = {"ANSIBLE_COLLECTIONS_PATH": f":{tmp_path / 'nothing'}:{asked}"}
    found = find(env, here)
    assert (found.search_path, found.version) == (asked, "1.0.0")
    assert find({"ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "nothing")}, here).version == "2.0.0"


def test_no_copy_names_the_places_that_were_looked_at(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ANSIBLE_COLLECTIONS_PATH") as caught:
        find({"ANSIBLE_COLLECTIONS_PATH": "/srv/asked"}, tmp_path / "a" / "b")
    assert "/srv/asked" in str(caught.value) and str(tmp_path) in str(caught.value)


def test_callers_settings_win_but_for_where_the_collection_and_ansible_are() -> None:
    collection = Collection(Path("/srv/c/ansible_collections/tokforge/sglang"), Path("/srv/c"), "1")
    plain = environment({"PATH": "/bin"}, collection)
    assert plain["ANSIBLE_HOST_KEY_CHECKING"] == "True"
    assert plain["ANSIBLE_CONFIG"] == "/srv/c/ansible_collections/tokforge/sglang/ansible.cfg"
    assert plain["PATH"].endswith(":/bin")
    assert plain["ANSIBLE_COLLECTIONS_PATH"] == "/srv/c:~/.ansible/collections:/usr/share/ansible/collections"
    given = {"ANSIBLE_HOST_KEY_CHECKING": "False", "ANSIBLE_CONFIG": "/a.cfg", "ANSIBLE_COLLECTIONS_PATH": "/x:/srv/c"}
    mine = environment(given, collection)
    assert mine["ANSIBLE_COLLECTIONS_PATH"] == "/srv/c:/x"
    assert not {"ANSIBLE_HOST_KEY_CHECKING", "ANSIBLE_CONFIG"} & set(mine)


def test_directory_of_somebody_else_is_refused_and_an_earlier_runs_is_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="name an empty one"):
        artifacts.prepare(tmp_path, {}, Redactor(()))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    (tmp_path / "summary.json").write_text("old", encoding="utf-8")
    (tmp_path / "runner" / "job_events").mkdir(parents=True)
    artifacts.prepare(tmp_path, {"a": 1}, Redactor(())).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "summary.json", "thesis.txt"]
    assert json.loads((tmp_path / "summary.json").read_text(encoding="utf-8")) == {"a": 1}


def test_directory_stays_ours_wherever_the_command_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "summary.json.new").touch()
    artifacts.prepare(tmp_path, {"a": 1}, Redactor(())).close()
    (tmp_path / "runner").mkdir()

    def killed(_path: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        artifacts.prepare(tmp_path, {"a": 2}, Redactor(()))
    assert json.loads((tmp_path / "summary.json").read_text(encoding="utf-8")) == {"a": 2}
    monkeypatch.undo()
    artifacts.prepare(tmp_path, {"a": 3}, Redactor(())).close()


def test_directory_that_cannot_be_listed_is_a_wrong_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(UsageError, match="Permission denied; name another one"):
        artifacts.prepare(tmp_path, {}, Redactor(()))


def test_running_run_is_left_alone_by_a_second_one_and_by_outcome(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def all_files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    with artifacts.prepare(tmp_path, summary.unfinished(FACTS), Redactor(())):
        (tmp_path / "ab-partial.json").write_text("half", encoding="utf-8")
        before = all_files()
        with pytest.raises(UsageError, match="still running"):
            artifacts.prepare(tmp_path, {}, Redactor(()))
        assert command.main(["outcome", "--artifacts", str(tmp_path)]) == 7
        assert "it is still running" in capsys.readouterr().out
        assert all_files() == before
    assert command.main(["outcome", "--artifacts", str(tmp_path)]) == 7
    assert not (tmp_path / "ab-partial.json").exists()


def test_outcome_makes_no_lock_where_no_run_was(tmp_path: Path) -> None:
    assert command.main(["outcome", "--artifacts", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []


def test_command_file_keeps_names_of_the_environment_only(tmp_path: Path) -> None:
    (tmp_path / "command").write_text(
        '{"command": ["x"], "cwd": "/", "env": {"B": "hidden", "A": "1"}}', encoding="utf-8"
    )
    artifacts.drop_environment(tmp_path)
    kept = (tmp_path / "command").read_text(encoding="utf-8")
    assert json.loads(kept)["env"] == ["A", "B"]
    assert "hidden" not in kept
    (tmp_path / "command").write_text('{"env": {"B": "hid', encoding="utf-8")
    artifacts.drop_environment(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_halves_of_events_are_removed_and_secrets_replaced(tmp_path: Path) -> None:
    (tmp_path / "job_events").mkdir()
    (tmp_path / "job_events" / "ab-partial.json").write_text("hidden-value", encoding="utf-8")
    (tmp_path / "job_events" / "1-ab.json").write_text('"hidden-value"', encoding="utf-8")
    (tmp_path / "status").write_text("failed", encoding="utf-8")
    artifacts.clean(tmp_path, Redactor(["hidden-value", "failed"]))
    (kept,) = (tmp_path / "job_events").iterdir()
    assert json.loads(kept.read_text(encoding="utf-8")) == "********"
    assert (tmp_path / "status").read_text(encoding="utf-8") == "failed"


def test_junit_holds_what_xml_cannot_and_is_red_for_an_outcome_without_a_failed_task() -> None:
    tasks = (TaskRun("a", "play\x00", "task", "failed", message="\x1b[31mred\ud800 & <b>"),)
    evidence = Evidence(2, "failed", {"a": HostCounts(failed=1)}, tasks, frozenset("a"))
    root = ET.fromstring(junit.render("deploy", evidence, judge(evidence)))  # noqa: S314 - our own text
    (failure,) = root.iter("failure")
    assert failure.text == "?[31mred? & <b>"
    assert root.find("testsuite").attrib["failures"] == "1"  # type: ignore[union-attr]
    for outcome in Outcome:
        root = ET.fromstring(junit.render("deploy", Evidence(0, ""), Verdict(outcome, "why", {})))  # noqa: S314
        assert len(list(root.iter("failure"))) == (outcome is not Outcome.OK)


def test_summary_of_a_killed_command_is_not_good_and_can_be_judged(tmp_path: Path) -> None:
    unfinished = summary.unfinished(FACTS)
    assert (unfinished["outcome"], unfinished["exit_code"], unfinished["durations"]["total_s"]) == ("unknown", 7, None)
    artifacts.write_summary(tmp_path, unfinished, Redactor(()))
    assert command.main(["outcome", "--artifacts", str(tmp_path)]) == 7
    done = summary.finished(FACTS, Verdict(Outcome.ROLLED_BACK, "why", {}), Evidence(2, "failed"), 5.0)
    artifacts.write_summary(tmp_path, done, Redactor(()))
    before = (tmp_path / "summary.json").read_bytes()
    assert command.main(["outcome", "--artifacts", str(tmp_path)]) == 3
    assert (tmp_path / "summary.json").read_bytes() == before


@pytest.mark.parametrize("text", ["", "[]", '{"outcome": "great"}'])
def test_summary_that_is_none_is_a_wrong_request(tmp_path: Path, text: str) -> None:
    (tmp_path / "summary.json").write_text(text, encoding="utf-8")
    assert command.main(["outcome", "--artifacts", str(tmp_path)]) == 2


def test_error_of_the_command_itself_has_its_own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_request: object) -> Outcome:
        raise RuntimeError("broken")

    monkeypatch.setattr(command, "rollout", broken)
    assert command.main(["deploy", "-i", "x,", "--artifacts", str(tmp_path)]) == 70


def test_ansible_does_not_go_on_when_the_command_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**given: Any) -> None:
        given["event_handler"]({"pid": 77, "stdout": "one line"})
        raise RuntimeError("disk full")

    monkeypatch.setattr("ansible_runner.run", broken)
    asked: list[int] = []
    stopper = Stopper(None, 30.0, ask=asked.append)
    stopper.pid = 66  # of a play before this one
    collection = Collection(tmp_path, tmp_path, "1")
    play = Play(tmp_path / "deploy.yml", ("a,",), Variables())
    with pytest.raises(RuntimeError):
        run(play, collection, tmp_path, "runner", tmp_path / "private", Redactor(()), stopper)
    assert asked == [77]
    assert (tmp_path / "play.log").read_text(encoding="utf-8") == "one line\n"
    assert (tmp_path / "play.log").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "private" / "env" / "extravars").stat().st_mode & 0o777 == 0o600
