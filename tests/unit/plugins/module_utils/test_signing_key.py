# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64

import apt_outputs as outputs
import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import signing_key
from ansible_collections.tokforge.sglang.plugins.module_utils.signing_key import KeyFileError

RAW = base64.b64decode("".join(outputs.KEY.splitlines()[2:-2]))
OTHER_RAW = base64.b64decode("".join(outputs.OTHER_KEY.splitlines()[2:-2]))


def refused(data: bytes, fingerprint: str = outputs.FINGERPRINT) -> str:
    with pytest.raises(KeyFileError) as raised:
        signing_key.checked(data, fingerprint, "test.pub")
    return str(raised.value)


def test_key_with_the_fingerprint_is_given_in_binary_form() -> None:
    assert signing_key.checked(outputs.KEY.encode(), outputs.FINGERPRINT, "x") == RAW
    assert signing_key.checked(RAW, outputs.FINGERPRINT, "x") == RAW
    assert signing_key.checked(outputs.KEY.replace("\n", "\r\n").encode(), outputs.FINGERPRINT, "x") == RAW


def test_fingerprint_may_have_spaces_and_small_letters() -> None:
    spaced = "0x47da 9a96 8fe7 ed11 4034  e2c8 dafa 4cda 35d2 9024"
    assert signing_key.checked(RAW, spaced, "x") == RAW


@pytest.mark.parametrize("text", ["35D29024", "DAFA4CDA35D29024", "", "47DA9A968FE7ED114034E2C8DAFA4CDA35D2902G"])
def test_short_key_id_is_no_fingerprint(text: str) -> None:
    assert "all 40 hexadecimal digits" in refused(RAW, text)


def test_other_key_is_refused_with_both_fingerprints() -> None:
    told = refused(outputs.OTHER_KEY.encode())
    assert outputs.OTHER_FINGERPRINT in told
    assert outputs.FINGERPRINT in told


def test_second_key_beside_the_right_one_is_refused() -> None:
    assert outputs.OTHER_FINGERPRINT in refused(RAW + OTHER_RAW)
    assert outputs.OTHER_FINGERPRINT in refused(OTHER_RAW + RAW)
    assert "exactly one armored" in refused((outputs.KEY + outputs.OTHER_KEY).encode())


def test_same_key_twice_is_refused() -> None:
    assert f"{outputs.FINGERPRINT}, {outputs.FINGERPRINT}" in refused(RAW + RAW)


def test_subkeys_fingerprint_is_not_the_keys() -> None:
    # The encryption subkey of the first key, as gpg tells it, is not what signs.
    start = RAW.index(b"\xb8\x38")
    assert refused(RAW[start:]).count("holds none") == 1


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "holds none"),
        (b"<html>404</html>", "no OpenPGP file"),
        (RAW[:-5], "in the middle of a packet"),
        (RAW + b"\x95", "in the middle of a length"),
        (RAW + b"\x95\x01", "in the middle of a length"),
        (RAW + b"\x97abc", "packet without length"),
        (b"\xc6\xe1abc", "partial length"),
        (b"\x94\x01\x04", "packet 5"),
        (b"\x98\x02\x03\x00", "not of version 4"),
        (RAW + b"\xcb\x01x", "packet 11"),
        (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n", "exactly one armored"),
        (outputs.KEY.replace("mDME", "m#ME").encode(), "test.pub"),
        (outputs.KEY.replace("BLOCK-----\n\n", "BLOCK-----\n", 1).encode(), "no empty line"),
        (outputs.KEY.replace("PUBLIC", "PRIVATE").encode(), "exactly one armored"),
        (b"-----BEGIN" + b"\xff" * 9, "test.pub"),
        (b"\x98" * 1_000_001, "more than 1000000 bytes"),
    ],
)
def test_file_that_is_no_key_is_refused(data: bytes, why: str) -> None:
    assert why in refused(data)


def test_text_around_the_armor_is_refused() -> None:
    assert "exactly one armored" in refused(b"hello\n" + outputs.KEY.encode())
