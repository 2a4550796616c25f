# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A CUDA toolkit out of NVIDIA's wheels: one directory with bin, include, lib64 and nvvm, as its packages lay it out.

Wheels alone are no toolkit: their libraries are in lib and without the names that a linker looks for, libcuda's stub is
missing, and only their owner may run nvcc (mode 0744). The directory is built beside its place, tried, and renamed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.tokforge.sglang.plugins.module_utils import cuda_toolkit, file_lock, pip_settings
from ansible_collections.tokforge.sglang.plugins.module_utils.cuda_toolkit import Toolkit, Version
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError
from ansible_collections.tokforge.sglang.plugins.module_utils.json_file import read_object

#: Written last, into a toolkit that is complete.
MARKER = "tokforge-toolkit.json"
SCHEMA_VERSION = 1

#: What a wheel holds of the toolkit, in front of each name.
_PREFIX = "nvidia/cu13/"

#: Beginnings of the names of directories beside a toolkit that is made or removed. A run that is killed leaves them.
_NEW, _OLD = ".tokforge-new-", ".tokforge-old-"

#: Seconds that all downloads, and one compiler, may take. The wheels of 13.0 are 678 MB.
DOWNLOAD_LIMIT_S = 3600.0
_COMPILER_LIMIT_S = 120.0
_LOCK_WAIT_S = 3600.0

#: Room in bytes that a build needs: the wheels and what is in them, at the same time.
NEEDED_BYTES = 2_400_000_000


class WheelError(HostError):
    """A toolkit cannot be built from wheels; `facts` holds what was known."""


@dataclass(frozen=True)
class Wheel:
    """One distribution: exact version, and the sha256 of its file for each machine."""

    name: str
    version: str
    sha256: Mapping[str, str]


def _wheel(name: str, version: str, x86_64: str, aarch64: str) -> Wheel:
    return Wheel(name, version, {"x86_64": x86_64, "aarch64": aarch64})


#: The version of the toolkit -> its wheels: the pins of cuda-toolkit 13.0.2 for its extras nvcc, crt, nvvm, cudart,
#: cccl, nvrtc, curand and cublas. There is none for CUDA 12: nvidia-cuda-nvcc-cu12 (12.9.86, the last) has no nvcc.
WHEELS: Mapping[Version, tuple[Wheel, ...]] = {
    (13, 0): (
        _wheel(
            "nvidia-cuda-nvcc",
            "13.0.88",
            "56fe502eb77625a12f25172caa3cdddb4e4c8ba2c8c17dba44b164761b380f03",
            "c7ff28f86a24effdc6c034fa15230c549a273e4771b10a7fec14996f8cf3307f",
        ),
        _wheel(
            "nvidia-cuda-crt",
            "13.0.88",
            "2c8043c7c9e02492716426e9919fc78d2c5b3b2a7a768a88e952676b08aa55a4",
            "ee2ea2a97073e02ee62bb27841f437332be2c248e3eac013df07997ada39c003",
        ),
        _wheel(
            "nvidia-nvvm",
            "13.0.88",
            "c5f41ffeb6466944a026dfa5317d7d85355c119bbec279205d22f1869d1054e0",
            "c4376a291d72d22a315d9d2f69bdae8f8cd83a627f75bad395cee49a0fe65dc1",
        ),
        _wheel(
            "nvidia-cuda-runtime",
            "13.0.96",
            "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
            "ef9bcbe90493a2b9d810e43d249adb3d02e98dd30200d86607d8d02687c43f55",
        ),
        _wheel(
            "nvidia-cuda-cccl",
            "13.0.85",
            "e0da7ad981f3a8aff08241b5bfc1af868742a63e2762f53a5171c492ef242649",
            "6f0203e29fed809ee2b7fe9b1344df66ecab990c37d6a2e0e189b26d6c97ed7c",
        ),
        _wheel(
            "nvidia-cuda-nvrtc",
            "13.0.88",
            "ad9b6d2ead2435f11cbb6868809d2adeeee302e9bb94bcf0539c7a40d80e8575",
            "d27f20a0ca67a4bb34268a5e951033496c5b74870b868bacd046b1b8e0c3267b",
        ),
        _wheel(
            "nvidia-curand",
            "10.4.0.35",
            "1aee33a5da6e1db083fe2b90082def8915f30f3248d5896bcec36a579d941bfc",
            "133df5a7509c3e292aaa2b477afd0194f06ce4ea24d714d616ff36439cee349a",
        ),
        _wheel(
            "nvidia-cublas",
            "13.1.0.3",
            "ee8722c1f0145ab246bccb9e452153b5e0515fd094c3678df50b2a0888b8b171",
            "c86fc7f7ae36d7528288c5d88098edcb7b02c633d262e7ddbb86b0ad91be5df2",
        ),
    )
}


