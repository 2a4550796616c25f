# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPUs of the server: those of a container, a share of time, and SGLang's own pinning."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_machine import MOUNTS_V1, MOUNTS_V2, machine

from ansible_collections.tokforge.sglang.plugins.module_utils import host_cpus
from ansible_collections.tokforge.sglang.plugins.module_utils.host_cpus import Cpus, Request


def box(tmp_path: Path, cpus: int, threads: int = 1, **more: str) -> str:
    """A machine of so many cores; second threads follow the first ones, as Linux numbers them."""
    files = {
        "/sys/devices/system/cpu/online": f"0-{cpus * threads - 1}\n",
        "/proc/self/cgroup": "0::/\n",
        "/proc/self/mountinfo": MOUNTS_V2,
        "/sys/fs/cgroup/cgroup.procs": "",
    }
    for number in range(cpus * threads):
        siblings = ",".join(str(number % cpus + cpus * thread) for thread in range(threads))
        files[f"/sys/devices/system/cpu/cpu{number}/topology/core_cpus_list"] = f"{siblings}\n"
    return machine(tmp_path, {**files, **more})


def every(number: int) -> set[int]:
    return set(range(number))


def test_cpuset_of_the_container_counts_not_the_machine(tmp_path: Path) -> None:
    root = box(tmp_path, 16, **{"/sys/fs/cgroup/cpuset.cpus.effective": "8-11\n"})
    cpus = host_cpus.look(root, lambda: every(16))
    assert cpus.allowed == frozenset({8, 9, 10, 11})
    assert (cpus.count, cpus.online, cpus.cores) == (4, 16, 16)
    [finding] = host_cpus.check(cpus, Request(ranks=2))
    assert finding.level == "ok"
    assert finding.message == "4 CPUs can be used of the machine's 16 (numbers 8-11)"


