# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The weight matrices of a model, from its shape: how large each is, in how many bits, and how ranks share it.

One list for both questions that need it: do the weights fit (memory_plan.py), and how many bytes does a token read
(roofline.py). For GLM-5.2 in bfloat16 the list adds up to the size in the published checkpoint's index
(1 506 659 919 872 bytes, draft layer included), but for 0.2 MB of small norms and router corrections.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole
from ansible_collections.tokforge.sglang.plugins.module_utils.model_shape import LinearAttention, ModelShape

#: How a matrix is shared. SPLIT: an equal part for each rank of attention or of the model. WHOLE: every rank has all
#: of it. KV_HEADS: whole heads, so that ranks beyond the number of heads repeat them. ROUTED: experts, or parts of
#: experts. EMBEDDING, HEAD: by rows of the vocabulary.
SPLIT_ATTENTION = "split attention"
SPLIT = "split"
WHOLE = "whole"
KV_HEADS = "kv heads"
ROUTED = "routed"
SHARED = "shared"
EMBEDDING = "embedding"
HEAD = "head"

#: More ranks than this are not believed.
MOST_RANKS = 4096


class LayoutError(ValueError):
    """Sizes of parallelism that contradict each other; the message says which."""


@dataclass(frozen=True)
class Layout:
    """How many ranks share a model, and how.

    tp: ranks of one pipeline stage. pp: stages. ep: groups that share the experts out among them (divides tp).
    dp: replicas; with `dp_attention` they are groups of the same tp ranks, without they are further GPUs.
    shared_whole: every rank has the whole shared experts, as with an all-to-all backend (read in 0.5.23).
    head_by_attention: --enable-dp-lm-head. Raises LayoutError.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    dp_attention: bool = False
    shared_whole: bool = False
    head_by_attention: bool = False

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "ep", "dp"):
            value = getattr(self, name)
            if not is_whole(value) or not 1 <= value <= MOST_RANKS:
                raise LayoutError(f"{name} is {value!r}; give a whole number from 1 to {MOST_RANKS}")
        if self.tp % self.ep:
            raise LayoutError(f"ep {self.ep} does not divide tp {self.tp}; choose an ep that does")
        if self.dp_attention and self.tp % self.dp:
            raise LayoutError(
                f"dp {self.dp} does not divide tp {self.tp}, as dp attention needs; choose a dp that does"
            )

    @property
    def attention_tp(self) -> int:
        """Ranks that share one attention."""
        return self.tp // self.dp if self.dp_attention else self.tp

    @property
    def expert_tp(self) -> int:
        """Ranks that share one expert."""
        return self.tp // self.ep

    @property
    def gpus(self) -> int:
        """GPUs of the whole deployment."""
        return self.tp * self.pp * (1 if self.dp_attention else self.dp)


@dataclass(frozen=True)
class Matrix:
    """One kind of matrix: its weights in one layer, the layers that have it, and bits per weight in each of these.

    layers: (0,) for the embedding, the last layer for the head, which is where a pipeline has them.
    copies: experts of a layer, 1 for everything else.
    """

    part: str
    module: str
    weights: int
    layers: tuple[int, ...]
    bits: tuple[float, ...]
    share: str
    copies: int = 1

    @property
    def total_bytes(self) -> float:
        """Bytes of all copies in all layers, all ranks together."""
        return self.copies * self.weights * sum(self.bits) / 8


@dataclass(frozen=True)
class Portion:
    """Weights of one layer that are shared in one way; bytes of all ranks together."""

    part: str
    share: str
    layer: int
    size_bytes: float


def matrices(shape: ModelShape) -> list[Matrix]:
    """All matrices of the text model, in the order of a forward pass. Draft layers are in `draft_matrices`."""
    everywhere = tuple(range(shape.layers))
    found = [_single(shape, "embedding", "model.embed_tokens", shape.vocab_size * shape.hidden_size, 0, EMBEDDING)]
    found += _attention(shape, everywhere)
    found += _feed_forward(shape, shape.dense_layer_ids, shape.moe_layer_ids)
    found.append(_of(shape, "norms", "input_layernorm", 2 * shape.hidden_size, everywhere, WHOLE))
    # A tied head is the embedding again: read by every token, kept once.
    found.append(_single(shape, "lm_head", "lm_head", shape.vocab_size * shape.hidden_size, shape.layers - 1, HEAD))
    return [matrix for matrix in found if matrix.weights and matrix.layers]


def parameters(shape: ModelShape) -> tuple[int, int]:
    """How many weights the text model has, and how many of them a token passes: its experts, its row of the embedding.

    Norms of queries and keys are left out, a few thousand a model.
    """
    every = active = 0
    for matrix in matrices(shape):
        one = matrix.weights * len(matrix.layers)
        if matrix.share == EMBEDDING:
            every, active = every + one, active + shape.hidden_size
        elif matrix.share == ROUTED:
            every, active = every + one * matrix.copies, active + one * shape.experts_per_token
        else:
            # A tied head is the embedding, which is counted above.
            every += 0 if matrix.share == HEAD and shape.tied_embeddings else one
            active += one
    return every, active


def draft_matrices(shape: ModelShape) -> list[Matrix]:
    """The draft layers for multi-token prediction: a layer of the model and what joins it. Their head is the model's.

    They are numbered on from the model's layers, and a checkpoint may leave them unquantized.
    """
    layers = tuple(range(shape.layers, shape.layers + shape.nextn_layers))
    if not layers:
        return []
    found = _attention(shape, layers, linear=False)
    found += _feed_forward(shape, () if shape.is_moe else layers, layers if shape.is_moe else ())
    found.append(_of(shape, "draft", "eh_proj", 2 * shape.hidden_size**2, layers, WHOLE))
    return [matrix for matrix in found if matrix.weights and matrix.layers]


def _attention(shape: ModelShape, layers: tuple[int, ...], linear: bool = True) -> list[Matrix]:
    hidden, heads = shape.hidden_size, shape.heads
    # Linear layers have no fixed place here: their sizes count, spread as the model spreads them.
    linear_count = shape.linear.layers if shape.linear and linear else 0
    full = _spread(layers, len(layers) - linear_count)
    found: list[tuple[str, int, tuple[int, ...], str]] = []
    if shape.is_mla:
        width = shape.qk_nope_head_dim + shape.qk_rope_head_dim
        if shape.q_lora_rank:
            found.append(("q_a_proj", hidden * shape.q_lora_rank, full, WHOLE))
            found.append(("q_b_proj", shape.q_lora_rank * heads * width, full, SPLIT_ATTENTION))
        else:
            found.append(("q_proj", hidden * heads * width, full, SPLIT_ATTENTION))
        latent = shape.kv_lora_rank
        found.append(("kv_a_proj_with_mqa", hidden * (latent + shape.qk_rope_head_dim), full, WHOLE))
        up = latent * heads * (shape.qk_nope_head_dim + shape.v_head_dim)
        found.append(("kv_b_proj", up, full, SPLIT_ATTENTION))
        found.append(("o_proj", heads * shape.v_head_dim * hidden, full, SPLIT_ATTENTION))
    else:
        query = heads * shape.head_dim * (2 if shape.gated_query else 1)
        found.append(("q_proj", hidden * query, full, SPLIT_ATTENTION))
        found.append(("k_proj", hidden * shape.kv_heads * shape.head_dim, full, KV_HEADS))
        found.append(("v_proj", hidden * shape.kv_heads * shape.v_head_dim, full, KV_HEADS))
        found.append(("o_proj", heads * shape.v_head_dim * hidden, full, SPLIT_ATTENTION))
    matrices_of = [_of(shape, "attention", f"self_attn.{name}", size, ids, share) for name, size, ids, share in found]
    norms = shape.q_lora_rank + shape.kv_lora_rank
    matrices_of.append(_of(shape, "norms", "self_attn.kv_a_layernorm", norms, full, WHOLE))
    if shape.index_heads:
        own = _spread(full, min(shape.index_layers, len(full)))
        source = shape.q_lora_rank or hidden
        for name, size in (
            ("wq_b", source * shape.index_heads * shape.index_head_dim),
            ("wk", hidden * shape.index_head_dim),
            ("weights_proj", hidden * shape.index_heads),
        ):
            matrices_of.append(_of(shape, "indexer", f"self_attn.indexer.{name}", size, own, WHOLE))
    if shape.linear and linear_count:
        others = tuple(layer for layer in layers if layer not in frozenset(full))
        matrices_of += _linear_attention(shape, shape.linear, others)
    return matrices_of


def _linear_attention(shape: ModelShape, linear: LinearAttention, layers: tuple[int, ...]) -> list[Matrix]:
    """Gated DeltaNet: queries, keys, values and a gate; two numbers a value head; a short convolution; the output."""
    hidden = shape.hidden_size
    keys = linear.key_heads * linear.key_head_dim
    values = linear.value_heads * linear.value_head_dim
    sizes = (
        ("in_proj_qkvz", hidden * 2 * (keys + values)),
        ("in_proj_ba", hidden * 2 * linear.value_heads),
        ("conv1d", (2 * keys + values) * linear.kernel),
        ("out_proj", values * hidden),
    )
    return [
        _of(shape, "linear attention", f"linear_attn.{name}", size, layers, SPLIT_ATTENTION) for name, size in sizes
    ]


def _feed_forward(shape: ModelShape, dense: tuple[int, ...], moe: tuple[int, ...]) -> list[Matrix]:
    hidden, count = shape.hidden_size, shape.mlp_matrices
    found = [_of(shape, "dense", "mlp.down_proj", count * hidden * shape.intermediate_size, dense, SPLIT)]
    if not moe:
        return found
    one = count * hidden * shape.moe_intermediate_size
    shared = count * hidden * shape.shared_intermediate_size
    return [
        *found,
        _of(shape, "router", "mlp.gate", hidden * shape.experts, moe, WHOLE),
        _of(shape, "experts", "mlp.experts.0.down_proj", one, moe, ROUTED, shape.experts),
        _of(shape, "shared experts", "mlp.shared_experts.down_proj", shared, moe, SHARED),
    ]


def _of(
    shape: ModelShape, part: str, module: str, weights: int, layers: tuple[int, ...], share: str, copies: int = 1
) -> Matrix:
    bits = tuple(shape.quant.bits(f"model.layers.{layer}.{module}", shape.dtype) for layer in layers)
    return Matrix(part, module, weights, layers, bits, share, copies)


def _single(shape: ModelShape, part: str, module: str, weights: int, layer: int, share: str) -> Matrix:
    return Matrix(part, module, weights, (layer,), (shape.quant.bits(module, shape.dtype),), share)


def _spread(layers: tuple[int, ...], count: int) -> tuple[int, ...]:
    """`count` of the layers, evenly spread, so that stages of a pipeline get their part of each kind."""
    total = len(layers)
    if count >= total:
        return layers
    return tuple(layers[(index + 1) * total // count - 1] for index in range(count))


# --- on a rank --------------------------------------------------------------------------------------------------------


def stages(layers: int, pp: int) -> list[range]:
    """The layers of each pipeline stage; the last stages take what is left over (read in 0.5.12.post1 and 0.5.23)."""
    size, left = divmod(layers, pp)
    found, start = [], 0
    for stage in range(pp):
        end = start + size + (stage >= pp - left)
        found.append(range(start, end))
        start = end
    return found


def fraction(share: str, shape: ModelShape, layout: Layout) -> float:
    """The part of a matrix that a rank holds, 1 for all of it."""
    if share == SPLIT_ATTENTION:
        return 1 / layout.attention_tp
    if share == KV_HEADS:
        return kv_heads_on_rank(shape, layout) / shape.kv_heads
    if share in (SPLIT, ROUTED):
        return 1 / layout.tp
    if share == SHARED:
        return 1.0 if layout.shared_whole else 1 / layout.tp
    if share == EMBEDDING:
        return 1.0 if layout.dp_attention else 1 / layout.tp
    if share == HEAD:
        return 1 / (layout.attention_tp if layout.head_by_attention else layout.tp)
    return 1.0


def kv_heads_on_rank(shape: ModelShape, layout: Layout) -> int:
    """Heads of keys and values on a rank: at least one, so more ranks than heads repeat them."""
    return max(1, -(-shape.kv_heads // layout.attention_tp))


def portions(found: Iterable[Matrix]) -> list[Portion]:
    """The matrices by layer, all copies together."""
    return [
        Portion(matrix.part, matrix.share, layer, matrix.copies * matrix.weights * bits / 8)
        for matrix in found
        for layer, bits in zip(matrix.layers, matrix.bits)
    ]


def rank_bytes(found: Iterable[Portion], shape: ModelShape, layout: Layout, layers: Iterable[int]) -> float:
    """Bytes that a rank of the stage with these layers holds. A head that is tied is kept once, as the embedding."""
    inside = frozenset(layers)
    total = 0.0
    for portion in found:
        tied = portion.share == HEAD and shape.tied_embeddings and 0 in inside
        if portion.layer in inside and not tied:
            total += portion.size_bytes * fraction(portion.share, shape, layout)
    return total
