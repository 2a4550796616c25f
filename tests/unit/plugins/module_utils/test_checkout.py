# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which state of a source tree is meant."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import checkout
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError


def git(tree: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(tree), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A tree as SGLang's repository has it: the project in python/."""
    (tmp_path / "python" / "sglang").mkdir(parents=True)
    (tmp_path / "python" / "pyproject.toml").write_text("[project]\nname = 'sglang'\n")
    (tmp_path / "python" / "sglang" / "__init__.py").write_text("x = 1\n")
    return tmp_path


@pytest.fixture
def tree(plain: Path) -> Path:
    (plain / ".gitignore").write_text("*.so\n")
    git(plain, "init", "-q")
    git(plain, "add", ".")
    git(plain, "commit", "-q", "-m", "one")
    return plain


def test_project_is_the_python_directory_or_the_tree_itself(plain: Path) -> None:
    assert checkout.project_of(str(plain)) == str(plain / "python")
    assert checkout.project_of(str(plain / "python")) == str(plain / "python")
    with pytest.raises(InstallError, match=r"holds a pyproject\.toml"):
        checkout.project_of(str(plain / "python" / "sglang"))


def test_clean_tree_is_its_commit(tree: Path) -> None:
    head = git(tree, "rev-parse", "HEAD")
    assert checkout.state_of(str(tree)) == checkout.TreeState(head, None)
    assert checkout.state_of(str(tree), head) == checkout.TreeState(head, None)


def test_another_commit_than_the_pinned_one_is_refused_with_both(tree: Path) -> None:
    head = git(tree, "rev-parse", "HEAD")
    with pytest.raises(InstallError, match=f"commit {'0' * 40} was asked, {head} is checked out"):
        checkout.state_of(str(tree), "0" * 40)


@pytest.mark.parametrize("pin", ["main", "v0.5.23", "abc1234", "A" * 40])
def test_a_pin_must_be_a_full_commit(tree: Path, pin: str) -> None:
    with pytest.raises(InstallError, match="40 hexadecimal digits"):
        checkout.state_of(str(tree), pin)


def test_changed_tree_with_a_pin_is_refused_naming_the_files(tree: Path) -> None:
    head = git(tree, "rev-parse", "HEAD")
    (tree / "python" / "sglang" / "__init__.py").write_text("x = 2\n")
    with pytest.raises(InstallError, match=r"python/sglang/__init__\.py differ from it"):
        checkout.state_of(str(tree), head)


def test_every_change_of_a_tree_without_a_pin_is_another_state(tree: Path) -> None:
    module = tree / "python" / "sglang" / "__init__.py"
    states = [checkout.state_of(str(tree))]
    module.write_text("x = 2\n")
    states.append(checkout.state_of(str(tree)))
    module.write_text("x = 3\n")
    states.append(checkout.state_of(str(tree)))
    git(tree, "add", ".")  # staged or not is the same content
    assert checkout.state_of(str(tree)) == states[-1]
    (tree / "python" / "sglang" / "new.py").write_text("")
    states.append(checkout.state_of(str(tree)))
    module.unlink()
    states.append(checkout.state_of(str(tree)))
    assert len({state.changes for state in states}) == 5
    assert len({state.commit for state in states}) == 1


def test_what_a_build_writes_into_the_tree_is_no_change(tree: Path) -> None:
    before = checkout.state_of(str(tree))
    for name in ("sglang.egg-info/PKG-INFO", "sglang/_version.py", "build/lib/x.py", "sglang/kernel.so"):
        path = tree / "python" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("built\n")
    assert checkout.state_of(str(tree)) == before


def test_tree_without_git_is_its_sources(plain: Path) -> None:
    before = checkout.state_of(str(plain))
    assert before.commit is None
    assert before.changes
    (plain / "python" / "sglang" / "readme.md").write_text("no source\n")
    assert checkout.state_of(str(plain)) == before
    (plain / "python" / "sglang" / "__init__.py").write_text("x = 2\n")
    assert checkout.state_of(str(plain)) != before
    with pytest.raises(InstallError, match="it is no git checkout"):
        checkout.state_of(str(plain), "0" * 40)


def test_gits_own_complaint_is_passed_on(plain: Path) -> None:
    git(plain, "init", "-q")
    with pytest.raises(InstallError, match=r"git says .*HEAD"):
        checkout.state_of(str(plain))
