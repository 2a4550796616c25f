# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What starts of one root's server took: state/starts.json, the last _MOST of them, the newest last.

It tells a later wait how long a start like this one took, it feeds reports, it tells which launch arguments failed
inside autotune, and that a server which has been running for long was found ready, when its log no longer holds that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic

SCHEMA_VERSION = 1
READY, FAILED = "ready", "failed"
#: What is kept of a look of startup_info that found a start ready.
KEPT = (
    "ranks",
    "expected_ranks",
    "autotune",
    "milestones",
    "durations",
    "noise",
    "format",
    "restarts",
    "notes",
    "cold",
    "cache_before",
)
_MOST = 50
_LARGEST = 4 * 1024 * 1024


class HistoryError(Exception):
    """The record cannot be written, or not be read and must not be overwritten."""


@dataclass(frozen=True)
class Identity:
    """Which start is meant: a pid alone names nothing for long."""

    boot_id: str
    pid: int
    start_ticks: int


def path_in(root: str) -> str:
    """Where the record of a root directory lies."""
    return os.path.join(root, "state", "starts.json")


def read(root: str) -> list[dict[str, Any]]:
    """The recorded starts; empty when there are none, or when what is there is none of ours."""
    try:
        return _read(root)
    except HistoryError:
        return []


def knows(starts: list[dict[str, Any]], content_id: str) -> bool:
    """Whether a start of these launch arguments is on record."""
    return any(start.get("content_id") == content_id for start in starts)


def failed_in_autotune(starts: list[dict[str, Any]], content_id: str) -> bool:
    """Whether the newest start of these launch arguments failed inside autotune."""
    newest = next((start for start in reversed(starts) if start.get("content_id") == content_id), None)
    failure = (newest or {}).get("failure")
    return isinstance(failure, dict) and failure.get("stage") == "autotune" and bool(failure.get("fatal"))


def of_process(starts: list[dict[str, Any]], identity: Identity) -> dict[str, Any] | None:
    """The record of the very process, None when its start is not on record."""
    return next((start for start in reversed(starts) if _identity(start) == identity), None)


def like(starts: list[dict[str, Any]], cold: bool) -> dict[str, Any] | None:
    """The newest start that began with caches as full, None when there is none."""
    ready = (start for start in reversed(starts) if start.get("state") == READY)
    return next((start for start in ready if start.get("cold") is cold and _seconds(start.get("ready_s"))), None)


def add(root: str, start: Mapping[str, Any], write: bool = True) -> bool:
    """Put a start on record, in the place of an earlier record of the same process. False when it says the same.

    Raises HistoryError; nothing was changed then.
    """
    starts = _read(root)
    identity = _identity(start)
    if of_process(starts, identity) == dict(start):
        return False
    kept = [old for old in starts if _identity(old) != identity][-(_MOST - 1) :]
    if write:
        document = {"schema_version": SCHEMA_VERSION, "starts": [*kept, dict(start)]}
        try:
            write_atomic(path_in(root), json.dumps(document, indent=1, sort_keys=True).encode() + b"\n")
        except OSError as error:
            raise HistoryError(
                f"cannot write {path_in(root)}: {error.strerror}; free space there or make it writable, then run again"
            ) from error
    return True


def _read(root: str) -> list[dict[str, Any]]:
    path = path_in(root)
    try:
        with open(path, "rb") as stream:
            data = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise HistoryError(f"cannot read {path}: {error.strerror}; make it readable, then run again") from error
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        # Half a file is worth nothing, and the next start is more than it holds.
        return []
    if not isinstance(document, dict) or not isinstance(document.get("starts"), list):
        return []
    if document.get("schema_version") != SCHEMA_VERSION:
        raise HistoryError(
            f"cannot use {path}: its schema_version is {document.get('schema_version')!r}, this version of the"
            f" collection knows {SCHEMA_VERSION}; use the newer version, or move the file away"
        )
    return [start for start in document["starts"] if isinstance(start, dict)]


def _identity(start: Mapping[str, Any]) -> Identity:
    return Identity(str(start.get("boot_id")), _whole(start.get("pid")), _whole(start.get("start_ticks")))


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
