# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One whole run with a program of its own as the engine, a small server, and an nvidia-smi that replays a recording."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from bench_outputs import measured, recording

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    bench_machine,
    bench_measure,
    bench_sampling,
    engine_bench_serving,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_engines import Engine
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError, Parameters, Target
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu

KEY = "a-very-secret-key"
LOAD = Path(__file__).parent / "fixtures" / "dmon" / "580-h200-load.txt"
PARAMETERS = Parameters(concurrency=(1, 2), input_len=64, output_len=32, repetitions=2)


class Handler(BaseHTTPRequestHandler):
    """A server that runs four requests at once. It notes who empties its cache."""

    flushed: list[str | None]

    def answer(self, body: Any) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def do_GET(self) -> None:
        info = {"device": "cuda", "max_total_num_tokens": 192, "max_running_requests": 4}
        self.answer({"data": [{"id": "tiny"}]} if self.path == "/v1/models" else info)

    def do_POST(self) -> None:
        self.flushed.append(self.headers["Authorization"])
        self.answer({"success": True})

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(Handler, "flushed", [], raising=False)
    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running.server_port
        running.shutdown()
        thread.join()


def render(parameters: Parameters, _target: Target, concurrency: int, repetition: int, directory: str) -> list[str]:
    """The program copies a result that is made here."""
    count = parameters.prompts_at(concurrency)
    figures = {
        "max_concurrency": concurrency,
        "completed": count,
        "total_input_tokens": 64 * count,
        "total_output_tokens": 32 * count,
        "input_lens": [64] * count,
        "output_lens": [32] * count,
        "errors": [""] * count,
        "generated_texts": ["fine text"] * count,
        "output_throughput": 100.0 * concurrency + repetition,
    }
    Path(directory, "made").write_text(json.dumps(measured(recording(), figures)) + "\n")
    return [directory]


@pytest.fixture
def asked(tmp_path: Path, server: int, monkeypatch: pytest.MonkeyPatch) -> bench_measure.Request:
    (tmp_path / "model").mkdir()
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in {
        "fake-bench": 'echo "$OPENAI_API_KEY" > "$1/key"; cat "$1/wish" && cp "$1/made" "$1/result.jsonl"',
        "nvidia-smi": f'cat "{LOAD}"; exec sleep 60',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.defpath}")
    (programs / "python").symlink_to(sys.executable)
    engine = Engine(
        "fake",
        render,
        lambda directory: f"{directory}/result.jsonl",
        engine_bench_serving.figures,
        program="fake-bench",
        version=lambda _python: "1.2.3",
        files=lambda directory: {f"{directory}/wish": "please\n"},
        flushes=False,
    )
    return bench_measure.Request(
        engine=engine,
        python=str(programs / "python"),
        root=str(tmp_path),
        target=Target("127.0.0.1", server, str(tmp_path / "model"), "tiny"),
        parameters=PARAMETERS,
        machine=bench_machine.Machine("1x H200", (Gpu(0, "H200", power_limit_w=700.0),)),
        context={"sglang_version": "0.5.23", "args": {}},
        timeout_s=30,
        api_key=KEY,
        preflight={"verdict": "ok"},
        experiment={"id": "e"},
        output_check={"passed": True, "reason": ""},
    )


