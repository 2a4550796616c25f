# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine's files as a test wants them, for looks that read below a root directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

#: Mounts of a machine or container with the new control groups only.
MOUNTS_V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

#: Mounts of a machine with the old control groups, each controller by itself or two together.
MOUNTS_V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "36 31 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    "37 31 0:34 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


def machine(root: Path, files: Mapping[str, str], programs: Mapping[str, str] | None = None) -> str:
    """Write files and executable ones, by their path on the machine; gives the root as looks want it."""
    for path, text in {**files, **(programs or {})}.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        if path in (programs or {}):
            target.chmod(0o755)
    return str(root)
