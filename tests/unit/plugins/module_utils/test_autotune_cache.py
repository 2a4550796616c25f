# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tuning results of the ranks: whose set it is, what is wrong with it, and that clearing takes nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_cache as core

HERE = {
    "flashinfer_version": "0.7.2",
    "cuda_version": "13.0",
    "cublas_version": "13.1.0",
    "cudnn_version": "91300",
    "cudnn_frontend_version": "1.15.0",
    "cutlass_dsl_version": "4.3.1",
    "gpu": "NVIDIA B200",
}
EIGHT = core.Layout(8)


def rank_file(folder: Path, tp: int, pp: int = 0, dp: int = 0, **changes: Any) -> Path:
    """A rank's file as FlashInfer leaves it, with changes to its metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"rank_tp{tp}_pp{pp}_dp{dp}.json"
    path.write_text(json.dumps({"_metadata": {**HERE, **changes}, "('op', 'Runner')": ["Runner", 3]}))
    return path


def eight(folder: Path, ranks: range = range(8)) -> Path:
    """A set of a server with eight ranks."""
    for number in ranks:
        rank_file(folder, number)
    return folder


def state(folder: Path, layout: core.Layout = EIGHT, **current: str) -> str:
    """The state of a set, compared with these values."""
    return core.inspect_set(str(folder), layout, core.Current(current)).state


def tree(folder: Path) -> dict[str, bytes]:
    """Every file with its content, and every directory."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


# --- ranks ------------------------------------------------------------------------------------------------------------


def test_replicas_have_all_ranks_each() -> None:
    ranks = core.expected_ranks(core.Layout(tp=2, pp=1, dp=3))
    assert sorted(map(str, ranks)) == [f"tp{t}_pp0_dp{d}" for t in (0, 1) for d in (0, 1, 2)]


def test_attention_groups_share_the_ranks_out() -> None:
    ranks = core.expected_ranks(core.Layout(tp=8, dp=2, dp_attention=True))
    assert [(rank.tp, rank.dp) for rank in ranks] == [(t, 0) for t in range(4)] + [(t, 1) for t in range(4, 8)]


@pytest.mark.parametrize(
    ("layout", "node", "expected"),
    [
        # (tp, pp, nodes), node -> (tp, pp) of its ranks
        ((16, 1, 2), 0, [(t, 0) for t in range(8)]),
        ((16, 1, 2), 1, [(t, 0) for t in range(8, 16)]),
        ((8, 2, 2), 1, [(t, 1) for t in range(8)]),
        ((2, 4, 2), 0, [(0, 0), (1, 0), (0, 1), (1, 1)]),
        ((2, 4, 2), 1, [(0, 2), (1, 2), (0, 3), (1, 3)]),
        ((4, 2, 4), 3, [(2, 1), (3, 1)]),
    ],
)
def test_node_has_its_own_ranks(layout: tuple[int, int, int], node: int, expected: list[tuple[int, int]]) -> None:
    tp, pp, nodes = layout
    ranks = core.expected_ranks(core.Layout(tp, pp, nnodes=nodes, node_rank=node))
    assert [(rank.tp, rank.pp) for rank in ranks] == expected


@given(
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
)
def test_nodes_have_every_rank_once(tp: int, pp: int, dp: int, nodes: int, attention: bool) -> None:
    # What SGLang can be started with: a stage is spread over whole nodes, or a node has whole stages.
    if (attention and tp % dp) or (nodes > pp and tp % (nodes // pp)) or (pp > nodes and pp % nodes):
        return
    layout = core.Layout(tp, pp, dp, attention, nodes)
    found = [core.expected_ranks(dataclasses.replace(layout, node_rank=node)) for node in range(nodes)]
    together = [rank for ranks in found for rank in ranks]
    assert sorted(together) == sorted(core.all_ranks(layout))
    assert len(set(together)) == len(together) == tp * pp * (1 if attention else dp)


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        (core.Layout(0), "tp_size is 0; give 1 or more"),
        (core.Layout(pp=-1), "pp_size is -1"),
        (core.Layout(nnodes=2, node_rank=2), "node_rank 2 is none of 2 nodes"),
        (core.Layout(8, dp=3, dp_attention=True), "tp_size 8 cannot be shared out among dp_size 3"),
    ],
)
def test_impossible_layout_is_an_error(layout: core.Layout, says: str) -> None:
    with pytest.raises(core.AutotuneCacheError, match=says):
        core.expected_ranks(layout)


def test_ranks_are_told_in_few_words() -> None:
    def words(*ranks: tuple[int, int, int]) -> str:
        return core.describe_ranks([core.Rank(*rank) for rank in ranks])

    assert words(*[(t, 0, 0) for t in range(6)]) == "tp0..tp5"
    assert words((0, 0, 0), (1, 0, 0), (7, 0, 0)) == "tp0..tp1, tp7"
    assert words((3, 0, 0), (4, 0, 1)) == "tp3..tp4"
    assert words((0, 0, 0), (0, 0, 1)) == "tp0_pp0_dp0, tp0_pp0_dp1"
    assert words((0, 1, 0)) == "tp0_pp1_dp0"
    assert words() == "none"


# --- whose set it is --------------------------------------------------------------------------------------------------

#: Releases -> how the hashed text ends, for the model and for its draft model (None: not tuned), and per width of
#: attention data parallelism the keys that SGLang's own function made. Expert parallelism is 4, zz and aa are skipped.
_OPS, _DRAFT = "|skip_ops=aa,zz", "|draft_quant=modelopt_fp4"
KEYS: dict[str, tuple[str, str | None, dict[int, tuple[str, str | None]]]] = {
    "0.5.12 0.5.12.post1 0.5.13 0.5.13.post1 0.5.14": (
        "",
        None,
        {1: ("0835e389fc9e6df1", None), 2: ("efae0950e87440f2", None)},
    ),
    "0.5.15 0.5.15.post1 0.5.16": (
        "",
        _DRAFT,
        {1: ("0835e389fc9e6df1", "55e48c967355b559"), 2: ("efae0950e87440f2", "e0cb2f70c0c5f4ca")},
    ),
    "0.5.17": (
        "|skip_ops=aa,mxfp8_gemm,zz",
        f"|skip_ops=aa,mxfp8_gemm,zz{_DRAFT}",
        {1: ("272c624dfc140f0c", "19266b7b0e0a2582"), 2: ("f8afbd102632bae3", "ae813e3654774981")},
    ),
    "0.5.18 0.5.19 0.5.20 0.5.21 0.5.22": (
        _OPS,
        f"{_OPS}{_DRAFT}",
        {1: ("8349db533302075f", "4ce2907f71a1f3cc"), 2: ("1673258c86684ce1", "21fc0f0a165eec4e")},
    ),
    "0.5.23": (
        f"|candidate_selection=v2_default{_OPS}",
        f"|candidate_selection=v2_default{_OPS}{_DRAFT}",
        {1: ("6573c895994f2f1f", "19d4898829032797"), 2: ("8837d6b19f826798", "4639909ab170a7be")},
    ),
}
EVERY_KEY = {key for _model, _draft, widths in KEYS.values() for keys in widths.values() for key in keys if key}


def identity(release: str, dp: int = 1, draft: bool = False, **changes: Any) -> core.Identity:
    """The server whose keys KEYS holds, with changes."""
    values = {
        "layout": core.Layout(8, 1, dp, dp > 1),
        "ep_sizes": (4,),
        "skip_ops": ("zz", "aa"),
        "draft_quantizations": core.QUANTIZATIONS if draft else (),
        **changes,
    }
    return core.Identity(release, "/m/a", **values)


