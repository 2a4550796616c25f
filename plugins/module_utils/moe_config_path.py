# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which MoE kernel a configuration selects, and whether that kernel reads tuning files at all.

Only the Triton runner reads them. What a release makes of `auto` is said where its source says it plainly for every
model; elsewhere the answer is "not known", never a guess (read in 0.5.0rc0 to 0.5.23).
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils.releases import sort_key

TRITON = "triton"
AUTO = "auto"
DETERMINISTIC_SINCE = "0.5.4.post2"
# The layers of these always make the Triton runner, whatever --moe-runner-backend says.
ALWAYS_TRITON = ("w8a8_fp8", "w8a8_int8", "blockwise_int8", "moe_wna16")
# The layers of these make the Triton runner for `auto`, unless a release has changed `auto` before.
TRITON_FOR_AUTO = ("", "fp8", "modelopt_fp8", "compressed-tensors")
# The layers of these call no Triton fused_moe kernel with tuning files.
NEVER_TRITON = {
    "modelopt_fp4": "experts in FP4 run on FlashInfer or CUTLASS kernels",
    "nvfp4_online": "experts in FP4 run on FlashInfer kernels",
    "mxfp8": "auto becomes flashinfer_trtllm, and triton is no choice for it on NVIDIA GPUs",
    "awq_marlin": "its experts run on Marlin kernels",
    "gptq_marlin": "its experts run on Marlin kernels",
    "w4afp8": "its experts run on CUTLASS kernels",
}
# Models for which some release turns `auto` into another runner on every kind of GPU.
OWN_CHOICE = ("GptOss", "NemotronH", "DeepseekV4", "MiniMaxM3", "MiMoV2", "BailingMoeV3", "HYV4", "InternS2Mobius")
# Runners that an unquantized layer has a path to, and since when. With any other one it makes the Triton runner.
UNQUANTIZED_RUNNERS = {
    "flashinfer_trtllm": "0.5.7",
    "flashinfer_trtllm_routed": "",
    "flashinfer_cutlass": "0.5.6",
    "triton_kernel": "",
    "deep_gemm": "0.5.12",
    "aiter": "",
}
FP8_TRITON_INSTEAD = ("flashinfer_cutlass", "flashinfer_cutedsl")
FP8_TRITON_INSTEAD_SINCE = "0.5.20"


@dataclass(frozen=True)
class Setup:
    """What decides. `capability` is (major, minor), None when not known. `quantization` is SGLang's name.

    `kept_known`: whether it is known how the experts' weights are kept; one name stands for several kinds.
    """

    release: str
    backend: str = AUTO
    quantization: str = ""
    capability: tuple[int, int] | None = None
    a2a: str = "none"
    ep: int = 1
    architecture: str = ""
    deterministic: bool = False
    kept_known: bool = True


@dataclass(frozen=True)
class Path:
    """The runner (empty when it is not known) and whether it reads tuning files (None when that is not known)."""

    backend: str
    reads_configs: bool | None
    reason: str


NO_EXPERTS = Path("", False, "the model has no experts, so there is no MoE kernel to tune")


def path_selected(setup: Setup) -> Path:
    """What runs the experts. Raises ReleaseError for a release's name that is none."""
    chosen = _chosen(setup)
    if chosen.reads_configs is False or not setup.deterministic:
        return chosen
    if sort_key(setup.release) < sort_key(DETERMINISTIC_SINCE):
        return chosen
    return Path(chosen.backend, False, "deterministic inference makes it take its defaults, whatever files there are")


def _chosen(setup: Setup) -> Path:
    quantization, backend = setup.quantization, setup.backend
    if quantization in NEVER_TRITON:
        runner = "" if backend in (AUTO, TRITON) else backend
        return Path(runner, False, f"quantization {quantization}: {NEVER_TRITON[quantization]}")
    if setup.a2a not in ("", "none"):
        # The only pairs that are registered for it are none and triton, standard and triton.
        reason = f"the triton runner takes tokens from moe_a2a_backend none only, and this one is {setup.a2a}"
        return Path("" if backend in (AUTO, TRITON) else backend, False, reason)
    if _expert_layer_of_its_own(setup):
        return Path("", None, f"with ep {setup.ep}, FP8 experts run on DeepGEMM where that is enabled, else on triton")
    if quantization in ALWAYS_TRITON:
        return _always_triton(setup)
    if quantization == "compressed-tensors" and not setup.kept_known and backend in (AUTO, TRITON):
        return Path(
            "", None, "of compressed-tensors only experts in FP8 are known to run on triton, which these are not"
        )
    if backend == TRITON:
        if quantization in TRITON_FOR_AUTO:
            return Path(TRITON, True, "the triton runner reads tuning files")
        return Path("", None, f"whether the experts of quantization {quantization} run on triton depends on the model")
    return _for_auto(setup) if backend == AUTO else _named(setup)


def _expert_layer_of_its_own(setup: Setup) -> bool:
    """Up to 0.5.3, ep above 1 had a layer of its own that prefers DeepGEMM for FP8."""
    early = sort_key(setup.release) <= sort_key("0.5.3")
    return early and setup.ep > 1 and setup.quantization == "fp8" and setup.backend in (AUTO, TRITON)


def _always_triton(setup: Setup) -> Path:
    if setup.backend in (AUTO, TRITON):
        return Path(TRITON, True, f"experts of quantization {setup.quantization} always run on triton")
    reason = (
        f"experts of quantization {setup.quantization} run on triton whatever the backend, "
        f"if SGLang {setup.release} starts with {setup.backend} at all; name it: triton"
    )
    return Path("", None, reason)


def _for_auto(setup: Setup) -> Path:
    name_it = "name one to be sure: --moe-runner-backend triton"
    if setup.quantization not in TRITON_FOR_AUTO:
        return Path(
            "", None, f"what auto becomes with quantization {setup.quantization} depends on the model; {name_it}"
        )
    if setup.architecture.startswith(OWN_CHOICE):
        return Path("", None, f"what auto becomes is decided for {setup.architecture} by each release; {name_it}")
    if setup.capability is None:
        return Path("", None, f"what auto becomes depends on the compute capability, which is not known; {name_it}")
    if setup.capability[0] == 10:
        reason = "on compute capability 10.x auto becomes flashinfer_trtllm for many models and triton for others"
        return Path("", None, f"{reason}; {name_it}")
    what = f"quantization {setup.quantization}" if setup.quantization else "no quantization"
    where = f"compute capability {setup.capability[0]}.{setup.capability[1]}"
    return Path(TRITON, True, f"auto becomes triton with {what} on {where}, and triton reads tuning files")


def _named(setup: Setup) -> Path:
    backend, quantization = setup.backend, setup.quantization
    instead = False
    if quantization == "":
        since = UNQUANTIZED_RUNNERS.get(backend)
        instead = since is None or bool(since and sort_key(setup.release) < sort_key(since))
    elif quantization == "fp8" and backend in FP8_TRITON_INSTEAD:
        instead = sort_key(setup.release) >= sort_key(FP8_TRITON_INSTEAD_SINCE)
    elif quantization == "modelopt_fp8":
        instead = backend not in ("flashinfer_trtllm", "flashinfer_cutlass")
    if not instead:
        return Path(backend, False, f"the {backend} runner never reads tuning files, only triton does")
    what = f"quantization {quantization}" if quantization else "no quantization"
    reason = (
        f"experts with {what} have no path to {backend} in SGLang {setup.release}: it either refuses or runs triton; "
        "name the one that is meant"
    )
    return Path("", None, reason)
