# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's aiperf as a benchmark engine: its command line, and its output in figures under bench_serving's names.

Facts about it were found by running 0.13.0 and reading its source. docs/engines.md says what differs from the default
engine.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import engine_output, json_types
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError, Parameters, Target

NAME = "aiperf"

# Beside the interpreter of its environment. It starts several processes of its own, so it runs as one.
PROGRAM = "aiperf"

# What this engine cannot tell, of the figures that are judged.
NOT_TOLD: tuple[str, ...] = ()

# It posts to /flush_cache before the warm-up when the parameters ask for it.
FLUSHES = True

# The only major version of its export that was seen.
_SCHEMA = "1"
_OUTPUTS = "outputs.json"
_CONFIG = "aiperf.json"
# Tells its children that the hub cannot be reached, and that makes it look for a directory in the hub's cache: with
# either of them set, to any value, a local tokenizer is not found (0.13.0).
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
# Nothing listens there, so whatever asks the hub fails at once instead of waiting for a network.
_NO_HUB = "http://127.0.0.1:9"

# bench_serving's key -> (aiperf's metric, statistic). aiperf's inter_token_latency is the mean of a request without its
# first token, which is bench_serving's TPOT; its inter_chunk_latency is the time between two answers, its ITL.
_FIGURES = {
    "request_throughput": ("request_throughput", "avg"),
    "output_throughput": ("output_token_throughput", "avg"),
    "input_throughput": ("input_token_throughput", "avg"),
    "total_throughput": ("total_token_throughput", "avg"),
    "duration": ("benchmark_duration", "avg"),
    "concurrency": ("effective_concurrency", "avg"),
    "completed": ("request_count", "avg"),
    "total_input_tokens": ("total_isl", "avg"),
    "total_output_tokens": ("total_osl", "avg"),
    **{
        f"{statistic}_{name}_ms": (metric, field)
        for name, metric in (
            ("ttft", "time_to_first_token"),
            ("tpot", "inter_token_latency"),
            ("itl", "inter_chunk_latency"),
        )
        for statistic, field in (("mean", "avg"), ("median", "p50"), ("p99", "p99"))
    },
}
_COUNTS = ("completed", "total_input_tokens", "total_output_tokens")
_UNITS = {
    "request_throughput": "requests/sec",
    "output_token_throughput": "tokens/sec",
    "input_token_throughput": "tokens/sec",
    "total_token_throughput": "tokens/sec",
    "benchmark_duration": "sec",
    "effective_concurrency": "requests",
    "request_count": "requests",
    "total_isl": "tokens",
    "total_osl": "tokens",
    "time_to_first_token": "ms",
    "inter_token_latency": "ms",
    "inter_chunk_latency": "ms",
}


def output_path(directory: str) -> str:
    """The file with the figures. aiperf writes it last, and not at all when every request failed (exit code 1)."""
    return os.path.join(directory, "profile_export_aiperf.json")


def files(directory: str) -> dict[str, str]:
    """Path -> content of what must lie in the directory before aiperf starts.

    aiperf reads the server's key from argv or from its configuration file only. This one names the environment
    variable instead of holding the key; without one it sends the word "none". It must be complete; the command line
    overrides all that is measured.
    """
    configuration = {
        "benchmark": {
            "endpoint": {"apiKey": "${OPENAI_API_KEY:none}"},
            "datasets": [{"name": "main", "type": "synthetic", "entries": 1, "prompts": {"isl": 1, "osl": 1}}],
            "phases": [{"name": "profiling", "type": "concurrency", "concurrency": 1, "requests": 1}],
        }
    }
    # It reads YAML, and JSON is YAML.
    return {os.path.join(directory, _CONFIG): json.dumps(configuration, indent=2) + "\n"}


def environment(inherited: Mapping[str, str], api_key: str | None) -> dict[str, str]:
    """Environment of aiperf, from the one that the default engine gets. The key is in OPENAI_API_KEY."""
    env = {
        name: value
        for name, value in inherited.items()
        if name not in _OFFLINE and not name.startswith("AIPERF_") and name != "OPENAI_API_KEY"
    }
    env["HF_ENDPOINT"] = _NO_HUB
    if api_key:
        env["OPENAI_API_KEY"] = api_key
    return env


def render_arguments(
    parameters: Parameters, target: Target, concurrency: int, repetition: int, directory: str
) -> list[str]:
    """Arguments of aiperf for one repetition, counted from 0. Only the first one warms up.

    The files that `files` names must be there.
    """
    prompts = parameters.prompts_at(concurrency)
    warmup = 0 if repetition else parameters.warmup_at(concurrency)
    return [
        "profile",
        "--config", os.path.join(directory, _CONFIG),
        "--model", target.served_name,
        "--tokenizer", target.tokenizer,
        "--url", target.url,
        # A chat template would add tokens to the prompt.
        "--endpoint-type", "completions",
        "--streaming",
        # The server's own count of tokens. aiperf would tokenise the text again, which gives other numbers.
        "--use-server-token-count",
        "--concurrency", str(concurrency),
        "--request-count", str(prompts),
        *(["--warmup-request-count", str(warmup), "--warmup-concurrency", str(concurrency)] if warmup else []),
        "--isl", str(parameters.input_len),
        "--isl-stddev", "0",
        "--osl", str(parameters.output_len),
        "--osl-stddev", "0",
        "--random-seed", str(parameters.seed_of(repetition)),
        # A prompt of its own for each request; otherwise they repeat and are found in the prefix cache.
        "--num-dataset-entries", str(prompts + warmup),
        "--dataset-sampling-strategy", "sequential",
        # Tokens drawn from the whole vocabulary, as random-ids of bench_serving does. The default is Shakespeare.
        "--prompt-corpus", "random",
        "--random-corpus-style", "sglang",
        "--extra-inputs", f"ignore_eos:{'true' if parameters.ignore_eos else 'false'}",
        *(["--reset-kv-cache", "--reset-kv-cache-path", "/flush_cache"] if parameters.flush_cache else []),
        "--output-artifact-dir", directory,
        "--export-level", "records",
        "--export-outputs-json",
        "--no-server-metrics",
        "--no-gpu-telemetry",
        "--ui-type", "none",
    ]  # fmt: skip


