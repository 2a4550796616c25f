#!/usr/bin/env python3
# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write every lock file and the release catalog from `locks.toml` (`make locks`).

    tools/lock.py                 every release that is listed
    tools/lock.py 0.5.23          this release only; the others keep their files and their catalog entries
    tools/lock.py --upgrade       let the pins move; without it an existing pin stays while it still fits
    tools/lock.py --flags-from D  read the flags of every locked release anew from the wheels in the directory D, and
                                  leave the locks and their entries as they are; nothing is fetched

For each release the wheel is fetched with pip, its metadata and its sources are read (nothing of it is run), and uv
resolves one requirements file with hashes for each lane. Index addresses come from pip's and uv's own settings and
never reach the files.
"""

from __future__ import annotations

import argparse
import ast
import email.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version
from server_flags import ExtractionError, Flag, read_flags

REPOSITORY = Path(__file__).resolve().parent.parent
LOCKS = Path("roles/sglang_install/files/locks")
ROUTER_LOCK = Path("roles/sglang_router/files/locks/router.txt")
CATALOG = Path("plugins/module_utils/release_catalog.py")
# A CPU lock that names one of these would install a CUDA stack of several GB on a machine without a GPU.
CUDA_NAMES = re.compile(r"^(nvidia-|cuda-|flashinfer-|sgl-|sglang-kernel$|cupy)")
LINE_LENGTH = 120
WHEEL_PLATFORMS = ("manylinux_2_34_x86_64", "manylinux_2_28_x86_64", "manylinux2014_x86_64", "any")
LICENSE_HEAD = (
    "# Copyright (c) 2026, the tokforge.sglang contributors\n"
    "# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)\n"
    "# SPDX-License-Identifier: GPL-3.0-or-later\n"
)


class LockError(Exception):
    """A lock or the catalog could not be written; the text says which, why and what to do."""


@dataclass(frozen=True)
class Wheel:
    """What a published wheel says about itself."""

    version: str
    requires_python: str
    requirements: tuple[Requirement, ...]
    sources: Path

    def pin(self, name: str) -> str | None:
        """The exact version the wheel asks of `name`, or None when it does not pin it."""
        for requirement in self.requirements:
            if canonicalize_name(requirement.name) == name:
                for specifier in requirement.specifier:
                    if specifier.operator == "==":
                        return specifier.version
        return None


def python_floor(requires_python: str) -> str:
    """The oldest Python (`3.11`) that `requires_python` allows."""
    wanted = SpecifierSet(requires_python)
    for minor in range(8, 40):
        if wanted.contains(f"3.{minor}.0") or wanted.contains(f"3.{minor}.99"):
            return f"3.{minor}"
    raise LockError(f"reading Requires-Python {requires_python!r}: no Python 3 fits; check the release")


def base_requirements(metadata: Iterable[str]) -> tuple[Requirement, ...]:
    """The requirements that no extra guards."""
    found = []
    for line in metadata:
        try:
            requirement = Requirement(line)
        except InvalidRequirement as exc:
            raise LockError(f"reading the wheel's requirement {line!r}: {exc}; check the release") from exc
        if requirement.marker is None or "extra" not in str(requirement.marker):
            found.append(requirement)
    return tuple(found)


def cpu_requirements(wheel: Wheel, lane: Mapping[str, Any]) -> list[str]:
    """The requirement lines of the CPU lane: the wheel's own, less what needs a GPU, plus one torch."""
    apart = {canonicalize_name(Requirement(line).name) for line in lane["no_deps"]}
    left_out = {canonicalize_name(name) for name in lane["drop"]} | apart | {"torch"}
    kept: dict[str, str] = {
        canonicalize_name(requirement.name): str(requirement)
        for requirement in wheel.requirements
        if canonicalize_name(requirement.name) not in left_out
    }
    for line in lane["add"]:
        kept.setdefault(canonicalize_name(Requirement(line).name), line)
    kept["torch"] = f"torch=={lane['torch']}"
    return [kept[name] for name in sorted(kept)]


