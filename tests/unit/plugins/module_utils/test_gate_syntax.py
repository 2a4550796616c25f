# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading the gate from source text: which function it is, what it tests, and what it is refused for."""

from __future__ import annotations

import ast
import json
import textwrap
import warnings

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import gate_syntax
from ansible_collections.tokforge.sglang.plugins.module_utils.gate_syntax import (
    DELEGATE,
    GATE,
    STUB,
    Collection,
    Definition,
    UnreadableError,
    brings,
    differs_only_by,
    mentions,
    scan,
)

NAME = gate_syntax.GATE_NAMES[0]


def gate(body: str, head: str = "") -> str:
    """A file with a gate as a module function."""
    return f"{textwrap.dedent(head)}def {NAME}(args):\n{textwrap.indent(textwrap.dedent(body), '    ')}"


def only(text: str) -> Definition:
    """The one definition of a file."""
    found = scan(text)
    assert len(found) == 1
    return found[0]


def names_of(text: str) -> tuple[str, ...]:
    """What the collection holds; its offsets must be those of the names in the text."""
    found = only(text)
    assert (found.kind, found.subject, found.problem) == (GATE, "moe", "")
    collection = found.collection
    assert collection is not None
    for one in collection.elements:
        assert ast.literal_eval(f"({text[one.start : one.end]})") == one.value
    return collection.names


def collection_of(text: str) -> Collection:
    found = only(text).collection
    assert found is not None, only(text).problem
    return found


# --- forms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("literal", "form", "bracketed"),
    [
        ('["a", "b"]', "list", True),
        ('("a", "b")', "tuple", True),
        ('(("a"), "b")', "tuple", True),
        ('((("a"), ("b")))', "tuple", True),
        ('{"a", "b"}', "set", True),
        ('frozenset(["a", "b"])', "list", True),
        ('frozenset({"a", "b"})', "set", True),
        ('set(("a", "b"))', "tuple", True),
        ('tuple(["a", "b"])', "list", True),
    ],
)
def test_literal_is_read_in_every_form(literal: str, form: str, bracketed: bool) -> None:
    for text in (
        gate(f"return args.moe_runner_backend in {literal}"),
        gate("return args.moe_runner_backend in KNOWN", f"KNOWN = {literal}\n"),
        gate("return args.moe_runner_backend in KNOWN", f"KNOWN: object = {literal}\n"),
        gate(f"known = {literal}\nreturn args.moe_runner_backend in known"),
        f"class Runner:\n    KNOWN = {literal}\n"
        f"    def {NAME}(self):\n        return self.args.moe_runner_backend in self.KNOWN\n",
        f"class Runner:\n    KNOWN = {literal}\n    @classmethod\n"
        f"    def {NAME}(kind, moe_runner_backend):\n        return moe_runner_backend in kind.KNOWN\n",
        f"class Runner:\n    KNOWN = {literal}\n    @staticmethod\n"
        f"    def {NAME}(moe_runner_backend):\n        return moe_runner_backend in Runner.KNOWN\n",
    ):
        assert names_of(text) == ("a", "b"), text
        found = collection_of(text)
        assert (found.form, found.bracketed) == (form, bracketed)
        assert text[found.start] in "([{" and text[found.end - 1] in ")]}"


@pytest.mark.parametrize("literal", ['"a", "b"', '"a", "b",', '("a"), ("b")', '("a"), "b"', '(("a")), "b"'])
def test_tuple_without_parentheses_is_known_as_one(literal: str) -> None:
    text = gate("return args.moe_runner_backend in KNOWN", f"KNOWN = {literal}\n")
    assert names_of(text) == ("a", "b")
    assert (collection_of(text).form, collection_of(text).bracketed) == ("tuple", False)
    assert text[collection_of(text).start : collection_of(text).end].rstrip(",") == literal.rstrip(",")


