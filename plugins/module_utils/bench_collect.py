# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading what a benchmark wrote: take secrets out, judge each repetition, put points together."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
_NUMBER = re.compile(r"[0-9.]+")
_TOO_DEEP = "benchmark output: it is nested too deep; see the benchmark's log"
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
    """Read, redact and judge. `hidden` are secrets that must not stay in the files, nor in what is returned.

    A point has `argv`, the command line of its first repetition. One without any repetition is not in the list.
    """
    judged: dict[int, list[dict[str, Any]]] = {}
    durations: dict[tuple[int, int], float | None] = {}
    failures: list[str] = []
    for one in runs:
        path = engine.output_path(one.directory)
        try:
            result = _read(engine, path)
            secrets = _told_secrets(result, hidden)
            # Before it is judged: a reason has the begin of a long text, which can end within a secret.
            clear = {name: one if name in _BULK else _without(one, secrets) for name, one in result.items()}
            _keep(path, result, engine, secrets)
        except FileNotFoundError:
            # The process' own failure says why; a point that is not there is named by judge_run.
            continue
        except BenchmarkError as error:
            _hide(path, _told_secrets({}, hidden))
            failures.append(f"concurrency {one.concurrency}, repetition {one.repetition + 1}: {error}")
            continue
        found = bench_judge.judge(clear, parameters, one.concurrency, random_weights, engine.not_told)
        judged.setdefault(one.concurrency, []).append(found)
        durations[one.concurrency, one.repetition] = found["duration_s"]
    points = [
        {**bench_points.point(judged[value], parameters.repetitions), "argv": _argv(engine, runs, value)}
        for value in parameters.concurrency
        if value in judged
    ]
    told = _told_secrets({}, hidden)
    return Collected(_without(points, told), _without("; ".join(failures), told) or None, durations)


def clean(run_dir: str, hidden: Sequence[str]) -> list[str]:
    """Take secrets out of whatever else the engine left: its logs, its configuration, its other exports.

    Returns the files that held one. What is too large to look at is removed, as with the results.
    """
    secrets = _told_secrets({}, hidden)
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
            clear = _without_bytes(data, secrets)
            if clear != data:
                write_atomic(path, clear)
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


def _keep(path: str, result: Mapping[str, Any], engine: Engine, secrets: Sequence[str]) -> None:
    if engine.name != engine_bench_serving.NAME:
        _hide(path, secrets)
        return
    kept = result
    if os.path.getsize(path) > KEPT_OUTPUT_BYTES:
        kept = {name: value for name, value in result.items() if name not in _BULK}
    # In its texts alone: in its bytes a key of digits stands in figures as well.
    write_atomic(path, engine_bench_serving.redact(_without(kept, secrets)))


def _keys(told: Any, name: str = "") -> Iterator[str]:
    """Secrets that a server tells of itself: they stand in its schedulers' states and its command line as well."""
    if isinstance(told, Mapping):
        for key, value in told.items():
            yield from _keys(value, str(key))
    elif isinstance(told, list):
        for value in told:
            yield from _keys(value, name)
    elif isinstance(told, str) and len(told) >= _SHORTEST_KEY and engine_bench_serving.SECRET_NAME.search(name):
        yield told


def _hide(path: str, secrets: Sequence[str]) -> None:
    """Take the secrets out of an output that cannot be read as JSON; it stays as evidence, unless it is too large."""
    if os.path.getsize(path) > MOST_OUTPUT_BYTES:
        os.unlink(path)
        return
    with open(path, "rb") as handle:
        data = handle.read()
    write_atomic(path, _without_bytes(data, secrets))


def _told_secrets(result: Mapping[str, Any], hidden: Iterable[str]) -> list[str]:
    """What is looked for, as it is and as it stands in JSON, those first that may have others in them.

    Raises BenchmarkError for a result that is nested too deep.
    """
    try:
        told = [*hidden, *_keys(result.get("server_info"))]
    except RecursionError as error:
        raise BenchmarkError(_TOO_DEEP) from error
    forms = {form for one in told if len(one) >= _SHORTEST_KEY for form in (one, json.dumps(one)[1:-1])}
    return sorted(forms, key=lambda one: (-len(one), one))


def _without_bytes(data: bytes, secrets: Sequence[str]) -> bytes:
    """A file's content without the secrets. One that looks like a number is no part of a longer number."""
    for secret in secrets:
        told = secret.encode("utf-8", "surrogatepass")
        if told in data:
            form = rb"(?<![\d.])" + re.escape(told) + rb"(?![\d.])" if _NUMBER.fullmatch(secret) else re.escape(told)
            data = re.sub(form, engine_bench_serving.REDACTED.encode(), data)
    return data


def _without(value: Any, secrets: Sequence[str]) -> Any:
    """Plain data without the secrets in any text of it. Raises BenchmarkError for what is nested too deep."""
    try:
        return _replaced(value, secrets)
    except RecursionError as error:
        raise BenchmarkError(_TOO_DEEP) from error


def _replaced(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, engine_bench_serving.REDACTED)
        return value
    if isinstance(value, Mapping):
        return {_replaced(name, secrets): _replaced(item, secrets) for name, item in value.items()}
    return [_replaced(item, secrets) for item in value] if isinstance(value, (list, tuple)) else value
