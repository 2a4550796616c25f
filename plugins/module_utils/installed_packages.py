# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages dpkg has installed, and which versions of a package apt knows."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Sequence

from ansible_collections.tokforge.sglang.plugins.module_utils import driver_packages

#: What to ask dpkg for; read by `installed`.
QUERY = ("dpkg-query", "-W", "-f=${db:Status-Abbrev}\t${Package}\t${Version}\n")

# A command -> exit status, standard output, standard error.
Run = Callable[[Sequence[str]], "tuple[int, str, str]"]


def installed(output: str) -> dict[str, str]:
    """Versions by name from QUERY's answer, of what is unpacked and configured, held packages included.

    A removed package whose configuration is left is not there (state c), nor one that is half installed.
    """
    return {name: version for state, name, version in _rows(output) if state[1:2] == "i" and not state[2:].strip()}


def left(output: str) -> dict[str, str]:
    """Versions by name of all that dpkg has something of, configuration alone and what is half installed included."""
    return {name: version for state, name, version in _rows(output) if state[1:2] not in ("n", "")}


def _rows(output: str) -> Iterator[tuple[str, str, str]]:
    for line in output.splitlines():
        fields = line.split("\t")
        if len(fields) == 3:
            yield fields[0], fields[1], fields[2]


def driver(output: str) -> dict[str, str]:
    """Those of `installed` that are of NVIDIA's driver."""
    return {name: version for name, version in installed(output).items() if driver_packages.is_driver(name)}


def offered(output: str) -> tuple[str, ...]:
    """Versions from what `apt-cache madison NAME` says, as listed, newest first."""
    rows = (line.split("|") for line in output.splitlines())
    return tuple(dict.fromkeys(row[1].strip() for row in rows if len(row) >= 3))


def unknown(packages: Iterable[str], run: Run) -> dict[str, tuple[str, ...]]:
    """Of name, name=version and name=version*, those that apt cannot give now, with the versions that it can."""
    lacking = {}
    for package in packages:
        name, equals, version = package.partition("=")
        known = offered(run(["apt-cache", "madison", name])[1])
        if not (any(fnmatch.fnmatchcase(one, version) for one in known) if equals else known):
            lacking[package] = known
    return lacking
