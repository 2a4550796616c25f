# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape of a model, read from its config.json: layers, experts, attention, vocabulary, quantization.

Families name the same thing differently (n_routed_experts, num_experts, num_local_experts, moe_num_experts ...), and
models with pictures keep the text model one level down. An architecture that is not known here is read by its keys;
what those do not tell is listed in `ModelShape.unknown`. The key names are those that SGLang's own models read
(0.5.12.post1 and 0.5.23).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import model_layers, model_quantization
from ansible_collections.tokforge.sglang.plugins.module_utils.config_values import MOST_LAYERS, ShapeError, Values
from ansible_collections.tokforge.sglang.plugins.module_utils.model_quantization import Quantization

__all__ = ["LinearAttention", "ModelShape", "ShapeError", "read"]

#: Where the text model's own keys are, in the order in which SGLang looks (read in 0.5.23).
TEXT_KEYS = ("thinker_config", "llm_config", "language_config", "text_config")

EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts", "num_moe_experts")
TOP_K = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "top_k_experts",
    "num_selected_experts",
)
EXPERT_WIDTH = ("moe_intermediate_size", "moe_ffn_hidden_size", "expert_ffn_hidden_size")
SHARED = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
SHARED_WIDTH = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "share_expert_dim",
    "shared_intermediate_size",
)
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups")
CONTEXT = ("max_position_embeddings", "max_seq_len", "seq_length", "n_positions", "model_max_length")

#: A name with one of these is a mixture of experts, so a config without a number of experts is damaged, not dense.
_MOE_NAME = re.compile(r"moe|mixtral|gpt_?oss|dbrx|deepseek_?v[23]|minimax_?m2|kimi_k2", re.IGNORECASE)

#: The mixture of experts has a shared expert as wide as a routed one, and no key says so.
_ONE_SHARED = frozenset({"llama4", "llama4_text"})

#: Queries carry a gate of their own width (read in 0.5.23: attn_output_gate is true unless the config says no).
_GATED_QUERY = frozenset({"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe"})

#: What a published config may leave out since its class has it as the default. Only what real configs left out.
_CLASS_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
        "sliding_window_pattern": 6,
        "tie_word_embeddings": True,
    },
}

_DTYPES = ("bfloat16", "float16", "float32", "float8_e4m3fn")

#: Feed-forward activations without a gate: two matrices an expert, not three.
_UNGATED = frozenset({"relu", "relu2", "gelu_new"})


@dataclass(frozen=True)
class LinearAttention:
    """Layers whose memory does not grow with the context (Gated DeltaNet, as Qwen3-Next has it)."""

    layers: int
    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    kernel: int


@dataclass(frozen=True)
class ModelShape:
    """A text model's sizes. Counts are whole, widths in elements; 0 where the model has none of it.

    moe_layer_ids: the layers that have experts; the other layers' feed-forward is `intermediate_size` wide.
    shared_intermediate_size: width of all shared experts of a layer together.
    kv_lora_rank: greater than 0 for multi-head latent attention (MLA); `head_dim` is then the width of a query's head.
    index_*: the indexer of sparse attention (DSA); index_layers have an indexer of their own.
    sliding_layers: of the layers with attention over keys and values, those that see `sliding_window` tokens only.
    residual_dense: layers with experts have an ordinary feed-forward beside them (Grok).
    mlp_matrices: 3 with a gate (gate, up, down), 2 without.
    nextn_layers: draft layers for multi-token prediction in the checkpoint, beyond `layers`.
    unknown: what the config does not tell, in words; figures that need it are estimates.
    """

    architecture: str
    model_type: str
    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    max_context: int
    dtype: str
    tied_embeddings: bool = False
    experts: int = 0
    experts_per_token: int = 0
    moe_intermediate_size: int = 0
    shared_experts: int = 0
    shared_intermediate_size: int = 0
    moe_layer_ids: tuple[int, ...] = ()
    residual_dense: bool = False
    mlp_matrices: int = 3
    kv_lora_rank: int = 0
    q_lora_rank: int = 0
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    index_heads: int = 0
    index_head_dim: int = 0
    index_topk: int = 0
    index_layers: int = 0
    gated_query: bool = False
    sliding_layers: int = 0
    sliding_window: int = 0
    linear: LinearAttention | None = None
    nextn_layers: int = 0
    multimodal: bool = False
    quant: Quantization = field(default_factory=Quantization)
    unknown: tuple[str, ...] = ()

    @property
    def moe_layers(self) -> int:
        """The number of layers with experts."""
        return len(self.moe_layer_ids)

    @property
    def dense_layer_ids(self) -> tuple[int, ...]:
        """The layers with an ordinary feed-forward."""
        moe = frozenset(() if self.residual_dense else self.moe_layer_ids)
        return tuple(layer for layer in range(self.layers) if layer not in moe)

    @property
    def attention_layers(self) -> int:
        """The number of layers that keep keys and values (all but those with linear attention)."""
        return self.layers - (self.linear.layers if self.linear else 0)

    @property
    def is_moe(self) -> bool:
        """Whether any layer has experts."""
        return bool(self.moe_layer_ids)

    @property
    def is_mla(self) -> bool:
        """Whether keys and values are kept as one latent vector that all heads share."""
        return self.kv_lora_rank > 0

    @property
    def quantization(self) -> str:
        """SGLang's name for the checkpoint's quantization, "" for none."""
        return self.quant.method

    @cached_property
    def weight_bits(self) -> Mapping[str, float]:
        """Bits per weight, scales included, of experts, shared experts, dense layers, attention and lm_head.

        The mean over the layers that have the part, since a checkpoint may leave the first or last ones unquantized.
        """
        moe = self.moe_layer_ids
        parts: dict[str, tuple[tuple[int, ...], str]] = {
            "experts": (moe, "mlp.experts.0.gate_proj"),
            "shared_experts": (moe if self.shared_experts else (), "mlp.shared_experts.gate_proj"),
            "dense": (self.dense_layer_ids, "mlp.gate_proj"),
            "attention": (tuple(range(self.layers)), "self_attn.o_proj"),
        }
        found = {
            part: sum(self.quant.bits(f"model.layers.{layer}.{module}", self.dtype) for layer in ids) / len(ids)
            for part, (ids, module) in parts.items()
            if ids
        }
        return {**found, "lm_head": self.quant.bits("lm_head", self.dtype)}


