# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role sglang_destroy: removes what rollouts made, and nothing where no rollout made anything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.tokforge.sglang.plugins.module_utils import environment_root

CHECKOUT = Path(__file__).resolve().parents[2]
ROLE = CHECKOUT / "roles/sglang_destroy"
OURS = ["releases", "venvs", "bin", "state", "log", "bench", "src"]
KEPT = ["models", "cache"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with everything in it that a rollout makes, but without the marker."""
    made = tmp_path / "root"
    for name in [*OURS, *KEPT]:
        (made / name).mkdir(parents=True)
        (made / name / "file").write_text("x")
    (made / "current").symlink_to("releases/1")
    (made / "facts").mkdir()
    (made / "facts/sglang.fact").write_text("{}")
    return made


def destroy(root: Path, *options: str, **variables: Any) -> tuple[int, str]:
    """Run the role; gives how many tasks changed something, and the output."""
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "tasks": [{"name": "Destroy", "ansible.builtin.include_role": {"name": "tokforge.sglang.sglang_destroy"}}],
    }
    path = root.parent / "play.yml"
    path.write_text(json.dumps([play]))
    extra = {"sglang_root": str(root), "ansible_python_interpreter": sys.executable, **variables}
    command = [sys.executable, "-m", "ansible", "playbook", "-i", "localhost,", "-e", json.dumps(extra), *options]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, cwd=CHECKOUT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.rsplit("changed=", 1)[1].split()[0]), done.stdout


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_directory_that_no_rollout_made_is_left_alone_and_that_is_said(root: Path) -> None:
    before = {path: path.lstat().st_mtime_ns for path in root.rglob("*")}
    changed, output = destroy(root, sglang_destroy_models=True, sglang_destroy_caches=True)
    assert changed == 0
    assert f"Nothing is removed: no rollout made {root}" in " ".join(output.split())
    assert {path: path.lstat().st_mtime_ns for path in root.rglob("*")} == before


def test_root_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    changed, output = destroy(tmp_path / "nothing")
    assert (changed, "Nothing is removed" in output) == (0, True)


def test_marker_stays_as_long_as_something_is_left_and_goes_with_the_root(root: Path) -> None:
    (root / environment_root.ROOT_MARKER).write_text("")
    changed, _output = destroy(root)
    assert changed > 0
    assert names(root) == [environment_root.ROOT_MARKER, "cache", "models"]
    assert destroy(root)[0] == 0
    environment_root.claim_root(str(root))  # what the next deploy does first
    assert destroy(root, sglang_destroy_models=True, sglang_destroy_caches=True)[0] > 0
    assert not root.exists()
    assert destroy(root)[0] == 0


def test_what_is_not_ours_keeps_the_root(root: Path) -> None:
    (root / environment_root.ROOT_MARKER).write_text("")
    (root / "precious").write_text("x")
    destroy(root, sglang_destroy_models=True, sglang_destroy_caches=True)
    assert names(root) == [environment_root.ROOT_MARKER, "precious"]


def test_check_mode_removes_nothing(root: Path) -> None:
    (root / environment_root.ROOT_MARKER).write_text("")
    before = names(root)
    changed, _output = destroy(root, "--check")
    assert (changed > 0, names(root)) == (True, before)


def test_role_and_module_mean_the_same_names() -> None:
    values = yaml.safe_load((ROLE / "vars/main.yml").read_text())
    assert values["__sglang_destroy_marker"] == environment_root.ROOT_MARKER
    assert sorted([*values["__sglang_destroy_always"], *KEPT]) == sorted(environment_root._NAMES)
