# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is in a tuning file: the kernel's settings for batch sizes. SGLang takes those of the nearest batch size.

It checks nothing: what is wrong ends the server at its first forward (read in 0.5.0rc0 to 0.5.23).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole
from ansible_collections.tokforge.sglang.plugins.module_utils.releases import sort_key

# Kernel settings by batch size.
Settings = Mapping[int, Mapping[str, Any]]
# The kernel has no defaults for these.
BLOCKS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
NEEDED = (*BLOCKS, "GROUP_SIZE_M")
NUMBERS = (*NEEDED, "num_warps", "num_stages")
TMA = "USE_TMA"
# Before these, the key reached the kernel, which takes no such argument.
TMA_UP_SINCE = "0.5.18"
# From here on the down projection's block size is made to fit; before, an assertion ended the server.
DOWN_FITTED_SINCE = "0.5.13"


class ContentError(Exception):
    """A file that SGLang cannot use; the message is a clause that says what is wrong in it.

    `fatal`: whether the server ends at its first forward, else SGLang goes on with its defaults.
    """

    def __init__(self, message: str, fatal: bool = True) -> None:
        super().__init__(message)
        self.fatal = fatal


def read(text: str, release: str, down: bool = False) -> Settings:
    """The settings by batch size. Raises ContentError with the first thing that is wrong.

    :param down: whether it is the down projection's file, which may say USE_TMA in every release that reads it.
    """
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as exc:
        place = f" at line {exc.lineno}" if isinstance(exc, json.JSONDecodeError) else ""
        raise ContentError(f"it is no valid JSON{place}") from exc
    if not isinstance(given, dict):
        raise ContentError("it is no JSON object")
    if not given:
        raise ContentError("it has no batch size, so SGLang takes its defaults although it logs the file", fatal=False)
    found = {}
    for key, settings in given.items():
        try:
            batch = int(key)
        except ValueError as exc:
            raise ContentError(f"its key {_short(key)} is no batch size") from exc
        _check(key, settings, down or sort_key(release) >= sort_key(TMA_UP_SINCE))
        found[batch] = settings
    return found


def _check(batch: str, settings: Any, tma: bool) -> None:
    at = f"at batch size {batch}"
    if not isinstance(settings, dict):
        raise ContentError(f"{at} it has no object with settings")
    missing = [name for name in NEEDED if name not in settings]
    if missing:
        raise ContentError(f"{at} it lacks {', '.join(missing)}")
    for name in NUMBERS:
        value = settings.get(name, 1)
        if not is_whole(value) or value < 1:
            raise ContentError(f"{at} its {name} is {_short(value)} and no number above 0")
        if name in BLOCKS and value & (value - 1):
            raise ContentError(f"{at} its {name} is {_short(value)} and no power of two")
    if TMA in settings and not tma:
        raise ContentError(f"{at} it has {TMA}, which a file like this may have from SGLang {TMA_UP_SINCE} on")


def _short(value: Any) -> str:
    # A number of thousands of digits cannot even be written.
    if is_whole(value) and value.bit_length() > 128:
        return "a huge number"
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


def nearest(settings: Settings, batch: int) -> Mapping[str, Any]:
    """The settings that SGLang takes for a batch: those of the nearest size, of two the one that comes first."""
    return settings[min(settings, key=lambda size: abs(size - batch))]


def default_block(dtype: str, in_blocks: bool, experts: int, batch: int) -> int:
    """BLOCK_SIZE_M without a file, on a rank with so many experts (read in 0.5.4.post2 to 0.5.12.post1)."""
    small = batch <= experts
    if dtype == "fp8_w8a8":
        return 64 if in_blocks or small else 128
    return 16 if small else 64


def differing_blocks(block: Callable[[int], int], down: Settings, sizes: Iterable[int]) -> int | None:
    """A batch size for which the down projection's file has another BLOCK_SIZE_M; None when there is none.

    Both kernels share one sorting of the tokens, so the two must not differ.

    :param block: the other kernel's BLOCK_SIZE_M for a batch size.
    :param sizes: batch sizes from which on the other kernel may have another one.
    """
    known = sorted({*sizes, *down})
    # Where the nearest size changes, and every size itself.
    edges = {(left + right) // 2 + step for left, right in zip(known, known[1:]) for step in (0, 1)}
    batches = sorted(batch for batch in {*known, *edges, 1} if batch > 0)
    return next((batch for batch in batches if block(batch) != nearest(down, batch)["BLOCK_SIZE_M"]), None)
