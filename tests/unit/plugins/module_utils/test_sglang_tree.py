# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finding SGLang without importing it, its release, its choices, and what its files were when they came."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import sglang_tree
from ansible_collections.tokforge.sglang.plugins.module_utils.sglang_tree import (
    Tree,
    TreeError,
    answer_of,
    moe_backends,
    of_python,
    of_source,
    original,
    python_files,
    run_in,
)

IMPORTED = "raise SystemExit('SGLang was imported')\n"
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]}"


def original_sha256(tree: Tree, path: str) -> str | None:
    found = original(tree, path)
    return found.sha256 if found else None


def package(folder: Path, version: str | None = None) -> Path:
    """A package sglang below a directory that ends whoever imports it; the directory of srt."""
    srt = folder / "sglang" / "srt"
    (srt / "model_executor").mkdir(parents=True)
    (folder / "sglang" / "__init__.py").write_text(IMPORTED)
    if version:
        info = folder / f"sglang-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n\nVersion: none\n")
    return srt


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An environment without packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    return tmp_path / "venv"


def site_of(venv: Path) -> Path:
    return venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def python_of(venv: Path) -> str:
    return str(venv / "bin" / "python")


# --- the interpreter's SGLang ----------------------------------------------------------------------------------------


def test_installed_sglang_is_found_with_its_release_and_not_imported(venv: Path) -> None:
    srt = package(site_of(venv), "0.5.12.post1")
    assert of_python(python_of(venv)) == Tree(str(srt), "0.5.12.post1", python_of(venv), PYTHON)


def test_import_of_the_fixture_would_have_been_seen(venv: Path) -> None:
    package(site_of(venv))
    with pytest.raises(TreeError, match=r"ended with 1: SGLang was imported; give a working interpreter"):
        run_in(python_of(venv), "import sglang", "")


def test_checkout_behind_a_path_file_is_found(venv: Path, tmp_path: Path) -> None:
    srt = package(tmp_path / "checkout" / "python")
    (tmp_path / "checkout" / "python" / "pyproject.toml").write_text('[project]\nname = "sglang"\nversion = "0.5.9"\n')
    (site_of(venv) / "sglang.pth").write_text(f"{tmp_path}/checkout/python\n")
    assert of_python(python_of(venv)) == Tree(str(srt), "0.5.9", python_of(venv), PYTHON)


def test_checkout_behind_an_import_finder_is_found_and_metadata_tells_the_release(venv: Path, tmp_path: Path) -> None:
    srt = package(tmp_path / "checkout")
    (site_of(venv) / "editable_finder.py").write_text(
        "import importlib.machinery, importlib.util, sys\n"
        "class Finder:\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        f"        if name == 'sglang':\n"
        f"            return importlib.util.spec_from_file_location(name, {str(srt.parent / '__init__.py')!r})\n"
        "def install():\n    sys.meta_path.append(Finder)\n"
    )
    (site_of(venv) / "editable.pth").write_text("import editable_finder; editable_finder.install()\n")
    info = site_of(venv) / "sglang-0.5.14.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.14\n")
    assert of_python(python_of(venv)) == Tree(str(srt), "0.5.14", python_of(venv), PYTHON)


def test_linked_site_packages_are_followed_and_keep_their_name(venv: Path, tmp_path: Path) -> None:
    site = site_of(venv)
    site.rename(tmp_path / "elsewhere")
    site.symlink_to(tmp_path / "elsewhere")
    package(tmp_path / "elsewhere", "0.5.8")
    tree = of_python(python_of(venv))
    assert (tree.srt, tree.version) == (str(site / "sglang" / "srt"), "0.5.8")


