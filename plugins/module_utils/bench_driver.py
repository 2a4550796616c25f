# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs several `python -m sglang.bench_serving` command lines one after the other in one process.

The source of this file is piped into the Python of the SGLang environment (`python - PLAN`), never imported there.
Each point runs as `runpy` runs `-m`: the same entry point, the same argument parser, the same code; what one process
saves is importing it all again (8 to 20 s a point on a slow machine). It works for every release because it names no
function: 0.5.12 parses its arguments below `if __name__ == "__main__"`, later releases in a function.

PLAN is a JSON file {"module": str, "parent": int, "points": [[argument, ...], ...]}. Exit code: 0, or the number of
the first point that failed, from 1 (not above 99); the points after it are not tried. 100: the plan's parent is not our
parent any more.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import sys
import traceback

_PR_SET_PDEATHSIG = 1
PARENT_GONE = 100
_MOST_POINTS = 99


def end_with_parent(parent: int) -> bool:
    """Ask Linux to kill this process when its parent ends, however it ends; False when the parent has ended already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent may have died before the line above took effect.
    return os.getppid() == parent


def run_point(module: str, arguments: list[str]) -> bool:
    """Run one command line of `module` as `-m` would and say whether it ended well.

    Its traceback goes to stderr as usual.
    """
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code not in (None, 0):
            sys.stderr.write(f"{module} ended with {end.code}\n")
            return False
    except Exception:
        traceback.print_exc()
        return False
    return True


def main(plan_path: str) -> int:
    with open(plan_path, encoding="utf-8") as handle:
        plan = json.load(handle)
    if not end_with_parent(plan["parent"]):
        return PARENT_GONE
    for number, arguments in enumerate(plan["points"], start=1):
        sys.stdout.write(f"== point {number} of {len(plan['points'])}\n")
        sys.stdout.flush()
        if not run_point(plan["module"], arguments):
            return min(number, _MOST_POINTS)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
