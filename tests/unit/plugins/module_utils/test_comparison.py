# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts over recorded runs: what counts once, what is compared, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from comparison_records import record

from ansible_collections.tokforge.sglang.plugins.module_utils import comparison

SLOW = [100.0, 101.0, 99.0, 100.5, 98.5]
FAST = [120.0, 121.0, 119.0, 120.5, 118.5]
ALIKE = [100.2, 100.8, 99.2, 98.7, 100.1]


def run(name: str, values: list[float], concurrency: int = 8, **more: Any) -> dict[str, Any]:
    return record(name, {concurrency: values}, **more)


def compared(a: Any, b: Any, **more: Any) -> dict[str, Any]:
    found = comparison.compare(a, b, **more)
    json.dumps(found, allow_nan=False)
    return found


# --- verdicts ----------------------------------------------------------------------------------------------------


def test_a_fifth_more_is_faster_with_estimate_band_and_figures() -> None:
    found = compared([run("r1", SLOW)], [run("r2", FAST)], recorded_at="2026-03-14T10:00:00Z")
    [point] = found["points"]
    assert found["verdict"] == point["verdict"] == "faster"
    assert point["change_percent"] == pytest.approx(20.0, abs=0.2)
    assert point["band_percent"][0] == pytest.approx(17.9, abs=0.3)
    assert point["band_percent"][1] == pytest.approx(22.1, abs=0.5)
    assert point["p_value"] == pytest.approx(2 / 252)
    assert point["a"] == {"n": 5, "median": 100.0, "least": 98.5, "most": 101.0}
    assert "output tok/s +20.0 %" in found["why"] and found["why"].endswith("5 against 5 repetitions")
    assert (found["kind"], found["metric"], found["unit"]) == ("ab", "output_tok_s", "repetition")
    assert found["a"] == {"label": "0.5.23 auto", "fingerprint": "a" * 16, "ids": ["r1"], "starts": 1}
    assert found["regression"] is None and found["recorded_at"] == "2026-03-14T10:00:00Z"


def test_the_other_way_round_it_is_slower() -> None:
    found = compared([run("r1", FAST)], [run("r2", SLOW)])
    assert found["verdict"] == "slower"
    assert found["points"][0]["change_percent"] == pytest.approx(-16.7, abs=0.2)


def test_noise_is_no_measurable_gain() -> None:
    found = compared([run("r1", SLOW)], [run("r2", ALIKE)])
    assert found["verdict"] == "no_measurable_gain" and found["why"].startswith("within the noise: output tok/s")
    low, high = found["points"][0]["band_percent"]
    assert low < 0 < high


def test_less_is_better_for_latencies() -> None:
    a, b = run("r1", SLOW, metric="ttft_median_ms"), run("r2", FAST, metric="ttft_median_ms")
    assert compared([a], [b], metric="ttft_median_ms")["verdict"] == "slower"
    found = compared([b], [a], metric="ttft_median_ms")
    assert found["verdict"] == "faster" and found["points"][0]["change_percent"] < 0


def test_a_certain_change_below_the_tie_is_no_measurable_gain() -> None:
    a = [100.00, 100.01, 100.02, 100.03, 100.04]
    b = [value * 1.005 for value in a]
    found = compared([run("r1", a)], [run("r2", b)])
    assert found["verdict"] == "no_measurable_gain" and found["points"][0]["p_value"] < 0.01
    assert found["why"].startswith("certain, but below 1 %")
    assert compared([run("r1", a)], [run("r2", b)], tie_percent=0.2)["verdict"] == "faster"


def test_one_faster_point_among_others_makes_faster() -> None:
    a, b = record("r1", {1: SLOW, 8: SLOW}), record("r2", {1: ALIKE, 8: FAST})
    found = compared([a], [b])
    assert [point["verdict"] for point in found["points"]] == ["no_measurable_gain", "faster"]
    assert found["verdict"] == "faster" and "faster at 1 of 2 points" in found["why"]


