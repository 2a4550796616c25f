# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The record of one run of a benchmark, as it is stored and shown. docs/facts.md describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.bench_judge import judge_run
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import (
    Parameters,
    configuration,
    fingerprint,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import finite
from ansible_collections.tokforge.sglang.plugins.module_utils.server_limits import ServerLimits


@dataclass(frozen=True)
class Surroundings:
    """What is known about machine, model and start, beside what was configured; None and "" for what is not."""

    hardware: str = "unknown"
    gpu_count: int = 0
    start: Mapping[str, Any] | None = None
    preflight: Mapping[str, Any] | None = None
    experiment: Mapping[str, Any] | None = None
    model_shape: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Ran:
    """What came out of one run. `failure` says why it ended early, `duration_s` is the wall time of all points.

    identity: what stands for the engine in the fingerprint, "" for its name.
    """

    run_id: str
    recorded_at: str
    points: Sequence[Mapping[str, Any]]
    failure: str | None
    duration_s: float
    raw_dir: str
    engine: str
    engine_version: str | None = None
    identity: str = ""
    output_check: Mapping[str, Any] | None = None
    warnings: Sequence[str] = field(default_factory=tuple)


def same_measurement(record: Mapping[str, Any] | None, wanted: str, hardware: str) -> bool:
    """True when `record` (the latest one) is a valid measurement with this fingerprint on this hardware, so that
    measuring again adds nothing.
    """
    return (
        record is not None
        and record.get("valid") is True
        and record.get("fingerprint") == wanted
        and record.get("hardware") == hardware
    )


def make(
    ran: Ran, context: Mapping[str, Any], asked: Parameters, measured: Parameters, surroundings: Surroundings
) -> dict[str, Any]:
    """The record of a run. `asked` are the parameters of the request, `measured` what the server's limit left."""
    reasons = judge_run(ran.points, measured, ran.failure, ran.output_check)
    warnings = [*ran.warnings, *(warning for point in ran.points for warning in point["warnings"])]
    return {
        "id": ran.run_id,
        "recorded_at": ran.recorded_at,
        "engine": {"name": ran.engine, "version": ran.engine_version},
        "fingerprint": fingerprint(ran.identity or ran.engine, context, asked),
        "configuration": configuration(context),
        "hardware": surroundings.hardware,
        "gpu_count": surroundings.gpu_count,
        "model_shape": dict(surroundings.model_shape) if surroundings.model_shape is not None else None,
        "valid": not reasons,
        "reasons": reasons,
        # The same warning at every point is one warning.
        "warnings": list(dict.fromkeys(warnings)),
        "context": dict(context),
        "parameters": measured.as_dict(),
        "output_check": dict(ran.output_check) if ran.output_check is not None else None,
        "start": dict(surroundings.start) if surroundings.start is not None else None,
        "preflight": dict(surroundings.preflight) if surroundings.preflight is not None else None,
        "experiment": dict(surroundings.experiment) if surroundings.experiment is not None else None,
        "points": [dict(point) for point in ran.points],
        "duration_s": round(ran.duration_s, 3),
        "raw_dir": ran.raw_dir,
    }


def limit_warnings(asked: Parameters, measured: Parameters, limits: ServerLimits) -> list[str]:
    """What a reader must know of points above, or left out because of, what the server runs at once, and of points
    left out because there are no more prompts.
    """
    lengths = asked.input_len + asked.output_len
    most = limits.most_at_once(lengths)
    if measured.concurrency != asked.concurrency:
        left = ", ".join(str(value) for value in asked.concurrency if value not in measured.concurrency)
        last = limits.last_point(lengths)
        few_prompts = asked.num_prompts is not None and (last is None or asked.num_prompts < last)
        why = (
            f"num_prompts={asked.num_prompts} allows no more requests at once"
            if few_prompts
            else f"the server runs at most {most} such requests at once"
        )
        return [f"{why}: measured at {max(measured.concurrency)} instead of {left}"]
    if most is None:
        return []
    above = [str(value) for value in asked.concurrency if value > most]
    if not above:
        return []
    return [
        f"the server runs at most {most} such requests at once: at concurrency {', '.join(above)} the others wait in "
        "its queue, and the time to first token has that in it"
    ]


def summary_lines(record: Mapping[str, Any] | None) -> list[str]:
    """A record in a few lines, for a diff and for people; no record gives no line."""
    if not record:
        return []
    state = "valid" if record.get("valid") else "invalid"
    return [
        f"{record.get('recorded_at')} configuration {record.get('fingerprint')} {state}",
        *(f"concurrency {point.get('concurrency')}: {_rate(point)}" for point in record.get("points") or []),
    ]


def _rate(point: Mapping[str, Any]) -> str:
    rate = finite(point.get("output_tok_s"))
    if rate is None:
        return "no rate"
    spread = point.get("spread")
    found = spread.get("output_tok_s") if isinstance(spread, Mapping) else None
    least, most = (finite(found.get(name)) if isinstance(found, Mapping) else None for name in ("least", "most"))
    apart = f" ({least:.1f} to {most:.1f})" if least is not None and most is not None and least < most else ""
    return f"{rate:.1f}{apart} output tok/s"