def no_deps_requirements(wheel: Wheel, lane: Mapping[str, Any]) -> list[str]:
    """The exact pins of what the CPU lane installs without requirements, sglang itself first."""
    lines = [f"sglang=={wheel.version}"]
    for line in lane["no_deps"]:
        requirement = Requirement(line)
        if requirement.specifier:
            lines.append(line)
            continue
        pin = wheel.pin(canonicalize_name(requirement.name))
        if pin is None:
            raise LockError(
                f"locking sglang {wheel.version} for cpu: its wheel does not pin {line}; give the version in locks.toml"
            )
        lines.append(f"{line}=={pin}")
    return lines


def true_terms(machine: str, below: str) -> tuple[str, ...]:
    """The marker terms that hold on every target of a lane."""
    return ("sys_platform == 'linux'", f"platform_machine == '{machine}'", f"python_full_version < '{below}'")


def without_true_terms(text: str, terms: Sequence[str]) -> str:
    """Drop the marker terms that always hold; other `python_full_version` splits stay."""
    lines = []
    for line in text.splitlines():
        if not line.startswith((" ", "#")):
            for term in terms:
                line = line.replace(f" and {term}", "").replace(f"{term} and ", "").replace(f" ; {term}", "")
            if "platform_machine" in line or "sys_platform" in line:
                raise LockError(f"simplifying {line!r}: a platform marker is left; teach without_true_terms about it")
        lines.append(line)
    return "\n".join(lines) + "\n"


def without_hashes(text: str, names: Sequence[str]) -> str:
    """Drop the hash lines below the pins of `names`."""
    lines: list[str] = []
    exempt = False
    for line in text.splitlines():
        if not line.startswith((" ", "#")):
            exempt = canonicalize_name(re.split(r"[=\s;\[]", line, maxsplit=1)[0]) in names
            line = line.removesuffix(" \\") if exempt else line
        elif exempt and line.lstrip().startswith("--hash="):
            continue
        lines.append(line)
    return "\n".join(lines) + "\n"


def pins(text: str) -> dict[str, str]:
    """Distribution -> version of a requirements file; the last one wins where Python versions split."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(\S+)", line)
        if match:
            found[canonicalize_name(match[1])] = match[2]
    return found


def check_lock(name: str, text: str, *, cpu: bool, hash_exempt: Sequence[str] = ()) -> None:
    """Refuse a lock that holds an address or a path, lacks a hash, or brings CUDA to the CPU lane."""
    if re.search(r"://|file:|(?m:^\s*-(?:i|-index|-extra|-find|f)\b)", text) or re.search(r"(?m)^\S+ @ ", text):
        raise LockError(f"checking {name}: it holds an address or a path; unset uv's index settings and run again")
    bare = [
        line
        for line in text.splitlines()
        if not line.startswith((" ", "#"))
        and not line.endswith("\\")
        and canonicalize_name(line.split("==")[0]) not in hash_exempt
    ]
    if bare:
        raise LockError(f"checking {name}: no hash for {', '.join(bare)}; the index that answered gives none")
    if cpu:
        cuda = sorted(dist for dist in pins(text) if CUDA_NAMES.match(dist))
        if cuda:
            raise LockError(
                f"checking {name}: {', '.join(cuda)} need a GPU; add what asks for them to lanes.cpu.drop in locks.toml"
            )


class Resolver:
    """uv, told one lane's facts in a project file of its own so that no setting of this machine reaches the lock."""

    def __init__(self, uv: str, work: Path, upgrade: bool) -> None:
        self.uv, self.work, self.upgrade = uv, work, upgrade

    def resolve(
        self,
        target: Path,
        requirements: Sequence[str],
        *,
        python: str,
        terms: Sequence[str] = (),
        metadata: Sequence[Mapping[str, Any]] = (),
        no_deps: bool = False,
        hash_exempt: Sequence[str] = (),
    ) -> str:
        """Return the checked text of a lock; `target` is read for pins to keep, and not written."""
        project = self.work / target.stem
        project.mkdir(parents=True)
        (project / "pyproject.toml").write_text(project_file(python, terms, metadata), encoding="utf-8")
        (project / "requirements.in").write_text("\n".join(requirements) + "\n", encoding="utf-8")
        output = project / "lock.txt"
        if target.exists() and not self.upgrade:
            shutil.copy(target, output)
        command = [self.uv, "pip", "compile", "requirements.in", "--quiet", "--output-file", output.name]
        command += ["--universal", "--generate-hashes", "--no-annotate", "--no-header", "--no-emit-index-url"]
        command += ["--no-emit-find-links", "--python-version", python, "--no-python-downloads"]
        command += ["--no-deps"] if no_deps else []
        command += ["--upgrade"] if self.upgrade else []
        done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LockError(f"resolving {target.name}: uv says: {done.stderr.strip()}; loosen what conflicts")
        text = output.read_text(encoding="utf-8")
        if terms:
            text = without_true_terms(text, terms)
        if hash_exempt:
            text = without_hashes(text, hash_exempt)
        check_lock(target.name, text, cpu=target.name.startswith("cpu-") and not no_deps, hash_exempt=hash_exempt)
        return text


