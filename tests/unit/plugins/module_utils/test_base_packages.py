# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dividing a lock between another Python's packages and the installer."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import base_packages, interpreters, site_packages
from ansible_collections.tokforge.sglang.plugins.module_utils.base_packages import Base, Found, Share, Under
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.interpreters import Interpreter

PYTHON = Interpreter("/opt/torch/bin/python", "3.12.3", "cpython", "", "linux-x86_64", True)
LOCK = re.sub(
    r"sha256:(\w\w)",
    lambda match: "sha256:" + match[1] * 32,
    """\
sglang==0.5.12.post1 --hash=sha256:aa
flashinfer-python==0.6.11.post1 --hash=sha256:ab
torch==2.11.0 --hash=sha256:bb
numpy==2.5.5 --hash=sha256:cc
tokenizers==0.22.2 --hash=sha256:dd
outlines==0.1.11 --hash=sha256:ee
tomli==2.5.0 ; python_full_version < '3.11' --hash=sha256:ff
""",
)
THERE = {"sglang": "0.5.9", "flashinfer-python": "0.6.3", "torch": "2.11.0+cu130", "numpy": "2.4.1", "jax": "0.7.0"}


def names(lock: str | None) -> list[str]:
    return [line.split("==")[0] for line in (lock or "").splitlines()]


def test_what_the_base_has_is_taken_and_the_rest_is_installed_as_locked() -> None:
    base = Base("python3", leave_out=("outlines",))

    shared = base_packages.share((LOCK, None), base, THERE)

    assert names(shared.installed[0]) == ["sglang", "flashinfer-python", "tokenizers", "tomli"]
    assert f"sglang==0.5.12.post1 --hash=sha256:{'aa' * 32}\n" in (shared.installed[0] or "")
    assert f"tomli==2.5.0 ; python_full_version < '3.11' --hash=sha256:{'ff' * 32}\n" in (shared.installed[0] or "")
    assert shared.installed[1] is None
    assert shared.taken == {"torch": "2.11.0+cu130", "numpy": "2.4.1"}
    assert shared.differing == {"numpy": ("2.4.1", "2.5.5")}
    assert shared.left_out == ("outlines",)


def test_reinstalled_ones_are_not_taken_and_names_are_compared_as_indexes_do() -> None:
    shared = base_packages.share((LOCK, None), Base("python3", reinstall=("NumPy", "Tokenizers")), THERE)

    assert "numpy" in names(shared.installed[0])
    assert "tokenizers" in names(shared.installed[0])
    assert list(shared.taken) == ["torch"]


def test_the_second_lock_is_divided_too_and_may_come_wholly_from_the_base() -> None:
    second = f"torchvision==0.26.0 --hash=sha256:{'01' * 32}\n"

    shared = base_packages.share((LOCK, second), Base("python3"), {**THERE, "torchvision": "0.26.0"})

    assert shared.installed[1] is None
    assert shared.taken["torchvision"] == "0.26.0"
    assert base_packages.share((LOCK, second), Base("python3"), THERE).installed[1] == second


def test_a_left_out_one_that_the_base_has_is_taken() -> None:
    shared = base_packages.share((LOCK, None), Base("python3", leave_out=("numpy",)), THERE)

    assert shared.taken["numpy"] == "2.4.1"
    assert shared.left_out == ()


def test_a_pin_for_several_pythons_fits_when_one_of_its_versions_does() -> None:
    lock = LOCK + "numpy==2.4.1 ; python_version < '3.13' --hash=sha256:0c\n"

    assert base_packages.share((lock, None), Base("python3"), THERE).differing == {}
    differing = base_packages.share((lock, None), Base("python3"), {"numpy": "1.0"}).differing
    assert differing == {"numpy": ("1.0", "2.5.5 or 2.4.1")}


