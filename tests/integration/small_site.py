# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A root whose releases start a small real HTTP process, and plays that switch between them as deploy.yml does."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.tokforge.sglang.plugins.module_utils import managers, release_store, service

CHECKOUT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).with_name("fake_server.py")
SUPERVISORD = Path(sys.executable).with_name("supervisord")
SUBSET = ["!all", "!min", "python", "platform", "service_mgr", "user"]


class Site:
    """A root, and what a test does with it."""

    def __init__(self, directory: Path) -> None:
        self.root, self.play = directory / "r", directory / "play.yml"
        self.names = "localhost"
        self.root.mkdir()
        (self.root / ".tokforge-sglang").touch()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]

    def stage(self, environment: str, *arguments: str) -> int:
        """A release with an environment of its own, which a test can delete."""
        python = self.root / "venvs" / environment / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
        (self.root / "venvs" / environment / "environment.json").write_text('{"schema_version": 1, "versions": {}}')
        argv = [str(FAKE), "--port", str(self.port), *arguments]
        model = {"path": "/m", "served_name": "tiny", "random_weights": True}
        what = release_store.Content(environment, "0.5.23", "auto", argv, {}, str(self.root), model)
        return release_store.stage(str(self.root), what, "now").release

    def variables(self) -> dict[str, Any]:
        """What the inventory would say."""
        return {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "sglang_root": str(self.root),
            "sglang_host": "127.0.0.1",
            "sglang_port": self.port,
            "sglang_service_manager": "supervisor",
            "sglang_supervisord": str(SUPERVISORD),
            "sglang_ready_output_check": False,  # what is written is not what these tests are about
        }

    def switching(self, release: int, before_proof: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
        """The tasks of deploy.yml from the written release on, with others before it is noted that it serves."""
        facts = {"release": release, "current": None, "previous": None, "activated": False}
        begin = {**include("sglang_rollout", "main"), "vars": {"sglang_rollout_what": "deploy"}}
        block = [
            include("sglang_server", "keep"),
            include("sglang_release", "activate"),
            tasks_of("start"),
            *before_proof,
            include("sglang_release", "prove"),
            rollout_state("closed", outcome="done"),
        ]
        written = {"name": "Write it", "ansible.builtin.set_fact": {"sglang_release_info": facts}}
        around = {
            "block": [written, *block],
            "rescue": [tasks_of("go_back")],
            "always": [include("sglang_rollout", "end")],
        }
        return [begin, around]

    def command(self, tasks: Sequence[dict[str, Any]], **variables: Any) -> list[str]:
        """The command of a play with these tasks."""
        self.play.write_text(yaml.safe_dump([{"hosts": "all", "gather_subset": SUBSET, "tasks": list(tasks)}]))
        extra = json.dumps({**self.variables(), **variables})
        return [sys.executable, "-m", "ansible", "playbook", "-i", f"{self.names},", "-e", extra, str(self.play)]

    def run(self, tasks: Sequence[dict[str, Any]], **variables: Any) -> tuple[int, str]:
        """Play these tasks; the return code and all it printed."""
        done = subprocess.run(
            self.command(tasks, **variables),
            capture_output=True,
            text=True,
            cwd=CHECKOUT,
            check=False,
            env=play_environment(),
        )
        return done.returncode, done.stdout + done.stderr

    def rollout(self, release: int, *before_failure: dict[str, Any], **variables: Any) -> tuple[int, str]:
        """Switch, start, do what the test says, fail or prove; give the return code and the last message."""
        failure = {"name": "Measure it", "ansible.builtin.fail": {"msg": "THE FIRST REASON"}}
        code, output = self.run(
            self.switching(release, [*before_failure, failure] if before_failure else []), **variables
        )
        last = output.rsplit("Fail the rollout", 1)
        return code, output if code == 0 or len(last) == 1 else " ".join(last[1].split())

    def runs(self) -> str | None:
        """The release whose process runs, by the manager's word."""
        paths = service.Paths(str(self.root))
        seen = service.observe(paths, managers.make_manager("supervisor", paths, "sglang"))
        return os.path.basename(seen.release or "") or None

    def current(self) -> int | None:
        return release_store.read_current(str(self.root))

    def end(self) -> None:
        """Stop all that runs there."""
        paths = service.Paths(str(self.root))
        manager = managers.make_manager("supervisor", paths, "sglang")
        service.carry_out(service.Service(paths, manager, "sglang", "127.0.0.1", self.port, 1), "absent", False, True)


def play_environment() -> dict[str, str]:
    return {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml"}


def include(role: str, entry: str) -> dict[str, Any]:
    return {"ansible.builtin.include_role": {"name": f"tokforge.sglang.{role}", "tasks_from": entry}}


def tasks_of(name: str) -> dict[str, Any]:
    return {"ansible.builtin.include_tasks": str(CHECKOUT / f"playbooks/tasks/{name}.yml")}


def rollout_state(state: str, **options: Any) -> dict[str, Any]:
    token = "{{ sglang_rollout_id }}"
    return {"tokforge.sglang.rollout": {"root": "{{ sglang_root }}", "state": state, "rollout": token, **options}}


def shell(text: str) -> dict[str, Any]:
    return {"name": "Meanwhile", "ansible.builtin.shell": text}


@contextlib.contextmanager
def served_site(directory: Path) -> Iterator[Site]:
    """A site on which release 1 serves and is proven."""
    made = Site(directory)
    assert made.stage("one") == 1
    code, output = made.rollout(1)
    assert code == 0, output
    try:
        yield made
    finally:
        made.end()
