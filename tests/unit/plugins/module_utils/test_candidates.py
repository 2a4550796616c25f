# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings laid over others, what differs between them, and the candidates of a sweep."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import candidates, experiment_settings
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import ExperimentError

BASE = experiment_settings.base(
    {"sglang_version": "0.5.23", "args": {"tp_size": 8, "max-total-tokens": 8192}, "env": {"X": "1"}}
)


def names(**declared: Any) -> list[str]:
    """The names of the candidates that are declared."""
    return [one.name for one in candidates.expand(BASE, **declared)]


def test_base_is_complete_and_has_the_release_s_own_names() -> None:
    assert BASE == {
        "sglang_version": "0.5.23",
        "backend": "auto",
        "autotune_gate": "closed",
        "args": {"max-total-tokens": 8192, "tp-size": 8},
        "env": {"X": "1"},
    }
    assert experiment_settings.base({"args": {"tensor-parallel-size": 2}})["args"] == {"tp-size": 2}


def test_overlay_changes_adds_and_takes_away() -> None:
    over = {
        "backend": "triton",
        "args": {"--tensor-parallel_size": 4, "max_total_tokens": None},
        "env": {"X": None, "Y": 2},
    }
    assert experiment_settings.merge(BASE, over) == {
        "sglang_version": "0.5.23",
        "backend": "triton",
        "autotune_gate": "closed",
        "args": {"tp-size": 4},
        "env": {"Y": 2},
    }
    assert BASE["args"]["tp-size"] == 8


def test_open_gate_names_a_backend_only_where_sglang_would_choose() -> None:
    assert experiment_settings.merge(BASE, {"autotune_gate": "open"})["autotune_backend"] == "flashinfer_cutlass"
    named = experiment_settings.merge(BASE, {"autotune_gate": "open", "backend": "flashinfer_cutedsl"})
    assert "autotune_backend" not in named
    assert "autotune_backend" not in experiment_settings.merge(
        {**BASE, "autotune_backend": "flashinfer_trtllm"}, {"autotune_gate": "closed"}
    )


def test_differences_are_single_ordered_and_lead_from_a_to_b() -> None:
    over = {
        "backend": "triton",
        "sglang_version": "0.5.22",
        "args": {"tp-size": None, "page-size": 16},
        "env": {"A": 1},
    }
    other = experiment_settings.merge(BASE, over)
    found = candidates.differences(BASE, other)
    assert [change.label for change in found] == [
        "sglang=0.5.22",
        "backend=triton",
        "page-size=16",
        "no tp-size",
        "env.A=1",
    ]
    assert found[3].overlay == {"args": {"tp-size": None}}
    assert found[2].data() == {"what": "args", "name": "page-size", "a": None, "b": 16}
    assert experiment_settings.apply(BASE, found) == other
    assert candidates.differences(other, other) == ()


def test_what_renders_the_same_is_no_difference() -> None:
    over = {"args": {"tp-size": "8", "disable-cuda-graph": False, "max-total-tokens": "8192"}, "env": {"X": True}}
    assert candidates.differences(BASE, experiment_settings.merge(BASE, over)) == ()
    # A text is not a bare flag.
    bare = experiment_settings.merge(BASE, {"args": {"disable-radix-cache": True}})
    text = experiment_settings.merge(BASE, {"args": {"disable-radix-cache": "true"}})
    assert len(candidates.differences(bare, text)) == 1
    negatable = next(flag.name for flag in experiment_settings._flags("0.5.23").values() if flag.negatable)
    off = experiment_settings.merge(BASE, {"args": {negatable: False}})
    assert [change.label for change in candidates.differences(BASE, off)] == [f"no {negatable}"]


def test_flag_that_another_release_calls_otherwise_is_no_difference() -> None:
    older = experiment_settings.merge(BASE, {"sglang_version": "0.5.12.post1"})
    assert list(older["args"]) == ["max-total-tokens", "tensor-parallel-size"]
    found = candidates.differences(older, BASE)
    assert [change.label for change in found] == ["sglang=0.5.23"]
    assert experiment_settings.apply(older, found) == BASE


def test_grid_is_the_full_product_without_what_is_the_original_or_there_twice() -> None:
    grid = {"backend": ["triton", "auto"], "args": {"tp-size": [4, 8], "disable-radix-cache": [True, False]}}
    assert names(grid=grid) == [
        "original",
        "backend=triton disable-radix-cache tp-size=4",
        "backend=triton tp-size=4",
        "backend=triton disable-radix-cache",
        "backend=triton",
        "disable-radix-cache tp-size=4",
        "tp-size=4",
        "disable-radix-cache",
    ]
    again = names(
        grid=[{"args": {"tp_size": [4]}}, {"args": {"tensor-parallel-size": ["4"]}}],
        declared=[{"args": {"tp-size": 4}}],
    )
    assert again == ["original", "tp-size=4"]


def test_declared_candidates_come_first_and_keep_their_names() -> None:
    declared = [{"name": "small <b>", "args": {"tp-size": 1}}, {"backend": "triton"}, {"name": "same as now"}]
    found = candidates.expand(BASE, {"args": {"tp-size": [1, 2]}}, declared)
    assert [one.name for one in found] == ["original", "small <b>", "backend=triton", "tp-size=2"]
    assert [one.differences for one in found] == [0, 1, 1, 1]
    assert found[0].settings == BASE and found[3].settings["args"]["tp-size"] == 2


