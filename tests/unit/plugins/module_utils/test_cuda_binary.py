# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a shared library says of the CUDA and the GPUs it is for."""

from __future__ import annotations

import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from kernel_libraries import SM_90A, A, Elf, F, container, entry

from ansible_collections.tokforge.sglang.plugins.module_utils import cuda_binary
from ansible_collections.tokforge.sglang.plugins.module_utils.cuda_binary import CUBIN, PTX, BinaryError, GpuCode


def read(tmp_path: Path, data: bytes) -> cuda_binary.CudaBinary:
    path = tmp_path / "x.so"
    path.write_bytes(data)
    return cuda_binary.read(str(path))


def names(code: tuple[GpuCode, ...] | None) -> list[str]:
    return [str(one) for one in code or ()]


def test_a_library_like_flashinfers_is_for_cuda_13_and_sm_90a(tmp_path: Path) -> None:
    found = read(tmp_path, Elf().build())
    assert found == cuda_binary.CudaBinary(13, (GpuCode(CUBIN, 9, 0, "a"),))
    assert names(found.code) == ["sm_90a"]


def test_every_architecture_counts_once_whatever_lies_between(tmp_path: Path) -> None:
    fatbin = container(entry(2, 120, F, size=40, header=112), entry(1, 90, A | 0x8000, header=80), entry(2, 80))
    # 64 is no kind that is known, such as code for linking.
    fatbin += container() + container(entry(2, 80, size=0), entry(64, 75), entry(1, 103))
    found = read(tmp_path, Elf(fatbin=fatbin).build())
    assert names(found.code) == ["sm_80", "sm_120f", "compute_90a", "compute_103"]


@pytest.mark.parametrize(
    ("needed", "cuda"),
    [
        (("libc.so.6", "libcudart.so.12"), 12),
        (("libcudart.so.11.0",), 11),
        (("libcuda.so.1", "libcudart.so", "xlibcudart.so.12", "libcudart.so.13x"), None),
        ((), None),
    ],
)
def test_the_cuda_major_is_that_of_the_runtime_it_loads(
    tmp_path: Path, needed: tuple[str, ...], cuda: int | None
) -> None:
    assert read(tmp_path, Elf(needed=needed).build()).cuda == cuda


@pytest.mark.parametrize(
    "fatbin",
    [
        pytest.param(None, id="no section"),
        pytest.param(b"", id="empty section"),
        pytest.param(b"\0" * 64, id="zeros"),
        pytest.param(container(), id="empty container"),
        pytest.param(container(entry(64, 90)), id="only a kind that is not known"),
        pytest.param(container()[:12], id="cut container"),
        pytest.param(SM_90A + b"\0" * 8, id="something behind"),
        pytest.param(SM_90A + b"\x51" + SM_90A[1:], id="another magic"),
        pytest.param(struct.pack("<IHHQ", 0xBA55ED50, 1, 8, 0) * 2, id="short header of a container"),
        pytest.param(container(entry(2, 90, header=40)), id="short header of an entry"),
        pytest.param(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 62) + entry(2, 90), id="container without end"),
        pytest.param(container(entry(2, 90)[:-4]), id="entry without end"),
        pytest.param(container(entry(2, 90)[:-4]) + SM_90A, id="entry into the next container"),
    ],
)
def test_gpu_code_that_cannot_be_read_is_not_known_and_no_error(tmp_path: Path, fatbin: bytes | None) -> None:
    assert read(tmp_path, Elf(fatbin=fatbin).build()) == cuda_binary.CudaBinary(13, None)


def test_a_library_without_names_of_sections_says_no_gpu_code(tmp_path: Path) -> None:
    assert read(tmp_path, Elf(names_section=4).build()).code is None


@pytest.mark.parametrize(
    ("elf", "why"),
    [
        (Elf(machine=183), "it is for aarch64, not for 64-bit x86"),
        (Elf(machine=2), "it is for machine 2 of elf(5), not for 64-bit x86"),
        (Elf(bits=1), "it is for machine 62 of elf(5), not for 64-bit x86"),
        (Elf(order=2), "it is for machine 62 of elf(5), not for 64-bit x86"),
        (Elf(kind=2), "it is no shared object"),
        (Elf(table_at=0), "it is cut off or damaged"),
        (Elf(table_at=1 << 40), "it is cut off or damaged"),
        (Elf(table_at=0x10), "it is cut off or damaged"),
        (Elf(dynamic_tags=[(1, 1 << 50)]), "it is cut off or damaged"),
    ],
)
def test_what_is_no_shared_library_for_this_machine_is_refused(tmp_path: Path, elf: Elf, why: str) -> None:
    with pytest.raises(BinaryError) as caught:
        read(tmp_path, elf.build())
    assert str(caught.value) == why


