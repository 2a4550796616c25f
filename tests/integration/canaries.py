# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where secrets came to: values that nothing else has, and everything of a rollout searched for them."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: In every secret of this run and nowhere else on the machine.
MARK = f"canary-{secrets.token_hex(8)}"
VARIABLES: dict[str, Any] = {
    "sglang_server_api_key": f"client-{MARK}",
    "sglang_server_admin_api_key": f"admin-{MARK}",
    "sglang_hub_token": f"hub-{MARK}",
    "sglang_server_secrets": {"HF_TOKEN": f"server-{MARK}"},
}
#: All files below a root that may hold a secret, each with mode 0600: what the launcher reads, and the copy of it that
#: a rollout keeps until it is over.
MAY_HOLD = re.compile(r"state/secrets\.env|state/rollout/kept/.+")
#: What others installed or downloaded is no place that a rollout writes secrets to, and takes minutes to read.
LEFT_OUT = ("venvs", "models")
_EVERY_S = 0.1


@dataclass
class Arguments:
    """What the arguments of all processes on this machine held, in many looks."""

    looks: int = 0
    seen: set[str] = field(default_factory=set)
    leaks: set[str] = field(default_factory=set)


@contextlib.contextmanager
def arguments_watched() -> Iterator[Arguments]:
    """Look at all arguments, again and again, until the block is left."""
    found, over = Arguments(), threading.Event()

    def look() -> None:
        while not over.wait(_EVERY_S):
            for entry in os.scandir("/proc"):
                if entry.name.isdecimal():
                    with contextlib.suppress(OSError):
                        text = Path(entry.path, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                        found.seen.update(
                            name for name in ("deploy.yml", "launch.py", "tokforge_rollout") if name in text
                        )
                        if MARK in text:
                            found.leaks.add(text)
            found.looks += 1

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join(30)


def holders(directory: Path, leave_out: tuple[str, ...] = ()) -> list[Path]:
    """Plain files below a directory that hold a secret, by path, without names at its top that are left out."""
    found = []
    for folder, folders, files in os.walk(directory):
        if folder == str(directory):
            folders[:] = [name for name in folders if name not in leave_out]
        for name in files:
            path = Path(folder, name)
            with contextlib.suppress(OSError):
                if path.is_file() and not path.is_symlink() and MARK.encode() in path.read_bytes():
                    found.append(path)
    return sorted(found)


def leaks(root: Path) -> list[str]:
    """Files in which a secret should not be: below the root, where Ansible works, and where this machine logs."""
    found = []
    for path in holders(root, LEFT_OUT):
        name, mode = str(path.relative_to(root)), path.stat().st_mode & 0o7777
        if not MAY_HOLD.fullmatch(name) or mode != 0o600:
            found.append(f"{name} with mode {mode:04o}")
    places = [Path.home() / ".ansible", Path("/var/log"), *Path("/tmp").glob("ansible*")]
    return found + [str(path) for place in places for path in holders(place)]
