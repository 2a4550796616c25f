# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where an SGLang's source lies, which release it is, and what its files were when they came; nothing is imported.

Importing SGLang starts CUDA, so it is only looked for: in the search path of its own interpreter, or in a directory.
"""

from __future__ import annotations

import ast
import base64
import csv
import glob
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_TIMEOUT_S = 60
# Runs in the interpreter that the server will run in. A search finds what links, .pth files and editable finders lead
# to. What a .pth file prints may come before the answer and behind it.
_LOOK = """
import importlib.util, importlib.metadata, json, sys
try:
    spec = importlib.util.find_spec("sglang")
except (ImportError, ValueError):
    spec = None
try:
    version = importlib.metadata.version("sglang")
except importlib.metadata.PackageNotFoundError:
    version = None
places = list(spec.submodule_search_locations or []) if spec else []
print()
print(json.dumps({"places": places, "version": version, "python": ".".join(map(str, sys.version_info[:3]))}))
"""
_CHOICES = re.compile(r"^MOE_RUNNER_BACKEND_CHOICES\b[^=\n]*=[ \t]*(?=[\[(])", re.MULTILINE)
_RELEASE = re.compile(r"[0-9]+\.[0-9]+[0-9A-Za-z.+!-]*")


class TreeError(Exception):
    """SGLang's source cannot be found or read; `facts` go beside the message."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts


@dataclass(frozen=True)
class Tree:
    """One SGLang. `srt` is its directory sglang/srt, `version` is None where nothing says it.

    `python` is the interpreter it belongs to and `python_version` that one's version, both None for a bare source.
    """

    srt: str
    version: str | None
    python: str | None = None
    python_version: str | None = None

    @property
    def executor(self) -> str:
        """The directory that holds the gate in every release that has one."""
        return os.path.join(self.srt, "model_executor")

    def short(self, path: str) -> str:
        """A file's path as people name it, from sglang/srt on."""
        return os.path.join("sglang", "srt", os.path.relpath(path, self.srt))


def of_source(path: str) -> Tree:
    """The SGLang in a directory that holds sglang/srt, python/sglang/srt or srt. Raises TreeError."""
    for below in ("sglang/srt", "python/sglang/srt", "srt"):
        srt = os.path.join(path, below)
        if os.path.isdir(srt):
            return Tree(srt, _version_beside(os.path.dirname(srt)))
    why = "it holds none of sglang/srt, python/sglang/srt and srt" if os.path.isdir(path) else "it is no directory"
    raise TreeError(
        f"looking for SGLang in {path}: {why}; give the directory of a checkout, or site-packages", source=path
    )


def of_python(python: str) -> Tree:
    """The SGLang that `python` would import, without importing it. Raises TreeError."""
    if os.path.isdir(python):
        raise TreeError(
            f"running {python}: it is a directory; give the interpreter in it, {os.path.join(python, 'bin', 'python')}",
            python=python,
        )
    printed = _ask(python, _LOOK, "")
    found = answer_of(python, printed, "places")
    places, version, own = (found.get(name) for name in ("places", "version", "python"))
    if (
        not isinstance(places, list)
        or not all(isinstance(one, str) for one in places)
        or not isinstance(own, str)
        or not isinstance(version, (str, type(None)))
    ):
        raise TreeError(
            f"looking for SGLang in {python}: it answered {printed[-200:]!r}; give the interpreter of an environment",
            python=python,
        )
    trees = [os.path.join(place, "srt") for place in places if os.path.isdir(os.path.join(place, "srt"))]
    if not trees:
        why = "no sglang/srt in " + ", ".join(places) if places else "SGLang is not installed for it"
        raise TreeError(
            f"looking for SGLang in {python} (Python {own}): {why}; install it there, or give source",
            python=python,
        )
    return Tree(trees[0], version or _version_beside(os.path.dirname(trees[0])), python, own)


def run_in(python: str, code: str, text: str) -> str:
    """What `code` prints in `python` when it reads `text`. Raises TreeError."""
    return _ask(python, code, text)


def answer_of(python: str, printed: str, *keys: str) -> dict[str, Any]:
    """The JSON object with one of `keys` among the lines that `python` printed. Raises TreeError."""
    for line in reversed(printed.split("\n")):
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(answer, dict) and any(key in answer for key in keys):
            return answer
    raise TreeError(
        f"looking for SGLang in {python}: it answered {printed[-200:]!r}; give the interpreter of an environment",
        python=python,
    )


def _ask(python: str, code: str, text: str) -> str:
    try:
        # Isolated: neither PYTHON* variables nor the current directory may bring another SGLang to the front.
        done = subprocess.run(
            [python, "-I", "-c", code],
            input=text,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
            cwd="/",
        )
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise TreeError(
            f"running {python}: {why}; give the Python interpreter of the environment", python=python
        ) from error
    except subprocess.TimeoutExpired as error:
        raise TreeError(
            f"running {python}: no answer in {_TIMEOUT_S} s; see what it waits for", python=python
        ) from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise TreeError(
            f"running {python}: it ended with {done.returncode}: {last}; give a working interpreter", python=python
        )
    return done.stdout