def project_file(python: str, terms: Sequence[str], metadata: Sequence[Mapping[str, Any]]) -> str:
    """The project file uv reads: the lane's one environment, and stated requirements of single distributions."""
    lines = ["[project]", 'name = "lock"', 'version = "0"', f'requires-python = ">={python}"', "[tool.uv]"]
    if terms:
        lines.append(f'environments = ["{" and ".join(terms)}"]')
    for entry in metadata:
        requires = ", ".join(f'"{line}"' for line in entry["requires-dist"])
        lines += ["[[tool.uv.dependency-metadata]]", f'name = "{entry["name"]}"', f'version = "{entry["version"]}"']
        lines.append(f"requires-dist = [{requires}]")
    return "\n".join(lines) + "\n"


def python_before(below: str) -> str:
    """The last Python before `below`: 3.13 for 3.14."""
    major, minor = below.split(".")
    return f"{major}.{int(minor) - 1}"


def fetch_wheel(version: str, work: Path, below: str) -> Wheel:
    """Download the release's wheel for the last Python before `below` with pip and unpack its Python sources."""
    folder = work / f"wheel-{version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    # The sources are the same in every wheel; asking for this one proves that the newest Python we allow has one.
    command += ["--python-version", python_before(below), *(f"--platform={platform}" for platform in WHEEL_PLATFORMS)]
    command += ["--dest", str(folder), f"sglang=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LockError(f"fetching sglang {version}: pip says: {done.stderr.strip()}; is the version published?")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        names = archive.namelist()
        archive.extractall(folder, [name for name in names if name.endswith(".py")])
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        message = email.parser.Parser().parsestr(archive.read(metadata).decode("utf-8"))
    if message["Version"] != version:
        raise LockError(f"fetching sglang {version}: the wheel says {message['Version']}; check the index")
    return Wheel(
        version=version,
        requires_python=f"{message['Requires-Python']},<{below}",
        requirements=base_requirements(message.get_all("Requires-Dist", [])),
        sources=folder,
    )


def lock_release(
    wheel: Wheel, lanes: Mapping[str, Any], below: str, folder: Path, resolver: Resolver
) -> dict[str, str]:
    """File name -> text of the lock files of one release."""
    python = python_floor(wheel.requires_python)
    files = {}
    for lane, facts in lanes.items():
        terms = true_terms(facts["machine"], below)
        target = folder / f"{lane}-{wheel.version}.txt"
        print(f"  {target.name}", flush=True)
        if lane != "cpu":
            files[target.name] = resolver.resolve(target, [f"sglang=={wheel.version}"], python=python, terms=terms)
            continue
        torch = {"name": "torch", "version": facts["torch"], "requires-dist": facts["torch_requires"]}
        files[target.name] = resolver.resolve(
            target,
            cpu_requirements(wheel, facts),
            python=python,
            terms=terms,
            metadata=[torch],
            hash_exempt=facts["hash_exempt"],
        )
        apart = folder / f"{lane}-{wheel.version}-nodeps.txt"
        files[apart.name] = resolver.resolve(
            apart, no_deps_requirements(wheel, facts), python=python, terms=terms, no_deps=True
        )
    return files


def catalog_entry(wheel: Wheel, files: Mapping[str, str], flags: Mapping[str, Flag]) -> dict[str, Any]:
    """The release's entry in the catalog, as plain data."""
    lanes = {}
    for name, text in files.items():
        if name.endswith("-nodeps.txt"):
            continue
        lane = name.partition("-")[0]
        apart = f"{name.removesuffix('.txt')}-nodeps.txt"
        found = pins(text)
        lanes[lane] = {
            "lock": name,
            "lock_no_deps": apart if apart in files else None,
            "torch": found["torch"],
            "flashinfer": found.get("flashinfer-python"),
        }
    return {
        "requires_python": wheel.requires_python,
        "flashinfer": wheel.pin("flashinfer-python"),
        "torch": wheel.pin("torch"),
        "lanes": lanes,
        "flags": {name: flag.data() for name, flag in sorted(flags.items())},
    }


def python_text(value: Any, indent: int = 0, used: int = 0) -> str:
    """`value` as Python source the way `ruff format` leaves it: on one line where it fits, else one item a line."""
    flat = flat_text(value)
    if not isinstance(value, (dict, list)) or not value or (used + len(flat) < LINE_LENGTH and indent >= 12):
        return flat
    pad = " " * (indent + 4)
    if isinstance(value, dict):
        items = []
        for key, item in value.items():
            head = f"{pad}{flat_text(key)}: "
            items.append(f"{head}{python_text(item, indent + 4, len(head))},")
        return "\n".join(["{", *items, " " * indent + "}"])
    items = [f"{pad}{python_text(item, indent + 4, indent + 4)}," for item in value]
    return "\n".join(["[", *items, " " * indent + "]"])


def flat_text(value: Any) -> str:
    """`value` as Python source on one line, with double quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flat_text(key)}: {flat_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flat_text(item) for item in value) + "]"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def catalog_text(catalog: Mapping[str, Mapping[str, Any]]) -> str:
    """The generated Python file, newest release first."""
    ordered = {version: catalog[version] for version in sorted(catalog, key=Version, reverse=True)}
    return (
        f'{LICENSE_HEAD}"""Every locked SGLang release: generated by `make locks` from the wheels, do not edit.\n\n'
        "Read it through `releases.py`, which says what each key means.\n"
        '"""\n\nfrom __future__ import annotations\n\nfrom typing import Any\n\n'
        f"RELEASES: dict[str, dict[str, Any]] = {python_text(ordered)}\n"
    )


