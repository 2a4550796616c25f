# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where /usr/local/cuda points, and what has to be done so that a new toolkit beside it does not move it.

NVIDIA's packages register each toolkit as an alternative named cuda with a priority that grows with the version, so in
automatic mode (update-alternatives(1)) every newer toolkit, and even a newer library alone, takes /usr/local/cuda.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import host_files

LINK = "/usr/local/cuda"
NAME = "cuda"
_ALTERNATIVE = "/etc/alternatives/cuda"
_ADMIN = "/var/lib/dpkg/alternatives"

#: Kinds of what is at /usr/local/cuda.
ABSENT = "absent"
ALTERNATIVES = "alternatives"
SYMLINK = "link"
DIRECTORY = "directory"

#: What is to be done: nothing, select an alternative, back to automatic mode, take an alternative out, make the link,
#: remove the link.
NOTHING = "none"
SELECT = "select"
AUTOMATIC = "auto"
DROP = "drop"
MAKE = "link"
UNLINK = "unlink"


@dataclass(frozen=True)
class Default:
    """What is at /usr/local/cuda. `mode` is that of the alternative, auto or manual, "" when there is none. `text` is
    what a link holds, which may be relative; two that lead to the same place are the same."""

    kind: str = ABSENT
    target: str = ""
    mode: str = ""
    text: str = field(default="", compare=False)

    @property
    def link(self) -> str:
        """What a link that is made anew is to hold."""
        return self.text or self.target

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for a record."""
        return asdict(self)


@dataclass(frozen=True)
class Fix:
    """What is to be done, with which path, and why in one sentence. `problem` says what cannot be done."""

    how: str = NOTHING
    path: str = ""
    why: str = ""
    problem: str = ""


def run(argv: Sequence[str]) -> str:
    """What a program writes, "" when it ends with an error. Raises OSError or subprocess.SubprocessError."""
    environ = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(
        list(argv), env=environ, capture_output=True, text=True, errors="replace", timeout=30, check=False
    )
    return done.stdout if done.returncode == 0 else ""


def look(root: str = "/", runner: Callable[[Sequence[str]], str] = run) -> Default:
    """What is at /usr/local/cuda below `root`."""
    text = _text(root, LINK)
    if text is None:
        return Default(DIRECTORY) if os.path.lexists(host_files.place(root, LINK)) else Default()
    target = resolved(text)
    if target != _ALTERNATIVE:
        return Default(SYMLINK, target, text=text)
    try:
        said = runner(["update-alternatives", "--admindir", host_files.place(root, _ADMIN), "--query", NAME])
    except (OSError, subprocess.SubprocessError):
        said = ""
    match = re.search(r"^Status: (auto|manual)$", said, re.MULTILINE)
    chosen = _text(root, _ALTERNATIVE)
    return Default(ALTERNATIVES, resolved(chosen, _ALTERNATIVE) if chosen else "", match[1] if match else "")


def resolved(text: str, path: str = LINK) -> str:
    """The absolute path that a link at `path` names with this text."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), text))


def _text(root: str, path: str) -> str | None:
    """What a link holds, None for what is no link."""
    try:
        return os.readlink(host_files.place(root, path))
    except OSError:
        return None


def of_record(value: Any) -> Default | None:
    """A noted Default, None for what is none."""
    if not isinstance(value, Mapping):
        return None
    kind, target, mode, text = (value.get(key) for key in ("kind", "target", "mode", "text"))
    if kind not in (ABSENT, ALTERNATIVES, SYMLINK, DIRECTORY) or not isinstance(target, str):
        return None
    text = text if isinstance(text, str) and kind == SYMLINK and resolved(text) == target else ""
    return Default(str(kind), target, mode if isinstance(mode, str) else "", text)


def keep(now: Default, before: Default | None, homes: Sequence[str]) -> Fix:
    """So that /usr/local/cuda does not point to one of our `homes`, but where it pointed before them.

    Elsewhere it points because somebody wants it so; that is left alone.
    """
    if before is None or now.target not in homes or before.target == now.target:
        return Fix()
    why = f"{LINK} pointed to {before.target or 'nothing'} before {now.target} was there"
    return _back(now, before, why)


def take(now: Default, home: str) -> Fix:
    """So that /usr/local/cuda points to `home`."""
    if now.target == home:
        return Fix()
    if now.kind == DIRECTORY:
        return Fix(problem=f"making {home} the default: {LINK} is no link; move it away and run again")
    why = f"{home} is to be the default, and {LINK} points to {now.target or 'nothing'}"
    return Fix(SELECT if now.kind == ALTERNATIVES else MAKE, home, why)


def restore(now: Default, before: Default | None, homes: Sequence[str]) -> Fix:
    """What was there before the first of our `homes`, when these go or went."""
    if before is None:
        return Fix()
    if now.target in homes and now.target != before.target:
        return _back(now, before, f"{now.target} goes")
    if now == Default(ALTERNATIVES, before.target, "manual") and before == Default(ALTERNATIVES, before.target, "auto"):
        # Selecting it again, to keep it, made it manual.
        return Fix(AUTOMATIC, now.target, "it was in automatic mode")
    if now.kind == ABSENT and before.kind == SYMLINK:
        return Fix(MAKE, before.link, "the packages' alternative replaced the link and is gone")
    return Fix()


def _back(now: Default, before: Default, why: str) -> Fix:
    if before.kind == ALTERNATIVES:
        return Fix(SELECT, before.target, why)
    if before.kind == SYMLINK:
        return Fix(MAKE, before.link, why)
    if before.kind == ABSENT:
        return Fix(DROP if now.kind == ALTERNATIVES else UNLINK, now.target, why)
    return Fix()
