# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preflight role in a real play: one host a wrong request, all in one run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

SECRET = "canary-5c1f8e0d2b"
GOOD: dict[str, Any] = {
    "ansible_connection": "local",
    "ansible_python_interpreter": sys.executable,
    "sglang_lane": "cpu",
    "sglang_backend": "{{ backend | default('auto') }}",
    "sglang_model": "{{ model | default('builtin:tiny-moe') }}",
}

# host name -> (variables beside GOOD, parts that the message must hold, how many findings fail)
REQUESTS: dict[str, tuple[dict[str, Any], list[str], int]] = {
    "good": ({}, [], 0),
    "good_everything_set": (
        {
            "backend": "triton",
            "sglang_version": "0.5.12.post1",
            "sglang_keep_releases": 3,
            "sglang_server_args": {"tp-size": 1, "sleep_on_idle": True},
            "sglang_server_env": {"NCCL_DEBUG": "INFO"},
            "sglang_server_secrets": {"SOME_TOKEN": SECRET},
        },
        [],
        0,
    ),
    "unknown_version": ({"sglang_version": "0.5.99"}, ["'0.5.99' has no lock in lane cpu", "0.5.12.post1"], 1),
    "backend_of_a_newer_release": (
        {"sglang_version": "0.5.12.post1", "backend": "humming"},
        ["'humming' is no --moe-runner-backend of SGLang 0.5.12.post1", "choices there: auto"],
        1,
    ),
    "misspelt": ({"sglang_prot": 1}, ["sglang_prot is no variable of this collection", "sglang_port"], 1),
    "wrong_type": ({"sglang_port": "30x"}, ["'sglang_port'", "30x"], 1),
    "wrong_choice": ({"sglang_service_manager": "upstart"}, ["sglang_service_manager", "upstart"], 1),
    "unknown_argument": (
        {"sglang_server_args": {"tp-sizze": 1}},
        ["--tp-sizze is no argument of SGLang", "--tp-size"],
        1,
    ),
    "owned_argument": ({"sglang_server_args": {"port": 1}}, ["port is decided by sglang_port"], 1),
    "secret_in_env": ({"sglang_server_env": {"HF_TOKEN": SECRET}}, ["HF_TOKEN looks like a secret"], 1),
    "secret_of_wrong_type": ({"sglang_server_secrets": SECRET}, ["sglang_server_secrets has a value of the wrong"], 1),
    "branch_of_a_repository": ({"model": "org/name@main"}, ["'main' is a branch, a tag or a short hash"], 1),
    "no_room": ({"sglang_min_free_bytes": 10**18}, ["GB free at", "1000000000.0 GB needed"], 1),
    "no_such_python": ({"sglang_python": "/nowhere/python3"}, ["/nowhere/python3"], 1),
    "three_at_once": (
        {"sglang_prot": 1, "backend": "nonsense", "model": "/nowhere"},
        ["sglang_prot", "'nonsense'", "there is no such directory"],
        3,
    ),
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A port that somebody else listens on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory, port: int) -> tuple[Path, dict[str, dict[str, Any]], str]:
    """The directory with the roots, each host's failed result (empty: passed), and all that was printed."""
    base = tmp_path_factory.mktemp("preflight")
    requests = {**REQUESTS, "port_in_use": ({"sglang_port": port}, [], 1)}
    hosts = {name: {**GOOD, "sglang_root": str(base / name), **own} for name, (own, _p, _n) in requests.items()}
    (base / "hosts.yml").write_text(yaml.safe_dump({"sglang": {"hosts": hosts}}))
    role = {"ansible.builtin.include_role": {"name": "tokforge.sglang.preflight"}}
    tell = {
        "ansible.builtin.copy": {
            "content": "{{ ansible_failed_result | to_json }}",
            "dest": f"{base}/{{{{ inventory_hostname }}}}.json",
            "mode": "0600",
        }
    }
    play = {"hosts": "sglang", "gather_facts": False, "tasks": [{"block": [role], "rescue": [tell]}]}
    (base / "play.yml").write_text(yaml.safe_dump([play]))
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(base / "hosts.yml"), str(base / "play.yml")],
        capture_output=True,
        text=True,
        env={**os.environ, "ANSIBLE_INJECT_FACT_VARS": "false"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = {name: yaml.safe_load(file.read_text()) for name in hosts if (file := base / f"{name}.json").exists()}
    return base, results, done.stdout + done.stderr


@pytest.mark.parametrize("name", REQUESTS)
def test_request_is_judged(outcome: tuple[Path, dict[str, dict[str, Any]], str], name: str) -> None:
    _base, results, _output = outcome
    _own, parts, count = REQUESTS[name]
    result = results.get(name, {"findings": [], "msg": ""})
    failed = [finding for finding in result["findings"] if finding["level"] == "fail"]
    assert len(failed) == count, result
    for part in parts:
        assert part in result["msg"]


def test_foreign_listener_is_named(outcome: tuple[Path, dict[str, dict[str, Any]], str], port: int) -> None:
    message = outcome[1]["port_in_use"]["msg"]
    assert f"127.0.0.1:{port} is in use by pid {os.getpid()} (" in message


def test_nothing_is_made(outcome: tuple[Path, dict[str, dict[str, Any]], str]) -> None:
    assert not [path for path in outcome[0].iterdir() if path.is_dir()]


def test_no_secret_is_printed(outcome: tuple[Path, dict[str, dict[str, Any]], str]) -> None:
    _base, results, output = outcome
    assert SECRET not in output
    assert SECRET not in str(results)


def test_misspelt_short_name_on_the_command_line_is_told(tmp_path: Path) -> None:
    role = {"ansible.builtin.include_role": {"name": "tokforge.sglang.preflight"}}
    play = {"hosts": "localhost", "gather_facts": False, "vars": {**GOOD, "sglang_root": str(tmp_path / "r")}}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{**play, "tasks": [role]}]))
    program = str(Path(sys.executable).parent / "ansible-playbook")
    done = subprocess.run(
        [program, "-i", "localhost,", str(tmp_path / "play.yml"), "-e", "bakend=triton"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "bakend is no variable of this collection" in done.stdout
    assert "did you mean backend?" in done.stdout
