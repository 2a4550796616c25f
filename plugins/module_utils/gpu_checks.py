# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a report on GPUs means for a server that is to run on them: findings of preflight.py, from the report alone.

A finding fails where the server cannot start or would be stopped by it. What only makes it slower, or may be meant,
warns. The memory of GPUs is judged in gpu_memory.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from ansible_collections.tokforge.sglang.plugins.module_utils import gpu, gpu_memory, gpu_text, gpu_topology
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu, Report

CHECK = "gpu"

#: A GPU that works for this share of the time should have its link at full speed (percent).
BUSY_PERCENT = 50

#: Watts that a power limit may be below the default without a word: drivers round.
POWER_SLACK_W = 1.0

#: Reasons for low clocks that are trouble, and what to do. Idling, set application clocks and the power limit under
#: load are none.
THROTTLE_REMEDIES = {
    "hw_thermal_slowdown": "the GPU is too hot: see to its fans, air and inlet temperature",
    "sw_thermal_slowdown": "the GPU is near its temperature limit: see to its fans, air and inlet temperature",
    "hw_power_brake_slowdown": "the machine's power supply asks for less: see to its power budget and cables",
    "hw_slowdown": "the hardware holds the clocks down: see to temperature, power supply and cables",
}

#: What the driver wants done that leaves a GPU unusable until then.
_UNUSABLE = ("Reset", "Reboot")


def check_gpus(
    report: Report,
    wanted: int,
    own_pids: AbstractSet[int] = frozenset(),
    need_free_bytes: int | None = None,
    expected_capability: tuple[int, int] | None = None,
    used: Sequence[int] | None = None,
) -> list[Finding]:
    """Everything that the report has to say about a server on `wanted` GPUs of this machine.

    :param wanted: GPUs that this node needs (tp times pp over the nodes); 0 for a server that needs none.
    :param own_pids: processes of the server that is to be replaced: the memory they hold will be free.
    :param need_free_bytes: what each GPU must have free; None when it is not known.
    :param expected_capability: compute capability that the request was made for.
    :param used: numbers of the GPUs that the server will use; the first `wanted` when it is not said.
    """
    if wanted < 1:
        return []
    if not report.gpus:
        return [Finding(FAIL, CHECK, f"{report.message}; {_needed(wanted)}", report.remedy)]
    good = [one for one in report.gpus if not one.problem]
    chosen = [one for one in report.gpus if one.index in used] if used is not None else good[:wanted]
    found = _state(report)
    found += _count(report, good, chosen, wanted, used)
    found += _closed_module(report)
    found += _capability(chosen, expected_capability)
    found += gpu_memory.check_memory(chosen, own_pids, need_free_bytes)
    for check in (_mig, _faults, _ecc, _fabric, _persistence, _pcie, _power, _throttle, _mixed):
        found += check(chosen)
    found += _p2p(report, chosen)
    found += _numa(report, chosen)
    found += _nodes(report)
    found += [Finding(WARN, CHECK, note, gpu_text.RUN_IT) for note in report.notes]
    return [_summary(report, chosen), *found] if chosen else found


def _needed(wanted: int) -> str:
    return f"the server needs {wanted} GPU{'s' if wanted > 1 else ''} on this machine"


def _summary(report: Report, chosen: Sequence[Gpu]) -> Finding:
    first = chosen[0]
    capability = "unknown" if first.compute_capability is None else "{}.{}".format(*first.compute_capability)
    memory = (
        "unknown memory" if first.memory_total_bytes is None else f"{gpu_memory.gib(first.memory_total_bytes)} each"
    )
    return Finding(
        OK,
        CHECK,
        f"{len(chosen)} x {first.name or 'unnamed GPU'} (compute capability {capability}, {memory}), driver "
        f"{report.driver_version or 'unknown'} with the {report.kernel_module} kernel module, CUDA "
        f"{report.cuda_version or 'unknown'}",
    )