def version(python: str) -> str | None:
    """The release of aiperf in the environment of this interpreter, None when it is not there or cannot be started."""
    return engine_output.installed(python, NAME, PROGRAM)


def figures(data: bytes, where: str) -> dict[str, Any]:
    """What aiperf measured, under bench_serving's names, from the bytes of its export.

    `where` is the path of these; the answers are in another file beside it, which is read. A figure that aiperf did
    not write is left out. Raises BenchmarkError for an empty, half-written or foreign file.
    """
    result = engine_output.read_object(data, where)
    phase, dataset = _asked(result, where)
    found: dict[str, Any] = {
        key: value
        for key, (metric, field) in _FIGURES.items()
        if (value := _value(result.get(metric), field, _UNITS[metric], where)) is not None
    }
    # Written as 16.0.
    found.update({key: int(found[key]) for key in _COUNTS if key in found and _is_count(found[key])})
    prompts = engine_output.mapping(dataset.get("prompts"))
    asked = {
        "max_concurrency": phase.get("concurrency"),
        "random_input_len": engine_output.mapping(prompts.get("isl")).get("mean"),
        "random_output_len": engine_output.mapping(prompts.get("osl")).get("mean"),
    }
    found.update({key: value for key, value in asked.items() if value is not None})
    beside = os.path.join(os.path.dirname(where), _OUTPUTS)
    answers = _answers(engine_output.read_object(engine_output.read_file(beside), beside), beside)
    failed = _errors(result, where)
    metrics = [engine_output.mapping(answer.get("metrics")) for answer in answers]
    return {
        **found,
        "input_lens": [one.get("input_sequence_length") for one in metrics],
        "output_lens": [one.get("output_sequence_length") for one in metrics],
        "generated_texts": [answer.get("response_text") for answer in answers] + [""] * len(failed),
        "errors": [""] * len(answers) + failed,
    }


def _asked(result: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The measured phase and its prompts as aiperf understood them. Only its export has these."""
    schema = result.get("schema_version")
    config = result.get("input_config")
    if not isinstance(schema, str) or not isinstance(config, dict) or "aiperf_version" not in result:
        raise BenchmarkError(f"benchmark output in {where}: not an export of aiperf; {engine_output.ADVICE}")
    if schema.split(".")[0] != _SCHEMA:
        raise BenchmarkError(
            f"benchmark output in {where}: its schema is {schema[:20]}, known is {_SCHEMA}; "
            "install aiperf 0.13 or use another engine"
        )
    phases = engine_output.objects(config.get("phases"))
    measured = [phase for phase in phases if phase.get("kind", "profiling") == "profiling"]
    datasets = engine_output.objects(config.get("datasets"))
    if len(measured) != 1 or len(datasets) != 1:
        raise BenchmarkError(
            f"benchmark output in {where}: {len(measured)} measured phases with {len(datasets)} data sets, "
            f"one each was asked; {engine_output.ADVICE}"
        )
    return measured[0], datasets[0]


def _value(metric: Any, field: str, unit: str, where: str) -> Any:
    """One statistic of a metric as it was written, None when it was not."""
    if not isinstance(metric, dict) or metric.get(field) is None:
        return None
    if metric.get("unit") != unit:
        raise BenchmarkError(
            f"benchmark output in {where}: a figure is in {str(metric.get('unit'))[:20]}, not in {unit}; "
            "install aiperf 0.13 or use another engine"
        )
    return metric[field]


def _is_count(value: Any) -> bool:
    number = json_types.finite(value)
    return number is not None and math.floor(number) == number


def _answers(outputs: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    """The requests that succeeded, with their texts. Those of the warm-up are not listed."""
    listed = outputs.get("data")
    if not isinstance(listed, list):
        raise BenchmarkError(f"benchmark output in {where}: it has no list of answers; {engine_output.ADVICE}")
    # One that failed is listed too, with an empty object instead of its figures.
    return [answer for answer in engine_output.objects(listed) if engine_output.mapping(answer.get("metrics"))]


def _errors(result: Mapping[str, Any], where: str) -> list[str]:
    """One text for each request that failed, and one when the run did not come to its end."""
    found: list[str] = []
    for entry in engine_output.objects(result.get("error_summary")):
        details = engine_output.mapping(entry.get("error_details"))
        text = f"{details.get('type') or 'error'}: {details.get('message') or 'no message'}"
        count = entry.get("count")
        if not json_types.is_whole(count) or not 0 < count <= engine_output.MOST_REQUESTS:
            raise BenchmarkError(
                f"benchmark output in {where}: an error happened {str(count)[:20]} times; {engine_output.ADVICE}"
            )
        found += [text] * count
    if result.get("was_cancelled") is not False or result.get("is_complete") is not True:
        found.append("aiperf says that the run was cancelled or is not complete")
    return found
