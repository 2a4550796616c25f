# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plots of the HTML report: inline SVG from matplotlib, the same bytes for the same figures.

Each plot is 400 units wide with texts of 12 units, so that it is legible on a narrow screen without being scaled.
Colours are those of the page (CSS variables), so light and dark work. What a plot shows is also told in words, with the
figures: nobody has to see it. Names and other texts from facts stand in the legend and the words, which the page
escapes; inside an SVG there are only figures and names of ranks.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import report_start
from ansible_collections.tokforge.sglang.plugins.module_utils import report_types as types
from ansible_collections.tokforge.sglang.plugins.module_utils.report_tables import rate, share, with_spread

#: So many configurations fit into one plot; the fastest are taken.
MOST_SERIES = 8
_MOST_RANKS = 16
_WIDTH = 400
# Marker of matplotlib, the same as a character, and the line's dashes: colour alone must not tell series apart.
_LOOKS = (
    ("o", "●", "-"),
    ("s", "■", "--"),
    ("^", "▲", "-."),
    ("D", "◆", ":"),
    ("v", "▼", "-"),
    ("P", "✚", "--"),
    ("*", "★", "-."),
    ("p", "⬟", ":"),
)
_SERIES = tuple(f"#f00d0{number}" for number in range(MOST_SERIES))
_INK, _LINES, _PAGE = "#f00e01", "#f00e02", "#f00e03"
_VARIABLES = {_INK: "--ink", _LINES: "--rule", _PAGE: "--card", **{c: f"--s{n}" for n, c in enumerate(_SERIES)}}
# Part of a start -> colour, thickness of its bar and name in the legend.
_BARS = {
    report_start.WEIGHTS: (0, 0.8),
    report_start.GRAPHS: (2, 0.5),
    report_start.AUTOTUNE: (1, 0.22),
}
_JIT, _PROFILING = "JIT", "profiling"


@dataclass(frozen=True)
class Key:
    """One entry of a legend: a character in the colour of a CSS variable, and what it stands for (unescaped)."""

    mark: str
    variable: str
    text: str


@dataclass(frozen=True)
class Plot:
    """One plot. `svg` is safe to put into a page; `words` tells its figures (unescaped)."""

    title: str
    words: str
    svg: str


@dataclass(frozen=True)
class Series:
    """A line of a plot: (x, y with spread) with x ascending. `look` is the place in the legend."""

    name: str
    look: int
    points: tuple[tuple[float, types.Figure], ...]


