# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The flags of a release for the catalog: what `flag_reader.py` of the core reads, with nothing left unread."""

from __future__ import annotations

import sys
from pathlib import Path

# The tools are run as scripts, where nothing else brings the collection's own modules.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "collections"))

from ansible_collections.tokforge.sglang.plugins.module_utils import flag_reader
from ansible_collections.tokforge.sglang.plugins.module_utils.flags import Flag
from ansible_collections.tokforge.sglang.plugins.module_utils.source_values import ExtractionError

__all__ = ["ExtractionError", "Flag", "flag_reader", "read_flags"]


def read_flags(root: Path) -> dict[str, Flag]:
    """Name -> flag of the `sglang` package below `root`. Raises ExtractionError when the result cannot be right."""
    found = flag_reader.read(root)
    if found.unread:
        raise ExtractionError(f"{found.unread[0]}; teach flag_reader.py")
    backend = found.flags.get("moe-runner-backend")
    if backend is None or not backend.choices:
        raise ExtractionError(
            f"reading {root}: no choices found for --moe-runner-backend; the layout changed, teach flag_reader.py "
            "how this release declares them"
        )
    return dict(found.flags)
