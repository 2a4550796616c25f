# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of GPU models by the name that nvidia-smi gives them: compute capability and memory bandwidth.

Compute capabilities are of NVIDIA's table "CUDA GPU Compute Capability". Bandwidths are peaks: for GDDR memory the bus
width times the rate of a pin, both of NVIDIA's datasheet, otherwise what the named source says. A name that is not here
gives nothing rather than the figures of a model of nearly the same name: laptop and server editions differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

GB = 10**9

#: Architectures whose data center and desktop GPUs all have one compute capability. Ampere (8.0, 8.6) and Blackwell
#: (10.0, 10.3, 12.0, 12.1) are not among them.
_ONE_CAPABILITY: Mapping[str, tuple[int, int]] = {
    "Turing": (7, 5),
    "Ada Lovelace": (8, 9),
    "Hopper": (9, 0),
}


@dataclass(frozen=True)
class Model:
    """A GPU model. bandwidth_bytes_s: peak of its own memory. source: where the bandwidth was read."""

    name: str
    capability: tuple[int, int]
    bandwidth_bytes_s: int
    source: str


def find(name: str) -> Model | None:
    """The model with this product name ("NVIDIA H200", "Tesla T4"), None when it is not known."""
    return _MODELS.get(_key(name))


def capability(name: str, architecture: str = "") -> tuple[int, int] | None:
    """The compute capability of a GPU with this name and architecture, None when neither decides it."""
    model = find(name)
    return model.capability if model else _ONE_CAPABILITY.get(architecture)


def known() -> tuple[Model, ...]:
    """Every model once, in the order of this file."""
    return tuple(dict.fromkeys(_MODELS.values()))


def _key(name: str) -> str:
    """Names differ in their maker's prefix and in blanks between driver branches."""
    return re.sub(r"^(nvidia )?(tesla )?", "", " ".join(name.lower().split()))


def _gddr(names: str, capability: tuple[int, int], bus_bits: int, rate_gbit_s: float) -> Iterable[Model]:
    """A model with GDDR or LPDDR memory; several names are separated by |."""
    source = f"NVIDIA datasheet: {bus_bits} bit at {rate_gbit_s:g} Gbit/s a pin"
    return [Model(name, capability, round(bus_bits * rate_gbit_s / 8 * GB), source) for name in names.split("|")]


def _hbm(names: str, capability: tuple[int, int], bandwidth_gb_s: int, source: str) -> Iterable[Model]:
    """A model with HBM; several names are separated by |."""
    return [Model(name, capability, bandwidth_gb_s * GB, source) for name in names.split("|")]


