# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs where, as the released wheels say it, and how a case is read and judged."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    compat,
    compat_data,
    compat_match,
    compat_releases,
    releases,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.compat import CompatError, Query, judge, newest_release

FP4 = "modelopt_fp4"
SM120 = Query(backend="flashinfer_cutlass", compute_capability="12.0", quantization=FP4, tp=8)


def ask(backend: str, release: str, capability: str | None, quantization: str = "", **more: Any) -> compat.Verdict:
    return judge(
        Query(
            backend=backend,
            sglang_version=release,
            compute_capability=capability,
            quantization=quantization,
            **{"tp": 8, **more},
        ),
        (),
    )


# --- CuteDSL: one name, three programs --------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["0.5.4.post2", "0.5.9", "0.5.10", "0.5.10.post1"])
@pytest.mark.parametrize("capability", ["10.0", "12.0"])
def test_cutedsl_without_deepep_runs_another_kernel_up_to_0_5_10_post1(release: str, capability: str) -> None:
    found = ask("flashinfer_cutedsl", release, capability, FP4)
    assert found.verdict == "supported_but"
    assert "cutlass_moe_fp4" in found.reason
    assert "FlashInfer has nothing to tune" in found.reason
    assert any("only support flashinfer cutedsl moe" in line for line in found.source)
    assert found.commands == ()


@pytest.mark.parametrize("release", ["0.5.11", "0.5.12.post1", "0.5.13", "0.5.18", "0.5.23"])
@pytest.mark.parametrize(
    ("capability", "name"), [("12.0", "SM120"), ("12.1", "SM121"), ("9.0", "SM90"), ("11.0", "SM110")]
)
def test_cutedsl_dies_at_the_first_forward_outside_of_10_x_from_0_5_11(
    release: str, capability: str, name: str
) -> None:
    found = ask("flashinfer_cutedsl", release, capability, FP4)
    assert found.verdict == "unsupported"
    assert f"`Got {name}.`" in found.reason


@pytest.mark.parametrize("release", ["0.5.11", "0.5.23"])
@pytest.mark.parametrize("capability", ["10.0", "10.3"])
def test_cutedsl_runs_on_10_x(release: str, capability: str) -> None:
    assert ask("flashinfer_cutedsl", release, capability, FP4).verdict == "supported"


@pytest.mark.parametrize(
    ("release", "quantization", "verdict"),
    [
        ("0.5.12", "fp8", "unsupported"),
        ("0.5.12", "none", "unsupported"),
        ("0.5.15.post1", "modelopt_mixed", "unsupported"),
        ("0.5.16", "modelopt_mixed", "supported_but"),
        ("0.5.17", "nvfp4_online", "unsupported"),
        ("0.5.3.post1", "fp8", "unsupported"),
        ("0.5.10", "none", "supported_but"),
        ("0.5.10", "modelopt_fp8", "supported_but"),
    ],
)
def test_cutedsl_by_quantization(release: str, quantization: str, verdict: str) -> None:
    assert ask("flashinfer_cutedsl", release, "10.0", quantization).verdict == verdict


def test_cutedsl_behind_deepep_needs_10_x_in_every_release() -> None:
    for release in ("0.5.5", "0.5.10.post1", "0.5.23"):
        refused = ask("flashinfer_cutedsl", release, "12.0", FP4, moe_a2a_backend="deepep")
        assert refused.verdict == "unsupported"
        assert "masked" in refused.reason
    part = ask("flashinfer_cutedsl", "0.5.10", "10.0", FP4, moe_a2a_backend="deepep").parts[0]
    assert (part.part, part.verdict) == ("moe", "supported")
    # FlashInfer 0.5.x has that kernel for 10.0 only.
    assert ask("flashinfer_cutedsl", "0.5.6", "10.3", FP4, moe_a2a_backend="deepep").verdict == "unsupported"


def test_cutedsl_takes_the_all_to_all_of_flashinfer_from_0_5_13() -> None:
    old = ask("flashinfer_cutedsl", "0.5.12.post1", "10.0", FP4, moe_a2a_backend="flashinfer").parts[0]
    new = ask("flashinfer_cutedsl", "0.5.13", "10.0", FP4, moe_a2a_backend="flashinfer").parts[0]
    assert (old.verdict, new.verdict) == ("unsupported", "supported")
    assert (
        ask("flashinfer_cutedsl", "0.5.13", "10.0", FP4, moe_a2a_backend="mooncake").parts[0].verdict == "unsupported"
    )


# --- flashinfer_cutlass -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "quantization", "verdict"),
    [
        ("0.5.5.post3", FP4, "supported"),
        ("0.5.5.post3", "", "unsupported"),
        ("0.5.5.post3", "modelopt_fp8", "unsupported"),
        ("0.5.6", "", "supported"),
        ("0.5.6", "modelopt_fp8", "supported"),
        ("0.5.9", "modelopt_mixed", "unsupported"),
        ("0.5.10rc0", "modelopt_mixed", "supported"),
        ("0.5.23", "modelopt_mixed", "supported"),
        ("0.5.23", "fp8", "unsupported"),
        ("0.5.23", "mxfp8", "unsupported"),
        ("0.5.23", "compressed-tensors", "unsupported"),
    ],
)
def test_flashinfer_cutlass_by_quantization(release: str, quantization: str, verdict: str) -> None:
    assert ask("flashinfer_cutlass", release, "12.0", quantization).verdict == verdict


@pytest.mark.parametrize(
    ("tp", "ep", "verdict"), [(8, 1, "supported"), (8, 8, "supported"), (8, 2, "unsupported"), (1, 1, "supported")]
)
def test_flashinfer_cutlass_needs_ep_1_or_tp(tp: int, ep: int, verdict: str) -> None:
    for release in ("0.5.6", "0.5.23"):
        found = ask("flashinfer_cutlass", release, "12.0", FP4, tp=tp, ep=ep)
        assert found.verdict == verdict
        assert ("here tp is 8 and ep 2" in found.reason) == (verdict == "unsupported")


@pytest.mark.parametrize(
    ("capability", "verdict"),
    [("8.0", "unsupported"), ("8.6", "unsupported"), ("8.9", "supported"), ("9.0", "supported")],
)
def test_flashinfer_cutlass_without_quantization_needs_8_9(capability: str, verdict: str) -> None:
    assert ask("flashinfer_cutlass", "0.5.12.post1", capability).verdict == verdict


@pytest.mark.parametrize("release", ["0.5.0rc0", "0.5.3", "0.5.4.post1"])
def test_nvfp4_needs_10_x_up_to_0_5_4_post1(release: str) -> None:
    for backend in ("auto", "flashinfer_cutlass"):
        assert ask(backend, release, "12.0", FP4).verdict == "unsupported"
    assert ask("auto", release, "10.0", FP4).verdict == "supported"


