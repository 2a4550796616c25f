# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was asked of a host, and what is seen there.

    pytest --hosts='ansible://sglang?force_ansible=True' --ansible-inventory=inventories/local tests/verify

`force_ansible` sends every command through Ansible itself, which knows every connection plugin and resolves every
template of an inventory; testinfra's own backends know ssh, docker, lxc and local only.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

PROBE = Path(__file__).with_name("probe.py")
# Variables that say what was asked, and what holds when an inventory leaves them out (the defaults of the roles).
ASKED = {
    "sglang_root": "",
    "sglang_host": "127.0.0.1",
    "sglang_port": 30000,
    "sglang_version": "",
    "sglang_served_model_name": "",
    "sglang_facts_dir": "",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the playbook hand over what it asked; by hand the inventory tells."""
    parser.addoption("--asked", default="{}", help="JSON mapping of the variables asked, over those of the inventory")


def resolved(host: Any, names: list[str]) -> dict[str, Any]:
    """Values of inventory variables with their templates filled in; those that are not set are left out."""
    answer = host.ansible(
        "ansible.builtin.debug",
        "msg={{ query('ansible.builtin.vars', *asked_names, default='') | to_json }}",
        check=False,
        become=False,
        extra_vars={"asked_names": names},
    )
    values = answer["msg"] if isinstance(answer["msg"], list) else json.loads(answer["msg"])
    return {name: value for name, value in zip(names, values, strict=True) if value != ""}


@pytest.fixture(scope="module")
def asked(host: Any, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What was asked of this host, by variable name."""
    given: dict[str, Any] = json.loads(request.config.getoption("--asked"))
    if not given:
        given = resolved(host, list(ASKED))
    values = ASKED | {name: value for name, value in given.items() if value not in (None, "")}
    if not values["sglang_root"]:
        pytest.fail(f"sglang_root is not set for {host.backend.get_hostname()}: set it in the inventory", pytrace=False)
    values["sglang_port"] = int(values["sglang_port"])
    values["sglang_facts_dir"] = values["sglang_facts_dir"] or f"{values['sglang_root']}/facts"
    return values


@pytest.fixture(scope="module")
def first_node(seen: dict[str, Any]) -> None:
    """For what only the first node of a server has, which is every server of one host."""
    args = seen["manifest"].get("args", {})
    if args.get("node-rank"):
        pytest.skip(f"this is node {args['node-rank']} of {args.get('nnodes')}, and the first node serves")


@pytest.fixture(scope="module")
def seen(host: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """What one look from the host itself shows; see probe.py."""
    arguments = [asked[name] for name in ("sglang_root", "sglang_host", "sglang_port", "sglang_facts_dir")]
    command = " ".join(shlex.quote(str(argument)) for argument in [PROBE, *arguments])
    answer = host.ansible("ansible.builtin.script", f"{command} executable=python3", check=False, become=False)
    observed: dict[str, Any] = json.loads(answer["stdout"])
    return observed
