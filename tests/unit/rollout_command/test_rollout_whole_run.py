# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command from its arguments to its exit code, with an ansible-runner of the test's own."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokforge_rollout import command, play
from tokforge_rollout.play import Play, run
from tokforge_rollout.redaction import Redactor
from tokforge_rollout.stopping import Stopper
from tokforge_rollout.variables import UNSAFE, Variables

OK = {"a": 1}
Runner = Callable[..., None]


def leave(given: dict[str, Any], *, failed: bool = False) -> None:
    """What ansible-runner leaves of a play that did one task on host a."""
    directory = Path(given["artifact_dir"], given["ident"])
    (directory / "job_events").mkdir(parents=True)
    counts = {"processed": OK, "ok": {} if failed else OK, "failures": OK if failed else {}}
    data = {"host": "a", "play": "p", "play_pattern": "sglang", "task": "t", "res": {"msg": "it says true play"}}
    events = [
        {"event": "playbook_on_play_start", "event_data": {"pattern": "sglang"}},
        {"event": "runner_on_failed" if failed else "runner_on_ok", "event_data": data},
        {"event": "playbook_on_stats", "event_data": counts},
    ]
    for number, event in enumerate(events, start=1):
        event |= {"counter": number, "uuid": f"{number:08x}", "pid": 77, "stdout": ""}
        given["event_handler"](event)
        (directory / "job_events" / f"{number}-{number:08x}.json").write_text(json.dumps(event), encoding="utf-8")
    (directory / "rc").write_text("2" if failed else "0", encoding="utf-8")
    (directory / "status").write_text("failed" if failed else "successful", encoding="utf-8")


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    playbooks = tmp_path / "c" / "ansible_collections" / "tokforge" / "sglang" / "playbooks"
    playbooks.mkdir(parents=True)
    for name in ("deploy", "report"):
        (playbooks / f"{name}.yml").touch()
    monkeypatch.setenv("ANSIBLE_COLLECTIONS_PATH", str(tmp_path / "c"))
    monkeypatch.setattr(command, "_listen", lambda _stopper: None)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path / "out"


def deploy(out: Path, monkeypatch: pytest.MonkeyPatch, runner: Runner, *options: str) -> tuple[int, dict[str, Any]]:
    monkeypatch.setattr("ansible_runner.run", runner)
    code = command.main(["deploy", "-i", "a,", *options, "--artifacts", str(out)])
    return code, json.loads((out / "summary.json").read_text(encoding="utf-8"))


def test_secrets_that_are_words_of_our_own_break_no_file(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "true")
    for name, word in enumerate(["play", "failed", "deploy", "null", "testcase", "event", "unknown"]):
        monkeypatch.setenv(f"N{name}_TOKEN", word)
    code, found = deploy(out, monkeypatch, lambda **given: leave(given, failed=True))
    assert (code, found["outcome"], found["playbook"], found["report"]) == (1, "failed", "deploy", None)
    assert [task["msg"] for task in found["failed_tasks"]] == ["it says true ********"]
    assert ET.parse(out / "junit.xml").getroot().tag == "testsuites"  # noqa: S314 - our own file
    assert command.main(["outcome", "--artifacts", str(out)]) == 1


