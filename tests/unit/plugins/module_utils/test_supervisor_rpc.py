# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What supervisord's log and answers mean."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import supervisor_rpc

SPAWN = "2026-11-29 18:04:00,001 INFO spawned: 'sglang' with pid 41\n"


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ("WARN exited: sglang (exit status 0; not expected)", "exited with code 0"),
        ("INFO exited: sglang (exit status 0; expected)", "exited with code 0"),
        ("WARN exited: sglang (exit status 78; not expected)", "exited with code 78"),
        ("WARN exited: sglang (terminated by SIGKILL; not expected)", "was killed by signal 9 (SIGKILL)"),
        ("WARN exited: sglang (terminated by signal 40; not expected)", "was killed by signal 40"),
        (
            "WARN exited: sglang (unknown termination cause 0x1234; not expected)",
            "ended (unknown termination cause 0x1234)",
        ),
        (
            "WARN exited: sglang (terminated by SIGSEGV (core dumped); not expected)",
            "was killed by signal 11 (SIGSEGV) and dumped core",
        ),
        ("WARN stopped: sglang (terminated by SIGTERM)", "was killed by signal 15 (SIGTERM)"),
    ],
)
def test_end_is_read_from_the_log(line: str, how: str) -> None:
    assert supervisor_rpc.how_it_ended(f"{SPAWN}2026-11-29 18:04:02,001 {line}\n", "sglang") == (41, how)


def test_end_of_an_earlier_start_is_not_this_ones() -> None:
    log = SPAWN + "x WARN exited: sglang (exit status 1; not expected)\n" + SPAWN.replace("41", "42")
    assert supervisor_rpc.how_it_ended(log, "sglang") is None


def test_another_programs_end_and_a_log_cut_in_the_middle_do_not_count() -> None:
    assert supervisor_rpc.how_it_ended(SPAWN + "WARN exited: sglang2 (exit status 1; not expected)\n", "sglang") is None
    assert supervisor_rpc.how_it_ended("WARN exited: sglang (exit status 1; not expected)\n", "sglang") is None


def test_no_socket_and_a_stale_socket_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with pytest.raises(supervisor_rpc.SupervisorGoneError):
        supervisor_rpc.Supervisor(str(path)).pid()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with pytest.raises(supervisor_rpc.SupervisorGoneError):
        supervisor_rpc.Supervisor(str(path)).pid()


def test_path_no_socket_can_have_is_gone_not_an_error(tmp_path: Path) -> None:
    with pytest.raises(supervisor_rpc.SupervisorGoneError):
        supervisor_rpc.Supervisor(str(tmp_path / ("x" * 120))).pid()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno", None])
def test_who_does_not_speak_xml_rpc_is_an_error(tmp_path: Path, answer: bytes | None) -> None:
    path = str(tmp_path / "s.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def serve() -> None:
            connection, _address = server.accept()
            with connection:
                connection.recv(65536)
                if answer is not None:
                    connection.sendall(answer)
                else:
                    done.wait(5)

        done = threading.Event()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with pytest.raises(supervisor_rpc.SupervisorError):
                supervisor_rpc.Supervisor(path, timeout_s=0.5).pid()
        finally:
            done.set()
            thread.join()
