# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a MoE runner backend takes from other packages: the function or class that SGLang's own code imports for it.

Each row was read in the wheels of the releases at both ends of its range. A package can be there without the symbol
(another version), and import without its kernels: only the layer step proves these.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils.compat_data import Proof
from ansible_collections.tokforge.sglang.plugins.module_utils.releases import in_span

_CUTEDSL = "sglang/srt/layers/moe/moe_runner/flashinfer_cutedsl.py"
_CUTLASS = "sglang/srt/layers/moe/cutlass_moe.py"
_DEEP_GEMM = "sglang/srt/layers/deep_gemm_wrapper/entrypoint.py"
_MEGAMOE = "sglang/srt/layers/moe/flashinfer_megamoe.py"
_MODELOPT = "sglang/srt/layers/quantization/modelopt_quant.py"
_MXFP4 = "sglang/srt/layers/quantization/mxfp4.py"
_RUNNER = "sglang/srt/layers/moe/moe_runner/flashinfer_cutlass.py"
_TRITON_KERNELS = "sglang/srt/layers/moe/fused_moe_triton/triton_kernels_moe.py"
_TRTLLM = "sglang/srt/layers/moe/moe_runner/flashinfer_trtllm.py"
_TRTLLM_MOE = "sglang/srt/layers/moe/flashinfer_trtllm_moe.py"
_UNQUANT = "sglang/srt/layers/quantization/unquant.py"


@dataclass(frozen=True)
class Need:
    """A symbol that a backend needs in a range of releases ("first..last", both inclusive, either may be left out).

    `quantization` are SGLang's names, "none" for none; empty: whatever it is.
    """

    backend: str
    module: str
    symbol: str
    sglang: str
    proofs: tuple[Proof, ...]
    quantization: tuple[str, ...] = ()


def _read(file: str, text: str, *versions: str) -> tuple[Proof, ...]:
    return tuple(Proof(f"sglang {version}", file, text) for version in versions)


_FUSED = "flashinfer.fused_moe"
_FLASHINFER = "flashinfer/fused_moe/__init__.py"

