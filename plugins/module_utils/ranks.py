# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ranks of one server: how its log names them, which of them run on a node, and which have not reported yet.

A rank is one scheduler process with one GPU. SGLang writes a tag for each kind of parallelism that is wider than one
into the head of the rank's log records, so one process is named differently by different releases and arguments
(read in all releases from 0.5.0rc0 to 0.5.23):

- `DP TP EP PP` up to 0.5.5, `DP PP TP EP` up to 0.5.8.post1, `DP PP ATTN_CP MOE_DP TP EP` since;
- with plain data parallelism each DP rank is a whole copy of the model, with TP ranks of its own from 0;
- with attention data parallelism there is one copy, and the DP rank follows from the TP rank.

What tells a process from the others is therefore its place, not its tags: see `place`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import total_ordering
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.releases import canonical

#: The tag of a process whose records have none: the main process, or the only rank of a server.
MAIN = "main"

#: No server is larger; more means that a size was read wrongly, and listing the ranks would not end.
MOST_RANKS = 65536

_WORD = re.compile(r"(DP|PP|ATTN_CP|MOE_DP|TP|EP)(0|[1-9][0-9]{0,5})")
_INTEGER = re.compile(r"[+-]?[0-9]{1,9}")

# Each size of a World -> the names of its argument, without dashes in front: those of the newest release first.
_SIZES: Mapping[str, tuple[str, ...]] = {
    "tp": ("tp-size", "tensor-parallel-size", "tp"),
    "pp": ("pp-size", "pipeline-parallel-size", "pp"),
    "dp": ("dp-size", "data-parallel-size", "dp"),
    "ep": ("ep-size", "expert-parallel-size", "ep"),
    "attn_cp": ("attn-cp-size", "attention-context-parallel-size"),
    "moe_dp": ("moe-dp-size", "moe-data-parallel-size"),
    "nnodes": ("nnodes",),
}
# Since 0.5.22 the width of attention data parallelism has an argument of its own, and dp-size counts copies only.
_ATTENTION_SIZE = ("attn-dp-size", "attention-data-parallel-size")
_ATTENTION_SWITCH = "enable-dp-attention"
# With these SGLang may switch attention data parallelism on by itself, depending on the model.
_CONTEXT_PARALLEL = re.compile(r"enable-(?:[a-z]+-)?prefill-(?:context-parallel|cp)")


class RanksError(ValueError):
    """Sizes that no server can have; the text says which and what to do."""


@total_ordering
@dataclass(frozen=True)
class Rank:
    """The tags of one process. None: its records lack the tag. Ordered by the fields, a missing tag first."""

    dp: int | None = None
    pp: int | None = None
    attn_cp: int | None = None
    moe_dp: int | None = None
    tp: int | None = None
    ep: int | None = None

    @property
    def tag(self) -> str:
        """The tags as the newest releases write them, like `DP0 TP3`; MAIN when there are none."""
        return " ".join(f"{name}{index}" for name, index in self._tags() if index is not None) or MAIN

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Rank):
            return NotImplemented
        return self._key() < other._key()

    def _tags(self) -> list[tuple[str, int | None]]:
        return [(item.name.upper(), getattr(self, item.name)) for item in fields(self)]

    def _key(self) -> tuple[int, ...]:
        return tuple(-1 if index is None else index for _name, index in self._tags())


