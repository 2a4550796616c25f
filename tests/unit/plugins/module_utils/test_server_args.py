# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launch arguments: check, render, read back, compare."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tokforge.sglang.plugins.module_utils import releases, server_args

LOGS = Path(__file__).parent / "fixtures" / "server_args"
OLD = releases.get("0.5.12.post1")
NEW = releases.get("0.5.23")
HEAD = "[2026-11-29 16:24:36] "


def messages(args: dict[str, Any], release: releases.Release = NEW) -> list[str]:
    """The messages of `check`."""
    return [problem.message for problem in server_args.check(args, release)]


# --- render ----------------------------------------------------------------------------------------------------------


def test_arguments_are_rendered_sorted_by_flag_whatever_their_order_and_spelling() -> None:
    assert server_args.render({"tp_size": 8, "--enable-metrics": True, "dtype": "auto"}) == [
        "--dtype", "auto", "--enable-metrics", "--tp-size", "8",
    ]  # fmt: skip


def test_false_and_null_are_left_out_but_zero_and_empty_text_are_not() -> None:
    args = {"enable-metrics": False, "dtype": None, "random-seed": 0, "warmups": ""}
    assert server_args.render(args, NEW) == ["--random-seed", "0", "--warmups", ""]


def test_false_on_a_flag_that_can_be_negated_gives_its_negation() -> None:
    assert server_args.render({"lora-strict-loading": False}, NEW) == ["--no-lora-strict-loading"]
    assert server_args.render({"lora-strict-loading": True}, NEW) == ["--lora-strict-loading"]


def test_list_gives_its_items_behind_one_flag() -> None:
    assert server_args.render({"cuda-graph-bs": [1, 2, 4]}, OLD) == ["--cuda-graph-bs", "1", "2", "4"]


def test_list_is_one_json_text_where_the_flag_reads_json() -> None:
    assert server_args.render({"forward-hooks": [{"name": "a"}]}, NEW) == ["--forward-hooks", '[{"name":"a"}]']


def test_mapping_is_json_text_with_sorted_keys() -> None:
    assert server_args.render({"json-model-override-args": {"b": [1], "a": None}}, NEW) == [
        "--json-model-override-args",
        '{"a":null,"b":[1]}',
    ]


def test_value_that_looks_like_a_flag_stays_its_flags_value() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pattern")
    parser.add_argument("--offset", type=int)
    argv = server_args.render({"pattern": "--x", "offset": -1})
    assert argv == ["--offset", "-1", "--pattern=--x"]
    assert vars(parser.parse_args(argv)) == {"pattern": "--x", "offset": -1}


@given(
    st.dictionaries(st.sampled_from(sorted(NEW.flags)), st.one_of(st.booleans(), st.none(), st.integers(), st.text()))
)
def test_rendering_never_depends_on_the_order_of_the_mapping(args: dict[str, Any]) -> None:
    backwards = dict(reversed(list(args.items())))
    assert server_args.render(args, NEW) == server_args.render(backwards, NEW)


# --- check -----------------------------------------------------------------------------------------------------------


def test_good_arguments_have_no_problem() -> None:
    args = {
        "tp_size": 8, "moe-runner-backend": "flashinfer_cutlass", "enable-metrics": True, "disable-radix-cache": False,
        "max-lora-chunk-size": 32, "cuda-graph-bs-decode": [1, 2], "json-model-override-args": {"a": 1}, "dtype": None,
        "model-checksum": True,
    }  # fmt: skip
    assert messages(args) == []


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ({"tp-size": {"a": 1}}, "--tp-size takes one value, not a mapping"),
        ({"mem-fraction-static": float("nan")}, "--mem-fraction-static holds the number nan"),
        ({"json-model-override-args": {"a": [float("inf")]}}, "holds the number inf"),
        ({"dtype": "a\0"}, "--dtype holds a NUL"),
        ({"lora-paths": ["a", "--trust-remote-code"]}, "has the item '--trust-remote-code'"),
        ({"cuda-graph-bs-decode": [1, None]}, "has an empty item"),
        ({"config": "/a.yml"}, "--config names a file with more arguments"),
    ],
)
def test_value_that_would_mean_something_else_is_refused(args: dict[str, Any], part: str) -> None:
    [message] = messages(args)
    assert part in message


