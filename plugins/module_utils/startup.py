# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a start has come to: the log's report, the expectation and the processes, judged together. Pure.

States: starting, ready, failed, stalled. Ready takes the server's own word and, where autotune is expected or was
begun, every expected rank's. What is expected comes from the launch arguments, never from what happened to be logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import ranks as rank_names
from ansible_collections.tokforge.sglang.plugins.module_utils import startup_expect, startup_failure, startup_log
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import Rank, World
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_expect import Expectation
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_failure import HINTS, Failure
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_log import COMPLETED, NONE, Bar, RankState, Report

STARTING, READY, FAILED, STALLED = "starting", "ready", "failed", "stalled"
# Ranks that wait for each other in a collective keep their cores and GPUs busy. So work that leaves no trace (nothing
# logged, compiled or read) puts a stall off only for so many times the limit.
_BUSY_TIMES = 3


@dataclass(frozen=True)
class Process:
    """The server's main process. `ended` tells how it ended, to be read after a name; `stopped` are pids that a signal
    stopped, `stopped_ranks` the tags of those that are ranks, `doing` says in words what it and its children do."""

    pid: int
    alive: bool
    ended: str = ""
    stopped: tuple[int, ...] = ()
    stopped_ranks: tuple[str, ...] = ()
    doing: str = ""


@dataclass(frozen=True)
class Quiet:
    """Seconds since the last sign of life, of each kind: `log_s` new bytes, `traced_s` also compiling and reading
    files, `any_s` also processor and GPU work. Without a process only the log tells, and all three are the same."""

    log_s: float = 0.0
    traced_s: float = 0.0
    any_s: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """The judgement. `autotune` is none, started or completed for the expected ranks together; `stage` what the
    slowest rank is at, `detail` one sentence."""

    state: str
    stage: str
    detail: str
    expected_ranks: tuple[str, ...]
    missing_ranks: tuple[str, ...]
    ranks: Mapping[str, RankState]
    failure: Failure | None
    autotune: Mapping[str, Any]
    notes: tuple[str, ...]


def judge(
    report: Report,
    world: World,
    expectation: Expectation,
    process: Process | None = None,
    quiet: Quiet = Quiet(),
    stall_timeout_s: float = 300.0,
) -> Verdict:
    """What the start has come to. Raises ranks.RanksError for a world that no server can have."""
    places = _Places(report, world)
    tuning = _Tuning(report, places, expectation)
    state, failure = _state(report, world, places, tuning, process, quiet, stall_timeout_s)
    stage = _stage(report, places, state)
    if failure is not None:
        # A rank that is tuned goes on with its CUDA graphs; who names no stage is where the slowest rank is.
        named = {"autotuned": "cuda_graphs", "": stage}.get(failure.stage, failure.stage)
        failure = replace(failure, stage=named)
    detail = _detail(state, stage, report, places, tuning, failure, process, quiet)
    begun = tuning.counts or (bool(tuning.started) and state != READY)
    missing = tuning.missing if begun else places.unloaded if state != READY else ()
    return Verdict(
        state=state,
        stage=stage,
        detail=detail,
        expected_ranks=tuple(places.name(rank) for rank in places.expected),
        missing_ranks=tuple(places.name(rank) for rank in missing),
        ranks=places.by_name(),
        failure=failure,
        autotune={
            "expected": expectation.value,
            "reason": expectation.reason,
            "ranks_started": [places.name(rank) for rank in tuning.started],
            "ranks_completed": [places.name(rank) for rank in tuning.completed],
        },
        notes=_notes(report, world, places, expectation, tuning),
    )


class _Places:
    """The expected ranks, each with what its records said, whatever tags its release writes."""

    def __init__(self, report: Report, world: World) -> None:
        seen = [rank for rank in report.ranks if _is_of(rank, world)]
        self.expected = rank_names.expected(world, seen)
        plain = rank_names.is_plain_dp(world, seen)
        self._seen = {rank_names.place(rank, world, plain): rank for rank in seen}
        self._place = {rank: rank_names.place(rank, world, plain) for rank in self.expected}
        here = set(self._place.values())
        self._report = report
        self.strangers = tuple(
            rank for rank in report.ranks if rank not in seen or rank_names.place(rank, world, plain) not in here
        )

    def state(self, rank: Rank) -> RankState:
        seen = self._seen.get(self._place[rank])
        return self._report.ranks[seen] if seen is not None else RankState()

    def name(self, rank: Rank) -> str:
        """The tag as the log has it, so that a person finds it there."""
        seen = self._seen.get(self._place[rank])
        return (seen or rank).tag

    def by_name(self) -> dict[str, RankState]:
        found = {self.name(rank): self.state(rank) for rank in self.expected}
        found.update({rank.tag: self._report.ranks[rank] for rank in self.strangers if rank != Rank()})
        return found

    @property
    def unloaded(self) -> tuple[Rank, ...]:
        """Ranks that have not said that their weights are loaded."""
        return tuple(r for r in self.expected if startup_log.WEIGHTS_LOADED not in self.state(r).milestones)