@pytest.mark.parametrize("releases", KEYS)
@pytest.mark.parametrize("dp", [1, 2])
def test_every_release_finds_its_own_keys_and_no_others(releases: str, dp: int) -> None:
    end, draft_end, widths = KEYS[releases]
    own, draft = widths[dp]
    text = f"/m/a|torch.bfloat16|fp8|flashinfer_cutlass|8|1|{dp}|4|Qwen3MoeConfig"
    assert hashlib.sha256((text + end).encode()).hexdigest()[:16] == own
    assert draft_end is None or hashlib.sha256((text + draft_end).encode()).hexdigest()[:16] == draft
    kinds = ["OtherConfig", "Qwen3MoeConfig"]
    for release in releases.split():
        assert core.find_keys(identity(release, dp), kinds, kinds, EVERY_KEY) == {own}
        both = core.find_keys(identity(release, dp, draft=True), kinds, kinds, EVERY_KEY)
        assert both == ({own, draft} if draft else {own})


@pytest.mark.parametrize(
    "change",
    [
        {"layout": core.Layout(4)},
        {"layout": core.Layout(8, 2)},
        {"layout": core.Layout(8, 1, 2, True)},
        {"ep_sizes": (8,)},
        {"skip_ops": ("zz",)},
        {"dtypes": ("torch.float16",)},
        {"quantizations": ("None",)},
        {"backends": ("flashinfer_trtllm",)},
        {"model_path": "/m/b"},
        {"sglang": "0.5.22"},
    ],
)
def test_another_server_has_other_keys(change: dict[str, Any]) -> None:
    mine = identity("0.5.23")
    assert core.find_keys(mine, ["Qwen3MoeConfig"], [], ["6573c895994f2f1f"]) == {"6573c895994f2f1f"}
    other = dataclasses.replace(mine, **change)
    assert core.find_keys(other, ["Qwen3MoeConfig"], [], ["6573c895994f2f1f"]) == set()
    assert core.find_keys(mine, ["Qwen2MoeConfig"], [], ["6573c895994f2f1f"]) == set()


@pytest.mark.parametrize("release", ["0.5.24", "0.6.0", "0.5.23.dev3+gabc", "0.5.24rc1", "", "main"])
def test_unread_release_is_tried_every_known_way(release: str) -> None:
    wanted = {widths[1][0] for _model, _draft, widths in KEYS.values()}
    assert core.find_keys(identity(release), ["Qwen3MoeConfig"], [], EVERY_KEY) == wanted
    assert len(wanted) == 4


@pytest.mark.parametrize("release", ["0.5.11", "0.4.9", "0.5.2rc0"])
def test_release_that_keeps_nothing_has_no_keys(release: str) -> None:
    assert not core.formulas(release)
    assert core.off_because([], {}, release, "0.6.8")


def test_all_candidates_are_tried_fast_enough_for_every_start() -> None:
    start = time.process_time()
    assert core.find_keys(identity("0.5.23", draft=True), ["A", "B"], ["A", "B"], {"0" * 16}) == set()
    assert time.process_time() - start < 1.0  # 0.1 s where nothing else runs


def test_configuration_classes_come_from_the_type_the_model_and_the_packages() -> None:
    sources = {
        "a": 'X = OrderedDict([("glm4_moe", "Glm4MoeConfig"), ("gpt_oss",\n "GptOssConfig"), ("b", "BModel")])',
        "b": 'class First(Base):\n    model_type = "first"\n\nclass HYV4Config(A):\n    model_type: str = "hy_v4"\n',
        "c": "def f():\n    class _Alias(Other):\n        model_type = 'deepseek_v32'\n",
    }
    assert core.class_names("qwen3_moe", None, sources) == ["Qwen3MoeConfig"]
    assert core.class_names("hy_v4", None, sources) == ["HyV4Config", "HYV4Config"]
    assert core.class_names("deepseek_v32", None, sources) == ["DeepseekV32Config", "_Alias"]
    assert core.class_names("x", "some/repo--configuration_x.XYConfig", {}) == ["XYConfig", "XConfig"]
    assert core.class_names(None, None, sources) == []
    assert core.all_class_names(sources) == ["Glm4MoeConfig", "GptOssConfig", "First", "HYV4Config", "_Alias"]


# --- the state of a set -----------------------------------------------------------------------------------------------


def test_set_of_all_ranks_is_complete(tmp_path: Path) -> None:
    report = core.inspect_set(str(eight(tmp_path / "set")), EIGHT, core.Current(HERE))
    assert (report.state, len(report.ranks_present), report.ranks_missing) == ("complete", 8, ())


REAL = Path(__file__).parent / "fixtures/autotune_cache/h200x2-flashinfer0.6.11.post1"


def test_set_that_two_h200_wrote_is_complete_where_it_was_written_and_stale_elsewhere(tmp_path: Path) -> None:
    folder = tmp_path / "0123456789abcdef"
    shutil.copytree(REAL, folder)
    written = {"flashinfer_version": "0.6.11.post1", "cuda_version": "13.0", "gpu": "NVIDIA H200"}
    assert state(folder, core.Layout(2), **written) == "complete"
    # That machine had no cuDNN frontend, and FlashInfer wrote so; one that was installed since is no reason to tune.
    assert state(folder, core.Layout(2), **written, cudnn_frontend_version="1.15.0") == "complete"
    assert state(folder, core.Layout(2), **{**written, "gpu": "NVIDIA B200"}) == "stale"
    assert state(folder, core.Layout(4), **written) == "partial"


def test_six_of_eight_ranks_are_partial(tmp_path: Path) -> None:
    report = core.inspect_set(str(eight(tmp_path, range(6))), EIGHT, core.Current(HERE))
    assert (report.state, report.words()) == ("partial", "partial (tp0..tp5 of 8 ranks)")
    assert [rank.tp for rank in report.ranks_missing] == [6, 7]


def test_nothing_there_is_absent(tmp_path: Path) -> None:
    assert state(tmp_path / "none") == "absent"
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "rank_tp0_pp0_dp0.20260101_000000.json").write_text("{}")
    (tmp_path / "rank_tp0_pp0_dp0.json.bak").write_text("{}")
    assert state(tmp_path) == "absent"


