# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One package repository of ours: its key, the file that names it, and its lists.

The file is of the deb822 kind (man sources.list, apt 1.1 and later) with the key by `Signed-By`, so that the key is
trusted for this repository and for no other. Only this repository's lists are fetched: another source of the host that
cannot be read (Proxmox VE without a subscription answers 401) is not in the way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils import apt_run, signing_key
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError
from ansible_collections.tokforge.sglang.plugins.module_utils.url_password import holds_password, shown

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_URL = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?|file:(//)?/[^\s?#/][^\s?#]*")
_TROUBLE = ("E:", "Err:", "W: Failed to fetch", "W: GPG error", "W: Some index files failed")

# A command -> exit status, standard output, standard error.
Run = Callable[[Sequence[str]], "tuple[int, str, str]"]


class SourceError(HostError):
    """The repository cannot be used; the text says what to do."""


@dataclass(frozen=True)
class Source:
    """One flat repository: packages and lists in one directory, as NVIDIA's.

    :param name: what its files are called.
    :param url: http, https or file address.
    """

    name: str
    url: str
    sources_dir: str = "/etc/apt/sources.list.d"
    keyring_dir: str = "/etc/apt/keyrings"

    @property
    def file(self) -> str:
        """The file that names the repository."""
        return os.path.join(self.sources_dir, f"{self.name}.sources")

    @property
    def keyring(self) -> str:
        """The key, in the binary form that all of apt's versions read."""
        return os.path.join(self.keyring_dir, f"{self.name}.gpg")

    def check(self) -> None:
        """Raise SourceError when a name or an address cannot stand in the file."""
        if not _NAME.fullmatch(self.name):
            raise SourceError(f"naming the repository: {self.name!r}; use small letters, digits and hyphens")
        if holds_password(self.url):
            raise SourceError(
                "reading the repository's address: it has a password in it, and everybody can read apt's sources; put "
                "it into a file in /etc/apt/auth.conf.d (man apt_auth.conf)"
            )
        if not _URL.fullmatch(self.url):
            raise SourceError(
                f"reading the repository's address: {shown(self.url)!r} is none; give one that begins with "
                "https://, http:// or file:/ and has neither spaces nor a query"
            )

    def text(self) -> bytes:
        """What the file says."""
        url = self.url if self.url.endswith("/") else self.url + "/"
        lines = [
            "# Managed by tokforge.sglang.",
            "Types: deb",
            f"URIs: {url}",
            "Suites: /",
            f"Signed-By: {self.keyring}",
        ]
        return ("\n".join(lines) + "\n").encode()


def current_key(source: Source, fingerprint: str) -> bytes | None:
    """The key that is there already, when it is the right one."""
    data = read(source.keyring)
    if data is None:
        return None
    try:
        return signing_key.checked(data, fingerprint, source.keyring)
    except signing_key.KeyFileError:
        return None


def read(path: str) -> bytes | None:
    """A file's content, None without one. Raises SourceError."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError(f"reading {path}: {error.strerror}; make it readable", path=path) from error


def write(files: dict[str, bytes | None]) -> None:
    """Write files, or remove those whose content is None. Raises SourceError."""
    for path, data in files.items():
        try:
            if data is None:
                if os.path.lexists(path):
                    os.unlink(path)
                continue
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            write_atomic(path, data, 0o644)
        except OSError as error:
            raise SourceError(f"writing {path}: {error.strerror}; make it writable", path=path) from error


def refresh(source: Source, run: Run) -> None:
    """Fetch the lists of this repository and no other. Raises SourceError."""
    status, output, errors = apt_run.patiently(
        [
            "apt-get",
            "update",
            "-o",
            f"Dir::Etc::sourcelist={source.file}",
            "-o",
            "Dir::Etc::sourceparts=-",
            "-o",
            "APT::Get::List-Cleanup=0",
            "-o",
            "APT::Update::Error-Mode=any",
        ],
        run,
    )
    # Older versions say with status 0 that they could not fetch something.
    said = [line for line in (output + "\n" + errors).splitlines() if line.startswith(_TROUBLE)]
    if status or said:
        raise SourceError(
            f"reading the repository {source.url}: {'; '.join(said[:6]) or 'apt-get update failed'}; "
            "its files were put back as they were, correct the address, the key or the network",
            output=(output + errors)[-2000:],
        )
