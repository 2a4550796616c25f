# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Points from repetitions, and the record of a run."""

from __future__ import annotations

from typing import Any

import pytest
from bench_outputs import judged

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_points, bench_record
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_record import (
    Ran,
    Surroundings,
    limit_warnings,
    same_measurement,
    summary_lines,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import LADDER, Parameters, fingerprint
from ansible_collections.tokforge.sglang.plugins.module_utils.server_limits import ServerLimits

ASKED = Parameters(concurrency=(1,), input_len=64, output_len=32, repetitions=3)
CONTEXT = {"sglang_version": "0.5.23", "backend": "auto", "args": {"tp-size": 8, "a": 1}, "release": 3}


def point(*rates: float | None, asked: int = 3, **changes: Any) -> dict[str, Any]:
    return bench_points.point([judged({"output_throughput": rate, **changes}) for rate in rates], asked)


# --- a point


def test_point_is_the_median_of_its_repetitions_with_their_spread() -> None:
    found = point(100.0, 130.0, 110.0)
    assert found["output_tok_s"] == 110.0
    assert found["values"]["output_tok_s"] == [100.0, 130.0, 110.0]
    assert found["spread"]["output_tok_s"] == {"least": 100.0, "most": 130.0, "percent": 27.27}
    assert (found["repetitions"], found["valid"], found["warnings"]) == (3, True, [])
    assert (found["concurrency"], found["num_prompts"], found["input_len"], found["output_len"]) == (1, 4, 64, 32)


def test_one_failed_request_of_one_repetition_makes_the_point_invalid_and_is_named() -> None:
    found = bench_points.point([judged({}), judged({"completed": 3, "total_input_tokens": 192}), judged({})], 3)
    assert (found["valid"], found["completed"]) == (False, 3)
    assert found["reasons"] == ["repetition 2: 3 of 4 requests completed"]


def test_what_is_wrong_in_every_repetition_is_said_once() -> None:
    assert point(0.0, 0.0, 0.0)["reasons"] == ["output_throughput is 0"]
    assert point(1.0, 0.0, 0.0)["reasons"] == ["repetition 2, 3: output_throughput is 0"]


def test_repetition_that_is_missing_makes_the_point_invalid() -> None:
    found = point(100.0, 101.0)
    assert (found["valid"], found["reasons"]) == (False, ["2 of 3 repetitions gave a result"])


def test_figure_that_is_missing_in_one_repetition_is_the_median_of_the_others() -> None:
    found = point(100.0, None, 110.0)
    assert (found["output_tok_s"], found["values"]["output_tok_s"]) == (105.0, [100.0, None, 110.0])
    assert found["valid"] is False


def test_figure_that_no_repetition_has_is_none() -> None:
    found = point(None, None, None)
    assert found["output_tok_s"] is None
    assert found["spread"]["output_tok_s"] == {"least": None, "most": None, "percent": None}


def test_single_measurement_is_valid_and_says_that_it_tells_no_spread() -> None:
    found = point(100.0, asked=1)
    assert found["valid"] is True
    assert found["warnings"] == ["measured 1 times: fewer than 3 repetitions tell no spread"]


def test_accept_length_is_the_median_of_the_repetitions() -> None:
    found = bench_points.point([judged({"accept_length": length}) for length in (2.0, 2.6, 2.2)], 3)
    assert found["accept_length"] == 2.2


# --- a record


def record(asked: Parameters = ASKED, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "run_id": "r1",
        "recorded_at": "2026-01-02T03:04:05Z",
        "points": [point(100.0, 110.0, 105.0)],
        "failure": None,
        "duration_s": 12.34567,
        "raw_dir": "/bench/r1",
        "engine": "sglang.bench_serving",
        "engine_version": "0.5.23",
    }
    surroundings = Surroundings("8x GPU", 8, {"id": "s1"}, None, {"id": "e1"})
    return bench_record.make(Ran(**{**values, **changes}), CONTEXT, asked, asked, surroundings)


def test_good_run_is_recorded_with_all_that_explains_it() -> None:
    made = record()
    assert (made["valid"], made["reasons"], made["warnings"]) == (True, [], [])
    assert made["engine"] == {"name": "sglang.bench_serving", "version": "0.5.23"}
    assert made["fingerprint"] == fingerprint("sglang.bench_serving", CONTEXT, ASKED)
    assert (made["context"], made["duration_s"], made["id"]) == (CONTEXT, 12.346, "r1")
    assert made["parameters"]["num_prompts"] == {"1": 4}
    assert (made["hardware"], made["gpu_count"], made["start"], made["experiment"]) == (
        "8x GPU",
        8,
        {"id": "s1"},
        {"id": "e1"},
    )


def test_invalid_point_makes_the_run_invalid_and_is_named() -> None:
    made = record(points=[point(1.0, 0.0, 1.0)])
    assert (made["valid"], made["reasons"]) == (False, ["concurrency 1: repetition 2: output_throughput is 0"])


def test_failed_output_check_makes_the_record_invalid_and_is_kept() -> None:
    check = {"passed": False, "reason": "!!!!"}
    made = record(output_check=check)
    assert (made["valid"], made["reasons"], made["output_check"]) == (False, ["output check failed: !!!!"], check)


def test_same_warning_of_every_point_is_said_once() -> None:
    asked = Parameters(concurrency=(1, 8), input_len=64, output_len=32, flush_cache=False, repetitions=3)
    one = bench_points.point([judged({}, asked)] * 3, 3)
    assert len(record(asked, points=[one, {**one, "concurrency": 8}])["warnings"]) == 1


def test_ladder_that_was_cut_is_recorded_as_measured_and_known_as_asked() -> None:
    asked = Parameters(concurrency=LADDER, input_len=64, output_len=32, capped=True)
    surroundings = Surroundings()
    ran = Ran("r", "t", [], None, 1.0, "/r", "sglang.bench_serving")
    made = bench_record.make(ran, CONTEXT, asked, asked.within(8), surroundings)
    assert made["parameters"]["concurrency"] == [1, 8]
    assert made["fingerprint"] == fingerprint("sglang.bench_serving", CONTEXT, asked)


@pytest.mark.parametrize(
    ("capped", "at_once", "said"),
    [
        (True, 8, "measured at 8 instead of 32, 64, 256, 512, 1024"),
        (False, 8, "at concurrency 32, 64, 256, 512, 1024 the others wait in its queue"),
        (True, 4096, None),
        (False, None, None),
    ],
)
def test_limit_of_the_server_is_told(capped: bool, at_once: int | None, said: str | None) -> None:
    asked = Parameters(concurrency=LADDER, input_len=64, output_len=32, capped=capped)
    found = limit_warnings(asked, asked.within(at_once), ServerLimits(max_running_requests=at_once))
    assert (said in found[0]) if said else found == []


@pytest.mark.parametrize(
    ("prompts", "limits", "said"),
    [
        (
            4,
            ServerLimits(max_running_requests=1000),
            "num_prompts=4 allows no more requests at once: measured at 4 instead",
        ),
        (4, ServerLimits(), "num_prompts=4 allows no more requests at once: measured at 4 instead"),
        (100, ServerLimits(max_running_requests=8), "the server runs at most 8 such requests at once: measured at 8"),
        (8, ServerLimits(max_running_requests=8), "the server runs at most 8 such requests at once: measured at 8"),
        # 1000 requests have room in the cache, and 960 is the last point: fewer prompts than that are what ends it.
        (
            970,
            ServerLimits(max_total_tokens=96_000),
            "the server runs at most 1000 such requests at once: measured at 960",
        ),
        (
            950,
            ServerLimits(max_total_tokens=96_000),
            "num_prompts=950 allows no more requests at once: measured at 950",
        ),
        (2048, ServerLimits(), None),
    ],
)
def test_what_ended_the_ladder_is_named(prompts: int, limits: ServerLimits, said: str | None) -> None:
    asked = Parameters(concurrency=LADDER, input_len=64, output_len=32, num_prompts=prompts, capped=True)
    found = limit_warnings(asked, asked.within(limits.last_point(96)), limits)
    assert (len(found) == 1 and found[0].startswith(said)) if said else found == []


def test_points_that_were_left_out_are_listed() -> None:
    asked = Parameters(concurrency=(1, 8, 32), input_len=64, output_len=32, num_prompts=4, capped=True)
    limits = ServerLimits(max_running_requests=1000)
    assert limit_warnings(asked, asked.within(limits.last_point(96)), limits) == [
        "num_prompts=4 allows no more requests at once: measured at 4 instead of 8, 32"
    ]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (None, False),
        ({}, False),
        ({"valid": True, "fingerprint": "f", "hardware": "h"}, True),
        ({"valid": True, "fingerprint": "f", "hardware": "other"}, False),
        ({"valid": True, "fingerprint": "f"}, False),
        ({"valid": True, "fingerprint": "g", "hardware": "h"}, False),
        ({"valid": False, "fingerprint": "f", "hardware": "h"}, False),
        ({"valid": "yes", "fingerprint": "f", "hardware": "h"}, False),
    ],
)
def test_only_a_valid_record_of_the_same_fingerprint_and_hardware_spares_a_run(record: Any, expected: bool) -> None:
    assert same_measurement(record, "f", "h") is expected


