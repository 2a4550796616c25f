# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the scenario tells the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the scenario say what it did."""
    parser.addoption("--told", required=True, help="JSON file: root, port, plays, and what the last play was about")


@pytest.fixture(scope="session")
def told(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the last play was about."""
    found: dict[str, Any] = json.loads(Path(request.config.getoption("--told")).read_text())
    return found


@pytest.fixture(scope="session")
def servers(told: dict[str, Any]) -> dict[int, str]:
    """Process id -> release, for every process that a launcher below the root started, and what those started."""
    found = {}
    mark = f"TOKFORGE_RELEASE={told['root']}/releases/".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            values = path.read_bytes().split(b"\0")
        except OSError:  # it has ended, or is another user's
            continue
        for value in values:
            if value.startswith(mark):
                found[int(path.parent.name)] = value[len(mark) :].decode()
    return found
