# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""May two sets of recorded runs be compared at all? Only what was measured in the same way, on the same, may.

Versions, arguments, gate, environment and backend are what one compares: they are differences, not obstacles.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import speculation
from ansible_collections.tokforge.sglang.plugins.module_utils.comparison_units import (
    figures,
    mapping,
    points,
    start_id,
)

UNKNOWN = "unknown"
#: The figure that decides which runs belong together.
DECIDES = "output_tok_s"
# What every point of a run shares, and what is said of it.
_SHARED = {
    "dataset": "data set",
    "range_ratio": "range of lengths",
    "seed": "seed",
    "ignore_eos": "ignore_eos",
    "flush_cache": "flush_cache",
}
_AT_POINT = {"num_prompts": "number of prompts", "input_len": "input length", "output_len": "output length"}
_COUNT = re.compile(r"^[0-9]{1,4} ?x ")

Records = Sequence[Mapping[str, Any]]


def obstacles(a: Records, b: Records) -> list[str]:
    """Why the sides cannot be compared, whatever the point; empty when nothing is against it."""
    found = [f"there is no run of {name}" for name, side in (("a", a), ("b", b)) if not side]
    if found:
        return found
    found += _twice(a, b)
    found += [reason for name, side in (("a", a), ("b", b)) for reason in _of_side(name, side)]
    first, everybody = a[0], [*a, *b]
    engines = [mapping(record.get("engine")).get("name") for record in everybody]
    found += _differ("measured with", engines, "")
    found += _differ("models", [_model(record, first) for record in everybody], "")
    weights = [mapping(record.get("context")).get("random_weights") is True for record in everybody]
    found += _differ("random weights", weights, "")
    kinds = [kind for record in everybody if (kind := hardware_kind(record)) != UNKNOWN]
    found += _differ("hardware", kinds, "")
    for key, words in _SHARED.items():
        found += _differ(words, [mapping(record.get("parameters")).get(key) for record in everybody], "")
    return [*found, *_found_in_cache(everybody)]


def notes(a: Records, b: Records) -> list[str]:
    """What a reader must know of a comparison that is made nevertheless."""
    found = []
    everybody = [*a, *b]
    if any(hardware_kind(record) == UNKNOWN for record in everybody):
        found.append("the hardware of a run is not on record: that both are of the same is taken for granted")
    counts = [[record.get("gpu_count") for record in side if record.get("gpu_count") is not None] for side in (a, b)]
    if all(counts) and counts[0][0] != counts[1][0]:
        found.append(f"a ran on {_shown(counts[0][0])} GPUs and b on {_shown(counts[1][0])}: rates are of all together")
    revisions = [mapping(mapping(record.get("context")).get("model")).get("revision") for record in everybody]
    if len({_key(value) for value in revisions}) > 1:
        found.append("the sides have the model in different revisions")
    times = [sorted(str(record.get("recorded_at") or "") for record in side) for side in (a, b)]
    if all(side and side[0] for side in times) and (times[0][-1] < times[1][0] or times[1][-1] < times[0][0]):
        found.append(
            "the sides were measured one after the other, not in turns: what changed on the machine in between is "
            "in the change"
        )
    return found


def common_points(a: Records, b: Records, metric: str) -> tuple[list[int], list[str]]:
    """The concurrencies that all runs have measured alike, and why others are left out, a sentence each."""
    everybody = [*a, *b]
    measured = [points(record) for record in everybody]
    common, left_out = [], []
    for concurrency in sorted({value for record in measured for value in record}):
        there = [record[concurrency] for record in measured if concurrency in record]
        if len(there) < len(everybody):
            # Ladders of different length are no accident; one line for all of them is enough.
            left_out.append(f"concurrency {concurrency} was not measured by all runs")
            continue
        against = list(_against(everybody, there, metric))
        if against:
            left_out.append(f"concurrency {concurrency}: {'; '.join(against)}")
        else:
            common.append(concurrency)
    return common, left_out


