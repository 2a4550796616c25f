# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which release and lane a rollout takes on a host: what was asked, or with `auto` the newest that runs there.

A lane is a set of packages for one major version of CUDA, and a driver runs those of its own CUDA and older ones. With
version `auto` the backend decides: the newest release in which it runs on these GPUs with this quantization.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import compat, cuda_driver, releases
from ansible_collections.tokforge.sglang.plugins.module_utils.compat_data import SUPPORTED, UNSUPPORTED
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Report

AUTO = "auto"
AS_ASKED = "as asked"
CPU = "cpu"

#: The CUDA version that a lane's torch is built for (nvidia-cuda-runtime in the locks), the newest lane first.
LANE_CUDA = {"cuda13": (13, 0), "cuda12": (12, 8)}


@dataclass(frozen=True)
class Choice:
    """The release and lane that the rollout takes, and why in one sentence."""

    version: str
    lane: str
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """The choice as plain data, for a module's result."""
        return asdict(self)


def choose(
    version: str, lane: str, report: Report, queries: Sequence[compat.Query]
) -> tuple[Choice | None, list[Finding]]:
    """What `version` and `lane` come to on this host.

    :param queries: backend, GPUs, quantization and arguments, their release is what is looked for. More than one when
        the quantization is not known: then the newest release in which the backend runs with any of them.
    """
    lanes, problem = runnable_lanes(report) if lane == AUTO else ([lane], None)
    if problem:
        return None, [problem]
    if version != AUTO:
        if lane != AUTO:
            return Choice(version, lane, AS_ASKED), []
        return _lane_of(version, lanes, report)
    candidates = {one: lane_name for lane_name in reversed(lanes) for one in releases.known(lane_name)}
    if not candidates:
        return None, [
            Finding(
                FAIL,
                "release",
                f"no release has a lock in lane {lane}; lanes are {', '.join(releases.known_lanes())}",
                "set sglang_lane to one of these",
            )
        ]
    ordered = sorted(candidates, key=releases.sort_key, reverse=True)
    if queries[0].backend == AUTO:
        newest = ordered[0]
        return Choice(newest, candidates[newest], f"{newest} is the newest locked release"), []
    found = compat.newest_release(ordered, queries[0])
    others = [compat.newest_release(ordered, query) for query in queries[1:]]
    runs = [one for one in (found, *others) if one.verdict != UNSUPPORTED]
    if others and runs:
        found = max(runs, key=lambda one: releases.sort_key(one.version))
    if found.verdict == UNSUPPORTED:
        return None, [Finding(FAIL, "release", found.reason)]
    chosen = Choice(found.version, candidates[found.version], found.reason)
    level = OK if found.verdict == SUPPORTED else WARN
    return chosen, [Finding(level, "release", found.reason)]


def runnable_lanes(report: Report) -> tuple[list[str], Finding | None]:
    """The lanes that the driver can run, newest CUDA first; or why that cannot be said."""
    if not report.gpus:
        remedy = f"{report.remedy}; or set sglang_lane (cpu for a server without GPU) and sglang_version"
        return [], Finding(FAIL, "release", f"sglang_lane is auto, and {report.message}", remedy.lstrip("; "))
    have = cuda_driver.cuda_of(report.driver_version, report.cuda_version)
    if have is None:
        # The check of the driver says so; the newest lane is as good as another.
        return list(LANE_CUDA), None
    lanes = [lane for lane, cuda in LANE_CUDA.items() if cuda[0] <= have[0]]
    if lanes:
        return lanes, None
    message = f"sglang_lane is auto, and driver {report.driver_version} supports CUDA {have[0]}.{have[1]}"
    return [], Finding(FAIL, "release", f"{message}, which no lane is for", "install a driver of branch >= 580")


def _lane_of(version: str, lanes: Sequence[str], report: Report) -> tuple[Choice | None, list[Finding]]:
    if version not in releases.known():
        known = ", ".join(releases.known())
        message = f"sglang_version {version!r} has no lock; locked are {known}"
        remedy = "choose one of these, or add the release to locks.toml and run make locks"
        return None, [Finding(FAIL, "release", message, remedy)]
    have = releases.get(version).lanes
    fitting = [lane for lane in lanes if lane in have]
    if fitting:
        return Choice(version, fitting[0], f"the lane of {version} that driver {report.driver_version} runs"), []
    gpu_lanes = ", ".join(sorted(set(have) - {CPU})) or "none for GPUs"
    message = f"SGLang {version} is locked for {gpu_lanes}, and driver {report.driver_version} runs {', '.join(lanes)}"
    return None, [Finding(FAIL, "release", message, "install a newer driver, or leave sglang_version to auto")]


def with_release(query: compat.Query, choice: Choice) -> compat.Query:
    """The query for the chosen release, with the FlashInfer of its lock."""
    lane = releases.get(choice.version).lanes.get(choice.lane) if choice.version in releases.known() else None
    flashinfer = lane.flashinfer if lane and lane.flashinfer else ""
    return replace(query, sglang_version=choice.version, flashinfer_version=flashinfer)
