# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import lxc_devices, lxc_plan
from ansible_collections.tokforge.sglang.plugins.module_utils.lxc_config import ConfigError, parse
from ansible_collections.tokforge.sglang.plugins.module_utils.lxc_devices import DeviceError, Host, Request
from ansible_collections.tokforge.sglang.plugins.module_utils.lxc_plan import Plan

FIXTURES = Path(__file__).parent / "fixtures" / "lxc"
PVE = "arch: amd64\nrootfs: local:101/x.raw\n"
ALL = frozenset(lxc_devices.SHARED)
NO_MODESET = ALL - {"/dev/nvidia-modeset"}
CTL, UVM, TOOLS = "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"
CAP1, CAP2 = "/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2"


def host(name: str = "uvm511", gpus: int = 2, shared: frozenset[str] = NO_MODESET, **more: Any) -> Host:
    drivers = lxc_devices.read_drivers((FIXTURES / f"proc-devices-{name}").read_text())
    return Host(drivers, tuple(range(gpus)), shared, **more)


def mount(path: str, kind: str = "file") -> str:
    return f"lxc.mount.entry: {path} {path[1:]} none bind,optional,create={kind}\n"


def allow(*majors: int) -> str:
    return "".join(f"lxc.cgroup2.devices.allow: c {major}:* rwm\n" for major in majors)


RAW_1 = mount("/dev/nvidia0") + mount(CTL) + mount(UVM) + mount(TOOLS) + mount("/dev/nvidia-caps", "dir")


def plan(text: str, at: Host | None = None, **request: Any) -> Plan:
    """The plan for a file, after a look that a second run would change nothing."""
    at = at or host()
    found = lxc_plan.plan(parse(text.encode(), "/x/101.conf"), at, Request(**request))
    again = lxc_plan.plan(parse(found.data, "/x/101.conf"), at, Request(**request))
    assert (again.changed, again.data, again.restart_needed) == (False, found.data, False)
    assert found.changed == (found.data != text.encode())
    return found


def after(text: str, at: Host | None = None, **request: Any) -> str:
    return plan(text, at, **request).data.decode()


# /proc/devices


@pytest.mark.parametrize(
    ("name", "majors"),
    [
        ("uvm511", {"nvidia": 195, "nvidia-uvm": 511, "nvidia-caps": 236}),
        ("uvm506", {"nvidia": 195, "nvidia-uvm": 506, "nvidia-caps": 236}),
        ("535", {"nvidia": 195, "nvidia-uvm": 237, "nvidia-caps": 238}),
        ("uvm-not-loaded", {"nvidia": 195, "nvidia-caps": 236}),
        ("no-driver", {}),
    ],
)
def test_majors_are_those_of_character_devices(name: str, majors: dict[str, int]) -> None:
    assert host(name).majors() == majors


@pytest.mark.parametrize("text", ["", "Block devices:\n195 nvidia\n", "195 nvidia\n"])
def test_text_without_character_devices_is_refused(text: str) -> None:
    with pytest.raises(DeviceError, match="it has no list of character devices"):
        lxc_devices.read_drivers(text)


def test_host_is_looked_at_below_the_given_roots(tmp_path: Path) -> None:
    (tmp_path / "dev" / "nvidia-caps").mkdir(parents=True)
    for name in ("nvidia10", "nvidia2", "nvidia03", "nvidiactl", "nvidia0x", "nvidia-caps/nvidia-cap2", "kfd"):
        (tmp_path / "dev" / name).touch()
    proc = FIXTURES / "proc-devices-uvm506"
    found = lxc_devices.look(str(tmp_path / "dev"), str(proc), ["/dev/kfd", "/dev/apex_0", "/dev/net/tun"])
    assert (found.gpus, found.shared) == ((2, 10), frozenset({CTL, CAP2}))
    assert found.absent_sources == {"/dev/apex_0", "/dev/net/tun"}
    assert (found.node_majors, found.majors()["nvidia-uvm"]) == ({}, 506)


