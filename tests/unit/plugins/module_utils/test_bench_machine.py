# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a measurement is taken on, and how fast it could be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpu_outputs import pro6000, xml
from model_configs import DIRECTORY

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_machine, gpu_xml, host_cpus
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_machine import (
    Machine,
    ceilings,
    cpu_name,
    gpu_name,
    layout,
    look,
    model_facts,
    roofline_share,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import Parameters
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu, Report
from ansible_collections.tokforge.sglang.plugins.module_utils.host_cpus import Cpus

PRO6000 = "NVIDIA RTX PRO 6000 Blackwell Server Edition"


def eight() -> Report:
    report = gpu_xml.read(pro6000(8))
    return replace(report, gpus=tuple(replace(one, compute_capability=(12, 0)) for one in report.gpus))


def mixed() -> Report:
    """Two H200, a V100, an H200."""
    h200, v100 = gpu_xml.read(xml("580-h200x2")).gpus[0], gpu_xml.read(xml("418-v100")).gpus[0]
    return replace(eight(), gpus=tuple(replace(one, index=place) for place, one in enumerate((h200, h200, v100, h200))))


def taken(args: dict[str, Any], env: dict[str, Any] | None = None, report: Report | None = None) -> list[int]:
    return [one.index for one in look(args, env or {}, report or eight()).gpus]


# --- names


def test_equal_gpus_are_one_name_with_their_number() -> None:
    assert look({"tp-size": 8}, {}, eight()).hardware == f"8x {PRO6000} (cc 12.0, 96 GiB)"
    assert look({}, {}, eight()).hardware == f"1x {PRO6000} (cc 12.0, 96 GiB)"


def test_mixed_gpus_are_told_by_kind() -> None:
    told = look({"tp-size": 4}, {}, mixed()).hardware
    assert told == "3x NVIDIA H200 (140 GiB) + 1x Tesla V100-SXM2-32GB (32 GiB)"
    assert look({"tp-size": 2}, {}, mixed()).hardware == "2x NVIDIA H200 (140 GiB)"


def test_gpu_of_which_little_is_known_has_only_a_name() -> None:
    assert gpu_name([Gpu(0, "X")]) == "1x X"
    assert gpu_name([Gpu(0, "X", compute_capability=(9, 0))]) == "1x X (cc 9.0)"
    assert gpu_name([]) == ""


def test_no_gpu_is_unknown_and_not_a_cpu() -> None:
    none = replace(eight(), gpus=())
    assert look({"tp-size": 8}, {}, none) == Machine("unknown")


@pytest.mark.parametrize(
    ("cpuinfo", "cores", "name"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC  7B13\nprocessor\t: 1\n", 2, "CPU AMD EPYC 7B13, 2 cores"),
        ("model name : X\n", 1, "CPU X, 1 core"),
        ("processor\t: 0\nBogoMIPS\t: 50.00\nCPU part\t: 0xd0c\n", 4, "CPU of unknown model, 4 cores"),
        ("Hardware\t: BCM2835\n", 4, "CPU BCM2835, 4 cores"),
        ("", 4, "CPU of unknown model, 4 cores"),
        ("model name\t: \n", 4, "CPU of unknown model, 4 cores"),
    ],
)
def test_processor_is_named_with_the_cores_that_may_be_used(cpuinfo: str, cores: int, name: str) -> None:
    assert cpu_name(cpuinfo, cores) == name


@pytest.mark.parametrize("args", [{"device": "cpu"}, {"--device": "cpu", "tp-size": 2}])
def test_server_on_a_cpu_has_no_gpus_although_the_machine_has(
    args: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text("model name\t: Some CPU\n")
    monkeypatch.setattr(bench_machine, "CPUINFO", str(tmp_path / "cpuinfo"))
    monkeypatch.setattr(host_cpus, "look", lambda: Cpus(allowed=frozenset({0, 1, 2})))
    assert look(args, {}, eight()) == Machine("CPU Some CPU, 3 cores")
    monkeypatch.setattr(bench_machine, "CPUINFO", str(tmp_path / "missing"))
    monkeypatch.setattr(host_cpus, "look", Cpus)
    assert look(args, {}, eight()).hardware == "CPU of unknown model, 1 core"


# --- which GPUs


@pytest.mark.parametrize("name", ["tp-size", "tp_size", "--tp-size", "tensor-parallel-size", "tensor_parallel_size"])
@pytest.mark.parametrize("value", [4, "4"])
def test_number_of_ranks_is_read_in_every_spelling(name: str, value: Any) -> None:
    assert taken({name: value}) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("args", "numbers"),
    [
        ({"tp-size": 2, "dp-size": 2}, [0, 1, 2, 3]),
        ({"tp-size": 4, "dp-size": 2, "enable-dp-attention": True}, [0, 1, 2, 3]),
        ({"tp-size": 2, "pp-size": 3}, [0, 1, 2, 3, 4, 5]),
        ({"tp-size": 2, "base-gpu-id": 3, "gpu-id-step": 2}, [3, 5]),
        # Sizes that cannot be count as one rank.
        ({"tp-size": "many"}, [0]),
        ({"tp-size": 4, "ep-size": 3}, [0]),
        ({"tp-size": 0}, [0]),
        # More than there are: those that there are.
        ({"tp-size": 16}, [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_layout_says_how_many_gpus(args: dict[str, Any], numbers: list[int]) -> None:
    assert taken(args) == numbers


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        ("6,7", [6, 7]),
        ("7,2,1", [2, 7]),
        (5, []),
        ("GPU-00000000-0590-0000-0000-000000000004,1", [1, 4]),
        ("", []),
        ("3,9", []),
    ],
)
def test_visible_devices_choose_the_gpus(visible: Any, numbers: list[int]) -> None:
    assert taken({"tp-size": 2}, {"CUDA_VISIBLE_DEVICES": visible}) == numbers
    if not numbers:
        assert look({"tp-size": 2}, {"CUDA_VISIBLE_DEVICES": visible}, eight()).hardware == "unknown"


def test_one_visible_device_may_be_a_number() -> None:
    assert taken({}, {"CUDA_VISIBLE_DEVICES": 5}) == [5]


def test_layout_is_read_as_the_roofline_wants_it() -> None:
    found = layout({"tp-size": 8, "dp-size": 4, "enable-dp-attention": True, "ep-size": 8})
    assert (found.tp, found.dp, found.dp_attention, found.ep, found.gpus) == (8, 4, True, 8, 8)


# --- ceilings

ASKED = Parameters(concurrency=(1, 8), input_len=64, output_len=32)


@pytest.fixture
def llama(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_bytes((DIRECTORY / "llama-3.3-70b.json").read_bytes())
    return str(tmp_path)


def machine(*bandwidths: int | None) -> Machine:
    return Machine("x", tuple(Gpu(place, "X", memory_bandwidth_bytes_s=one) for place, one in enumerate(bandwidths)))


@pytest.mark.parametrize(
    ("dtype", "bytes_"), [({}, 2), ({"kv-cache-dtype": "fp8_e4m3"}, 1), ({"kv_cache_dtype": "auto"}, 2)]
)
def test_ceiling_is_the_batch_over_the_time_to_read_its_bytes(llama: str, dtype: dict[str, Any], bytes_: int) -> None:
    found = ceilings(machine(*[3350 * 10**9] * 4), {"tensor-parallel-size": 4, **dtype}, llama, ASKED)
    weights = 2 * (80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672) + 128256 * 8192) / 4
    norms = 80 * 2 * 2 * 8192
    for batch in (1, 8):
        # Half of the 32 tokens of an answer lie behind its 64 of the prompt: 80. A rank has 2 heads of 128, twice.
        cache = batch * 80 * 80 * 2 * 2 * 128 * bytes_
        read = weights + norms + batch * 2 * 8192 / 4 + cache
        assert found[batch] == pytest.approx(batch * 3350e9 / read, rel=1e-9)
    assert list(found) == [1, 8]


def test_ceiling_and_shape_are_of_what_the_arguments_make_of_the_model(llama: str) -> None:
    plain, half = (ceilings(machine(10**12), args, llama, ASKED)[1] for args in ({}, {"quantization": "fp8"}))
    assert 1.9 < half / plain < 2
    assert model_facts({"quantization": "fp8"}, llama) == {
        # By hand: attention and feed-forward of 80 layers with two norms each, embedding and head.
        "parameters": 80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192) + 2 * 128256 * 8192,
        "active_parameters": 80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672 + 2 * 8192)
        + 128256 * 8192
        + 8192,
        "layers": 80,
        "experts": 0,
        "experts_per_token": 0,
        "quantization": "fp8",
    }


def test_shape_that_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    assert model_facts({}, str(tmp_path)) is None
    (tmp_path / "config.json").write_text("{}")
    assert model_facts({}, str(tmp_path)) is None


def test_slowest_gpu_counts(llama: str) -> None:
    slow, fast = ceilings(machine(10**12), {}, llama, ASKED), ceilings(machine(2 * 10**12), {}, llama, ASKED)
    assert ceilings(machine(2 * 10**12, 10**12), {}, llama, ASKED) == slow
    assert fast[1] == pytest.approx(2 * slow[1])


def test_no_ceiling_where_something_is_unknown(llama: str, tmp_path: Path) -> None:
    assert ceilings(machine(), {}, llama, ASKED) == {}
    assert ceilings(machine(10**12, None), {}, llama, ASKED) == {}
    assert ceilings(machine(10**12), {}, "/nowhere", ASKED) == {}
    # Bits for bytes.
    assert ceilings(machine(10**15), {}, llama, ASKED) == {}
    for content in ("{", "[]", "{}", json.dumps({"num_hidden_layers": "many"})):
        (tmp_path / "config.json").write_text(content)
        assert ceilings(machine(10**12), {}, str(tmp_path), ASKED) == {}


def test_share_of_the_ceiling_is_rounded_and_told_with_it() -> None:
    assert roofline_share(1234.5678, 185.25) == {"ceiling_tok_s": 1234.6, "share": 0.1501}
    assert roofline_share(100.0, 0.0) == {"ceiling_tok_s": 100.0, "share": 0.0}
    # Speculation passes it.
    assert roofline_share(100.0, 150.0) == {"ceiling_tok_s": 100.0, "share": 1.5}


@pytest.mark.parametrize("rate", [None, -1.0, float("nan"), float("inf"), "fast", True])
def test_no_share_of_a_rate_that_is_none(rate: Any) -> None:
    assert roofline_share(100.0, rate) is None


@pytest.mark.parametrize("ceiling", [None, 0.0, -1.0, float("nan")])
def test_no_share_without_a_ceiling(ceiling: float | None) -> None:
    assert roofline_share(ceiling, 50.0) is None