@pytest.mark.parametrize(
    ("literal", "bracketed"), [('("a",)', True), ('("a"),', False), ('(("a"),)', True), ("()", True)]
)
def test_tuple_of_one_or_none_knows_its_brackets(literal: str, bracketed: bool) -> None:
    text = gate("return args.moe_runner_backend in KNOWN", f"KNOWN = {literal}\n")
    assert names_of(text) == (("a",) if "a" in literal else ())
    assert collection_of(text).bracketed is bracketed


def test_comments_in_brackets_do_not_hide_whose_they_are() -> None:
    text = gate('return args.moe_runner_backend in (  # ) of course\n    "a",  # :-)\n    "b",\n)')
    assert names_of(text) == ("a", "b")
    assert collection_of(text).bracketed


@pytest.mark.parametrize(
    "body",
    [
        'return args.moe_runner_backend in ["a"]',
        'return bool(args.moe_runner_backend in ["a"])',
        'return not (args.moe_runner_backend not in ["a"])',
        'return cuda() and args.moe_runner_backend in ["a"]',
        'return True if args.moe_runner_backend in ["a"] else False',
        'return False if args.moe_runner_backend not in ["a"] else cuda()',
        'return cuda() if args.moe_runner_backend in ["a"] else False',
        'return (args.moe_runner_backend in ["a"]) if cuda() else False',
        'if args.moe_runner_backend not in ["a"]:\n    return False\nreturn True',
        'if not (args.moe_runner_backend in ["a"]):\n    return False\nreturn True',
        'if not args.moe_runner_backend in ["a"]:\n    return\nreturn True',
        'if args.moe_runner_backend not in ["a"] or slow():\n    return False\nreturn True',
        'if args.moe_runner_backend in ["a"]:\n    return True\nreturn False',
        'if args.moe_runner_backend in ["a"]:\n    return cuda()\nreturn False',
        'if args.moe_runner_backend in ["a"]:\n    note()\nelse:\n    return False\nreturn True',
        'if args.forced:\n    return True\nif args.moe_runner_backend not in ["a"]:\n    return False\nreturn True',
        'if args.off:\n    return False\nelif args.moe_runner_backend not in ["a"]:\n    return False\nreturn True',
        'if args.on:\n    if args.moe_runner_backend not in ["a"]:\n        return False\nreturn True',
        'wanted = args.moe_runner_backend in ["a"]\nif not wanted:\n    return False\nreturn cuda()',
        'wanted: bool = args.moe_runner_backend in ["a"]\nreturn wanted or other()',
        'wanted = args.moe_runner_backend in ["a"]\nboth = wanted and cuda()\nreturn both',
        'wanted = cuda()\nwanted &= args.moe_runner_backend in ["a"]\nreturn wanted',
        'if wanted := args.moe_runner_backend in ["a"]:\n    note(1)\nreturn wanted',
        'if (name := args.moe_runner_backend) not in ["a"]:\n    return False\nreturn bool(name)',
        'wanted = False\nif args.moe_runner_backend in ["a"]:\n    wanted = True\nreturn wanted',
        'wanted = args.moe_runner_backend in ["a"]\nwanted = wanted and cuda()\nreturn wanted',
        'if args.moe_runner_backend in ["a"]:\n    n = 1\n    args.n = True\n    return True\nreturn False',
        'wanted = True\nif args.moe_runner_backend not in ["a"]:\n    wanted = False\nreturn wanted',
        'name = args.moe_runner_backend\nother = name\nreturn other in ["a"]',
        'if x:\n    name = args.draft_backend\nelse:\n    name = args.moe_runner_backend\nreturn name in ["a"]',
        'return getattr(args, "moe_runner_backend", None) in ["a"]',
        'return args["moe_runner_backend"] in ["a"]',
        'args.on: bool = True\nreturn args.moe_runner_backend in ["a"]',
        'return args.moe_runner_backend.lower() in ["a"]',
        'return args.moe_runner_backend in ["a"] and args.attention_backend in ["z"]',
    ],
)
def test_membership_that_leads_to_autotune_is_the_gate(body: str) -> None:
    assert names_of(gate(body)) == ("a",)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            'if args.moe_runner_backend in ["a"]:\n    return False\nreturn True',
            "names the backends that are not tuned",
        ),
        ('return args.moe_runner_backend not in ["a"]', "names the backends that are not tuned"),
        ('return not args.moe_runner_backend in ["a"]', "names the backends that are not tuned"),
        ('return False if args.moe_runner_backend in ["a"] else True', "names the backends that are not tuned"),
        ('return 1 if args.moe_runner_backend in ["a"] else 2', "leads to is not clear"),
        ('off = args.moe_runner_backend in ["a"]\nreturn not off', "names the backends that are not tuned"),
        ('note(args.moe_runner_backend in ["a"])\nreturn True', "leads to is not clear"),
        ('args.moe_runner_backend in ["a"]\nreturn True', "leads to is not clear"),
        ('assert args.moe_runner_backend in ["a"]\nreturn True', "leads to is not clear"),
        ('args.on = args.moe_runner_backend in ["a"]\nreturn args.on', "leads to is not clear"),
        ('return -(args.moe_runner_backend in ["a"])', "leads to is not clear"),
        ('on = args.moe_runner_backend in ["a"]\nreturn on and not on', "leads to is not clear"),
        ('if args.moe_runner_backend not in ["a"]:\n    return cuda()\nreturn True', "leads to is not clear"),
        ('if args.moe_runner_backend in ["a"]:\n    raise Bad\nreturn True', "leads to is not clear"),
        ("return args.moe_runner_backend == 'a'", "tests no MoE runner backend"),
        ("return True", "tests no MoE runner backend"),
        ("found = any(args.moe_runner_backend == one for one in K)\nreturn found", "tests no MoE runner backend"),
        ('return args.moe_runner_backend in "a b"', "is not a list, tuple or set of names"),
        ('return args.moe_runner_backend in ["a"] + EXTRA', "is not a list, tuple or set of names"),
        ('return args.moe_runner_backend in {"a": 1}', "is not a list, tuple or set of names"),
        ("return args.moe_runner_backend in set()", "set() is not written out"),
        ("return args.moe_runner_backend in frozenset(known())", "is not written out"),
        ('return args.moe_runner_backend in ["a", *MORE]', "holds *MORE, which is not a plain name"),
        ('return args.moe_runner_backend in ["a", name()]', "holds name(), which is not a plain name"),
        ('return args.moe_runner_backend in ["a", "b" + "c"]', 'holds "b" + "c", which is not a plain name'),
        ('return args.moe_runner_backend in ["a", f"b"]', 'holds f"b", which is not a plain name'),
        ('return args.moe_runner_backend in ["a", b"b"]', 'holds b"b", which is not a plain name'),
        ('return args.moe_runner_backend in ["a", 1]', "holds 1, which is not a plain name"),
        ("return args.moe_runner_backend in KNOWN", "KNOWN is not defined in this file"),
        ("return args.moe_runner_backend in args.KNOWN", "KNOWN is not defined in this file"),
        ("return args.moe_runner_backend in args.a.KNOWN", "is not a list, tuple or set of names"),
        (
            'return args.moe_runner_backend in ["a"] or args.moe_runner_backend in ["b"]',
            "tests the MoE runner backend 2 times",
        ),
    ],
)
def test_what_is_not_plainly_the_gate_is_unknown_and_says_why(body: str, why: str) -> None:
    found = only(gate(body))
    assert (found.kind, found.subject, found.collection) == (GATE, "", None)
    assert why in found.problem


