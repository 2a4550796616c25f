# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server tells of its requests, what one look makes of it, and what a series of looks comes to."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import server_drain
from ansible_collections.tokforge.sglang.plugins.module_utils.readiness import Answer, Target
from ansible_collections.tokforge.sglang.plugins.module_utils.server_drain import Counts, Load

RECORDED = Path(__file__).with_name("fixtures") / "server_load"
TARGET = Target("127.0.0.1", 30000)
GAUGES = "sglang:num_running_reqs 2.0\nsglang:num_queue_reqs 3.0\n"
LOADS = b'{"loads": [{"num_running_reqs": 1, "num_waiting_reqs": 2}, {"num_running_reqs": 0, "num_waiting_reqs": 4}]}'
NONE = b'{"loads": [{"num_running_reqs": 0, "num_waiting_reqs": 0}]}'


# --- reading


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (GAUGES, Counts(2, 3)),
        # Every queue counts: that of grammars, and those of a server that does one half of the work only.
        (GAUGES + "sglang:num_grammar_queue_reqs 1\nsglang:num_decode_prealloc_queue_reqs 5\n", Counts(2, 9)),
        # Two data parallel ranks, and of the first one what two of its schedulers report.
        (
            'sglang:num_running_reqs{dp_rank="0",tp_rank="0"} 2\nsglang:num_running_reqs{dp_rank="0",tp_rank="1"} 2\n'
            'sglang:num_running_reqs{dp_rank="1",tp_rank="0"} 1\nsglang:num_queue_reqs{dp_rank="1"} 0\n',
            Counts(3, 0),
        ),
        # With priorities the total is the sample without one.
        (
            'sglang:num_running_reqs{priority=""} 2\nsglang:num_running_reqs{priority="7"} 2\n'
            "sglang:num_queue_reqs 0\n",
            Counts(2, 0),
        ),
        # Looks are GET, work is POST.
        (
            GAUGES + 'sglang:http_requests_active{endpoint="/generate",method="POST"} 4\n'
            'sglang:http_requests_active{endpoint="/v1/chat/completions",method="POST"} 1\n'
            'sglang:http_requests_active{endpoint="/metrics",method="GET"} 1\n',
            Counts(2, 3, 5),
        ),
        (GAUGES + 'sglang:http_requests_total{endpoint="/metrics",method="GET"} 9\n', Counts(2, 3, 0)),
        # A label may hold what looks like the end of the labels, and a sample may have a time.
        ('sglang:num_running_reqs{model_name="a} 7 \\" b"} 1 1700000000\nsglang:num_queue_reqs 0', Counts(1, 0)),
        ("sglang:num_running_reqs 1\n", None),
        ("sglang:num_queue_reqs 1\n", None),
        ("sglang:num_running_reqs NaN\nsglang:num_queue_reqs 0\n", None),
        ("sglang:num_running_reqs +Inf\nsglang:num_queue_reqs 0\n", None),
        (GAUGES + 'sglang:http_requests_active{method="POST"} -Inf\n', Counts(2, 3)),
        ("# HELP sglang:num_running_reqs 1\n# sglang:num_queue_reqs 1\n", None),
        ("python_info 1\n", None),
        ("", None),
        ("\0\xff{{{", None),
    ],
)
def test_metrics(text: str, counts: Counts | None) -> None:
    assert server_drain.metrics_counts(text) == counts


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        (LOADS, Counts(1, 6)),
        (NONE, Counts(0, 0)),
        (
            b'{"loads": [{"num_running_reqs": 0, "num_waiting_reqs": 0, '
            b'"disaggregation": {"prefill_inflight_queue_reqs": 2}}]}',
            Counts(0, 2),
        ),
        (b'{"loads": []}', None),
        (b'{"loads": [{"num_running_reqs": 0}]}', None),
        (b'{"loads": [{"num_running_reqs": true, "num_waiting_reqs": 0}]}', None),
        (b'{"loads": [{"num_running_reqs": -1, "num_waiting_reqs": 0}]}', None),
        (b'{"loads": [{"num_running_reqs": 0.5, "num_waiting_reqs": 0}]}', None),
        (b'{"loads": "x"}', None),
        (LOADS[:40], None),
        (b"[" * 100_000, None),
        (b"\xff", None),
    ],
)
def test_loads(body: bytes, counts: Counts | None) -> None:
    assert server_drain.loads_counts(body) == counts


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        (b'[{"num_reqs": 5, "num_waiting_reqs": 2}, {"num_reqs": 1, "num_waiting_reqs": 0}]', Counts(4, 2)),
        (b'{"num_reqs": 3, "num_waiting_reqs": 3}', Counts(0, 3)),
        (b"[]", None),
        (b'[{"num_reqs": "5", "num_waiting_reqs": 2}]', None),
        (b'{"detail": "Not Found"}', None),
        (b"null", None),
    ],
)
def test_get_load(body: bytes, counts: Counts | None) -> None:
    assert server_drain.get_load_counts(body) == counts


