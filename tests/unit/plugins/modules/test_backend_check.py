# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it, and what it takes from a machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.tokforge.sglang.plugins.module_utils import compat_gather
from ansible_collections.tokforge.sglang.plugins.module_utils.compat import CompatError, Query, filled
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu, Report
from ansible_collections.tokforge.sglang.plugins.modules import backend_check

MODULE = "ansible_collections.tokforge.sglang.plugins.modules.backend_check"
MOE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 64,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 128,
}


def run(**params: Any) -> dict[str, Any]:
    """The module's answer; `failed` is there when it failed."""
    done = subprocess.run(
        [sys.executable, "-m", MODULE],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {"_ansible_check_mode": True, **params}}),
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/nonexistent", "PYTHONPATH": ":".join(sys.path)},
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if answer.get("failed") else 0), done.stderr
    return answer


def test_verdict_of_a_case_that_is_given_in_full() -> None:
    # A YAML float reaches a text option as "12.0".
    answer = run(
        backend="flashinfer_cutedsl",
        sglang_version="0.5.12.post1",
        compute_capability=12.0,
        quantization="modelopt_fp4",
        tp=8,
        ep=1,
        moe_a2a_backend="none",
        args={"api_key": "hunter2"},
    )
    assert (answer["changed"], answer["verdict"]) == (False, "unsupported")
    assert answer["alternatives"][0] == "flashinfer_cutlass"
    assert answer["reason"].endswith(answer["commands"][-1])
    assert answer["parts"][0]["part"] == "moe"
    assert any(line.startswith("flashinfer-python ") for line in answer["source"])
    assert (answer["query"]["compute_capability"], answer["notes"]) == ("12.0", [])
    assert answer["query"]["flashinfer_version"] == "0.6.11.post1"
    assert set(answer) >= set(yaml.safe_load(backend_check.RETURN))
    assert set(answer) - {"changed", "invocation"} == set(yaml.safe_load(backend_check.RETURN))
    assert set(answer["parts"][0]) == set(yaml.safe_load(backend_check.RETURN)["parts"]["contains"])
    assert "hunter2" not in json.dumps(answer)


def test_value_that_cannot_be_read_and_paths_without_gather_fail() -> None:
    bad = run(sglang_version="0.5.23", compute_capability="twelve")
    assert "'twelve'" in bad["msg"]
    assert "give it as 12.0" in bad["msg"]
    assert "gather: true" in run(sglang_version="0.5.23", venv="/nowhere")["msg"]


def test_machine_without_a_gpu_says_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MOE))
    answer = run(backend="flashinfer_cutlass", sglang_version="0.5.23", gather=True, model=str(tmp_path))
    assert answer["verdict"] == "unknown"
    assert answer["reason"].startswith("no GPU here")
    assert "\n" not in answer["reason"]
    assert answer["query"]["quantization"] == "none"
    assert len(answer["notes"]) == 1


def test_arguments_say_what_the_options_leave_out_and_the_answer_shows_it() -> None:
    args = {"--moe-runner-backend": "flashinfer_cutedsl", "tensor_parallel_size": 8, "quantization": "modelopt_fp4"}
    answer = run(
        sglang_version="0.5.10.post1", compute_capability="sm120", flashinfer_version="0.6.7.post3+cu130", args=args
    )
    assert (answer["verdict"], answer["commands"]) == ("supported_but", [])
    assert "cutlass_moe_fp4" in answer["reason"]
    assert answer["query"] == {
        "backend": "flashinfer_cutedsl", "sglang_version": "0.5.10.post1", "flashinfer_version": "0.6.7.post3",
        "compute_capability": "12.0", "quantization": "modelopt_fp4", "tp": 8, "ep": 1, "moe_a2a_backend": "none",
        "cuda_toolkit": "", "driver_version": "",
    }  # fmt: skip


def test_options_are_documented_as_they_are() -> None:
    options = yaml.safe_load(backend_check.DOCUMENTATION)["options"]
    asked = {"backend", "sglang_version", "flashinfer_version", "compute_capability", "quantization", "tp", "ep"}
    assert asked | {"moe_a2a_backend", "args", "gather"} <= set(options)
    for task in yaml.safe_load(backend_check.EXAMPLES):
        assert set(task.get("tokforge.sglang.backend_check", {})) <= set(options)


def gpus(*capabilities: tuple[int, int] | None, driver: str = "580.95.05") -> Report:
    found = tuple(Gpu(index=n, name="gpu", compute_capability=one) for n, one in enumerate(capabilities))
    return Report(state="ok", message="2 GPUs", driver_version=driver, gpus=found)


