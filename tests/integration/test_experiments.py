# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A/B runs and sweeps from beginning to end, with servers that are slow, crash or write garbage, and with kills."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from experimenting import SUPERVISORD, Site, changed

from ansible_collections.tokforge.sglang.plugins.module_utils import release_store

pytestmark = pytest.mark.skipif(not SUPERVISORD.exists(), reason=f"{SUPERVISORD} is not there")

SWEEP = {
    "sglang_experiment_kind": "sweep",
    "sglang_sweep_confirm_starts": 0,
    "sglang_sweep_candidates": [
        {"name": "slow", "args": {"max-running-requests": 1}},
        {"name": "crash", "args": {"crash": True}},
        {"name": "garbage", "args": {"garbage": True}},
        {"name": "good", "args": {"max-running-requests": 8}},
        {"name": "elsewhere", "args": {"tp-size": 64}},
    ],
}
BASE_ARGS = {"max-running-requests": 2}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, BASE_ARGS)
    yield made
    made.end()


def with_releases(site: Site, variables: dict[str, Any], **args: dict[str, Any]) -> dict[str, Any]:
    """The variables, and a release for each configuration by name."""
    releases = {name: site.stage({**BASE_ARGS, **own}) for name, own in args.items()}
    return {**variables, "releases": releases}


def test_sweep_survives_every_bad_candidate_is_killed_goes_on_and_lets_the_best_serve(site: Site) -> None:
    asked = with_releases(
        site,
        SWEEP,
        original={},
        slow={"max-running-requests": 1},
        crash={"crash": True},
        garbage={"garbage": True},
        good={"max-running-requests": 8},
    )
    process = site.start(**asked)
    deadline = time.monotonic() + 120
    while len([one for one in site.trials() if one["state"] != "waiting"]) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    done = {one["number"]: one for one in site.trials() if one["state"] in ("done", "failed", "invalid")}
    assert len(done) >= 2
    code, output = site.run(**asked)
    assert code == 0, output
    # What was done before the kill is not done again.
    again = {one["number"]: one for one in site.trials()}
    assert {number: again[number] for number in done} == done
    sweep = site.facts()["sweeps"][-1]
    states = {one["name"]: one["state"] for one in sweep["candidates"]}
    assert states == {
        "original": "measured",
        "slow": "measured",
        "crash": "failed",
        "garbage": "failed",
        "good": "measured",
        "elsewhere": "unsupported",
    }
    reasons = {one["name"]: one["reason"] for one in sweep["candidates"]}
    assert "this is why it ended" in reasons["crash"]
    assert "not usable" in reasons["garbage"]
    assert "64 GPUs" in reasons["elsewhere"]
    assert (sweep["winner"], sweep["finished"]) == ("good", True), (sweep, output)
    assert "winner     good" in output
    assert site.arguments()["max-running-requests"] == 8
    assert site.serves()
    # The winner was measured as a rollout does, which no trial is.
    latest = site.facts()["latest"]
    assert (latest["experiment"], latest["context"]["args"]["max-running-requests"]) == (None, 8)
    code, output = site.run(**asked)
    assert (code, changed(output)) == (0, 0), output


def test_play_that_is_killed_before_the_winner_serves_is_made_up_for(site: Site) -> None:
    good = {**SWEEP, "sglang_sweep_candidates": [SWEEP["sglang_sweep_candidates"][3]]}
    asked = with_releases(site, good, original={}, good={"max-running-requests": 8})
    process = site.start(**asked)
    assert process.stdout is not None
    for line in process.stdout:
        if "Let the better one serve" in line:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            break
    process.communicate()
    # What the play left may be anything that was tried: here the last one was the original again.
    release_store.switch(str(site.root), site.original)
    code, output = site.run(**asked)
    assert code == 0, output
    assert "winner     good" in output
    assert site.arguments()["max-running-requests"] == 8
    assert site.serves()
    code, output = site.run(**asked)
    assert (code, changed(output)) == (0, 0), output
    # It is over, so what serves now is what the next experiment is held against.
    assert "sglang_experiment_force=true" in output


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