def test_ranks_of_attention_groups_are_told_by_both_numbers(tmp_path: Path) -> None:
    layout = core.Layout(8, dp=2, dp_attention=True)
    for t in range(8):
        rank_file(tmp_path, t, dp=t // 4)
    assert state(tmp_path, layout) == "complete"
    # Those of a server without it: all ranks are there, but half of them are not this server's.
    for t in range(4, 8):
        (tmp_path / f"rank_tp{t}_pp0_dp1.json").rename(tmp_path / f"rank_tp{t}_pp0_dp0.json")
    assert state(tmp_path, layout) == "partial"
    assert state(tmp_path, EIGHT) == "complete"


def test_one_node_is_complete_with_its_own_ranks_unless_it_shares_the_directory(tmp_path: Path) -> None:
    nodes = [core.Layout(16, nnodes=2, node_rank=node) for node in (0, 1)]
    eight(tmp_path)
    assert state(tmp_path, nodes[0]) == "complete"
    assert state(tmp_path, nodes[1]) == "partial"
    eight(tmp_path, range(8, 15))
    assert [state(tmp_path, node) for node in nodes] == ["partial", "partial"]
    rank_file(tmp_path, 15)
    assert [state(tmp_path, node) for node in nodes] == ["complete", "complete"]


@pytest.mark.parametrize("key", sorted(HERE))
def test_every_known_value_is_compared(tmp_path: Path, key: str) -> None:
    eight(tmp_path)
    rank_file(tmp_path, 3, **{key: "other"})
    report = core.inspect_set(str(tmp_path), EIGHT, core.Current(HERE))
    assert report.state == "stale"
    assert report.stale == (core.Stale("tp3_pp0_dp0", key, "other", HERE[key]),)
    assert report.words() == f"stale (tp3_pp0_dp0: {key} other, now {HERE[key]})"


@pytest.mark.parametrize("key", sorted(HERE))
def test_unknown_values_are_compared_between_the_ranks(tmp_path: Path, key: str) -> None:
    for number in range(8):
        rank_file(tmp_path, number, **{key: "other"})
    known = {name: value for name, value in HERE.items() if name != key}
    assert state(tmp_path, **known) == "complete"
    rank_file(tmp_path, 5)
    report = core.inspect_set(str(tmp_path), EIGHT, core.Current(known))
    assert report.state == "stale"
    assert {(one.rank, one.saved, one.current) for one in report.stale} == {
        (f"tp{t}_pp0_dp0", HERE[key] if t == 5 else "other", None) for t in range(8)
    }
    assert "not that of the other ranks" in report.words()


def test_asterisk_matches_everything_and_no_metadata_is_loaded_as_it_is(tmp_path: Path) -> None:
    eight(tmp_path)
    rank_file(tmp_path, 0, **dict.fromkeys(HERE, "*"))
    (tmp_path / "rank_tp1_pp0_dp0.json").write_text('{"op": ["R", 1]}')
    assert state(tmp_path, **HERE) == "complete"
    assert state(tmp_path) == "complete"


def test_value_that_every_version_writes_must_be_there(tmp_path: Path) -> None:
    old = {key: value for key, value in HERE.items() if key not in ("cudnn_frontend_version", "cutlass_dsl_version")}
    for number in range(8):
        rank_file(tmp_path, number).write_text(json.dumps({"_metadata": old}))
    assert state(tmp_path, **HERE) == "complete"
    rank_file(tmp_path, 2).write_text(json.dumps({"_metadata": {**old, "cuda_version": None}}))
    del old["gpu"]
    rank_file(tmp_path, 1).write_text(json.dumps({"_metadata": old}))
    report = core.inspect_set(str(tmp_path), EIGHT, core.Current(HERE))
    assert [(one.rank, one.key, one.saved) for one in report.stale] == [
        ("tp2_pp0_dp0", "cuda_version", None),
        ("tp1_pp0_dp0", "gpu", None),
    ]


def test_package_that_no_rank_can_import_makes_nothing_stale(tmp_path: Path) -> None:
    for number in range(8):
        rank_file(tmp_path, number, cudnn_frontend_version="unknown")
    assert state(tmp_path, **HERE) == "complete"
    rank_file(tmp_path, 2)
    assert state(tmp_path, **HERE) == "stale"


def test_slice_of_a_gpu_is_that_gpu(tmp_path: Path) -> None:
    rank_file(tmp_path, 0, gpu="NVIDIA B200 MIG 1g.23gb")
    assert state(tmp_path, core.Layout(), gpu="NVIDIA B200") == "complete"
    assert state(tmp_path, core.Layout(), gpu="NVIDIA B20") == "stale"


def test_ranks_on_different_gpus_of_one_machine_differ_rightly(tmp_path: Path) -> None:
    rank_file(tmp_path, 0)
    rank_file(tmp_path, 1, gpu="NVIDIA H200")
    mixed = core.Current({}, frozenset({"gpu"}))
    assert core.inspect_set(str(tmp_path), core.Layout(2), mixed).state == "complete"
    assert state(tmp_path, core.Layout(2)) == "stale"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"_metadata": {"gpu": "NVI', "is not JSON"),
        ("", "is not JSON"),
        ("\x00" * 64, "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not an object"),
        ('{"_metadata": "x"}', "its _metadata is not an object"),
    ],
)
def test_file_that_cannot_be_loaded_is_named(tmp_path: Path, content: str, why: str) -> None:
    eight(tmp_path, range(7))
    rank_file(tmp_path, 0, gpu="other")
    path = rank_file(tmp_path, 4)
    path.write_text(content)
    report = core.inspect_set(str(tmp_path), EIGHT, core.Current(HERE))
    # It comes before stale (tp0) and partial (tp7).
    assert (report.state, report.unreadable) == ("unreadable", (core.Unreadable(str(path), why),))
    assert report.words() == f"unreadable ({path.name}: {why})"
    assert core.Rank(4, 0, 0) in report.ranks_present


def test_stale_comes_before_partial(tmp_path: Path) -> None:
    rank_file(tmp_path, 0, gpu="other")
    assert state(tmp_path, **HERE) == "stale"


def test_other_things_in_the_place_of_a_file(tmp_path: Path) -> None:
    eight(tmp_path, range(7))
    place = tmp_path / "rank_tp7_pp0_dp0.json"
    place.mkdir()
    report = core.inspect_set(str(tmp_path), EIGHT, core.Current())
    assert report.unreadable == (core.Unreadable(str(place), "is a directory"),)
    place.rmdir()
    os.mkfifo(place)
    assert core.inspect_set(str(tmp_path), EIGHT, core.Current()).unreadable[0].why == "is not a file"
    place.unlink()
    place.symlink_to("nowhere")
    assert state(tmp_path) == "partial"
    place.unlink()
    place.symlink_to("rank_tp0_pp0_dp0.json")
    assert state(tmp_path) == "complete"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    eight(tmp_path)
    (tmp_path / "rank_tp2_pp0_dp0.json").chmod(0)
    assert core.inspect_set(str(tmp_path), EIGHT, core.Current()).unreadable[0].why == "Permission denied"


def test_file_in_the_place_of_the_directory_is_unreadable(tmp_path: Path) -> None:
    place = tmp_path / "0123456789abcdef"
    place.write_text("")
    report = core.inspect_set(str(place), EIGHT, core.Current())
    assert report.unreadable == (core.Unreadable(str(place), "is not a directory"),)
    with pytest.raises(core.AutotuneCacheError, match="remove it by hand"):
        core.clear_set(str(place), str(tmp_path))
    assert place.exists()


def test_file_of_another_gpu_counts_for_nobody(tmp_path: Path) -> None:
    for number in range(2):
        rank_file(tmp_path, number).rename(tmp_path / f"rank_tp{number}_pp0_dp0_gpuaaaa-{number}.json")
    two = core.Layout(2)
    assert state(tmp_path, two) == "complete"
    here = core.Current({}, gpu_uuids=frozenset({"aaaa-0", "aaaa-1"}))
    assert core.inspect_set(str(tmp_path), two, here).state == "complete"
    swapped = core.Current({}, gpu_uuids=frozenset({"aaaa-0", "bbbb-1"}))
    report = core.inspect_set(str(tmp_path), two, swapped)
    assert (report.state, report.ranks_missing) == ("partial", (core.Rank(1, 0, 0),))
    assert len(core.clear_set(str(tmp_path), str(tmp_path.parent))) == 2


# --- clearing ---------------------------------------------------------------------------------------------------------


