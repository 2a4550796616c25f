# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of tuning files, the order they are tried in, the kernel that is selected, and what a request comes to.

`names.json` holds what the releases' own get_config_file_name returned for these values.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import model_shape, moe_config, moe_config_request
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config import (
    Format,
    Key,
    Layer,
    MoeConfigError,
    key_of,
    lookup_directories,
    parse_name,
    weight_format,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config_path import Setup, path_selected
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config_request import Request, resolve
from ansible_collections.tokforge.sglang.plugins.module_utils.releases import ReleaseError

FIXTURE = Path(__file__).parents[3] / "fixtures" / "moe_configs" / "names.json"
NAMES = json.loads(FIXTURE.read_text())["names"]
MIXTURE: dict[str, Any] = {
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
    "moe_intermediate_size": 768,
}


def shape(**more: Any) -> model_shape.ModelShape:
    return model_shape.read({**MIXTURE, **more})


@pytest.mark.parametrize("row", NAMES, ids=lambda row: f"{row['release']}-{row['name']}")
def test_name_is_the_one_that_the_releases_own_function_makes(row: dict[str, Any]) -> None:
    key = Key(
        row["experts"],
        row["size"],
        row["device"],
        row["dtype"],
        tuple(row["block"]),
        row["per_channel"],
        row["down"],
    )
    assert key.name() == row["name"]
    again = parse_name(row["name"])
    assert again is not None and again.name() == row["name"]
    assert (again.experts, again.size, again.dtype, again.per_channel, again.down) == (
        key.experts,
        key.size,
        key.dtype,
        key.per_channel,
        key.down,
    )


@pytest.mark.parametrize(
    "name",
    [
        "E=8,N=256.json",
        "E=8,N=256,device_name=a/b.json",
        "E=8,N=256,device_name=H200\n.json",
        "E=8,N=256,device_name=H200.json\n",
        "E=x,N=256,device_name=H200.json",
        "E=8,N=-1,device_name=H200.json",
        "E=1234567890,N=256,device_name=H200.json",
        "E=\u0668,N=256,device_name=H200.json",
        "README.md",
        "",
    ],
)
def test_other_file_names_are_no_tuning_files(name: str) -> None:
    assert parse_name(name) is None


def test_name_that_is_spelt_a_little_otherwise_is_still_understood() -> None:
    want = Key(8, 256, "NVIDIA_H200", "fp8_w8a8", (128, 128))
    assert parse_name("E=8,N=256,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json") == want
    assert parse_name("E=8, N=256, device_name=NVIDIA_H200, dtype=fp8_w8a8, block_shape=[128, 128].JSON") == want


# --- how weights are kept ---------------------------------------------------------------------------------------------


def scheme(**weights: Any) -> dict[str, Any]:
    return {"config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", **weights}}}}


