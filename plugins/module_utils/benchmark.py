# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a benchmark is asked to do, what its raw output says, and whether that may be believed.

Knows SGLang's bench_serving (command line and output keys, the same in 0.5.12.post1 and 0.5.23), and nothing of
processes, files or Ansible. Facts about bench_serving come from its source in these two releases.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Runs in every release. From 0.5.15 it is a shim over sglang.benchmark.serving, which 0.5.12 does not have.
ENGINE = "sglang.bench_serving"

# Real input lengths may differ from the asked one by this share before a run is invalid.
INPUT_LENGTH_TOLERANCE = 0.02

# The release says where a configuration lives, not what it is: the same configuration staged again measures the same.
_NOT_CONFIGURATION = frozenset({"release", "chosen", "backend_forced"})

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
_OTHERS = {"duration_s": "duration", "measured_concurrency": "concurrency"}
_NUMBERS = {**_RATES, **_LATENCIES, **_COUNTS, **_OTHERS}
# Written because of --output-details.
_DETAILS = ("input_lens", "output_lens", "errors", "generated_texts")

# Nobody can connect to "all addresses"; the loopback is one of them.
_ASKED_AT = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104

_SECRET_NAME = re.compile(r"(^|_)(key|password|secret|token)$")
_REDACTED = "********"


