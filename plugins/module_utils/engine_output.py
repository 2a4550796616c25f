# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the benchmark engines from outside SGLang share: finding one in an environment, and reading its JSON."""

from __future__ import annotations

import importlib.metadata
import json
import os
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import lockfile, site_packages
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError

ADVICE = "see the benchmark's log"

# Above this a file or a count says nonsense, and the machine's memory is at stake.
MOST_BYTES = 1 << 30
MOST_REQUESTS = 10_000_000


def installed(python: str, distribution: str, program: str) -> str | None:
    """Version of a distribution in the environment of an interpreter; nothing of it is imported.

    None when it is not there, its program is not beside the interpreter, or there is no environment.
    """
    # The interpreter is a link to one elsewhere, and must not be followed.
    programs = os.path.dirname(os.path.abspath(python))
    if not os.access(os.path.join(programs, program), os.X_OK):
        return None
    try:
        packages = site_packages.find(os.path.dirname(programs))
        for found in importlib.metadata.distributions(path=[packages]):
            if lockfile.canonical(found.metadata["Name"] or "") == distribution:
                return found.version or None
    except (InstallError, OSError):
        return None
    return None


def read_object(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object that a file holds. `where` is its path. BenchmarkError when it is empty, cut off or another."""
    if not data.strip():
        raise BenchmarkError(f"benchmark output in {where}: the file is empty; {ADVICE}")
    try:
        result = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BenchmarkError(
            f"benchmark output in {where}: half-written or not JSON ({str(error)[:200]}); {ADVICE}"
        ) from error
    if not isinstance(result, dict):
        raise BenchmarkError(f"benchmark output in {where}: it is a {type(result).__name__}, not an object; {ADVICE}")
    return result


def read_file(path: str) -> bytes:
    """The bytes of another output. BenchmarkError when it cannot be read."""
    try:
        with open(path, "rb") as handle:
            size = os.fstat(handle.fileno()).st_size
            if size > MOST_BYTES:
                raise BenchmarkError(
                    f"benchmark output in {path}: {size} bytes are too many to judge; use fewer prompts"
                )
            return handle.read()
    except OSError as error:
        raise BenchmarkError(f"benchmark output in {path}: {error.strerror}; {ADVICE}") from error


def mapping(value: Any) -> dict[str, Any]:
    """`value` when it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects in a JSON list; nothing when it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
