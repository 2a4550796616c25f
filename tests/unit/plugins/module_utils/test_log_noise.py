# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines that look like trouble and are none: which are counted, how often, and which are not."""

from __future__ import annotations

import time

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import log_noise

HEAD = "2026-11-29 16:52:38,123 - DEBUG - autotuner.py:834 - flashinfer.jit: "


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (f"{HEAD}[Autotuner]: Skipping tactic <R> 3, due to failure while profiling: x", ("skipped_tactics", 1)),
        (f"{HEAD}[Autotuner]: Skipped 12 unsupported tactic(s) for gemm (enable debug", ("unsupported_tactics", 12)),
        ("[Autotuner]: Skipped 0 unsupported tactic(s)", ("unsupported_tactics", 0)),
        (f"{HEAD}[Autotuner]: OOM detected, falling back to default tactic", ("tuning_out_of_memory", 1)),
        ("[t TP0] Ignore import error when loading sglang.srt.models.x: y", ("import_errors", 1)),
        ("Skipping tactic <R> 3, but nobody says why", None),
        ("due to failure while profiling: Skipping tactic ", None),
        ("Skipped some unsupported tactic(s)", None),
        ("OOM detected, and that was it", None),
        ("RuntimeError: CUDA out of memory", None),
        ("", None),
    ],
)
def test_a_line_is_counted_as_what_it_is(line: str, kind: tuple[str, int] | None) -> None:
    assert log_noise.kind(line) == kind


def test_a_number_that_is_none_is_not_counted() -> None:
    assert log_noise.kind("Skipped " + "9" * 5000 + " unsupported tactic(s)") is None


def test_a_long_line_is_judged_at_once() -> None:
    begun = time.process_time()
    for line in ("Skipping tactic " * 60_000, "Skipped 1 unsupported tactic" * 30_000):
        assert log_noise.kind(line) is None
    assert time.process_time() - begun < 1
