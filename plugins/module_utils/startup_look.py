# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One look at a starting server: the new bytes of its log, its processes, and what both mean together.

A look changes nothing and waits for nothing. What it has to remember goes into a cursor, which the next look takes; so
nothing runs and no connection is held between two looks, and a look costs what is new.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    autotune_cache,
    managers,
    ranks,
    redact,
    server_log,
    start_history,
    startup,
    startup_expect,
    startup_failure,
    startup_log,
    startup_process,
    startup_work,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.json_file import read_object
from ansible_collections.tokforge.sglang.plugins.module_utils.log_follow import LogPosition, read_new
from ansible_collections.tokforge.sglang.plugins.module_utils.proc import boot_id
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import World
from ansible_collections.tokforge.sglang.plugins.module_utils.service import Run
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_expect import Expectation
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_failure import HINTS, Failure
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_log import Report, StartupLog

SCHEMA = 1
_NEWEST_BYTES = 4096
# A server imports its packages for half a minute; after this time its first records have long been written.
_LOGGED_WITHIN_S = 600.0
_CAPABILITY_QUERY = ("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")


@dataclass(frozen=True)
class Request:
    """What to look at. `world` None: the launch arguments of the release below `root` tell it, or the log's own record.

    `cursor` is what the look before returned, `position` where in the log this start begins; without both the whole log
    is read, and with a process only what it can have written. `autotune` is expected, not_expected or auto.
    """

    log: str
    world: World | None = None
    autotune: str = startup_expect.AUTO
    process: str = ""
    start_ticks: int = 0
    cursor: Mapping[str, Any] | None = None
    position: LogPosition | None = None
    root: str = ""
    stall_timeout_s: float = 300.0
    secrets: tuple[str, ...] = ()


class CursorError(Exception):
    """The cursor is none that a look at this log returned."""


@dataclass
class _Memory:
    log: StartupLog
    position: LogPosition
    begin: LogPosition
    watch: startup_process.Watch
    gap: bool = False
    cold: bool | None = None
    newest: str = ""
    expectation: dict[str, Any] | None = None
    world: dict[str, Any] | None = None
    bytes_read: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "log": self.log.to_dict(),
            "position": asdict(self.position),
            "begin": asdict(self.begin),
            "watch": asdict(self.watch),
            "gap": self.gap,
            "cold": self.cold,
            "newest": self.newest,
            "expectation": self.expectation,
            "world": self.world,
            "bytes_read": self.bytes_read,
        }


