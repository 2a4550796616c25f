# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a benchmark is asked to do: points, lengths, repetitions, the server, and what names a measurement.

Knows nothing of engines, processes, files or Ansible.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole

# Measured when nothing else is asked, as far as the server's limit goes.
LADDER = (1, 8, 32, 64, 256, 512, 1024)

# Fewer tell no spread. A difference at one of the ladder's seven points only can be told from noise with six a side
# (permutation.units_needed).
LEAST_REPETITIONS = 3
USUAL_REPETITIONS = 6

# Each repetition has the next seed, and numpy, which the engines use, takes none above.
MOST_SEED = 2**32 - 1

# The release says where a configuration lives, not what it is: the same configuration staged again measures the same.
# The environment's name stands for its source.
_NOT_CONFIGURATION = frozenset({"release", "chosen", "backend_forced", "source"})

# Nobody can connect to "all addresses"; the loopback is one of them.
_ASKED_AT = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}  # noqa: S104


class BenchmarkError(Exception):
    """A request that cannot be run or an output that cannot be read; `facts` are what was known."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Parameters:
    """What is measured. Lengths in tokens; `num_prompts` None means `num_prompts_factor` times the concurrency.

    Each point of `concurrency` is measured `repetitions` times after one discarded warm-up. `capped`: points above the
    server's limit are left out, and the limit itself is measured instead.
    """

    concurrency: tuple[int, ...]
    input_len: int
    output_len: int
    num_prompts: int | None = None
    num_prompts_factor: int = 4
    warmup_requests: int | None = None
    seed: int = 1
    flush_cache: bool = True
    ignore_eos: bool = True
    repetitions: int = USUAL_REPETITIONS
    capped: bool = False

    def __post_init__(self) -> None:
        if not self.concurrency:
            raise BenchmarkError("benchmark parameters: concurrency is empty; name at least one number of requests")
        if len(set(self.concurrency)) != len(self.concurrency):
            raise BenchmarkError(f"benchmark parameters: concurrency {list(self.concurrency)} names a value twice")
        # YAML's true would count as 1, and be named True in the engine's arguments.
        odd = [value for value in self.concurrency if not is_whole(value)]
        if odd:
            raise BenchmarkError(f"benchmark parameters: concurrency {odd[0]!r} is no whole number; name numbers only")
        wrong = [
            f"{name}={value}"
            for name, value, least in (
                *(("concurrency", value, 1) for value in self.concurrency),
                ("input_len", self.input_len, 1),
                # With one token there is no decoding, so no TPOT and no ITL.
                ("output_len", self.output_len, 2),
                ("num_prompts", self.num_prompts if self.num_prompts is not None else 1, 1),
                ("num_prompts_factor", self.num_prompts_factor, 1),
                ("warmup_requests", self.warmup_requests if self.warmup_requests is not None else 1, 1),
                ("seed", self.seed, 0),
                ("repetitions", self.repetitions, 1),
            )
            if value < least
        ]
        if wrong:
            raise BenchmarkError(
                f"benchmark parameters: {', '.join(wrong)} is too small; "
                "output_len is at least 2, seed at least 0, the others at least 1"
            )
        if self.seed_of(self.repetitions - 1) > MOST_SEED:
            raise BenchmarkError(
                f"benchmark parameters: seed={self.seed} with {self.repetitions} repetitions goes beyond {MOST_SEED}; "
                "use a smaller seed"
            )
        if self.num_prompts is not None and self.num_prompts < max(self.concurrency) and not self.capped:
            raise BenchmarkError(
                f"benchmark parameters: num_prompts={self.num_prompts} never reaches "
                f"concurrency {max(self.concurrency)}; use at least as many prompts, better several times as many"
            )

    def prompts_at(self, concurrency: int) -> int:
        """Measured requests of one repetition at this concurrency."""
        return self.num_prompts if self.num_prompts is not None else self.num_prompts_factor * concurrency

    def warmup_at(self, concurrency: int) -> int:
        """Discarded requests before the first repetition.

        At least one batch of the target size (the first one compiles, allocates, captures).
        """
        return max(concurrency, self.warmup_requests or 0)

    def seed_of(self, repetition: int) -> int:
        """Seed of a repetition, counted from 0.

        Each has prompts of its own: where the prefix cache cannot be emptied, the same ones would be found in it. Two
        runs with the same seed send the same prompts in the same order.
        """
        return self.seed + repetition

    def within(self, most: int | None) -> Parameters:
        """With the points that a server takes which runs `most` requests at once; None when that is not known.

        More points than prompts there are none either.
        """
        most = most_at_once((most, self.num_prompts))
        if not self.capped or most is None or max(self.concurrency) <= most:
            return self
        return replace(self, concurrency=tuple(dict.fromkeys(min(value, most) for value in self.concurrency)))

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
            "repetitions": self.repetitions,
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

        An IPv6 host gets its brackets when it has none, a host that means "all addresses" is asked on the loopback.
        """
        given = self.host[1:-1] if self.host.startswith("[") and self.host.endswith("]") else self.host
        host = _ASKED_AT.get(given, given)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def configuration(context: Mapping[str, Any]) -> str:
    """16 hex digits that are equal for the same configuration of the server.

    All of `context` counts except `release`, `chosen`, `backend_forced` and `source`. A value that is not JSON raises
    BenchmarkError.
    """
    return _digest({key: value for key, value in context.items() if key not in _NOT_CONFIGURATION})


def fingerprint(engine: str, context: Mapping[str, Any], parameters: Parameters) -> str:
    """16 hex digits that are equal when the same configuration was measured in the same way.

    `parameters` are those asked for: what a server's limit leaves of them follows from the configuration.
    """
    return _digest({"engine": engine, "configuration": configuration(context), "parameters": parameters.as_dict()})


def _digest(subject: Mapping[str, Any]) -> str:
    try:
        canonical = json.dumps(subject, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BenchmarkError(f"fingerprint of the benchmark's context: {error}; use plain values only") from error
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def most_at_once(limits: Sequence[int | None]) -> int | None:
    """The least of the limits that are known."""
    known = [limit for limit in limits if limit]
    return min(known) if known else None
