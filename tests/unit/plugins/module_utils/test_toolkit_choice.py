# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CUDA toolkit a release, GPUs and a driver come to, what is refused, and which packages bring it."""

from __future__ import annotations

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    compat_releases,
    driver_packages,
    release_choice,
    releases,
    toolkit_choice,
    toolkit_wheels,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.cuda_toolkit import HEADERS, Toolkit
from ansible_collections.tokforge.sglang.plugins.module_utils.toolkit_choice import Host, ToolkitError, Wanted

#: A box of RTX PRO 6000.
SM120 = Host(capabilities=((12, 0),), driver_cuda=(13, 0), driver="driver 580.95.05")
SM120_OLD = Host(capabilities=((12, 0),), driver_cuda=(12, 8), driver="driver 570.124.06")
HOPPER = Host(capabilities=((9, 0),), driver_cuda=(12, 4), driver="driver 550.54.15")


def version(wanted: Wanted, host: Host) -> tuple[int, int] | None:
    return toolkit_choice.decide(wanted, host).version


def refusal(wanted: Wanted, host: Host) -> str:
    with pytest.raises(ToolkitError) as caught:
        toolkit_choice.decide(wanted, host)
    return str(caught.value)


def test_newest_release_on_a_driver_of_cuda_13_gets_the_lanes_own_version() -> None:
    choice = toolkit_choice.decide(Wanted(), SM120)
    assert (choice.version, choice.lane, choice.flashinfer) == ((13, 0), "cuda13", "0.7.2")
    assert choice.reasons == (
        "SGLang 0.5.23 (the newest release that is locked for lane cuda13) with FlashInfer 0.7.2, lane cuda13, is built"
        " for 13.0",
        "GPUs of compute capability 12.0: nvcc 12.8 or newer (FlashInfer from 0.6.18 on, for nvcc's --compress-mode)",
        "the driver runs CUDA 13.0",
    )


def test_old_driver_takes_the_lane_of_its_major_version_and_sm120_raises_its_minor() -> None:
    choice = toolkit_choice.decide(Wanted(), SM120_OLD)
    assert (choice.version, choice.lane) == ((12, 9), "cuda12")
    assert choice.reasons[0].startswith("SGLang 0.5.10.post1 (the newest release that is locked for lane cuda12)")
    assert "nvcc 12.9 or newer (compute capability 12.0 with FlashInfer before 0.7.1)" in choice.reasons[1]
    assert choice.reasons[2] == "the driver is of CUDA 12.8: kernels that are compiled for the GPU run, PTX does not"


def test_hopper_in_the_same_lane_keeps_the_lanes_version() -> None:
    assert version(Wanted(), HOPPER) == (12, 8)


def test_release_that_is_asked_for_decides_its_lane() -> None:
    assert version(Wanted(sglang_version="0.5.10.post1"), SM120) == (12, 9)
    assert version(Wanted(sglang_version="0.5.12.post1"), SM120) == (13, 0)
    # The same toolkit, though its FlashInfer is content with less: CUDA 13 has no older one.
    assert version(Wanted(sglang_version="0.5.23", lane="cuda13"), SM120) == (13, 0)


def test_release_without_a_lock_takes_the_newest_lane_that_runs_and_its_flashinfer_is_known() -> None:
    assert "0.5.18" not in releases.known()
    choice = toolkit_choice.decide(Wanted(sglang_version="0.5.18"), SM120_OLD)
    assert (choice.version, choice.flashinfer) == ((12, 9), compat_releases.FLASHINFER["0.5.18"])
    assert "not locked here, so the lane is the newest that the host runs" in choice.reasons[0]


def test_checkouts_name_is_no_error() -> None:
    choice = toolkit_choice.decide(Wanted(sglang_version="0.6.0.dev3+gabc"), SM120)
    assert (choice.version, choice.flashinfer) == ((13, 0), "")


def test_host_without_gpu_gets_the_lanes_version_and_is_told_why() -> None:
    choice = toolkit_choice.decide(Wanted(), Host(said="nvidia-smi is not there"))
    assert choice.version == (13, 0)
    assert "no GPU could be asked (nvidia-smi is not there): nvcc 12.8 or newer" in choice.reasons[1]
    assert choice.reasons[2] == "which CUDA the driver runs is not known; CUDA 13 needs a driver of branch >= 580"


def test_cpu_server_needs_none_unless_one_is_asked_for() -> None:
    choice = toolkit_choice.decide(Wanted(lane="cpu"), Host())
    assert choice.version is None
    assert choice.reasons == ("a server of lane cpu compiles no CUDA kernel",)
    assert version(Wanted(lane="cpu", version="12.9"), Host()) == (12, 9)


def test_asked_version_is_taken_when_it_works() -> None:
    choice = toolkit_choice.decide(Wanted(version="13.1"), SM120)
    assert (choice.version, choice.reasons[0]) == ((13, 1), "as asked")
    assert "the driver is of CUDA 13.0" in choice.reasons[1]


def test_asked_version_that_is_too_old_for_the_gpus_names_both() -> None:
    told = refusal(Wanted(version="12.8", sglang_version="0.5.10.post1"), SM120)
    assert "12.8 was asked, and compute capability 12.0 with FlashInfer before 0.7.1 needs 12.9" in told


