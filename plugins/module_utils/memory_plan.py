# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Does a model fit into the memory of the GPUs, and how many tokens fit beside it.

What a rank needs is its part of the weights, the cache of keys and values, and a reserve for activations and CUDA
graphs. Weights are exact where the headers of the weight files were read, else an estimate from the shape. SGLang
measures the free memory before it loads the model, keeps back what --mem-fraction-static leaves of it, and gives to the
cache what the weights leave of the rest (read in 0.5.12.post1 and 0.5.23). Sizes in messages are in GiB, which SGLang's
log calls GB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ansible_collections.tokforge.sglang.plugins.module_utils import kv_cache, layout_check, weight_index, weight_shards
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding
from ansible_collections.tokforge.sglang.plugins.module_utils.model_matrices import (
    Layout,
    Portion,
    draft_matrices,
    matrices,
    portions,
    rank_bytes,
    stages,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.model_shape import ModelShape
from ansible_collections.tokforge.sglang.plugins.module_utils.weight_index import WeightIndex

GIB = 1 << 30
_MIB = 1 << 20

#: Loaded weights are larger than stored ones: MLA keeps kv_b in a second form, scales are padded, the allocator rounds.
#: Measured: GLM-5 NVFP4 on 8 ranks 57.06 GiB (shape: 54.8), Qwen3-14B on 4 ranks 7.08 GiB (shape: 6.9). Sources:
#: local-inference-lab/rtx6kpro models/glm5.md, and a public log of SGLang with Qwen3-14B.
WEIGHT_MARGIN = 0.04

#: What CUDA's context and NCCL take before SGLang looks at the free memory: the GLM-5 server had 93.9 of 95.6 GiB.
CONTEXT_BYTES = 1.7 * GIB

#: With less room than this in the cache not one ordinary question can be answered, so the start would be in vain.
MIN_TOKENS = 2048

#: The part of what is left that goes to the states of linear attention: 0.9 for each 1 of the cache (default of
#: --mamba-full-memory-ratio).
LINEAR_RATIO = 0.9

#: A fraction that leaves less than this part of SGLang's own reserve is told of. The GLM-5 server above ran with 0.75.
LEAST_RESERVE = 0.5

#: What SGLang takes without a setting, by the GPU's memory (MiB, exclusive): tokens of a prefill chunk, requests of the
#: largest CUDA graph with fewer than 4 ranks, and with more (read in 0.5.12.post1).
_CLASSES: tuple[tuple[float, int, int, int], ...] = (
    (20 * 1024, 2048, 8, 8),
    (35 * 1024, 2048, 24, 80),
    (60 * 1024, 4096, 32, 160),
    (160 * 1024, 8192, 256, 512),
    (float("inf"), 16384, 512, 512),
)


@dataclass(frozen=True)
class Settings:
    """The launch arguments that take memory; None where SGLang chooses.

    context_tokens: the longest request that must fit; None for the model's own longest.
    speculative: whether draft layers of the checkpoint are loaded too.
    """

    kv_cache_dtype: str = "auto"
    context_tokens: int | None = None
    max_total_tokens: int | None = None
    max_running_requests: int | None = None
    mem_fraction_static: float | None = None
    chunked_prefill_tokens: int | None = None
    cuda_graph_max_requests: int | None = None
    cuda_graphs: bool = True
    speculative: bool = False


@dataclass(frozen=True)
class Plan:
    """What one rank needs and has; the rank with the most weights, and the GPU with the least memory.

    weights_bytes: loaded weights with the margin. source: where they are from, in words.
    static_bytes: what weights and cache may take together. kv_tokens: tokens that fit into the cache.
    """

    weights_bytes: float
    source: str
    gpu_bytes: float
    free_bytes: float
    mem_fraction_static: float
    fraction_given: bool
    static_bytes: float
    reserve_bytes: float
    kv_dtype: str
    kv_token_bytes: float
    kv_tokens: int
    state_request_bytes: float
    context_tokens: int

    @property
    def needed_bytes(self) -> float:
        """What must be free on the GPU before the server starts, for the weights and the least useful cache."""
        static = self.weights_bytes + MIN_TOKENS * self.kv_token_bytes
        return static / self.mem_fraction_static + CONTEXT_BYTES if self.mem_fraction_static else float("inf")

    @property
    def fits(self) -> bool:
        """Whether the weights and the least useful cache fit."""
        return self.kv_tokens >= MIN_TOKENS


@dataclass(frozen=True)
class Stock:
    """A model's weights by layer and way of sharing, so that they are told apart once for all splits.

    scale: what the sizes are multiplied by. source: where they are from, in words.
    """

    model: Sequence[Portion]
    drafts: Sequence[Portion]
    scale: float
    source: str


def stock(shape: ModelShape, index: WeightIndex | None = None, speculative: bool = False) -> Stock:
    """The weights as the files' headers tell them, else as the shape does, scaled to the total of an index."""
    if index is not None and index.state == weight_index.HEADERS:
        model, drafts = weight_shards.portions(index.tensors, shape)
        return Stock(model, drafts if speculative else (), 1.0, "the weight files")
    model, drafts = portions(matrices(shape)), portions(draft_matrices(shape))
    scale, source = 1.0, "the model's shape"
    known = sum(portion.size_bytes for portion in (*model, *drafts))
    if index is not None and index.total_bytes and known:
        # One sum for all. What the shape knows tells which part of it is whole on every rank.
        scale, source = index.total_bytes / known, "the weight index"
    return Stock(model, drafts if speculative else (), scale, source)


def weights_on_rank(shape: ModelShape, layout: Layout, held: Stock) -> float:
    """Bytes of loaded weights on the fullest rank, margin included. Draft layers are on the last stage."""
    most = 0.0
    for number, layers in enumerate(stages(shape.layers, layout.pp)):
        size = rank_bytes(held.model, shape, layout, layers)
        if number == layout.pp - 1:
            size += rank_bytes(held.drafts, shape, layout, {portion.layer for portion in held.drafts})
        most = max(most, size)
    return most * held.scale * (1 + WEIGHT_MARGIN)


def reserve_bytes(shape: ModelShape, layout: Layout, settings: Settings, gpu_bytes: float) -> float:
    """What SGLang keeps for activations and CUDA graphs when --mem-fraction-static is not given.

    Its own rule, in MiB (0.5.12.post1): 512, 1.5 for each token of a prefill chunk, 2 for each request of the largest
    graph, 128 for each rank, more for attention by replicas, graphs of the prefill, drafts, and at least 10 GiB on GPUs
    with more than 60. Later releases reserve less where they can measure graphs first.
    """
    gpu_mib = gpu_bytes / _MIB
    chunk, few, many = next(row[1:] for row in _CLASSES if gpu_mib < row[0])
    chunk = settings.chunked_prefill_tokens or chunk
    graph = settings.cuda_graph_max_requests or (few if layout.tp < 4 else many)
    graph = min(graph, settings.max_running_requests or graph) if settings.cuda_graphs else 0
    reserve = 512 + max(chunk, 2048) * 1.5 + graph * 2 + layout.tp * layout.pp / 8 * 1024
    if layout.dp_attention:
        reserve += graph * layout.dp * (4.5 if graph > 300 else 3)
    if settings.cuda_graphs:
        # Without MLA: 8 for each size that is captured, about 50 of them.
        reserve += 1536 if shape.is_mla else 400
    if gpu_mib > 60 * 1024:
        reserve = max(reserve, 10 * 1024)
    if settings.speculative:
        reserve += 4 * 1024
    return reserve * _MIB


def plan(
    shape: ModelShape,
    layout: Layout,
    gpu_bytes: float,
    free_bytes: float | None = None,
    settings: Settings | None = None,
    held: Stock | None = None,
    weights_bytes: float | None = None,
) -> Plan:
    """What one rank needs on a GPU.

    :param gpu_bytes: memory of the GPU. :param free_bytes: what is free now, before a server starts; None: all.
    :param held: the weights; None for what the shape tells. :param weights_bytes: a rank's, when they were measured.
    """
    settings = settings or Settings()
    held = held or stock(shape, None, settings.speculative)
    measured = weights_bytes is not None
    weights = weights_bytes if weights_bytes is not None else weights_on_rank(shape, layout, held)
    reserve = reserve_bytes(shape, layout, settings, gpu_bytes)
    given = settings.mem_fraction_static
    fraction = given if given is not None else round(max(0.0, gpu_bytes - reserve) / gpu_bytes, 3)
    if given is None and shape.multimodal:
        # SGLang keeps back some more for pictures.
        fraction *= 0.95
    start = max(0.0, min(free_bytes if free_bytes is not None else gpu_bytes, gpu_bytes) - CONTEXT_BYTES)
    static = start * fraction
    dtype = kv_cache.dtype_of(shape, settings.kv_cache_dtype)
    layers = max(len(stage) for stage in stages(shape.layers, layout.pp))
    drafts = shape.nextn_layers if settings.speculative else 0
    token = kv_cache.token_bytes(shape, layout, dtype, layers, drafts)
    room = max(0.0, static - weights)
    if shape.linear:
        room /= 1 + LINEAR_RATIO
    return Plan(
        weights_bytes=weights,
        source="a measurement" if measured else held.source,
        gpu_bytes=gpu_bytes,
        free_bytes=start,
        mem_fraction_static=fraction,
        fraction_given=given is not None,
        static_bytes=static,
        reserve_bytes=reserve,
        kv_dtype=dtype,
        kv_token_bytes=token,
        kv_tokens=int(room / token) if token else 0,
        state_request_bytes=kv_cache.state_bytes(shape, layout, layers),
        context_tokens=settings.context_tokens or shape.max_context,
    )


def gpus_needed(
    shape: ModelShape,
    layout: Layout,
    gpu_bytes: float,
    settings: Settings | None = None,
    held: Stock | None = None,
) -> int | None:
    """The fewest GPUs of this kind on which the model fits with tensor parallelism; None when none up to 64 do."""
    settings = settings or Settings()
    held = held or stock(shape, None, settings.speculative)
    for tp in (1, 2, 4, 8, 16, 32, 64):
        trial = Layout(tp=tp, dp=min(layout.dp, tp) if layout.dp_attention else 1, dp_attention=layout.dp_attention)
        # A split of the experts may be what makes a number of ranks possible.
        options = [trial, *([replace(trial, ep=tp)] if shape.is_moe and tp > 1 else [])]
        if any(
            not layout_check.refusals(shape, option) and plan(shape, option, gpu_bytes, None, settings, held).fits
            for option in options
        ):
            return tp
    return None


# --- findings ---------------------------------------------------------------------------------------------------------


def check_memory(
    shape: ModelShape,
    layout: Layout,
    gpus: Sequence[tuple[int | None, int | None]],
    settings: Settings | None = None,
    index: WeightIndex | None = None,
    weights_bytes: float | None = None,
    nodes: int = 1,
) -> list[Finding]:
    """Findings about GPU memory and the split of the model.

    :param gpus: total and free bytes of each GPU of this host, None where unknown.
    :param index: what weight_index.py read. :param weights_bytes: measured weights of a rank.
    :param nodes: hosts like this one that serve together.
    """
    settings = settings or Settings()
    fraction = settings.mem_fraction_static
    if fraction is not None and not 0 < fraction < 1:
        message = (
            f"mem_fraction_static is {fraction}; it is the part of the free memory that weights and cache may take"
        )
        return [Finding(FAIL, "memory", message, "set a number above 0 and below 1, or leave it out")]
    found = list(layout_check.check_layout(shape, layout))
    found += [
        Finding(FAIL, "weights", problem, "copy the model again") for problem in (index.problems if index else ())
    ]
    totals = [total for total, _free in gpus if total]
    if not totals:
        message = "the memory of the GPUs is not known, so whether the model fits is not either"
        return [*found, Finding(WARN, "memory", message, "see why nvidia-smi does not tell it")]
    needed = -(-layout.gpus // nodes)
    total = min(totals)
    held = stock(shape, index, settings.speculative)
    frees = [free if free is not None else size for size, free in gpus[:needed] if size]
    if len(gpus) < needed:
        return [*found, _too_few(shape, layout, len(gpus) * nodes, total, settings, held)]
    result = plan(shape, layout, total, min(frees, default=total), settings, held, weights_bytes)
    told = _judge(shape, layout, result, settings, held)
    if shape.unknown and result.source == "the model's shape":
        message = f"the figures for memory are estimates: config.json does not tell {', '.join(shape.unknown)}"
        told.append(Finding(WARN, "memory", message, "compare with the server's log after the first start"))
    return [*found, *told]


def _gib(count: float) -> str:
    return f"{count / GIB:.2f} GiB"


def _way_out(shape: ModelShape, layout: Layout, result: Plan, settings: Settings, held: Stock) -> str:
    """Fewest GPUs that would do, or a smaller model."""
    number = gpus_needed(shape, layout, result.gpu_bytes, settings, held)
    if number is None:
        return "no number of these GPUs up to 64 is enough: choose a model with fewer or smaller weights"
    if number <= layout.tp * layout.pp:
        return "choose another split of the model, or a checkpoint with fewer bits per weight"
    return f"it takes {number} such GPUs (tensor_parallel_size: {number}), or a checkpoint with fewer bits per weight"


def _too_few(shape: ModelShape, layout: Layout, have: int, total: int, settings: Settings, held: Stock) -> Finding:
    """The layout asks for more GPUs than there are: would it fit on those that are there?"""
    # The largest number of ranks below what is there that the model can be split into.
    splits = [tp for tp in (64, 32, 16, 8, 4, 2, 1) if tp <= have and not layout_check.refusals(shape, Layout(tp=tp))]
    message = f"tp {layout.tp} x pp {layout.pp}" + (f" x dp {layout.dp}" if layout.dp > 1 else "")
    message += f" takes {layout.gpus} GPUs and {have} are there"
    if not splits:
        return Finding(FAIL, "gpus", message, f"use a host with {layout.gpus} GPUs")
    smaller = plan(shape, Layout(tp=splits[0]), total, None, settings, held)
    if smaller.fits:
        return Finding(FAIL, "gpus", message, f"set tensor_parallel_size: {splits[0]}, on which the model fits too")
    message += (
        f"; on {splits[0]} each has {_gib(smaller.weights_bytes)} of weights and only"
        f" {_gib(smaller.static_bytes)} of {_gib(total)} for weights and cache"
    )
    return Finding(FAIL, "gpus", message, _way_out(shape, Layout(tp=splits[0]), smaller, settings, held))


def _judge(shape: ModelShape, layout: Layout, result: Plan, settings: Settings, held: Stock) -> list[Finding]:
    """Findings of a plan: weights, cache, reserve."""
    split = f"tp {layout.tp}" + (f", pp {layout.pp}" if layout.pp > 1 else "")
    have = f"{_gib(result.static_bytes)} of {_gib(result.gpu_bytes)} are for weights and cache"
    have += f" (mem_fraction_static {result.mem_fraction_static:.3f}, {_gib(result.free_bytes)} free at the start)"
    if result.weights_bytes >= result.static_bytes or not result.fits:
        message = f"the model does not fit: each GPU has {_gib(result.weights_bytes)} of weights with {split}"
        message += f" (from {result.source}), and {have}"
        if result.weights_bytes < result.static_bytes:
            message += f"; the cache would hold {result.kv_tokens} tokens, {MIN_TOKENS} is the least that is of use"
        taken = result.gpu_bytes - CONTEXT_BYTES - result.free_bytes
        full = plan(shape, layout, result.gpu_bytes, None, settings, held)
        if taken > GIB and result.source != "a measurement" and full.fits:
            return [
                Finding(FAIL, "memory", message, f"end what holds {_gib(taken)} of GPU memory now (see nvidia-smi)")
            ]
        return [Finding(FAIL, "memory", message, _way_out(shape, layout, result, settings, held))]
    cache = f"{result.kv_tokens} tokens of {result.kv_token_bytes:.0f} bytes ({result.kv_dtype}) fit beside them"
    found = [
        Finding(
            OK, "memory", f"{_gib(result.weights_bytes)} of weights a GPU with {split} (from {result.source}); {cache}"
        )
    ]
    if result.kv_tokens < result.context_tokens:
        message = f"one request of {result.context_tokens} tokens does not fit into the cache: {cache}, and {have}"
        remedy = f"set context_length: {_rounded(result.kv_tokens)} or less, or use more GPUs"
        if kv_cache.BITS.get(result.kv_dtype) == 16:
            remedy += ", or kv_cache_dtype: fp8_e4m3 where the GPU and the model allow it"
        found.append(Finding(WARN, "memory", message, remedy))
    if settings.max_total_tokens and settings.max_total_tokens > result.kv_tokens:
        message = f"max_total_tokens is {settings.max_total_tokens} and {cache}, so SGLang will use the smaller number"
        found.append(
            Finding(WARN, "memory", message, f"set max_total_tokens: {_rounded(result.kv_tokens)} or leave it out")
        )
    left = result.free_bytes - result.static_bytes
    if result.fraction_given and left < LEAST_RESERVE * result.reserve_bytes:
        message = (
            f"mem_fraction_static {result.mem_fraction_static} leaves {_gib(left)} for activations and CUDA graphs;"
        )
        message += f" SGLang would reserve {_gib(result.reserve_bytes)} for these settings"
        fraction = max(0.1, 1 - result.reserve_bytes / result.gpu_bytes)
        found.append(Finding(WARN, "memory", message, f"set mem_fraction_static: {fraction:.2f}, or leave it out"))
    return found


def _rounded(tokens: int) -> int:
    """A number of tokens that a person would write: a multiple of 1024 that fits."""
    return max(1024, tokens // 1024 * 1024)
