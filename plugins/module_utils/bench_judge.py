# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether one repetition, and a whole run, may be believed.

Works on figures under bench_serving's names, which the other engines' files translate theirs to. `judge` gives them our
names; nothing here knows where they come from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import Parameters
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import finite

# Real input lengths may differ from the asked one by this share before a run is invalid.
INPUT_LENGTH_TOLERANCE = 0.02

# A rate may differ by this share from what the counts and the duration give: engines end their clocks at other moments.
RATE_TOLERANCE = 0.05

# More requests than asked cannot be under way, but for the moments at which an engine begins and ends its clocks.
CONCURRENCY_TOLERANCE = 0.05

# By this share a percentile may be below the median: what an engine rounds.
_ROUNDING = 0.001

# An answer with fewer characters says nothing of the model, and one of which more are the same is stuck.
_SHORTEST_TEXT = 8
_STUCK_SHARE = 0.9

# Our name -> bench_serving's key. Rates are per second over the whole run, so output_throughput is the decode speed;
# total_throughput adds the prompt tokens, which are processed in parallel, and says little about decoding.
_RATES = {
    "output_tok_s": "output_throughput",
    "input_tok_s": "input_throughput",
    "total_tok_s": "total_throughput",
    "request_s": "request_throughput",
}
_LATENCIES = {
    f"{name}_{statistic}_ms": f"{statistic}_{name}_ms"
    for name in ("ttft", "tpot", "itl")
    for statistic in ("mean", "median", "p99")
}
_COUNTS = {"completed": "completed", "input_tokens": "total_input_tokens", "output_tokens": "total_output_tokens"}
# What each rate is per second of.
_COUNTED = {
    "output_tok_s": ("output_tokens",),
    "input_tok_s": ("input_tokens",),
    "total_tok_s": ("input_tokens", "output_tokens"),
    "request_s": ("completed",),
}
_OTHERS = {"duration_s": "duration", "measured_concurrency": "concurrency"}
NUMBERS = {**_RATES, **_LATENCIES, **_COUNTS, **_OTHERS}
COUNTS = tuple(_COUNTS)
# Written because of --output-details.
_DETAILS = ("input_lens", "output_lens", "errors", "generated_texts")


def judge(
    result: Mapping[str, Any],
    parameters: Parameters,
    concurrency: int,
    random_weights: bool,
    not_told: Collection[str] = (),
) -> dict[str, Any]:
    """One repetition: the engine's figures under our names, and whether they may be believed.

    `reasons` are why it is invalid (empty when `valid`), `warnings` what a reader must know. Figures that are missing
    or not finite are None. With `random_weights` the text is garbage by nature and is not judged. `not_told` names the
    figures that the engine never has: what cannot be checked is a warning then, not a reason.
    """
    figures = {name: finite(result.get(key)) for name, key in NUMBERS.items()}
    texts = _texts(result)
    point: dict[str, Any] = {
        "concurrency": concurrency,
        "num_prompts": parameters.prompts_at(concurrency),
        "input_len": parameters.input_len,
        "output_len": parameters.output_len,
        **figures,
        **{name: int(value) for name in _COUNTS if (value := figures[name]) is not None},
        "accept_length": finite(result.get("accept_length")),
    }
    reasons = [
        *_unreadable(result, not_told),
        *_other_run(result, parameters, concurrency),
        *_contradicted(point),
        *_untimed(point),
        *_above_asked(point),
        *_incomplete(result, point),
        *_uncounted(result, point),
        *_wrong_input_length(result, point),
        *_wrong_output_length(result, point, parameters.ignore_eos),
        *([] if random_weights else [*_unjudged(result, point), *_degenerate(texts)]),
    ]
    warnings = [*_speculative(result), *_without_text(texts), *_settings(parameters), *_unchecked(not_told)]
    return {**point, "valid": not reasons, "reasons": reasons, "warnings": warnings}


def judge_run(
    points: Sequence[Mapping[str, Any]],
    parameters: Parameters,
    failure: str | None,
    output_check: Mapping[str, Any] | None,
) -> list[str]:
    """Why a whole run is invalid; empty when it is valid.

    `failure` says why the run ended early. `output_check` is another tool's verdict on the text, {"passed": bool,
    "reason": str}; None: not checked.
    """
    reasons = [f"concurrency {point['concurrency']}: {reason}" for point in points for reason in point["reasons"]]
    measured = {point["concurrency"] for point in points}
    missing = [value for value in parameters.concurrency if value not in measured]
    if failure:
        reasons.append(failure)
    if missing:
        reasons.append(f"no result for concurrency {', '.join(map(str, missing))}")
    if output_check is not None and output_check.get("passed") is not True:
        reasons.append(f"output check failed: {output_check.get('reason') or 'no reason given'}")
    return reasons


def _numbers(value: Any) -> list[float]:
    found = [finite(item) for item in value] if isinstance(value, list) else []
    return [item for item in found if item is not None]


