# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Environments with kernels of FlashInfer that were built elsewhere: real installs of tiny wheels. No network."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import stat
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from kernel_libraries import Elf
from wheel_requests import UV, from_wheels
from wheels import make_wheel

from ansible_collections.tokforge.sglang.plugins.module_utils import environment, gpu_look, jit_artifacts
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_request import Request
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu, Report
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.jit_artifacts import ArtifactRequest

pytestmark = pytest.mark.skipif(UV is None, reason="uv is not installed beside this Python nor on PATH")
# What FlashInfer 0.6.11.post1 and 0.7.2 say of the place in flashinfer/jit/env.py.
ENV = "import pathlib\n_package_root = pathlib.Path(__file__)\nFLASHINFER_AOT_DIR = _package_root / 'data' / 'aot'\n"
TORCH = {"torch/__init__.py": "", "torch/version.py": "__version__ = '2.11.0+cu130'\ncuda = '13.0'\n"}
LIBRARY = Elf().build()


@pytest.fixture
def kernels(tmp_path: Path) -> ArtifactRequest:
    path = tmp_path / "fused_moe_90.so.xz"
    path.write_bytes(lzma.compress(LIBRARY))
    return ArtifactRequest(str(path), "0.6.11.post1")


@pytest.fixture
def request_(tmp_path: Path, kernels: ArtifactRequest) -> Request:
    wheels = tmp_path / "wheels"
    lock = make_wheel(wheels, "sglang", "0.5.12.post1")
    lock += make_wheel(
        wheels,
        "flashinfer_python",
        "0.6.11.post1",
        files={"flashinfer/__init__.py": "", "flashinfer/jit/env.py": ENV},
    )
    lock += make_wheel(wheels, "torch", "2.11.0+cu130", files=TORCH)
    return from_wheels(tmp_path, lock, "0.5.12.post1", jit_artifacts=(kernels,))


def with_gpus(monkeypatch: pytest.MonkeyPatch, capabilities: Sequence[tuple[int, int]]) -> None:
    gpus = tuple(Gpu(index=n, name="GPU", compute_capability=one) for n, one in enumerate(capabilities))
    monkeypatch.setattr(gpu_look, "look", lambda: Report(state="ok", message="", gpus=gpus))


def test_kernels_are_where_flashinfer_looks_and_are_recorded(request_: Request, kernels: ArtifactRequest) -> None:
    predicted = environment.ensure(request_, check_mode=True)
    outcome = environment.ensure(request_)
    [library] = Path(outcome.path).glob("lib/*/site-packages/flashinfer/data/aot/fused_moe_90/fused_moe_90.so")

    assert (predicted.changed, predicted.id) == (True, outcome.id)
    assert library.read_bytes() == LIBRARY
    assert stat.S_IMODE(library.stat().st_mode) == 0o644
    assert outcome.facts["prebuilt"] == [
        {
            "name": "fused_moe_90",
            "sha256": hashlib.sha256(LIBRARY).hexdigest(),
            "size_bytes": len(LIBRARY),
            "cuda": 13,
            "architectures": ["sm_90a"],
        }
    ]
    assert not list(Path(outcome.path).glob("unpacked-kernels"))
    assert environment.ensure(request_).changed is False


def test_an_environment_that_is_there_needs_no_file_when_its_sha256_is_given(
    request_: Request, kernels: ArtifactRequest
) -> None:
    first = environment.ensure(request_)
    digest = hashlib.sha256(Path(kernels.path).read_bytes()).hexdigest()
    os.unlink(kernels.path)

    with pytest.raises(InstallError, match="fused_moe_90"):
        environment.ensure(request_)
    again = environment.ensure(replace(request_, jit_artifacts=(replace(kernels, sha256=digest),)))
    assert (again.changed, again.id) == (False, first.id)


@pytest.mark.parametrize(
    ("change", "capabilities", "words"),
    [
        ({"flashinfer": "0.7.2"}, [(9, 0)], "built for FlashInfer 0.7.2, 0.6.11.post1 is installed"),
        ({}, [(12, 0)], "has code for sm_90a and none for GPUs of compute capability 12.0"),
        ({}, [(12, 0), (10, 0)], "none for GPUs of compute capability 10.0, 12.0"),
        ({"sha256": "0" * 64}, [(9, 0)], "sha256"),
    ],
)
def test_kernels_that_do_not_fit_are_refused_and_nothing_is_left(
    request_: Request,
    kernels: ArtifactRequest,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, str],
    capabilities: list[tuple[int, int]],
    words: str,
) -> None:
    with_gpus(monkeypatch, capabilities)
    with pytest.raises(InstallError) as caught:
        environment.ensure(replace(request_, jit_artifacts=(replace(kernels, **change),)))
    assert words in str(caught.value)
    assert not list(Path(request_.root).glob("venvs/*/environment.json"))
    assert not [path for path in Path(request_.root).glob("venvs/*") if path.is_dir()]


def test_kernels_for_the_gpu_that_is_there_are_taken(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, [(9, 0), (9, 0)])
    outcome = environment.ensure(request_)
    assert json.loads(Path(outcome.path, "environment.json").read_text())["prebuilt"][0]["name"] == "fused_moe_90"


def test_kernels_for_some_gpus_of_the_host_are_taken_and_told_of(
    request_: Request, kernels: ArtifactRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may be kept to those by CUDA_VISIBLE_DEVICES."""
    with_gpus(monkeypatch, [(9, 0), (10, 0)])
    outcome = environment.ensure(request_)
    assert [one["name"] for one in outcome.facts["prebuilt"]] == ["fused_moe_90"]
    assert outcome.warnings == (
        f"the kernels {kernels.path}: fused_moe_90.so has code for sm_90a and none for GPUs of compute capability "
        "10.0; a server on one of these fails where it needs them",
    )


def test_a_file_that_is_gone_is_told_of_before_anything_is_made(request_: Request, kernels: ArtifactRequest) -> None:
    digest = hashlib.sha256(Path(kernels.path).read_bytes()).hexdigest()
    os.unlink(kernels.path)
    for check_mode in (True, False):
        with pytest.raises(InstallError, match=r"reading the kernels .*fused_moe_90\.so\.xz: No such file"):
            environment.ensure(replace(request_, jit_artifacts=(replace(kernels, sha256=digest),)), check_mode)
    assert not Path(request_.root).exists()


def test_kernels_that_change_while_the_environment_is_made_are_refused(
    request_: Request, kernels: ArtifactRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an environment is named after is what is in it."""
    looked = jit_artifacts.check_there

    def change(requests: Sequence[ArtifactRequest]) -> None:
        looked(requests)
        Path(kernels.path).write_bytes(lzma.compress(LIBRARY + b"newer"))

    monkeypatch.setattr(jit_artifacts, "check_there", change)
    with pytest.raises(InstallError, match="they changed while the environment was made"):
        environment.ensure(request_)
    assert not list(Path(request_.root).glob("venvs/*/environment.json"))
