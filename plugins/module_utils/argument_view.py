# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How rules ask for the arguments of a start, and what a bound and a rule are.

The rules themselves are data in `argument_rules.py` and `argument_bounds.py`, `argument_conflicts.py` applies them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.compat_data import Proof
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole

FAIL = "fail"
WARN = "warn"
#: No argument is a number this great; Python's greater ones are no floats.
GREATEST = 2**63


@dataclass(frozen=True)
class View:
    """The arguments of a start by canonical flag name, and its environment; asked by the rules."""

    args: Mapping[str, Any]
    env: Mapping[str, Any]

    def given(self, name: str) -> bool:
        """Whether the argument says anything."""
        return self.args.get(name) not in (None, False)

    def on(self, name: str) -> bool:
        """Whether a switch is on."""
        return self.args.get(name) is True

    def number(self, name: str) -> float | None:
        """A number, also one that is written as text; None when the argument is absent or no finite number."""
        value = self.args.get(name)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                return None
        if is_whole(value):
            return float(value) if abs(value) < GREATEST else None
        return value if isinstance(value, float) and math.isfinite(value) else None

    def count(self, name: str, default: int = 1) -> int:
        """A whole number of at least one; anything else is the default, so that no rule divides by zero."""
        value = self.number(name)
        return int(value) if value is not None and value >= 1 else default

    def text(self, name: str, default: str = "") -> str:
        """A text; the default when the argument is absent or no text."""
        value = self.args.get(name)
        return value if isinstance(value, str) else default

    def shown(self, name: str) -> str:
        """The value as a message shows it."""
        value = self.args.get(name)
        return "on" if value is True else str(value)[:40]

    @property
    def attention_dp(self) -> int:
        """The groups of data-parallel attention; 1 without it."""
        return self.count("dp-size") if self.on("enable-dp-attention") else self.count("attn-dp-size")

    @property
    def speculative(self) -> str:
        """The speculative algorithm in capitals; empty without one."""
        return self.text("speculative-algorithm").upper()


@dataclass(frozen=True)
class Bound:
    """The numbers that a flag may have: from `least` (not itself when `above`) to `most`, None for no limit."""

    flag: str
    least: float
    most: float | None
    sglang: str
    proofs: tuple[Proof, ...]
    above: bool = False

    def holds(self, value: float) -> bool:
        """Whether the number is one of them."""
        if value < self.least or (self.above and value == self.least):
            return False
        return self.most is None or value <= self.most

    def words(self) -> str:
        """The bounds for a message."""
        if self.most is None:
            return f"at least {self.least:g}"
        if self.above:
            return f"more than {self.least:g} and at most {self.most:g}"
        return f"a number from {self.least:g} to {self.most:g}"


@dataclass(frozen=True)
class Rule:
    """Arguments that do not go together.

    `flags` are those concerned; `message` is about the first of them that is given, and says what happens, without the
    release. `sglang` is the span of releases it holds for, both ends included, either left open.
    """

    name: str
    flags: tuple[str, ...]
    broken: Callable[[View], bool]
    message: str
    remedy: str
    sglang: str
    proofs: tuple[Proof, ...]
    level: str = FAIL


OLD = "sglang/srt/server_args.py"
NEW = "sglang/srt/arg_groups/"
VALIDATION = f"{NEW}validation_hook.py"
PARALLEL = f"{NEW}parallel_hook.py"
SPECULATIVE = f"{NEW}speculative_hook.py"
SERVING = f"{NEW}serving_hook.py"
CACHE = f"{NEW}kv_cache_hook.py"
DISAGGREGATION = f"{NEW}pd_disaggregation_hook.py"
LORA = f"{NEW}lora_hook.py"
NEWEST = "0.5.23"


def at(text: str, *places: tuple[str, str]) -> tuple[Proof, ...]:
    """One text in several releases, each with the file it stands in."""
    return tuple(Proof(f"sglang {release}", file, text) for release, file in places)


def since(text: str, first: str, file: str) -> tuple[Proof, ...]:
    """A text that stood in server_args.py first, and stands in `file` of the newest release."""
    return at(text, (first, OLD), (NEWEST, file))
