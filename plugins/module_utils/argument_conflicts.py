# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arguments that a release takes one by one and refuses together: what is wrong, and what to change.

Only what was asked for is known here. What a release decides by itself later (a page size that an attention backend
needs, an expert parallelism that an all-to-all backend sets) is not, so a rule speaks only where no such decision can
make it wrong. The rules are data, in `argument_rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.tokforge.sglang.plugins.module_utils import argument_rules
from ansible_collections.tokforge.sglang.plugins.module_utils.argument_view import Bound, Rule, View
from ansible_collections.tokforge.sglang.plugins.module_utils.flags import canonical
from ansible_collections.tokforge.sglang.plugins.module_utils.releases import Release, in_span
from ansible_collections.tokforge.sglang.plugins.module_utils.server_args import Problem

_NAMES = frozenset(
    [bound.flag for bound in argument_rules.BOUNDS] + [name for rule in argument_rules.RULES for name in rule.flags]
)


def find(args: Mapping[str, Any], release: Release, env: Mapping[str, Any] | None = None) -> list[Problem]:
    """Every bound and every rule that these arguments break in this release, sorted by flag.

    `args` are all arguments of the start, those of variables included, and `env` is its environment. Values of the
    wrong type break no rule; `server_args.check` tells of them.
    """
    view = View(_by_flag(args, release), env or {})
    found = [problem for bound in argument_rules.BOUNDS for problem in _outside(bound, view, release)]
    found += [problem for rule in argument_rules.RULES for problem in _broken(rule, view, release)]
    return sorted(found, key=lambda problem: problem.flag)


def _by_flag(args: Mapping[str, Any], release: Release) -> dict[str, Any]:
    """The arguments under the names that the rules use: up to 0.5.12 tp-size is but an alias of its flag."""
    found: dict[str, Any] = {}
    for given, value in args.items():
        flag = release.flag(str(given))
        names = (canonical(str(given)),) if flag is None else (flag.name, *flag.aliases)
        found[next((name for name in names if name in _NAMES), names[0])] = value
    return found


def _outside(bound: Bound, view: View, release: Release) -> Iterator[Problem]:
    value = view.number(bound.flag)
    if value is None or not in_span(release.version, bound.sglang) or bound.holds(value):
        return
    yield Problem(
        bound.flag,
        f"--{bound.flag} is {view.shown(bound.flag)}, and SGLang {release.version} needs {bound.words()}; change it",
    )


def _broken(rule: Rule, view: View, release: Release) -> Iterator[Problem]:
    if in_span(release.version, rule.sglang) and rule.broken(view):
        given = [name for name in rule.flags if view.given(name)] or [rule.flags[0]]
        values = ", ".join(f"{name} {view.shown(name)}" for name in given)
        message = f"--{given[0]}: {rule.message} in SGLang {release.version} ({values}); {rule.remedy}"
        yield Problem(given[0], message, rule.level)