def test_mapping_is_fine_where_the_flag_reads_json_text() -> None:
    names = ("model-loader-extra-config", "init-expert-location", "lora-paths", "forward-hooks", "deepep-config")
    assert messages({name: {"a": 1} for name in names}) == []
    assert messages({"gc-threshold": [-1, 2]}) == []


def test_unknown_flag_names_the_near_one_and_the_release() -> None:
    assert messages({"mem-fraction-statik": 0.8}) == [
        "--mem-fraction-statik is no argument of SGLang 0.5.23; did you mean --mem-fraction-static?"
    ]


def test_unknown_flag_without_a_near_one_points_to_the_help() -> None:
    assert messages({"zzz": 1}) == [
        "--zzz is no argument of SGLang 0.5.23; see `python -m sglang.launch_server --help` of 0.5.23"
    ]


@pytest.mark.parametrize(
    ("release", "given", "expected"),
    [
        (NEW, "nsa-prefill-backend", "it is --dsa-prefill-backend since 0.5.13"),
        (NEW, "nsa_decode_backend", "it is --dsa-decode-backend since 0.5.13"),
        (NEW, "fp4-gemm-runner-backend", "it is --fp4-gemm-backend since 0.5.8"),
        (NEW, "cuda-graph-max-bs", "it is --cuda-graph-max-bs-decode since 0.5.14"),
        (OLD, "dsa-prefill-backend", "before 0.5.13 it is --nsa-prefill-backend"),
        (OLD, "cuda-graph-bs-decode", "before 0.5.14 it is --cuda-graph-bs"),
    ],
)
def test_renamed_flag_gets_the_name_this_release_has(release: releases.Release, given: str, expected: str) -> None:
    [message] = messages({given: "trtllm"}, release)
    assert message.endswith(expected)


def test_every_rename_names_flags_that_some_locked_release_has() -> None:
    for rename in server_args.RENAMES:
        assert NEW.flag(rename.new) is not None or OLD.flag(rename.new) is not None


@pytest.mark.parametrize("release", [OLD, NEW])
def test_value_outside_the_choices_of_this_release_is_refused(release: releases.Release) -> None:
    [message] = messages({"moe-runner-backend": "flashinfer_cutlas"}, release)
    assert f"does not take flashinfer_cutlas in SGLang {release.version} (did you mean flashinfer_cutlass?)" in message
    assert message.endswith(", ".join(release.moe_runner_backends()))


def test_backend_that_only_the_newer_release_has_is_refused_by_the_older() -> None:
    assert messages({"moe-runner-backend": "humming"}, NEW) == []
    assert len(messages({"moe-runner-backend": "humming"}, OLD)) == 1


def test_each_item_of_a_list_is_held_against_the_choices() -> None:
    assert messages({"lora-target-modules": ["q_proj", "all"]}) == []
    assert "does not take q_prj" in messages({"lora-target-modules": ["q_proj", "q_prj"]})[0]


@pytest.mark.parametrize("name", ["api-key", "admin_api_key", "ssl-keyfile-password"])
def test_secret_is_refused_and_its_value_is_not_repeated(name: str) -> None:
    [message] = messages({name: "hunter2"})
    assert "set it through sglang_server_" in message and "hunter2" not in message


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("host", "sglang_host"),
        ("port", "sglang_port"),
        ("model-path", "sglang_model"),
        ("model", "sglang_model"),
        ("served-model-name", "sglang_served_model_name"),
    ],
)
def test_flag_that_a_variable_decides_is_refused_under_every_name(name: str, variable: str) -> None:
    assert messages({name: "x"}) == [f"--{name} follows from {variable}; set that instead"]


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ({"tp-size": True}, "needs a value, not true"),
        ({"dtype": True}, "give one of auto, half"),
        ({"tp-size": False}, "false means nothing"),
        ({"enable-metrics": "yes"}, "is a switch and takes no value; write true or false, not 'yes'"),
        ({"enable-metrics": 1}, "is a switch"),
        ({"tp-size": [1, 2]}, "takes one value, not a list"),
        ({"cuda-graph-bs-decode": []}, "needs at least one value"),
        ({"no-lora-strict-loading": True}, "write `lora-strict-loading: false`"),
        ({"tp-size": 1, "tensor_parallel_size": 2}, "--tp-size is the same argument as --tensor-parallel-size"),
        ({"tp-size": 1, "tp_size": 2}, "is the same argument"),
    ],
)
def test_value_of_the_wrong_form_is_refused(args: dict[str, Any], part: str) -> None:
    [message] = messages(args)
    assert part in message


