# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which rows of `compat_data.py` hold for a case: versions, compute capabilities and ranges, read and compared."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import compat_data, releases
from ansible_collections.tokforge.sglang.plugins.module_utils.compat_data import Row

Capability = tuple[int, int]

#: What is judged. The rows of a phase (`_prefill`, `_decode`) count beside those of the part without it.
PARTS = (
    "moe",
    "quantization",
    "a2a",
    "attention",
    "attention_prefill",
    "attention_decode",
    "dsa",
    "dsa_prefill",
    "dsa_decode",
    "fp4_gemm",
    "fp8_gemm",
    "allreduce_fusion",
    "toolkit",
    "driver",
)
#: Conditions on the sizes of tensor and expert parallelism, by the name that a row has for them.
PARALLEL: dict[str, Callable[[int, int], bool]] = {
    "ep in (1, tp)": lambda tp, ep: ep in (1, tp),
    "ep not in (1, tp)": lambda tp, ep: ep not in (1, tp),
    "ep == 1": lambda tp, ep: ep == 1,
    "ep != 1": lambda tp, ep: ep != 1,
    "ep does not divide tp": lambda tp, ep: tp % ep != 0,
    "tp == 1": lambda tp, ep: tp == 1,
    "tp > 1": lambda tp, ep: tp > 1,
}
#: What stands for an argument that is left out.
LEFT_OUT = "auto"
#: Names of a development state that is no release.
_DEVELOPMENT = re.compile(
    r"main|master|head|dev|latest|nightly|[0-9a-f]{7,40}|\d+(\.\d+)*(\.?(a|b|rc|post)\d+)*\.?dev\d*", re.ASCII
)
#: What may follow a version's plus sign: whose build it is.
_LOCAL = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*", re.ASCII)
#: The greatest major compute capability that is believed; the newest GPUs have 12.
_GREATEST_MAJOR = 20
_LONGEST = 60


class CompatError(ValueError):
    """A value that cannot be read; the message names it and the allowed form."""


@dataclass(frozen=True)
class Case:
    """What rows are matched with, all of it read: no text that could still be in another form.

    capability: None without a GPU. args: by canonical name, values as text.
    """

    sglang: str
    flashinfer: str
    capability: Capability | None
    quantization: str
    tp: int
    ep: int
    a2a: str
    args: Mapping[str, str]