@pytest.mark.parametrize(
    ("quantization", "settings", "kept"),
    [
        ("", {}, Format()),
        ("modelopt_fp8", {}, Format("fp8_w8a8")),
        ("fp8", {}, Format("fp8_w8a8")),
        ("fp8", {"weight_block_size": [128, 64]}, Format("fp8_w8a8", (128, 64))),
        ("fp8", {"weight_block_size": ["128", 128]}, Format("fp8_w8a8")),
        ("fp8", {"weight_block_size": [True, 128]}, Format("fp8_w8a8")),
        ("fp8", {"weight_block_size": [128]}, Format("fp8_w8a8")),
        ("w8a8_fp8", {}, Format("fp8_w8a8", per_channel=True)),
        ("w8a8_int8", {}, Format("int8_w8a8", per_channel=True)),
        ("blockwise_int8", {"weight_block_size": [128, 128]}, Format("int8_w8a8", (128, 128))),
        ("blockwise_int8", {}, None),
        ("moe_wna16", {"bits": 4, "group_size": 128}, Format("int4_w4a16", packed=2)),
        ("moe_wna16", {"bits": 8}, Format("int8_w8a16")),
        ("moe_wna16", {"bits": "4"}, None),
        ("moe_wna16", {}, None),
        ("compressed-tensors", scheme(strategy="channel"), Format("fp8_w8a8", per_channel=True)),
        ("compressed-tensors", scheme(strategy="tensor"), Format("fp8_w8a8")),
        (
            "compressed-tensors",
            scheme(strategy="block", block_structure=[128, 128]),
            Format("fp8_w8a8", (128, 128)),
        ),
        ("compressed-tensors", scheme(strategy="block"), None),
        ("compressed-tensors", scheme(strategy="group"), None),
        ("compressed-tensors", scheme(strategy="channel", num_bits=4), None),
        ("compressed-tensors", scheme(strategy="channel", type="int"), None),
        ("compressed-tensors", {"config_groups": {"a": {}, "b": {}}}, None),
        ("compressed-tensors", {"config_groups": {"a": []}}, None),
        ("compressed-tensors", {"config_groups": []}, None),
        ("modelopt_fp4", {}, None),
    ],
)
def test_format_follows_from_quantization(quantization: str, settings: dict[str, Any], kept: Format | None) -> None:
    assert weight_format(quantization, settings) == kept


@pytest.mark.parametrize(("dtype", "named"), [("float32", "float32"), ("bfloat16", ""), ("auto", "")])
def test_only_float32_of_the_unquantized_types_is_named(dtype: str, named: str) -> None:
    assert weight_format("", {}, dtype) == Format(named)


# --- what one rank has ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "experts", "size"),
    [
        (Layer(64, 1024), 64, 1024),
        (Layer(64, 1024, tp=4), 64, 256),
        (Layer(64, 1024, tp=4, ep=2), 32, 512),
        (Layer(64, 1024, tp=4, ep=4), 16, 1024),
        (Layer(64, 1024, tp=8, ep=2, moe_dp=2), 32, 512),
        (Layer(256, 2048, tp=8, fused_shared=1), 257, 256),
        (Layer(256, 2048, tp=8, ep=8, redundant=32), 36, 2048),
        (Layer(256, 2048, tp=2, ep=2, fused_shared=1), 129, 2048),
    ],
)
def test_experts_and_size_are_one_ranks(layer: Layer, experts: int, size: int) -> None:
    key = key_of("0.5.23", layer, Format(), "NVIDIA H200")
    assert (key.experts, key.size, key.device) == (experts, size, "NVIDIA_H200")


def test_two_weights_in_a_byte_halve_the_size() -> None:
    assert key_of("0.5.23", Layer(8, 1024, tp=2), Format("int4_w4a16", packed=2), "X").size == 256
    with pytest.raises(MoeConfigError, match="1 weights of a rank do not fill"):
        key_of("0.5.23", Layer(8, 2, tp=2), Format("int4_w4a16", packed=2), "X")


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (Layer(0, 1024), "experts is 0"),
        (Layer(8, 0), "intermediate_size is 0"),
        (Layer(8, 1024, tp=0), "tp is 0"),
        (Layer(8, 1024, ep=-2), "ep is -2"),
        (Layer(8, 1024, moe_dp=0), "moe_dp is 0"),
        (Layer(8, 1024, fused_shared=-1), "fused_shared is -1; give 0 or more"),
        (Layer(8, 1024, redundant=-1), "redundant is -1"),
        (Layer(8, 1024, tp=4, ep=3), "tp is 4, which ep 3 does not divide"),
        (Layer(8, 1024, tp=4, ep=2, moe_dp=4), "which ep 2 times moe_dp 4 does not divide"),
        (Layer(9, 1024, tp=2, ep=2), "9 experts cannot be spread over ep 2"),
        (Layer(8, 1025, tp=4, ep=2), "1025 cannot be split over 2 ranks .tp 4, ep 2."),
    ],
)
def test_sizes_that_cannot_be_served_are_refused(layer: Layer, message: str) -> None:
    with pytest.raises(MoeConfigError, match=message):
        key_of("0.5.23", layer, Format(), "X")


