# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the hub can be reached, and when that is asked at all. Nothing but this machine is ever connected to."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import replace

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import hub_reach
from ansible_collections.tokforge.sglang.plugins.module_utils.hub_reach import Address, Request

MODEL = "org/name@" + "a" * 40
HUB = Request(MODEL)


class Connections:
    """What was connected to; gives the answer it was made with."""

    def __init__(self, answer: str = "", error: Exception | None = None) -> None:
        self.made: list[Address] = []
        self.answer = answer
        self.error = error

    def __call__(self, address: Address, limit_s: float) -> str:
        self.made.append(address)
        if self.error:
            raise self.error
        return self.answer


@pytest.mark.parametrize(
    "request_",
    [
        Request("builtin:tiny-moe"),
        Request("/data/models/x"),
        Request("no form at all"),
        Request("org/name"),
        Request(MODEL, downloaded=True),
        Request(MODEL, offline=True),
    ],
)
def test_hub_is_not_asked_when_nothing_is_downloaded(request_: Request) -> None:
    connect = Connections("broken")
    assert hub_reach.check(request_, connect) == []
    assert connect.made == []


def test_hub_that_answers_passes() -> None:
    connect = Connections()
    [finding] = hub_reach.check(HUB, connect)
    assert connect.made == [Address("huggingface.co", 443, True)]
    assert (finding.level, finding.check, finding.message) == ("ok", "hub", "the hub huggingface.co:443 answers")


def test_hub_that_refuses_fails_with_ways_out() -> None:
    [finding] = hub_reach.check(HUB, Connections("Connection refused"))
    assert finding.level == "fail"
    assert (
        finding.message
        == f"the hub huggingface.co:443 cannot be reached: Connection refused; {MODEL} is not downloaded yet"
    )
    assert "sglang_hub_endpoint" in finding.remedy
    assert "sglang_model" in finding.remedy


def test_hub_that_does_not_answer_in_time_warns() -> None:
    [finding] = hub_reach.check(HUB, Connections(error=TimeoutError()), limit_s=1.5)
    assert finding.level == "warn"
    assert "did not answer within 1.5 s" in finding.message


def test_refused_certificate_points_at_clock_and_certificates() -> None:
    [finding] = hub_reach.check(
        HUB, Connections("its TLS certificate or protocol is refused: CERTIFICATE_VERIFY_FAILED")
    )
    assert finding.level == "fail"
    assert "the clock is right and ca-certificates is installed" in finding.remedy