def _is_of(rank: Rank, world: World) -> bool:
    """Whether a rank has the tags that tell its place (the main process of a wide world has none), and such a place is
    there."""
    lacks = (world.tp > 1 and rank.tp is None) or (world.pp > 1 and rank.pp is None)
    return not lacks and (rank.tp or 0) < world.tp and (rank.pp or 0) < world.pp


class _Tuning:
    """Autotune of the expected ranks. `counts`: it has to be complete before the server is ready."""

    def __init__(self, report: Report, places: _Places, expectation: Expectation) -> None:
        states = {rank: places.state(rank) for rank in places.expected}
        self.started = tuple(rank for rank, state in states.items() if state.autotune != NONE)
        self.completed = tuple(rank for rank, state in states.items() if state.autotune == COMPLETED)
        self.missing = tuple(rank for rank in states if rank not in self.completed)
        self.counted_started = report.counted.get(startup_log.AUTOTUNE_STARTED, 0)
        self.counted = report.counted.get(startup_log.AUTOTUNE_COMPLETED, 0)
        self.custom = report.format == startup_log.CUSTOM
        untagged = report.ranks.get(Rank())
        if untagged is not None and len(states) > 1 and not any(rank != Rank() for rank in report.ranks):
            # Records that look like SGLang's own, of a format without the tags: several ranks that nobody can tell.
            self.custom = True
            self.counted_started, self.counted = untagged.started, untagged.completed
        begun = self.counted_started if self.custom else len(self.started)
        # What began though it was not expected need not come to an end.
        unexpected = expectation.value == startup_expect.NOT_EXPECTED
        self.counts = expectation.value == startup_expect.EXPECTED or (bool(begun) and not unexpected)
        done = self.counted if self.custom else len(self.completed)
        self.total = len(states)
        self.done = min(done, self.total)
        self.is_complete = not self.counts or done >= self.total
        if self.custom and self.is_complete:
            self.missing = ()


def _state(
    report: Report,
    world: World,
    places: _Places,
    tuning: _Tuning,
    process: Process | None,
    quiet: Quiet,
    stall_timeout_s: float,
) -> tuple[str, Failure | None]:
    ready = _says_ready(report, world)
    if report.failure is not None:
        return FAILED, _cause(report, report.failure, world, places)
    if process is not None and not process.alive:
        return FAILED, _named(_exited(report, process), world, places)
    if ready:
        return (READY, None) if tuning.is_complete else (FAILED, _skipped(places, tuning))
    if process is None and report.suspect is not None:
        return FAILED, _named(report.suspect, world, places)
    busy = 0.0 if process is not None and process.stopped else quiet.any_s
    idle = quiet.traced_s if process is not None and process.stopped else busy
    if idle >= stall_timeout_s or quiet.traced_s >= _BUSY_TIMES * stall_timeout_s:
        return STALLED, _stalled(places, tuning, process, quiet)
    return STARTING, None


def _says_ready(report: Report, world: World) -> bool:
    if report.format == startup_log.CUSTOM and report.counted.get(startup_log.READY):
        return True
    # A node other than the first serves nobody; its last words are another line.
    return startup_log.READY in report.main or (world.node_rank > 0 and startup_log.NODE_READY in report.main)


def _cause(report: Report, failure: Failure, world: World, places: _Places) -> Failure:
    """The failure, or the one rank that said nothing while all others say that somebody broke off."""
    silent = [rank for rank in places.expected if places.name(rank) not in report.broke]
    if not report.consequence or len(silent) != 1 or len(places.expected) < 2:
        return _named(failure, world, places)
    name, reason = places.name(silent[0]), startup_failure.RANK_DEAD
    first = f"rank {name} said nothing; the others broke off because of it, {failure.rank} with:"
    return Failure(reason, name, places.state(silent[0]).stage, (first, *failure.excerpt), HINTS[reason])


