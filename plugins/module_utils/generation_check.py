# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is what the server generates usable? A server with broken kernels answers 200 with `!!!!!!!!`.

With real weights two identical greedy requests must agree and their text must not be degenerate. Random weights talk
nonsense, so for them only the mechanics are judged, and the verdict says so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

OK, MECHANICS_ONLY = "ok", "mechanics_only"
# The first request computes its whole prompt, the next ones find it in the prefix cache: other kernels, whose rounding
# can tip a close choice. So when the first two differ, a third one decides.
MOST_REQUESTS = 3
# Fewer tokens than this cannot tell a stuck model from a short answer.
JUDGED_TOKENS = 8
# The first token can be right and the rest not: prefill and decode are different kernels.
_STUCK_PART = 0.75
# A cycle is judged in answers at least this long. People repeat words, but not four tokens over and over.
_CYCLE_ITEMS = 12
_CYCLE_TOKENS, _CYCLE_CHARACTERS = 4, 8
# Enough for the text of any bounded generation, and a server that sends more costs no more to judge.
_JUDGED_CHARACTERS = 4096
_SAMPLE_CHARACTERS = 80
# What reading a body that is no answer raises: also of brackets nested without end, and of an infinite count.
NOT_AN_ANSWER = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, OverflowError)


@dataclass(frozen=True)
class Generation:
    """The bounded generation: `tokens` as the server counted them. verdict: ok, mechanics_only, wrong_count,
    degenerate, unstable, malformed; `why` explains every one but ok.
    """

    tokens: int
    text_sample: str
    verdict: str
    why: str = ""

    @property
    def usable(self) -> bool:
        return self.verdict in (OK, MECHANICS_ONLY)


@dataclass(frozen=True)
class Sample:
    """One answer of /generate. `ids` is empty when the server does not tell them, `logprobs` None when it does not."""

    tokens: int
    text: str
    ids: tuple[str, ...] = ()
    logprobs: tuple[Any, ...] | None = None

    def agrees(self, other: Sample) -> bool:
        return self.ids == other.ids if self.ids and other.ids else self.text == other.text


def judge(bodies: Sequence[bytes], asked: int, random_weights: bool, logprobs: bool = False) -> Generation | None:
    """Judge the answers to so many identical greedy requests for exactly `asked` tokens, at least one.

    None: one more identical request is needed (never after MOST_REQUESTS). `logprobs`: they were asked for.
    """
    try:
        samples = [read_sample(body) for body in bodies]
    except NOT_AN_ANSWER as error:
        start = bodies[-1][:_SAMPLE_CHARACTERS].decode("utf-8", "replace")
        return Generation(
            0, start, "malformed", f"the answer is not what /generate gives ({type(error).__name__}: {error})"
        )
    last = samples[-1]

    def verdict(name: str, why: str = "") -> Generation:
        return Generation(last.tokens, last.text[:_SAMPLE_CHARACTERS], name, why)

    if last.tokens != asked:
        return verdict("wrong_count", f"{asked} tokens were asked for and {last.tokens} came")
    if logprobs and last.logprobs is None:
        return verdict("malformed", "log probabilities were asked for and none came")
    if logprobs and not all(is_logprob(value) for value in last.logprobs or ()):
        return verdict("degenerate", "a log probability is not a number (NaN or infinite)")
    if random_weights:
        return verdict(MECHANICS_ONLY, "random weights: the text means nothing, only the mechanics were judged")
    why = degenerate(last, asked)
    if why:
        return verdict("degenerate", why)
    if len(samples) == 1:
        return None
    if last.agrees(samples[-2]):
        return verdict(OK)
    if len(samples) < MOST_REQUESTS:
        return None
    return verdict("unstable", f"{len(samples)} identical greedy requests gave answers that do not agree")


def read_sample(body: bytes) -> Sample:
    """Read one answer; any of NOT_AN_ANSWER when it is not one."""
    return read_answer(json.loads(body))


def read_answer(answer: Any) -> Sample:
    """The same from decoded JSON."""
    meta = answer["meta_info"]
    # [[log probability, token id, text or null], ...]; a JSON writer without NaN makes null of it.
    pairs = meta.get("output_token_logprobs")
    return Sample(
        tokens=int(meta["completion_tokens"]),
        text=str(answer["text"]),
        ids=tuple(str(token) for token in answer.get("output_ids") or ()),
        logprobs=None if pairs is None else tuple(pair[0] for pair in pairs),
    )


def degenerate(sample: Sample, asked: int) -> str:
    """Why the text is worthless, or empty."""
    visible = "".join(sample.text.split())
    if not visible:
        return "the text is empty"
    if visible.lower().strip(".!,") == "nan":
        return "the text is NaN"
    if asked < JUDGED_TOKENS:
        return ""
    if len(set(visible)) == 1:
        return f"the text is one character repeated ({visible[0]!r})"
    if sample.ids and longest_run(sample.ids) >= _STUCK_PART * len(sample.ids):
        return f"one token repeated {longest_run(sample.ids)} times"
    if not sample.ids and longest_run(visible) >= _STUCK_PART * len(visible):
        return f"one character repeated {longest_run(visible)} times"
    if not any(character.isalpha() for character in visible):
        kind = "digits" if visible.isdigit() else "digits and punctuation" if _has_digit(visible) else "punctuation"
        return f"the text has no letter, only {kind}"
    return ""


def cyclic(sample: Sample) -> str:
    """Why the text is a short cycle over and over ("ababab"), or empty. Stricter than `degenerate`, for long answers.

    A cycle that begins late counts when tokens and text both show it. The tokens alone also repeat after the end of a
    text (the token that ends it is not shown), and the text alone also within one long token (a rule of dashes).
    """
    visible = "".join(sample.text.split())[:_JUDGED_CHARACTERS]
    tokens, token_part = longest_cycle(sample.ids, _CYCLE_TOKENS)
    characters, text_part = longest_cycle(visible, _CYCLE_CHARACTERS)
    late = min(token_part, text_part) >= 0.5
    if late or token_part >= _STUCK_PART:
        return f"the same {tokens} token{'s' * (tokens != 1)} over and over"
    if text_part >= _STUCK_PART:
        return f"the same {characters} character{'s' * (characters != 1)} over and over"
    return ""


def longest_cycle(items: Sequence[str], most: int) -> tuple[int, float]:
    """The period, at most `most`, that holds for the longest stretch of the items, and what part of them that is.

    (0, 0.0) when none holds for _CYCLE_ITEMS items and four times its period.
    """
    period, longest = 0, 0
    for candidate in range(1, most + 1):
        now = best = 0
        for item, later in zip(items, items[candidate:]):
            now = now + 1 if item == later else 0
            best = max(best, now)
        stretch = best + candidate
        if stretch > longest and stretch >= max(_CYCLE_ITEMS, 4 * candidate):
            period, longest = candidate, stretch
    return period, longest / len(items) if period else 0.0


def longest_run(items: Iterable[str]) -> int:
    """How often the item that is most often repeated without a break stands in a row."""
    longest = now = 0
    before: str | None = None
    for item in items:
        now = now + 1 if item == before else 1
        longest, before = max(longest, now), item
    return longest


def output_check(generation: Generation | None) -> dict[str, Any] | None:
    """The verdict as the benchmark's record takes it ({passed, reason}), None when nothing was generated."""
    if generation is None:
        return None
    reason = generation.why or "two identical greedy requests agree, and their text is not degenerate"
    return {"passed": generation.usable, "reason": reason}


def is_logprob(value: Any) -> bool:
    """Whether it is a finite number. JSON has integers that no float can hold."""
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False


def _has_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)
