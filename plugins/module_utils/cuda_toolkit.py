# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CUDA toolkit kernels would be compiled with, and whether it can: version, headers, libraries, ninja, compilers.

FlashInfer, SGLang and torch find the toolkit alike: CUDA_HOME, then CUDA_PATH, then the directory above the one of the
first nvcc in PATH, then /usr/local/cuda (get_cuda_path in FlashInfer 0.6.8.post1 to 0.7.2, cuda_home in SGLang 0.5.23,
_find_cuda_home in torch 2.13). None of them looks at versions, so a distribution's old nvcc in /usr/bin wins over a
new toolkit beside it, and the compiler's error comes minutes into a start.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ansible_collections.tokforge.sglang.plugins.module_utils import host_files, version_order
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding
from ansible_collections.tokforge.sglang.plugins.module_utils.site_packages import BASE_FILE, below

Version = tuple[int, int]

_CHECK = "toolkit"

#: How long (seconds) one nvcc may take to say its version. It takes 20 ms; a dead network mount takes for ever.
NVCC_LIMIT_S = 2.0

#: The most toolkits that are looked at.
MOST_TOOLKITS = 8

#: What is compiled and linked against -> the Debian and Ubuntu package of it in NVIDIA's repository, `{}` the version.
#: Headers: includes of FlashInfer's sources (0.6.8.post1 to 0.7.2; its fused MoE needs all of them). Libraries: its
#: linker flags -L$cuda_home/lib64 -L$cuda_home/lib64/stubs -lcudart -lcuda.
HEADERS: Mapping[str, str] = {
    "cuda_runtime.h": "cuda-cudart-dev-{}",
    "curand_kernel.h": "libcurand-dev-{}",
    "nvrtc.h": "cuda-nvrtc-dev-{}",
    "cublasLt.h": "libcublas-dev-{}",
}
LIBRARIES: Mapping[str, str] = {
    "libcudart.so": "cuda-cudart-dev-{}",
    "libcuda.so": "cuda-driver-dev-{}",
}

#: Variables that name the toolkit, the first one first.
_VARIABLES = ("CUDA_HOME", "CUDA_PATH")

#: Where role cuda_toolkit keeps one relative link, named after the version, to each toolkit that it provides.
PROVIDED = "/var/lib/tokforge/cuda"

#: Origins of toolkits that are used only when CUDA_HOME names them.
_ROLE = "role cuda_toolkit"
_INSTALLED = "installed"
_PACKAGE = "a package in the environment"
_ONLY_ASKED = (_ROLE, _INSTALLED, _PACKAGE)

#: Where the linker looks unasked.
_LINKER_PLACES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
    "/usr/local/lib",
)


@dataclass(frozen=True)
class Toolkit:
    """One toolkit. `origin` says how it was found, `unasked` whether it is the one that would be used as things are.

    `version` is nvcc's, `header_version` that of cuda_runtime_api.h. `missing` names headers and libraries that are not
    there; `problem` says why nvcc gave no version, or is empty. `provided`: role cuda_toolkit is there for it.
    """

    home: str
    origin: str
    unasked: bool = False
    version: Version | None = None
    header_version: Version | None = None
    missing: tuple[str, ...] = ()
    problem: str = ""
    provided: bool = False


@dataclass(frozen=True)
class Seen:
    """What was found. `toolkits` are in order of preference. None of them is used unasked when there is neither
    CUDA_HOME nor an nvcc in PATH nor /usr/local/cuda.

    `ninja`, `cxx` and `cc` are paths, empty for none. `python_header` is False when the interpreter's Python.h, which
    Triton compiles with, is missing, and None when that is unknown.
    """

    toolkits: tuple[Toolkit, ...] = ()
    ninja: str = ""
    environment_ninja: str = ""
    cxx: str = ""
    cc: str = ""
    python_header: bool | None = None
    python: str = ""