def test_problem_names_the_line_and_is_not_endless() -> None:
    literal = ", ".join(f'"{number:09}"' for number in range(50))
    found = only(gate(f"cuda()\nif args.moe_runner_backend in [{literal}]:\n    return False\nreturn True"))
    assert found.test_line == 3
    assert len(found.problem) < 130 and " ... names the backends" in found.problem


def test_attention_gate_is_told_from_the_moe_gate() -> None:
    found = only(gate('name = args.attention_backend\nif name not in ["x"]:\n    return False\nreturn True'))
    assert (found.subject, found.collection, found.test_line) == ("attention", None, 3)
    assert found.problem == 'name not in ["x"]'


# --- constants -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "body", "why"),
    [
        (
            'KNOWN = ["a"]\nCOPY = KNOWN + ["b"]\n',
            "return args.moe_runner_backend in KNOWN",
            "used elsewhere too (line 2)",
        ),
        (
            'KNOWN = ["a"]\nKNOWN.append("b")\n',
            "return args.moe_runner_backend in KNOWN",
            "used elsewhere too (line 2)",
        ),
        ('KNOWN = ["a"]\nKNOWN += ["b"]\n', "return args.moe_runner_backend in KNOWN", "is assigned 2 times"),
        ('KNOWN = ["a"]\nif X:\n    KNOWN = ["b"]\n', "return args.moe_runner_backend in KNOWN", "is assigned 2 times"),
        ('KNOWN = OTHER = ["a"]\n', "return args.moe_runner_backend in KNOWN", "used elsewhere too (line 1)"),
        ('OTHER = ["a"]\nKNOWN = OTHER\n', "return args.moe_runner_backend in KNOWN", "is another name for OTHER"),
        (
            'KNOWN = ["a"]\ndef reset():\n    global KNOWN\n    KNOWN = []\n',
            "return args.moe_runner_backend in KNOWN",
            "used elsewhere too (line 4)",
        ),
        ('from x import *\nKNOWN += ["a"]\n', "return args.moe_runner_backend in KNOWN", "used elsewhere too (line 2)"),
        ('KNOWN: list\nKNOWN = ["a"]\n', "return args.moe_runner_backend in KNOWN", "used elsewhere too (line 1)"),
        ('KNOWN = ["a"]\ndel KNOWN[0]\n', "return args.moe_runner_backend in KNOWN", "used elsewhere too (line 2)"),
        ('KNOWN = ["a"]\n', 'KNOWN.append("b")\nreturn args.moe_runner_backend in KNOWN', "elsewhere too (line 3)"),
        (
            'KNOWN = ["a"]\n',
            "return args.moe_runner_backend in KNOWN or args.draft_moe_runner_backend in KNOWN",
            "tests the MoE runner backend 2 times (3, 3)",
        ),
        ("", 'known = ["a"]\nknown.append("b")\nreturn args.moe_runner_backend in known', "elsewhere too (line 3)"),
        ("", 'known = ["a"]\nif X:\n    known = ["b"]\nreturn args.moe_runner_backend in known', "assigned 2 times"),
        (
            "",
            'known = ["a"]\nfor known in X:\n    pass\nreturn args.moe_runner_backend in known',
            "elsewhere too (line 3)",
        ),
        ('KNOWN = ["a"]\n', "for KNOWN in X:\n    pass\nreturn args.moe_runner_backend in KNOWN", "not defined"),
        ('KNOWN = ["a"]\n', "KNOWN, b = X\nreturn args.moe_runner_backend in KNOWN", "not defined in this file"),
        ('KNOWN = ["a"]\n', "from x import KNOWN\nreturn args.moe_runner_backend in KNOWN", "not defined in this file"),
        ('args = ["a"]\n', "return moe_runner_backend in args", "not defined in this file"),
    ],
)
def test_constant_whose_edit_would_change_more_is_refused(head: str, body: str, why: str) -> None:
    found = only(gate(body, head))
    assert found.collection is None
    assert why in found.problem