def test_clearing_takes_rank_files_and_half_written_ones_only(tmp_path: Path) -> None:
    mine = eight(tmp_path / "0123456789abcdef", range(3))
    (mine / ".autotuner_abc.tmp").write_text("{")
    for kept in ("runs/rank_tp0_pp0_dp0.20260101_000000.json", "notes.txt", "rank_tp0.json", ".autotuner_x", "sub/a"):
        (mine / kept).parent.mkdir(exist_ok=True)
        (mine / kept).write_text(kept)
    other = eight(tmp_path / "fedcba9876543210", range(6))
    before = tree(tmp_path)
    removed = core.clear_set(str(mine), str(tmp_path))
    assert removed == [str(mine / ".autotuner_abc.tmp")] + [str(mine / f"rank_tp{t}_pp0_dp0.json") for t in range(3)]
    gone = {str(Path(path).relative_to(tmp_path)) for path in removed}
    assert tree(tmp_path) == {name: data for name, data in before.items() if name not in gone}
    assert len(list(other.iterdir())) == 6
    assert core.clear_set(str(mine), str(tmp_path)) == []


def test_empty_directory_goes_and_its_neighbours_stay(tmp_path: Path) -> None:
    mine = eight(tmp_path / "sm100" / "0123456789abcdef", range(3))
    core.clear_set(str(mine), str(tmp_path))
    assert not mine.exists() and mine.parent.exists()
    assert core.clear_set(str(mine), str(tmp_path)) == []


def test_links_go_and_what_they_point_to_stays(tmp_path: Path) -> None:
    mine, elsewhere = tmp_path / "cache" / "set", tmp_path / "elsewhere"
    mine.mkdir(parents=True)
    target = rank_file(elsewhere, 0)
    (mine / "rank_tp0_pp0_dp0.json").symlink_to(target)
    (mine / "rank_tp1_pp0_dp0.json").symlink_to(elsewhere)
    (mine / "rank_tp2_pp0_dp0.json").symlink_to("nowhere")
    assert len(core.clear_set(str(mine), str(tmp_path / "cache"))) == 3
    assert tree(elsewhere).keys() == {target.name}


def test_set_that_leads_out_of_the_cache_is_refused(tmp_path: Path) -> None:
    cache, elsewhere = tmp_path / "cache", eight(tmp_path / "cachet" / "real", range(3))
    cache.mkdir()
    (cache / "set").symlink_to(elsewhere)
    with pytest.raises(core.AutotuneCacheError, match="outside of"):
        core.clear_set(str(cache / "set"), str(cache))
    assert len(list(elsewhere.iterdir())) == 3 and (cache / "set").is_symlink()


def test_links_above_a_set_are_the_owners_choice(tmp_path: Path) -> None:
    cache, disk = tmp_path / "cache", tmp_path / "disk"
    mine = eight(disk / "sm100" / "0123456789abcdef", range(3))
    cache.mkdir()
    (cache / "flashinfer").symlink_to(disk)
    (mine.parent / "link").symlink_to(mine.name)
    assert core.clear_set(str(cache / "flashinfer" / "sm100" / "link"), str(cache)) == [
        str(cache / "flashinfer" / "sm100" / "link")
    ]
    assert len(core.clear_set(str(cache / "flashinfer" / "sm100" / mine.name), str(cache))) == 3
    assert not mine.exists()


def test_directories_with_the_name_of_a_half_written_file_stay(tmp_path: Path) -> None:
    mine = eight(tmp_path / "set", range(2))
    (mine / ".autotuner_a.tmp" / "somebodys").mkdir(parents=True)
    (mine / ".autotuner_b.tmp").mkdir()
    os.mkfifo(mine / ".autotuner_c.tmp")
    (mine / ".autotuner_d.tmp").symlink_to("nowhere")
    report = core.inspect_set(str(mine), EIGHT, core.Current())
    assert core.clear_set(str(mine), str(tmp_path)) == report.clearable
    assert report.clearable[0].endswith(".autotuner_d.tmp") and len(report.clearable) == 3
    assert sorted(os.listdir(mine)) == [".autotuner_a.tmp", ".autotuner_b.tmp", ".autotuner_c.tmp"]


def test_set_that_is_a_link_within_the_cache_is_only_unlinked(tmp_path: Path) -> None:
    real = eight(tmp_path / "real", range(3))
    link = tmp_path / "link"
    link.symlink_to("real")
    report = core.inspect_set(str(link), EIGHT, core.Current())
    assert (report.state, report.clearable) == ("partial", [str(link)])
    assert core.clear_set(str(link), str(tmp_path)) == [str(link)]
    assert len(list(real.iterdir())) == 3 and not link.is_symlink()


def test_cache_directory_may_itself_be_reached_through_a_link(tmp_path: Path) -> None:
    eight(tmp_path / "real" / "set", range(3))
    (tmp_path / "link").symlink_to("real")
    assert len(core.clear_set(str(tmp_path / "link" / "set"), str(tmp_path / "link"))) == 3


def test_directory_in_the_place_of_a_file_goes_when_it_is_empty(tmp_path: Path) -> None:
    mine = eight(tmp_path / "set", range(2))
    (mine / "rank_tp2_pp0_dp0.json").mkdir()
    core.clear_set(str(mine), str(tmp_path))
    assert not mine.exists()
    inner = mine / "rank_tp2_pp0_dp0.json" / "somebodys"
    inner.mkdir(parents=True)
    with pytest.raises(core.AutotuneCacheError, match=r"rank_tp2_pp0_dp0\.json\); remove it by hand"):
        core.clear_set(str(mine), str(tmp_path))
    assert inner.exists()


def test_killed_in_the_middle_leaves_what_the_next_call_clears(tmp_path: Path) -> None:
    """The process is stopped dead before each of its removals in turn."""
    script = (
        "import os, sys, signal\n"
        "from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_cache as core\n"
        "left, unlink = [int(sys.argv[2])], os.unlink\n"
        "def dying(*a, **k):\n"
        "    if left[0] == 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    left[0] -= 1\n"
        "    unlink(*a, **k)\n"
        "os.unlink = dying\n"
        "core.clear_set(sys.argv[1], os.path.dirname(sys.argv[1]))\n"
    )
    for after in range(4):
        mine = tmp_path / f"set{after}"
        for number in range(3):
            rank_file(mine, number, gpu="other")
        (mine / ".autotuner_x.tmp").write_text("{")
        done = subprocess.run([sys.executable, "-c", script, str(mine), str(after)], check=False)
        assert done.returncode == -signal.SIGKILL
        report = core.inspect_set(str(mine), core.Layout(3), core.Current(HERE))
        assert len(list(mine.iterdir())) == 4 - after
        assert report.state == "stale" and not report.consistent
        core.clear_set(str(mine), str(tmp_path))
        assert not mine.exists()


