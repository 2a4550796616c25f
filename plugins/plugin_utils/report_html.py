# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as one HTML file: nothing is loaded when it is read, and no script is needed.

The template escapes every value; only the SVG of report_plots, which escapes its own, is put in as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from ansible_collections.tokforge.sglang.plugins.module_utils import report_tables as tables
from ansible_collections.tokforge.sglang.plugins.module_utils import report_types as types
from ansible_collections.tokforge.sglang.plugins.module_utils.report_markdown import sweep_words
from ansible_collections.tokforge.sglang.plugins.plugin_utils import report_plots as plots
from ansible_collections.tokforge.sglang.plugins.plugin_utils.report_plots import Key, Plot
from ansible_collections.tokforge.sglang.plugins.plugin_utils.report_template import PAGE

_MOST_STARTS = 4
_Dated = TypeVar("_Dated", types.Comparison, types.Sweep, types.Explanation)


@dataclass(frozen=True)
class _Group:
    """Plots below one heading with one legend."""

    heading: str
    note: str
    keys: tuple[Key, ...]
    plots: tuple[Plot, ...]


@dataclass(frozen=True)
class _Section:
    """The groups of one workload, which stand beside each other."""

    heading: str
    groups: tuple[_Group, ...]


def render(report: types.Report) -> str:
    """The page. Raises ReportError when matplotlib is missing."""
    plots.require()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["svg"] = lambda plot: Markup(plot.svg)  # noqa: S704 (made and escaped by report_plots)
    unjudged = [tables.against_kept(one) for one in report.configurations]
    comparisons = [one for host in report.hosts for one in _newest_first(host.comparisons)]
    return (
        environment.from_string(PAGE).render(
            report=report,
            tables=tables,
            ladders=_ladders(report),
            fronts=_fronts(report),
            starts=_starts(report),
            start_keys=plots.startup_keys(),
            baselines=[one for one in comparisons if one.kind == "baseline"],
            unjudged=[table for table in unjudged if table is not None],
            experiments=[one for one in comparisons if one.kind != "baseline"],
            explanations=[one for host in report.hosts for one in _newest_first(host.explanations)],
            sweeps=[one for host in report.hosts for one in _newest_first(host.sweeps)],
            sweep_words=sweep_words,
            warnings=_warnings(report),
        )
        + "\n"
    )


def _newest_first(given: Sequence[_Dated]) -> list[_Dated]:
    return sorted(given, key=lambda one: one.recorded_at, reverse=True)


def _left_out(all_of: Sequence[types.Configuration], drawn: Sequence[types.Configuration]) -> str:
    """What is not in a plot, so that nobody takes it for all there is."""
    invalid = sum(1 for one in all_of if one.shown is None)
    slower = len(all_of) - invalid - len(drawn)
    words = [
        f"{count} {what}"
        for count, what in ((invalid, "without a valid run"), (slower, f"slower than the fastest {len(drawn)}"))
        if count
    ]
    return f"Not drawn: {' and '.join(words)}; the table of all runs below has them." if words else ""


def _ladders(report: types.Report) -> list[_Section]:
    sections = []
    for number, workload in enumerate(report.workloads):
        groups = []
        for place, host in enumerate(report.hosts):
            configurations = report.of(workload, host.name)
            drawn = plots.fastest(configurations)
            if configurations:
                hardware = ", ".join(dict.fromkeys(one.latest.hardware for one in configurations))
                made = plots.ladder(f"l{number}-{place}", f"{host.name}, {workload.words}", drawn)
                note = _left_out(configurations, drawn)
                groups.append(_Group(f"{host.name}: {hardware}", note, plots.keys(drawn), made))
        sections.append(_Section(_heading(workload), tuple(groups)))
    return sections


def _heading(workload: types.Workload) -> str:
    return f"{workload.words} ({workload.engine or 'unknown engine'})"


def _fronts(report: types.Report) -> list[_Section]:
    sections = []
    for number, workload in enumerate(report.workloads):
        configurations = report.of(workload)
        drawn = plots.fastest(configurations)
        made = plots.pareto(f"p{number}", drawn)
        if made is not None:
            several = len({one.host for one in drawn}) > 1
            note = _left_out(configurations, drawn)
            sections.append(_Section(_heading(workload), (_Group("", note, plots.keys(drawn, several), (made,)),)))
    return sections


def _starts(report: types.Report) -> list[plots.Plot]:
    made = []
    for place, host in enumerate(report.hosts):
        newest = sorted(host.configurations, key=lambda one: one.latest.recorded_at, reverse=True)
        told = [(one, start) for one in newest for start in one.starts]
        found = [plots.startup(f"t{place}-{n}", host.name, one.label, start) for n, (one, start) in enumerate(told)]
        made += [plot for plot in found if plot is not None][:_MOST_STARTS]
    return made


def _warnings(report: types.Report) -> list[str]:
    """What a reader must know of figures that are valid, each once."""
    return [f"{one.host}, {one.label}: {warning}" for one in report.configurations for warning in one.latest.warnings]
