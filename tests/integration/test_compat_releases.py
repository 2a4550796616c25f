# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The compatibility data against the released wheels: every proof is in the file it names, every choice in the release.

The first run fetches the wheels that `test_autotune_gate_releases.py` reads too, and some of FlashInfer's; later ones
read what was kept of them below `.build`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import wheel_parts
from gate_releases import RELEASES
from packaging.version import Version
from wheel_parts import WheelParts

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    compat_data,
    compat_releases,
    flag_history,
    flag_names,
    flag_reader,
    releases,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.compat_data import Proof

FLASHINFER_VERSIONS = sorted(
    {
        version
        for proof in wheel_parts.PROOFS
        for package, version in [proof.wheel.split(" ")]
        if package == wheel_parts.FLASHINFER
    },
    key=Version,
)
#: The names that every release has: those of the newest that the history does not list.
ALWAYS = {
    name
    for flag in releases.get(compat_releases.NEWEST).flags.values()
    for name in (flag.name, *flag.aliases)
    if name not in flag_history.SPANS
}


def was_there(name: str, version: str) -> bool:
    """Whether the history has the flag in a release."""
    at = list(RELEASES).index
    return any(at(first) <= at(version) <= at(last) for first, last in flag_names.spans(name))


def pins(metadata: str, package: str) -> set[str]:
    """The versions of a package that a wheel's METADATA pins, whatever extra they are for."""
    return set(re.findall(rf"^Requires-Dist: {package}(?:\[\w+\])?==([^;\s]+)", metadata, re.MULTILINE))


def proofs_of(wheel: str) -> list[Proof]:
    return [proof for proof in wheel_parts.PROOFS if proof.wheel == wheel]


def missing(parts: WheelParts, version: str) -> list[Proof]:
    """The proofs whose text is not in the wheel's file."""
    texts: dict[str, str] = {}
    found = []
    for proof in proofs_of(f"{parts.package} {version}"):
        if proof.file not in texts:
            texts[proof.file] = parts.text(version, proof.file)
        if proof.text not in texts[proof.file]:
            found.append(proof)
    return found


@pytest.mark.parametrize("version", list(RELEASES))
def test_every_fact_stands_in_the_release_it_names(version: str, wheels: Callable[[str], WheelParts]) -> None:
    assert missing(wheels(version), version) == []


@pytest.mark.parametrize("flashinfer_version", FLASHINFER_VERSIONS)
def test_every_fact_stands_in_the_flashinfer_it_names(
    flashinfer_version: str, flashinfer_wheels: Callable[[str], WheelParts]
) -> None:
    assert missing(flashinfer_wheels(flashinfer_version), flashinfer_version) == []


@pytest.mark.parametrize("version", list(RELEASES))
def test_release_has_these_flags_and_choices(version: str, wheels: Callable[[str], WheelParts], tmp_path: Path) -> None:
    found = flag_reader.read(wheels(version).unpack(version, tmp_path)).flags
    have = {flag: found[flag].choices if flag in found else None for flag in compat_releases.CHANGES}
    known = {flag: compat_releases.choices(flag, version) for flag in compat_releases.CHANGES}
    assert {flag: sorted(map(str, values or ())) for flag, values in have.items()} == {
        flag: sorted(values or ()) for flag, values in known.items()
    }
    if known["moe-runner-backend"] is None:
        assert {"moe-runner-backend", *compat_releases.SWITCHES.values()} & set(found) == set(
            compat_releases.SWITCHES.values()
        )
    names = {name for flag in found.values() for name in (flag.name, *flag.aliases)}
    assert names - ALWAYS == {name for name in flag_history.SPANS if was_there(name, version)}
    assert names >= ALWAYS


@pytest.mark.parametrize("version", list(RELEASES))
def test_release_pins_what_is_recorded(version: str, wheels: Callable[[str], WheelParts]) -> None:
    metadata = wheels(version).text(version, f"sglang-{version}.dist-info/METADATA")
    assert pins(metadata, r"flashinfer[-_]python") == {compat_releases.FLASHINFER[version]}
    if version in releases.known():
        locked = releases.get(version)
        assert (pins(metadata, "torch"), pins(metadata, r"flashinfer[-_]python")) == (
            {locked.torch},
            {locked.flashinfer},
        )
        # The lock adds the newest Python that its packages have wheels for.
        assert re.findall(r"^Requires-Python: (\S+)$", metadata, re.MULTILINE) == [locked.requires_python.split(",")[0]]


def test_every_release_that_the_gate_covers_is_covered() -> None:
    """A release of the index that the gate's list lacks fails there; one that is only there fails here, by name."""
    for covered in (compat_releases.RELEASES, flag_history.RELEASES):
        assert sorted(set(RELEASES) - set(covered), key=Version) == []
        assert tuple(RELEASES) == covered
    assert set(releases.known()) <= set(RELEASES)


def test_every_proof_names_a_wheel_that_is_read() -> None:
    read = {f"sglang {version}" for version in RELEASES} | {f"flashinfer-python {v}" for v in FLASHINFER_VERSIONS}
    assert {proof.wheel for proof in wheel_parts.PROOFS} <= read
    assert all(row.proofs or row.source for row in compat_data.ROWS)
    first, last = compat_data.FLASHINFER_READ
    assert [FLASHINFER_VERSIONS[0], FLASHINFER_VERSIONS[-1]] == [first, last]
