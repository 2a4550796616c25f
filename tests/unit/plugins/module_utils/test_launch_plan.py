# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launch arguments and environment: which variable decides what, and that nothing is decided twice."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import launch_plan, releases

NEWEST = releases.newest("cpu")


def request(**changes: Any) -> launch_plan.Request:
    """A request with one change against a plain CUDA one."""
    values: dict[str, Any] = {
        "root": "/opt/sglang",
        "sglang_version": NEWEST,
        "lane": "cuda13",
        "backend": "auto",
        "host": "127.0.0.1",
        "port": 30000,
        "metrics": True,
        "model_path": "/data/models/glm",
        "served_name": "glm",
        "random_weights": False,
    }
    return launch_plan.Request(**{**values, **changes})


def problems(**changes: Any) -> list[str]:
    """What is wrong with the arguments of a request."""
    with pytest.raises(launch_plan.PlanError) as caught:
        launch_plan.argv(request(**changes))
    found: list[str] = caught.value.facts["problems"]
    assert all(problem in str(caught.value) for problem in found)
    return found


def test_plain_request_gives_exactly_these_words() -> None:
    assert launch_plan.argv(request()) == [
        *("-m", "sglang.launch_server"),
        "--enable-metrics",
        *("--host", "127.0.0.1"),
        *("--model-path", "/data/models/glm"),
        *("--port", "30000"),
        *("--served-model-name", "glm"),
    ]


def test_cpu_lane_and_random_weights_add_their_arguments() -> None:
    words = launch_plan.argv(request(lane="cpu", random_weights=True, metrics=False))
    assert words[words.index("--device") + 1] == "cpu"
    assert words[words.index("--load-format") + 1] == "dummy"
    assert "--enable-metrics" not in words


def test_backend_is_given_only_when_it_is_a_choice() -> None:
    assert "--moe-runner-backend" not in launch_plan.argv(request(backend="auto"))
    words = launch_plan.argv(request(backend="flashinfer_cutlass"))
    assert words[words.index("--moe-runner-backend") + 1] == "flashinfer_cutlass"


def test_backend_that_the_release_does_not_have_is_refused() -> None:
    assert "flashinfer_cutlas" in problems(backend="flashinfer_cutlas")[0]


def test_users_arguments_stand_beside_the_owned_ones_whatever_their_spelling() -> None:
    words = launch_plan.argv(request(args={"tp_size": 8, "mem-fraction-static": 0.9}))
    assert words[words.index("--tp-size") + 1] == "8"
    assert words[words.index("--mem-fraction-static") + 1] == "0.9"


def test_alias_and_full_name_are_one_argument() -> None:
    assert launch_plan.arguments(request(args={"tensor_parallel_size": 8}))["tp-size"] == 8
    assert "given twice" in problems(args={"tensor-parallel-size": 8, "tp-size": 4})[0]


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("model-path", "sglang_model"),
        ("model_path", "sglang_model"),
        ("model", "sglang_model"),
        ("--model-path", "sglang_model"),
        ("served-model-name", "sglang_served_model_name"),
        ("host", "sglang_host"),
        ("port", "sglang_port"),
        ("device", "sglang_lane"),
        ("enable-metrics", "sglang_metrics"),
        ("moe-runner-backend", "sglang_backend"),
        ("moe_runner_backend", "sglang_backend"),
    ],
)
def test_owned_argument_is_refused_with_the_variable_that_decides_it(name: str, variable: str) -> None:
    assert problems(args={name: "x"}) == [f"{name} is decided by {variable}; set that instead"]


def test_dummy_weights_are_asked_for_by_their_variable_only() -> None:
    assert problems(args={"load-format": "dummy"}) == [
        "load-format 'dummy' is decided by sglang_model_random_weights; set that instead"
    ]
    assert "sglang_model_random_weights" in problems(args={"load_format": "safetensors"}, random_weights=True)[0]
    words = launch_plan.argv(request(args={"load-format": "safetensors"}))
    assert words[words.index("--load-format") + 1] == "safetensors"


def test_all_problems_come_at_once() -> None:
    found = problems(args={"port": 1, "no-such-argument": 1, "api-key": "x"}, backend="nonsense")
    assert len(found) == 4
    for word in ("sglang_port", "no-such-argument", "sglang_server_api_key", "nonsense"):
        assert any(word in problem for problem in found), word


def test_unknown_release_is_an_error_of_the_catalog() -> None:
    with pytest.raises(releases.ReleaseError):
        launch_plan.argv(request(sglang_version="0.0.1"))


