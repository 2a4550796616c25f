# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole requests against recorded machines: what is chosen, what stands in the way, and that it is said once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    builtin_models,
    cuda_toolkit,
    gpu,
    gpu_look,
    host_memory,
    hub_reach,
    proc,
    server_fit,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding
from ansible_collections.tokforge.sglang.plugins.module_utils.server_fit import Asked, Fit, fit

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
MODELS = FIXTURES / "models"
NVFP4 = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["*self_attn*", "lm_head"]}}
H200 = gpu_look.recorded((FIXTURES / "gpu/580-h200x2.xml").read_bytes())
ONE = gpu_look.recorded((FIXTURES / "gpu/590-pro6000.xml").read_bytes())


def boxes(count: int, driver: str = "590.44.01", cuda: str = "13.1") -> gpu.Report:
    """A machine with this many idle RTX PRO 6000."""
    empty = replace(ONE.gpus[0], processes=(), memory_free_bytes=ONE.gpus[0].memory_total_bytes, problem="")
    gpus = tuple(replace(empty, index=index, bus_id=f"0000:{index:02x}:00.0") for index in range(count))
    return replace(ONE, gpus=gpus, driver_version=driver, cuda_version=cuda, p2p=(), links=(), notes=())


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[gpu.Report], None]:
    """Sets the GPUs of this machine; it has a toolkit that can compile, and no network."""
    right = cuda_toolkit.Toolkit("/usr/local/cuda", "the usual place", unasked=True, version=(13, 0))
    seen = cuda_toolkit.Seen(
        (right,), ninja="/usr/bin/ninja", cxx="/usr/bin/c++", cc="/usr/bin/gcc", python_header=True
    )
    monkeypatch.setattr(cuda_toolkit, "look", lambda _request: seen)
    monkeypatch.setattr(hub_reach, "check", lambda request: [Finding(WARN, "hub", f"asked for {request.model}")])

    def has(report: gpu.Report) -> None:
        monkeypatch.setattr(gpu_look, "look", lambda: report)

    return has


@pytest.fixture
def glm(tmp_path: Path) -> str:
    """GLM-5 in NVFP4, its configuration without weights."""
    (tmp_path / "config.json").write_bytes((MODELS / "glm-5.json").read_bytes())
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(NVFP4))
    return str(tmp_path)


def asked(model: str, **changes: Any) -> Asked:
    arguments = {"tp-size": 8, "mem-fraction-static": 0.9, "kv-cache-dtype": "bf16"}
    request = Asked("/nowhere", "auto", "auto", "flashinfer_cutlass", model, True, arguments)
    return replace(request, **changes)


def told(found: Fit, check: str, level: str | None = None) -> list[str]:
    return [one.message for one in found.findings if one.check == check and level in (None, one.level)]


def failing(found: Fit) -> set[str]:
    return {finding.check for finding in found.findings if finding.level == FAIL}


# --- which release ---------------------------------------------------------------------------------------------------


def test_newest_release_is_taken_in_which_the_backend_runs(machine: Callable[..., None], glm: str) -> None:
    machine(boxes(8))
    newest = fit(asked(glm))
    older = fit(asked(glm, backend="flashinfer_cutedsl"))
    assert newest.choice and (newest.choice.version, newest.choice.lane) == ("0.5.23", "cuda13")
    assert older.choice and (older.choice.version, older.choice.lane) == ("0.5.10.post1", "cuda12")
    assert newest.backend and newest.backend.verdict == "supported"
    assert older.backend and older.backend.verdict == "supported_but"
    assert "0.5.23: unsupported" in older.choice.reason and "cutlass_moe_fp4" in older.choice.reason
    assert (failing(newest), failing(older)) == (set(), set())


