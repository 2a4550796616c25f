# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which CPUs and which memory a container gets when it is bound to the NUMA nodes of its GPUs, and the lines for that.

A control group's cpuset is what binds it (Linux Documentation/admin-guide/cgroup-v2.rst, Cpuset): `cpuset.cpus` and
`cpuset.mems` hold for everything in the container, also for what asks for other CPUs there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import cgroups, host_cpus, host_files, lxc_config
from ansible_collections.tokforge.sglang.plugins.module_utils.lxc_config import Config

CPUS = "lxc.cgroup2.cpuset.cpus"
MEMS = "lxc.cgroup2.cpuset.mems"
#: Bind to the nodes of the container's GPUs; put back what was there.
GPUS = "gpus"
NONE = "none"

_NODES = re.compile(r"\d{1,4}(?:\s*,\s*\d{1,4})*", re.ASCII)
_NODE_DIRECTORY = "/sys/devices/system/node"
#: NVIDIA's kernel module tells here which N of /dev/nvidiaN a device on the bus is.
_DRIVER_DIRECTORY = "/proc/driver/nvidia/gpus"


class NumaError(Exception):
    """A container cannot be bound as asked; the text says what to do."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Host:
    """CPUs and memory that containers may use here, and the CPUs of each node. All by number.

    `old_groups`: cpusets are with cgroup v1, for which the lines that are written here are not.
    """

    cpus: frozenset[int]
    mems: frozenset[int]
    nodes: Mapping[int, frozenset[int]]
    minors: Mapping[str, int] = field(default_factory=dict)
    old_groups: bool = False


@dataclass(frozen=True)
class Binding:
    """CPUs and memory nodes as the kernel writes them. Empty memory: none of the nodes has some that may be used."""

    cpus: str = ""
    mems: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The new file. `remember` and `forget` are what to note, by key, before and after it is written."""

    data: bytes
    changed: bool
    remember: Mapping[str, str | None] = field(default_factory=dict)
    forget: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def look(root: str = "/") -> Host:
    """Read what may be used. In a container it is what its own group leaves, on a machine all that is online."""
    groups = cgroups.of("cpuset", root)
    # Containers are started in groups of their own at the top, so the group of the process that looks does not count.
    top = groups.directories[-1] if groups.directories else ""
    nodes = host_cpus.nodes(root)
    every = frozenset().union(*nodes.values())
    online = host_cpus.numbers(host_files.read(root, "/sys/devices/system/cpu/online")) or every
    memory = _node_numbers(root, "has_memory") or _node_numbers(root, "online") or frozenset(nodes)
    return Host(
        _narrowed(online, root, top, "cpuset.cpus.effective"),
        _narrowed(memory, root, top, "cpuset.mems.effective"),
        nodes,
        _minors(root),
        groups.version == 1,
    )


def _narrowed(have: frozenset[int], root: str, group: str, name: str) -> frozenset[int]:
    limit = host_cpus.numbers(host_files.read(root, f"{group}/{name}")) if group else frozenset()
    # In a container lxcfs may count CPUs from 0 in what stands for /sys; the group has their real numbers.
    return (have & limit or limit) if limit else have


def _node_numbers(root: str, name: str) -> frozenset[int]:
    return host_cpus.numbers(host_files.read(root, f"{_NODE_DIRECTORY}/{name}"))


def _minors(root: str) -> dict[str, int]:
    """The numbers of GPUs' nodes by PCI address, as the loaded driver tells them."""
    found = {}
    for address in host_files.names(root, _DRIVER_DIRECTORY):
        text = host_files.read(root, f"{_DRIVER_DIRECTORY}/{address}/information") or ""
        match = re.search(r"^Device Minor:\s*(\d{1,4})\s*$", text, re.MULTILINE | re.ASCII)
        if match:
            found[address.lower()] = int(match[1])
    return found


def binding(bind: str, gpus: Sequence[int] | None, host_gpus: Iterable[Mapping[str, Any]], host: Host) -> Binding:
    """What to bind to. Raises NumaError for what this host does not have or does not tell.

    :param bind: gpus, or numbers of nodes with commas between them.
    :param gpus: numbers of the container's GPUs, None for all.
    :param host_gpus: GPUs as module host_info returns them.
    """
    if host.old_groups:
        raise NumaError(
            f"binding to NUMA nodes: this host has cpusets with cgroup v1, and LXC does not read {CPUS} there; boot it "
            "with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or set numa to none"
        )
    if not host.cpus or not host.nodes:
        raise NumaError(
            "looking for this host's NUMA nodes: /sys/devices/system/node names no CPUs; mount /sys, or set numa to "
            "none"
        )
    if bind == GPUS:
        nodes, cpus = _near(gpus, host_gpus, host)
    else:
        nodes = _asked(bind, host)
        cpus = frozenset().union(*(host.nodes[node] for node in nodes))
    warnings = []
    left, memory = cpus & host.cpus, nodes & host.mems
    if not left:
        raise NumaError(
            f"binding to NUMA nodes {host_cpus.shown(nodes)}: their CPUs are {host_cpus.shown(cpus)}, and containers "
            f"may use only {host_cpus.shown(host.cpus)} here; choose another node, or set numa to none",
            nodes=sorted(nodes),
            cpus=host_cpus.shown(cpus),
            allowed=host_cpus.shown(host.cpus),
        )
    if left != cpus:
        warnings.append(
            f"the CPUs of NUMA nodes {host_cpus.shown(nodes)} are {host_cpus.shown(cpus)}, of which this host may use "
            f"only {host_cpus.shown(left)}; the container is bound to those"
        )
    if memory != nodes:
        warnings.append(
            f"NUMA nodes {host_cpus.shown(nodes - memory)} have no memory that containers may use here; the memory "
            + ("of the others is bound" if memory else "stays unbound")
        )
    return Binding(host_cpus.shown(left), host_cpus.shown(memory), tuple(warnings))


