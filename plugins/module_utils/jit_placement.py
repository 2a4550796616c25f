# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether kernels that were built elsewhere fit an environment, and putting them where its FlashInfer looks for them.

FlashInfer 0.6.7.post3, 0.6.11.post1 and 0.7.2 (flashinfer/jit/core.py and env.py) load `data/aot/NAME/NAME.so` of their
package when it is there, and build NAME when it is not. They ask neither for which FlashInfer nor for which GPU it was
built: one for another GPU is loaded, and fails at its first kernel. Up to 0.6.11.post1 they look into the package
flashinfer-jit-cache instead when that is installed; 0.7.2 looks there last.
"""

from __future__ import annotations

import ast
import importlib.machinery
import os
import shutil
from collections.abc import Collection, Sequence
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import lockfile, source_text
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.jit_artifacts import Artifact, Library

_VARIABLE, _FUNCTION, _JIT_CACHE = "FLASHINFER_AOT_DIR", "_get_aot_dir", "flashinfer_jit_cache"
_OWN_DIRECTORY = "_package_root / 'data' / 'aot'"
_DIRECTORY_MODE, _FILE_MODE = 0o755, 0o644


def check(
    artifacts: Sequence[Artifact],
    flashinfer_installed: str | None,
    cuda_major_of_torch: int | None,
    compute_capabilities_of_host: Collection[tuple[int, int]] | None,
) -> list[str]:
    """Everything that does not fit, in words: another FlashInfer, another CUDA, code for none of the GPUs.

    `flashinfer_installed` is the version of flashinfer-python, None when there is none. What is not known is not
    judged: None for a torch without CUDA, None or nothing for a host whose GPUs were not seen, and what a library does
    not say of itself.
    """
    problems = []
    for artifact in artifacts:
        request = artifact.request
        where = f"checking the kernels {request.path}:"
        if flashinfer_installed is None:
            problems.append(f"{where} FlashInfer is not installed; leave the kernels out")
        elif not lockfile.matches(flashinfer_installed, request.flashinfer):
            problems.append(
                f"{where} they were built for FlashInfer {request.flashinfer}, {flashinfer_installed} is installed; "
                "give those of this version"
            )
        for library in artifact.libraries:
            if None not in (library.cuda, cuda_major_of_torch) and library.cuda != cuda_major_of_torch:
                problems.append(
                    f"{where} {library.name}.so needs CUDA {library.cuda}, torch is built for CUDA "
                    f"{cuda_major_of_torch}; give one that was built with CUDA {cuda_major_of_torch}"
                )
            without = _without(library, compute_capabilities_of_host or ())
            if without and len(without) == len(set(compute_capabilities_of_host or ())):
                problems.append(f"{where} {_lacks(library, without)}; give one that was built for them")
    return problems


def warnings(artifacts: Sequence[Artifact], compute_capabilities_of_host: Collection[tuple[int, int]]) -> list[str]:
    """What runs on some GPUs of the host only. Which of them a server uses is not known when kernels are installed."""
    lines = []
    for artifact in artifacts:
        for library in artifact.libraries:
            without = _without(library, compute_capabilities_of_host)
            if without and len(without) < len(set(compute_capabilities_of_host)):
                lines.append(
                    f"the kernels {artifact.request.path}: {_lacks(library, without)}; a server on one of these fails "
                    "where it needs them"
                )
    return lines


def _without(library: Library, capabilities: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    return [one for one in sorted(set(capabilities)) if not _runs_on(library, one)]


def _lacks(library: Library, without: Sequence[tuple[int, int]]) -> str:
    code = ", ".join(map(str, library.code or ()))
    capabilities = ", ".join(f"{major}.{minor}" for major, minor in without)
    return f"{library.name}.so has code for {code} and none for GPUs of compute capability {capabilities}"


def _runs_on(library: Library, capability: tuple[int, int]) -> bool:
    return library.code is None or any(code.runs_on(capability) for code in library.code)


def aot_directory(site: str, below: Sequence[str] = ()) -> str:
    """Where the FlashInfer in the site-packages directory `site` looks for built kernels, whether or not it is there.

    `below` are the directories that its environment imports from as well.

    Its own source is asked, which needs no import. Raises InstallError when there is no FlashInfer, when it looks
    elsewhere, and when that is not a place in `site`.
    """
    site = os.path.realpath(site)
    module = os.path.join(site, "flashinfer", "jit", "env.py")
    try:
        tree = ast.parse(source_text.read(module))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InstallError(
            f"installing kernels into {site}: FlashInfer is not installed there; leave the kernels out", path=site
        ) from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InstallError(
            f"reading {module}: {error}; FlashInfer is damaged, remove the environment and run again", path=module
        ) from error
    value = _says(tree)
    if value == f"{_FUNCTION}()":
        if importlib.machinery.PathFinder.find_spec(_JIT_CACHE, [site, *below]):
            raise InstallError(
                f"installing kernels into {site}: the package flashinfer-jit-cache is installed, and this FlashInfer "
                "then looks for kernels only there; leave out that package or the kernels",
                path=site,
            )
    elif value != _OWN_DIRECTORY:
        raise InstallError(
            f"installing kernels into {site}: where this FlashInfer looks for them is not known, {module} says "
            f"{_VARIABLE} = {value}; leave the kernels out",
            path=module,
        )
    place = os.path.join(site, "flashinfer", "data", "aot")
    # FlashInfer follows links before it looks; with uv's link mode `symlink` it would look into uv's cache.
    for path in (module, place):
        _check_no_link(path)
    return place


def _says(tree: ast.Module) -> str | None:
    """The expression that decides, as `ast.unparse` writes it: the call of the function stands only for the known one,
    whose last word is the package's own directory.
    """
    value = None
    known_function = False
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == _FUNCTION and isinstance(node.body[-1], ast.Return):
            last = node.body[-1].value
            known_function = last is not None and ast.unparse(last) == _OWN_DIRECTORY
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        written = getattr(node, "value", None)
        if written is not None and any(isinstance(one, ast.Name) and one.id == _VARIABLE for one in targets):
            value = ast.unparse(written)
    return "another function" if value == f"{_FUNCTION}()" and not known_function else value


def _check_no_link(path: str) -> None:
    if os.path.realpath(path) != path:
        raise InstallError(
            f"installing kernels: {path} leads to {os.path.realpath(path)}, which other environments may share; "
            "install FlashInfer with copies or hard links",
            path=path,
        )


def install(artifacts: Sequence[Artifact], site: str, below: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Move the libraries to where the FlashInfer in `site` looks, and return what to record of each.

    A new file takes the place of an older one, so no hard link of an installer's cache is written through. Call `check`
    first. The unpacked files are gone afterwards. Raises InstallError, and OSError.
    """
    place = aot_directory(site, below)
    records = []
    for artifact in artifacts:
        for library in artifact.libraries:
            directory = os.path.join(place, library.name)
            target = os.path.join(directory, f"{library.name}.so")
            for path in (place, directory):
                os.makedirs(path, exist_ok=True)
                _check_no_link(path)
                # The server may run as another user than the one that installs.
                os.chmod(path, _DIRECTORY_MODE)
            temporary = f"{target}.tmp"
            shutil.move(library.file, temporary)
            os.chmod(temporary, _FILE_MODE)
            os.replace(temporary, target)
            records.append(described(library))
    return records


def described(library: Library) -> dict[str, Any]:
    """A library as plain data. `architectures` is what it has code for (`sm_90a`; `compute_90` is PTX), null when that
    is not known, and `cuda` the major version it needs, null likewise.
    """
    return {
        "name": library.name,
        "sha256": library.sha256,
        "size_bytes": library.size_bytes,
        "cuda": library.cuda,
        "architectures": None if library.code is None else [str(code) for code in library.code],
    }
