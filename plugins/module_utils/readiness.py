# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Does the server that was started truly serve? One look.

A 200 from /health proves little: SGLang answers it while every POST hangs, and another server may answer on the same
port.
Ready means all of: the process that was started is alive and it is the one that listens, /health is 200, the served
model has the
asked name, and a bounded generation returns exactly as many tokens as were asked for.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import generation_check, proc, ranks
from ansible_collections.tokforge.sglang.plugins.module_utils.generation_check import Generation
from ansible_collections.tokforge.sglang.plugins.module_utils.log_follow import LogPosition
from ansible_collections.tokforge.sglang.plugins.module_utils.service import (
    Manager,
    Observed,
    Paths,
    Record,
    observe,
    port_holders,
    read_record,
    release_path,
)

STARTING, READY, FAILED, STOPPED = "starting", "ready", "failed", "stopped"
# In the order a start goes through them; `stage` is the one that is not passed yet (or the last one, when ready).
STAGES = ("process", "listening", "health", "model", "generation")

_BODY_BYTES = 1024 * 1024
_PROMPT = "The capital of France is"
# secrets.env -> what a client sends
API_KEY_NAME = "TOKFORGE_API_KEY"
# How long a look waits for the manager to learn how a process ended that it still calls running. A process that holds
# much memory is dead for a while before its parent can ask for its exit status.
_REAP_S = 2.0


@dataclass(frozen=True)
class Target:
    """Where to ask, and what to expect there. `timeout_s` bounds one whole look, `logprobs` has them judged too.

    `release` is the number of the release that the process must run, None for any.
    """

    host: str
    port: int
    served_name: str | None = None
    random_weights: bool = False
    probe: bool = True
    max_new_tokens: int = 8
    timeout_s: float = 10.0
    logprobs: bool = False
    release: int | None = None


@dataclass(frozen=True)
class Look:
    """The outcome of one look. `detail` is one sentence for a person, `ended` how the process ended, where that is
    known, to be read after a name ("exited with code 1"), `release` the path of the release that the process runs.
    """

    state: str
    stage: str
    detail: str
    pid: int = 0
    generation: Generation | None = None
    ended: str = ""
    release: str = ""


# --- asking over HTTP ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """`status` 0: no answer; `problem` then says why."""

    status: int
    body: bytes = b""
    problem: str = ""


def connect_host(host: str) -> str:
    """Where a client on the same machine reaches a server that is bound to `host`."""
    wildcards = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 (compared with, not bound to)
    return wildcards.get(host, host)


def ask(target: Target, method: str, path: str, deadline: float, key: str = "", body: Any = None) -> Answer:
    """One request that is over by `deadline` (time.monotonic()); never raises for what a server can do wrong."""
    connection = http.client.HTTPConnection(
        connect_host(target.host), target.port, timeout=max(0.1, deadline - time.monotonic())
    )
    headers = {"Accept": "application/json", "Connection": "close"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, path, body=data, headers=headers)
        response = connection.getresponse()
        content = b""
        # The socket's timeout is for one read; a server that drips bytes must not outlast the look.
        while len(content) < _BODY_BYTES:
            if time.monotonic() >= deadline:
                return Answer(0, problem="the answer was not complete in time")
            chunk = response.read1(65536)
            if not chunk:
                if response.length:  # http.client takes an end in the middle for the end
                    return Answer(0, problem="the answer ends in the middle")
                break
            content += chunk
        return Answer(response.status, content)
    except socket.timeout:  # the same class as TimeoutError from Python 3.10 on
        return Answer(0, problem="no answer in time")
    except (OSError, http.client.HTTPException) as error:
        return Answer(0, problem=str(error) or type(error).__name__)
    finally:
        connection.close()


def model_names(body: bytes) -> list[str] | None:
    """The ids in an answer of /v1/models, or None when it is no such answer."""
    try:
        return [str(entry["id"]) for entry in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError):
        return None


# --- one look --------------------------------------------------------------------------------------------------------


