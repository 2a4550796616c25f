# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Building one environment: the installers' steps in their order."""

from __future__ import annotations

import ctypes
import datetime
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import (
    base_packages,
    checkout,
    gpu_look,
    jit_artifacts,
    jit_placement,
    lockfile,
    pip_settings,
    release_gate,
    sglang_tree,
    site_packages,
)
from ansible_collections.tokforge.sglang.plugins.module_utils.atomic_file import write_atomic
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_request import Request, version_problems
from ansible_collections.tokforge.sglang.plugins.module_utils.environment_root import ENVIRONMENT_MARKER
from ansible_collections.tokforge.sglang.plugins.module_utils.install_error import InstallError
from ansible_collections.tokforge.sglang.plugins.module_utils.interpreters import Interpreter
from ansible_collections.tokforge.sglang.plugins.module_utils.pip_settings import PackageSources
from ansible_collections.tokforge.sglang.plugins.module_utils.site_packages import Torch

SCHEMA_VERSION = 1
# Bytecode for all 20000 files of SGLang 0.5.23's CPU environment takes 84 CPU seconds (measured). The server imports
# 6800 of them, and compiling those makes its first start 14 CPU seconds longer, on one core. So on 2 cores (42 s, not
# 14 s) it is quicker to leave it to the first start, and from 6 cores on the install does it in the same time or less.
COMPILE_FROM_CPUS = 6
# Less than this free means that the disk ran full: no environment fits into it, whatever the installer says.
ALMOST_FULL_BYTES = 16 << 20
DISK_HINT = "free disk space there and run again"
_TAIL_LINES = 12
# What the installers say when they stop, and what helps.
_HINTS = (
    (r"No space left on device|os error 28", DISK_HINT),
    (
        r"[Hh]ash mismatch|THESE PACKAGES DO NOT MATCH THE HASHES",
        "a file is not the one that was locked: look at where packages come from, or, for a build of your own, name "
        "the distribution in hash_exempt",
    ),
    (
        r"No solution found|no version of|not found in the (?:package registry|provided)|No matching distribution|"
        r"no wheels",
        "check that the index or the wheelhouse holds what the lock names, for this Python and platform",
    ),
    (
        r"dns error|Connection refused|[Tt]imed? ?out|error sending request|Failed to fetch|Max retries",
        "check the network, the proxy and the index address, or install from a wheelhouse",
    ),
)


