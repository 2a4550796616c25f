# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ranks: how tags are read, which ranks a node runs, and who is missing, whatever tags a release writes."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ansible_collections.tokforge.sglang.plugins.module_utils import ranks as core
from ansible_collections.tokforge.sglang.plugins.module_utils.ranks import Rank, World

FIELDS = ("dp", "pp", "attn_cp", "moe_dp", "tp", "ep")
#: The orders that releases write: up to 0.5.5, up to 0.5.8.post1, since 0.5.9.
ORDERS = (("dp", "tp", "ep", "pp"), ("dp", "pp", "tp", "ep"), FIELDS)


def tags(world: World, seen: tuple[Rank, ...] = ()) -> list[str]:
    return [rank.tag for rank in core.expected(world, seen)]


def written(rank: Rank, order: tuple[str, ...]) -> str:
    """The rank's tags as a release with this order writes them; it lacks the tags that are not in it."""
    return "".join(f" {name.upper()}{getattr(rank, name)}" for name in order if getattr(rank, name) is not None)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Any world that SGLang starts, seen from its first node; small enough to list."""
    size = st.sampled_from((1, 2, 3, 4))
    pp = draw(size)
    nnodes = draw(st.sampled_from([n for n in (1, 2, 3, 4, 6, 8) if n % pp == 0 or pp % n == 0]))
    attn_cp, moe_dp, dp = draw(size), draw(size), draw(size)
    dp_attention = draw(st.sampled_from((None, True, False))) if nnodes == 1 else draw(st.sampled_from((None, True)))
    if dp == 1:
        dp_attention = draw(st.sampled_from((None, True, False)))
    factor = attn_cp * moe_dp * max(nnodes // pp, 1) * (1 if dp_attention is False else dp)
    tp = factor * draw(st.sampled_from((1, 2)))
    ep = draw(st.integers(1, tp // moe_dp))
    return World(tp=tp, pp=pp, dp=dp, ep=ep, attn_cp=attn_cp, moe_dp=moe_dp, nnodes=nnodes, dp_attention=dp_attention)


# --- tags ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("present", [set(c) for n in range(7) for c in itertools.combinations(FIELDS, n)])
def test_every_combination_of_tags_is_read_in_every_order_and_written_in_one(present: set[str]) -> None:
    rank = Rank(**{name: index for index, name in enumerate(FIELDS) if name in present})
    words = [f"{name.upper()}{index}" for index, name in enumerate(FIELDS) if name in present]
    for order in itertools.permutations(words):
        assert core.parse_tags("".join(f" {word}" for word in order)) == rank
    assert rank.tag == (" ".join(words) or "main")


def test_no_tags_are_a_rank_without_tags() -> None:
    assert core.parse_tags("") == Rank() == core.parse_tags(" ")
    assert Rank().tag == core.MAIN == "main"


@pytest.mark.parametrize(
    "text",
    [
        " TP0 TP0",
        " TP0 TP1",
        " DP0 XX1",
        " TP",
        " TP-1",
        " TP01",
        " tp0",
        " TP0x",
        " TP0\n",
        " TP0\tEP0",
        " encode_server",
        " MOE_DP",
        " MOEDP0",
        " TP\u0663",
        " TP1234567",
        " INFO:",
        " TP0,",
    ],
)
def test_what_is_no_tag_or_comes_twice_is_no_rank(text: str) -> None:
    assert core.parse_tags(text) is None


def test_a_dp_tag_is_not_read_out_of_a_moe_dp_tag() -> None:
    assert core.parse_tags(" MOE_DP3 DP1") == Rank(dp=1, moe_dp=3)


def test_ranks_are_ordered_by_number_and_a_missing_tag_comes_first() -> None:
    ordered = [Rank(), Rank(tp=2), Rank(tp=10), Rank(pp=0), Rank(dp=0, tp=1), Rank(dp=0, pp=0)]
    backwards = ordered[::-1]
    assert sorted(backwards) == ordered
    assert Rank(tp=1) <= Rank(tp=1) and Rank(tp=2) > Rank(tp=1) and max(ordered) == Rank(dp=0, pp=0)
    with pytest.raises(TypeError):
        assert Rank() < "main"  # type: ignore[operator]


# --- the ranks of a node ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "there"),
    [
        (World(), ["main"]),
        (World(dp_attention=True), ["main"]),
        (World(tp=2), ["TP0", "TP1"]),
        (World(tp=4, ep=2), ["TP0 EP0", "TP1 EP0", "TP2 EP1", "TP3 EP1"]),
        (World(tp=2, pp=2), ["PP0 TP0", "PP0 TP1", "PP1 TP0", "PP1 TP1"]),
        (World(pp=2), ["PP0", "PP1"]),
        (World(dp=2, dp_attention=False), ["DP0", "DP1"]),
        (World(tp=2, dp=2, dp_attention=False), ["DP0 TP0", "DP0 TP1", "DP1 TP0", "DP1 TP1"]),
        (World(tp=4, dp=2, dp_attention=True), ["DP0 TP0", "DP0 TP1", "DP1 TP2", "DP1 TP3"]),
        (World(tp=2, dp=2, ep=2, dp_attention=True), ["DP0 TP0 EP0", "DP1 TP1 EP1"]),
        (
            World(pp=2, dp=2, dp_attention=False, tp=1),
            ["DP0 PP0", "DP0 PP1", "DP1 PP0", "DP1 PP1"],
        ),
        (World(tp=4, attn_cp=2), ["ATTN_CP0 TP0", "ATTN_CP0 TP1", "ATTN_CP1 TP2", "ATTN_CP1 TP3"]),
        (
            World(tp=8, dp=2, attn_cp=2, dp_attention=True),
            [
                "DP0 ATTN_CP0 TP0",
                "DP0 ATTN_CP0 TP1",
                "DP0 ATTN_CP1 TP2",
                "DP0 ATTN_CP1 TP3",
                "DP1 ATTN_CP0 TP4",
                "DP1 ATTN_CP0 TP5",
                "DP1 ATTN_CP1 TP6",
                "DP1 ATTN_CP1 TP7",
            ],
        ),
        (
            World(tp=4, moe_dp=2, ep=2),
            ["MOE_DP0 TP0 EP0", "MOE_DP0 TP1 EP1", "MOE_DP1 TP2 EP0", "MOE_DP1 TP3 EP1"],
        ),
        (World(tp=4, nnodes=2, node_rank=1), ["TP2", "TP3"]),
        (World(tp=4, ep=4, nnodes=2, node_rank=1), ["TP2 EP2", "TP3 EP3"]),
        (World(tp=2, pp=2, nnodes=2, node_rank=1), ["PP1 TP0", "PP1 TP1"]),
        (World(tp=2, pp=4, nnodes=2, node_rank=1), ["PP2 TP0", "PP2 TP1", "PP3 TP0", "PP3 TP1"]),
        (World(tp=4, pp=2, nnodes=4, node_rank=3), ["PP1 TP2", "PP1 TP3"]),
        (World(tp=4, pp=2, nnodes=4, node_rank=1), ["PP0 TP2", "PP0 TP3"]),
        (World(tp=4, dp=4, nnodes=2, node_rank=1), ["DP2 TP2", "DP3 TP3"]),
        # SGLang numbers experts' ranks like this too when ep does not divide tp.
        (World(tp=4, ep=3), ["TP0 EP0", "TP1 EP1", "TP2 EP2", "TP3 EP3"]),
    ],
)
def test_the_ranks_of_a_node_have_the_tags_that_the_newest_releases_write(world: World, there: list[str]) -> None:
    assert tags(world) == there


@given(worlds())
def test_every_rank_has_tags_and_a_place_of_its_own(world: World) -> None:
    for node in range(world.nnodes):
        here = dataclasses.replace(world, node_rank=node)
        ranks = core.expected(here)
        plain = core.is_plain_dp(here)
        places = [core.place(rank, here, plain) for rank in ranks]
        assert len(set(ranks)) == len({rank.tag for rank in ranks}) == len(set(places)) == len(ranks) > 0
        assert places == sorted(places)
        assert all(core.parse_tags(f" {rank.tag}" if rank != Rank() else "") == rank for rank in ranks)


@given(worlds())
def test_the_nodes_share_all_ranks_out_and_none_twice(world: World) -> None:
    shares = [core.expected(dataclasses.replace(world, node_rank=node)) for node in range(world.nnodes)]
    alone = dataclasses.replace(world, nnodes=1, dp_attention=True if world.nnodes > 1 else world.dp_attention)
    assert sorted(rank for share in shares for rank in share) == sorted(core.expected(alone))
    assert len({len(share) for share in shares}) == 1
    assert sum(map(len, shares)) == world.tp * world.pp * (world.dp if core.is_plain_dp(world) else 1)


@given(worlds())
def test_indices_stay_below_their_sizes(world: World) -> None:
    for rank in core.expected(world):
        for name in ("dp", "pp", "attn_cp", "moe_dp", "tp"):
            index = getattr(rank, name)
            assert (index is None) == (getattr(world, name) == 1)
            assert index is None or 0 <= index < getattr(world, name)


# --- plain or attention ----------------------------------------------------------------------------------------------


def test_what_the_world_says_about_dp_is_not_changed_by_what_was_seen() -> None:
    plain_only = (Rank(dp=1, tp=0),)
    attention = World(tp=4, dp=2, dp_attention=True)
    assert tags(attention, plain_only) == tags(attention)
    assert len(tags(World(tp=4, dp=2, dp_attention=False), (Rank(dp=1, tp=3),))) == 8


@pytest.mark.parametrize(
    ("seen", "plain"),
    [
        ((), False),
        # Both kinds have these.
        ((Rank(dp=0, tp=0), Rank(dp=1, tp=3)), False),
        ((Rank(dp=0, tp=1), Rank(dp=1, tp=0)), True),
        ((Rank(dp=0, tp=2),), True),
        # Not of this world, so they tell nothing about it.
        ((Rank(dp=2, tp=0),), False),
        ((Rank(dp=0, tp=4),), False),
        ((Rank(), Rank(tp=2), Rank(dp=1)), False),
    ],
)
def test_where_dp_is_not_explained_only_a_rank_of_plain_dp_makes_it_plain(seen: tuple[Rank, ...], plain: bool) -> None:
    world = World(tp=4, dp=2)
    assert core.is_plain_dp(world, seen) is plain
    assert len(core.expected(world, seen)) == (8 if plain else 4)


def test_sizes_that_attention_cannot_have_are_plain_without_being_seen() -> None:
    assert tags(World(dp=2)) == ["DP0", "DP1"]
    assert len(tags(World(tp=2, dp=3))) == 6


def test_on_several_nodes_unexplained_dp_is_attention_whatever_was_seen() -> None:
    assert tags(World(tp=4, dp=2, nnodes=2), (Rank(dp=1, tp=0),)) == ["DP0 TP0", "DP0 TP1"]


def test_one_dp_rank_is_neither() -> None:
    assert not core.is_plain_dp(World(tp=2, dp_attention=False), (Rank(dp=1, tp=0),))


@given(worlds(), st.booleans())
def test_all_ranks_of_either_kind_tell_which_kind_it_is(world: World, attention: bool) -> None:
    said = dataclasses.replace(world, dp_attention=attention)
    assume(world.tp % (world.dp * world.attn_cp) == 0 if attention else world.nnodes == 1)
    there = core.expected(said)
    assert core.expected(dataclasses.replace(world, dp_attention=None), there) == there


# --- places and who is missing ---------------------------------------------------------------------------------------


def test_a_place_ignores_the_tags_that_differ_between_releases() -> None:
    world = World(tp=4, dp=2, ep=4, dp_attention=True)
    assert core.place(Rank(dp=1, tp=2, ep=2), world, plain_dp=False) == (0, 0, 2)
    assert core.place(Rank(tp=2), world, plain_dp=False) == (0, 0, 2)
    assert core.place(Rank(dp=1, pp=0, attn_cp=0, moe_dp=0, tp=2, ep=2), world, plain_dp=False) == (0, 0, 2)


def test_a_place_in_plain_dp_has_the_copy() -> None:
    world = World(tp=2, pp=2, dp=2, dp_attention=False)
    assert core.place(Rank(dp=1, pp=1, tp=0), world, plain_dp=True) == (1, 1, 0)


def test_a_place_is_known_without_tags() -> None:
    assert core.place(Rank(), World(), plain_dp=False) == (0, 0, 0)
    assert core.place(Rank(), World(tp=2, dp=2), plain_dp=True) == (0, 0, 0)


def test_a_tag_of_a_size_that_is_one_says_nothing_about_the_place() -> None:
    for plain in (True, False):
        assert core.place(Rank(dp=3, pp=3, tp=1), World(tp=2), plain) == (0, 0, 1)
        assert core.place(Rank(dp=3, pp=1, tp=3), World(pp=2), plain) == (0, 1, 0)


def test_a_tag_of_a_router_does_not_hide_the_only_rank() -> None:
    # With SGLANG_DP_RANK a server of one DP rank writes the tag that its router gave it.
    assert core.missing(World(tp=2), [Rank(dp=3, tp=0), Rank(dp=3, tp=1)]) == ()
    assert core.missing(World(), [Rank(dp=3)]) == ()


def test_the_missing_ranks_are_named_in_order() -> None:
    world = World(tp=4, ep=4)
    assert [rank.tag for rank in core.missing(world, [Rank(tp=2), Rank(tp=0, ep=0)])] == ["TP1 EP1", "TP3 EP3"]
    assert core.missing(world, []) == core.expected(world)


def test_the_main_process_is_no_rank_of_a_wide_server() -> None:
    assert [rank.tag for rank in core.missing(World(tp=2), [Rank()])] == ["TP0", "TP1"]
    assert [rank.tag for rank in core.missing(World(pp=2), [Rank(tp=0)])] == ["PP0", "PP1"]
    assert [rank.tag for rank in core.missing(World(dp=2, dp_attention=False), [Rank()])] == ["DP0", "DP1"]
    assert core.missing(World(), [Rank()]) == ()


def test_ranks_of_another_node_or_world_count_for_nothing() -> None:
    world = World(tp=4, nnodes=2, node_rank=1)
    assert core.missing(world, [Rank(tp=0), Rank(tp=1), Rank(tp=4)]) == core.expected(world)


def test_a_copy_that_is_done_does_not_stand_for_another() -> None:
    world = World(tp=2, dp=2)
    done = [Rank(dp=0, tp=0), Rank(dp=0, tp=1), Rank(dp=1, tp=0)]
    assert [rank.tag for rank in core.missing(world, done)] == ["DP1 TP1"]


@given(worlds(), st.sampled_from(ORDERS), st.randoms(use_true_random=False))
def test_whatever_tags_a_release_writes_who_is_missing_is_the_same(
    world: World, order: tuple[str, ...], random: Any
) -> None:
    if world.dp_attention is None:
        world = dataclasses.replace(world, dp_attention=not core.is_plain_dp(world))
    there = core.expected(world)
    done = random.sample(there, random.randint(0, len(there)))
    logged = [core.parse_tags(written(rank, order)) for rank in done]
    assert core.missing(world, [rank for rank in logged if rank is not None]) == tuple(
        rank for rank in there if rank not in done
    )
    assert core.missing(world, done) == tuple(rank for rank in there if rank not in done)


# --- what no server can have -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "text"),
    [
        (World(tp=0), "cannot tell the ranks of a server with tp 0: tp is 0; give a number of at least 1"),
        (World(dp=-2), "dp is -2"),
        (World(nnodes=0), "nnodes is 0"),
        (World(tp=2, nnodes=2, node_rank=2), "node_rank is 2 of 2 nodes; give a number from 0 to 1"),
        (World(node_rank=-1), "a server with one rank: node_rank is -1 of 1 nodes"),
        (World(tp=3, nnodes=2), "3 ranks cannot be spread evenly over 2 nodes"),
        (World(tp=2, pp=3, nnodes=2), "3 pipeline stages cannot be spread evenly over 2 nodes"),
        (World(tp=3, pp=2, nnodes=3), "2 pipeline stages cannot be spread evenly over 3 nodes"),
        (World(tp=4, dp=3, dp_attention=True), "tp 4 is no multiple of dp 3 * attn_cp 1"),
        (World(tp=4, dp=2, attn_cp=4, dp_attention=True), "tp 4 is no multiple of dp 2 * attn_cp 4"),
        (World(tp=4, dp=3, nnodes=2), "tp 4 is no multiple of dp 3 * attn_cp 1"),
        (World(tp=4, dp=2, nnodes=2, dp_attention=False), "plain data parallelism is for one node"),
        (World(tp=4, attn_cp=3), "tp 4 is no multiple of attn_cp 3"),
        (World(tp=4, moe_dp=3), "tp 4 is no multiple of moe_dp 3"),
        (World(tp=4, ep=8), "ep 8 * moe_dp 1 is more than tp 4"),
        (World(tp=4, ep=4, moe_dp=2), "ep 4 * moe_dp 2 is more than tp 4"),
        (World(tp=10**9), "that would be more than 65536 ranks; look for the size that was read wrongly"),
    ],
)
def test_sizes_that_no_server_can_have_are_refused_with_a_reason(world: World, text: str) -> None:
    for refused in (core.check, core.expected, lambda w: core.missing(w, [])):
        with pytest.raises(core.RanksError) as caught:
            refused(world)  # type: ignore[operator]
        assert text in str(caught.value)
        assert isinstance(caught.value, ValueError)


@given(worlds())
def test_what_sglang_starts_is_not_refused(world: World) -> None:
    core.check(world)


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "world"),
    [
        ({}, World(dp_attention=False)),
        ({"tp-size": 8, "ep-size": 8}, World(tp=8, ep=8, dp_attention=False)),
        ({"tensor-parallel-size": 4}, World(tp=4, dp_attention=False)),
        ({"tp": "4", "pp": "2", "dp": "2", "ep": "4"}, World(tp=4, pp=2, dp=2, ep=4, dp_attention=False)),
        ({"--tp-size": 2, "--nnodes": 2, "--node-rank": 1}, World(tp=2, nnodes=2, node_rank=1, dp_attention=False)),
        (
            {
                "pipeline-parallel-size": 2,
                "data-parallel-size": 3,
                "expert-parallel-size": 4,
                "attention-context-parallel-size": 5,
                "moe-data-parallel-size": 6,
            },
            World(pp=2, dp=3, ep=4, attn_cp=5, moe_dp=6, dp_attention=False),
        ),
        ({"attn-cp-size": 2, "moe-dp-size": 2}, World(attn_cp=2, moe_dp=2, dp_attention=False)),
        ({"dp-size": 2, "enable-dp-attention": True}, World(dp=2, dp_attention=True)),
        ({"dp-size": 2, "enable-dp-attention": "true"}, World(dp=2, dp_attention=True)),
        ({"dp-size": 2, "enable-dp-attention": None}, World(dp=2, dp_attention=False)),
        ({"dp-size": 2, "enable-dp-attention": "perhaps"}, World(dp=2, dp_attention=None)),
        # The fields of a logged ServerArgs.
        (
            {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True, "node_rank": 0, "model_path": "/m"},
            World(tp=4, dp=4, dp_attention=True),
        ),
        ({"tp_size": 4, "dp_size": 4, "enable_dp_attention": False}, World(tp=4, dp=4, dp_attention=False)),
        # 0.5.22 and 0.5.23 log the groups of attention as a size of its own.
        (
            {"tp_size": 4, "dp_size": 1, "attn_dp_size": 2, "enable_dp_attention": True},
            World(tp=4, dp=2, dp_attention=True),
        ),
        ({"tp-size": 4, "attention-data-parallel-size": 4}, World(tp=4, dp=4, dp_attention=True)),
        ({"dp_size": 2, "attn_dp_size": 1, "enable_dp_attention": False}, World(dp=2, dp_attention=False)),
        # SGLang may switch attention on by itself.
        ({"dp-size": 2, "enable-nsa-prefill-context-parallel": True}, World(dp=2, dp_attention=None)),
        ({"dp-size": 2, "enable-prefill-cp": True}, World(dp=2, dp_attention=None)),
        ({"dp-size": 2, "enable-prefill-cp": False}, World(dp=2, dp_attention=False)),
        (
            {"dp-size": 2, "enable-prefill-cp": True, "enable-dp-attention": True},
            World(dp=2, dp_attention=True),
        ),
    ],
)
def test_a_world_is_read_from_arguments_by_any_of_their_names(args: dict[str, Any], world: World) -> None:
    assert core.world_from_args(args) == world


@pytest.mark.parametrize("value", [None, "", "auto", 2.0, True, False, [2], {"a": 2}, "2.0", "\u0662", "1" * 30])
def test_a_size_that_is_no_whole_number_counts_as_one(value: Any) -> None:
    assert core.world_from_args({"tp-size": value, "nnodes": value}) == World(dp_attention=False)
    assert core.world_from_args({"node-rank": value}).node_rank == 0


def test_an_unreadable_name_does_not_hide_a_readable_one() -> None:
    assert core.world_from_args({"tp-size": "x", "tensor-parallel-size": 4}).tp == 4


def test_a_size_below_one_is_left_to_the_check() -> None:
    world = core.world_from_args({"tp_size": 0})
    assert world.tp == 0
    with pytest.raises(core.RanksError, match="tp is 0"):
        core.check(world)