def test_numbers_of_real_nodes_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "nvidia0").symlink_to("/dev/null")
    found = lxc_devices.look(str(tmp_path), str(FIXTURES / "proc-devices-uvm511"))
    assert found.node_majors == {"/dev/nvidia0": os.major(os.stat("/dev/null").st_rdev)}


@pytest.mark.parametrize("gone", ["dev", "proc"])
def test_root_that_is_not_there_is_named(tmp_path: Path, gone: str) -> None:
    dev, proc = tmp_path / "dev", tmp_path / "proc"
    dev.mkdir()
    proc.write_text("Character devices:\n")
    (dev.rmdir if gone == "dev" else proc.unlink)()
    with pytest.raises(DeviceError, match=f"looking for GPUs in {tmp_path / gone}: No such file or directory; "):
        lxc_devices.look(str(dev), str(proc))


# Which form


@pytest.mark.parametrize(
    ("version", "has_entry", "form"),
    [
        ("8.0.4", False, "raw"),
        ("8.0.4", True, "raw"),
        ("8.1.3", False, "raw"),
        ("8.1.3", True, "dev"),
        ("8.2", False, "dev"),
        ("8.10.1", False, "dev"),
        ("9.0.3", False, "dev"),
        ("10.0", False, "dev"),
        ("pve-manager/8.4.1/2a5fa54a8503f96d (running kernel: 6.8.12-9-pve)", False, "dev"),
        (None, False, "raw"),
        (None, True, "dev"),
    ],
)
def test_auto_writes_device_entries_only_where_they_are_known(version: str | None, has_entry: bool, form: str) -> None:
    text = PVE + ("dev0: /dev/kvm\n" if has_entry else "")
    assert plan(text, pve_version=version).form == form


def test_auto_is_raw_for_plain_lxc_whatever_the_version() -> None:
    found = plan("lxc.uts.name = x\n", pve_version="9.0")
    assert found.form == "raw" and b"\nlxc.cgroup2.devices.allow = c 195:* rwm\n" in found.data


@pytest.mark.parametrize(
    ("text", "version", "why"),
    [
        ("lxc.uts.name = x\n", None, "it is a configuration of plain LXC"),
        ("lxc.uts.name = x\n", "9.0", "it is a configuration of plain LXC"),
        (PVE, "8.0.9", "Proxmox VE 8.0.9 does not know them"),
    ],
)
def test_device_entries_are_refused_where_nothing_reads_them(text: str, version: str | None, why: str) -> None:
    with pytest.raises(DeviceError, match=f"writing devN entries to /x/101.conf: {why}; set form"):
        plan(text, form="dev", pve_version=version)


@pytest.mark.parametrize("version", ["nine", "9", "v9.0", "99999999999999999999.1", "8.99999", "pve-manager"])
def test_version_that_is_none_is_refused(version: str) -> None:
    with pytest.raises(DeviceError, match=f"reading pve_version '{version}'"):
        lxc_devices.pve_version(version)


# Device entries


def test_eight_gpus_get_one_entry_for_each_node() -> None:
    found = plan(PVE, host(gpus=8, shared=ALL), form="dev")
    nodes = [f"/dev/nvidia{index}" for index in range(8)] + [CTL, UVM, TOOLS, "/dev/nvidia-modeset"]
    assert found.data.decode() == PVE + "".join(
        [f"dev{at}: {node},mode=0666\n" for at, node in enumerate(nodes)]
        + [f"dev12: {CAP1},mode=0444\n", f"dev13: {CAP2},mode=0444\n"]
    )
    assert (found.gpus, found.missing, found.warnings, found.restart_needed) == (tuple(range(8)), (), (), True)
    assert found.entries[12] == {"path": CAP1, "form": "dev", "index": 12, "line": f"dev12: {CAP1},mode=0444"}