NEEDS: tuple[Need, ...] = (
    Need(
        "flashinfer_cutlass",
        _FUSED,
        "cutlass_fused_moe",
        "0.5.6..",
        (
            *_read(_UNQUANT, "from flashinfer.fused_moe import cutlass_fused_moe", "0.5.6", "0.5.14"),
            *_read(_MODELOPT, "from flashinfer.fused_moe import cutlass_fused_moe", "0.5.6", "0.5.14"),
            *_read(_RUNNER, "from flashinfer.fused_moe import cutlass_fused_moe", "0.5.15", "0.5.23"),
            Proof("flashinfer-python 0.6.11.post1", _FLASHINFER, "cutlass_fused_moe,"),
            Proof("flashinfer-python 0.7.2", _FLASHINFER, "cutlass_fused_moe,"),
        ),
    ),
    Need(
        "flashinfer_trtllm",
        _FUSED,
        "trtllm_bf16_moe",
        "0.5.7..",
        (
            *_read(
                "sglang/srt/layers/moe/fused_moe_triton/layer.py",
                "from flashinfer.fused_moe import trtllm_bf16_moe",
                "0.5.7",
                "0.5.9",
            ),
            *_read(_TRTLLM, "trtllm_bf16_moe", "0.5.10", "0.5.23"),
            Proof("flashinfer-python 0.7.2", _FLASHINFER, "trtllm_bf16_moe,"),
        ),
        ("none",),
    ),
    Need(
        "flashinfer_trtllm",
        _FUSED,
        "trtllm_fp8_block_scale_moe",
        "0.5.6..",
        (
            *_read("sglang/srt/layers/quantization/fp8.py", "trtllm_fp8_block_scale_moe", "0.5.6", "0.5.7"),
            *_read(_TRTLLM, "trtllm_fp8_block_scale_moe", "0.5.8", "0.5.9"),
            *_read(_TRTLLM_MOE, "from flashinfer.fused_moe import trtllm_fp8_block_scale_moe", "0.5.10", "0.5.23"),
            Proof("flashinfer-python 0.7.2", _FLASHINFER, "trtllm_fp8_block_scale_moe,"),
        ),
        ("fp8",),
    ),
    Need(
        "flashinfer_trtllm",
        _FUSED,
        "trtllm_fp8_per_tensor_scale_moe",
        "0.5.6..",
        (
            *_read(_MODELOPT, "from flashinfer.fused_moe import trtllm_fp8_per_tensor_scale_moe", "0.5.6", "0.5.7"),
            *_read(_TRTLLM, "trtllm_fp8_per_tensor_scale_moe", "0.5.8", "0.5.9"),
            *_read(_TRTLLM_MOE, "from flashinfer.fused_moe import trtllm_fp8_per_tensor_scale_moe", "0.5.10", "0.5.23"),
            Proof("flashinfer-python 0.7.2", _FLASHINFER, "trtllm_fp8_per_tensor_scale_moe,"),
        ),
        ("modelopt_fp8",),
    ),
    Need(
        "flashinfer_trtllm",
        _FUSED,
        "trtllm_fp4_block_scale_moe",
        "0.5.6..",
        (
            *_read("sglang/srt/layers/moe/fused_moe_triton/layer.py", "trtllm_fp4_block_scale_moe", "0.5.6", "0.5.9"),
            *_read(_TRTLLM, "trtllm_fp4_block_scale_moe", "0.5.10", "0.5.23"),
            Proof("flashinfer-python 0.7.2", _FLASHINFER, "trtllm_fp4_block_scale_moe,"),
        ),
        ("modelopt_fp4",),
    ),
    Need(
        "flashinfer_trtllm_routed",
        _FUSED,
        "trtllm_bf16_routed_moe",
        "0.5.10..",
        _read(_TRTLLM, "from flashinfer.fused_moe import trtllm_bf16_routed_moe", "0.5.10", "0.5.23"),
        ("none",),
    ),
    Need(
        "flashinfer_trtllm_routed",
        _FUSED,
        "trtllm_fp8_block_scale_routed_moe",
        "0.5.10..",
        _read(_TRTLLM_MOE, "from flashinfer.fused_moe import trtllm_fp8_block_scale_routed_moe", "0.5.10", "0.5.23"),
        ("fp8",),
    ),
    Need(
        "flashinfer_trtllm_routed",
        _FUSED,
        "trtllm_fp4_block_scale_routed_moe",
        "0.5.11..",
        _read(_TRTLLM, "trtllm_fp4_block_scale_routed_moe", "0.5.11", "0.5.23"),
        ("modelopt_fp4",),
    ),
    Need(
        "flashinfer_mxfp4",
        "flashinfer",
        "trtllm_fp4_block_scale_moe",
        "0.5.6..",
        (
            *_read(_MXFP4, "trtllm_fp4_block_scale_moe", "0.5.6", "0.5.23"),
            Proof("flashinfer-python 0.7.2", "flashinfer/__init__.py", "trtllm_fp4_block_scale_moe,"),
        ),
        ("mxfp4",),
    ),
    Need(
        "flashinfer_cutedsl",
        "sgl_kernel",
        "cutlass_fp4_group_mm",
        "0.5.6..0.5.10.post1",
        (
            *_read(_CUTLASS, "cutlass_fp4_group_mm,", "0.5.6", "0.5.9"),
            *_read(_CUTLASS, "cutlass_fp4_group_mm,", "0.5.10.post1"),
        ),
        ("modelopt_fp4",),
    ),
    Need(
        "flashinfer_cutedsl",
        "flashinfer",
        "CuteDslMoEWrapper",
        "0.5.11..",
        (
            *_read(_CUTEDSL, "from flashinfer import CuteDslMoEWrapper", "0.5.11", "0.5.12.post1", "0.5.15"),
            *_read(_CUTEDSL, "CuteDslMoEWrapper", "0.5.23"),
            Proof("flashinfer-python 0.7.2", "flashinfer/__init__.py", "CuteDslMoEWrapper as CuteDslMoEWrapper"),
        ),
    ),
    Need(
        "flashinfer_megamoe",
        "flashinfer.moe_ep",
        "MoEEpMegaLayer",
        "0.5.20..",
        _read(_MEGAMOE, "MoEEpMegaLayer", "0.5.20", "0.5.23"),
    ),
    Need(
        "deep_gemm",
        "deep_gemm",
        "m_grouped_fp8_gemm_nt_contiguous",
        "0.5.6..",
        _read(_DEEP_GEMM, "deep_gemm.m_grouped_fp8_gemm_nt_contiguous(", "0.5.6", "0.5.23"),
        ("fp8",),
    ),
    Need(
        "cutlass",
        "sgl_kernel",
        "fp8_blockwise_scaled_grouped_mm",
        "0.5.6..",
        _read(_CUTLASS, "fp8_blockwise_scaled_grouped_mm,", "0.5.6", "0.5.23"),
        ("fp8",),
    ),
    Need(
        "triton_kernel",
        "triton_kernels.matmul_ogs",
        "matmul_ogs",
        "0.5.6..0.5.17",
        _read(_TRITON_KERNELS, "from triton_kernels.matmul_ogs import", "0.5.6", "0.5.17"),
    ),
    Need(
        "triton_kernel",
        "triton_kernels.matmul",
        "matmul",
        "0.5.18..",
        _read(_TRITON_KERNELS, "from triton_kernels.matmul import", "0.5.18", "0.5.23"),
    ),
    Need(
        "triton",
        "triton",
        "jit",
        "",
        (
            *_read(
                "sglang/srt/layers/moe/fused_moe_triton/fused_moe_triton_kernels.py", "@triton.jit", "0.5.6", "0.5.10"
            ),
            *_read(
                "sglang/srt/layers/moe/moe_runner/triton_utils/fused_moe_triton_kernels.py", "@triton.jit", "0.5.15"
            ),
            *_read("sglang/kernels/ops/moe/fused_moe_triton_kernels.py", "@triton.jit", "0.5.23"),
        ),
    ),
)


def of(backend: str, version: str, quantization: str) -> tuple[Need, ...]:
    """What a backend needs in a release. Empty where nothing is known. A version that is no release is the newest."""
    return tuple(
        need
        for need in NEEDS
        if need.backend == backend
        and in_span(version, need.sglang)
        and (not need.quantization or (quantization or "none") in need.quantization)
    )
