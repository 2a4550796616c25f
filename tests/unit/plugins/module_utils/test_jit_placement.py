# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether kernels fit an environment, and where they are put."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from kernel_libraries import Elf, container, entry

from ansible_collections.tokforge.sglang.plugins.module_utils import jit_artifacts, jit_placement
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.jit_artifacts import Artifact, ArtifactRequest

VERSION = "0.6.11.post1"
# What decides in flashinfer/jit/env.py of 0.6.7.post3 and 0.6.11.post1.
ENV_0_6 = """
import pathlib
_package_root: pathlib.Path = pathlib.Path(__file__).resolve().parents[1]


def _get_aot_dir():
    if has_flashinfer_jit_cache():
        import flashinfer_jit_cache

        return pathlib.Path(flashinfer_jit_cache.get_jit_cache_dir())

    return _package_root / "data" / "aot"


FLASHINFER_AOT_DIR: pathlib.Path = _get_aot_dir()
"""
# And of 0.7.2.
ENV_0_7 = """
FLASHINFER_AOT_DIR: pathlib.Path = _package_root / "data" / "aot"
FLASHINFER_AOT_PROVIDERS = _get_aot_providers()
for name in ():
    pass
"""


def site_of(tmp_path: Path, env: str = ENV_0_6) -> Path:
    site = tmp_path / "lib" / "site-packages"
    (site / "flashinfer" / "jit").mkdir(parents=True)
    (site / "flashinfer" / "jit" / "env.py").write_text(env)
    return site


def artifact(tmp_path: Path, name: str = "fused_moe_90", elf: Elf | None = None, version: str = VERSION) -> Artifact:
    path = tmp_path / f"{name}.so"
    path.write_bytes((elf or Elf()).build())
    (tmp_path / "unpacked").mkdir(exist_ok=True)
    return jit_artifacts.unpack(ArtifactRequest(str(path), version), str(tmp_path / "unpacked"))


def test_what_fits_has_no_problems(tmp_path: Path) -> None:
    found = artifact(tmp_path)
    assert jit_placement.check([found], VERSION, 13, {(9, 0)}) == []
    assert jit_placement.check([found], "0.6.11.post1+cu130", 13, [(9, 0), (9, 0)]) == []
    assert jit_placement.check([], None, None, {(7, 0)}) == []


@pytest.mark.parametrize("capabilities", [None, set()])
def test_what_is_not_known_is_not_judged(tmp_path: Path, capabilities: set[tuple[int, int]] | None) -> None:
    assert jit_placement.check([artifact(tmp_path)], VERSION, None, capabilities) == []
    silent = artifact(tmp_path, "silent", Elf(needed=(), fatbin=None))
    assert jit_placement.check([silent], VERSION, 12, {(8, 0)}) == []


def test_everything_that_does_not_fit_is_said(tmp_path: Path) -> None:
    one = artifact(tmp_path)
    two = artifact(tmp_path, "gemm", Elf(fatbin=container(entry(2, 80), entry(1, 90, 0x100011))), version="0.7.2")
    start = f"checking the kernels {tmp_path}"
    assert jit_placement.check([one, two], "0.7.2", 12, [(12, 0), (7, 5), (10, 0)]) == [
        f"{start}/fused_moe_90.so: they were built for FlashInfer 0.6.11.post1, 0.7.2 is installed; give those of this "
        "version",
        f"{start}/fused_moe_90.so: fused_moe_90.so needs CUDA 13, torch is built for CUDA 12; give one that was built "
        "with CUDA 12",
        f"{start}/fused_moe_90.so: fused_moe_90.so has code for sm_90a and none for GPUs of compute capability 7.5, "
        "10.0, 12.0; give one that was built for them",
        f"{start}/gemm.so: gemm.so needs CUDA 13, torch is built for CUDA 12; give one that was built with CUDA 12",
        f"{start}/gemm.so: gemm.so has code for sm_80, compute_90a and none for GPUs of compute capability 7.5, 10.0, "
        "12.0; give one that was built for them",
    ]


