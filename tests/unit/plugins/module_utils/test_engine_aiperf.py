# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of aiperf, and what is read in its recorded output."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import engine_aiperf
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_judge import judge
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError, Parameters, Target

RECORDINGS = Path(__file__).parent / "fixtures" / "aiperf"
TARGET = Target("::", 31100, "/models/tiny", "tiny-moe")


def asked(concurrency: int, prompts: int, **more: Any) -> Parameters:
    return Parameters(concurrency=(concurrency,), input_len=64, output_len=16, num_prompts=prompts, **more)


def read(directory: Path) -> dict[str, Any]:
    path = engine_aiperf.output_path(str(directory))
    return engine_aiperf.figures(Path(path).read_bytes(), path)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A recorded run that a test may change."""
    return Path(shutil.copytree(RECORDINGS / "concurrency-4", tmp_path / "run"))


def change(directory: Path, changes: dict[str, Any], name: str = "profile_export_aiperf.json") -> None:
    path = directory / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


# --- command line


def value_of(arguments: list[str], option: str) -> str:
    return arguments[arguments.index(option) + 1]


def test_first_repetition_warms_up_with_prompts_of_its_own() -> None:
    arguments = engine_aiperf.render_arguments(asked(4, 12, seed=7), TARGET, 4, 0, "/run")
    assert arguments[0] == "profile"
    options = {
        "--config": "/run/aiperf.json",
        "--model": "tiny-moe",
        "--tokenizer": "/models/tiny",
        "--url": "http://[::1]:31100",
        "--endpoint-type": "completions",
        "--concurrency": "4",
        "--request-count": "12",
        "--warmup-request-count": "4",
        "--warmup-concurrency": "4",
        "--isl": "64",
        "--isl-stddev": "0",
        "--osl": "16",
        "--osl-stddev": "0",
        "--random-seed": "7",
        "--num-dataset-entries": "16",
        "--dataset-sampling-strategy": "sequential",
        "--extra-inputs": "ignore_eos:true",
        "--reset-kv-cache-path": "/flush_cache",
        "--output-artifact-dir": "/run",
        "--ui-type": "none",
    }
    assert {option: value_of(arguments, option) for option in options} == options
    for option in ("--streaming", "--use-server-token-count", "--reset-kv-cache", "--export-outputs-json"):
        assert option in arguments
    assert {"--no-server-metrics", "--no-gpu-telemetry"} <= set(arguments)


def test_later_repetitions_have_another_seed_and_no_warmup() -> None:
    arguments = engine_aiperf.render_arguments(asked(4, 12, seed=7), TARGET, 4, 2, "/run")
    assert value_of(arguments, "--random-seed") == "9"
    assert value_of(arguments, "--num-dataset-entries") == "12"
    assert not [word for word in arguments if "warmup" in word]


def test_end_of_text_and_prefix_cache_are_left_as_asked() -> None:
    arguments = engine_aiperf.render_arguments(asked(4, 12, ignore_eos=False, flush_cache=False), TARGET, 4, 0, "/run")
    assert value_of(arguments, "--extra-inputs") == "ignore_eos:false"
    assert not [word for word in arguments if "kv-cache" in word]


# --- the key and the hub


def test_key_is_in_the_environment_and_only_named_in_the_file() -> None:
    arguments = engine_aiperf.render_arguments(asked(4, 12), TARGET, 4, 0, "/run")
    files = engine_aiperf.files("/run")
    assert list(files) == [value_of(arguments, "--config")]
    (text,) = files.values()
    assert json.loads(text)["benchmark"]["endpoint"] == {"apiKey": "${OPENAI_API_KEY:none}"}
    assert engine_aiperf.environment({}, "s3cret")["OPENAI_API_KEY"] == "s3cret"


def test_what_would_distort_a_run_is_not_inherited() -> None:
    inherited = {
        "PATH": "/bin",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "0",
        "AIPERF_HTTP_SO_RCVTIMEO": "1",
        "OPENAI_API_KEY": "of-someone-else",
    }
    env = engine_aiperf.environment(inherited, None)
    assert env == {"PATH": "/bin", "HF_ENDPOINT": "http://127.0.0.1:9"}


# --- figures


def test_recorded_run_is_read_under_the_names_of_bench_serving() -> None:
    found = read(RECORDINGS / "concurrency-4")
    texts = found.pop("generated_texts")
    assert len(texts) == 8 and all(texts)
    assert found == {
        "request_throughput": 0.15293951312428405,
        "output_throughput": 2.447032209988545,
        "input_throughput": 9.78812883995418,
        "total_throughput": 12.235161049942725,
        "duration": 52.2956608,
        "concurrency": 3.948866007343201,
        "completed": 8,
        "total_input_tokens": 512,
        "total_output_tokens": 128,
        "mean_ttft_ms": 8949.362176875,
        "median_ttft_ms": 8761.045838,
        "p99_ttft_ms": 11768.05355009,
        "mean_tpot_ms": 1124.6951391,
        "median_tpot_ms": 1137.2043764666666,
        "p99_tpot_ms": 1401.4385521319998,
        "mean_itl_ms": 1226.9401517454544,
        "median_itl_ms": 1012.0416319999999,
        "p99_itl_ms": 7562.927015759999,
        "max_concurrency": 4,
        "random_input_len": 64.0,
        "random_output_len": 16.0,
        "input_lens": [64] * 8,
        "output_lens": [16] * 8,
        "errors": [""] * 8,
    }
    assert isinstance(found["completed"], int)


@pytest.mark.parametrize(("name", "concurrency", "prompts"), [("concurrency-1", 1, 3), ("concurrency-4", 4, 8)])
def test_recorded_runs_are_valid(name: str, concurrency: int, prompts: int) -> None:
    point = judge(read(RECORDINGS / name), asked(concurrency, prompts), concurrency, False, engine_aiperf.NOT_TOLD)
    assert (point["reasons"], point["warnings"]) == ([], [])


def test_warmup_is_in_no_figure() -> None:
    found = read(RECORDINGS / "concurrency-1")
    warmup = json.loads((RECORDINGS / "concurrency-1" / "profile_export_aiperf.json").read_text())["warmup_metrics"]
    assert warmup["time_to_first_token"]["count"] == 1
    assert (found["completed"], len(found["input_lens"]), len(found["generated_texts"])) == (3, 3, 3)


def test_failed_requests_make_a_run_invalid() -> None:
    found = read(RECORDINGS / "partly-failed")
    assert (found["completed"], found["input_lens"]) == (2, [64, 64])
    assert found["errors"][:2] == ["", ""]
    assert len(found["errors"]) == len(found["generated_texts"]) == 8
    assert all(error.startswith("InvalidInferenceResultError: ") for error in found["errors"][2:])
    reasons = judge(found, asked(4, 8), 4, True, engine_aiperf.NOT_TOLD)["reasons"]
    assert "2 of 8 requests completed" in reasons
    assert any(reason.startswith("6 requests failed, the first with: InvalidInference") for reason in reasons)


def test_run_of_another_shape_is_told() -> None:
    reasons = judge(read(RECORDINGS / "concurrency-4"), asked(8, 8), 8, True)["reasons"]
    assert reasons == ["max_concurrency is 4, asked was 8"]


def test_answers_of_one_character_are_invalid(run: Path) -> None:
    outputs = json.loads((run / "outputs.json").read_text())
    for answer in outputs["data"]:
        answer["response_text"] = "!" * 16
    change(run, outputs, "outputs.json")
    reasons = judge(read(run), asked(4, 8), 4, False)["reasons"]
    assert reasons == ["degenerate_output: 8 of 8 answers are only '!' repeated"]


def test_cut_short_answer_is_invalid_although_the_export_says_nothing(run: Path) -> None:
    outputs = json.loads((run / "outputs.json").read_text())
    outputs["data"][3]["metrics"]["output_sequence_length"] = 15
    change(run, outputs, "outputs.json")
    assert judge(read(run), asked(4, 8), 4, True)["reasons"] == ["not every request gave the asked 16 output tokens"]


@pytest.mark.parametrize("said", [{"was_cancelled": True}, {"is_complete": False}, {"is_complete": None}])
def test_cancelled_run_is_invalid(run: Path, said: dict[str, Any]) -> None:
    change(run, said)
    (reason,) = judge(read(run), asked(4, 8), 4, True)["reasons"]
    assert reason == "1 requests failed, the first with: aiperf says that the run was cancelled or is not complete"


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (None, "the engine wrote no mean_ttft_ms, median_ttft_ms, p99_ttft_ms"),
        ({"unit": "ms", "p99": None, "avg": 1.0, "p50": 1.0}, "the engine wrote no p99_ttft_ms"),
        ({"unit": "ms", "p99": float("nan"), "avg": 1.0, "p50": 1.0}, "not a finite number: p99_ttft_ms=nan"),
        ({"unit": "ms", "p99": "<b>7</b>", "avg": 1.0, "p50": 1.0}, "not a finite number: p99_ttft_ms=<b>7</b>"),
        ({"unit": "ms", "p99": True, "avg": 1.0, "p50": 1.0}, "not a finite number: p99_ttft_ms=True"),
        ({"unit": "ms", "p99": -1.0, "avg": 1.0, "p50": 1.0}, "p99_ttft_ms is -1"),
        ([7.0], "the engine wrote no mean_ttft_ms, median_ttft_ms, p99_ttft_ms"),
    ],
)
def test_figure_that_is_none_is_never_made_up(run: Path, metric: Any, expected: str) -> None:
    change(run, {"time_to_first_token": metric})
    reasons = judge(read(run), asked(4, 8), 4, True)["reasons"]
    assert expected in reasons


def test_count_that_is_no_whole_number_stays_what_it_is(run: Path) -> None:
    change(run, {"total_osl": {"unit": "tokens", "avg": 128.5}})
    assert any("total_output_tokens is 128.5" in reason for reason in judge(read(run), asked(4, 8), 4, True)["reasons"])


@pytest.mark.parametrize("count", [0, -1, True, "6", 6.0, None, 10**12])
def test_senseless_number_of_errors_is_refused(run: Path, count: Any) -> None:
    change(run, {"error_summary": [{"error_details": {"type": "E"}, "count": count}]})
    with pytest.raises(BenchmarkError, match=r"an error happened .* times"):
        read(run)


def test_error_without_details_still_counts(run: Path) -> None:
    change(run, {"error_summary": [{"count": 2}]})
    assert read(run)["errors"][8:] == ["error: no message"] * 2


def test_other_unit_is_refused(run: Path) -> None:
    change(run, {"inter_token_latency": {"unit": "s", "avg": 1.1, "p50": 1.1, "p99": 1.4}})
    with pytest.raises(BenchmarkError, match="a figure is in s, not in ms"):
        read(run)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema_version": None}, "not an export of aiperf"),
        ({"input_config": []}, "not an export of aiperf"),
        ({"schema_version": "2.0"}, "its schema is 2.0, known is 1"),
        ({"input_config": {"datasets": [{}], "phases": []}}, "0 measured phases with 1 data sets"),
        ({"input_config": {"datasets": [{}], "phases": [{}, {}]}}, "2 measured phases"),
        ({"input_config": {"phases": [{"kind": "profiling"}]}}, "1 measured phases with 0 data sets"),
    ],
)
def test_foreign_export_is_refused(run: Path, changes: dict[str, Any], message: str) -> None:
    change(run, changes)
    with pytest.raises(BenchmarkError, match=message):
        read(run)


@pytest.mark.parametrize("name", ["profile_export_aiperf.json", "outputs.json"])
@pytest.mark.parametrize(
    ("share", "message"), [(0.0, "the file is empty"), (0.5, "half-written"), (0.99, "half-written")]
)
def test_half_written_files_are_refused(run: Path, name: str, share: float, message: str) -> None:
    data = (run / name).read_bytes()
    (run / name).write_bytes(data[: int(len(data) * share)])
    with pytest.raises(BenchmarkError, match=f"{name}: {message}"):
        read(run)


def test_missing_answers_are_refused(run: Path) -> None:
    os.unlink(run / "outputs.json")
    with pytest.raises(BenchmarkError, match=r"outputs\.json: No such file"):
        read(run)


def test_answers_that_are_no_list_are_refused(run: Path) -> None:
    change(run, {"data": {}}, "outputs.json")
    with pytest.raises(BenchmarkError, match="no list of answers"):
        read(run)
