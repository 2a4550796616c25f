# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Running a benchmark: directories, the plan, one at a time, how it ends."""

from __future__ import annotations

import os
import stat
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_engines, bench_run
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_engines import Engine
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError, Parameters, Target

ENGINE = bench_engines.find("bench_serving")
ASKED = Parameters(concurrency=(1, 8), input_len=64, output_len=32, repetitions=2)
TARGET = Target("127.0.0.1", 30000, "/m", "tiny-moe")
NOW = 1_800_000_000.0


def mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


# --- directories


def test_run_has_a_directory_of_its_own_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = bench_run.new_run_directory(str(tmp_path), NOW)
    assert os.path.basename(path).startswith("20270115T080000Z-")
    assert (mode(path), mode(str(tmp_path / "bench"))) == (0o700, 0o755)
    assert bench_run.new_run_directory(str(tmp_path), NOW) != path


def test_new_directory_stays_although_the_clock_went_back(tmp_path: Path) -> None:
    later = [bench_run.new_run_directory(str(tmp_path), NOW + number) for number in range(25)]
    path = bench_run.new_run_directory(str(tmp_path), 0)
    left = {str(one) for one in (tmp_path / "bench").iterdir()}
    assert left == {path, *later[-19:]}


def test_each_repetition_writes_to_a_new_directory(tmp_path: Path) -> None:
    runs = bench_run.wanted(ENGINE, ASKED, TARGET, str(tmp_path))
    assert [(one.concurrency, one.repetition) for one in runs] == [(1, 0), (1, 1), (8, 0), (8, 1)]
    assert [os.path.relpath(one.directory, tmp_path) for one in runs][1:3] == [
        "concurrency-1/repetition-2",
        "concurrency-8/repetition-1",
    ]
    assert {mode(one.directory) for one in runs} == {0o700}
    assert [one.arguments[one.arguments.index("--seed") + 1] for one in runs] == ["1", "2", "1", "2"]
    said = r"raw output .*/concurrency-1/repetition-1: File exists; give the disk room"
    with pytest.raises(BenchmarkError, match=said):
        bench_run.wanted(ENGINE, ASKED, TARGET, str(tmp_path))


