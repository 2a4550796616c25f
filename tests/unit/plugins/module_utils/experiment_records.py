# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of benchmark runs for the tests of experiments, in the form that the fact file has."""

from __future__ import annotations

from typing import Any


def record(
    identity: str,
    speeds: dict[int, float],
    candidate: str = "",
    valid: bool = True,
    reasons: list[str] | None = None,
    power: list[float | None] | None = None,
    experiment: str = "",
    **latency: float,
) -> dict[str, Any]:
    """One run with output tok/s by concurrency."""
    return {
        "id": identity,
        "recorded_at": "2026-03-14T09:15:09Z",
        "fingerprint": "0" * 16,
        "valid": valid,
        "reasons": reasons or [],
        "raw_dir": "/raw",
        "experiment": {"id": experiment, "candidate": candidate, "round": 1} if candidate else None,
        "points": [
            {
                "concurrency": concurrency,
                "output_tok_s": speed,
                "values": {"output_tok_s": [speed * 0.99, speed, speed * 1.01]},
                "gpu": None if power is None else [{"index": 0, "power_w": watt} for watt in power],
                "valid": valid,
                **latency,
            }
            for concurrency, speed in speeds.items()
        ],
    }
