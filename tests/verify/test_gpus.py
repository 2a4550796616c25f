# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Can CUDA use every GPU that this host has, also after it was started again, and do copies between them arrive?"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

PROBE = Path(__file__).with_name("cuda_probe.py")
LIMIT_S = 120
P2P_REMEDY = (
    "switch access control off on the bridges above the GPUs (host_tuning_acs), set the IOMMU to pass-through or off "
    "(host_tuning_iommu), or do without P2P: NCCL_P2P_DISABLE=1 in sglang_server_env together with "
    "disable-custom-all-reduce in sglang_server_args"
)


@pytest.fixture(scope="module")
def cuda(host: Any) -> dict[str, Any]:
    """What one run of the probe on the host shows; see cuda_probe.py."""
    command = f"{shlex.quote(str(PROBE))} {LIMIT_S} executable=python3"
    answer = host.ansible("ansible.builtin.script", command, check=False)
    seen: dict[str, Any] = json.loads(answer["stdout"])
    if not seen["devices"] and not seen["module_version"]:
        pytest.skip("this host has no NVIDIA GPU on its PCI bus and no NVIDIA kernel module")
    return seen


def test_nodes_of_the_gpus_are_there(cuda: dict[str, Any]) -> None:
    assert cuda["module_version"], "no NVIDIA kernel module is loaded: run provision.yml, or start the machine again"
    assert not cuda["nodes"]["missing"], (
        f"missing here: {', '.join(cuda['nodes']['missing'])}; in a container pass them on (role lxc_gpu on its "
        "hypervisor), on a machine make them with nvidia-modprobe -c 0 -u"
    )
    assert cuda["nodes"]["gpus"], "there is no /dev/nvidia0 or another GPU's file: pass one on with role lxc_gpu"


def test_library_has_the_version_of_the_kernel_module(cuda: dict[str, Any]) -> None:
    if not cuda["library_version"]:
        pytest.fail(f"libcuda does not start: {cuda['error'] or cuda['hung']}", pytrace=False)
    assert cuda["library_version"] == cuda["module_version"], (
        f"libcuda has version {cuda['library_version']} and the kernel module {cuda['module_version']}: install the "
        "kernel module's (role gpu_driver)"
    )


def test_cuda_starts_and_uses_every_gpu(cuda: dict[str, Any]) -> None:
    assert not cuda["error"], cuda["error"]
    assert "GPU" in cuda["hung"] or not cuda["hung"], f"{cuda['hung']} did not end within {LIMIT_S} s"
    assert len(cuda["gpus"]) == len(cuda["nodes"]["gpus"]), (
        f"CUDA uses {len(cuda['gpus'])} GPUs and there are files for {len(cuda['nodes']['gpus'])}"
    )
    assert [gpu for gpu in cuda["gpus"] if gpu["wrong_bytes"]] == [], "memory does not keep what was written to it"


def test_copies_between_gpus_end_and_arrive(cuda: dict[str, Any]) -> None:
    if len(cuda["nodes"]["gpus"]) < 2:
        pytest.skip("this host has one GPU, so there is nothing to copy between")
    assert not cuda["hung"], f"{cuda['hung']} did not end within {LIMIT_S} s: {P2P_REMEDY}"
    wrong = [pair for pair in cuda["pairs"] if pair["wrong_bytes"]]
    assert not wrong, f"other bytes arrived than were sent: {wrong}; {P2P_REMEDY}"
    count = len(cuda["gpus"])
    assert len(cuda["pairs"]) == count * (count - 1)
