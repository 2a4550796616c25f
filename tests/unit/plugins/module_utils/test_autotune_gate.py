# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a gate, opening and closing it, and what a stop, a foreign hand or a bad file does to that."""

from __future__ import annotations

import base64
import contextlib
import errno
import functools
import glob
import hashlib
import json
import os
import py_compile
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    autotune_gate,
    gate_meaning,
    gate_note,
    gate_search,
    gate_syntax,
    gate_write,
    sglang_tree,
    source_text,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.autotune_gate import (
    CLOSED,
    FOREIGN,
    OPEN_BY_PATCH,
    OPEN_UPSTREAM,
    OTHER,
    PATCH,
    UNKNOWN,
    UNSUPPORTED,
    UPSTREAM,
    Change,
    Gate,
    GateError,
    Source,
    apply,
    examine,
    expected,
    plan,
    tuned,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.sglang_tree import Tree, TreeError

NAME = gate_syntax.GATE_NAMES[0]
X = "flashinfer_cutlass"
RUNNER = "model_executor/model_runner.py"

CLOSED_TEXT = f'''\
class Runner:
    def {NAME}(self):
        if self.args.off:
            return False
        if self.args.moe_runner_backend == "apart":
            return False
        if self.args.moe_runner_backend not in [
            "a",
            # breaks: {X}
            # "{X}",
        ]:
            return False
        return True
'''
OPEN_TEXT = CLOSED_TEXT.replace(f'# "{X}",', f'"{X}",')


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Site:
    """A directory with an SGLang of the given files below srt, as a wheel would leave it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.srt = root / "sglang" / "srt"
        self.path = self.srt / RUNNER
        self.version: str | None = None

    def write(self, files: dict[str, str | bytes], version: str | None = "0.5.12", record: bool = True) -> Site:
        for name, text in files.items():
            path = self.srt / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.version = version
        if version:
            info = self.root / f"sglang-{version}.dist-info"
            info.mkdir(exist_ok=True)
            (info / "METADATA").write_text(f"Name: sglang\nVersion: {version}\n")
            if record:
                self.record()
        return self

    def record(self) -> None:
        """What the files are now is what the wheel brought."""
        rows = []
        for path in sorted(self.srt.rglob("*.py")):
            digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
            rows.append(f"{path.relative_to(self.root)},sha256={digest},1\n")
        (self.root / f"sglang-{self.version}.dist-info" / "RECORD").write_text("".join(rows))

    @property
    def tree(self) -> Tree:
        return sglang_tree.of_source(str(self.root))

    def gate(self, backend: str = X) -> Gate:
        return examine(self.tree, backend)[0]

    def source(self, backend: str = X) -> Source:
        found = examine(self.tree, backend)[1]
        assert found is not None
        return found

    def set(self, state: str, backend: str = X) -> Change:
        gate, source = examine(self.tree, backend)
        change = plan(gate, source, state)
        assert source is not None
        apply(source, change)
        assert examine(self.tree, backend)[0] == change.after, "the prediction is not what came of it"
        return change

    @property
    def note(self) -> Path:
        return self.path.with_name(f".{self.path.name}.tokforge-gate.json")

    def litter(self) -> list[str]:
        """Names beside the file that are none of SGLang's."""
        known = {self.path.name, "__pycache__"}
        return sorted(name for name in os.listdir(self.path.parent) if name not in known)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """An SGLang whose gate is closed for X, which stands in a comment."""
    return Site(tmp_path / "site").write({RUNNER: CLOSED_TEXT})


def built(tmp_path: Path, files: dict[str, str | bytes], **more: Any) -> Site:
    return Site(tmp_path / "site").write({RUNNER: "X = 1\n", **files}, **more)


def gate_text(names: str = '"a"', function: str = NAME) -> str:
    return f"def {function}(args):\n    return args.moe_runner_backend in [{names}]\n"


# --- what releases are known for -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "backend", "kind"),
    [
        ("0.5.0rc0", X, UNSUPPORTED),
        ("0.5.5.post3", X, UNSUPPORTED),
        ("0.5.6", X, OTHER),
        ("0.5.6.post2", "flashinfer_trtllm", OTHER),
        ("0.5.7rc1", X, OTHER),
        ("0.5.7", X, CLOSED),
        ("0.5.7", "flashinfer_trtllm", OPEN_UPSTREAM),
        ("0.5.10.post1", "flashinfer_cutedsl", CLOSED),
        ("0.5.11", "flashinfer_cutedsl", OPEN_UPSTREAM),
        ("0.5.12.post1", X, CLOSED),
        ("0.5.12.post1+local", X, CLOSED),
        ("0.5.13.dev4+gabc", X, CLOSED),
        ("0.5.13", X, OPEN_UPSTREAM),
        ("0.5.21", "flashinfer_megamoe", CLOSED),
        ("0.5.22", "flashinfer_megamoe", OPEN_UPSTREAM),
        ("0.5.23", "triton", CLOSED),
        ("0.5.23.post9", X, None),
        ("0.5.24", X, None),
        ("0.6", X, None),
        ("1.0.0", X, None),
        ("0.0.0.dev0", X, None),
        ("main", X, None),
        ("", X, None),
        ("0.4", X, UNSUPPORTED),
    ],
)
def test_release_is_expected_to_have_the_gate_it_came_with(version: str, backend: str, kind: str | None) -> None:
    assert expected(version, backend) == kind


# --- the backend's name ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ['a", "b', "a'b", "a\nb", "a\n", "", " ", "-a", "1a", "a b", "ä", "a\\", "a#", "a\0", "x" * 101, "x" * 10_000],
)
def test_name_that_could_be_more_than_a_name_is_refused(site: Site, name: str) -> None:
    with pytest.raises(GateError, match="a name is at most 100 letters") as caught:
        site.gate(name)
    assert len(str(caught.value)) < 300
    assert len(caught.value.facts["backend"]) < 110
    assert site.path.read_text() == CLOSED_TEXT


def test_auto_is_refused_since_the_gate_never_sees_it(site: Site) -> None:
    with pytest.raises(GateError, match="reading the backend 'auto': SGLang replaces it by another name"):
        site.gate("auto")


def test_backend_has_to_be_one_of_the_releases_own(site: Site) -> None:
    (site.srt / "server_args.py").write_text(f'MOE_RUNNER_BACKEND_CHOICES = ["auto", "a", "{X}"]\n')
    assert site.gate().kind == CLOSED
    with pytest.raises(GateError) as caught:
        site.gate("flashinfer_cutlas")
    assert str(caught.value) == (
        "reading the backend 'flashinfer_cutlas': SGLang 0.5.12 has no such --moe-runner-backend; did you mean "
        f"{X}? choices there: auto, a, {X}"
    )
    assert caught.value.facts == {"backend": "flashinfer_cutlas", "choices": ["auto", "a", X]}
    with pytest.raises(GateError, match=r"backend; choices there: auto, a"):
        site.gate("zzz")


