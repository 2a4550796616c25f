# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Choosing the Python for an environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import interpreters
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.interpreters import Interpreter, choose, satisfies


def python(path: str, version: str, has_venv: bool = True) -> Interpreter:
    return Interpreter(path, version, "cpython", "", "linux-x86_64", has_venv)


def machine(*pythons: Interpreter, dead: tuple[str, ...] = ()) -> interpreters.Probe:
    """A probe that knows these interpreters and says of every other path that it does not run."""
    known = {one.path: one for one in pythons}
    return lambda path: known.get(path, f"does not run ({path} is switched off)")


@pytest.mark.parametrize(
    ("version", "specifier", "fits"),
    [
        ("3.11.7", ">=3.11", True),
        ("3.10.13", ">=3.11", False),
        ("3.9.18", ">=3.10", False),  # 10 is more than 9, as numbers and not as text
        ("3.14.0rc1", ">=3.10,<3.14", False),
        ("3.13.9", ">=3.10,<3.14", True),
        ("3.11.0", ">3.11", False),
        ("3.11.0", "<=3.11", True),
        ("3.9.7", "!=3.9.*", False),
        ("3.10.7", "!=3.9.*", True),
        ("3.11.7", "==3.11.*", True),
        ("3.12.0", "~=3.11", True),
        ("4.0.0", "~=3.11", False),
        ("3.12.0", "~=3.11.2", False),
        ("3.8.18", "", True),
    ],
)
def test_satisfies_follows_requires_python(version: str, specifier: str, fits: bool) -> None:
    assert satisfies(version, specifier) is fits


def test_satisfies_refuses_what_it_cannot_read() -> None:
    with pytest.raises(InstallError, match=r"cannot read '===3\.11'"):
        satisfies("3.11.7", "===3.11")


def test_auto_takes_the_interpreter_ansible_runs_with_when_it_fits() -> None:
    mine, newer = python("/venv/python", "3.11.7"), python("/usr/bin/python3.13", "3.13.1")
    chosen = choose("auto", ">=3.11", current=mine.path, search=[newer.path], probe=machine(mine, newer))
    assert chosen is mine


def test_auto_takes_the_newest_that_fits_when_ansible_runs_with_an_old_one() -> None:
    pythons = [python(f"/usr/bin/python3.{minor}", f"3.{minor}.1") for minor in (9, 11, 14, 12)]
    chosen = choose(
        "auto", ">=3.11,<3.14", current=pythons[0].path, search=[p.path for p in pythons], probe=machine(*pythons)
    )
    assert chosen.version == "3.12.1"


def test_too_old_names_what_was_found_and_what_is_needed() -> None:
    old = python("/usr/bin/python3.10", "3.10.12")
    older = python("/usr/bin/python3.9", "3.9.2")
    with pytest.raises(InstallError) as caught:
        choose("auto", ">=3.11", current=old.path, search=[older.path, "/shim/python3.12"], probe=machine(old, older))
    message = str(caught.value)
    assert ">=3.11 is needed" in message
    assert "/usr/bin/python3.10 (3.10.12)" in message
    assert "/usr/bin/python3.9 (3.9.2)" in message
    assert "sglang_python" in message
    assert caught.value.facts["found"]["/shim/python3.12"] == "does not run (/shim/python3.12 is switched off)"
    assert caught.value.facts["needed"] == ">=3.11"


def test_a_crowd_of_dead_shims_does_not_bury_the_message() -> None:
    old = python("/usr/bin/python3", "3.9.2")
    with pytest.raises(InstallError, match="and 6 more like it"):
        choose("auto", ">=3.11", current=old.path, search=[f"/shims/python3.{n}" for n in range(7)], probe=machine(old))


def test_an_asked_path_is_taken_or_refused_and_never_replaced(tmp_path: Path) -> None:
    asked = tmp_path / "python3.10"
    asked.write_text("")
    asked.chmod(0o755)
    other = python("/usr/bin/python3.12", "3.12.1")
    probe = machine(python(str(asked), "3.10.1"), other)
    assert choose(str(asked), ">=3.10", current=other.path, search=[], probe=probe).version == "3.10.1"
    with pytest.raises(InstallError, match=r"none fits, >=3\.11 is needed"):
        choose(str(asked), ">=3.11", current=other.path, search=[other.path], probe=probe)


def test_an_asked_path_that_is_not_there_says_so() -> None:
    with pytest.raises(InstallError, match="/nowhere/python not there or not executable"):
        choose("/nowhere/python", "")


def test_a_python_without_venv_names_the_debian_package() -> None:
    bare = python("/usr/bin/python3", "3.12.3", has_venv=False)
    with pytest.raises(InstallError, match=r"apt-get install python3\.12-venv"):
        choose("auto", ">=3.9", needs_venv=True, current=bare.path, search=[], probe=machine(bare))
    assert choose("auto", ">=3.9", current=bare.path, search=[], probe=machine(bare)) is bare


def test_probe_reads_the_running_interpreter() -> None:
    import platform
    import sys

    found = interpreters.probe(sys.executable)
    assert isinstance(found, Interpreter)
    assert found.version == platform.python_version()
    assert found.tag == f"cpython-3.{sys.version_info.minor}{sys.abiflags}-{sys.platform}-{platform.machine()}"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            "echo 'pyenv: python3.12: command not found' >&2; exit 127",
            "does not run (pyenv: python3.12: command not found)",
        ),
        ("echo hello", "does not answer as a Python"),
        ("exit 3", "does not run (exit code 3)"),
    ],
)
def test_probe_says_why_a_candidate_is_no_python(tmp_path: Path, script: str, why: str) -> None:
    candidate = tmp_path / "python3.12"
    candidate.write_text(f"#!/bin/sh\n{script}\n")
    candidate.chmod(0o755)
    assert interpreters.probe(str(candidate)) == why


def test_on_path_lists_interpreters_and_nothing_else(tmp_path: Path) -> None:
    for name in ("python3", "python3.12", "python3.12-config", "python2.7", "python3.11"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o644 if name == "python3.11" else 0o755)
    path = os.pathsep.join(["/nowhere", "", str(tmp_path)])
    assert [os.path.basename(found) for found in interpreters.on_path(path)] == ["python3", "python3.12"]
