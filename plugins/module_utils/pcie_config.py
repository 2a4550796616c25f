# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The configuration space of PCI Express devices: Max_Read_Request_Size, access control, and the bridges above one.

Offsets and fields are those of the PCI Express Base Specification: 7.5.1.1 (header), 7.5.3 (PCI Express capability;
7.5.3.4 is Device Control), 7.6.3 and 7.7.11 (extended capabilities, access control services).

It is read and written through the kernel's file `config` of a device (PCI/sysfs-pci in the kernel's documentation).
That is the file setpci uses, so setpci, which few hosts have, adds nothing. Two bytes at an even place become one
16-bit access of the kernel. Four would not do: behind Device Control lies Device Status, whose bits are cleared by
writing them back.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

SYS_PCI = "/sys/bus/pci"
#: What Max_Read_Request_Size can be, in bytes, in the order of its encodings 0 to 5. 6 and 7 are reserved.
READ_REQUESTS = (128, 256, 512, 1024, 2048, 4096)
#: Notes of what was there before are `pcie_read_request/<address>`; devices that were seen to ignore a write have the
#: other one.
KEY = "pcie_read_request/"
READ_ONLY_KEY = "pcie_read_request_read_only/"

SET, ALREADY, READ_ONLY = "set", "already", "unchanged_readonly"
RESTORED, NOT_OURS, GONE = "restored", "not_ours", "gone"
#: Of a device that a virtual machine has.
GIVEN = "given_to_vm"
#: Driver of devices that are given to virtual machines.
VFIO = "vfio-pci"

_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]"
_HOST_BRIDGE = r"pci[0-9a-f]{4,8}:[0-9a-f]{2}"

_STATUS, _HEADER_TYPE, _HAS_LIST = 0x06, 0x0E, 0x10
#: Where the list of capabilities begins, by header type: device, bridge, CardBus bridge.
_FIRST_POINTER = {0: 0x34, 1: 0x34, 2: 0x14}
_HEADER_BYTES, _EXTENDED = 0x40, 0x100
_PCI_EXPRESS, _ACCESS_CONTROL = 0x10, 0x000D
_EXPRESS_FLAGS, _DEVICE_CONTROL = 0x02, 0x08
_SHIFT, _MASK = 12, 0x7000
#: Of a bridge from PCI Express to PCI, type 7, this is a setting; everywhere else writing it resets the device.
_RESET, _BRIDGE_TO_PCI = 0x8000, 7

Write = Callable[[str, int, bytes], None]


class PciError(HostError):
    """A PCI device cannot be read or set; the text says which, why and what to do."""


@dataclass(frozen=True)
class Space:
    """A configuration space: `read` gives up to so many bytes from an offset, `size` is how many there are."""

    address: str
    size: int
    read: Callable[[int, int], bytes]

    def number(self, offset: int, size: int) -> int:
        """The little-endian number of `size` bytes at `offset`. Raises PciError when they are not there."""
        data = self.read(offset, size)
        if len(data) != size:
            why = f"it ends before byte {offset + size:#x}; run as root, since others see its first 64 bytes"
            raise PciError(f"reading the configuration space of {self.address}: {why}", device=self.address)
        return int.from_bytes(data, "little")

    def damaged(self, why: str) -> PciError:
        """An error about what was read."""
        remedy = "the device does not answer as it should, so look at it with lspci -vv and in the kernel's log"
        return PciError(f"reading the configuration space of {self.address}: {why}; {remedy}", device=self.address)


@dataclass(frozen=True)
class Control:
    """A device's register Device Control: where in its configuration space, and its 16 bits.

    `device` is vendor and device id such as 10de:2bb5.
    """

    address: str
    device: str
    offset: int
    value: int

    @property
    def read_request(self) -> int:
        """Max_Read_Request_Size in bytes."""
        return READ_REQUESTS[(self.value & _MASK) >> _SHIFT]


@dataclass(frozen=True)
class AccessControl:
    """Access control services: what the bridge can do, and what is switched on, as their registers' 16 bits."""

    offset: int
    capability: int
    control: int


@dataclass(frozen=True)
class Entry:
    """What became of one device, sizes in bytes. None where there is no device, or nothing is wanted of it."""

    address: str
    before: int | None
    after: int | None
    wanted: int | None
    status: str


@dataclass(frozen=True)
class Outcome:
    """`changed` is about the devices, not about our notes."""

    changed: bool
    entries: tuple[Entry, ...]


def normalised(address: str) -> str:
    """An address as the kernel writes it: 0000:c1:00.0 for 00000000:C1:00.0. Raises PciError."""
    text = address.lower()
    if not re.fullmatch(_ADDRESS, text):
        raise PciError(
            f"looking for PCI device {address[:60]!r}: this is no address; write domain, bus, device and function as "
            "lspci -D does, such as 0000:c1:00.0",
            device=address,
        )
    domain, rest = text.split(":", 1)
    return f"{int(domain, 16):04x}:{rest}"


