# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Host memory within every limit, and how many compilers fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_machine import MOUNTS_V1, MOUNTS_V2, machine

from ansible_collections.tokforge.sglang.plugins.module_utils import host_memory
from ansible_collections.tokforge.sglang.plugins.module_utils.host_memory import GIB, Memory, Request

MEMINFO = "MemTotal: 536870912 kB\nMemFree: 1024 kB\nMemAvailable: 268435456 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"


def levels(findings: list[host_memory.Finding]) -> list[tuple[str, str]]:
    return [(finding.level, finding.check) for finding in findings]


# --- looking ---


def test_machine_without_limits_has_what_the_kernel_says(tmp_path: Path) -> None:
    memory = host_memory.look(machine(tmp_path, {"/proc/meminfo": MEMINFO}))
    assert memory == Memory(512 * GIB, 256 * GIB, 0, 0)


def test_containers_limit_counts_not_the_hosts_memory(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "/proc/meminfo": MEMINFO,
            "/proc/self/cgroup": "0::/user.slice\n",
            "/proc/self/mountinfo": MOUNTS_V2,
            "/sys/fs/cgroup/user.slice/memory.max": "max\n",
            "/sys/fs/cgroup/memory.max": f"{64 * GIB}\n",
            "/sys/fs/cgroup/memory.current": f"{30 * GIB}\n",
            "/sys/fs/cgroup/memory.stat": (
                f"anon {2 * GIB}\nactive_file {3 * GIB}\ninactive_file {17 * GIB}\nshmem {GIB}\n"
            ),
        },
    )
    memory = host_memory.look(root)
    # 30 GiB are used, of which 20 are page cache.
    assert memory.available_bytes == 54 * GIB
    assert (memory.limit_bytes, memory.limit_where) == (64 * GIB, "/sys/fs/cgroup")
    assert memory.total_bytes == 512 * GIB


def test_limit_that_leaves_the_least_counts_not_the_least_limit(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "/proc/meminfo": MEMINFO,
            "/proc/self/cgroup": "0::/a\n",
            "/proc/self/mountinfo": MOUNTS_V2,
            "/sys/fs/cgroup/a/memory.max": f"{20 * GIB}\n",
            "/sys/fs/cgroup/a/memory.current": f"{GIB}\n",
            "/sys/fs/cgroup/memory.max": f"{40 * GIB}\n",
            "/sys/fs/cgroup/memory.current": f"{35 * GIB}\n",
        },
    )
    memory = host_memory.look(root)
    assert (memory.available_bytes, memory.limit_bytes) == (5 * GIB, 40 * GIB)


def test_old_interface_is_read_and_its_greatest_number_is_no_limit(tmp_path: Path) -> None:
    base = "/sys/fs/cgroup/memory/lxc/101"
    files = {
        "/proc/meminfo": MEMINFO,
        "/proc/self/cgroup": "4:memory:/lxc/101\n",
        "/proc/self/mountinfo": MOUNTS_V1,
        f"{base}/memory.limit_in_bytes": f"{48 * GIB}\n",
        f"{base}/memory.usage_in_bytes": f"{10 * GIB}\n",
        f"{base}/memory.stat": f"inactive_file 5\ntotal_active_file {GIB}\ntotal_inactive_file {GIB}\n",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    }
    memory = host_memory.look(machine(tmp_path, files))
    assert (memory.available_bytes, memory.limit_where) == (40 * GIB, base)


def test_limit_above_what_the_machine_has_left_says_nothing(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "/proc/meminfo": MEMINFO,
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": MOUNTS_V2,
            "/sys/fs/cgroup/memory.max": f"{400 * GIB}\n",
        },
    )
    memory = host_memory.look(root)
    assert (memory.available_bytes, memory.limit_bytes, memory.limit_where) == (256 * GIB, None, "")


def test_overused_limit_leaves_nothing(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": MOUNTS_V2,
            "/sys/fs/cgroup/memory.max": "1000\n",
            "/sys/fs/cgroup/memory.current": "2000\n",
        },
    )
    assert host_memory.look(root).available_bytes == 0