def test_run_ends_as_a_record_with_all_that_was_seen(
    asked: bench_measure.Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def summary(sampling: Any, gpus: Any, windows: Any) -> Any:
        seen.extend([Path(sampling.path).read_bytes(), gpus, {at: len(own) for at, own in windows.items()}])
        return {2: [{"index": 0, "power_w": 500.0}]}

    monkeypatch.setattr(bench_sampling, "summary", summary)
    monkeypatch.setattr(bench_machine, "ceilings", lambda *_: {1: 1000.0})
    monkeypatch.setattr(bench_machine, "model_facts", lambda _args, directory: {"parameters": 7, "from": directory})
    record, log_tail = bench_measure.measure(asked)
    assert (record["valid"], record["reasons"]) == (True, [])
    assert record["engine"] == {"name": "fake", "version": "1.2.3"}
    assert (record["hardware"], record["gpu_count"], record["start"]) == ("1x H200", 1, None)
    assert record["model_shape"] == {"parameters": 7, "from": asked.target.tokenizer}
    assert (record["preflight"], record["experiment"]) == ({"verdict": "ok"}, {"id": "e"})
    assert record["output_check"] == {"passed": True, "reason": ""}
    assert [point["values"]["output_tok_s"] for point in record["points"]] == [[100.0, 101.0], [200.0, 201.0]]
    assert [point["gpu"] for point in record["points"]] == [None, [{"index": 0, "power_w": 500.0}]]
    assert [point["roofline"] for point in record["points"]] == [{"ceiling_tok_s": 1000.0, "share": 0.1005}, None]
    assert seen == [LOAD.read_bytes(), asked.machine.gpus, {1: 2, 2: 2}]
    # The engine cannot empty the cache, so that it is done before each repetition, with the server's key.
    assert Handler.flushed == [f"Bearer {KEY}"] * 4
    raw = Path(record["raw_dir"])
    assert raw.parent == Path(asked.root, "bench") and record["id"] == raw.name
    # The engine had the key and wrote it down; it does not stay there.
    assert (raw / "concurrency-2" / "repetition-2" / "key").read_text() == "********\n"
    assert "please" in log_tail
    assert not os.path.lexists(raw.parent / "progress.jsonl")


def test_gpus_are_not_watched_when_that_is_not_wanted(asked: bench_measure.Request) -> None:
    fewer = replace(PARAMETERS, concurrency=(1,), repetitions=1)
    record, _tail = bench_measure.measure(replace(asked, sample_gpus=False, parameters=fewer))
    assert (record["valid"], record["gpu_count"], record["points"][0]["gpu"]) == (True, 1, None)
    assert not Path(record["raw_dir"], "gpu.log").exists()


def test_ladder_ends_where_the_server_does(asked: bench_measure.Request) -> None:
    ladder = replace(PARAMETERS, concurrency=(1, 8, 32), repetitions=1, capped=True)
    record, _tail = bench_measure.measure(replace(asked, parameters=ladder, sample_gpus=False))
    # 192 tokens of cache are two requests of 96.
    assert [point["concurrency"] for point in record["points"]] == [1, 2]
    assert any("at most 2 such requests at once" in warning for warning in record["warnings"])


def test_engine_that_fails_gives_an_invalid_record(asked: bench_measure.Request) -> None:
    broken = replace(asked.engine, files=lambda _directory: {})
    record, log_tail = bench_measure.measure(replace(asked, engine=broken, sample_gpus=False))
    assert record["valid"] is False and record["points"] == []
    assert any("fake failed at repetition 1 of this run" in reason for reason in record["reasons"])
    assert "No such file" in log_tail


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target": Target("127.0.0.1", 1, "/nowhere", "tiny")}, "tokenizer in /nowhere: no such directory"),
        ({"python": "/nowhere/python"}, "failed|No such file"),
    ],
)
def test_run_that_cannot_begin_is_told(asked: bench_measure.Request, change: dict[str, Any], said: str) -> None:
    with pytest.raises(BenchmarkError, match=said):
        bench_measure.measure(replace(asked, **change))


def test_missing_engine_is_told_before_the_server_is_asked(asked: bench_measure.Request) -> None:
    missing = replace(asked.engine, version=lambda _python: None)
    with pytest.raises(BenchmarkError, match="engine fake: not installed beside"):
        bench_measure.measure(replace(asked, engine=missing, target=replace(asked.target, port=1)))
    assert not Path(asked.root, "bench").exists()


@pytest.mark.parametrize("context", [{}, {"args": None, "env": None}, {"args": {"device": "cpu"}, "env": []}])
def test_machine_is_found_from_any_context(context: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(bench_machine, "look", lambda args, env: seen.append((args, env)))
    bench_measure.machine_of(context)
    assert seen == [(context.get("args") or {}, {})]
