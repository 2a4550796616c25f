# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role cuda_toolkit with real apt, dpkg and update-alternatives, on a throw-away copy of this machine (an overlay).

The packages are small ones with the names, dependencies and the alternative of NVIDIA's. `make test-full` only.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import own_root
import pytest
from full_only import IN_FULL

from ansible_collections.tokforge.sglang.plugins.module_utils import cuda_toolkit

CHECKOUT = Path(__file__).resolve().parents[2]
ALTERNATIVE = {
    "postinst": '#!/bin/sh\n[ "$1" != configure ] || update-alternatives --install /usr/local/cuda cuda {} 130\n',
    "prerm": '#!/bin/sh\n[ "$1" != remove ] || update-alternatives --remove cuda {}\n',
}
HOME = "/usr/local/cuda-13.0"
OLD = "/usr/local/cuda-12.8"
CONFIG = "cuda-toolkit-13-0-config-common"

#: Package -> what it depends on, and its files below the toolkit.
PACKAGES: dict[str, tuple[list[str], list[str]]] = {
    CONFIG: ([], []),
    "cuda-cccl-13-0": ([], []),
    "cuda-crt-13-0": ([], []),
    "libnvvm-13-0": ([], []),
    "cuda-nvcc-13-0": (["cuda-crt-13-0", "libnvvm-13-0", "cuda-cudart-dev-13-0"], ["bin/nvcc"]),
    "cuda-cudart-dev-13-0": (
        [CONFIG, "cuda-cccl-13-0"],
        ["include/cuda_runtime.h", "include/cuda_runtime_api.h", "lib64/libcudart.so"],
    ),
    "cuda-driver-dev-13-0": ([], ["lib64/stubs/libcuda.so"]),
    "cuda-nvrtc-dev-13-0": ([], ["include/nvrtc.h"]),
    "libcublas-13-0": ([CONFIG], []),
    "libcublas-dev-13-0": (["libcublas-13-0"], ["include/cublasLt.h"]),
    "libcurand-dev-13-0": ([], ["include/curand_kernel.h"]),
    "nvidia-driver-cuda": ([], []),
}


TOOLS = ("apt-ftparchive", "dpkg-deb", "gpg", "update-alternatives")
pytestmark = [IN_FULL, pytest.mark.skipif(not own_root.works(*TOOLS), reason="needs root, mounts and apt's tools")]


def content(name: str, version: str) -> str:
    major, minor = map(int, version.split("."))
    if name == "bin/nvcc":
        return f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.88'\n"
    return f"#define CUDART_VERSION {major * 1000 + minor * 10}\n" if name.endswith("runtime_api.h") else ""


def put(home: Path, name: str, version: str) -> None:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content(name, version))
    path.chmod(0o755 if name.startswith("bin/") else 0o644)


@dataclass(frozen=True)
class Repository:
    """A signed repository in a directory, and what the role is told of it."""

    path: Path
    fingerprint: str
    key: Path


def build(folder: Path, more: dict[str, list[str]]) -> Repository:
    """Build the packages, some with more dependencies, and sign their lists."""
    repository = folder / "repository"
    repository.mkdir()
    for name, (depends, files) in PACKAGES.items():
        tree = folder / "trees" / name
        (tree / "DEBIAN").mkdir(parents=True)
        for file in files:
            put(tree / HOME.lstrip("/"), file, "13.0")
        needs = [*depends, *more.get(name, [])]
        control = f"Package: {name}\nVersion: 13.0.88-1\nArchitecture: all\n"
        control += "Maintainer: T <t@example.com>\nDescription: x\n"
        control += f"Depends: {', '.join(needs)}\n" if needs else ""
        (tree / "DEBIAN/control").write_text(control)
        for script, text in ALTERNATIVE.items() if name == CONFIG else ():
            (tree / "DEBIAN" / script).write_text(text.format(HOME))
            (tree / "DEBIAN" / script).chmod(0o755)
        file = repository / f"{name}_13.0.88-1_all.deb"
        subprocess.run(["dpkg-deb", "--build", tree, file], capture_output=True, check=True)
    environ = {**os.environ, "GNUPGHOME": str(folder / "gpg")}
    (folder / "gpg").mkdir(mode=0o700)

    def gpg(*options: str) -> str:
        command = ["gpg", "--batch", "--quiet", "--passphrase", "", *options]
        return subprocess.run(command, env=environ, cwd=repository, capture_output=True, text=True, check=True).stdout

    gpg("--quick-gen-key", "t@example.com", "rsa2048", "sign", "never")
    found = re.search(r"^fpr:+([0-9A-F]{40})", gpg("--with-colons", "--list-keys"), re.MULTILINE)
    assert found is not None
    for kind, target in (("packages", "Packages"), ("release", "Release")):
        made = subprocess.run(["apt-ftparchive", kind, "."], cwd=repository, capture_output=True, check=True).stdout
        (repository / target).write_bytes(made)
    gpg("--clearsign", "-o", "InRelease", "Release")
    (folder / "key.asc").write_text(gpg("--armor", "--export"))
    return Repository(repository, found[1], folder / "key.asc")


