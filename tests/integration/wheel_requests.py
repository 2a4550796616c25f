# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests for environments from wheels that a test made, below its own directory."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.environment_request import Request, Source

UV = shutil.which("uv", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]))


def from_wheels(directory: Path, lock: str, version: str, **more: Any) -> Request:
    """SGLang of this version, from the wheelhouse `wheels` in the directory."""
    return Request(
        root=str(directory / "root"),
        kind="sglang",
        lock=lock,
        uv=UV,
        uv_cache=str(directory / "uv-cache"),
        source=Source("wheelhouse", str(directory / "wheels")),
        expect={"sglang": version},
        **more,
    )