_MODELS: Mapping[str, Model] = {
    _key(model.name): model
    for group in (
        # Blackwell, compute capability 12
        _gddr(
            "NVIDIA RTX PRO 6000 Blackwell Server Edition|NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
            "|NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            (12, 0),
            512,
            28,
        ),
        _gddr("NVIDIA RTX PRO 5000 Blackwell|NVIDIA RTX PRO 5000 72GB Blackwell", (12, 0), 384, 28),
        _gddr("NVIDIA RTX PRO 4500 Blackwell", (12, 0), 256, 28),
        _gddr("NVIDIA RTX PRO 4500 Blackwell Server Edition", (12, 0), 256, 25),
        _gddr("NVIDIA RTX PRO 4000 Blackwell", (12, 0), 192, 28),
        _gddr("NVIDIA RTX PRO 4000 Blackwell SFF Edition", (12, 0), 192, 18),
        _gddr("NVIDIA RTX PRO 2000 Blackwell", (12, 0), 128, 18),
        _gddr("NVIDIA GeForce RTX 5090|NVIDIA GeForce RTX 5090 D", (12, 0), 512, 28),
        _gddr("NVIDIA GeForce RTX 5080", (12, 0), 256, 30),
        _gddr("NVIDIA GeForce RTX 5070 Ti", (12, 0), 256, 28),
        _gddr("NVIDIA GeForce RTX 5070", (12, 0), 192, 28),
        _gddr("NVIDIA GeForce RTX 5060 Ti", (12, 0), 128, 28),
        _gddr("NVIDIA GB10", (12, 1), 256, 8.533),
        # Blackwell, compute capability 10
        _hbm(
            "NVIDIA B200",
            (10, 0),
            7672,
            "read from the device (pytorch/ao#4002): 7680 bit at 3996 MHz; NVIDIA rounds up to 8 TB/s",
        ),
        _hbm("NVIDIA GB200", (10, 0), 8000, "NVIDIA GB200 NVL72: 576 TB/s for 72 GPUs"),
        _hbm("NVIDIA B300|NVIDIA B300 SXM6 AC", (10, 3), 8000, "NVIDIA Blackwell Ultra: up to 8 TB/s a GPU"),
        _hbm("NVIDIA GB300", (10, 3), 8000, "NVIDIA GB300 NVL72: 576 TB/s for 72 GPUs"),
        # Hopper
        _hbm("NVIDIA H200|NVIDIA H200 NVL", (9, 0), 4800, "NVIDIA H200 datasheet"),
        _hbm("NVIDIA H100 80GB HBM3|NVIDIA H800", (9, 0), 3350, "NVIDIA H100 datasheet, SXM"),
        _hbm("NVIDIA H100 PCIe|NVIDIA H800 PCIe", (9, 0), 2000, "NVIDIA H100 PCIe product brief"),
        _hbm("NVIDIA H100 NVL", (9, 0), 3900, "NVIDIA H100 datasheet, NVL"),
        _hbm("NVIDIA H20", (9, 0), 4000, "sellers' data of the H20 with 96 GB, NVIDIA publishes none"),
        _hbm("NVIDIA H20-3e", (9, 0), 4800, "sellers' data of the H20 with 141 GB, NVIDIA publishes none"),
        _hbm("NVIDIA GH200 480GB", (9, 0), 4000, "NVIDIA GH200 datasheet, 96 GB HBM3"),
        _hbm("NVIDIA GH200 144G HBM3e", (9, 0), 4900, "NVIDIA GH200 datasheet, 144 GB HBM3e"),
        # Ada
        _gddr("NVIDIA L40S|NVIDIA L40|NVIDIA L20", (8, 9), 384, 18),
        _gddr("NVIDIA L4", (8, 9), 192, 12.5),
        _gddr("NVIDIA RTX 6000 Ada Generation", (8, 9), 384, 20),
        _gddr("NVIDIA RTX 5000 Ada Generation", (8, 9), 256, 18),
        _gddr("NVIDIA RTX 4500 Ada Generation", (8, 9), 192, 18),
        _gddr("NVIDIA RTX 4000 Ada Generation", (8, 9), 160, 18),
        _gddr("NVIDIA GeForce RTX 4090", (8, 9), 384, 21),
        _gddr("NVIDIA GeForce RTX 4080 SUPER", (8, 9), 256, 23),
        _gddr("NVIDIA GeForce RTX 4080", (8, 9), 256, 22.4),
        # Ampere
        _hbm("NVIDIA A100-SXM4-80GB|NVIDIA A800-SXM4-80GB", (8, 0), 2039, "NVIDIA A100 datasheet, 80 GB SXM"),
        _hbm("NVIDIA A100 80GB PCIe|NVIDIA A800 80GB PCIe", (8, 0), 1935, "NVIDIA A100 datasheet, 80 GB PCIe"),
        _hbm("NVIDIA A100-SXM4-40GB|NVIDIA A100-PCIE-40GB", (8, 0), 1555, "NVIDIA A100 datasheet, 40 GB"),
        _hbm("NVIDIA A30", (8, 0), 933, "NVIDIA A30 datasheet"),
        _gddr("NVIDIA A10|NVIDIA A10G", (8, 6), 384, 12.5),
        _gddr("NVIDIA A40", (8, 6), 384, 14.5),
        _gddr("NVIDIA A2", (8, 6), 128, 12.5),
        _gddr("NVIDIA RTX A6000|NVIDIA RTX A5000", (8, 6), 384, 16),
        _gddr("NVIDIA RTX A4000", (8, 6), 256, 14),
        _gddr("NVIDIA GeForce RTX 3090", (8, 6), 384, 19.5),
        _gddr("NVIDIA GeForce RTX 3090 Ti", (8, 6), 384, 21),
        # Turing and Volta
        _gddr("Tesla T4", (7, 5), 256, 10),
        _hbm(
            "Tesla V100-SXM2-16GB|Tesla V100-SXM2-32GB|Tesla V100-PCIE-16GB|Tesla V100-PCIE-32GB",
            (7, 0),
            900,
            "NVIDIA V100 datasheet",
        ),
        _hbm("Tesla V100S-PCIE-32GB", (7, 0), 1134, "NVIDIA V100 datasheet, V100S"),
    )
    for model in group
}
