# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration spaces made of bytes: what is read of them, what is written, and what is put back."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import pcie_config, previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.pcie_config import PciError

GPU, NIC, PORT = "0000:c1:00.0", "0000:21:00.1", "0000:c0:01.1"
#: Where the devices made here have Device Control.
CONTROL = 0x68


def space(
    *,
    size: int = 4096,
    device: int = 0x2BB5,
    control: int = 0x2810,
    kind: int = 0,
    capabilities: tuple[tuple[int, int], ...] = ((0x40, 0x01), (0x48, 0x05), (0x60, 0x10)),
    extended: tuple[tuple[int, int], ...] = ((0x100, 0x0001), (0x148, 0x000D)),
) -> bytearray:
    """A function's bytes. `capabilities` and `extended` are places and ids, linked in that order."""
    data = bytearray(size)
    data[0:4] = (0x10DE).to_bytes(2, "little") + device.to_bytes(2, "little")
    data[0x06] = 0x10 if capabilities else 0
    for index, (place, number) in enumerate(capabilities):
        after = capabilities[index + 1][0] if index + 1 < len(capabilities) else 0
        data[place : place + 2] = bytes([number, after])
        if number == 0x10:
            data[place + 2 : place + 4] = (kind << 4 | 2).to_bytes(2, "little")
            data[place + 8 : place + 12] = control.to_bytes(2, "little") + b"\x0f\x00"
    data[0x34] = capabilities[0][0] if capabilities else 0
    if size > 0x100:
        for index, (place, number) in enumerate(extended):
            after = extended[index + 1][0] if index + 1 < len(extended) else 0
            data[place : place + 4] = (after << 20 | 1 << 16 | number).to_bytes(4, "little")
            if number == 0x000D:
                data[place + 4 : place + 8] = b"\x5f\x00\x1d\x00"
    return data


class Bus:
    """A bus below `folder` and the writes that came. Devices in `fixed` ignore them, those in `most` take no more."""

    def __init__(self, folder: Path) -> None:
        self.pci = folder / "bus" / "pci"
        self.record = str(folder / "record")
        self.writes: list[tuple[str, int, bytes]] = []
        self.fixed: set[str] = set()
        self.most: dict[str, int] = {}
        (self.pci / "devices").mkdir(parents=True)

    def add(self, address: str, data: bytes | bytearray | None = None) -> Path:
        """Plug in a device."""
        path = self.pci / "devices" / address
        path.mkdir(exist_ok=True)
        (path / "config").write_bytes(space() if data is None else data)
        return path / "config"

    def remove(self, address: str) -> None:
        (self.pci / "devices" / address / "config").unlink()
        (self.pci / "devices" / address).rmdir()

    def write(self, path: str, offset: int, data: bytes) -> None:
        """What a device does with two bytes."""
        address = Path(path).parent.name
        self.writes.append((address, offset, data))
        if address in self.most:
            size = pcie_config.with_read_request(int.from_bytes(data, "little"), self.most[address])
            data = size.to_bytes(2, "little")
        if address not in self.fixed:
            pcie_config.write_bytes(path, offset, data)

    def present(self, size: int, *devices: str, check: bool = False) -> pcie_config.Outcome:
        return pcie_config.present(devices or (GPU,), size, str(self.pci), self.record, check, self.write)

    def absent(self, *devices: str, check: bool = False) -> pcie_config.Outcome:
        return pcie_config.absent(devices or None, str(self.pci), self.record, check, self.write)

    def notes(self) -> dict[str, Any]:
        return previous_values.read(self.record)

    def size(self, address: str = GPU) -> int:
        return pcie_config.device_control(pcie_config.of_device(str(self.pci), address)).read_request


@pytest.fixture
def bus(tmp_path: Path) -> Bus:
    return Bus(tmp_path)


def told(outcome: pcie_config.Outcome) -> list[tuple[str, int | None, int | None, int | None, str]]:
    return [(one.address, one.before, one.after, one.wanted, one.status) for one in outcome.entries]


# Reading


def test_register_is_found_behind_other_capabilities() -> None:
    control = pcie_config.device_control(pcie_config.of_bytes(GPU, bytes(space())))
    assert (control.address, control.device, control.offset, control.value) == (GPU, "10de:2bb5", CONTROL, 0x2810)
    assert control.read_request == 512


