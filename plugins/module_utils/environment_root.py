# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose directory a root is: `<root>/.tokforge-sglang` says that a rollout made it, so that it may be destroyed.

Without it, removing `bin`, `src` and so on below a root would remove whatever else has these names (/usr/local).
"""

from __future__ import annotations

import glob
import os
import re

from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.json_file import read_object

# The role sglang_destroy looks for it.
ROOT_MARKER = ".tokforge-sglang"
# An environment with it is complete.
ENVIRONMENT_MARKER = "environment.json"
_NAMES = ("venvs", "releases", "current", "state", "log", "bin", "bench", "cache", "models", "src")
_ENVIRONMENT = re.compile(r"[0-9a-f]{12}")
_TEXT = """\
This directory was made by the Ansible collection tokforge.sglang.
destroy.yml removes what the collection made here only while this file is there.
"""


def check_root(root: str) -> None:
    """Refuse a root that holds one of our names without being ours. Writes nothing. Raises InstallError and OSError."""
    # Before the marker is looked for: another run writes the marker first.
    names = set(os.listdir(root)) if os.path.isdir(root) else set()
    taken = [name for name in _NAMES if name in names]
    if taken and not os.path.lexists(os.path.join(root, ROOT_MARKER)) and not _has_environment(root):
        raise InstallError(
            f"making an environment below {root}: {os.path.join(root, taken[0])} is there and no rollout made this "
            "directory; choose an empty directory",
            path=root,
            taken=taken,
        )


def claim_root(root: str) -> None:
    """Make the root ours, before anything else is written below it. Raises InstallError and OSError."""
    check_root(root)
    if not os.path.lexists(os.path.join(root, ROOT_MARKER)):
        # The server runs as its own user, who has to come in, whatever the umask of this one.
        mask = os.umask(0o022)
        try:
            os.makedirs(root, exist_ok=True)
        finally:
            os.umask(mask)
        write_atomic(os.path.join(root, ROOT_MARKER), _TEXT.encode(), 0o644)


def _has_environment(root: str) -> bool:
    """Whether a version of this collection that wrote no marker has made the root."""
    found = glob.glob(os.path.join(glob.escape(root), "venvs", "*", "environment.json"))
    return any(_ENVIRONMENT.fullmatch(os.path.basename(os.path.dirname(path))) for path in found)


def find(root: str, version: str) -> str:
    """The directory of a complete environment of this SGLang release below the root, "" when there is none."""
    venvs = os.path.join(root, "venvs")
    try:
        names = sorted(os.listdir(venvs))
    except OSError:
        return ""
    for name in names:
        # Without a marker, or with a damaged one, it is not complete and does not count.
        versions = read_object(os.path.join(venvs, name, ENVIRONMENT_MARKER)).get("versions")
        if isinstance(versions, dict) and versions.get("sglang") == version:
            return os.path.join(venvs, name)
    return ""
