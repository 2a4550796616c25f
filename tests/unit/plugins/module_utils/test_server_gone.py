# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a server that was stopped is gone."""

from __future__ import annotations

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import server_gone
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu, GpuProcess, Report
from ansible_collections.tokforge.sglang.plugins.module_utils.proc import Listener

WHERE = "127.0.0.1:30000"
OURS, OTHER = 41, 99


def report(*pids: int, known: bool = True) -> Report:
    """Two GPUs, the second one with these processes."""
    held = tuple(GpuProcess(pid, "python", 7 << 30) for pid in pids)
    gpus = (
        Gpu(0, "H200", processes_known=known),
        Gpu(1, "H200", processes=held, processes_known=known),
    )
    return Report("ok", "2 GPUs", gpus=gpus)


@pytest.mark.parametrize(
    ("found", "free"),
    [
        (report(), True),
        # Somebody else's process on the same GPU is not this server's.
        (report(OTHER), True),
        # In a container the driver may name none at all.
        (report(known=False), None),
        (Report("no_driver", "there is no driver"), None),
        (None, None),
    ],
)
def test_gone(found: Report | None, free: bool | None) -> None:
    proof = server_gone.judge([], [], found, [OURS], WHERE)
    assert (proof.gone, proof.port_closed, proof.gpus_free, proof.why) == (True, True, free, "")


def test_memory_of_a_process_that_has_ended_is_not_free_yet() -> None:
    proof = server_gone.judge([], [], report(OTHER, OURS), [40, OURS], WHERE)
    assert (proof.gone, proof.gpus_free, proof.why) == (False, False, "memory is still held on GPU 1 by process 41")
    assert proof.gpu_processes == ({"gpu": 1, "pid": OURS, "memory_bytes": 7 << 30},)


@pytest.mark.parametrize(
    ("pids", "words"),
    [((OTHER,), f"{WHERE} is still held by process 99"), ((), f"{WHERE} is still held by a process of user id 1000")],
)
def test_port_that_is_held(pids: tuple[int, ...], words: str) -> None:
    proof = server_gone.judge([], [Listener("127.0.0.1", 30000, 1000, pids)], None, [], WHERE)
    assert (proof.gone, proof.port_closed, proof.why) == (False, False, words)


def test_processes_that_are_left() -> None:
    proof = server_gone.judge([OURS, 42], [], None, [], WHERE)
    assert (proof.gone, proof.processes, proof.why) == (False, (OURS, 42), "its processes 41, 42 still run")
