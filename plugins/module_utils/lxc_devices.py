# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which device nodes GPUs need in a container, what the host has of them, and in which form they are passed on."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import lxc_config
from ansible_collections.tokforge.sglang.plugins.module_utils.lxc_config import Allow, Config

DEV = "dev"
RAW = "raw"

NVIDIA = "nvidia"
UVM = "nvidia-uvm"
CAPS = "nvidia-caps"
#: Names in /proc/devices. Before driver 550 the main one was nvidia-frontend (release notes of 550.40).
_NAMES = {NVIDIA: (NVIDIA, "nvidiactl", "nvidia-modeset", "nvidia-frontend"), UVM: (UVM,), CAPS: (CAPS,)}
#: Linux Documentation/admin-guide/devices.txt: NVIDIA's own, and those that are handed out.
STATIC_MAJOR = 195
_DYNAMIC = (range(234, 255), range(384, 512))

CAPS_DIR = "/dev/nvidia-caps"
#: Nodes beside those of the GPUs, with their driver and the mode in a container. Those of nvidia-caps are only read.
SHARED = {
    "/dev/nvidiactl": (NVIDIA, "0666"),
    "/dev/nvidia-uvm": (UVM, "0666"),
    "/dev/nvidia-uvm-tools": (UVM, "0666"),
    "/dev/nvidia-modeset": (NVIDIA, "0666"),
    f"{CAPS_DIR}/nvidia-cap1": (CAPS, "0444"),
    f"{CAPS_DIR}/nvidia-cap2": (CAPS, "0444"),
}
CAP_NODES = tuple(path for path, (driver, _mode) in SHARED.items() if driver == CAPS)
_GPU_NODE = re.compile(r"/dev/nvidia(0|[1-9]\d{0,3})", re.ASCII)
_NUMBER = re.compile(r"0|[1-9]\d{0,3}", re.ASCII)
_CHARACTER = re.compile(r"\s*(\d{1,9})\s+(\S.*?)\s*", re.ASCII)


class DeviceError(Exception):
    """What is asked for cannot be passed on; the text says what to do."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Host:
    """What the host has: drivers by major number, GPU and shared nodes that are there, nodes with a strange major."""

    drivers: Mapping[int, tuple[str, ...]]
    gpus: tuple[int, ...]
    shared: frozenset[str]
    dev_root: str = "/dev"
    proc_devices: str = "/proc/devices"
    node_majors: Mapping[str, int] = field(default_factory=dict)
    absent_sources: frozenset[str] = frozenset()

    def majors(self) -> dict[str, int]:
        """Major numbers of NVIDIA's drivers by their names here."""
        found = {}
        for driver, names in _NAMES.items():
            for name in names:
                numbers = [number for number, have in self.drivers.items() if name in have]
                if numbers and driver not in found:
                    found[driver] = min(numbers)
        return found


@dataclass(frozen=True)
class Request:
    """What is asked: state, GPUs by the number of their node (None: all), form, version of Proxmox VE."""

    state: str = "present"
    gpus: tuple[int, ...] | None = None
    form: str = "auto"
    pve_version: str | None = None


def read_drivers(text: str, path: str = "/proc/devices") -> dict[int, tuple[str, ...]]:
    """Names of character drivers by major number (man page proc(5)). Raises DeviceError for another kind of text."""
    drivers: dict[int, tuple[str, ...]] = {}
    lines = iter(text.splitlines())
    if not any(line.strip() == "Character devices:" for line in lines):
        raise DeviceError(
            f"reading the drivers in {path}: it has no list of character devices; give the host's /proc/devices",
            proc_devices=path,
        )
    for line in lines:
        match = _CHARACTER.fullmatch(line)
        if line.strip() and not match:
            break
        if match:
            number = int(match[1])
            drivers[number] = (*drivers.get(number, ()), match[2])
    return drivers


def look(dev_root: str, proc_devices: str, sources: Iterable[str] = ()) -> Host:
    """What the host has. `sources` are paths below /dev of which to say whether they are there. Raises DeviceError."""
    path = proc_devices
    try:
        with open(proc_devices, encoding="utf-8", errors="replace") as stream:
            drivers = read_drivers(stream.read(lxc_config.MAX_BYTES), proc_devices)
        path = dev_root
        names = os.listdir(dev_root)
    except OSError as error:
        raise DeviceError(
            f"looking for GPUs in {path}: {error.strerror}; run this on the host of the container", path=path
        ) from error
    gpus = tuple(sorted(int(match[1]) for match in (_GPU_NODE.fullmatch(f"/dev/{name}") for name in names) if match))
    paths = [gpu_path(index) for index in gpus] + [node for node in SHARED if os.path.exists(_at(dev_root, node))]
    numbers = {node: _char_major(_at(dev_root, node)) for node in paths}
    return Host(
        drivers,
        gpus,
        frozenset(paths) & frozenset(SHARED),
        dev_root,
        proc_devices,
        {node: number for node, number in numbers.items() if number is not None},
        frozenset(one for one in sources if not os.path.exists(_at(dev_root, one))),
    )


def _at(dev_root: str, path: str) -> str:
    return os.path.join(dev_root, os.path.relpath(path, "/dev"))


def _char_major(path: str) -> int | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    # Copies of /dev in tests and images have plain files, whose number says nothing.
    return os.major(status.st_rdev) if (status.st_mode & 0o170000) == 0o020000 else None


def numbers(given: Sequence[str]) -> tuple[int, ...] | None:
    """GPUs as a module's option has them, None for all. Raises DeviceError."""
    if list(given) == ["all"]:
        return None
    wrong = [one for one in given if not _NUMBER.fullmatch(one)]
    if wrong or not given:
        raise DeviceError(
            f"reading gpus {list(given)}: {wrong[0] + ' is no number of a GPU' if wrong else 'it is empty'}; give all, "
            "or numbers N of /dev/nvidiaN, or state absent for none",
            gpus=list(given),
        )
    return tuple(sorted({int(one) for one in given}))


