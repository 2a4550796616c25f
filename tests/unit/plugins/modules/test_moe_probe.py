# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module in this process, on a release whose environment is this Python with a small SGLang."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.module_utils import gpu, probe, probe_record, probe_run, release_store
from ansible_collections.tokforge.sglang.plugins.module_utils.probe_run import Ended
from ansible_collections.tokforge.sglang.plugins.modules import moe_probe

CUTLASS = "flashinfer_cutlass"
CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}
TUNED = b"""\
[2026-11-30 04:10:43 TP0] Running FlashInfer autotune...
[2026-11-30 04:10:50 TP0] FlashInfer autotune completed.
"""
H200 = gpu.Gpu(0, "NVIDIA H200", uuid="GPU-5e6f", compute_capability=(9, 0), memory_free_bytes=150_000_000_000)
SEEN = gpu.Report(gpu.OK, "", driver_version="580.1", gpus=(H200,))


class Inside:
    """Answers in place of the processes, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.directories: list[Path] = []
        self.layer = Ended(0, 7.5, TUNED, {"forwards": 8, "not_finite": 0, "unchecked": ""})

    def __call__(self, child: probe_run.Child, step: str, request: dict[str, Any], timeout_s: float) -> Ended:
        self.asked.append((step, request, dict(child.env)))
        self.directories.append(Path(child.directory))
        assert 0 < timeout_s <= 1800
        if step == "layer":
            model = Path(request["arguments"][request["arguments"].index("--model-path") + 1])
            assert json.loads((model / "config.json").read_text())["num_hidden_layers"] == 1
            Path(child.env["FLASHINFER_WORKSPACE_BASE"], ".cache/flashinfer").mkdir(parents=True, exist_ok=True)
            Path(child.env["FLASHINFER_WORKSPACE_BASE"], ".cache/flashinfer/new.o").touch()
            return self.layer
        found = [{"module": m, "symbol": s, "imported": True, "has": True} for m, s in request["needs"]]
        return Ended(0, 1.0, b"", {"needs": found})


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> Inside:
    made = Inside()
    for name in ("look", "run_layer"):
        original = getattr(probe_run, name)
        monkeypatch.setattr(probe_run, name, lambda *args, original=original: original(*args, run=made))
    monkeypatch.setattr(probe.gpu_look, "look", lambda: SEEN)
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    venv = tmp_path / "root" / "venvs" / "e"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "environment.json").write_text(json.dumps({"autotune_gate": {"backends": {CUTLASS: "patch"}}}))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path / "root"


def stage(root: Path, *words: str) -> int:
    """A release below the root; its number."""
    (root / "state").mkdir(exist_ok=True)
    argv = ["-m", "sglang.launch_server", "--model-path", str(root.parent / "model"), *words]
    env = {"FLASHINFER_WORKSPACE_BASE": f"{root}/cache", "SGLANG_CACHE_DIR": f"{root}/cache/sglang"}
    content = release_store.Content(
        "e", "0.5.12.post1", CUTLASS, argv, env, str(root), {"path": str(root.parent / "model")}
    )
    return release_store.stage(str(root), content, "2026-11-30T00:00:00Z").release


def run(capsys: pytest.CaptureFixture[str], root: Path, check_mode: bool = False, **params: Any) -> dict[str, Any]:
    """Run the module and give its result."""
    with patch_module_args({"root": str(root), "_ansible_check_mode": check_mode, **params}), pytest.raises(SystemExit):
        moe_probe.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def results(result: dict[str, Any]) -> dict[str, str]:
    return {step["name"]: step["result"] for step in result["steps"]}


ALL_OK = {"import": "ok", "symbol": "ok", "layer": "ok"}


def test_release_that_is_not_current_is_tried_on_one_gpu(
    capsys: pytest.CaptureFixture[str], root: Path, inside: Inside
) -> None:
    number = stage(root, "--moe-runner-backend", CUTLASS, "--tp-size", "2")
    result = run(capsys, root, release=number)
    assert (results(result), result["ok"], result["changed"]) == (ALL_OK, True, False)
    assert result["autotune"] == {
        "expected": "expected",
        "reason": f"the autotune gate is open for {CUTLASS}",
        "started": True,
        "completed": True,
    }
    assert result["jit_objects"] == {"before": 0, "after": 1}
    assert (result["gpu"]["index"], result["gpu"]["compute_capability"]) == (0, "9.0")
    assert (result["backend"], result["shared_cache"], result["recorded"]) == (CUTLASS, True, False)
    [(_look, needs, _env), (_layer, request, env)] = inside.asked
    assert needs == {"needs": [["flashinfer.fused_moe", "cutlass_fused_moe"]]}
    assert "--tp-size" not in request["arguments"]
    assert env["CUDA_VISIBLE_DEVICES"] == "GPU-5e6f"
    assert env["SGLANG_CACHE_DIR"].startswith(str(inside.directories[0]))
    assert not any(directory.exists() for directory in inside.directories)


def test_same_probe_is_done_once(capsys: pytest.CaptureFixture[str], root: Path, inside: Inside) -> None:
    number = stage(root, "--moe-runner-backend", CUTLASS)
    run(capsys, root, release=number)
    again = run(capsys, root, release=number)
    assert (again["recorded"], again["ok"], set(results(again).values())) == (True, True, {"skipped"})
    assert again["autotune"]["completed"] is True
    assert len(inside.asked) == 2
    assert run(capsys, root, release=number, force=True)["recorded"] is False
    other = run(capsys, root, release=stage(root, "--moe-runner-backend", CUTLASS, "--tp-size", "2"))
    assert other["recorded"] is False
    (root / "venvs/e/environment.json").write_text(
        json.dumps({"autotune_gate": {"backends": {CUTLASS: "patch"}}, "x": 1})
    )
    assert run(capsys, root, release=number)["recorded"] is False


def test_release_that_served_is_not_tried(capsys: pytest.CaptureFixture[str], root: Path, inside: Inside) -> None:
    number = stage(root, "--moe-runner-backend", CUTLASS)
    (root / f"releases/{number}/{release_store.PROVEN}").touch()
    result = run(capsys, root, release=number)
    assert (result["recorded"], result["steps"][0]["detail"]) == (True, "this release has served already")
    assert inside.asked == []
    # Another backend has not.
    assert results(run(capsys, root, release=number, backend="triton"))["import"] == "ok"


def test_failure_names_the_step_the_reason_and_what_to_do(
    capsys: pytest.CaptureFixture[str], root: Path, inside: Inside
) -> None:
    inside.layer = Ended(1, 7.5, b"Traceback (most recent call last):\n  x\nRuntimeError: Got SM120.\n", {})
    number = stage(root, "--moe-runner-backend", CUTLASS)
    result = run(capsys, root, release=number)
    assert result["failed"] is True and result["ok"] is False
    assert result["msg"].startswith(
        f"probing {CUTLASS} on GPU 0 (NVIDIA H200): step layer failed: running the layer: RuntimeError: Got SM120.; "
    )
    assert result["msg"].endswith("\nRuntimeError: Got SM120.")
    assert result["steps"][2]["reason"] == "unsupported_architecture"
    assert not Path(probe_record.path_in(str(root))).exists()


def test_failed_import_keeps_the_layer_from_being_run(
    capsys: pytest.CaptureFixture[str], root: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [probe_run.Step("import", "failed", "importing x: no"), probe_run.Step("symbol", "skipped", "y")]
    monkeypatch.setattr(probe_run, "look", lambda *_args: broken)
    result = run(capsys, root, release=stage(root, "--moe-runner-backend", CUTLASS))
    assert result["steps"][2]["detail"] == "a step before failed"
    assert result["jit_objects"] is None and inside.asked == []


def test_full_gpu_skips_the_layer_and_nothing_else(
    capsys: pytest.CaptureFixture[str], root: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = gpu.Gpu(0, "NVIDIA H200", uuid="GPU-5e6f", memory_free_bytes=1_000_000_000)
    monkeypatch.setattr(probe.gpu_look, "look", lambda: gpu.Report(gpu.OK, "", gpus=(full,)))
    result = run(capsys, root, release=stage(root, "--moe-runner-backend", CUTLASS))
    assert results(result) == {"import": "ok", "symbol": "ok", "layer": "skipped"}
    assert "no GPU has 9 GB free" in result["steps"][2]["detail"] and result["gpu"] is None
    assert [step for step, _request, _env in inside.asked] == ["look"]
    assert not Path(probe_record.path_in(str(root))).exists()


def test_check_mode_runs_nothing(capsys: pytest.CaptureFixture[str], root: Path, inside: Inside) -> None:
    number = stage(root, "--moe-runner-backend", CUTLASS)
    result = run(capsys, root, check_mode=True, release=number)
    assert set(results(result).values()) == {"skipped"} and result["steps"][0]["detail"] == "check mode runs nothing"
    assert (inside.asked, result["changed"]) == ([], False)


def test_only_the_steps_that_are_asked_for_are_done(
    capsys: pytest.CaptureFixture[str], root: Path, inside: Inside
) -> None:
    number = stage(root, "--moe-runner-backend", CUTLASS)
    assert results(run(capsys, root, release=number, steps=["symbol"])) == {"symbol": "ok"}
    assert [step for step, _request, _env in inside.asked] == ["look"]
    assert results(run(capsys, root, release=number, steps=["layer"])) == {"layer": "ok"}


def test_auto_backend_on_a_cpu_is_kept_when_its_layer_ran(
    capsys: pytest.CaptureFixture[str], root: Path, inside: Inside
) -> None:
    number = stage(root, "--device", "cpu")
    result = run(capsys, root, release=number)
    assert results(result) == {"import": "skipped", "symbol": "skipped", "layer": "ok"}
    assert (result["gpu"], result["autotune"]["expected"]) == (None, "not_expected")
    assert "CUDA_VISIBLE_DEVICES" not in inside.asked[0][2]
    assert run(capsys, root, release=number)["recorded"] is True


def test_user_that_is_not_there_yet_keeps_nothing(
    capsys: pytest.CaptureFixture[str], root: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe.os, "geteuid", lambda: 0)
    number = stage(root, "--moe-runner-backend", CUTLASS)
    result = run(capsys, root, release=number, user="nobody-of-that-name")
    assert result["shared_cache"] is False and "no user nobody-of-that-name yet" in result["notes"][0]
    env, directory = inside.asked[1][2], str(inside.directories[1])
    assert all(env[name].startswith(directory) for name in ("FLASHINFER_WORKSPACE_BASE", "HOME", "TRITON_CACHE_DIR"))
    assert not (root / "cache").exists()
    assert probe._user("root") == ("root", True)


def test_python_that_is_gone_fails_the_first_step(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    number = stage(root, "--device", "cpu", "--moe-runner-backend", "triton")
    (root / "venvs/e/bin/python").unlink()
    result = run(capsys, root, release=number)
    assert results(result) == {"import": "failed", "symbol": "skipped", "layer": "skipped"}
    assert "venvs/e/bin/python: No such file or directory" in result["msg"]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "there is no current release"),
        ({"release": 7}, "cannot probe release 7"),
        ({"release": 1, "timeout": 0}, "timeout is 0"),
        ({"release": 1, "timeout": "nan"}, "timeout is nan"),
        ({"release": 1, "steps": ["other"]}, "value of steps must be one or more of"),
    ],
)
def test_what_cannot_be_probed_says_why(
    capsys: pytest.CaptureFixture[str], root: Path, params: dict[str, Any], words: str
) -> None:
    stage(root)
    result = run(capsys, root, **params)
    assert result["failed"] is True and words in result["msg"]


def test_model_that_is_gone_is_said(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    number = stage(root)
    (root.parent / "model/config.json").write_text("[]")
    assert "it holds" in run(capsys, root, release=number)["msg"]


def test_record_that_is_damaged_or_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    path = Path(probe_record.path_in(str(tmp_path)))
    for text in (
        "",
        "{",
        "[]",
        '{"schema_version": 1, "probes": 3}',
        '{"schema_version": 2, "probes": [{"key": "k"}]}',
    ):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        assert probe_record.find(str(tmp_path), "k") is None
    assert probe_record.add(str(tmp_path), {"key": "k", "n": 1}) == ""
    for number in range(60):
        probe_record.add(str(tmp_path), {"key": "other" if number else "k", "n": number})
    assert probe_record.find(str(tmp_path), "k") == {"key": "k", "n": 0}
    assert len(json.loads(path.read_text())["probes"]) == 2
    path.unlink()
    path.mkdir()
    assert "the next rollout probes again" in probe_record.add(str(tmp_path), {"key": "k"})
