# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adding a name to a collection: which characters change, and that taking it out finds the way back."""

from __future__ import annotations

import textwrap

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import gate_syntax
from ansible_collections.tokforge.sglang.plugins.module_utils.gate_edit import with_name, without_name
from ansible_collections.tokforge.sglang.plugins.module_utils.gate_syntax import Collection

NAME = gate_syntax.GATE_NAMES[0]


def collection_of(text: str) -> Collection:
    found = gate_syntax.scan(text)[0]
    assert found.collection is not None, found.problem
    return found.collection


def added(text: str, name: str = "x") -> str:
    """The text with the name; what is around the literal must be the same, and the program but for the name."""
    before = collection_of(text)
    after_text = with_name(text, before, name)
    after = collection_of(after_text)
    assert sorted(after.names) == sorted((*before.names, name))
    assert gate_syntax.differs_only_by(text, after_text, name, before.start)
    assert (after_text[: after.start], after_text[after.end :]) == (text[: before.start], text[before.end :])
    assert text in without_name(after_text, after, name)
    return after_text


def literal(body: str) -> str:
    """A gate that tests against a literal which is written over these lines."""
    return f"def {NAME}(args):\n    return args.moe_runner_backend in {body}\n"


def edited(body: str) -> str:
    """The literal with the name x."""
    head, tail = literal("\0").split("\0")
    return added(literal(body))[len(head) :].removesuffix(tail)


# --- appended --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('["a"]', '["a", "x"]'),
        ("['a']", "['a', 'x']"),
        ('["a", "b"]', '["a", "b", "x"]'),
        ('["a", "b",]', '["a", "b", "x",]'),
        ('["a" ]', '["a", "x" ]'),
        ('[ "a" , ]', '[ "a" , "x", ]'),
        ('("a",)', '("a", "x")'),
        ('("a", "b")', '("a", "b", "x")'),
        ('("a", "b",)', '("a", "b", "x",)'),
        ('(("a"), ("b"))', '(("a"), ("b"), "x")'),
        ('{"a"}', '{"a", "x"}'),
        ('frozenset(["a"])', 'frozenset(["a", "x"])'),
        ('frozenset({"a",})', 'frozenset({"a", "x",})'),
        ("[]", '["x"]'),
        ("()", '("x",)'),
        ("( )", '("x", )'),
        ("set([])", 'set(["x"])'),
        ("[\"a\", 'b']", "[\"a\", 'b', 'x']"),
        ("[r'a']", "[r'a', 'x']"),
        ('["a" "b"]', '["a" "b", "x"]'),
        ('[("a" "b")]', '[("a" "b"), "x"]'),
        ("['''a''']", "['''a''', 'x']"),
    ],
)
def test_name_follows_on_the_same_line_in_the_files_style(before: str, after: str) -> None:
    assert edited(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('[\n    "a",\n]', '[\n    "a",\n    "x",\n]'),
        ('[\n    "a"\n]', '[\n    "a",\n    "x"\n]'),
        ("[\n\t'a',\n]", "[\n\t'a',\n\t'x',\n]"),
        ('(\n    "a",\n)', '(\n    "a",\n    "x",\n)'),
        ('{\n    "a",\n    "b"}', '{\n    "a",\n    "b",\n    "x"}'),
        ('[\n    "a",\n    "b",]', '[\n    "a",\n    "b",\n    "x",]'),
        ('["a",\n    "b"]', '["a",\n    "b",\n    "x"]'),
        ('[\n    "a", "b",\n    "c", "d",\n]', '[\n    "a", "b",\n    "c", "d", "x",\n]'),
        ('[\n    "a", "b",\n    "c",\n]', '[\n    "a", "b",\n    "c",\n    "x",\n]'),
        ('[\n    "a",  # why\n]', '[\n    "a",  # why\n    "x",\n]'),
        ('[\n    "a"  # why, "x"\n]', '[\n    "a",  # why, "x"\n    "x"\n]'),
        ('[\n    "a"  # why\n    ,\n]', '[\n    "a"  # why\n    ,\n    "x",\n]'),
        ('[\n    "a",\n    # "y",\n]', '[\n    "a",\n    "x",\n    # "y",\n]'),
        ('[\n    "a"\n    # what for (x), y\n]', '[\n    "a",\n    "x"\n    # what for (x), y\n]'),
        ('[\n    "fl"\n    "ash",\n]', '[\n    "fl"\n    "ash",\n    "x",\n]'),
        ('[\n    ("a"),\n]', '[\n    ("a"), "x",\n]'),
        ('[\n    (\n        "a"\n    ),\n]', '[\n    (\n        "a"\n    ),\n        "x",\n]'),
        ('[\n    "a", \\\n]', '[\n    "a",\n    "x", \\\n]'),
        ('[\n    "a"  , \n]', '[\n    "a"  , \n    "x",\n]'),
        ("[\n]", '["x"\n]'),
        ("[\n    # none yet\n]", '[\n    # none yet\n    "x",\n]'),
        ("(  # none yet\n)", '(  # none yet\n    "x",\n)'),
        ("[\n    # one\n\n    # two\n]", '[\n    # one\n\n    # two\n    "x",\n]'),
    ],
)
def test_name_gets_a_line_of_its_own_where_the_last_one_has_one(before: str, after: str) -> None:
    assert edited(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"a", "b"', '"a", "b", "x"'),
        ('"a", "b",', '"a", "b", "x",'),
        ('"a",', '"a", "x"'),
        ('("a"), ("b")', '("a"), ("b"), "x"'),
        ('("a"), "b"', '("a"), "b", "x"'),
        ('"a", \\\n    "b"', '"a", \\\n    "b", "x"'),
        ('"a", \\\n    "b"  # why', '"a", \\\n    "b", "x"  # why'),
    ],
)
def test_tuple_without_parentheses_stays_one_statement(before: str, after: str) -> None:
    rest = f"\ndef {NAME}(args):\n    return args.moe_runner_backend in KNOWN\n"
    assert added(f"KNOWN = {before}{rest}") == f"KNOWN = {after}{rest}"


