# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make the package repositories of this scenario in a directory, and a file with the fingerprint of their key.

    python repository.py DIRECTORY KERNEL

    nvidia/   what NVIDIA's repository has: the driver in two versions that install, and in two that must be refused
    forged/   the same packages, signed by somebody else; its key file has that other key
    altered/  the same packages, signed by somebody else; its key file has NVIDIA's stand-in
    debian/   what Debian's has: dkms and headers for KERNEL, the release of the running kernel; not signed

The packages are real ones with the names, versions and dependencies of the originals. What they contain does what a
host sees of the originals: DKMS keeps its records, the daemon runs, nodes appear. No byte of them is NVIDIA's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent / "packages"
# A libcuda with two GPUs that are this process's memory.
CUDA = Path(__file__).resolve().parents[3] / "tests/unit/verify/stand_in_cuda.c"
GOOD = ("580.95.05", "580.105.08")
# Its userland depends on another kernel.
NEW_KERNEL = "580.82.07"
NEW_KERNEL_IMAGE = "linux-image-6.1.0-99-amd64"
# Its userland depends on the kernel module.
NEEDS_MODULE = "580.65.06"

LIBRARIES = {
    "libcuda1": "libcuda.so.1",
    "libcudadebugger1": "libcudadebugger.so.1",
    "libnvidia-cfg1": "libnvidia-cfg.so.1",
    "libnvidia-ml1": "libnvidia-ml.so.1",
    "libnvidia-nvvm4": "libnvidia-nvvm.so.4",
    "libnvidia-ptxjitcompiler1": "libnvidia-ptxjitcompiler.so.1",
    "nvidia-opencl-icd": "libnvidia-opencl.so.1",
}
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")


@dataclass(frozen=True)
class Package:
    """A binary package: its control fields, the files it installs as text, links or copies, its maintainer scripts."""

    name: str
    version: str
    fields: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    copies: Mapping[str, Path] = field(default_factory=dict)

    def build(self, directory: Path) -> None:
        """Write NAME_VERSION_amd64.deb."""
        with tempfile.TemporaryDirectory() as scratch:
            tree = Path(scratch)
            tree.chmod(0o755)
            for path, text in self.files.items():
                write(tree / path, text)
            for path, original in self.copies.items():
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(original, tree / path)
            for path, target in self.links.items():
                (tree / path).parent.mkdir(parents=True, exist_ok=True)
                (tree / path).symlink_to(target)
            for name, text in self.scripts.items():
                write(tree / "DEBIAN" / name, text)
            control = {
                "Package": self.name,
                "Version": self.version,
                "Architecture": "amd64",
                "Maintainer": "Nobody <nobody@example.invalid>",
                **self.fields,
                "Description": f"stand-in for {self.name}",
            }
            write(tree / "DEBIAN/control", "".join(f"{name}: {value}\n" for name, value in control.items()))
            run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", scratch, str(directory)])