def test_lxcfs_is_recognized(tmp_path: Path) -> None:
    mounts = "400 390 0:50 /proc/meminfo /proc/meminfo rw - fuse.lxcfs lxcfs rw,user_id=0\n"
    memory = host_memory.look(machine(tmp_path, {"/proc/meminfo": MEMINFO, "/proc/self/mountinfo": mounts}))
    assert memory.lxcfs
    assert "(lxcfs shows the container's own limit, no swap)" in host_memory.check(memory, Request())[0].message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\0",
        "MemAvailable 5 kB\n",
        "MemAvailable: -5 kB\n",
        "MemAvailable: 1e9 kB\n",
        "MemAvailable: 5\n",
        "x" * 5000,
    ],
)
def test_unreadable_memory_is_a_warning_of_its_own(tmp_path: Path, text: str) -> None:
    memory = host_memory.look(machine(tmp_path, {"/proc/meminfo": text}))
    assert memory.available_bytes is None
    [finding] = host_memory.check(memory, Request(compiles=True, cpus=4))
    assert finding.level == "warn"
    assert "cannot say how much memory is free" in finding.message


def test_old_kernel_without_available_counts_what_is_free(tmp_path: Path) -> None:
    assert host_memory.look(machine(tmp_path, {"/proc/meminfo": "MemFree: 2048 kB\n"})).available_bytes == 2 << 20


# --- compilers ---


@pytest.mark.parametrize(
    ("cpus", "available_gib", "jobs"),
    [(64, 64, 6), (64, 1000, 64), (2, 64, 2), (64, 24, 1), (64, 16, 1), (64, 0, 1), (64, 31.9, 1), (64, 32, 2)],
)
def test_jobs_take_8_gib_each_beyond_16(cpus: int, available_gib: float, jobs: int) -> None:
    assert host_memory.max_jobs(cpus, int(available_gib * GIB)) == jobs


def test_ninja_starts_two_more_than_there_are_cpus() -> None:
    assert [host_memory.default_jobs(cpus) for cpus in (1, 2, 3, 64)] == [2, 3, 5, 66]


def jobs_finding(available_gib: float, cpus: int, env: dict[str, str], automatic: bool = False) -> host_memory.Finding:
    request = Request(cpus=cpus, compiles=True, env=env, automatic=automatic)
    [finding] = [
        one
        for one in host_memory.check(Memory(available_bytes=int(available_gib * GIB)), request)
        if one.check == "compile_jobs"
    ]
    return finding


def test_unset_jobs_that_cannot_fit_fail_with_the_number_to_set() -> None:
    finding = jobs_finding(64, 64, {})
    assert finding.level == "fail"
    assert finding.remedy == 'set sglang_server_env: {MAX_JOBS: "6"}'
    assert "MAX_JOBS is not set, so ninja starts 66 compilers at once" in finding.message
    assert "198.0 GiB to 528.0 GiB" in finding.message
    assert "exit code 137" in finding.message


def test_jobs_that_may_fit_warn() -> None:
    finding = jobs_finding(64, 8, {"MAX_JOBS": "8"})
    assert (finding.level, finding.remedy) == ("warn", 'set sglang_server_env: {MAX_JOBS: "6"}')
    assert "MAX_JOBS=8 lets ninja start 8 compilers" in finding.message


@pytest.mark.parametrize(("jobs", "level"), [("6", "ok"), ("7", "warn"), ("21", "warn"), ("22", "fail")])
def test_given_jobs_are_judged_by_both_bounds(jobs: str, level: str) -> None:
    assert jobs_finding(64, 64, {"MAX_JOBS": jobs}).level == level


@pytest.mark.parametrize("text", ["many", "-3", "4.0", "", " 6", "²"])
def test_jobs_that_are_no_digits_are_ignored_as_flashinfer_does(text: str) -> None:
    finding = jobs_finding(64, 64, {"MAX_JOBS": text}, automatic=True)
    assert finding.level == "fail"
    assert f"MAX_JOBS {text!r} is no number, so ninja starts 66" in finding.message