def test_constant_of_another_object_is_not_the_classes_own() -> None:
    text = (
        f'class Runner:\n    KNOWN = ["a"]\n    def {NAME}(self):\n'
        "        return self.args.moe_runner_backend in {}.KNOWN\n"
    )
    assert names_of(text.replace("{}", "self")) == ("a",)
    assert "not defined in this file" in only(text.replace("{}", "other")).problem


def test_class_constant_that_a_subclass_replaces_is_refused() -> None:
    text = (
        f'class Runner:\n    KNOWN = ["a"]\n    def {NAME}(self):\n'
        '        return self.args.moe_runner_backend in self.KNOWN\nclass Draft(Runner):\n    KNOWN = ["b"]\n'
    )
    assert "used elsewhere too (line 6)" in only(text).problem


def test_shared_constants_are_named_and_local_ones_are_not() -> None:
    assert only(gate("return args.moe_runner_backend in KNOWN", 'KNOWN = ["a"]\n')).constant == "KNOWN"
    assert only(gate('known = ["a"]\nreturn args.moe_runner_backend in known')).constant == ""
    assert only(gate('return args.moe_runner_backend in ["a"]')).constant == ""
    text = f'class R:\n    K = ["a"]\n    def {NAME}(self, moe_runner_backend):\n'
    text += "        return moe_runner_backend in self.K\n"
    assert only(text).constant == "K"


