# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What came out of an experiment, as a person reads it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.tokforge.sglang.plugins.filter.experiment_lines import FilterModule, experiment_lines

POINT = {
    "concurrency": 8,
    "metric": "output_tok_s",
    "a": {"n": 5, "median": 100.04},
    "b": {"n": 5, "median": 110.0},
    "change_percent": 9.96,
    "band_percent": [8.0, 12.0],
    "p_value": 0.007937,
    "verdict": "faster",
}
COMPARISON = {"verdict": "faster", "why": "output tok/s +10.0 %", "points": [POINT], "notes": ["one start only"]}
SIDES = {"a": {"label": "gate closed", "starts": 5, "failed": 0}, "b": {"label": "gate open", "starts": 4}}
SETTINGS = {
    "backend": "triton",
    "sglang_version": "0.5.23",
    "autotune_gate": "closed",
    "args": {"page-size": 16},
    "env": {"A": "1"},
}


def ab(**more: Any) -> list[str]:
    return experiment_lines({"id": "ab-1", "trials": [], "result": {**SIDES, "comparison": COMPARISON, **more}})


def test_ab_run_shows_both_sides_each_point_and_the_verdict() -> None:
    failed = {**SIDES["b"], "failed": 1, "reason": "CUDA out of memory"}
    assert ab(b=failed, why="the gate is closed as long as nothing opens it") == [
        "A/B run ab-1",
        "  A  gate closed: 5 starts measured",
        "  B  gate open: 4 starts measured, 1 failed: CUDA out of memory",
        "  the gate is closed as long as nothing opens it",
        "  at 8 in flight  output_tok_s 100.0 -> 110.0: +10.0 % (+8.0 to +12.0 %), p = 0.0079, faster",
        "  verdict    faster: output tok/s +10.0 %",
        "  note       one start only",
    ]


def test_point_that_could_not_be_tested_shows_its_figures_only() -> None:
    bare = {**POINT, "change_percent": None, "band_percent": None, "p_value": None, "verdict": "not_comparable"}
    few = {"verdict": "not_comparable", "why": "2 starts are too few", "points": [bare]}
    assert ab(comparison=few)[3:] == [
        "  at 8 in flight  output_tok_s 100.0 -> 110.0",
        "  verdict    not_comparable: 2 starts are too few",
    ]


def test_ab_run_with_a_side_that_never_ran_says_so() -> None:
    never = {"label": "gate open", "starts": 0, "failed": 2, "reason": "died"}
    assert ab(b=never, comparison=None)[2:] == [
        "  B  gate open: 0 starts measured, 2 failed: died",
        "  verdict    not_comparable: one side has no valid measurement",
    ]


def test_side_that_is_not_supported_says_why() -> None:
    never = {
        "label": "tp-size=64",
        "starts": 0,
        "failed": 0,
        "state": "unsupported",
        "reason": "64 ranks\nneed 64 GPUs",
    }
    assert "  B  tp-size=64: 0 starts measured, unsupported: 64 ranks need 64 GPUs" in ab(b=never, comparison=None)


def test_explanation_says_why_a_configuration_did_not_run() -> None:
    candidates = [{"name": "A", "reason": ""}, {"name": "B", "state": "failed", "reason": "out of\nmemory"}]
    lines = experiment_lines(
        {"id": "e", "candidates": candidates, "result": {"steps": [], "notes": ["B does not run"]}}
    )
    assert lines[1:] == ["  B  failed: out of memory", "  note       B does not run"]


def sweep(winner: str | None, comparison: Any = None) -> list[str]:
    candidates = [
        {"name": "original", "state": "measured", "reason": "", "output_tok_s": {"1": 10.0, "8": 80.0}},
        {"name": "page-size=16", "state": "measured", "output_tok_s": {"1": 11.0, "8": 99.96}, "settings": SETTINGS},
        {"name": "marlin", "state": "failed", "reason": "it died\nTraceback", "output_tok_s": {}},
    ]
    objective = {"metric": "output_tok_s", "concurrency": 8}
    result = {"objective": objective, "candidates": candidates, "winner": winner, "why": "it reaches 100"}
    return experiment_lines({"id": "sweep-1", "result": result, "comparison": comparison})


