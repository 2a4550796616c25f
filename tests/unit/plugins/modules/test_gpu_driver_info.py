# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules of the driver: what they look at themselves, and that Ansible can run them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils.driver_plan import DriverError
from ansible_collections.tokforge.sglang.plugins.modules import gpu_driver_info

MODULES = "ansible_collections.tokforge.sglang.plugins.modules"
KERNEL = "6.8.12-4-pve"
HOST: dict[str, Any] = {
    "kind": "machine",
    "os": "debian",
    "os_version": "12",
    "kernel": KERNEL,
    "next_kernel": KERNEL,
    "headers": [{"release": KERNEL, "present": True, "package": f"proxmox-headers-{KERNEL}"}],
    "gpus": [
        {
            "address": "0000:01:00.0",
            "device_id": "2bb1",
            "architecture": "blackwell",
            "needs_open_module": True,
            "can_open_module": True,
            "driver": "",
        }
    ],
    "driver": {"loaded_version": "", "loaded_kind": "", "nouveau_loaded": True},
}
CONTAINER = {
    **HOST,
    "kind": "container",
    "driver": {"loaded_version": "580.95.05", "loaded_kind": "open", "nouveau_loaded": False},
}
DKMS = f"nvidia/580.95.05, {KERNEL}, x86_64: installed\n"


def settle(tmp_path: Path, dpkg: str = "", dkms: str = DKMS, modinfo: str = "", **given: Any) -> dict[str, Any]:
    def run(command: Sequence[str]) -> tuple[int, str, str]:
        return 0, {"dkms": dkms, "modinfo": modinfo}.get(command[0], dpkg), ""

    params = {
        "host": HOST,
        "version": "580.95.05",
        "source": "repository",
        "kernel_module": "auto",
        "install_headers": True,
        "expect": "nothing",
        "kernel": "",
        "next_kernel": "",
        "modprobe_file": str(tmp_path / "nouveau.conf"),
        "boot_dir": str(tmp_path),
        "uninstaller": str(tmp_path / "nvidia-uninstall"),
        "library_dirs": [str(tmp_path)],
        "unit_dirs": [str(tmp_path)],
        "systemd_run": str(tmp_path),
        "architecture": "x86_64",
        **given,
    }
    return gpu_driver_info.settle(params, run)


def test_plan_of_a_bare_machine(tmp_path: Path) -> None:
    told = settle(tmp_path)
    assert told["packages"] == ["nvidia-kernel-open-dkms=580.95.05-*", "nvidia-driver-cuda=580.95.05-*"]
    assert (told["kernel_module"], told["changes"], told["headers"], told["skipped"]) == ("open", True, [], [])
    assert told["pending_reboot"][0].startswith("nouveau is loaded")
    assert "Pin: version 580.95.05-*" in told["preferences"]


def test_installed_libraries_of_another_version_are_to_come_along(tmp_path: Path) -> None:
    dpkg = "ii \tlibcuda1\t580.82.07-1\nii \tnvidia-driver-cuda\t580.82.07-1\n"
    told = settle(tmp_path, dpkg)
    assert told["also"] == ["libcuda1=580.95.05-*"]
    assert told["other_versions"] == {"libcuda1": "580.82.07-1", "nvidia-driver-cuda": "580.82.07-1"}


def test_module_must_be_built_for_what_is_expected(tmp_path: Path) -> None:
    settle(tmp_path, expect="built", next_kernel=KERNEL)
    with pytest.raises(DriverError, match="DKMS has none"):
        settle(tmp_path, dkms="", expect="built")
    with pytest.raises(DriverError, match="was to start next"):
        settle(tmp_path, expect="built", next_kernel="6.8.12-3-pve")


def test_loaded_module_is_what_counts_after_a_reboot(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="nouveau is loaded"):
        settle(tmp_path, expect="running")
    host = {**HOST, "driver": {"loaded_version": "580.95.05", "loaded_kind": "open", "nouveau_loaded": False}}
    assert settle(tmp_path, host=host, expect="running", next_kernel=KERNEL)["pending_reboot"] == []
    with pytest.raises(DriverError, match=r"expected was 6\.8\.12-5-pve"):
        settle(tmp_path, host=host, expect="running", kernel=KERNEL, next_kernel="6.8.12-5-pve")


