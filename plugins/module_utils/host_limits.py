# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits of the machine or container that a server with several processes runs into: files, threads, shared memory.

Also the file systems of its caches, the state of huge pages, and how far the clock is off.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ansible_collections.tokforge.sglang.plugins.module_utils import cgroups, host_files
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding

MIB = 1 << 20

#: Open files that SGLang asks for at start (set_ulimit, read in 0.5.12.post1 and 0.5.23). It goes on with fewer.
OPEN_FILES = 65535

#: Threads of one rank and of the processes beside the ranks. Estimates, so falling short of them only warns.
THREADS_PER_RANK = 400
THREADS_BESIDE = 600

#: Shared memory in bytes: what NCCL's documentation asks for in a container ("Runtime and MPI issues", --shm-size=1g),
#: and what Docker gives unasked, with which ranks end in ncclShmOpen (NVIDIA/nccl#342, vllm-project/vllm#1710).
SHM_WANTED_BYTES = 1024 * MIB
SHM_DOCKER_BYTES = 64 * MIB

#: How far (seconds) the clock may be off before it is told: the way of a task to the target takes seconds of it.
CLOCK_SKEW_S = 60.0

#: File systems where locks between processes are slow or missing; FlashInfer locks a directory for each compilation.
_REMOTE = re.compile(r"nfs4?|cifs|smb3|9p|afs|ceph|glusterfs|lustre|beegfs|fuse\.(?!lxcfs)[\w.-]+")

_SHM = "/dev/shm"  # noqa: S108 (the system's own directory)

_CLOCK_UNSYNCHRONIZED = 5  # TIME_ERROR of adjtimex(2)

#: Limits by the words of /proc/self/limits (proc(5)).
_LIMITS = {"Max open files": "files", "Max locked memory": "locked_bytes", "Max processes": "threads"}


@dataclass(frozen=True)
class Limit:
    """A resource limit; None for no limit."""

    soft: int | None
    hard: int | None


@dataclass(frozen=True)
class Limits:
    """What was seen; a limit that is absent, and every None, could not be read.

    `pids_limit` is the least pids.max of the control groups and `pids_where` its group. Sizes in bytes, times in
    seconds since 1970. `file_systems`: variable -> path, type of its file system.
    """

    files: Limit | None = None
    locked_bytes: Limit | None = None
    threads: Limit | None = None
    pids_limit: int | None = None
    pids_where: str = ""
    shm_bytes: int | None = None
    shm_free_bytes: int | None = None
    infiniband: tuple[str, ...] = ()
    hugepages: int | None = None
    transparent_hugepages: str = ""
    now_s: float = 0.0
    synchronized: bool | None = None
    container: bool = False
    privileged: bool = False
    file_systems: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """What is asked: `ranks` on this host, the service `manager` (systemd or supervisor), the server's environment.

    `controller_s` is the controller's time when it sent the task, None when unknown. `caches`: variable -> directory.
    """

    ranks: int = 1
    manager: str = "supervisor"
    env: Mapping[str, str] = field(default_factory=dict)
    controller_s: float | None = None
    caches: Mapping[str, str] = field(default_factory=dict)


# --- looking ----------------------------------------------------------------------------------------------------------


def look(
    request: Request,
    root: str = "/",
    now: Callable[[], float] = time.time,
    statvfs: Callable[[str], os.statvfs_result] = os.statvfs,
    clock_state: Callable[[], int | None] | None = None,
) -> Limits:
    """Read all of it, below `root`."""
    now_s = now()
    limits = _process_limits(host_files.read(root, "/proc/self/limits") or "")
    pids = _pids(request, root)
    try:
        status = statvfs(host_files.place(root, _SHM))
        shm = (status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)
    except OSError:
        shm = None
    state = (clock_state or _clock_state)()
    mountinfo = host_files.read(root, "/proc/self/mountinfo") or ""
    thp = re.search(r"\[(\w+)\]", host_files.read(root, "/sys/kernel/mm/transparent_hugepage/enabled") or "")
    return Limits(
        files=limits.get("files"),
        locked_bytes=limits.get("locked_bytes"),
        threads=limits.get("threads"),
        pids_limit=pids[0],
        pids_where=pids[1],
        shm_bytes=shm[0] if shm else None,
        shm_free_bytes=shm[1] if shm else None,
        infiniband=tuple(host_files.names(root, "/sys/class/infiniband")),
        hugepages=host_files.whole(host_files.read(root, "/proc/sys/vm/nr_hugepages")),
        transparent_hugepages=thp[1] if thp else "",
        now_s=now_s,
        synchronized=None if state is None else state != _CLOCK_UNSYNCHRONIZED,
        container=host_files.is_file(root, "/run/systemd/container") or host_files.is_file(root, "/.dockerenv"),
        privileged=os.geteuid() == 0,
        file_systems={
            name: (path, kind)
            for name, path in request.caches.items()
            if (kind := _file_system(mountinfo, host_files.real(root, path), root))
        },
    )


