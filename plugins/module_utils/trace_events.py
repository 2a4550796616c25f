# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The events of a Chrome trace that PyTorch's profiler wrote, one after another, without holding the file.

Such a file is one JSON object, mostly compressed, whose member `traceEvents` has up to millions of events; times are in
microseconds. Reading it at once takes some ten times its size of memory, which is needed by the server beside it.
"""

from __future__ import annotations

import codecs
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from typing import IO, Any, Callable

#: Unpacked bytes that are read; a trace of a few steps is far below.
MOST_BYTES = 4 << 30
#: Characters that one event, or one other member of the file, may have.
MOST_EVENT_CHARACTERS = 4 << 20
_CHUNK_BYTES = 1 << 20
_SPACE = " \t\r\n"


class TraceError(Exception):
    """A trace that cannot be read. `cut` is True when it only ends too early, so that it may still be being written."""

    def __init__(self, message: str, cut: bool = False) -> None:
        super().__init__(message)
        self.cut = cut


def read(path: str, most_bytes: int = MOST_BYTES) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """The members of the file that stand before the events, and the events. What is no object is left out.

    Raises TraceError, also while the events are taken.
    """
    text = _Text(path, most_bytes)
    head: dict[str, Any] = {}
    try:
        text.expect("{")
        while True:
            name = text.value()
            text.expect(":")
            if name == "traceEvents":
                text.expect("[")
                return head, _events(text)
            head[str(name)] = text.value()
            if text.next() != ",":
                raise text.error("it has no traceEvents")
            text.expect(",")
    except BaseException:
        text.close()
        raise


def _events(text: _Text) -> Iterator[dict[str, Any]]:
    try:
        while text.next() != "]":
            event = text.value()
            if isinstance(event, dict):
                yield event
            if text.next() != "]":
                text.expect(",")
    finally:
        text.close()


def _no_number(name: str) -> None:
    """NaN and Infinity, which are no JSON but are written, become null."""
    return


class _Text:
    """A file's text, of which a part is held."""

    def __init__(self, path: str, most_bytes: int) -> None:
        self._path, self._left = path, most_bytes
        self._held, self._at, self._ended = "", 0, False
        # Names of kernels are not always valid UTF-8 and not always escaped.
        self._decode = json.JSONDecoder(strict=False, parse_constant=_no_number).raw_decode
        try:
            raw: IO[bytes] = open(path, "rb")  # noqa: SIM115 - closed by close(), when the last event is taken
        except OSError as error:
            raise TraceError(f"reading the trace {path}: {error.strerror}") from error
        self._raw = raw
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        packed = raw.read(1) == b"\x1f"
        raw.seek(0, os.SEEK_SET)
        self._read: Callable[[int], bytes] = (gzip.GzipFile(fileobj=raw) if packed else raw).read

    def close(self) -> None:
        """Close the file."""
        self._raw.close()

    def error(self, why: str, cut: bool = False) -> TraceError:
        """The error to raise."""
        return TraceError(f"reading the trace {self._path}: {why}; profile again, with fewer steps if it is large", cut)

    def next(self) -> str:
        """The next character that is no space; not taken."""
        while True:
            while self._at < len(self._held):
                if self._held[self._at] not in _SPACE:
                    return self._held[self._at]
                self._at += 1
            if not self._more():
                raise self.error("it ends in the middle", cut=True)

    def expect(self, character: str) -> None:
        """Take one character."""
        found = self.next()
        if found != character:
            raise self.error(f"it is no trace of PyTorch's profiler ({found!r} where {character!r} belongs)")
        self._at += 1

    def value(self) -> Any:
        """Take one value."""
        self.next()
        while True:
            try:
                value, end = self._decode(self._held, self._at)
            except (ValueError, RecursionError) as error:
                failure = error
            else:
                # A number may go on in what has not been read.
                if end < len(self._held) or not isinstance(value, (int, float)):
                    self._at = end
                    return value
                failure = ValueError("a number without an end")
            if isinstance(failure, RecursionError) or len(self._held) - self._at > MOST_EVENT_CHARACTERS:
                raise self.error(f"one of its events cannot be read ({failure})") from failure
            if not self._more():
                raise self.error(f"it ends in the middle ({failure})", cut=True) from failure

    def _more(self) -> bool:
        """Read on; False at the end."""
        if self._ended:
            return False
        try:
            chunk = self._read(_CHUNK_BYTES)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            # gzip tells both a file that is not whole yet and a damaged one; waiting a moment tells them apart.
            raise self.error(f"its compression is broken or not finished ({error})", cut=True) from error
        except OSError as error:
            raise self.error(f"{error.strerror or error}") from error
        self._left -= len(chunk)
        if self._left < 0:
            raise self.error("it is larger than what is read of a trace")
        self._ended = not chunk
        self._held = self._held[self._at :] + self._characters.decode(chunk)
        self._at = 0
        return bool(chunk)
