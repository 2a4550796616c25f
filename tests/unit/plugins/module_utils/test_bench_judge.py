# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is believed of a repetition, and of a whole run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bench_outputs import ASKED, RELEASES, judged, recording, without

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_judge
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_judge import judge, judge_run
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import Parameters

# --- one point (G1, G2, G5, G6, G8, B4)


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_run_is_valid_in_both_releases(release: str) -> None:
    point = judge(recording(release), ASKED, 1, random_weights=True)
    assert (point["valid"], point["reasons"], point["warnings"]) == (True, [], [])
    assert (point["completed"], point["num_prompts"]) == (4, 4)
    assert (point["input_tokens"], point["output_tokens"]) == (256, 128)


def test_figures_come_from_their_own_keys() -> None:
    raw = recording()
    names = [*bench_judge.NUMBERS.values()]
    point = judged({key: 1000.0 + index for index, key in enumerate(names)})
    assert {key: point[ours] for ours, key in bench_judge.NUMBERS.items()} == {
        key: 1000.0 + index for index, key in enumerate(names)
    }
    assert judged({})["output_tok_s"] == raw["output_throughput"] != raw["total_throughput"]
    assert judged({})["ttft_p99_ms"] == raw["p99_ttft_ms"]
    assert judged({})["duration_s"] == raw["duration"]


def test_partial_failure_is_invalid_and_says_how_many_and_why() -> None:
    errors = [
        "",
        "Traceback (most recent call last):\n  File x\nServerDisconnectedError: Server disconnected",
        "",
        "other",
    ]
    point = judged({"completed": 2, "errors": errors})
    assert point["valid"] is False
    assert "2 of 4 requests completed" in point["reasons"]
    assert "2 requests failed, the first with: ServerDisconnectedError: Server disconnected" in point["reasons"]


def test_errors_alone_are_invalid() -> None:
    assert judged({"errors": ["", "", "", "late"]})["reasons"] == ["1 requests failed, the first with: late"]


def test_long_error_page_is_cut() -> None:
    assert len(judged({"errors": ["x" * 10_000]})["reasons"][0]) < 400


def test_output_without_any_field_is_invalid_and_has_no_figures() -> None:
    point = judge({}, ASKED, 1, random_weights=True)
    assert point["valid"] is False
    assert point["output_tok_s"] is None
    assert "output_throughput" in point["reasons"][0]


@pytest.mark.parametrize(
    "key", ["output_throughput", "completed", "total_input_tokens", "p99_ttft_ms", "errors", "output_lens", "duration"]
)
def test_a_missing_key_is_named(key: str) -> None:
    assert without(key)["reasons"] == [f"the engine wrote no {key}"]


@pytest.mark.parametrize("value", [float("inf"), float("nan"), None, "12", True])
def test_figure_that_is_no_finite_number_is_invalid_and_not_recorded(value: Any) -> None:
    point = judged({"median_tpot_ms": value})
    assert point["tpot_median_ms"] is None
    assert point["reasons"] == [f"not a finite number: median_tpot_ms={value}"]
    json.dumps(point, allow_nan=False)


