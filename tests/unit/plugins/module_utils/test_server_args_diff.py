# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two servers compared: what differs, the most telling first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import argument_weights, server_args_diff, server_args_log
from ansible_collections.tokforge.sglang.plugins.module_utils.server_args_diff import ABSENT

LOGS = Path(__file__).parent / "fixtures" / "server_args"
# As many arguments as a log has at least, none of which says anything.
FILL = {f"fill_{number}": None for number in range(server_args_diff.WHOLE)}


def found(left: dict[str, Any], right: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Name, left and right of each difference."""
    return [(entry.name, entry.left, entry.right) for entry in server_args_diff.diff(left, right)]


def real(version: str) -> dict[str, Any]:
    """The arguments in a recorded log."""
    read = server_args_log.parse_log((LOGS / f"log-{version}.txt").read_text().splitlines())
    assert read is not None
    return read


# --- order -----------------------------------------------------------------------------------------------------------


def test_what_turned_the_original_deployment_around_comes_first() -> None:
    bad = {
        "port": 1, "zeta": "a", "alpha": "a", "only_left": "x", "dtype": "auto", "enable_metrics": True, "tp_size": 8,
        "moe_runner_backend": "auto", "max_running_requests": 8, "disable_cuda_graph": True,
    }  # fmt: skip
    good = {
        "port": 2, "zeta": "b", "alpha": "b", "dtype": "bfloat16", "enable_metrics": False, "tp_size": 4,
        "moe_runner_backend": "flashinfer_cutlass", "max_running_requests": 64, "disable_cuda_graph": False,
    }  # fmt: skip
    entries = server_args_diff.diff(bad, good)
    assert [entry.name for entry in entries] == [
        "disable_cuda_graph", "max_running_requests", "moe_runner_backend", "dtype", "tp_size", "enable_metrics",
        "alpha", "zeta", "only_left", "port",
    ]  # fmt: skip
    assert [entry.rank for entry in entries] == sorted(entry.rank for entry in entries)
    weights = {entry.name: entry.weight for entry in entries}
    assert (weights["disable_cuda_graph"], weights["dtype"], weights["alpha"], weights["port"]) == (
        "decides_speed", "decides_output", "may_matter", "incidental",
    )  # fmt: skip
    assert entries[0].hint == "without CUDA graphs every decode step launches its kernels one by one"
    assert entries[2].hint.endswith("; the left side leaves it to the server")
    assert entries[-1].hint == ""


def test_no_argument_is_both_telling_and_incidental() -> None:
    assert set(argument_weights.TELLING) & argument_weights.INCIDENTALS == set()
    assert all(told.hint and told.weight != argument_weights.INCIDENTAL for told in argument_weights.TELLING.values())
    assert not [name for name in (*argument_weights.TELLING, *argument_weights.INCIDENTALS) if "-" in name]


def test_telling_arguments_are_those_of_real_logs() -> None:
    known = {*real("0.5.23"), *real("0.5.12.post1")}
    # What a diff makes of the graph settings has the names of the flags.
    graphs = {name for name in argument_weights.TELLING if name.startswith("cuda_graph_")}
    assert set(argument_weights.TELLING) - known - graphs == set()


# --- equality --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": (1, 2)}, {"a": [1, 2]}),
        ({"a": "8"}, {"a": 8}),
        ({"a": 0.9}, {"a": "0.90"}),
        ({"a": 1}, {"a": 1.0}),
        ({"a": ["1", 2]}, {"a": [1, "2"]}),
        ({"a": {"x": "1"}}, {"a": {"x": 1}}),
        ({"tp-size": 8}, {"tensor_parallel_size": 8}),
        ({"--tp_size": 8}, {"tp-size": 8}),
        ({"model": "m"}, {"model_path": "m"}),
        ({"fp4-gemm-backend": "x"}, {"fp4_gemm_runner_backend": "x"}),
        ({"fp4-gemm-runner-backend": "x"}, {"fp4_gemm_runner_backend": "x"}),
        ({"elastic-ep-join-mode": "x"}, {"ep_join_mode": "x"}),
        ({"nsa_prefill_backend": "trtllm"}, {"dsa_prefill_backend": "trtllm"}),
        ({"nsa-decode": "trtllm"}, {"dsa_decode_backend": "trtllm"}),
        ({"cuda_graph_max_bs": 8}, {"cuda_graph_max_bs_decode": 8}),
        ({"cuda_graph_max_bs": 8}, {"cuda_graph_config": {"decode": {"max_bs": 8}}}),
        ({"nsa_prefill_cp_mode": "in-seq-split"}, {"cp_strategy": "zigzag"}),
        ({"enable_flashinfer_allreduce_fusion": True}, {"flashinfer_allreduce_fusion_backend": "auto"}),
        ({"enable_flashinfer_allreduce_fusion": False}, {"flashinfer_allreduce_fusion_backend": None}),
        ({"disable_cuda_graph": True}, {"cuda_graph_backend_decode": "disabled"}),
        ({"disable_cuda_graph": True}, {"disable_decode_cuda_graph": True}),
        ({"disable_cuda_graph": True}, {"cuda_graph_config": {"decode": {"backend": "disabled"}}}),
        (
            {"disable_cuda_graph": False},
            {"cuda_graph_config": {"decode": {"backend": "full"}}, "disable_cuda_graph": True},
        ),
        ({"disable_piecewise_cuda_graph": True}, {"cuda_graph_config": {"prefill": {"backend": "disabled"}}}),
        ({"enable_dp_attention": True, "dp_size": 4}, {"enable_dp_attention": True, "dp_size": 1, "attn_dp_size": 4}),
        ({"enable_dp_attention": False, "dp_size": 1}, {"attn_dp_size": 1}),
        ({"stream_output": True}, {"incremental_streaming_output": True}),
        ({"a": None, "b": False, "c": [], "d": {}, "e": ""}, {}),
        ({"api_key": "(hidden)"}, {"api_key": "sk-1"}),
    ],
)
def test_what_means_the_same_is_no_difference_either_way_round(left: dict[str, Any], right: dict[str, Any]) -> None:
    for one, other in ((left, right), (right, left)):
        assert found(one, other) == []


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ({"a": True}, {"a": 1}, [("a", True, 1)]),
        ({"b": {"c": [1]}}, {"b": {"c": [True]}}, [("b", {"c": [1]}, {"c": [True]})]),
        ({"a": "x8"}, {"a": 8}, [("a", "x8", 8)]),
        ({"a": "1.0"}, {"a": "1.00"}, [("a", "1.0", "1.00")]),
        ({"a": [1, 2]}, {"a": [1]}, [("a", [1, 2], [1])]),
        ({"a": 0}, {}, [("a", 0, ABSENT)]),
        ({}, {"a": "x"}, [("a", ABSENT, "x")]),
        ({"enable_tf32_matmul": False}, {}, [("enable_tf32_matmul", False, ABSENT)]),
        ({"nsa_prefill_backend": "a"}, {"dsa_prefill_backend": "b"}, [("dsa_prefill_backend", "a", "b")]),
        (
            {"disable_cuda_graph": False}, {"cuda_graph_backend_decode": "disabled"},
            [("disable_cuda_graph", False, True)],
        ),
        (
            {"cuda_graph_backend_decode": "breakable"}, {"cuda_graph_backend_decode": "full"},
            [("cuda_graph_backend_decode", "breakable", ABSENT)],
        ),
        ({"enable_dp_attention": True, "dp_size": 4}, {"dp_size": 4}, [("dp_size", 1, 4), ("attn_dp_size", 4, ABSENT)]),
        ({"enable_flashinfer_cutlass_moe": True, "moe_runner_backend": "auto"}, {"moe_runner_backend": "triton"},
         [("moe_runner_backend", "flashinfer_cutlass", "triton")]),
        ({"enable_flashinfer_cutlass_moe": False, "moe_runner_backend": "auto"}, {"moe_runner_backend": "triton"},
         [("moe_runner_backend", "auto", "triton")]),
        ({"api_key": "(hidden)"}, {}, [("api_key", "(hidden)", ABSENT)]),
        ({"api_key": "sk-1"}, {"api_key": "sk-2"}, [("api_key", "(hidden)", "(hidden)")]),
    ],
)  # fmt: skip
def test_what_differs_is_told(left: dict[str, Any], right: dict[str, Any], expected: list[Any]) -> None:
    assert found(left, right) == expected


def test_each_side_is_told_under_the_name_it_has_there() -> None:
    left, right = {"nsa-decode-backend": "a", "cuda_graph_max_bs": 1}, {"dsa_decode_backend": "b"}
    right["cuda_graph_config"] = {"decode": {"max_bs": 2}}  # type: ignore[assignment]
    names = {e.name: (e.left_name, e.right_name) for e in server_args_diff.diff(left, right)}
    assert names == {
        "dsa_decode_backend": ("nsa-decode-backend", "dsa_decode_backend"),
        "cuda_graph_max_bs_decode": ("cuda_graph_max_bs", "cuda_graph_config.decode.max_bs"),
    }


# --- what was asked for ----------------------------------------------------------------------------------------------


def test_what_was_not_asked_for_is_no_difference_to_what_runs() -> None:
    runs = {**FILL, "tp_size": 8, "page_size": 64, "attention_backend": "triton", "dtype": "bfloat16"}
    asked = {"tp-size": 4, "attention-backend": "auto", "dtype": None}
    assert found(runs, asked) == [("tp_size", 8, 4)]
    assert found(asked, runs) == [("tp_size", 4, 8)]


def test_what_was_asked_for_and_is_not_there_is_a_difference() -> None:
    assert found({**FILL}, {"tp-size": 4}) == [("tp_size", ABSENT, 4)]


def test_between_two_whole_sides_and_between_two_requests_everything_counts() -> None:
    assert found({**FILL, "page_size": 64}, {**FILL}) == [("page_size", 64, ABSENT)]
    assert found({"page_size": 64, "dtype": "auto"}, {"dtype": "half"}) == [
        ("dtype", "auto", "half"), ("page_size", 64, ABSENT),
    ]  # fmt: skip


def test_two_real_starts_of_different_releases_differ_in_what_they_do() -> None:
    entries = server_args_diff.diff(real("0.5.12.post1"), real("0.5.23"))
    assert [entry.name for entry in entries[:6]] == [
        "disable_cuda_graph", "max_running_requests", "moe_runner_backend", "model_path", "device", "tp_size",
    ]  # fmt: skip
    names = {entry.name for entry in entries}
    assert not names & {"load_format", "cuda_graph_config", "enable_dp_attention", "attn_dp_size", "dp_size"}
    assert not {name for name in names if name.startswith("nsa_")}
    assert found(real("0.5.23"), real("0.5.23")) == []


# --- recorded --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"effective": {"tp_size": 8}, "args": {"tp_size": 1}}', {"tp_size": 8}),
        ('{"args": {"tp-size": 8}, "argv": ["--x"]}', {"tp-size": 8}),
        ('{"tp_size": 8}', {"tp_size": 8}),
        ('{"effective": null, "tp_size": 8}', {"effective": None, "tp_size": 8}),
        ("{}", {}),
    ],
)
def test_recorded_arguments_are_read_from_each_form(text: str, expected: dict[str, Any]) -> None:
    assert server_args_diff.recorded(text) == expected


def test_launch_json_of_a_release_is_read() -> None:
    argv = ["-m", "sglang.launch_server", "--tp-size", "8", "--enable-metrics", "--cuda-graph-bs", "1", "2", "4",
            "--offset", "-1", "--pattern=--x", "--no-lora-strict-loading"]  # fmt: skip
    text = json.dumps({"schema_version": 1, "argv": argv, "env": {}, "cwd": "/"})
    assert server_args_diff.recorded(text) == {
        "tp-size": "8", "enable-metrics": True, "cuda-graph-bs": ["1", "2", "4"], "offset": "-1", "pattern": "--x",
        "lora-strict-loading": False,
    }  # fmt: skip
    assert found({**FILL, "tp_size": 8, "enable_metrics": True}, {"tp-size": "8", "enable-metrics": True}) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is no JSON"),
        ("[" * 100_000, "it is no JSON"),
        ("[1]", "no JSON object"),
        ('{"argv": "--x"}', "no list of texts"),
        ('{"argv": [1]}', "no list of texts"),
    ],
)
def test_file_without_arguments_is_refused_with_what_it_holds(text: str, said: str) -> None:
    with pytest.raises(server_args_diff.RecordError, match=said):
        server_args_diff.recorded(text)
