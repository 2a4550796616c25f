# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leaves the tests that need a GPU out where there is none, and says so."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# What runs plays and looks at what they leave is the same with and without a GPU.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))


def gpus() -> list[str]:
    """The GPUs that the driver shows, a line each."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    done = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is marked `gpu` on a machine without one."""
    need = [item for item in items if item.get_closest_marker("gpu")]
    if need and not gpus():
        config.hook.pytest_deselected(items=need)
        items[:] = [item for item in items if item not in need]


def pytest_report_header() -> str:
    """What the tests run on, or why they do not."""
    return "; ".join(gpus()) or "no GPU: nvidia-smi shows none, so the tests that need one are left out"
