# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the boxes should have; the scenario tells it."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the scenario say what it asked for."""
    parser.addoption("--driver", required=True, help="version of the driver")
    parser.addoption("--uvm", type=int, required=True, help="major number that the kernel gives to nvidia-uvm")


@pytest.fixture(scope="session")
def driver(request: pytest.FixtureRequest) -> str:
    """Version of the driver."""
    return str(request.config.getoption("--driver"))


@pytest.fixture(scope="session")
def uvm(request: pytest.FixtureRequest) -> int:
    """Major number of nvidia-uvm; that of nvidia-caps is the next one."""
    return int(request.config.getoption("--uvm"))
