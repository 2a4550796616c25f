# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of bench_serving and what is believed of its output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import benchmark
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import (
    BenchmarkError,
    Parameters,
    Target,
    fingerprint,
    judge_point,
    judge_run,
    make_record,
    parse_output,
    redact,
    render_arguments,
    same_measurement,
    summary_lines,
)

RECORDINGS = Path(__file__).parent / "fixtures" / "bench_serving"
RELEASES = ["0.5.12.post1", "0.5.23"]
ASKED = Parameters(concurrency=(1,), input_len=64, output_len=32)


def recording(release: str = "0.5.23") -> dict[str, Any]:
    return parse_output((RECORDINGS / f"{release}.jsonl").read_bytes(), release)


def judged(changes: dict[str, Any], asked: Parameters = ASKED, random_weights: bool = True) -> dict[str, Any]:
    return judge_point({**recording(), **changes}, asked, asked.concurrency[0], random_weights)


def without(*keys: str) -> dict[str, Any]:
    return judge_point({key: value for key, value in recording().items() if key not in keys}, ASKED, 1, True)


# --- parameters


def test_prompts_are_a_multiple_of_the_concurrency_unless_given() -> None:
    assert Parameters((8,), 64, 32, num_prompts_factor=3).prompts_at(8) == 24
    assert Parameters((8,), 64, 32, num_prompts=10).prompts_at(8) == 10


@pytest.mark.parametrize(("asked", "expected"), [(None, 8), (1, 8), (20, 20)])
def test_warmup_is_at_least_one_batch_of_the_target_size(asked: int | None, expected: int) -> None:
    assert Parameters((8,), 64, 32, warmup_requests=asked).warmup_at(8) == expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"concurrency": ()}, "empty"),
        ({"concurrency": (1, 8, 1)}, "twice"),
        ({"concurrency": (0,)}, "concurrency=0"),
        ({"input_len": 0}, "input_len=0"),
        ({"output_len": 1}, "output_len=1"),
        ({"num_prompts_factor": 0}, "num_prompts_factor=0"),
        ({"warmup_requests": 0}, "warmup_requests=0"),
        ({"seed": -1}, "seed=-1"),
        ({"num_prompts": 7}, "never reaches concurrency 8"),
    ],
)
def test_senseless_parameters_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        Parameters(**{"concurrency": (8,), "input_len": 64, "output_len": 32, **wrong})


# --- command line (G1, G4)


def options(arguments: list[str]) -> dict[str, str | bool]:
    """--name value pairs; a name without a value is True."""
    pairs: dict[str, str | bool] = {}
    for word, following in zip(arguments, [*arguments[1:], "--"]):
        if word.startswith("--"):
            pairs[word] = True if following.startswith("--") else following
    return pairs


def test_command_line_asks_for_exact_lengths_of_random_ids() -> None:
    asked = Parameters(concurrency=(8,), input_len=64, output_len=32, seed=7)
    target = Target("127.0.0.1", 31100, "/models/tiny", "tiny-moe")
    assert options(render_arguments(asked, target, 8, "/run/c8.jsonl")) == {
        "--backend": "sglang",
        "--base-url": "http://127.0.0.1:31100",
        "--model": "/models/tiny",
        "--tokenizer": "/models/tiny",
        "--served-model-name": "tiny-moe",
        "--dataset-name": "random-ids",
        "--random-range-ratio": "1.0",
        "--tokenize-prompt": True,
        "--random-input-len": "64",
        "--random-output-len": "32",
        "--num-prompts": "32",
        "--max-concurrency": "8",
        "--warmup-requests": "8",
        "--seed": "7",
        "--flush-cache": True,
        "--disable-tqdm": True,
        "--output-details": True,
        "--output-file": "/run/c8.jsonl",
    }


def test_command_line_follows_the_choices_of_the_user() -> None:
    asked = Parameters(concurrency=(1,), input_len=64, output_len=32, flush_cache=False, ignore_eos=False)
    rendered = options(render_arguments(asked, Target("h", 1, "/t", "m"), 1, "f"))
    assert "--flush-cache" not in rendered
    assert rendered["--disable-ignore-eos"] is True


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:30000"),
        ("0.0.0.0", "http://127.0.0.1:30000"),
        ("::", "http://[::1]:30000"),
        ("fe80::1", "http://[fe80::1]:30000"),
        ("gpu-box", "http://gpu-box:30000"),
    ],
)
def test_url_of_the_server(host: str, url: str) -> None:
    assert Target(host, 30000, "/t", "m").url == url


