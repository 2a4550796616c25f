# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which kernels a machine has: the one that runs, the one that is started next, and their headers.

A driver that DKMS builds needs the headers of both: with those of the running kernel alone the machine loses its GPUs
at the next start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils import host_files, shell_assignments

#: What `proxmox-boot-tool kernel pin` writes, and with --next-boot (PVE administration guide, "Host Bootloader").
PIN = "/etc/kernel/proxmox-boot-pin"
NEXT_BOOT_PIN = "/etc/kernel/next-boot-pin"
GRUB_DEFAULT = "/etc/default/grub"
GRUB_DIRECTORY = "/etc/default/grub.d"

#: What grub-set-default and grub-reboot write (GRUB manual, "Environment block").
GRUB_ENVIRONMENT = "/boot/grub/grubenv"

# What GRUB's scripts sort before the release that it leads to.
_BEFORE = frozenset({"rc", "pre", "test", "git", "old", "trunk"})
_END = (0, 0, "")


@dataclass(frozen=True)
class Next:
    """The release that the boot loader starts next; empty with the reason in `why` when it cannot be told."""

    release: str
    why: str


@dataclass(frozen=True)
class Headers:
    """Headers of one kernel, and the package that brings them."""

    release: str
    present: bool
    package: str


def order(release: str) -> tuple[tuple[int, int, str], ...]:
    """What to sort kernel releases by: numbers as numbers, other parts as text, 6.12-rc1 before 6.12, as GRUB does."""
    parts = re.findall(r"[0-9]+|[a-z]+", release.lower())
    return (
        *((1, int(part), "") if part.isdigit() else (-1 if part in _BEFORE else 0, 0, part) for part in parts),
        _END,
    )


def installed(root: str) -> list[str]:
    """Releases of the kernels in /boot, oldest first."""
    names = [name[len("vmlinuz-") :] for name in host_files.names(root, "/boot") if name.startswith("vmlinuz-")]
    return sorted((name for name in names if not name.endswith((".old", ".dpkg-bak", ".dpkg-new"))), key=order)


def next_release(root: str) -> Next:
    """The release that is started next, from Proxmox's pin, else from GRUB's default, else the newest in /boot."""
    there = installed(root)
    for path in (NEXT_BOOT_PIN, PIN):
        pinned = (host_files.read(root, path) or "").strip()
        if pinned:
            if pinned in there or not there:
                return Next(pinned, f"{path} pins it")
            return Next("", f"{path} pins {pinned}, which is not in /boot")
    if not there:
        return Next("", "there is no kernel in /boot")
    what, default = _grub_default(root)
    if default in ("", "0"):
        what, default = _grub_setting(root, "GRUB_TOP_LEVEL")
    if not default:
        return Next(there[-1], "it is the newest in /boot")
    named = [release for release in there if re.search(rf"(?<![\w.]){re.escape(release)}(?![\w.])", default)]
    if named:
        return Next(max(named, key=len), f"{what} names it")
    return Next("", f"{what} is {default!r}, which names no kernel in /boot")


def _grub_default(root: str) -> tuple[str, str]:
    """The entry that GRUB starts and what says so: the one chosen for once, else its setting, which may be `saved`."""
    block = host_files.read(root, GRUB_ENVIRONMENT) or ""
    noted = dict(line.partition("=")[::2] for line in block.splitlines() if not line.startswith("#"))
    if noted.get("next_entry"):
        return f"next_entry in {GRUB_ENVIRONMENT}", noted["next_entry"]
    what, default = _grub_setting(root, "GRUB_DEFAULT")
    if default == "saved" and block:
        return f"saved_entry in {GRUB_ENVIRONMENT}", noted.get("saved_entry", "")
    return what, default


def _grub_setting(root: str, name: str) -> tuple[str, str]:
    """What a variable is set to last, as GRUB's own scripts read the files, and where; of what only a shell could tell
    the text says so."""
    found, source = "", GRUB_DEFAULT
    more = [f"{GRUB_DIRECTORY}/{one}" for one in host_files.names(root, GRUB_DIRECTORY) if one.endswith(".cfg")]
    for path in (GRUB_DEFAULT, *more):
        try:
            assignments = shell_assignments.read(host_files.read(root, path) or "", path)
        except shell_assignments.ShellError as error:
            found, source = f"not readable: {error}", path
            continue
        for one in assignments:
            if one.name == name:
                found, source = one.value, path
    return f"{name} in {source}", found


def headers_package(release: str) -> str:
    """The package with the headers of exactly this release.

    Proxmox's kernels are called pve; from 6.5 on their packages are proxmox-*, before pve-* (PVE 8.1 release notes).
    """
    if re.search(r"-pve$", release):
        numbers = [int(part) for part in re.findall(r"\d+", release)[:2]]
        return f"{'proxmox' if numbers >= [6, 5] else 'pve'}-headers-{release}"
    return f"linux-headers-{release}"


def headers(root: str, releases: Sequence[str]) -> list[Headers]:
    """The headers of each release, each once."""
    return [Headers(one, _has_headers(root, one), headers_package(one)) for one in dict.fromkeys(releases) if one]


def _has_headers(root: str, release: str, readlink: Callable[[str], str] = os.readlink) -> bool:
    """Whether /lib/modules/RELEASE/build leads to a directory with a Makefile, which is what DKMS builds in.

    A link that is left behind when its package is removed leads nowhere.
    """
    build = f"/lib/modules/{release}/build"
    try:
        target = readlink(host_files.place(root, build))
    except (OSError, ValueError):
        target = ""
    where = os.path.normpath(os.path.join(os.path.dirname(build), target)) if target else build
    return host_files.is_file(root, os.path.join(where, "Makefile"))
