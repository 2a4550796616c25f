# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An explanation from beginning to end, over servers of which one difference matters and one does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from experimenting import SUPERVISORD, Site, with_releases
from full_only import IN_FULL

pytestmark = pytest.mark.skipif(not SUPERVISORD.exists(), reason=f"{SUPERVISORD} is not there")

SLOW = {"max-running-requests": 4}
FINDING = {"level": "warn", "check": "p2p", "message": "P2P is off", "remedy": "set up ACS"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, SLOW)
    yield made
    made.end()


@IN_FULL
def test_difference_that_matters_is_told_from_the_one_that_does_not(site: Site) -> None:
    asked = {
        "sglang_experiment_kind": "explain",
        "sglang_explain_b": {"args": {"max-running-requests": 8, "page-size": 16}},
        # The effects can be read from one start of each, and no verdict.
        "sglang_experiment_starts": 1,
        "sglang_experiment_repetitions": 3,
        "sglang_ready_output_check": False,
        # What is left of the last configuration that was checked, and what is known of one of them.
        "sglang_preflight": [{**FINDING, "check": "last"}],
        "sglang_choice": {"reason": "of the last one"},
        "sglang_backend_info": {"forced": True},
        "__sglang_experiment_checks": {"B": {"preflight": [FINDING], "backend_forced": True, "chosen": "of B"}},
    }
    points = {
        "A": SLOW,
        "B": {"max-running-requests": 8, "page-size": 16},
        "max-running-requests=8": {"max-running-requests": 8},
        "page-size=16": {**SLOW, "page-size": 16},
    }
    code, output = site.run(**with_releases(site, asked, **points))
    assert code == 0, output
    assert {one["candidate"]: one["state"] for one in site.trials()} == dict.fromkeys(points, "done")
    of_trials = {record["experiment"]["candidate"]: record for record in site.facts()["history"]}
    assert of_trials["B"]["preflight"]["findings"] == [FINDING]
    assert {name: record["context"]["chosen"] for name, record in of_trials.items()} == {
        **dict.fromkeys(points, ""),
        "B": "of B",
    }
    others = [record for name, record in of_trials.items() if name != "B"]
    assert [(one["preflight"], one["context"]["backend_forced"]) for one in others] == [(None, False)] * 3
    found = site.facts()["explanations"][-1]
    assert found["concurrency"] == 8
    # Eight at once instead of four, and then nothing that a server of these tests knows. The larger effect comes first.
    fast, idle = found["steps"]
    assert fast["name"] == "max-running-requests=8" and 50 < fast["change_percent"] < 150
    assert fast["difference"] == {"what": "args", "name": "max-running-requests", "a": 4, "b": 8}
    assert idle["name"] == "page-size=16"
    assert abs(idle["change_percent"]) < 25 and abs(idle["alone_percent"]) < 25
    assert 50 < found["total"]["change_percent"] < 150
    assert {one["verdict"] for one in (fast, idle, found["total"])} == {"not_comparable"}
    assert any("have only 1 starts; 5 are needed" in note for note in found["notes"]), found["notes"]
    assert "max-running-requests=8: +" in output
    assert (site.current(), site.arguments().get("page-size")) == (site.original, None)
    assert site.serves()
