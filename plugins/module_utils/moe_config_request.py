# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a question about tuning files asks: explicit values first, then launch arguments, then the model's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import moe_config
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole
from ansible_collections.tokforge.sglang.plugins.module_utils.model_shape import ModelShape
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config import Format, Layer, MoeConfigError
from ansible_collections.tokforge.sglang.plugins.module_utils.moe_config_path import AUTO, Setup
from ansible_collections.tokforge.sglang.plugins.module_utils.releases import canonical, sort_key

# The flags that matter, each by all its names.
FLAGS = {
    "tp": ("tp-size", "tp", "tensor-parallel-size"),
    "ep": ("ep-size", "ep", "expert-parallel-size"),
    "moe_dp": ("moe-dp-size", "moe-dp", "moe-data-parallel-size"),
    "redundant": ("ep-num-redundant-experts",),
    "backend": ("moe-runner-backend",),
    "a2a": ("moe-a2a-backend",),
    "quantization": ("quantization",),
    "dtype": ("dtype",),
    "unfused": ("disable-shared-experts-fusion",),
    "deterministic": ("enable-deterministic-inference",),
}
# A mixture with so many experts is the one whose shared expert every release fuses (DeepSeek-V3 and R1).
FUSING = ("DeepseekV3ForCausalLM", 256, 1)


@dataclass(frozen=True)
class Request:
    """What is given; empty or None for what is not. `args` are launch arguments, `shape` the model's.

    `settings` is `quantization_config` of the model's config.json. `experts` and `intermediate_size` stand in for a
    model. `fused_shared`: how many shared experts count as experts.
    """

    release: str
    backend: str = ""
    quantization: str | None = None
    capability: tuple[int, int] | None = None
    tp: int | None = None
    ep: int | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    shape: ModelShape | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    experts: int | None = None
    intermediate_size: int | None = None
    fused_shared: int | None = None
    block_shape: tuple[int, ...] | None = None
    per_channel: bool | None = None


@dataclass(frozen=True)
class Question:
    """The same, resolved. `layer` is None for a model without experts; `kept` when it is not known how weights lie.

    `shared` is the number of shared experts that may be counted as experts, 0 when that is known.
    """

    setup: Setup
    layer: Layer | None
    kept: Format | None
    shared: int = 0


def resolve(given: Request) -> Question:
    """What is asked. Raises MoeConfigError for values that cannot be, ReleaseError for a name that is no release."""
    sort_key(given.release)
    flags = _flags(given.args)
    shape = given.shape
    quantization = given.quantization if given.quantization is not None else flags["quantization"]
    if quantization is None:
        quantization = shape.quantization if shape else ""
    if quantization == "modelopt" and shape is not None:
        # The flag's general word; which kind it is stands in the checkpoint.
        quantization = shape.quantization
    quantization = "" if quantization in ("none", "unquant") else quantization.replace("_tensors", "-tensors")
    ep = _first(given.ep, _number("ep", flags["ep"]), 1)
    setup = Setup(
        release=given.release,
        backend=given.backend or flags["backend"] or AUTO,
        quantization=quantization,
        capability=given.capability,
        a2a=flags["a2a"] or "none",
        ep=ep,
        architecture=shape.architecture if shape else "",
        deterministic=_truth(flags["deterministic"]),
    )
    experts = given.experts if given.experts is not None else shape.experts if shape else None
    if experts is None:
        raise MoeConfigError("neither a model nor a number of experts is given; give model, or experts")
    if experts == 0:
        return Question(setup, None, None)
    size = (
        given.intermediate_size if given.intermediate_size is not None else shape.moe_intermediate_size if shape else 0
    )
    fused = _fused(given, setup, _truth(flags["unfused"]))
    layer = Layer(
        experts=experts,
        intermediate_size=size,
        tp=_first(given.tp, _number("tp", flags["tp"]), 1),
        ep=ep,
        moe_dp=_first(None, _number("moe_dp", flags["moe_dp"]), 1),
        fused_shared=fused or 0,
        redundant=_first(None, _number("redundant", flags["redundant"]), 0),
    )
    layer.check()
    kept = _kept(given, setup, flags["dtype"])
    shared = shape.shared_experts if shape and fused is None else 0
    return Question(replace(setup, kept_known=kept is not None), layer, kept, shared)


def _kept(given: Request, setup: Setup, dtype: str | None) -> Format | None:
    """How the weights lie; what is given explicitly wins over what the model says."""
    settings = dict(given.settings)
    if given.block_shape is not None:
        settings["weight_block_size"] = list(given.block_shape)
    kept = moe_config.weight_format(setup.quantization, settings, dtype or "")
    if kept is None and setup.quantization == "compressed-tensors" and given.per_channel is not None:
        kept = Format("fp8_w8a8")
    if kept is None or given.per_channel is None:
        return kept
    return Format(kept.dtype, kept.block, given.per_channel, kept.packed)


def _fused(given: Request, setup: Setup, unfused: bool) -> int | None:
    """How many shared experts are counted as experts; None where the releases and models differ."""
    if given.fused_shared is not None:
        return given.fused_shared
    shape = given.shape
    if shape is None or shape.shared_experts == 0 or unfused:
        return 0
    if (shape.architecture, shape.experts, shape.shared_experts) != FUSING:
        return None
    # With expert parallelism no release fuses it on NVIDIA GPUs, and none does before compute capability 8.0.
    old = setup.capability is not None and setup.capability < (8, 0)
    return 0 if setup.ep > 1 or old or setup.quantization == "w4afp8" else 1


def _flags(args: Mapping[str, Any]) -> dict[str, str | None]:
    """The flags that matter as texts, None for those that are not given. Raises MoeConfigError for lists."""
    given = {canonical(str(name)): (str(name), value) for name, value in args.items()}
    found: dict[str, str | None] = {}
    for key, names in FLAGS.items():
        written, value = next((given[name] for name in names if name in given), ("", None))
        huge = is_whole(value) and value.bit_length() > 64
        if huge or isinstance(value, (Mapping, list, tuple, float)) or (isinstance(value, str) and not value.strip()):
            raise MoeConfigError(f"args: {written} is {_short(value)}; give one word or number")
        found[key] = None if value is None else str(value).strip()
    return found


def _number(key: str, value: str | None) -> int | None:
    if value is None:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise MoeConfigError(f"args: {FLAGS[key][0]} is {_short(value)}; give a whole number")
    return int(value)


def _truth(value: str | None) -> bool:
    return value is not None and value.lower() in ("true", "1", "yes")


def _first(given: int | None, flag: int | None, default: int) -> int:
    return given if given is not None else flag if flag is not None else default


def _short(value: Any) -> str:
    # A number of thousands of digits cannot even be written.
    shown = "a huge number" if is_whole(value) and value.bit_length() > 64 else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
