# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a probe would do: the cut model, the arguments, the environment, the GPU, and what is imported."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import gpu, model_shape, probe_model, probe_needs
from ansible_collections.tokforge.sglang.plugins.module_utils import probe_plan as plan
from ansible_collections.tokforge.sglang.plugins.module_utils.probe_model import ProbeError, cut
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import World

QWEN: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "moe_intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "decoder_sparse_step": 2,
    "mlp_only_layers": [1],
    "vocab_size": 8192,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
GLM: dict[str, Any] = {
    "architectures": ["GlmMoeDsaForCausalLM"],
    "model_type": "glm_moe_dsa",
    "hidden_size": 6144,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 78,
    "num_nextn_predict_layers": 1,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 75,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "kv_lora_rank": 512,
    "q_lora_rank": 2048,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "v_head_dim": 256,
    "index_n_heads": 32,
    "index_head_dim": 128,
    "index_topk": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "n_group": 1,
    "topk_group": 1,
    "vocab_size": 154880,
    "max_position_embeddings": 202752,
    "torch_dtype": "bfloat16",
    "quantization_config": {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ["lm_head", "model.layers.0.mlp*", "model.layers.3.self_attn*", "model.layers.30.mlp*"],
    },
}
TP8 = World(tp=8)
GIB = 1 << 30


# --- the cut model ---------------------------------------------------------------------------------------------------


def test_one_rank_of_one_moe_layer_is_left() -> None:
    made = cut(QWEN, None, World(tp=4))
    assert made.layers == (3,)
    assert made.config["num_hidden_layers"] == 1
    assert (made.config["decoder_sparse_step"], made.config["mlp_only_layers"]) == (1, [])
    assert (made.config["num_attention_heads"], made.config["num_key_value_heads"]) == (4, 1)
    # 1024 / 16: it must not follow from the 4 heads that are left.
    assert made.config["head_dim"] == 64
    assert (made.config["moe_intermediate_size"], made.config["intermediate_size"]) == (128, 512)
    assert (made.config["num_experts"], made.config["num_experts_per_tok"], made.config["hidden_size"]) == (16, 4, 1024)
    assert made.config["vocab_size"] == probe_model.VOCABULARY > 10000
    assert QWEN["num_hidden_layers"] == 4 and QWEN["mlp_only_layers"] == [1]


def test_layers_that_are_gone_leave_the_quantization_and_the_first_moe_layer_takes_number_0() -> None:
    quant = {
        "quantization": {
            "exclude_modules": ["model.layers.0.mlp*", "model.layers.3.self_attn.q_proj", "re:.*gate$"],
            "quantized_layers": {"model.layers.3.mlp.experts": {"quant_algo": "NVFP4"}, "model.layers.33.mlp": {}},
        }
    }
    made = cut(GLM, quant, TP8)
    assert made.layers == (3,)
    assert made.config["quantization_config"]["ignore"] == ["lm_head", "model.layers.0.self_attn*"]
    assert made.quant == {
        "quantization": {
            "exclude_modules": ["model.layers.0.self_attn.q_proj", "re:.*gate$"],
            "quantized_layers": {"model.layers.0.mlp.experts": {"quant_algo": "NVFP4"}},
        }
    }
    assert made.config["mlp_layer_types"] == ["sparse"]
    assert (made.config["first_k_dense_replace"], made.config["num_nextn_predict_layers"]) == (0, 0)
    assert (made.config["num_attention_heads"], made.config["moe_intermediate_size"]) == (8, 256)
    assert "head_dim" not in made.config
    assert (made.shape.layers, made.shape.moe_layer_ids, made.shape.quantization) == (1, (0,), "modelopt_fp4")