def shown(value: object) -> str:
    """A value as a message shows it, in one line and never long."""
    try:
        text = ascii(value)
    except ValueError:
        # Python writes no number of more than 4300 digits.
        text = "(a huge number)"
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def text_of(value: object) -> str:
    """A text or number as text, without blanks around it; "" for anything else, also for what Python cannot write."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return ""
    try:
        return str(value).strip()
    except ValueError:
        return ""


def read_capability(value: object) -> Capability:
    """The compute capability in 12.0, "12.0", "12", "120", "sm120", "SM_120a". Raises CompatError."""
    text = text_of(value).lower()
    pair = re.fullmatch(r"(\d{1,2})(?:\.(\d))?", text, re.ASCII)
    joined = re.fullmatch(r"(?:sm_?|compute_)?(\d{1,2})(\d)([af]?)", text, re.ASCII)
    found = None
    if pair and int(pair[1]) <= _GREATEST_MAJOR:
        found = int(pair[1]), int(pair[2] or 0)
    elif joined and (not joined[3] or not text[0].isdigit()):
        found = int(joined[1]), int(joined[2])
    if found is None or not 2 <= found[0] <= _GREATEST_MAJOR:
        raise CompatError(f"reading the compute capability {shown(value)}: no such form; give it as 12.0, 9.0 or sm120")
    return found


def read_release(value: object) -> str:
    """The name of a SGLang release, known or not, or of a development state. Raises CompatError.

    A release that somebody built again (0.5.23+cu130) counts as the release.
    """
    text = text_of(value)
    if value == "":
        raise CompatError("reading the SGLang version: there is none; give sglang_version, a release such as 0.5.23")
    text = text[1:] if re.match(r"[vV]\d", text) else text
    text = text.lower()
    name, plus, local = text.partition("+")
    built = len(text) <= _LONGEST and (not plus or _LOCAL.fullmatch(local))
    if built and is_version(name):
        return name
    if built and _DEVELOPMENT.fullmatch(name):
        return text
    raise CompatError(f"reading the SGLang version {shown(value)}: no such form; give a release such as 0.5.23")


def read_flashinfer(value: object) -> str:
    """A FlashInfer version without what follows a plus sign. Raises CompatError."""
    text = text_of(value).partition("+")[0]
    text = text[1:] if re.match(r"[vV]\d", text) else text
    nightly = len(text) <= _LONGEST and re.fullmatch(r"\d+(\.\d+)*(rc\d+|\.post\d+)?\.dev\d+", text, re.ASCII)
    if not is_version(text) and not nightly:
        raise CompatError(f"reading the FlashInfer version {shown(value)}: no such form; give a version such as 0.6.12")
    return text


def read_numbers(what: str, example: str, value: object) -> str:
    """A version that is numbers and dots alone, as CUDA toolkits and drivers have it. Raises CompatError."""
    text = text_of(value)
    if not re.fullmatch(r"\d{1,4}(\.\d{1,4}){0,3}", text, re.ASCII):
        raise CompatError(f"reading the {what} {shown(value)}: no such form; give a version such as {example}")
    return text


def is_version(text: str) -> bool:
    """Whether it is the name of a release, as `releases.sort_key` orders them, and no overlong one."""
    if len(text) > _LONGEST or not text.isascii():
        return False
    try:
        releases.sort_key(text)
    except releases.ReleaseError:
        return False
    return True


def in_capabilities(capability: Capability, spec: str) -> bool:
    """Whether a compute capability is in "12.*", "9.0..", "..8.9" or one of several with | between them."""
    return any(_in_capability_range(capability, one) for one in spec.split("|"))


def _in_capability_range(capability: Capability, spec: str) -> bool:
    first, dots, last = spec.partition("..")
    last = last if dots else first
    low = _bound(first, 0) if first else (0, 0)
    high = _bound(last, 9) if last else (99, 9)
    return low <= capability <= high


def _bound(text: str, minor: int) -> Capability:
    major, _dot, rest = text.partition(".")
    return int(major), minor if rest == "*" else int(rest)


def in_numbers(version: str, spec: str) -> bool:
    """Whether 12.8.1 is in "12.8", "..12.8" or "12.8..": it is compared in as many places as the bound has."""
    first, dots, last = spec.partition("..")
    numbers = [int(part) for part in version.split(".")]

    def against(bound: str) -> tuple[list[int], list[int]]:
        wanted = [int(part) for part in bound.split(".")]
        return (numbers + [0] * len(wanted))[: len(wanted)], wanted

    if not dots:
        mine, wanted = against(spec)
        return mine == wanted
    for bound, sign in ((first, 1), (last, -1)):
        if bound:
            mine, wanted = against(bound)
            if (mine < wanted and sign > 0) or (mine > wanted and sign < 0):
                return False
    return True


def flashinfer_was_read(version: str) -> bool:
    """Whether the version lies between the oldest and the newest that were read."""
    return is_version(version) and releases.in_span(version, "..".join(compat_data.FLASHINFER_READ))


def holds(row: Row, case: Case) -> bool:
    """Whether all of a row's conditions but part and backend hold."""
    return (
        releases.in_span(case.sglang, row.sglang)
        and (not row.flashinfer or (is_version(case.flashinfer) and releases.in_span(case.flashinfer, row.flashinfer)))
        and (not row.capability or (case.capability is not None and in_capabilities(case.capability, row.capability)))
        and (not row.quantization or case.quantization in row.quantization)
        and (not row.not_quantization or case.quantization not in row.not_quantization)
        and (not row.parallel or PARALLEL[row.parallel](case.tp, case.ep))
        and (not row.a2a or case.a2a in row.a2a)
        and all(_argument(case, name) in values for name, values in row.args)
        and not any(_argument(case, name) in values for name, values in row.unless_args)
    )


def _argument(case: Case, name: str) -> str:
    return case.args.get(releases.canonical(name), LEFT_OUT)


def rows_for(parts: Sequence[str], backend: str, case: Case) -> list[Row]:
    """The rows of these parts that hold for the backend, in the data's order."""
    return [row for row in _rows_of(tuple(parts)) if _names(row, backend) and holds(row, case)]


@functools.lru_cache(maxsize=64)
def _rows_of(parts: tuple[str, ...]) -> tuple[Row, ...]:
    return tuple(row for row in compat_data.ROWS if row.part in parts)


def _names(row: Row, backend: str) -> bool:
    if row.part in ("toolkit", "driver"):
        return any(in_numbers(backend, spec) for spec in row.backends)
    return not row.backends or backend in row.backends


def told(row: Row, backend: str, case: Case) -> str:
    """A row's reason with the case's figures in it."""
    capability = "none" if case.capability is None else f"{case.capability[0]}.{case.capability[1]}"
    values: dict[str, Any] = {
        "backend": backend,
        "capability": capability,
        "sm": capability.replace(".", ""),
        "sglang": case.sglang,
        "flashinfer": case.flashinfer,
        "quantization": case.quantization,
        "tp": case.tp,
        "ep": case.ep,
    }
    return row.reason.format(**values)


def sources(rows: Sequence[Row]) -> tuple[str, ...]:
    """Where the rows were read, each place once: "sglang 0.5.11 <file>: <text>", or a public document's name."""
    found = [f"{proof.wheel} {proof.file}: {proof.text}" for row in rows for proof in row.proofs]
    found += [row.source for row in rows if row.source]
    return tuple(dict.fromkeys(found))