def test_summary_of_a_record_has_its_state_and_rates() -> None:
    made = record(points=[point(140.16, 150.0, 130.0), point(None, None, None)])
    assert summary_lines(made) == [
        f"2026-01-02T03:04:05Z configuration {made['fingerprint']} invalid",
        "concurrency 1: 140.2 (130.0 to 150.0) output tok/s",
        "concurrency 1: no rate",
    ]
    assert summary_lines(None) == []


@pytest.mark.parametrize("odd", [None, 5, "x", [], {"output_tok_s": 5}, {"output_tok_s": ["1"]}])
def test_summary_of_a_point_with_an_odd_spread_has_its_rate(odd: Any) -> None:
    assert summary_lines({"points": [{"concurrency": 1, "output_tok_s": 5, "spread": odd}]})[1] == (
        "concurrency 1: 5.0 output tok/s"
    )


def test_release_of_an_engine_of_its_own_is_part_of_the_fingerprint() -> None:
    asked = Parameters((1,), 64, 32)
    old, new, same = (
        Ran("r", "t", [], None, 1.0, "/r", "aiperf", version, identity=f"aiperf {version}")
        for version in ("0.13.0", "0.14.0", "0.13.0")
    )
    prints = [bench_record.make(one, CONTEXT, asked, asked, Surroundings())["fingerprint"] for one in (old, new, same)]
    assert prints[0] == prints[2] != prints[1]
