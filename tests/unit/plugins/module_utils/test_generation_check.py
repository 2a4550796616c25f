# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the text of a server is usable, and when a 200 hides a broken one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import generation_check
from ansible_collections.tokforge.sglang.plugins.module_utils.generation_check import (
    Generation,
    Sample,
    cyclic,
    judge,
    longest_cycle,
)


def body(text: str = "Paris it is.", tokens: int = 8, ids: Any = "different", logprobs: Any = None) -> bytes:
    answer: dict[str, Any] = {"text": text, "meta_info": {"completion_tokens": tokens}}
    if ids is not None:
        answer["output_ids"] = list(range(tokens)) if ids == "different" else ids
    if logprobs is not None:
        answer["meta_info"]["output_token_logprobs"] = [[value, 1, None] for value in logprobs]
    return json.dumps(answer).encode()


def verdict(content: bytes, random: bool = False, asked: int = 8, logprobs: bool = False) -> str:
    """The verdict when every request gets this answer."""
    found = judge([content], asked, random, logprobs) or judge([content, content], asked, random, logprobs)
    assert found is not None
    return found.verdict


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (body(), "ok"),
        (body("the Nanjing road"), "ok"),
        (body("\u5df4\u9ece\u3002\u6cd5\u56fd\u7684\u9996\u90fd"), "ok"),
        (body("Paris, 1. 2. 3."), "ok"),
        (body("!!!!!!!!"), "degenerate"),
        (body("! ! ! !", ids=[5] * 8), "degenerate"),
        (body("is is is is is is is is", ids=[5] * 8), "degenerate"),
        (body("Paris!!!!!!!", ids=[9, *[0] * 7]), "degenerate"),  # prefill right, decode broken
        (body("Paris is!!!!!!", ids=[9, 8, *[0] * 6]), "degenerate"),
        (body("Paris is so....", ids=[9, 8, 7, *[0] * 5]), "ok"),
        (body("aaaaaaab", ids=None), "degenerate"),
        (body("abababab", ids=None), "ok"),
        (body("?!?!,.;:"), "degenerate"),
        (body("1 2 3 4 5 6"), "degenerate"),
        (body("\ufffd\ufffe\ufffd!"), "degenerate"),
        (body(""), "degenerate"),
        (body("  \n"), "degenerate"),
        (body("NaN"), "degenerate"),
        (body(tokens=7), "wrong_count"),
        (body(tokens=9), "wrong_count"),
        (b"not json", "malformed"),
        (b"[]", "malformed"),
        (b'{"text": "a"}', "malformed"),
        (b'{"text": "a", "meta_info": null}', "malformed"),
        (b"[" * 100_000, "malformed"),
        (b'{"text": "a", "meta_info": {"completion_tokens": Infinity}}', "malformed"),
    ],
)
def test_text_of_real_weights(content: bytes, expected: str) -> None:
    assert verdict(content) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (body("!!!!!!!!", ids=[0] * 8), "mechanics_only"),
        (body(""), "mechanics_only"),
        (body(tokens=0), "wrong_count"),
        (b'{"text": "a"}', "malformed"),
    ],
)
def test_of_random_weights_only_the_mechanics_are_judged_by_one_request(content: bytes, expected: str) -> None:
    found = judge([content], 8, random_weights=True)
    assert found and found.verdict == expected
    assert found.usable == (expected == "mechanics_only")


def test_one_token_is_not_called_a_repetition() -> None:
    assert verdict(body("!", tokens=1), asked=1) == "ok"


PARIS, LYON, ROME = (
    body("Paris", ids=[1] * 4 + [2] * 4),
    body("Lyon", ids=[3] * 4 + [2] * 4),
    body("Rome", ids=[4, 5] * 4),
)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([PARIS], None),
        ([PARIS, PARIS], "ok"),
        ([PARIS, LYON], None),
        ([PARIS, LYON, LYON], "ok"),  # the first one had no prefix cache
        ([PARIS, LYON, PARIS], "unstable"),
        ([PARIS, LYON, ROME], "unstable"),
        ([PARIS, body("!!!!!!!!")], "degenerate"),
        ([PARIS, body(tokens=3)], "wrong_count"),
        # The same text from other tokens is another answer; without tokens the text has to do.
        ([body("Paris", ids=[1, 2] * 4), body("Paris", ids=[2, 1] * 4)], None),
        ([body("Paris", ids=None), body("Paris", ids=None)], "ok"),
        ([body("Paris", ids=None), body("Lyon", ids=None)], None),
    ],
)
def test_identical_greedy_requests_must_agree(answers: list[bytes], expected: str | None) -> None:
    found = judge(answers, 8, random_weights=False)
    assert (found.verdict if found else None) == expected


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize(
    ("logprobs", "bad"),
    [
        ([-0.1] * 8, None),
        ([-0.1, float("nan")] * 4, "degenerate"),
        ([-0.1, None] * 4, "degenerate"),  # what orjson makes of NaN
        ([float("-inf"), *[-0.1] * 7], "degenerate"),
        (["-0.1"] * 8, "degenerate"),
        ([-(10**400), *[-0.1] * 7], "degenerate"),  # an integer that no float can hold
        (None, "malformed"),
    ],
)
def test_log_probabilities_must_be_numbers_when_asked_for(logprobs: Any, bad: str | None, random: bool) -> None:
    content = body(logprobs=logprobs)
    good = "mechanics_only" if random else "ok"
    assert verdict(content, random, logprobs=True) == (bad or good)
    assert verdict(content, random, logprobs=False) == good


