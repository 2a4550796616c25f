# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules of role host_tuning: what each is given, what it returns and shows, and that it runs as a program."""

from __future__ import annotations

import functools
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from module_args import patch_module_args

from ansible_collections.tokforge.sglang.plugins.module_utils import run_command

PACKAGE = "ansible_collections.tokforge.sglang.plugins.modules"
NAMES = [
    "folder_files",
    "host_tuning_info",
    "kernel_package",
    "kernel_parameter",
    "module_options",
    "pcie_acs",
    "previous_value",
    "shared_memory",
    "tuned_profile",
]

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run a module in this process; its notes are in the test's folder."""
    return functools.partial(answer_of, capsys, tmp_path)


def answer_of(
    capsys: pytest.CaptureFixture[str], folder: Path, name: str, check: bool = False, **params: Any
) -> dict[str, Any]:
    given: dict[str, Any] = {"record_dir": str(folder / "record"), **params}
    given.update(_ansible_check_mode=check, _ansible_diff=True)
    module = importlib.import_module(f"{PACKAGE}.{name}")
    with patch_module_args(given), pytest.raises(SystemExit) as ended:
        module.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert ended.value.code == (1 if answer.get("failed") else 0)
    return answer


def program(folder: Path, name: str, body: str) -> Path:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_kernel_parameter(tmp_path: Path, run: Run) -> None:
    value = tmp_path / "sys/kernel/numa_balancing"
    value.parent.mkdir(parents=True)
    value.write_text("1\n")
    where = {"proc_sys": str(tmp_path / "sys"), "file": str(tmp_path / "sysctl.d/99-tokforge-host.conf")}
    asked = {**where, "parameters": {"kernel.numa_balancing": 0}}
    predicted = run("kernel_parameter", check=True, **asked)
    assert (value.read_text(), os.path.exists(where["file"])) == ("1\n", False)
    done = run("kernel_parameter", **asked)
    assert {**done, "invocation": None} == {**predicted, "invocation": None}
    assert done["changed"] is True
    assert done["parameters"] == [{"name": "kernel.numa_balancing", "before": "1", "after": "0", "status": "set"}]
    assert done["diff"][0]["after"].endswith("kernel.numa_balancing = 0\n")
    assert (done["diff"][1]["before"], done["diff"][1]["after"]) == (
        "kernel.numa_balancing = 1\n",
        "kernel.numa_balancing = 0\n",
    )
    assert run("kernel_parameter", **asked)["changed"] is False
    assert run("kernel_parameter", **where)["changed"] is True
    assert value.read_text().strip() == "1"
    refused = run("kernel_parameter", **where, parameters={"kernel.nothing": 1})
    assert refused["failed"] and refused["name"] == "kernel.nothing"


def test_module_options(tmp_path: Path, run: Run) -> None:
    refresh = program(tmp_path, "refresh", f'echo "$*" >> {tmp_path}/calls')
    where = {"file": str(tmp_path / "d/x.conf"), "refresh_command": [str(refresh), "-u"], "sys_module": str(tmp_path)}
    asked = {**where, "options": {"nvidia_uvm": {"uvm_disable_hmm": 1}}}
    predicted = run("module_options", check=True, **asked)
    assert not (tmp_path / "calls").exists()
    done = run("module_options", **asked)
    assert {**done, "invocation": None} == {**predicted, "invocation": None}
    waits = {"module": "nvidia_uvm", "parameter": "uvm_disable_hmm", "wanted": "1", "found": "", "status": "not_loaded"}
    assert (done["changed"], done["refreshed"], done["pending"]) == (True, True, [waits])
    assert done["diff"]["before"] == "" and "options nvidia_uvm uvm_disable_hmm=1\n" in done["diff"]["after"]
    assert run("module_options", **asked)["changed"] is False
    assert (tmp_path / "calls").read_text() == "-u\n"
    refresh.write_text("#!/bin/sh\necho no space; exit 3\n")
    failed = run("module_options", **where)
    assert failed["failed"] and failed["output"] == "no space" and "it ended with 3" in failed["msg"]


