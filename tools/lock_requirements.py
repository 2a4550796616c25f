# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolve the controller's requirements anew: pyproject.toml's dependency groups to requirements/*.txt.

The files hold versions and hashes for every platform and no index address, so that each machine uses its own index.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from make_venv import uv_environment

ROOT = Path(__file__).resolve().parent.parent
GROUPS = ("bootstrap", "deploy", "dev")


def command(group: str) -> list[str]:
    """The uv command that locks one group."""
    return [
        *(str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--upgrade"),
        *("--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate", "--no-header"),
        *("--no-emit-index-url", "--no-emit-find-links"),
        *("--group", f"pyproject.toml:{group}", "--output-file", f"requirements/{group}.txt"),
    ]


def main() -> int:
    """Lock every group; returns the exit code."""
    # Places that hold a part of the files only (wheels for this machine) would leave the other hashes out of the lock.
    env = uv_environment([sys.executable, "-m", "pip"], extra_index_urls=(), find_links=())
    for group in GROUPS:
        print(f"requirements/{group}.txt", flush=True)
        code = subprocess.run(command(group), cwd=ROOT, env=env, stdin=subprocess.DEVNULL, check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
