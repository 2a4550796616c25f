# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host memory: what is free for the server within every limit, and how many compilers may run in it at once.

FlashInfer and SGLang compile kernels with ninja while the server starts. ninja starts one compiler a CPU and two more,
each takes 3 to 8 GiB, and the kernel ends the server when that is more than there is (flashinfer-ai/flashinfer#3634,
#3636, #3665, #3899: 85 files, exit code 137). Both give ninja MAX_JOBS as the number of compilers (read in FlashInfer
0.6.8.post1 to 0.7.2 and SGLang 0.5.23).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import cgroups, host_files
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding

GIB = 1 << 30

#: What compilers leave alone: the server's own processes and the rest of the machine, in bytes.
RESERVED_BYTES = 16 * GIB

#: What one compiler of FlashInfer's kernels takes at most and at least, in bytes (the issues above).
MOST_PER_JOB_BYTES = 8 * GIB
LEAST_PER_JOB_BYTES = 3 * GIB

#: What the processes of one rank hold without weights and caches, in bytes: interpreter, torch, CUDA's libraries and
#: staging buffers. An estimate, so falling short of it only warns.
PER_RANK_BYTES = 4 * GIB

_MEMORY = "host_memory"
_JOBS = "compile_jobs"


@dataclass(frozen=True)
class Memory:
    """What /proc/meminfo and the control groups say, in bytes; None for what is not said.

    `available_bytes` is the least of what the machine and every limit leave, page cache that can be given back counted
    as free. `limit_bytes` is the limit that leaves the least and `limit_where` its group, when that is less than what
    the machine has.
    """

    total_bytes: int | None = None
    available_bytes: int | None = None
    swap_total_bytes: int | None = None
    swap_free_bytes: int | None = None
    limit_bytes: int | None = None
    limit_where: str = ""
    lxcfs: bool = False


@dataclass(frozen=True)
class Request:
    """What is asked.

    `ranks` of the server on this host; `cpus` that compilers can use (host_cpus), None when unknown; `compiles`:
    whether kernels are compiled at start; `env` of the server; `args` are its launch arguments by canonical name;
    `largest_file_bytes` is the size of the largest weight file, 0 when unknown. `automatic`: whether the rollout sets
    MAX_JOBS by itself when `env` does not.
    """

    ranks: int = 1
    cpus: int | None = None
    compiles: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=dict)
    largest_file_bytes: int = 0
    automatic: bool = False


def look(root: str = "/") -> Memory:
    """Read the memory of the machine and the limits of the looking process' control groups."""
    meminfo = _meminfo(host_files.read(root, "/proc/meminfo") or "")
    total, available = meminfo.get("MemTotal"), meminfo.get("MemAvailable", meminfo.get("MemFree"))
    limit, left, where = _limit(root)
    bound = limit is not None and left is not None and (available is None or left < available)
    return Memory(
        total_bytes=total,
        available_bytes=left if bound else available,
        swap_total_bytes=meminfo.get("SwapTotal"),
        swap_free_bytes=meminfo.get("SwapFree"),
        limit_bytes=limit if bound else None,
        limit_where=where if bound else "",
        lxcfs=_is_lxcfs(host_files.read(root, "/proc/self/mountinfo") or ""),
    )


def _meminfo(text: str) -> dict[str, int]:
    found = {}
    for line in text.splitlines():
        name, _colon, value = line.partition(":")
        words = value.split()
        number = host_files.whole(words[0]) if len(words) == 2 and words[1] == "kB" else None
        if number is not None:
            found[name] = number * 1024
    return found


def _is_lxcfs(mountinfo: str) -> bool:
    """Whether /proc/meminfo is made up by lxcfs, which shows a container its own limit as the machine's memory."""
    return any(" /proc/meminfo " in line and " fuse.lxcfs " in line for line in mountinfo.splitlines())


def _limit(root: str) -> tuple[int | None, int | None, str]:
    """The limit that leaves the least: its bytes, what it leaves, and its group."""
    groups = cgroups.of("memory", root)
    new = groups.version == 2
    found: list[tuple[int, int, str]] = []
    for limit, directory in cgroups.limits(groups, "memory.max" if new else "memory.limit_in_bytes", root):
        used = host_files.whole(
            host_files.read(root, f"{directory}/{'memory.current' if new else 'memory.usage_in_bytes'}")
        )
        stat = cgroups.fields(host_files.read(root, f"{directory}/memory.stat"))
        prefix = "" if new else "total_"
        # Page cache counts as used and is given back when somebody needs it. Files in /dev/shm are not among these.
        cache = sum(stat.get(f"{prefix}{name}", 0) for name in ("active_file", "inactive_file"))
        found.append((max(0, limit - max(0, (used or 0) - cache)), limit, directory))
    if not found:
        return None, None, ""
    left, limit, where = min(found)
    return limit, left, where


