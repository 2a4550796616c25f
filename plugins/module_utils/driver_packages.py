# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""NVIDIA's package repositories and what the driver's packages are called in them, per distribution.

Sources, by the letter that a row has:
[G] NVIDIA Driver Installation Guide, chapters Debian and Ubuntu, "Compute-only System" and "Recent Updates" (names
    without the branch from 590 on), read in copies of it.
[K] Key files and fingerprints as independent projects pin them for these repositories.
[L] dpkg listings and build recipes of hosts that use these repositories.
[U] Not verified against the repository itself: follows from [G]'s rule for names.

A repository's packages depend on each other without versions, and apt takes the newest of each [L]: that is why all of
them are pinned and not only those that are asked for by name.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass

#: Where NVIDIA publishes; below it a directory for each distribution and architecture [G].
BASE_URL = "https://developer.download.nvidia.com/compute/cuda/repos"

OPEN = "open"
CLOSED = "closed"

#: First branch whose Ubuntu packages carry no branch in their names [G].
UNBRANCHED_FROM = 590

#: First branch with open kernel modules (NVIDIA/open-gpu-kernel-modules, README).
OPEN_FROM = 515

#: First branch that knows Blackwell (NVIDIA driver 570 release notes).
BLACKWELL_FROM = 570

#: Last branch that knows what is older than Turing (NVIDIA, "Unix graphics feature deprecation schedule").
OLDER_UNTIL = 580

#: What NVIDIA calls a machine's architecture in a repository's path [G].
ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}

_OLD_KEY = ("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC")


@dataclass(frozen=True)
class Repository:
    """One distribution's repository: its directory, and the file and fingerprint of the key that signs it."""

    directory: str
    key_file: str
    fingerprint: str
    family: str

    def url(self, architecture: str) -> str:
        """Where it is, with a slash at the end: it is a flat repository."""
        return f"{BASE_URL}/{self.directory}/{ARCHITECTURES[architecture]}/"


#: Distribution and version as in os-release. Proxmox VE 8 and 9 tell those of the Debian that they are built on, and
#: NVIDIA has no repository of their own. The key of debian13 is another one [K].
REPOSITORIES: dict[tuple[str, str], Repository] = {
    ("debian", "12"): Repository("debian12", *_OLD_KEY, "debian"),
    ("debian", "13"): Repository("debian13", "8793F200.pub", "02182E60104FCDC26EAE1B8597A5D4CB8793F200", "debian"),
    ("ubuntu", "22.04"): Repository("ubuntu2204", *_OLD_KEY, "ubuntu"),
    ("ubuntu", "24.04"): Repository("ubuntu2404", *_OLD_KEY, "ubuntu"),
}

#: Globs of the packages that must all have one version. Those that NVIDIA versions otherwise (its container toolkit,
#: libnvidia-egl-*) have no version that fits the pin, so that it says nothing about them [L].
PINNED = (
    "cuda-drivers*",
    "firmware-nvidia-gsp*",
    "libcuda1*",
    "libcudadebugger1*",
    "libegl-nvidia*",
    "libgl1-nvidia*",
    "libgles-nvidia*",
    "libglx-nvidia*",
    "libnvcuvid1*",
    "libnvidia-*",
    "libnvoptix1*",
    "libxnvctrl*",
    "nvidia-*",
    "xserver-xorg-video-nvidia*",
)

# Not the driver, whatever their names begin with.
_NOT_DRIVER = re.compile(r"(lib)?nvidia-(container|cuda-|cudnn|egl-|fs|gds|nsight|nvjpeg|tensorrt|vaapi)")

#: What brings another kernel: images, and the packages that always depend on the newest one.
_KERNEL = re.compile(
    r"(linux-(image|modules|generic|virtual|lowlatency|oem|kvm|rt|aws|azure|gcp|gke|ibm|oracle|nvidia|raspi)(-|$)"
    r"|(proxmox|pve)-(default-)?kernel(-|$))"
)
# What has a kernel's name and is none: linux-aws-headers-6.8.0-1019, linux-azure-tools-6.8.0-1021,
# proxmox-kernel-helper.
_NO_KERNEL = re.compile(r".*-(headers|tools|helper|libc-dev)(-|$)")
#: What builds or brings kernel modules, and has no business where the kernel is another host's.
_MODULE = re.compile(
    r"(dkms$|.*-dkms(-|$)|nvidia-kernel-source(-|$)|linux-(modules|objects|signatures)-nvidia-|(linux|proxmox|pve)-(.*-)?headers(-|$))"
)

