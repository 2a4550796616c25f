# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CUDA toolkit a host is to have: the version, why it, and the packages that bring it.

With version `auto` the SGLang release decides: the CUDA that its lane's torch is built for, raised to what FlashInfer's
kernels for these GPUs need. A driver can rule a lane out, a minor version never does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    compat_releases,
    cuda_driver,
    cuda_toolkit,
    release_choice,
    releases,
    toolkit_wheels,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.cuda_toolkit import Toolkit, Version
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

AUTO = "auto"
REPOSITORY = "repository"
WHEEL = "wheel"
NONE = "none"
SOURCES = (REPOSITORY, WHEEL, NONE)

#: What `auto` chooses from, oldest first: versions that have Blackwell, of the majors that lanes are for.
VERSIONS: tuple[Version, ...] = ((12, 8), (12, 9), (13, 0))

#: Beside what `cuda_toolkit` looks for: the compiler, which brings crt and nvvm, and the headers of C++.
_COMPILER = ("cuda-nvcc-{}", "cuda-cccl-{}")


class ToolkitError(HostError):
    """A toolkit cannot be had as asked; `facts` holds what was known."""


@dataclass(frozen=True)
class Wanted:
    """What is asked. `sglang_version` may be auto or empty, `version` is auto or like 13.0."""

    version: str = AUTO
    source: str = REPOSITORY
    sglang_version: str = AUTO
    lane: str = AUTO


@dataclass(frozen=True)
class Host:
    """What is known of the machine. `driver_cuda` is the newest CUDA of the driver, None when it is not known; `said`
    is what the look at the GPUs said, `driver` how the driver is called in messages."""

    capabilities: tuple[tuple[int, int], ...] = ()
    driver_cuda: Version | None = None
    driver: str = ""
    said: str = ""


@dataclass(frozen=True)
class Choice:
    """The version, None when no toolkit is needed, and each step that led to it in words."""

    version: Version | None
    reasons: tuple[str, ...]
    lane: str = ""
    flashinfer: str = ""


@dataclass(frozen=True)
class _Basis:
    """The lane that is decided for; `cuda` is None for a server without GPU."""

    lane: str
    cuda: Version | None
    flashinfer: str
    reason: str


def decide(wanted: Wanted, host: Host) -> Choice:
    """The toolkit's version. Raises ToolkitError when what is asked cannot work here."""
    basis = _basis(wanted, host)
    least, why = cuda_toolkit.least_version(host.capabilities, basis.flashinfer or None)
    reasons = [basis.reason]
    if host.capabilities:
        shown = ", ".join(f"{major}.{minor}" for major, minor in host.capabilities)
        reasons.append(f"GPUs of compute capability {shown}: nvcc {text(least)} or newer ({why})")
    else:
        said = f" ({host.said})" if host.said else ""
        reasons.append(f"no GPU could be asked{said}: nvcc {text(least)} or newer ({why}), whatever GPU will be here")
    if wanted.version != AUTO:
        version: Version | None = parse(wanted.version)
        reasons = ["as asked"]
        if version is not None and version < least:
            raise ToolkitError(
                f"choosing the CUDA toolkit: {text(version)} was asked, and {why} needs {text(least)}; ask for auto or"
                f" {text(least)} or newer",
                asked=text(version),
                least=text(least),
            )
    elif basis.cuda is None:
        return Choice(None, (basis.reason,), basis.lane)
    else:
        floor = max(basis.cuda, least)
        version = next((one for one in VERSIONS if one[0] == basis.cuda[0] and one >= floor), None)
        if version is None:
            raise ToolkitError(
                f"choosing the CUDA toolkit for lane {basis.lane}: nvcc {text(floor)} or newer of CUDA {basis.cuda[0]}"
                " is needed, and none is known; set cuda_toolkit_version",
                least=text(least),
            )
    if version is not None:
        reasons += _driver_reasons(version, host)
        _check_source(version, wanted.source)
    return Choice(version, tuple(reasons), basis.lane, basis.flashinfer)


def _driver_reasons(version: Version, host: Host) -> list[str]:
    have = host.driver_cuda
    if have is None:
        return [f"which CUDA the driver runs is not known; CUDA {version[0]} needs {_branch(version[0])}"]
    if have[0] < version[0]:
        raise ToolkitError(
            f"choosing the CUDA toolkit: what nvcc {text(version)} compiles does not run on"
            f" {host.driver or 'a driver'} of CUDA {text(have)}; install {_branch(version[0])} on the host first,"
            " or take a release of an older lane",
            driver_cuda=text(have),
            version=text(version),
        )
    if have < version:
        return [f"the driver is of CUDA {text(have)}: kernels that are compiled for the GPU run, PTX does not"]
    return [f"the driver runs CUDA {text(have)}"]


def _branch(major: int) -> str:
    first = cuda_driver.FIRST_BRANCH.get(major)
    return f"a driver of branch >= {first}" if first else "a newer driver"


