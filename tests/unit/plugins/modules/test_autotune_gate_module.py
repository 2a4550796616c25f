# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module, run as Ansible runs it: one JSON in, one JSON out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

MODULE = "ansible_collections.tokforge.sglang.plugins.modules.autotune_gate"
X = "flashinfer_cutlass"
CLOSED = f"""\
# ä
def _should_run_flashinfer_autotune(args):
    return args.moe_runner_backend in (
        "flashinfer_trtllm",
        # "{X}",
    )
"""
OPEN = CLOSED.replace(f'# "{X}"', f'"{X}"')


def run(check: bool = False, diff: bool = False, **params: Any) -> dict[str, Any]:
    """The module's answer; `failed` is there when it failed."""
    done = subprocess.run(
        [sys.executable, "-m", MODULE],
        input=json.dumps(
            {"ANSIBLE_MODULE_ARGS": {"_ansible_check_mode": check, "_ansible_diff": diff, "backend": X, **params}}
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (1 if answer.get("failed") else 0), done.stderr
    return answer


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file with a closed gate, in an SGLang below tmp_path."""
    path = tmp_path / "sglang" / "srt" / "model_executor" / "model_runner.py"
    path.parent.mkdir(parents=True)
    path.write_text(CLOSED)
    (tmp_path / "sglang" / "version.py").write_text('__version__ = "0.5.12"\n')
    return path


@pytest.fixture
def source(file: Path, tmp_path: Path) -> str:
    """The directory to give."""
    return str(tmp_path)


def expected(file: Path, **more: Any) -> dict[str, Any]:
    """What a look at the closed gate returns."""
    return {
        "gate": "closed",
        "gate_after": "closed",
        "file": str(file),
        "line": 3,
        "sglang_version": "0.5.12",
        "backends_before": ["flashinfer_trtllm"],
        "backends_after": ["flashinfer_trtllm"],
        "enabled_by": None,
        "changed": False,
        "restart_required": False,
        **more,
    }


def part(answer: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    return {name: answer.get(name) for name in facts}


def test_opening_returns_before_and_after_and_a_second_run_changes_nothing(file: Path, source: str) -> None:
    opened = expected(
        file,
        gate_after="open_by_patch",
        line=5,
        backends_after=["flashinfer_trtllm", X],
        enabled_by="patch",
        changed=True,
        restart_required=True,
    )
    answer = run(source=source)
    assert part(answer, opened) == opened
    assert answer["msg"] == f"opened the gate for {X} in {file} line 5"
    assert "diff" not in answer and "warnings" not in answer
    assert file.read_text() == OPEN
    again = {
        **opened,
        "gate": "open_by_patch",
        "backends_before": ["flashinfer_trtllm", X],
        "changed": False,
        "restart_required": False,
    }
    assert part(run(source=source), again) == again
    closed = expected(file, gate="open_by_patch", backends_before=opened["backends_after"], changed=True)
    closed["restart_required"] = True
    assert part(run(source=source, state="closed"), closed) == closed
    assert file.read_text() == CLOSED
    assert os.listdir(file.parent) == [file.name]
    assert part(run(source=source, state="closed"), expected(file)) == expected(file)


@pytest.mark.parametrize("state", ["open", "closed"])
def test_check_mode_predicts_and_writes_nothing(file: Path, source: str, state: str) -> None:
    if state == "closed":
        run(source=source)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in file.parent.iterdir()}
    predicted = run(check=True, diff=True, source=source, state=state)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in file.parent.iterdir()} == before
    assert predicted["changed"] is True
    done = run(diff=True, source=source, state=state)
    assert predicted["msg"] == f"check mode, nothing was written: would have {done['msg']}"
    assert {**predicted, "msg": done["msg"]} == done


def test_diff_is_the_exact_file_before_and_after(file: Path, source: str) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + CLOSED.replace("\n", "\r\n").encode())
    diff = run(diff=True, source=source)["diff"]
    assert diff == {
        "before_header": str(file),
        "after_header": str(file),
        "before": CLOSED.replace("\n", "\r\n"),
        "after": OPEN.replace("\n", "\r\n"),
    }
    same = run(diff=True, source=source)["diff"]
    assert same["before"] == same["after"] == OPEN.replace("\n", "\r\n")


def test_release_that_tunes_it_is_left_alone(file: Path, source: str) -> None:
    answer = run(source=source, backend="flashinfer_trtllm", state="closed")
    assert (answer["gate"], answer["enabled_by"], answer["line"]) == ("open_upstream", "upstream", 4)
    assert answer["changed"] is False


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        ("X = 1\n", "unsupported_release", None),
        (CLOSED.replace("moe_runner_backend", "attention_backend"), "other_gate", 3),
    ],
)
def test_release_without_the_gate_fails_or_not_as_asked(
    file: Path, source: str, text: str, kind: str, line: int | None
) -> None:
    file.write_text(text)
    version = "0.5.5" if kind == "unsupported_release" else "0.5.12"
    (Path(source) / "sglang" / "version.py").write_text(f'__version__ = "{version}"\n')
    seen = {
        "gate": kind,
        "gate_after": kind,
        "line": line,
        "backends_before": [],
        "enabled_by": None,
        "changed": False,
        "restart_required": False,
        "sglang_version": version,
    }
    failed = run(source=source)
    assert failed["failed"] and part(failed, seen) == seen
    assert "use 0.5.7 or newer" in failed["msg"]
    passed = run(source=source, when_unsupported="ok", check=True)
    assert part(passed, seen) == seen
    assert passed["msg"] == failed["msg"]
    assert file.read_text() == text


def test_unknown_structure_fails_whatever_is_asked(file: Path, source: str) -> None:
    text = CLOSED.replace("in (", "not in (")
    file.write_text(text)
    for state in ("open", "closed"):
        answer = run(source=source, when_unsupported="ok", state=state, check=True)
        assert answer["failed"] and answer["gate"] == "unknown_structure"
        assert (answer["file"], answer["line"]) == (str(file), 3)
        assert "names the backends that are not tuned; nothing was changed" in answer["msg"]
    assert file.read_text() == text


def test_refused_closing_returns_the_facts(file: Path, source: str) -> None:
    file.write_text(OPEN)
    answer = run(source=source, state="closed")
    facts = expected(file, gate="open_by_patch", gate_after="open_by_patch", line=5, enabled_by="foreign_patch")
    facts["backends_before"] = facts["backends_after"] = ["flashinfer_trtllm", X]
    assert answer["failed"] and part(answer, facts) == facts
    assert "what it was is not known; restore the file from its release" in answer["msg"]
    assert file.read_text() == OPEN


def test_backend_that_is_none_fails_with_the_choices(file: Path, source: str) -> None:
    (file.parent.parent / "server_args.py").write_text(f'MOE_RUNNER_BACKEND_CHOICES = ["auto", "{X}"]\n')
    answer = run(source=source, backend="flashinfer_cutlas")
    assert answer["failed"] and answer["choices"] == ["auto", X]
    assert f"did you mean {X}?" in answer["msg"]
    for name in ("auto", "", 'a", "b'):
        assert run(source=source, backend=name)["failed"]
    assert file.read_text() == CLOSED


def test_directory_and_interpreter_without_sglang_fail(tmp_path: Path) -> None:
    assert "holds none of sglang/srt" in run(source=str(tmp_path))["msg"]
    assert "No such file or directory" in run(python=str(tmp_path / "none"))["msg"]
    assert "required" in run()["msg"]
    assert "mutually exclusive" in run(python="/bin/sh", source=str(tmp_path))["msg"]


def test_interpreter_that_fails_in_between_returns_what_was_known(file: Path, tmp_path: Path) -> None:
    # It reads the file once, when the gate is looked for; then it is broken.
    program = tmp_path / "python"
    program.write_text(
        f"#!/bin/sh\nset -eu\ncd {tmp_path}\nread -r n < count\necho $((n + 1)) > count\n"
        f'[ "$n" -lt 2 ] || {{ echo gone >&2; exit 5; }}\nexec {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    (tmp_path / "count").write_text("1\n")
    driver = tmp_path / "driver.py"
    driver.write_text(
        "from ansible_collections.tokforge.sglang.plugins.module_utils import gate_syntax, sglang_tree\n"
        "def no(text): raise gate_syntax.UnreadableError('newer', 1)\n"
        "gate_syntax._parse = no\n"
        f"tree = sglang_tree.Tree({str(tmp_path / 'sglang' / 'srt')!r}, '0.5.12', {str(program)!r}, '3.x')\n"
        "from ansible_collections.tokforge.sglang.plugins.modules import autotune_gate\n"
        "autotune_gate.tree_of = lambda params: tree\n"
        "autotune_gate.main()\n"
    )
    done = subprocess.run(
        [sys.executable, str(driver)],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": {"backend": X, "source": str(tmp_path)}}),
        capture_output=True,
        text=True,
        check=False,
    )
    answer = json.loads(done.stdout)
    assert answer["failed"] and answer["msg"] == f"running {program}: it ended with 5: gone; give a working interpreter"
    assert (answer["gate"], answer["line"], answer["python"]) == ("closed", 3, str(program))
    assert file.read_text() == CLOSED


@pytest.mark.parametrize("check", [True, False])
def test_change_inside_a_complete_environment_is_warned_about(
    file: Path, source: str, tmp_path: Path, check: bool
) -> None:
    run(source=source, state="closed")
    (tmp_path / "environment.json").write_text("{}")
    answer = run(source=source, check=check)
    assert answer["changed"] is True
    assert len(answer["warnings"]) == 1
    text = answer["warnings"][0]
    assert (text if isinstance(text, str) else str(text)).find(f"{tmp_path} is a complete environment") >= 0
    if not check:
        assert "warnings" not in run(source=source)


def test_interpreters_sglang_is_opened_and_the_real_program_follows(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (lib,) = (tmp_path / "venv" / "lib").iterdir()
    file = lib / "site-packages" / "sglang" / "srt" / "model_executor" / "model_runner.py"
    file.parent.mkdir(parents=True)
    file.write_text(CLOSED)
    (lib / "site-packages" / "sglang" / "__init__.py").write_text("raise SystemExit('SGLang was imported')\n")
    answer = run(python=str(tmp_path / "venv" / "bin" / "python"))
    assert (answer["changed"], answer["file"], answer["sglang_version"]) == (True, str(file), None)
    assert file.read_text() == OPEN