# Ubuntu's modules that are built already, and what they are linked from.
_BUILT = re.compile(r"linux-(modules|objects|signatures)-nvidia-")


def bare(name: str) -> str:
    """A package's name without its architecture: `libcuda1:amd64` is `libcuda1`."""
    return name.partition(":")[0]


def is_kernel(name: str) -> bool:
    """Whether a package is a kernel or brings one."""
    plain = bare(name)
    return bool(_KERNEL.match(plain)) and not _NO_KERNEL.match(plain) and not is_module(plain)


def is_module(name: str) -> bool:
    """Whether a package brings kernel modules, or is there to build them."""
    return bool(_MODULE.match(bare(name)))


def is_driver(name: str) -> bool:
    """Whether a package is of NVIDIA's driver, kernel modules or libraries."""
    plain = bare(name)
    if _BUILT.match(plain):
        return True
    return not _NOT_DRIVER.match(plain) and any(fnmatch.fnmatchcase(plain, glob) for glob in PINNED)


def names(family: str, branch: int, kind: str, container: bool) -> tuple[str, ...]:
    """The packages to ask for by name.

    :param family: debian or ubuntu.
    :param kind: OPEN or CLOSED kernel module; no matter in a container.
    :param container: only libraries and tools, nothing that builds a kernel module.
    """
    if family == "debian":
        # [G]; nvidia-driver-cuda brings libcuda1, nvidia-smi, nvidia-modprobe and nvidia-persistenced [L].
        module = "nvidia-kernel-open-dkms" if kind == OPEN else "nvidia-kernel-dkms"
        return ("nvidia-driver-cuda",) if container else (module, "nvidia-driver-cuda")
    # [G] names the module and libnvidia-compute; the others bring nvidia-smi, nvidia-persistenced and nvidia-modprobe
    # [L], [U] from 590 on.
    part = "" if branch >= UNBRANCHED_FROM else f"-{branch}"
    libraries = (f"libnvidia-compute{part}", f"nvidia-utils{part}")
    if container:
        return libraries
    module = f"nvidia-dkms{part}" + ("-open" if kind == OPEN else "")
    return (module, *libraries, f"nvidia-compute-utils{part}", "nvidia-modprobe")


def module_packages(family: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What the packages with the open and with the closed kernel module are called, whatever their branch.

    Debian's own, of its section non-free, among them.
    """
    if family == "debian":
        return re.compile(r"nvidia-(kernel-open|open-kernel)-dkms$"), re.compile(
            r"nvidia(-tesla(-\d+)?|-legacy-\w+)?-kernel-dkms$"
        )
    return re.compile(r"nvidia-dkms(-\d+)?(-server)?-open$"), re.compile(r"nvidia-dkms(-\d+)?(-server)?$")


def pin(version: str) -> str:
    """The glob that fits all package versions of a driver version: the part after the hyphen differs between
    distributions and times (580.95.05-1, 580.95.05-0ubuntu1, 580.126.09-1ubuntu1 [L])."""
    return f"{version}-*"


def upstream(version: str) -> str:
    """The driver version in a package's version: 580.95.05 of 1:580.95.05-0ubuntu1."""
    return version.rpartition(":")[2].partition("-")[0]


def preferences(version: str) -> str:
    """Text of apt's preferences file that keeps all packages of the driver at one version (man apt_preferences)."""
    return (
        "# Managed by tokforge.sglang: the driver's libraries and its kernel module must be of one version.\n"
        f"Package: {' '.join(PINNED)}\n"
        f"Pin: version {pin(version)}\n"
        "Pin-Priority: 1001\n"
    )


def unattended_blacklist() -> str:
    """Text of apt's configuration that keeps unattended-upgrades off the driver (its README, Package-Blacklist: Python
    expressions that are matched at the beginning of a name)."""
    lines = "".join(f'    "{glob.replace("*", "")}";\n' for glob in PINNED)
    return (
        "// Managed by tokforge.sglang: the driver changes when this collection is told to, and at no other time.\n"
        f"Unattended-Upgrade::Package-Blacklist {{\n{lines}}};\n"
    )
