# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look after another at a log and its process: what is remembered, what is judged, and what is never shown."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    proc,
    start_history,
    startup,
    startup_look,
    startup_work,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.log_follow import LogPosition
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import World
from ansible_collections.tokforge.sglang.plugins.module_utils.service import ServiceError
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_look import Request

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "startup"
SECRET = "canary-0123456789-secret"
HEAD = "[2026-11-29 21:39:{:02d}{}] "
RUNNING = "Running FlashInfer autotune..."
COMPLETED = "FlashInfer autotune completed."
FIRED_UP = "The server is fired up and ready to roll!"
WEIGHTS = "Load weight end. elapsed=0.13 s, type=X, avail mem=138.13 GB, mem usage=0.15 GB."


def record(text: str, second: int = 0, tags: str = "") -> str:
    """A line as SGLang writes it."""
    return HEAD.format(second, f" {tags}" if tags else "") + text + "\n"


def never(_command: Sequence[str], _environment: Mapping[str, str] | None) -> tuple[int, str, str]:
    raise AssertionError("nothing is to be run")


class Looks:
    """Looks at one log, each with the cursor of the one before, sent through JSON as Ansible does."""

    def __init__(self, log: Path, **request: Any) -> None:
        self.request = Request(log=str(log), **{"position": LogPosition(str(log)), **request})
        self.log = log
        self.now = 1000.0
        self.gpu: bool | None = None
        self.asked_gpu = 0
        self.last: dict[str, Any] = {}

    def gpu_busy(self) -> bool | None:
        self.asked_gpu += 1
        return self.gpu

    def __call__(self, after_s: float = 1.0, run: Any = never, **changes: Any) -> dict[str, Any]:
        self.now += after_s
        request = replace(self.request, cursor=self.last.get("cursor"), **changes)
        found = startup_look.look(request, lambda: self.now, run, self.gpu_busy)
        self.last = json.loads(json.dumps(found))
        return self.last

    def write(self, *lines: str) -> None:
        with self.log.open("a") as stream:
            stream.write("".join(lines))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    return tmp_path / "server.log"


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing, and whose home is the test's directory."""
    program = "print(flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={"HOME": str(tmp_path / "home")},
    )
    assert child.stdout
    child.stdout.readline()
    yield child
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


# --- the log ---------------------------------------------------------------------------------------------------------


def test_start_of_two_ranks_from_nothing_to_ready(log: Path) -> None:
    look = Looks(log, world=World(tp=2), autotune="expected")
    first = look()
    assert (first["state"], first["stage"], first["expected_ranks"]) == ("starting", "boot", ["TP0", "TP1"])
    assert first["autotune"] == {
        "expected": "expected",
        "reason": "as asked",
        "ranks_started": [],
        "ranks_completed": [],
    }
    assert (first["pid"], first["doing"], first["durations"]["jit_s"], first["failure"]) == (0, "", None, None)
    look.write(record(WEIGHTS, 1, "TP0"), record(WEIGHTS, 1, "TP1"), record(RUNNING, 2, "TP0"))
    look.write(record(RUNNING, 2, "TP1"), record(COMPLETED, 9, "TP1"))
    second = look()
    assert (second["state"], second["stage"], second["missing_ranks"]) == ("starting", "autotune", ["TP0"])
    assert second["autotune"]["ranks_completed"] == ["TP1"]
    assert second["ranks"]["TP1"]["autotune_s"] == 7.0 and second["ranks"]["TP0"]["autotune"] == "started"
    assert (second["progress"]["ranks_done"], second["progress"]["ranks_expected"]) == (1, 2)
    assert second["log_newest"] == f"[TP1] {COMPLETED}"
    look.write(record(FIRED_UP, 10)[:-5])
    assert look()["state"] == "starting"
    look.write(record(FIRED_UP, 10)[-5:])
    skipped = look()
    assert (skipped["state"], skipped["failure"]["reason"], skipped["failure"]["rank"]) == (
        "failed",
        "autotune_skipped",
        "TP0",
    )
    look.write(record(COMPLETED, 11, "TP0"))
    ready = look()
    assert (ready["state"], ready["stage"], ready["missing_ranks"], ready["failure"]) == ("ready", "ready", [], None)
    assert ready["milestones"]["autotune_completed"] == {
        "first": "2026-11-29 21:39:09",
        "last": "2026-11-29 21:39:11",
        "ranks": 2,
    }
    assert (ready["recorded"], ready["gap"], ready["restarts"]) == (False, False, 0)


