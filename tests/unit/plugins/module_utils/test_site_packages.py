# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading site-packages without importing anything, and laying files over it."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import site_packages
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.site_packages import OverlayFile, Torch


def add_distribution(site: Path, name: str, version: str, direct_url: object = None) -> None:
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\nTag: cp311-abi3-linux_x86_64\n")
    if direct_url is not None:
        (info / "direct_url.json").write_text(json.dumps(direct_url))


def write_torch(site: Path, text: str) -> None:
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "version.py").write_text(text)


def test_versions_are_by_canonical_name(tmp_path: Path) -> None:
    add_distribution(tmp_path, "Flashinfer.Python", "0.7.2")
    add_distribution(tmp_path, "torch", "2.13.0+cpu")
    assert site_packages.versions_of(str(tmp_path)) == {"flashinfer-python": "0.7.2", "torch": "2.13.0+cpu"}
    assert site_packages.wheel_tags(str(tmp_path), "flashinfer-python") == {
        "cp311-cp311-linux_x86_64",
        "cp311-abi3-linux_x86_64",
    }
    assert site_packages.wheel_tags(str(tmp_path), "absent") == set()


def test_only_an_editable_install_counts_as_in_place(tmp_path: Path) -> None:
    add_distribution(tmp_path, "sglang", "1", {"url": "file:///src", "dir_info": {"editable": True}})
    add_distribution(tmp_path, "copied", "1", {"url": "file:///src", "dir_info": {}})
    add_distribution(tmp_path, "wheel", "1", {"url": "file:///w.whl", "archive_info": {}})
    add_distribution(tmp_path, "plain", "1")
    assert site_packages.editable(str(tmp_path)) == {"sglang"}


@pytest.mark.parametrize(
    ("text", "torch"),
    [
        (
            "from typing import Optional\n__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n",
            Torch("2.13.0+cpu", None),
        ),
        ("__version__ = '2.14.1+cu130'\ncuda = '13.0'\nhip = None\n", Torch("2.14.1+cu130", "13.0")),
    ],
)
def test_torch_says_its_build_in_both_forms(tmp_path: Path, text: str, torch: Torch) -> None:
    write_torch(tmp_path, text)
    assert site_packages.read_torch(str(tmp_path)) == torch


def test_no_torch_is_none(tmp_path: Path) -> None:
    assert site_packages.read_torch(str(tmp_path)) is None


@pytest.mark.parametrize("text", ["__version__ = '2'\n", "cuda = None\n", "def (", "__version__ = f()\ncuda = None\n"])
def test_a_torch_that_does_not_say_its_build_is_an_error_and_no_cpu_build(tmp_path: Path, text: str) -> None:
    write_torch(tmp_path, text)
    with pytest.raises(InstallError, match=r"torch/version\.py"):
        site_packages.read_torch(str(tmp_path))


def test_files_that_two_distributions_write_differently_are_reported(tmp_path: Path) -> None:
    rows = {
        "libs-base": "dsl/a.py,sha256=1,9\ndsl/same.py,sha256=5,9\ndsl/./b.py,sha256=2,9\nlibs/RECORD,,\n",
        "libs-cu13": "dsl/a.py,sha256=3,9\ndsl/same.py,sha256=5,9\ndsl/b.py,sha256=4,9\nlibs/RECORD,,\n",
        "other": 'dsl/"c".py,sha256=9,9\n',
    }
    for name, record in rows.items():
        add_distribution(tmp_path, name, "4.5.0")
        (tmp_path / f"{name.replace('-', '_')}-4.5.0.dist-info" / "RECORD").write_text(record)
    assert site_packages.collisions(str(tmp_path)) == [
        "libs-base 4.5.0 and libs-cu13 4.5.0 write 2 files with different content, such as dsl/a.py; "
        "the one installed last wins"
    ]


