# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs a server takes: what CUDA_VISIBLE_DEVICES leaves, and the part of it that SGLang counts from base-gpu-id.

CUDA reads numbers, or the beginnings of UUIDs, up to the first that names no GPU; an empty list leaves none (NVIDIA's
CUDA programming guide, "CUDA Environment Variables"). SGLang gives rank i the GPU base-gpu-id + i * gpu-id-step of what
is left (read in 0.5.12.post1 and 0.5.23).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, Finding
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_NUMBER = re.compile(r"[0-9]{1,4}")


@dataclass(frozen=True)
class Used:
    """The numbers of the GPUs that a server takes; None when nothing but their count is said."""

    numbers: tuple[int, ...] | None
    findings: tuple[Finding, ...] = ()


def used(gpus: Sequence[Gpu], env: Mapping[str, str], args: Mapping[str, Any], count: int) -> Used:
    """The GPUs of `count` ranks on this machine.

    :param args: launch arguments by canonical name.
    """
    visible, problem = _visible(gpus, env.get(_VARIABLE))
    if problem:
        return Used((), (Finding(FAIL, "gpu", problem, f"correct {_VARIABLE} in sglang_server_env, or leave it out"),))
    base, step = _whole(args.get("base-gpu-id"), 0), max(1, _whole(args.get("gpu-id-step"), 1))
    if visible is None and (base, step) == (0, 1):
        return Used(None)
    places = [base + rank * step for rank in range(count)]
    there = list(range(len(gpus))) if visible is None else list(visible)
    if gpus and places[-1] >= len(there):
        source = "the machine has" if visible is None else f"{_VARIABLE} leaves"
        message = f"{count} ranks from base-gpu-id {base} on need {places[-1] + 1} GPUs, and {source} {len(there)}"
        remedy = "lower tp-size, base-gpu-id or gpu-id-step"
        return Used((), (Finding(FAIL, "gpu", message, f"{remedy}, or name more GPUs"),))
    return Used(tuple(there[place] for place in places if place < len(there)))


def _visible(gpus: Sequence[Gpu], text: str | None) -> tuple[tuple[int, ...] | None, str]:
    """What the variable leaves, None without it; or what is wrong with it."""
    if text is None:
        return None, ""
    found: list[int] = []
    for part in text.split(","):
        word = part.strip()
        if word.startswith("MIG-"):
            return (), f"{_VARIABLE} is {text!r}: {word} is a part of a GPU (MIG), and SGLang needs whole ones"
        matches = _named(gpus, word)
        if len(matches) != 1:
            why = "is not there" if not matches else "is the beginning of more than one UUID"
            told = f"{word!r} {why}" if word else "a name in it is empty"
            return (), f"{_VARIABLE} is {text!r}: {told}, so CUDA shows the server no GPU from there on"
        if matches[0] in found:
            return (), f"{_VARIABLE} is {text!r}: GPU {matches[0]} is named twice, which CUDA refuses"
        found += matches
    return tuple(found), ""


def _named(gpus: Sequence[Gpu], word: str) -> list[int]:
    if _NUMBER.fullmatch(word):
        # Without a list of GPUs the check of the driver has the word.
        return [int(word)] if not gpus or any(one.index == int(word) for one in gpus) else []
    return [one.index for one in gpus if word.startswith("GPU-") and len(word) > 4 and one.uuid.startswith(word)]


def _whole(value: Any, default: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else default