def test_sweep_with_a_winner_shows_what_to_declare() -> None:
    assert sweep("page-size=16", COMPARISON) == [
        'Sweep sweep-1, best by {"metric": "output_tok_s", "concurrency": 8}',
        "  original      measured  10.0 at 1, 80.0 at 8 output tok/s",
        "  page-size=16  measured  11.0 at 1, 100.0 at 8 output tok/s",
        "  marlin        failed  it died Traceback",
        "  at 8 in flight  output_tok_s 100.0 -> 110.0: +10.0 % (+8.0 to +12.0 %), p = 0.0079, faster",
        "  verdict    faster: output tok/s +10.0 %",
        "  note       one start only",
        "  winner     page-size=16: it reaches 100",
        "  to keep it, declare in the inventory:",
        "    backend: triton",
        '    sglang_version: "0.5.23"',
        "    sglang_autotune_gate: closed",
        '    sglang_server_args: {"page-size": 16}',
        '    sglang_server_env: {"A": "1"}',
    ]


def test_winner_that_is_not_confirmed_is_not_said_to_serve() -> None:
    settings = {"name": "a", "state": "measured", "settings": SETTINGS}
    result = {"candidates": [settings], "winner": "a", "verdict": "unconfirmed", "why": "it reaches 100"}
    told = {"id": "sweep-1", "result": result, "original_release": 3}
    lines = experiment_lines({**told, "serves": 3})
    assert "  winner     a, not confirmed, so what served before serves: it reaches 100" in lines
    assert "  to take it all the same, declare in the inventory:" in lines
    # No confirmation was asked for.
    assert "  winner     a: it reaches 100" in experiment_lines({**told, "serves": 5})


def test_result_of_an_earlier_play_says_when_it_came_out_and_how_to_do_it_anew() -> None:
    result = {"steps": [], "recorded_at": "2026-01-01T00:00:00Z"}
    now = {"id": "explain-1", "finished": True, "result": result}
    assert experiment_lines({**now, "unfinished": []})[-1] == (
        "  this came out at 2026-01-01T00:00:00Z; -e sglang_experiment_force=true does it anew"
    )
    assert not any("force" in line for line in experiment_lines(now))


def test_plan_names_what_would_be_tried() -> None:
    assert experiment_lines({"id": "ab-1", "trials": [{}, {}], "candidates": [{"name": "A"}, {"name": "B"}]}) == [
        "experiment ab-1: nothing came out yet, 2 trials are left",
        "  A",
        "  B",
    ]


def test_sweep_without_a_winner_leaves_what_serves() -> None:
    lines = sweep(None)
    assert lines[-1] == "  winner     none, what served before serves: it reaches 100"
    assert len(lines) == 5


def test_explanation_has_a_line_for_each_step_and_for_all() -> None:
    steps = [
        {"name": "tp-size=2", "change_percent": 100.04, "band_percent": [90.0, 110.0], "verdict": "faster"},
        {
            "name": "page-size=16",
            "change_percent": -1.0,
            "band_percent": [-3.0, 1.0],
            "verdict": "no_measurable_gain",
            "alone_percent": 4.0,
            "alone_band_percent": [2.0, 6.0],
        },
        {"name": "ep-size=2", "change_percent": None, "band_percent": None, "verdict": "not_comparable"},
    ]
    total = {"change_percent": 98.0, "band_percent": [88.0, 108.0]}
    result = {"steps": steps, "total": total, "notes": ["A and B differ in the release too"], "concurrency": 8}
    assert experiment_lines({"id": "explain-1", "result": result}) == [
        "Explanation explain-1, output tok/s at 8 in flight",
        "  tp-size=2: +100.0 % (+90.0 to +110.0 %)  faster",
        "  page-size=16: -1.0 % (-3.0 to +1.0 %); alone +4.0 % (+2.0 to +6.0 %)  no_measurable_gain",
        "  ep-size=2: not measured  not_comparable",
        "  all of it: +98.0 % (+88.0 to +108.0 %)",
        "  note       A and B differ in the release too",
    ]
    bare = experiment_lines({"id": "e", "result": {"steps": [], "total": None, "notes": [], "concurrency": None}})
    assert len(bare) == 1