def _named(failure: Failure, world: World, places: _Places) -> Failure:
    """With the tag of a rank that the main process names by its number on this node.

    With data parallelism it counts the process that starts the ranks, which is none.
    """
    words = failure.rank.split()
    if len(words) == 2 and words[0] == "rank" and words[1].isdigit():
        number = int(words[1])
        known = world.dp == 1 and number < len(places.expected)
        tag = places.name(places.expected[number]) if known else ""
        return Failure(failure.reason, tag, failure.stage, failure.excerpt, failure.hint)
    return failure


def _exited(report: Report, process: Process) -> Failure:
    how = process.ended or "ended"
    if report.suspect is not None:
        cause = report.suspect
        return Failure(cause.reason, cause.rank or "main", cause.stage, cause.excerpt, cause.hint)
    reason = startup_failure.PROCESS_EXIT
    return Failure(reason, "main", "", (f"process {process.pid} {how} before the server was ready",), HINTS[reason])


def _skipped(places: _Places, tuning: _Tuning) -> Failure:
    reason = startup_failure.AUTOTUNE_SKIPPED
    if tuning.custom:
        line = f"the server is ready, and {tuning.counted} of {tuning.total} ranks completed autotune"
        return Failure(reason, "", "autotune", (line,), HINTS[reason])
    names = [places.name(rank) for rank in tuning.missing]
    shown = ", ".join(names[:16])
    if tuning.started:
        line = f"the server is ready, and these ranks never completed autotune: {shown}"
        hint = "look for what these ranks wrote; one that gave up its tuning serves untuned"
        return Failure(reason, names[0], "autotune", (line,), hint)
    line = f"the server is ready, and no rank logged autotune, which was expected of {shown}"
    return Failure(reason, names[0], "autotune", (line,), HINTS[reason])


def _stalled(places: _Places, tuning: _Tuning, process: Process | None, quiet: Quiet) -> Failure:
    reason = startup_failure.STALLED
    waiting = tuning.missing if tuning.started else places.unloaded
    if tuning.custom:
        waiting = ()  # no rank can be told
    names = [places.name(rank) for rank in waiting]
    lines = [f"nothing was logged for {quiet.log_s:.0f} s"]
    if process is not None:
        lines[0] += f", and process {process.pid} and its children: {process.doing or 'idle'}"
    if names:
        what = "have not completed autotune" if tuning.started else "have not loaded their weights"
        lines.append(f"these ranks {what}: {', '.join(names[:16])}")
    if process is not None and process.stopped_ranks:
        # What a signal stopped is the cause, whatever the others wait for.
        names = list(process.stopped_ranks)
        lines.append(f"stopped by a signal: {', '.join(names[:16])}")
    stage = "autotune" if tuning.started and tuning.missing else _slowest(places)
    return Failure(reason, names[0] if names else "", stage, tuple(lines), HINTS[reason])


# --- in words --------------------------------------------------------------------------------------------------------


def _slowest(places: _Places) -> str:
    stages = [places.state(rank).stage for rank in places.expected]
    return min(stages, key=startup_log.STAGES.index) if stages else "boot"


def _stage(report: Report, places: _Places, state: str) -> str:
    if state == READY:
        return "ready"
    if startup_log.LISTENING in report.main:
        return "warmup"
    slowest = _slowest(places)
    return "cuda_graphs" if slowest == "autotuned" else slowest


def _detail(
    state: str,
    stage: str,
    report: Report,
    places: _Places,
    tuning: _Tuning,
    failure: Failure | None,
    process: Process | None,
    quiet: Quiet,
) -> str:
    if failure is not None:
        who = f" in {failure.rank}" if failure.rank else ""
        last = failure.excerpt[-1].strip() if failure.excerpt else ""
        return f"{failure.reason}{who}: {last}" if last else f"{failure.reason}{who}"
    if state == READY:
        if tuning.counts:
            return f"the server is ready, {tuning.done} of {tuning.total} ranks completed autotune"
        return "the server is ready"
    if stage == "autotune" or (tuning.counts and tuning.done < tuning.total and (tuning.started or tuning.custom)):
        words = f"autotune: {tuning.done} of {tuning.total} ranks completed"
    elif stage == "boot":
        words = "the processes start"
    elif stage == "warmup":
        words = "the server warms up"
    else:
        past = sum(1 for r in places.expected if startup_log.STAGES.index(places.state(r).stage) > _index(stage))
        words = f"{_WORDS.get(stage, stage)}: {past} of {len(places.expected)} ranks are past it"
    words += bar_words(report.progress, stage)
    if quiet.log_s >= 30 and process is not None and process.doing:
        words += f"; silent for {quiet.log_s:.0f} s, {process.doing}"
    return words


