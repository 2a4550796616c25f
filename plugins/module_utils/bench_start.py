# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which start of the server a measurement belongs to: two starts of the same configuration can differ in speed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import start_history
from ansible_collections.tokforge.sglang.plugins.module_utils.service import Paths, Record, read_record

#: What of a start's record explains a difference between two measurements, or is shown in a report.
KEPT = (
    "started_at",
    "ready_s",
    "cold",
    "durations",
    "milestones",
    "ranks",
    "autotune",
    "autotune_outcome",
    "cache_before",
    "cache_after",
)


def of_server(root: str) -> dict[str, Any] | None:
    """The start of the server that this root describes; None when no server of it is on record."""
    server = read_record(Paths(root))
    if server is None or server.stopped:
        return None
    # As start_record.py names a start whose process nobody saw.
    ticks = server.start_ticks or int(server.started_at * 100)
    identity = start_history.Identity(server.boot_id, server.pid, ticks)
    return described(server, start_history.of_process(start_history.read(root), identity))


def described(server: Record, start: Mapping[str, Any] | None) -> dict[str, Any]:
    """A start as it is kept beside a measurement. `start` is its own record, None when it has none."""
    found = start or {}
    return {
        "id": f"{server.boot_id}/{server.pid}/{server.start_ticks}",
        **{name: found.get(name) for name in KEPT},
    }
