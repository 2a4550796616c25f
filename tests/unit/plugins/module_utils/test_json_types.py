# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values from JSON."""

from __future__ import annotations

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import is_whole


@pytest.mark.parametrize(
    ("value", "whole"), [(0, True), (-3, True), (True, False), (2.0, False), ("1", False), (None, False)]
)
def test_only_whole_numbers_are_whole(value: object, whole: bool) -> None:
    assert is_whole(value) is whole
