# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as Markdown, short enough for a comment of a CI job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ansible_collections.tokforge.sglang.plugins.module_utils import report_tables as tables
from ansible_collections.tokforge.sglang.plugins.module_utils import report_types as types

# What means something to Markdown wherever it stands, and what does at the beginning of a line.
_SPECIAL = re.compile(r"([\\`*_\[\]#|~$]|:(?=//|[a-z+-]\w*:))")
_FIRST = re.compile(r"^([-+=]|\d+(?=[.)]\s))")
# Keeps a name behind an @ from being called into the discussion.
_WORD_JOINER = "\u2060"
_MOST_COMPARISONS = 6
#: A comment on GitHub has at most 65 536 signs.
MOST_SIGNS = 60_000
_MOST_ROWS = 40
_CUT = "\n\nThis is not all of it: see the HTML page.\n"
_MARKS = {tables.GOOD: "✅ ", tables.BAD: "❌ ", tables.UNSURE: "⚠️ "}


def render(report: types.Report) -> str:
    """The text, with a newline at its end."""
    text = "\n".join(_lines(report)).rstrip("\n") + "\n"
    if len(text) <= MOST_SIGNS:
        return text
    # Between two lines: half a row is no table any more.
    return text[: text.rfind("\n", 0, MOST_SIGNS - len(_CUT))].rstrip("\n") + _CUT


def _lines(report: types.Report) -> Iterator[str]:
    yield "## SGLang benchmarks"
    yield ""
    count = len(report.hosts)
    newest = f", newest record {escape(report.recorded_at)}" if report.recorded_at else ""
    yield f"{count} host{'s' * (count != 1)}{newest}."
    for words in report.models:
        yield from _sentence(words)
    yield from _table(tables.summary(report))
    yield from _table(tables.winners(report))
    yield from _comparisons(report)
    for host in report.hosts:
        for sweep in host.sweeps[-1:]:
            yield from _heading(f"Sweep on {host.name}, {sweep.recorded_at}")
            yield from _sentence(sweep_words(sweep))
            yield from _table(tables.sweep(sweep), caption=False)
        yield from _older(len(host.sweeps) - 1, "sweep")
        for explanation in host.explanations[-1:]:
            yield from _heading(f"Explanation on {host.name}, {explanation.recorded_at}")
            yield from _table(tables.steps(explanation))
            for note in explanation.notes:
                yield from _sentence(note)
        yield from _older(len(host.explanations) - 1, "explanation")


def _older(count: int, what: str) -> Iterator[str]:
    if count > 0:
        yield from _sentence(f"{count} older {what}{'s' * (count != 1)}: see the fact file.")


def _comparisons(report: types.Report) -> Iterator[str]:
    for host in report.hosts:
        shown = sorted(host.comparisons, key=lambda one: one.recorded_at, reverse=True)
        for one in shown[:_MOST_COMPARISONS]:
            yield from _heading(f"{one.b_label} against {one.a_label} on {host.name}: {one.verdict.replace('_', ' ')}")
            yield from _sentence(one.why)
            if one.regression is not None:
                for failure in one.regression.failures:
                    yield from _sentence(f"Regression gate: {failure}")
            if one.points:
                yield from _table(tables.comparison(one), caption=False)
            if one.differences:
                yield from _table(tables.differences(one.differences, one.a_label, one.b_label), caption=False)
        if len(shown) > _MOST_COMPARISONS:
            yield from _sentence(f"{len(shown) - _MOST_COMPARISONS} older comparisons are in the fact file.")


def sweep_words(sweep: types.Sweep) -> str:
    """What a sweep came to, in one sentence or two."""
    parts = [f"Objective: {sweep.objective}." if sweep.objective else ""]
    parts.append("" if sweep.finished else "It is not finished.")
    doubt = f", {tables.DOUBTS[sweep.verdict]}" if sweep.verdict in tables.DOUBTS else ""
    parts.append(f"Winner: {sweep.winner}{doubt}." if sweep.winner else "No winner.")
    parts.append(sweep.why)
    return " ".join(filter(None, parts))


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line, and that no HTML hides in."""
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", safe.replace("@", f"@{_WORD_JOINER}"))


def _beginning(safe: str) -> str:
    """Escaped text for the beginning of a line, where it must not become a list."""
    return _FIRST.sub(lambda match: f"\\{match[0]}" if not match[0].isdigit() else f"{match[0]}{_WORD_JOINER}", safe)


def _heading(text: str) -> Iterator[str]:
    yield ""
    yield f"### {escape(text)}"


def _sentence(text: str) -> Iterator[str]:
    if text:
        yield ""
        yield _beginning(escape(text))


def _table(table: tables.Table, caption: bool = True) -> Iterator[str]:
    if not table.rows:
        return
    if caption:
        yield from _heading(table.caption)
    yield ""
    yield "| " + " | ".join(escape(column) for column in table.columns) + " |"
    yield "|" + "|".join("--:" if place in table.figures else "---" for place in range(len(table.columns))) + "|"
    for row in table.rows[:_MOST_ROWS]:
        yield "| " + " | ".join(_MARKS.get(cell.mood, "") + escape(cell.text) for cell in row) + " |"
    if len(table.rows) > _MOST_ROWS:
        yield from _sentence(f"{len(table.rows) - _MOST_ROWS} more: see the HTML page.")