def test_constant_is_read_beside_others_and_beside_imports() -> None:
    assert names_of(gate("import os\nreturn args.moe_runner_backend in KNOWN", 'OTHER = 1\nKNOWN = ["a"]\n')) == ("a",)
    text = f'class R:\n    OTHER = 1\n    K = ["a"]\n    def {NAME}(self, moe_runner_backend):\n'
    assert names_of(text + "        return moe_runner_backend in self.K\n") == ("a",)


# --- definitions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", ["pass", "...", '"""Says it."""', '"""Says it."""\n...', "raise NotImplementedError", '"""x"""\nraise Bad']
)
def test_function_that_says_nothing_is_a_stub(body: str) -> None:
    assert only(gate(body)).kind == STUB


@pytest.mark.parametrize("mark", ["overload", "typing.overload"])
def test_overload_is_a_stub(mark: str) -> None:
    text = f"@{mark}\ndef {NAME}(a): return a.moe_runner_backend in ['a']\n"
    assert only(text).kind == STUB


@pytest.mark.parametrize(
    ("head", "body", "target"),
    [
        ("", "return decide(args)", ("", "decide")),
        ("", '"""Says it."""\nreturn decide(args)', ("", "decide")),
        ("", "return bool(decide(args))", ("", "decide")),
        ("", "return bool()", ("", "bool")),
        ("", "return decide(args, draft=args.kind == 1)", ("", "decide")),
        ("", "return args.decide()", ("", "decide")),
        ("", "from a.b import c\nreturn c(args)", ("a.b", "c")),
        ("", "from a.b import c as d\nreturn d(args)", ("a.b", "c")),
        ("from a.b import c\n", "return c(args)", ("a.b", "c")),
        ("from a.b import c\n", "from x import c\nreturn c(args)", ("x", "c")),
        ("", "from .b import c\nreturn c(args)", (".b", "c")),
        ("", "from ..b import c\nreturn c(args)", ("..b", "c")),
        ("", "from . import c\nreturn c(args)", (".", "c")),
        ("", "from . import b\nreturn b.c(args)", (".b", "c")),
        ("", "from .. import b\nreturn b.c(args)", ("..b", "c")),
        ("", "from a import b\nreturn b.c(args)", ("a.b", "c")),
        ("", "import a.b as x\nreturn x.c(args)", ("a.b", "c")),
        ("import a.b\n", "return a.b.c(args)", ("a.b", "c")),
        ("import a\n", "return a.c(args)", ("a", "c")),
    ],
)
def test_function_that_only_calls_another_is_a_delegate(head: str, body: str, target: tuple[str, str]) -> None:
    found = only(gate(body, head))
    assert (found.kind, found.target) == (DELEGATE, target)


def test_awaited_call_is_a_delegate_too() -> None:
    found = only(f"async def {NAME}(args):\n    return await decide(args)\n")
    assert (found.kind, found.target) == (DELEGATE, ("", "decide"))


