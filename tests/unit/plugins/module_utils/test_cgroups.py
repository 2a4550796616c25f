# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Control groups: which directories limit this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_machine import MOUNTS_V1, MOUNTS_V2, machine

from ansible_collections.tokforge.sglang.plugins.module_utils import cgroups


def test_every_directory_up_to_the_top_counts_in_the_new_interface(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "/proc/self/cgroup": "0::/system.slice/sglang.service\n",
            "/proc/self/mountinfo": MOUNTS_V2,
            "/sys/fs/cgroup/system.slice/sglang.service/memory.max": "max\n",
            "/sys/fs/cgroup/system.slice/memory.max": "3000\n",
            "/sys/fs/cgroup/memory.max": "2000\n",
        },
    )
    groups = cgroups.of("memory", root)
    assert groups.version == 2
    assert groups.directories == (
        "/sys/fs/cgroup/system.slice/sglang.service",
        "/sys/fs/cgroup/system.slice",
        "/sys/fs/cgroup",
    )
    assert cgroups.limits(groups, "memory.max", root) == [
        (3000, "/sys/fs/cgroup/system.slice"),
        (2000, "/sys/fs/cgroup"),
    ]


def test_old_interface_has_a_path_for_each_controller(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "/proc/self/cgroup": "4:memory:/a/b\n3:cpu,cpuacct:/c\n1:name=systemd:/x\n0::/\n",
            "/proc/self/mountinfo": MOUNTS_V1,
            "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n",
            "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "4096\n",
            "/sys/fs/cgroup/cpu,cpuacct/c/cpu.shares": "1024\n",
            "/sys/fs/cgroup/unified/cgroup.procs": "",
        },
    )
    memory = cgroups.of("memory", root)
    assert (memory.version, memory.directories[0]) == (1, "/sys/fs/cgroup/memory/a/b")
    assert cgroups.limits(memory, "memory.limit_in_bytes", root) == [(4096, "/sys/fs/cgroup/memory/a")]
    assert cgroups.of("cpu", root).directories == ("/sys/fs/cgroup/cpu,cpuacct/c", "/sys/fs/cgroup/cpu,cpuacct")


def test_controller_without_an_old_mount_is_looked_for_in_the_new_one(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "/proc/self/cgroup": "4:memory:/a\n0::/new\n",
            "/proc/self/mountinfo": "37 31 0:34 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            "/sys/fs/cgroup/unified/new/pids.max": "7\n",
        },
    )
    groups = cgroups.of("pids", root)
    assert groups.version == 2
    assert cgroups.limits(groups, "pids.max", root) == [(7, "/sys/fs/cgroup/unified/new")]


@pytest.mark.parametrize(
    ("path", "top"),
    [
        # Docker without a namespace of its own: the mount begins at the container's group.
        ("/docker/abc", "/docker/abc"),
        # A namespace of its own: the path is the top.
        ("/", "/"),
        # Outside of the namespace.
        ("/../../other", "/"),
        # The path of the host is not there; the top of the mount still is.
        ("/lxc/101/ns", "/"),
    ],
)
def test_containers_own_group_is_found(tmp_path: Path, path: str, top: str) -> None:
    root = machine(
        tmp_path,
        {
            "/proc/self/cgroup": f"0::{path}\n",
            "/proc/self/mountinfo": f"30 23 0:26 {top} /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
            "/sys/fs/cgroup/memory.max": "1024\n",
        },
    )
    assert cgroups.of("memory", root).directories == ("/sys/fs/cgroup",)


def test_mount_point_with_a_blank_is_read(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "/proc/self/cgroup": "0::/\n",
            "/proc/self/mountinfo": "30 23 0:26 / /sys/my\\040groups rw - cgroup2 cgroup2 rw\n",
            "/sys/my groups/memory.max": "5\n",
        },
    )
    assert cgroups.limits(cgroups.of("memory", root), "memory.max", root) == [(5, "/sys/my groups")]


@pytest.mark.parametrize(
    "text", ["", "\0\0", "0::relative\n", "no colons\n", "0:\n", "x" * 10000, "30 23 0:26 / - cgroup2\n"]
)
def test_nonsense_is_no_group(tmp_path: Path, text: str) -> None:
    root = machine(tmp_path, {"/proc/self/cgroup": text, "/proc/self/mountinfo": text})
    assert cgroups.of("memory", root) == cgroups.Groups(0)
    assert cgroups.limits(cgroups.Groups(0), "memory.max", root) == []


def test_absent_proc_is_no_group(tmp_path: Path) -> None:
    assert cgroups.of("memory", str(tmp_path)) == cgroups.Groups(0)


def test_fields_take_whole_numbers_only() -> None:
    assert cgroups.fields("anon 12\nfile -3\nshmem x\nnr 4 5\nbig 1e3\n\nlast 7") == {"anon": 12, "last": 7}
    assert cgroups.fields(None) == {}
