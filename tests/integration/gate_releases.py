# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The autotune gate of every SGLang release since 0.5.0rc0, as its wheel has it.

A new release is one more line here. `autotune_gate.NEWEST_READ` and, when the release tunes other backends than the one
before it, `autotune_gate.RELEASES` follow.
"""

from __future__ import annotations

from dataclasses import dataclass

from ansible_collections.tokforge.sglang.plugins.module_utils.autotune_gate import (
    CLOSED,
    OPEN_UPSTREAM,
    OTHER,
    UNSUPPORTED,
)


@dataclass(frozen=True)
class Release:
    """What a release comes with.

    kind     of gate, for flashinfer_cutlass
    file     that has it, below sglang/srt/model_executor
    line     of flashinfer_cutlass where it is live, of the test where it is not
    live     backends in the collection, in the file's order
    end      line after the last of them, where one more belongs
    indent   blanks before each
    cutlass  line on which a comment in the collection is flashinfer_cutlass, 0 where none is
    routed   the same for flashinfer_trtllm_routed
    """

    kind: str
    file: str = ""
    line: int = 0
    live: tuple[str, ...] = ()
    end: int = 0
    indent: int = 12
    cutlass: int = 0
    routed: int = 0


OLD = Release(UNSUPPORTED)
TWO = ("flashinfer_trtllm", "flashinfer_mxfp4")
THREE = (*TWO, "flashinfer_cutedsl")
FIVE = ("flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_mxfp4", "flashinfer_cutedsl", "flashinfer_cutlass")
SIX = (*FIVE, "flashinfer_megamoe")

RELEASES: dict[str, Release] = {
    "0.5.0rc0": OLD,
    "0.5.0rc1": OLD,
    "0.5.0rc2": OLD,
    "0.5.1": OLD,
    "0.5.1.post1": OLD,
    "0.5.1.post2": OLD,
    "0.5.1.post3": OLD,
    "0.5.2rc0": OLD,
    "0.5.2rc1": OLD,
    "0.5.2rc2": OLD,
    "0.5.2": OLD,
    "0.5.3rc0": OLD,
    "0.5.3rc2": OLD,
    "0.5.3": OLD,
    "0.5.3.post1": OLD,
    "0.5.3.post2": OLD,
    "0.5.3.post3": OLD,
    "0.5.4": OLD,
    "0.5.4.post1": OLD,
    "0.5.4.post2": OLD,
    "0.5.4.post3": OLD,
    "0.5.5": OLD,
    "0.5.5.post1": OLD,
    "0.5.5.post2": OLD,
    "0.5.5.post3": OLD,
    "0.5.6": Release(OTHER, "model_runner.py", 2142),
    "0.5.6.post1": Release(OTHER, "model_runner.py", 2147),
    "0.5.6.post2": Release(OTHER, "model_runner.py", 2150),
    "0.5.7": Release(CLOSED, "model_runner.py", 1687, TWO, 1690, cutlass=1691),
    "0.5.8": Release(CLOSED, "model_runner.py", 1705, TWO, 1708, cutlass=1709),
    "0.5.8.post1": Release(CLOSED, "model_runner.py", 1705, TWO, 1708, cutlass=1709),
    "0.5.9": Release(CLOSED, "model_runner.py", 1838, TWO, 1841, cutlass=1842),
    "0.5.10rc0": Release(CLOSED, "model_runner.py", 1979, TWO, 1982, cutlass=1983),
    "0.5.10": Release(CLOSED, "model_runner.py", 2072, TWO, 2077, routed=2075, cutlass=2078),
    "0.5.10.post1": Release(CLOSED, "model_runner.py", 2072, TWO, 2077, routed=2075, cutlass=2078),
    "0.5.11": Release(CLOSED, "model_runner.py", 2395, THREE, 2401, routed=2398, cutlass=2402),
    "0.5.12": Release(CLOSED, "model_runner.py", 2525, THREE, 2531, routed=2528, cutlass=2532),
    "0.5.12.post1": Release(CLOSED, "model_runner.py", 2532, THREE, 2538, routed=2535, cutlass=2539),
    "0.5.13": Release(OPEN_UPSTREAM, "model_runner.py", 2441, FIVE, 2442),
    "0.5.13.post1": Release(OPEN_UPSTREAM, "model_runner.py", 2441, FIVE, 2442),
    "0.5.14": Release(OPEN_UPSTREAM, "runner/base_runner.py", 279, FIVE, 280),
    "0.5.15": Release(OPEN_UPSTREAM, "runner/flashinfer_autotune.py", 64, FIVE, 65, indent=8),
    "0.5.15.post1": Release(OPEN_UPSTREAM, "runner/flashinfer_autotune.py", 64, FIVE, 65, indent=8),
    "0.5.16": Release(OPEN_UPSTREAM, "runner/flashinfer_autotune.py", 64, FIVE, 65, indent=8),
    "0.5.17": Release(OPEN_UPSTREAM, "runner/flashinfer_autotune.py", 78, FIVE, 79, indent=8),
    "0.5.18": Release(OPEN_UPSTREAM, "runner/flashinfer_autotune.py", 90, FIVE, 91, indent=8),
    "0.5.19": Release(OPEN_UPSTREAM, "runner/flashinfer_autotune.py", 95, FIVE, 96, indent=8),
    "0.5.20": Release(OPEN_UPSTREAM, "runner/flashinfer_autotune.py", 95, FIVE, 96, indent=8),
    "0.5.21": Release(OPEN_UPSTREAM, "runner/flashinfer_autotune.py", 96, FIVE, 97, indent=8),
    "0.5.22": Release(OPEN_UPSTREAM, "runner/flashinfer_autotune.py", 99, SIX, 101, indent=8),
    "0.5.23": Release(OPEN_UPSTREAM, "runner/flashinfer_autotune.py", 122, SIX, 124, indent=8),
}
