# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe with the real SGLang on the CPU.

An environment costs more than everything here, so the tests take one that is there: PROBE_ENVIRONMENTS names
directories of virtual environments with SGLang, and tests of the whole rollout call `check_release` on what they made.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import launch_plan, probe, proc, release_store, tiny_moe

pytestmark = pytest.mark.real

ENVIRONMENTS = [path for path in os.environ.get("PROBE_ENVIRONMENTS", "").split(os.pathsep) if path]


def check_release(root: Path, release: int) -> dict[str, Any]:
    """Probe a release of lane cpu twice: its layer runs, and the second time nothing does."""
    asked = probe.Request(root=str(root), release=release, timeout_s=240, force=True)
    first = probe.carry_out(asked).as_dict()
    assert first["ok"], first
    [layer] = [step for step in first["steps"] if step["name"] == "layer"]
    assert (layer["result"], layer["detail"]) == ("ok", "8 forward passes, with finite output")
    assert first["autotune"]["expected"] == "not_expected" and first["gpu"] is None
    again = probe.carry_out(replace(asked, force=False)).as_dict()
    assert again["recorded"] is True and {step["result"] for step in again["steps"]} == {"skipped"}
    return first


@pytest.fixture(params=ENVIRONMENTS or [pytest.param("", marks=pytest.mark.skip(reason="PROBE_ENVIRONMENTS is empty"))])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A root whose only environment is the given one."""
    venv = tmp_path / "venvs" / "given"
    venv.mkdir(parents=True)
    for name in ("bin", "lib", "pyvenv.cfg"):
        (venv / name).symlink_to(Path(request.param) / name)
    command = [str(venv / "bin/python"), "-c", "import importlib.metadata as m; print(m.version('sglang'))"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    marker = {"schema_version": 1, "versions": {"sglang": version}}
    (venv / "environment.json").write_text(json.dumps(marker))
    (tmp_path / "state").mkdir()
    yield tmp_path
    shutil.rmtree(venv)


def stage(root: Path, backend: str = "auto", **args: Any) -> int:
    """A release of the tiny model; its number."""
    model = root / "model"
    if not model.exists():
        model.mkdir()
        tiny_moe.write(str(model), iter(["one two three four five " * 200]))
    version = json.loads((root / "venvs/given/environment.json").read_text())["versions"]["sglang"]
    request = launch_plan.Request(
        root=str(root),
        sglang_version=version,
        lane="cpu",
        backend=backend,
        host="127.0.0.1",
        port=31690,
        metrics=False,
        model_path=str(model),
        served_name="tiny",
        random_weights=True,
        args={"max-total-tokens": 8192, "max-running-requests": 64, **args},
    )
    argv, env = launch_plan.argv(request), launch_plan.environment(request)
    content = release_store.Content("given", version, backend, argv, env, str(root), {"path": str(model)})
    return release_store.stage(str(root), content, "2026-11-30T00:00:00Z").release


def probes_left() -> list[str]:
    """Command lines of processes that belong to a probe."""
    return [proc.cmdline(one.pid) for one in proc.processes() if "TOKFORGE_PROBE" in proc.environ(one.pid)]


def test_layer_of_one_of_two_ranks_runs(root: Path) -> None:
    result = check_release(root, stage(root, **{"tp-size": 2}))
    assert result["shared_cache"] is True
    assert not (root / "cache/sglang/flashinfer").exists()
    assert probes_left() == []


def test_backend_that_is_not_installed_fails_in_a_moment(root: Path) -> None:
    answer = probe.carry_out(probe.Request(root=str(root), release=stage(root, "flashinfer_cutlass"), timeout_s=60))
    assert answer.failed is not None
    assert (answer.failed.name, answer.failed.reason) == ("import", "import_error")
    assert answer.failed.detail == "importing flashinfer.fused_moe: ModuleNotFoundError: No module named 'flashinfer'"
    assert answer.steps[-1].result == "skipped"


def test_argument_that_crashes_the_server_crashes_the_probe(root: Path) -> None:
    number = stage(root, **{"attention-backend": "fa3"})
    answer = probe.carry_out(probe.Request(root=str(root), release=number, timeout_s=240, steps=("layer",)))
    assert answer.failed is not None
    assert answer.failed.lines[-1].startswith("AssertionError: ")
    assert "FlashAttention v3" in answer.message()
    assert probes_left() == []
