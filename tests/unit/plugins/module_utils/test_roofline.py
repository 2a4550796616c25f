# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bound of decoding, against sums by hand."""

from __future__ import annotations

from typing import Any

import pytest
from model_configs import NVFP4, shape

from ansible_collections.tokforge.sglang.plugins.module_utils import roofline
from ansible_collections.tokforge.sglang.plugins.module_utils.model_matrices import Layout
from ansible_collections.tokforge.sglang.plugins.module_utils.roofline import Roofline

#: Peak of an RTX PRO 6000.
PRO_6000 = 1792e9


def test_glm_5_nvfp4_on_eight_gpus_reads_what_its_config_says() -> None:
    """The worked example of docs/roofline.md."""
    found = roofline.roofline(shape("glm-5", NVFP4), Layout(tp=8), PRO_6000)
    parts = {name: round(size / 1e9, 3) for name, size in found.bytes_by_part.items()}
    assert parts == {
        "embedding": 0.0,
        "attention": 5.419,
        "indexer": 1.462,
        "norms": 0.002,
        "dense": 0.048,
        "router": 0.236,
        "experts": 1.593,
        "shared experts": 0.199,
        "lm_head": 0.238,
        "cache": 0.0,
    }
    assert found.step_bytes / 1e9 == pytest.approx(9.196, abs=0.001)
    assert found.floor_s == pytest.approx(5.132e-3, abs=1e-6)
    assert found.ceiling_tok_s == pytest.approx(194.9, abs=0.1)
    # By hand: whole on each rank are the projections down, the indexer and the router; the rest is split by 8.
    whole = 78 * 2 * (6144 * (2048 + 576) + (2048 * 32 + 6144) * 128 + 6144 * 32) + 75 * 2 * 6144 * 256
    split = 78 * 2 * (2048 * 64 * 256 + 512 * 64 * 448 + 64 * 256 * 6144) + 2 * 154880 * 6144
    four = 4.5 / 8 * 3 * 6144 * (75 * 9 * 2048 + 3 * 12288)
    norms = 78 * 2 * (2 * 6144 + 2048 + 512)
    assert found.step_bytes == pytest.approx(whole + norms + (split + four) / 8 + 2 * 6144 / 8)


def test_the_same_weights_all_in_four_bits_and_evenly_split_would_be_the_quoted_figure() -> None:
    """Where 2.86 GB a GPU comes from: 40.8 G weights of a token, 4.5 bits each, an eighth of them."""
    model = shape("glm-5", NVFP4)
    passed = sum(
        size * 8 / (16 if name != "experts" else 4.5)
        for name, size in roofline.roofline(shape("glm-5"), Layout()).bytes_by_part.items()
        if name not in ("experts", "embedding", "norms")
    )
    passed += roofline.roofline(model, Layout()).bytes_by_part["experts"] * 8 / 4.5
    assert passed / 1e9 == pytest.approx(40.8, abs=0.1)
    assert passed * 4.5 / 8 / 8 / 1e9 == pytest.approx(2.87, abs=0.01)


def test_a_dense_model_reads_its_weights_but_for_the_embedding() -> None:
    found = roofline.roofline(shape("llama-3.3-70b"), Layout(tp=4), 3.35e12)
    weights = 2 * (80 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672) + 128256 * 8192)
    assert found.step_bytes == pytest.approx(weights / 4 + 80 * 2 * 2 * 8192 + 2 * 8192 / 4)
    assert found.experts_read == 0
    assert found.ceiling_tok_s == pytest.approx(3.35e12 / found.step_bytes)
    # A larger batch reads the same weights, and a row of the embedding more each.
    many = roofline.roofline(shape("llama-3.3-70b"), Layout(tp=4), 3.35e12, batch=11)
    assert many.step_bytes - found.step_bytes == pytest.approx(10 * 2 * 8192 / 4)
    assert many.ceiling_tok_s == pytest.approx(11 * 3.35e12 / many.step_bytes)


def test_a_tied_head_is_read_all_the_same() -> None:
    tied = roofline.roofline(shape("qwen3-14b", tie_word_embeddings=True))
    assert tied.bytes_by_part["lm_head"] == 2 * 151936 * 5120


def test_no_more_rows_of_the_embedding_are_read_than_there_are() -> None:
    found = roofline.roofline(shape("qwen3-14b"), batch=1_000_000)
    assert found.bytes_by_part["embedding"] == 2 * 151936 * 5120


@pytest.mark.parametrize(
    ("experts", "chosen", "tokens", "expected"),
    [
        (256, 8, 1, 8),
        (256, 8, 2, 8 + 8 * (1 - 8 / 256)),
        (8, 2, 32, 8 * (1 - 0.75**32)),
        (128, 1, 1, 1),
        (4, 4, 7, 4),
        (0, 0, 5, 0),
    ],
)
def test_experts_that_a_batch_reaches(experts: int, chosen: int, tokens: int, expected: float) -> None:
    assert roofline.experts_reached(experts, chosen, tokens) == pytest.approx(expected)


def test_experts_are_read_by_coverage_of_the_batch() -> None:
    model, layout = shape("qwen3-235b-a22b"), Layout(tp=8)
    one = roofline.roofline(model, layout)
    many = roofline.roofline(model, layout, batch=32)
    expert = 94 * 2 * 3 * 4096 * 1536 / 8
    assert one.bytes_by_part["experts"] == pytest.approx(8 * expert)
    assert many.bytes_by_part["experts"] == pytest.approx(128 * (1 - (15 / 16) ** 32) * expert)
    assert many.experts_read == pytest.approx(111.77, abs=0.01)
    assert one.bytes_by_part["router"] == many.bytes_by_part["router"] == 94 * 2 * 4096 * 128
    # Sharing experts out instead of splitting them changes nothing on average.
    assert roofline.roofline(model, Layout(tp=8, ep=8), batch=32).bytes_by_part == many.bytes_by_part