def _texts(result: Mapping[str, Any]) -> list[str]:
    """Texts of the requests that succeeded; a failed one has an error and an empty text."""
    texts, errors = result.get("generated_texts"), result.get("errors")
    if not isinstance(texts, list) or not isinstance(errors, list):
        return []
    return [text for text, error in zip(texts, errors) if isinstance(text, str) and not error]


def _unchecked(not_told: Collection[str]) -> Iterable[str]:
    if not_told:
        yield f"this engine does not tell {', '.join(not_told)}, so nothing could be checked by it"


def _unreadable(result: Mapping[str, Any], not_told: Collection[str]) -> Iterable[str]:
    keys = [*NUMBERS.values(), *_DETAILS]
    missing = [key for key in keys if key not in result and key not in not_told]
    if missing:
        yield f"the engine wrote no {', '.join(missing)}"
    broken = [key for key in NUMBERS.values() if key in result and finite(result[key]) is None]
    if broken:
        yield f"not a finite number: {', '.join(f'{key}={str(result[key])[:40]}' for key in broken)}"
    for key in _RATES.values():
        value = finite(result.get(key))
        if value is not None and value <= 0:
            yield f"{key} is {value:g}"
    yield from _impossible(result)


def _impossible(result: Mapping[str, Any]) -> Iterable[str]:
    """Figures that no clock and no counter gives."""
    for key in (*_LATENCIES.values(), *_COUNTS.values(), *_OTHERS.values()):
        value = finite(result.get(key))
        if value is None:
            continue
        if value < 0 or (value == 0 and key in _OTHERS.values()):
            yield f"{key} is {value:g}"
        elif key in _COUNTS.values() and not value.is_integer():
            yield f"{key} is {value:g}, not a whole number"
    for name in ("ttft", "tpot", "itl"):
        median, high = finite(result.get(f"median_{name}_ms")), finite(result.get(f"p99_{name}_ms"))
        if median is not None and high is not None and 0 <= high < median * (1 - _ROUNDING):
            yield f"p99_{name}_ms is {high:g}, below the median with {median:g}"
    yield from _impossible_accept_length(result.get("accept_length"))


def _impossible_accept_length(told: Any) -> Iterable[str]:
    """SGLang's avg_spec_accept_length is the accepted drafts and the target's own token, by the steps of all requests
    (scheduler_metrics_mixin.py in 0.5.12, metrics_reporter.py with managers/utils.py in 0.5.23): one at least. Without
    speculative decoding there is none.
    """
    value = finite(told)
    if told is not None and value is None:
        yield f"not a finite number: accept_length={str(told)[:40]}"
    elif value is not None and value < 1 - _ROUNDING:
        yield f"accept_length is {value:g}, but every step gives a token"


def _untimed(point: Mapping[str, Any]) -> Iterable[str]:
    """Latencies of 0, which are those of answers that never came.

    An ITL of 0 can be real: a busy server sends several tokens at once, and a client that finds two answers in one read
    sees no time between them. So can the TPOT of an answer: of one token there is none, and bench_serving writes 0. The
    mean of all answers can not, when they have more than a token: the first one is sent as soon as it is there.
    """
    for statistic in ("mean", "median", "p99"):
        if point[f"ttft_{statistic}_ms"] == 0:
            yield f"{statistic}_ttft_ms is 0"
    completed, tokens = point["completed"], point["output_tokens"]
    if point["tpot_mean_ms"] == 0 and completed is not None and tokens is not None and tokens > completed:
        yield f"mean_tpot_ms is 0 with {tokens} tokens in {completed} answers"


def _above_asked(point: Mapping[str, Any]) -> Iterable[str]:
    measured, asked = point["measured_concurrency"], point["concurrency"]
    if measured is not None and measured > asked * (1 + CONCURRENCY_TOLERANCE):
        yield f"concurrency is {measured:g}, asked was {asked}"


def _contradicted(point: Mapping[str, Any]) -> Iterable[str]:
    """Rates and latencies that the same output's counts and duration contradict."""
    duration = point["duration_s"]
    if duration is None or duration <= 0:
        return
    for name, counts in _COUNTED.items():
        rate, found = point[name], [point[count] for count in counts]
        known = [count for count in found if count is not None]
        if rate is None or rate <= 0 or len(known) < len(counts) or not sum(known) > 0:
            continue
        given = sum(known) / duration
        if abs(rate - given) > RATE_TOLERANCE * given:
            yield f"{_RATES[name]} is {rate:g}, but {sum(known):g} in {duration:g} s are {given:g} a second"
    for name, key in _LATENCIES.items():
        if point[name] is not None and point[name] > duration * 1000 * (1 + RATE_TOLERANCE):
            yield f"{key} is {point[name]:g}, longer than the whole repetition with its {duration:g} s"


