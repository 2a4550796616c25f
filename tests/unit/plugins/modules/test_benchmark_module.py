# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it, against a small server, with a bench_serving that misbehaves on demand.

A package named sglang stands in for the real one, so that each way to go wrong can be asked for. What it writes starts
from a recording.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

MODULE = "ansible_collections.tokforge.sglang.plugins.modules.benchmark"
RECORDING = Path(__file__).parents[1] / "module_utils" / "fixtures" / "bench_serving" / "0.5.23.jsonl"
KEY = "a-very-secret-key"

FAKE = """
import argparse, json, os, signal, subprocess, sys, time
from pathlib import Path

parser = argparse.ArgumentParser()
for name in ("backend", "base-url", "model", "tokenizer", "served-model-name", "dataset-name", "output-file"):
    parser.add_argument("--" + name)
for name in ("random-input-len", "random-output-len", "num-prompts", "max-concurrency", "warmup-requests", "seed"):
    parser.add_argument("--" + name, type=int)
parser.add_argument("--random-range-ratio", type=float)
for name in ("tokenize-prompt", "flush-cache", "disable-tqdm", "output-details"):
    parser.add_argument("--" + name, action="store_true")
asked = parser.parse_args()
print("fake bench_serving", os.environ.get("OPENAI_API_KEY"), sys.argv[0])
fault = os.environ.get("FAULT", "")
if fault == "exit 3":
    sys.exit(3)
if fault == "raise":
    raise ValueError("Warmup failed")
if fault == "second point" and asked.max_concurrency > 1:
    raise ValueError("only once")
again = "repetition-1/" not in asked.output_file
if fault == "second repetition" and again:
    raise ValueError("only once")
print("\\nStarting warmup with", asked.warmup_requests, "sequences...")
print("Starting main benchmark run...")
time.sleep(float(os.environ.get("TAKES", "0")))
if fault == "hang":
    child = subprocess.Popen(["sleep", "300"])
    Path(os.environ["PIDS"]).write_text(f"{os.getpid()} {child.pid}")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(300)
if fault == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if fault == "chatty":
    print("noise " * 5_000_000)
n, out = asked.num_prompts, asked.random_output_len
result = json.loads(Path(os.environ["RECORDING"]).read_text())
result.update(
    max_concurrency=asked.max_concurrency, completed=n, total_input_tokens=64 * n, total_output_tokens=out * n,
    input_lens=[64] * n, output_lens=[out] * n, errors=[""] * n, generated_texts=["fine text"] * n,
)
# As if time ran at another speed: what a clock measured is consistent.
rate = 100.0 + 10 * asked.seed
result.update(duration=out * n / rate, output_throughput=rate, input_throughput=64 * rate / out)
result.update(total_throughput=(64 + out) * rate / out, request_throughput=rate / out)
result.update({key: 1.0 for key in result if key.endswith("_ms")})
result["server_info"]["api_key"] = os.environ.get("OPENAI_API_KEY")
# As 0.5.23 has them beside the first one.
result["server_info"]["internal_states"] = [{"admin_api_key": "the-management-key"}]
result["server_info"]["launch_command"] = "--admin-api-key the-management-key"
if fault == "partial" or (fault == "partial once" and again):
    result.update(completed=n - 1, errors=["boom"] + [""] * (n - 1))
text = json.dumps(result) + "\\n"
if fault == "half":
    text = text[:500] + str(os.environ.get("OPENAI_API_KEY"))
if fault == "empty":
    text = ""
if fault != "nothing":
    with open(asked.output_file, "a") as handle:
        handle.write(text)
"""


class Handler(BaseHTTPRequestHandler):
    key: str | None = None
    body: bytes = json.dumps({"data": [{"id": "tiny-moe"}]}).encode()
    info: dict[str, Any] = {"device": "cpu"}

    def do_GET(self) -> None:
        refused = self.key is not None and self.headers["Authorization"] != f"Bearer {self.key}"
        self.send_response(401 if refused else 200)
        self.end_headers()
        if not refused:
            self.wfile.write(json.dumps(self.info).encode() if self.path == "/server_info" else self.body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HTTPServer]:
    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def asked(tmp_path: Path, server: HTTPServer) -> dict[str, Any]:
    """Arguments of a run that goes well."""
    package = tmp_path / "fake" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "bench_serving.py").write_text(FAKE)
    (tmp_path / "model").mkdir()
    return {
        "python": sys.executable,
        "root": str(tmp_path),
        "facts_dir": str(tmp_path / "facts"),
        "port": server.server_port,
        "model_path": str(tmp_path / "model"),
        "served_name": "tiny-moe",
        "concurrency": [1, 2],
        "repetitions": 2,
        "input_len": 64,
        "output_len": 32,
        "context": {"sglang_version": "0.5.23", "release": 1, "args": {"device": "cpu"}},
        "timeout_s": 60,
        "env": {
            "PYTHONPATH": str(tmp_path / "fake"),
            "RECORDING": str(RECORDING),
            "PIDS": str(tmp_path / "pids"),
        },
    }