def test_integer_that_no_float_holds_is_no_number() -> None:
    point = judged({"total_output_tokens": 10**400})
    assert point["output_tokens"] is None
    assert point["reasons"][0].startswith("not a finite number: total_output_tokens=1000")
    assert len(point["reasons"][0]) < 100


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("mean_ttft_ms", -1.5, "mean_ttft_ms is -1.5"),
        ("p99_itl_ms", -1, "p99_itl_ms is -1"),
        ("median_tpot_ms", -0.1, "median_tpot_ms is -0.1"),
        ("duration", -3.0, "duration is -3"),
        ("duration", 0, "duration is 0"),
        ("concurrency", -1.0, "concurrency is -1"),
        ("total_output_tokens", 128.4, "total_output_tokens is 128.4, not a whole number"),
        ("output_lens", [], "output_lens has 0 lengths for 4 requests"),
        ("output_lens", [32, 32, 32], "output_lens has 3 lengths for 4 requests"),
        ("output_lens", [32, 32, 32, "32"], "output_lens has 3 lengths for 4 requests"),
        ("input_lens", [], "input_lens has 0 lengths for 4 requests"),
    ],
)
def test_figure_that_cannot_be_is_invalid(key: str, value: Any, reason: str) -> None:
    assert judged({key: value})["reasons"] == [reason]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        # A thousandfold too good, as when seconds and milliseconds are taken for each other.
        ({"duration": 0.0009132707789999586}, "output_throughput is 140.156, but 128 in 0.000913271 s are"),
        ({"output_throughput": 148.0}, "output_throughput is 148, but 128 in 0.913271 s are 140.156 a second"),
        ({"output_throughput": 420.4667540337644}, "output_throughput is 420.467, but 128 in 0.913271 s"),
        ({"total_throughput": 140.15558467792147}, "total_throughput is 140.156, but 384 in 0.913271 s"),
        ({"input_throughput": 1e30}, "input_throughput is 1e+30, but 256 in"),
        ({"request_throughput": 4.0}, "request_throughput is 4, but 4 in 0.913271 s are 4.37986 a second"),
        ({"p99_ttft_ms": 25015.1}, "p99_ttft_ms is 25015.1, longer than the whole repetition with its 0.913271 s"),
        ({"mean_tpot_ms": 6398.0}, "mean_tpot_ms is 6398, longer than"),
    ],
)
def test_rate_that_its_own_output_contradicts_is_invalid(changes: dict[str, Any], reason: str) -> None:
    point = judge({**recording(), **changes}, ASKED, 1, True)
    assert point["valid"] is False
    assert point["reasons"][0].startswith(reason)


def test_engines_may_stop_their_clocks_at_slightly_different_moments() -> None:
    assert judge({**recording(), "output_throughput": 140.15 * 1.04}, ASKED, 1, True)["valid"] is True
    assert judge({**recording(), "output_throughput": 140.15 / 1.04}, ASKED, 1, True)["valid"] is True


ALL = [f"{statistic}_{name}_ms" for statistic in ("mean", "median", "p99") for name in ("ttft", "tpot", "itl")]


def test_latencies_of_no_time_at_all_are_invalid() -> None:
    assert judged(dict.fromkeys(ALL, 0))["reasons"] == [
        "mean_ttft_ms is 0",
        "median_ttft_ms is 0",
        "p99_ttft_ms is 0",
        "mean_tpot_ms is 0 with 128 tokens in 4 answers",
    ]
    assert judged({"median_ttft_ms": 0.0})["reasons"] == ["median_ttft_ms is 0"]
    assert judged({"mean_tpot_ms": 0.0})["reasons"] == ["mean_tpot_ms is 0 with 128 tokens in 4 answers"]


@pytest.mark.parametrize(
    "changes",
    [
        # Several tokens in one read of the client.
        {"median_itl_ms": 0.0},
        {"mean_itl_ms": 0.0, "median_itl_ms": 0.0, "p99_itl_ms": 0.0},
        {"median_tpot_ms": 0.0},
    ],
)
def test_no_time_between_tokens_that_came_together_is_real(changes: dict[str, Any]) -> None:
    assert judged(changes)["valid"] is True


def test_answers_of_one_token_have_no_time_for_each_other_one() -> None:
    asked = Parameters(concurrency=(1,), input_len=64, output_len=32, ignore_eos=False)
    zero = {key: 0.0 for key in ALL if "ttft" not in key}
    assert judged({**zero, "total_output_tokens": 4, "output_lens": [1] * 4}, asked)["reasons"] == []


@pytest.mark.parametrize(("name", "median"), [("ttft", 23.41966599999523), ("tpot", 6.4), ("itl", 6.3)])
def test_percentile_below_the_median_is_invalid(name: str, median: float) -> None:
    keys = {f"median_{name}_ms": median}
    assert judged({**keys, f"p99_{name}_ms": median * 0.9995})["valid"] is True
    assert judged({**keys, f"p99_{name}_ms": median / 2})["reasons"] == [
        f"p99_{name}_ms is {median / 2:g}, below the median with {median:g}"
    ]


def test_more_requests_than_asked_cannot_be_under_way() -> None:
    assert judged({"concurrency": 1.04})["valid"] is True
    assert judged({"concurrency": 1.06})["reasons"] == ["concurrency is 1.06, asked was 1"]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (0.5, "accept_length is 0.5, but every step gives a token"),
        (0, "accept_length is 0, but every step gives a token"),
        (-2.0, "accept_length is -2, but every step gives a token"),
        (float("nan"), "not a finite number: accept_length=nan"),
        (float("inf"), "not a finite number: accept_length=inf"),
        ("2.1", "not a finite number: accept_length=2.1"),
        (True, "not a finite number: accept_length=True"),
        (10**400, "not a finite number: accept_length=1000000000000000000000000000000000000000"),
    ],
)
def test_speculative_decoding_accepts_a_token_a_step_at_least(told: Any, reason: str) -> None:
    assert judged({"accept_length": told})["reasons"] == [reason]


