# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs a server takes, by CUDA's rules and SGLang's."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu
from ansible_collections.tokforge.sglang.plugins.module_utils.visible_gpus import used

EIGHT = [Gpu(index, "x", uuid=f"GPU-{index}a{index}b-{index}") for index in range(8)]
NAME = "CUDA_VISIBLE_DEVICES"


@pytest.mark.parametrize(
    ("visible", "args", "numbers"),
    [
        (None, {}, None),
        ("3,1,2", {}, (3, 1)),
        (" 4 , 5", {}, (4, 5)),
        ("GPU-6a,GPU-0a0b-0", {}, (6, 0)),
        (None, {"base-gpu-id": 4}, (4, 5)),
        (None, {"base-gpu-id": "2", "gpu-id-step": 3}, (2, 5)),
        ("7,6,5,4", {"base-gpu-id": 1, "gpu-id-step": 2}, (6, 4)),
        (None, {"base-gpu-id": True, "gpu-id-step": 0}, None),
        (None, {"base-gpu-id": -1}, None),
    ],
)
def test_server_takes_these(visible: str | None, args: dict[str, Any], numbers: tuple[int, ...] | None) -> None:
    found = used(EIGHT, {} if visible is None else {NAME: visible}, args, 2)
    assert (found.numbers, found.findings) == (numbers, ())


@pytest.mark.parametrize(
    ("visible", "words"),
    [
        ("", "a name in it is empty"),
        ("-1", "'-1' is not there"),
        ("0,1,-1,2", "'-1' is not there"),
        ("0,9", "'9' is not there"),
        ("0," + "9" * 5000, "is not there"),
        ("GPU-", "'GPU-' is not there"),
        ("GPU-nope", "is not there"),
        ("MIG-GPU-1/2/0", "SGLang needs whole ones"),
        ("all", "'all' is not there"),
        ("0;1", "'0;1' is not there"),
        ("0,0", "GPU 0 is named twice"),
        ("\u00b2", "is not there"),
    ],
)
def test_name_that_cuda_stops_at_fails(visible: str, words: str) -> None:
    [finding] = used(EIGHT, {NAME: visible}, {}, 2).findings
    assert (finding.level, words in finding.message) == ("fail", True)


def test_beginning_that_two_uuids_share_names_none() -> None:
    twins = [Gpu(0, "x", uuid="GPU-ab1"), Gpu(1, "x", uuid="GPU-ab2")]
    [finding] = used(twins, {NAME: "GPU-ab"}, {}, 1).findings
    assert "more than one UUID" in finding.message


@pytest.mark.parametrize(
    ("visible", "args", "words"),
    [
        ("3", {}, "2 ranks from base-gpu-id 0 on need 2 GPUs, and CUDA_VISIBLE_DEVICES leaves 1"),
        (None, {"base-gpu-id": 7}, "need 9 GPUs, and the machine has 8"),
        (None, {"gpu-id-step": 8}, "need 9 GPUs"),
    ],
)
def test_too_few_gpus_behind_the_first(visible: str | None, args: dict[str, Any], words: str) -> None:
    [finding] = used(EIGHT, {} if visible is None else {NAME: visible}, args, 2).findings
    assert words in finding.message


def test_numbers_are_taken_as_they_are_where_no_gpu_is_listed() -> None:
    assert used([], {NAME: "4,5"}, {}, 2).numbers == (4, 5)
