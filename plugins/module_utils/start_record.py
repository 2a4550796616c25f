# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One start as it is put on record: what the look found, when it was ready, and what is there of the tuning results."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_cache, start_history, startup_failure
from ansible_collections.tokforge.sglang.plugins.module_utils.proc import boot_id
from ansible_collections.tokforge.sglang.plugins.module_utils.service import Paths, Record, read_record
from ansible_collections.tokforge.sglang.plugins.module_utils.startup_expect import NOT_EXPECTED

_FATAL = (
    startup_failure.EXCEPTION,
    startup_failure.OOM_CUDA,
    startup_failure.COMPILE_FAILURE,
    startup_failure.UNSUPPORTED_ARCHITECTURE,
    startup_failure.ILLEGAL_INSTRUCTION,
    startup_failure.RANK_DEAD,
    startup_failure.PROCESS_EXIT,
    startup_failure.STALLED,
)
COMPLETED, INCOMPLETE, NOT_RUN, DISABLED_FALLBACK = "completed", "incomplete", "none", "disabled_fallback"


def make(
    paths: Paths,
    start: Mapping[str, Any],
    output_check: Mapping[str, Any] | None = None,
    content_id: str = "",
    fallback: bool = False,
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The record of the last start as it is, and as it is to be; None for none.

    `start` is the last look of startup_info, `content_id` names the launch arguments.
    """
    server = read_record(paths)
    if server is None or server.boot_id != boot_id():
        return None, None
    # A server that died at once may be gone before anybody saw its process: then the time tells its start.
    ticks = server.start_ticks or int(server.started_at * 100)
    ready = start.get("state") == start_history.READY
    identity = start_history.Identity(server.boot_id, server.pid, ticks)
    before = start_history.of_process(start_history.read(paths.root), identity)
    check = dict(output_check) if output_check else None
    if before is not None and (before.get("state") == start_history.READY or not ready):
        # A start is told once; the output of the same server can be checked later.
        return before, {**before, "output_check": check or before.get("output_check")}
    tuning = start.get("autotune") or {}
    record = {
        "state": start_history.READY if ready else start_history.FAILED,
        "failure": None if ready else failure(start),
        "content_id": content_id,
        "boot_id": server.boot_id,
        "pid": server.pid,
        "start_ticks": ticks,
        "release": os.path.basename(server.release),
        "launch_id": server.launch_id,
        "started_at": round(server.started_at, 3),
        "ready_s": ready_s(server, start.get("milestones") or {}) if ready else None,
        **{name: start.get(name) for name in start_history.KEPT},
        "cache_after": cache_state(paths),
        "autotune_outcome": outcome(tuning, len(start.get("expected_ranks") or [1]), fallback),
        "output_check": check,
    }
    return before, record


def failure(start: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a failure. `fatal`: a start without autotune may do better, which is not so for
    a port that is taken, a file that is missing or memory that other programs use."""
    found = start.get("failure") or {}
    excerpt = found.get("excerpt") or []
    reason = str(found.get("reason") or "timeout")
    return {
        "reason": reason,
        "rank": str(found.get("rank") or ""),
        "stage": str(found.get("stage") or start.get("stage") or ""),
        "last_line": str(excerpt[-1]) if excerpt else "",
        "fatal": reason in _FATAL,
    }


def outcome(tuning: Mapping[str, Any], expected: int, fallback: bool) -> str:
    """completed (by as many ranks as are expected), incomplete, not_expected, none (nobody knows why no rank tuned) or
    disabled_fallback.
    """
    if fallback:
        return DISABLED_FALLBACK
    completed = len(tuning.get("ranks_completed") or [])
    if completed or tuning.get("ranks_started"):
        return COMPLETED if completed >= expected else INCOMPLETE
    return NOT_EXPECTED if tuning.get("expected") == NOT_EXPECTED else NOT_RUN


def ready_s(server: Record, milestones: Mapping[str, Any]) -> float | None:
    """Seconds from the start of the process to the record that it is ready, which has whole seconds of local time."""
    ready = milestones.get("ready") or milestones.get("node_ready") or {}
    try:
        at = datetime.fromisoformat(str(ready.get("first"))).timestamp()
    except ValueError:
        return None
    seconds = round(at - server.started_at, 1)
    # A server with a time zone of its own, or a start that is not the one on record.
    return max(seconds, 0.0) if -2 < seconds < 24 * 3600 else None


def cache_state(paths: Paths) -> dict[str, str]:
    """Directory of each set of tuning results that the current release uses -> complete, partial, stale and so on."""
    release = os.path.realpath(paths.current)
    try:
        with open(os.path.join(release, "launch.json"), encoding="utf-8") as stream:
            launch = json.load(stream)
        argv = [str(word) for word in launch["argv"]]
        environment = {str(name): str(value) for name, value in (launch.get("env") or {}).items()}
        venv = os.path.join(release, "venv")
        versions = autotune_cache.installed_versions(venv)
        flashinfer = versions.get("flashinfer-python")
        if autotune_cache.off_because(argv, environment, versions.get("sglang", ""), flashinfer):
            return {}
        findings = autotune_cache.inspect(
            autotune_cache.configure(argv, environment, venv, str(launch.get("cwd") or paths.root))
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, autotune_cache.AutotuneCacheError):
        return {}  # a figure for a report; the launcher is who must know, and it says so
    return {report.path: report.state for report in findings.reports}
