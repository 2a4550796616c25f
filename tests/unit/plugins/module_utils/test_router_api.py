# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workers of a router over the APIs of three generations, and what can go wrong with each."""

from __future__ import annotations

import json
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import router_api
from ansible_collections.tokforge.sglang.plugins.module_utils.router_api import Reply, Router, RouterError, Worker

KEY = "canary-key-0123456789"
A, B = "http://10.0.0.1:30000", "http://10.0.0.2:30000"


class FakeRouter:
    """The workers of a router, answered for as one release answers: 0.3, 0.2 or 0.1."""

    def __init__(self, release: str, urls: list[str], late: int = 0, healthy: bool = True) -> None:
        self.release, self.urls, self.late, self.healthy = release, list(urls), late, healthy
        self.healthy_when_added = healthy
        self.pending: list[tuple[str, str]] = []
        self.asked: list[tuple[str, str, Any]] = []

    def name(self, url: str) -> str:
        return f"id-of-{url[-7]}" if self.release == "0.3" else url

    def call(self, method: str, path: str, body: Any | None, _timeout_s: float) -> Reply:
        self.asked.append((method, path, body))
        if method == "GET":
            self.settle()
        if self.release == "0.1":
            return self.old(path)
        if (method, path) == ("GET", "/workers"):
            workers = [{"id": self.name(url), "url": url, "is_healthy": self.healthy} for url in self.urls]
            return Reply(200, json.dumps({"workers": workers}).encode())
        if (method, path) == ("POST", "/workers"):
            self.healthy = self.healthy_when_added
            self.pending.append(("add", body["url"] if body else ""))
            return Reply(202, b"{}")
        if method == "DELETE":
            name = urllib.parse.unquote(path[len("/workers/") :])
            found = [url for url in self.urls if self.name(url) == name]
            self.pending += [("remove", url) for url in found]
            return Reply(202 if found else 404, b"{}")
        return Reply(404)

    def old(self, path: str) -> Reply:
        name, _sign, query = path.partition("?url=")
        url = urllib.parse.unquote(query)
        if name == "/list_workers":
            return Reply(200, json.dumps({"urls": self.urls}).encode())
        if name == "/add_worker":
            self.urls.append(url)
        elif name == "/remove_worker":
            self.urls.remove(url)
        else:
            return Reply(404)
        return Reply(200, b"Successfully")

    def settle(self) -> None:
        """What was asked for is done in the background, after some looks."""
        if not self.pending:
            return
        if self.late > 0:
            self.late -= 1
            return
        for what, url in self.pending:
            if what == "add":
                self.urls.append(url)
            else:
                self.urls.remove(url)
        self.pending = []


def settle(fake: FakeRouter, url: str, state: str, check_mode: bool = False, timeout_s: float = 2) -> dict[str, Any]:
    time = [0.0]

    def sleep(seconds: float) -> None:
        time[0] += seconds

    router = Router("http://r:1/", fake.call, KEY, timeout_s)
    return router_api.settle(router, url, state, check_mode, lambda: time[0], sleep)


@pytest.mark.parametrize("release", ["0.3", "0.2", "0.1"])
@pytest.mark.parametrize("late", [0, 3])
def test_worker_is_added_and_removed_once_and_read_back(release: str, late: int) -> None:
    fake = FakeRouter(release, [A], late)
    added = settle(fake, B + "/", "present")
    assert (added["changed"], added["workers"]) == (True, [A, B])
    assert added["diff"] == {"before": {"workers": [A]}, "after": {"workers": [A, B]}}
    assert settle(fake, B, "present")["changed"] is False
    fake.late = late
    removed = settle(fake, A, "absent")
    assert (removed["changed"], removed["workers"]) == (True, [B])
    assert settle(fake, A, "absent")["changed"] is False
    assert fake.urls == [B]


