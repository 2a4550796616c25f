# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""FlashInfer's autotune results of one server: which set of files is its own, in which state, and clearing it.

Every rank of a server keeps its results in a file of its own, and all of them lie in one directory, the set:
``CACHE/flashinfer/autotune/VERSION/ARCH/KEY/rank_tp0_pp0_dp0.json``. A rank that finds its file skips what it holds and
a rank that does not tunes. Where tuning is collective they then wait for each other until they give up, and where it is
not they settle on different tactics. A set therefore counts only as a whole, and one that is not whole is cleared.

KEY is a hash of what the server was started with, and some of that is decided inside the server only. So every value it
could have been is tried. A directory with one of the resulting names belongs to this model and this layout beyond
doubt; any other directory is somebody else's and is never touched. A set below another version of FlashInfer is not
read by this server, so it is somebody else's too.

This file stands alone: a copy lies beside the launcher on the target, where there is no collection.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

#: Decided by the collection, not by users: whether a set that is not whole is cleared before a start.
ENV_POLICY = "TOKFORGE_AUTOTUNE_CACHE"
KEEP = "keep"

#: Best to worst. What has to be cleared begins at `partial`.
STATES = ("absent", "complete", "partial", "stale", "unreadable")
INCONSISTENT = ("partial", "stale", "unreadable")

_RANK_FILE = re.compile(r"rank_tp(\d{1,6})_pp(\d{1,6})_dp(\d{1,6})(?:_gpu([0-9A-Za-z-]+))?\.json")
_TEMPORARY = re.compile(r"\.autotuner_.*\.tmp", re.DOTALL)
_KEY = re.compile(r"[0-9a-f]{16}")
_ARCH = re.compile(r"sm\d+[a-z]?")

#: FlashInfer has written these from the first version that keeps a cache; a file without one of them does not match.
#: The others came later, and the same version that left them out does not ask for them.
_ALWAYS_WRITTEN = ("flashinfer_version", "cuda_version", "cublas_version", "cudnn_version", "gpu")
_ANY = "*"


class AutotuneCacheError(Exception):
    """A cache that cannot be told or cleared; `facts` go beside the text."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


# --- ranks ------------------------------------------------------------------------------------------------------------


class Rank(NamedTuple):
    """One process of the server, as its file names it."""

    tp: int
    pp: int
    dp: int

    def __str__(self) -> str:
        return f"tp{self.tp}_pp{self.pp}_dp{self.dp}"


@dataclass(frozen=True)
class Layout:
    """How the server is spread. With `dp_attention` the tensor-parallel ranks are shared out among `dp` groups;
    without it there are `dp` replicas of all of them."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    dp_attention: bool = False
    nnodes: int = 1
    node_rank: int = 0

    @property
    def attention_dp(self) -> int:
        """The width that is part of the key; replicas are not."""
        return self.dp if self.dp_attention else 1


def check_layout(layout: Layout) -> None:
    """Raises AutotuneCacheError for a layout that no server can have."""
    sizes = {"tp_size": layout.tp, "pp_size": layout.pp, "dp_size": layout.dp, "nnodes": layout.nnodes}
    why = ""
    for name, size in sizes.items():
        if size < 1:
            why = f"{name} is {size}; give 1 or more"
    if not why and not 0 <= layout.node_rank < layout.nnodes:
        why = f"node_rank {layout.node_rank} is none of {layout.nnodes} nodes; give 0 to {layout.nnodes - 1}"
    if not why and layout.dp_attention and layout.tp % layout.dp:
        why = f"tp_size {layout.tp} cannot be shared out among dp_size {layout.dp}; give a divisor"
    if why:
        raise AutotuneCacheError(f"cannot tell the ranks of the server: {why}", **asdict(layout))


def all_ranks(layout: Layout) -> list[Rank]:
    """The ranks of all nodes."""
    return _ranks(layout, range(layout.pp), range(layout.tp))


