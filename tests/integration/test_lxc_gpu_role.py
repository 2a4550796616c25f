# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role lxc_gpu through ansible-playbook, on a hypervisor that is a directory with real device nodes.

Proxmox VE and LXC are stand-ins: they check their arguments, and a start gives a container the nodes and the CPUs that
its configuration says.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import jinja2
import pytest
from full_only import IN_FULL
from hypervisor import FIXTURES, ROOT, Hypervisor

PVE = (FIXTURES / "pve9.conf").read_text()
UVM = "/dev/nvidia-uvm"


@pytest.fixture
def hypervisor(tmp_path: Path) -> Hypervisor:
    try:
        os.mknod(tmp_path / "try", 0o600 | stat.S_IFCHR, os.makedev(195, 0))
    except OSError as error:
        pytest.skip(f"device nodes cannot be made here: {error.strerror}")
    return Hypervisor(tmp_path)


def number(path: Path) -> tuple[int, int]:
    status = path.lstat()
    assert stat.S_ISCHR(status.st_mode)
    return os.major(status.st_rdev), os.minor(status.st_rdev)


@IN_FULL
def test_proxmox_container_gets_gpus_when_it_is_restarted_and_loses_them_again(hypervisor: Hypervisor) -> None:
    plain = PVE.replace("dev0: /dev/dri/renderD128,gid=104\n", "")
    running, stopped = hypervisor.container("101", plain), hypervisor.container("102", plain)
    hypervisor.started("101")
    first = {"id": "101", "gpus": [0], "numa": "gpus", "config": str(running)}
    both = [first, {"id": "102", "config": str(stopped)}]
    hypervisor.variables["lxc_gpu_containers"] = [first]

    told, written, again, restarted = hypervisor.play(
        {"check": True}, {"lxc_gpu_containers": both}, {}, {"entry": "restart"}
    )
    assert [one["id"] for one in told["pending"]] == ["101"]
    assert "+dev0: /dev/nvidia0,mode=0666" in told["text"]
    # The second run knows it from the container: its own run changed nothing.
    assert (written["changed"], again["changed"], again["pending"]) == (3, 0, written["pending"])
    (pending,) = written["pending"]
    assert pending["id"] == "101" and f"{UVM} is not in it" in pending["reasons"]
    assert "it may use CPUs 0-63, and is bound to 32-63" in pending["reasons"]
    assert {"what": "checking what container 102 sees", "why": "it does not run"} in written["skipped"]
    assert "lxc.cgroup2.cpuset.cpus: 32-63\nlxc.cgroup2.cpuset.mems: 1\n" in running.read_text()
    assert (restarted["failed"], restarted["pending"], restarted["changed"]) == ("", [], 1)
    assert hypervisor.calls("pct").count(["reboot", "101", "--timeout", "5"]) == 1
    inside = hypervisor.inside("101")
    assert number(inside / "dev/nvidia0") == (195, 0) and number(inside / "dev/nvidia-uvm") == (511, 0)
    assert not (inside / "dev/nvidia1").exists()

    # A driver that was loaded anew has another number: the file stays, and the container must be restarted.
    hypervisor.drivers("uvm506", 506)
    assert hypervisor.play({"lxc_gpu_restart": "if_needed"})[0]["failed"] == ""
    assert number(hypervisor.inside("101") / "dev/nvidia-uvm") == (506, 0)
    assert hypervisor.calls("pct").count(["reboot", "101", "--timeout", "5"]) == 2

    absent = {"lxc_gpu_state": "absent", "lxc_gpu_restart": "if_needed"}
    gone, still = hypervisor.play(absent, absent)
    assert (running.read_text(), gone["failed"]) == (plain, "")
    assert (still["changed"], still["pending"]) == (0, [])
    assert not list((hypervisor.inside("101")).glob("dev/nvidia*"))
    # What does not run is never started.
    assert not [one for one in hypervisor.calls("pct") if "102" in one and one[0] != "status"]


def test_check_mode_of_a_host_without_driver_predicts_no_entries(hypervisor: Hypervisor) -> None:
    shutil.rmtree(hypervisor.root / "dev")
    config = hypervisor.container("101", PVE)
    hypervisor.variables["lxc_gpu_containers"] = [{"id": "101", "config": str(config)}]
    (said,) = hypervisor.play({"check": True})
    assert (said["failed"], said["changed"], said["pending"]) == ("", 0, [])
    assert {
        "what": "predicting the entries of container 101",
        "why": "the driver is not loaded yet, so its device nodes are not there",
    } in said["skipped"]


def test_container_that_still_lacks_a_node_after_its_restart_is_a_failure(hypervisor: Hypervisor) -> None:
    config = hypervisor.container("101", PVE.replace("dev0: /dev/dri/renderD128,gid=104\n", ""))
    hypervisor.started("101")
    (hypervisor.root / "broken/101").write_text(UVM)
    hypervisor.variables["lxc_gpu_containers"] = [{"id": "101", "config": str(config), "form": "raw"}]
    (said,) = hypervisor.play({"lxc_gpu_restart": "if_needed"})
    assert f"checking container 101 after its restart: {UVM} is not in it; look at its log" in said["failed"]
    assert said["pending"][0]["id"] == "101"


