# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What came out of an experiment, for people."""

from __future__ import annotations

DOCUMENTATION = r"""
name: experiment_lines
short_description: The result of an A/B run, a sweep or an explanation in lines
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Says what M(tokforge.sglang.experiment) concluded, with the figures behind it.
options:
  _input:
    description: What O(tokforge.sglang.experiment#module:action=conclude) returned.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Say what came out
  ansible.builtin.debug:
    msg: "{{ concluded | tokforge.sglang.experiment_lines }}"
"""

RETURN = r"""
_value:
  description: The lines.
  type: list
  elements: str
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, Callable

from ansible.errors import AnsibleFilterError


def experiment_lines(returned: Any) -> list[str]:
    """Lines for people.

    :raises AnsibleFilterError: for what is no result of the module.
    """
    if not isinstance(returned, Mapping) or "id" not in returned:
        raise AnsibleFilterError("experiment_lines wants what the module experiment returned")
    result = returned.get("result")
    if not isinstance(result, Mapping):
        left = len(returned.get("trials") or [])
        head = f"experiment {returned['id']}: nothing came out yet, {left} trials are left"
        return [head, *(f"  {one.get('name')}" for one in returned.get("candidates") or [])]
    lines = _sweep if "candidates" in result else _explanation if "steps" in result else _ab
    # Only a begin tells of other experiments: then nothing was done, since this one was finished before.
    before = returned.get("unfinished") is not None and returned.get("finished") is True
    note = f"  this came out at {result.get('recorded_at')}; -e sglang_experiment_force=true does it anew"
    return [*lines(returned, result), *([note] if before else [])]


def _ab(returned: Mapping[str, Any], result: Mapping[str, Any]) -> Iterable[str]:
    sides = {name: result.get(name) or {} for name in ("a", "b")}
    yield f"A/B run {returned['id']}"
    for name, side in sides.items():
        failed = f", {side['failed']} failed: {side.get('reason')}" if side.get("failed") else ""
        # What was not tried has failed nowhere, and its reason is all that there is to say.
        untried = f", {side.get('state')}: {_line(side['reason'])}" if side.get("reason") and not failed else ""
        yield f"  {name.upper()}  {side.get('label')}: {side.get('starts')} starts measured{failed}{untried}"
    if result.get("why"):
        yield f"  {result['why']}"
    yield from _compared(result.get("comparison"))


def _compared(comparison: Any) -> Iterable[str]:
    if not isinstance(comparison, Mapping):
        yield "  verdict    not_comparable: one side has no valid measurement"
        return
    for point in comparison.get("points") or []:
        yield f"  at {point.get('concurrency')} in flight  {_point(point)}"
    yield f"  verdict    {comparison.get('verdict')}: {comparison.get('why')}"
    for note in comparison.get("notes") or []:
        yield f"  note       {note}"


def _point(point: Mapping[str, Any]) -> str:
    sides = [point.get(name) or {} for name in ("a", "b")]
    told = " -> ".join(_figure(side.get("median")) for side in sides)
    band = point.get("band_percent")
    if point.get("change_percent") is None or not band:
        return f"{point.get('metric')} {told}"
    change = f"{_change(point['change_percent'], band)}, p = {_figure(point.get('p_value'), 4)}"
    return f"{point.get('metric')} {told}: {change}, {point.get('verdict')}"


def _sweep(returned: Mapping[str, Any], result: Mapping[str, Any]) -> Iterable[str]:
    yield f"Sweep {returned['id']}, best by {json.dumps(result.get('objective'))}"
    width = max((len(str(one.get("name"))) for one in result["candidates"]), default=0)
    for one in result["candidates"]:
        rates = ", ".join(f"{_figure(rate)} at {at}" for at, rate in (one.get("output_tok_s") or {}).items())
        told = f"{rates} output tok/s" if rates else ""
        why = _line(one.get("reason"))
        yield f"  {str(one.get('name')).ljust(width)}  {one.get('state')}  {'; '.join(filter(None, (told, why)))}"
    if returned.get("comparison"):
        yield from _compared(returned["comparison"])
    winner = result.get("winner")
    unconfirmed = winner and result.get("verdict") == "unconfirmed" and not _serves_other(returned)
    serves = ", not confirmed, so what served before serves" if unconfirmed else ""
    yield f"  winner     {winner or 'none, what served before serves'}{serves}: {result.get('why')}"
    chosen = next((one for one in result["candidates"] if one.get("name") == winner), None)
    if chosen:
        yield f"  to {'take it all the same' if unconfirmed else 'keep it'}, declare in the inventory:"
        settings = chosen["settings"] if isinstance(chosen.get("settings"), Mapping) else {}
        yield f"    backend: {settings.get('backend')}"
        yield f"    sglang_version: {json.dumps(settings.get('sglang_version'))}"
        yield f"    sglang_autotune_gate: {settings.get('autotune_gate')}"
        yield f"    sglang_server_args: {json.dumps(settings.get('args'))}"
        yield f"    sglang_server_env: {json.dumps(settings.get('env'))}"


def _serves_other(returned: Mapping[str, Any]) -> bool:
    """Whether another release than before is to serve."""
    return returned.get("serves") != returned.get("original_release")


def _explanation(returned: Mapping[str, Any], result: Mapping[str, Any]) -> Iterable[str]:
    yield f"Explanation {returned['id']}, output tok/s at {result.get('concurrency')} in flight"
    for step in result["steps"]:
        alone = step.get("alone_percent")
        by_itself = f"; alone {_change(alone, step.get('alone_band_percent'))}" if alone is not None else ""
        change = _change(step.get("change_percent"), step.get("band_percent"))
        yield f"  {step.get('name')}: {change}{by_itself}  {step.get('verdict')}"
    for one in returned.get("candidates") or []:
        if one.get("reason"):
            yield f"  {one.get('name')}  {one.get('state')}: {_line(one['reason'])}"
    total = result.get("total")
    if isinstance(total, Mapping):
        yield f"  all of it: {_change(total.get('change_percent'), total.get('band_percent'))}"
    yield from _breakdown(result.get("breakdown"))
    for note in result.get("notes") or []:
        yield f"  note       {note}"


def _breakdown(breakdown: Any) -> Iterable[str]:
    """Milliseconds of a decode step by kind, of both sides beside each other."""
    if not isinstance(breakdown, Mapping):
        return
    given = [breakdown.get(name) for name in ("a", "b")]
    sides = [side if isinstance(side, Mapping) else {} for side in given]
    of_step = _roofline([_floor(side).get("step") for side in sides])
    yield f"  a decode step: {' -> '.join(_figure(side.get('step_ms'), 3) for side in sides)} ms{of_step}"
    kinds = dict.fromkeys(kind for side in sides for kind in side.get("ms") or {})
    for kind in kinds:
        told = " -> ".join(_figure((side.get("ms") or {}).get(kind), 3) for side in sides)
        parts = [_floor(side).get("kinds") for side in sides]
        of_kind = _roofline([part.get(kind) if isinstance(part, Mapping) else None for part in parts])
        yield f"    {kind}: {told} ms{of_kind}"


def _floor(side: Mapping[str, Any]) -> Mapping[str, Any]:
    floor = side.get("floor")
    return floor if isinstance(floor, Mapping) else {}


def _roofline(rows: list[Any]) -> str:
    """How near both sides are to the speed of the memory, nothing where neither is known."""
    shares = [row.get("share") if isinstance(row, Mapping) else None for row in rows]
    if not any(map(_number, shares)):
        return ""
    told = " -> ".join(f"{share:.0%}" if _number(share) else "-" for share in shares)
    return f", {told} of the roofline"


def _line(reason: Any) -> str:
    return " ".join(str(reason or "").split())[:600]


def _change(percent: Any, band: Any) -> str:
    if not _number(percent):
        return "not measured"
    known = isinstance(band, list) and len(band) == 2 and all(map(_number, band))
    return f"{percent:+.1f} %" + (f" ({band[0]:+.1f} to {band[1]:+.1f} %)" if known else "")


def _figure(value: Any, digits: int = 1) -> str:
    return f"{value:.{digits}f}" if _number(value) else "-"


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"experiment_lines": experiment_lines}