@pytest.mark.parametrize(
    ("request_", "address"),
    [
        (replace(HUB, endpoint="https://mirror.lan:8443/hub"), Address("mirror.lan", 8443, True)),
        (replace(HUB, env={"HF_ENDPOINT": "http://mirror.lan"}), Address("mirror.lan", 80, False)),
        (replace(HUB, endpoint="http://a.lan", env={"HF_ENDPOINT": "http://b.lan"}), Address("a.lan", 80, False)),
        (
            replace(HUB, env={"HTTPS_PROXY": "http://user:word@proxy:3128"}),
            Address("proxy", 3128, False, "HTTPS_PROXY"),
        ),
        (replace(HUB, env={"https_proxy": "proxy:3128"}), Address("proxy", 3128, False, "https_proxy")),
        (replace(HUB, env={"ALL_PROXY": "socks5h://proxy"}), Address("proxy", 1080, False, "ALL_PROXY")),
        (replace(HUB, env={"HTTP_PROXY": "http://proxy:1"}), Address("huggingface.co", 443, True)),
        (
            replace(HUB, endpoint="http://mirror.lan", env={"HTTP_PROXY": "http://proxy:1"}),
            Address("proxy", 1, False, "HTTP_PROXY"),
        ),
        (
            replace(HUB, env={"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "x, .huggingface.co"}),
            Address("huggingface.co", 443, True),
        ),
        (
            replace(HUB, env={"HTTPS_PROXY": "http://proxy:1", "no_proxy": "face.co,,"}),
            Address("proxy", 1, False, "HTTPS_PROXY"),
        ),
        (replace(HUB, env={"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "*"}), Address("huggingface.co", 443, True)),
        (replace(HUB, env={"HTTPS_PROXY": ""}), Address("huggingface.co", 443, True)),
    ],
)
def test_endpoint_and_proxy_decide_where_it_connects(request_: Request, address: Address) -> None:
    assert hub_reach.address(request_) == address


def test_secrets_of_a_proxy_are_not_shown() -> None:
    request = replace(HUB, env={"HTTPS_PROXY": "http://user:word@proxy:3128"})
    for answer in ("", "refused"):
        [finding] = hub_reach.check(request, Connections(answer))
        assert "the proxy proxy:3128 of HTTPS_PROXY" in finding.message
        assert "word" not in finding.message + finding.remedy
    [finding] = hub_reach.check(request, Connections())
    assert "whether it lets huggingface.co through is not known" in finding.message


@pytest.mark.parametrize(
    "endpoint", ["ftp://x", "mirror", "https://", "https://x:99999", "https://[", "https://x:a", "https://a\0b"]
)
def test_endpoint_that_is_none_fails_without_a_connection(endpoint: str) -> None:
    connect = Connections()
    [finding] = hub_reach.check(replace(HUB, endpoint=endpoint), connect)
    assert (finding.level, connect.made) == ("fail", [])
    assert "sglang_hub_endpoint" in finding.remedy


@pytest.mark.parametrize("proxy", ["http://", "http://x:99999", "ftp://x"])
def test_proxy_that_is_none_fails_without_a_connection(proxy: str) -> None:
    connect = Connections()
    [finding] = hub_reach.check(replace(HUB, env={"HTTPS_PROXY": proxy}), connect)
    assert (finding.level, connect.made) == ("fail", [])
    assert finding.message == "HTTPS_PROXY is no address of a proxy"


# --- real connections to this machine ---


@pytest.fixture
def listener() -> object:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_real_connection_is_made_and_refused(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert hub_reach.reach(Address("127.0.0.1", port, False), 5.0) == ""
    listener.close()
    assert hub_reach.reach(Address("127.0.0.1", port, False), 5.0) == "Connection refused"


def test_what_speaks_no_tls_is_told(listener: socket.socket) -> None:
    def answer() -> None:
        connection, _peer = listener.accept()
        with connection:
            connection.recv(64)
            connection.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

    thread = threading.Thread(target=answer)
    thread.start()
    problem = hub_reach.reach(Address("127.0.0.1", listener.getsockname()[1], True), 5.0)
    thread.join()
    assert problem.startswith("its TLS certificate or protocol is refused: ")


def test_silent_server_costs_the_time_limit_only(listener: socket.socket) -> None:
    began = time.monotonic()
    request = replace(HUB, endpoint=f"https://127.0.0.1:{listener.getsockname()[1]}")
    [finding] = hub_reach.check(request, limit_s=0.05)
    assert time.monotonic() - began < 2
    assert finding.level == "warn"
    assert "did not answer within 0.05 s" in finding.message


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (socket.gaierror(-2, "Name or service not known"), "its name cannot be resolved: Name or service not known"),
        (OSError(113, "No route to host"), "No route to host"),
        (ConnectionResetError(), "ConnectionResetError"),
        (UnicodeError("label too long"), "label too long"),
    ],
)
def test_every_failure_is_told_in_words(monkeypatch: pytest.MonkeyPatch, error: Exception, answer: str) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)
    assert hub_reach.reach(Address("hub.test", 443, True), 5.0) == answer


@pytest.mark.parametrize("error", [socket.timeout("timed out"), TimeoutError()])
def test_timeout_of_the_connection_is_one_of_the_hub(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise error

    monkeypatch.setattr(socket, "create_connection", fail)
    with pytest.raises(TimeoutError):
        hub_reach.reach(Address("hub.test", 443, True), 5.0)


def test_name_that_takes_for_ever_to_look_up_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def look_up(*_args: object, **_kwargs: object) -> None:
        released.wait(30)
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "create_connection", look_up)
    try:
        with pytest.raises(TimeoutError):
            hub_reach.reach(Address("hub.test", 443, False), 0.05)
    finally:
        released.set()
