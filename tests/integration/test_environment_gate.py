# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The autotune gate as part of an environment: real installs with uv, of wheels with a small gate. No network."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from wheels import make_wheel

from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_gate, environment, environment_build
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_request import Request, Source
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError

UV = shutil.which("uv", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]))
pytestmark = pytest.mark.skipif(UV is None, reason="uv is not installed beside this Python nor on PATH")
GATE = "sglang/srt/model_executor/model_runner.py"
CHOICES = "MOE_RUNNER_BACKEND_CHOICES = [\n    'auto',\n    'flashinfer_cutlass',\n    'flashinfer_trtllm',\n]\n"


def gate(*lines: str) -> str:
    """A file with a gate whose collection has these lines."""
    body = "\n".join(f"            {line}" for line in lines)
    return textwrap.dedent(
        """\
        class Runner:
            def _should_run_flashinfer_autotune(self):
                if self.args.moe_runner_backend not in [
        BODY
                ]:
                    return False
                return True
        """
    ).replace("BODY", body)


CLOSED = gate('"flashinfer_trtllm",', '# "flashinfer_cutlass",')
OPEN = gate('"flashinfer_trtllm",', '"flashinfer_cutlass",')


def files(source: str) -> dict[str, str]:
    folders = ("sglang", "sglang/srt", "sglang/srt/model_executor")
    # Importing starts CUDA in the real one.
    package = {f"{folder}/__init__.py": "raise RuntimeError('imported')\n" for folder in folders}
    return {**package, GATE: source, "sglang/srt/server_args.py": CHOICES}


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    """SGLang 0.5.12.post1, whose gate is closed for flashinfer_cutlass."""
    return asked(tmp_path, "0.5.12.post1", CLOSED)


def asked(tmp_path: Path, version: str, source: str) -> Request:
    wheels = tmp_path / f"wheels-{version}"
    return Request(
        root=str(tmp_path / "root"),
        kind="sglang",
        lock=make_wheel(wheels, "sglang", version, files(source)),
        uv=UV,
        uv_cache=str(tmp_path / "uv-cache"),
        source=Source("wheelhouse", str(wheels)),
        expect={"sglang": version},
    )


def opened(request: Request, backend: str = "flashinfer_cutlass") -> Request:
    return replace(request, autotune_backend=backend)


def gate_of(outcome: environment.Outcome) -> Path:
    return next(Path(outcome.path).glob(f"lib/*/site-packages/{GATE}"))


def test_open_closed_open_makes_two_environments_and_finds_the_first_again(request_: Request) -> None:
    first = environment.ensure(opened(request_))
    closed = environment.ensure(request_)
    again = environment.ensure(opened(request_))
    assert (first.changed, closed.changed, again.changed) == (True, True, False)
    assert first.id == again.id != closed.id
    assert gate_of(first).read_text() == OPEN
    assert gate_of(closed).read_text() == CLOSED


def test_uvs_cache_and_the_other_environment_keep_their_file(request_: Request) -> None:
    closed = environment.ensure(request_)
    assert gate_of(closed).stat().st_nlink > 1  # otherwise this shows nothing
    first = environment.ensure(opened(request_))
    assert gate_of(first).stat().st_ino != gate_of(closed).stat().st_ino
    assert gate_of(closed).read_text() == CLOSED
    cached = [path.read_text() for path in Path(str(request_.uv_cache)).rglob("model_runner.py")]
    assert cached
    assert set(cached) == {CLOSED}


def test_what_is_tuned_is_recorded_and_told_for_each_backend(request_: Request) -> None:
    outcome = environment.ensure(opened(request_))
    recorded = outcome.facts["autotune_gate"]
    assert recorded["backends"] == {"flashinfer_trtllm": "upstream", "flashinfer_cutlass": "patch"}
    assert recorded["sha256"] == hashlib.sha256(OPEN.encode()).hexdigest()
    told = environment.as_result(outcome)["autotune_gate"]
    assert told == {
        "backend": "flashinfer_cutlass",
        "gate": "open_by_patch",
        "enabled_by": "patch",
        "backends": ["flashinfer_trtllm", "flashinfer_cutlass"],
        "file": str(gate_of(outcome)),
    }
    upstream = environment.as_result(environment.ensure(opened(request_, "flashinfer_trtllm")))["autotune_gate"]
    assert (upstream["gate"], upstream["enabled_by"]) == ("open_upstream", "upstream")
    nobody = environment.as_result(environment.ensure(request_))["autotune_gate"]
    assert (nobody["backend"], nobody["gate"], nobody["enabled_by"]) == (None, None, None)


