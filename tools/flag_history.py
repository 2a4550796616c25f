#!/usr/bin/env python3
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write which SGLang releases have which flags, from a directory of their wheels.

    tools/flag_history.py DIRECTORY     every wheel of SGLang there; nothing of them is run, nothing is fetched

The more releases lie there, the better the file: it says of a flag in which release it came and in which it went.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lock import LICENSE_HEAD, REPOSITORY, write
from packaging.version import Version
from server_flags import ExtractionError, flag_reader

HISTORY = Path("plugins/module_utils/flag_history.py")


def names_of(wheel: Path) -> set[str]:
    """The names and aliases of every flag of a wheel's release. Raises ExtractionError."""
    with tempfile.TemporaryDirectory(prefix="flags-") as scratch:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch, [name for name in archive.namelist() if name.endswith(".py")])
        found = flag_reader.read(Path(scratch)).flags.values()
    return {name for flag in found for name in (flag.name, *flag.aliases)}


def spans(releases: Sequence[str], names: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Name -> the first and the last release of each time that it was there, for names that some release lacks."""
    there = {release: set(names[release]) for release in releases}
    found: dict[str, str] = {}
    for name in sorted(set().union(*there.values())):
        runs: list[list[str]] = []
        for before, release in zip([None, *releases], releases):
            if name not in there[release]:
                continue
            if before is not None and name in there[before]:
                runs[-1][1] = release
            else:
                runs.append([release, release])
        if runs != [[releases[0], releases[-1]]]:
            found[name] = " ".join(f"{first}..{last}" for first, last in runs)
    return found


def history_text(releases: Sequence[str], found: Mapping[str, str]) -> str:
    """The generated Python file."""
    listed = "".join(f'    "{release}",\n' for release in releases)
    lines = "".join(f'    "{name}": "{span}",\n' for name, span in found.items())
    return (
        f'{LICENSE_HEAD}"""Which releases have which flags: written by `tools/flag_history.py` from the wheels, do not '
        'edit.\n\nA flag that is not here is in every release of the list. Read it through `flag_names.py`.\n"""\n\n'
        "from __future__ import annotations\n\n"
        f"#: The releases that were read, oldest first.\nRELEASES: tuple[str, ...] = (\n{listed})\n\n"
        "#: Name -> the spans of releases that have it, each `first..last` with both of them.\n"
        f"SPANS: dict[str, str] = {{\n{lines}}}\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; 1 with one line on stderr when a wheel cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("wheels", type=Path, help="the directory that holds the wheels")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    wheels = {path.name.split("-")[1]: path for path in options.wheels.glob("sglang-*.whl")}
    if not wheels:
        print(f"flag_history: no wheel of SGLang in {options.wheels}; give the directory of them", file=sys.stderr)
        return 1
    releases = sorted(wheels, key=Version)
    try:
        names = {release: names_of(wheels[release]) for release in releases}
    except (ExtractionError, OSError, zipfile.BadZipFile) as exc:
        print(f"flag_history: {exc}", file=sys.stderr)
        return 1
    write(options.root / HISTORY, history_text(releases, spans(releases, names)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