def _near(
    gpus: Sequence[int] | None, host_gpus: Iterable[Mapping[str, Any]], host: Host
) -> tuple[frozenset[int], frozenset[int]]:
    """The nodes and CPUs near GPUs."""
    chosen = _chosen(gpus, list(host_gpus), host)
    nodes: set[int] = set()
    cpus: set[int] = set()
    for one in chosen:
        node = int(one["numa_node"])
        # A machine with one node often does not say which one a device is at.
        node = next(iter(host.nodes)) if node < 0 and len(host.nodes) == 1 else node
        if node not in host.nodes:
            raise NumaError(
                f"looking for the NUMA node of GPU {one['address']}: "
                + (f"this machine has no CPUs at node {node}" if node >= 0 else "the machine does not say it")
                + f"; set numa to a list of the nodes {host_cpus.shown(frozenset(host.nodes))}, or to none",
                address=one["address"],
                nodes=sorted(host.nodes),
            )
        nodes.add(node)
        cpus |= host_cpus.numbers(one.get("cpus")) or host.nodes[node]
    return frozenset(nodes), frozenset(cpus)


def _chosen(gpus: Sequence[int] | None, host_gpus: list[Mapping[str, Any]], host: Host) -> list[Mapping[str, Any]]:
    numbers = {host.minors[one["address"].lower()]: one for one in host_gpus if one["address"].lower() in host.minors}
    if gpus is None:
        # What a virtual machine has is not the container's.
        found = list(numbers.values()) or [one for one in host_gpus if one.get("driver") != "vfio-pci"]
    else:
        lacking = [f"/dev/nvidia{number}" for number in gpus if number not in numbers]
        if lacking:
            raise NumaError(
                f"looking for the PCI devices of {', '.join(lacking)}: {_DRIVER_DIRECTORY} does not name them; load "
                "the driver, or set numa to a list of nodes or to none",
                lacking=lacking,
            )
        found = [numbers[number] for number in gpus]
    if not found:
        raise NumaError(
            "looking for the NUMA nodes of GPUs: there is no GPU on the PCI bus; set numa to a list of nodes or to none"
        )
    return found


def _asked(bind: str, host: Host) -> frozenset[int]:
    if not _NODES.fullmatch(bind.strip()):
        raise NumaError(
            f"reading numa {bind!r}: it is neither none nor gpus nor a list of nodes such as 0,1; correct it", numa=bind
        )
    asked = frozenset(int(one) for one in bind.split(","))
    lacking = asked - set(host.nodes)
    if lacking:
        raise NumaError(
            f"reading numa {bind!r}: this host has no CPUs at node {host_cpus.shown(lacking)}; its nodes are "
            f"{host_cpus.shown(frozenset(host.nodes))}",
            numa=bind,
            nodes=sorted(host.nodes),
        )
    return asked


def note_key(path: str, key: str) -> str:
    """Under which key the line that was there before is noted."""
    return f"lxc_numa/{path}/{key}"


def plan(config: Config, wanted: Binding | None, noted: Mapping[str, Any]) -> Plan:
    """The file with the binding, or with what was there before when nothing is wanted. Raises ConfigError.

    :param noted: what previous_values has.
    """
    replaced: dict[int, str | None] = {}
    added: list[tuple[str, str]] = []
    remember: dict[str, str | None] = {}
    forget: list[str] = []
    for key, value in ((CPUS, wanted.cpus if wanted else ""), (MEMS, wanted.mems if wanted else "")):
        note = note_key(config.path, key)
        at = _line(config, key)
        old = None if at is None else config.lines[at].text
        if value:
            new: str | None = lxc_config.entry(config, key, value)
            if at is not None and config.lines[at].value == value:
                continue
            remember[note] = old
        elif note in noted:
            new = _noted(config, key, noted[note])
            forget.append(note)
        else:
            continue
        if at is not None:
            replaced[at] = new
        elif new is not None:
            added.append((key, new))
    before = lxc_config.edited(config, {}, ())
    data = lxc_config.edited(config, replaced, added)
    if data != before:
        lxc_config.refuse_locked(config)
    lxc_config.parse(data, config.path)
    return Plan(data, data != before, remember, tuple(forget), _warnings(config, wanted))


def _noted(config: Config, key: str, text: Any) -> str | None:
    """The line that was there before. Raises ConfigError for a note that is none of ours."""
    if text is None:
        return None
    if isinstance(text, str) and re.fullmatch(rf"\s*{re.escape(key)}\s*[:=].*", text):
        return text
    raise lxc_config.ConfigError(
        f"putting back {key} in {config.path}: what is noted of it, {text!r}, is no such line; put a backup of the "
        "notes back, or remove the key and set the line by hand",
        path=config.path,
        found=text,
    )


def _line(config: Config, key: str) -> int | None:
    """The last line with a key: LXC sets them one after another, so that one counts."""
    return next((at for at in reversed(range(config.main)) if config.lines[at].key == key), None)


def _warnings(config: Config, wanted: Binding | None) -> tuple[str, ...]:
    cores = config.value("cores") if config.format == lxc_config.PROXMOX else None
    if not wanted or cores is None:
        return ()
    # PVE::Service::pvestatd, rebalance_lxc_containers leaves out containers with such a line.
    return (f"cores: {cores} has no effect on a container that is bound to CPUs; it may use {wanted.cpus}",)
