# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the checks before a rollout say about the benchmark at its end."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.action import preflight
from ansible_collections.tokforge.sglang.plugins.module_utils import benchmark


@pytest.mark.parametrize(
    "values",
    [
        {},
        # Without points of its own it is the ladder, which ends where there are no more prompts.
        {"sglang_benchmark_concurrency": []},
        {"sglang_benchmark_concurrency": [], "sglang_benchmark_num_prompts": 64},
        {"sglang_benchmark_num_prompts": 64},
        {"sglang_benchmark_concurrency": [1, 64], "sglang_benchmark_num_prompts": 64},
    ],
)
def test_benchmark_that_can_run_has_no_finding(values: dict[str, Any]) -> None:
    assert preflight._benchmark(values) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"sglang_benchmark_concurrency": [1, 65], "sglang_benchmark_num_prompts": 64}, "never reaches concurrency 65"),
        ({"sglang_benchmark_concurrency": [8, 8]}, "names a value twice"),
        ({"sglang_benchmark_repetitions": 0}, "repetitions=0 is too small"),
    ],
)
def test_benchmark_that_would_be_refused_after_the_start_is_told_before(values: dict[str, Any], said: str) -> None:
    (found,) = preflight._benchmark(values)
    assert (found.level, found.check) == ("fail", "benchmark") and said in found.message


@pytest.mark.parametrize(
    ("given", "told"), [({}, list(benchmark.LADDER)), ({"sglang_benchmark_concurrency": []}, list(benchmark.LADDER))]
)
def test_target_judges_the_points_that_will_be_measured(given: dict[str, Any], told: list[int]) -> None:
    assert preflight._for_target(given, {})["concurrency"] == told
    assert preflight._for_target({"sglang_benchmark_concurrency": [4]}, {})["concurrency"] == [4]
