# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program that the unit runs: alone in a folder with the files it imports, with nothing of Ansible."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

COLLECTION = Path(__file__).resolve().parents[3]
ROLE = COLLECTION / "roles/host_tuning"
CORES = COLLECTION / "plugins/module_utils"
PACKAGE = "ansible_collections.tokforge.sglang.plugins.module_utils"
GPU, PORT = "0000:43:00.0", "0000:40:01.1"


def imports(path: Path) -> set[str]:
    """Names of the cores that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
            found.add((node.module or "").rsplit(".", 1)[1])
    return found


def copied() -> list[str]:
    values = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    names: list[str] = values["__host_tuning_cores"]
    return names


class Host:
    """The folder as the role makes it, and a machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "lib").mkdir()
        for path in [ROLE / "files/apply.py", *(CORES / name for name in copied())]:
            (root / "lib" / path.name).write_bytes(path.read_bytes())
        for number in (0, 1):
            for name, text in {
                "affected_cpus": str(number),
                "scaling_driver": "acpi-cpufreq",
                "scaling_governor": "schedutil",
                "scaling_available_governors": "performance schedutil",
            }.items():
                path = root / f"cpu/cpufreq/policy{number}/{name}"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{text}\n")
        self.device(PORT, "pci0000:40", 0x1022, "0x060400", 0x1D)
        self.device(GPU, f"pci0000:40/{PORT}", 0x10DE, "0x030000", None)

    def device(self, address: str, parent: str, vendor: int, kind: str, control: int | None) -> None:
        data = bytearray(4096)
        data[0:4] = vendor.to_bytes(2, "little") + b"\x12\x34"
        data[6], data[0x34] = 0x10, 0x60
        data[0x60:0x70] = bytes.fromhex("10000200018000001028090000000000")
        if control is not None:
            data[0x100:0x108] = (0x1000D).to_bytes(4, "little") + b"\x5f\x00" + control.to_bytes(2, "little")
        path = self.root / "devices" / parent / address
        path.mkdir(parents=True)
        (path / "config").write_bytes(data)
        (path / "vendor").write_text(f"{vendor:#06x}\n")
        (path / "class").write_text(f"{kind}\n")
        link = self.root / "pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(path, link.parent))

    def run(self, code: int = 0, **settings: Any) -> str:
        where = {"sys_cpu": self.root / "cpu", "sys_pci": self.root / "pci", "record_dir": self.root / "record"}
        text = {"schema_version": 1, **{name: str(path) for name, path in where.items()}, **settings}
        (self.root / "settings.json").write_text(json.dumps(text))
        return self.start(str(self.root / "settings.json"), code=code)

    def start(self, *arguments: str, code: int = 0) -> str:
        # -I and no environment: nothing of this checkout can be imported.
        command = [sys.executable, "-I", "-S", str(self.root / "lib/apply.py"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env={}, cwd=self.root, check=False)
        assert (done.returncode, done.stderr) == (code, ""), done.stdout + done.stderr
        return done.stdout

    def register(self, address: str, offset: int) -> int:
        data = (self.root / "pci/devices" / address / "config").read_bytes()
        return int.from_bytes(data[offset : offset + 2], "little")

    def governors(self) -> list[str]:
        return [(self.root / f"cpu/cpufreq/policy{number}/scaling_governor").read_text().strip() for number in (0, 1)]


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_role_copies_exactly_what_the_program_imports() -> None:
    needed, waiting = set(), ["cpu_frequency", "pcie_acs", "pcie_config", "previous_values"]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += imports(CORES / f"{name}.py")
    assert copied() == sorted(f"{name}.py" for name in needed)


def test_everything_is_set_and_noted_and_a_second_start_changes_nothing(host: Host) -> None:
    settings = {
        "cpu": {"governor": "performance", "energy_preference": None},
        "acs": "off",
        "read_request": {"devices": ["gpus"], "bytes": 4096},
    }
    assert host.run(**settings).splitlines() == [
        "governor performance: set",
        f"access control services of {PORT}: set",
        f"read request of {GPU}: set",
    ]
    assert host.governors() == ["performance", "performance"]
    assert (host.register(PORT, 0x106), host.register(GPU, 0x68)) == (0, 0x5810)
    notes = (host.root / "record/previous.json").read_bytes()
    assert [line.rsplit(": ", 1)[1] for line in host.run(**settings).splitlines()] == [
        "already so",
        "already",
        "already",
    ]
    assert (host.root / "record/previous.json").read_bytes() == notes


def test_what_fails_does_not_keep_the_rest_from_being_set(host: Host) -> None:
    told = host.run(
        1,
        cpu={"governor": "ondemand", "energy_preference": None},
        acs="off",
        read_request={"devices": ["0000:99:00.0", "gpus"], "bytes": 4096},
    )
    assert "ondemand" in told and "0000:99:00.0" in told and "there is no such device" in told
    assert (host.register(PORT, 0x106), host.register(GPU, 0x68)) == (0, 0x5810)
    assert host.governors() == ["schedutil", "schedutil"]


def test_gpu_of_a_virtual_machine_is_left_out_and_told(host: Host) -> None:
    host.device("0000:80:01.1", "pci0000:80", 0x1022, "0x060400", 0x1D)
    host.device("0000:81:00.0", "pci0000:80/0000:80:01.1", 0x10DE, "0x030000", None)
    (host.root / "pci/devices/0000:81:00.0/driver").symlink_to("../../drivers/vfio-pci")
    told = host.run(acs="off", read_request={"devices": ["gpus"], "bytes": 4096}).splitlines()
    assert told == [
        "access control services above 0000:81:00.0: left, a virtual machine has it",
        f"access control services of {PORT}: set",
        f"read request of {GPU}: set",
        "read request of 0000:81:00.0: given_to_vm",
    ]
    assert (host.register("0000:80:01.1", 0x106), host.register("0000:81:00.0", 0x68)) == (0x1D, 0x2810)


def test_nothing_asked_is_nothing_done(host: Host) -> None:
    assert host.run() == ""
    assert not (host.root / "record").exists()


def test_settings_that_cannot_be_used_are_told_from_settings_that_fail(host: Host) -> None:
    assert "run role host_tuning again" in host.start(code=78)
    assert "run role host_tuning again" in host.start(str(host.root / "nothing"), code=78)
    assert "schema 2 is not 1" in host.run(78, schema_version=2)
    (host.root / "settings.json").write_text("[]")
    host.start(str(host.root / "settings.json"), code=78)


def test_program_waits_for_the_driver_of_cpu_frequencies(
    host: Host, monkeypatch: pytest.MonkeyPatch, load: Callable[[Path], Any]
) -> None:
    apply = load(host.root / "lib/apply.py")
    hidden = host.root / "cpu/later"
    (host.root / "cpu/cpufreq").rename(hidden)
    monkeypatch.setattr(apply.time, "sleep", lambda _seconds: hidden.rename(host.root / "cpu/cpufreq"))
    where = {"sys_cpu": str(host.root / "cpu"), "sys_pci": "", "record_dir": str(host.root / "record")}
    assert apply.apply({**where, "cpu": {"governor": "performance"}}) == []
    assert host.governors() == ["performance", "performance"]
    (host.root / "cpu/cpufreq").rename(hidden)
    failed = apply.apply({**where, "cpu": {"governor": "performance"}}, wait_s=0)
    assert len(failed) == 1 and "no driver of this kernel" in failed[0]


@pytest.fixture
def load() -> Callable[[Path], Any]:
    """Imports a file under a name of its own; the collection is there already, so it uses that one's cores."""

    def loaded(path: Path) -> Any:
        spec = importlib.util.spec_from_file_location("host_tuning_apply", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return loaded