@dataclass(frozen=True)
class World:
    """How wide a server is, in ranks, and which of its nodes is meant.

    `tp` counts all ranks of one pipeline stage, whatever they share. `dp_attention` says what `dp` means: True for
    groups of ranks inside of `tp`, False for copies beside each other, None when nobody knows.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: int = 1
    attn_cp: int = 1
    moe_dp: int = 1
    nnodes: int = 1
    node_rank: int = 0
    dp_attention: bool | None = None


def parse_tags(text: str) -> Rank | None:
    """The rank that tags like ` DP0 TP3` name, in any order; None when a word is no tag or comes twice."""
    found: dict[str, int] = {}
    for word in filter(None, text.split(" ")):
        match = _WORD.fullmatch(word)
        if match is None or match[1].lower() in found:
            return None
        found[match[1].lower()] = int(match[2])
    return Rank(**found)


def check(world: World) -> None:
    """Refuse what SGLang refuses or could never finish starting. Raises RanksError.

    SGLang asserts the divisions itself, except that pipeline stages and nodes fit: with 3 stages on 2 nodes it starts
    two of them and waits for the third (read in 0.5.0rc0 and 0.5.23).
    """
    for name in _SIZES:
        if getattr(world, name) < 1:
            raise _error(world, f"{name} is {getattr(world, name)}", "give a number of at least 1")
    if not 0 <= world.node_rank < world.nnodes:
        raise _error(
            world,
            f"node_rank is {world.node_rank} of {world.nnodes} nodes",
            f"give a number from 0 to {world.nnodes - 1}",
        )
    if world.tp * world.pp * world.dp > MOST_RANKS:
        raise _error(world, f"that would be more than {MOST_RANKS} ranks", "look for the size that was read wrongly")
    _check_nodes(world)
    _check_groups(world)


def _check_nodes(world: World) -> None:
    if world.tp * world.pp % world.nnodes:
        raise _error(
            world,
            f"{world.tp * world.pp} ranks cannot be spread evenly over {world.nnodes} nodes",
            "make tp * pp a multiple of nnodes",
        )
    if world.pp % world.nnodes and world.nnodes % world.pp:
        raise _error(
            world,
            f"{world.pp} pipeline stages cannot be spread evenly over {world.nnodes} nodes",
            "make one of pp and nnodes a multiple of the other",
        )


def _check_groups(world: World) -> None:
    copies_on_nodes = world.dp > 1 and world.nnodes > 1
    if world.dp_attention is False and copies_on_nodes:
        raise _error(
            world,
            "plain data parallelism is for one node",
            "use attention data parallelism or a server on each node",
        )
    if not _fits_attention(world) and (world.dp_attention or copies_on_nodes):
        raise _error(
            world,
            f"tp {world.tp} is no multiple of dp {world.dp} * attn_cp {world.attn_cp}",
            "change one of them",
        )
    for name in ("attn_cp", "moe_dp"):
        size = getattr(world, name)
        if world.tp % size:
            raise _error(world, f"tp {world.tp} is no multiple of {name} {size}", "change one of them")
    if world.ep * world.moe_dp > world.tp:
        raise _error(
            world,
            f"ep {world.ep} * moe_dp {world.moe_dp} is more than tp {world.tp}",
            "make ep or moe_dp smaller",
        )


def _error(world: World, why: str, remedy: str) -> RanksError:
    sizes = ", ".join(f"{name} {getattr(world, name)}" for name in _SIZES if getattr(world, name) != 1)
    return RanksError(f"cannot tell the ranks of a server with {sizes or 'one rank'}: {why}; {remedy}")


def is_plain_dp(world: World, seen: Iterable[Rank] = ()) -> bool:
    """Whether DP ranks are copies of the model beside each other.

    Where the world does not say, attention data parallelism is assumed, unless the sizes do not allow it or a rank was
    seen that it does not have: `DP1 TP0` of tp 8 and dp 2.
    """
    if world.dp == 1:
        return False
    if world.dp_attention is not None:
        return not world.dp_attention
    if world.nnodes > 1:
        return False
    if not _fits_attention(world):
        return True
    width = world.tp // world.dp
    return any(
        rank.dp is not None
        and rank.dp < world.dp
        and (rank.tp or 0) < world.tp
        and _has_place(rank, world, plain_dp=True)
        and rank.dp != (rank.tp or 0) // width
        for rank in seen
    )


def _fits_attention(world: World) -> bool:
    return world.tp % (world.dp * world.attn_cp) == 0


def expected(world: World, seen: Iterable[Rank] = ()) -> tuple[Rank, ...]:
    """The ranks that run on the world's node, ordered by place, with the tags of the newest releases.

    `seen` are ranks that a log names. They only help where the world does not say what `dp` means, and add nothing.
    Raises RanksError.
    """
    check(world)
    plain = is_plain_dp(world, seen)
    stages, lanes = _node_ranges(world)
    return tuple(
        _rank(world, plain, copy, stage, lane)
        for copy in (range(world.dp) if plain else range(1))
        for stage in stages
        for lane in lanes
    )


def _node_ranges(world: World) -> tuple[range, range]:
    """The pipeline stages and the TP ranks of the world's node (read in 0.5.0rc0, 0.5.9 and 0.5.23)."""
    stages_here = max(world.pp // world.nnodes, 1)
    nodes_of_stage = max(world.nnodes // world.pp, 1)
    lanes_here = world.tp // nodes_of_stage
    first_stage = stages_here * (world.node_rank // nodes_of_stage)
    first_lane = lanes_here * (world.node_rank % nodes_of_stage)
    return range(first_stage, first_stage + stages_here), range(first_lane, first_lane + lanes_here)


def _rank(world: World, plain: bool, copy: int, stage: int, lane: int) -> Rank:
    groups = 1 if plain else world.dp
    attn_tp = world.tp // groups // world.attn_cp
    of_moe_dp = world.tp // world.moe_dp
    tags = {
        "dp": (world.dp, copy if plain else lane // (attn_tp * world.attn_cp)),
        "pp": (world.pp, stage),
        "attn_cp": (world.attn_cp, lane // attn_tp % world.attn_cp),
        "moe_dp": (world.moe_dp, lane // of_moe_dp),
        "tp": (world.tp, lane),
        "ep": (world.ep, lane % of_moe_dp // (of_moe_dp // world.ep)),
    }
    return Rank(**{name: index for name, (size, index) in tags.items() if size > 1})


def place(rank: Rank, world: World, plain_dp: bool) -> tuple[int, ...]:
    """Which process of the world a rank is: its copy of the model, its pipeline stage and its TP rank.

    The same for every release, whichever other tags it writes. A tag that is missing, or that says nothing in this
    world (a DP rank of attention data parallelism), counts as 0.
    """
    return (
        (rank.dp or 0) if plain_dp and world.dp > 1 else 0,
        (rank.pp or 0) if world.pp > 1 else 0,
        (rank.tp or 0) if world.tp > 1 else 0,
    )


def _has_place(rank: Rank, world: World, plain_dp: bool) -> bool:
    """Whether the rank has every tag that its place is told by; the main process of a wide world has none."""
    return not (
        (plain_dp and world.dp > 1 and rank.dp is None)
        or (world.pp > 1 and rank.pp is None)
        or (world.tp > 1 and rank.tp is None)
    )


def missing(world: World, done: Iterable[Rank]) -> tuple[Rank, ...]:
    """The ranks of the world's node that are not among `done`, ordered by place.

    Ranks that are not of this node or this world count for nothing. Raises RanksError.
    """
    reported = tuple(done)
    plain = is_plain_dp(world, reported)
    places = {place(rank, world, plain) for rank in reported if _has_place(rank, world, plain)}
    return tuple(rank for rank in expected(world, reported) if place(rank, world, plain) not in places)


def world_from_args(args: Mapping[str, Any]) -> World:
    """The world that a server's arguments make: launch arguments by any of their names, or the fields it logged.

    A size that is missing, or no whole number, counts as 1, the rank of the node as 0. Nothing is checked; see `check`.
    What a server logged is the better source, since SGLang changes some sizes itself.
    """
    named = {canonical(str(name)): value for name, value in args.items()}
    sizes: dict[str, Any] = {size: _number(named, names, 1) for size, names in _SIZES.items()}
    world = World(node_rank=_number(named, ("node-rank",), 0), **sizes)
    groups = _number(named, _ATTENTION_SIZE, 1)
    if groups > 1:
        return replace(world, dp=groups, dp_attention=True)
    return replace(world, dp_attention=_attention(named))


def is_size(name: str) -> bool:
    """Whether an argument, by canonical name, says how wide a server is."""
    return name in _ATTENTION_SIZE or any(name in names for names in _SIZES.values())


def _number(named: Mapping[str, Any], names: Iterable[str], default: int) -> int:
    for name in names:
        value = named.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
            return int(value)
    return default


def _attention(named: Mapping[str, Any]) -> bool | None:
    if _ATTENTION_SWITCH in named:
        return _switch(named[_ATTENTION_SWITCH])
    if any(_CONTEXT_PARALLEL.fullmatch(name) and _switch(value) is not False for name, value in named.items()):
        return None
    return False


def _switch(value: Any) -> bool | None:
    """A switch as it is logged or written in an inventory; None when it is neither on nor off."""
    if value is None:
        return False
    if isinstance(value, bool):
        return value
    return {"true": True, "1": True, "false": False, "0": False}.get(str(value).strip().lower())