def test_driver_of_others_is_only_looked_at(tmp_path: Path) -> None:
    host = {**HOST, "driver": {"loaded_version": "570.1.2", "loaded_kind": "closed", "nouveau_loaded": False}}
    told = settle(tmp_path, host=host, source="none", version="", dkms="", expect="running")
    assert (told["packages"], told["pending_reboot"]) == ([], [])


def test_container_with_other_libraries_is_refused_after_the_fact(tmp_path: Path) -> None:
    good = "ii \tnvidia-driver-cuda\t580.95.05-1\nii \tlibcuda1\t580.95.05-1\n"
    told = settle(tmp_path, good, host=CONTAINER, version="", expect="running")
    assert (told["version"], told["pending_reboot"], told["persistence"]) == ("580.95.05", [], False)
    with pytest.raises(DriverError, match=r"580\.82\.07 is installed"):
        settle(tmp_path, good.replace("580.95.05", "580.82.07"), host=CONTAINER, version="", expect="running")


def test_driver_of_a_run_file_is_found_by_its_uninstaller_and_library(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.580.95.05").touch()
    assert settle(tmp_path)["installed_runfile"] == ""
    (tmp_path / "nvidia-uninstall").touch()
    assert settle(tmp_path, source="runfile")["installed_runfile"] == "580.95.05"
    assert settle(tmp_path, source="runfile")["changes"] is False
    assert settle(tmp_path, source="runfile", modinfo="Dual MIT/GPL\n")["changes"] is False
    assert settle(tmp_path, source="runfile", modinfo="NVIDIA\n")["changes"] is True
    with pytest.raises(DriverError, match=r"\.run file has installed"):
        settle(tmp_path)


def test_initial_ram_disk_that_is_older_than_our_file_is_due(tmp_path: Path) -> None:
    image, conf = tmp_path / f"initrd.img-{KERNEL}", tmp_path / "nouveau.conf"
    image.touch()
    assert settle(tmp_path)["initramfs_due"] is False
    conf.touch()
    os.utime(conf, (2000, 2000))
    os.utime(image, (1000, 1000))
    assert settle(tmp_path)["initramfs_due"] is True
    os.utime(image, (3000, 3000))
    assert settle(tmp_path)["initramfs_due"] is False


def test_persistence_daemon_is_skipped_with_a_reason(tmp_path: Path) -> None:
    told = settle(tmp_path, expect="built")
    assert (told["persistence"], told["skipped"][0]["what"]) == (False, "persistence daemon")
    assert "no systemd unit" in told["skipped"][0]["why"]
    assert "systemd does not run" in settle(tmp_path, expect="built", systemd_run="/nowhere")["skipped"][0]["why"]
    (tmp_path / "nvidia-persistenced.service").touch()
    told = settle(tmp_path, expect="built")
    assert (told["persistence"], told["skipped"]) == (True, [])


def ansible(module: str, path: Path, **params: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", f"{MODULES}.{module}"],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {"_ansible_check_mode": True, "_ansible_diff": True, **params}}),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"},
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if answer.get("failed") else 0), done.stderr
    return answer


def program(path: Path, name: str, text: str) -> None:
    (path / name).write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
    (path / name).chmod(0o755)


def test_modules_run_under_ansible(tmp_path: Path) -> None:
    line = "Inst linux-image-amd64 (6.1.1-1 Debian:12 [amd64])\n"
    text = f"0 upgraded, 1 newly installed, 0 to remove and 0 not upgraded.\n{line}"
    for name, says in (("apt-get", text), ("dpkg-query", ""), ("apt-cache", ""), ("apt-mark", "")):
        program(tmp_path, name, says)
    told = ansible("apt_simulation_info", tmp_path, packages=["x"])
    assert (told["installs"][0]["name"], told["changes"], told["changed"]) == ("linux-image-amd64", True, False)
    told = ansible("apt_simulation_info", tmp_path, packages=["x"], refuse=["kernel"])
    assert (told["failed"], told["refused"]) == (True, {"kernel": ["linux-image-amd64"]})
    told = ansible("apt_transaction", tmp_path, owner="x", packages=["x"], record_dir=str(tmp_path / "record"))
    assert (told["changed"], told["diff"]["after"]) == (True, "linux-image-amd64 6.1.1-1\n")
    told = ansible("gpu_driver_info", tmp_path, host=HOST, version="580.95.05", architecture="x86_64")
    assert told["repository_key_file"] == "3bf863cc.pub"
    told = ansible("gpu_driver_info", tmp_path, host={"kind": "machine"}, version="580.95.05")
    assert told["msg"].startswith("reading host: it has no")