def test_neither_the_environment_nor_the_directory_brings_another_one(
    venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    srt = package(site_of(venv))
    package(tmp_path / "other", "9.9.9")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"))
    monkeypatch.chdir(tmp_path / "other")
    assert of_python(python_of(venv)).srt == str(srt)


@pytest.mark.parametrize(
    "line",
    [
        "import sys; print('welcome', end='')",
        "import sys; print('{\"places\": 1', file=sys.stderr); print('{\"a\": 1}')",
        "import atexit; atexit.register(print, 'good', 'bye')",
        "import atexit; atexit.register(print, '{\"a\": 1}'); print('[1]')",
    ],
)
def test_noise_before_and_behind_the_answer_is_passed_over(venv: Path, line: str) -> None:
    srt = package(site_of(venv))
    (site_of(venv) / "noise.pth").write_text(line + "\n")
    assert of_python(python_of(venv)).srt == str(srt)


def test_namespace_package_is_searched_for_the_one_with_srt(venv: Path, tmp_path: Path) -> None:
    (tmp_path / "first" / "sglang").mkdir(parents=True)
    srt = package(tmp_path / "second")
    (srt.parent / "__init__.py").unlink()
    (site_of(venv) / "both.pth").write_text(f"{tmp_path}/first\n{tmp_path}/second\n")
    assert of_python(python_of(venv)).srt == str(srt)


def test_path_in_no_known_encoding_is_found(venv: Path, tmp_path: Path) -> None:
    srt = package(tmp_path / "\udcff\u2028")
    (site_of(venv) / "finder.py").write_text(
        f"import sys\nsys.path.append({str(tmp_path) + '/'!a} + '\\udcff\\u2028')\n"
    )
    (site_of(venv) / "finder.pth").write_text("import finder\n")
    assert of_python(python_of(venv)).srt == str(srt)


def test_interpreter_without_sglang_says_so(venv: Path) -> None:
    with pytest.raises(TreeError) as caught:
        of_python(python_of(venv))
    assert str(caught.value) == (
        f"looking for SGLang in {python_of(venv)} (Python {PYTHON}): SGLang is not installed for it; install it there, "
        "or give source"
    )
    assert caught.value.facts == {"python": python_of(venv)}


def test_module_of_that_name_without_srt_says_where_it_looked(venv: Path) -> None:
    (site_of(venv) / "sglang").mkdir()
    with pytest.raises(TreeError, match=f"no sglang/srt in {site_of(venv)}/sglang; install it there"):
        of_python(python_of(venv))


def test_module_in_a_file_and_one_that_breaks_the_search_are_not_installed(venv: Path) -> None:
    (site_of(venv) / "sglang.py").write_text(IMPORTED)
    with pytest.raises(TreeError, match="SGLang is not installed for it"):
        of_python(python_of(venv))
    (site_of(venv) / "a.pth").write_text("import sys; sys.modules['sglang'] = type(sys)('sglang')\n")
    with pytest.raises(TreeError, match="SGLang is not installed for it"):
        of_python(python_of(venv))


def program(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_missing_and_broken_interpreters_say_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match=f"running {tmp_path}/none: No such file or directory; give the Python interp"):
        of_python(str(tmp_path / "none"))
    with pytest.raises(TreeError, match=f"it is a directory; give the interpreter in it, {tmp_path}/bin/python"):
        of_python(str(tmp_path))
    with pytest.raises(TreeError, match="Exec format error; give the Python interpreter"):
        of_python(program(tmp_path / "empty", "\x7fELF nothing"))
    with pytest.raises(TreeError, match="embedded null byte; give the Python interpreter"):
        of_python("a\0b")
    with pytest.raises(TreeError, match=r"it ended with 3: it broke; give a working interpreter"):
        of_python(program(tmp_path / "broken", "#!/bin/sh\necho first >&2\necho it broke >&2\nexit 3\n"))
    with pytest.raises(TreeError, match=r"it ended with 4: no message"):
        of_python(program(tmp_path / "silent", "#!/bin/sh\nexit 4\n"))


@pytest.mark.parametrize(("said", "shown"), [("", "''"), ("hello", r"'hello\\n'"), ("[1]", r"'\[1\]\\n'")])
def test_program_that_is_no_python_is_told_by_its_answer(tmp_path: Path, said: str, shown: str) -> None:
    path = program(tmp_path / "other", f"#!/bin/sh\n{f'echo {said!r}' if said else ':'}\n")
    with pytest.raises(TreeError, match=f"it answered {shown}; give the interpreter of an environment"):
        of_python(path)


def test_interpreter_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sglang_tree, "_TIMEOUT_S", 0.2)
    with pytest.raises(TreeError, match=r"no answer in 0.2 s; see what it waits for"):
        of_python(program(tmp_path / "slow", "#!/bin/sh\nexec sleep 5\n"))


