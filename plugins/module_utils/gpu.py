# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine's GPUs are and how they are, as a typed report that says in words when it could not be read.

The types, and the order in which what tools say is put together. gpu_xml.py reads `nvidia-smi -q -x`, gpu_topology.py
reads `nvidia-smi topo`, gpu_look.py runs them, gpu_checks.py judges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import gpu_models
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu_topology import Link, P2p, Topology

#: States of a report. Only OK says that every GPU of the machine was read.
OK = "ok"
NO_TOOL = "no_tool"  # nvidia-smi or the library it needs is not there
NO_DEVICE = "no_device"  # the driver is not loaded, or shows no GPU here
MISMATCH = "mismatch"  # kernel module and library are of different versions
LOST = "lost"  # a GPU does not answer any more; those that do are listed
UNREADABLE = "unreadable"  # there was output, and it is not what nvidia-smi writes; what could be read is listed
TIMEOUT = "timeout"  # nvidia-smi did not end
STATES = (OK, NO_TOOL, NO_DEVICE, MISMATCH, LOST, UNREADABLE, TIMEOUT)

#: Kernel modules: NVIDIA ships two builds of each version, and Blackwell works with the open one alone.
OPEN = "open"
PROPRIETARY = "proprietary"
UNKNOWN = "unknown"

#: First byte of the PCI device ids of Blackwell GPUs: GB100, GB202, GB203, GB206, GB10, GB205, GB110
#: (the table of supported chips in the driver's README, 580).
BLACKWELL_IDS = frozenset({0x29, 0x2B, 0x2C, 0x2D, 0x2E, 0x2F, 0x31})

#: What the driver writes for a compute capability.
_CAPABILITY = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})")

_BUS_ID = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)


@dataclass(frozen=True)
class GpuProcess:
    """A process with memory on a GPU. `kind` is C (compute), G (graphics), C+G or M (MPS); None memory is not told."""

    pid: int
    name: str
    memory_bytes: int | None = None
    kind: str = ""


@dataclass(frozen=True)
class MigInstance:
    """A part of a GPU in MIG mode."""

    index: int | None
    gpu_instance_id: int | None
    compute_instance_id: int | None
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU. None and "" stand for what the driver does not tell (N/A, not supported, no permission).

    index: number that nvidia-smi gives it, by PCI bus id. CUDA numbers alike with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    bus_id: as below /sys/bus/pci/devices, 0000:61:00.0.
    pcie_gen_max: what slot and GPU can do together, pcie_gen_device_max what the GPU could do elsewhere.
    pcie_gen_now: falls to 1 when the GPU idles, to save power.
    ecc_*_uncorrected: errors since the driver was loaded (volatile) and since the GPU was made (aggregate).
    problem: what the driver says instead of values when the GPU does not answer it, "" for a GPU that does.
    recovery: what the driver says is needed (Reset, Reboot, ...), "" for nothing.
    """

    index: int
    name: str
    bus_id: str = ""
    uuid: str = ""
    architecture: str = ""
    compute_capability: tuple[int, int] | None = None
    capability_source: str = ""
    memory_total_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_bandwidth_bytes_s: int | None = None
    persistence: bool | None = None
    performance_state: str = ""
    utilization_percent: int | None = None
    temperature_c: int | None = None
    power_draw_w: float | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    power_min_w: float | None = None
    power_max_w: float | None = None
    clock_graphics_mhz: int | None = None
    clock_sm_mhz: int | None = None
    clock_memory_mhz: int | None = None
    clock_graphics_max_mhz: int | None = None
    clock_sm_max_mhz: int | None = None
    clock_memory_max_mhz: int | None = None
    pcie_gen_now: int | None = None
    pcie_gen_max: int | None = None
    pcie_gen_device_max: int | None = None
    pcie_gen_host_max: int | None = None
    pcie_width_now: int | None = None
    pcie_width_max: int | None = None
    numa_node: int | None = None
    cpu_affinity: str = ""
    ecc: bool | None = None
    ecc_volatile_uncorrected: int | None = None
    ecc_aggregate_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery: str = ""
    mig: bool | None = None
    mig_instances: tuple[MigInstance, ...] = ()
    throttle_reasons: tuple[str, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    processes_known: bool = False
    virtualization: str = ""
    fabric_state: str = ""
    fabric_status: str = ""
    problem: str = ""

    @property
    def blackwell(self) -> bool:
        """Whether the GPU works with the open kernel module alone."""
        return self.architecture.startswith("Blackwell") or bool(
            self.compute_capability and self.compute_capability[0] in (10, 11, 12)
        )


@dataclass(frozen=True)
class PciDevice:
    """An NVIDIA GPU as the PCI bus shows it, with or without a driver."""

    bus_id: str
    device_id: int

    @property
    def blackwell(self) -> bool:
        """Whether its device id is one of Blackwell's."""
        return self.device_id >> 8 in BLACKWELL_IDS


