# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits that a server with several processes runs into."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_machine import MOUNTS_V2, machine

from ansible_collections.tokforge.sglang.plugins.module_utils import host_limits
from ansible_collections.tokforge.sglang.plugins.module_utils.host_limits import MIB, Finding, Limit, Limits, Request

PROCESS_LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max processes             96365                unlimited            processes
Max open files            1024                 524288               files
Max locked memory         8388608              8388608              bytes
"""

#: A machine where nothing is wrong.
FINE = Limits(
    files=Limit(1024, 524288),
    locked_bytes=Limit(None, None),
    threads=Limit(None, None),
    shm_bytes=8192 * MIB,
    shm_free_bytes=8000 * MIB,
    hugepages=0,
    transparent_hugepages="madvise",
    now_s=1000.0,
    synchronized=True,
)
EIGHT = Request(ranks=8, controller_s=998.0)


def look(root: str, request: Request = EIGHT, shm_mib: float = 64, **more: Any) -> Limits:
    def statvfs(path: str) -> os.statvfs_result:
        assert path == os.path.join(root, "dev/shm")
        blocks = int(shm_mib * 256)
        return SimpleNamespace(f_blocks=blocks, f_bavail=blocks // 2, f_frsize=4096)  # type: ignore[return-value]

    return host_limits.look(
        request,
        root,
        now=lambda: 1234.5,
        statvfs=more.get("statvfs", statvfs),
        clock_state=more.get("clock", lambda: 0),
    )


def of(check: str, limits: Limits, request: Request = EIGHT) -> Finding:
    [finding] = [finding for finding in host_limits.check(limits, request) if finding.check == check]
    return finding


# --- looking ---


def test_limits_are_read_by_their_words(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "/proc/self/limits": PROCESS_LIMITS,
            "/proc/self/cgroup": "0::/user.slice\n",
            "/proc/self/mountinfo": MOUNTS_V2,
            "/sys/fs/cgroup/user.slice/pids.max": "300\n",
            "/sys/fs/cgroup/pids.max": "4000\n",
            "/sys/class/infiniband/mlx5_0/x": "",
            "/proc/sys/vm/nr_hugepages": "12\n",
            "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
            "/run/systemd/container": "lxc\n",
        },
    )
    limits = look(root)
    assert limits.files == Limit(1024, 524288)
    assert limits.locked_bytes == Limit(8388608, 8388608)
    assert limits.threads == Limit(96365, None)
    assert (limits.pids_limit, limits.pids_where) == (300, "/sys/fs/cgroup/user.slice")
    assert (limits.shm_bytes, limits.shm_free_bytes) == (64 * MIB, 32 * MIB)
    assert limits.infiniband == ("mlx5_0",)
    assert (limits.hugepages, limits.transparent_hugepages) == (12, "madvise")
    assert (limits.now_s, limits.synchronized, limits.container) == (1234.5, True, True)


def test_unit_of_systemd_is_bound_by_the_top_group_only(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "/proc/self/cgroup": "0::/user.slice\n",
            "/proc/self/mountinfo": MOUNTS_V2,
            "/sys/fs/cgroup/user.slice/pids.max": "300\n",
            "/sys/fs/cgroup/pids.max": "4000\n",
        },
    )
    limits = look(root, replace(EIGHT, manager="systemd"))
    assert (limits.pids_limit, limits.pids_where) == (4000, "/sys/fs/cgroup")


def test_nothing_readable_is_nothing_known(tmp_path: Path) -> None:
    def absent(path: str) -> os.statvfs_result:
        raise FileNotFoundError(path)

    limits = look(str(tmp_path), statvfs=absent, clock=lambda: None)
    assert limits == Limits(now_s=1234.5, privileged=limits.privileged)
    levels = {finding.check: finding.level for finding in host_limits.check(limits, Request(ranks=8))}
    assert levels == {"open_files": "warn", "threads": "ok", "shared_memory": "fail", "clock": "ok"}
    assert of("clock", limits, Request(ranks=8)).message == "nothing is known about the clock"


@pytest.mark.parametrize(
    "text", ["", "\0", "Max open files\n", "Max open files   x   y   files\n", "Max open files  -1  5 f"]
)
def test_damaged_limits_are_unknown(tmp_path: Path, text: str) -> None:
    assert look(machine(tmp_path, {"/proc/self/limits": text})).files is None


def test_kernel_says_whether_its_clock_is_kept_right(tmp_path: Path) -> None:
    assert look(str(tmp_path), clock=lambda: 5).synchronized is False
    assert look(str(tmp_path), clock=lambda: 1).synchronized is True


def test_machine_itself_can_be_looked_at() -> None:
    limits = host_limits.look(Request(caches={"sglang_root": "/"}))
    assert limits.files is not None
    assert limits.now_s > 1.7e9
    assert limits.synchronized in (True, False, None)


def test_file_system_of_a_cache_is_that_of_the_longest_mount(tmp_path: Path) -> None:
    mounts = (
        "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "2 1 0:40 / /data rw - nfs4 server:/x rw\n"
        "3 1 0:41 / /my\\040disk rw - xfs /dev/sdb rw\n"
        "4 2 0:42 / /data/fast rw - xfs /dev/sdc rw\n"
        "5 2 0:43 / /data/fast rw - tmpfs tmpfs rw\n"
        "broken line\n"
    )
    paths = ("/opt/sglang", "/data/sglang", "/database", "/my disk/x", "/data/fast/x/y", "/data")
    request = replace(EIGHT, caches={path: path for path in paths})
    limits = look(machine(tmp_path, {"/proc/self/mountinfo": mounts}), request)
    assert dict(limits.file_systems.values()) == {
        "/opt/sglang": "ext4",
        "/data/sglang": "nfs4",
        "/database": "ext4",
        "/my disk/x": "xfs",
        "/data/fast/x/y": "tmpfs",
        "/data": "nfs4",
    }
    assert not look(machine(tmp_path, {"/proc/self/mountinfo": ""}), request).file_systems


# --- judging ---


def test_nothing_wrong_is_all_ok() -> None:
    found = host_limits.check(FINE, EIGHT)
    assert {finding.level for finding in found} == {"ok"}
    assert {finding.check for finding in found} == {"open_files", "threads", "shared_memory", "huge_pages", "clock"}
    assert not [finding for finding in found if finding.remedy]


@pytest.mark.parametrize(("hard", "level"), [(65534, "warn"), (65535, "ok"), (None, "ok")])
def test_hard_limit_of_open_files_counts(hard: int | None, level: str) -> None:
    finding = of("open_files", replace(FINE, files=Limit(256, hard)))
    assert finding.level == level
    if level == "warn":
        assert "open files are limited to 65534 (hard limit), and SGLang asks for 65535" in finding.message
        assert "nofile" in finding.remedy


def test_unit_sets_its_own_limits() -> None:
    tight = replace(FINE, files=Limit(1, 1), threads=Limit(1, 1), locked_bytes=Limit(1, 1), infiniband=("mlx5_0",))
    assert {one.level for one in host_limits.check(tight, replace(EIGHT, manager="systemd"))} == {"ok"}
    assert {one.check for one in host_limits.check(tight, EIGHT) if one.level == "warn"} == {
        "open_files",
        "threads",
        "locked_memory",
    }


def test_locked_memory_matters_with_infiniband_only() -> None:
    limited = replace(FINE, locked_bytes=Limit(8388608, None), infiniband=("mlx5_0", "mlx5_1"))
    finding = of("locked_memory", limited)
    assert finding.level == "warn"
    assert "limited to 8192 KiB, and NCCL registers buffers with mlx5_0, mlx5_1" in finding.message
    for harmless in (
        (replace(limited, infiniband=()), EIGHT),
        (limited, replace(EIGHT, env={"NCCL_IB_DISABLE": "1"})),
        (replace(limited, locked_bytes=Limit(None, None)), EIGHT),
        (replace(limited, locked_bytes=None), EIGHT),
    ):
        assert not [one for one in host_limits.check(*harmless) if one.check == "locked_memory"]


@pytest.mark.parametrize(
    ("limit", "ranks", "level"), [(3799, 8, "warn"), (3800, 8, "ok"), (999, 1, "warn"), (1000, 1, "ok")]
)
def test_groups_limit_of_threads_warns_below_the_estimate(limit: int, ranks: int, level: str) -> None:
    limits = replace(FINE, pids_limit=limit, pids_where="/sys/fs/cgroup")
    finding = of("threads", limits, replace(EIGHT, ranks=ranks))
    assert finding.level == level
    if level == "warn":
        assert f"/sys/fs/cgroup allows {limit} processes and threads, and {ranks} ranks" in finding.message


def test_users_limit_of_threads_does_not_bind_root() -> None:
    limits = replace(FINE, threads=Limit(500, 500))
    finding = of("threads", limits)
    assert finding.level == "warn"
    assert "a user may have 500 threads here, and 8 ranks with their compilers use about 3800" in finding.message
    assert of("threads", replace(limits, privileged=True)).level == "ok"


def test_shared_memory_that_docker_gives_fails_for_several_ranks() -> None:
    limits = replace(FINE, shm_bytes=64 * MIB, shm_free_bytes=64 * MIB)
    finding = of("shared_memory", limits, replace(EIGHT, ranks=2))
    assert finding.level == "fail"
    assert "/dev/shm has 64 MiB, which is what Docker gives unasked, and 2 ranks exchange data" in finding.message
    assert "--shm-size=1g" in finding.remedy
    assert "lxc.mount.entry: tmpfs dev/shm tmpfs" in finding.remedy
    assert of("shared_memory", limits, replace(EIGHT, ranks=1)).level == "ok"
    assert of("shared_memory", limits, replace(EIGHT, env={"NCCL_SHM_DISABLE": "1"})).level == "warn"


@pytest.mark.parametrize(
    ("size_mib", "free_mib", "level", "words"),
    [
        (65, 65, "warn", "has 65 MiB free"),
        (1023, 1023, "warn", "has 1023 MiB free"),
        (1024, 1024, "ok", "has 1024 MiB free"),
        (8192, 1000, "warn", "has 1000 MiB of 8192 MiB free"),
    ],
)
def test_shared_memory_is_judged_by_what_is_free(size_mib: int, free_mib: int, level: str, words: str) -> None:
    finding = of("shared_memory", replace(FINE, shm_bytes=size_mib * MIB, shm_free_bytes=free_mib * MIB))
    assert finding.level == level
    assert words in finding.message
    assert finding.remedy.startswith("remove what others left") is (size_mib == 8192)


def test_absent_shared_memory_warns_one_rank_and_fails_several() -> None:
    for size in (None, 0):
        limits = replace(FINE, shm_bytes=size, shm_free_bytes=size)
        assert of("shared_memory", limits).level == "fail"
        assert of("shared_memory", limits, replace(EIGHT, ranks=1)).level == "warn"


def test_huge_pages_are_a_note() -> None:
    assert of("huge_pages", FINE).message == (
        "0 huge pages are reserved, transparent ones are 'madvise'; SGLang needs neither"
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [("nfs4", "locks compiled kernels"), ("fuse.sshfs", "locks"), ("9p", "locks"), ("tmpfs", "takes main memory")],
)
def test_cache_on_a_poor_file_system_warns(kind: str, words: str) -> None:
    finding = of("cache_file_system", replace(FINE, file_systems={"sglang_root": ("/x", kind)}))
    assert finding.level == "warn"
    assert f"sglang_root /x is on {kind}" in finding.message
    assert words in finding.message


@pytest.mark.parametrize("kind", ["ext4", "xfs", "zfs", "overlay", "fuse.lxcfs"])
def test_cache_on_a_disk_is_no_matter(kind: str) -> None:
    limits = replace(FINE, file_systems={"sglang_root": ("/x", kind)})
    assert not [one for one in host_limits.check(limits, EIGHT) if one.check == "cache_file_system"]


@pytest.mark.parametrize(
    ("controller_s", "level", "words"),
    [
        (1000.0 - 60, "ok", "agrees"),
        (1000.0 - 61, "warn", "61 s ahead of the controller's"),
        (1000.0 + 61, "warn", "61 s behind the controller's"),
        (0.0, "warn", "1000 s ahead"),
    ],
)
def test_clock_that_is_off_warns(controller_s: float, level: str, words: str) -> None:
    finding = of("clock", FINE, replace(EIGHT, controller_s=controller_s))
    assert (finding.level, words in finding.message) == (level, True)


def test_clock_of_a_container_is_set_on_its_host() -> None:
    off = replace(EIGHT, controller_s=0.0)
    assert "on the host of this container" in of("clock", replace(FINE, container=True), off).remedy
    assert "start a time service here" in of("clock", FINE, off).remedy


def test_clock_that_nobody_keeps_right_warns_only_when_it_cannot_be_compared() -> None:
    adrift = replace(FINE, synchronized=False)
    alone = of("clock", adrift, replace(EIGHT, controller_s=None))
    assert (alone.level, alone.message) == ("warn", "no time service keeps the clock right, so it drifts")
    compared = of("clock", adrift)
    assert (compared.level, compared.message) == (
        "ok",
        "no time service keeps the clock right, but it agrees with the controller's",
    )
    assert of("clock", FINE, replace(EIGHT, controller_s=None)).message == "the clock is synchronized"