# --- uncommented -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('[\n    "a",\n    # "x",\n]', '[\n    "a",\n    "x",\n]'),
        ('[\n    "a",\n    # TODO: x breaks\n    # "x",\n]', '[\n    "a",\n    # TODO: x breaks\n    "x",\n]'),
        ('[\n    "a",\n    #"x",\n]', '[\n    "a",\n    "x",\n]'),
        ('[\n    "a",\n    ##"x"\n]', '[\n    "a",\n    "x"\n]'),
        ('[\n    "a",\n    ## "x",\n]', '[\n    "a",\n    "x",\n]'),
        ("[\n    \"a\",\n    # 'x',\n]", "[\n    \"a\",\n    'x',\n]"),
        ('[\n    "a",\n    # "x"\n    "b",\n]', '[\n    "a",\n    "x",\n    "b",\n]'),
        ('[\n    # "x"\n    "b",\n]', '[\n    "x",\n    "b",\n]'),
        ('[\n    "a"\n    # "x"\n]', '[\n    "a",\n    "x"\n]'),
        ('[\n    "a"  # why\n    # "x",\n]', '[\n    "a",  # why\n    "x",\n]'),
        ('[\n    "a"\n    ,  # why\n    # "x",\n]', '[\n    "a"\n    ,  # why\n    "x",\n]'),
        ('[\n    "a",\n    # "x",  # breaks\n]', '[\n    "a",\n    "x",  # breaks\n]'),
        ('[\n    # "x"  # breaks\n    "b",\n]', '[\n    "x",  # breaks\n    "b",\n]'),
        ('[\n    "a",\n    # "x" ,\n]', '[\n    "a",\n    "x" ,\n]'),
        ('[\n    # "x"\n]', '[\n    "x"\n]'),
        ('(\n    # "x"\n)', '(\n    "x",\n)'),
        ('(\n    "a",\n    # "x"\n)', '(\n    "a",\n    "x"\n)'),
        ('{\n    "a",\n# "x",\n}', '{\n    "a",\n"x",\n}'),
        ('[\n    "a",\n    # "x",\n    # "x",\n]', '[\n    "a",\n    "x",\n    # "x",\n]'),
        ('frozenset({\n    "a",\n    # "x",\n})', 'frozenset({\n    "a",\n    "x",\n})'),
        ('[\n    "a",\n    # "x",\n    # "y",\n    "b",\n]', '[\n    "a",\n    "x",\n    # "y",\n    "b",\n]'),
    ],
)
def test_line_that_holds_the_name_in_a_comment_is_made_live(before: str, after: str) -> None:
    assert edited(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('[\n    "a",\n    # "x" breaks,\n]', '[\n    "a",\n    "x",\n    # "x" breaks,\n]'),
        ('[\n    "a",\n    # "x", "y",\n]', '[\n    "a",\n    "x",\n    # "x", "y",\n]'),
        ('[\n    "a",  # "x",\n]', '[\n    "a",  # "x",\n    "x",\n]'),
        ('[\n    (\n    # "x",\n    "a"\n    ),\n]', '[\n    (\n    # "x",\n    "a"\n    ),\n    "x",\n]'),
    ],
)
def test_comment_that_is_no_line_of_the_collection_stays(before: str, after: str) -> None:
    assert edited(before) == after