@pytest.mark.parametrize(("code", "size"), list(enumerate((128, 256, 512, 1024, 2048, 4096))))
def test_every_size_is_read_and_written_in_its_bits_only(code: int, size: int) -> None:
    data = bytes(space(control=0x0FFF | code << 12))
    assert pcie_config.device_control(pcie_config.of_bytes(GPU, data)).read_request == size
    assert pcie_config.with_read_request(0x8FFF, size) == 0x8FFF | code << 12
    assert pcie_config.with_read_request(0x7000, size) == code << 12


def test_card_bus_bridge_has_its_list_elsewhere_and_multi_function_bit_is_no_type() -> None:
    data = space()
    data[0x0E], data[0x14], data[0x34] = 0x82, 0x63, 0xFF
    assert pcie_config.capability(pcie_config.of_bytes(GPU, bytes(data)), 0x10) == 0x60
    data = space()
    data[0x0E], data[0x34], data[0x41] = 0x81, 0x41, 0x63
    assert pcie_config.capability(pcie_config.of_bytes(GPU, bytes(data)), 0x10) == 0x60


@pytest.mark.parametrize("data", [space(capabilities=()), space(capabilities=((0x40, 1), (0x50, 5)))])
def test_device_without_the_capability_is_an_error_that_names_it(data: bytearray) -> None:
    with pytest.raises(PciError, match=f"PCI Express capability of {GPU}: it has none") as caught:
        pcie_config.device_control(pcie_config.of_bytes(GPU, bytes(data)))
    assert caught.value.facts == {"device": GPU}


def changed(*changes: tuple[int, int], **more: Any) -> bytes:
    data = space(**more)
    for place, value in changes:
        data[place] = value
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (changed((0x49, 0x40)), "its list of capabilities leads to byte 0x40 a second time"),
        (changed((0x41, 0x40)), "its list of capabilities leads to byte 0x40 a second time"),
        (changed((0x41, 0x3C)), "its list of capabilities leads to byte 0x3c inside its header"),
        (changed((0x0E, 0x05)), "its header has the unknown type 0x5"),
        (b"\xff" * 4096, "nothing answers"),
        (changed((0x69, 0x68)), "Device Control reads 0x6810, whose read request size is a reserved one"),
        (changed((0x68, 0xFF), (0x69, 0xFF)), "Device Control reads 0xffff"),
        (changed((0x69, 0xA8)), "Device Control reads 0xa810, and writing that back would reset the device"),
        (bytes(space())[:64], "it ends before byte 0x41; run as root, since others see its first 64 bytes"),
        (bytes(space())[:0x69], "it ends before byte 0x6a; run as root"),
        (b"", "it ends before byte 0x2"),
    ],
)
def test_damaged_or_cut_space_is_an_error(data: bytes, why: str) -> None:
    with pytest.raises(PciError) as caught:
        pcie_config.device_control(pcie_config.of_bytes(GPU, data))
    assert why in str(caught.value) and GPU in str(caught.value)


def test_loop_behind_the_capability_does_no_harm() -> None:
    data = changed((0x61, 0x40))
    assert pcie_config.device_control(pcie_config.of_bytes(GPU, data)).offset == CONTROL


def test_bridge_to_pci_keeps_its_retry_setting() -> None:
    data = bytes(space(control=0xA810, kind=7))
    control = pcie_config.device_control(pcie_config.of_bytes(PORT, data))
    assert pcie_config.with_read_request(control.value, 4096) == 0xD810


def test_access_control_is_found_in_the_extended_list() -> None:
    found = pcie_config.access_control(pcie_config.of_bytes(PORT, bytes(space())))
    assert found == pcie_config.AccessControl(0x148, 0x005F, 0x001D)


@pytest.mark.parametrize(
    "data",
    [
        space(size=256),
        space(extended=()),
        space(extended=((0x100, 0x0001), (0x200, 0x0010))),
        space()[:256] + b"\xff" * (4096 - 256),
    ],
)
def test_space_without_access_control_has_none(data: bytearray) -> None:
    assert pcie_config.access_control(pcie_config.of_bytes(PORT, bytes(data))) is None


