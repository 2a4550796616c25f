# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is there enough free memory on each GPU, and who holds the rest?

Processes that are not ours are named by number and name, and left alone: whose they are is for a person to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, WARN, Finding
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu, GpuProcess

GIB = 1 << 30

#: A process with less is a desktop or a monitor (Xorg holds 4 MiB on a GPU without screen, a CUDA context 300 to 600).
SMALL_BYTES = 256 << 20

#: Memory beyond what processes are said to hold that needs an explanation. The driver itself keeps less.
UNSEEN_BYTES = 2 * GIB

#: At most this many processes are named of each GPU.
SHOWN = 6


def check_memory(chosen: Sequence[Gpu], own_pids: AbstractSet[int], need_free_bytes: int | None) -> list[Finding]:
    """One finding for each GPU with too little free memory (fail), or with memory that others hold (warning).

    :param own_pids: processes whose memory will be free when the server starts.
    :param need_free_bytes: what has to be free on each GPU; None when it is not known, then nothing fails.
    """
    found = []
    for one in chosen:
        finding = _memory(one, own_pids, need_free_bytes)
        if finding:
            found.append(finding)
    return found


def _memory(one: Gpu, own_pids: AbstractSet[int], need: int | None) -> Finding | None:
    own = [process for process in one.processes if process.pid in own_pids]
    foreign = [process for process in one.processes if process.pid not in own_pids]
    large = [process for process in foreign if process.memory_bytes is None or process.memory_bytes >= SMALL_BYTES]
    unseen = max(0, (one.memory_used_bytes or 0) - sum(process.memory_bytes or 0 for process in one.processes))
    told = all(process.memory_bytes is not None for process in one.processes)
    hidden = unseen if told and unseen >= UNSEEN_BYTES else 0
    if one.memory_free_bytes is None:
        message = f"GPU {one.index}: how much memory is free is not told" + _holders(foreign, " and it is used by ")
        return Finding(WARN, "gpu", message, "run nvidia-smi as root, which sees more")
    free = one.memory_free_bytes + sum(process.memory_bytes or 0 for process in own)
    if need is not None and free < need:
        # What our own server holds may be told of no process: in a container, or where a process's share is N/A.
        ours = bool(own_pids) and not foreign and (not told or free + hidden >= need)
        return _short_of(one, free, need, foreign, hidden, ours)
    if large:
        message = (
            f"GPU {one.index} is shared: {gib(one.memory_free_bytes)} of {gib(one.memory_total_bytes)} free"
            + _holders(large, ", held by ")
        )
        return Finding(WARN, "gpu", message, _see(large))
    if hidden and not own_pids:
        message = f"GPU {one.index}: {gib(hidden)} are held by processes that are not seen from here"
        return Finding(WARN, "gpu", message, "look from the host (outside the container) with nvidia-smi as root")
    return None


def _short_of(one: Gpu, free: int, need: int, foreign: Sequence[GpuProcess], hidden: int, ours: bool) -> Finding:
    """Less than needed is free: why, and who has the rest. `ours`: perhaps only the server that is to be replaced."""
    which = f"GPU {one.index} ({one.name or 'unnamed'})"
    # The driver keeps some for itself.
    whole = None if one.memory_total_bytes is None else one.memory_total_bytes - (one.memory_reserved_bytes or 0)
    if whole is not None and whole < need:
        message = f"{which} has {gib(whole)} for programs in all and {gib(need)} are needed"
        remedy = "use more GPUs for each copy (tp), a smaller or more quantized model, or a lower mem-fraction-static"
        return Finding(FAIL, "gpu", message, remedy)
    message = f"{which} has {gib(free)} free and {gib(need)} are needed" + _holders(foreign, "; held by ")
    if hidden:
        message += f"; {gib(hidden)} are held by processes that are not seen from here"
    if ours:
        remedy = "fine when that is the server which will be replaced; otherwise look from the host with nvidia-smi"
        return Finding(WARN, "gpu", message, remedy)
    if foreign:
        return Finding(FAIL, "gpu", message, _see(foreign))
    return Finding(FAIL, "gpu", message, "look from the host with nvidia-smi as root for who holds the memory")


def _holders(processes: Iterable[GpuProcess], before: str) -> str:
    shown = sorted(processes, key=lambda process: -(process.memory_bytes or 0))
    if not shown:
        return ""
    words = ", ".join(f"pid {one.pid} ({one.name or 'no name'}) with {gib(one.memory_bytes)}" for one in shown[:SHOWN])
    return before + words + (f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else "")


def _see(processes: Sequence[GpuProcess]) -> str:
    pids = ",".join(str(one.pid) for one in processes[:SHOWN])
    return (
        f"see whose they are with `ps -o pid,user,lstart,args -p {pids}`; let their owner stop them, or leave this GPU "
        "out with CUDA_VISIBLE_DEVICES"
    )


def gib(count: int | None) -> str:
    """Bytes for a person."""
    return "an unknown amount" if count is None else f"{count / GIB:.1f} GiB"


def numbers(indices: Sequence[int]) -> str:
    """GPU numbers for a person: GPU 3, or GPUs 0-3, 6."""
    if len(indices) == 1:
        return f"GPU {indices[0]}"
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return "GPUs " + ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