def test_longest_name_and_all_its_characters_can_be_opened(site: Site) -> None:
    name = "A" + "z9_.-" * 19
    assert site.set("open", name).after.backends == ("a", name)


# --- states ----------------------------------------------------------------------------------------------------------


def test_closed_gate_names_the_line_of_its_test(site: Site) -> None:
    assert site.gate() == Gate(CLOSED, X, "0.5.12", str(site.path), 7, ("a",), None)


def test_gate_of_the_release_is_open_upstream_at_the_line_of_the_name(site: Site) -> None:
    assert site.gate("a") == Gate(OPEN_UPSTREAM, "a", "0.5.12", str(site.path), 8, ("a",), UPSTREAM)


def test_backend_that_is_answered_apart_is_unknown_and_others_are_not(site: Site) -> None:
    gate, source = examine(site.tree, "apart")
    assert (gate.kind, gate.backends, source) == (UNKNOWN, ("a",), None)
    assert gate.why == "naming apart in its collection would not lead to autotune"
    assert site.gate().kind == CLOSED


def test_release_without_autotune_is_unsupported(tmp_path: Path) -> None:
    site = built(tmp_path, {"layers/x.py": "# flashinfer_autotune\nX = 'flashinfer_autotune'\n"}, version="0.5.5")
    gate, source = examine(site.tree, X)
    assert (gate.kind, gate.file, gate.line, source) == (UNSUPPORTED, None, None, None)
    assert gate.why == f"sglang/srt/model_executor has no function {NAME}"


def test_gate_that_moved_is_not_taken_for_a_release_without_one(tmp_path: Path) -> None:
    site = built(tmp_path, {"layers/x.py": "\nimport a\ndef run_flashinfer_autotune(): pass\n"})
    gate = site.gate()
    assert (gate.kind, gate.file, gate.line) == (UNKNOWN, str(site.srt / "layers" / "x.py"), 3)
    assert gate.why == (
        f"sglang/srt/layers/x.py line 3 speaks of flashinfer_autotune, but no function {NAME} is below "
        "sglang/srt/model_executor"
    )


@pytest.mark.parametrize("data", [b"flashinfer_autotune = (\n", b"flashinfer_autotune = 1 # \xff\n"])
def test_file_that_speaks_of_it_and_cannot_be_read_is_no_proof_that_there_is_none(tmp_path: Path, data: bytes) -> None:
    assert built(tmp_path, {"layers/x.py": data}).gate().kind == UNKNOWN


def test_half_an_sglang_is_unknown(tmp_path: Path) -> None:
    site = Site(tmp_path / "site").write({"x.py": ""})
    assert site.gate().why == "there is no sglang/srt/model_executor, so this is no whole SGLang"
    (site.srt / "model_executor").mkdir()
    assert site.gate().why == "sglang/srt/model_executor holds no model_runner.py, so this is no whole SGLang"


def test_attention_gate_is_another_gate(tmp_path: Path) -> None:
    text = f'def {NAME}(args):\n    return args.attention_backend in ["flashinfer"]\n'
    gate, source = examine(built(tmp_path, {RUNNER: text}, version="0.5.6").tree, X)
    assert (gate.kind, gate.line, gate.backends, source) == (OTHER, 2, (), None)
    assert gate.why == 'args.attention_backend in ["flashinfer"]'


def test_gate_is_found_in_any_file_of_the_executor(tmp_path: Path) -> None:
    site = built(tmp_path, {"model_executor/sub/warm.py": gate_text(function=gate_syntax.GATE_NAMES[1])})
    assert site.gate().file == str(site.srt / "model_executor/sub/warm.py")


def test_every_kind_has_words_of_its_own(tmp_path: Path) -> None:
    said = [
        autotune_gate.refusal(Gate(kind, X, version, file, line, why=why))
        for kind, version, file, line, why in (
            (UNSUPPORTED, "0.5.5", None, None, "it has none"),
            (OTHER, "0.5.6", "/f.py", 3, "args.attention in []"),
            (UNKNOWN, None, "/f.py", None, "it is odd"),
            (UNKNOWN, "0.5.8", None, None, "it is odd"),
            (UNSUPPORTED, "0.5.5", None, None, ""),
            (OTHER, "0.5.6", None, None, ""),
        )
    ]
    assert said == [
        f"tuning {X} in SGLang 0.5.5: this release has no FlashInfer autotune at all (it has none); use 0.5.7 or newer",
        f"tuning {X} in SGLang 0.5.6: its gate /f.py line 3 looks at the attention backend, not at the MoE runner "
        "(args.attention in []); use 0.5.7 or newer",
        "reading the autotune gate of SGLang of unknown version: /f.py: it is odd; nothing was changed, since this "
        "structure is not known: see what the file says, restore it if it was edited, or report this release",
        "reading the autotune gate of SGLang 0.5.8: it is odd; nothing was changed, since this structure is not known: "
        "see what the file says, restore it if it was edited, or report this release",
        f"tuning {X} in SGLang 0.5.5: this release has no FlashInfer autotune at all; use 0.5.7 or newer",
        f"tuning {X} in SGLang 0.5.6: its gate looks at the attention backend, not at the MoE runner; use 0.5.7 or "
        "newer",
    ]
    with pytest.raises(GateError, match="this release has no FlashInfer autotune") as caught:
        plan(Gate(UNSUPPORTED, X, "0.5.5"), None, "open")
    assert caught.value.facts == {"gate": UNSUPPORTED}


