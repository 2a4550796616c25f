# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a model fits into GPUs, held against what servers reported, and what stands against a split."""

from __future__ import annotations

from typing import Any

import pytest
from model_configs import NVFP4, shape

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    kv_cache,
    layout_check,
    memory_plan,
    model_matrices,
    ranks,
    weight_index,
    weight_shards,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding
from ansible_collections.tokforge.sglang.plugins.module_utils.memory_plan import GIB, Settings
from ansible_collections.tokforge.sglang.plugins.module_utils.model_matrices import Layout, LayoutError
from ansible_collections.tokforge.sglang.plugins.module_utils.weight_index import Tensor, WeightIndex

#: An RTX PRO 6000 (96 GB): 97887 MiB.
PRO_6000 = 97_887 << 20


def rank(model: Any, layout: Layout, index: WeightIndex | None = None, speculative: bool = False) -> float:
    """Bytes of loaded weights on the fullest rank."""
    return memory_plan.weights_on_rank(model, layout, memory_plan.stock(model, index, speculative))


#: How the GLM-5 server of local-inference-lab/rtx6kpro (models/glm5.md) was started.
GLM_5 = Settings(kv_cache_dtype="bf16", mem_fraction_static=0.92)


def gpus(count: int, total: int | None = PRO_6000, free: int | None = None) -> list[tuple[int | None, int | None]]:
    """GPUs of one kind."""
    return [(total, free)] * count


def levels(found: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.level, finding.check) for finding in found]


# --- against servers that ran -----------------------------------------------------------------------------------------


def test_glm_5_nvfp4_on_eight_gpus_is_as_the_server_reported() -> None:
    plan = memory_plan.plan(shape("glm-5", NVFP4), Layout(tp=8), PRO_6000, None, GLM_5)
    assert plan.weights_bytes / GIB == pytest.approx(57.06, abs=0.2)
    measured = memory_plan.plan(shape("glm-5", NVFP4), Layout(tp=8), PRO_6000, None, GLM_5, weights_bytes=57.06 * GIB)
    assert (measured.kv_token_bytes, measured.source) == (100_152, "a measurement")
    assert measured.kv_tokens == pytest.approx(314_304, rel=0.002)
    assert measured.kv_tokens * measured.kv_token_bytes / GIB == pytest.approx(29.32, abs=0.05)


def test_qwen3_14b_on_four_gpus_is_as_the_server_reported() -> None:
    plan = memory_plan.plan(shape("qwen3-14b"), Layout(tp=4), 24 * GIB, None, Settings(mem_fraction_static=0.8))
    assert plan.weights_bytes / GIB == pytest.approx(7.08, abs=0.1)
    # Keys and values of 298447 tokens took 5.69 GB each.
    assert 298_447 * plan.kv_token_bytes / GIB == pytest.approx(2 * 5.69, abs=0.01)


def test_glm_5_fits_on_eight_gpus_and_not_on_four() -> None:
    model = shape("glm-5", NVFP4)
    found = memory_plan.check_memory(model, Layout(tp=8), gpus(8), GLM_5)
    assert levels(found) == [(OK, "layout"), (OK, "memory"), (WARN, "memory")]
    assert found[1].message.startswith("56.95 GiB of weights a GPU with tp 8 (from the model's shape); 31")
    found = memory_plan.check_memory(model, Layout(tp=4), gpus(4), GLM_5)
    assert levels(found) == [(OK, "layout"), (FAIL, "memory")]
    assert found[1] == Finding(
        FAIL,
        "memory",
        "the model does not fit: each GPU has 109.83 GiB of weights with tp 4 (from the model's shape), and 86.38 GiB"
        " of 95.59 GiB are for weights and cache (mem_fraction_static 0.920, 93.89 GiB free at the start)",
        "it takes 8 such GPUs (tensor_parallel_size: 8), or a checkpoint with fewer bits per weight",
    )