@pytest.mark.parametrize(("release", "named"), [("0.5.5.post3", False), ("0.5.6", True)])
def test_per_channel_is_looked_for_from_0_5_6_on(release: str, named: bool) -> None:
    assert key_of(release, Layer(8, 8), Format("int8_w8a8", per_channel=True), "X").per_channel is named
    assert key_of(release, Layer(8, 8), Format("int8_w8a8"), "X").per_channel is False


@pytest.mark.parametrize(("release", "there"), [("0.5.4.post1", False), ("0.5.4.post2", True)])
def test_down_projection_has_a_file_of_its_own_from_0_5_4_post2_on(release: str, there: bool) -> None:
    key = Key(8, 8, "X")
    assert moe_config.down_key(release, key) == (replace(key, down=True) if there else None)


# --- where ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "triton", "order"),
    [
        ("0.5.2", "3.4.0", ["3_4_0", "3_3_1", "3_2_0", "3_1_0"]),
        ("0.5.2", "3.3.1", ["3_3_1", "3_2_0", "3_1_0"]),
        ("0.5.3rc0", "3.3.1", ["3_3_1", "3_4_0", "3_2_0", "3_1_0"]),
        ("0.5.11", "3.6.0", ["3_6_0", "3_4_0", "3_3_1", "3_2_0", "3_1_0"]),
        ("0.5.12", "3.6.0", ["3_6_0", "3_10_0", "3_9", "3_1_0"]),
    ],
)
def test_own_triton_comes_first_then_the_newest(release: str, triton: str, order: list[str]) -> None:
    present = ["triton_3_9", "triton_3_10_0", "triton_3_1_0", "triton_3_6_0", "triton_x", "README.md"]
    assert lookup_directories(release, triton, present) == tuple(f"triton_{version}" for version in order)


def test_entries_that_a_listing_release_cannot_read_are_named() -> None:
    present = ["triton_3_6_0", "triton_3_6_0.bak", "triton_", "triton_old", "other", "triton_3.6.0"]
    assert moe_config.misnamed(present) == ("triton_", "triton_3_6_0.bak", "triton_old")


@pytest.mark.parametrize(
    ("release", "triton", "package", "variable", "lists"),
    [
        ("0.5.3rc0", "3.4.0", "sglang/srt/layers/moe/fused_moe_triton", False, False),
        ("0.5.3rc2", "3.4.0", "sglang/srt/layers/moe/fused_moe_triton", True, False),
        ("0.5.6", "3.5.1", "sglang/srt/layers/moe/fused_moe_triton", True, False),
        ("0.5.11", "3.6.0", "sglang/srt/layers/moe/moe_runner/triton_utils", True, False),
        ("0.5.12", "3.6.0", "sglang/srt/layers/moe/moe_runner/triton_utils", True, True),
        ("0.5.18", "3.7.1", "sglang/srt/layers/moe/moe_runner/triton_utils", True, True),
        ("0.5.23", "3.8.0", "sglang/srt/layers/moe/moe_runner/triton_utils", True, True),
    ],
)
def test_places_by_release(release: str, triton: str, package: str, variable: bool, lists: bool) -> None:
    assert moe_config.triton_version(release) == triton
    assert moe_config.package_directory(release) == package
    assert moe_config.reads_variable(release) is variable
    assert moe_config.lists_directory(release) is lists