def start(arguments: dict[str, Any], check: bool = False) -> subprocess.Popen[str]:
    given = {"ANSIBLE_MODULE_ARGS": {**arguments, "_ansible_check_mode": check, "_ansible_remote_tmp": "/tmp"}}
    return subprocess.Popen(
        [sys.executable, "-m", MODULE, json.dumps(given)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(arguments: dict[str, Any], check: bool = False, fault: str = "") -> dict[str, Any]:
    if fault:
        arguments = {**arguments, "env": {**arguments["env"], "FAULT": fault}}
    out, err = start(arguments, check).communicate(timeout=60)
    assert out, err
    result: dict[str, Any] = json.loads(out)
    return result


def fact(arguments: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((Path(arguments["facts_dir"]) / "sglang.fact").read_text())
    return document


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids: list[int], within_s: float = 5.0) -> bool:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not any(alive(pid) for pid in pids):
            return True
        time.sleep(0.02)
    return False


def wait_for(path: Path, within_s: float = 20.0) -> str:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if path.exists() and path.read_text():
            return path.read_text()
        time.sleep(0.02)
    raise AssertionError(f"{path} did not appear")


def test_good_run_is_returned_and_recorded(asked: dict[str, Any]) -> None:
    result = run(asked)
    assert (result["changed"], result["ran"], result["valid"], result["reasons"]) == (True, True, True, [])
    assert [(point["concurrency"], point["num_prompts"]) for point in result["points"]] == [(1, 4), (2, 8)]
    latest = fact(asked)["latest"]
    assert latest["points"] == result["points"]
    assert latest["hardware"] == result["hardware"]
    assert latest["hardware"].startswith("CPU ")
    assert (latest["gpu_count"], latest["start"], latest["experiment"]) == (0, None, None)
    # Seeds 1 and 2.
    assert [point["values"]["output_tok_s"] for point in result["points"]] == [[110.0, 120.0]] * 2
    assert [(point["output_tok_s"], point["repetitions"]) for point in result["points"]] == [(115.0, 2)] * 2
    assert (result["points"][0]["gpu"], result["points"][0]["roofline"]) == (None, None)
    assert (latest["id"], latest["fingerprint"]) == (result["run_id"], result["fingerprint"])
    assert result["fact_file"] == f"{asked['facts_dir']}/sglang.fact"
    argv = result["points"][1]["argv"]
    assert argv[:2] == ["-m", "sglang.bench_serving"]
    assert argv[argv.index("--max-concurrency") + 1] == "2"
    raw = Path(result["raw_dir"])
    assert sorted(str(path.relative_to(raw)) for path in raw.rglob("result.jsonl")) == [
        f"concurrency-{value}/repetition-{time}/result.jsonl" for value in (1, 2) for time in (1, 2)
    ]
    noted = [json.loads(line) for line in (raw / "progress.jsonl").read_text().splitlines()]
    assert noted[0] == {"steps": [[1, 1, 4], [1, 2, 4], [2, 1, 8], [2, 2, 8]]}
    assert [name for entry in noted[1:] for name in entry] == ["begin", "main", "end"] * 4
    # It could be followed meanwhile, and nothing of that is left.
    assert not os.path.lexists(Path(asked["root"], "bench", "progress.jsonl"))


def test_only_the_first_repetition_of_a_point_warms_up(asked: dict[str, Any]) -> None:
    log = Path(run(asked)["raw_dir"], "bench.log").read_text()
    assert [int(line.split()[3]) for line in log.splitlines() if line.startswith("Starting warmup")] == [1, 0, 2, 0]


def test_without_a_list_the_ladder_goes_as_far_as_the_server(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [{"effective_max_running_requests_per_dp": 16}]
    monkeypatch.setattr(Handler, "info", {"device": "cpu", "max_total_num_tokens": 384, "internal_states": states})
    ladder = {**asked, "concurrency": None, "repetitions": 1}
    result = run(ladder)
    assert [point["concurrency"] for point in result["points"]] == [1, 4]
    assert any(
        "at most 4 such requests at once: measured at 4 instead of 8, 32" in str(one) for one in result["warnings"]
    )
    # The same request again measures the same, whatever the server left of it.
    assert run(ladder)["ran"] is False
    above = run({**asked, "concurrency": [8], "repetitions": 1})
    assert (above["points"][0]["concurrency"], above["valid"]) == (8, True)
    assert any("at concurrency 8 the others wait" in str(one) for one in above["warnings"])


def test_what_goes_wrong_in_one_repetition_makes_the_run_invalid(asked: dict[str, Any]) -> None:
    result = run(asked, fault="partial once")
    assert result["valid"] is False
    assert "concurrency 1: repetition 2: 3 of 4 requests completed" in result["reasons"]
    assert result["points"][0]["completed"] == 3


def test_repetition_that_fails_ends_the_run_and_the_point_is_incomplete(asked: dict[str, Any]) -> None:
    result = run(asked, fault="second repetition")
    assert [(point["concurrency"], point["repetitions"], point["valid"]) for point in result["points"]] == [
        (1, 1, False)
    ]
    assert "concurrency 1: 1 of 2 repetitions gave a result" in result["reasons"]
    assert any("failed at repetition 2 of this run" in reason for reason in result["reasons"])


def test_valid_result_can_be_declared_the_baseline_and_an_invalid_one_is_not(asked: dict[str, Any]) -> None:
    first = run({**asked, "baseline": True})
    assert [(one["baseline"]["id"], one["declared"]) for one in fact(asked)["results"]] == [(first["run_id"], True)]
    invalid = run({**asked, "baseline": True, "force": True}, fault="partial")
    assert invalid["failed"] is True
    (only,) = fact(asked)["results"]
    assert (only["latest"]["id"], only["baseline"]["id"]) == (invalid["run_id"], first["run_id"])


def test_what_the_caller_knows_is_recorded(asked: dict[str, Any]) -> None:
    told = {
        "preflight": {"verdict": "ok", "counts": {"fail": 0}},
        "experiment": {"id": "e", "candidate": "a", "round": 2},
    }
    run({**asked, **told})
    document = fact(asked)
    assert {name: document["history"][0][name] for name in told} == told
    # A trial of an experiment says nothing about what serves.
    assert document["latest"] is None


def test_other_hardware_is_measured_again(asked: dict[str, Any]) -> None:
    run(asked)
    path = Path(asked["facts_dir"], "sglang.fact")
    document = fact(asked)
    document["latest"]["hardware"] = "1x NVIDIA H200 (cc 9.0, 140 GiB)"
    path.write_text(json.dumps(document))
    assert run(asked)["ran"] is True


def test_two_at_once_wait_for_each_other(asked: dict[str, Any]) -> None:
    slow = {**asked, "env": {**asked["env"], "TAKES": "0.2"}, "concurrency": [1]}
    processes = [start({**slow, "seed": seed}) for seed in (1, 2)]
    results = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert [result["valid"] for result in results] == [True, True]
    first, second = sorted(
        (float(entry["begin"]), result["run_id"])
        for result in results
        for entry in map(json.loads, Path(result["raw_dir"], "progress.jsonl").read_text().splitlines()[1:2])
    )
    ends = {
        result["run_id"]: json.loads(Path(result["raw_dir"], "progress.jsonl").read_text().splitlines()[-1])["end"]
        for result in results
    }
    assert ends[first[1]] <= second[0]
    assert len(fact(asked)["history"]) == 2


def test_second_run_measures_nothing_and_returns_the_record(asked: dict[str, Any]) -> None:
    first, second = run(asked), run({**asked, "context": {**asked["context"], "release": 2}})
    assert (second["changed"], second["ran"], second["valid"]) == (False, False, True)
    assert (second["points"], second["run_id"]) == (first["points"], first["run_id"])
    assert "diff" not in second
    assert len(fact(asked)["history"]) == 1


def test_second_run_needs_no_server(asked: dict[str, Any], server: HTTPServer) -> None:
    run(asked)
    assert run({**asked, "port": 1})["changed"] is False


@pytest.mark.parametrize(
    "change", [{"force": True}, {"seed": 2}, {"context": {"sglang_version": "0.5.12"}}, {"repetitions": 1}]
)
def test_forced_or_different_run_measures_again(asked: dict[str, Any], change: dict[str, Any]) -> None:
    run(asked)
    assert run({**asked, **change})["ran"] is True
    assert len(fact(asked)["history"]) == 2


def test_check_mode_predicts_and_writes_nothing(asked: dict[str, Any], tmp_path: Path) -> None:
    before = sorted(path.name for path in tmp_path.iterdir())
    missing = {**asked, "python": "/nowhere/python", "model_path": "/nowhere", "port": 1}
    result = run(missing, check=True)
    assert (result["changed"], result["ran"], result["points"]) == (True, False, [])
    assert "valid" not in result
    assert result["diff"]["after"] == f"configuration {result['fingerprint']} to be measured\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    run(asked)
    assert run(asked, check=True)["changed"] is False
    assert run({**asked, "force": True}, check=True)["changed"] is True


def test_diff_shows_the_record_before_and_after(asked: dict[str, Any]) -> None:
    first = run(asked)["diff"]
    second = run({**asked, "force": True})["diff"]
    assert first["before"] == ""
    assert second["before"] == first["after"]
    assert "concurrency 2: " in second["after"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("partial", "concurrency 1: 3 of 4 requests completed"),
        ("exit 3", "bench_serving failed at repetition 1 of this run"),
        ("raise", "bench_serving failed at repetition 1 of this run"),
        ("second point", "bench_serving failed at repetition 3 of this run"),
        ("killed", "was killed by signal 9 (SIGKILL)"),
        ("half", "half-written"),
        ("empty", "the file is empty"),
        ("nothing", "no result for concurrency 1, 2"),
    ],
)
def test_run_that_goes_wrong_is_recorded_as_invalid_and_fails(asked: dict[str, Any], fault: str, reason: str) -> None:
    result = run(asked, fault=fault)
    assert (result["failed"], result["changed"], result["valid"]) == (True, True, False)
    assert any(reason in found for found in result["reasons"]), result["reasons"]
    assert reason in result["msg"]
    latest = fact(asked)["latest"]
    assert (latest["valid"], latest["reasons"]) == (False, result["reasons"])
    assert "fake bench_serving" in result["log_tail"]


def test_points_before_a_failing_one_are_kept(asked: dict[str, Any]) -> None:
    result = run(asked, fault="second point")
    assert [(point["concurrency"], point["valid"]) for point in result["points"]] == [(1, True)]


def test_invalid_record_does_not_spare_the_next_run(asked: dict[str, Any]) -> None:
    run(asked, fault="partial")
    assert (run(asked)["ran"], run(asked)["ran"]) == (True, False)
    assert [entry["valid"] for entry in fact(asked)["history"]] == [False, True]


def test_failed_output_check_makes_good_figures_invalid(asked: dict[str, Any]) -> None:
    result = run({**asked, "output_check": {"passed": False, "reason": "only !!!!"}})
    assert (result["failed"], result["reasons"]) == (True, ["output check failed: only !!!!"])


def test_timeout_ends_everything_that_was_started_and_is_recorded(asked: dict[str, Any]) -> None:
    started = time.monotonic()
    result = run({**asked, "timeout_s": 1}, fault="hang")
    assert time.monotonic() - started < 20
    assert "sglang.bench_serving did not end within 1 s" in result["reasons"]
    assert gone([int(pid) for pid in Path(asked["env"]["PIDS"]).read_text().split()])


def test_benchmark_ends_when_the_module_is_killed(asked: dict[str, Any]) -> None:
    process = start({**asked, "env": {**asked["env"], "FAULT": "hang"}})
    bench, grandchild = (int(pid) for pid in wait_for(Path(asked["env"]["PIDS"])).split())
    process.send_signal(signal.SIGKILL)
    process.communicate()
    try:
        assert gone([bench])
    finally:
        os.kill(grandchild, signal.SIGKILL)


def test_interrupt_ends_the_benchmark_and_its_children(asked: dict[str, Any]) -> None:
    process = start({**asked, "env": {**asked["env"], "FAULT": "hang"}})
    pids = [int(pid) for pid in wait_for(Path(asked["env"]["PIDS"])).split()]
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert gone(pids)


def test_long_output_of_the_benchmark_stays_in_its_log(asked: dict[str, Any]) -> None:
    result = run(asked, fault="chatty")
    assert result["valid"] is True
    log = Path(result["raw_dir"]) / "bench.log"
    assert log.stat().st_size > 100_000_000
    failing = run({**asked, "force": True, "output_check": {"passed": False}}, fault="chatty")
    assert len(failing["log_tail"]) < 10_000
    log.unlink()
    (Path(failing["raw_dir"]) / "bench.log").unlink()


@pytest.mark.parametrize("fault", ["", "half"])
def test_key_reaches_the_benchmark_and_stays_in_no_file(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(Handler, "key", KEY)
    result = run({**asked, "api_key": KEY}, fault=fault)
    raw = Path(result["raw_dir"])
    # The stand-in prints the key on purpose: it did get it. The real one prints none.
    assert "fake bench_serving ******** " in (raw / "bench.log").read_text()
    files = [path for path in raw.rglob("*") if path.is_file()]
    assert len(files) == 7
    assert [path.name for path in files if KEY in path.read_text()] == []
    if not fault:
        assert not any("the-management-key" in path.read_text() for path in files)
    assert KEY not in json.dumps(fact(asked))
    assert KEY not in json.dumps({key: value for key, value in result.items() if key != "invocation"})
    assert raw.stat().st_mode & 0o777 == 0o700


def test_server_that_wants_a_key_is_named(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "key", KEY)
    assert "HTTP 401; give the server's api_key" in run(asked)["msg"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"port": 1}, "no answer"),
        ({"served_name": "other"}, "serves tiny-moe, asked was other"),
        ({"python": "/nowhere/python"}, "install the environment first"),
        ({"model_path": "/nowhere"}, "no such directory; correct model_path"),
        ({"concurrency": [0]}, "concurrency=0 is too small"),
        ({"concurrency": [2, 2]}, "names a value twice"),
        ({"repetitions": 0}, "repetitions=0 is too small"),
        ({"root": "/proc"}, "make /proc writable"),
    ],
)
def test_run_that_cannot_begin_fails_and_records_nothing(
    asked: dict[str, Any], change: dict[str, Any], message: str
) -> None:
    result = run({**asked, **change})
    assert result["failed"] is True
    assert message in result["msg"]
    assert not Path(asked["facts_dir"]).exists()


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"data": [1]}', b"[]"])
def test_other_program_on_the_port_is_named(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    monkeypatch.setattr(Handler, "body", body)
    assert "another program may hold the port" in run(asked)["msg"]


def test_corrupt_facts_are_set_aside_and_reported(asked: dict[str, Any]) -> None:
    facts = Path(asked["facts_dir"])
    facts.mkdir()
    (facts / "sglang.fact").write_text("{broken")
    predicted = run(asked, check=True)
    assert predicted["changed"] is True
    assert (facts / "sglang.fact").read_text() == "{broken"
    result = run(asked)
    assert Path(result["set_aside"]).read_text() == "{broken"
    assert any(result["set_aside"] in str(warning) for warning in result["warnings"])
    assert fact(asked)["latest"]["valid"] is True


def test_record_of_another_shape_is_measured_anew_and_no_traceback(asked: dict[str, Any]) -> None:
    facts = Path(asked["facts_dir"])
    facts.mkdir()
    fingerprint = run(asked, check=True)["fingerprint"]
    latest = {"valid": True, "fingerprint": fingerprint, "points": ["not an object"]}
    (facts / "sglang.fact").write_text(json.dumps({"schema_version": 1, "latest": latest}))
    result = run(asked)
    assert (result["ran"], result["valid"]) == (True, True), result
    assert json.loads(Path(result["set_aside"]).read_text())["latest"] == latest


def test_facts_of_a_newer_version_are_refused_before_anything_is_measured(asked: dict[str, Any]) -> None:
    facts = Path(asked["facts_dir"])
    facts.mkdir()
    (facts / "sglang.fact").write_text('{"schema_version": 99}')
    result = run(asked)
    assert "schema 99" in result["msg"]
    assert not (Path(asked["root"]) / "bench").exists()


def test_figures_are_shown_when_they_cannot_be_recorded(asked: dict[str, Any]) -> None:
    Path(asked["root"], "file").write_text("")
    result = run({**asked, "facts_dir": f"{asked['root']}/missing", "context": {}})
    assert result["changed"] is True
    os.rename(Path(asked["root"], "missing", "sglang.fact"), Path(asked["root"], "kept"))
    Path(asked["root"], "missing", ".sglang.fact.lock").unlink()
    Path(asked["root"], "missing", ".sglang.fact.lock").mkdir()
    result = run({**asked, "facts_dir": f"{asked['root']}/missing", "context": {}})
    assert (result["failed"], result["changed"]) == (True, False)
    assert len(result["points"]) == 2


def test_only_the_newest_raw_outputs_are_kept_and_nothing_else_removed(asked: dict[str, Any]) -> None:
    bench = Path(asked["root"]) / "bench"
    for number in range(25):
        (bench / f"20200101T0000{number:02}Z-abcdef").mkdir(parents=True)
    (bench / "mine").mkdir()
    result = run(asked)
    left = sorted(path.name for path in bench.iterdir())
    assert ".lock" in left
    assert len(left) == 22
    assert "mine" in left
    assert result["run_id"] in left
    assert "20200101T000005Z-abcdef" not in left
    assert "20200101T000006Z-abcdef" in left