def of_bytes(address: str, data: bytes) -> Space:
    """A configuration space that is at hand as bytes."""
    return Space(address, len(data), lambda offset, size: data[offset : offset + size])


def of_device(sys_pci: str, address: str) -> Space:
    """The configuration space of a device, read when it is asked for. Raises PciError when there is no such device."""
    path = _config(sys_pci, address)
    try:
        size = os.stat(path).st_size
    except OSError as error:
        why = "there is no such device" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise PciError(
            f"looking for PCI device {address} in {os.path.join(sys_pci, 'devices')}: {why}; compare with lspci -D",
            device=address,
        ) from error

    def read(offset: int, count: int) -> bytes:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.pread(descriptor, count, offset)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise PciError(f"reading {path}: {error.strerror}; run as root", device=address) from error

    return Space(address, size, read)


def write_bytes(path: str, offset: int, data: bytes) -> None:
    """Write into a configuration space in one call. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, data, offset)
    finally:
        os.close(descriptor)


def identity(space: Space) -> str:
    """Vendor and device id. Raises PciError when nothing answers, which reads as all ones."""
    vendor, device = space.number(0, 2), space.number(2, 2)
    if vendor == 0xFFFF:
        raise space.damaged("nothing answers")
    return f"{vendor:04x}:{device:04x}"


def capability(space: Space, wanted: int) -> int | None:
    """Where the first capability with that id begins, None when the list has none. Raises PciError."""
    if not space.number(_STATUS, 2) & _HAS_LIST:
        return None
    kind = space.number(_HEADER_TYPE, 1) & 0x7F
    if kind not in _FIRST_POINTER:
        raise space.damaged(f"its header has the unknown type {kind:#x}")
    # The two lowest bits are reserved and are to be masked.
    place = space.number(_FIRST_POINTER[kind], 1) & 0xFC
    seen = set()
    while place:
        if place < _HEADER_BYTES or place in seen:
            raise space.damaged(f"its list of capabilities leads to byte {place:#x} {_again(place in seen)}")
        seen.add(place)
        if space.number(place, 1) == wanted:
            return place
        place = space.number(place + 1, 1) & 0xFC
    return None


def extended_capability(space: Space, wanted: int) -> int | None:
    """Where the first extended capability with that id begins, None without one. Raises PciError."""
    place, seen = _EXTENDED, set()
    while place and space.size > _EXTENDED:
        if place < _EXTENDED or place in seen:
            raise space.damaged(f"its list of extended capabilities leads to byte {place:#x} {_again(place in seen)}")
        seen.add(place)
        header = space.number(place, 4)
        # No list at all reads as zeros, and as ones behind some bridges.
        if header in (0, 0xFFFFFFFF):
            return None
        if header & 0xFFFF == wanted:
            return place
        place = header >> 20 & 0xFFC
    return None


def device_control(space: Space) -> Control:
    """The register Device Control. Raises PciError for a device that has none, or whose bits make no sense."""
    device = identity(space)
    place = capability(space, _PCI_EXPRESS)
    if place is None:
        raise PciError(
            f"looking for the PCI Express capability of {space.address}: it has none, so there is no read request size "
            "to set; leave the device out",
            device=space.address,
        )
    value = space.number(place + _DEVICE_CONTROL, 2)
    kind = space.number(place + _EXPRESS_FLAGS, 2) >> 4 & 0xF
    if (value & _MASK) >> _SHIFT >= len(READ_REQUESTS):
        raise space.damaged(f"Device Control reads {value:#06x}, whose read request size is a reserved one")
    if value & _RESET and kind != _BRIDGE_TO_PCI:
        raise space.damaged(f"Device Control reads {value:#06x}, and writing that back would reset the device")
    return Control(space.address, device, place + _DEVICE_CONTROL, value)


def with_read_request(value: int, size: int) -> int:
    """Device Control with another Max_Read_Request_Size, in bytes, and all other bits as they are."""
    return value & ~_MASK & 0xFFFF | READ_REQUESTS.index(size) << _SHIFT


def access_control(space: Space) -> AccessControl | None:
    """Access control services of a bridge or function, None without them. Raises PciError."""
    place = extended_capability(space, _ACCESS_CONTROL)
    if place is None:
        return None
    return AccessControl(place, space.number(place + 4, 2), space.number(place + 6, 2))


def bridges_above(real_path: str) -> tuple[str, ...]:
    """The bridges on the way to a device, root port first, from its directory's path without links.

    Empty for a device on the root bus. Behind a controller with a domain of its own, such as Intel's VMD, only that
    domain's bridges are on the way of requests between devices, so it begins there.
    """
    found: list[str] = []
    for part in real_path.rstrip("/").split("/"):
        if re.fullmatch(_HOST_BRIDGE, part):
            found = []
        elif re.fullmatch(_ADDRESS, part):
            found.append(part)
    return tuple(found[:-1])


def bridges_of(sys_pci: str, address: str) -> tuple[str, ...]:
    """The bridges above a device, root port first. Raises PciError when there is no such device."""
    of_device(sys_pci, address)
    return bridges_above(os.path.realpath(os.path.join(sys_pci, "devices", address)))


def given_to_vms(sys_pci: str) -> list[str]:
    """Addresses of the devices that are given to virtual machines, those that vfio-pci drives, in order."""
    folder = os.path.join(sys_pci, "devices")
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [name for name in names if _driver(os.path.join(folder, name)) == VFIO]


def present(
    devices: Iterable[str], size: int, sys_pci: str, record_dir: str, check_mode: bool, write: Write = write_bytes
) -> Outcome:
    """Set Max_Read_Request_Size to `size` bytes. All devices are looked at before the first is changed.

    A device that was seen to ignore a write is not written again while it reads the same. One that a virtual machine
    has is neither read nor written: it may be powered down, and its settings are the business of its machine.
    Raises PciError and RecordError.
    """
    asked, given = _each(devices), given_to_vms(sys_pci)
    controls = [device_control(of_device(sys_pci, address)) for address in asked if address not in given]
    notes = previous_values.read(record_dir)
    to_set = [control for control in controls if control.read_request != size and not _ignores(control, notes)]
    for control in to_set:
        _check_writable(sys_pci, control.address)
    if to_set and not check_mode:
        # Another device at the same address: what is noted is about one that is not there any more.
        stale = [
            _key(control)
            for control in to_set
            if _key(control) in notes and _noted(_key(control), notes, record_dir)[1] != control.device
        ]
        previous_values.forget(record_dir, stale)
        previous_values.remember(record_dir, {_key(control): _note(control) for control in to_set})
        notes = {key: value for key, value in notes.items() if key not in stale}
    entries: list[Entry] = []
    for control in controls:
        before = control.read_request
        if before == size:
            entries.append(Entry(control.address, before, before, size, ALREADY))
        elif control not in to_set:
            entries.append(Entry(control.address, before, before, size, READ_ONLY))
        elif check_mode:
            entries.append(Entry(control.address, before, size, size, SET))
        else:
            after = _apply(control, size, sys_pci, write, entries, may_ignore=True)
            _learn(control, after, notes, record_dir)
            entries.append(Entry(control.address, before, after, size, SET if after == size else READ_ONLY))
    entries += [Entry(address, None, None, None, GIVEN) for address in asked if address in given]
    return _outcome(sorted(entries, key=lambda entry: asked.index(entry.address)))


def absent(
    devices: Iterable[str] | None, sys_pci: str, record_dir: str, check_mode: bool, write: Write = write_bytes
) -> Outcome:
    """Put back what is noted of the devices, of all with None, and forget it. Raises PciError and RecordError.

    What is noted of a device that a virtual machine has is kept, so that it is put back once the host has it again.
    """
    notes = previous_values.read(record_dir)
    noted = [key[len(KEY) :] for key in notes if key.startswith(KEY)]
    marked = [key[len(READ_ONLY_KEY) :] for key in notes if key.startswith(READ_ONLY_KEY)]
    asked = _each(devices if devices is not None else sorted({*noted, *marked}))
    if asked and not os.path.isdir(os.path.join(sys_pci, "devices")):
        raise PciError(f"looking for PCI devices in {sys_pci}/devices: no such directory; mount /sys", path=sys_pci)
    given = given_to_vms(sys_pci)
    entries: list[Entry] = []
    steps: list[tuple[Control, int]] = []
    for address in asked:
        if address in given:
            entries.append(Entry(address, None, None, None, GIVEN))
            continue
        if not os.path.lexists(os.path.join(sys_pci, "devices", address)):
            entries.append(Entry(address, None, None, None, GONE))
            continue
        space = of_device(sys_pci, address)
        size, device = _noted(KEY + address, notes, record_dir) if address in noted else (None, "")
        if size is not None and device == identity(space):
            control = device_control(space)
            steps.append((control, size))
            if control.read_request != size:
                _check_writable(sys_pci, address)
        else:
            before = None if capability(space, _PCI_EXPRESS) is None else device_control(space).read_request
            entries.append(Entry(address, before, before, None, NOT_OURS))
    for control, size in steps:
        before = control.read_request
        after = size if check_mode or before == size else _apply(control, size, sys_pci, write, entries)
        entries.append(Entry(control.address, before, after, size, RESTORED))
    if not check_mode:
        done = [address for address in asked if address not in given]
        previous_values.forget(record_dir, [prefix + address for address in done for prefix in (KEY, READ_ONLY_KEY)])
    return _outcome(sorted(entries, key=lambda entry: asked.index(entry.address)))


def described(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Entries as plain values."""
    return [
        {
            "address": entry.address,
            "before": entry.before,
            "after": entry.after,
            "wanted": entry.wanted,
            "status": entry.status,
        }
        for entry in entries
    ]