def test_files_an_engine_needs_lie_in_the_directory_of_each_repetition(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def render(_parameters: Parameters, _target: Target, _at: int, _time: int, directory: str) -> list[str]:
        seen.append(Path(directory, "asked.json").read_bytes())
        return []

    engine = Engine("x", render, str, lambda *_: {}, files=lambda where: {f"{where}/asked.json": '{"a": 1}'})
    runs = bench_run.wanted(engine, ASKED, TARGET, str(tmp_path))
    # They are there before the arguments are made, which may look at them.
    assert (len(runs), seen) == (4, [b'{"a": 1}'] * 4)
    assert {mode(f"{one.directory}/asked.json") for one in runs} == {0o600}


# --- the plan


def test_plan_names_its_parent_steps_and_runs(tmp_path: Path) -> None:
    runs = bench_run.wanted(ENGINE, ASKED, TARGET, str(tmp_path))
    content = bench_run.plan(ENGINE, ASKED, TARGET, "/e/bin/python", runs, str(tmp_path))
    assert content["parent"] == os.getpid()
    assert content["progress"] == str(tmp_path / "progress.jsonl")
    assert content["steps"] == [[1, 1, 4], [1, 2, 4], [8, 1, 32], [8, 2, 32]]
    assert content["runs"][2] == {
        "module": "sglang.bench_serving",
        "arguments": runs[2].arguments,
        "begins": "Starting main benchmark run",
    }


@pytest.mark.parametrize(
    ("flushes", "asked", "added"), [(False, True, True), (True, True, False), (False, False, False)]
)
def test_cache_is_emptied_for_an_engine_that_cannot_do_it(
    tmp_path: Path, flushes: bool, asked: bool, added: bool
) -> None:
    engine = Engine("x", lambda *_: [], str, lambda *_: {}, program="x", flushes=flushes, key_variable="THE_KEY")
    parameters = Parameters(concurrency=(1,), input_len=64, output_len=32, repetitions=1, flush_cache=asked)
    runs = bench_run.wanted(engine, parameters, TARGET, str(tmp_path))
    (only,) = bench_run.plan(engine, parameters, TARGET, "/e/bin/python", runs, str(tmp_path))["runs"]
    flush = {"flush": "http://127.0.0.1:30000/flush_cache", "key_variable": "THE_KEY"} if added else {}
    assert only == {"program": ["/e/bin/x"], **flush}


def test_engine_with_a_program_is_run_from_beside_the_interpreter() -> None:
    engine = bench_engines.find("aiperf")
    assert engine.entry("/e/bin/python", ["profile"]) == {"program": ["/e/bin/aiperf", "profile"]}
    assert engine.argv(["profile"]) == ["aiperf", "profile"]
    assert ENGINE.argv(["--seed", "1"]) == ["-m", "sglang.bench_serving", "--seed", "1"]


@pytest.mark.parametrize("name", ["aiperf", "guidellm"])
def test_engine_that_is_not_installed_is_told_with_what_to_do(tmp_path: Path, name: str) -> None:
    said = f"engine {name}: not installed beside {tmp_path}/bin/python; .* engine_python"
    with pytest.raises(BenchmarkError, match=said):
        bench_engines.find(name).check(f"{tmp_path}/bin/python")


def test_engine_of_the_servers_environment_has_the_version_of_its_release() -> None:
    assert ENGINE.check("/nowhere/python") is None
    engine = Engine("x", lambda *_: [], str, lambda *_: {}, program="x", version=lambda python: f"of {python}")
    assert engine.check("/e/python") == "of /e/python"


def test_engines_get_the_servers_key_where_they_look_for_it() -> None:
    found = {name: one.environment({"OPENAI_API_KEY": "k"}, "k") for name, one in bench_engines.ENGINES.items()}
    assert [name for name, one in bench_engines.ENGINES.items() if found[name].get(one.key_variable) != "k"] == []
    assert found["bench_serving"] == {"OPENAI_API_KEY": "k"}


def test_engine_that_is_not_known_is_named_with_those_that_are() -> None:
    with pytest.raises(BenchmarkError, match=r"engine vegeta: not known; take one of bench_serving, aiperf, guidellm"):
        bench_engines.find("vegeta")


def test_environment_has_no_keys_of_others_and_no_proxy() -> None:
    found = bench_run.environment(
        {"OPENAI_API_KEY": "theirs", "PYTHONPATH": "/x", "HOME": "/h", "NO_PROXY": "a", "SGLANG_IS_IN_CI": "1"},
        {"PYTHONPATH": "/mine"},
        None,
    )
    assert found == {
        "HOME": "/h",
        "PYTHONPATH": "/mine",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "NO_PROXY": "*",
        "no_proxy": "*",
    }
    assert bench_run.environment({}, {"OPENAI_API_KEY": "env"}, "key")["OPENAI_API_KEY"] == "key"


# --- one at a time


def test_second_one_waits_and_gives_up_in_the_end(tmp_path: Path) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        time.sleep(0.02)

    second = bench_run.alone(str(tmp_path), 0.01, wait)
    said = r"another one is running for more than 0\.01 s"
    with bench_run.alone(str(tmp_path), 1), pytest.raises(BenchmarkError, match=said), second:
        raise AssertionError("both ran")
    assert waits == [0.5]
    with bench_run.alone(str(tmp_path), 0):
        pass


def test_second_one_begins_when_the_first_has_ended(tmp_path: Path) -> None:
    first = bench_run.alone(str(tmp_path), 1)
    first.__enter__()

    def end_first(_seconds: float) -> None:
        first.__exit__(None, None, None)

    with bench_run.alone(str(tmp_path), 5, end_first):
        pass


def test_lock_that_cannot_be_made_is_an_error_with_advice(tmp_path: Path) -> None:
    (tmp_path / "bench").write_text("")
    said = "lock of the benchmark .*; make .* writable"
    with pytest.raises(BenchmarkError, match=said), bench_run.alone(str(tmp_path), 1):
        raise AssertionError("it ran")


# --- progress


def test_progress_can_be_followed_while_it_runs_and_not_after(tmp_path: Path) -> None:
    run_dir = bench_run.new_run_directory(str(tmp_path), NOW)
    Path(run_dir, "progress.jsonl").write_text("this run's")
    link = tmp_path / "bench" / "progress.jsonl"
    # Left by a module that was killed.
    link.symlink_to("20200101T000000Z-abcdef/progress.jsonl")
    with pytest.raises(ValueError, match="broken"), bench_run.shown_progress(str(tmp_path), run_dir):
        assert link.read_text() == "this run's"
        raise ValueError("broken")
    assert not os.path.lexists(link)
    assert sorted(path.name for path in (tmp_path / "bench").iterdir()) == [os.path.basename(run_dir)]


def test_progress_that_cannot_be_shown_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "bench" / "progress.jsonl").mkdir(parents=True)
    ran = False
    with bench_run.shown_progress(str(tmp_path), str(tmp_path / "bench" / "x")):
        ran = True
    assert ran