def test_a_split_for_more_gpus_than_there_are_says_whether_fewer_would_do() -> None:
    model = shape("glm-5", NVFP4)
    found = memory_plan.check_memory(model, Layout(tp=8), gpus(4), GLM_5)
    assert found[-1] == Finding(
        FAIL,
        "gpus",
        "tp 8 x pp 1 takes 8 GPUs and 4 are there; on 4 each has 109.83 GiB of weights and only 86.38 GiB of 95.59 GiB"
        " for weights and cache",
        "it takes 8 such GPUs (tensor_parallel_size: 8), or a checkpoint with fewer bits per weight",
    )
    small = memory_plan.check_memory(shape("qwen3-14b"), Layout(tp=8), gpus(3))
    assert small[-1].remedy == "set tensor_parallel_size: 2, on which the model fits too"


def test_a_model_that_cannot_be_split_over_fewer_gpus_names_those_that_it_takes() -> None:
    found = memory_plan.check_memory(shape("qwen3-14b"), Layout(tp=8, dp=2), gpus(1))
    assert found[-1].message == "tp 8 x pp 1 x dp 2 takes 16 GPUs and 1 are there"
    assert found[-1].remedy == "set tensor_parallel_size: 1, on which the model fits too"
    # Experts of 100 cannot have scales for blocks of 128, on any number of GPUs.
    never = shape("qwen3-235b-a22b", moe_intermediate_size=100, **FP8)
    assert memory_plan.check_memory(never, Layout(tp=8), gpus(4))[-1].remedy == "use a host with 8 GPUs"


def test_several_hosts_share_the_gpus() -> None:
    model = shape("glm-5", NVFP4)
    assert levels(memory_plan.check_memory(model, Layout(tp=8), gpus(4), GLM_5, nodes=2))[1] == (OK, "memory")


# --- weights ----------------------------------------------------------------------------------------------------------


def test_whole_parts_are_on_every_rank() -> None:
    """More ranks save less than their number: MLA's down projections and the indexer are on each."""
    model = shape("glm-5", NVFP4)
    one, eight = (rank(model, Layout(tp=tp)) for tp in (1, 8))
    whole = 1.04 * (
        78 * 2 * (6144 * (2048 + 576) + 2048 * 32 * 128 + 6144 * 160 + 6144 * 2 + 2560) + 75 * 2 * 6144 * 256
    )
    assert eight - one / 8 == pytest.approx(whole * 7 / 8, rel=1e-6)


def test_the_fullest_stage_of_a_pipeline_counts() -> None:
    model = shape("llama-3.3-70b")
    whole = rank(model, Layout())
    halves = rank(model, Layout(pp=2))
    assert halves == pytest.approx(whole / 2, rel=1e-4)
    # Three stages of 26, 27 and 27 layers; the last has the head too.
    layer = (whole / 1.04 - 2 * 2 * 128256 * 8192) / 80
    thirds = rank(model, Layout(pp=3))
    assert thirds == pytest.approx(1.04 * (27 * layer + 2 * 128256 * 8192), rel=1e-6)


def test_a_tied_head_is_kept_once() -> None:
    tied = rank(shape("qwen3-14b", tie_word_embeddings=True), Layout())
    apart = rank(shape("qwen3-14b"), Layout())
    assert apart - tied == pytest.approx(1.04 * 2 * 151936 * 5120)
    # The last of two stages has no embedding, so the head is there.
    both = rank(shape("qwen3-14b", tie_word_embeddings=True), Layout(pp=2))
    assert both == pytest.approx(rank(shape("qwen3-14b"), Layout(pp=2)))


def test_draft_layers_are_loaded_only_with_speculation() -> None:
    model = shape("glm-5", NVFP4)
    plain, drafts = (rank(model, Layout(tp=8), None, on) for on in (False, True))
    # One layer with 256 experts in NVFP4, an eighth of it, and whole parts.
    assert (drafts - plain) / GIB == pytest.approx(0.79, abs=0.01)
    left_out = {
        "quantization": {**NVFP4["quantization"], "exclude_modules": ["lm_head", "*self_attn*", "model.layers.78*"]}
    }
    unquantized = rank(shape("glm-5", left_out), Layout(tp=8), None, True)
    assert (unquantized - plain) / GIB == pytest.approx(2.6, abs=0.1)
    assert rank(shape("qwen3-14b"), Layout(), None, True) == rank(shape("qwen3-14b"), Layout())


