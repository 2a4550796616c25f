# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""proxmox-boot-tool as its own help text has it (package proxmox-kernel-helper; Proxmox VE administration guide, Host
Bootloader). It has no man page and reads its arguments by their place.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

import grammar

_NAME = "/usr/sbin/proxmox-boot-tool"
_FORMS = [
    "format <partition> [--force]",
    "init <partition>",
    "reinit",
    "clean [--dry-run]",
    "refresh [--hook <name>]",
    "kernel <add|remove> <kernel-version>",
    "kernel pin <kernel-version> [--next-boot]",
    "kernel unpin [--next-boot]",
    "kernel list",
    "status [--quiet]",
    "help",
]
_USAGE = f"USAGE: {_NAME} <commands> [ARGS]\n\n" + "".join(f"  {_NAME} {one}\n" for one in _FORMS)


def main(given: Sequence[str]) -> None:
    """The program."""
    words = list(given)
    if words == ["help"]:
        sys.stdout.write(_USAGE)
    elif words in (["status"], ["status", "--quiet"]):
        _status(quiet=len(words) > 1)
    elif words == ["refresh"] or (len(words) == 3 and words[:2] == ["refresh", "--hook"] and words[2]):
        _kernels()
        sys.stdout.write("Running hook script 'proxmox-auto-removal'..\nRunning hook script 'zz-proxmox-boot'..\n")
    elif words[:1] == ["kernel"]:
        _kernel(words[1:])
    else:
        grammar.give_up(_USAGE, 1)


def _kernels() -> dict[str, Any]:
    path = grammar.state() / "kernels.json"
    if not path.exists():
        grammar.give_up("E: /etc/kernel/proxmox-boot-uuids does not exist.", 2)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _status(quiet: bool) -> None:
    if quiet and not (grammar.state() / "kernels.json").exists():
        sys.exit(2)
    known = _kernels()
    if not quiet:
        versions = ", ".join([*known["automatic"], *known["manual"]])
        sys.stdout.write(
            f"Re-executing '{_NAME}' in new private mount namespace..\nSystem currently booted with uefi\n"
            f"6A1B-2C3D is configured with: uefi (versions: {versions})\n"
        )


def _kernel(words: list[str]) -> None:
    known = _kernels()
    every = [*known["manual"], *known["automatic"]]
    flag = "next" if words[-1:] == ["--next-boot"] else "pinned"
    bare = words[:-1] if flag == "next" else words
    if words == ["list"]:
        pinned = f"\nPinned kernel:\n{known['pinned']}\n" if known["pinned"] else ""
        pinned += f"\nKernel pinned on next-boot:\n{known['next']}\n" if known["next"] else ""
        sys.stdout.write(
            "Manually selected kernels:\n" + ("\n".join(known["manual"]) or "None.") + "\n\n"
            "Automatically selected kernels:\n" + ("\n".join(known["automatic"]) or "None.") + "\n" + pinned
        )
        return
    if bare == ["unpin"]:
        known[flag] = ""
    elif len(bare) == 2 and bare[0] in ("pin", "add") and re.fullmatch(r"\d+\.\d+\S*", bare[1], re.ASCII):
        if bare[0] == "pin":
            if bare[1] not in every:
                grammar.give_up(f"E: no kernel image found in /boot for '{bare[1]}', not setting default.", 1)
            known[flag] = bare[1]
        elif flag == "next":
            grammar.give_up(_USAGE, 1)
        else:
            known["manual"] = [*known["manual"], bare[1]]
    elif len(words) == 2 and words[0] == "remove" and words[1] in known["manual"]:
        known["manual"] = [one for one in known["manual"] if one != words[1]]
    else:
        grammar.give_up(_USAGE, 1)
    (grammar.state() / "kernels.json").write_text(json.dumps(known))