def test_explanation_shows_a_decode_step_of_both_sides() -> None:
    sides = {
        "a": {"step_ms": 12.0, "ms": {"moe": 8.0, "idle": 1.0}},
        "b": {"step_ms": 9.5, "ms": {"moe": 6.25, "copy": 1}},
    }
    result = {"steps": [], "breakdown": sides}
    assert experiment_lines({"id": "e", "result": result})[1:] == [
        "  a decode step: 12.000 -> 9.500 ms",
        "    moe: 8.000 -> 6.250 ms",
        "    idle: 1.000 -> - ms",
        "    copy: - -> 1.000 ms",
    ]
    one = {"steps": [], "breakdown": {"a": sides["a"], "b": None}}
    assert experiment_lines({"id": "e", "result": one})[1] == "  a decode step: 12.000 -> - ms"


def test_decode_step_is_held_against_the_roofline_where_it_is_known() -> None:
    floor = {"step": {"share": 0.149}, "kinds": {"moe": {"share": 0.5}, "idle": None}}
    sides = {
        "a": {"step_ms": 2.0, "ms": {"moe": 1.0, "idle": 0.5}, "floor": floor},
        "b": {"step_ms": 1.0, "floor": None},
    }
    lines = experiment_lines({"id": "e", "result": {"steps": [], "breakdown": sides}})
    assert lines[1:] == [
        "  a decode step: 2.000 -> 1.000 ms, 15% -> - of the roofline",
        "    moe: 1.000 -> - ms, 50% -> - of the roofline",
        "    idle: 0.500 -> - ms",
    ]


def test_experiment_that_is_not_finished_says_how_much_is_left() -> None:
    assert experiment_lines({"id": "ab-1", "trials": [{}, {}], "result": None}) == [
        "experiment ab-1: nothing came out yet, 2 trials are left"
    ]
    assert experiment_lines({"id": "ab-1"}) == ["experiment ab-1: nothing came out yet, 0 trials are left"]


@pytest.mark.parametrize("given", [None, "", [], 3, {}, {"result": {}}])
def test_what_the_module_did_not_return_is_refused(given: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="wants what the module experiment returned"):
        experiment_lines(given)


@pytest.mark.parametrize("odd", [None, True, "x", float("nan"), [], {}])
def test_damaged_figures_and_names_stop_nothing(odd: Any) -> None:
    point = {**POINT, "a": {"median": odd}, "change_percent": odd, "p_value": odd, "concurrency": odd, "verdict": odd}
    assert any("in flight" in line for line in ab(comparison={**COMPARISON, "points": [point], "why": odd}))
    step = {"name": odd, "change_percent": odd, "band_percent": odd, "alone_percent": odd}
    told = experiment_lines({"id": odd, "result": {"steps": [step], "total": {"change_percent": odd}}})
    assert len(told) == 3
    one = {"name": odd, "state": odd, "reason": odd, "output_tok_s": {"1": odd}, "settings": odd}
    candidates = {"candidates": [one], "winner": odd, "objective": {"a": 1}}
    assert len(experiment_lines({"id": odd, "result": candidates, "comparison": None})) >= 3


def test_filter_has_its_name() -> None:
    assert FilterModule().filters() == {"experiment_lines": experiment_lines}