def read_catalog(path: Path) -> dict[str, Any]:
    """The releases of an existing catalog; empty when there is none yet."""
    if not path.exists():
        return {}
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            found: dict[str, Any] = ast.literal_eval(statement.value)
            return found
    raise LockError(f"reading {path}: no releases in it; remove the file and run `make locks`")


def write(path: Path, text: str) -> None:
    """Replace `path` in one step, and say when its content changed."""
    before = path.read_text(encoding="utf-8") if path.exists() else None
    if before == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
    print(f"  {'written' if before is None else 'changed'}: {path.name}", flush=True)


def run(root: Path, wanted: Sequence[str], uv: str, upgrade: bool) -> None:
    """Lock `wanted` releases (all when empty), the tools and the router, then write everything at once."""
    config = tomllib.loads((root / "locks.toml").read_text(encoding="utf-8"))
    unlisted = [version for version in wanted if version not in config["releases"]]
    if unlisted:
        raise LockError(
            f'locking {", ".join(unlisted)}: not listed; write "{unlisted[0]}" = {{}} below [releases] in locks.toml'
        )
    folder = root / LOCKS
    old = read_catalog(root / CATALOG)
    catalog = {version: old[version] for version in config["releases"] if version in old}
    files: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="lock-") as scratch:
        work = Path(scratch)
        resolver = Resolver(uv, work, upgrade)
        for version in wanted or config["releases"]:
            print(f"sglang {version}: reading its wheel", flush=True)
            wheel = fetch_wheel(version, work, config["python_below"])
            lanes = {
                lane: {**facts, **config["releases"][version].get(lane, {})}
                for lane, facts in config["lanes"].items()
                if lane in config["releases"][version].get("lanes", config["lanes"])
            }
            flags = read_flags(wheel.sources)
            locked = lock_release(wheel, lanes, config["python_below"], folder, resolver)
            catalog[version] = catalog_entry(wheel, locked, flags)
            files.update(locked)
            choices = flags["moe-runner-backend"].choices or ()
            print(f"  {len(flags)} flags, {len(choices)} MoE runner backends", flush=True)
        tools = config["tools"]
        files["tools.txt"] = resolver.resolve(
            folder / "tools.txt", tools["requirements"], python=python_floor(tools["requires_python"])
        )
        router = config["router"]
        router_text = resolver.resolve(
            root / ROUTER_LOCK,
            router["requirements"],
            python=python_floor(router["requires_python"]),
            terms=("sys_platform == 'linux'",),
        )
    missing = [version for version in config["releases"] if version not in catalog]
    if missing:
        raise LockError(f"writing the catalog: {', '.join(missing)} never locked; run `make locks` without a version")
    for name, text in files.items():
        write(folder / name, text)
    write(root / ROUTER_LOCK, router_text)
    write(root / CATALOG, catalog_text(catalog))
    if not wanted:
        for stale in sorted(path for path in folder.glob("*.txt") if path.name not in files):
            stale.unlink()
            print(f"  removed: {stale.name}", flush=True)