def test_nvfp4_below_10_0_runs_on_marlin_from_0_5_13() -> None:
    assert ask("auto", "0.5.12.post1", "9.0", FP4).verdict == "unsupported"
    assert ask("marlin", "0.5.13", "9.0", FP4).parts[0].verdict == "supported"
    refused = ask("flashinfer_cutlass", "0.5.13", "9.0", FP4)
    assert (refused.verdict, refused.alternatives) == ("unsupported", ("marlin", "auto"))


@pytest.mark.parametrize(
    ("release", "verdict", "told"),
    [
        ("0.5.10", "supported_but", "cutlass_moe_fp4"),
        ("0.5.12.post1", "supported_but", "cutlass_moe_fp4"),
        ("0.5.13", "supported", "flashinfer_cutlass"),
        ("0.5.15.post1", "supported", "flashinfer_cutlass"),
        # From here on the choice is certain only for a quantization that is among the arguments.
        ("0.5.16", "supported_but", "give the quantization"),
        ("0.5.23", "supported_but", "give the quantization"),
    ],
)
def test_auto_with_nvfp4_on_12_0(release: str, verdict: str, told: str) -> None:
    found = ask("auto", release, "12.0", FP4)
    assert found.verdict == verdict
    assert told in found.reason


# --- the others -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("capability", ["8.9", "9.0", "11.0", "12.0", "12.1"])
@pytest.mark.parametrize("release", ["0.5.9", "0.5.10.post1", "0.5.12.post1", "0.5.23"])
def test_trtllm_runs_on_10_x_only(release: str, capability: str) -> None:
    assert ask("flashinfer_trtllm", release, capability, "fp8").verdict == "unsupported"
    assert ask("flashinfer_trtllm", release, "10.0", "fp8").verdict == "supported"


@pytest.mark.parametrize(
    ("backend", "release", "capability", "quantization", "verdict"),
    [
        ("triton", "0.5.1", "8.0", "", "supported"),
        ("triton", "0.5.23", "12.0", "fp8", "supported"),
        ("triton", "0.5.23", "8.0", "fp8", "unknown"),
        ("triton", "0.5.15.post1", "12.0", FP4, "supported_but"),
        ("triton", "0.5.16", "12.0", FP4, "unsupported"),
        ("triton_kernel", "0.5.10", "9.0", "fp8", "unsupported"),
        ("deep_gemm", "0.5.12", "9.0", "fp8", "supported"),
        ("deep_gemm", "0.5.12", "8.9", "fp8", "unsupported"),
        ("deep_gemm", "0.5.13", "12.0", "fp8", "unsupported"),
        ("deep_gemm", "0.5.12", "12.0", "fp8", "unknown"),
        ("deep_gemm", "0.5.11", "9.0", "", "supported_but"),
        ("deep_gemm", "0.5.12", "9.0", "", "supported"),
        ("cutlass", "0.5.9", "12.0", "fp8", "unsupported"),
        ("cutlass", "0.5.10rc0", "12.0", "fp8", "supported_but"),
        ("cutlass", "0.5.10.post1", "10.0", FP4, "supported"),
        ("cutlass", "0.5.11", "10.0", FP4, "unsupported"),
        ("cutlass", "0.5.15", "10.0", FP4, "supported"),
        ("cutlass", "0.5.16", "10.0", FP4, "unsupported"),
        ("flashinfer_mxfp4", "0.5.9", "9.0", "mxfp4", "unsupported"),
        ("flashinfer_mxfp4", "0.5.12", "9.0", "mxfp4", "supported"),
        ("flashinfer_mxfp4", "0.5.16", "12.0", "mxfp4", "unsupported"),
        ("flashinfer_mxfp4", "0.5.17", "12.0", "mxfp4", "supported"),
        ("hpc_ops", "0.5.17", "9.0", "fp8", "supported"),
        ("hpc_ops", "0.5.17", "10.0", "fp8", "unsupported"),
        ("hpc_ops", "0.5.17", "9.0", "", "unsupported"),
        ("flashinfer_megamoe", "0.5.20", "12.0", FP4, "unsupported"),
        ("aiter", "0.5.11", "9.0", "fp8", "unsupported"),
        ("flashinfer_trtllm", "0.5.4", "10.0", "", "unsupported"),
        ("flashinfer_trtllm", "0.5.7", "10.0", "", "supported"),
        ("flashinfer_trtllm_routed", "0.5.10", "10.0", FP4, "unsupported"),
        ("flashinfer_trtllm_routed", "0.5.11", "10.0", FP4, "supported"),
        ("auto", "0.5.14", "12.0", "nvfp4_online", "unsupported"),
        ("humming", "0.5.23", "12.0", "", "unknown"),
    ],
)
def test_backend_by_release_and_gpu(
    backend: str, release: str, capability: str, quantization: str, verdict: str
) -> None:
    assert ask(backend, release, capability, quantization).verdict == verdict


def test_cutlass_needs_ep_1_with_fp8() -> None:
    assert ask("cutlass", "0.5.23", "9.0", "fp8", ep=8).verdict == "unsupported"
    assert ask("cutlass", "0.5.23", "9.0", "fp8", ep=1).verdict == "supported_but"
    # It takes only some FP8 checkpoints, so what takes all of them comes first.
    assert ask("flashinfer_cutedsl", "0.5.23", "12.0", "fp8").alternatives[0] == "triton"


# --- choices and releases ---------------------------------------------------------------------------------------------


def test_backend_that_is_no_choice_names_the_releases_that_have_it() -> None:
    found = ask("marlin", "0.5.10", "12.0", FP4)
    assert found.verdict == "unsupported"
    assert "SGLang 0.5.10 has no such choice; releases that have it: 0.5.12 to 0.5.23" in found.reason
    assert found.alternatives[0] == "flashinfer_cutlass"


def test_backend_of_no_release_gets_the_nearest_names() -> None:
    found = ask("flashinfer_cutlas", "0.5.23", "12.0", FP4)
    assert found.verdict == "unsupported"
    assert "did you mean flashinfer_cutlass" in found.reason
    assert "no release up to 0.5.23 has it" in found.reason
    assert ask("flashinfer_b12x", "0.5.23", "12.0", FP4).verdict == "unsupported"


def test_first_releases_have_switches_in_place_of_the_flag() -> None:
    found = ask("flashinfer_cutlass", "0.5.0rc2", "10.0", FP4)
    assert found.verdict == "unsupported"
    assert "--enable-flashinfer-cutlass-moe" in found.reason
    assert ask("auto", "0.5.0rc2", "10.0").verdict == "supported"


