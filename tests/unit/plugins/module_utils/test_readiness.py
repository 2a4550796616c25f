# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one look means, and what a series of looks means."""

from __future__ import annotations

import os
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import proc, readiness, server_log, service

MAIN = proc.Process(pid=41, start_ticks=7, ppid=1, pgrp=41, session=40, state="S", comm="python")


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b'{"data": [{"id": "a"}, {"id": "b"}]}', ["a", "b"]),
        (b'{"data": []}', []),
        (b'{"data": {}}', []),
        (b"{}", None),
        (b"x", None),
        (b'{"data": [1]}', None),
    ],
)
def test_model_names(body: bytes, names: list[str] | None) -> None:
    assert readiness.model_names(body) == names


@pytest.mark.parametrize(
    ("phase", "ended", "own", "recorded", "stopped", "state", "words"),
    [
        ("ended", "exited with code 0", (), True, False, "failed", "the server exited with code 0"),
        (
            "ended",
            "was killed by signal 9 (SIGKILL)",
            (),
            False,
            False,
            "failed",
            "the server was killed by signal 9 (SIGKILL)",
        ),
        (
            "ended",
            "exited with code 1",
            (MAIN,),
            True,
            False,
            "failed",
            "process exited with code 1 and its processes 41 are left",
        ),
        ("ended", "", (), True, False, "failed", "the server ended"),
        (
            "restarting",
            "exited with code 1",
            (),
            True,
            False,
            "failed",
            "exited with code 1 and its manager is about to start",
        ),
        ("absent", "", (MAIN,), True, False, "failed", "process is gone and its processes 41 are left"),
        ("running", "", (), True, False, "failed", "exit status is not known yet"),
        ("absent", "", (), True, False, "failed", "together with its manager"),
        ("absent", "", (), True, True, "stopped", "not running"),
        ("absent", "", (), False, False, "stopped", "not running"),
        ("stopped", "", (), True, False, "stopped", "by somebody"),
        ("stopped", "", (), True, True, "stopped", "not running"),
    ],
)
def test_no_process(
    phase: str, ended: str, own: tuple[proc.Process, ...], recorded: bool, stopped: bool, state: str, words: str
) -> None:
    record = service.Record("supervisor", "x", "b", 41, 7, 40, "", "", server_log.LogPosition("/l"), 0.0, "", stopped)
    seen = service.Observed(service.Seen(phase, 0, ended), None, own, None, None, record if recorded else None)
    found = readiness.without_process(seen)
    assert (found.state, found.stage, found.ended) == (state, "process", ended)
    assert words in found.detail


class Reaping:
    """A manager that calls its dead process running for the first `late` looks."""

    kind = "supervisor"

    def __init__(self, late: int, then: service.Seen) -> None:
        self.late, self.then = late, then

    def seen(self) -> service.Seen:
        self.late -= 1
        return service.Seen("running", pid=2**22 + 1) if self.late >= 0 else self.then

    def members(self) -> list[int]:
        return []


@pytest.mark.parametrize(
    ("late", "then", "ended", "words"),
    [
        (3, service.Seen("ended", ended="exited with code 1"), "exited with code 1", "the server exited with code 1"),
        (1, service.Seen("ended", ended="exited with code 0"), "exited with code 0", "the server exited with code 0"),
        (1000, service.Seen("stopped"), "", "has just ended, its exit status is not known yet"),
        # Started again already: the process that was asked about is dead all the same.
        (2, service.Seen("running", pid=os.getpid()), "", "has just ended"),
    ],
)
def test_look_waits_a_moment_for_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: int, then: service.Seen, ended: str, words: str
) -> None:
    monkeypatch.setattr(readiness, "_REAP_S", 0.6)
    manager: Any = Reaping(late, then)
    began = time.monotonic()
    found = readiness.look(service.Paths(str(tmp_path)), manager, readiness.Target("127.0.0.1", 1))
    assert (found.state, found.ended) == ("failed", ended) and words in found.detail
    assert time.monotonic() - began < 1.5


