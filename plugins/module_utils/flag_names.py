# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Flags that were renamed, replaced or removed: which name a release has for a job, and what to write there.

The releases and their flags stand in the generated `flag_history.py`; which flag took over another's job was read from
the releases' own help texts and from what stands in the place of the old one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import flag_history
from ansible_collections.tokforge.sglang.plugins.module_utils.flags import Flag
from ansible_collections.tokforge.sglang.plugins.module_utils.releases import Release, ReleaseError, sort_key


@dataclass(frozen=True)
class Rename:
    """A flag's old and new name, and the release that brought the new one.

    `values` translates: old value -> new value, None for leaving the flag out. Without it a value stays what it is.
    """

    old: str
    new: str
    since: str
    values: tuple[tuple[Any, Any], ...] = ()

    def value(self, old: Any) -> Any:
        """The new flag's value for the old one's."""
        return next((new for known, new in self.values if type(known) is type(old) and known == old), old)

    def knows(self, old: Any) -> bool:
        """Whether the new flag can say what the old one says with this value."""
        return not self.values or any(type(known) is type(old) and known == old for known, _new in self.values)


def _switch(old: str, new: str, since: str, value: str | bool) -> Rename:
    """A switch whose job one value of another flag does now."""
    return Rename(old, new, since, ((True, value), (False, None)))


_CP_STRATEGY = (("in-seq-split", "zigzag"), ("round-robin-split", "interleave"))

#: Read in 0.5.0rc0 to 0.5.23. A flag can be renamed more than once; each step has its own line.
RENAMES = (
    Rename("nsa-prefill", "nsa-prefill-backend", "0.5.4"),
    Rename("nsa-decode", "nsa-decode-backend", "0.5.4"),
    Rename("nsa-prefill-backend", "dsa-prefill-backend", "0.5.13"),
    Rename("nsa-decode-backend", "dsa-decode-backend", "0.5.13"),
    Rename("nsa-prefill-cp-mode", "dsa-prefill-cp-mode", "0.5.13"),
    Rename("dsa-prefill-cp-mode", "cp-strategy", "0.5.14", _CP_STRATEGY),
    Rename("prefill-cp-mode", "cp-strategy", "0.5.14", _CP_STRATEGY),
    Rename("enable-nsa-prefill-context-parallel", "enable-dsa-prefill-context-parallel", "0.5.13"),
    Rename("enable-dsa-prefill-context-parallel", "enable-prefill-cp", "0.5.14"),
    Rename("enable-prefill-context-parallel", "enable-prefill-cp", "0.5.14"),
    # No released wheel takes the first of these, but guides write it, and it is the value's name in every log.
    Rename("fp4-gemm-runner-backend", "fp4-gemm-backend", "0.5.8"),
    Rename("fp8-gemm-runner-backend", "fp8-gemm-backend", "0.5.6.post2"),
    _switch("enable-flashinfer-allreduce-fusion", "flashinfer-allreduce-fusion-backend", "0.5.14", "auto"),
    _switch("disable-cuda-graph", "cuda-graph-backend-decode", "0.5.14", "disabled"),
    Rename("cuda-graph-bs", "cuda-graph-bs-decode", "0.5.14"),
    Rename("cuda-graph-max-bs", "cuda-graph-max-bs-decode", "0.5.14"),
    _switch("disable-piecewise-cuda-graph", "cuda-graph-backend-prefill", "0.5.14", "disabled"),
    _switch("enforce-piecewise-cuda-graph", "cuda-graph-backend-prefill", "0.5.14", "tc_piecewise"),
    _switch("enable-breakable-cuda-graph", "cuda-graph-backend-prefill", "0.5.14", "breakable"),
    Rename("piecewise-cuda-graph-tokens", "cuda-graph-bs-prefill", "0.5.14"),
    Rename("piecewise-cuda-graph-max-tokens", "cuda-graph-max-bs-prefill", "0.5.14"),
    Rename("piecewise-cuda-graph-compiler", "cuda-graph-tc-compiler", "0.5.14"),
    _switch("enable-flashinfer-cutlass-moe", "moe-runner-backend", "0.5.1", "flashinfer_cutlass"),
    _switch("enable-flashinfer-cutedsl-moe", "moe-runner-backend", "0.5.3rc0", "flashinfer_cutedsl"),
    _switch("enable-flashinfer-trtllm-moe", "moe-runner-backend", "0.5.1", "flashinfer_trtllm"),
    _switch("enable-flashinfer-mxfp4-moe", "moe-runner-backend", "0.5.1", "flashinfer_mxfp4"),
    _switch("enable-triton-kernel-moe", "moe-runner-backend", "0.5.1", "triton_kernel"),
    _switch("enable-deepep-moe", "moe-a2a-backend", "0.5.0rc0", "deepep"),
    Rename("stream-output", "incremental-streaming-output", "0.5.10rc0"),
    Rename("mamba-scheduler-strategy", "mamba-radix-cache-strategy", "0.5.14"),
    Rename("speculative-dflash-draft-window-size", "speculative-draft-window-size", "0.5.12"),
    Rename("speculative-ngram-branch-length", "speculative-ngram-max-trie-depth", "0.5.10rc0"),
    Rename("max-micro-batch-size", "pp-max-micro-batch-size", "0.5.3.post1"),
    Rename("tokenizer-metrics-allowed-customer-labels", "tokenizer-metrics-allowed-custom-labels", "0.5.3rc2"),
    Rename("oltp-traces-endpoint", "otlp-traces-endpoint", "0.5.4.post2"),
    Rename("kt-amx-method", "kt-method", "0.5.5.post1"),
    Rename("kt-amx-weight-path", "kt-weight-path", "0.5.5.post1"),
    Rename("enable-deepep-waterfill", "enable-waterfill", "0.5.16"),
    Rename("optimistic-prefill-retries", "optimistic-prefill-attempts", "0.5.16"),
    Rename("grpc-mode", "smg-grpc-mode", "0.5.16"),
    _switch("elastic-ep-rejoin", "elastic-ep-join-mode", "0.5.16", "recover"),
    _switch("keep-mm-feature-on-device", "mm-feature-transport", "0.5.16", "cuda_ipc"),
    _switch("disable-fast-image-processor", "image-processor-backend", "0.5.18", "pil"),
    Rename("enable-gdn-replayssm-spec", "enable-linear-replayssm-spec", "0.5.17"),
    Rename("monokernel-backend", "enable-amd-monokernel", "0.5.23", (("amd", True),)),
)

