# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A start that dies inside autotune, with the playbook's own tasks and a small process that logs as SGLang does."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import managers, release_store, service

CHECKOUT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).with_name("fake_server.py")
SUPERVISORD = Path(sys.executable).with_name("supervisord")

pytestmark = pytest.mark.skipif(not SUPERVISORD.exists(), reason=f"supervisord is not beside {sys.executable}")

# What the release's `python -m sglang.launch_server` finds, since a server works in its root.
LAUNCH_SERVER = f"""
import runpy
import sys
import time


def log(tags, text):
    print(f"[{{time.strftime('%Y-%m-%d %H:%M:%S')}}{{tags}}] {{text}}", file=sys.stderr, flush=True)


log("", "server_args=ServerArgs(device='cpu', tp_size=2)")
for rank in (0, 1):
    log(f" TP{{rank}}", "Load weight end. elapsed=0.10 s, type=X")
if "--disable-flashinfer-autotune" not in sys.argv:
    for rank in (0, 1):
        log(f" TP{{rank}}", "Running FlashInfer autotune with cache: /c")
    log(" TP0", "FlashInfer autotune completed.")
    trace = "Traceback (most recent call last):\\n  File \\"x.py\\", line 1, in f"
    log(" TP1", f"Scheduler hit an exception: {{trace}}\\ntorch.AcceleratorError: CUDA error: an illegal instruction")
    sys.exit(1)
port = sys.argv[sys.argv.index("--port") + 1]
sys.argv = [{str(FAKE)!r}, "--port", port, "--name", "tiny"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

PLAY = """
- name: Rollout
  hosts: localhost
  gather_facts: true
  gather_subset: ["!all", "!min", "python", "platform", "service_mgr", "user"]
  tasks:
    - name: Write the release
      ansible.builtin.include_role:
        name: tokforge.sglang.sglang_release
        public: true
    - name: Begin
      ansible.builtin.include_role:
        name: tokforge.sglang.sglang_rollout
      vars:
        sglang_rollout_what: deploy
    - name: Switch to it
      ansible.builtin.include_role:
        name: tokforge.sglang.sglang_release
        tasks_from: activate
    - name: Start it
      ansible.builtin.include_tasks: {tasks}
"""


class Site:
    """A root with one environment, and a play that does what deploy.yml does from the release on."""

    def __init__(self, directory: Path) -> None:
        self.root, self.play = directory / "r", directory / "play.yml"
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        python = self.root / "venvs/one/bin/python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
        (self.root / "venvs/one/environment.json").write_text("{}")
        self.server = self.root / "sglang/launch_server.py"
        self.server.parent.mkdir()
        (self.server.parent / "__init__.py").touch()
        self.server.write_text(LAUNCH_SERVER)
        self.play.write_text(PLAY.format(tasks=CHECKOUT / "playbooks/tasks/start.yml"))

    def rollout(self, *options: str, **more: Any) -> tuple[int, str]:
        variables = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "sglang_root": str(self.root),
            "sglang_port": self.port,
            "sglang_service_manager": "supervisor",
            "sglang_supervisord": str(SUPERVISORD),
            "sglang_lane": "cpu",
            "sglang_version": "0.5.23",
            "sglang_environment": {"id": "one"},
            "sglang_model_info": {"path": "/m", "served_name": "tiny", "random_weights": True, "revision": None},
            "sglang_server_args": {"tp-size": 2},
            "sglang_ready_output_check": False,
            **more,
        }
        command = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-e", json.dumps(variables)]
        environment = {**os.environ, "ANSIBLE_STDOUT_CALLBACK": "default", "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml"}
        done = subprocess.run(
            [*command, *options, str(self.play)],
            capture_output=True,
            text=True,
            cwd=CHECKOUT,
            check=False,
            env=environment,
        )
        return done.returncode, done.stdout + done.stderr

    def starts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((self.root / "state/starts.json").read_text())["starts"]
        return found

    def current(self) -> int | None:
        return release_store.read_current(str(self.root))

    def arguments(self) -> list[str]:
        argv: list[str] = json.loads((self.root / "current/launch.json").read_text())["argv"]
        return argv


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    paths = service.Paths(str(made.root))
    manager = managers.make_manager("supervisor", paths, "sglang")
    service.carry_out(service.Service(paths, manager, "sglang", "127.0.0.1", made.port, 1), "absent", False, True)


def changed(output: str) -> int:
    return int(re.findall(r"changed=(\d+)", output.rsplit("PLAY RECAP", 1)[1])[0])


def test_start_that_dies_inside_autotune_is_done_again_without_it_once_and_for_all(site: Site) -> None:
    code, output = site.rollout(sglang_autotune_fallback=True)
    assert code == 0, output
    assert site.current() == 2 and "--disable-flashinfer-autotune" in site.arguments()
    failed, ready = site.starts()
    assert (failed["state"], failed["release"], failed["autotune_outcome"]) == ("failed", "1", "incomplete")
    assert (failed["failure"]["reason"], failed["failure"]["rank"]) == ("illegal_instruction", "TP1")
    assert failed["failure"]["stage"] == "autotune" and failed["autotune"]["ranks_completed"] == ["TP0"]
    assert (ready["state"], ready["release"], ready["autotune_outcome"]) == ("ready", "2", "disabled_fallback")

    # The same request again: what failed is known, so nothing is switched and nothing is started.
    code, output = site.rollout(sglang_autotune_fallback=True)
    assert code == 0 and changed(output) == 0, output
    assert site.current() == 2 and len(site.starts()) == 2


def test_without_the_fallback_the_rollout_fails_with_rank_traceback_and_advice(site: Site) -> None:
    code, output = site.rollout()
    assert code == 2
    flat = " ".join(output.rsplit("Fail the start", 1)[1].split())
    assert "illegal_instruction in TP1: torch.AcceleratorError: CUDA error: an illegal instruction" in flat
    assert "Ranks: 2 expected, 2 started and 1 completed autotune; missing: TP1." in flat
    assert "retry with autotune disabled" in flat and "exited with code 1" in flat
    assert site.current() == 1
    [failed] = site.starts()
    assert failed["failure"]["fatal"] is True


def test_start_that_fails_elsewhere_is_not_done_again(site: Site) -> None:
    text = LAUNCH_SERVER.replace("Running FlashInfer", "Not running").replace("FlashInfer autotune completed", "no")
    site.server.write_text(text)
    code, output = site.rollout(sglang_autotune_fallback=True)
    assert code == 2 and site.current() == 1, output
    assert [start["failure"]["stage"] for start in site.starts()] == ["kv_cache"]
