# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a benchmark is asked to do, and what names a measurement."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import (
    LADDER,
    BenchmarkError,
    Parameters,
    Target,
    configuration,
    fingerprint,
)

ASKED = Parameters(concurrency=(1,), input_len=64, output_len=32)
ENGINE = "sglang.bench_serving"


# --- parameters


def test_prompts_are_a_multiple_of_the_concurrency_unless_given() -> None:
    assert Parameters((8,), 64, 32, num_prompts_factor=3).prompts_at(8) == 24
    assert Parameters((8,), 64, 32, num_prompts=10).prompts_at(8) == 10


@pytest.mark.parametrize(("asked", "expected"), [(None, 8), (1, 8), (20, 20)])
def test_warmup_is_at_least_one_batch_of_the_target_size(asked: int | None, expected: int) -> None:
    assert Parameters((8,), 64, 32, warmup_requests=asked).warmup_at(8) == expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"concurrency": ()}, "empty"),
        ({"concurrency": (1, 8, 1)}, "twice"),
        ({"concurrency": (0,)}, "concurrency=0"),
        ({"input_len": 0}, "input_len=0"),
        ({"output_len": 1}, "output_len=1"),
        ({"num_prompts_factor": 0}, "num_prompts_factor=0"),
        ({"warmup_requests": 0}, "warmup_requests=0"),
        ({"seed": -1}, "seed=-1"),
        ({"repetitions": 0}, "repetitions=0"),
        ({"seed": 2**32 - 1, "repetitions": 2}, "goes beyond 4294967295; use a smaller seed"),
        ({"num_prompts": 0, "capped": True}, "num_prompts=0"),
        ({"num_prompts": -3, "capped": True}, "num_prompts=-3"),
        ({"num_prompts": 7}, "never reaches concurrency 8"),
    ],
)
def test_senseless_parameters_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        Parameters(**{"concurrency": (8,), "input_len": 64, "output_len": 32, **wrong})


def test_each_repetition_has_prompts_of_its_own_and_two_runs_have_the_same() -> None:
    asked = Parameters((8,), 64, 32, seed=7)
    assert [asked.seed_of(repetition) for repetition in range(3)] == [7, 8, 9]


@pytest.mark.parametrize(
    ("most", "points"),
    [
        (None, LADDER),
        (0, LADDER),
        (4096, LADDER),
        (1024, LADDER),
        (1023, (1, 8, 32, 64, 256, 512, 1023)),
        (64, (1, 8, 32, 64)),
        (48, (1, 8, 32, 48)),
        (1, (1,)),
    ],
)
def test_ladder_ends_at_what_the_server_runs_at_once(most: int | None, points: tuple[int, ...]) -> None:
    assert Parameters(LADDER, 64, 32, capped=True).within(most).concurrency == points


def test_ladder_has_no_point_above_its_prompts() -> None:
    asked = Parameters(LADDER, 64, 32, num_prompts=100, capped=True)
    assert asked.within(None).concurrency == (1, 8, 32, 64, 100)


def test_points_that_were_asked_for_are_measured_above_the_limit_too() -> None:
    asked = Parameters((1, 8), 64, 32)
    assert asked.within(1) is asked


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:30000"),
        ("0.0.0.0", "http://127.0.0.1:30000"),
        ("::", "http://[::1]:30000"),
        ("fe80::1", "http://[fe80::1]:30000"),
        ("[fe80::1]", "http://[fe80::1]:30000"),
        ("[::]", "http://[::1]:30000"),
        ("gpu-box", "http://gpu-box:30000"),
    ],
)
def test_url_of_the_server(host: str, url: str) -> None:
    assert Target(host, 30000, "/t", "m").url == url


# --- fingerprint


CONTEXT = {"sglang_version": "0.5.23", "backend": "auto", "args": {"tp-size": 8, "a": 1}, "release": 3}


def test_fingerprint_is_the_same_for_the_same_configuration_in_another_release_directory() -> None:
    reordered = {"release": 9, "args": {"a": 1, "tp-size": 8}, "backend": "auto", "sglang_version": "0.5.23"}
    assert fingerprint(ENGINE, CONTEXT, ASKED) == fingerprint(ENGINE, reordered, ASKED)
    assert len(fingerprint(ENGINE, CONTEXT, ASKED)) == 16


@pytest.mark.parametrize(
    "change", [{"sglang_version": "0.5.12"}, {"backend": "triton"}, {"args": {"tp-size": 4}}, {"unknown": 1}]
)
def test_fingerprint_changes_with_the_configuration(change: dict[str, Any]) -> None:
    assert fingerprint(ENGINE, {**CONTEXT, **change}, ASKED) != fingerprint(ENGINE, CONTEXT, ASKED)


@pytest.mark.parametrize(
    "change",
    [
        {"concurrency": (2,)},
        {"input_len": 65},
        {"output_len": 33},
        {"num_prompts": 9},
        {"num_prompts_factor": 5},
        {"warmup_requests": 9},
        {"seed": 2},
        {"flush_cache": False},
        {"ignore_eos": False},
        {"repetitions": 3},
    ],
)
def test_fingerprint_changes_with_every_parameter(change: dict[str, Any]) -> None:
    other = Parameters(**{"concurrency": (1,), "input_len": 64, "output_len": 32, **change})
    assert fingerprint(ENGINE, CONTEXT, other) != fingerprint(ENGINE, CONTEXT, ASKED)


def test_fingerprint_ignores_how_the_number_of_prompts_was_said() -> None:
    assert fingerprint(ENGINE, {}, Parameters((2,), 64, 32, num_prompts=8)) == fingerprint(
        ENGINE, {}, Parameters((2,), 64, 32)
    )


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_context_that_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(BenchmarkError, match="plain values"):
        fingerprint(ENGINE, {"x": value}, ASKED)


def test_fingerprint_is_another_with_another_engine() -> None:
    assert fingerprint("aiperf", CONTEXT, ASKED) != fingerprint(ENGINE, CONTEXT, ASKED)


def test_configuration_is_the_same_however_it_is_measured() -> None:
    assert configuration(CONTEXT) == configuration({**CONTEXT, "release": 9, "chosen": "why", "backend_forced": True})
    assert configuration(CONTEXT) != configuration({**CONTEXT, "backend": "triton"})


@pytest.mark.parametrize("odd", [True, 8.0, "8", None])
def test_concurrency_that_is_no_whole_number_is_refused(odd: Any) -> None:
    with pytest.raises(BenchmarkError, match="is no whole number"):
        Parameters((odd, 16), 64, 32)
