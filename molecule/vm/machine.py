# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run QEMU again and again: QEMU ends when the machine reboots.

    python machine.py COMMAND...

An emulated machine that resets itself needs minutes for it, a new one seconds. SIGTERM ends QEMU and this program.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from types import FrameType

# A machine that starts again and again is broken.
MOST_STARTS = 20


def end(number: int, frame: FrameType | None) -> None:
    """Leave through the with block below, which ends QEMU."""
    del frame
    sys.exit(128 + number)


signal.signal(signal.SIGTERM, end)
for _start in range(MOST_STARTS):
    with subprocess.Popen(sys.argv[1:]) as qemu:
        try:
            status = qemu.wait()
        except SystemExit:
            qemu.terminate()
            raise
    if status != 0:
        sys.exit(status)