@pytest.mark.parametrize("told", [None, 1, 1.0, 0.9999999, 3.4])
def test_length_that_can_be_accepted_is_believed(told: Any) -> None:
    assert judged({"accept_length": told})["reasons"] == []


def test_infinite_request_rate_is_what_bench_serving_writes_for_no_limit() -> None:
    assert recording()["request_rate"] == float("inf")
    assert judged({})["valid"] is True


@pytest.mark.parametrize("key", ["output_throughput", "input_throughput", "request_throughput"])
def test_no_throughput_is_invalid(key: str) -> None:
    assert judged({key: 0.0})["reasons"] == [f"{key} is 0"]


@pytest.mark.parametrize(("mean", "valid"), [(64, True), (65, True), (63, True), (66, False), (62, False), (76, False)])
def test_input_length_may_differ_by_two_percent(mean: int, valid: bool) -> None:
    assert judged({"input_lens": [mean] * 4})["valid"] is valid
    assert judged({"total_input_tokens": mean * 4})["valid"] is valid


def test_wrong_input_length_says_which() -> None:
    assert judged({"input_lens": [70, 80, 76, 78]})["reasons"] == ["mean input length is 76 tokens, asked were 64"]


def test_wrong_number_of_output_tokens_is_invalid() -> None:
    assert judged({"total_output_tokens": 127})["reasons"] == ["127 output tokens, asked were 128"]


def test_output_lengths_that_only_add_up_right_are_invalid() -> None:
    point = judged({"output_lens": [31, 33, 32, 32]})
    assert point["reasons"] == ["not every request gave the asked 32 output tokens"]


def test_short_answers_are_allowed_when_the_user_lets_eos_end_them_and_the_record_says_so() -> None:
    asked = Parameters(concurrency=(1,), input_len=64, output_len=32, ignore_eos=False)
    point = judged({"total_output_tokens": 90, "output_lens": [20, 20, 25, 25]}, asked)
    assert point["valid"] is True
    assert "end-of-sequence" in point["warnings"][0]
    assert asked.as_dict()["ignore_eos"] is False


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dataset_name", "random"),
        ("random_range_ratio", 0.0),
        ("max_concurrency", 2),
        ("random_input_len", 1024),
        ("random_output_len", 33),
    ],
)
def test_line_of_another_run_is_invalid(key: str, value: Any) -> None:
    assert any(reason.startswith(f"{key} is {value}, asked was") for reason in judged({key: value})["reasons"])


@pytest.mark.parametrize("stuck", ["!" * 32, "0" * 8])
def test_one_character_repeated_is_degenerate_output(stuck: str) -> None:
    reasons = judged({"generated_texts": [stuck, stuck, stuck, "fine text"]}, random_weights=False)["reasons"]
    assert reasons == [f"degenerate_output: 3 of 4 answers are only {stuck[0]!r} repeated"]


@pytest.mark.parametrize(
    ("text", "character"),
    [
        ("!!!!!!!!!\n", "!"),
        ("\n\n" + "!" * 60 + "a", "!"),
        ("! " * 30, "!"),
        ("!\n!\t" * 10 + "ok", "!"),
        (" " * 32, " "),
        ("\n" * 8, "\n"),
        (" " * 30 + "a", " "),
        ("\x00" * 16, "\x00"),
        ("\ufffd" * 31 + "x", "\ufffd"),
    ],
)
def test_text_that_is_nearly_one_character_is_degenerate_too(text: str, character: str) -> None:
    reasons = judged({"generated_texts": [text] * 4}, random_weights=False)["reasons"]
    assert reasons == [f"degenerate_output: 4 of 4 answers are only {character!r} repeated"]


@pytest.mark.parametrize(
    "text", ["!!!!!!!", "! ! ! !", "       ", "!" * 9 + "a", "hello   \n\n\n  you\n", "a" + " " * 6, "1. a\n2. b\n3. c"]
)
def test_short_or_mixed_text_says_nothing_against_a_model(text: str) -> None:
    assert judged({"generated_texts": [text] * 4}, random_weights=False)["valid"] is True


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_texts_are_not_degenerate(release: str) -> None:
    assert judge(recording(release), ASKED, 1, random_weights=False)["reasons"] == []


