# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a gate looks like: opening adds the one name, nothing else, and closing brings every byte back."""

from __future__ import annotations

import os
import shutil
import tempfile
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.tokforge.sglang.plugins.module_utils import autotune_gate, gate_edit, gate_syntax, sglang_tree

X = "flashinfer_cutlass"
NAMES = ("flashinfer_trtllm", "mxfp4", "a", "flashinfer_cutlass_2", "b.c-d", "cutedsl")
FUNCTION = gate_syntax.GATE_NAMES[0]
PROBES = (*NAMES, X, "", "other")


@dataclass(frozen=True)
class Program:
    """A generated file with its gate, and what the gate says."""

    text: str
    names: tuple[str, ...]


def quoted(draw: Callable[..., str], name: str) -> str:
    """A name as a literal, also in parentheses and in two parts."""
    quote = draw(st.sampled_from("'\""))
    literal = f"{quote}{name}{quote}"
    style = draw(st.sampled_from(["plain", "plain", "plain", "plain", "parentheses", "parts", "raw"]))
    if style == "parentheses":
        return f"({literal})"
    if style == "parts" and len(name) > 1:
        return f"{quote}{name[:1]}{quote} {quote}{name[1:]}{quote}"
    return f"r{literal}" if style == "raw" else literal


COMMENTS = ("# why", '# "x" y', "#", f"# {X}, too", '# ("', "# ] ) }", "# ä\u2028€")


@st.composite
def one_line(draw: Callable[..., str], names: list[str]) -> str:
    """The elements on the line of the brackets."""
    space = draw(st.sampled_from(["", " "]))
    return space + ", ".join(quoted(draw, name) for name in names) + space


@st.composite
def many_lines(draw: Callable[..., str], names: list[str], indent: str) -> str:
    """The elements over lines, with comments among them that may hold the name."""
    lines: list[str] = []
    holds = draw(st.booleans())
    for number, name in enumerate(names):
        last = number == len(names) - 1
        comma = "" if last and draw(st.booleans()) else ","
        behind = draw(st.sampled_from(["", "", "  ", *(f"  {one}" for one in COMMENTS)]))
        lines.append(f"{indent}{quoted(draw, name)}{comma}{behind}")
    if len(names) > 2 and draw(st.booleans()) and "#" not in lines[0]:
        lines[:2] = [lines[0].rstrip() + " " + lines[1].strip()]
    for _number in range(draw(st.integers(0, 3))):
        lines.insert(
            draw(st.integers(0, len(lines))), draw(st.sampled_from([f"{indent}{one}" for one in COMMENTS] + [""]))
        )
    if holds:
        mark, quote = draw(st.sampled_from(["# ", "#", "## ", "#\t"])), draw(st.sampled_from("'\""))
        end = draw(st.sampled_from([",", "", ",  # breaks", "  # breaks", " ,", " breaks"]))
        lines.insert(draw(st.integers(0, len(lines))), f"{indent}{mark}{quote}{X}{quote}{end}")
    first = draw(st.sampled_from(["\n", "\n", "  # first\n"]))
    closing = draw(st.sampled_from(["\n" + indent[:-1], "\n", ""])) if lines and "#" not in lines[-1] else "\n"
    return first + "\n".join(lines) + closing


@st.composite
def literals(draw: Callable[..., str], names: list[str], indent: str) -> str:
    """A collection in any form and layout."""
    inner = draw(st.one_of(one_line(names), many_lines(names, indent)))
    form = draw(st.sampled_from(["list", "tuple", "set", "frozenset"]))
    if form == "set" and names:
        return "{" + inner + "}"
    if form == "tuple":
        bare = inner.rstrip()
        ends = [one.split("#")[0].rstrip() for one in inner.split("\n")]
        if len(names) == 1 and not any(one.endswith(",") for one in ends):
            return f"(({bare},))" if "\n" not in inner and not bare.endswith(",") else "[" + inner + "]"
        return "(" + inner + ")"
    return f"frozenset([{inner}])" if form == "frozenset" else "[" + inner + "]"


BODIES = (
    "return {subject} in {literal}",
    "if {subject} not in {literal}:\n{i}return False\nreturn True",
    "if not ({subject} in {literal}):\n{i}return False\nreturn True",
    "if {subject} in {literal}:\n{i}return True\nreturn False",
    "wanted = {subject} in {literal}\nif not wanted:\n{i}return False\nreturn True",
    "if wanted := {subject} in {literal}:\n{i}pass\nreturn wanted",
    "return True if {subject} in {literal} else False",
    "return not ({subject} not in {literal}) and bool(1)",
    "both = 1 == 1 and {subject} in {literal}\nreturn both",
    "known = {literal}\nreturn {subject} in known",
)
AROUND = (
    "",
    "import os\n",
    "X = 'flashinfer_cutlass'\n",
    f'# "{X}",\n',
    f'KNOWN_TOO = [\n    "a",\n    # "{X}",\n]\n',
    "# ä\u2028 \x0c €\n",
    "\x0c\nY = 'ä\u2028'\n",
    f'"""\ndef {FUNCTION}(args):\n    return args.moe_runner_backend in ["z"]\n"""\n',
    f'# def {FUNCTION}(args):\n#     return args.moe_runner_backend in [\n#         "{X}",\n#     ]\n',
)


