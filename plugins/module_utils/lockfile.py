# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lock files: requirements files of exact pins with hashes, and how what is installed is held against them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError

_PIN = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?P<extras>\[[^\]]*\])?\s*==\s*(?P<version>[^\s;]+)\s*(?:;(?P<marker>.*))?$"
)
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")
# The spelling of versions: https://packaging.python.org/en/latest/specifications/version-specifiers/#normalization
_VERSION = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)(?:[._-]?(?P<stage>alpha|a|beta|b|preview|pre|c|rc)[._-]?(?P<stage_n>\d*))?"
    r"(?:-(?P<post_bare>\d+)|[._-]?(?P<post>post|rev|r)[._-]?(?P<post_n>\d*))?(?:[._-]?(?P<dev>dev)[._-]?(?P<dev_n>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[._-][a-z0-9]+)*))?$"
)
_STAGES = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}


@dataclass(frozen=True)
class Pin:
    """One line of a lock.

    `name` is canonical, `marker` the environment marker or empty, `extras` like `[cu13]` or empty, and each of `hashes`
    like `sha256:<hex>`.
    """

    name: str
    version: str
    marker: str = ""
    hashes: tuple[str, ...] = ()
    extras: str = ""

    def line(self) -> str:
        """The pin as a line of a requirements file."""
        marker = f" ; {self.marker}" if self.marker else ""
        hashes = "".join(f" --hash={value}" for value in self.hashes)
        return f"{self.name}{self.extras}=={self.version}{marker}{hashes}"