def test_old_cpuset_and_quota_count(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "/proc/self/cgroup": "3:cpuset:/a\n2:cpu,cpuacct:/b\n",
            "/proc/self/mountinfo": MOUNTS_V1,
            "/sys/fs/cgroup/cpuset/a/cpuset.effective_cpus": "0-7\n",
            "/sys/fs/cgroup/cpu,cpuacct/b/cpu.cfs_quota_us": "250000\n",
            "/sys/fs/cgroup/cpu,cpuacct/b/cpu.cfs_period_us": "100000\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    cpus = host_cpus.look(root, lambda: every(16))
    assert len(cpus.allowed) == 8
    assert (cpus.quota, cpus.quota_where) == (2.5, "/sys/fs/cgroup/cpu,cpuacct/b")
    # Two and a half CPUs of time keep three busy.
    assert cpus.count == 3


def test_least_quota_of_all_groups_counts(tmp_path: Path) -> None:
    root = box(
        tmp_path,
        4,
        **{
            "/proc/self/cgroup": "0::/a/b\n",
            "/sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "/sys/fs/cgroup/a/cpu.max": "200000 100000\n",
            "/sys/fs/cgroup/cpu.max": "300000 100000\n",
        },
    )
    cpus = host_cpus.look(root, lambda: every(4))
    assert (cpus.quota, cpus.count) == (2.0, 2)
    assert "limited to the time of 2 CPUs by /sys/fs/cgroup/a" in host_cpus.check(cpus, Request())[0].message


@pytest.mark.parametrize("text", ["", "max", "0 100000", "100000 0", "x y", "1 2 3", "\0", "1e9 1", "-5 10"])
def test_nonsense_is_no_quota(tmp_path: Path, text: str) -> None:
    assert host_cpus.look(box(tmp_path, 2, **{"/sys/fs/cgroup/cpu.max": text}), lambda: every(2)).quota is None


@pytest.mark.parametrize("text", ["", "\n", "4-2", "a", "0-99999999", "0,,1", "0-", "-1", "65536"])
def test_nonsense_is_no_cpuset(tmp_path: Path, text: str) -> None:
    root = box(tmp_path, 2, **{"/sys/fs/cgroup/cpuset.cpus.effective": text})
    assert host_cpus.look(root, lambda: every(2)).allowed == frozenset({0, 1})


def test_affinity_within_the_cpuset_counts_and_a_contradiction_leaves_the_cpuset(tmp_path: Path) -> None:
    root = box(tmp_path, 8, **{"/sys/fs/cgroup/cpuset.cpus.effective": "4-7"})
    assert host_cpus.look(root, lambda: {5, 6}).allowed == frozenset({5, 6})
    assert host_cpus.look(root, lambda: {0, 1}).allowed == frozenset({4, 5, 6, 7})


def test_nothing_readable_is_a_warning_of_its_own(tmp_path: Path) -> None:
    def refused() -> set[int]:
        raise OSError(1, "not permitted")

    cpus = host_cpus.look(str(tmp_path), refused)
    assert cpus == Cpus()
    [finding] = host_cpus.check(cpus, Request(env={"SGLANG_SET_CPU_AFFINITY": "1"}))
    assert (finding.level, finding.check) == ("warn", "cpus")
    assert "cannot say" in finding.message


def test_machine_itself_can_be_looked_at() -> None:
    assert (host_cpus.look().count or 0) >= 1


def test_fewer_cpus_than_ranks_warn() -> None:
    [finding] = host_cpus.check(Cpus(frozenset({0, 1}), online=2, cores=2), Request(ranks=8))
    assert finding.level == "warn"
    assert finding.message.startswith("2 CPUs can be used; 8 ranks need one each")


def test_nodes_of_the_allowed_cpus_are_named(tmp_path: Path) -> None:
    nodes = {f"/sys/devices/system/node/node{n}/cpulist": f"{2 * n}-{2 * n + 1}\n" for n in range(3)}
    root = box(
        tmp_path,
        6,
        **nodes,
        **{"/sys/devices/system/node/has_cpu": "0-2", "/sys/fs/cgroup/cpuset.cpus.effective": "1-2"},
    )
    cpus = host_cpus.look(root, lambda: every(6))
    assert dict(cpus.nodes) == {0: frozenset({0, 1}), 1: frozenset({2, 3}), 2: frozenset({4, 5})}
    assert "on NUMA nodes 0, 1" in host_cpus.check(cpus, Request())[0].message


PIN = {"SGLANG_SET_CPU_AFFINITY": "1"}


def test_pinning_takes_equal_parts_of_cores_with_their_second_threads() -> None:
    assert host_cpus.pinned(0, 4, cores=16, online=16) == frozenset({0, 1, 2, 3})
    assert host_cpus.pinned(3, 4, cores=16, online=32) == frozenset({12, 13, 14, 15, 28, 29, 30, 31})
    # Three ranks leave one of four cores over, and more ranks than cores get none at all.
    assert host_cpus.pinned(2, 3, cores=4, online=4) == frozenset({2})
    assert host_cpus.pinned(1, 8, cores=4, online=4) == frozenset()


def test_pinning_outside_of_the_cpuset_ends_ranks_and_is_refused(tmp_path: Path) -> None:
    root = box(tmp_path, 16, **{"/sys/fs/cgroup/cpuset.cpus.effective": "8-15"})
    cpus = host_cpus.look(root, lambda: every(16))
    findings = host_cpus.check(cpus, Request(ranks=4, env=PIN))
    assert [finding.level for finding in findings] == ["ok", "fail"]
    assert "pins rank 0 to CPUs 0-3, and this container may use only 8-15: 2 of 4 ranks" in findings[1].message
    assert findings[1].remedy == 'set sglang_server_env: {SGLANG_SET_CPU_AFFINITY: "0"}'


def test_pinning_to_a_part_of_the_cpuset_warns() -> None:
    cpus = Cpus(frozenset(range(2, 16)), online=16, cores=16)
    findings = host_cpus.check(cpus, Request(ranks=4, env={"SGLANG_SET_CPU_AFFINITY": "True"}))
    assert [finding.level for finding in findings] == ["ok", "warn"]
    assert "rank 0 to CPUs 0-3, of which this container may use only 2-3, so 1 of 4 ranks" in findings[1].message


@pytest.mark.parametrize("env", [{}, {"SGLANG_SET_CPU_AFFINITY": "0"}, {"SGLANG_SET_CPU_AFFINITY": "on"}])
def test_without_pinning_the_cpuset_is_no_problem(env: dict[str, str]) -> None:
    cpus = Cpus(frozenset({8, 9}), online=16, cores=16)
    assert [finding.level for finding in host_cpus.check(cpus, Request(ranks=2, env=env))] == ["ok"]


def test_pinning_on_the_whole_machine_passes() -> None:
    cpus = Cpus(frozenset(range(32)), online=32, cores=16)
    assert [finding.level for finding in host_cpus.check(cpus, Request(ranks=8, env=PIN))] == ["ok"]


def test_pinning_without_known_cores_is_not_judged() -> None:
    cpus = Cpus(frozenset({8}), online=16, cores=None)
    assert [finding.level for finding in host_cpus.check(cpus, Request(ranks=1, env=PIN))] == ["ok"]


def test_numbers_are_shown_as_the_kernel_writes_them() -> None:
    assert host_cpus.shown(frozenset({0, 1, 2, 5, 7, 8})) == "0-2,5,7-8"
    assert host_cpus.shown(frozenset()) == ""
