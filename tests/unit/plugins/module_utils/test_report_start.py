# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of a start as a report tells them: of each rank, when they began, and what is known of the whole server."""

from __future__ import annotations

from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import report_start
from ansible_collections.tokforge.sglang.plugins.module_utils.report_types import Part


def given(**more: Any) -> dict[str, Any]:
    return {
        "id": "s",
        "ready_s": 61.0,
        "milestones": {"arguments": {"first": "2026-03-14 09:00:10"}, "ready": {"first": "2026-03-14 09:01:05"}},
        "durations": {
            "weights_s": 41.0,
            "jit_s": 1610.0,
            "autotune_s": 57.0,
            "profiling_s": 8.0,
            "cuda_graphs_s": 22.0,
        },
        **more,
    }


def test_part_begins_after_the_arguments_as_the_log_tells() -> None:
    stamps = {"weights_begun": "2026-03-14 09:00:22", "autotune_started": "2026-03-14 09:00:30,500"}
    found = report_start.start(given(ranks={"TP0": {"milestones": stamps, "weights_s": 5.0, "autotune_s": 2.5}}))
    assert found is not None and found.listening_s == 55.0
    assert found.ranks[0].parts == (Part("weights", 5.0, 12.0), Part("autotune", 2.5, 20.5))


def test_length_follows_from_the_log_when_it_is_not_on_record() -> None:
    stamps = {"cuda_graphs_begun": "2026-03-14 09:00:22", "cuda_graphs_captured": "2026-03-14 09:00:30"}
    found = report_start.start(given(ranks={"TP0": {"milestones": stamps}}))
    assert found is not None and found.ranks[0].parts == (Part("CUDA graphs", 8.0, 12.0),)


def test_lengths_alone_are_enough() -> None:
    found = report_start.start({"durations": {"ranks": {"TP1": {"weights_s": 3, "cuda_graphs_s": None}}}})
    assert found is not None and found.ranks[0].tag == "TP1"
    assert found.ranks[0].parts == (Part("weights", 3.0, None),)


def test_figures_of_the_whole_server_are_kept_apart() -> None:
    found = report_start.start(given(cold=True))
    assert found is not None and found.cold is True
    assert (found.jit_s, found.profiling_s, found.ready_s, found.ranks) == (1610.0, 8.0, 61.0, ())


def test_times_that_cannot_be_are_left_out() -> None:
    stamps = {"weights_begun": "2025-03-14 09:00:22", "autotune_started": "soon", "cuda_graphs_begun": 7}
    rank = {"milestones": stamps, "weights_s": 5.0, "autotune_s": 1.0, "cuda_graphs_s": float("nan")}
    found = report_start.start(given(ranks={"TP0": rank}))
    assert found is not None and found.ranks[0].parts == (Part("weights", 5.0, None), Part("autotune", 1.0, None))


def test_nothing_known_is_no_start() -> None:
    assert [report_start.start(value) for value in (None, {}, [], "x", 3)] == [None] * 5
