# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""deploy.yml on two real SGLang servers behind the real router, with load on it all the time."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from full_only import IN_FULL
from load_generator import LoadGenerator
from rollout import CHECKOUT, ON_THIS_MACHINE, PLAY_TIMEOUT_S, SMALL_BENCHMARK, Rollout, free_port

pytestmark = [pytest.mark.real, IN_FULL]

KEY = "load-behind-router-0123456789"
TOKENS = 16
ARGS = {"max-total-tokens": 8192, "max-running-requests": 64, "sleep-on-idle": True}
ROUTER = """
- hosts: node-a
  gather_facts: true
  gather_subset: ["!all", "!min", "python", "platform", "service_mgr", "user"]
  roles: [tokforge.sglang.sglang_router]
"""
ROUTER_ABSENT = ROUTER + "  vars: {sglang_router_state: absent}\n"


class Fleet:
    """Two servers with roots of their own on this machine, a router, and plays on them."""

    def __init__(self, base: Path) -> None:
        self.base, self.port = base, free_port()
        self.servers = {name: Rollout(base / name[-1], free_port(), base / "uv") for name in ("node-a", "node-b")}
        common = {
            **ON_THIS_MACHINE,
            "sglang_uv_cache": str(base / "uv"),
            "sglang_server_api_key": KEY,
            "sglang_router_root": str(base / "r"),
            "sglang_router_port": self.port,
            "sglang_router_metrics_port": free_port(),
            "sglang_router_api_key": KEY,
            "sglang_router_policy": "round_robin",
            "sglang_router_service_manager": "supervisor",
            "sglang_router_index": {"inherit_pip": True},
            "sglang_drain_router_urls": [f"http://127.0.0.1:{self.port}"],
            "sglang_drain_router_root": str(base / "r"),
            "sglang_router_workers": [f"http://127.0.0.1:{one.port}" for one in self.servers.values()],
            **SMALL_BENCHMARK,
        }
        hosts = {n: {"sglang_root": str(one.root), "sglang_port": one.port} for n, one in self.servers.items()}
        (base / "hosts.yml").write_text(yaml.safe_dump({"sglang": {"hosts": hosts, "vars": common}}))
        for name, text in (("router", ROUTER), ("absent", ROUTER_ABSENT)):
            (base / f"{name}.yml").write_text(text)

    def run(self, playbook: str, **variables: Any) -> tuple[int, str]:
        command = [
            str(Path(sys.executable).with_name("ansible-playbook")),
            "-i",
            str(self.base / "hosts.yml"),
            playbook,
        ]
        command += ["-e", json.dumps({"sglang_server_args": ARGS, **variables})]
        done = subprocess.run(
            command, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=3 * PLAY_TIMEOUT_S
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    made = Fleet(Path(tempfile.mkdtemp(prefix="tf-")))  # short, since unix sockets lie in it
    yield made
    made.run(str(made.base / "absent.yml"))
    made.run("destroy.yml", sglang_destroy_models=True, sglang_destroy_caches=True)
    for one in made.servers.values():
        one.end_everything()
    shutil.rmtree(made.base)


def test_deploy_of_both_servers_loses_no_request(fleet: Fleet) -> None:
    # Nobody sends yet, and there is no router to tell.
    code, output = fleet.run("deploy.yml", sglang_drain_router_urls=[])
    assert code == 0, output
    code, output = fleet.run(str(fleet.base / "router.yml"))
    assert code == 0, output
    before = [one.must_run().pid for one in fleet.servers.values()]
    with LoadGenerator(fleet.port, KEY, TOKENS, clients=2) as load:
        args = {**ARGS, "max-running-requests": 32}
        code, output = fleet.run("deploy.yml", sglang_serial=1, sglang_server_args=args)
    assert code == 0, output
    assert load.failed == []
    assert len(load.done) > 20
    for one, pid in zip(fleet.servers.values(), before, strict=True):
        assert one.must_run().pid != pid
        assert json.loads((one.root / "current/manifest.json").read_text())["args"]["max-running-requests"] == 32
    # Each says how long it was out; together they never were.
    assert output.count("  downtime   ") == 2
