# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CUDA a shared library needs and which GPUs its code is for, read from its bytes and without loading it.

ELF is as in elf(5). The GPU code lies in section .nv_fatbin, container after container. NVIDIA documents neither
container nor entry. The offsets were read from what nvcc 13.0.88 writes for known architectures, compressed and not,
and from a library of FlashInfer 0.6.11.post1 that nvcc 13.0 built for sm_90a:

    container  u32 magic, u16 version, u16 header size, u64 size of the entries that follow
    entry      u16 kind, u16 version, u32 header size, u64 size of the code, ..., at 28 u32 architecture (90, 120),
               at 40 u64 flags, of which two bits are the architecture's suffix
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

CUBIN, PTX = "cubin", "ptx"
_ELF = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_DYNAMIC = struct.Struct("<QQ")
_CONTAINER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ12xI8xQ")
_CLASS_64, _LITTLE_ENDIAN, _SHARED_OBJECT, _X86_64 = 2, 1, 3, 62
_MACHINES = {3: "32-bit x86", 183: "aarch64", 243: "RISC-V"}
_LOAD, _DYNAMIC_SEGMENT, _NO_BITS = 1, 2, 8
_NEEDED, _STRING_TABLE = 1, 5
_FATBIN_MAGIC = 0xBA55ED50
_KINDS = {1: PTX, 2: CUBIN}
_SUFFIXES = {0x100000: "a", 0x200000: "f"}
_LONGEST_NAME = 4096


class BinaryError(ValueError):
    """Why a file is no library that can be used, in words that follow `<file>: `."""


@dataclass(frozen=True)
class GpuCode:
    """Code for one architecture: `cubin` is machine code, `ptx` is compiled by the driver.

    `suffix` is `a` for code of one very architecture, `f` for one of its family, empty for code of any later one.
    """

    kind: str
    major: int
    minor: int
    suffix: str = ""

    def __str__(self) -> str:
        return f"{'sm' if self.kind == CUBIN else 'compute'}_{self.major}{self.minor}{self.suffix}"

    def runs_on(self, capability: tuple[int, int]) -> bool:
        """Whether a GPU of this compute capability runs it (CUDA C++ Programming Guide, Application Compatibility)."""
        own = (self.major, self.minor)
        if self.suffix == "a":
            return capability == own
        if self.kind == CUBIN or self.suffix == "f":
            return capability[0] == self.major and capability[1] >= self.minor
        return capability >= own


@dataclass(frozen=True)
class CudaBinary:
    """`cuda` is the major version of libcudart that the library loads, None when it loads none. `code` is what it has
    for GPUs, each architecture once; None when it has none that can be read, which says nothing about where it runs.
    """

    cuda: int | None
    code: tuple[GpuCode, ...] | None


def read(path: str) -> CudaBinary:
    """What the shared library at `path` is for.

    Raises BinaryError when it is not a complete one for 64-bit x86, OSError when it cannot be read.
    """
    with open(path, "rb") as stream:
        try:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise BinaryError("it is empty") from error
        with data:
            header = _header(data)
            needed = _needed(data, header)
            fatbin = _fatbin_section(data, header)
            code = _gpu_code(data, *fatbin) if fatbin else None
    majors = [
        int(match[1]) for match in (re.fullmatch(r"libcudart\.so\.(\d+)(?:\..*)?", name) for name in needed) if match
    ]
    return CudaBinary(majors[0] if majors else None, code)


def _fields(layout: struct.Struct, data: mmap.mmap, offset: int) -> tuple[int, ...]:
    if offset + layout.size > len(data):
        raise BinaryError("it is cut off or damaged")
    return layout.unpack_from(data, offset)


def _text(data: mmap.mmap, offset: int) -> str:
    end = data.find(b"\0", offset, offset + _LONGEST_NAME) if offset < len(data) else -1
    if end < 0:
        raise BinaryError("it is cut off or damaged")
    return data[offset:end].decode(errors="replace")


@dataclass(frozen=True)
class _Header:
    """Where the segments and sections of an ELF file are: offsets in bytes, and how many."""

    segments: int
    segment_count: int
    sections: int
    section_count: int
    names_section: int


