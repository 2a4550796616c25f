# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded outputs of bench_serving, and what is judged of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.bench_judge import judge
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import Parameters
from ansible_collections.tokforge.sglang.plugins.module_utils.engine_bench_serving import figures
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import finite

RECORDINGS = Path(__file__).parent / "fixtures" / "bench_serving"
RELEASES = ["0.5.12.post1", "0.5.23"]
ASKED = Parameters(concurrency=(1,), input_len=64, output_len=32)


def recording(release: str = "0.5.23") -> dict[str, Any]:
    return figures((RECORDINGS / f"{release}.jsonl").read_bytes(), release)


def measured(result: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A recording with other figures, as bench_serving computes them from each other; a rate decides its duration."""
    found = {**result, **changes}
    counts = {
        "output_throughput": ("total_output_tokens",),
        "input_throughput": ("total_input_tokens",),
        "total_throughput": ("total_input_tokens", "total_output_tokens"),
        "request_throughput": ("completed",),
    }
    sums: dict[str, Any] = {}
    for rate, names in counts.items():
        if all(finite(found.get(name)) is not None for name in names):
            sums[rate] = sum(found[name] for name in names)
    for rate in counts:
        if "duration" not in changes and finite(changes.get(rate)) and rate in sums:
            found["duration"] = sums[rate] / changes[rate]
    if (finite(found.get("duration")) or 0) > 0:
        found.update({rate: total / found["duration"] for rate, total in sums.items() if rate not in changes})
    return found


def judged(changes: dict[str, Any], asked: Parameters = ASKED, random_weights: bool = True) -> dict[str, Any]:
    return judge(measured(recording(), changes), asked, asked.concurrency[0], random_weights)


def without(*keys: str) -> dict[str, Any]:
    return judge({key: value for key, value in recording().items() if key not in keys}, ASKED, 1, True)