@pytest.mark.parametrize(
    "body",
    [
        "return not decide(args)",
        "note()\nreturn decide(args)",
        "return args.runner.decide()",
        "return decide()(args)",
        "return deciders[0](args)",
        "return decide",
        "return deciders().decide(args)",
    ],
)
def test_function_that_does_more_than_to_call_is_no_delegate(body: str) -> None:
    assert only(gate(body)).kind == GATE


def test_definitions_come_in_the_order_of_the_file_wherever_they_stand() -> None:
    other = gate_syntax.GATE_NAMES[1]
    text = (
        f"class Deep:\n    class Deeper:\n        def {NAME}(self): ...\n\nasync def {other}(args):\n"
        f"    return args.moe_runner_backend in ['a']\n\nif X:\n    @first\n    @second(1)\n    def {NAME}(s): pass\n"
        "def unrelated(): return 1\n"
    )
    assert [(one.name, one.line, one.kind) for one in scan(text)] == [
        (NAME, 3, STUB),
        (other, 5, GATE),
        (NAME, 11, STUB),
    ]
    assert [one.line for one in scan(text, ("unrelated",))] == [12]


def test_commented_function_and_text_in_strings_are_no_definitions() -> None:
    text = f"# def {NAME}(): return 1\nX = '''\ndef {NAME}(): return 1\n'''\n"
    assert scan(text) == []


# --- offsets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    "before",
    [
        "",
        "# \u2028 \x85 \x0b lines of others\n",
        "\x0c\nX = 1\n",
        "X = '\u2028\u2029'\n",
        "\x0cX = 1\n",
        '"""text\n\nof \x1c some\n"""\n',
    ],
)
def test_lines_are_counted_as_python_counts_them(before: str, end: str) -> None:
    text = (
        before + gate('if args.moe_runner_backend not in [\n    "a",\n    # "b",\n]:\n    return False\nreturn 1')
    ).replace("\n", end)
    found = collection_of(text)
    lines = before.count("\n")
    assert (found.line, found.elements[0].line, found.commented[0].line) == (lines + 2, lines + 3, lines + 4)
    assert text[found.start : found.end] == f'[{end}        "a",{end}        # "b",{end}    ]'
    assert text[found.commented[0].start : found.commented[0].end] == '# "b",'


def test_mixed_line_ends_are_counted_one_by_one() -> None:
    text = f'X = 1\rY = 2\r\nZ = 3\n\r\ndef {NAME}(a):\r    return a.moe_runner_backend in [\n"a",\r# "b"\r\n]'
    found = collection_of(text)
    assert (found.line, found.elements[0].line, found.commented[0].line) == (6, 7, 8)
    assert text[found.start : found.end] == '[\n"a",\r# "b"\r\n]'


def test_other_alphabets_before_the_gate_on_its_line_do_not_move_it() -> None:
    text = gate("x = 'äöü€😀'; return x and args.moe_runner_backend in [\"a\", 'ß', \"b\"]")
    assert names_of(text) == ("a", "ß", "b")
    assert text[collection_of(text).start : collection_of(text).end] == '["a", \'ß\', "b"]'


@pytest.mark.parametrize(
    ("literal", "value"),
    [("'a'", "a"), ('"a"', "a"), ('"fl" "ash"', "flash"), ('r"a"', "a"), ('"""a"""', "a"), ('"\\x61"', "a")],
)
def test_names_are_read_however_they_are_spelled(literal: str, value: str) -> None:
    assert names_of(gate(f"return args.moe_runner_backend in [{literal}]")) == (value,)


# --- comments --------------------------------------------------------------------------------------------------------


def commented(lines: str) -> list[str]:
    """Names in comments of a collection with these lines."""
    text = gate(f"return args.moe_runner_backend in [\n{lines}\n]")
    for one in collection_of(text).commented:
        assert one.value in text[one.start : one.end] and text[one.start] == "#"
    return [one.value for one in collection_of(text).commented]


