# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tokforge-rollout with a real ansible-runner and a real Ansible, on playbooks of a second."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tiny_rollouts import AWAY, HERE, ROOT, command, environment, run, summary, write_collection, write_inventory

# Values of this run alone: other tests have canaries, too.
CANARY = f"canary-{secrets.token_hex(8)}"
CANARIES = {
    "TOKFORGE_VAR_SGLANG_HUB_TOKEN": f"hub-{CANARY}",
    "CI_JOB_TOKEN": f"ci-{CANARY}",
    "SOME_INDEX_URL": f"https://user:url-{CANARY}@index.invalid/simple",
}
FILE_CANARIES = {"sglang_server_api_key": f"file-{CANARY}", "deep": {"registry_password": f'deep-"quote"-{CANARY}'}}


@pytest.fixture(scope="module")
def collections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_collection(tmp_path_factory.mktemp("collections"))


def inventory(tmp_path: Path, *names: str, **more: dict[str, object]) -> Path:
    hosts = {name: dict(HERE) for name in names} | more
    return write_inventory(tmp_path / "hosts.json", hosts, place=str(tmp_path))


def failed_cases(artifacts: Path) -> list[str]:
    suite = ET.parse(artifacts / "junit.xml").getroot()  # noqa: S314 - our own file
    return [
        f"{case.get('classname')}: {case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None
    ]


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return False


def gone(pid: int, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.1)
    return not alive(pid)


@pytest.fixture
def sleeping(tmp_path: Path) -> Iterator[Path]:
    """The file in which the task that sleeps notes its process; nothing of it outlives the test."""
    marker = tmp_path / "sleeping"
    yield marker
    if marker.is_file():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(marker.read_text(encoding="utf-8")), signal.SIGKILL)


