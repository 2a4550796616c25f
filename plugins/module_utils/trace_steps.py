# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a trace is needed to judge decode steps, and when each step began and ended.

SGLang from 0.5.12 on writes a span around each forward pass, `step[DECODE bs=8]`, or EXTEND, VERIFY, DRAFT; PyTorch's
profiler writes it a second time for the GPU, from the first kernel of the pass to the last, once for each stream.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.trace_events import TraceError

#: Kernels or operations of one trace that are judged. 64 steps of a model with 100 layers have some 200 000.
MOST_WORK = 2_000_000
#: A time of day in microseconds and a duration that can be true.
_MOST_US = 1e17

_STEP = re.compile(r"step\[([A-Z_]+)(?: bs=(\d+))?")
# A step of speculative decoding is one VERIFY; DRAFT passes are parts of it.
_DECODE_PASSES = ("DECODE", "VERIFY", "TARGET_VERIFY")
_DRAFT = "DRAFT"

_GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_RUNTIME = ("cuda_runtime", "cuda_driver")


@dataclass
class Trace:
    """What is kept of a file's events. Work: begin, end, name, correlation; operations: begin, end, thread, name."""

    work: list[tuple[float, float, str, int]] = field(default_factory=list)
    operations: list[tuple[float, float, str, str]] = field(default_factory=list)
    gpu_spans: list[tuple[float, float, str]] = field(default_factory=list)
    host_spans: list[tuple[float, float, str]] = field(default_factory=list)
    launches: set[int] = field(default_factory=set)


def collect(events: Iterable[Mapping[str, Any]]) -> Trace:
    """What is needed of the events. Raises TraceError when there are too many."""
    trace = Trace()
    for event in events:
        if event.get("ph") != "X":
            continue
        category, name = event.get("cat"), event.get("name")
        begin = _time(event.get("ts"))
        end = begin + _time(event.get("dur"))
        if not isinstance(category, str) or not isinstance(name, str) or math.isnan(end):
            continue
        if category in _GPU_WORK:
            trace.work.append((begin, end, name, _correlation(event)))
            # A trace of a GPU is judged by its kernels alone.
            trace.operations.clear()
        elif category == "cpu_op":
            if not trace.work:
                trace.operations.append((begin, end, str(event.get("tid")), name))
        elif category == "gpu_user_annotation" and name.startswith("step["):
            trace.gpu_spans.append((begin, end, name))
        elif category == "user_annotation" and name.startswith("step["):
            trace.host_spans.append((begin, end, name))
        elif category in _RUNTIME and "GraphLaunch" in name:
            trace.launches.add(_correlation(event))
        if len(trace.work) > MOST_WORK or len(trace.operations) > MOST_WORK:
            raise TraceError(f"a trace with more than {MOST_WORK} kernels is not judged; profile fewer steps")
    return trace


def _time(value: object) -> float:
    """A time in microseconds; NaN when it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < _MOST_US:
        return math.nan
    return value


def _correlation(event: Mapping[str, Any]) -> int:
    args = event.get("args")
    found = args.get("correlation") if isinstance(args, dict) else None
    return found if isinstance(found, int) else -1


def passes_of(spans: Sequence[tuple[float, float, str]]) -> list[tuple[float, str, int | None]]:
    """Begin, mode and batch of each pass. A pass has a span on each of its streams, and these overlap."""
    found: list[tuple[float, str, int | None]] = []
    last_end, last_name = -math.inf, ""
    for begin, end, name in sorted(spans):
        known = _STEP.match(name)
        if known is None or known.group(1).startswith(_DRAFT):
            continue
        if begin < last_end and name == last_name:
            last_end = max(last_end, end)
            continue
        last_end, last_name = end, name
        found.append((begin, known.group(1), int(known.group(2)) if known.group(2) else None))
    return found


def decode_periods(
    passes: Sequence[tuple[float, str, int | None]],
) -> tuple[list[tuple[float, float]], int | None, int]:
    """From each decode pass to the next pass, the batch when it is one, and the number of passes that do not decode.

    The last pass has no next one, and its end on the other streams is not known: it is left out.
    """
    periods, batches, others = [], set(), 0
    for place, (begin, mode, batch) in enumerate(passes):
        if mode not in _DECODE_PASSES:
            others += 1
        elif place + 1 < len(passes):
            periods.append((begin, passes[place + 1][0]))
            batches.add(batch)
    return periods, batches.pop() if len(batches) == 1 else None, others


def graph_periods(trace: Trace, asked_steps: int) -> list[tuple[float, float]]:
    """From the first kernel of one graph to that of the next; nothing when graphs are not what the steps are."""
    first: dict[int, float] = {}
    for begin, _end, _name, correlation in trace.work:
        if correlation in trace.launches:
            first[correlation] = min(begin, first.get(correlation, math.inf))
    # The step that ran when the profiler started, and one more or less by release.
    if len(first) < 2 or abs(len(first) - asked_steps) > 2:
        return []
    begins = sorted(first.values())
    return list(zip(begins, begins[1:]))
