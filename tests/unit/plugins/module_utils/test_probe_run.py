# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps of a probe in real processes, with a small SGLang of our own, and how their answers are judged."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import probe_plan, proc, startup_failure
from ansible_collections.tokforge.sglang.plugins.module_utils import probe_run as run
from ansible_collections.tokforge.sglang.plugins.module_utils.probe_needs import Need
from ansible_collections.tokforge.sglang.plugins.module_utils.probe_run import Child, Ended
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import World
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_expect import AUTO, EXPECTED, Expectation

NEED = Need("flashinfer_cutlass", "flashinfer.fused_moe", "cutlass_fused_moe", "", ())
PLAN = probe_plan.Plan(
    "flashinfer_cutlass", "", World(), cpu=False, needs=(NEED,), arguments=("--model-path", "{model}")
)
SURE, UNSURE = Expectation(EXPECTED, "the gate is open"), Expectation(AUTO, "nobody knows")
WELL = {"runner": "r", "forwards": 8, "not_finite": 0, "unchecked": ""}
STARTED = "[2026-11-30 04:10:43 TP0] Running FlashInfer autotune with cache: /w/cache/rank_tp0_pp0_dp0.json\n"
COMPLETED = "[2026-11-30 04:10:50 TP0] FlashInfer autotune completed.\n"
TRACE = """\
Traceback (most recent call last):
  File "/e/bench.py", line 3, in <module>
    main()
RuntimeError: {}
"""

# What the real one-batch runner has in common with this one: it samples from the model runner's logits.
RUNNER = """\
import os, sys, time
from sglang.srt.model_executor.model_runner import ModelRunner
class Output: pass
class Logits:
    def __init__(self, fine): self.fine, self.shape = fine, (8, 16384)
print("arguments", sys.argv[1:], sys.path[0] == os.getcwd(), sys.stdin.read() == "", flush=True)
what = os.environ["WHAT"]
output = Output()
for fine in (True, what != "nan"):
    output.next_token_logits = Logits(fine)
    assert ModelRunner().sample(output, "batch") == "sampled"
if what == "sleep":
    import subprocess
    subprocess.Popen(["sleep", "600"])
    subprocess.Popen(["sleep", "601"], start_new_session=True)
    print("sleeping", flush=True)
    time.sleep(600)
if what == "flood":
    while True: print("x" * 100_000)
"""
MODEL_RUNNER = """\
class ModelRunner:
    def sample(self, logits_output, forward_batch): return "sampled"
"""
TORCH = """\
class Answer:
    def __init__(self, fine): self.fine = fine
    def all(self): return self
    def item(self): return self.fine
def isfinite(logits): return Answer(logits.fine)
"""


@pytest.fixture
def child() -> Iterator[Child]:
    """An environment whose packages lie in the work directory."""
    with run.workplace() as directory:
        packages = {
            "sglang/bench_one_batch.py": RUNNER,
            "sglang/srt/model_executor/model_runner.py": MODEL_RUNNER,
            "torch.py": TORCH,
            "flashinfer/fused_moe.py": "__version__ = '0.6.11'\ndef cutlass_fused_moe(): pass\n",
            "broken.py": "import nowhere_to_be_found\n",
            "deadly.py": "import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n",
        }
        for name, text in packages.items():
            path = Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if path.parent != Path(directory):
                (path.parent / "__init__.py").touch()
        yield Child(sys.executable, {"PATH": os.environ["PATH"], "WHAT": ""}, directory)


def told(child: Child, what: str) -> Child:
    return replace(child, env={**child.env, "WHAT": what})


def left_behind(directory: str) -> list[str]:
    """Processes that belong to a probe in this directory."""
    return [
        proc.cmdline(one.pid) for one in proc.processes() if proc.environ(one.pid).get("TOKFORGE_PROBE") == directory
    ]


# --- real processes --------------------------------------------------------------------------------------------------


def test_layer_runs_as_its_own_program_and_its_output_is_looked_at(child: Child) -> None:
    result = run.run_layer(child, PLAN, "/m", UNSURE, 60)
    assert (result.step.result, result.step.detail) == ("ok", "2 forward passes, with finite output")
    output = Path(child.directory, "layer.log").read_text()
    assert output == "arguments ['--model-path', '/m'] True True\n"
    assert left_behind(child.directory) == []