def test_code_for_some_gpus_of_the_host_is_told_and_no_problem(tmp_path: Path) -> None:
    two = artifact(tmp_path, "gemm", Elf(fatbin=container(entry(2, 80), entry(1, 90, 0x100011))))
    assert jit_placement.check([two], VERSION, 13, [(12, 0), (8, 6), (10, 0)]) == []
    assert jit_placement.warnings([two], [(12, 0), (8, 6), (10, 0), (12, 0)]) == [
        f"the kernels {tmp_path}/gemm.so: gemm.so has code for sm_80, compute_90a and none for GPUs of compute "
        "capability 10.0, 12.0; a server on one of these fails where it needs them"
    ]
    assert jit_placement.warnings([two], [(8, 6)]) == jit_placement.warnings([two], []) == []
    assert jit_placement.warnings([two], [(12, 0)]) == []


def test_without_flashinfer_kernels_do_not_fit(tmp_path: Path) -> None:
    assert jit_placement.check([artifact(tmp_path)], None, 13, None) == [
        f"checking the kernels {tmp_path}/fused_moe_90.so: FlashInfer is not installed; leave the kernels out"
    ]


@pytest.mark.parametrize("env", [ENV_0_6, ENV_0_7, "FLASHINFER_AOT_DIR = _package_root / 'data' / 'aot'\n"])
def test_libraries_are_put_where_flashinfer_looks(tmp_path: Path, env: str) -> None:
    site = site_of(tmp_path, env)
    found = [artifact(tmp_path), artifact(tmp_path, "silent", Elf(needed=(), fatbin=None))]
    previous = os.umask(0o077)
    try:
        records = jit_placement.install(found, str(site))
    finally:
        os.umask(previous)
    assert records == [
        {
            "name": "fused_moe_90",
            "sha256": found[0].sha256,
            "size_bytes": len(Elf().build()),
            "cuda": 13,
            "architectures": ["sm_90a"],
        },
        {
            "name": "silent",
            "sha256": found[1].sha256,
            "size_bytes": os.path.getsize(tmp_path / "silent.so"),
            "cuda": None,
            "architectures": None,
        },
    ]
    place = site / "flashinfer" / "data" / "aot"
    assert jit_placement.aot_directory(str(site)) == str(place)
    assert (place / "fused_moe_90" / "fused_moe_90.so").read_bytes() == Elf().build()
    for path, mode in ((place, 0o755), (place / "silent", 0o755), (place / "silent" / "silent.so", 0o644)):
        assert stat.S_IMODE(path.stat().st_mode) == mode
    assert os.listdir(place / "silent") == ["silent.so"]
    assert os.listdir(tmp_path / "unpacked") == []


def test_a_hard_link_into_an_installers_cache_is_not_written_through(tmp_path: Path) -> None:
    site = site_of(tmp_path)
    cached = tmp_path / "cached.so"
    cached.write_bytes(b"of the wheel")
    target = site / "flashinfer" / "data" / "aot" / "fused_moe_90" / "fused_moe_90.so"
    target.parent.mkdir(parents=True)
    os.link(cached, target)
    jit_placement.install([artifact(tmp_path)], str(site))
    assert cached.read_bytes() == b"of the wheel"
    assert target.read_bytes() == Elf().build()


@pytest.mark.parametrize("kind", ["nothing", "file"])
def test_without_flashinfer_nothing_is_installed(tmp_path: Path, kind: str) -> None:
    site = tmp_path / "site-packages"
    site.mkdir()
    if kind == "file":
        (site / "flashinfer").write_text("")
    with pytest.raises(InstallError) as caught:
        jit_placement.install([artifact(tmp_path)], str(site))
    assert str(caught.value) == (
        f"installing kernels into {site}: FlashInfer is not installed there; leave the kernels out"
    )
    assert os.listdir(tmp_path / "unpacked") == ["fused_moe_90.so"]