def test_existing_entries_keep_their_index_place_and_options() -> None:
    text = f"arch: amd64\ndev4: path=/dev/nvidia0,gid=44\ndev0: /dev/kvm\ndev2: {UVM},uid=7,deny-write=0\nrootfs: x\n"
    assert after(text, form="dev", gpus=(0,)) == text.replace(
        "rootfs",
        f"dev1: {CTL},mode=0666\ndev3: {TOOLS},mode=0666\ndev5: {CAP1},mode=0444\ndev6: {CAP2},mode=0444\nrootfs",
    )


def test_numbers_of_pending_changes_are_not_used() -> None:
    text = (FIXTURES / "pve9.conf").read_text()
    found = plan(text, host(shared=frozenset({CTL})), form="dev", gpus=(0, 1))
    # dev3 is set and dev5 deleted at the next start.
    assert [one["index"] for one in found.entries] == [1, 2, 4]


@pytest.mark.parametrize("change", ["dev2: /dev/null", "delete: dev2", f"dev9: {CTL}"])
def test_pending_change_to_an_entry_of_a_gpu_is_warned_of(change: str) -> None:
    found = plan(PVE + f"dev2: /dev/nvidia0\n[pve:pending]\n{change}\n", form="dev", gpus=(0,))
    assert any("a pending change to dev" in one and "pct set --revert" in one for one in found.warnings)


def test_removed_gpu_loses_exactly_its_entry() -> None:
    before = after(PVE, host(gpus=8), form="dev")
    assert after(before, host(gpus=8), form="dev", gpus=(0, 1, 2, 4, 5, 6, 7)) == before.replace(
        "dev3: /dev/nvidia3,mode=0666\n", ""
    )


def test_second_entry_for_a_node_is_removed() -> None:
    before = after(PVE, form="dev")
    assert after(before + "dev40: /dev/nvidia0\n", form="dev") == before


def test_no_free_number_is_an_error() -> None:
    full = PVE + "".join(f"dev{at}: /dev/x{at}\n" for at in range(254))
    with pytest.raises(DeviceError, match=r"adding devN entries to /x/101\.conf: 7 are needed and 2 of dev0 to dev255"):
        plan(full, form="dev")


# Raw entries


def test_rules_are_for_the_majors_of_the_host() -> None:
    assert after(PVE, gpus=(0,)) == PVE + allow(195, 511, 236) + RAW_1
    assert after(PVE, host("535"), gpus=(0,)) == PVE + allow(195, 237, 238) + RAW_1


def test_changed_major_is_swapped_once_where_it_stands() -> None:
    snapshot = f"\n[monday]\n{allow(511)}{RAW_1}rootfs: x\n"
    before = PVE + allow(195, 511, 236) + "lxc.apparmor.profile: generated\n" + RAW_1 + snapshot
    found = plan(before, host("uvm506"), gpus=(0,))
    assert found.data.decode() == before.replace("511:*", "506:*", 1)
    assert (found.changed, found.restart_needed, found.kept) == (True, True, ())


def test_both_majors_are_swapped_together() -> None:
    before = PVE + allow(195, 509, 511) + RAW_1
    assert after(before, host("uvm506"), gpus=(0,)) == PVE + allow(195, 506, 236) + RAW_1


def test_major_that_moved_to_another_nvidia_driver_stays_for_it() -> None:
    # nvidia-uvm was 236, which nvidia-caps has now; 509 was that of nvidia-caps.
    before = PVE + allow(195, 236, 509) + RAW_1
    assert after(before, host("uvm506"), gpus=(0,)) == PVE + allow(195, 236, 506) + RAW_1


