# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""See all that provisioning could change on this host: every file with its content, packages, units.

    tree.py keep NAME       keep it
    tree.py compare NAME    print what differs from what was kept, and end with 1 when something does

Times are left out, and so are caches: what they were made from is compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator

ROOTS = ["/boot", "/etc", "/opt", "/root", "/srv", "/usr", "/var/lib/dkms", "/var/lib/systemd", "/var/spool"]
# What our roles note is compared by its values: one that holds none is as good as none.
RECORDS = ["/var/lib/tokforge/host", "/srv/proxmox/record"]
KEPT = "/var/lib/tokforge-trees"
CONFIGURATIONS = "/var/lib/lxc"
LEFT_OUT = {
    *RECORDS,
    "/root/.ansible",
    # What a server writes while it runs.
    "/opt/sglang/cache",
    "/opt/sglang/log",
    "/opt/sglang/state",
    # What the stand-ins for Proxmox VE keep of calls and processes.
    "/srv/proxmox/calls",
    "/srv/proxmox/proc",
    "/srv/proxmox/run",
    # Mounted from this machine.
    "/srv/hardware",
    "/srv/hardware.py",
    "/srv/repository",
    # Random bytes for the next boot, and when timers ran.
    "/var/lib/systemd/random-seed",
    "/var/lib/systemd/timers",
}


def paths() -> Iterator[str]:
    """Every path below the roots, and the files beside the guests' root file systems."""
    for root in ROOTS:
        if os.path.lexists(root):
            yield root
        for directory, below, names in os.walk(root):
            below[:] = [
                name for name in below if name != "__pycache__" and os.path.join(directory, name) not in LEFT_OUT
            ]
            yield from (os.path.join(directory, name) for name in [*below, *names])
    if os.path.isdir(CONFIGURATIONS):
        for name in os.listdir(CONFIGURATIONS):
            guest = os.path.join(CONFIGURATIONS, name)
            yield guest
            if os.path.isdir(guest):
                yield from (os.path.join(guest, entry) for entry in os.listdir(guest) if entry != "rootfs")


def described(path: str) -> str:
    """Kind, mode, owner and content of a path."""
    status = os.lstat(path)
    said = f"{stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid}"
    if stat.S_ISLNK(status.st_mode):
        return f"{said} -> {os.readlink(path)}"
    if stat.S_ISREG(status.st_mode):
        with open(path, "rb") as file:
            return f"{said} {hashlib.sha256(file.read()).hexdigest()}"
    return said


def noted(record: str) -> dict[str, str]:
    """What a record holds, and every other file beside it."""
    if not os.path.isdir(record):
        return {}
    names = set(os.listdir(record)) - {"previous.json", "previous.json.lock"}
    found = dict.fromkeys(names, "a file")
    path = os.path.join(record, "previous.json")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            found |= {name: json.dumps(value) for name, value in json.load(file)["values"].items()}
    return found


def said_by(*command: str) -> list[str]:
    """What a program prints, line by line."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def look() -> dict[str, str]:
    """All of it, by name."""
    seen = {path: described(path) for path in paths() if path not in LEFT_OUT}
    seen |= {
        f"package {line}": ""
        for line in said_by("dpkg-query", "--show", "--showformat=${Package} ${Version} ${Status}\n")
    }
    for record in RECORDS:
        seen |= {f"{record} {name}": value for name, value in noted(record).items()}
    seen |= {f"hold {line}": "" for line in said_by("apt-mark", "showhold")}
    units = said_by("systemctl", "list-unit-files", "--no-legend", "--no-pager")
    seen |= {
        f"unit {fields[0]}": fields[1]
        for fields in map(str.split, units)
        if fields[1] not in ("generated", "transient")
    }
    return seen


def main() -> None:
    """Keep it, or compare it."""
    action, name = sys.argv[1:]
    path, now = os.path.join(KEPT, f"{name}.json"), look()
    if action == "keep":
        os.makedirs(KEPT, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(now, file)
        return
    with open(path, encoding="utf-8") as file:
        before = json.load(file)
    different = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    for name in different:
        print(f"{name}: {before.get(name, 'not there')} before, {now.get(name, 'not there')} now")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
