# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values from JSON."""

from __future__ import annotations

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import finite, is_whole, number


@pytest.mark.parametrize(
    ("value", "whole"), [(0, True), (-3, True), (True, False), (2.0, False), ("1", False), (None, False)]
)
def test_only_whole_numbers_are_whole(value: object, whole: bool) -> None:
    assert is_whole(value) is whole


@pytest.mark.parametrize(("value", "number"), [(0, 0.0), (-2.5, -2.5), (3, 3.0), (10**300, 1e300)])
def test_finite_numbers_are_floats(value: object, number: float) -> None:
    found = finite(value)
    assert (found, type(found)) == (number, float)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), -float("inf"), 10**400, -(10**400), True, False, "1", None, [1], {}]
)
def test_what_is_no_finite_number_is_none(value: object) -> None:
    assert finite(value) is None


@pytest.mark.parametrize(("written", "read"), [("5", 5.0), (" 1e3 ", 1000.0), (2, 2.0), ("-0.5", -0.5)])
def test_number_in_a_play_may_be_a_text(written: object, read: float) -> None:
    assert number(written) == read


@pytest.mark.parametrize("written", ["", "five", "nan", "inf", "1e999", True, None, [5], 10**400])
def test_other_texts_are_no_numbers(written: object) -> None:
    assert number(written) is None