def test_values_of_the_environment_reach_ansible_as_texts_and_dates_as_well(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKFORGE_VAR_BACKEND", 'x{{ lookup("pipe", "id") }}')
    seen: dict[str, Any] = {}

    def runner(**given: Any) -> None:
        private = Path(given["private_data_dir"])
        seen.update(json.loads((private / "env" / "extravars").read_text(encoding="utf-8")))
        now = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        assert Path(now["private_directory"]) in private.parents
        leave(given)

    code, found = deploy(out, monkeypatch, runner, "-e", "{a: 2024-01-01}")
    assert (code, seen) == (0, {"backend": {UNSAFE: 'x{{ lookup("pipe", "id") }}'}, "a": "2024-01-01"})
    assert "private_directory" not in found
    assert list((out.parent / "tmp").iterdir()) == []


def test_report_changes_nothing_about_the_outcome(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before: list[dict[str, Any]] = []

    def runner(**given: Any) -> None:
        if given["ident"] == "runner-report":
            before.append(json.loads((out / "summary.json").read_text(encoding="utf-8")))
        leave(given, failed=given["ident"] == "runner-report")

    code, found = deploy(out, monkeypatch, runner, "--report")
    assert (code, found["outcome"], found["reason"]) == (0, "ok", "1 host did what was asked")
    assert found["report"]["outcome"] == "failed"
    # Killed while it writes the report, it has said what the rollout did.
    assert (before[0]["outcome"], before[0]["report"]["outcome"]) == ("ok", "unknown")

    def crash(**given: Any) -> None:
        if given["ident"] == "runner-report":
            raise RuntimeError("broken")
        leave(given)

    code, found = deploy(out, monkeypatch, crash, "--report")
    assert (code, found["outcome"], found["report"]) == (0, "ok", {"outcome": "internal", "reason": "RuntimeError"})


def test_report_that_cannot_be_is_said_before_the_rollout(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = out.parent.rglob("report.yml")
    path.unlink()
    monkeypatch.setattr("ansible_runner.run", lambda **_given: pytest.fail("it was started"))
    assert command.main(["deploy", "-i", "a,", "--report", "--artifacts", str(out)]) == 2


@pytest.mark.parametrize("ended", [False, True])
def test_outcome_removes_what_a_killed_command_left(out: Path, monkeypatch: pytest.MonkeyPatch, *, ended: bool) -> None:
    deploy(out, monkeypatch, lambda **given: leave(given))
    private = out.parent / "tmp" / "tokforge-rollout-x"
    (private / "env").mkdir(parents=True)
    path = out / "summary.json"
    found = json.loads(path.read_text(encoding="utf-8")) | {"private_directory": str(private)}
    found["durations"]["total_s"] = 1.0 if ended else None
    path.write_text(json.dumps(found), encoding="utf-8")
    for ident in ("runner", "runner-report"):
        (out / ident).mkdir(exist_ok=True)
        (out / ident / "command").write_text('{"command": [], "env": {"A": "hidden"}}', encoding="utf-8")
    assert command.main(["outcome", "--artifacts", str(out)]) == 0
    assert not private.exists()
    assert "hidden" not in "".join(path.read_text(encoding="utf-8") for path in out.rglob("command"))
    assert "private_directory" not in json.loads(path.read_text(encoding="utf-8"))


def test_outcome_removes_no_directory_that_is_not_private(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deploy(out, monkeypatch, lambda **given: leave(given))
    other = out.parent / "other"
    other.mkdir()
    link = out.parent / "tokforge-rollout-link"
    link.symlink_to(other)
    path = out / "summary.json"
    for named in (other, link, "tokforge-rollout-none", out.parent / "tokforge-rollout-gone"):
        found = json.loads(path.read_text(encoding="utf-8")) | {"private_directory": str(named)}
        path.write_text(json.dumps(found), encoding="utf-8")
        assert command.main(["outcome", "--artifacts", str(out)]) == 0
    assert other.is_dir() and link.is_symlink()


@pytest.mark.parametrize("ignored", [False, True])
def test_hangup_is_a_wish_unless_it_is_ignored(*, ignored: bool) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    old = {number: signal.getsignal(number) for number in numbers}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
        stopper = Stopper(None, 30.0, ask=lambda _pid: None)
        stopper.pid = 77
        command._listen(stopper)
        assert (signal.getsignal(signal.SIGHUP) is signal.SIG_IGN) is ignored
        assert signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL
        os.kill(os.getpid(), signal.SIGHUP)
        stopper.must_kill()
        assert (stopper.reason is None) is ignored
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


class Broken(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")


def test_output_that_cannot_be_written_loses_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def two(**given: Any) -> None:
        for text in ("one", "two \ud800"):
            assert given["event_handler"]({"pid": 77, "stdout": text})

    monkeypatch.setattr("ansible_runner.run", two)
    monkeypatch.setattr(sys, "stdout", Broken())
    asked: list[int] = []
    stopper = Stopper(None, 30.0, ask=asked.append)
    collection = command.Collection(tmp_path, tmp_path, "1")
    what = Play(tmp_path / "deploy.yml", ("a,",), Variables())
    run(what, collection, tmp_path, "runner", tmp_path / "private", Redactor(()), stopper)
    assert asked == []
    assert (tmp_path / "play.log").read_text(encoding="utf-8") == "one\ntwo \\ud800\n"


def test_letters_that_standard_output_lacks_are_escaped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    command.main(["outcome", "--artifacts", str(tmp_path)])
    play.show("caf\u00e9")
    assert raw.getvalue() == b"caf\\xe9\n"