def renew_flags(root: Path, wheels: Path) -> None:
    """Read the flags of every locked release anew from the wheels in a directory; the locks stay as they are."""
    catalog = read_catalog(root / CATALOG)
    for version, entry in catalog.items():
        found = sorted(wheels.glob(f"sglang-{version}-*.whl"))
        if not found:
            raise LockError(f"reading the flags of sglang {version}: no wheel of it in {wheels}; put it there")
        with tempfile.TemporaryDirectory(prefix="lock-") as scratch:
            with zipfile.ZipFile(found[0]) as archive:
                archive.extractall(scratch, [name for name in archive.namelist() if name.endswith(".py")])
            flags = read_flags(Path(scratch))
        entry["flags"] = {name: flag.data() for name, flag in sorted(flags.items())}
        print(f"sglang {version}: {len(flags)} flags", flush=True)
    write(root / CATALOG, catalog_text(catalog))


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; 1 with one line on stderr when something does not fit."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("versions", nargs="*", help="releases to lock; all that locks.toml lists when left out")
    parser.add_argument("--upgrade", action="store_true", help="move pins that could stay")
    parser.add_argument("--flags-from", type=Path, metavar="D", help="renew the flags from the wheels in D only")
    parser.add_argument("--root", type=Path, default=REPOSITORY, help=argparse.SUPPRESS)
    parser.add_argument("--uv", default=None, help="the uv to use; beside this Python, then from PATH")
    options = parser.parse_args(argv)
    if options.flags_from is not None:
        try:
            renew_flags(options.root, options.flags_from)
        except (LockError, ExtractionError) as exc:
            print(f"lock: {exc}", file=sys.stderr)
            return 1
        return 0
    beside = Path(sys.executable).parent / "uv"
    uv = options.uv or (str(beside) if beside.exists() else shutil.which("uv"))
    if uv is None:
        print("lock: no uv found; install it into this environment (pip install uv)", file=sys.stderr)
        return 1
    try:
        run(options.root, options.versions, uv, options.upgrade)
    except (LockError, ExtractionError) as exc:
        print(f"lock: {exc}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
