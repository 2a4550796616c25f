# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the machine is like now, and what it was like before the role ran for the first time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

PROBE = Path(__file__).with_name("probe.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the playbook say where the first look is."""
    parser.addoption("--before", required=True, help="what probe.py printed before the role ran")


@pytest.fixture(scope="session")
def before(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What probe.py saw before."""
    seen: dict[str, Any] = json.loads(Path(request.config.getoption("--before")).read_text(encoding="utf-8"))
    return seen


@pytest.fixture(scope="module")
def now(host: Any) -> dict[str, Any]:
    """What probe.py sees now."""
    seen: dict[str, Any] = json.loads(host.check_output("python3 -c %s", PROBE.read_text(encoding="utf-8")))
    return seen
