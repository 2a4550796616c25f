# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CPUs the server may use, and whether SGLang's own pinning of ranks to CPUs works with them.

SGLang pins by numbers that it counts itself from the whole machine (set_gpu_proc_affinity, read in 0.5.12.post1 and
0.5.23). In a container that has other CPUs than the first ones, such a number is refused by the kernel and the rank
ends.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ansible_collections.tokforge.sglang.plugins.module_utils import cgroups, host_files
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding

_CHECK = "cpus"
_CPU_DIRECTORY = "/sys/devices/system/cpu"
_NODE_DIRECTORY = "/sys/devices/system/node"

#: The most CPUs whose numbers are believed. A list such as 0-4294967295 must not become that many numbers.
MOST_CPUS = 65536

#: What SGLang takes for true in an environment variable (read in 0.5.23).
_TRUE = ("true", "1", "yes", "y")


@dataclass(frozen=True)
class Cpus:
    """CPUs by number. `allowed` is what the process may use, empty when nobody could say.

    `online` counts the machine's CPUs and `cores` its physical ones, None when unreadable. `quota` is the share of CPU
    time in CPUs, None without a limit; `quota_where` is the group that sets it. `nodes` are the CPUs of NUMA nodes.
    """

    allowed: frozenset[int] = frozenset()
    online: int | None = None
    cores: int | None = None
    quota: float | None = None
    quota_where: str = ""
    nodes: Mapping[int, frozenset[int]] = field(default_factory=dict)

    @property
    def count(self) -> int | None:
        """How many CPUs work can run on at once, None when nobody could say."""
        known = len(self.allowed) or self.online
        if not known:
            return None
        return max(1, min(known, -int(-self.quota // 1))) if self.quota is not None else known


@dataclass(frozen=True)
class Request:
    """What is asked: `ranks` on this host and the server's environment variables."""

    ranks: int = 1
    env: Mapping[str, str] = field(default_factory=dict)


def look(root: str = "/", affinity: Callable[[], set[int]] | None = None) -> Cpus:
    """Read the CPUs. `affinity` gives the numbers that the scheduler allows; left out, this process' own."""
    try:
        allowed = set((affinity or _own_affinity)())
    except OSError:
        allowed = set()
    groups = cgroups.of("cpuset", root)
    for directory in groups.directories:
        # The innermost group that says it counts: the kernel has already taken what those above leave.
        effective = numbers(
            host_files.read(root, f"{directory}/cpuset.cpus.effective")
            or host_files.read(root, f"{directory}/cpuset.effective_cpus")
            or ""
        )
        if effective:
            allowed = (allowed & effective) or set(effective)
            break
    quota, where = _quota(root)
    return Cpus(
        allowed=frozenset(allowed),
        online=len(numbers(host_files.read(root, f"{_CPU_DIRECTORY}/online"))) or None,
        cores=_cores(root),
        quota=quota,
        quota_where=where,
        nodes=nodes(root),
    )


def _own_affinity() -> set[int]:
    return os.sched_getaffinity(0)


def _quota(root: str) -> tuple[float | None, str]:
    groups = cgroups.of("cpu", root)
    found: list[tuple[float, str]] = []
    for directory in groups.directories:
        if groups.version == 2:
            words = (host_files.read(root, f"{directory}/cpu.max") or "").split()
        else:
            words = [
                (host_files.read(root, f"{directory}/{name}") or "").strip()
                for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            ]
        # No limit is "max" in the new interface and -1 in the old one, and neither is a whole number to us.
        quota, period = (host_files.whole(word) for word in words) if len(words) == 2 else (None, None)
        if quota and period:
            found.append((quota / period, directory))
    return min(found) if found else (None, "")


def _cores(root: str) -> int | None:
    """Physical cores as psutil counts them, which is what SGLang asks: groups of CPUs that share one."""
    groups = set()
    for name in host_files.names(root, _CPU_DIRECTORY):
        if re.fullmatch(r"cpu\d+", name):
            topology = f"{_CPU_DIRECTORY}/{name}/topology"
            text = host_files.read(root, f"{topology}/core_cpus_list") or host_files.read(
                root, f"{topology}/thread_siblings_list"
            )
            if text and text.strip():
                groups.add(text.strip())
    return len(groups) or None


def nodes(root: str) -> dict[int, frozenset[int]]:
    """The CPUs of each NUMA node that has some."""
    found = {}
    for name in host_files.names(root, _NODE_DIRECTORY):
        match = re.fullmatch(r"node(\d{1,5})", name)
        if match:
            cpus = numbers(host_files.read(root, f"{_NODE_DIRECTORY}/{name}/cpulist"))
            if cpus:
                found[int(match[1])] = cpus
    return found


def numbers(text: str | None) -> frozenset[int]:
    """A list of CPUs such as 0-3,8: empty when it is none, or names more CPUs than there can be."""
    found: set[int] = set()
    for part in (text or "").strip().split(","):
        match = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", part.strip())
        if match is None:
            return frozenset()
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= MOST_CPUS:
            return frozenset()
        found.update(range(first, last + 1))
    return frozenset(found)


def shown(numbers: frozenset[int]) -> str:
    """CPU numbers as the kernel writes them: 0-3,8."""
    parts: list[str] = []
    ordered = sorted(numbers)
    start = 0
    for index, number in enumerate(ordered):
        if index + 1 == len(ordered) or ordered[index + 1] != number + 1:
            first = ordered[start]
            parts.append(str(number) if first == number else f"{first}-{number}")
            start = index + 1
    return ",".join(parts)


def pinned(rank: int, ranks: int, cores: int, online: int) -> frozenset[int]:
    """The CPUs that SGLang gives a rank: an equal part of the physical cores in order, and their second threads."""
    each = cores // ranks
    start = rank * each
    first = range(start, start + each)
    second = range(start + cores, start + cores + each) if online != cores else range(0)
    return frozenset([*first, *second])


def check(cpus: Cpus, request: Request) -> list[Finding]:
    """How many CPUs there are, and whether pinning to them works."""
    if cpus.count is None:
        message = "cannot say which CPUs the server may use: neither the scheduler nor the control group says it"
        return [Finding(WARN, _CHECK, message, "mount /sys and /proc in the container")]
    return [*_amount(cpus, request), *_pinning(cpus, request)]


def _amount(cpus: Cpus, request: Request) -> list[Finding]:
    of_all = f" of the machine's {cpus.online}" if cpus.online and cpus.online != cpus.count else ""
    which = f" (numbers {shown(cpus.allowed)})" if cpus.allowed and len(cpus.allowed) != cpus.online else ""
    nodes = [number for number, members in sorted(cpus.nodes.items()) if members & cpus.allowed]
    where = f", on NUMA nodes {', '.join(map(str, nodes))}" if len(nodes) > 1 else ""
    share = f", limited to the time of {cpus.quota:g} CPUs by {cpus.quota_where}" if cpus.quota is not None else ""
    message = f"{cpus.count} CPUs can be used{of_all}{which}{where}{share}"
    if (cpus.count or 0) < request.ranks:
        message = f"{message}; {request.ranks} ranks need one each, because every rank's scheduler is busy all the time"
        return [Finding(WARN, _CHECK, message, "give the container or virtual machine more CPUs, or lower tp-size")]
    return [Finding(OK, _CHECK, message)]


def _pinning(cpus: Cpus, request: Request) -> list[Finding]:
    if request.env.get("SGLANG_SET_CPU_AFFINITY", "").lower() not in _TRUE:
        return []
    if not (cpus.allowed and cpus.cores and cpus.online) or request.ranks < 1:
        return []
    refused, partly = [], []
    for rank in range(request.ranks):
        wanted = pinned(rank, request.ranks, cpus.cores, cpus.online)
        if wanted and not wanted & cpus.allowed:
            refused.append((rank, wanted))
        elif not wanted <= cpus.allowed:
            partly.append((rank, wanted))
    remedy = 'set sglang_server_env: {SGLANG_SET_CPU_AFFINITY: "0"}'
    if refused:
        rank, wanted = refused[0]
        message = (
            f"SGLANG_SET_CPU_AFFINITY pins rank {rank} to CPUs {shown(wanted)}, and this container may use only"
            f" {shown(cpus.allowed)}: {len(refused)} of {request.ranks} ranks would end at start"
        )
        return [Finding(FAIL, _CHECK, message, remedy)]
    if partly:
        rank, wanted = partly[0]
        message = (
            f"SGLANG_SET_CPU_AFFINITY pins rank {rank} to CPUs {shown(wanted)}, of which this container may use only"
            f" {shown(wanted & cpus.allowed)}, so {len(partly)} of {request.ranks} ranks get fewer CPUs than meant"
        )
        return [Finding(WARN, _CHECK, message, remedy)]
    return []
