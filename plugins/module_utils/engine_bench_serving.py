# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""SGLang's own bench_serving as a benchmark engine: its command line, and its output in plain figures.

The same in 0.5.12.post1 and 0.5.23, whose sources are where the facts about it come from.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError, Parameters, Target

# Runs in every release. From 0.5.15 it is a shim over sglang.benchmark.serving, which 0.5.12 does not have.
NAME = "sglang.bench_serving"

# What this engine cannot tell, of the figures that are judged.
NOT_TOLD: tuple[str, ...] = ()

# Printed between warm-up and measurement (read in 0.5.12.post1 and 0.5.23).
BEGINS = "Starting main benchmark run"

#: Names in the server's answer about itself whose values are secrets.
SECRET_NAME = re.compile(r"(^|_)(key|password|secret|token)$")
REDACTED = "********"


def output_path(directory: str) -> str:
    """File that one repetition writes, in a directory of its own: bench_serving appends to what is there."""
    return os.path.join(directory, "result.jsonl")


def render_arguments(
    parameters: Parameters, target: Target, concurrency: int, repetition: int, directory: str
) -> list[str]:
    """Arguments of bench_serving for one repetition, counted from 0. Only the first one warms up."""
    return [
        "--backend", "sglang",
        "--base-url", target.url,
        "--model", target.tokenizer,
        "--tokenizer", target.tokenizer,
        "--served-model-name", target.served_name,
        # `random` would fetch a data set. The default ratio 0.0 draws lengths from 1 to the asked one, which halves
        # them on average.
        "--dataset-name", "random-ids",
        "--random-range-ratio", "1.0",
        # Without it the ids are decoded and tokenised again by the server, and 64 asked tokens become 76.
        "--tokenize-prompt",
        "--random-input-len", str(parameters.input_len),
        "--random-output-len", str(parameters.output_len),
        "--num-prompts", str(parameters.prompts_at(concurrency)),
        "--max-concurrency", str(concurrency),
        "--warmup-requests", str(0 if repetition else parameters.warmup_at(concurrency)),
        "--seed", str(parameters.seed_of(repetition)),
        # The same seed gives the same prompts: without a flush every later point and run would find its prompts in the
        # radix cache.
        *(["--flush-cache"] if parameters.flush_cache else []),
        *([] if parameters.ignore_eos else ["--disable-ignore-eos"]),
        "--disable-tqdm",
        "--output-details",
        "--output-file", output_path(directory),
    ]  # fmt: skip


def figures(data: bytes, where: str) -> dict[str, Any]:
    """The result bench_serving wrote last, from the bytes of its JSON Lines file.

    Never falls back to an earlier line: it would be another run's. Raises BenchmarkError for an empty, half-written or
    foreign file.
    """
    advice = "see the benchmark's log"
    lines = [line for line in data.split(b"\n") if line.strip()]
    if not lines:
        raise BenchmarkError(f"benchmark output in {where}: the file is empty; {advice}")
    if not data.endswith(b"\n"):
        raise BenchmarkError(f"benchmark output in {where}: the last line is half-written; {advice}")
    try:
        result = json.loads(lines[-1])
    except (ValueError, RecursionError) as error:
        raise BenchmarkError(f"benchmark output in {where}: the last line is not JSON ({error}); {advice}") from error
    if not isinstance(result, dict):
        raise BenchmarkError(
            f"benchmark output in {where}: the last line is a {type(result).__name__}, not an object; {advice}"
        )
    return result


def redact(result: Mapping[str, Any]) -> bytes:
    """The raw result as one JSON line that may lie on disk.

    bench_serving copies /server_info, and that holds the server's API key in clear (0.5.12.post1 and 0.5.23). Values
    in `server_info` whose name says key, password, secret or token are replaced. Infinity stays as bench_serving wrote
    it.
    """
    info = result.get("server_info")
    clean = dict(result)
    if isinstance(info, dict):
        clean["server_info"] = {
            name: REDACTED if value and isinstance(value, str) and SECRET_NAME.search(name) else value
            for name, value in info.items()
        }
    try:
        return json.dumps(clean).encode() + b"\n"
    except RecursionError as error:
        raise BenchmarkError(f"benchmark output: it is nested too deep ({error}); see the benchmark's log") from error
