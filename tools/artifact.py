# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the collection as users get it: built, installed somewhere else, and looked at from there.

    python tools/artifact.py build     build the artifact and install it below .build/collections
    python tools/artifact.py docs      the same, then ask ansible-doc for every module, filter and role from there
    python tools/artifact.py sanity    the same, then run ansible-test sanity on the installed collection

ansible-test refuses the checkout itself, which is only a collection through a link.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / ".build"
COLLECTIONS = BUILD / "collections"
INSTALLED = COLLECTIONS / "ansible_collections" / "tokforge" / "sglang"
BIN = Path(sys.executable).parent
UNWANTED = re.compile(r"(^|/)(\.[^/]+|__pycache__|.*\.tar\.gz|.*\.pyc)(/|$)")
PLUGIN_TYPES = {"modules": "module", "filter": "filter"}


class ArtifactError(Exception):
    """The artifact is not what users should get."""


def environment() -> dict[str, str]:
    """Environment in which only the installed collection and the `ansible` package are found, not the checkout."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_") and key != "PYTHONPATH"}
    env["ANSIBLE_COLLECTIONS_PATH"] = str(COLLECTIONS)
    env["ANSIBLE_HOME"] = str(BUILD / "ansible-home")
    env["PATH"] = os.pathsep.join([str(BIN), env.get("PATH", os.defpath)])
    return env


def unwanted(names: list[str]) -> list[str]:
    """Names of an artifact that belong to a checkout or a tool, not to users."""
    return [name for name in names if UNWANTED.search(name)]


def build() -> Path:
    """Build and install; returns the artifact's path."""
    BUILD.mkdir(exist_ok=True)
    for old in BUILD.glob("*.tar.gz"):
        old.unlink()
    shutil.rmtree(COLLECTIONS, ignore_errors=True)
    run([str(BIN / "ansible-galaxy"), "collection", "build", "--force", "--output-path", str(BUILD), str(ROOT)], BUILD)
    (artifact,) = BUILD.glob("*.tar.gz")
    with tarfile.open(artifact) as archive:
        members = archive.getmembers()
    surprising = unwanted([member.name for member in members])
    if surprising:
        raise ArtifactError(f"{artifact.name} holds what users should not get: {', '.join(surprising[:10])}")
    install = ["collection", "install", "--offline", "--no-deps", "--collections-path", str(COLLECTIONS), str(artifact)]
    run([str(BIN / "ansible-galaxy"), *install], BUILD)
    size = artifact.stat().st_size
    print(f"{artifact.name}: {len(members)} entries, {size // 1024} KiB, installed in {COLLECTIONS}", flush=True)
    return artifact


def docs() -> int:
    """Ask ansible-doc for everything that ships; returns how many plugins and roles answered."""
    count = 0
    for folder, kind in PLUGIN_TYPES.items():
        names = [f"tokforge.sglang.{path.stem}" for path in sorted((INSTALLED / "plugins" / folder).glob("*.[py]*"))]
        names = [name for name in names if not name.endswith("__init__")]
        if kind == "filter":
            names = sorted(json.loads(output(["ansible-doc", "-t", kind, "--list", "--json", "tokforge.sglang"])))
        if not names:
            continue
        answer = json.loads(output(["ansible-doc", "-t", kind, "--json", *names]))
        silent = [name for name in names if not (answer.get(name) or {}).get("doc")]
        if silent:
            raise ArtifactError(f"ansible-doc -t {kind} knows nothing about {', '.join(silent)}; document it")
        count += len(names)
    roles = [f"tokforge.sglang.{path.name}" for path in sorted((INSTALLED / "roles").iterdir())]
    answer = json.loads(output(["ansible-doc", "-t", "role", "--json", *roles]))
    silent = [role for role in roles if not (answer.get(role) or {}).get("entry_points")]
    if silent:
        raise ArtifactError(
            f"ansible-doc -t role knows nothing about {', '.join(silent)}; write meta/argument_specs.yml"
        )
    return count + len(roles)


def sanity(arguments: list[str]) -> int:
    """Run ansible-test sanity in this Python, with a home of its own; returns its exit code.

    Each of its tests makes an environment of its own and starts it with a script that it would download. The script is
    only pip: it is put where ansible-test keeps its download, and pip's settings are handed on in the home's pip.conf
    because ansible-test passes no environment variables on.
    """
    home = BUILD / "sanity-home"
    source = Path(python_says("ansible_test.__file__")).parent / "_internal" / "python_requirements.py"
    match = re.search(r"pip='([\d.]+)'", source.read_text(encoding="utf-8"))
    if not match:
        raise ArtifactError(f"{source} does not say which pip it wants; look at get_venv_packages there")
    version = match.group(1)
    script = home / ".ansible" / "test" / "cache" / f"get_pip_{version.replace('.', '_')}.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(BOOTSTRAP.format(pip=str(Path(python_says("pip.__file__")).parent)), encoding="utf-8")
    write_pip_conf(home / ".config" / "pip" / "pip.conf")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    command = [str(BIN / "ansible-test"), "sanity", "--local", "--python", python, "--color", "no", *arguments]
    env = environment() | {"HOME": str(home)}
    # Below the checkout git ignores the files, and ansible-test would find none.
    with tempfile.TemporaryDirectory(prefix="tokforge-sanity-") as scratch:
        tree = Path(scratch) / INSTALLED.relative_to(COLLECTIONS)
        shutil.copytree(INSTALLED, tree)
        return subprocess.run(command, cwd=tree, env=env, stdin=subprocess.DEVNULL, check=False).returncode


BOOTSTRAP = '''\
"""Stands in for get-pip.py: installs the wanted pip with the pip that is here."""
import subprocess
import sys
wanted = [argument for argument in sys.argv[1:] if argument not in ("--no-setuptools", "--no-wheel")]
sys.exit(subprocess.call([sys.executable, {pip!r}, "install", "--ignore-installed", *wanted]))
'''


def write_pip_conf(path: Path) -> None:
    """Write pip's settings in force here, from files and environment alike, into one pip.conf."""
    lines = ["[global]", "quiet = 1"]
    for line in output([sys.executable, "-m", "pip", "config", "list"]).splitlines():
        match = re.fullmatch(r"(global|install|:env:)\.([\w-]+)=(['\"])(.*)\3", line)
        if match and match.group(2) not in ("constraint", "quiet", "verbose", "require-virtualenv"):
            lines.append(f"{match.group(2)} = {match.group(4)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(dict.fromkeys(lines)) + "\n", encoding="utf-8")


def python_says(expression: str) -> str:
    """The text of an attribute like `package.__file__`, from a Python of its own."""
    package = expression.split(".")[0]
    return output([sys.executable, "-c", f"import {package}; print({expression})"]).strip()


def output(command: list[str]) -> str:
    """Standard output of a command; ArtifactError with its error text when it fails."""
    done = subprocess.run(
        command, cwd=BUILD, env=environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise ArtifactError(f"{' '.join(command[:4])} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def run(command: list[str], cwd: Path) -> None:
    """Run a command with its output shown only when it fails."""
    done = subprocess.run(
        command, cwd=cwd, env=environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise ArtifactError(f"{' '.join(command[:3])} failed: {done.stderr.strip() or done.stdout.strip()}")


def main() -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["build", "docs", "sanity"])
    parser.add_argument("arguments", nargs="*", help="sanity: further arguments for ansible-test sanity")
    arguments = parser.parse_args()
    try:
        build()
        if arguments.what == "docs":
            print(f"ansible-doc answers for {docs()} plugins and roles")
        elif arguments.what == "sanity":
            return sanity(arguments.arguments)
    except ArtifactError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
