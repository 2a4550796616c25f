# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What answers are worth, alone and together, and how it is told."""

from __future__ import annotations

import json
import resource
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import output_check
from ansible_collections.tokforge.sglang.plugins.module_utils.generation_check import Sample
from ansible_collections.tokforge.sglang.plugins.module_utils.output_check import (
    PROMPTS,
    Judged,
    Measured,
    Outcome,
    Settings,
    conclude,
    judge_answer,
    measure,
    most_at_once,
)

TEXT = "the Eiffel Tower, which was built for the world fair and is seen from everywhere."
IDS = tuple(range(100, 132))
SETTINGS = Settings()
KEY = "sk-very/hidden&key"


def body(
    text: Any = TEXT, tokens: Any = 32, ids: Any = IDS, logprobs: Any = None, cached: Any = None, **more: Any
) -> bytes:
    meta: dict[str, Any] = {"completion_tokens": tokens, "cached_tokens": cached}
    if logprobs is not None:
        meta["output_token_logprobs"] = [[value, 1, None] for value in logprobs]
    return json.dumps({"text": text, "output_ids": ids, "meta_info": meta, **more}).encode()


def outcome(content: bytes = b"", prompt: int = 0, status: int = 200, **more: Any) -> Outcome:
    return Outcome(prompt, status, content or body(), **more)


def judged(text: str = TEXT, ids: Sequence[int] = IDS, prompt: int = 0, **more: Any) -> Judged:
    return judge_answer(outcome(body(text, ids=ids, **more), prompt), SETTINGS)


# --- one answer


@pytest.mark.parametrize(
    ("content", "verdict", "words"),
    [
        (body(), "ok", ""),
        (body(ids=None), "ok", ""),
        (body(ids=[]), "ok", ""),
        (body(extra={"a": [1]}), "ok", ""),
        (body("Paris."), "ok", ""),
        (body("Banana, Nancy"), "ok", ""),
        (body(tokens=31), "wrong_count", "32 tokens were asked for and 31 came"),
        (body(tokens=33), "wrong_count", "32 tokens were asked for and 33 came"),
        (body(tokens=0), "wrong_count", "and 0 came"),
        (body(ids=IDS[:-1]), "wrong_count", "it counts 32 tokens and gives 31"),
        (body(""), "empty", "the text is empty"),
        (body(" \n\t"), "empty", "the text is empty"),
        (body("NaN"), "not_a_number", "the text is NaN"),
        (body("nan, nan nan.NaN"), "not_a_number", "the text is NaN"),
        (body("!" * 32), "degenerate", "one character repeated ('!')"),
        (body(ids=[5] * 32), "degenerate", "one token repeated 32 times"),
        (body("?!,.;:" * 6), "degenerate", "the text has no letter, only punctuation"),
        (body("12 7 19 20 33 48"), "degenerate", "only digits"),
        (body("ab" * 16), "degenerate", "the same 2 characters over and over"),
        (body(ids=[5, 6] * 16), "degenerate", "the same 2 tokens over and over"),
        (b"", "malformed", "not JSON"),
        (b"not json", "malformed", "not JSON of /generate (JSONDecodeError)"),
        (b"\xff\xfe\x00", "malformed", "not JSON"),
        (b"[" * 60000, "malformed", "(RecursionError)"),
        (b"[]", "malformed", "a list instead of an object"),
        (b'"text"', "malformed", "a str instead of an object"),
        (b"null", "malformed", "a NoneType instead of an object"),
        (b"NaN", "malformed", "a float instead of an object"),
        (b"{}", "malformed", "it has no text"),
        (b'{"error": {"message": "x"}}', "malformed", "it has no text"),
        (body(None), "malformed", "it has no text"),
        (body(5), "malformed", "it has no text"),
        (body(["a"]), "malformed", "it has no text"),
        (b'{"text": "a"}', "malformed", "it does not count its tokens"),
        (b'{"text": "a", "meta_info": []}', "malformed", "it does not count its tokens"),
        (body(tokens=None), "malformed", "it does not count its tokens"),
        (body(tokens="32"), "malformed", "it does not count its tokens"),
        (body(tokens=True), "malformed", "it does not count its tokens"),
        (body(tokens=32.0), "malformed", "it does not count its tokens"),
        (body(tokens=-32), "malformed", "it does not count its tokens"),
        (body(tokens=float("inf")), "malformed", "it does not count its tokens"),
        (body(tokens=10**300), "malformed", "it does not count its tokens"),
        (body(ids={"a": 1}), "malformed", "output_ids is no list"),
        (body(ids="abc"), "malformed", "output_ids is no list"),
        (body(ids=[2**31 - 1, *IDS[1:]]), "ok", ""),
        (body(ids=[2**31, *IDS[1:]]), "malformed", "output_ids holds something that is no token"),
        (body(ids=[10**400, *IDS[1:]]), "malformed", "output_ids holds something that is no token"),
        (body(ids=[-1, *IDS[1:]]), "malformed", "output_ids holds something that is no token"),
        (body(ids=[None, *IDS[1:]]), "malformed", "output_ids holds something that is no token"),
        (body(ids=[[1], *IDS[1:]]), "malformed", "output_ids holds something that is no token"),
        (body(ids=[1.5, *IDS[1:]]), "malformed", "output_ids holds something that is no token"),
        (
            b'{"text": "a", "meta_info": {"completion_tokens": 32, "output_token_logprobs": 7}}',
            "malformed",
            "TypeError",
        ),
        (b'{"text": "a", "meta_info": {"completion_tokens": 32, "output_token_logprobs": [[]]}}', "malformed", "Index"),
    ],
)
def test_answer_of_real_weights(content: bytes, verdict: str, words: str) -> None:
    found = judge_answer(Outcome(0, 200, content), SETTINGS)
    assert (found.verdict, found.usable) == (verdict, verdict == "ok")
    assert words in found.why and bool(found.why) == (verdict != "ok")


