# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may explain two runs' figures: everything that differs, and nothing that only looks so."""

from __future__ import annotations

from typing import Any

import pytest
from comparison_records import record

from ansible_collections.tokforge.sglang.plugins.module_utils import server_args_diff
from ansible_collections.tokforge.sglang.plugins.module_utils.record_differences import differences


def told(a: dict[str, Any], b: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(entry["what"], entry["name"], entry["a"], entry["b"]) for entry in differences(a, b)]


def run(**more: Any) -> dict[str, Any]:
    return record("r1", {8: [1.0]}, **more)


def test_alike_records_have_none() -> None:
    assert differences(run(), run()) == []


def test_all_that_was_configured_is_told_in_the_order_of_telling() -> None:
    a = run(
        context={
            "args": {"tp-size": 8, "port": 1}, "env": {"A": "1"}, "versions": {"torch": "2.11.0", "same": "1"},
            "autotune_gate": {"enabled_by": "upstream"},
        }
    )  # fmt: skip
    b = run(
        context={
            "sglang_version": "0.5.12", "backend": "triton", "args": {"tp-size": 4, "port": 2},
            "versions": {"torch": "2.13.0", "same": "1"}, "autotune_gate": {"enabled_by": "patch"},
            "model": {"path": "/models/tiny", "served_name": "tiny", "revision": "r2"}, "environment": "e2",
        },
        gpu_count=4, hardware="4x GPU",
    )  # fmt: skip
    assert told(a, b) == [
        ("model", "revision", "r1", "r2"),
        ("hardware", "hardware", "8x GPU (cc 12.0, 95 GiB)", "4x GPU"),
        ("hardware", "gpu_count", 8, 4),
        ("sglang_version", "sglang", "0.5.23", "0.5.12"),
        ("backend", "backend", "auto", "triton"),
        ("gate", "enabled_by", "upstream", "patch"),
        ("args", "tp_size", 8, 4),
        ("env", "A", "1", "(absent)"),
        ("versions", "torch", "2.11.0", "2.13.0"),
        ("environment", "environment", "e1", "e2"),
    ]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ({"tensor-parallel-size": 8}, {"tp_size": 8}),
        ({"nsa-prefill-backend": "trtllm"}, {"dsa-prefill-backend": "trtllm"}),
        ({"disable-cuda-graph": False}, {}),
        ({"tp-size": "8"}, {"tp-size": 8}),
    ],
)
def test_other_names_and_what_is_off_are_no_difference(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert differences(run(context={"args": a}), run(context={"args": b})) == []


def test_secrets_are_not_shown() -> None:
    env = {"HF_TOKEN": "hf_abcdefghijk", "X": "--api-key=verysecret1", "Y": ["hf_abcdefghijk"]}
    a, b = run(context={"env": env}), run()
    shown = str(differences(a, b))
    assert "HF_TOKEN" in shown and "hf_abc" not in shown and "verysecret1" not in shown


def test_start_tells_caches_autotune_and_time() -> None:
    a = run()
    b = run()
    a["start"] = {
        "id": "1",
        "ready_s": 120.0,
        "autotune_outcome": "completed",
        "cache_before": {"/c": "complete"},
        "cold": False,
    }
    b["start"] = {
        "id": "2",
        "ready_s": 150.0,
        "autotune_outcome": "incomplete",
        "cache_before": {"/c": "partial"},
        "cold": True,
    }
    assert told(a, b) == [
        ("cache", "/c", "complete", "partial"),
        ("cache", "cold", False, True),
        ("start", "autotune_outcome", "completed", "incomplete"),
        ("start", "ready_s", 120.0, 150.0),
    ]
    b["start"] = {**a["start"], "id": "2", "ready_s": 130.0}
    assert told(a, b) == []
    a["start"]["cache_before"], b["start"]["cache_before"] = "complete", "cleared"
    assert told(a, b) == [("cache", "cache_before", "complete", "cleared")]


def test_start_that_is_not_on_record_is_no_difference() -> None:
    b = run()
    b["start"] = {"id": "2", "ready_s": 150.0, "autotune_outcome": "incomplete", "cache_before": "partial"}
    assert told(run(start=None), b) == []


def test_power_share_is_the_mean_over_the_gpus() -> None:
    a, b = run(), run()
    a["points"][0]["gpu"] = [{"power_share": 0.4}, {"power_share": 0.5}, {"power_share": None}, None]
    b["points"][0]["gpu"] = [{"power_share": 0.9}]
    assert told(a, b) == [("power", "power_share at concurrency 8", 0.45, 0.9)]
    b["points"][0]["gpu"] = [{"power_share": 0.48}]
    assert told(a, b) == []


def test_true_is_not_one() -> None:
    assert told(run(gpu_count=1), run(gpu_count=True)) == [("hardware", "gpu_count", 1, True)]


def test_parameters_that_differ_are_told() -> None:
    assert told(run(), run(parameters={"seed": 2})) == [("parameters", "seed", 1, 2)]


def test_long_values_are_shortened() -> None:
    [entry] = differences(run(), run(context={"env": {"A": "x" * 5000}}))
    assert len(entry["b"]) == 200 and entry["b"].endswith("...")


@pytest.mark.parametrize("odd", [None, 3, "x", [1], {"args": {"a": object}}])
def test_odd_parts_raise_nothing(odd: Any) -> None:
    other = {"context": odd, "start": odd, "points": odd, "parameters": odd, "engine": odd, "hardware": None}
    assert differences(other, other) == []
    assert isinstance(differences(run(), other), list)
    assert isinstance(differences(run(context={"args": odd, "env": odd, "versions": odd}), run()), list)


def test_arguments_nested_too_deep_are_told_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(left: Any, right: Any) -> Any:
        raise RecursionError

    monkeypatch.setattr(server_args_diff, "diff", too_deep)
    assert told(run(context={"args": {"a": 1}}), run()) == [("args", "args", {"a": 1}, {})]


@pytest.mark.parametrize("name", ["hf-token", "db_password", "AWS_ACCESS_KEY_ID", "DB_PASSWD", "CREDENTIALS"])
def test_what_is_called_a_secret_is_hidden_among_arguments_and_variables(name: str) -> None:
    for where in ("args", "env"):
        [entry] = differences(run(context={where: {name: "plain-words"}}), run())
        assert (entry["what"], entry["a"], entry["b"]) == (where, "<redacted>", "(absent)")
    [entry] = differences(run(context={"args": {"max-total-tokens": 5}}), run())
    assert entry["a"] == 5


@pytest.mark.parametrize(
    "name",
    ["GITHUB_PAT", "MY_AUTH", "PROXY_AUTHORIZATION", "githubPat", "SECRET_NAME", "HF_TOKEN_2", "DB_PWD", "API_KEY_OLD"],
)
def test_other_names_of_secrets_are_known(name: str) -> None:
    for where in ("args", "env"):
        [entry] = differences(run(context={where: {name: "plain-words"}}), run())
        assert (entry["a"], entry["b"]) == ("<redacted>", "(absent)")


@pytest.mark.parametrize(
    "name", ["PATH", "LD_LIBRARY_PATH", "AUTHOR", "TOKENIZERS_PARALLELISM", "PWD", "speculative-token-map", "COMPASS"]
)
def test_names_that_only_look_so_are_shown(name: str) -> None:
    [entry] = differences(run(context={"env": {name: "plain-words"}}), run())
    assert entry["a"] == "plain-words"


@pytest.mark.parametrize(
    "value",
    [
        "http://u:pw-word@h", "x http://u:pw-word@h/path y", ["http://u:pw-word@h"], {"a": {"b": "http://u:pw-word@h"}},
        {"inner": {"client_secret": "pw-word"}}, '{"hfToken": "pw-word"}', 'TOKEN="pw-word"', "S3_SECRET='pw-word x'",
    ],
)  # fmt: skip
def test_secrets_within_values_are_not_shown(value: Any) -> None:
    for where in ("args", "env", "model"):
        shown = str(differences(run(context={where: {"A": value}}), run()))
        assert "<redacted>" in shown and "pw-word" not in shown


def test_address_with_a_user_alone_is_shown() -> None:
    [entry] = differences(run(context={"env": {"A": "http://user@h"}}), run(context={"env": {"A": None}}))
    assert (entry["a"], entry["b"]) == ("http://user@h", "(absent)")


def test_release_of_an_engine_of_its_own_is_told_once() -> None:
    old, new = ({"name": "aiperf", "version": version} for version in ("0.13.0", "0.14.0"))
    assert told(run(engine=old), run(engine=new)) == [("engine", "version", "0.13.0", "0.14.0")]
    ours = {"name": "sglang.bench_serving", "version": "0.5.12.post1"}
    assert told(run(engine=ours), run()) == []
