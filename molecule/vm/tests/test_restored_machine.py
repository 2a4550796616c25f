# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machine is what it was before the role ran for the first time."""

from __future__ import annotations

from typing import Any


def test_kernel_runs_as_before(now: dict[str, Any], before: dict[str, Any]) -> None:
    apart = {"boot_id", "files"}
    assert {k: v for k, v in now.items() if k not in apart} == {k: v for k, v in before.items() if k not in apart}


def test_no_file_differs(now: dict[str, Any], before: dict[str, Any]) -> None:
    names = now["files"].keys() | before["files"].keys()
    seen = {name: (before["files"].get(name), now["files"].get(name)) for name in names}
    assert {name: pair for name, pair in seen.items() if pair[0] != pair[1]} == {}


def test_unit_is_unknown(host: Any) -> None:
    assert not host.service("tokforge-host").exists
