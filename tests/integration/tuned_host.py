# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host to tune that is a folder: the kernel's files as plain files, and programs that note what they were asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
GPU, OTHER = "0000:42:00.0", "0000:81:00.0"
ROOT_PORT, UP, DOWN, APART = "0000:40:01.1", "0000:41:00.0", "0000:41:00.1", "0000:80:01.1"
CMDLINE = "BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro quiet"


def express(vendor: int, device: int, control: int | None) -> bytes:
    """A configuration space with a read request of 512 bytes, and access control of `control` where it has that."""
    data = bytearray(4096)
    data[0:4] = vendor.to_bytes(2, "little") + device.to_bytes(2, "little")
    data[6] = 0x10
    data[0x34] = 0x60
    data[0x60:0x70] = bytes.fromhex("10000200018000001028090000000000")
    if control is not None:
        data[0x100:0x108] = (0x0001000D).to_bytes(4, "little") + b"\x5f\x00" + control.to_bytes(2, "little")
    return bytes(data)


class TunedHost:
    """The folder, and the role run on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in (
            "etc/default",
            "etc/sysctl.d",
            "etc/modprobe.d",
            "etc/security/limits.d",
            "proc/sys/kernel",
            "boot",
        ):
            (root / name).mkdir(parents=True)
        for name in ("proc/sys/vm", "sys/module", "etc/systemd/system", "usr/lib", "record", "log"):
            (root / name).mkdir(parents=True)
        self.put("etc/os-release", 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n')
        self.put("etc/default/grub", 'GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n')
        self.put("proc/sys/kernel/numa_balancing", "1\n")
        self.put("proc/sys/vm/nr_hugepages", "0\n")
        self.put("proc/cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD\n")
        self.put("proc/cmdline", f"{CMDLINE}\n")
        for number in (0, 1):
            self.policy(number)
        for address, parent, vendor, kind, control in (
            (ROOT_PORT, "pci0000:40", 0x1022, "0x060400", 0x1D),
            (UP, f"pci0000:40/{ROOT_PORT}", 0x1000, "0x060400", None),
            (DOWN, f"pci0000:40/{ROOT_PORT}/{UP}", 0x1000, "0x060400", 0x5D),
            (GPU, f"pci0000:40/{ROOT_PORT}/{UP}/{DOWN}", 0x10DE, "0x030000", None),
            (APART, "pci0000:80", 0x1022, "0x060400", 0x1D),
            (OTHER, f"pci0000:80/{APART}", 0x15B3, "0x020000", None),
        ):
            self.device(address, parent, vendor, kind, control)
        self.program("update-initramfs")
        self.program("update-grub")

    def put(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def get(self, name: str) -> str:
        return (self.root / name).read_text()

    def policy(self, number: int) -> None:
        folder = f"sys/devices/system/cpu/cpufreq/policy{number}"
        for name, text in {
            "affected_cpus": str(number),
            "related_cpus": str(number),
            "scaling_driver": "acpi-cpufreq",
            "scaling_governor": "schedutil",
            "scaling_available_governors": "performance schedutil",
        }.items():
            self.put(f"{folder}/{name}", f"{text}\n")

    def governors(self) -> list[str]:
        paths = sorted(self.root.glob("sys/devices/system/cpu/cpufreq/policy*/scaling_governor"))
        return [path.read_text().strip() for path in paths]

    def device(self, address: str, parent: str, vendor: int, kind: str, control: int | None) -> None:
        folder = self.root / "sys/devices" / parent / address
        folder.mkdir(parents=True)
        (folder / "config").write_bytes(express(vendor, 0x2BB5, control))
        (folder / "vendor").write_text(f"{vendor:#06x}\n")
        (folder / "device").write_text("0x2bb5\n")
        (folder / "class").write_text(f"{kind}\n")
        link = self.root / "sys/bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(folder, link.parent))

    def config(self, address: str) -> bytes:
        return (self.root / "sys/bus/pci/devices" / address / "config").read_bytes()

    def access_control(self, address: str) -> int:
        return int.from_bytes(self.config(address)[0x106:0x108], "little")

    def program(self, name: str, status: int = 0) -> Path:
        path = self.put(f"bin/{name}", f'#!/bin/sh\necho "$0 $*" >> {self.root}/log/calls\nexit {status}\n')
        path.chmod(0o755)
        return path

    def calls(self) -> list[str]:
        """Programs that ran since this was asked last."""
        path = self.root / "log/calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [line.removeprefix(f"{self.root}/bin/") for line in lines]

    def notes(self) -> dict[str, Any]:
        path = self.root / "record/previous.json"
        values: dict[str, Any] = json.loads(path.read_text())["values"] if path.exists() else {}
        return values

    def snapshot(self) -> dict[str, bytes]:
        """Every file of the host, but for our notes and the log of calls."""
        ours = (self.root / "record", self.root / "log")
        files = [path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink()]
        return {
            str(path.relative_to(self.root)): path.read_bytes() for path in files if not set(ours) & set(path.parents)
        }

    def variables(self) -> dict[str, Any]:
        root = str(self.root)
        return {
            "host_tuning_host_kind": "machine",
            "host_tuning_cpu_manager": "unit",
            "host_tuning_boot_loader": "grub",
            "host_tuning_root": root,
            "host_tuning_record_dir": f"{root}/record",
            "host_tuning_directory": f"{root}/usr/lib/tokforge-host",
            "host_tuning_unit_directory": f"{root}/etc/systemd/system",
            "host_tuning_manage_units": False,
            "host_tuning_sys_cpu": f"{root}/sys/devices/system/cpu",
            "host_tuning_sys_pci": f"{root}/sys/bus/pci",
            "host_tuning_sys_module": f"{root}/sys/module",
            "host_tuning_proc_sys": f"{root}/proc/sys",
            "host_tuning_proc_cmdline": f"{root}/proc/cmdline",
            "host_tuning_sysctl_file": f"{root}/etc/sysctl.d/99-tokforge-host.conf",
            "host_tuning_modprobe_file": f"{root}/etc/modprobe.d/tokforge-host.conf",
            "host_tuning_initramfs_command": [f"{root}/bin/update-initramfs", "-u"],
            "host_tuning_grub_default": f"{root}/etc/default/grub",
            "host_tuning_grub_directory": f"{root}/etc/default/grub.d",
            "host_tuning_cmdline_file": f"{root}/etc/kernel/cmdline",
            "host_tuning_refresh_command": [f"{root}/bin/update-grub"],
            "host_tuning_limits_file": f"{root}/etc/security/limits.d/tokforge-host.conf",
            "host_tuning_fstab": f"{root}/etc/fstab",
            "host_tuning_shm": f"{root}/shm",
            "host_tuning_tuned_adm": f"{root}/bin/tuned-adm",
            "host_tuning_tuned_config": f"{root}/etc/tuned",
        }


class Answer:
    """What a play did: whether it failed, how many tasks changed something, the facts it set, all it said."""

    def __init__(self, done: subprocess.CompletedProcess[str], facts: dict[str, Any]) -> None:
        self.failed = done.returncode != 0
        self.text = " ".join((done.stdout + done.stderr).split())
        recap = done.stdout.rsplit("changed=", 1)
        self.changed = int(recap[1].split()[0]) if len(recap) > 1 else -1
        self.skipped: list[dict[str, str]] = facts.get("skipped", [])
        self.pending: list[str] = facts.get("pending", [])
        self.notes: list[str] = facts.get("notes", [])


def run(host: TunedHost, *options: str, verify: bool = False, **settings: Any) -> Answer:
    """Run the role, with settings by the names of its variables without its own name."""
    facts = host.root / "log/facts.json"
    facts.unlink(missing_ok=True)
    told = {
        name: f"{{{{ host_tuning_{fact} }}}}"
        for name, fact in {"skipped": "skipped", "pending": "pending_reboot", "notes": "notes"}.items()
    }
    role = {"name": "tokforge.sglang.host_tuning", **({"tasks_from": "verify"} if verify else {})}
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.include_role": role},
            {
                "ansible.builtin.copy": {"content": "{{ told | to_json }}", "dest": str(facts), "mode": "0644"},
                "vars": {"told": told},
                "check_mode": False,
                "changed_when": False,
            },
        ],
    }
    path = host.root / "log/play.yml"
    path.write_text(json.dumps([play]))
    given = {f"host_tuning_{name}": value for name, value in settings.items()}
    extra = {**host.variables(), "ansible_python_interpreter": sys.executable, **given}
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-e", json.dumps(extra), *options]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, cwd=CHECKOUT, check=False)
    return Answer(done, json.loads(facts.read_text()) if facts.exists() else {})
