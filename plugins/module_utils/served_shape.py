# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A model's shape as a server has it: config.json, and what launch arguments make of it.

--json-model-override-args replaces keys of config.json, also `quantization_config`. --quantization fp8 makes fp8 of a
checkpoint that is not quantized, after all of it was loaded (read in 0.5.12.post1 and 0.5.23: get_config, Fp8Config
and DefaultModelLoader, DummyModelLoader).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import model_files, model_matrices, model_shape
from ansible_collections.tokforge.sglang.plugins.module_utils.model_shape import ModelShape

#: Keys of config.json that are replaced, as an object or as its JSON text.
OVERRIDE = "json-model-override-args"

#: What SGLang makes of unquantized weights by itself. Others want a checkpoint that is quantized already, or are not
#: known to be of one size a weight.
_ON_LOAD = ("fp8", "mxfp8")


@dataclass(frozen=True)
class Served:
    """The shape that serves. `loaded` is that of the weights before they are quantized, None where they are as loaded.

    `loaded` has to fit as a whole too: nothing is quantized before everything is loaded.
    """

    shape: ModelShape
    loaded: ModelShape | None = None


def read(config: Mapping[str, Any], quant: Mapping[str, Any] | None, args: Mapping[str, Any]) -> Served:
    """The shape with launch arguments, which have their canonical names. `quant` is hf_quant_config.json.

    What is no usable argument is left to the check of the arguments. Raises ShapeError.
    """
    config = {**config, **_overrides(args.get(OVERRIDE))} if isinstance(config, Mapping) else config
    shape = model_shape.read(config, quant)
    wanted = str(args.get("quantization") or "").lower()
    if shape.quantization or wanted not in _ON_LOAD:
        return Served(shape)
    return Served(model_shape.read({**config, "quantization_config": {"quant_method": wanted}}, quant), shape)


def of_directory(directory: str, args: Mapping[str, Any]) -> Served:
    """The shape of a model directory with launch arguments. Raises ModelError and ShapeError."""
    return read(*model_files.read(directory), args)


def facts(shape: ModelShape) -> dict[str, Any]:
    """What a reader must know of a model to judge its speed. Parameters are counted from the shape."""
    every, active = model_matrices.parameters(shape)
    return {
        "parameters": every,
        "active_parameters": active,
        "layers": shape.layers,
        "experts": shape.experts,
        "experts_per_token": shape.experts_per_token,
        "quantization": shape.quantization,
    }


def _overrides(given: Any) -> Mapping[str, Any]:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return {}
    return given if isinstance(given, Mapping) else {}