def require() -> None:
    """Raises ReportError when matplotlib cannot be imported."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise types.ReportError(
            f"cannot draw the plots on the controller: {error} (Python {sys.executable}); install it there with"
            " 'python -m pip install matplotlib', or run 'make' of the checkout again"
        ) from None


def keys(configurations: Sequence[types.Configuration], with_host: bool = False) -> tuple[Key, ...]:
    """The legend of some configurations, in the order of their looks."""
    return tuple(
        Key(_LOOKS[look][1], f"--s{look}", f"{one.host}: {one.label}" if with_host else one.label)
        for look, one in enumerate(configurations)
    )


def fastest(configurations: Sequence[types.Configuration]) -> tuple[types.Configuration, ...]:
    """Those that are drawn: the fastest with a valid run, in their own order."""
    drawn = [one for one in configurations if one.shown is not None]
    ranked = sorted(drawn, key=lambda one: -_most(one))[:MOST_SERIES]
    return tuple(one for one in drawn if one in ranked)


def _most(one: types.Configuration) -> float:
    best = one.shown.best if one.shown else None
    return (best.output_tok_s.median or 0.0) if best else 0.0


# --- the plots -------------------------------------------------------------------------------------------------------


def ladder(key: str, where: str, configurations: Sequence[types.Configuration]) -> tuple[Plot, ...]:
    """Throughput, time to first token, and shares of the power limit and the roofline against concurrency.

    `key` is unique in the page, `where` tells the plots from those of other hosts. Plots without any figure are left
    out.
    """
    plots = (
        ("Output tok/s", lambda p: p.output_tok_s, "median and spread of the repetitions", with_spread),
        ("Time to first token, ms", lambda p: p.ttft_ms, "median and spread of the repetitions", with_spread),
        ("Share of the power limit", lambda p: p.power_share, "mean and spread over the GPUs", _percent),
        (
            "Share of the roofline",
            lambda p: types.Figure(p.roofline_share),
            "of the memory bandwidth's ceiling",
            _percent,
        ),
    )
    made = []
    for place, (title, value, what, words) in enumerate(plots):
        series = _series(configurations, value)
        if series:
            told = _words(f"{title} against concurrency, {what}.", series, words)
            svg = _lines(f"{key}-{place}", f"{title}, {where}", told, series, words is _percent)
            made.append(Plot(title, told, svg))
    return tuple(made)


def _percent(figure: types.Figure) -> str:
    return share(figure.median)


def _series(configurations: Sequence[types.Configuration], value: Any) -> tuple[Series, ...]:
    made = []
    for look, one in enumerate(configurations):
        points = [(float(p.concurrency), value(p)) for p in (one.shown.good_points if one.shown else ())]
        points = [(x, figure) for x, figure in points if figure.median is not None]
        if points:
            made.append(Series(one.label, look, tuple(points)))
    return tuple(made)


def _words(first: str, series: Sequence[Series], words: Any) -> str:
    told = [f"{one.name}: " + ", ".join(f"{words(figure)} at {x:g}" for x, figure in one.points) for one in series]
    return f"{first} {'; '.join(told)}."


def _lines(key: str, title: str, words: str, series: Sequence[Series], percent: bool) -> str:
    """A plot of lines over concurrency."""
    with _drawing(230) as (figure, axes):
        for place, one in enumerate(series):
            marker, _mark, dashes = _LOOKS[one.look]
            # Spreads at one concurrency stand beside each other, not on each other.
            shift = 2 ** (0.06 * (place - (len(series) - 1) / 2))
            axes.errorbar(
                [x * shift for x, _figure in one.points],
                [_median(value) for _x, value in one.points],
                yerr=_spread([value for _x, value in one.points]),
                color=_SERIES[one.look],
                marker=marker,
                linestyle=dashes,
                markersize=6,
                linewidth=1.6,
                capsize=3,
            )
        _concurrency_axis(axes, sorted({x for one in series for x, _figure in one.points}))
        drawn = [value for one in series for _x, value in one.points]
        ends = [end for value in drawn for end in (value.least, value.most) if end is not None]
        _value_axis(axes, [*(_median(value) for value in drawn), *ends], percent)
        axes.set_xlabel("requests in flight")
        return _svg(figure, key, title, words)


def _median(figure: types.Figure) -> float:
    return figure.median or 0.0


def _spread(figures: Sequence[types.Figure]) -> list[list[float]]:
    """How far the repetitions went below and above the medians."""
    below = [max(_median(one) - (_median(one) if one.least is None else one.least), 0.0) for one in figures]
    above = [max((_median(one) if one.most is None else one.most) - _median(one), 0.0) for one in figures]
    return [below, above]


def _concurrency_axis(axes: Any, ticks: Sequence[float]) -> None:
    axes.set_xscale("log", base=2)
    # Labels that would touch are left out; the last one is the one that matters.
    kept: list[float] = []
    span = max(ticks[-1] / ticks[0], 2.0)
    for tick in reversed(ticks):
        if not kept or (kept[-1] / tick) > span ** (1 / 9):
            kept.append(tick)
    axes.set_xticks(kept, [f"{tick:g}" for tick in kept])
    axes.set_xticks([], minor=True)
    axes.set_xlim(ticks[0] / span**0.06, ticks[-1] * span**0.06)


def _value_axis(axes: Any, values: Sequence[float], percent: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    positive = [value for value in values if value > 0]
    if not percent and len(positive) == len(values) and max(positive) > 50 * min(positive):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        # Room for the mark at the highest point.
        axes.set_ylim(0, max(positive) * 1.08 if positive else 1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: _tick(value, percent)))


def _tick(value: float, percent: bool) -> str:
    if percent:
        return f"{value * 100:.3g} %"
    return f"{value / 1000:.3g}k" if value >= 10000 else f"{value:.4g}"


def pareto(key: str, configurations: Sequence[types.Configuration]) -> Plot | None:
    """Throughput of a GPU (of a host without GPUs) against the speed that one user sees, with the frontier.

    None when no valid run has both figures.
    """
    points = [
        (one, look, point, point.user_tok_s, point.output_tok_s.median / one.shown.devices)
        for look, one in enumerate(configurations)
        if one.shown
        for point in one.shown.good_points
        if point.user_tok_s and point.output_tok_s.median
    ]
    if not points:
        return None
    edge = frontier([(x, y) for _one, _look, _point, x, y in points])
    unit = _unit(configurations)
    title = f"Output tok/s per {unit} against tok/s per user"
    told = [
        f"{one.host}, {one.label} at concurrency {point.concurrency}: {rate(y)} per {unit}, {rate(x)} per user"
        + (" (on the frontier)" if (x, y) in edge else "")
        for one, _look, point, x, y in points
    ]
    words = f"{title}. Right and up is better. {'; '.join(told)}."
    with _drawing(280, left=66) as (figure, axes):
        axes.plot([x for x, _y in edge], [y for _x, y in edge], color=_INK, linewidth=5, alpha=0.18, zorder=1)
        for look in dict.fromkeys(look for _one, look, *_rest in points):
            own = [(point, x, y) for _one, at, point, x, y in points if at == look]
            marker, _mark, dashes = _LOOKS[look]
            axes.plot(
                [x for _point, x, _y in own],
                [y for _point, _x, y in own],
                color=_SERIES[look],
                marker=marker,
                linestyle=dashes,
                markersize=6,
                linewidth=1.2,
                zorder=2,
            )
        _value_axis(axes, [y for *_rest, y in points], percent=False)
        # Room for the number at the highest point.
        axes.margins(y=0.12)
        if axes.get_yscale() == "linear":
            axes.set_ylim(0, max(y for *_rest, y in points) * 1.12)
        xs = [x for *_rest, x, _y in points]
        axes.set_xlim(0, max(xs) * 1.08)
        axes.set_xlabel("output tok/s per user")
        axes.set_ylabel(f"output tok/s per {unit}")
        _name_concurrencies(axes, [(x, y, point.concurrency) for _one, _look, point, x, y in points if (x, y) in edge])
        return Plot(title, words, _svg(figure, key, title, words))


def _unit(configurations: Sequence[types.Configuration]) -> str:
    kinds = {"GPU" if one.shown.gpu_count else "host" for one in configurations if one.shown}
    return kinds.pop() if len(kinds) == 1 else "GPU or host"


def frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points that no other one beats in both directions, from the left to the right."""
    edge: list[tuple[float, float]] = []
    for x, y in sorted(set(points), reverse=True):
        if not edge or y > edge[-1][1]:
            edge.append((x, y))
    return edge[::-1]