def test_problems_come_sorted_by_flag_and_all_at_once() -> None:
    found = server_args.check({"zzz": 1, "aaa": 1, "host": "x"}, NEW)
    assert [problem.flag for problem in found] == ["aaa", "host", "zzz"]


# --- reading a log ---------------------------------------------------------------------------------------------------


def test_arguments_of_a_real_0_5_12_log_are_read_from_the_object_form() -> None:
    found = server_args.parse_log((LOGS / "log-0.5.12.post1.txt").read_text().splitlines())
    assert found is not None
    assert (found["tp_size"], found["model_path"], found["load_format"]) == (2, "tiny_moe", "dummy")
    assert found["api_key"] is None
    assert found["enable_metrics"] is False or found["enable_metrics"] is True
    assert len(found) > 300


def test_arguments_of_a_real_0_5_23_log_are_read_from_the_mapping_form() -> None:
    found = server_args.parse_log((LOGS / "log-0.5.23.txt").read_text().splitlines())
    assert found is not None
    assert (found["device"], found["max_total_tokens"], found["mem_fraction_static"]) == ("cpu", 8192, 0.716)
    assert found["uvicorn_access_log_exclude_prefixes"] == []
    assert found["admin_api_key"] is None
    assert len(found) > 400


def test_nested_values_and_quotes_and_commas_inside_text_survive() -> None:
    line = (
        HEAD + """server_args=ServerArgs(a={'x': [1, {'y': 'p,q)'}]}, b="it's, c=3", c='\\\\', d=(1, 2), e=-1.5e-3)"""
    )
    assert server_args.parse_log_line(line) == {
        "a": {"x": [1, {"y": "p,q)"}]}, "b": "it's, c=3", "c": "\\", "d": (1, 2), "e": -1.5e-3,
    }  # fmt: skip


def test_value_that_is_no_literal_stays_text() -> None:
    line = HEAD + (
        "server_args=ServerArgs(hook=<function f at 0x7f, g>, lora=[LoRARef(name='a', path='b')], kind=<K.X: 'x'>, n=1)"
    )
    assert server_args.parse_log_line(line) == {
        "hook": "<function f at 0x7f, g>",
        "lora": "[LoRARef(name='a', path='b')]",
        "kind": "<K.X: 'x'>",
        "n": 1,
    }


def test_values_that_json_cannot_hold_stay_text() -> None:
    line = HEAD + "server_args={'s': {1, 2}, 'b': b'x', 'm': {1: 2}}"
    assert server_args.parse_log_line(line) == {"s": "{1, 2}", "b": "b'x'", "m": "{1: 2}"}


def test_what_follows_the_arguments_on_the_same_line_is_not_part_of_them() -> None:
    assert server_args.parse_log_line(HEAD + "server_args={'a': 1} Loading: 3%, 'b': 2}") == {"a": 1}


