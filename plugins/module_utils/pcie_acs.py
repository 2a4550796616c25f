# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Access control services of the bridges above GPUs: switched off, and put back.

With them a bridge sends what one GPU wants of another up to the root complex instead of across. All of the bits of the
ACS Control Register (PCI Express Base Specification, 7.7.11.3) are cleared, on root ports and on switch ports alike:
one port that redirects is enough for the detour (NCCL documentation, "PCI Access Control Services (ACS)"). Bridges that
have no GPU of the host below them are never touched, since the register also keeps devices of virtual machines apart:
GPUs that are given to one are left out, and a bridge above both is refused.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import pcie_config, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.pcie_config import PciError

#: Notes of what was there before are `pcie_acs/<address>`.
KEY = "pcie_acs/"
SET, ALREADY, NO_ACS = "set", "already", "no_acs"
RESTORED, NOT_OURS, GONE = "restored", "not_ours", "gone"

_NVIDIA = "0x10de"
#: VGA controller, 3D controller and other display controller (PCI Code and ID Assignment Specification).
_DISPLAYS = ("0x0300", "0x0302", "0x0380")
_OFF = 0
_CONTROL_OFFSET = 6

Write = Callable[[str, int, bytes], None]


@dataclass(frozen=True)
class Bridge:
    """A bridge and what it has: None without access control services. `device` is vendor and device id."""

    address: str
    device: str
    control: pcie_config.AccessControl | None


@dataclass(frozen=True)
class Entry:
    """What became of one bridge; values are the 16 bits of the control register, None where there is none."""

    address: str
    before: int | None
    after: int | None
    status: str


@dataclass(frozen=True)
class Outcome:
    """`changed` is about the bridges, not about our notes. `given` are devices that a virtual machine has."""

    changed: bool
    devices: tuple[str, ...]
    entries: tuple[Entry, ...]
    given: tuple[str, ...] = ()


def gpus(sys_pci: str) -> list[str]:
    """Addresses of the NVIDIA GPUs on the bus, in order; none where there is no bus."""
    folder = os.path.join(sys_pci, "devices")
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [
        name
        for name in names
        if _text(folder, name, "vendor") == _NVIDIA and _text(folder, name, "class").startswith(_DISPLAYS)
    ]


def above(sys_pci: str, devices: Iterable[str]) -> list[Bridge]:
    """The bridges above devices of the host, each once, from the root down; devices of virtual machines are left out.

    Raises PciError, also when one of the bridges has a device of a virtual machine below it too.
    """
    given = pcie_config.given_to_vms(sys_pci)
    addresses = [pcie_config.normalised(device) for device in devices]
    ours: dict[str, str] = {}
    for address in addresses:
        if address not in given:
            ours.update({bridge: address for bridge in pcie_config.bridges_of(sys_pci, address) if bridge not in ours})
    for other in given:
        for bridge in pcie_config.bridges_of(sys_pci, other):
            if bridge in ours:
                raise _shared(bridge, ours[bridge], other)
    return [bridge_of(sys_pci, address) for address in ours]


def bridge_of(sys_pci: str, address: str) -> Bridge:
    """One bridge as it is. Raises PciError."""
    space = pcie_config.of_device(sys_pci, address)
    device = pcie_config.identity(space)
    if space.size <= 0x100:
        # The kernel shows 256 bytes of what has no extended configuration space.
        return Bridge(address, device, None)
    return Bridge(address, device, pcie_config.access_control(space))