@pytest.mark.parametrize("texts", [["!" * 32, "!" * 32, "a b", "c d"], ["!!!!!!!"] * 4, ["ab" * 16] * 4])
def test_text_that_is_not_one_character_for_most_prompts_is_accepted(texts: list[str]) -> None:
    assert judged({"generated_texts": texts}, random_weights=False)["valid"] is True


def test_text_of_random_weights_is_not_judged() -> None:
    assert judged({"generated_texts": ["!" * 32] * 4})["valid"] is True


def test_no_text_at_all_is_invalid_because_its_tokens_were_never_counted() -> None:
    assert judged({"generated_texts": [""] * 4}, random_weights=False)["reasons"] == [
        "empty_output: no request returned any text"
    ]


def test_some_answers_without_text_are_a_warning() -> None:
    point = judged({"generated_texts": ["", "a", "b", "c"]}, random_weights=False)
    assert (point["valid"], point["warnings"]) == (
        True,
        ["1 requests returned no text: bench_serving assumes their token counts"],
    )


@pytest.mark.parametrize("change", [{"accept_length": 2.4}, {"server_info": {"speculative_algorithm": "EAGLE"}}])
def test_speculative_decoding_on_random_prompts_is_warned_of(change: dict[str, Any]) -> None:
    point = judged(change)
    assert point["valid"] is True
    assert "speculative decoding is on" in point["warnings"][0]
    assert point["accept_length"] == change.get("accept_length")


def test_kept_prefix_cache_is_warned_of() -> None:
    asked = Parameters(concurrency=(1,), input_len=64, output_len=32, flush_cache=False)
    assert "prefix cache was not emptied" in judged({}, asked)["warnings"][0]


@pytest.mark.parametrize("key", ["errors", "input_lens", "output_lens", "generated_texts", "server_info"])
def test_detail_of_an_unexpected_shape_does_not_break_the_judgement(key: str) -> None:
    for shape in (None, 3, "text", {"a": 1}):
        judged({key: shape}, random_weights=False)


def test_what_an_engine_never_tells_is_a_warning_and_no_reason() -> None:
    output = {key: value for key, value in recording().items() if key not in ("input_lens", "generated_texts")}
    found = judge(output, ASKED, 1, False, not_told=("input_lens", "generated_texts"))
    assert (found["valid"], found["reasons"]) == (True, [])
    assert found["warnings"] == [
        "this engine does not tell input_lens, generated_texts, so nothing could be checked by it"
    ]
    assert judge(output, ASKED, 1, False, not_told=("input_lens",))["reasons"] == [
        "the engine wrote no generated_texts"
    ]


# --- the whole run


def test_run_that_ended_early_names_the_points_that_are_missing() -> None:
    asked = Parameters(concurrency=(1, 8, 32), input_len=64, output_len=32)
    assert judge_run([judged({})], asked, "it broke", None) == ["it broke", "no result for concurrency 8, 32"]


@pytest.mark.parametrize(
    ("check", "reasons"),
    [
        (None, []),
        ({"passed": True}, []),
        ({"passed": False, "reason": "!!!!"}, ["output check failed: !!!!"]),
        ({"passed": False}, ["output check failed: no reason given"]),
        ({}, ["output check failed: no reason given"]),
    ],
)
def test_failed_output_check_makes_good_figures_invalid(check: Any, reasons: list[str]) -> None:
    assert judge_run([judged({})], ASKED, None, check) == reasons


@pytest.mark.parametrize("listed", [None, {}, "text", [], ["one"], ["a", "b", "c", None]])
def test_answers_that_cannot_be_looked_at_are_not_believed(listed: Any) -> None:
    for key in ("generated_texts", "errors"):
        raw = {**recording(), key: listed}
        found = sum(isinstance(entry, str) for entry in listed) if isinstance(listed, list) else 0
        assert f"{key} has {found} texts for 4 requests" in judge(raw, ASKED, 1, random_weights=False)["reasons"]
        if key == "generated_texts":
            # They say nothing there.
            assert judge(raw, ASKED, 1, random_weights=True)["valid"] is True
