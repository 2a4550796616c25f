# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An environment on top of another Python's packages: a machine's own build of torch and what came with it.

Images of GPU machines bring a torch that fits them, several GB with its CUDA libraries, and some have no way to fetch
another. A base is such a Python. Locked distributions that it has are taken from it as they are, the others are
installed as locked. What is taken is part of the environment's identity: another torch in the base is another
environment.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import interpreters, lockfile, site_packages
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.interpreters import Interpreter

#: Compiled kernels of a release are built for one torch, so that one is never taken in another version.
_EXACT = ("torch",)

#: Files of these are edited or added while an environment is built, and a base is not ours to change.
ALWAYS_INSTALLED = ("sglang", "flashinfer-python")

_TIMEOUT_S = 60
# Where a Python imports installed packages from; -I keeps out PYTHONPATH, the user's site and the current directory.
_PLACES = """
import json, os, sys
places = [os.path.abspath(path) for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
print(json.dumps([path for path in places if os.path.isdir(path)]))
"""


@dataclass(frozen=True)
class Base:
    """What is asked: an interpreter (`python`) whose packages are used.

    `reinstall` are locked distributions that are installed although the base has them, `leave_out` locked ones that are
    not installed although the base lacks them.
    """

    python: str
    reinstall: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """What a base is: directories it imports from, and canonical name -> version of what lies there."""

    interpreter: Interpreter
    sites: tuple[str, ...]
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Share:
    """Which part of the locks comes from where.

    `installed` is the text of each lock with only what is to be installed, None where nothing is left of it. `taken`
    is canonical name -> version in the base, `differing` those that are another version than the locked one, as
    (version, locked version), `left_out` what nobody has.
    """

    installed: tuple[str | None, str | None]
    taken: Mapping[str, str] = field(default_factory=dict)
    differing: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Under:
    """A base as it was found, and what is taken from it."""

    found: Found
    shared: Share


