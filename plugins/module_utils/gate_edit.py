# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adding a name to the gate's collection, in the file's own style, and taking it out again. Text in, text out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils.gate_syntax import Collection, Comment, Element

_LINE_END = re.compile(r"\r\n|\r|\n")
_TRIVIA = re.compile(r"#[^\r\n]*|\\(?=\r?\n|\r)|\s+")

#: How names are commented out, and what before a name can have come with it.
_MARKS = ("# ", "#", "## ", "##")
_LEADS = (re.compile(r"\Z"), re.compile(r"[ \t]+\Z"), re.compile(r"(?:\r\n|\r|\n)[ \t]*\Z"))
_OWN_COMMA = re.compile(r"\A[ \t]*,")


@dataclass(frozen=True)
class Insertion:
    """What takes the place of `text[start:end]`."""

    start: int
    end: int
    now: str


def with_name(text: str, collection: Collection, name: str) -> str:
    """The text with `name` in the collection.

    A line that holds the name in a comment is made live where it is. Otherwise the name follows the last one, on a line
    of its own where the last one has one, with the file's quotes, indentation, line ends and trailing comma.
    """
    commented = next((one for one in collection.commented if one.value == name), None)
    edits = _uncommented(text, collection, commented) if commented else _appended(text, collection, name)
    return _applied(text, edits)


def without_name(text: str, collection: Collection, name: str) -> Iterator[str]:
    """Texts that could have been there before somebody made `name` live: as a comment, or not at all.

    With and without its comma and that of the name before it, and with the blanks and the line end around it.
    """
    for number, element in enumerate(collection.elements):
        if element.value != name:
            continue
        head, literal, tail = text[: element.start], text[element.start : element.end], text[element.end :]
        heads, tails = [head], [tail, _OWN_COMMA.sub("", tail)]
        if number:
            comma = _end_of(text, collection.elements[number - 1], element.start)[0] - 1
            heads.append(text[:comma] + text[comma + 1 : element.start])
        for one in heads:
            for other in tails:
                yield from (f"{one}{mark}{literal}{other}" for mark in _MARKS)
                for lead in _LEADS:
                    yield lead.sub("", one) + other
                    yield lead.sub("", one) + other.lstrip(" \t")
            # The whole line, also with what is said behind the name.
            line_end = _LINE_END.search(tail)
            if line_end and not text[_line_start(text, element.start) : element.start].strip():
                yield _LEADS[1].sub("", one) + tail[line_end.end() :]


def _applied(text: str, edits: list[Insertion]) -> str:
    for edit in sorted(edits, key=lambda one: one.start, reverse=True):
        text = text[: edit.start] + edit.now + text[edit.end :]
    return text


def _uncommented(text: str, collection: Collection, comment: Comment) -> list[Insertion]:
    said = text[comment.start : comment.end]
    live = re.sub(r"^#+[ \t]*", "", said)
    before = [one for one in collection.elements if one.end <= comment.start]
    after = [one for one in collection.elements if one.start >= comment.end]
    quoted = re.match(r"""(['"])[^'"]*\1[ \t]*""", live)
    literal = quoted.group() if quoted else live
    has_comma = live[len(literal) :].startswith(",")
    only_one = collection.form == "tuple" and not before and not after
    if not has_comma and (after or only_one):
        bare = literal.rstrip()
        live = f"{bare},{live[len(bare) :]}"
    edits = [Insertion(comment.start, comment.end, live)]
    if before and not after:
        anchor, comma = _end_of(text, before[-1], comment.start)
        if not comma:
            edits.append(Insertion(anchor, anchor, ","))
    return edits


def _appended(text: str, collection: Collection, name: str) -> list[Insertion]:
    close = collection.end - 1 if collection.bracketed else collection.end
    if not collection.elements:
        return _first(text, collection, close, name)
    last = collection.elements[-1]
    # The first character may be a prefix.
    quote = text[last.end - 1]
    literal = f"{quote}{name}{quote}"
    anchor, comma = _end_of(text, last, close)
    line_start, line_end = _line_start(text, last.start), _line_end(text, anchor)
    indent = text[line_start : last.start]
    # Without brackets a line ends the statement.
    own_line = collection.bracketed and not indent.strip()
    if not own_line:
        if not comma:
            return [Insertion(anchor, anchor, f", {literal}")]
        # ("a",) has its comma only because it is a tuple of one.
        needless = collection.form == "tuple" and len(collection.elements) == 1
        return [Insertion(anchor, anchor, f" {literal}" + ("" if needless else ","))]
    rest = text[anchor:line_end].strip()
    new_line = _newline_near(text, line_start)
    added = f"{new_line}{indent}{literal}" + ("," if comma else "")
    if rest and not rest.startswith("#"):
        # The bracket closes on this line: the name goes before it.
        return [Insertion(anchor, anchor, ("" if comma else ",") + added)]
    edits = [Insertion(line_end, line_end, added)]
    if not comma:
        edits.append(Insertion(anchor, anchor, ","))
    return edits


def _first(text: str, collection: Collection, close: int, name: str) -> list[Insertion]:
    comma = "," if collection.form == "tuple" else ""
    inside = text[collection.start + 1 : close]
    comments = list(re.finditer(r"#[^\r\n]*", inside))
    if not comments:
        return [Insertion(collection.start + 1, collection.start + 1, f'"{name}"{comma}')]
    at = collection.start + 1 + comments[-1].end()
    start = collection.start + 1 + comments[-1].start()
    line_start = _line_start(text, start)
    indent = re.match(r"[ \t]*", text[line_start:start])
    # The bracket closes on a later line, so the comment's line ends.
    new_line = _LINE_END.match(text, at)
    return [Insertion(at, at, f'{new_line.group() if new_line else ""}{indent.group() if indent else ""}"{name}",')]


def _end_of(text: str, element: Element, limit: int) -> tuple[int, bool]:
    """Where the element ends with the parentheses around it and its comma, and whether it has a comma."""
    at = end = element.end
    comma = False
    while at < limit:
        trivia = _TRIVIA.match(text, at, limit)
        if trivia:
            at = trivia.end()
            continue
        if text[at] not in "),":
            break
        comma = text[at] == ","
        at += 1
        end = at
    return end, comma


def _line_start(text: str, offset: int) -> int:
    return max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1


def _line_end(text: str, offset: int) -> int:
    found = _LINE_END.search(text, offset)
    return found.start() if found else len(text)


def _newline_near(text: str, line_start: int) -> str:
    """The line end before the line, so that a file with mixed ones stays as it is around the edit."""
    if text[:line_start].endswith("\r\n"):
        return "\r\n"
    return "\r" if text[:line_start].endswith("\r") else "\n"
