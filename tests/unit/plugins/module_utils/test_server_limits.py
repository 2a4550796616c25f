# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server says of its limits: recorded answers of two releases, and answers that are none."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import server_limits
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import Target
from ansible_collections.tokforge.sglang.plugins.module_utils.server_limits import ServerLimits, ask, read

RECORDINGS = Path(__file__).parent / "fixtures" / "server_info"
KEY = "client-key"
NOTHING = ServerLimits()


def recording(release: str, **changes: Any) -> dict[str, Any]:
    return {**json.loads((RECORDINGS / f"{release}.json").read_text()), **changes}


def states(*running: Any) -> list[dict[str, Any]]:
    return [{"effective_max_running_requests_per_dp": value} for value in running]


class Handler(BaseHTTPRequestHandler):
    answers: dict[str, tuple[int, bytes]]
    asked: list[tuple[str, str | None]]
    raw: bytes = b""

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        if self.raw:
            self.wfile.write(self.raw)
            return
        status, body = self.answers.get(self.path, (404, b""))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    monkeypatch.setattr(Handler, "asked", [], raising=False)
    monkeypatch.setattr(Handler, "answers", {}, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield Target("127.0.0.1", running.server_port, "/m", "tiny-moe")
        running.shutdown()
        thread.join()


# --- what an answer says


@pytest.mark.parametrize("release", ["0.5.12.post1", "0.5.23"])
def test_recorded_answer_tells_the_limits_that_the_scheduler_found(release: str) -> None:
    # Its own argument says null: the scheduler chose.
    assert recording(release)["max_running_requests"] is None
    assert read(recording(release)) == ServerLimits(2048, 8192, "cpu", 0, release)


def test_states_of_all_parts_add_up_and_the_cache_counts_for_each() -> None:
    found = read(recording("0.5.23", device="cuda", dp_size=2, tp_size=2, internal_states=states(24, 40)))
    assert (found.max_running_requests, found.max_total_tokens, found.gpus) == (64, 16384, 4)


def test_state_of_one_part_stands_for_all() -> None:
    found = read(recording("0.5.12.post1", dp_size=4, internal_states=states(24)))
    assert (found.max_running_requests, found.max_total_tokens) == (96, 4 * 8192)


@pytest.mark.parametrize("inner", [[], None, states(None), states(24, None), states(0), [{}], [3], 5, "text", {"a": 1}])
def test_argument_counts_where_not_every_state_tells(inner: Any) -> None:
    assert read(recording("0.5.23", max_running_requests=17, internal_states=inner)).max_running_requests == 17
    assert read(recording("0.5.23", internal_states=inner)).max_running_requests is None


def test_data_parallel_attention_shares_the_gpus_and_a_pipeline_adds_some() -> None:
    sizes = {"device": "cuda", "tp_size": 8, "pp_size": 2, "dp_size": 4}
    assert read(recording("0.5.23", **sizes, enable_dp_attention=True)).gpus == 16
    assert read(recording("0.5.23", **sizes)).gpus == 64
    assert read({"device": "cuda"}).gpus == 1


@pytest.mark.parametrize("value", [True, -1, 0, 2.0, "8", None, [8]])
def test_figures_of_another_kind_are_unknown(value: Any) -> None:
    found = read({"max_running_requests": value, "max_total_num_tokens": value, "device": value, "version": value})
    assert (found.max_running_requests, found.max_total_tokens) == (None, None)
    assert (found.version, found.device) == (value, value) if isinstance(value, str) else (None, None)
    assert read(recording("0.5.23", dp_size=value)).max_total_tokens == 8192


@pytest.mark.parametrize("info", [None, [], "text", 3, {}, {"device": "", "version": ""}])
def test_answer_that_says_nothing_gives_nothing(info: Any) -> None:
    found = read(info)
    assert (found.max_running_requests, found.max_total_tokens, found.device, found.version) == (None,) * 4


def test_less_of_requests_and_room_is_what_runs_at_once() -> None:
    assert ServerLimits(2048, 8192).most_at_once(320) == 25
    assert ServerLimits(16, 8192).most_at_once(320) == 16
    assert ServerLimits(max_total_tokens=8192).most_at_once(10_000) == 1
    assert ServerLimits(max_running_requests=16).most_at_once(320) == 16
    assert NOTHING.most_at_once(320) is None


def test_last_point_is_the_same_for_starts_that_found_a_little_more_or_less_memory() -> None:
    assert {ServerLimits(2048, tokens).last_point(320) for tokens in (123_000, 124_000, 127_999)} == {384}
    assert ServerLimits(2048, 8192).last_point(320) == 24
    assert ServerLimits(max_total_tokens=320 * 9).last_point(320) == 9
    assert ServerLimits(max_total_tokens=100).last_point(320) == 1
    # A number that was set is what is measured.
    assert ServerLimits(100, 8_192_000).last_point(320) == 100
    assert ServerLimits(max_running_requests=17).last_point(320) == 17
    assert NOTHING.last_point(320) is None


# --- asking


def test_server_is_asked_with_its_key_and_nothing_of_it_is_kept(server: Target) -> None:
    Handler.answers["/server_info"] = (200, json.dumps(recording("0.5.23")).encode())
    found = ask(server, KEY)
    assert found == ServerLimits(2048, 8192, "cpu", 0, "0.5.23")
    assert Handler.asked == [("/server_info", f"Bearer {KEY}")]
    assert "key" not in str(found)


def test_older_endpoint_is_asked_only_where_the_newer_one_is_missing(server: Target) -> None:
    Handler.answers["/get_server_info"] = (200, json.dumps(recording("0.5.12.post1")).encode())
    assert ask(server, None).version == "0.5.12.post1"
    assert Handler.asked == [("/server_info", None), ("/get_server_info", None)]


def test_server_with_neither_endpoint_tells_nothing(server: Target) -> None:
    assert ask(server, None) == NOTHING
    assert len(Handler.asked) == 2


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_refusal_tells_nothing_and_is_not_asked_again(server: Target, status: int) -> None:
    Handler.answers.update({"/server_info": (status, b"{}"), "/get_server_info": (200, b'{"version": "1"}')})
    assert ask(server, None) == NOTHING
    assert len(Handler.asked) == 1


@pytest.mark.parametrize("body", [b"", b"<html>", b"[" * 100_000, b"\xff\xfe", b"[]", b"{", b'"text"'])
def test_body_that_is_no_answer_tells_nothing(server: Target, body: bytes) -> None:
    Handler.answers["/server_info"] = (200, body)
    assert ask(server, None) == NOTHING


def test_huge_body_is_not_read_to_its_end(server: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_limits, "_MOST_BYTES", 1000)
    Handler.answers["/server_info"] = (200, json.dumps({"version": "1", "more": "x" * 2000}).encode())
    assert ask(server, None) == NOTHING


@pytest.mark.parametrize(
    "raw", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b"\0" * 70_000]
)
def test_other_protocol_and_broken_answer_tell_nothing(
    server: Target, monkeypatch: pytest.MonkeyPatch, raw: bytes
) -> None:
    monkeypatch.setattr(Handler, "raw", raw)
    assert ask(server, None) == NOTHING


def test_no_answer_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(Target("127.0.0.1", 1, "/m", "tiny-moe"), None) == NOTHING


def test_silent_server_is_not_waited_for_forever(server: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_limits, "_ASK_TIMEOUT_S", 0.1)
    gate = threading.Event()
    monkeypatch.setattr(Handler, "do_GET", lambda self: gate.wait(5))
    try:
        assert ask(server, None) == NOTHING
    finally:
        gate.set()
