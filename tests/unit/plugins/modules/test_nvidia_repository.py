# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.apt_source import Source, SourceError
from ansible_collections.tokforge.sglang.plugins.module_utils.driver_plan import DriverError
from ansible_collections.tokforge.sglang.plugins.module_utils.signing_key import KeyFileError
from ansible_collections.tokforge.sglang.plugins.modules import nvidia_repository

FINGERPRINT = "CCB3195B6BB8AF72DDED9B55BEA498A894009003"
KEY = """-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEaw2f5BYJKwYBBAHaRw8BAQdASs8phPvLBBEAWxsZ+Zttl/IewnLmYHlgaDr/
GexJPzC0FXR3byA8dHdvQGV4YW1wbGUuY29tPoiQBBMWCAA4FiEEzLMZW2u4r3Ld
7ZtVvqSYqJQAkAMFAmsNn+QCGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQ
vqSYqJQAkAOhBgD+Jf5w1cUz9nA5KQesRMiJS1+wasDjozE0DOOXyr6thZ0A/2Bl
ZDyQUGORzb8YiIBgTOXcULpaN8O0AByp8Wu+heAC
=EAqM
-----END PGP PUBLIC KEY BLOCK-----
"""
DEBIAN_13 = {"os": "debian", "os_version": "13"}


class Apt:
    """Answers apt-get update and apt-cache madison."""

    def __init__(self) -> None:
        self.updates: list[list[str]] = []
        self.known: list[str] = []
        self.offers = ["580.95.05-1"]
        self.answer = (0, "Hit:1 file:/srv InRelease\n", "")

    def __call__(self, command: Sequence[str]) -> tuple[int, str, str]:
        if command[1] == "update":
            self.updates.append(list(command))
            self.known = self.offers if self.answer[0] == 0 else []
            return self.answer
        return 0, "".join(f"{command[2]} | {one} | file:/srv  Packages\n" for one in self.known), ""


def params(tmp_path: Path, **given: Any) -> dict[str, Any]:
    (tmp_path / "test.asc").write_text(KEY)
    return {
        "owner": "gpu_driver",
        "state": "present",
        "url": "file:///srv/repo",
        "key": "",
        "key_url": f"file://{tmp_path}/test.asc",
        "fingerprint": FINGERPRINT,
        "host": {},
        "needs": ["nvidia-driver-cuda=580.95.05-*"],
        "timeout_s": 5,
        "record_dir": str(tmp_path / "record"),
        **given,
    }


def source(tmp_path: Path, url: str = "file:///srv/repo") -> Source:
    return Source("nv", url, str(tmp_path / "sources"), str(tmp_path / "keyrings"))


def have(tmp_path: Path, apt: Apt, check: bool = False, **given: Any) -> dict[str, Any]:
    asked = params(tmp_path, **given)
    return nvidia_repository.have(asked, source(tmp_path, asked["url"]), check, apt)


def test_repository_is_added_once_with_its_key_for_itself_only(tmp_path: Path) -> None:
    apt = Apt()
    first = have(tmp_path, apt)
    assert (first["changed"], first["refreshed"], first["lacking"]) == (True, True, {})
    text = (tmp_path / "sources" / "nv.sources").read_text()
    assert text.splitlines()[1:] == [
        "Types: deb",
        "URIs: file:///srv/repo/",
        "Suites: /",
        f"Signed-By: {tmp_path}/keyrings/nv.gpg",
    ]
    assert (tmp_path / "keyrings" / "nv.gpg").read_bytes()[:2] == b"\x98\x33"
    second = have(tmp_path, apt)
    assert (second["changed"], second["refreshed"]) == (False, False)
    assert len(apt.updates) == 1


def test_only_its_own_lists_are_fetched(tmp_path: Path) -> None:
    apt = Apt()
    have(tmp_path, apt)
    assert f"Dir::Etc::sourcelist={tmp_path}/sources/nv.sources" in apt.updates[0]
    assert {"Dir::Etc::sourceparts=-", "APT::Get::List-Cleanup=0"} <= set(apt.updates[0])