def test_faster_here_and_slower_there_asks_which_concurrency_counts() -> None:
    # b12x against cutlass: which is faster depends on the load.
    a, b = record("r1", {1: SLOW, 32: FAST}), record("r2", {1: FAST, 32: SLOW})
    found = compared([a], [b])
    assert found["verdict"] == "not_comparable"
    assert "faster at 1, slower at 32: name the concurrency that counts" in found["why"]
    assert compared([a], [b], concurrency=1)["verdict"] == "faster"
    assert compared([a], [b], concurrency=32)["verdict"] == "slower"


def test_declared_concurrency_is_tested_by_itself() -> None:
    # Points 1 and 2 separate under labelings of their own, so together they cost point 8 its certainty.
    ladder = {1: [1.0, 9.0, 2.0, 8.0, 3.0], 2: [5.0, 4.0, 6.0, 3.0, 7.0], 8: SLOW}
    other = {1: [7.0, 4.0, 6.0, 5.0, 10.0], 2: [1.0, 9.0, 2.0, 8.0, 10.0], 8: FAST}
    a, b = record("r1", ladder), record("r2", other)
    together, alone = compared([a], [b]), compared([a], [b], concurrency=8)
    assert together["points"][2]["p_value"] == pytest.approx(6 / 252)
    assert alone["points"][2]["p_value"] == pytest.approx(2 / 252)
    assert alone["points"][0]["p_value"] == together["points"][0]["p_value"]
    assert any("tested by itself" in note for note in alone["notes"])


def test_too_many_points_for_too_few_repetitions_are_told() -> None:
    # Each point separates the ten units another way, the first one the sides: 2 x 7 of 252 labelings are as great.
    highest = ["56789", "06789", "01789", "01289", "01239", "02468", "01256"]
    ladders: list[dict[int, list[float]]] = [{}, {}]
    for place, high in enumerate(highest):
        figures = [100.0 + unit + (50 if str(unit) in high else 0) for unit in range(10)]
        ladders[0][place + 1], ladders[1][place + 1] = figures[:5], figures[5:]
    found = compared([record("r1", ladders[0])], [record("r2", ladders[1])])
    assert found["points"][0]["p_value"] == pytest.approx(14 / 252)
    assert found["verdict"] == "no_measurable_gain"
    [note] = [note for note in found["notes"] if "too many" in note]
    assert "7 points are too many for so few repetitions (the least p-value is 0.056" in note
    assert "the bands hold at 94 %" in note and "measure 6 a side, or name the concurrency" in note
    assert compared([record("r1", ladders[0])], [record("r2", ladders[1])], concurrency=1)["verdict"] == "faster"


def test_drawn_labelings_are_told() -> None:
    a, b = [run("r1", [*SLOW, *SLOW, *SLOW])], [run("r2", [*FAST, *FAST, *FAST])]
    found = compared(a, b)
    assert found["verdict"] == "faster"
    assert any("20000 labelings drawn with a fixed seed" in note for note in found["notes"])


# --- what counts once --------------------------------------------------------------------------------------------


def starts(name: str, medians: list[float], **more: Any) -> list[dict[str, Any]]:
    return [
        run(f"{name}{place}", [value - 1, value, value + 2], start=f"{name}{place}", **more)
        for place, value in enumerate(medians)
    ]


def test_with_five_starts_a_side_a_start_counts_once_with_its_median() -> None:
    found = compared(starts("a", SLOW), starts("b", FAST))
    assert (found["unit"], found["verdict"]) == ("start", "faster")
    assert found["points"][0]["a"] == {"n": 5, "median": 100.0, "least": 98.5, "most": 101.0}
    assert (found["a"]["starts"], found["b"]["starts"]) == (5, 5)
    assert found["why"].endswith("5 against 5 starts")


