# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a start is expected to do, before it says anything: will FlashInfer autotune run?

A closed gate logs nothing, and neither does a server that skipped autotune though it should have run. Only what was
asked for tells the two apart. The rules are those of the gates of SGLang 0.5.7 to 0.5.23. With a speculative draft the
target's own kernels are tuned all the same, so each rank logs at least one pair of lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_gate
from ansible_collections.tokforge.sglang.plugins.module_utils.releases import ReleaseError, canonical, sort_key

#: `auto`: it cannot be told; what the ranks say decides.
EXPECTED, NOT_EXPECTED, AUTO = "expected", "not_expected", "auto"

# From here on quantized layers other than MoE ask for it too, whatever the MoE backend is.
_OTHER_LAYERS = "0.5.13"
# From here on it is a part of warming a runner up, which there is none of without CUDA graphs.
_IN_RUNNER = "0.5.14"


@dataclass(frozen=True)
class Expectation:
    """`value` is expected, not_expected or auto, `reason` one clause for a person."""

    value: str
    reason: str


@dataclass(frozen=True)
class Server:
    """What decides. `args` are launch arguments or logged ones by any of their names, a switch is True or an empty
    list.

    `tuned` are the backends in the gate of the installed SGLang, None when nobody read them. `version` may be empty.
    `compute_capability` is the least of the host's GPUs, None when it is not known.
    """

    args: Mapping[str, Any]
    version: str = ""
    tuned: frozenset[str] | None = None
    compute_capability: tuple[int, int] | None = None


def autotune(server: Server) -> Expectation:
    """Whether each rank will log autotune."""
    args = {canonical(str(name)): value for name, value in server.args.items()}
    backend = _text(args, "moe-runner-backend") or "auto"
    why_not = _never(server, args)
    if why_not:
        return Expectation(NOT_EXPECTED, why_not)
    if backend == "auto":
        return Expectation(AUTO, "SGLang chooses the MoE backend by itself")
    kind = autotune_gate.expected(server.version, backend) if server.version else None
    if kind == autotune_gate.OTHER:
        return Expectation(AUTO, f"the gate of SGLang {server.version} asks for the attention backend")
    doubt = _doubt(server, args, backend)
    tuned = server.tuned
    if tuned is None and kind is not None:
        tuned = frozenset([backend] if kind == autotune_gate.OPEN_UPSTREAM else [])
    if tuned is None:
        return Expectation(AUTO, f"nobody knows whether this SGLang tunes {backend}")
    if backend not in tuned:
        if not _before(server.version, _OTHER_LAYERS) and _text(args, "quantization"):
            return Expectation(AUTO, f"the gate is closed for {backend}, but quantized layers may be tuned")
        return Expectation(NOT_EXPECTED, f"the autotune gate is closed for {backend}")
    if doubt:
        return Expectation(AUTO, doubt)
    return Expectation(EXPECTED, f"the autotune gate is open for {backend}")


def _never(server: Server, args: Mapping[str, Any]) -> str:
    device = _text(args, "device")
    if device and device != "cuda":
        return f"the device is {device}, and autotune needs cuda"
    if _on(args, "disable-flashinfer-autotune"):
        return "disable-flashinfer-autotune is set"
    if server.version and autotune_gate.expected(server.version, "flashinfer_cutlass") == autotune_gate.UNSUPPORTED:
        return f"SGLang {server.version} has no FlashInfer autotune"
    if server.compute_capability is not None and server.compute_capability[0] < 9:
        return "compute capability {}.{} is below 9.0".format(*server.compute_capability)
    if _on(args, "enable-deterministic-inference") and not _before(server.version, _IN_RUNNER):
        return "enable-deterministic-inference is set"
    return ""


def _doubt(server: Server, args: Mapping[str, Any], backend: str) -> str:
    if backend == "flashinfer_cutedsl" and _text(args, "moe-a2a-backend") == "deepep":
        return "flashinfer_cutedsl with deepep is not tuned"
    if _on(args, "disable-cuda-graph") and not _before(server.version, _IN_RUNNER):
        return "without CUDA graphs this release may tune nothing"
    if _on(args, "enable-kv-cache-sharding"):
        return "with enable-kv-cache-sharding nothing is tuned"
    return ""


def _text(args: Mapping[str, Any], name: str) -> str:
    value = args.get(name)
    if isinstance(value, (list, tuple)):
        value = value[0] if value else None
    return "" if value is None or isinstance(value, bool) else str(value)


def _on(args: Mapping[str, Any], name: str) -> bool:
    if name not in args:
        return False
    value = args[name]
    if isinstance(value, (list, tuple)):
        value = value[0] if value else True
    return value is True or str(value).lower() in ("true", "1", "yes")


def _before(version: str, other: str) -> bool:
    """Whether a release comes before another; a version that is no release counts as the newest."""
    try:
        return sort_key(version) < sort_key(other)
    except ReleaseError:
        return False