def _other_run(result: Mapping[str, Any], parameters: Parameters, concurrency: int) -> Iterable[str]:
    """What bench_serving says it was asked must be what we asked, or the line is another run's."""
    asked = {
        "dataset_name": "random-ids",
        "random_range_ratio": 1.0,
        "max_concurrency": concurrency,
        "random_input_len": parameters.input_len,
        "random_output_len": parameters.output_len,
    }
    for key, value in asked.items():
        if key in result and result[key] != value:
            yield f"{key} is {result[key]}, asked was {value}"


def _incomplete(result: Mapping[str, Any], point: Mapping[str, Any]) -> Iterable[str]:
    if point["completed"] is not None and point["completed"] != point["num_prompts"]:
        yield f"{point['completed']} of {point['num_prompts']} requests completed"
    listed = result.get("errors")
    errors = [error for error in listed if error] if isinstance(listed, list) else []
    if errors:
        yield f"{len(errors)} requests failed, the first with: {_last_line(str(errors[0]))}"


def _last_line(text: str) -> str:
    """The line of a traceback that says what happened, bounded: a server's error page can be long."""
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else "no message"


def _uncounted(result: Mapping[str, Any], point: Mapping[str, Any]) -> Iterable[str]:
    """Lengths that are not there cannot be held against what was asked."""
    for key in ("input_lens", "output_lens"):
        found = len(_numbers(result.get(key)))
        if key in result and found != point["num_prompts"]:
            yield f"{key} has {found} lengths for {point['num_prompts']} requests"


def _wrong_input_length(result: Mapping[str, Any], point: Mapping[str, Any]) -> Iterable[str]:
    asked = point["input_len"]
    # input_lens is the server's own count from 0.5.23 on; the total is what bench_serving believes it sent. Both must
    # hold.
    counted = _numbers(result.get("input_lens"))
    means = [sum(counted) / len(counted)] if counted else []
    if point["input_tokens"] is not None and point["completed"]:
        means.append(point["input_tokens"] / point["completed"])
    wrong = [mean for mean in means if abs(mean - asked) > INPUT_LENGTH_TOLERANCE * asked]
    if wrong:
        yield f"mean input length is {wrong[0]:g} tokens, asked were {asked}"


def _wrong_output_length(result: Mapping[str, Any], point: Mapping[str, Any], ignore_eos: bool) -> Iterable[str]:
    if not ignore_eos:
        return
    asked = point["num_prompts"] * point["output_len"]
    if point["output_tokens"] is not None and point["output_tokens"] != asked:
        yield f"{point['output_tokens']} output tokens, asked were {asked}"
    # A sum can be right by accident.
    elif any(length != point["output_len"] for length in _numbers(result.get("output_lens"))):
        yield f"not every request gave the asked {point['output_len']} output tokens"


def _unjudged(result: Mapping[str, Any], point: Mapping[str, Any]) -> Iterable[str]:
    """Texts that are not there cannot be degenerate, so their absence must show."""
    for key in ("errors", "generated_texts"):
        listed = result.get(key)
        found = sum(isinstance(entry, str) for entry in listed) if isinstance(listed, list) else 0
        if key in result and found != point["num_prompts"]:
            yield f"{key} has {found} texts for {point['num_prompts']} requests"


def _degenerate(texts: Sequence[str]) -> Iterable[str]:
    """The text of a model whose logits are NaN.

    One character over and over (token 0 is "!" in many vocabularies) for different prompts, with a line end or a space
    between or another token once in a while.
    """
    stuck = [found for text in texts if (found := _stuck_on(text))]
    if stuck and len(stuck) * 2 > len(texts):
        yield f"degenerate_output: {len(stuck)} of {len(texts)} answers are only {stuck[0]!r} repeated"
    # bench_serving then assumes the asked number of tokens and never measured one.
    if texts and not any(texts):
        yield "empty_output: no request returned any text"


def _stuck_on(text: str) -> str:
    """The character that a text repeats, "" when it does not or is too short to tell."""
    visible = "".join(text.split())
    blank = len(text) - len(visible) > _STUCK_SHARE * len(text)
    told = text if blank else visible
    if len(told) < _SHORTEST_TEXT:
        return ""
    character, count = Counter(told).most_common(1)[0]
    return character if blank or count > _STUCK_SHARE * len(told) else ""


def _speculative(result: Mapping[str, Any]) -> Iterable[str]:
    info = result.get("server_info")
    algorithm = info.get("speculative_algorithm") if isinstance(info, dict) else None
    if algorithm or finite(result.get("accept_length")) is not None:
        yield (
            "speculative decoding is on: random prompts are accepted at another rate than real text, "
            "compare only with runs that have it on as well"
        )


def _without_text(texts: Sequence[str]) -> Iterable[str]:
    empty = sum(1 for text in texts if not text)
    if 0 < empty < len(texts):
        yield f"{empty} requests returned no text: bench_serving assumes their token counts"


def _settings(parameters: Parameters) -> Iterable[str]:
    if not parameters.ignore_eos:
        yield "the end-of-sequence token was not ignored: answers may be shorter than asked"
    if not parameters.flush_cache:
        yield "the prefix cache was not emptied: prompts sent before cost nothing, so TTFT and rates can be too good"
