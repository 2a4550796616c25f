# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of an SGLang that is no locked release, installed or a checkout, read from its own sources."""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.tokforge.sglang.plugins.module_utils import flag_reader, sglang_tree
from ansible_collections.tokforge.sglang.plugins.module_utils.releases import Release, ReleaseError
from ansible_collections.tokforge.sglang.plugins.module_utils.source_values import ExtractionError

_INSIDE = os.path.join("sglang", "srt", "server_args.py")
#: The version of sources that do not say theirs. It is newer than every release.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Read:
    """A release as its sources have it. `unread` says in words what could not be read of single flags."""

    release: Release
    path: str
    unread: tuple[str, ...]


def read(path: str) -> Read:
    """The release at a path. Raises ReleaseError.

    The path is a `server_args.py` in its place, a directory that holds `sglang/srt` (site-packages, a checkout), the
    package `sglang` itself, an environment, or its interpreter. Only an environment whose SGLang is not in its own
    site-packages (an editable install) has its interpreter run, which does not import SGLang.
    """
    try:
        tree = _tree(path)
        root = os.path.dirname(os.path.dirname(tree.srt))
        if not os.path.isfile(os.path.join(root, _INSIDE)):
            raise ReleaseError(
                f"reading the flags of SGLang from {path}: {tree.srt} is not in a package called sglang, or has no "
                "server_args.py; give site-packages or a checkout",
                source=path,
            )
        found = flag_reader.read(Path(root))
    except (sglang_tree.TreeError, ExtractionError) as exc:
        raise ReleaseError(f"reading the flags of SGLang from {path}: {exc}", source=path) from exc
    release = Release(
        version=tree.version or UNKNOWN, requires_python="", torch=None, flashinfer=None, flags=found.flags
    )
    return Read(release, os.path.join(root, _INSIDE), found.unread)


def _tree(path: str) -> sglang_tree.Tree:
    real = os.path.abspath(path)
    if os.path.isfile(real) and os.path.basename(real) == "server_args.py":
        if not real.endswith(os.sep + _INSIDE):
            raise sglang_tree.TreeError(
                "it is not in its place, sglang/srt/server_args.py, and its other files are not beside it; give the "
                "directory that holds sglang"
            )
        return sglang_tree.of_source(real[: -len(_INSIDE)])
    if os.path.isfile(real):
        return sglang_tree.of_python(path)
    sites = glob.glob(os.path.join(glob.escape(real), "lib", "python3*", "site-packages", "sglang", "srt"))
    if sites:
        return sglang_tree.of_source(os.path.dirname(os.path.dirname(sorted(sites)[-1])))
    python = os.path.join(real, "bin", "python")
    return sglang_tree.of_python(python) if os.path.exists(python) else sglang_tree.of_source(real)
