# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run tests with another ansible-core than the locked one.

    python tools/other_core.py 2.18 pytest -q tests/unit

The environment, .build/core-VERSION, holds what requirements/dev.txt locks, with the newest ansible-core of that series
instead. It is made once and made again when the lock changes. Facts are not injected as variables, and conditionals
that are no booleans fail, whatever the series does by itself.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import make_venv

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "dev.txt"
STRICT = {"ANSIBLE_INJECT_FACT_VARS": "false", "ANSIBLE_ALLOW_BROKEN_CONDITIONALS": "false"}
#: What a series wants older than the lock has it.
OLDER = {"2.18": ["resolvelib>=0.5.3,<1.1.0"]}


class CoreError(Exception):
    """The environment cannot be made, or does not hold what it should."""


def provide(series: str) -> Path:
    """The environment's directory with programs, made when it is not there. Raises CoreError."""
    place = ROOT / ".build" / f"core-{series}"
    wanted = hashlib.sha256(LOCK.read_bytes() + sys.version.encode() + os.fsencode(place)).hexdigest()
    stamp = place / "complete"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(exist_ok=True)
        uv = str(Path(sys.executable).with_name("uv"))
        override = place.parent / f"core-{series}.txt"
        override.write_text("\n".join([f"ansible-core=={series}.*", *OLDER.get(series, [])]) + "\n", encoding="utf-8")
        _run(uv, "venv", "--quiet", "--python", sys.executable, str(place))
        # The hashes are those of the lock, which one package is to differ from.
        target = ["--python", str(place / "bin/python"), "--no-verify-hashes", "--override", str(override)]
        _run(uv, "pip", "install", "--quiet", *target, "--requirement", str(LOCK), env=_uv_environment())
        stamp.write_text(wanted, encoding="utf-8")
    version = _run(str(place / "bin/ansible"), "--version").splitlines()[0]
    if f"core {series}." not in version:
        raise CoreError(f"{place} holds {version}, not a release of {series}; remove it and run again")
    print(f"{version}, Python {sys.version.split()[0]}", flush=True)
    return place / "bin"


def _uv_environment() -> dict[str, str]:
    """uv asks where this machine's pip does, as it does for the locked environments."""
    with tempfile.TemporaryDirectory() as scratch:
        environment: dict[str, str] = make_venv.uv_environment([sys.executable, *make_venv.find_pip(scratch)])
    return environment


def _run(*command: str, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    if done.returncode:
        raise CoreError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main(series: str, command: list[str]) -> int:
    """Run the command with that series first in PATH; its exit code."""
    try:
        programs = provide(series)
    except CoreError as error:
        print(error, file=sys.stderr)
        return 1
    path = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])
    env = {**os.environ, **STRICT, "PATH": path}
    return subprocess.run([str(programs / command[0]), *command[1:]], cwd=ROOT, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
