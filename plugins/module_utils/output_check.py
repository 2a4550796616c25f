# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Is what a served model answers usable, alone, under load and from the prefix cache?

The look of `readiness` asks one prompt, alone. Kernels also fail only for a large batch (NaN from 64 requests on), or
only for tokens that come from the prefix cache. So this check asks several prompts alone (`single`), then as many
requests at once as will be served (`concurrent`), then one prompt again and again (`repeated`).

The deciding functions are pure: an `Outcome` is what came back for one request, `judge_answer` says what it is worth,
`measure` sums up a phase, `conclude` gives the verdict. `check` asks. Workers only carry bytes: their stacks are small,
and the decoding of a hostile answer is not for them.
"""

from __future__ import annotations

import http.client
import json
import queue
import resource
import socket
import statistics
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.generation_check import (
    MECHANICS_ONLY,
    NOT_AN_ANSWER,
    OK,
    Sample,
    cyclic,
    degenerate,
    is_logprob,
    read_answer,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.readiness import connect_host

SINGLE, CONCURRENT, REPEATED = "single", "concurrent", "repeated"
HTTP_ERROR, TIMEOUT, MALFORMED, WRONG_COUNT = "http_error", "timeout", "malformed", "wrong_count"
NOT_A_NUMBER, EMPTY, DEGENERATE, DISAGREEMENT = "not_a_number", "empty", "degenerate", "disagreement"

# Each asks for prose, so that an answer without letters or one that only repeats is no answer, and none is likely to
# end at once. The last is the repeated one: a prefix cache that keeps pages of 64 tokens must have pages to find.
PROMPTS = (
    "Paris is the capital of France. The city is best known for",
    "Once upon a time there was a small fox who lived at the edge of a forest. One morning the fox",
    "A bicycle that moves does not fall over. The reason for this is",
    "To bake a simple loaf of bread, first mix the flour with",
    "The sun rises in the east and sets in the west, because",
    "Dear Anna, thank you for your long letter, which came on Monday while I was in the garden. The apple trees are "
    "in bloom, the old well has been repaired, and the neighbours have finally painted their fence, in a green that "
    "nobody likes except their dog. Last week we walked along the river to the mill. The miller's daughter showed us "
    "the great wheel, explained how the stones are dressed every spring, and gave each of us a bag of flour to carry "
    "home. On the way back it began to rain, so we waited under the bridge with two fishermen, who told us stories "
    "about the flood twenty years ago, when the water stood as high as the church door and the baker brought his "
    "bread to the people in a rowing boat. You asked me about the school. It will open again in September with a new "
    "teacher, and the children have already decided that they like her. In your next letter please tell me about your "
    "journey, about the people you have met, and most of all about",
)

# Each worker is one request in flight. 1024 threads with stacks of 512 KiB reserve 512 MiB of addresses, of which only
# the pages they touch (tens of KiB each) take memory; the default of 8 MiB would reserve 8 GiB, which a limit on
# addresses refuses. What a worker calls (http.client, the resolver) makes do with 64 KiB (tried with Python 3.9 and
# 3.13).
MOST_WORKERS = 1024
_STACK_BYTES = 512 * 1024
MOST_REQUESTS = 16384
# Files of the process beside the workers' sockets.
_SPARE_FILES = 64
# How long requests wait, connected, for the last one to connect, so that all of them are sent at once.
_GATHER_S = 10.0
# After the deadline sockets are shut down, which ends every read; a name that is still being resolved is left.
_GRACE_S = 1.0
# A token is a few hundred bytes at most, also escaped and with its log probability.
_ANSWER_BYTES, _TOKEN_BYTES = 64 * 1024, 1024
# Token ids and counts are below it. No vocabulary comes near; what a broken kernel leaves in memory does.
_COUNT_END = 2**31

MOST_FAILURES = 5
_SAMPLE_CHARACTERS = 80
_PROMPT_CHARACTERS = 40
_WHY_CHARACTERS = 300


@dataclass(frozen=True)
class Server:
    """Where to ask. `key` is sent in the Authorization header and shown nowhere."""

    host: str
    port: int
    key: str = field(default="", repr=False)


@dataclass(frozen=True)
class Settings:
    """What to ask and what to accept; times in seconds. `timeout_s` bounds the whole check.

    `agreement`: the least share of answers whose first `compare_tokens` tokens are the expected ones. Kernels of
    another batch size round otherwise, which can tip a close choice, and then every later token is another one.
    """

    tokens: int = 32
    concurrency: int = 1
    repeats: int = 20
    random_weights: bool = False
    logprobs: bool = False
    agreement: float = 0.5
    compare_tokens: int = 8
    timeout_s: float = 120.0

    def refused(self) -> str:
        """Why nothing can be asked with these, or empty."""
        for name, least, most in (
            ("tokens", 1, 65536),
            ("concurrency", 1, MOST_REQUESTS),
            ("repeats", 0, 10000),
            ("agreement", 0.0, 1.0),
            ("compare_tokens", 1, 65536),
            ("timeout_s", 0.1, 86400.0),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                return f"the output check cannot run: {name} is {value}; give a value from {least} to {most}"
        return ""

    @property
    def answer_bytes(self) -> int:
        """An answer that is longer is none."""
        return _ANSWER_BYTES + _TOKEN_BYTES * self.tokens


@dataclass(frozen=True)
class Outcome:
    """What came back for one request. `status` 0: no complete answer; `problem` says why, `late` that time ran out.

    `began` and `ended` are readings of one clock in seconds. A body over the limit is cut one byte behind it.
    """

    prompt: int
    status: int = 0
    body: bytes = b""
    problem: str = ""
    late: bool = False
    began: float = 0.0
    ended: float = 0.0


@dataclass(frozen=True)
class Judged:
    """One request after its judgement. `text` is what the server said, not fit to be shown as it is.

    `cached`: tokens of the prompt that came from the prefix cache, None when the server does not say.
    """

    outcome: Outcome
    verdict: str
    why: str = ""
    text: str = ""
    sample: Sample | None = None
    cached: int | None = None

    @property
    def usable(self) -> bool:
        return self.verdict in (OK, MECHANICS_ONLY)


@dataclass(frozen=True)
class Phase:
    """A phase in figures. None stands for what is not known: nothing to compare, the server does not say, no answer.

    `cached_tokens`: tokens from the prefix cache in all answers together, `cache_hits`: answers with at least one.
    `in_flight`: the most requests that were open at the same moment.
    """

    phase: str
    requests: int
    usable: int
    agreement: float | None
    cached_tokens: int | None
    cache_hits: int | None
    in_flight: int
    elapsed_s: float
    latency_p50_s: float | None
    latency_max_s: float | None


@dataclass(frozen=True)
class Failure:
    """A sample of what went wrong, safe to show."""

    phase: str
    prompt: str
    text_sample: str
    why: str


@dataclass(frozen=True)
class Report:
    passed: bool
    verdict: str
    reason: str
    phases: tuple[Phase, ...]
    failures: tuple[Failure, ...]
    workers: int
    elapsed_s: float = 0.0

    @property
    def output_check(self) -> dict[str, Any]:
        """In the form that module benchmark takes."""
        return {"passed": self.passed, "reason": self.reason}


@dataclass(frozen=True)
class Measured:
    """A phase with the requests that speak against it: those that are not usable, and those that are but differ."""

    phase: Phase
    unusable: tuple[Judged, ...]
    different: tuple[Judged, ...]


# --- one answer -------------------------------------------------------------------------------------------------------


def judge_answer(outcome: Outcome, settings: Settings) -> Judged:
    """What one answer is worth by itself."""
    body = outcome.body.decode("utf-8", "replace")
    if outcome.late:
        return Judged(outcome, TIMEOUT, f"{outcome.problem}, the whole check has {settings.timeout_s:g} s", body)
    if not outcome.status:
        return Judged(outcome, HTTP_ERROR, outcome.problem, body)
    if outcome.status != 200:
        hint = ", it refuses the API key that state/secrets.env holds" if outcome.status in (401, 403) else ""
        return Judged(outcome, HTTP_ERROR, f"/generate says {outcome.status}{hint}", body)
    if len(outcome.body) > settings.answer_bytes:
        why = f"the answer is longer than {settings.answer_bytes} bytes, which {settings.tokens} tokens never are"
        return Judged(outcome, MALFORMED, why, body)
    try:
        answer = json.loads(outcome.body)
        wrong = _shape(answer)
        sample = None if wrong else read_answer(answer)
    except NOT_AN_ANSWER as error:
        return Judged(outcome, MALFORMED, f"the answer is not JSON of /generate ({type(error).__name__})", body)
    if sample is None:
        return Judged(outcome, MALFORMED, f"the answer is not what /generate gives: {wrong}", body)
    verdict, why = _worth(sample, settings)
    return Judged(outcome, verdict, why, sample.text, sample, _count(answer["meta_info"].get("cached_tokens")))


def _shape(answer: Any) -> str:
    """Why decoded JSON is no answer of /generate (the fields of 0.5.12.post1 and 0.5.23), or empty."""
    if not isinstance(answer, dict):
        return f"a {type(answer).__name__} instead of an object"
    if not isinstance(answer.get("text"), str):
        return "it has no text"
    meta = answer.get("meta_info")
    if not isinstance(meta, dict) or _count(meta.get("completion_tokens")) is None:
        return "it does not count its tokens"
    ids = answer.get("output_ids")
    if ids is not None and not isinstance(ids, list):
        return "output_ids is no list"
    if any(_count(token) is None for token in ids or ()):
        return "output_ids holds something that is no token"
    return ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _COUNT_END else None


def _worth(sample: Sample, settings: Settings) -> tuple[str, str]:
    """Verdict and reason for an answer that has the right form."""
    if sample.tokens != settings.tokens:
        return WRONG_COUNT, f"{settings.tokens} tokens were asked for and {sample.tokens} came"
    if sample.ids and len(sample.ids) != sample.tokens:
        return WRONG_COUNT, f"it counts {sample.tokens} tokens and gives {len(sample.ids)}"
    if settings.logprobs:
        if sample.logprobs is None or len(sample.logprobs) < sample.tokens:
            came = len(sample.logprobs or ()) or "none"
            return MALFORMED, f"{sample.tokens} log probabilities were asked for and {came} came"
        if not all(is_logprob(value) for value in sample.logprobs):
            return NOT_A_NUMBER, "a log probability is not a number (NaN or infinite)"
    if settings.random_weights:
        return MECHANICS_ONLY, ""
    visible = "".join(sample.text.split())
    if not visible:
        return EMPTY, "the text is empty"
    words = "".join(character for character in visible.lower() if character not in ".!,;")
    if words and not words.replace("nan", ""):
        return NOT_A_NUMBER, "the text is NaN"
    why = degenerate(sample, settings.tokens) or cyclic(sample)
    return (DEGENERATE, why) if why else (OK, "")


# --- a phase ----------------------------------------------------------------------------------------------------------


def measure(
    phase: str, judged: Sequence[Judged], settings: Settings, reference: Mapping[int, Sample] | None = None
) -> Measured:
    """Sum up a phase. `reference` is the expected answer of each prompt, as usable answers to single requests gave it;
    without it the answers are held against each other, unless the phase is `single`, which has one for each prompt.
    """
    usable = [one for one in judged if one.usable]
    agreement: float | None = None
    different: list[Judged] = []
    if phase != SINGLE and usable:
        different = disagreeing(usable, settings.compare_tokens, reference or {})
        agreement = round(1 - len(different) / len(usable), 3)
    cached = [one.cached for one in judged if one.cached is not None]
    outcomes = [one.outcome for one in judged]
    latencies = [outcome.ended - outcome.began for outcome in outcomes if outcome.status]
    figures = Phase(
        phase=phase,
        requests=len(judged),
        usable=len(usable),
        agreement=agreement,
        cached_tokens=sum(cached) if cached else None,
        cache_hits=sum(tokens > 0 for tokens in cached) if cached else None,
        in_flight=most_at_once(outcomes),
        elapsed_s=_seconds(max(o.ended for o in outcomes) - min(o.began for o in outcomes)) if outcomes else 0.0,
        latency_p50_s=_seconds(statistics.median(latencies)) if latencies else None,
        latency_max_s=_seconds(max(latencies)) if latencies else None,
    )
    return Measured(figures, tuple(one for one in judged if not one.usable), tuple(different))


def disagreeing(usable: Sequence[Judged], compare: int, reference: Mapping[int, Sample]) -> list[Judged]:
    """The answers that do not begin as expected: as the reference of their prompt, else as most of them do."""
    groups: dict[int, list[tuple[Judged, Sample]]] = {}
    for one in usable:
        if one.sample is not None:
            groups.setdefault(one.outcome.prompt, []).append((one, one.sample))
    different: list[Judged] = []
    for prompt, group in groups.items():
        samples = [sample for _judged, sample in group]
        expected = reference.get(prompt)
        by_ids = all(sample.ids for sample in [*samples, *([expected] if expected else [])])
        heads = [_head(sample, compare, by_ids) for sample in samples]
        right = _head(expected, compare, by_ids) if expected else Counter(heads).most_common(1)[0][0]
        different.extend(judged for (judged, _sample), head in zip(group, heads) if head != right)
    return different


def _head(sample: Sample, compare: int, by_ids: bool) -> tuple[str, ...]:
    """How an answer begins. Without token ids, two characters for each token: few tokens are shorter."""
    return sample.ids[:compare] if by_ids else tuple(sample.text[: 2 * compare])


def most_at_once(outcomes: Sequence[Outcome]) -> int:
    """The most requests that were open at the same moment."""
    # At one reading of the clock an end counts before a beginning.
    changes = sorted(
        [(outcome.began, 1) for outcome in outcomes] + [(outcome.ended, -1) for outcome in outcomes],
    )
    most = now = 0
    for _when, change in changes:
        now += change
        most = max(most, now)
    return most


def _seconds(value: float) -> float:
    return round(max(0.0, value), 4)


# --- the verdict ------------------------------------------------------------------------------------------------------


def conclude(measured: Sequence[Measured], settings: Settings, key: str = "", workers: int = 1) -> Report:
    """The verdict of the first phase that something speaks against; within it, of what most requests suffer from."""
    phases = tuple(one.phase for one in measured)
    failed = next((one for one in measured if one.unusable or _disagrees(one, settings)), None)
    if failed is None:
        verdict = MECHANICS_ONLY if settings.random_weights else OK
        return Report(True, verdict, _praise(phases, settings), phases, (), workers)
    if failed.unusable:
        verdict = Counter(one.verdict for one in failed.unusable).most_common(1)[0][0]
        first = next(one for one in failed.unusable if one.verdict == verdict)
        why, count = first.why, f"{len(failed.unusable)} of {failed.phase.requests} requests of this phase failed"
    else:
        verdict, first = DISAGREEMENT, failed.different[0]
        why = _difference(failed.phase.phase, settings)
        count = f"the agreement of this phase is {failed.phase.agreement:.2f}, less than {settings.agreement:.2f}"
    sample = _shown(first.text, key, _SAMPLE_CHARACTERS)
    came = f", what came is {sample!r}" if sample else ""
    where = f"{failed.phase.phase} requests, prompt {_prompt(first)!r}"
    reason = f"{where}: {_shown(why, key, _WHY_CHARACTERS)}{came}; {count}"
    return Report(False, verdict, reason, phases, _failures(measured, settings, key), workers)


def _disagrees(measured: Measured, settings: Settings) -> bool:
    agreement = measured.phase.agreement
    return not settings.random_weights and agreement is not None and agreement < settings.agreement


def _difference(phase: str, settings: Settings) -> str:
    other = "the same prompt asked alone" if phase == CONCURRENT else "most requests for the same prompt"
    return f"the first {settings.compare_tokens} tokens are not those of {other}"


def _praise(phases: Sequence[Phase], settings: Settings) -> str:
    kinds = {
        SINGLE: "{} single requests",
        CONCURRENT: "{} at once",
        REPEATED: "{} of one prompt repeated",
    }
    asked = ", ".join(kinds[phase.phase].format(phase.requests) for phase in phases)
    if settings.random_weights:
        text = f"random weights: the text means nothing, only the mechanics were judged ({asked})"
    else:
        shares = [phase.agreement for phase in phases if phase.agreement is not None]
        # Rounded down: all is what only all may be called.
        least = int(100 * min(shares, default=1.0))
        agree = f", {'all' if least == 100 else f'at least {least}%'} that were compared agree" if shares else ""
        text = f"every answer is usable{agree} ({asked})"
    repeated = next((phase for phase in phases if phase.phase == REPEATED), None)
    if repeated is None:
        return text
    if repeated.cache_hits is None:
        return f"{text}; the server does not say what came from its prefix cache"
    if not repeated.cache_hits:
        return f"{text}; no request found its prompt in the prefix cache"
    return f"{text}; {repeated.cache_hits} repeated requests found their prompt in the prefix cache"


def _failures(measured: Sequence[Measured], settings: Settings, key: str) -> tuple[Failure, ...]:
    """At most MOST_FAILURES, of as many kinds as there are, in the order in which they came."""
    found: list[tuple[int, int, Failure]] = []
    kinds: Counter[tuple[str, str]] = Counter()
    for one in measured:
        against = [(judged, judged.verdict, judged.why) for judged in one.unusable]
        if _disagrees(one, settings):
            why = _difference(one.phase.phase, settings)
            against += [(judged, DISAGREEMENT, why) for judged in one.different]
        for judged, verdict, why in against:
            kind = (one.phase.phase, verdict)
            shown = Failure(
                one.phase.phase,
                _prompt(judged),
                _shown(judged.text, key, _SAMPLE_CHARACTERS),
                _shown(why, key, _WHY_CHARACTERS),
            )
            # Of each kind the first few are enough.
            if kinds[kind] < MOST_FAILURES:
                found.append((kinds[kind], len(found), shown))
            kinds[kind] += 1
    chosen = sorted(found, key=lambda entry: entry[:2])[:MOST_FAILURES]
    return tuple(shown for _rank, _place, shown in sorted(chosen, key=lambda entry: entry[1]))


def _prompt(judged: Judged) -> str:
    return _cut(PROMPTS[judged.outcome.prompt], _PROMPT_CHARACTERS)


def _shown(text: str, key: str, most: int) -> str:
    """Safe to show: without the API key, also as servers write it in JSON, a URL or a page, and without anything that
    a terminal or a JSON writer would stumble over.
    """
    if key:
        forms = {
            key,
            json.dumps(key)[1:-1],
            json.dumps(key, ensure_ascii=False)[1:-1],
            urllib.parse.quote(key, safe=""),
        }
        forms |= {key.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"), key.replace("/", "\\/")}
        for form in sorted(forms, key=len, reverse=True):
            text = text.replace(form, "<redacted>")
    # Redacted before it is cut, or the cut could leave the first half of the key.
    text = " ".join(text[: 8 * most].split())
    return _cut("".join(character if character.isprintable() else "\ufffd" for character in text), most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


# --- asking -----------------------------------------------------------------------------------------------------------


def check(server: Server, settings: Settings) -> Report:
    """Ask and judge, over within about settings.timeout_s. Never raises for what a server can do wrong.

    ValueError for settings that nothing can be asked with.
    """
    if settings.refused():
        raise ValueError(settings.refused())
    began = time.monotonic()
    deadline = began + settings.timeout_s
    measured: list[Measured] = []
    reference: dict[int, Sample] = {}
    workers = 1
    last = len(PROMPTS) - 1
    for phase, prompts in (
        (SINGLE, list(range(len(PROMPTS)))),
        # One request at once is what the first phase did.
        (
            CONCURRENT,
            [number % len(PROMPTS) for number in range(settings.concurrency if settings.concurrency > 1 else 0)],
        ),
        (REPEATED, [last] * settings.repeats),
    ):
        if not prompts:
            continue
        if phase == CONCURRENT:
            outcomes, workers = ask_at_once(server, settings, prompts, deadline)
        else:
            outcomes = ask_in_turn(server, settings, prompts, deadline)
        judged = [judge_answer(outcome, settings) for outcome in outcomes]
        measured.append(measure(phase, judged, settings, reference if phase == CONCURRENT else None))
        if phase == SINGLE:
            reference = {one.outcome.prompt: one.sample for one in judged if one.usable and one.sample is not None}
        if not all(outcome.status for outcome in outcomes):
            # A server that does not answer would be waited for again and again.
            break
    report = conclude(measured, settings, server.key, workers)
    return replace(report, elapsed_s=round(time.monotonic() - began, 2))


def request_body(prompt: int, settings: Settings) -> bytes:
    request: dict[str, Any] = {
        "text": PROMPTS[prompt],
        "sampling_params": {"max_new_tokens": settings.tokens, "temperature": 0, "ignore_eos": True},
    }
    if settings.logprobs:
        request["return_logprob"] = True
    return json.dumps(request).encode()


def ask_in_turn(server: Server, settings: Settings, prompts: Sequence[int], deadline: float) -> list[Outcome]:
    """One request after the other, until one is not answered. None may take more than half of the time that is left,
    so that a server that hangs is known as such early.
    """
    outcomes: list[Outcome] = []
    for prompt in prompts:
        now = time.monotonic()
        outcomes += _Crew(server, settings, [prompt], now + max(0.0, deadline - now) / 2).run(1)
        if not outcomes[-1].status:
            break
    return outcomes


def ask_at_once(
    server: Server, settings: Settings, prompts: Sequence[int], deadline: float
) -> tuple[list[Outcome], int]:
    """All requests at the same time, and how many threads that were: fewer than requests when there are more than
    MOST_WORKERS, or when the machine gives no more files or threads.
    """
    with _many_files(min(len(prompts), MOST_WORKERS)) as workers, _small_stacks():
        crew = _Crew(server, settings, prompts, deadline)
        return crew.run(workers), crew.workers


@contextmanager
def _many_files(workers: int) -> Iterator[int]:
    """Room for so many sockets, as far as the hard limit of this process allows; yields for how many there is room."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = workers + _SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        yield workers
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    try:
        yield max(1, allowed - _SPARE_FILES)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def _small_stacks() -> Iterator[None]:
    before = threading.stack_size(_STACK_BYTES)
    try:
        yield
    finally:
        threading.stack_size(before)


