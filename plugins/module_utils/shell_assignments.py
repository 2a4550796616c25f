# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The assignments of a file that a shell sources, each with its place in the text.

As a POSIX shell reads it (POSIX.1-2024, "Shell Command Language"), as far as assignments go, so that one value can be
written anew and every other byte stays.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

#: The name of an assignment that may be one of anything.
ANY = "*"


class ShellError(HostError):
    """A file that no shell reads; the text says where and why. `facts` go beside the message."""


@dataclass(frozen=True)
class Assignment:
    """A `name=...` in a file that a shell sources; the value is written from `start` to `end` of its text.

    `value` is what the shell makes of it, each sign of which comes from one of the `spans`. The variable's own value
    is a space in it and any other expansion a $. `quote` is the quote around all of it, else empty. `extends` is for a
    value with the variable's own in it, `why` says why it is no plain value and is empty for one that is.
    """

    file: str
    line: int
    name: str
    start: int
    end: int
    value: str
    spans: tuple[tuple[int, int], ...]
    quote: str
    extends: bool
    conditional: bool
    why: str


def read(text: str, file: str) -> list[Assignment]:
    """All assignments in their order. Raises ShellError for what cannot be read.

    :param file: named in what is found and in errors.
    """
    return _Shell(text, file).assignments()


@dataclass(frozen=True)
class _Bit:
    """A sign of a word, or with `text` None what the shell expands; `quote` is what it stands in."""

    text: str | None
    start: int
    end: int
    quote: str


