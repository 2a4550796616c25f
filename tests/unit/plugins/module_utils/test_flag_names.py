# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Flags that went, came or changed their name: what to write instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import flag_history, flag_names, releases
from ansible_collections.tokforge.sglang.plugins.module_utils.flags import Flag

OLD = releases.get("0.5.12.post1")
NEW = releases.get("0.5.23")
LAST = flag_history.RELEASES[-1]


def release(version: str, *names: str, **more: Any) -> releases.Release:
    """A release with these flags only."""
    return replace(NEW, version=version, flags={name: Flag(name, **more) for name in names})


@pytest.mark.parametrize(
    ("version", "name", "value", "expected"),
    [
        ("0.5.23", "nsa-decode-backend", "trtllm", "it is --dsa-decode-backend since 0.5.13"),
        ("0.5.23", "nsa-decode", "trtllm", "it is --dsa-decode-backend since 0.5.13"),
        ("0.5.23", "fp4-gemm-runner-backend", "x", "it is --fp4-gemm-backend since 0.5.8"),
        (
            "0.5.23", "nsa-prefill-cp-mode", "in-seq-split",
            "it is --cp-strategy since 0.5.14: write `cp-strategy: zigzag`",
        ),
        ("0.5.23", "enable-nsa-prefill-context-parallel", True, "it is --enable-prefill-cp since 0.5.14"),
        (
            "0.5.23", "disable-piecewise-cuda-graph", True,
            "it is --cuda-graph-backend-prefill since 0.5.14: write `cuda-graph-backend-prefill: disabled`",
        ),
        (
            "0.5.23", "enforce-piecewise-cuda-graph", True,
            "it is --cuda-graph-backend-prefill since 0.5.14: it has no tc_piecewise, only full, breakable, disabled",
        ),
        (
            "0.5.23", "enable-flashinfer-cutlass-moe", True,
            "it is --moe-runner-backend since 0.5.1: write `moe-runner-backend: flashinfer_cutlass`",
        ),
        ("0.5.23", "enable-flashinfer-cutlass-moe", False, "it is --moe-runner-backend since 0.5.1: leave it out"),
        (
            "0.5.23", "elastic-ep-rejoin", True,
            "it is --elastic-ep-join-mode since 0.5.16: write `elastic-ep-join-mode: recover`",
        ),
        ("0.5.12.post1", "cuda-graph-max-bs-decode", 8, "before 0.5.14 it is --cuda-graph-max-bs"),
        ("0.5.12.post1", "dsa-prefill-backend", "x", "before 0.5.13 it is --nsa-prefill-backend"),
        (
            "0.5.12.post1", "flashinfer-allreduce-fusion-backend", "auto",
            "before 0.5.14 it is --enable-flashinfer-allreduce-fusion: write `enable-flashinfer-allreduce-fusion: tru",
        ),
        (
            "0.5.12.post1", "cuda-graph-backend-prefill", "breakable",
            "before 0.5.14 it is --enable-breakable-cuda-graph: write `enable-breakable-cuda-graph: true`",
        ),
        (
            "0.5.12.post1", "cuda-graph-backend-decode", "full",
            "it came with 0.5.14; leave it out, or choose that release or a later one",
        ),
        ("0.5.12.post1", "attn-dp-size", 2, "it came with 0.5.22; leave it out, or choose that release or a later one"),
        ("0.5.23", "enable-double-sparsity", True, "0.5.10.post1 was the last release with it; SGLang has no double"),
        ("0.5.23", "speculative-ngram-max-match-window-size", 3, "0.5.10rc0 was the last release with it; leave"),
        ("0.5.23", "no-lora-strict-loading", True, "write `lora-strict-loading: false`"),
        ("0.5.23", "tp-sise", 8, "did you mean --tp-size?"),
        ("0.5.23", "tp", 8, "did you mean --tp-size?"),
        ("0.5.12.post1", "ep", 8, "did you mean --ep-size?"),
        ("0.5.23", "mem-fraction", 0.9, "did you mean --mem-fraction-static?"),
        ("0.5.23", "zzz", 8, "see `python -m sglang.launch_server --help` of 0.5.23"),
    ],
)  # fmt: skip
def test_flag_that_a_release_lacks_gets_the_name_or_the_advice_for_it(
    version: str, name: str, value: Any, expected: str
) -> None:
    assert flag_names.advice(name, value, releases.get(version)).startswith(expected)


