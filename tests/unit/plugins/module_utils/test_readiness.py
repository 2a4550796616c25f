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

from ansible_collections.tokforge.sglang.plugins.module_utils import log_follow, proc, readiness, service

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
    record = service.Record("supervisor", "x", "b", 41, 7, 40, "", "", log_follow.LogPosition("/l"), 0.0, "", stopped)
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
    record = service.Record("systemd", "x", "before", 40, 7, 40, "", "", log_follow.LogPosition("/l"), 0.0)
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


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ('{"args": {"nnodes": 2, "node-rank": 1}}', "this is node 1 of 2"),
        ('{"args": {"nnodes": 2, "node-rank": 0}}', ""),
        ('{"args": {"tp-size": 2}}', ""),
        ('{"args": null}', ""),
        ("[]", ""),
        ("{", ""),
        (None, ""),
    ],
)
def test_node_that_a_release_runs(tmp_path: Path, text: str | None, node: str) -> None:
    if text is not None:
        (tmp_path / "manifest.json").write_text(text)
    assert readiness.node_of(str(tmp_path)) == node


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


def test_answer_that_ends_in_the_middle_is_none() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def cut() -> None:
            connection, _address = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf")

        thread = threading.Thread(target=cut)
        thread.start()
        target = readiness.Target("127.0.0.1", server.getsockname()[1])
        answer = readiness.ask(target, "GET", "/", time.monotonic() + 5)
        assert (answer.status, answer.problem) == (0, "the answer ends in the middle")
        thread.join()


def test_refused_connection_is_an_answer_not_an_exception() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    answer = readiness.ask(readiness.Target("127.0.0.1", port), "GET", "/", time.monotonic() + 1)
    assert answer.status == 0 and "refused" in answer.problem.lower()


@pytest.mark.parametrize(("bound", "asked"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.1.2.3", "10.1.2.3")])
def test_client_address(bound: str, asked: str) -> None:
    assert readiness.connect_host(bound) == asked