def _process_limits(text: str) -> dict[str, Limit]:
    found = {}
    for line in text.splitlines():
        match = re.match(r"(Max [a-z ]+?)\s{2,}(\S+)\s+(\S+)", line)
        if match and match[1] in _LIMITS:
            values = [None if word == "unlimited" else host_files.whole(word) for word in (match[2], match[3])]
            if all(value is not None or word == "unlimited" for value, word in zip(values, (match[2], match[3]))):
                found[_LIMITS[match[1]]] = Limit(values[0], values[1])
    return found


def _pids(request: Request, root: str) -> tuple[int | None, str]:
    groups = cgroups.of("pids", root)
    if request.manager == "systemd":
        # Its unit is in another group than this task, so only what holds for the whole machine or container counts.
        groups = cgroups.Groups(groups.version, groups.directories[-1:])
    found = cgroups.limits(groups, "pids.max", root)
    return min(found) if found else (None, "")


def _clock_state() -> int | None:
    """What the kernel says about its clock (adjtimex(2)), None when it may not be asked."""
    try:
        # All zero asks for nothing to be changed; the structure has 208 bytes, and this leaves room.
        state = int(ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512)))
    except (OSError, AttributeError):
        return None
    return state if state >= 0 else None


def _file_system(mountinfo: str, path: str, root: str) -> str:
    """The type of the file system that a path is, or will be, on; "" when unknown."""
    best, kind = "", ""
    for line in mountinfo.splitlines():
        left, _dash, right = line.partition(" - ")
        fields, words = left.split(), right.split()
        if len(fields) < 5 or not words:
            continue
        text = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        point = os.path.normpath(host_files.place(root, text))
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts at one place the later one is on top.
        if inside and len(point) >= len(best):
            best, kind = point, words[0]
    return kind


# --- judging ----------------------------------------------------------------------------------------------------------


def check(limits: Limits, request: Request) -> list[Finding]:
    """All limits of this file, each with what it means here."""
    return [
        *_files(limits, request),
        *_locked(limits, request),
        *_threads(limits, request),
        *_shared_memory(limits, request),
        *_pages(limits),
        *_caches(limits),
        *_clock(limits, request),
    ]


def _files(limits: Limits, request: Request) -> list[Finding]:
    check_name = "open_files"
    if request.manager == "systemd":
        return [Finding(OK, check_name, "the unit sets the limit of open files, 1048576")]
    if limits.files is None:
        message = "the limit of open files cannot be read from /proc/self/limits"
        return [Finding(WARN, check_name, message, f"see that `ulimit -Hn` says at least {OPEN_FILES}")]
    hard = limits.files.hard
    if hard is None or hard >= OPEN_FILES:
        shown = "not limited" if hard is None else f"limited to {hard}"
        return [Finding(OK, check_name, f"open files are {shown}; SGLang asks for {OPEN_FILES}")]
    message = (
        f"open files are limited to {hard} (hard limit), and SGLang asks for {OPEN_FILES}: many clients get refused"
    )
    remedy = (
        f"set nofile to {OPEN_FILES} or more in /etc/security/limits.conf and log in anew (Docker: --ulimit"
        f" nofile={OPEN_FILES}), or use the service manager systemd"
    )
    return [Finding(WARN, check_name, message, remedy)]


def _locked(limits: Limits, request: Request) -> list[Finding]:
    check_name = "locked_memory"
    if not limits.infiniband or request.env.get("NCCL_IB_DISABLE") == "1" or request.manager == "systemd":
        # CUDA's own pinned memory is not counted. InfiniBand's is, and the unit takes the limit away.
        return []
    if limits.locked_bytes is None or limits.locked_bytes.soft is None:
        return []
    message = (
        f"locked memory is limited to {limits.locked_bytes.soft // 1024} KiB, and NCCL registers buffers with"
        f" {', '.join(limits.infiniband)}"
    )
    remedy = (
        "set memlock to unlimited in /etc/security/limits.conf and log in anew (Docker: --ulimit memlock=-1), or, with"
        ' one host only, set sglang_server_env: {NCCL_IB_DISABLE: "1"}'
    )
    return [Finding(WARN, check_name, message, remedy)]


def _threads(limits: Limits, request: Request) -> list[Finding]:
    check_name = "threads"
    need = request.ranks * THREADS_PER_RANK + THREADS_BESIDE
    found = []
    if limits.pids_limit is not None and limits.pids_limit < need:
        message = (
            f"control group {limits.pids_where} allows {limits.pids_limit} processes and threads, and {request.ranks}"
            f" ranks with their compilers use about {need}"
        )
        remedy = "raise the container's limit (Docker: --pids-limit=-1, systemd: TasksMax=infinity)"
        found.append(Finding(WARN, check_name, message, remedy))
    soft = limits.threads.soft if limits.threads else None
    if request.manager != "systemd" and not limits.privileged and soft is not None and soft < need:
        message = (
            f"a user may have {soft} threads here, and {request.ranks} ranks with their compilers use about {need}"
        )
        remedy = (
            "set nproc to unlimited in /etc/security/limits.conf and log in anew, or use the service manager systemd"
        )
        found.append(Finding(WARN, check_name, message, remedy))
    return found or [Finding(OK, check_name, f"no limit below the {need} threads that are needed about")]


