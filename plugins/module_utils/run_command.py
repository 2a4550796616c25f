# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running a command of the system that ends by itself, with English output and the directories that root needs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

#: An initramfs for each of several kernels takes minutes on a slow disk.
LIMIT_S = 900

#: Exit status of a command that cannot be run or takes too long, as a shell has it for one that is not there.
NOT_RUN = 127


def run_apart(
    command: Sequence[str], limit_s: float = LIMIT_S, environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Exit status, output and errors apart; NOT_RUN and why when it cannot be run or takes longer than `limit_s`.

    :param environment: more variables than those of this process, LC_ALL and PATH.
    """
    folders = [os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/bin", "/bin"]
    path = os.pathsep.join(folders).lstrip(os.pathsep)
    try:
        done = subprocess.run(
            list(command),
            env={**os.environ, "LC_ALL": "C", "PATH": path, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return NOT_RUN, "", str(error)
    return done.returncode, done.stdout, done.stderr


def run(command: Sequence[str]) -> tuple[int, str]:
    """Exit status, and what it wrote with the errors behind it, for commands of which a person only sees the end."""
    status, output, errors = run_apart(command)
    return status, output + errors
