# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What differs between two recorded runs besides their figures, the most telling first: it may explain the figures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from statistics import mean
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    argument_weights,
    engine_bench_serving,
    redact,
    server_args_diff,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.comparison_units import figure, mapping, points
from ansible_collections.tokforge.sglang.plugins.module_utils.server_args_diff import ABSENT

#: Starts whose times differ by less than this (percent of the longer one) took as long.
START_PERCENT = 20.0
#: Shares of the power limit that differ by less than this are alike.
POWER_SHARE = 0.05
_LONGEST = 200
# Names as `redact.is_secret` writes them.
_SECRET = re.compile(
    r"(KEY|PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|CREDENTIALS?)(_?\d+)?$|(^|_)(PAT|PASS|PWD|JWT|AUTH|AUTHORIZATION|COOKIE)$"
    r"|(^|_)(SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_?KEY|ACCESS_KEY|PRIVATE_KEY)(_|$)"
)
# The working directory.
_NO_SECRETS = ("PWD", "OLDPWD")
_PARAMETERS = ("dataset", "range_ratio", "input_len", "output_len", "seed", "flush_cache", "ignore_eos")


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The differences of two records: `what` kind, its `name`, and the value in `a` and in `b`.

    `what` is model, hardware, engine, sglang_version, backend, gate, args, env, cache, parameters, versions,
    environment, start or power. What a side does not have is "(absent)". A flag under its old name and its new one, and
    what is off and what is not there, are no difference. Values of keys, tokens and passwords are not shown.
    """
    first, second = mapping(a.get("context")), mapping(b.get("context"))
    found = [
        *_keys("model", first.get("model"), second.get("model")),
        *_pair("model", "random_weights", first.get("random_weights"), second.get("random_weights")),
        *_pair("hardware", "hardware", a.get("hardware"), b.get("hardware")),
        *_pair("hardware", "gpu_count", a.get("gpu_count"), b.get("gpu_count")),
        *_pair("engine", "name", mapping(a.get("engine")).get("name"), mapping(b.get("engine")).get("name")),
        *_engine_version(mapping(a.get("engine")), mapping(b.get("engine"))),
        *_pair("sglang_version", "sglang", first.get("sglang_version"), second.get("sglang_version")),
        *_pair("backend", "backend", first.get("backend"), second.get("backend")),
        *_keys("gate", first.get("autotune_gate"), second.get("autotune_gate")),
        *_arguments(first.get("args"), second.get("args")),
        *_keys("env", first.get("env"), second.get("env")),
        *_cache(a.get("start"), b.get("start")),
        *_parameters(a.get("parameters"), b.get("parameters")),
        *_keys("versions", first.get("versions"), second.get("versions")),
        *_pair("environment", "environment", first.get("environment"), second.get("environment")),
        *_start(mapping(a.get("start")), mapping(b.get("start"))),
        *_power(a, b),
    ]
    return [{**entry, **{side: _told(entry, entry[side]) for side in ("a", "b")}} for entry in found]


def _told(entry: Mapping[str, Any], value: Any) -> Any:
    """A side's value as it may be shown; of what is called a secret only whether it is there."""
    if value == ABSENT or value is None or isinstance(value, bool):
        return value
    name = str(entry["name"])
    named = entry["what"] in ("env", "args") and name not in _NO_SECRETS and redact.is_secret(name, _SECRET)
    # Only a part of a text that tells it by itself is hidden; of the others it is not known where they end.
    return redact.REDACTED if named or redact.holds_secret(value, _SECRET, told=False) else _shown(value)


def _pair(what: str, name: str, a: Any, b: Any) -> list[dict[str, Any]]:
    x, y = (ABSENT if value is None else value for value in (a, b))
    return [] if _same(x, y) else [{"what": what, "name": name, "a": x, "b": y}]


def _same(x: Any, y: Any) -> bool:
    # True equals 1 in Python, and is another value here.
    return type(x) is type(y) and bool(x == y) if isinstance(x, bool) or isinstance(y, bool) else bool(x == y)


def _keys(what: str, a: Any, b: Any) -> Iterator[dict[str, Any]]:
    x, y = mapping(a), mapping(b)
    for name in sorted({*map(str, x), *map(str, y)}):
        yield from _pair(what, name, x.get(name), y.get(name))


def _engine_version(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The release of an engine of its own. bench_serving's is that of SGLang, which is told anyway."""
    if a.get("name") == b.get("name") != engine_bench_serving.NAME:
        yield from _pair("engine", "version", a.get("version"), b.get("version"))


def _arguments(a: Any, b: Any) -> Iterator[dict[str, Any]]:
    try:
        found = server_args_diff.diff(mapping(a), mapping(b))
    except (RecursionError, TypeError, ValueError, AttributeError):
        # Arguments that no server could have been started with.
        yield {"what": "args", "name": "args", "a": a, "b": b}
        return
    for one in found:
        if one.weight != argument_weights.INCIDENTAL:
            yield {"what": "args", "name": one.name, "a": one.left, "b": one.right}


def _cache(a: Any, b: Any) -> Iterator[dict[str, Any]]:
    """The tuning results at the start: what the launcher said of them, in words or by directory."""
    if not isinstance(a, Mapping) or not isinstance(b, Mapping):
        return
    x, y = a.get("cache_before"), b.get("cache_before")
    if isinstance(x, Mapping) and isinstance(y, Mapping):
        yield from _keys("cache", x, y)
    else:
        yield from _pair("cache", "cache_before", x or None, y or None)
    yield from _pair("cache", "cold", a.get("cold"), b.get("cold"))


def _parameters(a: Any, b: Any) -> Iterator[dict[str, Any]]:
    x, y = mapping(a), mapping(b)
    for name in _PARAMETERS:
        yield from _pair("parameters", name, x.get(name), y.get(name))


def _start(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if not a or not b:
        return
    yield from _pair("start", "autotune_outcome", _outcome(a), _outcome(b))
    x, y = figure(a.get("ready_s")), figure(b.get("ready_s"))
    if x is not None and y is not None and abs(x - y) * 100 >= START_PERCENT * max(x, y):
        yield {"what": "start", "name": "ready_s", "a": x, "b": y}


def _outcome(start: Mapping[str, Any]) -> Any:
    told = start.get("autotune_outcome")
    return told if told is not None else mapping(start.get("autotune")).get("outcome")


def _power(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """How much of their power limit the GPUs used, on average over them: little power is little work."""
    first, second = points(a), points(b)
    for concurrency in sorted(set(first) & set(second)):
        x, y = power_share(first[concurrency]), power_share(second[concurrency])
        if x is not None and y is not None and abs(x - y) >= POWER_SHARE:
            yield {"what": "power", "name": f"power_share at concurrency {concurrency}", "a": x, "b": y}


def power_share(point: Mapping[str, Any]) -> float | None:
    """The share of their power limit that the GPUs used at a point, on average over them; None when nobody knows."""
    listed = point.get("gpu")
    shares = [figure(mapping(gpu).get("power_share")) for gpu in (listed if isinstance(listed, list) else [])]
    known = [share for share in shares if share is not None]
    return round(mean(known), 3) if known else None


def _shown(value: Any) -> Any:
    """A value as it is, or shortened text of one that would fill the page."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    told = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    text = redact.hide_told(told)
    if len(text) > _LONGEST:
        return f"{text[: _LONGEST - 3]}..."
    return value if text == told else text
