# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tables of a report, in words: the HTML page and the Markdown comment show the same ones.

Cells are plain text, unescaped. The mood of a cell is for a colour beside the words, never instead of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils import report_types as types
from ansible_collections.tokforge.sglang.plugins.module_utils import sweep_choice
from ansible_collections.tokforge.sglang.plugins.module_utils.report_data import best_at

GOOD, BAD, UNSURE = "good", "bad", "unsure"
NOTHING = "–"  # noqa: RUF001
_MOODS = {
    types.FASTER: GOOD,
    types.SLOWER: BAD,
    types.NOT_COMPARABLE: UNSURE,
    "measured": GOOD,
    "failed": BAD,
    "invalid": BAD,
    "unsupported": UNSURE,
    "waiting": UNSURE,
}


@dataclass(frozen=True)
class Cell:
    """One cell. `mood` is good, bad, unsure or empty."""

    text: str
    mood: str = ""


@dataclass(frozen=True)
class Table:
    """A table with its caption. `figures` are the columns that hold figures, from 0."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    figures: frozenset[int] = frozenset()


# --- words -----------------------------------------------------------------------------------------------------------


def rate(value: float | None) -> str:
    """A throughput or a time with as many digits as matter."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def with_spread(figure: types.Figure) -> str:
    """The median, and from where to where the repetitions went."""
    if figure.median is None or figure.least is None or figure.most is None:
        return rate(figure.median)
    return f"{rate(figure.median)} ({rate(figure.least)} to {rate(figure.most)})"


def share(value: float | None) -> str:
    """A part of one in percent."""
    return NOTHING if value is None else f"{value * 100:.0f} %" if value >= 0.1 else f"{value * 100:.2g} %"


def change(percent: float | None, band: tuple[float, float] | None = None) -> str:
    """A change with its sign, and its confidence interval."""
    if percent is None:
        return NOTHING
    return f"{percent:+.1f} %" + (f" ({band[0]:+.1f} to {band[1]:+.1f})" if band else "")


def verdict(word: str) -> Cell:
    """A verdict or a state in words."""
    return Cell(word.replace("_", " ") or NOTHING, _MOODS.get(word, ""))


def _seconds(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.0f} s" if value >= 10 else f"{value:.1f} s"


def _row(*cells: str | Cell) -> tuple[Cell, ...]:
    return tuple(cell if isinstance(cell, Cell) else Cell(cell or NOTHING) for cell in cells)


# --- all hosts -------------------------------------------------------------------------------------------------------


def summary(report: types.Report) -> Table:
    """For each host and workload: what is fastest, whether the newest run may be believed, and what the gate says."""
    rows: list[tuple[Cell, ...]] = []
    for host in report.hosts:
        if not host.configurations:
            why = Cell(host.why, BAD if host.state == types.UNREADABLE else UNSURE)
            rows.append(_row(host.name, "", "", "", "", why, ""))
        for workload in report.workloads:
            rows += _summary_row(host.name, workload, report.of(workload, host.name))
    columns = (
        "Host",
        "Model and request",
        "Fastest configuration",
        "Output tok/s",
        "At concurrency",
        "Newest run",
        "Against baseline",
    )
    return Table("Summary", columns, tuple(rows), frozenset({3, 4}))


def _summary_row(
    host: str, workload: types.Workload, configurations: tuple[types.Configuration, ...]
) -> Iterator[tuple[Cell, ...]]:
    if not configurations:
        return
    ranked = [(one, best) for one in configurations if one.shown and (best := one.shown.best)]
    newest = max(configurations, key=lambda one: one.latest.recorded_at)
    state = _validity(newest.latest, newest.label if len(configurations) > 1 else "")
    if not ranked:
        yield _row(host, workload.words, Cell("none is valid", BAD), "", "", state, against_baseline(newest))
        return
    fastest, point = max(ranked, key=lambda pair: pair[1].output_tok_s.median or 0.0)
    speed = with_spread(point.output_tok_s)
    rivals = next((len(b.rivals) for b in best_at(configurations) if b.point.concurrency == point.concurrency), 0)
    name = fastest.label + (f"; the spread overlaps with {rivals} more" if rivals else "")
    yield _row(host, workload.words, name, speed, str(point.concurrency), state, against_baseline(newest))