def test_value_that_the_new_flag_cannot_say_makes_no_successor() -> None:
    assert flag_names.successor("nsa-prefill-cp-mode", "unheard", NEW) is None
    assert flag_names.advice("nsa-prefill-cp-mode", "unheard", NEW).startswith("0.5.19 was the last release with it")


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        (NEW.flag("disable-cuda-graph"), True, "write `cuda-graph-backend-decode: disabled` and `cuda-graph-b"),
        (NEW.flag("enable-dp-attention"), True, "write attn-dp-size with the value of dp-size, and leave dp-size out"),
        (
            NEW.flag("enable-flashinfer-allreduce-fusion"), True,
            "write `flashinfer-allreduce-fusion-backend: auto`",
        ),
        (NEW.flag("grpc-mode"), True, "write smg-grpc-mode instead"),
        (OLD.flag("stream-output"), True, "write incremental-streaming-output instead"),
        (Flag("other", deprecated=True, successor="--b=auto"), True, "write b=auto instead"),
        (Flag("other", deprecated=True), True, "leave it out"),
    ],
)  # fmt: skip
def test_deprecated_flag_gets_its_successor(flag: Flag | None, value: Any, expected: str) -> None:
    assert flag is not None
    assert flag_names.instead(flag, value, NEW).startswith(expected)


def test_successor_that_is_deprecated_itself_is_passed_over() -> None:
    deprecated = Flag("nsa-prefill-backend", deprecated=True)
    both = replace(NEW, flags={"nsa-prefill-backend": deprecated, "dsa-prefill-backend": Flag("dsa-prefill-backend")})
    found = flag_names.successor("nsa-prefill", "x", both)
    assert found is not None and found.flag.name == "dsa-prefill-backend"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tp-size", ()),
        ("never", ()),
        ("nsa-prefill", (("0.5.3rc2", "0.5.3.post3"),)),
        ("hierarchical-sparse-attention-extra-config", (("0.5.8", "0.5.9"), ("0.5.12", LAST))),
    ],
)
def test_spans_say_when_a_flag_was_there(name: str, expected: tuple[tuple[str, str], ...]) -> None:
    assert flag_names.spans(name) == expected


def test_flag_that_went_and_came_back_is_both_before_and_after() -> None:
    name = "hierarchical-sparse-attention-extra-config"
    assert flag_names.went(name, "0.5.10") == "0.5.9" and flag_names.came(name, "0.5.10") == "0.5.12"
    assert flag_names.went(name, "0.5.9") is None and flag_names.came(name, "0.5.12") is None
    assert flag_names.went("crash-on-nan", "0.5.24.dev1+gabc") == "0.5.3.post3"


def test_every_rename_is_as_the_history_of_the_releases_has_it() -> None:
    for rename in flag_names.RENAMES:
        new = flag_names.spans(rename.new)
        # The old one went, or is there still; but never came after the new one.
        old = flag_names.spans(rename.old)
        assert old or rename.old in ("fp4-gemm-runner-backend", "fp8-gemm-runner-backend") or NEW.flag(rename.old)
        if rename.old.startswith("enable-flashinfer-") and rename.new == "moe-runner-backend":
            # It became deprecated in a release that had the other one already, or got that value then.
            continue
        if new:
            assert rename.since == new[0][0], rename
        if old and new:
            assert releases.sort_key(old[0][0]) <= releases.sort_key(new[0][0])


def test_every_flag_that_went_has_advice_of_its_own_or_is_to_be_left_out() -> None:
    for name, span in flag_history.SPANS.items():
        if not span.endswith(LAST):
            advice = flag_names.advice(name, True, NEW)
            assert "was the last release with it; " in advice or "it is --" in advice, name


def test_removed_flags_are_such() -> None:
    for name in flag_names.REMOVED:
        flag = NEW.flag(name)
        assert flag is None or flag.deprecated, name


def test_history_agrees_with_the_locked_releases() -> None:
    for version in releases.known():
        named = {name for flag in releases.get(version).flags.values() for name in (flag.name, *flag.aliases)}
        place = flag_history.RELEASES.index(version)
        for name in flag_history.SPANS:
            there = any(
                flag_history.RELEASES.index(first) <= place <= flag_history.RELEASES.index(last)
                for first, last in flag_names.spans(name)
            )
            assert (name in named) is there, (version, name)