def test_server_is_added_with_the_key_that_the_router_must_send() -> None:
    fake = FakeRouter("0.3", [])
    settle(fake, A, "present")
    assert ("POST", "/workers", {"url": A, "api_key": KEY}) in fake.asked


@pytest.mark.parametrize(("state", "after"), [("present", [A, B]), ("absent", [])])
def test_check_mode_only_looks(state: str, after: list[str]) -> None:
    fake = FakeRouter("0.3", [A])
    found = settle(fake, B if state == "present" else A, state, check_mode=True)
    assert (found["changed"], found["workers"]) == (True, after)
    assert {method for method, _path, _body in fake.asked} == {"GET"} and fake.urls == [A]


def changes(fake: FakeRouter) -> list[tuple[str, str]]:
    return [(method, path) for method, path, _body in fake.asked if method != "GET"]


@pytest.mark.parametrize("late", [0, 3])
def test_server_that_is_called_unhealthy_is_removed_and_added_again_once(late: int) -> None:
    fake = FakeRouter("0.3", [A], late, healthy=False)
    fake.healthy_when_added = True
    found = settle(fake, A, "present", timeout_s=30)
    assert (found["changed"], found["workers"]) == (True, [A])
    assert changes(fake) == [("DELETE", "/workers/id-of-1"), ("POST", "/workers")]
    stays = FakeRouter("0.3", [A], late, healthy=False)
    with pytest.raises(RouterError, match="it calls it unhealthy"):
        settle(stays, A, "present", timeout_s=30)
    assert changes(stays) == [("DELETE", "/workers/id-of-1"), ("POST", "/workers")] and stays.urls == [A]


def test_server_that_was_just_added_or_is_checked_soon_is_not_added_again() -> None:
    added = FakeRouter("0.3", [], healthy=False)
    with pytest.raises(RouterError, match="it calls it unhealthy"):
        settle(added, A, "present", timeout_s=30)
    assert changes(added) == [("POST", "/workers")]
    soon = FakeRouter("0.3", [A], healthy=False)
    settled = soon.settle

    def look() -> None:
        soon.healthy = len(soon.asked) > 5
        settled()

    soon.settle = look  # type: ignore[method-assign]
    assert settle(soon, A, "present", timeout_s=30)["changed"] is False and changes(soon) == []


def test_server_that_does_not_leave_in_time_is_added_all_the_same() -> None:
    fake = FakeRouter("0.3", [A], late=1000, healthy=False)
    with pytest.raises(RouterError, match=f"does not have {A} present after 10 s"):
        settle(fake, A, "present", timeout_s=10)
    assert changes(fake) == [("DELETE", "/workers/id-of-1"), ("POST", "/workers")]


@pytest.mark.parametrize(
    ("listed", "words"), [([B, "http://u:hunter2@h:1"], f"http://...@h:1, {B};"), ([], "it lists no server;")]
)
def test_server_that_was_never_listed_is_told_of(listed: list[str], words: str) -> None:
    found = settle(FakeRouter("0.3", listed), A, "absent")
    assert found["changed"] is False and len(found["warnings"]) == 1
    assert f"router http://r:1 does not list {A}; it lists " in found["warnings"][0] and words in found["warnings"][0]
    assert "hunter2" not in found["warnings"][0]
    assert settle(FakeRouter("0.3", [A]), A, "absent")["warnings"] == []
    assert settle(FakeRouter("0.3", [B]), A, "present")["warnings"] == []


def test_every_data_parallel_rank_of_a_server_is_removed() -> None:
    fake = FakeRouter("0.2", [f"{A}@0", f"{A}@1", B])
    assert settle(fake, A, "absent")["workers"] == [B]


def test_same_server_is_known_by_other_spellings() -> None:
    assert settle(FakeRouter("0.2", ["http://HOST:80/"]), "http://host", "present")["changed"] is False
    odd = [Worker(url, "1") for url in ("grpc://host:80", "http://[host", "http://host:x", "")]
    assert router_api.matching([*odd, Worker("http://host", "2")], "http://host") == [Worker("http://host", "2")]