# --- fingerprint


CONTEXT = {"sglang_version": "0.5.23", "backend": "auto", "args": {"tp-size": 8, "a": 1}, "release": 3}


def test_fingerprint_is_the_same_for_the_same_configuration_in_another_release_directory() -> None:
    reordered = {"release": 9, "args": {"a": 1, "tp-size": 8}, "backend": "auto", "sglang_version": "0.5.23"}
    assert fingerprint(CONTEXT, ASKED) == fingerprint(reordered, ASKED)
    assert len(fingerprint(CONTEXT, ASKED)) == 16


@pytest.mark.parametrize(
    "change", [{"sglang_version": "0.5.12"}, {"backend": "triton"}, {"args": {"tp-size": 4}}, {"unknown": 1}]
)
def test_fingerprint_changes_with_the_configuration(change: dict[str, Any]) -> None:
    assert fingerprint({**CONTEXT, **change}, ASKED) != fingerprint(CONTEXT, ASKED)


@pytest.mark.parametrize(
    "change",
    [
        {"concurrency": (2,)},
        {"input_len": 65},
        {"output_len": 33},
        {"num_prompts": 9},
        {"num_prompts_factor": 5},
        {"warmup_requests": 9},
        {"seed": 2},
        {"flush_cache": False},
        {"ignore_eos": False},
    ],
)
def test_fingerprint_changes_with_every_parameter(change: dict[str, Any]) -> None:
    other = Parameters(**{"concurrency": (1,), "input_len": 64, "output_len": 32, **change})
    assert fingerprint(CONTEXT, other) != fingerprint(CONTEXT, ASKED)


def test_fingerprint_ignores_how_the_number_of_prompts_was_said() -> None:
    assert fingerprint({}, Parameters((2,), 64, 32, num_prompts=8)) == fingerprint({}, Parameters((2,), 64, 32))


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_context_that_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(BenchmarkError, match="plain values"):
        fingerprint({"x": value}, ASKED)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (None, False),
        ({}, False),
        ({"valid": True, "fingerprint": "f"}, True),
        ({"valid": True, "fingerprint": "g"}, False),
        ({"valid": False, "fingerprint": "f"}, False),
        ({"valid": "yes", "fingerprint": "f"}, False),
    ],
)
def test_only_a_valid_record_of_the_same_fingerprint_spares_a_run(record: Any, expected: bool) -> None:
    assert same_measurement(record, "f") is expected


# --- raw output (G3)


def test_last_line_of_the_file_counts() -> None:
    assert parse_output(b'{"a": 1}\n{"a": 2}\n\n{"a": 3}\n', "f") == {"a": 3}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b'{"a": 1}\n{"a": ', "half-written"),
        (b'{"a": 1}', "half-written"),
        (b'{"a": 1}\n{"a": \n', "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[1]\n", "list"),
        (b"[" * 100_000 + b"\n", "not JSON"),
    ],
)
def test_output_that_is_not_a_whole_result_is_refused_and_no_earlier_line_taken(data: bytes, why: str) -> None:
    with pytest.raises(BenchmarkError, match=f"out.jsonl.*{why}"):
        parse_output(data, "out.jsonl")


def test_key_of_the_server_does_not_stay_in_the_raw_output() -> None:
    raw = recording("0.5.12.post1")
    assert raw["server_info"]["api_key"] == "a-key-of-the-recording"
    clean = redact(raw)
    assert b"a-key-of-the-recording" not in clean
    assert parse_output(clean, "f") == {**raw, "server_info": {**raw["server_info"], "api_key": "********"}}


def test_known_secret_is_removed_wherever_it_stands_also_when_json_escapes_it() -> None:
    secret = 'k"\u00e9y'
    raw = {"errors": [f"refused {secret}"], "server_info": {"launch_command": f"--api-key {secret}", "tokenizer": "t"}}
    clean = json.loads(redact(raw, [secret, ""]))
    assert clean["errors"] == ["refused ********"]
    assert clean["server_info"] == {"launch_command": "--api-key ********", "tokenizer": "t"}


