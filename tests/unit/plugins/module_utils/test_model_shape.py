# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a model's shape is, read from the configs of real models and from damaged ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from model_configs import DIRECTORY, NVFP4, config, shape

from ansible_collections.tokforge.sglang.plugins.module_utils import config_values, model_matrices, model_shape
from ansible_collections.tokforge.sglang.plugins.module_utils.config_values import ShapeError, Values
from ansible_collections.tokforge.sglang.plugins.module_utils.model_shape import ModelShape

#: Weights in billions that the publishers name, and those that a token passes where they name them. A wrong number of
#: layers with experts, a missed shared expert or a wrong head width shows here.
PUBLISHED: dict[str, tuple[float, float | None]] = {
    "dbrx": (132, 36),
    "deepseek-v2-lite": (15.7, 2.4),
    "deepseek-v3": (671, 37),
    "ernie-4.5-21b-a3b": (21.8, 3),
    "gemma-3-4b": (3.9, None),
    "glm-4.7-fp8": (353, 32),
    "glm-5": (744, 40),
    "glm-5.2": (743, 40),
    "gpt-oss-120b": (116.8, 5.1),
    "granite-4.0-micro": (3.4, None),
    "grok-2": (270, 115),
    "hunyuan-a13b": (80.4, 13),
    "kimi-k2.5": (1026, 32),
    "llama-3.3-70b": (70.6, None),
    "llama-4-maverick": (400, 17),
    "minimax-m2": (229, 10),
    "mistral-small-3.1-24b": (23.6, None),
    "mixtral-8x7b": (46.7, 12.9),
    "olmoe-1b-7b": (6.9, 1.3),
    "phi-3.5-moe": (41.9, 6.6),
    "qwen3-14b": (14.8, None),
    "qwen3-235b-a22b": (235, 22),
    "qwen3-next-80b-a3b": (80, 3),
    "qwen3-vl-235b-a22b": (235, 22),
    "qwen3.5-397b-a17b": (397, 17),
    "step-3.5-flash": (196, 11),
}


def weights(model: ModelShape, passed: bool) -> float:
    """Weights in billions: all of them, or those that a token passes (with one row of the embedding)."""
    total = 0
    for matrix in model_matrices.matrices(model):
        if matrix.part == "lm_head" and model.tied_embeddings and not passed:
            continue
        if matrix.part == "embedding" and passed:
            continue
        copies = model.experts_per_token if passed and matrix.part == "experts" else matrix.copies
        total += copies * matrix.weights * len(matrix.layers)
    return total / 1e9


def test_every_recorded_config_is_measured() -> None:
    assert {path.stem for path in DIRECTORY.glob("*.json") if ".quant" not in path.name} == set(PUBLISHED)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_model_has_the_weights_that_its_publisher_names(name: str) -> None:
    total, active = PUBLISHED[name]
    model = shape(name)
    assert weights(model, passed=False) == pytest.approx(total, rel=0.01)
    if active is not None:
        assert weights(model, passed=True) == pytest.approx(active, rel=0.2)


def test_glm_5_2_adds_up_to_the_size_of_its_published_checkpoint() -> None:
    model = shape("glm-5.2")
    found = [*model_matrices.matrices(model), *model_matrices.draft_matrices(model)]
    assert model.index_layers == 21
    assert sum(matrix.total_bytes for matrix in found) == pytest.approx(1_506_659_919_872, abs=200_000)


def test_glm_5_is_read_whole() -> None:
    model = shape("glm-5", NVFP4)
    assert dataclasses.replace(model, quant=model_shape.Quantization()) == ModelShape(
        architecture="GlmMoeDsaForCausalLM",
        model_type="glm_moe_dsa",
        layers=78,
        hidden_size=6144,
        intermediate_size=12288,
        heads=64,
        kv_heads=64,
        head_dim=256,
        vocab_size=154880,
        max_context=202752,
        dtype="bfloat16",
        experts=256,
        experts_per_token=8,
        moe_intermediate_size=2048,
        shared_experts=1,
        shared_intermediate_size=2048,
        moe_layer_ids=tuple(range(3, 78)),
        kv_lora_rank=512,
        q_lora_rank=2048,
        qk_nope_head_dim=192,
        qk_rope_head_dim=64,
        v_head_dim=256,
        index_heads=32,
        index_head_dim=128,
        index_topk=2048,
        index_layers=78,
        nextn_layers=1,
    )
    assert (model.quantization, model.is_mla, model.is_moe, model.moe_layers) == ("modelopt_fp4", True, True, 75)
    assert model.weight_bits == {
        "experts": 4.5,
        "shared_experts": 4.5,
        "dense": 4.5,
        "attention": 16,
        "lm_head": 16,
    }


