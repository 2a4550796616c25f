# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's environment: complete or not, with which pip, and what it says when it cannot be made."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import make_venv
import pytest

SCRIPT = Path(make_venv.__file__)


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.txt"
    path.write_text("a==1\n", encoding="utf-8")
    return path


def stamped(venv: Path, requirements: Path) -> None:
    venv.mkdir()
    make_venv.write_stamp(str(venv), make_venv.inputs_id(str(venv), str(requirements)))


def complete(venv: Path, requirements: Path) -> bool:
    return bool(make_venv.is_complete(str(venv), make_venv.inputs_id(str(venv), str(requirements))))


def test_environment_without_stamp_is_not_complete(tmp_path: Path, requirements: Path) -> None:
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    assert not complete(tmp_path / "venv", requirements)


def test_damaged_stamp_is_not_complete(tmp_path: Path, requirements: Path) -> None:
    stamped(tmp_path / "venv", requirements)
    (tmp_path / "venv" / make_venv.STAMP).write_text('["half', encoding="utf-8")
    assert not complete(tmp_path / "venv", requirements)


def test_changed_requirements_make_it_incomplete(tmp_path: Path, requirements: Path) -> None:
    stamped(tmp_path / "venv", requirements)
    assert complete(tmp_path / "venv", requirements)
    requirements.write_text("a==2\n", encoding="utf-8")
    assert not complete(tmp_path / "venv", requirements)


def test_moved_or_copied_environment_is_not_complete(tmp_path: Path, requirements: Path) -> None:
    """Its scripts still start with the path it was made at."""
    stamped(tmp_path / "venv", requirements)
    shutil.copytree(tmp_path / "venv", tmp_path / "copy")
    assert not complete(tmp_path / "copy", requirements)
    assert complete(tmp_path / "venv", requirements)


def test_complete_environment_is_left_alone_without_a_word(
    tmp_path: Path, requirements: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stamped(tmp_path / "venv", requirements)
    monkeypatch.setattr(make_venv, "build", lambda *_: pytest.fail("built again"))
    assert make_venv.main([str(tmp_path / "venv"), str(requirements)]) == 0
    assert capsys.readouterr() == ("", "")


def test_failed_build_leaves_no_stamp(
    tmp_path: Path, requirements: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stamped(tmp_path / "venv", requirements)
    requirements.write_text("a==2\n", encoding="utf-8")
    monkeypatch.setattr(make_venv, "find_pip", lambda scratch: ["/no/such/pip"])
    assert make_venv.main([str(tmp_path / "venv"), str(requirements)]) == 1
    assert "pip install" in capsys.readouterr().err
    assert not (tmp_path / "venv" / make_venv.STAMP).exists()


def test_interrupt_ends_with_130_and_no_traceback(
    tmp_path: Path, requirements: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(make_venv, "build", interrupted)
    assert make_venv.main([str(tmp_path / "venv"), str(requirements)]) == 130
    assert "next run" in capsys.readouterr().err


def test_old_python_is_told_which_newer_one_is_here() -> None:
    message = make_venv.old_python_message((3, 9, 18), works=lambda name: name == "python3.12")
    assert "Python 3.9.18" in message
    assert "make PYTHON=python3.12" in message


def test_old_python_alone_is_told_to_install_one() -> None:
    assert "install Python 3.11" in make_venv.old_python_message((3, 9, 18), works=lambda name: False)


def test_stand_in_for_a_missing_python_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim = tmp_path / "python3.13"
    shim.write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not make_venv.works("python3.13")
    shim.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    assert make_venv.works("python3.13")


def test_python_without_ensurepip_takes_the_distributions_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_venv, "bundled_pip", lambda: None)
    monkeypatch.setattr(make_venv.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(make_venv, "debian_pip", lambda scratch: "/scratch/pip-23.whl")
    assert make_venv.find_pip(str(tmp_path)) == ["/scratch/pip-23.whl/pip"]


def test_no_pip_anywhere_names_the_package_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_venv, "bundled_pip", lambda: None)
    monkeypatch.setattr(make_venv.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(make_venv.shutil, "which", lambda name: None)
    with pytest.raises(make_venv.VenvError, match=r"apt-get install python3-venv"):
        make_venv.find_pip(str(tmp_path))


def test_script_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(SCRIPT), str(tmp_path / "venv"), str(tmp_path / "absent.txt")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "absent.txt" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 1


def test_uv_gets_the_index_that_pip_uses_unless_the_caller_set_uvs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = tmp_path / "pip"
    pip.write_text("#!/bin/sh\necho \"global.index-url='https://mirror.example/simple'\"\n", encoding="utf-8")
    pip.chmod(0o755)
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    env = make_venv.uv_environment([str(pip)])
    assert env["UV_DEFAULT_INDEX"] == "https://mirror.example/simple"
    assert env["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://own.example/simple")
    assert make_venv.uv_environment([str(pip)])["UV_DEFAULT_INDEX"] == "https://own.example/simple"


def test_command_of_the_checkout_runs_from_anywhere(tmp_path: Path) -> None:
    script = tmp_path / "a place" / "tokforge-rollout"
    script.parent.mkdir()
    make_venv.write_command(str(script), sys.executable)
    done = subprocess.run([script, "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "tokforge-rollout" in done.stdout and "rollback" in done.stdout
