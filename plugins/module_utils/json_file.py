# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A file of our own that may not be there yet, or be half of one: without it, one goes on with less knowledge."""

from __future__ import annotations

import json
from typing import Any


def read_object(path: str) -> dict[str, Any]:
    """The JSON object in a file, empty when there is none that can be read."""
    try:
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream)
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
