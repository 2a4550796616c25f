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
doubt; any other directory is somebody else's and is never touched. A set below another version of FlashInfer, or below
the architecture of another GPU, is not read by this server, so it is somebody else's too.

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

_INDEX = "(0|[1-9][0-9]{0,5})"
_RANK_FILE = re.compile(rf"rank_tp{_INDEX}_pp{_INDEX}_dp{_INDEX}(?:_gpu([0-9A-Za-z-]+))?\.json")
_TEMPORARY = re.compile(r"\.autotuner_.*\.tmp", re.DOTALL)
_KEY = re.compile(r"[0-9a-f]{16}")
_ARCH = re.compile(r"sm[0-9]+")

#: FlashInfer has written these from the first version that keeps a cache; a file without one of them does not match.
#: The others came later, and the same version that left them out does not ask for them.
_ALWAYS_WRITTEN = ("flashinfer_version", "cuda_version", "cublas_version", "cudnn_version", "gpu")
_ANY = "*"

_LARGEST_RANK_FILE = 64 << 20
_LARGEST_DESCRIPTION = 16 << 20
_MOST_RANKS = 65536
_LONGEST_LINE = 1500

#: GPUs by the names that the driver gives them -> the directory that their results lie in.
_ARCHS: Mapping[str, re.Pattern[str]] = {
    "sm80": re.compile(r"\bA100\b"),
    "sm86": re.compile(r"\b(A10G?|A40|RTX A6000|RTX 30[5-9]0)\b"),
    "sm89": re.compile(r"\b(L4|L40S?|RTX 40[5-9]0|RTX 6000 Ada)\b"),
    "sm90": re.compile(r"\b(H100|H200|GH200)\b"),
    "sm100": re.compile(r"\bG?B200\b"),
    "sm103": re.compile(r"\bG?B300\b"),
    "sm120": re.compile(r"\b(RTX PRO 6000|RTX 50[5-9]0)\b"),
    "sm121": re.compile(r"\bGB10\b"),
}


def arch_of(gpu: str) -> str | None:
    """The architecture of a GPU, None when its name is not known here."""
    return next((arch for arch, pattern in _ARCHS.items() if pattern.search(gpu)), None)


def one_line(text: str) -> str:
    """The text as it may go to a log: one line, no control characters, and not without end."""
    shown = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
    return shown if len(shown) <= _LONGEST_LINE else f"{shown[: _LONGEST_LINE - 505]} ... {shown[-500:]}"


