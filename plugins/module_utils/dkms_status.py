# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which kernels DKMS has built the driver's module for, read from `dkms status`.

Forms by version of dkms (its source, function show_status): 2.8 (Ubuntu 22.04) `name, version, kernel, arch: state`,
3.x (Debian 12 and later, Ubuntu 24.04) `name/version, kernel, arch: state`; a module that is only known is
`name/version: added`. The state may have a remark in parentheses behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

#: Names under which packages and the .run file register the driver: NVIDIA's use the first, Debian's own the others.
MODULES = frozenset(
    {"nvidia", "nvidia-open", "nvidia-current", "nvidia-current-open", "nvidia-srv", "nvidia-open-kernel"}
)

INSTALLED = "installed"

_LINE = re.compile(
    r"(?P<name>[^/,\s]+)(?:/|, )(?P<version>[^,:\s]+)(?:, (?P<kernel>[^,\s]+), (?P<arch>[^:\s]+))?: ?"
    r"(?P<state>[a-z-]+)(?P<remark>.*)"
)


@dataclass(frozen=True)
class Built:
    """One line: a module's version, the kernel it is for (empty for all of them), how far it is, and a remark."""

    name: str
    version: str
    kernel: str
    state: str
    remark: str = ""


def parse(output: str) -> tuple[Built, ...]:
    """All lines that are of the driver. Other modules' lines, and messages, are passed over."""
    found = []
    for line in output.splitlines():
        match = _LINE.fullmatch(line.strip())
        if match and match["name"] in MODULES:
            found.append(
                Built(
                    match["name"], match["version"], match["kernel"] or "", match["state"], match["remark"].strip(" ()")
                )
            )
    return tuple(found)


def missing(status: Iterable[Built], version: str, kernels: Iterable[str]) -> dict[str, str]:
    """Kernels that the driver's module of this version is not installed for, with what DKMS says of each."""
    lines = [one for one in status if one.version == version]
    lacking: dict[str, str] = {}
    for kernel in kernels:
        here = [one for one in lines if one.kernel == kernel]
        if any(one.state == INSTALLED and "Diff between" not in one.remark for one in here):
            continue
        states = [one.state + (f" ({one.remark})" if one.remark else "") for one in here]
        lacking[kernel] = ", ".join(states) or ("not built" if lines else "DKMS does not know this version")
    return lacking