def _state(report: Report) -> list[Finding]:
    return [] if report.state == gpu.OK else [Finding(FAIL, CHECK, report.message, report.remedy)]


def _count(
    report: Report, good: Sequence[Gpu], chosen: Sequence[Gpu], wanted: int, used: Sequence[int] | None
) -> list[Finding]:
    """Are there as many as the server needs?"""
    if used is not None:
        absent = sorted(set(used) - {one.index for one in report.gpus})
        if absent:
            message = f"{gpu_memory.numbers(absent)} are to be used and the driver lists {len(report.gpus)}"
            return [Finding(FAIL, CHECK, message, "name GPUs that `nvidia-smi -L` lists, counted from 0")]
    if len(chosen) >= wanted:
        return []
    bus = f", the PCI bus shows {len(report.pci)}" if len(report.pci) > len(report.gpus) else ""
    have = f"{len(good)} answer{bus}" if used is None else f"{len(chosen)} are chosen for it"
    return [
        Finding(
            FAIL,
            CHECK,
            f"{_needed(wanted)} and {have}",
            "lower tp or pp so that their product fits, or see why GPUs are missing (`nvidia-smi -L`, `dmesg | grep -i "
            "nvrm`, a container's device files)",
        )
    ]


def _closed_module(report: Report) -> list[Finding]:
    if report.kernel_module != gpu.PROPRIETARY or not report.blackwell:
        return []
    return [Finding(FAIL, CHECK, *gpu_text.closed_module(report.driver_version))]


def _capability(chosen: Sequence[Gpu], expected: tuple[int, int] | None) -> list[Finding]:
    unknown = [one.index for one in chosen if one.compute_capability is None]
    found = []
    if unknown:
        message = f"{gpu_memory.numbers(unknown)}: compute capability unknown, so backends cannot be judged"
        found.append(Finding(WARN, CHECK, message, "a driver from branch 510 on tells it"))
    other = [one for one in chosen if one.compute_capability not in (None, expected)]
    if expected is not None and other:
        words = ", ".join(sorted({"{}.{}".format(*one.compute_capability) for one in other if one.compute_capability}))
        message = "{} have compute capability {}, expected is {}.{}".format(
            gpu_memory.numbers([one.index for one in other]), words, *expected
        )
        found.append(
            Finding(FAIL, CHECK, message, "choose the inventory of this machine, or its backends for this GPU")
        )
    return found


def _mig(chosen: Sequence[Gpu]) -> list[Finding]:
    found = []
    for one in chosen:
        if one.mig:
            message = f"GPU {one.index} is in MIG mode with {len(one.mig_instances)} instances, SGLang needs whole GPUs"
            remedy = (
                f"run `nvidia-smi -i {one.index} -mig 0` as root with nothing on it, or set CUDA_VISIBLE_DEVICES to "
                "GPUs without MIG (for a server of one rank to one MIG UUID of `nvidia-smi -L`)"
            )
            found.append(Finding(FAIL, CHECK, message, remedy))
    return found


def _faults(chosen: Sequence[Gpu]) -> list[Finding]:
    """GPUs that do not answer, or of which the driver says what has to be done first."""
    found = []
    for one in chosen:
        if one.problem:
            message = f"GPU {one.index} at {one.bus_id or '?'} does not answer the driver: {one.problem}"
            # Seen in public reports: with one lost GPU, CUDA found none of the others either.
            found.append(Finding(FAIL, CHECK, message, "reboot; until then CUDA may not start on the others either"))
        elif one.recovery:
            level = FAIL if one.recovery in _UNUSABLE else WARN
            message = f"GPU {one.index}: the driver asks for {one.recovery!r} before it is used again"
            remedy = f"with nothing on it run `nvidia-smi -r -i {one.index}` as root, or reboot"
            found.append(Finding(level, CHECK, message, remedy))
    return found


