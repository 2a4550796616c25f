# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SGLang's name for a checkpoint's quantization, its bits per weight, and the modules it leaves out."""

from __future__ import annotations

import time
from typing import Any

import pytest
from model_configs import NVFP4, config, shape

from ansible_collections.tokforge.sglang.plugins.module_utils import model_quantization
from ansible_collections.tokforge.sglang.plugins.module_utils.config_values import ShapeError, Values
from ansible_collections.tokforge.sglang.plugins.module_utils.model_quantization import Quantization

EXPERT = "model.layers.5.mlp.experts.0.down_proj"
SHARED = "model.layers.5.mlp.shared_experts.down_proj"
ATTENTION = "model.layers.5.self_attn.o_proj"


def read(described: dict[str, Any] | None, quant: Any = None) -> Quantization:
    """What is read of config.json with this quantization_config, and of this hf_quant_config.json."""
    values = Values({"quantization_config": described} if described is not None else {})
    return model_quantization.read(values, values, quant)


def modelopt(**keys: Any) -> dict[str, Any]:
    """A file of ModelOpt."""
    return {"producer": {"name": "modelopt"}, "quantization": keys}


def groups(bits: int, kind: str = "float", form: str = "", **keys: Any) -> dict[str, Any]:
    """A description of compressed-tensors with one group for all linear layers."""
    weights = {"num_bits": bits, "type": kind, **keys}
    one = {"targets": ["Linear"], "weights": weights}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": one}}


@pytest.mark.parametrize(
    ("described", "quant", "method", "bits"),
    [
        (None, None, "", 16),
        (None, {}, "", 16),
        (None, modelopt(quant_algo="NVFP4", group_size=16), "modelopt_fp4", 4.5),
        (None, {"quant_algo": "NVFP4"}, "modelopt_fp4", 4.5),
        (None, modelopt(quant_algo="W4A16_NVFP4"), "modelopt_fp4", 4.5),
        (None, modelopt(quant_algo="FP4", group_size=32), "modelopt_fp4", 4.25),
        (None, modelopt(quant_algo="FP8"), "modelopt_fp8", 8),
        (None, modelopt(quant_algo="MXFP8"), "mxfp8", 8.25),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, None, "modelopt_fp4", 4.5),
        ({"quant_algo": "FP8"}, None, "modelopt_fp8", 8),
        ({"quant_method": "fp8"}, modelopt(quant_algo="NVFP4"), "fp8", 8),
        ({"quant_method": "FP8", "weight_block_size": [128, 128]}, None, "fp8", 8 + 32 / 16384),
        ({"quant_method": "mxfp8", "weight_block_size": [1, 32]}, None, "mxfp8", 8.25),
        ({"quant_method": "mxfp8"}, None, "mxfp8", 8.25),
        ({"quant_method": "fbgemm_fp8"}, None, "fbgemm_fp8", 8),
        ({"quant_method": "w8a8_int8"}, None, "w8a8_int8", 8),
        ({"quant_method": "blockwise_int8", "weight_block_size": [64, 64]}, None, "blockwise_int8", 8 + 32 / 4096),
        (groups(8, strategy="channel", form="float-quantized"), None, "compressed-tensors", 8),
        (groups(8, strategy="tensor"), None, "compressed-tensors", 8),
        (groups(8, strategy="block", block_structure=[128, 128]), None, "compressed-tensors", 8 + 32 / 16384),
        (groups(8, strategy="block"), None, "compressed-tensors", 8 + 32 / 16384),
        (
            groups(4, strategy="tensor_group", group_size=16, form="nvfp4-pack-quantized"),
            None,
            "compressed-tensors",
            4.5,
        ),
        (groups(4, group_size=32, form="mxfp4-pack-quantized"), None, "compressed-tensors", 4.25),
        (groups(4, "int", group_size=32, form="pack-quantized"), None, "compressed-tensors", 4.5),
        (groups(4, "int", group_size=128, symmetric=False), None, "compressed-tensors", 4 + 20 / 128),
        (groups(8, "int", group_size=-1, form="int-quantized"), None, "compressed-tensors", 8),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, None, "awq", 4 + 20 / 128),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, None, "gptq", 8),
        ({"quant_method": "auto-round", "bits": 2, "group_size": 64}, None, "auto-round", 2 + 18 / 64),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, None, "bitsandbytes", 4.5),
        ({"quant_method": "bitsandbytes", "_load_in_4bit": True}, None, "bitsandbytes", 4.5),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, None, "bitsandbytes", 8),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, None, "quark", 4.25),
        ({"quant_method": "brand_new"}, None, "brand_new", 16),
    ],
)
def test_name_and_bits(described: dict[str, Any] | None, quant: Any, method: str, bits: float) -> None:
    found = read(described, quant)
    assert (found.method, found.bits(EXPERT, "bfloat16")) == (method, bits)
    assert found.bits(ATTENTION, "bfloat16") == bits
    # Tables, routers and norms never are.
    for module in ("lm_head", "model.embed_tokens", "model.layers.5.mlp.gate", "model.layers.5.input_layernorm"):
        assert found.bits(module, "float32") == 16


