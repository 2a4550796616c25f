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
from experimenting import BASE_ARGS, SUPERVISORD, Site, changed, with_releases
from full_only import IN_FULL

from ansible_collections.tokforge.sglang.plugins.module_utils import release_store

# What would take `make test` past the time that CI has.

pytestmark = pytest.mark.skipif(not SUPERVISORD.exists(), reason=f"{SUPERVISORD} is not there")

SWEEP: dict[str, Any] = {
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


def gives_up(site: Site) -> None:
    """A play was killed while a candidate served: give it up, in check mode, for good, and once more."""
    left, serving = site.experiment(), site.current()
    assert (left["finished"], left["abandoned"]) == (False, False) and serving != site.original
    # The request need not be repeated, and any of the playbooks does.
    code, output = site.run("--check", playbook="benchmark.yml", sglang_experiment_abandon=True)
    assert code == 0 and changed(output) >= 2, output
    assert f"Would give up {left['id']}; release 1, which served before, would serve" in " ".join(output.split())
    assert (site.experiment(), site.current()) == (left, serving)
    code, output = site.run("-e", "sglang_experiment_abandon=true", playbook="sweep.yml")
    assert code == 0, output
    assert f"Gave up {left['id']}; release 1, which served before, serves" in " ".join(output.split())
    given_up = site.experiment()
    assert (given_up["abandoned"], given_up["finished"], given_up["trials"]) == (True, False, left["trials"])
    assert (site.current(), release_store.last_proven(str(site.root))) == (site.original, site.original)
    assert site.serves()
    code, output = site.run(playbook="explain.yml", sglang_experiment_abandon=True)
    assert (code, changed(output)) == (0, 0), output
    assert "No experiment is unfinished; release 1 is current" in " ".join(output.split())


def test_sweep_survives_every_bad_candidate_is_killed_given_up_goes_on_and_lets_the_best_serve(site: Site) -> None:
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
    # Until the original has been measured and a candidate is to serve.
    while site.current() == site.original and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    done = {one["number"]: one for one in site.trials() if one["state"] in ("done", "failed", "invalid")}
    assert done[1]["candidate"] == "original"
    gives_up(site)
    # The same request takes it up again.
    code, output = site.run(**asked)
    assert code == 0, output
    # What was done before the kill is not done again.
    again = {one["number"]: one for one in site.trials()}
    assert {number: again[number] for number in done} == done
    assert site.experiment()["abandoned"] is False
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
def test_winner_serves_after_it_met_the_original_alone(site: Site) -> None:
    alone = {**SWEEP, "sglang_sweep_candidates": [SWEEP["sglang_sweep_candidates"][3]]}
    sound = {"sglang_ready_output_check": False, "sglang_sweep_confirm_starts": 5}
    asked = with_releases(site, {**alone, **sound}, original={}, good={"max-running-requests": 8})
    code, output = site.run(**asked)
    assert code == 0, output
    trials = site.trials()
    confirming = [one for one in trials if one["stage"] == 2]
    assert [one["candidate"] for one in trials[:2]] == ["original", "good"] and len(trials) == 12
    # The order of an A/B run, so that a machine that gets warmer meets both alike.
    order = ["original", "good", "good", "original", "good", "original", "original", "good", "good", "original"]
    assert [one["candidate"] for one in confirming] == order
    facts = site.facts()
    sweep, compared = facts["sweeps"][-1], facts["comparisons"][-1]
    assert (sweep["winner"], sweep["verdict"], sweep["finished"]) == ("good", "faster", True)
    assert (sweep["comparison_id"], compared["kind"]) == (compared["id"], "sweep")
    # Only those trials are compared, and not the one that made it the winner.
    of_winner = [one["record_id"] for one in confirming if one["candidate"] == "good"]
    assert (compared["b"]["ids"], compared["a"]["starts"]) == (of_winner, 5)
    # Eight at once instead of two.
    assert compared["points"][0]["change_percent"] > 100
    assert (site.arguments()["max-running-requests"], facts["latest"]["experiment"]) == (8, None)
    assert release_store.last_proven(str(site.root)) == site.current()
    assert site.serves()


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
