# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""guidellm as a benchmark engine: its command line, and its output in figures under bench_serving's names.

Facts about it were found by running 0.8.1 and reading its source. docs/engines.md says what differs from the default
engine.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import engine_output
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError, Parameters, Target
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import finite

NAME = "guidellm"

# Beside the interpreter of its environment. It starts several processes of its own, so it runs as one.
PROGRAM = "guidellm"

# What this engine cannot tell, of the figures that are judged: it keeps one mean a request, no time of single tokens.
NOT_TOLD = ("mean_itl_ms", "median_itl_ms", "p99_itl_ms")

# It cannot ask the server to empty its cache: the caller does, before each repetition.
FLUSHES = False

# The only version of its report that was seen.
_REPORT = 2
# Its settings and its arguments, the key among them.
_SETTINGS = "GUIDELLM__"
KEY_VARIABLE = "GUIDELLM__SPEC__BACKEND__API_KEY"
# numpy takes seeds below 2**32.
_SEEDS = 1 << 31
_SEED_STEP = 65_599


def output_path(directory: str) -> str:
    """The file with the figures. guidellm writes it last, and also when every request failed (exit code 0)."""
    return os.path.join(directory, "benchmarks.json")


def files(directory: str) -> dict[str, str]:
    """Path -> content of what must lie in the directory before guidellm starts: nothing."""
    return {}


def environment(inherited: Mapping[str, str], api_key: str | None) -> dict[str, str]:
    """Environment of guidellm, from the one that the default engine gets. The key is in a variable of guidellm's own.

    The report shows asterisks instead of the key.
    """
    env = {
        name: value for name, value in inherited.items() if not name.startswith(_SETTINGS) and name != "OPENAI_API_KEY"
    }
    env.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    if api_key:
        env[KEY_VARIABLE] = api_key
    return env


def seed(parameters: Parameters, concurrency: int, repetition: int) -> int:
    """The seed guidellm gets. Another one for each concurrency: it would find its own prompts in the prefix cache."""
    return (parameters.seed_of(repetition) * _SEED_STEP + concurrency) % _SEEDS


def render_arguments(
    parameters: Parameters, target: Target, concurrency: int, repetition: int, directory: str
) -> list[str]:
    """Arguments of guidellm for one repetition, counted from 0. Only the first one warms up.

    guidellm's own warm-up counts requests that end early and measures while the last of them are under way. Instead
    two benchmarks are run one after the other, and the first one is the warm-up: it ends before the second begins, and
    has other prompts.
    """
    counts = [parameters.prompts_at(concurrency)]
    if not repetition:
        counts.insert(0, parameters.warmup_at(concurrency))
    backend: dict[str, Any] = {
        "kind": "openai_http",
        "target": target.url,
        "model": target.served_name,
        # A chat template would add tokens to the prompt.
        "request_format": "/v1/completions",
    }
    if not parameters.ignore_eos:
        # It ignores the end of the text as soon as a number of output tokens is asked for.
        backend["extras"] = {"body": {"ignore_eos": False}}
    data = {
        "kind": "synthetic_text",
        "prompt_tokens": parameters.input_len,
        "output_tokens": parameters.output_len,
    }
    return [
        "run",
        "--backend", json.dumps(backend),
        "--tokenizer", json.dumps({"kind": "huggingface_auto", "model": target.tokenizer}),
        "--data", json.dumps(data),
        "--profile", json.dumps({"kind": "concurrent", "streams": concurrency}),
        "--constraint", json.dumps({"kind": "max_requests", "count": counts[-1]}),
        "--override", "constraints[0].count", ",".join(map(str, counts)),
        "--seed", json.dumps({"kind": "static", "value": seed(parameters, concurrency, repetition)}),
        "--output", json.dumps({"kind": "json", "path": output_path(directory)}),
        "--disable-console",
    ]  # fmt: skip


def version(python: str) -> str | None:
    """The release of guidellm in the environment of this interpreter, None when it is not there or cannot start."""
    return engine_output.installed(python, NAME, PROGRAM)