def test_clearing_at_the_same_time_does_not_fail(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def clear(path: str) -> None:
        try:
            core.clear_set(path, str(tmp_path))
        except BaseException as error:
            errors.append(error)

    for attempt in range(20):
        mine = eight(tmp_path / f"set{attempt}")
        threads = [threading.Thread(target=clear, args=(str(mine),)) for _thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not mine.exists()
    assert not errors


@given(
    st.lists(st.sampled_from(["good", "other", "torn", "list", "dir", "link", "none", "bare"]), min_size=4, max_size=4),
    st.booleans(),
)
def test_whatever_lies_there_clearing_leads_to_absent(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], extra: bool
) -> None:
    cache = tmp_path_factory.mktemp("cache")
    mine = cache / "0123456789abcdef"
    mine.mkdir()
    for number, kind in enumerate(kinds):
        path = mine / f"rank_tp{number}_pp0_dp0.json"
        if kind == "good":
            rank_file(mine, number)
        elif kind == "other":
            rank_file(mine, number, cuda_version="12.8")
        elif kind == "dir":
            path.mkdir()
        elif kind == "link":
            path.symlink_to("nowhere")
        elif kind != "none":
            path.write_text({"torn": "{", "list": "[]", "bare": "{}"}[kind])
    if extra:
        (mine / "runs").mkdir()
    report = core.inspect_set(str(mine), core.Layout(4), core.Current(HERE))
    wrong = {"torn", "list", "dir"}.intersection(kinds)
    gone = sum(kind in ("none", "link") for kind in kinds)
    if {"good", "other", "torn", "list", "dir"}.intersection(kinds):
        gone += kinds.count("bare")
    expected = "partial" if 0 < gone < 4 else "absent" if gone else "complete"
    expected = "unreadable" if wrong else "stale" if "other" in kinds else expected
    assert report.state == expected
    assert sorted(core.clear_set(str(mine), str(cache))) == sorted(report.clearable)
    assert state(mine, core.Layout(4)) == "absent"
    assert mine.exists() == extra


# --- one release ------------------------------------------------------------------------------------------------------


def environment(root: Path, sglang: str = "0.5.23", flashinfer: str | None = "0.7.2") -> Path:
    """An environment as an install leaves it."""
    venv = root / "venv"
    (venv / "lib/python3.11/site-packages/transformers/models/auto").mkdir(parents=True)
    versions = {"sglang": sglang, "nvidia-cudnn-frontend": "1.15.0"}
    if flashinfer:
        versions["flashinfer-python"] = flashinfer
    record = {"schema_version": 1, "versions": versions, "torch": {"version": "2.14.1", "cuda": "13.0"}}
    (venv / "environment.json").write_text(json.dumps(record))
    return venv


def model(root: Path, **config: Any) -> Path:
    """A model's directory."""
    folder = root / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_moe", **config}))
    return folder


def key_of(*parts: Any, end: str = "|candidate_selection=v2_default|skip_ops=") -> str:
    """The key, written out here once more."""
    return hashlib.sha256(("|".join(map(str, parts)) + end).encode()).hexdigest()[:16]


def gpus(root: Path, *models: str) -> str:
    """The driver's list of GPUs."""
    for number, name in enumerate(models):
        folder = root / "gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t {name}\nIRQ:   \t\t 41\nGPU UUID: \t GPU-E03187B6-{number}\n")
    return str(root / "gpus")


class Server:
    """A release with a cache, and what lies in it."""

    def __init__(self, root: Path, *argv: str, **changes: Any) -> None:
        self.venv = environment(root, **changes)
        self.model = model(root)
        self.cache = root / "cache"
        self.gpus = gpus(root, "NVIDIA B200", "NVIDIA B200")
        self.argv = ["-m", "sglang.launch_server", "--model-path", str(self.model), "--tp-size", "8", *argv]
        self.env = {"SGLANG_CACHE_DIR": str(self.cache)}

    def set(self, *parts: Any, arch: str = "sm100", version: str = "0.7.2", **more: Any) -> Path:
        """Where the set with a key of these parts lies."""
        key = key_of(self.model, "torch.bfloat16", *parts, **more)
        return self.cache / "flashinfer" / "autotune" / version / arch / key

    def configuration(self) -> core.Configuration:
        return core.configure(self.argv, self.env, str(self.venv), "/", self.gpus)

    def found(self) -> list[tuple[str, str]]:
        return [(report.path, report.state) for report in core.inspect(self.configuration()).reports]

    def start(self) -> str | None:
        return core.before_start(self.argv, self.env, str(self.venv), "/", self.gpus)


AUTO = ("None", "flashinfer_cutlass", 8, 1, 1, 1, "Qwen3MoeConfig")


def test_own_partial_set_is_cleared_before_a_start_and_others_stay(tmp_path: Path) -> None:
    server = Server(tmp_path)
    mine = eight(server.set(*AUTO), range(6))
    for other in (
        server.set("None", "flashinfer_cutlass", 4, 1, 1, 1, "Qwen3MoeConfig"),
        server.set(*AUTO, end="|skip_ops="),
        server.set(*AUTO, version="0.6.17"),
        server.set(*AUTO).with_name("0123456789abcdef"),
    ):
        eight(other, range(6))
    before = tree(tmp_path)
    assert server.found() == [(str(mine), "partial")]
    assert server.start() == f"autotune cache {mine}: partial (tp0..tp5 of 8 ranks), cleared"
    here = str(mine.relative_to(tmp_path))
    assert tree(tmp_path) == {name: data for name, data in before.items() if not name.startswith(here)}
    folder = server.cache / "flashinfer" / "autotune" / "0.7.2"
    assert server.start() == f"autotune cache {folder}: absent"


def test_complete_set_stays(tmp_path: Path) -> None:
    server = Server(tmp_path)
    mine = eight(server.set(*AUTO))
    before = tree(tmp_path)
    assert [server.start(), server.start()] == [f"autotune cache {mine}: complete"] * 2
    assert tree(tmp_path) == before


def test_policy_keep_only_tells(tmp_path: Path) -> None:
    server = Server(tmp_path)
    mine = eight(server.set(*AUTO), range(6))
    server.env["TOKFORGE_AUTOTUNE_CACHE"] = "keep"
    before = tree(tmp_path)
    assert server.start() == f"autotune cache {mine}: partial (tp0..tp5 of 8 ranks), kept"
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("key", "now"),
    [
        ("flashinfer_version", "0.7.2"),
        ("cuda_version", "13.0"),
        ("cudnn_frontend_version", "1.15.0"),
        ("gpu", "NVIDIA B200"),
    ],
)
def test_what_the_environment_and_the_driver_tell_is_compared(tmp_path: Path, key: str, now: str) -> None:
    server = Server(tmp_path)
    mine = eight(server.set(*AUTO))
    for number in range(8):
        rank_file(mine, number, **{key: "old"})
    assert server.start() == f"autotune cache {mine}: stale (tp0_pp0_dp0: {key} old, now {now}), cleared"
    assert not mine.exists()


def test_cublas_of_the_system_is_not_known(tmp_path: Path) -> None:
    server = Server(tmp_path)
    mine = server.set(*AUTO)
    for number in range(8):
        rank_file(mine, number, cublas_version="1", cudnn_version="2")
    assert server.found() == [(str(mine), "complete")]


