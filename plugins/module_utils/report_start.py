# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The start of a server as a report tells it: the parts of each rank, and when each began where the log tells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.report_types import Part, RankStart, Start
from ansible_collections.tokforge.sglang.plugins.module_utils.report_values import mapping, number, text

WEIGHTS, GRAPHS, AUTOTUNE = "weights", "CUDA graphs", "autotune"
# Part -> its figure and the milestones of a rank around it. Autotune is last: since SGLang 0.5.14 it lies inside the
# capture of CUDA graphs.
_PARTS = (
    (WEIGHTS, "weights_s", "weights_begun", "weights_loaded"),
    (GRAPHS, "cuda_graphs_s", "cuda_graphs_begun", "cuda_graphs_captured"),
    (AUTOTUNE, "autotune_s", "autotune_started", "autotune_completed"),
)
_DAY_S = 24 * 3600


def start(given: Any) -> Start | None:
    """The start of a record, None when nothing is known of it."""
    record = mapping(given)
    if not record:
        return None
    durations, milestones = mapping(record.get("durations")), mapping(record.get("milestones"))
    found = mapping(record.get("ranks")) or mapping(durations.get("ranks"))
    ranks = {text(tag): mapping(rank) for tag, rank in found.items()}
    began = _began(milestones, ranks)
    ready = mapping(milestones.get("ready")) or mapping(milestones.get("node_ready"))
    cold = record.get("cold")
    return Start(
        text(record.get("id")),
        number(record.get("ready_s")),
        _after(began, ready.get("first")),
        number(durations.get("weights_s")),
        number(durations.get("jit_s")),
        number(durations.get("autotune_s")),
        number(durations.get("profiling_s")),
        number(durations.get("cuda_graphs_s")),
        cold if isinstance(cold, bool) else None,
        tuple(RankStart(tag, tuple(_parts(rank, began))) for tag, rank in ranks.items()),
    )


def _parts(rank: Mapping[str, Any], began: datetime | None) -> Iterator[Part]:
    milestones = mapping(rank.get("milestones"))
    for name, seconds_name, first, last in _PARTS:
        from_s, to_s = _after(began, milestones.get(first)), _after(began, milestones.get(last))
        seconds = number(rank.get(seconds_name))
        if seconds is None and from_s is not None and to_s is not None and to_s >= from_s:
            seconds = to_s - from_s
        if seconds is not None:
            yield Part(name, seconds, from_s)


def _began(milestones: Mapping[str, Any], ranks: Mapping[str, Mapping[str, Any]]) -> datetime | None:
    """When the server had read its arguments, or the first thing that any rank did."""
    arguments = _time(mapping(milestones.get("arguments")).get("first"))
    if arguments is not None:
        return arguments
    times = [_time(stamp) for rank in ranks.values() for stamp in mapping(rank.get("milestones")).values()]
    return min((time for time in times if time is not None), default=None)


def _after(began: datetime | None, stamp: Any) -> float | None:
    at = _time(stamp)
    if began is None or at is None:
        return None
    seconds = (at - began).total_seconds()
    return seconds if 0 <= seconds <= _DAY_S else None


def _time(stamp: Any) -> datetime | None:
    """A time of the log, which is the target's local time without a zone."""
    if not isinstance(stamp, str):
        return None
    try:
        return datetime.fromisoformat(stamp.replace(",", ".")).replace(tzinfo=None)
    except ValueError:
        return None