# --- which kernel -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setup", "backend", "reads", "reason"),
    [
        ({"backend": "triton"}, "triton", True, "the triton runner reads"),
        ({"backend": "triton", "capability": (10, 0)}, "triton", True, "the triton runner reads"),
        ({}, "", None, "depends on the compute capability, which is not known"),
        ({"capability": (9, 0)}, "triton", True, "auto becomes triton with no quantization on compute capability 9.0"),
        ({"capability": (12, 0), "quantization": "fp8"}, "triton", True, "with quantization fp8 on compute capability"),
        ({"capability": (12, 0), "quantization": "modelopt_fp8"}, "triton", True, "auto becomes triton"),
        ({"capability": (9, 0), "quantization": "mxfp4"}, "", None, "depends on the model"),
        ({"capability": (10, 3)}, "", None, "on compute capability 10.x"),
        ({"capability": (9, 0), "architecture": "GptOssForCausalLM"}, "", None, "decided for GptOssForCausalLM"),
        ({"backend": "triton", "quantization": "mxfp4"}, "", None, "depends on the model"),
        ({"backend": "flashinfer_cutlass"}, "flashinfer_cutlass", False, "never reads"),
        ({"backend": "flashinfer_cutlass", "release": "0.5.5"}, "", None, "no path to flashinfer_cutlass"),
        ({"backend": "flashinfer_trtllm", "release": "0.5.6"}, "", None, "no path to flashinfer_trtllm"),
        ({"backend": "flashinfer_trtllm", "release": "0.5.7"}, "flashinfer_trtllm", False, "never reads"),
        ({"backend": "deep_gemm", "release": "0.5.11"}, "", None, "no path to deep_gemm"),
        ({"backend": "deep_gemm", "release": "0.5.12"}, "deep_gemm", False, "never reads"),
        ({"backend": "triton_kernel"}, "triton_kernel", False, "the triton_kernel runner never reads"),
        ({"backend": "cutlass"}, "", None, "experts with no quantization have no path to cutlass"),
        ({"backend": "cutlass", "quantization": "fp8"}, "cutlass", False, "never reads"),
        ({"backend": "flashinfer_cutedsl", "quantization": "fp8"}, "", None, "no path to flashinfer_cutedsl"),
        (
            {"backend": "flashinfer_cutedsl", "quantization": "fp8", "release": "0.5.19"},
            "flashinfer_cutedsl",
            False,
            "never reads",
        ),
        (
            {"backend": "cutlass", "quantization": "modelopt_fp8"},
            "",
            None,
            "with quantization modelopt_fp8 have no path",
        ),
        ({"backend": "flashinfer_cutlass", "quantization": "modelopt_fp8"}, "flashinfer_cutlass", False, "never reads"),
        ({"quantization": "modelopt_fp4"}, "", False, "FlashInfer or CUTLASS"),
        ({"quantization": "modelopt_fp4", "backend": "triton"}, "", False, "experts in FP4"),
        ({"quantization": "modelopt_fp4", "backend": "flashinfer_cutlass"}, "flashinfer_cutlass", False, "in FP4"),
        ({"quantization": "w8a8_int8"}, "triton", True, "always run on triton"),
        ({"quantization": "moe_wna16", "backend": "triton"}, "triton", True, "always run on triton"),
        ({"quantization": "w8a8_fp8", "backend": "cutlass"}, "", None, "run on triton whatever the backend"),
        ({"a2a": "deepep", "backend": "triton"}, "", False, "moe_a2a_backend none only, and this one is deepep"),
        ({"a2a": "deepep", "backend": "deep_gemm"}, "deep_gemm", False, "this one is deepep"),
        ({"quantization": "compressed-tensors", "capability": (9, 0)}, "triton", True, "auto becomes triton"),
        ({"quantization": "compressed-tensors", "kept_known": False}, "", None, "only experts in FP8"),
        ({"quantization": "compressed-tensors", "kept_known": False, "backend": "cutlass"}, "cutlass", False, "never"),
        ({"quantization": "fp8", "kept_known": False, "backend": "triton"}, "triton", True, "reads"),
        ({"a2a": "", "backend": "triton"}, "triton", True, "reads"),
        ({"release": "0.5.3", "ep": 2, "quantization": "fp8", "backend": "triton"}, "", None, "DeepGEMM"),
        ({"release": "0.5.3", "ep": 1, "quantization": "fp8", "backend": "triton"}, "triton", True, "reads"),
        ({"release": "0.5.3", "ep": 2, "backend": "triton"}, "triton", True, "reads"),
        ({"release": "0.5.3", "ep": 2, "quantization": "fp8", "backend": "cutlass"}, "cutlass", False, "never"),
        ({"release": "0.5.3.post1", "ep": 2, "quantization": "fp8", "backend": "triton"}, "triton", True, "reads"),
        ({"backend": "triton", "deterministic": True}, "triton", False, "deterministic"),
        ({"backend": "triton", "deterministic": True, "release": "0.5.4.post1"}, "triton", True, "reads"),
        ({"backend": "cutlass", "quantization": "fp8", "deterministic": True}, "cutlass", False, "never reads"),
    ],
)
def test_path_is_what_the_releases_select(setup: dict[str, Any], backend: str, reads: bool | None, reason: str) -> None:
    path = path_selected(Setup(**{"release": "0.5.23", **setup}))
    assert (path.backend, path.reads_configs) == (backend, reads)
    assert reason in path.reason