def test_known_key_is_not_fetched_again(tmp_path: Path) -> None:
    have(tmp_path, Apt())
    assert have(tmp_path, Apt(), key_url="file:///nowhere")["changed"] is False


def test_key_with_another_fingerprint_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=FINGERPRINT):
        have(tmp_path, Apt(), fingerprint="EB693B3035CD5710E231E123A4B469963BF863CC")
    assert not (tmp_path / "keyrings").exists()
    assert not (tmp_path / "sources").exists()


def test_key_that_was_changed_on_the_host_is_put_right(tmp_path: Path) -> None:
    have(tmp_path, Apt())
    (tmp_path / "keyrings" / "nv.gpg").write_bytes(b"something else")
    assert have(tmp_path, Apt())["changed"] is True
    assert (tmp_path / "keyrings" / "nv.gpg").read_bytes()[:2] == b"\x98\x33"


def test_key_may_be_handed_over(tmp_path: Path) -> None:
    assert have(tmp_path, Apt(), key=KEY, key_url="file:///nowhere")["changed"] is True


@pytest.mark.parametrize("armored", [True, False])
def test_bytes_of_a_key_file_may_be_handed_over(armored: bool, tmp_path: Path) -> None:
    data = base64.b64decode("".join(KEY.splitlines()[2:-2]))
    text = base64.b64encode(KEY.encode() if armored else data).decode()
    have(tmp_path, Apt(), key=text, key_url="file:///nowhere")
    assert (tmp_path / "keyrings" / "nv.gpg").read_bytes() == data


@pytest.mark.parametrize("text", ["<html>404</html>", "PGh0bWw+", "\udc98", "404"])
def test_what_is_handed_over_and_no_key_is_told(text: str, tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="that was handed over"):
        have(tmp_path, Apt(), key=text)


def test_key_that_cannot_be_fetched_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="getting the key file:///nowhere"):
        have(tmp_path, Apt(), key_url="file:///nowhere")


@pytest.mark.parametrize(
    "answer",
    [
        (100, "", "E: The repository 'file:/srv/repo InRelease' is not signed.\n"),
        (0, "Err:1 file:/srv/repo InRelease\n", ""),
        (0, "", "W: Failed to fetch file:/srv/repo/InRelease  File not found\n"),
    ],
)
def test_repository_that_cannot_be_read_is_taken_out_again(answer: tuple[int, str, str], tmp_path: Path) -> None:
    apt = Apt()
    apt.answer = answer
    with pytest.raises(SourceError, match="put back as they were"):
        have(tmp_path, apt)
    assert not (tmp_path / "sources" / "nv.sources").exists()
    assert not (tmp_path / "keyrings" / "nv.gpg").exists()


def test_working_repository_survives_a_bad_new_address(tmp_path: Path) -> None:
    have(tmp_path, Apt())
    apt = Apt()
    apt.answer = (100, "", "E: no\n")
    with pytest.raises(SourceError):
        have(tmp_path, apt, url="https://mirror.example.com/x")
    assert "file:///srv/repo/" in (tmp_path / "sources" / "nv.sources").read_text()


def test_lists_are_fetched_anew_for_a_version_that_they_lack(tmp_path: Path) -> None:
    apt = Apt()
    have(tmp_path, apt)
    apt.offers = ["580.105.08-1", "580.95.05-1"]
    told = have(tmp_path, apt, needs=["nvidia-driver-cuda=580.105.08-*"])
    assert (told["changed"], told["refreshed"]) == (False, True)


def test_version_that_is_not_offered_fails_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nvidia-driver-cuda=580\.1\.1-\* \(there are 580\.95\.05-1\)"):
        have(tmp_path, Apt(), needs=["nvidia-driver-cuda=580.1.1-*"])


def test_check_mode_holds_the_key_against_the_fingerprint_and_writes_nothing(tmp_path: Path) -> None:
    apt = Apt()
    told = have(tmp_path, apt, check=True)
    assert (told["changed"], told["refreshed"], apt.updates) == (True, True, [])
    assert [one.name for one in tmp_path.iterdir()] == ["test.asc"]
    with pytest.raises(KeyFileError):
        have(tmp_path, apt, check=True, fingerprint="0" * 40)