@pytest.mark.parametrize(
    ("content", "verdict"),
    [
        (body(), "mechanics_only"),
        (body(""), "mechanics_only"),
        (body("NaN"), "mechanics_only"),
        (body("!" * 32, ids=[0] * 32), "mechanics_only"),
        (body(tokens=31), "wrong_count"),
        (body(ids=[2**40] * 32), "malformed"),
        (body(None), "malformed"),
        (b"[]", "malformed"),
    ],
)
def test_of_random_weights_only_the_mechanics_are_judged(content: bytes, verdict: str) -> None:
    found = judge_answer(Outcome(0, 200, content), replace(SETTINGS, random_weights=True))
    assert (found.verdict, found.usable) == (verdict, verdict == "mechanics_only")


@pytest.mark.parametrize("random", [False, True])
@pytest.mark.parametrize(
    ("logprobs", "bad"),
    [
        ([-0.1] * 32, None),
        ([-0.1] * 33, None),
        ([0] * 32, None),
        ([-0.1] * 31 + [float("nan")], "not_a_number"),
        ([-0.1] * 31 + [None], "not_a_number"),  # what orjson makes of NaN
        ([float("-inf")] + [-0.1] * 31, "not_a_number"),
        ([10**400] + [-0.1] * 31, "not_a_number"),
        (["-0.1"] * 32, "not_a_number"),
        ([False] * 32, "not_a_number"),
        ([-0.1] * 31, "malformed"),
        ([], "malformed"),
        (None, "malformed"),
    ],
)
def test_log_probabilities_are_judged_when_asked_for(logprobs: Any, bad: str | None, random: bool) -> None:
    content = body(logprobs=logprobs)
    good = "mechanics_only" if random else "ok"
    asked = replace(SETTINGS, random_weights=random, logprobs=True)
    assert judge_answer(outcome(content), asked).verdict == (bad or good)
    assert judge_answer(outcome(content), replace(asked, logprobs=False)).verdict == good


@pytest.mark.parametrize(
    ("came", "verdict", "words"),
    [
        (Outcome(0, 500, b"boom"), "http_error", "/generate says 500"),
        (Outcome(0, 500, body()), "http_error", "/generate says 500"),
        (Outcome(0, 204, body()), "http_error", "/generate says 204"),
        (Outcome(0, 401, b""), "http_error", "says 401, it refuses the API key that state/secrets.env holds"),
        (Outcome(0, 0, body(), "the connection was closed"), "http_error", "the connection was closed"),
        (Outcome(0, 0, body(), "no answer", late=True), "timeout", "no answer, the whole check has 120 s"),
    ],
)
def test_what_is_no_answer(came: Outcome, verdict: str, words: str) -> None:
    found = judge_answer(came, SETTINGS)
    assert (found.verdict, found.usable) == (verdict, False)
    assert words in found.why