class Builder:
    """One build of one environment. The steps are methods; `build` is their order.

    `under` is the base, None for an environment of its own. The locks of `request` are without what is taken from it.
    """

    def __init__(
        self,
        request: Request,
        python: Interpreter,
        path: str,
        environ: dict[str, str],
        lock_fd: int,
        under: base_packages.Under | None = None,
    ) -> None:
        self.request, self.python, self.path, self.lock_fd, self.under = request, python, path, lock_fd, under
        self.environ = pip_settings.clean_environ(environ)
        self.caller_environ = environ
        self.env_python = os.path.join(path, "bin", "python")
        self.exempt = set(map(lockfile.canonical, request.hash_exempt))
        self.sources = PackageSources()

    def build(self, contents: Mapping[str, Any], env_id: str) -> dict[str, Any]:
        """All steps, the marker last. Returns what the marker holds."""
        started = time.monotonic()
        request = self.request
        artifacts: dict[str, lockfile.Artifact] = {}
        if request.installer == "uv":
            self.find_uv()
            self.run(
                "making the environment",
                [str(request.uv), "venv", "--quiet", "--no-project", "--python", self.python.path, self.path],
            )
            self.use_sources()
            artifacts = self.resolve_exempt()
            # What they need and the base has, the installer would miss.
            alone = ["--no-deps"] if self.under else []
            self.install_with_uv("requirements.txt", request.lock, artifacts, alone)
            if request.lock_no_deps is not None:
                self.install_with_uv("requirements-nodeps.txt", request.lock_no_deps, artifacts, ["--no-deps"])
            if request.source.type == "checkout":
                self.install_checkout()
        else:
            self.run("making the environment", [self.python.path, "-m", "venv", self.path])
            self.use_sources()
            self.install_with_pip(request.lock)
        site = site_packages.find(self.path)
        replaced = site_packages.apply_overlay(request.overlay, site)
        own = site_packages.versions_of(site)
        in_place = site_packages.editable(site)
        warnings = site_packages.collisions(site)
        versions = own
        if self.under:
            base_packages.write_path_file(site, self.under.found.sites)
            warnings += base_packages.warnings(self.under)
            versions = dict(sorted({**self.under.shared.taken, **own}.items()))
            self.check_tree_wins(in_place)
        torch = site_packages.read_torch(*site_packages.places(self.path))
        self.judge(version_problems(request, versions, torch, in_place), versions, torch)
        prebuilt, partly = self.place_kernels(site, versions, torch, contents["prebuilt"])
        warnings += partly
        gate = release_gate.settle(self.env_python, request) if "sglang" in versions else None
        self.judge(release_gate.problems(gate, request), versions, torch)
        exempt = {name: self.file_of(name, artifacts.get(name), site) for name in sorted(self.exempt)}
        self.compile(site)
        facts: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "id": env_id,
            "identity": dict(contents),
            "created": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "python_version": self.python.version,
            "versions": versions,
            "torch": self.torch_facts(torch, exempt),
            "hash_exempt": exempt,
            "base": base_packages.record(self.under) if self.under else None,
            "unlocked": self.unlocked(own, in_place),
            "editable": sorted(in_place),
            "overlay_replaced": replaced,
            "prebuilt": prebuilt,
            "autotune_gate": gate,
            "warnings": warnings,
            "install_s": round(time.monotonic() - started, 1),
        }
        self.write_marker(facts)
        return facts

    def run(self, what: str, command: Sequence[str], extra: Mapping[str, str] | None = None) -> str:
        """Run one installer step and return its output. Raises InstallError with the output's tail."""
        variables = {**self.environ, **(extra or {})}
        done = subprocess.run(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            cwd=os.path.dirname(self.path),
            pass_fds=(self.lock_fd,),
        )
        if done.returncode:
            output = pip_settings.redacted(done.stdout).strip()
            tail = "\n".join(output.splitlines()[-_TAIL_LINES:])
            hint = next(
                (hint for pattern, hint in _HINTS if re.search(pattern, output)), "see the installer's words above"
            )
            free_bytes = shutil.disk_usage(os.path.dirname(self.path)).free
            if free_bytes < ALMOST_FULL_BYTES:
                hint = f"only {free_bytes / 1e6:.1f} MB are free at {os.path.dirname(self.path)}: {DISK_HINT}"
            raise InstallError(
                f"{what} {self.path}: {os.path.basename(command[0])} ended with {done.returncode}: {tail}; {hint}",
                path=self.path,
                log=output,
                free_bytes=free_bytes,
            )
        return done.stdout

    def find_uv(self) -> None:
        if not self.request.uv or not os.access(self.request.uv, os.X_OK):
            raise InstallError(
                f"looking for uv at {self.request.uv}: it is not there; make the environment of kind tools first",
                uv=self.request.uv,
            )

    def use_sources(self) -> None:
        """Settle where packages come from, and tell both installers."""
        request = self.request
        if request.source.type == "wheelhouse":
            self.sources = pip_settings.only_directory(str(request.source.path))
        else:
            base = self.pip_sources() if request.inherit_pip else PackageSources()
            self.sources = pip_settings.overridden(
                base, request.index_url, request.extra_index_urls, request.find_links
            )
        self.environ.update(pip_settings.pip_environ(self.sources))
        self.environ.update(pip_settings.uv_environ(self.sources))
        if request.uv_cache:
            self.environ["UV_CACHE_DIR"] = request.uv_cache

    def pip_sources(self) -> PackageSources:
        """pip's own settings, from the first Python that has a pip: they belong to user and machine, not to a venv."""
        beside_uv = os.path.join(os.path.dirname(self.request.uv), "python") if self.request.uv else None
        for python in filter(None, (self.env_python, beside_uv, self.python.path)):
            command = [python, "-m", "pip", "config", "list"]
            try:
                # The caller's environment, not the clean one: PIP_* are settings too.
                done = subprocess.run(
                    command, env=self.caller_environ, capture_output=True, text=True, timeout=60, check=False
                )
            except (OSError, subprocess.SubprocessError):
                continue
            if done.returncode == 0:
                return pip_settings.read_pip_config(done.stdout)
        raise InstallError(
            f"reading pip's settings for {self.path}: no pip in {self.python.path} nor beside uv; install pip there, "
            "or set inherit_pip to false and name the index",
            path=self.path,
        )

    def resolve_exempt(self) -> dict[str, lockfile.Artifact]:
        """Which file each exempt distribution resolves to here. uv computes the sha256 where an index gives none."""
        locks = [self.request.lock] + ([self.request.lock_no_deps] if self.request.lock_no_deps is not None else [])
        pins = [pin for text in locks for pin in lockfile.parse(text, "lock") if pin.name in self.exempt]
        if not pins:
            return {}
        asked = os.path.join(self.path, "exempt.in")
        with open(asked, "w", encoding="utf-8") as stream:
            stream.writelines(replace(pin, hashes=()).line() + "\n" for pin in pins)
        output = os.path.join(self.path, "pylock.exempt.toml")
        command = [str(self.request.uv), "pip", "compile", "--quiet", "--no-deps", "--format", "pylock.toml", asked]
        command += ["--only-binary", ":all:", "--python", self.env_python, "--output-file", output]
        self.run("resolving exempt distributions for", command + pip_settings.uv_arguments(self.sources))
        with open(output, encoding="utf-8") as stream:
            return lockfile.parse_pylock(stream.read())

    def install_with_uv(
        self, file_name: str, lock: str, artifacts: Mapping[str, lockfile.Artifact], options: Sequence[str]
    ) -> None:
        """Install a lock; a copy with the hashes that were used stays in the environment."""
        pins = lockfile.exempted(lockfile.parse(lock, file_name), self.exempt, artifacts)
        path = os.path.join(self.path, file_name)
        with open(path, "w", encoding="utf-8") as stream:
            stream.writelines(pin.line() + "\n" for pin in pins)
        # Wheels only: building would need a compiler and build requirements that no lock names.
        command = [str(self.request.uv), "pip", "install", "--quiet", "--python", self.env_python, "-r", path]
        command += ["--only-binary", ":all:", *options, *pip_settings.uv_arguments(self.sources)]
        # An exempt distribution may bring requirements that the lock does not name (the CUDA build of torch does): then
        # uv verifies the hashes there are, and the versions are held against the lock afterwards.
        if not any(pin.name in self.exempt for pin in pins):
            command.append("--require-hashes")
        self.run("installing packages into", command)

    def install_checkout(self) -> None:
        project = checkout.project_of(str(self.request.source.path))
        command = [str(self.request.uv), "pip", "install", "--quiet", "--python", self.env_python, "--no-deps"]
        # SGLang takes its version from git tags, which a shallow or unpacked tree does not have.
        version = self.request.source.version
        extra = {"SETUPTOOLS_SCM_PRETEND_VERSION": version} if version else {}
        command += [*pip_settings.uv_arguments(self.sources), "--editable", project]
        self.run(f"installing the source tree {project} into", command, extra)

    def install_with_pip(self, lock: str) -> None:
        path = os.path.join(self.path, "requirements.txt")
        with open(path, "w", encoding="utf-8") as stream:
            stream.writelines(pin.line() + "\n" for pin in lockfile.parse(lock, "lock"))
        command = [self.env_python, "-m", "pip", "install", "--quiet", "--require-hashes", "--only-binary", ":all:"]
        self.run("installing packages into", [*command, "-r", path])

    def judge(self, problems: Sequence[str], versions: Mapping[str, str], torch: Torch | None) -> None:
        if problems:
            raise InstallError(
                f"checking what was installed into {self.path}: {'; '.join(problems)}; look at where packages come "
                "from and at the lock. The environment was removed",
                path=self.path,
                problems=list(problems),
                versions=dict(versions),
                torch={"version": torch.version, "cuda": torch.cuda} if torch else None,
            )

    def check_tree_wins(self, in_place: set[str]) -> None:
        """Refuse a base whose own SGLang comes before a source tree: what a finder finds is asked for last of all."""
        if "sglang" not in in_place:
            return
        project = os.path.realpath(checkout.project_of(str(self.request.source.path)))
        try:
            srt = os.path.realpath(sglang_tree.of_python(self.env_python).srt)
        except sglang_tree.TreeError as error:
            raise InstallError(str(error), **error.facts) from error
        if not srt.startswith(project + os.sep):
            raise InstallError(
                f"installing the source tree {project} into {self.path}: the base's own SGLang in {srt} comes before "
                "it; remove that from the base, or give a base without. The environment was removed",
                path=srt,
            )

    def place_kernels(
        self, site: str, versions: Mapping[str, str], torch: Torch | None, named: Sequence[Mapping[str, str]]
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Put the kernels that were built elsewhere where FlashInfer looks. What to record of each, and warnings.

        `named` is what the environment is named after.
        """
        requests = self.request.jit_artifacts
        if not requests:
            return [], []
        folder = os.path.join(self.path, "unpacked-kernels")
        os.mkdir(folder)
        artifacts = [jit_artifacts.unpack(request, folder) for request in requests]
        for artifact in artifacts:
            if artifact.sha256 not in {one["sha256"] for one in named}:
                raise InstallError(
                    f"reading the kernels {artifact.request.path}: they changed while the environment was made, which "
                    "is named after what they were; run again when nothing writes there. The environment was removed",
                    path=artifact.request.path,
                    sha256=artifact.sha256,
                )
        cuda = int(torch.cuda.split(".")[0]) if torch and torch.cuda else None
        seen = [gpu.compute_capability for gpu in gpu_look.look().gpus]
        capabilities = {capability for capability in seen if capability is not None}
        problems = jit_placement.check(artifacts, versions.get("flashinfer-python"), cuda, capabilities)
        self.judge(problems, versions, torch)
        placed = jit_placement.install(artifacts, site, self.under.found.sites if self.under else ())
        shutil.rmtree(folder)
        return placed, jit_placement.warnings(artifacts, capabilities)

    def file_of(self, name: str, artifact: lockfile.Artifact | None, site: str) -> dict[str, str | None]:
        """Which file an exempt distribution came from: its name and sha256, or null and why it cannot be said."""
        if self.under and name in self.under.shared.taken:
            return {"file": None, "sha256": None, "why": "it is the base's"}
        if artifact is None or not artifact.wheels:
            return {
                "file": None,
                "sha256": None,
                "why": "the lock does not name it" if artifact is None else "uv gave no sha256",
            }
        wheel = lockfile.wheel_of(artifact.wheels, site_packages.wheel_tags(site, name))
        if wheel is None:
            return {"file": None, "sha256": None, "why": f"{len(artifact.wheels)} files could be it"}
        return {"file": wheel, "sha256": artifact.wheels[wheel], "why": None}

    def torch_facts(self, torch: Torch | None, exempt: Mapping[str, Mapping[str, str | None]]) -> dict[str, Any] | None:
        if torch is None:
            return None
        return {"version": torch.version, "cuda": torch.cuda, "sha256": exempt.get("torch", {}).get("sha256")}

    def unlocked(self, versions: Mapping[str, str], in_place: set[str]) -> dict[str, str]:
        """What came along without a line in a lock: pip itself, and requirements of an exempt distribution."""
        locks = [self.request.lock] + ([self.request.lock_no_deps] if self.request.lock_no_deps is not None else [])
        locked = {pin.name for text in locks for pin in lockfile.parse(text, "lock")} | in_place
        return {name: version for name, version in versions.items() if name not in locked}

    def compile(self, site: str) -> None:
        """Write bytecode where that is faster than leaving it to the first start (see COMPILE_FROM_CPUS)."""
        cpus = len(os.sched_getaffinity(0))
        if self.request.kind == "sglang" and cpus >= COMPILE_FROM_CPUS:
            command = [self.env_python, "-m", "compileall", "-q", "-j", str(cpus), site]
            # Some packages ship files that are no Python (templates): a non-zero end is normal and says nothing.
            subprocess.run(
                command,
                env=self.environ,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                pass_fds=(self.lock_fd,),
            )

    def write_marker(self, facts: Mapping[str, Any]) -> None:
        """The last step. All else is on the disk by then: a power cut must not leave a marker beside empty files."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Only this file system, unlike sync(): a download of weights elsewhere need not be waited for.
            ctypes.CDLL(None).syncfs(descriptor)
        finally:
            os.close(descriptor)
        write_atomic(os.path.join(self.path, ENVIRONMENT_MARKER), json.dumps(facts, indent=2).encode() + b"\n", 0o644)