class _Crew:
    """Threads that ask, and the clock that ends them.

    The timeout of a socket is for one read, and a server that drips bytes begins it anew with each, also within the
    headers. So at the deadline every socket is shut down, which ends the read that waits on it.
    """

    def __init__(self, server: Server, settings: Settings, prompts: Sequence[int], deadline: float) -> None:
        self.workers = 0
        self._server = server
        self._settings = settings
        self._prompts = prompts
        self._deadline = deadline
        self._outcomes: list[Outcome | None] = [None] * len(prompts)
        self._go = threading.Event()
        self._connected: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._over = False

    def run(self, workers: int) -> list[Outcome]:
        """One outcome for each prompt, in their order."""
        began = time.monotonic()
        threads: list[threading.Thread] = []
        for number in range(min(workers, len(self._prompts))):
            thread = threading.Thread(target=self._work, args=(number,), daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the machine gives no more threads
                break
            threads.append(thread)
        self.workers = len(threads)
        gathered = min(self._deadline, began + _GATHER_S)
        for _thread in threads:
            try:
                self._connected.get(timeout=max(0.0, gathered - time.monotonic()))
            except queue.Empty:
                break
        self._go.set()
        for thread in threads:
            thread.join(max(0.0, self._deadline - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            self._end()
            ended = time.monotonic() + _GRACE_S
            for thread in threads:
                thread.join(max(0.0, ended - time.monotonic()))
        problem = "no complete answer in time" if threads else "this machine gives no thread to ask with"
        late = bool(threads)
        return [
            outcome or Outcome(self._prompts[place], problem=problem, late=late, began=began, ended=time.monotonic())
            for place, outcome in enumerate(list(self._outcomes))
        ]

    def _end(self) -> None:
        with self._lock:
            self._over = True
            sockets = list(self._sockets)
        for one in sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:  # ended by itself meanwhile
                continue

    def _work(self, number: int) -> None:
        place: int = number
        first = True
        while place < len(self._prompts) and (first or not self._over):
            self._outcomes[place] = self._ask(self._prompts[place], wait=first)
            first = False
            # Known once the first request was let go: the number of threads that could be started.
            place += self.workers

    def _ask(self, prompt: int, wait: bool) -> Outcome:
        began = time.monotonic()
        status, body, problem, late = 0, b"", "", False
        where = f"{self._server.host}:{self._server.port}"
        connection: http.client.HTTPConnection | None = None
        held: socket.socket | None = None
        waiting = wait
        try:
            connection = http.client.HTTPConnection(
                connect_host(self._server.host), self._server.port, timeout=max(0.1, self._deadline - time.monotonic())
            )
            connection.connect()
            held = connection.sock
            self._hold(held)
            if waiting:
                waiting = False
                self._connected.put(None)
                self._go.wait()
            began = time.monotonic()
            status, body, problem = self._exchange(connection, prompt)
        except socket.timeout:  # the same class as TimeoutError from Python 3.10 on
            late = True
        except (OSError, http.client.HTTPException) as error:
            problem = f"no answer from {where}: {str(error) or type(error).__name__}"
        except (ValueError, OverflowError) as error:  # the key is no header, the port is no port
            # The message would show the header, and the API key with it.
            problem = f"the request to {where} cannot be made, perhaps for its port or API key ({type(error).__name__})"
        finally:
            if waiting:
                self._connected.put(None)
                self._go.wait()
            self._let_go(held)
            if connection is not None:
                connection.close()
        ended = time.monotonic()
        if late or ended >= self._deadline:
            limit = max(0.0, self._deadline - began)
            return Outcome(prompt, 0, body, f"no complete answer from {where} within {limit:.1f} s", True, began, ended)
        return Outcome(prompt, 0 if problem else status, body, problem, False, began, ended)

    def _hold(self, one: socket.socket) -> None:
        with self._lock:
            self._sockets.add(one)
            if self._over:
                raise socket.timeout

    def _let_go(self, one: socket.socket | None) -> None:
        with self._lock:
            if one is not None:
                self._sockets.discard(one)

    def _exchange(self, connection: http.client.HTTPConnection, prompt: int) -> tuple[int, bytes, str]:
        """Status, body and problem of one request on an open connection."""
        headers = {"Accept": "application/json", "Connection": "close", "Content-Type": "application/json"}
        if self._server.key:
            headers["Authorization"] = f"Bearer {self._server.key}"
        connection.request("POST", "/generate", body=request_body(prompt, self._settings), headers=headers)
        response = connection.getresponse()
        body = bytearray()
        try:
            while len(body) <= self._settings.answer_bytes and not self._over:
                chunk = response.read1(65536)
                if not chunk:
                    # What the Content-Length promised and did not come.
                    broken = f"the connection was closed {response.length} bytes early" if response.length else ""
                    return response.status, bytes(body), broken
                body += chunk
        except http.client.IncompleteRead:
            return response.status, bytes(body), "the connection was closed in the middle of the answer"
        finally:
            response.close()
        return response.status, bytes(body[: self._settings.answer_bytes + 1]), ""
