# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who provisions what: which hosts have a kernel, which are containers, and which container is on which hypervisor.

The inventory says it with one dictionary at each container, `lxc_container`, and module host_info says what each host
really is. Where the two disagree nothing is done: work on the wrong kernel is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.host_identity import CONTAINER, MACHINE

#: What `lxc_container` must say, and what it may say for role lxc_gpu.
NEEDED = ("hypervisor", "id")
OPTIONS = ("gpus", "form", "numa", "config")


@dataclass(frozen=True)
class Plan:
    """Every host once in `machines`, `containers` or `problems`; `containers_of` has for each hypervisor what role
    lxc_gpu takes: `id` and the OPTIONS that are given.
    """

    machines: tuple[str, ...]
    containers: tuple[str, ...]
    containers_of: Mapping[str, tuple[Mapping[str, Any], ...]]
    problems: Mapping[str, str]


def plan(looks: Mapping[str, Mapping[str, Any]], entries: Mapping[str, Any], without_hypervisor: bool = False) -> Plan:
    """Put every host where it belongs.

    :param looks: what host_info said of each host; empty for one that could not be looked at.
    :param entries: `lxc_container` of each host that has one.
    :param without_hypervisor: whether a container may have none that we know: its machine is somebody else's.
    """
    problems = {
        name: problem
        for name, seen in looks.items()
        if (problem := _problem(name, seen, entries, looks, without_hypervisor))
    }
    placed = {name: entries[name] for name in looks if name in entries and name not in problems}
    places: dict[tuple[str, str], list[str]] = {}
    for name, entry in placed.items():
        places.setdefault((entry["hypervisor"], str(entry["id"])), []).append(name)
    for (hypervisor, number), names in places.items():
        for name in names if len(names) > 1 else ():
            others = ", ".join(other for other in names if other != name)
            problems[name] = (
                f"lxc_container of {name} and of {others} are both container {number} on {hypervisor}; correct the id "
                "of one of them"
            )
    of: dict[str, list[Mapping[str, Any]]] = {}
    for name, entry in placed.items():
        if name not in problems:
            given = {key: entry[key] for key in OPTIONS if key in entry}
            of.setdefault(entry["hypervisor"], []).append({"id": str(entry["id"]), **given})
    good = [name for name in looks if name not in problems]
    return Plan(
        tuple(name for name in good if looks[name]["kind"] == MACHINE),
        tuple(name for name in good if looks[name]["kind"] == CONTAINER),
        {name: tuple(there) for name, there in of.items()},
        problems,
    )


def _problem(
    name: str,
    seen: Mapping[str, Any],
    entries: Mapping[str, Any],
    looks: Mapping[str, Mapping[str, Any]],
    without_hypervisor: bool,
) -> str:
    """Why nothing can be done on this host, "" when something can."""
    if not seen:
        return f"{name} could not be looked at, so nothing is known of it; see what failed on it above"
    if name in entries:
        wrong = _wrong_entry(name, entries[name])
        if wrong:
            return wrong
        if seen["kind"] == MACHINE:
            return (
                f"the inventory calls {name} a container (lxc_container) and it runs a kernel of its own; remove "
                "lxc_container there, or see whether ansible_host leads to the hypervisor"
            )
        return _wrong_hypervisor(name, entries[name]["hypervisor"], looks)
    if seen["kind"] == MACHINE or without_hypervisor:
        return ""
    kind = seen["container"] or CONTAINER
    if kind not in ("lxc", CONTAINER):
        return (
            f"{name} is a {kind} container: its driver and devices come from the machine it runs on, which no playbook "
            "here can hand to it; provision that machine, or give provision_without_hypervisor=true to do what can be "
            "done inside"
        )
    return (
        f"{name} is a container and the inventory does not say of which hypervisor; give it "
        "lxc_container: {hypervisor: NAME, id: ID}, or provision_without_hypervisor=true when that machine is not yours"
    )


def _wrong_entry(name: str, entry: Any) -> str:
    """What is wrong with a `lxc_container`, "" when nothing is."""
    if not isinstance(entry, Mapping):
        return f"lxc_container of {name} is no dictionary; write lxc_container: {{hypervisor: NAME, id: ID}}"
    unknown = sorted(str(key) for key in entry if key not in (*NEEDED, *OPTIONS))
    if unknown:
        return (
            f"lxc_container of {name} has {', '.join(unknown)}, which nothing reads; known are "
            f"{', '.join((*NEEDED, *OPTIONS))}"
        )
    hypervisor, number = entry.get("hypervisor"), entry.get("id")
    if not isinstance(hypervisor, str) or not hypervisor:
        return f"lxc_container of {name} does not name its hypervisor; give the hypervisor's name in the inventory"
    # On Proxmox a number, elsewhere the name of a directory.
    # Not by type(): a template's texts are of a class of Ansible's own.
    known = isinstance(number, (int, str)) and not isinstance(number, bool)
    if not known or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", str(number)):
        return f"lxc_container of {name} has the id {number!r}; give the container's number, or its name for plain LXC"
    return ""


def _wrong_hypervisor(name: str, hypervisor: str, looks: Mapping[str, Mapping[str, Any]]) -> str:
    if hypervisor not in looks:
        return (
            f"{hypervisor}, the hypervisor of {name}, is not among the hosts of this play; put it into group "
            "hypervisors of the inventory, and into --limit"
        )
    if not looks[hypervisor]:
        return f"{hypervisor}, the hypervisor of {name}, could not be looked at; see what failed on it above"
    if looks[hypervisor]["kind"] == CONTAINER:
        return (
            f"{hypervisor}, the hypervisor of {name}, is itself a container; name the machine that has the kernel, or "
            "see whether its ansible_host is right"
        )
    return ""
