# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launch arguments: check and render."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tokforge.sglang.plugins.module_utils import releases, server_args
from ansible_collections.tokforge.sglang.plugins.module_utils.flags import Flag

OLD = releases.get("0.5.12.post1")
NEW = releases.get("0.5.23")


def messages(args: dict[str, Any], release: releases.Release = NEW) -> list[str]:
    """The messages of `check` that end a start."""
    return [problem.message for problem in server_args.failing(server_args.check(args, release))]


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
        ({"log-level": "error"}, "--log-level error hides the lines by which a start is followed"),
        ({"log-level": "WARNING"}, "use info or debug"),
        ({"tp-size": {"a": 1}}, "--tp-size takes one value, not a mapping"),
        ({"mem-fraction-static": float("nan")}, "--mem-fraction-static holds the number nan"),
        ({"json-model-override-args": {"a": [float("inf")]}}, "holds the number inf"),
        ({"dtype": "a\0"}, "--dtype holds a NUL"),
        (
            {"otlp-traces-endpoint": "http://me:s3cret@host:4317"},
            "--otlp-traces-endpoint holds an address with a password",
        ),
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tp-size", 8), ("tp-size", "8"), ("tp-size", " +8 "), ("base-gpu-id", "-1"), ("mem-fraction-static", 0.9),
        ("mem-fraction-static", 1), ("mem-fraction-static", ".9"), ("mem-fraction-static", "9e-1"),
        ("context-length", "128k"), ("context-length", "1.5M"), ("context-length", "4Ki"), ("context-length", 4096),
        ("cuda-graph-bs-decode", ["1", 2]), ("forward-hooks", '[{"a": 1}]'), ("forward-hooks", [1]),
    ],
)  # fmt: skip
def test_value_that_the_flags_own_parser_takes_is_fine(name: str, value: Any) -> None:
    assert messages({name: value}) == []


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("tp-size", "eight", "--tp-size needs a whole number, not 'eight'; SGLang 0.5.23 would refuse to start"),
        ("tp-size", 8.0, "not 8.0"),
        ("tp-size", "8.0", "not '8.0'"),
        ("tp-size", "", "not ''"),
        ("mem-fraction-static", "high", "needs a number, not 'high'"),
        ("mem-fraction-static", "nan", "not 'nan'"),
        ("mem-fraction-static", "1e400", "not '1e400'"),
        ("mem-fraction-static", "0.9 0.8", "needs a number"),
        ("context-length", "1.5Ki", "needs a whole number, also one like 4k or 1Mi, not '1.5Ki'"),
        ("context-length", "4K", "not '4K'"),
        ("context-length", 4096.5, "not 4096.5"),
        ("cuda-graph-bs-decode", [1, "x"], "not 'x'"),
        ("cuda-graph-bs-decode", [1, True], "not true"),
        ("cuda-graph-bs-decode", [[1]], "not [1]"),
        ("tp-size", 2**63, "holds a number of more than 64 bits"),
        ("tp-size", "9" * 5000, "..."),
        ("forward-hooks", "{a", "--forward-hooks needs JSON text, not '{a'"),
    ],
)
def test_value_of_the_wrong_type_is_refused(name: str, value: Any, part: str) -> None:
    [message] = messages({name: value})
    assert part in message and len(message) < 200


def test_text_flag_takes_any_text_or_number() -> None:
    assert messages({"chat-template": 8, "tokenizer-path": "1e999", "revision": 1.5}) == []


def test_deprecated_flag_is_told_with_its_successor_and_does_not_end_the_start() -> None:
    [problem] = server_args.check({"disable-cuda-graph": True}, NEW)
    assert problem.level == server_args.WARN
    assert problem.message == (
        "--disable-cuda-graph still works in SGLang 0.5.23, which calls it deprecated; write "
        "`cuda-graph-backend-decode: disabled` and `cuda-graph-backend-prefill: disabled`"
    )
    assert server_args.failing([problem]) == []


@pytest.mark.parametrize("value", [False, None])
def test_deprecated_flag_that_is_off_is_not_told(value: Any) -> None:
    assert server_args.check({"disable-cuda-graph": value}, NEW) == []


def test_flag_that_is_only_known_to_be_refused_ends_the_start() -> None:
    flag = Flag("enable-ep-moe", takes_value=False, deprecated=True, retired=True)
    release = replace(NEW, version="0.5.4", flags={"enable-ep-moe": flag})
    [message] = messages({"enable-ep-moe": True}, release)
    assert "ends the start of SGLang 0.5.4" in message and message.endswith("write ep-size with the value of tp-size")
    assert messages({"enable-ep-moe": False}, release) == []


def test_of_a_flag_that_could_not_be_read_only_the_name_counts() -> None:
    release = replace(NEW, flags={"a": Flag("a", unread=True)})
    assert messages({"a": {"b": [1]}}, release) == []
    assert "holds a NUL" in messages({"a": "\0"}, release)[0]


def test_problems_come_sorted_by_flag_and_all_at_once() -> None:
    found = server_args.check({"zzz": 1, "aaa": 1, "host": "x"}, NEW)
    assert [problem.flag for problem in found] == ["aaa", "host", "zzz"]
