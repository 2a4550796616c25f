# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From fact files of several hosts to the values of a report.

A fact file can be of an older schema, of a newer one, or hold anything at all: what cannot be read becomes None or an
empty text, never an exception. The order of the output depends on the input alone.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import report_types as types
from ansible_collections.tokforge.sglang.plugins.module_utils import speculation
from ansible_collections.tokforge.sglang.plugins.module_utils.report_records import comparison, explanation, sweep
from ansible_collections.tokforge.sglang.plugins.module_utils.report_start import start
from ansible_collections.tokforge.sglang.plugins.module_utils.report_values import (
    figure,
    items,
    mapping,
    number,
    text,
    texts,
    whole,
)

#: The newest schema of a fact file that is understood.
SCHEMA_VERSION = 2
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_LABEL_SETTINGS = 3


def document_of(data: bytes, where: str) -> dict[str, Any]:
    """The document in the bytes of a fact file. Raises ReportError when there is none that can be understood."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise types.ReportError(
            f"cannot read {where}: it is not JSON ({error}); the next benchmark sets it aside and begins a new one"
        ) from None
    if not isinstance(document, dict):
        raise types.ReportError(f"cannot read {where}: it holds no object; look at what wrote it")
    version, needs = whole(document.get("schema_version")), whole(document.get("compatible_with"))
    if version is None or version < 1:
        raise types.ReportError(f"cannot read {where}: it has no schema_version; look at what wrote it")
    # A newer schema says which version is enough to read it.
    if version > SCHEMA_VERSION and (needs is None or needs > SCHEMA_VERSION):
        raise types.ReportError(
            f"cannot read {where}: it was written with schema {version}, this version of the collection knows"
            f" {SCHEMA_VERSION}; use the newer version of the collection"
        )
    return document


def make(hosts: Mapping[str, Mapping[str, Any] | str | None]) -> types.Report:
    """The report of hosts: each a document, a text that says why there is none, or None when nothing is on record."""
    made = tuple(_host(text(name), content) for name, content in hosts.items())
    times = (run.recorded_at for host in made for one in host.configurations for run in (one.latest, one.shown) if run)
    return types.Report(made, max((time for time in times if _TIME.fullmatch(time)), default=""))


def best_at(configurations: Iterable[types.Configuration]) -> tuple[types.Best, ...]:
    """For each concurrency, from the lowest, the fastest of some configurations, which are of one host and workload."""
    shown = [(one, point) for one in configurations if one.shown for point in one.shown.good_points]
    found = []
    for concurrency in sorted({point.concurrency for _one, point in shown}):
        here = [(one, point) for one, point in shown if point.concurrency == concurrency]
        winner, point = max(here, key=lambda pair: pair[1].output_tok_s.median or 0.0)
        rivals = [one.label for one, other in here if one is not winner and _overlap(point, other)]
        found.append(types.Best(winner, point, tuple(rivals)))
    return tuple(found)


def _overlap(winner: types.Point, other: types.Point) -> bool:
    least, most = winner.output_tok_s.least, other.output_tok_s.most
    return least is not None and most is not None and most >= least


# --- hosts -----------------------------------------------------------------------------------------------------------


def _host(name: str, content: Mapping[str, Any] | str | None) -> types.Host:
    if isinstance(content, str):
        return types.Host(name, types.UNREADABLE, text(content) or "no reason was given")
    document = mapping(content)
    comparisons = tuple(comparison(one, name) for one in items(document.get("comparisons")))
    configurations = tuple(_labelled(_configurations(name, document, comparisons)))
    return types.Host(
        name,
        types.MEASURED if configurations else types.EMPTY,
        "" if configurations else "no benchmark is on record; run benchmark.yml or deploy.yml",
        configurations,
        comparisons,
        tuple(sweep(one, name) for one in items(document.get("sweeps"))),
        tuple(explanation(one, name) for one in items(document.get("explanations"))),
    )


def _key(run: types.Run) -> tuple[Any, ...]:
    return (run.workload, run.hardware, run.fingerprint)


def _configurations(
    host: str, document: Mapping[str, Any], comparisons: Sequence[types.Comparison]
) -> Iterator[types.Configuration]:
    """What was recorded, grouped; the group of the oldest first record comes first."""
    results = [mapping(one) for one in items(document.get("results"))]
    recorded = [one for one in [document.get("latest"), document.get("baseline")] if isinstance(one, Mapping)]
    recorded += [one[name] for one in results for name in ("latest", "baseline") if isinstance(one.get(name), Mapping)]
    records = [*items(document.get("history")), *recorded]
    groups: dict[tuple[Any, ...], dict[str, types.Run]] = {}
    for place, record in enumerate(records):
        run = run_of(record)
        # A run without an id is told apart from the others by its place.
        groups.setdefault(_key(run), {}).setdefault(run.id or f"#{place}", run)
    entries = {_key(run_of(mapping(one.get("latest")))): one for one in results}
    old_baseline = document.get("baseline")
    for key, group in groups.items():
        # Sorting keeps the order of the history among runs of one time.
        runs = sorted(group.values(), key=lambda run: run.recorded_at)
        entry = entries.get(key, {})
        baseline = entry.get("baseline") or old_baseline
        kept = run_of(baseline) if isinstance(baseline, Mapping) else None
        latest = runs[-1]
        yield types.Configuration(
            host,
            text(entry.get("label")) or f"{latest.sglang_version or '?'} {latest.backend or '?'}",
            latest,
            next((run for run in reversed(runs) if run.good_points), None),
            kept if kept is not None and _key(kept) == key else None,
            entry.get("declared") is True,
            len(runs),
            _against_baseline(latest, comparisons),
            _starts(runs),
        )


def _starts(runs: Sequence[types.Run]) -> tuple[types.Start, ...]:
    """Of runs in the order of time the newest start of each kind of caches."""
    newest: dict[bool | None, types.Start] = {}
    for run in runs:
        if run.start is not None:
            newest.pop(run.start.cold, None)
            newest[run.start.cold] = run.start
    return tuple(newest.values())


def _against_baseline(run: types.Run, comparisons: Sequence[types.Comparison]) -> types.Comparison | None:
    """The newest one whose newer side is this very run: an older verdict says nothing of it."""
    of_run = [one for one in comparisons if one.kind == "baseline" and run.id and run.id in one.b_ids]
    return max(of_run, key=lambda one: one.recorded_at, default=None)


def _labelled(configurations: Iterable[types.Configuration]) -> Iterator[types.Configuration]:
    """With labels that differ: those of equal ones get what differs between them, then the fingerprint."""
    given = list(configurations)
    taken: set[str] = set()
    for one in given:
        same = [other for other in given if other.label == one.label]
        told = [dict(other.latest.settings) for other in same]
        names = sorted({name for settings in told for name in settings})
        differ = [name for name in names if len({settings.get(name, "") for settings in told}) > 1]
        own = dict(one.latest.settings)
        words = [f"{name}={own[name]}" for name in differ if name in own][:_LABEL_SETTINGS]
        label = f"{one.label} ({', '.join(words)})" if words else one.label
        if label in taken:
            label = f"{label} [{one.latest.fingerprint[:6] or len(taken)}]"
        while label in taken:
            label += "'"
        taken.add(label)
        yield replace(one, label=label)


# --- one record ------------------------------------------------------------------------------------------------------


def run_of(given: Any) -> types.Run:
    """A record, of any schema."""
    record = mapping(given)
    context, parameters, engine = (mapping(record.get(name)) for name in ("context", "parameters", "engine"))
    model = _model(context, mapping(record.get("model_shape")))
    points = tuple(point for one in items(record.get("points")) for point in _point(mapping(one)))
    first = next(iter(items(record.get("points"))), {})
    lengths = [whole(parameters.get(name, first.get(name))) for name in ("input_len", "output_len")]
    recorded_at = text(record.get("recorded_at"))
    check = mapping(record.get("output_check"))
    return types.Run(
        text(record.get("id")),
        recorded_at,
        _seconds(recorded_at),
        types.Workload(
            model.name,
            text(engine.get("name")),
            lengths[0],
            lengths[1],
            text(parameters.get("dataset")),
            tuple(_particulars(record, parameters)),
        ),
        text(engine.get("version")),
        text(record.get("hardware")) or "unknown",
        min(max(whole(record.get("gpu_count")) or 0, 0), 4096),
        text(context.get("backend")),
        text(context.get("sglang_version")),
        text(record.get("fingerprint")),
        record.get("valid") is True,
        texts(record.get("reasons")),
        texts(record.get("warnings")),
        tuple(sorted(points, key=lambda point: point.concurrency)),
        start(record.get("start")),
        tuple(_settings(context)),
        "" if not check else "passed" if check.get("passed") is True else text(check.get("reason")) or "failed",
        model,
    )


def _model(context: Mapping[str, Any], shape: Mapping[str, Any]) -> types.Model:
    named = mapping(context.get("model"))

    def count(name: str) -> int | None:
        found = whole(shape.get(name))
        return found if found is not None and found >= 0 else None

    return types.Model(
        text(named.get("served_name")) or text(named.get("path")),
        context.get("random_weights") is True,
        count("parameters"),
        count("active_parameters"),
        count("experts"),
        count("experts_per_token"),
        text(shape.get("quantization")),
    )


def _particulars(record: Mapping[str, Any], parameters: Mapping[str, Any]) -> Iterator[str]:
    if speculation.in_record(record):
        yield "speculative decoding"
    if parameters.get("ignore_eos") is False:
        yield "answers may end early"
    if parameters.get("flush_cache") is False:
        yield "prefix cache kept"


def _settings(context: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in sorted(mapping(context.get("args")).items(), key=str):
        yield text(name), text(value)
    gate = text(mapping(context.get("autotune_gate")).get("gate"))
    if gate:
        yield "autotune gate", gate
    for name, value in sorted(mapping(context.get("env")).items(), key=str):
        yield text(name), text(value)


def _point(point: Mapping[str, Any]) -> Iterator[types.Point]:
    concurrency = whole(point.get("concurrency"))
    if concurrency is None or concurrency < 1:
        return
    gpus = [mapping(one) for one in items(point.get("gpu"))]
    power = [value for value in (number(gpu.get("power_w")) for gpu in gpus) if value is not None]
    shares = [value for value in (number(gpu.get("power_share")) for gpu in gpus) if value is not None]
    busy = [value for value in (number(gpu.get("utilization_percent")) for gpu in gpus) if value is not None]
    roofline = mapping(point.get("roofline"))
    yield types.Point(
        concurrency,
        figure(point, "output_tok_s"),
        figure(point, "ttft_median_ms"),
        figure(point, "tpot_median_ms"),
        number(point.get("ttft_p99_ms")),
        whole(point.get("completed")),
        whole(point.get("num_prompts")),
        whole(point.get("repetitions")) or 1,
        number(point.get("accept_length")),
        math.fsum(power) if power else None,
        types.Figure(math.fsum(shares) / len(shares), min(shares), max(shares)) if shares else types.Figure(),
        math.fsum(busy) / len(busy) if busy else None,
        number(roofline.get("share")),
        number(roofline.get("ceiling_tok_s")),
        point.get("valid") is True,
        texts(point.get("reasons")),
    )


def _seconds(recorded_at: str) -> float | None:
    """Seconds since 1970 of a time of ours."""
    if not _TIME.fullmatch(recorded_at):
        return None
    try:
        return datetime.strptime(recorded_at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None