def figures(data: bytes, where: str) -> dict[str, Any]:
    """What guidellm measured, under bench_serving's names, from the bytes of its report; `where` is its path.

    Computed from its requests, by bench_serving's definitions: rates are sums over the duration, percentiles are
    interpolated between neighbours. A figure that a request lacks is left out. Raises BenchmarkError for an empty,
    half-written or foreign file.
    """
    report = engine_output.read_object(data, where)
    measured, asked = _measured(report, where)
    requests = engine_output.mapping(measured.get("requests"))
    if not all(isinstance(requests.get(name), list) for name in ("successful", "errored", "incomplete")):
        raise BenchmarkError(f"benchmark output in {where}: it has no list of requests; {engine_output.ADVICE}")
    done = engine_output.objects(requests["successful"])
    failed = [_why(one) for name in ("errored", "incomplete") for one in engine_output.objects(requests[name])]
    inputs = [one.get("prompt_tokens") for one in done]
    outputs = [one.get("output_tokens") for one in done]
    return {
        **asked,
        "completed": len(done),
        "duration": measured.get("duration"),
        **_totals(finite(measured.get("duration")), done, inputs, outputs),
        **_spread("ttft", [one.get("time_to_first_token_ms") for one in done]),
        **_spread("tpot", [one.get("inter_token_latency_ms") for one in done]),
        "input_lens": inputs,
        "output_lens": outputs,
        "generated_texts": [one.get("output") for one in done] + [""] * len(failed),
        "errors": [""] * len(done) + failed,
    }


def _measured(report: Mapping[str, Any], where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The benchmark that is no warm-up, and what guidellm understood was asked of it."""
    metadata = engine_output.mapping(report.get("metadata"))
    if "guidellm_version" not in metadata or not isinstance(report.get("benchmarks"), list):
        raise BenchmarkError(f"benchmark output in {where}: not a report of guidellm; {engine_output.ADVICE}")
    if metadata.get("version") != _REPORT:
        raise BenchmarkError(
            f"benchmark output in {where}: its version is {str(metadata.get('version'))[:20]}, known is {_REPORT}; "
            "install guidellm 0.8 or use another engine"
        )
    config = engine_output.mapping(report.get("config"))
    wanted = config.get("benchmarks")
    ran = engine_output.objects(report["benchmarks"])
    # One that was interrupted may hold the warm-up alone, and that looks like a measurement.
    if not isinstance(wanted, list) or not ran or len(ran) != len(wanted):
        expected = len(wanted) if isinstance(wanted, list) else "an unknown number"
        raise BenchmarkError(
            f"benchmark output in {where}: {len(ran)} benchmarks, asked were {expected}; {engine_output.ADVICE}"
        )
    strategy = engine_output.mapping(engine_output.mapping(ran[-1].get("config")).get("strategy"))
    data = (engine_output.objects(engine_output.mapping(config.get("spec")).get("data")) or [{}])[0]
    asked = {
        "max_concurrency": strategy.get("streams"),
        "random_input_len": data.get("prompt_tokens"),
        "random_output_len": data.get("output_tokens"),
    }
    return ran[-1], {key: value for key, value in asked.items() if value is not None}


def _totals(
    duration_s: float | None, done: Sequence[Mapping[str, Any]], inputs: Sequence[Any], outputs: Sequence[Any]
) -> dict[str, Any]:
    """Sums, and sums by second, of what every request told."""
    input_tokens, output_tokens = _sum(inputs), _sum(outputs)
    latency_s = _sum(one.get("request_latency") for one in done)
    both = None if input_tokens is None or output_tokens is None else input_tokens + output_tokens
    sums = {
        "request_throughput": float(len(done)),
        "input_throughput": input_tokens,
        "output_throughput": output_tokens,
        "total_throughput": both,
        # Requests in flight on average.
        "concurrency": latency_s,
    }
    counts = {"total_input_tokens": _whole(input_tokens), "total_output_tokens": _whole(output_tokens)}
    rates = {key: value / duration_s for key, value in sums.items() if value is not None} if duration_s else {}
    return {**{key: value for key, value in counts.items() if value is not None}, **rates}


def _sum(values: Iterable[Any]) -> float | None:
    numbers = [finite(value) for value in values]
    return None if None in numbers else math.fsum(number for number in numbers if number is not None)


def _whole(value: float | None) -> float | None:
    """A sum of counts as the count it is; what is none stays, and is judged."""
    return int(value) if value is not None and value.is_integer() else value


def _spread(name: str, values: Sequence[Any]) -> dict[str, float]:
    """Mean, median and 99th percentile in milliseconds; nothing when a request lacks its value."""
    numbers = [number for value in values if (number := finite(value)) is not None]
    if not numbers or len(numbers) != len(values):
        return {}
    return {
        f"mean_{name}_ms": statistics.fmean(numbers),
        f"median_{name}_ms": statistics.median(numbers),
        f"p99_{name}_ms": _percentile(sorted(numbers), 0.99),
    }


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Interpolated between the two neighbours, as numpy does by default."""
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _why(request: Mapping[str, Any]) -> str:
    """Why a request failed. It always says something: an empty text means that it succeeded."""
    error = request.get("error") or engine_output.mapping(request.get("info")).get("error")
    return str(error) if error else "the request did not end"