def test_headers_of_the_files_count_before_the_shape() -> None:
    tensors = (
        Tensor("model.layers.0.self_attn.o_proj.weight", "BF16", (1,), 8 * GIB, "f"),
        Tensor("model.layers.0.input_layernorm.weight", "BF16", (1,), GIB, "f"),
        Tensor("model.layers.40.self_attn.o_proj.weight", "BF16", (1,), 4 * GIB, "f"),
    )
    index = WeightIndex(weight_index.HEADERS, 13 * GIB, tensors, 1)
    assert rank(shape("qwen3-14b"), Layout(tp=4), index) == pytest.approx(3 * GIB * 1.04)
    assert memory_plan.stock(shape("qwen3-14b"), index).source == "the weight files"
    assert rank(shape("qwen3-14b"), Layout(tp=4), index, True) == pytest.approx(4 * GIB * 1.04)


def test_the_total_of_the_index_scales_the_shape() -> None:
    model = shape("qwen3-14b")
    plain = rank(model, Layout(tp=2))
    total = sum(matrix.total_bytes for matrix in model_matrices.matrices(model))
    index = WeightIndex(weight_index.TOTAL, int(total * 2), (), 3)
    assert rank(model, Layout(tp=2), index) == pytest.approx(plain * 2)
    assert memory_plan.stock(model, index).source == "the weight index"
    assert memory_plan.stock(model, WeightIndex(weight_index.ABSENT)).source == "the model's shape"


def test_many_tensors_are_told_apart_once_for_all_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    told = weight_shards.portions

    def counted(tensors: Any, model: Any) -> Any:
        looks.append(1)
        return told(tensors, model)

    monkeypatch.setattr(weight_shards, "portions", counted)
    tensors = (Tensor("model.layers.0.mlp.experts.0.up_proj.weight", "U8", (1,), 400 * GIB, "f"),)
    index = WeightIndex(weight_index.HEADERS, 400 * GIB, tensors, 1)
    found = memory_plan.check_memory(shape("glm-5", NVFP4), Layout(tp=4), gpus(4), GLM_5, index)
    assert found[1].remedy.startswith("it takes 8 such GPUs")
    assert looks == [1]


@pytest.mark.parametrize(
    ("share", "layout", "expected"),
    [
        (model_matrices.SPLIT_ATTENTION, Layout(tp=8, dp=4, dp_attention=True), 1 / 2),
        (model_matrices.SPLIT_ATTENTION, Layout(tp=8, dp=4), 1 / 8),
        (model_matrices.KV_HEADS, Layout(tp=4), 1 / 4),
        (model_matrices.KV_HEADS, Layout(tp=16), 1 / 8),
        (model_matrices.SPLIT, Layout(tp=8, dp=4, dp_attention=True), 1 / 8),
        (model_matrices.ROUTED, Layout(tp=8, ep=4), 1 / 8),
        (model_matrices.SHARED, Layout(tp=8), 1 / 8),
        (model_matrices.SHARED, Layout(tp=8, shared_whole=True), 1),
        (model_matrices.EMBEDDING, Layout(tp=8), 1 / 8),
        (model_matrices.EMBEDDING, Layout(tp=8, dp=2, dp_attention=True), 1),
        (model_matrices.HEAD, Layout(tp=8, dp=2, dp_attention=True), 1 / 8),
        (model_matrices.HEAD, Layout(tp=8, dp=2, dp_attention=True, head_by_attention=True), 1 / 4),
        (model_matrices.WHOLE, Layout(tp=8), 1),
    ],
)
def test_the_part_of_a_matrix_that_a_rank_holds(share: str, layout: Layout, expected: float) -> None:
    assert model_matrices.fraction(share, shape("llama-3.3-70b"), layout) == expected


def test_stages_take_what_is_left_over_from_the_end() -> None:
    assert [len(stage) for stage in model_matrices.stages(78, 4)] == [19, 19, 20, 20]
    assert [list(stage) for stage in model_matrices.stages(3, 2)] == [[0], [1, 2]]


