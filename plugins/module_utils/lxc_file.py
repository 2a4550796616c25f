# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container's configuration as a file: read, locked as Proxmox VE locks it, and replaced as a whole."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

from ansible_collections.tokforge.sglang.plugins.module_utils import file_lock, lxc_config
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic

#: Where Proxmox VE locks configurations.
LOCK_DIR = "/run/lock/lxc"
#: As long as pct itself waits (PVE::AbstractConfig, lock_config).
LOCK_WAIT_S = 10.0


@contextlib.contextmanager
def locked(path: str, lock_dir: str) -> Iterator[None]:
    """Hold the lock of Proxmox VE on a configuration that is named as there. Raises ConfigError."""
    container = re.fullmatch(r"(\d+)\.conf", os.path.basename(path), re.ASCII)
    if not container or not os.path.isdir(lock_dir):
        yield
        return
    lock = os.path.join(lock_dir, f"pve-config-{container[1]}.lock")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(file_lock.held(lock, LOCK_WAIT_S))
        except OSError as error:
            raise lxc_config.ConfigError(
                f"locking the container's configuration {path}: {error}; wait for what is at work on it",
                path=path,
                lock=lock,
            ) from error
        yield


def read(path: str) -> bytes:
    """The file's bytes. Raises ConfigError, and FileNotFoundError when it is not there."""
    try:
        with open(path, "rb") as stream:
            return stream.read(lxc_config.MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise lxc_config.ConfigError(
            f"reading the container's configuration {path}: {error.strerror}; give the path of its file", path=path
        ) from error


def write(path: str, before: bytes, after: bytes) -> None:
    """Replace the file, unless somebody changed it in the meantime. Raises ConfigError."""
    try:
        if read(path) != before:
            raise lxc_config.ConfigError(
                f"writing the container's configuration {path}: somebody else changed it meanwhile; run again",
                path=path,
            )
        write_atomic(path, after)
    except OSError as error:
        raise lxc_config.ConfigError(
            f"writing the container's configuration {path}: {error.strerror}; run as root, and on Proxmox VE see that "
            "the cluster has a quorum (pvecm status), since /etc/pve is read-only without",
            path=path,
        ) from error


def missing(path: str) -> lxc_config.ConfigError:
    """The error for a container that has no configuration."""
    return lxc_config.ConfigError(
        f"reading the container's configuration {path}: No such file or directory; make the container first", path=path
    )


def difference(path: str, before: bytes, after: bytes) -> dict[str, str]:
    """What a module shows of a change."""
    return {
        "before_header": path,
        "after_header": path,
        "before": before.decode("utf-8", "replace"),
        "after": after.decode("utf-8", "replace"),
    }
