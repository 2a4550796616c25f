# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real SGLang server of two nodes: two hosts of an inventory that share this machine, each with a root of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from full_only import IN_FULL
from rollout import CHECKOUT, ON_THIS_MACHINE, PLAY_TIMEOUT_S, SMALL_BENCHMARK, Rollout, free_port

pytestmark = [pytest.mark.real, IN_FULL]

CHOICE = {"sglang_version": "0.5.23"}
# One core for each rank; without it SGLang wants a NUMA node for each.
THREADS = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}


class Pair:
    """The two nodes, and plays on both."""

    def __init__(self, base: Path) -> None:
        self.first = Rollout(base / "a", free_port(), base / "uv")
        self.second = Rollout(base / "b", free_port(), base / "uv")
        common = {
            **ON_THIS_MACHINE,
            "sglang_uv_cache": str(base / "uv"),
            "sglang_nodes_group": "pair",
            "sglang_nodes_port": free_port(),
            "sglang_nodes_address": "127.0.0.1",
            "sglang_server_args": {
                "max-total-tokens": 8192,
                "max-running-requests": 64,
                "sleep-on-idle": True,
                "tp-size": 2,
            },
            "sglang_server_env": THREADS,
            **SMALL_BENCHMARK,
            **CHOICE,
        }
        hosts = {
            name: {"sglang_root": str(one.root), "sglang_port": one.port}
            for name, one in (("node-a", self.first), ("node-b", self.second))
        }
        self.inventory = base / "hosts.yml"
        self.inventory.write_text(
            yaml.safe_dump(
                {"sglang": {"children": {"pair": {"hosts": hosts, "vars": common}}}},
            )
        )

    def run(self, playbook: str, *options: str, **variables: Any) -> tuple[int, str]:
        command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(self.inventory), playbook]
        command += [*options, "-e", json.dumps(variables)]
        done = subprocess.run(
            command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=2 * PLAY_TIMEOUT_S
        )
        return done.returncode, done.stdout + done.stderr


def recap(output: str, host: str) -> dict[str, int]:
    line = re.search(rf"^{host} +: (.*)$", output.rsplit("PLAY RECAP", 1)[1], re.MULTILINE)
    assert line, output
    return {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", line[1])}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("n"))
    yield made
    made.run("destroy.yml", sglang_destroy_models=True, sglang_destroy_caches=True)
    for one in (made.first, made.second):
        one.end_everything()


@pytest.fixture(scope="module")
def deployed(pair: Pair) -> str:
    code, output = pair.run("deploy.yml")
    assert code == 0, output
    return output


def test_both_nodes_run_and_the_first_one_serves(pair: Pair, deployed: str) -> None:
    assert pair.first.generate(tokens=5) == 5
    launches = [
        json.loads((one.root / "current/manifest.json").read_text())["args"] for one in (pair.first, pair.second)
    ]
    assert [(args["nnodes"], args["node-rank"]) for args in launches] == [(2, 0), (2, 1)]
    assert launches[0]["dist-init-addr"] == launches[1]["dist-init-addr"]
    assert launches[0]["dist-init-addr"].startswith("127.0.0.1:")
    assert pair.second.listening()
    assert "nodes      node-a, node-b; node-a serves, node-b is node 1" in deployed


def test_only_the_first_node_is_measured(pair: Pair, deployed: str) -> None:
    assert pair.first.facts()["latest"]["valid"]
    assert not (pair.second.root / "facts/sglang.fact").exists()


def test_second_deploy_changes_nothing_on_either(pair: Pair, deployed: str) -> None:
    code, output = pair.run("deploy.yml")
    assert code == 0, output
    assert [recap(output, host)["changed"] for host in ("node-a", "node-b")] == [0, 0]


def test_verify_checks_the_first_node_whole_and_says_what_the_other_has_not(pair: Pair, deployed: str) -> None:
    code, output = pair.run("verify.yml")
    assert code == 0, output
    assert "this is node 1 of 2, and the first node serves" in output


def test_nodes_that_are_asked_for_different_things_are_not_switched(pair: Pair, deployed: str) -> None:
    processes = [one.must_run() for one in (pair.first, pair.second)]
    context = "{{ 4096 if inventory_hostname == 'node-a' else 2048 }}"
    args = {"max-total-tokens": 8192, "max-running-requests": 64, "sleep-on-idle": True, "tp-size": 2}
    code, output = pair.run("deploy.yml", sglang_server_args={**args, "context-length": context})
    assert code != 0
    said = " ".join(output.split())
    assert "context-length is 4096 on node-a and 2048 on node-b; all nodes must have the same" in said
    assert said.count("nothing was switched") >= 2, output
    assert [one.must_run() for one in (pair.first, pair.second)] == processes


def test_part_of_the_nodes_is_refused_before_anything_changes(pair: Pair, deployed: str) -> None:
    code, output = pair.run("deploy.yml", "--limit", "node-b")
    assert code != 0
    assert "nothing was changed on node-b" in output
    assert "node-a is not worked on together with this host" in " ".join(output.split())


def test_release_that_crashes_on_one_node_goes_back_on_both(pair: Pair, deployed: str) -> None:
    # The second node has no such interface, which shows when both are switched already.
    env = {**THREADS, "GLOO_SOCKET_IFNAME": "{{ 'lo' if inventory_hostname == 'node-a' else 'nosuch0' }}"}
    code, output = pair.run("deploy.yml", sglang_server_env=env, sglang_ready_timeout_s=150)
    assert code != 0
    said = output.rsplit("Fail the rollout", 1)[1]
    assert said.count("rolled_back: true") == 2, output
    assert (pair.first.release(), pair.second.release()) == (1, 1)
    assert pair.first.generate(tokens=5) == 5


def test_node_that_dies_is_started_anew_with_the_other(pair: Pair, deployed: str) -> None:
    os.kill(pair.second.must_run().pid, signal.SIGKILL)
    code, output = pair.run("deploy.yml")
    assert code == 0, output
    assert pair.first.generate(tokens=5) == 5
    assert pair.second.listening()