def test_files_that_cannot_be_read_are_an_error_and_no_missing_gate(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(source_text, "read", refused)
    for look in (lambda: examine(site.tree, X), lambda: tuned(site.tree)):
        with pytest.raises(GateError, match=f"reading {site.path}: Permission denied; make it readable"):
            look()


def test_what_is_tuned_is_told_with_who_put_it_there(site: Site, tmp_path: Path) -> None:
    site.set("open", "mine")
    assert tuned(site.tree) == autotune_gate.Tuned(str(site.path), {"a": UPSTREAM, "mine": PATCH})
    site.set("closed")
    site.path.write_text(OPEN_TEXT)
    found = tuned(site.tree)
    assert found is not None
    assert found.enabled_by == {"a": UPSTREAM, X: FOREIGN}
    site.path.write_text("X = 1\n")
    assert tuned(site.tree) is None
    site.path.write_text(f"def {NAME}(args):\n    return 1\n")
    assert tuned(site.tree) is None
    shutil.rmtree(site.path.parent)
    assert tuned(site.tree) is None


# --- definitions and delegates ---------------------------------------------------------------------------------------

OTHERS = "layers/gates.py"


@pytest.mark.parametrize(
    "runner",
    [
        f"def {NAME}(a):\n    from sglang.srt.layers.gates import decide\n    return decide(a)\n",
        f"from sglang.srt.layers.gates import decide as d\nclass R:\n    def {NAME}(self):\n        return d(self)\n",
        f"from ..layers.gates import decide\nclass R:\n    def {NAME}(self):\n        return decide(self)\n",
        f"def {NAME}(a):\n    from ..layers import gates\n    return gates.decide(a)\n",
        f"from .. import layers\ndef {NAME}(a):\n    return layers.gates_decide(a)\n",
        f"import sglang.srt.layers.gates\ndef {NAME}(a):\n    return sglang.srt.layers.gates.decide(a)\n",
        f"import sglang.srt.layers.gates as g\ndef {NAME}(a):\n    return bool(g.decide(a))\n",
        f"def {NAME}(a):\n    return step(a)\ndef step(a):\n    from .step import next_step\n    return next_step(a)\n",
        f"from sglang.srt.layers.gates import Gates\ndef {NAME}(a):\n    return Gates.decide(a)\n",
        f"from sglang.srt.layers.gates import decide\n@first\nasync def {NAME}(a):\n    return await decide(a)\n",
    ],
)
def test_delegate_leads_to_the_real_gate(tmp_path: Path, runner: str) -> None:
    site = built(
        tmp_path,
        {
            RUNNER: runner,
            OTHERS: "\n" + gate_text(function="decide"),
            "layers/__init__.py": "def gates_decide(a):\n    from .gates import decide\n    return decide(a)\n",
            "model_executor/step.py": "from ..layers.gates import decide as e\ndef next_step(a):\n    return e(a)\n",
        },
    )
    gate = site.gate()
    assert (gate.kind, gate.file, gate.line, gate.why) == (CLOSED, str(site.srt / OTHERS), 3, "")


def test_method_leads_to_the_function_of_its_module(tmp_path: Path) -> None:
    text = f"class R:\n    def {NAME}(self):\n        return {NAME}(self)\n{gate_text()}"
    assert built(tmp_path, {RUNNER: text}).gate().line == 5


def test_package_beside_is_reached_through_its_init(tmp_path: Path) -> None:
    runner = f"def {NAME}(a):\n    from . import decide\n    return decide(a)\n"
    site = built(tmp_path, {RUNNER: runner, "model_executor/__init__.py": gate_text(function="decide")})
    assert site.gate().file == str(site.srt / "model_executor/__init__.py")


@pytest.mark.parametrize(
    "runner",
    [
        f"def {NAME}(a):\n    return {NAME}(a)\n",
        f"def {NAME}(a):\n    return step(a)\ndef step(a):\n    return {NAME}(a)\n",
        f"from flashinfer.tuner import decide\ndef {NAME}(a):\n    return decide(a)\n",
        f"from sglang.srt.layers.nowhere import decide\ndef {NAME}(a):\n    return decide(a)\n",
        f"from sglang.srt.layers.gates import missing\ndef {NAME}(a):\n    return missing(a)\n",
        f"from sglang.srt.layers.gates import stub\ndef {NAME}(a):\n    return stub(a)\n",
        f"from . import nowhere\ndef {NAME}(a):\n    return nowhere.decide(a)\n",
        f"def {NAME}(a):\n    return any(a)\n",
        "".join(f"def step{n}(a):\n    return step{n + 1}(a)\n" for n in range(9))
        + f"def {NAME}(a):\n    return step0(a)\n"
        + gate_text(function="step9"),
    ],
)
@pytest.mark.parametrize("also", [False, True])
def test_delegate_that_leads_nowhere_is_unknown_even_beside_a_gate(tmp_path: Path, runner: str, also: bool) -> None:
    files: dict[str, str | bytes] = {RUNNER: runner, OTHERS: "def stub(a): ...\n# missing\n"}
    if also:
        files["model_executor/other.py"] = gate_text()
    gate, source = examine(built(tmp_path, files).tree, X)
    assert (gate.kind, source) == (UNKNOWN, None)
    assert "whose definition was not found" in gate.why and f"{RUNNER} line" in gate.why


def test_two_real_definitions_are_refused_with_both_places(tmp_path: Path) -> None:
    site = built(tmp_path, {"model_executor/a.py": gate_text(), "model_executor/b.py": f"\n\n{gate_text()}"})
    gate = site.gate()
    assert (gate.kind, gate.file, gate.line) == (UNKNOWN, str(site.srt / "model_executor/a.py"), 1)
    assert gate.why == (
        "2 definitions of the gate were found: sglang/srt/model_executor/a.py line 1, "
        "sglang/srt/model_executor/b.py line 3"
    )


def test_old_and_new_name_side_by_side_are_two_unless_one_calls_the_other(tmp_path: Path) -> None:
    new = gate_syntax.GATE_NAMES[1]
    site = built(tmp_path, {RUNNER: gate_text() + gate_text(function=new)})
    assert site.gate().why.startswith("2 definitions")
    site.path.write_text(f"def {NAME}(a):\n    return {new}(a)\n{gate_text(function=new)}")
    assert (site.gate().kind, site.gate().line) == (CLOSED, 4)


def test_file_with_two_names_counts_once(tmp_path: Path) -> None:
    runner = f"from .alias import {NAME} as real\ndef {NAME}(a):\n    return real(a)\n"
    site = built(tmp_path, {RUNNER: runner, "model_executor/gate.py": gate_text()})
    (site.srt / "model_executor/alias.py").symlink_to("gate.py")
    assert site.gate().kind == CLOSED


def test_stubs_and_overloads_do_not_count_but_are_no_gate_alone(tmp_path: Path) -> None:
    stubs = f"class P:\n    def {NAME}(self): ...\n@overload\ndef {NAME}(a): ...\n"
    site = built(tmp_path, {RUNNER: stubs + gate_text()})
    assert site.gate().line == 6
    site.path.write_text(stubs)
    assert site.gate().kind == UNKNOWN
    assert site.gate().why == f"sglang/srt/{RUNNER} line 2: {NAME} does nothing"


def test_constant_that_another_file_uses_is_refused_with_the_place(tmp_path: Path) -> None:
    text = f'KNOWN = ["a"]\ndef {NAME}(args):\n    return args.moe_runner_backend in KNOWN\n'
    site = built(tmp_path, {RUNNER: text, "layers/x.py": "# KNOWN\nKNOWN = 1\n"})
    assert site.gate().kind == CLOSED
    (site.srt / "layers/x.py").write_text("from a import (\n    KNOWN,\n)\n")
    gate, source = examine(site.tree, X)
    assert (gate.kind, source) == (UNKNOWN, None)
    assert gate.why == "the collection KNOWN is used in sglang/srt/layers/x.py line 1 too, so an edit would change more"
    assert tuned(site.tree) is None


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"# " + NAME.encode() + b" \xff\n", "is not text"),
        (b"# coding: none\n# " + NAME.encode() + b"\n", "is not text"),
        (b"# coding: utf-7\n# +AGE- +AGEAYg- " + NAME.encode() + b" a+AAA\n", "is not the only way"),
        (b"X = (\n# " + NAME.encode() + b"\n", f"sglang/srt/{RUNNER} line 1 is no Python"),
        (b"X = 1\0 # " + NAME.encode() + b"\n", f"sglang/srt/{RUNNER} is no Python"),
    ],
)
def test_file_that_is_no_plain_python_is_unknown(tmp_path: Path, data: bytes, why: str) -> None:
    gate = built(tmp_path, {RUNNER: data}).gate()
    assert gate.kind == UNKNOWN
    # Which of both a null byte is differs between releases of Python.
    assert why.split(" is ")[-1] in gate.why


