# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one look means, and what a series of looks means."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import proc, readiness, service

MAIN = proc.Process(pid=41, start_ticks=7, ppid=1, pgrp=41, session=40, state="S", comm="python")


def generation(text: str = "Paris it is.", tokens: int = 8, ids: list[int] | None = None) -> bytes:
    ids = list(range(tokens)) if ids is None else ids
    return json.dumps({"text": text, "output_ids": ids, "meta_info": {"completion_tokens": tokens}}).encode()


@pytest.mark.parametrize(
    ("body", "random", "verdict"),
    [
        (generation(), False, "ok"),
        (generation("!!!!!!!!"), False, "degenerate"),
        (generation("! ! ! !", ids=[5] * 8), False, "degenerate"),
        (generation(""), False, "degenerate"),
        (generation("  \n"), False, "degenerate"),
        (generation("NaN"), False, "degenerate"),
        (generation("the Nanjing road"), False, "ok"),
        (generation("!!!!!!!!"), True, "mechanics_only"),
        (generation(tokens=7), False, "wrong_count"),
        (generation(tokens=0), True, "wrong_count"),
        (b"not json", False, "malformed"),
        (b"[]", False, "malformed"),
        (b'{"text": "a"}', True, "malformed"),
        (b'{"text": "a", "meta_info": null}', True, "malformed"),
    ],
)
def test_generation_verdict(body: bytes, random: bool, verdict: str) -> None:
    assert readiness.judge_generation(body, 8, random).verdict == verdict


def test_one_token_is_not_called_a_repetition() -> None:
    assert readiness.judge_generation(generation("!", tokens=1), 1, False).verdict == "ok"


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
        ("ended", "exit status 0", (), True, False, "failed", "exit status 0"),
        ("ended", "terminated by SIGKILL", (), False, False, "failed", "SIGKILL"),
        ("ended", "exit status 1", (MAIN,), True, False, "failed", "41 are left"),
        ("restarting", "exit status 1", (), True, False, "failed", "about to start it again"),
        ("running", "", (), True, False, "failed", "just ended"),
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
    record = service.Record("supervisor", "x", "b", 41, 7, 40, "", "", service.LogPosition("/l"), 0.0, "", stopped)
    seen = service.Observed(service.Seen(phase, 0, ended), None, own, None, None, record if recorded else None)
    found = readiness.without_process(seen)
    assert (found.state, found.stage) == (state, "process")
    assert words in found.detail


def test_process_after_a_reboot_is_not_called_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proc, "boot_id", lambda: "now")
    record = service.Record("systemd", "x", "before", 40, 7, 40, "", "", service.LogPosition("/l"), 0.0)
    assert readiness._another_process(record, MAIN) is None
    found = readiness._another_process(replace(record, boot_id="now"), MAIN)
    assert found and found.state == "failed" and "process 40" in found.detail


# --- the log


def position(path: Path) -> service.LogPosition:
    return service.log_position(str(path))


def test_tail_is_what_was_written_since(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("old\n")
    here = position(log)
    assert readiness.tail(here) == []
    with log.open("a") as stream:
        stream.write("new 1\nnew 2")
    assert readiness.tail(here) == ["new 1", "new 2"]


def test_tail_of_a_log_that_did_not_exist(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    here = position(log)
    assert readiness.tail(here) == []
    log.write_text("a\n")
    assert readiness.tail(here) == ["a"]


def test_tail_follows_a_rename_to_any_number(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("old\n")
    here = position(log)
    with log.open("a") as stream:
        stream.write("before\n")
    log.rename(tmp_path / "server.log.2")
    (tmp_path / "server.log.1").write_text("of another time\n")
    log.write_text("after\n")
    assert readiness.tail(here) == ["before", "after"]


def test_tail_of_a_log_whose_rotated_part_is_gone(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("x" * 100)
    here = service.LogPosition(str(log), inode=position(log).inode + 1, offset=50)
    assert readiness.tail(here) == ["x" * 100]


def test_tail_after_truncation_starts_over(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("x" * 100)
    here = position(log)
    os.truncate(log, 0)
    with log.open("a") as stream:
        stream.write("new\n")
    assert readiness.tail(here) == ["new"]


def test_tail_is_bounded_and_safe_to_show(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    lines = [f"line {number}" for number in range(200)]
    text = "\n".join(lines) + "\n\x1b[31mred\x1b[0m\x00\n 10%|#\r 20%|##\nkey canary-secret end\n" + "y" * 5000 + "\n"
    log.write_bytes(text.encode() + b"\xff\xfe bad\n")
    shown = readiness.tail(service.LogPosition(str(log)), secrets=["canary-secret", "10%"])
    assert len(shown) == 50
    assert shown[-6:-2] == ["red", " 10%|#", " 20%|##", "key <redacted> end"]
    assert len(shown[-2]) == 400 and shown[-2].endswith(" ...")
    assert shown[-1].endswith("bad")


def test_tail_of_a_huge_log_reads_only_its_end(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with log.open("wb") as stream:
        stream.truncate(5_000_000_000)
        stream.seek(0, 2)
        stream.write(b"\nlast\n")
    began = time.monotonic()
    assert readiness.tail(service.LogPosition(str(log)))[-1] == "last"
    assert time.monotonic() - began < 1


def test_secrets_file_is_read_as_the_launcher_reads_it(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/secrets.env").write_text("# a=b\n\nTOKFORGE_API_KEY=a=b c\nX=\n")
    assert readiness.read_secrets(service.Paths(str(tmp_path))) == {"TOKFORGE_API_KEY": "a=b c", "X": ""}
    assert readiness.read_secrets(service.Paths(str(tmp_path / "none"))) == {}


# --- asking


def test_dripping_answer_does_not_outlast_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                for _ in range(40):
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


@pytest.mark.parametrize("look_s", [0.3, 1.0, 2.4])
def test_wait_shows_a_line_at_least_every_five_seconds_and_not_every_look(look_s: float) -> None:
    wait = readiness.Wait("h", 1000)
    shown = [0.0]
    looks = 0
    at = 0.0
    while at < 60:
        at += look_s
        looks += 1
        if wait.feed(seen("starting"), at).line:
            shown.append(at)
    assert max(later - earlier for earlier, later in zip(shown, shown[1:])) <= 5.0
    if look_s < 2:
        assert len(shown) < looks / 2


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
        "detail": "exit status 0",
        "log": "/r/log/server.log",
        "log_tail": ["a", "b"],
    }
    message = readiness.failure_message("box", result, "failed", 3.2, 600, "sglang")
    assert message.splitlines()[0] == (
        "The server on box failed 3 s after the wait began: exit status 0 (stage process); "
        "correct what the log names and deploy again."
    )
    assert "Log box:/r/log/server.log, last 2 lines since the start:\n    a\n    b\n" in message
    assert "supervisord.log" in message


def test_failure_message_of_a_time_out_names_the_variable_and_the_unit() -> None:
    message = readiness.failure_message("box", {**seen("starting"), "manager": "systemd"}, "timeout", 600, 600, "sg1")
    assert "not ready within 600 s" in message and "sglang_ready_timeout_s" in message
    assert "systemctl status sg1" in message and "(nothing was written since the start)" in message