@dataclass(frozen=True)
class Report:
    """All GPUs of one machine.

    message, remedy: in words, what `state` means here and what to do; "" where there is nothing to do.
    driver_version: of the kernel module when it is known, otherwise as nvidia-smi says.
    library_version: of the library, told where it differs.
    kernel_module: open, proprietary or unknown.
    missing_nodes: device files that are not there although the driver is.
    pci: what the bus shows. In a container these can be more than may be used.
    allowed_cpus: the CPUs that this process may run on, as the kernel lists them, "" unknown.
    notes: what could not be read beside the GPUs themselves, in words.
    """

    state: str
    message: str
    remedy: str = ""
    driver_version: str = ""
    library_version: str = ""
    cuda_version: str = ""
    kernel_module: str = UNKNOWN
    gpus: tuple[Gpu, ...] = ()
    p2p: tuple[P2p, ...] = ()
    links: tuple[Link, ...] = ()
    missing_nodes: tuple[str, ...] = ()
    pci: tuple[PciDevice, ...] = ()
    allowed_cpus: str = ""
    notes: tuple[str, ...] = ()

    @property
    def blackwell(self) -> bool:
        """Whether there is a Blackwell GPU, also one that the driver cannot drive."""
        return any(one.blackwell for one in self.gpus) or any(one.blackwell for one in self.pci)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for a module's result; `processes` once more as one list with the number of their GPU."""
        plain = asdict(self)
        for one in plain["gpus"]:
            capability = one["compute_capability"]
            one["compute_capability"] = None if capability is None else "{}.{}".format(*capability)
        plain["processes"] = [{"gpu": one.index, **asdict(process)} for one in self.gpus for process in one.processes]
        return plain


def normal_bus_id(text: str) -> str:
    """A PCI address as the kernel writes it: 00000000:61:00.0 becomes 0000:61:00.0. "" when it is none."""
    found = _BUS_ID.fullmatch(text.strip())
    if not found:
        return ""
    domain, bus, device, function = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}".lower()


def parse_capabilities(text: str) -> dict[str, tuple[int, int]]:
    """Compute capability by bus id, from `nvidia-smi --query-gpu=pci.bus_id,compute_cap --format=csv,noheader`.

    Empty for a driver that does not know the field (it came with branch 510) and for anything else.
    """
    found = {}
    for line in text.splitlines():
        bus_id, _comma, capability = line.partition(",")
        numbers = _CAPABILITY.fullmatch(capability.strip())
        if normal_bus_id(bus_id) and numbers:
            found[normal_bus_id(bus_id)] = (int(numbers[1]), int(numbers[2]))
    return found


def with_capabilities(report: Report, told: Mapping[str, tuple[int, int]]) -> Report:
    """The report with each GPU's compute capability and bandwidth: what the driver told, otherwise by name."""
    gpus = []
    for one in report.gpus:
        model = gpu_models.find(one.name)
        capability, source = told.get(one.bus_id), "driver"
        if capability is None:
            capability, source = gpu_models.capability(one.name, one.architecture), "name"
        gpus.append(
            replace(
                one,
                compute_capability=capability,
                capability_source="" if capability is None else source,
                memory_bandwidth_bytes_s=model.bandwidth_bytes_s if model else None,
            )
        )
    return replace(report, gpus=tuple(gpus))


def with_topology(report: Report, topology: Topology, numa_nodes: Mapping[str, int]) -> Report:
    """The report with links, CPUs and NUMA nodes. `numa_nodes` (by bus id, from sysfs) fills what is not told."""
    gpus = []
    for one in report.gpus:
        node = topology.numa_nodes.get(one.index, numa_nodes.get(one.bus_id))
        gpus.append(replace(one, numa_node=node, cpu_affinity=topology.cpu_affinity.get(one.index, "")))
    return replace(report, gpus=tuple(gpus), links=topology.links)


def with_p2p(report: Report, read: Mapping[tuple[int, int], str], write: Mapping[tuple[int, int], str]) -> Report:
    """The report with what P2P reads and writes between each two GPUs are said to do ("" not told)."""
    pairs = sorted({*read, *write})
    return replace(
        report,
        p2p=tuple(
            P2p(first, second, *(one.get((first, second), "") for one in (read, write))) for first, second in pairs
        ),
    )


def noted(report: Report, notes: Iterable[str]) -> Report:
    """The report with more notes, each once."""
    return replace(report, notes=tuple(dict.fromkeys([*report.notes, *notes])))
