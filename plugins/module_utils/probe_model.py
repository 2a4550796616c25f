# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A model's config cut down to what one rank has of one MoE layer, for a trial on one GPU.

The kernels of a rank depend on hidden size, experts, width of an expert per rank, top-k, heads per rank and
quantization, and none of that changes here. Layers, and the vocabulary, only take memory and time. A model whose layers
have several kinds of attention keeps one layer of each kind, since SGLang makes a memory pool for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import model_shape
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole
from ansible_collections.tokforge.sglang.plugins.module_utils.model_shape import ModelShape, ShapeError
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import World

#: The one-batch runner asks with token numbers below 10000 (read in 0.5.6 to 0.5.23).
VOCABULARY = 16384
#: More kinds of layers than that are no kinds.
_MOST_KINDS = 4

_LAYERS = ("num_hidden_layers", "num_layers", "n_layers")
_HEADS = ("num_attention_heads", "n_heads", "n_head")
# Heads of linear attention, and groups that are shared out with them.
_LINEAR_HEADS = ("linear_num_key_heads", "linear_num_value_heads", "mamba_num_heads", "n_groups")
_DENSE_WIDTH = ("intermediate_size", "intermediate_size_mlp", "dense_intermediate_size")
_PATTERNS = ("hybrid_override_pattern", "index_topk_pattern")
# With these values every layer has experts.
_ALL_MOE: Mapping[str, Any] = {
    "first_k_dense_replace": 0,
    "moe_layer_num_skipped": 0,
    "num_dense_layers": 0,
    "moe_layer_freq": 1,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "interleave_moe_layer_step": 1,
    "expert_layer_period": 1,
    "expert_layer_offset": 0,
    "moe_layer_interval": 1,
    "moe_layer_start_index": 0,
}
# These may have one entry for text and one for pictures.
_BY_MODALITY = ("moe_layer_start_index", "moe_layer_end_index")
_DRAFTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules")
# Lists that are not one entry a layer, however long they are.
_NOT_PER_LAYER = frozenset({"architectures", "eos_token_id", "mrope_section", "quantization_config"})
_INTERVALS = ("full_attention_interval", "sliding_window_pattern")
_LAYER_NAME = re.compile(r"(?<![A-Za-z0-9_])layers\.(\d{1,5})(?!\d)")


class ProbeError(Exception):
    """There is no layer to try, or it cannot be cut out of this model; the text says why."""


@dataclass(frozen=True)
class OneLayer:
    """The cut config, hf_quant_config.json (None when the model has none) and what the config now says.

    `layers` are the numbers in the whole model of the layers that were kept.
    """

    config: dict[str, Any]
    quant: dict[str, Any] | None
    shape: ModelShape
    layers: tuple[int, ...]


def cut(config: Mapping[str, Any], quant: Mapping[str, Any] | None, world: World) -> OneLayer:
    """What one rank of `world` has of one MoE layer. Raises ProbeError."""
    try:
        whole = model_shape.read(config, quant)
    except ShapeError as error:
        raise ProbeError(str(error)) from error
    if not whole.is_moe:
        raise ProbeError("the model has no layer with experts")
    path = _text_path(config)
    kept = _kept_layers(_at(config, path), whole)
    text = _cut_layers(_at(config, path), whole, kept)
    _share_out(text, whole, world)
    made = _replaced(config, path, text)
    for part in [made, text] if path else [made]:
        for key in ("quantization_config", "compression_config"):
            if isinstance(part.get(key), Mapping):
                part[key] = renamed(part[key], kept)
    if "vocab_size" in made:
        made["vocab_size"] = VOCABULARY
    cut_quant = None if quant is None else renamed(quant, kept)
    try:
        shape = model_shape.read(made, cut_quant)
    except ShapeError as error:
        raise ProbeError(f"cutting one layer out of the model failed: {error}") from error
    if not shape.is_moe:
        raise ProbeError("cutting one layer out of the model failed: what is left has no experts")
    return OneLayer(made, cut_quant, shape, kept)