def test_driver_of_cuda_12_leaves_the_releases_of_that_lane(machine: Callable[..., None], glm: str) -> None:
    machine(boxes(8, "570.86.15", "12.8"))
    found = fit(asked(glm))
    assert found.choice and (found.choice.version, found.choice.lane) == ("0.5.10.post1", "cuda12")
    asked_new = fit(asked(glm, version="0.5.23"))
    assert asked_new.choice is None
    assert (
        told(asked_new, "release") == ["SGLang 0.5.23 is locked for cpu, cuda13, and driver 570.86.15 runs cuda12"]
        or "and driver 570.86.15 runs cuda12" in told(asked_new, "release", FAIL)[0]
    )
    forced_lane = fit(asked(glm, version="0.5.23", lane="cuda13"))
    assert "supports CUDA 12.8, CUDA 13 needs" in told(forced_lane, "driver", FAIL)[0]


def test_driver_too_old_for_any_lane_fails(machine: Callable[..., None], glm: str) -> None:
    machine(boxes(8, "470.82.01", "11.4"))
    found = fit(asked(glm))
    assert found.choice is None and found.backend is None
    assert "supports CUDA 11.4, which no lane is for" in told(found, "release", FAIL)[0]


def test_without_a_gpu_auto_says_so_and_what_to_set(machine: Callable[..., None], glm: str) -> None:
    machine(gpu.Report("no_tool", "nvidia-smi is not installed", "install the driver"))
    found = fit(asked(glm))
    assert found.choice is None
    [release] = [one for one in found.findings if one.check == "release"]
    assert release.message == "sglang_lane is auto, and nvidia-smi is not installed"
    assert release.remedy.startswith("install the driver; or set sglang_lane (cpu")
    assert "gpu" in failing(found)


def test_lane_cpu_asks_for_no_gpu(machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_look, "look", lambda: pytest.fail("nvidia-smi was run"))
    found = fit(Asked("/nowhere", "cpu", "0.5.23"))
    assert found.choice and (found.choice.version, found.choice.lane) == ("0.5.23", "cpu")
    assert found.backend is None and failing(found) == set()
    newest = fit(Asked("/nowhere", "cpu", "auto"))
    assert newest.choice and newest.choice.version == "0.5.23"


def test_unknown_lane_and_release_are_told(machine: Callable[..., None], glm: str) -> None:
    machine(boxes(8))
    assert "'0.9.9' has no lock" in told(fit(asked(glm, version="0.9.9")), "release", FAIL)[0]
    assert "no release has a lock in lane rocm" in told(fit(asked(glm, lane="rocm")), "release", FAIL)[0]


def test_backend_auto_takes_the_newest_release(machine: Callable[..., None], glm: str) -> None:
    machine(boxes(8))
    found = fit(asked(glm, backend="auto"))
    assert found.choice and found.choice.reason == "0.5.23 is the newest locked release"


# --- the backend -----------------------------------------------------------------------------------------------------


def test_backend_that_does_not_run_fails_unless_it_is_forced(machine: Callable[..., None], glm: str) -> None:
    machine(boxes(8))
    request = asked(glm, version="0.5.23", lane="cuda13", backend="flashinfer_cutedsl")
    refused, forced = fit(request), fit(replace(request, force=True))
    assert failing(refused) == {"backend"} and failing(forced) == set()
    assert refused.backend and refused.backend.forced is False
    assert forced.backend and (forced.backend.forced, forced.backend.verdict) == (True, "unsupported")
    assert told(forced, "backend", WARN)[0].startswith("forced all the same: flashinfer_cutedsl does not run")
    assert "ansible-playbook deploy.yml -e backend=flashinfer_cutlass" in told(refused, "backend", FAIL)[0]


