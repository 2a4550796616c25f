# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Binding containers to NUMA nodes: what this host has, what is chosen, and the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import host_cpus, lxc_config, lxc_numa
from ansible_collections.tokforge.sglang.plugins.module_utils.lxc_numa import Binding, Host, NumaError

PVE = "arch: amd64\ncores: 8\nrootfs: local:101/x.raw\nlxc.apparmor.profile: generated\n\n[old]\nrootfs: y\n"
PLAIN = "lxc.uts.name = x\n"
PATH = "/x/101.conf"
CPUS, MEMS = lxc_numa.CPUS, lxc_numa.MEMS
NOTE_CPUS, NOTE_MEMS = lxc_numa.note_key(PATH, CPUS), lxc_numa.note_key(PATH, MEMS)


def numbers(first: int, last: int) -> frozenset[int]:
    return frozenset(range(first, last + 1))


TWO = Host(
    numbers(0, 63),
    frozenset({0, 1}),
    {0: numbers(0, 31), 1: numbers(32, 63)},
    {"0000:01:00.0": 0, "0000:02:00.0": 1},
)


def gpu(address: str = "0000:01:00.0", node: int = 1, cpus: str = "32-63", driver: str = "nvidia") -> dict[str, Any]:
    return {"address": address, "numa_node": node, "cpus": cpus, "driver": driver}


SECOND = gpu("0000:02:00.0", 0, "0-31")


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        "sys/devices/system/cpu/online": "0-15",
        "sys/devices/system/node/node0/cpulist": "0-7",
        "sys/devices/system/node/node1/cpulist": "8-15",
        "sys/devices/system/node/node2/cpulist": "",
        "sys/devices/system/node/has_memory": "0-2",
        "proc/driver/nvidia/gpus/0000:C1:00.0/information": "Model: \t\t GPU\nDevice Minor: \t 3\nGPU Excluded:\t No",
        "proc/driver/nvidia/gpus/0000:c2:00.0/information": "Model: \t\t GPU",
    }.items():
        write(tmp_path, name, text)
    return tmp_path


def test_machine_is_read(root: Path) -> None:
    found = lxc_numa.look(str(root))
    assert (found.cpus, found.mems) == (numbers(0, 15), numbers(0, 2))
    assert found.nodes == {0: numbers(0, 7), 1: numbers(8, 15)}
    assert found.minors == {"0000:c1:00.0": 3}


@pytest.mark.parametrize(("online", "cpus"), [("0-15", {4, 5, 12}), ("0-2", {4, 5, 12})])
def test_no_more_than_the_group_of_all_containers_has(root: Path, online: str, cpus: set[int]) -> None:
    # The group of the process that looks is narrower, and containers are not started in it.
    write(root, "proc/self/cgroup", "0::/user.slice/x.scope")
    write(root, "proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw")
    write(root, "sys/fs/cgroup/cpuset.cpus.effective", "4-5,12")
    write(root, "sys/fs/cgroup/cpuset.mems.effective", "1")
    write(root, "sys/fs/cgroup/user.slice/x.scope/cpuset.cpus.effective", "5")
    # lxcfs may count the CPUs from 0.
    write(root, "sys/devices/system/cpu/online", online)
    found = lxc_numa.look(str(root))
    assert (found.cpus, found.mems) == (cpus, {1})


def test_old_control_groups_are_refused(root: Path) -> None:
    write(root, "proc/self/cgroup", "4:cpuset:/")
    write(root, "proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset")
    (root / "sys/fs/cgroup/cpuset").mkdir(parents=True)
    with pytest.raises(NumaError, match=r"has cpusets with cgroup v1, .* boot it with cgroup v2"):
        lxc_numa.binding("0", None, [], lxc_numa.look(str(root)))


def test_host_without_numa_files_cannot_bind(tmp_path: Path) -> None:
    host = lxc_numa.look(str(tmp_path))
    assert host == Host(frozenset(), frozenset(), {})
    with pytest.raises(NumaError, match="names no CPUs; mount /sys"):
        lxc_numa.binding("0", None, [], host)