# --- cache ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "layout", "dtype", "expected"),
    [
        ("llama-3.3-70b", Layout(tp=1), "bf16", 80 * 8 * 256 * 2),
        ("llama-3.3-70b", Layout(tp=8), "bf16", 80 * 256 * 2),
        ("llama-3.3-70b", Layout(tp=16), "bf16", 80 * 256 * 2),
        ("llama-3.3-70b", Layout(tp=8), "fp8_e4m3", 80 * 256),
        ("llama-3.3-70b", Layout(tp=8), "mxfp8", 80 * 256 * (1 + 1 / 32)),
        ("llama-3.3-70b", Layout(tp=8), "fp4_e2m1", 80 * 256 * (0.5 + 1 / 16)),
        ("llama-3.3-70b", Layout(tp=8), "future", 80 * 256 * 2),
        ("llama-3.3-70b", Layout(tp=8, dp=4, dp_attention=True), "bf16", 80 * 4 * 256 * 2),
        ("deepseek-v3", Layout(tp=8), "bf16", 61 * 576 * 2),
        ("deepseek-v3", Layout(tp=1), "fp8_e4m3", 61 * 576),
        ("glm-5", Layout(tp=8), "bf16", 78 * (576 * 2 + 132)),
        ("glm-5", Layout(tp=8), "fp8_e4m3", 78 * (656 + 132)),
        ("gpt-oss-120b", Layout(tp=8), "bf16", (18 + 18 * 0.8) * 128 * 2),
        ("qwen3-next-80b-a3b", Layout(tp=2), "bf16", 12 * 512 * 2),
    ],
)
def test_bytes_of_a_token_in_the_cache(name: str, layout: Layout, dtype: str, expected: float) -> None:
    model = shape(name)
    assert kv_cache.token_bytes(model, layout, dtype, model.layers) == pytest.approx(expected)


def test_a_stage_caches_its_layers_and_drafts() -> None:
    model = shape("glm-5")
    assert kv_cache.token_bytes(model, Layout(pp=2), "bf16", 39) == pytest.approx(39 * 1284)
    assert kv_cache.token_bytes(model, Layout(), "bf16", 78, 1) == pytest.approx(79 * 1284)


def test_the_cache_is_of_the_asked_type_or_the_checkpoints() -> None:
    eight = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}}
    assert kv_cache.dtype_of(shape("glm-5", eight), "auto") == "fp8_e4m3"
    assert kv_cache.dtype_of(shape("glm-5", eight), "bf16") == "bf16"
    assert kv_cache.dtype_of(shape("glm-5"), "") == "bfloat16"


def test_state_of_linear_attention_does_not_grow_with_the_context() -> None:
    model = shape("qwen3-next-80b-a3b")
    expected = 36 * (32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 3 * 2)
    assert kv_cache.state_bytes(model, Layout(), 48) == expected
    assert kv_cache.state_bytes(model, Layout(tp=4), 24) == expected / 8
    assert kv_cache.state_bytes(shape("qwen3-14b"), Layout(), 40) == 0
    plan = memory_plan.plan(model, Layout(tp=4), PRO_6000)
    room = plan.static_bytes - plan.weights_bytes
    assert plan.kv_tokens == int(room / 1.9 / plan.kv_token_bytes)