def test_file_that_only_another_python_can_read_asks_for_that_one(tmp_path: Path) -> None:
    gate = built(tmp_path, {RUNNER: f"print 1\n# {NAME}\n"}).gate()
    assert gate.why.startswith(f"sglang/srt/{RUNNER} line 1 is no Python {sys.version_info[0]}.{sys.version_info[1]}: ")
    assert gate.why.endswith("; if it is fine for a newer one, give python, the interpreter of this SGLang")
    assert gate.line == 1


@pytest.mark.parametrize(
    "head",
    [
        b"# \xc3\xa4\n",
        b"# coding: latin-1\n# \xe4\xff\n",
        b"\xef\xbb\xbf# \xc3\xa4\n",
        b"\xef\xbb\xbf# coding: utf-8\n",
        b"#!/usr/bin/python\n# -*- coding: cp1252 -*-\nY = '\x80'\n",
        b"\x0c\nY = '\xe2\x80\xa8'\n",
    ],
)
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_encoding_and_line_ends_of_a_file_are_kept(tmp_path: Path, head: bytes, end: bytes) -> None:
    before = (head + CLOSED_TEXT.encode()).replace(b"\n", end)
    site = built(tmp_path, {RUNNER: before})
    assert site.set("open").after.line == head.count(b"\n") + 10
    assert site.path.read_bytes() == (head + OPEN_TEXT.encode()).replace(b"\n", end)
    site.set("closed")
    assert site.path.read_bytes() == before


def test_comment_is_no_cookie_only_because_lines_end_otherwise(tmp_path: Path) -> None:
    text = f"# first\rX = 1\rY = open(1, encoding=none)\r{CLOSED_TEXT}"
    assert built(tmp_path, {RUNNER: text}).gate().kind == CLOSED


# --- another interpreter ---------------------------------------------------------------------------------------------


@functools.cache
def second_python() -> str | None:
    """An interpreter of another minor version, from 3.9 on."""
    found = [shutil.which(f"python3.{minor}") or "" for minor in range(9, 16)]
    found += sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")))
    for path in filter(None, found):
        with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
            said = subprocess.run(
                [path, "-I", "-c", "import sys; print(*sys.version_info[:2])"],
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            ).stdout.split()
            major, minor = map(int, said)
            if (major, minor) >= (3, 9) and (major, minor) != sys.version_info[:2]:
                return path
    return None


@pytest.fixture(params=["own", "second"])
def python(request: pytest.FixtureRequest) -> str:
    """The interpreter that reads instead of this one."""
    if request.param == "own":
        return sys.executable
    found = second_python()
    if found is None:
        print("no other Python from 3.9 on was found in PATH and ~/.pyenv/versions")
        pytest.skip("no second Python from 3.9 on on this machine")
    return found


@pytest.fixture
def too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """This interpreter reads no file."""

    def unreadable(text: str) -> None:
        raise gate_syntax.UnreadableError("newer grammar", 4)

    def not_judged(**_asked: Any) -> str:
        raise SyntaxError("newer grammar")

    monkeypatch.setattr(gate_syntax, "_parse", unreadable)
    monkeypatch.setattr(gate_meaning, "judge", not_judged)


def at(site: Site, python: str) -> Tree:
    return replace(site.tree, python=python, python_version="3.x")


@pytest.mark.usefixtures("too_old")
def test_newer_grammar_is_read_and_opened_by_the_other_interpreter(site: Site, python: str) -> None:
    gate, source = examine(at(site, python), X)
    assert source is not None
    assert gate == Gate(CLOSED, X, "0.5.12", str(site.path), 7, ("a",))
    apply(source, plan(gate, source, "open"))
    assert site.path.read_text() == OPEN_TEXT
    gate, source = examine(at(site, python), X)
    assert source is not None
    assert (gate.kind, gate.line) == (OPEN_BY_PATCH, 10)
    apply(source, plan(gate, source, "closed"))
    assert site.path.read_text() == CLOSED_TEXT


@pytest.mark.usefixtures("too_old")
def test_other_interpreter_finds_what_speaks_of_autotune_and_who_uses_a_constant(tmp_path: Path, python: str) -> None:
    site = built(tmp_path, {"layers/x.py": "\nflashinfer_autotune = 1\n"})
    assert "sglang/srt/layers/x.py line 2 speaks of" in examine(at(site, python), X)[0].why
    text = f'KNOWN = ["a"]\ndef {NAME}(args):\n    return args.moe_runner_backend in KNOWN\n'
    site.write({RUNNER: text, "layers/x.py": "x.KNOWN\n"})
    assert "is used in sglang/srt/layers/x.py line 1" in examine(at(site, python), X)[0].why


@pytest.mark.usefixtures("too_old")
def test_without_an_interpreter_the_message_says_to_give_one(site: Site) -> None:
    gate = site.gate()
    assert (gate.kind, gate.line) == (UNKNOWN, 4)
    assert gate.why.endswith(
        "newer grammar; if it is fine for a newer one, give python, the interpreter of this SGLang"
    )


def test_what_the_other_interpreter_cannot_read_either_is_its_own_error(tmp_path: Path, python: str) -> None:
    site = built(tmp_path, {RUNNER: f"X = 1\nprint 1\n# {NAME}\n"})
    gate = examine(at(site, python), X)[0]
    assert (gate.kind, gate.line) == (UNKNOWN, 2)
    assert gate.why.startswith(f"sglang/srt/{RUNNER} line 2 is no Python 3.x: ")


def same_but_for(source: Source, text: str) -> bool:
    return gate_search.same_but_for(source.tree, source.text, text, X, source.collection.start)


@pytest.mark.usefixtures("too_old")
def test_edit_is_compared_by_the_other_interpreter_and_refused_without_one(site: Site, python: str) -> None:
    source = examine(at(site, python), X)[1]
    assert source is not None
    assert same_but_for(source, OPEN_TEXT)
    assert not same_but_for(source, OPEN_TEXT.replace("True", "None"))
    assert not same_but_for(source, OPEN_TEXT + "(")
    assert not same_but_for(replace(source, tree=site.tree), OPEN_TEXT)


@pytest.mark.usefixtures("too_old")
def test_interpreter_that_answers_nothing_is_an_error_with_its_path(site: Site, tmp_path: Path) -> None:
    (tmp_path / "mute").write_text("#!/bin/sh\ncat >/dev/null\n")
    (tmp_path / "mute").chmod(0o755)
    with pytest.raises(TreeError, match=f"{tmp_path}/mute: it answered ''"):
        examine(at(site, str(tmp_path / "mute")), X)


# --- opening and closing ---------------------------------------------------------------------------------------------


