# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of guidellm, and what is read in its recorded reports."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import engine_guidellm
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_judge import judge
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError, Parameters, Target

RECORDINGS = Path(__file__).parent / "fixtures" / "guidellm"
TARGET = Target("0.0.0.0", 31100, "/models/a, b", "tiny-moe")
UNTOLD = "this engine does not tell mean_itl_ms, median_itl_ms, p99_itl_ms, so nothing could be checked by it"


def asked(concurrency: int, prompts: int, **more: Any) -> Parameters:
    return Parameters(concurrency=(concurrency,), input_len=64, output_len=16, num_prompts=prompts, **more)


def recording(name: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((RECORDINGS / f"{name}.json").read_text())
    return report


def read(report: Any) -> dict[str, Any]:
    return engine_guidellm.figures(json.dumps(report).encode(), "benchmarks.json")


def judged(report: Any, concurrency: int, prompts: int, random_weights: bool = True) -> list[str]:
    point = judge(read(report), asked(concurrency, prompts), concurrency, random_weights, engine_guidellm.NOT_TOLD)
    reasons: list[str] = point["reasons"]
    return reasons


def requests_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = report["benchmarks"][-1]["requests"]["successful"]
    return found


# --- command line


def value_of(arguments: list[str], option: str) -> Any:
    return json.loads(arguments[arguments.index(option) + 1])


def counts(arguments: list[str]) -> list[str]:
    at = arguments.index("--override")
    return arguments[at + 1 : at + 3]


def test_first_repetition_is_a_warmup_and_a_measurement() -> None:
    arguments = engine_guidellm.render_arguments(asked(4, 12), TARGET, 4, 0, "/run")
    assert arguments[0] == "run"
    assert value_of(arguments, "--backend") == {
        "kind": "openai_http",
        "target": "http://127.0.0.1:31100",
        "model": "tiny-moe",
        "request_format": "/v1/completions",
    }
    assert value_of(arguments, "--tokenizer") == {"kind": "huggingface_auto", "model": "/models/a, b"}
    assert value_of(arguments, "--data") == {"kind": "synthetic_text", "prompt_tokens": 64, "output_tokens": 16}
    assert value_of(arguments, "--profile") == {"kind": "concurrent", "streams": 4}
    assert value_of(arguments, "--constraint") == {"kind": "max_requests", "count": 12}
    assert value_of(arguments, "--output") == {"kind": "json", "path": "/run/benchmarks.json"}
    assert counts(arguments) == ["constraints[0].count", "4,12"]
    assert arguments[-1] == "--disable-console"


def test_later_repetitions_only_measure() -> None:
    arguments = engine_guidellm.render_arguments(asked(4, 12), TARGET, 4, 1, "/run")
    assert counts(arguments) == ["constraints[0].count", "12"]


def test_end_of_text_counts_when_asked() -> None:
    arguments = engine_guidellm.render_arguments(asked(4, 12, ignore_eos=False), TARGET, 4, 1, "/run")
    assert value_of(arguments, "--backend")["extras"] == {"body": {"ignore_eos": False}}


def test_no_point_and_no_repetition_has_the_prompts_of_another() -> None:
    given = asked(4, 12, seed=1)
    seeds = {
        engine_guidellm.seed(given, concurrency, repetition)
        for concurrency in (1, 8, 32, 64, 256, 512, 1024)
        for repetition in range(10)
    }
    assert len(seeds) == 70
    assert value_of(engine_guidellm.render_arguments(given, TARGET, 4, 2, "/run"), "--seed") == {
        "kind": "static",
        "value": engine_guidellm.seed(given, 4, 2),
    }


def test_seed_is_one_that_numpy_takes() -> None:
    assert 0 <= engine_guidellm.seed(asked(4, 12, seed=2**32 - 20), 4, 0) < 2**32


def test_key_is_in_a_variable_of_its_own_and_settings_are_not_inherited() -> None:
    inherited = {"PATH": "/bin", "GUIDELLM__SPEC__BACKEND__TIMEOUT": "1", "OPENAI_API_KEY": "of-someone-else"}
    offline = {"PATH": "/bin", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    assert engine_guidellm.environment(inherited, None) == offline
    assert engine_guidellm.environment(inherited, "s3cret") == {
        **offline,
        "GUIDELLM__SPEC__BACKEND__API_KEY": "s3cret",
    }
    assert engine_guidellm.files("/run") == {}


def test_report_hides_the_key() -> None:
    assert recording("concurrency-4")["config"]["spec"]["backend"]["api_key"] == "*" * 10


# --- figures


def test_recorded_run_is_read_under_the_names_of_bench_serving() -> None:
    found = read(recording("concurrency-4"))
    texts = found.pop("generated_texts")
    assert len(texts) == 8 and all(texts)
    assert found == {
        "max_concurrency": 4,
        "random_input_len": 64,
        "random_output_len": 16,
        "completed": 8,
        "duration": 40.5785276889801,
        "total_input_tokens": 512,
        "total_output_tokens": 128,
        "request_throughput": pytest.approx(0.19714860187430008),
        "input_throughput": pytest.approx(12.617510519955205),
        "output_throughput": pytest.approx(3.1543776299888013),
        "total_throughput": pytest.approx(15.771888149944006),
        "concurrency": pytest.approx(3.997355402536874),
        "mean_ttft_ms": pytest.approx(8147.5019454956055),
        "median_ttft_ms": pytest.approx(7953.376889228821),
        "p99_ttft_ms": pytest.approx(10135.659880638123),
        "mean_tpot_ms": pytest.approx(808.5101743539175),
        "median_tpot_ms": pytest.approx(804.9157778422039),
        "p99_tpot_ms": pytest.approx(852.1035189628601),
        "input_lens": [64] * 8,
        "output_lens": [16] * 8,
        "errors": [""] * 8,
    }
    assert isinstance(found["total_output_tokens"], int)


@pytest.mark.parametrize("name", ["concurrency-1", "concurrency-4"])
def test_figures_agree_with_what_guidellm_says_itself(name: str) -> None:
    report = recording(name)
    found = read(report)
    own = {key: value["successful"] for key, value in report["benchmarks"][-1]["metrics"].items() if "_" in key}
    del own["request_totals"]
    assert found["request_throughput"] == pytest.approx(own["requests_per_second"]["mean"])
    assert found["output_throughput"] == pytest.approx(own["output_tokens_per_second"]["mean"])
    assert found["concurrency"] == pytest.approx(own["request_concurrency"]["mean"], rel=0.001)
    assert found["mean_ttft_ms"] == pytest.approx(own["time_to_first_token_ms"]["mean"])
    # It counts the first token, and is another figure.
    assert found["mean_tpot_ms"] < 0.95 * own["time_per_output_token_ms"]["mean"]


@pytest.mark.parametrize(("name", "concurrency", "prompts"), [("concurrency-1", 1, 3), ("concurrency-4", 4, 8)])
def test_recorded_runs_are_valid_without_times_of_single_tokens(name: str, concurrency: int, prompts: int) -> None:
    point = judge(read(recording(name)), asked(concurrency, prompts), concurrency, False, engine_guidellm.NOT_TOLD)
    assert (point["reasons"], point["warnings"]) == ([], [UNTOLD])
    assert point["itl_median_ms"] is None


def test_warmup_is_in_no_figure() -> None:
    report = recording("concurrency-1")
    assert [len(one["requests"]["successful"]) for one in report["benchmarks"]] == [1, 3]
    assert read(report)["completed"] == 3


def test_warmup_alone_is_no_measurement() -> None:
    report = recording("concurrency-1")
    report["benchmarks"].pop()
    with pytest.raises(BenchmarkError, match="1 benchmarks, asked were 2"):
        read(report)


def test_failed_requests_make_a_run_invalid() -> None:
    report = recording("partly-failed")
    found = read(report)
    assert found["errors"][:2] == ["", ""]
    assert len(found["errors"]) == len(found["generated_texts"]) == 8
    assert all("The request queue is full." in error for error in found["errors"][2:])
    reasons = judged(report, 4, 8)
    assert "2 of 8 requests completed" in reasons
    assert any(reason.startswith("6 requests failed") for reason in reasons)


def test_run_without_any_success_is_read_and_invalid() -> None:
    report = recording("partly-failed")
    requests_of(report).clear()
    found = read(report)
    assert found["completed"] == 0
    assert "mean_ttft_ms" not in found
    reasons = judged(report, 4, 8)
    assert "0 of 8 requests completed" in reasons
    assert "output_throughput is 0" in reasons


def test_requests_that_did_not_end_count_as_failed() -> None:
    report = recording("concurrency-4")
    lists = report["benchmarks"][-1]["requests"]
    lists["incomplete"] = [{**lists["successful"].pop(), "error": None}]
    found = read(report)
    assert found["errors"] == [""] * 7 + ["the request did not end"]
    assert "7 of 8 requests completed" in judged(report, 4, 8)


def test_run_of_another_shape_is_told() -> None:
    assert judged(recording("concurrency-4"), 8, 8) == ["max_concurrency is 4, asked was 8"]


def test_answers_of_one_character_are_invalid() -> None:
    report = recording("concurrency-4")
    for one in requests_of(report):
        one["output"] = "!" * 16
    assert judged(report, 4, 8, random_weights=False) == ["degenerate_output: 8 of 8 answers are only '!' repeated"]


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), True, "7", [7], 10**400])
@pytest.mark.parametrize(
    ("key", "lost"),
    [
        ("time_to_first_token_ms", {"mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms"}),
        ("inter_token_latency_ms", {"mean_tpot_ms", "median_tpot_ms", "p99_tpot_ms"}),
        ("output_tokens", {"total_output_tokens", "output_throughput", "total_throughput"}),
        ("prompt_tokens", {"total_input_tokens", "input_throughput", "total_throughput"}),
        ("request_latency", {"concurrency"}),
    ],
)
def test_figure_that_one_request_lacks_is_left_out(key: str, lost: set[str], value: Any) -> None:
    report = recording("concurrency-4")
    whole = set(read(report))
    requests_of(report)[5][key] = value
    assert whole - set(read(report)) == lost
    assert any("the engine wrote no" in reason for reason in judged(report, 4, 8))


