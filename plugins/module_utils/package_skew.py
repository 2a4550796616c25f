# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages of one environment that must fit together, from their versions alone.

An environment that a lock made fits. What is judged here is everything else: an older deployment, an environment of
somebody's own, a package that was added by hand.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import lockfile, site_packages, version_order
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_root import ENVIRONMENT_MARKER
from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError

_CHECK = "packages"

#: The kernel packages of SGLang under their old and new name (the name changed with 0.5.10).
KERNEL_NAMES = ("sglang-kernel", "sgl-kernel")

#: Packages whose version a start depends on; of these a second copy or an unfit version ends it.
KEY_NAMES = ("sglang", "torch", "transformers", "flashinfer-python", "nvidia-cutlass-dsl", *KERNEL_NAMES)

#: Packages that are built for one CUDA version and carry it as the local part of their version.
_BUILT_FOR_CUDA = ("torch", "torchvision", "torchaudio", "flashinfer-jit-cache", *KERNEL_NAMES)

#: From this release on the two parts of CUTLASS's DSL hold no file of the same name; before, the one that was installed
#: last won (4.5.1: 179 files of the same name, 99 of them different; 4.6.0 and 4.8.0: none).
CUTLASS_APART = "4.6.0"
_CUTLASS_PAIR = ("nvidia-cutlass-dsl-libs-base", "nvidia-cutlass-dsl-libs-cu13")

#: From this release on FlashInfer ignores kernels of another release with a warning; 0.6.18 refuses to be imported.
FLASHINFER_IGNORES = "0.7.0"


@dataclass(frozen=True)
class Overlap:
    """Files that two distributions wrote with different content: how many, and whose are there now."""

    files: int
    of_first: int = 0
    of_second: int = 0


@dataclass(frozen=True)
class Packages:
    """What an environment holds, or will hold.

    `versions`: canonical name -> version. `duplicates`: names that are installed more than once, with their versions.
    `requires`: what the installed sglang's own metadata asks for, as its lines are. `torch_cuda` is the CUDA version
    that torch says it was built for, "" for a CPU build, None when nobody said. `cutlass` is what both parts of
    CUTLASS's DSL wrote, None when that was not looked at. `problem` says why something could not be read. `left_out`
    are names that the environment was made without on purpose. `taken` are names that come from the Python below it,
    and `changed` those of them that are not there any more as they were: the version then and now, which may be "".
    """

    versions: Mapping[str, str]
    where: str
    duplicates: Mapping[str, Sequence[str]] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    torch_cuda: str | None = None
    cutlass: Overlap | None = None
    problem: str = ""
    left_out: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Request:
    """What is asked: `cuda_major` of the lane, None for a lane without CUDA, and the server's environment variables."""

    cuda_major: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)


# --- looking ----------------------------------------------------------------------------------------------------------


def look(environment: str) -> Packages | None:
    """Read the environment in a directory, None when there is none. Nothing of it is imported or run.

    Versions come from the names of the metadata directories: reading all metadata takes half a second.
    """
    try:
        sites = site_packages.places(environment)
        found = _distributions(sites[0])
    except (InstallError, OSError, ValueError):
        return None
    own = set(found)
    # What the environment's own packages hide is no second copy of them, the kernel package's other name included.
    hidden = own.union(KERNEL_NAMES) if own.intersection(KERNEL_NAMES) else own
    for site in sites[1:]:
        with suppress(OSError):
            below = _distributions(site).items()
            found.update({name: entries for name, entries in below if name not in hidden and name not in found})
    base = _base(environment)
    taken, left_out = base.get("taken"), base.get("left_out")
    taken = taken if isinstance(taken, dict) else {}
    torch_cuda, problem = None, ""
    try:
        torch = site_packages.read_torch(*sites)
        torch_cuda = None if torch is None else torch.cuda or ""
    except (InstallError, OSError) as error:
        problem = str(error)
    pair = [found[name][0][1] for name in _CUTLASS_PAIR if name in own]
    return Packages(
        versions={name: entries[0][0] for name, entries in found.items()},
        where=environment,
        duplicates={
            name: [version for version, _path in entries] for name, entries in found.items() if len(entries) > 1
        },
        requires=_requires(found["sglang"][0][1]) if "sglang" in found else (),
        torch_cuda=torch_cuda,
        cutlass=_overlap(sites[0], *pair) if len(pair) == 2 else None,
        problem=problem,
        left_out=tuple(map(str, left_out)) if isinstance(left_out, list) else (),
        taken=tuple(taken),
        changed=_changed(taken, {name: entries[0][0] for name, entries in found.items()}, sites[1:]),
    )


