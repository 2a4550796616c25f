# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who decodes speculatively, whichever engine measured it."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils.speculation import in_args, in_record


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ({"speculative-algorithm": "EAGLE"}, True),
        ({"speculative_algorithm": "NEXTN"}, True),
        ({"--speculative-algorithm": "EAGLE"}, True),
        ({"speculative-algorithm": None}, False),
        ({"speculative-algorithm": ""}, False),
        ({"speculative-num-steps": 3}, False),
        ({}, False),
        (None, False),
        (["--speculative-algorithm", "EAGLE"], False),
    ],
)
def test_arguments_tell_it(args: Any, found: bool) -> None:
    assert in_args(args) is found
    # An engine that never tells how many tokens were accepted.
    assert in_record({"context": {"args": args}, "points": [{"accept_length": None}]}) is found


@pytest.mark.parametrize(("points", "found"), [([{"accept_length": 2.5}], True), ([None, {}], False), ("x", False)])
def test_accepted_tokens_tell_it_too(points: Any, found: bool) -> None:
    assert in_record({"context": None, "points": points}) is found
