# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The small server of the service tests, which tells in its log that it was asked to end."""

from __future__ import annotations

import logging
import runpy
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn


def end(_number: int, _frame: FrameType | None) -> NoReturn:
    """Say so, and end as a server does that has finished its work."""
    logging.getLogger("fake").info("It was asked to end")
    sys.exit(0)


signal.signal(signal.SIGTERM, end)
runpy.run_path(str(Path(__file__).with_name("fake_server.py")), run_name="__main__")
