# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real installs with real uv and pip, of tiny wheels that the tests make. No network."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wheel_requests import UV, from_wheels
from wheels import make_wheel, sha256_of

from ansible_collections.tokforge.sglang.plugins.module_utils import environment, environment_build, releases
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_request import Request, Source
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.site_packages import OverlayFile

PLAYBOOK = shutil.which("ansible-playbook", path=os.path.dirname(sys.executable))
COLLECTIONS = Path(__file__).parents[2] / "collections"
needs_uv = pytest.mark.skipif(UV is None, reason="uv is not installed beside this Python nor on PATH")
CPU_TORCH = {"torch/__init__.py": "", "torch/version.py": "__version__ = '2.13.0+cpu'\ncuda = None\n"}
CUDA_TORCH = {"torch/__init__.py": "", "torch/version.py": "__version__ = '2.13.0'\ncuda = '13.0'\n"}


def make_index(folder: Path, wheels: Path) -> str:
    """A package index over the wheels of a directory, as a file address."""
    for wheel in wheels.glob("*.whl"):
        page = folder / wheel.name.split("-")[0].replace("_", "-")
        page.mkdir(parents=True, exist_ok=True)
        address = f"file://{wheel}#sha256={sha256_of(wheel)}"
        with (page / "index.html").open("a") as stream:
            stream.write(f'<a href="{address}">{wheel.name}</a>\n')
    return f"file://{folder}"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    return tmp_path / "wheels"


@pytest.fixture
def request_(tmp_path: Path, wheels: Path) -> Request:
    """SGLang 0.5.23 and one more distribution, from a wheelhouse."""
    lock = make_wheel(wheels, "sglang", "0.5.23", requires=("helper",)) + make_wheel(wheels, "helper", "1.0")
    return from_wheels(tmp_path, lock, "0.5.23")


