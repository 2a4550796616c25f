# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The identity of an environment, and what is held against what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import environment_request as core
from ansible_collections.tokforge.sglang.plugins.module_utils.checkout import TreeState
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_request import Request, Source
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.interpreters import Interpreter
from ansible_collections.tokforge.sglang.plugins.module_utils.jit_artifacts import ArtifactRequest
from ansible_collections.tokforge.sglang.plugins.module_utils.site_packages import OverlayFile, Torch

HASH = " --hash=sha256:" + "a" * 64
PYTHON = Interpreter("/usr/bin/python3", "3.11.7", "cpython", "", "linux-x86_64", True)
REQUEST = Request(root="/r", kind="sglang", lock=f"sglang==0.5.23{HASH}\ntorch==2.13.0\n", hash_exempt=("torch",))
# Not there: with its sha256 it need not be.
KERNELS = ArtifactRequest("/nowhere/fused_moe_90.so.xz", "0.6.11.post1", "1" * 64)


def id_of(request: Request = REQUEST, python: Interpreter = PYTHON, tree: TreeState | None = None) -> str:
    return core.environment_id(core.identity(request, python, tree))


def test_id_is_twelve_hex_digits_and_stable() -> None:
    assert len(id_of()) == 12
    assert int(id_of(), 16) >= 0
    assert id_of() == id_of(replace(REQUEST))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "tools"},
        {"lock": REQUEST.lock + "# a comment counts: the bytes do\n"},
        {"lock_no_deps": f"timm==1{HASH}\n"},
        {"overlay": {"a.py": OverlayFile(b"")}},
        {"source": Source("wheelhouse", "/w")},
        {"source": Source("wheelhouse", "/v")},
        {"expect": {"sglang": "0.5.12"}, "autotune_backend": "flashinfer_cutlass"},
        {"expect": {"sglang": "0.5.12"}, "autotune_backend": "flashinfer_trtllm_routed"},
        {"jit_artifacts": (KERNELS,)},
        {"hash_exempt": ()},
        {"torch_build": "cpu"},
    ],
    ids=str,
)
def test_what_decides_the_content_changes_the_id(change: dict[str, Any]) -> None:
    assert id_of(replace(REQUEST, **change)) != id_of()


@pytest.mark.parametrize(
    "change",
    [
        {"root": "/other"},
        {"uv": "/x/uv"},
        {"uv_cache": "/c"},
        {"index_url": "https://i"},
        {"inherit_pip": False},
        {"min_free_bytes": 5},
        {"hash_exempt": ("Torch",)},
        {"expect": {"sglang": "0.5.23"}},
    ],
    ids=str,
)
def test_what_does_not_decide_the_content_leaves_the_id(change: dict[str, Any]) -> None:
    assert id_of(replace(REQUEST, **change)) == id_of()


def test_the_interpreters_minor_version_and_platform_change_the_id_and_its_path_and_patch_do_not() -> None:
    assert id_of(python=replace(PYTHON, path="/opt/python3", version="3.11.9")) == id_of()
    others = [
        replace(PYTHON, version="3.12.1"),
        replace(PYTHON, abiflags="t"),
        replace(PYTHON, platform="linux-aarch64"),
    ]
    assert len({id_of(), *(id_of(python=other) for other in others)}) == 4


def test_every_state_of_a_tree_is_another_id() -> None:
    request = replace(REQUEST, source=Source("checkout", "/src"))
    states = [TreeState("c1", None), TreeState("c2", None), TreeState("c1", "d1"), TreeState(None, "d1")]
    assert len({id_of(request, tree=state) for state in states}) == 4


