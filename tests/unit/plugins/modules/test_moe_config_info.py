# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module, called as Ansible calls it, without a process for each call."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.module_utils import gpu
from ansible_collections.tokforge.sglang.plugins.modules import moe_config_info

HERE = {"device_name": "NVIDIA H200", "compute_capability": "9.0"}
CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_hidden_layers": 4,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "num_experts": 64,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1024,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
BLOCKS = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1}
NAME = "E=64,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"


def run(capsys: pytest.CaptureFixture[str], **params: Any) -> dict[str, Any]:
    """The module's answer; `failed` is there when it failed."""
    with (
        patch_module_args({"sglang_version": "0.5.23", "_ansible_check_mode": True, **params}),
        pytest.raises(SystemExit) as ended,
    ):
        moe_config_info.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert ended.value.code == (1 if answer.get("failed") else 0)
    return answer


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    return str(tmp_path / "model")


def see(monkeypatch: pytest.MonkeyPatch, report: gpu.Report) -> None:
    monkeypatch.setattr(moe_config_info.gpu_look, "look", lambda: report)


def test_file_that_applies_to_a_model_is_found(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    directory = tmp_path / "tuned" / "configs" / "triton_3_8_0"
    directory.mkdir(parents=True)
    (directory / NAME).write_text(json.dumps({"1": BLOCKS}))
    (directory / NAME.replace("N=256", "N=1024")).write_text("{}")
    found = run(capsys, model=model, directory=str(tmp_path / "tuned"), args={"tp-size": 4}, **HERE)
    assert found["changed"] is False
    assert found["path"]["backend"] == "triton" and found["path"]["reads_configs"] is True
    assert found["applies"] == str(directory / NAME)
    assert found["wanted"] == [f"configs/triton_3_8_0/{NAME}"]
    assert found["nearby"][0]["reason"].startswith("N=1024 is the whole model's and not one rank's")


def test_shape_alone_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(
        capsys,
        experts=64,
        intermediate_size=1024,
        fused_shared_experts=1,
        quantization="fp8",
        block_shape=[128, 128],
        per_channel=False,
        backend="triton",
        triton_version="3.6.0",
        tp=4,
        ep=2,
        **HERE,
    )
    assert found["wanted"] == ["configs/triton_3_6_0/" + NAME.replace("E=64", "E=33").replace("N=256", "N=512")]
    assert (found["applies"], found["nearby"]) == (None, [])


def test_module_runs_as_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    with patch_module_args({"sglang_version": "0.5.23", "experts": 0, **HERE}), pytest.raises(SystemExit):
        runpy.run_path(str(moe_config_info.__file__), run_name="__main__")
    assert json.loads(capsys.readouterr().out)["changed"] is False


def test_dense_model_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, experts=0, **HERE)
    assert found["path"]["reads_configs"] is False
    assert "the model has no experts" in found["message"]


def test_gpu_is_asked_of_the_machine(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = gpu.Gpu(index=0, name="NVIDIA H200", compute_capability=(9, 0))
    second = gpu.Gpu(index=1, name="NVIDIA A100-SXM4-80GB", compute_capability=(8, 0))
    see(monkeypatch, gpu.Report(state=gpu.OK, message="", gpus=(first, second)))
    found = run(capsys, experts=8, intermediate_size=64)
    assert found["wanted"] == ["configs/triton_3_8_0/E=8,N=64,device_name=NVIDIA_H200.json"]
    assert "on compute capability 9.0" in found["path"]["reason"]
    assert (
        "the GPUs here are of several kinds (NVIDIA A100-SXM4-80GB, NVIDIA H200); SGLang asks the first"
        in found["notes"]
    )
    named = run(capsys, experts=8, intermediate_size=64, device_name="NVIDIA L40S")
    assert "device_name=NVIDIA_L40S" in named["wanted"][0] and "capability 9.0" in named["path"]["reason"]


def test_machine_without_gpu_is_said_to_be_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    see(monkeypatch, gpu.Report(state=gpu.NO_TOOL, message="nvidia-smi is not there"))
    found = run(capsys, experts=8, intermediate_size=64)
    assert found["wanted"] == ["configs/triton_3_8_0/E=8,N=64,device_name=<GPU_name>.json"]
    assert found["path"]["reads_configs"] is None
    assert "nvidia-smi is not there" in found["notes"]
    assert any("give device_name" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({}, "one of the following is required: model, experts"),
        ({"experts": 8}, "intermediate_size is 0; give a number above 0"),
        ({"experts": 8, "intermediate_size": 64, "tp": 3}, "an expert's intermediate size 64 cannot be split over 3"),
        ({"experts": 8, "intermediate_size": 64, "block_shape": [128]}, "block_shape is [128]; give two numbers"),
        ({"experts": 8, "intermediate_size": 64, "block_shape": [0, 1]}, "block_shape is [0, 1]; give two numbers"),
        ({"experts": 8, "compute_capability": "12"}, "compute_capability is '12'; give one like 12.0"),
        ({"experts": 8, "triton_version": "../x"}, "triton_version is '../x'; give one like 3.6.0"),
        ({"experts": 8, "intermediate_size": 64, "sglang_version": "new"}, "'new': not a release name"),
        ({"experts": 8, "sglang_version": "new", "triton_version": "3.6.0"}, "'new': not a release name"),
        ({"model": "/nonexistent"}, "cannot use the model /nonexistent: it has no config.json"),
        ({"experts": 8, "intermediate_size": 64, "args": {"tp": []}}, "args: tp is []; give one word or number"),
    ],
)
def test_what_cannot_be_meant_is_refused(capsys: pytest.CaptureFixture[str], params: dict[str, Any], said: str) -> None:
    found = run(capsys, **{**HERE, **params})
    assert found["failed"] and said in found["msg"]


def test_damaged_config_is_refused_with_its_key(capsys: pytest.CaptureFixture[str], model: str) -> None:
    Path(model, "config.json").write_text(json.dumps({**CONFIG, "num_experts": "64"}))
    found = run(capsys, model=model, **HERE)
    assert found["failed"] and "num_experts" in found["msg"]


def test_secret_among_the_arguments_is_printed_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, experts=8, intermediate_size=64, args={"api-key": "hunter2", "tp": 2}, **HERE)
    assert found["wanted"] == ["configs/triton_3_8_0/E=8,N=32,device_name=NVIDIA_H200.json"]
    assert "hunter2" not in json.dumps(found)


def test_every_part_of_the_answer_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, experts=8, intermediate_size=64, **HERE)
    assert set(found) - {"changed", "invocation"} == set(yaml.safe_load(moe_config_info.RETURN))