def lines(entries: Sequence[Entry], after: bool) -> str:
    """The sizes as text, one device a line, before or after."""
    pairs = [(entry.address, entry.after if after else entry.before) for entry in entries]
    return "".join(f"{address}: {size} bytes\n" for address, size in pairs if size is not None)


def _again(looped: bool) -> str:
    return "a second time" if looped else "inside its header"


def _each(devices: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(normalised(address) for address in devices))


def _config(sys_pci: str, address: str) -> str:
    return os.path.join(sys_pci, "devices", address, "config")


def _driver(folder: str) -> str:
    """The driver of a device, empty without one."""
    try:
        return os.path.basename(os.readlink(os.path.join(folder, "driver")))
    except OSError:
        return ""


def _key(control: Control) -> str:
    return KEY + control.address


def _note(control: Control) -> dict[str, Any]:
    return {"bytes": control.read_request, "device": control.device}


def _noted(key: str, notes: Mapping[str, Any], record_dir: str) -> tuple[int, str]:
    """Size and device of a note. Raises PciError for one that is none of ours."""
    note = notes[key]
    if isinstance(note, Mapping) and isinstance(note.get("device"), str):
        size = note.get("bytes")
        if isinstance(size, int) and size in READ_REQUESTS:
            return size, note["device"]
    raise PciError(
        f"reading what read request sizes were, {os.path.join(record_dir, previous_values.FILE)}: {key} is not as this "
        "collection notes it; put a backup back, or remove the key and set the size by hand",
        key=key,
        found=note,
    )