def _ecc(chosen: Sequence[Gpu]) -> list[Finding]:
    found = []
    for one in chosen:
        if one.remap_failed:
            message = f"GPU {one.index} has memory that it can no longer replace"
            found.append(
                Finding(FAIL, CHECK, message, "have the card replaced; leave it out with CUDA_VISIBLE_DEVICES")
            )
        if one.remap_pending:
            message = f"GPU {one.index} has bad memory that the next reset will replace"
            remedy = f"with nothing on it run `nvidia-smi -r -i {one.index}` as root, or reboot"
            found.append(Finding(WARN, CHECK, message, remedy))
        now, ever = one.ecc_volatile_uncorrected or 0, one.ecc_aggregate_uncorrected or 0
        if now or ever:
            message = f"GPU {one.index} had {now} uncorrected memory errors since the last reset, {max(now, ever)} ever"
            remedy = "watch `nvidia-smi -q -d ECC,ROW_REMAPPER`, and have the card tested when they grow"
            found.append(Finding(WARN, CHECK, message, remedy))
    return found


def _fabric(chosen: Sequence[Gpu]) -> list[Finding]:
    """GPUs behind NVSwitch serve CUDA only when the fabric manager has registered them."""
    waiting = [one for one in chosen if one.fabric_state in ("Not Started", "In Progress")]
    failed = [one for one in chosen if one.fabric_state == "Completed" and one.fabric_status not in ("", "Success")]
    remedy = "start nvidia-fabricmanager of the driver's version and see `journalctl -u nvidia-fabricmanager`"
    return [
        Finding(
            FAIL,
            CHECK,
            f"GPU {one.index}: NVSwitch fabric {one.fabric_state}, {one.fabric_status or 'no status'}",
            remedy,
        )
        for one in [*waiting, *failed]
    ]


def _persistence(chosen: Sequence[Gpu]) -> list[Finding]:
    return _each(
        [one.index for one in chosen if one.persistence is False],
        "persistence mode is off, so each start initialises the GPU anew",
        "run `nvidia-smi -pm 1` as root, or enable nvidia-persistenced; for a container on its host",
    )


def _pcie(chosen: Sequence[Gpu]) -> list[Finding]:
    found = []
    for one in chosen:
        # A missing figure is no narrow link.
        now, most = one.pcie_width_now or 0, one.pcie_width_max or 0
        if 0 < now < most:
            message = f"GPU {one.index} has {now} of {most} PCIe lanes"
            remedy = "seat card and riser anew, and see to the slot's lanes (bifurcation) in the firmware's settings"
            found.append(Finding(WARN, CHECK, message, remedy))
        gen, link = one.pcie_gen_now or 0, one.pcie_gen_max or 0
        # A virtual machine's bridges are not told, and their figures would not be the slot's.
        host, device = one.pcie_gen_host_max or 0, one.pcie_gen_device_max or 0
        if 0 < host < device:
            message = f"GPU {one.index} is in a slot of PCIe generation {host} and can do {device}"
            found.append(Finding(WARN, CHECK, message, "use another slot, or set its speed in the firmware's settings"))
        elif 0 < gen < link and (one.utilization_percent or 0) >= BUSY_PERCENT:
            message = f"GPU {one.index} works at PCIe generation {gen} of {link}"
            found.append(
                Finding(WARN, CHECK, message, "look for link errors with `dmesg | grep -i aer` and seat it anew")
            )
    return found


def _power(chosen: Sequence[Gpu]) -> list[Finding]:
    found = []
    for one in chosen:
        limit, default = one.power_limit_w, one.power_default_w
        if limit is not None and default is not None and limit < default - POWER_SLACK_W:
            message = f"GPU {one.index} is limited to {limit:g} W, its default is {default:g} W"
            remedy = f"run `nvidia-smi -i {one.index} -pl {default:g}` as root, unless the limit is meant"
            found.append(Finding(WARN, CHECK, message, remedy))
    return found


