# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether this is a container, whose kernel is somebody else's.

systemd's "Container Interface" (https://systemd.io/CONTAINER_INTERFACE): the manager sets `container` in the
environment of the first process, and systemd writes it to /run/systemd/container. Docker and Podman leave files of
their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable

SYSTEMD_MARK = "/run/systemd/container"
MARKS = (SYSTEMD_MARK, "/run/.containerenv", "/.dockerenv")
FIRST_ENVIRONMENT = "/proc/1/environ"

_KINDS = {"/run/.containerenv": "podman", "/.dockerenv": "docker"}


def mark(
    read: Callable[[str], bytes | None],
    marks: tuple[str, ...] = MARKS,
    first_environment: str = FIRST_ENVIRONMENT,
) -> str:
    """What says that this is a container: a path, empty when nothing does.

    :param read: the bytes of a file, None when there is none or only others may read it.
    """
    for path in marks:
        if read(path) is not None:
            return path
    return first_environment if _named(read(first_environment)) else ""


def kind(read: Callable[[str], bytes | None]) -> str:
    """lxc, docker, podman, ... as its manager calls it, "container" when nobody says, and empty outside of one."""
    found = mark(read)
    if not found:
        return ""
    told = (read(SYSTEMD_MARK) or b"").decode("utf-8", "replace").strip() or _named(read(FIRST_ENVIRONMENT))
    return told or _KINDS.get(found, "container")


def _named(environment: bytes | None) -> str:
    for entry in (environment or b"").split(b"\0"):
        found = re.fullmatch(rb"container=(.+)", entry)
        if found:
            return found[1].decode("utf-8", "replace")
    return ""
