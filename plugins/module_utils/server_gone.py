# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is a server that was stopped gone: its processes, its port, and what it held of the GPUs?

A killed process can be dead to its parent while the driver still frees its memory, and the next start would find too
little. nvidia-smi goes on naming it meanwhile. In a container it may name no process at all; then only the end of the
processes tells.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import proc
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Report


@dataclass(frozen=True)
class Proof:
    """`gpus_free` is None where no driver names the processes on the GPUs. `why` is "" when it is gone."""

    gone: bool
    processes: tuple[int, ...] = ()
    port_closed: bool = True
    gpus_free: bool | None = None
    gpu_processes: tuple[dict[str, Any], ...] = field(default=())
    why: str = ""


def judge(
    own: Sequence[int], holders: Sequence[proc.Listener], report: Report | None, pids: Collection[int], where: str
) -> Proof:
    """What was found, put together. `own` are living processes of the server, `holders` who listens on its port.

    `report` is about the GPUs, None where nobody looked. `pids` are the server's processes before it was stopped.
    """
    ours = set(pids) | set(own)
    named = report is not None and bool(report.gpus) and all(one.processes_known for one in report.gpus)
    left = tuple(
        {"gpu": one.index, "pid": process.pid, "memory_bytes": process.memory_bytes}
        for one in (report.gpus if report else ())
        for process in one.processes
        if process.pid in ours
    )
    reasons = []
    if own:
        reasons.append(f"its processes {', '.join(str(pid) for pid in own)} still run")
    if holders:
        who = sorted({pid for one in holders for pid in one.pids})
        by = f"process {', '.join(str(pid) for pid in who)}" if who else f"a process of user id {holders[0].uid}"
        reasons.append(f"{where} is still held by {by}")
    if left:
        text = ", ".join(f"GPU {one['gpu']} by process {one['pid']}" for one in left)
        reasons.append(f"memory is still held on {text}")
    free = not left if named or left else None
    return Proof(not reasons, tuple(own), not holders, free, left, "; ".join(reasons))
