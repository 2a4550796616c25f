# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fact file `sglang.fact` that Ansible shows as `ansible_local.sglang`: reading any schema, and safe writing.

What a document holds and how it grows is in result_document.py. docs/facts.md describes the schema for users.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import file_lock, result_document
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic

FILE_NAME = "sglang.fact"
# Not executable: Ansible would run the file instead of reading it. Readable by all: facts are gathered by any user.
_MODE = 0o644


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


def parse(data: bytes, where: str) -> dict[str, Any]:
    """The document in `data`. Keys this version does not know are kept.

    Raises CorruptError when it is not a document of ours, StoreError when a newer version wrote it.
    """
    try:
        document = json.loads(data, parse_constant=_refuse_constant, parse_float=_finite_float)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"fact file {where}: not JSON ({error})") from error
    if not isinstance(document, dict):
        raise CorruptError(f"fact file {where}: a {type(document).__name__}, not an object")
    try:
        return result_document.read(document)
    except result_document.NewerError as error:
        raise StoreError(
            f"fact file {where}: {error}; use the newer version of the collection, or another facts directory",
            schema_version=error.version,
        ) from error
    except result_document.DocumentError as error:
        raise CorruptError(f"fact file {where}: {error}") from error


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
        # Without waiting: a pipe in its place would be waited for without an end, and that with the lock held.
        with open(path, "rb", opener=_at_once) as handle:
            if not stat.S_ISREG(os.fstat(handle.fileno()).st_mode):
                raise StoreError(f"fact file {path}: not a regular file; remove it, or use another facts directory")
            data = handle.read()
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise StoreError(f"fact file {path}: a directory; remove it, or use another facts directory") from error
    except OSError as error:
        raise StoreError(f"fact file {path}: {error.strerror}; make it readable") from error
    return parse(data, path)


def record(facts_dir: str, entry: Mapping[str, Any], lock_timeout_s: float = 30.0, baseline: bool = False) -> Written:
    """Add the record of a run; `baseline`: from now on others are held against it. See `update`."""

    def added(document: dict[str, Any]) -> dict[str, Any]:
        grown = result_document.append(document, entry)
        return result_document.with_baseline(grown, str(entry["id"])) if baseline else grown

    return update(facts_dir, added, lock_timeout_s)


def update(facts_dir: str, change: Callable[[dict[str, Any]], dict[str, Any]], lock_timeout_s: float = 30.0) -> Written:
    """Replace the document by what `change` makes of it.

    Reads, changes, replaces, reads again and compares, all under a lock, so that two plays at once lose nothing.
    A corrupt file is moved to `sglang.fact.corrupt-<UTC time>` and a new one begun. Raises StoreError; the old file is
    then unchanged.
    """
    path = path_in(facts_dir)
    try:
        os.makedirs(facts_dir, mode=0o755, exist_ok=True)
        with _locked(facts_dir, lock_timeout_s):
            _remove_leftovers(facts_dir)
            corrupt = False
            try:
                document = read(facts_dir) or result_document.empty()
            except CorruptError:
                corrupt, document = True, result_document.empty()
            data = render(change(document))
            # Only now that there is something to put in its place.
            set_aside = _set_aside(path) if corrupt else None
            write_atomic(path, data, _MODE)
            _compare(path, data)
    except result_document.DocumentError as error:
        raise StoreError(f"fact file {path}: {error}") from error
    except OSError as error:
        # Mostly it is another file beside it that is in the way.
        about = f" ({error.filename})" if error.filename not in (None, path) else ""
        raise StoreError(
            f"fact file {path}: {error.strerror or error}{about}; make the directory writable and give it room"
        ) from error
    return Written(path, set_aside)


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite_float(text: str) -> float:
    """1e999 is JSON and reads as infinity, which cannot be written again."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is too large for a number")
    return number


def _compare(path: str, written: bytes) -> None:
    with open(path, "rb") as handle:
        if handle.read() != written:
            raise StoreError(
                f"fact file {path}: reads back different from what was written; "
                "check the disk and who else writes there"
            )


def _remove_leftovers(facts_dir: str) -> None:
    """What writers left that were killed while they wrote: with the lock held, nobody is writing."""
    for name in os.listdir(facts_dir):
        if name.startswith(f".{FILE_NAME}.") and name.endswith(".tmp"):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(facts_dir, name))


def _set_aside(path: str) -> str:
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside, attempt = f"{path}.corrupt-{stamp}", 1
    while os.path.lexists(aside):
        attempt += 1
        aside = f"{path}.corrupt-{stamp}-{attempt}"
    os.rename(path, aside)
    return aside


@contextlib.contextmanager
def _locked(facts_dir: str, timeout_s: float, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    # A file of its own: the fact file is replaced, and a lock on a replaced file guards nothing. Not named *.fact, so
    # Ansible does not read it.
    path = os.path.join(facts_dir, f".{FILE_NAME}.lock")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(file_lock.held(path, timeout_s, sleep))
        except TimeoutError as error:
            raise StoreError(
                f"fact file in {facts_dir}: another writer holds the lock for more than {timeout_s:g} s; "
                "wait for the other play to end"
            ) from error
        except OSError as error:
            raise StoreError(
                f"fact file in {facts_dir}: its lock {path} cannot be taken: {error.strerror or error}; make that file "
                "readable, or the directory writable where it is not there"
            ) from error
        yield
