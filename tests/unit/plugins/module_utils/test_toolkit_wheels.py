# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A toolkit out of wheels: layout, modes, names for the linker, the stub; nothing is half done or overwritten."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import cuda_toolkit, toolkit_wheels
from ansible_collections.tokforge.sglang.plugins.module_utils.toolkit_wheels import Places, Wheel, WheelError

CUDA_H = """
#define cuMemAlloc                          cuMemAlloc_v2
#define cuUnrelated                         cuSomething_v9
    #define cuMemcpyAsync                       __CUDA_API_PTSZ(cuMemcpyAsync_v2)
CUresult CUDAAPI cuInit(unsigned int Flags);
CUresult CUDAAPI cuMemAlloc(CUdeviceptr *dptr, size_t bytesize);
CUresult CUDAAPI
  cuMemcpyAsync (CUdeviceptr dst);
typedef CUresult (CUDAAPI *PFN)(int);
"""
NVCC = "#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n"

FILES = {
    "nvcc": {
        "nvidia/cu13/bin/nvcc": NVCC,
        "nvidia/cu13/include/cuda.h": CUDA_H,
        "nvidia/cu13/include/cuda_runtime_api.h": "#define CUDART_VERSION  13000\n",
        **{f"nvidia/cu13/include/{name}": "" for name in cuda_toolkit.HEADERS},
        "nvidia/cu13/.metadata/provenance.txt": "x",
        "nvidia/cu13/../../../escaped": "x",
        "other/file": "x",
        "made_nvcc-1.0.dist-info/licenses/License.txt": "EULA",
    },
    "libs": {
        "nvidia/cu13/lib/libcudart.so.13": "x",
        "nvidia/cu13/lib/libnvrtc.so.13": "x",
        "nvidia/cu13/lib/libnvrtc.alt.so.13": "x",
        "nvidia/cu13/lib/libnvrtc-builtins.so.13.0": "x",
        "nvidia/cu13/lib/libcudadevrt.a": "x",
    },
}


