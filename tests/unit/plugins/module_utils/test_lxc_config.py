# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import lxc_config
from ansible_collections.tokforge.sglang.plugins.module_utils.lxc_config import ConfigError, parse

FIXTURES = Path(__file__).parent / "fixtures" / "lxc"
PVE = b"arch: amd64\nrootfs: local:101/x.raw\n"
PLAIN = b"lxc.uts.name = x\n"


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(
    ("name", "kind", "main"),
    [("pve9.conf", "proxmox", 19), ("pve8-raw.conf", "proxmox", 18), ("plain.config", "lxc", 13)],
)
def test_file_is_the_same_bytes_when_nothing_is_edited(name: str, kind: str, main: int, last: bool, ends: str) -> None:
    data = (FIXTURES / name).read_bytes().replace(b"\n", ends.encode())
    data = data if last else data[: -len(ends)]
    config = parse(data, name)
    assert lxc_config.edited(config, {}, ()) == data
    assert (config.format, config.main) == (kind, main)


def test_bytes_that_are_no_utf8_and_strange_line_ends_stay() -> None:
    data = b"#caf\xe9 \x0b \xc2\x85 \xe2\x80\xa8 x\r\r\n\n" + PVE + b"what is this\nhostname: \xff\n\t\n"
    config = parse(data, "x")
    assert lxc_config.edited(config, {}, ()) == data
    assert config.value("rootfs") == "local:101/x.raw"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it has no entry that tells its format"),
        (b"# only a comment\n\n", "it has no entry that tells its format"),
        (b"all:\n  hosts: x\nname: y\n", "it has key name and no rootfs"),
        (b"cores: 4\nscsi0: local:100/x\n", "it has key cores and no rootfs"),
        (b"lxc.uts.name = x\n[section]\n", "it has section [section] and no rootfs"),
        (b"lxc.uts.name = x\nlxc.net.0.type\n", "line 2 is no `key = value`"),
        (PVE + b"\0", "line 3 holds a NUL byte"),
        (PVE + b"#" * (1 << 20), "it has more than 1048576 bytes"),
        (PVE + b"dev1: /dev/a\nswap: 0\ndev1: /dev/b\n", "dev1 is in line 3 and in line 5, of which only one counts"),
    ],
)
def test_file_that_cannot_be_understood_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(data, "/x/101.conf")
    assert str(caught.value).startswith(f"reading the container's configuration /x/101.conf: {why}; ")
    assert caught.value.facts == {"path": "/x/101.conf"}


def test_root_file_system_of_a_snapshot_does_not_make_a_container() -> None:
    with pytest.raises(ConfigError, match="it has key cores and no rootfs"):
        parse(b"cores: 4\n[old]\nrootfs: local:1/x\n", "x")


def test_same_device_number_in_a_snapshot_is_fine() -> None:
    config = parse(PVE + b"dev0: /dev/a\n[old]\ndev0: /dev/b\n[older]\ndev0: /dev/c\n", "x")
    assert [one.path for one in lxc_config.devices(config)] == ["/dev/a"]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("/dev/nvidia0", "/dev/nvidia0"),
        ("/dev/nvidia0,mode=0666", "/dev/nvidia0"),
        ("path=/dev/nvidia0,gid=44", "/dev/nvidia0"),
        ("gid=44,path=/dev/nvidia0", "/dev/nvidia0"),
        ("uid=0,/dev//nvidia0", "/dev/nvidia0"),
        ("//dev/nvidia0", "/dev/nvidia0"),
        ("uid=0", ""),
        ("path=", ""),
    ],
)
def test_path_of_a_device_entry_is_read_however_it_is_written(value: str, path: str) -> None:
    assert lxc_config.device_path(value) == path


def test_mounts_are_read_with_either_separator_quotes_and_spaces() -> None:
    text = b"""lxc.mount.entry: /dev/a dev/a none bind,optional
lxc.mount.entry = /dev/b   dev/b\tnone  rbind,create=file 0 0
#lxc.mount.entry: /dev/c dev/c none bind
lxc.mount.entry: lonely
lxc.mount.entry:/dev//d /dev/d
[old]
lxc.mount.entry: /dev/e dev/e none bind
"""
    config = parse(PVE + text, "x")
    assert [(one.line, one.source, one.target, one.options) for one in lxc_config.mounts(config)] == [
        (2, "/dev/a", "/dev/a", ("bind", "optional")),
        (3, "/dev/b", "/dev/b", ("rbind", "create=file")),
        (6, "/dev/d", "/dev/d", ()),
    ]
    quoted = parse(PLAIN + b'  lxc.mount.entry="/dev/a dev/a none bind"\n', "x")
    assert lxc_config.mounts(quoted)[0].options == ("bind",)


def test_only_rules_for_one_major_of_character_devices_are_rules() -> None:
    text = b"""lxc.cgroup2.devices.allow: c 195:* rwm
lxc.cgroup2.devices.allow: a
lxc.cgroup2.devices.allow: c *:* m
lxc.cgroup2.devices.allow: b 195:* rwm
lxc.cgroup2.devices.deny: c 196:* rwm
lxc.cgroup.devices.allow = c  197:255 rw
"""
    found = lxc_config.allows(parse(PVE + text, "x"))
    assert [(one.line, one.major, one.minor, one.access, one.version) for one in found] == [
        (2, 195, "*", "rwm", 2),
        (7, 197, "255", "rw", 1),
    ]


