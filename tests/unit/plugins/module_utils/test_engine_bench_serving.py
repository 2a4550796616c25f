# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of bench_serving, and what is left of its output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError, Parameters, Target
from ansible_collections.tokforge.sglang.plugins.module_utils.engine_bench_serving import (
    figures,
    output_path,
    redact,
    render_arguments,
)

RECORDINGS = Path(__file__).parent / "fixtures" / "bench_serving"


def recording(release: str) -> dict[str, Any]:
    return figures((RECORDINGS / f"{release}.jsonl").read_bytes(), release)


# --- command line (G1, G4)


def options(arguments: list[str]) -> dict[str, str | bool]:
    """--name value pairs; a name without a value is True."""
    pairs: dict[str, str | bool] = {}
    for word, following in zip(arguments, [*arguments[1:], "--"]):
        if word.startswith("--"):
            pairs[word] = True if following.startswith("--") else following
    return pairs


def test_command_line_asks_for_exact_lengths_of_random_ids() -> None:
    asked = Parameters(concurrency=(8,), input_len=64, output_len=32, seed=7)
    target = Target("127.0.0.1", 31100, "/models/tiny", "tiny-moe")
    assert options(render_arguments(asked, target, 8, 0, "/run/c8")) == {
        "--backend": "sglang",
        "--base-url": "http://127.0.0.1:31100",
        "--model": "/models/tiny",
        "--tokenizer": "/models/tiny",
        "--served-model-name": "tiny-moe",
        "--dataset-name": "random-ids",
        "--random-range-ratio": "1.0",
        "--tokenize-prompt": True,
        "--random-input-len": "64",
        "--random-output-len": "32",
        "--num-prompts": "32",
        "--max-concurrency": "8",
        "--warmup-requests": "8",
        "--seed": "7",
        "--flush-cache": True,
        "--disable-tqdm": True,
        "--output-details": True,
        "--output-file": output_path("/run/c8"),
    }


def test_command_line_follows_the_choices_of_the_user() -> None:
    asked = Parameters(concurrency=(1,), input_len=64, output_len=32, flush_cache=False, ignore_eos=False)
    rendered = options(render_arguments(asked, Target("h", 1, "/t", "m"), 1, 0, "f"))
    assert "--flush-cache" not in rendered
    assert rendered["--disable-ignore-eos"] is True


def test_only_the_first_repetition_warms_up_and_each_has_its_own_prompts() -> None:
    asked = Parameters(concurrency=(8,), input_len=64, output_len=32, seed=7)
    rendered = [options(render_arguments(asked, Target("h", 1, "/t", "m"), 8, number, "/r")) for number in range(3)]
    assert [one["--warmup-requests"] for one in rendered] == ["8", "0", "0"]
    assert [one["--seed"] for one in rendered] == ["7", "8", "9"]


# --- raw output (G3)


def test_last_line_of_the_file_counts() -> None:
    assert figures(b'{"a": 1}\n{"a": 2}\n\n{"a": 3}\n', "f") == {"a": 3}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b'{"a": 1}\n{"a": ', "half-written"),
        (b'{"a": 1}', "half-written"),
        (b'{"a": 1}\n{"a": \n', "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[1]\n", "list"),
        (b"[" * 100_000 + b"\n", "not JSON"),
    ],
)
def test_output_that_is_not_a_whole_result_is_refused_and_no_earlier_line_taken(data: bytes, why: str) -> None:
    with pytest.raises(BenchmarkError, match=f"out.jsonl.*{why}"):
        figures(data, "out.jsonl")


def test_key_of_the_server_does_not_stay_in_the_raw_output() -> None:
    raw = recording("0.5.12.post1")
    assert raw["server_info"]["api_key"] == "a-key-of-the-recording"
    clean = redact(raw)
    assert b"a-key-of-the-recording" not in clean
    assert figures(clean, "f") == {**raw, "server_info": {**raw["server_info"], "api_key": "********"}}


@pytest.mark.parametrize("name", ["admin_api_key", "ssl_keyfile_password", "hf_token"])
def test_settings_that_name_a_secret_are_redacted(name: str) -> None:
    info = {name: "hidden", "tokenizer_path": "seen", "max_total_tokens": 1, "tokenizer": "seen"}
    assert json.loads(redact({"server_info": info}))["server_info"] == {**info, name: "********"}