@pytest.mark.parametrize(
    "comment",
    [
        '# "b",',
        '# "b"',
        '#"b",',
        '##"b"',
        "# 'b',",
        '#\t"b" ,',
        '# "b",  # breaks',
        '# "b"  # breaks',
        '## "b",   ',
    ],
)
def test_comment_that_holds_one_name_is_found(comment: str) -> None:
    assert commented(f'    "a",\n    {comment}') == ["b"]
    assert commented(f'    {comment}\n    "a"') == ["b"]
    assert commented(f"{comment}") == ["b"]


@pytest.mark.parametrize(
    "comment",
    ['# "b" breaks', '# TODO: "b",', '# "b", "c",', "# b,", "# \"b',", '# ["b"]', '# "b\\n",', "#", '# x = "b"'],
)
def test_comment_that_holds_more_is_left_alone(comment: str) -> None:
    assert commented(f'    "a",\n    {comment}') == []


def test_comment_behind_something_or_outside_is_not_found() -> None:
    assert commented('    "a",  # "b",') == []
    assert commented('    "a"  # "b"\n    "c",') == []
    assert commented('    "# \\"b\\",",\n    "c"') == []
    text = gate('# "b",\nreturn args.moe_runner_backend in ["a"]\n# "b",')
    assert collection_of(text).commented == ()


def test_comment_in_the_parentheses_of_one_name_is_not_found() -> None:
    assert commented('    (\n    # "b",\n    "a"\n    # "c"\n    ),\n    # "d"') == ["d"]


def test_comment_in_a_wrapped_collection_is_found_and_one_beside_it_is_not() -> None:
    text = gate(
        'return args.moe_runner_backend in frozenset(\n    # "x",\n    {\n        "a",\n        # "b",\n    }\n)'
    )
    assert [one.value for one in collection_of(text).commented] == ["b"]


# --- what cannot be read ---------------------------------------------------------------------------------------------


def test_syntax_error_says_where() -> None:
    with pytest.raises(UnreadableError) as caught:
        scan("X = 1\nY = (\n")
    assert caught.value.line == 2


@pytest.mark.parametrize("text", ["X = '\ud800'", "X = 1\0"])
def test_what_is_no_text_is_unreadable(text: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        scan(text)
    assert str(caught.value)


def test_style_that_the_compiler_warns_about_is_no_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert names_of(gate('return args.moe_runner_backend in ["a"]', "X = '\\d'\nY = X is 'd'\n")) == ("a",)


def test_text_that_is_nested_too_deeply_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(*_args: object) -> None:
        raise RecursionError

    monkeypatch.setattr(gate_syntax, "_definition", deep)
    with pytest.raises(UnreadableError, match="nested too deeply"):
        scan(gate("pass"))
    monkeypatch.setattr(ast, "parse", deep)
    with pytest.raises(UnreadableError, match="RecursionError"):
        scan(gate("pass"))


# --- mentions, brings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("# tune\n'tune'\n", []),
        ("x = 1\ntune = 2\n", [2]),
        ("x.tune_it()\n", [1]),
        ("def tune(): pass\n", [1]),
        ("class Mytune: pass\n", [1]),
        ("f(tune=1)\n", [1]),
        ("def f(tune): pass\n", [1]),
        ("import a.tune\n", [1]),
        ("from tune import x\n", [1]),
        ("\nfrom x import (\n    y,\n    tune,\n)\n", [2, 4]),
        ("import x as tune\n", [1]),
        ("def f():\n    global tune\n", [2]),
        ("tune = tune\ntune\n", [1, 2]),
    ],
)
def test_identifiers_are_found_by_what_they_hold(text: str, lines: list[int]) -> None:
    found = mentions(text, "tune")
    # Python 3.9 knows only where the statement begins.
    assert found == lines or (len(lines) == 2 and found == lines[:1])


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("from x import KNOWN\n", [1]),
        ("from x import KNOWN as y\n", [1]),
        ("\nx.KNOWN\n", [2]),
        ("KNOWN = 1\nprint(KNOWN)\n", []),
        ("from x import KNOWN_TOO\nx.KNOWN_TOO\n# KNOWN\nimport KNOWN\n", []),
    ],
)
def test_use_of_another_files_name_is_found(text: str, lines: list[int]) -> None:
    assert brings(text, "KNOWN") == lines