@pytest.mark.parametrize(
    ("base", "words"),
    [
        (Base("p", reinstall=("tokenizer",)), "the lock has no tokenizer; reinstall and leave_out name"),
        (Base("p", leave_out=("outline",)), "the lock has no outline; reinstall and leave_out name"),
        (Base("p", reinstall=("outlines",), leave_out=("Outlines",)), "outlines is in reinstall and in leave_out"),
        (Base("p", leave_out=("SGLang", "flashinfer_python")), "flashinfer-python, sglang cannot be left out"),
    ],
)
def test_names_that_mean_nothing_are_refused(base: Base, words: str) -> None:
    with pytest.raises(InstallError) as caught:
        base_packages.share((LOCK, None), base, THERE)
    assert words in str(caught.value)


def test_another_torch_is_refused_with_both_versions_and_a_way_out() -> None:
    with pytest.raises(InstallError) as caught:
        base_packages.share((LOCK, None), Base("/opt/t/python"), {"torch": "2.9.1+cu128"})
    text = str(caught.value)
    assert "taking torch from the base /opt/t/python: it has 2.9.1+cu128 and the release needs 2.11.0" in text
    assert "reinstall torch" in text
    assert caught.value.facts == {"have": "2.9.1+cu128", "want": "2.11.0"}
    again = base_packages.share((LOCK, None), Base("p", reinstall=("torch",)), {"torch": "2.9.1"})
    assert "torch" in names(again.installed[0])


@pytest.mark.parametrize("name", ["flashinfer-cubin", "flashinfer-jit-cache"])
def test_kernels_of_another_flashinfer_in_the_base_are_refused(name: str) -> None:
    lock = LOCK + f"flashinfer-cubin==0.6.11.post1 --hash=sha256:{'01' * 32}\n"
    with pytest.raises(InstallError) as caught:
        base_packages.share((lock, None), Base("/opt/t/python"), {**THERE, name: "0.6.3+cu130"})
    assert str(caught.value).startswith(
        f"taking {name} from the base /opt/t/python: it has 0.6.3+cu130, and FlashInfer 0.6.11.post1 of the release"
    )
    fitting = base_packages.share((lock, None), Base("p"), {**THERE, name: "0.6.11.post1+cu130"})
    assert fitting.taken.get("flashinfer-cubin") == ("0.6.11.post1+cu130" if name == "flashinfer-cubin" else None)
    again = Base("p", reinstall=("flashinfer-cubin",))
    assert "flashinfer-cubin" in names(
        base_packages.share((lock, None), again, {**THERE, "flashinfer-cubin": "0.6.3"}).installed[0]
    )


def test_a_base_that_is_closed_to_others_is_told_of(tmp_path: Path) -> None:
    site = tmp_path / "python" / "lib" / "site-packages"
    site.mkdir(parents=True)
    (tmp_path / "python").chmod(0o711)
    (site.parent).chmod(0o755)
    under = Under(Found(replace(PYTHON, path=str(site)), (str(site),), {}), Share((LOCK, None)))

    site.chmod(0o711)
    [line] = base_packages.warnings(under)
    assert line.startswith(f"others may not use {site}, where the base {site} is: a server of another user")
    site.chmod(0o755)
    (tmp_path / "python").chmod(0o700)
    [line] = base_packages.warnings(under)
    assert line.startswith(f"others may not use {tmp_path / 'python'}, where")
    (tmp_path / "python").chmod(0o711)
    # What lies above is pytest's own.
    assert not [line for line in base_packages.warnings(under) if str(tmp_path / "python") in line.split(",")[0]]


def test_another_python_than_the_bases_is_refused() -> None:
    found = Found(PYTHON, (), {})
    base_packages.check_python(replace(PYTHON, path="/usr/bin/python3.12", version="3.12.9"), found)
    with pytest.raises(InstallError) as caught:
        base_packages.check_python(replace(PYTHON, path="/usr/bin/python3.11", version="3.11.2"), found)
    assert "cpython-3.11-linux-x86_64 and the base /opt/torch/bin/python is cpython-3.12-linux-x86_64" in str(
        caught.value
    )