@pytest.mark.parametrize(
    ("bind", "gpus", "cpus", "mems"),
    [
        ("gpus", None, "0-63", "0-1"),
        ("gpus", (0,), "32-63", "1"),
        ("gpus", (1,), "0-31", "0"),
        ("0", None, "0-31", "0"),
        (" 1 , 0 ", (0,), "0-63", "0-1"),
    ],
)
def test_nodes_are_chosen(bind: str, gpus: tuple[int, ...] | None, cpus: str, mems: str) -> None:
    assert lxc_numa.binding(bind, gpus, [gpu(), SECOND], TWO) == Binding(cpus, mems)


def test_all_gpus_are_those_of_the_driver() -> None:
    virtual = gpu("0000:03:00.0", 0, "0-31", "vfio-pci")
    assert lxc_numa.binding("gpus", None, [gpu(), virtual], TWO).mems == "1"
    without_driver = Host(TWO.cpus, TWO.mems, TWO.nodes)
    assert lxc_numa.binding("gpus", None, [gpu(driver=""), virtual], without_driver).mems == "1"


def test_cpus_that_are_not_to_be_had_are_left_out() -> None:
    host = Host(numbers(40, 50) | {0}, frozenset({0}), TWO.nodes, TWO.minors)
    found = lxc_numa.binding("gpus", (0,), [gpu()], host)
    assert (found.cpus, found.mems) == ("40-50", "")
    assert "are 32-63, of which this host may use only 40-50" in found.warnings[0]
    assert "nodes 1 have no memory that containers may use here; the memory stays unbound" in found.warnings[1]
    assert lxc_numa.binding("0,1", None, [], host).mems == "0"


def test_single_node_machine_need_not_tell_the_node() -> None:
    host = Host(numbers(0, 7), frozenset({0}), {0: numbers(0, 7)}, {"0000:01:00.0": 0})
    assert lxc_numa.binding("gpus", None, [gpu(node=-1, cpus="")], host) == Binding("0-7", "0")


@pytest.mark.parametrize(
    ("bind", "gpus", "cards", "host", "why"),
    [
        ("gpus", None, [gpu(node=-1)], TWO, "of GPU 0000:01:00.0: the machine does not say it; set numa to a list"),
        ("gpus", None, [gpu(node=5)], TWO, "this machine has no CPUs at node 5"),
        ("gpus", (0, 7), [gpu()], TWO, "of /dev/nvidia7: /proc/driver/nvidia/gpus does not name them"),
        ("gpus", None, [], TWO, "there is no GPU on the PCI bus"),
        ("0,2", None, [], TWO, "no CPUs at node 2; its nodes are 0-1"),
        ("near", None, [], TWO, "reading numa 'near': it is neither"),
        ("", None, [], TWO, "reading numa '': it is neither"),
        ("0-1", None, [], TWO, "reading numa '0-1': it is neither"),
        ("1", None, [], Host(numbers(0, 3), frozenset({0}), TWO.nodes), "their CPUs are 32-63, and containers may use"),
    ],
)
def test_what_cannot_be_bound_is_refused(bind: str, gpus: Any, cards: Any, host: Host, why: str) -> None:
    with pytest.raises(NumaError, match="; ") as caught:
        lxc_numa.binding(bind, gpus, cards, host)
    assert why in str(caught.value)


