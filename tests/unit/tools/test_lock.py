# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes into a lock and what is refused."""

from __future__ import annotations

import ast
import stat
from pathlib import Path
from typing import Any

import lock
import pytest
import tomllib
from packaging.requirements import Requirement
from server_flags import Flag

LANE = {
    "machine": "x86_64",
    "torch": "2.13.0",
    "torch_requires": ["filelock"],
    "add": ["dill", "regex>=1"],
    "drop": ["flashinfer-python", "sglang-kernel"],
    "no_deps": ["torchvision==0.28.0", "timm"],
    "hash_exempt": ["torch"],
}
HASH = f"    --hash=sha256:{'0' * 64}"


def wheel(*requirements: str) -> lock.Wheel:
    """A wheel with these requirements."""
    return lock.Wheel("0.5.99", ">=3.11", lock.base_requirements(requirements), Path("nowhere"))


def test_cpu_lane_keeps_the_wheels_pins_without_gpu_parts_and_with_its_own_torch() -> None:
    asked = wheel(
        "numpy", "openai==2.8.0", "flashinfer_python[cu13]==0.7.2", "torch==2.14.1", "torchvision", "timm==1.0.25"
    )
    assert lock.cpu_requirements(asked, LANE) == ["dill", "numpy", "openai==2.8.0", "regex>=1", "torch==2.13.0"]


def test_wheels_own_requirement_wins_over_an_added_one() -> None:
    assert "regex<9" in lock.cpu_requirements(wheel("regex<9"), LANE)


def test_requirements_of_extras_are_left_out() -> None:
    found = lock.base_requirements(["a", 'b; extra == "x"', 'c; sys_platform == "linux"'])
    assert [requirement.name for requirement in found] == ["a", "c"]


def test_unreadable_requirement_is_an_error() -> None:
    with pytest.raises(lock.LockError, match="'a b'"):
        lock.base_requirements(["a b"])


def test_no_deps_file_takes_the_wheels_pin_where_none_is_given() -> None:
    assert lock.no_deps_requirements(wheel("timm==1.0.16"), LANE) == [
        "sglang==0.5.99", "torchvision==0.28.0", "timm==1.0.16",
    ]  # fmt: skip


def test_no_deps_distribution_without_any_pin_is_an_error() -> None:
    with pytest.raises(lock.LockError, match="does not pin timm"):
        lock.no_deps_requirements(wheel("timm"), LANE)


@pytest.mark.parametrize(
    ("requires", "floor"), [(">=3.11", "3.11"), (">=3.10,<4", "3.10"), (">3.9.5", "3.9"), ("~=3.12", "3.12")]
)
def test_python_floor_is_the_oldest_that_fits(requires: str, floor: str) -> None:
    assert lock.python_floor(requires) == floor


def test_markers_that_always_hold_go_and_python_splits_stay() -> None:
    text = (
        "z==1 ; python_full_version < '3.14' and platform_machine == 'x86_64' and sys_platform == 'linux' \\\n"
        "a==1 ; platform_machine == 'x86_64' and sys_platform == 'linux' \\\n"
        "b==1 ; python_full_version < '3.12' and platform_machine == 'x86_64' and sys_platform == 'linux' \\\n"
        "c==1 ; (python_full_version < '3.12' and platform_machine == 'x86_64' and sys_platform == 'linux') or "
        "(python_full_version == '3.13.*' and platform_machine == 'x86_64' and sys_platform == 'linux') \\\n"
    )
    assert lock.without_true_terms(text, lock.true_terms("x86_64", "3.14")) == (
        "z==1 \\\na==1 \\\nb==1 ; python_full_version < '3.12' \\\n"
        "c==1 ; (python_full_version < '3.12') or (python_full_version == '3.13.*') \\\n"
    )


def test_marker_of_another_platform_is_an_error() -> None:
    with pytest.raises(lock.LockError, match="platform marker is left"):
        lock.without_true_terms("a==1 ; sys_platform == 'win32' \\\n", lock.true_terms("x86_64", "3.14"))


