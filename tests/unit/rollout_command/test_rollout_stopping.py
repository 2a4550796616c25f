# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asking Ansible to stop, and killing it when it does not."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from tokforge_rollout.evidence import Stop
from tokforge_rollout.stopping import Stopper, descendants, interrupt, kill_descendants


class Stage:
    """A stopper with a clock in the test's hand, and what it did."""

    def __init__(self, timeout_s: float | None = None, grace_s: float = 30.0) -> None:
        self.now = 1000.0
        self.asked: list[int] = []
        self.swept: list[int] = []
        self.stopper = Stopper(timeout_s, grace_s, lambda: self.now, self.asked.append, self.swept.append)
        self.stopper.pid = 77


def test_nothing_is_stopped_without_a_reason() -> None:
    stage = Stage()
    stage.now += 1e6
    assert not stage.stopper.must_kill()
    assert stage.stopper.reason is None


def test_ansible_is_asked_once_and_killed_after_the_grace() -> None:
    stage = Stage(timeout_s=100)
    stage.now += 99.9
    assert not stage.stopper.must_kill()
    stage.now += 0.1
    assert not stage.stopper.must_kill()
    assert (stage.stopper.reason, stage.asked) == (Stop.TIMEOUT, [77])
    stage.now += 29.9
    assert not stage.stopper.must_kill()
    assert (stage.asked, stage.swept) == ([77], [])
    stage.now += 0.1
    assert stage.stopper.must_kill()
    assert stage.stopper.must_kill()
    assert (stage.asked, stage.swept) == ([77], [77])


def test_signal_comes_before_the_time_that_is_over() -> None:
    stage = Stage(timeout_s=1)
    stage.now += 5
    stage.stopper.wish()
    stage.stopper.must_kill()
    assert stage.stopper.reason is Stop.CANCEL


def test_second_wish_ends_the_grace_and_an_echo_of_the_first_does_not() -> None:
    stage = Stage()
    stage.stopper.wish()
    stage.stopper.must_kill()
    stage.now += 1.9
    stage.stopper.wish()
    assert not stage.stopper.must_kill()
    stage.now += 0.1
    stage.stopper.wish()
    assert stage.stopper.must_kill()


def test_ansible_that_has_not_begun_is_killed_at_once() -> None:
    stage = Stage()
    stage.stopper.pid = None
    stage.stopper.wish()
    assert stage.stopper.must_kill()
    assert (stage.stopper.reason, stage.asked) == (Stop.CANCEL, [])
    assert stage.stopper.must_kill()


def test_descendants_are_found_through_every_generation() -> None:
    assert sorted(descendants(1, {2: 1, 3: 2, 4: 3, 5: 9, 9: 0})) == [2, 3, 4]


def test_worker_in_a_group_of_its_own_is_killed_with_ansible() -> None:
    # As Ansible's workers do; signals to Ansible's group do not reach it.
    script = "trap '' INT; setsid sh -c 'trap \"\" INT; echo $$; exec sleep 60' & wait"
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout
    worker = int(process.stdout.readline())
    try:
        interrupt(process.pid)
        time.sleep(0.2)
        assert os.path.exists(f"/proc/{worker}/status")
        kill_descendants(process.pid)
        process.wait(timeout=10)
        end = time.monotonic() + 5
        while os.path.exists(f"/proc/{worker}") and time.monotonic() < end:
            time.sleep(0.05)
        assert not os.path.exists(f"/proc/{worker}")
    finally:
        for pid in (worker, process.pid):
            subprocess.run(["kill", "-9", str(pid)], stderr=subprocess.DEVNULL, check=False)
        process.wait(timeout=10)


def test_process_that_is_gone_is_no_error() -> None:
    process = subprocess.Popen(["true"])
    process.wait(timeout=10)
    interrupt(process.pid)
    kill_descendants(process.pid)
    assert signal.getsignal(signal.SIGINT) is not None
