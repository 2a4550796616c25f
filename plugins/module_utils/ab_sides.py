# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The two sides of an A/B run from one word: the autotune gate, or one thing with two values."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    autotune_gate,
    flag_names,
    launch_plan,
    releases,
)
from ansible_collections.tokforge.sglang.plugins.module_utils import experiment_settings as settings_of
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import CLOSED, OPEN, ExperimentError

GATE = "autotune_gate"
NO_AUTOTUNE = "disable-flashinfer-autotune"
UPSTREAM, PATCH, NONE = "upstream", "patch", "none"


@dataclass(frozen=True)
class Side:
    """One side: a label for people, and complete settings."""

    label: str
    settings: Mapping[str, Any]


def sides(
    base: Mapping[str, Any], about: Any, values: Any = None, enabled_by: str | None = None
) -> tuple[Side, Side, str]:
    """A, B and a sentence about what differs.

    :param about: `autotune_gate`, `backend`, `sglang_version`, `env.NAME` or a launch argument.
    :param values: two values, or one, which becomes B against what the base has now. None or an empty list for the gate
        and for a flag that takes no value: A off, B on.
    :param enabled_by: who lets the release tune the backend: upstream, patch, none; None to go by what is known of the
        release.

    Raises ExperimentError.
    """
    if not isinstance(about, str) or not about.strip():
        raise ExperimentError(
            f"reading ab: {str(about)[:50]!r} names nothing; give {GATE}, backend, sglang_version, env.NAME or a "
            "launch argument"
        )
    what, name = _meant(about.strip(), base.get("sglang_version"))
    if what == GATE:
        if values not in (None, []):
            raise ExperimentError(f"reading ab_values: {GATE} is off and on; leave ab_values out")
        return _gate(base, enabled_by)
    switch = _switch(name, base.get("sglang_version")) if what == "args" and values in (None, []) else None
    a, b = _two(values, about.strip()) if switch is None else switch
    left = dict(base) if a is _CURRENT else settings_of.merge(base, _overlay(what, name, a), "side A")
    right = settings_of.merge(base, _overlay(what, name, b), "side B")
    changes = settings_of.differences(left, right)
    if not changes:
        raise ExperimentError(f"reading ab_values: both sides have the same {about.strip()[:100]}; give another value")
    label = settings_of.name_of(changes)
    back = settings_of.name_of(settings_of.differences(right, left))
    return Side(back, left), Side(label, right), f"A is {back}, B is {label}"


class _Current:
    """What the base has."""


_CURRENT = _Current()


def _meant(about: str, version: str | None) -> tuple[str, str]:
    if about.startswith("env."):
        return "env", about[4:]
    plain = about.lstrip("-").replace("-", "_")
    if plain in (GATE, "backend", "sglang_version"):
        return plain, plain
    name = settings_of.flag_name(about, version)
    if launch_plan.OWNERS.get(name) == "sglang_backend":
        return "backend", "backend"
    # Nothing could be started with it, on either side.
    if version in releases.known() and name not in launch_plan.OWNERS and settings_of.unknown_flag(name, version):
        near = difflib.get_close_matches(name, releases.get(str(version)).flags, 3, 0.6)
        near = near or [flag for flag in sorted(releases.get(str(version)).flags) if flag.startswith(f"{name}-")][:3]
        hint = f"did you mean {' or '.join(near)}" if near else "see launch_server --help"
        raise ExperimentError(f"reading ab: SGLang {version} has no launch argument {about[:100]!r}; {hint}")
    return "args", name


def _overlay(what: str, name: str, value: Any) -> dict[str, Any]:
    return {what: {name: value}} if what in ("args", "env") else {what: value}


def _two(values: Any, about: str) -> tuple[Any, Any]:
    if isinstance(values, (list, tuple)) and len(values) == 2:
        return values[0], values[1]
    if isinstance(values, (list, tuple)) and len(values) == 1:
        return _CURRENT, values[0]
    raise ExperimentError(
        f"reading ab_values: {about[:100]} takes a value, so it needs one or two values in a list; give for example "
        "-e '{\"ab_values\": [1, 64]}'"
    )


def _switch(name: str, version: str | None) -> tuple[bool | None, bool] | None:
    """The values that switch a flag off and on, None for one that takes a value or that no release is known to have.

    A flag without a negative form is off when it is left out.
    """
    wanted = version if version in releases.known() else releases.newest()
    flag = releases.get(str(wanted)).flags.get(name)
    if flag is None or flag.takes_value:
        return None
    return (False if flag.negatable else None), True


def _gate(base: Mapping[str, Any], enabled_by: str | None) -> tuple[Side, Side, str]:
    backend = base.get("autotune_backend") or base["backend"]
    backend = settings_of.GATE_BACKEND if backend == "auto" else backend
    version = base.get("sglang_version")
    by = _enabled_by(version, backend, enabled_by)
    if by == UPSTREAM:
        if not _has_flag(version):
            raise ExperimentError(
                f"reading ab: SGLang {version} tunes {backend} by itself and has no --{NO_AUTOTUNE}, so it cannot be "
                "switched off; measure another release"
            )
        off = settings_of.merge(base, {"args": {NO_AUTOTUNE: True}}, "side A")
        on = settings_of.merge(base, {"args": {NO_AUTOTUNE: None}}, "side B")
        why = f"SGLang {version or 'here'} tunes {backend} by itself; A has --{NO_AUTOTUNE}, B has not"
        return Side("autotune off", off), Side("autotune on", on), why
    # The argument would switch off what the gate lets through.
    plain = {"args": {NO_AUTOTUNE: None}}
    off = settings_of.merge(base, {**plain, GATE: CLOSED}, "side A")
    on = settings_of.merge(base, {**plain, GATE: OPEN, "autotune_backend": backend}, "side B")
    why = f"SGLang {version or 'here'} leaves {backend} out of autotune; A has the gate closed, B has it open"
    return Side("gate closed", off), Side("gate open", on), why


def _enabled_by(version: str | None, backend: str, told: str | None) -> str:
    if told not in (None, UPSTREAM, PATCH, NONE):
        raise ExperimentError(
            f"reading enabled_by: {str(told)[:50]!r} is none of {UPSTREAM}, {PATCH}, {NONE}; give one"
        )
    kind = autotune_gate.expected(version, backend) if version else None
    if kind in (autotune_gate.UNSUPPORTED, autotune_gate.OTHER):
        raise ExperimentError(
            f"reading ab: SGLang {version} has no autotune gate for the MoE backend; it came with 0.5.7, so measure a "
            "newer release"
        )
    if told is not None:
        return told
    if kind is None:
        raise ExperimentError(
            f"reading ab: nothing is known of the autotune gate of SGLang {version}; install the release first, so "
            "that its own source can be looked at"
        )
    return UPSTREAM if kind == autotune_gate.OPEN_UPSTREAM else NONE


def _has_flag(version: str | None) -> bool:
    spans: Sequence[tuple[str, str]] = flag_names.spans(NO_AUTOTUNE)
    if version is None or any(releases.in_span(version, f"{first}..{last}") for first, last in spans):
        return True
    # A release newer than all that were read has what the newest of them has.
    return releases.in_span(version, f"{spans[-1][1]}..")
