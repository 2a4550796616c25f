# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rollout is about to change, written before it does, so that a later play can finish or undo it.

``state/rollout/journal.json`` has at most one open entry: from before ``current`` is switched until the new release was
seen to serve, or the old one was brought back. A play that finds one has the rest of a rollout before it that was cut
off, by a crash of the controller, of the connection or of the host. It takes the entry over: what served before, and
the copies of files, stay those of the first one, however many plays are cut off in a row.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import kept_files, release_store, rollout_lock
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.kept_files import Kept

SCHEMA_VERSION = 1
#: How an entry ends: the new release serves; the one before serves again; neither could be brought about.
DONE, ROLLED_BACK, FAILED = "done", "rolled_back", "failed"
OUTCOMES = (DONE, ROLLED_BACK, FAILED)
#: Entries that ended, newest last.
REMEMBERED = 20
LONGEST_REASON = 2000


class JournalError(Exception):
    """The journal cannot be read or written; `facts` go beside the message."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Entry:
    """One rollout: from the release `previous` (None: nothing served) to `release`. Times in seconds since the epoch.

    `cut_off`: who else had begun it before, oldest first. `outcome` and `reason` are empty while it is open.
    `manager` and `name`: what ran the server before, and as what; empty when none was ever started.
    """

    rollout: str
    what: str
    by: str
    began_at: float
    release: int | None
    previous: int | None
    kept: Sequence[Kept] = ()
    cut_off: Sequence[str] = ()
    ended_at: float = 0.0
    outcome: str = ""
    reason: str = ""
    manager: str = ""
    name: str = ""


@dataclass(frozen=True)
class Journal:
    """The open entry, those that ended, and what was wrong with the file."""

    open: Entry | None = None
    ended: Sequence[Entry] = ()
    warnings: list[str] = field(default_factory=list)


def path(root: str) -> str:
    """The journal's file."""
    return os.path.join(rollout_lock.folder(root), "journal.json")


def copies(root: str) -> str:
    """The directory with copies of files as they were before."""
    return os.path.join(rollout_lock.folder(root), "kept")


def read(root: str) -> Journal:
    """The journal as it is; without the file nothing is open. Raises JournalError.

    A damaged one is told of and has nothing: `current` and the marks of releases that served still tell what to go
    back to (release_store.py). One that a newer collection wrote is an error.
    """
    try:
        with open(path(root), encoding="utf-8") as stream:
            data = json.load(stream)
        version = data["schema_version"]
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise JournalError(
                f"cannot read {path(root)}: it has schema {version}, this version of tokforge.sglang knows"
                f" {SCHEMA_VERSION}; use the newer version of the collection",
                schema_version=version,
            )
        return Journal(_entry(data["open"]) if data["open"] else None, [_entry(one) for one in data["ended"]])
    except (FileNotFoundError, NotADirectoryError):
        return Journal()
    except IsADirectoryError:
        raise JournalError(f"cannot read {path(root)}: it is a directory; move it away, then run again") from None
    except OSError as error:
        raise JournalError(f"cannot read {path(root)}: {error.strerror}; run as its owner or as root") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        warning = f"{path(root)} is damaged, so nothing is known of a rollout that may have been cut off"
        return Journal(warnings=[warning])


def begin(root: str, entry: Entry, files: Sequence[str]) -> Entry:
    """Open an entry, with copies of these files, or take over the one that is open. Returns it as it is now.

    Raises JournalError.
    """
    journal = read(root)
    before = journal.open
    try:
        if before is None:
            entry = replace(entry, kept=kept_files.keep(files, copies(root)))
        else:
            cut_off = before.cut_off if before.rollout == entry.rollout else (*before.cut_off, _who(before))
            known = {one.path for one in before.kept}
            made_since = [kept_files.Kept(path, kept_files.ABSENT) for path in files if path not in known]
            entry = replace(
                entry,
                previous=before.previous,
                # What only this request names was not there when the first one began, or is not its.
                kept=[*before.kept, *(one for one in made_since if not os.path.lexists(one.path))],
                cut_off=cut_off,
                manager=before.manager,
                name=before.name,
            )
    except OSError as error:
        raise _io_error(root, error) from error
    _write(root, replace(journal, open=entry))
    return entry


