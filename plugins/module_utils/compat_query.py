# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of `compat.py`, and how it is read: every value in a form that rows can match, or an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import compat_match, compat_releases, releases
from ansible_collections.tokforge.sglang.plugins.module_utils.compat_match import Case, CompatError, shown
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole
from ansible_collections.tokforge.sglang.plugins.module_utils.server_args import SECRETS

AUTO = "auto"
NONE = "none"
_UNQUANTIZED = ("", NONE, "unquant")
#: What a backend or a quantization can be called; messages and commands repeat it.
_NAME = re.compile(r"[a-z0-9][a-z0-9_.+-]{0,79}", re.ASCII | re.IGNORECASE)
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
    quantization = _told("quantization", query.quantization, args.get("quantization", ""), "")
    a2a = _told("moe_a2a_backend", query.moe_a2a_backend, args.get("moe-a2a-backend", ""), NONE)
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
    return _told("backend", query.backend, _args(query.args).get("moe-runner-backend", ""), AUTO) or AUTO


def filled(query: Query) -> Query:
    """The query with all that is judged by its own field, also what args say and what was left out. CompatError."""
    case, backend = read(query)
    return replace(
        query,
        backend=backend,
        sglang_version=case.sglang,
        flashinfer_version=case.flashinfer,
        compute_capability=None if case.capability is None else f"{case.capability[0]}.{case.capability[1]}",
        quantization=case.quantization,
        tp=case.tp,
        ep=case.ep,
        moe_a2a_backend=case.a2a,
    )


def names_quantization(query: Query) -> bool:
    """Whether the query says which quantization, by its field or by an argument. Raises CompatError."""
    return bool(query.quantization or _args(query.args).get("quantization"))


def without(query: Query, flag: str) -> Query:
    """The query without a launch argument, in whatever spelling."""
    return replace(query, args={name: value for name, value in query.args.items() if _flag(name) != flag})


def _args(args: Mapping[str, Any]) -> dict[str, str]:
    """Launch arguments by canonical name, values as text; without those that are left out. Raises CompatError."""
    if not isinstance(args, Mapping):
        raise CompatError(f"reading args {shown(args)}: no mapping; give launch arguments with their values")
    found: dict[str, str] = {}
    for name, value in args.items():
        if isinstance(value, (list, tuple)) and len(value) == 1:
            value = value[0]
        if value is None or value is False or isinstance(value, (Mapping, list, tuple)):
            continue
        key = _flag(name)
        text = _text(key, value)
        if found.setdefault(key, text) != text:
            both = "two values" if key in SECRETS else f"both {shown(found[key])} and {shown(text)}"
            raise CompatError(f"reading args: {shown_name(key)} is {both}; give it once")
    return found


def _flag(name: object) -> str:
    return releases.canonical(str(name))


def _text(key: str, value: object) -> str:
    if value is True:
        return "true"
    try:
        return str(value).strip()
    except ValueError:
        message = f"reading args: {shown_name(key)} is {shown(value)}; give a number that one can write"
        raise CompatError(message) from None


def shown_name(name: str) -> str:
    """A name as it is, anything else as `shown` has it."""
    return name if _NAME.fullmatch(name) else shown(name)


def read_name(field_name: str, text: str) -> str:
    """The name of a backend or a quantization, known or not. Raises CompatError."""
    if not _NAME.fullmatch(text):
        message = f"reading {field_name} {shown(text)}: no name; give one such as flashinfer_cutlass"
        raise CompatError(f"{message}, of at most 80 letters, digits, _ and -")
    return text


def _told(field_name: str, value: object, argument: str, default: str) -> str:
    """One name that a field and an argument may both say; the argument counts when the field is left as it is."""
    if value is None:
        value = default
    if not isinstance(value, str):
        raise CompatError(f"reading {field_name} {shown(value)}: no text; give a name such as flashinfer_cutlass")
    text = value.strip()
    for name in filter(None, (text, argument)):
        read_name(field_name, name)
    if not argument or text == argument:
        return text
    unquantized = field_name == "quantization" and text in _UNQUANTIZED and argument in _UNQUANTIZED
    if text in ("", default) or unquantized:
        return argument
    raise CompatError(f"reading {field_name}: it is {shown(text)}, and args say {shown(argument)}; give it once")


def _size(name: str, value: object, args: Mapping[str, str]) -> int:
    """The size of tensor or expert parallelism. Raises CompatError."""
    told = {args[flag] for flag in _SIZES[name] if flag in args}
    if is_whole(value) and value == 1 and told:
        value = told.pop() if len(told) == 1 else sorted(told)
        value = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 6 else value
    if not is_whole(value) or not 1 <= value < 100_000:
        raise CompatError(f"reading {name} {shown(value)}: no count of GPUs; give a whole number from 1")
    if told - {str(value)}:
        raise CompatError(f"reading {name}: it is {value}, and args say {', '.join(sorted(told))}; give it once")
    return value