def test_entries_written_by_hand_are_taken_over_and_completed() -> None:
    text = (FIXTURES / "pve8-raw.conf").read_text()
    found = plan(text, gpus=(0, 1))
    main, snapshot = text.split("\n\n[monday]")
    lines = main.split("\n")
    lines[14] = "lxc.mount.entry:   /dev/nvidiactl   dev/nvidiactl   none   bind,create=file,optional   0 0"
    added = mount("/dev/nvidia1") + mount(TOOLS) + mount("/dev/nvidia-caps", "dir")
    # The rule behind the last rule, the mounts behind the last mount, both before the comment.
    lines = [*lines[:12], allow(236)[:-1], *lines[12:16], *added.splitlines(), lines[16]]
    assert found.data.decode() == "\n".join(lines) + "\n\n[monday]" + snapshot


def test_single_capability_mounts_become_their_directory() -> None:
    before = PVE + allow(195, 511, 236) + mount("/dev/nvidia0") + mount(CAP1) + mount(CTL) + mount(CAP2)
    before += mount(UVM) + mount(TOOLS)
    assert after(before, gpus=(0,)) == before.replace(mount(CAP1), mount("/dev/nvidia-caps", "dir")).replace(
        mount(CAP2), ""
    )


@pytest.mark.parametrize(
    ("line", "where"),
    [("/dev/nvidia1 dev/nvidia0 none bind", "/dev/nvidia0"), ("/srv/fake dev/nvidiactl none bind", CTL)],
)
@pytest.mark.parametrize("form", ["dev", "raw"])
def test_node_mounted_at_the_place_of_another_is_an_error(line: str, where: str, form: str) -> None:
    with pytest.raises(DeviceError, match=f"line 3 mounts {line.split()[0]} at {where}; remove it") as caught:
        plan(PVE + f"lxc.mount.entry: {line}\n", form=form)
    assert caught.value.facts["line"] == 3


def test_target_below_the_root_of_the_container_is_the_same_place() -> None:
    line = "lxc.mount.entry = /dev/nvidia0 /var/lib/lxc/x/rootfs/dev/nvidia0 none bind,optional,create=file\n"
    assert after(f"lxc.uts.name = x\n{line}", gpus=(0,)).count("= /dev/nvidia0 ") == 1


# Rules that may be old


@pytest.mark.parametrize(
    ("text", "at"),
    [
        # Nothing says that this container ever had a GPU.
        (PVE + allow(511), host("uvm506")),
        # More unknown numbers than drivers that lost theirs.
        (PVE + allow(195, 509, 511, 236) + RAW_1, host("uvm506")),
        # Another driver has the number now.
        (PVE + allow(195, 244, 236) + RAW_1, host("uvm506")),
        # Not a number that the kernel hands out.
        (PVE + allow(195, 120, 236) + RAW_1, host("uvm506")),
        # Not what raw entries for NVIDIA have.
        (PVE + allow(195, 236) + "lxc.cgroup2.devices.allow: c 511:0 rwm\n" + RAW_1, host("uvm506")),
        # It can be that of a device whose driver is not loaded.
        (
            PVE + allow(195, 511, 236) + mount("/dev/apex_0") + RAW_1,
            host("uvm506", absent_sources=frozenset({"/dev/apex_0"})),
        ),
        # Its driver is not loaded, so nothing takes its place.
        (PVE + allow(195, 511, 236) + RAW_1, replace(host("uvm-not-loaded"), drivers={195: ("nvidia",)})),
    ],
)
def test_rule_that_may_be_for_another_driver_stays(text: str, at: Host) -> None:
    found = after(text, at, gpus=(0,))
    assert [line for line in text.split("\n") if line not in found.split("\n")] == []


def test_node_with_a_fixed_number_that_is_not_there_does_not_keep_an_old_rule() -> None:
    before = PVE + allow(195, 511, 236) + mount("/dev/net/tun") + RAW_1
    at = host("uvm506", absent_sources=frozenset({"/dev/net/tun"}))
    assert after(before, at, gpus=(0,)) == before.replace("511", "506")


