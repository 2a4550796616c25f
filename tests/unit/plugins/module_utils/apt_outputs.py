# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What apt-get of Debian 12 said of a small repository in NVIDIA's shape, and keys that gpg made."""

from __future__ import annotations

HEAD = "Reading package lists...\nBuilding dependency tree...\nReading state information...\n"

UPGRADE = HEAD + (
    "The following held packages will be changed:\n"
    "  nvidia-driver-cuda\n"
    "The following packages will be upgraded:\n"
    "  libcuda1 libnvidia-ptxjitcompiler1 nvidia-driver-cuda\n"
    "3 upgraded, 0 newly installed, 0 to remove and 0 not upgraded.\n"
    "Inst libcuda1 [580.95.05-1] (580.105.08-1 NVIDIA CUDA:localhost [amd64]) []\n"
    "Inst libnvidia-ptxjitcompiler1 [580.95.05-1] (580.105.08-1 NVIDIA CUDA:localhost [amd64])\n"
    "Inst nvidia-driver-cuda [580.95.05-1] (580.105.08-1 NVIDIA CUDA:localhost [amd64])\n"
    "Conf libcuda1 (580.105.08-1 NVIDIA CUDA:localhost [amd64])\n"
    "Conf libnvidia-ptxjitcompiler1 (580.105.08-1 NVIDIA CUDA:localhost [amd64])\n"
    "Conf nvidia-driver-cuda (580.105.08-1 NVIDIA CUDA:localhost [amd64])\n"
)

DOWNGRADE = HEAD + (
    "Recommended packages:\n"
    "  nvidia-kernel-open-dkms | nvidia-kernel-dkms\n"
    "The following packages will be REMOVED:\n"
    "  nvidia-modprobe\n"
    "The following packages will be DOWNGRADED:\n"
    "  libcuda1 libnvidia-ptxjitcompiler1\n"
    "0 upgraded, 0 newly installed, 2 downgraded, 1 to remove and 0 not upgraded.\n"
    "Remv nvidia-modprobe [580.105.08-1]\n"
    "Inst libcuda1 [580.105.08-1] (580.95.05-1 NVIDIA CUDA:localhost [amd64]) []\n"
    "Inst libnvidia-ptxjitcompiler1 [580.105.08-1] (580.95.05-1 NVIDIA CUDA:localhost [amd64])\n"
    "Conf libcuda1 (580.95.05-1 NVIDIA CUDA:localhost [amd64])\n"
    "Conf libnvidia-ptxjitcompiler1 (580.95.05-1 NVIDIA CUDA:localhost [amd64])\n"
)

PURGE = HEAD + (
    "The following packages will be REMOVED:\n"
    "  libcuda1*\n"
    "0 upgraded, 0 newly installed, 1 to remove and 0 not upgraded.\n"
    "Purg libcuda1 [580.105.08-1]\n"
)

NOTHING = HEAD + (
    "libcuda1 is already the newest version (580.105.08-1).\n"
    "0 upgraded, 0 newly installed, 0 to remove and 0 not upgraded.\n"
)

UNMET = HEAD + (
    "Some packages could not be installed. This may mean that you have\n"
    "requested an impossible situation or if you are using the unstable\n"
    "distribution that some required packages have not yet been created\n"
    "or been moved out of Incoming.\n"
    "The following information may help to resolve the situation:\n"
    "\n"
    "The following packages have unmet dependencies:\n"
    " nvidia-kernel-open-dkms : Depends: nvidia-kernel-support (= 580.95.05-1) but 580.105.08-1 is to be installed\n"
)
UNMET_ERRORS = "E: Unable to correct problems, you have held broken packages.\n"

NO_HEADERS_ERRORS = (
    "E: Unable to locate package linux-headers-6.1.0-1-amd64\n"
    "E: Couldn't find any package by glob 'linux-headers-6.1.0-1-amd64'\n"
    "E: Couldn't find any package by regex 'linux-headers-6.1.0-1-amd64'\n"
)