def test_arguments_are_the_same_list_whatever_the_order_they_are_written_in() -> None:
    one = launch_plan.argv(request(args={"tp-size": 8, "context-length": 4096}))
    two = launch_plan.argv(request(args={"context-length": 4096, "tp-size": 8}))
    assert one == two


@pytest.mark.parametrize("version", releases.known())
@pytest.mark.parametrize("lane", ["cpu", "cuda13"])
def test_every_release_has_the_owned_arguments(version: str, lane: str) -> None:
    release = releases.get(version)
    args = launch_plan.arguments(request(sglang_version=version, lane=lane, random_weights=True, backend="triton"))
    for name in args:
        found = release.flag(name)
        assert found is not None and found.name == name


# --- environment ------------------------------------------------------------------------------------------------------


def env(given: dict[str, Any], **changes: Any) -> dict[str, str]:
    """The environment with the user's variables."""
    return launch_plan.environment(request(env=given, **changes))


def test_server_is_offline_and_writes_below_the_root() -> None:
    found = env({})
    assert found["HF_HUB_OFFLINE"] == "1"
    assert found["SGLANG_CACHE_DIR"] == "/opt/sglang/cache/sglang"
    places = [value for value in found.values() if value.startswith("/")]
    assert len(places) >= 5
    assert all(value == "/opt/sglang/cache" or value.startswith("/opt/sglang/cache/") for value in places)
    assert "SGLANG_USE_CPU_ENGINE" not in found


@pytest.mark.parametrize("lane", ["cuda13", "cpu"])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"SGLANG_LOG_LEVEL": "debug", "NCCL_P2P_LEVEL": 5},
        {"TRITON_CACHE_DIR": "/fast/triton", "HF_HOME": "/opt/sglang/cachet"},
    ],
)
def test_what_the_user_gave_is_found_again_in_the_environment(lane: str, given: dict[str, Any]) -> None:
    made = env(given, lane=lane, sglang_version=NEWEST if lane == "cpu" else "0.5.12.post1")
    assert len(made) >= len(given) + 5
    assert launch_plan.given_environment(made, "/opt/sglang") == {name: str(value) for name, value in given.items()}


def test_places_of_another_root_are_not_ours() -> None:
    assert launch_plan.given_environment(env({}), "/opt/other")["SGLANG_CACHE_DIR"] == "/opt/sglang/cache/sglang"
    assert launch_plan.given_environment({}, "/opt/sglang") == {}


def test_every_pair_of_flashinfer_and_cuda_compiles_in_a_directory_of_its_own() -> None:
    def place(**changes: Any) -> str:
        return env({}, **changes)["FLASHINFER_WORKSPACE_BASE"]

    assert place(flashinfer="0.7.2", cuda="13.0") == "/opt/sglang/cache/jit/flashinfer-0.7.2-cuda13.0"
    assert place(flashinfer="0.7.2+cu130", cuda="13.0") == "/opt/sglang/cache/jit/flashinfer-0.7.2+cu130-cuda13.0"
    pairs = [("0.7.2", "13.0"), ("0.7.2", "12.9"), ("0.6.17", "13.0")]
    assert len({place(flashinfer=flashinfer, cuda=cuda) for flashinfer, cuda in pairs}) == 3
    # Port and arguments do not move it: another release with the same pair finds what was compiled.
    assert place(flashinfer="0.7.2", cuda="13.0", port=1) == place(flashinfer="0.7.2", cuda="13.0")


@pytest.mark.parametrize("known", [{}, {"flashinfer": "0.7.2"}, {"cuda": "13.0"}, {"flashinfer": "", "cuda": "13.0"}])
def test_without_the_pair_the_cache_is_the_place_to_compile_in(known: dict[str, str]) -> None:
    assert env({}, **known)["FLASHINFER_WORKSPACE_BASE"] == "/opt/sglang/cache"


def test_users_own_place_to_compile_in_wins() -> None:
    found = env({"FLASHINFER_WORKSPACE_BASE": "/fast"}, flashinfer="0.7.2", cuda="13.0")
    assert found["FLASHINFER_WORKSPACE_BASE"] == "/fast"


