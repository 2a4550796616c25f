# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role sglang_drain between a server, routers and HAProxy that are played here, and what role sglang_router refuses."""

from __future__ import annotations

import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2.nativetypes import NativeEnvironment

ROOT = Path(__file__).resolve().parents[2]
DEAD = "http://127.0.0.1:9"
SERVER_URL = "http://10.0.0.2:30000"

PLAY = """
- name: Play
  hosts: a
  gather_facts: false
  tasks:
    - name: The role
      ansible.builtin.include_role:
        name: "tokforge.sglang.{{ role }}"
        tasks_from: "{{ entry | default('main') }}"
"""

SUPERVISED = {"sglang_router_service_manager": "supervisor"}
# A server on loopback of its own machine, to which nobody else can route.
FAR = {"children": {"sglang": {"hosts": {"far": {}}}}}


class Site:
    """A router that lists what it was told, a server with some requests, and HAProxy's admin socket."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.running, self.workers = directory, 0, [SERVER_URL]
        self.status: dict[str, str] = {"pool": "UP", "other": ""}
        self.sessions, self.refuses = 0, False
        site = self

        class Http(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.startswith("/v1/loads"):
                    told: dict[str, Any] = {"loads": [{"num_running_reqs": site.running, "num_waiting_reqs": 0}]}
                elif self.command == "GET":
                    told = {"workers": [{"url": url, "id": url, "is_healthy": True} for url in site.workers]}
                else:
                    sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                    site.workers = [json.loads(sent)["url"]] if self.command == "POST" else []
                    told = {}
                body = json.dumps(told).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_DELETE = do_GET  # noqa: N815 (names of http.server)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Admin(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(site.admin(self.rfile.readline().decode().strip()).encode())

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Http)
        self.socket = str(directory / "s")
        self.haproxy = socketserver.ThreadingUnixStreamServer(self.socket, Admin)
        self.port = self.http.server_port

    def admin(self, command: str) -> str:
        if command == "show info":
            return "Version: 2.8.1\n"
        if command == "show stat":
            self.sessions += 1
            rows = ["# pxname,svname,status,weight,scur"]
            for backend, status in self.status.items():
                rows += [f"{backend},s1,{status},1,{self.sessions}"] if status else []
                rows.append(f"{backend},BACKEND,UP,1,0")
            return "\n".join(rows) + "\n"
        for backend in self.status:
            if f"{backend}/s1" in command and not self.refuses:
                self.status[backend] = "DRAIN" if "drain" in command else "UP"
        return "\n"

    def play(self, role: str, entry: str = "main", *options: str, **variables: Any) -> dict[str, Any]:
        """What the play told: `failed`, the message of the last failure, `changed` tasks, `said`, `warned`."""
        common = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "role": role,
            "entry": entry,
            "sglang_root": str(self.directory / "root"),
            "sglang_port": self.port,
            "sglang_drain_url": SERVER_URL,
            "sglang_drain_interval_s": 0.1,
            "sglang_drain_timeout_s": 1,
            "sglang_drain_router_timeout_s": 3,
            **variables,
        }
        (self.directory / "play.yml").write_text(PLAY)
        (self.directory / "hosts.json").write_text(json.dumps({"all": {"hosts": {"a": common}, **FAR}}))
        command = [sys.executable, "-m", "ansible", "playbook", "-i", str(self.directory / "hosts.json")]
        done = subprocess.run(
            [*command, *options, str(self.directory / "play.yml")],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
            env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"},
        )
        assert "{" in done.stdout, done.stderr
        told = json.loads(done.stdout[done.stdout.index("{") :])
        results = [
            (task["task"]["name"].rpartition(" : ")[2], one)
            for task in told["plays"][0]["tasks"]
            for one in task["hosts"].values()
        ]
        failures = [one["msg"] for _name, one in results if one.get("failed")]
        return {
            "failed": failures[-1] if done.returncode else "",
            "changed": [name for name, one in results if one.get("changed")],
            "said": [one["msg"] for name, one in results if name.startswith("Say ") and not one.get("skipped")],
            "warned": json.dumps([one for _name, one in results]) + done.stderr,
        }

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def front(self, **more: str) -> dict[str, str]:
        return {"socket": self.socket, "server": "s1", "backend": "pool", **more}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    threads = [threading.Thread(target=one.serve_forever, args=(0.05,)) for one in (made.http, made.haproxy)]
    for thread in threads:
        thread.start()
    yield made
    for server, thread in zip((made.http, made.haproxy), threads):
        server.shutdown()
        server.server_close()
        thread.join()


def test_router_that_is_gone_is_named_and_the_others_send_again(site: Site) -> None:
    told = site.play(
        "sglang_drain", sglang_drain_router_urls=[DEAD, site.url], sglang_drain_haproxy=site.front(backend="")
    )
    # First why it failed, then who does not send to it again.
    first, again = told["failed"].split(". Not everybody sends to it again: ")
    for text in (first, again):
        assert f"cannot list its workers at router {DEAD}" in text and "check that it runs" in text
    assert site.workers == [SERVER_URL] and site.status == {"pool": "UP", "other": ""}


def test_haproxy_sends_again_although_a_router_is_gone(site: Site) -> None:
    site.status["pool"], site.workers = "DRAIN", []
    told = site.play(
        "sglang_drain", "join", sglang_drain_router_urls=[DEAD, site.url], sglang_drain_haproxy=site.front()
    )
    assert f"cannot list its workers at router {DEAD}" in told["failed"]
    assert site.status["pool"] == "UP" and site.workers == [SERVER_URL]


def test_haproxy_is_changed_once_whatever_its_sessions_do(site: Site) -> None:
    first = site.play("sglang_drain", sglang_drain_haproxy=site.front(backend=""))
    assert (first["failed"], first["changed"]) == ("", ["Tell HAProxy to have it absent"])
    assert site.status == {"pool": "DRAIN", "other": ""}
    second = site.play("sglang_drain", sglang_drain_haproxy=site.front())
    assert (second["failed"], second["changed"]) == ("", [])
    foreseen = site.play("sglang_drain", "join", "--check", sglang_drain_haproxy=site.front())
    assert (foreseen["failed"], site.status["pool"]) == ("", "DRAIN")


def test_haproxy_that_does_not_drain_or_know_the_server_fails(site: Site) -> None:
    site.refuses = True
    told = site.play("sglang_drain", sglang_drain_haproxy=site.front())
    assert "does not have s1 absent: it says UP; look at sglang_drain_haproxy" in told["failed"]
    told = site.play("sglang_drain", "join", sglang_drain_haproxy=site.front(backend="", server="s2"))
    assert "does not have s2 present: it says that no backend has such a server" in told["failed"]


def test_busy_server_is_waited_for_aloud_and_shortly_where_clients_go_on(site: Site) -> None:
    site.running = 2
    told = site.play("sglang_drain", sglang_drain_timeout_s="{{ lookup('vars', 'limit') }}", limit=1)
    assert "Waiting for at most 1 s" in told["said"][0] and "2 running" in told["said"][0]
    assert "clients can go on sending to it" in told["said"][0] and len(told["said"]) == 2


@pytest.mark.parametrize(("urls", "haproxy", "seconds"), [([], {}, 10), ([DEAD], {}, 120), ([], {"socket": "/s"}, 120)])
def test_server_whose_clients_go_on_sending_is_waited_for_shortly(
    urls: list[str], haproxy: dict[str, str], seconds: int
) -> None:
    default = yaml.safe_load((ROOT / "roles/sglang_drain/defaults/main.yml").read_text())["sglang_drain_timeout_s"]
    given = {"sglang_drain_router_urls": urls, "sglang_drain_haproxy": haproxy}
    assert NativeEnvironment().from_string(default).render(given) == seconds


def test_server_on_all_addresses_is_known_to_a_router_elsewhere_by_its_own(site: Site) -> None:
    told = site.play(
        "sglang_drain",
        sglang_drain_router_urls=[site.url.replace("127.0.0.1", "[::ffff:127.0.0.1]")],
        sglang_drain_url="{{ __sglang_drain_known_as }}",
        sglang_host="0.0.0.0",
        ansible_host="10.0.0.7",
    )
    assert told["failed"] == "" and site.workers == [SERVER_URL]
    assert f"does not list http://10.0.0.7:{site.port}; it lists {SERVER_URL}; is sglang_drain_url" in told["warned"]


@pytest.mark.parametrize("state", ["present", "absent"])
@pytest.mark.parametrize("way", ["link", "releases"])
def test_router_below_the_root_of_a_server_is_refused(site: Site, state: str, way: str) -> None:
    server = site.directory / "root"
    (server / "releases/1").mkdir(parents=True)
    root = server
    if way == "link":
        (server / "releases/router").mkdir()
        root = site.directory / "link"
        root.symlink_to(server)
    variables: dict[str, Any] = {"sglang_router_workers": [SERVER_URL]} if state == "present" else {}
    variables |= {
        "sglang_root": str(server if way == "link" else site.directory / "x"),
        "sglang_router_root": str(root),
    }
    told = site.play("sglang_router", sglang_router_state=state, **variables, **SUPERVISED)
    assert "must be another directory than sglang_root and hold no releases of a server" in told["failed"]
    assert (server / "releases/1").is_dir() and told["changed"] == []


@pytest.mark.parametrize("others", [True, False])
def test_only_what_the_router_role_made_is_removed(site: Site, others: bool) -> None:
    root = site.directory / "router"
    for name in ("bin", "releases/router", "state", "log", "cache/home", "venvs/x"):
        (root / name).mkdir(parents=True)
    (root / ".tokforge-sglang").touch()
    if others:
        (root / ".mine").touch()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    # The workers cannot be named (FAR), and need not be.
    told = site.play(
        "sglang_router",
        sglang_router_state="absent",
        sglang_router_root=str(root),
        sglang_router_port=port,
        **SUPERVISED,
    )
    assert told["failed"] == ""
    assert (
        [one.name for one in sorted(root.iterdir())] == [".mine", ".tokforge-sglang"] if others else not root.exists()
    )
