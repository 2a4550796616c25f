# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kernel of a decode step does, by its name.

Rules are data: the first pattern that is found in a name decides. Names were read in the sources of SGLang 0.5.10.post1
to 0.5.23, of FlashInfer 0.5.0 to 0.7.2 (CUDA sources in its wheel) and in traces of SGLang servers that are public;
those of cuBLAS, CUTLASS, cuDNN and NCCL are what these libraries call their kernels in traces. A name that no rule
knows is OTHER: a new release's kernel must be seen as unknown, not be counted to a wrong part.

Two names mislead. A CUTLASS or DeepGEMM kernel is one template for dense layers and for experts: the experts' form has
groups (an array of pointers, GroupProblemShape, DeepGEMM's GemmType 1 and up). A kernel that fuses an all-reduce with
a norm is an all-reduce: waiting for the other ranks is what it does most.
"""

from __future__ import annotations

import re
from functools import lru_cache

ATTENTION = "attention"
MOE_GEMM = "moe_gemm"
MOE_ROUTING = "moe_routing"
ALL_REDUCE = "all_reduce"
GEMM = "gemm"
ELEMENTWISE = "elementwise"
OTHER = "other"

#: In the order in which people read them. ALL_REDUCE is all communication between GPUs; ELEMENTWISE is norms,
#: activations, rotary embedding, quantizing, sampling, copies.
KINDS = (ATTENTION, MOE_GEMM, MOE_ROUTING, ALL_REDUCE, GEMM, ELEMENTWISE, OTHER)

#: Longer names (templates of templates) are judged by their start.
_JUDGED_CHARACTERS = 4096

RULES: tuple[tuple[str, str], ...] = (
    # Communication first: fused kernels also name the norm, and symmetric memory kernels the dtype's GEMM.
    (ALL_REDUCE, r"^nccl|ncclDevKernel|ncclKernel|^gloo:|^c10d::|_c10d_functional|^nccl:"),
    (ALL_REDUCE, r"(?i)all_?reduce|cross_device_reduce|all_?gather|reduce_?scatter|all_?to_?all|nvshmem|mscclpp"),
    (ALL_REDUCE, r"(?i)multimem|symm_mem|deep_ep|quick_?reduce|userbuffers|internode::|intranode::"),
    (ALL_REDUCE, r"^(ce_|ipc_(rsag|topo|tp))|SendRecv"),
    # Experts: before attention and dense GEMMs, whose words they share.
    (MOE_GEMM, r"^fused_moe_kernel|fused_moe_kernel_gptq_awq|_moe_gemm|moe_gemm|moe_wna16|MoeFCGemm|MoeGemm(?!Id)"),
    (MOE_GEMM, r"(?i)fused_experts|grouped_?gemm|group_?gemm|gemm_grouped"),
    (MOE_GEMM, r"(?i)grouped_mm|group_mm|cutedsl.*moe|moe.*gemm"),
    (MOE_GEMM, r"GroupProblemShape|ArrayTma|PtrArray|MoEProblem|moe_mxgemm|marlin_moe|MarlinMoe"),
    (MOE_GEMM, r"(?s)deep_gemm::.*GemmType\)[1-9]|deep_gemm.*m_grouped"),
    (MOE_GEMM, r"^kernel_cake_.*_moe_[0-9a-f]{20}$"),
    # FlashInfer's trtllm-gen batched GEMM: only experts give it a dynamic batch.
    (MOE_GEMM, r"^bmm_.*dynB"),
    (MOE_ROUTING, r"(?i)moe_?align|moe_?sum|moe_fused_gate|fused_moe_router|moe::dev|moe_?permute|moe_?route"),
    (
        MOE_ROUTING,
        r"(?i)topk_?(softmax|sigmoid|gating)|TopkGating|grouped_topk|biased_topk|routing(Main|Indices|DeepSeek)",
    ),
    (MOE_ROUTING, r"expandInputRows|finalizeMoe|finalizeKernel"),
    (MOE_ROUTING, r"doActivationKernel|doGatedActivation|computeStridesTma"),
    (
        MOE_ROUTING,
        r"ExpertMaps|ExpertFirstToken|ExpertPrefixSum|blockExpert|globalExpert|mergeExpert|count_and_sort_expert",
    ),
    (
        MOE_ROUTING,
        r"(?i)ep_(gather|scatter)|(pre|post)_reorder|src2dst|seg_indptr|masked_m|shuffle_?rows|shared_experts",
    ),
    (MOE_ROUTING, r"(?i)routed|expert|moe|mega_gate|finalizeDeepSeek"),
    (ATTENTION, r"(?i)BatchMLA|AttentionSum|ComputeLSE|ConcatMLA|sparse_(mla|prefill|decode)|_mqa_|blackwell_msa"),
    (ATTENTION, r"(?i)fmha|flash_?attn|flash_?fwd|flash_?infer::(mla|hopper)"),
    (ATTENTION, r"(?i)FlashAttn|flash::|flash_?mla|fwd_splitkv"),
    (ATTENTION, r"(?i)Batch(Decode|Prefill)|Single(Decode|Prefill)|PersistentVariableLengthMergeStates|merge_?state"),
    (ATTENTION, r"(?i)PagedKV|paged_?attention|paged_mqa|mqa_logits|attention_kernel|sdpa|scaled_dot_product|mha_"),
    (
        ATTENTION,
        r"_fwd_kernel_stage[12]|_fwd_grouped_kernel_stage1|_fwd_kernel_unified|^_fwd_kernel$|unified_attention",
    ),
    (
        ATTENTION,
        r"(?i)gated_delta|delta_rule|mamba|selective_scan|linear_attn|causal_conv1d|chunk_(scan|state)|seg_la_",
    ),
    (
        ATTENTION,
        r"(?i)decode_attention|extend_attention|(?<![a-z])mla(?![a-z])|sparse_(gqa|attn)|xqa|lean_attn|cudnn.*sdpa",
    ),
    (ATTENTION, r"(?i)kv_indices|kv_?cache|kv_buffer|page_table|num_kv_splits|reshape_and_cache|k_and_s"),
    (GEMM, r"(?i)gemm|nvjet|gemv|cublas|cutlass.*(Kernel2|GemmUniversal)|_mm_|matmul|marlin|splitKreduce|dot_kernel"),
    (
        GEMM,
        r"^aten::(mm|bmm|addmm|baddbmm|linear|matmul|_scaled_mm)$|^mkldnn|weight_packed_linear|xmma|s16816|s884|h884",
    ),
    (GEMM, r"(?i)deep_gemm|fp8_blockwise_scaled|scaled_mm|lora.*(shrink|expand)|^bmm_|cake_blackwell_bf16_fp4"),
    (ELEMENTWISE, r"(?i)norm|rope|rotary|silu|gelu|swiglu|act_and_mul|activation|quant|cvt_|dequant|hadamard"),
    (ELEMENTWISE, r"(?i)elementwise|vectorized|unrolled|reduce_kernel|softmax|sampling|top_?[kp]|argmax|sort|radix"),
    (ELEMENTWISE, r"resolve_future_token_ids"),
    (
        ELEMENTWISE,
        r"(?i)index|gather|scatter|copy|fill|cat(?:array|_)|embedding|arange|where|cudaD2D|cumsum|scan|memcpy|memset",
    ),
    (
        ELEMENTWISE,
        r"^triton_(poi|red|per|tem)|^aten::|(?i:clamp|compare|logits|penalt|assign_|position|transpose|mask)",
    ),
)

_COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in RULES)


@lru_cache(maxsize=16384)
def kind_of(name: str) -> str:
    """The kind of a kernel, or of an operation of PyTorch on a CPU, one of KINDS."""
    start = name[:_JUDGED_CHARACTERS]
    for kind, pattern in _COMPILED:
        if pattern.search(start):
            return kind
    return OTHER