def test_expert_parallelism_shares_out_experts_and_not_their_width() -> None:
    made = cut({**GLM, "n_group": 8, "topk_group": 4}, None, World(tp=8, ep=8))
    assert (made.config["n_routed_experts"], made.config["moe_intermediate_size"]) == (32, 2048)
    assert (made.config["n_group"], made.config["topk_group"]) == (8, 4)
    few = cut({**GLM, "n_routed_experts": 32, "n_group": 8}, None, World(tp=8, ep=8))
    assert (few.config["n_routed_experts"], few.config["num_experts_per_tok"]) == (4, 4)
    assert (few.config["n_group"], few.config["topk_group"]) == (1, 1)
    half = cut(GLM, None, World(tp=8, ep=2))
    assert (half.config["n_routed_experts"], half.config["moe_intermediate_size"]) == (128, 512)


def test_data_parallel_attention_shares_heads_over_fewer_ranks() -> None:
    made = cut(QWEN, None, World(tp=4, dp=2, dp_attention=True))
    assert (made.config["num_attention_heads"], made.config["moe_intermediate_size"]) == (8, 128)
    copies = cut(QWEN, None, World(tp=4, dp=2, dp_attention=False))
    assert copies.config["num_attention_heads"] == 4


def test_width_of_an_expert_may_have_the_dense_name() -> None:
    mixtral = {name: value for name, value in QWEN.items() if name not in ("moe_intermediate_size", "num_experts")}
    mixtral |= {"num_local_experts": 8, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}
    made = cut(mixtral, None, World(tp=4, ep=2))
    assert (made.config["num_local_experts"], made.config["intermediate_size"]) == (4, 1024)


