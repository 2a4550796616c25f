# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One kernel package held, and on Proxmox VE its kernel pinned as the one to start; and the way back.

`apt-mark hold` keeps a package from being upgraded and removed (apt-mark(8)). `proxmox-boot-tool kernel pin` takes the
release that is always started, kept in /etc/kernel/proxmox-boot-pin (PVE administration guide, "Override the Kernel-
Version used on next Boot").
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import previous_values
from ansible_collections.tokforge.sglang.plugins.module_utils.host_error import HostError

PIN = "/etc/kernel/proxmox-boot-pin"
#: Notes are `kernel_package/<package>` (whether it was held) and `kernel_pin` (the release that was pinned, or null).
KEY = "kernel_package/"
PIN_KEY = "kernel_pin"

#: Three numbers and more: proxmox-kernel-6.8 is a series that apt moves on, not one kernel.
_PACKAGE = re.compile(
    r"(?:linux-image|proxmox-kernel|pve-kernel)-(?:unsigned-)?([0-9]+\.[0-9]+\.[0-9]+[+-][a-zA-Z0-9.+~-]*?)(?:-signed)?"
)
_SHOWN_LINES = 10

Run = Callable[[Sequence[str]], tuple[int, str]]


class KernelPackageError(HostError):
    """A kernel package cannot be held or pinned; the text says why and what to do."""


@dataclass(frozen=True)
class Outcome:
    """Held kernel packages that are ours to care about, and the pin, before and after."""

    changed: bool
    held_before: tuple[str, ...]
    held_after: tuple[str, ...]
    pin_before: str
    pin_after: str


def release_of(package: str) -> str:
    """The kernel release of a package, such as 6.8.12-4-pve. Raises KernelPackageError for one that names none."""
    match = _PACKAGE.fullmatch(package)
    if not match:
        raise KernelPackageError(
            f"holding the kernel package {package[:80]!r}: this is not the package of one kernel release; name it as "
            "dpkg -l does, such as linux-image-6.1.0-28-amd64 or proxmox-kernel-6.8.12-4-pve-signed",
            package=package,
        )
    return match.group(1)


def settle(package: str, pin: bool, pin_file: str, record_dir: str, check_mode: bool, run: Run) -> Outcome:
    """Hold and pin the package; with an empty name put back everything. What an earlier package left is put back.

    Raises KernelPackageError and RecordError.
    """
    notes = previous_values.read(record_dir)
    ours = [key[len(KEY) :] for key in notes if key.startswith(KEY)]
    release = release_of(package) if package else ""
    if not package and not ours and PIN_KEY not in notes:
        return Outcome(False, (), (), "", "")
    held = set(_output(run, ["apt-mark", "showhold"]).split())
    after = held | ({package} if package else set())
    after -= {name for name in ours if name != package and notes[KEY + name] is False}
    pinned = _pin(pin_file)
    pin_after = pinned
    if package and pin:
        pin_after = release
    elif PIN_KEY in notes:
        pin_after = _noted_pin(notes[PIN_KEY], record_dir)
    if not check_mode:
        new: dict[str, Any] = {KEY + package: package in held} if package else {}
        if package and pin:
            new[PIN_KEY] = pinned or None
        previous_values.remember(record_dir, new)
        for verb, names in (("unhold", held - after), ("hold", after - held)):
            if names:
                _output(run, ["apt-mark", verb, *sorted(names)])
        if pin_after != pinned:
            words = ["pin", pin_after] if pin_after else ["unpin"]
            _output(run, ["proxmox-boot-tool", "kernel", *words])
            if _pin(pin_file) != pin_after:
                raise KernelPackageError(
                    f"pinning kernel {pin_after or 'none'}: {pin_file} reads {_pin(pin_file) or 'nothing'} afterwards; "
                    "look at proxmox-boot-tool kernel list",
                    pin=_pin(pin_file),
                )
        done = [KEY + name for name in ours if name != package]
        if not (package and pin) and PIN_KEY in notes:
            done.append(PIN_KEY)
        previous_values.forget(record_dir, done)
    kernels = {package, *ours} - {""}
    return Outcome(
        held != after or pinned != pin_after,
        tuple(sorted(kernels & held)),
        tuple(sorted(kernels & after)),
        pinned,
        pin_after,
    )


def _pin(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(4096).strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise KernelPackageError(f"reading {path}: {error.strerror}; make it readable", path=path) from error


def _noted_pin(value: Any, record_dir: str) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    raise KernelPackageError(
        f"reading which kernel was pinned, {os.path.join(record_dir, previous_values.FILE)}: {PIN_KEY} is not as this "
        "collection notes it; put a backup back, or remove the key and pin the kernel by hand",
        found=value if not isinstance(value, Mapping) else dict(value),
    )


def _output(run: Run, command: Sequence[str]) -> str:
    status, output = run(command)
    if status:
        shown = "\n".join(output.strip().splitlines()[-_SHOWN_LINES:])
        raise KernelPackageError(
            f"running {' '.join(command)}: it ended with {status}; correct what it says and run again: {shown}",
            command=list(command),
            output=shown,
        )
    return output
