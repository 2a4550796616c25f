# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role cuda_toolkit for real, into a directory: what is taken as it is, and with `make test-full` NVIDIA's own wheels,
which are 680 MB, and kernels that their nvcc compiles for Hopper and Blackwell."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from full_only import IN_FULL

from ansible_collections.tokforge.sglang.plugins.module_utils import build_tools, cuda_toolkit, gpu

CHECKOUT = Path(__file__).resolve().parents[2]

#: What FlashInfer's fused MoE includes, and a kernel that uses a little of each.
KERNEL = """
#include <cuda.h>
#include <cuda_runtime.h>
#include <cuda_fp8.h>
#include <cuda/std/array>
#include <cub/cub.cuh>
#include <curand_kernel.h>
#include <cublasLt.h>
#include <nvrtc.h>
__global__ void fill(float *out, unsigned long long seed) {
  curandStatePhilox4_32_10_t state;
  curand_init(seed, threadIdx.x, 0, &state);
  using Sum = cub::BlockReduce<float, 128>;
  __shared__ typename Sum::TempStorage shared;
  cuda::std::array<float, 1> one{curand_uniform(&state)};
  float sum = Sum(shared).Sum(one[0]);
  if (threadIdx.x == 0) out[blockIdx.x] = sum + float(__nv_fp8_e4m3(1.0f));
}
extern "C" int start(float *out) {
  CUdevice device; nvrtcProgram program = nullptr; cublasLtHandle_t handle;
  fill<<<1, 128>>>(out, 1);
  return cuInit(0) + cuDeviceGet(&device, 0) + nvrtcDestroyProgram(&program) + cublasLtCreate(&handle);
}
"""


@dataclass(frozen=True)
class Play:
    """What a run of the role left behind."""

    status: int
    changed: int
    output: str
    facts: dict[str, Any]