def test_pending_changes_are_those_of_the_pending_section_only() -> None:
    text = (
        PVE
        + b"[a]\ndev1: /dev/x\ndelete: dev2\n[PVE:pending]\ndev3: /dev/y\ndelete: dev4,!dev5 swap\n[b]\ndev6: /dev/z\n"
    )
    assert lxc_config.pending(parse(text, "x")) == ({3: "/dev/y"}, frozenset({4, 5}))


def test_new_lines_go_behind_the_last_of_their_kind_in_the_main_section() -> None:
    data = (FIXTURES / "pve9.conf").read_bytes()
    added = [("dev", "dev1: /dev/x"), (lxc_config.ALLOW, "ALLOW"), (lxc_config.MOUNT, "MOUNT")]
    lines = lxc_config.edited(parse(data, "x"), {}, added).decode().split("\n")
    at = lines.index("dev1: /dev/x")
    assert lines[at - 1 : at + 2] == ["dev0: /dev/dri/renderD128,gid=104", "dev1: /dev/x", "features: nesting=1"]
    at = lines.index("ALLOW")
    assert lines[at - 1 : at + 4] == ["lxc.prlimit.memlock = unlimited", "ALLOW", "MOUNT", "", "[pve:pending]"]


def test_device_entries_go_before_the_raw_lines_when_there_are_none_yet() -> None:
    data = (FIXTURES / "pve8-raw.conf").read_bytes()
    lines = lxc_config.edited(parse(data, "x"), {}, [("dev", "dev0: /dev/x")]).decode().split("\n")
    at = lines.index("dev0: /dev/x")
    assert lines[at - 1].startswith("rootfs: ") and lines[at + 1] == "lxc.cgroup2.devices.allow: c 195:* rwm"


def test_rule_that_allows_goes_behind_one_that_denies_all() -> None:
    data = PLAIN + b"lxc.cgroup2.devices.deny = a\nlxc.arch = amd64\n"
    assert lxc_config.edited(parse(data, "x"), {}, [(lxc_config.ALLOW, "A")]).split(b"\n")[1:3] == [
        b"lxc.cgroup2.devices.deny = a",
        b"A",
    ]


def test_new_lines_end_like_their_neighbour() -> None:
    data = PVE.replace(b"\n", b"\r\n")
    assert lxc_config.edited(parse(data, "x"), {}, [("dev", "dev0: /dev/x")]) == data + b"dev0: /dev/x\r\n"


def test_missing_newline_at_the_end_is_missing_afterwards_and_after_the_way_back() -> None:
    data = PVE[:-1]
    more = lxc_config.edited(parse(data, "x"), {}, [("dev", "dev0: /dev/x")])
    assert more == PVE + b"dev0: /dev/x"
    assert lxc_config.edited(parse(more, "x"), {2: None}, ()) == data


def test_blank_line_stays_when_the_unfinished_line_behind_it_goes() -> None:
    data = PVE + b"\ndev0: /dev/x"
    assert lxc_config.edited(parse(data, "x"), {3: None}, ()) == PVE + b"\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/dev/a dev/a none bind,optional,create=file", "/dev/a dev/a none bind,optional,create=file"),
        ("/dev/a dev/a none rbind,ro,optional,create=dir", "/dev/a dev/a none rbind,ro,optional,create=dir"),
        (" /dev/a   dev/a none\tbind 0  0", " /dev/a   dev/a none\tbind,optional,create=file 0  0"),
        ("/dev/a dev/a none defaults", "/dev/a dev/a none bind,optional,create=file"),
        ("/dev/a dev/a", "/dev/a dev/a none bind,optional,create=file"),
    ],
)
def test_options_are_completed_and_the_rest_of_the_line_stays(before: str, after: str) -> None:
    config = parse(PVE + f"lxc.mount.entry: {before}\n".encode(), "x")
    one = lxc_config.mounts(config)[0]
    assert lxc_config.completed_mount(config, one, False) == f"lxc.mount.entry: {after}"


def test_quotes_stay_around_completed_options() -> None:
    config = parse(PLAIN + b"lxc.mount.entry = '/dev/a dev/a none bind'\n", "x")
    one = lxc_config.mounts(config)[0]
    text = lxc_config.completed_mount(config, one, True)
    assert text == "lxc.mount.entry = '/dev/a dev/a none bind,optional,create=dir'"


def test_entries_are_written_in_the_format_of_the_file() -> None:
    plain, proxmox = parse(PLAIN, "x"), parse(PVE + b"lxc.arch = amd64\n", "x")
    assert lxc_config.allow_text(plain, 7) == "lxc.cgroup2.devices.allow = c 7:* rwm"
    assert lxc_config.allow_text(proxmox, 7) == "lxc.cgroup2.devices.allow: c 7:* rwm"
    assert lxc_config.mount_text(proxmox, "/dev/a/b", True) == (
        "lxc.mount.entry: /dev/a/b dev/a/b none bind,optional,create=dir"
    )