def _index(stage: str) -> int:
    return startup_log.STAGES.index(stage) if stage in startup_log.STAGES else len(startup_log.STAGES)


_WORDS = {"kv_cache": "KV cache", "cuda_graphs": "CUDA graphs"}


def bar_words(progress: Bar | None, stage: str) -> str:
    """A bar of this stage that is not full, for the end of a line."""
    if progress is None or progress.done >= progress.total or progress.stage not in ("", stage):
        return ""
    return f", {progress.op} {progress.done}/{progress.total}"


def _notes(report: Report, world: World, places: _Places, expectation: Expectation, tuning: _Tuning) -> tuple[str, ...]:
    notes = []
    if tuning.custom:
        notes.append(
            "the log has a format of its own that names no rank, so lines are counted: "
            f"{tuning.counted_started} ranks started and {tuning.counted} completed autotune"
        )
    if places.strangers and any(rank != Rank() for rank in places.strangers):
        names = [rank.tag for rank in places.strangers if rank != Rank()]
        notes.append(f"ranks that were not expected: {', '.join(names[:16])}")
    if expectation.value == startup_expect.NOT_EXPECTED and (tuning.started or tuning.counted_started):
        notes.append(f"autotune ran though it was not expected ({expectation.reason})")
    told = told_world(report.arguments)
    if told is not None and (told.tp, told.pp) != (world.tp, world.pp):
        notes.append(f"the server says tp {told.tp} and pp {told.pp}, expected were tp {world.tp} and pp {world.pp}")
    if report.older and not report.main and not report.ranks:
        notes.append(
            f"{report.older} records of the log are older than the process and do not count; if only its clock or time"
            " zone is another one, say where its start begins (log_position)"
        )
    if report.restarts:
        notes.append(f"the log holds {report.restarts} earlier start{'s' * (report.restarts > 1)}; the last one counts")
    return tuple(notes)


def told_world(arguments: Mapping[str, Any]) -> World | None:
    """The world that the server's own record of its arguments tells; None before there is one."""
    return rank_names.world_from_args(arguments) if arguments else None


# --- figures ---------------------------------------------------------------------------------------------------------


def durations(report: Report, verdict: Verdict) -> dict[str, Any]:
    """Seconds of each part, for each rank and the longest of them, as far as the log tells.

    The log's times have whole seconds unless the server writes milliseconds.
    """
    parts = {tag: _rank_durations(state) for tag, state in verdict.ranks.items()}
    names = ("weights_s", "autotune_s", "cuda_graphs_s")
    longest = {name: _longest(part[name] for part in parts.values()) for name in names}
    ready = report.main.get(startup_log.READY) or report.main.get(startup_log.NODE_READY)
    begun = report.main.get(startup_log.ARGUMENTS)
    total = startup_log.seconds_between(begun, ready) if begun and ready else None
    return {**longest, "profiling_s": report.profiling_s, "since_arguments_s": total, "ranks": parts}


def _longest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _rank_durations(state: RankState) -> dict[str, float | None]:
    def between(first: str, last: str) -> float | None:
        begin, end = state.milestones.get(first), state.milestones.get(last)
        return startup_log.seconds_between(begin, end) if begin and end else None

    weights = state.weights_s
    if weights is None:
        weights = between(startup_log.WEIGHTS_BEGUN, startup_log.WEIGHTS_LOADED)
    return {
        "weights_s": weights,
        "autotune_s": between(startup_log.AUTOTUNE_STARTED, startup_log.AUTOTUNE_COMPLETED),
        "cuda_graphs_s": between(startup_log.GRAPHS_BEGUN, startup_log.GRAPHS_CAPTURED),
    }


def reached(report: Report, ranks: Mapping[str, RankState]) -> dict[str, Any]:
    """Milestones of the whole server: name -> first and last time, and how many expected ranks reached it."""
    found: dict[str, Any] = {}
    for state in ranks.values():
        for name, stamp in state.milestones.items():
            one = found.setdefault(name, {"first": stamp, "last": stamp, "ranks": 0})
            one["first"], one["last"] = min(one["first"], stamp), max(one["last"], stamp)
            one["ranks"] += 1
    for name, stamp in report.main.items():
        found[name] = {"first": stamp, "last": stamp, "ranks": None}
    return found