def test_tuned_profile(tmp_path: Path, run: Run) -> None:
    config = tmp_path / "tuned"
    config.mkdir()
    (config / "active_profile").write_text("balanced\n")
    (config / "profile_mode").write_text("manual\n")
    adm = program(tmp_path, "tuned-adm", f'test "$1" = profile && echo "$2" > {config}/active_profile')
    systemctl = program(tmp_path, "systemctl", "echo enabled")
    where = {"tuned_adm": str(adm), "systemctl": str(systemctl), "config": str(config), "profiles": str(config)}
    assert run("tuned_profile", **where, state="noted")["before"]["profile"] == "balanced"
    predicted = run("tuned_profile", check=True, **where, governor="performance")
    assert (config / "active_profile").read_text() == "balanced\n"
    done = run("tuned_profile", **where, governor="performance")
    assert {**done, "invocation": None} == {**predicted, "invocation": None}
    assert (done["changed"], done["after"]["profile"], done["installed"]) == (True, "tokforge-host", True)
    assert "include=balanced" in done["diff"]["after"]
    assert run("tuned_profile", **where, governor="performance")["changed"] is False
    back = run("tuned_profile", **where, state="absent")
    assert (back["changed"], back["remove_package"]) == (True, False)
    assert (config / "active_profile").read_text() == "balanced\n"
    assert "all of the following are missing: governor" in run("tuned_profile", **where)["msg"]
    adm.unlink()
    assert run("tuned_profile", **where, state="absent")["installed"] is False


def test_shared_memory(tmp_path: Path, run: Run) -> None:
    refused = run("shared_memory", size="1G", fstab=str(tmp_path / "fstab"), mount_point=str(tmp_path))
    assert refused["failed"] and "nothing is mounted there" in refused["msg"]
    assert not (tmp_path / "fstab").exists()
    assert run("shared_memory", state="absent", fstab=str(tmp_path / "fstab"))["changed"] is False


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system, in a mount namespace of its own")
def test_shared_memory_of_a_real_file_system(tmp_path: Path) -> None:
    point = tmp_path / "shm"
    point.mkdir()
    given = {"fstab": str(tmp_path / "fstab"), "mount_point": str(point), "record_dir": str(tmp_path / "record")}
    asked = [{"size": "8M"}, {"size": "8M"}, {"state": "absent"}]
    lines = [f"mount -t tmpfs -o size=4M tmpfs {point}"]
    for number, more in enumerate(asked):
        (tmp_path / f"{number}.json").write_text(json.dumps({"ANSIBLE_MODULE_ARGS": {**given, **more}}))
        lines.append(f"{sys.executable} -m {PACKAGE}.shared_memory < {tmp_path}/{number}.json; echo")
        lines.append(f"stat -f -c %b {point}")
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-ec", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "unshare" in done.stderr:
        pytest.skip("no mount namespaces here")
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line]
    assert [json.loads(line)["changed"] for line in told[::2]] == [True, False, True]
    assert told[1::2] == ["2048", "2048", "1024"]
    assert not (tmp_path / "fstab").exists()


def test_kernel_package(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "apt-mark", f'test "$1" = showhold && exit 0; echo "$*" >> {tmp_path}/calls')
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    asked = {"package": "linux-image-6.1.0-28-amd64", "pin_file": str(tmp_path / "pin")}
    assert run("kernel_package", check=True, **asked)["changed"] is True
    done = run("kernel_package", **asked)
    assert (done["changed"], done["release"]) == (True, "6.1.0-28-amd64")
    assert done["diff"]["after"] == "held: linux-image-6.1.0-28-amd64\n"
    assert (tmp_path / "calls").read_text() == "hold linux-image-6.1.0-28-amd64\n"
    assert "not the package of one kernel" in run("kernel_package", package="linux-image-amd64")["msg"]