def _name_concurrencies(axes: Any, points: Sequence[tuple[float, float, int]]) -> None:
    """Write the concurrency at points of the frontier, but not two texts on each other."""
    taken: list[tuple[float, float]] = []
    for x, y, concurrency in points:
        at_x, at_y = axes.transData.transform((x, y))
        if all(abs(at_x - left) > 24 or abs(at_y - low) > 14 for left, low in taken):
            taken.append((at_x, at_y))
            axes.annotate(str(concurrency), (x, y), (5, 5), textcoords="offset points")


def startup(key: str, host: str, label: str, found: types.Start | None) -> Plot | None:
    """The parts of the start of each rank as bars over time; None when no part of any rank is known."""
    ranks = [rank for rank in (found.ranks if found else ()) if rank.parts]
    whole = [(name, s) for name, s in ((_JIT, found.jit_s), (_PROFILING, found.profiling_s)) if s] if found else []
    if found is None or not (ranks or whole):
        return None
    shown = sorted(sorted(ranks, key=_end, reverse=True)[:_MOST_RANKS], key=ranks.index)
    caches = "" if found.cold is None else ", cold caches" if found.cold else ", warm caches"
    title = f"Start of {host}, {label}{caches}"
    told = [f"rank {r.tag}: " + ", ".join(f"{p.name} {p.seconds:.3g} s" for p in r.parts) for r in shown]
    told += [f"{name} of the whole server {seconds:.3g} s" for name, seconds in whole]
    left_out = len(ranks) - len(shown)
    words = f"Seconds after the arguments were read. {'; '.join(told)}."
    words += f" {left_out} faster ranks are left out." if left_out else ""
    words += f" It served after {found.listening_s:.3g} s." if found.listening_s is not None else ""
    rows = len(shown) + len(whole)
    names = [rank.tag[:16] for rank in shown] + [name for name, _seconds in whole]
    with _drawing(54 + 22 * rows, left=14 + 8 * max(map(len, names))) as (figure, axes):
        for row, rank in enumerate(shown):
            for part, begin_s in _placed(rank):
                look, thickness = _BARS[part.name]
                axes.barh(row, max(part.seconds, 0.05), thickness, begin_s, color=_SERIES[look])
        for row, (name, seconds) in enumerate(whole, len(shown)):
            axes.barh(row, seconds, 0.5, 0, color=_SERIES[3 if name == _JIT else 4])
        if found.listening_s is not None:
            axes.axvline(found.listening_s, color=_INK, linewidth=1.2, linestyle="--")
        axes.set_yticks(range(rows), names)
        axes.set_ylim(rows - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("seconds")
        return Plot(title, words, _svg(figure, key, title, words))


def startup_keys() -> tuple[Key, ...]:
    """The legend of the starts."""
    marks = {report_start.WEIGHTS: "thick", report_start.GRAPHS: "middle", report_start.AUTOTUNE: "thin"}
    return (
        *(Key("■", f"--s{_BARS[name][0]}", f"{name} ({mark})") for name, mark in marks.items()),
        Key("■", "--s3", "JIT compiling of the whole server (how long, not when)"),
        Key("■", "--s4", "profiling of the whole server (how long, not when)"),
        Key("┆", "--ink", "it serves"),
    )


def _placed(rank: types.RankStart) -> Iterator[tuple[types.Part, float]]:
    """Each part with its beginning; what has none follows the one before."""
    at_s = 0.0
    for part in rank.parts:
        begin_s = part.began_s if part.began_s is not None else at_s
        at_s = begin_s + part.seconds
        yield part, begin_s


def _end(rank: types.RankStart) -> float:
    return max((begin_s + part.seconds for part, begin_s in _placed(rank)), default=0.0)


# --- SVG -------------------------------------------------------------------------------------------------------------


@contextmanager
def _drawing(height: int, left: int = 52) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes in the page's look, whatever settings of matplotlib this user has.

    `left` is the room for the labels of the vertical axis. It is given, since looking for it takes longer than drawing,
    and plots with the same room can be compared by eye.
    """
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "svg.fonttype": "none",
                "svg.hashsalt": "tokforge",
                "text.parse_math": False,
                "font.size": 12,
                "text.color": _INK,
                "axes.labelcolor": _INK,
                "axes.edgecolor": _LINES,
                "axes.facecolor": "none",
                "axes.grid": True,
                "axes.axisbelow": True,
                "axes.spines.top": False,
                "axes.spines.right": False,
                "axes.unicode_minus": False,
                "grid.color": _LINES,
                "grid.linewidth": 0.6,
                "xtick.color": _LINES,
                "ytick.color": _LINES,
                "xtick.labelcolor": _INK,
                "ytick.labelcolor": _INK,
                "figure.facecolor": "none",
            }
        )
        figure = Figure(figsize=(_WIDTH / 72, height / 72), dpi=72)
        below, above, right = 44, 10, 14
        yield (
            figure,
            figure.add_axes(
                (
                    left / _WIDTH,
                    below / height,
                    (_WIDTH - left - right) / _WIDTH,
                    (height - below - above) / height,
                )
            ),
        )


def _svg(figure: Any, key: str, title: str, words: str) -> str:
    """The figure as an element of an HTML page: ids of its own, colours of the page, a name and a description."""
    written = io.BytesIO()
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = written.getvalue().decode()
    box = re.search(r'viewBox="([^"]+)"', text)
    body = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", body, flags=re.DOTALL)
    body = body.replace("xlink:href", "href")
    body = re.sub(r' id="([^"]+)"', rf' id="{key}-\1"', body)
    body = re.sub(r'href="#', f'href="#{key}-', body)
    body = re.sub(r"url\(#", f"url(#{key}-", body)
    body = re.sub(r" font-family: [^;\"]+;?", "", body)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, f"var({variable})")
    lines = (line.strip() for line in body.splitlines())
    body = "\n".join(line for line in lines if line)
    return (
        f'<svg role="img" aria-labelledby="{key}-title" aria-describedby="{key}-words"'
        f' viewBox="{box[1] if box else ""}">'
        f'<title id="{key}-title">{escape(title)}</title><desc id="{key}-words">{escape(words)}</desc>\n{body}\n</svg>'
    )