@pytest.mark.parametrize("name", ["admin_api_key", "ssl_keyfile_password", "hf_token"])
def test_settings_that_name_a_secret_are_redacted(name: str) -> None:
    info = {name: "hidden", "tokenizer_path": "seen", "max_total_tokens": 1, "tokenizer": "seen"}
    assert json.loads(redact({"server_info": info}))["server_info"] == {**info, name: "********"}


# --- one point (G1, G2, G5, G6, G8, B4)


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_run_is_valid_in_both_releases(release: str) -> None:
    point = judge_point(recording(release), ASKED, 1, random_weights=True)
    assert (point["valid"], point["reasons"], point["warnings"]) == (True, [], [])
    assert (point["completed"], point["num_prompts"]) == (4, 4)
    assert (point["input_tokens"], point["output_tokens"]) == (256, 128)


def test_figures_come_from_their_own_keys() -> None:
    raw = recording()
    names = [*benchmark._NUMBERS.values()]
    point = judged({key: 1000.0 + index for index, key in enumerate(names)})
    assert {key: point[ours] for ours, key in benchmark._NUMBERS.items()} == {
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
    point = judge_point({}, ASKED, 1, random_weights=True)
    assert point["valid"] is False
    assert point["output_tok_s"] is None
    assert "output_throughput" in point["reasons"][0]


@pytest.mark.parametrize(
    "key", ["output_throughput", "completed", "total_input_tokens", "p99_ttft_ms", "errors", "output_lens", "duration"]
)
def test_a_missing_key_is_named(key: str) -> None:
    assert without(key)["reasons"] == [f"bench_serving wrote no {key}"]


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
        ("completed", 4.5, "completed is 4.5, not a whole number"),
        ("output_lens", [], "output_lens has 0 lengths for 4 requests"),
        ("output_lens", [32, 32, 32], "output_lens has 3 lengths for 4 requests"),
        ("output_lens", [32, 32, 32, "32"], "output_lens has 3 lengths for 4 requests"),
        ("input_lens", [], "input_lens has 0 lengths for 4 requests"),
    ],
)
def test_figure_that_cannot_be_is_invalid(key: str, value: Any, reason: str) -> None:
    assert judged({key: value})["reasons"] == [reason]


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


# --- the whole run


def record(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "run_id": "r1",
        "recorded_at": "2026-01-02T03:04:05Z",
        "wanted": "f" * 16,
        "context": CONTEXT,
        "parameters": ASKED,
        "points": [judged({})],
        "failure": None,
        "output_check": None,
        "duration_s": 12.34567,
        "raw_dir": "/bench/r1",
    }
    return make_record(**{**values, **changes})


def test_good_run_is_recorded_with_all_that_explains_it() -> None:
    made = record()
    assert (made["valid"], made["reasons"], made["warnings"]) == (True, [], [])
    assert made["engine"] == {"name": "sglang.bench_serving", "version": "0.5.23"}
    assert (made["context"], made["duration_s"], made["id"]) == (CONTEXT, 12.346, "r1")
    assert made["parameters"]["num_prompts"] == {"1": 4}


def test_invalid_point_makes_the_run_invalid_and_is_named() -> None:
    made = record(points=[judged({"completed": 3, "total_input_tokens": 192})])
    assert (made["valid"], made["reasons"]) == (False, ["concurrency 1: 3 of 4 requests completed"])


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
    made = record(output_check=check)
    assert (made["reasons"], made["output_check"]) == (reasons, check)


def test_same_warning_of_every_point_is_said_once() -> None:
    asked = Parameters(concurrency=(1, 8), input_len=64, output_len=32, flush_cache=False)
    made = record(parameters=asked, points=[judged({}, asked), judged({}, asked)])
    assert len(made["warnings"]) == 1


def test_summary_of_a_record_has_its_state_and_rates() -> None:
    made = record(points=[judged({"output_throughput": 140.16}), judged({"output_throughput": None})])
    assert summary_lines(made) == [
        f"2026-01-02T03:04:05Z configuration {'f' * 16} invalid",
        "concurrency 1: 140.2 output tok/s",
        "concurrency 1: no rate",
    ]
    assert summary_lines(None) == []
