# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of what the checks before a rollout found."""

from __future__ import annotations

from ansible_collections.tokforge.sglang.plugins.filter.preflight_table import FilterModule, preflight_table

FINDINGS = [
    {"level": "ok", "check": "port", "message": "127.0.0.1:30000 is free", "remedy": ""},
    {"level": "warn", "check": "gpu", "message": "GPU 3 has 8 of 16 lanes", "remedy": "seat it again"},
    {"level": "fail", "check": "memory", "message": "needs 114.1 GB\nhas 96.0 GB", "remedy": "use 8 GPUs\nor fewer"},
]


def test_failures_come_first_and_each_has_its_remedy_below_it() -> None:
    assert preflight_table(FINDINGS, "box-1").splitlines() == [
        "box-1: 1 failed, 1 to look at, 1 well",
        "  fail  memory  needs 114.1 GB",
        "                has 96.0 GB",
        "                -> use 8 GPUs",
        "                -> or fewer",
        "  warn  gpu     GPU 3 has 8 of 16 lanes",
        "                -> seat it again",
        "  ok    port    127.0.0.1:30000 is free",
    ]


def test_nothing_found_is_said_too() -> None:
    assert preflight_table([], "box-1") == "box-1: 0 failed, 0 to look at, 0 well"
    assert FilterModule().filters() == {"preflight_table": preflight_table}
