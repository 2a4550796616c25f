# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""tests/verify/cuda_probe.py against a libcuda of our own with faults, and test_gpus.py on what it tells."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

VERIFY = Path(__file__).resolve().parents[2] / "verify"
PROBE = VERIFY / "cuda_probe.py"
SOURCE = Path(__file__).with_name("stand_in_cuda.c")
#: What the probe printed on two H200 with NVLink and driver 580.159.04.
H200X2 = Path(__file__).with_name("cuda-probe-h200x2.json")
COPIED = 32 << 20


def loaded(path: Path) -> ModuleType:
    """A file below tests/verify, which is no package."""
    spec = importlib.util.spec_from_file_location(f"verify_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


probe = loaded(PROBE)
verdicts = loaded(VERIFY / "test_gpus.py")


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with libcuda.so.1, a link to the file with the version in its name, as the driver has it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to make the stand-in for libcuda with")
    folder = tmp_path_factory.mktemp("cuda")
    library = folder / "libcuda.so.580.95.05"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, SOURCE], check=True)
    (folder / "libcuda.so.1").symlink_to(library.name)
    return folder


def run(libraries: Path, fault: str = "", limit_s: float = 30) -> dict[str, Any]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "CUDA_FAULT": fault}
    done = subprocess.run(
        [sys.executable, PROBE, str(limit_s)], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    seen: dict[str, Any] = json.loads(done.stdout)
    # The machine of the tests has none of them.
    return {
        **seen,
        "devices": ["0000:01:00.0"],
        "nodes": {"gpus": [0, 1], "missing": []},
        "module_version": "580.95.05",
    }


def failures(seen: dict[str, Any]) -> dict[str, str]:
    """Which tests of test_gpus.py fail, and what they say."""
    found = {}
    for name in (
        "test_nodes_of_the_gpus_are_there",
        "test_library_has_the_version_of_the_kernel_module",
        "test_cuda_starts_and_uses_every_gpu",
        "test_copies_between_gpus_end_and_arrive",
    ):
        try:
            getattr(verdicts, name)(seen)
        except (AssertionError, pytest.fail.Exception) as error:
            found[name] = str(error)
    return found


def test_sound_gpus(libraries: Path) -> None:
    seen = run(libraries)
    assert (seen["error"], seen["hung"], seen["library_version"]) == ("", "", "580.95.05")
    assert seen["gpus"] == [
        {"ordinal": 0, "address": "0000:01:00.0", "wrong_bytes": 0},
        {"ordinal": 1, "address": "0000:81:00.0", "wrong_bytes": 0},
    ]
    assert [(one["from"], one["to"], one["p2p"], one["wrong_bytes"]) for one in seen["pairs"]] == [
        (0, 1, True, 0),
        (1, 0, True, 0),
    ]
    assert all(one["gb_s"] > 0.1 for one in seen["pairs"])
    assert failures(seen) == {}


def test_two_h200_with_nvlink_pass() -> None:
    seen: dict[str, Any] = json.loads(H200X2.read_text())
    assert failures(seen) == {}
    seen["pairs"].pop()
    assert list(failures(seen)) == ["test_copies_between_gpus_end_and_arrive"]
    seen["pairs"] = []
    seen["gpus"].pop()
    assert "CUDA uses 1 GPUs and there are files for 2" in failures(seen)["test_cuda_starts_and_uses_every_gpu"]


def test_the_probe_says_what_it_said_on_h200(libraries: Path) -> None:
    seen, recorded = run(libraries), json.loads(H200X2.read_text())
    assert seen.keys() == recorded.keys()
    for part in ("gpus", "pairs"):
        assert [one.keys() for one in seen[part]] == [one.keys() for one in recorded[part]]


def test_gpus_without_peer_access_copy_by_way_of_the_host(libraries: Path) -> None:
    seen = run(libraries, "no_peer")
    assert [one["p2p"] for one in seen["pairs"]] == [False, False]
    assert failures(seen) == {}


def test_copy_that_hangs_ends_at_the_limit_and_is_named(libraries: Path) -> None:
    began = time.monotonic()
    seen = run(libraries, "hang", limit_s=5)
    assert time.monotonic() - began < 20
    assert (seen["hung"], seen["pairs"], seen["error"]) == ("a copy from GPU 0 to GPU 1", [], "")
    failed = failures(seen)
    assert list(failed) == ["test_copies_between_gpus_end_and_arrive"]
    assert "a copy from GPU 0 to GPU 1 did not end" in failed["test_copies_between_gpus_end_and_arrive"]
    assert "disable-custom-all-reduce" in failed["test_copies_between_gpus_end_and_arrive"]


@pytest.mark.parametrize(("fault", "wrong"), [("lost", COPIED), ("half", COPIED // 2)])
def test_copy_that_does_not_arrive_is_seen(libraries: Path, fault: str, wrong: int) -> None:
    seen = run(libraries, fault)
    assert [one["wrong_bytes"] for one in seen["pairs"]] == [wrong, wrong]
    assert "other bytes arrived" in failures(seen)["test_copies_between_gpus_end_and_arrive"]


def test_memory_that_forgets_is_seen(libraries: Path) -> None:
    seen = run(libraries, "memory")
    assert [one["wrong_bytes"] for one in seen["gpus"]] == [1, 1]
    assert "memory does not keep" in failures(seen)["test_cuda_starts_and_uses_every_gpu"]


def test_cuda_that_does_not_start_says_what_the_driver_says(libraries: Path) -> None:
    seen = run(libraries, "init")
    assert seen["error"] == "cuInit: unknown error (999)"
    assert failures(seen)["test_library_has_the_version_of_the_kernel_module"].endswith("cuInit: unknown error (999)")


def test_gpu_that_has_a_file_and_that_cuda_does_not_see(libraries: Path) -> None:
    seen = run(libraries, "none")
    assert failures(seen)["test_cuda_starts_and_uses_every_gpu"].startswith(
        "CUDA uses 0 GPUs and there are files for 2"
    )


def test_crash_is_an_answer(libraries: Path) -> None:
    seen = run(libraries, "crash")
    assert seen["error"].startswith("a context and memory on GPU 0 ended with code -6")


def test_host_without_the_library(tmp_path: Path) -> None:
    seen = run(tmp_path)
    assert "libcuda.so.1" in seen["error"] and seen["gpus"] == []
    assert "libcuda does not start" in failures(seen)["test_library_has_the_version_of_the_kernel_module"]


def test_library_of_another_version_than_the_module(libraries: Path) -> None:
    seen = {**run(libraries), "module_version": "580.82.07"}
    assert "580.82.07" in failures(seen)["test_library_has_the_version_of_the_kernel_module"]


def test_container_without_the_nodes_is_told_which_are_missing() -> None:
    nodes = {"gpus": [], "missing": ["/dev/nvidia-uvm"]}
    seen = {"module_version": "580.95.05", "nodes": nodes}
    with pytest.raises(AssertionError, match=r"missing here: /dev/nvidia-uvm; in a container pass them on"):
        verdicts.test_nodes_of_the_gpus_are_there(seen)
    with pytest.raises(AssertionError, match="no NVIDIA kernel module is loaded"):
        verdicts.test_nodes_of_the_gpus_are_there({**seen, "module_version": ""})
    with pytest.raises(AssertionError, match=r"there is no /dev/nvidia0"):
        verdicts.test_nodes_of_the_gpus_are_there({**seen, "nodes": {"gpus": [], "missing": []}})


def test_what_the_host_has_is_read(tmp_path: Path) -> None:
    for path, text in {
        "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
        "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
        "sys/bus/pci/devices/0000:01:00.1/vendor": "0x10de\n",
        "sys/bus/pci/devices/0000:01:00.1/class": "0x040300\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release\n",
        "dev/nvidia3": "",
        "dev/nvidia10": "",
        "dev/nvidiactl": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert probe.devices(str(tmp_path)) == ["0000:01:00.0"]
    assert probe.nodes(str(tmp_path)) == {"gpus": [3, 10], "missing": ["/dev/nvidia-uvm"]}
    assert probe.module_version(str(tmp_path)) == "580.95.05"
    assert probe.module_version(str(tmp_path / "no")) == "" and probe.devices(str(tmp_path / "no")) == []


def test_child_that_hangs_after_its_last_word_is_not_waited_for() -> None:
    lines = 'import os, time; os.write(1, b\'7\\n{"step": "cuInit"}\\n\'); os.close(1); os.close(2); time.sleep(30)'
    began = time.monotonic()
    seen = probe.watch([sys.executable, "-c", lines], 1.5)
    assert (seen["hung"], seen["error"]) == ("cuInit", "")
    assert time.monotonic() - began < 10