def test_only_the_exempt_distribution_loses_its_hashes() -> None:
    text = f"torch==2.13.0 \\\n{HASH} \\\n{HASH}\ntorchaudio==1 \\\n{HASH}\n"
    assert lock.without_hashes(text, ["torch"]) == f"torch==2.13.0\ntorchaudio==1 \\\n{HASH}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--index-url https://example.org/simple\n", "address or a path"),
        ("--find-links /somewhere\n", "address or a path"),
        (f"a @ file:///x.whl \\\n{HASH}\n", "address or a path"),
        (f"a==1\nb==1 \\\n{HASH}\n", "no hash for a==1"),
        (f"nvidia-cublas==13 \\\n{HASH}\n", "nvidia-cublas need a GPU; add what asks for them to lanes.cpu.drop"),
        (f"sglang-kernel==1 \\\n{HASH}\n", "sglang-kernel need a GPU"),
    ],
)
def test_bad_lock_is_refused(text: str, message: str) -> None:
    with pytest.raises(lock.LockError) as raised:
        lock.check_lock("cpu-x.txt", text, cpu=True)
    assert message in str(raised.value)


def test_good_lock_passes_and_gpu_parts_are_fine_outside_the_cpu_lane() -> None:
    lock.check_lock("cpu-x.txt", f"torch==2\nsglang==1 \\\n{HASH}\n", cpu=True, hash_exempt=["torch"])
    lock.check_lock("cuda13-x.txt", f"nvidia-cublas==13 \\\n{HASH}\n", cpu=False)


def test_project_file_tells_uv_the_one_environment_and_what_torch_requires() -> None:
    metadata = [{"name": "torch", "version": "2.13.0", "requires-dist": ["filelock", "sympy>=1"]}]
    parsed = tomllib.loads(lock.project_file("3.11", lock.true_terms("x86_64", "3.14"), metadata))
    assert parsed["project"]["requires-python"] == ">=3.11"
    assert parsed["tool"]["uv"]["environments"] == [
        "sys_platform == 'linux' and platform_machine == 'x86_64' and python_full_version < '3.14'"
    ]
    assert parsed["tool"]["uv"]["dependency-metadata"] == metadata


def test_catalog_text_reads_back_equal_and_newest_first(tmp_path: Path) -> None:
    flags = {
        "b": {"takes_value": True, "choices": ["x" * 40, "y" * 40, "z" * 40, 'quote"']},
        "a": {"takes_value": False},
    }
    catalog: dict[str, Any] = {
        version: {"torch": None, "lanes": {"cpu": {"lock": "l.txt"}}, "flags": flags}
        for version in ("0.5.9", "0.5.12.post1", "0.5.12")
    }
    text = lock.catalog_text(catalog)
    path = tmp_path / "catalog.py"
    path.write_text(text)
    assert lock.read_catalog(path) == catalog
    assert list(lock.read_catalog(path)) == ["0.5.12.post1", "0.5.12", "0.5.9"]
    assert max(len(line) for line in text.splitlines()) <= lock.LINE_LENGTH
    ast.parse(text)


# --- a whole run, with a uv and a wheel of our own -------------------------------------------------------------------

FAKE_UV = """#!/bin/sh
# Answers every request with its own pins: what was asked, each with a hash.
while [ $# -gt 0 ]; do [ "$1" = --output-file ] && out=$2; shift; done
[ -n "$FAKE_UV_FAILS" ] && { echo 'no version of nothing' >&2; exit 1; }
sed -E "s/^([A-Za-z0-9._-]+)(\\[[^]]*\\])?([=<>!~].*)?$/\\1==1.0/" requirements.in | while read -r line; do
  printf '%s \\\\\\n    --hash=sha256:%064d\\n' "$line" 0
done > "$out"
[ "$(head -c 6 requirements.in)" = sglang ] && printf 'torch==2.14 \\\\\\n    --hash=sha256:%064d\\n' 0 >> "$out"
exit 0
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one listed release, whose wheel needs no index."""
    (tmp_path / "locks.toml").write_text((lock.REPOSITORY / "locks.toml").read_text())
    uv = tmp_path / "uv"
    uv.write_text(FAKE_UV)
    uv.chmod(uv.stat().st_mode | stat.S_IXUSR)
    (tmp_path / lock.CATALOG).parent.mkdir(parents=True)

    def fetch(version: str, work: Path, below: str) -> lock.Wheel:
        return lock.Wheel(version, ">=3.11", (Requirement("timm==1.0"), Requirement("numpy")), work)

    monkeypatch.setattr(lock, "fetch_wheel", fetch)
    monkeypatch.setattr(
        lock, "read_flags", lambda sources: {"moe-runner-backend": Flag("moe-runner-backend", choices=("auto",))}
    )
    return tmp_path


