# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a server decodes speculatively, and why its figures stand apart then.

All engines send random prompts here. A draft model continues those badly, or too well, so the rate is not that of real
text and is only compared with that of another server that speculates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.flags import canonical
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import finite

FLAG = "speculative-algorithm"
WHY_NOT = "speculative decoding on one side only, and the prompts are random"


def in_args(args: Any) -> bool:
    """Whether launch arguments, by name, ask for it."""
    if not isinstance(args, Mapping):
        return False
    return any(canonical(str(name)) == FLAG and value not in (None, "", False) for name, value in args.items())


def in_record(record: Mapping[str, Any]) -> bool:
    """Whether a recorded run had it: by its arguments, or since it tells how many tokens a step were accepted."""
    context, points = record.get("context"), record.get("points")
    if in_args(context.get("args") if isinstance(context, Mapping) else None):
        return True
    listed = points if isinstance(points, list) else []
    return any(isinstance(point, Mapping) and finite(point.get("accept_length")) is not None for point in listed)
