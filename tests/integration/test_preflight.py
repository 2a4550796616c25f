# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The preflight role in a real play: one host a wrong request, all in one run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
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

#: What the machine sets, and arguments that SGLang takes because of one of them only.
MACHINE = {"KEPT_VALUE": "0", "KEPT_EMPTY": "", "KEPT_API_KEY": SECRET, "SGLANG_ENABLE_PP_SPEC": "1"}
PIPELINE = {"pp-size": 2, "speculative-algorithm": "EAGLE"}

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
    "kept_of_the_machine": ({"sglang_server_env_pass_on": ["KEPT_VALUE", "KEPT_EMPTY"]}, [], 0),
    "kept_and_not_set": (
        {"sglang_server_env_pass_on": ["KEPT_VALUE", "KEPT_ABSENT"]},
        ["sglang_server_env_pass_on: this machine does not set KEPT_ABSENT, which its server has to keep;"],
        1,
    ),
    "kept_and_given": (
        {"sglang_server_env_pass_on": ["KEPT_VALUE"], "sglang_server_env": {"KEPT_VALUE": "1"}},
        ["KEPT_VALUE is in sglang_server_env too"],
        1,
    ),
    "kept_and_secret": (
        {"sglang_server_env_pass_on": ["KEPT_VALUE"], "sglang_server_secrets": {"KEPT_VALUE": SECRET}},
        ["KEPT_VALUE is in sglang_server_secrets, which would win, and on sglang_server_env_pass_on"],
        1,
    ),
    "kept_secret": ({"sglang_server_env_pass_on": ["KEPT_API_KEY"]}, ["KEPT_API_KEY looks like a secret"], 1),
    "kept_of_no_list": ({"sglang_server_env_pass_on": {"A": 1}}, ["env_pass_on is a mapping; give a list"], 1),
    "not_kept_and_refused": (
        {"sglang_version": "0.5.23", "sglang_server_args": PIPELINE},
        ["pipeline parallelism with speculative decoding"],
        1,
    ),
    # The machine's own setting counts for the arguments too.
    "kept_and_allowed": (
        {
            "sglang_version": "0.5.23",
            "sglang_server_args": PIPELINE,
            "sglang_server_env_pass_on": ["SGLANG_ENABLE_PP_SPEC"],
        },
        [],
        0,
    ),
    "secret_of_wrong_type": ({"sglang_server_secrets": SECRET}, ["sglang_server_secrets has a value of the wrong"], 1),
    "branch_of_a_repository": ({"model": "org/name@main"}, ["'main' is a branch, a tag or a short hash"], 1),
    "no_room": ({"sglang_min_free_bytes": 10**18}, ["GB free at", "1000000000.0 GB needed"], 1),
    "no_such_python": ({"sglang_python": "/nowhere/python3"}, ["/nowhere/python3"], 1),
    "no_such_base": (
        {"sglang_install_base": {"python": "/nowhere/python3"}},
        ["looking at the base /nowhere/python3: not there or not executable; bring it back, or give"],
        1,
    ),
    "base_of_this_python": ({"sglang_install_base": {"python": "{{ ansible_playbook_python }}"}}, [], 0),
    "empty_port": ({"sglang_port": None}, ["sglang_port is empty; give a value or leave it out"], 1),
    "empty_arguments": ({"sglang_server_args": None}, ["sglang_server_args is empty;"], 1),
    "empty_exempt": ({"sglang_hash_exempt": None}, ["sglang_hash_exempt is empty;"], 1),
    "empty_item": ({"sglang_hash_exempt": ["torch", None]}, ["sglang_hash_exempt[1] is empty;"], 1),
    "empty_concurrency": ({"sglang_benchmark_concurrency": None}, ["sglang_benchmark_concurrency is empty;"], 1),
    "empty_lane": ({"sglang_lane": None}, ["sglang_lane is empty;"], 1),
    "empty_root": ({"sglang_root": None}, ["sglang_root is empty;"], 1),
    "empty_suboption": ({"sglang_index": {"index_url": None}}, ["sglang_index.index_url is empty;"], 1),
    "truth_for_a_number": ({"sglang_port": True}, ["sglang_port is true or false; give a number"], 1),
    "list_for_a_lane": ({"sglang_lane": ["cpu"]}, ["sglang_lane is a list; give one text"], 1),
    "unknown_lane": ({"sglang_lane": "gpu"}, ["sglang_lane", "gpu"], 1),
    "text_for_arguments": ({"sglang_server_args": "--tp 1"}, ["sglang_server_args is a text; give a mapping"], 1),
    "list_for_a_token": ({"sglang_hub_token": [SECRET]}, ["sglang_hub_token has a value of the wrong type"], 1),
    "mapping_for_a_key": ({"sglang_server_api_key": {"a": SECRET}}, ["sglang_server_api_key has a value of the"], 1),
    "negative_room": ({"sglang_min_free_bytes": -1}, ["sglang_min_free_bytes is -1; give a number at least 0"], 1),
    "negative_keep": ({"sglang_keep_releases": -1}, ["sglang_keep_releases is -1"], 1),
    "port_zero": ({"sglang_port": 0}, ["sglang_port is 0; give a number from 1 to 65535"], 1),
    "served_name_with_colon": ({"sglang_served_model_name": "a:b"}, ["cannot serve the model as 'a:b'"], 1),
    "served_name_of_two_lines": ({"sglang_served_model_name": "a\nb"}, ["cannot serve the model as 'a\\nb'"], 1),
    "facts_relative": ({"sglang_facts_dir": "facts"}, ["sglang_facts_dir 'facts' is not an absolute path"], 1),
    "facts_below_a_file": ({"sglang_facts_dir": "/etc/passwd/f"}, ["/etc/passwd is not a directory"], 1),
    "models_in_proc": ({"sglang_models_dir": "/proc/f"}, ["models_dir /proc/f", "/proc"], 1),
    "cache_from_home": ({"sglang_uv_cache": "~/uv"}, ["sglang_uv_cache '~/uv' is not an absolute path"], 1),
    "newer_facts": ({"sglang_facts_dir": "{{ base }}/newer"}, ["newer/sglang.fact: written with schema 99"], 1),
    "damaged_facts": ({"sglang_facts_dir": "{{ base }}/damaged"}, [], 0),
    "root_tilde": ({"sglang_root": "~/sglang"}, ["sglang_root '~/sglang' is not an absolute path"], 1),
    "root_variable": ({"sglang_root": "/opt/$HOME"}, ["holds a control character or %"], 1),
    "root_semicolon": ({"sglang_root": "/opt/a ;b"}, ["holds a control character or %"], 1),
    "root_system": ({"sglang_root": "/usr/"}, ["/usr is a directory of the system, and everything below"], 1),
    "root_dots": ({"sglang_root": "/opt/../etc/x"}, ["sglang_root /etc/x is a directory of the system"], 1),
    "root_home": (
        {"sglang_root": "{{ lookup('env', 'HOME') }}/"},
        ["and everything below a root belongs to rollouts"],
        1,
    ),
    "root_slash_behind": ({"sglang_root": "{{ base }}/slash/"}, [], 0),
    "host_of_dots": ({"sglang_host": ".."}, ["sglang_host '..' is neither an address nor a host name"], 1),
    "host_of_a_long_label": ({"sglang_host": "a" * 64}, ["is neither an address nor a host name"], 1),
    "overlay_missing": ({"sglang_overlay": "no-such"}, ["sglang_overlay 'no-such' is not there"], 1),
    "overlay_of_the_role": ({"sglang_overlay": "overlay-cpu"}, [], 0),
    "wheelhouse_without_path": ({"sglang_install_source": {"type": "wheelhouse"}}, ["a wheelhouse needs a path"], 1),
    "wheelhouse_missing": (
        {"sglang_install_source": {"type": "wheelhouse", "path": "/nowhere"}},
        ["the wheelhouse /nowhere: it is no directory with wheels"],
        1,
    ),
    "checkout_of_nothing": ({"sglang_install_source": {"type": "checkout"}}, ["a checkout needs a path or a url"], 1),
    "checkout_of_a_branch": (
        {"sglang_install_source": {"type": "checkout", "url": f"https://u:{SECRET}@h/r", "commit": "main"}},
        ["its commit 'main' is not 40 hexadecimal digits"],
        1,
    ),
    "checkout_missing": (
        {"sglang_install_source": {"type": "checkout", "path": "/nowhere"}},
        ["installing from the source tree /nowhere"],
        1,
    ),
    "source_of_no_type": ({"sglang_install_source": {"type": "conda"}}, ["conda", "sglang_install_source"], 1),
    "torch_of_another_lane": ({"sglang_torch_build": "cuda13"}, ["sglang_torch_build is cuda13 and sglang_lane is"], 1),
    "mapping_argument": ({"sglang_server_args": {"tp-size": {"a": 1}}}, ["--tp-size takes one value, not a map"], 1),
    "nan_argument": ({"sglang_server_args": {"mem-fraction-static": float("nan")}}, ["holds the number nan"], 1),
    "flag_in_a_list": ({"sglang_server_args": {"lora-paths": ["--x"]}}, ["the item '--x', which would be read"], 1),
    "second_source": ({"sglang_server_args": {"config": "/a.yml"}}, ["write them into sglang_server_args"], 1),
    "name_with_equals": ({"sglang_benchmark_env": {"A=B": "1"}}, ["sglang_benchmark_env: 'A=B' is no name"], 1),
    "value_of_two_lines": ({"sglang_benchmark_env": {"A": "1\n2"}}, ["the value of A holds a line end"], 1),
    "misspelt_short_name": ({"bakend": "triton"}, [], 0),
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
def short() -> Iterator[Path]:
    """A directory with a short path: a socket's path below a host's root has little room, and pytest's says a lot."""
    with tempfile.TemporaryDirectory(prefix="pf-") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def outcome(
    tmp_path_factory: pytest.TempPathFactory, short: Path, port: int
) -> tuple[Path, dict[str, dict[str, Any]], str]:
    """The directory with the roots, each host's failed result (empty: passed), and all that was printed."""
    base = short / "p"
    base.mkdir()
    facts = tmp_path_factory.mktemp("facts")
    for name, content in (("newer", '{"schema_version": 99}'), ("damaged", "{")):
        (facts / name).mkdir()
        (facts / name / "sglang.fact").write_text(content)
    requests = {**REQUESTS, "port_in_use": ({"sglang_port": port}, [], 1)}
    shared = {**GOOD, "base": str(facts)}
    hosts = {name: {**shared, "sglang_root": str(base / name), **own} for name, (own, _p, _n) in requests.items()}
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
        [
            str(Path(sys.executable).parent / "ansible-playbook"),
            "--forks=16",
            f"--inventory={base / 'hosts.yml'}",
            str(base / "play.yml"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "ANSIBLE_INJECT_FACT_VARS": "false", **MACHINE},
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


def test_warnings_are_printed_and_stop_nothing(
    outcome: tuple[Path, dict[str, dict[str, Any]], str],
) -> None:
    printed = " ".join(outcome[2].split())
    assert "variables: bakend is no variable of this collection" in printed
    assert "did you mean backend?" in printed
    assert "damaged/sglang.fact: not JSON" in printed


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
