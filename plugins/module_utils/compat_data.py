# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which backend of which SGLang release runs on which GPU with which quantization, and where that was read.

Every row was read in released wheels, SGLang 0.5.0rc0 to 0.5.23 and flashinfer-python 0.5.0 to 0.7.2, and names files
and texts in them; `tests/integration/test_compat_releases.py` looks whether they are there. `compat.py` judges by them.
"""

from __future__ import annotations

from dataclasses import dataclass

SUPPORTED = "supported"
SUPPORTED_BUT = "supported_but"
UNSUPPORTED = "unsupported"
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Proof:
    """Where a fact was read: `text` stands in `file` of `wheel` ("sglang 0.5.11", "flashinfer-python 0.6.12")."""

    wheel: str
    file: str
    text: str


@dataclass(frozen=True)
class Row:
    """One fact. It holds where all conditions hold; an empty condition always does.

    part: what it is about, one of `compat_match.PARTS`.
    backends: values of the part's flag, or of what the part is named after; empty: any.
    reason: one clause, what happens. It may use {backend} {capability} {sm} {sglang} {flashinfer} {quantization} {tp}
        {ep}.
    source: for a fact that no wheel shows.
    sglang, flashinfer: "0.5.11..0.5.19" (both ends inclusive), "0.5.11..", "..0.5.10.post1", "0.5.12".
    capability: "12.*", "9.0..", "..8.9", "10.0|10.3".
    quantization: SGLang's names, "none" for none. not_quantization: any but these.
    parallel: a name in `compat_match.PARALLEL`. a2a: values of moe_a2a_backend.
    args: launch arguments that must have one of these values; one that is left out counts as "auto".
    unless_args: the row does not hold when one of them has one of these values.
    """

    part: str
    backends: tuple[str, ...]
    verdict: str
    reason: str
    proofs: tuple[Proof, ...] = ()
    source: str = ""
    sglang: str = ""
    flashinfer: str = ""
    capability: str = ""
    quantization: tuple[str, ...] = ()
    not_quantization: tuple[str, ...] = ()
    parallel: str = ""
    a2a: tuple[str, ...] = ()
    args: tuple[tuple[str, tuple[str, ...]], ...] = ()
    unless_args: tuple[tuple[str, tuple[str, ...]], ...] = ()


def _sglang(file: str, text: str, *releases: str) -> tuple[Proof, ...]:
    """The same text in the same file of several SGLang releases."""
    return tuple(Proof(f"sglang {release}", file, text) for release in releases)


def _flashinfer(file: str, text: str, *versions: str) -> tuple[Proof, ...]:
    """The same for flashinfer-python."""
    return tuple(Proof(f"flashinfer-python {version}", file, text) for version in versions)


_ARGS = "sglang/srt/server_args.py"
_HOOK = "sglang/srt/arg_groups/moe_hook.py"
_OVERRIDES = "sglang/srt/arg_groups/overrides.py"
_MODELOPT = "sglang/srt/layers/quantization/modelopt_quant.py"
_FP8_FILE = "sglang/srt/layers/quantization/fp8.py"
_UNQUANT = "sglang/srt/layers/quantization/unquant.py"
_MXFP4 = "sglang/srt/layers/quantization/mxfp4.py"
_RUNNER = "sglang/srt/layers/moe/moe_runner/runner.py"
_COMMON = "sglang/srt/utils/common.py"
_LOADER_FILE = "sglang/srt/model_loader/loader.py"
_CUTEDSL = "sglang/srt/layers/moe/moe_runner/flashinfer_cutedsl.py"
_DEEP_GEMM = "sglang/srt/layers/deep_gemm_wrapper/configurer.py"
_DISPATCHER = "sglang/srt/layers/moe/token_dispatcher/flashinfer.py"
_FI_CORE = "flashinfer/fused_moe/core.py"
_FI_TRTLLM = "flashinfer/data/csrc/trtllm_fused_moe_kernel_launcher.cu"
_FI_SWIGLU = "flashinfer/fused_moe/cute_dsl/blockscaled_contiguous_gather_grouped_gemm_swiglu_fusion.py"
_FI_ACT = "flashinfer/fused_moe/cute_dsl/blockscaled_contiguous_gather_grouped_gemm_act_fusion.py"
_FI_OLD_MASKED = "flashinfer/cute_dsl/blockscaled_gemm.py"
_FI_WRAPPER = "flashinfer/fused_moe/cute_dsl/fused_moe.py"
_FI_MASKED = "flashinfer/gemm/kernels/grouped_gemm_masked_blackwell.py"

_SM10 = "10.0|10.3"
_TRTLLM = ("flashinfer_trtllm", "flashinfer_trtllm_routed", "experimental_sgl_trtllm")
#: Every value that --moe-runner-backend had in a release that was read.
MOE_BACKENDS = (
    "auto",
    "triton",
    "triton_kernel",
    *_TRTLLM,
    "flashinfer_cutlass",
    "flashinfer_mxfp4",
    "flashinfer_cutedsl",
    "flashinfer_megamoe",
    "deep_gemm",
    "cutlass",
    "aiter",
    "marlin",
    "humming",
    "experimental_sgl_marlin",
    "hpc_ops",
    "megamoe",
    "intel_xpu",
    "lora_cutedsl",
    "lora_triton",
    "lora_marlin",
)
_OF_A2A = (
    "mooncake",
    "ascend_fuseep",
    "ascend_tp",
    "mori",
    "nixl",
    "megamoe",
    "pplx",
    "deepep_v2",
    "flashinfer_megamoe",
)
_NVFP4_STAND_IN = (
    "with NVFP4 weights SGLang {sglang} runs cutlass_moe_fp4, its own CUTLASS FP4 experts, under this name: "
    "FlashInfer has nothing to tune and no autotune line comes from it"
)
_TRITON_STAND_IN = "with this quantization SGLang {sglang} runs its Triton experts under this name"
_NVFP4_NEEDS = "the NVFP4 experts of SGLang {sglang} refuse compute capability {capability} while the model loads"
_NVFP4_NO_PATH = "SGLang {sglang} has no NVFP4 experts for {backend}: the server dies at its first forward pass"
_QUANTIZATIONS = "SGLang {sglang} refuses {backend} with quantization {quantization} at start; it takes "
_EP = "SGLang {sglang} refuses {backend} at start unless ep is 1 or tp; here tp is {tp} and ep {ep}"
_TEN_ONLY = "its kernels run on compute capability 10.x only; on {capability} "

#: The oldest and the newest flashinfer-python whose files were read; those in between are taken to be alike.
FLASHINFER_READ = ("0.5.0", "0.7.2")

# What the class for NVFP4 experts refuses whatever the backend.
_NVFP4 = (
    Row(
        "moe",
        (),
        UNSUPPORTED,
        _NVFP4_NEEDS + "; it takes 10.x only",
        _sglang(_MODELOPT, "if not is_sm100_supported():", "0.5.0rc0", "0.5.4.post1"),
        sglang="..0.5.4.post1",
        capability="..9.*|11.*|12.*",
        quantization=("modelopt_fp4",),
    ),
    Row(
        "moe",
        (),
        UNSUPPORTED,
        _NVFP4_NEEDS + "; it takes 10.x and 12.x",
        (
            *_sglang(_MODELOPT, "if not is_blackwell_supported():", "0.5.4.post2", "0.5.8.post1"),
            *_sglang(_COMMON, "in [10, 12]", "0.5.4.post2", "0.5.6.post2"),
            *_sglang(_COMMON, "device_capability_majors=[10, 12],", "0.5.7", "0.5.8.post1"),
        ),
        sglang="0.5.4.post2..0.5.8.post1",
        capability="..9.*|11.*",
        quantization=("modelopt_fp4",),
    ),
    Row(
        "moe",
        (),
        UNSUPPORTED,
        _NVFP4_NEEDS + "; it takes 10.x, 11.x and 12.x",
        (
            *_sglang(_MODELOPT, "if not is_blackwell_supported():", "0.5.9", "0.5.12.post1"),
            *_sglang(_COMMON, "device_capability_majors=[10, 11, 12],", "0.5.9", "0.5.12.post1"),
        ),
        sglang="0.5.9..0.5.12.post1",
        capability="..9.*",
        quantization=("modelopt_fp4",),
    ),
    Row(
        "moe",
        tuple(name for name in MOE_BACKENDS if name not in ("auto", "marlin", "lora_marlin")),
        UNSUPPORTED,
        _NVFP4_NEEDS + " with this backend; below 10.0 it takes marlin",
        (
            *_sglang(_MODELOPT, "if not is_blackwell_supported() and not use_marlin_fallback:", "0.5.13", "0.5.18"),
            *_sglang(_MODELOPT, "if not get_platform().is_blackwell and not use_marlin_fallback:", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.13..0.5.23",
        capability="..9.*",
        quantization=("modelopt_fp4",),
    ),
)

_FLASHINFER_CUTLASS = (
    Row(
        "moe",
        ("flashinfer_cutlass",),
        SUPPORTED,
        "FlashInfer's CUTLASS fused MoE runs the NVFP4 experts",
        (
            *_sglang(_MODELOPT, "self.enable_flashinfer_cutlass_moe:", "0.5.1", "0.5.23"),
            *_flashinfer(_FI_CORE, "gen_cutlass_fused_moe_sm100_module(use_fast_build)", "0.5.0", "0.7.2"),
        ),
        sglang="0.5.1..0.5.23",
        capability=_SM10,
        quantization=("modelopt_fp4",),
        parallel="ep in (1, tp)",
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_cutlass",),
        SUPPORTED,
        "FlashInfer's CUTLASS fused MoE runs the NVFP4 experts, built for this GPU when the server first starts",
        (
            *_sglang(_MODELOPT, "self.enable_flashinfer_cutlass_moe:", "0.5.4.post2", "0.5.23"),
            *_flashinfer(_FI_CORE, 'if backend in ("120", "121"):', "0.5.0", "0.7.2"),
        ),
        sglang="0.5.4.post2..0.5.23",
        capability="12.0|12.1",
        quantization=("modelopt_fp4",),
        parallel="ep in (1, tp)",
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_cutlass",),
        SUPPORTED,
        "FlashInfer's CUTLASS fused MoE runs the NVFP4 experts, built for this GPU when the server first starts",
        (
            *_sglang(_MODELOPT, "self.enable_flashinfer_cutlass_moe:", "0.5.9", "0.5.23"),
            *_flashinfer(_FI_CORE, 'elif backend in ("100", "110"):', "0.6.3", "0.6.15.post1"),
            *_flashinfer(_FI_CORE, 'elif backend in ("100", "107", "110"):', "0.6.17", "0.7.2"),
        ),
        sglang="0.5.9..0.5.23",
        capability="11.0",
        quantization=("modelopt_fp4",),
        parallel="ep in (1, tp)",
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_cutlass",),
        SUPPORTED,
        "FlashInfer's CUTLASS fused MoE runs the experts, built for this GPU when the server first starts",
        (
            *_sglang(_UNQUANT, "self.use_flashinfer_cutlass", "0.5.6", "0.5.23"),
            *_sglang(_MODELOPT, "get_moe_runner_backend().is_flashinfer_cutlass()", "0.5.6", "0.5.23"),
            *_flashinfer(_FI_CORE, 'elif backend == "90":', "0.5.3", "0.7.2"),
            *_flashinfer(_FI_CORE, 'elif backend == "89":', "0.5.3", "0.7.2"),
            *_flashinfer(_FI_CORE, 'elif backend == "103":', "0.5.3", "0.7.2"),
            *_flashinfer(_FI_CORE, 'if backend in ("120", "121"):', "0.5.3", "0.7.2"),
        ),
        sglang="0.5.6..0.5.23",
        capability="8.9|9.0|10.0|10.3|11.0|12.0|12.1",
        quantization=("none", "modelopt_fp8"),
        parallel="ep in (1, tp)",
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_cutlass",),
        SUPPORTED,
        "FlashInfer's CUTLASS fused MoE runs the FP8 and the NVFP4 experts of a mixed checkpoint",
        (
            *_sglang(_ARGS, "'modelopt_fp8', 'modelopt_mixed', or bfloat16 (None).", "0.5.10rc0", "0.5.18"),
            *_sglang(_HOOK, "'modelopt_fp8', 'modelopt_mixed', or bfloat16 (None).", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.10rc0..0.5.23",
        capability="10.0|10.3|11.0|12.0|12.1",
        quantization=("modelopt_mixed",),
        parallel="ep in (1, tp)",
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_cutlass",),
        SUPPORTED,
        "FlashInfer's CUTLASS fused MoE runs the NVFP4 experts behind FlashInfer's all-to-all",
        (
            *_sglang(_DISPATCHER, "get_moe_runner_backend().is_flashinfer_cutlass()", "0.5.9", "0.5.18"),
            *_sglang(_DISPATCHER, "self.runner_backend.is_flashinfer_cutlass()", "0.5.23"),
        ),
        sglang="0.5.9..0.5.23",
        capability=_SM10,
        quantization=("modelopt_fp4",),
        a2a=("flashinfer",),
    ),
    Row(
        "moe",
        ("flashinfer_cutlass",),
        UNSUPPORTED,
        _QUANTIZATIONS + "modelopt_fp4",
        _sglang(_ARGS, "modelopt_fp4 quantization is required for Flashinfer", "0.5.1", "0.5.5.post3"),
        sglang="0.5.1..0.5.5.post3",
        not_quantization=("modelopt_fp4",),
    ),
    Row(
        "moe",
        ("flashinfer_cutlass",),
        UNSUPPORTED,
        _QUANTIZATIONS + "modelopt_fp4, modelopt_fp8 and none",
        _sglang(_ARGS, "supports only: 'modelopt_fp4', 'modelopt_fp8', or bfloat16 (None).", "0.5.6", "0.5.9"),
        sglang="0.5.6..0.5.9",
        not_quantization=("modelopt_fp4", "modelopt_fp8", "none"),
    ),
    Row(
        "moe",
        ("flashinfer_cutlass",),
        UNSUPPORTED,
        _QUANTIZATIONS + "modelopt_fp4, modelopt_fp8, modelopt_mixed and none",
        (
            *_sglang(_ARGS, "'modelopt_fp8', 'modelopt_mixed', or bfloat16 (None).", "0.5.10rc0", "0.5.18"),
            *_sglang(_HOOK, "'modelopt_fp8', 'modelopt_mixed', or bfloat16 (None).", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.10rc0..0.5.23",
        not_quantization=("modelopt_fp4", "modelopt_fp8", "modelopt_mixed", "none"),
    ),
    Row(
        "moe",
        ("flashinfer_cutlass",),
        UNSUPPORTED,
        _EP,
        (
            *_sglang(_ARGS, "size must be 1 or the same as the tensor parallel size", "0.5.1", "0.5.18"),
            *_sglang(_HOOK, "size must be 1 or the same as the tensor parallel size", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.1..0.5.23",
        parallel="ep not in (1, tp)",
    ),
    Row(
        "moe",
        ("flashinfer_cutlass",),
        UNSUPPORTED,
        "FlashInfer {flashinfer} has no CUTLASS fused MoE for compute capability {capability}: the first forward pass "
        "raises `Invalid backend: {sm}`",
        _flashinfer(_FI_CORE, 'raise ValueError(f"Invalid backend: {backend}")', "0.5.0", "0.7.2"),
        flashinfer="0.5.0..0.7.2",
        capability="..8.8",
    ),
)

_FLASHINFER_CUTEDSL = (
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        UNSUPPORTED,
        "from 0.5.11 SGLang runs FlashInfer's CuteDSL MoE under this name: "
        + _TEN_ONLY
        + "the server dies at its first forward pass with `Got SM{sm}.`",
        (
            *_sglang(_CUTEDSL, "CuteDslMoEWrapper", "0.5.11", "0.5.23"),
            *_flashinfer(_FI_SWIGLU, "if major != 10:", "0.6.6", "0.6.8.post1", "0.6.12"),
            *_flashinfer(_FI_ACT, "if major != 10:", "0.6.15.post1", "0.7.2"),
        ),
        sglang="0.5.11..0.5.23",
        capability="..9.*|11.*|12.*",
        a2a=("none", "flashinfer"),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        UNSUPPORTED,
        "with DeepEP it runs FlashInfer's masked CuteDSL grouped GEMM: "
        + _TEN_ONLY
        + "the server dies at its first forward pass",
        (
            *_sglang(
                "sglang/srt/layers/moe/flashinfer_cutedsl_moe.py", "grouped_gemm_nt_masked", "0.5.4.post3", "0.5.23"
            ),
            *_flashinfer(_FI_OLD_MASKED, 'assert sm_version == "sm_100"', "0.5.0", "0.5.3"),
            *_flashinfer(_FI_OLD_MASKED, 'supported_sm_versions = ["sm_100", "sm_103"]', "0.6.1", "0.6.3"),
            *_flashinfer(_FI_MASKED, 'supported_sm_versions = ["sm_100", "sm_103"]', "0.6.6", "0.6.17"),
            *_flashinfer(_FI_MASKED, 'supported_sm_versions = ["sm_100", "sm_103", "sm_107"]', "0.6.18", "0.7.2"),
        ),
        sglang="0.5.4.post3..0.5.23",
        capability="..9.*|11.*|12.*",
        a2a=("deepep",),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        UNSUPPORTED,
        "FlashInfer {flashinfer} has its masked CuteDSL grouped GEMM for compute capability 10.0 only",
        _flashinfer(_FI_OLD_MASKED, 'assert sm_version == "sm_100"', "0.5.0", "0.5.3"),
        flashinfer="0.5.0..0.5.3",
        capability="10.1..10.*",
        a2a=("deepep",),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        SUPPORTED_BUT,
        _NVFP4_STAND_IN,
        (
            *_sglang(_MODELOPT, "from sglang.srt.layers.moe.cutlass_moe import cutlass_moe_fp4", "0.5.3rc0"),
            *_sglang(_MODELOPT, "from sglang.srt.layers.moe.cutlass_moe import cutlass_moe_fp4", "0.5.10.post1"),
            *_sglang(_MODELOPT, "only support flashinfer cutedsl moe", "0.5.3rc0", "0.5.10.post1"),
        ),
        sglang="0.5.3rc0..0.5.10.post1",
        capability="10.0|10.3|12.0|12.1",
        quantization=("modelopt_fp4",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        SUPPORTED_BUT,
        "without NVFP4 weights SGLang {sglang} runs its Triton experts under this name (with them cutlass_moe_fp4, its "
        "own CUTLASS FP4 experts): FlashInfer has nothing to tune",
        (
            *_sglang(_UNQUANT, "MoeRunnerBackend.TRITON", "0.5.3rc0", "0.5.10.post1"),
            *_sglang(_MODELOPT, "only support flashinfer cutedsl moe", "0.5.3rc0", "0.5.10.post1"),
        ),
        sglang="0.5.3rc0..0.5.10.post1",
        capability="8.0..",
        quantization=("none",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        SUPPORTED_BUT,
        _TRITON_STAND_IN + ": FlashInfer has nothing to tune",
        _sglang(
            _MODELOPT, "self.runner = MoeRunner(MoeRunnerBackend.TRITON, moe_runner_config)", "0.5.3rc0", "0.5.10.post1"
        ),
        sglang="0.5.3rc0..0.5.10.post1",
        capability="8.9..",
        quantization=("modelopt_fp8",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        UNSUPPORTED,
        "SGLang {sglang} has no FP8 experts for this backend: no runner is made and the first forward pass fails",
        _sglang(_FP8_FILE, "# TODO(cwan): refactor other backends", "0.5.3.post1", "0.5.10.post1"),
        sglang="0.5.3.post1..0.5.10.post1",
        quantization=("fp8",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        SUPPORTED,
        "FlashInfer's CuteDSL MoE runs the NVFP4 experts",
        (
            *_sglang(_CUTEDSL, "CuteDslMoEWrapper", "0.5.11", "0.5.23"),
            *_flashinfer(_FI_WRAPPER, "@supported_compute_capability([100, 103", "0.6.8.post1"),
            *_flashinfer(_FI_WRAPPER, "@supported_compute_capability([100, 103", "0.7.2"),
        ),
        sglang="0.5.11..0.5.23",
        capability=_SM10,
        quantization=("modelopt_fp4",),
        parallel="ep in (1, tp)",
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        SUPPORTED,
        "FlashInfer's CuteDSL MoE runs the NVFP4 experts",
        (
            *_sglang(_ARGS, "flashinfer_cutedsl supports moe_a2a_backend='none', 'deepep', or", "0.5.13", "0.5.18"),
            *_sglang(_HOOK, "flashinfer_cutedsl supports moe_a2a_backend='none', 'deepep', or", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.13..0.5.23",
        capability=_SM10,
        quantization=("modelopt_fp4",),
        parallel="ep in (1, tp)",
        a2a=("flashinfer",),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        SUPPORTED,
        "FlashInfer's masked CuteDSL grouped GEMM runs the NVFP4 experts behind DeepEP's low-latency dispatch",
        (
            *_sglang("sglang/srt/layers/moe/flashinfer_cutedsl_moe.py", "grouped_gemm_nt_masked", "0.5.3rc0", "0.5.23"),
            *_flashinfer(_FI_OLD_MASKED, 'assert sm_version == "sm_100"', "0.5.0"),
        ),
        sglang="0.5.3rc0..0.5.23",
        capability="10.0",
        quantization=("modelopt_fp4",),
        a2a=("deepep",),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        SUPPORTED,
        "FlashInfer's masked CuteDSL grouped GEMM runs the NVFP4 experts behind DeepEP's low-latency dispatch",
        (
            *_sglang("sglang/srt/layers/moe/flashinfer_cutedsl_moe.py", "grouped_gemm_nt_masked", "0.5.8", "0.5.23"),
            *_flashinfer(_FI_OLD_MASKED, 'supported_sm_versions = ["sm_100", "sm_103"]', "0.6.1"),
            *_flashinfer(_FI_MASKED, 'supported_sm_versions = ["sm_100", "sm_103", "sm_107"]', "0.7.2"),
        ),
        sglang="0.5.8..0.5.23",
        flashinfer="0.6.1..0.7.2",
        capability="10.3",
        quantization=("modelopt_fp4",),
        a2a=("deepep",),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        SUPPORTED_BUT,
        "only when the experts of the mixed checkpoint are NVFP4: others are refused while the model loads",
        (
            *_sglang(_ARGS, "'modelopt_mixed' (with NVFP4 MoE layers)", "0.5.16", "0.5.18"),
            *_sglang(_HOOK, "'modelopt_mixed' (with NVFP4 MoE layers)", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.16..0.5.23",
        capability=_SM10,
        quantization=("modelopt_mixed",),
        parallel="ep in (1, tp)",
        a2a=("none", "flashinfer"),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        UNSUPPORTED,
        _QUANTIZATIONS + "modelopt_fp4 only",
        (
            *_sglang(_ARGS, "FlashInfer CuteDSL MOE currently supports only: 'modelopt_fp4'.", "0.5.11", "0.5.14"),
            *_sglang(
                _ARGS, "FlashInfer CuteDSL MOE currently supports only: 'modelopt_fp4' or", "0.5.15", "0.5.15.post1"
            ),
        ),
        sglang="0.5.11..0.5.15.post1",
        not_quantization=("modelopt_fp4",),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        UNSUPPORTED,
        _QUANTIZATIONS + "modelopt_fp4, modelopt_mixed with NVFP4 experts, and checkpoints that mix in NVFP4 experts",
        _sglang(_ARGS, "'modelopt_fp4', 'modelopt_mixed' (with NVFP4 MoE layers), or hybrid", "0.5.16", "0.5.17"),
        sglang="0.5.16..0.5.17",
        not_quantization=("modelopt_fp4", "modelopt_mixed"),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        UNSUPPORTED,
        _QUANTIZATIONS + "modelopt_fp4, modelopt_mixed with NVFP4 experts, nvfp4_online, and checkpoints that mix in "
        "NVFP4 experts",
        (
            *_sglang(_ARGS, "'modelopt_mixed' (with NVFP4 MoE layers), 'nvfp4_online'", "0.5.18"),
            *_sglang(_HOOK, "'modelopt_mixed' (with NVFP4 MoE layers), 'nvfp4_online'", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.18..0.5.23",
        not_quantization=("modelopt_fp4", "modelopt_mixed", "nvfp4_online"),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        UNSUPPORTED,
        _EP,
        (
            *_sglang(_ARGS, "size must be 1 or the same as the tensor parallel size", "0.5.11", "0.5.18"),
            *_sglang(_HOOK, "size must be 1 or the same as the tensor parallel size", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.11..0.5.23",
        parallel="ep not in (1, tp)",
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        UNSUPPORTED,
        "SGLang {sglang} refuses it at start with this moe_a2a_backend; it takes none and deepep",
        _sglang(_ARGS, "or 'deepep' (DeepEP low-latency path), got", "0.5.11", "0.5.12.post1"),
        sglang="0.5.11..0.5.12.post1",
        a2a=(*_OF_A2A, "flashinfer"),
    ),
    Row(
        "moe",
        ("flashinfer_cutedsl",),
        UNSUPPORTED,
        "SGLang {sglang} refuses it at start with this moe_a2a_backend; it takes none, deepep and flashinfer",
        (
            *_sglang(_ARGS, "flashinfer_cutedsl supports moe_a2a_backend='none', 'deepep', or", "0.5.13", "0.5.18"),
            *_sglang(_HOOK, "flashinfer_cutedsl supports moe_a2a_backend='none', 'deepep', or", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.13..0.5.23",
        a2a=_OF_A2A,
    ),
)

_FLASHINFER_TRTLLM = (
    Row(
        "moe",
        _TRTLLM,
        UNSUPPORTED,
        "FlashInfer's TensorRT-LLM MoE: " + _TEN_ONLY + "the server hangs or dies when it first runs them",
        (
            *_flashinfer(_FI_TRTLLM, "requires 10.x architecture", "0.5.0", "0.6.6"),
            *_sglang(_ARGS, "trtllm-gen MoE kernels are SM100-only", "0.5.13", "0.5.14"),
            *_sglang(_OVERRIDES, "trtllm-gen MoE kernels are SM100-only", "0.5.15", "0.5.23"),
        ),
        source="a maintainer in flashinfer-ai/flashinfer#2045; an RTX PRO 6000 in flashinfer-ai/flashinfer#3670",
        capability="12.*",
    ),
    Row(
        "moe",
        _TRTLLM,
        UNSUPPORTED,
        "FlashInfer's TensorRT-LLM MoE: " + _TEN_ONLY + "FlashInfer {flashinfer} refuses to build or run them",
        (
            *_flashinfer(_FI_TRTLLM, "requires 10.x architecture", "0.5.0", "0.6.6"),
            *_flashinfer(_FI_TRTLLM, "MoE kernel requires SM 10.x or SM 12.x architecture", "0.6.7.post2", "0.7.2"),
        ),
        flashinfer="0.5.0..0.7.2",
        capability="..9.*|11.*",
    ),
    Row(
        "moe",
        ("flashinfer_trtllm",),
        SUPPORTED,
        "FlashInfer's TensorRT-LLM MoE runs the experts",
        (
            *_sglang(_ARGS, '"flashinfer_trtllm"', "0.5.1", "0.5.18"),
            *_sglang(_HOOK, '"flashinfer_trtllm"', "0.5.19", "0.5.23"),
        ),
        sglang="0.5.1..0.5.23",
        capability=_SM10,
        quantization=("modelopt_fp4", "fp8"),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm",),
        SUPPORTED_BUT,
        "only for models that route each token to one expert, as Llama 4 does: others stop at the first forward pass",
        _sglang(_MODELOPT, "ModelOpt FP8 MoE requires top_k==1", "0.5.4.post2", "0.5.10.post1"),
        sglang="0.5.4.post2..0.5.10.post1",
        capability=_SM10,
        quantization=("modelopt_fp8",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm",),
        SUPPORTED,
        "FlashInfer's TensorRT-LLM MoE runs the experts",
        (
            *_sglang(_ARGS, "FlashInfer TRTLLM MOE supports only: 'modelopt_fp4', ", "0.5.11", "0.5.18"),
            *_sglang(_HOOK, "FlashInfer TRTLLM MOE supports only: 'modelopt_fp4', ", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.11..0.5.23",
        capability=_SM10,
        quantization=("modelopt_fp8",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm",),
        SUPPORTED,
        "FlashInfer's TensorRT-LLM MoE runs the experts",
        (
            *_sglang(_ARGS, "FlashInfer TRTLLM MOE supports only: 'modelopt_fp4', ", "0.5.7", "0.5.18"),
            *_sglang(_HOOK, "FlashInfer TRTLLM MOE supports only: 'modelopt_fp4', ", "0.5.19", "0.5.23"),
            *_sglang(_UNQUANT, "use_flashinfer_trtllm_moe", "0.5.7", "0.5.23"),
        ),
        sglang="0.5.7..0.5.23",
        capability=_SM10,
        quantization=("none",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm",),
        SUPPORTED,
        "FlashInfer's TensorRT-LLM MoE runs the experts",
        (
            *_sglang(
                _ARGS, "'modelopt_fp8', 'modelopt_mixed', 'compressed-tensors', or bfloat16", "0.5.10rc0", "0.5.18"
            ),
            *_sglang(_HOOK, "'modelopt_fp8', 'modelopt_mixed', 'compressed-tensors', or bfloat16", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.10rc0..0.5.23",
        capability=_SM10,
        quantization=("mxfp8", "modelopt_mixed"),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm", "flashinfer_trtllm_routed"),
        SUPPORTED,
        "FlashInfer's TensorRT-LLM MoE runs the experts",
        (
            *_sglang(_ARGS, "--quantization nvfp4_online supports only", "0.5.14"),
            *_sglang(_OVERRIDES, "--quantization nvfp4_online supports only", "0.5.15", "0.5.23"),
        ),
        sglang="0.5.14..0.5.23",
        capability=_SM10,
        quantization=("nvfp4_online",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm_routed",),
        SUPPORTED,
        "FlashInfer's TensorRT-LLM MoE runs the experts",
        (
            *_sglang(_ARGS, "FlashInfer TRTLLM routed MOE supports only: 'fp8', 'mxfp8', ", "0.5.10rc0", "0.5.18"),
            *_sglang(_HOOK, "FlashInfer TRTLLM routed MOE supports only: 'fp8', 'mxfp8', ", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.10rc0..0.5.23",
        capability=_SM10,
        quantization=("fp8", "mxfp8", "none"),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm_routed",),
        SUPPORTED,
        "FlashInfer's TensorRT-LLM MoE runs the NVFP4 experts",
        (
            *_sglang(_ARGS, "TRTLLM routed MOE supports only: 'fp8', 'mxfp8', 'modelopt_fp4', ", "0.5.11", "0.5.18"),
            *_sglang(_HOOK, "TRTLLM routed MOE supports only: 'fp8', 'mxfp8', 'modelopt_fp4', ", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.11..0.5.23",
        capability=_SM10,
        quantization=("modelopt_fp4",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm_routed",),
        SUPPORTED,
        "FlashInfer's TensorRT-LLM MoE runs the experts",
        (
            *_sglang(_ARGS, "'mxfp8', 'modelopt_fp4', 'modelopt_mixed', 'nvfp4_online'", "0.5.16", "0.5.18"),
            *_sglang(_HOOK, "'mxfp8', 'modelopt_fp4', 'modelopt_mixed', 'nvfp4_online'", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.16..0.5.23",
        capability=_SM10,
        quantization=("modelopt_mixed",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm",),
        UNSUPPORTED,
        _QUANTIZATIONS + "modelopt_fp4 and fp8",
        (
            *_sglang(_ARGS, "modelopt_fp4 quantization is required for Flashinfer TRTLLM MoE", "0.5.2", "0.5.3rc0"),
            *_sglang(_ARGS, "modelopt_fp4 or fp8 quantization is required for Flashinfer TRTLLM MoE", "0.5.3rc2"),
            *_sglang(_ARGS, "modelopt_fp4 or fp8 quantization is required for Flashinfer TRTLLM MoE", "0.5.4.post1"),
        ),
        sglang="0.5.2..0.5.4.post1",
        not_quantization=("modelopt_fp4", "fp8"),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm",),
        UNSUPPORTED,
        _QUANTIZATIONS + "modelopt_fp4, modelopt_fp8 and fp8",
        _sglang(_ARGS, "modelopt_fp4, modelopt_fp8 or fp8 quantization is required", "0.5.4.post2", "0.5.6.post2"),
        sglang="0.5.4.post2..0.5.6.post2",
        not_quantization=("modelopt_fp4", "modelopt_fp8", "fp8"),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm",),
        UNSUPPORTED,
        _QUANTIZATIONS + "modelopt_fp4, fp8, modelopt_fp8, compressed-tensors and none",
        _sglang(_ARGS, "'modelopt_fp4', 'fp8', 'modelopt_fp8', 'compressed-tensors', or bfloat16", "0.5.7", "0.5.9"),
        sglang="0.5.7..0.5.9",
        not_quantization=("modelopt_fp4", "fp8", "modelopt_fp8", "compressed-tensors", "none"),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm", "experimental_sgl_trtllm"),
        UNSUPPORTED,
        _QUANTIZATIONS + "modelopt_fp4, fp8, mxfp8, modelopt_fp8, modelopt_mixed, compressed-tensors and none",
        _sglang(
            _ARGS,
            "'modelopt_fp4', 'fp8', 'modelopt_fp8', 'modelopt_mixed', 'compressed-tensors', or bfloat16",
            "0.5.10rc0",
            "0.5.13.post1",
        ),
        sglang="0.5.10rc0..0.5.13.post1",
        not_quantization=(
            "modelopt_fp4",
            "fp8",
            "mxfp8",
            "modelopt_fp8",
            "modelopt_mixed",
            "compressed-tensors",
            "none",
        ),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm", "experimental_sgl_trtllm"),
        UNSUPPORTED,
        _QUANTIZATIONS
        + "modelopt_fp4, nvfp4_online, fp8, mxfp8, modelopt_fp8, modelopt_mixed, compressed-tensors and none",
        (
            *_sglang(_ARGS, "FlashInfer TRTLLM MOE supports only: 'modelopt_fp4', 'nvfp4_online'", "0.5.14", "0.5.18"),
            *_sglang(_HOOK, "FlashInfer TRTLLM MOE supports only: 'modelopt_fp4', 'nvfp4_online'", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.14..0.5.23",
        not_quantization=(
            "modelopt_fp4",
            "nvfp4_online",
            "fp8",
            "mxfp8",
            "modelopt_fp8",
            "modelopt_mixed",
            "compressed-tensors",
            "none",
        ),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm_routed",),
        UNSUPPORTED,
        _QUANTIZATIONS + "fp8, mxfp8 and none",
        _sglang(
            _ARGS, "TRTLLM routed MOE supports only: 'fp8', 'mxfp8', or bfloat16 (None).", "0.5.10rc0", "0.5.10.post1"
        ),
        sglang="0.5.10rc0..0.5.10.post1",
        not_quantization=("fp8", "mxfp8", "none"),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm_routed",),
        UNSUPPORTED,
        _QUANTIZATIONS + "fp8, mxfp8, modelopt_fp4 and none",
        _sglang(_ARGS, "supports only: 'fp8', 'mxfp8', 'modelopt_fp4', or bfloat16 (None).", "0.5.11", "0.5.13.post1"),
        sglang="0.5.11..0.5.13.post1",
        not_quantization=("fp8", "mxfp8", "modelopt_fp4", "none"),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm_routed",),
        UNSUPPORTED,
        _QUANTIZATIONS + "fp8, mxfp8, modelopt_fp4, nvfp4_online and none",
        _sglang(_ARGS, "supports only: 'fp8', 'mxfp8', 'modelopt_fp4', 'nvfp4_online', or", "0.5.14", "0.5.15.post1"),
        sglang="0.5.14..0.5.15.post1",
        not_quantization=("fp8", "mxfp8", "modelopt_fp4", "nvfp4_online", "none"),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm_routed",),
        UNSUPPORTED,
        _QUANTIZATIONS + "fp8, mxfp8, modelopt_fp4, modelopt_mixed, nvfp4_online and none",
        (
            *_sglang(_ARGS, "'modelopt_fp4', 'modelopt_mixed', 'nvfp4_online', or bfloat16", "0.5.16", "0.5.18"),
            *_sglang(_HOOK, "'modelopt_fp4', 'modelopt_mixed', 'nvfp4_online', or bfloat16", "0.5.19", "0.5.22"),
        ),
        sglang="0.5.16..0.5.22",
        not_quantization=("fp8", "mxfp8", "modelopt_fp4", "modelopt_mixed", "nvfp4_online", "none"),
    ),
    Row(
        "moe",
        ("flashinfer_trtllm_routed",),
        UNSUPPORTED,
        _QUANTIZATIONS + "fp8, mxfp8, modelopt_fp4, modelopt_mixed, nvfp4_online, minimax_m3_nvfp4 and none",
        _sglang(_HOOK, "'modelopt_mixed', 'nvfp4_online', 'minimax_m3_nvfp4', or bfloat16", "0.5.23"),
        sglang="0.5.23",
        not_quantization=(
            "fp8",
            "mxfp8",
            "modelopt_fp4",
            "modelopt_mixed",
            "nvfp4_online",
            "minimax_m3_nvfp4",
            "none",
        ),
    ),
)

_TRITON = (
    Row(
        "moe",
        ("triton",),
        SUPPORTED,
        "SGLang's Triton experts run on every GPU from compute capability 8.0",
        (
            *_sglang(_UNQUANT, "fused_experts", "0.5.1", "0.5.2rc2"),
            *_sglang(_UNQUANT, "MoeRunnerBackend.TRITON", "0.5.2", "0.5.23"),
        ),
        sglang="0.5.1..0.5.23",
        capability="8.0..12.*",
        quantization=("none",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("triton",),
        SUPPORTED,
        "SGLang's Triton experts run FP8 from compute capability 8.9",
        (
            *_sglang(_FP8_FILE, "fused_experts", "0.5.1", "0.5.2rc2"),
            *_sglang(_FP8_FILE, "MoeRunnerBackend.TRITON", "0.5.2", "0.5.23"),
        ),
        sglang="0.5.1..0.5.23",
        capability="8.9..12.*",
        quantization=("fp8",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("triton",),
        SUPPORTED,
        "SGLang's Triton experts run FP8 from compute capability 8.9",
        _sglang(_MODELOPT, "MoeRunner(MoeRunnerBackend.TRITON, moe_runner_config)", "0.5.4", "0.5.23"),
        sglang="0.5.4..0.5.23",
        capability="8.9..12.*",
        quantization=("modelopt_fp8",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("triton_kernel",),
        SUPPORTED,
        "the triton_kernels package runs the experts",
        (
            *_sglang(_UNQUANT, "use_triton_kernels", "0.5.1", "0.5.23"),
            *_sglang(_ARGS, '"triton_kernel"', "0.5.1", "0.5.18"),
        ),
        sglang="0.5.1..0.5.23",
        capability="9.0|10.0|10.3",
        quantization=("none",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("triton_kernel",),
        UNSUPPORTED,
        "SGLang {sglang} has no FP8 experts for this backend: no runner is made and the first forward pass fails",
        _sglang(_FP8_FILE, "# TODO(cwan): refactor other backends", "0.5.3.post1", "0.5.22"),
        sglang="0.5.3.post1..0.5.22",
        quantization=("fp8",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("triton_kernel", "cutlass", "deep_gemm"),
        SUPPORTED_BUT,
        _TRITON_STAND_IN,
        _sglang(_MODELOPT, "MoeRunner(MoeRunnerBackend.TRITON, moe_runner_config)", "0.5.4", "0.5.23"),
        sglang="0.5.4..0.5.23",
        capability="8.9..12.*",
        quantization=("modelopt_fp8",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("cutlass", "marlin"),
        SUPPORTED_BUT,
        _TRITON_STAND_IN,
        _sglang(_UNQUANT, "MoeRunnerBackend.TRITON", "0.5.3.post2", "0.5.23"),
        sglang="0.5.3.post2..0.5.23",
        capability="8.0..12.*",
        quantization=("none",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("deep_gemm",),
        SUPPORTED_BUT,
        _TRITON_STAND_IN,
        _sglang(_UNQUANT, "MoeRunnerBackend.TRITON", "0.5.3.post1", "0.5.11"),
        sglang="0.5.3.post1..0.5.11",
        capability="8.0..12.*",
        quantization=("none",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("triton", "triton_kernel", "deep_gemm"),
        SUPPORTED_BUT,
        _NVFP4_STAND_IN,
        (
            *_sglang(_MODELOPT, "from sglang.srt.layers.moe.cutlass_moe import cutlass_moe_fp4", "0.5.1"),
            *_sglang(_MODELOPT, "from sglang.srt.layers.moe.cutlass_moe import cutlass_moe_fp4", "0.5.15.post1"),
            *_sglang("sglang/jit_kernel/nvfp4.py", "cutlass_fp4_group_mm_sm100a_sm120a", "0.5.10rc0", "0.5.15.post1"),
        ),
        sglang="0.5.1..0.5.15.post1",
        capability="10.0|10.3|12.0|12.1",
        quantization=("modelopt_fp4",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("triton", "triton_kernel", "deep_gemm", "flashinfer_mxfp4"),
        UNSUPPORTED,
        _NVFP4_NO_PATH,
        _sglang(_MODELOPT, "Unsupported moe_runner_backend for NVFP4 MoE", "0.5.16", "0.5.23"),
        sglang="0.5.16..0.5.23",
        quantization=("modelopt_fp4",),
        a2a=("none",),
    ),
)

_CUTLASS = (
    Row(
        "moe",
        ("cutlass",),
        SUPPORTED_BUT,
        "SGLang's own CUTLASS experts run block-quantized FP8; other FP8 checkpoints are refused while the model loads",
        (
            *_sglang(_FP8_FILE, "assert is_sm100_supported() or is_sm90_supported()", "0.5.4.post3", "0.5.9"),
            *_sglang(_FP8_FILE, "cutlass_fp8 MoE requires SM90, SM100, or SM120 GPUs", "0.5.10rc0", "0.5.23"),
            *_sglang(_FP8_FILE, "cutlass_fp8 MoE requires block quantization", "0.5.4.post3", "0.5.23"),
        ),
        sglang="0.5.4.post3..0.5.23",
        capability="9.0|10.0|10.3",
        quantization=("fp8",),
        parallel="ep == 1",
        a2a=("none",),
    ),
    Row(
        "moe",
        ("cutlass",),
        SUPPORTED_BUT,
        "SGLang's own CUTLASS experts run block-quantized FP8; other FP8 checkpoints are refused while the model loads",
        _sglang(_FP8_FILE, "cutlass_fp8 MoE requires SM90, SM100, or SM120 GPUs", "0.5.10rc0", "0.5.23"),
        sglang="0.5.10rc0..0.5.23",
        capability="12.0|12.1",
        quantization=("fp8",),
        parallel="ep == 1",
        a2a=("none",),
    ),
    Row(
        "moe",
        ("cutlass",),
        UNSUPPORTED,
        "SGLang's own CUTLASS FP8 experts need compute capability 9.0 or 10.x in SGLang {sglang}: it stops while the "
        "model loads on {capability}",
        _sglang(_FP8_FILE, "assert is_sm100_supported() or is_sm90_supported()", "0.5.4.post3", "0.5.9"),
        sglang="0.5.4.post3..0.5.9",
        capability="..8.*|11.*|12.*",
        quantization=("fp8",),
    ),
    Row(
        "moe",
        ("cutlass",),
        UNSUPPORTED,
        "SGLang's own CUTLASS FP8 experts need compute capability 9.0, 10.x or 12.x: it stops while the model loads on "
        "{capability}",
        _sglang(_FP8_FILE, "cutlass_fp8 MoE requires SM90, SM100, or SM120 GPUs", "0.5.10rc0", "0.5.23"),
        sglang="0.5.10rc0..0.5.23",
        capability="..8.*|11.*",
        quantization=("fp8",),
    ),
    Row(
        "moe",
        ("cutlass",),
        UNSUPPORTED,
        "SGLang {sglang} refuses cutlass with {quantization} at start unless ep is 1; here it is {ep}",
        _sglang(_ARGS, "FP8 Cutlass MoE is only supported with ep_size == 1", "0.5.4.post3", "0.5.8.post1"),
        sglang="0.5.4.post3..0.5.8.post1",
        quantization=("fp8",),
        parallel="ep != 1",
    ),
    Row(
        "moe",
        ("cutlass",),
        UNSUPPORTED,
        "SGLang {sglang} refuses cutlass with {quantization} at start unless ep is 1; here it is {ep}",
        (
            *_sglang(_ARGS, "FP8/MXFP8 Cutlass MoE is only supported with ep_size == 1", "0.5.9", "0.5.18"),
            *_sglang(_HOOK, "FP8/MXFP8 Cutlass MoE is only supported with ep_size == 1", "0.5.19", "0.5.23"),
        ),
        sglang="0.5.9..0.5.23",
        quantization=("fp8", "mxfp8"),
        parallel="ep != 1",
    ),
    Row(
        "moe",
        ("cutlass",),
        SUPPORTED,
        "SGLang's own CUTLASS experts run MXFP8",
        _sglang("sglang/srt/layers/moe/cutlass_moe.py", "MXFP8 requires SM100", "0.5.9", "0.5.23"),
        sglang="0.5.9..0.5.23",
        capability=_SM10,
        quantization=("mxfp8",),
        parallel="ep == 1",
        a2a=("none",),
    ),
    Row(
        "moe",
        ("cutlass",),
        UNSUPPORTED,
        "SGLang's own CUTLASS MXFP8 experts need compute capability 10.x: the first forward pass fails on {capability}",
        _sglang("sglang/srt/layers/moe/cutlass_moe.py", "MXFP8 requires SM100", "0.5.9", "0.5.15.post1"),
        sglang="0.5.9..0.5.15.post1",
        capability="..9.*|11.*|12.*",
        quantization=("mxfp8",),
    ),
    Row(
        "moe",
        ("cutlass",),
        SUPPORTED,
        "SGLang's own CUTLASS FP4 experts (cutlass_moe_fp4) run; FlashInfer has nothing to tune",
        (
            *_sglang(_MODELOPT, "from sglang.srt.layers.moe.cutlass_moe import cutlass_moe_fp4", "0.5.3.post2"),
            *_sglang(_MODELOPT, "from sglang.srt.layers.moe.cutlass_moe import cutlass_moe_fp4", "0.5.10.post1"),
        ),
        sglang="0.5.3.post2..0.5.10.post1",
        capability="10.0|10.3|12.0|12.1",
        quantization=("modelopt_fp4",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("cutlass",),
        UNSUPPORTED,
        "SGLang {sglang} makes no runner for it with NVFP4 weights: it stops while the model loads",
        (
            *_sglang(_RUNNER, 'raise NotImplementedError(f"Unsupported runner backend: {runner_backend}")', "0.5.11"),
            *_sglang(_RUNNER, 'raise NotImplementedError(f"Unsupported runner backend: {runner_backend}")', "0.5.14"),
            *_sglang(_MODELOPT, "if not moe_runner_backend.is_flashinfer_cutlass():", "0.5.11", "0.5.14"),
        ),
        sglang="0.5.11..0.5.14",
        quantization=("modelopt_fp4",),
    ),
    Row(
        "moe",
        ("cutlass",),
        SUPPORTED,
        "SGLang's own CUTLASS FP4 experts (cutlass_moe_fp4) run; FlashInfer has nothing to tune",
        (
            *_sglang(_MODELOPT, "if not moe_runner_backend.is_cutlass():", "0.5.15", "0.5.15.post1"),
            *_sglang("sglang/jit_kernel/nvfp4.py", "cutlass_fp4_group_mm_sm100a_sm120a", "0.5.15", "0.5.15.post1"),
        ),
        sglang="0.5.15..0.5.15.post1",
        capability="10.0|10.3|12.0|12.1",
        quantization=("modelopt_fp4",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("cutlass",),
        UNSUPPORTED,
        "SGLang {sglang} refuses cutlass with NVFP4 weights while the model loads",
        _sglang(_MODELOPT, "moe_runner_backend=cutlass is not supported for NVFP4 MoE.", "0.5.16", "0.5.23"),
        sglang="0.5.16..0.5.23",
        quantization=("modelopt_fp4",),
    ),
)

_DEEP_GEMM_ROWS = (
    Row(
        "moe",
        ("deep_gemm",),
        SUPPORTED,
        "DeepGEMM runs the FP8 experts",
        (
            *_sglang(_FP8_FILE, "moe_runner_backend.is_deep_gemm()", "0.5.3.post1", "0.5.23"),
            *_sglang(_DEEP_GEMM, "sm_version < 90", "0.5.4", "0.5.23"),
        ),
        sglang="0.5.3.post1..0.5.23",
        capability="9.0|10.0|10.3",
        quantization=("fp8",),
        a2a=("none", "deepep"),
    ),
    Row(
        "moe",
        ("deep_gemm",),
        SUPPORTED,
        "DeepGEMM runs the unquantized experts",
        (
            *_sglang(_UNQUANT, "MoeRunnerBackend.DEEP_GEMM", "0.5.12", "0.5.23"),
            *_sglang(_DEEP_GEMM, "sm_version < 90", "0.5.12", "0.5.23"),
        ),
        sglang="0.5.12..0.5.23",
        capability="9.0|10.0|10.3",
        quantization=("none",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("deep_gemm",),
        UNSUPPORTED,
        "SGLang does not load DeepGEMM below compute capability 9.0: the first forward pass fails on {capability}",
        (
            *_sglang(
                "sglang/srt/layers/quantization/deep_gemm_wrapper/configurer.py", "sm_version < 90", "0.5.3.post1"
            ),
            *_sglang(
                "sglang/srt/layers/quantization/deep_gemm_wrapper/configurer.py", "sm_version < 90", "0.5.3.post3"
            ),
            *_sglang(_DEEP_GEMM, "sm_version < 90", "0.5.4", "0.5.23"),
        ),
        sglang="0.5.3.post1..0.5.23",
        capability="..8.*",
        quantization=("fp8", "mxfp8", "mxfp4"),
    ),
    Row(
        "moe",
        ("deep_gemm",),
        UNSUPPORTED,
        "SGLang {sglang} does not load DeepGEMM on compute capability {capability}, which lacks the tensor memory its "
        "kernels need: the first forward pass fails",
        _sglang(_DEEP_GEMM, "if sm_version == 120:", "0.5.13", "0.5.19"),
        sglang="0.5.13..0.5.19",
        capability="12.0",
        quantization=("fp8", "mxfp8", "mxfp4", "none"),
    ),
)

_MXFP4_AND_MARLIN = (
    Row(
        "moe",
        ("flashinfer_mxfp4",),
        SUPPORTED,
        "FlashInfer's TensorRT-LLM MoE runs the MXFP4 experts",
        _sglang(_MXFP4, "trtllm_fp4_block_scale_moe", "0.5.1", "0.5.23"),
        sglang="0.5.1..0.5.23",
        capability=_SM10,
        quantization=("mxfp4",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_mxfp4",),
        UNSUPPORTED,
        "SGLang {sglang} loads FlashInfer's MXFP4 experts on compute capability 10.x only: the first forward pass "
        "fails on {capability}",
        _sglang(_MXFP4, "if _is_sm100_supported:", "0.5.1", "0.5.9"),
        sglang="0.5.1..0.5.9",
        capability="..9.*|11.*|12.*",
        quantization=("mxfp4",),
    ),
    Row(
        "moe",
        ("flashinfer_mxfp4",),
        SUPPORTED,
        "FlashInfer's CUTLASS MoE runs the MXFP4 experts with 16-bit activations",
        _sglang(_MXFP4, 'self._fi_kernel = "cutlass_sm90"', "0.5.12", "0.5.23"),
        sglang="0.5.12..0.5.23",
        flashinfer="0.6.11..0.7.2",
        capability="9.0",
        quantization=("mxfp4",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_mxfp4",),
        UNSUPPORTED,
        "on compute capability 9.0 SGLang {sglang} needs FlashInfer 0.6.11 or newer for it and has {flashinfer}",
        _sglang(_MXFP4, "(>= 0.6.11)", "0.5.12", "0.5.23"),
        sglang="0.5.12..0.5.23",
        flashinfer="..0.6.10",
        capability="9.0",
        quantization=("mxfp4",),
    ),
    Row(
        "moe",
        ("flashinfer_mxfp4",),
        UNSUPPORTED,
        "SGLang {sglang} takes it on compute capability 9.0 and 10.x only: it stops while the model loads here",
        _sglang(_MXFP4, "moe_runner_backend=flashinfer_mxfp4 requires SM90 or SM100.", "0.5.12", "0.5.16"),
        sglang="0.5.12..0.5.16",
        capability="..8.*|11.*|12.*",
        quantization=("mxfp4",),
    ),
    Row(
        "moe",
        ("flashinfer_mxfp4",),
        SUPPORTED,
        "FlashInfer's CUTLASS MoE runs the MXFP4 experts",
        _sglang(_MXFP4, 'self._fi_kernel = "cutlass_sm120"', "0.5.17", "0.5.23"),
        sglang="0.5.17..0.5.23",
        capability="12.0|12.1",
        quantization=("mxfp4",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_mxfp4",),
        UNSUPPORTED,
        "SGLang {sglang} takes it on compute capability 9.0, 10.x and 12.x only and stops while the model loads on "
        "{capability}",
        _sglang(_MXFP4, "moe_runner_backend=flashinfer_mxfp4 requires SM90, SM100, ", "0.5.17", "0.5.23"),
        sglang="0.5.17..0.5.23",
        capability="..8.*|11.*",
        quantization=("mxfp4",),
    ),
    Row(
        "moe",
        ("triton_kernel",),
        SUPPORTED,
        "the triton_kernels package runs the MXFP4 experts",
        (
            *_sglang(_MXFP4, "use_triton_kernels", "0.5.1", "0.5.23"),
            *_sglang(_ARGS, "Detected GPT-OSS model, enabling triton_kernels", "0.5.1", "0.5.14"),
            *_sglang(_OVERRIDES, "Detected GPT-OSS model, enabling triton_kernels", "0.5.15", "0.5.18"),
        ),
        sglang="0.5.1..0.5.23",
        capability="9.0",
        quantization=("mxfp4",),
        parallel="ep == 1",
        a2a=("none",),
    ),
    Row(
        "moe",
        ("triton_kernel",),
        SUPPORTED,
        "the triton_kernels package runs the MXFP4 experts",
        _sglang(_ARGS, "Detected SM120 and MXFP4 quantization format for GPT-OSS model", "0.5.10rc0", "0.5.13.post1"),
        sglang="0.5.10rc0..0.5.13.post1",
        capability="12.0|12.1",
        quantization=("mxfp4",),
        parallel="ep == 1",
        a2a=("none",),
    ),
    Row(
        "moe",
        ("marlin",),
        SUPPORTED,
        "Marlin runs the NVFP4 experts with 16-bit activations; FlashInfer has nothing to tune",
        (
            *_sglang(_MODELOPT, "if moe_runner_backend.is_marlin():", "0.5.13", "0.5.23"),
            *_sglang(_MODELOPT, "or use moe_runner_backend=marlin on SM80+.", "0.5.13", "0.5.23"),
        ),
        sglang="0.5.13..0.5.23",
        capability="8.0..12.*",
        quantization=("modelopt_fp4",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("marlin",),
        UNSUPPORTED,
        "Marlin's MXFP4 experts need compute capability 9.0 or 12.x in SGLang {sglang}: it stops while the model loads",
        _sglang(_MXFP4, "MXFP4 Marlin requires SM90 or SM120.", "0.5.14", "0.5.16"),
        sglang="0.5.14..0.5.16",
        capability="..8.*|10.*|11.*",
        quantization=("mxfp4",),
    ),
    Row(
        "moe",
        ("marlin",),
        UNSUPPORTED,
        "Marlin's MXFP4 experts need compute capability 9.0 or newer: SGLang stops while the model loads",
        (
            *_sglang(_MXFP4, "MXFP4 Marlin requires Hopper/SM90 or above.", "0.5.12", "0.5.13.post1"),
            *_sglang(_MXFP4, "MXFP4 Marlin requires SM90+.", "0.5.17", "0.5.23"),
        ),
        sglang="0.5.12..0.5.23",
        capability="..8.*",
        quantization=("mxfp4",),
    ),
    Row(
        "moe",
        ("marlin",),
        SUPPORTED,
        "Marlin runs the MXFP4 experts with 16-bit activations",
        (
            *_sglang(_MXFP4, "self.use_marlin = get_moe_runner_backend().is_marlin()", "0.5.12", "0.5.23"),
            *_sglang(_MXFP4, "MXFP4 Marlin requires SM90", "0.5.14", "0.5.23"),
        ),
        sglang="0.5.12..0.5.23",
        capability="9.0",
        quantization=("mxfp4",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("marlin",),
        SUPPORTED,
        "Marlin runs the MXFP4 experts with 16-bit activations",
        _sglang(_MXFP4, "MXFP4 Marlin requires SM90", "0.5.14", "0.5.23"),
        sglang="0.5.14..0.5.23",
        capability="12.0|12.1",
        quantization=("mxfp4",),
        a2a=("none",),
    ),
)

_OTHERS = (
    Row(
        "moe",
        ("hpc_ops",),
        UNSUPPORTED,
        "its kernels are built for compute capability 9.0 only: SGLang stops while the model loads on {capability}",
        _sglang(_RUNNER, "requires an SM90 (Hopper)", "0.5.17", "0.5.23"),
        sglang="0.5.17..0.5.23",
        capability="..8.*|10.*|11.*|12.*",
    ),
    Row(
        "moe",
        ("hpc_ops",),
        UNSUPPORTED,
        "it takes FP8 experts only (quantization fp8): SGLang stops while the model loads with {quantization}",
        _sglang(_RUNNER, "hpc_ops only supports FP8", "0.5.17", "0.5.23"),
        sglang="0.5.17..0.5.23",
        quantization=("none", "modelopt_fp8", "modelopt_fp4"),
    ),
    Row(
        "moe",
        ("hpc_ops",),
        SUPPORTED,
        "the HPC-Ops kernels run the FP8 experts",
        (
            *_sglang(_RUNNER, "requires an SM90 (Hopper)", "0.5.17", "0.5.23"),
            *_sglang(_FP8_FILE, "moe_runner_backend.is_hpc_ops()", "0.5.17", "0.5.23"),
        ),
        sglang="0.5.17..0.5.23",
        capability="9.0",
        quantization=("fp8",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("flashinfer_megamoe",),
        UNSUPPORTED,
        "FlashInfer's MegaMoE: " + _TEN_ONLY + "SGLang refuses it at start",
        _sglang(_HOOK, "FlashInfer MegaMOE currently requires an SM100-family", "0.5.20", "0.5.23"),
        sglang="0.5.20..0.5.23",
        capability="..9.*|11.*|12.*",
    ),
    Row(
        "moe",
        ("megamoe",),
        UNSUPPORTED,
        "MegaMoE runs on compute capability 9.0 and 10.x only: SGLang {sglang} refuses it at start on {capability}",
        _sglang(
            "sglang/srt/arg_groups/mega_moe_hook.py",
            "--moe-a2a-backend megamoe needs a CUDA SM90 GPU",
            "0.5.21",
            "0.5.23",
        ),
        sglang="0.5.21..0.5.23",
        capability="..8.*|11.*|12.*",
    ),
    Row(
        "moe",
        ("aiter",),
        UNSUPPORTED,
        "AITER is AMD's kernel library and is not there on an NVIDIA GPU",
        _sglang("sglang/srt/layers/moe/moe_runner/aiter.py", "aiter", "0.5.11", "0.5.23"),
        source="ROCm/aiter",
        sglang="0.5.11..0.5.23",
        capability="..12.*",
    ),
    Row(
        "moe",
        tuple(
            name for name in MOE_BACKENDS if name not in (*_TRTLLM, "auto", "flashinfer_cutedsl", "flashinfer_megamoe")
        ),
        UNSUPPORTED,
        "SGLang {sglang} refuses {backend} with nvfp4_online at start; it takes flashinfer_trtllm and "
        "flashinfer_trtllm_routed",
        (
            *_sglang(_ARGS, "--quantization nvfp4_online supports only", "0.5.14"),
            *_sglang(_OVERRIDES, "--quantization nvfp4_online supports only", "0.5.15", "0.5.23"),
        ),
        sglang="0.5.14..0.5.23",
        quantization=("nvfp4_online",),
    ),
)

# What the release makes of `auto`, where its source says so plainly.
_AUTO = (
    Row(
        "moe",
        ("auto",),
        SUPPORTED,
        "the release's own choice: Triton experts, or FlashInfer's TensorRT-LLM MoE for some models on 10.x",
        (
            *_sglang(_UNQUANT, "fused_experts", "0.5.0rc0", "0.5.2rc2"),
            *_sglang(_UNQUANT, "MoeRunnerBackend.TRITON", "0.5.2", "0.5.23"),
        ),
        sglang="0.5.0rc0..0.5.23",
        capability="8.0..12.*",
        quantization=("none",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("auto",),
        SUPPORTED,
        "the release's own choice: Triton experts, or FlashInfer's TensorRT-LLM MoE for some models on 10.x",
        (
            *_sglang(_FP8_FILE, "fused_experts", "0.5.0rc0", "0.5.2rc2"),
            *_sglang(_FP8_FILE, "MoeRunnerBackend.TRITON", "0.5.2", "0.5.23"),
        ),
        sglang="0.5.0rc0..0.5.23",
        capability="8.9..12.*",
        quantization=("fp8",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("auto",),
        SUPPORTED,
        "the release's own choice: Triton experts, or FlashInfer's TensorRT-LLM MoE for some models on 10.x",
        _sglang(_MODELOPT, "MoeRunner(MoeRunnerBackend.TRITON, moe_runner_config)", "0.5.4", "0.5.23"),
        sglang="0.5.4..0.5.23",
        capability="8.9..12.*",
        quantization=("modelopt_fp8",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("auto",),
        SUPPORTED,
        "the release's own choice: FlashInfer's TensorRT-LLM MoE for some models, else cutlass_moe_fp4, SGLang's own "
        "CUTLASS FP4 experts",
        (
            *_sglang(_MODELOPT, "from sglang.srt.layers.moe.cutlass_moe import cutlass_moe_fp4", "0.5.0rc0"),
            *_sglang(_MODELOPT, "from sglang.srt.layers.moe.cutlass_moe import cutlass_moe_fp4", "0.5.15.post1"),
        ),
        sglang="0.5.0rc0..0.5.15.post1",
        capability=_SM10,
        quantization=("modelopt_fp4",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("auto",),
        SUPPORTED,
        "the release's own choice: FlashInfer's TensorRT-LLM MoE",
        _sglang(_MODELOPT, "TRTLLM is currently the most performant and tested FP4 MoE", "0.5.16", "0.5.23"),
        sglang="0.5.16..0.5.23",
        capability=_SM10,
        quantization=("modelopt_fp4",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("auto",),
        SUPPORTED_BUT,
        _NVFP4_STAND_IN,
        (
            *_sglang(_MODELOPT, "from sglang.srt.layers.moe.cutlass_moe import cutlass_moe_fp4", "0.5.4.post2"),
            *_sglang(_MODELOPT, "from sglang.srt.layers.moe.cutlass_moe import cutlass_moe_fp4", "0.5.12.post1"),
            *_sglang("sglang/jit_kernel/nvfp4.py", "cutlass_fp4_group_mm_sm100a_sm120a", "0.5.10rc0", "0.5.12.post1"),
        ),
        sglang="0.5.4.post2..0.5.12.post1",
        capability="12.0|12.1",
        quantization=("modelopt_fp4",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("auto",),
        SUPPORTED,
        "the release chooses flashinfer_cutlass",
        (
            *_sglang(_ARGS, "Use flashinfer_cutlass as MoE runner backend on SM120", "0.5.13", "0.5.14"),
            *_sglang(_OVERRIDES, "Use flashinfer_cutlass as MoE runner backend on SM120", "0.5.15"),
        ),
        sglang="0.5.13..0.5.15.post1",
        capability="12.0|12.1",
        quantization=("modelopt_fp4",),
        parallel="ep in (1, tp)",
        a2a=("none",),
    ),
    Row(
        "moe",
        ("auto",),
        SUPPORTED,
        "the release chooses flashinfer_cutlass",
        (
            *_sglang(_OVERRIDES, "Use flashinfer_cutlass as MoE runner backend on SM120", "0.5.16", "0.5.21"),
            *_sglang(_OVERRIDES, "Use flashinfer_cutlass as MoE runner backend on SM110/SM120", "0.5.22", "0.5.23"),
        ),
        sglang="0.5.16..0.5.23",
        capability="12.0|12.1",
        quantization=("modelopt_fp4",),
        parallel="ep in (1, tp)",
        a2a=("none",),
        args=(("quantization", ("modelopt_fp4",)),),
    ),
    # Of a quantization that only the checkpoint tells, the choice is made for some models only.
    Row(
        "moe",
        ("auto",),
        SUPPORTED_BUT,
        "the release chooses flashinfer_cutlass for certain only when quantization modelopt_fp4 is among the launch "
        "arguments; otherwise it may keep auto, whose FlashInfer TensorRT-LLM MoE runs on 10.x only: give the "
        "quantization, or name the backend",
        (
            *_sglang(_OVERRIDES, "Use flashinfer_cutlass as MoE runner backend on SM120", "0.5.16", "0.5.21"),
            *_sglang(_OVERRIDES, "Use flashinfer_cutlass as MoE runner backend on SM110/SM120", "0.5.22", "0.5.23"),
            *_sglang(_MODELOPT, "TRTLLM is currently the most performant and tested FP4 MoE", "0.5.16", "0.5.23"),
        ),
        sglang="0.5.16..0.5.23",
        capability="12.0|12.1",
        quantization=("modelopt_fp4",),
        parallel="ep in (1, tp)",
        a2a=("none",),
        unless_args=(("quantization", ("modelopt_fp4",)),),
    ),
    Row(
        "moe",
        (),
        UNSUPPORTED,
        "ep {ep} does not divide tp {tp}: the experts cannot be shared out among the ranks",
        (
            *_sglang(
                "sglang/srt/distributed/parallel_state.py",
                "moe_tp_size = tensor_model_parallel_size // moe_ep_size",
                "0.5.10.post1",
            ),
            *_sglang(
                "sglang/srt/model_executor/model_runner_components/moe_ep_setup.py",
                "moe_tp_size = tp_size // moe_ep_size",
                "0.5.23",
            ),
        ),
        parallel="ep does not divide tp",
        a2a=("none",),
    ),
    Row(
        "moe",
        ("auto",),
        UNSUPPORTED,
        "the release chooses flashinfer_cutlass, which it refuses at start unless ep is 1 or tp; here tp is {tp} and "
        "ep {ep}",
        (
            *_sglang(_ARGS, "Use flashinfer_cutlass as MoE runner backend on SM120", "0.5.13", "0.5.14"),
            *_sglang(_OVERRIDES, "Use flashinfer_cutlass as MoE runner backend on SM1", "0.5.15", "0.5.23"),
        ),
        sglang="0.5.13..0.5.23",
        capability="12.0|12.1",
        quantization=("modelopt_fp4",),
        parallel="ep not in (1, tp)",
    ),
    Row(
        "moe",
        ("auto",),
        SUPPORTED,
        "the release chooses flashinfer_cutlass",
        _sglang(_OVERRIDES, "Use flashinfer_cutlass as MoE runner backend on SM110/SM120", "0.5.22", "0.5.23"),
        sglang="0.5.22..0.5.23",
        capability="11.0",
        quantization=("modelopt_fp4",),
        parallel="ep in (1, tp)",
        a2a=("none",),
    ),
    Row(
        "moe",
        ("auto",),
        SUPPORTED,
        "the release chooses Marlin: 16-bit activations, nothing that FlashInfer could tune",
        _sglang(_MODELOPT, "use_marlin_fallback = (8, 0) <= capability < (10, 0)", "0.5.13", "0.5.23"),
        sglang="0.5.13..0.5.23",
        capability="8.0..9.*",
        quantization=("modelopt_fp4",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("auto",),
        SUPPORTED,
        "the release chooses flashinfer_trtllm",
        (
            *_sglang(_ARGS, "mxfp8 quantization supports only", "0.5.10rc0", "0.5.14"),
            *_sglang(_OVERRIDES, "mxfp8 quantization supports only", "0.5.15", "0.5.23"),
        ),
        sglang="0.5.10rc0..0.5.23",
        capability=_SM10,
        quantization=("mxfp8",),
        a2a=("none",),
    ),
    Row(
        "moe",
        ("auto",),
        SUPPORTED,
        "the release chooses flashinfer_trtllm",
        (
            *_sglang(_ARGS, "--quantization nvfp4_online supports only", "0.5.14"),
            *_sglang(_OVERRIDES, "--quantization nvfp4_online supports only", "0.5.15", "0.5.23"),
        ),
        sglang="0.5.14..0.5.23",
        capability=_SM10,
        quantization=("nvfp4_online",),
        a2a=("none",),
    ),
)

_NVFP4_ONLINE = (
    Row(
        "quantization",
        ("nvfp4_online",),
        UNSUPPORTED,
        "SGLang {sglang} takes nvfp4_online on compute capability 10.x only and refuses it at start on {capability}",
        (
            *_sglang(_ARGS, "nvfp4_online is supported only on", "0.5.14"),
            *_sglang(_OVERRIDES, "nvfp4_online is supported only on", "0.5.15", "0.5.23"),
        ),
        sglang="0.5.14..0.5.23",
        capability="..9.*|11.*|12.*",
    ),
)

# Everything but the MoE backends. `attention` and `dsa` rows hold for prefill and decode, `*_prefill` and `*_decode`
# rows for one phase: a flag for both phases needs a verdict of each, from the rows of both parts. In `toolkit` (nvcc)
# and `driver` a backend is a range of versions.
_GROUPS = "sglang/srt/arg_groups/"
_ATTENTION = "sglang/srt/layers/attention/"
_QUANT = "sglang/srt/layers/quantization/"
_DISPATCH = "sglang/srt/layers/moe/token_dispatcher/"
_COMPILE = "flashinfer/compilation_context.py"
_FMHA = "flashinfer/data/include/flashinfer/trtllm/fmha/fmhaRunner.cuh"
_FI_GEMM = "flashinfer/gemm/gemm_base.py"
_LEAST = "get_min_capability(cls) -> int:\n        return "


def _s(version: str, file: str, text: str) -> Proof:
    return Proof(f"sglang {version}", file, text)


def _f(version: str, file: str, text: str) -> Proof:
    return Proof(f"flashinfer-python {version}", file, text)


_TLLM_GEN = (
    _f("0.5.0", _FMHA, "mSM == kSM_100 || mSM == kSM_103"),
    _f("0.7.2", _FMHA, "mSM == kSM_100 || mSM == kSM_103 || mSM == kSM_107"),
    _f("0.7.2", _FMHA, '"Unsupported architecture"'),
)
_ANY_DEFAULT = (
    _s("0.5.0rc0", "sglang/srt/model_executor/model_runner.py", "use flashinfer if available, otherwise use triton"),
    _s("0.5.23", _GROUPS + "model_override_base.py", "use flashinfer if available, otherwise use triton"),
)
_FA3 = (
    _s("0.5.0rc0", "sglang/srt/model_executor/model_runner.py", "FlashAttention v3 Backend requires SM>=80 and SM<=90"),
    _s("0.5.3rc2", _ATTENTION + "attention_registry.py", "FlashAttention v3 Backend requires SM>=80 and SM<=90"),
    _s("0.5.23", _ATTENTION + "attention_registry.py", "FlashAttention v3 Backend requires SM>=80 and SM<=90"),
)
_TRTLLM_MLA = (
    _s("0.5.0rc0", _ARGS, "TRTLLM MLA backend is only supported on Blackwell GPUs (SM100)"),
    _s("0.5.9", _ARGS, "TRTLLM MLA backend is only supported on Blackwell GPUs (SM100/SM12x)"),
    _s("0.5.23", _GROUPS + "overrides.py", "TRTLLM MLA backend is only supported on Blackwell GPUs (SM100/SM12x)"),
)
_TRTLLM_MHA_OLD = (
    _s("0.5.0rc0", _ARGS, "TRTLLM MHA backend is only supported on Blackwell GPUs (SM100)"),
    _s("0.5.9", _ARGS, "TRTLLM MHA backend is only supported on Blackwell GPUs (SM100)"),
)
_TRTLLM_MHA_PREFILL_100 = (
    _s("0.5.10rc0", _ARGS, "TRTLLM MHA backend for prefill is only supported on Blackwell GPUs (SM100)"),
    _s("0.5.18", _ARGS, "TRTLLM MHA backend for prefill is only supported on Blackwell GPUs (SM100)"),
)
_TRTLLM_MHA_PREFILL_NEW = (
    _s(
        "0.5.19",
        _GROUPS + "attention_hook.py",
        "backend for prefill requires Hopper (SM90), Blackwell (SM100), or SM120",
    ),
    _s(
        "0.5.23",
        _GROUPS + "attention_hook.py",
        "backend for prefill requires Hopper (SM90), Blackwell (SM100), or SM120",
    ),
)
_TRTLLM_MHA_DECODE = (
    _s("0.5.10rc0", _ARGS, "for decode is only supported on Hopper (SM90), Blackwell (SM100) and (SM120)"),
    _s(
        "0.5.23",
        _GROUPS + "attention_hook.py",
        "for decode is only supported on Hopper (SM90), Blackwell (SM100) and (SM120)",
    ),
)
_TRTLLM_MHA_KV = (
    _s("0.5.19", _GROUPS + "attention_hook.py", "TRTLLM FMHAv2 prefill on SM120 does not support"),
    _s("0.5.23", _GROUPS + "attention_hook.py", "TRTLLM FMHAv2 prefill on SM120 does not support"),
    _f("0.6.18", "flashinfer/prefill.py", "FP8 (e4m3) is not yet supported for FMHAv2 on SM120"),
)
_CUTEDSL_MLA = (
    _s("0.5.13", _ARGS, "CuteDSL MLA backend is only supported on Blackwell GPUs (SM100)"),
    _s("0.5.15", _GROUPS + "overrides.py", "CuteDSL MLA backend is only supported on Blackwell GPUs (SM100)"),
    _s("0.5.23", _GROUPS + "overrides.py", "CuteDSL MLA only supports decoding for now"),
)
_FLASH_MLA_120 = (
    _s("0.5.13", _ATTENTION + "flash_mla_sm120.py", "the flash_mla CUDA kernel"),
    _s("0.5.23", "sglang/kernels/ops/attention/flash_mla_sm120.py", "the flash_mla CUDA kernel"),
)
_HPC = (
    _s("0.5.17", _ATTENTION + "hpc_ops_backend.py", "attention backend requires an SM90 (Hopper) GPU"),
    _s("0.5.23", _ATTENTION + "hpc_ops_backend.py", "attention backend requires an SM90 (Hopper) GPU"),
)
_OTHER_HARDWARE = (
    _s("0.5.0rc2", _ARGS, "# AMD specific"),
    _s("0.5.0rc2", _ARGS, "# Other platforms"),
    _s("0.5.23", _GROUPS + "choices.py", "# AMD specific"),
    _s("0.5.23", _GROUPS + "choices.py", "# Other platforms"),
)

_ATTENTION_ROWS = (
    Row(
        "attention",
        ("fa3",),
        SUPPORTED,
        "its kernels are made for Hopper",
        _FA3,
        sglang="0.5.0rc0..0.5.23",
        capability="9.*",
    ),
    Row(
        "attention",
        ("fa3",),
        SUPPORTED_BUT,
        "on compute capability 8.x it serves only models without multi-head latent attention (MLA)",
        _FA3,
        sglang="0.5.0rc0..0.5.23",
        capability="8.*",
    ),
    Row(
        "attention",
        ("fa3",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: FlashAttention 3 asks for compute capability 8.x or 9.x, not {capability}",
        _FA3,
        sglang="0.5.0rc0..0.5.23",
        capability="..7.9|10.0..",
    ),
    Row(
        "attention_decode",
        ("fa4",),
        UNSUPPORTED,
        "SGLang {sglang} refuses fa4 for decoding: it may only be the prefill backend there",
        (
            _s("0.5.4", _ARGS, "FA4 backend is only supported for prefill"),
            _s("0.5.7", _ARGS, "FA4 backend is only supported for prefill"),
        ),
        sglang="0.5.4..0.5.7",
    ),
    Row(
        "attention",
        ("fa4",),
        SUPPORTED,
        "its kernels accept compute capability {capability}",
        (
            _s(
                "0.5.17", "sglang/kernels/ops/attention/flash_attn/cute/interface.py", "Supported: 8.x, 9.x, 10.x, 11.x"
            ),
            _s(
                "0.5.23", "sglang/kernels/ops/attention/flash_attn/cute/interface.py", "Supported: 8.x, 9.x, 10.x, 11.x"
            ),
        ),
        sglang="0.5.17..0.5.23",
        capability="10.*|11.*",
    ),
    Row(
        "attention",
        ("fa4",),
        SUPPORTED_BUT,
        "SGLang {sglang} has kernels of its own for it on compute capability 12.x, but none for absorbed MLA there",
        (
            _s("0.5.18", _ATTENTION + "flashattention_backend.py", "if device_capability[0] == 12:"),
            _s("0.5.23", _ATTENTION + "flashattention_backend.py", "if device_capability[0] == 12:"),
            _s(
                "0.5.23",
                "sglang/kernels/ops/attention/flash_attn/cute/interface.py",
                "only support Blackwell arch with qv",
            ),
        ),
        sglang="0.5.18..0.5.23",
        capability="12.*",
    ),
    Row(
        "attention",
        ("fa4",),
        UNSUPPORTED,
        "SGLang {sglang} has no such backend: it came with 0.5.3rc2",
        (_s("0.5.3rc2", _ARGS, '"fa4",'),),
        sglang="0.5.0rc0..0.5.3rc0",
    ),
    Row(
        "attention",
        ("flashinfer",),
        SUPPORTED,
        "FlashInfer builds its kernels for compute capability 7.5 and newer",
        (
            *_ANY_DEFAULT,
            _f("0.5.0", "flashinfer/jit/core.py", "FlashInfer requires GPUs with sm75 or higher"),
            _f("0.7.2", "flashinfer/jit/core.py", "FlashInfer requires GPUs with sm75 or higher"),
        ),
        sglang="0.5.4.post3..0.5.23",
        flashinfer="0.5.0..0.7.2",
        capability="7.5..",
    ),
    Row(
        "attention",
        ("flashinfer",),
        UNSUPPORTED,
        "FlashInfer {flashinfer} refuses GPUs below compute capability 7.5",
        (
            _f("0.5.0", "flashinfer/jit/core.py", "FlashInfer requires GPUs with sm75 or higher"),
            _f("0.7.2", "flashinfer/jit/core.py", "FlashInfer requires GPUs with sm75 or higher"),
        ),
        flashinfer="0.5.0..0.7.2",
        capability="..7.4",
    ),
    Row(
        "attention",
        ("triton",),
        SUPPORTED,
        "its kernels are compiled by Triton for the GPU at hand; SGLang falls back to it where nothing else fits",
        (
            *_ANY_DEFAULT,
            _s("0.5.16", _ATTENTION + "attention_registry.py", 'allowed = {"triton", "trtllm_mha", "flashinfer"}'),
            _s("0.5.23", _ATTENTION + "attention_registry.py", 'allowed = {"triton", "trtllm_mha", "flashinfer"}'),
        ),
        sglang="0.5.0rc0..0.5.23",
        capability="8.0..",
    ),
    Row(
        "attention",
        ("torch_native",),
        SUPPORTED_BUT,
        "it runs PyTorch's own attention, and SGLang {sglang} then switches CUDA graphs off",
        (
            _s("0.5.0rc0", _ARGS, "because of using torch native attention backend"),
            _s("0.5.23", _GROUPS + "attention_hook.py", "because of using torch native attention backend"),
        ),
        sglang="0.5.0rc0..0.5.23",
    ),
    Row(
        "attention",
        ("flex_attention",),
        SUPPORTED_BUT,
        "it runs PyTorch's FlexAttention, and SGLang {sglang} then switches CUDA graphs off and refuses"
        " speculative decoding",
        (
            _s("0.5.3rc2", _ARGS, "because of using torch Flex Attention backend"),
            _s("0.5.23", _GROUPS + "attention_hook.py", "because of using torch Flex Attention backend"),
        ),
        sglang="0.5.3rc2..0.5.23",
    ),
    Row(
        "attention",
        ("trtllm_mla",),
        SUPPORTED,
        "its trtllm-gen kernels are made for compute capability 10.0 and 10.3 (models with MLA only)",
        (*_TRTLLM_MLA, *_TLLM_GEN),
        sglang="0.5.0rc0..0.5.23",
        capability="10.0|10.3",
    ),
    Row(
        "attention",
        ("trtllm_mla",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: trtllm_mla asks for a Blackwell GPU, not compute capability {capability}",
        _TRTLLM_MLA,
        sglang="0.5.0rc0..0.5.23",
        capability="..9.9",
    ),
    Row(
        "attention",
        ("trtllm_mla",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: trtllm_mla asks for compute capability 10.x there, not {capability}",
        (
            _s("0.5.0rc0", _ARGS, "TRTLLM MLA backend is only supported on Blackwell GPUs (SM100)"),
            _s("0.5.4.post1", _ARGS, "TRTLLM MLA backend is only supported on Blackwell GPUs (SM100)"),
            _s("0.5.4.post1", _ARGS, "if not is_sm100_supported():"),
            _s("0.5.4.post2", _ARGS, "if not is_blackwell_supported():"),
        ),
        sglang="0.5.0rc0..0.5.4.post1",
        capability="11.0..",
    ),
    Row(
        "attention_prefill",
        ("trtllm_mla",),
        UNSUPPORTED,
        "SGLang lets it through, but FlashInfer's trtllm-gen prefill kernel refuses compute capability {capability}"
        " at the first request (Unsupported architecture)",
        (
            _s("0.5.4.post3", _ATTENTION + "trtllm_mla_backend.py", "trtllm_ragged_attention_deepseek"),
            _s("0.5.23", _ATTENTION + "trtllm_mla_backend.py", "trtllm_ragged_attention_deepseek"),
            *_TLLM_GEN,
        ),
        source="seen on RTX PRO 6000 with SGLang 0.5.10: sgl-project/sglang#24633, flashinfer-ai/flashinfer#3263",
        sglang="0.5.4.post3..0.5.23",
        flashinfer="0.5.0..0.7.2",
        capability="12.*",
    ),
    Row(
        "attention",
        ("trtllm_mha",),
        SUPPORTED,
        "its trtllm-gen kernels are made for compute capability 10.0 and 10.3 (models without MLA only)",
        (*_TRTLLM_MHA_OLD, *_TRTLLM_MHA_PREFILL_NEW, *_TLLM_GEN),
        sglang="0.5.0rc0..0.5.23",
        capability="10.0|10.3",
    ),
    Row(
        "attention",
        ("trtllm_mha",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: trtllm_mha asks for compute capability 10.x there, not {capability}",
        _TRTLLM_MHA_OLD,
        sglang="0.5.0rc0..0.5.9",
        capability="..9.9|11.0..",
    ),
    Row(
        "attention_prefill",
        ("trtllm_mha",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: trtllm_mha as the prefill backend asks for compute capability 10.x,"
        " not {capability}",
        _TRTLLM_MHA_PREFILL_100,
        sglang="0.5.10rc0..0.5.18",
        capability="..9.9|11.0..",
    ),
    Row(
        "attention_prefill",
        ("trtllm_mha",),
        SUPPORTED,
        "prefill runs FlashInfer's fmha_v2 kernels there",
        (
            *_TRTLLM_MHA_PREFILL_NEW,
            _f("0.6.18", "flashinfer/jit/attention/modules.py", "supported_major_versions=[9, 12]"),
            _f("0.7.2", "flashinfer/jit/attention/modules.py", "supported_major_versions=[9, 12]"),
        ),
        sglang="0.5.19..0.5.23",
        capability="9.*",
    ),
    Row(
        "attention_prefill",
        ("trtllm_mha",),
        SUPPORTED_BUT,
        "prefill runs FlashInfer's fmha_v2 kernels there, without an fp8_e4m3 KV cache or skip-softmax",
        (
            *_TRTLLM_MHA_PREFILL_NEW,
            *_TRTLLM_MHA_KV,
            _f("0.6.18", "flashinfer/jit/attention/modules.py", "supported_major_versions=[9, 12]"),
            _f("0.7.2", "flashinfer/jit/attention/modules.py", "supported_major_versions=[9, 12]"),
        ),
        sglang="0.5.19..0.5.23",
        capability="12.*",
    ),
    Row(
        "attention_prefill",
        ("trtllm_mha",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: trtllm_mha prefill on compute capability {capability} has no fp8_e4m3"
        " KV cache",
        _TRTLLM_MHA_KV,
        sglang="0.5.19..0.5.23",
        capability="12.*",
        args=(("kv_cache_dtype", ("fp8_e4m3",)),),
    ),
    Row(
        "attention_prefill",
        ("trtllm_mha",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: trtllm_mha prefill asks for compute capability 9.x, 10.x or 12.x, not"
        " {capability}",
        _TRTLLM_MHA_PREFILL_NEW,
        sglang="0.5.19..0.5.23",
        capability="..8.9|11.*",
    ),
    Row(
        "attention_decode",
        ("trtllm_mha",),
        SUPPORTED,
        "decoding runs FlashInfer's XQA kernels there (models without MLA only)",
        (
            *_TRTLLM_MHA_DECODE,
            _s("0.5.10rc0", _ATTENTION + "trtllm_mha_backend.py", "self.is_xqa_impl = is_sm90_supported() or"),
            _f("0.6.6", "flashinfer/jit/xqa.py", "supported_major_versions=[9, 10, 11, 12]"),
            _f("0.7.2", "flashinfer/jit/xqa.py", "supported_major_versions=[9, 10, 12]"),
        ),
        sglang="0.5.10rc0..0.5.23",
        flashinfer="0.6.6..0.7.2",
        capability="9.*|12.*",
    ),
    Row(
        "attention_decode",
        ("trtllm_mha",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: trtllm_mha decoding asks for compute capability 9.x, 10.x or 12.x,"
        " not {capability}",
        _TRTLLM_MHA_DECODE,
        sglang="0.5.10rc0..0.5.23",
        capability="..8.9|11.*",
    ),
    Row(
        "attention",
        ("cutedsl_mla",),
        SUPPORTED_BUT,
        "it decodes only; SGLang {sglang} takes trtllm_mla for prefill beside it",
        _CUTEDSL_MLA,
        sglang="0.5.13..0.5.23",
        capability="10.*",
    ),
    Row(
        "attention",
        ("cutedsl_mla",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: cutedsl_mla asks for compute capability 10.x, not {capability}",
        _CUTEDSL_MLA,
        sglang="0.5.13..0.5.23",
        capability="..9.9|11.0..",
    ),
    Row(
        "attention",
        ("cutedsl_mla",),
        UNSUPPORTED,
        "SGLang {sglang} has no such backend: it came with 0.5.13",
        (_s("0.5.13", _ARGS, '"cutedsl_mla",'),),
        sglang="0.5.0rc0..0.5.12.post1",
    ),
    Row(
        "attention",
        ("tokenspeed_mla",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: tokenspeed_mla asks for a Blackwell GPU, not compute capability {capability}",
        (
            _s("0.5.12", _ARGS, "tokenspeed_mla backend is only supported on Blackwell GPUs (SM100/SM12x)"),
            _s(
                "0.5.22",
                _GROUPS + "overrides.py",
                "tokenspeed_mla backend is only supported on Blackwell GPUs (SM100/SM12x)",
            ),
        ),
        sglang="0.5.12..0.5.22",
        capability="..9.9",
    ),
    Row(
        "attention",
        ("cutlass_mla", "dual_chunk_flash_attn"),
        UNSUPPORTED,
        "SGLang {sglang} no longer has this backend: 0.5.19 was the last release with it",
        (_s("0.5.19", _ARGS, '"cutlass_mla",'), _s("0.5.19", _ARGS, '"dual_chunk_flash_attn",')),
        sglang="0.5.20..0.5.23",
    ),
    Row(
        "attention",
        ("flashmla",),
        UNSUPPORTED,
        "the FlashMLA CUDA kernel is not built for compute capability {capability}",
        _FLASH_MLA_120,
        sglang="0.5.13..0.5.23",
        capability="12.0",
    ),
    Row(
        "attention",
        ("hpc_ops",),
        SUPPORTED_BUT,
        "it needs the package hpc, which SGLang does not install, and has no MLA and no speculative decoding",
        (*_HPC, _s("0.5.23", _ATTENTION + "hpc_ops_backend.py", "attention backend requires the `hpc` package")),
        sglang="0.5.17..0.5.23",
        capability="9.*",
    ),
    Row(
        "attention",
        ("hpc_ops",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: hpc_ops asks for compute capability 9.x, not {capability}",
        _HPC,
        sglang="0.5.17..0.5.23",
        capability="..8.9|10.0..",
    ),
    Row(
        "attention",
        ("aiter", "wave", "ascend", "intel_amx"),
        UNSUPPORTED,
        "{backend} is made for hardware other than NVIDIA GPUs",
        _OTHER_HARDWARE,
        sglang="0.5.0rc2..0.5.23",
    ),
    Row(
        "attention",
        ("intel_xpu",),
        UNSUPPORTED,
        "{backend} is made for hardware other than NVIDIA GPUs",
        (_s("0.5.4", _ARGS, '"intel_xpu",'), *_OTHER_HARDWARE[2:]),
        sglang="0.5.4..0.5.23",
    ),
)

_DSA_TRTLLM = (
    _s("0.5.9", _ATTENTION + "nsa_backend.py", 'backend="trtllm-gen"'),
    _s("0.5.12.post1", _ATTENTION + "nsa_backend.py", 'backend="trtllm-gen"'),
    _s("0.5.13", _ATTENTION + "dsa_backend.py", 'backend="trtllm-gen"'),
    _s("0.5.23", _ATTENTION + "dsa_backend.py", 'backend="trtllm-gen"'),
    *_TLLM_GEN,
)
_DSA_FLASHMLA = ("flashmla_sparse", "flashmla_kv", "flashmla_auto")
_Q8 = (
    _s("0.5.16", _ATTENTION + "dsa_backend.py", "--dsa-prefill-backend flashmla_sparse_q8 is SM90-only"),
    _s("0.5.23", _ATTENTION + "dsa_backend.py", "--dsa-prefill-backend flashmla_sparse_q8 is SM90-only"),
)
_FLASHINFER_SPARSE = (
    _s("0.5.17", "sglang/kernels/ops/attention/flash_mla_sm120.py", "supports only GLM DSA with FP8 KV cache"),
    _s("0.5.23", "sglang/kernels/ops/attention/flash_mla_sm120.py", "supports only GLM DSA with FP8 KV cache"),
    _s("0.5.23", "sglang/kernels/ops/attention/flash_mla_sm120.py", "and device_sm_major == 12"),
)
_TRITON_SPARSE = (
    _s("0.5.22", _ATTENTION + "dsa_backend.py", "triton_sparse_mla requires SM90 (Hopper) or newer"),
    _s("0.5.23", _ATTENTION + "dsa_backend.py", "triton_sparse_mla requires SM90 (Hopper) or newer"),
)

_DSA_ROWS = (
    Row(
        "dsa",
        ("trtllm",),
        SUPPORTED,
        "its trtllm-gen kernels are made for compute capability 10.0 and 10.3",
        _DSA_TRTLLM,
        sglang="0.5.9..0.5.23",
        capability="10.0|10.3",
    ),
    Row(
        "dsa",
        ("trtllm",),
        UNSUPPORTED,
        "SGLang {sglang} asks FlashInfer for its trtllm-gen kernel by name, which refuses compute capability"
        " {capability}"
        " (Unsupported architecture)",
        _DSA_TRTLLM,
        source="seen on RTX PRO 6000: sgl-project/sglang#40558, flashinfer-ai/flashinfer#5290 and #5445",
        sglang="0.5.9..0.5.23",
        flashinfer="0.6.3..0.7.2",
        capability="12.*",
    ),
    Row(
        "dsa",
        ("trtllm",),
        UNSUPPORTED,
        "FlashInfer's trtllm-gen kernel refuses compute capability {capability} (Unsupported architecture)",
        _DSA_TRTLLM,
        sglang="0.5.9..0.5.23",
        flashinfer="0.6.3..0.7.2",
        capability="..9.9",
    ),
    Row(
        "dsa",
        ("trtllm",),
        UNSUPPORTED,
        "SGLang {sglang} has no such choice: it came with 0.5.9",
        (_s("0.5.9", _ARGS, '"trtllm",'),),
        sglang="0.5.3rc2..0.5.8.post1",
    ),
    Row(
        "dsa",
        _DSA_FLASHMLA,
        UNSUPPORTED,
        "the FlashMLA CUDA kernel is not built for compute capability {capability}",
        (
            *_FLASH_MLA_120,
            _s("0.5.13", _ATTENTION + "dsa_backend.py", "from sgl_kernel.flash_mla import flash_mla_sparse_fwd"),
            _s("0.5.23", _ATTENTION + "dsa_backend.py", "from sglang.kernels.ops.attention.flash_mla_interface import"),
        ),
        sglang="0.5.13..0.5.23",
        capability="12.0",
    ),
    Row(
        "dsa_prefill",
        ("flashmla_sparse",),
        SUPPORTED,
        "FlashMLA's sparse kernel is made for Hopper and for compute capability 10.x",
        (
            _s("0.5.6", _ATTENTION + "nsa_backend.py", "a multiple of 64 (Hopper) or 128 (Blackwell)"),
            _s("0.5.23", _ATTENTION + "dsa_backend.py", "a multiple of 64 (Hopper) or 128 (Blackwell)"),
        ),
        sglang="0.5.6..0.5.23",
        capability="9.*|10.*",
    ),
    Row(
        "dsa",
        ("flashmla_kv",),
        SUPPORTED,
        "SGLang {sglang} takes it itself on Hopper with an FP8 KV cache",
        (
            _s("0.5.11", _ARGS, "Hopper FP8 defaults to flashmla_kv"),
            _s("0.5.14", _ARGS, "Hopper FP8 defaults to flashmla_kv"),
            _s("0.5.23", _GROUPS + "overrides.py", "Hopper FP8 to flashmla_kv"),
        ),
        sglang="0.5.11..0.5.23",
        capability="9.*",
    ),
    Row(
        "dsa_decode",
        ("fa3",),
        SUPPORTED,
        "SGLang {sglang} takes it itself on Hopper with a bfloat16 KV cache",
        (
            _s("0.5.9", _ARGS, "Hopper defaults for bfloat16"),
            _s("0.5.14", _ARGS, "Hopper defaults for bfloat16"),
            _s("0.5.23", _GROUPS + "overrides.py", '"trtllm" if major >= 10 else "fa3"'),
        ),
        sglang="0.5.9..0.5.23",
        capability="9.*",
    ),
    Row(
        "dsa",
        ("tilelang",),
        SUPPORTED_BUT,
        "it serves GLM models there with a bfloat16 KV cache only (--kv-cache-dtype bfloat16), which holds"
        " about half the tokens",
        (
            _s("0.5.19", "sglang/kernels/ops/attention/flash_mla_sm120.py", "only flashinfer_sparse_mla, "),
            _s(
                "0.5.21",
                "sglang/kernels/ops/attention/flash_mla_sm120.py",
                "GLM DSA with FP8 KV cache on NVIDIA SM120/SM121",
            ),
        ),
        source="8x RTX PRO 6000 with FlashInfer 0.6.18 in production: flashinfer-ai/flashinfer#5290",
        sglang="0.5.19..0.5.21",
        flashinfer="0.6.18",
        capability="12.0",
    ),
    Row(
        "dsa",
        ("triton",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: this choice is for AMD GPUs; on CUDA it names trtllm or flashmla_kv instead",
        (
            _s("0.5.20", _GROUPS + "overrides.py", "ROCm/HIP. Pick an alternative DSA backend for CUDA"),
            _s("0.5.23", _GROUPS + "overrides.py", "ROCm/HIP. Pick an alternative DSA backend for CUDA"),
        ),
        sglang="0.5.20..0.5.23",
    ),
    Row(
        "dsa",
        ("tilelang",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: tilelang with an FP8 KV cache asks for compute capability 8.9 or"
        " newer, not {capability}",
        (
            _s("0.5.22", _GROUPS + "overrides.py", "CUDA TileLang FP8 KV requires SM89 or newer"),
            _s("0.5.23", _GROUPS + "overrides.py", "CUDA TileLang FP8 KV requires SM89 or newer"),
        ),
        sglang="0.5.22..0.5.23",
        capability="..8.8",
        args=(("kv_cache_dtype", ("fp8_e4m3",)),),
    ),
    Row(
        "dsa_prefill",
        ("flashmla_sparse_q8",),
        SUPPORTED,
        "its kernel is made for Hopper; the KV cache must be fp8_e4m3 (0.5.23: bfloat16 too)",
        _Q8,
        sglang="0.5.16..0.5.23",
        capability="9.*",
    ),
    Row(
        "dsa_prefill",
        ("flashmla_sparse_q8",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: flashmla_sparse_q8 asks for compute capability 9.x, not {capability}",
        _Q8,
        sglang="0.5.16..0.5.23",
        capability="..8.9|10.0..",
    ),
    Row(
        "dsa_decode",
        ("flashmla_sparse_q8",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: flashmla_sparse_q8 is for prefill only",
        (
            _s("0.5.16", _ATTENTION + "dsa_backend.py", "--dsa-decode-backend flashmla_sparse_q8 is not supported"),
            _s("0.5.23", _ATTENTION + "dsa_backend.py", "--dsa-decode-backend flashmla_sparse_q8 is not supported"),
        ),
        sglang="0.5.16..0.5.23",
    ),
    Row(
        "dsa",
        ("flashinfer_sparse_mla",),
        SUPPORTED_BUT,
        "it serves GLM models with an FP8 KV cache (--kv-cache-dtype fp8_e4m3) and refuses every other",
        _FLASHINFER_SPARSE,
        sglang="0.5.17..0.5.23",
        capability="12.*",
    ),
    Row(
        "dsa",
        ("flashinfer_sparse_mla",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: flashinfer_sparse_mla asks for compute capability 12.x, not {capability}",
        _FLASHINFER_SPARSE,
        sglang="0.5.17..0.5.23",
        capability="..11.9",
    ),
    Row(
        "dsa",
        ("flashinfer_sparse_mla",),
        UNSUPPORTED,
        "SGLang {sglang} has no such choice: it came with 0.5.17",
        (_s("0.5.17", _ARGS, '"flashinfer_sparse_mla",'),),
        sglang="0.5.3rc2..0.5.16",
    ),
    Row(
        "dsa_prefill",
        ("triton_sparse_mla",),
        SUPPORTED_BUT,
        "it takes at most 32 query heads per rank",
        (*_TRITON_SPARSE, _s("0.5.23", _ATTENTION + "dsa_backend.py", "_TRITON_SPARSE_MLA_MAX_HEADS = 32")),
        sglang="0.5.22..0.5.23",
        capability="9.0..",
    ),
    Row(
        "dsa_prefill",
        ("triton_sparse_mla",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: triton_sparse_mla asks for compute capability 9.0 or newer, not {capability}",
        _TRITON_SPARSE,
        sglang="0.5.22..0.5.23",
        capability="..8.9",
    ),
)

_SM100_103 = "@supported_compute_capability([100, 103])\ndef "
_NATIVE_FP4 = (
    _s("0.5.13", _QUANT + "modelopt_quant.py", "ModelOpt NVFP4 native dense GEMM backends require SM100+"),
    _s("0.5.23", _QUANT + "modelopt_quant.py", "ModelOpt NVFP4 native dense GEMM backends require SM100+"),
)
_FP4_OLD = (
    _s("0.5.8", _QUANT + "modelopt_quant.py", "Current platform does not support NVFP4"),
    _s("0.5.8", _QUANT + "modelopt_quant.py", _LEAST + "100"),
    _s("0.5.12.post1", _QUANT + "modelopt_quant.py", _LEAST + "100"),
)
_FP4_FLASHINFER = ("flashinfer_cudnn", "flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_cutedsl")
_FP4_ANY_BLACKWELL = (
    _f(
        "0.5.3", _FI_GEMM, "@supported_compute_capability([100, 103, 110, 120, 121])\ndef _cutlass_gemm_fp4_requirement"
    ),
    _f("0.5.3", _FI_GEMM, "@supported_compute_capability([100, 103, 110, 120, 121])\ndef _cudnn_gemm_fp4_requirement"),
    _f(
        "0.7.2",
        _FI_GEMM,
        "@supported_compute_capability([100, 103, 107, 110, 120, 121])\ndef _cutlass_gemm_fp4_requirement",
    ),
    _f(
        "0.7.2",
        _FI_GEMM,
        "@supported_compute_capability([100, 103, 107, 110, 120, 121])\ndef _cudnn_gemm_fp4_requirement",
    ),
)
_FP4_TRTLLM = (
    _f("0.6.1", _FI_GEMM, _SM100_103 + "_trtllm_gemm_fp4_requirement"),
    _f("0.6.15.post1", _FI_GEMM, _SM100_103 + "_trtllm_gemm_fp4_requirement"),
    _f("0.7.2", _FI_GEMM, "@supported_compute_capability([100, 103, 107])\ndef _trtllm_gemm_fp4_requirement"),
)
_FP4_CUTEDSL_OLD = (
    _f("0.6.6", _FI_GEMM, _SM100_103 + "_cute_dsl_gemm_fp4_requirement"),
    _f("0.6.17", _FI_GEMM, _SM100_103 + "_cute_dsl_gemm_fp4_requirement"),
    _f("0.6.18", _FI_GEMM, "@supported_compute_capability([100, 103, 107])\ndef _cute_dsl_gemm_fp4_requirement"),
)
_FP4_CUTEDSL_NEW = (
    _f(
        "0.7.1",
        _FI_GEMM,
        "@supported_compute_capability([100, 103, 107, 120, 121])\ndef _cute_dsl_gemm_fp4_requirement",
    ),
    _f(
        "0.7.2",
        _FI_GEMM,
        "@supported_compute_capability([100, 103, 107, 120, 121])\ndef _cute_dsl_gemm_fp4_requirement",
    ),
)
_FP4_JIT = (
    _s("0.5.10rc0", "sglang/jit_kernel/nvfp4.py", "NVFP4 JIT kernels require compute capability >= 10.0"),
    _s("0.5.15.post1", "sglang/jit_kernel/nvfp4.py", "NVFP4 JIT kernels require compute capability >= 10.0"),
    _s("0.5.10", "sglang/jit_kernel/csrc/gemm/nvfp4/nvfp4_scaled_mm_entry.cuh", "cutlass_scaled_fp4_mm_sm100a_sm120a"),
    _s("0.5.15.post1", _QUANT + "fp4_utils.py", 'CUTLASS = "cutlass"'),
)
_FP4_MARLIN = (
    _s("0.5.13", _QUANT + "modelopt_quant.py", "Use --fp4-gemm-backend marlin on SM80-SM90"),
    _s("0.5.23", _QUANT + "modelopt_quant.py", "Use --fp4-gemm-backend marlin on SM80-SM90"),
    _s("0.5.13", _QUANT + "fp4_utils.py", 'MARLIN = "marlin"'),
)

_FP4_GEMM_ROWS = (
    Row(
        "fp4_gemm",
        ("auto",),
        SUPPORTED,
        "SGLang {sglang} picks one that FlashInfer has for compute capability {capability}",
        (
            _s("0.5.8", _QUANT + "fp4_utils.py", 'FLASHINFER_TRTLLM = "flashinfer_trtllm"'),
            _s("0.5.23", _QUANT + "fp4_utils.py", 'backend = "flashinfer_cutlass"'),
            *_FP4_ANY_BLACKWELL,
        ),
        sglang="0.5.8..0.5.23",
        flashinfer="0.6.1..0.7.2",
        capability="10.0|10.3|12.0|12.1",
    ),
    Row(
        "fp4_gemm",
        ("auto",),
        SUPPORTED_BUT,
        "SGLang {sglang} picks marlin there, which multiplies in 16 bits",
        (
            _s("0.5.13", _QUANT + "fp4_utils.py", "(10, 0) > get_device_capability() >= (8, 0)"),
            _s("0.5.23", _QUANT + "fp4_utils.py", "(10, 0) > get_device_capability() >= (8, 0)"),
            *_FP4_MARLIN,
        ),
        sglang="0.5.13..0.5.23",
        capability="8.*|9.*",
    ),
    Row(
        "fp4_gemm",
        ("flashinfer_cudnn", "flashinfer_cutlass"),
        SUPPORTED,
        "FlashInfer {flashinfer} has this FP4 kernel for compute capability {capability}",
        (_s("0.5.8", _QUANT + "fp4_utils.py", 'FLASHINFER_TRTLLM = "flashinfer_trtllm"'), *_FP4_ANY_BLACKWELL),
        sglang="0.5.8..0.5.23",
        flashinfer="0.6.1..0.7.2",
        capability="10.0|10.3|11.0|12.0|12.1",
    ),
    Row(
        "fp4_gemm",
        ("flashinfer_trtllm",),
        SUPPORTED,
        "FlashInfer {flashinfer} has this FP4 kernel for compute capability {capability}",
        _FP4_TRTLLM,
        sglang="0.5.8..0.5.23",
        flashinfer="0.6.1..0.7.2",
        capability="10.0|10.3",
    ),
    Row(
        "fp4_gemm",
        ("flashinfer_trtllm",),
        UNSUPPORTED,
        "FlashInfer {flashinfer} has its trtllm FP4 kernel for compute capability 10.x only and raises at the"
        " first use",
        _FP4_TRTLLM,
        sglang="0.5.8..0.5.23",
        flashinfer="0.6.1..0.7.2",
        capability="11.0..",
    ),
    Row(
        "fp4_gemm",
        ("flashinfer_cutedsl",),
        SUPPORTED,
        "FlashInfer {flashinfer} has this FP4 kernel for compute capability {capability}",
        (_s("0.5.12", _QUANT + "fp4_utils.py", 'return "cute-dsl"'), *_FP4_CUTEDSL_OLD, *_FP4_CUTEDSL_NEW),
        sglang="0.5.12..0.5.23",
        flashinfer="0.6.6..0.7.2",
        capability="10.0|10.3",
    ),
    Row(
        "fp4_gemm",
        ("flashinfer_cutedsl",),
        UNSUPPORTED,
        "FlashInfer {flashinfer} has its CuTe DSL FP4 kernel for compute capability 10.x only and raises at"
        " the first use",
        (_s("0.5.12", _QUANT + "fp4_utils.py", 'return "cute-dsl"'), *_FP4_CUTEDSL_OLD),
        sglang="0.5.12..0.5.23",
        flashinfer="0.6.6..0.6.18",
        capability="11.0..",
    ),
    Row(
        "fp4_gemm",
        ("flashinfer_cutedsl",),
        SUPPORTED,
        "FlashInfer {flashinfer} has this FP4 kernel for compute capability {capability}",
        (_s("0.5.23", _QUANT + "fp4_utils.py", 'return "cute-dsl"'), *_FP4_CUTEDSL_NEW),
        sglang="0.5.12..0.5.23",
        flashinfer="0.7.1..0.7.2",
        capability="12.0|12.1",
    ),
    Row(
        "fp4_gemm",
        ("flashinfer_cutedsl",),
        UNSUPPORTED,
        "SGLang {sglang} has no such choice: it came with 0.5.12",
        (_s("0.5.12", _QUANT + "fp4_utils.py", 'return "cute-dsl"'),),
        sglang="0.5.8..0.5.11",
    ),
    Row(
        "fp4_gemm",
        ("cutlass",),
        SUPPORTED,
        "SGLang {sglang} builds this kernel itself for compute capability {capability}",
        _FP4_JIT,
        sglang="0.5.10..0.5.15.post1",
        capability="10.0|10.3|12.0",
    ),
    Row(
        "fp4_gemm",
        ("cutlass",),
        UNSUPPORTED,
        "SGLang {sglang} raises: its own NVFP4 kernels ask for compute capability 10.0 or newer",
        _FP4_JIT,
        sglang="0.5.10..0.5.15.post1",
        capability="..9.9",
    ),
    Row(
        "fp4_gemm",
        ("cutlass",),
        UNSUPPORTED,
        "SGLang {sglang} no longer has this choice: 0.5.15.post1 was the last release with it",
        (_s("0.5.15.post1", _QUANT + "fp4_utils.py", 'CUTLASS = "cutlass"'),),
        sglang="0.5.16..0.5.23",
    ),
    Row(
        "fp4_gemm",
        ("marlin",),
        SUPPORTED_BUT,
        "it unpacks the weights and multiplies in 16 bits: memory is saved, compute is not",
        _FP4_MARLIN,
        sglang="0.5.13..0.5.23",
        capability="8.*|9.*",
    ),
    Row(
        "fp4_gemm",
        ("marlin",),
        SUPPORTED_BUT,
        "it unpacks the weights and multiplies in 16 bits, where the GPU has FP4 units",
        (
            _s("0.5.19", _GROUPS + "model_overrides/muse_glimmer.py", "Use marlin as FP4 GEMM runner backend on SM120"),
            _s("0.5.23", _GROUPS + "model_overrides/muse_glimmer.py", "Use marlin as FP4 GEMM runner backend on SM120"),
        ),
        sglang="0.5.19..0.5.23",
        capability="12.*",
    ),
    Row(
        "fp4_gemm",
        _FP4_FLASHINFER,
        UNSUPPORTED,
        "SGLang {sglang} stops while it loads the model: this FP4 backend asks for compute capability 10.0 or newer,"
        " not {capability}",
        _NATIVE_FP4,
        sglang="0.5.13..0.5.23",
        capability="..9.9",
    ),
    Row(
        "fp4_gemm",
        ("auto", *_FP4_FLASHINFER),
        UNSUPPORTED,
        "SGLang {sglang} refuses NVFP4 checkpoints below compute capability 10.0",
        _FP4_OLD,
        sglang="0.5.8..0.5.12.post1",
        capability="..9.9",
    ),
)

_FP8 = _QUANT + "fp8_utils.py"
_CONFIGURER = "sglang/srt/layers/deep_gemm_wrapper/configurer.py"
_FP8_TRTLLM = (
    _s("0.5.10rc0", _FP8, "FlashInfer TRTLLM FP8 GEMM requires SM100/SM103 GPUs and FlashInfer"),
    _s("0.5.23", _FP8, "FlashInfer TRTLLM FP8 GEMM requires SM100/SM103 GPUs and FlashInfer"),
)
_FP8_CUTLASS_FI = (
    _s("0.5.10rc0", _FP8, "FlashInfer CUTLASS FP8 GEMM requires Blackwell GPUs and FlashInfer"),
    _s("0.5.23", _FP8, "FlashInfer CUTLASS FP8 GEMM requires Blackwell GPUs and FlashInfer"),
)
_FP8_DEEPGEMM_FI = (
    _s("0.5.9", _FP8, "This backend requires Hopper (SM90) GPUs and FlashInfer"),
    _s("0.5.23", _FP8, "This backend requires Hopper (SM90) GPUs and FlashInfer"),
)
_FP8_CUTLASS_90 = (
    _s("0.5.6.post2", _FP8, "Hopper (SM90+) GPUs with CUDA 12.0+"),
    _s("0.5.15.post1", _FP8, "Hopper (SM90+) GPUs with CUDA 12.0+"),
    _s("0.5.6.post2", _FP8, "return is_sm90_supported() or is_blackwell_supported()"),
    _s("0.5.15.post1", _FP8, "return is_sm90_supported() or is_blackwell_supported()"),
)
_FP8_CUTLASS_120 = (
    _s("0.5.16", _FP8, "--fp8-gemm-backend=cutlass is deprecated on this hardware"),
    _s("0.5.23", _FP8, "--fp8-gemm-backend=cutlass is deprecated on this hardware"),
)
_FP8_FIRST_TRTLLM = (
    _s("0.5.8", _FP8, "FlashInfer FP8 GEMM requires Blackwell GPUs and FlashInfer to be installed"),
    _s("0.5.9", _FP8, "FlashInfer FP8 GEMM requires Blackwell GPUs and FlashInfer to be installed"),
    _f("0.6.1", _FI_GEMM, _SM100_103 + "_trtllm_gemm_fp8_nt_groupwise_requirement"),
    _f("0.6.3", _FI_GEMM, _SM100_103 + "_trtllm_gemm_fp8_nt_groupwise_requirement"),
)

_FP8_GEMM_ROWS = (
    Row(
        "fp8_gemm",
        ("auto", "triton"),
        SUPPORTED,
        "the Triton kernel is compiled for the GPU at hand, and auto falls back to it",
        (
            _s("0.5.6.post2", _FP8, "return triton_w8a8_block_fp8_linear"),
            _s("0.5.6.post2", _FP8, "5. Triton (fallback)"),
            _s("0.5.23", _FP8, "7. Triton (fallback)"),
        ),
        sglang="0.5.6.post2..0.5.23",
        capability="8.9..",
    ),
    Row(
        "fp8_gemm",
        ("flashinfer_trtllm",),
        SUPPORTED,
        "its kernels are made for compute capability 10.0 and 10.3",
        (*_FP8_TRTLLM, *_FP8_FIRST_TRTLLM),
        sglang="0.5.8..0.5.23",
        capability="10.0|10.3",
    ),
    Row(
        "fp8_gemm",
        ("flashinfer_trtllm",),
        UNSUPPORTED,
        "SGLang {sglang} stops while it loads the model: flashinfer_trtllm FP8 asks for compute capability"
        " 10.x, not {capability}",
        _FP8_TRTLLM,
        sglang="0.5.10rc0..0.5.23",
        capability="..9.9|11.0..",
    ),
    Row(
        "fp8_gemm",
        ("flashinfer_trtllm",),
        UNSUPPORTED,
        "SGLang lets it through, but FlashInfer's trtllm FP8 kernel raises on compute capability {capability}",
        _FP8_FIRST_TRTLLM,
        sglang="0.5.8..0.5.9",
        flashinfer="0.6.1..0.6.3",
        capability="11.0..",
    ),
    Row(
        "fp8_gemm",
        ("flashinfer_trtllm",),
        UNSUPPORTED,
        "SGLang {sglang} stops while it loads the model: FlashInfer's FP8 GEMM asks for a Blackwell GPU",
        (
            _s("0.5.6.post2", _FP8, "FlashInfer FP8 GEMM requires Blackwell GPUs and FlashInfer to be installed"),
            _s("0.5.9", _FP8, "FlashInfer FP8 GEMM requires Blackwell GPUs and FlashInfer to be installed"),
        ),
        sglang="0.5.6.post2..0.5.9",
        capability="..9.9",
    ),
    Row(
        "fp8_gemm",
        ("flashinfer_cutlass",),
        SUPPORTED,
        "FlashInfer has this kernel for compute capability {capability}",
        (
            *_FP8_CUTLASS_FI,
            _f(
                "0.6.6",
                _FI_GEMM,
                "@supported_compute_capability([100, 103, 120, 121])\ndef _cutlass_gemm_fp8_nt_groupwise",
            ),
            _f(
                "0.7.2",
                _FI_GEMM,
                "@supported_compute_capability([100, 103, 107, 120, 121])\ndef _cutlass_gemm_fp8_nt_groupwise",
            ),
        ),
        sglang="0.5.10rc0..0.5.23",
        flashinfer="0.6.6..0.7.2",
        capability="10.0|10.3|12.0|12.1",
    ),
    Row(
        "fp8_gemm",
        ("flashinfer_cutlass",),
        UNSUPPORTED,
        "SGLang {sglang} stops while it loads the model: flashinfer_cutlass FP8 asks for a Blackwell GPU, not"
        " {capability}",
        _FP8_CUTLASS_FI,
        sglang="0.5.10rc0..0.5.23",
        capability="..9.9",
    ),
    Row(
        "fp8_gemm",
        ("flashinfer_deepgemm",),
        SUPPORTED,
        "its kernel is made for Hopper",
        _FP8_DEEPGEMM_FI,
        sglang="0.5.9..0.5.23",
        capability="9.*",
    ),
    Row(
        "fp8_gemm",
        ("flashinfer_deepgemm",),
        UNSUPPORTED,
        "SGLang {sglang} stops while it loads the model: flashinfer_deepgemm asks for compute capability 9.x,"
        " not {capability}",
        _FP8_DEEPGEMM_FI,
        sglang="0.5.9..0.5.23",
        capability="..8.9|10.0..",
    ),
    Row(
        "fp8_gemm",
        ("cutlass",),
        SUPPORTED,
        "SGLang {sglang} accepts it on compute capability {capability}",
        _FP8_CUTLASS_90,
        sglang="0.5.6.post2..0.5.15.post1",
        capability="9.*|10.*|12.*",
    ),
    Row(
        "fp8_gemm",
        ("cutlass",),
        UNSUPPORTED,
        "SGLang {sglang} stops while it loads the model: cutlass FP8 asks for compute capability 9.0 or newer,"
        " not {capability}",
        _FP8_CUTLASS_90,
        sglang="0.5.6.post2..0.5.15.post1",
        capability="..8.9",
    ),
    Row(
        "fp8_gemm",
        ("cutlass",),
        SUPPORTED,
        "SGLang {sglang} keeps it for compute capability 12.x",
        _FP8_CUTLASS_120,
        sglang="0.5.16..0.5.23",
        capability="12.*",
    ),
    Row(
        "fp8_gemm",
        ("cutlass",),
        UNSUPPORTED,
        "SGLang {sglang} stops while it loads the model: cutlass FP8 is kept for compute capability 12.x only,"
        " not {capability}",
        _FP8_CUTLASS_120,
        sglang="0.5.16..0.5.23",
        capability="..11.9",
    ),
    Row(
        "fp8_gemm",
        ("deep_gemm",),
        SUPPORTED,
        "DeepGEMM is on there unless SGLANG_ENABLE_JIT_DEEPGEMM=0",
        (
            _s("0.5.6.post2", _CONFIGURER, "sm_version < 90"),
            _s("0.5.23", _CONFIGURER, "sm_version < 90"),
        ),
        sglang="0.5.6.post2..0.5.23",
        capability="9.*|10.0|10.3",
    ),
    Row(
        "fp8_gemm",
        ("deep_gemm",),
        UNSUPPORTED,
        "SGLang {sglang} turns DeepGEMM off below compute capability 9.0 and then stops: DeepGEMM is not available",
        (
            _s("0.5.6.post2", _CONFIGURER, "sm_version < 90"),
            _s("0.5.23", _CONFIGURER, "sm_version < 90"),
            _s("0.5.23", _FP8, "but DeepGEMM is not available"),
        ),
        sglang="0.5.6.post2..0.5.23",
        capability="..8.9",
    ),
    Row(
        "fp8_gemm",
        ("deep_gemm",),
        UNSUPPORTED,
        "SGLang {sglang} turns DeepGEMM off on compute capability 12.0 and then stops: DeepGEMM is not available",
        (
            _s("0.5.13", _CONFIGURER, "if sm_version == 120:\n        return False"),
            _s("0.5.19", _CONFIGURER, "if sm_version == 120:\n        return False"),
        ),
        sglang="0.5.13..0.5.19",
        capability="12.0",
    ),
    Row(
        "fp8_gemm",
        ("deep_gemm",),
        SUPPORTED_BUT,
        "it works only with a DeepGEMM build that has kernels for compute capability 12.0; SGLang {sglang}"
        " looks at start",
        (
            _s("0.5.20", _CONFIGURER, "from deep_gemm import m_grouped_fp8_fp4_gemm_nt_contiguous"),
            _s("0.5.21", _CONFIGURER, "_sm120_deep_gemm_apis_available"),
            _s("0.5.23", _CONFIGURER, "_sm120_deep_gemm_apis_available"),
        ),
        sglang="0.5.20..0.5.23",
        capability="12.0",
    ),
    Row(
        "fp8_gemm",
        ("aiter",),
        UNSUPPORTED,
        "AITER is made for AMD GPUs",
        (
            _s("0.5.6.post2", _FP8, "AITER requires AMD GPUs with"),
            _s("0.5.23", _FP8, "AITER requires AMD GPUs with"),
        ),
        sglang="0.5.6.post2..0.5.23",
    ),
)

_FUSION = "sglang/srt/layers/flashinfer_comm_fusion.py"
_COMMUNICATOR = "sglang/srt/layers/communicator.py"
_FUSION_NEW = (
    _s("0.5.14", _FUSION, "FlashInfer allreduce fusion requires SM90 or SM10X NVIDIA GPUs."),
    _s("0.5.23", _FUSION, "FlashInfer allreduce fusion requires SM90 or SM10X NVIDIA GPUs."),
)
_FUSION_GATED = (
    _s("0.5.8", _COMMUNICATOR, "(_is_sm90_supported or _is_sm100_supported)"),
    _s("0.5.13.post1", _COMMUNICATOR, "(_is_sm90_supported or _is_sm100_supported)"),
)
_FUSION_UNGATED = (
    _s("0.5.4.post3", _COMMUNICATOR, "def should_fuse_mlp_allreduce_with_next_layer"),
    _s("0.5.7", _COMMUNICATOR, "and get_global_server_args().enable_flashinfer_allreduce_fusion"),
    _f("0.5.0", "flashinfer/jit/comm.py", "supported_major_versions=[9, 10]"),
    _f("0.5.3", "flashinfer/jit/comm.py", "supported_major_versions=[9, 10]"),
    _f("0.5.3", _COMPILE, "No supported CUDA architectures found for major versions"),
)
# "enabled" stands for --enable-flashinfer-allreduce-fusion, which 0.5.14 and later read as auto.
_FUSION_ALL = ("enabled", "auto", "trtllm", "mnnvl")

_ALLREDUCE_ROWS = (
    Row(
        "allreduce_fusion",
        ("enabled",),
        SUPPORTED,
        "SGLang {sglang} fuses allreduce and normalization there",
        (_s("0.5.2rc2", _COMMUNICATOR, "(_is_sm100_supported or _is_sm90_supported)"), *_FUSION_GATED),
        sglang="0.5.2rc2..0.5.13.post1",
        capability="9.*|10.0|10.3",
        parallel="tp > 1",
    ),
    Row(
        "allreduce_fusion",
        ("enabled", "auto"),
        SUPPORTED,
        "SGLang {sglang} takes trtllm on one Hopper host and mnnvl on compute capability 10.x",
        _FUSION_NEW,
        sglang="0.5.14..0.5.23",
        capability="9.*|10.0|10.3",
        parallel="tp > 1",
    ),
    Row(
        "allreduce_fusion",
        ("trtllm", "mnnvl"),
        SUPPORTED,
        "SGLang {sglang} accepts it there (trtllm, and mnnvl on Hopper, on one host only)",
        _FUSION_NEW,
        sglang="0.5.14..0.5.23",
        capability="9.*|10.0|10.3",
        parallel="tp > 1",
    ),
    Row(
        "allreduce_fusion",
        ("cutedsl",),
        UNSUPPORTED,
        "SGLang {sglang} raises: the cutedsl fusion asks for compute capability 10.x, not {capability}",
        (
            _s("0.5.21", _FUSION, "FlashInfer allreduce fusion cutedsl backend requires a"),
            _s("0.5.23", _FUSION, "FlashInfer allreduce fusion cutedsl backend requires a"),
        ),
        sglang="0.5.21..0.5.23",
        capability="..9.9|11.0..",
    ),
    Row(
        "allreduce_fusion",
        ("cutedsl",),
        SUPPORTED,
        "SGLang {sglang} accepts it on compute capability 10.x",
        (
            _s("0.5.21", _FUSION, "FlashInfer allreduce fusion cutedsl backend requires a"),
            _s("0.5.23", _FUSION, "FlashInfer allreduce fusion cutedsl backend requires a"),
        ),
        sglang="0.5.21..0.5.23",
        capability="10.0|10.3",
        parallel="tp > 1",
    ),
    Row(
        "allreduce_fusion",
        _FUSION_ALL,
        UNSUPPORTED,
        "SGLang {sglang} dies before it captures CUDA graphs: the fusion asks for compute capability 9.x or"
        " 10.x, not {capability}",
        _FUSION_NEW,
        sglang="0.5.14..0.5.23",
        capability="..8.9|11.0..",
        parallel="tp > 1",
    ),
    Row(
        "allreduce_fusion",
        ("enabled",),
        SUPPORTED_BUT,
        "SGLang {sglang} takes the flag and fuses nothing there: it does so on compute capability 9.x and 10.x only",
        _FUSION_GATED,
        sglang="0.5.8..0.5.13.post1",
        capability="..8.9|11.0..",
    ),
    Row(
        "allreduce_fusion",
        ("enabled",),
        UNSUPPORTED,
        "SGLang {sglang} does not look at the GPU, and FlashInfer's kernel cannot be built for compute"
        " capability {capability}:"
        " Capture cuda graph failed: No supported CUDA architectures found for major versions [9, 10]",
        _FUSION_UNGATED,
        source="seen on compute capability 12.0 with FlashInfer 0.5.3: sgl-project/sglang#15650",
        sglang="0.5.4.post3..0.5.7",
        flashinfer="0.5.0..0.5.3",
        capability="..8.9|11.0..",
        parallel="tp > 1",
    ),
    Row(
        "allreduce_fusion",
        ("enabled",),
        SUPPORTED_BUT,
        "with one GPU there is no allreduce to fuse",
        (
            _s("0.5.8", _COMMUNICATOR, "and (self._context.tp_size > 1)"),
            _s("0.5.23", _FUSION, "if world_size <= 1:"),
        ),
        sglang="0.5.8..0.5.23",
        parallel="tp == 1",
    ),
    Row(
        "allreduce_fusion",
        ("auto", "trtllm", "mnnvl"),
        SUPPORTED_BUT,
        "with one GPU there is no allreduce to fuse",
        (_s("0.5.14", _FUSION, "if world_size <= 1:"), _s("0.5.23", _FUSION, "if world_size <= 1:")),
        sglang="0.5.14..0.5.23",
        parallel="tp == 1",
    ),
    Row(
        "allreduce_fusion",
        ("auto", "trtllm", "mnnvl"),
        UNSUPPORTED,
        "SGLang {sglang} has no --flashinfer-allreduce-fusion-backend: it came with 0.5.14; before, the flag is"
        " --enable-flashinfer-allreduce-fusion",
        (
            _s("0.5.14", _ARGS, "flashinfer_allreduce_fusion_backend: A["),
            _s("0.5.13.post1", _ARGS, '"--enable-flashinfer-allreduce-fusion"'),
        ),
        sglang="0.5.0rc0..0.5.13.post1",
    ),
    Row(
        "allreduce_fusion",
        ("cutedsl",),
        UNSUPPORTED,
        "SGLang {sglang} has no such choice: it came with 0.5.21",
        (_s("0.5.21", _FUSION, "FlashInfer allreduce fusion cutedsl backend requires a"),),
        sglang="0.5.0rc0..0.5.20",
    ),
)

_LOADER = "sglang/srt/model_loader/loader.py"
_CHECKED = (
    _s("0.5.0rc0", _LOADER, "is not supported for the current GPU"),
    _s("0.5.23", _LOADER, "is not supported for the current GPU"),
)
_REFUSED = "SGLang {sglang} refuses {backend} while it loads the model: it asks for compute capability "
_ACCEPTED = "SGLang {sglang} accepts it from compute capability "


def _quantization(
    names: tuple[str, ...], least: str, below: str, sglang: str, proofs: tuple[Proof, ...], works: bool = True
) -> tuple[Row, ...]:
    """The two rows of a method whose release checks the GPU's compute capability against `least` when it"
    " loads a model."""
    refused = Row(
        "quantization",
        names,
        UNSUPPORTED,
        _REFUSED + least + " or newer",
        (*proofs, *_CHECKED),
        sglang=sglang,
        capability=f"..{below}",
    )
    accepted = Row(
        "quantization",
        names,
        SUPPORTED,
        _ACCEPTED + least,
        (*proofs, *_CHECKED),
        sglang=sglang,
        capability=f"{least}..",
    )
    return (refused, accepted) if works else (refused,)