def test_a_text_model_one_level_down_is_found() -> None:
    model = shape("kimi-k2.5")
    assert (model.architecture, model.model_type, model.multimodal) == (
        "KimiK25ForConditionalGeneration",
        "kimi_k2",
        True,
    )
    assert (model.layers, model.experts, model.moe_layer_ids[0], model.dtype) == (61, 384, 1, "bfloat16")
    assert shape("qwen3-235b-a22b").multimodal is False


@pytest.mark.parametrize("key", ["llm_config", "language_config", "text_config"])
def test_the_text_model_is_looked_for_under_every_key_that_sglang_looks_under(key: str) -> None:
    inner = config("llama-3.3-70b")
    model = model_shape.read({"architectures": ["NewForConditionalGeneration"], key: inner})
    assert (model.architecture, model.layers) == ("NewForConditionalGeneration", 80)


def test_a_thinker_has_its_text_model_inside() -> None:
    inner = config("qwen3-235b-a22b")
    both = model_shape.read({"thinker_config": {"text_config": inner}, "text_config": config("llama-3.3-70b")})
    assert (both.layers, model_shape.read({"thinker_config": inner}).layers) == (94, 94)


def test_keys_that_a_class_has_as_defaults_may_be_absent() -> None:
    model = shape("gemma-3-4b")
    assert (model.heads, model.kv_heads, model.head_dim, model.vocab_size) == (8, 4, 256, 262208)
    assert (model.tied_embeddings, model.sliding_layers, model.sliding_window) == (True, 29, 1024)
    assert model.attention_layers == 34


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama-4-maverick", tuple(range(1, 48, 2))),
        ("ernie-4.5-21b-a3b", tuple(range(1, 28))),
        ("step-3.5-flash", tuple(range(3, 45))),
        ("deepseek-v2-lite", tuple(range(1, 27))),
        ("glm-5.2", tuple(range(3, 78))),
        ("qwen3-235b-a22b", tuple(range(94))),
        ("llama-3.3-70b", ()),
    ],
)
def test_layers_with_experts_are_found_by_each_familys_keys(name: str, expected: tuple[int, ...]) -> None:
    assert shape(name).moe_layer_ids == expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"decoder_sparse_step": 2}, (1, 3, 5)),
        ({"mlp_only_layers": [0, 5]}, (1, 2, 3, 4)),
        ({"decoder_sparse_step": 3, "mlp_only_layers": [5]}, (2,)),
        ({"first_k_dense_replace": 1, "moe_layer_freq": 2}, (2, 4)),
        ({"moe_layer_freq": [0, 1, 1, 0, 1, 0]}, (1, 2, 4)),
        ({"moe_layers": [5, 1, 1]}, (1, 5)),
        ({"moe_layers_enum": "1, 4,9"}, (1, 4)),
        ({"interleave_moe_layer_step": 0}, (0, 1, 2, 3, 4, 5)),
        ({"interleave_moe_layer_step": 3}, (2, 5)),
        ({"expert_layer_period": 2, "expert_layer_offset": 1}, (1, 3, 5)),
        ({"hybrid_override_pattern": "M*EMEM"}, (2, 4)),
        ({"is_moe_layer": [False, True, True, False, False, True]}, (1, 2, 5)),
        ({"mlp_layer_types": ["dense", "sparse", "dense", "sparse", "dense", "dense", "sparse"]}, (1, 3)),
        ({"moe_layer_start_index": [2, 0], "moe_layer_end_index": 4}, (2, 3, 4)),
        ({"moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 2}, (1, 3, 5)),
        ({"num_dense_layers": 4}, (4, 5)),
        ({}, (0, 1, 2, 3, 4, 5)),
    ],
)
def test_which_layers_have_experts(keys: dict[str, Any], expected: tuple[int, ...]) -> None:
    base = {"num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 4, "num_experts": 8}
    sizes = {"num_experts_per_tok": 2, "moe_intermediate_size": 32, "intermediate_size": 128}
    assert model_shape.read({**base, **sizes, **keys}).moe_layer_ids == expected


@pytest.mark.parametrize(
    ("name", "sliding", "window", "linear"),
    [
        ("gpt-oss-120b", 18, 128, 0),
        ("step-3.5-flash", 33, 512, 0),
        ("qwen3-next-80b-a3b", 0, 0, 36),
        ("qwen3.5-397b-a17b", 0, 0, 45),
        ("phi-3.5-moe", 0, 0, 0),
    ],
)
def test_kinds_of_attention_are_counted(name: str, sliding: int, window: int, linear: int) -> None:
    model = shape(name)
    assert (model.sliding_layers, model.sliding_window) == (sliding, window)
    assert model.attention_layers == model.layers - linear
    assert (model.linear.layers if model.linear else 0) == linear


def test_sizes_of_linear_attention_are_read_or_told_to_be_unknown() -> None:
    assert shape("qwen3.5-397b-a17b").linear == model_shape.LinearAttention(45, 16, 64, 128, 128, 4)
    other = shape("granite-4.0-micro", layer_types=["mamba"] * 36 + ["attention"] * 4)
    assert other.linear == model_shape.LinearAttention(36, 0, 0, 0, 0, 0)
    assert other.unknown == ("size of the linear attention layers",)


def test_a_window_that_is_switched_off_does_not_count() -> None:
    layers = ["sliding_attention"] * 40
    assert shape("qwen3-14b", layer_types=layers, sliding_window=4096).sliding_layers == 0
    assert shape("qwen3-14b", layer_types=layers, sliding_window=4096, use_sliding_window=True).sliding_layers == 40
    assert shape("mixtral-8x7b", hybrid_layer_pattern=[0, 1] * 16, sliding_window=128).sliding_layers == 16


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, 78),
        ({"index_topk_freq": 4}, 21),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, 21),
        ({"index_topk_pattern": "FFS" * 26}, 52),
        ({"index_topk_pattern": "S"}, 77),
        ({"indexer_types": ["full", "shared"] * 40}, 39),
    ],
)
def test_layers_with_an_indexer_of_their_own(keys: dict[str, Any], expected: int) -> None:
    assert shape("glm-5", **keys).index_layers == expected