@dataclass(frozen=True)
class Machine:
    """A directory that stands for a machine's root."""

    root: Path

    @property
    def record_dir(self) -> Path:
        return self.root / "var/lib/tokforge/host"

    def run(self, *options: str, **variables: Any) -> Play:
        """Run the role, and write the facts it leaves to a file."""
        facts = self.root.parent / "facts.json"
        facts.unlink(missing_ok=True)
        names = ["cuda_toolkit_home", "cuda_toolkit_skipped", "cuda_toolkit_choice"]
        content = "{{ {" + ", ".join(f"'{name}': {name}" for name in names) + "} | to_json }}"
        play = {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "vars": {"ansible_python_interpreter": sys.executable},
            "tasks": [
                {
                    "ansible.builtin.include_role": {"name": "tokforge.sglang.cuda_toolkit"},
                    "vars": {
                        "cuda_toolkit_system_root": str(self.root),
                        "cuda_toolkit_record_dir": str(self.record_dir),
                        **variables,
                    },
                },
                {
                    "ansible.builtin.copy": {"content": content, "dest": str(facts), "mode": "0644"},
                    "changed_when": False,
                    "check_mode": False,
                },
            ],
        }
        book = self.root.parent / "play.yml"
        book.write_text(yaml.safe_dump([play]))
        done = subprocess.run(
            [Path(sys.executable).with_name("ansible-playbook"), "-i", "localhost,", str(book), *options],
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        found = re.search(r"changed=(\d+)", done.stdout)
        read = json.loads(facts.read_text()) if facts.exists() else {}
        return Play(done.returncode, int(found[1]) if found else -1, done.stdout + done.stderr, read)

    def snapshot(self) -> set[str]:
        """Every path below the root, but for the notes and their lock."""
        below = self.root.rglob("*")
        return {str(path.relative_to(self.root)) for path in below if "tokforge/host" not in str(path)}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    root = tmp_path / "machine"
    (root / "usr/local").mkdir(parents=True)
    (root / "var/lib/tokforge").mkdir(parents=True)
    return Machine(root)


def put_toolkit(machine: Machine, version: str, *, without: str = "") -> Path:
    """A toolkit of packages, whose nvcc only says its version."""
    home = machine.root / f"usr/local/cuda-{version}"
    for folder in ("bin", "include", "lib64/stubs"):
        (home / folder).mkdir(parents=True)
    nvcc = home / "bin/nvcc"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.88'\n")
    nvcc.chmod(0o755)
    for name in cuda_toolkit.HEADERS:
        (home / "include" / name).touch()
    major, minor = map(int, version.split("."))
    (home / "include/cuda_runtime_api.h").write_text(f"#define CUDART_VERSION {major * 1000 + minor * 10}\n")
    for name in cuda_toolkit.LIBRARIES:
        (home / "lib64" / name).touch()
    if without:
        (home / "include" / without).unlink()
    return home


def deployment(tmp_path: Path) -> Path:
    """A deployment whose environment is built for CUDA 13."""
    root = tmp_path / "sglang"
    (root / "current/venv").mkdir(parents=True)
    (root / "state").mkdir()
    (root / "current/launch.json").write_text(json.dumps({"env": {}}))
    marker = {"versions": {"flashinfer-python": "0.7.2"}, "torch": {"cuda": "13.0"}}
    (root / "current/venv/environment.json").write_text(json.dumps(marker))
    return root


def cuda_home(machine: Machine, root: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """The CUDA_HOME that the next start on the machine gets."""
    gpus = (gpu.Gpu(0, "NVIDIA RTX PRO 6000 Blackwell Server Edition", compute_capability=(12, 0)),)
    report = gpu.Report(gpu.OK, "", driver_version="580.95.05", cuda_version="13.0", gpus=gpus)
    look = cuda_toolkit.look
    with monkeypatch.context() as patched:
        patched.setattr(cuda_toolkit, "look", lambda request: look(request, str(machine.root)))
        build_tools.write(str(root), lambda: report)
    noted: dict[str, str] = json.loads((root / "state/build_tools.json").read_text())
    return noted.get("CUDA_HOME")


def test_toolkit_that_fits_is_taken_and_the_server_starts_with_it_whatever_the_default_is(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_toolkit(machine, "12.9")
    put_toolkit(machine, "13.0")
    link = machine.root / "usr/local/cuda"
    link.symlink_to("cuda-12.9")
    root = deployment(tmp_path)
    before = machine.snapshot()
    assert cuda_home(machine, root, monkeypatch) is None  # 12.9 can do it too, and is found unasked
    predicted = machine.run("--check", "--diff")
    assert (predicted.status, predicted.changed) == (0, 1), predicted.output
    assert machine.snapshot() == before
    first = machine.run()
    assert (first.status, first.changed) == (0, 1), first.output
    assert first.facts["cuda_toolkit_home"] == "/usr/local/cuda-13.0"
    assert first.facts["cuda_toolkit_choice"]["version"] == "13.0"
    assert any("lane cuda13, is built for 13.0" in why for why in first.facts["cuda_toolkit_choice"]["reasons"])
    assert first.facts["cuda_toolkit_skipped"][0]["what"] == "installing a CUDA toolkit (source repository)"
    assert os.readlink(link) == "cuda-12.9"
    assert cuda_home(machine, root, monkeypatch) == "/usr/local/cuda-13.0"
    moved = machine.run(cuda_toolkit_default=True)
    assert (moved.status, moved.changed) == (0, 1), moved.output
    assert os.readlink(link) == "/usr/local/cuda-13.0"
    again = machine.run(cuda_toolkit_default=True)
    assert (again.status, again.changed) == (0, 0), again.output
    gone = machine.run(cuda_toolkit_state="absent")
    assert (gone.status, gone.changed) == (0, 2), gone.output
    assert machine.snapshot() == before
    assert os.readlink(link) == "cuda-12.9"


def test_version_that_wheels_do_not_have_is_refused_before_anything(machine: Machine) -> None:
    before = machine.snapshot()
    play = machine.run(cuda_toolkit_source="wheel", cuda_toolkit_version="12.9", cuda_toolkit_lane="cuda12")
    assert play.status == 2
    assert "ptxas and no nvcc" in play.output
    assert machine.snapshot() == before


def test_wheels_are_predicted_without_a_download(machine: Machine) -> None:
    play = machine.run("--check", "--diff", cuda_toolkit_source="wheel")
    assert (play.status, play.changed) == (0, 1), play.output
    assert "/opt/tokforge/cuda/13.0/" in play.output
    assert play.facts["cuda_toolkit_home"] == "/opt/tokforge/cuda/13.0"
    assert not (machine.root / "opt").exists()


@IN_FULL
def test_toolkit_of_wheels_compiles_for_hopper_and_blackwell(machine: Machine, tmp_path: Path) -> None:
    first = machine.run(cuda_toolkit_source="wheel", cuda_toolkit_version="13.0")
    assert (first.status, first.changed) == (0, 1), first.output
    assert first.facts["cuda_toolkit_home"] == "/opt/tokforge/cuda/13.0"
    again = machine.run(cuda_toolkit_source="wheel", cuda_toolkit_version="13.0")
    assert (again.status, again.changed) == (0, 0), again.output
    home = machine.root / "opt/tokforge/cuda/13.0"
    assert (home / "bin/nvcc").stat().st_mode & 0o777 == 0o755

    request = cuda_toolkit.Request(
        capabilities=((9, 0), (12, 0)), packages={"flashinfer-python": "0.7.2"}, cuda_major=13, driver_cuda=(13, 0)
    )
    chosen = cuda_toolkit.choose(cuda_toolkit.look(request, str(machine.root)), request)
    assert chosen is not None
    assert (chosen.home, chosen.version, chosen.missing) == ("/opt/tokforge/cuda/13.0", (13, 0), ())

    source, library = tmp_path / "kernel.cu", tmp_path / "kernel.so"
    source.write_text(KERNEL)
    targets = [f"-gencode=arch=compute_{one},code=sm_{one}" for one in ("90a", "120a")]
    nvcc = [home / "bin/nvcc", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", *targets, "-o", library, source]
    # The linker's flags are those of FlashInfer's build files.
    folders = [f"-L{home}/lib64", f"-L{home}/lib64/stubs"]
    libraries = ["-lcudart", "-lcuda", "-lcublas", "-lcublasLt", "-lnvrtc", "-Xlinker", "--no-undefined"]
    done = subprocess.run([*nvcc, *folders, *libraries], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "[libcuda.so.1]" in needed
    assert "[libcublasLt.so.13]" in needed
    code = library.read_bytes()
    assert b"sm_90a" in code
    assert b"sm_120a" in code

    gone = machine.run(cuda_toolkit_state="absent")
    assert (gone.status, gone.changed) == (0, 1), gone.output
    assert not home.parent.exists()
    assert not (machine.root / "var/lib/tokforge/cuda").exists()