def test_process_after_a_reboot_is_not_called_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "boot_id", lambda: "now")
    record = service.Record("systemd", "x", "before", 40, 7, 40, "", "", server_log.LogPosition("/l"), 0.0)
    assert readiness._another_process(record, MAIN) is None
    found = readiness._another_process(replace(record, boot_id="now"), MAIN)
    assert found and found.state == "failed" and "process 40" in found.detail


# --- what the root directory says


def test_secrets_file_is_read_as_the_launcher_reads_it(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/secrets.env").write_text("# a=b\n\nTOKFORGE_API_KEY=a=b c\nX=\n")
    assert readiness.read_secrets(service.Paths(str(tmp_path))) == {"TOKFORGE_API_KEY": "a=b c", "X": ""}
    assert readiness.read_secrets(service.Paths(str(tmp_path / "none"))) == {}


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ('{"model": {"served_name": "tiny", "random_weights": true}}', {"served_name": "tiny", "random_weights": True}),
        ('{"model": null}', {}),
        ("[]", {}),
        ("{", {}),
        (None, {}),
    ],
)
def test_model_of_the_current_release(tmp_path: Path, text: str | None, model: dict[str, Any]) -> None:
    (tmp_path / "releases/2").mkdir(parents=True)
    (tmp_path / "current").symlink_to("releases/2")
    if text is not None:
        (tmp_path / "releases/2/manifest.json").write_text(text)
    assert readiness.model_of_current(service.Paths(str(tmp_path))) == model


# --- asking


def test_dripping_answer_does_not_outlast_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _address = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                for _number in range(40):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return
                    time.sleep(0.1)

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        target = readiness.Target("127.0.0.1", server.getsockname()[1])
        answer = readiness.ask(target, "GET", "/", time.monotonic() + 0.5)
        assert answer.status == 0 and time.monotonic() - began < 1.5
        thread.join()


def test_refused_connection_is_an_answer_not_an_exception() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    answer = readiness.ask(readiness.Target("127.0.0.1", port), "GET", "/", time.monotonic() + 1)
    assert answer.status == 0 and "refused" in answer.problem.lower()