def test_without_a_number_of_chosen_tokens_there_is_no_sparse_attention() -> None:
    model = shape("glm-5", index_topk=None)
    assert (model.index_heads, model.index_head_dim, model.index_layers) == (0, 0, 0)


def test_widths_of_heads() -> None:
    assert shape("deepseek-v3").head_dim == 192
    assert shape("llama-3.3-70b").head_dim == 128
    assert shape("mixtral-8x7b", head_dim=None).head_dim == 128
    assert shape("mixtral-8x7b", num_key_value_heads=None).kv_heads == 32
    assert shape("dbrx").kv_heads == 8
    assert shape("mixtral-8x7b", v_head_dim=64).v_head_dim == 64


def test_a_family_whose_experts_are_as_wide_as_its_key_for_all_layers_says() -> None:
    assert shape("minimax-m2").moe_intermediate_size == 1536
    assert shape("minimax-m2").shared_experts == 0
    maverick = shape("llama-4-maverick")
    assert (maverick.intermediate_size, maverick.moe_intermediate_size) == (16384, 8192)
    assert (maverick.shared_experts, maverick.shared_intermediate_size) == (1, 8192)
    assert shape("ernie-4.5-21b-a3b").shared_intermediate_size == 3072
    assert shape("qwen3-next-80b-a3b").shared_experts == 1


def test_a_model_of_a_family_with_experts_may_have_none() -> None:
    model = shape("granite-4.0-micro")
    assert (model.experts, model.experts_per_token, model.shared_experts, model.moe_layer_ids) == (0, 0, 0, ())
    assert model.dense_layer_ids == tuple(range(40))
    assert shape("mixtral-8x7b", num_local_experts=1).is_moe is False