def test_opening_changes_the_one_line_and_is_predicted_first(site: Site) -> None:
    gate, source = examine(site.tree, X)
    assert source is not None
    change = plan(gate, source, "open")
    assert site.path.read_text() == CLOSED_TEXT and site.litter() == []
    assert change.changed
    assert change.message == f"opened the gate for {X} in {site.path} line 10"
    assert change.after == Gate(OPEN_BY_PATCH, X, "0.5.12", str(site.path), 10, ("a", X), PATCH)
    apply(source, change)
    assert site.path.read_text() == OPEN_TEXT
    assert site.litter() == [site.note.name]
    assert site.gate() == change.after
    note = json.loads(site.note.read_text())
    assert (note["schema_version"], note["sglang_version"]) == (1, "0.5.12")
    assert note["original_sha256"] == sha256(CLOSED_TEXT.encode())
    assert [edit["sha256"] for edit in note["edits"]] == [sha256(OPEN_TEXT.encode())]


def test_opening_twice_writes_nothing_the_second_time(site: Site) -> None:
    site.set("open")
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in (site.path, site.note)}
    change = site.set("open")
    assert not change.changed
    assert change.message == f"the gate was opened for {X} before, by this module ({site.path} line 10)"
    assert {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in before} == before


def test_closing_brings_the_bytes_back_and_removes_the_note(site: Site) -> None:
    site.set("open")
    change = site.set("closed")
    assert change.message == f"closed the gate in {site.path}: the original bytes are back"
    assert change.after == Gate(CLOSED, X, "0.5.12", str(site.path), 7, ("a",))
    assert site.path.read_text() == CLOSED_TEXT
    assert site.litter() == []
    again = site.set("closed")
    assert not again.changed
    assert again.message == f"the gate is as the release has it, which does not tune {X} ({site.path} line 7)"


def test_line_of_the_test_is_the_one_after_closing(tmp_path: Path) -> None:
    text = f'KNOWN = [\n    "a",\n]\ndef {NAME}(args):\n    return args.moe_runner_backend in KNOWN\n'
    site = built(tmp_path, {RUNNER: text})
    assert site.set("open").after.line == 3
    assert site.set("closed").after.line == 5


def test_upstream_gate_is_left_alone_both_ways(site: Site) -> None:
    opened, closed = site.set("open", "a"), site.set("closed", "a")
    assert (opened.changed, closed.changed) == (False, False)
    assert opened.message == f"SGLang 0.5.12 tunes a by itself ({site.path} line 8)"
    assert closed.message == f"the gate is as the release has it, which tunes a ({site.path} line 8)"
    assert opened.after.enabled_by == UPSTREAM
    assert site.litter() == []


def test_several_backends_are_opened_one_by_one_and_closed_together(site: Site) -> None:
    for name in ("one", X, "two"):
        site.set("open", name)
    assert site.gate().backends == ("a", "one", X, "two")
    assert [site.gate(name).enabled_by for name in ("a", "one", X, "two")] == [UPSTREAM, PATCH, PATCH, PATCH]
    change = site.set("closed", "one")
    assert change.message.endswith(f"the original bytes are back; it was open for {X}, two too")
    assert site.path.read_text() == CLOSED_TEXT
    assert site.litter() == []


def test_closing_for_a_backend_that_was_never_open_restores_the_others(site: Site) -> None:
    site.set("open")
    change = site.set("closed", "zzz")
    assert change.changed and change.after.kind == CLOSED
    assert site.path.read_text() == CLOSED_TEXT


def test_gate_without_record_and_release_is_opened_and_closed_all_the_same(tmp_path: Path) -> None:
    site = built(tmp_path, {RUNNER: CLOSED_TEXT}, version=None)
    assert site.set("open").after == Gate(OPEN_BY_PATCH, X, None, str(site.path), 10, ("a", X), PATCH)
    assert site.set("closed").after.kind == CLOSED
    assert site.gate("a").enabled_by == UPSTREAM
    assert "SGLang tunes a by itself" in site.set("open", "a").message


def test_edit_that_would_not_give_what_was_meant_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, source = examine(site.tree, X)
    bad = [
        CLOSED_TEXT,
        CLOSED_TEXT + "(",
        OPEN_TEXT.replace("True", "None"),
        OPEN_TEXT.replace('"a"', '"b"'),
        OPEN_TEXT.replace("moe_runner_backend", "attention_backend"),
        "X = 1\n" + OPEN_TEXT,
    ]
    for text in bad:
        monkeypatch.setattr(autotune_gate.gate_edit, "with_name", lambda *_args, text=text: text)
        with pytest.raises(
            GateError, match=f"opening the gate in {site.path} line 7: the edit would not give"
        ) as caught:
            plan(gate, source, "open")
        assert caught.value.facts == {"gate": UNKNOWN}


# --- other hands -----------------------------------------------------------------------------------------------------


def test_patch_of_another_hand_is_left_open_and_closed_again_when_the_record_proves_the_original(site: Site) -> None:
    site.path.write_text(OPEN_TEXT)
    gate = site.gate()
    assert (gate.kind, gate.enabled_by, gate.line) == (OPEN_BY_PATCH, FOREIGN, 10)
    change = site.set("open")
    assert not change.changed
    assert change.message.startswith(f"the gate was opened for {X} before, by another hand, which is left as it is")
    change = site.set("closed")
    assert change.message.endswith(f"the original bytes are back; another hand had opened it for {X}")
    assert change.after.kind == CLOSED
    assert site.path.read_text() == CLOSED_TEXT
    assert site.litter() == []


def test_patch_of_another_hand_is_undone_for_whichever_backend_is_asked(site: Site) -> None:
    site.path.write_text(OPEN_TEXT)
    assert site.gate("zzz").kind == CLOSED
    assert site.set("closed", "zzz").changed
    assert site.path.read_text() == CLOSED_TEXT


@pytest.mark.parametrize("version", ["0.5.12", None])
def test_patch_of_another_hand_is_not_undone_without_proof(tmp_path: Path, version: str | None) -> None:
    site = built(tmp_path, {RUNNER: CLOSED_TEXT}, version="0.5.12")
    site.path.write_text(OPEN_TEXT + "# more\n")
    if version is None:
        (site.root / "sglang-0.5.12.dist-info" / "METADATA").unlink()
    gate, source = examine(site.tree, X)
    assert (gate.kind, gate.enabled_by, gate.version) == (OPEN_BY_PATCH, FOREIGN, version)
    with pytest.raises(GateError, match="neither the original nor this module's work") as caught:
        plan(gate, source, "closed")
    assert caught.value.facts == {"gate": OPEN_BY_PATCH, "enabled_by": FOREIGN}
    assert site.path.read_text() == OPEN_TEXT + "# more\n"