def _version_beside(package: str) -> str | None:
    """The release of the package directory, from its metadata or from what its own files say."""
    infos = _dist_infos(os.path.dirname(package))
    if len(infos) == 1:
        match = re.search(r"^Version:[ \t]*(\S+)", _text(os.path.join(infos[0], "METADATA")), re.MULTILINE)
        if match:
            return match.group(1)
    said = r"""^(?:__version__|version)\b[^'"\n]*=[ \t]*['"]([^'"]+)['"]"""
    for path in ("_version.py", "version.py", "../pyproject.toml"):
        match = re.search(said, _text(os.path.join(package, path)), re.MULTILINE)
        if match and _RELEASE.fullmatch(match.group(1)):
            return match.group(1)
    return None


def _dist_infos(site: str) -> list[str]:
    return sorted(glob.glob(os.path.join(glob.escape(site), "sglang-*.dist-info")))


def _text(path: str) -> str:
    # A pipe in its place would never end.
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


@dataclass(frozen=True)
class Original:
    """What a file was when it came: its digest, and its bytes where they are at hand (git has them, RECORD has not)."""

    sha256: str
    data: bytes | None = None


def original(tree: Tree, path: str) -> Original | None:
    """What a file was when it came, from the wheel's RECORD or git's HEAD; None when neither tells."""
    return _recorded(tree, path) or _committed(path)


def _recorded(tree: Tree, path: str) -> Original | None:
    site = os.path.dirname(os.path.dirname(tree.srt))
    infos = _dist_infos(site)
    # Two of them are the rest of a broken upgrade: which one the file came with is not known.
    if len(infos) != 1:
        return None
    name = os.path.relpath(path, site).replace(os.sep, "/")
    try:
        for row in csv.reader(_text(os.path.join(infos[0], "RECORD")).splitlines()):
            if len(row) >= 2 and os.path.normpath(row[0]) == name and row[1].startswith("sha256="):
                digest = row[1][len("sha256=") :]
                return Original(base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex())
    except (ValueError, csv.Error):
        return None
    return None


def _committed(path: str) -> Original | None:
    real = os.path.realpath(path)
    folder, name = os.path.split(real)
    above = folder
    while not os.path.exists(os.path.join(above, ".git")):
        if above == os.path.dirname(above):
            return None
        above = os.path.dirname(above)
    # Plumbing, so that no hook or filter of the repository runs; its owner may be another user.
    command = ["git", "-c", "safe.directory=*", "-C", folder, "cat-file", "blob", f"HEAD:./{name}"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, env=environ, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return Original(hashlib.sha256(done.stdout).hexdigest(), done.stdout) if done.returncode == 0 else None


def moe_backends(tree: Tree) -> tuple[str, ...] | None:
    """The release's own --moe-runner-backend choices, or None when they are not where releases keep them.

    They stand in srt/server_args.py up to 0.5.19 and in srt/arg_groups/choices.py from 0.5.20 on.
    """
    for path in (os.path.join(tree.srt, "server_args.py"), os.path.join(tree.srt, "arg_groups", "choices.py")):
        text = _text(path)
        match = _CHOICES.search(text)
        if match:
            return _names(text, match.end())
    return None


def _names(text: str, start: int) -> tuple[str, ...] | None:
    """The names in the literal that starts with the bracket at `start`, or None when it is not written out."""
    closing = {"[": "]", "(": ")"}[text[start]]
    for match in re.finditer(re.escape(closing), text[start:]):
        end = start + match.end()
        try:
            values = ast.literal_eval(text[start:end])
        except SyntaxError:
            continue  # this bracket stands in a comment
        except ValueError:
            return None
        more = re.match(r"[ \t]*(?:#.*)?$", text[end:], re.MULTILINE) is None
        whole = isinstance(values, (list, tuple)) and all(isinstance(one, str) for one in values)
        return tuple(values) if whole and not more else None
    return None


def python_files(folder: str) -> Iterator[str]:
    """Every Python file below a directory, once each, also where links lead to it; sorted. Raises OSError."""
    seen: set[str] = set()
    for here, folders, names in os.walk(folder, onerror=_raise, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:
            folders[:] = []
            continue
        seen.add(real)
        # What begins with a dot cannot be imported.
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(here, name)
            if (
                name.endswith(".py")
                and not name.startswith(".")
                and os.path.isfile(path)
                and os.path.realpath(path) not in seen
            ):
                seen.add(os.path.realpath(path))
                yield path


def _raise(error: OSError) -> None:
    raise error