class AutotuneCacheError(Exception):
    """A cache that cannot be told or cleared; `facts` go beside the text."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(one_line(message))
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
    without it there are `dp` replicas of all of them. `only_dp` is the replica that this server is behind a router of
    somebody else's."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    dp_attention: bool = False
    nnodes: int = 1
    node_rank: int = 0
    only_dp: int = 0

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
    if not why and layout.tp * layout.pp * layout.dp > _MOST_RANKS:
        why = f"tp_size * pp_size * dp_size is above {_MOST_RANKS}; correct them"
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
    replicas = range(layout.dp) if layout.dp > 1 else [layout.only_dp]
    return [Rank(t, p, d) for d in replicas for p, t in pairs]


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
    minimax_m3_nvfp4
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

    @property
    def closed(self) -> bool:
        """Whether it cannot be listed, so that nothing tells what would have to go."""
        return any(one.path == self.path for one in self.unreadable) and not os.path.islink(self.path)

    @property
    def ignored_by_all(self) -> bool:
        """Whether every rank has a file, and none loads it for the same reason: they tune together then."""
        reasons: dict[str, set[tuple[str, str, str]]] = {str(rank): set() for rank in self.ranks_expected}
        for one in self.stale:
            if one.current is not None:
                reasons[one.rank].add((one.key, repr(one.saved), one.current))
        alike = {frozenset(reason) for reason in reasons.values()}
        return self.state == "stale" and not self.ranks_missing and len(alike) == 1 and all(alike)

    def result(self) -> dict[str, Any]:
        """As plain data for a module. Not `path`: Ansible adds the mode and the owner of that to a result."""
        return {
            "directory": self.path,
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
        files_to_clear = removable(path, names)
    except FileNotFoundError:
        names, files_to_clear = [], []
    except OSError as error:
        why = "is not a directory" if isinstance(error, NotADirectoryError) else f"cannot be listed ({error.strerror})"
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
    empty: set[Rank] = set()
    for rank in expected:
        found = [(name, _read_rank(os.path.join(path, name))) for name in files.get(rank, [])]
        for name, one in found:
            if one.why:
                unreadable.append(Unreadable(os.path.join(path, name), one.why))
            if one.there and not one.why and one.metadata is not None:
                metadata[rank] = one.metadata
        if any(one.there for _name, one in found):
            present.append(rank)
            if not any(one.results or one.why for _name, one in found):
                empty.add(rank)
    # A file without any result makes its rank tune beside those that load theirs.
    loading = {rank.pp for rank in present if rank not in empty}
    present = [rank for rank in present if not (rank in empty and rank.pp in loading)]
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
        tuple(files_to_clear),
    )


def removable(folder: str | int, names: Iterable[str]) -> list[str]:
    """What of these names belongs to a set, half-written files first: a set that lost a rank is found again as partial,
    a half-written file alone would be found by nobody. `folder` is its path or its open descriptor."""
    temporary, ranks = [], []
    for name in sorted(names):
        if _RANK_FILE.fullmatch(name):
            ranks.append(name)
        elif _TEMPORARY.fullmatch(name) and _is_file_or_link(folder, name):
            temporary.append(name)
    return temporary + ranks


def _is_file_or_link(folder: str | int, name: str) -> bool:
    try:
        if isinstance(folder, int):
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        else:
            mode = os.lstat(os.path.join(folder, name)).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


class _UnfitError(Exception):
    """Something that is not a file to be read, and why."""


def _read_file(path: str, largest: int) -> str:
    """The text of a regular file that is not too large. Raises _UnfitError, OSError, ValueError.

    Whatever else lies there is not even waited for.
    """
    kind = os.stat(path).st_mode
    if not stat.S_ISREG(kind):
        raise _UnfitError("is a directory" if stat.S_ISDIR(kind) else "is not a file")
    # It may have been replaced in between.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
        found = os.fstat(stream.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise _UnfitError("is not a file")
        data = stream.read(largest + 1) if found.st_size <= largest else b""
    if found.st_size > largest or len(data) > largest:
        raise _UnfitError(f"is larger than {largest >> 20} MiB")
    return data.decode("utf-8")


class _Saved(NamedTuple):
    """One rank's file: whether something is there, its metadata (None for none), whether it has results, and why it
    cannot be loaded (empty when it can)."""

    there: bool
    metadata: Mapping[str, Any] | None = None
    results: bool = False
    why: str = ""


def _read_rank(path: str) -> _Saved:
    try:
        data = json.loads(_read_file(path, _LARGEST_RANK_FILE))
        if not isinstance(data, dict):
            return _Saved(True, why="is not an object")
        saved = data.get("_metadata")
        if saved is not None and not isinstance(saved, dict):
            return _Saved(True, why="its _metadata is not an object")
        metadata = None if saved is None else {key: _plain(value) for key, value in saved.items()}
    except FileNotFoundError:
        # Removed in this moment, or a link to nothing, which SGLang takes for a missing file and replaces.
        return _Saved(False)
    except OSError as error:
        return _Saved(True, why=error.strerror or str(error))
    except _UnfitError as error:
        return _Saved(True, why=str(error))
    except MemoryError:
        return _Saved(True, why="does not fit into memory")
    except (ValueError, RecursionError):
        return _Saved(True, why="is not JSON")
    return _Saved(True, metadata, any(key != "_metadata" for key in data))


def _plain(value: Any) -> Any:
    """FlashInfer writes texts only. Whatever else is there is compared, and shown, as the text it was."""
    return value if value is None or isinstance(value, str) else json.dumps(value, sort_keys=True)


def _stale(metadata: Mapping[Rank, Mapping[str, Any]], current: Current) -> list[Stale]:
    found: list[Stale] = []
    written = {key for saved in metadata.values() for key in saved}
    for key in sorted({*current.metadata, *written}):
        known = current.metadata.get(key)
        if key == "cudnn_frontend_version" and all(saved.get(key) == "unknown" for saved in metadata.values()):
            # It is installed, but no rank could import it, and none will: the same to FlashInfer, so nothing is stale.
            continue
        if known is not None:
            if key in written or key in _ALWAYS_WRITTEN:
                wrong = {rank: saved for rank, saved in metadata.items() if not _matches(key, saved.get(key), known)}
                found += [Stale(str(rank), key, saved.get(key), known) for rank, saved in wrong.items()]
        elif key not in current.free:
            values = {rank: saved.get(key) for rank, saved in metadata.items() if saved.get(key) != _ANY}
            if len(set(values.values())) > 1:
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
        for name in removable(folder, os.listdir(folder)):
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


def check_clearable(report: SetReport, within: str) -> None:
    """Raises AutotuneCacheError when it is known without trying that a set cannot be cleared."""
    if report.closed:
        raise AutotuneCacheError(
            f"cannot clear the autotune cache {report.path}: it {report.unreadable[0].why}; {_BY_HAND}",
            directory=report.path,
        )
    check_inside(report.path, within)


def check_inside(path: str, within: str) -> None:
    """Raises AutotuneCacheError when a set is a link that leads elsewhere. Links above it are the owner's choice."""
    if not os.path.islink(path):
        return
    real, bound = os.path.realpath(path), os.path.realpath(within)
    if not any(
        real.startswith(top.rstrip(os.sep) + os.sep) for top in (bound, os.path.realpath(os.path.dirname(path)))
    ):
        raise AutotuneCacheError(
            f"cannot clear the autotune cache {path}: it leads to {real}, outside of {bound}; remove the link",
            directory=path,
        )


