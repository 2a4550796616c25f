# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules that wait for a server's requests and prove its end, as Ansible runs them, against a real HTTP server."""

from __future__ import annotations

import itertools
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import proc, rollout_lock, service

MODULES = "ansible_collections.tokforge.sglang.plugins.modules"
KEY = "canary-key-0123456789"


def run(module: str, root: Path, port: int, check: bool = False, **params: Any) -> dict[str, Any]:
    given = {"root": str(root), "port": port, "_ansible_check_mode": check, **params}
    done = subprocess.run(
        [sys.executable, "-m", f"{MODULES}.{module}"],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": given}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert KEY not in done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if answer.get("failed") else 0), done.stderr
    return answer


class Server:
    """A real HTTP server with /v1/loads (a key is needed) and /metrics (none is); how each behaves is set by a test."""

    def __init__(self) -> None:
        self.running = 0
        self.key = KEY
        self.metrics = False
        self.before: Callable[[], None] = lambda: None
        self.half = False
        parent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parent.before()
                status, body = parent.answer(self.path, self.headers.get("Authorization"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if parent.half else body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port

    def answer(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        if path == "/metrics" and self.metrics:
            text = f"sglang:num_running_reqs {self.running}\nsglang:num_queue_reqs 0\nsglang:http_requests_total 1\n"
            return 200, text.encode()
        if not path.startswith("/v1/loads"):
            return 404, b"{}"
        if authorization != f"Bearer {self.key}":
            return 401, b"{}"
        loads = [{"num_running_reqs": self.running, "num_waiting_reqs": 0}]
        return 200, json.dumps({"loads": loads, "padding": "x" * 200}).encode()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "state").mkdir()
    (tmp_path / "state/secrets.env").write_text(f"TOKFORGE_API_KEY={KEY}\n")
    return tmp_path


def drain(root: Path, server: Server, **params: Any) -> dict[str, Any]:
    given = {"interval_s": 0.1, "look_timeout_s": 0.5, "timeout_s": 1.0, **params}
    return run("server_drain", root, server.port, **given)


def test_server_is_waited_for_until_its_requests_have_ended(root: Path, server: Server) -> None:
    server.running = 2
    asked = itertools.count(1)
    # Two questions a look: from the third look on it has none.
    server.before = lambda: setattr(server, "running", 2 if next(asked) < 5 else 0)
    found = drain(root, server, timeout_s=20)
    assert (found["drained"], found["known"], found["state"], found["changed"]) == (True, True, "idle", False)
    assert (found["running"], found["queued"], found["open_requests"], found["how"]) == (0, 0, None, "/v1/loads")
    assert found["looks"] == 5 and found["waited_s"] >= 0.4


def test_limit_is_told_and_no_failure(root: Path, server: Server) -> None:
    server.running = 2
    found = drain(root, server)
    assert (found["drained"], found["known"], found["running"]) == (False, True, 2)
    assert 0.5 < found["waited_s"] < 3 and "wait longer than 1 s" in found["todo"]


def test_check_mode_looks_once(root: Path, server: Server) -> None:
    server.running = 1
    found = drain(root, server, check=True, timeout_s=60)
    assert (found["drained"], found["looks"]) == (False, 1)
    server.running = 0
    assert drain(root, server, check=True)["drained"] is True


def test_refused_key_is_told_and_metrics_stand_in(root: Path, server: Server) -> None:
    server.key = "another-key-0123456789"
    found = drain(root, server)
    assert (found["drained"], found["known"], found["state"]) == (False, False, "unknown")
    assert "refuses the API key that state/secrets.env holds (401)" in found["detail"]
    assert found["looks"] == 3 and "nobody can tell" in found["todo"]
    server.metrics = True
    found = drain(root, server)
    assert (found["drained"], found["how"], found["open_requests"]) == (True, "/metrics", 0)


def test_process_of_an_old_record_is_not_the_servers(root: Path, server: Server) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        try:
            seen = proc.read_process(other.pid)
            assert seen is not None
            for ticks, pids in ((seen.start_ticks - 1, []), (seen.start_ticks, [other.pid])):
                position = service.LogPosition(0, 0, 0)
                record = service.Record(
                    "supervisor", "s", proc.boot_id(), other.pid, ticks, other.pid, "l", "r", position, 0.0
                )
                service.write_record(service.Paths(str(root)), record)
                assert drain(root, server)["pids"] == pids
        finally:
            other.kill()


def test_wait_is_a_sign_of_life_of_its_play_and_of_no_other(root: Path, server: Server) -> None:
    rollout_lock.take(str(root), "mine", "deploy", rollout_lock.Controller("c", "u"), 60)
    seen: list[rollout_lock.Lock | None] = []
    server.before = lambda: seen.append(rollout_lock.read(str(root)))
    assert drain(root, server, rollout="mine")["drained"] is True
    assert seen and all(lock is not None and lock.worker_pid > 0 for lock in seen)
    after = rollout_lock.read(str(root))
    assert after is not None and after.worker_pid == 0
    seen.clear()
    lost = drain(root, server, rollout="another")
    assert lost["failed"] and lost["locked"] and "this play's lock was taken away" in lost["msg"] and seen == []
    assert drain(root, server, rollout="another", check=True)["drained"] is True


def test_hung_server_is_given_the_whole_limit(root: Path, server: Server) -> None:
    server.before = lambda: time.sleep(3)
    found = drain(root, server, look_timeout_s=0.2)
    assert (found["drained"], found["known"], found["state"]) == (False, False, "silent")
    assert found["waited_s"] < 3 and "gives no answer in time" in found["detail"]


def test_slow_server_is_understood(root: Path, server: Server) -> None:
    server.before = lambda: time.sleep(0.1)
    assert drain(root, server, look_timeout_s=5, timeout_s=20)["drained"] is True


def test_half_an_answer_is_none(root: Path, server: Server) -> None:
    server.half = server.metrics = True
    found = drain(root, server)
    assert (found["drained"], found["state"]) == (False, "silent")
    assert "the answer ends in the middle" in found["detail"]


def test_closed_port_is_drained_at_once(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    found = run("server_drain", root, port)
    assert (found["drained"], found["known"], found["state"], found["pids"]) == (True, True, "closed", [])


def test_proof_names_who_is_left_on_the_port_and_succeeds_without(root: Path, server: Server) -> None:
    left = run("server_gone_info", root, server.port, timeout_s=0)
    assert (left["failed"], left["gone"], left["port_closed"]) == (True, False, False)
    assert f"127.0.0.1:{server.port} is still held by process" in left["msg"]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    gone = run("server_gone_info", root, port, timeout_s=5, pids=[1])
    assert (gone["gone"], gone["processes"], gone["port_closed"], gone["changed"]) == (True, [], True, False)


def test_server_that_its_router_does_not_list_is_a_warning(root: Path, server: Server) -> None:
    listed = json.dumps({"workers": [{"url": "http://10.0.0.2:1", "id": "1"}]}).encode()
    server.answer = lambda _path, _key: (200, listed)  # type: ignore[method-assign]
    params = {"router_url": f"http://127.0.0.1:{server.port}", "url": "http://127.0.0.1:1", "state": "absent"}
    done = subprocess.run(
        [sys.executable, "-m", f"{MODULES}.router_worker"],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": params}),
        capture_output=True,
        text=True,
        check=False,
    )
    answer = json.loads(done.stdout)
    assert answer["changed"] is False and len(answer["warnings"]) == 1
    assert "does not list http://127.0.0.1:1; it lists http://10.0.0.2:1; is sglang_drain_url" in str(
        answer["warnings"]
    )


def test_worker_of_a_router_that_is_not_there_fails(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"{MODULES}.router_worker"],
        input=json.dumps(
            {"ANSIBLE_MODULE_ARGS": {"router_url": "http://127.0.0.1:9", "url": "http://h:1", "root": str(root)}}
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    answer = json.loads(done.stdout)
    assert answer["failed"] and "cannot list its workers at router http://127.0.0.1:9" in answer["msg"]
    assert KEY not in done.stdout