@pytest.mark.parametrize("version", ["../../..", "1/2", ".", "", " ", "a b", "1" * 65])
def test_version_that_is_no_name_of_a_directory_is_refused(version: str) -> None:
    if version:
        with pytest.raises(launch_plan.PlanError, match="cannot name a directory"):
            env({}, flashinfer="0.7.2", cuda=version)
    else:
        assert env({}, flashinfer="0.7.2", cuda=version)["FLASHINFER_WORKSPACE_BASE"] == "/opt/sglang/cache"


def test_longest_version_is_the_name_of_a_directory() -> None:
    assert env({}, flashinfer="1" * 64, cuda="2" * 64)["FLASHINFER_WORKSPACE_BASE"].endswith(f"-cuda{'2' * 64}")


def test_policy_for_tuning_results_is_told_only_when_it_is_not_the_usual_one() -> None:
    assert "TOKFORGE_AUTOTUNE_CACHE" not in env({})
    assert env({}, autotune_cache_policy="keep")["TOKFORGE_AUTOTUNE_CACHE"] == "keep"
    with pytest.raises(launch_plan.PlanError, match="TOKFORGE_AUTOTUNE_CACHE is set by the collection"):
        env({"TOKFORGE_AUTOTUNE_CACHE": "keep"})


def test_cpu_lane_chooses_the_cpu_engine() -> None:
    assert env({}, lane="cpu")["SGLANG_USE_CPU_ENGINE"] == "1"


def test_users_values_become_text_and_places_may_be_moved() -> None:
    found = env(
        {"NCCL_P2P_LEVEL": "SYS", "OMP_NUM_THREADS": 8, "A_SWITCH": True, "B": False, "SGLANG_CACHE_DIR": "/fast"}
    )
    assert (found["NCCL_P2P_LEVEL"], found["OMP_NUM_THREADS"]) == ("SYS", "8")
    assert (found["A_SWITCH"], found["B"]) == ("1", "0")
    assert found["SGLANG_CACHE_DIR"] == "/fast"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("1ST", "x", "is no name of an environment variable"),
        ("A-B", "x", "is no name of an environment variable"),
        ("", "x", "is no name of an environment variable"),
        ("A=B", "x", "is no name of an environment variable"),
        ("HF_TOKEN", "x", "put it into sglang_server_secrets"),
        ("HTTPS_PROXY", "http://me:s3cret@proxy.example:3128", "an address with a password"),
        ("SGLANG_API_KEY", "x", "put it into sglang_server_secrets"),
        ("aws_secret_access_key", "x", "put it into sglang_server_secrets"),
        ("TOKFORGE_RELEASE", "x", "is set by the collection"),
        ("HF_HUB_OFFLINE", "0", "is set by the collection"),
        ("A", "one\ntwo", "holds a line end"),
        ("A", "nul\x00", "holds a line end"),
        ("A", ["x"], "is a list; give a text or a number"),
        ("A", None, "is a NoneType; give a text or a number"),
    ],
)
def test_unusable_variables_are_refused(name: str, value: Any, says: str) -> None:
    with pytest.raises(launch_plan.PlanError) as caught:
        env({name: value, "FINE": "1"})
    assert len(caught.value.facts["problems"]) == 1
    assert says in str(caught.value)


def test_engine_belongs_to_the_lane() -> None:
    with pytest.raises(launch_plan.PlanError, match="SGLANG_USE_CPU_ENGINE is set by the collection"):
        env({"SGLANG_USE_CPU_ENGINE": "0"}, lane="cpu")
    assert env({"SGLANG_USE_CPU_ENGINE": "1"}, lane="cpu")["SGLANG_USE_CPU_ENGINE"] == "1"


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "MAX_TOKENS", "KEYBOARD", "NCCL_P2P_DISABLE"])
def test_names_that_only_look_a_little_like_secrets_pass(name: str) -> None:
    assert env({name: "1"})[name] == "1"


def test_nodes_are_arguments_and_not_the_users_to_give_twice() -> None:
    nodes = {"nnodes": 2, "node-rank": 1, "dist-init-addr": "10.0.0.1:20000"}
    words = launch_plan.argv(request(args={"tp-size": 2}, nodes=nodes))
    assert words[words.index("--dist-init-addr") + 1] == "10.0.0.1:20000"
    assert words[words.index("--node-rank") + 1] == "1"
    assert problems(args={"tp-size": 2, "node_rank": 0}, nodes=nodes) == [
        "node_rank is decided by sglang_nodes_group; leave one of them out"
    ]
    # Without a group of nodes they stay the user's own.
    assert launch_plan.arguments(request(args={"tp-size": 2, **nodes}))["nnodes"] == 2