def wheel(folder: Path, name: str, files: dict[str, str]) -> Wheel:
    """Write a wheel; gives what the data would say of it."""
    folder.mkdir(exist_ok=True)
    path = folder / f"made_{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            entry = zipfile.ZipInfo(inside)
            entry.external_attr = (0o100744 if "/bin/" in inside else 0o100600) << 16
            archive.writestr(entry, text)
        archive.writestr(
            f"made_{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: made-{name}\nVersion: 1.0\n"
        )
        archive.writestr(f"made_{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    return Wheel(f"made-{name}", "1.0", {os.uname().machine: hashlib.sha256(path.read_bytes()).hexdigest()})


@pytest.fixture
def house(tmp_path: Path) -> Path:
    return tmp_path / "wheels"


@pytest.fixture
def wheels(house: Path) -> list[Wheel]:
    return [wheel(house, name, files) for name, files in FILES.items()]


@pytest.fixture
def places(house: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setattr(toolkit_wheels, "NEEDED_BYTES", 1)
    return Places(wheelhouse=str(house), environ=dict(os.environ))


@pytest.fixture
def copied(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of pip, which takes seconds."""
    monkeypatch.setattr(toolkit_wheels, "download", lambda folder, *_rest: shutil.copytree(house, folder))


def test_layout_is_that_of_the_packages(house: Path, wheels: list[Wheel], tmp_path: Path) -> None:
    home = tmp_path / "home"
    toolkit_wheels.assemble(str(home), str(house), wheels)
    below = {str(path.relative_to(home)) for path in home.rglob("*")}
    assert below == {
        "bin",
        "bin/nvcc",
        "include",
        *(f"include/{name}" for name in ("cuda.h", "cuda_runtime_api.h", *cuda_toolkit.HEADERS)),
        "lib",
        "lib64",
        *(f"lib64/{name}" for name in ("libcudart.so.13", "libcudart.so", "libnvrtc.so.13", "libnvrtc.so")),
        *(f"lib64/libnvrtc-builtins.{name}" for name in ("so", "so.13.0")),
        "lib64/libnvrtc.alt.so.13",
        "lib64/libcudadevrt.a",
        "lib64/stubs",
        "lib64/stubs/libcuda.so",
        "licenses",
        "licenses/made-nvcc.txt",
    }
    assert os.readlink(home / "lib64/libcudart.so") == "libcudart.so.13"
    assert os.readlink(home / "lib64/libnvrtc.so") == "libnvrtc.so.13"
    assert os.readlink(home / "lib") == "lib64"
    assert (home / "bin/nvcc").stat().st_mode & 0o777 == 0o755  # in the wheel only its owner may
    assert (home / "include/cuda.h").stat().st_mode & 0o777 == 0o644
    assert not list(tmp_path.rglob("escaped"))


def test_stub_has_the_drivers_name_and_its_functions(house: Path, wheels: list[Wheel], tmp_path: Path) -> None:
    home = tmp_path / "home"
    toolkit_wheels.assemble(str(home), str(house), wheels)
    stub = home / "lib64/stubs/libcuda.so"
    dynamic = subprocess.run(["readelf", "-d", stub], capture_output=True, text=True, check=True).stdout
    assert "soname: [libcuda.so.1]" in dynamic
    symbols = subprocess.run(["nm", "-D", "--defined-only", stub], capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"\b(cu\w+)$", symbols, re.MULTILINE)) == {
        "cuInit",
        "cuMemAlloc",
        "cuMemAlloc_v2",
        "cuMemcpyAsync",
        "cuMemcpyAsync_v2",
        "cuMemcpyAsync_v2_ptsz",
    }


def test_host_without_a_compiler_says_what_to_install(
    house: Path, wheels: list[Wheel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WheelError, match=r"no C compiler, and nvcc needs one too; apt-get install g\+\+"):
        toolkit_wheels.assemble(str(tmp_path / "home"), str(house), wheels)


def test_wheel_of_another_machine_or_content_is_refused(house: Path, wheels: list[Wheel], tmp_path: Path) -> None:
    with pytest.raises(WheelError, match=r"made-nvcc 1.0 for riscv64 is not among them"):
        toolkit_wheels.assemble(str(tmp_path / "a"), str(house), wheels, machine="riscv64")
    with (house / "made_libs-1.0-py3-none-any.whl").open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(WheelError, match=r"made-libs 1.0"):
        toolkit_wheels.assemble(str(tmp_path / "b"), str(house), wheels)


@pytest.mark.usefixtures("copied")
def test_build_is_whole_and_a_second_one_does_nothing(tmp_path: Path, wheels: list[Wheel], places: Places) -> None:
    home = str(tmp_path / "opt/13.0")
    assert not toolkit_wheels.complete(home, (13, 0), wheels)
    toolkit_wheels.build(home, (13, 0), wheels, places)
    assert toolkit_wheels.complete(home, (13, 0), wheels)
    assert sorted(os.listdir(tmp_path / "opt")) == [".lock", "13.0"]
    inode = os.stat(home).st_ino
    toolkit_wheels.build(home, (13, 0), wheels, places)
    assert os.stat(home).st_ino == inode


@pytest.mark.usefixtures("copied")
def test_damaged_or_older_toolkit_of_ours_is_built_anew(tmp_path: Path, wheels: list[Wheel], places: Places) -> None:
    home = tmp_path / "opt/13.0"
    toolkit_wheels.build(str(home), (13, 0), wheels, places)
    (home / "include/nvrtc.h").unlink()
    assert not toolkit_wheels.complete(str(home), (13, 0), wheels)
    toolkit_wheels.build(str(home), (13, 0), wheels, places)
    assert toolkit_wheels.complete(str(home), (13, 0), wheels)
    assert not toolkit_wheels.complete(str(home), (13, 0), wheels[:1])


@pytest.mark.usefixtures("copied")
def test_directory_of_somebody_else_is_neither_replaced_nor_removed(
    tmp_path: Path, wheels: list[Wheel], places: Places
) -> None:
    home = tmp_path / "opt/13.0"
    home.mkdir(parents=True)
    (home / "mine").touch()
    with pytest.raises(WheelError, match="something is there that is not this role's"):
        toolkit_wheels.build(str(home), (13, 0), wheels, places)
    with pytest.raises(WheelError, match="it is not this role's"):
        toolkit_wheels.remove(str(home))
    assert (home / "mine").exists()


@pytest.mark.usefixtures("copied")
def test_toolkit_that_does_not_work_leaves_nothing(tmp_path: Path, house: Path, places: Places) -> None:
    broken = {**FILES["nvcc"], "nvidia/cu13/bin/nvcc": "#!/bin/sh\nexit 1\n"}
    wheels = [wheel(house, "nvcc", broken), wheel(house, "libs", FILES["libs"])]
    with pytest.raises(WheelError, match="nvcc cannot be run"):
        toolkit_wheels.build(str(tmp_path / "opt/13.0"), (13, 0), wheels, places)
    assert os.listdir(tmp_path / "opt") == [".lock"]


@pytest.mark.usefixtures("copied")
def test_old_build_stays_until_the_new_one_works(tmp_path: Path, house: Path, places: Places) -> None:
    wheels = [wheel(house, name, files) for name, files in FILES.items()]
    home = tmp_path / "opt/13.0"
    toolkit_wheels.build(str(home), (13, 0), wheels, places)
    newer = [wheels[0], Wheel("made-libs", "2.0", {})]
    with pytest.raises(WheelError, match=r"made-libs 2.0"):
        toolkit_wheels.build(str(home), (13, 0), newer, places)
    assert toolkit_wheels.complete(str(home), (13, 0), wheels)


@pytest.mark.usefixtures("copied")
def test_removal_takes_the_directory_around_it_only_when_it_is_empty(
    tmp_path: Path, wheels: list[Wheel], places: Places
) -> None:
    first, second = str(tmp_path / "opt/13.0"), str(tmp_path / "opt/13.1")
    toolkit_wheels.build(first, (13, 0), wheels, places)
    toolkit_wheels.build(second, (13, 0), wheels, places)
    toolkit_wheels.remove(first)
    assert sorted(os.listdir(tmp_path / "opt")) == [".lock", "13.1"]
    toolkit_wheels.remove(second)
    assert not (tmp_path / "opt").exists()
    toolkit_wheels.remove(second)


def test_too_little_room_is_said_before_the_download(tmp_path: Path, wheels: list[Wheel]) -> None:
    def full(_path: str) -> object:
        return shutil._ntuple_diskusage(10**12, 10**12, 10**9)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shutil, "disk_usage", full)
        with pytest.raises(WheelError, match=r"1.0 GB are free there, and 2.4 GB are needed"):
            toolkit_wheels.build(str(tmp_path / "opt/13.0"), (13, 0), wheels, Places())


def test_pip_that_finds_no_wheel_or_another_hash_says_so(tmp_path: Path, house: Path, wheels: list[Wheel]) -> None:
    places = Places(wheelhouse=str(house), environ=dict(os.environ))
    toolkit_wheels.download(str(tmp_path / "got"), wheels, places, str(tmp_path))
    assert len(os.listdir(tmp_path / "got")) == 2
    wrong = [Wheel(one.name, one.version, {"x86_64": "0" * 64}) for one in wheels]
    with pytest.raises(WheelError, match=r"(?s)pip ended with 1: .*(HASH|hash)"):
        toolkit_wheels.download(str(tmp_path / "not"), wrong, places, str(tmp_path))


def test_pins_are_exact_and_whole() -> None:
    for version, wheels in toolkit_wheels.WHEELS.items():
        assert len({one.name for one in wheels}) == len(wheels)
        compiler = next(one for one in wheels if one.name == "nvidia-cuda-nvcc")
        assert compiler.version.startswith(f"{version[0]}.{version[1]}.")
        for one in wheels:
            assert set(one.sha256) == {"x86_64", "aarch64"}
            assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in one.sha256.values())


@pytest.mark.usefixtures("copied")
def test_what_a_killed_run_left_goes_with_the_next_build_and_with_the_toolkit(
    tmp_path: Path, wheels: list[Wheel], places: Places
) -> None:
    home, other = tmp_path / "opt/13.0", tmp_path / "opt/.new-of-somebody"
    for left in (tmp_path / "opt/.tokforge-new-ab/wheels", other):
        left.mkdir(parents=True)
    toolkit_wheels.build(str(home), (13, 0), wheels, places)
    assert sorted(os.listdir(tmp_path / "opt")) == [".lock", ".new-of-somebody", "13.0"]
    (tmp_path / "opt/.tokforge-old-cd/home").mkdir(parents=True)
    assert toolkit_wheels.leftovers(str(home)) == [str(tmp_path / "opt/.tokforge-old-cd")]
    toolkit_wheels.remove(str(home))
    assert sorted(os.listdir(tmp_path / "opt")) == [".lock", ".new-of-somebody"]
    other.rmdir()
    # Killed before the first one was there.
    (tmp_path / "opt/.tokforge-new-ef").mkdir()
    toolkit_wheels.remove(str(home))
    assert not (tmp_path / "opt").exists()