def test_code_in_another_interpreter_reads_what_it_is_given() -> None:
    said = run_in(sys.executable, "import sys; print(sys.stdin.read()[::-1], sys.flags.isolated)", "abc")
    assert said == "cba 1\n"


def test_last_object_with_the_key_is_the_answer() -> None:
    printed = '{"found": 1}\n{"found": 2}\n{"other": 3}\n"found"\n' + "[" * 100_000 + "\n"
    assert answer_of("p", printed, "error", "found") == {"found": 2}


# --- a source --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("below", ["sglang/srt", "python/sglang/srt", "srt"])
def test_source_is_any_of_three_places(tmp_path: Path, below: str) -> None:
    (tmp_path / below).mkdir(parents=True)
    tree = of_source(str(tmp_path))
    assert (tree.srt, tree.version, tree.python) == (str(tmp_path / below), None, None)
    assert tree.executor == str(tmp_path / below / "model_executor")
    assert tree.short(os.path.join(tree.executor, "x.py")) == "sglang/srt/model_executor/x.py"


def test_source_without_sglang_says_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(TreeError, match=r"holds none of sglang/srt, python/sglang/srt and srt; give the directory"):
        of_source(str(tmp_path))
    (tmp_path / "file").write_text("")
    for path in ("file", "missing"):
        with pytest.raises(TreeError, match="it is no directory; give the directory") as caught:
            of_source(str(tmp_path / path))
        assert caught.value.facts == {"source": str(tmp_path / path)}


@pytest.mark.parametrize(
    ("path", "text", "version"),
    [
        ("sglang-0.5.9.dist-info/METADATA", "Name: sglang\nVersion: 0.5.9\n", "0.5.9"),
        ("sglang/_version.py", "__version__ = version = '0.5.14.dev3+gabc'\n", "0.5.14.dev3+gabc"),
        ("sglang/_version.py", "version: str\n__version__: str = '0.5.14'\n", "0.5.14"),
        ("sglang/version.py", '__version__ = "0.5.8.post1"\n', "0.5.8.post1"),
        ("pyproject.toml", '[project]\nversion = "0.5.7"\n', "0.5.7"),
        ("pyproject.toml", '[project]\ndynamic = ["version"]\n', None),
        ("sglang/version.py", '__version__ = "unknown"\n', None),
        ("sglang/version.py", '__version__ = read("0.5.7")\n', None),
        ("sglang-0.5.9.dist-info/METADATA", "Name: sglang\n", None),
        ("other.txt", "", None),
    ],
)
def test_release_of_a_source_is_what_its_own_files_say(
    tmp_path: Path, path: str, text: str, version: str | None
) -> None:
    package(tmp_path)
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(text)
    assert of_source(str(tmp_path)).version == version


def test_metadata_goes_before_files_but_not_when_there_are_two(tmp_path: Path) -> None:
    srt = package(tmp_path, "0.5.9")
    (srt.parent / "version.py").write_text('__version__ = "0.5.7"\n')
    assert of_source(str(tmp_path)).version == "0.5.9"
    (tmp_path / "sglang-0.5.10.dist-info").mkdir()
    assert of_source(str(tmp_path)).version == "0.5.7"


# --- originals -------------------------------------------------------------------------------------------------------