def write(path: Path, text: str) -> None:
    """Write a file, executable when it starts with #!."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755 if text.startswith("#!") else 0o644)


def run(arguments: Sequence[str], cwd: Path | None = None, home: Path | None = None) -> str:
    """Run a program and return what it printed; its messages are shown when it failed."""
    environment = {**os.environ, "LC_ALL": "C", **({"GNUPGHOME": str(home)} if home else {})}
    done = subprocess.run(arguments, cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def filled_in(name: str, **values: str) -> str:
    """A file of packages/ with @NAME@ replaced."""
    text = (HERE / name).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def scripts_of(package: str, **values: str) -> dict[str, str]:
    """The maintainer scripts that packages/ has for a package."""
    return {name: filled_in(f"{package}.{name}", **values) for name in SCRIPTS if (HERE / f"{package}.{name}").exists()}


def kernel_module(name: str, other: str, driver: str) -> Package:
    """The kernel module as source that DKMS builds."""
    version = f"{driver}-1"
    return Package(
        name,
        version,
        {
            "Depends": f"dkms, nvidia-kernel-support (= {version}), firmware-nvidia-gsp (= {version})",
            "Provides": f"nvidia-kernel-{driver}",
            "Conflicts": other,
        },
        {f"usr/src/nvidia-{driver}/dkms.conf": f'PACKAGE_NAME="nvidia"\nPACKAGE_VERSION="{driver}"\n'},
        scripts=scripts_of("nvidia-kernel", DRIVER=driver),
    )


def userland(driver: str) -> Package:
    """What runs programs on a GPU."""
    version = f"{driver}-1"
    exactly = [*LIBRARIES, "nvidia-modprobe", "nvidia-persistenced"]
    trap = {NEW_KERNEL: [NEW_KERNEL_IMAGE], NEEDS_MODULE: ["nvidia-kernel-open-dkms"]}.get(driver, [])
    return Package(
        "nvidia-driver-cuda",
        version,
        {
            "Depends": ", ".join([f"{name} (= {version})" for name in exactly] + trap),
            "Recommends": f"nvidia-kernel-open-dkms (= {version}) | nvidia-kernel-dkms (= {version})",
            "Provides": "nvidia-smi",
        },
        {"usr/bin/nvidia-smi": filled_in("nvidia-smi", DRIVER=driver)},
    )


def library(name: str, soname: str, driver: str, libcuda: Path) -> Package:
    """A library of the driver. Only libcuda does anything; the others are empty, which ldconfig passes over."""
    version = f"{driver}-1"
    fields = {}
    if name == "libcuda1":
        fields = {
            "Depends": f"libnvidia-ptxjitcompiler1 (= {version})",
            # This is what brings DKMS into containers.
            "Recommends": f"nvidia-kernel-open-dkms (= {version}) | nvidia-kernel-dkms (= {version})",
        }
    directory = "usr/lib/x86_64-linux-gnu"
    real = f"{soname.partition('.so.')[0]}.so.{driver}"
    links = {f"{directory}/{soname}": real}
    if name == "libcuda1":
        return Package(name, version, fields, links=links, copies={f"{directory}/{real}": libcuda})
    return Package(name, version, fields, {f"{directory}/{real}": ""}, links)


def driver_packages(driver: str, libcuda: Path) -> Iterator[Package]:
    """The driver in one version."""
    version = f"{driver}-1"
    yield kernel_module("nvidia-kernel-open-dkms", "nvidia-kernel-dkms", driver)
    yield kernel_module("nvidia-kernel-dkms", "nvidia-kernel-open-dkms", driver)
    yield Package("nvidia-kernel-support", version, {"Depends": f"nvidia-modprobe (= {version})"})
    yield Package("firmware-nvidia-gsp", version, {}, {f"lib/firmware/nvidia/{driver}/gsp_ga10x.bin": ""})
    yield Package("nvidia-modprobe", version, {}, {"usr/bin/nvidia-modprobe": filled_in("nvidia-modprobe")})
    yield Package(
        "nvidia-persistenced",
        version,
        {},
        {
            "usr/bin/nvidia-persistenced": filled_in("nvidia-persistenced"),
            "lib/systemd/system/nvidia-persistenced.service": filled_in("nvidia-persistenced.service"),
        },
        scripts=scripts_of("nvidia-persistenced"),
    )
    yield userland(driver)
    for name, soname in LIBRARIES.items():
        yield library(name, soname, driver, libcuda)


def debian_packages(kernel: str) -> Iterator[Package]:
    """What Debian would have to offer for this kernel."""
    headers = f"linux-headers-{kernel}"
    yield Package("dkms", "3.0.10-8+deb12u1", {"Architecture": "all"}, {"usr/sbin/dkms": filled_in("dkms")})
    yield Package(
        headers,
        "6.1.0-1",
        {},
        {
            f"usr/src/{headers}/Makefile": "VERSION = 6\n",
            f"usr/src/{headers}/include/config/kernel.release": f"{kernel}\n",
        },
        {f"lib/modules/{kernel}/build": f"/usr/src/{headers}"},
    )
    yield Package("linux-headers-amd64", "6.1.0-1", {"Depends": f"{headers} (= 6.1.0-1)"})
    yield Package(NEW_KERNEL_IMAGE, "6.1.999-1", {}, {"boot/vmlinuz-6.1.0-99-amd64": ""})


def new_key(home: Path, owner: str) -> str:
    """Make a signing key; its fingerprint."""
    home.mkdir(mode=0o700)
    make = [
        "gpg",
        "--batch",
        "--quiet",
        "--passphrase",
        "",
        "--quick-generate-key",
        f"{owner} <{owner}@example.invalid>",
    ]
    run([*make, "ed25519", "sign", "never"], home=home)
    listing = run(["gpg", "--batch", "--with-colons", "--list-keys"], home=home)
    return next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr:"))


def publish(directory: Path) -> None:
    """Write Packages and Release of a directory of packages."""
    (directory / "Packages").write_text(run(["apt-ftparchive", "packages", "."], cwd=directory), encoding="utf-8")
    options = [f"-oAPT::FTPArchive::Release::{name}=tokforge-test" for name in ("Origin", "Label")]
    (directory / "Release").write_text(
        run(["apt-ftparchive", *options, "release", "."], cwd=directory), encoding="utf-8"
    )


def sign(directory: Path, signer: Path, trusted: Path) -> None:
    """Write InRelease, signed with one key, and a key file beside it."""
    run(["gpg", "--batch", "--yes", "--output", "InRelease", "--clearsign", "Release"], cwd=directory, home=signer)
    key = run(["gpg", "--batch", "--armor", "--export"], home=trusted)
    (directory / "test.pub").write_text(key, encoding="utf-8")


def main() -> None:
    """Make the repositories; the fingerprint comes last and says that they are complete."""
    root, kernel = Path(sys.argv[1]).resolve(), sys.argv[2]
    if root.exists():
        shutil.rmtree(root)
    for name in ("nvidia", "debian"):
        (root / name).mkdir(parents=True)
    libcuda = root / "libcuda.so"
    run(["cc", "-shared", "-fPIC", "-O1", "-o", str(libcuda), str(CUDA)])
    packages = [
        (package, root / "nvidia")
        for driver in (*GOOD, NEW_KERNEL, NEEDS_MODULE)
        for package in driver_packages(driver, libcuda)
    ]
    packages += [(package, root / "debian") for package in debian_packages(kernel)]
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        list(workers.map(lambda task: task[0].build(task[1]), packages))
    for name in ("nvidia", "debian"):
        publish(root / name)
    for copy in ("forged", "altered"):
        shutil.copytree(root / "nvidia", root / copy, copy_function=os.link)
    with tempfile.TemporaryDirectory() as scratch:
        ours, theirs = Path(scratch, "ours"), Path(scratch, "theirs")
        fingerprint = new_key(ours, "nobody")
        new_key(theirs, "somebody")
        sign(root / "nvidia", signer=ours, trusted=ours)
        sign(root / "forged", signer=theirs, trusted=theirs)
        sign(root / "altered", signer=theirs, trusted=ours)
        for home in (ours, theirs):
            run(["gpgconf", "--kill", "all"], home=home)
    (root / "fingerprint").write_text(f"{fingerprint}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