def test_without_any_proof_the_releases_known_backends_decide(tmp_path: Path) -> None:
    site = built(tmp_path, {RUNNER: OPEN_TEXT}, version="0.5.12", record=False)
    assert site.gate().enabled_by == FOREIGN
    site = built(tmp_path / "newer", {RUNNER: OPEN_TEXT}, version="0.5.13", record=False)
    assert site.gate().enabled_by == UPSTREAM
    site = built(tmp_path / "newest", {RUNNER: OPEN_TEXT}, version="9.0", record=False)
    assert site.gate().enabled_by == UPSTREAM


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, "-C", str(folder), *words], check=True, capture_output=True)


def test_checkout_is_proved_by_what_was_committed(tmp_path: Path) -> None:
    site = built(tmp_path, {RUNNER: CLOSED_TEXT}, version=None)
    git(site.root, "init", "-q")
    git(site.root, "add", ".")
    git(site.root, "commit", "-q", "-m", "one")
    site.path.write_text(OPEN_TEXT)
    assert site.gate().enabled_by == FOREIGN
    assert site.set("closed").changed
    assert site.path.read_text() == CLOSED_TEXT
    site.path.write_text(OPEN_TEXT)
    git(site.root, "commit", "-q", "-a", "-m", "two")
    assert site.gate().enabled_by == UPSTREAM
    assert not site.set("closed").changed


def test_foreign_edits_elsewhere_survive_opening_and_closing(site: Site) -> None:
    mine = "import this\n" + CLOSED_TEXT + "# more\n"
    site.path.write_text(mine)
    assert site.gate().kind == CLOSED
    assert not site.set("closed").changed
    site.set("open")
    assert site.path.read_text() == "import this\n" + OPEN_TEXT + "# more\n"
    site.set("closed")
    assert site.path.read_text() == mine
    assert site.litter() == []


def test_edit_after_opening_is_not_thrown_away_and_nothing_is_done_that_loses_the_way_back(site: Site) -> None:
    site.set("open")
    note = site.note.read_bytes()
    site.path.write_text(OPEN_TEXT + "# more\n")
    assert site.gate().enabled_by == PATCH
    for backend, state in ((X, "closed"), ("two", "open"), ("two", "closed")):
        gate, source = examine(site.tree, backend)
        with pytest.raises(GateError, match=f"changed after this module opened it for {X}, so the way back") as caught:
            plan(gate, source, state)
        assert caught.value.facts["enabled_by"] == PATCH
    assert not site.set("open").changed
    assert (site.path.read_text(), site.note.read_bytes()) == (OPEN_TEXT + "# more\n", note)
    site.path.write_text(OPEN_TEXT)
    assert site.set("closed").changed
    assert (site.path.read_text(), site.litter()) == (CLOSED_TEXT, [])


def test_note_that_a_link_stands_for_is_not_written_through(site: Site, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    victim.chmod(0o600)
    site.note.symlink_to(victim)
    assert site.gate().kind == CLOSED
    site.set("open")
    assert (victim.read_text(), stat.S_IMODE(victim.stat().st_mode)) == ("precious", 0o600)
    assert not site.note.is_symlink()
    assert site.set("closed").changed
    assert victim.read_text() == "precious"


def test_pipes_in_the_place_of_files_do_not_hang(site: Site) -> None:
    os.mkfifo(site.note)
    os.mkfifo(site.tree.srt + "/server_args_pipe.py")
    assert site.gate().kind == CLOSED


@pytest.mark.parametrize(("read_only", "code"), [(True, errno.EROFS), (False, errno.EACCES)])
def test_check_mode_refuses_what_could_not_be_written(
    site: Site, monkeypatch: pytest.MonkeyPatch, read_only: bool, code: int
) -> None:
    gate, source = examine(site.tree, X)
    assert source is not None
    change = plan(gate, source, "open")
    apply(source, change, check_mode=True)
    assert (site.path.read_text(), site.litter()) == (CLOSED_TEXT, [])
    flags = os.ST_RDONLY if read_only else 0
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    monkeypatch.setattr(os, "statvfs", lambda _path: SimpleNamespace(f_flag=flags))
    with pytest.raises(GateError, match=f"writing {site.path}: {os.strerror(code)}; "):
        apply(source, change, check_mode=True)
    # Nothing is to be done, so nothing can fail.
    apply(source, plan(gate, source, "closed"), check_mode=True)


def test_file_that_was_no_python_when_it_was_committed_tells_nothing(tmp_path: Path) -> None:
    site = built(tmp_path, {RUNNER: "def ("}, version=None)
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run(["git", "-C", str(site.root), *who, *command], check=True)
    site.path.write_text(OPEN_TEXT)
    assert site.gate().enabled_by == FOREIGN


def test_file_of_somebody_else_that_looks_temporary_stays(site: Site) -> None:
    mine = site.path.with_name(f".{site.path.name}.mine.tmp")
    mine.write_text("mine")
    site.set("open")
    site.set("closed")
    assert mine.read_text() == "mine"


def test_release_that_came_with_a_gate_and_has_none_is_not_called_unsupported(site: Site) -> None:
    site.path.write_text("X = 1\n")
    known = replace(site.tree, version="0.5.12")
    gate = examine(known, X)[0]
    assert gate.kind == UNKNOWN
    assert gate.why.endswith("and this release came with one")
    assert examine(replace(site.tree, version="0.5.5"), X)[0].kind == UNSUPPORTED


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_checkout_tells_upstream_from_foreign_by_what_was_committed(tmp_path: Path, line_end: str) -> None:
    site = built(tmp_path, {RUNNER: CLOSED_TEXT}, version=None)
    git = [
        "git",
        "-C",
        str(site.root),
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.com",
        "-c",
        "commit.gpgsign=false",
    ]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *command], check=True)
    named = examine(site.tree, X)[1]
    assert named is not None
    own = named.collection.names[0]
    # git may check out other line ends than were committed.
    site.path.write_bytes(CLOSED_TEXT.replace("\n", line_end).encode())
    assert examine(site.tree, own)[0].enabled_by == UPSTREAM
    site.path.write_bytes((CLOSED_TEXT + "# mine\n").replace("\n", line_end).encode())
    assert examine(site.tree, own)[0].enabled_by == UPSTREAM
    site.path.write_bytes(OPEN_TEXT.replace("\n", line_end).encode())
    assert examine(site.tree, X)[0].enabled_by == FOREIGN
    assert site.set("closed").changed
    assert site.path.read_bytes() == CLOSED_TEXT.replace("\n", line_end).encode()


def test_foreign_patch_under_this_modules_goes_with_it_when_that_is_proved(site: Site) -> None:
    site.path.write_text(OPEN_TEXT)
    site.set("open", "two")
    assert (site.gate().enabled_by, site.gate("two").enabled_by) == (FOREIGN, PATCH)
    change = site.set("closed", "two")
    assert change.message.endswith(f"the original bytes are back; another hand had opened it for {X}")
    assert site.path.read_text() == CLOSED_TEXT
    assert not site.set("closed", "two").changed


# --- the note --------------------------------------------------------------------------------------------------------