# --- reserve ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gib", "layout", "settings", "mib"),
    [
        (16, Layout(), Settings(), 512 + 3072 + 16 + 128 + 400),
        (32, Layout(), Settings(), 512 + 3072 + 48 + 128 + 400),
        (32, Layout(tp=4), Settings(), 512 + 3072 + 160 + 512 + 400),
        (48, Layout(), Settings(), 512 + 6144 + 64 + 128 + 400),
        (80, Layout(), Settings(), 512 + 12288 + 512 + 128 + 400),
        (80, Layout(tp=8), Settings(), 512 + 12288 + 1024 + 1024 + 400),
        (180, Layout(tp=8), Settings(), 512 + 24576 + 1024 + 1024 + 400),
        (80, Layout(), Settings(cuda_graphs=False), 512 + 12288 + 128),
        (80, Layout(), Settings(chunked_prefill_tokens=1024, cuda_graph_max_requests=8), 10 * 1024),
        (48, Layout(), Settings(chunked_prefill_tokens=1024, cuda_graph_max_requests=8), 512 + 3072 + 16 + 128 + 400),
        (80, Layout(), Settings(max_running_requests=16), 512 + 12288 + 32 + 128 + 400),
        (80, Layout(), Settings(speculative=True), 512 + 12288 + 512 + 128 + 400 + 4096),
        (
            80,
            Layout(tp=8, dp=2, dp_attention=True),
            Settings(),
            512 + 12288 + 1024 + 1024 + 400 + 512 * 2 * 4.5,
        ),
        (
            80,
            Layout(tp=8, dp=2, dp_attention=True),
            Settings(cuda_graph_max_requests=300),
            512 + 12288 + 600 + 1024 + 400 + 300 * 2 * 3,
        ),
    ],
)
def test_the_reserve_follows_sglangs_own_rule(gib: int, layout: Layout, settings: Settings, mib: float) -> None:
    assert memory_plan.reserve_bytes(shape("qwen3-14b"), layout, settings, gib * GIB) == mib * 1024 * 1024


def test_mla_reserves_more_for_graphs_of_the_prefill() -> None:
    plain = memory_plan.reserve_bytes(shape("qwen3-14b"), Layout(tp=8), Settings(), PRO_6000)
    latent = memory_plan.reserve_bytes(shape("deepseek-v3"), Layout(tp=8), Settings(), PRO_6000)
    assert (latent - plain) / (1 << 20) == 1536 - 400


def test_without_a_fraction_sglangs_reserve_decides_it() -> None:
    plan = memory_plan.plan(shape("qwen3-14b"), Layout(), 80 * GIB)
    assert (plan.mem_fraction_static, plan.fraction_given) == (0.831, False)
    assert plan.static_bytes == pytest.approx((80 - 1.7) * GIB * 0.831)
    pictures = memory_plan.plan(shape("mistral-small-3.1-24b"), Layout(), 80 * GIB)
    assert pictures.mem_fraction_static == pytest.approx(0.831 * 0.95)


# --- findings ---------------------------------------------------------------------------------------------------------


def test_memory_that_somebody_else_holds_is_named() -> None:
    found = memory_plan.check_memory(shape("qwen3-14b"), Layout(), gpus(1, 80 * GIB, 20 * GIB))
    assert levels(found) == [(OK, "layout"), (FAIL, "memory")]
    assert "18.30 GiB free at the start" in found[1].message
    assert found[1].remedy == "end what holds 60.00 GiB of GPU memory now (see nvidia-smi)"


def test_the_smallest_gpu_decides() -> None:
    mixed = [(80 * GIB, None), (24 * GIB, None)]
    found = memory_plan.check_memory(shape("qwen3-14b"), Layout(tp=2), mixed)
    assert "fit beside them" in found[1].message
    assert memory_plan.check_memory(shape("llama-3.3-70b"), Layout(tp=2), mixed)[1].level == FAIL


def test_a_cache_too_small_for_one_question_is_a_failure() -> None:
    plan = memory_plan.plan(shape("qwen3-14b"), Layout(), 80 * GIB)
    fraction = (plan.weights_bytes + 1000 * plan.kv_token_bytes) / plan.free_bytes
    found = memory_plan.check_memory(
        shape("qwen3-14b"), Layout(), gpus(1, 80 * GIB), Settings(mem_fraction_static=fraction)
    )
    assert found[1].level == FAIL
    assert found[1].message.endswith("the cache would hold 1000 tokens, 2048 is the least that is of use") or (
        "the cache would hold 999 tokens" in found[1].message
    )