@pytest.mark.parametrize("tokens", [1, 32])
def test_answer_longer_than_its_tokens_can_be_is_not_read(tokens: int) -> None:
    asked = replace(SETTINGS, tokens=tokens)
    assert asked.answer_bytes == 64 * 1024 + 1024 * tokens
    frame = len(body("", tokens, ids=None))
    for more, verdict in ((0, "ok"), (1, "malformed")):
        words = ("word other " * 10000)[: asked.answer_bytes - frame + more]
        found = judge_answer(outcome(body(words, tokens, ids=None)), asked)
        assert found.verdict == verdict
    assert found.why.startswith(f"the answer is longer than {asked.answer_bytes} bytes")


@pytest.mark.parametrize(
    ("cached", "expected"), [(0, 0), (64, 64), (None, None), ("64", None), (-1, None), (True, None), (2**63, None)]
)
def test_tokens_from_the_prefix_cache_are_read_where_the_server_tells_them(cached: Any, expected: int | None) -> None:
    found = judged(cached=cached)
    assert (found.verdict, found.cached) == ("ok", expected)


def test_one_token_is_not_called_a_repetition() -> None:
    assert judge_answer(outcome(body("!", 1, [5])), replace(SETTINGS, tokens=1)).usable


# --- agreement


def sample(first: int, ids: bool = True) -> Sample:
    return Sample(32, f"text {first}", tuple(str(first + number) for number in range(32)) if ids else ())


def answers(firsts: Sequence[int], ids: bool = True, prompt: int = 0) -> list[Judged]:
    return [Judged(Outcome(prompt, 200), "ok", "", f"text {first}", sample(first, ids)) for first in firsts]


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize(
    ("firsts", "alone", "agreement"),
    [
        ([1, 1, 1, 1], None, 1.0),
        ([1, 1, 1, 2], None, 0.75),
        ([2, 1, 1, 1], None, 0.75),  # the majority, not the first one
        ([1, 2, 3, 4], None, 0.25),
        ([5], None, 1.0),
        ([1, 1, 1, 2], 1, 0.75),
        ([1, 1, 1, 2], 2, 0.25),
        ([1, 1, 1, 1], 2, 0.0),  # a kernel that is always wrong under load agrees with itself
    ],
)
def test_agreement_of_identical_requests(firsts: list[int], alone: int | None, agreement: float, ids: bool) -> None:
    reference = {} if alone is None else {0: sample(alone, ids)}
    found = measure("concurrent", answers(firsts, ids), SETTINGS, reference)
    assert found.phase.agreement == agreement
    assert len(found.different) == round(len(firsts) * (1 - agreement))


def test_each_prompt_has_its_own_expected_answer() -> None:
    asked = answers([1, 1], prompt=0) + answers([2, 2, 3], prompt=1) + answers([4], prompt=2)
    found = measure("concurrent", asked, SETTINGS, {0: sample(1), 2: sample(5)})
    # Prompt 1 had no usable answer alone: the majority has to do.
    assert [(one.outcome.prompt, one.text) for one in found.different] == [(1, "text 3"), (2, "text 4")]
    assert found.phase.agreement == round(4 / 6, 3)


@pytest.mark.parametrize(("place", "agreement"), [(0, 0.5), (7, 0.5), (8, 1.0), (31, 1.0)])
def test_late_tokens_may_differ(place: int, agreement: float) -> None:
    tipped = [*IDS[:place], 7, *IDS[place + 1 :]]
    assert measure("repeated", [judged(), judged(ids=tipped)], SETTINGS).phase.agreement == agreement
    one_later = replace(SETTINGS, compare_tokens=place + 1)
    assert measure("repeated", [judged(), judged(ids=tipped)], one_later).phase.agreement == 0.5


@pytest.mark.parametrize(("place", "agreement"), [(0, 0.5), (15, 0.5), (16, 1.0)])
def test_without_token_ids_the_beginning_of_the_text_must_agree(place: int, agreement: float) -> None:
    tipped = TEXT[:place] + "_" + TEXT[place + 1 :]
    pair = [judged(ids=()), judged(tipped, ids=())]
    assert measure("repeated", pair, SETTINGS).phase.agreement == agreement
    # One answer without ids is enough: ids and texts cannot be compared.
    assert measure("repeated", [judged(), judged(tipped, ids=())], SETTINGS).phase.agreement == agreement


