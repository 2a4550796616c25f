# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts make a server together, and whether they can go on together."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.tokforge.sglang.plugins.action import preflight
from ansible_collections.tokforge.sglang.plugins.filter.nodes_apart import nodes_apart
from ansible_collections.tokforge.sglang.plugins.filter.server_nodes import server_nodes
from ansible_collections.tokforge.sglang.plugins.module_utils.server_nodes import (
    Nodes,
    NodesError,
    absent,
    by_inventory,
    find,
    not_as_far,
    unlike,
)

GROUPS = {"sglang": ["x", "b", "a"], "pair": ["b", "a"], "one": ["b"], "void": [], "apart": ["b", "q", "r"]}
PAIR = Nodes(("b", "a"), 1, {"nnodes": 2, "node-rank": 1, "dist-init-addr": "10.0.0.1:20000"})


def test_host_of_its_own_has_no_arguments() -> None:
    assert find("", "x", GROUPS, {}, 20000) == Nodes(("x",), 0, {})


def test_rank_is_the_place_in_the_group_and_not_in_the_inventory() -> None:
    assert find("pair", "a", GROUPS, {"b": "10.0.0.1"}, 20000) == PAIR
    assert find("pair", "b", GROUPS, {"b": "10.0.0.1"}, 20000).args["node-rank"] == 0


def test_address_of_version_6_is_in_brackets() -> None:
    assert find("pair", "a", GROUPS, {"b": "fd00::1"}, 7).args["dist-init-addr"] == "[fd00::1]:7"


@pytest.mark.parametrize(
    ("group", "host", "said"),
    [
        ("no", "a", "names 'no', and no host is in that group"),
        ("void", "a", "names 'void', and no host is in that group"),
        ("pair", "x", "x is not in that group (it has b, a)"),
        ("one", "b", "has b only; a server of one host needs no group"),
        ("apart", "b", "q, r of group 'apart' (sglang_nodes_group) are not in group sglang"),
    ],
)
def test_group_that_makes_no_server_is_refused(group: str, host: str, said: str) -> None:
    with pytest.raises(NodesError) as caught:
        find(group, host, GROUPS, {}, 20000)
    assert said in str(caught.value)
    with pytest.raises(AnsibleFilterError, match="sglang_nodes_group"):
        server_nodes(group, host, GROUPS, {host: {} for host in "abqrx"}, 20000)


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({"sglang_nodes_address": "10.9.9.9", "ansible_host": "192.0.2.1"}, "10.9.9.9:20000"),
        ({"sglang_nodes_address": "", "ansible_host": "192.0.2.1"}, "192.0.2.1:20000"),
        ({}, "b:20000"),
    ],
)
def test_first_node_is_reached_by_the_address_between_the_nodes(variables: dict[str, Any], address: str) -> None:
    hostvars = {"b": variables, "a": {"ansible_host": "192.0.2.2"}}
    assert by_inventory("pair", "a", GROUPS, hostvars, 20000).args["dist-init-addr"] == address
    told = server_nodes("pair", "a", GROUPS, hostvars, 20000)
    assert told == {
        "names": ["b", "a"],
        "rank": 1,
        "args": {"nnodes": 2, "node-rank": 1, "dist-init-addr": address},
    }
    # As a server's preflight tells it to the target, and to the release.
    values = {"sglang_nodes_group": "pair", "sglang_server_args": {"tp-size": 2}}
    play = {"inventory_hostname": "a", "groups": GROUPS, "hostvars": hostvars, "ansible_play_batch": ["a", "b"]}
    args, findings = preflight._nodes(values, play)
    assert (dict(args), findings) == (told["args"], [])
    assert preflight._for_target(values, args)["args"] == {"tp-size": 2, **told["args"]}


def test_play_on_a_part_of_the_nodes_is_refused() -> None:
    assert absent(PAIR, ["a", "b"]) == ""
    assert absent(PAIR, ["a"]).startswith("b is not worked on together with this host")
    play = {"inventory_hostname": "a", "groups": GROUPS, "hostvars": {"b": {}}, "ansible_play_batch": ["a"]}
    args, (finding,) = preflight._nodes({"sglang_nodes_group": "pair"}, play)
    assert (finding.level, finding.check) == ("fail", "nodes") and "b is not worked on" in finding.message
    assert args["nnodes"] == 2


def test_group_that_is_none_is_one_finding_of_the_preflight() -> None:
    play = {"inventory_hostname": "x", "groups": GROUPS, "hostvars": {"b": {}}, "ansible_play_batch": ["x"]}
    args, (finding,) = preflight._nodes({"sglang_nodes_group": "pair"}, play)
    assert args == {} and "x is not in that group" in finding.message


def test_host_of_its_own_needs_no_batch() -> None:
    assert preflight._nodes({}, {"inventory_hostname": "x"}) == ({}, [])


def test_node_that_is_not_as_far_is_named() -> None:
    assert not_as_far(PAIR, "a", "written", {"a": ["written"], "b": ["written"]}) == ""
    said = not_as_far(PAIR, "a", "started", {"a": ["written", "started"], "b": ["written"]})
    assert said == (
        "a is one of the nodes b, a of a server, and b failed before the server ran; what failed there is in its own"
        " message"
    )
    assert "b, a failed before the switch, so nothing was switched" in not_as_far(PAIR, "a", "written", {})


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"tp-size": 2}, {"tp-size": 2}, ""),
        ({"node-rank": 0, "port": 1, "host": "x"}, {"node-rank": 1, "port": 2, "host": "y"}, ""),
        ({"tp-size": 2}, {"tp-size": 4}, "tp-size is 2 on b and 4 on a"),
        ({"dtype": "auto"}, {}, "dtype is 'auto' on b and None on a"),
        ({}, {"dtype": "auto"}, "dtype is None on b and 'auto' on a"),
    ],
)
def test_arguments_that_must_be_alike(first: dict[str, Any], second: dict[str, Any], said: str) -> None:
    found = unlike(PAIR, {"b": first, "a": second}, {"b": "1", "a": "1"})
    assert found.startswith(said) and bool(found) == bool(said)


def test_releases_must_be_alike() -> None:
    assert "b has SGLang 0.5.23 and a 0.5.20" in unlike(PAIR, {}, {"b": "0.5.23", "a": "0.5.20"})


def test_filter_reads_what_the_hosts_noted() -> None:
    nodes = {"names": ["b", "a"], "rank": 1, "args": {}}
    release = {"args": {"tp-size": 2}, "sglang_version": "0.5.23"}
    both = {"sglang_rollout_reached": ["written"], "sglang_release_info": release}
    assert nodes_apart(nodes, "a", "written", {"a": both, "b": both}) == ""
    other = {**both, "sglang_release_info": {**release, "args": {"tp-size": 1}}}
    assert nodes_apart(nodes, "a", "written", {"a": both, "b": other}).startswith("tp-size is 1 on b and 2 on a")
    assert "b failed before the switch" in nodes_apart(nodes, "a", "written", {"a": both, "b": {}})
