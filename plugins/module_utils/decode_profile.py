# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the time of a decode step goes, from the trace of one rank that SGLang's profiler wrote.

A step lasts from the first work of one forward pass to the first work of the next, so that sampling and the gap before
the next pass belong to it. Passes are known, best first, from

- the spans `step[DECODE bs=8]` that SGLang 0.5.12 and later write around each pass. Steps of a prefill are left out;
- launches of CUDA graphs, when there are about as many as steps were asked for (older releases);
- the number of steps that was asked for, over the whole trace.

Each moment is shared equally among the kernels that run at once (streams, and kernels that start before their
predecessor ends), so that the kinds and the idle time add up to the step. On a CPU a moment belongs to the innermost
operation, counted as what it is part of: a copy inside attention is attention. Time in no operation is idle time there.

Numbers are of a server under a profiler: the gaps between kernels are a little larger than without.
"""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import kernel_kinds, trace_events
from ansible_collections.tokforge.sglang.plugins.module_utils.kernel_kinds import (
    ATTENTION,
    GEMM,
    KINDS,
    MOE_GEMM,
    OTHER,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.roofline import Roofline
from ansible_collections.tokforge.sglang.plugins.module_utils.trace_steps import (
    collect,
    decode_periods,
    graph_periods,
    passes_of,
)

GPU, CPU, IDLE = "gpu", "cpu", "idle"
SPANS, GRAPHS, ASKED = "spans", "graph_launches", "asked"

#: How many kernels are named.
NAMED = 10
_NAME_CHARACTERS = 200
_RANK = re.compile(r"((?:TP|DP|PP|EP)-\d+)(?=[-.])")
# An operation inside one of these belongs to it.
_INHERITED = frozenset(KINDS) - {kernel_kinds.ELEMENTWISE, OTHER}

#: The parts of roofline.Roofline whose reading a kind of kernels does; GEMM does all others.
_FLOOR_PARTS = {MOE_GEMM: ("experts",), ATTENTION: ("cache",)}


class ProfileError(Exception):
    """A trace that says nothing about decode steps."""


@dataclass(frozen=True)
class Kernel:
    """One kernel by name: its time and calls in a step. Names are cut to 200 characters."""

    name: str
    kind: str
    ms: float
    calls: float


@dataclass(frozen=True)
class RankProfile:
    """The decode steps of one rank.

    rank: as in the file's name, `TP-0-DP-1`. batch: requests of a step when spans tell it and all steps agree.
    steps: judged ones, and how they were found (SPANS, GRAPHS, ASKED). other_steps: passes that are no decoding.
    ms: milliseconds of a step by kind, IDLE included; they add up to step_ms. Means over the steps.
    largest: the kernels with the most time. unknown: those of kind OTHER.
    """

    rank: str
    device: str
    batch: int | None
    steps: int
    steps_from: str
    other_steps: int
    step_ms: float
    ms: Mapping[str, float]
    largest: tuple[Kernel, ...]
    unknown: tuple[Kernel, ...]

    @property
    def shares(self) -> dict[str, float]:
        """The kinds and IDLE as parts of the step; they add up to 1."""
        return {kind: value / self.step_ms for kind, value in self.ms.items()}


def rank_of(path: str) -> str:
    """The rank that a trace's name tells, `TP-0` for `1796028295.8-TP-0-DECODE.trace.json.gz`; "" when it does not."""
    return "-".join(_RANK.findall(os.path.basename(path)))


def read(path: str, asked_steps: int | None = None) -> RankProfile:
    """The decode steps in one rank's trace.

    Raises TraceError when the file cannot be read, ProfileError when it holds no work or no decode step.
    """
    return judge(trace_events.read(path)[1], rank_of(path), asked_steps)


def judge(events: Iterable[Mapping[str, Any]], rank: str = "", asked_steps: int | None = None) -> RankProfile:
    """The same from events."""
    trace = collect(events)
    if trace.work:
        device, spans = GPU, trace.gpu_spans
        pieces = [(begin, end, name, kernel_kinds.kind_of(name)) for begin, end, name, _correlation in trace.work]
        calls = [(begin, name, kind) for begin, _end, name, kind in pieces]
    elif trace.operations:
        device, spans = CPU, trace.host_spans
        pieces, calls = _flat(trace.operations)
    else:
        raise ProfileError(
            f"the trace of rank {rank or '?'} holds no kernel and no operation; on a GPU the driver may refuse "
            "profiling to this user, or another profiler may be attached; see the server's log"
        )
    passes = passes_of(spans)
    periods, batch, others = decode_periods(passes)
    source = SPANS
    if not periods and others:
        raise ProfileError(
            f"the trace of rank {rank or '?'} holds {others} passes and no two decode steps; profile longer answers"
        )
    if not periods and device == GPU and asked_steps:
        periods, source = graph_periods(trace, asked_steps), GRAPHS
    count = len(periods)
    if not periods:
        if not asked_steps:
            raise ProfileError(f"the trace of rank {rank or '?'} does not tell its steps; say how many were asked for")
        source, count = ASKED, asked_steps
        periods = [(min(piece[0] for piece in pieces), max(piece[1] for piece in pieces))]
    return _profile(rank, device, batch, source, count, others, periods, pieces, calls)


