# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lies in an environment's site-packages, read without importing any of it, and files laid over it."""

from __future__ import annotations

import ast
import csv
import hashlib
import importlib.metadata
import json
import os
import re
import stat
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import lockfile
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError

#: In an environment that is on top of another Python's packages (module_utils/base_packages.py): the directories of
#: those, one a line, and lines that read their path files. Python's site module reads it at every start and appends
#: them to sys.path behind the environment's own, which therefore win (https://docs.python.org/3/library/site.html).
BASE_FILE = "tokforge_base.pth"


@dataclass(frozen=True)
class OverlayFile:
    """One file that is laid over site-packages."""

    data: bytes
    executable: bool = False


@dataclass(frozen=True)
class Torch:
    """The installed torch: `cuda` is the CUDA version it was built for, None for a CPU build."""

    version: str
    cuda: str | None


def read_overlay(path: str) -> dict[str, OverlayFile]:
    """The files of an overlay, from a directory or a tar archive of one. Bytecode caches are passed over.

    Raises InstallError when it is neither, holds no file, or a name would leave site-packages.
    """
    try:
        files = dict(_directory_files(path) if os.path.isdir(path) else _archive_files(path))
    except OSError as error:
        raise InstallError(f"reading the overlay {path}: {error}; make all of it readable") from error
    for name in files:
        if name.startswith("/") or ".." in name.split("/"):
            raise InstallError(f"reading the overlay {path}: {name} leaves the directory; give plain relative names")
    if not files:
        raise InstallError(f"reading the overlay {path}: it holds no file; give a directory with files")
    return files


def _directory_files(path: str) -> Iterator[tuple[str, OverlayFile]]:
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            file_path = os.path.join(folder, name)
            with open(file_path, "rb") as stream:
                mode = os.fstat(stream.fileno()).st_mode
                yield os.path.relpath(file_path, path), OverlayFile(stream.read(), bool(mode & stat.S_IXUSR))


def _archive_files(path: str) -> Iterator[tuple[str, OverlayFile]]:
    try:
        with tarfile.open(path) as archive:
            for member in archive.getmembers():
                content = archive.extractfile(member) if member.isfile() else None
                name = os.path.normpath(member.name)
                if content is not None and "__pycache__" not in name.split("/"):
                    yield name, OverlayFile(content.read(), bool(member.mode & stat.S_IXUSR))
    except (OSError, tarfile.TarError) as error:
        raise InstallError(f"reading the overlay {path}: {error}; give a directory of files") from error