def _text_path(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys that lead to the text model's own ones."""
    for key in model_shape.TEXT_KEYS:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            return (key, "text_config") if isinstance(inner.get("text_config"), Mapping) else (key,)
    return ()


def _at(config: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    for key in path:
        config = config[key]
    return config


def _replaced(config: Mapping[str, Any], path: Sequence[str], text: dict[str, Any]) -> dict[str, Any]:
    if not path:
        return text
    return {**config, path[0]: _replaced(config[path[0]], path[1:], text)}


# --- layers ----------------------------------------------------------------------------------------------------------


def _kept_layers(text: Mapping[str, Any], shape: ModelShape) -> tuple[int, ...]:
    """The first MoE layer of each kind of attention, in the model's order."""
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        # Here a layer is attention, a state space or experts, and never two of them.
        first = {kind: pattern.index(kind) for kind in pattern[: shape.layers] if kind != "-"}
        return tuple(sorted(first.values()))[:_MOST_KINDS]
    kinds: dict[Any, int] = {}
    for layer in shape.moe_layer_ids:
        kinds.setdefault(_kind(text, layer, shape.layers), layer)
    return tuple(sorted(kinds.values()))[:_MOST_KINDS]


def _kind(text: Mapping[str, Any], layer: int, layers: int) -> Any:
    types = text.get("layer_types")
    if isinstance(types, list) and len(types) >= layers:
        return str(types[layer])
    flags = text.get("hybrid_layer_pattern")
    if isinstance(flags, list) and len(flags) >= layers:
        return str(flags[layer])
    for key in _INTERVALS:
        step = text.get(key)
        if is_whole(step) and step > 0:
            return (layer + 1) % step == 0
    return None


def _cut_layers(text: Mapping[str, Any], shape: ModelShape, kept: Sequence[int]) -> dict[str, Any]:
    count = len(kept)
    # In most families the last layer of each few is the one of the second kind.
    own: dict[str, Any] = {**_ALL_MOE, **dict.fromkeys(_DRAFTS, 0), **dict.fromkeys((*_LAYERS, *_INTERVALS), count)}
    own.update(moe_layer_end_index=count - 1, moe_layers=list(range(count)), vocab_size=VOCABULARY)
    own["moe_layers_enum"] = ",".join(str(layer) for layer in range(count))
    made = dict(text)
    for key, value in text.items():
        per_layer = isinstance(value, list) and shape.layers <= len(value) <= shape.layers + shape.nextn_layers
        if key in own:
            # Null and an empty list say that the model does not have it.
            if value or is_whole(value):
                made[key] = own[key]
            if isinstance(value, list) and key in _BY_MODALITY:
                made[key] = [own[key]] * len(value)
            elif isinstance(value, list) and key == "moe_layer_freq":
                made[key] = [1] * count
        elif per_layer and key not in _NOT_PER_LAYER:
            made[key] = [value[layer] for layer in kept]
        elif key in _PATTERNS and isinstance(value, str):
            made[key] = "".join(value[layer] for layer in kept if layer < len(value))
    return made


def renamed(quant: Mapping[str, Any], kept: Sequence[int]) -> dict[str, Any]:
    """A quantization's description with the kept layers' modules under their new numbers, and without the others'."""
    numbers = {layer: index for index, layer in enumerate(kept)}
    return {key: _renamed(value, numbers) for key, value in quant.items()}


def _renamed(value: Any, numbers: Mapping[int, int]) -> Any:
    if isinstance(value, Mapping):
        names = {key: _renamed_name(key, numbers) for key in value}
        return {names[key]: _renamed(inner, numbers) for key, inner in value.items() if names[key] is not None}
    if isinstance(value, list):
        entries = [_renamed_name(entry, numbers) if isinstance(entry, str) else entry for entry in value]
        return [_renamed(entry, numbers) for entry in entries if entry is not None]
    return value


def _renamed_name(name: Any, numbers: Mapping[int, int]) -> Any:
    """The module's new name, None for one of a layer that is gone; anything that names no layer stays."""
    found = _LAYER_NAME.search(name) if isinstance(name, str) else None
    if found is None:
        return name
    number = numbers.get(int(found[1]))
    return None if number is None else f"{name[: found.start(1)]}{number}{name[found.end(1) :]}"


# --- what one rank has -----------------------------------------------------------------------------------------------


def attention_ranks(world: World) -> int:
    """Over how many ranks the heads of attention are shared out."""
    copies = world.dp if world.dp_attention else 1
    return max(1, world.tp // (copies * world.attn_cp))


def expert_ranks(world: World) -> int:
    """Over how many ranks the width of an expert is shared out."""
    return max(1, world.tp // (world.ep * world.moe_dp))


def _share_out(text: dict[str, Any], whole: ModelShape, world: World) -> None:
    """Leave one rank's part of heads, experts and widths in place."""
    heads, width = attention_ranks(world), expert_ranks(world)
    if not whole.is_mla and "head_dim" not in text and whole.head_dim:
        # It would follow from the number of heads otherwise.
        text["head_dim"] = whole.head_dim
    _divide(text, _HEADS, heads, "heads")
    # Where there are fewer of them than ranks, each rank has a copy of one.
    _divide(text, (*model_shape.KV_HEADS, *_LINEAR_HEADS), heads, "heads", least_one=True)
    inner = text.get("attn_config")
    if isinstance(inner, Mapping):
        text["attn_config"] = {**inner}
        _divide(text["attn_config"], ("kv_n_heads",), heads, "heads", least_one=True)
    parts = [text]
    if isinstance(text.get("ffn_config"), Mapping):
        text["ffn_config"] = {**text["ffn_config"]}
        parts.append(text["ffn_config"])
    for part in parts:
        own_width = [key for key in model_shape.EXPERT_WIDTH if part.get(key) is not None]
        own_width = own_width or [key for key in ("ffn_hidden_size",) if part is not text and part.get(key) is not None]
        _divide(part, model_shape.EXPERTS, world.ep, "experts")
        _divide(part, own_width or (("intermediate_size",) if part is text else ()), width, "the width of an expert")
        # No layer has a plain feed-forward any more, so its width may be anything.
        _divide(part, [key for key in _DENSE_WIDTH if own_width or key != "intermediate_size"], world.tp, "", True)
        _divide(part, model_shape.SHARED_WIDTH, world.tp, "the width of the shared experts")
    _fit_routing(text, parts)


def _divide(part: dict[str, Any], keys: Iterable[str], by: int, what: str, least_one: bool = False) -> None:
    for key in keys:
        value = part.get(key)
        given = value if isinstance(value, list) else [value]
        values = [one for one in given if is_whole(one)]
        if by == 1 or len(values) < len(given):
            continue
        odd = next((one for one in values if one % by), None)
        if odd is not None and not least_one:
            raise ProbeError(f"{key} {odd} cannot be shared out: {what} of one of {by} ranks would be no whole number")
        shared = [max(1, one // by) for one in values]
        part[key] = shared if isinstance(value, list) else shared[0]


def _fit_routing(text: dict[str, Any], parts: Sequence[dict[str, Any]]) -> None:
    """Top-k and groups that the experts of one rank allow."""
    experts = next((part[key] for part in parts for key in model_shape.EXPERTS if is_whole(part.get(key))), 0)
    for part in parts:
        for key in model_shape.TOP_K:
            if is_whole(part.get(key)):
                part[key] = min(part[key], experts)
    groups = text.get("n_group")
    if is_whole(groups) and groups > 1 and experts % groups:
        text["n_group"] = text["topk_group"] = 1
