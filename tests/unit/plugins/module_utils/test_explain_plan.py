# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How several differences are taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import experiment_settings, explain_plan
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import ExperimentError
from ansible_collections.tokforge.sglang.plugins.module_utils.explain_plan import Combo

A = experiment_settings.base({"sglang_version": "0.5.23"})


def plan_of(count: int) -> explain_plan.Plan:
    """Two configurations with so many differences, f0, f1 and so on."""
    over = {"args": {f"f{number}": number + 1 for number in range(count)}}
    return explain_plan.plan(A, experiment_settings.merge(A, over))


def combos(*texts: str) -> tuple[Combo, ...]:
    """Sets of differences, one text of digits each."""
    return tuple(frozenset(int(digit) for digit in text) for text in texts)


def plain_ratio(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """The ratio of the first figures, with a band of one percent to each side."""
    change = (b[0] / a[0] - 1) * 100
    return change, change - 1, change + 1


@pytest.mark.parametrize(
    ("count", "names"),
    [(1, ["A", "B"]), (2, ["A", "B", "f0=1", "f1=2"]), (3, ["A", "B", "f0=1", "f1=2", "f2=3"])],
)
def test_first_are_both_ends_and_each_single_difference(count: int, names: list[str]) -> None:
    asked = plan_of(count)
    found = explain_plan.first_stage(asked)
    assert [one.name for one in found] == names
    assert (found[0].settings, found[1].settings) == (asked.a, asked.b)
    assert all(one.settings["args"] == {one.name[:2]: int(one.name[3])} for one in found[2:])
    assert explain_plan.needs_second_stage(asked) is (count > 2)


def test_number_of_differences_is_bounded() -> None:
    assert len(explain_plan.first_stage(plan_of(8))) == 10
    with pytest.raises(ExperimentError, match=r"9 things differ \(f0=1, .*at most 8"):
        plan_of(9)
    with pytest.raises(ExperimentError, match="do not differ"):
        explain_plan.plan(A, dict(A))


def test_path_makes_the_largest_effect_first_in_whatever_direction() -> None:
    way = explain_plan.path(plan_of(3), {0: 1.5, 1: 0.4, 2: 1.01}, [])
    assert way == explain_plan.Path(combos("", "1", "01", "012"))


def test_equal_and_unknown_effects_keep_the_order_of_the_differences() -> None:
    assert explain_plan.path(plan_of(3), {0: None, 1: 1.0, 2: 1.0}, []).combos == combos("", "1", "12", "012")
    assert explain_plan.path(plan_of(2), {}, []).combos == combos("", "0", "01")


def test_difference_that_does_not_run_alone_is_put_off() -> None:
    way = explain_plan.path(plan_of(3), {0: None, 1: 1.2, 2: 1.1}, combos("0"))
    assert way == explain_plan.Path(combos("", "1", "12", "012"), put_off=(0,))


def test_difference_that_does_not_run_with_others_waits_for_the_place_where_it_does() -> None:
    way = explain_plan.path(plan_of(4), {0: 3.0, 1: 2.0, 2: 1.5, 3: 1.1}, combos("01"))
    assert way == explain_plan.Path(combos("", "0", "02", "012", "0123"), put_off=(1,))


def test_differences_that_only_run_together_are_one_step() -> None:
    way = explain_plan.path(plan_of(3), {0: 1.5, 1: None, 2: None}, combos("1", "2", "01", "02"))
    assert way == explain_plan.Path(combos("", "0", "012"), put_off=(1, 2), joined=((1, 2),))
    alone = explain_plan.path(plan_of(2), {}, combos("0", "1"))
    assert alone == explain_plan.Path(combos("", "01"), put_off=(0, 1), joined=((0, 1),))


@pytest.mark.parametrize(("broken", "side"), [("01", "B"), ("", "A")])
def test_end_that_does_not_run_explains_nothing(broken: str, side: str) -> None:
    with pytest.raises(ExperimentError, match=f"{side} itself does not run"):
        explain_plan.path(plan_of(2), {}, combos(broken))


def figures(**values: float) -> dict[Combo, Sequence[float]]:
    """Five equal figures for each point, `p` for none and `p01` for two differences."""
    return {combos(name[1:])[0]: [value] * 5 for name, value in values.items()}


def test_contributions_multiply_to_the_total() -> None:
    # 880 to 3740 tok/s with four changes at once.
    way = explain_plan.path(plan_of(4), {0: 2.0, 1: 1.5, 2: 1.1, 3: 1.0}, [])
    on_path = figures(p=880, p0=1760, p01=3200, p012=3740, p0123=3740)
    found = explain_plan.result(plan_of(4), way, on_path, {}, plain_ratio)
    assert [step["name"] for step in found["steps"]] == ["f0=1", "f1=2", "f2=3", "f3=4"]
    assert [round(step["change_percent"], 1) for step in found["steps"]] == [100.0, 81.8, 16.9, 0.0]
    assert [step["verdict"] for step in found["steps"]] == ["faster"] * 3 + ["no_measurable_gain"]
    assert found["steps"][1]["difference"] == {"what": "args", "name": "f1", "a": None, "b": 2}
    assert found["total"]["change_percent"] == pytest.approx(325)
    assert found["total"]["verdict"] == "faster"
    assert (found["a"]["label"], found["b"]["label"]) == ("A", "B: f0=1 f1=2 f2=3 f3=4")


@pytest.mark.parametrize(
    ("last", "note"),
    [
        (300.0, []),
        (350.0, ["their single effects multiply to +200.0 %, less than the total between +249.0 and +251.0 %"]),
        (250.0, ["their single effects multiply to +200.0 %, more than the total between +149.0 and +151.0 %"]),
    ],
)
def test_interaction_is_said(last: float, note: list[str]) -> None:
    way = explain_plan.path(plan_of(2), {0: 2.0, 1: 1.5}, [])
    alone = {0: ([100.0] * 5, [200.0] * 5), 1: ([100.0] * 5, [150.0] * 5)}
    found = explain_plan.result(plan_of(2), way, figures(p=100, p0=200, p01=last), alone, plain_ratio)
    assert [text.partition("interact: ")[2] for text in found["notes"]] == note
    assert [step["alone_percent"] for step in found["steps"]] == [100.0, 50.0]
    assert found["steps"][1]["alone_band_percent"] == [49.0, 51.0]


def test_what_was_put_off_or_joined_is_said() -> None:
    way = explain_plan.path(plan_of(3), {0: 1.5, 1: None, 2: None}, combos("1", "2", "01", "02"))
    found = explain_plan.result(plan_of(3), way, figures(p=100, p0=200, p012=210), {}, plain_ratio)
    assert found["notes"] == [
        "f1=2 and f2=3 only run together; they are one step",
        "not every difference runs alone, so single effects cannot be held against the total",
    ]
    assert [part["name"] for part in found["steps"][1]["difference"]["parts"]] == ["f1", "f2"]
    later = explain_plan.path(plan_of(2), {1: 1.5}, combos("0"))
    found = explain_plan.result(plan_of(2), later, figures(p=100, p1=200, p01=210), {0: ([1.0], [])}, plain_ratio)
    assert found["notes"][0].startswith("f0=1 did not run where its effect would have put it")


def test_few_figures_say_nothing() -> None:
    way = explain_plan.path(plan_of(1), {}, [])
    values: dict[Combo, Sequence[float]] = {way.combos[0]: [1.0] * 4, way.combos[1]: [9.0] * 5}
    found = explain_plan.result(plan_of(1), way, values, {}, plain_ratio)
    assert found["steps"][0]["verdict"] == found["total"]["verdict"] == "not_comparable"
    assert found["notes"] == ["some configurations have only 4 starts; 5 are needed to tell noise from effect"]
    with pytest.raises(ExperimentError, match="no valid figures of B"):
        explain_plan.result(plan_of(1), way, {way.combos[0]: [1.0]}, {}, plain_ratio)


@pytest.mark.parametrize(
    ("band", "verdict"),
    [
        ((0.1, 5.0), "faster"),
        ((-5.0, -0.1), "slower"),
        ((-1.0, 1.0), "no_measurable_gain"),
        ((0.0, 1.0), "no_measurable_gain"),
    ],
)
def test_verdict_of_a_band(band: tuple[float, float], verdict: str) -> None:
    assert explain_plan.verdict(*band, 5) == verdict


def test_effect_is_the_ratio_of_medians() -> None:
    assert explain_plan.effect([1.0, 2.0, 90.0], [4.0, 3.0, 5.0]) == 2.0
    missing: list[Any] = []
    assert explain_plan.effect(missing, [1.0]) is explain_plan.effect([1.0], missing) is None