def test_verdict_shows_what_came() -> None:
    found = judge([body("x" * 200 + "!", tokens=9)], 8, False)
    assert found == Generation(9, "x" * 80, "wrong_count", "8 tokens were asked for and 9 came")


@pytest.mark.parametrize(
    ("generation", "check"),
    [
        (None, None),
        (Generation(8, "a", "degenerate", "why"), {"passed": False, "reason": "why"}),
        (Generation(8, "a", "unstable", "why"), {"passed": False, "reason": "why"}),
        (
            Generation(8, "a", "ok"),
            {"passed": True, "reason": "two identical greedy requests agree, and their text is not degenerate"},
        ),
        (
            judge([body()], 8, True),
            {"passed": True, "reason": "random weights: the text means nothing, only the mechanics were judged"},
        ),
    ],
)
def test_verdict_for_the_benchmark(generation: Generation | None, check: dict[str, Any] | None) -> None:
    assert generation_check.output_check(generation) == check


# --- short cycles, for answers longer than readiness asks for

PROSE = "the Eiffel Tower, which was built for the world fair and is seen from everywhere in the city."
DIFFERENT = tuple(str(number) for number in range(32))


@pytest.mark.parametrize(
    ("items", "most", "expected"),
    [
        ("ab" * 6, 4, (2, 1.0)),
        ("ab" * 5 + "a", 4, (0, 0.0)),  # too short to be judged
        ("abc" * 4, 4, (3, 1.0)),
        ("abcd" * 4, 4, (4, 1.0)),
        ("abcd" * 3, 4, (0, 0.0)),  # three times is no cycle
        ("abcde" * 10, 4, (0, 0.0)),
        ("abcde" * 10, 5, (5, 1.0)),
        ("a" * 12, 4, (1, 1.0)),  # the shortest period names it
        ("xyz!" + "ab" * 6, 4, (2, 0.75)),
        ("ab" * 6 + "xyz!", 4, (2, 0.75)),
        ("ab" * 6 + "x" + "ab" * 7, 4, (2, 14 / 27)),  # the longest stretch, not all together
        ("", 4, (0, 0.0)),
    ],
)
def test_longest_cycle(items: str, most: int, expected: tuple[int, float]) -> None:
    assert longest_cycle(items, most) == expected
    assert longest_cycle(tuple(items), most) == expected


@pytest.mark.parametrize(
    ("text", "ids", "why"),
    [
        (PROSE, DIFFERENT, ""),
        (PROSE, (), ""),
        ("Paris", (), ""),
        ("ha ha ha", (), ""),
        ("", (), ""),
        ("\u5df4\u9ece\u662f\u6cd5\u56fd\u7684\u9996\u90fd\uff0c\u4e5f\u662f\u6700\u5927\u7684\u57ce\u5e02", (), ""),
        # A small model that loops in whole sentences is usable as far as kernels go.
        ("Paris is the capital of France. " * 4, ("1", "2", "3", "4", "5", "6", "7", "8") * 4, ""),
        ("ab" * 16, DIFFERENT, "the same 2 characters over and over"),
        ("ab " * 16, (), "the same 2 characters over and over"),
        ("aaaaaaaaaaaaaaab", DIFFERENT, "the same 1 character over and over"),
        ("of the " * 16, (), "the same 5 characters over and over"),
        ("of the " * 16, ("5", "6") * 16, "the same 2 tokens over and over"),
        ("Paris is the city of" + "!" * 40, DIFFERENT[:14] + ("0",) * 18, "the same 1 token over and over"),
        # Only one of both repeats: a rule of dashes is one token, and the end of a text is shown as nothing.
        ("Paris" + "-" * 12, DIFFERENT, ""),
        (PROSE, DIFFERENT[:14] + ("0",) * 18, ""),
    ],
)
def test_short_cycles(text: str, ids: tuple[str, ...], why: str) -> None:
    assert cyclic(Sample(len(ids), text, ids)) == why
