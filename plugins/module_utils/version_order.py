# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of two package versions is older, and whether one fits a requirement, as pip decides it (PEP 440).

https://packaging.python.org/en/latest/specifications/version-specifiers/. The local part (`+cu130`) says how a release
was built, not which it is, so it takes no part.
"""

from __future__ import annotations

import re

from ansible_collections.tokforge.sglang.plugins.module_utils import lockfile

#: Ordered like the version it belongs to: epoch, release numbers, stage, post and development number.
Key = tuple[int, tuple[int, ...], tuple[int, int], int, tuple[int, int]]

# A version in lockfile.normal's one spelling, without its local part.
_NORMAL = re.compile(
    r"(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)(?:(?P<stage>a|b|rc)(?P<stage_n>\d+))?(?:\.post(?P<post>\d+))?"
    r"(?:\.dev(?P<dev>\d+))?"
)
_CLAUSE = re.compile(r"(===|==|!=|<=|>=|~=|<|>)\s*([^\s,;]+)")
_STAGES = {"a": 0, "b": 1, "rc": 2, None: 3}
_FINAL = (3, 0)

#: No version is longer. Python refuses to turn thousands of digits into a number.
_LONGEST = 100


def key(version: str) -> Key | None:
    """What to compare versions by, None for a text that is no version."""
    if len(version) > _LONGEST:
        return None
    public, plus, local = lockfile.normal(version).partition("+")
    match = _NORMAL.fullmatch(public)
    if match is None or (plus and not re.fullmatch(r"[a-z0-9]+(?:\.[a-z0-9]+)*", local)):
        return None
    stage = (_STAGES[match["stage"]], int(match["stage_n"] or 0))
    if match["dev"] and not match["stage"] and not match["post"]:
        # A development version of the release itself is older than its first alpha.
        stage = (-1, 0)
    return (
        int(match["epoch"] or 0),
        tuple(int(part) for part in match["release"].split(".")),
        stage,
        int(match["post"]) if match["post"] else -1,
        (0, int(match["dev"])) if match["dev"] else (1, 0),
    )


def at_least(version: str, least: str) -> bool | None:
    """Whether `version` is `least` or newer; None when one of them is no version."""
    have, want = key(version), key(least)
    return None if have is None or want is None else have >= want


def fits(version: str, specifiers: str) -> bool | None:
    """Whether a version fits clauses such as `>=1.2,<2`; None when that cannot be said."""
    bare = specifiers.strip()
    if bare.startswith("(") and bare.endswith(")"):
        # How older metadata writes it.
        bare = bare[1:-1]
    clauses = _CLAUSE.findall(bare)
    if not clauses or _CLAUSE.sub("", bare).strip(" ,"):
        return None
    answers = [_fits(version, operator, wanted) for operator, wanted in clauses]
    if False in answers:
        return False
    return None if None in answers else True


def _fits(version: str, operator: str, wanted: str) -> bool | None:
    if wanted.endswith(".*") and operator in ("==", "!="):
        same = _begins(version, wanted[:-2])
        return same if same is None or operator == "==" else not same
    have, want = key(version), key(wanted)
    if have is None or want is None:
        return None
    if operator == "~=":
        # Without its last number: ~=1.4.2 is any 1.4 from 1.4.2 on.
        numbers = re.match(r"(?:\d+!)?((?:\d+\.)*)\d+", wanted)
        prefix = numbers[1].rstrip(".") if numbers else ""
        return have >= want and _begins(version, prefix) is True
    return {
        "==": have == want,
        "===": have == want,
        "!=": have != want,
        "<=": have <= want,
        ">=": have >= want,
        # Neither the candidates of a release nor its corrections are "before" or "after" it.
        "<": have < want and not (have[:2] == want[:2] and have[2] < _FINAL <= want[2]),
        ">": have > want and not (have[:3] == want[:3] and want[3] < 0 <= have[3]),
    }[operator]


def _begins(version: str, prefix: str) -> bool | None:
    """Whether the release numbers of a version begin with those of a prefix, zeros included: 1.0 does not begin 1.5."""
    have = key(version)
    if have is None or not re.fullmatch(r"\d{1,9}(?:\.\d{1,9})*", prefix):
        return None
    want = tuple(int(part) for part in prefix.split("."))
    return (have[1] + (0,) * len(want))[: len(want)] == want