def test_pcie_acs(tmp_path: Path, run: Run) -> None:
    data = bytearray(4096)
    data[0:4] = b"\x22\x10\x12\x34"
    data[0x100:0x108] = (0x1000D).to_bytes(4, "little") + b"\x5f\x00\x1d\x00"
    bridge = tmp_path / "devices/pci0000:40/0000:40:01.1"
    gpu = bridge / "0000:41:00.0"
    gpu.mkdir(parents=True)
    (bridge / "config").write_bytes(data)
    (gpu / "config").write_bytes(bytes(4096))
    (gpu / "vendor").write_text("0x10de\n")
    (gpu / "class").write_text("0x030200\n")
    (tmp_path / "bus/devices").mkdir(parents=True)
    for path in (bridge, gpu):
        (tmp_path / "bus/devices" / path.name).symlink_to(path)
    predicted = run("pcie_acs", check=True, sys_pci=str(tmp_path / "bus"))
    done = run("pcie_acs", sys_pci=str(tmp_path / "bus"))
    assert {**done, "invocation": None} == {**predicted, "invocation": None}
    assert (done["changed"], done["devices"]) == (True, ["0000:41:00.0"])
    assert done["bridges"] == [{"address": "0000:40:01.1", "before": "001d", "after": "0000", "status": "set"}]
    assert (done["diff"]["before"], done["diff"]["after"]) == ("0000:40:01.1: 001d\n", "0000:40:01.1: 0000\n")
    assert run("pcie_acs", state="absent", sys_pci=str(tmp_path / "bus"))["changed"] is True
    assert (bridge / "config").read_bytes() == bytes(data)
    assert run("pcie_acs", devices=["x"], sys_pci=str(tmp_path / "bus"))["device"] == "x"
    assert done["given_to_vms"] == []
    (gpu / "driver").symlink_to("../drivers/vfio-pci")
    given = run("pcie_acs", sys_pci=str(tmp_path / "bus"))
    assert (given["given_to_vms"], given["devices"], given["bridges"]) == (["0000:41:00.0"], [], [])
    paths = {"sys_pci": str(tmp_path / "bus"), "unit_directory": str(tmp_path), "proc_cpuinfo": str(tmp_path / "none")}
    asked = {"acs": "off", "pcie_read_request": 4096}
    looked = run("host_tuning_info", settings=asked, host={"kind": "machine", "kernel": "6.1.0"}, paths=paths)
    assert [each["what"] for each in looked["not_here"]] == [
        "access control services off above 0000:41:00.0",
        "PCI Express read requests of 4096 bytes of 0000:41:00.0",
    ]
    (bridge / "0000:41:00.1").mkdir()
    for name in ("vendor", "class", "config"):
        (bridge / "0000:41:00.1" / name).write_bytes((gpu / name).read_bytes())
    (tmp_path / "bus/devices/0000:41:00.1").symlink_to(bridge / "0000:41:00.1")
    shared = run("host_tuning_info", settings=asked, host={"kind": "machine", "kernel": "6.1.0"}, paths=paths)
    assert shared["failed"] and (shared["host_device"], shared["vm_device"]) == ("0000:41:00.1", "0000:41:00.0")


def test_previous_value(tmp_path: Path, run: Run) -> None:
    assert run("previous_value", check=True, values={"a": 1})["values"] == {"a": 1}
    assert not (tmp_path / "record").exists()
    run("previous_value", values={"a": 1, "b": None})
    kept = run("previous_value", values={"a": 2, "c": [3]})
    assert (kept["changed"], kept["values"]) == (False, {"a": 1, "b": None, "c": [3]})
    assert run("previous_value", state="absent", values={"a": None, "x": 1})["values"] == {"b": None, "c": [3]}
    (tmp_path / "record/previous.json").write_text("{")
    assert "not JSON" in run("previous_value", values={"a": 1})["msg"]


