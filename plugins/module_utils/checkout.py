# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A source tree that is installed in place: where its project is, and which state of it is meant."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError

_COMMIT = re.compile(r"[0-9a-f]{40}")
# Written into the tree by the build itself; a state that counted them would differ after the first install.
_BUILD_PRODUCTS = re.compile(r"(^|/)(build|dist|__pycache__|[^/]+\.egg-info)/|(^|/)_version\.py$")


@dataclass(frozen=True)
class TreeState:
    """What the tree holds.

    `commit` is None without git, `changes` a digest of what differs from the commit and None when nothing does.
    """

    commit: str | None
    changes: str | None


def project_of(path: str) -> str:
    """The directory with the Python project: `<path>/python` as in SGLang's repository, or `path` itself."""
    for project in (os.path.join(path, "python"), path):
        if any(os.path.isfile(os.path.join(project, name)) for name in ("pyproject.toml", "setup.py")):
            return project
    raise InstallError(
        f"installing from the source tree {path}: neither it nor its python directory holds a pyproject.toml; "
        "give the directory of an SGLang checkout",
        path=path,
    )


def state_of(path: str, commit: str | None = None) -> TreeState:
    """The state of the tree at `path`, held against the pinned `commit` (40 hex digits) when one is given.

    With a pin the tree must be at that commit and unchanged. Without one, changes are allowed and become part of the
    state, so a changed tree is another environment. Raises InstallError.
    """
    if commit is not None and not _COMMIT.fullmatch(commit):
        raise InstallError(
            f"reading the commit {commit!r} for {path}: a pin is 40 hexadecimal digits; a branch or tag can move",
            path=path,
            commit=commit,
        )
    project_of(path)
    if not os.path.exists(os.path.join(path, ".git")):
        if commit:
            raise InstallError(
                f"checking {path} against commit {commit}: it is no git checkout; leave the commit out or give a clone",
                path=path,
            )
        return TreeState(None, _digest(path, _all_sources(path)))
    head = _git(path, "rev-parse", "HEAD").decode().strip()
    if commit and head != commit:
        raise InstallError(
            f"checking {path}: commit {commit} was asked, {head} is checked out; check the right one out, or change "
            "the pin",
            path=path,
            commit=head,
        )
    modified = _names(_git(path, "diff", "--name-only", "-z", "HEAD"))
    added = _names(_git(path, "ls-files", "--others", "--exclude-standard", "-z"))
    changed = modified + [name for name in added if name.endswith(".py") and not _BUILD_PRODUCTS.search(name)]
    if not changed:
        return TreeState(head, None)
    if commit:
        shown = ", ".join(changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
        raise InstallError(
            f"checking {path} against commit {commit}: {shown} differ from it; commit or discard the changes, or leave "
            "the commit out to install the tree as it is",
            path=path,
            changed=changed,
        )
    return TreeState(head, _digest(path, changed))


def _git(path: str, *arguments: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", path, *arguments], capture_output=True, check=False)
    except FileNotFoundError as error:
        raise InstallError(f"reading the checkout {path}: git is not installed; install git", path=path) from error
    if done.returncode:
        why = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[0]
        raise InstallError(
            f"reading the checkout {path}: git says {why!r}; make it a checkout that this user may read", path=path
        )
    return done.stdout


def _names(listing: bytes) -> list[str]:
    return [os.fsdecode(name) for name in listing.split(b"\0") if name]


def _all_sources(path: str) -> list[str]:
    found = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in names:
            relative = os.path.relpath(os.path.join(folder, name), path)
            if name.endswith((".py", ".toml", ".cfg")) and not _BUILD_PRODUCTS.search(relative):
                found.append(relative)
    return found


def _digest(path: str, names: Iterable[str]) -> str:
    """One sha256 over names and contents; a name whose file is gone counts as deleted."""
    total = hashlib.sha256()
    for name in sorted(names):
        try:
            with open(os.path.join(path, name), "rb") as stream:
                content = hashlib.sha256(stream.read()).hexdigest()
        except OSError:
            content = "absent"
        total.update(f"{content} {name}\n".encode(errors="surrogateescape"))
    return total.hexdigest()
