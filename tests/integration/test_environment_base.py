# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Environments on top of another Python's packages: real installs with real uv, of tiny wheels. No network."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from wheel_requests import UV, from_wheels
from wheels import make_wheel

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    checkout,
    environment,
    package_skew,
    site_packages,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.base_packages import Base
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_build import Builder
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_request import Request, Source
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError

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
    return from_wheels(
        tmp_path, lock, "0.5.12.post1", torch_build="cuda13", base=Base(base_python, leave_out=("nowhere",))
    )


def add(request: Request, name: str, version: str, files: dict[str, str], wheels: Path) -> str:
    """Install something into the base; gives its line in a lock."""
    line = make_wheel(wheels, name, version, files=files)
    command = [str(UV), "pip", "install", "-q", "--python", str(request.base and request.base.python), "--no-index"]
    subprocess.run([*command, "--no-deps", "--find-links", str(wheels), f"{name}=={version}"], check=True)
    return line


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
        # pytest's own directory is closed to others.
        next(line for line in outcome.warnings if line.startswith("others may not use /")).split(":")[0],
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


def test_what_needs_a_path_file_in_the_base_is_found_as_there(request_: Request, tmp_path: Path) -> None:
    """As nvidia-cutlass-dsl, and as everything that is installed in place."""
    files = {"far.pth": "far_away/packages\n", "far_away/packages/far.py": "WHOSE = 'base'\n"}
    line = add(request_, "far", "1.0", files, tmp_path / "more")

    outcome = environment.ensure(replace(request_, lock=request_.lock + line))

    assert outcome.facts["base"]["taken"]["far"] == "1.0"
    assert (whose(outcome, "far"), whose(outcome, "sglang")) == ("base", "own")
    assert len(site_packages.places(outcome.path)) == 2


def test_a_lock_of_which_the_base_has_all_leaves_the_second_one(request_: Request) -> None:
    lines = request_.lock.splitlines(keepends=True)
    first = "".join(line for line in lines if not line.startswith("sglang=="))
    second = "".join(line for line in lines if line.startswith("sglang=="))

    outcome = environment.ensure(replace(request_, lock=first, lock_no_deps=second))

    assert outcome.facts["versions"] == {"helper": "0.9", "sglang": "0.5.12.post1", "torch": "2.11.0+cu130"}
    assert environment.ensure(replace(request_, lock=first, lock_no_deps=second)).changed is False


def test_the_bases_kernels_under_their_old_name_are_hidden_by_the_environments_own(
    request_: Request, tmp_path: Path
) -> None:
    add(request_, "sgl_kernel", "0.3.1", {"sgl_kernel/__init__.py": "WHOSE = 'base'\n"}, tmp_path / "more")
    own = make_wheel(tmp_path / "wheels", "sglang_kernel", "0.4.2", files={"sgl_kernel/__init__.py": "WHOSE = 'own'\n"})

    outcome = environment.ensure(replace(request_, lock=request_.lock + own))
    packages = package_skew.look(outcome.path)

    assert whose(outcome, "sgl_kernel") == "own"
    assert packages is not None
    assert "sgl-kernel" not in packages.versions
    assert [one.level for one in package_skew.check(packages, package_skew.Request(13))] == ["ok"]