def test_single_requests_have_nothing_to_agree_with() -> None:
    found = measure("single", answers([1]) + answers([2], prompt=1), SETTINGS)
    assert (found.phase.agreement, found.different) == (None, ())


def test_answers_that_are_not_usable_do_not_count_for_the_agreement() -> None:
    bad = judge_answer(Outcome(0, 500), SETTINGS)
    found = measure("repeated", [*answers([1, 1, 2, 1]), bad, bad], SETTINGS)
    assert (found.phase.requests, found.phase.usable, found.phase.agreement) == (6, 4, 0.75)
    assert found.unusable == (bad, bad)
    assert measure("repeated", [bad], SETTINGS).phase.agreement is None


# --- figures


def test_figures_of_a_phase() -> None:
    times = [(10.0, 10.5), (10.25, 11.5), (11.0, 11.25), (12.0, 12.5)]
    asked = [
        judge_answer(outcome(body(cached=cached), began=began, ended=ended), SETTINGS)
        for (began, ended), cached in zip(times, (0, 64, 128, None))
    ]
    # Its time is not that of an answer.
    asked.append(judge_answer(Outcome(0, problem="closed", began=10.0, ended=13.0), SETTINGS))
    found = measure("concurrent", asked, SETTINGS).phase
    assert (found.requests, found.usable, found.cached_tokens, found.cache_hits) == (5, 4, 192, 2)
    assert (found.in_flight, found.elapsed_s, found.latency_p50_s, found.latency_max_s) == (3, 3.0, 0.5, 1.25)


def test_figures_without_any_answer() -> None:
    found = measure("single", [judge_answer(Outcome(0, problem="refused", began=1.0, ended=1.5), SETTINGS)], SETTINGS)
    figures = found.phase
    assert (figures.requests, figures.usable, figures.agreement, figures.elapsed_s) == (1, 0, None, 0.5)
    assert (figures.cached_tokens, figures.cache_hits, figures.latency_p50_s, figures.latency_max_s) == (None,) * 4


@pytest.mark.parametrize(
    ("times", "most"),
    [([], 0), ([(1, 2)], 1), ([(1, 2), (2, 3)], 1), ([(1, 3), (2, 4), (3, 5)], 2), ([(1, 9)] * 7, 7)],
)
def test_requests_in_flight(times: list[tuple[float, float]], most: int) -> None:
    assert most_at_once([Outcome(0, began=began, ended=ended) for began, ended in times]) == most


# --- the verdict


def phase(name: str, asked: list[Judged], settings: Settings = SETTINGS, alone: int | None = None) -> Measured:
    return measure(name, asked, settings, None if alone is None else {0: sample(alone)})


def bad(content: bytes = b"", prompt: int = 0, status: int = 200, **more: Any) -> Judged:
    found = judge_answer(Outcome(prompt, status, content, **more), SETTINGS)
    assert not found.usable
    return found


GOOD = phase("single", answers([1]))


def test_passed() -> None:
    cached = [judged(cached=number) for number in (0, 64, 64)]
    found = conclude([GOOD, phase("concurrent", answers([1, 1, 1, 2]), alone=1), phase("repeated", cached)], SETTINGS)
    assert (found.passed, found.verdict, found.failures) == (True, "ok", ())
    assert found.reason == (
        "every answer is usable, at least 75% that were compared agree (1 single requests, 4 at once, 3 of one prompt "
        "repeated); 2 repeated requests found their prompt in the prefix cache"
    )
    assert found.output_check == {"passed": True, "reason": found.reason}
    assert [one.phase for one in found.phases] == ["single", "concurrent", "repeated"]


@pytest.mark.parametrize(
    ("firsts", "words"),
    [
        ([1] * 3, "every answer is usable, all that were compared agree (3 at once)"),
        ([1] * 999 + [2], "every answer is usable, at least 99% that were compared agree (1000 at once)"),
    ],
)
def test_all_is_said_only_of_all(firsts: list[int], words: str) -> None:
    assert conclude([phase("concurrent", answers(firsts), alone=1)], SETTINGS).reason == words
    assert conclude([GOOD], SETTINGS).reason == "every answer is usable (1 single requests)"


