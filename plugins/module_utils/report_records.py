# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Comparisons, sweeps and explanations of a fact file, as a report tells them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.report_types import (
    Candidate,
    Comparison,
    Difference,
    Explanation,
    Figure,
    PointComparison,
    Regression,
    Step,
    Sweep,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.report_values import (
    band,
    items,
    mapping,
    number,
    signed,
    text,
    texts,
    whole,
)


def comparison(given: Mapping[str, Any], host: str) -> Comparison:
    """`b` against `a`, as the fact file has it."""
    a, b = mapping(given.get("a")), mapping(given.get("b"))
    gate = given.get("regression")
    return Comparison(
        host,
        text(given.get("id")),
        text(given.get("recorded_at")),
        text(given.get("kind")),
        text(a.get("label")),
        text(b.get("label")),
        texts(b.get("ids")),
        text(b.get("fingerprint")),
        text(given.get("verdict")),
        text(given.get("why")),
        text(given.get("unit")),
        tuple(_point(point) for point in items(given.get("points"))),
        tuple(
            Difference(*(text(one.get(name)) for name in ("what", "name", "a", "b")))
            for one in items(given.get("differences"))
        ),
        _regression(gate) if isinstance(gate, Mapping) else None,
        texts(given.get("notes")),
    )


def _regression(gate: Mapping[str, Any]) -> Regression:
    return Regression(gate.get("judged") is True, gate.get("passed") is True, texts(gate.get("failures")))


def _point(point: Mapping[str, Any]) -> PointComparison:
    a, b = mapping(point.get("a")), mapping(point.get("b"))
    return PointComparison(
        whole(point.get("concurrency")),
        text(point.get("metric")),
        _side(a),
        _side(b),
        whole(a.get("n")),
        whole(b.get("n")),
        signed(point.get("change_percent")),
        band(point.get("band_percent")),
        number(point.get("p_value")),
        text(point.get("verdict")),
        text(point.get("why")),
    )


def _side(side: Mapping[str, Any]) -> Figure:
    return Figure(number(side.get("median")), number(side.get("least")), number(side.get("most")))


def sweep(given: Mapping[str, Any], host: str) -> Sweep:
    """A sweep, also one that was interrupted."""
    return Sweep(
        host,
        text(given.get("id")),
        text(given.get("recorded_at")),
        _objective(given.get("objective")),
        tuple(_candidate(one) for one in items(given.get("candidates"))),
        text(given.get("original")),
        text(given.get("winner")),
        text(given.get("verdict")),
        text(given.get("why")),
        given.get("finished") is True,
    )


def _objective(given: Any) -> str:
    if not isinstance(given, Mapping):
        return text(given)
    return ", ".join(
        f"{text(name)} {text(value)}" for name, value in sorted(given.items(), key=str) if value is not None
    )


def _candidate(given: Mapping[str, Any]) -> Candidate:
    speeds = mapping(given.get("output_tok_s"))
    ordered = sorted(speeds.items(), key=lambda pair: (len(str(pair[0])), str(pair[0])))
    return Candidate(
        text(given.get("name")),
        text(given.get("state")),
        text(given.get("reason")),
        tuple((text(concurrency), number(value)) for concurrency, value in ordered),
        signed(given.get("score")),
    )


def explanation(given: Mapping[str, Any], host: str) -> Explanation:
    """What each difference contributes, as the fact file has it."""
    total = mapping(given.get("total"))
    return Explanation(
        host,
        text(given.get("id")),
        text(given.get("recorded_at")),
        text(mapping(given.get("a")).get("label")),
        text(mapping(given.get("b")).get("label")),
        tuple(_step(one) for one in items(given.get("steps"))),
        signed(total.get("change_percent")),
        band(total.get("band_percent")),
        texts(given.get("notes")),
        tuple(_flat(mapping(given.get("breakdown")))),
    )


def _step(given: Mapping[str, Any]) -> Step:
    return Step(
        text(given.get("name")),
        signed(given.get("change_percent")),
        band(given.get("band_percent")),
        text(given.get("verdict")),
        signed(given.get("alone_percent")),
        band(given.get("alone_band_percent")),
    )


def _flat(values: Mapping[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Every figure of a nested object with the path to it."""
    for name, value in values.items():
        where = f"{path}{text(name)}"
        if isinstance(value, Mapping) and depth < 3:
            yield from _flat(value, f"{where}, ", depth + 1)
        else:
            shown = number(value)
            yield where, f"{shown:.4g}" if shown is not None else text(value)