def misfit(base: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Why two records cannot be compared, "" when they can."""
    reasons = obstacles([base], [record])
    if not reasons:
        common, left_out = common_points([base], [record], DECIDES)
        reasons = [] if common else left_out or ["there is no point in them"]
    # A ladder of other lengths says the same at each point.
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return f"{reasons[0]}{more}" if reasons else ""


def hardware_kind(record: Mapping[str, Any]) -> str:
    """A record's hardware without how many GPUs there are: one compares four with eight, not one kind with another."""
    found = record.get("hardware")
    return _COUNT.sub("", found) if isinstance(found, str) and found else UNKNOWN


def _against(records: Records, there: Records, metric: str) -> Iterator[str]:
    for key, words in _AT_POINT.items():
        yield from _differ(words, [point.get(key) for point in there], "")
    if any(point.get("valid") is False for point in there):
        yield "a run is invalid there"
    elif not all(figures(point, metric) for point in there):
        yield f"a run has no usable {metric}"
    elif any(_random(record) for record in records) and len({speculation.in_record(record) for record in records}) > 1:
        yield speculation.WHY_NOT


def _random(record: Mapping[str, Any]) -> bool:
    return str(mapping(record.get("parameters")).get("dataset") or "").startswith("random")


def _twice(a: Records, b: Records) -> list[str]:
    """A run compared with itself, or counted twice, would look more certain than it is."""
    ids = [identity for record in (*a, *b) if isinstance(identity := record.get("id"), str)]
    twice = sorted({identity for identity in ids if ids.count(identity) > 1})
    return [f"the run {twice[0]} is there twice"] if twice else []


def _found_in_cache(records: Records) -> list[str]:
    """A server whose prefix cache is not emptied has the prompts of the first run when the second sends them again."""
    starts = [start_id(record) for record in records if _keeps_prompts(record)]
    if all(starts.count(start) < 2 for start in starts if start):
        return []
    return [
        "the prefix cache was not emptied and two runs were on one start of the server, so the later one found its "
        "prompts in it: restart the server in between"
    ]


def _keeps_prompts(record: Mapping[str, Any]) -> bool:
    args = {str(name).replace("_", "-"): value for name, value in _part(record, "context", "args").items()}
    return mapping(record.get("parameters")).get("flush_cache") is False and args.get("disable-radix-cache") is not True


def _part(record: Mapping[str, Any], name: str, inner: str) -> Mapping[str, Any]:
    return mapping(mapping(record.get(name)).get(inner))


def _of_side(name: str, side: Records) -> Iterator[str]:
    invalid = [record for record in side if record.get("valid") is not True]
    if invalid:
        reasons = invalid[0].get("reasons")
        first = reasons[0] if isinstance(reasons, list) and reasons else "no reason on record"
        yield f"the run {invalid[0].get('id')} of {name} is invalid ({str(first)[:200]})"
    configurations = {_key(record.get("configuration")) for record in side if record.get("configuration")}
    if len(configurations) > 1:
        yield f"the runs of {name} are of {len(configurations)} configurations"


def _model(record: Mapping[str, Any], first: Mapping[str, Any]) -> Any:
    """The model's path, or that of the first record when it is the same model in another place."""
    own, other = (mapping(mapping(one.get("context")).get("model")) for one in (record, first))
    same_name = own.get("served_name") == other.get("served_name")
    return other.get("path") if same_name and _last(own.get("path")) == _last(other.get("path")) else own.get("path")


def _last(path: Any) -> Any:
    return os.path.basename(path.rstrip("/")) if isinstance(path, str) else path


def _differ(words: str, values: Sequence[Any], unit: str) -> list[str]:
    different = {_key(value): value for value in values}
    if len(different) < 2:
        return []
    return [f"{words}: {' and '.join(_shown(value) + unit for value in list(different.values())[:3])}"]


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else _key(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