@pytest.mark.parametrize(
    "release", ["0.5.24", "0.5.99", "main", "0.5.24.dev12+g0123abc", "0.4.9", "0.5.10.post2", "1.0"]
)
def test_release_that_was_not_read_is_unknown(release: str) -> None:
    found = ask("flashinfer_cutlass", release, "12.0", FP4)
    assert (found.verdict, found.alternatives, found.parts) == ("unknown", (), ())
    assert "0.5.23" in found.reason
    assert "\n" not in found.reason


def test_gone_and_new_choices_of_a_flag() -> None:
    assert "deep_gemm" not in (compat_releases.choices("moe-runner-backend", "0.5.3") or ())
    assert "deep_gemm" in (compat_releases.choices("moe-runner-backend", "0.5.3.post1") or ())
    assert "cutlass_mla" in (compat_releases.choices("attention-backend", "0.5.19") or ())
    assert "cutlass_mla" not in (compat_releases.choices("attention-backend", "0.5.20") or ())
    assert compat_releases.choices("nsa-prefill-backend", "0.5.20") is None
    assert compat_releases.choices("moe-runner-backend", "0.5.0rc2") is None
    assert compat_releases.releases_with("moe-runner-backend", "hpc_ops")[0] == "0.5.17"


# --- no GPU -----------------------------------------------------------------------------------------------------------


def test_without_a_gpu_the_answer_is_one_line() -> None:
    found = ask("flashinfer_cutlass", "0.5.23", None, FP4)
    assert found.verdict == "unknown"
    assert found.reason.startswith("no GPU here, so whether flashinfer_cutlass runs cannot be told")
    assert "\n" not in found.reason
    assert found.alternatives == ()


def test_without_a_gpu_a_missing_choice_is_refused_all_the_same() -> None:
    found = ask("marlin", "0.5.10", None)
    assert found.verdict == "unsupported"
    assert found.reason.startswith("no GPU here; on any GPU marlin does not run")
    assert found.reason.endswith(found.commands[-1])
    assert ask("flashinfer_cutlass", "0.5.23", None, "fp8").verdict == "unsupported"


# --- launch arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["attention-backend", "--attention-backend", "attention_backend"])
def test_attention_backend_is_judged_in_any_spelling(name: str) -> None:
    found = ask("flashinfer_cutlass", "0.5.12.post1", "12.0", FP4, args={name: "trtllm_mla"})
    assert found.verdict == "unsupported"
    assert "--attention-backend trtllm_mla" in found.reason
    assert "flashinfer" in found.alternatives
    assert found.reason.endswith("in sglang_server_args: ansible-playbook preflight.yml")


def test_flag_of_both_phases_needs_both_and_a_phase_of_its_own_counts_before_it() -> None:
    release = "0.5.12.post1"
    # Decoding runs there, prefilling does not.
    assert ask("triton", release, "12.0", args={"attention-backend": "trtllm_mha"}).verdict == "unsupported"
    assert ask("triton", release, "12.0", args={"decode-attention-backend": "trtllm_mha"}).verdict == "supported"
    own = {"attention-backend": "trtllm_mha", "prefill-attention-backend": "triton"}
    assert ask("triton", release, "12.0", args=own).verdict == "supported"
    both = {**own, "decode-attention-backend": "triton"}
    found = ask("triton", release, "12.0", args=both)
    assert [part.flag for part in found.parts if part.part == "attention"] == [
        "prefill-attention-backend",
        "decode-attention-backend",
    ]


def test_attention_backend_that_nothing_is_known_of_makes_the_verdict_unknown() -> None:
    found = ask("flashinfer_cutlass", "0.5.23", "12.0", FP4, args={"attention-backend": "qsa"})
    assert found.verdict == "unknown"
    assert "--attention-backend qsa" in found.reason
    assert "watch the start" in found.reason


def test_allreduce_fusion_is_refused_on_12_0_and_taken_out() -> None:
    found = ask("flashinfer_cutlass", "0.5.23", "12.0", FP4, args={"enable_flashinfer_allreduce_fusion": True})
    assert found.verdict == "unsupported"
    assert "take out --enable-flashinfer-allreduce-fusion" in found.reason
    off = ask("flashinfer_cutlass", "0.5.23", "12.0", FP4, args={"enable_flashinfer_allreduce_fusion": False})
    assert off.verdict == "supported"
    named = ask("flashinfer_cutlass", "0.5.14", "12.0", FP4, args={"flashinfer-allreduce-fusion-backend": "trtllm"})
    assert named.verdict == "unsupported"


@pytest.mark.parametrize(
    ("args", "part", "verdict"),
    [
        ({"fp4-gemm-backend": "flashinfer_trtllm"}, "fp4_gemm", "unsupported"),
        ({"fp4_gemm_runner_backend": "flashinfer_cutlass"}, "fp4_gemm", "supported"),
        ({"fp8-gemm-backend": "flashinfer_trtllm"}, "fp8_gemm", "unsupported"),
        ({"fp8-gemm-runner-backend": "triton"}, "fp8_gemm", "supported"),
        ({"nsa_decode_backend": "no_such"}, "dsa", "unsupported"),
        ({"dsa-prefill-backend": "flashmla_sparse_q8"}, "dsa", "unsupported"),
    ],
)
def test_other_backends_are_judged_too(args: Mapping[str, str], part: str, verdict: str) -> None:
    found = ask("flashinfer_cutlass", "0.5.16", "12.0", FP4, args=args)
    assert {one.part: one.verdict for one in found.parts}[part] == verdict
    assert found.verdict == verdict


def test_flag_that_came_later_is_refused_with_its_releases() -> None:
    found = ask("flashinfer_cutlass", "0.5.6", "12.0", FP4, args={"fp4-gemm-backend": "auto"})
    assert found.verdict == "unsupported"
    assert "has no --fp4-gemm-backend; releases that have it: 0.5.8 to 0.5.23" in found.reason


def test_arguments_fill_what_the_query_leaves_out() -> None:
    args = {
        "moe-runner-backend": "flashinfer_cutlass",
        "quantization": FP4,
        "tensor_parallel_size": 8,
        "ep-size": "2",
    }
    found = judge(Query(sglang_version="0.5.23", compute_capability="12.0", args=args), ())
    assert found.verdict == "unsupported"
    assert "here tp is 8 and ep 2" in found.reason
    a2a = ask("flashinfer_cutedsl", "0.5.10", "12.0", FP4, args={"moe_a2a_backend": "deepep"})
    assert "masked" in a2a.reason


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"backend": "triton", "args": {"moe-runner-backend": "marlin"}}, "'triton', and args say 'marlin'"),
        ({"tp": 4, "args": {"tp-size": 8}}, "tp: it is 4, and args say 8"),
        ({"args": {"tp-size": 8, "tp": 4}}, "reading tp ['4', '8']"),
        ({"quantization": "fp8", "args": {"quantization": "awq"}}, "'fp8', and args say 'awq'"),
        ({"args": {"a_b": 1, "--a-b": 2}}, "a-b is both '1' and '2'"),
    ],
)
def test_contradictions_are_errors(query: dict[str, Any], told: str) -> None:
    with pytest.raises(CompatError, match=re.escape(told)):
        judge(replace(Query(sglang_version="0.5.23", compute_capability="12.0"), **query))