def test_one_layer_of_each_kind_of_attention_is_kept() -> None:
    kinds = ["linear_attention"] * 3 + ["full_attention"]
    linear = {"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128}
    linear |= {"linear_value_head_dim": 128, "model_type": "qwen3_next"}
    config = {**QWEN, **linear, "decoder_sparse_step": 1, "mlp_only_layers": [], "full_attention_interval": 4}
    for listed in ({}, {"layer_types": kinds}):
        made = cut({**config, **listed}, None, World(tp=2))
        assert made.layers == (0, 3)
        assert (made.config["num_hidden_layers"], made.config["full_attention_interval"]) == (2, 2)
        assert (made.config["linear_num_key_heads"], made.config["linear_num_value_heads"]) == (8, 16)
        assert made.shape.linear is not None and made.shape.linear.layers == 1
    assert made.config["layer_types"] == ["linear_attention", "full_attention"]


def test_pattern_of_single_operations_keeps_one_of_each() -> None:
    config = {**QWEN, "num_hidden_layers": 8, "hybrid_override_pattern": "MEM*EM-E", "model_type": "nemotron_h"}
    made = cut(config, None, World())
    assert made.layers == (0, 1, 3)
    assert (made.config["hybrid_override_pattern"], made.config["num_hidden_layers"]) == ("ME*", 3)


@pytest.mark.parametrize(
    ("keys", "kept", "expected"),
    [
        ({"moe_layer_freq": [0, 1, 1, 1]}, 1, {"moe_layer_freq": [1]}),
        ({"moe_layers_enum": "2,3"}, 2, {"moe_layers_enum": "0"}),
        ({"moe_layers": [2, 3]}, 2, {"moe_layers": [0]}),
        (
            {"moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 2},
            1,
            {"moe_layer_start_index": 0, "moe_layer_end_index": 0, "moe_layer_interval": 1},
        ),
        ({"moe_layer_start_index": [3, 1]}, 3, {"moe_layer_start_index": [0, 0]}),
        ({"is_moe_layer": [False, True, True, False]}, 1, {"is_moe_layer": [True]}),
        ({"interleave_moe_layer_step": 2}, 1, {"interleave_moe_layer_step": 1}),
        ({"expert_layer_period": 2, "expert_layer_offset": 1}, 1, {"expert_layer_period": 1, "expert_layer_offset": 0}),
        ({"first_k_dense_replace": 2}, 2, {"first_k_dense_replace": 0}),
    ],
)
def test_every_way_to_say_which_layers_have_experts_says_the_one_that_is_left(
    keys: dict[str, Any], kept: int, expected: dict[str, Any]
) -> None:
    plain = {name: value for name, value in QWEN.items() if name not in ("decoder_sparse_step", "mlp_only_layers")}
    made = cut({**plain, **keys}, None, World())
    assert made.layers == (kept,)
    assert {name: made.config[name] for name in expected} == expected
    assert made.shape.moe_layer_ids == (0,)


def test_text_model_inside_a_model_with_pictures_is_the_one_that_is_cut() -> None:
    outer = {"architectures": ["X"], "vision_config": {"depth": 27}, "vocab_size": 5, "text_config": QWEN}
    made = cut(outer, None, World(tp=2))
    assert made.config["text_config"]["num_hidden_layers"] == 1
    assert made.config["text_config"]["moe_intermediate_size"] == 256
    assert (made.config["vision_config"], made.config["vocab_size"]) == ({"depth": 27}, probe_model.VOCABULARY)
    thinker = cut({"architectures": ["X"], "thinker_config": {"text_config": QWEN}}, None, World(tp=2))
    assert thinker.config["thinker_config"]["text_config"]["num_hidden_layers"] == 1


@pytest.mark.parametrize("key", model_shape.TEXT_KEYS)
def test_text_model_is_cut_wherever_the_shape_reads_it(key: str) -> None:
    made = cut({"architectures": ["X"], key: QWEN}, None, World(tp=2))
    assert made.config[key]["num_hidden_layers"] == 1


def test_list_that_is_none_of_layers_stays() -> None:
    made = cut({**QWEN, "eos_token_id": [1, 2, 3, 4], "no_rope_layers": [0, 1, 0, 2]}, None, World())
    assert (made.config["eos_token_id"], made.config["no_rope_layers"]) == ([1, 2, 3, 4], [2])


def test_older_forms_with_parts_inside_are_shared_out_too() -> None:
    old = {
        **{name: QWEN[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")},
        "architectures": ["DbrxForCausalLM"],
        "model_type": "dbrx",
        "attn_config": {"kv_n_heads": 8},
        "ffn_config": {"ffn_hidden_size": 512, "moe_num_experts": 16, "moe_top_k": 4},
    }
    made = cut(old, None, World(tp=4, ep=2))
    assert made.config["ffn_config"] == {"ffn_hidden_size": 256, "moe_num_experts": 8, "moe_top_k": 4}
    assert made.config["attn_config"] == {"kv_n_heads": 2}
    assert old["ffn_config"] == {"ffn_hidden_size": 512, "moe_num_experts": 16, "moe_top_k": 4}


@pytest.mark.parametrize(
    ("config", "world", "words"),
    [
        ({**QWEN, "num_experts": 0}, World(), "no layer with experts"),
        ({**QWEN, "moe_intermediate_size": 100}, World(tp=8), "moe_intermediate_size 100 cannot be shared out"),
        ({**QWEN, "num_attention_heads": 6, "head_dim": 64}, World(tp=4), "num_attention_heads 6 cannot be shared out"),
        ({**QWEN, "num_experts": 10}, World(tp=4, ep=4), "num_experts 10 cannot be shared out"),
        ({**QWEN, "num_hidden_layers": "four"}, World(), "num_hidden_layers"),
        ({}, World(), "cannot use model config"),
    ],
)
def test_what_cannot_be_cut_says_why(config: dict[str, Any], world: World, words: str) -> None:
    with pytest.raises(ProbeError, match=words):
        cut(config, None, world)


# --- arguments and environment ---------------------------------------------------------------------------------------


def start(*words: str, version: str = "0.5.12.post1", config: dict[str, Any] | None = None, **env: str) -> plan.Start:
    argv = ["-m", "sglang.launch_server", "--model-path", "/models/m", "--host", "0.0.0.0", "--port", "30000", *words]
    return plan.Start(argv, env, version, config or QWEN)


def values(made: plan.Plan, name: str) -> list[str]:
    """What stands behind a flag of the plan's arguments."""
    rest = made.arguments[made.arguments.index(f"--{name}") + 1 :]
    return list(rest[: next((i for i, w in enumerate(rest) if w.startswith("--")), len(rest))])


def test_arguments_that_decide_about_kernels_are_kept_and_no_others() -> None:
    kept = [
        "--moe-runner-backend",
        "flashinfer_cutlass",
        "--attention-backend",
        "triton",
        "--kv-cache-dtype",
        "fp8_e4m3",
    ]
    kept += ["--nsa-decode-backend", "trtllm", "--fp4-gemm-backend", "flashinfer_cutlass", "--trust-remote-code"]
    kept += ["--disable-cuda-graph", "--chunked-prefill-size", "4096"]
    gone = ["--tp-size", "4", "--served-model-name", "x", "--mem-fraction-static", "0.95", "--context-length", "100000"]
    gone += [
        "--max-total-tokens",
        "900000",
        "--api-key",
        "sk-secret",
        "--cuda-graph-max-bs",
        "256",
        "--load-format",
        "auto",
    ]
    gone += ["--speculative-algorithm", "EAGLE", "--speculative-moe-runner-backend", "triton"]
    gone += ["--moe-a2a-backend", "deepep", "--log-level", "debug"]
    made = plan.make(start(*kept, *gone))
    assert made.arguments == (
        *("--model-path", plan.MODEL, "--load-format", "dummy", "--max-total-tokens", "8192"),
        *("--mem-fraction-static", "0.7"),
        *kept,
        *("--batch-size", "8", "--input-len", "128", "--output-len", "4", "--result-filename", ""),
    )
    assert (made.backend, made.cpu, made.world.tp) == ("flashinfer_cutlass", False, 4)
    assert made.notes == (
        "speculative-algorithm is not a part of the probe",
        "moe-a2a-backend is not a part of the probe",
    )
    assert made.layer is not None and made.layer.config["moe_intermediate_size"] == 128


def test_any_name_of_an_argument_counts() -> None:
    made = plan.make(start("--tensor-parallel-size", "4", "--ep-size=2"))
    assert (made.world.tp, made.world.ep) == (4, 2)
    assert made.layer is not None and made.layer.config["num_experts"] == 8


def test_long_context_is_cut_and_few_requests_stay_few() -> None:
    made = plan.make(start("--max-running-requests", "2", config={**QWEN, "max_position_embeddings": 1_000_000}))
    assert (values(made, "context-length"), values(made, "batch-size")) == (["8192"], ["2"])
    assert values(made, "max-running-requests") == ["2"]
    assert "--context-length" not in plan.make(start()).arguments


def test_cpu_needs_no_gpu_memory() -> None:
    made = plan.make(start("--device", "cpu"))
    assert (made.cpu, made.need_free_bytes) == (True, 0)
    assert values(made, "device") == ["cpu"] and "--mem-fraction-static" not in made.arguments


def test_overrides_of_the_config_come_before_the_cut() -> None:
    override = json.dumps({"num_hidden_layers": 2, "moe_intermediate_size": 1024, "mlp_only_layers": []})
    made = plan.make(start("--json-model-override-args", override))
    assert made.layer is not None
    assert (made.layer.config["num_hidden_layers"], made.layer.config["moe_intermediate_size"]) == (1, 1024)
    assert "--json-model-override-args" not in made.arguments


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--json-model-override-args", "{"], "is not JSON"),
        (["--json-model-override-args", "[1]"], "is no JSON object"),
        (["--tp-size", "4", "--ep-size", "8"], "ep 8"),
        (["--tp-size", "3"], "cannot be shared out"),
    ],
)
def test_layer_that_cannot_be_made_is_said_and_the_rest_is_still_planned(words: list[str], why: str) -> None:
    made = plan.make(start(*words, "--moe-runner-backend", "triton"))
    assert why in made.no_layer
    assert (made.layer, made.arguments, made.need_free_bytes) == (None, (), 0)
    assert [need.module for need in made.needs] == ["triton"]


def test_need_of_memory_is_twice_the_layer_and_what_a_process_takes() -> None:
    made = plan.make(start(config=GLM, version="0.5.23"))
    experts = 256 * 3 * 6144 * 2048 * 4.5 / 8
    assert 2 * experts + plan.BESIDE_BYTES < made.need_free_bytes < 2.5 * experts + plan.BESIDE_BYTES
    assert plan.make(start("--tp-size", "8", config=GLM)).need_free_bytes < made.need_free_bytes - 1.7 * experts


def test_environment_is_the_servers_but_for_tuning_results() -> None:
    inherited = {"PATH": "/bin", "HOME": "/root", "PYTHONPATH": "x", "TOKFORGE_API_KEY": "k", "LANG": "C"}
    given = {
        "SGLANG_CACHE_DIR": "/r/cache/sglang",
        "FLASHINFER_WORKSPACE_BASE": "/r/cache",
        "CUDA_VISIBLE_DEVICES": "3",
    }
    env = plan.environment(start(**given), inherited, "/tmp/w/cache", "GPU-a", "/r/cache/home")
    assert env == {
        "PATH": "/bin",
        "LANG": "C",
        "HOME": "/r/cache/home",
        "SGLANG_CACHE_DIR": "/tmp/w/cache",
        "FLASHINFER_WORKSPACE_BASE": "/r/cache",
        "CUDA_VISIBLE_DEVICES": "GPU-a",
        "PYTHONUNBUFFERED": "1",
    }
    newer = plan.environment(start(version="0.5.18", **given, TILELANG_CACHE_DIR="/t"), {}, "/tmp/w/cache")
    assert (newer["SGLANG_DG_CACHE_DIR"], newer["TILELANG_CACHE_DIR"]) == ("/r/cache/sglang/deep_gemm", "/t")
    assert newer["SGLANG_CUTE_AOT_CACHE_DIR"] == "/r/cache/sglang/cute_aot"
    assert newer["CUDA_VISIBLE_DEVICES"] == "3"
    at_home = plan.environment(start(version="0.6.dev1"), {"HOME": "/h"}, "/tmp/w/cache")
    assert at_home["CUDA_CACHE_PATH"] == "/h/.cache/sglang/nv"
    assert "CUDA_CACHE_PATH" not in plan.environment(start(version="0.5.18"), {}, "/tmp/w/cache")


def test_autotune_is_expected_as_of_the_server_itself() -> None:
    opened = replace(start("--moe-runner-backend", "flashinfer_cutlass"), tuned=frozenset(["flashinfer_cutlass"]))
    made = plan.make(opened)
    assert plan.expectation(opened, made, (9, 0)).value == "expected"
    assert plan.expectation(opened, made, (8, 9)).value == "not_expected"
    assert plan.expectation(replace(opened, tuned=frozenset()), made, (9, 0)).value == "not_expected"


# --- the GPU ---------------------------------------------------------------------------------------------------------


def report(*free_gib: float | None, state: str = gpu.OK, **more: Any) -> gpu.Report:
    gpus = tuple(
        gpu.Gpu(
            index, "NVIDIA X", uuid=f"GPU-{index}a", memory_free_bytes=None if free is None else int(free * GIB), **more
        )
        for index, free in enumerate(free_gib)
    )
    return gpu.Report(state, "nvidia-smi is not there", gpus=gpus)


def chosen(found: gpu.Report, *words: str, **env: str) -> int | str:
    one, why = plan.choose_gpu(found, plan.make(start(*words)), env)
    assert (one is None) == bool(why)
    return why if one is None else one.index


def test_first_gpu_of_the_server_with_enough_free_memory_is_taken() -> None:
    assert chosen(report(80, 80)) == 0
    assert chosen(report(1, 80), "--tp-size", "2") == 1
    assert chosen(report(80, 80, 80, 80), CUDA_VISIBLE_DEVICES="2,3") == 2
    assert chosen(report(80, 80, 80), CUDA_VISIBLE_DEVICES="GPU-1a, GPU-2a") == 1
    assert chosen(report(80, 80, 80, 80), "--base-gpu-id", "1", "--gpu-id-step", "2") == 1
    assert chosen(report(1, 80, 80), "--tp-size", "2", "--gpu-id-step", "2") == 2
    assert chosen(report(1, 1, 80), "--dp-size", "3") == 2
    assert chosen(report(80, state=gpu.LOST)) == 0


def test_gpu_of_somebody_else_is_not_taken_and_a_full_one_is_not_disturbed() -> None:
    assert chosen(report(2, 3, 80), "--tp-size", "2") == (
        "no GPU has 9 GB free (the most is 3 GB, GPU 1); what runs there is not disturbed"
    )
    assert "no GPU has" in str(chosen(report(None)))


@pytest.mark.parametrize(
    ("found", "env", "why"),
    [
        (report(state=gpu.NO_TOOL), {}, "nvidia-smi is not there"),
        (report(), {}, "nvidia-smi is not there"),
        (report(80), {"CUDA_VISIBLE_DEVICES": "7,0"}, "none of the GPUs"),
        (report(80), {"CUDA_VISIBLE_DEVICES": ""}, "none of the GPUs"),
        (report(80, mig=True), {}, "MIG"),
        (report(80, problem="GPU is lost"), {}, "do not answer"),
    ],
)
def test_gpu_that_cannot_be_told_or_used_is_none(found: gpu.Report, env: dict[str, str], why: str) -> None:
    assert why in str(chosen(found, **env))


# --- what a backend needs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "version", "quantization", "expected"),
    [
        ("flashinfer_cutlass", "0.5.12.post1", "", ["flashinfer.fused_moe.cutlass_fused_moe"]),
        ("flashinfer_cutlass", "0.5.5", "", []),
        ("flashinfer_cutlass", "0.6.0.dev7+local", "fp8", ["flashinfer.fused_moe.cutlass_fused_moe"]),
        ("flashinfer_trtllm", "0.5.12", "", ["flashinfer.fused_moe.trtllm_bf16_moe"]),
        ("flashinfer_trtllm", "0.5.6", "", []),
        ("flashinfer_trtllm", "0.5.12", "modelopt_fp4", ["flashinfer.fused_moe.trtllm_fp4_block_scale_moe"]),
        ("flashinfer_trtllm", "0.5.12", "modelopt_fp8", ["flashinfer.fused_moe.trtllm_fp8_per_tensor_scale_moe"]),
        ("flashinfer_cutedsl", "0.5.10.post1", "modelopt_fp4", ["sgl_kernel.cutlass_fp4_group_mm"]),
        ("flashinfer_cutedsl", "0.5.11", "modelopt_fp4", ["flashinfer.CuteDslMoEWrapper"]),
        ("triton_kernel", "0.5.17", "", ["triton_kernels.matmul_ogs.matmul_ogs"]),
        ("triton_kernel", "0.5.18", "", ["triton_kernels.matmul.matmul"]),
        ("aiter", "0.5.23", "", []),
    ],
)
def test_needs_of_a_backend_follow_the_release(
    backend: str, version: str, quantization: str, expected: list[str]
) -> None:
    assert [f"{need.module}.{need.symbol}" for need in probe_needs.of(backend, version, quantization)] == expected


def test_backend_without_known_needs_says_so() -> None:
    assert "chooses the MoE backend by itself" in plan.make(start()).no_needs
    unknown = plan.make(start("--moe-runner-backend", "marlin", "--quantization", "awq"))
    assert unknown.no_needs == "it is not known what marlin with awq takes from other packages in SGLang 0.5.12.post1"
    assert (unknown.needs, plan.make(start("--moe-runner-backend", "triton")).no_needs) == ((), "")


def test_every_need_was_read_somewhere() -> None:
    for need in probe_needs.NEEDS:
        assert any(proof.wheel.startswith("sglang ") for proof in need.proofs), need
        assert all(len(proof.wheel.split()) == 2 and proof.file.endswith(".py") for proof in need.proofs), need