def test_find_wants_exactly_one_site_packages(tmp_path: Path) -> None:
    (tmp_path / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    assert site_packages.find(str(tmp_path)) == str(tmp_path / "lib" / "python3.11" / "site-packages")
    (tmp_path / "lib" / "python3.12").mkdir()
    with pytest.raises(InstallError, match="looking for site-packages"):
        site_packages.find(str(tmp_path))


def overlay_directory(tmp_path: Path) -> Path:
    source = tmp_path / "overlay"
    (source / "pkg" / "__pycache__").mkdir(parents=True)
    (source / "pkg" / "__init__.py").write_text("standin\n")
    (source / "pkg" / "__pycache__" / "__init__.cpython-311.pyc").write_bytes(b"x")
    (source / "tool").write_text("#!/bin/sh\n")
    (source / "tool").chmod(0o755)
    return source


def test_an_overlay_is_the_same_as_directory_and_as_archive(tmp_path: Path) -> None:
    source = overlay_directory(tmp_path)
    with tarfile.open(tmp_path / "overlay.tar", "w") as archive:
        archive.add(source, arcname=".")
    expected = {"pkg/__init__.py": OverlayFile(b"standin\n"), "tool": OverlayFile(b"#!/bin/sh\n", executable=True)}
    assert site_packages.read_overlay(str(source)) == expected
    assert site_packages.read_overlay(str(tmp_path / "overlay.tar")) == expected


def test_overlay_digest_sees_names_contents_and_modes() -> None:
    overlays = [
        {"a": OverlayFile(b"1")},
        {"b": OverlayFile(b"1")},
        {"a": OverlayFile(b"2")},
        {"a": OverlayFile(b"1", True)},
    ]
    assert len({site_packages.overlay_digest(overlay) for overlay in overlays}) == 4
    both = {"a": OverlayFile(b"1"), "b": OverlayFile(b"2")}
    assert site_packages.overlay_digest(both) == site_packages.overlay_digest(dict(reversed(both.items())))


def test_an_overlay_cannot_leave_site_packages(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.add(__file__, arcname="../evil.py")
    with pytest.raises(InstallError, match=r"\.\./evil\.py leaves the directory"):
        site_packages.read_overlay(str(tmp_path / "evil.tar"))


def test_an_overlay_that_is_empty_or_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match="it holds no file"):
        site_packages.read_overlay(str(tmp_path))
    with pytest.raises(InstallError, match="No such file"):
        site_packages.read_overlay(str(tmp_path / "absent"))


def test_overlay_replaces_hard_links_and_symbolic_links_and_never_writes_through_them(tmp_path: Path) -> None:
    cache, site = tmp_path / "cache", tmp_path / "site"
    (site / "pkg").mkdir(parents=True)
    cache.mkdir()
    for name in ("hard", "symbolic"):
        (cache / name).write_text("cached\n")
    os.link(cache / "hard", site / "pkg" / "hard")
    (site / "pkg" / "symbolic").symlink_to(cache / "symbolic")
    overlay = {name: OverlayFile(b"new\n") for name in ("pkg/hard", "pkg/symbolic", "deep/er/fresh")}
    assert site_packages.apply_overlay(overlay, str(site)) == ["pkg/hard", "pkg/symbolic"]
    assert [(cache / name).read_text() for name in ("hard", "symbolic")] == ["cached\n", "cached\n"]
    assert [(site / name).read_text() for name in overlay] == ["new\n"] * 3
    assert not (site / "pkg" / "symbolic").is_symlink()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"dir_info": 1}', '{"dir_info": {"editable": "no"}}', "[" * 100_000]
)
def test_damaged_direct_url_is_no_install_in_place(tmp_path: Path, text: str) -> None:
    info = tmp_path / "a-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a\nVersion: 1\n")
    (info / "direct_url.json").write_text(text)
    assert site_packages.editable(str(tmp_path)) == set()


def test_distribution_without_a_version_counts_as_not_installed(tmp_path: Path) -> None:
    info = tmp_path / "a-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a\n")
    assert site_packages.versions_of(str(tmp_path)) == {}


def test_torch_that_says_cuda_as_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.13.0'\ncuda = 13.0\n")
    with pytest.raises(InstallError, match="it does not say __version__ and cuda"):
        site_packages.read_torch(str(tmp_path))
