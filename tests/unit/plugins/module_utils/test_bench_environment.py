# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A server's environment is described alike, whoever measures it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils.bench_environment import described

NAME = "4f1c09aa31de"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def describe(root: Path, serving: str, gate: Any, source: Any = None, name: str = NAME) -> dict[str, Any]:
    place = root / "venvs" / NAME
    place.mkdir(parents=True, exist_ok=True)
    identity = {"source": {"type": "index"} if source is None else source}
    (place / "environment.json").write_text(json.dumps({"identity": identity, "autotune_gate": gate}))
    return described(str(root), {"environment": name, "backend": serving, "args": {"tp-size": 8}})


def gate(**backends: str) -> dict[str, Any]:
    return {"file": "/x/model_runner.py", "sha256": "0" * 64, "backends": backends}


@pytest.mark.parametrize(
    ("serving", "backends", "asked", "kind", "by"),
    [
        ("flashinfer_cutlass", {"flashinfer_trtllm": "upstream"}, None, None, None),
        ("flashinfer_trtllm", {"flashinfer_trtllm": "upstream"}, "flashinfer_trtllm", "open_upstream", "upstream"),
        (
            "auto",
            {"flashinfer_trtllm": "upstream", "flashinfer_cutlass": "patch"},
            "flashinfer_cutlass",
            "open_by_patch",
            "patch",
        ),
        # The one that was opened is what makes this environment another one.
        (
            "flashinfer_trtllm",
            {"flashinfer_trtllm": "upstream", "flashinfer_cutlass": "patch"},
            "flashinfer_cutlass",
            "open_by_patch",
            "patch",
        ),
    ],
)
def test_gate_of_the_environment_is_described(
    tmp_path: Path, serving: str, backends: dict[str, str], asked: str | None, kind: str | None, by: str | None
) -> None:
    found = describe(tmp_path, serving, gate(**backends))
    assert found["autotune_gate"] == {"backend": asked, "gate": kind, "enabled_by": by, "backends": list(backends)}
    assert (found["args"], found["source"]) == ({"tp-size": 8}, {"type": "index"})


def test_release_without_a_gate_has_an_empty_one(tmp_path: Path) -> None:
    assert describe(tmp_path, "auto", None)["autotune_gate"] == {}


def test_source_tree_is_named_by_its_commit_and_not_by_its_place(tmp_path: Path) -> None:
    source = {"type": "checkout", "path": "/home/me/sglang", "version": "0.5.23", "commit": COMMIT, "changes": "ab12"}
    found = describe(tmp_path, "auto", None, source)
    assert found["source"] == {"type": "checkout", "version": "0.5.23", "commit": COMMIT, "changes": "ab12"}


@pytest.mark.parametrize("name", ["", "000000000000", "../../etc", None, 5])
def test_environment_that_is_not_there_adds_nothing(tmp_path: Path, name: Any) -> None:
    found = describe(tmp_path, "auto", gate(), name=name)
    assert found == {"environment": name, "backend": "auto", "args": {"tp-size": 8}}


@pytest.mark.parametrize("odd", ["open", {"file": 3}, ["x"]])
def test_gate_that_cannot_be_read_is_no_gate(tmp_path: Path, odd: Any) -> None:
    found = describe(tmp_path, "auto", odd, source="nowhere")
    assert (found["autotune_gate"], found["source"]) == ({}, {})
