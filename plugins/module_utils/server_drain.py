# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Has a server no request left? Asks the server itself, again and again, until it has none or a limit is reached.

What SGLang tells of its requests (read in the wheels of 0.5.12.post1 and 0.5.23):

- `/v1/loads`: requests that run and that wait, of every data parallel rank, as the schedulers have them now. Always
  there; it needs the API key.
- `/get_load`: the same in an older shape; gone in 0.5.23.
- `/metrics` with --enable-metrics, without a key. `sglang:http_requests_active` counts every request from its first
  byte to its last one, in the tokenizer too, which nothing else here counts. The gauges `sglang:num_running_reqs` and
  `sglang:num_*queue_reqs` are written at a prefill, at every 40th decode step and after 30 s without work, so one look
  at them alone proves nothing: a short request may never show.
- `/server_info` tells no requests.

What SGLang does at SIGTERM, in both: `/health` says 503, it goes on answering, also new requests, and it ends at the
first of its looks, 5 s apart, that finds no request left; it has no limit of its own. Whoever stops it kills it after
a limit. So a server that is still sent requests is never done, and one that is out of its router loses nothing even
where nobody can tell, as long as the limit of the stop is long enough.
"""

from __future__ import annotations

import json
import math
import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import readiness
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole
from ansible_collections.tokforge.sglang.plugins.module_utils.readiness import Answer, Target

IDLE, BUSY, CLOSED, SILENT, UNKNOWN = "idle", "busy", "closed", "silent", "unknown"
LOADS, GET_LOAD, METRICS = "/v1/loads", "/get_load", "/metrics"
#: With nothing but gauges that are written now and then, it must have been idle for so long.
GAUGES_SETTLE_S = 30.0

_RUNNING = "sglang:num_running_reqs"
# num_queue_reqs, num_grammar_queue_reqs, and the four or five queues of a disaggregated server.
_QUEUED = re.compile(r"sglang:num_(?:\w+_)?queue_reqs")
_ACTIVE = "sglang:http_requests_active"
_REQUESTS = "sglang:http_requests_total"
_SAMPLE = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?\s*$")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
# A longer answer was cut by whoever read it.
_WHOLE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Counts:
    """Requests of a server: those that run, those that wait, and those that HTTP clients wait for. None: not told."""

    running: int | None = None
    queued: int | None = None
    active: int | None = None

    @property
    def idle(self) -> bool:
        return not any((self.running, self.queued, self.active))


@dataclass(frozen=True)
class Load:
    """One look. `how` names what told it, `detail` says in words what was found, or why nothing could be.

    `settle_s` is how long it must have been idle before that counts.
    """

    state: str
    counts: Counts = Counts()
    how: str = ""
    detail: str = ""
    settle_s: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What the wait came to. `load` is the last look, `looks` how many there were, `waited_s` the time of all."""

    drained: bool
    load: Load
    looks: int
    waited_s: float


# --- reading -----------------------------------------------------------------------------------------------------


def samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels and value of every sample in a Prometheus text; lines that are none are left out."""
    for line in text.splitlines():
        match = None if line.startswith("#") else _SAMPLE.match(line.strip())
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        yield match[1], dict(_LABEL.findall(match[2] or "")), value


def metrics_counts(text: str) -> Counts | None:
    """What /metrics tells, or None when it does not tell of requests (metrics are off, or it is no such text).

    A scheduler of each tensor parallel rank may report the same requests: the largest of a data parallel rank counts.
    With priorities the total has an empty label `priority`, beside one sample for each priority.
    """
    running: dict[str, float] = {}
    queued: dict[tuple[str, str], float] = {}
    active: float | None = None
    for name, labels, value in samples(text):
        if not math.isfinite(value) or labels.get("priority"):
            continue
        rank = labels.get("dp_rank", "")
        if name == _RUNNING:
            running[rank] = max(value, running.get(rank, 0.0))
        elif _QUEUED.fullmatch(name):
            queued[name, rank] = max(value, queued.get((name, rank), 0.0))
        elif name == _ACTIVE and labels.get("method") == "POST":
            active = (active or 0.0) + max(value, 0.0)
        elif name == _REQUESTS and active is None:
            active = 0.0  # it counts requests, and none of those that matter here is under way
    if not running or not any(name == "sglang:num_queue_reqs" for name, _rank in queued):
        return None
    return Counts(round(sum(running.values())), round(sum(queued.values())), None if active is None else round(active))


def loads_counts(body: bytes) -> Counts | None:
    """What /v1/loads tells, or None when it is no such answer.

    What a disaggregated prefill server sends on is in no queue of its own that is counted as waiting.
    """
    try:
        ranks = json.loads(body)["loads"]
        running = [one["num_running_reqs"] for one in ranks]
        queued = [one["num_waiting_reqs"] for one in ranks]
        queued += [(one.get("disaggregation") or {}).get("prefill_inflight_queue_reqs", 0) for one in ranks]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return _counts(running, queued)


def get_load_counts(body: bytes) -> Counts | None:
    """What /get_load tells, or None when it is no such answer. Its `num_reqs` are those that run and that wait."""
    try:
        ranks = json.loads(body)
        ranks = [ranks] if isinstance(ranks, dict) else ranks
        queued = [one["num_waiting_reqs"] for one in ranks]
        running = [one["num_reqs"] - one["num_waiting_reqs"] for one in ranks]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return _counts(running, queued)


def _counts(running: list[Any], queued: list[Any]) -> Counts | None:
    # No rank at all is not the same as no request.
    if not running or not all(is_whole(value) and value >= 0 for value in running + queued):
        return None
    return Counts(sum(running), sum(queued))


# --- looking -----------------------------------------------------------------------------------------------------

#: Asks the server for a path: with a key or without.
Ask = Callable[[str, bool], Answer]


def asker(target: Target, key: str) -> Ask:
    """Asks one server, each time for at most target.timeout_s seconds."""

    def ask(path: str, authorized: bool) -> Answer:
        deadline = time.monotonic() + target.timeout_s
        return readiness.ask(target, "GET", path, deadline, key if authorized else "")

    return ask


def listens(target: Target) -> bool:
    """Whether somebody takes connections there. One that is not taken in time may still be, so that counts as yes."""
    try:
        with socket.create_connection((readiness.connect_host(target.host), target.port), target.timeout_s):
            return True
    except ConnectionRefusedError:
        return False
    except OSError:
        return True


def look(target: Target, ask: Ask, listening: Callable[[Target], bool] = listens) -> Load:
    """One look at the requests of a server. Never raises for what a server can do wrong."""
    where = f"{target.host}:{target.port}"
    if not listening(target):
        return Load(CLOSED, Counts(0, 0, 0), "nothing listens", f"nothing listens on {where}")
    told: list[tuple[str, Counts]] = []
    problems: list[str] = []
    silent = False
    for path, read in ((f"{LOADS}?include=core,disagg", loads_counts), (GET_LOAD, get_load_counts)):
        name = path.partition("?")[0]
        answer = ask(path, True)
        silent = silent or answer.status == 0
        counts = read(answer.body) if answer.status == 200 and len(answer.body) < _WHOLE_BYTES else None
        if counts is not None:
            told.append((name, counts))
            break
        problems.append(f"{name} {_why(answer)}")
        if answer.status != 404:  # another name is only worth a try where this one is not known
            break
    answer = ask(METRICS, False)
    silent = silent or answer.status == 0
    text = answer.body.decode("utf-8", "replace")
    metrics = metrics_counts(text) if answer.status == 200 and len(answer.body) < _WHOLE_BYTES else None
    if metrics is not None:
        # The gauges are older than what the schedulers have just told.
        told.append((METRICS, replace(metrics, running=None, queued=None) if told else metrics))
    else:
        problems.append(f"{METRICS} {_why(answer)}")
    if not told:
        state = SILENT if silent else UNKNOWN
        return Load(state, detail=f"the server on {where} does not tell its requests: {'; '.join(problems)}")
    found = Counts(*(_first(told, name) for name in ("running", "queued", "active")))
    only_gauges = told[0][0] == METRICS and found.active is None
    return Load(
        IDLE if found.idle else BUSY,
        found,
        " and ".join(name for name, _counts in told),
        words(found),
        GAUGES_SETTLE_S if only_gauges else 0.0,
    )


def _first(told: list[tuple[str, Counts]], name: str) -> int | None:
    return next((value for _how, counts in told if (value := getattr(counts, name)) is not None), None)


def _why(answer: Answer) -> str:
    if answer.status == 0:
        return f"gives {answer.problem}" if answer.problem.startswith("no ") else f"fails ({answer.problem})"
    if answer.status in (401, 403):
        return f"refuses the API key that state/secrets.env holds ({answer.status})"
    return "does not tell them" if answer.status == 200 else f"says {answer.status}"


def words(counts: Counts) -> str:
    """The counts for a person."""
    parts = ((counts.running, "running"), (counts.queued, "queued"), (counts.active, "open over HTTP"))
    return ", ".join(f"{number} {what}" for number, what in parts if number is not None)


# --- waiting -----------------------------------------------------------------------------------------------------


def wait(
    take: Callable[[], Load],
    limit_s: float,
    looks: int,
    interval_s: float,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Look until `looks` looks in a row found no request, or `limit_s` seconds have passed.

    A request may be between two queues when it is looked at once, or on its way from a router: so one look is not
    enough. A server that answers and cannot be understood is not waited for; one that does not answer is.
    """
    began = now()
    taken = row = unknown = 0
    idle_since = began
    while True:
        at = now()
        load = take()
        taken += 1
        waited = now() - began
        if load.state == CLOSED:
            return Outcome(True, load, taken, waited)
        unknown = unknown + 1 if load.state == UNKNOWN else 0
        if load.state == IDLE:
            idle_since = at if row == 0 else idle_since
            row += 1
            if row >= looks and now() - idle_since >= load.settle_s:
                return Outcome(True, load, taken, waited)
        else:
            row = 0
        if unknown >= looks or waited >= limit_s:
            return Outcome(False, load, taken, waited)
        sleep(min(interval_s, limit_s - waited))


def advice(outcome: Outcome, limit_s: float) -> str:
    """What to do now, in one sentence."""
    load = outcome.load
    if outcome.drained:
        return "stop it; it has no request left"
    if load.state == UNKNOWN:
        return (
            "nobody can tell whether it has requests: start it with --enable-metrics, or let the role sglang_server "
            "write its API key; stopped as it is, SGLang itself ends its requests until the stop's own limit"
        )
    if load.state == SILENT:
        return "it hangs or is overloaded: look at log/server.log; its requests are lost when it is killed"
    if load.state == IDLE:
        return f"it has just become idle: wait longer than {limit_s:g} s (sglang_drain_timeout_s)"
    return (
        f"wait longer than {limit_s:g} s (sglang_drain_timeout_s), see whether something still sends to it, or stop it "
        "with enough time for the rest: SGLang ends its requests after SIGTERM until it is killed"
    )
