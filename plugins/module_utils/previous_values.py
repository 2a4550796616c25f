# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a host's settings were before this collection changed them, so that they can be put back.

Noted before the change and forgotten after the restore: a run that is killed in between leaves a note that is still
true. The first note of a setting stays, since later ones would be of values that are ours.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import file_lock
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

FILE = "previous.json"
RECORD_DIR = "/var/lib/tokforge/host"
SCHEMA_VERSION = 1
_LOCK_WAIT_S = 60.0


class RecordError(HostError):
    """The notes cannot be read or written; the text says what to do."""


def read(record_dir: str) -> dict[str, Any]:
    """The noted values by key, empty when nothing was noted. Raises RecordError for a file that is none of ours."""
    path = os.path.join(record_dir, FILE)
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RecordError(
            f"reading what the settings of this host were, {path}: {error.strerror}; make it readable", path=path
        ) from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"not JSON ({str(error)[:100]})") from error
    values = found.get("values") if isinstance(found, dict) else None
    if not isinstance(values, dict) or found.get("schema_version") != SCHEMA_VERSION:
        raise _damaged(path, f"not in schema {SCHEMA_VERSION}")
    return values


def remember(record_dir: str, values: Mapping[str, Any]) -> None:
    """Note values, plain JSON, by key. A key that is noted keeps its value. Raises RecordError."""
    with _changing(record_dir) as known:
        known.update({key: value for key, value in values.items() if key not in known})


def forget(record_dir: str, keys: Iterable[str]) -> None:
    """Remove notes; keys that are not noted are fine. Raises RecordError."""
    gone = list(keys)
    if not gone or not read(record_dir):
        return
    with _changing(record_dir) as known:
        for key in gone:
            known.pop(key, None)


@contextlib.contextmanager
def _changing(record_dir: str) -> Iterator[dict[str, Any]]:
    """The values to be changed in place; written when they differ at the end."""
    path = os.path.join(record_dir, FILE)
    try:
        os.makedirs(record_dir, mode=0o755, exist_ok=True)
        with file_lock.held(f"{path}.lock", _LOCK_WAIT_S):
            before = read(record_dir)
            values = dict(before)
            yield values
            if values != before:
                document = {"schema_version": SCHEMA_VERSION, "values": values}
                write_atomic(path, json.dumps(document, indent=2, sort_keys=True).encode() + b"\n", 0o600)
    except OSError as error:
        raise RecordError(
            f"noting what the settings of this host were, {path}: {error.strerror or error}; nothing was changed, make "
            "the directory writable and run again",
            path=path,
        ) from error


def _damaged(path: str, why: str) -> RecordError:
    return RecordError(
        f"reading what the settings of this host were, {path}: {why}; put a backup back, or move the file away and set "
        "what it held by hand",
        path=path,
    )
