# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the environment that serves says of itself: which backends it tunes, and where its SGLang comes from.

Read from the environment and not from a request, so that a rollout and a later measurement of the same server describe
it with the same words.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_gate, json_file, release_gate
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_root import ENVIRONMENT_MARKER

_ID = re.compile(r"[0-9a-f]{12}")
_GATE = ("backend", "gate", "enabled_by", "backends")
_SOURCE = ("type", "version", "commit", "changes")


def described(root: str, context: Mapping[str, Any]) -> dict[str, Any]:
    """The context with `autotune_gate` and `source` of its `environment` below `root`.

    `autotune_gate` names the backend that was opened, else the one that serves when it is tuned, else none; it is empty
    where SGLang has no gate. `source`: `type`, and for a source tree `commit` and `changes`, a digest of what differs
    from it. An environment that is not there leaves the context as it is.
    """
    name = context.get("environment")
    if not isinstance(name, str) or not _ID.fullmatch(name):
        return dict(context)
    marker = json_file.read_object(os.path.join(root, "venvs", name, ENVIRONMENT_MARKER))
    if not marker:
        return dict(context)
    return {
        **context,
        "autotune_gate": _gate(marker.get("autotune_gate"), context.get("backend")),
        "source": _source(marker.get("identity")),
    }


def _gate(recorded: Any, serving: Any) -> dict[str, Any]:
    if not recorded or not release_gate.well_formed(recorded):
        return {}
    backends = recorded["backends"]
    patched = sorted(name for name, by in backends.items() if by == autotune_gate.PATCH)
    asked = patched[0] if patched else serving if serving in backends else None
    found = release_gate.described(recorded, asked) or {}
    return {name: found[name] for name in _GATE}


def _source(identity: Any) -> dict[str, Any]:
    source = identity.get("source") if isinstance(identity, Mapping) else None
    return {name: source[name] for name in _SOURCE if name in source} if isinstance(source, Mapping) else {}
