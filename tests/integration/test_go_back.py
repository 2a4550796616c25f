# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back of a failed rollout, with the playbook's own tasks and a small real HTTP process as the server."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from full_only import IN_FULL

from ansible_collections.tokforge.sglang.plugins.module_utils import managers, release_store, service, start_history

CHECKOUT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).with_name("fake_server.py")
SUPERVISORD = Path(sys.executable).with_name("supervisord")

pytestmark = pytest.mark.skipif(not SUPERVISORD.exists(), reason=f"supervisord is not beside {sys.executable}")


class Site:
    """A root whose releases start the small server, and a play that switches to one as deploy.yml does."""

    def __init__(self, directory: Path) -> None:
        self.root, self.play = directory / "r", directory / "play.yml"
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]

    def stage(self, environment: str, *arguments: str) -> int:
        """A release with an environment of its own, which a test can delete."""
        python = self.root / "venvs" / environment / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
        (self.root / "venvs" / environment / "environment.json").write_text("{}")
        argv = [str(FAKE), "--port", str(self.port), *arguments]
        model = {"path": "/m", "served_name": "tiny", "random_weights": True}
        what = release_store.Content(environment, "0.5.23", "auto", argv, {}, str(self.root), model)
        return release_store.stage(str(self.root), what, "now").release

    def rollout(self, release: int, *before_failure: dict[str, Any]) -> tuple[int, str]:
        """Switch, start, do what the test says, fail or prove; give the return code and the last message."""
        end: list[dict[str, Any]] = [include("sglang_release", "prove")]
        if before_failure:
            end = [*before_failure, {"name": "Measure it", "ansible.builtin.fail": {"msg": "THE FIRST REASON"}}]
        block = [include("sglang_release", "activate"), tasks_of("start"), *end]
        rescue = [tasks_of("go_back")]
        facts = {"release": release, "current": None, "previous": None, "activated": False}
        tasks = [{"ansible.builtin.set_fact": {"sglang_release_info": facts}}, {"block": block, "rescue": rescue}]
        subset = ["!all", "!min", "python", "platform", "service_mgr", "user"]
        self.play.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_subset": subset, "tasks": tasks}]))
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "sglang_root": str(self.root),
            "sglang_host": "127.0.0.1",
            "sglang_port": self.port,
            "sglang_service_manager": "supervisor",
            "sglang_supervisord": str(SUPERVISORD),
            "sglang_ready_output_check": False,  # what is written is not what these tests are about
        }
        command = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-e", json.dumps(variables)]
        environment = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml"}
        done = subprocess.run(
            [*command, str(self.play)], capture_output=True, text=True, cwd=CHECKOUT, check=False, env=environment
        )
        output = done.stdout + done.stderr
        last = output.rsplit("Fail the rollout", 1)
        return done.returncode, output if done.returncode == 0 or len(last) == 1 else " ".join(last[1].split())

    def runs(self) -> str | None:
        """The release whose process runs, by the manager's word."""
        paths = service.Paths(str(self.root))
        seen = service.observe(paths, managers.make_manager("supervisor", paths, "sglang"))
        return os.path.basename(seen.release or "") or None

    def current(self) -> int | None:
        return release_store.read_current(str(self.root))


def include(role: str, entry: str) -> dict[str, Any]:
    return {"ansible.builtin.include_role": {"name": f"tokforge.sglang.{role}", "tasks_from": entry}}


def tasks_of(name: str) -> dict[str, Any]:
    return {"ansible.builtin.include_tasks": str(CHECKOUT / f"playbooks/tasks/{name}.yml")}


def shell(text: str) -> dict[str, Any]:
    return {"name": "Meanwhile", "ansible.builtin.shell": text}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site on which release 1 serves and is proven."""
    made = Site(tmp_path)
    assert made.stage("one") == 1
    code, output = made.rollout(1)
    assert code == 0, output
    yield made
    paths = service.Paths(str(made.root))
    manager = managers.make_manager("supervisor", paths, "sglang")
    service.carry_out(service.Service(paths, manager, "sglang", "127.0.0.1", made.port, 1), "absent", False, True)


@pytest.mark.parametrize("state", [pytest.param("kept", marks=IN_FULL), "", pytest.param(None, marks=IN_FULL)])
def test_release_that_served_is_back_also_without_the_state_file(site: Site, state: str | None) -> None:
    site.stage("two")
    counter = site.root / "state/releases.json"
    harm = {"kept": "true", "": f": > '{counter}'", None: f"rm '{counter}'"}[state]
    code, message = site.rollout(2, shell(harm))
    assert code == 2
    assert "release 2 failed: THE FIRST REASON" in message
    assert "rolled_back: true; release 1 was switched back and serves again" in message
    # What is put on record of its start are its own launch arguments, not those of the request that failed.
    last = json.loads((site.root / "state/starts.json").read_text())["starts"][-1]
    one = release_store.load(str(site.root), 1).content
    assert one and (last["state"], last["release"], last["content_id"]) == ("ready", "1", one.content_id())
    assert (site.current(), site.runs()) == (1, "1")


def test_release_of_another_rollout_is_left_alone(site: Site) -> None:
    site.stage("two")
    site.stage("three")
    other = shell(f"ln -sfn releases/3 '{site.root}/current'")
    code, message = site.rollout(2, other, {"ansible.builtin.include_role": {"name": "tokforge.sglang.sglang_server"}})
    assert code == 2
    assert "cannot start release 2" in message and "another rollout switched to release 3 in the meantime" in message
    assert "rolled_back: false; another rollout is at work here: release 3 is current" in message
    assert (site.current(), site.runs()) == (3, "2")


@pytest.mark.parametrize("serves", [True, pytest.param(False, marks=IN_FULL)])
def test_failed_way_back_names_both_reasons_and_stops_what_does_not_serve(site: Site, serves: bool) -> None:
    site.stage("two", *([] if serves else ["--exit-code", "1"]))
    shutil.rmtree(site.root / "venvs/one")
    code, message = site.rollout(2, shell("true"))
    assert code == 2
    assert ("THE FIRST REASON" if serves else "failed") in message
    assert "rolled_back: false; going back failed too, in task 'Go back to the release that served last'" in message
    assert "cannot use release 1" in message and "environment one is not there any more" in message
    left = "release 2 serves and was left as it is" if serves else "nothing serves, and no server of release 2 is left"
    assert left in message
    assert (site.current(), site.runs()) == (2, "2" if serves else None)
    record = service.read_record(service.Paths(str(site.root)))
    assert record and record.stopped is not serves
    starts = [(start["release"], start["state"]) for start in start_history.read(str(site.root))]
    assert starts == [("1", "ready"), ("2", "ready" if serves else "failed")]
