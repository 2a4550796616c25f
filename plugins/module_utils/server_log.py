# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person needs to see of the server's log: what was written since a start, without noise, with what went wrong.

Everything is bounded: at most READ_BYTES are read, TAIL_LINES shown, and LINE_CHARACTERS of each line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils import log_noise
from ansible_collections.tokforge.sglang.plugins.module_utils.log_follow import LogError, LogPosition, newest_bytes

TAIL_LINES = 50
LINE_CHARACTERS = 400
NEWEST_CHARACTERS = 90
READ_BYTES = 256 * 1024
# Lines after the last exception that are shown: the rest of its message, and what the log ends with.
_AFTER_FIRST, _AFTER_LAST = 4, 10
# A shorter value would be found inside ordinary words and numbers.
_SHORTEST_SECRET = 8

# Lines that say nothing about a failure. Each was seen in logs of servers that served (SGLang 0.5.12.post1 and 0.5.23).
BENIGN = (
    *(pattern for _hint, pattern in log_noise.KINDS.values()),
    # Python's warnings: `path:line: SomeWarning: text`; the lines below it are told by _WARNING_MORE.
    re.compile(r"^(?:\[[^\]]*\] )?[^:]+:\d+: \w*Warning: "),
    re.compile(r"^\s+warnings\.warn\("),
    # nanobind (triton's bindings) counts at exit what Python did not free.
    re.compile(r"^nanobind: (?:leaked \d+ (?:instance|type|function|keep_alive)|this is likely caused by a reference)"),
    re.compile(r"^ - (?:leaked (?:instance|type|function|keep_alive) |\.\.\. skipped remainder$)"),
    re.compile(r"^See https://nanobind\.readthedocs\.io/\S*refleaks\.html$"),
    # The requests of our own looks.
    re.compile(r'"GET /(?:health|v1/models) HTTP/[\d.]+" (?:200|503)\b'),
)
_WARNING = BENIGN[len(log_noise.KINDS)]
# The further lines of a warning: the rest of its text and the source line, indented by two. A traceback's frame is not.
_WARNING_MORE = re.compile(r'^  (?!File ")\S')
_WARNING_MORE_LINES = 3

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
# Also what moves text about on a terminal: C1, zero width and bidirectional controls.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
# SGLang's prefix `[time{ tags}] `. A progress bar ends without a newline, so a record can begin inside a line.
_PREFIX = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?P<tags>(?: [A-Z_]+\d+)*)\] "
_RECORD = re.compile(_PREFIX)
_RECORD_BEGINS = re.compile(r"(?=\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]{0,80}\] )")

_TRACEBACK = "Traceback (most recent call last):"
_INDENT = re.compile(r"[\s|+]*")
_EXCEPTION = re.compile(r"[\s|+]*[A-Za-z_][\w.]*(?::(?:\s.*)?)?$")
# Tracebacks of a shutdown, which say nothing about why it came to that.
_IGNORED = re.compile(r"Exception ignored (?:in|on)\b|Error in atexit\._run_exitfuncs|Error in sys\.exitfunc")
_SHUTDOWN = re.compile(r"[\s|+]*(?:KeyboardInterrupt|SystemExit|(?:asyncio\.exceptions\.)?CancelledError)\b")


@dataclass(frozen=True)
class Excerpt:
    """What to show. `lines` are at most TAIL_LINES, `benign` counts lines left out because they say nothing.

    `first_exception` is the final line of the first traceback when it is another one than the last, which `lines`
    holds: with several ranks the first is the cause. `newest` is the newest line that says something, at most
    NEWEST_CHARACTERS.
    """

    lines: tuple[str, ...]
    benign: int = 0
    first_exception: str = ""
    newest: str = ""


@dataclass(frozen=True)
class Trace:
    """A traceback: lines `start` to before `stop`. `final` is the line that names the exception, empty when cut off."""

    start: int
    stop: int
    final: str = ""
    shutdown: bool = False


def excerpt(position: LogPosition, secrets: Iterable[str] = ()) -> Excerpt:
    """What was written since `position`, safe to show: no control characters, no secret values, long lines cut.

    A log that was rotated meanwhile is read across the rotation, as log_follow.py says. Of one that cannot be read
    nothing is shown.
    """
    said, benign = without_benign(clean(_last_bytes(position), secrets))
    traces = tracebacks(said)
    causes = [trace for trace in traces if not trace.shutdown] or traces
    first = causes[0].final if causes and causes[0].final != causes[-1].final else ""
    shown = choose(said, causes[-1] if causes else None)
    cut = tuple(_cut(line, LINE_CHARACTERS) for line in shown)
    return Excerpt(cut, benign, _cut(first, LINE_CHARACTERS), newest(said))