@dataclass(frozen=True)
class Places:
    """Where the wheels come from: pip's own settings and what is added to them, or one directory and no network."""

    inherit_pip: bool = True
    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    wheelhouse: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)


def identity(wheels: Sequence[Wheel]) -> dict[str, str]:
    """What a toolkit is made of, as its marker holds it."""
    return {wheel.name: wheel.version for wheel in wheels}


def complete(home: str, version: Version, wheels: Sequence[Wheel]) -> bool:
    """Whether the directory holds this toolkit, whole and working."""
    marker = read_object(os.path.join(home, MARKER))
    if marker.get("schema_version") != SCHEMA_VERSION or marker.get("wheels") != identity(wheels):
        return False
    return not _faults(cuda_toolkit.inspect(home, run=ask), version)


def is_ours(home: str) -> bool:
    """Whether the directory was made here: only such a one is replaced or removed."""
    return "schema_version" in read_object(os.path.join(home, MARKER))


def build(home: str, version: Version, wheels: Sequence[Wheel], places: Places) -> None:
    """Put the toolkit at `home`, whole or not at all. Raises WheelError and OSError."""
    parent = os.path.dirname(home)
    if os.path.lexists(home) and not is_ours(home):
        raise WheelError(
            f"building the CUDA toolkit {home}: something is there that is not this role's; move it away, or set"
            " cuda_toolkit_root",
            path=home,
        )
    os.makedirs(parent, exist_ok=True)
    with file_lock.held(os.path.join(parent, ".lock"), _LOCK_WAIT_S):
        if complete(home, version, wheels):
            return
        for left in leftovers(home):
            shutil.rmtree(left)
        free = shutil.disk_usage(parent).free
        if free < NEEDED_BYTES:
            raise WheelError(
                f"building the CUDA toolkit {home}: {free / 1e9:.1f} GB are free there, and {NEEDED_BYTES / 1e9:.1f} GB"
                " are needed; free disk space, or set cuda_toolkit_root",
                path=home,
                free_bytes=free,
            )
        work = tempfile.mkdtemp(prefix=_NEW, dir=parent)
        try:
            downloaded = os.path.join(work, "wheels")
            download(downloaded, wheels, places, work)
            made = os.path.join(work, "home")
            assemble(made, downloaded, wheels)
            faults = _faults(cuda_toolkit.inspect(made, run=ask), version)
            if faults:
                raise WheelError(f"building the CUDA toolkit {home}: {faults}; report this", path=home)
            with open(os.path.join(made, MARKER), "w", encoding="utf-8") as stream:
                json.dump({"schema_version": SCHEMA_VERSION, "wheels": identity(wheels)}, stream, indent=2)
            if os.path.lexists(home):
                os.rename(home, os.path.join(work, "old"))
            os.rename(made, home)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def remove(home: str) -> None:
    """Remove a toolkit of ours, what killed runs left of one, and the directory around when nothing else is in it.

    Raises WheelError and OSError.
    """
    parent = os.path.dirname(home)
    if not os.path.isdir(parent):
        return
    if os.path.lexists(home) and not is_ours(home):
        raise WheelError(
            f"removing the CUDA toolkit {home}: it is not this role's; look at it and remove it yourself", path=home
        )
    if os.path.lexists(home) or leftovers(home):
        with file_lock.held(os.path.join(parent, ".lock"), _LOCK_WAIT_S):
            if os.path.lexists(home):
                os.rename(home, os.path.join(tempfile.mkdtemp(prefix=_OLD, dir=parent), "home"))
            for left in leftovers(home):
                shutil.rmtree(left)
    if os.listdir(parent) in ([], [".lock"]):
        shutil.rmtree(parent)


def leftovers(home: str) -> list[str]:
    """Directories beside a toolkit that killed runs left there."""
    parent = os.path.dirname(home)
    names = os.listdir(parent) if os.path.isdir(parent) else []
    return [os.path.join(parent, name) for name in sorted(names) if name.startswith((_NEW, _OLD))]