def look(paths: Paths, manager: Manager, target: Target, key: str = "") -> Look:
    """One look at the server, over within about target.timeout_s; changes nothing."""
    deadline = time.monotonic() + target.timeout_s
    observed = observe(paths, manager)
    main = observed.main
    if main is None:
        return without_process(_how_it_ended(paths, manager, observed))
    node = node_of(observed.release or paths.current)
    outcome = (
        _another_release(paths, observed, target.release, main.pid)
        or _another_process(observed.record, main)
        or _look_at_port(observed, target, main.pid)
        or _look_at_health(target, deadline, main.pid)
        or (_node_is_up(node, main.pid) if node else _look_at_model(target, key, deadline, main.pid))
    )
    if outcome.state == STARTING and not proc.same(main):
        # A request that failed because the server died meanwhile must not be called "starting".
        return look(paths, manager, replace(target, timeout_s=max(0.1, deadline - time.monotonic())), key)
    return replace(outcome, release=observed.release or "")


def _how_it_ended(paths: Paths, manager: Manager, observed: Observed) -> Observed:
    """Look again, for at most _REAP_S, when the manager has not noticed yet that its process is dead."""
    if observed.seen.phase != "running" or not proc.wait_until(
        lambda: manager.seen() != observed.seen, timeout_s=_REAP_S, poll_s=0.1
    ):
        return observed
    again = observe(paths, manager)
    # Already started again: what is known is that the process that was asked about is dead.
    return observed if again.main else again


def without_process(observed: Observed) -> Look:
    """What it means that the manager names no living process."""
    seen, record = observed.seen, observed.record
    expected = record is not None and not record.stopped
    if observed.own:
        pids = ", ".join(str(process.pid) for process in observed.own)
        detail = f"the main process {seen.ended or 'is gone'} and its processes {pids} are left without a supervisor"
    elif seen.phase == "ended":
        detail = f"the server {seen.ended or 'ended'}"
    elif seen.phase == "restarting":
        detail = f"the server {seen.ended or 'ended'} and its manager is about to start it again"
    elif seen.phase == "running":
        detail = f"process {seen.pid} of the server has just ended, its exit status is not known yet"
    elif seen.phase == "absent" and expected:
        detail = "the server is gone together with its manager (a reboot, or the supervisor was killed)"
    else:
        return Look(
            STOPPED, "process", "the server was stopped by somebody" if expected else "the server is not running"
        )
    return Look(FAILED, "process", detail, ended=seen.ended)


def _another_release(paths: Paths, observed: Observed, release: int | None, pid: int) -> Look | None:
    # A launcher that has not become the server yet says nothing.
    if release is None or not observed.release or observed.release == release_path(paths, release):
        return None
    runs = os.path.basename(observed.release)
    detail = f"process {pid} runs release {runs}, not release {release}: another rollout is at work; run again after it"
    return Look(FAILED, "process", detail, pid=pid)


def _another_process(record: Record | None, main: proc.Process) -> Look | None:
    # After a reboot the unit is started by systemd, as it should be: nothing to compare with.
    if record is None or record.stopped or not record.pid or record.boot_id != proc.boot_id():
        return None
    if (record.pid, record.start_ticks) == (main.pid, main.start_ticks):
        return None
    detail = f"process {record.pid} of the server died and its manager started it again"
    return Look(FAILED, "process", detail, pid=main.pid)


def _look_at_port(observed: Observed, target: Target, pid: int) -> Look | None:
    holders = port_holders(target.host, target.port)
    if not holders:
        return Look(
            STARTING, "listening", f"process {pid} runs, nothing listens on {target.host}:{target.port} yet", pid=pid
        )
    ours = {process.pid for process in observed.own}
    foreign = [other for holder in holders for other in holder.pids if other not in ours]
    unnamed = [holder.uid for holder in holders if not holder.pids]
    if foreign:
        who = f"process {foreign[0]} ({proc.cmdline(foreign[0])})"
    elif unnamed:
        who = f"a process of user id {unnamed[0]}"
    else:
        return None
    return Look(FAILED, "listening", f"{target.host}:{target.port} is answered by {who}, not by this server", pid=pid)


def _look_at_health(target: Target, deadline: float, pid: int) -> Look | None:
    health = ask(target, "GET", "/health", deadline)
    if health.status != 200:
        why = f"/health says {health.status}" if health.status else f"/health: {health.problem}"
        return Look(STARTING, "health", f"process {pid} listens, {why}", pid=pid)
    return None


