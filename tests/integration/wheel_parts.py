# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of SGLang's and FlashInfer's wheels that tests read, kept below `.build` once they were fetched.

Those that say something about SGLang's autotune gate and its flags, and those that facts of `proofs()` were
read in. All of SGLang's wheels together are half a gigabyte, these files of them some 20 MB. A wheel comes from the
package index that pip uses on this machine, and is gone as soon as its files are kept.
"""

from __future__ import annotations

import base64
import csv
import fcntl
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.tokforge.sglang.plugins.module_utils import argument_rules, compat_data, probe_needs

SGLANG = "sglang"
FLASHINFER = "flashinfer-python"
CACHE = Path(__file__).resolve().parents[2] / ".build" / "wheels"
#: What is kept of a wheel whatever it holds; counted up when this changes, so that older archives are made again.
LAYOUT = 3
KEPT = re.compile(
    r"sglang/srt/(model_executor/.*|server_args\.py|arg_groups/(argparse_actions|choices|fields/.*)\.py)|sglang/_?version\.py"
    r"|(sglang|flashinfer_python)-[^/]*\.dist-info/(METADATA|RECORD)"
)
#: A file that speaks of it is kept wherever it lies below srt: a release could have moved its gate there.
WORD = b"flashinfer_autotune"

#: The wheel of one platform and one Python, whatever runs this, so that all machines see the same lines.
_WHEEL = ["--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--ignore-requires-python"]
_WHEEL += [f"--platform={name}" for name in ("manylinux_2_34_x86_64", "manylinux2014_x86_64", "any")]
_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
_UNREACHABLE = re.compile(
    r"Could not fetch URL .*?: ((?:connection error|timed out).*?)(?: - skipping)?$", re.MULTILINE
)
_TIMEOUT_S = 300


class IndexUnreachableError(Exception):
    """The package index does not answer from here."""


class WheelError(Exception):
    """A wheel cannot be had, though the index answers."""


def proofs() -> list[compat_data.Proof]:
    """Where every fact about releases was read: what runs where, what arguments refuse, what a probe needs."""
    found = {proof for row in compat_data.ROWS for proof in row.proofs} | set(argument_rules.proofs())
    return sorted(found | {proof for need in probe_needs.NEEDS for proof in need.proofs}, key=repr)


PROOFS = proofs()


def wanted(package: str, version: str) -> frozenset[str]:
    """The files of a wheel that facts were read in."""
    wheel = f"{package} {version}"
    return frozenset(proof.file for proof in PROOFS if proof.wheel == wheel)


def on_the_index(needed: Collection[str] = (), package: str = SGLANG) -> list[str]:
    """All releases on pip's index, pre-releases too, newest first.

    Raises IndexUnreachableError when an index did not answer and one of `needed` is missing, WheelError otherwise.
    """
    with tempfile.TemporaryDirectory() as folder:
        # pip says on the screen only that there is nothing; why, it says in its log.
        log = Path(folder, "log")
        command = [*_PIP, "--log", str(log), "index", "versions", package, "--pre", "--json", *_WHEEL]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    found: list[str] = json.loads(done.stdout)["versions"] if done.returncode == 0 else []
    unreachable = _UNREACHABLE.search(said)
    if unreachable and not set(needed or ["any"]) <= set(found):
        raise IndexUnreachableError(f"the package index is unreachable: {unreachable.group(1)}")
    if done.returncode:
        raise WheelError(
            f"listing the releases of {package}: {done.stderr.strip()}; see what pip's index is on this machine"
        )
    return found


def download(version: str, folder: Path, package: str = SGLANG) -> Path:
    """Fetch the wheel of a release into an empty directory. Raises WheelError."""
    # pip's own cache would keep half a gigabyte that nobody reads again.
    command = [*_PIP, "download", "--quiet", "--no-cache-dir", "--no-deps", *_WHEEL, "-d", str(folder)]
    done = subprocess.run(
        [*command, f"{package}=={version}"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise WheelError(
            f"fetching {package} {version}: {done.stderr.strip()}; run again, or see what pip says by itself"
        )
    return wheels[0]


@dataclass(frozen=True)
class WheelParts:
    """A directory with one archive a release. What was looked for in the wheel stands in the archive's comment."""

    folder: Path = CACHE
    fetch: Callable[[str, Path], Path] = download
    package: str = SGLANG

    def archive(self, version: str) -> Path:
        """Where the files of a release are kept."""
        return self.folder / f"{self.package}-{version}.parts{LAYOUT}.zip"

    def has(self, version: str) -> bool:
        """Whether the files of a release are there, whole."""
        try:
            with zipfile.ZipFile(self.archive(version)) as archive:
                looked_for = archive.comment.decode("utf-8", "replace").split("\n")
                return wanted(self.package, version) <= set(looked_for) and archive.testzip() is None
        except (OSError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError):
            return False

    def keep(self, version: str) -> None:
        """Fetch a release and keep its files. Raises WheelError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / f".{self.package}-{version}.lock", "w", encoding="utf-8") as lock:
            # Tests that run beside each other need the same wheels: one of them fetches, the other finds it done.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.has(version):
                self._fetch(version)

    def _fetch(self, version: str) -> None:
        with tempfile.TemporaryDirectory(prefix="tokforge-wheel-") as folder:
            wheel = self.fetch(version, Path(folder))
            packed, also = io.BytesIO(), wanted(self.package, version)
            with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
                for name in source.namelist():
                    searched = name.startswith("sglang/srt/") and name.endswith(".py")
                    if KEPT.fullmatch(name) or name in also or (searched and WORD in source.read(name)):
                        target.writestr(zipfile.ZipInfo(name), source.read(name), zipfile.ZIP_DEFLATED)
                target.comment = "\n".join(sorted(also)).encode()
        descriptor, temporary = tempfile.mkstemp(dir=self.folder, prefix=f".{version}.", suffix=".tmp")
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(packed.getvalue())
        os.replace(temporary, self.archive(version))

    def text(self, version: str, name: str) -> str:
        """The text of a file that is kept; empty when the wheel has no such file."""
        with zipfile.ZipFile(self.archive(version)) as archive:
            try:
                return archive.read(name).decode("utf-8", "replace")
            except KeyError:
                return ""

    def unpack(self, version: str, folder: Path) -> Path:
        """Put the files of a release that is kept into a directory, as an installer would."""
        with zipfile.ZipFile(self.archive(version)) as archive:
            archive.extractall(folder)
        return folder


def recorded_sha256(site: Path, path: Path) -> str:
    """The digest that the wheel's RECORD has for a file, as hexadecimal digits."""
    (record,) = site.glob("sglang-*.dist-info/RECORD")
    with record.open(encoding="utf-8", newline="") as stream:
        digests = {row[0]: row[1] for row in csv.reader(stream)}
    kind, digest = digests[path.relative_to(site).as_posix()].split("=", 1)
    assert kind == hashlib.sha256().name
    return base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()