def test_identity_record_and_warnings_tell_what_was_taken() -> None:
    shared = Share((LOCK, None), {"numpy": "2.4.1"}, {"numpy": ("2.4.1", "2.5.5")}, ("outlines",))
    under = Under(Found(PYTHON, ("/opt/torch/lib/python3.12/site-packages",), THERE), shared)

    assert base_packages.identity(under) == {
        "sites": ["/opt/torch/lib/python3.12/site-packages"],
        "taken": {"numpy": "2.4.1"},
        "left_out": ["outlines"],
    }
    assert base_packages.record(under) == {
        "python": "/opt/torch/bin/python",
        "python_version": "3.12.3",
        "sites": ["/opt/torch/lib/python3.12/site-packages"],
        "taken": {"numpy": "2.4.1"},
        "differing": {"numpy": ["2.4.1", "2.5.5"]},
        "left_out": ["outlines"],
    }
    assert base_packages.warnings(under) == [
        "1 distributions of the base /opt/torch/bin/python differ from the lock: numpy 2.4.1 (locked 2.5.5)",
        "left out, though the release asks for them: outlines",
    ]
    assert base_packages.warnings(Under(under.found, Share((LOCK, None)))) == []


def test_look_reads_where_this_python_has_its_packages() -> None:
    found = base_packages.look(Base(sys.executable))

    assert any(Path(pytest.__file__).is_relative_to(site) for site in found.sites)
    assert found.versions["pytest"] == pytest.__version__
    assert found.interpreter.path == sys.executable


def test_an_interpreter_that_is_none_is_named() -> None:
    with pytest.raises(InstallError, match="/nowhere/python"):
        base_packages.look(Base("/nowhere/python"))


def test_an_interpreter_that_stops_answering_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(interpreters, "choose", lambda asked: replace(PYTHON, path=asked))
    with pytest.raises(InstallError, match=r"asking the base .*python3 where its packages are: .*exit status 3"):
        base_packages.look(Base(str(broken)))


@pytest.mark.parametrize("place", ["import os", "relative/site-packages", "/opt/a\nimport os"])
def test_a_directory_that_the_path_file_cannot_hold_is_refused(tmp_path: Path, place: str) -> None:
    with pytest.raises(InstallError, match="no plain absolute path"):
        base_packages.write_path_file(str(tmp_path), [place])
    assert not (tmp_path / site_packages.BASE_FILE).exists()


def test_places_are_the_environments_own_and_then_the_bases(tmp_path: Path) -> None:
    own = tmp_path / "lib" / "python3.12" / "site-packages"
    own.mkdir(parents=True)
    assert site_packages.places(str(tmp_path)) == (str(own),)
    base_packages.write_path_file(str(own), ["/opt/a/site-packages", "/opt/b/dist-packages"])
    assert site_packages.places(str(tmp_path)) == (str(own), "/opt/a/site-packages", "/opt/b/dist-packages")
    assert (own / site_packages.BASE_FILE).read_text() == (
        "/opt/a/site-packages\n/opt/b/dist-packages\n"
        "import site; site.addsitedir('/opt/a/site-packages')\nimport site; site.addsitedir('/opt/b/dist-packages')\n"
    )


def test_versions_and_torch_of_the_first_place_win(tmp_path: Path) -> None:
    for name, version in (("one", "1.0"), ("two", "2.0")):
        info = tmp_path / name / f"thing-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: thing\nVersion: {version}\n")
    (tmp_path / "two" / "torch").mkdir()
    (tmp_path / "two" / "torch" / "version.py").write_text("__version__ = '2.11.0+cu130'\ncuda = '13.0'\n")
    places = [str(tmp_path / "one"), str(tmp_path / "two")]

    assert site_packages.versions_of(*places) == {"thing": "1.0"}
    assert site_packages.read_torch(*places) == site_packages.Torch("2.11.0+cu130", "13.0")
    assert site_packages.read_torch() is None
