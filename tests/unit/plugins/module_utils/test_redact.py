# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Secrets that a text or plain data tells."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import redact

NAMES = re.compile(r"(^|_)(TOKEN|API_?KEY)($|_)")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('TOKEN="abc def"', 'TOKEN="<redacted>"'),
        ("HF_TOKEN='abc' next", "HF_TOKEN='<redacted>' next"),
        ('export S3_SECRET="a\\"b" x', 'export S3_SECRET="<redacted>" x'),
        ("TOKEN=abcd next", "TOKEN=<redacted> next"),
        ('--api-key "abc def" --port 1', '--api-key "<redacted>" --port 1'),
        ("Bearer abcdef", "Bearer <redacted>"),
        ('TOKEN="cut off', 'TOKEN="<redacted>'),
        ("api_key='abc', password: \"x\"", "api_key='<redacted>', password: \"<redacted>\""),
        ("hf_abcdefgh1", "<redacted>"),
    ],
)
def test_told_values_are_hidden_with_and_without_quotes(text: str, shown: str) -> None:
    assert redact.hide_told(text) == shown
    assert redact.hide_told(shown) == shown


@pytest.mark.parametrize("text", ['TOKEN=""', "TOKEN=", "tokens=5000", "max_total_num_tokens=81234, x", "the key is"])
def test_what_tells_nothing_stays(text: str) -> None:
    assert redact.hide_told(text) == text


@pytest.mark.parametrize(
    "value",
    [
        {"api_key": "x"}, {"apiKey": "x"}, {"api-key": ["x"]}, [{"a": {"hf_token": "x"}}], {"api_key": 123},
        "http://u:p@h", {"a": ["http://u:p@h"]}, '{"a": "{\\"token\\": \\"x\\"}"}', "Bearer abcdef", "hf_" + "a" * 34,
    ],
)  # fmt: skip
def test_secret_in_plain_data_is_found(value: Any) -> None:
    assert redact.holds_secret(value, NAMES) is True


@pytest.mark.parametrize(
    "value",
    [
        None, 3, True, "", "token", {"token": ""}, {"token": None}, {"token": True}, {"eos_token": "</s>"},
        {"pad_token_id": 0}, {"tokens": "x"}, "hf_downloads", "[" * 5000, "{broken", {"a": object()},
    ],
)  # fmt: skip
def test_plain_data_without_one_is_none(value: Any) -> None:
    assert redact.holds_secret(value, NAMES) is False


def test_what_a_text_tells_of_itself_counts_only_when_asked_for() -> None:
    assert redact.holds_secret("Bearer abcdef", NAMES, told=False) is False
    assert redact.holds_secret("http://u:p@h", NAMES, told=False) is True