_QUANTIZATION_ROWS = (
    *_quantization(
        ("modelopt_fp4",),
        "10.0",
        "9.9",
        "0.5.4.post2..0.5.12.post1",
        (
            _s("0.5.4.post2", _QUANT + "modelopt_quant.py", _LEAST + "100"),
            _s("0.5.12.post1", _QUANT + "modelopt_quant.py", _LEAST + "100"),
        ),
    ),
    Row(
        "quantization",
        ("modelopt_fp4",),
        UNSUPPORTED,
        _REFUSED + "10.0 or newer",
        (_s("0.5.0rc0", _QUANT + "modelopt_quant.py", _LEAST + "100"), *_CHECKED),
        sglang="0.5.0rc0..0.5.4.post1",
        capability="..9.9",
    ),
    Row(
        "quantization",
        ("modelopt_fp4",),
        UNSUPPORTED,
        "SGLang {sglang} refuses NVFP4 experts on compute capability {capability}: Current platform does not"
        " support NVFP4",
        (
            _s("0.5.0rc0", _QUANT + "modelopt_quant.py", "if not is_sm100_supported():"),
            _s("0.5.4.post1", _QUANT + "modelopt_quant.py", "if not is_sm100_supported():"),
            _s("0.5.4.post1", _QUANT + "modelopt_quant.py", "Current platform does not support NVFP4"),
            _s("0.5.4.post2", _QUANT + "modelopt_quant.py", "if not is_blackwell_supported():"),
        ),
        sglang="0.5.0rc0..0.5.4.post1",
        capability="11.0..",
    ),
    Row(
        "quantization",
        ("modelopt_fp4", "modelopt_mixed"),
        SUPPORTED,
        "SGLang {sglang} accepts it, with FP4 kernels for compute capability {capability}",
        (
            _s("0.5.13", _QUANT + "modelopt_quant.py", "ModelOpt NVFP4 native dense GEMM backends require SM100+"),
            _s("0.5.23", _QUANT + "modelopt_quant.py", "ModelOpt NVFP4 native dense GEMM backends require SM100+"),
            *_CHECKED,
        ),
        sglang="0.5.13..0.5.23",
        capability="10.*|12.*",
    ),
    Row(
        "quantization",
        ("modelopt_fp4", "modelopt_mixed"),
        SUPPORTED_BUT,
        "SGLang {sglang} serves it through Marlin there: weights are unpacked and multiplied in 16 bits",
        (
            _s("0.5.13", _QUANT + "modelopt_quant.py", "use_marlin_fallback = (8, 0) <= capability < (10, 0)"),
            _s("0.5.23", _QUANT + "modelopt_quant.py", "use_marlin_fallback = (8, 0) <= capability < (10, 0)"),
            *_FP4_MARLIN,
        ),
        sglang="0.5.13..0.5.23",
        capability="8.*|9.*",
    ),
    Row(
        "quantization",
        ("modelopt_fp4", "modelopt_mixed"),
        UNSUPPORTED,
        _REFUSED + "8.0 or newer",
        (
            _s("0.5.13", _QUANT + "modelopt_quant.py", _LEAST + "80"),
            _s("0.5.23", _QUANT + "modelopt_quant.py", _LEAST + "80"),
            *_CHECKED,
        ),
        sglang="0.5.13..0.5.23",
        capability="..7.9",
    ),
    *_quantization(
        ("modelopt_mixed",),
        "10.0",
        "9.9",
        "0.5.10rc0..0.5.12.post1",
        (
            _s("0.5.10rc0", _QUANT + "modelopt_quant.py", "return ModelOptFp4Config.get_min_capability()"),
            _s("0.5.12.post1", _QUANT + "modelopt_quant.py", "return ModelOptFp4Config.get_min_capability()"),
            _s("0.5.12.post1", _QUANT + "modelopt_quant.py", _LEAST + "100"),
        ),
    ),
    *_quantization(
        ("modelopt_fp8",),
        "8.9",
        "8.8",
        "0.5.3.post1..0.5.23",
        (
            _s("0.5.3.post1", _QUANT + "modelopt_quant.py", _LEAST + "89"),
            _s("0.5.23", _QUANT + "modelopt_quant.py", _LEAST + "89"),
        ),
    ),
    *_quantization(
        ("w8a8_fp8",),
        "8.9",
        "8.8",
        "0.5.0rc0..0.5.23",
        (_s("0.5.0rc0", _QUANT + "w8a8_fp8.py", _LEAST + "89"), _s("0.5.23", _QUANT + "w8a8_fp8.py", _LEAST + "89")),
    ),
    *_quantization(
        ("fp8",),
        "8.0",
        "7.9",
        "0.5.0rc0..0.5.23",
        (
            _s("0.5.0rc0", _QUANT + "fp8.py", _LEAST + "80"),
            _s("0.5.23", _QUANT + "fp8.py", "return 100 if self.use_mxfp8 else 80"),
        ),
    ),
    *_quantization(
        ("mxfp8",),
        "10.0",
        "9.9",
        "0.5.9..0.5.15.post1",
        (
            _s("0.5.9", _QUANT + "fp8.py", "return 100 if self.use_mxfp8 else 80"),
            _s("0.5.15.post1", _QUANT + "fp8.py", "return 100 if self.use_mxfp8 else 80"),
        ),
    ),
    *_quantization(
        ("mxfp4",),
        "8.0",
        "7.9",
        "0.5.0rc0..0.5.23",
        (_s("0.5.0rc0", _QUANT + "mxfp4.py", _LEAST + "80"), _s("0.5.23", _QUANT + "mxfp4.py", _LEAST + "80")),
    ),
    *_quantization(
        ("compressed-tensors",),
        "7.0",
        "6.9",
        "0.5.0rc0..0.5.23",
        (
            _s("0.5.0rc0", _QUANT + "compressed_tensors/compressed_tensors.py", _LEAST + "70"),
            _s("0.5.23", _QUANT + "compressed_tensors/compressed_tensors.py", _LEAST + "70"),
        ),
    ),
    *_quantization(
        ("awq",),
        "7.5",
        "7.4",
        "0.5.0rc0..0.5.23",
        (_s("0.5.0rc0", _QUANT + "awq.py", "return 75"), _s("0.5.23", _QUANT + "awq/awq.py", "return 75")),
    ),
    *_quantization(
        ("awq_marlin",),
        "8.0",
        "7.9",
        "0.5.0rc0..0.5.23",
        (_s("0.5.0rc0", _QUANT + "awq.py", _LEAST + "80"), _s("0.5.23", _QUANT + "awq/awq.py", _LEAST + "80")),
    ),
    *_quantization(
        ("gptq",),
        "6.0",
        "5.9",
        "0.5.0rc0..0.5.23",
        (_s("0.5.0rc0", _QUANT + "gptq.py", _LEAST + "60"), _s("0.5.23", _QUANT + "gptq/gptq.py", _LEAST + "60")),
    ),
    *_quantization(
        ("gptq_marlin",),
        "8.0",
        "7.9",
        "0.5.0rc0..0.5.23",
        (_s("0.5.0rc0", _QUANT + "gptq.py", _LEAST + "80"), _s("0.5.23", _QUANT + "gptq/gptq.py", _LEAST + "80")),
    ),
    *_quantization(
        ("moe_wna16",),
        "7.0",
        "6.9",
        "0.5.0rc0..0.5.23",
        (_s("0.5.0rc0", _QUANT + "moe_wna16.py", _LEAST + "70"), _s("0.5.23", _QUANT + "moe_wna16.py", _LEAST + "70")),
    ),
    *_quantization(
        ("bitsandbytes",),
        "7.0",
        "6.9",
        "0.5.8..0.5.23",
        (
            _s("0.5.8", _QUANT + "bitsandbytes.py", _LEAST + "70"),
            _s("0.5.23", _QUANT + "bitsandbytes.py", _LEAST + "70"),
        ),
    ),
    *_quantization(
        ("nvfp4_online",),
        "10.0",
        "9.9",
        "0.5.14..0.5.23",
        (
            _s("0.5.14", _QUANT + "nvfp4_online.py", _LEAST + "100"),
            _s("0.5.23", _QUANT + "nvfp4_online.py", _LEAST + "100"),
        ),
    ),
    *_quantization(
        ("w4afp8",),
        "9.0",
        "8.9",
        "0.5.0rc0..0.5.23",
        (_s("0.5.0rc0", _QUANT + "w4afp8.py", _LEAST + "90"), _s("0.5.23", _QUANT + "w4afp8.py", _LEAST + "90")),
        works=False,
    ),
    Row(
        "quantization",
        ("none",),
        SUPPORTED,
        "weights as they are need no quantization kernel",
        _ANY_DEFAULT,
        sglang="0.5.0rc0..0.5.23",
    ),
)


