# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a CUDA driver can run: its branch against the CUDA version that an environment is built for.

Within one major version of CUDA any toolkit runs on the first driver branch of that major version ("minor version
compatibility"); another major version needs a newer branch. Figures: docs.nvidia.com/deploy/cuda-compatibility,
"Minor Version Compatibility", and the CUDA toolkit's release notes.
"""

from __future__ import annotations

import re

from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding

_CHECK = "driver"

#: CUDA major version -> the first driver branch that runs it.
FIRST_BRANCH = {11: 450, 12: 525, 13: 580}

#: Driver branch -> the CUDA version it came with, newest first. A driver runs that and everything older.
BRANCHES: tuple[tuple[int, tuple[int, int]], ...] = (
    (580, (13, 0)),
    (575, (12, 9)),
    (570, (12, 8)),
    (560, (12, 6)),
    (555, (12, 5)),
    (550, (12, 4)),
    (545, (12, 3)),
    (535, (12, 2)),
    (530, (12, 1)),
    (525, (12, 0)),
    (450, (11, 0)),
)


def branch_of(driver_version: str) -> int | None:
    """The branch of a driver version such as 570.124.06, None when it is no such version."""
    match = re.match(r"(\d{3,4})\.\d+", driver_version.strip())
    return int(match[1]) if match else None


def cuda_of(driver_version: str, told: str = "") -> tuple[int, int] | None:
    """The CUDA version of a driver.

    :param told: what nvidia-smi calls the CUDA version; it knows drivers that are newer than this table.
    """
    match = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", told.strip())
    if match:
        return int(match[1]), int(match[2])
    branch = branch_of(driver_version)
    if branch is None:
        return None
    return next((cuda for first, cuda in BRANCHES if branch >= first), None)


def check(driver_version: str, cuda_version: str, wanted: tuple[int, int]) -> list[Finding]:
    """Whether the driver runs an environment that is built for CUDA `wanted`.

    :param driver_version: as nvidia-smi says it, such as 570.124.06.
    :param cuda_version: the CUDA version that nvidia-smi says, or "".
    :param wanted: major and minor version that the lane's torch is built for.
    """
    have = cuda_of(driver_version, cuda_version)
    want = f"{wanted[0]}.{wanted[1]}"
    if have is None:
        message = (
            f"cannot say which CUDA the driver supports: nvidia-smi says {driver_version!r}, this needs CUDA {want}"
        )
        return [Finding(WARN, _CHECK, message, "look at the first lines of nvidia-smi")]
    supports = f"driver {driver_version} supports CUDA {have[0]}.{have[1]}"
    if have[0] < wanted[0]:
        first = FIRST_BRANCH.get(wanted[0])
        branch = f"a driver of branch >= {first}" if first else "a newer driver"
        lower = f", or choose a release with lane cuda{have[0]}" if have[0] >= 12 else ""
        message = f"{supports}, CUDA {wanted[0]} needs {branch}"
        return [Finding(FAIL, _CHECK, message, f"install {branch} on the host (in a container too: the same){lower}")]
    if have < wanted:
        message = (
            f"{supports} and the environment is built for {want}: it runs (minor version compatibility), except for"
            f" code that is kept as PTX of CUDA {want}"
        )
        return [Finding(OK, _CHECK, message)]
    return [Finding(OK, _CHECK, f"{supports}, and {want} is needed")]
