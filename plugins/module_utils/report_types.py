# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a report tells of several hosts: plain values that its writers (HTML, Markdown, JUnit, Prometheus) share.

`report_data` makes them from fact files. A figure that is missing is None, a text that is missing is empty. Texts hold
no control characters; escaping them is each writer's work.
"""

from __future__ import annotations

from dataclasses import dataclass

MEASURED, EMPTY, UNREADABLE = "measured", "empty", "unreadable"
#: Verdicts of a comparison.
FASTER, SLOWER, NO_GAIN, NOT_COMPARABLE = "faster", "slower", "no_measurable_gain", "not_comparable"


class ReportError(Exception):
    """A report cannot be made; the text says what, where, why and what to do."""


@dataclass(frozen=True)
class Figure:
    """Median over the repetitions, with the least and the most of them (None: not recorded)."""

    median: float | None = None
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class Point:
    """One concurrency of one run. Shares are parts of one, not percent.

    `power_share` is the mean over the GPUs of power by limit, with the least and the most GPU. `power_w` is their sum.
    """

    concurrency: int
    output_tok_s: Figure = Figure()
    ttft_ms: Figure = Figure()
    tpot_ms: Figure = Figure()
    ttft_p99_ms: float | None = None
    completed: int | None = None
    num_prompts: int | None = None
    repetitions: int = 1
    accept_length: float | None = None
    power_w: float | None = None
    power_share: Figure = Figure()
    utilization_percent: float | None = None
    roofline_share: float | None = None
    ceiling_tok_s: float | None = None
    valid: bool = False
    reasons: tuple[str, ...] = ()

    @property
    def user_tok_s(self) -> float | None:
        """Tokens a second that one user sees while an answer is written: one by the median time per output token."""
        tpot_ms = self.tpot_ms.median
        # Nobody sees a token a nanosecond; a time below that is damage, and its reciprocal may be no finite number.
        return 1000 / tpot_ms if tpot_ms and tpot_ms > 1e-6 else None


@dataclass(frozen=True)
class Part:
    """A part of a start: seconds, and when it began after the server had read its arguments (None: not known)."""

    name: str
    seconds: float
    began_s: float | None = None


@dataclass(frozen=True)
class RankStart:
    """The parts of one rank's start, in the order weights, CUDA graphs, autotune, as far as they are known."""

    tag: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Start:
    """The start of the server that a run measured. Seconds; `ready_s` counts from the start of the process,
    `listening_s` from the arguments, like the parts. JIT and profiling are known for the whole server only."""

    id: str = ""
    ready_s: float | None = None
    listening_s: float | None = None
    weights_s: float | None = None
    jit_s: float | None = None
    autotune_s: float | None = None
    profiling_s: float | None = None
    graphs_s: float | None = None
    cold: bool | None = None
    ranks: tuple[RankStart, ...] = ()


@dataclass(frozen=True)
class Workload:
    """What was asked of the server. Figures of different workloads or engines stand in no plot together.

    Lengths in tokens of one request, None when they are not recorded. `particulars` is what else keeps figures apart.
    """

    model: str
    engine: str
    input_len: int | None = None
    output_len: int | None = None
    dataset: str = ""
    particulars: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """For a heading."""
        lengths = f", {_or_unknown(self.input_len)} tokens in, {_or_unknown(self.output_len)} out"
        return ", ".join([f"{self.model or 'unknown model'}{lengths}", *self.particulars])


def _or_unknown(value: int | None) -> str:
    return "?" if value is None else str(value)


@dataclass(frozen=True)
class Model:
    """What was served, by what a reader must know of it: counts None where they are not on record, 0 experts: none.

    `random_weights`: the server made them up, so its speed is real and its text is not.
    """

    name: str
    random_weights: bool = False
    parameters: int | None = None
    active_parameters: int | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    quantization: str = ""

    @property
    def words(self) -> str:
        """In one line; empty when nothing beside the name is known."""
        parts = []
        if self.parameters is not None:
            count = f"{_millions(self.parameters)} parameters"
            parts.append(f"{count}, of which a token passes {_millions(self.active_parameters or self.parameters)}")
        if self.experts:
            parts.append(f"{self.experts} experts, {_or_unknown(self.experts_per_token)} a token")
        if self.quantization:
            parts.append(f"quantization {self.quantization}")
        if self.random_weights:
            parts.append("random weights: the speed is real, the text is not")
        return f"{self.name or 'unknown model'}: {'; '.join(parts)}." if parts else ""


def _millions(count: int) -> str:
    return f"{count / 1e9:.1f} billion" if count >= 1e9 else f"{count / 1e6:.1f} million"


