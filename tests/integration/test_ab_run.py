# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An A/B run from beginning to end, over servers whose difference is real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from experimenting import BASE_ARGS, SUPERVISORD, Site, with_releases
from full_only import IN_FULL

pytestmark = pytest.mark.skipif(not SUPERVISORD.exists(), reason=f"{SUPERVISORD} is not there")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, BASE_ARGS)
    yield made
    made.end()


@IN_FULL
def test_true_difference_is_found_and_what_served_before_serves_again(site: Site) -> None:
    asked = {
        "sglang_experiment_kind": "ab",
        "sglang_ab": "max_running_requests",
        "sglang_ab_values": [1, 8],
        "sglang_ready_output_check": False,
    }
    sides = {"A": {"max-running-requests": 1}, "B": {"max-running-requests": 8}}
    code, output = site.run(**with_releases(site, asked, **sides))
    assert code == 0, output
    found = site.facts()["comparisons"][-1]
    assert (found["kind"], found["verdict"], found["unit"]) == ("ab", "faster", "start")
    point = found["points"][0]
    assert (point["a"]["n"], point["b"]["n"]) == (5, 5)
    # Eight at once instead of one after the other.
    assert point["change_percent"] > 200
    assert point["p_value"] == pytest.approx(2 / 252)
    assert [one["candidate"] for one in site.trials()] == ["A", "B", "B", "A", "B", "A", "A", "B", "B", "A"]
    assert "verdict    faster" in output
    assert site.current() == site.original
    assert site.serves()