def test_a_context_that_does_not_fit_into_the_cache_warns() -> None:
    found = memory_plan.check_memory(shape("llama-3.3-70b"), Layout(tp=2), gpus(2), Settings(mem_fraction_static=0.85))
    assert levels(found) == [(OK, "layout"), (OK, "memory"), (WARN, "memory")]
    assert found[2].message.startswith("one request of 131072 tokens does not fit into the cache: ")
    tokens = memory_plan.plan(
        shape("llama-3.3-70b"), Layout(tp=2), PRO_6000, None, Settings(mem_fraction_static=0.85)
    ).kv_tokens
    assert found[2].remedy == (
        f"set context_length: {tokens // 1024 * 1024} or less, or use more GPUs, or kv_cache_dtype: fp8_e4m3 where the"
        " GPU and the model allow it"
    )
    asked = Settings(mem_fraction_static=0.85, context_tokens=4096)
    assert len(memory_plan.check_memory(shape("llama-3.3-70b"), Layout(tp=2), gpus(2), asked)) == 2
    eight = Settings(mem_fraction_static=0.85, kv_cache_dtype="fp8_e4m3", context_tokens=1_000_000)
    assert memory_plan.check_memory(shape("llama-3.3-70b"), Layout(tp=2), gpus(2), eight)[2].remedy.endswith(
        "or use more GPUs"
    )


def test_more_total_tokens_than_fit_warn() -> None:
    found = memory_plan.check_memory(shape("qwen3-14b"), Layout(), gpus(1), Settings(max_total_tokens=10_000_000))
    assert levels(found)[2:] == [(WARN, "memory")]
    assert found[2].message.startswith("max_total_tokens is 10000000 and ")
    assert memory_plan.check_memory(shape("qwen3-14b"), Layout(), gpus(1), Settings(max_total_tokens=50_000))[2:] == []


def test_a_fraction_that_leaves_too_little_warns() -> None:
    found = memory_plan.check_memory(
        shape("qwen3-14b"), Layout(), gpus(1, 80 * GIB), Settings(mem_fraction_static=0.97)
    )
    assert found[2] == Finding(
        WARN,
        "memory",
        "mem_fraction_static 0.97 leaves 2.35 GiB for activations and CUDA graphs; SGLang would reserve 13.52 GiB for"
        " these settings",
        "set mem_fraction_static: 0.83, or leave it out",
    )
    fine = memory_plan.check_memory(shape("qwen3-14b"), Layout(), gpus(1, 80 * GIB), Settings(mem_fraction_static=0.9))
    assert levels(fine) == [(OK, "layout"), (OK, "memory")]


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 1e30, float("inf"), float("nan")])
def test_a_fraction_that_is_none_fails(fraction: float) -> None:
    found = memory_plan.check_memory(shape("qwen3-14b"), Layout(), gpus(1), Settings(mem_fraction_static=fraction))
    assert levels(found) == [(FAIL, "memory")]
    assert found[0].message.startswith(f"mem_fraction_static is {fraction}; it is the part")


def test_a_model_too_large_for_any_number_of_these_gpus_says_so() -> None:
    found = memory_plan.check_memory(shape("kimi-k2.5"), Layout(tp=8), gpus(8, 8 * GIB))
    assert found[1].remedy.startswith("no number of these GPUs up to 64 is enough")


def test_when_another_split_would_do_that_is_the_way_out() -> None:
    """Pipeline stages of a model with few layers leave the first rank with too much."""
    found = memory_plan.check_memory(shape("llama-3.3-70b"), Layout(pp=2), gpus(2, 80 * GIB), weights_bytes=90 * GIB)
    assert found[1].level == FAIL
    assert (
        found[1].remedy == "it takes 4 such GPUs (tensor_parallel_size: 4), or a checkpoint with fewer bits per weight"
    )
    found = memory_plan.check_memory(shape("llama-3.3-70b"), Layout(pp=4), gpus(4, 80 * GIB), weights_bytes=90 * GIB)
    assert found[1].remedy == "choose another split of the model, or a checkpoint with fewer bits per weight"


