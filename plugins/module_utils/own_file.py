# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files of settings that are wholly ours: told by their first line, so that no file of somebody else is replaced."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

HEADER = "# Written by tokforge.sglang, role host_tuning. Changes made here are lost.\n"


class OwnFileError(HostError):
    """A file of ours cannot be read or written; the text says what to do."""


def read(path: str) -> str | None:
    """The text of our file, None without one. Raises OwnFileError for a file that is not ours."""
    try:
        with open(path, "rb") as stream:
            data = stream.read(1 << 20)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OwnFileError(f"reading {path}: {error.strerror}; make it a readable file", path=path) from error
    if not data.startswith(HEADER.encode()):
        raise OwnFileError(
            f"writing {path}: it is there and was not written by this collection; move it away, or choose another name",
            path=path,
        )
    return data.decode("utf-8", "replace")


def later_files(path: str, directories: Iterable[str] = ()) -> list[str]:
    """Files that are read after ours: those in its directory and the others whose names end in .conf and sort behind.

    A name counts once, in the first directory that has it, as for systemd-sysctl and modprobe.
    """
    folder, own = os.path.split(path)
    seen: dict[str, str] = {}
    for each in (folder, *directories):
        try:
            names = os.listdir(each)
        except OSError:
            continue
        for name in names:
            if name.endswith(".conf") and name > own:
                seen.setdefault(name, os.path.join(each, name))
    return [seen[name] for name in sorted(seen)]


def write(path: str, text: str | None) -> None:
    """Have our file with this text, or with None no file; nothing is written when it is so. Raises OwnFileError."""
    if read(path) == text:
        return
    try:
        if text is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        write_atomic(path, text.encode(), 0o644)
    except OSError as error:
        raise OwnFileError(f"writing {path}: {error.strerror}; make the directory writable", path=path) from error
