# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Small shared libraries with the parts that are read of FlashInfer's: ELF, libraries it needs, GPU code.

The bytes of containers and entries are those that nvcc 13.0.88 wrote (see cuda_binary).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

# An entry's header as nvcc wrote it for `-gencode=arch=compute_90a,code=sm_90a`, of FlashInfer's fused_moe_90.
SAMPLE_ENTRY = bytes.fromhex(
    "020001014000000018100000000000000000000000000000080001005a0000000000000000000000110010000000000000000000000000000000000000000000"
)
A, F = 0x100011, 0x200011
PLAIN = 0x11
BASE = 0x1000


def entry(kind: int, architecture: int, flags: int = PLAIN, size: int = 16, header: int = 64) -> bytes:
    """One piece of GPU code; a real header with what differs written into it."""
    data = bytearray(SAMPLE_ENTRY.ljust(header, b"\0"))
    struct.pack_into("<H", data, 0, kind)
    struct.pack_into("<IQ", data, 4, header, size)
    struct.pack_into("<I", data, 28, architecture)
    struct.pack_into("<Q", data, 40, flags)
    return bytes(data) + b"c" * size


def container(*entries: bytes) -> bytes:
    """What the compiler makes of one source file."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


SM_90A = container(entry(2, 90, A))


@dataclass(frozen=True)
class Elf:
    """A shared library to be. `table_at` overrides where DT_STRTAB points; `fatbin` None leaves the section out."""

    needed: Sequence[str] = ("libcudart.so.13", "libc.so.6")
    fatbin: bytes | None = SM_90A
    machine: int = 62
    kind: int = 3
    bits: int = 2
    order: int = 1
    table_at: int | None = None
    names_section: int = 3
    dynamic_tags: Sequence[tuple[int, int]] = ()

    def build(self) -> bytes:
        """Header, two segments (the dynamic one, and all of it loaded at BASE), data, section headers at the end."""
        strings = b"\0"
        tags = []
        for name in self.needed:
            tags.append((1, len(strings)))
            strings += name.encode() + b"\0"
        tags += [*self.dynamic_tags, (0, 0), (1, 0)]
        place = 64 + 2 * 56
        strings_at, place = place, place + len(strings)
        dynamic_at, place = place, place + (len(tags) + 1) * 16
        tags.insert(0, (5, BASE + strings_at if self.table_at is None else self.table_at))
        dynamic = b"".join(struct.pack("<QQ", *tag) for tag in tags)
        fatbin = self.fatbin or b""
        fatbin_at, place = place, place + len(fatbin)
        section_names = b"\0.bss\0.nv_fatbin\0.shstrtab\0"
        names_at, place = place, place + len(section_names)

        def section(name: bytes, kind: int, offset: int, size: int) -> bytes:
            return struct.pack("<IIQQQQIIQQ", section_names.index(name), kind, 0, 0, offset, size, 0, 0, 8, 0)

        sections = [
            section(b"\0", 0, 0, 0),
            # Takes no place in the file, whatever it says.
            section(b".bss", 8, 1 << 40, 1 << 40),
            section(b".nv_fatbin" if self.fatbin is not None else b".shstrtab", 1, fatbin_at, len(fatbin)),
            section(b".shstrtab", 3, names_at, len(section_names)),
        ]
        ident = b"\x7fELF" + bytes([self.bits, self.order, 1]) + bytes(9)
        header = struct.pack(
            "<16sHHIQQQIHHHHHH",
            ident,
            self.kind,
            self.machine,
            1,
            0,
            64,
            place,
            0,
            64,
            56,
            2,
            64,
            4,
            self.names_section,
        )
        segments = struct.pack("<IIQQQQQQ", 2, 4, dynamic_at, 0, 0, len(dynamic), 0, 8)
        segments += struct.pack("<IIQQQQQQ", 1, 4, 0, BASE, 0, place, place, 8)
        return header + segments + strings + dynamic + fatbin + section_names + b"".join(sections)
