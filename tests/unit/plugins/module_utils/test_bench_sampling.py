# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The process that watches the GPUs: it ends whatever happens, and a measurement does without it."""

from __future__ import annotations

import calendar
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_sampling
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_collect import Window
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_sampling import Sampling
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu

LOAD = Path(__file__).parent / "fixtures" / "dmon" / "580-h200-load.txt"
#: When the recording begins.
BEGAN_S = float(calendar.timegm((2026, 11, 30, 9, 11, 44)))
H200 = Gpu(0, "NVIDIA H200", power_limit_w=700.0, clock_sm_max_mhz=1980)
REPLAYS = f'echo "$TZ $LC_ALL $*" > "$SEEN"; cat "{LOAD}"; echo $$ > "$SEEN.pid"; exec sleep 60'


def program(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str, mode: int = 0o755) -> Path:
    """Put a program of this name on PATH; it tells in the file that is returned how it was called."""
    path = directory / "bin" / "nvidia-smi"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(mode)
    monkeypatch.setenv("PATH", f"{path.parent}:{os.defpath}")
    monkeypatch.setenv("SEEN", str(directory / "seen"))
    return directory / "seen"


def wait_for(path: Path) -> str:
    end = time.monotonic() + 10
    while not path.exists() or not path.read_text():
        assert time.monotonic() < end
        time.sleep(0.005)
    return path.read_text()


def gone(pid: int) -> bool:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.005)
    return False


# --- the process


def test_sampler_runs_meanwhile_and_is_ended_also_by_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = program(tmp_path, monkeypatch, REPLAYS)
    before = time.time()
    gpus = (H200, Gpu(3, "NVIDIA H200"))
    with pytest.raises(ValueError, match="broken"), bench_sampling.sampler(gpus, str(tmp_path), 90.5) as sampling:
        pid = int(wait_for(Path(f"{seen}.pid")))
        assert Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
        raise ValueError("broken")
    assert gone(pid)
    # A minute more than the benchmark may take, so that it ends by itself in the worst case.
    assert seen.read_text() == "UTC0 C dmon -s pucmt -o DT -d 1 -c 150 -i 0,3\n"
    assert sampling is not None and sampling.path == str(tmp_path / "gpu.log")
    assert before <= sampling.began_s <= time.time()
    assert Path(sampling.path).read_bytes() == LOAD.read_bytes()


def test_sampler_that_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_sampling, "_END_S", 0.1)
    seen = program(tmp_path, monkeypatch, "trap '' TERM; echo $$ > \"$SEEN.pid\"; while :; do sleep 0.05; done")
    with bench_sampling.sampler((H200,), str(tmp_path), 9):
        pid = int(wait_for(Path(f"{seen}.pid")))
    assert gone(pid)


def test_sampler_does_not_outlive_a_process_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = program(tmp_path, monkeypatch, REPLAYS)
    code = (
        "import sys, time\n"
        "from ansible_collections.tokforge.sglang.plugins.module_utils import bench_sampling, gpu\n"
        "with bench_sampling.sampler((gpu.Gpu(0, 'x'),), sys.argv[1], 9):\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) as parent:
        pid = int(wait_for(Path(f"{seen}.pid")))
        parent.send_signal(signal.SIGKILL)
    assert gone(pid)


def test_sampler_that_dies_leaves_the_measurement_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "echo 'Unable to determine the device handle for GPU0: Unknown Error' >&2; exit 9")
    with bench_sampling.sampler((H200,), str(tmp_path), 9) as sampling:
        assert sampling is not None
        said = wait_for(Path(sampling.path))
    assert said == "Unable to determine the device handle for GPU0: Unknown Error\n"
    assert bench_sampling.summary(sampling, (H200,), {8: [Window(BEGAN_S, BEGAN_S + 9)]}) == {8: None}


@pytest.mark.parametrize("how", ["no program", "not executable", "no directory", "no GPUs"])
def test_without_a_sampler_nothing_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    seen = program(tmp_path, monkeypatch, REPLAYS, 0o644 if how == "not executable" else 0o755)
    if how == "no program":
        monkeypatch.setenv("PATH", str(tmp_path))
    if how == "not executable":
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    where = tmp_path / "gone" if how == "no directory" else tmp_path
    with bench_sampling.sampler(() if how == "no GPUs" else (H200,), str(where), 9) as sampling:
        pass
    assert sampling is None and not seen.exists()
    assert bench_sampling.summary(sampling, (H200,), {8: [Window(0, 9)]}) == {}


# --- what it saw


def test_each_point_has_the_seconds_of_its_own_repetitions() -> None:
    windows = {
        1: [Window(BEGAN_S, BEGAN_S + 1)],
        8: [Window(BEGAN_S + 0.5, BEGAN_S + 3.0), Window(BEGAN_S + 5.0, BEGAN_S + 6.9)],
        32: [Window(BEGAN_S + 3.1, BEGAN_S + 4.9)],
    }
    found = bench_sampling.summary(Sampling(str(LOAD), BEGAN_S), (H200,), windows)
    idle, busy = found[1], found[8]
    assert idle is not None and (idle[0]["power_w"], idle[0]["power_share"], idle[0]["samples"]) == (79.0, 0.1129, 1)
    # 378 W and 688 W of the first repetition, 688 W of the second.
    assert busy is not None and (busy[0]["power_w"], busy[0]["samples"]) == (584.667, 3)
    assert (busy[0]["power_limit_w"], busy[0]["utilization_percent"], busy[0]["sm_clock_share"]) == (
        700.0,
        98.333,
        0.7753,
    )
    # No whole second of the sampler lies in it.
    assert found[32] is None


def test_only_the_servers_gpus_count_and_unknown_limits_give_no_share() -> None:
    window = {8: [Window(BEGAN_S, BEGAN_S + 9)]}
    assert bench_sampling.summary(Sampling(str(LOAD), BEGAN_S), (Gpu(1, "other"),), window) == {8: None}
    found = bench_sampling.summary(Sampling(str(LOAD), BEGAN_S), (Gpu(0, "x", clock_sm_max_mhz=0),), window)[8]
    assert found is not None and found[0]["power_w"] == 458.167
    assert (found[0]["power_limit_w"], found[0]["power_share"], found[0]["sm_clock_share"]) == (None, None, None)


def test_log_that_is_gone_says_nothing(tmp_path: Path) -> None:
    assert bench_sampling.summary(Sampling(str(tmp_path / "gone"), 0.0), (H200,), {8: [Window(0, 9)]}) == {}