def test_backend_that_runs_in_no_release_here_names_what_does(machine: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((MODELS / "qwen3-235b-a22b.json").read_bytes())
    machine(boxes(8))
    found = fit(asked(str(tmp_path), backend="flashinfer_trtllm"))
    assert found.choice is None
    assert "runs in none" in told(found, "release", FAIL)[0]


def test_attention_backend_among_the_arguments_is_judged_too(machine: Callable[..., None], glm: str) -> None:
    machine(boxes(8))
    found = fit(asked(glm, args={"tp-size": 8, "attention_backend": "trtllm_mla"}))
    assert "trtllm_mla" in told(found, "backend" if found.choice else "release", FAIL)[0]


def test_quantization_of_a_model_that_is_not_here_is_left_open(machine: Callable[..., None]) -> None:
    machine(boxes(8))
    found = fit(asked(f"org/name@{'a' * 40}", random_weights=False))
    assert found.choice and found.choice.version == "0.5.23"
    [message] = told(found, "backend")
    assert message.startswith("flashinfer_cutlass runs here with quantization none, modelopt_fp4")
    assert told(found, "hub") == [f"asked for org/name@{'a' * 40}"]
    named = fit(
        asked(f"org/name@{'a' * 40}", args={"tp-size": 8, "quantization": "mxfp4"}, version="0.5.23", lane="cuda13")
    )
    assert failing(named) == {"backend"}


# --- memory, layout, GPUs --------------------------------------------------------------------------------------------


def test_model_that_does_not_fit_says_how_many_gpus_it_takes(machine: Callable[..., None], glm: str) -> None:
    machine(boxes(4))
    found = fit(asked(glm, args={"tp-size": 4}))
    assert failing(found) == {"memory"}
    [remedy] = [one.remedy for one in found.findings if one.check == "memory" and one.level == FAIL]
    assert remedy.startswith("it takes 8 such GPUs")
    assert "memory" in failing(fit(asked(glm))) or "gpus" in failing(fit(asked(glm)))


def test_layout_that_no_server_can_have_is_one_finding(machine: Callable[..., None], glm: str) -> None:
    machine(boxes(8))
    found = fit(asked(glm, args={"tp-size": 8, "ep-size": 3}))
    assert (len(told(found, "layout", FAIL)), "ep" in told(found, "layout", FAIL)[0]) == (1, True)
    negative = fit(asked("builtin:tiny-moe", args={"tp-size": -1}))
    assert (len(told(negative, "layout", FAIL)), failing(negative)) == (1, {"layout"})


def test_foreign_process_is_named_and_our_own_server_is_not(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, glm: str
) -> None:
    box = boxes(1)
    held = gpu.GpuProcess(4242, "python", 40 << 30, "C")
    total = box.gpus[0].memory_total_bytes or 0
    machine(replace(box, gpus=(replace(box.gpus[0], processes=(held,), memory_free_bytes=total - (40 << 30)),)))
    request = asked("builtin:tiny-moe", root=str(tmp_path), args={})
    assert any("pid 4242" in message for message in told(fit(request), "gpu"))
    ours = {"TOKFORGE_RELEASE": f"{tmp_path}/releases/3"}
    monkeypatch.setattr(proc, "environ", lambda pid: ours if pid == 4242 else {})
    assert not any("pid 4242" in message for message in told(fit(request), "gpu"))


def test_memory_that_others_hold_fails_when_the_model_does_not_fit_beside_it(
    machine: Callable[..., None], glm: str
) -> None:
    box = boxes(8)
    held = gpu.GpuProcess(4242, "python", 80 << 30, "C")
    total = box.gpus[0].memory_total_bytes or 0
    full = replace(box.gpus[5], processes=(held,), memory_free_bytes=total - (80 << 30))
    machine(replace(box, gpus=(*box.gpus[:5], full, *box.gpus[6:])))
    found = fit(asked(glm))
    assert failing(found) == {"gpu"}
    [message] = told(found, "gpu", FAIL)
    assert "GPU 5" in message and "pid 4242 (python)" in message


def test_fraction_in_quotes_is_the_number(machine: Callable[..., None], glm: str) -> None:
    machine(boxes(8))
    for fraction in (0.5, "0.5"):
        assert "memory" in failing(fit(asked(glm, args={"tp-size": 8, "mem-fraction-static": fraction}))), fraction
    assert failing(fit(asked(glm, args={"tp-size": 8, "max-total-tokens": "9" * 5000}))) == set()


@pytest.mark.parametrize("text", ["", "[", "[]"])
def test_damaged_quantization_file_is_not_taken_for_none(machine: Callable[..., None], glm: str, text: str) -> None:
    machine(boxes(8))
    Path(glm, "hf_quant_config.json").write_text(text)
    assert "hf_quant_config.json" in told(fit(asked(glm)), "model", FAIL)[0]


def test_damaged_weights_are_told_in_every_lane(machine: Callable[..., None], glm: str) -> None:
    Path(glm, "model.safetensors").write_bytes(bytes(20))
    found = fit(asked(glm, lane="cpu", version="0.5.23", random_weights=False))
    assert told(found, "weights", FAIL)


def test_ceiling_of_decoding_is_told_with_its_figures(machine: Callable[..., None], glm: str) -> None:
    machine(boxes(8))
    [message] = told(fit(asked(glm)), "roofline", OK)
    assert "9.20 GB a token on each GPU, at 1792 GB/s" in message and "at most 195 tok/s" in message
    [loaded] = told(fit(asked(glm, concurrency=32)), "roofline", OK)
    # 256 experts of which a token takes 8: 32 tokens reach 256 (1 - (1 - 8/256)^32) of them.
    assert "; 32 at once at most " in loaded and "163 of 256 experts read" in loaded
    assert "at once" not in message
    unknown = boxes(8)
    machine(replace(unknown, gpus=tuple(replace(one, memory_bandwidth_bytes_s=None) for one in unknown.gpus)))
    assert told(fit(asked(glm)), "roofline") == []


def test_damaged_model_config_is_a_finding(machine: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 4, "hidden_size": "wide"}')
    machine(boxes(8))
    assert any("hidden_size" in message for message in told(fit(asked(str(tmp_path))), "model", FAIL))


def test_missing_toolkit_only_warns_where_nothing_of_flashinfer_is_used(
    machine: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(H200)
    monkeypatch.setattr(cuda_toolkit, "look", lambda _request: cuda_toolkit.Seen())
    plain = {"attention-backend": "triton", "sampling-backend": "pytorch"}
    assert "toolkit" in failing(fit(asked("builtin:tiny-moe", args={})))
    assert "toolkit" not in failing(fit(asked("builtin:tiny-moe", args=plain, backend="triton")))
    assert "toolkit" in failing(fit(asked("builtin:tiny-moe", args=plain, backend="flashinfer_cutlass")))


# --- small parts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "number"),
    [(8, 8), ("8", 8), (True, None), (0, None), ("0", None), ("-1", None), (1.5, None), ("²", None)],
)
def test_argument_that_is_no_whole_number_is_left_to_the_check_of_arguments(value: Any, number: int | None) -> None:
    assert server_fit.memory_settings({"context-length": value}).context_tokens == number


@pytest.mark.parametrize(
    ("args", "graphs"),
    [({}, True), ({"disable-cuda-graph": True}, False), ({"cuda-graph-backend-decode": "disabled"}, False)],
)
def test_graphs_are_off_by_either_name(args: dict[str, Any], graphs: bool) -> None:
    assert server_fit.memory_settings(args).cuda_graphs is graphs


def test_unusable_capability_is_an_error_of_the_backend_check(machine: Callable[..., None], glm: str) -> None:
    box = boxes(8)
    machine(replace(box, gpus=tuple(replace(one, compute_capability=None) for one in box.gpus)))
    found = fit(asked(glm, version="0.5.23", lane="cuda13"))
    assert found.backend and found.backend.verdict == "unknown"


# --- built-in models, and weights that the arguments make smaller -----------------------------------------------------


def test_moe_30b_is_counted_like_a_model_with_files(machine: Callable[..., None]) -> None:
    machine(H200)
    found = fit(asked("builtin:moe-30b", args={}, backend="triton"))
    assert told(found, "memory")[0].startswith("58.00 GiB of weights a GPU with tp 1 (from the model's shape); ")
    assert "reads 5.49 GB a token" in told(found, "roofline")[0]
    assert failing(found) <= {"driver", "toolkit"}
    half = fit(asked("builtin:moe-30b", args={"quantization": "fp8"}, backend="triton"))
    assert told(half, "memory")[0].startswith("29.05 GiB of weights a GPU with tp 1")
    blocks = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    same = fit(asked("builtin:moe-30b", args={"json_model_override_args": blocks}, backend="flashinfer_cutlass"))
    assert told(same, "memory")[0].startswith("29.05 GiB of weights")
    # What SGLang sees only when it is too late.
    assert failing(same) & {"backend", "release"}


def small(gib: int) -> gpu.Report:
    """One GPU with this much memory."""
    box = boxes(1)
    return replace(
        box,
        gpus=(replace(box.gpus[0], memory_total_bytes=gib << 30, memory_free_bytes=gib << 30, memory_used_bytes=0),),
    )


def test_moe_30b_on_a_gpu_that_is_too_small_is_refused(machine: Callable[..., None]) -> None:
    machine(small(48))
    found = fit(asked("builtin:moe-30b", args={}, backend="triton"))
    assert failing(found) == {"memory"}
    [remedy] = [one.remedy for one in found.findings if one.check == "memory" and one.level == FAIL]
    assert remedy.startswith("it takes 2 such GPUs")


def test_weights_that_are_quantized_later_must_fit_before(machine: Callable[..., None]) -> None:
    machine(small(48))
    found = fit(asked("builtin:moe-30b", args={"quantization": "fp8"}, backend="triton"))
    assert failing(found) == {"memory"}
    assert told(found, "memory", FAIL) == [
        "the model does not fit while it loads: SGLang makes fp8 of it when all of it is there, 59.70 GiB a GPU with"
        " CUDA's context, and a GPU has 48.00 GiB"
    ]
    assert told(found, "memory", OK)[0].startswith("29.05 GiB of weights")
    # Made in fp8 from the beginning they fit.
    blocks = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    assert failing(fit(asked("builtin:moe-30b", args={"json-model-override-args": blocks}, backend="triton"))) == set()


def test_free_memory_is_asked_for_what_is_loaded_first(machine: Callable[..., None]) -> None:
    box = small(96)
    held = gpu.GpuProcess(4242, "python", 50 << 30, "C")
    full = replace(box, gpus=(replace(box.gpus[0], processes=(held,), memory_free_bytes=46 << 30),))
    machine(full)
    fp8 = asked("builtin:moe-30b", args={"quantization": "fp8"}, backend="triton")
    assert "gpu" in failing(fit(fp8))


def test_files_of_a_checkpoint_do_not_tell_what_quantization_makes_of_them(
    machine: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(builtin_models.CONFIGS["moe-30b"]))
    index = {"metadata": {"total_size": 59_886_665_728}, "weight_map": {"lm_head.weight": "gone.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    machine(small(96))
    request = asked(str(tmp_path), args={}, backend="triton", random_weights=False)
    assert told(fit(request), "memory")[0].startswith("58.00 GiB of weights a GPU with tp 1 (from the weight index)")
    half = fit(replace(request, args={"quantization": "fp8"}))
    assert told(half, "memory")[0].startswith("29.05 GiB of weights a GPU with tp 1 (from the model's shape)")
    # What is wrong with the files is told all the same.
    assert told(half, "weights", FAIL) == told(fit(request), "weights", FAIL) != []


@pytest.mark.parametrize(
    ("total", "limit", "refused"), [(64, None, False), (57, None, True), (64, 32, True), (None, None, False)]
)
def test_lane_cpu_needs_host_memory_for_the_weights(
    monkeypatch: pytest.MonkeyPatch, total: int | None, limit: int | None, refused: bool
) -> None:
    size, bound = ((one << 30) if one else None for one in (total, limit))
    memory = host_memory.Memory(total_bytes=size, available_bytes=size, limit_bytes=bound)
    monkeypatch.setattr(host_memory, "look", lambda: memory)
    found = fit(Asked("/nowhere", "cpu", "0.5.23", model="builtin:moe-30b"))
    have = limit or total
    assert told(found, "memory") == (
        [
            "the model does not fit: 58.00 GiB of weights (from the model's shape) in lane cpu, and this host has"
            f" {have}.00 GiB of memory"
        ]
        if refused
        else []
    )
    assert ("memory" in failing(found)) is refused
    # What is quantized later is as large as before when it is loaded.
    later = fit(Asked("/nowhere", "cpu", "0.5.23", model="builtin:moe-30b", args={"quantization": "fp8"}))
    assert told(later, "memory") == told(found, "memory")
