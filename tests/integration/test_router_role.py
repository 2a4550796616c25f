# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Roles sglang_router and sglang_drain: SGLang's real router, from its wheel, in front of two small real servers.

The servers end at once at SIGTERM, as SGLang does with requests that outlast the limit of the stop. So a request that a
server still has when it is stopped is lost, and the router cannot try a request again whose answer has begun.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from full_only import IN_FULL
from load_generator import LoadGenerator
from test_service import Host

from ansible_collections.tokforge.sglang.plugins.module_utils import managers, proc, router_api, service

ROOT = Path(__file__).resolve().parents[2]
SUPERVISORD = Path(sys.executable).with_name("supervisord")
KEY = "canary-router-key-0123456789"
TOKENS, TOKEN_S = 20, 0.03

pytestmark = pytest.mark.skipif(not SUPERVISORD.exists(), reason=f"supervisord is not beside {sys.executable}")

ROUTER = """
- name: First
  hosts: a
  gather_facts: true
  gather_subset: ["!all", "!min", "python", "platform", "service_mgr", "user"]
  roles: [tokforge.sglang.sglang_router]
- name: Second
  hosts: a
  gather_facts: false
  roles: [tokforge.sglang.sglang_router]
"""

ABSENT = """
- name: Absent
  hosts: a
  gather_facts: true
  gather_subset: ["!all", "!min", "python", "platform", "service_mgr", "user"]
  roles:
    - role: tokforge.sglang.sglang_router
      vars:
        sglang_router_state: absent
"""

REDEPLOY = """
- name: Redeploy
  hosts: a,b
  gather_facts: false
  serial: 1
  tasks:
    - name: Take it out
      ansible.builtin.include_role:
        name: tokforge.sglang.sglang_drain
    - name: Stop it
      tokforge.sglang.server_service: &service
        root: "{{ sglang_root }}"
        manager: supervisor
        state: stopped
        port: "{{ sglang_port }}"
        supervisord: "{{ supervisord }}"
    - name: Prove that it is gone
      ansible.builtin.include_role:
        name: tokforge.sglang.sglang_drain
        tasks_from: gone
    - name: Start it
      tokforge.sglang.server_service:
        <<: *service
        state: started
    - name: Wait for it
      ansible.builtin.uri:
        url: "http://127.0.0.1:{{ sglang_port }}/health"
      register: health
      until: health.status == 200
      retries: 50
      delay: 0.2
    - name: Let it serve
      ansible.builtin.include_role:
        name: tokforge.sglang.sglang_drain
        tasks_from: join
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


class Fleet:
    """Two servers under supervisors of their own, and what the router is told."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.root = directory, directory / "r"
        self.port, self.metrics_port = free_port(), free_port()
        self.servers = []
        for name in ("a", "b"):
            host = Host(directory / name)
            host.port = free_port()
            host.release(1, "--token-s", str(TOKEN_S), "--tells", "loads", "--tells", "metrics")
            host.secrets(f"TOKFORGE_API_KEY={KEY}\n")
            host.service()
            self.servers.append(host)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def play(self, text: str, *options: str) -> dict[str, list[str]]:
        """Run a playbook; the tasks that changed something, by the names of the plays. Fails when it fails."""
        (self.directory / "play.yml").write_text(text)
        hosts = {
            name: {"ansible_connection": "local", "sglang_root": str(host.root), "sglang_port": host.port}
            for name, host in zip("ab", self.servers)
        }
        common = {
            "ansible_python_interpreter": sys.executable,
            "supervisord": str(SUPERVISORD),
            "sglang_router_root": str(self.root),
            "sglang_router_port": self.port,
            "sglang_router_metrics_port": self.metrics_port,
            "sglang_router_api_key": KEY,
            "sglang_router_workers": [f"http://127.0.0.1:{host.port}" for host in self.servers],
            "sglang_router_policy": "round_robin",
            "sglang_router_service_manager": "supervisor",
            "sglang_router_index": {"inherit_pip": True},
            "sglang_router_stop_timeout_s": 15,
            "sglang_drain_router_urls": [self.url],
            "sglang_drain_interval_s": 0.1,
            "sglang_drain_timeout_s": 60,
        }
        inventory = {"sglang": {"hosts": hosts, "vars": common}}
        (self.directory / "hosts.json").write_text(json.dumps(inventory))
        command = [sys.executable, "-m", "ansible", "playbook", "-i", str(self.directory / "hosts.json")]
        done = subprocess.run(
            [*command, *options, str(self.directory / "play.yml")],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
            env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"},
        )
        assert KEY not in done.stdout + done.stderr
        assert "{" in done.stdout, done.stderr
        told = json.loads(done.stdout[done.stdout.index("{") :])
        results = [
            (task["task"]["name"], one) for p in told["plays"] for task in p["tasks"] for one in task["hosts"].values()
        ]
        failed = [
            (name, [item["msg"] for item in one.get("results", [one])]) for name, one in results if one.get("failed")
        ]
        assert done.returncode == 0, failed or done.stderr
        return {
            play["play"]["name"]: [
                task["task"]["name"].rpartition(" : ")[2]
                for task in play["tasks"]
                if any(result.get("changed") for result in task["hosts"].values())
            ]
            for play in told["plays"]
        }

    def workers(self) -> list[str]:
        router = router_api.Router(self.url, router_api.caller(self.url, KEY), KEY)
        return sorted(worker.url for worker in router.workers())


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    # Short, since a unix socket lies in it.
    directory = Path(tempfile.mkdtemp(prefix="tf-"))
    made = Fleet(directory)
    yield made
    if made.root.exists():
        paths = service.Paths(str(made.root))
        manager = managers.make_manager("supervisor", paths, "sglang-router")
        router = service.Service(paths, manager, "sglang-router", "127.0.0.1", made.port, 1)
        service.carry_out(router, "absent", False, True)
    for host in made.servers:
        host.service("absent", stop_timeout_s=1)
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def routed(fleet: Fleet) -> tuple[Fleet, dict[str, list[str]]]:
    """The fleet behind a router, and what setting it up changed in two runs."""
    return fleet, fleet.play(ROUTER)