def test_a_description_beside_the_weights_of_the_text_model_counts() -> None:
    found = shape("kimi-k2.5").quant
    assert (found.method, found.algo, found.group_size) == ("compressed-tensors", "pack-quantized", 32)
    assert [found.bits(module, "bfloat16") for module in (EXPERT, SHARED, ATTENTION)] == [4.5, 16, 16]
    assert found.bits("model.layers.0.mlp.down_proj", "bfloat16") == 16


def test_the_old_key_of_compressed_tensors_counts() -> None:
    values = Values({"compression_config": groups(8)})
    assert model_quantization.read(values, values, None).method == "compressed-tensors"


def test_only_the_experts_of_gpt_oss_are_mxfp4() -> None:
    found = shape("gpt-oss-120b").quant
    assert (found.method, found.bits("model.layers.0.mlp.experts", "bfloat16")) == ("mxfp4", 4.25)
    assert [found.bits(module, "bfloat16") for module in (EXPERT, ATTENTION)] == [4.25, 16]


def test_the_modules_that_a_published_nvfp4_checkpoint_leaves_out() -> None:
    model = shape("deepseek-v3", config("deepseek-v3-0324-nvfp4.quant"), quantization_config=None)
    assert model.quantization == "modelopt_fp4"
    assert model.weight_bits == {"experts": 4.5, "shared_experts": 4.5, "dense": 4.5, "attention": 16, "lm_head": 16}
    # A draft layer that is left out as a whole.
    assert model.quant.bits("model.layers.61.mlp.experts.3.up_proj", "bfloat16") == 16
    assert model.quant.bits("model.layers.6.mlp.experts.3.up_proj", "bfloat16") == 4.5


def test_bits_of_a_part_are_the_mean_over_its_layers() -> None:
    left_out = [f"model.layers.{layer}.self_attn*" for layer in range(39)]
    quant = modelopt(quant_algo="FP8", exclude_modules=left_out)
    assert shape("glm-5", quant).weight_bits["attention"] == 12


@pytest.mark.parametrize(
    ("pattern", "hit", "miss"),
    [
        ("lm_head", "lm_head", "lm_head_2"),
        ("model.layers.5", ATTENTION, "model.layers.55.self_attn.o_proj"),
        ("model.layers.5.self_attn*", ATTENTION, EXPERT),
        ("*self_attn*", ATTENTION, EXPERT),
        ("*.mlp.shared_experts.*", SHARED, EXPERT),
        ("model.layers.*.self_attn", ATTENTION, EXPERT),
        ("o_proj", ATTENTION, "model.layers.5.self_attn.qo_proj"),
        ("self_attn", ATTENTION, EXPERT),
        ("model.language_model.layers.5.self_attn", ATTENTION, EXPERT),
        ("language_model.model.layers.5.self_attn*", ATTENTION, EXPERT),
        ("model.layers.5.block_sparse_moe.experts*", EXPERT, ATTENTION),
        ("model.layers.5.feed_forward.shared_expert", SHARED, EXPERT),
        ("re:.*self_attn.*", ATTENTION, EXPERT),
        ("re:model.layers.[0-9].mlp", EXPERT, ATTENTION),
        ("re:.*share_expert\\.", SHARED, EXPERT),
        ("re:.*[0-3]\\.self_attn", "model.layers.23.self_attn.o_proj", ATTENTION),
    ],
)
def test_a_module_is_left_out_by_name_pattern_or_expression(pattern: str, hit: str, miss: str) -> None:
    found = read({"quant_method": "compressed-tensors", **groups(8), "ignore": [pattern]})
    assert found.unknown == ()
    assert (hit in found.ignored, miss in found.ignored) == (True, False)
    assert found.bits(hit, "bfloat16") == 16