class BenchmarkError(Exception):
    """A request that cannot be run or an output that cannot be read; `facts` are what was known."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Parameters:
    """What is measured. Lengths in tokens; `num_prompts` None means `num_prompts_factor` times the concurrency."""

    concurrency: tuple[int, ...]
    input_len: int
    output_len: int
    num_prompts: int | None = None
    num_prompts_factor: int = 4
    warmup_requests: int | None = None
    seed: int = 1
    flush_cache: bool = True
    ignore_eos: bool = True

    def __post_init__(self) -> None:
        if not self.concurrency:
            raise BenchmarkError("benchmark parameters: concurrency is empty; name at least one number of requests")
        if len(set(self.concurrency)) != len(self.concurrency):
            raise BenchmarkError(f"benchmark parameters: concurrency {list(self.concurrency)} names a value twice")
        wrong = [
            f"{name}={value}"
            for name, value, least in (
                *(("concurrency", value, 1) for value in self.concurrency),
                ("input_len", self.input_len, 1),
                # With one token there is no decoding, so no TPOT and no ITL.
                ("output_len", self.output_len, 2),
                ("num_prompts_factor", self.num_prompts_factor, 1),
                ("warmup_requests", self.warmup_requests if self.warmup_requests is not None else 1, 1),
                ("seed", self.seed, 0),
            )
            if value < least
        ]
        if wrong:
            raise BenchmarkError(
                f"benchmark parameters: {', '.join(wrong)} is too small; "
                "output_len is at least 2, seed at least 0, the others at least 1"
            )
        if self.num_prompts is not None and self.num_prompts < max(self.concurrency):
            raise BenchmarkError(
                f"benchmark parameters: num_prompts={self.num_prompts} never reaches "
                f"concurrency {max(self.concurrency)}; use at least as many prompts, better several times as many"
            )

    def prompts_at(self, concurrency: int) -> int:
        """Measured requests at this concurrency."""
        return self.num_prompts if self.num_prompts is not None else self.num_prompts_factor * concurrency

    def warmup_at(self, concurrency: int) -> int:
        """Discarded requests before the measured ones.

        At least one batch of the target size (the first one compiles, allocates, captures).
        """
        return max(concurrency, self.warmup_requests or 0)

    def as_dict(self) -> dict[str, Any]:
        """The parameters as they are recorded and as they enter the fingerprint."""
        return {
            "dataset": "random-ids",
            "range_ratio": 1.0,
            "concurrency": list(self.concurrency),
            "num_prompts": {str(value): self.prompts_at(value) for value in self.concurrency},
            "warmup_requests": {str(value): self.warmup_at(value) for value in self.concurrency},
            "input_len": self.input_len,
            "output_len": self.output_len,
            "seed": self.seed,
            "flush_cache": self.flush_cache,
            "ignore_eos": self.ignore_eos,
        }


@dataclass(frozen=True)
class Target:
    """Where the server is and how its model is called.

    `tokenizer` is a directory on the machine that runs the benchmark.
    """

    host: str
    port: int
    tokenizer: str
    served_name: str

    @property
    def url(self) -> str:
        """Address of the server.

        An IPv6 host gets its brackets, a host that means "all addresses" is asked on the loopback.
        """
        host = _ASKED_AT.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def render_arguments(parameters: Parameters, target: Target, concurrency: int, output_file: str) -> list[str]:
    """Arguments of bench_serving for one point. `output_file` must not exist yet: bench_serving appends."""
    return [
        "--backend", "sglang",
        "--base-url", target.url,
        "--model", target.tokenizer,
        "--tokenizer", target.tokenizer,
        "--served-model-name", target.served_name,
        # `random` would fetch a data set. The default ratio 0.0 draws lengths from 1 to the asked one, which halves
        # them on average.
        "--dataset-name", "random-ids",
        "--random-range-ratio", "1.0",
        # Without it the ids are decoded and tokenised again by the server, and 64 asked tokens become 76.
        "--tokenize-prompt",
        "--random-input-len", str(parameters.input_len),
        "--random-output-len", str(parameters.output_len),
        "--num-prompts", str(parameters.prompts_at(concurrency)),
        "--max-concurrency", str(concurrency),
        "--warmup-requests", str(parameters.warmup_at(concurrency)),
        "--seed", str(parameters.seed),
        # The same seed gives the same prompts: without a flush every later point and run would find its prompts in the
        # radix cache.
        *(["--flush-cache"] if parameters.flush_cache else []),
        *([] if parameters.ignore_eos else ["--disable-ignore-eos"]),
        "--disable-tqdm",
        "--output-details",
        "--output-file", output_file,
    ]  # fmt: skip


def fingerprint(context: Mapping[str, Any], parameters: Parameters) -> str:
    """16 hex digits that are equal when the same configuration was measured in the same way.

    All of `context` counts except `release`, `chosen` and `backend_forced`. A value that is not JSON raises
    BenchmarkError.
    """
    configuration = {key: value for key, value in context.items() if key not in _NOT_CONFIGURATION}
    subject = {"engine": ENGINE, "context": configuration, "parameters": parameters.as_dict()}
    try:
        canonical = json.dumps(subject, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BenchmarkError(f"fingerprint of the benchmark's context: {error}; use plain values only") from error
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def same_measurement(record: Mapping[str, Any] | None, wanted: str) -> bool:
    """True when `record` (the latest one) is a valid measurement with this fingerprint, so that measuring again adds
    nothing.
    """
    return record is not None and record.get("valid") is True and record.get("fingerprint") == wanted


def parse_output(data: bytes, where: str) -> dict[str, Any]:
    """The result bench_serving wrote last, from the bytes of its JSON Lines file.

    Never falls back to an earlier line: it would be another run's. Raises BenchmarkError for an empty, half-written or
    foreign file.
    """
    advice = "see the benchmark's log"
    lines = [line for line in data.split(b"\n") if line.strip()]
    if not lines:
        raise BenchmarkError(f"benchmark output in {where}: the file is empty; {advice}")
    if not data.endswith(b"\n"):
        raise BenchmarkError(f"benchmark output in {where}: the last line is half-written; {advice}")
    try:
        result = json.loads(lines[-1])
    except (ValueError, RecursionError) as error:
        raise BenchmarkError(f"benchmark output in {where}: the last line is not JSON ({error}); {advice}") from error
    if not isinstance(result, dict):
        raise BenchmarkError(
            f"benchmark output in {where}: the last line is a {type(result).__name__}, not an object; {advice}"
        )
    return result


def redact(result: Mapping[str, Any], secrets: Iterable[str] = ()) -> bytes:
    """The raw result as one JSON line that may lie on disk.

    bench_serving copies /server_info, and that holds the server's API key in clear (0.5.12.post1 and 0.5.23). Values
    in `server_info` whose name says key, password, secret or token are replaced, and each of `secrets` wherever it
    stands. Infinity stays as bench_serving wrote it.
    """
    info = result.get("server_info")
    clean = dict(result)
    if isinstance(info, dict):
        clean["server_info"] = {
            name: _REDACTED if value and isinstance(value, str) and _SECRET_NAME.search(name) else value
            for name, value in info.items()
        }
    try:
        return hide(json.dumps(clean).encode() + b"\n", secrets)
    except RecursionError as error:
        raise BenchmarkError(f"benchmark output: it is nested too deep ({error}); see the benchmark's log") from error


def hide(data: bytes, secrets: Iterable[str]) -> bytes:
    """`data`, which holds JSON, with each of `secrets` replaced wherever it stands in a string."""
    for secret in filter(None, secrets):
        data = data.replace(json.dumps(secret)[1:-1].encode(), _REDACTED.encode())
    return data


def judge_point(
    result: Mapping[str, Any], parameters: Parameters, concurrency: int, random_weights: bool
) -> dict[str, Any]:
    """One point of the record: bench_serving's figures under our names, and whether they may be believed.

    `reasons` are why it is invalid (empty when `valid`), `warnings` what a reader must know. Figures that are missing
    or not finite are None. With `random_weights` the text is garbage by nature and is not judged.
    """
    figures = {name: _number(result.get(key)) for name, key in _NUMBERS.items()}
    texts = _texts(result)
    point: dict[str, Any] = {
        "concurrency": concurrency,
        "num_prompts": parameters.prompts_at(concurrency),
        "input_len": parameters.input_len,
        "output_len": parameters.output_len,
        **figures,
        **{name: int(value) for name in _COUNTS if (value := figures[name]) is not None},
        "accept_length": _number(result.get("accept_length")),
    }
    reasons = [
        *_unreadable(result),
        *_other_run(result, parameters, concurrency),
        *_incomplete(result, point),
        *_uncounted(result, point),
        *_wrong_input_length(result, point),
        *_wrong_output_length(result, point, parameters.ignore_eos),
        *([] if random_weights else _degenerate(texts)),
    ]
    warnings = [*_speculative(result), *_without_text(texts), *_settings(parameters)]
    return {**point, "valid": not reasons, "reasons": reasons, "warnings": warnings}


def make_record(
    *,
    run_id: str,
    recorded_at: str,
    wanted: str,
    context: Mapping[str, Any],
    parameters: Parameters,
    points: Sequence[Mapping[str, Any]],
    failure: str | None,
    output_check: Mapping[str, Any] | None,
    duration_s: float,
    raw_dir: str,
) -> dict[str, Any]:
    """The record of one run as it is stored.

    Docs/facts.md describes it. `wanted` is the fingerprint, `duration_s` the wall time of all points.
    """
    reasons = judge_run(points, parameters, failure, output_check)
    return {
        "id": run_id,
        "recorded_at": recorded_at,
        "engine": {"name": ENGINE, "version": context.get("sglang_version")},
        "fingerprint": wanted,
        "valid": not reasons,
        "reasons": reasons,
        # The same warning at every point is one warning.
        "warnings": list(dict.fromkeys(warning for point in points for warning in point["warnings"])),
        "context": dict(context),
        "parameters": parameters.as_dict(),
        "output_check": dict(output_check) if output_check is not None else None,
        "points": [dict(point) for point in points],
        "duration_s": round(duration_s, 3),
        "raw_dir": raw_dir,
    }


def summary_lines(record: Mapping[str, Any] | None) -> list[str]:
    """A record in a few lines, for a diff and for people; no record gives no line."""
    if not record:
        return []
    state = "valid" if record.get("valid") else "invalid"
    return [
        f"{record.get('recorded_at')} configuration {record.get('fingerprint')} {state}",
        *(
            f"concurrency {point.get('concurrency')}: {_rate(point.get('output_tok_s'))}"
            for point in record.get("points") or []
        ),
    ]


def _rate(value: Any) -> str:
    number = _number(value)
    return "no rate" if number is None else f"{number:.1f} output tok/s"


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


def _number(value: Any) -> float | None:
    """`value` as a finite number, else None. A bool is no number here although Python says so."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _numbers(value: Any) -> list[float]:
    found = [_number(item) for item in value] if isinstance(value, list) else []
    return [item for item in found if item is not None]


