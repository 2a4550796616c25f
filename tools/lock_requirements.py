# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Resolve the controller's requirements anew, from pyproject.toml to requirements/*.txt.

The files hold versions and hashes for every platform and no index address, so that each machine uses its own index.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from make_venv import uv_environment

ROOT = Path(__file__).resolve().parent.parent
PROJECT = ("pyproject.toml",)
# What each file holds: the project's dependencies, a dependency group, or both.
SOURCES = {
    "bootstrap": ("--group", "pyproject.toml:bootstrap"),
    "deploy": PROJECT,
    "dev": (*PROJECT, "--group", "pyproject.toml:dev"),
}


def command(name: str) -> list[str]:
    """The uv command that locks one file."""
    return [
        *(str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--upgrade"),
        *("--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate", "--no-header"),
        *("--no-emit-index-url", "--no-emit-find-links"),
        *(*SOURCES[name], "--output-file", f"requirements/{name}.txt"),
    ]


def main() -> int:
    """Lock every file; returns the exit code."""
    # Places that hold a part of the files only (wheels for this machine) would leave the other hashes out of the lock.
    env = uv_environment([sys.executable, "-m", "pip"], extra_index_urls=(), find_links=())
    for name in SOURCES:
        print(f"requirements/{name}.txt", flush=True)
        code = subprocess.run(command(name), cwd=ROOT, env=env, stdin=subprocess.DEVNULL, check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