# How a release names several flags at once: --cuda-graph-backend-{decode,prefill}=disabled.
_SEVERAL = re.compile(r"--([\w-]*)\{([\w,]+)\}=([\w-]+)")

_DOUBLE_SPARSITY = "SGLang has no double sparsity any more, so leave it out"

#: Flags that went and that no single flag replaces: what to do without them.
REMOVED: Mapping[str, str] = {
    "collect-tokens-histogram": "enable-metrics collects it, so leave it out",
    "crash-on-nan": "leave it out",
    "cuda-graph-tc-compiler": "the prefill graph backend tc_piecewise went with it, so leave it out",
    "custom-sigquit-handler": "leave it out",
    "debug-tensor-dump-inject": "leave it out",
    "disaggregation-decode-enable-fake-auto": "write disaggregation-transfer-backend: fake",
    "dllm-block-size": "write it into the file of dllm-algorithm-config",
    "ds-channel-config-path": _DOUBLE_SPARSITY,
    "ds-heavy-channel-num": _DOUBLE_SPARSITY,
    "ds-heavy-channel-type": _DOUBLE_SPARSITY,
    "ds-heavy-token-num": _DOUBLE_SPARSITY,
    "ds-sparse-decode-threshold": _DOUBLE_SPARSITY,
    "enable-double-sparsity": _DOUBLE_SPARSITY,
    "enable-beta-spec": "leave it out",
    "enable-dp-attention": "write attn-dp-size with the value of dp-size, and leave dp-size out",
    "enable-ep-moe": "write ep-size with the value of tp-size",
    "enable-expert-distribution-metrics": "write expert-balancedness-report-mode: server_log, prometheus or both",
    "enable-flashinfer-autotune": "autotune runs unless disable-flashinfer-autotune is given, so leave it out",
    "enable-nan-detection": "set SGLANG_SPEC_NAN_DETECTION and SGLANG_SPEC_OOB_DETECTION to 1 in sglang_server_env",
    "enable-piecewise-cuda-graph": "prefill has graphs by default, so leave it out",
    "hybrid-kvcache-ratio": "swa-full-tokens-ratio has its job with another scale, see its help",
    "multi-item-scoring-delimiter": "enable-mis has its job",
    "prefill-round-robin-balance": "load-balance-method: round_robin is the nearest",
    "record-nolora-graph": "leave it out",
    "torchao-config": "choose a quantized model, or quantization",
}


def spans(name: str) -> tuple[tuple[str, str], ...]:
    """First and last release of each time that a flag was there.

    Empty for a flag that every release has, and for one that none has.
    """
    text = flag_history.SPANS.get(name)
    if text is None:
        return ()
    return tuple((span.partition("..")[0], span.partition("..")[2]) for span in text.split())