def _throttle(chosen: Sequence[Gpu]) -> list[Finding]:
    found = []
    for reason, remedy in THROTTLE_REMEDIES.items():
        held = [one.index for one in chosen if reason in one.throttle_reasons]
        if reason == "hw_slowdown":
            # It stands for the others of the hardware as well; alone it is one that has no name.
            held = [
                one.index for one in chosen if [name for name in one.throttle_reasons if name[:3] == "hw_"] == [reason]
            ]
        found += _each(held, f"clocks are held down ({reason})", remedy)
    return found


def _mixed(chosen: Sequence[Gpu]) -> list[Finding]:
    kinds = sorted({f"{one.name or 'unnamed'} with {gpu_memory.gib(one.memory_total_bytes)}" for one in chosen})
    if len(kinds) < 2:
        return []
    remedy = "choose alike ones with CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER=PCI_BUS_ID; the smallest sets the pace"
    return [Finding(WARN, CHECK, f"the GPUs are not alike: {', '.join(kinds)}", remedy)]


def _p2p(report: Report, chosen: Sequence[Gpu]) -> list[Finding]:
    """Can they reach each other's memory? Without it NCCL goes through the host's."""
    used = {one.index for one in chosen}
    pairs = [pair for pair in report.p2p if not pair.works and {pair.first, pair.second} <= used]
    if not pairs:
        return []
    reasons = sorted({word for pair in pairs for word in (pair.read, pair.write) if word not in ("OK", "")})
    words = ", ".join(f"{word}: {gpu_topology.P2P_WORDS[word]}" for word in reasons)
    count = "1 pair" if len(pairs) == 1 else f"{len(pairs)} pairs"
    shown = ", ".join(f"{pair.first}-{pair.second}" for pair in pairs[:8]) + (", ..." if len(pairs) > 8 else "")
    remedy = (
        "on the host clear ACS on the bridges above the GPUs or set IOMMU to pt or off; where P2P cannot be had, set "
        "NCCL_P2P_DISABLE=1 together with --disable-custom-all-reduce"
    )
    if "DR" in reasons:
        remedy = f"take the key that disables it out of NVreg_RegistryDwords in /etc/modprobe.d; otherwise {remedy}"
    return [Finding(WARN, CHECK, f"no P2P between {count} of GPUs ({words}): {shown}", remedy)]


def _numa(report: Report, chosen: Sequence[Gpu]) -> list[Finding]:
    """Which nodes they are at, and whether a process here may run near them."""
    nodes: dict[int, list[int]] = {}
    for one in chosen:
        if one.numa_node is not None:
            nodes.setdefault(one.numa_node, []).append(one.index)
    found = []
    if len(nodes) > 1:
        words = ", ".join(f"{gpu_memory.numbers(nodes[node])} at node {node}" for node in sorted(nodes))
        found.append(Finding(OK, CHECK, f"the GPUs are at {len(nodes)} NUMA nodes: {words}"))
    allowed = gpu_topology.parse_cpus(report.allowed_cpus)
    far = [
        one.index
        for one in chosen
        if allowed and (near := gpu_topology.parse_cpus(one.cpu_affinity)) and not near & allowed
    ]
    if far:
        where = f"(allowed are {report.allowed_cpus})"
        message = f"{gpu_memory.numbers(far)}: none of the CPUs near them may be used here {where}"
        found.append(Finding(WARN, CHECK, message, "widen the container's cpuset, or use GPUs near its CPUs"))
    return found


def _nodes(report: Report) -> list[Finding]:
    """nvidia-smi works without the file of unified memory, CUDA does not."""
    if "/dev/nvidia-uvm" not in report.missing_nodes:
        return []
    message = "/dev/nvidia-uvm is not there, and CUDA cannot start without it"
    return [
        Finding(WARN, CHECK, message, "run `nvidia-modprobe -c 0 -u` as root on the host; pass the file to a container")
    ]


def _each(indices: Sequence[int], message: str, remedy: str) -> list[Finding]:
    """One finding for all GPUs of which the same is true."""
    return [Finding(WARN, CHECK, f"{gpu_memory.numbers(indices)}: {message}", remedy)] if indices else []