@pytest.mark.parametrize("key", ["modules_to_not_convert", "ignored_layers"])
def test_fp8_has_two_keys_for_what_is_left_out(key: str) -> None:
    found = read({"quant_method": "fp8", key: ["self_attn"]})
    assert [found.bits(module, "bfloat16") for module in (ATTENTION, EXPERT)] == [16, 8]


def test_gptq_leaves_out_by_expressions_with_a_sign() -> None:
    dynamic = {"-:.*self_attn.*": {}, "+:.*mlp.*": {"bits": 8}}
    found = read({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": dynamic})
    assert [found.bits(module, "bfloat16") for module in (ATTENTION, EXPERT)] == [16, 4 + 20 / 128]


@pytest.mark.parametrize(
    "expression",
    ["re:(a+)+$", "re:(", "re:" + "x" * 501, "re:.*.*.*.*.*", "*a*b*c*d*e*", "re:(?P<n>a)(?P<n>b)"],
)
def test_an_expression_that_could_hang_or_is_none_is_not_evaluated_and_that_is_told(expression: str) -> None:
    found = read({**groups(8), "ignore": [expression, "lm_head", ""]})
    assert found.unknown == ("modules left out by patterns that are not evaluated",)
    assert "lm_head" in found.ignored
    assert EXPERT not in found.ignored


def test_more_expressions_than_real_lists_have_are_not_all_evaluated() -> None:
    found = read({**groups(8), "ignore": [f"re:nothing{number}" for number in range(300)]})
    assert found.unknown == ("modules left out by patterns that are not evaluated",)


def test_a_long_list_of_names_is_read_fast() -> None:
    names = [f"model.layers.{layer}.mlp.experts.{number}" for layer in range(78) for number in range(256)]
    start = time.monotonic()
    assert shape("glm-5", modelopt(quant_algo="NVFP4", exclude_modules=names)).weight_bits["experts"] == 16
    assert time.monotonic() - start < 1


def test_layers_of_several_kinds_are_read_one_by_one() -> None:
    layers = {
        "model.layers.5.mlp.experts.0.down_proj": {"quant_algo": "NVFP4"},
        "language_model.model.layers.5.self_attn": {"quant_algo": "FP8"},
        "model.layers.6.mlp": {"quant_algo": "ODD"},
        "model.layers.7.mlp": {"quant_algo": "ODD"},
    }
    found = read(None, modelopt(quant_algo="MIXED_PRECISION", quantized_layers=layers))
    assert found.method == "modelopt_mixed"
    assert [found.bits(module, "bfloat16") for module in (EXPERT, ATTENTION, SHARED)] == [4.5, 8, 16]
    assert found.unknown == ("bits per weight of quantization ODD",)


def test_mixed_layers_without_four_bits_are_w4afp8() -> None:
    assert read(None, modelopt(quant_algo="MIXED_PRECISION", quantized_layers={"a": {"quant_algo": "FP8"}})).method == (
        "w4afp8"
    )
    found = read(None, modelopt(quant_algo="MIXED_PRECISION"))
    assert found.method == "w4afp8"
    assert [found.bits(module, "bfloat16") for module in (EXPERT, ATTENTION)] == [4.125, 8 + 32 / 16384]
    assert read({"quant_method": "w4afp8"}).bits(EXPERT, "bfloat16") == 4.125


@pytest.mark.parametrize(
    ("described", "quant", "cache"),
    [
        (None, modelopt(quant_algo="NVFP4", kv_cache_quant_algo="FP8"), "fp8"),
        (None, modelopt(quant_algo="NVFP4", kv_cache_quant_algo="NVFP4"), "nvfp4"),
        (None, modelopt(quant_algo="NVFP4", kv_cache_quant_algo="INT8"), ""),
        (None, modelopt(quant_algo="NVFP4", kv_cache_quant_algo=None), ""),
        (None, modelopt(quant_algo="NVFP4", kv_cache_scheme={"type": "float", "num_bits": 8}), "fp8"),
        ({**groups(8), "kv_cache_scheme": {"type": "float", "num_bits": 8}}, None, "fp8"),
        ({**groups(8), "kv_cache_scheme": {"type": "int", "num_bits": 8}}, None, ""),
    ],
)
def test_the_cache_that_a_checkpoint_asks_for(described: Any, quant: Any, cache: str) -> None:
    assert read(described, quant).kv_cache == cache


def test_rules_for_some_modules_come_before_the_rule_for_all() -> None:
    described = groups(8)
    described["config_groups"]["group_1"] = {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 4}}
    described["config_groups"]["group_2"] = {"targets": ["Linear"], "weights": None}
    found = read(described)
    assert [found.bits(module, "bfloat16") for module in (ATTENTION, EXPERT)] == [4, 8]


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ({"quant_method": "compressed-tensors"}, "bits per weight of quantization compressed-tensors"),
        ({}, "quantization: no quant_method and no quant_algo"),
        ({"quant_method": "modelopt", "quant_algo": "INT4_AWQ"}, "bits per weight of quantization INT4_AWQ"),
        ({"quant_method": "modelopt"}, "bits per weight of quantization modelopt"),
        ({"quant_method": "quark"}, "bits per weight of quantization quark"),
        (
            {
                "quant_method": "quark",
                "global_quant_config": {"weight": {"dtype": "int8"}},
                "layer_quant_config": {"a": {}},
            },
            "bits per weight of the layers in layer_quant_config",
        ),
    ],
)
def test_what_cannot_be_told_is_listed(described: dict[str, Any], words: str) -> None:
    assert read(described).unknown == (words,)