def test_extended_list_that_loops_or_is_cut_is_an_error(bus: Bus) -> None:
    data = space(extended=((0x100, 0x0001), (0x148, 0x0002)))
    data[0x148:0x14C] = (0x100 << 20 | 0x10002).to_bytes(4, "little")
    with pytest.raises(PciError, match="extended capabilities leads to byte 0x100 a second time"):
        pcie_config.access_control(pcie_config.of_bytes(PORT, bytes(data)))
    data[0x148:0x14C] = (0x80 << 20 | 0x10002).to_bytes(4, "little")
    with pytest.raises(PciError, match="leads to byte 0x80 inside its header"):
        pcie_config.access_control(pcie_config.of_bytes(PORT, bytes(data)))
    # The kernel tells the whole size to everybody, and shows 64 bytes.
    cut = pcie_config.Space(PORT, 4096, lambda offset, count: bytes(space())[:64][offset : offset + count])
    with pytest.raises(PciError, match="run as root"):
        pcie_config.access_control(cut)


# Addresses and the way to a device


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:c1:00.0", "0000:c1:00.0"),
        ("00000000:C1:00.0", "0000:c1:00.0"),
        ("0001:00:1f.7", "0001:00:1f.7"),
        ("10000:e1:00.0", "10000:e1:00.0"),
    ],
)
def test_addresses_are_written_as_the_kernel_does(text: str, address: str) -> None:
    assert pcie_config.normalised(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "",
        "c1:00.0",
        "0000:c1:00",
        "0000:c1:00.8",
        "0000:c1:20.0",
        "0000:c1:00.0\n",
        "../0000:c1:00.0",
        "0000:c1:00.0\0",
    ],
)
def test_text_that_is_no_address_is_an_error(text: str) -> None:
    with pytest.raises(PciError, match="this is no address; write domain, bus, device and function"):
        pcie_config.normalised(text)


@pytest.mark.parametrize(
    ("path", "bridges"),
    [
        ("/sys/devices/pci0000:c0/0000:c0:01.1/0000:c1:00.0", ("0000:c0:01.1",)),
        (
            "/sys/devices/pci0000:80/0000:80:01.1/0000:81:00.0/0000:82:02.0/0000:83:00.0/",
            ("0000:80:01.1", "0000:81:00.0", "0000:82:02.0"),
        ),
        ("/sys/devices/pci0000:00/0000:00:1f.0", ()),
        ("/sys/devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0", ("10000:e0:06.0",)),
        ("/sys/devices/platform/soc/40000000.pcie/pci0001:00/0001:00:00.0/0001:01:00.0", ("0001:00:00.0",)),
        ("/sys/devices/virtual/net/lo", ()),
        ("", ()),
    ],
)
def test_bridges_are_named_from_the_root_port_down(path: str, bridges: tuple[str, ...]) -> None:
    assert pcie_config.bridges_above(path) == bridges


def test_bridges_of_a_device_come_from_where_its_link_leads(bus: Bus, tmp_path: Path) -> None:
    real = tmp_path / "devices" / "pci0000:c0" / PORT / GPU
    real.mkdir(parents=True)
    (real / "config").write_bytes(space())
    (bus.pci / "devices" / GPU).symlink_to(real)
    assert pcie_config.bridges_of(str(bus.pci), GPU) == (PORT,)
    with pytest.raises(PciError, match=f"device {NIC} in .*there is no such device"):
        pcie_config.bridges_of(str(bus.pci), NIC)


# Setting and putting back


def test_two_bytes_are_written_read_back_and_put_back(bus: Bus) -> None:
    config = bus.add(GPU)
    before = config.read_bytes()
    predicted = bus.present(4096, check=True)
    assert bus.writes == [] and config.read_bytes() == before and not os.path.exists(bus.record)
    done = bus.present(4096)
    assert done == predicted and done.changed
    assert told(done) == [(GPU, 512, 4096, 4096, "set")]
    assert bus.writes == [(GPU, CONTROL, b"\x10\x58")]
    assert config.read_bytes() == before[:CONTROL] + b"\x10\x58" + before[CONTROL + 2 :]
    assert bus.notes() == {f"pcie_read_request/{GPU}": {"bytes": 512, "device": "10de:2bb5"}}
    assert told(bus.present(4096)) == [(GPU, 4096, 4096, 4096, "already")]
    assert not bus.present(4096).changed
    bus.present(1024)
    predicted = bus.absent(check=True)
    assert len(bus.writes) == 2 and bus.notes()
    back = bus.absent()
    assert back == predicted and back.changed and told(back) == [(GPU, 1024, 512, 512, "restored")]
    assert config.read_bytes() == before and bus.notes() == {}
    assert told(bus.absent()) == [] and not bus.absent().changed
    assert told(bus.absent(GPU)) == [(GPU, 512, 512, None, "not_ours")]


