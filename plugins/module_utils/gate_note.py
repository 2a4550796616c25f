# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this collection did to the file with the gate, kept beside it: the way back to the original bytes."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils import source_text
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic

_SCHEMA = 1


@dataclass(frozen=True)
class Edit:
    """One opening: what `now` replaced at `start` (in characters), and the file's sha256 after it."""

    backend: str
    start: int
    was: str
    now: str
    sha256: str


@dataclass(frozen=True)
class Note:
    """What this module did to a file, kept beside it: the way back."""

    original_sha256: str
    edits: tuple[Edit, ...]

    def applied(self, sha256: str) -> tuple[Edit, ...]:
        """The edits that are in a file with this digest. Empty when the file is not one that this note describes."""
        for count in range(len(self.edits), 0, -1):
            if self.edits[count - 1].sha256 == sha256:
                return self.edits[:count]
        return ()


def edit_between(before: str, after: str, backend: str, sha256: str) -> Edit:
    """The one stretch in which two texts differ."""
    start = _common(before, after)
    tail = _common(before[:start:-1], after[:start:-1])
    return Edit(backend, start, before[start : len(before) - tail], after[start : len(after) - tail], sha256)


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def note_path(path: str) -> str:
    """Where the note of a file lies."""
    folder, name = os.path.split(os.path.realpath(path))
    return os.path.join(folder, f".{name}.tokforge-gate.json")


def write_note(path: str, note: Note, version: str | None) -> None:
    """Put the note beside the file. Raises OSError."""
    target = note_path(path)
    # A link in its place would have the note written over whatever it leads to.
    if os.path.islink(target):
        os.unlink(target)
    data = {
        "schema_version": _SCHEMA,
        "sglang_version": version,
        "original_sha256": note.original_sha256,
        "edits": [asdict(edit) for edit in note.edits],
    }
    write_atomic(target, json.dumps(data, indent=1).encode() + b"\n", 0o644)


def read_note(path: str) -> Note | None:
    """The note beside a file, or None when there is none that can be used. Raises OSError for one that is hidden."""
    try:
        if not stat.S_ISREG(os.lstat(note_path(path)).st_mode):
            return None
        data = json.loads(source_text.read(note_path(path)))
        if data["schema_version"] != _SCHEMA:
            return None
        edits = tuple(Edit(**one) for one in data["edits"])
        whole = all(
            isinstance(edit.start, int) and all(isinstance(one, str) for one in (edit.backend, edit.was, edit.now))
            for edit in edits
        )
        return Note(data["original_sha256"], edits) if whole else None
    except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        return None


def undone(note: Note, data: bytes, text: str, encoding: str) -> tuple[str, bytes] | None:
    """Text and bytes without the note's edits, or None when they do not lead to the original it names.

    A note that does not describe the file has no edits in it, and leads to the file as it is.
    """
    applied = note.applied(source_text.sha256(data))
    for edit in reversed(applied):
        text = text[: edit.start] + edit.was + text[edit.start + len(edit.now) :]
    try:
        before = source_text.encoded(text, encoding, data)
    except UnicodeError:
        return None
    return (text, before) if not applied or source_text.sha256(before) == note.original_sha256 else None