def _shared_memory(limits: Limits, request: Request) -> list[Finding]:
    check_name = "shared_memory"
    remedy = (
        "give the container more: Docker --shm-size=1g or --ipc=host; LXC lxc.mount.entry: tmpfs dev/shm tmpfs"
        " size=8g,create=dir 0 0; elsewhere mount -o remount,size=8g /dev/shm"
    )
    size, free = limits.shm_bytes, limits.shm_free_bytes
    if size is None or free is None or size == 0:
        message = "there is no shared memory: /dev/shm cannot be read"
        return [Finding(FAIL if request.ranks > 1 else WARN, check_name, message, "mount a tmpfs at /dev/shm")]
    if request.ranks < 2:
        return [Finding(OK, check_name, f"{_SHM} has {_mib(free)} free, and one rank needs next to nothing of it")]
    needs = f"{request.ranks} ranks exchange data through it (NCCL)"
    if size <= SHM_DOCKER_BYTES:
        message = f"{_SHM} has {_mib(size)}, which is what Docker gives unasked, and {needs}: ranks end in ncclShmOpen"
        if request.env.get("NCCL_SHM_DISABLE") == "1":
            return [Finding(WARN, check_name, f"{message}, if NCCL_SHM_DISABLE did not forbid it", remedy)]
        return [Finding(FAIL, check_name, message, remedy)]
    if free < SHM_WANTED_BYTES:
        used = f" of {_mib(size)}" if size != free else ""
        message = f"{_SHM} has {_mib(free)}{used} free, and {needs}, for which it wants {_mib(SHM_WANTED_BYTES)}"
        if size >= SHM_WANTED_BYTES:
            remedy = "remove what others left in /dev/shm (ls -la /dev/shm), or make it larger"
        return [Finding(WARN, check_name, message, remedy)]
    return [Finding(OK, check_name, f"{_SHM} has {_mib(free)} free, and {needs}")]


def _pages(limits: Limits) -> list[Finding]:
    words = []
    if limits.hugepages is not None:
        words.append(f"{limits.hugepages} huge pages are reserved")
    if limits.transparent_hugepages:
        words.append(f"transparent ones are {limits.transparent_hugepages!r}")
    return [Finding(OK, "huge_pages", f"{', '.join(words)}; SGLang needs neither")] if words else []


def _caches(limits: Limits) -> list[Finding]:
    found = []
    for name, (path, kind) in sorted(limits.file_systems.items()):
        if _REMOTE.fullmatch(kind):
            message = (
                f"{name} {path} is on {kind}: every rank writes and locks compiled kernels there, which is slow and"
                " not safe on a network file system"
            )
            found.append(Finding(WARN, "cache_file_system", message, f"put {name} on a disk of this machine"))
        elif kind in ("tmpfs", "ramfs"):
            message = f"{name} {path} is on {kind}: it takes main memory, and the next boot compiles and tunes anew"
            found.append(Finding(WARN, "cache_file_system", message, f"put {name} on a disk of this machine"))
    return found


def _clock(limits: Limits, request: Request) -> list[Finding]:
    check_name = "clock"
    where = "on the host of this container" if limits.container else "here"
    remedy = f"start a time service {where}: systemctl enable --now systemd-timesyncd (or chrony)"
    if request.controller_s is not None:
        # The task left the controller before it arrived, so a little ahead is no skew.
        skew = limits.now_s - request.controller_s
        if abs(skew) > CLOCK_SKEW_S:
            direction = "ahead of" if skew > 0 else "behind"
            message = (
                f"the clock is {abs(skew):.0f} s {direction} the controller's: times in logs and results do not fit"
                " together, and certificates may count as expired or not yet valid"
            )
            return [Finding(WARN, check_name, message, remedy)]
    if request.controller_s is None and limits.synchronized is None:
        return [Finding(OK, check_name, "nothing is known about the clock")]
    agrees = "" if request.controller_s is None else "agrees with the controller's"
    if limits.synchronized is False:
        message = f"no time service keeps the clock right{', but it ' if agrees else ', so it drifts'}{agrees}"
        return [Finding(OK if agrees else WARN, check_name, message, "" if agrees else remedy)]
    return [Finding(OK, check_name, f"the clock {agrees or 'is synchronized'}")]


def _mib(size: int) -> str:
    return f"{size / MIB:.0f} MiB"
