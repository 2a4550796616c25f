# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page as a browser takes it: one well-formed file that loads nothing, with a name for each plot."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import report_data
from ansible_collections.tokforge.sglang.plugins.module_utils import report_types as types
from ansible_collections.tokforge.sglang.plugins.plugin_utils import report_html, report_plots

sys.path.insert(0, str(Path(__file__).parents[1] / "module_utils"))
import report_documents as documents

_EMPTY = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """The elements of a page. Fails on an end tag that does not fit."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == [], self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _value in attrs}) == len(attrs), (tag, attrs)
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in _EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _EMPTY:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data: str) -> None:
        if data.strip() and self.open:
            self.texts.append((self.open[-1], data))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def text() -> str:
    return report_html.render(documents.everything())


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_same_facts_give_the_same_bytes_on_any_day(text: str) -> None:
    assert report_html.render(documents.everything()) == text


def check(text: str) -> Page:
    """What holds for the page of any facts."""
    page = Page(text)
    ids = [attributes["id"] for _tag, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert not {"script", "link", "iframe", "object", "image", "img"} & {tag for tag, _attributes in page.elements}
    for _tag, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "srcset", "action")]
        for name in ("href", "aria-labelledby", "aria-describedby"):
            if name in attributes:
                assert attributes[name].removeprefix("#") in ids, attributes
        assert all(used in ids for used in re.findall(r"url\(#([^)]+)\)", " ".join(attributes.values())))
    style = "".join(data for tag, data in page.texts if tag == "style")
    assert "url(" not in style and "@import" not in style
    for svg in page.all("svg"):
        assert svg["role"] == "img" and svg["aria-labelledby"].endswith("-title")
    assert len(page.all("title")) == len(page.all("svg")) + 1 == len(page.all("desc")) + 1
    return page


def test_page_loads_nothing_and_each_plot_has_a_name_and_a_description(text: str) -> None:
    page = check(text)
    assert "http" not in text
    names = [data for tag, data in page.texts if tag == "title"]
    assert len(set(names)) == len(names) == 17
    told = next(data for tag, data in page.texts if tag == "desc" and data.startswith("Output tok/s against"))
    point = documents.everything().hosts[0].configurations[0].latest.points[0]
    assert f"0.5.23 triton: {point.output_tok_s.median:.1f} (" in told


def test_colours_are_those_of_the_page_so_that_dark_works(text: str) -> None:
    drawn = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL))
    assert set(re.findall(r"#[0-9a-f]{6}\b", drawn)) <= {"#000000"}
    assert "prefers-color-scheme: dark" in text
    for used in set(re.findall(r"var\((--[a-z0-9]+)\)", drawn)):
        # Once for light and once for dark.
        assert len(re.findall(rf"{used}: #", text)) == 2, used


def test_texts_of_plots_are_large_enough_for_a_narrow_screen(text: str) -> None:
    sizes = [float(size) for size in re.findall(r"<text style=\"font-size: ([0-9.]+)px", text)]
    assert sizes and min(sizes) * 390 / 400 >= 11
    assert len(sizes) == text.count("<text ")


def test_everything_that_was_recorded_is_on_the_page(page: Page) -> None:
    shown = " ".join(data for _tag, data in page.texts)
    for words in (
        "it could not be reached",
        "no benchmark is on record",
        "Got SM120.",
        "no measurable gain",
        "Regression gate: failed. output_tok_s at concurrency 1 fell by 11.2 %, allowed are 5 %",
        "flashinfer_cutlass (winner)",
        "It is not finished.",
        "moe_gemm",
        "Not drawn: 1 without a valid run",
        "invalid: output check failed: the server's text is one character repeated: '!!!!!!!!'",
    ):
        assert words in shown, words


def test_no_text_of_the_facts_is_markup() -> None:
    text = report_html.render(documents.hostile())
    check(text)
    assert "&lt;script&gt;" in text and "<script" not in text


@pytest.mark.parametrize("name", sorted(documents.nothing()))
def test_page_stands_when_something_is_missing(name: str) -> None:
    page = check(report_html.render(documents.nothing()[name]))
    assert "Nothing is on record." in [data.strip() for _tag, data in page.texts] or page.all("td")


def test_frontier_holds_what_nothing_beats_in_both() -> None:
    points = [(10.0, 100.0), (20.0, 50.0), (15.0, 40.0), (20.0, 45.0), (5.0, 100.0), (30.0, 1.0)]
    assert report_plots.frontier(points) == [(10.0, 100.0), (20.0, 50.0), (30.0, 1.0)]


def test_throughput_is_divided_by_the_gpus() -> None:
    box = documents.everything().hosts[0]
    plot = report_plots.pareto("k", report_plots.fastest(box.configurations))
    point = box.configurations[0].latest.points[0]
    assert plot is not None and plot.title == "Output tok/s per GPU against tok/s per user"
    each = f"{(point.output_tok_s.median or 0) / 8:.1f} per GPU, {point.user_tok_s:.1f} per user"
    assert f"gpu-box, 0.5.23 triton at concurrency 1: {each}" in plot.words
    host = report_plots.pareto("k", report_plots.fastest(documents.everything().hosts[1].configurations))
    assert host is not None and "per host" in host.title


def test_of_many_configurations_the_fastest_are_drawn() -> None:
    many = []
    for number in range(12):
        point = types.Point(1, types.Figure(float(number)), valid=True)
        run = types.Run("", "", None, types.Workload("m", "e"), "", "", 0, "", "", "", True, points=(point,))
        many.append(types.Configuration("h", str(number), run, run))
    drawn = report_plots.fastest(many)
    assert [one.label for one in drawn] == [str(number) for number in range(4, 12)]
    assert len({key.mark for key in report_plots.keys(drawn)}) == 8
    page = report_html.render(types.Report((types.Host("h", types.MEASURED, configurations=tuple(many)),)))
    assert "Not drawn: 4 slower than the fastest 8" in page


def test_ranks_of_a_large_server_are_the_slowest() -> None:
    ranks = tuple(types.RankStart(f"TP{n}", (types.Part("weights", float(n + 1)),)) for n in range(40))
    plot = report_plots.startup("k", "h", "l", types.Start(ranks=ranks))
    assert plot is not None and "TP39" in plot.words and "TP23:" not in plot.words
    assert "24 faster ranks are left out" in plot.words


def test_own_settings_of_matplotlib_change_nothing(text: str) -> None:
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "path", "font.size": 3, "axes.grid": False}):
        plot = report_plots.pareto("p0", report_plots.fastest(documents.everything().hosts[0].configurations))
        assert plot is not None and plot.svg in text
        assert matplotlib.rcParams["font.size"] == 3


def test_missing_matplotlib_is_one_message_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, globals: Mapping[str, Any] | None = None, *more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(f"No module named {name!r}")
        return real(name, globals, *more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(types.ReportError, match="pip install matplotlib"):
        report_html.render(documents.everything())


def test_example_in_the_documentation_loads_nothing_and_holds_a_real_ab_run() -> None:
    text = (Path(__file__).parents[4] / "docs" / "example-report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not page.all("script") and not page.all("link") and not page.all("img")
    assert not re.search(r"https?://(?!www\.w3\.org/)|@import|url\((?!#)", text)
    assert not re.search(r"[\s\"'>(]/(?:work|root|home|tmp|opt|usr|mnt|data)/", text)
    shown = " ".join(words for _tag, words in page.texts)
    assert "gpu-box-1" in shown and "NVIDIA H200" in shown and "gate open against gate closed" in shown
    assert "no measurable gain" in shown and "5 against 5 starts" in shown


def test_header_says_of_each_model_what_it_is() -> None:
    given = documents.document("cpu-box")
    shape = {"parameters": 29_943_332_864, "active_parameters": 2_747_467_776, "experts": 128, "experts_per_token": 8}
    record = {**given["latest"], "model_shape": {**shape, "layers": 48, "quantization": "<fp8>"}}
    record["context"] = {**record["context"], "model": {"served_name": "moe-30b"}, "random_weights": True}
    report = report_data.make({"a": {"schema_version": 2, "latest": record, "history": [record]}})
    page = Page(report_html.render(report).split("<nav")[0] + "</header></body></html>")
    assert [words for tag, words in page.texts if tag == "p"][-1] == (
        "moe-30b: 29.9 billion parameters, of which a token passes 2.7 billion; 128 experts, 8 a token;"
        " quantization <fp8>; random weights: the speed is real, the text is not."
    )
