# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Python an environment is made with: what this machine has, judged by what a release needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError

AUTO = "auto"
_PROBE_TIMEOUT_S = 20
_NAME = re.compile(r"python3(\.\d+)?$")
# What a candidate says about itself. It must parse on any Python, also a 2.7 that hides behind an odd name.
_PROBE = """
import json, platform, sys
try:
    from importlib.util import find_spec
    venv = bool(find_spec("venv") and find_spec("ensurepip"))
except ImportError:
    venv = False
print(json.dumps({
    "version": platform.python_version(), "implementation": platform.python_implementation().lower(),
    "abiflags": getattr(sys, "abiflags", ""), "platform": sys.platform + "-" + platform.machine(), "venv": venv,
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """A Python that runs. `version` is the full one (`3.11.7`), `has_venv` whether `python -m venv` can work."""

    path: str
    version: str
    implementation: str
    abiflags: str
    platform: str
    has_venv: bool

    @property
    def minor(self) -> str:
        """`3.11`."""
        return ".".join(self.version.split(".")[:2])

    @property
    def tag(self) -> str:
        """What installed files depend on, and so part of an environment's identity: `cpython-3.11-linux-x86_64`."""
        return f"{self.implementation}-{self.minor}{self.abiflags}-{self.platform}"


Probe = Callable[[str], "Interpreter | str"]


def probe(path: str) -> Interpreter | str:
    """Run `path` and return what it says about itself, or in a few words why it is no Python that can be used."""
    # -I: neither PYTHONPATH nor a file in the current directory may answer for it.
    command = [path, "-I", "-c", _PROBE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False)
        said = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run ({error.__class__.__name__})"
    except ValueError:
        return "does not answer as a Python"
    if said is None:
        # A version manager's shim for a Python that is not switched on ends like this.
        why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
        return f"does not run ({why[:80]})"
    return Interpreter(
        path=path,
        version=said["version"],
        implementation=said["implementation"],
        abiflags=said["abiflags"],
        platform=said["platform"],
        has_venv=said["venv"],
    )


def release_of(version: str) -> tuple[int, ...]:
    """The numbers of a Python version: `3.14.0rc1` gives (3, 14, 0)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def satisfies(version: str, specifier: str) -> bool:
    """Whether a Python version meets a Requires-Python text such as `>=3.10,<3.14` or `!=3.9.*`.

    Knows the operators that such texts use. Raises InstallError for anything else: a guess could pass a wrong Python.
    """
    have = release_of(version)
    for clause in filter(None, (part.strip() for part in specifier.split(","))):
        match = re.fullmatch(r"(>=|<=|>|<|==|!=|~=)\s*(\d+(?:\.\d+)*)(\.\*)?", clause)
        if match is None:
            raise InstallError(
                f"reading requires_python {specifier!r}: cannot read {clause!r}; write it like >=3.10,<3.14"
            )
        operator, want, star = match[1], release_of(match[2]), match[3]
        if star:
            compared = (have[: len(want)] > want) - (have[: len(want)] < want)
        else:
            width = max(len(have), len(want))
            left, right = (value + (0,) * (width - len(value)) for value in (have, want))
            compared = (left > right) - (left < right)
        fits = {
            ">=": compared >= 0,
            "<=": compared <= 0,
            ">": compared > 0,
            "<": compared < 0,
            "==": compared == 0,
            "!=": compared != 0,
            "~=": compared >= 0 and have[: len(want) - 1] == want[:-1],
        }
        if not fits[operator]:
            return False
    return True


def on_path(path: str) -> Iterator[str]:
    """Every `python3` and `python3.X` below the directories of a PATH text, in its order."""
    for directory in filter(None, path.split(os.pathsep)):
        try:
            names = sorted(os.listdir(directory))
        except OSError:
            continue
        for name in names:
            candidate = os.path.join(directory, name)
            if _NAME.match(name) and os.access(candidate, os.X_OK) and os.path.isfile(candidate):
                yield candidate


def choose(
    asked: str,
    requires: str = "",
    needs_venv: bool = False,
    current: str | None = None,
    search: Iterable[str] | None = None,
    probe: Probe = probe,
) -> Interpreter:
    """The Python to use. Raises InstallError when there is none that fits.

    `asked` is a path, a name on PATH, or `auto`: then `current` (the interpreter Ansible runs with) when it fits, else
    the newest fitting one of `search` (default: what is on PATH). `requires` is a Requires-Python text. `needs_venv`
    asks for one whose `python -m venv` works.
    """
    if asked != AUTO:
        path = shutil.which(asked)
        found = {asked: probe(path) if path else "not there or not executable"}
        _refuse_unless_fit(asked, found, requires, needs_venv)
        return next(iter(_fitting(found, requires, needs_venv)))
    first = current or sys.executable
    found = {first: probe(first)}
    if not _fitting(found, requires, needs_venv):
        candidates = on_path(os.environ.get("PATH", os.defpath)) if search is None else search
        seen = {os.path.realpath(first)}
        for path in candidates:
            real = os.path.realpath(path)
            if real not in seen:
                seen.add(real)
                found[path] = probe(path)
    _refuse_unless_fit(asked, found, requires, needs_venv)
    return max(_fitting(found, requires, needs_venv), key=lambda python: release_of(python.version))


def _fitting(found: dict[str, Interpreter | str], requires: str, needs_venv: bool) -> list[Interpreter]:
    return [
        python
        for python in found.values()
        if isinstance(python, Interpreter)
        and satisfies(python.version, requires)
        and (python.has_venv or not needs_venv)
    ]


def _refuse_unless_fit(asked: str, found: dict[str, Interpreter | str], requires: str, needs_venv: bool) -> None:
    if _fitting(found, requires, needs_venv):
        return
    seen = {path: python.version if isinstance(python, Interpreter) else python for path, python in found.items()}
    facts = {"found": seen, "needed": requires}
    running = [f"{path} ({python.version})" for path, python in found.items() if isinstance(python, Interpreter)]
    dead = [f"{path} {why}" for path, why in found.items() if not isinstance(why, Interpreter)]
    # A version manager puts a shim for every Python on PATH, most of them switched off: one of them is enough to see.
    listed = ", ".join(running + dead[:1]) + (f", and {len(dead) - 1} more like it" if len(dead) > 1 else "")
    bare = _without_venv(found.values(), requires)
    if needs_venv and bare:
        raise InstallError(
            f"choosing a Python ({asked}): {bare.path} ({bare.version}) lacks the venv or ensurepip module; "
            f"install it (Debian, Ubuntu: apt-get install python{bare.minor}-venv) and run again",
            **facts,
        )
    raise InstallError(
        f"choosing a Python ({asked}): none fits, {requires or 'any Python 3'} is needed and found were {listed}; "
        "install one that fits and put it on PATH, or set sglang_python to its path",
        **facts,
    )


def _without_venv(found: Iterable[Interpreter | str], requires: str) -> Interpreter | None:
    fitting: Sequence[Interpreter] = [
        python for python in found if isinstance(python, Interpreter) and satisfies(python.version, requires)
    ]
    return max(fitting, key=lambda python: release_of(python.version)) if fitting else None