def max_jobs(cpus: int, available_bytes: int) -> int:
    """How many compilers fit: one for 8 GiB of what is available beyond 16 GiB, one a CPU at most, and at least one."""
    return max(1, min(cpus, (available_bytes - RESERVED_BYTES) // MOST_PER_JOB_BYTES))


def default_jobs(cpus: int) -> int:
    """How many compilers ninja starts unasked (GuessParallelism of ninja 1.5 to 1.13)."""
    return cpus + 2 if cpus > 2 else max(2, cpus + 1)


def asked_bytes(args: Mapping[str, Any], ranks: int) -> int:
    """Host memory that launch arguments ask for, over all ranks: weights kept on the host and a host KV cache.

    Both are given a rank, the first in units of 1024**3 and the second of 10**9 bytes (read in 0.5.23). What is no
    number is left to the check of the arguments.
    """
    total = ranks * _number(args.get("cpu-offload-gb")) * GIB
    if args.get("enable-hierarchical-cache") is True:
        total += ranks * _number(args.get("hicache-size")) * 10**9
    return int(total)


def _number(value: Any) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else 0.0
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return number if 0 < number < 1e6 else 0.0


def check(memory: Memory, request: Request) -> list[Finding]:
    """Whether the server has room, and whether the compilers at its start do."""
    if memory.available_bytes is None:
        message = "cannot say how much memory is free: /proc/meminfo cannot be read and no control group has a limit"
        return [Finding(WARN, _MEMORY, message, "mount /proc in the container")]
    return [_room(memory, memory.available_bytes, request), *_jobs(memory, memory.available_bytes, request)]


def _room(memory: Memory, available: int, request: Request) -> Finding:
    pinned = asked_bytes(request.args, request.ranks)
    # Without mmap every rank reads whole files into memory of its own; with it they are page cache, which is free.
    whole_files = request.args.get("weight-loader-disable-mmap") is True
    need = request.ranks * (PER_RANK_BYTES + (request.largest_file_bytes if whole_files else 0)) + pinned
    have = f"{_shown(available)} of memory are free{_bound(memory)}"
    if available >= need:
        return Finding(OK, _MEMORY, f"{have}, about {_shown(need)} are needed for {_ranks(request)}")
    parts = [f"{_shown(PER_RANK_BYTES)} a rank"]
    if whole_files and request.largest_file_bytes:
        parts.append(f"{_shown(request.largest_file_bytes)} a rank for a weight file (weight-loader-disable-mmap)")
    if pinned:
        parts.append(f"{_shown(pinned)} for cpu-offload-gb and hicache-size")
    message = f"{have}, and {_ranks(request)} need about {_shown(need)} while weights load: {' and '.join(parts)}"
    # What the arguments ask for is allocated for certain, the rest is our estimate.
    sure = pinned > available
    remedy = "stop what else uses memory, or raise the container's limit"
    if pinned:
        remedy += ", or lower cpu-offload-gb or hicache-size in sglang_server_args"
    return Finding(FAIL if sure else WARN, _MEMORY, message, remedy)


def _jobs(memory: Memory, available: int, request: Request) -> list[Finding]:
    if not request.compiles or request.cpus is None:
        return []
    fit = max_jobs(request.cpus, available)
    remedy = f'set sglang_server_env: {{MAX_JOBS: "{fit}"}}'
    room = f"{_shown(available)} of free memory{_bound(memory)} and {request.cpus} CPUs"
    given = request.env.get("MAX_JOBS")
    jobs = _given_jobs(given)
    if jobs is None and request.automatic and given is None:
        return [Finding(OK, _JOBS, f"kernels are compiled with MAX_JOBS={fit}, for {room}")]
    if jobs is None:
        jobs = default_jobs(request.cpus)
        ignored = f"MAX_JOBS {given!r} is no number, so " if given is not None else "MAX_JOBS is not set, so "
        what = f"{ignored}ninja starts {jobs} compilers at once"
    elif jobs == 0:
        # ninja takes 0 for "as many as there is work".
        jobs, what = 85, "MAX_JOBS 0 lets ninja start every compiler at once, up to 85"
    else:
        what = f"MAX_JOBS={jobs} lets ninja start {jobs} compilers at once"
    if available < LEAST_PER_JOB_BYTES:
        message = f"one compiler takes 3 to 8 GiB while kernels are compiled, and there are only {room}"
        return [Finding(WARN, _JOBS, message, f"stop what else uses memory, or raise the limit, and {remedy}")]
    if jobs <= fit:
        return [Finding(OK, _JOBS, f"{what}, which fits {room}")]
    least, most = jobs * LEAST_PER_JOB_BYTES, jobs * MOST_PER_JOB_BYTES
    message = (
        f"{what}; with 3 to 8 GiB each they take {_shown(least)} to {_shown(most)} while kernels are compiled, which"
        f" {room} do not give"
    )
    if least > available:
        message += ": the kernel would end the server (exit code 137)"
        return [Finding(FAIL, _JOBS, message, remedy)]
    return [Finding(WARN, _JOBS, message, remedy)]


def _given_jobs(text: str | None) -> int | None:
    """MAX_JOBS as FlashInfer takes it: digits only; anything else is as if it were not set."""
    return host_files.whole(text) if text is not None and text == text.strip() else None


def _ranks(request: Request) -> str:
    return "1 rank" if request.ranks == 1 else f"{request.ranks} ranks"


def _bound(memory: Memory) -> str:
    if memory.limit_bytes is None:
        notes = ["lxcfs shows the container's own limit"] if memory.lxcfs else []
        notes += ["no swap"] if memory.swap_total_bytes == 0 else []
        return f" ({', '.join(notes)})" if notes else ""
    return f" within the limit of {_shown(memory.limit_bytes)} of control group {memory.limit_where}"


def _shown(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