def _node_is_up(node: str, pid: int) -> Look:
    """A node that is not the first one has no other endpoint (read in 0.5.23 and 0.5.0rc0)."""
    return Look(READY, "health", f"/health is 200; {node}, which the first node serves with", pid=pid)


def _look_at_model(target: Target, key: str, deadline: float, pid: int) -> Look:
    models = ask(target, "GET", "/v1/models", deadline, key)
    if models.status in (401, 403):
        return Look(
            FAILED, "model", f"/v1/models refuses the API key that state/secrets.env holds ({models.status})", pid=pid
        )
    names = model_names(models.body) if models.status == 200 else None
    if names is None:
        why = f"says {models.status}" if models.status else models.problem
        return Look(STARTING, "model", f"/health is 200, /v1/models {why}", pid=pid)
    if target.served_name and target.served_name not in names:
        return Look(
            FAILED, "model", f"it serves {', '.join(names) or 'no model'}, asked was {target.served_name}", pid=pid
        )
    if not target.probe:
        return Look(
            READY, "model", f"/health is 200, it serves {', '.join(names)}; no generation was asked for", pid=pid
        )

    return _look_at_generation(target, key, deadline, pid)


def _look_at_generation(target: Target, key: str, deadline: float, pid: int) -> Look:
    request: dict[str, Any] = {
        "text": _PROMPT,
        "sampling_params": {"max_new_tokens": target.max_new_tokens, "temperature": 0, "ignore_eos": True},
    }
    if target.logprobs:
        request["return_logprob"] = True
    bodies: list[bytes] = []
    generation: Generation | None = None
    while generation is None:
        answer = ask(target, "POST", "/generate", deadline, key, request)
        if answer.status == 0 or answer.status == 503:
            why = answer.problem or "it says 503"
            return Look(
                STARTING,
                "generation",
                f"/health is 200 but a generation of {target.max_new_tokens} tokens fails: {why}",
                pid=pid,
            )
        if answer.status != 200:
            text = answer.body[:200].decode("utf-8", "replace")
            return Look(FAILED, "generation", f"/generate says {answer.status}: {text}", pid=pid)
        bodies.append(answer.body)
        generation = generation_check.judge(bodies, target.max_new_tokens, target.random_weights, target.logprobs)
    if generation.usable:
        note = " (mechanics only: random weights)" if generation.verdict == generation_check.MECHANICS_ONLY else ""
        return Look(READY, "generation", f"it generates{note}", pid=pid, generation=generation)
    return Look(FAILED, "generation", f"the generation is not usable: {generation.why}", pid=pid, generation=generation)


# --- what the root directory says -------------------------------------------------------------------------------------


def default_position(paths: Paths) -> LogPosition:
    """Where the last start on request began in the log; its beginning when that is not known."""
    record = read_record(paths)
    return record.log_position if record else LogPosition(paths.log)


def model_of_current(paths: Paths) -> dict[str, Any]:
    """What the current release says of its model (`served_name`, `random_weights`); empty when it does not say."""
    try:
        with open(os.path.join(paths.current, "manifest.json"), encoding="utf-8") as stream:
            model = json.load(stream)["model"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return dict(model) if isinstance(model, dict) else {}


def node_of(release: str) -> str:
    """Which node a release runs, as "this is node 1 of 2"; empty for the first node, which is the one that serves."""
    try:
        with open(os.path.join(release, "manifest.json"), encoding="utf-8") as stream:
            world = ranks.world_from_args(json.load(stream)["args"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""
    return f"this is node {world.node_rank} of {world.nnodes}" if world.node_rank > 0 else ""


def read_secrets(paths: Paths) -> dict[str, str]:
    """NAME -> value of state/secrets.env; empty when there is none or it may not be read."""
    try:
        with open(paths.secrets, encoding="utf-8") as stream:
            pairs = (
                line.rstrip("\n").partition("=") for line in stream if "=" in line and not line.lstrip().startswith("#")
            )
            return {name: value for name, _sign, value in pairs}
    except OSError:
        return {}