def test_given_values_fix_their_part(tmp_path: Path) -> None:
    server = Server(tmp_path, "--moe-runner-backend", "flashinfer_trtllm", "--dtype=half", "--quantization", "fp8")
    wrong = [server.set("fp8", "flashinfer_trtllm", 8, 1, 1, 1, "Qwen3MoeConfig"), server.set(*AUTO)]
    for folder in wrong:
        eight(folder)
    assert server.found() == []
    key = key_of(server.model, "torch.float16", "fp8", "flashinfer_trtllm", 8, 1, 1, 1, "Qwen3MoeConfig")
    mine = eight(wrong[0].with_name(key), range(2))
    assert server.found() == [(str(mine), "partial")]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--ep", "4"], ("None", "auto", 8, 1, 1, 4, "Qwen3MoeConfig")),
        (["--moe-a2a-backend", "deepep"], ("None", "deep_gemm", 8, 1, 1, 8, "Qwen3MoeConfig")),
        (["--data-parallel-size", "2", "--enable-dp-attention"], ("fp8", "auto", 8, 1, 2, 1, "Qwen3MoeConfig")),
        (["--attn-dp-size", "4"], ("fp8", "auto", 8, 1, 4, 1, "Qwen3MoeConfig")),
        (["--dp-size", "2"], ("fp8", "auto", 8, 1, 1, 1, "Qwen3MoeConfig")),
        (["--dp-size", "1", "--enable-dp-attention"], ("fp8", "auto", 8, 1, 1, 1, "Qwen3MoeConfig")),
        (["--pipeline-parallel-size=2"], ("None", "triton", 8, 2, 1, 1, "Qwen3MoeConfig")),
        (["--tensor-parallel-size", "16"], ("None", "triton", 16, 1, 1, 1, "Qwen3MoeConfig")),
    ],
)
def test_layout_is_read_whatever_its_spelling(tmp_path: Path, words: list[str], parts: tuple[Any, ...]) -> None:
    server = Server(tmp_path, *words)
    mine = server.set(*parts)
    for rank in core.all_ranks(server.configuration().identity.layout):
        rank_file(mine, *rank)
    assert server.found() == [(str(mine), "complete")]
    (mine / "rank_tp7_pp0_dp0.json").unlink(missing_ok=True)
    (mine / "rank_tp7_pp0_dp1.json").unlink(missing_ok=True)
    (mine / "rank_tp7_pp0_dp3.json").unlink(missing_ok=True)
    assert server.found() == [(str(mine), "partial")]


def test_skipped_operators_are_part_of_the_key(tmp_path: Path) -> None:
    server = Server(tmp_path, "--flashinfer-autotune-skip-ops", "zz", "aa", "--host", "0.0.0.0")
    mine = eight(server.set(*AUTO, end="|candidate_selection=v2_default|skip_ops=aa,zz"))
    eight(server.set(*AUTO), range(3))
    assert server.found() == [(str(mine), "complete")]


def test_draft_model_has_a_set_of_its_own(tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    (draft / "config.json").write_text('{"model_type": "llama", "quantization_config": {"quant_method": "own"}}')
    end = "|candidate_selection=v2_default|skip_ops=|draft_quant=own"
    words = ["--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(draft)]
    server = Server(tmp_path, *words)
    mine = eight(server.set(*AUTO))
    second = eight(server.set(*AUTO[:-1], "LlamaConfig", end=end), range(2))
    assert sorted(server.found()) == sorted([(str(mine), "complete"), (str(second), "partial")])
    line = server.start() or ""
    assert f"{second}: partial (tp0..tp1 of 8 ranks), cleared" in line and f"{mine}: complete" in line
    assert mine.exists() and not second.exists() and "\n" not in line
    server.argv = server.argv[: -len(words)]
    eight(second, range(2))
    assert server.found() == [(str(mine), "complete")]


def test_class_that_the_type_does_not_name_is_found_among_those_of_the_packages(tmp_path: Path) -> None:
    server = Server(tmp_path, "--moe-runner-backend", "flashinfer_cutlass")
    auto = server.venv / "lib/python3.11/site-packages/transformers/models/auto/configuration_auto.py"
    auto.write_text('A = [("strange", "StrangeConfig"), ("other", "OtherConfig")]')
    mine = eight(server.set("None", "flashinfer_cutlass", 8, 1, 1, 1, "StrangeConfig"), range(3))
    assert server.found() == [(str(mine), "partial")]


def test_same_key_of_another_architecture_is_another_machines(tmp_path: Path) -> None:
    server = Server(tmp_path)
    mine, other = eight(server.set(*AUTO)), server.set(*AUTO, arch="sm90")
    for number in range(8):
        rank_file(other, number, gpu="NVIDIA H200")
    assert server.found() == [(str(mine), "complete")]
    core.clear_set(str(mine), str(server.cache))
    before = tree(tmp_path)
    assert (server.found(), server.start()) == ([], f"autotune cache {other.parent.parent}: absent")
    (other / "rank_tp0_pp0_dp0.json").unlink()
    assert server.found() == []
    assert tree(tmp_path).keys() == before.keys() - {str((other / "rank_tp0_pp0_dp0.json").relative_to(tmp_path))}
    # Below this machine's own architecture it would be loaded.
    for number in range(8):
        rank_file(mine, number, gpu="NVIDIA B300")
    assert server.found() == [(str(mine), "stale")]


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("NVIDIA H100 80GB HBM3", "sm90"),
        ("NVIDIA H200", "sm90"),
        ("NVIDIA GH200 480GB", "sm90"),
        ("NVIDIA A100-SXM4-80GB", "sm80"),
        ("NVIDIA B200", "sm100"),
        ("NVIDIA GB200", "sm100"),
        ("NVIDIA B300 SXM6 AC", "sm103"),
        ("NVIDIA GB300", "sm103"),
        ("NVIDIA L4", "sm89"),
        ("NVIDIA L40S", "sm89"),
        ("NVIDIA GeForce RTX 4090", "sm89"),
        ("NVIDIA RTX 6000 Ada Generation", "sm89"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "sm120"),
        ("NVIDIA GeForce RTX 5090", "sm120"),
        ("NVIDIA GeForce RTX 5070 Ti", "sm120"),
        ("NVIDIA GB10", "sm121"),
        ("NVIDIA A10", "sm86"),
        ("NVIDIA A40", "sm86"),
        ("NVIDIA GeForce RTX 3090", "sm86"),
        ("NVIDIA RTX A6000", "sm86"),
        ("NVIDIA RTX 5000 Ada Generation", None),
        ("NVIDIA B2000", None),
        ("Quadro RTX 6000", None),
        ("", None),
    ],
)
def test_architecture_is_told_by_the_name_of_the_gpu(name: str, arch: str | None) -> None:
    assert core.arch_of(name) == arch


def test_unknown_gpu_leaves_what_others_wrote_as_a_whole(tmp_path: Path) -> None:
    server = Server(tmp_path)
    other, mine = server.set(*AUTO, arch="sm90"), server.set(*AUTO)
    for path in (tmp_path / "gpus").rglob("information"):
        path.write_text(path.read_text().replace("B200", "Z9000"))
    for number in range(6):
        rank_file(other, number, gpu="NVIDIA H200")
        rank_file(mine, number, gpu="NVIDIA Z9000")
    assert server.start() == f"autotune cache {mine}: partial (tp0..tp5 of 8 ranks), cleared"
    assert not mine.exists() and len(list(other.iterdir())) == 6
    assert server.start() == f"autotune cache {other.parent.parent}: absent"
    assert len(list(other.iterdir())) == 6


def test_masked_gpu_clears_nothing_that_lies_below_several_architectures(tmp_path: Path) -> None:
    server = Server(tmp_path)
    first, second = eight(server.set(*AUTO)), eight(server.set(*AUTO, arch="sm90"))
    server.gpus = str(tmp_path / "none")
    assert server.found() == sorted([(str(first), "complete"), (str(second), "complete")])
    (second / "rank_tp3_pp0_dp0.json").unlink()
    before = tree(tmp_path)
    line = server.start() or ""
    assert "sm100 and sm90: not checked, nothing tells which of them this machine's GPU has" in line
    assert tree(tmp_path) == before
    shutil.rmtree(first)
    assert (server.start() or "").endswith(", cleared")


