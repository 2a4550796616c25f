# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back of a failed rollout, with the playbook's own tasks and a small real HTTP process as the server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from full_only import IN_FULL
from small_site import SUPERVISORD, Site, include, served_site, shell

from ansible_collections.tokforge.sglang.plugins.module_utils import release_store, service, start_history

pytestmark = pytest.mark.skipif(not SUPERVISORD.exists(), reason=f"no supervisord at {SUPERVISORD}")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with served_site(tmp_path) as made:
        yield made


@pytest.mark.parametrize("state", [pytest.param("kept", marks=IN_FULL), "", pytest.param(None, marks=IN_FULL)])
def test_release_that_served_is_back_also_without_the_state_file(site: Site, state: str | None) -> None:
    site.stage("two")
    counter = site.root / "state/releases.json"
    harm = {"kept": "true", "": f": > '{counter}'", None: f"rm '{counter}'"}[state]
    code, message = site.rollout(2, shell(harm))
    assert code == 2
    assert "release 2 failed: THE FIRST REASON" in message
    assert "rolled_back: true; release 1 was switched back and serves again" in message
    # What is put on record of its start are its own launch arguments, not those of the request that failed.
    last = json.loads((site.root / "state/starts.json").read_text())["starts"][-1]
    one = release_store.load(str(site.root), 1).content
    assert one and (last["state"], last["release"], last["content_id"]) == ("ready", "1", one.content_id())
    assert (site.current(), site.runs()) == (1, "1")


@IN_FULL
def test_release_that_verify_refuses_goes_back(site: Site) -> None:
    # A play with a list of names for an inventory, which is nothing that tests from outside could be run with.
    site.stage("two")
    code, message = site.rollout(2, include("verify", "main"))
    assert code == 2
    assert "release 2 failed: verifying localhost: " in message
    assert "the inventory has to be files that say how to reach the host" in message
    assert "THE FIRST REASON" not in message
    assert "rolled_back: true; release 1 was switched back and serves again" in message
    assert (site.current(), site.runs()) == (1, "1")


def test_release_of_another_rollout_is_left_alone(site: Site) -> None:
    site.stage("two")
    site.stage("three")
    other = shell(f"ln -sfn releases/3 '{site.root}/current'")
    code, message = site.rollout(2, other, {"ansible.builtin.include_role": {"name": "tokforge.sglang.sglang_server"}})
    assert code == 2
    assert "cannot start release 2" in message and "another rollout switched to release 3 in the meantime" in message
    assert "rolled_back: false; another rollout is at work here: release 3 is current" in message
    assert (site.current(), site.runs()) == (3, "2")


@pytest.mark.parametrize("serves", [True, pytest.param(False, marks=IN_FULL)])
def test_failed_way_back_names_both_reasons_and_stops_what_does_not_serve(site: Site, serves: bool) -> None:
    site.stage("two", *([] if serves else ["--exit-code", "1"]))
    shutil.rmtree(site.root / "venvs/one")
    code, message = site.rollout(2, shell("true"))
    assert code == 2
    assert ("THE FIRST REASON" if serves else "failed") in message
    assert "rolled_back: false; going back failed too, in task 'Go back to the release that served last'" in message
    assert "cannot use release 1" in message and "environment one is not there any more" in message
    left = "release 2 serves and was left as it is" if serves else "nothing serves, and no server of release 2 is left"
    assert left in message
    assert (site.current(), site.runs()) == (2, "2" if serves else None)
    record = service.read_record(service.Paths(str(site.root)))
    assert record and record.stopped is not serves
    starts = [(start["release"], start["state"]) for start in start_history.read(str(site.root))]
    assert starts == [("1", "ready"), ("2", "ready" if serves else "failed")]
