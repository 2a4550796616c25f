# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bridges made of bytes: which of them are switched off, and what is put back."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import pcie_acs, pcie_config, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.pcie_config import PciError

PORT, UP, DOWN, GPU, SECOND = "0000:40:01.1", "0000:41:00.0", "0000:42:00.0", "0000:43:00.0", "0000:43:00.1"
APART, NIC = "0000:80:01.1", "0000:81:00.0"


def space(vendor: int, control: int | None, device: int = 0x1234, size: int = 4096) -> bytes:
    """A configuration space; with `control` it has access control services behind another extended capability."""
    data = bytearray(size)
    data[0:4] = vendor.to_bytes(2, "little") + device.to_bytes(2, "little")
    if size > 0x100:
        behind = 0 if control is None else 0x148
        data[0x100:0x104] = (behind << 20 | 0x10001).to_bytes(4, "little")
        if control is not None:
            data[0x148:0x150] = (0x1000D).to_bytes(4, "little") + b"\x5f\x00" + control.to_bytes(2, "little")
    return bytes(data)


class Bus:
    """The bus below a folder, and the writes that came."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pci, self.record = folder, str(folder / "bus"), str(folder / "record")
        self.writes: list[tuple[str, int, bytes]] = []
        self.add(PORT, "pci0000:40", 0x1022, "0x060400", 0x1D)
        self.add(UP, f"pci0000:40/{PORT}", 0x1000, "0x060400", None)
        self.add(DOWN, f"pci0000:40/{PORT}/{UP}", 0x1000, "0x060400", 0x5D)
        self.add(GPU, f"pci0000:40/{PORT}/{UP}/{DOWN}", 0x10DE, "0x030000", 0x11)
        self.add(SECOND, f"pci0000:40/{PORT}/{UP}/{DOWN}", 0x10DE, "0x030200", None)
        self.add(APART, "pci0000:80", 0x1022, "0x060400", 0x1D)
        self.add(NIC, f"pci0000:80/{APART}", 0x15B3, "0x020000", None)

    def add(self, address: str, parent: str, vendor: int, kind: str, control: int | None, device: int = 0x1234) -> None:
        path = self.folder / "devices" / parent / address
        path.mkdir(parents=True, exist_ok=True)
        (path / "config").write_bytes(space(vendor, control, device))
        (path / "vendor").write_text(f"{vendor:#06x}\n")
        (path / "class").write_text(f"{kind}\n")
        link = self.folder / "bus/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(path, link.parent))

    def give(self, address: str) -> None:
        """Have a virtual machine have a device."""
        (self.folder / "bus/devices" / address / "driver").symlink_to("../../../../bus/pci/drivers/vfio-pci")

    def control(self, address: str) -> int:
        found = pcie_config.access_control(pcie_config.of_device(self.pci, address))
        assert found is not None
        return found.control

    def write(self, path: str, offset: int, data: bytes) -> None:
        self.writes.append((Path(path).parent.name, offset, data))
        pcie_config.write_bytes(path, offset, data)

    def off(self, devices: list[str] | None = None, check: bool = False) -> pcie_acs.Outcome:
        return pcie_acs.present(devices, self.pci, self.record, check, self.write)

    def back(self, check: bool = False) -> pcie_acs.Outcome:
        return pcie_acs.absent(self.pci, self.record, check, self.write)

    def notes(self) -> dict[str, Any]:
        return previous_values.read(self.record)


@pytest.fixture
def bus(tmp_path: Path) -> Bus:
    return Bus(tmp_path)


def test_only_bridges_above_gpus_are_switched_off_each_once_and_put_back(bus: Bus) -> None:
    before = {path: path.read_bytes() for path in bus.folder.rglob("config")}
    done = bus.off()
    assert done.changed and done.devices == (GPU, SECOND)
    assert [(entry.address, entry.before, entry.after, entry.status) for entry in done.entries] == [
        (PORT, 0x1D, 0, "set"),
        (UP, None, None, "no_acs"),
        (DOWN, 0x5D, 0, "set"),
    ]
    # Two bytes at the register and nothing else; the GPU's own register and the other root port are as they were.
    assert bus.writes == [(PORT, 0x14E, b"\0\0"), (DOWN, 0x14E, b"\0\0")]
    assert (bus.control(GPU), bus.control(APART)) == (0x11, 0x1D)
    assert bus.notes() == {
        f"pcie_acs/{PORT}": {"control": 0x1D, "device": "1022:1234"},
        f"pcie_acs/{DOWN}": {"control": 0x5D, "device": "1000:1234"},
    }
    again = bus.off()
    assert (again.changed, [entry.status for entry in again.entries]) == (False, ["already", "no_acs", "already"])
    assert bus.back().changed and not bus.back().changed
    assert {path: path.read_bytes() for path in bus.folder.rglob("config")} == before
    assert bus.notes() == {}


def test_what_was_noted_first_stays_when_the_register_was_changed_by_hand(bus: Bus) -> None:
    bus.off()
    pcie_config.write_bytes(f"{bus.pci}/devices/{PORT}/config", 0x14E, b"\x04\0")
    assert [entry.status for entry in bus.off().entries] == ["set", "no_acs", "already"]
    bus.back()
    assert bus.control(PORT) == 0x1D


def test_check_mode_predicts_and_writes_nothing(bus: Bus) -> None:
    assert bus.off(check=True).entries == Bus(bus.folder).off(check=True).entries
    assert (bus.writes, bus.notes(), bus.control(PORT)) == ([], {}, 0x1D)
    done = bus.off()
    assert done.changed
    assert bus.back(check=True).changed and bus.control(PORT) == 0 and len(bus.notes()) == 2


def test_other_bridge_in_the_place_of_a_noted_one_is_left_alone_and_noted_anew(bus: Bus) -> None:
    bus.off()
    bus.add(PORT, "pci0000:40", 0x1022, "0x060400", 0x07, device=0x9999)
    assert [entry.status for entry in bus.back(check=True).entries] == ["not_ours", "restored"]
    bus.off()
    assert bus.notes()[f"pcie_acs/{PORT}"] == {"control": 0x07, "device": "1022:9999"}


def test_bridge_that_is_gone_is_forgotten(bus: Bus) -> None:
    previous_values.remember(bus.record, {"pcie_acs/0000:99:00.0": {"control": 29, "device": "1022:1234"}})
    done = bus.back()
    assert (done.changed, done.entries[0].status, bus.notes()) == (False, "gone", {})


def test_devices_that_are_asked_for_count_instead_of_gpus(bus: Bus) -> None:
    assert [entry.address for entry in bus.off([NIC.upper()]).entries] == [APART]
    with pytest.raises(PciError, match="there is no such device"):
        bus.off(["0000:99:00.0"])


def test_no_gpu_and_no_bus_is_nothing_to_do(tmp_path: Path) -> None:
    assert pcie_acs.gpus(str(tmp_path)) == []
    assert not pcie_acs.present(None, str(tmp_path), str(tmp_path / "record"), False).changed
    previous_values.remember(str(tmp_path / "record"), {"pcie_acs/0000:99:00.0": {"control": 1, "device": "1:1"}})
    with pytest.raises(PciError, match="mount /sys"):
        pcie_acs.absent(str(tmp_path), str(tmp_path / "record"), False)


def test_bridge_whose_extended_space_is_hidden_has_none(bus: Bus) -> None:
    (bus.folder / "bus/devices" / PORT / "config").write_bytes(space(0x1022, None, size=256))
    assert [entry.status for entry in bus.off().entries] == ["no_acs", "no_acs", "set"]


def test_register_that_does_not_take_the_value_fails_and_tells_what_was_done(bus: Bus) -> None:
    def ignoring(path: str, offset: int, data: bytes) -> None:
        if Path(path).parent.name != DOWN:
            pcie_config.write_bytes(path, offset, data)

    with pytest.raises(PciError, match=f"bridge {DOWN} to 0000: it reads 005d") as failed:
        pcie_acs.present(None, bus.pci, bus.record, False, ignoring)
    assert failed.value.facts["changed"] is True and failed.value.facts["bridges"][0]["status"] == "set"
    # The note is there already, so that the next restore is right.
    assert bus.notes()[f"pcie_acs/{DOWN}"]["control"] == 0x5D


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.EROFS, "on the hypervisor"), (errno.EPERM, "Secure Boot"), (errno.EIO, "kernel's log")],
)
def test_refused_write_says_what_to_do(bus: Bus, number: int, remedy: str) -> None:
    def refusing(_path: str, _offset: int, _data: bytes) -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(PciError, match=remedy):
        pcie_acs.present(None, bus.pci, bus.record, False, refusing)


@pytest.mark.parametrize(
    "note", [None, {"control": "1d", "device": "x"}, {"control": True, "device": "x"}, {"control": 1}]
)
def test_damaged_note_is_an_error_and_nothing_is_written(bus: Bus, note: Any) -> None:
    previous_values.remember(bus.record, {f"pcie_acs/{PORT}": note})
    for step in (bus.off, bus.back):
        with pytest.raises(PciError, match="is not as this collection notes it"):
            step()
    assert bus.writes == []


def test_gpu_of_a_virtual_machine_is_left_out_with_the_bridges_above_it(bus: Bus) -> None:
    bus.add("0000:81:00.1", f"pci0000:80/{APART}", 0x10DE, "0x030200", None)
    bus.give("0000:81:00.1")
    # Another driver is none of a virtual machine.
    (bus.folder / "bus/devices" / GPU / "driver").symlink_to("../../drivers/nvidia")
    done = bus.off()
    assert (done.devices, done.given) == ((GPU, SECOND), ("0000:81:00.1",))
    assert [(entry.address, entry.status) for entry in done.entries] == [(PORT, "set"), (UP, "no_acs"), (DOWN, "set")]
    assert bus.control(APART) == 0x1D and f"pcie_acs/{APART}" not in bus.notes()
    named = bus.off(["0000:81:00.1"])
    assert (named.changed, named.devices, named.given, named.entries) == (False, (), ("0000:81:00.1",), ())
    assert pcie_acs.above(bus.pci, ["0000:81:00.1"]) == []


@pytest.mark.parametrize("given", [SECOND, "0000:42:01.0"])
def test_bridge_above_a_device_of_a_virtual_machine_and_a_gpu_of_the_host_is_refused(bus: Bus, given: str) -> None:
    # The second shares with the GPU only the bridges further up.
    bus.add("0000:42:01.0", f"pci0000:40/{PORT}/{UP}", 0x15B3, "0x020000", None)
    bus.give(given)
    for check in (True, False):
        with pytest.raises(PciError, match="leave access control unchanged on this host") as failed:
            bus.off(check=check)
        assert failed.value.facts == {"bridge": PORT, "host_device": GPU, "vm_device": given}
        assert all(each in str(failed.value) for each in (PORT, GPU, given, "vfio-pci"))
    assert (bus.writes, bus.notes()) == ([], {})


def test_bridge_that_was_switched_off_before_its_gpu_was_given_away_is_put_back(bus: Bus) -> None:
    bus.off([GPU, NIC])
    bus.give(GPU)
    bus.give(SECOND)
    bus.writes.clear()
    predicted = bus.off([NIC], check=True)
    assert (bus.writes, bus.control(PORT), len(bus.notes())) == ([], 0, 3)
    done = bus.off([NIC])
    assert done == predicted
    assert [(entry.address, entry.after, entry.status) for entry in done.entries] == [
        (PORT, 0x1D, "restored"),
        (DOWN, 0x5D, "restored"),
        (APART, 0, "already"),
    ]
    assert [bus.control(each) for each in (PORT, DOWN, APART)] == [0x1D, 0x5D, 0]
    assert list(bus.notes()) == [f"pcie_acs/{APART}"]
    assert not bus.off([NIC]).changed


def test_lines_show_only_what_has_the_register(bus: Bus) -> None:
    entries = bus.off().entries
    assert pcie_acs.lines(entries, after=False) == f"{PORT}: 001d\n{DOWN}: 005d\n"
    assert pcie_acs.described(entries)[1] == {"address": UP, "before": None, "after": None, "status": "no_acs"}