def test_note_of_a_file_that_an_upgrade_replaced_is_ignored(site: Site) -> None:
    site.set("open")
    newer = CLOSED_TEXT.replace('"a"', '"a2"')
    site.path.write_text(newer)
    site.record()
    assert site.gate() == Gate(CLOSED, X, "0.5.12", str(site.path), 7, ("a2",))
    assert not site.set("closed").changed
    site.set("open")
    assert json.loads(site.note.read_text())["original_sha256"] == sha256(newer.encode())
    site.set("closed")
    assert site.path.read_text() == newer


def changed(**edit: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda note: {**note, "edits": [{**note["edits"][0], **edit}]}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda note: {**note, "schema_version": 2},
        lambda note: {**note, "original_sha256": "0" * 64},
        lambda note: {**note, "original_sha256": None},
        lambda note: {**note, "edits": "none"},
        lambda note: {**note, "edits": [1]},
        lambda note: {**note, "edits": [{"backend": X}]},
        lambda note: {"schema_version": 1},
        lambda note: [note],
        lambda note: None,
        changed(start=0),
        changed(start="0"),
        changed(start=-3),
        changed(start=10**30),
        changed(was=1),
        changed(was="\ud800"),
        changed(backend=None),
        changed(sha256=None),
        changed(more=1),
    ],
)
def test_note_with_nonsense_is_ignored_and_the_record_still_leads_back(
    site: Site, spoil: Callable[[dict[str, Any]], Any]
) -> None:
    site.set("open")
    site.note.write_text(json.dumps(spoil(json.loads(site.note.read_text()))))
    assert site.gate().enabled_by == FOREIGN
    site.set("closed")
    assert site.path.read_text() == CLOSED_TEXT
    assert site.litter() == []


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 200_000])
def test_torn_note_is_ignored(site: Site, data: bytes) -> None:
    site.set("open")
    site.note.write_bytes(data)
    assert site.gate().enabled_by == FOREIGN
    site.set("closed")
    assert site.path.read_text() == CLOSED_TEXT


# --- stops -----------------------------------------------------------------------------------------------------------


class Stopped(BaseException):
    """The process ended here."""


def stopped_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """End at the rename with this number, as a kill does: nothing is tidied up afterwards."""
    count = 0
    rename = os.replace

    def counted(source: str, target: str) -> None:
        nonlocal count
        count += 1
        if count == number:
            raise Stopped
        rename(source, target)

    monkeypatch.setattr(os, "replace", counted)
    monkeypatch.setattr(os, "unlink", lambda *_args, **_more: None)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("state", ["open", "closed"])
def test_stop_while_opening_leaves_the_old_file_and_the_next_run_works(site: Site, number: int, state: str) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        stopped_at(patch, number)
        site.set("open")
    assert site.path.read_text() == CLOSED_TEXT
    assert site.litter() != []
    assert site.gate().kind == CLOSED
    site.set(state)
    assert site.path.read_text() == (OPEN_TEXT if state == "open" else CLOSED_TEXT)
    assert site.litter() == ([site.note.name] if state == "open" else [])
    site.set("closed")
    assert (site.path.read_text(), site.litter()) == (CLOSED_TEXT, [])


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(("state", "backend"), [("open", "two"), ("open", X), ("closed", X)])
def test_stop_while_opening_for_another_leaves_the_first_and_the_way_back(
    site: Site, number: int, state: str, backend: str
) -> None:
    site.set("open")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        stopped_at(patch, number)
        site.set("open", "two")
    assert site.path.read_text() == OPEN_TEXT
    assert (site.gate().enabled_by, site.gate("two").kind) == (PATCH, CLOSED)
    site.set(state, backend)
    assert site.litter() == ([site.note.name] if state == "open" else [])
    site.set("closed")
    assert (site.path.read_text(), site.litter()) == (CLOSED_TEXT, [])


def test_stop_while_closing_leaves_it_open_or_closed_and_the_next_run_tidies(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.set("open")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        stopped_at(patch, 1)
        site.set("closed")
    assert site.path.read_text() == OPEN_TEXT
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):

        def stopped(path: str) -> None:
            raise Stopped

        patch.setattr(gate_write, "_remove", lambda path: stopped(path) if path.endswith(".json") else None)
        site.set("closed")
    assert site.path.read_text() == CLOSED_TEXT
    assert site.note.exists()
    assert not site.set("closed").changed
    assert site.litter() == []


def way_back(site: Site) -> bytes:
    """What the note beside the file leads to."""
    data, note = site.path.read_bytes(), gate_note.read_note(str(site.path))
    assert note is not None
    back = gate_note.undone(note, data, *source_text.decoded(data))
    assert back is not None
    return back[1]


KILLED = """
import os, signal, sys
from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_gate, sglang_tree
gate, source = autotune_gate.examine(sglang_tree.of_source(sys.argv[1]), sys.argv[2])
change = autotune_gate.plan(gate, source, "open")
rename, left = os.replace, int(sys.argv[3])
def killed(source, target):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)
os.replace = killed
autotune_gate.apply(source, change)
"""