def ask(argv: Sequence[str]) -> str:
    """What nvcc writes, however long a cold disk takes. Raises OSError or subprocess.SubprocessError."""
    done = subprocess.run(
        list(argv), capture_output=True, text=True, errors="replace", timeout=_COMPILER_LIMIT_S, check=True
    )
    return done.stdout


def _faults(toolkit: Toolkit, version: Version) -> str:
    if toolkit.problem:
        return toolkit.problem
    if toolkit.version != version or toolkit.header_version != version:
        return f"nvcc is {toolkit.version} and the headers are {toolkit.header_version}, not {version}"
    return f"{', '.join(toolkit.missing)} are missing" if toolkit.missing else ""


# --- getting the wheels -----------------------------------------------------------------------------------------------


def download(folder: str, wheels: Sequence[Wheel], places: Places, work: str) -> None:
    """Have pip put the wheels into a directory, each held against its hashes. Raises WheelError."""
    lock = os.path.join(work, "lock.txt")
    with open(lock, "w", encoding="utf-8") as stream:
        for wheel in wheels:
            hashes = " ".join(f"--hash=sha256:{digest}" for digest in wheel.sha256.values())
            stream.write(f"{wheel.name}=={wheel.version} {hashes}\n")
    pip = _pip(work, places.environ)
    environ = pip_settings.clean_environ(places.environ)
    environ.update(pip_settings.pip_environ(_sources(pip, places)))
    command = [*pip, "download", "--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    try:
        done = subprocess.run(
            [*command, "--dest", folder, "--requirement", lock],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=DOWNLOAD_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise WheelError(
            f"downloading the CUDA toolkit's wheels to {folder}: not done after {DOWNLOAD_LIMIT_S:.0f} s; use a mirror,"
            " or cuda_toolkit_wheelhouse"
        ) from error
    if done.returncode:
        output = pip_settings.redacted(done.stdout).strip()
        tail = "\n".join(output.splitlines()[-8:])
        raise WheelError(
            f"downloading the CUDA toolkit's wheels to {folder}: pip ended with {done.returncode}: {tail}; look at"
            " where packages come from (cuda_toolkit_index), or use cuda_toolkit_wheelhouse",
            log=output,
        )


def _pip(work: str, environ: Mapping[str, str]) -> list[str]:
    """A pip that works: of this interpreter, of the system's, or of a fresh environment."""
    for python in dict.fromkeys(filter(None, (sys.executable, shutil.which("python3")))):
        if _works([python, "-m", "pip", "--version"]):
            return [python, "-m", "pip"]
    fresh = os.path.join(work, "pip")
    if _works([sys.executable, "-m", "venv", fresh]):
        return [os.path.join(fresh, "bin", "python"), "-m", "pip"]
    raise WheelError(
        f"looking for pip on {platform.node()}: {sys.executable} has none and cannot make an environment with one;"
        " apt-get install python3-venv"
    )


def _works(argv: Sequence[str]) -> bool:
    try:
        return subprocess.run(list(argv), capture_output=True, timeout=_COMPILER_LIMIT_S, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _sources(pip: Sequence[str], places: Places) -> pip_settings.PackageSources:
    if places.wheelhouse:
        return pip_settings.only_directory(places.wheelhouse)
    base = pip_settings.PackageSources()
    if places.inherit_pip:
        # The caller's environment, not the clean one: PIP_* are settings too.
        done = subprocess.run(
            [*pip, "config", "list"],
            env=dict(places.environ),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMPILER_LIMIT_S,
            check=False,
        )
        base = pip_settings.read_pip_config(done.stdout) if done.returncode == 0 else base
    return pip_settings.overridden(base, places.index_url, places.extra_index_urls, places.find_links)


# --- putting them together --------------------------------------------------------------------------------------------


def assemble(home: str, folder: str, wheels: Sequence[Wheel], machine: str = "") -> None:
    """Make the toolkit at `home`, which is not there yet, of the wheels in `folder`. Raises WheelError and OSError."""
    os.makedirs(os.path.join(home, "lib64", "stubs"))
    for wheel in wheels:
        _unpack(_file_of(wheel, folder, machine or platform.machine()), wheel, home)
    # nvcc.profile names lib in LD_LIBRARY_PATH and lib64 for the linker.
    os.symlink("lib64", os.path.join(home, "lib"))
    _link_names(os.path.join(home, "lib64"))
    _stub(home)


def _file_of(wheel: Wheel, folder: str, machine: str) -> str:
    start = wheel.name.replace("-", "_") + f"-{wheel.version}-"
    wanted = wheel.sha256.get(machine, "")
    names = [name for name in sorted(os.listdir(folder)) if name.startswith(start) and name.endswith(".whl")]
    for name in names:
        path = os.path.join(folder, name)
        if wanted and _sha256(path) == wanted:
            return path
    raise WheelError(
        f"reading the wheels in {folder}: {wheel.name} {wheel.version} for {machine} is not among them"
        f" ({', '.join(names) or 'no file of this name'}); get it from the package index anew",
        wheel=wheel.name,
        version=wheel.version,
    )


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _unpack(path: str, wheel: Wheel, home: str) -> None:
    """The toolkit's part of one wheel, and its licence."""
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                name = _place(entry.filename, wheel)
                if not name or entry.is_dir():
                    continue
                target = os.path.join(home, name)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                with archive.open(entry) as source, open(target, "wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
                os.chmod(target, 0o755 if entry.external_attr >> 16 & 0o100 else 0o644)
    except (zipfile.BadZipFile, EOFError, zipfile.LargeZipFile) as error:
        raise WheelError(f"unpacking {path}: {error}; get it from the package index anew", path=path) from error


def _place(name: str, wheel: Wheel) -> str:
    """Where a file of a wheel goes below the toolkit's home, "" for one that is not wanted."""
    if name.endswith("/licenses/License.txt"):
        return f"licenses/{wheel.name}.txt"
    if not name.startswith(_PREFIX):
        return ""
    inside = name[len(_PREFIX) :]
    if inside.startswith((".", "/")) or posixpath.normpath(inside) != inside.rstrip("/"):
        return ""
    return f"lib64/{inside[4:]}" if inside.startswith("lib/") else inside


def _link_names(folder: str) -> None:
    """The names that a linker looks for: libcudart.so beside libcudart.so.13."""
    for name in sorted(os.listdir(folder)):
        match = re.fullmatch(r"(lib[\w-]+\.so)\.\d[\d.]*", name)
        if match and not os.path.lexists(os.path.join(folder, match[1])):
            os.symlink(name, os.path.join(folder, match[1]))


def _stub(home: str) -> None:
    """lib64/stubs/libcuda.so: the names of the driver's functions and nothing behind them, to link against.

    No wheel has it, the driver's own libcuda.so is not there before the driver is, and FlashInfer links -lcuda.
    """
    with open(os.path.join(home, "include", "cuda.h"), encoding="utf-8", errors="replace") as stream:
        names = driver_functions(stream.read())
    source = os.path.join(home, "stub.c")
    with open(source, "w", encoding="ascii") as stream:
        stream.write("".join(f"void {name}(void) {{}}\n" for name in names))
    library = os.path.join(home, "lib64", "stubs", "libcuda.so")
    command = ["-shared", "-nostdlib", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o", library, source]
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise WheelError(
            "making libcuda's stub: there is no C compiler, and nvcc needs one too; apt-get install g++", path=library
        )
    done = subprocess.run(
        [compiler, *command], capture_output=True, text=True, errors="replace", timeout=_COMPILER_LIMIT_S, check=False
    )
    os.unlink(source)
    if done.returncode:
        raise WheelError(f"making {library}: {compiler} says {done.stderr.strip()[-500:]}; look at that", path=library)


def driver_functions(header: str) -> list[str]:
    """The functions that cuda.h declares, under the names that the library has them: also with _v2 and _ptsz."""
    declared = set(re.findall(r"\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(", header))
    renamed = re.findall(r"^\s*#\s*define\s+(cu[A-Z]\w*)\s+(cu[A-Z]\w*)\s*$", header, re.MULTILINE)
    default_stream = re.findall(
        r"^\s*#\s*define\s+(cu[A-Z]\w*)\s+__CUDA_API_PT(SZ|DS)\(\s*(cu[A-Z]\w*)\s*\)", header, re.MULTILINE
    )
    names = declared | {target for name, target in renamed if name in declared}
    for name, kind, target in default_stream:
        if name in declared:
            names |= {target, f"{target}_pt{kind.lower()}"}
    return sorted(names)