@pytest.mark.parametrize("duration", [0, None, "40", float("nan"), True])
def test_no_rate_without_a_duration(duration: Any) -> None:
    report = recording("concurrency-4")
    report["benchmarks"][-1]["duration"] = duration
    assert not {"output_throughput", "request_throughput", "concurrency"} & set(read(report))
    assert any("output_throughput" in reason for reason in judged(report, 4, 8))


def test_percentile_lies_between_neighbours_as_in_numpy() -> None:
    report = recording("concurrency-4")
    for number, one in enumerate(requests_of(report)):
        one["time_to_first_token_ms"] = float((7 - number) * 10)
    found = read(report)
    assert (found["mean_ttft_ms"], found["median_ttft_ms"]) == (35.0, 35.0)
    assert found["p99_ttft_ms"] == pytest.approx(69.3)


def test_one_request_is_its_own_percentile() -> None:
    report = recording("concurrency-4")
    del requests_of(report)[1:]
    found = read(report)
    assert found["p99_ttft_ms"] == found["mean_ttft_ms"] == requests_of(report)[0]["time_to_first_token_ms"]


def test_half_a_token_is_told() -> None:
    report = recording("concurrency-4")
    requests_of(report)[0]["output_tokens"] = 16.5
    assert any("total_output_tokens is 128.5" in reason for reason in judged(report, 4, 8))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("metadata",), {}, "not a report of guidellm"),
        (("metadata",), None, "not a report of guidellm"),
        (("benchmarks",), {}, "not a report of guidellm"),
        (("metadata", "version"), 3, "its version is 3, known is 2"),
        (("benchmarks",), [], "0 benchmarks, asked were 1"),
        (("benchmarks",), [7], "0 benchmarks, asked were 1"),
        (("config", "benchmarks"), None, "asked were an unknown number"),
        (("config",), [], "asked were an unknown number"),
        (("benchmarks", 0, "requests"), None, "no list of requests"),
        (("benchmarks", 0, "requests", "errored"), None, "no list of requests"),
    ],
)
def test_foreign_report_is_refused(path: tuple[Any, ...], value: Any, message: str) -> None:
    report = copy.deepcopy(recording("concurrency-4"))
    place = report
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(BenchmarkError, match=message):
        read(report)


@pytest.mark.parametrize(
    ("share", "message"), [(0.0, "the file is empty"), (0.5, "half-written"), (0.999, "half-written")]
)
def test_half_written_report_is_refused(share: float, message: str) -> None:
    data = (RECORDINGS / "concurrency-4.json").read_bytes()
    with pytest.raises(BenchmarkError, match=f"b.json: {message}"):
        engine_guidellm.figures(data[: int(len(data) * share)], "b.json")
