# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What was probed and went well below one root: state/probes.json, the last _MOST of them. It is not done again.

A key stands for everything that the outcome depends on: the environment as it was built, arguments, environment
variables, the cut model, GPU and driver. Only a probe whose every step was done and went well is kept.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic

SCHEMA_VERSION = 1
_MOST = 50
_LARGEST = 1 << 20


def path_in(root: str) -> str:
    """Where the record of a root directory lies."""
    return os.path.join(root, "state", "probes.json")


def key_of(parts: Mapping[str, Any]) -> str:
    """16 hex digits for everything that the outcome of a probe depends on; plain data."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def find(root: str, key: str) -> dict[str, Any] | None:
    """The record of a probe that went well, None when there is none, or when what is there is none of ours."""
    return next((one for one in reversed(_read(root)) if one.get("key") == key), None)


def add(root: str, record: Mapping[str, Any]) -> str:
    """Keep a probe. Returns why it could not be kept, empty when it was: that is no reason to fail a probe."""
    kept = [one for one in _read(root) if one.get("key") != record["key"]][-(_MOST - 1) :]
    document = {"schema_version": SCHEMA_VERSION, "probes": [*kept, dict(record)]}
    try:
        os.makedirs(os.path.dirname(path_in(root)), exist_ok=True)
        write_atomic(path_in(root), json.dumps(document, indent=1, sort_keys=True).encode() + b"\n")
    except OSError as error:
        return f"cannot write {path_in(root)}: {error.strerror}; the next rollout probes again"
    return ""


def _read(root: str) -> list[dict[str, Any]]:
    try:
        with open(path_in(root), "rb") as stream:
            document = json.loads(stream.read(_LARGEST))
    except (OSError, ValueError, RecursionError):
        return []
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        return []
    probes = document.get("probes")
    return [one for one in probes if isinstance(one, dict)] if isinstance(probes, list) else []