def _needs(backend: str, package: str, sglang: str, first: Proof, last: Proof) -> Row:
    """A backend that stops with an ImportError unless `package` is there. Which GPUs the package serves, no"
    " wheel of SGLang says."""
    return Row(
        "a2a",
        (backend,),
        SUPPORTED_BUT,
        f"it needs {package}, which SGLang does not install, and experts on every rank: SGLang sets ep to tp",
        (first, last),
        sglang=sglang,
        capability="9.*|10.*",
    )


_A2A_RUNNERS = ("flashinfer_cutlass", "flashinfer_cutedsl", "flashinfer_trtllm_routed")
_MOE_HOOK = _GROUPS + "moe_hook.py"

_A2A_ROWS = (
    Row(
        "a2a",
        ("none",),
        SUPPORTED,
        "tokens go to the experts through the ordinary collectives",
        (
            _s("0.5.1", "sglang/srt/layers/moe/utils.py", 'NONE = "none"'),
            _s("0.5.23", "sglang/srt/layers/moe/utils.py", 'NONE = "none"'),
        ),
        sglang="0.5.0rc0..0.5.23",
    ),
    _needs(
        "deepep",
        "the package deep_ep",
        "0.5.0rc0..0.5.17",
        _s("0.5.0rc0", _DISPATCH + "deepep.py", "DeepEP is not installed"),
        _s("0.5.17", _DISPATCH + "deepep.py", "DeepEP is not installed"),
    ),
    Row(
        "a2a",
        ("deepep",),
        SUPPORTED_BUT,
        "SGLang {sglang} brings DeepEP along (sgl-deep-ep) and sets ep to tp; DeepEP itself needs NVLink or"
        " RDMA between the GPUs",
        (
            _s("0.5.18", "sglang-0.5.18.dist-info/METADATA", "Requires-Dist: sgl-deep-ep=="),
            _s("0.5.23", "sglang-0.5.23.dist-info/METADATA", "Requires-Dist: sgl-deep-ep=="),
        ),
        source="project description of sgl-deep-ep 0.1.1: host prerequisites",
        sglang="0.5.18..0.5.23",
        capability="9.*|10.*",
    ),
    _needs(
        "mooncake",
        "the package mooncake",
        "0.5.3.post2..0.5.23",
        _s("0.5.3.post2", _DISPATCH + "mooncake.py", "Mooncake EP is not installed"),
        _s("0.5.23", _DISPATCH + "mooncake.py", "Mooncake EP is not installed"),
    ),
    _needs(
        "nixl",
        "the package nixl_ep",
        "0.5.10rc0..0.5.23",
        _s("0.5.10rc0", _DISPATCH + "nixl.py", "NixlEP is not installed"),
        _s("0.5.23", _DISPATCH + "nixl.py", "NixlEP is not installed"),
    ),
    _needs(
        "pplx",
        "the package pplx_kernels",
        "0.5.17..0.5.23",
        _s("0.5.17", _DISPATCH + "pplx.py", "pplx-kernels is not installed"),
        _s("0.5.23", _DISPATCH + "pplx.py", "pplx-kernels is not installed"),
    ),
    Row(
        "a2a",
        ("flashinfer",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: the FlashInfer all-to-all goes with moe_runner_backend"
        " flashinfer_cutlass only",
        (
            _s("0.5.9", _ARGS, "Flashinfer MoE A2A is only supported with flashinfer_cutlass moe runner backend"),
            _s(
                "0.5.12.post1", _ARGS, "Flashinfer MoE A2A is only supported with flashinfer_cutlass moe runner backend"
            ),
        ),
        sglang="0.5.9..0.5.12.post1",
        unless_args=(("moe_runner_backend", ("auto", "flashinfer_cutlass")),),
    ),
    Row(
        "a2a",
        ("flashinfer",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: the FlashInfer all-to-all goes with moe_runner_backend flashinfer_cutlass or"
        " flashinfer_cutedsl only",
        (
            _s("0.5.13", _ARGS, "is only supported with flashinfer_cutlass or flashinfer_cutedsl moe runner backend"),
            _s("0.5.14", _ARGS, "is only supported with flashinfer_cutlass or flashinfer_cutedsl moe runner backend"),
        ),
        sglang="0.5.13..0.5.14",
        unless_args=(("moe_runner_backend", ("auto", *_A2A_RUNNERS[:2])),),
    ),
    Row(
        "a2a",
        ("flashinfer",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: the FlashInfer all-to-all goes with moe_runner_backend flashinfer_cutlass,"
        " flashinfer_cutedsl or flashinfer_trtllm_routed only",
        (
            _s("0.5.15", _ARGS, "flashinfer_cutedsl or flashinfer_trtllm_routed moe runner backend"),
            _s("0.5.18", _ARGS, "flashinfer_cutedsl or flashinfer_trtllm_routed moe runner backend"),
        ),
        sglang="0.5.15..0.5.18",
        unless_args=(("moe_runner_backend", ("auto", *_A2A_RUNNERS)),),
    ),
    Row(
        "a2a",
        ("flashinfer",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: the FlashInfer all-to-all goes with moe_runner_backend flashinfer_cutlass,"
        " flashinfer_cutedsl, flashinfer_trtllm, flashinfer_trtllm_routed or deep_gemm only",
        (
            _s("0.5.19", _MOE_HOOK, "FlashInfer MoE A2A is supported with flashinfer_cutlass, "),
            _s("0.5.23", _MOE_HOOK, "FlashInfer MoE A2A is supported with flashinfer_cutlass, "),
        ),
        sglang="0.5.19..0.5.23",
        unless_args=(("moe_runner_backend", ("auto", *_A2A_RUNNERS, "flashinfer_trtllm", "deep_gemm")),),
    ),
    Row(
        "a2a",
        ("flashinfer",),
        SUPPORTED_BUT,
        "SGLang {sglang} sets ep to tp, and from 0.5.13 on asks for data-parallel attention with dp equal to tp",
        (
            _s("0.5.9", _DISPATCH + "flashinfer.py", "Flashinfer is not installed or does not support A2A"),
            _s("0.5.13", _ARGS, "Flashinfer MoE A2A is only supported with dp_size == tp_size"),
            _s("0.5.23", _MOE_HOOK, "Flashinfer MoE A2A requires --attn-dp-size equal to --tp-size"),
        ),
        sglang="0.5.9..0.5.23",
        capability="9.*|10.*",
    ),
    Row(
        "a2a",
        ("megamoe",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: megamoe asks for compute capability 9.x or 10.x, not {capability}",
        (
            _s("0.5.21", _GROUPS + "mega_moe_hook.py", "platform.is_sm90 or platform.is_sm100"),
            _s("0.5.23", _GROUPS + "mega_moe_hook.py", "platform.is_sm90 or platform.is_sm100"),
        ),
        sglang="0.5.21..0.5.23",
        capability="..8.9|11.0..",
    ),
    Row(
        "a2a",
        ("megamoe",),
        SUPPORTED_BUT,
        "it serves block FP8 experts on compute capability 9.x, MXFP4 and NVFP4 experts on 10.x",
        (
            _s("0.5.21", _GROUPS + "mega_moe_hook.py", "megamoe needs a CUDA SM90 GPU (block-FP8 experts)"),
            _s("0.5.23", _GROUPS + "mega_moe_hook.py", "megamoe needs a CUDA SM90 GPU (block-FP8 experts)"),
        ),
        sglang="0.5.21..0.5.23",
        capability="9.*|10.*",
    ),
    Row(
        "a2a",
        ("flashinfer_megamoe",),
        UNSUPPORTED,
        "SGLang {sglang} stops at start: flashinfer_megamoe asks for compute capability 10.x, not {capability}",
        (
            _s("0.5.20", _MOE_HOOK, "FlashInfer MegaMOE currently requires an SM100-family"),
            _s("0.5.23", _MOE_HOOK, "FlashInfer MegaMOE currently requires an SM100-family"),
        ),
        sglang="0.5.20..0.5.23",
        capability="..9.9|11.0..",
    ),
)

_NVIDIA_128 = "NVIDIA CUDA Toolkit Release Notes 12.8 (docs.nvidia.com/cuda/archive/12.8.0/cuda-toolkit-release-notes)"

_TOOLKIT_ROWS = (
    Row(
        "toolkit",
        ("..11.9",),
        UNSUPPORTED,
        "FlashInfer's kernels need CUDA 12 or newer to be built",
        (_f("0.5.0", _COMPILE, "No supported CUDA architectures found for major versions"),),
        source="FlashInfer's documentation, Installation: CUDA 12.6 and newer are supported",
    ),
    Row(
        "toolkit",
        ("..12.7",),
        UNSUPPORTED,
        "this nvcc does not know compute capability {capability}, which came with CUDA 12.8",
        (),
        source=_NVIDIA_128,
        capability="10.0",
    ),
    Row(
        "toolkit",
        ("..12.8",),
        UNSUPPORTED,
        "this nvcc does not know compute capability {capability}, which came with CUDA 12.9",
        (),
        source="NVIDIA CUDA Toolkit Release Notes 12.9 (docs.nvidia.com/cuda/archive/12.9.0)",
        capability="10.3",
    ),
    Row(
        "toolkit",
        ("..12.7",),
        UNSUPPORTED,
        "this nvcc does not know compute capability {capability}: FlashInfer's kernels for it cannot be built",
        (
            _f(
                "0.5.0",
                "flashinfer/utils.py",
                'major == 12 and minor == 0 and version_at_least(torch.version.cuda, "12.8")',
            ),
            _f(
                "0.7.2",
                "flashinfer/utils.py",
                'major == 12 and minor == 0 and version_at_least(torch.version.cuda, "12.8")',
            ),
            _f("0.5.0", _COMPILE, "No supported CUDA architectures found for major versions"),
        ),
        source=_NVIDIA_128,
        flashinfer="0.5.0..0.7.2",
        capability="12.*",
    ),
    Row(
        "toolkit",
        ("12.8..",),
        SUPPORTED,
        "FlashInfer {flashinfer} builds for compute capability 12.0 with CUDA 12.8",
        (
            _f(
                "0.5.0",
                "flashinfer/utils.py",
                'major == 12 and minor == 0 and version_at_least(torch.version.cuda, "12.8")',
            ),
            _f(
                "0.6.6",
                "flashinfer/utils.py",
                'major == 12 and minor == 0 and version_at_least(torch.version.cuda, "12.8")',
            ),
            _f("0.6.6", _COMPILE, "if major >= 9:"),
        ),
        source=_NVIDIA_128,
        flashinfer="0.5.0..0.6.6",
        capability="12.0",
    ),
    Row(
        "toolkit",
        ("..12.8",),
        UNSUPPORTED,
        "FlashInfer {flashinfer} asks for CUDA 12.9 on compute capability 12.x, forgets the GPU with a warning"
        " and then fails"
        " each build: No supported CUDA architectures found for major versions [12]",
        (
            _f("0.6.7.post2", _COMPILE, "SM 12.x requires CUDA >= 12.9"),
            _f("0.6.18", _COMPILE, "SM 12.x requires CUDA >= 12.9"),
            _f("0.6.18", _COMPILE, "No supported CUDA architectures found for major versions"),
            _f("0.6.18", _COMPILE, "Failed to get device capability"),
        ),
        source="seen on RTX PRO 6000 with FlashInfer 0.6.18 and nvcc 12.8: flashinfer-ai/flashinfer#3633",
        flashinfer="0.6.7.post2..0.6.18",
        capability="12.*",
    ),
    Row(
        "toolkit",
        ("12.9..",),
        SUPPORTED,
        "FlashInfer {flashinfer} builds for compute capability 12.x with CUDA 12.9 and newer",
        (
            _f("0.6.7.post2", _COMPILE, "SM 12.x requires CUDA >= 12.9"),
            _f("0.6.18", _COMPILE, "SM 12.x requires CUDA >= 12.9"),
        ),
        flashinfer="0.6.7.post2..0.6.18",
        capability="12.*",
    ),
    Row(
        "toolkit",
        ("12.8",),
        SUPPORTED_BUT,
        "FlashInfer {flashinfer} builds for compute capability 12.0 with CUDA 12.8, but for sm_120a instead of sm_120f",
        (
            _f("0.7.1", _COMPILE, "SM 120 requires CUDA >= 12.8"),
            _f("0.7.2", _COMPILE, "SM 120 requires CUDA >= 12.8"),
        ),
        flashinfer="0.7.1..0.7.2",
        capability="12.0",
    ),
    Row(
        "toolkit",
        ("12.9..",),
        SUPPORTED,
        "FlashInfer {flashinfer} builds for compute capability 12.x with CUDA 12.9 and newer",
        (
            _f("0.7.1", _COMPILE, "SM 12.1+ requires CUDA >= 12.9"),
            _f("0.7.2", _COMPILE, "SM 12.1+ requires CUDA >= 12.9"),
        ),
        flashinfer="0.7.1..0.7.2",
        capability="12.*",
    ),
    Row(
        "toolkit",
        ("..12.8",),
        UNSUPPORTED,
        "FlashInfer {flashinfer} asks for CUDA 12.9 on compute capability 12.1",
        (
            _f("0.7.1", _COMPILE, "SM 12.1+ requires CUDA >= 12.9"),
            _f("0.7.2", _COMPILE, "SM 12.1+ requires CUDA >= 12.9"),
        ),
        flashinfer="0.7.1..0.7.2",
        capability="12.1",
    ),
)

_BRANCHES = (
    "NVIDIA, Supported Drivers and CUDA Toolkit Versions"
    " (docs.nvidia.com/datacenter/tesla/drivers/supported-drivers-and-cuda-toolkit-versions.html);"
)
_TORCH_13 = " package metadata of torch 2.11.0, 2.13.0 and 2.14.1: cuda-toolkit 13.0"
_TORCH_12 = " package metadata of torch 2.8.0 and 2.9.1: nvidia-cuda-runtime-cu12 12.8.90"
_PIN_13 = (
    _s("0.5.11", "sglang-0.5.11.dist-info/METADATA", "Requires-Dist: torch==2.11.0"),
    _s("0.5.18", "sglang-0.5.18.dist-info/METADATA", "Requires-Dist: torch==2.13.0"),
    _s("0.5.23", "sglang-0.5.23.dist-info/METADATA", "Requires-Dist: torch==2.14.1"),
)
_PIN_12 = (
    _s("0.5.0rc0", "sglang-0.5.0rc0.dist-info/METADATA", "Requires-Dist: torch==2.8.0"),
    _s("0.5.6", "sglang-0.5.6.dist-info/METADATA", "Requires-Dist: torch==2.9.1"),
    _s("0.5.10.post1", "sglang-0.5.10.post1.dist-info/METADATA", "Requires-Dist: torch==2.9.1"),
)

_DRIVER_ROWS = (
    Row(
        "driver",
        ("..524",),
        UNSUPPORTED,
        "SGLang {sglang} pins a torch built for CUDA 12.8, which needs a driver of branch 525 or newer",
        _PIN_12,
        source=_BRANCHES + _TORCH_12,
        sglang="0.5.0rc0..0.5.10.post1",
    ),
    Row(
        "driver",
        ("..579",),
        UNSUPPORTED,
        "SGLang {sglang} pins a torch built for CUDA 13.0, which needs a driver of branch 580 or newer",
        _PIN_13,
        source=_BRANCHES + _TORCH_13,
        sglang="0.5.11..0.5.23",
    ),
    Row(
        "driver",
        ("580..",),
        SUPPORTED,
        "branch 580 and newer run CUDA 13",
        _PIN_13,
        source=_BRANCHES + _TORCH_13,
        sglang="0.5.11..0.5.23",
    ),
    Row(
        "driver",
        ("..569",),
        UNSUPPORTED,
        "compute capability {capability} came with CUDA 12.8 and driver branch 570",
        _PIN_12,
        source=_NVIDIA_128 + ";" + _TORCH_12,
        sglang="0.5.0rc0..0.5.10.post1",
        capability="10.*|11.*|12.*",
    ),
    Row(
        "driver",
        ("570..",),
        SUPPORTED,
        "branch 570 and newer run the CUDA 12.8 that torch is built for in SGLang {sglang}",
        _PIN_12,
        source=_BRANCHES + _TORCH_12,
        sglang="0.5.0rc0..0.5.10.post1",
    ),
    Row(
        "driver",
        ("525..569",),
        SUPPORTED_BUT,
        "torch is built for CUDA 12.8 in SGLang {sglang}; this driver runs it through CUDA's minor version"
        " compatibility only",
        _PIN_12,
        source=_BRANCHES + _TORCH_12,
        sglang="0.5.0rc0..0.5.10.post1",
        capability="..9.*",
    ),
)

ROWS: tuple[Row, ...] = (
    *_NVFP4,
    *_FLASHINFER_CUTLASS,
    *_FLASHINFER_CUTEDSL,
    *_FLASHINFER_TRTLLM,
    *_TRITON,
    *_CUTLASS,
    *_DEEP_GEMM_ROWS,
    *_MXFP4_AND_MARLIN,
    *_OTHERS,
    *_AUTO,
    *_NVFP4_ONLINE,
    *_ATTENTION_ROWS,
    *_DSA_ROWS,
    *_FP4_GEMM_ROWS,
    *_FP8_GEMM_ROWS,
    *_ALLREDUCE_ROWS,
    *_QUANTIZATION_ROWS,
    *_A2A_ROWS,
    *_TOOLKIT_ROWS,
    *_DRIVER_ROWS,
)