def look(base: Base) -> Found:
    """Ask the base's interpreter where its packages are, and read their versions. Raises InstallError."""
    try:
        interpreter = interpreters.choose(base.python)
    except InstallError as error:
        why = ", ".join(map(str, error.facts.get("found", {}).values())) or str(error)
        raise InstallError(
            f"looking at the base {base.python}: {why}; bring it back, or give the Python that has the packages as "
            "python of sglang_install_base",
            **error.facts,
        ) from error
    try:
        done = subprocess.run(
            [interpreter.path, "-I", "-c", _PLACES], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
        sites = tuple(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise InstallError(
            f"asking the base {base.python} where its packages are: {error}; give the Python that has them",
            path=base.python,
        ) from error
    return Found(interpreter, sites, site_packages.versions_of(*sites))


def check_python(asked: Interpreter, found: Found) -> None:
    """Refuse an environment of another Python than the base's, which could not load its compiled modules."""
    if asked.tag != found.interpreter.tag:
        raise InstallError(
            f"choosing a Python ({asked.path}): it is {asked.tag} and the base {found.interpreter.path} is "
            f"{found.interpreter.tag}; leave sglang_python out, or give a base of the same Python",
            python=asked.tag,
            base=found.interpreter.tag,
        )


def share(locks: tuple[str, str | None], base: Base, versions: Mapping[str, str]) -> Share:
    """Divide the pins of both locks, with and without requirements, between the base, which has `versions`, and uv.

    A second lock takes the place of a first of which nothing is left: on top of a base all is installed without
    requirements. Raises InstallError for a name that no lock has, and for a torch that is not the locked one.
    """
    parsed = [lockfile.parse(text, "lock") if text is not None else [] for text in locks]
    locked: dict[str, list[str]] = {}
    for pins in parsed:
        for pin in pins:
            locked.setdefault(pin.name, []).append(pin.version)
    reinstall, leave_out = (set(map(lockfile.canonical, names)) for names in (base.reinstall, base.leave_out))
    unknown = sorted((reinstall | leave_out) - set(locked))
    if unknown:
        raise InstallError(
            f"reading sglang_install_base: the lock has no {', '.join(unknown)}; reinstall and leave_out name "
            "distributions of the lock",
            unknown=unknown,
        )
    both = sorted(reinstall & leave_out)
    if both:
        raise InstallError(
            f"reading sglang_install_base: {', '.join(both)} is in reinstall and in leave_out; keep one", names=both
        )
    always = sorted(leave_out.intersection(ALWAYS_INSTALLED))
    if always:
        raise InstallError(
            f"reading sglang_install_base: {', '.join(always)} cannot be left out, since every server needs it; take "
            "it off leave_out",
            names=always,
        )
    stay = reinstall.union(ALWAYS_INSTALLED)
    _check_flashinfer(locked.get("flashinfer-python", []), base, stay, versions)
    taken = {name: versions[name] for name in sorted(locked) if name in versions and name not in stay}
    differing = {
        name: (version, " or ".join(dict.fromkeys(locked[name])))
        for name, version in taken.items()
        if not any(lockfile.matches(version, wanted) for wanted in locked[name])
    }
    for name in filter(differing.__contains__, _EXACT):
        have, want = differing[name]
        raise InstallError(
            f"taking {name} from the base {base.python}: it has {have} and the release needs {want}, for which its "
            f"kernels are compiled; choose a release for {name} {have}, a base with {want}, or reinstall {name}",
            have=have,
            want=want,
        )
    left_out = tuple(sorted(leave_out - set(taken)))
    gone = set(taken) | set(left_out)
    first, second = ("".join(pin.line() + "\n" for pin in pins if pin.name not in gone) or None for pins in parsed)
    return Share((first, second) if first else (second, None), taken, differing, left_out)


def _check_flashinfer(wanted: Sequence[str], base: Base, stay: Collection[str], versions: Mapping[str, str]) -> None:
    """Refuse kernels of another FlashInfer in the base, which the installed one would find and not run with.

    Those that no lock has are found too. Raises InstallError.
    """
    public = {lockfile.normal(version).partition("+")[0] for version in wanted}
    for name, have in versions.items():
        other = name.startswith("flashinfer-") and name not in stay
        if other and public and lockfile.normal(have).partition("+")[0] not in public:
            want = " or ".join(dict.fromkeys(wanted))
            raise InstallError(
                f"taking {name} from the base {base.python}: it has {have}, and FlashInfer {want} of the release does "
                f"not run with kernels of another; reinstall {name} where the lock has it, or give a base without",
                have=have,
                want=want,
            )


def identity(under: Under) -> dict[str, Any]:
    """What of a base decides an environment's content, as plain data."""
    shared = under.shared
    return {"sites": list(under.found.sites), "taken": dict(shared.taken), "left_out": list(shared.left_out)}


def record(under: Under) -> dict[str, Any]:
    """What environment.json keeps of it."""
    return {
        "python": under.found.interpreter.path,
        "python_version": under.found.interpreter.version,
        **identity(under),
        "differing": {name: list(pair) for name, pair in under.shared.differing.items()},
    }


def warnings(under: Under) -> list[str]:
    """What a user should know of an environment that is not all as it was locked."""
    lines = []
    differing = under.shared.differing
    if differing:
        pairs = ", ".join(f"{name} {have} (locked {want})" for name, (have, want) in differing.items())
        lines.append(
            f"{len(differing)} distributions of the base {under.found.interpreter.path} differ from the lock: {pairs}"
        )
    if under.shared.left_out:
        lines.append(f"left out, though the release asks for them: {', '.join(under.shared.left_out)}")
    closed = _closed((*under.found.sites, os.path.realpath(under.found.interpreter.path)))
    if closed:
        lines.append(
            f"others may not use {closed}, where the base {under.found.interpreter.path} is: a server of another "
            "user (sglang_user under systemd) does not start; let others read and enter it"
        )
    return lines


def _closed(paths: Sequence[str]) -> str | None:
    """The first of `paths`, or of the directories above them, that others may not read or enter."""
    for path in paths:
        while path != os.path.dirname(path):
            # To pass through a directory needs no right to list it.
            needed = stat.S_IXOTH | (stat.S_IROTH if path in paths else 0)
            with suppress(OSError):
                if os.stat(path).st_mode & needed != needed:
                    return path
            path = os.path.dirname(path)
    return None


def write_path_file(site: str, sites: Sequence[str]) -> None:
    """Let an environment, by its site-packages `site`, import from `sites` too, behind its own. Raises InstallError.

    What lies there may need its path files (nvidia-cutlass-dsl, whatever is installed in place), as in the base itself.
    """
    for path in sites:
        # A line that starts with "import" is run, and a line end would make two of one.
        if not path.startswith("/") or not path.isprintable():
            raise InstallError(f"using the packages in {path!r}: no plain absolute path; give another base", path=path)
    with open(os.path.join(site, site_packages.BASE_FILE), "w", encoding="utf-8") as stream:
        stream.writelines(f"{path}\n" for path in sites)
        stream.writelines(f"import site; site.addsitedir({path!r})\n" for path in sites)
