# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models by the names that nvidia-smi gives them."""

from __future__ import annotations

import re

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import gpu_models


@pytest.mark.parametrize(
    ("name", "capability", "gb_s"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", (12, 0), 1792),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", (12, 0), 1792),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", (12, 0), 1792),
        ("NVIDIA RTX PRO 5000 Blackwell", (12, 0), 1344),
        ("NVIDIA RTX PRO 4500 Blackwell", (12, 0), 896),
        ("NVIDIA RTX PRO 4500 Blackwell Server Edition", (12, 0), 800),
        ("NVIDIA RTX PRO 4000 Blackwell", (12, 0), 672),
        ("NVIDIA GeForce RTX 5090", (12, 0), 1792),
        ("NVIDIA GeForce RTX 5080", (12, 0), 960),
        ("NVIDIA GeForce RTX 5070 Ti", (12, 0), 896),
        ("NVIDIA B200", (10, 0), 7672),
        ("NVIDIA GB200", (10, 0), 8000),
        ("NVIDIA B300 SXM6 AC", (10, 3), 8000),
        ("NVIDIA GB300", (10, 3), 8000),
        ("NVIDIA GB10", (12, 1), 273.056),
        ("NVIDIA H200", (9, 0), 4800),
        ("NVIDIA H200 NVL", (9, 0), 4800),
        ("NVIDIA H100 80GB HBM3", (9, 0), 3350),
        ("NVIDIA H100 PCIe", (9, 0), 2000),
        ("NVIDIA H100 NVL", (9, 0), 3900),
        ("NVIDIA H20", (9, 0), 4000),
        ("NVIDIA GH200 480GB", (9, 0), 4000),
        ("NVIDIA L40S", (8, 9), 864),
        ("NVIDIA L4", (8, 9), 300),
        ("NVIDIA RTX 6000 Ada Generation", (8, 9), 960),
        ("NVIDIA GeForce RTX 4090", (8, 9), 1008),
        ("NVIDIA A100-SXM4-80GB", (8, 0), 2039),
        ("NVIDIA A100 80GB PCIe", (8, 0), 1935),
        ("NVIDIA A100-SXM4-40GB", (8, 0), 1555),
        ("NVIDIA A100-PCIE-40GB", (8, 0), 1555),
        ("NVIDIA A30", (8, 0), 933),
        ("NVIDIA A10", (8, 6), 600),
        ("NVIDIA A10G", (8, 6), 600),
        ("Tesla T4", (7, 5), 320),
        ("Tesla V100-SXM2-32GB", (7, 0), 900),
    ],
)
def test_known_model_has_its_capability_and_bandwidth(name: str, capability: tuple[int, int], gb_s: float) -> None:
    model = gpu_models.find(name)
    assert model is not None
    assert (model.capability, model.bandwidth_bytes_s) == (capability, round(gb_s * 10**9))
    assert model.source


@pytest.mark.parametrize(
    "name",
    ["NVIDIA Tesla T4", "tesla t4", "  Tesla   T4 ", "NVIDIA T4", "T4"],
)
def test_names_differ_between_branches_in_prefix_and_blanks(name: str) -> None:
    model = gpu_models.find(name)
    assert model is not None and model.name == "Tesla T4"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "NVIDIA",
        "NVIDIA GeForce RTX 5090 Laptop GPU",
        "NVIDIA RTX PRO 5000 Blackwell Generation Laptop GPU",
        "NVIDIA A100-40C",
        "NVIDIA H2000",
        "NVIDIA H200 and more",
        "x" * 10000,
    ],
)
def test_nearly_the_same_name_is_another_model(name: str) -> None:
    assert gpu_models.find(name) is None
    assert gpu_models.capability(name) is None


@pytest.mark.parametrize(
    ("name", "architecture", "capability"),
    [
        ("NVIDIA H200", "", (9, 0)),
        ("NVIDIA H800 SXM of another name", "Hopper", (9, 0)),
        ("unknown", "Ada Lovelace", (8, 9)),
        ("unknown", "Turing", (7, 5)),
        ("unknown", "Ampere", None),
        ("unknown", "Blackwell", None),
        ("NVIDIA A10", "Hopper", (8, 6)),
    ],
)
def test_capability_is_the_models_or_else_the_architectures(
    name: str, architecture: str, capability: tuple[int, int] | None
) -> None:
    assert gpu_models.capability(name, architecture) == capability


def test_gddr_bandwidth_is_bus_width_times_rate_as_the_source_says() -> None:
    counted = 0
    for model in gpu_models.known():
        found = re.fullmatch(r"NVIDIA datasheet: (\d+) bit at ([\d.]+) Gbit/s a pin", model.source)
        if found:
            counted += 1
            assert model.bandwidth_bytes_s == round(int(found[1]) * float(found[2]) / 8 * 10**9), model.name
    assert counted > 30


def test_models_are_plausible_and_named_once() -> None:
    models = gpu_models.known()
    assert len({model.name for model in models}) == len(models) > 50
    for model in models:
        assert 150e9 < model.bandwidth_bytes_s < 10e12, model.name
        assert (7, 0) <= model.capability <= (12, 1), model.name