def _check_source(version: Version, source: str) -> None:
    if source != WHEEL or version in toolkit_wheels.WHEELS:
        return
    have = ", ".join(text(one) for one in toolkit_wheels.WHEELS)
    why = (
        "NVIDIA's wheels for CUDA 12 bring ptxas and no nvcc"
        if version[0] == 12
        else f"the wheels that are known are of CUDA {have}"
    )
    raise ToolkitError(
        f"choosing the CUDA toolkit: {text(version)} cannot come from wheels: {why}; set cuda_toolkit_source to"
        f" repository, or cuda_toolkit_version to {have}",
        version=text(version),
        wheels=have,
    )


def _basis(wanted: Wanted, host: Host) -> _Basis:
    """The lane of the release that is asked for, or of the newest that this host runs."""
    lanes = _lanes(wanted.lane, host)
    release = wanted.sglang_version or AUTO
    if lanes == [release_choice.CPU]:
        return _Basis(release_choice.CPU, None, "", "a server of lane cpu compiles no CUDA kernel")
    if release == AUTO:
        known = next((lane for lane in lanes if releases.known(lane)), lanes[0])
        newest = next(iter(releases.known(known)), "")
        return _of(newest, known, f"the newest release that is locked for lane {known}")
    if release in releases.known():
        have = releases.get(release).lanes
        fitting = [lane for lane in lanes if lane in have]
        if not fitting:
            offered = ", ".join(sorted(have))
            raise ToolkitError(
                f"choosing the CUDA toolkit for SGLang {release}: it has lanes {offered}, and"
                f" {_allowed(wanted.lane, lanes, host)}; choose another release, or install a newer driver",
                lanes=sorted(have),
            )
        return _of(release, fitting[0], "as asked")
    return _of(release, lanes[0], "not locked here, so the lane is the newest that the host runs")


def _allowed(lane: str, lanes: Sequence[str], host: Host) -> str:
    if lane != AUTO:
        return f"lane {lane} was asked"
    cuda = text(host.driver_cuda) if host.driver_cuda else "any version"
    return f"{host.driver or 'the driver'} (CUDA {cuda}) runs {', '.join(lanes)}"


def _of(release: str, lane: str, why: str) -> _Basis:
    flashinfer = compat_releases.FLASHINFER.get(release, "")
    if release in releases.known(lane):
        flashinfer = releases.lane_of(release, lane).flashinfer or flashinfer
    cuda = release_choice.LANE_CUDA[lane]
    with_it = f" with FlashInfer {flashinfer}" if flashinfer else ""
    return _Basis(lane, cuda, flashinfer, f"SGLang {release} ({why}){with_it}, lane {lane}, is built for {text(cuda)}")


def _lanes(lane: str, host: Host) -> list[str]:
    """Lanes that are allowed and run here, the newest CUDA first."""
    if lane == release_choice.CPU:
        return [lane]
    if lane != AUTO:
        if lane not in release_choice.LANE_CUDA:
            known = ", ".join([AUTO, *release_choice.LANE_CUDA, release_choice.CPU])
            raise ToolkitError(f"choosing the CUDA toolkit: there is no lane {lane!r}; use one of {known}", lane=lane)
        return [lane]
    have = host.driver_cuda
    lanes = [name for name, cuda in release_choice.LANE_CUDA.items() if have is None or cuda[0] <= have[0]]
    if lanes or have is None:
        return lanes
    raise ToolkitError(
        f"choosing the CUDA toolkit: {host.driver or 'the driver'} is of CUDA {text(have)}, which no lane is for;"
        f" install {_branch(12)}",
        driver_cuda=text(have),
    )


def packages(version: Version) -> tuple[str, ...]:
    """The packages of NVIDIA's repository that make a toolkit FlashInfer's kernels can be compiled with.

    Not cuda-toolkit-X-Y, which brings profilers and a Java runtime, and not cuda or cuda-X-Y, which bring a driver.
    """
    patterns = {*_COMPILER, *cuda_toolkit.HEADERS.values(), *cuda_toolkit.LIBRARIES.values()}
    return tuple(sorted(pattern.format(f"{version[0]}-{version[1]}") for pattern in patterns))


def fitting(toolkits: Sequence[Toolkit], choice: Choice, host: Host) -> Toolkit | None:
    """A toolkit that is there, has the chosen major version and can compile: with `auto` nothing else is needed."""
    if choice.version is None:
        return None
    request = cuda_toolkit.Request(
        capabilities=host.capabilities,
        packages={"flashinfer-python": choice.flashinfer} if choice.flashinfer else {},
        cuda_major=choice.version[0],
        driver_cuda=host.driver_cuda,
    )
    able = [
        one
        for one in toolkits
        if not cuda_toolkit.unfit(one, request) and one.version and one.version[0] == choice.version[0]
    ]
    # The very version first, so that what this role provided is what it finds.
    return next(iter([*(one for one in able if one.version == choice.version), *able]), None)


def parse(version: str) -> Version:
    """(13, 0) of "13.0". Raises ToolkitError."""
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9]{1,2})", version)
    if match is None:
        raise ToolkitError(
            f"reading the CUDA toolkit's version {version!r}: it is not of the form 13.0; give major and minor version,"
            " or auto",
            version=version,
        )
    return int(match[1]), int(match[2])


def text(version: Version) -> str:
    """ "13.0" of (13, 0)."""
    return f"{version[0]}.{version[1]}"