class _Shell:
    """One reading of a file."""

    _BREAKS = " \t\n;&|()<>"
    _OPENING = ("if", "while", "until", "{")
    _OPENING_LIST = ("for", "case", "select")
    _CLOSING = ("fi", "done", "esac", "}")
    _BETWEEN = ("then", "do", "else", "elif", "!")
    _SOURCES = (".", "source", "eval")

    def __init__(self, text: str, file: str) -> None:
        self._text = text
        self._file = file
        self._at = 0
        self._found: list[Assignment] = []
        # Of the command that is being read: its assignments, its name, whether a name may still come.
        self._pending: list[tuple[re.Match[str], list[_Bit], int, int]] = []
        self._command = ""
        self._first = True
        # Blocks and parentheses around it, and whether it runs only after another one.
        self._depth = 0
        self._parentheses = 0
        self._linked = False

    def assignments(self) -> list[Assignment]:
        """All assignments in their order. Raises ShellError for what cannot be read."""
        text = self._text
        while self._at < len(text):
            if text.startswith("\\\n", self._at):
                self._at += 2
            elif text[self._at] in " \t":
                self._at += 1
            elif text[self._at] == "#":
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            elif text[self._at] in self._BREAKS:
                self._operator()
            else:
                self._take(self._at, self._word())
        self._flush("\n")
        return self._found

    def _operator(self) -> None:
        found = re.compile(r"<<|[<>][&>|]?|&&|\|\||;;|.", re.DOTALL).match(self._text, self._at)
        sign = found.group() if found else ""
        if sign == "<<":
            raise self._error(self._at, "it has a here-document, which is not understood")
        self._at += len(sign)
        if sign[0] in "<>":
            # What follows is a file's name and no command.
            while self._text[self._at : self._at + 1] in (" ", "\t"):
                self._at += 1
            if self._text[self._at : self._at + 1] not in self._BREAKS:
                self._word()
            return
        empty = self._first and not self._pending
        self._flush(sign)
        if sign == "(":
            self._parentheses += 1
        elif sign == ")":
            self._parentheses = max(0, self._parentheses - 1)
        if sign in ("&&", "||", "|"):
            self._linked = True
        elif sign != "\n" or not empty:
            self._linked = False

    def _take(self, start: int, bits: list[_Bit]) -> None:
        """What a word means at its place."""
        raw = self._text[start : self._at]
        named = re.match(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=", raw)
        if named and (self._first or self._command in ("export", "readonly")):
            self._pending.append((named, bits, start, self._at))
        elif not self._first:
            if self._command in ("unset", "read") and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", raw):
                self._unclear(raw, start, f"{self._command} changes it")
        elif raw in self._OPENING:
            self._depth += 1
        elif raw not in self._BETWEEN:
            self._first = False
            # Assignments in front of a command are gone after it.
            self._pending.clear()
            self._command = raw
            if raw in self._OPENING_LIST:
                self._depth += 1
            elif raw in self._CLOSING:
                self._depth = max(0, self._depth - 1)
            elif raw in self._SOURCES:
                self._unclear(ANY, start, f"`{raw}` there may set it")

    def _flush(self, sign: str) -> None:
        """The command ends."""
        conditional = self._depth > 0 or self._parentheses > 0 or self._linked or sign in ("&", "|")
        for named, bits, start, end in self._pending:
            self._found.append(self._assignment(named, bits, start, end, conditional))
        self._pending.clear()
        self._command = ""
        self._first = True

    def _assignment(
        self, named: re.Match[str], bits: list[_Bit], start: int, end: int, conditional: bool
    ) -> Assignment:
        name, begin = named.group(1), start + len(named.group())
        inner = [bit for bit in bits if bit.start >= begin]
        source = self._text[begin:end]
        quote = source[0] if len(source) > 1 and source[0] == source[-1] and source[0] in "\"'" else ""
        quote = quote if all(bit.quote == quote for bit in inner) else ""
        own = rf"\$(?:{name}|\{{{name}\}}|\{{{name}:?\+[ ]*\$(?:{name}|\{{{name}\}})[ ]*\}}|\{{{name}:?-\}})"
        expanded = [self._text[bit.start : bit.end] for bit in inner if bit.text is None]
        others = [each for each in expanded if not re.fullmatch(own, each)]
        extends = len(others) < len(expanded) and not named.group(2)
        value = "".join(
            ("$" if self._text[bit.start : bit.end] in others else " ") if bit.text is None else bit.text
            for bit in inner
        )
        why = ""
        if named.group(2):
            why = "it is assigned with +=, which is none of the shell that reads the file"
        elif others:
            why = f"its value has {others[0]} in it, which only a shell can tell"
        elif any(bit.text == "" for bit in inner):
            why = "its value goes on in the next line"
        elif any(sign in value for sign in "\n\r\0"):
            why = "its value has a line end or a zero byte in it"
        elif conditional:
            why = "it is assigned under a condition"
        line = self._line(start)
        spans = tuple((bit.start, bit.end) for bit in inner)
        return Assignment(
            self._file, line, name, begin, end, value, spans, quote, extends, conditional, "" if extends else why
        )

    def _unclear(self, name: str, start: int, why: str) -> None:
        line = self._line(start)
        self._found.append(Assignment(self._file, line, name, start, start, "", (), "", False, False, why))

    def _word(self) -> list[_Bit]:
        """Read on to the end of a word."""
        bits: list[_Bit] = []
        text = self._text
        while self._at < len(text) and text[self._at] not in self._BREAKS:
            start = self._at
            if text[start] == "\\" and start + 1 < len(text):
                self._at += 2
                bits.append(_Bit("" if text[start + 1] == "\n" else text[start + 1], start, start + 2, ""))
            elif text[start] == "'":
                end = text.find("'", start + 1)
                if end < 0:
                    raise self._error(start, "a quote that begins there does not end")
                bits += [_Bit(text[at], at, at + 1, "'") for at in range(start + 1, end)]
                self._at = end + 1
            elif text[start] == '"':
                bits += self._double()
            else:
                bits.append(self._sign(""))
        return bits

    def _double(self) -> list[_Bit]:
        """Read a text in double quotes."""
        bits: list[_Bit] = []
        text = self._text
        opened = self._at
        self._at += 1
        while self._at < len(text):
            start = self._at
            if text[start] == '"':
                self._at += 1
                return bits
            if text[start] == "\\" and text[start + 1 : start + 2] in ("$", "`", '"', "\\", "\n"):
                self._at += 2
                if text[start + 1] != "\n":
                    bits.append(_Bit(text[start + 1], start, start + 2, '"'))
            else:
                bits.append(self._sign('"'))
        raise self._error(opened, "a quote that begins there does not end")

    def _sign(self, quote: str) -> _Bit:
        """Read one sign, or one expansion."""
        start = self._at
        text = self._text
        if text[start] == "`":
            self._nested("", "`")
        elif text.startswith("$(", start) or text.startswith("${", start):
            self._at += 1
            self._nested(text[start + 1], ")" if text[start + 1] == "(" else "}")
        else:
            name = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])").match(text, start)
            self._at = name.end() if name else start + 1
            if not name:
                return _Bit(text[start], start, start + 1, quote)
        return _Bit(None, start, self._at, quote)

    def _nested(self, opening: str, closing: str) -> None:
        """Read on behind the end of an expansion, whose first sign is at hand."""
        start = self._at
        depth = 1
        self._at += 1
        while self._at < len(self._text):
            sign = self._text[self._at]
            if sign == closing and depth == 1:
                self._at += 1
                return
            if sign == "\\":
                self._at += 2
            elif sign == '"':
                self._double()
            elif sign == "'" and "'" in self._text[self._at + 1 :]:
                self._at = self._text.index("'", self._at + 1) + 1
            elif sign == "`":
                self._nested("", "`")
            else:
                depth += (sign == opening) - (sign == closing)
                self._at += 1
        raise self._error(start, f"no {closing} ends what begins there")

    def _line(self, position: int) -> int:
        return self._text.count("\n", 0, position) + 1

    def _error(self, position: int, why: str) -> ShellError:
        line = self._line(position)
        return ShellError(
            f"reading {self._file} line {line}: {why}; correct the file, which update-grub reads as well",
            file=self._file,
            line=line,
        )
