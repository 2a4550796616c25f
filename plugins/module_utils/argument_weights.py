# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much each launch argument tells when two servers differ in speed or output, in the order of telling it.

The order is a judgement: first what changes what is computed and on which kernels, then how many requests share a step,
then how memory is divided, then the rest. Three of the first turned a deployment of GLM-5 around: CUDA graphs that were
off, the number of running requests, and the MoE backend. Names are those of a log, with underscores.
"""

from __future__ import annotations

from dataclasses import dataclass

#: What an argument decides.
OUTPUT = "decides_output"
SPEED = "decides_speed"
MAYBE = "may_matter"
INCIDENTAL = "incidental"


@dataclass(frozen=True)
class Weight:
    """What an argument decides, and why it does, as one clause; `hint` is empty where nothing is to be said."""

    weight: str
    hint: str = ""


#: In the order in which differences are told.
TELLING: dict[str, Weight] = {
    "disable_cuda_graph": Weight(SPEED, "without CUDA graphs every decode step launches its kernels one by one"),
    "max_running_requests": Weight(SPEED, "so many requests share a step; the others wait"),
    "moe_runner_backend": Weight(SPEED, "another set of expert kernels, the largest part of a MoE model's decode"),
    "model_path": Weight(OUTPUT, "another model"),
    "revision": Weight(OUTPUT, "another state of the model"),
    "quantization": Weight(OUTPUT, "other weights are read, in another number of bits"),
    "dtype": Weight(OUTPUT, "activations in another precision"),
    "load_format": Weight(OUTPUT, "dummy means random weights"),
    "json_model_override_args": Weight(OUTPUT, "another shape of the model"),
    "device": Weight(SPEED, "another kind of machine"),
    "tp_size": Weight(SPEED, "each GPU reads another share of the weights"),
    "pp_size": Weight(SPEED, "a token passes another number of stages"),
    "dp_size": Weight(SPEED, "another number of replicas shares the load"),
    "attn_dp_size": Weight(SPEED, "attention is split by requests instead of heads"),
    "ep_size": Weight(SPEED, "experts are spread instead of split"),
    "moe_a2a_backend": Weight(SPEED, "tokens reach their experts another way"),
    "nnodes": Weight(SPEED, "more than one node pays for the network"),
    "attention_backend": Weight(SPEED, "other attention kernels"),
    "prefill_attention_backend": Weight(SPEED, "other attention kernels for prompts"),
    "decode_attention_backend": Weight(SPEED, "other attention kernels for each new token"),
    "dsa_prefill_backend": Weight(SPEED, "other sparse attention kernels for prompts; they decided about NaN before"),
    "dsa_decode_backend": Weight(SPEED, "other sparse attention kernels for new tokens; they decided about NaN before"),
    "fp4_gemm_runner_backend": Weight(SPEED, "other kernels for every FP4 layer"),
    "fp8_gemm_runner_backend": Weight(SPEED, "other kernels for every FP8 layer"),
    "cuda_graph_backend_decode": Weight(SPEED, "decode steps are captured another way"),
    "cuda_graph_max_bs_decode": Weight(SPEED, "steps with more requests run without a graph"),
    "cuda_graph_bs_decode": Weight(SPEED, "other batch sizes have a graph; the others are padded to the next"),
    "disable_cuda_graph_padding": Weight(SPEED, "batch sizes without a graph of their own run without one"),
    "speculative_algorithm": Weight(SPEED, "several tokens a step, as many as are accepted"),
    "speculative_num_steps": Weight(SPEED, "drafts reach further, and are accepted less often"),
    "speculative_eagle_topk": Weight(SPEED, "one chain of drafts, or a tree"),
    "speculative_num_draft_tokens": Weight(SPEED, "so many drafts are checked a step"),
    "speculative_draft_model_path": Weight(SPEED, "another draft model is accepted another share of the time"),
    "speculative_moe_runner_backend": Weight(SPEED, "other expert kernels in the draft model"),
    "disable_flashinfer_autotune": Weight(SPEED, "without autotune FlashInfer takes its default kernels"),
    "kv_cache_dtype": Weight(OUTPUT, "the cache holds keys and values in another precision"),
    "disable_shared_experts_fusion": Weight(OUTPUT, "shared experts run apart; for some models only one way works"),
    "chunked_prefill_size": Weight(SPEED, "long prompts hold up decode steps for longer or shorter"),
    "max_prefill_tokens": Weight(SPEED, "so many prompt tokens share a step"),
    "mem_fraction_static": Weight(SPEED, "more or less room for the cache, and so for running requests"),
    "max_total_tokens": Weight(SPEED, "the cache holds so many tokens"),
    "context_length": Weight(OUTPUT, "longer requests are cut or refused"),
    "page_size": Weight(SPEED, "the cache is handed out in larger or smaller pieces"),
    "disable_radix_cache": Weight(SPEED, "a prompt's beginning is computed anew each time"),
    "enable_hierarchical_cache": Weight(SPEED, "the cache reaches into host memory"),
    "disable_overlap_schedule": Weight(SPEED, "the CPU's part of a step is no longer hidden behind the GPU's"),
    "schedule_policy": Weight(SPEED, "requests run in another order"),
    "schedule_conservativeness": Weight(SPEED, "more or fewer requests are let in at once"),
    "enable_mixed_chunk": Weight(SPEED, "prompts and decode share steps"),
    "num_continuous_decode_steps": Weight(SPEED, "the scheduler looks up less often"),
    "flashinfer_allreduce_fusion_backend": Weight(SPEED, "sums over GPUs are fused with what follows"),
    "enable_flashinfer_allreduce_fusion": Weight(SPEED, "sums over GPUs are fused with what follows"),
    "disable_custom_all_reduce": Weight(SPEED, "sums over GPUs go through NCCL"),
    "enable_torch_compile": Weight(SPEED, "layers are compiled"),
    "cuda_graph_backend_prefill": Weight(SPEED, "prompts run with or without graphs"),
    "cuda_graph_max_bs_prefill": Weight(SPEED, "longer chunks of prompts run without a graph"),
    "cuda_graph_bs_prefill": Weight(SPEED, "other lengths of prompts have a graph"),
    "sampling_backend": Weight(OUTPUT, "tokens are drawn by other code"),
    "enable_deterministic_inference": Weight(OUTPUT, "slower kernels that give the same output every time"),
    "cpu_offload_gb": Weight(SPEED, "weights in host memory are copied every step"),
    "enable_two_batch_overlap": Weight(SPEED, "two halves of a batch hide each other's communication"),
    "enable_eplb": Weight(SPEED, "experts move to where they are needed"),
    "ep_num_redundant_experts": Weight(SPEED, "more experts share the load and take memory"),
    "moe_dense_tp_size": Weight(SPEED, "dense layers are split another way"),
    "enable_lora": Weight(OUTPUT, "adapters change the weights"),
    "lora_paths": Weight(OUTPUT, "adapters change the weights"),
    "disaggregation_mode": Weight(SPEED, "prompts and decode run on different servers"),
    "stream_interval": Weight(SPEED, "tokens are sent in larger groups"),
    "tokenizer_path": Weight(OUTPUT, "another tokenizer"),
    "chat_template": Weight(OUTPUT, "messages become other prompts"),
    "reasoning_parser": Weight(OUTPUT, "answers are taken apart another way"),
    "tool_call_parser": Weight(OUTPUT, "tool calls are taken apart another way"),
    "grammar_backend": Weight(OUTPUT, "structured output is forced by other code"),
    "skip_server_warmup": Weight(SPEED, "the first requests pay for the warmup"),
    "enable_metrics": Weight(MAYBE, "counting costs a little"),
}

#: What says nothing about speed or output, whatever it is.
INCIDENTALS = frozenset(
    {
        "host", "port", "nccl_port", "dist_init_addr", "grpc_port", "random_seed", "served_model_name", "api_key",
        "admin_api_key", "ssl_keyfile", "ssl_certfile", "ssl_ca_certs", "ssl_keyfile_password", "log_level",
        "log_level_http", "log_requests", "log_requests_level", "log_requests_format", "log_requests_target",
        "uvicorn_access_log_exclude_prefixes", "download_dir", "file_storage_path", "crash_dump_folder",
        "decode_log_interval", "show_time_cost", "instance_id", "base_gpu_id", "node_rank", "watchdog_timeout",
        "soft_watchdog_timeout", "dist_timeout", "engine_info_bootstrap_port", "disaggregation_bootstrap_port",
        "otlp_traces_endpoint", "trace_modules", "export_metrics_to_file", "export_metrics_to_file_dir", "version",
        "metrics_http_port", "launch_command",
    }
)  # fmt: skip

_ORDER = {name: place for place, name in enumerate(TELLING, start=1)}
_PLAIN = Weight(MAYBE)
_NOTHING = Weight(INCIDENTAL)


def of(name: str) -> Weight:
    """What the argument decides."""
    return TELLING.get(name) or (_NOTHING if name in INCIDENTALS else _PLAIN)


def rank(name: str, one_sided: bool) -> int:
    """Where a difference stands: the lower, the earlier. `one_sided` when only one of two servers has the argument."""
    if name in INCIDENTALS:
        return len(_ORDER) + 3
    if name in _ORDER:
        return _ORDER[name]
    return len(_ORDER) + (2 if one_sided else 1)