@pytest.mark.parametrize("as_file", [False, True])
def test_with_flashinfers_own_cache_installed_only_a_flashinfer_that_looks_here_first_gets_kernels(
    tmp_path: Path, as_file: bool
) -> None:
    for env in (ENV_0_6, ENV_0_7):
        site = site_of(tmp_path / env[1:5].strip(), env)
        if as_file:
            (site / "flashinfer_jit_cache.py").write_text("")
        else:
            (site / "flashinfer_jit_cache").mkdir()
            (site / "flashinfer_jit_cache" / "__init__.py").write_text("raise SystemExit\n")
        if env == ENV_0_7:
            assert jit_placement.aot_directory(str(site)) == f"{site}/flashinfer/data/aot"
            continue
        with pytest.raises(InstallError) as caught:
            jit_placement.aot_directory(str(site))
        assert str(caught.value) == (
            f"installing kernels into {site}: the package flashinfer-jit-cache is installed, and this FlashInfer then "
            "looks for kernels only there; leave out that package or the kernels"
        )


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ("FLASHINFER_AOT_DIR = pathlib.Path('/x')\n", "pathlib.Path('/x')"),
        ("FLASHINFER_AOT_DIR: pathlib.Path\n", "None"),
        ("", "None"),
        ("OTHER = X.FLASHINFER_AOT_DIR = _package_root / 'data' / 'aot'\n", "None"),
        ("FLASHINFER_AOT_DIR = _get_aot_dir()\n", "another function"),
        (ENV_0_6.replace('return _package_root / "data" / "aot"', "return FLASHINFER_CACHE_DIR"), "another function"),
        (ENV_0_6.replace('return _package_root / "data" / "aot"', "return"), "another function"),
        (ENV_0_6.replace('return _package_root / "data" / "aot"', "pass"), "another function"),
        (ENV_0_6.replace("def _get_aot_dir", "def _get_other_dir"), "another function"),
    ],
)
def test_a_flashinfer_that_may_look_elsewhere_gets_no_kernels(tmp_path: Path, env: str, says: str) -> None:
    site = site_of(tmp_path, env)
    with pytest.raises(InstallError) as caught:
        jit_placement.aot_directory(str(site))
    assert str(caught.value) == (
        f"installing kernels into {site}: where this FlashInfer looks for them is not known, {site}/flashinfer/jit/"
        f"env.py says FLASHINFER_AOT_DIR = {says}; leave the kernels out"
    )


@pytest.mark.parametrize("text", ["def (", "x = '\0'", "(" * 5000])
def test_a_damaged_flashinfer_is_an_error(tmp_path: Path, text: str) -> None:
    site = site_of(tmp_path, text)
    with pytest.raises(InstallError, match=r"env\.py: .*; FlashInfer is damaged, remove the environment and run again"):
        jit_placement.aot_directory(str(site))


@pytest.mark.parametrize("linked", ["flashinfer/jit/env.py", "flashinfer/data", "flashinfer/data/aot/fused_moe_90"])
def test_nothing_is_written_through_a_link_into_what_others_share(tmp_path: Path, linked: str) -> None:
    site = site_of(tmp_path)
    shared = tmp_path / "cache" / "shared"
    path = site / linked
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        shared.parent.mkdir()
        path.rename(shared)
    else:
        shared.mkdir(parents=True)
    path.symlink_to(shared)
    with pytest.raises(InstallError) as caught:
        jit_placement.install([artifact(tmp_path)], str(site))
    led = f"{site}/flashinfer/data/aot" if linked == "flashinfer/data" else str(path)
    assert str(caught.value) == (
        f"installing kernels: {led} leads to {shared}{'/aot' if linked == 'flashinfer/data' else ''}, which other "
        "environments may share; install FlashInfer with copies or hard links"
    )
    assert shared.is_file() or os.listdir(shared) == []


def test_an_environment_may_be_reached_through_a_link(tmp_path: Path) -> None:
    site = site_of(tmp_path / "real")
    (tmp_path / "root").symlink_to(tmp_path / "real")
    jit_placement.install([artifact(tmp_path)], str(tmp_path / "root" / "lib" / "site-packages"))
    assert (site / "flashinfer" / "data" / "aot" / "fused_moe_90" / "fused_moe_90.so").exists()


def test_the_jit_cache_of_a_python_below_counts_as_the_environments_own(tmp_path: Path) -> None:
    site, below = site_of(tmp_path), tmp_path / "base"
    (below / "flashinfer_jit_cache").mkdir(parents=True)
    (below / "flashinfer_jit_cache" / "__init__.py").write_text("")
    assert jit_placement.aot_directory(str(site)) == f"{site}/flashinfer/data/aot"
    with pytest.raises(InstallError, match="the package flashinfer-jit-cache is installed"):
        jit_placement.install([artifact(tmp_path)], str(site), (str(below),))
