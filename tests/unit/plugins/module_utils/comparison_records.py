# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of the second schema for tests of comparisons, with the figures that a test gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any


def point(concurrency: int, values: Sequence[float], metric: str = "output_tok_s", **more: Any) -> dict[str, Any]:
    """A valid point with a figure for each repetition."""
    return {
        "concurrency": concurrency, "num_prompts": 4 * concurrency, "input_len": 64, "output_len": 32,
        "repetitions": len(values), metric: median(values), "values": {metric: list(values)}, "accept_length": None,
        "gpu": None, "roofline": None, "valid": True, "reasons": [], "warnings": [], **more,
    }  # fmt: skip


def record(
    name: str,
    ladder: Mapping[int, Sequence[float]],
    *,
    start: str | None = "s1",
    metric: str = "output_tok_s",
    context: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A valid record; `ladder` has the repetitions of each concurrency."""
    return {
        "id": name, "recorded_at": f"2026-03-14T09:{sum(map(ord, name)) % 60:02}:00Z",
        "engine": {"name": "sglang.bench_serving", "version": "0.5.23"}, "fingerprint": "a" * 16,
        "configuration": None, "valid": True, "reasons": [], "warnings": [], "hardware": "8x GPU (cc 12.0, 95 GiB)",
        "gpu_count": 8,
        "context": {
            "sglang_version": "0.5.23", "backend": "auto", "random_weights": False, "args": {}, "env": {},
            "versions": {}, "autotune_gate": {}, "environment": "e1",
            "model": {"path": "/models/tiny", "served_name": "tiny", "revision": "r1"}, **(context or {}),
        },
        "parameters": {
            "dataset": "random-ids", "range_ratio": 1.0, "seed": 1, "flush_cache": True, "ignore_eos": True,
            "input_len": 64, "output_len": 32, **(parameters or {}),
        },
        "start": {"id": start} if start is not None else None,
        "points": [point(concurrency, values, metric) for concurrency, values in ladder.items()],
        **more,
    }  # fmt: skip