def _validity(run: types.Run, label: str) -> Cell:
    of_it = f"{label}: " if label else ""
    if run.valid:
        return Cell(f"{of_it}valid", GOOD)
    return Cell(f"{of_it}invalid: {'; '.join(run.reasons) or 'no reason is on record'}", BAD)


def against_baseline(one: types.Configuration) -> Cell:
    """The verdict of the newest run against its baseline, with the gate's word."""
    found = one.comparison
    if found is None:
        if one.baseline is None:
            return Cell("no baseline")
        same = bool(one.latest.id) and one.baseline.id == one.latest.id
        return Cell("it is the baseline" if same else "not compared")
    said = verdict(found.verdict)
    if found.failed_gate:
        return Cell(f"{said.text}; the regression gate failed", BAD)
    return said


def winners(report: types.Report) -> Table:
    """For each host, workload and concurrency the fastest configuration: it can be another one at each."""
    rows = [
        _row(
            host.name,
            workload.words,
            str(best.point.concurrency),
            best.configuration.label,
            with_spread(best.point.output_tok_s),
            with_spread(best.point.ttft_ms),
            with_spread(best.point.tpot_ms),
            ", ".join(best.rivals) or "none",
        )
        for host in report.hosts
        for workload in report.workloads
        for best in best_at(report.of(workload, host.name))
    ]
    columns = (
        "Host",
        "Model and request",
        "Concurrency",
        "Fastest",
        "Output tok/s",
        "TTFT ms",
        "TPOT ms",
        "Spread overlaps with",
    )
    return Table("Fastest configuration at each concurrency", columns, tuple(rows), frozenset({2, 4, 5, 6}))


def runs(report: types.Report) -> Table:
    """Every point of the newest run of each configuration, also those that may not be believed."""
    rows = []
    for one in report.configurations:
        for point in one.latest.points:
            good = one.latest.valid and point.valid
            reasons = point.reasons or one.latest.reasons
            rows.append(
                _row(
                    one.host,
                    one.label,
                    str(point.concurrency),
                    with_spread(point.output_tok_s),
                    with_spread(point.ttft_ms),
                    with_spread(point.tpot_ms),
                    str(point.repetitions),
                    rate(point.power_w),
                    share(point.power_share.median),
                    share(point.roofline_share),
                    Cell("valid", GOOD)
                    if good
                    else Cell(f"invalid: {'; '.join(reasons) or 'no reason is on record'}", BAD),
                    one.latest.recorded_at,
                )
            )
        if not one.latest.points:
            rows.append(_row(one.host, one.label, *[""] * 8, _validity(one.latest, ""), one.latest.recorded_at))
    columns = (
        "Host", "Configuration", "Concurrency", "Output tok/s", "TTFT ms", "TPOT ms", "Repetitions", "Power W",
        "Of power limit", "Of roofline", "Valid", "Recorded",
    )  # fmt: skip
    return Table("Newest run of each configuration", columns, tuple(rows), frozenset(range(2, 10)))


def starts(report: types.Report) -> Table:
    """What the starts took."""
    rows = []
    for one in report.configurations:
        for took in one.starts:
            caches = NOTHING if took.cold is None else "cold" if took.cold else "warm"
            parts = (took.ready_s, took.weights_s, took.jit_s, took.autotune_s, took.profiling_s, took.graphs_s)
            rows.append(_row(one.host, one.label, caches, *[_seconds(part) for part in parts]))
    columns = (
        "Host",
        "Configuration",
        "Caches",
        "Ready after",
        "Weights",
        "JIT",
        "Autotune",
        "Profiling",
        "CUDA graphs",
    )
    return Table("Starts, the slowest rank of each part", columns, tuple(rows), frozenset(range(3, 9)))


# --- one thing of one host -------------------------------------------------------------------------------------------