@pytest.mark.parametrize(
    ("parts", "dtype"),
    [
        (("minimax_m3_nvfp4", "flashinfer_cutlass", 8, 1, 1, 1, "DeepseekV3Config"), "torch.bfloat16"),
        (("fp8", "auto", 8, 1, 1, 8, "Qwen3MoeConfig"), "torch.float32"),
        (("None", "flashinfer_trtllm", 8, 1, 1, 1, "PretrainedConfig"), "torch.bfloat16"),
    ],
)
def test_mixed_set_of_another_configuration_is_cleared_and_a_whole_one_is_nobodys(
    tmp_path: Path, parts: tuple[Any, ...], dtype: str
) -> None:
    words = ["--moe-runner-backend", "flashinfer_trtllm", "--dtype", "bfloat16", "--quantization", "modelopt_fp4"]
    server = Server(tmp_path, *words)
    mine = eight(server.set(*AUTO).with_name(key_of(server.model, dtype, *parts)))
    before = tree(tmp_path)
    assert server.start() == f"autotune cache {mine.parent.parent}: absent"
    assert tree(tmp_path) == before
    (mine / "rank_tp3_pp0_dp0.json").unlink()
    assert (server.start() or "").endswith("of 8 ranks), cleared")
    assert not mine.exists()


def test_mixed_set_of_another_draft_model_is_cleared(tmp_path: Path) -> None:
    server = Server(tmp_path, "--speculative-algorithm", "EAGLE", "--moe-runner-backend", "flashinfer_trtllm")
    end = "|candidate_selection=v2_default|skip_ops=|draft_quant=None"
    mine = eight(server.set("None", "auto", 8, 1, 1, 1, "DeepseekV3Config", end=end), range(2))
    assert server.found() == [(str(mine), "partial")]


def test_draft_set_that_is_found_does_not_end_the_search_for_the_models_own(tmp_path: Path) -> None:
    server = Server(tmp_path, "--speculative-algorithm", "EAGLE", "--moe-runner-backend", "flashinfer_cutlass")
    end = "|candidate_selection=v2_default|skip_ops=|draft_quant=None"
    draft = eight(server.set(*AUTO, end=end))
    mine = eight(server.set("fp8", "auto", 8, 1, 1, 1, "Qwen3MoeConfig"), range(2))
    assert server.found() == sorted([(str(draft), "complete"), (str(mine), "partial")])


def test_model_without_a_config_is_looked_for_with_every_quantization(tmp_path: Path) -> None:
    server = Server(tmp_path, "--moe-runner-backend", "flashinfer_cutlass")
    (server.model / "config.json").rename(server.model / "params.json")
    mine = eight(server.set("compressed-tensors", "flashinfer_cutlass", 8, 1, 1, 1, "PretrainedConfig"))
    assert server.found() == [(str(mine), "complete")]


def test_start_says_when_there_are_too_many_names_to_try(tmp_path: Path) -> None:
    server = Server(tmp_path)
    (server.model / "config.json").unlink()
    auto = server.venv / "lib/python3.11/site-packages/transformers/models/auto/configuration_auto.py"
    auto.write_text("\n".join(f'("m{number}", "M{number}Config"),' for number in range(900)))
    other = eight(server.set(*AUTO).with_name("0123456789abcdef"), range(2))
    start = time.process_time()
    line = server.start()
    assert time.process_time() - start < 1.5  # 0.3 s where nothing else runs
    assert line == f"autotune cache {other.parent.parent}: not every name could be tried"
    assert len(list(other.iterdir())) == 2


