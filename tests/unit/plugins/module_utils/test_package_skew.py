# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of one environment that must fit together."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import package_skew, site_packages
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.package_skew import Overlap, Packages, Request

LOCKS = Path(__file__).parents[4] / "roles/sglang_install/files/locks"
CUDA13 = Request(cuda_major=13)


def site(venv: Path) -> Path:
    path = venv / "lib" / "python3.11" / "site-packages"
    path.mkdir(parents=True, exist_ok=True)
    return path


def install(
    venv: Path, name: str, version: str, files: Mapping[str, bytes] | None = None, requires: Sequence[str] = ()
) -> None:
    """One distribution as an installer leaves it; files replace those of others."""
    info = site(venv) / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    lines = "".join(f"Requires-Dist: {line}\n" for line in requires)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{lines}\nRequires-Dist: text\n"
    )
    record = []
    for path, content in (files or {}).items():
        target = site(venv) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        record.append(f"{path},sha256={digest},{len(content)}\n")
    (info / "RECORD").write_text("".join(record) + f"{info.name}/RECORD,,\n")


def torch(venv: Path, version: str, cuda: str | None) -> None:
    install(venv, "torch", version, {"torch/version.py": f"__version__ = {version!r}\ncuda = {cuda!r}\n".encode()})


def seen(venv: Path) -> Packages:
    found = package_skew.look(str(venv))
    assert found is not None
    return found


def of(**versions: str) -> Packages:
    return Packages({name.replace("_", "-"): version for name, version in versions.items()}, "/v")


def findings(packages: Packages, request: Request = CUDA13) -> list[tuple[str, str]]:
    return [(one.level, one.message) for one in package_skew.check(packages, request) if one.level != "ok"]


# --- looking ---


def test_versions_come_from_what_is_installed(tmp_path: Path) -> None:
    torch(tmp_path, "2.14.1", "13.0")
    install(tmp_path, "Flashinfer.Python", "0.7.2")
    install(tmp_path, "sglang", "0.5.23", requires=["transformers==5.19.0", "aiohttp", 'x>1 ; extra == "test"'])
    (site(tmp_path) / "~orch-2.0.dist-info").mkdir()
    (site(tmp_path) / "left_over-1.0.dist-info").mkdir()
    (site(tmp_path) / "sglang").mkdir()
    packages = seen(tmp_path)
    assert packages.versions == {"flashinfer-python": "0.7.2", "sglang": "0.5.23", "torch": "2.14.1"}
    assert packages.torch_cuda == "13.0"
    assert packages.requires == ("transformers==5.19.0", "aiohttp", 'x>1 ; extra == "test"')
    assert (packages.duplicates, packages.cutlass, packages.problem) == ({}, None, "")


@pytest.mark.parametrize("name", ["absent", "file", "empty", "nul\0"])
def test_no_environment_is_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    assert package_skew.look(str(tmp_path / name)) is None


def test_damaged_torch_is_told(tmp_path: Path) -> None:
    install(tmp_path, "torch", "2.14.1", {"torch/version.py": b"def"})
    [(level, message)] = findings(seen(tmp_path))
    assert level == "warn"
    assert "torch is damaged" in message


def test_lock_gives_the_first_pin_of_a_name() -> None:
    packages = package_skew.of_lock("a==1 ; python_version < '3.12'\na==2\nFlashinfer_Cubin==0.6.12\n", "lock")
    assert packages == Packages({"a": "1", "flashinfer-cubin": "0.6.12"}, "lock")
    with pytest.raises(InstallError):
        package_skew.of_lock("a>=1\n", "lock")


def test_our_own_locks_fit_but_for_the_old_parts_of_cutlass() -> None:
    newest = package_skew.of_lock((LOCKS / "cuda13-0.5.23.txt").read_text(encoding="utf-8"), "newest")
    [finding] = package_skew.check(newest, CUDA13)
    assert finding.level == "ok"
    assert "packages of newest fit together" in finding.message
    older = package_skew.of_lock((LOCKS / "cuda13-0.5.12.post1.txt").read_text(encoding="utf-8"), "older")
    [(level, message)] = findings(older)
    assert level == "warn"
    assert "nvidia-cutlass-dsl-libs-base 4.5.1 and nvidia-cutlass-dsl-libs-cu13 4.5.1" in message


# --- FlashInfer ---


def test_kernels_of_another_flashinfer_fail_with_both_versions() -> None:
    packages = of(flashinfer_python="0.6.12", flashinfer_cubin="0.6.11", flashinfer_jit_cache="0.6.12+cu130")
    [(level, message)] = findings(packages)
    assert level == "fail"
    assert message == (
        "flashinfer-python 0.6.12 is with flashinfer-cubin 0.6.11 in /v: FlashInfer refuses to be imported"
    )