def test_rules_that_stay_are_told_and_warned_of_once() -> None:
    before = PVE + allow(195, 511, 244, 236) + "lxc.cgroup.devices.allow: c 195:* rwm\n" + RAW_1
    first = plan(before + allow(509), host("uvm506"), gpus=(0,))
    assert [(one["line"][-8:-4], one["reason"]) for one in first.kept] == [
        ("11:*", "it may be for another driver"),
        ("44:*", "major number 244 is that of hidraw now"),
        ("95:*", "it is for cgroup v1"),
        ("09:*", "it may be for another driver"),
    ]
    assert "major numbers 244, 509, 511 stay" in first.warnings[0]
    second = plan(first.data.decode(), host("uvm506"), gpus=(0,))
    assert (second.kept, [one for one in second.warnings if "stay" in one]) == (first.kept, [])


# Switching the form


def test_switching_the_form_converts_and_comes_back() -> None:
    raw = after(PVE, gpus=(0,))
    dev = plan(raw, form="dev", gpus=(0,))
    assert dev.data.decode() == after(PVE, form="dev", gpus=(0,))
    # The nodes are the same, so a running container has all it needs.
    assert (dev.changed, dev.restart_needed) == (True, False)
    assert after(dev.data.decode(), form="raw", gpus=(0,)) == raw


def test_conversion_takes_old_rules_along() -> None:
    before = PVE + allow(195, 511, 236) + RAW_1
    found = plan(before, host("uvm506"), form="dev", gpus=(0,))
    assert found.data.decode() == after(PVE, form="dev", gpus=(0,))
    assert found.restart_needed is True


def test_node_that_has_both_forms_keeps_the_asked_one() -> None:
    both = PVE + "dev7: /dev/nvidia0\n" + allow(195, 511, 236) + RAW_1
    assert after(both, form="raw", gpus=(0,)) == both.replace("dev7: /dev/nvidia0\n", "")
    text = after(both, form="dev", gpus=(0,))
    assert "dev7: /dev/nvidia0\n" in text and "lxc." not in text and text.count("/dev/nvidia0") == 1


def test_rules_stay_while_another_node_of_nvidia_is_mounted() -> None:
    other = "lxc.mount.entry: /dev/nvidia-nvswitchctl dev/nvidia-nvswitchctl none bind\n"
    found = plan(PVE + allow(195, 511) + mount("/dev/nvidia0") + other, form="dev", gpus=(0,))
    assert found.data.decode().endswith(allow(195, 511) + other)
    assert [one["reason"] for one in found.kept] == ["/dev/nvidia-nvswitchctl is mounted"] * 2


# Missing nodes


@pytest.mark.parametrize("form", ["dev", "raw"])
def test_missing_nodes_are_left_out_with_a_warning(form: str) -> None:
    found = plan(PVE, host(shared=frozenset({CTL, UVM})), form=form)
    assert found.missing == (TOOLS, "/dev/nvidia-modeset", CAP1, CAP2)
    assert [one["path"] for one in found.entries] == ["/dev/nvidia0", "/dev/nvidia1", CTL, UVM]
    assert found.warnings[0] == (
        f"{TOOLS} is not passed on now: it is not in /dev; load its driver before the container starts"
    )
    assert b"236" not in found.data


def test_node_without_its_driver_is_missing() -> None:
    found = plan(PVE, host("uvm-not-loaded"))
    assert found.missing == (UVM, TOOLS, "/dev/nvidia-modeset")
    assert found.warnings[0].startswith(f"{UVM} is not passed on now: /proc/devices has no driver nvidia-uvm")
    assert UVM.encode() not in found.data


@pytest.mark.parametrize("form", ["dev", "raw"])
def test_entry_of_a_node_that_is_missing_now_stays(form: str) -> None:
    before = after(PVE, form=form)
    found = plan(before, host(shared=frozenset({CTL})), form=form)
    assert not found.changed
    assert ("its entry stays, and the container does not start without it" in found.warnings[0]) == (form == "dev")


