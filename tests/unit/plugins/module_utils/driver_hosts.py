# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts as module host_info tells them, for the tests of the driver."""

from __future__ import annotations

from typing import Any

PRO_6000 = ("2bb1", "blackwell", True, True)
H200 = ("2335", "hopper", False, True)
V100 = ("1db4", "older", False, False)
NEW = ("ffff", "unknown", False, False)


def gpu(number: int, model: tuple[str, str, bool, bool], driver: str = "nvidia") -> dict[str, Any]:
    """One GPU at bus `number`."""
    device, architecture, needs, can = model
    return {
        "address": f"0000:{number:02x}:00.0",
        "device_id": device,
        "architecture": architecture,
        "needs_open_module": needs,
        "can_open_module": can,
        "driver": driver,
        "numa_node": 0,
        "cpus": "0-31",
    }


def machine(
    system: tuple[str, str] = ("debian", "12"),
    kernel: str = "6.1.0-40-amd64",
    following: str | None = None,
    gpus: list[dict[str, Any]] | None = None,
    loaded: str = "",
    loaded_kind: str = "open",
    nouveau: bool = False,
    headers: dict[str, bool] | None = None,
) -> dict[str, Any]:
    """A machine with two Blackwell GPUs, unless told otherwise. `headers`: release -> whether they are there."""
    head = "proxmox-headers-" if kernel.endswith("-pve") else "linux-headers-"
    given = {kernel: True} if headers is None else headers
    return {
        "kind": "machine",
        "container": "",
        "virtual": "",
        "proxmox": "8.2.4" if kernel.endswith("-pve") else "",
        "os": system[0],
        "os_version": system[1],
        "codename": "",
        "kernel": kernel,
        "next_kernel": kernel if following is None else following,
        "next_kernel_why": "",
        "headers": [{"release": one, "present": there, "package": head + one} for one, there in given.items()],
        "gpus": [gpu(1, PRO_6000), gpu(2, PRO_6000)] if gpus is None else gpus,
        "driver": {
            "loaded_version": loaded,
            "loaded_kind": loaded_kind if loaded else "",
            "nouveau_loaded": nouveau,
        },
    }


def container(loaded: str = "580.95.05", system: tuple[str, str] = ("debian", "12")) -> dict[str, Any]:
    """An LXC container whose machine has `loaded` loaded."""
    host = machine(system, loaded=loaded, gpus=[], headers={})
    return {**host, "kind": "container", "container": "lxc", "next_kernel": ""}