def clean(raw: bytes, secrets: Iterable[str] = ()) -> list[str]:
    """The lines of a piece of log without empty ones. A carriage return ends a line, and so does the next record."""
    text = raw.decode("utf-8", "replace").replace("\r", "\n")
    text = "\n".join(_UNPRINTABLE.sub("", _ANSI.sub("", line)) for line in text.split("\n"))
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "<redacted>")
    pieces = (piece.rstrip() for line in text.split("\n") for piece in _RECORD_BEGINS.split(line))
    return [piece for piece in pieces if piece]


def without_benign(lines: Iterable[str]) -> tuple[list[str], int]:
    """The lines that say something, and how many others there were."""
    said: list[str] = []
    benign = more = 0
    for line in lines:
        if more and _WARNING_MORE.match(line):
            benign, more = benign + 1, more - 1
        elif _TRACEBACK not in line and any(pattern.search(line) for pattern in BENIGN):
            benign, more = benign + 1, _WARNING_MORE_LINES if _WARNING.search(line) else 0
        else:
            said.append(line)
            more = 0
    return said, benign


def tracebacks(lines: Sequence[str]) -> list[Trace]:
    """Every traceback in the order of its first line. Records of other processes between its lines do not end one."""
    starts = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    found: list[Trace] = []
    for start, limit in zip(starts, [*starts[1:], len(lines)]):
        base = _indent(lines[start])
        ignored = any(_IGNORED.search(line) for line in lines[max(0, start - 1) : start + 1])
        stop, final = limit, ""
        for number in range(start + 1, limit):
            line = lines[number]
            if _indent(line) <= base and not _RECORD.match(line) and _EXCEPTION.match(line):
                stop, final = number + 1, line.strip(" |+")
                break
        found.append(Trace(start, stop, final, ignored or bool(_SHUTDOWN.match(final))))
    return found


def _indent(line: str) -> int:
    found = _INDENT.match(line)
    return found.end() if found else 0


def choose(lines: Sequence[str], trace: Trace | None, limit: int = TAIL_LINES) -> list[str]:
    """At most `limit` lines: the end, and of the traceback at least the first line and the last ones."""
    if trace is None or trace.start >= len(lines) - limit:
        return list(lines[-limit:])
    after = _shorten(lines[trace.stop :], _AFTER_FIRST, _AFTER_LAST)
    inside = lines[trace.start : trace.stop]
    # One line names what failed; the rest of the room is for the frames nearest to the exception.
    inside = _shorten(inside, 1, limit - len(after) - 2)
    before = lines[: trace.start][-(limit - len(after) - len(inside)) :] if len(after) + len(inside) < limit else []
    return [*before, *inside, *after]


def _shorten(lines: Sequence[str], first: int, last: int) -> list[str]:
    left_out = len(lines) - first - last
    if left_out < 2:  # a line that says that one line is left out takes as much room as the line
        return list(lines)
    return [*lines[:first], f"... {left_out} lines left out ...", *lines[-last:]]


def newest(lines: Sequence[str]) -> str:
    """The newest line with a word in it, its time left out and cut."""
    for line in reversed(lines):
        record = _RECORD.match(line)
        text = line[record.end() :] if record else line
        if record and record.group("tags"):
            text = f"[{record.group('tags').strip()}] {text}"
        text = " ".join(text.split())
        if re.search(r"\w", text):
            return _cut(text, NEWEST_CHARACTERS)
    return ""


def _cut(line: str, limit: int) -> str:
    return line if len(line) <= limit else line[: limit - 4] + " ..."


def _last_bytes(position: LogPosition) -> bytes:
    """The end of what was written since, READ_BYTES at most. Empty when the log cannot be read."""
    try:
        raw, whole = newest_bytes(position, READ_BYTES)
    except LogError:
        return b""
    if whole:
        return raw
    # It begins inside a line, which could be the second half of a secret that would not be recognized.
    begins = re.search(rb"[\r\n]", raw)
    return raw[begins.end() :] if begins else raw
