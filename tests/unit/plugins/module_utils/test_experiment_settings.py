# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of experiments: no secrets in them, every difference counted, and nothing that is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import ab_sides, candidates
from ansible_collections.tokforge.sglang.plugins.module_utils import experiment_settings as settings_of
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import ExperimentError

VERSION = "0.5.23"
SECRET = "hush-hush-1"


def base(**given: Any) -> dict[str, Any]:
    return settings_of.base({"sglang_version": VERSION, **given})


def labels(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return [change.label for change in settings_of.differences(a, b)]


# --- secrets


@pytest.mark.parametrize(
    "env",
    [
        {"HF_TOKEN": SECRET},
        {"hf_token": SECRET},
        {"OPENAI_API_KEY": 12345678},
        {"AWS_SECRET_ACCESS_KEY": SECRET},
        {"DB_PASSWORD": SECRET},
        {"HTTPS_PROXY": f"http://user:{SECRET}@proxy:8080"},
        {"EXTRA": f"--api-key={SECRET}"},
        {"EXTRA": json.dumps({"a": [{"apiKey": SECRET}]})},
        {"EXTRA": f"Authorization: Bearer {SECRET}"},
        {"HUB": "hf_" + "a" * 34},
    ],
)
def test_secret_in_a_variable_is_refused_without_its_value(env: dict[str, Any]) -> None:
    with pytest.raises(ExperimentError) as error:
        settings_of.merge(base(), {"env": env}, "candidate 1")
    said = str(error.value)
    assert said.startswith("reading the settings of candidate 1: ") and next(iter(env)) in said
    assert "sglang_server_secrets" in said
    assert not any(str(value) in said for value in env.values()) and SECRET not in said


@pytest.mark.parametrize(
    "args",
    [
        {"chat-template": f"https://user:{SECRET}@host/t.jinja"},
        {"json-model-override-args": {"a": {"url": f"s3://key:{SECRET}@bucket"}}},
        {"json-model-override-args": json.dumps({"a": [f"s3://key:{SECRET}@bucket"]})},
        {"json-model-override-args": {f"http://u:{SECRET}@h": 1}},
        {"json-model-override-args": {"api_key": SECRET}},
        {"json-model-override-args": {"deep": [{"client-secret": SECRET}]}},
        {"json-model-override-args": json.dumps({"apiKey": SECRET})},
        {"json-model-override-args": json.dumps({"inner": json.dumps({"auth_token": SECRET})})},
        {"json-model-override-args": {"password": 7357555}},
        {"model-loader-extra-config": ["x", {"private_key": SECRET}]},
        {"chat-template": f"{{'api_key': '{SECRET}'}}"},
        {"hub-token": SECRET},
    ],
)
def test_secret_in_an_argument_is_refused_without_its_value(args: dict[str, Any]) -> None:
    with pytest.raises(ExperimentError) as error:
        settings_of.merge(base(), {"args": args}, "side B")
    assert str(error.value).startswith("reading the settings of side B: ") and "secret" in str(error.value)
    assert SECRET not in str(error.value) and "7357555" not in str(error.value)


@pytest.mark.parametrize(
    "over",
    [
        {"args": {"speculative-token-map": "thunlp/map", "bucket-time-to-first-token": [0.1, 0.2]}},
        {"args": {"json-model-override-args": {"eos_token": "</s>", "pad_token": "[PAD]", "pad_token_id": 0}}},
        {"args": {"chat-template": "/models/hf_downloads/chat.jinja", "log-level": "info"}},
        {"args": {"json-model-override-args": '{"a":"http://h","b":"x:y@z"}', "limit-mm-data-per-request": "{broken"}},
        {"args": {"json-model-override-args": "[" * 1500}},
        {"env": {"TOKENIZERS_PARALLELISM": "false", "NCCL_DEBUG": "INFO", "PROXY": "http://user@proxy:8080"}},
        # Nothing is there to be told.
        {"env": {"HF_TOKEN": None}, "args": {"hub-token": None}},
    ],
)
def test_what_only_looks_like_a_secret_is_taken(over: dict[str, Any]) -> None:
    found = settings_of.merge(base(), over)
    assert found["args"] == {name: value for name, value in over.get("args", {}).items() if value is not None}
    assert settings_of.key(found)


def test_sides_and_candidates_are_refused_before_anything_is_written() -> None:
    for values in (["a-secret-1", "a-secret-2"], ["a-secret-1"]):
        with pytest.raises(ExperimentError, match="OPENAI_API_KEY looks like a secret") as error:
            ab_sides.sides(base(), "env.OPENAI_API_KEY", values)
        assert "a-secret" not in str(error.value)
    with pytest.raises(ExperimentError, match="HF_TOKEN looks like a secret") as error:
        candidates.expand(base(), {"env": {"HF_TOKEN": ["hf_SECRET"]}})
    assert "hf_SECRET" not in str(error.value)
    with pytest.raises(ExperimentError, match="record r: HF_TOKEN"):
        settings_of.of_record({"id": "r", "context": {"env": {"HF_TOKEN": SECRET}}})


def test_value_that_is_nested_too_deep_is_refused() -> None:
    value: Any = 1
    for _level in range(20):
        value = {"a": [value]}
    with pytest.raises(ExperimentError, match="nested more than 20 deep"):
        base(args={"json-model-override-args": value})


# --- the backend that the gate is opened for


def test_backend_of_the_gate_alone_is_a_difference_with_a_name() -> None:
    before = base(backend="triton", autotune_gate="open")
    after = settings_of.merge(before, {"autotune_backend": "flashinfer_cutlass"})
    assert labels(before, after) == ["gate-backend=flashinfer_cutlass"]
    assert labels(after, before) == ["gate-backend=triton"]
    assert [one.name for one in candidates.expand(before, None, [{"autotune_backend": "flashinfer_cutlass"}])] == [
        "original",
        "gate-backend=flashinfer_cutlass",
    ]
    for a, b in ((before, after), (after, before)):
        changes = settings_of.differences(a, b)
        assert settings_of.apply(a, changes) == b
        assert changes[0].data()["a"] != changes[0].data()["b"]


def test_naming_the_backend_that_is_chosen_anyway_is_no_difference() -> None:
    before = base(backend="triton", autotune_gate="open")
    assert settings_of.merge(before, {"autotune_backend": "triton"}) == before
    closed = base(backend="triton")
    assert settings_of.merge(closed, {"autotune_backend": "flashinfer_cutlass"}) == closed


def test_gate_that_is_opened_for_another_backend_is_one_difference_that_says_so() -> None:
    closed = base(backend="triton")
    opened = base(backend="triton", autotune_gate="open", autotune_backend="flashinfer_cutlass")
    assert labels(closed, opened) == ["gate=open:flashinfer_cutlass"]
    assert labels(closed, base(backend="triton", autotune_gate="open")) == ["gate=open"]
    assert labels(opened, closed) == ["gate=closed"]


SIDES = [
    base(backend=backend, autotune_gate=gate, **({"autotune_backend": named} if named else {}))
    for backend in ("auto", "triton", "flashinfer_cutlass")
    for gate in ("open", "closed")
    for named in (None, "triton", "flashinfer_cutlass", "flashinfer_trtllm")
]


def test_differences_lead_from_any_backend_and_gate_to_any_other() -> None:
    for a in SIDES:
        for b in SIDES:
            changes = settings_of.differences(a, b)
            assert settings_of.apply(a, changes) == b
            assert bool(changes) == (a != b)
            assert bool(settings_of.name_of(changes)) == (settings_of.key(a) != settings_of.key(b))


# --- values that are the same


@pytest.mark.parametrize(
    ("flag", "one", "other"),
    [
        ("max-running-requests", 1, 1.0),
        ("mem-fraction-static", "0.8", "0.80"),
        ("mem-fraction-static", 0.8, ".80e0"),
        ("mem-fraction-static", "-0", 0),
        ("mem-fraction-static", 1e-05, "0.00001"),
        ("of-no-release", "+64", 64),
        ("cuda-graph-bs-decode", [1, 2], ["1", "2.0"]),
        ("cuda-graph-bs-decode", [8], 8),
        ("preferred-sampling-params", {"top_p": 1.0, "n": 1}, '{"n": 1, "top_p": 1}'),
        ("preferred-sampling-params", "[broken", "[broken"),
        ("chat-template", "x", ["x"]),
        ("chat-template", "8", 8),
    ],
)
def test_same_value_in_another_spelling_is_no_second_side(flag: str, one: Any, other: Any) -> None:
    assert labels(base(args={flag: one}), base(args={flag: other})) == []
    assert settings_of.key(base(args={flag: one})) == settings_of.key(base(args={flag: other}))
    with pytest.raises(ExperimentError, match=r"both sides have the same|has no launch argument"):
        ab_sides.sides(base(), flag, [one, other])


@pytest.mark.parametrize(
    ("flag", "one", "other"),
    [
        ("max-running-requests", True, 1),
        ("max-running-requests", "True", 1),
        ("max-running-requests", True, "True"),
        ("max-running-requests", 10**40, 10**40 + 1),
        ("mem-fraction-static", "0.8", "0.81"),
        # The names of revisions, not numbers.
        ("revision", "1.10", "1.1"),
        ("cuda-graph-bs-decode", [1, 2], [2, 1]),
        ("cuda-graph-bs-decode", [12], [1, 2]),
        ("preferred-sampling-params", {"n": True}, {"n": 1}),
        ("preferred-sampling-params", {"n": "1"}, {"n": 1}),
    ],
)
def test_another_value_is_another_side(flag: str, one: Any, other: Any) -> None:
    assert len(labels(base(args={flag: one}), base(args={flag: other}))) == 1
    assert settings_of.key(base(args={flag: one})) != settings_of.key(base(args={flag: other}))


def test_variables_are_texts_that_a_program_reads_as_it_likes() -> None:
    assert labels(base(env={"A": 1}), base(env={"A": True})) == []
    assert labels(base(env={"A": 1}), base(env={"A": "1"})) == []
    # 1 is on for SGLang, 1.0 is not.
    assert labels(base(env={"A": 1}), base(env={"A": 1.0})) == ["env.A=1.0"]
