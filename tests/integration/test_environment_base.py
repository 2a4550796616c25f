# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Environments on top of another Python's packages: real installs with real uv, of tiny wheels. No network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from wheels import make_wheel

from ansible_collections.tokforge.sglang.plugins.module_utils import environment, package_skew, site_packages
from ansible_collections.tokforge.sglang.plugins.module_utils.base_packages import Base
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_request import Request, Source
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError

UV = shutil.which("uv", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]))
pytestmark = pytest.mark.skipif(UV is None, reason="uv is not installed beside this Python nor on PATH")
TORCH = {"torch/__init__.py": "WHOSE = 'base'\n", "torch/version.py": "__version__ = '2.11.0+cu130'\ncuda = '13.0'\n"}


@pytest.fixture
def base_python(tmp_path: Path) -> str:
    """A Python with a torch, a helper that is not the locked one, and an older SGLang."""
    place, wheels = tmp_path / "image", tmp_path / "image-wheels"
    lock = make_wheel(wheels, "torch", "2.11.0+cu130", files=TORCH)
    lock += make_wheel(wheels, "helper", "0.9", files={"helper.py": "WHOSE = 'base'\n"})
    lock += make_wheel(wheels, "sglang", "0.5.9", files={"sglang/__init__.py": "WHOSE = 'base'\n"})
    (tmp_path / "image.txt").write_text(lock)
    subprocess.run([str(UV), "venv", "-q", "--python", sys.executable, str(place)], check=True)
    command = [str(UV), "pip", "install", "-q", "--python", f"{place}/bin/python", "--no-index", "--find-links"]
    subprocess.run([*command, str(wheels), "-r", str(tmp_path / "image.txt")], check=True)
    return f"{place}/bin/python"


@pytest.fixture
def request_(tmp_path: Path, base_python: str) -> Request:
    """SGLang on a torch that no wheelhouse has, with a helper and something that nobody has."""
    wheels = tmp_path / "wheels"
    lock = make_wheel(
        wheels, "sglang", "0.5.12.post1", requires=("torch==2.11.0",), files={"sglang/__init__.py": "WHOSE = 'own'\n"}
    )
    lock += make_wheel(wheels, "helper", "1.0", files={"helper.py": "WHOSE = 'own'\n"})
    nothing = "0" * 64
    lock += f"torch==2.11.0 --hash=sha256:{nothing}\nnowhere==3.0 --hash=sha256:{nothing}\n"
    return Request(
        root=str(tmp_path / "root"),
        kind="sglang",
        lock=lock,
        uv=UV,
        uv_cache=str(tmp_path / "uv-cache"),
        source=Source("wheelhouse", str(wheels)),
        expect={"sglang": "0.5.12.post1"},
        torch_build="cuda13",
        base=Base(base_python, leave_out=("nowhere",)),
    )


def whose(outcome: environment.Outcome, module: str) -> str:
    code = f"import {module}; print({module}.WHOSE)"
    return subprocess.run([outcome.python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_torch_comes_from_the_base_and_sglang_does_not(request_: Request) -> None:
    predicted = environment.ensure(request_, check_mode=True)
    outcome = environment.ensure(request_)
    again = environment.ensure(request_)

    assert (predicted.changed, predicted.id) == (True, outcome.id)
    assert (outcome.changed, again.changed) == (True, False)
    assert (whose(outcome, "torch"), whose(outcome, "helper"), whose(outcome, "sglang")) == ("base", "base", "own")
    assert outcome.facts["versions"] == {"helper": "0.9", "sglang": "0.5.12.post1", "torch": "2.11.0+cu130"}
    assert outcome.facts["torch"] == {"version": "2.11.0+cu130", "cuda": "13.0", "sha256": None}
    assert outcome.facts["base"]["taken"] == {"helper": "0.9", "torch": "2.11.0+cu130"}
    assert outcome.facts["unlocked"] == {}
    assert [line.split(":")[0].split(" of the base")[0] for line in outcome.warnings] == [
        "1 distributions",
        "left out, though the release asks for them",
    ]


def test_a_reinstalled_one_hides_the_bases_and_is_another_environment(request_: Request) -> None:
    first = environment.ensure(request_)
    base = replace(request_.base or Base(""), reinstall=("helper",))
    second = environment.ensure(replace(request_, base=base))

    assert first.id != second.id
    assert (whose(first, "helper"), whose(second, "helper")) == ("base", "own")
    assert second.facts["versions"]["helper"] == "1.0"
    assert json.loads(Path(second.path, "environment.json").read_text())["base"]["differing"] == {}


def test_another_version_in_the_base_is_another_environment(request_: Request, tmp_path: Path) -> None:
    first = environment.ensure(request_)
    make_wheel(tmp_path / "newer", "helper", "0.9.5", files={"helper.py": "WHOSE = 'newer'\n"})
    command = [str(UV), "pip", "install", "-q", "--python", str(request_.base and request_.base.python), "--no-index"]
    subprocess.run([*command, "--find-links", str(tmp_path / "newer"), "helper==0.9.5"], check=True)

    second = environment.ensure(request_)

    assert (second.changed, second.id != first.id) == (True, True)
    assert second.facts["base"]["taken"]["helper"] == "0.9.5"


def test_what_nobody_has_and_is_not_left_out_fails_and_leaves_nothing(request_: Request) -> None:
    with pytest.raises(InstallError) as caught:
        environment.ensure(replace(request_, base=replace(request_.base or Base(""), leave_out=())))
    wheels = request_.source.path
    assert str(caught.value) == (
        f"installing from the wheelhouse {wheels}: 1 of 2 locked distributions are not in it: nowhere 3.0; add their "
        "wheels, or name them in leave_out of the base"
    )
    assert not Path(request_.root).exists()


def test_pip_cannot_install_on_top(request_: Request) -> None:
    with pytest.raises(InstallError, match="only uv installs on top of another Python's packages"):
        environment.ensure(replace(request_, installer="pip"))


def test_checks_of_an_environment_see_what_is_below_it(request_: Request) -> None:
    outcome = environment.ensure(request_)

    packages = package_skew.look(outcome.path)

    assert packages is not None
    assert packages.versions == {"helper": "0.9", "sglang": "0.5.12.post1", "torch": "2.11.0+cu130"}
    assert packages.duplicates == {}
    assert packages.torch_cuda == "13.0"
    assert packages.left_out == ("nowhere",)
    assert len(site_packages.places(outcome.path)) == 2