def read(config: Mapping[str, Any], quant: Mapping[str, Any] | None = None) -> ModelShape:
    """Read config.json and, where the model has one, hf_quant_config.json.

    Raises ShapeError when a key that decides has no usable value, or when two keys contradict each other.
    """
    if not isinstance(config, Mapping):
        raise ShapeError("cannot use model config: it is no JSON object; copy config.json again")
    top = Values(config)
    text = _text_values(top)
    unknown: list[str] = []
    names = top.words("architectures")
    architecture = names[0] if names else ""
    model_type = text.word("model_type") or top.word("model_type")
    if not architecture:
        unknown.append("architecture")
    layers = text.whole(
        text.present("num_hidden_layers", "num_layers", "n_layers") or "num_hidden_layers", 1, MOST_LAYERS
    )
    hidden = text.whole(text.present("hidden_size", "d_model") or "hidden_size")
    experts = _experts(text, architecture, model_type)
    moe_ids = model_layers.moe_layers(text, layers, experts, unknown)
    width = text.optional("intermediate_size", "ffn_dim", "ffn_hidden_size")
    per_token, moe_width = _expert_size(text, experts, width)
    shared, shared_width = _shared(text, experts, moe_width, model_type)
    dense_width = text.optional("intermediate_size_mlp", "dense_intermediate_size", default=width)
    if not dense_width and len(moe_ids) < layers:
        unknown.append("intermediate_size")
    kinds = model_layers.attention_kinds(text, layers)
    context = text.optional(*CONTEXT)
    if not context:
        unknown.append("context length")
    vocabulary = text.optional("vocab_size") or top.optional("vocab_size")
    if not vocabulary:
        unknown.append("vocab_size")
    quantized = model_quantization.read(top, text, quant)
    return ModelShape(
        architecture=architecture,
        model_type=model_type,
        layers=layers,
        hidden_size=hidden,
        intermediate_size=dense_width,
        vocab_size=vocabulary,
        max_context=context,
        dtype=_dtype(text, top, unknown),
        tied_embeddings=text.truth("tie_word_embeddings", top.truth("tie_word_embeddings")),
        experts=experts,
        experts_per_token=per_token,
        moe_intermediate_size=moe_width,
        shared_experts=shared,
        shared_intermediate_size=shared_width,
        moe_layer_ids=moe_ids,
        residual_dense=text.truth("residual_moe"),
        mlp_matrices=2 if text.word("hidden_act", "mlp_hidden_act", "activation_function") in _UNGATED else 3,
        gated_query=text.truth("attn_output_gate", model_type in _GATED_QUERY),
        sliding_layers=kinds.sliding,
        sliding_window=text.optional("sliding_window") if kinds.sliding else 0,
        linear=_linear(text, kinds.linear, unknown),
        nextn_layers=text.optional("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"),
        multimodal=bool(top.present("vision_config", "audio_config")),
        quant=quantized,
        **_attention(text, hidden, layers),
        unknown=(*unknown, *quantized.unknown),
    )


def _text_values(top: Values) -> Values:
    """The object with the text model's keys, with what its class has as defaults."""
    text = top
    for key in TEXT_KEYS:
        inner = top.part(key)
        # A thinker has a text model of its own inside.
        inner = (inner.part("text_config") or inner) if inner else None
        if inner is not None:
            text = inner
            break
    defaults = _CLASS_DEFAULTS.get(text.word("model_type"), {})
    return Values({**defaults, **text.data}, text.where) if defaults else text


