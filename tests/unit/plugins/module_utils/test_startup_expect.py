# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether autotune is expected, before the server says anything: held against the gates of all releases."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_gate
from ansible_collections.tokforge.sglang.plugins.module_utils import startup_expect as core
from ansible_collections.tokforge.sglang.plugins.module_utils.release_catalog import RELEASES
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_expect import Server

CUTLASS = {"moe-runner-backend": ["flashinfer_cutlass"]}
OPEN = frozenset({"flashinfer_cutlass"})
BACKENDS = ("flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_mxfp4", "flashinfer_cutedsl", "triton")


def value(args: dict[str, Any], version: str = "", **more: Any) -> str:
    return core.autotune(Server(args, version, **more)).value


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gate_of_every_release_tells_what_is_expected(backend: str) -> None:
    seen = set()
    for version in ("0.5.0rc0", "0.5.5.post3", "0.5.6", "0.5.6.post2", "0.5.7", *RELEASES):
        kind = autotune_gate.expected(version, backend)
        told = value({"moe_runner_backend": backend}, version)
        wanted = {
            autotune_gate.UNSUPPORTED: core.NOT_EXPECTED,
            autotune_gate.OTHER: core.AUTO,
            autotune_gate.CLOSED: core.NOT_EXPECTED,
            autotune_gate.OPEN_UPSTREAM: core.EXPECTED,
        }[kind or ""]
        assert told == wanted, version
        seen.add(kind)
    assert {autotune_gate.UNSUPPORTED, autotune_gate.OTHER} <= seen
    assert (autotune_gate.OPEN_UPSTREAM in seen) == (backend != "triton")


def test_the_first_release_that_tunes_a_backend_is_the_gates() -> None:
    assert value(CUTLASS, "0.5.12.post1") == core.NOT_EXPECTED
    assert value(CUTLASS, "0.5.13") == core.EXPECTED
    assert value({"moe-runner-backend": "flashinfer_megamoe"}, "0.5.21") == core.NOT_EXPECTED
    assert value({"moe-runner-backend": "flashinfer_megamoe"}, "0.5.22") == core.EXPECTED


def test_what_the_installed_gate_holds_decides_over_the_release() -> None:
    assert value(CUTLASS, "0.5.12.post1", tuned=OPEN) == core.EXPECTED
    assert value(CUTLASS, "0.5.13", tuned=frozenset()) == core.NOT_EXPECTED
    assert value(CUTLASS, "0.5.5", tuned=OPEN) == core.NOT_EXPECTED
    assert value(CUTLASS, "0.5.6", tuned=OPEN) == core.AUTO


def test_a_release_newer_than_was_read_or_unknown_says_nothing_by_itself() -> None:
    for version in ("", "0.5.99", "0.0.0.dev0", "main"):
        assert value(CUTLASS, version) == core.AUTO
        assert value(CUTLASS, version, tuned=OPEN) == core.EXPECTED


@pytest.mark.parametrize(
    ("args", "version", "wanted", "word"),
    [
        ({"device": "cpu"}, "0.5.13", "not_expected", "cpu"),
        ({"device": ["cpu"]}, "0.5.13", "not_expected", "cpu"),
        ({"device": "cuda"}, "0.5.13", "expected", "open"),
        ({"disable-flashinfer-autotune": []}, "0.5.13", "not_expected", "disable"),
        ({"disable_flashinfer_autotune": True}, "0.5.13", "not_expected", "disable"),
        ({"--disable-flashinfer-autotune": "true"}, "0.5.13", "not_expected", "disable"),
        ({"disable_flashinfer_autotune": False}, "0.5.13", "expected", "open"),
        ({"disable-flashinfer-autotune": ["false"]}, "0.5.13", "expected", "open"),
        ({"enable-deterministic-inference": []}, "0.5.13", "expected", "open"),
        ({"enable-deterministic-inference": []}, "0.5.14", "not_expected", "deterministic"),
        ({"disable-cuda-graph": []}, "0.5.13", "expected", "open"),
        ({"disable-cuda-graph": []}, "0.5.14", "auto", "CUDA graphs"),
        ({"disable-cuda-graph": []}, "main", "auto", "nobody knows"),
        ({"enable-deterministic-inference": []}, "main", "not_expected", "deterministic"),
        ({"enable-kv-cache-sharding": []}, "0.5.23", "auto", "sharding"),
        ({"moe_runner_backend": None}, "0.5.13", "auto", "by itself"),
        ({"moe-runner-backend": []}, "0.5.13", "auto", "by itself"),
        ({"moe-runner-backend": "auto"}, "0.5.13", "auto", "by itself"),
        ({"moe-runner-backend": "auto"}, "0.5.5", "not_expected", "no FlashInfer autotune"),
        ({"moe-runner-backend": "triton", "quantization": "fp8"}, "0.5.12", "not_expected", "closed"),
        ({"moe-runner-backend": "triton", "quantization": "fp8"}, "0.5.13", "auto", "quantized"),
        ({"moe-runner-backend": "triton", "quantization": None}, "0.5.13", "not_expected", "closed"),
        ({"moe-runner-backend": "flashinfer_cutedsl", "moe-a2a-backend": "deepep"}, "0.5.13", "auto", "deepep"),
        ({"moe-runner-backend": "flashinfer_cutedsl", "moe-a2a-backend": "none"}, "0.5.13", "expected", "open"),
    ],
)
def test_arguments_decide_too(args: dict[str, Any], version: str, wanted: str, word: str) -> None:
    backend = {} if any("runner" in name for name in args) else CUTLASS
    told = core.autotune(Server({**backend, **args}, version))
    assert told.value == wanted
    assert word in told.reason


@pytest.mark.parametrize(
    ("capability", "wanted"),
    [(None, "expected"), ((8, 9), "not_expected"), ((9, 0), "expected"), ((12, 0), "expected")],
)
def test_the_gpus_decide_too(capability: tuple[int, int] | None, wanted: str) -> None:
    assert value(CUTLASS, "0.5.13", compute_capability=capability) == wanted