def test_a_base_that_was_changed_or_removed_is_told_of(request_: Request, tmp_path: Path) -> None:
    outcome = environment.ensure(request_)
    before = package_skew.look(outcome.path)
    add(request_, "torch", "2.12.0+cu130", TORCH, tmp_path / "more")

    after = package_skew.look(outcome.path)
    assert before is not None
    assert after is not None
    assert (before.changed, after.changed) == ({}, {"torch": ("2.11.0+cu130", "2.12.0+cu130")})
    [finding] = package_skew.check(after, package_skew.Request(13))
    assert (finding.level, finding.message) == (
        "warn",
        f"the Python below {outcome.path} was changed after the environment was made: torch was 2.11.0+cu130 and is "
        "2.12.0+cu130",
    )
    with pytest.raises(InstallError, match=r"it has 2\.12\.0\+cu130 and the release needs 2\.11\.0"):
        environment.ensure(request_)

    python = Path(request_.base.python if request_.base else "")
    shutil.rmtree(python.parents[1])
    gone = package_skew.look(outcome.path)
    assert gone is not None
    assert gone.changed == {"helper": ("0.9", ""), "torch": ("2.11.0+cu130", "")}
    with pytest.raises(InstallError) as caught:
        environment.ensure(request_)
    assert str(caught.value) == (
        f"looking at the base {python}: not there or not executable; bring it back, or give the Python that has the "
        "packages as python of sglang_install_base"
    )


def test_a_base_with_a_damaged_distribution_is_used_without_it(request_: Request) -> None:
    base = Path(request_.base.python if request_.base else "").parents[1]
    for name, content in (("garbage", b"Name: \xff\xfe\nVersion: 1\n"), ("empty", b""), ("bare", b"Name: bare\n")):
        info = Path(site_packages.find(str(base)), f"{name}-1.0.dist-info")
        info.mkdir()
        (info / "METADATA").write_bytes(content)

    outcome = environment.ensure(request_)

    assert outcome.facts["base"]["taken"] == {"helper": "0.9", "torch": "2.11.0+cu130"}


@pytest.mark.parametrize("bases_own", [True, False])
def test_a_source_tree_is_not_hidden_by_the_bases_sglang(
    request_: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bases_own: bool
) -> None:
    """setuptools lets a tree of SGLang's layout be found by a finder, which Python asks after all directories."""
    project = tmp_path / "tree"
    (project / "sglang" / "srt").mkdir(parents=True)
    (project / "sglang" / "__init__.py").write_text("WHOSE = 'tree'\n")
    (project / "pyproject.toml").write_text("[project]\nname = 'sglang'\nversion = '0.5.12.post1'\n")
    finder = f"""\
import sys
from importlib.util import spec_from_file_location
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        place = {str(project / "sglang")!r}
        if name == "sglang":
            return spec_from_file_location(name, place + "/__init__.py", submodule_search_locations=[place])
sys.meta_path.append(Finder)
"""
    site = Path(site_packages.find(str(Path(request_.base.python if request_.base else "").parents[1])))
    if bases_own:
        (site / "sglang" / "srt").mkdir()
    else:
        shutil.rmtree(site / "sglang")
        shutil.rmtree(site / "sglang-0.5.9.dist-info")

    def install(builder: Builder) -> None:
        own = Path(site_packages.find(builder.path))
        shutil.rmtree(own / "sglang")
        (own / "editable_finder.py").write_text(finder)
        (own / "__editable__.sglang.pth").write_text("import editable_finder\n")
        text = json.dumps({"url": project.as_uri(), "dir_info": {"editable": True}})
        (own / "sglang-0.5.12.post1.dist-info" / "direct_url.json").write_text(text)

    monkeypatch.setattr(Builder, "install_checkout", install)
    monkeypatch.setattr(checkout, "state_of", lambda *_given: checkout.TreeState(None, None))
    source = Source("checkout", str(project), version="0.5.12.post1")
    wheels = str(request_.source.path)
    lock = request_.lock.replace("nowhere==3.0 --hash=sha256:" + "0" * 64 + "\n", "")
    base = replace(request_.base or Base(""), leave_out=())
    asked = replace(request_, source=source, lock=lock, base=base, inherit_pip=False, find_links=(wheels,))

    if bases_own:
        with pytest.raises(InstallError, match=f"the base's own SGLang in {site}/sglang/srt comes before it"):
            environment.ensure(asked)
        assert not list(Path(request_.root).glob("venvs/*/environment.json"))
    else:
        assert whose(environment.ensure(asked), "sglang") == "tree"