def test_experts_beside_an_ordinary_layer() -> None:
    assert shape("grok-2").dense_layer_ids == tuple(range(64))
    assert shape("deepseek-v3").dense_layer_ids == (0, 1, 2)


def test_activations_without_a_gate_have_two_matrices() -> None:
    assert shape("llama-3.3-70b", hidden_act="silu").mlp_matrices == 3
    assert shape("llama-3.3-70b", mlp_hidden_act="relu2").mlp_matrices == 2


def test_queries_with_a_gate_are_known_by_family_or_key() -> None:
    assert shape("qwen3-next-80b-a3b").gated_query
    assert not shape("qwen3-next-80b-a3b", attn_output_gate=False).gated_query
    assert not shape("qwen3-235b-a22b").gated_query


def test_what_a_config_does_not_tell_is_listed() -> None:
    model = model_shape.read({"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2})
    assert model.unknown == ("architecture", "intermediate_size", "context length", "vocab_size", "dtype")
    assert (model.dtype, model.head_dim, model.kv_heads, model.weight_bits["lm_head"]) == ("bfloat16", 4, 2, 16)
    strange = shape("llama-3.3-70b", quantization_config={"quant_method": "brand_new"})
    assert strange.unknown == ("bits per weight of quantization brand_new",)


#: Configs that must be refused: what is changed in Qwen3-235B, and what the message must have.
DAMAGED: list[tuple[dict[str, Any], str]] = [
    ({"num_experts": "128"}, "num_experts is '128'; expected a whole number from 0 to 2147483647"),
    ({"num_experts": None}, "num_experts is null; expected a number of experts under one of n_routed_experts"),
    ({"num_experts": -1}, "num_experts is -1; expected a whole number from 0"),
    ({"num_experts": 128.0}, "num_experts is 128.0; expected a whole number"),
    ({"num_experts": 1e30}, "num_experts is 1e+30; expected a whole number"),
    ({"num_experts": 10**30}, "num_experts is 1000000000000000000000000000000; expected"),
    ({"num_experts": float("nan")}, "num_experts is nan; expected a whole number"),
    ({"num_experts": True}, "num_experts is true; expected a whole number"),
    ({"num_experts": []}, "num_experts is []; expected a list of 1 to 1000 whole numbers"),
    ({"num_experts": [64, False]}, "in the list, not false"),
    ({"num_experts": {"a": 1}}, "num_experts is {'a': 1}; expected a whole number"),
    ({"num_local_experts": 64}, "num_local_experts is 64; expected the 128 of num_experts, which means the same"),
    ({"num_experts_per_tok": 129}, "num_experts_per_tok is 129; expected at most the 128 experts that there are"),
    ({"num_experts_per_tok": 0}, "num_experts_per_tok is 0; expected a whole number from 1"),
    ({"num_experts_per_tok": None}, "num_experts_per_tok is null; expected the number of experts that a token passes"),
    ({"moe_intermediate_size": "wide"}, "moe_intermediate_size is 'wide'; expected a whole number from 1"),
    ({"moe_intermediate_size": None, "intermediate_size": None}, "expected the width of an expert"),
    ({"num_hidden_layers": None}, "num_hidden_layers is null; expected a whole number from 1 to 1000"),
    ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; expected a whole number from 1 to 1000"),
    ({"hidden_size": 0}, "hidden_size is 0; expected a whole number from 1"),
    ({"num_attention_heads": [64]}, "num_attention_heads is [64]; expected a whole number"),
    ({"num_key_value_heads": 5}, "num_key_value_heads is 5; expected a number that divides the 64 attention heads"),
    ({"head_dim": None, "hidden_size": 4097}, "head_dim is null; expected a width: hidden_size 4097 is no multiple"),
    ({"decoder_sparse_step": 0}, "decoder_sparse_step is 0; expected a whole number from 1"),
    ({"mlp_only_layers": "all"}, "mlp_only_layers is 'all'; expected a list"),
    ({"architectures": "Qwen3MoeForCausalLM"}, "architectures is 'Qwen3MoeForCausalLM'; expected a list of at most"),
    ({"architectures": [1]}, "architectures is [1]; expected a list"),
    ({"model_type": 3}, "model_type is 3; expected a text"),
    ({"text_config": "inside"}, "text_config is 'inside'; expected an object"),
    ({"text_config": {"num_hidden_layers": 1}}, "text_config.hidden_size is missing; expected a whole number"),
    ({"torch_dtype": "int3"}, "torch_dtype is 'int3'; expected one of bfloat16"),
    ({"dtype": 16}, "dtype is 16; expected a text"),
    ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'; expected true or false"),
    ({"max_position_embeddings": -5}, "max_position_embeddings is -5; expected a whole number from 0"),
    ({"vocab_size": "151936"}, "vocab_size is '151936'; expected a whole number"),
    ({"moe_layer_freq": [1, 0], "decoder_sparse_step": None}, "expected one entry for each of 94 layers, not 2"),
    ({"mlp_layer_types": ["dense"]}, "expected one entry for each of 94 layers, not 1"),
    ({"layer_types": ["full_attention"]}, "expected one entry for each of 94 layers, not 1"),
    ({"is_moe_layer": ["yes"] * 94}, "expected true or false for each of 94 layers"),
    ({"is_moe_layer": [True]}, "expected true or false for each of 94 layers"),
    ({"moe_layers_enum": "1,two"}, "moe_layers_enum is '1,two'; expected layer numbers with commas between them"),
    ({"moe_layers_enum": "1,999999999"}, "expected layer numbers with commas"),
    ({"moe_layers_enum": "1" * 9000}, "expected layer numbers with commas"),
    ({"moe_layers": [94, 95]}, "expected numbers of the 94 layers that there are"),
    ({"moe_layer_start_index": "one"}, "moe_layer_start_index is 'one'; expected a layer's number, or -1"),
    ({"moe_layer_start_index": -2}, "moe_layer_start_index is -2; expected a layer's number, or -1"),
    ({"kv_lora_rank": 512}, "qk_nope_head_dim is missing; expected a whole number"),
    ({"quantization_config": []}, "quantization_config is []; expected an object"),
    ({"model_type": "\0" * 100 + "moe", "num_experts": None}, "num_experts is null"),
]


@pytest.mark.parametrize(("changes", "message"), DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_config_is_refused_with_key_value_and_what_was_expected(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ShapeError) as caught:
        model_shape.read({**config("qwen3-235b-a22b"), **changes})
    assert str(caught.value).startswith("cannot use model config: ")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400


def test_more_first_layers_than_layers_are_refused() -> None:
    with pytest.raises(ShapeError, match="first_k_dense_replace is 62; expected at most the 61 layers"):
        shape("deepseek-v3", first_k_dense_replace=62)


def test_indexers_of_the_wrong_kind_are_refused() -> None:
    with pytest.raises(ShapeError, match="index_topk_pattern is 5; expected a text with one letter a layer"):
        shape("glm-5", index_topk_pattern=5)
    with pytest.raises(ShapeError, match="index_head_dim is null"):
        shape("glm-5", index_head_dim=None)


def test_an_error_names_the_place_in_a_nested_config() -> None:
    damaged = config("kimi-k2.5")
    damaged["text_config"]["n_routed_experts"] = "many"
    with pytest.raises(ShapeError, match=r"text_config\.n_routed_experts is 'many'"):
        model_shape.read(damaged)


def test_something_other_than_an_object_is_refused() -> None:
    with pytest.raises(ShapeError, match="it is no JSON object"):
        model_shape.read([])  # type: ignore[arg-type]


def test_long_values_are_cut_in_messages() -> None:
    assert config_values.shown("x" * 100) == "'" + "x" * 59 + "..."
    assert config_values.shown(None) == "null"
    assert config_values.shown(False) == "false"
    assert config_values.shown("\u00e4") == r"'\xe4'"


def test_a_list_of_numbers_has_a_limit() -> None:
    with pytest.raises(ShapeError, match="a list of 1 to 1000 whole numbers"):
        Values({"k": [1] * 1001}).numbers("k")