def recorded(site: Path, path: str, data: bytes) -> None:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    (site / "sglang-1.dist-info").mkdir(exist_ok=True)
    with (site / "sglang-1.dist-info" / "RECORD").open("a") as stream:
        stream.write(f"{path},sha256={digest},{len(data)}\n")


def test_original_is_what_the_record_says(tmp_path: Path) -> None:
    srt = package(tmp_path)
    path = srt / "model_executor" / "gate,x.py"
    path.write_bytes(b"changed")
    recorded(tmp_path, "sglang/srt/model_executor/other.py", b"other")
    recorded(tmp_path, '"sglang/../sglang/srt/model_executor/gate,x.py"', b"original")
    tree = of_source(str(tmp_path))
    assert original_sha256(tree, str(path)) == hashlib.sha256(b"original").hexdigest()
    assert original_sha256(tree, str(path.with_name("new.py"))) is None
    (tmp_path / "sglang-2.dist-info").mkdir()
    assert original_sha256(tree, str(path)) is None


@pytest.mark.parametrize("row", ["sglang/srt/x.py,,", "sglang/srt/x.py", "sglang/srt/x.py,md5=abc,1", "", "\n,,\n"])
def test_record_without_a_digest_says_nothing(tmp_path: Path, row: str) -> None:
    srt = package(tmp_path, "1")
    (srt / "x.py").write_text("")
    (tmp_path / "sglang-1.dist-info" / "RECORD").write_text(row)
    assert original_sha256(of_source(str(tmp_path)), str(srt / "x.py")) is None


@pytest.mark.parametrize("digest", ["ä", "a", "*"])
def test_record_with_a_broken_digest_proves_nothing(tmp_path: Path, digest: str) -> None:
    srt = package(tmp_path, "1")
    (srt / "x.py").write_text("")
    (tmp_path / "sglang-1.dist-info" / "RECORD").write_text(f"sglang/srt/x.py,sha256={digest},1\n")
    assert original_sha256(of_source(str(tmp_path)), str(srt / "x.py")) != hashlib.sha256(b"").hexdigest()


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, "-C", str(folder), *words], check=True, capture_output=True)


def test_original_in_a_checkout_is_what_was_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    srt = package(tmp_path / "repo" / "python")
    path = srt / "model_executor" / "gate.py"
    path.write_bytes(b"original\r\n")
    git(tmp_path / "repo", "init", "-q")
    tree = of_source(str(tmp_path / "repo"))
    assert original_sha256(tree, str(path)) is None, "there is no commit yet"
    git(tmp_path / "repo", "add", ".")
    git(tmp_path / "repo", "commit", "-q", "-m", "one")
    path.write_bytes(b"changed")
    digest = hashlib.sha256(b"original\r\n").hexdigest()
    assert original_sha256(tree, str(path)) == digest
    (tmp_path / "link").symlink_to(path)
    assert original_sha256(tree, str(tmp_path / "link")) == digest
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))
    assert original_sha256(tree, str(path)) == digest
    (srt / "new.py").write_text("")
    assert original_sha256(tree, str(srt / "new.py")) is None
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert original_sha256(tree, str(path)) is None


def test_no_repository_and_no_record_prove_nothing(tmp_path: Path) -> None:
    srt = package(tmp_path)
    (srt / "x.py").write_text("")
    assert original_sha256(of_source(str(tmp_path)), str(srt / "x.py")) is None


