# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fact file `sglang.fact` that Ansible shows as `ansible_local.sglang`: its schema, its history, and safe writing.

Knows nothing of what a record's figures mean. docs/facts.md describes the schema for users.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic

SCHEMA_VERSION = 1
HISTORY_LIMIT = 50
FILE_NAME = "sglang.fact"
# Not executable: Ansible would run the file instead of reading it. Readable by all: facts are gathered by any user.
_MODE = 0o644
# What is read of the latest record. A record may hold more.
_RECORD = {
    "id": str,
    "recorded_at": str,
    "fingerprint": str,
    "valid": bool,
    "reasons": list,
    "points": list,
    "raw_dir": str,
}


class StoreError(Exception):
    """The fact file cannot be used; `facts` are what was known."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


class CorruptError(StoreError):
    """The content is not ours: no JSON, or not of the schema."""


@dataclass(frozen=True)
class Written:
    """Where a record went, and where a corrupt predecessor was moved to (None: there was none)."""

    path: str
    set_aside: str | None


def path_in(facts_dir: str) -> str:
    """Path of the fact file in a facts directory."""
    return os.path.join(facts_dir, FILE_NAME)


def empty() -> dict[str, Any]:
    """A document without results."""
    return {"schema_version": SCHEMA_VERSION, "latest": None, "history": [], "baseline": None}


def parse(data: bytes, where: str) -> dict[str, Any]:
    """The document in `data`. Keys this version does not know are kept.

    Raises CorruptError when it is not a document of ours, StoreError when a newer version wrote it.
    """
    try:
        document = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"fact file {where}: not JSON ({error})") from error
    if not isinstance(document, dict):
        raise CorruptError(f"fact file {where}: a {type(document).__name__}, not an object")
    version = document.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise CorruptError(f"fact file {where}: schema_version is {version!r}")
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"fact file {where}: written with schema {version}, this version of tokforge.sglang knows "
            f"{SCHEMA_VERSION}; use the newer version of the collection, or another facts directory",
            schema_version=version,
        )
    latest, history = document.setdefault("latest", None), document.setdefault("history", [])
    if not (latest is None or isinstance(latest, dict)):
        raise CorruptError(f"fact file {where}: latest is a {type(latest).__name__}, not an object")
    wrong = _wrong_fields(latest) if latest is not None else []
    if wrong:
        raise CorruptError(f"fact file {where}: latest is no record, missing or wrong: {', '.join(wrong)}")
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise CorruptError(f"fact file {where}: history is not a list of objects")
    document.setdefault("baseline", None)
    return document


def _wrong_fields(record: Mapping[str, Any]) -> list[str]:
    wrong = [name for name, kind in _RECORD.items() if not isinstance(record.get(name), kind)]
    for name, kind in (("reasons", str), ("points", dict)):
        if name not in wrong and not all(isinstance(item, kind) for item in record[name]):
            wrong.append(name)
    return wrong


def append(document: Mapping[str, Any], record: Mapping[str, Any], limit: int = HISTORY_LIMIT) -> dict[str, Any]:
    """A copy of `document` with `record` as the latest and as the last entry of the history, which keeps the newest
    `limit` entries.
    """
    entry = dict(record)
    return {**document, "latest": entry, "history": [*document["history"], entry][-limit:]}


def render(document: Mapping[str, Any]) -> bytes:
    """The bytes of the fact file.

    Raises StoreError for a value that is not JSON (Infinity and NaN are not: Ansible would show the file as text).
    """
    try:
        return (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"fact to be recorded: {error}; only plain JSON values can be recorded") from error


def read(facts_dir: str) -> dict[str, Any] | None:
    """The document in a facts directory, None when there is no file.

    Takes no lock: writers replace the file as a whole.
    Raises CorruptError and StoreError as `parse`, StoreError when the file cannot be read.
    """
    path = path_in(facts_dir)
    try:
        with open(path, "rb") as handle:
            data = handle.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"fact file {path}: {error.strerror}; make it readable") from error
    return parse(data, path)


def record(
    facts_dir: str, entry: Mapping[str, Any], lock_timeout_s: float = 30.0, limit: int = HISTORY_LIMIT
) -> Written:
    """Add `entry` to the fact file.

    Reads, extends, replaces, reads again and compares, all under a lock, so that two plays at once lose nothing.
    A corrupt file is moved to `sglang.fact.corrupt-<UTC time>` and a new one begun. Raises StoreError; the old file is
    then unchanged.
    """
    path = path_in(facts_dir)
    try:
        os.makedirs(facts_dir, mode=0o755, exist_ok=True)
        with _locked(facts_dir, lock_timeout_s):
            set_aside = None
            try:
                document = read(facts_dir) or empty()
            except CorruptError:
                set_aside, document = _set_aside(path), empty()
            data = render(append(document, entry, limit))
            write_atomic(path, data, _MODE)
            _compare(path, data)
    except OSError as error:
        raise StoreError(f"fact file {path}: {error.strerror}; make the directory writable and give it room") from error
    return Written(path, set_aside)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _compare(path: str, written: bytes) -> None:
    with open(path, "rb") as handle:
        if handle.read() != written:
            raise StoreError(
                f"fact file {path}: reads back different from what was written; "
                "check the disk and who else writes there"
            )


def _set_aside(path: str) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside, attempt = f"{path}.corrupt-{stamp}", 1
    while os.path.lexists(aside):
        attempt += 1
        aside = f"{path}.corrupt-{stamp}-{attempt}"
    os.rename(path, aside)
    return aside


@contextmanager
def _locked(facts_dir: str, timeout_s: float, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    # A file of its own: the fact file is replaced, and a lock on a replaced file guards nothing. Not named *.fact, so
    # Ansible does not read it.
    path = os.path.join(facts_dir, f".{FILE_NAME}.lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise StoreError(
                        f"fact file in {facts_dir}: another writer holds the lock for more than {timeout_s:g} s; "
                        "wait for the other play to end"
                    ) from None
                sleep(0.05)
        yield
    finally:
        # Closing releases the lock.
        os.close(descriptor)