def present(
    devices: Sequence[str] | None,
    sys_pci: str,
    record_dir: str,
    check_mode: bool,
    write: Write = pcie_config.write_bytes,
) -> Outcome:
    """Clear the control register of all bridges above devices, with None those above all NVIDIA GPUs.

    What is noted of a bridge that has a device of a virtual machine below it by now is put back. All are looked at
    before the first is changed. Raises PciError and RecordError.
    """
    asked = gpus(sys_pci) if devices is None else [pcie_config.normalised(device) for device in devices]
    given = pcie_config.given_to_vms(sys_pci)
    bridges = above(sys_pci, asked)
    to_set = [bridge for bridge in bridges if bridge.control is not None and bridge.control.control != _OFF]
    for bridge in to_set:
        _check_writable(sys_pci, bridge.address)
    notes = previous_values.read(record_dir) if to_set or given else {}
    lost = {bridge for device in given for bridge in pcie_config.bridges_of(sys_pci, device)}
    entries = _put_back(sorted(lost), notes, sys_pci, record_dir, check_mode, write)
    if to_set and not check_mode:
        stale = [KEY + each.address for each in to_set if _is_stale(each, notes, record_dir)]
        previous_values.forget(record_dir, stale)
        previous_values.remember(record_dir, {KEY + each.address: _note(each) for each in to_set})
    for bridge in bridges:
        before = bridge.control.control if bridge.control else None
        if bridge.control is None:
            entries.append(Entry(bridge.address, None, None, NO_ACS))
        elif bridge not in to_set:
            entries.append(Entry(bridge.address, before, before, ALREADY))
        else:
            if not check_mode:
                _apply(bridge, bridge.control, _OFF, sys_pci, write, entries)
            entries.append(Entry(bridge.address, before, _OFF, SET))
    left_out = tuple(device for device in asked if device in given)
    return _outcome([device for device in asked if device not in given], entries, left_out)


def absent(sys_pci: str, record_dir: str, check_mode: bool, write: Write = pcie_config.write_bytes) -> Outcome:
    """Put back what is noted of all bridges, and forget it. Raises PciError and RecordError."""
    notes = previous_values.read(record_dir)
    noted = sorted(key[len(KEY) :] for key in notes if key.startswith(KEY))
    if noted and not os.path.isdir(os.path.join(sys_pci, "devices")):
        raise PciError(f"looking for PCI devices in {sys_pci}/devices: no such directory; mount /sys", path=sys_pci)
    return _outcome((), _put_back(noted, notes, sys_pci, record_dir, check_mode, write))


def _put_back(
    addresses: Sequence[str], notes: Mapping[str, Any], sys_pci: str, record_dir: str, check_mode: bool, write: Write
) -> list[Entry]:
    """Put back what is noted of those bridges, and forget it. All are looked at before the first is changed."""
    noted = [address for address in addresses if KEY + address in notes]
    entries: list[Entry] = []
    steps: list[tuple[Bridge, pcie_config.AccessControl, int]] = []
    for address in noted:
        value, device = _noted(KEY + address, notes, record_dir)
        if not os.path.lexists(os.path.join(sys_pci, "devices", address)):
            entries.append(Entry(address, None, None, GONE))
            continue
        bridge = bridge_of(sys_pci, address)
        if bridge.device != device or bridge.control is None:
            before = bridge.control.control if bridge.control else None
            entries.append(Entry(address, before, before, NOT_OURS))
        else:
            steps.append((bridge, bridge.control, value))
    for bridge, control, value in steps:
        if control.control != value:
            _check_writable(sys_pci, bridge.address)
    for bridge, control, value in steps:
        if control.control != value and not check_mode:
            _apply(bridge, control, value, sys_pci, write, entries)
        entries.append(Entry(bridge.address, control.control, value, RESTORED))
    if not check_mode:
        previous_values.forget(record_dir, [KEY + address for address in noted])
    return sorted(entries, key=lambda entry: entry.address)