def test_all_to_all_decides_over_the_backends_beside_it() -> None:
    found = ask("triton", "0.5.13", "10.0", FP4, moe_a2a_backend="flashinfer")
    assert found.verdict == "unsupported"
    assert {part.part for part in found.parts if part.verdict == "unsupported"} == {"a2a"}
    assert (
        ask("flashinfer_cutlass", "0.5.13", "10.0", FP4, moe_a2a_backend="flashinfer").parts[0].verdict == "supported"
    )
    unknown = ask("triton", "0.5.23", "9.0", "fp8", moe_a2a_backend="no_such")
    assert unknown.verdict == "unsupported"


@pytest.mark.parametrize(
    ("release", "driver", "verdict"),
    [
        ("0.5.23", "570.124.06", "unsupported"),
        ("0.5.23", "580.95.05", "supported"),
        ("0.5.10", "570.124.06", "supported"),
        ("0.5.10", "560.35", "unsupported"),
    ],
)
def test_driver_is_judged_when_it_is_given(release: str, driver: str, verdict: str) -> None:
    assert ask("flashinfer_cutlass", release, "12.0", FP4, driver_version=driver).verdict == verdict


@pytest.mark.parametrize(
    ("toolkit", "verdict"), [("12.8", "unsupported"), ("12.8.1", "unsupported"), ("13.0", "supported")]
)
def test_toolkit_is_judged_when_it_is_given(toolkit: str, verdict: str) -> None:
    found = ask("flashinfer_cutlass", "0.5.13", "12.0", FP4, cuda_toolkit=toolkit)
    assert found.verdict == verdict
    assert ask("triton", "0.5.13", "9.0", "fp8", cuda_toolkit=toolkit).verdict == "supported"


# --- FlashInfer -------------------------------------------------------------------------------------------------------


def test_flashinfer_is_the_releases_own_pin_unless_it_is_given() -> None:
    assert ask("flashinfer_mxfp4", "0.5.12", "9.0", "mxfp4").verdict == "supported"
    older = ask("flashinfer_mxfp4", "0.5.12", "9.0", "mxfp4", flashinfer_version="0.6.8.post1")
    assert older.verdict == "unsupported"
    assert "0.6.8.post1" in older.reason


@pytest.mark.parametrize("version", ["0.9.0", "0.4.1", "0.8.0.dev20261001"])
def test_flashinfer_that_was_not_read_makes_its_backends_unknown(version: str) -> None:
    found = ask("flashinfer_cutlass", "0.5.23", "12.0", FP4, flashinfer_version=version)
    assert found.verdict == "unknown"
    assert f"FlashInfer {version} was not read" in found.reason
    # Of an older one SGLang may refuse to start, whatever the experts run on.
    marlin = "supported_but" if version == "0.4.1" else "supported"
    assert ask("marlin", "0.5.23", "12.0", FP4, flashinfer_version=version).verdict == marlin
    # What SGLang itself refuses stays refused.
    assert ask("flashinfer_cutlass", "0.5.23", "12.0", "fp8", flashinfer_version=version).verdict == "unsupported"


def test_local_part_of_a_flashinfer_version_does_not_count() -> None:
    assert ask("flashinfer_cutlass", "0.5.23", "12.0", FP4, flashinfer_version="0.7.2+cu130").verdict == "supported"


# --- alternatives and ways out ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", ["0.5.6", "0.5.10", "0.5.12.post1", "0.5.16", "0.5.23"])
@pytest.mark.parametrize("capability", ["8.0", "9.0", "10.0", "12.0"])
@pytest.mark.parametrize("quantization", ["", "fp8", FP4])
def test_alternatives_run_here_and_are_sorted_and_none_is_what_was_asked(
    release: str, capability: str, quantization: str
) -> None:
    for backend in ("flashinfer_trtllm", "triton"):
        found = ask(backend, release, capability, quantization)
        moe = found.parts[0]
        assert backend not in moe.alternatives
        verdicts = [ask(name, release, capability, quantization).parts[0].verdict for name in moe.alternatives]
        assert verdicts == sorted(verdicts, key=["supported", "supported_but"].index)
        assert set(moe.alternatives) <= set(compat_releases.choices("moe-runner-backend", release) or ())


def test_refusal_ends_with_commands_that_work() -> None:
    query = replace(SM120, backend="flashinfer_cutedsl", sglang_version="0.5.23")
    found = judge(query, ("0.5.23", "0.5.12.post1", "0.5.10.post1", "0.5.9"))
    assert found.commands == (
        "ansible-playbook deploy.yml -e backend=flashinfer_cutlass",
        "ansible-playbook deploy.yml -e sglang_version=0.5.10.post1",
    )
    assert found.reason.endswith(found.commands[-1])
    assert all(command in found.reason for command in found.commands)
    assert judge(query, ("0.5.23",)).commands == found.commands[:1]


def test_locked_releases_are_the_candidates_when_none_are_given() -> None:
    query = replace(SM120, backend="flashinfer_cutedsl", sglang_version="0.5.23")
    assert judge(query) == judge(query, releases.known())


def test_refusal_without_any_way_out_still_ends_with_a_command() -> None:
    found = ask("flashinfer_cutlass", "0.5.12.post1", "8.0", FP4)
    assert (found.verdict, found.alternatives) == ("unsupported", ())
    assert found.reason.endswith("ansible-playbook preflight.yml")
    driver = ask("flashinfer_cutlass", "0.5.23", "12.0", FP4, driver_version="550.1")
    assert "install a driver" in driver.reason
    toolkit = ask("flashinfer_cutlass", "0.5.13", "12.0", FP4, cuda_toolkit="12.6")
    assert "install a CUDA toolkit" in toolkit.reason


def test_argument_and_driver_are_both_to_be_changed() -> None:
    args = {"attention-backend": "trtllm_mla"}
    found = ask("flashinfer_cutlass", "0.5.23", "12.0", FP4, args=args, driver_version="570.1", cuda_toolkit="12.6")
    assert (
        " in sglang_server_args and install a CUDA toolkit that does and install a driver that does: " in found.reason
    )
    assert found.commands == ("ansible-playbook preflight.yml",)


