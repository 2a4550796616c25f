# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A hypervisor with two GPUs on two NUMA nodes as a directory, for tests that run role lxc_gpu with the stand-ins."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STAND_INS = Path(__file__).with_name("stand_ins")
FIXTURES = ROOT / "tests/unit/plugins/module_utils/fixtures/lxc"

#: As ansible-playbook has them, over the run of one step.
STEP = """
- name: {name}
  hosts: localhost
  gather_facts: false
  check_mode: {check}
  diff: {check}
  vars: {variables}
  tasks:
    - name: The role
      block:
        - name: Run it
          ansible.builtin.include_role:
            name: tokforge.sglang.lxc_gpu
            tasks_from: "{entry}"
            public: true
      rescue:
        - name: Keep its message
          ansible.builtin.set_fact:
            failed_with: "{{{{ ansible_failed_result.results | default([ansible_failed_result])
              | selectattr('failed', 'defined') | selectattr('failed') | map(attribute='msg') | join(' ') }}}}"
    - name: Keep what it said
      ansible.builtin.copy:
        content: "{{{{ {{'pending': lxc_gpu_pending_restart | default([]), 'skipped': lxc_gpu_skipped | default([]),
          'failed': failed_with | default('')}} | to_json }}}}"
        dest: "{answer}"
        mode: "0644"
      check_mode: false
      diff: false
      changed_when: false
"""


class Hypervisor:
    """The directory, and plays on it."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "host"
        self.directory = directory
        self.variables: dict[str, Any] = {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "lxc_gpu_host_kind": "machine",
            "lxc_gpu_root": str(self.root),
            "lxc_gpu_lxc_path": str(self.root / "lxc"),
            "lxc_gpu_record_dir": str(self.root / "record"),
            "lxc_gpu_unit_dir": str(self.root / "units"),
            "lxc_gpu_restart_timeout_s": 5,
        }
        for name in ("pve/lxc", "lxc", "run", "broken", "stuck", "units", "etc"):
            (self.root / name).mkdir(parents=True)
        (self.root / "pveversion").write_text("pve-manager/8.4.1/2a5fa54a8503f96d (running kernel: 6.8.12-11-pve)\n")
        self._processors()
        for number in (0, 1):
            self._card(number)
        self.drivers("uvm511", 511)

    def _processors(self) -> None:
        for name, text in {
            "cpu/online": "0-63",
            "node/node0/cpulist": "0-31",
            "node/node1/cpulist": "32-63",
            "node/has_memory": "0-1",
            "node/online": "0-1",
        }.items():
            self._file(f"sys/devices/system/{name}", text)

    def _card(self, number: int) -> None:
        """One GPU a node, the first one on the second."""
        address = f"0000:{number + 1:02x}:00.0"
        node = 1 - number
        device = f"sys/bus/pci/devices/{address}"
        for name, text in {
            "vendor": "0x10de",
            "device": "0x2bb1",
            "class": "0x030000",
            "numa_node": str(node),
            "local_cpulist": f"{32 * node}-{32 * node + 31}",
        }.items():
            self._file(f"{device}/{name}", text)
        self._file(f"proc/driver/nvidia/gpus/{address}/information", f"Model: \t x\nDevice Minor: \t {number}")

    def _file(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text + "\n")

    def drivers(self, fixture: str, uvm: int) -> None:
        """Load the drivers, with nvidia-uvm under a number that the kernel hands out."""
        shutil.rmtree(self.root / "dev", ignore_errors=True)
        shutil.copyfile(FIXTURES / f"proc-devices-{fixture}", self.root / "proc/devices")
        for name, major, minor in (
            ("nvidia0", 195, 0),
            ("nvidia1", 195, 1),
            ("nvidiactl", 195, 255),
            ("nvidia-uvm", uvm, 0),
            ("nvidia-uvm-tools", uvm, 1),
            ("nvidia-caps/nvidia-cap1", 236, 1),
            ("nvidia-caps/nvidia-cap2", 236, 2),
        ):
            path = self.root / "dev" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(major, minor))

    def environment(self) -> dict[str, str]:
        """For programs that are to find the stand-ins."""
        return {
            **os.environ,
            "PATH": f"{STAND_INS}{os.pathsep}{os.environ['PATH']}",
            "STAND_IN_STATE": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def call(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a stand-in."""
        return subprocess.run(command, env=self.environment(), capture_output=True, text=True, check=False)

    def container(self, name: str, text: str) -> Path:
        """Make a container with a configuration; a number is one of Proxmox VE."""
        path = self.root / (f"pve/lxc/{name}.conf" if name.isdigit() else f"lxc/{name}/config")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def started(self, name: str) -> None:
        """Start a container."""
        done = self.call(*(["pct", "start", name] if name.isdigit() else ["lxc-start", "-n", name]))
        assert done.returncode == 0, done.stderr

    def inside(self, name: str) -> Path:
        """The root of a container that runs."""
        return self.root / "proc" / (self.root / "run" / name).read_text() / "root"

    def calls(self, program: str) -> list[list[str]]:
        """The arguments of all calls of a program so far."""
        every = [json.loads(line) for line in (self.root / "calls").read_text().splitlines()]
        return [one[1:] for one in every if one[0] == program]

    def play(self, *steps: dict[str, Any]) -> list[dict[str, Any]]:
        """Run the role once a step, in one playbook. What each said, with `changed`, the number of tasks that did.

        A step has variables of the role, and may have `entry` and `check`.
        """
        text, answers = "", []
        for number, step in enumerate(steps):
            answers.append(self.directory / f"answer-{number}.json")
            given = {key: value for key, value in step.items() if key not in ("entry", "check")}
            text += STEP.format(
                name=f"Step {number}",
                check=step.get("check", False),
                variables=json.dumps({**self.variables, **given}),
                entry=step.get("entry", "main"),
                answer=answers[-1],
            )
        (self.directory / "play.yml").write_text(text)
        command = [Path(sys.executable).with_name("ansible-playbook"), "-i", "localhost,", self.directory / "play.yml"]
        # Only the option sets ansible_check_mode; a play's own check_mode reaches no more than the modules.
        command += ["--check", "--diff"] if all(step.get("check") for step in steps) else []
        done = subprocess.run(
            list(map(str, command)), cwd=ROOT, env=self.environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        said = [json.loads(path.read_text()) for path in answers]
        for one, part in zip(said, done.stdout.split("PLAY [Step ")[1:], strict=True):
            one["changed"] = part.count("\nchanged: ")
            one["text"] = part
        return said
