# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole rollout on a real GPU: preflight, deploy of a tuned backend, the same again, verify, a warm start, back.

    pytest tests/gpu                                        # inventories/h200, for which see docs/gpu-tests.md
    TOKFORGE_GPU_INVENTORY=... TOKFORGE_GPU_VARIABLES='{"tp": 2}' pytest tests/gpu

The tests are one story in the order of the file, since a start of the server costs a minute. They have a root and a
port of their own, and leave nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rollout
from rollout import Play, Rollout

from ansible_collections.tokforge.sglang.plugins.module_utils import proc, version_order

pytestmark = pytest.mark.gpu

INVENTORY = Path(os.environ.get("TOKFORGE_GPU_INVENTORY", rollout.CHECKOUT / "inventories/h200"))
VARIABLES: dict[str, Any] = json.loads(os.environ.get("TOKFORGE_GPU_VARIABLES", "{}"))
TP = int(VARIABLES.get("tp", 1))
BACKEND = "flashinfer_cutlass"
#: Runs on data center Blackwell only, so elsewhere it is forced to see a start fail.
FAILING = "flashinfer_trtllm"
# The small model: what is tested is the way of a rollout, and a GPU has room for its tuning and its graphs.
SMALL = {"model": "builtin:tiny-moe", "backend": BACKEND}
POINTS = {
    "sglang_benchmark_concurrency": [1, 64],
    "sglang_benchmark_input_len": 128,
    # Long enough for the power to be read some times while it runs.
    "sglang_benchmark_output_len": 256,
    "sglang_benchmark_repetitions": 2,
    "sglang_ready_output_check": True,
}
#: Makes another release that runs the same kernels.
CHANGED = {"sglang_served_model_name": "another-name"}
#: Settings of a machine whose GPUs others use too, which the server must keep.
KEPT = ("NCCL_NVLS_ENABLE", "NVSHMEM_DISABLE_NVLS", "TORCH_SYMM_MEM_DISABLE_MULTICAST")


@pytest.fixture(scope="module")
def site() -> Iterator[Rollout]:
    base = Path(tempfile.mkdtemp(prefix="gpu-rollout-"))
    base.chmod(0o755)
    made = Rollout(base / "site", rollout.free_port(), base / "uv-cache")
    made.inventory = INVENTORY
    made.variables.update(SMALL | POINTS | VARIABLES)
    yield made
    made.run("destroy.yml", sglang_destroy_models=True, sglang_destroy_caches=True)
    made.end_everything()
    shutil.rmtree(base)


@pytest.fixture(scope="module")
def deployed(site: Rollout) -> Play:
    """The first deploy: nothing installed, nothing tuned."""
    play = site.deploy()
    assert play.code == 0, play.output
    return play


@pytest.fixture(scope="module")
def cold(site: Rollout, deployed: Play) -> dict[str, Any]:
    """The start of the first deploy, as recorded."""
    start: dict[str, Any] = site.facts()["latest"]["start"]
    return start


def ranks() -> list[str]:
    """The ranks as messages name them; the log has no name for the only one."""
    return [f"TP{number}" for number in range(TP)] if TP > 1 else ["main"]


def kernels(site: Rollout) -> dict[str, int]:
    """What FlashInfer compiled so far: path -> time of the last change in ns."""
    return {str(path): path.stat().st_mtime_ns for path in site.root.glob("cache/jit/**/*.so")}


def test_preflight_finds_nothing_against_it(site: Rollout) -> None:
    play = site.run("preflight.yml")
    assert play.code == 0, play.output


def test_first_deploy_serves_what_was_measured(site: Rollout, deployed: Play) -> None:
    latest = site.facts()["latest"]
    assert latest["valid"] is True, latest["reasons"]
    assert latest["context"]["backend"] == BACKEND
    assert latest["output_check"]["passed"] is True
    assert [point["concurrency"] for point in latest["points"]] == [1, 64]
    assert all(point["output_tok_s"] > 0 for point in latest["points"])
    assert latest["gpu_count"] == TP
    assert site.generate(tokens=5) == 5