def test_repository_stays_until_its_last_owner_goes(tmp_path: Path) -> None:
    have(tmp_path, Apt())
    have(tmp_path, Apt(), owner="cuda_toolkit")
    absent = params(tmp_path, state="absent")
    first = nvidia_repository.drop(absent, source(tmp_path), check=False)
    assert (first["changed"], first["kept_for"]) == (False, ["cuda_toolkit"])
    other = {**absent, "owner": "cuda_toolkit"}
    assert nvidia_repository.drop(other, source(tmp_path), check=True)["changed"] is True
    assert (tmp_path / "sources" / "nv.sources").exists()
    assert nvidia_repository.drop(other, source(tmp_path), check=False)["changed"] is True
    assert list((tmp_path / "sources").iterdir()) == []
    assert nvidia_repository.drop(other, source(tmp_path), check=False)["changed"] is False
    assert previous_values.read(str(tmp_path / "record")) == {}


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x/y",
        "https://",
        "https://x/y z",
        "https://x/\nTrusted: yes",
        "srv/repo",
        "https://x/?a=b",
        "cdrom:/x",
        "file://srv/x",
    ],
)
def test_address_that_cannot_stand_in_a_source_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="repository's address"):
        have(tmp_path, Apt(), url=url)


def test_password_in_an_address_is_refused_and_not_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as raised:
        have(tmp_path, Apt(), url="https://me:s3cret@mirror.example.com/x")
    assert "s3cret" not in str(raised.value)
    assert "auth.conf.d" in str(raised.value)


@pytest.mark.parametrize(
    "url", ["file:/srv/repo", "file:///srv/repo", "https://mirror.example.com", "http://[::1]:80/x"]
)
def test_address_of_any_usual_form_is_taken(url: str, tmp_path: Path) -> None:
    source(tmp_path, url).check()
    assert f"URIs: {url}/\n".encode() in source(tmp_path, url).text()


def test_secrets_of_an_address_that_fails_are_not_told(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as raised:
        have(tmp_path, Apt(), key_url="file://me:s3cret@127.0.0.1:1/none.pub?token=t0ken")
    assert "s3cret" not in str(raised.value) + str(raised.value.facts)
    assert "t0ken" not in str(raised.value) + str(raised.value.facts)
    with pytest.raises(SourceError) as raised:
        have(tmp_path, Apt(), url="https://mirror.example.com/?token=t0ken")
    assert "t0ken" not in str(raised.value)


def test_repository_that_never_was_there_leaves_no_note(tmp_path: Path) -> None:
    apt = Apt()
    apt.answer = (100, "", "E: 404\n")
    with pytest.raises(SourceError):
        have(tmp_path, apt)
    assert previous_values.read(str(tmp_path / "record")) == {}


def test_what_is_left_empty_is_nvidias_own(tmp_path: Path) -> None:
    full = nvidia_repository.completed(params(tmp_path, url="", key_url="", fingerprint="", host=DEBIAN_13))
    assert full["url"].startswith("https://developer.download.nvidia.com/compute/cuda/repos/debian13/")
    assert full["key_url"] == full["url"] + "8793F200.pub"
    assert full["fingerprint"] == "02182E60104FCDC26EAE1B8597A5D4CB8793F200"


def test_mirror_has_nvidias_key_under_the_same_name(tmp_path: Path) -> None:
    given = params(tmp_path, url="https://mirror.example.com/nv", key_url="", fingerprint="", host=DEBIAN_13)
    full = nvidia_repository.completed(given)
    assert full["key_url"] == "https://mirror.example.com/nv/8793F200.pub"


def test_distribution_matters_only_for_what_is_left_empty(tmp_path: Path) -> None:
    assert nvidia_repository.completed(params(tmp_path))["url"] == "file:///srv/repo"
    with pytest.raises(DriverError, match="none is known for arch"):
        nvidia_repository.completed(params(tmp_path, url="", host={"os": "arch", "os_version": ""}))
