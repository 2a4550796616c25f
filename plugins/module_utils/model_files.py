# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two files that describe a model: config.json, and hf_quant_config.json of NVIDIA ModelOpt where it has one.

They come from somebody else: what is no plain file of a JSON object, or of a size that no such file has, is an error.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.model import ModelError

LARGEST_BYTES = 64 << 20
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def read(directory: str) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Both files, None for a quantization file that is not there. Raises ModelError."""
    config = _object(os.path.join(directory, "config.json"))
    if config is None:
        raise ModelError(f"cannot use the model {shown(directory)}: it has no config.json; give its directory")
    return config, read_quantization(directory)


def read_quantization(directory: str) -> Mapping[str, Any] | None:
    """hf_quant_config.json, None when the model has none. Raises ModelError for one that is damaged."""
    return _object(os.path.join(directory, "hf_quant_config.json"))


def _object(path: str) -> Mapping[str, Any] | None:
    """A JSON object, None without such a file."""
    try:
        # A pipe would be waited for.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ModelError(f"cannot read {shown(path)}: it is no file; copy it again")
        with open(path, "rb") as handle:
            content = handle.read(LARGEST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise ModelError(f"cannot read {shown(path)}: {exc.strerror}; make it readable") from exc
    except ValueError as exc:
        raise ModelError(f"cannot read {shown(path)}: it is no path") from exc
    if len(content) > LARGEST_BYTES:
        raise ModelError(f"cannot use {shown(path)}: it has more than {LARGEST_BYTES} bytes; copy it again")
    try:
        given = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as exc:
        raise ModelError(f"cannot use {shown(path)}: it is no valid JSON; copy it again") from exc
    if not isinstance(given, dict):
        raise ModelError(f"cannot use {shown(path)}: it is no JSON object; copy it again")
    return given


def shown(path: str) -> str:
    """A path as it can be printed: no control characters, and what is no text is escaped."""
    return _CONTROL.sub("?", path).encode("utf-8", "backslashreplace").decode("utf-8")