@pytest.mark.parametrize(
    ("version", "kind", "by"), [("0.5.12", "open_by_patch", "patch"), ("0.5.23", "open_upstream", "upstream")]
)
def test_check_mode_foresees_the_gate(tmp_path: Path, version: str, kind: str, by: str) -> None:
    request = opened(asked(tmp_path, version, CLOSED if by == "patch" else OPEN))
    for check_mode in (True, False, True):
        result = environment.as_result(environment.ensure(request, check_mode))
        told = result["autotune_gate"]
        assert (told["backend"], told["gate"], told["enabled_by"]) == ("flashinfer_cutlass", kind, by)
        assert ("autotune gate is opened for flashinfer_cutlass" in result["diff"]["after"]) == (by == "patch")
    assert environment.as_result(environment.ensure(asked(tmp_path, "0.5.9", CLOSED), True))["autotune_gate"] is None


def test_a_release_that_tunes_the_backend_itself_is_one_environment_open_or_not(tmp_path: Path) -> None:
    request = asked(tmp_path, "0.5.23", OPEN)
    closed = environment.ensure(request)
    outcome = environment.ensure(opened(request))
    assert (outcome.changed, outcome.id) == (False, closed.id)
    assert gate_of(outcome).read_text() == OPEN
    assert environment.as_result(outcome)["autotune_gate"]["gate"] == "open_upstream"


def test_a_release_that_was_said_to_tune_it_and_does_not_is_refused(tmp_path: Path) -> None:
    request = opened(asked(tmp_path, "0.5.23", CLOSED))
    with pytest.raises(InstallError, match="is closed for flashinfer_cutlass, which this release was expected"):
        environment.ensure(request)
    assert not list(Path(request.root, "venvs").glob("*/environment.json"))
    # Also when the environment is there already, from a request without the gate.
    environment.ensure(replace(request, autotune_backend=None))
    with pytest.raises(InstallError, match="is closed for flashinfer_cutlass"):
        environment.ensure(request)


@pytest.mark.parametrize(
    ("version", "backend", "words"),
    [
        ("0.5.5", "flashinfer_cutlass", "has no FlashInfer autotune at all; use 0.5.7"),
        ("0.5.6", "flashinfer_cutlass", "looks at the attention backend"),
        ("0.5.12.post1", "auto", "name the backend"),
    ],
)
def test_what_cannot_be_opened_is_refused_before_anything_is_written(
    tmp_path: Path, version: str, backend: str, words: str
) -> None:
    request = asked(tmp_path, version, CLOSED)
    for check_mode in (True, False):
        with pytest.raises(InstallError, match=words):
            environment.ensure(opened(request, backend), check_mode)
    assert not Path(request.root).exists()


def test_a_backend_that_a_locked_release_does_not_have_is_refused_before_anything_is_written(request_: Request) -> None:
    for check_mode in (True, False):
        with pytest.raises(InstallError, match="did you mean flashinfer_cutlass") as caught:
            environment.ensure(opened(request_, "flashinfer_cutlas"), check_mode)
        assert "flashinfer_mxfp4" in caught.value.facts["choices"]
    assert not Path(request_.root).exists()


def test_a_backend_that_another_release_does_not_have_leaves_no_environment(tmp_path: Path) -> None:
    request = asked(tmp_path, "0.5.9", CLOSED)
    with pytest.raises(InstallError, match="did you mean flashinfer_cutlass") as caught:
        environment.ensure(opened(request, "flashinfer_cutlas"))
    assert caught.value.facts["choices"] == ["auto", "flashinfer_cutlass", "flashinfer_trtllm"]
    assert [path for path in Path(request.root, "venvs").glob("*") if path.is_dir()] == []


def test_a_changed_file_is_seen_however_the_root_is_spelled(request_: Request, tmp_path: Path) -> None:
    outcome = environment.ensure(request_)
    gate_of(outcome).unlink()
    link = tmp_path / "link"
    link.symlink_to(request_.root)
    for root in (str(link), f"{tmp_path}/./root", f"{tmp_path}/wheels-0.5.12.post1/../root"):
        with pytest.raises(InstallError, match="after the environment was built"):
            environment.ensure(replace(request_, root=root))