def look(
    request: Request,
    now: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    run: Run = managers.run,
    gpu_busy: Callable[[], bool | None] = startup_work.gpu_busy,
) -> dict[str, Any]:
    """The result of module startup_info. Raises CursorError, log_follow.LogError, ranks.RanksError and
    service.ServiceError.
    """
    starts = start_history.read(request.root) if request.root else []
    recorded = _recorded(request, starts)
    if recorded is not None:
        return recorded
    memory = _remember(request, now(), run)
    if startup_process.follow(memory.watch, run):
        # The manager started it again: what was read is of the start before, and so is what that one wrote last.
        memory.log.begin_again(startup_process.started_text(memory.watch.pid, memory.watch.start_ticks))
    grew = _read(memory, request.secrets)
    report = memory.log.report()
    if request.cursor is None and _lost_start(memory, report):
        memory.gap = True
    world, expectation = _expect(request, memory, report)
    process, quiet, dead = startup_process.look(
        memory.watch, run, now(), grew, request.stall_timeout_s, gpu_busy, _launch_environment(request)
    )
    verdict = startup.judge(report, world, expectation, process, quiet, request.stall_timeout_s)
    blamed = verdict.failure.rank if verdict.failure else ""
    if dead and blamed not in dead and (report.failure is None or report.consequence):
        verdict = _with_dead_rank(verdict, dead, report.broke)
    if memory.cold is None or startup_log.ARGUMENTS not in report.main:
        # What the launcher says of the tuning results comes a moment after the first look.
        memory.cold = _is_cold(report, expectation, memory.watch, _on_cpu(request, report))
    previous = start_history.like(starts, memory.cold)
    if memory.gap and verdict.failure and verdict.failure.reason == startup_failure.AUTOTUNE_SKIPPED:
        # The server says that it is ready, and what its ranks said of autotune is lost.
        verdict = replace(verdict, state=startup.READY, stage="ready", failure=None, detail="the server is ready")
    notes = list(verdict.notes)
    if not os.path.exists(request.log):
        notes.append(f"{request.log} does not exist")
    if memory.gap:
        notes.append("a part of the log was lost in a rotation, so a milestone may be missing")
    result = {
        "state": verdict.state,
        "stage": verdict.stage,
        "detail": verdict.detail,
        "ranks": _ranks(report, verdict),
        "expected_ranks": list(verdict.expected_ranks),
        "missing_ranks": list(verdict.missing_ranks),
        "autotune": dict(verdict.autotune),
        "failure": _failure(verdict.failure),
        "failure_is_complete": not report.incomplete,
        "milestones": startup.reached(report, verdict.ranks),
        "progress": _progress(report, verdict),
        "durations": {**startup.durations(report, verdict), "jit_s": _jit_s(memory, process)},
        "noise": dict(report.noise),
        "format": report.format,
        "restarts": report.restarts,
        "quiet_s": round(quiet.any_s, 1),
        "doing": process.doing if process else "",
        "pid": process.pid if process else 0,
        "notes": notes,
        "gap": memory.gap,
        "recorded": False,
        "cold": memory.cold,
        "previous_s": previous["ready_s"] if previous else None,
        "cache_before": report.cache,
        "log": request.log,
        "log_newest": memory.newest,
        "log_tail": _tail(memory, verdict, request.secrets),
    }
    for secret in request.secrets:
        if len(secret) >= redact.SHORTEST:
            memory.log.pending = memory.log.pending.replace(secret.encode(), redact.REDACTED.encode())
    shown: dict[str, Any] = redact.hide_values({**result, "cursor": memory.to_dict()}, request.secrets)
    return shown


# --- remembering -----------------------------------------------------------------------------------------------------


def _remember(request: Request, now: float, run: Run) -> _Memory:
    if request.cursor:
        return _from_cursor(request)
    watch = startup_process.begin(request.process, run, now, request.start_ticks)
    # Without a position everything in the file could be of this start; what is older than the process is not.
    not_before = "" if request.position else startup_process.started_text(watch.pid, watch.start_ticks)
    position = replace(request.position or LogPosition(request.log), path=request.log)
    return _Memory(StartupLog(not_before), position, position, watch)