def test_starts_that_differ_are_not_pooled() -> None:
    # Ten repetitions a side separate, but only because each side has two starts, and starts differ by more.
    a = [
        run("a1", [90.0, 90.5, 91.0, 90.2, 90.7], start="a1"),
        run("a2", [100.0, 100.5, 101.0, 100.2, 100.7], start="a2"),
    ]
    b = [
        run("b1", [105.0, 105.5, 106.0, 105.2, 105.7], start="b1"),
        run("b2", [95.0, 95.5, 96.0, 95.2, 95.7], start="b2"),
    ]
    found = compared(a, b)
    assert (found["verdict"], found["unit"]) == ("not_comparable", "start")
    assert "up to 11.0 % apart" in found["why"] and "2 of a and 2 of b" in found["why"]
    assert found["points"][0]["change_percent"] is None and found["points"][0]["a"]["n"] == 2


def test_starts_that_are_alike_are_pooled_and_it_is_said() -> None:
    a = [run("a1", [100.0, 104.0, 101.0], start="a1"), run("a2", [102.0, 99.0, 103.0], start="a2")]
    b = [run("b1", [120.0, 124.0, 121.0], start="b1"), run("b2", [122.0, 119.0, 123.0], start="b2")]
    found = compared(a, b)
    assert (found["verdict"], found["unit"]) == ("faster", "repetition") and found["points"][0]["b"]["n"] == 6
    assert any("alike as far as 2 of a and 2 of b can tell" in note for note in found["notes"])


def test_one_start_a_side_is_told_with_what_to_do() -> None:
    notes = compared([run("r1", SLOW)], [run("r2", FAST)])["notes"]
    assert any("each side is of one start" in note and "benchmark.yml -e ab=" in note for note in notes)
    assert any("one after the other, not in turns" in note for note in notes)


def test_sides_measured_in_turns_get_no_word_on_drift() -> None:
    a = [run(f"a{hour}", [value], start=f"a{hour}", recorded_at=f"T{2 * hour}") for hour, value in enumerate(SLOW)]
    b = [run(f"b{hour}", [value], start=f"b{hour}", recorded_at=f"T{2 * hour + 1}") for hour, value in enumerate(FAST)]
    found = compared(a, b)
    assert found["unit"] == "start" and found["verdict"] == "faster" and found["notes"] == []


def test_restarts_give_each_record_without_a_start_its_own() -> None:
    a = [run(f"a{place}", [value, value + 1], start=None) for place, value in enumerate(SLOW)]
    b = [run(f"b{place}", [value, value + 1], start=None) for place, value in enumerate(FAST)]
    assert compared(a, b)["unit"] == "repetition"
    assert compared(a, b, restarts=True)["unit"] == "start"


def test_fewer_than_five_are_too_few() -> None:
    found = compared([run("r1", SLOW[:4])], [run("r2", FAST)])
    assert found["verdict"] == "not_comparable" and "4 repetitions of a and 5 of b are too few" in found["why"]


def test_record_of_the_first_schema_is_one_repetition() -> None:
    old = [run(f"a{place}", [value], start=None) for place, value in enumerate(SLOW)]
    for one in old:
        del one["start"], one["points"][0]["values"], one["configuration"], one["gpu_count"]
        one["hardware"] = "unknown"
    found = compared(old, [run("r2", FAST)])
    assert found["verdict"] == "faster" and found["points"][0]["a"]["n"] == 5
    assert any("hardware of a run is not on record" in note for note in found["notes"])


def test_single_repetitions_of_several_starts_cannot_tell_whether_starts_differ() -> None:
    a = [run(f"a{place}", [value], start=f"a{place}") for place, value in enumerate(SLOW)]
    notes = compared(a, [run("r2", FAST)])["notes"]
    assert any("cannot be seen: there is one repetition a start" in note for note in notes)
    assert any("one side is of one start" in note for note in notes)


# --- what cannot be compared -------------------------------------------------------------------------------------

