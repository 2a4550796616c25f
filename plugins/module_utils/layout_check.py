# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Can a model be split over these ranks? The divisions that SGLang makes while it builds the model, and refuses.

Each would stop the start with an assertion or a ValueError after the imports (read in 0.5.12.post1 and 0.5.23: linear
layers, the fused experts, FP8 in blocks, NVFP4, check_quantized_moe_compatibility).
"""

from __future__ import annotations

from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, Finding
from ansible_collections.tokforge.sglang.plugins.module_utils.model_matrices import Layout
from ansible_collections.tokforge.sglang.plugins.module_utils.model_shape import ModelShape
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import World

#: Weights of NVFP4 that share a scale; a split may not cut through them.
_NVFP4_GROUP = 16

#: SGLang's names of formats whose scales are of groups in a row, which a split of rows may not cut.
_GROUPED = frozenset({"awq", "awq_marlin", "gptq", "gptq_marlin", "compressed-tensors", "auto-round"})


def layout_of(world: World) -> Layout:
    """How the ranks of a server share the model. Raises LayoutError."""
    return Layout(tp=world.tp, pp=world.pp, ep=world.ep, dp=world.dp, dp_attention=bool(world.dp_attention))


def refusals(shape: ModelShape, layout: Layout) -> list[tuple[str, str]]:
    """What does not divide: a sentence with the figures, and what to set."""
    return [*_attention(shape, layout), *_experts(shape, layout), *_widths(shape, layout)]


def check_layout(shape: ModelShape, layout: Layout) -> list[Finding]:
    """Findings about the split of a model; one OK when nothing stands against it."""
    found = [Finding(FAIL, "layout", message, remedy) for message, remedy in refusals(shape, layout)]
    split = f"tp {layout.tp}, pp {layout.pp}, ep {layout.ep}"
    return found or [Finding(OK, "layout", f"the model can be split with {split}")]


def _attention(shape: ModelShape, layout: Layout) -> list[tuple[str, str]]:
    found = []
    ranks = layout.attention_tp
    if shape.layers < layout.pp:
        found.append((f"pp {layout.pp} stages are more than the model's {shape.layers} layers", "choose a smaller pp"))
    if shape.heads % ranks:
        options = _divisors(shape.heads, ranks)
        found.append((f"{ranks} ranks do not divide the {shape.heads} attention heads", f"set tp to {options}"))
    elif not shape.is_mla and shape.kv_heads % ranks and ranks % shape.kv_heads:
        message = (
            f"{ranks} ranks neither divide the {shape.kv_heads} heads of keys and values nor are a multiple of them"
        )
        found.append((message, f"set tp to {_divisors(shape.kv_heads, ranks)} or a multiple of {shape.kv_heads}"))
    linear = shape.linear
    if linear and linear.value_heads and (linear.value_heads % ranks or linear.key_heads % ranks):
        message = (
            f"{ranks} ranks do not divide the {linear.key_heads} and {linear.value_heads} heads of linear attention"
        )
        found.append((message, f"set tp to {_divisors(linear.key_heads, ranks)}"))
    return found


def _experts(shape: ModelShape, layout: Layout) -> list[tuple[str, str]]:
    if not shape.is_moe:
        return [(f"ep {layout.ep} is for models with experts and this one has none", "set ep to 1")] * (layout.ep > 1)
    found = []
    if shape.experts % layout.ep:
        message = f"ep {layout.ep} does not divide the {shape.experts} experts"
        found.append((message, f"set ep to {_divisors(shape.experts, layout.ep)}"))
    if layout.tp > shape.experts:
        message = f"tp {layout.tp} is more than the {shape.experts} experts, which SGLang's models refuse"
        found.append((message, f"set tp to {shape.experts} or less"))
    width, ranks = shape.moe_intermediate_size, layout.expert_tp
    if width % ranks:
        message = f"an expert is {width} wide, which {ranks} ranks (tp {layout.tp} / ep {layout.ep}) do not divide"
        found.append((message, f"set ep so that tp / ep divides {width}"))
    elif ranks > 1 or shape.quant.block[0]:
        found += _scales(
            shape, width // ranks, f"an expert's part with tp {layout.tp} and ep {layout.ep}", "experts", layout
        )
    return found


def _widths(shape: ModelShape, layout: Layout) -> list[tuple[str, str]]:
    """The ordinary feed-forward layers and the shared experts, which are split over all ranks."""
    found = []
    parts = [("feed-forward", "dense", shape.intermediate_size if shape.dense_layer_ids else 0)]
    if not layout.shared_whole:
        parts.append(("shared expert", "shared_experts", shape.shared_intermediate_size))
    for name, part, width in parts:
        if width % layout.tp:
            found.append((f"a {name} is {width} wide, which tp {layout.tp} does not divide", "choose another tp"))
        elif width and layout.tp > 1:
            found += _scales(shape, width // layout.tp, f"a {name}'s part with tp {layout.tp}", part, layout)
    return found


def _scales(shape: ModelShape, width: int, what: str, part: str, layout: Layout) -> list[tuple[str, str]]:
    """Whether the split cuts through weights that share a scale. Parts that are not quantized have none."""
    if shape.weight_bits.get(part, 16) >= 16:
        return []
    rows = max(shape.quant.block)
    group = _NVFP4_GROUP if shape.quantization == "modelopt_fp4" else 0
    if shape.quantization in _GROUPED:
        group = shape.quant.group_size
    size = rows or group
    if not size or width % size == 0:
        return []
    kind = f"blocks of {shape.quant.block[0]} x {shape.quant.block[1]}" if rows else f"groups of {size}"
    remedy = "choose a smaller tp"
    if part == "experts" and layout.ep < layout.tp:
        remedy = f"set ep so that {shape.moe_intermediate_size} / (tp / ep) is a multiple of {size}, or a smaller tp"
    return [(f"{what} is {width} wide and {shape.quantization} has scales for {kind}", remedy)]


def _divisors(number: int, most: int) -> str:
    """The divisors of a number up to `most`, as words: the largest ones, which are what one wants."""
    found = [str(value) for value in range(1, min(number, most) + 1) if number % value == 0]
    return ", ".join(found[-5:][:-1]) + (" or " if len(found) > 1 else "") + found[-1]