# --- differs_only_by -------------------------------------------------------------------------------------------------

BEFORE = 'X = ["a"]\nY = ["a"]\n'


@pytest.mark.parametrize(
    ("after", "same"),
    [
        ('X = ["a"]\nY = ["a", "b"]\n', True),
        ('X = ["a"]\nY = ["b", "a"]\n', True),
        ('X = ["a"]\nY = [\n    "a",\n    # why\n    "b"]\n', True),
        ('X = ["a"]\nY = ["a"]\n', False),
        ('X = ["a"]\nY = ["a", "b", "b"]\n', False),
        ('X = ["a"]\nY = ["a", "b", "c"]\n', False),
        ('X = ["a"]\nY = ["b"]\n', False),
        ('X = ["a"]\nY = ["a", ["b"]]\n', False),
        ('X = ["c"]\nY = ["a", "b"]\n', False),
        ('X = ["a"]\nY = ["a", "b"]\nZ = 1\n', False),
        ('X = ["a"]\nZ = ["a", "b"]\n', False),
        ('X = ["a"]\nY = ("a", "b")\n', False),
        ('X = ["a"]\nY = [u"a", "b"]\n', False),
    ],
)
def test_texts_are_the_same_program_but_for_one_name_or_not(after: str, same: bool) -> None:
    assert differs_only_by(BEFORE, after, "b", BEFORE.rindex("[")) is same


def test_name_in_another_collection_does_not_count() -> None:
    assert not differs_only_by(BEFORE, 'X = ["a", "b"]\nY = ["a"]\n', "b", BEFORE.rindex("["))
    assert not differs_only_by(BEFORE, 'X = ["a"]\nY = ["a", "b"]\n', "b", BEFORE.index("["))


def test_equal_numbers_of_other_kinds_are_another_program() -> None:
    assert not differs_only_by('X = 1\nY = ["a"]', 'X = 1.0\nY = ["a", "b"]', "b", 10)
    assert not differs_only_by('X = 1;Y = ["a"]', 'X = True;Y = ["a", "b"]', "b", 10)
    assert not differs_only_by('X = 0.00;Y = ["a"]', 'X = -0.0;Y = ["a", "b"]', "b", 13)
    assert differs_only_by('X = 0.00;Y = ["a"]', 'X = 0.00;Y = ["a", "b"]', "b", 13)


def test_long_sums_are_compared_whatever_their_depth() -> None:
    text = f"X = {' + '.join('1' * 1500)}\nY = ['a']\n"
    assert differs_only_by(text, text.replace("['a']", "['a', 'b']"), "b", text.rindex("["))
    assert not differs_only_by(
        text, text.replace("['a']", "['a', 'b']").replace("1 +", "2 +", 1), "b", text.rindex("[")
    )


def test_texts_that_cannot_be_read_are_not_compared() -> None:
    with pytest.raises(UnreadableError):
        differs_only_by("X = (", "X = (", "b", 0)


# --- to and from another interpreter ---------------------------------------------------------------------------------


def test_definitions_survive_the_way_through_json() -> None:
    texts = [
        gate('return args.moe_runner_backend in ["a"]'),
        gate("return args.moe_runner_backend in KNOWN", 'KNOWN = (\n    "a",\n    # "b",\n)\n'),
        gate("return decide(args)"),
        gate("pass"),
        gate("return True"),
    ]
    found = [one for text in texts for one in scan(text)]
    assert found[0].collection and found[1].collection and found[1].collection.commented
    assert gate_syntax.from_json(json.loads(json.dumps(gate_syntax.as_json(found)))) == found