def run(root: Path, *args: str) -> int:
    """`tools/lock.py` on this repository."""
    return lock.main([*args, "--root", str(root), "--uv", str(root / "uv")])


def lock_files(root: Path) -> set[str]:
    """The names of the lock files that are there."""
    return {path.name for path in (root / lock.LOCKS).glob("*")}


def test_one_run_writes_all_locks_and_the_catalog_and_a_second_changes_nothing(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(root) == 0
    releases = ("0.5.23", "0.5.12.post1", "0.5.10.post1")
    assert lock_files(root) == {
        "tools.txt", *(f"{name}-{version}.txt" for version in releases[:2] for name in ("cpu", "cuda13")),
        *(f"cpu-{version}-nodeps.txt" for version in releases[:2]), "cuda12-0.5.10.post1.txt",
    }  # fmt: skip
    assert "torch==1.0\n" in (root / lock.LOCKS / "cpu-0.5.23.txt").read_text()
    assert (root / lock.ROUTER_LOCK).is_file()
    assert list(lock.read_catalog(root / lock.CATALOG)) == list(releases)
    capsys.readouterr()
    assert run(root) == 0
    assert "changed" not in capsys.readouterr().out


def test_a_new_release_is_one_more_line(root: Path) -> None:
    assert run(root) == 0
    listing = root / "locks.toml"
    listing.write_text(listing.read_text().replace("[releases]\n", '[releases]\n"0.5.99" = {}\n'))
    assert run(root, "0.5.99") == 0
    assert list(lock.read_catalog(root / lock.CATALOG)) == ["0.5.99", "0.5.23", "0.5.12.post1", "0.5.10.post1"]
    assert {"cpu-0.5.99.txt", "cpu-0.5.99-nodeps.txt", "cuda13-0.5.99.txt"} <= lock_files(root)


def test_release_that_is_no_longer_listed_loses_its_files(root: Path) -> None:
    assert run(root) == 0
    listing = root / "locks.toml"
    listing.write_text(listing.read_text().replace('"0.5.12.post1" = { lanes = ["cuda13", "cpu"] }\n', ""))
    assert run(root) == 0
    assert not [name for name in lock_files(root) if "0.5.12" in name]
    assert list(lock.read_catalog(root / lock.CATALOG)) == ["0.5.23", "0.5.10.post1"]


def test_unlisted_release_is_refused_with_the_line_to_write(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "0.5.99") == 1
    assert 'write "0.5.99" = {} below [releases]' in capsys.readouterr().err


def test_failing_resolution_writes_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_UV_FAILS", "1")
    assert run(root) == 1
    assert "uv says: no version of nothing" in capsys.readouterr().err
    assert lock_files(root) == set() and not (root / lock.CATALOG).exists()


def test_release_can_leave_a_lane_out_and_change_a_lane_fact(root: Path) -> None:
    listing = root / "locks.toml"
    listing.write_text(
        listing.read_text().replace('"0.5.23" = { lanes = ["cuda13", "cpu"] }', '"0.5.23" = { lanes = ["cuda13"] }')
    )
    assert run(root) == 0
    assert list(lock.read_catalog(root / lock.CATALOG)["0.5.23"]["lanes"]) == ["cuda13"]
    assert "cpu-0.5.23.txt" not in lock_files(root)