def test_flashinfer_that_ignores_them_is_told_otherwise() -> None:
    packages = of(flashinfer_python="0.7.0", flashinfer_cubin="0.6.12", flashinfer_jit_cache="0.7.1+cu130")
    [(level, message)] = findings(packages)
    assert level == "fail"
    assert "flashinfer-cubin 0.6.12 and flashinfer-jit-cache 0.7.1+cu130" in message
    assert "ignores them, and downloads and compiles its kernels while the server starts" in message


def test_post_release_of_flashinfer_is_another_one() -> None:
    assert findings(of(flashinfer_python="0.6.11.post1", flashinfer_cubin="0.6.11"))
    assert findings(of(flashinfer_python="0.6.1", flashinfer_jit_cache="0.6.12+cu130"))


def test_disabled_version_check_warns() -> None:
    packages = of(flashinfer_python="0.6.12", flashinfer_cubin="0.6.11")
    [(level, message)] = findings(packages, Request(13, {"FLASHINFER_DISABLE_VERSION_CHECK": "1"}))
    assert level == "warn"
    assert "FLASHINFER_DISABLE_VERSION_CHECK is set" in message


def test_equal_parts_of_flashinfer_fit() -> None:
    assert not findings(of(flashinfer_python="0.6.12", flashinfer_cubin="0.6.12", flashinfer_jit_cache="0.6.12+cu130"))
    assert not findings(of(flashinfer_python="0.6.12+local", flashinfer_cubin="0.6.12"))
    assert not findings(of(flashinfer_cubin="0.6.12"))


# --- CUTLASS ---

BASE, CU13 = "nvidia-cutlass-dsl-libs-base", "nvidia-cutlass-dsl-libs-cu13"


def cutlass(venv: Path, first: Mapping[str, bytes], second: Mapping[str, bytes], version: str = "4.5.1") -> Packages:
    install(venv, BASE, version, first)
    install(venv, CU13, version, second)
    return seen(venv)


def test_pair_of_old_cutlass_parts_warns_with_their_versions() -> None:
    [(level, message)] = findings(of(nvidia_cutlass_dsl_libs_base="4.5.0", nvidia_cutlass_dsl_libs_cu13="4.5.0"))
    assert level == "warn"
    assert f"{BASE} 4.5.0 and {CU13} 4.5.0 write files of the same name" in message


def test_cutlass_parts_that_hold_no_common_file_fit() -> None:
    assert not findings(of(nvidia_cutlass_dsl_libs_base="4.6.0", nvidia_cutlass_dsl_libs_cu13="4.6.0"))
    [(level, message)] = findings(of(nvidia_cutlass_dsl_libs_base="4.6.0", nvidia_cutlass_dsl_libs_cu13="4.8.0"))
    assert level == "warn"
    assert "are of different releases" in message
    assert not findings(of(nvidia_cutlass_dsl_libs_base="4.5.0"))


def test_files_of_the_part_that_won_are_named(tmp_path: Path) -> None:
    packages = cutlass(
        tmp_path, {"c/a.py": b"1", "c/b.so": b"12", "c/same": b"s"}, {"c/a.py": b"2", "c/b.so": b"345", "c/same": b"s"}
    )
    assert packages.cutlass == Overlap(2, 0, 2)
    [(level, message)] = findings(packages)
    assert level == "warn"
    assert message.endswith(
        f"write 2 files of the same name with different content in {tmp_path}: those of {CU13} are there"
    )


def test_mix_of_both_parts_fails(tmp_path: Path) -> None:
    packages = cutlass(tmp_path, {"c/a.py": b"1", "c/b.so": b"12"}, {"c/a.py": b"2", "c/b.so": b"345"})
    (site(tmp_path) / "c/a.py").write_bytes(b"1")
    packages = seen(tmp_path)
    assert packages.cutlass == Overlap(2, 1, 1)
    [finding] = package_skew.check(packages, CUDA13)
    assert finding.level == "fail"
    assert "1 are of the first and 1 of the second" in finding.message
    assert finding.remedy.startswith(f"uv pip install --reinstall --no-deps {CU13}==4.5.1")


