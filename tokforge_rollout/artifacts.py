# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directory of artifacts: whose it is, what lies where in it, and nothing secret in any file."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from tokforge_rollout.redaction import Redactor
from tokforge_rollout.variables import UsageError

SUMMARY = "summary.json"
JUNIT = "junit.xml"
LOG = "play.log"
RUNNER = "runner"
REPORT_RUNNER = "runner-report"
REPORT = "report"
PREFLIGHT = "preflight.json"
OURS = (SUMMARY, JUNIT, LOG, RUNNER, REPORT_RUNNER, REPORT, PREFLIGHT)


def prepare(directory: Path) -> None:
    """Make the directory, or empty one that an earlier run left. UsageError when it is somebody else's."""
    if directory.is_dir() and any(directory.iterdir()) and not (directory / SUMMARY).is_file():
        raise UsageError(
            f"cannot write artifacts to {directory}: it holds files and no {SUMMARY} of an earlier run; "
            "name an empty one"
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in OURS:
            path = directory / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write artifacts to {directory}: {error.strerror}; name another one") from None


def write(path: Path, text: str) -> None:
    """Write a file by one rename, for this user only."""
    scratch = path.with_name(path.name + ".new")
    scratch.unlink(missing_ok=True)
    scratch.touch(mode=0o600)
    scratch.write_text(text, encoding="utf-8")
    os.replace(scratch, path)


def write_summary(directory: Path, summary: dict[str, Any], redactor: Redactor) -> None:
    """Write summary.json."""
    write(directory / SUMMARY, json.dumps(redactor.tree(summary), indent=2) + "\n")


def drop_environment(runner_directory: Path) -> None:
    """Leave of ansible-runner's file `command` the command and the names of the environment, without their values."""
    path = runner_directory / "command"
    if path.is_file():
        noted = json.loads(path.read_text(encoding="utf-8"))
        noted["env"] = sorted(noted.get("env") or {})
        write(path, json.dumps(noted, indent=2) + "\n")


def clean(directory: Path, redactor: Redactor) -> None:
    """Replace every known secret in all files, and remove the halves of events that a killed Ansible left."""
    for path in sorted(directory.rglob("*")):
        if path.name.endswith("-partial.json"):
            path.unlink()
        elif path.is_file() and not path.is_symlink():
            redactor.file(path)
