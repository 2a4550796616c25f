# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A throw-away copy of this machine to run roles in that write where only root may: an overlay over its root."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

LIMIT_S = 900
_OWN_MOUNTS = ("unshare", "-m", "--propagation", "private")
_OVERLAY = """
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --rbind /proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
root="$1/root"
shift
exec chroot "$root" "$@"
"""


def works(*tools: str) -> bool:
    """Whether a process may have a root of its own over this machine's, and these programs are there."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "chroot", *tools))):
        return False
    probe = [*_OWN_MOUNTS, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(probe, capture_output=True, check=False).returncode == 0


def run(folder: Path, command: list[str]) -> str:
    """Run a command in a copy that is gone afterwards, and give its output."""
    (folder / "overlay").mkdir()
    whole = [*_OWN_MOUNTS, "sh", "-c", _OVERLAY, "sh", f"{folder}/overlay", *command]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
