# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi says when it does not list GPUs, and what to do about each: state, message and remedy.

Its messages (read in public bug reports of drivers 304 to 595) go to standard output as often as to standard error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ansible_collections.tokforge.sglang.plugins.module_utils.gpu import (
    LOST,
    MISMATCH,
    NO_DEVICE,
    NO_TOOL,
    OK,
    TIMEOUT,
    UNREADABLE,
    Report,
    noted,
)

#: For what we do not know: let a person see it.
RUN_IT = "run nvidia-smi -q -x as the same user and see what it says"

_REBOOT = (
    "see `dmesg | grep -i xid` for the reason, reboot the machine, and when it comes back check the card's seat, power "
    "cables and cooling"
)

_LOST = re.compile(
    r"unable to determine the device handle for gpu[^\n]*|gpu is lost[^\n]*|gpu has fallen off the bus[^\n]*",
    re.IGNORECASE,
)

_LIBRARY_VERSION = re.compile(r"NVML library version:\s*([0-9][0-9.]{0,20})")

#: What an exit code means beside a full list (nvidia-smi's manual, return value).
_CODES = {
    10: "an interrupt problem of a GPU",
    14: "a damaged infoROM of a GPU",
    8: "a power cable that is not attached",
}

#: At most this much of an output that we do not know is shown.
_SHOWN = 200


@dataclass(frozen=True)
class _Saying:
    """A text that nvidia-smi says (lower case), the state it means, and the words for it."""

    said: str
    state: str
    message: str
    remedy: str


_SAYINGS: Sequence[_Saying] = (
    _Saying(
        "driver/library version mismatch",
        MISMATCH,
        "the NVIDIA library is of another version than the loaded kernel module",
        "reboot (or reload the nvidia modules) after a driver update; in a container install the host's driver version "
        "without kernel modules",
    ),
    _Saying(
        "no devices were found",
        NO_DEVICE,
        "the NVIDIA driver is loaded and shows no GPU",
        "see `dmesg | grep -i nvrm` for why the driver did not take the GPU; in a container pass its device files",
    ),
    _Saying(
        "couldn't communicate with the nvidia driver",
        NO_DEVICE,
        "the NVIDIA kernel module is not loaded",
        "load it with `modprobe nvidia`; when there is none for this kernel, install the kernel's headers and run "
        "`dkms autoinstall`, or install the driver",
    ),
    _Saying(
        "driver not loaded",
        NO_DEVICE,
        "the NVIDIA kernel module is not loaded",
        "load it with `modprobe nvidia` on the host",
    ),
    _Saying(
        "couldn't find libnvidia-ml.so",
        NO_TOOL,
        "nvidia-smi is there and its library libnvidia-ml.so is not",
        "install the driver's library of the loaded version (libnvidia-compute), and run ldconfig",
    ),
    _Saying(
        "gpu access blocked by the operating system",
        NO_DEVICE,
        "the operating system does not let this container or WSL guest use the GPU",
        "give the container the GPU's device files; under WSL run `wsl --shutdown` on the Windows host",
    ),
    _Saying(
        "insufficient permissions",
        UNREADABLE,
        "the user may not open the NVIDIA device files",
        "run with become, or give the user access to /dev/nvidiactl and /dev/nvidia0 (`ls -l /dev/nvidia*`)",
    ),
    _Saying(
        "failed to initialize nvml: unknown error",
        NO_DEVICE,
        "the NVIDIA device files cannot be opened here, as in a container that was not given them or lost them",
        "give the container /dev/nvidiactl, /dev/nvidia0 and the others and allow them in its device cgroup, then "
        "restart it",
    ),
)


