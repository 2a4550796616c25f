# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directory of artifacts: whose it is, what lies where in it, and nothing secret in any file."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from tokforge_rollout.redaction import Redactor
from tokforge_rollout.variables import UsageError

SUMMARY = "summary.json"
JUNIT = "junit.xml"
LOG = "play.log"
RUNNER = "runner"
REPORT_RUNNER = "runner-report"
REPORT = "report"
PREFLIGHT = "preflight.json"
LOCK = "lock"
# ansible-runner's own words, and what is made of files that are clean: a secret like `failed` must not break them.
CLEAN = ("rc", "status", JUNIT)
PRIVATE_PREFIX = "tokforge-rollout-"
OURS = (SUMMARY, JUNIT, LOG, RUNNER, REPORT_RUNNER, REPORT, PREFLIGHT)


class BusyError(UsageError):
    """A command that still runs holds the lock."""


def lock(directory: Path) -> TextIO:
    """The lock of a directory, held until the file is closed or this process ends. BusyError when another has it.

    The file stays for the next run: what is removed could be locked by two.
    """
    descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    held = open(descriptor, "r+", encoding="utf-8")  # noqa: SIM115 - it is the caller's
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        held.close()
        raise BusyError(
            f"cannot write artifacts to {directory}: a run there is still running; wait for its end or name another one"
        ) from None
    return held


def prepare(directory: Path, summary: Mapping[str, Any], redactor: Redactor) -> TextIO:
    """Make the directory, or empty one that an earlier run left, and write its first summary. Returns its lock.

    The summary comes before anything goes, so the directory stays ours whenever this is killed. UsageError when it is
    somebody else's, or when a run is at work in it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Killed before its first summary, a run leaves these.
        others = {path.name for path in directory.iterdir()} - {LOCK, _scratch(directory / SUMMARY).name}
        if others and not (directory / SUMMARY).is_file():
            raise UsageError(
                f"cannot write artifacts to {directory}: it holds files and no {SUMMARY} of an earlier run; "
                "name an empty one"
            )
        held = lock(directory)
        write_summary(directory, summary, redactor)
        for name in OURS:
            path = directory / name
            if path.is_dir():
                shutil.rmtree(path)
            elif name != SUMMARY:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write artifacts to {directory}: {error.strerror}; name another one") from None
    return held


def remove_private(path: str) -> None:
    """Remove the private directory of a command that was killed. What cannot be one of this user is left alone."""
    directory = Path(path)
    with contextlib.suppress(FileNotFoundError):
        ours = directory.is_absolute() and directory.name.startswith(PRIVATE_PREFIX) and not directory.is_symlink()
        if ours and directory.stat().st_uid == os.getuid():
            shutil.rmtree(directory)


def _scratch(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def write(path: Path, text: str) -> None:
    """Write a file by one rename, for this user only."""
    scratch = _scratch(path)
    scratch.unlink(missing_ok=True)
    scratch.touch(mode=0o600)
    scratch.write_text(text, encoding="utf-8")
    os.replace(scratch, path)


def write_summary(directory: Path, summary: Mapping[str, Any], redactor: Redactor) -> None:
    """Write summary.json."""
    write(directory / SUMMARY, json.dumps(redactor.tree(dict(summary)), indent=2) + "\n")


def drop_environment(runner_directory: Path) -> None:
    """Leave of ansible-runner's file `command` the command and the names of the environment, without their values.

    A half of the file, which a killed command left, is removed.
    """
    path = runner_directory / "command"
    if path.is_file():
        try:
            noted = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            path.unlink()
            return
        noted["env"] = sorted(noted.get("env") or {})
        write(path, json.dumps(noted, indent=2) + "\n")


def clean(directory: Path, redactor: Redactor) -> None:
    """Replace every known secret in all files, and remove the halves of events that a killed Ansible left."""
    for path in sorted(directory.rglob("*")):
        if path.name.endswith("-partial.json"):
            path.unlink()
        elif path.is_file() and not path.is_symlink() and path.name not in CLEAN:
            redactor.file(path)