def test_names_are_short_unique_and_the_same_in_any_order() -> None:
    long = "x" * 60
    values = [f"{long}{tail}" for tail in "ab"] + ["<script>alert(1)</script>", "_script_alert_1_/script_"]
    there = names(grid={"args": {"chat-template": values}})
    back = names(grid={"args": {"chat-template": values[::-1]}})
    assert len(set(there)) == 5 and set(there) == set(back)
    assert all(len(name) <= 100 and "<" not in name for name in there)
    many = names(grid={"env": {f"VARIABLE_NUMBER_{number}": ["value"] for number in range(10)}})
    assert len(many[1]) == 100


def test_list_valued_flag_takes_a_list_of_lists() -> None:
    assert names(grid={"args": {"cuda-graph-bs-decode": [[1, 2], [1, 4]]}}) == [
        "original",
        "cuda-graph-bs-decode=1,2",
        "cuda-graph-bs-decode=1,4",
    ]


def test_original_keeps_its_name_against_a_flag_of_that_name() -> None:
    found = names(grid={"args": {"original": [True]}})
    assert found[0] == "original" and found[1].startswith("original~")


def test_number_of_candidates_is_bounded_before_they_are_made() -> None:
    most = {"args": {"page-size": list(range(1, 200))}}
    assert len(names(grid=most)) == 200
    with pytest.raises(ExperimentError, match="there are more than 200; at most 200 are tried"):
        names(grid=[most, {"args": {"tp-size": [1]}}])
    huge = {"args": {f"flag-{number}": list(range(100)) for number in range(50)}}
    with pytest.raises(ExperimentError, match="at most 200 are tried"):
        names(grid=huge)
    with pytest.raises(ExperimentError, match="there are 201"):
        names(declared=[{}] * 201)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"grid": "x"}, "the grid: it is a str"),
        ({"grid": {"args": [1]}}, "args is not a mapping"),
        ({"grid": {"backend": "triton"}}, "'backend' has no list of values"),
        ({"grid": {"args": {"tp-size": []}}}, "'args tp-size' has no list"),
        ({"grid": {"gpus": [1]}}, "it has gpus; use only"),
        ({"grid": [{"backend": ["a"]}, 3]}, "grid 2: it is a int"),
        ({"grid": {"args": {"port": [1]}}}, "port is decided by sglang_port"),
        ({"grid": {"args": {"moe-runner-backend": ["x"]}}}, "moe-runner-backend is decided by backend"),
        ({"grid": {"args": {"api-key": ["hush-hush-hush-1"]}}}, "api-key is a secret"),
        ({"grid": {"autotune_gate": ["ajar"]}}, "autotune_gate is ajar; give open or closed"),
        ({"grid": {"sglang_version": [0.5]}}, "sglang_version is 0.5; give a name in quotes"),
        ({"grid": {"backend": [True]}}, "backend is True"),
        ({"grid": {"args": {"x": [float("nan")]}}}, "x is nan"),
        ({"grid": {"args": {"x": ["a\nb"]}}}, "control character"),
        ({"grid": {"args": {"x": ["a" * 2001]}}}, "more than 2000"),
        ({"grid": {"args": {"<b>": [1]}}}, "is no launch argument"),
        ({"grid": {"args": {"x": [{1, 2}]}}}, "x is a set"),
        ({"grid": {"args": {"x": [[float("inf")]]}}}, "x is not plain JSON"),
        ({"grid": {"env": {"a b": ["1"]}}}, "is no environment variable"),
        ({"grid": {"env": {"A": [[1]]}}}, "env A is a list"),
        ({"declared": {}}, "they are a dict; give a list"),
        ({"declared": [3]}, "candidate 1: it is a int"),
        ({"declared": [{"name": "original", "backend": "x"}]}, "other than original"),
        ({"declared": [{"name": 3, "backend": "x"}]}, "its name is not one"),
        ({"declared": [{"name": "a\x1b[0m", "backend": "x"}]}, "its name is not one"),
        ({"declared": [{"name": "a", "backend": "x"}, {"name": "a", "backend": "y"}]}, "given twice"),
        ({"declared": [{"args": {"tensor-parallel-size": 1, "tp-size": 2}}]}, "tp-size is given twice"),
        ({"declared": [{"args": {f"f{number}": 1 for number in range(301)}}]}, "args has 301 entries"),
    ],
)
def test_what_cannot_be_tried_is_one_clear_error(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError) as error:
        names(**declared)
    assert message in str(error.value) and len(str(error.value)) < 400 and "hush-hush" not in str(error.value)


def test_settings_of_a_record_are_without_what_other_variables_decide() -> None:
    record = {
        "id": "r",
        "context": {
            "sglang_version": "0.5.12.post1",
            "backend": "auto",
            "autotune_gate": {"enabled_by": "patch", "backend": "flashinfer_cutlass"},
            "args": {"page-size": 8, "port": 1, "model-path": "/m", "load-format": "dummy"},
            "env": {"A": "1"},
        },
    }
    assert experiment_settings.of_record(record) == {
        "sglang_version": "0.5.12.post1",
        "backend": "auto",
        "autotune_gate": "open",
        "autotune_backend": "flashinfer_cutlass",
        "args": {"page-size": 8},
        "env": {"A": "1"},
    }
    plain = experiment_settings.of_record({"context": {"autotune_gate": {"enabled_by": "upstream"}}})
    assert (plain["autotune_gate"], plain["args"], plain["env"]) == ("closed", {}, {})
    with pytest.raises(ExperimentError, match="has no context"):
        experiment_settings.of_record({"id": "r"})