OBSTACLES: list[tuple[dict[str, Any], str]] = [
    ({"engine": {"name": "aiperf", "version": "1"}}, "measured with: sglang.bench_serving and aiperf"),
    (
        {"context": {"model": {"path": "/models/other", "served_name": "tiny"}}},
        "models: /models/tiny and /models/other",
    ),
    ({"context": {"random_weights": True}}, "random weights: false and true"),
    ({"hardware": "8x Other (cc 9.0, 80 GiB)"}, "hardware: GPU (cc 12.0, 95 GiB) and Other"),
    ({"parameters": {"seed": 2}}, "seed: 1 and 2"),
    ({"parameters": {"ignore_eos": False}}, "ignore_eos: true and false"),
    ({"parameters": {"flush_cache": False}}, "flush_cache: true and false"),
    ({"parameters": {"dataset": "sharegpt"}}, "data set: random-ids and sharegpt"),
    ({"valid": False, "reasons": ["3 of 4 requests completed"]}, "run r2 of b is invalid (3 of 4 requests completed)"),
    ({"valid": 1, "reasons": None}, "run r2 of b is invalid (no reason on record)"),
]


@pytest.mark.parametrize(("other", "said"), OBSTACLES)
def test_what_was_measured_otherwise_is_not_compared(other: dict[str, Any], said: str) -> None:
    found = compared([run("r1", SLOW)], [run("r2", FAST, **other)])
    assert found["verdict"] == "not_comparable" and said in found["why"]
    assert found["points"] == []


@pytest.mark.parametrize(
    "context",
    [
        {"sglang_version": "0.5.12.post1"}, {"args": {"tp-size": 4}}, {"backend": "triton"}, {"env": {"A": "1"}},
        {"autotune_gate": {"enabled_by": "us"}}, {"model": {"path": "/else/tiny/", "served_name": "tiny"}},
    ],
)  # fmt: skip
def test_what_one_wants_to_compare_is_a_difference_and_no_obstacle(context: dict[str, Any]) -> None:
    found = compared([run("r1", SLOW)], [run("r2", FAST, context=context)])
    assert found["verdict"] == "faster" and found["differences"]


@pytest.mark.parametrize("key", ["num_prompts", "input_len", "output_len"])
def test_point_measured_otherwise_is_left_out(key: str) -> None:
    a, b = record("r1", {1: SLOW, 8: SLOW}), record("r2", {1: FAST, 8: FAST})
    b["points"][1][key] = 7
    found = compared([a], [b])
    assert [point["concurrency"] for point in found["points"]] == [1] and found["verdict"] == "faster"
    assert any(note.startswith("left out: concurrency 8:") and "and 7" in note for note in found["notes"])
    assert compared([a], [b], concurrency=8)["verdict"] == "not_comparable"


def test_invalid_point_is_left_out() -> None:
    b = run("r2", FAST)
    b["points"][0]["valid"] = False
    assert "concurrency 8: a run is invalid there" in compared([run("r1", SLOW)], [b])["why"]


def test_speculation_on_one_side_only_is_not_compared_with_random_prompts() -> None:
    a, b = run("r1", SLOW), run("r2", FAST)
    b["points"][0]["accept_length"] = 2.9
    assert "speculative decoding on one side only" in compared([a], [b])["why"]
    for one in (a, b):
        one["parameters"]["dataset"] = "sharegpt"
    assert compared([a], [b])["verdict"] == "faster"


def test_other_number_of_the_same_gpus_is_told_and_compared() -> None:
    other = run("r2", FAST, hardware="4x GPU (cc 12.0, 95 GiB)", gpu_count=4)
    found = compared([run("r1", SLOW)], [other])
    assert found["verdict"] == "faster"
    assert any("a ran on 8 GPUs and b on 4" in note for note in found["notes"])


def test_runs_are_not_compared_with_themselves_nor_counted_twice() -> None:
    one = run("r1", SLOW)
    assert "the run r1 is there twice" in compared([one], [one])["why"]
    assert "the run r1 is there twice" in compared([one, one], [run("r2", FAST)])["why"]


def test_side_of_two_configurations_is_none() -> None:
    a = [run("a1", SLOW, configuration="x"), run("a2", SLOW, configuration="y")]
    assert "runs of a are of 2 configurations" in compared(a, [run("r2", FAST)])["why"]