def _remove(name: str, folder: int) -> None:
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.rmdir(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def _cannot_clear(path: str, what: str, error: OSError) -> AutotuneCacheError:
    return AutotuneCacheError(
        f"cannot clear the autotune cache {path}: {error.strerror or error} ({what}); {_BY_HAND}", directory=path
    )


_BY_HAND = "remove it by hand, or make it writable for the server's user"


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
    #: Where the results of this machine's GPUs lie; empty when that is not known.
    archs: frozenset[str] = frozenset()

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
    layout = _layout(flags, environment)
    model_config = _object(os.path.join(cwd, model_path, "config.json"))
    draft_path = _text(flags, "speculative-draft-model-path")
    draft_config = _object(os.path.join(cwd, draft_path, "config.json")) if draft_path else model_config
    backend = _text(flags, "moe-runner-backend")
    cache = environment.get("SGLANG_CACHE_DIR")
    if cache is None:
        cache = os.path.join(environment.get("HOME") or os.path.expanduser("~"), ".cache", "sglang")
    names = read_gpus(gpus)[0]
    archs = {arch_of(name) for name in names}
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
        archs=frozenset(arch for arch in archs if arch) if None not in archs else frozenset(),
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


def _layout(flags: Mapping[str, list[str]], environment: Mapping[str, str]) -> Layout:
    dp, attention = _number(flags, "dp-size", 1), _number(flags, "attn-dp-size", 1)
    split = attention > 1 or (dp > 1 and "enable-dp-attention" in flags)
    replica = environment.get("SGLANG_DP_RANK", "")
    layout = Layout(
        tp=_number(flags, "tp-size", 1),
        pp=_number(flags, "pp-size", 1),
        dp=attention if attention > 1 else dp,
        dp_attention=split,
        nnodes=_number(flags, "nnodes", 1),
        node_rank=_number(flags, "node-rank", 0),
        only_dp=int(replica) if re.fullmatch(_INDEX, replica) else 0,
    )
    check_layout(layout)
    return layout


_SPREADING = ("attn-cp-size", "enable-waterfill", "enable-deepep-waterfill", "enable-prefill-cp", "dwdp-size")


def _ep_sizes(flags: Mapping[str, list[str]], layout: Layout) -> tuple[int, ...]:
    given = _number(flags, "ep-size", 1)
    # These make the server spread experts over all ranks, whatever was asked for.
    spread = _text(flags, "moe-a2a-backend") not in (None, "none") or "megamoe" in (
        _text(flags, "moe-runner-backend") or ""
    )
    spread = spread or any("context-parallel" in name or name in _SPREADING for name in flags)
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


def _narrowed(identity: Identity, config: Mapping[str, Any], draft_config: Mapping[str, Any]) -> Identity:
    """The same with what a model's config.json suggests, where the server has to resolve it."""
    dtype = config.get("dtype") or config.get("torch_dtype")
    return replace(
        identity,
        dtypes=_dtypes(dtype) if dtype in ("bfloat16", "float16") and len(identity.dtypes) > 1 else identity.dtypes,
        quantizations=_suggested(identity.quantizations, config),
        draft_quantizations=_suggested(identity.draft_quantizations, draft_config),
    )


def _suggested(quantizations: tuple[str, ...], config: Mapping[str, Any]) -> tuple[str, ...]:
    if not config or len(quantizations) < 2:
        return quantizations
    own = _config_quantization(config) or "None"
    return tuple(name for name in quantizations if name == "None" or name.startswith(own))


def _widened(identity: Identity) -> Identity:
    """The same with all that the server may have been started with before, in this layout."""
    return replace(
        identity,
        dtypes=DTYPES,
        quantizations=tuple(dict.fromkeys((*QUANTIZATIONS, *identity.quantizations))),
        backends=tuple(dict.fromkeys((*BACKENDS, *identity.backends))),
        ep_sizes=tuple(dict.fromkeys((*identity.ep_sizes, 1, identity.layout.tp))),
    )


def _object(path: str) -> dict[str, Any]:
    try:
        data = json.loads(_read_file(path, _LARGEST_DESCRIPTION))
    except (OSError, _UnfitError, ValueError, RecursionError, MemoryError):
        return {}
    return data if isinstance(data, dict) else {}


#: More keys than this are not tried, since hashing them would be felt at every start: these take about 0.2 s.
_MOST_KEYS = 200_000

#: Classes that SGLang loads models of other types, or without a config.json, as.
_STAND_INS = ("DeepseekV3Config", "PretrainedConfig", "MistralConfig", "PixtralConfig")


@dataclass
class _Search:
    """Looks for keys among the names that are there, until that took too many. `whole`: nothing was left out."""

    wanted: Iterable[str]
    found: set[str] = field(default_factory=set)
    left: int = _MOST_KEYS
    whole: bool = True

    def model(self, identity: Identity, classes: Sequence[str]) -> None:
        """Try the keys of a model's own sets."""
        self._take(replace(identity, draft_quantizations=()), classes, (), 1)

    def draft(self, identity: Identity, classes: Sequence[str]) -> None:
        """Try the keys of a draft model's sets."""
        self._take(identity, (), classes, len(identity.draft_quantizations))

    def _take(self, identity: Identity, classes: Sequence[str], drafts: Sequence[str], each: int) -> None:
        values = (identity.dtypes, identity.quantizations, identity.backends, identity.ep_sizes)
        number = math.prod(map(len, (*values, formulas(identity.sglang), (*classes, *drafts)))) * each
        if number > self.left:
            self.whole = False
            return
        self.left -= number
        self.found |= find_keys(identity, classes, drafts, self.wanted)


class Findings(NamedTuple):
    """The sets of one server, and what has to be said beside them (empty for nothing)."""

    reports: list[SetReport]
    note: str = ""


def inspect(configuration: Configuration) -> Findings:
    """Every set of this server as it lies on disk. Raises AutotuneCacheError."""
    folder = configuration.folder
    there: dict[str, list[str]] = {}
    for arch in _names(folder, _ARCH):
        # The same key below another architecture is another machine's that shares the cache.
        if not configuration.archs or arch in configuration.archs:
            for key in _names(os.path.join(folder, arch), _KEY):
                there.setdefault(key, []).append(os.path.join(folder, arch, key))
    if not there:
        return Findings([])
    own, others, whole = _search(configuration, there)
    notes = [] if whole else [f"{folder}: not every name could be tried"]
    reports: list[SetReport] = []
    for key in sorted({*own, *others}):
        found, note = _in_doubt(configuration, there[key])
        # A whole set of another configuration is not this server's, and does no harm.
        reports += [report for report in found if key in own or not report.consistent]
        notes += [note] if note else []
    return Findings(sorted(reports, key=lambda report: report.path), "; ".join(notes))


def _search(configuration: Configuration, there: Iterable[str]) -> tuple[set[str], set[str], bool]:
    """Which of the names are this server's, and which are of this model and layout only; whether all were tried."""
    sources = _sources(configuration.site_packages)
    identity, model, draft = configuration.identity, configuration.model_config, configuration.draft_config
    narrow, wide = _narrowed(identity, model, draft), _widened(identity)
    classes = list(dict.fromkeys([*_classes(model, sources), *_STAND_INS]))
    own, others = _Search(there), _Search(there)
    own.model(identity, classes)
    if not own.found:
        own.model(narrow, all_class_names(sources))
    if not own.found:
        others.left = own.left
        others.model(wide, classes)
        own.left = others.left
    if identity.draft_quantizations:
        drafts = _Search(there, left=own.left)
        classes = list(dict.fromkeys([*classes, *_classes(draft, sources)]))
        for like in (narrow, identity):
            if not drafts.found:
                drafts.draft(like, classes)
        own.found |= drafts.found
        if not drafts.found:
            others.left = drafts.left
            others.draft(_narrowed(wide, model, draft), classes)
            own.whole = own.whole and drafts.whole
    return own.found, others.found, own.whole and others.whole


def _in_doubt(configuration: Configuration, paths: Sequence[str]) -> tuple[list[SetReport], str]:
    """The sets of one key. Where nothing tells below which architecture this machine's lies, none that would be cleared
    is given, but a note."""
    current = configuration.current
    reports = [inspect_set(path, configuration.identity.layout, current) for path in paths]
    if configuration.archs:
        return reports, ""
    reports = [report for report in reports if not _on_other_gpu(report)]
    if len(reports) < 2 or all(report.consistent for report in reports):
        return reports, ""
    archs = " and ".join(os.path.basename(os.path.dirname(report.path)) for report in reports)
    return [], f"{reports[0].key} below {archs}: not checked, nothing tells which of them this machine's GPU has"


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
            with suppress(OSError, ValueError, _UnfitError, MemoryError):
                texts[path] = _read_file(path, _LARGEST_DESCRIPTION)
    return texts


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
    findings = inspect(configuration)
    parts = []
    for report in findings.reports:
        done = ""
        if not report.consistent:
            done = ", kept" if keep else f", {_clear_or_explain(report, configuration)}"
        if report.state != "absent":
            parts.append(f"{report.path}: {report.words()}{done}")
    if findings.note:
        parts.append(findings.note)
    return one_line("autotune cache " + ("; ".join(parts) or f"{configuration.folder}: absent"))


def _clear_or_explain(report: SetReport, configuration: Configuration) -> str:
    """What was done with a set that is not consistent. Raises AutotuneCacheError when its ranks would disagree."""
    try:
        check_clearable(report, configuration.cache_dir)
        clear_set(report.path, configuration.cache_dir)
    except AutotuneCacheError as error:
        if inspect_set(report.path, configuration.identity.layout, configuration.current).ignored_by_all:
            return f"not cleared ({error}), ignored by all ranks alike"
        raise AutotuneCacheError(
            f"{error}, or start all the same with sglang_autotune_cache_policy: {KEEP}", **error.facts
        ) from error
    return "cleared"
