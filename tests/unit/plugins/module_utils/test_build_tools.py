# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a server is told to compile with, and when nothing is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import build_tools, cuda_toolkit, host_cpus, host_memory
from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import Gpu, Report

GIB = 1 << 30
BOX = Report(
    "ok", "one GPU", driver_version="580.95.05", cuda_version="13.0", gpus=(Gpu(0, "x", compute_capability=(12, 0)),)
)
NONE = Report("no_tool", "no nvidia-smi")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A deployment on a machine of 64 CPUs and 64 GiB, whose first nvcc in PATH is an old one."""
    (tmp_path / "state").mkdir()
    (tmp_path / "current/venv").mkdir(parents=True)
    marker = {"versions": {"flashinfer-python": "0.7.2"}, "torch": {"cuda": "13.0"}}
    (tmp_path / "current/venv/environment.json").write_text(json.dumps(marker))
    monkeypatch.setattr(host_cpus, "look", lambda: host_cpus.Cpus(allowed=frozenset(range(64))))
    monkeypatch.setattr(host_memory, "look", lambda: host_memory.Memory(64 * GIB, 64 * GIB))
    old = cuda_toolkit.Toolkit("/usr", "nvcc in PATH", unasked=True, version=(11, 5))
    new = cuda_toolkit.Toolkit("/usr/local/cuda-13.0", "beside it", version=(13, 0))
    monkeypatch.setattr(cuda_toolkit, "look", lambda _request: cuda_toolkit.Seen(toolkits=(old, new)))
    return tmp_path


def launch(root: Path, **env: str) -> None:
    (root / "current/launch.json").write_text(json.dumps({"env": env}))


def noted(root: Path) -> object:
    return json.loads((root / "state/build_tools.json").read_text())


def test_compilers_that_fit_into_memory_and_a_toolkit_that_can(root: Path) -> None:
    launch(root)
    expected = {"MAX_JOBS": "6", "CUDA_HOME": "/usr/local/cuda-13.0"}
    assert build_tools.write(str(root), lambda: BOX) == expected
    assert noted(root) == expected


def test_toolkit_that_would_be_taken_anyway_needs_no_word(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = cuda_toolkit.Toolkit("/usr/local/cuda", "usual place", unasked=True, version=(13, 0))
    monkeypatch.setattr(cuda_toolkit, "look", lambda _request: cuda_toolkit.Seen(toolkits=(right,)))
    assert build_tools.write(str(root), lambda: BOX) == {"MAX_JOBS": "6"}


def test_what_the_release_says_is_left_to_it(root: Path) -> None:
    launch(root, MAX_JOBS="2", CUDA_HOME="/opt/cuda")
    assert build_tools.write(str(root), lambda: BOX) == {}
    assert not (root / "state/build_tools.json").exists()


def test_a_note_of_before_does_not_stay(root: Path) -> None:
    launch(root)
    build_tools.write(str(root), lambda: BOX)
    launch(root, SGLANG_USE_CPU_ENGINE="1")
    assert build_tools.write(str(root), lambda: pytest.fail("no GPU is to be asked for")) == {}
    assert noted(root) == {}


def test_without_a_gpu_only_the_compilers_are_told(root: Path) -> None:
    launch(root)
    assert build_tools.write(str(root), lambda: NONE) == {"MAX_JOBS": "6"}


def test_machine_that_cannot_be_read_is_left_to_the_tools(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "look", host_memory.Memory)
    (root / "current/venv/environment.json").write_text("{")
    assert build_tools.write(str(root), lambda: NONE) == {}


@pytest.mark.parametrize("text", ["", "[]", '{"env": []}', "[" * 100_000])
def test_damaged_launch_file_has_no_environment(root: Path, text: str) -> None:
    (root / "current/launch.json").write_text(text)
    assert build_tools.write(str(root), lambda: NONE) == {"MAX_JOBS": "6"}
