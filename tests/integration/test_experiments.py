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

import pytest
from experimenting import BASE_ARGS, SUPERVISORD, Site, changed, with_releases

from ansible_collections.tokforge.sglang.plugins.module_utils import release_store

# What would take `make test` past the time that CI has.
IN_FULL = pytest.mark.skipif(os.environ.get("TOKFORGE_TEST_FULL") != "1", reason="needs make test-full")

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


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, BASE_ARGS)
    yield made
    made.end()


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


@IN_FULL
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