def described(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Entries as plain values, registers as lspci and setpci write them."""
    return [
        {"address": entry.address, "before": _hex(entry.before), "after": _hex(entry.after), "status": entry.status}
        for entry in entries
    ]


def lines(entries: Sequence[Entry], after: bool) -> str:
    """The registers as text, one bridge a line, before or after."""
    pairs = [(entry.address, entry.after if after else entry.before) for entry in entries]
    return "".join(f"{address}: {_hex(value)}\n" for address, value in pairs if value is not None)


def _hex(value: int | None) -> str | None:
    return None if value is None else f"{value:04x}"


def _text(folder: str, name: str, file: str) -> str:
    try:
        with open(os.path.join(folder, name, file), encoding="ascii", errors="replace") as stream:
            return stream.read(64).strip().lower()
    except OSError:
        return ""


def _note(bridge: Bridge) -> dict[str, Any]:
    return {"control": bridge.control.control if bridge.control else None, "device": bridge.device}


def _is_stale(bridge: Bridge, notes: Mapping[str, Any], record_dir: str) -> bool:
    """Whether another device had this address when it was noted."""
    key = KEY + bridge.address
    return key in notes and _noted(key, notes, record_dir)[1] != bridge.device


def _noted(key: str, notes: Mapping[str, Any], record_dir: str) -> tuple[int, str]:
    """Register and device of a note. Raises PciError for one that is none of ours."""
    note = notes[key]
    if isinstance(note, Mapping) and isinstance(note.get("device"), str):
        value = note.get("control")
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 0xFFFF:
            return value, note["device"]
    raise PciError(
        f"reading what access control was, {os.path.join(record_dir, previous_values.FILE)}: {key} is not as this "
        "collection notes it; put a backup back, or remove the key and set the register by hand",
        key=key,
        found=note,
    )


def _check_writable(sys_pci: str, address: str) -> None:
    """Open what is to be written, so that a place that may not is found before the first change."""
    path = os.path.join(sys_pci, "devices", address, "config")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        raise _refused(path, address, error) from error


def _apply(
    bridge: Bridge,
    control: pcie_config.AccessControl,
    value: int,
    sys_pci: str,
    write: Write,
    done: Sequence[Entry],
) -> None:
    """Write and read back. An error's facts tell what had been done until then."""
    path = os.path.join(sys_pci, "devices", bridge.address, "config")
    try:
        try:
            write(path, control.offset + _CONTROL_OFFSET, value.to_bytes(2, "little"))
        except OSError as error:
            raise _refused(path, bridge.address, error) from error
        fresh = bridge_of(sys_pci, bridge.address).control
        reads = fresh.control if fresh else None
        if reads != value:
            raise PciError(
                f"setting access control of the bridge {bridge.address} to {value:04x}: it reads {_hex(reads)} "
                "afterwards; look for a firmware setting that locks it, or leave it unchanged",
                device=bridge.address,
                wanted=_hex(value),
                reads=_hex(reads),
            )
    except PciError as error:
        error.facts.update(changed=_outcome((), done).changed, bridges=described(done))
        raise


def _refused(path: str, address: str, error: OSError) -> PciError:
    remedy = "look at the kernel's log"
    if error.errno in (errno.EROFS, errno.EACCES):
        remedy = "a container cannot set the bridges of its machine: run this on the hypervisor, as root"
    elif error.errno == errno.EPERM:
        remedy = "run as root, on the hypervisor; a kernel that is locked down, as with Secure Boot, allows nobody"
    return PciError(f"setting access control in {path}: {error.strerror}; {remedy}", device=address)


def _shared(bridge: str, ours: str, other: str) -> PciError:
    return PciError(
        f"switching off access control of the bridge {bridge}: below it are {ours}, which this host uses, and {other}, "
        f"which {pcie_config.VFIO} gives to a virtual machine, and without it they are not kept apart; leave access "
        "control unchanged on this host, or let the host or virtual machines have both",
        bridge=bridge,
        host_device=ours,
        vm_device=other,
    )


def _outcome(devices: Sequence[str], entries: Sequence[Entry], given: tuple[str, ...] = ()) -> Outcome:
    return Outcome(any(entry.before != entry.after for entry in entries), tuple(devices), tuple(entries), given)
