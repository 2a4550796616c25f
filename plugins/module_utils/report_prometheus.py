# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report in the text format that Prometheus reads, for the textfile collector of node_exporter.

The format: a HELP and a TYPE line for each metric, then one line a series; in a label's value a backslash, a quote and
a newline are written with a backslash before them. No line has a time stamp: the collector refuses files that have
one, so the time of a record is a metric of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils import report_types as types

PREFIX = "tokforge_sglang"
# Metric -> its help. All are gauges.
_METRICS = {
    "facts_readable": "1 when the fact file of the host could be read or does not exist, 0 otherwise.",
    "benchmark_valid": "1 when the newest run of the configuration may be believed at this concurrency, 0 otherwise.",
    "benchmark_recorded_timestamp_seconds": "Unix time at which the newest run was recorded.",
    "benchmark_output_tokens_per_second": "Output tokens a second of all requests, median of the repetitions.",
    "benchmark_ttft_seconds": "Median time to first token, median of the repetitions.",
    "benchmark_tpot_seconds": "Median time per output token after the first, median of the repetitions.",
    "benchmark_power_share": "Power by power limit, mean over the GPUs, 0 to 1.",
    "benchmark_roofline_share": "Output tokens a second by the ceiling of the memory bandwidth, 0 to 1.",
    "regression_gate_passed": "1 when the newest run passed the regression gate, 0 when it failed.",
}


@dataclass(frozen=True)
class _Sample:
    metric: str
    labels: tuple[tuple[str, str], ...]
    value: float


def render(report: types.Report) -> str:
    """The text, with a newline at its end. Figures of runs that may not be believed are left out."""
    samples = [sample for host in report.hosts for sample in _of_host(host)]
    lines: list[str] = []
    for metric, told in _METRICS.items():
        series: dict[str, float] = {}
        for sample in samples:
            if sample.metric == metric:
                # The same labels twice would make the collector refuse the whole file.
                series.setdefault(_labels(sample.labels), sample.value)
        if series:
            lines += [f"# HELP {PREFIX}_{metric} {told}", f"# TYPE {PREFIX}_{metric} gauge"]
            lines += [f"{PREFIX}_{metric}{labels} {_number(value)}" for labels, value in series.items()]
    return "\n".join(lines) + "\n"


def _of_host(host: types.Host) -> Iterator[_Sample]:
    yield _Sample("facts_readable", (("host", host.name),), float(host.state != types.UNREADABLE))
    for one in host.configurations:
        run = one.latest
        labels = (
            ("host", one.host),
            ("model", run.workload.model),
            ("backend", run.backend),
            ("version", run.sglang_version),
            ("engine", run.workload.engine),
            ("configuration", one.label),
            ("input_len", _length(run.workload.input_len)),
            ("output_len", _length(run.workload.output_len)),
        )
        if run.recorded_s is not None:
            yield _Sample("benchmark_recorded_timestamp_seconds", labels, run.recorded_s)
        gate = one.comparison.regression if one.comparison else None
        if gate is not None and gate.judged:
            yield _Sample("regression_gate_passed", labels, float(gate.passed))
        for point in run.points:
            yield from _of_point(run, point, (*labels, ("concurrency", str(point.concurrency))))


def _of_point(run: types.Run, point: types.Point, labels: tuple[tuple[str, str], ...]) -> Iterator[_Sample]:
    good = run.valid and point.valid
    yield _Sample("benchmark_valid", labels, float(good))
    if not good:
        return
    figures = {
        "benchmark_output_tokens_per_second": point.output_tok_s.median,
        "benchmark_ttft_seconds": _from_ms(point.ttft_ms.median),
        "benchmark_tpot_seconds": _from_ms(point.tpot_ms.median),
        "benchmark_power_share": point.power_share.median,
        "benchmark_roofline_share": point.roofline_share,
    }
    for metric, value in figures.items():
        if value is not None:
            yield _Sample(metric, labels, value)


def _from_ms(value: float | None) -> float | None:
    return None if value is None else value / 1000


def _length(value: int | None) -> str:
    return "" if value is None else str(value)


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.10g}"
