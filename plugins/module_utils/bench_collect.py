# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading what a benchmark wrote: take secrets out, judge each repetition, put points together."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_judge, bench_points, engine_bench_serving
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_engines import Engine
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_run import Wanted
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError, Parameters

# A raw output is some 20 bytes an output token. Above this the machine's memory is at stake when it is parsed.
MOST_OUTPUT_BYTES = 1 << 30
# Of larger ones the lists with an entry a token are not kept: a ladder would fill the disk.
KEPT_OUTPUT_BYTES = 4 << 20
# What is shorter stands in other words and in numbers, too.
_SHORTEST_KEY = 4
_SECRET_NAME = re.compile(r"(^|_)(key|password|secret|token)$")
_BULK = ("itls", "generated_texts")


@dataclass(frozen=True)
class Collected:
    """The points of a run in order, and why a repetition that should be there cannot be read (None: all readable).

    durations_s: what each took, by concurrency and repetition (from 0).
    """

    points: list[dict[str, Any]]
    failure: str | None
    durations_s: dict[tuple[int, int], float | None]


@dataclass(frozen=True)
class Window:
    """When the requests of a repetition were under way, in seconds of the system's clock."""

    begin_s: float
    end_s: float


def collect(
    engine: Engine,
    parameters: Parameters,
    runs: Sequence[Wanted],
    random_weights: bool,
    hidden: Sequence[str],
) -> Collected:
    """Read, redact and judge. `hidden` are secrets that must not stay in the files.

    A point has `argv`, the command line of its first repetition. One without any repetition is not in the list.
    """
    judged: dict[int, list[dict[str, Any]]] = {}
    durations: dict[tuple[int, int], float | None] = {}
    failures: list[str] = []
    for one in runs:
        path = engine.output_path(one.directory)
        try:
            result = _read(engine, path)
            _keep(path, result, engine, hidden)
        except FileNotFoundError:
            # The process' own failure says why; a point that is not there is named by judge_run.
            continue
        except BenchmarkError as error:
            _hide(path, hidden)
            failures.append(f"concurrency {one.concurrency}, repetition {one.repetition + 1}: {error}")
            continue
        found = bench_judge.judge(result, parameters, one.concurrency, random_weights, engine.not_told)
        judged.setdefault(one.concurrency, []).append(found)
        durations[one.concurrency, one.repetition] = found["duration_s"]
    points = [
        {**bench_points.point(judged[value], parameters.repetitions), "argv": _argv(engine, runs, value)}
        for value in parameters.concurrency
        if value in judged
    ]
    return Collected(points, "; ".join(failures) or None, durations)


def clean(run_dir: str, hidden: Sequence[str]) -> list[str]:
    """Take secrets out of whatever else the engine left: its logs, its configuration, its other exports.

    Returns the files that held one. What is too large to look at is removed, as with the results.
    """
    told = {form for one in hidden if len(one) >= _SHORTEST_KEY for form in (one, json.dumps(one)[1:-1])}
    secrets = [form.encode() for form in sorted(told, key=len, reverse=True)]
    found: list[str] = []
    for directory, _directories, names in os.walk(run_dir) if secrets else ():
        for path in (os.path.join(directory, name) for name in sorted(names)):
            # Sockets and pipes hold nothing, and links what is not ours.
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            if os.path.getsize(path) > MOST_OUTPUT_BYTES:
                os.unlink(path)
                continue
            with open(path, "rb") as handle:
                data = handle.read()
            if any(secret in data for secret in secrets):
                for secret in secrets:
                    data = data.replace(secret, engine_bench_serving.REDACTED.encode())
                write_atomic(path, data)
                found.append(path)
    return found


def windows(
    lines: bytes, runs: Sequence[Wanted], durations_s: Mapping[tuple[int, int], float | None]
) -> dict[int, list[Window]]:
    """Concurrency -> when each of its repetitions was measured, from the driver's lines.

    `durations_s` is what the engine says a repetition took, by concurrency and repetition. An engine prepares before
    and counts after it: where it told its beginning that counts, otherwise the end less the duration.
    """
    found: dict[int, list[Window]] = {}
    times: list[dict[str, float]] = []
    for line in lines.splitlines():
        try:
            entry = json.loads(line)
            if "begin" in entry:
                times.append({})
            for name in ("begin", "main", "end"):
                if name in entry:
                    times[-1][name] = float(entry[name])
        except (ValueError, TypeError, IndexError, RecursionError):
            continue
    for one, told in zip(runs, times):
        took = durations_s.get((one.concurrency, one.repetition))
        if "end" not in told or not took:
            continue
        begin = told["main"] if "main" in told else max(told["begin"], told["end"] - took)
        found.setdefault(one.concurrency, []).append(Window(begin, min(told["end"], begin + took)))
    return found


def _argv(engine: Engine, runs: Sequence[Wanted], concurrency: int) -> list[str]:
    return next(engine.argv(one.arguments) for one in runs if one.concurrency == concurrency)


def _read(engine: Engine, path: str) -> dict[str, Any]:
    size = os.path.getsize(path)
    if size > MOST_OUTPUT_BYTES:
        raise BenchmarkError(f"benchmark output in {path}: {size} bytes are too many to judge; use fewer prompts")
    with open(path, "rb") as handle:
        return engine.figures(handle.read(), path)


def _keep(path: str, result: Mapping[str, Any], engine: Engine, hidden: Sequence[str]) -> None:
    if engine.name != engine_bench_serving.NAME:
        _hide(path, hidden)
        return
    kept = result
    if os.path.getsize(path) > KEPT_OUTPUT_BYTES:
        kept = {name: value for name, value in result.items() if name not in _BULK}
    write_atomic(path, engine_bench_serving.redact(kept, [*hidden, *_keys(result.get("server_info"))]))


def _keys(told: Any, name: str = "") -> Iterator[str]:
    """Secrets that a server tells of itself: they stand in its schedulers' states and its command line as well."""
    if isinstance(told, Mapping):
        for key, value in told.items():
            yield from _keys(value, str(key))
    elif isinstance(told, list):
        for value in told:
            yield from _keys(value, name)
    elif isinstance(told, str) and len(told) >= _SHORTEST_KEY and _SECRET_NAME.search(name):
        yield told


def _hide(path: str, hidden: Sequence[str]) -> None:
    """Take the secrets out of an output that cannot be read as JSON; it stays as evidence, unless it is too large."""
    if os.path.getsize(path) > MOST_OUTPUT_BYTES:
        os.unlink(path)
        return
    with open(path, "rb") as handle:
        data = handle.read()
    write_atomic(path, engine_bench_serving.hide(data, hidden))
