# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output check, and its module as Ansible runs it, against a small server that misbehaves on demand."""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils.output_check import (
    PROMPTS,
    Report,
    Server,
    Settings,
    ask_at_once,
    check,
)

KEY = "sk-0123/456&789"
MODULE = "ansible_collections.tokforge.sglang.plugins.modules.output_check_info"
SETTINGS = Settings(tokens=16, repeats=3, concurrency=4, timeout_s=20.0)
TEXT = "the Eiffel Tower, which was built for the world fair"
Fault = Callable[["Handler"], object]


class Small(ThreadingHTTPServer):
    """A server that a test tells how to answer. `open` are the requests that it works on."""

    request_queue_size = 2048
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.fault: Fault = Handler.fine
        self.lock = threading.Lock()
        self.open = self.most_open = self.served = 0
        self.hold: threading.Barrier | None = None
        self.gate = threading.Event()
        self.seen: list[tuple[str, str | None]] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that give up are what these tests are about."""


class Handler(BaseHTTPRequestHandler):
    server: Small
    asked: dict[str, Any]
    left = False
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.open += 1
            self.server.served += 1
            self.server.most_open = max(self.server.most_open, self.server.open)
            self.server.seen.append((self.path, self.headers["Authorization"]))
        try:
            self.server.fault(self)
        finally:
            self.leave()

    def leave(self) -> None:
        """Before the answer: the client may send its next request before this thread goes on."""
        with self.server.lock:
            self.server.open -= not self.left
            self.left = True

    @property
    def tokens(self) -> int:
        return int(self.asked["sampling_params"]["max_new_tokens"])

    @property
    def prompt(self) -> int:
        return PROMPTS.index(self.asked["text"])

    def answer(self, **more: Any) -> dict[str, Any]:
        first = 100 * (self.prompt + 1)
        meta = {"completion_tokens": self.tokens, "cached_tokens": 0}
        return {
            "text": TEXT,
            "output_ids": list(range(first, first + self.tokens)),
            "meta_info": {**meta, **more.pop("meta", {})},
            **more,
        }

    def fine(self) -> None:
        self.send(self.answer())

    def send(self, body: Any, status: int = 200, promised: int | None = None) -> None:
        self.leave()
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data) if promised is None else promised))
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def small() -> Iterator[Small]:
    with Small() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.gate.set()
        server.shutdown()
        thread.join()


def run(small: Small, settings: Settings = SETTINGS, key: str = "") -> Report:
    return check(Server("127.0.0.1", small.server_address[1], key), settings)


def later(kind: str) -> Fault:
    """Answers well until more than one request is open at once."""

    def fault(handler: Handler) -> None:
        small = handler.server
        if small.served <= len(PROMPTS):
            handler.fine()
            return
        # Both are open at the same time, whatever the machine does.
        with suppress(threading.BrokenBarrierError):
            if small.hold is not None:
                small.hold.wait(timeout=5)
        if small.most_open > 1 and kind == "stuck":
            handler.send(handler.answer(text="!" * 16, output_ids=[0] * 16))
        elif small.most_open > 1 and kind == "other":
            handler.send(handler.answer(output_ids=list(range(5, 5 + handler.tokens))))
        else:
            handler.fine()

    return fault


# --- a server that works


def test_good_server_passes_and_each_phase_is_told(small: Small) -> None:
    small.fault = lambda handler: handler.send(handler.answer(meta={"cached_tokens": 3 * (small.served > 10)}))
    found = run(small)
    assert (found.passed, found.verdict, found.failures, found.workers) == (True, "ok", (), 4)
    figures = [(one.phase, one.requests, one.usable, one.agreement, one.cached_tokens) for one in found.phases]
    assert figures == [("single", 6, 6, None, 0), ("concurrent", 4, 4, 1.0, 0), ("repeated", 3, 3, 1.0, 9)]
    assert [one.cache_hits for one in found.phases] == [0, 0, 3]
    assert "3 repeated requests found their prompt in the prefix cache" in found.reason
    assert small.seen == [("/generate", None)] * 13
    assert all(one.latency_p50_s and one.latency_max_s and one.elapsed_s for one in found.phases)


def test_without_concurrency_and_repeats_there_is_one_phase(small: Small) -> None:
    found = run(small, replace(SETTINGS, concurrency=1, repeats=0))
    assert ([one.phase for one in found.phases], small.served, small.most_open) == (["single"], 6, 1)
    assert found.passed and found.workers == 1


@pytest.mark.parametrize("concurrency", [2, 64, 300])
def test_so_many_requests_are_open_at_once(small: Small, concurrency: int) -> None:
    small.hold = threading.Barrier(concurrency)  # answers when all of them have come

    def fault(handler: Handler) -> None:
        if len(PROMPTS) < small.served and small.hold is not None:
            small.hold.wait(timeout=8)
        handler.fine()

    small.fault = fault
    found = run(small, replace(SETTINGS, concurrency=concurrency, repeats=0))
    assert (found.passed, found.workers, small.most_open) == (True, concurrency, concurrency), found.reason
    assert (found.phases[1].requests, found.phases[1].in_flight) == (concurrency, concurrency)


def test_requests_are_sent_when_all_are_connected(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    connect, connected, late = HTTPConnection.connect, [], threading.Semaphore(1)

    def uneven(connection: HTTPConnection) -> None:
        if late.acquire(blocking=False):
            time.sleep(0.2)
        connect(connection)
        connected.append(time.monotonic())

    monkeypatch.setattr(HTTPConnection, "connect", uneven)
    server = Server("127.0.0.1", small.server_address[1])
    came, workers = ask_at_once(server, SETTINGS, [0] * 8, time.monotonic() + 10)
    assert workers == 8 and min(one.began for one in came) >= max(connected)
    assert [one.status for one in came] == [200] * 8


def test_process_that_may_open_few_files_asks_with_fewer_workers(small: Small) -> None:
    # A process of its own: a hard limit cannot be raised again.
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (80, 90))\n"
        "from ansible_collections.tokforge.sglang.plugins.module_utils.output_check import *\n"
        f"found = check(Server('127.0.0.1', {small.server_address[1]}), Settings(16, 100, 0))\n"
        "print(found.passed, found.workers, found.phases[1].requests, resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert ended.stdout.strip() == "True 26 100 (80, 90)"
    assert small.most_open <= 26


# --- faults that only show under load


@pytest.mark.parametrize(("kind", "verdict"), [("stuck", "degenerate"), ("other", "disagreement"), ("none", "ok")])
def test_what_breaks_only_under_load_is_found(small: Small, kind: str, verdict: str) -> None:
    small.hold = threading.Barrier(4)
    small.fault = later(kind)
    found = run(small, replace(SETTINGS, repeats=0))
    assert (found.verdict, found.passed) == (verdict, verdict == "ok")
    if not found.passed:
        assert found.reason.startswith("concurrent requests, prompt 'Paris is the capital"), found.reason
        assert {one.phase for one in found.failures} == {"concurrent"}
        assert found.phases[0].usable == 6
    small.served = 0
    random = run(small, replace(SETTINGS, repeats=0, random_weights=True))
    assert (random.passed, random.verdict) == (True, "mechanics_only")


def test_unusable_answer_is_not_what_is_expected_under_load(small: Small) -> None:
    wrong = {"text": "!" * 16, "output_ids": [0] * 16}
    small.fault = lambda handler: handler.send(handler.answer(**(wrong if small.served == 1 else {})))
    found = run(small, replace(SETTINGS, repeats=0))
    assert (found.verdict, found.phases[0].usable) == ("degenerate", 5)
    assert (found.phases[1].usable, found.phases[1].agreement) == (4, 1.0)


def test_answers_that_change_from_the_prefix_cache_disagree(small: Small) -> None:
    small.fault = lambda handler: handler.send(
        handler.answer(output_ids=list(range(small.served, small.served + 16)), meta={"cached_tokens": 64})
    )
    found = run(small, replace(SETTINGS, concurrency=1))
    assert (found.verdict, found.phases[1].agreement, found.phases[1].cached_tokens) == ("disagreement", 0.333, 192)
    assert found.reason.startswith("repeated requests, prompt 'Dear Anna")


# --- faults of every answer


def drip(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.gate.wait(0.05):
        handler.wfile.write(b" ")


def drip_headers(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while not handler.server.gate.wait(0.05):
        handler.wfile.write(b"a")


def drop(handler: Handler) -> None:
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def chunked(handler: Handler) -> None:
    """A chunk that is announced and does not come."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"40\r\n{")
    drop(handler)


@pytest.mark.parametrize(
    ("fault", "verdict", "words"),
    [
        (lambda h: h.send(b"no", 500), "http_error", "/generate says 500, what came is 'no'"),
        (lambda h: h.send({"error": "x"}, 400), "http_error", "/generate says 400"),
        (lambda h: h.send(h.answer(), 503), "http_error", "/generate says 503"),
        (drop, "http_error", "no answer from 127.0.0.1:"),
        (lambda h: h.wfile.write(b"SSH-2.0-x\r\n") and drop(h), "http_error", "SSH-2.0-x"),
        (lambda h: h.send(h.answer(), promised=5000), "http_error", "bytes early"),
        (chunked, "http_error", "in the middle of the answer"),
        (lambda h: h.send(b"Internal Server Error"), "malformed", "not JSON of /generate"),
        (lambda h: h.send([h.answer()]), "malformed", "a list instead of an object"),
        (lambda h: h.send({"error": {"message": "no"}}), "malformed", "it has no text"),
        (lambda h: h.send(b"x" * 1_000_000), "malformed", "longer than 81920 bytes"),
        (lambda h: h.send(b"[" * 80_000), "malformed", "RecursionError"),
        (lambda h: h.send(b""), "malformed", "not JSON"),
        (lambda h: h.send(h.answer(output_ids=[10**300] * 16)), "malformed", "no token"),
        (lambda h: h.send(h.answer(meta={"completion_tokens": 15})), "wrong_count", "16 tokens were asked for and 15"),
        (lambda h: h.send(h.answer(text="")), "empty", "the text is empty"),
        (lambda h: h.send(h.answer(text="NaN")), "not_a_number", "the text is NaN"),
        (lambda h: h.send(h.answer(text="\x00\x1b\ud800\u202e" * 4)), "degenerate", "what came is '\ufffd\ufffd"),
        (lambda h: h.send(h.answer(text="ab" * 16)), "degenerate", "over and over"),
    ],
)
def test_what_is_no_usable_answer(small: Small, fault: Fault, verdict: str, words: str) -> None:
    small.fault = fault
    found = run(small)
    assert (found.passed, found.verdict) == (False, verdict), found.reason
    assert words in found.reason and found.reason.startswith("single requests, prompt 'Paris")
    assert found.phases[0].usable == 0 and 1 <= len(found.failures) <= 5
    assert json.dumps(found.output_check).isprintable() and found.elapsed_s < 5


@pytest.mark.parametrize("logprob", [None, float("nan"), float("-inf")])
def test_log_probability_that_is_no_number_is_found_with_random_weights_too(small: Small, logprob: Any) -> None:
    pairs = [[-0.5, 1, None]] * 15 + [[logprob, 1, None]]
    small.fault = lambda handler: handler.send(handler.answer(meta={"output_token_logprobs": pairs}))
    found = run(small, replace(SETTINGS, logprobs=True, random_weights=True, repeats=0))
    assert (found.passed, found.verdict) == (False, "not_a_number")


@pytest.mark.parametrize("fault", [drip, drip_headers, lambda handler: handler.server.gate.wait(20)])
@pytest.mark.parametrize("loaded", [False, True])
def test_answer_that_does_not_end_is_over_in_time(small: Small, fault: Fault, loaded: bool) -> None:
    def when(handler: Handler) -> None:
        if loaded and small.served <= len(PROMPTS):
            handler.fine()
        else:
            fault(handler)

    small.fault = when
    threads = threading.active_count()
    began = time.monotonic()
    found = run(small, replace(SETTINGS, timeout_s=0.6))
    assert time.monotonic() - began < 2
    assert (found.passed, found.verdict) == (False, "timeout")
    assert "no complete answer from 127.0.0.1:" in found.reason and "the whole check has 0.6 s" in found.reason
    # Nothing is asked of a server that hangs, beyond the phase that showed it.
    figures = [(one.phase, one.requests, one.usable) for one in found.phases]
    assert figures == ([("single", 6, 6), ("concurrent", 4, 0)] if loaded else [("single", 1, 0)])
    small.gate.set()
    while threading.active_count() > threads and time.monotonic() - began < 5:
        time.sleep(0.01)
    assert threading.active_count() <= threads


def test_request_that_is_asked_alone_may_take_half_of_the_time(small: Small) -> None:
    small.fault = lambda handler: handler.server.gate.wait(20)
    found = run(small, replace(SETTINGS, timeout_s=1.0))
    assert 0.45 < found.elapsed_s < 0.9 and "within 0.5 s" in found.reason


def test_no_server_at_all_is_an_http_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = check(Server("127.0.0.1", port), SETTINGS)
    assert (found.passed, found.verdict, found.phases[0].requests) == (False, "http_error", 1)
    assert f"no answer from 127.0.0.1:{port}: [Errno 111] Connection refused" in found.reason


@pytest.mark.parametrize(("port", "key"), [(70000, ""), (1, "not\u20aclatin"), (1, "two\nlines")])
def test_port_or_key_that_cannot_be_used_is_an_http_error_that_does_not_show_the_key(port: int, key: str) -> None:
    found = check(Server("127.0.0.1", port, key), SETTINGS)
    assert found.verdict == "http_error"
    assert not key or key not in repr(found)


@pytest.mark.parametrize("key", ["not\u20aclatin", "two\nlines"])
def test_key_that_is_no_header_is_said_and_not_shown(small: Small, key: str) -> None:
    found = run(small, key=key)
    assert (found.verdict, small.served) == ("http_error", 0)
    assert "perhaps for its port or API key" in found.reason
    assert "latin" not in repr(found) and "lines" not in repr(found)


def test_settings_of_the_process_are_given_back(small: Small) -> None:
    # To ask for the size of a stack is to set it to the default.
    before = (threading.stack_size(), resource.getrlimit(resource.RLIMIT_NOFILE))
    run(small)
    assert (threading.stack_size(), resource.getrlimit(resource.RLIMIT_NOFILE)) == before


# --- the module


def module(root: Path, small: Small, **more: Any) -> dict[str, Any]:
    arguments = {"root": str(root), "port": small.server_address[1], "tokens": 16, "repeats": 2, **more}
    ended = subprocess.run(
        [sys.executable, "-m", MODULE],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert KEY not in ended.stdout + ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_module_uses_the_key_and_the_release_below_root_and_never_shows_the_key(small: Small, tmp_path: Path) -> None:
    release = tmp_path / "releases" / "1"
    release.mkdir(parents=True)
    (release / "manifest.json").write_text(json.dumps({"model": {"random_weights": True}}))
    (tmp_path / "current").symlink_to(release)
    (tmp_path / "state").mkdir()
    (tmp_path / "state/secrets.env").write_text(f"TOKFORGE_API_KEY={KEY}\n")

    good = module(tmp_path, small, concurrency=3, _ansible_check_mode=True)
    assert (good["changed"], good["passed"], good["verdict"], good["workers"]) == (False, True, "mechanics_only", 3)
    assert good["output_check"] == {"passed": True, "reason": good["reason"]}
    assert [one["phase"] for one in good["phases"]] == ["single", "concurrent", "repeated"]
    assert small.seen == [("/generate", f"Bearer {KEY}")] * 11

    # What is given comes before what the release records; and the server repeats the key.
    small.fault = lambda handler: handler.send({"error": f"bad {handler.headers['Authorization']}"}, 401)
    echoed = module(tmp_path, small, random_weights=False)
    assert (echoed["passed"], echoed["verdict"], echoed.get("failed")) == (False, "http_error", None)
    assert "<redacted>" in echoed["reason"] and "refuses the API key" in echoed["reason"]
    assert set(echoed["failures"][0]) == {"phase", "prompt", "text_sample", "why"}


def test_module_refuses_what_cannot_be_asked(small: Small, tmp_path: Path) -> None:
    found = module(tmp_path, small, concurrency=0)
    assert found["failed"] and found["msg"].startswith("the output check cannot run: concurrency is 0; give a value")
    assert small.served == 0
