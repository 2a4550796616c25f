# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a benchmark is, from the driver's lines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import bench_progress
from ansible_collections.tokforge.sglang.plugins.module_utils.bench_progress import line, read, remaining_s

STEPS = bench_progress.plan((1, 16), 2, (4, 64))


def lines(*entries: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in ({"steps": STEPS}, *entries))


def begin(at: float) -> dict[str, float]:
    return {"begin": at}


def end(at: float) -> dict[str, float]:
    return {"end": at}


def left(*entries: dict[str, Any]) -> float | None:
    progress = read(lines(*entries))
    assert progress is not None
    return remaining_s(progress)


def told(*entries: dict[str, Any]) -> str:
    progress = read(lines(*entries))
    assert progress is not None
    return line(progress)


def test_plan_repeats_each_point_before_the_next() -> None:
    assert STEPS == [[1, 1, 4], [1, 2, 4], [16, 1, 64], [16, 2, 64]]


def test_first_repetition_tells_no_time_left() -> None:
    assert told(begin(100), {"now": 103.4}) == "point 1 of 2, 1 in flight, repetition 1 of 2: 3 s elapsed"


def test_line_tells_point_repetition_and_times() -> None:
    found = told(begin(100), {"main": 104}, end(110), begin(110), end(118), begin(118), {"now": 121})
    # 64 requests for 4 take 4 times as long as the 8 s before, twice, less the 3 s that have passed.
    assert found == "point 2 of 2, 16 in flight, repetition 1 of 2: 21 s elapsed, about 61 s left"


def test_repetition_takes_as_long_as_the_one_before_it_at_its_point() -> None:
    assert left(begin(0), end(10), begin(10), end(18), begin(18), end(50), begin(50), {"now": 60}) == 22


def test_point_that_was_measured_once_is_taken_as_it_was_and_later_the_shortest_counts() -> None:
    steps = json.dumps({"steps": bench_progress.plan((1,), 4, (4,))}).encode()
    once = read(steps + b'\n{"begin": 0}\n{"end": 10}\n')
    twice = read(steps + b'\n{"begin": 0}\n{"end": 10}\n{"begin": 10}\n{"end": 16}\n{"begin": 16}\n{"now": 18}\n')
    assert once is not None
    assert twice is not None
    assert (remaining_s(once), remaining_s(twice)) == (30, 10)


def test_time_between_two_repetitions_is_not_taken_off() -> None:
    assert left(begin(0), end(10), begin(10), end(18), {"now": 300}) == pytest.approx(8 * 4 * 2)


def test_step_that_takes_longer_than_thought_leaves_no_negative_time() -> None:
    entries = (begin(0), end(10), begin(10), end(18), begin(18), end(50), begin(50))
    assert left(*entries, {"now": 500}) == 0


def test_last_end_is_over_and_the_one_before_is_not() -> None:
    most = [entry for at in range(3) for entry in (begin(at), end(at + 1))]
    unfinished, finished = read(lines(*most, begin(3))), read(lines(*most, begin(3), end(4)))
    assert unfinished is not None
    assert finished is not None
    assert (unfinished.over, finished.over, remaining_s(finished)) == (False, True, 0)


def test_half_written_last_line_is_left_out() -> None:
    whole = lines(begin(100), end(110), begin(110))
    for cut in range(1, 16):
        progress = read(whole + b'{"end": 118.25}\n'[:cut])
        assert progress is not None
        assert progress.took_s == ((10,) if cut < 15 else (10, 8.25)), cut


@pytest.mark.parametrize("now", [90.0, 110.0])
def test_clock_that_goes_back_gives_no_negative_time(now: float) -> None:
    progress = read(lines(begin(200), end(150), begin(100), {"now": now}))
    assert progress is not None
    assert (progress.took_s, progress.elapsed_s, progress.since_s) == ((0.0,), 0.0, max(0.0, now - 100))
    assert line(progress).endswith("repetition 2 of 2: 0 s elapsed, about 0 s left")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'{"steps": []}\n{"begin": 1}\n',
        b'{"steps": [[1, 1, 4]]}\n',
        b'{"begin": 1}\n',
        b'{"steps": [[1, 1]]}\n{"begin": 1}\n',
        b'{"steps": [[1, 1, Infinity]]}\n{"begin": 1}\n',
        b'{"steps": 5}\n{"begin": 1}\n',
        b'{"steps": [[1, 1, 4]]}\n{"begin": null}\n',
        b'{"steps": [[1, 1, 4]]}\n{"begin": 1' + b"0" * 400 + b"}\n",
        # A progress file of another plan.
        b'{"steps": [[1, 1, 4]]}\n{"begin": 1}\n{"begin": 2}\n',
    ],
)
def test_nothing_is_told_of_lines_that_tell_nothing(data: bytes) -> None:
    assert read(data) is None


@pytest.mark.parametrize("line_", ["5", "[]", '"steps"', '["begin"]', "null", '{"end": 3}', "[" * 9999, '{"now": "x"}'])
def test_lines_of_another_kind_are_passed_over(line_: str) -> None:
    data = json.dumps({"steps": STEPS}) + "\n" + line_ + '\n{"begin": 10}\n{"now": 12}\n'
    assert (progress := read(data.encode())) is not None
    assert (progress.begun, progress.took_s, progress.elapsed_s) == (1, (), 2)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (119.4, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h"), (9000, "2.5 h")],
)
def test_times_are_told_in_the_unit_that_is_read(seconds: float, said: str) -> None:
    assert f": {said} elapsed" in told(begin(0), {"now": seconds})
