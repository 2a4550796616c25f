# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finding the engines that are not SGLang's own, and the files they write."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import engine_aiperf, engine_guidellm, engine_output
from ansible_collections.tokforge.sglang.plugins.module_utils.benchmark import BenchmarkError


def make_environment(path: Path, name: str, version: str | None, program: str | None) -> str:
    """An environment with one distribution, whose interpreter is a link to one elsewhere. Returns the interpreter."""
    packages = path / "lib" / "python3.11" / "site-packages"
    info = packages / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", *([f"Version: {version}"] if version else [])]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    # Importing it would be noticed.
    (packages / f"{name.lower()}.py").write_text("raise SystemExit('imported')\n")
    programs = path / "bin"
    programs.mkdir()
    (programs / "python").symlink_to(sys.executable)
    if program:
        (programs / program).write_text("#!/bin/sh\n")
        (programs / program).chmod(0o755)
    return str(programs / "python")


@pytest.mark.parametrize("engine", [engine_aiperf, engine_guidellm])
def test_installed_engine_is_found_without_importing_it(tmp_path: Path, engine: ModuleType) -> None:
    python = make_environment(tmp_path, engine.NAME.capitalize(), "1.2.3", engine.PROGRAM)
    assert engine.version(python) == "1.2.3"


@pytest.mark.parametrize(
    ("name", "version", "program"),
    [("other", "1.0", "aiperf"), ("aiperf", None, "aiperf"), ("aiperf", "1.0", None), ("aiperf-more", "1.0", "aiperf")],
)
def test_engine_that_cannot_be_started_is_not_there(
    tmp_path: Path, name: str, version: str | None, program: str | None
) -> None:
    assert engine_aiperf.version(make_environment(tmp_path, name, version, program)) is None


def test_program_that_may_not_be_run_is_not_there(tmp_path: Path) -> None:
    python = make_environment(tmp_path, "aiperf", "1.0", "aiperf")
    (tmp_path / "bin" / "aiperf").chmod(0o644)
    assert engine_aiperf.version(python) is None


def test_directory_without_packages_is_no_environment(tmp_path: Path) -> None:
    python = make_environment(tmp_path, "aiperf", "1.0", "aiperf")
    os.rename(tmp_path / "lib" / "python3.11", tmp_path / "lib" / "other")
    assert engine_aiperf.version(python) is None
    assert engine_aiperf.version(str(tmp_path / "nowhere" / "bin" / "python")) is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b" \n", "the file is empty"),
        (b"[]", "it is a list, not an object"),
        (b"null", "it is a NoneType"),
        (b'{"a": ', "half-written or not JSON"),
        (b"\xff\xfe\x00", "half-written or not JSON"),
        (b"[" * 200_000, "half-written or not JSON"),
    ],
)
def test_what_is_no_object_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(BenchmarkError, match=f"in /run/x.json: {message}"):
        engine_output.read_object(data, "/run/x.json")


def test_too_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "outputs.json"
    with path.open("wb") as handle:
        handle.truncate(engine_output.MOST_BYTES + 1)
    with pytest.raises(BenchmarkError, match="too many to judge"):
        engine_output.read_file(str(path))