@pytest.mark.parametrize(
    ("cached", "words"),
    [
        (0, "; no request found its prompt in the prefix cache"),
        (None, "; the server does not say what came from its prefix cache"),
        (7, "; 1 repeated requests found their prompt in the prefix cache"),
    ],
)
def test_prefix_cache_is_told_and_not_judged(cached: int | None, words: str) -> None:
    found = conclude([GOOD, phase("repeated", [judged(cached=cached)])], SETTINGS)
    assert found.passed and found.reason.endswith(words)


def test_random_weights_are_said_and_their_agreement_is_not_judged() -> None:
    random = replace(SETTINGS, random_weights=True)
    found = conclude([phase("concurrent", answers([1, 2, 3, 4]), random, alone=5)], random)
    assert (found.passed, found.verdict, found.failures) == (True, "mechanics_only", ())
    assert found.phases[0].agreement == 0.0
    assert found.reason.startswith("random weights: the text means nothing, only the mechanics were judged (4 at once")


@pytest.mark.parametrize(("least", "passed"), [(0.75, True), (0.76, False)])
def test_agreement_has_a_limit(least: float, passed: bool) -> None:
    asked = replace(SETTINGS, agreement=least)
    found = conclude([GOOD, phase("concurrent", answers([1, 1, 1, 2]), asked, alone=1)], asked)
    assert found.passed == passed
    if not passed:
        assert found.verdict == "disagreement"
        assert found.reason == (
            "concurrent requests, prompt 'Paris is the capital of France. The c...': the first 8 tokens are not those "
            "of the same prompt asked alone, what came is 'text 2'; the agreement of this phase is 0.75, less than 0.76"
        )
        assert [(one.phase, one.text_sample) for one in found.failures] == [("concurrent", "text 2")]


def test_reason_names_phase_prompt_and_what_came() -> None:
    stuck = bad(body("!" * 32), prompt=1)
    found = conclude([GOOD, phase("concurrent", [*answers([1, 1, 1]), stuck], alone=1)], SETTINGS)
    assert (found.passed, found.verdict) == (False, "degenerate")
    assert found.reason == (
        "concurrent requests, prompt 'Once upon a time there was a small fo...': the text is one character repeated "
        f"('!'), what came is '{'!' * 32}'; 1 of 4 requests of this phase failed"
    )
    assert found.output_check == {"passed": False, "reason": found.reason}


def test_first_failed_phase_and_its_most_frequent_failure_give_the_verdict() -> None:
    stuck, error, empty = bad(body("!" * 32)), bad(status=500), bad(body(""))
    concurrent = phase("concurrent", [error, stuck, stuck, *answers([1])], alone=1)
    repeated = phase("repeated", [empty] * 9)
    assert conclude([GOOD, concurrent, repeated], SETTINGS).verdict == "degenerate"
    assert conclude([GOOD, repeated, concurrent], SETTINGS).verdict == "empty"
    disagreeing = phase("concurrent", answers([1, 1, 1]), alone=2)
    assert conclude([GOOD, disagreeing, repeated], SETTINGS).verdict == "disagreement"


def test_failures_are_few_and_of_many_kinds() -> None:
    stuck, error, empty = bad(body("!" * 32)), bad(b"boom", status=500), bad(body(""))
    found = conclude(
        [phase("concurrent", [stuck] * 40 + [error] * 3), phase("repeated", [empty] * 3 + answers([1]))], SETTINGS
    )
    assert [(one.phase, one.text_sample) for one in found.failures] == [
        ("concurrent", "!" * 32),
        ("concurrent", "!" * 32),
        ("concurrent", "boom"),
        ("concurrent", "boom"),
        ("repeated", ""),
    ]
    assert found.failures[2].why == "/generate says 500"


# --- what is shown


@pytest.mark.parametrize(
    "echo",
    [
        f"bad key {KEY}",
        f"{'x' * 75}{KEY}",  # where the sample is cut
        f"{'x ' * 4000}{KEY}",
        json.dumps({"error": KEY}),
        json.dumps({"error": KEY}).replace("/", "\\/"),
        "sk-very%2Fhidden%26key",
        "sk-very/hidden&amp;key",
    ],
)
def test_api_key_that_a_server_repeats_is_not_shown(echo: str) -> None:
    for came in (
        bad(echo.encode(), status=401),
        bad(body(f"{echo} " * 2, tokens=3)),
        bad(problem=f"no answer: {echo}", status=0),
    ):
        shown = repr(conclude([phase("single", [came])], SETTINGS, KEY))
        assert "hidden" not in shown and "sk-very" not in shown
        # The longest of them are cut before it.
        assert "<r" in shown or len(echo) > 2000
    assert KEY not in repr(output_check.Server("h", 1, KEY))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00b\x1b[31mc", "a\ufffdb\ufffd[31mc"),
        ("line\r\nother\tend", "line other end"),
        ("\ud800 lone", "\ufffd lone"),
        ("right \u202e left", "right \ufffd left"),
        ("\u5df4\u9ece", "\u5df4\u9ece"),
        ("x" * 81, "x" * 77 + "..."),
        ("x" * 80, "x" * 80),
    ],
)
def test_samples_are_printable_and_short(text: str, shown: str) -> None:
    found = conclude([phase("single", [bad(body(text, tokens=1))])], SETTINGS)
    assert found.failures[0].text_sample == shown
    assert found.reason.encode() and found.reason.isprintable()