def never() -> Report:
    raise AssertionError("the machine was looked at")


def environment(tmp_path: Path, **versions: str) -> str:
    for name, version in versions.items():
        info = tmp_path / "env" / "lib" / "python3.11" / "site-packages" / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return str(tmp_path / "env")


def test_gpu_and_driver_come_from_the_machine() -> None:
    found = compat_gather.complete(Query(), lambda: gpus((12, 0), (12, 0)), None, None)
    assert (found.query.compute_capability, found.query.driver_version, found.notes) == ("12.0", "580.95.05", ())


def test_what_is_given_is_not_looked_for(tmp_path: Path) -> None:
    given = Query(
        sglang_version="0.5.9",
        flashinfer_version="0.6.3",
        compute_capability="9.0",
        driver_version="570.1",
        quantization="fp8",
    )
    assert compat_gather.complete(given, never, str(tmp_path), str(tmp_path)).query == given
    part = Query(compute_capability="9.0")
    found = compat_gather.complete(part, lambda: gpus((12, 0), (9, 0)), None, None).query
    assert (found.compute_capability, found.driver_version) == ("9.0", "580.95.05")


def test_gpus_of_several_kinds_must_be_told_apart() -> None:
    with pytest.raises(CompatError, match=r"its GPUs have 9\.0, 12\.0; give compute_capability"):
        compat_gather.complete(Query(), lambda: gpus((12, 0), (9, 0)), None, None)


@pytest.mark.parametrize(
    "report", [Report(state="no_tool", message="nvidia-smi is not installed"), gpus(None, driver="")]
)
def test_machine_that_tells_no_capability_has_a_note(report: Report) -> None:
    found = compat_gather.complete(Query(), lambda: report, None, None)
    assert found.query == Query()
    assert found.notes == (report.message,)


def test_versions_come_from_the_environments_metadata(tmp_path: Path) -> None:
    venv = environment(tmp_path, sglang="0.5.12.post1", flashinfer_python="0.6.11.post1")
    query = Query(compute_capability="9.0", driver_version="570")
    found = compat_gather.complete(query, never, venv, None)
    assert (found.query.sglang_version, found.query.flashinfer_version) == ("0.5.12.post1", "0.6.11.post1")
    kept = compat_gather.complete(Query("auto", "0.5.9", "", "9.0", driver_version="570"), never, venv, None)
    assert (kept.query.sglang_version, kept.query.flashinfer_version) == ("0.5.9", "0.6.11.post1")


def test_package_that_an_environment_lacks_has_a_note(tmp_path: Path) -> None:
    venv = environment(tmp_path, torch="2.9.1")
    found = compat_gather.complete(Query(compute_capability="9.0", driver_version="570"), never, venv, None)
    assert found.notes == (f"{venv} has no sglang", f"{venv} has no flashinfer-python")


def test_environment_and_model_that_are_not_there_are_errors(tmp_path: Path) -> None:
    query = Query(compute_capability="9.0", driver_version="570")
    with pytest.raises(CompatError, match="No such file or directory; give an environment's directory"):
        compat_gather.complete(query, never, str(tmp_path / "none"), None)
    (tmp_path / "empty" / "lib").mkdir(parents=True)
    with pytest.raises(CompatError, match="found none"):
        compat_gather.complete(query, never, str(tmp_path / "empty"), None)
    with pytest.raises(CompatError, match=r"config\.json"):
        compat_gather.complete(query, never, None, str(tmp_path))
    (tmp_path / "config.json").write_text('{"num_hidden_layers": "two"}')
    with pytest.raises(CompatError, match="reading the quantization of"):
        compat_gather.complete(query, never, None, str(tmp_path))


def test_quantization_of_the_arguments_counts_before_the_models(tmp_path: Path) -> None:
    # A model without quantization may be quantized as it loads.
    (tmp_path / "config.json").write_text(json.dumps(MOE))
    query = Query(
        sglang_version="0.5.23", compute_capability="9.0", driver_version="580", args={"--quantization": "fp8"}
    )
    found = compat_gather.complete(query, never, None, str(tmp_path)).query
    assert (found.quantization, filled(found).quantization) == ("", "fp8")


def test_quantization_comes_from_the_models_files(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MOE))
    assert compat_gather.quantization_of(str(tmp_path)) == "none"
    quantized = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": []}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(quantized))
    assert compat_gather.quantization_of(str(tmp_path)) == "modelopt_fp4"