def test_several_refusals_are_all_told() -> None:
    found = ask("flashinfer_trtllm", "0.5.23", "12.0", FP4, args={"attention-backend": "trtllm_mla"})
    assert "TensorRT-LLM MoE" in found.reason
    assert "--attention-backend trtllm_mla" in found.reason
    assert found.commands == ("ansible-playbook preflight.yml -e backend=flashinfer_cutlass",)


# --- the newest release -----------------------------------------------------------------------------------------------


def test_newest_release_in_which_the_backend_runs_is_taken() -> None:
    found = newest_release(("0.5.12.post1", "0.5.23", "0.5.10.post1"), SM120)
    assert (found.version, found.verdict, dict(found.passed_over)) == ("0.5.23", "supported", {})


def test_release_with_a_difference_is_taken_before_one_that_fails() -> None:
    found = newest_release(("0.5.10.post1", "0.5.23", "0.5.12.post1"), replace(SM120, backend="flashinfer_cutedsl"))
    assert (found.version, found.verdict) == ("0.5.10.post1", "supported_but")
    assert list(found.passed_over) == ["0.5.23", "0.5.12.post1"]
    assert "Got SM120." in found.passed_over["0.5.23"]
    assert "passed over: 0.5.23" in found.reason


def test_supported_in_an_older_release_counts_before_a_difference_in_a_newer() -> None:
    query = Query(backend="cutlass", compute_capability="10.0", quantization="")
    assert newest_release(("0.5.12.post1", "0.5.10.post1"), query).verdict == "supported_but"
    auto = Query(backend="auto", compute_capability="12.0", quantization=FP4)
    found = newest_release(("0.5.12.post1", "0.5.13", "0.5.10"), auto)
    assert (found.version, found.verdict) == ("0.5.13", "supported")


def test_unknown_is_the_last_resort_and_says_so() -> None:
    found = newest_release(("0.5.24", "0.5.23"), replace(SM120, backend="flashinfer_cutedsl"))
    assert (found.version, found.verdict) == ("0.5.24", "unknown")
    assert "no release is known to run it" in found.reason
    known = newest_release(("0.5.24", "0.5.23"), SM120)
    assert (known.version, known.verdict) == ("0.5.23", "supported")


def test_no_release_is_taken_when_the_backend_fails_in_all() -> None:
    found = newest_release(("0.5.12.post1", "0.5.23"), replace(SM120, backend="flashinfer_trtllm"))
    assert (found.version, found.verdict) == ("", "unsupported")
    assert found.reason.endswith("ansible-playbook deploy.yml -e backend=flashinfer_cutlass")


def test_candidates_that_cannot_be_read_are_errors() -> None:
    with pytest.raises(CompatError, match="no candidates"):
        newest_release((), SM120)
    for candidate in ("0.5.x", "v0.5.23", "main", None, 0.5, ["0.5.23"], "9" * 5000, "x" * 10**5):
        with pytest.raises(
            CompatError, match=r"reading the candidate .*: no release name; give one like 0\.5\.23"
        ) as error:
            newest_release(("0.5.23", candidate), SM120)  # type: ignore[arg-type]
        assert len(str(error.value)) < 200
    with pytest.raises(CompatError, match="one text; give a list of releases"):
        newest_release("0.5.23", SM120)


def test_candidates_are_taken_once_whatever_their_order() -> None:
    query = replace(SM120, backend="flashinfer_cutedsl")
    found = newest_release(["0.5.23", "0.5.10.post1", "0.5.23", "0.5.10rc0", "0.5.10.post1", "0.5.24"], query)
    assert (found.version, found.verdict) == ("0.5.10.post1", "supported_but")
    assert list(found.passed_over) == ["0.5.24", "0.5.23"]
    assert found.passed_over["0.5.24"].startswith("unknown: SGLang 0.5.24 is none of the releases that were read")


# --- reading values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("12.0", (12, 0)),
        ("12", (12, 0)),
        (12.0, (12, 0)),
        (12, (12, 0)),
        ("120", (12, 0)),
        ("sm120", (12, 0)),
        ("SM_120a", (12, 0)),
        ("sm_121", (12, 1)),
        ("compute_90a", (9, 0)),
        ("90", (9, 0)),
        ("8.9", (8, 9)),
        (" 10.3 ", (10, 3)),
        ("sm103f", (10, 3)),
    ],
)
def test_compute_capability_is_read_in_its_usual_forms(text: object, found: tuple[int, int]) -> None:
    assert compat_match.read_capability(text) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "12.0.0",
        "-1",
        "12.",
        "sm12",
        "1.0",
        "99.0",
        "nan",
        True,
        "120a",
        "\x00",
        "\u0967\u0968.\u0966",
        "9" * 5000,
        [12],
    ],
)
def test_compute_capability_that_is_none_is_an_error_with_the_form(text: object) -> None:
    with pytest.raises(CompatError, match=r"give it as 12\.0, 9\.0 or sm120") as error:
        compat_match.read_capability(text)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    "text", ["0.5.x", "abc", "0.5.23;rm", "9" * 5000, "\x00", None, True, "0.5..1", "\u0966.\u096b"]
)
def test_sglang_version_that_is_none_is_an_error_with_the_form(text: Any) -> None:
    with pytest.raises(CompatError, match=r"0\.5\.23"):
        judge(replace(SM120, sglang_version=text))


def test_missing_sglang_version_is_told() -> None:
    with pytest.raises(CompatError, match="there is none; give sglang_version"):
        judge(SM120)


def test_release_is_read_with_a_v_and_blanks() -> None:
    assert compat_match.read_release(" v0.5.23 ") == "0.5.23"
    assert compat_match.read_release("0.5.12.POST1") == "0.5.12.post1"