def explain(text: str, code: int) -> Report:
    """The report for output without any list of GPUs."""
    lower = text.lower()
    lost = _LOST.search(text)
    if lost:
        return Report(LOST, f"a GPU does not answer the driver: {short(lost[0])}", _REBOOT)
    for saying in _SAYINGS:
        if saying.said in lower:
            version = _LIBRARY_VERSION.search(text)
            return Report(saying.state, saying.message, saying.remedy, library_version=version[1] if version else "")
    if not text.strip():
        return Report(UNREADABLE, f"nvidia-smi -q -x wrote nothing and ended with code {code}", RUN_IT)
    return Report(UNREADABLE, f"nvidia-smi -q -x did not write XML but {short(text)!r} (code {code})", RUN_IT)


def judge(report: Report, around: str, code: int, error: str, attached: int | None) -> Report:
    """The report of a list of GPUs, with what was said around the list.

    :param error: why the list ends early, "" when it does not.
    :param attached: how many GPUs the list says there are.
    """
    if code in _CODES:
        report = noted(report, [f"nvidia-smi ended with code {code}: {_CODES[code]}"])
    elif code:
        report = noted(report, [f"nvidia-smi ended with code {code} after its list"])
    good = [one for one in report.gpus if not one.problem]
    bad = [one for one in report.gpus if one.problem]
    lost = _LOST.search(around)
    if lost:
        return replace(
            report,
            state=LOST,
            message=f"a GPU does not answer the driver: {short(lost[0])}; {len(good)} others do",
            remedy=_REBOOT,
        )
    if bad:
        words = ", ".join(f"GPU {one.index} at {one.bus_id or '?'} ({one.problem})" for one in bad)
        return replace(
            report, state=LOST, message=f"does not answer the driver: {words}; {len(good)} others do", remedy=_REBOOT
        )
    if error:
        message = f"nvidia-smi -q -x: its XML cannot be read, {error}; {len(good)} GPUs were whole before that"
        return replace(report, state=UNREADABLE, message=message, remedy=RUN_IT)
    if attached is not None and attached > len(report.gpus):
        message = f"the driver counts {attached} GPUs and lists {len(report.gpus)}"
        return replace(report, state=LOST, message=message, remedy=_REBOOT)
    if not report.gpus:
        return replace(report, state=NO_DEVICE, message="the NVIDIA driver is loaded and lists no GPU", remedy=RUN_IT)
    return replace(report, state=OK)


def no_tool() -> Report:
    """The report for a machine without nvidia-smi."""
    return Report(
        NO_TOOL,
        "nvidia-smi is not installed",
        "install the NVIDIA driver (in a container its user part of the host's version), or use the lane cpu",
    )


def not_ended(command: str, timeout_s: float) -> Report:
    """The report for an nvidia-smi that did not end in time."""
    return Report(
        TIMEOUT,
        f"{command} did not end within {timeout_s:g} s",
        "a GPU or the driver hangs: see `dmesg | grep -i xid`, and reboot when nvidia-smi hangs again; without "
        "persistence the first look can take seconds for each GPU (`nvidia-smi -pm 1`), so a longer limit may do",
    )


def cannot_run(why: str) -> Report:
    """The report for an nvidia-smi that the system does not run."""
    return Report(UNREADABLE, f"running nvidia-smi: {why}", "see `ls -l $(command -v nvidia-smi)` and run it by hand")


def closed_module(version: str) -> tuple[str, str]:
    """Message and remedy for a Blackwell GPU with the proprietary kernel module."""
    branch = version.partition(".")[0] or "580"
    return (
        f"the kernel module {version or 'of the driver'} is the proprietary one, and Blackwell GPUs work with the open "
        "one alone",
        f"install the open module of the same version, as the package nvidia-driver-{branch}-open of Ubuntu, "
        "nvidia-open of NVIDIA's repository or `--kernel-module-type=open` of the .run file, and reboot",
    )


def short(text: str) -> str:
    """The text on one line, without control characters and at most 200 signs long."""
    plain = " ".join("".join(sign if sign.isprintable() else " " for sign in text[: 4 * _SHOWN]).split())
    return plain if len(plain) <= _SHOWN else plain[: _SHOWN - 3] + "..."
