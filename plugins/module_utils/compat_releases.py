# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SGLang releases that `compat_data.py` covers: the FlashInfer that each pins, the backends each can choose from.

Read in the wheels' METADATA and server_args.py; `tests/integration/test_compat_releases.py` reads them again.
"""

from __future__ import annotations

#: Release -> the flashinfer-python that its wheel requires, oldest first.
FLASHINFER: dict[str, str] = {
    "0.5.0rc0": "0.2.10",
    "0.5.0rc1": "0.2.11.post1",
    "0.5.0rc2": "0.2.11.post3",
    "0.5.1": "0.2.11.post3",
    "0.5.1.post1": "0.2.11.post3",
    "0.5.1.post2": "0.2.14.post1",
    "0.5.1.post3": "0.2.14.post1",
    "0.5.2rc0": "0.3.0",
    "0.5.2rc1": "0.3.0",
    "0.5.2rc2": "0.3.0",
    "0.5.2": "0.3.1",
    "0.5.3rc0": "0.3.1",
    "0.5.3rc2": "0.4.0rc3",
    "0.5.3": "0.4.0rc3",
    "0.5.3.post1": "0.4.0",
    "0.5.3.post2": "0.4.0",
    "0.5.3.post3": "0.4.0",
    "0.5.4": "0.4.1",
    "0.5.4.post1": "0.4.1",
    "0.5.4.post2": "0.4.1",
    "0.5.4.post3": "0.5.0",
    "0.5.5": "0.5.0",
    "0.5.5.post1": "0.5.0",
    "0.5.5.post2": "0.5.0",
    "0.5.5.post3": "0.5.2",
    "0.5.6": "0.5.3",
    "0.5.6.post1": "0.5.3",
    "0.5.6.post2": "0.5.3",
    "0.5.7": "0.5.3",
    "0.5.8": "0.6.1",
    "0.5.8.post1": "0.6.1",
    "0.5.9": "0.6.3",
    "0.5.10rc0": "0.6.6",
    "0.5.10": "0.6.7.post2",
    "0.5.10.post1": "0.6.7.post3",
    "0.5.11": "0.6.8.post1",
    "0.5.12": "0.6.11.post1",
    "0.5.12.post1": "0.6.11.post1",
    "0.5.13": "0.6.12",
    "0.5.13.post1": "0.6.12",
    "0.5.14": "0.6.12",
    "0.5.15": "0.6.12",
    "0.5.15.post1": "0.6.12",
    "0.5.16": "0.6.14",
    "0.5.17": "0.6.15.post1",
    "0.5.18": "0.6.17",
    "0.5.19": "0.6.18",
    "0.5.20": "0.6.18",
    "0.5.21": "0.6.18",
    "0.5.22": "0.7.1",
    "0.5.23": "0.7.2",
}

RELEASES: tuple[str, ...] = tuple(FLASHINFER)
NEWEST = RELEASES[-1]

#: Releases that have no --moe-runner-backend, and the switches that they have in its place.
SWITCHES: dict[str, str] = {
    "triton_kernel": "enable-triton-kernel-moe",
    "flashinfer_cutlass": "enable-flashinfer-cutlass-moe",
    "flashinfer_trtllm": "enable-flashinfer-trtllm-moe",
    "flashinfer_mxfp4": "enable-flashinfer-mxfp4-moe",
}

#: What takes a flag out of a release.
_GONE = "gone"

_ATTENTION_LATER = (
    ("0.5.2", "+hybrid_linear_attn"),
    ("0.5.3rc2", "+flex_attention +nsa +fa4 -hybrid_linear_attn"),
    ("0.5.4", "+intel_xpu"),
    ("0.5.12", "+dsv4 +compressed +tokenspeed_mla"),
    ("0.5.13", "+dsa +cutedsl_mla"),
    ("0.5.17", "+hpc_ops"),
    ("0.5.19", "+minicpm_flashattn +minicpm_flashinfer"),
    ("0.5.20", "+qsa -cutlass_mla -dual_chunk_flash_attn"),
    ("0.5.22", "+llada2_cfg_flashinfer"),
)
_ATTENTION = (
    (
        "0.5.0rc0",
        "triton torch_native cutlass_mla fa3 flashinfer flashmla trtllm_mla trtllm_mha "
        "dual_chunk_flash_attn aiter intel_amx ascend",
    ),
    ("0.5.0rc1", "+wave"),
    *_ATTENTION_LATER,
)
_ATTENTION_PHASE = (
    ("0.5.0rc0", "triton torch_native cutlass_mla fa3 flashinfer flashmla"),
    ("0.5.0rc1", "+trtllm_mla +trtllm_mha +dual_chunk_flash_attn +aiter +intel_amx +ascend +wave"),
    *_ATTENTION_LATER,
)
_NSA = (
    ("0.5.4", "flashmla_sparse flashmla_kv fa3 tilelang aiter"),
    ("0.5.4.post2", "+flashmla_auto"),
    ("0.5.9", "+trtllm"),
    ("0.5.16", "+flashmla_sparse_q8"),
    ("0.5.17", "+flashinfer_sparse_mla"),
    ("0.5.20", _GONE),
)
_NSA_FIRST = (
    ("0.5.3rc2", "flashmla_prefill flashmla_decode fa3 tilelang aiter"),
    ("0.5.4", _GONE),
)

#: Flag -> what its choices became in which release: the first entry has all of them, later ones what came and went.
CHANGES: dict[str, tuple[tuple[str, str], ...]] = {
    "moe-runner-backend": (
        ("0.5.1", "auto triton triton_kernel flashinfer_trtllm flashinfer_cutlass flashinfer_mxfp4"),
        ("0.5.3rc0", "+flashinfer_cutedsl"),
        ("0.5.3.post1", "+deep_gemm"),
        ("0.5.3.post2", "+cutlass"),
        ("0.5.10rc0", "+flashinfer_trtllm_routed"),
        ("0.5.11", "+aiter"),
        ("0.5.12", "+marlin"),
        ("0.5.13", "+experimental_sgl_trtllm"),
        ("0.5.16", "+humming +experimental_sgl_marlin"),
        ("0.5.17", "+hpc_ops"),
        ("0.5.18", "+megamoe"),
        ("0.5.19", "+intel_xpu"),
        ("0.5.20", "+flashinfer_megamoe"),
        ("0.5.23", "+lora_cutedsl +lora_triton +lora_marlin"),
    ),
    "moe-a2a-backend": (
        ("0.5.0rc0", "deepep"),
        ("0.5.1", "-deepep +none +deepep"),
        ("0.5.3.post2", "+mooncake"),
        ("0.5.6", "+ascend_fuseep"),
        ("0.5.9", "+mori +flashinfer"),
        ("0.5.10rc0", "+nixl"),
        ("0.5.12", "+megamoe"),
        ("0.5.16", "+ascend_tp"),
        ("0.5.17", "+pplx"),
        ("0.5.19", "+deepep_v2"),
        ("0.5.20", "+flashinfer_megamoe"),
    ),
    "attention-backend": _ATTENTION,
    "prefill-attention-backend": _ATTENTION_PHASE,
    "decode-attention-backend": _ATTENTION_PHASE,
    "nsa-prefill": _NSA_FIRST,
    "nsa-decode": _NSA_FIRST,
    "nsa-prefill-backend": _NSA,
    "nsa-decode-backend": _NSA,
    "dsa-prefill-backend": (
        ("0.5.13", "flashmla_sparse flashmla_kv flashmla_auto fa3 tilelang aiter trtllm"),
        ("0.5.16", "+flashmla_sparse_q8"),
        ("0.5.17", "+flashinfer_sparse_mla"),
        ("0.5.20", "+triton"),
        ("0.5.22", "+triton_sparse_mla +intel_xpu"),
    ),
    "dsa-decode-backend": (
        ("0.5.13", "flashmla_sparse flashmla_kv flashmla_auto fa3 tilelang aiter trtllm"),
        ("0.5.16", "+flashmla_sparse_q8"),
        ("0.5.17", "+flashinfer_sparse_mla"),
        ("0.5.20", "+triton"),
        ("0.5.22", "+intel_xpu"),
    ),
    "fp4-gemm-backend": (
        ("0.5.8", "auto flashinfer_cudnn flashinfer_cutlass flashinfer_trtllm"),
        ("0.5.10", "+cutlass"),
        ("0.5.12", "+flashinfer_cutedsl"),
        ("0.5.13", "+marlin"),
        ("0.5.16", "-cutlass"),
    ),
    "fp8-gemm-backend": (
        ("0.5.6.post2", "auto deep_gemm flashinfer_trtllm cutlass triton aiter"),
        ("0.5.9", "+flashinfer_deepgemm"),
        ("0.5.10rc0", "+flashinfer_cutlass"),
        ("0.5.18", "+flashinfer_cutedsl"),
    ),
    "flashinfer-allreduce-fusion-backend": (
        ("0.5.14", "auto trtllm mnnvl"),
        ("0.5.21", "+cutedsl"),
    ),
}


def choices(flag: str, release: str) -> tuple[str, ...] | None:
    """The values that the flag takes in a release of RELEASES; None when the release has no such flag."""
    found: list[str] | None = None
    for since, change in CHANGES[flag]:
        if RELEASES.index(since) > RELEASES.index(release):
            break
        if change == _GONE:
            found = None
            continue
        for word in change.split():
            if word.startswith("-"):
                found = [name for name in found or [] if name != word[1:]]
            else:
                found = [*(found or []), word.lstrip("+")]
    return None if found is None else tuple(found)


def releases_with(flag: str, value: str) -> tuple[str, ...]:
    """The releases in which the flag takes the value, oldest first."""
    return tuple(release for release in RELEASES if value in (choices(flag, release) or ()))
