# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write what a kernel tells of two Blackwell GPUs, for files that are bound over the kernel's own.

    python hardware.py DIRECTORY                 no driver is loaded
    python hardware.py DIRECTORY VERSION UVM     a driver is loaded; UVM and the number after it are those it was given

    devices   /proc/devices
    driver/   /proc/driver
    pci/      /sys/bus/pci

What is there is written in place: a bind mount shows the file that it was made from, not one that took its name. Says
"unchanged" when nothing is new.
"""

from __future__ import annotations

import sys
from pathlib import Path

GPUS = ("0000:01:00.0", "0000:41:00.0")
# RTX PRO 6000, which only the open kernel module drives.
ON_THE_BUS = {"vendor": "0x10de", "device": "0x2bb1", "class": "0x030000", "numa_node": "0", "local_cpulist": "0"}
NUMBERS = """\
Character devices:
  1 mem
  5 /dev/tty
 10 misc
136 pts
{driver}
Block devices:
  7 loop
254 virtblk
"""
VERSION = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (builder@example.invalid)
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)
"""
INFORMATION = """\
Model: \t\t NVIDIA RTX PRO 6000 Blackwell Workstation Edition
IRQ:   \t\t {irq}
GPU UUID: \t GPU-{minor:08x}-0000-4000-8000-000000000000
Bus Type: \t PCIe
Bus Location: \t {address}
Device Minor: \t {minor}
GPU Excluded:\t No
"""
CAPABILITY = "DeviceFileMinor: {minor}\nDeviceFileMode: 256\nDeviceFileModify: 1\n"


def files(version: str, uvm: int) -> dict[str, str]:
    """All files by their path below the directory."""
    driver = ""
    if version:
        numbers = {"nvidia": 195, "nvidiactl": 195, "nvidia-uvm": uvm, "nvidia-caps": uvm + 1}
        driver = "".join(f"{number:3} {name}\n" for name, number in numbers.items())
    found = {"devices": NUMBERS.format(driver=driver)}
    for minor, address in enumerate(GPUS):
        found |= {f"pci/devices/{address}/{name}": f"{value}\n" for name, value in ON_THE_BUS.items()}
        if version:
            information = INFORMATION.format(irq=100 + minor, minor=minor, address=address)
            found[f"driver/nvidia/gpus/{address}/information"] = information
    if version:
        for minor, name in enumerate(("config", "monitor"), start=1):
            found[f"driver/nvidia/capabilities/mig/{name}"] = CAPABILITY.format(minor=minor)
        found["driver/nvidia/version"] = VERSION.format(version=version)
    return found


def main() -> None:
    """Write the files that differ."""
    root = Path(sys.argv[1])
    version, uvm = (sys.argv[2], int(sys.argv[3])) if len(sys.argv) > 2 else ("", 0)
    changed = False
    for directory in ("driver", "pci/drivers/nvidia"):
        (root / directory).mkdir(parents=True, exist_ok=True)
    for name, text in files(version, uvm).items():
        path = root / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        changed = True
    for address in GPUS if version else ():
        link = root / f"pci/devices/{address}/driver"
        if not link.is_symlink():
            link.symlink_to("../../drivers/nvidia")
            changed = True
    print("changed" if changed else "unchanged")


if __name__ == "__main__":
    main()