def tree_with(tmp_path: Path, source: str) -> str:
    tree = tmp_path / "tree"
    for name, text in files(source).items():
        path = tree / "python" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tree / "python" / "pyproject.toml").write_text("[project]\nname = 'sglang'\n")
    return str(tree)


@pytest.mark.parametrize(
    ("source", "words"),
    [(CLOSED, "used in place is not edited: open it with the module"), ("X = 1\n", "came with one")],
)
def test_a_source_tree_that_is_not_open_is_refused_before_anything_is_made(
    tmp_path: Path, source: str, words: str
) -> None:
    tree = Source("checkout", tree_with(tmp_path, source), version="0.5.12")
    (tmp_path / "tree/python/sglang/version.py").write_text('__version__ = "0.5.12"\n')
    request = replace(asked(tmp_path, "0.5.12", CLOSED), source=tree)
    for check_mode in (True, False):
        with pytest.raises(InstallError, match=words):
            environment.ensure(opened(request), check_mode)
    assert not Path(request.root).exists()


def test_a_source_tree_that_is_open_already_needs_no_edit(tmp_path: Path) -> None:
    tree = Source("checkout", tree_with(tmp_path, OPEN), version="0.5.24")
    # What the lock says of the release it replaces does not count.
    request = replace(asked(tmp_path, "0.5.5", OPEN), source=tree)
    outcome = environment.ensure(opened(request), check_mode=True)
    assert outcome.changed
    assert outcome.id == environment.ensure(request, check_mode=True).id


def test_a_structure_that_is_not_known_leaves_no_environment(tmp_path: Path) -> None:
    strange = CLOSED + "\ndef should_run_flashinfer_autotune(x):\n    return x.moe_runner_backend in ['a']\n"
    request = asked(tmp_path, "0.5.12", strange)
    with pytest.raises(InstallError, match="2 definitions of the gate"):
        environment.ensure(opened(request))
    assert [path for path in Path(request.root, "venvs").glob("*") if path.is_dir()] == []
    # Nobody asked for the gate, so the structure is no reason against it.
    outcome = environment.ensure(request)
    assert outcome.facts["autotune_gate"] is None


@pytest.mark.parametrize("state", ["open", "closed"])
def test_a_file_that_was_changed_after_the_build_is_seen(request_: Request, state: str) -> None:
    request = opened(request_) if state == "open" else request_
    outcome = environment.ensure(request)
    path = gate_of(outcome)
    path.unlink()  # not through the hard link
    path.write_text(OPEN if state == "closed" else CLOSED)
    for check_mode in (True, False):
        with pytest.raises(
            InstallError, match=r"model_runner\.py was changed after the environment was built"
        ) as caught:
            environment.ensure(request, check_mode)
        assert f"remove {outcome.path} and run again" in str(caught.value)
        # Closing brings the recorded file back only where the record is the release's own.
        assert ("state: closed" in str(caught.value)) == (state == "closed")
    path.write_text(CLOSED if state == "closed" else OPEN)
    assert environment.ensure(request).changed is False


def test_a_file_that_is_gone_is_seen(request_: Request) -> None:
    gate_of(environment.ensure(request_)).unlink()
    with pytest.raises(InstallError, match=r"cannot be read \(No such file or directory\)"):
        environment.ensure(request_)


def test_the_edit_is_in_the_bytecode_too(request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_build, "COMPILE_FROM_CPUS", 1)
    outcome = environment.ensure(opened(request_))
    code = (
        "import importlib.machinery as m, sys, types\n"
        "loader = m.SourcelessFileLoader('runner', sys.argv[1])\n"
        "module = types.ModuleType('runner'); loader.exec_module(module)\n"
        "runner = module.Runner(); runner.args = types.SimpleNamespace(moe_runner_backend='flashinfer_cutlass')\n"
        "print(runner._should_run_flashinfer_autotune())"
    )
    compiled = [str(path) for path in gate_of(outcome).parent.glob("__pycache__/model_runner.*.pyc")]
    assert len(compiled) == 1
    done = subprocess.run([outcome.python, "-c", code, compiled[0]], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_an_install_that_is_stopped_at_the_edit_builds_again(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(autotune_gate, "apply", stop)
        environment.ensure(opened(request_))
    outcome = environment.ensure(opened(request_))
    assert outcome.changed is True
    assert gate_of(outcome).read_text() == OPEN
