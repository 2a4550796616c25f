# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the machine that is looked at, below a root directory so that a test can show another machine.

What cannot be read is None or empty, never an error: a look says what it saw.
"""

from __future__ import annotations

import os

#: The most of one file that is read, in bytes. What we look at is a page of text; a device or a log may have no end.
MOST_BYTES = 4_000_000

#: PATH of a service that systemd starts and nobody gave one (systemd.exec(5)).
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def place(root: str, path: str) -> str:
    """Where the absolute `path` of the machine lies here."""
    return os.path.join(root, path.lstrip("/"))


def real(root: str, path: str) -> str:
    """Where the absolute `path` of the machine lies here, without symbolic links."""
    here = place(root, path)
    try:
        return os.path.realpath(here)
    except (OSError, ValueError):
        return here


def read(root: str, path: str) -> str | None:
    """The text of a file, None when it cannot be read."""
    try:
        with open(place(root, path), "rb") as stream:
            return stream.read(MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        # ValueError: a NUL in a name.
        return None


def names(root: str, path: str) -> list[str]:
    """The sorted names in a directory, none when it cannot be read."""
    try:
        return sorted(os.listdir(place(root, path)))
    except (OSError, ValueError):
        return []


def is_file(root: str, path: str) -> bool:
    """Whether a regular file, or a link to one, is there."""
    return os.path.isfile(place(root, path))


def is_directory(root: str, path: str) -> bool:
    """Whether a directory, or a link to one, is there."""
    return os.path.isdir(place(root, path))


def which(root: str, name: str, path: str) -> str:
    """The first executable of that name in the directories of a PATH text, as the machine names it, or ""."""
    if "/" in name:
        candidates = [name]
    else:
        candidates = [os.path.join(folder, name) for folder in path.split(os.pathsep) if folder.startswith("/")]
    for candidate in candidates:
        if is_file(root, candidate) and os.access(place(root, candidate), os.X_OK):
            return candidate
    return ""


def whole(text: str | None) -> int | None:
    """The whole number that a file of one number holds, None for anything else."""
    bare = (text or "").strip()
    # More digits than that is no count of anything, and a very long text takes Python long to turn into a number.
    return int(bare) if bare.isascii() and bare.isdigit() and len(bare) <= 20 else None