def _texts(result: Mapping[str, Any]) -> list[str]:
    """Texts of the requests that succeeded; a failed one has an error and an empty text."""
    texts, errors = result.get("generated_texts"), result.get("errors")
    if not isinstance(texts, list) or not isinstance(errors, list):
        return []
    return [text for text, error in zip(texts, errors) if isinstance(text, str) and not error]


def _unreadable(result: Mapping[str, Any]) -> Iterable[str]:
    keys = [*_NUMBERS.values(), *_DETAILS]
    missing = [key for key in keys if key not in result]
    if missing:
        yield f"bench_serving wrote no {', '.join(missing)}"
    broken = [key for key in _NUMBERS.values() if key in result and _number(result[key]) is None]
    if broken:
        yield f"not a finite number: {', '.join(f'{key}={str(result[key])[:40]}' for key in broken)}"
    for key in _RATES.values():
        value = _number(result.get(key))
        if value is not None and value <= 0:
            yield f"{key} is {value:g}"
    yield from _impossible(result)


def _impossible(result: Mapping[str, Any]) -> Iterable[str]:
    """Figures that no clock and no counter gives."""
    for key in (*_LATENCIES.values(), *_COUNTS.values(), *_OTHERS.values()):
        value = _number(result.get(key))
        if value is None:
            continue
        if value < 0 or (value == 0 and key in _OTHERS.values()):
            yield f"{key} is {value:g}"
        elif key in _COUNTS.values() and not value.is_integer():
            yield f"{key} is {value:g}, not a whole number"


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


def _degenerate(texts: Sequence[str]) -> Iterable[str]:
    """The text of a model whose logits are NaN.

    One character over and over (token 0 is "!" in many vocabularies) for different prompts.
    """
    stuck = [text for text in texts if len(text) >= 8 and len(set(text)) == 1]
    if stuck and len(stuck) * 2 > len(texts):
        yield f"degenerate_output: {len(stuck)} of {len(texts)} answers are only {stuck[0][0]!r} repeated"
    # bench_serving then assumes the asked number of tokens and never measured one.
    if texts and not any(texts):
        yield "empty_output: no request returned any text"


def _speculative(result: Mapping[str, Any]) -> Iterable[str]:
    info = result.get("server_info")
    algorithm = info.get("speculative_algorithm") if isinstance(info, dict) else None
    if algorithm or _number(result.get("accept_length")) is not None:
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