@pytest.mark.parametrize(
    ("field", "value", "form"),
    [
        ("flashinfer_version", "abc", "0.6.12"),
        ("cuda_toolkit", "twelve", "12.9"),
        ("cuda_toolkit", "12.9.", "12.9"),
        ("driver_version", "580,95", "580.95.05"),
        ("tp", 0, "whole number from 1"),
        ("tp", True, "whole number from 1"),
        ("backend", "a\nb", r"backend 'a\nb': no name"),
        ("backend", "-e", "no name"),
        ("backend", "x" * 81, "no name"),
        ("quantization", "fp8\x00", r"quantization 'fp8\x00': no name"),
        ("moe_a2a_backend", "z" * 10**5, "no name"),
        ("args", {"attention-backend": "x" * 10**5}, "attention-backend 'xxx"),
        ("args", {"moe_runner_backend": "no such"}, "backend 'no such': no name"),
        ("flashinfer_version", "9" * 5000 + ".dev1", "0.6.12"),
        ("sglang_version", "9" * 5000 + ".dev1", "0.5.23"),
        ("sglang_version", "main+\nx", "0.5.23"),
        ("sglang_version", "main+" + "x" * 100, "0.5.23"),
        ("sglang_version", "0.5.\u0968.dev1", "0.5.23"),
        ("sglang_version", "0.5.23+", "0.5.23"),
        ("tp", "8", "whole number from 1"),
        ("ep", 2.0, "whole number from 1"),
        ("ep", -1, "whole number from 1"),
        ("ep", 10**6, "whole number from 1"),
        ("backend", 5, "flashinfer_cutlass"),
        ("quantization", ["fp8"], "no text"),
        ("args", [("tp", 1)], "no mapping"),
        ("args", {"tp-size": "eight"}, "whole number from 1"),
        ("args", {"tp-size": "8" * 4400}, "whole number from 1"),
    ],
)
def test_values_that_cannot_be_read_are_errors(field: str, value: Any, form: str) -> None:
    with pytest.raises(CompatError, match=re.escape(form)) as error:
        judge(replace(SM120, **{"sglang_version": "0.5.23", "tp": 1, field: value}))
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("value", [None, "", "none", "unquant"])
def test_no_quantization_has_several_names(value: Any) -> None:
    found = judge(replace(SM120, sglang_version="0.5.23", quantization=value))
    assert (found.verdict, found.parts[1].value) == ("supported", "none")


def test_arguments_that_are_left_out_or_no_single_value_are_passed_over() -> None:
    args = {
        "attention-backend": None,
        "cuda-graph-bs": [1, 2],
        "json": {"a": 1},
        "prefill-attention-backend": ["triton"],
    }
    found = ask("flashinfer_cutlass", "0.5.23", "12.0", FP4, args=args)
    assert [part.flag for part in found.parts if part.part == "attention"] == ["prefill-attention-backend"]


@pytest.mark.parametrize(
    ("version", "spec", "inside"),
    [
        ("0.5.10", "0.5.9..0.5.11", True),
        ("0.5.9", "0.5.9..0.5.11", True),
        ("0.5.11", "0.5.9..0.5.11", True),
        ("0.5.11.post1", "0.5.9..0.5.11", False),
        ("0.5.10rc0", "0.5.10..", False),
        ("0.5.10.post1", "..0.5.10", False),
        ("0.5.2rc2", "..0.5.2", True),
        ("0.5.12", "0.5.12", True),
        ("0.5.12.post1", "0.5.12", False),
        ("0.5.1", "", True),
    ],
)
def test_version_ranges_include_their_ends(version: str, spec: str, inside: bool) -> None:
    assert releases.in_span(version, spec) is inside


@pytest.mark.parametrize(
    ("capability", "spec", "inside"),
    [
        ((12, 1), "12.*", True),
        ((11, 0), "12.*", False),
        ((9, 0), "9.0..", True),
        ((8, 9), "9.0..", False),
        ((8, 9), "..8.9", True),
        ((9, 0), "..8.9", False),
        ((9, 9), "..9.*", True),
        ((10, 0), "..9.*", False),
        ((10, 3), "10.0|10.3", True),
        ((10, 1), "10.0|10.3", False),
        ((10, 7), "10.1..10.*", True),
    ],
)
def test_capability_ranges(capability: tuple[int, int], spec: str, inside: bool) -> None:
    assert compat_match.in_capabilities(capability, spec) is inside


@pytest.mark.parametrize(
    ("version", "spec", "inside"),
    [
        ("12.8.1", "..12.8", True),
        ("12.9", "..12.8", False),
        ("12.8", "12.8", True),
        ("12.8.1", "12.8", True),
        ("12.9", "12.8", False),
        ("13", "12.9..", True),
        ("12", "12.9..", False),
        ("580.95.05", "580..", True),
        ("579.99", "580..", False),
        ("569.1", "535..569", True),
        ("570", "535..569", False),
    ],
)
def test_toolkit_and_driver_ranges_compare_as_many_places_as_they_have(version: str, spec: str, inside: bool) -> None:
    assert compat_match.in_numbers(version, spec) is inside


# --- the data's form --------------------------------------------------------------------------------------------------


def test_every_row_is_well_formed_and_says_where_it_was_read() -> None:
    placeholders = {"backend", "capability", "sm", "sglang", "flashinfer", "quantization", "tp", "ep"}
    for row in compat_data.ROWS:
        assert row.part in compat_match.PARTS
        assert row.verdict in ("supported", "supported_but", "unsupported")
        assert row.proofs or row.source
        assert not row.parallel or row.parallel in compat_match.PARALLEL
        assert {name for _text, name, _spec, _form in string.Formatter().parse(row.reason) if name} <= placeholders
        assert not (row.quantization and row.not_quantization)
        for spec in (row.sglang, row.flashinfer):
            for end in filter(None, spec.split("..")):
                assert releases.sort_key(end)
        compat_match.in_capabilities((9, 0), row.capability or "9.0")
        for proof in row.proofs:
            assert re.fullmatch(r"(sglang|flashinfer-python) \S+", proof.wheel)
            assert proof.text.strip()
    assert len(set(compat_data.ROWS)) == len(compat_data.ROWS)


def test_rows_name_choices_that_a_release_of_theirs_has() -> None:
    for row in compat_data.ROWS:
        if row.part == "moe":
            for backend in row.backends:
                having = compat_releases.releases_with("moe-runner-backend", backend)
                assert any(releases.in_span(release, row.sglang) for release in having), (backend, row.sglang)


def test_every_release_has_a_verdict_on_every_choice_without_an_error() -> None:
    for release in compat_releases.RELEASES[::5]:
        for backend in (*(compat_releases.choices("moe-runner-backend", release) or ()), "auto"):
            for capability in ("7.5", "9.0", "12.0"):
                found = ask(backend, release, capability, FP4)
                assert found.verdict in compat.VERDICTS
                assert (found.commands != ()) == (found.verdict == "unsupported")
                assert "{" not in found.reason


# --- what a stranger asked -------------------------------------------------------------------------------------------


def test_auto_is_certain_with_the_quantization_among_the_arguments() -> None:
    found = ask("auto", "0.5.23", "12.0", FP4, args={"quantization": "modelopt_fp4"})
    assert (found.verdict, "chooses flashinfer_cutlass" in found.reason) == ("supported", True)


