# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of `compat.py`, and how it is read: every value in a form that rows can match, or an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import compat_match, compat_releases, releases
from ansible_collections.tokforge.sglang.plugins.module_utils.compat_match import Case, CompatError, shown
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole

AUTO = "auto"
NONE = "none"
_UNQUANTIZED = ("", NONE, "unquant")
_SIZES = {"tp": ("tp-size", "tensor-parallel-size", "tp"), "ep": ("ep-size", "expert-parallel-size", "ep")}


@dataclass(frozen=True)
class Query:
    """What is asked.

    flashinfer_version: "" for the release's own pin. compute_capability: "12.0", None without a GPU.
    quantization: SGLang's name, "" or "none" for none. args: launch arguments in any spelling; what they say of
    backend, quantization, tp, ep and moe_a2a_backend counts where the field itself is left as it is here.
    """

    backend: str = AUTO
    sglang_version: str = ""
    flashinfer_version: str = ""
    compute_capability: str | None = None
    quantization: str = ""
    tp: int = 1
    ep: int = 1
    moe_a2a_backend: str = NONE
    args: Mapping[str, Any] = field(default_factory=dict)
    cuda_toolkit: str = ""
    driver_version: str = ""


#: No choice of any flag is longer.
LONGEST_NAME = 80


def read(query: Query) -> tuple[Case, str]:
    """The query with everything in it read, and the asked MoE backend. Raises CompatError."""
    args = _args(query.args)
    sglang = compat_match.read_release(query.sglang_version)
    flashinfer = compat_releases.FLASHINFER.get(sglang, "")
    if query.flashinfer_version:
        flashinfer = compat_match.read_flashinfer(query.flashinfer_version)
    capability = None
    if query.compute_capability is not None:
        capability = compat_match.read_capability(query.compute_capability)
    quantization = _name("quantization", query.quantization, args.get("quantization", ""), "")
    a2a = _name("moe_a2a_backend", query.moe_a2a_backend, args.get("moe-a2a-backend", ""), NONE)
    backend = asked_backend(query)
    case = Case(
        sglang=sglang,
        flashinfer=flashinfer,
        capability=capability,
        quantization=NONE if quantization in _UNQUANTIZED else quantization,
        tp=_size("tp", query.tp, args),
        ep=_size("ep", query.ep, args),
        a2a=a2a or NONE,
        args={**args, "moe-runner-backend": backend, "moe-a2a-backend": a2a or NONE},
    )
    return case, backend


def asked_backend(query: Query) -> str:
    """The MoE backend that is asked for, by field or argument. Raises CompatError."""
    return _name("backend", query.backend, _args(query.args).get("moe-runner-backend", ""), AUTO) or AUTO


def _args(args: Mapping[str, Any]) -> dict[str, str]:
    """Launch arguments by canonical name, values as text; without those that are left out. Raises CompatError."""
    if not isinstance(args, Mapping):
        raise CompatError(f"reading args {shown(args)}: no mapping; give launch arguments with their values")
    found: dict[str, str] = {}
    for name, value in args.items():
        if value is None or value is False:
            continue
        if isinstance(value, (list, tuple)) and len(value) == 1:
            value = value[0]
        if isinstance(value, (Mapping, list, tuple)):
            continue
        key = releases.canonical(str(name))
        text = "true" if value is True else str(value).strip()
        if found.setdefault(key, text) != text:
            raise CompatError(f"reading args: {key} is both {shown(found[key])} and {shown(text)}; give it once")
    return found


def _name(field_name: str, value: object, argument: str, default: str) -> str:
    """One name that a field and an argument may both say; the argument counts when the field is left as it is."""
    if value is None:
        value = default
    if not isinstance(value, str):
        raise CompatError(f"reading {field_name} {shown(value)}: no text; give a name such as flashinfer_cutlass")
    text = value.strip()
    for told in (text, argument):
        if len(told) > LONGEST_NAME or not told.isprintable():
            raise CompatError(f"reading {field_name} {shown(told)}: no name; give one such as flashinfer_cutlass")
    if not argument or text == argument:
        return text
    if text in ("", default):
        return argument
    raise CompatError(f"reading {field_name}: it is {shown(text)}, and args say {shown(argument)}; give it once")


def _size(name: str, value: object, args: Mapping[str, str]) -> int:
    """The size of tensor or expert parallelism. Raises CompatError."""
    told = {args[flag] for flag in _SIZES[name] if flag in args}
    if value == 1 and told:
        value = told.pop() if len(told) == 1 else sorted(told)
        value = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 6 else value
    if not is_whole(value) or not 1 <= value < 100_000:
        raise CompatError(f"reading {name} {shown(value)}: no count of GPUs; give a whole number from 1")
    if told - {str(value)}:
        raise CompatError(f"reading {name}: it is {value}, and args say {', '.join(sorted(told))}; give it once")
    return value
