# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running a command of the system that ends by itself, with English output and the directories that root needs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

#: An initramfs for each of several kernels takes minutes on a slow disk.
LIMIT_S = 900


def run(command: Sequence[str]) -> tuple[int, str]:
    """Exit status and what it wrote, errors included; 127 when it cannot be run or takes longer than LIMIT_S."""
    folders = [os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"]
    try:
        done = subprocess.run(
            list(command),
            env={**os.environ, "LC_ALL": "C", "PATH": os.pathsep.join(folders).lstrip(os.pathsep)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, done.stdout
