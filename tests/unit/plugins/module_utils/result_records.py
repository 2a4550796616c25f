# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records and documents for tests of the fact file, of this schema and of the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def made(name: Any, rates: Mapping[int, float | None] | None = None, **more: Any) -> dict[str, Any]:
    """A small record of this schema; `rates` are output tok/s by concurrency."""
    return {
        "id": name,
        "recorded_at": f"t{name}",
        "engine": {"name": "sglang.bench_serving", "version": "0.5.23"},
        "fingerprint": "f",
        "hardware": "CPU x, 2 cores",
        "valid": True,
        "reasons": [],
        "context": {"sglang_version": "0.5.23", "backend": "auto", "model": {"path": "/m/tiny", "revision": None}},
        "points": [{"concurrency": value, "output_tok_s": rate} for value, rate in (rates or {1: 100.0}).items()],
        "raw_dir": "/r",
        **more,
    }


def of_1(name: Any, rate: float = 120.0, **more: Any) -> dict[str, Any]:
    """A record as schema 1 had it: each point measured once, nothing of hardware or start."""
    return {
        "id": name,
        "recorded_at": f"t{name}",
        "engine": {"name": "sglang.bench_serving", "version": "0.5.12.post1"},
        "fingerprint": "0123456789abcdef",
        "valid": True,
        "reasons": [],
        "warnings": [],
        "context": {"sglang_version": "0.5.12.post1", "backend": "auto", "model": {"path": "/m/tiny"}, "release": 1},
        "parameters": {"concurrency": [1], "num_prompts": {"1": 4}, "input_len": 64, "output_len": 32, "seed": 1},
        "output_check": None,
        "points": [
            {
                "concurrency": 1,
                "num_prompts": 4,
                "completed": 4,
                "input_len": 64,
                "output_len": 32,
                "output_tok_s": rate,
                "ttft_median_ms": 41.5,
                "itl_p99_ms": None,
                "valid": True,
                "reasons": [],
                "warnings": [],
                "argv": ["-m", "sglang.bench_serving"],
                "own": 1,
            }
        ],
        "duration_s": 20.5,
        "raw_dir": "/r",
        **more,
    }


#: A fact file of schema 1 with a key that somebody else put there.
OF_1: dict[str, Any] = {
    "schema_version": 1,
    "latest": of_1("c", 121.5, extra="x"),
    "history": [of_1("a"), of_1("b", 300.0, valid=False, reasons=["why"]), of_1("c", 121.5, extra="x")],
    "baseline": None,
    "mine": {"kept": True},
}