def _flat(
    operations: Sequence[tuple[float, float, str, str]],
) -> tuple[list[tuple[float, float, str, str]], list[tuple[float, str, str]]]:
    """Nested operations as pieces of time that belong to the innermost one, with the kind of what it is part of; and
    the begin, name and kind of each operation.
    """
    pieces: list[tuple[float, float, str, str]] = []
    calls: list[tuple[float, str, str]] = []
    threads: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for begin, end, thread, name in operations:
        threads[thread].append((begin, end, name))
    for found in threads.values():
        found.sort(key=lambda entry: (entry[0], -entry[1]))
        # End, name and kind of each open operation, and the moment up to which time is accounted for.
        opened: list[tuple[float, str, str]] = []
        done = -math.inf
        for begin, end, name in found:
            done = _closed(opened, begin, done, pieces)
            if opened and begin > done:
                pieces.append((done, begin, opened[-1][1], opened[-1][2]))
            around = opened[-1][2] if opened else OTHER
            kind = around if around in _INHERITED else kernel_kinds.kind_of(name)
            opened.append((end, name, kind))
            calls.append((begin, name, kind))
            done = max(done, begin)
        _closed(opened, math.inf, done, pieces)
    return pieces, calls


def _closed(
    opened: list[tuple[float, str, str]], moment: float, done: float, pieces: list[tuple[float, float, str, str]]
) -> float:
    """End the operations that are over at a moment, and say up to which time is accounted for then."""
    while opened and opened[-1][0] <= moment:
        end, name, kind = opened.pop()
        if end > done:
            pieces.append((done, end, name, kind))
            done = end
    return done


def _profile(
    rank: str,
    device: str,
    batch: int | None,
    source: str,
    count: int,
    others: int,
    periods: Sequence[tuple[float, float]],
    pieces: Sequence[tuple[float, float, str, str]],
    calls: Sequence[tuple[float, str, str]],
) -> RankProfile:
    total_us = sum(end - begin for begin, end in periods)
    if not total_us > 0:
        raise ProfileError(f"the steps of rank {rank or '?'} take no time; the trace's clock does not run")
    by_name: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    windows = _joined(periods)
    _share_out(list(_inside(pieces, windows)), by_name)
    _count(calls, windows, by_name)
    by_kind = dict.fromkeys(KINDS, 0.0)
    for (_name, kind), (used_us, _calls) in by_name.items():
        by_kind[kind] += used_us
    by_kind[IDLE] = max(0.0, total_us - sum(by_kind.values()))
    kernels = sorted(
        (
            Kernel(name[:_NAME_CHARACTERS], kind, used_us / count / 1000, calls / count)
            for (name, kind), (used_us, calls) in by_name.items()
            if used_us > 0
        ),
        key=lambda kernel: (-kernel.ms, kernel.name),
    )
    return RankProfile(
        rank=rank,
        device=device,
        batch=batch,
        steps=count,
        steps_from=source,
        other_steps=others,
        step_ms=total_us / count / 1000,
        ms={kind: used_us / count / 1000 for kind, used_us in by_kind.items()},
        largest=tuple(kernels[:NAMED]),
        unknown=tuple([kernel for kernel in kernels if kernel.kind == OTHER][:NAMED]),
    )