# --- what is asked ----------------------------------------------------------------------------------------------------


def test_model_and_arguments_together_make_the_question() -> None:
    args = {
        "tensor_parallel_size": "8",
        "--ep-size": 2,
        "moe-runner-backend": "triton",
        "quantization": "fp8",
        "ep-num-redundant-experts": 16,
        "enable-deterministic-inference": True,
        "served-model-name": ["no", "matter"],
    }
    asked = resolve(Request("0.5.23", args=args, shape=shape(), settings={"weight_block_size": [128, 128]}))
    assert asked.layer == Layer(64, 768, tp=8, ep=2, redundant=16)
    assert asked.kept == Format("fp8_w8a8", (128, 128))
    assert (asked.setup.backend, asked.setup.quantization, asked.setup.ep) == ("triton", "fp8", 2)
    assert asked.setup.deterministic and asked.setup.architecture == "Qwen3MoeForCausalLM"


def test_explicit_values_win_over_arguments_and_model() -> None:
    given = Request(
        "0.5.23",
        backend="triton",
        quantization="fp8",
        tp=4,
        ep=1,
        args={"tp": 2, "ep": 2, "moe-runner-backend": "cutlass", "quantization": "w8a8_int8"},
        shape=shape(),
        experts=32,
        intermediate_size=512,
        block_shape=(64, 64),
        per_channel=True,
    )
    asked = resolve(given)
    assert asked.layer == Layer(32, 512, tp=4)
    assert asked.kept == Format("fp8_w8a8", (64, 64), True)
    assert (asked.setup.backend, asked.setup.quantization) == ("triton", "fp8")


def test_the_models_own_quantization_is_taken() -> None:
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert resolve(Request("0.5.23", shape=shape(quantization_config=fp8), settings=fp8)).kept == Format(
        "fp8_w8a8", (128, 128)
    )
    four = shape(quantization_config={"quant_method": "modelopt", "quant_algo": "NVFP4"})
    assert resolve(Request("0.5.23", quantization="modelopt", shape=four)).setup.quantization == "modelopt_fp4"
    assert resolve(Request("0.5.23", quantization="none", shape=four)).setup.quantization == ""
    assert resolve(Request("0.5.23", quantization="compressed_tensors", experts=8, intermediate_size=8)) == replace(
        resolve(Request("0.5.23", quantization="compressed-tensors", experts=8, intermediate_size=8)), kept=None
    )


def test_per_channel_alone_tells_how_compressed_tensors_are_kept() -> None:
    given = Request("0.5.23", quantization="compressed-tensors", experts=8, intermediate_size=8, per_channel=False)
    assert resolve(given).kept == Format("fp8_w8a8")
    assert resolve(given).setup.kept_known
    assert not resolve(replace(given, per_channel=None)).setup.kept_known