@pytest.mark.parametrize(
    ("release", "flag", "there"),
    [("0.5.23", "nsa-decode-backend", "dsa-decode-backend"), ("0.5.12.post1", "dsa_prefill_backend", "nsa-prefill")],
)
def test_name_of_another_release_is_refused_with_the_one_there(release: str, flag: str, there: str) -> None:
    found = ask("flashinfer_cutlass", release, "10.0", FP4, tp=8, args={flag: "trtllm"})
    assert found.verdict == "unsupported"
    assert f"there it is --{there}" in found.reason


@pytest.mark.parametrize("ep", [3, 16])
def test_experts_that_cannot_be_shared_out_run_with_no_backend(ep: int) -> None:
    for backend in ("marlin", "flashinfer_cutlass", "auto"):
        found = ask(backend, "0.5.23", "12.0", FP4, tp=8, ep=ep)
        assert (found.verdict, found.alternatives) == ("unsupported", ())
        assert f"ep {ep} does not divide tp 8" in found.reason


@pytest.mark.parametrize(
    ("capability", "toolkit", "verdict"),
    [("10.0", "11.5", "unsupported"), ("10.0", "12.6", "unsupported"), ("10.0", "12.8", "supported"),
     ("10.3", "12.8", "unsupported"), ("10.3", "12.9", "supported"), ("9.0", "11.8", "unsupported"),
     ("9.0", "12.4", "supported"), ("12.0", "13.0", "supported")],
)  # fmt: skip
def test_toolkit_must_know_the_gpu(capability: str, toolkit: str, verdict: str) -> None:
    backend, quantization = ("flashinfer_cutlass", "none")
    assert ask(backend, "0.5.23", capability, quantization, cuda_toolkit=toolkit).verdict == verdict


@pytest.mark.parametrize(
    ("capability", "driver", "verdict"),
    [("9.0", "470.1", "unsupported"), ("9.0", "535.1", "supported_but"), ("9.0", "570.1", "supported"),
     ("10.0", "550.1", "unsupported"), ("10.0", "570.1", "supported")],
)  # fmt: skip
def test_driver_must_know_the_gpu_and_run_the_torch(capability: str, driver: str, verdict: str) -> None:
    assert ask("flashinfer_cutlass", "0.5.9", capability, "none", driver_version=driver).verdict == verdict


def test_way_out_without_an_all_to_all_backend_is_offered() -> None:
    found = ask("flashinfer_cutedsl", "0.5.10.post1", "12.0", FP4, tp=8, ep=8, moe_a2a_backend="deepep")
    assert found.verdict == "unsupported"
    assert "take out moe-a2a-backend" in found.reason or "-e backend=" in found.reason


def test_release_may_choose_where_nothing_else_is_known() -> None:
    found = ask("flashinfer_cutlass", "0.5.23", "12.0", "awq")
    assert found.verdict == "unsupported"
    assert found.commands[-1] == "ansible-playbook deploy.yml -e backend=auto"


def test_backend_and_driver_are_both_mended_by_what_is_offered() -> None:
    found = ask("flashinfer_cutedsl", "0.5.23", "12.0", FP4, driver_version="570.86")
    assert "install a driver that does" in found.reason


@pytest.mark.parametrize("name", ["x" * 81, "a\nb", "a\0b"])
def test_name_that_is_none_is_refused_shortly(name: str) -> None:
    with pytest.raises(CompatError) as raised:
        ask(name, "0.5.23", "12.0", FP4)
    assert len(str(raised.value)) < 200 and "\n" not in str(raised.value)


def test_build_of_ones_own_counts_as_its_release() -> None:
    assert ask("flashinfer_cutlass", "0.5.23+cu130", "12.0", FP4).verdict == "supported"


# --- what was found by trying each way out ----------------------------------------------------------------------------

TEN_TWELVE = Query(sglang_version="0.5.23", compute_capability="12.0", quantization=FP4, tp=8)


@pytest.mark.parametrize("tp", [True, 1.0])
def test_size_that_is_no_whole_number_is_not_filled_from_args(tp: Any) -> None:
    with pytest.raises(CompatError, match="give a whole number from 1"):
        judge(replace(TEN_TWELVE, tp=tp, args={"tp-size": 8}), ())


@pytest.mark.parametrize("value", [[None], [False], None, False, ["a", "b"], {"a": 1}])
def test_argument_in_a_list_of_one_counts_as_the_argument_alone(value: Any) -> None:
    found = judge(replace(TEN_TWELVE, backend="flashinfer_cutlass", args={"attention-backend": value}), ())
    assert (found.verdict, [part for part in found.parts if part.part == "attention"]) == ("supported", [])


def test_secret_that_is_given_twice_is_not_shown() -> None:
    for one, other in (("hunter2", "hunter3"), ("s" * 80, "t" * 80)):
        with pytest.raises(CompatError) as error:
            judge(replace(TEN_TWELVE, args={"api-key": one, "--api_key": other}))
        assert str(error.value) == "reading args: api-key is two values; give it once"


def test_argument_with_a_name_that_is_none_is_shown_in_one_short_line() -> None:
    with pytest.raises(CompatError) as error:
        judge(replace(TEN_TWELVE, args={"a\n" + "x" * 500: 1, "a\n" + "X" * 500: 1, ("a-\n" + "x" * 500): 10**5000}))
    assert "\n" not in str(error.value) and len(str(error.value)) < 200


def test_names_of_no_quantization_do_not_contradict_each_other() -> None:
    for one, other in (("none", "unquant"), ("unquant", "none")):
        found = judge(replace(TEN_TWELVE, quantization=one, args={"quantization": other}), ())
        assert next(part.value for part in found.parts if part.part == "quantization") == "none"
    with pytest.raises(CompatError, match="it is 'none', and args say 'fp8'"):
        judge(replace(TEN_TWELVE, quantization="none", args={"quantization": "fp8"}))


def test_machine_is_read_for_a_release_that_was_not_read_too() -> None:
    with pytest.raises(CompatError, match="CUDA toolkit's version 'garbage'"):
        judge(replace(TEN_TWELVE, sglang_version="0.5.24", cuda_toolkit="garbage"))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0.5.23+cu130", "0.5.23"),
        ("v0.5.12.post1+g0123abc.d20260101", "0.5.12.post1"),
        ("0.5.10rc0+x", "0.5.10rc0"),
        ("0.5.24.dev12+g0123abc", "0.5.24.dev12+g0123abc"),
        ("Main", "main"),
    ],
)
def test_own_build_of_a_release_is_the_release_and_one_of_a_development_state_is_not(text: str, found: str) -> None:
    assert compat_match.read_release(text) == found


@pytest.mark.parametrize("version", ["0.7.2.dev20260101", "0.6.8.post1.dev3", "0.7.2rc1.dev1"])
def test_nightly_flashinfer_is_none_that_was_read(version: str) -> None:
    assert compat_match.read_flashinfer(f"{version}+cu130") == version
    found = judge(replace(TEN_TWELVE, backend="flashinfer_cutlass", flashinfer_version=version), ())
    assert found.verdict == "unknown"


