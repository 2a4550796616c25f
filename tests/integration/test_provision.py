# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What provision.yml refuses before it touches a host. molecule/lxc runs what it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
LOCAL = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}


def provision(directory: Path, groups: dict[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it on hosts that all are this machine, taken for what the inventory says."""
    inventory = directory / "hosts.json"
    inventory.write_text(
        json.dumps(
            {
                name: {"hosts": {host: {**LOCAL, **given} for host, given in hosts.items()}}
                for name, hosts in groups.items()
            }
        )
    )
    environment = {
        **os.environ,
        "ANSIBLE_CONFIG": str(CHECKOUT / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
        "COLUMNS": "500",
    }
    playbook = str(Path(sys.executable).with_name("ansible-playbook"))
    return subprocess.run(
        [playbook, "-i", str(inventory), str(CHECKOUT / "provision.yml"), *arguments],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    """All it printed, in one line."""
    return " ".join((done.stdout + done.stderr).split())


def test_hosts_that_do_not_fit_the_inventory_are_left_alone_and_told_apart(tmp_path: Path) -> None:
    container = {"provision_host_kind": "container"}
    done = provision(
        tmp_path,
        {
            "sglang": {
                "alone": container,
                "stray": {**container, "lxc_container": {"hypervisor": "elsewhere", "id": 101}},
                "nested": {**container, "lxc_container": {"hypervisor": "alone", "id": 102}},
                "bare": {"provision_host_kind": "machine", "lxc_container": {"hypervisor": "alone", "id": 103}},
            },
            "hypervisors": {},
        },
    )
    assert done.returncode != 0
    text = said(done)
    assert "elsewhere, the hypervisor of stray, is not among the hosts of this play" in text
    assert "alone, the hypervisor of nested, is itself a container" in text
    assert "calls bare a container (lxc_container) and it runs a kernel of its own" in text
    assert "provision_without_hypervisor=true" in text
    assert "changed=0" in text and "changed=1" not in text


@pytest.mark.parametrize("value", ["yes", "now"])
def test_reboot_is_asked_for_in_words_that_exist(tmp_path: Path, value: str) -> None:
    machine = {"provision_host_kind": "machine"}
    done = provision(tmp_path, {"sglang": {"bare": machine}, "hypervisors": {}}, "-e", f"provision_reboot={value}")
    assert done.returncode != 0
    assert f"provision_reboot is {value}; give forbidden, later or allowed" in said(done)
