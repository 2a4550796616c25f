# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Limits of login sessions: the file for limits.d, and which of them a session here cannot have.

A session cannot go above the hard limits of the first process unless it has CAP_SYS_RESOURCE in the machine's own user
namespace (setrlimit(2)). In most containers nobody has; pam_limits then only writes a line to the log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import own_file
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

#: Items of limits.conf(5) with a soft and a hard limit.
ITEMS = (
    "as core cpu data fsize locks memlock msgqueue nice nofile nproc priority rss rtprio sigpending stack".split()  # noqa: SIM905
)
UNLIMITED = ("unlimited", "infinity", "-1")
#: The two of them that may be below zero.
_SIGNED = ("nice", "priority")

#: Lines of /proc/PID/limits (proc(5)), and how many of their units one of limits.conf(5) is.
_LINES = {
    "as": ("Max address space", 1024),
    "core": ("Max core file size", 1024),
    "memlock": ("Max locked memory", 1024),
    "nofile": ("Max open files", 1),
    "nproc": ("Max processes", 1),
    "sigpending": ("Max pending signals", 1),
    "stack": ("Max stack size", 1024),
}
_CAP_SYS_RESOURCE = 1 << 24


class LimitError(HostError):
    """What is asked for is no limit; the text says what is."""


@dataclass(frozen=True)
class Later:
    """A line of another file that comes after ours and gives all users, or root, another limit."""

    file: str
    line: int
    item: str
    value: str


def rendered(limits: Mapping[str, Any]) -> str:
    """The file for limits.d, empty for no limits. Raises LimitError."""
    lines = []
    for item in sorted(limits):
        value = limits[item]
        text = str(value)
        pattern = r"-?[0-9]{1,19}" if item in _SIGNED else r"[0-9]{1,19}"
        number = isinstance(value, (int, str)) and not isinstance(value, bool) and re.fullmatch(pattern, text)
        if item not in ITEMS or not (number or text in UNLIMITED):
            raise LimitError(
                f"setting the limit {item} to {value!r}: this is no item and value of limits.conf(5); give one of "
                f"{', '.join(ITEMS)} with a number or unlimited",
                item=item,
            )
        # The star does not mean root (limits.conf(5)).
        lines += [f"{who} - {item} {text}\n" for who in ("*", "root")]
    return own_file.HEADER + "".join(lines) if lines else ""


def overridden(limits: Mapping[str, Any], file: str) -> list[Later]:
    """What later files of the directory say of what `file` sets.

    pam_limits reads them in the order of their names and takes the last line of a user (pam_limits(8)). Lines for a
    user or a group are more exact than ours, and meant so.
    """
    found = []
    for path in own_file.later_files(file):
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                text = stream.read(1 << 20)
        except OSError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            words = line.partition("#")[0].split()
            if len(words) == 4 and words[0] in ("*", "root") and words[2] in limits:
                wanted = str(limits[words[2]])
                if words[3] != wanted and not (words[3] in UNLIMITED and wanted in UNLIMITED):
                    found.append(Later(path, number, words[2], words[3]))
    return found


def out_of_reach(limits: Mapping[str, Any], first_limits: str, first_status: str, uid_map: str) -> list[str]:
    """A sentence for each limit that a session here cannot have.

    :param first_limits: /proc/1/limits.
    :param first_status: /proc/1/status, for the capabilities that can be had.
    :param uid_map: /proc/1/uid_map; another than the machine's own means a user namespace.
    """
    bounding = re.search(r"^CapBnd:\s*([0-9a-f]+)$", first_status, re.MULTILINE)
    may_raise = bounding is not None and int(bounding[1], 16) & _CAP_SYS_RESOURCE
    if bounding is None or (may_raise and uid_map.split() in ([], ["0", "0", "4294967295"])):
        return []
    found = []
    for item in sorted(limits):
        name, unit = _LINES.get(item, ("", 1))
        hard = re.search(rf"^{name}\s+\S+\s+([0-9]+)\s", first_limits, re.MULTILINE) if name else None
        text = str(limits[item])
        if hard and (text in UNLIMITED or (text.isdigit() and int(text) * unit > int(hard[1]))):
            found.append(
                f"limit {item}: {text} is asked for, and no session in this container can have more than "
                f"{int(hard[1]) // unit}; raise it on the hypervisor (lxc.prlimit.{item} in the container's "
                "configuration)"
            )
    return found
