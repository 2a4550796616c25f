# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments that a server says it runs with, read from its log.

The line is `server_args=ServerArgs(name=value, ...)` in 0.5.0rc0 to 0.5.18 and `server_args={'name': value, ...}` from
0.5.19 on. It is the longest line of a log, so it is the one that gets cut: by a writer in between, by a full disk, or
by a log driver that splits long lines (Docker's at 16 kB). What is whole of such a line is read, and said to be cut.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.flags import canonical
from ansible_collections.tokforge.sglang.plugins.module_utils.server_args import SECRETS

HIDDEN = "(hidden)"
# A log record's head; the main process has no rank tags between the time and the bracket.
_RECORD = re.compile(r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)(?P<tags>[^\]\r\n]*)\] ")
_NAMED = re.compile(r"\s*([A-Za-z_]\w*)=(.*)", re.DOTALL)
_QUOTED = re.compile(r"\s*'([^']*)': ?(.*)", re.DOTALL)
_FORMS = (("server_args=ServerArgs(", _NAMED, ")"), ("server_args={", _QUOTED, "}"))
# An object's own text, as a dataclass writes it.
_OBJECT = re.compile(r"[A-Z]\w*\((?=\w+=)")
# Where log drivers that write one JSON object a line keep the text: Docker's json-file, journalctl -o json, others.
_TEXT_KEYS = ("log", "MESSAGE", "message", "msg")
#: Objects in objects are read to this depth; what is deeper stays text.
_DEPTH = 8
#: So many characters of a start's line are read. Real ones have 12 to 20 kB.
_LONGEST = 256 * 1024
#: So many lines that belong to no record may continue a start's line.
_CONTINUED = 16


@dataclass(frozen=True)
class Start:
    """One start in a log. `line` counts from 1, `time` is as the log has it.

    Of a line that was cut, `args` holds the arguments before the cut, and `complete` is false.
    """

    args: Mapping[str, Any]
    complete: bool
    line: int = 0
    time: str = ""


@dataclass
class _Open:
    """A start whose line has no end yet."""

    text: str
    line: int
    pieces: list[str] = field(default_factory=list)


def parse_log_line(text: str) -> dict[str, Any] | None:
    """The arguments in one line of a log; None when the line does not say any.

    Only a record of the main process counts, so the same words inside a logged prompt do not. A value that is no Python
    literal (an object's own text) stays text, but an object of named fields is a mapping, as newer releases write it.
    Secrets come back as HIDDEN.
    """
    found = _start(text)
    return None if found is None else dict(found.args)


def starts(lines: Iterable[str]) -> list[Start]:
    """Every start in a log, in its order. Lines may be JSON objects of a log driver, and cut ones may go on."""
    found: list[Start] = []
    waiting: _Open | None = None
    for number, line in enumerate(_plain(lines), start=1):
        if waiting is not None and not _RECORD.search(line) and len(waiting.pieces) < _CONTINUED:
            waiting.pieces.append(line.rstrip("\r\n"))
            whole = _start(waiting.text + "".join(waiting.pieces), waiting.line)
            if whole is not None and whole.complete:
                found[-1], waiting = whole, None
            continue
        waiting = None
        if "server_args=" not in line:
            continue
        start = _start(line, number)
        if start is not None:
            found.append(start)
            waiting = None if start.complete else _Open(line.rstrip("\r\n"), number)
    return found


def parse_log(lines: Iterable[str]) -> dict[str, Any] | None:
    """The arguments of the last start in a log; None when no line says any."""
    found = starts(lines)
    return dict(found[-1].args) if found else None


def chosen(found: list[Start], which: str | int) -> Start | None:
    """The start that is meant: "first", "last", or its number, counted from 1, from the end when negative."""
    number = {"first": 1, "last": -1}.get(which) if isinstance(which, str) else which
    if number is None:
        return None
    index = number - 1 if number > 0 else number
    return found[index] if number and -len(found) <= index < len(found) else None


