# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A collection of the right name with playbooks of a second each, one for each way in which a rollout can end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
# Of an account nobody can reach: port 1 of this machine.
AWAY = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}


def _debug(name: str, msg: str) -> dict[str, Any]:
    return {"name": name, "ansible.builtin.debug": {"msg": msg}}


def _fail(name: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, "ansible.builtin.fail": {"msg": "no reason"}} | keys


def _sleep(marker: str) -> dict[str, Any]:
    """A task that begins by making the file of this name below `place`, and then sleeps longer than any test."""
    script = f"echo $$ > {{{{ place }}}}/{marker}; exec sleep 300"
    return {"name": "Sleep", "ansible.builtin.command": {"argv": ["sh", "-c", script]}}


PLAYBOOKS: dict[str, list[dict[str, Any]]] = {
    # A secret that Ansible hides, and some that careless tasks show.
    "verify": [
        {
            "name": "Log in",
            "ansible.builtin.copy": {"content": "{{ sglang_hub_token }}", "dest": "{{ place }}/token", "mode": "0600"},
            "no_log": True,
        },
        _debug("Say it", "token {{ sglang_hub_token }} key {{ sglang_server_api_key }} of {{ given_by }}"),
        _debug("Show a variable of the environment", "{{ lookup('ansible.builtin.env', 'CI_JOB_TOKEN') }}"),
        _debug("Show a file's secret", "{{ deep.registry_password }}"),
    ],
    "deploy": [
        {"name": "Connect", "ansible.builtin.ping": {}},
        {
            "name": "Start",
            "block": [_fail("Break"), _debug("Never", "never")],
            "rescue": [
                {
                    "name": "Fail the rollout",
                    "ansible.builtin.fail": {
                        "msg": "release 2 failed\nrolled_back: true; release 1 was switched back and serves again."
                    },
                }
            ],
        },
    ],
    "sweep": [
        {"name": "Try", "block": [_fail("Break")], "rescue": [_debug("Go on", "went on")]},
        _fail("Break softly", ignore_errors=True),
        _fail("Break for good", when="inventory_hostname == 'b'"),
    ],
    "explain": [
        {"name": "Try", "block": [_fail("Break")], "rescue": [_debug("Go on", "went on")]},
    ],
    "report": [
        {
            "name": "Write the page",
            "ansible.builtin.file": {"path": "{{ sglang_report_dir }}/page", "state": "directory", "mode": "0755"},
            "run_once": True,
        }
    ],
    "benchmark": [_sleep("sleeping")],
}


def write_collection(directory: Path) -> Path:
    """Write the collection; returns the entry for ANSIBLE_COLLECTIONS_PATH."""
    root = directory / "ansible_collections" / "tokforge" / "sglang"
    (root / "playbooks").mkdir(parents=True)
    (root / "galaxy.yml").write_text("namespace: tokforge\nname: sglang\nversion: 9.8.7\n", encoding="utf-8")
    (root / "ansible.cfg").write_text("[defaults]\nstdout_callback = default\n", encoding="utf-8")
    for name, tasks in PLAYBOOKS.items():
        check = {
            "name": "Check the inventory",
            "hosts": "localhost",
            "gather_facts": False,
            "tasks": [_debug("Check", "well")],
        }
        play = {"name": f"Do {name}", "hosts": "sglang", "gather_facts": False, "tasks": tasks}
        (root / "playbooks" / f"{name}.yml").write_text(
            yaml.safe_dump([check, play], sort_keys=False), encoding="utf-8"
        )
    return directory


def write_inventory(path: Path, hosts: dict[str, dict[str, Any]], **variables: Any) -> Path:
    """Write an inventory with group sglang."""
    path.write_text(json.dumps({"sglang": {"hosts": hosts, "vars": variables}}), encoding="utf-8")
    return path


def command(*arguments: str | Path) -> list[str]:
    """The command line of tokforge-rollout in this Python."""
    return [sys.executable, "-m", "tokforge_rollout", *map(str, arguments)]


def environment(collections: Path | None, **more: str) -> dict[str, str]:
    """Environment of a CI job: nothing of the test run's own settings."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "TOKFORGE_"))}
    env["PYTHONPATH"] = str(ROOT)
    return env | ({"ANSIBLE_COLLECTIONS_PATH": str(collections)} if collections else {}) | more


def run(
    arguments: list[str | Path], artifacts: Path, collections: Path | None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        command(*arguments, "--artifacts", artifacts),
        cwd=artifacts.parent,
        env=environment(collections, **env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def summary(artifacts: Path) -> dict[str, Any]:
    """summary.json."""
    parsed: dict[str, Any] = json.loads((artifacts / "summary.json").read_text(encoding="utf-8"))
    return parsed