@st.composite
def programs(draw: Callable[..., str]) -> Program:
    """A whole file."""
    names: list[str] = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))  # type: ignore[assignment]
    i = draw(st.sampled_from(["    ", "  ", "\t"]))
    where = draw(st.sampled_from(["body", "body", "module", "class"]))
    literal = draw(literals(names, i * 2))
    subject = draw(st.sampled_from(["args.moe_runner_backend", 'getattr(args, "moe_runner_backend")', "name"]))
    body = draw(st.sampled_from(BODIES[:-1] if where != "body" else BODIES))
    held = {"body": literal, "module": "KNOWN", "class": "cls.KNOWN"}[where]
    body = body.replace("{i}", i).replace("{subject}", subject)
    if subject == "name":
        body = f"name = args.moe_runner_backend\n{body}"
    head, _mark, tail = body.partition("{literal}")
    indented = "\n".join(i + line for line in head.split("\n")) + held + tail.replace("\n", f"\n{i}")
    function = f"def {FUNCTION}({'cls, ' if where == 'class' else ''}args):\n{indented}\n"
    if where == "module":
        bare = ", ".join(f"'{name}'" for name in names) if len(names) > 1 and draw(st.booleans()) else literal
        function = f"KNOWN = {bare}\n{function}"
    if where == "class":
        lines = function.split("\n")
        function = f"class Gates:\n{i}KNOWN = {literal}\n{i}@classmethod\n" + "\n".join(i + line for line in lines)
        function = function.rstrip("\t ") + f"\n{FUNCTION} = Gates.{FUNCTION}\n"
    text = draw(st.sampled_from(AROUND)) + function + draw(st.sampled_from(AROUND))
    if draw(st.booleans()) and not text.endswith('"""\n'):
        text = text.rstrip("\n")
    ends = draw(st.sampled_from([("\n",), ("\r\n",), ("\r",), ("\n", "\r\n", "\r")]))
    pieces = text.split("\n")
    chosen = [ends[number % len(ends)] for number in range(len(pieces) - 1)]
    text = "".join(piece + end for piece, end in zip(pieces, [*chosen, ""]))
    return Program(text, tuple(names))


def answers(data: bytes) -> dict[str, object]:
    """What the gate says about each backend, when the file is run."""
    space: dict[str, Callable[..., object]] = {}
    exec(compile(data, "<gate>", "exec", dont_inherit=True), space)  # noqa: S102
    return {name: space[FUNCTION](types.SimpleNamespace(moe_runner_backend=name)) for name in PROBES}


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    (folder / "srt" / "model_executor").mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


def set_gate(root: Path, state: str, backend: str = X) -> autotune_gate.Change:
    gate, source = autotune_gate.examine(sglang_tree.of_source(str(root)), backend)
    assert source is not None, gate.why
    change = autotune_gate.plan(gate, source, state)
    autotune_gate.apply(source, change)
    return change


@settings(deadline=None, max_examples=150)
@given(program=programs())
def test_opening_adds_the_name_and_nothing_else_and_closing_is_its_inverse(root: Path, program: Program) -> None:
    path = root / "srt" / "model_executor" / "model_runner.py"
    before = program.text.encode()
    path.write_bytes(before)
    said = answers(before)
    assert {name for name in PROBES if said[name]} == set(program.names)

    change = set_gate(root, "open")
    after = path.read_bytes()
    assert sorted(change.after.backends) == sorted((*program.names, X))
    assert [name for name in change.after.backends if name != X] == list(program.names)
    assert answers(after) == {**said, X: True}

    assert not set_gate(root, "open").changed
    assert path.read_bytes() == after

    set_gate(root, "open", "another")
    assert {name for name, value in answers(path.read_bytes()).items() if value} == {*program.names, X}
    set_gate(root, "closed")
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@settings(deadline=None, max_examples=300)
@given(program=programs())
def test_edit_stays_between_the_brackets_and_the_way_back_is_guessed(program: Program) -> None:
    (found,) = gate_syntax.scan(program.text)
    collection = found.collection
    assert collection is not None
    assert collection.names == program.names
    text = gate_edit.with_name(program.text, collection, X)
    edited = gate_syntax.scan(text)[0].collection
    assert edited is not None
    assert (text[: edited.start], text[edited.end :]) == (
        program.text[: collection.start],
        program.text[collection.end :],
    )
    assert gate_syntax.differs_only_by(program.text, text, X, collection.start)
    was_there = {one.value for one in collection.commented}
    assert {one.value for one in edited.commented} >= was_there - {X}
    # No line was lost, and at most one came.
    assert 0 <= len(text.splitlines()) - len(program.text.splitlines()) <= 1


PIECES = (
    '"a"',
    "'b'",
    "(",
    ")",
    ",",
    ",",
    " ",
    "\n",
    "\r\n",
    "\r",
    '# "flashinfer_cutlass",',
    "# (",
    "\\\n",
    "*c",
    "d",
    "\x0c",
    "ä",
)


@settings(deadline=None, max_examples=400)
@given(inner=st.lists(st.sampled_from(PIECES), max_size=12), brackets=st.sampled_from(["[]", "()", "{}", "  "]))
def test_any_text_between_brackets_is_read_and_edited_or_refused(inner: list[str], brackets: str) -> None:
    literal = f"{brackets[0]}{''.join(inner)}{brackets[1]}"
    text = f"KNOWN = {literal}\ndef {FUNCTION}(args):\n    return args.moe_runner_backend in KNOWN\n"
    try:
        (found,) = gate_syntax.scan(text)
    except gate_syntax.UnreadableError:
        return
    assert (found.collection is None) is bool(found.problem)
    if found.collection is not None:
        changed = gate_edit.with_name(text, found.collection, X)
        assert gate_syntax.differs_only_by(text, changed, X, found.collection.start), changed
        assert changed.endswith(text[found.collection.end :])