def _header(data: mmap.mmap) -> _Header:
    if data[:4] != b"\x7fELF":
        raise BinaryError("it is no ELF file")
    if len(data) < _ELF.size:
        raise BinaryError("it is cut off or damaged")
    ident, kind, machine, _v, _entry, segments, sections, _f, _size, _ps, segment_count, _ss, section_count, names = (
        _ELF.unpack_from(data, 0)
    )
    if machine != _X86_64 or ident[4] != _CLASS_64 or ident[5] != _LITTLE_ENDIAN:
        raise BinaryError(f"it is for {_MACHINES.get(machine, f'machine {machine} of elf(5)')}, not for 64-bit x86")
    if kind != _SHARED_OBJECT:
        raise BinaryError("it is no shared object")
    if sections + section_count * _SECTION.size > len(data):
        raise BinaryError("it is cut off or damaged")
    return _Header(segments, segment_count, sections, section_count, names)


def _needed(data: mmap.mmap, header: _Header) -> list[str]:
    """The libraries it loads (DT_NEEDED). Found through the segments, as the dynamic linker does."""
    loads: list[tuple[int, int, int]] = []
    dynamic: list[tuple[int, int]] = []
    for number in range(header.segment_count):
        kind, _flags, offset, address, _physical, size, _memory, _align = _fields(
            _SEGMENT, data, header.segments + number * _SEGMENT.size
        )
        if kind in (_LOAD, _DYNAMIC_SEGMENT) and offset + size > len(data):
            raise BinaryError("it is cut off or damaged")
        if kind == _LOAD:
            loads.append((address, offset, size))
        elif kind == _DYNAMIC_SEGMENT:
            dynamic.append((offset, size))
    names: list[int] = []
    table = None
    for start, size in dynamic:
        for offset in range(start, start + size, _DYNAMIC.size):
            tag, value = _fields(_DYNAMIC, data, offset)
            if tag == 0:
                break
            if tag == _NEEDED:
                names.append(value)
            elif tag == _STRING_TABLE:
                table = value
    if not names:
        return []
    places = [table - address + offset for address, offset, size in loads if table and 0 <= table - address < size]
    if not places:
        raise BinaryError("it is cut off or damaged")
    return [_text(data, places[0] + name) for name in names]


def _fatbin_section(data: mmap.mmap, header: _Header) -> tuple[int, int] | None:
    """Where the GPU code begins and ends."""
    if header.names_section >= header.section_count:
        return None
    sections = [
        _fields(_SECTION, data, header.sections + number * _SECTION.size) for number in range(header.section_count)
    ]
    names = sections[header.names_section][4]
    for name, kind, _flags, _address, offset, size, *_rest in sections:
        if kind != _NO_BITS and size and _text(data, names + name) == ".nv_fatbin":
            if offset + size > len(data):
                raise BinaryError("it is cut off or damaged")
            return offset, offset + size
    return None


def _gpu_code(data: mmap.mmap, start: int, end: int) -> tuple[GpuCode, ...] | None:
    try:
        found = dict.fromkeys(_entries(data, start, end))
    except BinaryError:
        # The library may be all right and only written by a CUDA that is not known here.
        return None
    return tuple(sorted(found, key=lambda code: (code.kind, code.major, code.minor, code.suffix))) or None


def _entries(data: mmap.mmap, start: int, end: int) -> Iterator[GpuCode]:
    place = start
    while place < end:
        magic, _version, header_size, size = _fields(_CONTAINER, data, place)
        last = place + header_size + size
        if magic != _FATBIN_MAGIC or header_size < _CONTAINER.size or last > end:
            raise BinaryError(f"no GPU code begins at byte {place}")
        place += header_size
        while place < last:
            kind, _version, header_size, size, architecture, flags = _fields(_ENTRY, data, place)
            if header_size < _ENTRY.size or place + header_size + size > last:
                raise BinaryError(f"no GPU code begins at byte {place}")
            if kind in _KINDS:
                suffix = "".join(letter for bit, letter in _SUFFIXES.items() if flags & bit)
                yield GpuCode(_KINDS[kind], *divmod(architecture, 10), suffix)
            place += header_size + size