def test_asked_version_that_the_driver_cannot_run_names_both() -> None:
    told = refusal(Wanted(version="13.0", lane="cuda12"), SM120_OLD)
    assert "what nvcc 13.0 compiles does not run on driver 570.124.06 of CUDA 12.8" in told
    assert "install a driver of branch >= 580 on the host first" in told


def test_asked_lane_that_the_driver_cannot_run_is_refused() -> None:
    assert "does not run on driver 570.124.06" in refusal(Wanted(lane="cuda13"), SM120_OLD)


def test_release_whose_lanes_the_driver_cannot_run_is_refused() -> None:
    told = refusal(Wanted(sglang_version="0.5.23"), SM120_OLD)
    assert "SGLang 0.5.23: it has lanes cpu, cuda13, and driver 570.124.06 (CUDA 12.8) runs cuda12" in told


def test_asked_lane_that_the_release_lacks_is_refused() -> None:
    told = refusal(Wanted(sglang_version="0.5.23", lane="cuda12"), SM120)
    assert "lane cuda12 was asked" in told


def test_driver_older_than_every_lane_is_refused() -> None:
    told = refusal(Wanted(), Host(driver_cuda=(11, 0), driver="driver 450.80.02"))
    assert "driver 450.80.02 is of CUDA 11.0, which no lane is for; install a driver of branch >= 525" in told


def test_unknown_lane_is_refused_with_those_there_are() -> None:
    assert "no lane 'cuda14'; use one of auto, cuda13, cuda12, cpu" in refusal(Wanted(lane="cuda14"), SM120)


@pytest.mark.parametrize("text", ["13", "13.0.2", "", "13.x", " 13.0", "13.0\n", "latest", "\uff11\uff13.0"])
def test_text_that_is_no_version_is_refused(text: str) -> None:
    assert "not of the form 13.0" in refusal(Wanted(version=text), SM120)


def test_cuda_12_never_comes_from_wheels_and_that_is_said() -> None:
    for wanted in (Wanted(source="wheel", version="12.9", sglang_version="0.5.10.post1"), Wanted(source="wheel")):
        told = refusal(wanted, SM120_OLD)
        assert "12.9 cannot come from wheels: NVIDIA's wheels for CUDA 12 bring ptxas and no nvcc" in told
    assert version(Wanted(source="wheel"), SM120) == (13, 0)


def test_wheels_of_another_minor_version_are_refused() -> None:
    assert "the wheels that are known are of CUDA 13.0" in refusal(Wanted(source="wheel", version="13.4"), SM120)


def test_every_lane_has_a_version_to_choose() -> None:
    for cuda in release_choice.LANE_CUDA.values():
        assert any(one[0] == cuda[0] and one >= cuda for one in toolkit_choice.VERSIONS)
    assert release_choice.LANE_CUDA["cuda13"] in toolkit_wheels.WHEELS


# --- packages ---


def test_packages_are_compiler_headers_and_stubs_and_neither_driver_nor_kernel() -> None:
    names = toolkit_choice.packages((13, 0))
    assert names == (
        "cuda-cccl-13-0",
        "cuda-cudart-dev-13-0",
        "cuda-driver-dev-13-0",
        "cuda-nvcc-13-0",
        "cuda-nvrtc-dev-13-0",
        "libcublas-dev-13-0",
        "libcurand-dev-13-0",
    )
    brought = ("cuda-crt-13-0", "libnvvm-13-0", "libnvptxcompiler-13-0", "libcublas-13-0", "cuda-toolkit-config-common")
    for name in (*names, *brought):
        assert not driver_packages.is_driver(name)
        assert not driver_packages.is_kernel(name)
        assert not driver_packages.is_module(name)


# --- one that is there ---


def there(home: str, of: tuple[int, int], **more: object) -> Toolkit:
    return Toolkit(home, "installed", version=of, header_version=of, **more)  # type: ignore[arg-type]


def test_toolkit_that_is_there_fits_when_it_has_the_major_version_and_is_whole() -> None:
    choice = toolkit_choice.decide(Wanted(), SM120)
    newer, whole = there("/usr/local/cuda-13.1", (13, 1)), there("/usr/local/cuda-13.0", (13, 0))
    assert toolkit_choice.fitting([newer, whole], choice, SM120) == whole
    assert toolkit_choice.fitting([newer], choice, SM120) == newer


@pytest.mark.parametrize(
    "toolkit",
    [
        there("/usr/local/cuda-12.9", (12, 9)),
        there("/usr/local/cuda-13.0", (13, 0), missing=tuple(HEADERS)),
        there("/usr/local/cuda-13.0", (13, 0), problem="nvcc cannot be run"),
        Toolkit("/usr", "PATH", version=(13, 0), header_version=(12, 4)),
    ],
)
def test_toolkit_of_another_major_version_or_broken_does_not_fit(toolkit: Toolkit) -> None:
    assert toolkit_choice.fitting([toolkit], toolkit_choice.decide(Wanted(), SM120), SM120) is None


def test_old_minor_version_does_not_fit_gpus_that_need_a_newer_one() -> None:
    choice = toolkit_choice.decide(Wanted(sglang_version="0.5.10.post1"), SM120)
    assert toolkit_choice.fitting([there("/usr/local/cuda-12.8", (12, 8))], choice, SM120) is None
    hopper = toolkit_choice.decide(Wanted(sglang_version="0.5.10.post1"), HOPPER)
    assert toolkit_choice.fitting([there("/usr/local/cuda-12.6", (12, 6))], hopper, HOPPER) is not None
