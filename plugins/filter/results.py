# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recorded benchmark results as a table for people."""

from __future__ import annotations

DOCUMENTATION = r"""
name: results
short_description: Recorded benchmark results as the lines of a table
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Makes a table of what M(tokforge.sglang.benchmark) recorded, one line a concurrency, the newest run first.
  - Figures of different engines stand below each other and are not to be compared.
  - For single figures query the facts themselves, for example with P(community.general.json_query#filter).
options:
  _input:
    description: The facts, C(ansible_local.sglang). Facts that were never recorded give an empty table.
    type: dict
    required: true
  runs:
    description: How many runs to show.
    type: int
    default: 10
  valid_only:
    description: Leave out runs that may not be believed. Otherwise they are marked C(no) and their reasons follow.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Show what was measured on this host
  ansible.builtin.debug:
    msg: "{{ ansible_local.sglang | tokforge.sglang.results(runs=3) }}"
"""

RETURN = r"""
_value:
  description: The lines, the first one holds the names of the columns.
  type: list
  elements: str
"""

from collections.abc import Mapping, Sequence
from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.tokforge.sglang.plugins.module_utils.json_types import finite, is_whole

#: Columns of text; figures follow.
TEXTS = ("recorded", "SGLang", "backend", "engine")
# No figure of a benchmark is as large; what is would spoil the table.
_LARGEST = 1e15
COLUMNS = (*TEXTS, "concurrency", "output tok/s", "TTFT ms", "TPOT ms", "completed", "valid")


def results(document: Any, runs: int = 10, valid_only: bool = False) -> list[str]:
    """Lines of a table of the newest `runs` records in a fact document, newest first.

    :raises AnsibleFilterError: when `document` is not a mapping; facts from a damaged file are a text.
    """
    if not isinstance(document, Mapping):
        raise AnsibleFilterError(
            f"results wants the facts as a mapping, not {type(document).__name__}: {document!s:.80}"
        )
    history = [run for run in _items(document.get("history")) if run.get("valid") is True or not valid_only]
    rows: list[Sequence[str] | str] = [COLUMNS]
    for run in list(reversed(history))[:runs]:
        rows += [_row(run, point) for point in _items(run.get("points"))]
        reasons = run.get("reasons")
        rows += [f"  {_line_of(one)}" for one in (reasons if isinstance(reasons, list) else []) if _line_of(one)]
    widths = [max(len(row[column]) for row in rows if not isinstance(row, str)) for column in range(len(COLUMNS))]
    return [row if isinstance(row, str) else _line(row, widths) for row in rows]


def _row(run: Mapping[str, Any], point: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        _text(run.get("recorded_at")),
        _text(_get(run.get("context"), "sglang_version")),
        _text(_get(run.get("context"), "backend")),
        # sglang.bench_serving is a module of that name.
        _text(_get(run.get("engine"), "name")).rpartition(".")[2],
        _count(point.get("concurrency")),
        _figure(point.get("output_tok_s")),
        _figure(point.get("ttft_median_ms")),
        _figure(point.get("tpot_median_ms")),
        f"{_count(point.get('completed'))}/{_count(point.get('num_prompts'))}",
        "yes" if run.get("valid") is True and point.get("valid") is True else "no",
    )


# The fact file takes whatever is JSON, so that nothing here may rely on more.


def _items(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, (list, tuple)) else []


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _text(value: Any) -> str:
    return _line_of(value) or "-"


def _line_of(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _count(value: Any) -> str:
    return str(value) if is_whole(value) and finite(value) is not None and abs(value) < _LARGEST else "-"


def _figure(value: Any) -> str:
    number = finite(value)
    return "-" if number is None or abs(number) >= _LARGEST else f"{number:.1f}"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    """Text to the left, figures to the right, as in any table of figures."""
    cells = [
        cell.ljust(width) if column < len(TEXTS) else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths))
    ]
    return "  ".join(cells).rstrip()


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"results": results}