def settle(root: str, now: float, check_mode: bool = False) -> Journal:
    """The journal of a play that has just begun. Raises JournalError, StoreError.

    A rollout that was cut off after its release was noted as one that serves is done: going back from it would mix its
    release with the files of before. One that was cut off before its entry was written has changed nothing.
    """
    journal = read(root)
    entry = journal.open
    if entry is None:
        if not check_mode and not journal.warnings:
            _forget_copies(root)
        return journal
    if entry.release is None:
        return journal
    if not release_store.last_proven(root) == release_store.read_current(root) == entry.release != entry.previous:
        return journal
    if not check_mode:
        end(root, DONE, "", now)
    return replace(journal, open=None)


def not_undone_warning(root: str) -> str:
    """What a person is told of `undo` with a damaged journal: nobody knows which files there were. Empty without one.

    Raises JournalError.
    """
    if not read(root).warnings:
        return ""
    return (
        f"{path(root)} is damaged, so the files of before were not put back below {root}: the launcher, the secrets and"
        " the service's own files stay those of the rollout that failed; run deploy.yml with the right settings"
    )


def undo(root: str, check_mode: bool = False) -> list[str]:
    """Put files back as the open entry has them, and return those that were otherwise. Raises JournalError."""
    entry = read(root).open
    if entry is None:
        return []
    try:
        return kept_files.restore(entry.kept, copies(root), check_mode)
    except OSError as error:
        raise JournalError(
            f"cannot put files back below {root}: {error.strerror} ({error.filename}); make it writable, with room, and"
            " move away what is no file, then run again"
        ) from error
    except ValueError as error:
        raise JournalError(f"cannot put files back below {root}: {error}; deploy a release that works") from error


def end(root: str, outcome: str, reason: str, now: float) -> Entry | None:
    """End the open entry and return it, None when none is open. Raises JournalError.

    One that changed nothing leaves no trace.
    """
    journal = read(root)
    if journal.open is None:
        return None
    entry = replace(journal.open, ended_at=now, outcome=outcome, reason=reason[:LONGEST_REASON])
    try:
        told = outcome != DONE or entry.cut_off or entry.release != entry.previous or kept_files.changed(entry.kept)
        ended = [*journal.ended, replace(entry, kept=())][-REMEMBERED:] if told else journal.ended
        _write(root, replace(journal, open=None, ended=ended))
    except OSError as error:
        raise _io_error(root, error) from error
    # After the entry: without its copies an open one could not be undone.
    _forget_copies(root)
    return entry


def describe(entry: Entry) -> dict[str, Any]:
    """An entry as plain data, with the paths of what was kept only."""
    return {**asdict(entry), "kept": [one.path for one in entry.kept], "cut_off": list(entry.cut_off)}


def cut_off_message(entry: Entry) -> str:
    """What a person is told of an entry that another play left open."""
    return (
        f"{entry.what} of {entry.by} was cut off after it had begun to switch from {_named(entry.previous)} to"
        f" {_named(entry.release)}"
    )


def _forget_copies(root: str) -> None:
    try:
        kept_files.forget(copies(root))
    except OSError as error:
        raise _io_error(root, error) from error


def _named(number: int | None) -> str:
    return "no release" if number is None else f"release {number}"


def _who(entry: Entry) -> str:
    return f"{entry.what} of {entry.by} to {_named(entry.release)}"


def _entry(data: Mapping[str, Any]) -> Entry:
    entry = Entry(**{**data, "kept": [Kept(**one) for one in data["kept"]]})
    if not all(value is None or isinstance(value, int) for value in (entry.release, entry.previous)):
        raise TypeError("not a release")
    return entry


def _write(root: str, journal: Journal) -> None:
    data = {
        "schema_version": SCHEMA_VERSION,
        "open": asdict(journal.open) if journal.open else None,
        "ended": [asdict(entry) for entry in journal.ended],
    }
    try:
        write_atomic(path(root), (json.dumps(data, indent=1, sort_keys=True) + "\n").encode(), mode=0o600)
    except OSError as error:
        raise _io_error(root, error) from error


def _io_error(root: str, error: OSError) -> JournalError:
    return JournalError(
        f"cannot keep the way back below {rollout_lock.folder(root)}: {error.strerror} ({error.filename}); make it"
        " writable and give it room"
    )
