# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Python source file as bytes and as text, both ways without a change."""

from __future__ import annotations

import codecs
import hashlib
import io
import tokenize


def read(path: str) -> bytes:
    """The bytes of a file. Raises OSError."""
    with open(path, "rb") as stream:
        return stream.read()


def decoded(data: bytes) -> tuple[str, str]:
    """A Python file's text and encoding (PEP 263), line ends as they are.

    Raises SyntaxError, UnicodeError and LookupError.
    """
    # Python ends a line at a lone CR too, before it looks for a cookie in the first two.
    lines = io.BytesIO(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))
    encoding, _lines = tokenize.detect_encoding(lines.readline)
    body = data[len(codecs.BOM_UTF8) :] if encoding == "utf-8-sig" else data
    return body.decode("utf-8" if encoding == "utf-8-sig" else encoding), encoding


def encoded(text: str, encoding: str, like: bytes) -> bytes:
    """The bytes of a text, with the byte order mark that `like` has. Raises UnicodeError."""
    if encoding == "utf-8-sig":
        return (codecs.BOM_UTF8 if like.startswith(codecs.BOM_UTF8) else b"") + text.encode()
    return text.encode(encoding)


def sha256(data: bytes) -> str:
    """Digest in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
