# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The built-in models: which files they have, and how large they are, against sums by hand."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    builtin_models,
    kv_cache,
    memory_plan,
    model_matrices,
    model_shape,
    roofline,
    served_shape,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.model_matrices import Layout

#: Of moe-30b, by hand: weights of a layer's attention, router, norms and one expert; embedding or head.
ATTENTION = 2 * 2048 * 32 * 128 + 2 * 2048 * 4 * 128
ROUTER = 2048 * 128
NORMS = 2 * 2048
EXPERT = 3 * 2048 * 768
TABLE = 8192 * 2048


def shape(name: str, **args: Any) -> model_shape.ModelShape:
    return served_shape.read(builtin_models.CONFIGS[name], None, args).shape


def test_files_of_tiny_moe_are_those_that_recipe_1_always_wrote() -> None:
    """Digests of what the collection wrote when tiny-moe was the only model: who has it must not get another one."""
    assert builtin_models.RECIPE == 1
    found = {
        name: hashlib.sha256(text.encode()).hexdigest() for name, text in builtin_models.files("tiny-moe", 8192).items()
    }
    assert found == {
        "tokenizer_config.json": "f023f2ad5f63521c50f492729b9a3d796ebdb403bc9f04460a28c0b937e339b3",
        "generation_config.json": "47e8105dde51c5d776aa0ceee2afd5157e84b5debab9e160bd333af37f11759d",
        "config.json": "c7dc878a0abfa73efb9d1410a9d9c2ccbc90438d1deef9192d3d6ff99a3e6ca1",
    }


@pytest.mark.parametrize("name", builtin_models.CONFIGS)
def test_written_configuration_has_the_vocabulary_of_the_tokenizer_beside_it(tmp_path: Path, name: str) -> None:
    pytest.importorskip("tokenizers")
    builtin_models.write(str(tmp_path), name, iter(["def a():\n    return 1\n" * 50]))
    config = json.loads((tmp_path / "config.json").read_text())
    # The text is too short for the whole vocabulary: 256 bytes, 3 special tokens and what there is to merge.
    assert 259 < config["vocab_size"] < 8192
    assert config["vocab_size"] == len(json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"])
    assert {**config, "vocab_size": 8192} == builtin_models.CONFIGS[name]
    own = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert own["model_max_length"] == config["max_position_embeddings"]


def test_moe_30b_has_the_published_shape_but_for_the_vocabulary() -> None:
    found = shape("moe-30b")
    assert (found.hidden_size, found.layers, found.heads, found.kv_heads, found.head_dim) == (2048, 48, 32, 4, 128)
    assert (found.experts, found.experts_per_token, found.moe_intermediate_size, found.intermediate_size) == (
        128,
        8,
        768,
        6144,
    )
    assert (found.moe_layers, found.max_context, found.vocab_size, found.dtype) == (48, 40960, 8192, "bfloat16")
    assert found.unknown == ()
    assert builtin_models.CONFIGS["moe-30b"]["rope_theta"] == 1e6
    # The published checkpoint has 30 532 122 624: with its vocabulary, the norms of queries and keys, and the last one.
    published = model_matrices.parameters(model_shape.read({**builtin_models.CONFIGS["moe-30b"], "vocab_size": 151936}))
    assert published[0] + 48 * 2 * 128 + 2048 == 30_532_122_624


def test_parameters_of_moe_30b_and_those_that_a_token_passes() -> None:
    every = 48 * (ATTENTION + ROUTER + NORMS + 128 * EXPERT) + 2 * TABLE
    active = 48 * (ATTENTION + ROUTER + NORMS + 8 * EXPERT) + TABLE + 2048
    assert (every, active) == (29_943_332_864, 2_747_467_776)
    assert served_shape.facts(shape("moe-30b")) == {
        "parameters": every,
        "active_parameters": active,
        "layers": 48,
        "experts": 128,
        "experts_per_token": 8,
        "quantization": "",
    }


def test_a_tied_head_is_one_table_that_a_token_passes() -> None:
    tied = model_shape.read({**builtin_models.CONFIGS["moe-30b"], "tie_word_embeddings": True})
    assert model_matrices.parameters(tied) == (29_943_332_864 - TABLE, 2_747_467_776)


def test_weights_and_cache_of_moe_30b_are_planned_right() -> None:
    planned = memory_plan.plan(shape("moe-30b"), Layout(), 140 * memory_plan.GIB)
    assert planned.weights_bytes == pytest.approx(59_886_665_728 * 1.04)
    # Keys and values of 4 heads of 128 in 48 layers, 2 bytes each.
    assert (
        planned.kv_token_bytes == 48 * 2 * 4 * 128 * 2 == kv_cache.token_bytes(shape("moe-30b"), Layout(), "bf16", 48)
    )
    half = memory_plan.plan(shape("moe-30b", quantization="fp8"), Layout(), 140 * memory_plan.GIB)
    # Router, norms, embedding and head stay as they are.
    assert half.weights_bytes / 1.04 == pytest.approx(
        48 * (ATTENTION + 128 * EXPERT) + 2 * (48 * (ROUTER + NORMS) + 2 * TABLE)
    )
    assert half.weights_bytes / planned.weights_bytes == pytest.approx(0.5008, abs=0.0001)


def test_a_token_of_moe_30b_reads_its_eight_experts_and_one_row() -> None:
    found = roofline.roofline(shape("moe-30b"), Layout(), 4.8e12)
    assert found.step_bytes == 2 * (48 * (ATTENTION + ROUTER + NORMS + 8 * EXPERT) + TABLE + 2048) == 5_494_935_552
    assert found.ceiling_tok_s == pytest.approx(873.5, abs=0.1)
