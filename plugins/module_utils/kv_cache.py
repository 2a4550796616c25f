# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bytes that a token takes in the cache of keys and values, and a request in the state of linear attention.

Sizes are those of SGLang's pools (read in 0.5.12.post1 and 0.5.23). A server of GLM-5 with 8 ranks and a bfloat16 cache
reported 29.32 GiB for 314 304 tokens (local-inference-lab/rtx6kpro, models/glm5.md); the 100 152 bytes a token that
come out here are the same 29.32 GiB.
"""

from __future__ import annotations

from ansible_collections.tokforge.sglang.plugins.module_utils.model_matrices import Layout, kv_heads_on_rank
from ansible_collections.tokforge.sglang.plugins.module_utils.model_shape import ModelShape

#: Bits of an element for each value of --kv-cache-dtype. "auto" is the checkpoint's wish, or the type of the model.
BITS = {
    "bf16": 16,
    "bfloat16": 16,
    "float16": 16,
    "fp8_e5m2": 8,
    "fp8_e4m3": 8,
    "mxfp8": 8,
    "fp4_e2m1": 4,
}

#: The indexer keeps its keys in 8 bits, with a scale of 4 bytes for 128 of them.
INDEX_BLOCK = 128

#: FP8 caches of models with sparse attention have scales too, and their rotary part stays in 16 bits.
SPARSE_BLOCK = 128

#: FP4 caches have a scale of one byte for 16 elements, MXFP8 for 32.
FP4_BLOCK = 16
MXFP8_BLOCK = 32

#: Tokens of a layer with a sliding window for each token of the others (default of --swa-full-tokens-ratio).
SLIDING_RATIO = 0.8

#: Bytes of an element of the state of linear attention, and of its convolution.
STATE_BYTES = 4
CONVOLUTION_BYTES = 2


def dtype_of(shape: ModelShape, asked: str) -> str:
    """The cache's type: what is asked for, or for "auto" what the checkpoint wants."""
    if asked not in ("", "auto"):
        return asked
    return {"fp8": "fp8_e4m3"}.get(shape.quant.kv_cache, "bfloat16")


def layer_bytes(shape: ModelShape, layout: Layout, dtype: str) -> float:
    """Bytes of one token in one layer with attention, on one rank. An unknown type counts as 16 bits."""
    bits = BITS.get(dtype, 16)
    if shape.is_mla:
        # Every rank has the whole latent vector.
        latent, rotary = shape.kv_lora_rank, shape.qk_rope_head_dim
        if bits == 8 and shape.index_heads:
            return latent + latent / SPARSE_BLOCK * 4 + rotary * 2
        elements = latent + rotary
    else:
        elements = kv_heads_on_rank(shape, layout) * (shape.head_dim + shape.v_head_dim)
    scales = elements / FP4_BLOCK if bits == 4 else elements / MXFP8_BLOCK if dtype == "mxfp8" else 0
    return elements * bits / 8 + scales


def index_bytes(shape: ModelShape) -> float:
    """Bytes of one token in the indexer's cache of one layer; 0 without sparse attention."""
    return shape.index_head_dim + shape.index_head_dim // INDEX_BLOCK * 4 if shape.index_heads else 0.0


def token_bytes(shape: ModelShape, layout: Layout, dtype: str, layers: int, draft_layers: int = 0) -> float:
    """Bytes that one token takes on a rank that has `layers` of the model's layers, and draft layers.

    All layers of a model with sparse attention count with an indexer's cache: releases before 0.5.23 keep one for each.
    """
    full = layers * shape.attention_layers / shape.layers
    sliding = full * shape.sliding_layers / shape.attention_layers if shape.attention_layers else 0.0
    counted = full - sliding + sliding * SLIDING_RATIO + draft_layers
    return counted * (layer_bytes(shape, layout, dtype) + index_bytes(shape))


def state_bytes(shape: ModelShape, layout: Layout, layers: int) -> float:
    """Bytes of one request's state in linear attention, on a rank that has `layers` of the model's layers."""
    linear = shape.linear
    if linear is None:
        return 0.0
    keys, values = linear.key_heads * linear.key_head_dim, linear.value_heads * linear.value_head_dim
    state = values * linear.key_head_dim * STATE_BYTES
    convolution = (2 * keys + values) * max(0, linear.kernel - 1) * CONVOLUTION_BYTES
    return layers * linear.layers / shape.layers * (state + convolution) / layout.attention_tp


def read_bytes(shape: ModelShape, layout: Layout, dtype: str, context: int) -> float:
    """Bytes of the cache that a new token reads on one rank after `context` tokens, in all layers and the indexers.

    With sparse attention a token reads the chosen tokens only, and the indexer's keys of all. With a sliding window it
    reads the window. Linear attention reads its state.
    """
    full = shape.attention_layers - shape.sliding_layers
    seen = min(context, shape.index_topk) if shape.index_topk else context
    window = min(context, shape.sliding_window) if shape.sliding_window else context
    layer = layer_bytes(shape, layout, dtype)
    attention = layer * (full * seen + shape.sliding_layers * window)
    return attention + index_bytes(shape) * shape.index_layers * context + state_bytes(shape, layout, shape.layers)