def _joined(periods: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    joined: list[tuple[float, float]] = []
    for begin, end in periods:
        if joined and joined[-1][1] == begin:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


def _inside(
    pieces: Sequence[tuple[float, float, str, str]], windows: Sequence[tuple[float, float]]
) -> Iterable[tuple[float, float, tuple[str, str]]]:
    """The parts of pieces that lie in windows."""
    begins = [begin for begin, _end in windows]
    for begin, end, name, kind in pieces:
        place = max(0, bisect_right(begins, begin) - 1)
        while place < len(windows) and windows[place][0] < end:
            start, stop = max(begin, windows[place][0]), min(end, windows[place][1])
            if start < stop:
                yield start, stop, (name, kind)
            place += 1


def _count(
    calls: Sequence[tuple[float, str, str]],
    windows: Sequence[tuple[float, float]],
    by_name: dict[tuple[str, str], list[float]],
) -> None:
    """Count the calls that begin in a window."""
    begins = [begin for begin, _end in windows]
    for begin, name, kind in calls:
        place = bisect_right(begins, begin) - 1
        if place >= 0 and begin < windows[place][1]:
            by_name[(name, kind)][1] += 1


def _share_out(
    pieces: Sequence[tuple[float, float, tuple[str, str]]], by_name: dict[tuple[str, str], list[float]]
) -> None:
    """Add each moment's time to those that run in it, in equal parts."""
    moments = [(begin, 1, place) for place, (begin, _end, _key) in enumerate(pieces)]
    moments += [(end, 0, place) for place, (_begin, end, _key) in enumerate(pieces)]
    moments.sort()
    running: dict[int, None] = {}
    before = 0.0
    for moment, starts, place in moments:
        if running and moment > before:
            part = (moment - before) / len(running)
            for each in running:
                by_name[pieces[each][2]][0] += part
        before = moment
        if starts:
            running[place] = None
        else:
            running.pop(place, None)


def summarise(profiles: Sequence[RankProfile], floor: Roofline | None = None) -> dict[str, Any]:
    """The ranks together, as JSON types: means over the ranks, each rank, and what is far from the floor.

    An all-reduce also waits for the slowest rank, so that its least time on any rank is what communication costs, and
    the rest is imbalance.
    """
    if not profiles:
        raise ProfileError("there is no trace; profile again")
    step_ms = _mean([profile.step_ms for profile in profiles])
    kinds = {kind: _mean([profile.ms[kind] for profile in profiles]) for kind in (*KINDS, IDLE)}
    return {
        "device": profiles[0].device,
        "batch": profiles[0].batch,
        "steps": min(profile.steps for profile in profiles),
        "steps_from": profiles[0].steps_from,
        "step_ms": _round(step_ms),
        "ms": {kind: _round(value) for kind, value in kinds.items()},
        "shares": {kind: _round(value / step_ms) for kind, value in kinds.items()},
        "all_reduce_least_ms": _round(min(profile.ms[kernel_kinds.ALL_REDUCE] for profile in profiles)),
        "largest": [_named(kernel) for kernel in profiles[0].largest],
        "unknown": [_named(kernel) for kernel in profiles[0].unknown],
        "ranks": [
            {
                "rank": profile.rank,
                "steps": profile.steps,
                "other_steps": profile.other_steps,
                "step_ms": _round(profile.step_ms),
                "ms": {kind: _round(value) for kind, value in profile.ms.items()},
                "shares": {kind: _round(value) for kind, value in profile.shares.items()},
            }
            for profile in profiles
        ],
        "floor": None if floor is None else against_floor(kinds, step_ms, floor),
    }


def against_floor(ms: Mapping[str, float], step_ms: float, floor: Roofline) -> dict[str, Any] | None:
    """How near the step, and each kind of kernel that reads memory, is to the least time that reading takes.

    `share` is floor / measured: 1 is as fast as the memory. None where nothing was measured; the whole is None when the
    memory's speed is not known. Above 1 a kind's kernels are counted elsewhere, or caches of the GPU held the weights.
    """
    if not floor.bandwidth_bytes_s or floor.floor_s is None:
        return None
    read = dict(floor.bytes_by_part)
    rows: dict[str, Any] = {}
    for kind in (MOE_GEMM, ATTENTION, GEMM):
        parts = _FLOOR_PARTS.get(kind)
        names = list(read) if parts is None else [name for name in parts if name in read]
        floor_ms = sum(read.pop(name) for name in names) / floor.bandwidth_bytes_s * 1000
        rows[kind] = _row(floor_ms, ms.get(kind, 0.0))
    return {"step": _row(floor.floor_s * 1000, step_ms), "kinds": rows}


def _row(floor_ms: float, measured_ms: float) -> dict[str, float | None]:
    share = _round(floor_ms / measured_ms) if measured_ms > 0 else None
    return {"floor_ms": _round(floor_ms), "measured_ms": _round(measured_ms), "share": share}


def _named(kernel: Kernel) -> dict[str, Any]:
    return {"name": kernel.name, "kind": kernel.kind, "ms": _round(kernel.ms), "calls": _round(kernel.calls)}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _round(value: float) -> float:
    return round(value, 6)