def test_sides_without_a_common_point() -> None:
    found = compared([run("r1", SLOW, 1)], [run("r2", FAST, 8)])
    assert found["verdict"] == "not_comparable" and found["why"].startswith("no point in common")
    assert (
        "concurrency 4: no run has measured it" in compared([run("r1", SLOW)], [run("r2", FAST)], concurrency=4)["why"]
    )


def test_empty_side_is_not_comparable() -> None:
    assert compared([], [run("r2", FAST)])["why"] == "cannot be compared: there is no run of a"


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), 0, -1.0, True, "100", 10**400, [1]])
def test_odd_figure_takes_its_point_out(value: Any) -> None:
    a, b = run("r1", SLOW), run("r2", FAST)
    b["points"][0]["values"]["output_tok_s"][2] = value
    found = comparison.compare([a], [b])
    assert found["verdict"] == "not_comparable" and "a run has no usable output_tok_s" in found["why"]


ODD_PARTS = {"context": 5, "engine": [], "parameters": "x", "start": 1, "hardware": {}, "id": [], "points": [{}]}
ODD = [
    None, [], "x", {}, {"valid": True}, {"valid": True, "points": 3},
    {"valid": True, "points": [None, {"concurrency": True}]}, {"valid": True, **ODD_PARTS},
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_odd_records_are_not_comparable_and_raise_nothing(odd: Any) -> None:
    for a, b in (([odd], [run("r2", FAST)]), ([run("r1", SLOW)], [odd]), ([odd], [odd])):
        assert comparison.compare(a, b)["verdict"] == "not_comparable"


@pytest.mark.parametrize(
    "asked",
    [
        {"metric": "tok/s"}, {"concurrency": 0}, {"concurrency": True}, {"tie_percent": -1},
        {"tie_percent": float("nan")},
        {"tie_percent": 100}, {"tie_percent": "1"},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(comparison.ComparisonError, match="use "):
        comparison.compare([run("r1", SLOW)], [run("r2", FAST)], **asked)


def test_comparison_of_the_same_runs_has_the_same_id_and_of_others_another() -> None:
    slow, fast, third = [run("r1", SLOW)], [run("r2", FAST)], [run("r3", FAST)]
    assert compared(slow, fast)["id"] == compared(slow, fast)["id"] != compared(slow, third)["id"]
    assert compared(slow, fast)["id"] != compared(fast, slow)["id"]


def test_prompts_that_the_later_run_found_in_the_cache_make_no_verdict() -> None:
    def both(start_b: str | None, flush: bool, **args: Any) -> dict[str, Any]:
        shared: dict[str, Any] = {"parameters": {"flush_cache": flush}, "context": {"args": args}}
        return compared([run("r1", SLOW, **shared)], [run("r2", FAST, start=start_b, **shared)])

    found = both("s1", False)
    assert found["verdict"] == "not_comparable" and "the later one found its prompts in it" in found["why"]
    # Emptied, another start, no such cache, or nobody knows the start.
    others = both("s1", True), both("s2", False), both("s1", False, **{"disable-radix-cache": True}), both(None, False)
    assert [one["verdict"] for one in others] == ["faster"] * 4


def test_unknown_starts_are_not_called_one_start() -> None:
    notes = compared([run("r1", SLOW, start=None)], [run("r2", FAST)])["notes"]
    assert any(note.startswith("which starts of the server these are is not on record") for note in notes)
    assert not any("of one start" in note for note in notes)


def test_equal_figures_are_not_told_to_be_too_few() -> None:
    found = compared([run("r1", [100.0] * 5)], [run("r2", [100.0, 100.0, 100.0, 200.0, 200.0])])
    assert found["verdict"] == "no_measurable_gain"
    assert any(
        "too many figures are equal to tell a difference (the least p-value is 0.44" in one for one in found["notes"]
    )
    assert not any("a side, or name" in one for one in found["notes"])
