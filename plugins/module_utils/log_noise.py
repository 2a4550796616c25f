# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines of a server's log that look like trouble and are none.

Each was seen in logs of servers that served, or is written by code that goes on by another way (read in SGLang
0.5.12.post1 and 0.5.23, FlashInfer 0.6.11.post1 and 0.7.2). They are counted, never taken for a failure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

#: What is counted -> text that every such line holds (a fast test), and the pattern that decides from there on. Lines
#: can be long, so no pattern may look for its end again and again.
KINDS: Mapping[str, tuple[str, re.Pattern[str]]] = {
    # FlashInfer's autotuner tries kernels that do not fit and goes on with those that do.
    "skipped_tactics": ("Skipping tactic ", re.compile(r"due to failure while profiling")),
    # One line for many: the number in it is what counts.
    "unsupported_tactics": ("unsupported tactic", re.compile(r"Skipped (?P<count>\d{1,9}) unsupported tactic\(s\)")),
    "tuning_out_of_memory": ("OOM detected, ", re.compile(r"OOM detected, falling back to default tactic")),
    # SGLang: a model's file that this machine cannot import, one line for each of some dozens.
    "import_errors": ("Ignore import error when ", re.compile(r"Ignore import error when loading ")),
}


def kind(line: str) -> tuple[str, int] | None:
    """Which noise a line is and how often it counts; None when it is none."""
    for name, (hint, pattern) in KINDS.items():
        at = line.find(hint)
        if at < 0:
            continue
        match = pattern.search(line, 0 if "count" in pattern.groupindex else at)
        if match:
            return name, int(match.groupdict().get("count") or 1)
    return None