def started(tmp_path: Path, collections: Path, playbook: str, *options: str, marker: Path) -> subprocess.Popen[str]:
    """A run whose task sleeps by now."""
    process = subprocess.Popen(
        command(playbook, "-i", inventory(tmp_path, "a"), *options, "--artifacts", tmp_path / "out"),
        env=environment(collections),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    end = time.monotonic() + 60
    while not (marker.is_file() and marker.read_text(encoding="utf-8").strip()):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "the task did not begin"
        time.sleep(0.1)
    return process


def command_lines() -> str:
    texts = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            texts.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return "\n".join(texts)


def test_secrets_are_in_no_artifact_no_output_and_no_command_line(tmp_path: Path, collections: Path) -> None:
    given = tmp_path / "secret.yml"
    given.write_text(json.dumps(FILE_CANARIES), encoding="utf-8")
    options = ["-i", inventory(tmp_path, "a"), "-e", f"@{given}", "-e", "given_by=hand", "-vvv"]
    process = subprocess.Popen(
        command("verify", *options, "--artifacts", tmp_path / "out"),
        env=environment(collections, JOB_ID="build-7", **CANARIES),
        stdin=subprocess.DEVNULL,
        stdout=(tmp_path / "stdout").open("w"),
        stderr=subprocess.STDOUT,
    )
    seen = ""  # of every process on this machine
    while process.poll() is None:
        seen += command_lines()
        time.sleep(0.05)
    output = (tmp_path / "stdout").read_text(encoding="utf-8")
    assert process.returncode == 0, output
    assert "ansible-playbook" in seen
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    texts = {str(path): path.read_text(encoding="utf-8") for path in files} | {"output": output, "processes": seen}
    assert [name for name, text in texts.items() if CANARY in text] == []
    # They did reach the play.
    assert "token ******** key ******** of hand" in output
    assert len(files) > 10
    assert summary(tmp_path / "out")["variables"] == ["given_by", "sglang_hub_token"]
    assert "env" in json.loads((tmp_path / "out" / "runner" / "command").read_text(encoding="utf-8"))


def test_run_that_went_well_says_what_it_did(tmp_path: Path, collections: Path) -> None:
    done = run(["explain", "-i", inventory(tmp_path, "a", "b"), "--report"], tmp_path / "out", collections)
    assert done.returncode == 0, done.stdout + done.stderr
    found = summary(tmp_path / "out")
    assert (found["outcome"], found["reason"]) == ("ok", "2 hosts did what was asked")
    assert found["versions"]["tokforge.sglang"] == "9.8.7"
    assert found["hosts"]["a"]["rescued"] == 1
    assert [(task["host"], task["task"], task["fatal"]) for task in found["failed_tasks"]] == [
        ("a", "Break", False),
        ("b", "Break", False),
    ]
    assert failed_cases(tmp_path / "out") == []
    log = (tmp_path / "out" / "play.log").read_text(encoding="utf-8")
    assert "PLAY RECAP" in log and log.strip() in done.stdout
    assert found["report"]["outcome"] == "ok"
    assert (tmp_path / "out" / "report" / "page").is_dir()
    assert (tmp_path / "out" / "runner-report" / "rc").read_text(encoding="utf-8") == "0"


def test_failed_host_decides_and_rescued_failures_do_not(tmp_path: Path, collections: Path) -> None:
    done = run(["sweep", "-i", inventory(tmp_path, "a", "b")], tmp_path / "out", collections)
    found = summary(tmp_path / "out")
    assert (done.returncode, found["outcome"], found["exit_code"]) == (1, "failed", 1)
    assert {name: host["outcome"] for name, host in found["hosts"].items() if name != "localhost"} == {
        "a": "ok",
        "b": "failed",
    }
    assert [task["task"] for task in found["failed_tasks"] if task["fatal"]] == ["Break for good"]
    assert failed_cases(tmp_path / "out") == ["b: Do sweep: Break for good"]


def test_rolled_back_and_unreachable_hosts_have_their_own_codes(tmp_path: Path, collections: Path) -> None:
    done = run(["deploy", "-i", inventory(tmp_path, "a")], tmp_path / "out", collections)
    found = summary(tmp_path / "out")
    assert (done.returncode, found["outcome"], found["rolled_back"]) == (3, "rolled_back", True)
    # A second run clears what the first one left.
    away = inventory(tmp_path, "a", b=AWAY)
    done = run(["deploy", "-i", away], tmp_path / "out", collections)
    found = summary(tmp_path / "out")
    assert (done.returncode, found["outcome"], found["rolled_back"]) == (4, "unreachable", True)
    assert found["reason"] == "unreachable: b"
    assert len(failed_cases(tmp_path / "out")) == 2


def test_limit_that_leaves_no_host_is_no_success(tmp_path: Path, collections: Path) -> None:
    # Ansible ends with 0 here: the check on the controller was done, and the play for hosts matched none.
    (tmp_path / "more.yml").write_text("all: {hosts: {localhost: {ansible_connection: local}}}\n", encoding="utf-8")
    both = ["-i", inventory(tmp_path, "a"), "-i", tmp_path / "more.yml"]
    done = run(["explain", *both, "-l", "localhost"], tmp_path / "out", collections)
    found = summary(tmp_path / "out")
    assert (done.returncode, found["outcome"], found["ansible"]["rc"]) == (5, "no_host", 0)
    done = run(["explain", "-i", inventory(tmp_path, "a"), "-l", "nobody"], tmp_path / "out", collections)
    assert done.returncode == 5, done.stdout


def test_installed_package_brings_the_playbooks_and_finds_the_group_empty(tmp_path: Path) -> None:
    """The wheel alone, unpacked as pip does it, away from the checkout."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("tokforge_rollout-*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    hosts = tmp_path / "hosts.yml"
    hosts.write_text("all: {hosts: {somebody: {}}}\n", encoding="utf-8")
    done = run(["preflight", "-i", hosts], tmp_path / "out", None, PYTHONPATH=str(tmp_path / "site"))
    assert done.returncode == 5, done.stdout + done.stderr
    assert "no host is in group sglang" in done.stdout
    noted = json.loads((tmp_path / "out" / "runner" / "command").read_text(encoding="utf-8"))
    packaged = tmp_path / "site" / "tokforge_rollout" / "collections" / "ansible_collections" / "tokforge" / "sglang"
    assert noted["cwd"] == str(packaged)
    version = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    assert summary(tmp_path / "out")["versions"]["tokforge.sglang"] == version == wheel.name.split("-")[1]


def test_sigterm_lets_ansible_end_by_itself(tmp_path: Path, collections: Path, sleeping: Path) -> None:
    process = started(tmp_path, collections, "benchmark", marker=sleeping)
    process.send_signal(signal.SIGTERM)
    output = process.communicate(timeout=60)[0]
    found = summary(tmp_path / "out")
    assert (process.returncode, found["outcome"]) == (130, "cancelled"), output
    assert found["ansible"] == {"rc": 99, "status": "failed"}
    assert gone(int(sleeping.read_text(encoding="utf-8")))
    assert failed_cases(tmp_path / "out") == ["tokforge-rollout: outcome"]


def test_time_that_is_over_has_its_own_code(tmp_path: Path, collections: Path, sleeping: Path) -> None:
    done = run(["benchmark", "-i", inventory(tmp_path, "a"), "--timeout", "3"], tmp_path / "out", collections)
    assert (done.returncode, summary(tmp_path / "out")["outcome"]) == (124, "timed_out"), done.stdout
    assert not sleeping.exists() or gone(int(sleeping.read_text(encoding="utf-8")))


def test_killed_command_leaves_no_good_outcome(tmp_path: Path, collections: Path, sleeping: Path) -> None:
    process = started(tmp_path, collections, "benchmark", marker=sleeping)
    events = sorted((tmp_path / "out" / "runner" / "job_events").glob("*-*.json"))
    ansible = json.loads(events[0].read_text(encoding="utf-8"))["pid"]
    process.kill()
    process.communicate(timeout=60)
    os.killpg(ansible, signal.SIGKILL)
    left = summary(tmp_path / "out")
    assert left["outcome"] == "unknown"
    assert Path(left["private_directory"], "runner", "env", "extravars").is_file()
    assert not (tmp_path / "out" / "runner" / "rc").exists()
    again = run(["outcome"], tmp_path / "out", collections)
    found = summary(tmp_path / "out")
    assert (again.returncode, found["outcome"], found["playbook"]) == (7, "unknown", "benchmark"), (
        again.stdout + again.stderr
    )
    assert failed_cases(tmp_path / "out") == ["tokforge-rollout: outcome"]
    assert not Path(left["private_directory"]).exists()


def test_wrong_requests_start_nothing(tmp_path: Path, collections: Path) -> None:
    hosts = inventory(tmp_path, "a")
    for arguments, said in [
        (["deploy", "-i", tmp_path / "nowhere"], "there is no such file or directory; correct -i"),
        (["rollback", "-i", hosts], "has no such playbook"),
        (["deploy", "-i", hosts, "-e", f"sglang_hub_token={CANARY}"], "TOKFORGE_VAR_sglang_hub_token"),
    ]:
        done = run(arguments, tmp_path / "out", collections)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
        assert CANARY not in done.stderr
        assert not (tmp_path / "out").exists()