def test_dense_model_has_no_layer() -> None:
    dense = {key: value for key, value in MIXTURE.items() if "exper" not in key and "moe" not in key}
    asked = resolve(
        Request(
            "0.5.23", shape=model_shape.read({**dense, "architectures": ["LlamaForCausalLM"], "model_type": "llama"})
        )
    )
    assert (asked.layer, asked.kept) == (None, None)


def test_nothing_to_go_by_is_refused() -> None:
    with pytest.raises(MoeConfigError, match="neither a model nor a number of experts"):
        resolve(Request("0.5.23"))
    with pytest.raises(MoeConfigError, match="intermediate_size is 0"):
        resolve(Request("0.5.23", experts=8))
    with pytest.raises(ReleaseError):
        resolve(Request("latest", experts=8, intermediate_size=8))


DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "n_shared_experts": 1, "num_experts": 256}


@pytest.mark.parametrize(
    ("model", "more", "fused", "shared"),
    [
        (DEEPSEEK, {}, 1, 0),
        (DEEPSEEK, {"capability": (8, 0)}, 1, 0),
        (DEEPSEEK, {"capability": (7, 5)}, 0, 0),
        (DEEPSEEK, {"ep": 2, "tp": 2}, 0, 0),
        (DEEPSEEK, {"quantization": "w4afp8"}, 0, 0),
        (DEEPSEEK, {"args": {"disable-shared-experts-fusion": True}}, 0, 0),
        (DEEPSEEK, {"args": {"disable-shared-experts-fusion": False}}, 1, 0),
        (DEEPSEEK, {"args": {"disable-shared-experts-fusion": "yes"}}, 0, 0),
        (DEEPSEEK, {"fused_shared": 0}, 0, 0),
        ({**DEEPSEEK, "num_experts": 160}, {}, 0, 1),
        ({**DEEPSEEK, "n_shared_experts": 2}, {}, 0, 2),
        ({"n_shared_experts": 1}, {}, 0, 1),
        ({"n_shared_experts": 1}, {"fused_shared": 1}, 1, 0),
        ({}, {}, 0, 0),
    ],
)
def test_shared_experts_count_where_all_releases_agree(
    model: dict[str, Any], more: dict[str, Any], fused: int, shared: int
) -> None:
    asked = resolve(Request("0.5.23", shape=shape(**model), **more))
    assert asked.layer is not None
    assert (asked.layer.fused_shared, asked.shared) == (fused, shared)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"tp": "four"}, "args: tp-size is 'four'; give a whole number"),
        ({"tp": True}, "args: tp-size is 'True'"),
        ({"tp": -1}, "args: tp-size is '-1'"),
        ({"tp": float("nan")}, "args: tp is nan; give one word or number"),
        ({"ep_size": [1]}, r"args: ep_size is \[1\]"),
        ({"quantization": {"a": 1}}, "args: quantization is {'a': 1}"),
        ({"moe-runner-backend": " "}, "args: moe-runner-backend is ' '"),
        ({"tp": "9" * 5000}, "args: tp-size is '999+[.]{3}; give"),
        ({"tp": 10**5000}, "args: tp is a huge number; give"),
        ({"tp": 0}, "tp is 0"),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused_by_name(args: dict[str, Any], message: str) -> None:
    with pytest.raises(MoeConfigError, match=message):
        resolve(Request("0.5.23", args=args, shape=shape()))


def test_flags_are_known_by_the_locked_releases() -> None:
    from ansible_collections.tokforge.sglang.plugins.module_utils import releases

    newest = releases.get("0.5.23")
    gone = [name for names in moe_config_request.FLAGS.values() for name in names[:1] if newest.flag(name) is None]
    assert gone == []
