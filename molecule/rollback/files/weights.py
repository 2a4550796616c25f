# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Weights for the built-in model's configuration, so that it writes words: ``weights.py DIRECTORY sound|damaged``.

Attention and experts add nothing, so the last hidden state is the embedding of the last token. The head then names
the token that follows: in a `sound` model the next of all words in one large circle, in a `damaged` one its neighbour,
which in turn names it, so that every answer becomes two words over and over, which only long answers show.
"""

from __future__ import annotations

import array
import json
import random
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

#: 1.0 as bfloat16, the top half of a 32-bit float.
ONE = 0x3F80


def words(tokenizer: Path) -> list[int]:
    """The tokens that are a space and a word of at least three letters, in the tokenizer's order."""
    vocabulary = json.loads(tokenizer.read_text())["model"]["vocab"]
    return [token for text, token in vocabulary.items() if len(text) > 3 and text[0] == "Ġ" and text[1:].isalpha()]


def bfloat16(values: Sequence[float]) -> bytes:
    """Small whole numbers, which it holds exactly."""
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def following(known: list[int], damaged: bool) -> Callable[[int], int]:
    """Which token follows each."""
    place = {token: number for number, token in enumerate(known)}
    even = len(known) - len(known) % 2

    def after(token: int) -> int:
        # What is no word leads to some word.
        number = place.get(token, token % even)
        return known[number ^ 1 if damaged and number < even else (number + 1) % len(known)]

    return after


def tensors(config: dict[str, int], known: list[int], damaged: bool) -> Iterator[tuple[str, list[int], bytes]]:
    """Name, shape and bytes of every tensor of a Qwen3-MoE."""
    size, vocabulary = config["hidden_size"], config["vocab_size"]
    head, experts, width = config["head_dim"], config["num_experts"], config["moe_intermediate_size"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    chance = random.Random(1)  # noqa: S311
    rows = [[chance.choice((-1, 1)) for _column in range(size)] for _token in range(vocabulary)]
    after = following(known, damaged)
    head_rows = [[0] * size for _token in range(vocabulary)]
    for token in range(vocabulary):
        row = head_rows[after(token)]
        # A word that follows some tokens looks like all of them.
        for column, value in enumerate(rows[token]):
            row[column] += value

    def zeros(*shape: int) -> tuple[list[int], bytes]:
        count = 1
        for part in shape:
            count *= part
        return list(shape), bytes(2 * count)

    def ones(count: int) -> tuple[list[int], bytes]:
        return [count], array.array("H", [ONE] * count).tobytes()

    yield "model.embed_tokens.weight", [vocabulary, size], b"".join(map(bfloat16, rows))
    yield "lm_head.weight", [vocabulary, size], b"".join(map(bfloat16, head_rows))
    yield "model.norm.weight", *ones(size)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        yield f"{at}.input_layernorm.weight", *ones(size)
        yield f"{at}.post_attention_layernorm.weight", *ones(size)
        yield f"{at}.self_attn.q_norm.weight", *ones(head)
        yield f"{at}.self_attn.k_norm.weight", *ones(head)
        yield f"{at}.self_attn.q_proj.weight", *zeros(queries, size)
        yield f"{at}.self_attn.k_proj.weight", *zeros(keys, size)
        yield f"{at}.self_attn.v_proj.weight", *zeros(keys, size)
        yield f"{at}.self_attn.o_proj.weight", *zeros(size, queries)
        yield f"{at}.mlp.gate.weight", *zeros(experts, size)
        for expert in range(experts):
            yield f"{at}.mlp.experts.{expert}.gate_proj.weight", *zeros(width, size)
            yield f"{at}.mlp.experts.{expert}.up_proj.weight", *zeros(width, size)
            yield f"{at}.mlp.experts.{expert}.down_proj.weight", *zeros(size, width)


def write(directory: Path, damaged: bool) -> None:
    """Write model.safetensors beside the configuration."""
    config = json.loads((directory / "config.json").read_text())
    header: dict[str, object] = {}
    parts: list[bytes] = []
    end = 0
    for name, shape, data in tensors(config, words(directory / "tokenizer.json"), damaged):
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + len(data)]}
        end += len(data)
        parts.append(data)
    told = json.dumps(header).encode()
    told += b" " * (-len(told) % 8)
    (directory / "model.safetensors").write_bytes(b"".join([len(told).to_bytes(8, "little"), told, *parts]))


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2] == "damaged")