def test_gate_was_opened_and_every_rank_tuned(site: Rollout, cold: dict[str, Any]) -> None:
    context = site.facts()["latest"]["context"]
    gate = context["autotune_gate"]
    # Only from 0.5.13 on a release tunes this backend by itself.
    expected = "patch" if version_order.at_least("0.5.12.post1", context["sglang_version"]) else "upstream"
    assert (gate["backend"], gate["enabled_by"]) == (BACKEND, expected)
    assert cold["cold"] is True
    assert len(cold["ranks"]) == TP
    assert {rank["autotune"] for rank in cold["ranks"].values()} == {"completed"}


def test_prebuilt_kernels_spared_the_build(site: Rollout, cold: dict[str, Any]) -> None:
    [marker] = site.environments().values()
    if not json.loads(marker.read_text())["prebuilt"]:
        pytest.skip(f"{INVENTORY} names no sglang_jit_artifacts")
    # FlashInfer builds fused_moe_90 for minutes where it is missing.
    assert cold["durations"]["autotune_s"] < 180
    built = [path.name for path in site.root.glob("cache/jit/**/fused_moe_*/*.so")]
    assert built == []


def test_measured_power_is_recorded(site: Rollout, deployed: Play) -> None:
    for point in site.facts()["latest"]["points"]:
        assert [gpu["power_w"] > 0 for gpu in point["gpu"]] == [True] * TP


def test_server_keeps_what_the_machine_sets(site: Rollout, deployed: Play) -> None:
    names = [name for name in KEPT if name in os.environ]
    if not names:
        pytest.skip(f"this machine sets none of {', '.join(KEPT)}")
    has = proc.environ(site.must_run().pid)
    assert {name: has.get(name) for name in names} == {name: os.environ[name] for name in names}


def test_preflight_fails_where_the_machine_does_not_set_it(
    site: Rollout, deployed: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    if KEPT[0] not in os.environ:
        pytest.skip(f"this machine does not set {KEPT[0]}")
    monkeypatch.delenv(KEPT[0])
    before = site.must_run()
    play = site.deploy()
    assert play.code != 0
    assert KEPT[0] in play.message
    assert site.must_run() == before


def test_second_deploy_changes_nothing(site: Rollout, deployed: Play) -> None:
    before = site.must_run()
    play = site.deploy()
    assert (play.code, play.counts["changed"]) == (0, 0), play.output
    assert site.must_run() == before


def test_verify_passes(site: Rollout, deployed: Play) -> None:
    play = site.run("verify.yml")
    assert play.code == 0, play.output


def test_redeploy_starts_warm_in_half_the_time(site: Rollout, cold: dict[str, Any]) -> None:
    built = kernels(site)
    play = site.deploy(**CHANGED)
    assert play.code == 0, play.output
    assert site.release() == 2
    assert kernels(site) == built, "kernels were compiled again"
    warm = site.facts()["latest"]["start"]
    assert warm["cold"] is False
    assert "complete" in warm["cache_before"], warm["cache_before"]
    assert warm["ready_s"] <= cold["ready_s"] / 2, f"cold {cold['ready_s']} s, warm {warm['ready_s']} s"


def test_backend_that_cannot_run_fails_fast_and_the_server_of_before_comes_back(site: Rollout, deployed: Play) -> None:
    before = site.release()
    if site.run("preflight.yml", backend=FAILING).code == 0:
        pytest.skip(f"{FAILING} runs on this GPU")

    began = time.monotonic()
    play = site.deploy(backend=FAILING, force_backend=True)
    took_s = time.monotonic() - began

    assert play.code != 0
    assert "rolled_back: true" in play.message, play.message
    assert any(f"exception in {rank}: " in play.message for rank in ranks()), play.message
    assert site.release() == before
    assert site.generate(tokens=5) == 5
    # Noticed when it dies, not after the time that a start may take; then the server of before starts.
    assert took_s < 300


def test_rollback_brings_the_first_release_back(site: Rollout, deployed: Play) -> None:
    if site.release() == 1:
        assert site.deploy(**CHANGED).code == 0
    play = site.run("rollback.yml")
    assert play.code == 0, play.output
    assert site.release() == 1
    assert site.generate(tokens=5) == 5