# --- what is asked


def test_requests_are_greedy_and_bounded() -> None:
    assert json.loads(output_check.request_body(0, replace(SETTINGS, tokens=5))) == {
        "text": PROMPTS[0],
        "sampling_params": {"max_new_tokens": 5, "temperature": 0, "ignore_eos": True},
    }
    assert json.loads(output_check.request_body(1, replace(SETTINGS, logprobs=True)))["return_logprob"] is True


def test_repeated_prompt_fills_pages_of_a_prefix_cache() -> None:
    assert len(set(PROMPTS)) == len(PROMPTS) >= 5
    # English has more than one word in two tokens; pages have up to 64 tokens.
    assert len(PROMPTS[-1].split()) > 2 * 64
    assert all(prompt.isascii() and len(prompt) < 2000 for prompt in PROMPTS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens", 0),
        ("concurrency", 0),
        ("concurrency", 16385),
        ("repeats", -1),
        ("agreement", 1.1),
        ("agreement", float("nan")),
        ("compare_tokens", 0),
        ("timeout_s", 0.0),
        ("timeout_s", float("inf")),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, value: Any) -> None:
    settings = Settings(**{name: value})
    assert settings.refused().startswith(f"the output check cannot run: {name} is {value}; give a value from ")
    with pytest.raises(ValueError, match=name):
        output_check.check(output_check.Server("127.0.0.1", 1), settings)
    assert Settings().refused() == ""


@pytest.mark.parametrize(
    ("soft", "hard", "workers", "raised"),
    [
        (1024, 4096, 100, None),
        (1024, 4096, 1024, 1088),
        (128, 256, 1024, 256),
        (1024, resource.RLIM_INFINITY, 1024, 1088),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 1024, None),
    ],
)
def test_room_for_sockets_is_made_and_given_back(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, workers: int, raised: int | None
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _which: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _which, pair: limits.append(pair))
    with output_check._many_files(workers) as room:
        assert limits[-1] == (raised or soft, hard)
        assert room == (workers if raised is None else raised - 64)
    assert limits[-1] == (soft, hard)


def test_stacks_are_small_only_while_asking() -> None:
    # To ask for the size is to set it to the default.
    with output_check._small_stacks():
        assert threading.stack_size() == 512 * 1024
    with output_check._small_stacks():
        pass
    assert threading.stack_size() == 0


@pytest.mark.parametrize(("threads", "verdict"), [(3, "timeout"), (0, "http_error")])
def test_machine_that_gives_no_more_threads_asks_with_those_it_gave(
    monkeypatch: pytest.MonkeyPatch, threads: int, verdict: str
) -> None:
    start, left, connected = threading.Thread.start, [threads], []

    def sparing(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    def connect(_connection: object) -> None:
        connected.append(threading.get_ident())
        raise TimeoutError

    monkeypatch.setattr(threading.Thread, "start", sparing)
    monkeypatch.setattr("http.client.HTTPConnection.connect", connect)
    server = output_check.Server("127.0.0.1", 1)
    came, workers = output_check.ask_at_once(server, SETTINGS, [0, 1, 2, 3, 4, 5, 0, 1], time.monotonic() + 60)
    assert (workers, len(came), len(connected), len(set(connected))) == (threads, 8, 8 if threads else 0, threads)
    assert [one.prompt for one in came] == [0, 1, 2, 3, 4, 5, 0, 1]
    assert {judge_answer(one, SETTINGS).verdict for one in came} == {verdict}
    if not threads:
        assert came[0].problem == "this machine gives no thread to ask with"