#: Runs inside: the role as often as it is told, and what is there after each time.
INSIDE = r"""
import json, os, re, shutil, subprocess, sys
told = json.load(open(sys.argv[1]))
for path in ("/usr/local/cuda", "/usr/local/cuda-13.0", "/etc/apt/sources.list.d", "/usr/local/bin/nvcc"):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
os.makedirs("/etc/apt/sources.list.d")
open("/etc/apt/sources.list", "w").close()
shutil.copytree(told["old"], "/usr/local/cuda-12.8")
link = ["update-alternatives", "--install", "/usr/local/cuda", "cuda", "/usr/local/cuda-12.8", "128"]
subprocess.run(link, check=True, capture_output=True)
results = []
for extra in told["runs"]:
    command = [*told["command"], "-e", json.dumps(extra["vars"]), *extra["options"]]
    done = subprocess.run(command, cwd=told["checkout"], capture_output=True, text=True)
    query = subprocess.run(["update-alternatives", "--query", "cuda"], capture_output=True, text=True).stdout
    names = subprocess.run(["dpkg-query", "-f", "${Package}\\n", "-W", "*13-0*"], capture_output=True, text=True).stdout
    links = "/var/lib/tokforge/cuda"
    results.append({
        "status": done.returncode,
        "changed": int((re.findall(r"changed=(\d+)", done.stdout) or ["-1"])[0]),
        "output": done.stdout + done.stderr,
        "default": os.path.realpath("/usr/local/cuda"),
        "mode": (re.findall(r"Status: (\w+)", query) or [""])[0],
        "packages": len(names.split()),
        "links": sorted(os.listdir(links)) if os.path.isdir(links) else [],
        "sources": sorted(os.listdir("/etc/apt/sources.list.d")),
    })
print("RESULTS" + json.dumps(results))
"""


@dataclass(frozen=True)
class After:
    """A run, and what there is after it."""

    status: int
    changed: int
    output: str
    default: str
    mode: str
    packages: int
    links: list[str]
    sources: list[str]


def run(folder: Path, repository: Repository, *runs: tuple[dict[str, object], list[str]]) -> list[After]:
    """Run the role in one copy of the machine, several times."""
    for name in [*cuda_toolkit.HEADERS, "cuda_runtime_api.h"]:
        put(folder / "old", f"include/{name}", "12.8")
    for name in ("bin/nvcc", "lib64/libcudart.so", "lib64/stubs/libcuda.so"):
        put(folder / "old", name, "12.8")
    variables = {
        "ansible_python_interpreter": sys.executable,
        "cuda_toolkit_repository_url": repository.path.as_uri(),
        "cuda_toolkit_repository_fingerprint": repository.fingerprint,
        "cuda_toolkit_repository_key_file": str(repository.key),
    }
    role = {"name": "Provide", "ansible.builtin.include_role": {"name": "tokforge.sglang.cuda_toolkit"}}
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [role]}]
    (folder / "play.yml").write_text(json.dumps(play))
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    told = {
        "command": [program, "-i", "localhost,", str(folder / "play.yml"), "-e", json.dumps(variables)],
        "checkout": str(CHECKOUT),
        "old": str(folder / "old"),
        "runs": [{"vars": extra, "options": options} for extra, options in runs],
    }
    (folder / "told.json").write_text(json.dumps(told))
    (folder / "inside.py").write_text(INSIDE)
    said = own_root.run(folder, [sys.executable, f"{folder}/inside.py", f"{folder}/told.json"])
    results = json.loads(said.partition("RESULTS")[2])
    return [After(**one) for one in results]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Readable for apt's own user, as the packages have to be."""
    for path in (tmp_path, *tmp_path.parents):
        mode = path.stat().st_mode & 0o7777
        if not mode & 0o005:  # pytest's own directories; what others may enter stays as it is
            path.chmod(mode | 0o055)
    return tmp_path


def test_packages_come_beside_the_old_toolkit_and_all_of_them_go_again(folder: Path) -> None:
    repository = build(folder, {})
    absent: dict[str, object] = {"cuda_toolkit_state": "absent"}
    default: dict[str, object] = {"cuda_toolkit_default": True}
    predicted, first, again, moved, gone, twice = run(
        folder, repository, ({}, ["--check"]), ({}, []), ({}, []), (default, []), (absent, []), (absent, [])
    )
    for one in (predicted, first, again, moved, gone, twice):
        assert one.status == 0, one.output
    assert (predicted.packages, predicted.links, predicted.sources) == (0, [], [])
    assert predicted.changed > 0
    assert (first.packages, first.links, len(first.sources)) == (11, ["13.0"], 1)
    # The alternative of 13.0 had taken it.
    assert (first.default, first.mode) == (OLD, "manual")
    assert "Select the alternative" in first.output
    assert again.changed == 0
    assert (moved.default, moved.changed) == (HOME, 1)
    assert (gone.packages, gone.links, gone.sources) == (0, [], [])
    assert (gone.default, gone.mode) == (OLD, "auto")
    assert twice.changed == 0


def test_driver_among_the_dependencies_is_refused_before_anything_is_installed(folder: Path) -> None:
    repository = build(folder, {"cuda-nvcc-13-0": ["nvidia-driver-cuda"]})
    [refused] = run(folder, repository, ({}, []))
    assert refused.status == 2
    assert "nvidia-driver-cuda" in refused.output, refused.output
    assert (refused.packages, refused.default, refused.mode) == (0, OLD, "auto")