@dataclass(frozen=True)
class Request:
    """What is asked.

    `env` is the environment that the server will have, `path` its PATH when `env` has none. `packages` are the versions
    that its environment has or will have, `environment` the directory of that environment ("" before it is made) and
    `python` the interpreter it is or will be made from. `capabilities` are those of the GPUs. `cuda_major` is the
    lane's. `driver_cuda` is the newest CUDA of the driver, None when unknown. `automatic`: whether the rollout sets
    CUDA_HOME to what `choose` gives; `environment_on_path`: whether it puts the environment's programs into PATH.
    """

    capabilities: tuple[tuple[int, int], ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    path: str = host_files.DEFAULT_PATH
    environment: str = ""
    python: str = ""
    cuda_major: int | None = None
    driver_cuda: Version | None = None
    automatic: bool = False
    environment_on_path: bool = False


# --- looking ----------------------------------------------------------------------------------------------------------


def run_nvcc(argv: Sequence[str]) -> str:
    """What a program writes. Raises OSError or subprocess.SubprocessError."""
    done = subprocess.run(
        list(argv), capture_output=True, text=True, errors="replace", timeout=NVCC_LIMIT_S, check=True
    )
    return done.stdout


def look(request: Request, root: str = "/", run: Callable[[Sequence[str]], str] = run_nvcc) -> Seen:
    """Find toolkits, ninja and compilers as the server would, reading below `root`."""
    path = request.env.get("PATH") or request.path
    environment_bin = posixpath.join(request.environment, "bin") if request.environment else ""
    if environment_bin and request.environment_on_path:
        path = f"{environment_bin}{os.pathsep}{path}"
    toolkits: list[Toolkit] = []
    ours = {host_files.real(root, home) for home in provided(root)}
    for home, origin in homes(request, path, root):
        unasked = not toolkits and origin not in _ONLY_ASKED
        toolkit = inspect(home, root, run)
        is_ours = host_files.real(root, home) in ours
        toolkits.append(replace(toolkit, origin=origin, unasked=unasked, provided=is_ours))
    cxx = request.env.get("CXX", "c++").split()
    cc = request.env.get("CC", "").split()
    return Seen(
        toolkits=tuple(toolkits),
        ninja=host_files.which(root, "ninja", path),
        environment_ninja=host_files.which(root, "ninja", environment_bin),
        cxx=host_files.which(root, cxx[0], path) if cxx else "",
        cc=next((found for name in (cc[:1] or ["gcc", "clang"]) if (found := host_files.which(root, name, path))), ""),
        python_header=_python_header(root, request.python),
        python=host_files.real(root, request.python) if request.python else "",
    )


def homes(request: Request, path: str, root: str = "/") -> list[tuple[str, str]]:
    """Directories of toolkits and how they were found, in order of preference."""
    found: list[tuple[str, str]] = []
    for name in _VARIABLES:
        if request.env.get(name):
            found.append((posixpath.normpath(request.env[name]), name))
            break
    nvcc = host_files.which(root, "nvcc", path)
    if nvcc:
        found.append((posixpath.dirname(posixpath.dirname(nvcc)), f"PATH, {nvcc}"))
    usual = "/usr/local/cuda"
    if host_files.is_directory(root, usual):
        found.append((usual, "the usual place"))
    found += [(home, _ROLE) for home in provided(root)]
    versions = [
        name for name in host_files.names(root, "/usr/local") if re.fullmatch(r"cuda-\d{1,3}(\.\d{1,3})?", name)
    ]
    versions.sort(key=lambda name: [int(part) for part in name[5:].split(".")], reverse=True)
    found += [(f"/usr/local/{name}", _INSTALLED) for name in versions]
    found += [(home, _INSTALLED) for home in ("/opt/cuda",) if host_files.is_file(root, f"{home}/bin/nvcc")]
    found += _environment_homes(request.environment, root)
    seen: set[str] = set()
    unique = []
    for home, origin in found:
        real = host_files.real(root, home)
        if real not in seen:
            seen.add(real)
            unique.append((home, origin))
    return unique[:MOST_TOOLKITS]


def provided(root: str = "/") -> list[str]:
    """Homes of the toolkits that role cuda_toolkit provides, the newest version first."""
    names = [name for name in host_files.names(root, PROVIDED) if re.fullmatch(r"\d{1,3}\.\d{1,3}", name)]
    names.sort(key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    homes_of_links = []
    for name in names:
        try:
            target = os.readlink(host_files.place(root, f"{PROVIDED}/{name}"))
        except OSError:
            continue
        home = posixpath.normpath(posixpath.join(PROVIDED, target))
        if host_files.is_directory(root, home):
            homes_of_links.append(home)
    return homes_of_links


def _environment_homes(environment: str, root: str) -> list[tuple[str, str]]:
    """Toolkits of packages (nvidia-cuda-nvcc) in the environment and below it. Nobody finds these unasked."""
    found = []
    lib = posixpath.join(environment, "lib") if environment else ""
    for python in host_files.names(root, lib) if lib else []:
        site = f"{lib}/{python}/site-packages"
        base = host_files.read(root, f"{site}/{BASE_FILE}") or ""
        for nvidia in (f"{place}/nvidia" for place in (site, *below(base))):
            for name in ("cu13", "cu12", "cuda_nvcc"):
                if python.startswith("python3") and host_files.is_file(root, f"{nvidia}/{name}/bin/nvcc"):
                    found.append((f"{nvidia}/{name}", _PACKAGE))
    return found


def inspect(home: str, root: str = "/", run: Callable[[Sequence[str]], str] = run_nvcc) -> Toolkit:
    """The toolkit in one directory, whoever put it there."""
    version, problem = _nvcc_version(root, home, run)
    targets = [f"{home}/targets/{name}/include" for name in host_files.names(root, f"{home}/targets")]
    include = [f"{home}/include", *targets]
    header_version = None
    for folder in include:
        text = host_files.read(root, f"{folder}/cuda_runtime_api.h")
        match = re.search(r"^\s*#\s*define\s+CUDART_VERSION\s+(\d{4,6})\s*$", text or "", re.MULTILINE)
        if match:
            header_version = (int(match[1]) // 1000, int(match[1]) % 1000 // 10)
            break
    libraries = [f"{home}/lib64", f"{home}/lib64/stubs", *_LINKER_PLACES]
    missing = [name for name in HEADERS if not any(host_files.is_file(root, f"{folder}/{name}") for folder in include)]
    missing += [
        name for name in LIBRARIES if not any(host_files.is_file(root, f"{folder}/{name}") for folder in libraries)
    ]
    return Toolkit(home, "", version=version, header_version=header_version, missing=tuple(missing), problem=problem)


def _nvcc_version(root: str, home: str, run: Callable[[Sequence[str]], str]) -> tuple[Version | None, str]:
    nvcc = f"{home}/bin/nvcc"
    if not host_files.is_file(root, nvcc):
        return None, f"there is no {nvcc}"
    try:
        said = run([host_files.place(root, nvcc), "--version"])
    except subprocess.TimeoutExpired:
        problem = f"{nvcc} did not say its version within {NVCC_LIMIT_S:g} s"
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        problem = f"{nvcc} cannot be run: {error}"
    else:
        # The words that FlashInfer and SGLang look for too.
        match = re.search(r"release (\d{1,3})\.(\d{1,3}),", said)
        if match:
            return (int(match[1]), int(match[2])), ""
        problem = f"{nvcc} --version says no version"
    written = _written_version(host_files.read(root, f"{home}/version.json"))
    return written, f"{problem} (its version.json says {_shown(written)})" if written else problem


def _written_version(text: str | None) -> Version | None:
    """The version in a toolkit's version.json."""
    try:
        said = json.loads(text or "")
        match = re.match(r"(\d{1,3})\.(\d{1,3})", said["cuda"]["version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (int(match[1]), int(match[2])) if match else None


def _python_header(root: str, python: str) -> bool | None:
    """Whether Python.h is where the interpreter's own includes are; None when its path does not say which it is."""
    real = host_files.real(root, python) if python else ""
    name = posixpath.basename(real)
    if not re.fullmatch(r"python3\.\d{1,2}", name):
        return None
    prefix = posixpath.dirname(posixpath.dirname(real))
    return os.path.isfile(f"{prefix}/include/{name}/Python.h")


# --- judging ----------------------------------------------------------------------------------------------------------


def least_version(capabilities: Sequence[tuple[int, int]], flashinfer: str | None) -> tuple[Version, str]:
    """The oldest nvcc that compiles FlashInfer's kernels for these GPUs, and why.

    Read in FlashInfer 0.6.8.post1, 0.6.11.post1, 0.6.12, 0.6.17, 0.6.18, 0.7.0, 0.7.1 and 0.7.2
    (compilation_context.py, jit/core.py, aot.py).
    """
    version = flashinfer or ""
    needs: list[tuple[Version, str]] = [((12, 0), "FlashInfer")]
    if version_order.at_least(version, "0.6.18"):
        needs.append(((12, 8), "FlashInfer from 0.6.18 on, for nvcc's --compress-mode"))
    for major, minor in capabilities:
        gpu = f"compute capability {major}.{minor}"
        if (major, minor) == (12, 0) and version_order.at_least(version, "0.7.1"):
            needs.append(((12, 8), gpu))
        elif major == 12:
            until = " with FlashInfer before 0.7.1" if minor == 0 else ""
            needs.append(((12, 9), gpu + until))
        elif major >= 10:
            needs.append(((12, 9) if (major, minor) >= (10, 3) else (12, 8), gpu))
        elif major == 9:
            needs.append(((12, 3), gpu))
    return max(needs, key=lambda need: need[0])


def unfit(toolkit: Toolkit, request: Request) -> str:
    """Why a toolkit cannot compile for this request, or "" when it can."""
    least, why = least_version(request.capabilities, request.packages.get("flashinfer-python"))
    if toolkit.version is None or toolkit.problem:
        return toolkit.problem
    if toolkit.version < least:
        return f"nvcc {_shown(toolkit.version)} is older than {_shown(least)}, which {why} needs"
    if request.driver_cuda is not None and toolkit.version[0] > request.driver_cuda[0]:
        return f"what nvcc {_shown(toolkit.version)} compiles does not run on a driver of CUDA {request.driver_cuda[0]}"
    if toolkit.header_version is not None and toolkit.header_version != toolkit.version:
        # CCCL, which FlashInfer compiles with, refuses such a pair (cuda/std/__cccl/cuda_toolkit.h in 0.7.2).
        return f"nvcc {_shown(toolkit.version)} lies beside headers of CUDA {_shown(toolkit.header_version)}"
    return f"{', '.join(toolkit.missing)} are missing" if toolkit.missing else ""


def choose(seen: Seen, request: Request) -> Toolkit | None:
    """The toolkit to compile with: the one that a variable names, or that role cuda_toolkit provides for this lane,
    or that is used unasked, when it fits; else the first that does, else None."""
    fitting = [toolkit for toolkit in seen.toolkits if not unfit(toolkit, request)]
    named = [toolkit for toolkit in fitting if toolkit.unasked and toolkit.origin in _VARIABLES]
    ours = [
        toolkit
        for toolkit in fitting
        if toolkit.provided
        and (request.cuda_major is None or (toolkit.version and toolkit.version[0] == request.cuda_major))
    ]
    # Among those that nobody asked for, the lane's own major version comes first.
    first = [toolkit for toolkit in fitting if toolkit.unasked]
    same = [toolkit for toolkit in fitting if toolkit.version and toolkit.version[0] == request.cuda_major]
    return next(iter([*named, *ours, *first, *same, *fitting]), None)


def check(seen: Seen, request: Request) -> list[Finding]:
    """Everything about compiling kernels, for a request that will compile some."""
    return [*_toolkits(seen, request), *_programs(seen, request)]


def _toolkits(seen: Seen, request: Request) -> list[Finding]:
    chosen = choose(seen, request)
    if chosen is None:
        return [_none_fits(seen, request)]
    used = next((toolkit for toolkit in seen.toolkits if toolkit.unasked), None)
    version = _shown(chosen.version)
    found = []
    if chosen is used:
        found.append(
            Finding(OK, _CHECK, f"kernels are compiled with nvcc {version} of {chosen.home} ({chosen.origin})")
        )
    else:
        with_it = f"nvcc {version} of {chosen.home}"
        if used is None:
            why = "without CUDA_HOME nobody finds it: there is no nvcc in PATH and no /usr/local/cuda"
        elif not unfit(used, request):
            why = f"role cuda_toolkit provides it, and without CUDA_HOME {used.home} ({used.origin}) would be used"
        else:
            why = f"{used.home} ({used.origin}) cannot: {unfit(used, request)}"
        if request.automatic and (used is None or used.origin not in _VARIABLES):
            found.append(Finding(OK, _CHECK, f"kernels are compiled with {with_it} (CUDA_HOME is set to it); {why}"))
        else:
            remedy = f"set sglang_server_env: {{CUDA_HOME: {chosen.home}}}"
            found.append(Finding(FAIL, _CHECK, f"kernels must be compiled with {with_it}; {why}", remedy))
    if request.cuda_major and chosen.version and chosen.version[0] != request.cuda_major:
        message = (
            f"nvcc {version} of {chosen.home} has another major version than the environment's CUDA"
            f" {request.cuda_major}, so compiled kernels load a second CUDA runtime beside torch's"
        )
        remedy = f"install {_package('cuda-toolkit-{}', (request.cuda_major, 0))}, and set CUDA_HOME to it"
        found.append(Finding(WARN, _CHECK, message, remedy))
    return found


def _none_fits(seen: Seen, request: Request) -> Finding:
    least, _why = least_version(request.capabilities, request.packages.get("flashinfer-python"))
    wanted = max(least, (request.cuda_major or 0, 0))
    install = f"install {_package('cuda-toolkit-{}', wanted)} of NVIDIA's repository, or a newer one"
    if not seen.toolkits:
        message = (
            "no CUDA toolkit: neither CUDA_HOME nor an nvcc in PATH nor /usr/local/cuda, so FlashInfer cannot compile"
            " a kernel"
        )
        ready = request.packages.get("flashinfer-jit-cache")
        if ready:
            message += f"; flashinfer-jit-cache {ready} brings compiled kernels, and one that is not in it fails"
        return Finding(WARN if ready else FAIL, _CHECK, message, install)
    reasons = "; ".join(f"{one.home} ({one.origin}): {unfit(one, request)}" for one in seen.toolkits)
    # One that lacks only files needs packages, not another toolkit; the one that lacks least is the real one.
    lacking = [
        toolkit
        for toolkit in seen.toolkits
        if toolkit.origin != _PACKAGE and toolkit.missing and not unfit(replace(toolkit, missing=()), request)
    ]
    nearest = min(lacking, key=lambda toolkit: len(toolkit.missing), default=None)
    if nearest is not None and nearest.version is not None:
        packages = {_package({**HEADERS, **LIBRARIES}[name], nearest.version) for name in nearest.missing}
        install = f"apt-get install {' '.join(sorted(packages))}"
        if not nearest.unasked:
            install += f", and set sglang_server_env: {{CUDA_HOME: {nearest.home}}}"
    return Finding(FAIL, _CHECK, f"no CUDA toolkit can compile FlashInfer's kernels: {reasons}", install)


def _programs(seen: Seen, request: Request) -> list[Finding]:
    found = []
    if not seen.ninja:
        inside = seen.environment_ninja or (f"ninja {request.packages['ninja']}" if "ninja" in request.packages else "")
        if inside and request.environment_on_path:
            found.append(Finding(OK, _CHECK, f"ninja comes with the environment: {inside}"))
        else:
            beside = f"; {inside} of the environment is not in PATH" if inside else ""
            message = f"there is no ninja in the server's PATH, and FlashInfer runs it to compile kernels{beside}"
            found.append(Finding(FAIL, _CHECK, message, "apt-get install ninja-build"))
    if not seen.cxx:
        name = request.env.get("CXX", "c++")
        message = f"there is no C++ compiler: {name} is not in the server's PATH, and kernels are compiled with it"
        found.append(Finding(FAIL, _CHECK, message, "apt-get install g++"))
    if not seen.cc:
        name = request.env.get("CC") or "neither gcc nor clang"
        message = f"there is no C compiler ({name}) in the server's PATH, and Triton compiles its launcher with one"
        found.append(Finding(FAIL, _CHECK, message, "apt-get install gcc"))
    if seen.python_header is False:
        real = posixpath.basename(seen.python)
        message = f"the headers of {seen.python} (Python.h) are missing, and Triton compiles its launcher with them"
        package = f"{real}-dev" if re.fullmatch(r"python3\.\d+", real) else "python3-dev"
        found.append(Finding(FAIL, _CHECK, message, f"apt-get install {package}"))
    return found


def _package(pattern: str, version: Version) -> str:
    return pattern.format(f"{version[0]}-{version[1]}")


def _shown(version: Version | None) -> str:
    return f"{version[0]}.{version[1]}" if version else "?"