# --- how it ends


def ended(tmp_path: Path, code: str) -> bench_run.Ended:
    content = {
        "parent": os.getpid(),
        "progress": str(tmp_path / "p"),
        "steps": [],
        "runs": [{"program": [sys.executable, "-c", "print('one')"]}, {"program": [sys.executable, "-c", code]}],
    }
    return bench_run.run_all(sys.executable, content, str(tmp_path), dict(os.environ), 20, "engine x")


def test_end_is_told_with_the_log(tmp_path: Path) -> None:
    good = ended(tmp_path, "print('two')")
    assert (good.failure, good.log_tail.splitlines()[-1]) == (None, "two")
    assert 0 < good.elapsed_s < 20
    assert {mode(str(tmp_path / name)) for name in ("plan.json", "bench.log")} == {0o600}
    bad = ended(tmp_path, "raise SystemExit(4)")
    assert bad.failure == "engine x failed at repetition 2 of this run, all points counted"
    assert bad.log_tail.endswith("ended with 4")


@pytest.mark.parametrize(("number", "name"), [(9, "9 (SIGKILL)"), (40, "40")])
def test_end_by_a_signal_is_told_also_without_a_name(tmp_path: Path, number: int, name: str) -> None:
    killed = ended(tmp_path, f"import os; os.kill(os.getppid(), {number})")
    assert killed.failure == f"engine x was killed by signal {name}"


def test_missing_interpreter_is_an_error_with_advice(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="No such file or directory; install the environment first"):
        bench_run.run_all("/nowhere/python", {}, str(tmp_path), {}, 5, "x")


def test_tail_of_a_long_log_is_short(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xff" + b"x" * 50_000 + b"\n" + b"\n".join(b"%d" % number for number in range(100)))
    assert bench_run.tail(str(path)).splitlines() == [str(number) for number in range(70, 100)]
    assert bench_run.content(str(tmp_path / "none")) == b""


def test_progress_of_a_run_that_was_killed_is_not_shown_as_the_next_ones(tmp_path: Path) -> None:
    bench = tmp_path / "bench"
    bench.mkdir()
    (bench / "progress.jsonl").symlink_to("20260101T000000Z-abcdef/progress.jsonl")
    with bench_run.alone(str(tmp_path), 1):
        assert os.listdir(bench) == [".lock"]


@pytest.mark.parametrize("key", ["two\nlines", "k\u03bby", "nul\x00"])
def test_key_that_no_request_can_carry_is_named_and_not_shown(key: str) -> None:
    with pytest.raises(BenchmarkError, match="api_key holds a character") as error:
        bench_run.check_server(Target("127.0.0.1", 1, "/t", "m"), key)
    assert key not in str(error.value)


def test_host_that_makes_no_address_is_an_error_with_advice() -> None:
    with pytest.raises(BenchmarkError, match="correct host and port"):
        bench_run.check_server(Target("[::1", 1, "/t", "m"), None)
