# Copyright (c) 2026, the tokforge.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runs on record that may be ranked together with the latest one."""

from __future__ import annotations

DOCUMENTATION = r"""
name: measured_alike
short_description: The valid runs that were measured like the latest one
version_added: 0.1.0
author: tokforge.sglang contributors (@tokforge)
description:
  - Gives the valid runs of the history that have the engine, the hardware, the model, the lengths and the settings of
    the measurement of the latest run, and decode speculatively when it does, since figures of others cannot be ranked
    with it.
  - To tell a gain from noise use M(tokforge.sglang.comparison_info).
options:
  _input:
    description: The facts, C(ansible_local.sglang).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Show the fastest point that can be held against the latest run
  ansible.builtin.debug:
    msg: "{{ alike | community.general.json_query('max_by([].points[], &output_tok_s)') }}"
  vars:
    alike: "{{ ansible_local.sglang | tokforge.sglang.measured_alike }}"
"""

RETURN = r"""
_value:
  description: The runs, the oldest first. Empty when nothing valid is like the latest run.
  type: list
  elements: dict
"""

from collections.abc import Mapping
from typing import Any, Callable

from ansible.errors import AnsibleFilterError

from ansible_collections.tokforge.sglang.plugins.module_utils import speculation

ALIKE = (
    ("engine", "name"),
    ("hardware",),
    ("context", "model", "path"),
    ("parameters", "input_len"),
    ("parameters", "output_len"),
    ("parameters", "dataset"),
    ("parameters", "ignore_eos"),
    ("parameters", "flush_cache"),
)


def measured_alike(document: Any) -> list[Mapping[str, Any]]:
    """Records of `document` that are valid and agree with its latest one in all of ALIKE, oldest first.

    :raises AnsibleFilterError: when `document` is not a mapping; facts from a damaged file are a text.
    """
    if not isinstance(document, Mapping):
        raise AnsibleFilterError(
            f"measured_alike wants the facts as a mapping, not {type(document).__name__}: {document!s:.80}"
        )
    wanted = _kind(document.get("latest"))
    history = document.get("history")
    return [run for run in (history if isinstance(history, (list, tuple)) else []) if _fits(run, wanted)]


def _fits(run: Any, wanted: list[Any]) -> bool:
    points = _get(run, "points")
    # A query over the points of all runs would fail at one that is none.
    sound = points is None or (isinstance(points, (list, tuple)) and all(isinstance(one, Mapping) for one in points))
    return _get(run, "valid") is True and sound and _kind(run) == wanted


def _kind(run: Any) -> list[Any]:
    found = []
    for names in ALIKE:
        value = run
        for name in names:
            value = _get(value, name)
        found.append(value)
    return [*found, isinstance(run, Mapping) and speculation.in_record(run)]


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


class FilterModule:
    """Filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"measured_alike": measured_alike}