def test_duplicates_in_comments_outside_stay() -> None:
    outside = f'# return b not in [\n#     "a",\n#     # "x",\n# ]\n# def {NAME}(args):\n# "x",\n'
    text = outside + literal('[\n    "a",\n]') + outside
    assert added(text) == outside + literal('[\n    "a",\n    "x",\n]') + outside


# --- line ends -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    "body",
    [
        '[\n    "a",\n]',
        '[\n    "a"\n]',
        '[\n    "a",\n    # "x"\n]',
        "[\n    # none\n]",
        '[\n    "a",  # w\n]',
        '["a",\n"b"]',
    ],
)
def test_line_ends_are_the_files_own(body: str, end: str) -> None:
    text = literal(body)
    assert added(text.replace("\n", end)) == added(text).replace("\n", end)


def test_line_end_is_the_one_before_where_they_are_mixed() -> None:
    text = literal("[@").replace("@", '\r\n    "a",\r    "b",\n]').replace(":\n", ":\r")
    assert added(text) == text.replace('"b",\n', '"b",\r    "x",\n')


def test_file_without_a_last_line_end_gets_none() -> None:
    text = literal('[\n    "a"\n]').rstrip("\n")
    assert added(text) == text.replace('"a"', '"a",\n    "x"')


# --- the way back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("original", "patched"),
    [
        ('[\n    "a",\n    # "x",\n    "b",\n]', '[\n    "a",\n    "x",\n    "b",\n]'),
        ('[\n    "a",\n    #"x",\n    "b",\n]', '[\n    "a",\n    "x",\n    "b",\n]'),
        ('[\n    "a",\n    # "x"\n]', '[\n    "a",\n    "x",\n]'),
        ('[\n    "a"\n    # "x"\n]', '[\n    "a",\n    "x"\n]'),
        ('[\n    "a"\n    # "x"\n]', '[\n    "a",\n    "x",\n]'),
        ('[\n    "a"\n]', '[\n    "a",\n    "x",\n]'),
        ('[\n    "a"\n]', '[\n    "a",\n    "x"\n]'),
        ('[\n    "a",\n]', '[\n    "x",\n    "a",\n]'),
        ('["a", "b"]', '["x", "a", "b"]'),
        ('["a", "b"]', '["a","x", "b"]'),
        ('["a", "b"]', '["a", "x","b"]'.replace('"x",', '"x", ')),
        ('["a", "b"]', '["a", "b", "x"]'),
        ('["a", "b",]', '["a", "b", "x",]'),
        ("[]", '["x"]'),
        ('[\n    "a",\n]', '[\n    "a",\n    "x",  # mine\n]'),
        ('[\n    "a"\n]', '[\n    "a",\n    "x"  # mine\n]'),
        ('[\n    "a",\n]', '[\n    "x",  # "y"\n    "a",\n]'),
        ('["a",]', '["a",\n    "x",]'),
    ],
)
def test_what_stood_there_before_another_hand_is_among_the_guesses(original: str, patched: str) -> None:
    for text, before in ((literal(patched), literal(original)), (literal(patched)[:-1], literal(original)[:-1])):
        assert before in without_name(text, collection_of(text), "x")


def test_comma_of_the_name_before_is_the_one_that_may_have_come() -> None:
    text = literal('[("a"), ("x")]')
    assert literal('[("a") (# "x")]') in without_name(text, collection_of(text), "x")


def test_guesses_touch_no_other_name() -> None:
    text = literal('[\n    "a",\n    "x",\n    "xx",\n]')
    for guess in without_name(text, collection_of(text), "x"):
        kept = [line.strip() for line in textwrap.dedent(guess).splitlines()]
        assert '"xx",' in kept and any(line.startswith('"a"') for line in kept)
        assert '"x",' not in kept
    assert list(without_name(text, collection_of(text), "y")) == []
