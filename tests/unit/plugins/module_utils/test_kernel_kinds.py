# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names as traces show them: of SGLang servers on Hopper and Blackwell, and of PyTorch on a CPU."""

from __future__ import annotations

import re

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import kernel_kinds
from ansible_collections.tokforge.sglang.plugins.module_utils.kernel_kinds import (
    ALL_REDUCE,
    ATTENTION,
    ELEMENTWISE,
    GEMM,
    MOE_GEMM,
    MOE_ROUTING,
    OTHER,
)

NAMES = {
    ALL_REDUCE: (
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void sglang::cross_device_reduce_1stage<__nv_bfloat16, 8>(sglang::RankData*, sglang::RankSignals)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(flashinfer::"
        "trtllm_allreduce_fusion::AllReduceFusionPattern)1, __nv_bfloat16, 8, false, false>(Params)",
        "void (anonymous namespace)::all_reduce_one_shot_push_kernel<__nv_bfloat16, 4u, true>(AllReducePushData)",
        "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(c10::BFloat16**)",
        "multimem_one_shot_all_reduce_kernel",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
        "c10d::allreduce_",
    ),
    MOE_GEMM: (
        "fused_moe_kernel",
        "bmm_E2m1_E2m1E2m1_Fp32_Ab16_Bb16_Cb16_t128x128x512u2_s3_et128x32_swiGlu_dynB_sm100f",
        "void deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<(cute::UMMA::Major)0, 128u, (deep_gemm::GemmType)2, false>(int*)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<cute::tuple"
        "<long, long, long> >, cutlass::gemm::collective::CollectiveMma<MainloopSm90ArrayTmaGmmaWarpSpecialized> > >",
        "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalINS1_17GroupProblemShapeIN4cute5tupleIJlllEEEEE",
        "void marlin_moe_wna16::Marlin<__nv_bfloat16, 1125899906909960L, 256>(int4 const*)",
        "sgl_kernel::fused_experts_cpu",
    ),
    MOE_ROUTING: (
        "void moe_align_block_size_kernel<int>(int const*, int*)",
        "void topkGatingSoftmax<float, 8, 128, 4, 16>(float const*)",
        "void tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingKernel<__nv_bfloat16>(Params)",
        "void expandInputRowsKernel<__nv_bfloat16>(__nv_bfloat16 const*)",
        "void moe::dev::routing::routingCustom::routingIndicesClusterKernel",
        "_moe_sum_reduce_kernel",
    ),
    ATTENTION: (
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, 1u, 8u>(Params)",
        "fmhaSm100fKernel_QkvE4m3OBfloat16HQk576HV512HVPerCta256PagedKvDenseP64MultiCtasKvVarSeqQ16Kv128",
        "_fwd_grouped_kernel_stage1",
        "_fwd_kernel_stage2",
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<CollectiveMainloop> > >",
        "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64> >(Flash_fwd_params)",
        "create_flashinfer_kv_indices_triton",
        "fused_recurrent_gated_delta_rule_update_fwd_kernel",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
    ),
    GEMM: (
        "nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT",
        "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u, (deep_gemm::GemmType)0>(float*)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int> > >",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)",
        "void flashinfer::trtllm_dsv3_router_gemm::router_gemm_kernel<__nv_bfloat16, float, 128, 8, 6>(float*)",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off",
        "_w8a8_block_fp8_matmul",
        "aten::mm",
        "aten::linear",
    ),
    ELEMENTWISE: (
        "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)",
        "kernel_cutlass_kernel_flashinfernormkernelsfused_add_rmsnormFusedAddRMSNormKernel_object_at__tensorptrbf16"
        "gmemalign128o409640961_tensorptrbf16gmemalign_0",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >(int)",
        "void sglang::per_token_group_quant_8bit_kernel<NaiveScheduler, 128, 8, __nv_bfloat16>()",
        "void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16>(__nv_bfloat16*)",
        "Memcpy DtoH (Device -> Pinned)",
        "triton_poi_fused_add_0",
        "aten::copy_",
    ),
    OTHER: ("my_new_thing_v2", "", "<script>alert(1)</script>"),
}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in NAMES.items() for name in names])
def test_a_kernel_is_known_by_its_name(kind: str, name: str) -> None:
    assert kernel_kinds.kind_of(name) == kind


def test_every_rule_has_a_known_kind_and_a_pattern_that_finds_something() -> None:
    for kind, pattern in kernel_kinds.RULES:
        assert kind in kernel_kinds.KINDS
        assert kind != OTHER
        assert re.compile(pattern).search("") is None


def test_a_name_without_an_end_is_judged_by_its_start() -> None:
    assert kernel_kinds.kind_of("x" * 5_000_000 + "fused_moe_kernel") == OTHER
    assert kernel_kinds.kind_of("fused_moe_kernel" + "x" * 5_000_000) == MOE_GEMM