@pytest.mark.parametrize("size", [256, 4096])
def test_small_and_large_spaces_are_both_set(bus: Bus, size: int) -> None:
    bus.add(GPU, space(size=size))
    bus.present(2048)
    assert bus.size() == 2048 and (bus.pci / "devices" / GPU / "config").stat().st_size == size


def test_devices_are_taken_once_each_in_their_order(bus: Bus) -> None:
    bus.add(GPU)
    bus.add(NIC, space(control=0x5810))
    done = bus.present(4096, NIC, "00000000:C1:00.0", GPU)
    assert told(done) == [(NIC, 4096, 4096, 4096, "already"), (GPU, 512, 4096, 4096, "set")]
    assert pcie_config.lines(done.entries, after=False) == f"{NIC}: 4096 bytes\n{GPU}: 512 bytes\n"
    assert pcie_config.lines(done.entries, after=True) == f"{NIC}: 4096 bytes\n{GPU}: 4096 bytes\n"
    assert pcie_config.described(done.entries)[1] == {
        "address": GPU,
        "before": 512,
        "after": 4096,
        "wanted": 4096,
        "status": "set",
    }


def test_port_that_ignores_the_write_is_reported_and_known_afterwards(bus: Bus) -> None:
    bus.add(PORT, space(control=0x0810))
    bus.fixed.add(PORT)
    assert bus.present(512, PORT, check=True).changed is True
    first = bus.present(512, PORT)
    assert (first.changed, told(first)) == (False, [(PORT, 128, 128, 512, "unchanged_readonly")])
    assert bus.notes() == {f"pcie_read_request_read_only/{PORT}": {"bytes": 128, "device": "10de:2bb5"}}
    for check in (True, False):
        assert bus.present(512, PORT, check=check) == first
        assert bus.present(4096, PORT, check=check).changed is False
    assert len(bus.writes) == 1
    assert told(bus.present(128, PORT)) == [(PORT, 128, 128, 128, "already")]
    gone = bus.absent()
    assert (gone.changed, told(gone), bus.notes()) == (False, [(PORT, 128, 128, None, "not_ours")], {})
    # Forgotten, so it is tried again.
    bus.fixed.clear()
    assert bus.present(512, PORT).changed is True


@pytest.mark.parametrize("other", [space(control=0x1810), space(control=0x0810, device=0x1234)])
def test_port_that_reads_otherwise_or_is_another_one_is_tried_again(bus: Bus, other: bytearray) -> None:
    bus.add(PORT, space(control=0x0810))
    bus.fixed.add(PORT)
    bus.present(512, PORT)
    bus.fixed.clear()
    bus.add(PORT, other)
    assert bus.present(512, PORT, check=True).changed is True
    assert bus.present(512, PORT).changed is True
    assert bus.size(PORT) == 512
    assert list(bus.notes()) == [f"pcie_read_request/{PORT}"]


def test_port_found_read_only_again_is_noted_with_its_present_size(bus: Bus) -> None:
    bus.add(PORT, space(control=0x0810))
    bus.fixed.add(PORT)
    bus.present(512, PORT)
    bus.add(PORT, space(control=0x1810))
    assert told(bus.present(512, PORT)) == [(PORT, 256, 256, 512, "unchanged_readonly")]
    assert bus.notes()[f"pcie_read_request_read_only/{PORT}"]["bytes"] == 256
    assert len(bus.writes) == 2 and bus.present(512, PORT).changed is False and len(bus.writes) == 2


def test_what_was_noted_stays_when_the_device_ignores_a_later_write(bus: Bus) -> None:
    bus.add(GPU)
    bus.present(4096)
    bus.fixed.add(GPU)
    assert told(bus.present(1024))[0][4] == "unchanged_readonly"
    bus.fixed.clear()
    assert told(bus.absent()) == [(GPU, 4096, 512, 512, "restored")]


