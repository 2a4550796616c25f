# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi writes: the files of tests/fixtures/gpu, and others made of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "gpu"

MIB = 1 << 20

#: Recordings and the fixtures made like them, with the number of GPUs in each.
BRANCHES = {
    "418-v100": 1,
    "470-t4": 1,
    "535-a100-mig": 2,
    "550-h100x2-unwell": 2,
    "570-5090x2-desktop": 2,
    "580-h200x2": 2,
    "590-pro6000": 1,
}


def text(name: str) -> str:
    """The text of a fixture."""
    return (FIXTURES / name).read_text(encoding="utf-8")


def xml(name: str) -> bytes:
    """The bytes of a fixture of `nvidia-smi -q -x`."""
    return (FIXTURES / f"{name}.xml").read_bytes()


def bus_id(index: int) -> str:
    """The PCI address of one of the GPUs of `pro6000`, as the kernel writes it."""
    return f"0000:{0x10 * index + 1:02x}:00.0"


def pro6000(count: int = 8, edits: Mapping[int, Mapping[str, str]] | None = None) -> bytes:
    """`nvidia-smi -q -x` of a machine with `count` RTX PRO 6000; `edits` are texts to replace in one GPU's part."""
    whole = text("590-pro6000.xml")
    head, opening, rest = whole.partition("\t<gpu ")
    body, closing, tail = rest.partition("</gpu>\n\n")
    parts = []
    for index in range(count):
        part = (opening + body + closing).replace("00000000:01:00.0", f"0000{bus_id(index).upper()}")
        part = part.replace("GPU-00000000-0590-0000-0000-000000000000", f"GPU-00000000-0590-0000-0000-{index:012}")
        for old, new in (edits or {}).get(index, {}).items():
            assert old in part, old
            part = part.replace(old, new)
        parts.append(part)
    head = head.replace("<attached_gpus>1<", f"<attached_gpus>{count}<")
    return (head + "".join(parts) + tail).encode("utf-8", "surrogateescape")


def process(pid: int, name: str, memory: str, kind: str = "C") -> str:
    """One row below <processes>."""
    return (
        "<process_info><gpu_instance_id>N/A</gpu_instance_id><compute_instance_id>N/A</compute_instance_id>"
        f"<pid>{pid}</pid><type>{kind}</type><process_name>{name}</process_name><used_memory>{memory}</used_memory>"
        "</process_info>"
    )


def held(used_mib: int, *rows: str) -> dict[str, str]:
    """Edits of `pro6000` that make a GPU hold so much memory with these processes."""
    return {
        "\t\t\t<used>0 MiB</used>\n\t\t\t<free>97250 MiB</free>": f"\t\t\t<used>{used_mib} MiB</used>\n"
        f"\t\t\t<free>{97250 - used_mib} MiB</free>",
        "<processes>\n": "<processes>\n" + "\n".join(rows),
    }
