# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is said about the growth with the number of targets."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))
import target_times
from target_times import Run

FOUND = {
    1: [Run(20.0, 100_000_000), Run(22.0, 110_000_000), Run(40.0, 90_000_000)],
    64: [Run(211.0, 415_000_000)],
}


def test_growth_is_between_the_fewest_and_the_most_by_medians() -> None:
    assert target_times.growth({8: [Run(1.0, 1)], **FOUND}) == (3.0, 5_000_000.0)


def test_report_names_each_number_of_targets_with_its_spread() -> None:
    text = target_times.report(FOUND, 5, {"processor": "two cores"})
    assert "| 1 | 3 | 22.0 | 20.0 | 40.0 |" in text
    assert "| 64 | 1 | 415.0 | 415.0 | 415.0 |" in text
    assert "One more target costs **3.0 s** and **5.0 MB**, from 1 to 64." in text


def test_all_names_are_this_machine_and_one_root(tmp_path: Path) -> None:
    target_times.inventory(tmp_path / "hosts.yml", ["a", "b"], {"sglang_root": "/r"})
    group = yaml.safe_load((tmp_path / "hosts.yml").read_text())["sglang"]
    assert list(group["hosts"]) == ["a", "b"]
    assert group["vars"]["sglang_root"] == "/r" and group["vars"]["ansible_connection"] == "local"
    assert group["vars"]["sglang_lane"] == "cpu"


def test_memory_is_that_of_the_process_and_its_forks_only() -> None:
    program = "import os, time\nbytearray(1)\nos.fork()\ntime.sleep(60)"
    play = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    try:
        # Until then the new process is a copy of this one.
        while program.encode() not in Path(f"/proc/{play.pid}/cmdline").read_bytes():
            time.sleep(0.01)
        alone = target_times.memory(os.getpid())
        assert alone > 1_000_000
        assert 1_000_000 < target_times.memory(play.pid) < 200_000_000
    finally:
        os.killpg(play.pid, 9)
        play.wait()