@pytest.mark.parametrize(
    ("described", "quant", "message"),
    [
        (None, [1], "cannot use hf_quant_config.json: it is no JSON object"),
        (None, modelopt(quant_algo=4), "hf_quant_config.json: quantization.quant_algo is 4; expected a text"),
        (None, {"quantization": "NVFP4"}, "hf_quant_config.json: quantization is 'NVFP4'; expected an object"),
        (None, modelopt(quant_algo="FP8", exclude_modules="lm_head"), "exclude_modules is 'lm_head'; expected a list"),
        (None, modelopt(quant_algo="FP8", exclude_modules=[None]), "exclude_modules is [None]; expected a list"),
        (None, modelopt(quant_algo="FP8", group_size="16"), "group_size is '16'; expected a whole number"),
        ({"quant_method": ["fp8"]}, None, "quantization_config.quant_method is ['fp8']; expected a text"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, None, "weight_block_size is [128]; expected two"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, None, "whole numbers from 1"),
        ({"quant_method": "fp8", "weight_block_size": 128}, None, "expected a list"),
        ({"quant_method": "awq", "bits": 0}, None, "bits is 0; expected a whole number from 1 to 32"),
        (groups(0), None, "num_bits is 0; expected a whole number from 1 to 32"),
        ({"quant_method": "compressed-tensors", "config_groups": []}, None, "config_groups is []; expected an object"),
        (None, modelopt(quant_algo="MIXED_PRECISION", quantized_layers=[1]), "quantized_layers is [1]; expected an"),
    ],
)
def test_values_of_the_wrong_type_are_refused(described: Any, quant: Any, message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        read(described, quant)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("quant", "architecture", "names"),
    [
        (NVFP4, "", {"0.5.3": "modelopt", "0.5.3.post1": "modelopt_fp4", "0.5.23": "modelopt_fp4"}),
        (modelopt(quant_algo="MXFP8"), "", {"0.5.17": "modelopt_fp8", "0.5.18": "mxfp8"}),
        (
            modelopt(quant_algo="MIXED_PRECISION", quantized_layers={"a": {"quant_algo": "NVFP4"}}),
            "NemotronHForCausalLM",
            {"0.5.9": "w4afp8", "0.5.10rc0": "modelopt_mixed", "0.5.15": "modelopt_mixed"},
        ),
        (
            modelopt(quant_algo="MIXED_PRECISION", quantized_layers={"a": {"quant_algo": "NVFP4"}}),
            "DeepseekV3ForCausalLM",
            {"0.5.14": "w4afp8", "0.5.15": "modelopt_mixed"},
        ),
    ],
)
def test_the_name_depends_on_the_release(quant: dict[str, Any], architecture: str, names: dict[str, str]) -> None:
    found = read(None, quant)
    assert {release: model_quantization.name_in(found, release, architecture) for release in names} == names


def test_other_names_are_the_same_in_every_release() -> None:
    assert model_quantization.name_in(read({"quant_method": "fp8"}), "0.5.0rc0") == "fp8"
