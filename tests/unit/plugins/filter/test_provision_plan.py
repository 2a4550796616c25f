# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who provisions what."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.filter.provision_plan import FilterModule, provision_plan
from ansible_collections.tokforge.sglang.plugins.module_utils import provision_hosts

MACHINE = {"kind": "machine", "container": ""}
LXC = {"kind": "container", "container": "lxc"}
ENTRY = {"hypervisor": "pve", "id": 101}


def problem(seen: dict[str, Any], entry: Any = None, others: dict[str, Any] | None = None, **more: Any) -> str:
    entries = {} if entry is None else {"box": entry}
    plan = provision_hosts.plan({"box": seen, **(others or {})}, entries, **more)
    assert ("box" in plan.problems) is ("box" not in (*plan.machines, *plan.containers))
    return plan.problems.get("box", "")


def test_bare_machine_and_hypervisor_with_two_containers() -> None:
    looks = {"bare": MACHINE, "pve": MACHINE, "one": LXC, "two": LXC}
    entries = {"one": ENTRY, "two": {"hypervisor": "pve", "id": "102", "gpus": [0, 1], "numa": "gpus"}}
    assert provision_plan(looks, entries) == {
        "machines": ["bare", "pve"],
        "containers": ["one", "two"],
        "containers_of": {
            "pve": [
                {"id": "101"},
                {"id": "102", "gpus": [0, 1], "numa": "gpus"},
            ]
        },
        "problems": {},
    }
    assert FilterModule().filters() == {"provision_plan": provision_plan}


def test_texts_of_a_template_are_texts() -> None:
    class Tagged(str):
        """As Ansible's templates make them."""

    entry = {"hypervisor": Tagged("pve"), "id": Tagged("guest-1")}
    assert problem(LXC, entry, {"pve": MACHINE}) == ""


def test_container_of_an_unknown_hypervisor_is_named_with_both_ways_out() -> None:
    said = problem(LXC)
    assert "box is a container and the inventory does not say of which hypervisor" in said
    assert "lxc_container: {hypervisor: NAME, id: ID}" in said and "provision_without_hypervisor=true" in said
    assert problem(LXC, without_hypervisor=True) == ""


def test_docker_container_cannot_be_handed_devices() -> None:
    said = problem({"kind": "container", "container": "docker"})
    assert said.startswith("box is a docker container") and "provision that machine" in said
    assert problem({"kind": "container", "container": "docker"}, without_hypervisor=True) == ""


def test_machine_that_the_inventory_calls_a_container_is_left_alone() -> None:
    said = problem(MACHINE, ENTRY, {"pve": MACHINE})
    assert "calls box a container (lxc_container) and it runs a kernel of its own" in said


@pytest.mark.parametrize(
    ("others", "part"),
    [
        ({}, "pve, the hypervisor of box, is not among the hosts of this play; put it into group hypervisors"),
        ({"pve": {}}, "pve, the hypervisor of box, could not be looked at"),
        ({"pve": LXC}, "pve, the hypervisor of box, is itself a container"),
    ],
)
def test_hypervisor_that_cannot_be_worked_on_stops_its_container(others: dict[str, Any], part: str) -> None:
    assert part in problem(LXC, ENTRY, others)


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ("101", "is no dictionary"),
        ([], "is no dictionary"),
        ({"hypervisor": "pve"}, "has the id None"),
        ({"hypervisor": "pve", "id": True}, "has the id True"),
        ({"hypervisor": "pve", "id": "../101"}, "has the id '../101'"),
        ({"hypervisor": "pve", "id": ""}, "has the id ''"),
        ({"hypervisor": "", "id": 101}, "does not name its hypervisor"),
        ({"hypervisor": ["pve"], "id": 101}, "does not name its hypervisor"),
        ({"id": 101}, "does not name its hypervisor"),
        ({"hypervisor": "pve", "id": 101, "gpu": [0]}, "has gpu, which nothing reads; known are hypervisor, id, gpus"),
    ],
)
def test_entry_that_cannot_be_understood_is_an_error_and_no_guess(entry: Any, part: str) -> None:
    assert part in problem(LXC, entry, {"pve": MACHINE})


def test_one_container_has_one_host() -> None:
    looks = {"pve": MACHINE, "one": LXC, "two": LXC, "three": LXC, "other": MACHINE}
    entries = {
        "one": ENTRY,
        "two": {"hypervisor": "pve", "id": "101"},
        "three": {"hypervisor": "other", "id": "101"},
    }
    plan = provision_hosts.plan(looks, entries)
    assert plan.problems["one"].startswith("lxc_container of one and of two are both container 101 on pve")
    assert plan.problems["two"].startswith("lxc_container of two and of one are both container 101 on pve")
    assert plan.containers == ("three",)
    assert plan.containers_of == {"other": ({"id": "101"},)}


def test_host_without_an_answer_is_a_problem_and_the_others_go_on() -> None:
    plan = provision_hosts.plan({"box": {}, "bare": MACHINE}, {"box": ENTRY})
    assert plan.machines == ("bare",)
    assert "could not be looked at" in plan.problems["box"]