# --- one look


def look(**answers: Answer) -> tuple[Load, list[tuple[str, bool]]]:
    """A look at a server with these answers; what is not given is 404. And what was asked, and whether with the key."""
    asked = []
    names = {"/v1/loads": "loads", "/get_load": "get_load", "/metrics": "metrics"}

    def ask(path: str, authorized: bool) -> Answer:
        asked.append((path.partition("?")[0], authorized))
        return answers.get(names[path.partition("?")[0]], Answer(404))

    return server_drain.look(TARGET, ask, lambda _target: True), asked


def test_schedulers_own_numbers_win_over_gauges_that_lag() -> None:
    stale = Answer(200, (GAUGES + 'sglang:http_requests_active{method="POST"} 0\n').encode())
    found, asked = look(loads=Answer(200, NONE), metrics=stale)
    assert (found.state, found.counts, found.how) == ("idle", Counts(0, 0, 0), "/v1/loads and /metrics")
    # /metrics takes no key, and a key is sent to nobody who does not ask for it.
    assert asked == [("/v1/loads", True), ("/metrics", False)]


def test_request_that_no_scheduler_has_yet_keeps_a_server_busy() -> None:
    zero = "sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\n"
    metrics = Answer(200, (zero + 'sglang:http_requests_active{method="POST"} 1\n').encode())
    found, _asked = look(loads=Answer(200, NONE), metrics=metrics)
    assert (found.state, found.detail) == ("busy", "0 running, 0 queued, 1 open over HTTP")


@pytest.mark.parametrize("counts", [(1, 0), (0, 1)])
def test_running_and_queued_requests_keep_a_server_busy(counts: tuple[int, int]) -> None:
    body = json.dumps({"loads": [{"num_running_reqs": counts[0], "num_waiting_reqs": counts[1]}]}).encode()
    found, _asked = look(loads=Answer(200, body))
    assert (found.state, found.how, found.settle_s) == ("busy", "/v1/loads", 0)


def test_older_name_is_tried_where_the_newer_one_is_not_known() -> None:
    found, asked = look(get_load=Answer(200, b'[{"num_reqs": 1, "num_waiting_reqs": 1}]'))
    assert (found.state, found.counts, found.how) == ("busy", Counts(0, 1), "/get_load")
    assert [path for path, _key in asked] == ["/v1/loads", "/get_load", "/metrics"]


def test_metrics_tell_where_the_key_is_refused() -> None:
    metrics = Answer(200, (GAUGES + 'sglang:http_requests_active{method="POST"} 0\n').encode())
    found, asked = look(loads=Answer(401), metrics=metrics)
    assert (found.state, found.counts, found.how, found.settle_s) == ("busy", Counts(2, 3, 0), "/metrics", 0)
    assert ("/get_load", True) not in asked


def test_gauges_alone_must_be_at_rest_for_a_while() -> None:
    found, _asked = look(metrics=Answer(200, b"sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\n"))
    assert (found.state, found.settle_s) == ("idle", 30)


@pytest.mark.parametrize(
    ("answers", "state", "words"),
    [
        ({}, "unknown", "/v1/loads says 404; /get_load says 404; /metrics says 404"),
        ({"loads": Answer(401)}, "unknown", "/v1/loads refuses the API key that state/secrets.env holds (401)"),
        ({"loads": Answer(200, LOADS[:50])}, "unknown", "/v1/loads does not tell them"),
        ({"loads": Answer(200, b"x"), "metrics": Answer(200, b"x 1\n")}, "unknown", "/metrics does not tell them"),
        ({"loads": Answer(0, problem="no answer in time")}, "silent", "/v1/loads gives no answer in time"),
        (
            {"loads": Answer(500), "metrics": Answer(0, problem="the answer ends in the middle")},
            "silent",
            "/v1/loads says 500; /metrics fails (the answer ends in the middle)",
        ),
        # What is as long as what is read at most was cut.
        ({"metrics": Answer(200, GAUGES.encode() + b"#" * (1 << 20))}, "unknown", "/metrics does not tell them"),
    ],
)
def test_look_that_cannot_tell_says_why(answers: dict[str, Answer], state: str, words: str) -> None:
    found, _asked = look(**answers)
    assert (found.state, found.counts, found.how) == (state, Counts(), "")
    assert words in found.detail and "127.0.0.1:30000" in found.detail