def test_empty_cache_directory_is_where_the_server_works(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.env["SGLANG_CACHE_DIR"] = ""
    configuration = core.configure(server.argv, server.env, str(server.venv), "/srv", server.gpus)
    assert configuration.folder == "/srv/flashinfer/autotune/0.7.2"


def test_replica_behind_a_router_has_its_own_ranks(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.env["SGLANG_DP_RANK"] = "3"
    mine = server.set(*AUTO)
    for number in range(7):
        rank_file(mine, number, dp=3)
    rank_file(mine, 7)
    assert server.found() == [(str(mine), "partial")]
    rank_file(mine, 7, dp=3)
    assert server.found() == [(str(mine), "complete")]


@pytest.mark.parametrize("words", [["--enable-deepep-waterfill"], ["--enable-prefill-cp"], ["--dwdp-size", "2"]])
def test_experts_may_be_spread_over_all_ranks(tmp_path: Path, words: list[str]) -> None:
    server = Server(tmp_path, *words)
    mine = eight(server.set("None", "auto", 8, 1, 1, 8, "Qwen3MoeConfig"))
    assert server.found() == [(str(mine), "complete")]


# --- files that are not what they should be ---------------------------------------------------------------------------


@pytest.mark.parametrize("content", ["{}", '{"_metadata": {}}', json.dumps({"_metadata": HERE})])
def test_rank_without_results_beside_ranks_with_some_is_missing(tmp_path: Path, content: str) -> None:
    eight(tmp_path)
    place = tmp_path / "rank_tp3_pp0_dp0.json"
    place.write_text(content)
    report = core.inspect_set(str(tmp_path), EIGHT, core.Current())
    assert report.ranks_missing == (core.Rank(3, 0, 0),)
    assert report.state in ("partial", "stale") and not report.consistent
    for number in range(8):
        rank_file(tmp_path, number).write_text(json.dumps({"_metadata": HERE}))
    assert state(tmp_path) == "complete"


def test_stage_without_any_operator_to_tune_has_no_results_rightly(tmp_path: Path) -> None:
    for pp in (0, 1):
        for tp in (0, 1):
            rank_file(tmp_path, tp, pp)
    for tp in (0, 1):
        (tmp_path / f"rank_tp{tp}_pp1_dp0.json").write_text(json.dumps({"_metadata": HERE}))
    assert state(tmp_path, core.Layout(2, 2)) == "complete"
    rank_file(tmp_path, 0, 1)
    assert state(tmp_path, core.Layout(2, 2)) == "partial"


@pytest.mark.parametrize(
    "name", ["rank_tp00_pp0_dp0.json", "rank_tp\u0660_pp0_dp0.json", "rank_tp0_pp00_dp0.json", "rank_tp0_pp0_dp01.json"]
)
def test_names_that_sglang_does_not_write_are_nobodys(tmp_path: Path, name: str) -> None:
    mine = eight(tmp_path / "set", range(1, 8))
    (mine / name).write_text("{}")
    assert state(mine) == "partial"
    assert len(core.clear_set(str(mine), str(tmp_path))) == 7 and os.listdir(mine) == [name]


def test_value_that_only_some_ranks_wrote_is_stale_though_it_is_known(tmp_path: Path) -> None:
    eight(tmp_path)
    old = {key: value for key, value in HERE.items() if key != "cudnn_frontend_version"}
    rank_file(tmp_path, 2).write_text(json.dumps({"_metadata": old, "op": 1}))
    for current in (HERE, {}):
        report = core.inspect_set(str(tmp_path), EIGHT, core.Current(current))
        assert report.state == "stale"
        assert ("tp2_pp0_dp0", "cudnn_frontend_version", None) in {
            (one.rank, one.key, one.saved) for one in report.stale
        }


def test_huge_file_is_not_read(tmp_path: Path) -> None:
    eight(tmp_path)
    place = tmp_path / "rank_tp3_pp0_dp0.json"
    os.truncate(place, (64 << 20) + 1)
    report = core.inspect_set(str(tmp_path), EIGHT, core.Current())
    assert report.unreadable == (core.Unreadable(str(place), "is larger than 64 MiB"),)


def test_file_that_does_not_fit_into_memory_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def loads(_text: str) -> Any:
        raise MemoryError

    eight(tmp_path)
    monkeypatch.setattr(core.json, "loads", loads)
    report = core.inspect_set(str(tmp_path), EIGHT, core.Current())
    assert (report.state, report.unreadable[0].why) == ("unreadable", "does not fit into memory")


@pytest.mark.parametrize("name", ["model/config.json", "venv/environment.json"])
def test_pipe_in_the_place_of_a_description_is_not_waited_for(tmp_path: Path, name: str) -> None:
    server = Server(tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    assert core.configure(server.argv, server.env, str(server.venv), "/", server.gpus)


def test_more_ranks_than_anybody_has_are_refused(tmp_path: Path) -> None:
    server = Server(tmp_path, "--tp-size", "10000000000")
    line = server.start() or ""
    assert line.startswith("autotune cache: not checked, ") and "above 65536" in line
    with pytest.raises(core.AutotuneCacheError, match="above 65536"):
        core.check_layout(core.Layout(1024, 8, 16))
    core.check_layout(core.Layout(1024, 8, 8))


def test_what_is_said_is_one_printable_line_of_bounded_length(tmp_path: Path) -> None:
    server = Server(tmp_path)
    mine = server.set(*AUTO)
    for number in range(8):
        rank_file(mine, number, gpu="\x1b[31m\r\n\u2028\ud800" + "x" * 5000)
    line = server.start() or ""
    assert line.isprintable() and len(line) <= 1500
    assert "\\x1b[31m\\r\\n\\u2028\\ud800xxx" in line and line.endswith("now NVIDIA B200), cleared")
    assert str(core.AutotuneCacheError("a\nb\x1b")) == "a\\nb\\x1b"


def test_values_that_are_no_texts_are_compared_as_what_they_are(tmp_path: Path) -> None:
    for value in (None, ["x"], {"a": 1}, 5, float("nan")):
        eight(tmp_path)
        rank_file(tmp_path, 2, gpu=value)
        assert state(tmp_path) == "stale"
        assert state(tmp_path, gpu=HERE["gpu"]) == "stale"
    (tmp_path / "rank_tp2_pp0_dp0.json").write_text('{"_metadata": {"x": ' + "[" * 900 + "]" * 900 + "}}")
    assert json.dumps(core.inspect_set(str(tmp_path), EIGHT, core.Current()).result())


def test_set_that_no_rank_loads_and_that_cannot_go_is_no_reason_to_be_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: str, _within: str) -> list[str]:
        raise core.AutotuneCacheError("cannot clear it", directory="x")

    server = Server(tmp_path)
    mine = server.set(*AUTO)
    for number in range(8):
        rank_file(mine, number, cuda_version="12.9")
    monkeypatch.setattr(core, "clear_set", refuse)
    line = server.start() or ""
    assert line.endswith("now 13.0), not cleared (cannot clear it), ignored by all ranks alike")
    for changes in ({}, {"cuda_version": "12.8"}):
        rank_file(mine, 5, **changes)
        with pytest.raises(core.AutotuneCacheError, match="start all the same with sglang_autotune_cache_policy: keep"):
            server.start()
    (mine / "rank_tp5_pp0_dp0.json").unlink()
    with pytest.raises(core.AutotuneCacheError, match="sglang_autotune_cache_policy: keep"):
        server.start()


def test_set_that_cannot_be_cleared_stops_the_start(tmp_path: Path) -> None:
    server = Server(tmp_path)
    mine = eight(server.set(*AUTO), range(6))
    (mine / "rank_tp7_pp0_dp0.json" / "x").mkdir(parents=True)
    with pytest.raises(core.AutotuneCacheError, match="cannot clear the autotune cache"):
        server.start()


@pytest.mark.parametrize(
    ("words", "env", "changes"),
    [
        (["--disable-flashinfer-autotune"], {}, {}),
        ([], {"SGLANG_FLASHINFER_AUTOTUNE_CACHE": "0"}, {}),
        ([], {"SGLANG_FLASHINFER_AUTOTUNE_CACHE": "False"}, {}),
        ([], {}, {"flashinfer": None}),
        ([], {}, {"sglang": "0.5.11"}),
    ],
)
def test_server_that_reads_no_results_is_not_looked_at(
    tmp_path: Path, words: list[str], env: dict[str, str], changes: dict[str, Any]
) -> None:
    server = Server(tmp_path, *words, **changes)
    server.env.update(env)
    eight(server.set(*AUTO), range(6))
    before = tree(tmp_path)
    assert server.start() is None
    assert tree(tmp_path) == before


def test_first_release_does_not_know_the_switch(tmp_path: Path) -> None:
    server = Server(tmp_path, sglang="0.5.12.post1", flashinfer="0.6.11")
    server.env["SGLANG_FLASHINFER_AUTOTUNE_CACHE"] = "0"
    eight(server.set(*AUTO, end="", version="0.6.11"), range(6))
    assert "cleared" in (server.start() or "")


@pytest.mark.parametrize(
    ("words", "says"),
    [(["--config", "/x.yml"], "--config"), (["--tp-size", "many"], "--tp-size 'many' is not a number")],
)
def test_what_cannot_be_told_is_said_and_changes_nothing(tmp_path: Path, words: list[str], says: str) -> None:
    server = Server(tmp_path, *words)
    eight(server.set(*AUTO), range(6))
    before = tree(tmp_path)
    line = server.start() or ""
    assert line.startswith("autotune cache: not checked, ") and says in line
    assert tree(tmp_path) == before


def test_gpus_are_read_from_the_driver(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    (tmp_path / "mixed").mkdir()
    assert core.read_gpus(gpus(tmp_path / "two", "NVIDIA B200", "NVIDIA B200")) == (
        ["NVIDIA B200", "NVIDIA B200"],
        ["GPU-E03187B6-0", "GPU-E03187B6-1"],
    )
    assert core.read_gpus(str(tmp_path / "none")) == ([], [])
    venv = environment(tmp_path)
    mixed = core.read_current(str(venv), {}, gpus(tmp_path / "mixed", "NVIDIA B200", "NVIDIA H200"))
    assert (mixed.metadata, mixed.free) == ({"cuda_version": "13.0"}, frozenset({"gpu"}))
    assert mixed.gpu_uuids == {"e03187b6-0", "e03187b6-1"}


def test_versions_come_from_the_distributions_without_a_record(tmp_path: Path) -> None:
    venv = environment(tmp_path)
    (venv / "environment.json").write_text("{")
    site = venv / "lib/python3.11/site-packages"
    for name in ("flashinfer_python-0.7.2", "sglang-0.5.23"):
        (site / f"{name}.dist-info").mkdir()
    assert core.installed_versions(str(venv)) == {"flashinfer-python": "0.7.2", "sglang": "0.5.23"}


def test_cache_is_in_the_home_directory_where_nothing_says_otherwise(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.env = {"HOME": "/home/x"}
    assert server.configuration().folder == "/home/x/.cache/sglang/flashinfer/autotune/0.7.2"
    server.env = {"SGLANG_CACHE_DIR": "rel"}
    assert core.configure(server.argv, server.env, str(server.venv), "/srv").cache_dir == "/srv/rel"
