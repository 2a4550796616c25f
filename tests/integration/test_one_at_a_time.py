# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two plays below one root, plays that are cut off, and the way back by choice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from full_only import IN_FULL
from small_site import CHECKOUT, SUPERVISORD, Site, play_environment, served_site, shell

from ansible_collections.tokforge.sglang.plugins.module_utils import rollout_journal, rollout_lock

pytestmark = pytest.mark.skipif(not SUPERVISORD.exists(), reason=f"no supervisord at {SUPERVISORD}")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with served_site(tmp_path) as made:
        yield made


def begin_play(site: Site, *tasks: dict[str, Any], release: int) -> subprocess.Popen[bytes]:
    """A rollout that does these tasks before it is noted that the release serves. Its own process group."""
    return subprocess.Popen(
        site.command(site.switching(release, tasks)),
        cwd=CHECKOUT,
        env=play_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for(condition: Callable[[], bool], limit_s: float = 240) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def journal(site: Site) -> rollout_journal.Journal:
    return rollout_journal.read(str(site.root))


def rollback(site: Site, *options: str, **variables: Any) -> tuple[int, str]:
    """The real playbook."""
    inventory = site.root.parent / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"sglang": {"hosts": {"localhost": site.variables()}}}))
    command = [site.command([])[0], "-m", "ansible", "playbook", "-i", str(inventory), "rollback.yml", *options]
    done = subprocess.run(
        [*command, "-e", json.dumps(variables)],
        cwd=CHECKOUT,
        env=play_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def test_second_play_is_refused_or_waits_and_the_rest_of_a_dead_one_is_undone(site: Site) -> None:
    site.stage("two")
    go_on = site.root.parent / "go-on"
    first = begin_play(site, shell(f"touch '{go_on}.there'; while [ ! -e '{go_on}' ]; do sleep 0.2; done"), release=2)
    wait_for(lambda: Path(f"{go_on}.there").exists())

    # Refused, by name, and nothing is touched.
    code, output = site.run(site.switching(1))
    assert code == 2
    text = " ".join(output.split())
    assert f"cannot begin below {site.root}: deploy of" in text and f"process {first.pid} of" in text
    assert "locked: true" in text and "Go back" not in text
    assert (site.current(), site.runs()) == (2, "2")

    # Killed on the controller, in the middle. Its task on the host still runs, and nobody gets in its way.
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    opened = journal(site).open
    assert opened and (opened.release, opened.previous) == (2, 1)
    go_on.touch()
    # The next one takes over, and since it fails before it switches, undoes what was cut off.
    site.stage("three", "--exit-code", "1")
    (site.root / "releases/3/launch.json").write_text("{}")
    code, message = site.rollout(3)
    assert code == 2
    assert "release 3" in message and "rolled_back: true; release 1 was switched back and serves again" in message
    assert (site.current(), site.runs()) == (1, "1")
    ended = journal(site).ended[-1]
    assert (ended.outcome, ended.previous, journal(site).open) == ("rolled_back", 1, None)
    assert [text.split(" of ")[0] for text in ended.cut_off] == ["deploy"]
    assert rollout_lock.read(str(site.root)) is None


def test_secrets_of_before_are_back_with_the_release_of_before(site: Site) -> None:
    """The same release with another key, and then another release with another key: both fail after the start."""
    secrets = site.root / "state/secrets.env"
    before = secrets.read_bytes()
    code, message = site.rollout(1, shell("true"), sglang_server_api_key="canary-new-key-0123456789")
    assert code == 2 and "canary" not in message
    assert "rolled_back: true; release 1 has the files of before again, and serves" in message
    assert secrets.read_bytes() == before and site.runs() == "1"
    site.stage("two")
    code, message = site.rollout(2, shell("true"), sglang_server_api_key="canary-new-key-0123456789")
    assert code == 2 and "rolled_back: true; release 1 was switched back and serves again" in message
    assert secrets.read_bytes() == before and site.runs() == "1"
    assert not os.path.exists(rollout_journal.copies(str(site.root)))


@IN_FULL
def test_what_served_comes_back_under_its_own_name(site: Site) -> None:
    site.stage("two")
    code, message = site.rollout(2, shell("true"), sglang_service_name="other")
    assert code == 2 and "rolled_back: true; release 1 was switched back and serves again" in message
    assert site.runs() == "1"
    assert "[program:sglang]" in (site.root / "state/supervisord.conf").read_text()


def test_rollback_goes_to_what_served_before_and_comes_back_when_the_chosen_one_does_not_serve(site: Site) -> None:
    site.stage("two")
    assert site.rollout(2)[0] == 0
    site.stage("three", "--exit-code", "1")

    code, output = rollback(site)
    assert code == 0, output
    assert "Release 1 (SGLang 0.5.23, backend auto) serves on localhost; before it, release 2 was current" in output
    assert (site.current(), site.runs()) == (1, "1")
    code, output = rollback(site, release=3)
    assert code == 2 and "rolled_back: true; release 1 was switched back and serves again" in output
    assert (site.current(), site.runs()) == (1, "1")


@IN_FULL
def test_rollback_without_anything_to_do_changes_nothing_and_says_what_there_is(site: Site) -> None:
    code, output = rollback(site)
    assert code == 2 and "no other release than the current one, 1, has served" in output
    # The site was made without the tools that deploy.yml brings, whose interpreter runs the launcher from here on.
    assert rollback(site, release=1)[0] == 0
    code, output = rollback(site, "--check", release=1)
    assert code == 0 and "changed=0" in output and "would serve on localhost" in output, output
    code, output = rollback(site, release=1)
    assert code == 0 and "changed=0" in output, output
    code, output = rollback(site, release=7)
    assert code == 2 and "there is none; the releases are 1" in output
    assert "rolled_back: false; nothing was switched" in output and site.runs() == "1"


def test_two_names_of_one_host_are_rolled_out_in_one_play(tmp_path: Path) -> None:
    with served_site(tmp_path) as site:
        site.names = "one,two"
        code, output = site.run(site.switching(site.stage("new")))
        assert code == 0, output
        assert (site.current(), site.runs()) == (2, "2")
        assert not (site.root / "state/rollout/lock").exists()
        ended = json.loads((site.root / "state/rollout/journal.json").read_text())["ended"]
        assert [(entry["release"], entry["outcome"]) for entry in ended] == [(1, "done"), (2, "done")]
        # And again, with nothing to do.
        code, output = site.run(site.switching(2))
        assert code == 0, output
        assert [line.split("changed=")[1][0] for line in output.splitlines() if "changed=" in line] == ["0", "0"]