def test_server_in_a_bound_container_counts_the_cpus_that_it_is_bound_to(root: Path) -> None:
    """SGLang's CPUs come from cpuset.cpus.effective of the container, not from what the machine has online."""
    bound = lxc_numa.binding("gpus", (3,), [gpu("0000:c1:00.0", 1, "8-15")], lxc_numa.look(str(root)))
    write(root, "proc/self/cgroup", "0::/init.scope")
    write(root, "proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
    write(root, "sys/fs/cgroup/cpuset.cpus.effective", bound.cpus)
    for number in range(16):
        write(root, f"sys/devices/system/cpu/cpu{number}/topology/core_cpus_list", str(number))
    seen = host_cpus.look(str(root), lambda: set(range(16)))
    assert (host_cpus.shown(seen.allowed), seen.count, seen.online) == ("8-15", 8, 16)
    # Its own pinning counts from the machine's first CPU: refused before a rank ends of it, fine when it is off.
    pinned = host_cpus.check(seen, host_cpus.Request(2, {"SGLANG_SET_CPU_AFFINITY": "1"}))
    assert [one.level for one in pinned] == ["ok", "fail"]
    assert [one.level for one in host_cpus.check(seen, host_cpus.Request(2))] == ["ok"]


def plan(text: str, wanted: Binding | None, noted: dict[str, Any] | None = None) -> lxc_numa.Plan:
    return lxc_numa.plan(lxc_config.parse(text.encode(), PATH), wanted, noted or {})


@pytest.mark.parametrize("text", [PVE, PLAIN, PLAIN.replace("\n", "\r\n"), PLAIN.rstrip("\n"), "rootfs: é\tx"])
def test_lines_come_and_go_without_a_trace(text: str) -> None:
    there = plan(text, Binding("0-7", "0"))
    assert there.changed and there.remember == {NOTE_CPUS: None, NOTE_MEMS: None}
    body = there.data.decode()
    assert lxc_config.parse(there.data, PATH).value(CPUS) == "0-7"
    assert not plan(body, Binding("0-7", "0"), dict(there.remember)).changed
    back = plan(body, None, dict(there.remember))
    assert (back.data.decode(), back.changed, back.forget) == (text, True, (NOTE_CPUS, NOTE_MEMS))


def test_line_that_was_there_is_put_back_as_it_was() -> None:
    text = f"lxc.uts.name = x\n{CPUS} = 9\n# mine\n{CPUS}   =  '3'\n"
    there = plan(text, Binding("0-7", ""))
    assert there.data.decode() == f"lxc.uts.name = x\n{CPUS} = 9\n# mine\n{CPUS} = 0-7\n"
    assert there.remember == {NOTE_CPUS: f"{CPUS}   =  '3'"}
    moved = plan(there.data.decode(), Binding("8-15", ""), dict(there.remember))
    assert moved.data.decode().endswith(f"{CPUS} = 8-15\n")
    assert plan(moved.data.decode(), None, dict(there.remember)).data.decode() == text


def test_line_that_somebody_removed_meanwhile_comes_back_when_it_was_there_before() -> None:
    assert plan(PLAIN, None, {NOTE_CPUS: f"{CPUS} = 3"}).data.decode() == f"{PLAIN}{CPUS} = 3\n"
    gone = plan(PLAIN, None, {NOTE_CPUS: None})
    assert (gone.changed, gone.forget) == (False, (NOTE_CPUS,))


def test_nothing_is_put_back_that_was_not_noted() -> None:
    text = f"{PLAIN}{CPUS} = 3\n"
    found = plan(text, None)
    assert (found.data.decode(), found.changed, found.forget) == (text, False, ())
    # Right already, by another hand: nothing of ours to note.
    assert plan(text, Binding("3", "")).remember == {}


def test_memory_that_is_no_longer_bound_is_put_back() -> None:
    there = plan(PLAIN, Binding("0-7", "0"))
    less = plan(there.data.decode(), Binding("0-7", ""), dict(there.remember))
    assert (MEMS in less.data.decode(), less.forget) == (False, (NOTE_MEMS,))


def test_sections_below_stay_and_cores_are_warned_of() -> None:
    there = plan(PVE, Binding("0-7", "0"))
    assert there.data.decode() == PVE.replace("profile: generated\n", f"profile: generated\n{CPUS}: 0-7\n{MEMS}: 0\n")
    assert "cores: 8 has no effect" in there.warnings[0]
    assert plan(PVE, None).warnings == ()


def test_locked_container_is_left_alone() -> None:
    text = "lock: backup\n" + PVE
    with pytest.raises(lxc_config.ConfigError, match="the container is locked"):
        plan(text, Binding("0-7", "0"))
    assert not plan(text, None).changed


@pytest.mark.parametrize(
    "note", [3, ["x"], "lxc.apparmor.profile = unconfined", f"{CPUS} = 3\nlxc.hook.start = /x", ""]
)
def test_note_that_is_no_such_line_is_not_written(note: Any) -> None:
    with pytest.raises(lxc_config.ConfigError, match="what is noted of it"):
        plan(PLAIN, None, {NOTE_CPUS: note})
