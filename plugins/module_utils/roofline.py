# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast decoding can be at most: the bytes that a step must read from a GPU's memory, and the time that takes.

At small batches a decode step is limited by reading weights. Each weight that a token passes is read once a step, for
all tokens of the batch; of the routed experts only those that a token chose; of the cache what each token attends to:

    bytes = weights outside the experts / their ranks
          + experts expected to be read x bytes of an expert / ranks
          + batch x (cache of one context + one row of the embedding)
    floor of a step = bytes / bandwidth          ceiling = batch / floor

With E experts of which a token chooses k, a batch of N tokens that choose independently is expected to reach
E (1 - (1 - k/E)^N) of them (each expert is missed by one token with probability 1 - k/E). Tokens of real requests
choose alike and reach fewer, so the ceiling of a batch is an estimate; that of one request is a bound. With expert
parallelism a rank reads its share of the experts on average; a step waits for the rank with the most.

Not in it: communication between GPUs, launches of kernels, arithmetic, reading of activations. All of these only add
time. Speculative decoding, where a step gives several tokens, can pass the ceiling.
Sources: S. Williams, A. Waterman, D. Patterson, "Roofline", Communications of the ACM 52 (4), 2009, for the bound; the
sizes of the parts are in model_matrices.py and kv_cache.py. Worked example: docs/roofline.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils import kv_cache
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole
from ansible_collections.tokforge.sglang.plugins.module_utils.model_matrices import (
    EMBEDDING,
    ROUTED,
    Layout,
    Matrix,
    fraction,
    matrices,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.model_shape import ModelShape

#: No GPU's memory reads faster than this; what is faster is a mistake in units (bytes for bits, GB/s twice).
GREATEST_BANDWIDTH_BYTES_S = 100e12

#: Larger batches and contexts than these are not believed.
MOST_TOKENS = 100_000_000


@dataclass(frozen=True)
class Roofline:
    """The bound of one decode step on one rank; the stages of a pipeline work one after another and are added up.

    bytes_by_part: what a step reads on a rank, by part of the model; "cache" is the keys and values of its requests.
    experts_read: experts of a layer that the batch is expected to reach, in the whole model; 0 for a dense model.
    """

    batch: int
    context: int
    bandwidth_bytes_s: float | None
    bytes_by_part: Mapping[str, float]
    experts_read: float
    unknown: tuple[str, ...] = ()

    @property
    def step_bytes(self) -> float:
        """Bytes that a step reads on a rank."""
        return sum(self.bytes_by_part.values())

    @property
    def floor_s(self) -> float | None:
        """The least time of a step."""
        return self.step_bytes / self.bandwidth_bytes_s if self.bandwidth_bytes_s else None

    @property
    def ceiling_tok_s(self) -> float | None:
        """Tokens a second of all requests together at most, without speculation."""
        floor = self.floor_s
        return self.batch / floor if floor else None


def experts_reached(experts: int, chosen: int, tokens: int) -> float:
    """How many different experts `tokens` tokens are expected to choose when each chooses `chosen` of `experts`."""
    if not experts:
        return 0.0
    return experts * (1 - (1 - chosen / experts) ** tokens)


def roofline(
    shape: ModelShape,
    layout: Layout | None = None,
    bandwidth_bytes_s: float | None = None,
    context: int = 0,
    batch: int = 1,
    kv_cache_dtype: str = "auto",
) -> Roofline:
    """The bound of decoding `batch` requests at once, each with `context` tokens behind it.

    :param layout: how many ranks share the model; None for one. With replicas, of the model or of its attention, the
        batch is shared out among them.
    :param bandwidth_bytes_s: of one GPU's own memory; None when it is not known, which leaves bytes without a time.
    Raises ValueError for a batch, context or bandwidth that cannot be.
    """
    layout = layout or Layout()
    if not is_whole(batch) or not 1 <= batch <= MOST_TOKENS:
        raise ValueError(f"batch is {batch!r}; give a whole number of requests from 1 to {MOST_TOKENS}")
    if not is_whole(context) or not 0 <= context <= MOST_TOKENS:
        raise ValueError(f"context is {context!r}; give a whole number of tokens from 0 to {MOST_TOKENS}")
    if bandwidth_bytes_s is not None:
        _check_positive("bandwidth_bytes_s", bandwidth_bytes_s, GREATEST_BANDWIDTH_BYTES_S)
    # Replicas of the whole model, or of its attention, share the requests; the fullest one counts.
    own = -(-batch // layout.dp)
    passing = batch if layout.dp_attention else own
    reached = experts_reached(shape.experts, shape.experts_per_token, passing) if shape.is_moe else 0.0
    found: dict[str, float] = {}
    for matrix in matrices(shape):
        read = _read_bytes(matrix, shape, layout, own, reached)
        found[matrix.part] = found.get(matrix.part, 0.0) + read
    dtype = kv_cache.dtype_of(shape, kv_cache_dtype)
    found["cache"] = own * kv_cache.read_bytes(shape, layout, dtype, context)
    return Roofline(batch, context, bandwidth_bytes_s, found, reached, shape.unknown)


def _read_bytes(matrix: Matrix, shape: ModelShape, layout: Layout, tokens: int, reached: float) -> float:
    """Bytes of a matrix that a rank reads in a step of `tokens` tokens."""
    part = fraction(matrix.share, shape, layout)
    if matrix.share == EMBEDDING:
        # A row for each token, and no more rows than there are.
        rows = min(tokens, shape.vocab_size)
        return matrix.total_bytes * part * rows / shape.vocab_size
    if matrix.share == ROUTED:
        return matrix.total_bytes * part * reached / matrix.copies
    return matrix.total_bytes * part


def share(measured_tok_s: float, ceiling_tok_s: float | None) -> float | None:
    """A measurement as a part of the ceiling, 0.15 for 15 %; None without a ceiling. Raises ValueError for nonsense."""
    if measured_tok_s != 0:
        _check_positive("measured_tok_s", measured_tok_s, 1e12)
    if ceiling_tok_s is None:
        return None
    _check_positive("ceiling_tok_s", ceiling_tok_s, 1e15)
    return measured_tok_s / ceiling_tok_s


def _check_positive(name: str, value: object, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= most:
        raise ValueError(f"{name} is {value!r}; give a number above 0 and at most {most:g}")
