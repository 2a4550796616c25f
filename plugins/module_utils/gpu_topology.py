# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How GPUs are connected, from the text tables of `nvidia-smi topo -m` and `nvidia-smi topo -p2p r`.

There is no machine-readable form of them. Columns are separated by tabs, by blanks in a text that was pasted, and the
header may be underlined with terminal escapes even in a pipe.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

#: A table of more text than this is none: 16 GPUs and 32 network cards make less than 20 kB.
MAX_CHARS = 1_000_000

#: A machine has at most this many CPUs, here: longer lists are nonsense (Linux allows 8192).
MAX_CPUS = 1 << 16

#: What `topo -p2p` writes for a pair, as its own legend explains it.
P2P_WORDS: Mapping[str, str] = {
    "OK": "works",
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by a registry key of the driver",
    "U": "unknown",
}

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GPU = re.compile(r"GPU([0-9]{1,3})")
_LINK = re.compile(r"SYS|NODE|PHB|PXB|PIX|NV[0-9]{1,3}")


@dataclass(frozen=True)
class Link:
    """How two GPUs are connected: SYS, NODE, PHB, PXB, PIX, or NV and the number of NVLinks. first < second."""

    first: int
    second: int
    kind: str


@dataclass(frozen=True)
class P2p:
    """Whether one GPU can read and write the other's memory: OK or a key of P2P_WORDS, "" not told. first < second."""

    first: int
    second: int
    read: str = ""
    write: str = ""

    @property
    def works(self) -> bool:
        """Whether nothing that was told is against it."""
        return {self.read, self.write} <= {"OK", ""}


@dataclass(frozen=True)
class Topology:
    """What `topo -m` tells. `problem` says in words why it tells nothing, "" when it does."""

    links: tuple[Link, ...] = ()
    cpu_affinity: Mapping[int, str] = field(default_factory=dict)
    numa_nodes: Mapping[int, int] = field(default_factory=dict)
    problem: str = ""


def parse_topology(text: str) -> Topology:
    """Read `nvidia-smi topo -m`."""
    devices, rows = _table(text)
    if not rows:
        return Topology(problem="no table of GPUs in its output")
    links, cpus, nodes = [], {}, {}
    for gpu, cells in rows:
        for other, kind in zip(devices, cells):
            if other is not None and gpu < other and _LINK.fullmatch(kind):
                links.append(Link(gpu, other, kind))
        rest = cells[len(devices) :]
        if rest and parse_cpus(rest[0]):
            cpus[gpu] = rest[0]
        if len(rest) > 1 and re.fullmatch(r"[0-9]{1,4}", rest[1]):
            nodes[gpu] = int(rest[1])
    return Topology(tuple(sorted(links, key=lambda link: (link.first, link.second))), cpus, nodes)


def parse_p2p(text: str) -> dict[tuple[int, int], str]:
    """Read `nvidia-smi topo -p2p r` (or w): what is said of each two GPUs, the lower number first.

    Where the two directions differ, what is not OK is told. Empty when there is no table.
    """
    devices, rows = _table(text)
    found: dict[tuple[int, int], str] = {}
    for gpu, cells in rows:
        for other, word in zip(devices, cells):
            if other is None or other == gpu or word not in P2P_WORDS:
                continue
            pair = (min(gpu, other), max(gpu, other))
            if found.get(pair, "OK") == "OK":
                found[pair] = word
    return found


def _table(text: str) -> tuple[list[int | None], list[tuple[int, list[str]]]]:
    """The device columns (None for what is no GPU) and the rows of GPUs with their cells, from the first table."""
    devices: list[int | None] = []
    rows: list[tuple[int, list[str]]] = []
    for line in _lines(text):
        cells = [cell.strip() for cell in line.strip(" ").split("\t")] if "\t" in line else line.split()
        if not devices:
            # The header's first cell is empty; what follows the devices are columns with names of two words.
            named = re.split(r"CPU Affinity|NUMA Affinity|GPU NUMA ID", line)[0].split()
            if named and _GPU.fullmatch(named[0]):
                devices = [int(found[1]) if (found := _GPU.fullmatch(name)) else None for name in named]
            continue
        found = _GPU.fullmatch(cells[0]) if cells else None
        if found:
            rows.append((int(found[1]), cells[1:]))
    return devices, rows


def _lines(text: str) -> Iterator[str]:
    for line in text[:MAX_CHARS].splitlines():
        plain = _ESCAPE.sub("", line)
        if plain.strip().startswith("Legend"):
            return
        yield plain


def parse_cpus(text: str) -> frozenset[int]:
    """The CPUs of a kernel list such as 0-31,64-95. Empty for anything that is none."""
    found: set[int] = set()
    for part in text.strip().split(","):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", part.strip())
        if not match:
            return frozenset()
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= MAX_CPUS or last < first:
            return frozenset()
        found.update(range(first, last + 1))
    return frozenset(found)