@pytest.mark.parametrize(
    "line",
    [
        "server_args=ServerArgs(a=1)",
        "print('server_args=', ServerArgs(a=1))",
        HEAD + "Receive: obj=GenerateReqInput(text='server_args=ServerArgs(a=1)')",
        HEAD + f"Receive: obj=GenerateReqInput(text='{HEAD}server_args=ServerArgs(a=1)')",
        HEAD + f"Receive: text=\"{HEAD}server_args={{'a': 1}}\"",
        "[2026-11-29 16:24:36 TP0] server_args=ServerArgs(a=1)",
        "[2026-11-29 16:24:36 DP1 TP3 EP3] server_args={'a': 1}",
        HEAD + "the server_args=ServerArgs(a=1)",
        HEAD + "server_args=None",
        "",
    ],
)
def test_only_the_main_processs_own_record_counts(line: str) -> None:
    assert server_args.parse_log_line(line) is None


@pytest.mark.parametrize(
    "before", ["", "Fetching:  67%|###   | 6/9 [00:07<00:02]", "bar 1\rbar 2\r", "[2026-11-29 16:24:35 TP0] x\r"]
)
def test_a_progress_bar_before_the_record_does_not_hide_it(before: str) -> None:
    assert server_args.parse_log_line(f"{before}{HEAD}server_args={{'a': 1}}") == {"a": 1}


def test_milliseconds_in_the_time_are_fine() -> None:
    assert server_args.parse_log_line("[2026-11-29 16:24:36.123] server_args={'a': 1}") == {"a": 1}


def test_last_start_in_a_log_wins_over_earlier_ones() -> None:
    lines = [HEAD + "server_args={'a': 1}", HEAD + "server_args={'a': 2}", HEAD + "Receive: 'server_args={'"]
    assert server_args.parse_log(lines) == {"a": 2}


def test_log_without_a_start_has_no_arguments() -> None:
    assert server_args.parse_log([HEAD + "Init parallel begin."]) is None


def test_secrets_in_a_log_are_hidden() -> None:
    line = HEAD + "server_args=ServerArgs(api_key='hunter2', admin_api_key=None, ssl_keyfile_password='p', port=1)"
    assert server_args.parse_log_line(line) == {
        "api_key": server_args.HIDDEN, "admin_api_key": None, "ssl_keyfile_password": server_args.HIDDEN, "port": 1,
    }  # fmt: skip


PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=5,
)
NAMES = st.from_regex(r"[a-z]+_x", fullmatch=True)


@given(st.dictionaries(NAMES, PLAIN, min_size=1, max_size=6))
def test_whatever_python_writes_in_either_form_is_read_back(values: dict[str, Any]) -> None:
    object_form = ", ".join(f"{name}={value!r}" for name, value in values.items())
    assert server_args.parse_log_line(f"{HEAD}server_args=ServerArgs({object_form})") == values
    assert server_args.parse_log_line(f"{HEAD}server_args={values!r}") == values


@given(st.text())
def test_no_text_makes_the_reader_fail(text: str) -> None:
    found = server_args.parse_log_line(f"{HEAD}server_args=ServerArgs({text}")
    assert found is None or isinstance(json.dumps(found), str)


# --- diff ------------------------------------------------------------------------------------------------------------


def test_differences_are_sorted_and_say_which_side_lacks_an_argument() -> None:
    left = {"tp-size": 1, "only_left": None, "same": [1, 2]}
    right = {"tp_size": 8, "same": (1, 2), "a_right": "x"}
    assert server_args.diff(left, right) == [
        ("a_right", server_args.ABSENT, "x"),
        ("only_left", None, server_args.ABSENT),
        ("tp_size", 1, 8),
    ]


def test_true_and_one_differ() -> None:
    assert server_args.diff({"a": True, "b": {"c": [1]}}, {"a": 1, "b": {"c": [True]}}) == [
        ("a", True, 1),
        ("b", {"c": [1]}, {"c": [True]}),
    ]


def test_two_real_starts_of_different_releases_can_be_compared() -> None:
    left, right = (
        server_args.parse_log((LOGS / f"log-{version}.txt").read_text().splitlines())
        for version in ("0.5.12.post1", "0.5.23")
    )
    assert left is not None and right is not None
    found = {entry.name: entry for entry in server_args.diff(left, right)}
    assert found["tp_size"] == ("tp_size", 2, 1)
    assert "load_format" not in found
