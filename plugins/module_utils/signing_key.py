# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a file holds one signing key and which: its fingerprint, computed from its bytes.

A key becomes trusted by the file that apt's `Signed-By` names, so the file must hold the key that was asked for and no
other. The rules are those of OpenPGP (RFC 4880: 4.2 packets, 5.5.2 public keys, 6.2 armor, 12.2 fingerprints), computed
here because a bare Debian has gpgv, which reads keyrings, but not gpg, which tells what is in one. What these rules do
not cover (keys of version 3, 5 and 6, partial lengths) is refused.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import re
from collections.abc import Iterator

from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

MAX_BYTES = 1_000_000

_PUBLIC_KEY = 6
#: Signature, public key, trust, user id, public subkey, user attribute.
_ALLOWED = frozenset({2, 6, 12, 13, 14, 17})

_BEGIN = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
_END = "-----END PGP PUBLIC KEY BLOCK-----"
_FINGERPRINT = re.compile(r"[0-9A-F]{40}")


class KeyFileError(HostError):
    """The file is not the one key that is asked for; the text says what to do."""


def normal_fingerprint(text: str) -> str:
    """A fingerprint as 40 capital hexadecimal digits. Raises KeyFileError: a short key id can be made to fit."""
    plain = re.sub(r"\s", "", text).upper()
    plain = plain[2:] if plain.startswith("0X") else plain
    if not _FINGERPRINT.fullmatch(plain):
        raise KeyFileError(
            f"checking the repository's key: {text!r} is no fingerprint; give all 40 hexadecimal digits",
            fingerprint=text,
        )
    return plain


def handed_over(text: str) -> bytes:
    """The bytes of a key file from its text, armored or all of it in Base64. What is neither stays as it is."""
    if "-----BEGIN" not in text:
        with contextlib.suppress(ValueError):
            return base64.b64decode("".join(text.split()), validate=True)
    return text.encode("utf-8", "replace")


def checked(data: bytes, fingerprint: str, where: str) -> bytes:
    """The key as bytes that apt reads from a .gpg file, when `data` holds exactly the key with this fingerprint.

    :param data: a key file, armored or binary.
    :param where: what to call the file in messages.
    Raises KeyFileError.
    """
    wanted = normal_fingerprint(fingerprint)
    key = _bytes(data, where)
    try:
        found = [body for tag, body in _packets(key) if tag == _PUBLIC_KEY]
        prints = [_fingerprint(body) for body in found]
    except ValueError as error:
        raise KeyFileError(f"reading the key {where}: {error}; get the file anew", where=where) from error
    if prints != [wanted]:
        told = ", ".join(prints) or "none"
        raise KeyFileError(
            f"checking the key {where}: it holds {told}, and exactly {wanted} is trusted; get the right file, or set "
            "the fingerprint after you have confirmed it with whoever signs the repository",
            found=prints,
            expected=wanted,
        )
    return key


def _bytes(data: bytes, where: str) -> bytes:
    if len(data) > MAX_BYTES:
        raise KeyFileError(f"reading the key {where}: it has more than {MAX_BYTES} bytes; it is no key", where=where)
    if b"-----BEGIN" not in data:
        return data
    try:
        return _dearmored(data.decode("ascii"))
    except (ValueError, binascii.Error) as error:
        raise KeyFileError(f"reading the key {where}: {error}; get the file anew", where=where) from error


def _dearmored(text: str) -> bytes:
    lines = [line.strip() for line in text.strip().splitlines()]
    # One block and nothing around it: gpg would read a second one too.
    if lines[0] != _BEGIN or lines[-1] != _END or text.count("-----BEGIN") != 1:
        raise ValueError("it is not exactly one armored public key")
    body = lines[1:-1]
    if "" not in body:
        raise ValueError("its armor has no empty line")
    content = [line for line in body[body.index("") + 1 :] if line]
    if content and re.fullmatch(r"=[A-Za-z0-9+/]{4}", content[-1]):
        content.pop()
    return base64.b64decode("".join(content), validate=True)


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    position = 0
    while position < len(data):
        head = data[position]
        if not head & 0x80:
            raise ValueError("it is no OpenPGP file")
        if head & 0x40:
            tag, position, size = head & 0x3F, *_new_length(data, position + 1)
        else:
            tag, position, size = (head >> 2) & 0x0F, *_old_length(data, position + 1, head & 0x03)
        body = data[position : position + size]
        if len(body) != size:
            raise ValueError("it ends in the middle of a packet")
        if tag not in _ALLOWED:
            raise ValueError(f"it holds more than a public key (packet {tag})")
        position += size
        yield tag, body


def _new_length(data: bytes, position: int) -> tuple[int, int]:
    first = _number(data, position, 1)
    if first < 192:
        return position + 1, first
    if first < 224:
        return position + 2, ((first - 192) << 8) + _number(data, position + 1, 1) + 192
    if first == 255:
        return position + 5, _number(data, position + 1, 4)
    raise ValueError("it has a packet of partial length")


def _old_length(data: bytes, position: int, kind: int) -> tuple[int, int]:
    if kind == 3:
        raise ValueError("it has a packet without length")
    octets = (1, 2, 4)[kind]
    return position + octets, _number(data, position, octets)


def _number(data: bytes, position: int, octets: int) -> int:
    part = data[position : position + octets]
    if len(part) != octets:
        raise ValueError("it ends in the middle of a length")
    return int.from_bytes(part, "big")


def _fingerprint(body: bytes) -> str:
    if body[:1] != b"\x04":
        raise ValueError("its key is not of version 4")
    # What OpenPGP calls a key's fingerprint is a SHA-1.
    digest = hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body)  # noqa: S324
    return digest.hexdigest().upper()