def test_closed_port_has_no_request() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = Target("127.0.0.1", server.getsockname()[1], timeout_s=1)
        assert server_drain.listens(target)
    found = server_drain.look(target, lambda _path, _key: Answer(404))
    assert (found.state, found.counts) == ("closed", Counts(0, 0, 0))


def test_recorded_servers() -> None:
    """What real servers of two releases answered; the README there says how it was taken."""
    for path in sorted(RECORDED.glob("*-loads.json")):
        busy = json.loads(path.read_text())
        assert server_drain.loads_counts(json.dumps(busy["busy"]).encode()) == Counts(*busy["counts"]), path.name
        assert server_drain.loads_counts(json.dumps(busy["idle"]).encode()) == Counts(0, 0), path.name
    for path in sorted(RECORDED.glob("*-metrics-busy.txt")):
        counts = server_drain.metrics_counts(path.read_text())
        assert counts is not None and counts.active == 6, path.name
    for path in sorted(RECORDED.glob("*-metrics-idle.txt")):
        counts = server_drain.metrics_counts(path.read_text())
        assert counts is not None and counts.active == 0, path.name


# --- waiting


class Clock:
    """A clock that a sleep and a look move on."""

    def __init__(self, look_s: float = 0.0) -> None:
        self.time, self.look_s = 100.0, look_s

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def wait(self, loads: list[Load], limit_s: float = 100, looks: int = 3) -> server_drain.Outcome:
        """Wait over these looks; the last one comes again and again."""
        rest = iter(loads)

        def take() -> Load:
            self.time += self.look_s
            return next(rest, loads[-1])

        return server_drain.wait(take, limit_s, looks, 1.0, self.now, self.sleep)


IDLE, BUSY = Load("idle", Counts(0, 0)), Load("busy", Counts(1, 0))
CLOSED, SILENT, UNKNOWN = Load("closed"), Load("silent"), Load("unknown")


@pytest.mark.parametrize(
    ("loads", "drained", "looks", "waited_s"),
    [
        ([IDLE], True, 3, 2),
        ([BUSY, IDLE, IDLE, IDLE], True, 4, 3),
        # One idle look between two busy ones is a request between two queues.
        ([IDLE, IDLE, BUSY, IDLE, IDLE, IDLE], True, 6, 5),
        ([IDLE, IDLE, SILENT, IDLE], True, 6, 5),
        ([BUSY, CLOSED], True, 2, 1),
        # Whoever answers and cannot be understood will not be in a minute either.
        ([UNKNOWN], False, 3, 2),
        ([UNKNOWN, UNKNOWN, IDLE], True, 5, 4),
        ([SILENT], False, 11, 10),
        ([BUSY], False, 11, 10),
    ],
)
def test_wait(loads: list[Load], drained: bool, looks: int, waited_s: float) -> None:
    found = Clock().wait(loads, limit_s=10)
    assert (found.drained, found.looks, found.waited_s) == (drained, looks, waited_s)


def test_gauges_that_are_written_late_are_waited_for() -> None:
    settling = Load("idle", Counts(0, 0), settle_s=30)
    assert Clock().wait([settling]).waited_s == 30
    # From its last request on, not from the beginning.
    assert Clock().wait([BUSY] * 5 + [settling]).waited_s == 35
    assert Clock().wait([settling], limit_s=20).drained is False


def test_slow_answers_count_towards_the_limit_and_pass_it_by_one_look_at_most() -> None:
    found = Clock(look_s=4).wait([SILENT], limit_s=10)
    assert (found.drained, found.looks, found.waited_s) == (False, 3, 14)


def test_limit_of_zero_is_one_look() -> None:
    assert Clock().wait([IDLE], limit_s=0, looks=1).drained is True
    found = Clock().wait([BUSY], limit_s=0, looks=1)
    assert (found.drained, found.looks) == (False, 1)


@pytest.mark.parametrize(
    ("load", "drained", "words"),
    [
        (IDLE, True, "stop it"),
        (UNKNOWN, False, "nobody can tell whether it has requests: start it with --enable-metrics"),
        (SILENT, False, "it hangs or is overloaded"),
        (IDLE, False, "just become idle: wait longer than 120 s"),
        (BUSY, False, "see whether something still sends to it"),
    ],
)
def test_advice(load: Load, drained: bool, words: str) -> None:
    assert words in server_drain.advice(server_drain.Outcome(drained, load, 1, 1.0), 120)
