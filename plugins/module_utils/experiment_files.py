# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of experiments, <root>/state/experiments/<id>.json: read, written under a lock, and not too many."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import experiment_resume, experiment_state, file_lock
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.experiment_settings import ExperimentError
from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole

MOST_FILES = 20
_LARGEST = 64 * 1024 * 1024
_ID = re.compile(r"(ab|sweep|explain)-[0-9a-f]{12}")
_MODE = 0o644


class CorruptError(ExperimentError):
    """The file is none of ours."""


def directory_in(root: str) -> str:
    """Where the files of a root directory lie."""
    return os.path.join(root, "state", "experiments")


def path_of(root: str, name: str) -> str:
    """The file of an experiment. Raises ExperimentError for what is no id."""
    if not _ID.fullmatch(name):
        raise ExperimentError(f"looking for an experiment: {name[:50]!r} is no id; give the one that begin returned")
    return os.path.join(directory_in(root), f"{name}.json")


def read(root: str, name: str) -> dict[str, Any] | None:
    """The experiment of that id, None when there is no file.

    Raises CorruptError when the file is none of ours, ExperimentError when it cannot be read or is of a newer version.
    """
    path = path_of(root, name)
    try:
        with open(path, "rb") as stream:
            data = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ExperimentError(f"reading {path}: {error.strerror}; make it readable, then run again") from error
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"reading {path}: not JSON ({error})") from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if is_whole(version) and version > experiment_state.SCHEMA_VERSION:
        raise ExperimentError(
            f"reading {path}: written with schema {version}, this version of the collection knows "
            f"{experiment_state.SCHEMA_VERSION}; use the newer version, or move the file away"
        )
    wrong = experiment_state.well_formed(document) if is_whole(version) else "it has no schema_version"
    if not wrong and document["id"] != name:
        wrong = f"it is of experiment {document['id'][:50]!r}"
    if wrong:
        raise CorruptError(f"reading {path}: {wrong}")
    return dict(document)


def get(root: str, name: str) -> dict[str, Any]:
    """As `read`, but it has to be there. Raises ExperimentError."""
    found = read(root, name)
    if found is None:
        raise ExperimentError(f"looking for experiment {name}: {path_of(root, name)} is not there; begin it first")
    return found


def write(root: str, document: Mapping[str, Any]) -> None:
    """Replace the file of an experiment. Raises ExperimentError."""
    path = path_of(root, document["id"])
    try:
        data = (json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
        write_atomic(path, data, _MODE)
    except ValueError as error:
        raise ExperimentError(
            f"writing {path}: {error}; a figure is not finite, which a record must not have"
        ) from error
    except OSError as error:
        raise ExperimentError(
            f"writing {path}: {error.strerror}; free space there or make it writable, then run again"
        ) from error


def others(root: str, name: str) -> list[dict[str, Any]]:
    """The other experiments that can be read, oldest first."""
    found = []
    for other in _names(root):
        with contextlib.suppress(ExperimentError):
            document = read(root, other) if other != name else None
            if document is not None:
                found.append(document)
    return sorted(found, key=lambda document: (document["updated_at"], document["id"]))


def unfinished(root: str, name: str) -> list[dict[str, Any]]:
    """What another play left half done, with what to do about it: trials, or what is to serve in the end."""
    return [
        {
            "id": document["id"],
            "kind": document["kind"],
            "request": document["request"],
            "updated_at": document["updated_at"],
            "original_release": document.get("original_release"),
            "waiting": len(experiment_state.waiting(document)),
            "trials": len(document["trials"]),
            "todo": f"run the same {document['kind']} again to go on with it, or give up all with "
            f"-e sglang_experiment_abandon=true (this one with action: abandon, id: {document['id']} of "
            "tokforge.sglang.experiment)",
        }
        for document in others(root, name)
        if experiment_resume.is_open(document)
    ]


def prune(root: str, name: str, most: int = MOST_FILES) -> list[str]:
    """Remove the oldest files above `most`, those that are done with first, never that of `name`. Gives their ids."""
    found = sorted(others(root, name), key=lambda one: not (one["finished"] or one["abandoned"]))
    gone = [document["id"] for document in found[: max(0, len(found) - (most - 1))]]
    for other in gone:
        with contextlib.suppress(OSError):
            os.unlink(path_of(root, other))
    return gone


def set_aside(root: str, name: str) -> str:
    """Move a corrupt file out of the way; gives its new path."""
    path = path_of(root, name)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    aside, attempt = f"{path}.corrupt-{stamp}", 1
    while os.path.lexists(aside):
        attempt += 1
        aside = f"{path}.corrupt-{stamp}-{attempt}"
    try:
        os.rename(path, aside)
    except OSError as error:
        raise ExperimentError(f"moving {path} to {aside}: {error.strerror}; move it away by hand") from error
    return aside


@contextmanager
def locked(root: str, timeout_s: float = 30.0, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Hold the lock of a root's experiments, for a read that is followed by a write. Raises ExperimentError."""
    directory = directory_in(root)
    path = os.path.join(directory, ".lock")
    with contextlib.ExitStack() as stack:
        try:
            os.makedirs(directory, mode=0o755, exist_ok=True)
            stack.enter_context(file_lock.held(path, timeout_s, sleep))
        except TimeoutError as error:
            raise ExperimentError(
                f"locking {path}: another play holds it for more than {timeout_s:g} s; wait for it to end"
            ) from error
        except OSError as error:
            raise ExperimentError(f"opening {path}: {error.strerror}; make the directory writable") from error
        yield


def _names(root: str) -> list[str]:
    try:
        entries = os.listdir(directory_in(root))
    except OSError:
        return []
    return sorted(entry[:-5] for entry in entries if entry.endswith(".json") and _ID.fullmatch(entry[:-5]))