@pytest.mark.parametrize(("bound", "asked"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.1.2.3", "10.1.2.3")])
def test_client_address(bound: str, asked: str) -> None:
    assert readiness.connect_host(bound) == asked


# --- a series of looks


def seen(state: str, detail: str = "d", stage: str = "health") -> dict[str, Any]:
    return {"state": state, "stage": stage, "detail": detail}


@pytest.mark.parametrize(
    ("state", "done", "failed", "reason"),
    [
        ("starting", False, False, ""),
        ("ready", True, False, ""),
        ("failed", True, True, "failed"),
        ("stopped", True, True, "stopped"),
    ],
)
def test_wait_ends_at_once_when_it_can(state: str, done: bool, failed: bool, reason: str) -> None:
    decision = readiness.Wait("h", timeout_s=100).feed(seen(state), 1.0)
    assert (decision.done, decision.failed, decision.reason) == (done, failed, reason)


def test_wait_gives_up_at_its_limit_and_ready_still_counts_then() -> None:
    assert readiness.Wait("h", 10).feed(seen("starting"), 9.9).done is False
    assert readiness.Wait("h", 10).feed(seen("starting"), 10.0).reason == "timeout"
    assert readiness.Wait("h", 10).feed(seen("ready"), 10.5).failed is False


@pytest.mark.parametrize("poll_s", [None, 0.5, 1.0])
@pytest.mark.parametrize("look_s", [0.1, 0.3, 0.7, 1.2, 2.4])
def test_wait_shows_a_line_at_least_every_five_seconds_and_not_every_look(look_s: float, poll_s: float | None) -> None:
    wait = readiness.Wait("h", 1000, poll_s)
    shown = [0.0]
    looks = 0
    at = 0.0
    while at < 60:
        at += look_s
        looks += 1
        decision = wait.feed(seen("starting"), at)
        if decision.line:
            shown.append(at)
        at += decision.pause_s
    assert max(later - earlier for earlier, later in zip(shown, shown[1:])) <= 5.0
    if look_s + (poll_s or 2.0) < 2.5:
        assert len(shown) <= looks / 2 + 1


def test_wait_looks_every_second_at_first_and_every_other_later() -> None:
    wait = readiness.Wait("h", 600)
    assert [wait.pause_s(at) for at in (0.3, 9.9, 10.0, 400.0)] == [1.0, 1.0, 2.0, 2.0]
    assert [readiness.Wait("h", 600, 0.5).pause_s(at) for at in (0.3, 100.0)] == [0.5, 0.5]
    assert wait.pause_s(599.5) == 0.5  # not beyond its limit


def test_wait_shows_the_newest_log_line_with_a_line_that_is_due_only() -> None:
    wait = readiness.Wait("box", 100)
    assert wait.feed({**seen("starting", "a"), "log_newest": "Load weight begin."}, 1.0).line == (
        "[box] 1 s: health: a | Load weight begin."
    )
    assert wait.feed({**seen("starting", "a"), "log_newest": "Load weight end."}, 2.0).line is None
    assert wait.feed({**seen("starting", "a"), "log_newest": "Memory pool end."}, 5.5).line == (
        "[box] 6 s: health: a | Memory pool end."
    )


def test_wait_shows_a_change_at_once() -> None:
    wait = readiness.Wait("box", 100)
    assert wait.feed(seen("starting", "a"), 1.0).line == "[box] 1 s: health: a"
    assert wait.feed(seen("starting", "a"), 2.0).line is None
    assert wait.feed(seen("starting", "b"), 3.0).line == "[box] 3 s: health: b"


def test_wait_takes_another_description() -> None:
    wait = readiness.Wait("h", 100, what=lambda look: "3 of 8 ranks")
    assert wait.feed(seen("starting"), 1.0).line == "[h] 1 s: 3 of 8 ranks"


def test_failure_message_says_what_where_why_and_what_to_do() -> None:
    result = {
        "state": "failed",
        "stage": "process",
        "detail": "the server exited with code 0",
        "ended": "exited with code 0",
        "log": "/r/log/server.log",
        "log_tail": ["a", "b"],
    }
    message = readiness.failure_message("box", result, "failed", 3.2, 600, "sglang")
    assert message.splitlines() == [
        "The server on box failed 3 s after the wait began: the server exited with code 0 before it was ready "
        "(stage process); correct what the log names and deploy again.",
        "Log box:/r/log/server.log, 2 lines since the start:",
        "    a",
        "    b",
        "Also: state/supervisord.log beside it.",
    ]


def test_failure_message_counts_what_it_leaves_out_and_names_the_first_exception() -> None:
    result = {**seen("failed"), "log": "/l", "log_tail": ["a"], "log_benign": 74, "first_exception": "OSError: disk"}
    lines = readiness.failure_message("box", result, "failed", 3.2, 600, "sglang").splitlines()
    assert lines[1:3] == [
        "First exception: OSError: disk",
        "Log box:/l, 1 lines since the start without 74 benign lines:",
    ]
    one = readiness.failure_message("box", {**result, "log_benign": 1}, "failed", 3.2, 600, "sglang")
    assert "without 1 benign line:" in one


@pytest.mark.parametrize(
    "detail",
    ["the server exited with code 1 and its manager is about to start it again", "it serves a, asked was b"],
)
def test_failure_message_does_not_add_to_a_sentence_that_goes_on(detail: str) -> None:
    result = {**seen("failed", detail), "ended": "exited with code 1"}
    assert f": {detail} (stage" in readiness.failure_message("box", result, "failed", 3.2, 600, "sglang")


def test_failure_message_of_a_time_out_names_the_variable_and_the_unit() -> None:
    message = readiness.failure_message("box", {**seen("starting"), "manager": "systemd"}, "timeout", 600, 600, "sg1")
    assert "not ready within 600 s" in message and "sglang_ready_timeout_s" in message
    assert "systemctl status sg1" in message and "(nothing was written since the start)" in message