def comparison(one: types.Comparison) -> Table:
    """The points of a comparison."""
    rows = tuple(
        _row(
            NOTHING if point.concurrency is None else str(point.concurrency),
            point.metric,
            with_spread(point.a),
            with_spread(point.b),
            f"{_count(point.a_n)} and {_count(point.b_n)}",
            change(point.change_percent, point.band_percent),
            NOTHING if point.p_value is None else f"{point.p_value:.3g}",
            verdict(point.verdict),
        )
        for point in one.points
    )
    columns = (
        "Concurrency",
        "Metric",
        one.a_label or "A",
        one.b_label or "B",
        f"n ({one.unit or 'unit unknown'})",
        "Change (band)",
        "p",
        "Verdict",
    )
    return Table(f"{one.b_label or 'B'} against {one.a_label or 'A'}", columns, rows, frozenset({0, 2, 3, 5, 6}))


def _count(value: int | None) -> str:
    return "?" if value is None else str(value)


def differences(found: Iterable[types.Difference], a: str, b: str) -> Table:
    """What differs between two sides."""
    rows = tuple(_row(one.what, one.name, one.a, one.b) for one in found)
    return Table("What differs", ("What", "Name", a or "A", b or "B"), rows)


def against_kept(one: types.Configuration) -> Table | None:
    """Newest run beside its baseline where nobody compared them: figures without a verdict."""
    kept = one.baseline
    if kept is None or one.comparison is not None or kept.id == one.latest.id:
        return None
    rows = []
    for point in one.latest.points:
        old = kept.at(point.concurrency)
        if old is not None:
            rows.append(
                _row(
                    str(point.concurrency),
                    with_spread(old.output_tok_s),
                    with_spread(point.output_tok_s),
                    with_spread(old.ttft_ms),
                    with_spread(point.ttft_ms),
                )
            )
    columns = ("Concurrency", "Baseline tok/s", "Newest tok/s", "Baseline TTFT ms", "Newest TTFT ms")
    return Table(f"{one.host}, {one.label}: not compared", columns, tuple(rows), frozenset(range(5)))


#: What is to be said of a sweep's winner, by the sweep's verdict.
DOUBTS = {sweep_choice.UNCONFIRMED: "not confirmed", sweep_choice.DOES_NOT_SERVE: "does not serve"}


def sweep(one: types.Sweep) -> Table:
    """The candidates of a sweep, also those that were not tried, with the reason."""
    concurrencies = list(dict.fromkeys(c for candidate in one.candidates for c, _speed in candidate.output_tok_s))
    rows = []
    for candidate in one.candidates:
        speeds = dict(candidate.output_tok_s)
        winner = DOUBTS.get(one.verdict, "winner")
        marks = [word for word, name in ((winner, one.winner), ("original", one.original)) if name == candidate.name]
        rows.append(
            _row(
                f"{candidate.name} ({', '.join(marks)})" if marks and candidate.name else candidate.name,
                verdict(candidate.state),
                *[rate(speeds.get(concurrency)) for concurrency in concurrencies],
                NOTHING if candidate.score is None else f"{candidate.score:.4g}",
                candidate.reason,
            )
        )
    columns = ("Candidate", "State", *[f"tok/s at {concurrency}" for concurrency in concurrencies], "Score", "Reason")
    return Table("Candidates", columns, tuple(rows), frozenset(range(2, 3 + len(concurrencies))))


def breakdown(one: types.Explanation) -> Table:
    """What decoding is made of, as it was recorded."""
    return Table("What decoding is made of", ("Part", "Figure"), tuple(_row(*pair) for pair in one.breakdown))


def steps(one: types.Explanation) -> Table:
    """What each difference contributes."""
    rows = [
        _row(
            step.name,
            change(step.change_percent, step.band_percent),
            verdict(step.verdict),
            change(step.alone_percent, step.alone_band_percent),
        )
        for step in one.steps
    ]
    rows.append(_row("all together", change(one.total_percent, one.total_band_percent), "", ""))
    columns = ("Difference, in this order", "Change (band)", "Verdict", "Alone (band)")
    return Table(f"From {one.a_label or 'A'} to {one.b_label or 'B'}", columns, tuple(rows), frozenset({1, 3}))