def test_changed_and_lost_files_are_nobodys(tmp_path: Path) -> None:
    cutlass(tmp_path, {"c/a.py": b"1", "c/b.py": b"1"}, {"c/a.py": b"2", "c/b.py": b"2"})
    (site(tmp_path) / "c/a.py").write_bytes(b"3")
    (site(tmp_path) / "c/b.py").unlink()
    packages = seen(tmp_path)
    assert packages.cutlass == Overlap(2, 0, 0)
    assert findings(packages)[0][1].endswith("those of neither are there")


def test_files_decide_over_versions(tmp_path: Path) -> None:
    packages = cutlass(tmp_path, {"c/a.py": b"1"}, {"d/a.py": b"2"})
    assert packages.cutlass == Overlap(0)
    assert not findings(packages)


def test_lost_record_leaves_the_versions_to_decide(tmp_path: Path) -> None:
    cutlass(tmp_path, {}, {})
    next(site(tmp_path).glob("*base*/RECORD")).unlink()
    packages = seen(tmp_path)
    assert packages.cutlass is None
    assert findings(packages)[0][0] == "warn"


def test_record_that_leads_out_of_the_environment_is_not_followed(tmp_path: Path) -> None:
    packages = cutlass(tmp_path, {"../../../out": b"1"}, {"../../../out": b"2"})
    assert packages.cutlass == Overlap(0)


# --- CUDA ---


def test_cpu_build_of_torch_on_a_cuda_lane_fails(tmp_path: Path) -> None:
    torch(tmp_path, "2.14.1+cpu", None)
    [(level, message)] = findings(seen(tmp_path))
    assert level == "fail"
    assert message == f"torch 2.14.1+cpu in {tmp_path} is a CPU build, and the lane is CUDA 13"
    assert not findings(seen(tmp_path), Request(None))


def test_cpu_build_of_torch_in_a_lock_fails() -> None:
    assert findings(of(torch="2.14.1+cpu"))[0][0] == "fail"
    assert not findings(of(torch="2.14.1"))


def test_torch_says_its_cuda_itself(tmp_path: Path) -> None:
    torch(tmp_path, "2.14.1+cu130", "12.9")
    [(level, message)] = findings(seen(tmp_path))
    assert level == "fail"
    assert "torch 2.14.1+cu130" in message
    assert "is built for CUDA 12.9, the lane is CUDA 13" in message
    assert not findings(seen(tmp_path), Request(12))


@pytest.mark.parametrize(
    "name", ["torch", "torchvision", "torchaudio", "sglang-kernel", "sgl-kernel", "flashinfer-jit-cache"]
)
def test_package_that_is_built_for_another_cuda_fails(name: str) -> None:
    [(level, message)] = findings(Packages({name: "1.0+cu129"}, "/v"))
    assert level == "fail"
    assert message == f"{name} 1.0+cu129 in /v is built for CUDA 12, the lane is CUDA 13"
    assert not findings(Packages({name: "1.0+cu130"}, "/v"))
    assert not findings(Packages({name: "1.0+cu130.torch2"}, "/v"))
    assert not findings(Packages({name: "1.0+cute"}, "/v"))


def test_libraries_of_two_cuda_versions_warn() -> None:
    [(level, message)] = findings(of(nvidia_nccl_cu12="2.27", nvidia_nccl_cu13="2.30"))
    assert level == "warn"
    assert message.startswith("nvidia-nccl-cu12 2.27 and nvidia-nccl-cu13 2.30 are both in /v")
    # These are made to lie side by side, and others are for one version only.
    assert not findings(
        of(nvidia_cutlass_dsl_libs_cu12="4.8.0", nvidia_cutlass_dsl_libs_cu13="4.8.0", nvidia_cudnn_cu12="9")
    )


# --- what SGLang asks for ---


def with_requirements(*lines: str, **versions: str) -> Packages:
    return Packages({"sglang": "0.5.23", **of(**versions).versions}, "/v", requires=lines)


def test_version_that_sglang_does_not_ask_for_fails_and_transformers_warns() -> None:
    packages = with_requirements(
        "transformers==5.19.0", "sglang-kernel==0.4.10", "flashinfer_python[cu13]==0.7.2", "aiohttp==9",
        transformers="5.20.0", sglang_kernel="0.4.9", flashinfer_python="0.7.1", aiohttp="1",
    )  # fmt: skip
    assert findings(packages) == [
        ("warn", "sglang 0.5.23 asks for transformers==5.19.0, and /v has 5.20.0"),
        ("fail", "sglang 0.5.23 asks for sglang-kernel==0.4.10, and /v has 0.4.9"),
        ("fail", "sglang 0.5.23 asks for flashinfer-python==0.7.2, and /v has 0.7.1"),
    ]


