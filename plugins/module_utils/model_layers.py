# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which layers of a model are of which kind: with experts, a sliding window, linear attention, an indexer.

Each family has its own keys for it; the rules are those of SGLang's models (read in 0.5.23).
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils.config_values import MOST_LAYERS, Values
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole


@dataclass(frozen=True)
class Kinds:
    """How many layers have attention over a sliding window, and how many linear attention."""

    sliding: int
    linear: int


def moe_layers(text: Values, layers: int, experts: int, unknown: list[str]) -> tuple[int, ...]:
    """The numbers of the layers with experts. Raises ShapeError for lists that do not fit the layers.

    What is left to a guess goes into `unknown`.
    """
    every = range(layers)
    if not experts:
        return ()
    listed = _listed(text, layers)
    if listed is not None:
        return listed
    if text.present("moe_layer_start_index", "moe_layer_interval"):
        return _ernie(text, layers)
    if text.present("interleave_moe_layer_step"):
        step = text.whole("interleave_moe_layer_step", 0)
        return tuple(layer for layer in every if not step or (layer + 1) % step == 0)
    if text.present("expert_layer_period"):
        period, offset = text.whole("expert_layer_period"), text.optional("expert_layer_offset")
        return tuple(layer for layer in every if layer % period == offset % period)
    if text.present("decoder_sparse_step", "mlp_only_layers"):
        step = text.optional("decoder_sparse_step", default=1, least=1)
        plain = frozenset(text.numbers("mlp_only_layers") if text.data.get("mlp_only_layers") else ())
        return tuple(layer for layer in every if layer not in plain and (layer + 1) % step == 0)
    first = text.optional("first_k_dense_replace", "moe_layer_num_skipped", "num_dense_layers")
    if first > layers:
        key = text.present("first_k_dense_replace", "moe_layer_num_skipped", "num_dense_layers")
        raise text.error(key, f"at most the {layers} layers that there are")
    step = text.optional("moe_layer_freq", default=1, least=1)
    return tuple(layer for layer in range(first, layers) if layer % step == 0)


def _listed(text: Values, layers: int) -> tuple[int, ...] | None:
    """The layers with experts where the config lists them, None where it does not."""
    if text.data.get("mlp_layer_types") is not None:
        kinds = _per_layer(text, "mlp_layer_types", layers)
        return tuple(layer for layer, kind in enumerate(kinds) if kind != "dense")
    if isinstance(text.data.get("moe_layer_freq"), list):
        flags = text.numbers("moe_layer_freq")
        if len(flags) != layers:
            raise text.error("moe_layer_freq", f"one entry for each of {layers} layers, not {len(flags)}")
        return tuple(layer for layer, flag in enumerate(flags) if flag)
    if text.data.get("moe_layers_enum") is not None:
        enum = text.word("moe_layers_enum")
        numbers = [part.strip() for part in enum.split(",")] if len(enum) <= 8 * MOST_LAYERS else []
        if not numbers or not all(part.isascii() and part.isdigit() and len(part) < 9 for part in numbers):
            raise text.error("moe_layers_enum", "layer numbers with commas between them")
        return _within(text, "moe_layers_enum", tuple(sorted({int(part) for part in numbers})), layers)
    if text.data.get("moe_layers"):
        return _within(text, "moe_layers", tuple(sorted(set(text.numbers("moe_layers")))), layers)
    if text.data.get("hybrid_override_pattern") is not None:
        pattern = text.word("hybrid_override_pattern")
        return tuple(layer for layer, kind in enumerate(pattern[:layers]) if kind == "E")
    if isinstance(text.data.get("is_moe_layer"), list):
        flags_of = text.data["is_moe_layer"]
        if len(flags_of) != layers or not all(isinstance(flag, bool) or is_whole(flag) for flag in flags_of):
            raise text.error("is_moe_layer", f"true or false for each of {layers} layers")
        return tuple(layer for layer, flag in enumerate(flags_of) if flag)
    return None


def _within(text: Values, key: str, numbers: tuple[int, ...], layers: int) -> tuple[int, ...]:
    # Step-3.5 lists its draft layers as well; only numbers far outside are a contradiction.
    inside = tuple(number for number in numbers if number < layers)
    if not inside:
        raise text.error(key, f"numbers of the {layers} layers that there are")
    return inside


def _ernie(text: Values, layers: int) -> tuple[int, ...]:
    """Ernie 4.5 gives first, last and interval; -1 means the last layer, and a list has the text experts first."""

    def number(key: str, default: int) -> int:
        value = text.data.get(key)
        value = value[0] if isinstance(value, list) and value else value
        if value is None:
            return default
        if not is_whole(value) or not -1 <= value <= MOST_LAYERS:
            raise text.error(key, "a layer's number, or -1 for the last")
        return layers - 1 if value == -1 else value

    first, last = number("moe_layer_start_index", 0), number("moe_layer_end_index", layers - 1)
    step = text.optional("moe_layer_interval", default=1, least=1)
    return tuple(layer for layer in range(layers) if first <= layer <= last and (layer - first) % step == 0)


def _per_layer(text: Values, key: str, layers: int) -> tuple[str, ...]:
    """A list of one text a layer; what a checkpoint has for its draft layers beyond them is left out."""
    kinds = text.words(key)
    if len(kinds) < layers:
        raise text.error(key, f"one entry for each of {layers} layers, not {len(kinds)}")
    return kinds[:layers]


def attention_kinds(text: Values, layers: int) -> Kinds:
    """How many layers see a sliding window only, and how many have linear attention."""
    if text.data.get("layer_types") is not None:
        kinds = _per_layer(text, "layer_types", layers)
        return Kinds(
            sum(kind in ("sliding_attention", "chunked_attention") for kind in kinds) if _window(text) else 0,
            sum(kind in ("linear_attention", "mamba") for kind in kinds),
        )
    if text.present("full_attention_interval"):
        interval = text.whole("full_attention_interval")
        return Kinds(0, layers - layers // interval)
    if isinstance(text.data.get("hybrid_layer_pattern"), list) and _window(text):
        flags = text.numbers("hybrid_layer_pattern")
        return Kinds(sum(flag == 1 for flag in flags[:layers]), 0)
    if text.present("sliding_window_pattern") and _window(text):
        return Kinds(layers - layers // text.whole("sliding_window_pattern"), 0)
    return Kinds(0, 0)


def _window(text: Values) -> bool:
    # Qwen writes a window and switches it off.
    return text.optional("sliding_window") > 0 and text.truth("use_sliding_window", True)


def indexers(text: Values, layers: int) -> int:
    """How many layers of a model with sparse attention have an indexer of their own; the others use their forerunner's.

    Keys and order as SGLang reads them (dsa_layer_skips_topk in 0.5.23).
    """
    if text.data.get("indexer_types") is not None:
        return sum(kind != "shared" for kind in _per_layer(text, "indexer_types", layers))
    pattern = text.data.get("index_topk_pattern")
    if pattern is not None:
        if not isinstance(pattern, str):
            raise text.error("index_topk_pattern", "a text with one letter a layer")
        return sum(not (layer < len(pattern) and pattern[layer] == "S") for layer in range(layers))
    step = text.optional("index_topk_freq", default=1, least=1)
    offset = text.optional("index_skip_topk_offset", default=2, least=1)
    return sum(max(layer - offset + 1, 0) % step == 0 for layer in range(layers))