def run_in(outcome: environment.Outcome, code: str) -> str:
    done = subprocess.run([outcome.python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def nothing_complete(root: str) -> bool:
    """Whether no directory is left below venvs, complete or not."""
    return [path for path in Path(root, "venvs").glob("*") if path.is_dir()] == []


def tree_of(path: Path) -> dict[str, tuple[int, int]]:
    return {str(p.relative_to(path)): (p.lstat().st_ino, p.lstat().st_mtime_ns) for p in path.rglob("*")}


# ---- built once ----------------------------------------------------------------------------------------------------


@needs_uv
def test_first_run_builds_and_the_second_changes_nothing(request_: Request) -> None:
    first = environment.ensure(request_)
    assert (first.changed, first.complete) == (True, True)
    assert first.facts["versions"] == {"helper": "1.0", "sglang": "0.5.23"}
    assert run_in(first, "import sglang; print(sglang.VERSION)") == "0.5.23"
    assert json.loads(Path(first.path, "environment.json").read_text())["id"] == first.id
    before = tree_of(Path(request_.root))
    second = environment.ensure(request_)
    assert (second.changed, second.id, second.reason) == (False, first.id, "complete")
    assert second.facts == first.facts
    assert tree_of(Path(request_.root)) == before


@needs_uv
def test_another_request_is_another_directory_and_the_way_back_builds_nothing(request_: Request, wheels: Path) -> None:
    first = environment.ensure(request_)
    lock = make_wheel(wheels, "sglang", "0.5.12.post1") + make_wheel(wheels, "helper", "1.0")
    other_request = replace(request_, lock=lock, expect={"sglang": "0.5.12.post1"})
    other = environment.ensure(other_request)
    assert other.id != first.id
    assert run_in(other, "import sglang; print(sglang.VERSION)") == "0.5.12.post1"
    back = environment.ensure(request_)
    assert (back.changed, back.path) == (False, first.path)
    assert run_in(back, "import sglang; print(sglang.VERSION)") == "0.5.23"


@needs_uv
def test_check_mode_on_a_fresh_root_predicts_the_real_run_and_writes_nothing(request_: Request, tmp_path: Path) -> None:
    predicted = environment.ensure(request_, check_mode=True)
    assert (predicted.changed, predicted.complete) == (True, False)
    assert not Path(request_.root).exists()
    assert environment.ensure(request_).id == predicted.id
    assert environment.ensure(request_, check_mode=True).changed is False


def test_check_mode_needs_no_uv_yet(request_: Request) -> None:
    assert environment.ensure(replace(request_, uv="/not/made/yet/uv"), check_mode=True).changed is True
    with pytest.raises(InstallError, match="looking for uv at /not/made/yet/uv"):
        environment.ensure(replace(request_, uv="/not/made/yet/uv"))
    assert nothing_complete(request_.root)


@needs_uv
def test_environment_can_be_read_by_another_user_whatever_the_umask(request_: Request) -> None:
    old = os.umask(0o077)
    try:
        outcome = environment.ensure(request_)
    finally:
        os.umask(old)
    for path in [Path(request_.root), *Path(outcome.path).rglob("*")]:
        wanted = 0o555 if path.is_dir() else 0o444
        assert path.stat().st_mode & wanted == wanted, path


def test_tools_are_made_with_pip(request_: Request, wheels: Path) -> None:
    lock = make_wheel(wheels, "supervisor", "4.3.0") + make_wheel(wheels, "uv_standin", "0.1")
    tools = environment.ensure(replace(request_, kind="tools", installer="pip", uv=None, lock=lock, expect={}))
    assert tools.facts["versions"]["supervisor"] == "4.3.0"
    # pip came with the venv and not from a lock, and that is said.
    assert "pip" in tools.facts["unlocked"]
    assert "supervisor" not in tools.facts["unlocked"]


# ---- interrupted, concurrent ---------------------------------------------------------------------------------------

RUNNER = """
import json, sys
sys.path.insert(0, {collections!r})
from ansible_collections.tokforge.sglang.plugins.module_utils import environment
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_request import Request, Source
said = json.load(open(sys.argv[1]))
said["source"] = Source(**said["source"])
outcome = environment.ensure(Request(**said))
print(json.dumps([outcome.changed, outcome.reason, outcome.path]))
"""


class Runs:
    """Runs `ensure` in processes of their own, with a uv that can be told to stop after an install."""

    def __init__(self, tmp_path: Path, request_: Request) -> None:
        self.script = tmp_path / "runner.py"
        self.script.write_text(RUNNER.format(collections=str(COLLECTIONS)))
        self.asked = tmp_path / "request.json"
        self.installed = tmp_path / "installed"
        self.uv = tmp_path / "slow-uv"
        self.uv.write_text(
            f'#!/bin/sh\n{UV} "$@" || exit $?\n'
            f'case "$2" in install) echo x >> {self.installed}; sleep "${{SLOW_S:-0}}";; esac\n'
        )
        self.uv.chmod(0o755)
        self.request = replace(request_, uv=str(self.uv))
        fields = {name: getattr(self.request, name) for name in ("root", "kind", "lock", "uv", "uv_cache", "expect")}
        self.asked.write_text(json.dumps({**fields, "source": vars(request_.source)}))
        self.started: list[subprocess.Popen[str]] = []

    def start(self, slow_s: float = 0) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(self.script), str(self.asked)],
            env={**os.environ, "SLOW_S": str(slow_s)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def wait_until_installed(self) -> None:
        deadline = time.monotonic() + 60
        while not self.installed.exists():
            assert time.monotonic() < deadline, "the install did not get to its middle"
            time.sleep(0.05)

    def end(self) -> None:
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def runs(tmp_path: Path, request_: Request) -> Iterator[Runs]:
    found = Runs(tmp_path, request_)
    yield found
    found.end()


@needs_uv
def test_an_install_killed_in_the_middle_is_built_again(runs: Runs) -> None:
    killed = runs.start(slow_s=60)
    runs.wait_until_installed()
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    left = [path for path in Path(runs.request.root, "venvs").iterdir() if path.is_dir()]
    assert len(left) == 1  # it did get that far
    assert not (left[0] / "environment.json").exists()
    (left[0] / "half-written").write_text("")
    again = environment.ensure(runs.request)
    assert again.path == str(left[0])
    assert (again.changed, again.reason) == (True, "built: an earlier install was interrupted")
    assert not (left[0] / "half-written").exists()
    assert run_in(again, "import sglang, helper; print(sglang.VERSION)") == "0.5.23"


@needs_uv
def test_the_next_run_waits_for_an_installer_that_outlived_its_run(runs: Runs) -> None:
    killed = runs.start(slow_s=3)
    runs.wait_until_installed()
    started = time.monotonic()
    os.kill(killed.pid, signal.SIGKILL)  # only the run: its installer goes on
    again = environment.ensure(runs.request)
    assert time.monotonic() - started > 2
    assert again.changed is True
    assert run_in(again, "import sglang; print(sglang.VERSION)") == "0.5.23"


@needs_uv
def test_two_runs_at_once_build_once(runs: Runs) -> None:
    first = runs.start(slow_s=2)
    runs.wait_until_installed()
    second = runs.start()
    said = [json.loads(process.communicate(timeout=120)[0]) for process in (first, second)]
    assert [changed for changed, _reason, _path in said] == [True, False]
    assert said[1][1] == "another run has just built it"
    assert said[0][2] == said[1][2]
    assert runs.installed.read_text() == "x\n"


def test_a_lock_that_is_never_given_back_names_its_holder(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    says = pytest.raises(InstallError, match=f"process {os.getpid()} or an installer")
    with environment.exclusive(path), says, environment.exclusive(path, wait_s=0.3):
        pass
    with environment.exclusive(path, wait_s=0.3):
        pass


@needs_uv
@pytest.mark.parametrize("damage", ["marker", "other marker", "interpreter"])
def test_what_is_damaged_is_built_again_and_said(request_: Request, damage: str) -> None:
    first = environment.ensure(request_)
    marker = Path(first.path, "environment.json")
    if damage == "marker":
        marker.write_text(marker.read_text()[:40])
    elif damage == "other marker":
        marker.write_text(json.dumps({**json.loads(marker.read_text()), "id": "0" * 12}))
    else:
        Path(first.python).unlink()
    again = environment.ensure(request_)
    assert again.changed is True
    assert (
        again.reason
        == {
            "marker": "built: its environment.json is damaged",
            "other marker": "built: its environment.json is of another environment",
            "interpreter": "built: the Python it was made with is gone",
        }[damage]
    )
    assert run_in(again, "import sglang; print(sglang.VERSION)") == "0.5.23"


Damage = Callable[[dict[str, Any]], Any]


@needs_uv
@pytest.mark.parametrize(
    "damage",
    [
        lambda facts: {**facts, "versions": {"sglang": None, "helper": "1.0"}},
        lambda facts: {**facts, "versions": {"sglang": ["0.5.23"], "helper": "1.0"}},
        lambda facts: {**facts, "versions": []},
        lambda facts: {**facts, "torch": "2.13.0"},
        lambda facts: {**facts, "torch": {"version": "2.13.0"}},
        lambda facts: {**facts, "torch": {"version": 2, "cuda": None}},
        lambda facts: {**facts, "torch": {"version": "2.13.0", "cuda": 13.0}},
        lambda facts: {**facts, "editable": [[]]},
        lambda facts: {**facts, "editable": ["nowhere"]},
        lambda facts: {**facts, "unlocked": []},
        lambda facts: {**facts, "install_s": "1"},
        lambda facts: {**facts, "schema_version": 0},
        lambda facts: {**facts, "schema_version": "1"},
        lambda facts: {**facts, "schema_version": True},
        lambda facts: {key: value for key, value in facts.items() if key != "schema_version"},
        lambda facts: [facts],
    ],
)
def test_marker_of_a_wrong_shape_is_built_again(request_: Request, damage: Damage) -> None:
    marker = Path(environment.ensure(request_).path, "environment.json")
    marker.write_text(json.dumps(damage(json.loads(marker.read_text()))))
    again = environment.ensure(request_, check_mode=True)
    assert (again.changed, again.reason) == (True, "would be built: its environment.json is damaged")


def test_marker_nested_too_deep_is_damage(request_: Request) -> None:
    venv = Path(environment.ensure(request_, check_mode=True).path)
    (venv / "bin").mkdir(parents=True)
    (venv / "environment.json").write_text("[" * 100_000)
    assert environment.ensure(request_, check_mode=True).reason == "would be built: its environment.json is damaged"


@needs_uv
def test_marker_of_a_newer_version_is_refused_and_left_alone(request_: Request) -> None:
    marker = Path(environment.ensure(request_).path, "environment.json")
    newer = json.dumps({"schema_version": 2, "versions": "in another shape"})
    marker.write_text(newer)
    with pytest.raises(InstallError, match=r"it has schema 2, this version of tokforge\.sglang knows 1; use the newer"):
        environment.ensure(request_)
    assert marker.read_text() == newer


# ---- what was installed is what was asked --------------------------------------------------------------------------


@needs_uv
def test_a_version_that_resolved_otherwise_fails_and_leaves_nothing(request_: Request, wheels: Path) -> None:
    lock = make_wheel(wheels, "sglang", "0.5.9") + make_wheel(wheels, "helper", "1.0")
    with pytest.raises(InstallError, match=r"sglang 0\.5\.23 was expected, 0\.5\.9 is installed") as caught:
        environment.ensure(replace(request_, lock=lock))
    assert caught.value.facts["versions"]["sglang"] == "0.5.9"
    assert nothing_complete(request_.root)


@needs_uv
def test_the_lock_is_held_against_what_the_installer_did(request_: Request, tmp_path: Path) -> None:
    """An installer that reports success for something else is not believed."""
    liar = tmp_path / "uv"
    liar.write_text(f'#!/bin/sh\n[ "$2" = install ] && exit 0\nexec {UV} "$@"\n')
    liar.chmod(0o755)
    with pytest.raises(InstallError, match=r"helper 1\.0 was asked, none is installed; sglang 0\.5\.23 was asked"):
        environment.ensure(replace(request_, uv=str(liar)))
    assert nothing_complete(request_.root)


@needs_uv
@pytest.mark.parametrize(
    ("files", "version", "wanted", "says"),
    [
        (
            CPU_TORCH,
            "2.13.0+cpu",
            "cuda13",
            "a cuda13 build of torch was asked, torch 2.13.0+cpu is installed and is a CPU",
        ),
        (
            CUDA_TORCH,
            "2.13.0",
            "cpu",
            "a cpu build of torch was asked, torch 2.13.0 is installed and is built for CUDA 13.0",
        ),
    ],
)
def test_another_build_of_torch_fails_with_both_facts_and_leaves_nothing(
    request_: Request, wheels: Path, files: Mapping[str, str], version: str, wanted: str, says: str
) -> None:
    lock = request_.lock + make_wheel(wheels, "torch", version, files)
    with pytest.raises(InstallError) as caught:
        environment.ensure(replace(request_, lock=lock, torch_build=wanted))
    assert says in str(caught.value)
    assert caught.value.facts["torch"]["version"] == version
    assert nothing_complete(request_.root)
    assert environment.ensure(replace(request_, lock=lock, torch_build="any")).facts["torch"] == {
        "version": version,
        "cuda": "13.0" if files is CUDA_TORCH else None,
        "sha256": None,
    }


@needs_uv
def test_a_wheel_with_another_hash_is_refused(request_: Request, wheels: Path) -> None:
    make_wheel(wheels, "helper", "1.0", {"helper/__init__.py": "# not the locked one\n"})
    with pytest.raises(InstallError, match=r"(?s)[Hh]ash mismatch.*not the one that was locked"):
        environment.ensure(request_)
    assert nothing_complete(request_.root)


@needs_uv
def test_a_requirement_that_no_lock_names_is_refused(request_: Request, wheels: Path) -> None:
    lock = make_wheel(wheels, "sglang", "0.5.23", requires=("stowaway",))
    make_wheel(wheels, "stowaway", "1.0")
    with pytest.raises(InstallError, match="stowaway"):
        environment.ensure(replace(request_, lock=lock))


@needs_uv
def test_an_exempt_distribution_is_taken_as_found_and_its_sha256_is_recorded(request_: Request, wheels: Path) -> None:
    make_wheel(wheels, "torch", "2.13.0+cpu", CPU_TORCH, requires=("runtime",))
    make_wheel(wheels, "runtime", "13.0")
    file = wheels / "torch-2.13.0+cpu-py3-none-any.whl"
    asked = replace(request_, lock=request_.lock + f"torch==2.13.0 --hash=sha256:{'0' * 64}\n", hash_exempt=("torch",))
    outcome = environment.ensure(asked)
    assert outcome.facts["torch"] == {"version": "2.13.0+cpu", "cuda": None, "sha256": sha256_of(file)}
    assert outcome.facts["hash_exempt"] == {"torch": {"file": file.name, "sha256": sha256_of(file), "why": None}}
    # What it brought along has no line in the lock, and that is said.
    assert outcome.facts["unlocked"] == {"runtime": "13.0"}
    used = Path(outcome.path, "requirements.txt").read_text()
    assert f"torch==2.13.0+cpu --hash=sha256:{sha256_of(file)}" in used


@needs_uv
def test_exempting_one_distribution_exempts_no_other(request_: Request, wheels: Path) -> None:
    make_wheel(wheels, "torch", "2.13.0+cpu", CPU_TORCH)
    make_wheel(wheels, "helper", "1.0", {"helper/__init__.py": "# not the locked one\n"})
    with pytest.raises(InstallError, match=r"[Hh]ash mismatch"):
        environment.ensure(replace(request_, lock=request_.lock + "torch==2.13.0\n", hash_exempt=("torch",)))


@needs_uv
def test_the_second_lock_is_installed_without_requirements(request_: Request, wheels: Path) -> None:
    second = make_wheel(wheels, "timm", "1.0.25", requires=("not_there_at_all",))
    outcome = environment.ensure(replace(request_, lock_no_deps=second))
    assert outcome.facts["versions"]["timm"] == "1.0.25"


# ---- where packages come from --------------------------------------------------------------------------------------


@pytest.fixture
def two_torches(request_: Request, wheels: Path, tmp_path: Path) -> tuple[Request, Path]:
    """An index with a CUDA build of torch, and a directory with a CPU build that wins where both are looked at."""
    make_wheel(wheels, "torch", "2.13.0", CUDA_TORCH)
    index = make_index(tmp_path / "index", wheels)
    cpu = tmp_path / "cpu wheels"
    make_wheel(cpu, "torch", "2.13.0+cpu", CPU_TORCH)
    asked = replace(
        request_,
        source=Source(),
        index_url=index,
        lock=request_.lock + "torch==2.13.0\n",
        hash_exempt=("torch",),
        inherit_pip=False,
    )
    return asked, cpu


@needs_uv
def test_a_variable_of_the_login_shell_does_not_decide_which_torch_is_taken(two_torches: tuple[Request, Path]) -> None:
    asked, cpu = two_torches
    shell = {**os.environ, "PIP_FIND_LINKS": str(cpu), "UV_FIND_LINKS": str(cpu), "UV_NO_INDEX": "1"}
    outcome = environment.ensure(replace(asked, torch_build="cuda13"), environ=shell)
    assert outcome.facts["torch"]["cuda"] == "13.0"


@needs_uv
def test_pips_settings_reach_uv_when_they_are_to_be_inherited(
    two_torches: tuple[Request, Path], tmp_path: Path
) -> None:
    asked, cpu = two_torches
    (tmp_path / "pip.conf").write_text(
        f"[global]\nindex-url = {asked.index_url}\nfind-links = file://{cpu}\n".replace(" w", "%20w")
    )
    shell = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    shell["PIP_CONFIG_FILE"] = str(tmp_path / "pip.conf")
    outcome = environment.ensure(replace(asked, inherit_pip=True, index_url=None), environ=shell)
    assert outcome.facts["torch"]["version"] == "2.13.0+cpu"
    assert outcome.facts["versions"]["sglang"] == "0.5.23"


@needs_uv
def test_given_directories_of_wheels_are_looked_at(two_torches: tuple[Request, Path]) -> None:
    asked, cpu = two_torches
    assert environment.ensure(replace(asked, find_links=(str(cpu),))).facts["torch"]["cuda"] is None


@needs_uv
def test_what_no_index_has_is_named(two_torches: tuple[Request, Path]) -> None:
    asked, _cpu = two_torches
    with pytest.raises(InstallError, match=r"(?s)nowhere.*check that the index or the wheelhouse holds"):
        environment.ensure(replace(asked, lock=asked.lock + f"nowhere==1.0 --hash=sha256:{'0' * 64}\n"))


@needs_uv
def test_a_password_in_an_index_address_is_in_no_message_and_in_no_file(request_: Request) -> None:
    asked = replace(request_, source=Source(), inherit_pip=False, index_url="http://me:s3cret@127.0.0.1:9/simple")
    with pytest.raises(InstallError) as caught:
        environment.ensure(asked)
    assert "s3cret" not in str(caught.value) + json.dumps(caught.value.facts)


def test_a_wheelhouse_that_holds_no_wheels_is_refused_before_anything_is_written(
    request_: Request, tmp_path: Path
) -> None:
    with pytest.raises(InstallError, match="it is no directory with wheels"):
        environment.ensure(replace(request_, source=Source("wheelhouse", str(tmp_path / "nothing"))), check_mode=True)
    assert not Path(request_.root).exists()


# ---- overlay -------------------------------------------------------------------------------------------------------


@needs_uv
def test_an_overlay_does_not_write_through_a_hard_link_into_uvs_cache(request_: Request) -> None:
    plain = environment.ensure(request_)
    shared = Path(plain.path).glob("lib/*/site-packages/helper/__init__.py")
    before = next(shared)
    assert before.stat().st_nlink > 1  # otherwise this shows nothing
    overlay = {"helper/__init__.py": OverlayFile(b"VERSION = 'overlaid'\n"), "extra.py": OverlayFile(b"")}
    overlaid = environment.ensure(replace(request_, overlay=overlay))
    assert run_in(overlaid, "import helper, extra; print(helper.VERSION)") == "overlaid"
    assert run_in(plain, "import helper; print(helper.VERSION)") == "1.0"
    assert overlaid.facts["overlay_replaced"] == ["helper/__init__.py"]
    third = environment.ensure(replace(request_, root=f"{request_.root}-2"))
    assert run_in(third, "import helper; print(helper.VERSION)") == "1.0"


@needs_uv
def test_bytecode_is_compiled_where_there_are_many_cores(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    for least, compiled in ((10_000, False), (1, True)):
        monkeypatch.setattr(environment_build, "COMPILE_FROM_CPUS", least)
        outcome = environment.ensure(replace(request_, root=f"{request_.root}-{least}"))
        assert bool(list(Path(outcome.path).glob("lib/*/site-packages/helper/__pycache__/*.pyc"))) is compiled


# ---- source trees --------------------------------------------------------------------------------------------------


def git(tree: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(tree), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout_(request_: Request, wheels: Path, tmp_path: Path) -> tuple[Request, Path]:
    """An SGLang checkout whose build backend is in the tree, so that building it needs no network."""
    tree = tmp_path / "sglang-src"
    project = tree / "python"
    (project / "sglang").mkdir(parents=True)
    (project / "sglang" / "__init__.py").write_text("VERSION = 'tree'\n")
    (project / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        "[project]\nname = 'sglang'\ndynamic = ['version']\n"
    )
    (project / "backend.py").write_text(textwrap.dedent(BACKEND))
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "one")
    source = Source("checkout", str(tree), commit=git(tree, "rev-parse", "HEAD"), version="0.5.24")
    asked = replace(request_, source=source, inherit_pip=False, index_url=make_index(tmp_path / "index", wheels))
    return asked, tree


BACKEND = """
    import os, zipfile

    def _wheel(folder, files):
        version = os.environ["SETUPTOOLS_SCM_PRETEND_VERSION"]
        name = f"sglang-{version}-py3-none-any.whl"
        info = f"sglang-{version}.dist-info"
        with zipfile.ZipFile(os.path.join(folder, name), "w") as archive:
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\\nName: sglang\\nVersion: {version}\\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
            for path, text in files.items():
                archive.writestr(path, text)
            archive.writestr(f"{info}/RECORD", "")
        return name

    def build_editable(folder, config_settings=None, metadata_directory=None):
        return _wheel(folder, {"sglang.pth": os.getcwd() + "\\n"})

    def build_wheel(folder, config_settings=None, metadata_directory=None):
        return _wheel(folder, {})
"""


@needs_uv
def test_a_checkout_is_installed_in_place_of_the_locked_release(checkout_: tuple[Request, Path]) -> None:
    asked, tree = checkout_
    outcome = environment.ensure(asked)
    assert outcome.facts["versions"] == {"helper": "1.0", "sglang": "0.5.24"}
    assert outcome.facts["editable"] == ["sglang"]
    assert run_in(outcome, "import sglang; print(sglang.__file__)") == str(tree / "python/sglang/__init__.py")
    assert environment.ensure(asked).changed is False


@needs_uv
def test_a_changed_tree_is_refused_with_a_pin_and_another_environment_without(checkout_: tuple[Request, Path]) -> None:
    asked, tree = checkout_
    unpinned = replace(asked, source=replace(asked.source, commit=None))
    clean = environment.ensure(unpinned)
    (tree / "python" / "sglang" / "__init__.py").write_text("VERSION = 'changed'\n")
    with pytest.raises(InstallError, match=r"sglang/__init__\.py differ from it"):
        environment.ensure(asked)
    changed = environment.ensure(unpinned, check_mode=True)
    assert changed.id != clean.id
    git(tree, "commit", "-q", "-a", "-m", "two")
    with pytest.raises(InstallError, match="is checked out"):
        environment.ensure(asked)


@needs_uv
def test_a_checkout_of_another_version_than_it_is_said_to_be_fails(checkout_: tuple[Request, Path]) -> None:
    asked, tree = checkout_
    backend = tree / "python" / "backend.py"
    backend.write_text(backend.read_text().replace('os.environ["SETUPTOOLS_SCM_PRETEND_VERSION"]', '"0.5.1"'))
    unpinned = replace(asked, source=replace(asked.source, commit=None))
    with pytest.raises(InstallError, match=r"sglang 0\.5\.24 was expected, 0\.5\.1 is installed"):
        environment.ensure(unpinned)
    assert nothing_complete(asked.root)


def test_check_mode_knows_the_state_of_a_pinned_clone_that_is_still_to_be_made(
    request_: Request, tmp_path: Path
) -> None:
    source = Source("checkout", str(tmp_path / "not-cloned-yet"), commit="a" * 40)
    assert environment.ensure(replace(request_, source=source), check_mode=True).changed is True
    with pytest.raises(InstallError, match=r"holds a pyproject\.toml"):
        environment.ensure(replace(request_, source=source))


# ---- places --------------------------------------------------------------------------------------------------------


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a small file system. Skips, saying why, where that is not allowed."""
    mounted: list[Path] = []

    def mount(size: str) -> Path:
        if os.geteuid() != 0:
            pytest.skip("mounting a small file system needs root")
        place = tmp_path / f"small{len(mounted)}"
        place.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"mounting a small file system is not allowed here: {done.stderr.strip()}")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", str(place)], check=True)


@needs_uv
def test_a_disk_that_fills_up_is_named_and_the_next_run_with_room_succeeds(
    request_: Request, wheels: Path, tmpfs: Callable[[str], Path]
) -> None:
    small = tmpfs("3m")
    import random

    noise = "".join(random.Random(1).choices("abcdefghijklmnop", k=6_000_000))  # noqa: S311
    lock = request_.lock + make_wheel(wheels, "big", "1.0", {"big/__init__.py": f"# {noise}\n"})
    asked = replace(request_, root=str(small / "root"), lock=lock)
    with pytest.raises(InstallError, match=r"(?s)No space left on device.*free disk space there") as caught:
        environment.ensure(asked)
    assert caught.value.facts["free_bytes"] < 6_000_000
    assert nothing_complete(asked.root)
    subprocess.run(["mount", "-o", "remount,size=60m", str(small)], check=True)
    assert environment.ensure(asked).complete is True


def test_too_little_room_is_refused_before_anything_is_written(request_: Request) -> None:
    with pytest.raises(InstallError, match=r"1000000\.0 GB are needed and .* GB are free"):
        environment.ensure(replace(request_, min_free_bytes=10**15))
    assert not Path(request_.root).exists()


@needs_uv
def test_a_complete_environment_needs_no_room(request_: Request) -> None:
    environment.ensure(request_)
    assert environment.ensure(replace(request_, min_free_bytes=10**15)).changed is False


def test_a_read_only_root_is_refused_before_anything_is_written(request_: Request, tmp_path: Path, tmpfs: Any) -> None:
    if os.geteuid() == 0:
        place = tmpfs("1m")
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    else:
        place = tmp_path / "closed"
        place.mkdir(mode=0o555)
    with pytest.raises(InstallError, match=f"cannot write {place}: it is read-only or not this user's"):
        environment.ensure(replace(request_, root=str(place / "root")), check_mode=True)


def test_a_file_in_the_way_of_the_root_is_named(request_: Request, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InstallError, match="it is not a directory"):
        environment.ensure(replace(request_, root=str(tmp_path / "file" / "root")), check_mode=True)


def test_a_python_that_is_too_old_for_the_release_lists_what_was_found(request_: Request, tmp_path: Path) -> None:
    old = tmp_path / "python3.10"
    facts = {
        "version": "3.10.12",
        "implementation": "cpython",
        "abiflags": "",
        "platform": "linux-x86_64",
        "venv": True,
    }
    old.write_text(f"#!/bin/sh\necho '{json.dumps(facts)}'\n")
    old.chmod(0o755)
    with pytest.raises(InstallError, match=r">=3\.11 is needed and found were \S+/python3\.10 \(3\.10\.12\)"):
        environment.ensure(replace(request_, python=str(old), requires_python=">=3.11"))
    assert not Path(request_.root).exists()


def test_a_directory_in_place_of_the_lock_file_is_named(request_: Request) -> None:
    venv = Path(environment.ensure(request_, check_mode=True).path)
    lock = venv.with_name(f".{venv.name}.lock")
    Path(request_.root).mkdir()
    (Path(request_.root) / ".tokforge-sglang").write_text("")
    lock.mkdir(parents=True)
    with pytest.raises(InstallError, match="Is a directory; remove the directory that lies in the place") as caught:
        environment.ensure(request_)
    assert caught.value.facts["path"] == str(lock)


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "No space left on device; free disk space there and run again"),
        (errno.EROFS, "Read-only file system; choose a root on a file system that can be written"),
        (errno.EIO, "Input/output error; look at it and run again"),
    ],
)
def test_an_error_of_the_system_is_a_message_with_path_reason_and_advice(
    request_: Request, monkeypatch: pytest.MonkeyPatch, number: int, says: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number), "/the/file")

    monkeypatch.setattr(environment_build.Builder, "build", fail)
    with pytest.raises(InstallError) as caught:
        environment.ensure(request_)
    assert str(caught.value) == f"making an environment below {request_.root}: /the/file: {says}"
    assert nothing_complete(request_.root)


def test_an_installer_that_fails_on_a_full_disk_gets_the_hint_whatever_it_says(
    request_: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    liar = tmp_path / "uv"
    liar.write_text("#!/bin/sh\necho 'No solution found'\nexit 2\n")
    liar.chmod(0o755)
    with pytest.raises(InstallError, match="check that the index or the wheelhouse holds"):
        environment.ensure(replace(request_, uv=str(liar)))
    full = shutil.disk_usage(tmp_path)._replace(free=70_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: full)
    with pytest.raises(InstallError, match=r"only 0\.1 MB are free at .*venvs: free disk space there and run again"):
        environment.ensure(replace(request_, uv=str(liar)))


# ---- whose the root is ---------------------------------------------------------------------------------------------


def marker_of(request_: Request) -> Path:
    return Path(request_.root, ".tokforge-sglang")


@pytest.mark.parametrize("existing", [False, True])
def test_the_root_is_marked_before_anything_else_is_written(request_: Request, existing: bool) -> None:
    if existing:
        Path(request_.root).mkdir()
    environment.ensure(request_, check_mode=True)
    assert not marker_of(request_).exists()
    with pytest.raises(InstallError, match="looking for uv"):
        environment.ensure(replace(request_, uv="/not/there/uv"))
    assert "tokforge.sglang" in marker_of(request_).read_text()
    assert marker_of(request_).stat().st_mode & 0o777 == 0o644


@needs_uv
def test_a_root_from_before_the_marker_gets_it_without_a_change(request_: Request) -> None:
    environment.ensure(request_)
    marker_of(request_).unlink()
    assert environment.ensure(request_, check_mode=True).changed is False
    assert not marker_of(request_).exists()
    assert environment.ensure(request_).changed is False
    assert marker_of(request_).exists()


@pytest.mark.parametrize(
    "name", ["venvs", "releases", "current", "state", "log", "bin", "bench", "cache", "models", "src"]
)
@pytest.mark.parametrize("check_mode", [False, True])
def test_a_directory_of_others_is_refused_and_left_alone(request_: Request, name: str, check_mode: bool) -> None:
    theirs = Path(request_.root, name)
    theirs.mkdir(parents=True)
    before = tree_of(Path(request_.root))
    with pytest.raises(InstallError, match=f"{theirs} is there and no rollout made this directory; choose an empty"):
        environment.ensure(request_, check_mode=check_mode)
    assert tree_of(Path(request_.root)) == before


def test_what_destroy_leaves_and_what_is_no_name_of_ours_is_accepted(request_: Request) -> None:
    Path(request_.root, "lost+found").mkdir(parents=True)
    assert environment.ensure(request_, check_mode=True).changed is True
    marker_of(request_).write_text("")
    Path(request_.root, "models").mkdir()
    Path(request_.root, "cache").mkdir()
    assert environment.ensure(request_, check_mode=True).changed is True


# ---- through Ansible -----------------------------------------------------------------------------------------------


def play(tmp_path: Path, arguments: Mapping[str, Any], *options: str) -> dict[str, Any]:
    """Run the module, through its action plugin, in a playbook; returns its result."""
    tasks = [
        {
            "name": "Make it",
            "tokforge.sglang.environment": dict(arguments),
            "register": "result",
            "ignore_errors": True,
        },
        {
            "name": "Keep the result",
            "ansible.builtin.copy": {"content": "{{ result | to_json }}", "dest": str(tmp_path / "result.json")},
            "check_mode": False,
        },
    ]
    hosts = {"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}
    (tmp_path / "play.yml").write_text(json.dumps([hosts]))
    command = [str(PLAYBOOK), "-i", "localhost,", "-e", f"ansible_python_interpreter={sys.executable}", *options]
    done = subprocess.run([*command, str(tmp_path / "play.yml")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads((tmp_path / "result.json").read_text())
    return result


@pytest.fixture
def arguments(request_: Request, tmp_path: Path) -> dict[str, Any]:
    files = tmp_path / "files"
    (files / "over" / "extra").mkdir(parents=True)
    (files / "over" / "extra" / "__init__.py").write_text("VALUE = 7\n")
    (files / "lock.txt").write_text(request_.lock)
    return {
        "root": request_.root,
        "kind": "sglang",
        "lock": "lock.txt",
        "overlay": "over",
        "uv": UV,
        "uv_cache": request_.uv_cache,
        "source": vars(request_.source) | {"commit": None, "version": None},
        "expect": {"sglang": "0.5.23"},
    }


@needs_uv
def test_the_module_predicts_builds_and_then_changes_nothing(arguments: dict[str, Any], tmp_path: Path) -> None:
    predicted = play(tmp_path, arguments, "--check", "--diff")
    assert (predicted["changed"], predicted["complete"]) == (True, False)
    assert predicted["diff"] == {"before": "", "after": f"{predicted['path']}\n"}
    assert not Path(arguments["root"]).exists()
    built = play(tmp_path, arguments)
    assert (built["changed"], built["complete"], built["id"]) == (True, True, predicted["id"])
    assert built["versions"]["sglang"] == "0.5.23"
    value = subprocess.check_output([built["python"], "-c", "import extra; print(extra.VALUE)"], text=True)
    assert value == "7\n"
    again = play(tmp_path, arguments, "--diff")
    assert (again["changed"], again["id"], again["diff"]["before"]) == (False, built["id"], f"{built['path']}\n")


def test_the_modules_failure_is_one_message_with_its_facts(arguments: dict[str, Any], tmp_path: Path) -> None:
    result = play(tmp_path, {**arguments, "requires_python": ">=9"})
    assert result["failed"] is True
    assert result["msg"].startswith("choosing a Python (auto): none fits, >=9 is needed")
    assert sys.executable in result["found"]


def test_the_release_decides_which_python_fits_when_nothing_is_said(arguments: dict[str, Any], tmp_path: Path) -> None:
    old = tmp_path / "python3.10"
    facts = {"version": "3.10.1", "implementation": "cpython", "abiflags": "", "platform": "linux-x86_64", "venv": True}
    old.write_text(f"#!/bin/sh\necho '{json.dumps(facts)}'\n")
    old.chmod(0o755)
    result = play(tmp_path, {**arguments, "python": str(old)}, "--check")
    assert releases.requires_python("0.5.23").startswith(">=3.11")
    assert f"none fits, {releases.requires_python('0.5.23')} is needed" in result["msg"]


def test_a_lock_that_is_not_there_is_named(arguments: dict[str, Any], tmp_path: Path) -> None:
    result = play(tmp_path, {**arguments, "lock": "cpu-9.9.9.txt"})
    assert result["failed"] is True
    assert "cpu-9.9.9.txt" in result["msg"]