def test_device_that_takes_another_size_fails_with_what_it_reads(bus: Bus) -> None:
    bus.add(NIC)
    bus.add(GPU)
    bus.most[GPU] = 1024
    with pytest.raises(PciError, match=f"{GPU} to 4096 bytes: it reads 1024 afterwards, and was 512; ask") as caught:
        bus.present(4096, NIC, GPU)
    facts = caught.value.facts
    assert (facts["device"], facts["reads"], facts["changed"]) == (GPU, 1024, True)
    assert [(one["address"], one["after"]) for one in facts["devices"]] == [(NIC, 4096)]
    bus.most.clear()
    bus.absent()
    assert (bus.size(GPU), bus.size(NIC)) == (512, 512)


def test_restore_that_is_ignored_fails_and_keeps_the_note(bus: Bus) -> None:
    bus.add(GPU)
    bus.present(4096)
    bus.fixed.add(GPU)
    with pytest.raises(PciError, match="to 512 bytes: it reads 4096 afterwards") as caught:
        bus.absent()
    assert caught.value.facts["changed"] is False
    assert list(bus.notes()) == [f"pcie_read_request/{GPU}"]


@pytest.mark.parametrize("bad", ["0000:99:00.0", NIC, "c1:00.0"])
def test_nothing_is_written_when_one_device_cannot_be(bus: Bus, bad: str) -> None:
    bus.add(GPU)
    bus.add(NIC, space(capabilities=()))
    for check in (True, False):
        with pytest.raises(PciError) as caught:
            bus.present(4096, GPU, bad, check=check)
        assert bad in str(caught.value) and caught.value.facts["device"] == bad
    assert bus.writes == [] and not os.path.exists(bus.record)


def test_only_the_devices_asked_for_are_put_back(bus: Bus) -> None:
    bus.add(GPU)
    bus.add(NIC)
    bus.present(4096, GPU, NIC)
    assert told(bus.absent("00000000:C1:00.0")) == [(GPU, 4096, 512, 512, "restored")]
    assert (bus.size(NIC), list(bus.notes())) == (4096, [f"pcie_read_request/{NIC}"])


def test_device_that_left_and_another_in_its_place_are_forgotten(bus: Bus) -> None:
    bus.add(GPU)
    bus.add(NIC)
    bus.present(4096, GPU, NIC)
    bus.remove(GPU)
    bus.add(NIC, space(device=0x101B, control=0x3810))
    predicted = bus.absent(check=True)
    assert len(bus.notes()) == 2
    outcome = bus.absent()
    assert outcome == predicted and outcome.changed is False
    assert told(outcome) == [(NIC, 1024, 1024, None, "not_ours"), (GPU, None, None, None, "gone")]
    assert bus.notes() == {} and bus.size(NIC) == 1024
    assert told(bus.absent(GPU)) == [(GPU, None, None, None, "gone")]


def test_another_device_in_its_place_is_noted_anew(bus: Bus) -> None:
    bus.add(GPU)
    bus.present(4096)
    bus.add(GPU, space(device=0x101B, control=0x3810))
    bus.present(4096)
    assert bus.notes() == {f"pcie_read_request/{GPU}": {"bytes": 1024, "device": "10de:101b"}}


def test_place_without_a_pci_bus_forgets_nothing(bus: Bus, tmp_path: Path) -> None:
    bus.add(GPU)
    bus.present(4096)
    with pytest.raises(PciError, match="no such directory; mount /sys"):
        pcie_config.absent(None, str(tmp_path / "none"), bus.record, False)
    assert len(bus.notes()) == 1
    empty = pcie_config.absent(None, str(tmp_path / "none"), str(tmp_path / "other"), False)
    assert (empty.changed, empty.entries) == (False, ())


@pytest.mark.parametrize(
    "note", [None, 512, {}, {"bytes": 500, "device": "x"}, {"bytes": True, "device": "x"}, {"bytes": 512, "device": 1}]
)
def test_note_that_is_not_ours_is_an_error_and_stays(bus: Bus, note: object) -> None:
    bus.add(GPU)
    key = f"pcie_read_request/{GPU}"
    previous_values.remember(bus.record, {key: note})
    for act in (bus.absent, lambda: bus.present(4096)):
        with pytest.raises(PciError, match=f"{key} is not as this collection notes it"):
            act()
    assert bus.notes() == {key: note} and bus.writes == []