@pytest.mark.parametrize(
    ("fake", "state", "words"),
    [
        (FakeRouter("0.3", [], late=1000), "present", "it does not list it; see whether the server serves"),
        (FakeRouter("0.3", [A], healthy=False), "present", "it calls it unhealthy"),
        (FakeRouter("0.3", [A], late=1000), "absent", "it still lists it"),
    ],
)
def test_what_does_not_come_is_an_error(fake: FakeRouter, state: str, words: str) -> None:
    with pytest.raises(RouterError, match=f"does not have {A} {state} after 2 s: {words}"):
        settle(fake, A, state)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(401), r"it refuses the API key \(401\)"),
        (Reply(0, problem="Connection refused"), "Connection refused; check that it runs"),
        (Reply(404), "it knows neither /workers nor /list_workers"),
        (Reply(500, b"trouble"), "it says 500: trouble"),
        (Reply(200, b"<html>"), "its answer is none of a router"),
        (Reply(200, b'{"workers": [{"id": 1}]}'), "its answer is none of a router"),
        (Reply(200, b"[]"), "its answer is none of a router"),
    ],
)
def test_router_that_does_not_answer_as_one(reply: Reply, words: str) -> None:
    with pytest.raises(RouterError, match=words):
        Router("http://r", lambda *_asked: reply).workers()


@pytest.mark.parametrize("status", [400, 403, 503])
def test_refused_change_is_an_error(status: int) -> None:
    router = Router("http://r", lambda *_asked: Reply(status))
    for change in (lambda: router.add(A), lambda: router.remove(Worker(A, "1"))):
        with pytest.raises(RouterError, match=str(status)):
            change()


@pytest.mark.parametrize(
    "url",
    [
        "x",
        "ftp://h",
        "http://",
        "http://h:x",
        "http://h?a=b",
        "http://u:hunter2@h",
        "http://h:99999",
        "http://[::1",
        "http://h:0",
    ],
)
def test_address_that_is_none(url: str) -> None:
    with pytest.raises(RouterError) as caught:
        router_api.normal(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("http://H:30000/", "http://h:30000"),
        ("https://h/base/", "https://h:443/base"),
        ("http://[::1]:80", "http://[::1]:80"),
    ],
)
def test_one_way_of_writing_an_address(url: str, normal: str) -> None:
    assert router_api.normal(url) == normal


# --- over a real connection


@pytest.fixture
def served() -> Iterator[tuple[str, list[tuple[str, str, str | None, bytes]]]]:
    """A real HTTP server below /base that keeps what it was asked."""
    asked: list[tuple[str, str, str | None, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((self.command, self.path, self.headers.get("Authorization"), content))
            self.send_response(202)
            self.end_headers()

        do_GET = do_DELETE = do_POST  # noqa: N815 (names of http.server)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/base/", asked
        server.shutdown()
        thread.join()


def test_key_and_body_are_sent_below_the_base_url(served: tuple[str, list[tuple[str, str, str | None, bytes]]]) -> None:
    url, asked = served
    assert router_api.caller(url, KEY)("POST", "/workers", {"url": A}, 5).status == 202
    assert router_api.caller(url, "")("DELETE", "/workers/1", None, 5).status == 202
    assert asked == [
        ("POST", "/base/workers", f"Bearer {KEY}", json.dumps({"url": A}).encode()),
        ("DELETE", "/base/workers/1", None, b""),
    ]


def test_hung_router_and_none_are_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        hung = router_api.caller(f"http://127.0.0.1:{port}", KEY)("GET", "/workers", None, 0.3)
    assert (hung.status, hung.problem) == (0, "no answer within 0 s")
    gone = router_api.caller(f"http://127.0.0.1:{port}", KEY)("GET", "/workers", None, 1)
    assert gone.status == 0 and "refused" in gone.problem.lower()
