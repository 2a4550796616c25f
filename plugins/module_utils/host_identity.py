# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at what kind of host this is: whose kernel it runs, which GPUs are on its bus, which driver is loaded.

Provisioning decides by it where work belongs: what is the kernel's is done on the machine that has the kernel, what is
a container's in the container. Reading only; what cannot be read is empty.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    containers,
    gpu_generation,
    gpu_look,
    host_files,
    kernel_releases,
)

MACHINE = "machine"
CONTAINER = "container"
AUTO = "auto"

#: A command's standard output, "" when it cannot be run or fails.
Run = Callable[[Sequence[str]], str]

_PCI = "/sys/bus/pci/devices"
_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"
_VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+([0-9][0-9.]*)")


def look(root: str, kind: str, run: Run, release: str, proc_driver: str = "/proc/driver/nvidia") -> dict[str, Any]:
    """What module host_info returns.

    :param root: directory that everything is read below.
    :param kind: auto, or what to take the host for.
    :param release: of the running kernel, as uname tells it.
    :param proc_driver: directory in which the driver tells its version, below `root`.
    """
    container = containers.kind(lambda path: _bytes(root, path))
    kind = kind if kind != AUTO else (CONTAINER if container else MACHINE)
    system = _os_release(host_files.read(root, "/etc/os-release") or "")
    coming = kernel_releases.next_release(root) if kind == MACHINE else kernel_releases.Next("", "a container has none")
    heads = kernel_releases.headers(root, [release, coming.release]) if kind == MACHINE else []
    return {
        "kind": kind,
        "container": container,
        "virtual": _virtual(root),
        "proxmox": _proxmox(run),
        "os": system.get("ID", ""),
        "os_version": system.get("VERSION_ID", ""),
        "codename": system.get("VERSION_CODENAME", ""),
        "kernel": release,
        "next_kernel": coming.release,
        "next_kernel_why": coming.why,
        "headers": [asdict(one) for one in heads],
        "gpus": gpus(root),
        "driver": driver(root, proc_driver),
    }


def gpus(root: str) -> list[dict[str, Any]]:
    """NVIDIA's display controllers (PCI class 3) on the bus, in the order of their addresses."""
    found = []
    for address in host_files.names(root, _PCI):
        device = _word(root, f"{_PCI}/{address}/device")
        if (
            _word(root, f"{_PCI}/{address}/vendor") != _NVIDIA
            or not _word(root, f"{_PCI}/{address}/class").startswith(_DISPLAY_CLASS)
            or not re.fullmatch(r"0x[0-9a-f]{1,4}", device)
        ):
            continue
        number = int(device, 16)
        node = _word(root, f"{_PCI}/{address}/numa_node")
        found.append(
            {
                "address": address,
                "device_id": f"{number:04x}",
                "architecture": gpu_generation.architecture(number),
                "needs_open_module": gpu_generation.needs_open_module(number),
                "can_open_module": gpu_generation.can_open_module(number),
                "driver": _driver_of(root, address),
                "numa_node": int(node) if re.fullmatch(r"-1|[0-9]{1,4}", node) else -1,
                "cpus": _word(root, f"{_PCI}/{address}/local_cpulist"),
            }
        )
    return found


def driver(root: str, proc_driver: str) -> dict[str, Any]:
    """The loaded kernel module, in a container that of its machine, and whether nouveau is loaded.

    What module nvidia calls itself in its own version file tells open from closed.
    """
    text = host_files.read(root, os.path.join(proc_driver, "version")) or ""
    found = _VERSION.search(text)
    kind = gpu_look.module_kind(text, None, "") if found else ""
    return {
        "loaded_version": found[1] if found else "",
        "loaded_kind": {"proprietary": "closed", "unknown": ""}.get(kind, kind),
        "nouveau_loaded": host_files.is_directory(root, "/sys/module/nouveau"),
    }


def _driver_of(root: str, address: str) -> str:
    try:
        return os.path.basename(os.readlink(host_files.place(root, f"{_PCI}/{address}/driver")))
    except OSError:
        return ""


def _virtual(root: str) -> str:
    """Who made a virtual machine, "" on real hardware: the CPU says that there is a hypervisor, DMI says whose."""
    flags = re.search(r"^flags\s*:.*$", host_files.read(root, "/proc/cpuinfo") or "", re.MULTILINE)
    if not flags or "hypervisor" not in flags[0].split():
        return ""
    return _word(root, "/sys/class/dmi/id/sys_vendor") or "unknown"


def _proxmox(run: Run) -> str:
    """The version of Proxmox VE: `pve-manager/8.2.4/faa83925c9641325 (running kernel: ...)`."""
    found = re.match(r"pve-manager/([0-9]+(?:\.[0-9]+)*)", run(["pveversion"]))
    return found[1] if found else ""


def _os_release(text: str) -> dict[str, str]:
    """os-release(5): assignments as a shell reads them. A line that none reads is left out."""
    found = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if not equals or name.startswith("#"):
            continue
        try:
            found[name] = "".join(shlex.split(value))
        except ValueError:
            continue
    return found


def _word(root: str, path: str) -> str:
    return (host_files.read(root, path) or "").strip()


def _bytes(root: str, path: str) -> bytes | None:
    text = host_files.read(root, path)
    return None if text is None else text.encode()
