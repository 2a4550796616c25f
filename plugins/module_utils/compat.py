# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Will it run here: one verdict on backends, SGLang, FlashInfer, quantization and GPU, from `compat_data.py` alone.

Nothing has to be installed and nothing is looked at. Overriding a refusal is the business of whoever asks.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    compat_data,
    compat_match,
    compat_releases,
    releases,
    version_order,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.compat_data import (
    SUPPORTED,
    SUPPORTED_BUT,
    UNKNOWN,
    UNSUPPORTED,
    Row,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.compat_match import Case, CompatError, shown
from ansible_collections.tokforge.sglang.plugins.module_utils.compat_query import (
    AUTO,
    NONE,
    Query,
    asked_backend,
    filled,
    read,
    read_name,
    without,
)

# What callers need beside what is defined here.
__all__ = ["AUTO", "NONE", "Choice", "CompatError", "Part", "Query", "Verdict", "filled", "judge", "newest_release"]

#: Verdicts, the one that decides over the others first.
VERDICTS = (UNSUPPORTED, UNKNOWN, SUPPORTED_BUT, SUPPORTED)
#: In which order a person should try what runs. What is not here comes after it.
PREFERENCE = (
    "flashinfer_trtllm",
    "flashinfer_trtllm_routed",
    "flashinfer_cutlass",
    "flashinfer_cutedsl",
    "flashinfer_mxfp4",
    "deep_gemm",
    "cutlass",
    "marlin",
    "triton",
    "triton_kernel",
)
_VERB = {SUPPORTED: "runs", SUPPORTED_BUT: "runs", UNKNOWN: "may or may not run", UNSUPPORTED: "does not run"}
_TAIL = {SUPPORTED_BUT: ", but with a difference"}
_NEAR = 0.6


@dataclass(frozen=True)
class Part:
    """The verdict on one choice. alternatives: what of its flag runs here instead, best first."""

    part: str
    flag: str
    value: str
    verdict: str
    reason: str
    alternatives: tuple[str, ...] = ()
    source: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The verdict on all of it.

    reason: one message; a refusal ends with a command that works here. why: the cause alone.
    alternatives: backends that run here instead, supported ones first; of the refused flag, else of the MoE backend.
    commands: what to type instead, best first.
    """

    verdict: str
    reason: str
    why: str = ""
    alternatives: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """The release to take: `version` is "" when the backend runs in none. passed_over: newer release -> why not it."""

    version: str
    verdict: str
    reason: str
    passed_over: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Ask:
    """One choice to judge. phases: for each the parts whose rows count. flags: what could have its choices."""

    part: str
    flag: str
    value: str
    phases: tuple[tuple[str, ...], ...]
    flags: tuple[str, ...] = ()
    must_be_known: bool = True


_BOTH = ("prefill", "decode")
_FLAGS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("attention", "attention-backend", _BOTH),
    ("attention", "prefill-attention-backend", ("prefill",)),
    ("attention", "decode-attention-backend", ("decode",)),
    ("dsa", "nsa-prefill", ("prefill",)),
    ("dsa", "nsa-prefill-backend", ("prefill",)),
    ("dsa", "dsa-prefill-backend", ("prefill",)),
    ("dsa", "nsa-decode", ("decode",)),
    ("dsa", "nsa-decode-backend", ("decode",)),
    ("dsa", "dsa-decode-backend", ("decode",)),
    ("fp4_gemm", "fp4-gemm-backend", ()),
    ("fp4_gemm", "fp4-gemm-runner-backend", ()),
    ("fp8_gemm", "fp8-gemm-backend", ()),
    ("fp8_gemm", "fp8-gemm-runner-backend", ()),
    ("allreduce_fusion", "flashinfer-allreduce-fusion-backend", ()),
    ("allreduce_fusion", "enable-flashinfer-allreduce-fusion", ()),
)
#: Old and new names of one flag: the choices of the one that a release has count.
_SAME_FLAG = (
    ("fp4-gemm-backend", "fp4-gemm-runner-backend"),
    ("fp8-gemm-backend", "fp8-gemm-runner-backend"),
    ("dsa-prefill-backend", "nsa-prefill-backend", "nsa-prefill"),
    ("dsa-decode-backend", "nsa-decode-backend", "nsa-decode"),
)
_SWITCH = "enable-flashinfer-allreduce-fusion"
#: Parts that are a launch argument of their own, which one can change or leave out.
_ARGUMENTS = ("attention", "dsa", "fp4_gemm", "fp8_gemm", "allreduce_fusion")
#: What to do about parts that are no argument at all.
_INSTALL = {
    "toolkit": "install a CUDA toolkit that does",
    "driver": "install a driver that does",
    "flashinfer": "install the FlashInfer that the release pins",
}
_DEPLOY = "ansible-playbook deploy.yml"
_LOOK = "ansible-playbook preflight.yml"
_NO_WAY = "nothing that was read runs this here: change the model or its parallelism, or the GPU, then look again"
_INSTALLED = {"toolkit": "CUDA toolkit", "driver": "driver", "flashinfer": "FlashInfer"}
#: What other tools and checkpoints call SGLang's quantizations.
_OTHER_NAMES = {
    "nvfp4": "modelopt_fp4",
    "fp4": "modelopt_fp4",
}
#: What FlashInfer runs has one of these in its name.
_FLASHINFER = ("flashinfer", "trtllm", "cutedsl", AUTO)


def judge(query: Query, candidates: Sequence[str] | None = None) -> Verdict:
    """The verdict. `candidates` are the releases that a refusal may name instead; those that are locked by default.

    Raises CompatError for a value that cannot be read.
    """
    case, backend = read(query)
    asks = _asks(case, backend, query)
    if case.sglang not in compat_releases.RELEASES:
        return _unread_release(case, backend)
    unknown = _unknown_quantization(case)
    if unknown:
        return Verdict(
            UNKNOWN, f"whether {backend} runs is not known: {unknown}; it is allowed, watch the start", unknown
        )
    judged = (*(_part(ask, case) for ask in asks), _old_flashinfer(case))
    parts = tuple(part for part in judged if part is not None)
    found = _together(parts, backend, case)
    if found.verdict != UNSUPPORTED:
        return found
    return _with_way_out(found, query, releases.known() if candidates is None else candidates)


def newest_release(candidates: Sequence[str], query: Query) -> Choice:
    """The newest of the releases in which the asked backend is supported, else supported with a difference.

    Never one in which it is not; one of which nothing is known only when there is no other. Each is judged with the
    FlashInfer that it pins. Raises CompatError.
    """
    ordered = _ordered(candidates)
    if not ordered:
        raise CompatError("choosing a SGLang release: there are no candidates; lock one in locks.toml")
    found = {version: judge(replace(query, sglang_version=version, flashinfer_version=""), ()) for version in ordered}
    backend = asked_backend(query)
    for wanted in (SUPPORTED, SUPPORTED_BUT, UNKNOWN):
        for version in ordered:
            if found[version].verdict == wanted:
                newer = ordered[: ordered.index(version)]
                passed = {name: _passed(found[name]) for name in newer}
                return Choice(version, wanted, _chosen(backend, version, found[version], passed), passed)
    passed = {name: _passed(found[name]) for name in ordered}
    told = "; ".join(f"{name}: {why}" for name, why in passed.items())
    commands = found[ordered[0]].commands
    return Choice(
        "", UNSUPPORTED, f"choosing a SGLang release for {backend}: it runs in none; {told}; try {commands[0]}", passed
    )


def _ordered(candidates: Sequence[str]) -> list[str]:
    """Each candidate once, the newest first. Raises CompatError."""
    if isinstance(candidates, str):
        raise CompatError(f"reading the candidates {shown(candidates)}: one text; give a list of releases")
    for version in candidates:
        if not isinstance(version, str) or not compat_match.is_version(version):
            raise CompatError(f"reading the candidate {shown(version)}: no release name; give one like 0.5.23")
    return sorted(dict.fromkeys(candidates), key=releases.sort_key, reverse=True)


def _passed(verdict: Verdict) -> str:
    return f"{verdict.verdict}: {verdict.why}"


def _chosen(backend: str, version: str, verdict: Verdict, passed: Mapping[str, str]) -> str:
    how = {
        SUPPORTED: f"the newest release here in which {backend} runs",
        SUPPORTED_BUT: f"the newest release here in which {backend} runs, with a difference",
        UNKNOWN: f"the newest release here that is not known to fail with {backend}; no release is known to run it",
    }[verdict.verdict]
    message = f"SGLang {version}: {how} ({verdict.why})"
    if passed:
        message += "; passed over: " + "; ".join(f"{name}: {why}" for name, why in passed.items())
    return message


def _asks(case: Case, backend: str, query: Query) -> list[_Ask]:
    """Everything that has to be judged, the MoE backend first."""
    asks = [
        _Ask("moe", "moe-runner-backend", backend, (("moe",),), ("moe-runner-backend",)),
        _Ask("quantization", "quantization", case.quantization, (("quantization",),), (), must_be_known=False),
        _Ask("a2a", "moe-a2a-backend", case.a2a, (("a2a",),), ("moe-a2a-backend",) if case.a2a != NONE else ()),
    ]
    for part, flag, phases in _FLAGS:
        value = case.args.get(flag, "")
        if not value or (flag == "attention-backend" and _phases_set(case) == set(_BOTH)):
            continue
        read_name(f"args: {flag}", value)
        if flag == _SWITCH:
            value = "enabled"
        elif flag == "attention-backend":
            phases = tuple(phase for phase in phases if phase not in _phases_set(case))
        names = tuple((part, f"{part}_{phase}") for phase in phases) or ((part,),)
        same = next((group for group in _SAME_FLAG if flag in group), (flag,))
        asks.append(_Ask(part, flag, value, names, tuple(name for name in same if name in compat_releases.CHANGES)))
    if query.cuda_toolkit:
        version = compat_match.read_numbers("CUDA toolkit's version", "12.9", query.cuda_toolkit)
        asks.append(_Ask("toolkit", "", version, (("toolkit",),), (), must_be_known=False))
    if query.driver_version:
        version = compat_match.read_numbers("driver's version", "580.95.05", query.driver_version)
        asks.append(_Ask("driver", "", version, (("driver",),), (), must_be_known=False))
    return asks


def _phases_set(case: Case) -> set[str]:
    """The phases that have an attention backend of their own."""
    return {phase for phase in _BOTH if case.args.get(f"{phase}-attention-backend")}


# Judging one choice.


def _part(ask: _Ask, case: Case) -> Part | None:
    """The verdict on one choice; None when there is nothing to say of it."""
    refusal = _no_choice(ask, case)
    if refusal is not None:
        return refusal
    verdict, rows, reasons = _by_rows(ask, ask.value, case)
    if verdict == UNKNOWN and not ask.must_be_known:
        return None
    alternatives = _alternatives(ask, case) if verdict in (UNSUPPORTED, SUPPORTED_BUT) or ask.part == "moe" else ()
    return Part(ask.part, ask.flag, ask.value, verdict, reasons, alternatives, compat_match.sources(rows))


def _by_rows(ask: _Ask, value: str, case: Case) -> tuple[str, list[Row], str]:
    """Verdict, the rows that decide and what they say; the worst phase of a flag decides."""
    found = []
    for parts in ask.phases:
        rows = compat_match.rows_for(parts, value, case)
        verdict = next((one for one in VERDICTS if any(row.verdict == one for row in rows)), UNKNOWN)
        rows = [row for row in rows if row.verdict == verdict]
        if verdict == SUPPORTED:
            rows = rows[:1]
        reasons = dict.fromkeys(compat_match.told(row, value, case) for row in rows)
        found.append((verdict, rows, "; besides, ".join(reasons)))
    found.sort(key=lambda one: VERDICTS.index(one[0]))
    verdict, rows, reason = found[0]
    if verdict != UNSUPPORTED and _unread_flashinfer(case) and any(name in value for name in _FLASHINFER):
        verdict, rows = UNKNOWN, []
    if verdict == UNKNOWN:
        reason = f"nothing that was read says whether it runs {_where(case)}"
        if case.capability is None:
            reason = "no GPU here, so whether it runs cannot be told"
        elif _unread_flashinfer(case):
            reason += f"; FlashInfer {case.flashinfer} was not read"
    return verdict, rows, reason


def _unread_flashinfer(case: Case) -> bool:
    """Whether this FlashInfer is neither the release's own nor among those that were read."""
    own = compat_releases.FLASHINFER.get(case.sglang)
    return case.flashinfer != own and not compat_match.flashinfer_was_read(case.flashinfer)


def _no_choice(ask: _Ask, case: Case) -> Part | None:
    """A refusal when the release's flag does not take the value."""
    names = sorted(ask.flags, key=lambda name: name != ask.flag)
    flag = next((name for name in names if compat_releases.choices(name, case.sglang) is not None), None)
    have = compat_releases.choices(flag, case.sglang) if flag else None
    # The others' second names are those of the same settings in a server's log, in every release.
    renamed = ask.part == "dsa" and flag != ask.flag
    if not ask.flags or (have is not None and ask.value in have and not renamed):
        return None
    if have is None:
        return _no_flag(ask, case)
    if renamed:
        reason = f"SGLang {case.sglang} has no --{ask.flag}; there it is --{flag}"
        return Part(ask.part, ask.flag, ask.value, UNSUPPORTED, reason, (), _named_in(case, flag))
    near = difflib.get_close_matches(ask.value, have, n=2, cutoff=_NEAR)
    others = sorted({name for one in ask.flags for name in compat_releases.releases_with(one, ask.value)}, key=_key)
    reason = f"SGLang {case.sglang} has no such choice"
    if near:
        reason += f" (did you mean {' or '.join(near)}?)"
    reason += f"; releases that have it: {_ranges(others)}" if others else "; no release up to "
    reason += "" if others else f"{compat_releases.NEWEST} has it"
    return Part(ask.part, ask.flag, ask.value, UNSUPPORTED, reason, _alternatives(ask, case), _named_in(case, flag))


def _named_in(case: Case, flag: str | None) -> tuple[str, ...]:
    return (f"sglang {case.sglang} sglang/srt/server_args.py: --{flag}",)


def _no_flag(ask: _Ask, case: Case) -> Part | None:
    """What a release says of a flag that it does not have at all."""
    source = (f"sglang {case.sglang} sglang/srt/server_args.py",)
    if ask.part == "moe" and ask.value != AUTO:
        switch = compat_releases.SWITCHES.get(ask.value)
        instead = f"; its switch for this is --{switch}" if switch else ""
        reason = f"SGLang {case.sglang} has no --moe-runner-backend{instead}; it came with 0.5.1"
        return Part(ask.part, ask.flag, ask.value, UNSUPPORTED, reason, _alternatives(ask, case), source)
    with_it = [name for name in compat_releases.RELEASES if any(compat_releases.choices(f, name) for f in ask.flags)]
    if ask.part in ("moe", "attention", "a2a") or not with_it:
        return None
    reason = f"SGLang {case.sglang} has no --{ask.flag}; releases that have it: {_ranges(with_it)}"
    return Part(ask.part, ask.flag, ask.value, UNSUPPORTED, reason, (), source)


def _ranges(names: Sequence[str]) -> str:
    """Releases as ranges: those that follow each other are one."""
    order = compat_releases.RELEASES
    found: list[list[int]] = []
    for name in names:
        at = order.index(name)
        if found and found[-1][1] == at - 1:
            found[-1][1] = at
        else:
            found.append([at, at])
    return ", ".join(order[a] if a == b else f"{order[a]} to {order[b]}" for a, b in found)


def _key(version: str) -> int:
    return compat_releases.RELEASES.index(version)


def _alternatives(ask: _Ask, case: Case) -> tuple[str, ...]:
    """What the flag takes in this release and runs here, what is fully supported first. Never what was asked."""
    if case.capability is None:
        return ()
    have: tuple[str, ...] = ()
    for flag in ask.flags:
        have = have or compat_releases.choices(flag, case.sglang) or ()
    if ask.part == "moe" and not have:
        have = (AUTO,)
    found: dict[str, list[str]] = {SUPPORTED: [], SUPPORTED_BUT: []}
    for value in sorted(have, key=lambda name: (_rank(name), have.index(name))):
        if value != ask.value:
            verdict = _alternative(ask, value, case)
            if verdict in found:
                found[verdict].append(value)
    return (*found[SUPPORTED], *found[SUPPORTED_BUT])


def _alternative(ask: _Ask, value: str, case: Case) -> str:
    verdict = _by_rows(ask, value, case)[0]
    if ask.part == "moe" and case.a2a != NONE:
        with_it = replace(case, args={**case.args, "moe-runner-backend": value})
        a2a = _by_rows(_Ask("a2a", "moe-a2a-backend", case.a2a, (("a2a",),)), case.a2a, with_it)[0]
        verdict = UNSUPPORTED if a2a == UNSUPPORTED else verdict
    return verdict


def _rank(name: str) -> int:
    return PREFERENCE.index(name) if name in PREFERENCE else len(PREFERENCE)


# Putting them together.


def _where(case: Case) -> str:
    capability = "" if case.capability is None else f"on compute capability {case.capability[0]}.{case.capability[1]} "
    quantization = "" if case.quantization == NONE else f" and quantization {case.quantization}"
    a2a = "" if case.a2a == NONE else f" and moe_a2a_backend {case.a2a}"
    return f"{capability}with SGLang {case.sglang}{quantization}{a2a}"


def _subject(part: Part) -> str:
    if part.part == "moe":
        return part.value
    if part.part in _INSTALL:
        return f"{_INSTALLED[part.part]} {part.value}"
    return f"--{part.flag}" if part.flag == _SWITCH else f"--{part.flag} {part.value}"


def _together(parts: tuple[Part, ...], backend: str, case: Case) -> Verdict:
    """One verdict of all parts: the worst decides."""
    verdict = next(one for one in VERDICTS if any(part.verdict == one for part in parts))
    deciding = [part for part in parts if part.verdict == verdict]
    if verdict == SUPPORTED:
        deciding = deciding[:1]
    if deciding[0].part == "moe":
        # What a quantization needs whatever the backend says the same once more.
        deciding = [part for part in deciding if part.part != "quantization"]
    why = "; ".join(f"{_subject(part)}: {part.reason}" for part in deciding)
    subjects = " and ".join(dict.fromkeys(_subject(part) for part in deciding))
    causes = deciding[0].reason if len(deciding) == 1 else why
    if case.capability is None and verdict == UNKNOWN:
        why = f"no GPU here, so whether {subjects} runs cannot be told"
        message = f"{why}; run it on the machine with the GPU, or give compute_capability"
    elif case.capability is None:
        message = f"no GPU here; on any GPU {subjects} {_VERB[verdict]} {_where(case)}: {causes}"
    else:
        message = f"{subjects} {_VERB[verdict]} {_where(case)}{_TAIL.get(verdict, '')}: {causes}"
    if verdict == UNKNOWN and case.capability is not None:
        message += "; it is allowed, watch the start"
    source = tuple(dict.fromkeys(line for part in deciding for line in part.source))
    of_moe = next((part.alternatives for part in parts if part.part == "moe"), ())
    alternatives = deciding[0].alternatives if verdict == UNSUPPORTED else of_moe
    if verdict == UNSUPPORTED and deciding[0].part in ("quantization", "a2a", "toolkit", "driver"):
        alternatives = ()
    return Verdict(verdict, message, why, alternatives, source, parts)


def quantizations() -> frozenset[str]:
    """SGLang's names of quantizations, as far as they are known."""
    rows = compat_data.ROWS
    named = {name for row in rows for name in (*row.quantization, *row.not_quantization)}
    named |= {name for row in rows if row.part == "quantization" for name in row.backends}
    for version in releases.known():
        flag = releases.get(version).flag("quantization")
        named |= {str(choice) for choice in (flag.choices or () if flag else ())}
    return frozenset(named)


def _unknown_quantization(case: Case) -> str:
    """Why the name of the quantization says nothing, "" when it is one of SGLang's."""
    known = quantizations()
    if case.quantization in known:
        return ""
    text = case.quantization.lower().replace("_", "-")
    near = _OTHER_NAMES.get(text) or next(
        iter(difflib.get_close_matches(case.quantization.lower(), sorted(known), n=1, cutoff=_NEAR)), ""
    )
    return f"SGLang has no quantization {case.quantization}" + (f" (did you mean {near}?)" if near else "")


def _old_flashinfer(case: Case) -> Part | None:
    """A FlashInfer that is older than the release's pin: SGLang looks at it when it attends with FlashInfer."""
    pin = compat_releases.FLASHINFER.get(case.sglang, "")
    if not pin or version_order.at_least(case.flashinfer, pin) is not False:
        return None
    backends = {case.args.get(f"{name}attention-backend", "") for name in ("", "prefill-", "decode-")}
    attends = "flashinfer" in backends
    reason = f"SGLang {case.sglang} refuses at start a FlashInfer older than {pin}"
    source = (f"sglang {case.sglang} sglang/srt/entrypoints/engine.py: assert_pkg_version",)
    if attends:
        return Part("flashinfer", "", case.flashinfer, UNSUPPORTED, f"{reason} when it attends with it", (), source)
    told = f"{reason} when it attends with FlashInfer, which it may choose by itself"
    return Part("flashinfer", "", case.flashinfer, SUPPORTED_BUT, told, (), source)


def _unread_release(case: Case, backend: str) -> Verdict:
    newest = compat_releases.NEWEST
    why = f"SGLang {case.sglang} is none of the releases that were read"
    older = compat_releases.RELEASES[0]
    message = f"whether {backend} runs is not known: {why}, {older} to {newest}; it is allowed, watch the start"
    return Verdict(UNKNOWN, message, f"{why} (newest: {newest})")


def _with_way_out(found: Verdict, query: Query, candidates: Sequence[str]) -> Verdict:
    """A refusal with what to do and a command that works here at its end."""
    refused = _refused(found)
    here = _way_here(found, query)
    ways = [here] if here and here[1].startswith(_DEPLOY) else []
    if here is None or not any(part.part in _ARGUMENTS for part in refused):
        other = _other_release(query, candidates)
        if other:
            version, verdict = other
            difference = " with a difference" if verdict == SUPPORTED_BUT else ""
            ways.append((f"take SGLang {version}, where it runs{difference}", f"{_DEPLOY} -e sglang_version={version}"))
    if not ways:
        ways.append(here or (_NO_WAY, _LOOK))
    told_ways = ", or ".join(f"{what}: {command}" for what, command in ways)
    return replace(found, reason=f"{found.reason}; {told_ways}", commands=tuple(command for _what, command in ways))


def _refused(found: Verdict) -> list[Part]:
    return [part for part in found.parts if part.verdict == UNSUPPORTED]


def _way_here(found: Verdict, query: Query) -> tuple[str, str] | None:
    """What to change so that this release is not refused, and the command then; None when that is not enough."""
    way = _way(_refused(found), query, [])
    a2a = next(part for part in found.parts if part.part == "a2a")
    if way is not None or a2a.value == NONE:
        return way
    ordinary = replace(without(query, "moe-a2a-backend"), moe_a2a_backend=NONE)
    return _way(_refused(judge(ordinary, ())), ordinary, [f"take out {_subject(a2a)}"])


def _way(refused: Sequence[Part], query: Query, told: list[str]) -> tuple[str, str] | None:
    """The same from what is refused. told: what else is to be done to the arguments."""
    told = list(told)
    installs = [_INSTALL[part.part] for part in refused if part.part in _INSTALL]
    uses = backend = ""
    for part in refused:
        if part.part in _ARGUMENTS:
            told.append(
                f"set --{part.flag} {part.alternatives[0]}" if part.alternatives else f"take out {_subject(part)}"
            )
        elif part.part == "moe":
            names = part.alternatives or ((AUTO,) if _auto_may_run(query) else ())
            if not names:
                return None
            uses = f"use {names[0]}" if part.alternatives else "let the release choose"
            uses += f", then {', '.join(names[1:4])}" if len(names) > 1 and not told else ""
            backend = f" -e backend={names[0]}"
        elif part.part not in _INSTALL:
            return None
    changes = [f"{' and '.join(told)} in sglang_server_args"] if told else []
    changes += [uses] * bool(uses) + installs
    if uses and not told:
        return " and ".join(changes), f"{_DEPLOY}{backend}"
    return " and ".join(changes) + ("" if told else ", then look again"), f"{_LOOK}{backend}"


def _auto_may_run(query: Query) -> bool:
    """Whether the release's own choice of a MoE backend is not refused."""
    if asked_backend(query) == AUTO:
        return False
    return judge(replace(without(query, "moe-runner-backend"), backend=AUTO), ()).parts[0].verdict != UNSUPPORTED


def _other_release(query: Query, candidates: Sequence[str]) -> tuple[str, str] | None:
    """The newest other candidate in which all that was asked runs, and how."""
    asked = compat_match.read_release(query.sglang_version)
    others = [name for name in _ordered(candidates) if name != asked]
    for wanted in (SUPPORTED, SUPPORTED_BUT):
        for version in others:
            found = judge(replace(query, sglang_version=version, flashinfer_version=""), ())
            if found.verdict == wanted:
                return version, wanted
    return None