@pytest.mark.parametrize(
    ("wanted", "torch", "problem"),
    [
        ("any", None, None),
        ("any", Torch("2.13.0+cpu", None), None),
        ("cpu", Torch("2.13.0+cpu", None), None),
        ("cuda13", Torch("2.14.1", "13.0"), None),
        ("cuda13", Torch("2.13.0+cpu", None), "torch 2.13.0+cpu is installed and is a CPU build"),
        ("cuda13", Torch("2.11.0+cu128", "12.8"), "torch 2.11.0+cu128 is installed and is built for CUDA 12.8"),
        ("cpu", Torch("2.13.0", "13.0"), "torch 2.13.0 is installed and is built for CUDA 13.0"),
        ("cuda13", None, "torch is not installed"),
    ],
)
def test_torch_problem_names_the_wanted_and_the_installed_build(
    wanted: str, torch: Torch | None, problem: str | None
) -> None:
    found = core.torch_problem(wanted, torch)
    if problem is None:
        assert found is None
    else:
        assert found is not None
        assert f"a {wanted} build of torch was asked" in found
        assert problem in found


def problems(request: Request = REQUEST, in_place: set[str] | None = None, **versions: str) -> list[str]:
    installed = {"sglang": "0.5.23", "torch": "2.13.0+cpu", **{k.replace("_", "-"): v for k, v in versions.items()}}
    return core.version_problems(request, installed, Torch("2.13.0+cpu", None), in_place or set())


def test_a_silent_downgrade_is_a_problem() -> None:
    assert problems(sglang="0.5.9") == ["sglang 0.5.23 was asked, 0.5.9 is installed"]
    expecting = replace(REQUEST, lock=f"a==1{HASH}\n", expect={"sglang": "0.5.23"})
    assert problems(expecting, sglang="0.5.9", a="1") == ["sglang 0.5.23 was expected, 0.5.9 is installed"]
    assert problems(replace(expecting, expect={"SGLang_Kernel": "1"}), a="1") == [
        "sglang-kernel 1 was expected, none is installed"
    ]


def test_a_checkout_is_held_against_its_own_version_and_not_the_locks() -> None:
    asked = replace(REQUEST, expect={"sglang": "0.5.23"}, source=Source("checkout", "/src"))
    assert problems(asked, {"sglang"}, sglang="0.5.24.dev7+g1234") == []
    pinned = replace(asked, source=Source("checkout", "/src", version="0.5.24"))
    assert problems(pinned, {"sglang"}, sglang="0.5.25") == ["sglang 0.5.24 was expected, 0.5.25 is installed"]


def test_the_second_lock_is_held_against_too() -> None:
    asked = replace(REQUEST, lock_no_deps=f"timm==1.0.25{HASH}\n")
    assert problems(asked) == ["timm 1.0.25 was asked, none is installed"]


def test_flashinfers_parts_must_be_of_one_release() -> None:
    parts = {"flashinfer_python": "0.6.12", "flashinfer_cubin": "0.6.11"}
    assert problems(**parts) == ["FlashInfer's parts differ: flashinfer-python 0.6.12, flashinfer-cubin 0.6.11"]
    assert problems(flashinfer_python="0.6.12", flashinfer_cubin="0.6.12", flashinfer_jit_cache="0.6.12+cu130") == []


def test_pip_refuses_exempt_hashes_since_it_takes_all_or_none() -> None:
    with pytest.raises(InstallError, match="use uv"):
        core.check_locks(replace(REQUEST, installer="pip"))


def test_a_bare_pin_in_either_lock_is_refused() -> None:
    with pytest.raises(InstallError, match="reading the lock lock: no hash for torch"):
        core.check_locks(replace(REQUEST, hash_exempt=()))
    with pytest.raises(InstallError, match="reading the lock lock_no_deps: no hash for timm"):
        core.check_locks(replace(REQUEST, lock_no_deps="timm==1\n"))


def test_kernels_change_the_id_by_what_they_are_and_not_by_order_or_place() -> None:
    other = ArtifactRequest("/nowhere/norm.so", "0.6.11.post1", "2" * 64)
    both = id_of(replace(REQUEST, jit_artifacts=(KERNELS, other)))
    assert both == id_of(replace(REQUEST, jit_artifacts=(other, KERNELS)))
    moved = replace(KERNELS, path="/elsewhere/fused_moe_90.so.xz")
    assert both == id_of(replace(REQUEST, jit_artifacts=(moved, other)))
    for another in (replace(KERNELS, sha256="3" * 64), replace(KERNELS, flashinfer="0.6.12")):
        assert both != id_of(replace(REQUEST, jit_artifacts=(another, other)))
