# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The benchmark engines that can be asked for, each with its own file. Results of two engines are never compared."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    engine_aiperf,
    engine_bench_serving,
    engine_guidellm,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError, Parameters, Target

BENCH_SERVING = "bench_serving"


@dataclass(frozen=True)
class Engine:
    """How an engine is started and read.

    render: arguments of one repetition, from parameters, target, concurrency, repetition (from 0) and its directory.
    output_path: the file in that directory which holds the result. figures: that file's bytes and name -> figures under
    bench_serving's names. not_told: the figures it never has. begins: text that it prints when the measurement itself
    begins, "" for none. program: file beside the interpreter that is run; "" runs the module `name` with the
    interpreter. version: what is installed beside that interpreter, None when nothing is, or when the release of SGLang
    says it. files: what must lie in the directory before, by path. environment: from the one that the default engine
    gets and the server's key. flushes: whether it empties the prefix cache itself. key_variable: where its environment
    has the server's key.
    """

    name: str
    render: Callable[[Parameters, Target, int, int, str], list[str]]
    output_path: Callable[[str], str]
    figures: Callable[[bytes, str], dict[str, Any]]
    not_told: tuple[str, ...] = ()
    begins: str = ""
    program: str = ""
    version: Callable[[str], str | None] = lambda _python: None
    files: Callable[[str], Mapping[str, str]] = lambda _directory: {}
    environment: Callable[[Mapping[str, str], str | None], dict[str, str]] = lambda env, _key: dict(env)
    flushes: bool = True
    key_variable: str = "OPENAI_API_KEY"

    def entry(self, python: str, arguments: list[str]) -> dict[str, Any]:
        """One run of the driver's plan."""
        if self.program:
            return {"program": [os.path.join(os.path.dirname(python), self.program), *arguments]}
        return {"module": self.name, "arguments": arguments, "begins": self.begins}

    def argv(self, arguments: list[str]) -> list[str]:
        """What a person types behind the interpreter, or as the program, to do the same by hand."""
        return [self.program, *arguments] if self.program else ["-m", self.name, *arguments]

    def identity(self, version: str | None) -> str:
        """What stands for the engine in a fingerprint: its name, and its version where SGLang's does not say it."""
        return f"{self.name} {version}" if self.program and version else self.name

    def check(self, python: str) -> str | None:
        """The installed version. Raises BenchmarkError for a program that is not there."""
        version = self.version(python)
        if self.program and version is None:
            raise BenchmarkError(
                f"benchmark engine {self.name}: not installed beside {python}; install it into an environment of its "
                "own and name that environment's interpreter in engine_python (docs/engines.md)"
            )
        return version


ENGINES: Mapping[str, Engine] = {
    BENCH_SERVING: Engine(
        engine_bench_serving.NAME,
        engine_bench_serving.render_arguments,
        engine_bench_serving.output_path,
        engine_bench_serving.figures,
        begins=engine_bench_serving.BEGINS,
    ),
    engine_aiperf.NAME: Engine(
        engine_aiperf.NAME,
        engine_aiperf.render_arguments,
        engine_aiperf.output_path,
        engine_aiperf.figures,
        engine_aiperf.NOT_TOLD,
        program=engine_aiperf.PROGRAM,
        version=engine_aiperf.version,
        files=engine_aiperf.files,
        environment=engine_aiperf.environment,
        flushes=engine_aiperf.FLUSHES,
    ),
    engine_guidellm.NAME: Engine(
        engine_guidellm.NAME,
        engine_guidellm.render_arguments,
        engine_guidellm.output_path,
        engine_guidellm.figures,
        engine_guidellm.NOT_TOLD,
        program=engine_guidellm.PROGRAM,
        version=engine_guidellm.version,
        environment=engine_guidellm.environment,
        flushes=engine_guidellm.FLUSHES,
        key_variable=engine_guidellm.KEY_VARIABLE,
    ),
}


def find(name: str) -> Engine:
    """The engine of this name. Raises BenchmarkError with those that there are."""
    if name not in ENGINES:
        raise BenchmarkError(f"benchmark engine {name}: not known; take one of {', '.join(ENGINES)}")
    return ENGINES[name]