def test_nan_in_the_output_is_a_failure(child: Child) -> None:
    step = run.run_layer(told(child, "nan"), PLAN, "/m", UNSURE, 60).step
    assert (step.result, step.reason) == ("failed", "not_finite")
    assert step.detail == "1 of 2 forward passes gave NaN or infinity"
    assert "another backend" in step.hint


def test_time_that_is_over_ends_every_process(child: Child) -> None:
    began = time.monotonic()
    step = run.run_layer(told(child, "sleep"), PLAN, "/m", UNSURE, 0.7).step
    assert time.monotonic() - began < 8
    assert (step.result, step.reason, step.lines[-1]) == ("failed", "timeout", "sleeping")
    assert "running the layer took longer than the time that was left" in step.detail
    assert left_behind(child.directory) == []


def test_flood_of_output_ends_the_step(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MOST_OUTPUT_BYTES", 1 << 20)
    step = run.run_layer(told(child, "flood"), PLAN, "/m", UNSURE, 60).step
    assert (step.result, step.detail) == ("failed", "running the layer wrote more than 1 MiB")
    assert all(len(line) <= run.LINE_CHARACTERS for line in step.lines) and len(step.lines) <= run.LINES


def test_imports_and_symbols_are_looked_at_in_the_environment(child: Child) -> None:
    imported, symbol = run.look(child, PLAN, 60)
    assert (imported.name, imported.result, imported.detail) == ("import", "ok", "flashinfer.fused_moe 0.6.11 imports")
    assert (symbol.name, symbol.result) == ("symbol", "ok")
    needs = (NEED, replace(NEED, symbol="gone"), replace(NEED, module="broken"), replace(NEED, module="deadly"))
    request = {"needs": [[need.module, need.symbol] for need in needs]}
    ended = run.run_inside(child, "look", request, 60)
    assert ended.code == -signal.SIGILL
    assert [one["imported"] for one in ended.found["needs"]] == [True, True, False, False]
    assert [one["has"] for one in ended.found["needs"]] == [True, False, None, None]
    assert "No module named 'nowhere_to_be_found'" in ended.found["needs"][2]["error"]


PARENT = """\
import os, sys
from ansible_collections.tokforge.sglang.plugins.module_utils import probe_plan, probe_run
with probe_run.workplace() as directory:
    for name in ("sglang", "torch.py"):
        os.symlink(f"{sys.argv[1]}/{name}", f"{directory}/{name}")
    print(directory, flush=True)
    child = probe_run.Child(sys.executable, {"PATH": os.environ["PATH"], "WHAT": "sleep"}, directory)
    probe_run.run_inside(child, "layer", {"arguments": []}, 60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_module_that_is_killed_leaves_no_process_and_no_directory(child: Child, number: int) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, child.directory], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    directory = parent.stdout.readline().strip()
    log = Path(directory, "layer.log")
    assert proc.wait_until(lambda: log.exists() and "sleeping" in log.read_text(), 30)
    parent.send_signal(number)
    parent.wait(30)
    parent.stdout.close()
    assert proc.wait_until(lambda: not left_behind(directory) and not os.path.exists(directory), 30)
    assert (number != signal.SIGTERM) or parent.returncode == 143


def test_another_user_is_become_with_its_groups_by_root_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, int]] = []
    monkeypatch.setattr(run.os, "chown", lambda path, uid, gid: asked.append((path, uid, gid)))
    monkeypatch.setattr(run.os, "geteuid", lambda: 1234)
    with run.workplace("root") as directory:
        assert asked == [(directory, 0, 0)]
        run._give(f"{directory}/x", directory)
        owner = os.stat(directory)
        assert asked[1:] == [(f"{directory}/x", owner.st_uid, owner.st_gid)]
    assert (run._account("root"), run._account("")) == ({}, {})
    monkeypatch.setattr(run.os, "geteuid", lambda: 0)
    account = run._account("root")
    assert (account["user"], account["group"], account["umask"]) == (0, 0, 0o027)
    assert 0 in account["extra_groups"] and run._account("") == {}


def test_python_that_is_not_there_is_an_error_of_its_own(child: Child) -> None:
    with pytest.raises(OSError, match="No such file"):
        run.run_inside(replace(child, python="/nowhere/python"), "look", {"needs": []}, 5)


def test_model_is_its_cut_config_and_links_to_all_but_weights(tmp_path: Path) -> None:
    for name in ("config.json", "hf_quant_config.json", "tokenizer.json", "modeling_x.py", "a.safetensors", "b.bin"):
        (tmp_path / name).write_text("{}")
    for name in ("model.safetensors.index.json", ".gitattributes"):
        (tmp_path / name).write_text("{}")
    layer = probe_plan.OneLayer({"num_hidden_layers": 1}, {"q": 2}, None, (0,))  # type: ignore[arg-type]
    with run.workplace() as directory:
        made = Path(run.write_model(directory, str(tmp_path), replace(PLAN, layer=layer)))
        assert sorted(path.name for path in made.iterdir()) == sorted(
            ["config.json", "hf_quant_config.json", "tokenizer.json", "modeling_x.py"]
        )
        assert json.loads((made / "config.json").read_text()) == {"num_hidden_layers": 1}
        assert json.loads((made / "hf_quant_config.json").read_text()) == {"q": 2}
        assert (made / "tokenizer.json").resolve() == tmp_path / "tokenizer.json"
    assert not Path(directory).exists() and (tmp_path / "tokenizer.json").exists()
    assert (tmp_path / "config.json").read_text() == "{}"


# --- judging ---------------------------------------------------------------------------------------------------------


def layer(output: str = "", code: int = 0, found: Any = None, expected: Expectation = UNSURE, **more: Any) -> Any:
    ended = Ended(code, 12.34, output.encode(), WELL if found is None else found, **more)
    plan = replace(PLAN, quantization=more.pop("quantization", ""))
    return run.judge_layer(plan, ended, expected, ("hunter2secret",))


def test_tuned_layer_counts_the_pair_of_lines() -> None:
    result = layer(STARTED + COMPLETED, expected=SURE)
    assert (result.step.result, result.step.detail) == ("ok", "8 forward passes, tuned, with finite output")
    assert (result.autotune_started, result.autotune_completed, result.step.elapsed_s) == (1, 1, 12.34)


@pytest.mark.parametrize("output", ["", STARTED])
def test_expected_autotune_that_did_not_complete_is_a_failure(output: str) -> None:
    step = layer(output, expected=SURE).step
    assert (step.result, step.reason) == ("failed", "autotune_skipped")
    assert step.detail == "the layer ran without autotune, though the gate is open"
    assert step.hint == startup_failure.HINTS["autotune_skipped"]
    assert layer(output).step.result == "ok"


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        ("CUDA error: an illegal instruction was encountered", 1, "illegal_instruction"),
        ("CuteDslMoEWrapper requires SM100. Got SM120.", 1, "unsupported_architecture"),
        ("CUDA out of memory. Tried to allocate 2 GiB", 1, "oom_cuda"),
        ("Ninja build failed. Ninja output:", 1, "compile_failure"),
        ("shapes cannot be multiplied", 1, "exception"),
    ],
)
def test_traceback_tells_reason_and_hint_of_a_start(words: str, code: int, reason: str) -> None:
    step = layer(STARTED + TRACE.format(words), code=code).step
    assert (step.result, step.reason, step.hint) == ("failed", reason, startup_failure.HINTS[reason])
    assert step.detail == f"autotune: RuntimeError: {words}"
    assert step.lines[-1] == f"RuntimeError: {words}"
    assert layer(TRACE.format(words), code=code).step.detail.startswith("running the layer: ")


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (-9, "oom_host", "was killed by signal 9 (SIGKILL)"),
        (-4, "illegal_instruction", "was killed by signal 4 (SIGILL)"),
        (-11, "process_exit", "was killed by signal 11 (SIGSEGV)"),
        (3, "process_exit", "exited with code 3"),
    ],
)
def test_end_without_words_tells_how(code: int, reason: str, words: str) -> None:
    step = layer("", code=code).step
    assert (step.reason, step.detail) == (reason, f"running the layer: the process {words}")


def test_exit_code_0_without_a_forward_is_no_success() -> None:
    step = layer("skipping (8, 128, 4) due to max batch size limit\n", found={**WELL, "forwards": 0}).step
    assert (step.result, step.reason) == ("failed", "process_exit")
    assert layer(found={}).step.result == "failed"
    assert layer(found={**WELL, "forwards": True}).step.result == "failed"


def test_what_was_not_checked_is_said() -> None:
    step = layer(found={**WELL, "forwards": 0, "unchecked": "AttributeError: sample"}).step
    assert (step.result, step.detail) == (
        "ok",
        "the layer ran; whether its output is finite was not checked (AttributeError: sample)",
    )


def test_random_quantized_weights_may_give_nan() -> None:
    ended = Ended(0, 1.0, b"", {**WELL, "not_finite": 3})
    step = run.judge_layer(replace(PLAN, quantization="modelopt_fp4"), ended, UNSURE).step
    assert (step.result, "says nothing" in step.detail) == ("ok", True)


def test_time_out_says_how_far_it_came() -> None:
    tuning = "[AutoTuner]: Tuning trtllm::fused_moe::gemm1:  67%|######   | 6/9 [00:07<00:02,  1.3s/profile]\n"
    step = layer(STARTED + tuning, code=-9, timed_out=True).step
    assert (step.reason, step.detail) == (
        "timeout",
        "autotune took longer than the time that was left (12 s) (last at trtllm::fused_moe::gemm1: 6 of 9)",
    )


def test_secrets_and_control_characters_are_not_shown() -> None:
    step = layer("key hunter2secret\x1b[31m --api-key abcdefgh\n  ^^^^\n", code=1).step
    assert step.lines == ("key <redacted>[31m --api-key <redacted>",)
    assert step.as_dict()["lines"] == list(step.lines)


def look(*found: Any, code: int = 0, needs: tuple[Need, ...] = (NEED,), **more: Any) -> list[run.Step]:
    return run.judge_look(needs, Ended(code, 1.0, b"last words\n", {"needs": list(found)}, **more))


FINE = {"module": NEED.module, "symbol": NEED.symbol, "imported": True, "has": True, "version": "0.6", "seconds": 2.25}


def test_missing_symbol_names_the_version_that_is_there() -> None:
    imported, symbol = look({**FINE, "has": False})
    assert (imported.result, imported.elapsed_s, symbol.result, symbol.reason) == (
        "ok",
        2.2,
        "failed",
        "missing_symbol",
    )
    assert symbol.detail == ("flashinfer.fused_moe 0.6 has no cutlass_fused_moe, which SGLang imports for this backend")
    late = look({**FINE, "has": False, "error": "ImportError: libcuda.so.1"})[1]
    assert late.detail.endswith("(flashinfer.fused_moe.cutlass_fused_moe: ImportError: libcuda.so.1)")


def test_failed_import_skips_the_symbol() -> None:
    error = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'flashinfer'\n"
    imported, symbol = look({**FINE, "imported": False, "has": None, "error": error})
    assert (imported.result, imported.reason) == ("failed", "import_error")
    assert imported.detail == ("importing flashinfer.fused_moe: ModuleNotFoundError: No module named 'flashinfer'")
    assert (symbol.result, symbol.detail) == ("skipped", "the import failed")


@pytest.mark.parametrize("found", [[], ["text"], [{}], [{**FINE, "imported": 1}]])
def test_answer_that_is_none_is_a_failed_import(found: list[Any]) -> None:
    assert look(*found, code=1)[0].result == "failed"
    assert run.judge_look((NEED,), Ended(0, 1.0, b"", {"needs": 7}))[0].result == "failed"


def test_import_that_ends_the_process_is_named() -> None:
    step = look({**FINE, "imported": False, "has": None, "error": ""}, code=-4)[0]
    assert (step.detail, step.reason) == (
        "importing flashinfer.fused_moe: the process was killed by signal 4 (SIGILL)",
        "illegal_instruction",
    )
    assert look(FINE, timed_out=True)[0].reason == "timeout"


def test_nothing_to_look_for_is_skipped() -> None:
    steps = run.look(Child("/x", {}, "/"), replace(PLAN, no_needs="not known"), 1)
    assert [(step.name, step.result, step.detail) for step in steps] == [
        ("import", "skipped", "not known"),
        ("symbol", "skipped", "not known"),
    ]