def _ignores(control: Control, notes: Mapping[str, Any]) -> bool:
    """Whether this device was seen to ignore a write, and nothing has changed it since."""
    return bool(notes.get(READ_ONLY_KEY + control.address) == _note(control))


def _learn(control: Control, after: int, notes: Mapping[str, Any], record_dir: str) -> None:
    """Note whether the device took the write. What it was before is no news of one that ignores writes."""
    mark = READ_ONLY_KEY + control.address
    if mark in notes:
        previous_values.forget(record_dir, [mark])
    if after != control.read_request:
        return
    previous_values.remember(record_dir, {mark: _note(control)})
    if _key(control) not in notes:
        previous_values.forget(record_dir, [_key(control)])


def _check_writable(sys_pci: str, address: str) -> None:
    """Open what is to be written, so that a place that may not is found before the first change."""
    path = _config(sys_pci, address)
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        raise _refused(path, address, error) from error


def _apply(
    control: Control, size: int, sys_pci: str, write: Write, done: Sequence[Entry], may_ignore: bool = False
) -> int:
    """Write and read back: the size that it reads then. An error's facts tell what had been done until then."""
    path = _config(sys_pci, control.address)
    space = of_device(sys_pci, control.address)
    try:
        # Read again: a driver may have set another bit of the register meanwhile.
        fresh = device_control(space)
        try:
            write(path, fresh.offset, with_read_request(fresh.value, size).to_bytes(2, "little"))
        except OSError as error:
            raise _refused(path, control.address, error) from error
        after = device_control(space).read_request
        if after == size or (may_ignore and after == control.read_request):
            return after
        raise PciError(
            f"setting the read request size of {control.address} to {size} bytes: it reads {after} afterwards, and was "
            f"{control.read_request}; ask for a size that the device takes",
            device=control.address,
            wanted=size,
            reads=after,
        )
    except PciError as error:
        error.facts.update(
            changed=_outcome(done).changed or error.facts.get("reads") not in (None, control.read_request),
            devices=described(done),
        )
        raise


def _refused(path: str, address: str, error: OSError) -> PciError:
    remedy = "look at the kernel's log"
    if error.errno in (errno.EROFS, errno.EACCES):
        remedy = "a container cannot set the devices of its machine: run this on the hypervisor, as root"
    elif error.errno == errno.EPERM:
        remedy = "run as root, on the hypervisor; a kernel that is locked down, as with Secure Boot, allows nobody"
    return PciError(f"setting the read request size in {path}: {error.strerror}; {remedy}", device=address)


def _outcome(entries: Sequence[Entry]) -> Outcome:
    return Outcome(any(entry.before != entry.after for entry in entries), tuple(entries))