def _plain(lines: Iterable[str]) -> Iterator[str]:
    """The text of each line. Parts of one line that a log driver has split come together again.

    Only a log whose first line is a driver's object is a driver's: in any other, such an object is what somebody sent.
    """
    driven: bool | None = None
    parts: list[str] = []
    for line in lines:
        text = None if driven is False else _driven(line)
        if driven is None and line.strip():
            driven = text is not None
        if text is None:
            yield "".join([*parts, line])
            parts = []
        elif text.endswith("\n") or len(parts) >= _CONTINUED:
            yield "".join([*parts, text])
            parts = []
        else:
            parts.append(text)
    if parts:
        yield "".join(parts)


def _driven(line: str) -> str | None:
    """The text in a log driver's JSON object; None when the line is none. Only Docker's says where a line ends."""
    if not line.startswith("{") or len(line) > _LONGEST:
        return None
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    key = next((key for key in _TEXT_KEYS if isinstance(record.get(key), str)), None)
    if key is None:
        return None
    text: str = record[key]
    return text if key == "log" else text + "\n"


def _start(text: str, line: int = 0) -> Start | None:
    for piece in re.split(r"[\r\n]", text[:_LONGEST]):
        # A progress bar may stand before the record on its line, so the record's head need not begin the line; but what
        # follows another record's head is that record's content, and what follows a quotation mark is quoted.
        record = _RECORD.search(piece)
        if record is None or record["tags"].strip() or '"' in piece[: record.start()] or "'" in piece[: record.start()]:
            continue
        message = piece[record.end() :]
        for opening, named, close in _FORMS:
            if message.startswith(opening):
                fields, complete = _fields(message[len(opening) :], named, close)
                args = {name: _literal(value.strip()) for name, value in fields.items()}
                return Start(_hidden(args), complete, line, record["time"])
    return None


def _fields(body: str, pattern: re.Pattern[str], close: str) -> tuple[dict[str, str], bool]:
    """Name -> text of each field up to the bracket that ends the whole, and whether that bracket is there."""
    found: dict[str, str] = {}
    last = None
    parts, complete = _top_level_parts(body, close)
    # Without its end, the last field is as far as the cut came.
    for part in parts if complete else parts[:-1]:
        match = pattern.fullmatch(part)
        if match:
            last = match[1]
            found[last] = match[2]
        elif last is not None:
            # An object's own text may hold a bare comma; what is no new field belongs to the one before.
            found[last] += f",{part}"
    return found, complete


def _top_level_parts(body: str, close: str) -> tuple[list[str], bool]:
    """The text between the commas outside of quotes and brackets, up to the bracket that ends the whole."""
    parts: list[str] = []
    depth, quote, start, index = 0, "", 0, 0
    while index < len(body):
        char = body[index]
        if quote:
            if char == "\\":
                index += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            if depth == 0 and char == close:
                return [*parts, body[start:index]], True
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(body[start:index])
            start = index + 1
        index += 1
    return [*parts, body[start:]], False


def _literal(text: str, depth: int = 0) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return _object(text, depth)
    # JSON has no sets and no byte strings; they stay the text that the log holds.
    return value if _is_plain(value) else text


def _object(text: str, depth: int) -> Any:
    """An object of named fields as a mapping, and any other text as it is."""
    opening = _OBJECT.match(text)
    if opening is None or depth >= _DEPTH:
        return text
    body = text[opening.end() :]
    fields, complete = _fields(body, _NAMED, ")")
    if not complete or not fields or not _ends(body):
        return text
    return {name: _literal(value.strip(), depth + 1) for name, value in fields.items()}


def _ends(body: str) -> bool:
    """Whether the bracket that ends an object is the last sign of its text."""
    parts, _complete = _top_level_parts(body, ")")
    return sum(len(part) + 1 for part in parts) == len(body)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return value is None or isinstance(value, (str, int, float, bool))


def _hidden(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: HIDDEN if value is not None and canonical(name) in SECRETS else value for name, value in found.items()
    }