@pytest.mark.parametrize("number", [1, 2])
def test_killed_process_leaves_nothing_that_the_next_run_cannot_take(site: Site, number: int) -> None:
    site.set("open", "one")
    first = site.path.read_bytes()
    command = [sys.executable, "-c", KILLED, str(site.root), X, str(number)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert site.path.read_bytes() == first
    assert any(name.endswith(".tmp") for name in site.litter())
    assert way_back(site) == CLOSED_TEXT.encode()
    site.set("open")
    assert site.litter() == [site.note.name]
    site.set("closed")
    assert (site.path.read_text(), site.litter()) == (CLOSED_TEXT, [])


def test_file_that_changed_since_it_was_read_is_not_written(site: Site) -> None:
    gate, source = examine(site.tree, X)
    assert source is not None
    change = plan(gate, source, "open")
    site.path.write_text(CLOSED_TEXT + "# meanwhile\n")
    with pytest.raises(GateError, match=f"writing {site.path}: it was changed by somebody else after it was read"):
        apply(source, change)
    assert site.path.read_text() == CLOSED_TEXT + "# meanwhile\n"
    assert site.litter() == []


def test_tidying_does_not_take_the_note_of_another_run(site: Site) -> None:
    site.set("open")
    note = site.note.read_bytes()
    site.set("closed")
    site.note.write_bytes(note)
    gate, source = examine(site.tree, X)
    assert source is not None
    change = plan(gate, source, "closed")
    site.path.write_text(OPEN_TEXT)
    apply(source, change)
    assert site.note.read_bytes() == note


def test_writers_wait_for_each_other_and_an_old_file_system_is_no_failure(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = []
    monkeypatch.setattr(gate_write.fcntl, "flock", lambda descriptor, how: locked.append(os.fstat(descriptor).st_ino))
    site.set("open")
    assert locked == [site.path.parent.stat().st_ino]

    def unsupported(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(gate_write.fcntl, "flock", unsupported)
    assert site.set("closed").changed


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (errno.EROFS, "the file system is read-only: edit the environment while it is built, or remount it"),
        (errno.ENOSPC, "free disk space there and run again"),
        (errno.EACCES, "run as the user who owns it"),
        (errno.EPERM, "run as the user who owns it, and see whether it is marked immutable (lsattr)"),
        (errno.EIO, "look at it and run again"),
    ],
)
@pytest.mark.parametrize("opened", [False, True])
def test_write_that_fails_says_why_and_puts_the_note_back(site: Site, code: int, hint: str, opened: bool) -> None:
    if opened:
        site.set("open")
    before = (site.path.read_bytes(), site.note.read_bytes() if opened else None)
    write = gate_write.write_atomic

    def failing(path: str, data: bytes, mode: int | None = None) -> None:
        if path.endswith(".py"):
            raise OSError(code, os.strerror(code), path)
        write(path, data, mode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate_write, "write_atomic", failing)
        gate, source = examine(site.tree, "two")
        assert source is not None
        change = plan(gate, source, "open")
        with pytest.raises(GateError) as caught:
            apply(source, change)
    assert str(caught.value) == f"writing {site.path}: {os.strerror(code)}; {hint}"
    assert caught.value.facts == {"file": str(site.path)}
    assert (site.path.read_bytes(), site.note.read_bytes() if opened else None) == before
    assert site.litter() == ([site.note.name] if opened else [])


def test_nothing_to_do_is_no_failure_where_nothing_can_be_written(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.set("open")
    note = site.note.read_bytes()
    site.set("closed")
    site.note.write_bytes(note)

    def refused(path: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system", path)

    monkeypatch.setattr(gate_write, "_remove", refused)
    assert not site.set("closed").changed


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, or a skip where this user may not mount one."""
    folder = tmp_path / "mounted"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], check=False, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr)
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="there is no program mount")
def test_read_only_file_system_is_named(mounted: Path) -> None:
    site = Site(mounted / "site").write({RUNNER: CLOSED_TEXT})
    subprocess.run(["mount", "-o", "remount,ro", str(mounted)], check=True)
    gate, source = examine(site.tree, X)
    assert source is not None
    with pytest.raises(GateError, match="Read-only file system; the file system is read-only: edit the environment"):
        apply(source, plan(gate, source, "open"))
    assert not site.set("closed").changed
    assert (site.path.read_text(), site.litter()) == (CLOSED_TEXT, [])


def test_other_names_of_a_hard_linked_file_keep_their_bytes(site: Site, tmp_path: Path) -> None:
    os.link(site.path, tmp_path / "cache.py")
    site.set("open")
    assert (tmp_path / "cache.py").read_text() == CLOSED_TEXT
    assert site.path.read_text() == OPEN_TEXT


def test_linked_file_stays_a_link_and_its_note_lies_beside_the_real_one(site: Site, tmp_path: Path) -> None:
    real = tmp_path / "real" / "runner.py"
    real.parent.mkdir()
    site.path.rename(real)
    site.path.symlink_to(real)
    for folder, stem in ((site.path.parent, "model_runner"), (real.parent, "runner")):
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / f"{stem}.cpython-311.pyc").write_bytes(b"")
    site.set("open")
    assert site.path.is_symlink() and os.readlink(site.path) == str(real)
    assert real.read_text() == OPEN_TEXT
    assert sorted(os.listdir(real.parent)) == [".runner.py.tokforge-gate.json", "__pycache__", "runner.py"]
    assert os.listdir(site.path.parent / "__pycache__") == []
    assert way_back(site) == CLOSED_TEXT.encode()
    site.set("closed")
    assert sorted(os.listdir(real.parent)) == ["__pycache__", "runner.py"]


def test_mode_is_kept_and_the_note_can_be_read_by_all(site: Site) -> None:
    site.path.chmod(0o640)
    before = os.umask(0o077)
    try:
        site.set("open")
    finally:
        os.umask(before)
    assert stat.S_IMODE(site.path.stat().st_mode) == 0o640
    assert stat.S_IMODE(site.note.stat().st_mode) == 0o644
    site.set("closed")
    assert stat.S_IMODE(site.path.stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can own files of others")
def test_owner_is_kept(site: Site) -> None:
    os.chown(site.path, 12345, 23456)
    site.set("open")
    assert (site.path.stat().st_uid, site.path.stat().st_gid) == (12345, 23456)
    site.set("closed")
    assert (site.path.stat().st_uid, site.path.stat().st_gid) == (12345, 23456)


def test_bytecode_is_cleared_and_that_of_other_modules_is_not(site: Site) -> None:
    cache = site.path.parent / "__pycache__"
    cache.mkdir()
    names = ["model_runner.cpython-311.pyc", "model_runner.cpython-311.opt-1.pyc", "model_runner_2.cpython-311.pyc"]
    for state in ("open", "closed"):
        for name in names:
            (cache / name).write_bytes(b"old")
        site.set(state)
        assert os.listdir(cache) == ["model_runner_2.cpython-311.pyc"]


@pytest.mark.parametrize("mode", list(py_compile.PycInvalidationMode))
def test_python_runs_the_edited_gate_whatever_kind_of_bytecode_there_was(
    site: Site, mode: py_compile.PycInvalidationMode
) -> None:
    code = textwrap.dedent(
        f"""
        import sys, types
        sys.path.insert(0, {str(site.path.parent)!r})
        import model_runner
        runner = model_runner.Runner()
        runner.args = types.SimpleNamespace(off=False, moe_runner_backend={X!r})
        print(runner.{NAME}())
        """
    )

    def runs() -> str:
        py_compile.compile(str(site.path), invalidation_mode=mode) if not site.note.exists() else None
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    assert runs() == "False"
    site.set("open")
    assert runs() == "True"


def test_bytecode_is_gone_before_the_file_is_replaced_and_what_a_server_wrote_meanwhile_is_too(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = site.path.parent / "__pycache__" / "model_runner.cpython-311.pyc"
    compiled.parent.mkdir()
    compiled.write_bytes(b"old")
    write, seen = gate_write.write_atomic, []

    def slow(path: str, data: bytes, mode: int | None = None) -> None:
        if path == str(site.path):
            seen.append(compiled.exists())
            compiled.write_bytes(b"old again")
        write(path, data, mode)

    monkeypatch.setattr(gate_write, "write_atomic", slow)
    site.set("open")
    assert (seen, compiled.exists()) == ([False], False)


def test_class_constant_is_no_foreign_use_of_itself(tmp_path: Path) -> None:
    text = f'class R:\n    K = ["a"]\n    def {NAME}(self):\n        return self.args.moe_runner_backend in self.K\n'
    site = built(tmp_path, {RUNNER: text})
    assert site.set("open").after.backends == ("a", X)
    assert site.path.read_text() == text.replace('"a"', f'"a", "{X}"')


def test_failure_that_names_no_file_names_the_gates(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(path: str, data: bytes, mode: int | None = None) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(gate_write, "write_atomic", failing)
    with pytest.raises(GateError, match=f"writing {site.path}: Input/output error; look at it and run again"):
        site.set("open")