@IN_FULL
def test_check_mode_on_a_fresh_machine_foresees_it_and_writes_nothing(fleet: Fleet) -> None:
    foreseen = fleet.play(ROUTER[: ROUTER.index("- name: Second")], "--check")["First"]
    assert {"Provide the router", "Run it"} <= set(foreseen)
    assert not fleet.root.exists()


def test_router_is_set_up_once_and_keeps_its_key_to_itself(routed: tuple[Fleet, Any]) -> None:
    fleet, done = routed
    assert {"Provide the router", "Run it", "Write the secrets"} <= set(done["First"])
    assert done["Second"] == []
    urls = sorted(f"http://127.0.0.1:{host.port}" for host in fleet.servers)
    assert fleet.workers() == urls
    assert (fleet.root / "state/secrets.env").stat().st_mode & 0o777 == 0o600
    ours = [one for one in proc.processes() if str(fleet.root) in proc.environ(one.pid).get("TOKFORGE_RELEASE", "")]
    assert ours
    assert not [one.pid for one in proc.processes() if KEY in " ".join(proc.argv(one.pid)) and one in ours]
    assert KEY not in (fleet.root / "log/server.log").read_text()
    # Loopback only, metrics too.
    for port in (fleet.port, fleet.metrics_port):
        assert {one.address for one in proc.listeners(port)} == {"127.0.0.1"}
    # Nobody without the key changes its workers.
    reply = router_api.caller(fleet.url, "")("GET", "/workers", None, 5.0)
    assert reply.status == 401


def test_redeploy_of_all_servers_loses_no_request(routed: tuple[Fleet, Any]) -> None:
    fleet, _changed = routed
    before = [host.manager().seen().pid for host in fleet.servers]
    with LoadGenerator(fleet.port, KEY, TOKENS) as load:
        time.sleep(1)
        fleet.play(REDEPLOY)
        time.sleep(1)
    assert load.failed == []
    assert len(load.done) > 20
    after = [host.manager().seen().pid for host in fleet.servers]
    assert all(after) and not set(before) & set(after)
    assert len(fleet.workers()) == 2


def test_server_that_is_stopped_without_it_loses_requests(routed: tuple[Fleet, Any]) -> None:
    """The test above can fail."""
    fleet, _changed = routed
    with LoadGenerator(fleet.port, KEY, TOKENS) as load:
        time.sleep(1)
        fleet.servers[0].service("stopped")
        fleet.servers[0].service()
        time.sleep(1)
    assert load.failed


def test_router_is_removed_whole(routed: tuple[Fleet, Any]) -> None:
    fleet, _changed = routed
    changed = fleet.play(ABSENT)["Absent"]
    assert changed == ["Stop it", "Remove what it made", "Remove its directory"]
    assert not fleet.root.exists() and proc.listeners(fleet.port) == []