def test_the_number_of_gpus_needed_counts_splits_that_are_possible_only_by_experts() -> None:
    # 1536 / 8 = 192 is no multiple of 128, so eight ranks need the experts shared out.
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    model = shape("qwen3-235b-a22b", quantization_config=fp8)
    assert layout_check.refusals(model, Layout(tp=8))
    assert memory_plan.gpus_needed(model, Layout(tp=4), 48 * GIB) == 8
    assert memory_plan.gpus_needed(model, Layout(tp=4, dp=2, dp_attention=True), 48 * GIB) == 8
    assert memory_plan.gpus_needed(shape("qwen3-14b"), Layout(), PRO_6000) == 1


def test_layout_is_that_of_the_ranks() -> None:
    world = ranks.World(tp=8, pp=2, dp=4, ep=8, dp_attention=True)
    assert layout_check.layout_of(world) == Layout(tp=8, pp=2, ep=8, dp=4, dp_attention=True)
    # Nobody knows: copies beside each other.
    assert layout_check.layout_of(ranks.World(dp=2)) == Layout(dp=2, dp_attention=False)
    with pytest.raises(LayoutError):
        layout_check.layout_of(ranks.World(tp=0))


def test_damaged_weights_fail() -> None:
    index = WeightIndex(weight_index.DAMAGED, 10**10, (), 3, ("2 of 3 weight files are missing, b first",))
    found = memory_plan.check_memory(shape("qwen3-14b"), Layout(), gpus(1), index=index)
    assert found[1] == Finding(FAIL, "weights", "2 of 3 weight files are missing, b first", "copy the model again")


def test_unknown_memory_is_no_silent_ok() -> None:
    for unknown in ([], gpus(2, None)):
        found = memory_plan.check_memory(shape("qwen3-14b"), Layout(), unknown)
        assert levels(found) == [(OK, "layout"), (WARN, "memory")]
        assert "is not known" in found[1].message


def test_a_shape_with_gaps_is_told_to_be_an_estimate() -> None:
    model = shape("qwen3-14b", torch_dtype=None)
    found = memory_plan.check_memory(model, Layout(), gpus(1))
    assert found[-1].message == "the figures for memory are estimates: config.json does not tell dtype"
    index = WeightIndex(weight_index.TOTAL, 29 * 10**9, (), 1)
    assert memory_plan.check_memory(model, Layout(), gpus(1), index=index)[-1].level == OK


# --- splits that SGLang refuses ---------------------------------------------------------------------------------------

FP8: dict[str, Any] = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
AWQ: dict[str, Any] = {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}}