def test_zero_jobs_are_no_limit() -> None:
    finding = jobs_finding(64, 64, {"MAX_JOBS": "0"})
    assert finding.level == "fail"
    assert "every compiler at once" in finding.message


def test_jobs_that_the_rollout_sets_pass_and_are_printed() -> None:
    finding = jobs_finding(64, 64, {}, automatic=True)
    assert (finding.level, finding.remedy) == ("ok", "")
    assert "MAX_JOBS=6, for 64.0 GiB of free memory and 64 CPUs" in finding.message


def test_memory_too_small_for_one_compiler_warns_even_with_one() -> None:
    finding = jobs_finding(2, 64, {"MAX_JOBS": "1"})
    assert finding.level == "warn"
    assert "there are only 2.0 GiB" in finding.message


def test_nothing_is_said_about_compilers_when_none_runs() -> None:
    memory = Memory(available_bytes=64 * GIB)
    assert levels(host_memory.check(memory, Request(cpus=64))) == [("ok", "host_memory")]
    assert levels(host_memory.check(memory, Request(compiles=True))) == [("ok", "host_memory")]


def test_limit_is_named_with_its_group() -> None:
    memory = Memory(available_bytes=64 * GIB, limit_bytes=70 * GIB, limit_where="/sys/fs/cgroup/lxc")
    found = host_memory.check(memory, Request(cpus=64, compiles=True))
    assert all("within the limit of 70.0 GiB of control group /sys/fs/cgroup/lxc" in one.message for one in found)


# --- room for the server ---


def room(available_gib: float, **request: Any) -> host_memory.Finding:
    return host_memory.check(Memory(available_bytes=int(available_gib * GIB)), Request(**request))[0]


def test_estimate_for_ranks_warns_only() -> None:
    assert room(32, ranks=8).level == "ok"
    finding = room(31, ranks=8)
    assert finding.level == "warn"
    assert "31.0 GiB of memory are free, and 8 ranks need about 32.0 GiB" in finding.message
    assert "1 rank need" in room(1).message


def test_memory_that_arguments_ask_for_fails() -> None:
    finding = room(100, ranks=8, args={"cpu-offload-gb": 20})
    assert finding.level == "fail"
    assert "160.0 GiB for cpu-offload-gb and hicache-size" in finding.message
    assert "lower cpu-offload-gb or hicache-size in sglang_server_args" in finding.remedy
    assert room(170, ranks=8, args={"cpu-offload-gb": 20}).level == "warn"
    assert room(192, ranks=8, args={"cpu-offload-gb": 20}).level == "ok"


def test_host_cache_counts_only_when_it_is_on() -> None:
    assert host_memory.asked_bytes({"hicache-size": 10}, 2) == 0
    assert host_memory.asked_bytes({"hicache-size": 10, "enable-hierarchical-cache": True}, 2) == 20 * 10**9
    assert host_memory.asked_bytes({"cpu-offload-gb": "1.5"}, 2) == 3 * GIB


@pytest.mark.parametrize("value", [True, None, "x", -1, float("nan"), float("inf"), 1e300, [], "1" * 5000])
def test_senseless_sizes_ask_for_nothing(value: Any) -> None:
    assert host_memory.asked_bytes({"cpu-offload-gb": value}, 8) == 0


def test_loading_without_mmap_needs_a_weight_file_for_each_rank() -> None:
    args = {"weight-loader-disable-mmap": True}
    assert room(40, ranks=8, largest_file_bytes=5 * GIB).level == "ok"
    finding = room(40, ranks=8, args=args, largest_file_bytes=5 * GIB)
    assert finding.level == "warn"
    assert "need about 72.0 GiB" in finding.message
    assert "5.0 GiB a rank for a weight file (weight-loader-disable-mmap)" in finding.message