def overlay_digest(overlay: Mapping[str, OverlayFile]) -> str:
    """One sha256 over names, contents and execute bits."""
    lines = [
        f"{hashlib.sha256(file.data).hexdigest()} {'x' if file.executable else '-'} {name}"
        for name, file in sorted(overlay.items())
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def apply_overlay(overlay: Mapping[str, OverlayFile], site_packages: str) -> list[str]:
    """Write the files and return the names of those that replaced an installed one.

    uv's files are hard links into its cache: writing into one would change the cache and every other environment. Each
    file is therefore a new one that takes the old name.
    """
    replaced = []
    for name, file in sorted(overlay.items()):
        target = os.path.join(site_packages, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.lexists(target):
            replaced.append(name)
            if os.path.islink(target):
                os.unlink(target)
        write_atomic(target, file.data, 0o755 if file.executable else 0o644)
    return replaced


def find(path: str) -> str:
    """The one site-packages directory of the environment at `path`."""
    lib = os.path.join(path, "lib")
    found = [os.path.join(lib, name, "site-packages") for name in sorted(os.listdir(lib)) if name.startswith("python3")]
    if len(found) != 1:
        raise InstallError(f"looking for site-packages in {lib}: found {found or 'none'}; remove {path} and run again")
    return found[0]


def places(path: str) -> tuple[str, ...]:
    """Every directory that the environment at `path` imports installed packages from, its own site-packages first."""
    own = find(path)
    try:
        with open(os.path.join(own, BASE_FILE), encoding="utf-8") as stream:
            return (own, *below(stream.read()))
    except FileNotFoundError:
        return (own,)


def below(text: str) -> list[str]:
    """The directories that a BASE_FILE names."""
    return [line for line in text.splitlines() if line.startswith("/")]


def versions_of(*site_packages: str) -> dict[str, str]:
    """Canonical distribution name -> version, of everything in `site_packages`. Of several the first one's counts."""
    found: dict[str, str] = {}
    for distribution in importlib.metadata.distributions(path=list(site_packages)):
        # A damaged one has no version, or cannot be read at all. Left out, it counts as not installed.
        with suppress(OSError, ValueError, KeyError):
            name = distribution.metadata["Name"]
            if name and distribution.version:
                found.setdefault(lockfile.canonical(name), distribution.version)
    return dict(sorted(found.items()))


def editable(site_packages: str) -> set[str]:
    """Canonical names of what is installed in place, from direct_url.json (PEP 610)."""
    found = set()
    for distribution in importlib.metadata.distributions(path=[site_packages]):
        text = distribution.read_text("direct_url.json")
        if distribution.metadata["Name"] and _says_editable(text or ""):
            found.add(lockfile.canonical(distribution.metadata["Name"]))
    return found


def _says_editable(direct_url: str) -> bool:
    """What a direct_url.json says. One that is damaged says nothing; the installed versions are judged all the same."""
    try:
        said = json.loads(direct_url)
    except (ValueError, RecursionError):
        return False
    info = said.get("dir_info") if isinstance(said, dict) else None
    return isinstance(info, dict) and info.get("editable") is True


def collisions(site_packages: str) -> list[str]:
    """Distributions that write the same file with different content, in words, one line for each pair.

    The one that was installed last wins, silently (nvidia-cutlass-dsl-libs-base and -libs-cu13 4.5.0 share 168 such
    files: NVIDIA/cutlass#3227). Nobody can see that from versions, so it is looked for in the RECORD files.
    """
    owners: dict[str, list[tuple[str, str]]] = {}
    for distribution in importlib.metadata.distributions(path=[site_packages]):
        name = f"{distribution.metadata['Name']} {distribution.version}"
        for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
            if len(row) >= 2 and row[1]:
                owners.setdefault(os.path.normpath(row[0]), []).append((name, row[1]))
    pairs: dict[str, list[str]] = {}
    for path, found in owners.items():
        if len({digest for _name, digest in found}) > 1:
            pairs.setdefault(" and ".join(sorted({name for name, _digest in found})), []).append(path)
    return [
        f"{names} write {len(paths)} files with different content, such as {min(paths)}; the one installed last wins"
        for names, paths in sorted(pairs.items())
    ]


def wheel_tags(site_packages: str, name: str) -> set[str]:
    """The tags of the wheel a distribution was installed from (`cp311-cp311-manylinux_2_28_x86_64`)."""
    for distribution in importlib.metadata.distributions(path=[site_packages]):
        if lockfile.canonical(distribution.metadata["Name"] or "") == name:
            return set(re.findall(r"^Tag:\s*(\S+)", distribution.read_text("WHEEL") or "", re.MULTILINE))
    return set()


def read_torch(*site_packages: str) -> Torch | None:
    """torch's own word about its build, from torch/version.py and without importing it (that may start CUDA).

    The first of `site_packages` that has it counts. None when torch is in none of them. Raises InstallError when the
    file does not say it.
    """
    files = (os.path.join(site, "torch", "version.py") for site in site_packages)
    path = next(filter(os.path.lexists, files), "")
    try:
        with open(path, encoding="utf-8") as stream:
            tree = ast.parse(stream.read())
    except FileNotFoundError:
        return None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InstallError(
            f"reading {path}: {error}; torch is damaged, remove the environment and run again"
        ) from error
    values: dict[str, Any] = {}
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            value = getattr(node, "value", None)
            if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
                values[target.id] = value.value
    if not isinstance(values.get("__version__"), str) or not isinstance(values.get("cuda", 0), (str, type(None))):
        raise InstallError(f"reading {path}: it does not say __version__ and cuda; report this build of torch")
    return Torch(values["__version__"], values["cuda"])
