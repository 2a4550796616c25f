# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Watching the GPUs while a benchmark runs: one process of nvidia-smi, ended with the benchmark, whatever happens.

What it writes is read by gpu_samples.py. A GPU that cannot be watched is no reason to fail a measurement.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import gpu_samples
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_collect import Window
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu

_PR_SET_PDEATHSIG = 1
_END_S = 5.0


@dataclass(frozen=True)
class Sampling:
    """Where the sampler writes, and when it began."""

    path: str
    began_s: float


@contextlib.contextmanager
def sampler(gpus: Sequence[Gpu], run_dir: str, timeout_s: float) -> Iterator[Sampling | None]:
    """Meanwhile the GPUs are sampled once a second; None without GPUs, or where the program cannot be started."""
    process, sampling = _start(gpus, run_dir, timeout_s) if gpus else (None, None)
    try:
        yield sampling
    finally:
        if process is not None:
            _end(process)


def summary(
    sampling: Sampling | None, gpus: Sequence[Gpu], windows: Mapping[int, Sequence[Window]]
) -> dict[int, list[dict[str, Any]] | None]:
    """Concurrency -> what the GPUs did while the point's requests were under way; None where no sample says it."""
    if sampling is None:
        return {}
    try:
        samples = gpu_samples.read(sampling.path, sampling.began_s).samples
    except OSError:
        return {}
    limits = {one.index: (one.power_limit_w, _mhz(one)) for one in gpus}
    return {
        concurrency: gpu_samples.summarise(
            [found for window in own for found in gpu_samples.during(samples, window.begin_s, window.end_s)],
            limits,
            list(limits),
        )
        for concurrency, own in windows.items()
    }


def _mhz(one: Gpu) -> float | None:
    return float(one.clock_sm_max_mhz) if one.clock_sm_max_mhz else None


def _start(
    gpus: Sequence[Gpu], run_dir: str, timeout_s: float
) -> tuple[subprocess.Popen[bytes] | None, Sampling | None]:
    path = os.path.join(run_dir, "gpu.log")
    words = gpu_samples.command([one.index for one in gpus], int(timeout_s) + 60)
    environment = {**os.environ, **gpu_samples.environment()}
    parent = os.getpid()

    def end_with_parent() -> None:
        # The module can be killed; its sampler must not go on for hours.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    began_s = time.time()
    try:
        with open(path, "wb") as output:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                preexec_fn=end_with_parent,
                start_new_session=True,
            )
    except (OSError, subprocess.SubprocessError):
        return None, None
    return process, Sampling(path, began_s)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        # One that hangs in the driver does not end even then, and is left behind.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