def test_folder_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"{PACKAGE}.folder_files")

    def run_it(check: bool = False, **files: str) -> dict[str, Any]:
        given = {"path": str(tmp_path / "lib"), "files": files, "_ansible_check_mode": check}
        with patch_module_args(given), pytest.raises(SystemExit):
            module.main()
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    texts = {"b.py": "x = '{{ y }}'", "a.py": "1\n"}
    assert run_it(check=True, **texts)["written"] == ["a.py", "b.py"]
    assert not (tmp_path / "lib").exists()
    assert run_it(**texts)["changed"] is True
    assert (tmp_path / "lib/b.py").read_text() == "x = '{{ y }}'\n"
    assert run_it(**texts)["changed"] is False
    (tmp_path / "lib/other").write_text("x")
    changed = run_it(**{**texts, "a.py": "2"})
    assert changed["written"] == ["a.py"] and changed["diff"][0]["before"] == "1\n"
    assert (tmp_path / "lib/other").exists()
    assert "this is no name of a file" in run_it(**{"../x": "1"})["msg"]
    (tmp_path / "lib/a.py").unlink()
    (tmp_path / "lib/a.py").mkdir()
    assert "make it a folder" in run_it(**texts)["msg"]


def test_host_tuning_info(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    value = tmp_path / "sys/kernel/numa_balancing"
    value.parent.mkdir(parents=True)
    value.write_text("1\n")
    names = ("sys_cpu", "sys_pci", "sys_module", "proc_cmdline", "proc_cpuinfo", "modprobe_file", "unit_directory")
    paths = {"proc_sys": str(tmp_path / "sys"), **{name: str(tmp_path / "none") for name in names}}
    host = {"kind": "machine", "kernel": "6.1.0", "container": "", "proxmox": ""}
    settings = {"sysctl": {"kernel.numa_balancing": 0}, "kernel_options": ["nosmt"]}
    answer = run("host_tuning_info", settings=settings, host=host, paths=paths, still=["iommu=pt"])
    assert answer["changed"] is False and answer["boot"] == {} and answer["not_here"] == []
    assert answer["steps"]["sysctl"] == {"do": "set", "parameters": {"kernel.numa_balancing": 0}}
    assert answer["wrong"] == ["kernel.numa_balancing: wanted 0, found 1"]
    assert answer["pending"] == [
        "kernel command line: wanted nosmt, found ",
        "kernel command line: the running kernel still has iommu=pt",
    ]
    later = run("host_tuning_info", settings=settings, host=host, paths=paths, after_reboot=True)
    assert (len(later["wrong"]), later["pending"]) == (2, [])
    inside = run("host_tuning_info", settings=settings, host={**host, "kind": "container"}, paths=paths)
    assert (len(inside["not_here"]), inside["wrong"]) == (2, [])
    refused = run("host_tuning_info", settings={"iommu": "pt"}, host=host, paths=paths)
    assert refused["failed"] and refused["vendor"] == ""
    monkeypatch.setattr(run_command, "run", lambda _command: (0, "tuned:\n  Candidate: 2.20.0-1\n"))
    module = importlib.import_module(f"{PACKAGE}.host_tuning_info")
    assert module.apt_has_tuned() is True
    monkeypatch.setattr(run_command, "run", lambda _command: (0, "tuned:\n  Candidate: (none)\n"))
    assert module.apt_has_tuned() is False


def test_command_that_cannot_be_run_is_a_status(tmp_path: Path) -> None:
    status, output = run_command.run([str(tmp_path / "none")])
    assert status == 127 and "No such file" in output
    assert run_command.run(["sh", "-c", "echo $LC_ALL; echo err >&2; exit 3"]) == (3, "C\nerr\n")


@pytest.mark.parametrize("name", NAMES)
def test_documentation_names_the_arguments_of_the_module(name: str) -> None:
    yaml = pytest.importorskip("yaml")
    module = importlib.import_module(f"{PACKAGE}.{name}")
    documented = yaml.safe_load(module.DOCUMENTATION)
    assert documented["module"] == name
    assert yaml.safe_load(module.EXAMPLES) and yaml.safe_load(module.RETURN)


def test_folder_files_go_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(f"{PACKAGE}.folder_files")
    folder = tmp_path / "lib"

    def gone(check: bool = False, **files: str) -> dict[str, Any]:
        given = {"path": str(folder), "files": files, "state": "absent", "_ansible_check_mode": check}
        with patch_module_args(given), pytest.raises(SystemExit):
            module.main()
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    names = {"a.py": "", "b.py": "", "settings.json": ""}
    assert gone(**names)["changed"] is False
    cache = folder / "__pycache__"
    cache.mkdir(parents=True)
    for path in (folder / "a.py", folder / "settings.json", folder / "other", cache / "a.cpython-311.pyc"):
        path.write_text("x\n")
    told = gone(check=True, **names)
    assert (told["changed"], told["removed"], (folder / "a.py").exists()) == (True, ["a.py", "settings.json"], True)
    assert gone(**names)["diff"][0]["before"] == "x\n"
    assert sorted(path.name for path in folder.iterdir()) == ["other"]
    assert gone(check=True, **names)["changed"] is False and gone(**names)["changed"] is False
    (folder / "other").unlink()
    assert gone(check=True, **names)["changed"] is True and gone(**names)["changed"] is True
    assert not folder.exists()
    assert "this is no name of a file" in gone(**{"../x": ""})["msg"]


def test_host_tuning_info_tells_units_of_earlier_names_and_refuses_those_of_others(tmp_path: Path, run: Run) -> None:
    run("previous_value", values={"host_tuning_unit/earlier": True, "host_tuning_unit/now": True})
    host = {"kind": "machine", "kernel": "6.1.0"}
    asked = {"host": host, "paths": {"unit_directory": str(tmp_path / "units")}, "unit": "now"}
    assert run("host_tuning_info", **asked)["earlier_units"] == ["earlier"]
    (tmp_path / "units").mkdir()
    (tmp_path / "units/earlier.service").write_text("[Unit]\n")
    refused = run("host_tuning_info", **asked)
    assert refused["failed"] and refused["path"].endswith("units/earlier.service")


def test_host_tuning_info_refuses_files_of_others(tmp_path: Path, run: Run) -> None:
    names = ("sys_cpu", "sys_pci", "sys_module", "proc_sys", "proc_cmdline", "proc_cpuinfo", "modprobe_file")
    paths = {name: str(tmp_path / "none") for name in names}
    paths.update({name: str(tmp_path / name) for name in ("sysctl_file", "limits_file", "unit_directory")})
    host = {"kind": "machine", "kernel": "6.1.0", "container": "", "proxmox": ""}
    assert run("host_tuning_info", host=host, paths=paths)["steps"]["sysctl"]["do"] == "leave"
    own = "# Written by tokforge.sglang, role host_tuning. Changes made here are lost.\n"
    (tmp_path / "sysctl_file").write_text(own)
    assert run("host_tuning_info", host=host, paths=paths)["steps"]["sysctl"]["do"] == "restore"
    (tmp_path / "unit_directory").mkdir()
    for file in ("sysctl_file", "limits_file", "unit_directory/tokforge-host.service"):
        (tmp_path / file).write_text("# of somebody else\n")
        told = run("host_tuning_info", host=host, paths=paths)
        assert "was not written by this collection" in told["msg"] and told["path"] == str(tmp_path / file)
        (tmp_path / file).write_text(own)
    assert "this is no name" in run("host_tuning_info", host=host, paths=paths, unit="../x")["msg"]