def test_a_text_and_an_empty_file_are_no_library(tmp_path: Path) -> None:
    with pytest.raises(BinaryError, match="it is no ELF file"):
        read(tmp_path, b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(BinaryError, match="it is empty"):
        read(tmp_path, b"")


def test_a_library_that_was_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    data = Elf().build()
    for length in range(4, len(data)):
        with pytest.raises(BinaryError, match="it is cut off or damaged"):
            read(tmp_path, data[:length])


def test_segments_and_gpu_code_that_would_lie_behind_the_end_are_refused(tmp_path: Path) -> None:
    data = bytearray(Elf().build())
    for layout, place, value in (
        # Where the segments are, the size of the dynamic one, and the size of section .nv_fatbin.
        ("<Q", 32, len(data) - 8),
        ("<Q", 64 + 32, 1 << 40),
        ("<Q", len(data) - 2 * 64 + 32, 1 << 40),
    ):
        damaged = bytearray(data)
        struct.pack_into(layout, damaged, place, value)
        with pytest.raises(BinaryError, match="it is cut off or damaged"):
            read(tmp_path, bytes(damaged))


def test_a_library_without_a_dynamic_end_is_read_to_its_end(tmp_path: Path) -> None:
    data = bytearray(Elf(needed=()).build())
    # One segment only, the dynamic one, cut before its last tag.
    size = struct.unpack_from("<Q", data, 64 + 32)[0]
    struct.pack_into("<Q", data, 64 + 32, size - 32)
    struct.pack_into("<I", data, 64 + 56, 4)
    assert read(tmp_path, bytes(data)).cuda is None


@pytest.mark.parametrize(
    ("code", "runs", "not_on"),
    [
        (GpuCode(CUBIN, 8, 0), [(8, 0), (8, 6), (8, 9)], [(7, 5), (9, 0)]),
        (GpuCode(CUBIN, 8, 6), [(8, 6), (8, 9)], [(8, 0)]),
        (GpuCode(CUBIN, 9, 0, "a"), [(9, 0)], [(9, 1), (10, 0), (8, 9)]),
        (GpuCode(CUBIN, 10, 0, "f"), [(10, 0), (10, 3)], [(11, 0), (12, 0), (9, 0)]),
        (GpuCode(CUBIN, 12, 0, "a"), [(12, 0)], [(12, 1)]),
        (GpuCode(PTX, 8, 0), [(8, 0), (8, 6), (9, 0), (12, 1)], [(7, 5)]),
        (GpuCode(PTX, 9, 0, "a"), [(9, 0)], [(10, 0), (9, 1)]),
        (GpuCode(PTX, 10, 3, "f"), [(10, 3)], [(10, 0), (12, 0)]),
    ],
)
def test_which_gpus_run_which_code(code: GpuCode, runs: list[tuple[int, int]], not_on: list[tuple[int, int]]) -> None:
    assert [one for one in runs + not_on if code.runs_on(one)] == runs


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_a_library_that_gcc_linked_is_read(tmp_path: Path) -> None:
    (tmp_path / "cudart.c").write_text("int runtime(void) { return 0; }\n")
    fatbin = ",".join(str(byte) for byte in SM_90A)
    (tmp_path / "own.c").write_text(
        "int runtime(void);\nint own(void) { return runtime(); }\n"
        f'__attribute__((section(".nv_fatbin"), used)) static const unsigned char code[] = {{{fatbin}}};\n'
    )
    for command in (
        ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcudart.so.13", "cudart.c", "-o", "libcudart.so.13"],
        ["gcc", "-shared", "-fPIC", "own.c", "./libcudart.so.13", "-o", "own.so"],
    ):
        subprocess.run(command, cwd=tmp_path, check=True)
    assert cuda_binary.read(str(tmp_path / "own.so")) == cuda_binary.CudaBinary(13, (GpuCode(CUBIN, 9, 0, "a"),))
    # Nothing is lost with the names and the symbols.
    subprocess.run(["strip", "own.so"], cwd=tmp_path, check=True)
    assert cuda_binary.read(str(tmp_path / "own.so")).code == (GpuCode(CUBIN, 9, 0, "a"),)
    assert cuda_binary.read(str(tmp_path / "libcudart.so.13")) == cuda_binary.CudaBinary(None, None)


def test_reading_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    data = replace(Elf(), needed=()).build()
    read(tmp_path, data)
    assert (tmp_path / "x.so").read_bytes() == data
