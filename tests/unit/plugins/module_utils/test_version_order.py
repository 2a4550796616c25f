# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which package version is older, and which fits a requirement."""

from __future__ import annotations

import itertools

import pytest

from ansible_collections.tokforge.sglang.plugins.module_utils import version_order

#: From old to new, as the specification orders them.
ORDERED = (
    "0.6.12.dev1",
    "0.6.12a1.dev3",
    "0.6.12a1",
    "0.6.12b2",
    "0.6.12rc1",
    "0.6.12rc2",
    "0.6.12",
    "0.6.12.post1.dev1",
    "0.6.12.post1",
    "0.6.13",
    "0.6.13.1",
    "0.10",
    "1!0.1",
)


def test_versions_are_ordered_as_the_specification_says() -> None:
    keys = [version_order.key(version) for version in ORDERED]
    assert None not in keys
    for older, newer in itertools.pairwise(keys):
        assert older is not None
        assert newer is not None
        assert older < newer


@pytest.mark.parametrize(
    ("one", "other"), [("1.0", "1.0.0"), ("0.6.12+cu130", "0.6.12"), ("1.0-1", "1.0.post1"), ("2.0.RC1", "2.0rc1")]
)
def test_spellings_of_one_version_are_equal(one: str, other: str) -> None:
    assert version_order.key(one) == version_order.key(other)
    assert version_order.fits(one, f"=={other}") is True


@pytest.mark.parametrize("text", ["", "x", "1.", ".1", "1..2", "0.0.0+unknown!", "1" * 101, "\0", "1.0 2"])
def test_no_version_has_no_place(text: str) -> None:
    assert version_order.key(text) is None
    assert version_order.at_least(text, "1.0") is None
    assert version_order.at_least("1.0", text) is None


def test_at_least_counts_the_version_itself() -> None:
    assert version_order.at_least("0.7.0", "0.7") is True
    assert version_order.at_least("0.6.18.post1", "0.7.0") is False


@pytest.mark.parametrize(
    ("version", "specifiers", "answer"),
    [
        ("5.19.0", "==5.19.0", True),
        ("5.19.1", "==5.19.0", False),
        ("2.14.1+cu130", "==2.14.1", True),
        ("0.14.5", "<0.15,>=0.14.1", True),
        ("0.15", "<0.15,>=0.14.1", False),
        ("0.14.0", "<0.15,>=0.14.1", False),
        ("0.15rc1", "<0.15", False),
        ("0.15rc1", "<0.15rc2", True),
        ("1.0.post1", ">1.0", False),
        ("1.0.post2", ">1.0.post1", True),
        ("1.1", ">1.0", True),
        ("1.4.5", "~=1.4.2", True),
        ("1.4.1", "~=1.4.2", False),
        ("1.5", "~=1.4.2", False),
        ("1.5", "~=1.4", True),
        ("2.0", "~=1.4", False),
        ("1.5", "==1.*", True),
        ("1.5", "==1.0.*", False),
        ("1.0.9", "==1.0.*", True),
        ("1.5", "!=1.5.*", False),
        ("1.5", "!=1.6", True),
        ("1.5", "<=1.5", True),
        ("1.5", "===1.5", True),
        ("1.5", " >= 1.0 , < 2 ", True),
        ("1.5", "(>=1.0)", True),
        ("1.5", "", None),
        ("1.5", "@ https://x", None),
        ("1.5", ">=x", None),
        ("1.5", ">=x,<1", False),
        ("1.5", "==x.*", None),
        ("x", "==1.0", None),
        ("x", "!=1.*", None),
    ],
)
def test_requirements_are_judged_clause_by_clause(version: str, specifiers: str, answer: bool | None) -> None:
    assert version_order.fits(version, specifiers) is answer