def _from_cursor(request: Request) -> _Memory:
    cursor = request.cursor or {}
    try:
        if cursor["schema"] != SCHEMA:
            raise ValueError(f"its schema is {cursor['schema']!r}, not {SCHEMA}")
        position = LogPosition(**cursor["position"])
        if not all(isinstance(number, int) for number in (position.inode, position.offset)):
            raise ValueError("its position is no place in a file")
        if cursor["expectation"] is not None:
            Expectation(**cursor["expectation"])
        if cursor["world"] is not None:
            ranks.check(World(**cursor["world"]))
        if position.path != request.log:
            raise ValueError(f"it belongs to {position.path}")
        log = StartupLog.from_dict(cursor["log"])
        log.report()  # what is of another kind inside shows here
        return _Memory(
            log=log,
            position=position,
            begin=LogPosition(**cursor["begin"]),
            watch=startup_process.Watch.from_dict(cursor["watch"]),
            gap=bool(cursor["gap"]),
            cold=cursor["cold"],
            newest=str(cursor["newest"]),
            expectation=cursor["expectation"],
            world=cursor["world"],
            bytes_read=int(cursor["bytes_read"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:  # RanksError is a ValueError
        raise CursorError(
            f"cannot go on reading {request.log}: the cursor is none that an earlier look at it returned ({error!r});"
            " leave it out to begin anew"
        ) from error


def _read(memory: _Memory, secrets: Iterable[str]) -> bool:
    read = 0
    tail = memory.log.pending
    whole = not tail
    for chunk in read_new(memory.position):
        memory.log.feed(chunk.data)
        whole = whole and len(tail) + len(chunk.data) <= _NEWEST_BYTES
        tail = (tail + chunk.data)[-_NEWEST_BYTES:]
        memory.position = chunk.position
        memory.gap = memory.gap or chunk.gap
        read += len(chunk.data)
    memory.bytes_read += read
    # Whole lines only: half a secret would not be recognized.
    begin = 0 if whole else max(tail.find(b"\n"), 0)
    end = max(tail.rfind(b"\n"), tail.rfind(b"\r")) + 1
    said = server_log.without_benign(server_log.clean(tail[begin:end], secrets))[0]
    memory.newest = server_log.newest([redact.hide_told(line) for line in said]) or memory.newest
    return read > 0


def _recorded(request: Request, starts: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The result for a process whose start was found ready and put on record: its log may be gone by now."""
    if request.cursor or not request.process.isdigit() or not request.start_ticks:
        return None
    identity = start_history.Identity(boot_id(), int(request.process), request.start_ticks)
    start = start_history.of_process(starts, identity)
    if start is None or start.get("state") != start_history.READY:
        return None
    seconds = start.get("ready_s")
    return {
        **{name: start.get(name) for name in start_history.KEPT},
        "state": startup.READY,
        "stage": "ready",
        "detail": f"its start is on record as ready{f' after {seconds} s' if seconds else ''}",
        "missing_ranks": [],
        "failure": None,
        "failure_is_complete": True,
        "progress": None,
        "quiet_s": 0.0,
        "doing": "",
        "pid": identity.pid,
        "gap": False,
        "recorded": True,
        "previous_s": None,
        "log": request.log,
        "log_newest": "",
        "log_tail": [],
        "cursor": None,
    }


def _lost_start(memory: _Memory, report: Report) -> bool:
    """Whether a process has been up for so long that the log must have had more of its start than it has."""
    age_s = startup_process.age_s(memory.watch)
    return age_s is not None and age_s > _LOGGED_WITHIN_S and not report.main and not report.ranks and not report.older


def _tail(memory: _Memory, verdict: startup.Verdict, secrets: Iterable[str]) -> list[str]:
    """The end of what this start logged, for one that failed."""
    if verdict.failure is None:
        return []
    return [redact.hide_told(line) for line in server_log.excerpt(memory.begin, secrets).lines]


# --- cold or warm ----------------------------------------------------------------------------------------------------


def _on_cpu(request: Request, report: Report) -> bool:
    """Whether the server runs on CPUs, where nothing is compiled or tuned for minutes."""
    if report.arguments.get("device") == "cpu":
        return True
    if not request.root:
        return False
    argv = read_object(os.path.join(request.root, "current", "launch.json")).get("argv")
    return isinstance(argv, list) and _is_cpu(autotune_cache.read_flags([str(word) for word in argv]))


def _is_cold(report: Report, expectation: Expectation, watch: startup_process.Watch, cpu: bool) -> bool:
    """Whether kernels have to be compiled or tuned in this start, as far as the first look can tell."""
    if cpu:
        return False
    if not watch.objects_at_first:
        return True
    if expectation.value == startup_expect.NOT_EXPECTED:
        return False
    return not re.search(r": complete\b", report.cache)


# --- what is expected ------------------------------------------------------------------------------------------------


def _expect(request: Request, memory: _Memory, report: Report) -> tuple[World, Expectation]:
    """The world and the expectation; what a release tells is read once and remembered."""
    if memory.expectation is None and request.root:
        _read_release(request, memory)
    world = request.world or (World(**memory.world) if memory.world else None)
    told = startup.told_world(report.arguments)
    # The server's own record is the better source where nobody said what is expected, or how dp is meant.
    if world is None:
        world = told or World()
    elif told is not None and world.dp > 1 and world.dp_attention is None and told.dp == world.dp:
        world = replace(world, dp_attention=told.dp_attention)
    if request.autotune != startup_expect.AUTO:
        return world, Expectation(request.autotune, "as asked")
    if memory.expectation is not None:
        return world, Expectation(**memory.expectation)
    if report.arguments:
        return world, startup_expect.autotune(startup_expect.Server(report.arguments))
    return world, Expectation(startup_expect.AUTO, "the log does not say yet what was started")


def _launch_environment(request: Request) -> dict[str, str]:
    """What the current release gives its server: known before the launcher has become the server."""
    found = read_object(os.path.join(request.root, "current", "launch.json")).get("env") if request.root else None
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _read_release(request: Request, memory: _Memory) -> None:
    release = os.path.realpath(os.path.join(request.root, "current"))
    launch, marker = read_object(f"{release}/launch.json"), read_object(f"{release}/venv/environment.json")
    argv = launch.get("argv")
    if not isinstance(argv, list):
        return
    args = autotune_cache.read_flags([str(word) for word in argv])
    gate = marker.get("autotune_gate")
    versions = marker.get("versions")
    server = startup_expect.Server(
        args=args,
        version=str(versions.get("sglang", "")) if isinstance(versions, dict) else "",
        tuned=frozenset(gate["backends"]) if isinstance(gate, dict) and "backends" in gate else None,
        compute_capability=None if _is_cpu(args) else compute_capability(),
    )
    memory.expectation = asdict(startup_expect.autotune(server))
    if request.world is None:
        flat = {name: (values[0] if values else True) for name, values in args.items()}
        memory.world = asdict(ranks.world_from_args(flat))


def _is_cpu(args: Mapping[str, Any]) -> bool:
    return args.get("device") == ["cpu"]


def compute_capability(
    run: Callable[..., str] = startup_work.run_tool, timeout_s: float = 5.0
) -> tuple[int, int] | None:
    """The least compute capability of this machine's GPUs, None when nothing tells it."""
    try:
        lines = run(_CAPABILITY_QUERY, timeout_s).split()
        found = [(int(major), int(minor)) for major, minor in (line.split(".") for line in lines)]
    except Exception:  # no tool, a driver that hangs, a text that is no number: it is then not known
        return None
    return min(found, default=None)


# --- the result ------------------------------------------------------------------------------------------------------


def _with_dead_rank(verdict: startup.Verdict, dead: Mapping[str, str], broke: Collection[str]) -> startup.Verdict:
    """The failure of a start whose rank is gone. The main process ends the others within a moment: of several that are
    gone at one look, one that did not say that it broke off is named, and all of them are shown.
    """
    tag = min(dead, key=lambda one: (one in broke, one))
    how, reason = dead[tag], startup_failure.RANK_DEAD
    state = verdict.ranks.get(tag)
    stage = state.stage if state else verdict.stage
    stage = "cuda_graphs" if stage == "autotuned" else stage
    order = [tag, *sorted(set(dead) - {tag})]
    excerpt = tuple(f"{dead[one]}, which was rank {one}" for one in order)
    failure = Failure(reason, tag, stage, excerpt, HINTS[reason])
    return replace(verdict, state=startup.FAILED, failure=failure, detail=f"{reason} in {tag}: {how}")


def _ranks(report: Report, verdict: startup.Verdict) -> dict[str, Any]:
    parts = startup.durations(report, verdict)["ranks"]
    return {
        tag: {
            "autotune": state.autotune,
            "autotune_pairs": state.completed,
            "stage": "autotune" if state.stage == "autotuned" else state.stage,
            "milestones": dict(state.milestones),
            "cache": state.cache,
            **parts[tag],
        }
        for tag, state in verdict.ranks.items()
    }


def _failure(failure: Failure | None) -> dict[str, Any] | None:
    return None if failure is None else {**asdict(failure), "excerpt": list(failure.excerpt)}


def _progress(report: Report, verdict: startup.Verdict) -> dict[str, Any]:
    newest = report.progress
    return {
        "stage": verdict.stage,
        "op": newest.op if newest else "",
        "done": newest.done if newest else None,
        "total": newest.total if newest else None,
        "ranks_done": len(verdict.expected_ranks) - len(verdict.missing_ranks),
        "ranks_expected": len(verdict.expected_ranks),
    }


def _jit_s(memory: _Memory, process: startup.Process | None) -> float | None:
    """Seconds in which compilers worked, to about the time between two looks; None when nobody watched a process."""
    return None if process is None else round(memory.watch.compiling_s, 1)
