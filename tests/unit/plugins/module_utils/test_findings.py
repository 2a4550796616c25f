# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What many findings come to."""

from __future__ import annotations

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils.findings import Finding, counts, verdict


@pytest.mark.parametrize(
    ("levels", "worst"), [("", "ok"), ("ok", "ok"), ("ok warn ok", "warn"), ("warn fail ok", "fail"), ("fail", "fail")]
)
def test_worst_finding_is_the_verdict(levels: str, worst: str) -> None:
    assert verdict([Finding(level, "x", "y") for level in levels.split()]) == worst


def test_each_level_is_counted() -> None:
    found = [Finding(level, "x", "y") for level in ("ok", "fail", "warn", "ok", "fail", "ok")]
    assert counts(found) == "2 failed, 1 to look at, 3 well"