def went(name: str, version: str) -> str | None:
    """The last release before `version` that had the flag, None when none had it or `version` itself is in a span."""
    return next((last for _first, last in reversed(spans(name)) if _order(last) < _order(version)), None)


def came(name: str, version: str) -> str | None:
    """The first release after `version` that has the flag, None when none of those that were read has it."""
    return next((first for first, _last in spans(name) if _order(first) > _order(version)), None)


def _order(version: str) -> tuple[tuple[int, ...], int, int, int]:
    try:
        return sort_key(version)
    except ReleaseError:
        # A checkout's version is newer than every release that was read.
        return ((10**6,), 0, 0, 0)


@dataclass(frozen=True)
class Successor:
    """The flag that does another's job in a release, and what to give it; `value` None means: leave it out."""

    flag: Flag
    value: Any
    since: str


def successor(name: str, value: Any, release: Release) -> Successor | None:
    """The flag that took over the job of `name`, over several renames when need be; None when the release has none."""
    current, since = name, ""
    for _step in range(len(RENAMES)):
        step = next((rename for rename in RENAMES if rename.old == current and rename.knows(value)), None)
        if step is None:
            return None
        current, value, since = step.new, step.value(value), step.since
        flag = release.flag(current)
        if flag is not None and not flag.deprecated:
            return Successor(flag, value, since)
    return None


def predecessor(name: str, value: Any, release: Release) -> Successor | None:
    """The flag that did the job of `name` before that was there; None when the release has none."""
    current = name
    since = ""
    for _step in range(len(RENAMES)):
        step = next(
            (
                rename
                for rename in RENAMES
                if rename.new == current and (not rename.values or any(new == value for _old, new in rename.values))
            ),
            None,
        )
        if step is None:
            return None
        value = next((old for old, new in step.values if new == value), value)
        since = since or step.since
        current = step.old
        flag = release.flag(current)
        if flag is not None:
            return Successor(flag, value, since)
    return None


def advice(name: str, value: Any, release: Release) -> str:
    """What to write instead of a flag that the release does not have."""
    newer = successor(name, value, release)
    if newer is not None:
        return f"it is --{newer.flag.name} since {newer.since}{_write(newer, value)}"
    positive = release.flag(name[3:]) if name.startswith("no-") else None
    if positive is not None and positive.negatable:
        return f"write `{positive.name}: false`"
    older = predecessor(name, value, release)
    if older is not None:
        return f"before {older.since} it is --{older.flag.name}{_write(older, value)}"
    last = went(name, release.version)
    if last is not None:
        return f"{last} was the last release with it; {REMOVED.get(name, 'leave it out')}"
    first = came(name, release.version)
    if first is not None:
        return f"it came with {first}; leave it out, or choose that release or a later one"
    names = [known for flag in release.flags.values() for known in (flag.name, *flag.aliases)]
    # argparse takes the beginning of a flag's name; here the whole name is asked for.
    longer = [known for known in names if known.startswith(f"{name}-")]
    near = [known for known in longer if known == f"{name}-size"] or longer[: len(longer) == 1]
    near = near or difflib.get_close_matches(name, names, n=1, cutoff=0.75)
    if near:
        return f"did you mean --{near[0]}?"
    return f"see `python -m sglang.launch_server --help` of {release.version}"


def instead(flag: Flag, value: Any, release: Release) -> str:
    """What to write instead of a flag that the release still takes, but calls deprecated or refuses."""
    several = _SEVERAL.fullmatch(flag.successor)
    if several:
        return "write " + " and ".join(f"`{several[1]}{part}: {several[3]}`" for part in several[2].split(","))
    newer = successor(flag.name, value, release)
    if newer is not None:
        return _write(newer, value).removeprefix(": ") or f"write {newer.flag.name} instead"
    if flag.name in REMOVED:
        return REMOVED[flag.name]
    return f"write {flag.successor.lstrip('-')} instead" if flag.successor else "leave it out"


def _write(found: Successor, old: Any) -> str:
    """The line to write where the value changes with the name; empty where it stays."""
    if found.value is old or (type(found.value) is type(old) and found.value == old):
        return ""
    if found.value is None:
        return ": leave it out"
    choices = found.flag.choices
    if choices is not None and found.value not in choices:
        return f": it has no {found.value}, only {', '.join(str(choice) for choice in choices)}"
    text = (
        {True: "true", False: "false"}.get(found.value, found.value) if isinstance(found.value, bool) else found.value
    )
    return f": write `{found.flag.name}: {text}`"