@IN_FULL
def test_plain_lxc_container_that_a_killed_restart_left_stopped_is_started(hypervisor: Hypervisor) -> None:
    hypervisor.container("sglang", (FIXTURES / "plain.config").read_text())
    hypervisor.started("sglang")
    hypervisor.variables |= {
        "lxc_gpu_tool": "lxc",
        "lxc_gpu_containers": [{"id": "sglang"}],
        "lxc_gpu_restart": "if_needed",
    }
    stuck = hypervisor.root / "stuck/sglang"
    stuck.touch()
    (failed,) = hypervisor.play({})
    assert "lxc-start -n sglang" in failed["failed"] and "startup for container 'sglang' failed" in failed["failed"]
    stuck.unlink()
    (finished,) = hypervisor.play({})
    assert (finished["failed"], finished["pending"]) == ("", [])
    assert number(hypervisor.inside("sglang") / "dev/nvidia1") == (195, 1)
    lxc_path = str(hypervisor.root / "lxc")
    assert hypervisor.calls("lxc-stop") == [["-n", "sglang", "-P", lxc_path, "-t", "5"]]
    assert hypervisor.calls("lxc-start")[-1] == ["-n", "sglang", "-P", lxc_path, "-d"]


# molecule lxc has the same.
@IN_FULL
def test_container_that_ended_with_its_machine_is_started_once_and_one_that_came_back_is_restarted(
    hypervisor: Hypervisor,
) -> None:
    names = ["comes-back", "stays-down"]
    for name in names:
        hypervisor.container(name, (FIXTURES / "plain.config").read_text())
        hypervisor.started(name)
    hypervisor.variables |= {"lxc_gpu_tool": "lxc", "lxc_gpu_containers": [{"id": name} for name in names]}
    assert hypervisor.play({"entry": "before_reboot"})[0]["changed"] == 0
    for name in names:
        assert hypervisor.call("lxc-stop", "-n", name).returncode == 0
    hypervisor.started("comes-back")
    before = len(hypervisor.calls("lxc-start"))

    written, started, restarted = hypervisor.play({}, {"entry": "after_reboot"}, {"entry": "restart"})
    assert [one["id"] for one in written["pending"]] == names
    assert (started["failed"], [one["id"] for one in started["pending"]]) == ("", ["comes-back"])
    assert (restarted["failed"], restarted["pending"]) == ("", [])
    assert [call[1] for call in hypervisor.calls("lxc-start")[before:]] == ["stays-down", "comes-back"]
    assert [number(hypervisor.inside(name) / "dev/nvidia1") for name in names] == [(195, 1), (195, 1)]


@pytest.mark.parametrize(
    ("tool", "cards", "containers", "before", "nodes"),
    [
        ("lxc", 2, ["a", "b"], ["lxc@a.service", "lxc@b.service"], "-c 255 -c 0 -c 1"),
        ("pct", 0, ["101"], [], "-c 255"),
    ],
)
def test_nodes_are_made_before_containers_start(
    tmp_path: Path, tool: str, cards: int, containers: list[str], before: list[str], nodes: str
) -> None:
    text = (ROOT / "roles/lxc_gpu/templates/nodes.service.j2").read_text()
    template = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True).from_string(text)  # noqa: S701
    unit = tmp_path / "tokforge-nvidia-nodes.service"
    unit.write_text(
        template.render(
            __lxc_gpu_tool=tool,
            __lxc_gpu_host_gpus=[{}] * cards,
            lxc_gpu_containers=[{"id": one} for one in containers],
            lxc_gpu_nvidia_modprobe="/usr/bin/true",
        )
    )
    lines = unit.read_text().splitlines()
    assert [line.partition("=")[2] for line in lines if line.startswith("Before=")] == [
        "pve-guests.service lxc.service",
        *before,
    ]
    assert [line for line in lines if line.startswith("ExecStart=/")] == [
        f"ExecStart=/usr/bin/true {nodes}",
        "ExecStart=/usr/bin/true -u -c 0",
    ]
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "--man=no", "verify", unit], capture_output=True, text=True, check=False
        )
        assert "tokforge-nvidia-nodes" not in done.stderr, done.stderr


def test_nothing_is_written_when_one_of_the_containers_is_named_twice_or_has_no_name(hypervisor: Hypervisor) -> None:
    config = hypervisor.container("101", PVE)
    one = {"id": 101, "config": str(config)}
    twice, odd = hypervisor.play(
        {"lxc_gpu_containers": [one, {**one, "id": "101", "gpus": [0]}]},
        {"lxc_gpu_containers": [one, {"id": "../102", "config": str(config)}]},
    )
    assert "one is named twice" in twice["failed"]
    assert "reading the container's id '../102': it is none" in odd["failed"]
    assert config.read_text() == PVE