def _distributions(site: str) -> dict[str, list[tuple[str, str]]]:
    """Canonical name -> version and metadata directory of each copy. Raises OSError."""
    found: dict[str, list[tuple[str, str]]] = {}
    for folder in sorted(os.listdir(site)):
        name, _dash, version = folder[: -len(".dist-info")].rpartition("-")
        # pip renames what it is about to remove to ~name; a directory without METADATA is a remainder, too.
        if folder.endswith(".dist-info") and name and not name.startswith("~"):
            path = os.path.join(site, folder)
            if os.path.isfile(os.path.join(path, "METADATA")):
                found.setdefault(lockfile.canonical(name), []).append((version, path))
    return found


def _base(environment: str) -> Mapping[str, Any]:
    """What the environment's own record says of the Python below it; nothing when it does not say."""
    try:
        with open(os.path.join(environment, ENVIRONMENT_MARKER), encoding="utf-8") as stream:
            base = json.load(stream).get("base")
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
    return base if isinstance(base, dict) else {}


def _changed(taken: Mapping[str, Any], there: Mapping[str, str], sites: Sequence[str]) -> dict[str, tuple[str, str]]:
    """What is not in `sites` any more as it was taken from there. `there` is what metadata directories say."""

    def unlike(versions: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        pairs = {name: (str(was), versions.get(name, "")) for name, was in taken.items()}
        return {name: pair for name, pair in pairs.items() if lockfile.normal(pair[0]) != lockfile.normal(pair[1])}

    # Distributions of Debian have another kind of metadata, so the whole of it is asked before anything is said.
    return unlike({**there, **site_packages.versions_of(*sites)}) if unlike(there) else {}


def of_lock(text: str, where: str) -> Packages:
    """What a lock will install. Of a name that is pinned for several Pythons the first counts. Raises InstallError."""
    versions: dict[str, str] = {}
    for pin in lockfile.parse(text, where):
        versions.setdefault(pin.name, pin.version)
    return Packages(versions, where)


def _requires(info: str) -> tuple[str, ...]:
    try:
        with open(os.path.join(info, "METADATA"), encoding="utf-8", errors="replace") as stream:
            head = stream.read(1_000_000).partition("\n\n")[0]
    except OSError:
        return ()
    return tuple(re.findall(r"^Requires-Dist:\s*(.+?)\s*$", head, re.MULTILINE))


def _overlap(site: str, first: str, second: str) -> Overlap | None:
    """Compare two distributions by their RECORD files, and with what is there by size, or else by digest."""
    one, other = _record(first), _record(second)
    if one is None or other is None:
        return None
    different = [path for path in one if path in other and one[path] != other[path]]
    won = [0, 0]
    for path in different:
        for index, (digest, size) in enumerate((one[path], other[path])):
            if _is_there(os.path.join(site, path), digest, size, one[path][1] != other[path][1]):
                won[index] += 1
    return Overlap(len(different), won[0], won[1])


def _is_there(path: str, digest: str, size: str, by_size: bool) -> bool:
    try:
        if by_size:
            return str(os.path.getsize(path)) == size
        with open(path, "rb") as stream:
            content = hashlib.sha256(stream.read()).digest()
    except (OSError, ValueError):
        return False
    return digest == "sha256=" + base64.urlsafe_b64encode(content).decode().rstrip("=")


def _record(info: str) -> dict[str, tuple[str, str]] | None:
    """Path -> digest and size of what a distribution wrote, None when it does not say."""
    try:
        with open(os.path.join(info, "RECORD"), encoding="utf-8", errors="replace", newline="") as stream:
            rows = [row for row in csv.reader(stream) if len(row) >= 3 and row[1]]
    except (OSError, csv.Error):
        return None
    # A path that leads out of site-packages is none of a package's.
    return {row[0]: (row[1], row[2]) for row in rows if not row[0].startswith("/") and ".." not in row[0].split("/")}


# --- judging ----------------------------------------------------------------------------------------------------------


def check(packages: Packages, request: Request) -> list[Finding]:
    """All that does not fit, or one finding that all does."""
    found = [
        *_unreadable(packages),
        *_changed_below(packages),
        *_duplicates(packages),
        *_flashinfer(packages, request),
        *_cutlass(packages),
        *_cuda(packages, request),
        *_required(packages, request),
        *_kernels(packages),
        *_two_majors(packages),
    ]
    if found:
        return found
    return [Finding(OK, _CHECK, f"the {len(packages.versions)} packages of {packages.where} fit together")]


def _anew(packages: Packages) -> str:
    return f"remove {packages.where} and run again, which builds it from the lock; do not upgrade packages in place"


def _unreadable(packages: Packages) -> list[Finding]:
    return [Finding(WARN, _CHECK, packages.problem, _anew(packages))] if packages.problem else []


def _changed_below(packages: Packages) -> list[Finding]:
    """The Python below the environment is not as it was. No failure: a rollout makes another environment for it."""
    if not packages.changed:
        return []
    pairs = ", ".join(
        f"{name} was {was} and is {now or 'gone'}" for name, (was, now) in sorted(packages.changed.items())
    )
    message = f"the Python below {packages.where} was changed after the environment was made: {pairs}"
    remedy = "bring that Python back to what it was, or deploy, which makes an environment for what it has now"
    return [Finding(WARN, _CHECK, message, remedy)]


def _duplicates(packages: Packages) -> list[Finding]:
    found = []
    for name, versions in sorted(packages.duplicates.items()):
        level = FAIL if name in KEY_NAMES or name.startswith("flashinfer-") else WARN
        message = (
            f"{name} is installed more than once in {packages.where}: {', '.join(versions)}; which one runs is chance"
        )
        found.append(Finding(level, _CHECK, message, _anew(packages)))
    return found


def _flashinfer(packages: Packages, request: Request) -> list[Finding]:
    """FlashInfer's kernels must be of its own release (_get_cubin_dir and _get_aot_dir in 0.6.12, 0.6.18 and 0.7.0)."""
    own = packages.versions.get("flashinfer-python")
    parts = {
        name: version
        for name, version in sorted(packages.versions.items())
        if name.startswith(("flashinfer-cubin", "flashinfer-jit-cache")) and own is not None
    }
    other = {name: version for name, version in parts.items() if not lockfile.matches(version, _public(own or ""))}
    if not other:
        return []
    pairs = " and ".join(f"{name} {version}" for name, version in other.items())
    if version_order.at_least(own or "", FLASHINFER_IGNORES):
        happens = "FlashInfer ignores them, and downloads and compiles its kernels while the server starts"
    else:
        happens = "FlashInfer refuses to be imported"
    unchecked = request.env.get("FLASHINFER_DISABLE_VERSION_CHECK")
    if unchecked:
        happens = "FLASHINFER_DISABLE_VERSION_CHECK is set, so kernels of another release run, with any result"
    message = f"flashinfer-python {own} is with {pairs} in {packages.where}: {happens}"
    return [Finding(WARN if unchecked else FAIL, _CHECK, message, _anew(packages))]


def _cutlass(packages: Packages) -> list[Finding]:
    """Two parts of CUTLASS's DSL that write the same files (NVIDIA/cutlass#3170, #3227, sgl-project/sglang#25938).

    Each part's Python files need its own library, so a mix of both fails when a kernel is compiled.
    """
    have = [packages.versions.get(name) for name in _CUTLASS_PAIR]
    if None in have:
        return []
    base, other = str(have[0]), str(have[1])
    pair = f"{_CUTLASS_PAIR[0]} {base} and {_CUTLASS_PAIR[1]} {other}"
    overlap = packages.cutlass
    apart = version_order.at_least(base, CUTLASS_APART) and version_order.at_least(other, CUTLASS_APART)
    if (apart and overlap is None) or (overlap is not None and overlap.files == 0):
        if base == other:
            return []
        message = f"{pair} are of different releases in {packages.where}"
        return [Finding(WARN, _CHECK, message, _anew(packages))]
    last = f"uv pip install --reinstall --no-deps {_CUTLASS_PAIR[1]}=={other}"
    remedy = f"choose an SGLang release with nvidia-cutlass-dsl {CUTLASS_APART} or newer; on Blackwell, {last}"
    if overlap is None:
        message = (
            f"{pair} write files of the same name with different content in {packages.where}: the one installed last"
            " wins, and the wrong one makes wrong kernels"
        )
        return [Finding(WARN, _CHECK, message, remedy)]
    message = f"{pair} write {overlap.files} files of the same name with different content in {packages.where}"
    if overlap.of_first and overlap.of_second:
        message += (
            f": {overlap.of_first} are of the first and {overlap.of_second} of the second, which do not work together"
        )
        return [Finding(FAIL, _CHECK, message, f"{last}; {remedy}")]
    winner = _CUTLASS_PAIR[0] if overlap.of_first else _CUTLASS_PAIR[1] if overlap.of_second else "neither"
    return [Finding(WARN, _CHECK, f"{message}: those of {winner} are there", remedy)]


def _cuda(packages: Packages, request: Request) -> list[Finding]:
    """Everything that is built for a CUDA version must be built for the lane's."""
    if request.cuda_major is None:
        return []
    found = []
    torch = packages.versions.get("torch", "")
    if packages.torch_cuda == "" or (packages.torch_cuda is None and _local(torch) == "cpu"):
        message = f"torch {torch} in {packages.where} is a CPU build, and the lane is CUDA {request.cuda_major}"
        remedy = "set sglang_index to an index with CUDA builds (PIP_EXTRA_INDEX_URL and pip.conf may name a CPU one)"
        found.append(Finding(FAIL, _CHECK, message, f"{remedy}; {_anew(packages)}"))
    elif packages.torch_cuda and _major(packages.torch_cuda) != request.cuda_major:
        message = f"torch {torch} in {packages.where} is built for CUDA {packages.torch_cuda}, the lane is CUDA"
        found.append(Finding(FAIL, _CHECK, f"{message} {request.cuda_major}", _anew(packages)))
    for name in _BUILT_FOR_CUDA:
        version = packages.versions.get(name, "")
        built = re.fullmatch(r"cu(\d{2,3})(?:\D.*)?", _local(version))
        if built is None or (name == "torch" and packages.torch_cuda is not None):
            continue
        if int(built[1][:2]) != request.cuda_major:
            message = f"{name} {version} in {packages.where} is built for CUDA {int(built[1][:2])}, the lane is CUDA"
            found.append(Finding(FAIL, _CHECK, f"{message} {request.cuda_major}", _anew(packages)))
    return found


def _required(packages: Packages, request: Request) -> list[Finding]:
    """What the installed SGLang asks for of the packages that a start depends on.

    A lane without CUDA leaves out on purpose what only a GPU can use, and has a torch of its own.
    """
    found = []
    sglang = packages.versions.get("sglang", "")
    for line in packages.requires:
        match = re.fullmatch(r"([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;()]*)\)?", line)
        # A line with a marker is for some machines or extras only.
        name = lockfile.canonical(match[1]) if match else ""
        if match is None or not match[2].strip():
            continue
        # What was changed below the environment is told of already.
        judged = (name in KEY_NAMES or name.startswith("flashinfer-")) and name not in packages.changed
        if not judged or (request.cuda_major is None and name != "transformers"):
            continue
        have = packages.versions.get(name)
        if have is None:
            message = f"sglang {sglang} asks for {name}{match[2].strip()}, and {packages.where} has none"
            if name in packages.left_out:
                remedy = "take it off leave_out of sglang_install_base where the server needs it"
                found.append(Finding(WARN, _CHECK, f"{message}, as asked", remedy))
            else:
                found.append(Finding(FAIL, _CHECK, message, _anew(packages)))
        elif version_order.fits(have, match[2]) is False:
            message = f"sglang {sglang} asks for {name}{match[2].strip()}, and {packages.where} has {have}"
            level = WARN if name == "transformers" else FAIL
            again = f"name {name} in reinstall of sglang_install_base and deploy again"
            found.append(Finding(level, _CHECK, message, again if name in packages.taken else _anew(packages)))
    return found


def _kernels(packages: Packages) -> list[Finding]:
    """The kernel package under both of its names: they write the same files, sgl_kernel/..."""
    have = [f"{name} {packages.versions[name]}" for name in KERNEL_NAMES if name in packages.versions]
    if len(have) < 2:
        return []
    message = f"{' and '.join(have)} are both in {packages.where}: they are one package under two names"
    return [Finding(FAIL, _CHECK, message, _anew(packages))]


def _two_majors(packages: Packages) -> list[Finding]:
    """NVIDIA's libraries for two CUDA versions: nvidia-nccl-cu12 and -cu13 write the same files."""
    found = []
    for name, version in sorted(packages.versions.items()):
        match = re.fullmatch(r"(nvidia-(?!cutlass-dsl)[a-z0-9-]+)-cu12", name)
        other = f"{match[1]}-cu13" if match else ""
        if other in packages.versions:
            message = (
                f"{name} {version} and {other} {packages.versions[other]} are both in {packages.where}: they write the"
                " same library, and the one installed last wins"
            )
            found.append(Finding(WARN, _CHECK, message, _anew(packages)))
    return found


def _public(version: str) -> str:
    return version.partition("+")[0]


def _local(version: str) -> str:
    return version.partition("+")[2]


def _major(cuda: str) -> int | None:
    match = re.match(r"\d{1,3}", cuda)
    return int(match[0]) if match else None
