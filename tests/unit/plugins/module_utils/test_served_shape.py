# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What launch arguments make of a model's shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import builtin_models, served_shape
from ansible_collections.tokforge.sglang.plugins.module_utils.config_values import ShapeError
from ansible_collections.tokforge.sglang.plugins.module_utils.model import ModelError

CONFIG = builtin_models.CONFIGS["moe-30b"]
BLOCKS = {
    "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
}


@pytest.mark.parametrize(
    ("args", "method", "bits", "later"),
    [
        ({}, "", 16, False),
        ({"quantization": "fp8"}, "fp8", 8, True),
        ({"quantization": "MXFP8"}, "mxfp8", 8.25, True),
        # Wants a checkpoint that is quantized already: not known what comes of this one.
        ({"quantization": "awq"}, "", 16, False),
        ({"quantization": None}, "", 16, False),
        ({served_shape.OVERRIDE: BLOCKS}, "fp8", 8 + 32 / 128**2, False),
        ({served_shape.OVERRIDE: json.dumps(BLOCKS), "quantization": "fp8"}, "fp8", 8 + 32 / 128**2, False),
        ({served_shape.OVERRIDE: "{no"}, "", 16, False),
        ({served_shape.OVERRIDE: [1]}, "", 16, False),
    ],
)
def test_experts_have_the_bits_that_the_arguments_give_them(
    args: dict[str, Any], method: str, bits: float, later: bool
) -> None:
    found = served_shape.read(CONFIG, None, args)
    assert (found.shape.quantization, found.shape.weight_bits["experts"]) == (method, bits)
    # What is quantized as it is made was never larger; what is quantized later was 16 bits first.
    assert (found.loaded is not None) is later
    assert found.loaded is None or found.loaded.weight_bits["experts"] == 16


def test_modelopt_fp8_is_told_by_the_override() -> None:
    given = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}}
    found = served_shape.read(CONFIG, None, {served_shape.OVERRIDE: given, "quantization": "modelopt_fp8"})
    assert found.shape.weight_bits["experts"] == 8 and found.loaded is None


def test_checkpoint_that_is_quantized_stays_as_it_is() -> None:
    quant = {"quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    found = served_shape.read(CONFIG, quant, {"quantization": "fp8"})
    assert (found.shape.quantization, found.loaded) == ("modelopt_fp4", None)


def test_other_keys_are_overridden_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    found = served_shape.of_directory(str(tmp_path), {served_shape.OVERRIDE: {"num_hidden_layers": 2}})
    assert (found.shape.layers, found.shape.experts) == (2, 128)


def test_what_is_no_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        served_shape.of_directory(str(tmp_path), {})
    with pytest.raises(ShapeError):
        served_shape.read([], None, {})  # type: ignore[arg-type]
