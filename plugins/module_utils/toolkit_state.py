# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CUDA toolkits that are provided on a host: what is noted of them, the links that a server finds them by.

Noted in `previous_values`: the version before its packages are installed, each directory before it is built, and where
/usr/local/cuda pointed before the first of them. Module apt_transaction notes the packages themselves.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    cuda_toolkit,
    host_files,
    previous_values,
    toolkit_default,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.toolkit_default import Default

_KEY = "cuda_toolkit/"
_PACKAGES = f"{_KEY}packaged/"
_HOME = f"{_KEY}home/"
_MOVED = f"{_KEY}moved/"
_DEFAULT = f"{_KEY}default"


@dataclass(frozen=True)
class Noted:
    """What this role put there: homes of packages, homes that it built; homes that it made the default, whoever's they
    are; and the default before the first of them."""

    packaged: tuple[str, ...] = ()
    built: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    default: Default | None = None

    @property
    def homes(self) -> tuple[str, ...]:
        """Those that are this role's own."""
        return (*self.built, *self.packaged)

    @property
    def movers(self) -> tuple[str, ...]:
        """Those that /usr/local/cuda points to because of this role."""
        return (*self.homes, *self.moved)


def read(record_dir: str) -> Noted:
    """What is noted. Raises RecordError."""
    values = previous_values.read(record_dir)
    default = toolkit_default.of_record(values.get(_DEFAULT))
    if default is None and _DEFAULT in values:
        path = posixpath.join(record_dir, previous_values.FILE)
        raise previous_values.RecordError(
            f"reading where {toolkit_default.LINK} pointed, {path}: {_DEFAULT} is not as this collection notes it; put"
            " a backup back, or remove the key and set the link by hand",
            path=path,
        )
    return Noted(
        packaged=tuple(sorted(key[len(_PACKAGES) :] for key in values if key.startswith(_PACKAGES))),
        built=tuple(sorted(key[len(_HOME) :] for key in values if key.startswith(_HOME))),
        moved=tuple(sorted(key[len(_MOVED) :] for key in values if key.startswith(_MOVED))),
        default=default,
    )


def note(record_dir: str, now: Default, home: str, built: bool) -> None:
    """Note a toolkit that is about to be there, before it is. Raises RecordError."""
    previous_values.remember(record_dir, {f"{_HOME if built else _PACKAGES}{home}": True, _DEFAULT: now.as_dict()})


def note_default(record_dir: str, now: Default, home: str) -> None:
    """Note that a toolkit is about to become the default. Raises RecordError."""
    previous_values.remember(record_dir, {f"{_MOVED}{home}": True, _DEFAULT: now.as_dict()})


def forget(record_dir: str) -> bool:
    """Forget everything of this role; whether there was anything. Raises RecordError."""
    ours = (_PACKAGES, _HOME, _MOVED, _DEFAULT)
    keys = [key for key in previous_values.read(record_dir) if key.startswith(ours)]
    previous_values.forget(record_dir, keys)
    return bool(keys)


# --- the links --------------------------------------------------------------------------------------------------------


def link_of(version: str, root: str = "/") -> str:
    """Where the link of a version is."""
    return host_files.place(root, f"{cuda_toolkit.PROVIDED}/{version}")


def link_text(home: str) -> str:
    """What the link holds: relative, so that it is right in an image of the machine too."""
    return posixpath.relpath(home, cuda_toolkit.PROVIDED)


def is_linked(version: str, home: str, root: str = "/") -> bool:
    """Whether the server finds this toolkit under this version."""
    try:
        return os.readlink(link_of(version, root)) == link_text(home)
    except OSError:
        return False


def link(version: str, home: str, root: str = "/") -> None:
    """Let the server find it. Raises OSError."""
    path = link_of(version, root)
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    temporary = f"{path}.new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    os.symlink(link_text(home), temporary)
    os.replace(temporary, path)


def links(root: str = "/") -> list[str]:
    """Paths of all links, also of those whose toolkit is gone."""
    folder = host_files.place(root, cuda_toolkit.PROVIDED)
    return [os.path.join(folder, name) for name in host_files.names(root, cuda_toolkit.PROVIDED)]


def unlink_all(root: str = "/") -> None:
    """Remove the links and their directory. Raises OSError."""
    for path in links(root):
        os.unlink(path)
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(host_files.place(root, cuda_toolkit.PROVIDED))
