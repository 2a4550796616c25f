# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which part of a checkpoint's tensors each rank holds, told from the tensors' names.

Exact where headers were read (weight_index.py): names say what is split over the ranks and what every rank has whole.
Names are those of published checkpoints; a name that says nothing counts as whole, which errs to more memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ansible_collections.tokforge.sglang.plugins.module_utils import model_matrices
from ansible_collections.tokforge.sglang.plugins.module_utils.model_matrices import Portion
from ansible_collections.tokforge.sglang.plugins.module_utils.model_shape import ModelShape
from ansible_collections.tokforge.sglang.plugins.module_utils.weight_index import Tensor

_NUMBER = re.compile(r"[0-9]+")

_LAYER = re.compile(r"\b(?:layers|h|blocks)\.([0-9]{1,6})\.")

#: A tower for pictures or sound: its layers are none of the text model's.
_TOWER = re.compile(r"(^|\.)(visual|vision\w*|vit|audio\w*|\w*projector|multi_modal\w*|image_newline|sound\w*)\.")

_DRAFT = re.compile(r"(^|\.)(mtp\w*|nextn\w*|draft\w*)\.")

#: In this order; the first that a name has decides. The second value is the way of sharing, the first the part.
_RULES: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (part, share, re.compile(pattern))
    for part, share, pattern in (
        ("norms", model_matrices.WHOLE, r"norm"),
        ("embedding", model_matrices.EMBEDDING, r"(^|\.)(embed_tokens|wte|word_embeddings|tok_embeddings)\."),
        ("lm_head", model_matrices.HEAD, r"(^|\.)lm_head\."),
        ("router", model_matrices.WHOLE, r"\.(gate|router|shared_expert_gate)\.|correction_bias|\.expert_bias"),
        ("shared experts", model_matrices.SHARED, r"\.(shared_experts?|share_expert|shared_mlp)\."),
        ("experts", model_matrices.ROUTED, r"\.experts\b"),
        ("indexer", model_matrices.WHOLE, r"\.indexer\."),
        ("attention", model_matrices.WHOLE, r"\.(q_a_proj|kv_a_proj\w*)\."),
        ("attention", model_matrices.KV_HEADS, r"attn\w*\.(k_proj|v_proj)\."),
        ("linear attention", model_matrices.SPLIT_ATTENTION, r"\.linear_attn\."),
        ("attention", model_matrices.SPLIT_ATTENTION, r"attn|attention"),
        ("dense", model_matrices.SPLIT, r"\.(mlp|feed_forward|block_sparse_moe|ffn\w*)\."),
    )
)


def portions(tensors: Iterable[Tensor], shape: ModelShape) -> tuple[list[Portion], list[Portion]]:
    """The model's portions and those of its draft layers, with bytes as stored.

    What belongs to no layer counts in the first, or in the last for the head; draft layers are numbered on.
    """
    known: dict[str, tuple[str, str]] = {}
    sums: dict[tuple[bool, str, str, int], int] = {}
    for tensor in tensors:
        pattern = _NUMBER.sub("#", tensor.name)
        kind = known.get(pattern)
        if kind is None:
            kind = known[pattern] = _kind(tensor.name)
        part, share = kind
        number = _LAYER.search(tensor.name)
        layer = int(number.group(1)) if number and part != "tower" else 0
        draft = part != "tower" and (layer >= shape.layers or _DRAFT.search(tensor.name) is not None)
        if share == model_matrices.HEAD:
            layer = shape.layers - 1
        if draft:
            layer = max(layer, shape.layers)
        key = (draft, part, share, layer)
        sums[key] = sums.get(key, 0) + tensor.size_bytes
    found: tuple[list[Portion], list[Portion]] = ([], [])
    for (draft, part, share, layer), size in sums.items():
        found[draft].append(Portion(part, share, layer, float(size)))
    return found


def _kind(name: str) -> tuple[str, str]:
    if _TOWER.search(name):
        return "tower", model_matrices.WHOLE
    return next(((part, share) for part, share, rule in _RULES if rule.search(name)), ("other", model_matrices.WHOLE))