def gpu_path(index: int) -> str:
    """The node of a GPU. The number is the node's, which nvidia-smi calls the minor number."""
    return f"/dev/nvidia{index}"


def gpu_of(path: str) -> int | None:
    """The number of the GPU that a node belongs to, None for another node."""
    match = _GPU_NODE.fullmatch(path)
    return int(match[1]) if match else None


def driver_of(path: str) -> str | None:
    """The driver of a node that this collection passes on, None for any other."""
    if gpu_of(path) is not None:
        return NVIDIA
    if path == CAPS_DIR:
        return CAPS
    return SHARED[path][0] if path in SHARED else None


def choose_form(config: Config, request: Request) -> str:
    """The form to write. Raises DeviceError for one that the container's host does not understand.

    devN came to Proxmox VE with an update between 8.1 and 8.2, so with 8.1 and with an unknown version it is certain
    only where the file has such an entry. Raw lines work everywhere.
    """
    version = pve_version(request.pve_version)
    if request.form == DEV and (config.format == lxc_config.PLAIN or (version and version < (8, 1))):
        why = "it is a configuration of plain LXC" if not version or config.format == lxc_config.PLAIN else ""
        why = why or f"Proxmox VE {request.pve_version} does not know them"
        raise DeviceError(
            f"writing devN entries to {config.path}: {why}; set form to raw or auto", path=config.path, form=DEV
        )
    if request.form != "auto":
        return request.form
    if config.format == lxc_config.PLAIN or (version and version < (8, 1)):
        return RAW
    return DEV if (version and version >= (8, 2)) or lxc_config.devices(config) else RAW


def pve_version(text: str | None) -> tuple[int, int] | None:
    """The first two numbers of a version, also out of what `pveversion` prints. Raises DeviceError for none."""
    if not text:
        return None
    match = re.match(r"(?:pve-manager/)?(\d{1,4})\.(\d{1,4})(?![\d])", text.strip(), re.ASCII)
    if not match:
        raise DeviceError(
            f"reading pve_version {text!r}: it is no version; give it as in 8.2.4, or what pveversion prints",
            pve_version=text,
        )
    return int(match[1]), int(match[2])


def wanted(host: Host, gpus: Sequence[int]) -> tuple[list[str], dict[str, str]]:
    """The nodes to pass on for GPUs, and the others that they could use with why not. Raises DeviceError for a GPU."""
    majors = host.majors()
    absent = [index for index in gpus if index not in host.gpus]
    facts = {"found_gpus": list(host.gpus), "dev_root": host.dev_root}
    if absent or not gpus:
        names = ", ".join(gpu_path(index) for index in absent) or "any /dev/nvidiaN"
        raise DeviceError(
            f"looking for GPUs in {host.dev_root}: {names} is not there; load the driver (nvidia-modprobe -u -c 0, for "
            "each GPU), or ask for GPUs that are there",
            missing_gpus=absent,
            **facts,
        )
    if NVIDIA not in majors:
        raise DeviceError(
            f"looking for the driver in {host.proc_devices}: there is no character device {NVIDIA}; load the driver",
            **facts,
        )
    nodes = [gpu_path(index) for index in gpus]
    missing = {}
    for path, (driver, _mode) in SHARED.items():
        if path not in host.shared:
            missing[path] = f"it is not in {host.dev_root}"
        elif driver not in majors:
            missing[path] = f"{host.proc_devices} has no driver {driver}"
        else:
            nodes.append(path)
    return nodes, missing


def reach(config: Config, host: Host) -> frozenset[str]:
    """The nodes that a container with this configuration can use, once it is started."""
    majors = host.majors()
    allowed = {rule.major for rule in lxc_config.allows(config) if rule.version == 2}
    paths = {one.path for one in lxc_config.devices(config)}
    for one in lxc_config.mounts(config):
        driver = driver_of(one.source)
        if driver and majors.get(driver) in (None, *allowed):
            paths.update(CAP_NODES if one.source == CAPS_DIR else [one.source])
    return frozenset(path for path in paths if driver_of(path))


def configured_gpus(config: Config) -> set[int]:
    """GPUs that the configuration passes on, in either form."""
    paths = [one.path for one in lxc_config.devices(config)] + [one.source for one in lxc_config.mounts(config)]
    return {index for index in map(gpu_of, paths) if index is not None}


def raw_target(path: str) -> str:
    """What a raw entry mounts for a node: nvidia-caps goes as a directory, since its nodes come and go."""
    return CAPS_DIR if path in CAP_NODES else path


def nvidia_rules(rules: Sequence[Allow], host: Host) -> list[Allow]:
    """The rules for major numbers that are NVIDIA's now; its static one also while the driver is not loaded."""
    numbers = set(host.majors().values())
    if STATIC_MAJOR not in host.drivers:
        numbers.add(STATIC_MAJOR)
    return [rule for rule in rules if rule.major in numbers]


def old_candidates(rules: Sequence[Allow], host: Host) -> list[Allow]:
    """Rules that may be NVIDIA's of an earlier kernel: of our shape, for a number that is handed out, to nobody now."""
    return [
        rule
        for rule in rules
        if rule.version == 2
        and (rule.minor, rule.access) == ("*", "rwm")
        and is_dynamic(rule.major)
        and rule.major not in host.drivers
    ]


def is_dynamic(major: int) -> bool:
    """Whether the kernel hands the number out."""
    return any(major in numbers for numbers in _DYNAMIC)