def canonical(name: str) -> str:
    """A distribution's name as package indexes compare it: `Flashinfer_Python` is `flashinfer-python`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def normal(version: str) -> str:
    """One spelling for equal versions: `2.11.0-rc.1` is `2.11rc1`. A text that is no version is returned as it is."""
    match = _VERSION.match(version.strip().lower())
    if match is None:
        return version
    numbers = [str(int(part)) for part in match["release"].split(".")]
    while len(numbers) > 1 and numbers[-1] == "0":
        numbers.pop()
    text = (f"{int(match['epoch'])}!" if int(match["epoch"] or 0) else "") + ".".join(numbers)
    if match["stage"]:
        text += _STAGES.get(match["stage"], match["stage"]) + str(int(match["stage_n"] or 0))
    if match["post"] or match["post_bare"]:
        text += f".post{int(match['post_bare'] or match['post_n'] or 0)}"
    if match["dev"]:
        text += f".dev{int(match['dev_n'] or 0)}"
    if match["local"]:
        text += "+" + re.sub(r"[._-]", ".", match["local"])
    return text


def matches(installed: str, pinned: str) -> bool:
    """Whether an installed version is the pinned one. A pin without a local part fits every local build (`+cpu`)."""
    have, want = normal(installed), normal(pinned)
    return have == want or ("+" not in want and have.partition("+")[0] == want)


def parse(text: str, where: str) -> list[Pin]:
    """The pins of a lock. Raises InstallError for anything that is no exact pin.

    Options are refused too: an index address inside a lock would decide for every machine where its packages come from.
    """
    pins = []
    for number, logical in _logical_lines(text):
        requirement, _space, rest = logical.partition(" --hash=")
        match = _PIN.match(requirement.strip())
        if match is None:
            raise InstallError(
                f"reading the lock {where}, line {number}: {requirement.strip()[:80]!r} is no exact pin "
                "(name==version); a lock holds pins with hashes and nothing else",
                line=number,
            )
        pins.append(
            Pin(
                name=canonical(match["name"]),
                version=match["version"],
                marker=(match["marker"] or "").strip(),
                hashes=tuple(_HASH.findall(" --hash=" + rest)) if rest else (),
                extras=match["extras"] or "",
            )
        )
    if not pins:
        raise InstallError(f"reading the lock {where}: it is empty; make it again with `make locks`", line=0)
    return pins


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """Lines with their continuations joined and comments gone, each with the number of its first line."""
    joined, first = "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        bare = re.sub(r"(^|\s)#.*$", "", line).rstrip()
        if not joined:
            first = number
        joined += " " + bare.removesuffix("\\").strip() if joined else bare.removesuffix("\\").strip()
        if bare.endswith("\\"):
            continue
        if joined:
            yield first, joined
        joined = ""
    if joined:
        yield first, joined


def require_hashes(pins: Iterable[Pin], exempt: Collection[str], where: str) -> None:
    """Refuse a pin that nothing guards. `exempt` are canonical names of distributions that may lack a hash."""
    bare = sorted({pin.name for pin in pins if not pin.hashes and pin.name not in exempt})
    if bare:
        raise InstallError(
            f"reading the lock {where}: no hash for {', '.join(bare)}; make the lock again with `make locks`, "
            "or name the distribution in hash_exempt and its file's sha256 is recorded instead"
        )


def differences(pins: Iterable[Pin], installed: Mapping[str, str], left_out: Collection[str] = ()) -> list[str]:
    """Where the installed versions (canonical name -> version) are not the pinned ones, in words; empty when all are.

    A name may be pinned several times under different markers; one of them must fit. Markers are the installer's to
    evaluate, so a pin with a marker may also be absent.
    """
    wanted: dict[str, list[Pin]] = {}
    for pin in pins:
        if pin.name not in left_out:
            wanted.setdefault(pin.name, []).append(pin)
    problems = []
    for name, choices in sorted(wanted.items()):
        have = installed.get(name)
        versions = " or ".join(pin.version for pin in choices)
        if have is None:
            if not all(pin.marker for pin in choices):
                problems.append(f"{name} {versions} was asked, none is installed")
        elif not any(matches(have, pin.version) for pin in choices):
            problems.append(f"{name} {versions} was asked, {have} is installed")
    return problems


@dataclass(frozen=True)
class Artifact:
    """What a pin resolves to here: its exact version and the wheels that could be taken, file name -> sha256."""

    version: str
    wheels: Mapping[str, str]


def parse_pylock(text: str) -> dict[str, Artifact]:
    """The packages of a pylock.toml as uv writes it (https://packaging.python.org/en/latest/specifications/pylock-toml/).

    Targets may have a Python without tomllib, so this reads the few fields it needs and no more. A wheel without a
    sha256 is left out.
    """
    found = {}
    for block in text.split("[[packages]]")[1:]:
        name = re.search(r'^name = "([^"]+)"', block, re.MULTILINE)
        version = re.search(r'^version = "([^"]+)"', block, re.MULTILINE)
        if not name or not version:
            continue
        wheels = {}
        for entry in re.finditer(r'\{[^{}]*?(?:url|path) = "([^"]+)"[^{}]*?hashes = \{([^}]*)\}', block):
            digest = re.search(r'sha256 = "([0-9a-f]{64})"', entry[2])
            file_name = entry[1].rsplit("/", 1)[-1].split("#")[0].replace("%2B", "+").replace("%2b", "+")
            if digest and file_name.endswith(".whl"):
                wheels[file_name] = digest[1]
        found[canonical(name[1])] = Artifact(version[1], wheels)
    return found


def exempted(pins: Sequence[Pin], exempt: Collection[str], resolved: Mapping[str, Artifact]) -> list[Pin]:
    """The pins to install: exempt ones lose the lock's hashes and get those of the files they resolved to here.

    So the installer still verifies the very file whose sha256 we record.
    """
    effective = []
    for pin in pins:
        if pin.name in exempt:
            artifact = resolved.get(pin.name)
            if artifact and matches(artifact.version, pin.version):
                hashes = tuple(f"sha256:{digest}" for digest in artifact.wheels.values())
                pin = Pin(pin.name, artifact.version, pin.marker, hashes, pin.extras)
            else:
                pin = Pin(pin.name, pin.version, pin.marker, (), pin.extras)
        effective.append(pin)
    return effective


def wheel_of(wheels: Mapping[str, str], tags: Collection[str]) -> str | None:
    """The one wheel whose tags are those that an installed distribution's WHEEL file lists, else None."""
    fitting = [name for name in wheels if _tags(name) == set(tags)]
    return fitting[0] if len(fitting) == 1 else None


def _tags(file_name: str) -> set[str]:
    pythons, abis, platforms = file_name[: -len(".whl")].split("-")[-3:]
    return {f"{p}-{a}-{t}" for p in pythons.split(".") for a in abis.split(".") for t in platforms.split(".")}