@pytest.mark.parametrize(
    ("name", "layout", "dtype", "context", "expected"),
    [
        ("llama-3.3-70b", Layout(tp=8), "bf16", 1000, 80 * 512 * 1000),
        ("llama-3.3-70b", Layout(tp=8), "fp8_e4m3", 1000, 80 * 256 * 1000),
        ("deepseek-v3", Layout(tp=8), "auto", 1000, 61 * 1152 * 1000),
        # Sparse attention: 2048 tokens of the cache, all of the indexer's keys.
        ("glm-5", Layout(tp=8), "bf16", 100_000, 78 * (1152 * 2048 + 132 * 100_000)),
        ("glm-5.2", Layout(tp=8), "bf16", 100_000, 78 * 1152 * 2048 + 21 * 132 * 100_000),
        ("glm-5", Layout(tp=8), "bf16", 1000, 78 * (1152 + 132) * 1000),
        ("gpt-oss-120b", Layout(tp=8), "bf16", 1000, 18 * 256 * (1000 + 128)),
        ("gpt-oss-120b", Layout(tp=8), "bf16", 100, 36 * 256 * 100),
        (
            "qwen3-next-80b-a3b",
            Layout(),
            "bf16",
            1000,
            12 * 2048 * 1000 + 36 * (32 * 128 * 128 * 4 + 8192 * 3 * 2),
        ),
    ],
)
def test_the_cache_is_read_for_the_context(
    name: str, layout: Layout, dtype: str, context: int, expected: float
) -> None:
    found = roofline.roofline(shape(name), layout, None, context, 1, dtype)
    assert found.bytes_by_part["cache"] == pytest.approx(expected)
    assert roofline.roofline(shape(name), layout, None, context, 3, dtype).bytes_by_part["cache"] == pytest.approx(
        3 * expected
    )


def test_attention_by_replicas_shares_the_requests_out_and_the_experts_see_all() -> None:
    model = shape("deepseek-v3")
    layout = Layout(tp=8, dp=8, dp_attention=True)
    found = roofline.roofline(model, layout, None, 1000, 16)
    assert found.bytes_by_part["cache"] == pytest.approx(2 * 61 * 1152 * 1000)
    assert found.experts_read == pytest.approx(roofline.experts_reached(256, 8, 16))
    # Each replica has the whole attention.
    alone = roofline.roofline(model, Layout(), None, 1000, 2)
    assert found.bytes_by_part["attention"] == pytest.approx(alone.bytes_by_part["attention"])


def test_replicas_of_the_model_share_the_requests_out() -> None:
    model = shape("deepseek-v3")
    found = roofline.roofline(model, Layout(tp=8, dp=2), 1e12, 100, 9)
    half = roofline.roofline(model, Layout(tp=8), 1e12, 100, 5)
    assert found.step_bytes == half.step_bytes
    assert found.experts_read == half.experts_read
    assert found.ceiling_tok_s == pytest.approx(9 / (half.floor_s or 0))


def test_stages_of_a_pipeline_are_added_up() -> None:
    model = shape("llama-3.3-70b")
    assert roofline.roofline(model, Layout(tp=2, pp=4)).step_bytes == roofline.roofline(model, Layout(tp=2)).step_bytes


def test_without_a_bandwidth_there_are_bytes_and_no_time() -> None:
    found = roofline.roofline(shape("qwen3-14b"))
    assert (found.bandwidth_bytes_s, found.floor_s, found.ceiling_tok_s) == (None, None, None)
    assert found.step_bytes > 27e9
    assert Roofline(1, 0, 1e12, {}, 0.0).ceiling_tok_s is None


def test_what_the_shape_does_not_know_is_passed_on() -> None:
    assert roofline.roofline(shape("qwen3-14b", torch_dtype=None)).unknown == ("dtype",)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"batch": 0}, "batch is 0; give a whole number of requests from 1"),
        ({"batch": True}, "batch is True"),
        ({"batch": 1.5}, "batch is 1.5"),
        ({"batch": 10**30}, "batch is 1000000000000000000000000000000"),
        ({"context": -1}, "context is -1; give a whole number of tokens from 0"),
        ({"context": "8k"}, "context is '8k'"),
        ({"bandwidth_bytes_s": 0}, "bandwidth_bytes_s is 0; give a number above 0 and at most 1e+14"),
        ({"bandwidth_bytes_s": float("nan")}, "bandwidth_bytes_s is nan"),
        ({"bandwidth_bytes_s": float("inf")}, "bandwidth_bytes_s is inf"),
        ({"bandwidth_bytes_s": True}, "bandwidth_bytes_s is True"),
        ({"bandwidth_bytes_s": "1792"}, "bandwidth_bytes_s is '1792'"),
    ],
)
def test_values_that_cannot_be_are_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="give a") as caught:
        roofline.roofline(shape("qwen3-14b"), **keys)
    assert message in str(caught.value)


def test_a_measurement_as_a_share_of_the_ceiling() -> None:
    ceiling = roofline.roofline(shape("glm-5", NVFP4), Layout(tp=8), PRO_6000).ceiling_tok_s
    assert roofline.share(51.6, ceiling) == pytest.approx(0.265, abs=0.001)
    assert roofline.share(0, 100.0) == 0
    assert roofline.share(10.0, None) is None
    for measured, limit in ((float("nan"), 1.0), (-1.0, 1.0), (1.0, 0.0), (True, 1.0), (1.0, float("inf"))):
        with pytest.raises(ValueError, match="give a number above 0"):
            roofline.share(measured, limit)
