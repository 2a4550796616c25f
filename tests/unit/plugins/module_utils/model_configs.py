# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real models' config.json files, cut to the keys that tell their shape (tests/fixtures/models)."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import model_shape
from ansible_collections.tokforge.sglang.plugins.module_utils.model_shape import ModelShape

DIRECTORY = pathlib.Path(__file__).parents[3] / "fixtures" / "models"


def config(name: str) -> dict[str, Any]:
    """The config of a model by the name of its file."""
    found = json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def shape(name: str, quant: dict[str, Any] | None = None, **changes: Any) -> ModelShape:
    """The shape of a model, with some keys of its config changed."""
    return model_shape.read({**config(name), **changes}, quant)


#: NVFP4 as in the checkpoints of GLM-5: attention and head are left as they are.
NVFP4 = {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": ["lm_head", "*self_attn*"]}}