def test_missing_package_fails() -> None:
    assert findings(with_requirements("sglang-kernel==0.4.10")) == [
        ("fail", "sglang 0.5.23 asks for sglang-kernel==0.4.10, and /v has none")
    ]


def test_what_is_for_some_machines_only_or_no_requirement_is_passed_over() -> None:
    lines = ('torch==9 ; extra == "x"', "torch", "torch @ https://x/y.whl", "", "==", "torch>=nonsense", "\0")
    assert not findings(with_requirements(*lines, torch="2.14.1"))


def test_fitting_local_build_is_what_was_asked_for() -> None:
    assert not findings(with_requirements("torch==2.14.1", torch="2.14.1+cu130"))


def test_lane_without_cuda_leaves_out_what_a_gpu_needs() -> None:
    packages = with_requirements(
        "sglang-kernel==0.4.10", "torch==2.14.1", "transformers==5.19.0", torch="2.13.0+cpu", transformers="5.1"
    )
    assert findings(packages, Request(None)) == [
        ("warn", "sglang 0.5.23 asks for transformers==5.19.0, and /v has 5.1")
    ]


# --- more than one ---


def test_second_copy_fails_when_a_start_depends_on_it(tmp_path: Path) -> None:
    for version in ("0.6.11", "0.6.12"):
        install(tmp_path, "flashinfer-python", version)
        install(tmp_path, "attrs", version)
    packages = seen(tmp_path)
    assert packages.duplicates == {"attrs": ["0.6.11", "0.6.12"], "flashinfer-python": ["0.6.11", "0.6.12"]}
    assert [(level, message.split(" ")[0]) for level, message in findings(packages)] == [
        ("warn", "attrs"),
        ("fail", "flashinfer-python"),
    ]
    assert "0.6.11, 0.6.12; which one runs is chance" in findings(packages)[1][1]


def test_both_names_of_the_kernel_package_fail() -> None:
    [(level, message)] = findings(of(sgl_kernel="0.3.21", sglang_kernel="0.4.10"))
    assert level == "fail"
    assert "sglang-kernel 0.4.10 and sgl-kernel 0.3.21 are both in /v" in message


def test_every_remedy_says_how_to_build_anew() -> None:
    packages = of(
        flashinfer_python="0.6.12", flashinfer_cubin="0.6.11", torch="1+cpu", sgl_kernel="1", sglang_kernel="1"
    )
    assert all("remove /v and run again" in one.remedy for one in package_skew.check(packages, CUDA13))


def test_what_a_base_lacks_for_the_release_is_reinstalled(tmp_path: Path) -> None:
    install(tmp_path, "sglang", "0.5.12.post1", requires=("nvidia-cutlass-dsl==4.5.1",))
    below = tmp_path / "base"
    install(below, "nvidia-cutlass-dsl", "4.2.0")
    (site(tmp_path) / site_packages.BASE_FILE).write_text(f"{site(below)}\nimport site\n")
    marker = tmp_path / "environment.json"
    marker.write_text('{"base": {"taken": {"nvidia-cutlass-dsl": "4.2.0"}}}')

    [finding] = package_skew.check(seen(tmp_path), CUDA13)
    assert (finding.level, finding.remedy) == (
        "fail",
        "name nvidia-cutlass-dsl in reinstall of sglang_install_base and deploy again",
    )


@pytest.mark.parametrize("base", ["[]", "null", '{"taken": 3, "left_out": true}', '{"taken": ["a"]}'])
def test_a_record_that_says_nothing_of_a_base_is_none(tmp_path: Path, base: str) -> None:
    install(tmp_path, "sglang", "0.5.23")
    (tmp_path / "environment.json").write_text(f'{{"base": {base}}}')
    found = seen(tmp_path)
    assert (found.taken, found.changed, found.left_out) == ((), {}, ())


def test_a_distribution_with_metadata_of_another_kind_is_no_change(tmp_path: Path) -> None:
    """As Debian's Python packages have it."""
    install(tmp_path, "sglang", "0.5.23")
    below = tmp_path / "dist-packages"
    below.mkdir()
    (below / "numpy-1.26.4.egg-info").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.26.4\n")
    (site(tmp_path) / site_packages.BASE_FILE).write_text(f"{below}\n")
    (tmp_path / "environment.json").write_text('{"base": {"taken": {"numpy": "1.26.4"}}}')
    assert seen(tmp_path).changed == {}
    (tmp_path / "environment.json").write_text('{"base": {"taken": {"numpy": "1.26.5"}}}')
    assert seen(tmp_path).changed == {"numpy": ("1.26.5", "1.26.4")}