# --- choices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ('MOE_RUNNER_BACKEND_CHOICES = [\n    "auto",\n    "b",\n]\n', ("auto", "b")),
        ('X = 1\nMOE_RUNNER_BACKEND_CHOICES: list[str] = ["auto"]  # all\nY = ["z"]\n', ("auto",)),
        ('MOE_RUNNER_BACKEND_CHOICES = (\n    "auto",  # see (1) and [2]\n    "b",\n)\n', ("auto", "b")),
        ('MOE_RUNNER_BACKEND_CHOICES = ["auto"]', ("auto",)),
        ('MOE_RUNNER_BACKEND_CHOICES = ["auto"] + MORE\n', None),
        ('MOE_RUNNER_BACKEND_CHOICES = ["auto", *MORE]\n', None),
        ('MOE_RUNNER_BACKEND_CHOICES = ["auto", 1]\n', None),
        ('MOE_RUNNER_BACKEND_CHOICES = ("auto")\n', None),
        ('MOE_RUNNER_BACKEND_CHOICES = ["auto"\n', None),
        ('MOE_RUNNER_BACKEND_CHOICES = ["auto" "b" c]\n', None),
        ('MOE_RUNNER_BACKEND_CHOICES_TOO = ["auto"]\n', None),
        ('    MOE_RUNNER_BACKEND_CHOICES = ["auto"]\n', None),
        ("", None),
    ],
)
@pytest.mark.parametrize("path", ["server_args.py", "arg_groups/choices.py"])
def test_choices_are_the_releases_own_or_not_known(
    tmp_path: Path, path: str, text: str, choices: tuple[str, ...] | None
) -> None:
    file = tmp_path / "srt" / path
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert moe_backends(of_source(str(tmp_path))) == choices


# --- files -----------------------------------------------------------------------------------------------------------


def test_python_files_come_once_each_and_sorted(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "a.txt", "__pycache__/c.py", "sub/d.py", ".x.py.tmp"):
        (tmp_path / "top" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "top" / name).write_text("")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "e.py").write_text("")
    (tmp_path / "top" / "linked").symlink_to(tmp_path / "out")
    (tmp_path / "top" / "round").symlink_to(tmp_path / "top")
    (tmp_path / "top" / "z.py").symlink_to(tmp_path / "top" / "a.py")
    (tmp_path / "top" / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "top" / "folder.py").mkdir()
    found = [os.path.relpath(path, tmp_path / "top") for path in python_files(str(tmp_path / "top"))]
    assert found == ["a.py", "b.py", "linked/e.py", "sub/d.py"]


def test_directory_that_cannot_be_read_is_no_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(python_files(str(tmp_path / "none")))


@pytest.mark.parametrize(
    "answer",
    [
        {"places": [5], "version": None, "python": "3.11.0"},
        {"places": "abc", "version": None, "python": "3.11.0"},
        {"places": None, "version": None, "python": "3.11.0"},
        {"places": [], "version": 1, "python": "3.11.0"},
        {"places": [], "version": None, "python": None},
    ],
)
def test_answer_of_other_types_is_no_traceback(tmp_path: Path, answer: dict[str, Any]) -> None:
    said = json.dumps(answer)
    path = program(tmp_path / "other", f"#!/bin/sh\necho '{said}'\n")
    with pytest.raises(TreeError, match=r"it answered .*; give the interpreter of an environment"):
        of_python(path)


@pytest.mark.parametrize("rows", ['"open,quote\n', "x" * 200_000 + ",sha256=a,1\n", "sglang/srt/x.py,sha256=a,1\n"])
def test_damaged_record_does_not_tell(tmp_path: Path, rows: str) -> None:
    srt = package(tmp_path, "0.5.12")
    (srt / "x.py").write_text("")
    (tmp_path / "sglang-0.5.12.dist-info" / "RECORD").write_text(rows)
    assert original(of_source(str(tmp_path)), str(srt / "x.py")) is None


def test_what_begins_with_a_dot_is_no_module(tmp_path: Path) -> None:
    srt = package(tmp_path)
    (srt / "._x.py").write_bytes(b"\x00\x05")
    (srt / ".ipynb_checkpoints").mkdir()
    (srt / ".ipynb_checkpoints" / "x.py").write_text("")
    (srt / "x.py").write_text("")
    assert [os.path.basename(path) for path in python_files(str(srt))] == ["x.py"]