def test_look_reads_only_what_is_new(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = Looks(log, world=World())
    look.write("x" * 500 + "\n")
    assert look()["cursor"]["bytes_read"] == 501
    look.write("y\n")
    assert look()["cursor"]["bytes_read"] == 503
    assert look()["cursor"]["bytes_read"] == 503


def test_start_begins_at_the_position(log: Path) -> None:
    log.write_text(record(FIRED_UP))
    end = LogPosition(str(log), log.stat().st_ino, log.stat().st_size)
    look = Looks(log, world=World(), position=end)
    assert look()["state"] == "starting"
    look.write(record(FIRED_UP))
    assert look()["state"] == "ready"


def test_what_is_older_than_the_process_is_not_of_its_start(log: Path, idle: subprocess.Popen[bytes]) -> None:
    log.write_text(record(FIRED_UP).replace("2026", "2020"))
    look = Looks(log, world=World(), position=None, process=str(idle.pid))
    assert look()["state"] == "starting"
    look.write(record(FIRED_UP).replace("2026", "2099"))
    assert look()["state"] == "ready"


def test_log_that_is_rotated_between_two_looks_loses_nothing(log: Path) -> None:
    look = Looks(log, world=World(tp=2))
    look.write(record(WEIGHTS, 1, "TP0"))
    look()
    look.write(record(WEIGHTS, 1, "TP1"))
    log.rename(f"{log}.1")
    log.write_text(record(RUNNING, 2, "TP0"))
    found = look()
    assert (found["gap"], found["milestones"]["weights_loaded"]["ranks"]) == (False, 2)
    assert found["autotune"]["ranks_started"] == ["TP0"]


def test_lost_part_of_the_log_is_told_from_then_on(log: Path) -> None:
    look = Looks(log, world=World())
    look.write(record(WEIGHTS) * 3)
    look()
    log.write_text("x\n")
    for _number in range(2):
        found = look()
        look.write("more\n")
        assert found["gap"] is True and any("lost in a rotation" in note for note in found["notes"])


VOLATILE = ("cursor", "log_newest")


def seen(pieces: Sequence[bytes], **request: Any) -> dict[str, Any]:
    """The result after each piece was looked at, without what depends on the looks themselves."""
    with tempfile.TemporaryDirectory() as directory:
        look = Looks(Path(directory) / "log", **request)
        look.log.touch()
        for piece in pieces:
            with look.log.open("ab") as stream:
                stream.write(piece)
            look(0.0)
        return {name: value for name, value in look.last.items() if name not in (*VOLATILE, "log")}


REAL = {path.stem: path.read_bytes() for path in sorted(FIXTURES.glob("h200x2-*.log"))}


@pytest.mark.parametrize("name", sorted(REAL))
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_many_looks_come_to_what_one_look_comes_to(name: str, data: st.DataObject) -> None:
    text = REAL[name]
    text = text[: data.draw(st.integers(len(text) // 2, len(text)) | st.just(len(text)), label="end")]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12), label="cuts"))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)])]
    assert seen(pieces, world=World(tp=2)) == seen([text], world=World(tp=2))


def test_real_start_is_ready_with_both_ranks_tuned() -> None:
    found = seen([REAL["h200x2-tp2-0.5.12.post1-cold"]])  # the server's own record tells the ranks
    assert (found["state"], found["expected_ranks"]) == ("ready", ["TP0", "TP1"])
    assert found["autotune"]["ranks_completed"] == ["TP0", "TP1"]
    assert found["cache_before"].endswith("/flashinfer/autotune/0.6.11.post1: absent")
    assert found["ranks"]["TP0"]["autotune_s"] == 63.0


# --- the cursor ------------------------------------------------------------------------------------------------------


def test_cursor_of_another_log_is_refused_with_a_way_out(log: Path) -> None:
    look = Looks(log, world=World())
    look()
    with pytest.raises(startup_look.CursorError) as caught:
        look(log=f"{log}.other")
    message = str(caught.value)
    assert message.startswith(f"cannot go on reading {log}.other: ") and f"it belongs to {log}" in message
    assert message.endswith("leave it out to begin anew")


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2},
        {"schema": None},
        {"log": None},
        {"log": {"schema": 1}},
        {"log": "x"},
        {"position": None},
        {"position": {"path": "p", "extra": 1}},
        {"position": []},
        {"watch": {"pid": 1, "extra": 2}},
        {"watch": 5},
        {"bytes_read": "many"},
        {"bytes_read": None},
    ],
)
def test_cursor_that_no_look_returned_is_refused(log: Path, change: dict[str, Any]) -> None:
    look = Looks(log, world=World())
    look()
    look.last["cursor"].update(change)
    with pytest.raises(startup_look.CursorError, match=r"^cannot go on reading .*; ?.*leave it out to begin anew$"):
        look()


@pytest.mark.parametrize("cursor", [{"a": 1}, {"schema": 1}])
def test_garbage_for_a_cursor_is_refused(log: Path, cursor: dict[str, Any]) -> None:
    look = Looks(log)
    look.last = {"cursor": cursor}
    with pytest.raises(startup_look.CursorError):
        look()


def test_empty_cursor_begins_anew(log: Path) -> None:
    log.write_text(record(FIRED_UP))
    look = Looks(log, world=World())
    look.last = {"cursor": {}}
    assert look()["state"] == "ready"


# --- the process -----------------------------------------------------------------------------------------------------


def test_idle_process_is_stalled_at_the_limit_and_not_before(log: Path, idle: subprocess.Popen[bytes]) -> None:
    look = Looks(log, world=World(tp=2), process=str(idle.pid), stall_timeout_s=60.0)
    look.write(record(WEIGHTS, 1, "TP0"))
    look()
    assert look(59.0)["state"] == "starting"
    assert look.asked_gpu == 0
    look.write("a new line is a sign of life\n")
    assert look(0.9)["state"] == "starting"
    found = look(59.9)
    assert (found["state"], found["quiet_s"], found["pid"]) == ("starting", 59.9, idle.pid)
    found = look(0.2)
    assert (found["state"], found["failure"]["reason"], found["failure"]["rank"]) == ("stalled", "stalled", "TP1")
    assert found["missing_ranks"] == ["TP1"] and look.asked_gpu == 1
    assert any("nothing was logged for 60 s" in line for line in found["failure"]["excerpt"])
    # It goes on after all.
    look.write(record(FIRED_UP, 9))
    assert look()["state"] == "ready"


def test_gpu_that_computes_puts_a_stall_off_for_three_times_the_limit(log: Path, idle: subprocess.Popen[bytes]) -> None:
    look = Looks(log, world=World(), process=str(idle.pid), stall_timeout_s=60.0)
    look.gpu = True
    look()
    found = look(100.0)
    assert (found["state"], found["doing"]) == ("starting", "a GPU computes")
    assert look(70.0)["state"] == "starting"
    assert look(9.9)["state"] == "starting"
    assert look(0.2)["state"] == "stalled"


def test_stopped_process_is_stalled_whatever_a_gpu_does(log: Path, idle: subprocess.Popen[bytes]) -> None:
    look = Looks(log, world=World(), process=str(idle.pid), stall_timeout_s=60.0)
    look.gpu = True
    look()
    os.kill(idle.pid, signal.SIGSTOP)
    assert proc.wait_until(lambda: getattr(proc.read_process(idle.pid), "state", "") in "Tt", 5)
    assert look(59.0)["state"] == "starting"
    found = look(2.0)
    assert (found["state"], look.asked_gpu) == ("stalled", 0)
    assert f"process {idle.pid} is stopped" in found["failure"]["excerpt"][0]


def test_log_alone_is_stalled_at_the_limit(log: Path) -> None:
    look = Looks(log, world=World(), stall_timeout_s=60.0)
    look()
    assert look(59.0)["state"] == "starting"
    assert look(2.0)["state"] == "stalled"


def test_process_that_ended_without_a_word_has_failed_at_once(log: Path, idle: subprocess.Popen[bytes]) -> None:
    look = Looks(log, world=World(), process=str(idle.pid))
    assert look()["state"] == "starting"
    idle.communicate(b"\n")
    found = look()
    assert (found["state"], found["failure"]["reason"], found["failure"]["rank"]) == ("failed", "process_exit", "main")
    assert found["failure"]["excerpt"] == [f"process {idle.pid} is gone before the server was ready"]


def test_what_was_logged_tells_why_a_process_ended(log: Path, idle: subprocess.Popen[bytes]) -> None:
    look = Looks(log, world=World(tp=2), process=str(idle.pid))
    look()
    trace = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nRuntimeError: CUDA out of memory\n'
    look.write(record("Scheduler hit an exception: " + trace, 1, "TP1"))
    idle.communicate(b"\n")
    found = look()
    assert (found["state"], found["failure"]["reason"], found["failure"]["rank"]) == ("failed", "oom_cuda", "TP1")
    assert found["failure"]["excerpt"][-1] == "RuntimeError: CUDA out of memory"
    assert found["failure_is_complete"] is True


def test_dead_rank_is_named_before_the_server_notices(log: Path) -> None:
    program = (
        "import subprocess, sys\n"
        "made = [subprocess.Popen([t], executable='/bin/cat', stdin=subprocess.PIPE) for t in sys.argv[1:]]\n"
        "print(flush=True)\ninput()\nmade[1].kill()\nmade[1].wait()\nprint(flush=True)\ninput()\n"
    )
    titles = ("sglang::scheduler_TP0", "sglang::scheduler_TP1")
    with subprocess.Popen(
        [sys.executable, "-S", "-c", program, *titles], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin and server.stdout
        server.stdout.readline()
        look = Looks(log, world=World(tp=2), process=str(server.pid))
        look.write(record(WEIGHTS, 1, "TP0"), record(WEIGHTS, 1, "TP1"), record(RUNNING, 2, "TP1"))
        assert look()["state"] == "starting"
        server.stdin.write(b"\n")
        server.stdin.flush()
        server.stdout.readline()
        found = look()
        assert (found["state"], found["failure"]["reason"], found["failure"]["rank"]) == ("failed", "rank_dead", "TP1")
        assert found["failure"]["stage"] == "autotune" and found["detail"].startswith("rank_dead in TP1: process ")
        # The server's own word does not bring a dead rank back.
        look.write(record(COMPLETED, 3, "TP0"), record(COMPLETED, 3, "TP1"), record(FIRED_UP, 4))
        assert look()["failure"]["rank"] == "TP1"
        server.communicate(b"\n")


def test_unit_that_restarts_is_followed_in_log_and_process(log: Path, idle: subprocess.Popen[bytes]) -> None:
    shown = {"LoadState": "loaded", "ActiveState": "active", "SubState": "running", "MainPID": str(idle.pid)}

    def systemctl(_command: Sequence[str], _environment: object) -> tuple[int, str, str]:
        return 0, "\n".join(f"{name}={value}" for name, value in shown.items()), ""

    arguments = record("server_args=ServerArgs(model_path='m', tp_size=1, device='cuda')")
    look = Looks(log, world=World(), process="sglang")
    look.write(arguments, record(WEIGHTS, 1))
    assert look(run=systemctl)["pid"] == idle.pid
    # Its manager is about to start it again: this start has failed.
    shown.update(ActiveState="activating", SubState="auto-restart", MainPID="0", ExecMainCode="2", ExecMainStatus="9")
    idle.communicate(b"\n")
    failed = look(run=systemctl)
    assert failed["state"] == "failed"
    assert failed["failure"]["excerpt"] == [
        f"process {idle.pid} was killed by signal 9 (SIGKILL) before the server was ready"
    ]
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as again:
        shown.update(ActiveState="active", SubState="running", MainPID=str(again.pid))
        # What the start before wrote last is none of this one's.
        look.write(record(FIRED_UP, 9))
        found = look(run=systemctl)
        assert (found["state"], found["pid"], found["restarts"]) == ("starting", again.pid, 1)
        now = time.strftime("[%Y-%m-%d %H:%M:%S]", time.localtime(time.time() + 1))
        look.write(f"{now} server_args=ServerArgs(tp_size=1, device='cuda')\n{now} {FIRED_UP}\n")
        assert look(run=systemctl)["state"] == "ready"
        again.communicate(b"\n")


def test_unknown_unit_is_an_error(log: Path) -> None:
    with pytest.raises(ServiceError, match="systemd knows no such unit"):
        Looks(log, process="none")(
            run=lambda _command, _environment: (0, "LoadState=not-found\nActiveState=inactive", "")
        )


# --- secrets ---------------------------------------------------------------------------------------------------------


def hidden_nowhere(found: dict[str, Any]) -> list[str]:
    """Where the secret shows, also inside what is kept encoded for the next look."""
    pending = base64.b64decode(found["cursor"]["log"]["pending"]).decode("utf-8", "replace")
    return [where for where, text in (("result", json.dumps(found)), ("pending", pending)) if SECRET in text]


def test_secret_is_in_no_result_and_no_cursor_wherever_a_look_ends(log: Path) -> None:
    trace = f'Traceback (most recent call last):\n  File "{SECRET}.py", line 1\nValueError: {SECRET} is no key\n'
    text = record(f"server_args=ServerArgs(model_path='{SECRET}', tp_size=1)") + record(
        f"Scheduler hit an exception: {trace}"
    )
    for cut in range(0, len(text), 3):
        log.unlink(missing_ok=True)
        look = Looks(log, world=World(), secrets=(SECRET, "short"))
        look.write(text[:cut])
        assert hidden_nowhere(look()) == [], cut
        look.write(text[cut:])
        found = look()
        assert hidden_nowhere(found) == [], cut
        assert found["failure"]["excerpt"][-1] == "ValueError: <redacted> is no key", cut
        if cut == 0:
            assert found["log_newest"] == "ValueError: <redacted> is no key"


# --- a start on record -----------------------------------------------------------------------------------------------


def on_record(root: Path, child: subprocess.Popen[bytes], **more: Any) -> int:
    found = proc.read_process(child.pid)
    assert found
    kept: dict[str, Any] = dict.fromkeys(start_history.KEPT)
    kept.update(expected_ranks=["main"], cold=True, notes=[], restarts=0)
    start_history.add(
        str(root),
        {
            **kept,
            "state": "ready",
            "ready_s": 61.5,
            "boot_id": proc.boot_id(),
            "pid": child.pid,
            "start_ticks": found.start_ticks,
            **more,
        },
    )
    return found.start_ticks


def test_start_on_record_needs_no_log(log: Path, tmp_path: Path, idle: subprocess.Popen[bytes]) -> None:
    ticks = on_record(tmp_path, idle)
    look = Looks(log, root=str(tmp_path), process=str(idle.pid))
    found = look(start_ticks=ticks)
    assert (found["recorded"], found["state"], found["stage"], found["pid"]) == (True, "ready", "ready", idle.pid)
    assert found["detail"] == "its start is on record as ready after 61.5 s"
    assert (found["cursor"], found["failure"], found["missing_ranks"], found["cold"]) == (None, None, [], True)
    look.last = {}
    usual = look()  # nobody says that this process is the very one
    assert (usual["recorded"], usual["state"]) == (False, "starting")
    # Both kinds of look have the same values.
    assert set(found) == set(usual)


@pytest.mark.parametrize("more", [{"state": "failed"}, {"start_ticks": 1}, {"boot_id": "another"}, {"pid": 1}])
def test_other_records_say_nothing_of_this_process(
    log: Path, tmp_path: Path, idle: subprocess.Popen[bytes], more: dict[str, Any]
) -> None:
    ticks = on_record(tmp_path, idle, **more)
    look = Looks(log, root=str(tmp_path), process=str(idle.pid), start_ticks=ticks)
    assert look()["recorded"] is False


def test_look_that_goes_on_reads_the_log_also_when_the_start_is_on_record_meanwhile(
    log: Path, tmp_path: Path, idle: subprocess.Popen[bytes]
) -> None:
    found = proc.read_process(idle.pid)
    assert found
    look = Looks(log, root=str(tmp_path), process=str(idle.pid), start_ticks=found.start_ticks)
    look()
    on_record(tmp_path, idle)
    assert look()["recorded"] is False


# --- cold or warm, and how long it took before -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objects", "autotune", "cache", "cold"),
    [
        (False, "not_expected", "", True),
        (True, "not_expected", "", False),
        (False, "expected", "complete", True),
        (True, "expected", "complete", False),
        (True, "expected", "partial (tp0 of 2 ranks), cleared", True),
        (True, "expected", "absent", True),
        (True, "expected", "", True),
        (True, "auto", "complete", False),
    ],
)
def test_start_is_warm_when_kernels_and_tuning_results_are_there(
    log: Path, tmp_path: Path, idle: subprocess.Popen[bytes], objects: bool, autotune: str, cache: str, cold: bool
) -> None:
    kernels = tmp_path / "home/.cache/flashinfer/x"
    kernels.mkdir(parents=True)
    if objects:
        (kernels / "kernel.o").touch()
    for number, (kind, seconds) in enumerate(((True, 111.0), (False, 22.0))):
        start = {"state": "ready", "cold": kind, "ready_s": seconds, "boot_id": "b", "pid": number, "start_ticks": 1}
        start_history.add(str(tmp_path), start)
    if cache:
        log.write_text(f"tokforge: autotune cache /c/x: {cache}\n")
    look = Looks(log, root=str(tmp_path), world=World(), autotune=autotune, process=str(idle.pid))
    found = look()
    assert (found["cold"], found["previous_s"]) == (cold, 111.0 if cold else 22.0)
    # What is compiled meanwhile makes no warm start of it, nor does what the launcher says of another start.
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    look.write(f"[{stamp}] server_args=ServerArgs(device='cuda')\n")
    assert look()["cold"] is cold
    (kernels / "more.o").touch()
    look.write(f"tokforge: autotune cache /c/x: {'absent' if not cold else 'complete'}\n")
    assert look()["cold"] is cold


def release(root: Path, *arguments: str, **marker: Any) -> None:
    """A current release with these arguments."""
    venv = root / "releases/1/venv"
    venv.mkdir(parents=True)
    (root / "releases/1/launch.json").write_text(json.dumps({"argv": ["-m", "sglang.launch_server", *arguments]}))
    (venv / "environment.json").write_text(json.dumps(marker))
    (root / "current").symlink_to("releases/1")


def test_server_on_cpus_is_always_warm_and_tunes_nothing(log: Path, tmp_path: Path) -> None:
    release(tmp_path, "--device", "cpu", "--tp-size", "2")
    found = Looks(log, root=str(tmp_path))()
    assert (found["cold"], found["expected_ranks"]) == (False, ["TP0", "TP1"])
    assert found["autotune"]["expected"] == "not_expected" and "device is cpu" in found["autotune"]["reason"]


# --- what a release tells --------------------------------------------------------------------------------------------

CUTLASS = ("--tp-size", "2", "--moe-runner-backend", "flashinfer_cutlass")


@pytest.mark.parametrize(
    ("capability", "backends", "expected"),
    [
        ((9, 0), ["flashinfer_cutlass"], "expected"),
        (None, ["flashinfer_cutlass"], "expected"),
        ((8, 0), ["flashinfer_cutlass"], "not_expected"),
        ((9, 0), ["flashinfer_trtllm"], "not_expected"),
    ],
)
def test_release_tells_ranks_and_expectation(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capability: Any, backends: list[str], expected: str
) -> None:
    asked: list[int] = []

    def tell() -> Any:
        asked.append(1)
        return capability

    monkeypatch.setattr(startup_look, "compute_capability", tell)
    release(tmp_path, *CUTLASS, versions={"sglang": "0.5.12.post1"}, autotune_gate={"backends": backends})
    look = Looks(log, root=str(tmp_path))
    assert look()["autotune"]["expected"] == expected
    # Another rollout switches: this start is the one that began.
    (tmp_path / "current").unlink()
    (tmp_path / "releases/2").mkdir()
    (tmp_path / "releases/2/launch.json").write_text('{"argv": ["--tp-size", "8", "--disable-flashinfer-autotune"]}')
    (tmp_path / "current").symlink_to("releases/2")
    found = look()
    assert (found["autotune"]["expected"], found["expected_ranks"]) == (expected, ["TP0", "TP1"])
    assert len(asked) == 1  # it takes seconds
    asked_for = Looks(log, root=str(tmp_path), world=World(tp=4), autotune="expected")()
    assert (len(asked_for["expected_ranks"]), asked_for["autotune"]["expected"]) == (4, "expected")


def test_servers_own_record_tells_what_nobody_said(log: Path) -> None:
    look = Looks(log)
    assert look()["autotune"]["expected"] == "auto"
    look.write(record("server_args=ServerArgs(model_path='m', tp_size=2, device='cpu', dp_size=1)"))
    found = look()
    assert (found["expected_ranks"], found["autotune"]["expected"]) == (["TP0", "TP1"], "not_expected")


@pytest.mark.parametrize(
    ("output", "found"),
    [("9.0\n8.0\n", (8, 0)), ("10.3\n", (10, 3)), ("", None), ("[N/A]\n", None), (OSError(), None)],
)
def test_least_compute_capability_counts(output: Any, found: Any) -> None:
    def tool(command: Sequence[str], timeout_s: float) -> str:
        assert command[0] == "nvidia-smi" and timeout_s == 5.0
        if isinstance(output, Exception):
            raise output
        return str(output)

    assert startup_look.compute_capability(tool) == found


def test_driver_that_hangs_is_given_up(log: Path) -> None:
    def tool(command: Sequence[str], timeout_s: float) -> str:
        raise subprocess.TimeoutExpired(command, timeout_s)

    assert startup_look.compute_capability(tool) is None and startup_work.gpu_busy(tool) is None


def test_of_several_dead_ranks_one_that_said_nothing_is_named_and_all_are_shown() -> None:
    verdict = startup.Verdict(startup.STARTING, "kv_cache", "", (), (), {}, None, {}, ())
    dead = {"TP0": "process 10 is gone", "TP1": "process 11 is gone"}
    found = startup_look._with_dead_rank(verdict, dead, frozenset({"TP0"})).failure
    assert found and (found.rank, found.reason) == ("TP1", "rank_dead")
    assert found.excerpt == ("process 11 is gone, which was rank TP1", "process 10 is gone, which was rank TP0")
    silent = startup_look._with_dead_rank(verdict, dead, frozenset()).failure
    assert silent and silent.rank == "TP0" and "which was rank TP1" in silent.excerpt[1]