@pytest.mark.parametrize(("gpus", "names"), [((0, 5, 9), "/dev/nvidia5, /dev/nvidia9"), ((3,), "/dev/nvidia3")])
def test_missing_gpu_is_an_error_that_names_it(gpus: tuple[int, ...], names: str) -> None:
    with pytest.raises(DeviceError, match=f"looking for GPUs in /dev: {names} is not there; ") as caught:
        plan(PVE, gpus=gpus)
    assert caught.value.facts["found_gpus"] == [0, 1]


def test_host_without_gpus_or_driver_is_an_error() -> None:
    with pytest.raises(DeviceError, match="any /dev/nvidiaN is not there"):
        plan(PVE, host(gpus=0))
    with pytest.raises(DeviceError, match="there is no character device nvidia; load the driver"):
        plan(PVE, host("no-driver"))


def test_node_with_the_number_of_an_earlier_kernel_is_warned_of() -> None:
    found = plan(PVE, host("uvm506", node_majors={UVM: 511, CTL: 195}))
    assert [one for one in found.warnings if "major number" in one] == [
        f"{UVM} has major number 511, and its driver has 506; remove the node and make it anew with nvidia-modprobe"
    ]


# Absent


@pytest.mark.parametrize("name", ["pve9.conf", "pve8-raw.conf", "plain.config"])
@pytest.mark.parametrize("form", ["auto", "raw"])
def test_absent_brings_the_bytes_back(name: str, form: str) -> None:
    before = after((FIXTURES / name).read_text(), state="absent")
    assert (before == (FIXTURES / name).read_text()) == (name != "pve8-raw.conf")
    present = plan(before, form=form)
    assert present.changed
    gone = plan(present.data.decode(), state="absent")
    assert (gone.data.decode(), gone.gpus, gone.entries, gone.restart_needed) == (before, (), (), True)


def test_absent_takes_what_was_written_by_hand_and_nothing_else() -> None:
    text = (FIXTURES / "pve8-raw.conf").read_text()
    gone = after(text, host("uvm506"), state="absent")
    main, rest = text.split("\n\n[monday]")
    lines = main.split("\n")
    assert gone == "\n".join([*lines[:9], *lines[11:13], lines[16]]) + "\n\n[monday]" + rest


@pytest.mark.parametrize("form", ["dev", "raw"])
def test_shared_entries_stay_while_a_gpu_is_left(form: str) -> None:
    before = after(PVE, form=form)
    found = plan(before, state="absent", gpus=(1, 5))
    assert found.gpus == (0,)
    assert [line for line in before.split("\n") if line not in found.data.decode().split("\n")] == [
        "dev1: /dev/nvidia1,mode=0666" if form == "dev" else mount("/dev/nvidia1")[:-1]
    ]
    assert after(found.data.decode(), state="absent", gpus=(0,)) == PVE


def test_absent_needs_no_driver() -> None:
    before = after(PVE, gpus=(0,))
    assert after(before, host("no-driver", gpus=0, shared=frozenset()), state="absent") == PVE


def test_absent_leaves_a_node_that_is_mounted_elsewhere() -> None:
    line = "lxc.mount.entry: /dev/nvidia0 mnt/card none bind\n"
    found = plan(PVE + line + "dev0: /dev/nvidia0\n", state="absent")
    assert found.data.decode() == PVE + line
    assert found.kept == ({"line": line[:-1], "reason": "it mounts /dev/nvidia0 at another place"},)


# Locks


def test_locked_container_is_not_edited_but_looked_at() -> None:
    with pytest.raises(ConfigError, match=r"the container is locked \(backup\); wait for that to end") as caught:
        plan(PVE + "lock: backup\n")
    assert caught.value.facts["lock"] == "backup"
    assert not plan(PVE + "lock: backup\n", state="absent").changed
    assert plan(PVE + "[old]\nlock: backup\n").changed
