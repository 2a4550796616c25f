# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of an SGLang that is no locked release: where its sources are found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import release_source, releases, server_args

SOURCE = """
class ServerArgs:
    def add_cli_args(parser):
        parser.add_argument("--tensor-parallel-size", "--tp-size", type=int)
        parser.add_argument("--other", choices=made())
"""


def package(site: Path, version: str | None = None) -> Path:
    """A `sglang` with two flags below `site`."""
    srt = site / "sglang" / "srt"
    srt.mkdir(parents=True)
    (srt / "server_args.py").write_text(SOURCE)
    if version:
        (site / "sglang" / "version.py").write_text(f'__version__ = "{version}"\n')
    return site


@pytest.mark.parametrize("given", ["", "sglang", "sglang/srt/server_args.py"])
def test_package_is_found_from_each_place_in_it(tmp_path: Path, given: str) -> None:
    found = release_source.read(str(package(tmp_path, "0.5.17") / given))
    assert (found.release.version, found.path) == ("0.5.17", f"{tmp_path}/sglang/srt/server_args.py")
    assert set(found.release.flags) == {"tensor-parallel-size", "other"}
    assert found.release.flag("tp_size") is found.release.flags["tensor-parallel-size"]
    [unread] = found.unread
    assert unread.startswith("the choices of --other: reading server_args.py: made is defined nowhere")


def test_checkout_without_a_version_is_newer_than_all(tmp_path: Path) -> None:
    package(tmp_path / "python")
    found = release_source.read(str(tmp_path))
    assert found.release.version == release_source.UNKNOWN
    [problem] = server_args.check({"nsa-prefill-backend": "x"}, found.release)
    assert "is no argument of SGLang unknown; 0.5.19 was the last release with it" in problem.message


def test_environments_site_packages_are_found_without_running_its_python(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    package(site, "0.5.20")
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    assert release_source.read(str(tmp_path)).release.version == "0.5.20"


def test_environment_with_an_editable_install_is_asked(tmp_path: Path) -> None:
    package(tmp_path / "checkout", "0.5.21")
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    answer = f'{{"places": ["{tmp_path}/checkout/sglang"], "version": null, "python": "3.12.1"}}'
    python.write_text(f"#!/bin/sh\necho '{answer}'\n")
    python.chmod(0o755)
    for given in (tmp_path / "env", python):
        assert release_source.read(str(given)).release.version == "0.5.21"


def test_interpreter_without_sglang_is_refused_with_the_reason() -> None:
    with pytest.raises(releases.ReleaseError, match=r"reading the flags of SGLang from .*python.*: .*not installed"):
        release_source.read(sys.executable)


@pytest.mark.parametrize(
    ("made", "given", "said"),
    [
        (None, "none", "it is no directory"),
        (None, "", "it holds none of sglang/srt"),
        ("server_args.py", "server_args.py", "not in its place, sglang/srt/server_args.py"),
        ("srt/x.py", "", "is not in a package called sglang, or has no server_args.py"),
        ("sglang/srt/x.py", "", "is not in a package called sglang, or has no server_args.py"),
        ("sglang/srt/server_args.py", "", "ServerArgs is defined nowhere"),
    ],
)
def test_place_without_sglang_is_refused_with_the_reason(
    tmp_path: Path, made: str | None, given: str, said: str
) -> None:
    if made is not None:
        (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / made).write_text("x = 1\n")
    with pytest.raises(releases.ReleaseError) as raised:
        release_source.read(str(tmp_path / given))
    assert said in str(raised.value) and str(tmp_path) in str(raised.value)
    assert raised.value.facts == {"source": str(tmp_path / given)}