def test_filled_query_says_what_was_judged() -> None:
    args = {
        "moe_runner_backend": "triton",
        "--tp": 8,
        "ep-size": ["4"],
        "moe-a2a-backend": "deepep",
        "quantization": "fp8",
    }
    found = compat.filled(Query(sglang_version="v0.5.23", compute_capability="sm120", args=args))
    assert found == Query("triton", "0.5.23", "0.7.2", "12.0", "fp8", 8, 4, "deepep", args)
    bare = compat.filled(Query(sglang_version="main"))
    assert (bare.flashinfer_version, bare.compute_capability, bare.quantization) == ("", None, "none")


def test_refused_backend_and_driver_are_both_told_with_the_backend() -> None:
    found = judge(replace(TEN_TWELVE, backend="flashinfer_trtllm", driver_version="570.1"), ())
    assert found.reason.endswith(
        "and install a driver that does: ansible-playbook deploy.yml -e backend=flashinfer_cutlass"
    )


@pytest.mark.parametrize("by_args", [True, False])
def test_refused_all_to_all_is_taken_out_and_what_is_refused_without_it_changed(by_args: bool) -> None:
    name = "mooncake"
    query = replace(TEN_TWELVE, sglang_version="0.5.3.post1", compute_capability="10.0", backend="flashinfer_cutlass")
    query = replace(query, args={"moe_a2a_backend": name}) if by_args else replace(query, moe_a2a_backend=name)
    found = judge(query, ())
    assert found.reason.endswith(
        "; take out --moe-a2a-backend mooncake in sglang_server_args: ansible-playbook preflight.yml"
    )
    worse = judge(replace(query, quantization="fp8"), ())
    assert worse.commands == ("ansible-playbook preflight.yml -e backend=flashinfer_trtllm",)
    assert "take out --moe-a2a-backend mooncake in sglang_server_args and use flashinfer_trtllm: " in worse.reason


def test_argument_is_no_way_out_when_nothing_runs_the_model() -> None:
    args = {"attention-backend": "trtllm_mla"}
    query = replace(TEN_TWELVE, sglang_version="0.5.12.post1", compute_capability="8.0", args=args)
    found = judge(replace(query, backend="flashinfer_cutlass"), ())
    assert "in sglang_server_args" not in found.reason
    assert found.reason.endswith(
        "nothing that was read runs this here: change the model or its parallelism, or the GPU, then look again: "
        "ansible-playbook preflight.yml"
    )


def test_other_release_is_named_when_no_change_of_arguments_is_enough() -> None:
    # NVFP4 needs Marlin there, which came with 0.5.13; the argument that is wrong now is right then.
    args = {"fp4-gemm-backend": "marlin"}
    query = Query("auto", "0.5.10", "", "9.0", FP4, 8, args=args)
    found = judge(query, ("0.5.10", "0.5.13", "0.5.12.post1"))
    assert found.commands == ("ansible-playbook deploy.yml -e sglang_version=0.5.13",)
    assert found.reason.endswith("take SGLang 0.5.13, where it runs with a difference: " + found.commands[0])


def test_every_command_of_a_refusal_is_not_refused_when_it_is_followed() -> None:
    for release in ("0.5.0rc2", "0.5.3.post1", "0.5.23"):
        for backend in ("auto", "marlin", "flashinfer_trtllm"):
            for capability in (None, "8.0", "12.0"):
                for a2a, driver in (("none", ""), ("mooncake", ""), ("flashinfer", "550.1")):
                    query = Query(backend, release, "", capability, FP4, 8, 8, a2a, driver_version=driver)
                    found = judge(query, ("0.5.23", "0.5.12.post1", "0.5.10"))
                    for command in found.commands:
                        _follow(query, found.reason, command)


def _follow(query: Query, reason: str, command: str) -> None:
    assert reason.endswith(command) or f"{command}, or take" in reason
    told = dict(re.findall(r"-e (\w+)=(\S+)", command))
    if "take out --moe-a2a-backend" in reason:
        query = replace(query, moe_a2a_backend="none")
    if "install a driver" in reason:
        query = replace(query, driver_version="")
    if told or "take out" in reason:
        assert judge(replace(query, **told), ()).verdict != "unsupported", (query, command)


def test_number_that_python_does_not_write_is_an_error_like_others() -> None:
    for change in ({"tp": 10**5000}, {"compute_capability": 10**5000}, {"args": {"tp-size": 10**5000}}):
        with pytest.raises(CompatError, match=r"\(a huge number\)"):
            judge(replace(TEN_TWELVE, **change), ())


@pytest.mark.parametrize(
    ("name", "near"),
    [("NVFP4", "modelopt_fp4"), ("fp4", "modelopt_fp4"), ("MODELOPT_FP4", "modelopt_fp4"),
     ("compressed_tensors", "compressed-tensors")],
)  # fmt: skip
def test_quantization_by_another_name_is_unknown_with_sglangs_name(name: str, near: str) -> None:
    found = ask("flashinfer_cutlass", "0.5.23", "12.0", name)
    assert (found.verdict, f"did you mean {near}?" in found.reason) == ("unknown", True)


def test_quantization_that_nothing_is_like_is_unknown() -> None:
    found = ask("flashinfer_cutlass", "0.5.23", "12.0", "zzz")
    assert found.verdict == "unknown" and "did you mean" not in found.reason


@pytest.mark.parametrize(
    ("release", "flashinfer", "args", "verdict"),
    [("0.5.23", "0.6.18", {"attention-backend": "flashinfer"}, "unsupported"),
     ("0.5.23", "0.6.18", {"decode-attention-backend": "flashinfer"}, "unsupported"),
     ("0.5.23", "0.6.18", {}, "supported_but"),
     ("0.5.23", "0.7.2", {"attention-backend": "flashinfer"}, "supported"),
     ("0.5.12.post1", "0.6.11", {"attention-backend": "flashinfer"}, "unsupported"),
     ("0.5.12.post1", "0.6.12", {"attention-backend": "flashinfer"}, "supported")],
)  # fmt: skip
def test_flashinfer_older_than_the_pin(release: str, flashinfer: str, args: dict[str, Any], verdict: str) -> None:
    found = ask("flashinfer_cutlass", release, "12.0", FP4, flashinfer_version=flashinfer, args=args)
    assert found.verdict == verdict, found.reason
    if verdict == "unsupported":
        assert "refuses at start a FlashInfer older than" in found.reason
        assert "install the FlashInfer that the release pins" in found.reason