# In the same form, with two origins as Debian's archive has them.
WITH_KERNEL = HEAD + (
    "The following NEW packages will be installed:\n"
    "  linux-image-6.1.0-41-amd64 linux-image-amd64\n"
    "0 upgraded, 2 newly installed, 0 to remove and 12 not upgraded.\n"
    "Inst linux-image-6.1.0-41-amd64 (6.1.158-1 Debian:12.12/oldstable, Debian-Security:12/security [amd64])\n"
    "Inst linux-image-amd64 (6.1.158-1 Debian:12.12/oldstable, Debian-Security:12/oldstable-security [amd64])\n"
    "Conf linux-image-6.1.0-41-amd64 (6.1.158-1 Debian:12.12/oldstable [amd64])\n"
    "Conf linux-image-amd64 (6.1.158-1 Debian:12.12/oldstable [amd64])\n"
)


def installing(*names: str, version: str = "580.95.05-1") -> str:
    """A transaction that only installs."""
    lines = "".join(f"Inst {name} ({version} NVIDIA CUDA:localhost [amd64])\n" for name in names)
    return f"{HEAD}0 upgraded, {len(names)} newly installed, 0 to remove and 0 not upgraded.\n{lines}"


def purging(*names: str) -> str:
    """A transaction that only purges."""
    lines = "".join(f"Purg {name} [580.95.05-1]\n" for name in names)
    return f"{HEAD}0 upgraded, 0 newly installed, {len(names)} to remove and 0 not upgraded.\n{lines}"


FINGERPRINT = "47DA9A968FE7ED114034E2C8DAFA4CDA35D29024"
_KEY_BODY = """\
mDMEaw2f5BYJKwYBBAHaRw8BAQdApTtM+wncxzLpbmpy0ERycF4uuACCIsMo0LmZ
enY2VuS0FW9uZSA8b25lQGV4YW1wbGUuY29tPoiQBBMWCAA4FiEER9qalo/n7RFA
NOLI2vpM2jXSkCQFAmsNn+QCGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQ
2vpM2jXSkCQTcAD+M14dMwh6Fpik135q7AxLNshpUYN1aZjOzBW04BOcshkA/A3P
ybkKD1+3Nhl16HvzuLaJOcxyNXsYKyf4N6d27fYEuDgEaw2f5BIKKwYBBAGXVQEF
AQEHQH6ci7al5ZGdI3jPnvrQuaVLcktGVva46nFZrjeU0ncBAwEIB4h4BBgWCAAg
FiEER9qalo/n7RFANOLI2vpM2jXSkCQFAmsNn+QCGwwACgkQ2vpM2jXSkCTMCQEA
rXtzWAXNPLwkaFmDVV+tDRRpzJc3HY0C7c+sYWMGlNkA/3iz5Bw8SmZt2zbaTDSh
qUxHX61tD5Sr2NiJqJDxGncK
=nu0J
"""
OTHER_FINGERPRINT = "CCB3195B6BB8AF72DDED9B55BEA498A894009003"
_OTHER_BODY = """\
mDMEaw2f5BYJKwYBBAHaRw8BAQdASs8phPvLBBEAWxsZ+Zttl/IewnLmYHlgaDr/
GexJPzC0FXR3byA8dHdvQGV4YW1wbGUuY29tPoiQBBMWCAA4FiEEzLMZW2u4r3Ld
7ZtVvqSYqJQAkAMFAmsNn+QCGwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQ
vqSYqJQAkAOhBgD+Jf5w1cUz9nA5KQesRMiJS1+wasDjozE0DOOXyr6thZ0A/2Bl
ZDyQUGORzb8YiIBgTOXcULpaN8O0AByp8Wu+heAC
=EAqM
"""
_BLOCK = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{}-----END PGP PUBLIC KEY BLOCK-----\n"
#: A signing key with an encryption subkey, and another key.
KEY = _BLOCK.format(_KEY_BODY)
OTHER_KEY = _BLOCK.format(_OTHER_BODY)
