# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One run from its beginning to its record: ask the server, run the engine, watch the GPUs, read, judge."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    bench_collect,
    bench_machine,
    bench_record,
    bench_run,
    bench_sampling,
    bench_start,
    server_limits,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_engines import Engine
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError, Parameters, Target


@dataclass(frozen=True)
class Request:
    """What is measured, where and with what.

    python: interpreter of the engine's environment. env: variables for the engine beside the inherited ones. context:
    the configuration, as it is recorded. sample_gpus: watch them meanwhile. timeout_s: for all points together.
    """

    engine: Engine
    python: str
    root: str
    target: Target
    parameters: Parameters
    machine: bench_machine.Machine
    context: Mapping[str, Any]
    timeout_s: float
    env: Mapping[str, str] = field(default_factory=dict)
    api_key: str | None = None
    admin_api_key: str | None = None
    sample_gpus: bool = True
    output_check: Mapping[str, Any] | None = None
    preflight: Mapping[str, Any] | None = None
    experiment: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.timeout_s <= 0:
            raise BenchmarkError(f"benchmark with timeout_s={self.timeout_s:g}: no time to measure; use more seconds")


def measure(asked: Request) -> tuple[dict[str, Any], str]:
    """Run the benchmark; its record, which may be invalid, and the end of its log.

    Raises BenchmarkError for a run that cannot begin.
    """
    engine, target = asked.engine, asked.target
    if not os.path.isdir(target.tokenizer):
        raise BenchmarkError(
            f"benchmark with the tokenizer in {target.tokenizer}: no such directory; correct model_path"
        )
    version = engine.check(asked.python)
    bench_run.check_server(target, asked.api_key)
    limits = server_limits.ask(target, asked.api_key)
    lengths = asked.parameters.input_len + asked.parameters.output_len
    parameters = asked.parameters.within(limits.last_point(lengths))
    run_dir = bench_run.new_run_directory(asked.root, time.time())
    runs = bench_run.wanted(engine, parameters, target, run_dir)
    plan = bench_run.plan(engine, parameters, target, asked.python, runs, run_dir)
    env = engine.environment(bench_run.environment(os.environ, asked.env, asked.api_key), asked.api_key)
    gpus = asked.machine.gpus if asked.sample_gpus else ()
    sampling = bench_sampling.sampler(gpus, run_dir, asked.timeout_s)
    with bench_run.shown_progress(asked.root, run_dir), sampling as samples:
        ended = bench_run.run_all(asked.python, plan, run_dir, env, asked.timeout_s, engine.name)
    hidden = [key for key in (asked.api_key, asked.admin_api_key) if key]
    collected = bench_collect.collect(engine, parameters, runs, bool(asked.context.get("random_weights")), hidden)
    bench_collect.clean(run_dir, hidden)
    windows = bench_collect.windows(bench_run.content(plan["progress"]), runs, collected.durations_s)
    sampled = bench_sampling.summary(samples, gpus, windows)
    ceilings = bench_machine.ceilings(asked.machine, _args(asked.context), target.tokenizer, parameters)
    points = [
        {
            **point,
            "gpu": sampled.get(point["concurrency"]),
            "roofline": bench_machine.roofline_share(ceilings.get(point["concurrency"]), point["output_tok_s"]),
        }
        for point in collected.points
    ]
    ran = bench_record.Ran(
        run_id=os.path.basename(run_dir),
        recorded_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        points=points,
        failure="; ".join(filter(None, (ended.failure, collected.failure))) or None,
        duration_s=ended.elapsed_s,
        raw_dir=run_dir,
        engine=engine.name,
        engine_version=version or asked.context.get("sglang_version"),
        identity=engine.identity(version),
        output_check=asked.output_check,
        warnings=bench_record.limit_warnings(asked.parameters, parameters, limits),
    )
    surroundings = bench_record.Surroundings(
        hardware=asked.machine.hardware,
        gpu_count=len(asked.machine.gpus),
        start=bench_start.of_server(asked.root),
        preflight=asked.preflight,
        experiment=asked.experiment,
        model_shape=bench_machine.model_facts(_args(asked.context), target.tokenizer),
    )
    return bench_record.make(ran, asked.context, asked.parameters, parameters, surroundings), ended.log_tail


def machine_of(context: Mapping[str, Any]) -> bench_machine.Machine:
    """The machine under the server that a context describes."""
    env = context.get("env")
    return bench_machine.look(_args(context), env if isinstance(env, Mapping) else {})


def _args(context: Mapping[str, Any]) -> Mapping[str, Any]:
    args = context.get("args")
    return args if isinstance(args, Mapping) else {}
