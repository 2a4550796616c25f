# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module, run as Ansible runs it: one JSON in, one JSON out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.tokforge.sglang.plugins.module_utils import proc, service
from ansible_collections.tokforge.sglang.plugins.module_utils.log_follow import LogPosition, position_now
from ansible_collections.tokforge.sglang.plugins.modules import startup_info

MODULE = "ansible_collections.tokforge.sglang.plugins.modules.startup_info"
HEAD = "[2026-11-29 21:39:35{}] "
FIRED_UP = HEAD.format("") + "The server is fired up and ready to roll!\n"
KEY = "canary-0123456789-key"


def run(check: bool = False, **params: Any) -> dict[str, Any]:
    """The module's answer; `failed` is there when it failed."""
    given = {name: str(value) if isinstance(value, Path) else value for name, value in params.items()}
    done = subprocess.run(
        [sys.executable, "-m", MODULE],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {"_ansible_check_mode": check, **given}}),
        capture_output=True,
        text=True,
        check=False,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if answer.get("failed") else 0), done.stderr
    return answer


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log" / "server.log"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("log", "state"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        if process.poll() is None:
            process.communicate(b"\n")


def started(root: Path, child: subprocess.Popen[bytes], position: LogPosition) -> None:
    """What server_service writes down of a start."""
    found = proc.read_process(child.pid)
    assert found
    paths = service.Paths(str(root))
    record = service.Record(
        "supervisor", "sglang", proc.boot_id(), child.pid, found.start_ticks, child.pid, "id", "", position, 0.0
    )
    service.write_record(paths, record)


def test_looks_go_on_with_the_cursor(root: Path, log: Path) -> None:
    first = run(log=log, expect={"tp": "2"}, autotune="expected")
    assert (first["changed"], first["state"], first["stage"]) == (False, "starting", "boot")
    assert first["expected_ranks"] == first["missing_ranks"] == ["TP0", "TP1"]
    assert first["autotune"]["expected"] == "expected" and first["log"] == str(log)
    tuned = "".join(HEAD.format(f" TP{rank}") + "FlashInfer autotune completed.\n" for rank in (0, 1))
    log.write_text(tuned + FIRED_UP)
    second = run(check=True, log=log, expect={"tp": 2}, autotune="expected", cursor=first["cursor"])
    assert (second["changed"], second["state"], second["missing_ranks"]) == (False, "ready", [])
    assert second["cursor"]["bytes_read"] == log.stat().st_size
    documented = set(yaml.safe_load(startup_info.RETURN))
    assert documented <= set(second)


def test_start_that_failed_is_a_result_and_no_error(root: Path, log: Path) -> None:
    log.write_text(
        HEAD.format(" TP1") + "Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\nRuntimeError: CUDA error: an illegal instruction was encountered\n\n'
    )
    answer = run(log=log, expect={"tp": 2})
    assert (answer["state"], answer["failure"]["reason"]) == ("failed", "illegal_instruction")
    assert answer["failure"]["rank"] == "TP1" and "disable-flashinfer-autotune" in answer["failure"]["hint"]
    assert "failed" not in answer


def test_stall_limit_goes_by_both_its_names(root: Path, log: Path) -> None:
    for name in ("stall_timeout", "stall_timeout_s"):
        assert run(log=log, **{name: 1e-9})["state"] == "stalled"


@pytest.mark.parametrize(
    "options",
    [
        {"stall_timeout": 0},
        {"stall_timeout": -5},
        {"stall_timeout": "nan"},
        {"process": "0"},
        {"process": ""},
        {"log_position": {"path": "/x", "offset": -7, "inode": 1}},
    ],
)
def test_options_that_cannot_be_meant_are_refused(root: Path, log: Path, options: dict[str, Any]) -> None:
    found = run(log=log, **options)
    assert found["failed"] and next(iter(options)) in found["msg"]


def test_records_own_process_and_position_stand_in(root: Path, log: Path, child: subprocess.Popen[bytes]) -> None:
    log.write_text(FIRED_UP)  # of yesterday
    started(root, child, position_now(str(log)))
    answer = run(log=log, root=root)
    assert (answer["state"], answer["pid"]) == ("starting", child.pid)
    with log.open("a") as stream:
        stream.write(FIRED_UP)
    assert run(log=log, root=root)["state"] == "ready"
    # What is given comes before what is on record.
    given = run(log=log, root=root, log_position={"path": str(log), "offset": log.stat().st_size})
    assert given["state"] == "ready"  # a position without an inode is of a file that was not there: all of it is new
    assert run(log=log, root=root, process="4194305")["pid"] == 4194305
    other = root / "other.log"  # the position on record is none of it
    other.write_text(FIRED_UP.replace("2026", "2099"))
    answer = run(log=other, root=root)
    assert (answer["state"], answer["gap"]) == ("ready", False)


def test_process_that_is_gone_has_failed(root: Path, log: Path, child: subprocess.Popen[bytes]) -> None:
    started(root, child, LogPosition(str(log)))
    child.communicate(b"\n")
    answer = run(log=log, root=root)
    assert (answer["state"], answer["failure"]["reason"], answer["pid"]) == ("failed", "process_exit", child.pid)


def test_process_of_another_boot_is_not_looked_for(root: Path, log: Path, child: subprocess.Popen[bytes]) -> None:
    started(root, child, LogPosition(str(log)))
    record = json.loads((root / "state/server.json").read_text())
    (root / "state/server.json").write_text(json.dumps({**record, "boot_id": "another"}))
    assert run(log=log, root=root)["pid"] == 0


def test_secrets_of_the_root_are_not_shown(root: Path, log: Path) -> None:
    (root / "state/secrets.env").write_text(f"TOKFORGE_API_KEY={KEY}\n")
    trace = f'Traceback (most recent call last):\n  File "x", line 1\nValueError: {KEY} is no key\n\n'
    log.write_text(HEAD.format("") + f"Scheduler hit an exception: {trace}")
    answer = run(log=log, root=root)
    assert answer["failure"]["excerpt"][-1] == "ValueError: <redacted> is no key"
    assert KEY not in json.dumps(answer)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"cursor": {"a": 1}}, ("the cursor is none that an earlier look", "leave it out to begin anew")),
        ({"expect": {"tp": 0}}, ("cannot tell the ranks", "tp is 0")),
        ({"expect": {"tp": 6, "attn_cp": 4}}, ("tp 6 is no multiple of attn_cp 4",)),
        ({"expect": {"tpp": 2}}, ("Unsupported parameters", "tpp")),
        ({"autotune": "maybe"}, ("autotune must be one of",)),
        ({"log": "/"}, ("cannot read the log /: it is a directory",)),
    ],
)
def test_what_cannot_be_looked_at_is_an_error(
    root: Path, log: Path, params: dict[str, Any], words: tuple[str, ...]
) -> None:
    answer = run(**{"log": log, **params})
    assert answer["failed"] and all(word in answer["msg"] for word in words), answer["msg"]
    assert "Traceback" not in answer["msg"]


def test_options_are_the_documented_ones() -> None:
    documented = yaml.safe_load(startup_info.DOCUMENTATION)["options"]
    assert set(documented["expect"]["suboptions"]) == set(startup_info.EXPECT)
    assert set(documented["log_position"]["suboptions"]) == set(startup_info.OPTIONS)
    assert "Unsupported parameters" in run(log="/x", no_such_option=1)["msg"]