def expected_ranks(layout: Layout) -> list[Rank]:
    """The ranks that run on this node. Raises AutotuneCacheError."""
    check_layout(layout)
    pp_here = max(layout.pp // layout.nnodes, 1)
    nodes_per_stage = max(layout.nnodes // layout.pp, 1)
    tp_here = layout.tp // nodes_per_stage
    stage, part = layout.node_rank // nodes_per_stage, layout.node_rank % nodes_per_stage
    return _ranks(layout, range(pp_here * stage, pp_here * (stage + 1)), range(tp_here * part, tp_here * (part + 1)))


def _ranks(layout: Layout, pp: Iterable[int], tp: Iterable[int]) -> list[Rank]:
    pairs = [(p, t) for p in pp for t in tp]
    if layout.dp_attention:
        width = max(layout.tp // layout.dp, 1)
        return [Rank(t, p, t // width) for p, t in pairs]
    return [Rank(t, p, d) for d in range(layout.dp) for p, t in pairs]


def describe_ranks(ranks: Sequence[Rank]) -> str:
    """In words for one line: `tp0..tp5`, or whole names where tp alone does not tell."""
    if not ranks:
        return "none"
    if any(rank.pp for rank in ranks) or len({rank.tp for rank in ranks}) < len(ranks):
        shown = [str(rank) for rank in ranks[:8]]
        return ", ".join(shown) + (" and more" if len(ranks) > len(shown) else "")
    runs: list[list[int]] = []
    for number in sorted(rank.tp for rank in ranks):
        if runs and runs[-1][1] + 1 == number:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"tp{first}" if first == last else f"tp{first}..tp{last}" for first, last in runs)


# --- whose set it is --------------------------------------------------------------------------------------------------

DTYPES = ("torch.bfloat16", "torch.float16", "torch.float32")
_DTYPE_OF = {
    "half": "torch.float16",
    "float16": "torch.float16",
    "bfloat16": "torch.bfloat16",
    "float": "torch.float32",
    "float32": "torch.float32",
}
#: Every name that a release from 0.5.12 to 0.5.23 takes for --quantization, and what stands for none.
QUANTIZATIONS = tuple(
    """
    None fp8 modelopt_fp4 modelopt_fp8 modelopt modelopt_mixed mxfp4 mxfp8 w4afp8 compressed-tensors awq awq_marlin
    gptq gptq_marlin marlin bitsandbytes gguf petit_nvfp4 nvfp4_online w8a8_int8 w8a8_fp8 moe_wna16 qoq auto-round
    auto-round-int8 modelslim quark quark_int4fp8_moe quark_mxfp4 mxfp_w4a8 mlx_q4 mlx_q8 unquant humming
    """.split()  # noqa: SIM905 (as it is read)
)
#: The same for --moe-runner-backend.
BACKENDS = tuple(
    """
    auto flashinfer_cutlass flashinfer_trtllm flashinfer_trtllm_routed flashinfer_mxfp4 flashinfer_cutedsl
    flashinfer_megamoe megamoe triton triton_kernel cutlass deep_gemm marlin aiter experimental_sgl_trtllm
    experimental_sgl_marlin humming hpc_ops intel_xpu lora_cutedsl lora_triton lora_marlin
    """.split()  # noqa: SIM905 (as it is read)
)


@dataclass(frozen=True)
class Formula:
    """What a release puts into the key.

    `skipped`: operators that it always leaves untuned; None before it named them at all. `candidates`: how tactics are
    chosen. `draft`: whether a draft model is tuned too.
    """

    draft: bool = False
    skipped: tuple[str, ...] | None = None
    candidates: bool = False


#: First release with it -> formula. Read in every release from 0.5.12, the first that keeps results, to 0.5.23.
FORMULAS: Mapping[tuple[int, int, int], Formula] = {
    (0, 5, 12): Formula(),
    (0, 5, 15): Formula(draft=True),
    (0, 5, 17): Formula(draft=True, skipped=("mxfp8_gemm",)),
    (0, 5, 18): Formula(draft=True, skipped=()),
    (0, 5, 23): Formula(draft=True, skipped=(), candidates=True),
}
_LAST_READ = (0, 5, 23)
_SWITCH_SINCE = (0, 5, 13)


def formulas(sglang: str) -> list[Formula]:
    """How this release may make its keys: one way where that was read, every known way where it was not, and none
    for a release that keeps no results."""
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:\.post\d+)?(.*)", sglang)
    if match is None:
        return list(FORMULAS.values())
    version = (int(match[1]), int(match[2]), int(match[3]))
    if match[4] or version > _LAST_READ:
        return [] if version < min(FORMULAS) else list(FORMULAS.values())
    known = [formula for first, formula in FORMULAS.items() if first <= version]
    return known[-1:]


@dataclass(frozen=True)
class Identity:
    """What decides the key of a server: one value where it was given, all possible ones where the server resolves it.

    `draft_quantizations` is empty without a draft model.
    """

    sglang: str
    model_path: str
    layout: Layout = field(default_factory=Layout)
    ep_sizes: tuple[int, ...] = (1,)
    dtypes: tuple[str, ...] = DTYPES
    quantizations: tuple[str, ...] = QUANTIZATIONS
    backends: tuple[str, ...] = BACKENDS
    skip_ops: tuple[str, ...] = ()
    draft_quantizations: tuple[str, ...] = ()


def find_keys(
    identity: Identity, classes: Sequence[str], draft_classes: Sequence[str], wanted: Iterable[str]
) -> set[str]:
    """Which of the names in `wanted` are a key of this server, for a configuration class of one of these names."""
    left, found = set(wanted), set()
    for key in candidate_keys(identity, classes, draft_classes):
        if key in left:
            found.add(key)
            left.discard(key)
            if not left:
                break
    return found


def candidate_keys(identity: Identity, classes: Sequence[str], draft_classes: Sequence[str]) -> Iterator[str]:
    """Every key that the server may use; those of the model before those of its draft model."""
    chosen = formulas(identity.sglang)
    for formula in chosen:
        rest = _rest(identity, formula)
        yield from _hashed(identity, [name + rest for name in classes])
    for formula in chosen:
        if formula.draft and identity.draft_quantizations:
            rests = [f"{_rest(identity, formula)}|draft_quant={own}" for own in identity.draft_quantizations]
            yield from _hashed(identity, [name + rest for name in draft_classes for rest in rests])


def _rest(identity: Identity, formula: Formula) -> str:
    rest = "|candidate_selection=v2_default" if formula.candidates else ""
    if formula.skipped is not None:
        rest += "|skip_ops=" + ",".join(sorted({*identity.skip_ops, *formula.skipped}))
    return rest


def _hashed(identity: Identity, endings: Sequence[str]) -> Iterator[str]:
    layout = identity.layout
    encoded = [ending.encode() for ending in endings]
    resolved = itertools.product(identity.dtypes, identity.quantizations, identity.backends, identity.ep_sizes)
    for dtype, quantization, backend, ep in resolved:
        parts = (identity.model_path, dtype, quantization, backend, layout.tp, layout.pp, layout.attention_dp, ep, "")
        # The beginning is hashed once for all endings: there may be 100,000 of them at every start.
        start = hashlib.sha256("|".join(map(str, parts)).encode())
        for ending in encoded:
            whole = start.copy()
            whole.update(ending)
            yield whole.hexdigest()[:16]


def class_names(model_type: str | None, auto_map: str | None, sources: Mapping[str, str]) -> list[str]:
    """Names that the configuration class of a model may have, from its type and the texts of the installed packages."""
    names = [auto_map.split("--")[-1].split(".")[-1]] if auto_map else []
    if model_type:
        names.append("".join(part[:1].upper() + part[1:] for part in re.split(r"[_-]", model_type)) + "Config")
        for text in sources.values():
            names += [name for kind, name in _mapped(text) if kind == model_type]
    return list(dict.fromkeys(names))


def all_class_names(sources: Mapping[str, str]) -> list[str]:
    """Every configuration class that the installed packages know."""
    return list(dict.fromkeys(name for text in sources.values() for _kind, name in _mapped(text)))


_MAPPING = re.compile(r"\(\s*[\"']([\w.-]+)[\"'],\s*[\"'](\w+Config)[\"']\s*,?\s*\)")
_CLASS = re.compile(
    r"^[ \t]*class[ \t]+(\w+)|^[ \t]+model_type[ \t]*(?::[^=\n]*)?=[ \t]*[\"']([\w.-]+)[\"']", re.MULTILINE
)


def _mapped(text: str) -> Iterator[tuple[str, str]]:
    for match in _MAPPING.finditer(text):
        yield match[1], match[2]
    owner = ""
    for match in _CLASS.finditer(text):
        if match[1]:
            owner = match[1]
        elif owner:
            yield match[2], owner


# --- the state of a set -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stale:
    """A rank's file that was written in another environment. `current` is None when only the ranks disagree."""

    rank: str
    key: str
    saved: Any
    current: str | None


@dataclass(frozen=True)
class Unreadable:
    """Something in the set that no server could load, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class SetReport:
    """One set as it lies on disk. `files` are the names in it that clearing removes."""

    path: str
    state: str
    ranks_expected: tuple[Rank, ...]
    ranks_present: tuple[Rank, ...]
    ranks_missing: tuple[Rank, ...]
    stale: tuple[Stale, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return os.path.basename(self.path)

    @property
    def consistent(self) -> bool:
        return self.state not in INCONSISTENT

    @property
    def clearable(self) -> list[str]:
        """The paths that `clear_set` removes."""
        return [self.path] if os.path.islink(self.path) else [os.path.join(self.path, name) for name in self.files]

    def result(self) -> dict[str, Any]:
        """As plain data for a module."""
        return {
            "path": self.path,
            "key": self.key,
            "cache_state": self.state,
            "ranks_expected": [str(rank) for rank in self.ranks_expected],
            "ranks_present": [str(rank) for rank in self.ranks_present],
            "ranks_missing": [str(rank) for rank in self.ranks_missing],
            "stale": [asdict(one) for one in self.stale],
            "unreadable": [asdict(one) for one in self.unreadable],
        }

    def words(self) -> str:
        """The state in one line, with what is wrong."""
        if self.state == "partial":
            of = f"of {len(self.ranks_expected)} ranks"
            return f"partial ({describe_ranks(self.ranks_present)} {of})"
        if self.state == "stale":
            one = self.stale[0]
            now = "not that of the other ranks" if one.current is None else f"now {one.current}"
            return f"stale ({one.rank}: {one.key} {one.saved}, {now})"
        if self.state == "unreadable":
            return f"unreadable ({os.path.basename(self.unreadable[0].path)}: {self.unreadable[0].why})"
        return self.state


def worst(states: Iterable[str]) -> str:
    """The worst of them, `absent` for none."""
    return max(states, key=STATES.index, default="absent")


@dataclass(frozen=True)
class Current:
    """What is known of the environment that would load a set. What is not in `metadata` is compared between the ranks
    only, and what is in `free` not even that. `gpu_uuids` are those of this machine's GPUs, empty when unknown."""

    metadata: Mapping[str, str] = field(default_factory=dict)
    free: frozenset[str] = frozenset()
    gpu_uuids: frozenset[str] = frozenset()


def inspect_set(path: str, layout: Layout, current: Current) -> SetReport:
    """Look at the directory of one set; a directory that is not there is an absent set. Raises AutotuneCacheError."""
    expected = expected_ranks(layout)
    try:
        names = sorted(os.listdir(path))
    except FileNotFoundError:
        names = []
    except OSError as error:
        why = "is not a directory" if isinstance(error, NotADirectoryError) else (error.strerror or str(error))
        return SetReport(path, "unreadable", tuple(expected), (), tuple(expected), (), (Unreadable(path, why),), ())
    files: dict[Rank, list[str]] = {}
    for name in names:
        match = _RANK_FILE.fullmatch(name)
        # A file of a GPU that is not in this machine is loaded by no rank.
        if match and not (match[4] and current.gpu_uuids and _bare(match[4]) not in current.gpu_uuids):
            files.setdefault(Rank(int(match[1]), int(match[2]), int(match[3])), []).append(name)
    everyone = set(all_ranks(layout))
    if layout.nnodes > 1 and any(rank in files for rank in everyone.difference(expected)):
        # Another node's ranks are here, so the nodes share the directory and all of them must be there.
        expected = all_ranks(layout)
    metadata: dict[Rank, Any] = {}
    unreadable: list[Unreadable] = []
    present: list[Rank] = []
    for rank in expected:
        for name in files.get(rank, []):
            there, saved, why = _read_rank(os.path.join(path, name))
            if why:
                unreadable.append(Unreadable(os.path.join(path, name), why))
            if there and rank not in present:
                present.append(rank)
            if there and not why and saved is not None:
                metadata[rank] = saved
    missing = [rank for rank in expected if rank not in present]
    stale = _stale(metadata, current)
    if unreadable:
        state = "unreadable"
    elif stale:
        state = "stale"
    elif not present:
        state = "absent"
    else:
        state = "partial" if missing else "complete"
    return SetReport(
        path,
        state,
        tuple(expected),
        tuple(present),
        tuple(missing),
        tuple(stale),
        tuple(unreadable),
        tuple(removable(names)),
    )


def removable(names: Iterable[str]) -> list[str]:
    """What of these names belongs to a set, half-written files first: a set that lost a rank is found again as partial,
    a half-written file alone would be found by nobody."""
    return sorted(
        (name for name in names if _TEMPORARY.fullmatch(name) or _RANK_FILE.fullmatch(name)),
        key=lambda name: (not _TEMPORARY.fullmatch(name), name),
    )


def _read_rank(path: str) -> tuple[bool, Any, str]:
    """Whether something is there, its metadata (None for none), and why it cannot be loaded (empty when it can)."""
    try:
        kind = os.stat(path).st_mode
        if stat.S_ISDIR(kind):
            return True, None, "is a directory"
        if not stat.S_ISREG(kind):
            return True, None, "is not a file"
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream)
    except FileNotFoundError:
        # Removed in this moment, or a link to nothing, which SGLang takes for a missing file and replaces.
        return False, None, ""
    except OSError as error:
        return True, None, error.strerror or str(error)
    except (ValueError, RecursionError):
        return True, None, "is not JSON"
    if not isinstance(data, dict):
        return True, None, "is not an object"
    saved = data.get("_metadata")
    if saved is not None and not isinstance(saved, dict):
        return True, None, "its _metadata is not an object"
    return True, saved, ""


def _stale(metadata: Mapping[Rank, Mapping[str, Any]], current: Current) -> list[Stale]:
    found: list[Stale] = []
    keys = sorted({*current.metadata, *(key for saved in metadata.values() for key in saved)})
    for key in keys:
        known = current.metadata.get(key)
        if key == "cudnn_frontend_version" and all(saved.get(key) == "unknown" for saved in metadata.values()):
            # It is installed, but no rank could import it, and none will: the same to FlashInfer, so nothing is stale.
            continue
        if known is not None:
            for rank, saved in metadata.items():
                if (key in saved or key in _ALWAYS_WRITTEN) and not _matches(key, saved.get(key), known):
                    found.append(Stale(str(rank), key, saved.get(key), known))
        elif key not in current.free:
            values = {rank: saved.get(key) for rank, saved in metadata.items() if saved.get(key) != _ANY}
            if len({json.dumps(value, sort_keys=True) for value in values.values()}) > 1:
                found += [Stale(str(rank), key, value, None) for rank, value in values.items()]
    return found


def _matches(key: str, saved: Any, known: str) -> bool:
    if saved in (known, _ANY):
        return True
    # A slice of a GPU has the GPU's name with the slice behind it.
    return key == "gpu" and isinstance(saved, str) and saved.startswith(f"{known} MIG ")


def _bare(uuid: str) -> str:
    return uuid.lower()[4:] if uuid.lower().startswith("gpu-") else uuid.lower()


# --- clearing ---------------------------------------------------------------------------------------------------------


def clear_set(path: str, within: str) -> list[str]:
    """Remove the rank files and half-written files of a set, then its directory when nothing else is in it.

    Gives the paths that were removed. A link is removed and what it points to stays. Raises AutotuneCacheError when
    something could not go, or when the set is a link to outside of `within`.
    """
    check_inside(path, within)
    removed: list[str] = []
    try:
        if os.path.islink(path):
            os.unlink(path)
            return [path]
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return removed
    except OSError as error:
        raise _cannot_clear(path, path, error) from error
    try:
        # By the open directory: whoever owns the cache cannot lead a root process elsewhere by switching directories.
        for name in removable(os.listdir(folder)):
            try:
                _remove(name, folder)
                removed.append(os.path.join(path, name))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _cannot_clear(path, os.path.join(path, name), error) from error
    except OSError as error:
        raise _cannot_clear(path, path, error) from error
    finally:
        os.close(folder)
    with suppress(OSError):
        os.rmdir(path)
    return removed


def check_inside(path: str, within: str) -> None:
    """Raises AutotuneCacheError when a set really lies elsewhere."""
    real, bound = os.path.realpath(path), os.path.realpath(within)
    if real != bound and not real.startswith(bound.rstrip(os.sep) + os.sep):
        raise AutotuneCacheError(
            f"cannot clear the autotune cache {path}: it leads to {real}, outside of {bound}; remove the link",
            path=path,
        )


def _remove(name: str, folder: int) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.rmdir(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def _cannot_clear(path: str, what: str, error: OSError) -> AutotuneCacheError:
    return AutotuneCacheError(
        f"cannot clear the autotune cache {path}: {error.strerror or error} ({what}); remove it by hand, or make it"
        " writable for the server's user",
        path=path,
    )


# --- one release ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Configuration:
    """One release's cache: where its sets lie, whose they are, and what they are compared with."""

    cache_dir: str
    flashinfer: str
    identity: Identity
    current: Current
    site_packages: str | None
    model_config: Mapping[str, Any]
    draft_config: Mapping[str, Any]

    @property
    def folder(self) -> str:
        """Where SGLang looks with this version of FlashInfer."""
        return os.path.join(self.cache_dir, "flashinfer", "autotune", self.flashinfer)


#: Flags that matter here -> their other spellings.
_FLAGS: Mapping[str, tuple[str, ...]] = {
    "model-path": ("model",),
    "tp-size": ("tensor-parallel-size",),
    "pp-size": ("pipeline-parallel-size",),
    "dp-size": ("data-parallel-size",),
    "attn-dp-size": ("attention-data-parallel-size",),
    "ep-size": ("expert-parallel-size", "ep"),
    "speculative-draft-model-path": ("speculative-draft-model",),
}
_ALIASES = {alias: name for name, aliases in _FLAGS.items() for alias in aliases}


def read_flags(argv: Sequence[str]) -> dict[str, list[str]]:
    """Launch arguments by name, as argparse reads them: the last one of a name counts."""
    flags: dict[str, list[str]] = {}
    name = ""
    for word in argv:
        if word.startswith("--"):
            spelled, equals, value = word[2:].partition("=")
            name = _ALIASES.get(spelled, spelled)
            flags[name] = [value] if equals else []
        elif name:
            flags[name].append(word)
    return flags


def off_because(argv: Sequence[str], environment: Mapping[str, str], sglang: str, flashinfer: str | None) -> str | None:
    """Why this server reads no tuning results at all; None when it may."""
    if not flashinfer:
        return "there is no FlashInfer in the environment"
    if not formulas(sglang):
        return f"SGLang {sglang} keeps no tuning results"
    if "disable-flashinfer-autotune" in read_flags(argv):
        return "--disable-flashinfer-autotune is given"
    version = re.match(r"(\d+)\.(\d+)\.(\d+)", sglang)
    heeded = version is None or tuple(map(int, version.groups())) >= _SWITCH_SINCE
    switch = environment.get("SGLANG_FLASHINFER_AUTOTUNE_CACHE", "").lower()
    if heeded and switch in ("0", "false", "no", "n"):
        return f"SGLANG_FLASHINFER_AUTOTUNE_CACHE is {switch}"
    return None


def installed_versions(venv: str) -> dict[str, str]:
    """What is installed in an environment, by the names of the distributions; as recorded in it."""
    recorded = _object(os.path.join(venv, "environment.json")).get("versions")
    if isinstance(recorded, dict) and recorded:
        return {str(name): str(version) for name, version in recorded.items()}
    found = {}
    site = site_packages(venv)
    for path in glob.glob(os.path.join(glob.escape(site), "*.dist-info")) if site else []:
        name, _dash, version = os.path.basename(path)[: -len(".dist-info")].partition("-")
        found[name.lower().replace("_", "-")] = version
    return found


def site_packages(venv: str) -> str | None:
    """The environment's site-packages, None when there are none."""
    return next(iter(sorted(glob.glob(os.path.join(glob.escape(venv), "lib", "python3*", "site-packages")))), None)


def configure(
    argv: Sequence[str], environment: Mapping[str, str], venv: str, cwd: str, gpus: str = "/proc/driver/nvidia/gpus"
) -> Configuration:
    """What the server that is started like this reads and writes. Raises AutotuneCacheError when nothing tells that."""
    flags = read_flags(argv)
    versions = installed_versions(venv)
    if "config" in flags:
        raise AutotuneCacheError(
            "cannot tell the autotune cache of the server: some of its arguments come from the file of --config; give"
            " them in sglang_server_args"
        )
    model_path = _text(flags, "model-path")
    if not model_path:
        raise AutotuneCacheError(
            "cannot tell the autotune cache of the server: --model-path is missing; stage the release again"
        )
    layout = _layout(flags)
    model_config = _object(os.path.join(cwd, model_path, "config.json"))
    draft_path = _text(flags, "speculative-draft-model-path")
    draft_config = _object(os.path.join(cwd, draft_path, "config.json")) if draft_path else model_config
    backend = _text(flags, "moe-runner-backend")
    cache = environment.get("SGLANG_CACHE_DIR") or os.path.join(
        environment.get("HOME") or os.path.expanduser("~"), ".cache", "sglang"
    )
    return Configuration(
        cache_dir=os.path.join(cwd, cache),
        flashinfer=versions.get("flashinfer-python", ""),
        identity=Identity(
            sglang=versions.get("sglang", ""),
            model_path=model_path,
            layout=layout,
            ep_sizes=_ep_sizes(flags, layout),
            dtypes=_dtypes(_text(flags, "dtype")),
            quantizations=_quantizations(_text(flags, "quantization"), model_config),
            backends=BACKENDS if backend in (None, "auto") else (backend,),
            skip_ops=tuple(flags.get("flashinfer-autotune-skip-ops", ())),
            # What was given for the draft model is not always what it is loaded with.
            draft_quantizations=_quantizations(None, draft_config) if "speculative-algorithm" in flags else (),
        ),
        current=read_current(venv, versions, gpus),
        site_packages=site_packages(venv),
        model_config=model_config,
        draft_config=draft_config,
    )


def read_current(venv: str, versions: Mapping[str, str], gpus: str) -> Current:
    """What the environment and the driver tell without running anything."""
    torch = _object(os.path.join(venv, "environment.json")).get("torch")
    cuda = torch.get("cuda") if isinstance(torch, dict) else None
    models, uuids = read_gpus(gpus)
    known = {
        "flashinfer_version": versions.get("flashinfer-python"),
        "cuda_version": cuda if isinstance(cuda, str) else None,
        "cudnn_frontend_version": versions.get("nvidia-cudnn-frontend"),
        "gpu": models[0] if len(set(models)) == 1 else None,
    }
    # In a machine with different GPUs the ranks differ rightly.
    free = frozenset({"gpu"}) if len(set(models)) > 1 else frozenset()
    return Current({key: value for key, value in known.items() if value}, free, frozenset(map(_bare, uuids)))


def read_gpus(folder: str) -> tuple[list[str], list[str]]:
    """Names and UUIDs of the GPUs, as the driver lists them. No GPU and no driver give empty lists."""
    names, uuids = [], []
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*", "information"))):
        try:
            with open(path, encoding="utf-8", errors="replace") as stream:
                lines = [line.partition(":") for line in stream.read().splitlines()]
        except OSError:
            return [], []
        facts = {name.strip(): value.strip() for name, _colon, value in lines}
        names.append(facts.get("Model", ""))
        uuids.append(facts.get("GPU UUID", ""))
    # Inside some containers the driver masks them.
    return [name for name in names if name], [uuid for uuid in uuids if "?" not in uuid and uuid] if all(names) else []


def _layout(flags: Mapping[str, list[str]]) -> Layout:
    dp, attention = _number(flags, "dp-size", 1), _number(flags, "attn-dp-size", 1)
    split = attention > 1 or (dp > 1 and "enable-dp-attention" in flags)
    layout = Layout(
        tp=_number(flags, "tp-size", 1),
        pp=_number(flags, "pp-size", 1),
        dp=attention if attention > 1 else dp,
        dp_attention=split,
        nnodes=_number(flags, "nnodes", 1),
        node_rank=_number(flags, "node-rank", 0),
    )
    check_layout(layout)
    return layout


def _ep_sizes(flags: Mapping[str, list[str]], layout: Layout) -> tuple[int, ...]:
    given = _number(flags, "ep-size", 1)
    # These make the server spread experts over all ranks, whatever was asked for.
    spread = _text(flags, "moe-a2a-backend") not in (None, "none") or "megamoe" in (
        _text(flags, "moe-runner-backend") or ""
    )
    spread = spread or any("context-parallel" in name or name in ("attn-cp-size", "enable-waterfill") for name in flags)
    return tuple(dict.fromkeys((given, layout.tp) if spread else (given,)))


def _number(flags: Mapping[str, list[str]], name: str, default: int) -> int:
    text = _text(flags, name)
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        raise AutotuneCacheError(
            f"cannot tell the autotune cache of the server: --{name} {text!r} is not a number; correct it in"
            " sglang_server_args"
        ) from None


def _text(flags: Mapping[str, list[str]], name: str) -> str | None:
    return flags[name][0] if flags.get(name) else None


def _dtypes(given: str | None) -> tuple[str, ...]:
    return (_DTYPE_OF[given],) if given in _DTYPE_OF else DTYPES


def _quantizations(given: str | None, config: Mapping[str, Any]) -> tuple[str, ...]:
    if given == "unquant":
        return ("None", given)
    if given:
        return (given,)
    own = _config_quantization(config)
    return (*QUANTIZATIONS, *([own] if own and own not in QUANTIZATIONS else []))


def _config_quantization(config: Mapping[str, Any]) -> str | None:
    section = config.get("quantization_config")
    method = section.get("quant_method") if isinstance(section, dict) else None
    return method if isinstance(method, str) else None


def _narrowed(identity: Identity, config: Mapping[str, Any]) -> Identity:
    """The same with what the model's config.json suggests, where the server has to resolve it."""
    own = _config_quantization(config) or "None"
    like = tuple(name for name in identity.quantizations if name == "None" or name.startswith(own))
    dtype = config.get("dtype") or config.get("torch_dtype")
    dtypes = _dtypes(dtype) if dtype in ("bfloat16", "float16") and len(identity.dtypes) > 1 else identity.dtypes
    return replace(
        identity,
        dtypes=dtypes,
        quantizations=like if len(identity.quantizations) > 1 else identity.quantizations,
        draft_quantizations=(),
    )


def _object(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as stream:
            data = json.load(stream)
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


#: More keys than this are not tried: hashing them would be felt at every start.
_MOST_KEYS = 200_000


def find_sets(configuration: Configuration) -> list[str]:
    """The directories of this server's sets that are there."""
    folder = configuration.folder
    there: dict[str, list[str]] = {}
    for arch in _names(folder, _ARCH):
        for key in _names(os.path.join(folder, arch), _KEY):
            there.setdefault(key, []).append(os.path.join(folder, arch, key))
    if not there:
        return []
    sources = _sources(configuration.site_packages)
    identity, model, draft = configuration.identity, configuration.model_config, configuration.draft_config
    classes = _classes(model, sources)
    draft_classes = list(dict.fromkeys([*classes, *_classes(draft, sources)]))
    found = find_keys(identity, classes, draft_classes, there)
    if not found:
        # SGLang loads some models as another class than their type names.
        narrow, every = _narrowed(identity, model), all_class_names(sources)
        values = (every, narrow.dtypes, narrow.quantizations, narrow.backends, narrow.ep_sizes, formulas(narrow.sglang))
        if math.prod(map(len, values)) <= _MOST_KEYS:
            found = find_keys(narrow, every, (), there)
    return sorted(path for key in found for path in there[key])


def _classes(config: Mapping[str, Any], sources: Mapping[str, str]) -> list[str]:
    mapped = config.get("auto_map")
    auto = mapped.get("AutoConfig") if isinstance(mapped, dict) else None
    kind = config.get("model_type")
    return class_names(kind if isinstance(kind, str) else None, auto if isinstance(auto, str) else None, sources)


def _names(folder: str, pattern: re.Pattern[str]) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if pattern.fullmatch(name))
    except OSError:
        return []


def _sources(site: str | None) -> dict[str, str]:
    """Texts of the installed packages that say which configuration class a type of model has. Nothing is imported."""
    texts: dict[str, str] = {}
    for pattern in (
        ("transformers", "models", "auto", "configuration_auto.py"),
        ("transformers", "models", "auto", "auto_mappings.py"),
        ("sglang", "srt", "configs", "*.py"),
        ("sglang", "srt", "utils", "hf_transformers*.py"),
        ("sglang", "srt", "utils", "hf_transformers", "*.py"),
    ):
        for path in sorted(glob.glob(os.path.join(glob.escape(site), *pattern))) if site else []:
            with suppress(OSError), open(path, encoding="utf-8", errors="replace") as stream:
                texts[path] = stream.read()
    return texts


def inspect(configuration: Configuration) -> list[SetReport]:
    """Every set of this server as it lies on disk. Raises AutotuneCacheError."""
    layout, current = configuration.identity.layout, configuration.current
    reports = [inspect_set(path, layout, current) for path in find_sets(configuration)]
    gpu = current.metadata.get("gpu")
    if gpu is None or len(reports) < 2:
        return reports
    # The same key below another architecture is this server's on another machine that shares the cache.
    here = {report.key for report in reports if not _on_other_gpu(report)}
    return [report for report in reports if not (_on_other_gpu(report) and report.key in here)]


def _on_other_gpu(report: SetReport) -> bool:
    other = {one.rank for one in report.stale if one.key == "gpu" and one.current is not None}
    return bool(other) and other == {str(rank) for rank in report.ranks_present}


# --- before a start ---------------------------------------------------------------------------------------------------


def before_start(
    argv: Sequence[str], environment: Mapping[str, str], venv: str, cwd: str, gpus: str = "/proc/driver/nvidia/gpus"
) -> str | None:
    """Make the sets of the server that is about to start consistent, and say in one line what was found and done.

    None when the server reads no tuning results. Raises AutotuneCacheError when a set that is not consistent could not
    be cleared: the server must not start then, its ranks could wait for each other for half an hour.
    """
    versions = installed_versions(venv)
    if off_because(argv, environment, versions.get("sglang", ""), versions.get("flashinfer-python")):
        return None
    try:
        configuration = configure(argv, environment, venv, cwd, gpus)
    except AutotuneCacheError as error:
        return f"autotune cache: not checked, {error}"
    keep = environment.get(ENV_POLICY) == KEEP
    parts = []
    for report in inspect(configuration):
        done = ""
        if not report.consistent:
            done = ", kept"
            if not keep:
                clear_set(report.path, configuration.cache_dir)
                done = ", cleared"
        if report.state != "absent":
            parts.append(f"{report.path}: {report.words()}{done}")
    return "autotune cache " + ("; ".join(parts) or f"{configuration.folder}: absent")