@dataclass(frozen=True)
class Run:
    """One record. `settings` is what tells configurations apart: arguments, gate, environment, by name."""

    id: str
    recorded_at: str
    recorded_s: float | None
    workload: Workload
    engine_version: str
    hardware: str
    gpu_count: int
    backend: str
    sglang_version: str
    fingerprint: str
    valid: bool
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    points: tuple[Point, ...] = ()
    start: Start | None = None
    settings: tuple[tuple[str, str], ...] = ()
    output_check: str = ""
    model: Model = Model("")

    @property
    def devices(self) -> int:
        """By what a host's throughput is divided: its GPUs, or the one host that has none."""
        return max(self.gpu_count, 1)

    def at(self, concurrency: int) -> Point | None:
        """The point of this concurrency."""
        return next((point for point in self.points if point.concurrency == concurrency), None)

    @property
    def good_points(self) -> tuple[Point, ...]:
        """Points that may be shown as a result: of a valid run, valid, and with a throughput."""
        return tuple(p for p in self.points if self.valid and p.valid and p.output_tok_s.median is not None)

    @property
    def best(self) -> Point | None:
        """The point with the most output tokens a second, None when no point may be believed."""
        return max(self.good_points, key=lambda point: point.output_tok_s.median or 0.0, default=None)


@dataclass(frozen=True)
class PointComparison:
    """One concurrency of a comparison. Changes in percent of `a`, the band is a confidence interval."""

    concurrency: int | None
    metric: str
    a: Figure
    b: Figure
    a_n: int | None
    b_n: int | None
    change_percent: float | None
    band_percent: tuple[float, float] | None
    p_value: float | None
    verdict: str
    why: str


@dataclass(frozen=True)
class Difference:
    """What differs between two sides of a comparison."""

    what: str
    name: str
    a: str
    b: str


@dataclass(frozen=True)
class Regression:
    """What the regression gate said."""

    judged: bool
    passed: bool
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """`b` held against `a`."""

    host: str
    id: str
    recorded_at: str
    kind: str
    a_label: str
    b_label: str
    b_ids: tuple[str, ...]
    b_fingerprint: str
    verdict: str
    why: str
    unit: str
    points: tuple[PointComparison, ...] = ()
    differences: tuple[Difference, ...] = ()
    regression: Regression | None = None
    notes: tuple[str, ...] = ()

    @property
    def failed_gate(self) -> bool:
        """Whether the regression gate judged and failed."""
        return self.regression is not None and self.regression.judged and not self.regression.passed


@dataclass(frozen=True)
class Configuration:
    """What was recorded of one configuration on one host.

    `latest` is the newest run, `shown` the newest valid one (the one in the plots), `comparison` the newest one of the
    latest run against its baseline. `starts` are the newest start with cold caches and the newest one with warm ones,
    the older first.
    """

    host: str
    label: str
    latest: Run
    shown: Run | None
    baseline: Run | None = None
    declared: bool = False
    runs: int = 1
    comparison: Comparison | None = None
    starts: tuple[Start, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """One candidate of a sweep; `output_tok_s` by concurrency."""

    name: str
    state: str
    reason: str
    output_tok_s: tuple[tuple[str, float | None], ...]
    score: float | None


@dataclass(frozen=True)
class Sweep:
    """Several configurations measured to find the best one for an objective."""

    host: str
    id: str
    recorded_at: str
    objective: str
    candidates: tuple[Candidate, ...]
    original: str
    winner: str
    verdict: str
    why: str
    finished: bool


@dataclass(frozen=True)
class Step:
    """One difference of an explanation: what it changed after the steps before it, and alone (percent)."""

    name: str
    change_percent: float | None
    band_percent: tuple[float, float] | None
    verdict: str
    alone_percent: float | None
    alone_band_percent: tuple[float, float] | None


@dataclass(frozen=True)
class Explanation:
    """How much each difference between two configurations contributes. `breakdown` is what decoding is made of."""

    host: str
    id: str
    recorded_at: str
    a_label: str
    b_label: str
    steps: tuple[Step, ...]
    total_percent: float | None
    total_band_percent: tuple[float, float] | None
    notes: tuple[str, ...] = ()
    breakdown: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Host:
    """One host: `state` is measured, empty (nothing is on record) or unreadable; `why` says more of the last two."""

    name: str
    state: str
    why: str = ""
    configurations: tuple[Configuration, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    explanations: tuple[Explanation, ...] = ()


@dataclass(frozen=True)
class Best:
    """The fastest configuration of a host for a workload at one concurrency, and those that it cannot be told from:
    their repetitions overlap with its own."""

    configuration: Configuration
    point: Point
    rivals: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """All hosts, in the order in which they were given. `recorded_at` is the time of the newest record or empty."""

    hosts: tuple[Host, ...]
    recorded_at: str = ""

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Those of all hosts."""
        return tuple(one for host in self.hosts for one in host.configurations)

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """Each workload once, in the order in which it is first met."""
        return tuple(dict.fromkeys(one.latest.workload for one in self.configurations))

    @property
    def models(self) -> tuple[str, ...]:
        """What is known of each model that the newest runs served, in words."""
        return tuple(dict.fromkeys(filter(None, (one.latest.model.words for one in self.configurations))))

    def of(self, workload: Workload, host: str | None = None) -> tuple[Configuration, ...]:
        """The configurations that were measured with a workload, on one host or on all."""
        return tuple(one for one in self.configurations if one.latest.workload == workload and host in (None, one.host))
