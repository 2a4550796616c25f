# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the checks before a rollout found, as a table for a person."""

from __future__ import annotations

DOCUMENTATION = r"""
name: preflight_table
short_description: Show what the checks before a rollout found
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - One row a finding of M(tokforge.sglang.preflight), failures first, then warnings, then what is well. The remedy
    stands below its finding.
options:
  _input:
    description: Findings, with the keys C(level), C(check), C(message) and C(remedy).
    type: list
    elements: dict
    required: true
  host:
    description: Whose findings they are.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Show what was found
  ansible.builtin.debug:
    msg: "{{ sglang_preflight | tokforge.sglang.preflight_table(inventory_hostname) }}"
"""

RETURN = r"""
_value:
  description: The table, several lines.
  type: str
"""

from collections.abc import Callable, Mapping, Sequence

from ansible_collections.tokforge.sglang.plugins.module_utils.findings import FAIL, OK, WARN, Finding, counts


def preflight_table(findings: Sequence[Mapping[str, str]], host: str) -> str:
    """The table; its first line counts, so that it can be read alone."""
    found = [Finding(**finding) for finding in findings]
    width = max((len(finding.check) for finding in found), default=0)
    lines = [f"{host}: {counts(found)}"]
    for level in (FAIL, WARN, OK):
        for finding in found:
            if finding.level != level:
                continue
            first, *rest = finding.message.splitlines() or [""]
            lines.append(f"  {level:4}  {finding.check:{width}}  {first}")
            margin = " " * (10 + width)
            lines += [f"{margin}{line}" for line in rest]
            lines += [f"{margin}-> {line}" for line in finding.remedy.splitlines()]
    return "\n".join(lines)


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., str]]:
        return {"preflight_table": preflight_table}