def test_device_can_be_set_although_another_setting_changed_meanwhile(bus: Bus) -> None:
    config = bus.add(GPU)
    real, seen = previous_values.remember, []

    def driver_switches_a_bit(record: str, values: Any) -> None:
        seen.append(record)
        pcie_config.write_bytes(str(config), CONTROL, b"\x1f\x28")
        real(record, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(previous_values, "remember", driver_switches_a_bit)
        bus.present(4096)
    assert seen and config.read_bytes()[CONTROL : CONTROL + 2] == b"\x1f\x58"


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EROFS, "run this on the hypervisor, as root"),
        (errno.EACCES, "run this on the hypervisor, as root"),
        (errno.EPERM, "as with Secure Boot, allows nobody"),
        (errno.EIO, "look at the kernel's log"),
    ],
)
def test_write_that_is_refused_says_what_to_do_and_is_noted_before(bus: Bus, number: int, remedy: str) -> None:
    bus.add(GPU)

    def refuse(path: str, offset: int, data: bytes) -> None:
        raise OSError(number, os.strerror(number), path)

    with pytest.raises(PciError) as caught:
        pcie_config.present([GPU], 4096, str(bus.pci), bus.record, False, refuse)
    assert os.strerror(number) in str(caught.value) and str(caught.value).endswith(remedy)
    assert caught.value.facts == {"device": GPU, "changed": False, "devices": []}
    assert list(bus.notes()) == [f"pcie_read_request/{GPU}"]
    assert bus.absent().changed is False and bus.notes() == {}


@pytest.mark.parametrize("check", [True, False])
def test_place_that_may_only_look_is_found_before_anything_is_noted(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    bus.add(GPU)
    real = os.open

    def read_only(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_WRONLY and str(path).endswith("config"):
            raise OSError(errno.EROFS, "Read-only file system", path)
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(PciError, match="Read-only file system; a container cannot set the devices of its machine"):
        bus.present(4096, check=check)
    assert bus.writes == [] and not os.path.exists(bus.record)
    assert bus.present(512, check=check).changed is False
    previous_values.remember(bus.record, {f"pcie_read_request/{GPU}": {"bytes": 1024, "device": "10de:2bb5"}})
    with pytest.raises(PciError, match="Read-only file system; a container cannot set the devices of its machine"):
        bus.absent(check=check)
    assert bus.writes == [] and len(bus.notes()) == 1


def test_killed_change_and_killed_restore_are_finished(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    bus.add(GPU)
    bus.add(NIC)
    real = bus.write

    def killed(path: str, offset: int, data: bytes) -> None:
        if NIC in path:
            raise KeyboardInterrupt
        real(path, offset, data)

    acts: list[Callable[[], pcie_config.Outcome]] = [lambda: bus.present(4096, GPU, NIC), bus.absent]
    for act in acts:
        monkeypatch.setattr(bus, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            act()
        monkeypatch.setattr(bus, "write", real)
        assert len(bus.notes()) == 2
        assert act().changed is True
    assert (bus.size(GPU), bus.size(NIC), bus.notes()) == (512, 512, {})


def test_device_whose_config_is_no_file_is_an_error(bus: Bus) -> None:
    (bus.pci / "devices" / GPU / "config").mkdir(parents=True)
    with pytest.raises(PciError, match="Is a directory; run as root"):
        bus.present(4096)


def test_device_of_a_virtual_machine_is_neither_read_nor_written_and_its_note_is_kept(bus: Bus) -> None:
    other = "0000:c2:00.0"
    for address in (GPU, other):
        bus.add(address)
    bus.present(4096, GPU)
    note = bus.notes()
    link = bus.pci / "devices" / GPU / "driver"
    link.symlink_to("../../drivers/vfio-pci")
    bus.add(GPU, b"\xff" * 4096)
    bus.writes.clear()
    assert pcie_config.given_to_vms(str(bus.pci)) == [GPU]
    done = bus.present(1024, GPU, other)
    assert told(done) == [(GPU, None, None, None, "given_to_vm"), (other, 512, 1024, 1024, "set")]
    assert told(bus.absent()) == [(GPU, None, None, None, "given_to_vm"), (other, 1024, 512, 512, "restored")]
    assert {address for address, _offset, _data in bus.writes} == {other}
    assert bus.notes() == note
    # The host has it again.
    link.unlink()
    link.symlink_to("../../drivers/nvidia")
    bus.add(GPU, space(control=0x5810))
    assert told(bus.absent()) == [(GPU, 4096, 512, 512, "restored")]
    assert bus.notes() == {}
