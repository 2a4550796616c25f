# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a measurement is taken on: the hardware by name, the GPUs a server has, and how fast these could decode.

Looks, and never raises: what cannot be found out is unknown in the record.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    gpu_look,
    host_cpus,
    model_shape,
    ranks,
    releases,
    roofline,
    served_shape,
    visible_gpus,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import Parameters
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu, Report
from ansible_collections.tokforge.sglang.plugins.module_utils.layout_check import layout_of
from ansible_collections.tokforge.sglang.plugins.module_utils.model import ModelError
from ansible_collections.tokforge.sglang.plugins.module_utils.model_matrices import Layout, LayoutError

UNKNOWN = "unknown"
CPUINFO = "/proc/cpuinfo"
_MODEL_NAME = re.compile(r"^(?:model name|Hardware|cpu model)[ \t]*:[ \t]*(\S.*)$", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True)
class Machine:
    """The hardware that a server runs on. `gpus` are those it takes, empty on a CPU."""

    hardware: str
    gpus: tuple[Gpu, ...] = ()


def look(args: Mapping[str, Any], env: Mapping[str, Any], report: Report | None = None) -> Machine:
    """The machine under a server with these launch arguments and environment; `report` is for tests."""
    named = {releases.canonical(str(name)): value for name, value in args.items()}
    if named.get("device") == "cpu":
        return Machine(cpu_name(_text(CPUINFO), host_cpus.look().count or 1))
    found = report if report is not None else gpu_look.look()
    if not found.gpus:
        return Machine(UNKNOWN)
    count = layout(named).gpus or 1
    # A number in an inventory is a number here, and a text in the server's environment.
    taken = visible_gpus.used(found.gpus, {name: str(value) for name, value in env.items()}, named, count)
    numbers = taken.numbers if taken.numbers is not None else tuple(range(count))
    gpus = tuple(one for one in found.gpus if one.index in numbers)
    return Machine(gpu_name(gpus), gpus) if gpus else Machine(UNKNOWN)


def layout(args: Mapping[str, Any]) -> Layout:
    """How the ranks share the model; one rank where the arguments do not say it in a way that can be read."""
    try:
        return layout_of(ranks.world_from_args(args))
    except (ranks.RanksError, LayoutError):
        return Layout()


def gpu_name(gpus: Sequence[Gpu]) -> str:
    """GPUs in a few words, equal for equal ones: "8x NVIDIA H200 (cc 9.0, 140 GiB)"."""
    kinds: dict[str, int] = {}
    for one in gpus:
        told = [f"cc {one.compute_capability[0]}.{one.compute_capability[1]}"] if one.compute_capability else []
        if one.memory_total_bytes:
            told.append(f"{one.memory_total_bytes / 2**30:.0f} GiB")
        name = f"{one.name} ({', '.join(told)})" if told else one.name
        kinds[name] = kinds.get(name, 0) + 1
    return " + ".join(f"{count}x {name}" for name, count in kinds.items())


def cpu_name(cpuinfo: str, cores: int) -> str:
    """A processor in a few words: "CPU AMD EPYC, 2 cores". `cores` are those that this machine may use."""
    found = _MODEL_NAME.search(cpuinfo)
    name = " ".join(found.group(1).split()) if found else "of unknown model"
    return f"CPU {name}, {cores} core{'' if cores == 1 else 's'}"


def ceilings(machine: Machine, args: Mapping[str, Any], model_path: str, parameters: Parameters) -> dict[int, float]:
    """Concurrency -> output tok/s that the GPUs' memory allows at most (roofline.py); empty where it is not known.

    Half of an answer lies behind its tokens on average.
    """
    bandwidths = [one.memory_bandwidth_bytes_s for one in machine.gpus]
    known = [one for one in bandwidths if one]
    if not known or len(known) < len(bandwidths):
        return {}
    named = {releases.canonical(str(name)): value for name, value in args.items()}
    behind = parameters.input_len + parameters.output_len // 2
    try:
        shape = served_shape.of_directory(model_path, named).shape
        dtype = str(named.get("kv-cache-dtype") or "auto")
        bounds = {
            value: roofline.roofline(shape, layout(named), float(min(known)), behind, value, dtype)
            for value in parameters.concurrency
        }
    except (ModelError, model_shape.ShapeError, ValueError):
        return {}
    return {value: bound.ceiling_tok_s for value, bound in bounds.items() if bound.ceiling_tok_s}


def model_facts(args: Mapping[str, Any], model_path: str) -> dict[str, Any] | None:
    """The shape of the model that a server with these launch arguments has; None where it is not known."""
    named = {releases.canonical(str(name)): value for name, value in args.items()}
    try:
        return served_shape.facts(served_shape.of_directory(model_path, named).shape)
    except (ModelError, model_shape.ShapeError):
        return None


def roofline_share(ceiling_tok_s: float | None, output_tok_s: Any) -> dict[str, float] | None:
    """A measured rate as a part of the ceiling, 0.15 for 15 %; None where one of the two is not known."""
    try:
        share = roofline.share(output_tok_s, ceiling_tok_s)
    except (ValueError, TypeError):
        return None
    if share is None or ceiling_tok_s is None:
        return None
    return {"ceiling_tok_s": round(ceiling_tok_s, 1), "share": round(share, 4)}


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(1 << 20)
    except OSError:
        return ""