def _experts(text: Values, architecture: str, model_type: str) -> int:
    """The number of routed experts of a layer; 0 for a dense model."""
    inner = text.part("ffn_config")
    experts = text.agreed(*EXPERTS)
    if experts is None and inner:
        experts = inner.agreed(*EXPERTS)
    if experts is None:
        if _MOE_NAME.search(f"{architecture} {model_type}"):
            key = next((key for key in EXPERTS if key in text.data), EXPERTS[0])
            raise text.error(
                key, f"a number of experts under one of {', '.join(EXPERTS)}, as {architecture} has experts"
            )
        return 0
    # One expert for each token is an ordinary feed-forward: dense models of a family keep the key.
    return experts if experts > 1 else 0


def _expert_size(text: Values, experts: int, width: int) -> tuple[int, int]:
    """Experts that a token passes, and the width of one."""
    if not experts:
        return 0, 0
    inner = text.part("ffn_config")
    per_token = text.agreed(*TOP_K, least=1)
    if per_token is None and inner:
        per_token = inner.agreed(*TOP_K, least=1)
    if per_token is None:
        raise text.error(TOP_K[0], "the number of experts that a token passes")
    if per_token > experts:
        key = text.present(*TOP_K) or TOP_K[0]
        raise text.error(key, f"at most the {experts} experts that there are")
    moe_width = text.agreed(*EXPERT_WIDTH, least=1)
    if moe_width is None:
        moe_width = width or (inner.optional("ffn_hidden_size") if inner else 0)
    if not moe_width:
        raise text.error(EXPERT_WIDTH[0], "the width of an expert, there or as intermediate_size")
    return per_token, moe_width


def _shared(text: Values, experts: int, moe_width: int, model_type: str) -> tuple[int, int]:
    """The number of shared experts, and the width of all of them together."""
    if not experts:
        return 0, 0
    width = text.agreed(*SHARED_WIDTH) or 0
    count = text.agreed(*SHARED)
    if count is None:
        count = 1 if width or model_type in _ONE_SHARED else 0
    return count, count * (width or moe_width)


def _attention(text: Values, hidden: int, layers: int) -> dict[str, Any]:
    """Heads and their widths, the latent vector of MLA and the indexer of DSA."""
    inner = text.part("attn_config")
    heads = text.whole(text.present("num_attention_heads", "n_heads", "n_head") or "num_attention_heads")
    kv_heads = text.optional(*KV_HEADS, least=1)
    if not kv_heads:
        kv_heads = inner.optional("kv_n_heads", default=heads, least=1) if inner else heads
    latent = text.optional("kv_lora_rank")
    if not latent and heads % kv_heads:
        raise text.error(text.present(*KV_HEADS) or KV_HEADS[0], f"a number that divides the {heads} attention heads")
    found: dict[str, Any] = {"heads": heads, "kv_heads": kv_heads}
    if latent:
        nope = text.whole("qk_nope_head_dim")
        # Models without rotary parts in their latent attention write 0.
        rope = text.whole("qk_rope_head_dim", 0)
        index_heads = text.optional("index_n_heads") if text.present("index_topk") else 0
        return {
            **found,
            "head_dim": nope + rope,
            "kv_lora_rank": latent,
            "q_lora_rank": text.optional("q_lora_rank"),
            "qk_nope_head_dim": nope,
            "qk_rope_head_dim": rope,
            "v_head_dim": text.whole("v_head_dim"),
            "index_heads": index_heads,
            "index_head_dim": text.whole("index_head_dim") if index_heads else 0,
            "index_topk": text.whole("index_topk") if index_heads else 0,
            "index_layers": model_layers.indexers(text, layers) if index_heads else 0,
        }
    head_dim = text.optional("head_dim", "attention_head_dim", "kv_channels")
    if not head_dim:
        if hidden % heads:
            raise text.error("head_dim", f"a width: hidden_size {hidden} is no multiple of {heads} heads")
        head_dim = hidden // heads
    return {**found, "head_dim": head_dim, "v_head_dim": text.optional("v_head_dim", default=head_dim) or head_dim}


def _linear(text: Values, layers: int, unknown: list[str]) -> LinearAttention | None:
    if not layers:
        return None
    if not text.present("linear_num_value_heads"):
        unknown.append("size of the linear attention layers")
        return LinearAttention(layers, 0, 0, 0, 0, 0)
    return LinearAttention(
        layers,
        text.whole("linear_num_key_heads"),
        text.whole("linear_num_value_heads"),
        text.whole("linear_key_head_dim"),
        text.whole("linear_value_head_dim"),
        text.optional("linear_conv_kernel_dim", default=4),
    )


def _dtype(text: Values, top: Values, unknown: list[str]) -> str:
    """The type of weights that are not quantized. SGLang loads float32 with 16 bits (read in 0.5.0rc0 and 0.5.23)."""
    name = text.word("dtype", "torch_dtype") or top.word("dtype", "torch_dtype")
    if not name:
        unknown.append("dtype")
        return "bfloat16"
    if name not in _DTYPES:
        values = text if text.present("dtype", "torch_dtype") else top
        raise values.error(values.present("dtype", "torch_dtype"), f"one of {', '.join(_DTYPES)}")
    return name
