# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents that reports are made of, for the tests of all writers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import report_data, report_types

FIXTURES = Path(__file__).parents[3] / "fixtures" / "report"
HOSTILE = "<script>alert('x')</script>\"&'|`$x$ [a](http://evil.example/) @all \\ \n#"


def document(name: str) -> dict[str, Any]:
    """A fact file as the collection writes it."""
    found: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))
    return found


def everything() -> report_types.Report:
    """Five hosts: with GPUs, without, of the first schema, without results, not reached."""
    names = ("gpu-box", "cpu-box", "schema-1")
    hosts: dict[str, Any] = {name: document(name) for name in names}
    return report_data.make({**hosts, "fresh-box": None, "gone-box": "it could not be reached"})


def hostile() -> report_types.Report:
    """Every text of the facts is one that means something to HTML, Markdown, XML and Prometheus."""

    def spoil(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {(key if key != "TP0" else HOSTILE): spoil(inner, key) for key, inner in value.items()}
        if isinstance(value, list):
            return [spoil(inner, name) for inner in value]
        # What is looked up or compared stays; all else is what somebody wrote.
        kept = ("recorded_at", "id", "ids", "fingerprint", "state", "kind", "verdict", "first", "last")
        return HOSTILE if isinstance(value, str) and name not in kept and ":" not in value[:14] else value

    return report_data.make({HOSTILE: spoil(document("gpu-box")), "b": HOSTILE})


def nothing() -> dict[str, report_types.Report]:
    """Reports in which something that is usually there is missing."""
    point = {"concurrency": 1, "output_tok_s": None, "valid": False, "reasons": ["it hung"]}
    nulls = {"id": "r", "recorded_at": None, "valid": True, "points": [dict.fromkeys(point) | {"concurrency": 8}]}
    invalid = {"id": "r", "recorded_at": "2026-03-14T09:15:09Z", "valid": False, "reasons": ["bad"], "points": [point]}
    zero = {
        "id": "r",
        "valid": True,
        "points": [{"concurrency": 1, "output_tok_s": 0, "tpot_median_ms": 0, "valid": True}],
    }
    return {
        "no hosts": report_data.make({}),
        "no facts": report_data.make({"a": None, "b": "gone"}),
        "only invalid": report_data.make({"a": {"history": [invalid]}}),
        "nulls": report_data.make({"a": {"history": [nulls]}}),
        "no points": report_data.make({"a": {"history": [{"id": "r"}]}}),
        "zeros": report_data.make({"a": {"history": [zero]}}),
        "first schema": report_data.make({"a": document("schema-1")}),
    }