@pytest.mark.parametrize(
    ("name", "changes", "layout", "message", "remedy"),
    [
        (
            "qwen3-14b",
            {},
            Layout(tp=16),
            "16 ranks do not divide the 40 attention heads",
            "set tp to 2, 4, 5, 8 or 10",
        ),
        (
            "llama-3.3-70b",
            {"num_key_value_heads": 4, "num_attention_heads": 24, "head_dim": 128, "intermediate_size": 24576},
            Layout(tp=6),
            "6 ranks neither divide the 4 heads of keys and values nor are a multiple of them",
            "set tp to 1, 2 or 4 or a multiple of 4",
        ),
        ("mixtral-8x7b", {}, Layout(tp=16), "tp 16 is more than the 8 experts, which SGLang's models refuse", "set tp"),
        ("glm-4.7-fp8", {}, Layout(tp=6, ep=6), "ep 6 does not divide the 160 experts", "set ep to 1, 2, 4 or 5"),
        (
            "qwen3-235b-a22b",
            FP8,
            Layout(tp=8),
            "an expert's part with tp 8 and ep 1 is 192 wide and fp8 has scales for blocks of 128 x 128",
            "set ep so that 1536 / (tp / ep) is a multiple of 128, or a smaller tp",
        ),
        (
            "minimax-m2",
            {},
            Layout(tp=8, ep=2, dp=1),
            None,
            "",
        ),
        ("qwen3-14b", AWQ, Layout(tp=2), None, ""),
        (
            "qwen3-14b",
            {**AWQ, "intermediate_size": 17472},
            Layout(tp=4),
            "a feed-forward's part with tp 4 is 4368 wide and awq has scales for groups of 128",
            "choose a smaller tp",
        ),
        ("qwen3-14b", {"intermediate_size": 17409}, Layout(tp=2), "a feed-forward is 17409 wide, which tp 2", "choose"),
        (
            "gpt-oss-120b",
            {},
            Layout(tp=64),
            None,
            "",
        ),
        (
            "gpt-oss-120b",
            {"intermediate_size": 2888},
            Layout(tp=64),
            "an expert is 2888 wide, which 64 ranks (tp 64 / ep 1) do not divide",
            "set ep so that tp / ep divides 2888",
        ),
        (
            "llama-3.3-70b",
            {},
            Layout(tp=2, ep=2),
            "ep 2 is for models with experts and this one has none",
            "set ep to 1",
        ),
        ("llama-3.3-70b", {}, Layout(pp=81), "pp 81 stages are more than the model's 80 layers", "choose a smaller pp"),
        (
            "qwen3-next-80b-a3b",
            {"num_attention_heads": 64},
            Layout(tp=32),
            "32 ranks do not divide the 16 and 32 heads of linear attention",
            "set tp to 1, 2, 4, 8 or 16",
        ),
        (
            "deepseek-v3",
            {"moe_intermediate_size": 2048, "n_shared_experts": 1},
            Layout(tp=32),
            "a shared expert's part with tp 32 is 64 wide and fp8 has scales for blocks of 128 x 128",
            "choose a smaller tp",
        ),
    ],
)
def test_a_split_is_refused_as_the_release_would(
    name: str, changes: dict[str, Any], layout: Layout, message: str | None, remedy: str
) -> None:
    found = layout_check.check_layout(shape(name, **changes), layout)
    if message is None:
        assert levels(found) == [(OK, "layout")]
    else:
        told = [finding for finding in found if finding.message.startswith(message)]
        assert [finding.level for finding in told] == [FAIL]
        assert told[0].remedy.startswith(remedy)


def test_a_group_of_nvfp4_is_not_cut() -> None:
    quant = {"quantization": {"quant_algo": "NVFP4"}}
    model = shape("qwen3-235b-a22b", quant, moe_intermediate_size=1544)
    found = layout_check.check_layout(model, Layout(tp=8))
    assert "is 193 wide and modelopt_fp4 has scales for groups of 16" in found[0].message
    assert layout_check.refusals(shape("qwen3-235b-a22b", quant), Layout(tp=8)) == []


def test_parts_that_are_not_quantized_may_be_cut_anywhere() -> None:
    left_out = {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["mlp"]}
    assert layout_check.refusals(shape("qwen3-235b-a22b", quantization_config=left_out), Layout(tp=8)) == []
    assert layout_check.refusals(shape("deepseek-v3"), Layout(tp=16, ep=16)) == []


def test_a_shared_expert_that_every_rank_has_whole_is_not_cut() -> None:
    model = shape("deepseek-v3", intermediate_size=32768)
    assert [told for told, _remedy in layout_check.refusals(model, Layout(tp=32, ep=32))] == [
        "a shared expert's part with tp 32 is 64 wide and fp8 has scales for blocks of 128 x 128"
    ]
    assert layout_check.refusals(model, Layout(tp=32, ep=32, shared_whole=True)) == []


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tp": 0}, "tp is 0; give a whole number from 1 to 4096"),
        ({"tp": True}, "tp is True"),
        ({"pp": 2.0}, "pp is 2.0"),
        ({"ep": "8"}, "ep is '8'"),
        ({"dp": 10**9}, "dp is 1000000000"),
        ({"tp": 8, "ep": 3}, "ep 3 does not divide tp 8"),
        ({"tp": 8, "dp": 3, "dp_attention": True}, "dp 3 does not divide tp 8, as dp attention needs"),
    ],
)
def test_sizes_of_parallelism_that_cannot_be_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        Layout(**keys)
    assert message in str(caught.value)


def test_gpus_of_a_layout() -> None:
    assert Layout(tp=8, pp=2, dp=2).gpus == 32
    assert Layout(tp=8, pp=2, dp=2, dp_attention=True).gpus == 16
